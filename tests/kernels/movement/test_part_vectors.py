"""Tensors joined and cut by vectors: the bits of the reference and the engine, in plain C here and on an emulated Cortex-M55."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from emitc.boards.verify import on_emulator
from emitc.compiler import compile_model
from emitc.writers.tflite import write_tflite
from tests.kernels.movement import test_concatenation, test_pack, test_split
from tests.kernels.movement.test_concatenation import of_shapes
from tests.kernels.movement.test_split import split, split_v
from tests.support.single_op import Case, model_of, prove

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

CASES: list[Case] = [
    split_v("rows_of_registers", (5, 80), [32, 48], 1),
    split_v("rows_with_remainders", (3, 61), [17, 29, 15], 1),
    split_v("one_row", (1, 100), [67, 33], 1),
    split("columns", (67, 6), 6, 1),
    split("columns_of_shorts", (5, 8), 8, 1, "int16"),
    split_v("columns_of_threes", (33, 17), [3, 3, 3, 3, 3, 2], 1),
    of_shapes("joined_rows_of_registers", [(5, 32), (5, 16)], 1),
    of_shapes("joined_rows_with_remainders", [(4, 21), (4, 31), (4, 14)], 1),
    of_shapes("joined_into_one_row", [(1, 40), (1, 57)], 1),
    of_shapes("joined_numbers", [(2, 3, 5), (2, 4, 5)], 1, "float32"),
    of_shapes("joined_columns", [(70, 3), (70, 1), (70, 2)], 1),
    of_shapes("joined_columns_of_threes", [(16, 3)] * 5 + [(16, 2)], 1),
]
"""Rows of whole registers and of what is left over; columns up to those whose sixteenth byte is as far away as a byte tells."""
FEW = [
    split("columns_of_three", (3, 6), 6, 1),
    split_v("short_parts", (4, 30), [25, 5], 1),
    of_shapes("wide_rows_of_columns", [(16, 3)] * 6, 1),
]
"""What has no variant: for the number of rows, the mean of the parts, and the bytes of a row."""


def test_variants_are_chosen_where_they_take_fewer_instructions() -> None:
    cases = [*CASES, *FEW]
    proven = prove(cases, target="cortex-m55", engine=None, samples=1, sanitize=False)
    variants = {name: outcome.step.variant for name, outcome in proven.outcomes.items() if outcome.step}
    assert set(variants) == {case.id for case in cases}
    assert {name for name, variant in variants.items() if variant != "mve"} == {case.id for case in FEW}


@pytest.mark.parametrize(
    "cases",
    [CASES, test_split.CASES, test_concatenation.CASES, test_pack.CASES],
    ids=["registers", "split", "joined", "pack"],
)
def test_on_this_machine(cases: list[Case]) -> None:
    proven = prove(cases, target="cortex-m55")
    for outcome in proven.outcomes.values():
        outcome.check()
    assert proven.memory_errors == ()


@pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")), reason="needs the Arm tools and QEMU"
)
def test_on_an_emulated_cortex_m55(tmp_path: Path) -> None:
    model = tmp_path / "cases.tflite"
    model.write_bytes(write_tflite(model_of([*CASES, *FEW])))
    compiled = compile_model(model, target="cortex-m55", package="platformio")
    assert {step.kernel_name for step in compiled.program.steps if step.variant == "mve"} == {
        "join_mve", "join_narrow_mve", "split_mve", "split_narrow_mve",
    }  # fmt: skip
    result = on_emulator(compiled, "qemu_m55", reference="numpy", samples=3, seed=1, layers=False, workdir=tmp_path)
    assert result.match

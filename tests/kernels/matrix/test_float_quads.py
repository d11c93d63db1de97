"""LSTM and BATCH_MATMUL of float32 by a float unit or vectors: the bits of the portable kernel, here and emulated."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from emitc.boards.result import RunResult
from emitc.boards.verify import on_emulator
from emitc.compiler import compile_model
from emitc.writers.tflite import write_tflite
from tests.support.float_cases import with_values
from tests.support.recurrent_cases import lstm_float
from tests.support.single_op import Case, model_of, plain, preferring, prove

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

MODEST = np.array([0.0, -0.0, 1.0, -1.0, 6.0, -3.5, 30.0, -30.0], np.float32)
CORES = {"fpu": ("cortex-m4f", "qemu_m4"), "mve": ("cortex-m55", "qemu_m55")}


def product(name: str, a: tuple[int, ...], b: tuple[int, ...], y: tuple[int, ...], *, turned: bool = False) -> Case:
    """turned: b lies column by column."""
    return Case(name, "BATCH_MATMUL", (plain(a), plain(b)), (plain(y),), {"adj_x": False, "adj_y": turned}, 1)


CASES: list[Case] = [
    with_values(case, MODEST)
    for case in (
        *(lstm_float(f"depth_{d}", 1, 3, d, 4) for d in (1, 2, 3, 4, 9)),
        *(lstm_float(f"units_{u}", 1, 3, 5, u) for u in (1, 2, 3, 8, 17)),
        lstm_float("batches", 3, 4, 5, 3),
        lstm_float("time_major", 2, 5, 4, 3, time_major=True),
        lstm_float("clip", 1, 9, 5, 4, clip=0.4),
        lstm_float("saturated", 1, 6, 5, 4, spread=8.0),
        product("rows", (8, 12), (12, 8), (8, 8)),
        product("odd", (2, 3, 7), (2, 7, 6), (2, 3, 6)),
        product("repeated_b", (3, 5, 4), (4, 9), (3, 5, 9)),
    )
]


PORTABLE: list[Case] = [
    with_values(case, MODEST)
    for case in (
        product("turned", (3, 5), (6, 5), (3, 6), turned=True),
        product("one_row", (2, 1, 7), (2, 7, 6), (2, 1, 6)),
        product("few_columns", (4, 5), (5, 3), (4, 3)),
    )
]


@pytest.mark.parametrize("variant", CORES)
def test_four_numbers_are_summed_in_the_same_order(variant: str) -> None:
    portable = prove(CASES, samples=6, sanitize=False)
    with preferring(variant):
        proven = prove(CASES, samples=6, target=CORES[variant][0])
    assert proven.memory_errors == ()
    for name, outcome in proven.outcomes.items():
        kind = "matmul" if outcome.case.opcode == "BATCH_MATMUL" else "sequence_lstm"
        assert outcome.step is not None and outcome.step.kernel_name == f"{kind}_float_{variant}"
        for expected, found in zip(portable.outcomes[name].compiled, outcome.compiled, strict=True):
            assert [y.tolist() for y in expected] == [y.tolist() for y in found], name


@pytest.mark.parametrize("variant", CORES)
def test_other_products_keep_the_portable_kernel(variant: str) -> None:
    with preferring(variant):
        steps = prove(PORTABLE, samples=1, sanitize=False, target=CORES[variant][0]).compiled.program.steps
    assert [step.kernel_name for step in steps] == ["batch_matmul_float"] * len(PORTABLE)


def _result(variant: str, board: str, folder: Path) -> RunResult:
    folder.mkdir()
    model = folder / "cases.tflite"
    model.write_bytes(write_tflite(model_of(CASES)))
    with preferring(variant):
        compiled = compile_model(model, target=CORES["mve" if board == "qemu_m55" else "fpu"][0], package="platformio")
    assert {step.variant for step in compiled.program.steps} == {variant}
    return on_emulator(compiled, board, reference="numpy", samples=3, seed=1, layers=False, workdir=folder / "run")


@pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")), reason="needs the Arm tools and QEMU"
)
@pytest.mark.sweep(keep=1)
@pytest.mark.parametrize(("variant", "board"), [(v, board) for v, (_, board) in CORES.items()])
def test_on_emulated_cores(variant: str, board: str, tmp_path: Path) -> None:
    found, plain = (_result(name, board, tmp_path / name) for name in (variant, "portable"))
    assert found.match
    assert (found.differing_bytes, found.max_abs_diff) == (plain.differing_bytes, plain.max_abs_diff)

"""SOFTMAX on cores with vectors: the bits of the reference and the engine, in plain C here and on an emulated Cortex-M55."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import pytest

from emitc.boards.verify import on_emulator
from emitc.compiler import compile_model
from emitc.writers.tflite import write_tflite
from tests.kernels.elementwise import test_int16_elementwise
from tests.kernels.normalization import test_softmax
from tests.support.single_op import Case, EngineName, model_of, prove

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

SHORTS = [case for case in test_int16_elementwise.SOFTMAX if case.inputs[0].dtype == "int16"]
CASES: list[Case] = [*test_softmax.CASES[:8], *SHORTS[:4]]
"""Rows that fill registers, and rows that leave lanes over."""


@pytest.mark.sweep(keep=1)
@pytest.mark.parametrize(
    ("cases", "engine"),
    [(test_softmax.CASES, "tflm"), (test_softmax.LONG, None), (SHORTS, "tflm")],
    ids=["bytes", "large_sums", "shorts"],
)
def test_on_this_machine(cases: list[Case], engine: EngineName | None) -> None:
    proven = prove(cases, engine=engine, target="cortex-m55")
    for outcome in proven.outcomes.values():
        outcome.check()
    assert proven.memory_errors == ()
    assert {outcome.step.variant for outcome in proven.outcomes.values() if outcome.step} == {"mve"}


@pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")), reason="needs the Arm tools and QEMU"
)
def test_on_an_emulated_cortex_m55(tmp_path: Path) -> None:
    """The last lanes hold zeros, which are above the largest value of a row where all its values are negative."""
    cases = [c for c in (*test_softmax.CASES, *test_softmax.LONG, *SHORTS) if math.prod(c.inputs[0].shape) <= 4095]
    model = tmp_path / "cases.tflite"
    model.write_bytes(write_tflite(model_of(cases)))
    compiled = compile_model(model, target="cortex-m55", package="platformio")
    assert {step.kernel_name for step in compiled.program.steps} == {"softmax_mve", "softmax_s16_mve"}
    result = on_emulator(compiled, "qemu_m55", reference="numpy", samples=4, seed=1, layers=False, workdir=tmp_path)
    assert result.match

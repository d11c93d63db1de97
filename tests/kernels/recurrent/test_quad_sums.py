"""LSTM and SVDF on cores with DSP instructions or vectors: the bits of the reference and the engine, here and emulated."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from emitc.boards.verify import on_emulator
from emitc.compiler import compile_model
from emitc.writers.tflite import write_tflite
from tests.kernels.recurrent import test_svdf
from tests.kernels.recurrent import test_unidirectional_sequence_lstm as test_lstm
from tests.kernels.recurrent.test_svdf import svdf
from tests.support.recurrent_cases import lstm
from tests.support.single_op import Case, model_of, prove

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

CORES = {"dsp": ("cortex-m4", "qemu_m4"), "mve": ("cortex-m55", "qemu_m55")}
LONGER: list[Case] = [
    lstm("many_units", 1, 3, 21, 18),
    lstm("whole_registers", 1, 2, 16, 32),
    svdf("long_memories", 1, 37, 6, 2, 38),
    svdf("memories_of_registers", 2, 16, 8, 1, 17),
]


@pytest.mark.sweep(keep=3)
@pytest.mark.parametrize("variant", CORES)
@pytest.mark.parametrize("cases", [test_svdf.CASES, test_lstm.CASES, LONGER], ids=["svdf", "lstm", "longer"])
def test_on_this_machine(variant: str, cases: list[Case]) -> None:
    narrow = [case for case in cases if not case.id.startswith(("wide", "between_scores"))]
    proven = prove(narrow, target=CORES[variant][0])
    for outcome in proven.outcomes.values():
        outcome.check()
    assert proven.memory_errors == ()
    assert {o.step.variant for o in proven.outcomes.values() if o.step} == {variant}


@pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")), reason="needs the Arm tools and QEMU"
)
@pytest.mark.sweep(keep=1)
@pytest.mark.parametrize("variant", CORES)
def test_on_an_emulated_core(variant: str, tmp_path: Path) -> None:
    target, board = CORES[variant]
    some = [
        case for case in (*test_svdf.CASES, *test_lstm.CASES) if case.id.startswith(("units", "depth", "steps", "zero"))
    ]
    model = tmp_path / "cases.tflite"
    model.write_bytes(write_tflite(model_of([*LONGER, *some])))
    compiled = compile_model(model, target=target, package="platformio")
    result = on_emulator(compiled, board, reference="numpy", samples=2, seed=1, layers=False, workdir=tmp_path)
    assert result.match

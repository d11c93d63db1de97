"""UNIDIRECTIONAL_SEQUENCE_LSTM of float32 by a float unit or vectors: the bits of the portable kernel, here and emulated."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from float_cases import with_values
from recurrent_cases import lstm_float
from single_op import Case, model_of, preferring, prove

from emitc.boards.prove import on_emulator
from emitc.boards.result import RunResult
from emitc.compiler import compile_model
from emitc.writers.tflite import write_tflite

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

MODEST = np.array([0.0, -0.0, 1.0, -1.0, 6.0, -3.5, 30.0, -30.0], np.float32)
CORES = {"fpu": ("cortex-m4f", "qemu_m4"), "mve": ("cortex-m55", "qemu_m55")}
CASES: list[Case] = [
    with_values(case, MODEST)
    for case in (
        *(lstm_float(f"depth_{d}", 1, 3, d, 4) for d in (1, 2, 3, 4, 9)),
        *(lstm_float(f"units_{u}", 1, 3, 5, u) for u in (1, 2, 3, 8, 17)),
        lstm_float("batches", 3, 4, 5, 3),
        lstm_float("time_major", 2, 5, 4, 3, time_major=True),
        lstm_float("clip", 1, 9, 5, 4, clip=0.4),
        lstm_float("saturated", 1, 6, 5, 4, spread=8.0),
    )
]


@pytest.mark.parametrize("variant", CORES)
def test_the_gates_are_summed_in_the_same_order(variant: str) -> None:
    portable = prove(CASES, samples=6, sanitize=False)
    with preferring(variant):
        proven = prove(CASES, samples=6, target=CORES[variant][0])
    assert proven.memory_errors == ()
    for name, outcome in proven.outcomes.items():
        assert outcome.step is not None and outcome.step.template == f"sequence_lstm_float_{variant}"
        for expected, found in zip(portable.outcomes[name].compiled, outcome.compiled, strict=True):
            assert [y.tolist() for y in expected] == [y.tolist() for y in found], name


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
@pytest.mark.parametrize(("variant", "board"), [(v, board) for v, (_, board) in CORES.items()])
def test_on_emulated_cores(variant: str, board: str, tmp_path: Path) -> None:
    found, plain = (_result(name, board, tmp_path / name) for name in (variant, "portable"))
    assert found.match
    assert (found.differing_bytes, found.max_abs_diff) == (plain.differing_bytes, plain.max_abs_diff)

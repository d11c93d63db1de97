"""Kernels of the signal library for cores with the DSP extension and with MVE.

On the host their functions are plain C, under the sanitizers and against TFLite Micro; the emulators run the instructions.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from unittest.mock import patch

import pytest

from emitc.boards import verify as boards
from emitc.compiler import compile_model
from emitc.ir import DType
from emitc.writers.tflite import write_tflite
from tests.kernels.signal.test_signal import CASES as EVERY
from tests.kernels.signal.test_signal import comparable
from tests.support.single_op import Case, inputs_of, model_of, prove

WORDS = {"signal_rfft", "signal_window", "signal_fft_auto_scale", "signal_energy"}
NATURALS = {
    "signal_filter_bank",
    "signal_filter_bank_square_root",
    "signal_filter_bank_spectral_subtraction",
    "signal_pcan",
    "signal_filter_bank_log",
}
KERNELS = {
    "dsp": {f"{name}_dsp" for name in (*WORDS, "signal_filter_bank")},
    "mve": {f"{name}_mve" for name in WORDS | NATURALS},
    "fpu": {"signal_filter_bank_square_root"},
}
TARGETS = {"dsp": ("cortex-m4", "qemu_m4"), "mve": ("cortex-m55", "qemu_m55"), "fpu": ("cortex-m4f", "qemu_m4")}
SAMPLES = 6


def shorts() -> list[Case]:
    """Those of operators of int16 values that have such kernels."""
    operators = ("SignalRfft", "SignalWindow", "SignalFftAutoScale", "SignalEnergy")
    return [case for case in EVERY if case.custom_code in operators and case.inputs[0].dtype == DType.INT16.value]


def channels() -> list[Case]:
    """Those of operators on channels."""
    return [case for case in EVERY if case.custom_code.startswith(("SignalFilterBank", "SignalPCAN"))]


@pytest.mark.sweep(keep=1)
@pytest.mark.parametrize("variant", TARGETS)
def test_on_the_host(variant: str) -> None:
    proven = prove([*shorts(), *channels()], samples=SAMPLES, target=TARGETS[variant][0])
    for outcome in proven.outcomes.values():
        comparable(outcome).check()
    assert proven.memory_errors == ()
    steps = [step for outcome in proven.outcomes.values() if (step := outcome.step) is not None]
    found = {step.kernel_name for step in steps if step.variant == variant}
    assert found == KERNELS[variant]
    assert {step.kernel_name for step in steps if step.variant == "portable"} <= {
        "signal_rfft",
        "signal_rfft_mixed",
        *NATURALS,
    }


@pytest.mark.board
@pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")), reason="needs the Arm tools and QEMU"
)
@pytest.mark.sweep(keep=2)
@pytest.mark.parametrize(
    ("variant", "cases"),
    [("dsp", shorts()), ("dsp", channels()), ("mve", shorts()), ("mve", channels()), ("fpu", channels())],
)
def test_on_an_emulated_core(variant: str, cases: list[Case], tmp_path: Path) -> None:
    model, given = tmp_path / "cases.tflite", inputs_of(cases, SAMPLES, 0)
    model.write_bytes(write_tflite(model_of(cases)))
    target, board = TARGETS[variant]
    compiled = compile_model(model, target=target, package="platformio")
    with patch.object(boards, "random_samples", lambda *_: given):
        result = boards.on_emulator(
            compiled, board, reference="numpy", samples=SAMPLES, seed=0, layers=False, workdir=tmp_path
        )
    assert result.match

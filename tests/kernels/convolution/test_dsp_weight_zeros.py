"""Weights with a zero point on cores with the DSP extension: legacy uint8 layers against LiteRT, and on an emulated core."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from emitc.backends.portable import backend
from emitc.backends.portable.backend import cost_of
from emitc.boards.verify import on_emulator
from emitc.compiler import compile_model
from emitc.ir import BoundNode
from emitc.kernels.contract import Variant
from emitc.target import Target
from emitc.writers.tflite import write_tflite
from tests.kernels.quantization import test_unsigned_bytes
from tests.kernels.quantization.test_unsigned_bytes import slide, weighted
from tests.support.single_op import Case, model_of, prove

pytest.importorskip("ai_edge_litert", reason="the extra emitc[verify] is not installed")


def _constant(case: Case, value: int) -> Case:
    """The case with one value throughout its input."""
    shape = case.inputs[0].shape
    return replace(case, draw=lambda _rng, _sample: [np.full(shape, value, np.uint8)])


def _deep(depth: int, zeros: tuple[int, int, int], rows: int) -> Case:
    """A 1x1 convolution whose sums of inputs take several words."""
    name = f"deep_{depth}_{zeros[1]}_{rows}"
    return weighted(name, "CONV_2D", (1, 1, rows, depth), (6, 1, 1, depth), (1, 1, rows, 6), zeros, 0.0002, **slide())


MORE: list[Case] = [
    *(_deep(depth, (128, zero, 128), rows) for depth, zero, rows in ((500, 1, 4), (501, 255, 5), (1100, 255, 1), (1100, 255, 5))),
    *(
        _constant(replace(_deep(501, (128, 0, 128), 5), id=f"deep_of_{value}"), value)
        for value in (0, 127, 255)
    ),
    weighted(
        "run_over_500", "CONV_2D", (1, 5, 4, 60), (4, 3, 3, 60), (1, 5, 4, 4), (9, 200, 100), 0.0005, **slide()
    ),
    weighted("one_channel", "DEPTHWISE_CONV_2D", (1, 9, 8, 1), (1, 5, 4, 6), (1, 9, 8, 6), (3, 90, 0), 0.004,
             depth_multiplier=6, **slide()),
    *(
        weighted(f"taps_{c}_{k}", "DEPTHWISE_CONV_2D", (1, 6, 5, c), (1, k, 3, c), (1, 6, 5, c), (7, 255, 30), 0.004,
                 depth_multiplier=1, **slide(1, "SAME", activation))
        for c, k, activation in ((4, 3, "NONE"), (8, 5, "RELU6"), (7, 3, "NONE"), (6, 5, "NONE"), (3, 3, "RELU"))
    ),
]  # fmt: skip


def _preferring(bound: BoundNode, target: Target, row: Variant | None = None) -> float:
    return 0.0 if row and row.name == "dsp" else cost_of(bound, target, row)


def test_reference_litert_and_c_agree() -> None:
    cases = [*MORE, *test_unsigned_bytes.CONVOLUTIONS, *test_unsigned_bytes.DEPTHWISE]
    with patch.object(backend, "cost_of", _preferring):
        proven = prove(cases, engine="litert", samples=2, target="cortex-m4")
    for outcome in proven.outcomes.values():
        outcome.check()
    assert proven.memory_errors == ()
    steps = [step for outcome in proven.outcomes.values() if (step := outcome.step) is not None]
    kernels = {step.kernel for step in steps if step.variant == "dsp" and "_zero" in step.kernel}
    assert {kernel.split("_dsp")[0] for kernel in kernels} == {"conv_2d", "matrix", "row", "depthwise_conv_2d"}
    assert {"_uneven" in kernel for kernel in kernels if "depthwise" in kernel} == {False, True}


def test_without_working_memory() -> None:
    def cost(bound: BoundNode, target: Target, row: Variant | None = None) -> float:
        return 0.0 if row and row.name == "dsp-noscratch" else 1.0

    with patch.object(backend, "cost_of", cost):
        proven = prove(MORE, engine="litert", samples=2, target="cortex-m4", sanitize=False)
    for outcome in proven.outcomes.values():
        outcome.check()
    steps = [step for outcome in proven.outcomes.values() if (step := outcome.step) is not None]
    lean = {step.kernel_name for step in steps if step.variant == "dsp-noscratch"}
    assert lean == {"row_dsp", "depthwise_conv_2d_dsp"}


@pytest.mark.board
@pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")), reason="needs the Arm tools and QEMU"
)
@pytest.mark.sweep(keep=1)
@pytest.mark.parametrize("optimize", ["speed", pytest.param("size", marks=pytest.mark.sweep)])
def test_on_an_emulated_cortex_m4(optimize: str, tmp_path: Path) -> None:
    model = tmp_path / "cases.tflite"
    model.write_bytes(write_tflite(model_of(MORE)))
    with patch.object(backend, "cost_of", _preferring):
        compiled = compile_model(model, target="cortex-m4", package="platformio", optimize=optimize)
    result = on_emulator(compiled, "qemu_m4", reference="numpy", samples=2, seed=1, layers=False, workdir=tmp_path)
    assert result.match

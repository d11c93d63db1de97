"""Kernels for cores with MVE against the numpy references and TFLite Micro: in plain C here, and on an emulated Cortex-M55.

Where the host runs them, the functions of emitc_mve.h are plain C, under the sanitizers; the emulator runs the instructions.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any
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
from tests.kernels.convolution.test_onnx_conv import WINDOWS as ONNX_WINDOWS
from tests.kernels.convolution.test_onnx_conv import qlinear_conv
from tests.support.layer_cases import Scales, Slide, conv_2d, depthwise, fully_connected, pool, scales_for, weights_of
from tests.support.onnx_op import OnnxCase, prove_onnx
from tests.support.onnx_op import model_of as onnx_model_of
from tests.support.single_op import Case, Proven, model_of, prove, quantized

SAME, STRIDED = Slide(padding="SAME"), Slide((2, 2), "SAME")
RELU, RELU6 = Slide(padding="SAME", activation="RELU"), Slide(padding="SAME", activation="RELU6")


def per_channel(count: int, factor: float = 0.004) -> Scales:
    """One weight scale for each channel, a hundred times apart."""
    return Scales(weights=tuple(float(s) for s in np.geomspace(0.001, 0.1, count)), factor=factor * 0.1)


def _convolutions() -> Iterator[Case]:
    for depth in (1, 3, 4, 8, 15, 16, 17, 31, 32, 40, 48, 64, 96):
        for channels in (1, 3, 4, 16, 19):
            yield conv_2d(
                f"pointwise_{depth}_{channels}", (1, 3, 3, depth), channels, (1, 1), scales=per_channel(channels)
            )
    yield conv_2d("pointwise_one_pixel", (1, 1, 1, 24), 33, (1, 1))
    yield conv_2d("pointwise_strided", (1, 7, 6, 16), 32, (1, 1), STRIDED)
    yield conv_2d("pointwise_batches", (3, 3, 3, 8), 16, (1, 1), RELU)
    yield conv_2d("first", (1, 9, 10, 3), 8, (3, 3), STRIDED, per_channel(8))
    yield conv_2d("first_odd", (1, 9, 9, 1), 5, (10, 4), STRIDED)
    yield conv_2d("same", (1, 7, 6, 8), 16, (3, 3), SAME, per_channel(16))
    yield conv_2d("same_away", (1, 6, 5, 16), 20, (3, 3), SAME, Scales(output_zero_point=4))
    yield conv_2d("relu", (1, 6, 5, 16), 20, (3, 3), RELU, Scales(output_zero_point=-128))
    yield conv_2d("relu_inside", (1, 6, 5, 16), 32, (3, 3), RELU, Scales(output_zero_point=-11))
    yield conv_2d("relu6", (1, 6, 5, 6), 17, (3, 3), RELU6, Scales(output_zero_point=-128, factor=0.02))
    yield conv_2d("valid", (1, 9, 8, 4), 6, (5, 3))
    yield conv_2d("tall", (2, 9, 4, 4), 16, (7, 1), Slide((2, 1), "SAME"))
    yield conv_2d("tall_dilation", (1, 9, 6, 4), 8, (3, 3), Slide((1, 1), "SAME", (2, 1)))
    yield conv_2d("wider_than_the_image", (1, 3, 2, 5), 16, (5, 7), SAME)
    yield conv_2d("image_of_one_pixel", (1, 1, 1, 7), 16, (3, 3), SAME)
    for x_zero, y_zero in ((-128, -128), (127, 127), (-128, 127), (127, -128)):
        scales = Scales(input_zero_point=x_zero, output_zero_point=y_zero)
        yield conv_2d(f"zero_points_{x_zero}_{y_zero}", (1, 5, 4, 9), 16, (3, 3), SAME, scales)
    yield conv_2d("no_bias", (1, 4, 5, 16), 16, (1, 1), bias="none")
    yield conv_2d("lowest_weights", (1, 5, 5, 16), 16, (3, 3), SAME, w=weights_of("lowest", (16, 3, 3, 16), -128))
    huge = np.array([2**31 - 1 - 16 * 256 * 128, -(2**30)] * 8, np.int32)
    yield conv_2d("huge_bias", (1, 3, 3, 16), 16, (1, 1), scales=Scales(input_zero_point=0), bias=huge)
    yield conv_2d("huge_bias_half", (1, 3, 3, 16), 16, (1, 1), scales=Scales(factor=0.7, input_zero_point=0), bias=huge)
    for q31, shift in (
        (1 << 30, -7),
        ((1 << 31) - 128, -7),
        (1 << 30, 0),
        (1 << 30, 1),
        (1518500250, 5),
        (1 << 30, -31),
    ):
        try:
            scales = scales_for(q31, shift)
        except AssertionError:
            continue
        yield conv_2d(f"multiplier_{q31}_{shift}", (1, 4, 4, 5), 18, (1, 1), scales=scales)


def _depthwise() -> Iterator[Case]:
    for channels in (1, 2, 3, 4, 8, 15, 16, 17, 20, 32, 40):
        yield depthwise(f"depthwise_{channels}", (1, 6, 7, channels), 1, (3, 3), SAME, per_channel(channels))
        yield depthwise(f"depthwise_strided_{channels}", (1, 7, 8, channels), 1, (3, 3), STRIDED)
    yield depthwise("depthwise_valid", (1, 6, 7, 8), 1, (3, 3))
    yield depthwise("depthwise_batches", (2, 5, 6, 4), 1, (5, 5), SAME)
    yield depthwise("depthwise_even", (1, 6, 9, 8), 1, (2, 2), SAME, per_channel(8))
    yield depthwise("depthwise_wide", (1, 4, 12, 16), 1, (1, 7), SAME)
    yield depthwise("depthwise_tall", (1, 12, 4, 16), 1, (7, 1), Slide((3, 1), "SAME"))
    yield depthwise("depthwise_stream", (1, 21, 1, 60), 1, (21, 1), scales=per_channel(60))
    yield depthwise("depthwise_leaving", (1, 6, 7, 41), 1, (5, 5), SAME, per_channel(41))
    yield depthwise("depthwise_dilated", (1, 9, 9, 8), 1, (3, 3), Slide((1, 1), "SAME", (2, 2)))
    yield depthwise("depthwise_dilated_far", (1, 7, 5, 16), 1, (3, 3), Slide((1, 1), "SAME", (3, 4)))
    yield depthwise("depthwise_image_of_one", (1, 1, 1, 24), 1, (3, 3), SAME)
    yield depthwise("depthwise_column", (1, 9, 1, 8), 1, (3, 3), SAME)
    yield depthwise("depthwise_two_columns", (1, 5, 2, 8), 1, (3, 3), SAME)
    yield depthwise("depthwise_relu6", (1, 6, 6, 16), 1, (3, 3), RELU6, Scales(output_zero_point=-128, factor=0.02))
    yield depthwise("depthwise_relu_inside", (1, 6, 6, 20), 1, (3, 3), RELU, Scales(output_zero_point=7))
    yield depthwise("depthwise_factor_over_one", (1, 5, 5, 16), 1, (3, 3), SAME, Scales(factor=1.7))
    ends = np.full((1, 3, 3, 16), 127, np.int8)
    ends[..., ::2] = -127
    yield depthwise("depthwise_ends", (1, 5, 5, 16), 1, (3, 3), SAME, Scales(input_zero_point=127), w=ends)
    yield depthwise("depthwise_lowest", (1, 5, 5, 16), 1, (3, 3), SAME, w=weights_of("lowest", (1, 3, 3, 16), -128))
    yield depthwise("depthwise_twice", (1, 6, 5, 6), 2, (3, 3), SAME)
    yield depthwise("depthwise_of_one", (1, 11, 9, 1), 8, (10, 8), STRIDED, per_channel(8))


def _rows() -> Iterator[Case]:
    for depth in (1, 8, 16, 23, 64, 100):
        for channels in (1, 4, 10, 16, 18, 37):
            yield fully_connected(f"row_{depth}_{channels}", (1, depth), channels, depth)
    yield fully_connected("row_long", (1, 192), 24, 192, scales=per_channel(24))
    yield fully_connected("rows", (6, 10), 9, 10)
    yield fully_connected("rows_odd", (5, 32), 16, 32, scales=per_channel(16))
    yield fully_connected("row_relu", (1, 48), 20, 48, "RELU", Scales(output_zero_point=-128))
    yield fully_connected("row_over_one", (1, 48), 20, 48, scales=Scales(factor=1.3))


def _elementwise() -> Iterator[Case]:
    for count in (1, 3, 4, 37):
        a, b = quantized((1, count), 0.0235, -128), quantized((1, count), 0.0412, 4)
        yield Case(
            f"add_{count}",
            "ADD",
            (a, b),
            (quantized((1, count), 0.0391, -128),),
            {"fused_activation_function": "NONE"},
            2,
        )
    a, b = quantized((3, 7), 0.1, 3), quantized((3, 7), 0.05, -7)
    yield Case("sub", "SUB", (a, b), (quantized((3, 7), 0.2, 11),), {"fused_activation_function": "RELU"}, 2)
    for kind in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
        for channels in (1, 3, 4, 16, 21):
            yield pool(f"{kind}_{channels}".lower(), kind, (1, 6, 7, channels), (3, 2), SAME)
        yield pool(f"{kind}_whole".lower(), kind, (1, 25, 5, 8), (25, 5), Slide((25, 5)))
        yield pool(
            f"{kind}_one".lower(), kind, (2, 3, 4, 5), (1, 1), Slide((1, 1), "VALID", activation="RELU6"), 0.05, -90
        )


CASES = {"convolutions": _convolutions, "depthwise": _depthwise, "rows": _rows, "elementwise": _elementwise}
FEW = ("CONV_2D", "DEPTHWISE_CONV_2D", "AVERAGE_POOL_2D")
"""What has no kernel for fewer than four output channels, or not always."""
NO_VARIANT = {"depthwise_lowest", "depthwise_twice", "depthwise_factor_over_one"}


WIDE: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "wide": ((1, 5, 6, 7), (24, 5, 3, 3), {"pads": [1, 1, 1, 1]}),
    "wide_pointwise": ((1, 16, 4, 5), (32, 16, 1, 1), {}),
    "wide_depthwise": ((1, 32, 6, 5), (32, 1, 3, 3), {"group": 32, "pads": [1, 1, 1, 1]}),
    "narrow_depthwise": ((1, 4, 6, 9), (4, 1, 3, 3), {"group": 4, "pads": [1, 1, 1, 1]}),
    "large_depthwise": ((1, 20, 6, 5), (20, 1, 5, 5), {"group": 20, "pads": [2, 2, 2, 2]}),
    "row": ((1, 40, 1, 1), (37, 40, 1, 1), {}),
    "row_of_few": ((1, 70, 1, 1), (2, 70, 1, 1), {}),
}


def _preferring(bound: BoundNode, target: Target, row: Variant | None = None) -> float:
    return 0.0 if row and row.name == "mve" else cost_of(bound, target, row)


@pytest.fixture(scope="module", autouse=True)
def _every_node_gets_it() -> Iterator[None]:
    """Whatever it costs."""
    with patch.object(backend, "cost_of", _preferring):
        yield


@pytest.mark.sweep(keep=4)
@pytest.mark.parametrize("table", CASES)
def test_on_the_host(table: str) -> None:
    cases = list(CASES[table]())
    proven: Proven = prove(cases, target="cortex-m55")
    for case in cases:
        proven.outcomes[case.id].check()
    assert proven.memory_errors == ()
    variants = {case.id: step.variant for case in cases if (step := proven.outcomes[case.id].step)}
    few = {case.id for case in cases if case.opcode in FEW and case.outputs[0].shape[-1] < 4}
    assert {name for name, variant in variants.items() if variant != "mve"} <= NO_VARIANT | few


def test_sums_of_many_channels_are_held_16_at_a_time() -> None:
    """And zero points only where a window reaches outside; a pointer for each tap has the 8 bytes of a desk's."""
    column, many = (case for case in _depthwise() if case.id in ("depthwise_stream", "depthwise_leaving"))
    proven = prove([column, many], engine=None, samples=1, target="cortex-m55", sanitize=False)
    sizes = [proven.outcomes[case.id].step.scratch[0].size_bytes for case in (column, many)]
    assert sizes == [4 * 16 + 8 * 21, 4 * 16 + 8 * 25 + 48]


def _onnx() -> list[OnnxCase]:
    with patch.dict(ONNX_WINDOWS, WIDE):
        cases = [qlinear_conv(name, "int8", "int8", "int8", channels=True) for name in ONNX_WINDOWS]
        return [*cases, qlinear_conv("pointwise", "int8", "int8", "int8", bias=False, x_zero=-128)]


def test_float_factors_on_the_host() -> None:
    proven = prove_onnx(_onnx(), target="cortex-m55")
    proven.check()
    steps = [step for compiled in proven.compiled.values() for step in compiled.program.steps]
    assert {step.kernel_name for step in steps if step.variant == "mve"} == {
        "conv_2d_mve", "depthwise_conv_2d_mve", "depthwise_3x3_mve", "row_mve", "dots_mve",
    }  # fmt: skip


@pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")), reason="needs the Arm tools and QEMU"
)
@pytest.mark.sweep(keep=3)
@pytest.mark.parametrize("table", CASES)
def test_on_an_emulated_cortex_m55(table: str, tmp_path: Path) -> None:
    model = tmp_path / "cases.tflite"
    model.write_bytes(write_tflite(model_of(list(CASES[table]()))))
    compiled = compile_model(model, target="cortex-m55", package="platformio")
    result = on_emulator(compiled, "qemu_m55", reference="numpy", samples=3, seed=1, layers=False, workdir=tmp_path)
    assert result.match


@pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")), reason="needs the Arm tools and QEMU"
)
def test_float_factors_on_an_emulated_cortex_m55(tmp_path: Path) -> None:
    model = tmp_path / "cases.onnx"
    model.write_bytes(onnx_model_of(_onnx(), engine=True).SerializeToString())
    compiled = compile_model(model, target="cortex-m55", package="platformio")
    result = on_emulator(compiled, "qemu_m55", reference="numpy", samples=3, seed=1, layers=False, workdir=tmp_path)
    assert result.match

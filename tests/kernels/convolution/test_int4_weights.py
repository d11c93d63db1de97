"""Weights of four bits, two in a byte: convolutions and fully connected layers give what they give with the same bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from emitc.errors import EmitcError
from emitc.frontends.build import build_graph
from emitc.frontends.tflite.reader import read_tflite
from emitc.ir import DType, unpacked
from emitc.kernels import tflite_registry
from emitc.verify.engines.run import engine_for
from emitc.writers.tflite import ModelSpec, OperatorSpec, TensorSpec, write_tflite
from tests.support.int4_cases import conv, dw, fc, in_pairs, per_channel
from tests.support.layer_cases import (
    Scales,
    Slide,
    conv_2d,
    fully_connected,
    late,
    lowered,
    message,
    weights_of,
    with_input,
)
from tests.support.single_op import Case, Proven, model_of, prove

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

SAME = "SAME"
X = (1, 6, 5, 3)
ZERO_POINTS = [(-128, -128), (127, 127), (0, 0)]

CASES: list[Case] = [
    # Odd numbers of channels, of taps and of left-over filters: every place in a byte is met.
    *(conv(f"conv_out_{c}", X, c, (3, 3), Slide(padding=SAME)) for c in (1, 2, 3, 4, 5, 6, 7, 8, 9)),
    *(conv(f"conv_in_{c}", (1, 4, 5, c), 6, (3, 2), Slide(padding=SAME)) for c in (1, 2, 3, 4, 5)),
    *(conv(f"conv_1x1_in_{c}", (2, 3, 3, c), 7, (1, 1)) for c in (1, 2, 3, 4, 5, 16)),
    *(
        conv(f"conv_zero_points_{x}_{y}", X, 7, (3, 3), Slide(padding=SAME), Scales(0.05, (0.01,), 0.01, x, y))
        for x, y in ZERO_POINTS
    ),
    conv("conv_per_channel", X, 7, (3, 3), Slide(padding=SAME), per_channel(7)),
    conv("conv_stride", (1, 9, 8, 3), 5, (3, 3), Slide((2, 3), SAME)),
    conv("conv_dilated", (1, 9, 8, 3), 5, (3, 3), Slide((1, 1), SAME, (2, 2))),
    conv("conv_dilated_rows", (1, 9, 8, 3), 5, (3, 3), Slide((1, 1), SAME, (2, 1))),
    conv("conv_relu6", X, 5, (3, 3), Slide(activation="RELU6")),
    conv("conv_batch", (3, 4, 4, 3), 5, (3, 3), Slide(padding=SAME)),
    conv("conv_without_bias", X, 5, (3, 3), bias="none"),
    conv("conv_groups", (1, 5, 5, 6), 4, (3, 3), Slide(padding=SAME), groups=2),
    *(dw(f"depthwise_{c}", (1, 6, 5, c), 1, (3, 3), Slide(padding=SAME)) for c in (1, 2, 3, 4, 5, 6, 7, 8, 9)),
    *(dw(f"depthwise_valid_{c}", (1, 6, 5, c), 1, (2, 3)) for c in (3, 4, 5)),
    *(
        dw(f"depthwise_multiplier_{m}_of_{c}", (1, 5, 5, c), m, (3, 3), Slide(padding=SAME))
        for m in (2, 3)
        for c in (1, 2, 3)
    ),
    dw("depthwise_per_channel", (1, 6, 5, 5), 1, (3, 3), Slide(padding=SAME), per_channel(5)),
    dw("depthwise_stride", (1, 9, 8, 5), 1, (3, 3), Slide((2, 3), SAME)),
    dw("depthwise_dilated", (1, 9, 8, 5), 1, (3, 3), Slide((1, 1), SAME, (2, 3))),
    dw("depthwise_dilated_multiplier", (1, 9, 8, 3), 3, (3, 3), Slide((1, 1), SAME, (2, 3))),
    dw("depthwise_batch", (2, 4, 4, 3), 1, (3, 3), Slide(padding=SAME)),
    dw("depthwise_without_bias", (1, 4, 4, 3), 1, (3, 3), bias="none"),
    *(fc(f"fc_out_{c}", (2, 7), c, 7) for c in range(1, 10)),
    *(fc(f"fc_depth_{d}", (2, d), 6, d) for d in range(1, 10)),
    *(fc(f"fc_zero_points_{x}_{y}", (2, 9), 6, 9, Scales(0.05, (0.01,), 0.02, x, y)) for x, y in ZERO_POINTS),
    fc("fc_without_bias", (2, 9), 6, 9, bias="none"),
    fc("fc_saturation", (4, 33), 7, 33, Scales(factor=0.2)),
    in_pairs(
        fully_connected(
            "fc_bias_that_the_fold_would_overflow",
            (2, 5),
            5,
            5,
            scales=Scales(factor=2.0**-25, input_zero_point=-128),
            w=np.full((5, 5), 7, np.int8),
            bias=np.full(5, 2**31 - 1 - 5 * 7 * 255, np.int32),
        )
    ),
    *(late(conv(f"conv_{c}", X, c, (3, 3), Slide(padding=SAME))) for c in (1, 4, 7)),
    late(conv("conv_groups", (1, 5, 5, 6), 4, (3, 3), Slide(padding=SAME), per_channel(4), groups=2)),
    late(dw("depthwise_5", (1, 6, 5, 5), 1, (3, 3), Slide(padding=SAME), per_channel(5))),
    late(dw("depthwise_multiplier_2", (1, 5, 5, 3), 2, (3, 3), Slide((1, 1), SAME, (2, 3)))),
    late(fc("fc_7", (2, 9), 7, 9)),
]


@pytest.fixture(scope="module")
def proven() -> Proven:
    """Every case, run three ways."""
    return prove(CASES)


@pytest.mark.parametrize("name", [case.id for case in CASES])
def test_reference_engine_and_c_agree(proven: Proven, name: str) -> None:
    proven.outcomes[name].check()


def test_no_memory_error(proven: Proven) -> None:
    assert proven.memory_errors == ()


def test_weights_take_half_a_byte_in_flash(proven: Proven) -> None:
    step = proven.outcomes["conv_in_4"].step
    assert step is not None
    (weights,) = (c.table for c in step.constants if c.table.role == "weights")
    # 6 filters of 3 x 2 x 4: a block of four, then two rows of 24 values.
    assert len(weights.values) == 24 * 2 + 2 * 12


@pytest.mark.parametrize(
    ("name", "kernel"),
    [
        ("conv_out_5", "conv_2d_w4"),
        ("conv_1x1_in_3", "fully_connected_w4"),
        ("conv_dilated", "conv_2d_taps_w4"),
        ("depthwise_5", "depthwise_conv_2d_w4"),
        ("depthwise_1", "conv_2d_w4"),
        ("depthwise_multiplier_2_of_3", "depthwise_conv_2d_multiplier_w4"),
        ("fc_out_5", "fully_connected_w4"),
        ("fc_bias_that_the_fold_would_overflow", "conv_2d_taps_w4"),
    ],
)
def test_kernel_choice(proven: Proven, name: str, kernel: str) -> None:
    step = proven.outcomes[name].step
    assert step is not None and step.kernel == kernel


def _random_case(index: int) -> Case:
    rng = np.random.default_rng(1000 + index)
    x = (int(rng.integers(1, 3)), *(int(v) for v in rng.integers(2, 8, 2)), int(rng.integers(1, 9)))
    kernel = (int(rng.integers(1, 4)), int(rng.integers(1, 4)))
    slide = Slide((int(rng.integers(1, 3)), int(rng.integers(1, 3))), SAME)
    zeros = [int(v) for v in rng.integers(-128, 128, 2)]
    scales = Scales(0.05, (0.01,), float(2.0 ** rng.uniform(-8, -3)), *zeros)
    name = f"random_{index}"
    match index % 3:
        case 0:
            return conv(name, x, int(rng.integers(1, 12)), kernel, slide, scales)
        case 1:
            return dw(name, x, int(rng.integers(1, 4)), kernel, slide, scales)
        case _:
            depth = int(rng.integers(1, 40))
            return fc(name, (int(rng.integers(1, 4)), depth), int(rng.integers(1, 14)), depth, scales)


def test_random_layers() -> None:
    cases = [_random_case(index) for index in range(45)]
    proven = prove(cases, seed=7)
    for outcome in proven.outcomes.values():
        outcome.check()
    assert proven.memory_errors == ()


# ---- refusals ----

BASE = conv("layer", X, 4, (3, 3))


@pytest.mark.parametrize(
    ("change", "what"), [(-1, "53 bytes found, 54 expected"), (1, "55 bytes found, 54 expected")], ids=["short", "long"]
)
def test_refuses_a_buffer_of_another_size(change: int, what: str) -> None:
    weights = BASE.inputs[1]
    assert weights is not None and weights.data is not None
    data = weights.data[:change] if change < 0 else weights.data + b"\0" * change
    assert message(with_input(BASE, 1, data=data)) == (
        "2\nerror: a constant's size does not fit its shape\n"
        '  at:    tensor 1 "layer/in1" int4[4,3,3,3]\n'
        f"  why:   {what}\n"
        "  try:   export the model again"
    )


def test_refuses_packed_weights_that_are_computed() -> None:
    assert message(with_input(BASE, 1, data=None)).startswith("2\nerror: CONV_2D has operands that it cannot have")


def test_refuses_a_packed_input() -> None:
    data = with_input(BASE, 0, dtype="int4")
    assert message(data).startswith("2\nerror: CONV_2D has operands that it cannot have")


def test_refuses_packed_weights_with_a_zero_point() -> None:
    assert message(with_input(BASE, 1, zero_points=(1,))).startswith("2\nerror: CONV_2D has weights with a zero point")


def test_refuses_a_scale_per_output_of_fully_connected() -> None:
    """TFLite Micro does, too."""
    case = fc("layer", (2, 9), 7, 9, per_channel(7))
    assert message(case) == (
        "1\nerror: FULLY_CONNECTED with 7 scales of 4-bit weights is not supported\n"
        '  at:    op 0 FULLY_CONNECTED "layer/out0", tensor "layer/in1" int4[7,9]\n'
        "  why:   TFLite Micro, whose result is to be matched, takes one, and LiteRT rounds otherwise than for 8-bit weights\n"
        "  try:   quantize these weights with one scale, or to int8"
    )
    with pytest.raises(EmitcError, match="tflm"):
        engine_for(write_tflite(model_of([case])), "tflm")


def test_refuses_a_packed_constant_elsewhere() -> None:
    """Also when a convolution has taken it as its weights before, and as an output of the model."""
    weights = BASE.inputs[1]
    assert weights is not None
    spec = model_of([BASE])
    shape = TensorSpec("shape", "int32", (1,), np.array([108], "<i4").tobytes())
    flat = TensorSpec("flat", "int4", (108,), None, weights.scales, weights.zero_points)
    count = len(spec.tensors)
    reshape = OperatorSpec("RESHAPE", (1, count), (count + 1,), {})
    moved = replace(
        spec,
        tensors=(*spec.tensors, shape, flat),
        operators=(*spec.operators, reshape),
        outputs=(*spec.outputs, count + 1),
    )
    assert _messages(moved) == ["element type int4 is not supported"]
    shown = replace(spec, outputs=(*spec.outputs, 1))
    assert _messages(shown) == ["element type int4 is not supported"]


def test_packed_weights_stay_so_where_another_layer_has_a_constant_bias() -> None:
    """Of one constant of four bits that two layers read, the one with a computed bias takes a copy in bytes."""
    two = model_of([BASE])
    bias = TensorSpec("computed", "int32", (4,), None, two.tensors[2].scales, two.tensors[2].zero_points)
    y = replace(two.tensors[3], name="other")
    count = len(two.tensors)
    first = two.operators[0]
    second = replace(first, inputs=(*first.inputs[:2], count), outputs=(count + 1,))
    ends = {"inputs": (*two.inputs, count), "outputs": (*two.outputs, count + 1)}
    spec = replace(two, tensors=(*two.tensors, bias, y), operators=(first, second), **ends)
    graph = build_graph(read_tflite(write_tflite(spec)), tflite_registry(), "model")
    packed, whole = (bound.input(1) for bound in graph.bound())
    assert (packed.dtype, whole.dtype) == (DType.INT4, DType.INT8)
    assert np.array_equal(unpacked(packed.data, 108), np.frombuffer(whole.data, np.int8))


def _messages(spec: ModelSpec) -> Sequence[str]:
    with pytest.raises(EmitcError) as caught:
        build_graph(read_tflite(write_tflite(spec)), tflite_registry(), "model")
    return [error.what for error in getattr(caught.value, "errors", (caught.value,))]


def test_int16_activations_take_bytes() -> None:
    wide = with_input(BASE, 0, dtype="int16", zero_points=(0,))
    wide = replace(wide, outputs=(replace(wide.outputs[0], dtype="int16", zero_points=(0,)),))
    assert "with element types (int16, int4, int32, int16) is not supported" in message(wide)


def test_bytes_stay_bytes() -> None:
    assert lowered(conv_2d("bytes", X, 5, (3, 3), w=weights_of("bytes", (5, 3, 3, 3)))).spec.int4_weights is False

"""CONV_2D: reference, engine and C agree on every bit; what has no code is refused by name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.layer_cases import (
    Scales,
    Slide,
    conv_2d,
    factors,
    lowered,
    message,
    scales_for,
    single,
    weights_of,
    with_input,
    with_output,
)
from tests.support.single_op import Array, Case, Proven, integers, prove

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

SAME, VALID = "SAME", "VALID"
ACTIVATIONS = ("NONE", "RELU", "RELU6", "RELU_N1_TO_1")


def per_channel(channels: int, low: float = -9.0, high: float = -5.0, **others: float) -> Scales:
    """A weight scale for each channel, spread over powers of two."""
    return Scales(weights=tuple(2.0**e for e in np.linspace(low, high, channels).tolist()), **others)  # type: ignore[arg-type]


def filled(value: int, *shape: int) -> Array:
    """Weights of one value."""
    return np.full(shape, value, np.int8)


X = (1, 6, 5, 3)
MULTIPLIERS = {
    "smallest_multiplier": (2**30, -7),
    "next_to_smallest_multiplier": (2**30 + 1, -7),
    "largest_multiplier": (2**31 - 1, -8),
    "next_to_largest_multiplier": (2**31 - 2, -8),
    "factor_just_below_1": (2**31 - 1, 0),
    "factor_1": (2**30, 1),
    "factor_above_1": (1518500250, 2),
    "factor_large": (1518500250, 9),
    "shift_minus_20": (1518500250, -20),
    "shift_minus_31": (2**31 - 1, -31),
}
ZERO_POINTS = [(-128, -128), (127, 127), (-128, 127), (127, -128), (0, 0)]

CASES: list[Case] = [
    # Zero points at the ends, with and without padding (the zero point is folded into the bias only without).
    *(
        conv_2d(
            f"zero_points_{x}_{y}_{padding}",
            X,
            5,
            (3, 3),
            Slide(padding=padding),
            Scales(input_zero_point=x, output_zero_point=y),
        )
        for x, y in ZERO_POINTS
        for padding in (SAME, VALID)
    ),
    conv_2d("weights_of_minus_128", X, 6, (3, 3), Slide(padding=SAME), w=weights_of("a", (6, 3, 3, 3), -128)),
    conv_2d("only_minus_128", X, 5, (3, 3), Slide(padding=SAME), Scales(factor=0.0003), w=filled(-128, 5, 3, 3, 3)),
    conv_2d("weights_of_zero", X, 5, (3, 3), w=filled(0, 5, 3, 3, 3)),
    conv_2d("saturation", X, 5, (3, 3), Slide(padding=SAME), Scales(factor=0.2)),
    *(conv_2d(name, X, 5, (2, 2), scales=scales_for(*m)) for name, m in MULTIPLIERS.items()),
    conv_2d("shift_below_minus_31_is_zero", X, 5, (3, 3), scales=Scales(0.05, (2.0**-30,), output=1000.0)),
    conv_2d("per_channel", X, 7, (3, 3), Slide(padding=SAME), per_channel(7)),
    conv_2d("per_channel_wide", X, 8, (3, 3), Slide(padding=SAME), per_channel(8, -45.0, 1.0, factor=2.0**-45)),
    conv_2d("per_channel_equal_scales", X, 5, (3, 3), scales=Scales(weights=(0.01,) * 5)),
    conv_2d("per_channel_one_differs", X, 5, (3, 3), scales=Scales(weights=(0.01, 0.01, 0.01, 0.01, 0.0100001))),
    conv_2d("per_channel_one_is_zero", X, 5, (3, 3), scales=Scales(weights=(0.01, 1e-30, 0.02, 1e-38, 0.01))),
    conv_2d("no_bias", X, 5, (3, 3), Slide(padding=SAME), bias="none"),
    conv_2d("absent_bias", X, 5, (3, 3), Slide(padding=SAME), bias="absent"),
    conv_2d("bias_scale_above", X, 5, (3, 3), Slide(padding=SAME), Scales(bias_scale_error=1)),
    conv_2d("bias_scale_below", X, 5, (3, 3), Slide(padding=SAME), per_channel(5, bias_scale_error=-1)),
    conv_2d("bias_far", X, 4, (3, 3), bias=np.array([10**6, -(10**6), 30000, -30000], np.int32)),
    conv_2d(
        "bias_at_the_ends",
        X,
        4,
        (1, 1),
        Slide((2, 2)),
        Scales(factor=2.0**-25),
        w=filled(0, 4, 1, 1, 3),
        bias=np.array([2**31 - 1, -(2**31) + 1, 2**31 - 2, -1], np.int32),
    ),
    *(
        conv_2d(
            f"offset_leaves_int32_{z}",
            X,
            5,
            (1, 1),
            scales=replace(scales_for(2**31 - 1, 0), output_zero_point=z),
            w=filled(0, 5, 1, 1, 3),
            bias=np.array([2**31 - 1, -(2**31) + 1, 2**31 - 100, -(2**31) + 129, -1], np.int32),
        )
        for z in (-128, 127)
    ),
    *(
        conv_2d(
            f"bias_that_the_fold_would_overflow_{p}",
            X,
            5,
            (2, 2),
            Slide(padding=p),
            Scales(factor=2.0**-25, input_zero_point=-128),
            w=filled(127, 5, 2, 2, 3),
            bias=np.full(5, 2**31 - 1 - 12 * 127 * 255, np.int32),
        )
        for p in (SAME, VALID)
    ),
    # Windows.
    conv_2d("stride_2", (1, 7, 7, 3), 4, (3, 3), Slide((2, 2))),
    conv_2d("stride_2_same_even_pads_at_the_end", (1, 6, 8, 3), 4, (3, 3), Slide((2, 2), SAME)),
    conv_2d("stride_2_same_odd", (1, 7, 9, 3), 4, (3, 3), Slide((2, 2), SAME)),
    conv_2d("stride_over_kernel", (1, 9, 8, 3), 5, (2, 2), Slide((3, 4))),
    conv_2d("stride_over_kernel_same", (1, 9, 8, 3), 5, (2, 1), Slide((4, 3), SAME)),
    conv_2d("strides_differ", (1, 8, 9, 2), 5, (3, 2), Slide((1, 3), SAME)),
    conv_2d("even_kernel_same", (1, 5, 6, 3), 4, (2, 4), Slide(padding=SAME)),
    conv_2d("dilation_h", (1, 9, 6, 3), 5, (3, 3), Slide(dilation=(2, 1))),
    conv_2d("dilation_w", (1, 6, 9, 3), 5, (3, 3), Slide(dilation=(1, 3))),
    conv_2d("dilation_both", (1, 9, 9, 3), 5, (3, 3), Slide(dilation=(2, 3))),
    conv_2d("dilation_h_same", (1, 7, 5, 3), 5, (3, 3), Slide((1, 1), SAME, (3, 1))),
    conv_2d("dilation_w_same", (1, 5, 7, 3), 5, (3, 3), Slide((1, 1), SAME, (1, 2))),
    conv_2d("dilation_both_same", (1, 6, 7, 2), 3, (3, 3), Slide((1, 1), SAME, (2, 2), "RELU")),
    conv_2d("dilation_and_stride", (1, 9, 10, 2), 3, (3, 2), Slide((2, 3), SAME, (2, 2))),
    conv_2d("dilated_taps_all_outside", (1, 1, 1, 2), 3, (2, 2), Slide((1, 1), SAME, (3, 3))),
    conv_2d("dilated_rows_all_outside", (1, 1, 4, 2), 5, (2, 2), Slide((1, 1), SAME, (3, 1))),
    conv_2d("kernel_over_input", (1, 2, 3, 3), 5, (5, 7), Slide(padding=SAME)),
    conv_2d("kernel_over_input_stride_2", (1, 3, 2, 3), 5, (8, 9), Slide((2, 2), SAME)),
    conv_2d("kernel_is_input", (1, 4, 3, 5), 6, (4, 3)),
    conv_2d("1x1", (1, 4, 5, 7), 6, (1, 1)),
    conv_2d("1x1_same", (1, 4, 5, 8), 4, (1, 1), Slide(padding=SAME)),
    conv_2d("1x1_stride_2", (1, 6, 7, 5), 6, (1, 1), Slide((2, 2))),
    conv_2d("1x1_stride_2_same", (1, 6, 7, 5), 6, (1, 1), Slide((2, 2), SAME)),
    conv_2d("1x1_one_value", (1, 1, 1, 1), 1, (1, 1)),
    conv_2d("1x1_batch_2", (2, 3, 3, 4), 5, (1, 1)),
    conv_2d("1xn", (1, 4, 9, 3), 5, (1, 5), Slide(padding=SAME)),
    conv_2d("nx1", (1, 9, 4, 3), 5, (5, 1), Slide(padding=SAME)),
    conv_2d("1xn_valid", (1, 1, 9, 3), 5, (1, 5), Slide((1, 2))),
    conv_2d("nx1_valid", (1, 9, 1, 3), 5, (5, 1), Slide((2, 1))),
    conv_2d("image_of_one_row", (1, 1, 7, 2), 3, (3, 3), Slide(padding=SAME)),
    conv_2d("image_of_one_column", (1, 7, 1, 2), 3, (3, 3), Slide(padding=SAME)),
    conv_2d("batch_2", (2, 5, 4, 3), 5, (3, 3), Slide(padding=SAME)),
    conv_2d("batch_3_stride_2", (3, 5, 6, 2), 4, (3, 3), Slide((2, 2), SAME)),
    # Channels: the kernels work in blocks.
    *(conv_2d(f"out_{c}", (1, 4, 4, 3), c, (3, 3), Slide(padding=SAME), per_channel(c)) for c in range(1, 10)),
    *(conv_2d(f"1x1_out_{c}", (1, 3, 3, 5), c, (1, 1), scales=per_channel(c)) for c in range(1, 10)),
    *(conv_2d(f"in_{c}", (1, 4, 4, c), 5, (3, 3), Slide(padding=SAME)) for c in range(1, 10)),
    conv_2d("deep", (1, 2, 2, 64), 16, (1, 1), scales=Scales(factor=0.0005)),
    # Groups.
    conv_2d("groups_2", (1, 5, 5, 4), 6, (3, 3), Slide(padding=SAME), groups=2),
    conv_2d("groups_3_per_channel", (1, 5, 5, 6), 9, (3, 2), Slide(), per_channel(9), groups=3),
    conv_2d("groups_are_channels", (1, 5, 5, 4), 4, (3, 3), Slide(padding=SAME), groups=4),
    conv_2d("groups_1x1", (1, 3, 3, 8), 4, (1, 1), groups=2),
    conv_2d("groups_dilated_stride_2", (2, 9, 9, 4), 8, (3, 3), Slide((2, 2), SAME, (2, 2)), groups=2),
    # Fused activations, on both sides of their bounds.
    *(
        conv_2d(
            f"activation_{a}_{z}",
            X,
            5,
            (3, 3),
            Slide(padding=SAME, activation=a),
            Scales(factor=0.01, output_zero_point=z),
        )
        for a in ACTIVATIONS
        for z in (-128, -5, 127)
    ),
    conv_2d(
        "activation_relu6_narrow",
        X,
        5,
        (3, 3),
        Slide(activation="RELU6"),
        Scales(input=1.0, weights=(1.0,), output=4.0),
    ),
    conv_2d("activation_n1_to_1_tie", X, 5, (3, 3), Slide(activation="RELU_N1_TO_1"), Scales(1.0, (1.0,), output=2.0)),
]
IDS = [case.id for case in CASES]


@pytest.fixture(scope="module")
def proven() -> Proven:
    """Every case, run three ways."""
    return prove(CASES)


@pytest.mark.parametrize("name", IDS)
def test_reference_engine_and_c_agree(proven: Proven, name: str) -> None:
    proven.outcomes[name].check()


def test_no_memory_error(proven: Proven) -> None:
    assert proven.memory_errors == ()


def test_cases_reach_what_they_are_named_for(proven: Proven) -> None:
    saturated = np.concatenate([outputs[0].reshape(-1) for outputs in proven.outcomes["saturation"].golden])
    assert saturated.min() == -128 and saturated.max() == 127
    cases = {case.id: case for case in CASES}
    for name, (q31, shift) in MULTIPLIERS.items():
        assert factors(cases[name]).q31 == (q31,) and factors(cases[name]).shift == (shift,)
    assert factors(cases["shift_below_minus_31_is_zero"]).q31 == (0,)
    assert [q > 0 for q in factors(cases["per_channel_one_is_zero"]).q31] == [True, False, True, False, True]
    assert len(factors(cases["per_channel_equal_scales"]).q31) == 1
    assert max(factors(cases["per_channel_wide"]).shift) > 0 and min(factors(cases["per_channel_wide"]).shift) < -25


@pytest.mark.parametrize(
    ("name", "template"),
    [
        ("1x1", "fully_connected"),
        ("1x1_batch_2", "fully_connected"),
        ("1x1_stride_2", "conv_2d"),
        ("dilation_h", "conv_2d"),
        ("dilation_w", "conv_2d_taps"),
        ("groups_2", "conv_2d_taps"),
        ("groups_1x1", "conv_2d_taps"),
        ("bias_that_the_fold_would_overflow_SAME", "conv_2d_taps"),
        ("bias_that_the_fold_would_overflow_VALID", "conv_2d_taps"),
    ],
)
def test_kernel_choice(proven: Proven, name: str, template: str) -> None:
    step = proven.outcomes[name].step
    assert step is not None and step.kernel_name == template


def test_macs_count_every_tap_of_every_output() -> None:
    assert (
        lowered(conv_2d("m", (2, 5, 4, 6), 8, (3, 2), Slide(padding=SAME), groups=2)).macs == 2 * 5 * 4 * 8 * 3 * 2 * 3
    )


BASE = conv_2d("layer", X, 4, (3, 3))


def _refused(case: Case, code: int, what: str, tensor: str, why: str, hint: str) -> None:
    place = 'op 0 CONV_2D "layer/out0"' + (f", tensor {tensor}" if tensor else "")
    assert message(case) == f"{code}\nerror: {what}\n  at:    {place}\n  why:   {why}\n  try:   {hint}"


AGAIN = "export the model again"


def test_refuses_weights_of_another_rank() -> None:
    case = with_input(BASE, 1, shape=(4, 3, 9))
    _refused(case, 2, "CONV_2D has weights of the wrong rank", '1 "layer/in1" int8[4,3,9]', "OHWI is expected", AGAIN)


def test_refuses_an_input_that_is_no_image() -> None:
    case = with_input(BASE, 0, shape=(6, 5, 3))
    _refused(
        case, 2, "CONV_2D has an input of shape [6, 5, 3]", '0 "layer/in0" int8[6,5,3]',
        "four dimensions NHWC are expected", "export again",
    )  # fmt: skip


def test_refuses_channels_that_do_not_fit() -> None:
    w = weights_of("w", (4, 3, 3, 2))
    case = with_input(BASE, 1, shape=w.shape, data=w.tobytes())
    _refused(
        case, 2, "CONV_2D has channels that do not fit", '"layer/in1" int8[4,3,3,2]', "input 3, weights 2 to 4", AGAIN
    )


def test_refuses_groups_that_do_not_divide_the_filters() -> None:
    w = weights_of("w", (5, 3, 3, 3))
    case = conv_2d("layer", (1, 6, 5, 6), 5, (3, 3), w=w)
    _refused(
        case, 2, "CONV_2D has channels that do not fit", '"layer/in1" int8[5,3,3,3]', "input 6, weights 3 to 5", AGAIN
    )


def test_refuses_weights_with_a_zero_point() -> None:
    _refused(
        with_input(BASE, 1, zero_points=(1,)), 2, "CONV_2D has weights with a zero point", '"layer/in1" int8[4,3,3,3]',
        "weights are symmetric in TFLite's int8 scheme", "quantize the weights symmetrically",
    )  # fmt: skip


def test_refuses_weights_quantized_along_another_dimension() -> None:
    _refused(
        with_input(BASE, 1, scales=(0.1, 0.2, 0.3), zero_points=(), quantized_dimension=3), 2,
        "CONV_2D has weights quantized along dimension 3", '"layer/in1" int8[4,3,3,3]',
        "one scale, or one per output channel (dimension 0) is expected", "quantize again",
    )  # fmt: skip


def test_refuses_weights_without_a_scale() -> None:
    _refused(
        with_input(BASE, 1, scales=(), zero_points=()), 2, "CONV_2D has weights without a scale",
        '"layer/in1" int8[4,3,3,3]', "int8 weights are quantized", "quantize the model fully",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("position", "tensor"), [(0, '"layer/in0" int8[1,6,5,3]'), (None, '"layer/out0" int8[1,4,3,4]')]
)
def test_refuses_activations_without_a_scale(position: int | None, tensor: str) -> None:
    bare = {"scales": (), "zero_points": ()}
    case = with_output(BASE, **bare) if position is None else with_input(BASE, position, **bare)
    _refused(case, 2, "CONV_2D needs quantized tensors", tensor, "this tensor has no scale", "quantize the model fully")


def test_refuses_an_activation_quantized_per_channel() -> None:
    case = with_input(BASE, 0, scales=(0.1, 0.2, 0.3), zero_points=(0, 0, 0), quantized_dimension=3)
    _refused(
        case, 2, "CONV_2D has an activation with 3 scales", '"layer/in0" int8[1,6,5,3]',
        "activations are quantized per tensor", AGAIN,
    )  # fmt: skip


def test_refuses_a_bias_of_the_wrong_length() -> None:
    case = replace(BASE, inputs=(*BASE.inputs[:2], integers(1, 2, 3)))
    _refused(case, 2, "CONV_2D has a bias of the wrong length", '"layer/in2" int32[3]', "4 output channels", AGAIN)


CODE = "(int8, int8, int32, int8) or (int8, int4, int32, int8) or (int16, int8, int64, int16) or (int16, int8, int32, int16)"


@pytest.mark.parametrize(
    ("dtype", "code"),
    [
        pytest.param("int32", 1, id="int32"),
    ],
)
def test_refuses_other_types(dtype: str, code: int) -> None:
    case = with_input(with_output(BASE, dtype=dtype, zero_points=(0,)), 0, dtype=dtype, zero_points=(0,))
    w = weights_of("w", (4, 3, 3, 3)).astype(dtype)
    case = with_input(case, 1, dtype=dtype, data=w.tobytes())
    _refused(
        case, code, f"CONV_2D with element types ({dtype}, {dtype}, int32, {dtype}) is not supported",
        f'"layer/out0" {dtype}[1,4,3,4]', f"there is code for {CODE}",
        "quantize the model to int8 (full integer quantization)",
    )  # fmt: skip


def test_refuses_an_accumulator_that_can_overflow() -> None:
    bias = np.array([0, 0, -(2**31) + 100, 0], np.int32)
    case = conv_2d("layer", X, 4, (3, 3), scales=Scales(input_zero_point=0), w=filled(1, 4, 3, 3, 3), bias=bias)
    _refused(
        case, 2, "CONV_2D can overflow an accumulator of 32 bits", '"layer/in1" int8[4,3,3,3]',
        f"output channel 2 can reach {2**31 - 100 + 27 * 128}",
        "quantize the model again: weights or bias of this size are not meaningful",
    )  # fmt: skip


def test_accepts_an_accumulator_that_just_fits() -> None:
    bias = np.array([0, 0, -(2**31) + 1 + 27 * 128, 0], np.int32)
    case = conv_2d("layer", X, 4, (3, 3), scales=Scales(input_zero_point=0), w=filled(1, 4, 3, 3, 3), bias=bias)
    assert lowered(case).kernel_name == "conv_2d"


@pytest.mark.parametrize(
    "output",
    [
        pytest.param(2.0**-31, id="factor_2_to_the_31"),
        pytest.param(2.0**-30, id="factor_2_to_the_30"),
        pytest.param(1e-38, id="factor_far_over"),
    ],
)
def test_refuses_a_factor_out_of_proportion(output: float) -> None:
    case = conv_2d("layer", X, 4, (3, 3), scales=Scales(1.0, (1.0,), output=output))
    _refused(
        case, 2,
        "CONV_2D has an output scale that is out of proportion", '"layer/out0" int8[1,4,3,4]',
        f"input scale * weight scale / output scale = {1.0 / single(output)!r}", "quantize again",
    )  # fmt: skip


def test_accepts_the_largest_factor() -> None:
    case = conv_2d("layer", X, 4, (3, 3), scales=Scales(1.0 - 2.0**-24, (1.0,), output=2.0**-30))
    assert factors(case).shift == (30,)


def test_refuses_a_factor_whose_multiplier_rounds_to_2_to_the_30() -> None:
    # The largest product of two float32 scales under 1 that is not one itself: 1 - 2**-34.
    x, w = 1.0 + 2.0**-17, 1.0 - 2.0**-17
    assert x * w == 1.0 - 2.0**-34
    _refused(
        conv_2d("layer", X, 4, (3, 3), scales=Scales(x, (w,), output=2.0**-30)), 2,
        "CONV_2D has an output scale that is out of proportion",
        '"layer/out0" int8[1,4,3,4]', f"input scale * weight scale / output scale = {2.0**30 * (1.0 - 2.0**-34)!r}",
        "quantize again",
    )  # fmt: skip


def test_refuses_a_window_that_does_not_fit() -> None:
    case = with_output(conv_2d("layer", X, 4, (6, 5)), shape=(1, 1, 1, 4))
    case = with_input(case, 0, shape=(1, 5, 5, 3))
    _refused(
        case, 2, "CONV_2D has a 6x5 window that does not fit its input", '"layer/in0" int8[1,5,5,3]',
        "the input is 5x5 with padding Padding(top=0, bottom=0, left=0, right=0)", AGAIN,
    )  # fmt: skip


def test_refuses_a_shape_that_the_operator_does_not_give() -> None:
    _refused(
        with_output(BASE, shape=(1, 4, 4, 4)), 2, "CONV_2D has an output of the wrong shape", '3 "layer/out0" int8[1,4,4,4]',
        "the file says [1, 4, 4, 4], the operator gives [1, 4, 3, 4]", "export the model again",
    )  # fmt: skip


@pytest.mark.parametrize("field", ["stride_h", "stride_w", "dilation_h_factor", "dilation_w_factor"])
@pytest.mark.parametrize("value", [0, -1, 65537])
def test_refuses_a_step_out_of_range(field: str, value: int) -> None:
    name = field.replace("_h_factor", "_hfactor").replace("_w_factor", "_wfactor")
    _refused(
        replace(BASE, options=dict(BASE.options) | {field: value}), 2, f"CONV_2D has {name} = {value}", "",
        "an integer in [1, 65536] is expected",
        "the file is damaged or was written by a faulty converter: export the model again",
    )  # fmt: skip


def test_refuses_a_window_that_reaches_too_far() -> None:
    case = replace(BASE, options=dict(BASE.options) | {"dilation_h_factor": 32768})
    _refused(
        case, 2, "CONV_2D has a window that reaches over 65537 rows or columns", "",
        "3x3 dilated by 32768x1; the limit is 65536", "the file is damaged: export the model again",
    )  # fmt: skip


def test_refuses_a_bias_of_another_type() -> None:
    case = with_input(BASE, 2, dtype="int16", data=np.zeros(4, "<i2").tobytes())
    _refused(
        case, 2, "CONV_2D has a bias of type int16", '"layer/in2" int16[4]',
        "it is added to the accumulator: int32, or int64 and float32 where that is", AGAIN,
    )  # fmt: skip


def test_refuses_a_number_of_inputs() -> None:
    _refused(
        replace(BASE, inputs=BASE.inputs[:1]), 2, "CONV_2D has 1 inputs", "", "2 to 3 are expected",
        "the file is damaged: export the model again",
    )  # fmt: skip

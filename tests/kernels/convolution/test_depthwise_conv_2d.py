"""DEPTHWISE_CONV_2D: reference, engine and C agree on every bit; what has no code is refused by name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.layer_cases import (
    Scales,
    Slide,
    depthwise,
    factors,
    lowered,
    message,
    scales_for,
    weights_of,
    with_input,
    with_output,
)
from tests.support.single_op import Array, Case, Proven, integers, prove

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

SAME = "SAME"
X = (1, 6, 5, 5)
CHANNELS = (1, 3, 4, 5, 7, 8)
MULTIPLIERS = (1, 2, 3, 8)


def per_channel(channels: int, low: float = -8.0, high: float = -5.0, **others: float) -> Scales:
    """A weight scale for each output channel, spread over powers of two."""
    return Scales(weights=tuple(2.0**e for e in np.linspace(low, high, channels).tolist()), **others)  # type: ignore[arg-type]


def filled(value: int, *shape: int) -> Array:
    """Weights of one value."""
    return np.full(shape, value, np.int8)


FACTORS = {
    "smallest_multiplier": (2**30, -5),
    "largest_multiplier": (2**31 - 1, -6),
    "factor_just_below_1": (2**31 - 1, 0),
    "factor_above_1": (1518500250, 2),
    "factor_large": (1518500250, 11),
    "shift_minus_31": (2**31 - 1, -31),
}

CASES: list[Case] = [
    *(
        depthwise(
            f"channels_{c}_multiplier_{m}",
            (1, 5, 4, c),
            m,
            (3, 3),
            Slide(padding=SAME),
            per_channel(c * m) if c * m > 1 else Scales(),
        )
        for c in CHANNELS
        for m in MULTIPLIERS
    ),
    *(
        depthwise(
            f"zero_points_{x}_{y}_{p}_{m}",
            X,
            m,
            (3, 3),
            Slide(padding=p),
            Scales(input_zero_point=x, output_zero_point=y, factor=0.02),
        )
        for x, y in [(-128, -128), (127, 127), (-128, 127), (127, -128), (0, 0)]
        for p in (SAME, "VALID")
        for m in (1, 2)
    ),
    depthwise("weights_of_minus_128", X, 1, (3, 3), Slide(padding=SAME), w=weights_of("a", (1, 3, 3, 5), -128)),
    depthwise("only_minus_128", X, 2, (3, 3), Slide(padding=SAME), w=filled(-128, 1, 3, 3, 10)),
    depthwise("saturation", X, 1, (3, 3), Slide(padding=SAME), Scales(factor=0.5)),
    *(depthwise(f"{name}_{m}", X, m, (2, 2), scales=scales_for(*f)) for name, f in FACTORS.items() for m in (1, 2)),
    depthwise("shift_below_minus_31_is_zero", X, 1, (3, 3), scales=Scales(0.05, (2.0**-30,), output=1000.0)),
    depthwise(
        "per_channel_wide", (1, 4, 4, 8), 1, (3, 3), Slide(padding=SAME), per_channel(8, -45.0, 1.0, factor=2.0**-45)
    ),
    depthwise("per_channel_equal_scales", X, 1, (3, 3), scales=Scales(weights=(0.01,) * 5)),
    depthwise("per_channel_one_is_zero", X, 1, (3, 3), scales=Scales(weights=(0.01, 1e-30, 0.02, 1e-38, 0.01))),
    *(depthwise(f"no_bias_{m}", X, m, (3, 3), Slide(padding=SAME), bias="none") for m in (1, 2)),
    depthwise("bias_scale_above", X, 1, (3, 3), Slide(padding=SAME), Scales(bias_scale_error=1)),
    depthwise("bias_scale_below", X, 2, (3, 3), Slide(padding=SAME), per_channel(10, bias_scale_error=-1)),
    depthwise(
        "bias_at_the_ends",
        (1, 4, 4, 4),
        1,
        (2, 2),
        Slide((2, 2)),
        Scales(factor=2.0**-25),
        w=filled(0, 1, 2, 2, 4),
        bias=np.array([2**31 - 1, -(2**31) + 1, 2**31 - 2, -1], np.int32),
    ),
    *(
        depthwise(
            f"bias_that_the_fold_would_overflow_{c}",
            (1, 4, 4, c),
            5 // c,
            (2, 2),
            Slide(padding=SAME),
            Scales(factor=2.0**-25, input_zero_point=-128),
            w=filled(127, 1, 2, 2, 5),
            bias=np.full(5, 2**31 - 1 - 4 * 127 * 255, np.int32),
        )
        for c in (1, 5)
    ),
    *(
        case
        for m in (1, 2)
        for case in (
            depthwise(f"stride_2_{m}", (1, 7, 7, 5), m, (3, 3), Slide((2, 2))),
            depthwise(f"stride_2_same_even_pads_at_the_end_{m}", (1, 6, 8, 5), m, (3, 3), Slide((2, 2), SAME)),
            depthwise(f"stride_2_same_odd_{m}", (1, 7, 9, 5), m, (3, 3), Slide((2, 2), SAME)),
            depthwise(f"stride_over_kernel_{m}", (1, 9, 8, 5), m, (2, 2), Slide((4, 4))),
            depthwise(f"stride_over_kernel_same_{m}", (1, 9, 8, 5), m, (2, 1), Slide((4, 4), SAME)),
            depthwise(f"even_kernel_same_{m}", (1, 5, 6, 5), m, (2, 4), Slide(padding=SAME)),
            depthwise(f"dilation_h_{m}", (1, 9, 6, 5), m, (3, 3), Slide(dilation=(2, 1))),
            depthwise(f"dilation_w_{m}", (1, 6, 9, 5), m, (3, 3), Slide(dilation=(1, 3))),
            depthwise(f"dilation_both_same_{m}", (1, 7, 7, 5), m, (3, 3), Slide((1, 1), SAME, (2, 3))),
            depthwise(f"dilated_taps_all_outside_{m}", (1, 1, 1, 5), m, (2, 2), Slide((1, 1), SAME, (3, 3))),
            depthwise(f"dilated_columns_all_outside_{m}", (1, 4, 1, 5), m, (2, 2), Slide((1, 1), SAME, (1, 3))),
            depthwise(f"kernel_over_input_{m}", (1, 2, 3, 5), m, (5, 7), Slide(padding=SAME)),
            depthwise(f"kernel_is_input_{m}", (1, 4, 3, 5), m, (4, 3)),
            depthwise(f"1x1_{m}", (1, 4, 5, 7), m, (1, 1)),
            depthwise(f"1x1_stride_2_{m}", (1, 6, 7, 5), m, (1, 1), Slide((2, 2), SAME)),
            depthwise(f"1xn_{m}", (1, 4, 9, 5), m, (1, 5), Slide(padding=SAME)),
            depthwise(f"nx1_{m}", (1, 9, 4, 5), m, (5, 1), Slide(padding=SAME)),
            depthwise(f"batch_2_{m}", (2, 5, 4, 5), m, (3, 3), Slide(padding=SAME)),
            depthwise(f"one_channel_dilated_{m}", (1, 7, 7, 1), m, (3, 3), Slide((1, 1), SAME, (2, 1))),
            depthwise(f"one_channel_dilated_w_{m}", (1, 7, 7, 1), m, (3, 3), Slide((1, 1), SAME, (1, 2))),
            depthwise(f"one_channel_stride_2_{m}", (2, 7, 6, 1), m, (3, 4), Slide((2, 2), SAME)),
        )
    ),
    *(
        depthwise(
            f"activation_{a}_{z}",
            X,
            1,
            (3, 3),
            Slide(padding=SAME, activation=a),
            Scales(factor=0.03, output_zero_point=z),
        )
        for a in ("NONE", "RELU", "RELU6", "RELU_N1_TO_1")
        for z in (-128, -5, 127)
    ),
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


def test_a_third_input_left_out_is_no_bias() -> None:
    # The engine reads the input without looking and crashes, so that only the layer can be compared.
    w = weights_of("w", (1, 3, 3, 5))
    absent, none = (lowered(depthwise("layer", X, 1, (3, 3), w=w, bias=bias)) for bias in ("absent", "none"))
    assert absent == none


def test_multiplier_follows_from_the_channels() -> None:
    # The file's depth_multiplier is not read: some converters leave it 0.
    case = depthwise("layer", X, 2, (3, 3))
    assert lowered(replace(case, options=dict(case.options) | {"depth_multiplier": 0})) == lowered(case)


def test_cases_reach_what_they_are_named_for(proven: Proven) -> None:
    saturated = np.concatenate([outputs[0].reshape(-1) for outputs in proven.outcomes["saturation"].golden])
    assert saturated.min() == -128 and saturated.max() == 127
    cases = {case.id: case for case in CASES}
    for name, (q31, shift) in FACTORS.items():
        for multiplier in (1, 2):
            found = factors(cases[f"{name}_{multiplier}"])
            assert (found.q31, found.shift) == ((q31,), (shift,))
    assert factors(cases["shift_below_minus_31_is_zero"]).q31 == (0,)


@pytest.mark.parametrize(
    ("name", "template"),
    [
        ("channels_5_multiplier_1", "depthwise_conv_2d"),
        ("channels_5_multiplier_2", "depthwise_conv_2d_multiplier"),
        ("channels_1_multiplier_8", "conv_2d"),
        ("one_channel_dilated_2", "conv_2d"),
        ("one_channel_dilated_w_2", "depthwise_conv_2d_multiplier"),
        ("bias_that_the_fold_would_overflow_1", "depthwise_conv_2d_multiplier"),
        ("bias_that_the_fold_would_overflow_5", "depthwise_conv_2d_multiplier"),
    ],
)
def test_kernel_choice(proven: Proven, name: str, template: str) -> None:
    step = proven.outcomes[name].step
    assert step is not None and step.kernel_name == template


def test_macs_count_every_tap_of_every_output() -> None:
    assert lowered(depthwise("m", (2, 5, 4, 3), 2, (3, 2), Slide(padding=SAME))).macs == 2 * 5 * 4 * 6 * 3 * 2


BASE = depthwise("layer", X, 1, (3, 3))
AGAIN = "export the model again"


def _refused(case: Case, code: int, what: str, tensor: str, why: str, hint: str) -> None:
    place = 'op 0 DEPTHWISE_CONV_2D "layer/out0"' + (f", tensor {tensor}" if tensor else "")
    assert message(case) == f"{code}\nerror: {what}\n  at:    {place}\n  why:   {why}\n  try:   {hint}"


def test_refuses_weights_of_another_rank() -> None:
    _refused(
        with_input(BASE, 1, shape=(3, 3, 5)), 2, "DEPTHWISE_CONV_2D has weights of the wrong rank",
        '1 "layer/in1" int8[3,3,5]', "[1, KH, KW, C] is expected", "export again",
    )  # fmt: skip


@pytest.mark.parametrize("shape", [(1, 3, 3, 7), (2, 3, 3, 5)])
def test_refuses_channels_that_do_not_fit(shape: tuple[int, ...]) -> None:
    case = with_input(BASE, 1, shape=shape, data=bytes(int(np.prod(shape))))
    case = replace(case, inputs=case.inputs[:2])
    sizes = ",".join(map(str, shape))
    _refused(
        case, 2, "DEPTHWISE_CONV_2D has channels that do not fit", f'"layer/in1" int8[{sizes}]',
        f"input 5, weights {list(shape)}", AGAIN,
    )  # fmt: skip


def test_refuses_weights_with_a_zero_point() -> None:
    _refused(
        with_input(BASE, 1, zero_points=(-1,)), 2, "DEPTHWISE_CONV_2D has weights with a zero point",
        '"layer/in1" int8[1,3,3,5]', "weights are symmetric in TFLite's int8 scheme",
        "quantize the weights symmetrically",
    )  # fmt: skip


def test_refuses_weights_quantized_along_another_dimension() -> None:
    _refused(
        with_input(BASE, 1, scales=(0.1, 0.2, 0.3), zero_points=(), quantized_dimension=1), 2,
        "DEPTHWISE_CONV_2D has weights quantized along dimension 1", '"layer/in1" int8[1,3,3,5]',
        "one scale, or one per output channel (dimension 3) is expected", "quantize again",
    )  # fmt: skip


def test_refuses_a_bias_of_the_wrong_length() -> None:
    _refused(
        replace(BASE, inputs=(*BASE.inputs[:2], integers(1, 2, 3))), 2, "DEPTHWISE_CONV_2D has a bias of the wrong length",
        '"layer/in2" int32[3]', "5 output channels", AGAIN,
    )  # fmt: skip


def test_refuses_an_accumulator_that_can_overflow() -> None:
    bias = np.array([0, 2**31 - 1, 0, 0, 0], np.int32)
    _refused(
        depthwise("layer", X, 1, (3, 3), scales=Scales(input_zero_point=127), w=filled(-1, 1, 3, 3, 5), bias=bias), 2,
        "DEPTHWISE_CONV_2D can overflow an accumulator of 32 bits", '"layer/in1" int8[1,3,3,5]',
        f"output channel 1 can reach {2**31 - 1 + 9 * 255}",
        "quantize the model again: weights or bias of this size are not meaningful",
    )  # fmt: skip


def test_refuses_an_output_of_another_shape() -> None:
    _refused(
        with_output(BASE, shape=(1, 4, 3, 10)), 2, "DEPTHWISE_CONV_2D has an output of the wrong shape",
        '3 "layer/out0" int8[1,4,3,10]', "the file says [1, 4, 3, 10], the operator gives [1, 4, 3, 5]",
        "export the model again",
    )  # fmt: skip


def test_refuses_a_window_that_does_not_fit() -> None:
    case = depthwise("layer", X, 1, (3, 3), Slide(padding="VALID"))
    case = with_output(with_input(case, 0, shape=(1, 2, 5, 5)), shape=(1, 1, 3, 5))
    _refused(
        case, 2, "DEPTHWISE_CONV_2D has a 3x3 window that does not fit its input", '"layer/in0" int8[1,2,5,5]',
        "the input is 2x5 with padding Padding(top=0, bottom=0, left=0, right=0)", AGAIN,
    )  # fmt: skip

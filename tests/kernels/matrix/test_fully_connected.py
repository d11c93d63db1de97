"""FULLY_CONNECTED: reference, engine and C agree on every bit; what has no code is refused by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from emitc.backends.ethos_u import export_tflite
from emitc.numerics.requantize import multiplier_of, requantize
from tests.support.layer_cases import (
    Scales,
    factors,
    fully_connected,
    lowered,
    message,
    named_rng,
    scales_for,
    single,
    weights_of,
    with_input,
)
from tests.support.single_op import Array, Case, OptionValue, Proven, TensorSpec, graph_of, integers, prove, quantized

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")


def per_channel(channels: int, low: float = -9.0, high: float = -5.0, **others: float) -> Scales:
    """A weight scale for each output channel, spread over powers of two."""
    return Scales(weights=tuple(2.0**e for e in np.linspace(low, high, channels).tolist()), **others)  # type: ignore[arg-type]


def filled(value: int, *shape: int) -> Array:
    """Weights of one value."""
    return np.full(shape, value, np.int8)


def accumulators(name: str, channels: int, low: float, high: float, output: float, zero_point: int) -> Case:
    """Weights of zero, so that the bias is the accumulator: any int32 value meets any multiplier and shift.

    low, high: logarithms of the channels' factors to base two.
    """
    rng = named_rng(name)
    bias = rng.integers(-(2**31) + 1, 2**31 - 1, channels, endpoint=True) >> rng.integers(0, 30, channels)
    bias[:6] = [2**31 - 1, -(2**31) + 1, 0, -1, 1, 2**30]
    scales = tuple(float(np.float32(2.0**e)) for e in rng.uniform(low, high, channels))
    return fully_connected(
        name, (1, 1), channels, 1, scales=Scales(1.0, scales, output=output, output_zero_point=zero_point),
        w=filled(0, channels, 1), bias=bias.astype(np.int32),
    )  # fmt: skip


def between_products(name: str, x: float, w: float, exponent: float) -> Case:
    """Accumulators on which the multipliers of the double and of the float32 product of input and weight scale disagree."""
    x, w = single(x), single(w)
    y = single(x * w * 2.0**exponent)
    rounded = float(np.float32(x) * np.float32(w))
    middle = (x * w + rounded) / 2 / y
    halves = np.array([k + 0.5 for k in range(-120, 120) if abs(k + 0.5) / middle < 2**31 - 1])
    bias = np.round(halves / middle).astype(np.int64)
    double, single_product = (
        requantize(bias, m.q31, m.shift) for m in (multiplier_of(x * w / y), multiplier_of(rounded / y))
    )
    assert (double != single_product).sum() > 50
    scales = Scales(x, (w,), output=y, output_zero_point=0)
    return fully_connected(
        name, (1, 1), len(bias), 1, scales=scales, w=filled(0, len(bias), 1), bias=bias.astype(np.int32)
    )


FACTORS = {
    "smallest_multiplier": (2**30, -7),
    "largest_multiplier": (2**31 - 1, -8),
    "factor_just_below_1": (2**31 - 1, 0),
    "factor_1": (2**30, 1),
    "factor_half": (2**30, 0),
    "factor_above_1": (1518500250, 2),
    "factor_large": (1518500250, 10),
    "shift_minus_31": (2**31 - 1, -31),
}

CASES: list[Case] = [
    *(
        fully_connected(f"zero_points_{x}_{y}", (1, 16), 5, 16, scales=Scales(input_zero_point=x, output_zero_point=y))
        for x, y in [(-128, -128), (127, 127), (-128, 127), (127, -128), (0, 0)]
    ),
    fully_connected("weights_of_minus_128", (1, 16), 6, 16, w=weights_of("a", (6, 16), -128)),
    fully_connected("only_minus_128", (3, 16), 5, 16, scales=Scales(factor=0.0005), w=filled(-128, 5, 16)),
    fully_connected("saturation", (4, 16), 5, 16, scales=Scales(factor=0.2)),
    *(fully_connected(f"out_{c}", (2, 7), c, 7, scales=per_channel(c)) for c in range(2, 10)),
    *(fully_connected(f"out_{c}_per_tensor", (2, 7), c, 7) for c in range(1, 10)),
    *(fully_connected(f"depth_{d}", (2, d), 5, d) for d in range(1, 10)),
    fully_connected("one_weight", (1, 1), 1, 1),
    fully_connected("deep", (1, 700), 5, 700, scales=Scales(factor=0.0003)),
    *(fully_connected(name, (2, 8), 5, 8, scales=scales_for(*f)) for name, f in FACTORS.items()),
    fully_connected("factor_tiny_is_zero", (2, 8), 5, 8, scales=Scales(0.05, (2.0**-30,), output=1000.0)),
    between_products("between_products_1", 0.0123, 0.0457, 24.0),
    between_products("between_products_2", 0.0123, 0.0457, 23.7),
    between_products("between_products_3", 0.02353, 0.00457, 23.9),
    fully_connected("denormal_product", (2, 8), 5, 8, scales=Scales(1e-20, (3e-23,), output=1e-40), bias="none"),
    fully_connected("per_channel_equal_scales", (8, 64), 5, 64, scales=Scales(weights=(0.01,) * 5)),
    accumulators("accumulators_right", 2048, -31.9, -0.1, 1.0, 0),
    accumulators("accumulators_right_offset", 2048, -31.9, -1.1, 1.0, -128),
    accumulators("accumulators_left", 1024, 0.1, 29.9, 1.0, 0),
    accumulators("accumulators_near_factor_1", 1024, -0.01, 0.01, 1.0, 127),
    fully_connected("no_bias", (2, 8), 5, 8, bias="none"),
    fully_connected("absent_bias", (2, 8), 5, 8, bias="absent"),
    fully_connected("no_bias_per_channel", (2, 8), 5, 8, scales=per_channel(5), bias="none"),
    fully_connected("bias_scale_above", (2, 8), 5, 8, scales=Scales(bias_scale_error=1)),
    fully_connected("bias_scale_below", (2, 8), 5, 8, scales=per_channel(5, bias_scale_error=-1)),
    fully_connected(
        "bias_that_the_fold_would_overflow",
        (2, 4),
        5,
        4,
        scales=Scales(factor=2.0**-25, input_zero_point=-128),
        w=filled(127, 5, 4),
        bias=np.full(5, 2**31 - 1 - 4 * 127 * 255, np.int32),
    ),
    fully_connected("rank_1", (12,), 5, 12),
    fully_connected("rank_3", (2, 3, 4), 5, 4),
    fully_connected("rank_3_rows_span_dimensions", (2, 3, 4), 5, 12),
    fully_connected("rank_4", (1, 2, 3, 4), 5, 24),
    fully_connected("rank_4_rows", (2, 2, 3, 4), 5, 12),
    fully_connected("several_rows", (7, 9), 6, 9),
    fully_connected("keep_rank_2", (3, 4), 5, 4, keep=True),
    fully_connected("keep_rank_3", (2, 3, 4), 5, 4, keep=True),
    fully_connected("keep_rank_4", (1, 2, 3, 4), 5, 4, keep=True),
    *(
        fully_connected(f"activation_{a}_{z}", (4, 16), 5, 16, a, Scales(factor=0.01, output_zero_point=z))
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


def test_cases_reach_what_they_are_named_for(proven: Proven) -> None:
    saturated = np.concatenate([outputs[0].reshape(-1) for outputs in proven.outcomes["saturation"].golden])
    assert saturated.min() == -128 and saturated.max() == 127
    cases = {case.id: case for case in CASES}
    for name, (q31, shift) in FACTORS.items():
        assert (factors(cases[name]).q31, factors(cases[name]).shift) == ((q31,), (shift,))
    assert min(factors(cases["accumulators_right"]).shift) == -31
    assert max(factors(cases["accumulators_left"]).shift) == 30


@pytest.mark.parametrize(
    ("name", "template"),
    [("several_rows", "fully_connected"), ("bias_that_the_fold_would_overflow", "conv_2d_taps")],
)
def test_kernel_choice(proven: Proven, name: str, template: str) -> None:
    step = proven.outcomes[name].step
    assert step is not None and step.kernel_name == template


def test_macs() -> None:
    assert lowered(fully_connected("m", (2, 3, 4), 5, 4)).macs == 6 * 4 * 5


BASE = fully_connected("layer", (2, 8), 4, 8)
AGAIN = "export the model again"


def _refused(case: Case, code: int, what: str, tensor: str, why: str, hint: str) -> None:
    place = 'op 0 FULLY_CONNECTED "layer/out0"' + (f", tensor {tensor}" if tensor else "")
    assert message(case) == f"{code}\nerror: {what}\n  at:    {place}\n  why:   {why}\n  try:   {hint}"


def test_refuses_weights_of_another_rank() -> None:
    _refused(
        with_input(BASE, 1, shape=(4, 8, 1)), 2, "FULLY_CONNECTED has a tensor of rank 3", '"layer/in1" int8[4,8,1]',
        "rank 2 is expected", AGAIN,
    )  # fmt: skip


def test_refuses_an_input_that_is_no_whole_number_of_rows() -> None:
    _refused(
        with_input(BASE, 0, shape=(3, 5)), 2, "FULLY_CONNECTED has an input that does not fit its weights",
        '"layer/in0" int8[3,5]', "weights take rows of 8", AGAIN,
    )  # fmt: skip


def test_refuses_to_keep_dimensions_when_rows_span_them() -> None:
    case = replace(BASE, options=dict(BASE.options) | {"keep_num_dims": True})
    case = with_input(case, 0, shape=(2, 2, 4))
    _refused(
        case, 2, "FULLY_CONNECTED has an input that does not fit its weights", '"layer/in0" int8[2,2,4]',
        "weights take rows of 8", AGAIN,
    )  # fmt: skip


def test_refuses_shuffled_weights() -> None:
    _refused(
        replace(BASE, options=dict(BASE.options) | {"weights_format": "SHUFFLED4x16INT8"}), 1,
        "FULLY_CONNECTED with weights_format SHUFFLED4x16INT8 is not supported", "", "supported: DEFAULT",
        "export the model with a supported setting, or as a separate operator",
    )  # fmt: skip


def test_refuses_weights_with_a_zero_point() -> None:
    """One for each output channel: TFLite Micro leaves these out of account."""
    _refused(
        with_input(BASE, 1, scales=(0.1,) * 4, zero_points=(3,) * 4), 2, "FULLY_CONNECTED has weights with a zero point",
        '"layer/in1" int8[4,8]', "weights are symmetric in TFLite's int8 scheme", "quantize the weights symmetrically",
    )  # fmt: skip


def test_refuses_weights_quantized_along_the_depth() -> None:
    _refused(
        with_input(BASE, 1, scales=(0.1,) * 8, zero_points=(), quantized_dimension=1), 2,
        "FULLY_CONNECTED has weights quantized along dimension 1", '"layer/in1" int8[4,8]',
        "one scale, or one per output channel (dimension 0) is expected", "quantize again",
    )  # fmt: skip


def computed(name: str, x: tuple[int, ...], out: int, depth: int, **options: Any) -> Case:
    """A layer whose weights are computed."""
    return with_input(fully_connected(name, x, out, depth, **options), 1, data=None)


def wide(name: str, bias: str, **options: OptionValue) -> Case:
    """A layer of int16 with computed weights of int8. bias: its type, "" for none."""
    values = named_rng(name).integers(-5000, 5000, 4)
    given = [TensorSpec("", bias, (4,), values.astype(bias).tobytes(), (0.001 * 0.02,), (0,))] if bias else []
    inputs = (quantized((3, 7), 0.001, 0, "int16"), quantized((4, 7), 0.02), *given)
    return Case(name, "FULLY_CONNECTED", inputs, (quantized((3, 4), 0.004, 0, "int16"),), options)


COMPUTED: list[Case] = [
    computed("computed", (3, 9), 5, 9),
    computed("computed_zero_points", (2, 8), 3, 8, scales=Scales(input_zero_point=-128, output_zero_point=127)),
    computed("computed_one", (1, 1), 1, 1),
    computed("computed_rows_span_dimensions", (2, 3, 4), 5, 12),
    replace(computed("computed_relu", (2, 8), 3, 8), options={"fused_activation_function": "RELU6"}),
    replace(computed("computed_without_bias", (2, 8), 3, 8), inputs=computed("computed_without_bias", (2, 8), 3, 8).inputs[:2]),
    wide("computed_int64", "int64"), wide("computed_int32", "int32"), wide("computed_no_bias", ""),
    wide("computed_no_bias_int32", "", quantized_bias_type="INT32"),
]  # fmt: skip


ZEROS: list[Case] = [
    with_input(
        fully_connected(
            f"weights_{zero}_{x}_{depth}", (rows, depth), out, depth, scales=Scales(input_zero_point=x, factor=0.0008)
        ),
        1,
        zero_points=(zero,),
        data=None if kept else weights_of(f"{zero}_{depth}", (out, depth), -128).tobytes(),
    )
    for zero, x, depth, rows, out, kept in [
        (5, 0, 9, 3, 5, False), (-128, 127, 16, 2, 4, False), (127, -128, 33, 1, 7, False), (-3, 4, 700, 5, 6, False),
        (5, 1, 9, 3, 5, True), (-128, -128, 64, 2, 4, True), (127, 127, 16, 1, 3, True),
    ]
]  # fmt: skip


@pytest.mark.parametrize("target", ["generic32", "cortex-m0", "cortex-m4", "cortex-m55"])
def test_weights_with_a_zero_point(target: str) -> None:
    proven = prove(ZEROS, target=target)
    for outcome in proven.outcomes.values():
        outcome.check()
    assert proven.memory_errors == ()


def test_weights_with_a_zero_point_are_not_for_the_npu() -> None:
    (bound,) = graph_of(ZEROS[0]).bound()
    assert export_tflite.refusal(bound) == "weights with a zero point"


def late(case: Case) -> Case:
    """The case with its bias for an input, of which every number may come: sums wrap."""
    return replace(with_input(case, 2, data=None), id=f"{case.id}_late_bias")


LATE: list[Case] = [
    *(late(case) for case in (COMPUTED[0], BASE, ZEROS[0], ZEROS[4], COMPUTED[6], COMPUTED[7])),
    *(
        late(with_input(case, 1, data=bytes(range(28))))
        for case in (wide("bytes_int64", "int64"), wide("bytes_int32", "int32"))
    ),
]
FOUR = {"scales": (0.02, 0.003, 0.05, 0.0007), "zero_points": (0,) * 4}
CHANNELS: list[Case] = [
    computed("computed_channels", (3, 9), 5, 9, scales=per_channel(5)),
    computed("computed_channels_of_one_scale", (2, 3, 4), 5, 12, scales=Scales(weights=(0.01,) * 5)),
    late(fully_connected("channels", (2, 3, 5), 6, 5, scales=per_channel(6))),
    late(computed("computed_channels_too", (3, 9), 5, 9, scales=per_channel(5))),
    *(with_input(wide(f"channels_{bias}", bias), 1, **FOUR) for bias in ("int64", "int32", "")),
    *(late(with_input(wide(f"channels_{bias}", bias), 1, **FOUR)) for bias in ("int64", "int32")),
]


@pytest.mark.parametrize(
    ("cases", "template"),
    [(COMPUTED, "fully_connected_computed"), (LATE, "fully_connected_computed"), (CHANNELS, "conv_2d_taps")],
    ids=["weights", "bias", "channels"],
)
def test_computed_operands(cases: list[Case], template: str) -> None:
    proven = prove(cases, samples=5)
    for outcome in proven.outcomes.values():
        outcome.check()
        assert outcome.step is not None and outcome.step.kernel_name == template
    assert proven.memory_errors == ()


def test_refuses_computed_weights_with_zero_points() -> None:
    case = with_input(BASE, 1, data=None)
    short = with_input(wide("layer", "int64"), 1, zero_points=(3,))
    assert "weights with a zero point" in message(short)
    assert "weights with a zero point" in message(with_input(case, 1, scales=(0.1,) * 4, zero_points=(0, 1, 0, 0)))
    depth = with_input(case, 1, scales=(0.1,) * 8, zero_points=(0,) * 8, quantized_dimension=1)
    assert "weights quantized along dimension 1" in message(depth)


def test_refuses_computed_weights_over_many_elements() -> None:
    depth = 70_000
    case = computed("deep", (1, depth), 1, depth)
    assert f"computed weights over {depth} elements is not supported" in message(case)


def test_refuses_a_bias_of_the_wrong_length() -> None:
    _refused(
        replace(BASE, inputs=(*BASE.inputs[:2], integers(1, 2))), 2, "FULLY_CONNECTED has a bias of the wrong length",
        '"layer/in2" int32[2]', "4 output channels", AGAIN,
    )  # fmt: skip


def test_refuses_hybrid_types_with_a_quantized_output() -> None:
    case = with_input(BASE, 0, dtype="float32", scales=(), zero_points=())
    case = replace(case, inputs=case.inputs[:2])
    _refused(
        case, 2, "FULLY_CONNECTED with element types (float32, int8, int8) is not supported",
        '"layer/out0" int8[2,4]', "there is code for (float32, int8, float32)",
        "quantize the model to int8 (full integer quantization)",
    )  # fmt: skip


def test_refuses_an_accumulator_that_can_overflow() -> None:
    case = fully_connected("layer", (2, 8), 4, 8, scales=Scales(input_zero_point=-128), w=filled(2, 4, 8),
                           bias=np.array([0, 0, 0, 2**31 - 8 * 2 * 255], np.int32))  # fmt: skip
    _refused(
        case, 2, "FULLY_CONNECTED can overflow an accumulator of 32 bits", '"layer/in1" int8[4,8]',
        f"output channel 3 can reach {2**31}",
        "quantize the model again: weights or bias of this size are not meaningful",
    )  # fmt: skip

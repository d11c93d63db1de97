"""UNIDIRECTIONAL_SEQUENCE_LSTM: reference, engine and C agree on every bit over sequences of inputs; refusals by name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from emitc.writers.tflite import TensorSpec
from tests.support.layer_cases import lowered, message, named_rng, single, with_input, with_output
from tests.support.recurrent_cases import OPCODE, SHORTS, USUAL, LstmScales, lstm, lstm_wide
from tests.support.single_op import Case, Proven, prove

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

CASES: list[Case] = [
    *(lstm(f"units_{u}", 1, 3, 5, u) for u in (1, 2, 3, 4, 5, 8)),
    *(lstm(f"depth_{d}", 1, 3, d, 4) for d in (1, 2, 3, 4, 9)),
    *(lstm(f"steps_{t}", 1, t, 4, 3) for t in (1, 2, 17)),
    lstm("batches", 3, 4, 5, 3),
    lstm("time_major", 1, 5, 4, 3, time_major=True),
    lstm("time_major_batches", 3, 4, 5, 3, time_major=True),
    lstm("time_major_one_step", 2, 1, 5, 3, time_major=True),
    *(lstm(f"zero_points_{z}", 1, 4, 5, 4, replace(USUAL, x_zero=z, h_zero=z)) for z in (-128, 0, 127)),
    *(lstm(f"cell_scale_{e}", 1, 4, 5, 4, replace(USUAL, cell=e), clip=0.0) for e in (-15, -14, -13, -11, -9, -5)),
    lstm("no_clip", 1, 9, 5, 4, clip=0.0),
    lstm("tight_clip", 1, 6, 5, 4, clip=0.3),
    lstm("clip_of_one_step", 1, 6, 5, 4, clip=0.0003),
    lstm("clip_below_one_step", 1, 6, 5, 4, clip=0.0001),
    lstm("clip_beyond_16_bits", 1, 6, 5, 4, clip=1000.0),
    # Sums far over Q3.12: gates saturate, products of states reach 16 bits.
    lstm("gates_saturate", 1, 6, 9, 4, replace(USUAL, x=0.2, weights=(0.05, 0.06, 0.07, 0.08)), clip=0.0),
    lstm("gates_shift_left", 1, 6, 5, 4, replace(USUAL, x=1.0, weights=(1.0, 0.5, 2.0, 4.0))),
    lstm("gates_hardly_open", 1, 6, 5, 4, replace(USUAL, x=1e-6, weights=(1e-6, 1e-5, 1e-4, 1e-3), h=1e-4)),
    lstm("output_saturates", 1, 6, 9, 4, replace(USUAL, x=0.2, h=0.002)),
    lstm("cell_saturates", 1, 40, 9, 4, replace(USUAL, x=0.2, cell=-15), clip=0.0),
]
WIDE: list[Case] = [
    *(lstm_wide(f"wide_units_{u}", 1, 3, 5, u) for u in (1, 4, 7)),
    lstm_wide("wide_batches", 3, 4, 5, 3),
    lstm_wide("wide_time_major", 2, 5, 4, 3, time_major=True),
    *(lstm_wide(f"wide_cell_{e}", 1, 4, 5, 4, replace(SHORTS, cell=e), clip=0.0) for e in (-15, -11, -5)),
    lstm_wide("wide_tight_clip", 1, 6, 5, 4, clip=0.3),
    # A part of a sum has 511 products of 22 bits; whole sums leave 32 bits.
    lstm_wide("wide_long_sums", 1, 2, 1100, 3, replace(SHORTS, x=1e-7), full=True),
    lstm_wide("wide_gates_saturate", 1, 6, 9, 4, replace(SHORTS, x=0.01), clip=0.0),
    lstm_wide("wide_gates_shift_left", 1, 6, 5, 4, replace(SHORTS, x=0.3, weights=(0.05, 0.06, 0.07, 0.08))),
    lstm_wide("wide_gates_hardly_open", 1, 6, 5, 4, replace(SHORTS, x=1e-8, weights=(1e-6, 1e-5, 1e-4, 1e-3))),
    lstm_wide("wide_output_saturates", 1, 6, 9, 4, replace(SHORTS, h=2.0**-16)),
]


@pytest.fixture(scope="module")
def proven() -> Proven:
    """Every case, run three ways over eight sequences, each from the state that the one before has left."""
    return prove([*CASES, *WIDE], samples=8)


@pytest.mark.parametrize("name", [case.id for case in (*CASES, *WIDE)])
def test_reference_engine_and_c_agree(proven: Proven, name: str) -> None:
    proven.outcomes[name].check()


def test_no_memory_error(proven: Proven) -> None:
    assert proven.memory_errors == ()


def test_the_state_stays_from_run_to_run() -> None:
    """The same input twice gives two results."""
    case = lstm("twice", 1, 3, 5, 4)
    x = named_rng("twice/x").integers(-128, 127, (1, 3, 5), endpoint=True).astype(np.int8)
    (outcome,) = prove([replace(case, draw=lambda rng, sample: [x])]).outcomes.values()
    outcome.check()
    first, second = (outputs[0] for outputs in outcome.compiled[:2])
    assert not np.array_equal(first, second)


def test_cases_reach_what_they_are_named_for(proven: Proven) -> None:
    values = np.concatenate([outputs[0].reshape(-1) for outputs in proven.outcomes["output_saturates"].golden])
    assert values.min() == -128 and values.max() == 127
    values = np.concatenate([outputs[0].reshape(-1) for outputs in proven.outcomes["wide_output_saturates"].golden])
    assert values.min() == -(1 << 15) and values.max() == (1 << 15) - 1
    assert len(np.unique(proven.outcomes["wide_batches"].golden[0][0])) > 20
    tables = {table.role: table for table in lowered(next(c for c in CASES if c.id == "gates_shift_left")).tables}
    assert max(tables["shift"].values) > 10
    clips = {case.id: {p.name: p.value for p in lowered(case).params}["cell_high"] for case in CASES}
    assert (clips["tight_clip"], clips["clip_of_one_step"], clips["clip_below_one_step"]) == (1228, 1, 0)
    assert clips["no_clip"] == clips["clip_beyond_16_bits"] == 2**15 - 1


def test_takes_no_scratch_and_lies_over_its_input(proven: Proven) -> None:
    step = proven.outcomes["batches"].step
    assert step is not None and step.scratch == ()
    layer = lowered(lstm("m", 1, 28, 28, 20))
    assert layer.macs == 28 * 4 * 20 * 48
    # While a row of x is read, 19 of the 20 bytes of its row of y are stored.
    assert layer.overlaps[0].distance_bytes == 19


def test_output_wider_than_the_input() -> None:
    """Every row of y is longer than that of x, so that y has to start far below x."""
    layer = lowered(lstm("w", 2, 7, 3, 8))
    assert layer.overlaps[0].distance_bytes == 13 * (8 - 3) + 7


def _random_case(index: int) -> Case:
    rng = np.random.default_rng(3000 + index)
    weights = tuple(float(v) for v in 10.0 ** rng.uniform(-3, -1, 4))
    zeros = [int(v) for v in rng.integers(-128, 128, 2)]
    scales = LstmScales(
        float(10.0 ** rng.uniform(-3, -1)), weights, float(rng.uniform(0.001, 0.02)), *zeros, int(rng.integers(-15, -6)),  # type: ignore[arg-type]
    )  # fmt: skip
    sizes = tuple(int(rng.integers(1, high)) for high in (4, 7, 12, 9))
    clip = float(rng.choice([0.0, 0.5, 8.0]))
    return lstm(f"random_{index}", *sizes, scales, time_major=bool(rng.integers(0, 2)), clip=clip)


def test_random_layers() -> None:
    proven = prove([_random_case(index) for index in range(30)], samples=6, seed=5)
    for outcome in proven.outcomes.values():
        outcome.check()
    assert proven.memory_errors == ()


def test_twenty_inputs_are_as_good_as_twenty_four() -> None:
    """Older files leave out the places of layer normalization; TFLite Micro then refuses the model."""
    proven = prove([lstm("few", 1, 3, 5, 4, inputs=20)], engine=None)
    full = prove([replace(lstm("few", 1, 3, 5, 4), id="few")])
    for few, all_of_them in zip(proven.outcomes["few"].compiled, full.outcomes["few"].golden, strict=True):
        assert np.array_equal(few[0], all_of_them[0])


# ---- refusals ----

BASE = lstm("layer", 1, 3, 5, 4)
AGAIN = "export the model again"


def _refused(case: Case, code: int, what: str, tensor: str, why: str, hint: str) -> None:
    place = f'op 0 {OPCODE} "layer/out0"' + (f", tensor {tensor}" if tensor else "")
    assert message(case) == f"{code}\nerror: {OPCODE} {what}\n  at:    {place}\n  why:   {why}\n  try:   {hint}"


def _with(position: int, tensor: TensorSpec | None) -> Case:
    inputs = list(BASE.inputs)
    inputs[position] = tensor
    return replace(BASE, inputs=tuple(inputs))


@pytest.mark.parametrize(
    ("position", "what"),
    [(9, "peepholes"), (11, "peepholes"), (16, "a projection"), (17, "a projection"), (20, "layer normalization")],
)
def test_refuses_variants(position: int, what: str) -> None:
    extra = TensorSpec("", "int16", (4,), bytes(8), (0.1,), (0,))
    _refused(
        _with(position, extra), 1, f"with {what} is not supported", "",
        "TFLite Micro, whose result is to be matched, has none", "train the net without",
    )  # fmt: skip


@pytest.mark.parametrize("position", [1, 5, 12])
def test_refuses_coupled_gates(position: int) -> None:
    _refused(
        _with(position, None), 1, "with coupled input and forget gates is not supported", "",
        "TFLite Micro, whose result is to be matched, has none", "train the net with an input gate of its own",
    )  # fmt: skip


def test_refuses_other_counts_of_inputs() -> None:
    _refused(
        replace(BASE, inputs=BASE.inputs[:22]), 2, "has 22 inputs and 1 outputs", "",
        "20 or 24 inputs and one output are expected", "the file is damaged: export the model again",
    )  # fmt: skip


def test_refuses_a_missing_state() -> None:
    assert message(_with(19, None)).startswith(f"2\nerror: {OPCODE} has no input 19\n")


def test_refuses_an_activation_that_is_not_tanh() -> None:
    case = replace(BASE, options={**BASE.options, "fused_activation_function": "RELU"})
    assert message(case).startswith(f"2\nerror: {OPCODE} with fused_activation_function RELU is not defined\n")


def test_refuses_a_negative_clip() -> None:
    case = replace(BASE, options={**BASE.options, "cell_clip": -1.0})
    _refused(case, 2, "has cell_clip -1.0", "", "it is a magnitude, or 0", AGAIN)


@pytest.mark.parametrize(
    ("position", "shape", "dtype", "expected"),
    [
        (2, (4, 6), "int8", "[4, 5]"),
        (7, (4, 5), "int8", "[4, 4]"),
        (13, (5,), "int32", "[4]"),
        (18, (2, 4), "int8", "[1, 4]"),
    ],
)
def test_refuses_shapes_that_do_not_fit(position: int, shape: tuple[int, ...], dtype: str, expected: str) -> None:
    data = None if position == 18 else bytes(int(np.prod(shape)) * np.dtype(dtype).itemsize)
    shown = f'"layer/in{_index(position)}" {dtype}[{",".join(map(str, shape))}]'
    _refused(
        with_input(BASE, position, shape=shape, data=data), 2, f"has an input {list(shape)}", shown,
        f"{expected} is expected", AGAIN,
    )  # fmt: skip


def _index(position: int) -> int:
    """Number of an input among those that are there."""
    return sum(tensor is not None for tensor in BASE.inputs[:position])


def test_refuses_a_cell_scale_that_is_no_power_of_two() -> None:
    _refused(
        with_input(BASE, 19, scales=(single(0.0003),)), 2, f"has the scale {single(0.0003)!r} for its cell state",
        '"layer/in14" int16[1,4]', "a power of two from 2**-26 to 2**2 is expected", "quantize the model again",
    )  # fmt: skip


def test_refuses_an_output_quantized_otherwise_than_the_state() -> None:
    _refused(
        with_output(BASE, zero_points=(4,)), 2, "has an output quantized otherwise than its hidden state",
        '"layer/out0" int8[1,3,4]', "they are the same values", AGAIN,
    )  # fmt: skip


def test_refuses_weights_with_a_zero_point() -> None:
    _refused(
        with_input(BASE, 6, zero_points=(1,)), 2, "has weights or a cell state with a zero point", '"layer/in6" int8[4,4]',
        "they are symmetric in TFLite", "quantize the model again",
    )  # fmt: skip


def test_refuses_a_scale_per_unit() -> None:
    case = with_input(BASE, 1, scales=(0.1, 0.2, 0.3, 0.4), zero_points=(), quantized_dimension=0)
    _refused(
        case,
        2,
        "has weights with 4 scales",
        '"layer/in1" int8[4,5]',
        "one for the whole tensor is expected",
        "quantize the model again",
    )


def test_refuses_computed_weights() -> None:
    _refused(
        with_input(BASE, 3, data=None), 1, "with computed weights is not supported", '"layer/in3" int8[4,5]',
        "weights and bias must be constants", "export the model with constant weights",
    )  # fmt: skip


def test_refuses_int16_activations_with_a_zero_point() -> None:
    case = with_input(lstm_wide("layer", 1, 3, 5, 4), 0, zero_points=(1,))
    assert message(case).startswith(f"2\nerror: {OPCODE} has an int16 tensor with the zero point 1\n")


def test_refuses_a_wide_sum_that_can_overflow() -> None:
    bias = np.full(4, 2**47, "<i8").tobytes()
    case = with_input(lstm_wide("layer", 1, 3, 5, 4), 13, data=bias)
    assert message(case).startswith("2\nerror: UNIDIRECTIONAL_SEQUENCE_LSTM can overflow an accumulator of 48 bits\n")


def test_refuses_int16_gates_that_are_shifted_too_far() -> None:
    case = lstm_wide("layer", 1, 3, 5, 4, replace(USUAL, x=1.0, weights=(1.0, 0.5, 2.0, 4.0)))
    assert message(case).startswith(
        "2\nerror: UNIDIRECTIONAL_SEQUENCE_LSTM has an output scale that is out of proportion\n"
    )


def test_refuses_scales_out_of_proportion() -> None:
    tiny = with_output(with_input(BASE, 18, scales=(1e-12,)), scales=(1e-12,))
    assert message(tiny).startswith(
        "2\nerror: UNIDIRECTIONAL_SEQUENCE_LSTM has an output scale that is out of proportion\n"
    )


def test_refuses_a_sum_that_can_overflow() -> None:
    bias = np.full(4, 2**31 - 1000, "<i4").tobytes()
    assert message(with_input(BASE, 13, data=bias)).startswith(
        "2\nerror: UNIDIRECTIONAL_SEQUENCE_LSTM can overflow an accumulator of 32 bits\n"
    )

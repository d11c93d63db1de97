"""SVDF: reference, engine and C agree on every bit over sequences of inputs; what has no code is refused by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from emitc.compiler import compile_model
from emitc.numerics.requantize import Multiplier, multiplier_of, requantize
from emitc.verify.tolerances import TOLERANT
from emitc.verify.verification import verify
from emitc.writers.tflite import write_tflite
from tests.support.float_cases import check, with_values
from tests.support.layer_cases import lowered, message, named_rng, single, with_input, with_output
from tests.support.recurrent_cases import WIDE, SvdfScales, svdf, svdf_float
from tests.support.single_op import Case, Proven, graph_of, model_of, prove

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")


def multipliers_of(*scales: float, over: float) -> tuple[Multiplier, Multiplier]:
    """Of a product and quotient of scales in float32, one operation at a time, and in double."""
    product, exact = np.float32(1.0), 1.0
    for scale in scales:
        product, exact = product * np.float32(scale), exact * scale
    return multiplier_of(float(product / np.float32(over))), multiplier_of(exact / over)


def disputed(sums: NDArray[np.int64], single_: Multiplier, double: Multiplier) -> int:
    """For how many sums it matters in which precision the factor is computed."""
    first, second = (requantize(sums, m.q31, m.shift) for m in (single_, double))
    return int((first != second).sum())


def between_sums() -> Case:
    """Sums on which float32 and double disagree about the factor to the output: biases, with time weights of zero."""
    memory, time = single(0.0123), single(0.01)
    y = single(memory * time * 2.0**23.7)
    factors = multipliers_of(memory, time, over=y)
    middle = sum(m.q31 * 2.0 ** (m.shift - 31) for m in factors) / 2
    halves = np.array([k + 0.5 for k in range(-127, 127) if k + 0.5 > 20 or k + 0.5 < -20])
    sums = np.round(halves / middle).astype(np.int64)
    assert disputed(sums, *factors) > 20
    case = svdf("between_sums", 1, 2, len(sums), 1, 2, SvdfScales(memory=memory, y=y, y_zero=0))
    case = with_input(case, 2, data=bytes(2 * len(sums)))
    return with_input(case, 3, data=sums.astype("<i4").tobytes())


def between_scores() -> Case:
    """The same for the factor to the memory: large scores of many inputs, and outputs that show the last bit of them."""
    depth, filters, x, weight = 20001, 10, single(0.0123), single(0.01)
    memory = single(x * weight * 127 * 127 * (depth - 1) / 32500)
    factors = multipliers_of(x, weight, over=memory)
    middle = sum(m.q31 * 2.0 ** (m.shift - 31) for m in factors) / 2
    wanted = named_rng("scores").integers(28000, 31000, filters)
    scores = np.round((wanted + 0.5) / middle).astype(np.int64)
    assert disputed(scores, *factors) > 3
    weights = np.zeros((filters, depth), np.int8)
    for row, score in zip(weights, scores.tolist(), strict=True):
        full, rest = divmod(score // 127, 127)
        row[:full], row[full], row[-1] = 127, rest, score % 127
    values = np.full((1, depth), 127, np.int8)
    values[0, -1] = 1
    time = single(2.0**-15)
    scales = SvdfScales(x, memory, single(memory * time), 0, 0, 0)
    case = svdf("between_scores", 1, depth, filters, 1, 1, scales, kind="int16")
    case = with_input(case, 1, data=weights.tobytes())
    case = with_input(case, 2, data=np.ones(filters, "<i2").tobytes())
    case = with_input(case, 3, data=(-wanted).astype("<i4").tobytes())
    return replace(case, draw=lambda rng, sample: [values])


CASES: list[Case] = [
    between_sums(),
    between_scores(),
    *(svdf(f"units_{u}", 1, 5, u, 1, 3) for u in range(1, 10)),
    *(svdf(f"depth_{d}", 1, d, 5, 1, 3) for d in range(1, 6)),
    *(svdf(f"rank_{r}_of_{u}", 1, 5, u, r, 3) for r in (2, 3, 4, 5) for u in (1, 2, 3)),
    *(svdf(f"steps_{s}", 1, 5, 3, 2, s) for s in (1, 2, 4, 9)),
    svdf("batches", 3, 6, 5, 2, 4),
    *(
        svdf(f"zero_points_{z}", 1, 6, 5, 1, 4, SvdfScales(x_zero=z, memory_zero=z, y_zero=z)) for z in (-128, 0, 127)
    ),
    # A score at the end of int8 plus a zero point leaves int8 and wraps.
    svdf("memory_wraps_up", 1, 9, 6, 1, 3, SvdfScales(memory=0.01, memory_zero=100), full=True),
    svdf("memory_wraps_down", 1, 9, 6, 1, 3, SvdfScales(memory=0.01, memory_zero=-100), full=True),
    svdf("output_saturates", 1, 9, 6, 1, 3, SvdfScales(y=0.01)),
    svdf("factors_above_1", 1, 3, 5, 1, 2, SvdfScales(x=1.0, memory=0.001, y=0.000001)),
    svdf("factors_tiny", 1, 3, 5, 1, 2, SvdfScales(x=1e-9, memory=1.0, y=1e7)),
    svdf("relu_at_the_end", 1, 5, 4, 1, 3, SvdfScales(y_zero=-128), activation="RELU"),
    svdf("relu_inside", 1, 5, 4, 1, 3, SvdfScales(y_zero=-20), activation="RELU"),
    svdf("wide_relu_inside", 1, 5, 4, 2, 3, WIDE, kind="int16", activation="RELU"),
    *(svdf(f"wide_units_{u}_rank_{r}", 1, 5, u, r, 3, WIDE, kind="int16") for u, r in ((1, 1), (5, 1), (3, 2))),
    svdf("wide_batches", 2, 6, 5, 1, 4, WIDE, kind="int16"),
    svdf("wide_saturates", 1, 9, 6, 1, 3, replace(WIDE, memory=0.00001, y=0.001), kind="int16", full=True),
    # The sum over a long memory of full weights leaves 32 bits.
    svdf("wide_sum_wraps", 1, 9, 6, 1, 12, replace(WIDE, memory=0.00001, y=2.0), kind="int16", full=True),
]  # fmt: skip
MODEST = np.array([0.0, -0.0, 1.0, -1.0, 6.0, -3.5, 100.0, -100.0], np.float32)
FLOATS = [
    with_values(case, MODEST)
    for case in (
        *(svdf_float(f"floats_{a}", 2, 5, 4, 2, 3, a) for a in ("NONE", "RELU", "RELU6", "RELU_N1_TO_1")),
        svdf_float("floats_one", 1, 1, 1, 1, 1),
        svdf_float("floats_rank_3", 1, 9, 3, 3, 7),
    )
]


@pytest.fixture(scope="module")
def proven() -> Proven:
    """Every case, run three ways over twelve inputs."""
    return prove([*CASES, *FLOATS], samples=12)


@pytest.mark.parametrize("name", [case.id for case in FLOATS])
def test_floats_are_summed_in_the_order_of_the_engine(proven: Proven, name: str) -> None:
    outcome = proven.outcomes[name]
    check(outcome, TOLERANT)
    for golden, found in zip(outcome.golden, outcome.compiled, strict=True):
        assert golden[0].reshape(-1).tolist() == found[0].reshape(-1).tolist()


@pytest.mark.parametrize("name", [case.id for case in CASES])
def test_reference_engine_and_c_agree(proven: Proven, name: str) -> None:
    proven.outcomes[name].check()


def test_no_memory_error(proven: Proven) -> None:
    assert proven.memory_errors == ()


def test_cases_reach_what_they_are_named_for(proven: Proven) -> None:
    for name, low, high in (("output_saturates", -128, 127),):
        values = np.concatenate([outputs[0].reshape(-1) for outputs in proven.outcomes[name].golden])
        assert values.min() == low and values.max() == high
    layers = {case.id: lowered(case) for case in CASES}
    shifts = {name: {p.name: p.value for p in layer.params} for name, layer in layers.items()}
    assert shifts["factors_above_1"]["score_shift"] > 0 and shifts["factors_above_1"]["output_shift"] > 0
    assert shifts["factors_tiny"]["output_shift"] < -20


def test_takes_no_scratch_and_keeps_its_memory_out_of_the_arena(proven: Proven) -> None:
    step = proven.outcomes["batches"].step
    assert step is not None and step.scratch == ()
    assert lowered(svdf("m", 2, 6, 5, 2, 4)).macs == 2 * 10 * (6 + 4)


def _random_case(index: int) -> Case:
    rng = np.random.default_rng(2000 + index)
    kind = ("int8", "int16")[index % 2]
    zeros = [int(v) for v in rng.integers(-128, 128, 3)]
    memory = float(10.0 ** rng.uniform(-3, 0)) / (1 if kind == "int8" else 256)
    scales = SvdfScales(
        0.05, memory, float(10.0 ** rng.uniform(-2, 0)), zeros[0], 0 if kind == "int16" else zeros[1], zeros[2]
    )
    sizes = (int(rng.integers(1, 3)), int(rng.integers(1, 20)), int(rng.integers(1, 9)), int(rng.integers(1, 4)))
    return svdf(f"random_{index}", *sizes, int(rng.integers(1, 9)), scales, kind=kind)


def test_random_layers() -> None:
    proven = prove([_random_case(index) for index in range(30)], samples=9, seed=3)
    for outcome in proven.outcomes.values():
        outcome.check()
    assert proven.memory_errors == ()


# ---- refusals ----

BASE = svdf("layer", 1, 5, 4, 2, 3)
AGAIN = "export the model again"


def _refused(case: Case, code: int, what: str, tensor: str, why: str, hint: str) -> None:
    place = 'op 0 SVDF "layer/out0"' + (f", tensor {tensor}" if tensor else "")
    assert message(case) == f"{code}\nerror: {what}\n  at:    {place}\n  why:   {why}\n  try:   {hint}"


def test_refuses_filters_that_are_no_whole_number_of_outputs() -> None:
    case = replace(BASE, options={"rank": 3, "fused_activation_function": "NONE"})
    _refused(
        case,
        2,
        "SVDF has sizes that do not fit",
        '"layer/in1" int8[8,5]',
        "8 filters of 5 values, 3 for each output",
        AGAIN,
    )


def test_refuses_a_rank_of_zero() -> None:
    case = replace(BASE, options={"rank": 0, "fused_activation_function": "NONE"})
    assert message(case).startswith("2\nerror: SVDF has rank = 0\n")


def test_refuses_a_memory_of_another_size() -> None:
    _refused(
        with_input(BASE, 4, shape=(1, 25)), 2, "SVDF has an input [1, 25]", '"layer/in4" int8[1,25]', "[1, 24] is expected",
        AGAIN,
    )  # fmt: skip


def test_refuses_a_memory_that_is_no_variable() -> None:
    assert message(with_input(BASE, 4, is_variable=False)).startswith("2\nerror: SVDF")


def test_notes_an_activation_that_the_engine_leaves_out() -> None:
    notes = {case.id: graph_of(case).notes for case in CASES if case.options["fused_activation_function"] != "NONE"}
    left_out = "fused RELU is left out, as in TFLite Micro"
    assert {name: [note.split(": ")[1] for note in found] for name, found in notes.items()} == {
        "relu_at_the_end": [], "relu_inside": [left_out], "wide_relu_inside": [left_out],
    }  # fmt: skip


def test_refuses_a_wide_memory_with_a_zero_point() -> None:
    case = with_input(svdf("layer", 1, 5, 4, 2, 3, WIDE, kind="int16"), 4, zero_points=(1,))
    _refused(
        case, 2, "SVDF has weights or a 16-bit memory with a zero point", '"layer/in4" int16[1,24]',
        "they are symmetric in TFLite's scheme", "quantize the model again",
    )  # fmt: skip


def test_refuses_computed_weights() -> None:
    _refused(
        with_input(BASE, 1, data=None), 1, "SVDF with computed weights is not supported", '"layer/in1" int8[8,5]',
        "weights and bias must be constants", "export the model with constant weights",
    )  # fmt: skip


def test_refuses_scales_out_of_proportion() -> None:
    case = with_output(BASE, scales=(1e-30,))
    assert message(case).startswith("2\nerror: SVDF has an output scale that is out of proportion")


def test_refuses_a_filter_whose_score_can_overflow() -> None:
    case = with_input(with_input(BASE, 0, shape=(1, 66100)), 1, shape=(8, 66100), data=b"\x80" * 8 * 66100)
    _refused(
        case, 2, "SVDF can overflow an accumulator of 32 bits", '"layer/in1" int8[8,66100]',
        f"a filter's score can reach {66100 * 128 * 256}",
        "quantize the model again: weights of this size are not meaningful",
    )  # fmt: skip


def test_refuses_floats_with_weights_of_bytes() -> None:
    case = with_input(FLOATS[0], 1, dtype="int8", data=bytes(8 * 5))
    assert message(case).startswith(
        "1\nerror: SVDF with element types (float32, int8, float32, float32, float32, float32"
    )


def test_refuses_computed_float_weights() -> None:
    assert message(with_input(FLOATS[0], 2, data=None)).startswith(
        "1\nerror: SVDF with computed weights is not supported\n"
    )


def test_litert_is_no_reference_for_an_int8_memory(tmp_path: Path) -> None:
    """TFLite Micro compares the scale of the bias by an absolute distance, and refuses large ones; LiteRT reads int16 then."""
    scales = SvdfScales(x=73386.3, memory=555187.94, y=863553.75, memory_zero=-6)
    case = svdf("large_scales", 7, 1, 3, 3, 2, scales, activation="RELU")
    path = tmp_path / "m.tflite"
    path.write_bytes(write_tflite(model_of([case])))
    proof = verify(compile_model(path), samples=4)
    assert (proof.match, proof.reference) == (True, "numpy")
    assert "litert: it reads the int8 memory of SVDF as int16" in proof.no_engine[0]

"""SOFTMAX: reference, engine and C agree on every bit; what has no code is refused by name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.layer_cases import lowered, message, softmax, with_input, with_output
from tests.support.single_op import Array, Case, Proven, prove

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")


def given(case: Case, *values: Array) -> Case:
    """The case with these inputs, one after the other."""
    shape = case.outputs[0].shape
    return replace(case, draw=lambda _rng, sample: [values[sample % len(values)].reshape(shape).astype(np.int8)])


def uniform(case: Case) -> Case:
    """The case with uniform inputs only: long rows of equal values make a sum that the engine does not take."""
    shape = case.outputs[0].shape
    return replace(case, draw=lambda rng, _sample: [rng.integers(-128, 127, shape, endpoint=True).astype(np.int8)])


def equal(name: str, depth: int, value: int, scale: float = 0.1) -> Case:
    """A row of equal values."""
    return given(softmax(name, (1, depth), scale), np.full(depth, value))


def staircase(depth: int) -> Array:
    """Every difference to the maximum, in order."""
    return 127 - np.arange(depth) % 256


CASES: list[Case] = [
    *(softmax(f"depth_{d}", (3, d)) for d in (1, 2, 3, 4, 5, 10, 12, 100, 255, 256)),
    uniform(softmax("depth_1000", (2, 1000))),
    uniform(softmax("depth_4095", (1, 4095), 0.3)),
    softmax("rank_1", (9,)),
    softmax("rank_3", (2, 3, 7)),
    softmax("rank_4", (2, 3, 2, 5)),
    softmax("rank_5", (2, 1, 3, 2, 4)),
    softmax("rows", (17, 6)),
    *(equal(f"equal_{d}_of_{v}", d, v) for d in (2, 3, 7, 256, 511) for v in (-128, -1, 127)),
    *(given(softmax(f"one_hot_{d}", (1, d)), np.where(np.arange(d) == d - 1, 127, -128)) for d in (2, 3, 300)),
    *(given(softmax(f"staircase_{s}", (1, 256), s), staircase(256)) for s in (0.001, 0.01, 0.05, 0.1, 0.25, 1.0)),
    *(
        softmax(f"scale_{s}", (5, 10), s)
        for s in (1e-6, 1e-4, 0.01, 0.1217, 0.5, 1.0, 7.7, 15.9, 16.1, 100.0, 1e6, 1e30)
    ),
    *(softmax(f"beta_{b}", (5, 10), 0.1, b) for b in (1e-5, 0.01, 0.5, 2.0, 3.3, 160.0, 1e5, 1e30)),
    softmax("differences_count_to_the_last", (3, 64), 31 / 255),
    softmax("differences_fall_out_at_the_last", (3, 64), 31.2 / 255),
    *(softmax(f"scale_of_a_power_{e}", (3, 64), 2.0**e) for e in range(-8, 6)),
    softmax("factor_just_above_1", (3, 10), 2.0**-26 * (1 + 2.0**-23)),
    softmax("factor_under_the_cap", (3, 10), 2.0**4 * (1 - 2.0**-24)),
    softmax("factor_at_the_cap", (3, 10), 2.0**4),
    softmax("factor_over_the_cap", (3, 10), 2.0**5),
    *(softmax(f"zero_point_{z}", (3, 10), 0.2, zero_point=z) for z in (-128, 0, 127)),
]
IDS = [case.id for case in CASES]

LONG = [
    *(equal(f"equal_{d}", d, 0) for d in (512, 513, 1000, 1023, 1024, 1025, 2047, 2048, 4095)),
    *(equal(f"nearly_equal_{d}", d, 127, 1e-4) for d in (512, 1024, 2048, 4095)),
]
"""Sums of 512 and more, which end the engine's process in an assertion: there the C is held to the reference alone."""


@pytest.fixture(scope="module")
def proven() -> Proven:
    """Every case, run three ways."""
    return prove(CASES)


@pytest.mark.parametrize("name", IDS)
def test_reference_engine_and_c_agree(proven: Proven, name: str) -> None:
    proven.outcomes[name].check()


def test_no_memory_error(proven: Proven) -> None:
    assert proven.memory_errors == ()


def test_long_rows_of_large_sums() -> None:
    proven = prove(LONG, engine=None, samples=1)
    for outcome in proven.outcomes.values():
        outcome.check()
        # A share of 1/512 or less is under half a step of 1/256.
        assert set(outcome.compiled[0][0].reshape(-1).tolist()) == {-128}, outcome.case.id
    assert proven.memory_errors == ()


def test_rows_sum_to_one_within_rounding(proven: Proven) -> None:
    for name in ("depth_10", "depth_100", "scale_0.1217"):
        for (values,) in proven.outcomes[name].reference:
            total = (values.astype(np.int64) + 128).sum(axis=-1) / 256
            assert np.all(np.abs(total - 1) < 0.5 * values.shape[-1] / 256 + 1 / 256)


def test_table_has_one_entry_for_each_difference_that_counts() -> None:
    # A difference counts while it is at most 31 * 2**26 over the power of two above scale * 2**26, a left shift of 30 at most.
    for scale, entries in ((0.01, 256), (0.1, 249), (0.25, 63), (1.0, 16), (31.0, 2), (100.0, 2)):
        table = lowered(softmax("layer", (1, 4), scale)).tables[0]
        assert len(table.values) == entries
        assert table.values[0] == 2**31 - 1 and list(table.values) == sorted(table.values, reverse=True)


def test_runs_in_place() -> None:
    proven = prove([softmax("layer", (4, 40))], samples=2)
    assert proven.compiled.program.plan.arena_bytes == 160
    proven.outcomes["layer"].check()


BASE = softmax("layer", (2, 10))
AGAIN = "export the model again"


def _refused(case: Case, code: int, what: str, tensor: str, why: str, hint: str) -> None:
    place = 'op 0 SOFTMAX "layer/out0"' + (f", tensor {tensor}" if tensor else "")
    assert message(case) == f"{code}\nerror: {what}\n  at:    {place}\n  why:   {why}\n  try:   {hint}"


@pytest.mark.parametrize(("scale", "zero_point"), [(1 / 255, -128), (1 / 256, 0), (1 / 256, -127)])
def test_refuses_another_output_quantization(scale: float, zero_point: int) -> None:
    _refused(
        with_output(BASE, scales=(scale,), zero_points=(zero_point,)), 2,
        "SOFTMAX has another output scale than 1/256, or another zero point", '"layer/out0" int8[2,10]',
        "TFLite's softmax fixes them for int8", AGAIN,
    )  # fmt: skip


@pytest.mark.parametrize("beta", [0.0, -1.0])
def test_refuses_a_beta_that_is_not_positive(beta: float) -> None:
    _refused(
        replace(BASE, options={"beta": beta}), 2, "SOFTMAX has no row or no positive beta", '"layer/in0" int8[2,10]',
        f"beta {beta}", AGAIN,
    )  # fmt: skip


def test_refuses_a_scalar() -> None:
    _refused(softmax("layer", ()), 2, "SOFTMAX has no row or no positive beta", '"layer/in0" int8[]', "beta 1.0", AGAIN)


@pytest.mark.parametrize("beta", [float("nan"), float("inf")])
def test_refuses_a_beta_that_is_no_number(beta: float) -> None:
    _refused(
        replace(BASE, options={"beta": beta}), 2, f"SOFTMAX has beta = {beta}", "", "a finite number is expected", AGAIN
    )


def test_refuses_rows_that_are_too_long() -> None:
    _refused(
        softmax("layer", (1, 4096)), 1, "SOFTMAX over 4096 elements", '"layer/in0" int8[1,4096]', "the sum fits 4095",
        "reduce the number of classes",
    )  # fmt: skip


def test_refuses_a_scale_that_leaves_nothing() -> None:
    _refused(
        softmax("layer", (2, 10), 2.0**-26), 2, "SOFTMAX has an input scale that is out of proportion",
        '"layer/in0" int8[2,10]', f"scale {2.0**-26!r} times beta 1.0 leaves nothing of 26 fractional bits",
        "quantize the model again",
    )  # fmt: skip


def test_refuses_other_types() -> None:
    case = with_output(with_input(BASE, 0, dtype="int32", zero_points=(0,)), dtype="int32", zero_points=(0,))
    _refused(
        case, 1, "SOFTMAX with element types (int32, int32) is not supported", '"layer/out0" int32[2,10]',
        "there is code for (int8, int8) or (int8, int16) or (int16, int16)",
        "quantize the model to int8 (full integer quantization)",
    )  # fmt: skip


def test_refuses_a_tensor_without_scale() -> None:
    _refused(
        with_input(BASE, 0, scales=(), zero_points=()), 2, "SOFTMAX needs quantized tensors", '"layer/in0" int8[2,10]',
        "this tensor has no scale", "quantize the model fully",
    )  # fmt: skip

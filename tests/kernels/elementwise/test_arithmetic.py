"""ADD, SUB and MUL: reference, engine and C agree on every bit, most of them for every pair of values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from emitc.errors import EmitcError
from emitc.numerics.exhaustive_fit import WeightedSum, weighted_sum
from emitc.numerics.requantize import Clamp, Int64
from tests.support.elementwise_cases import (
    PAIRS,
    broadcast_cases,
    constant_cases,
    layer_of,
    message,
    pairs,
    shaped,
    single,
    sweep_operands,
)
from tests.support.single_op import Case, Proven, graph_of, plain, prove, quantized, refusal

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

ACTIVATIONS = ("NONE", "RELU", "RELU6", "RELU_N1_TO_1")
# The largest output multiplier that ADD has: 2 * input scale is just under 2**20 output steps.
BARELY = single(0.05 * 2 / 2**20 * 1.001)


def pair_cases() -> list[Case]:
    """Every pair of values for scales and zero points at their ends."""
    cases = []
    for opcode, y in (("ADD", 0.12), ("SUB", 0.12), ("MUL", 0.0043)):
        cases += [
            pairs(f"{opcode}_zero_points_low", opcode, (0.05, -128), (0.07, -128), (y, -128)),
            pairs(f"{opcode}_zero_points_high", opcode, (0.05, 127), (0.07, 127), (y, 127)),
            pairs(f"{opcode}_zero_points_apart", opcode, (0.05, -128), (0.07, 127), (y, 0)),
            pairs(f"{opcode}_saturates", opcode, (0.05, 3), (0.07, -4), (y / 9, 5)),
            pairs(f"{opcode}_vanishes", opcode, (0.05, 3), (0.07, -4), (3e8, 5)),
            pairs(f"{opcode}_one_vanishes", opcode, (0.05, 3), (single(0.05 * 2.0**-33), -4), (0.06, 5)),
            pairs(f"{opcode}_equal_scales", opcode, (0.05, 3), (0.05, -4), (0.05, 5)),
            pairs(f"{opcode}_scale_out_of_order", opcode, (1e-6, 3), (2.5, -4), (2.0, 5)),
        ]
        cases += [
            pairs(
                f"{opcode}_{activation}",
                opcode,
                (0.05, 3),
                (0.07, -4),
                (y, -60),
                {"fused_activation_function": activation},
            )
            for activation in ACTIVATIONS
        ]
    return [
        *cases,
        # Sums that lie half-way between two results, on both sides of zero.
        pairs("ADD_ties", "ADD", (0.03, 3), (0.02, -4), (0.04, 5)),
        pairs("ADD_ties_power_of_two", "ADD", (0.5, 0), (0.5, 0), (1.0, 0)),
        pairs("SUB_ties", "SUB", (0.25, 3), (0.5, -4), (1.0, 5)),
        pairs("MUL_ties", "MUL", (0.5, 0), (0.5, 0), (0.5, 0)),
        # Ratios of scales in float32 instead of double change 6260 of these results.
        pairs(
            "SUB_ratios_in_double",
            "SUB",
            (0.02357478253543377, -86),
            (0.01768108643591404, -103),
            (0.02357478253543377, 120),
        ),
        pairs("ADD_largest_multiplier", "ADD", (0.05, 3), (0.05, -4), (BARELY, 5)),
        pairs("SUB_largest_multiplier", "SUB", (0.05, 3), (0.04, -4), (BARELY, 5)),
        pairs("MUL_largest_multiplier", "MUL", (1.0, -128), (1.0, -128), (single(2.0**-15 * 1.001), 5)),
        pairs("MUL_multiplier_one", "MUL", (1.0, 3), (1.0, -4), (1.0, 5)),
        pairs("MUL_multiplier_under_one", "MUL", (1.0, 3), (1.0, -4), (single(1 + 2.0**-23), 5)),
    ]


SHAPES = [
    shaped("image", "ADD", (1, 5, 4, 3), (1, 5, 4, 3)),
    shaped("rank_1", "SUB", (17,), (17,)),
    shaped("rank_5", "MUL", (2, 1, 3, 2, 2), (2, 1, 3, 2, 2)),
    shaped("widened", "ADD", (3, 4), (1, 3, 4)),
    *(case for opcode in ("ADD", "SUB", "MUL") for case in broadcast_cases(opcode)),
    *(case for opcode in ("ADD", "SUB", "MUL") for case in constant_cases(opcode)),
    # Specified sequence of roundings, repeated operands.
    shaped("sequence_channels", "ADD", (1, 5, 4, 3), (3,), (BARELY, 5)),
    shaped("sequence_scalar", "SUB", (20,), (1,), (BARELY, 5)),
]
PAIR_CASES = pair_cases()


@pytest.fixture(scope="module")
def every_pair_proven() -> Proven:
    # The sanitizers see the same code in `shapes_proven`.
    return prove(PAIR_CASES, samples=1, sanitize=False)


@pytest.fixture(scope="module")
def shapes_proven() -> Proven:
    return prove(SHAPES, samples=4)


@pytest.mark.parametrize("name", [case.id for case in PAIR_CASES])
def test_every_pair(every_pair_proven: Proven, name: str) -> None:
    every_pair_proven.outcomes[name].check()


@pytest.mark.parametrize("name", [case.id for case in SHAPES])
def test_shape(shapes_proven: Proven, name: str) -> None:
    shapes_proven.outcomes[name].check()


def test_memory(shapes_proven: Proven) -> None:
    assert shapes_proven.memory_errors == ()


def test_computed_scalar() -> None:
    """The interpreters' bindings take no input of rank 0, so that only reference and C can be compared."""
    for outcome in prove(
        [shaped("left", "ADD", (), (5,)), shaped("both", "MUL", (), ())], engine=None
    ).outcomes.values():
        outcome.check()


def test_random_sweep() -> None:
    rng = np.random.default_rng(20)
    cases = []
    for i in range(60):
        opcode = ("ADD", "SUB", "MUL")[i % 3]
        (a, b), scale_a, scale_b = sweep_operands(rng), *(single(2.0 ** rng.uniform(-9, 1)) for _ in range(2))
        reach = scale_a * scale_b * 100 if opcode == "MUL" else max(scale_a, scale_b)
        zero_a, zero_b, zero_y = (int(zero) for zero in rng.integers(-128, 128, 3))
        y = (single(reach * 2.0 ** rng.uniform(-3, 3)), zero_y)
        inputs = (quantized(a, scale_a, zero_a), quantized(b, scale_b, zero_b))
        cases.append(shaped(f"random{i}", opcode, *inputs, y, {"fused_activation_function": ACTIVATIONS[i % 4]}))
    proven = prove(cases, seed=21)
    for outcome in proven.outcomes.values():
        outcome.check()
    assert proven.memory_errors == ()


@pytest.mark.parametrize(
    ("case", "template"),
    [
        pytest.param(shaped("sum", "ADD", (4, 3), (4, 3)), "weighted_sum", id="sum"),
        pytest.param(shaped("difference", "SUB", (4, 3), (3,)), "weighted_sum_broadcast", id="difference_broadcast"),
        pytest.param(pairs("ties", "ADD", (0.03, 3), (0.02, -4), (0.04, 5)), "rescaled_sum", id="ties"),
        pytest.param(
            shaped("tiny", "SUB", (4, 3), (3,), (BARELY, 5)), "rescaled_sum_broadcast", id="tiny_output_scale"
        ),
        pytest.param(shaped("product", "MUL", (4, 3), (4, 3)), "product", id="product"),
        pytest.param(shaped("square", "MUL", (twice := quantized((300,))), twice), "lookup", id="same_tensor_twice"),
    ],
)
def test_template(case: Case, template: str) -> None:
    assert layer_of(case).kernel_name == template


def test_table_only_from_its_own_size_on() -> None:
    templates = {
        c.id: layer_of(c).kernel_name for c in constant_cases("ADD") if "scalar_b" in c.id or "widened" in c.id
    }
    assert templates == {
        "ADD_1_scalar_b": "weighted_sum",
        "ADD_255_scalar_b": "weighted_sum_broadcast",
        "ADD_256_scalar_b": "lookup",
        "ADD_300_scalar_b": "lookup",
        "ADD_widened_by_equal_values": "weighted_sum_broadcast",
    }


@pytest.mark.parametrize(
    ("a", "b", "arena"),
    [
        pytest.param((1, 4, 4, 8), (1, 4, 4, 8), 256, id="same_shape"),
        pytest.param((1, 4, 4, 8), (8,), 128 + 16, id="b_repeated"),
        pytest.param((8,), (1, 4, 4, 8), 128 + 16, id="a_repeated"),
        pytest.param((16, 1), (1, 16), 256 + 32, id="both_repeated"),
    ],
)
def test_result_lies_over_an_operand_that_is_not_repeated(a: tuple[int, ...], b: tuple[int, ...], arena: int) -> None:
    proven = prove([shaped("sum", "ADD", a, b)])
    proven.outcomes["sum"].check()
    assert proven.compiled.program.plan.arena_bytes == arena


def _weighted(found: WeightedSum, clamp: Clamp) -> Int64:
    values = np.arange(-128, 128, dtype=np.int64)
    acc = found.bias + values[:, None] * found.a_weight + values[None, :] * found.b_weight
    assert np.abs(acc).max() < 2**31
    return np.asarray(np.clip(acc >> found.right, clamp.low, clamp.high), np.int64)


@pytest.mark.parametrize("clamp", [Clamp(-128, 127), Clamp(-20, 30), Clamp(5, 5)], ids=str)
@pytest.mark.parametrize(
    ("a", "b", "zero"), [(0.7713, 2.0391, 11.5), (0.7713, -2.0391, -300.0), (1e-12, 0.30071, 0.0), (3.0, 5.0, 900.0)]
)
def test_weights_give_the_results_that_were_asked_for(a: float, b: float, zero: float, clamp: Clamp) -> None:
    values = np.arange(-128, 128, dtype=np.float64)
    real = values[:, None] * a + values[None, :] * b + zero
    results = np.clip(np.floor(real + 0.5), clamp.low, clamp.high).astype(np.int64)
    found = weighted_sum(results, a, b, zero, clamp)
    assert found is not None
    assert (_weighted(found, clamp) == results).all()


def test_no_weights_for_results_that_no_sum_has() -> None:
    clamp = Clamp(-128, 127)
    values = np.arange(-128, 128, dtype=np.int64)
    results = np.clip((values[:, None] + values[None, :]) // 2, clamp.low, clamp.high)
    assert weighted_sum(results, 0.5, 0.5, 0.0, clamp) is not None
    results[17, 40] += 1
    assert weighted_sum(results, 0.5, 0.5, 0.0, clamp) is None


@pytest.mark.parametrize("factor", [2.0**22, float("inf"), 1e300])
def test_no_weights_beyond_32_bits(factor: float) -> None:
    assert weighted_sum(np.zeros(PAIRS, np.int64), factor, 1.0, 0.0, Clamp(-128, 127)) is None


def without_scale(case: Case) -> Case:
    return replace(case, inputs=(plain((4,), "int8"), *case.inputs[1:]))


def typed(name: str, opcode: str, *dtypes: str) -> Case:
    tensors = [quantized((4,), 0.05, 0, dtype) for dtype in dtypes]
    return Case(name, opcode, tuple(tensors[:2]), (tensors[2],))


CODE = "there is code for (int8, int8, int8) or (int16, int16, int16)"
OUT = "{} has scales that are out of proportion"
RATIO = "inputs {!r} and {!r}, output {!r}: the ratio does not fit the fixed-point arithmetic"
REFUSALS = [
    (
        typed("mixed", "SUB", "int8", "int16", "int8"),
        (2, "SUB with element types (int8, int16, int8) is not supported", CODE),
    ),
    (
        without_scale(shaped("no_scale", "ADD", (4,), (4,))),
        (2, "ADD needs quantized tensors", "this tensor has no scale"),
    ),
    (
        replace(shaped("shapes", "MUL", (4, 3), (4, 3)), inputs=(quantized((4, 3)), quantized((4, 2)))),
        (
            2,
            "MUL has inputs whose shapes do not fit each other",
            "[4, 3] and [4, 2]: each dimension must be equal or 1",
        ),
    ),
    (
        shaped("sum_out_of_proportion", "ADD", (4,), (4,), (single(0.1 / 2**20), 0)),
        (2, OUT.format("ADD"), RATIO.format(single(0.05), single(0.05), single(0.1 / 2**20))),
    ),
    (
        shaped("product_out_of_proportion", "MUL", (4,), (4,), (single(1e-8), 0)),
        (2, OUT.format("MUL"), RATIO.format(single(0.05), single(0.05), single(1e-8))),
    ),
    (
        shaped(
            "activation_out_of_proportion", "MUL", (4,), (4,), (single(1e-9), 0), {"fused_activation_function": "RELU6"}
        ),
        (2, "MUL has an output scale that is out of proportion", "RELU6 ends at 6, which is 6e+09 quantization steps"),
    ),
    (
        replace(shaped("wrong_output", "ADD", (4,), (4,)), outputs=(quantized((5,)),)),
        (2, "ADD has an output of the wrong shape", "the file says [5], the operator gives [4]"),
    ),
]


@pytest.mark.parametrize(("case", "expected"), [pytest.param(*each, id=each[0].id) for each in REFUSALS])
def test_refusal(case: Case, expected: tuple[int, str, str]) -> None:
    assert message(case) == expected


@pytest.mark.parametrize(
    "case",
    [
        replace(shaped("one_input", "ADD", (4,), (4,)), inputs=(quantized((4,)),)),
        replace(shaped("three_inputs", "SUB", (4,), (4,)), inputs=(quantized((4,)),) * 3),
        replace(shaped("absent_input", "MUL", (4,), (4,)), inputs=(quantized((4,)), None)),
    ],
    ids=lambda case: case.id,
)
def test_wrong_use_is_refused(case: Case) -> None:
    assert refusal(case).exit_code == 2


def test_extreme_scales_are_refused_or_exact() -> None:
    """No scale that a file can hold takes the arithmetic out of its integers."""
    rng = np.random.default_rng(22)
    tiny, huge = np.finfo(np.float32).smallest_subnormal, np.finfo(np.float32).max
    accepted = 0
    for i in range(300):
        scales = [single(rng.choice([tiny, huge, 2.0 ** rng.uniform(-140, 127)])) for _ in range(3)]
        a, b = (quantized((4,), scale, 100) for scale in scales[:2])
        options = {"fused_activation_function": ACTIVATIONS[i % 4]}
        case = shaped(f"extreme{i}", ("ADD", "SUB", "MUL")[i % 3], a, b, (scales[2], -100), options)
        try:
            graph_of(case)
        except EmitcError:
            continue
        accepted += 1
        assert all(-(2**31) <= param.value < 2**31 for param in layer_of(case).params)
    assert accepted > 50

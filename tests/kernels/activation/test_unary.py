"""Operators on one int8 value: reference, engine and C agree on all 256 values."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from emitc.errors import EmitcError
from emitc.writers.tflite import OptionValue
from tests.support.elementwise_cases import Operand, every_value, layer_of, message, single
from tests.support.single_op import Case, Proven, graph_of, plain, prove, quantized

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

LOGISTIC = (1 / 256, -128)
TANH = (1 / 128, 0)
ENDS = (-128, -1, 0, 127)


def unary(name: str, opcode: str, x: Operand, y: Operand, options: dict[str, OptionValue] | None = None) -> Case:
    """An operator on every int8 value."""
    return Case(name, opcode, (quantized((256,), *x),), (quantized((256,), *y),), options or {}, draw=every_value)


def leaky(name: str, x: Operand, y: Operand, alpha: float) -> Case:
    """LEAKY_RELU."""
    return unary(name, "LEAKY_RELU", x, y, {"alpha": alpha})


def cases() -> list[Case]:
    """Zero points at the ends, scales from where everything rounds away to where everything saturates, ties."""
    found = []
    for scale, zero in itertools.product((1e-8, 1e-4, 0.01, 0.047, 0.25, 1.0, 7.9, 16.0, 1e4), ENDS):
        found.append(unary(f"logistic_{scale}_{zero}", "LOGISTIC", (scale, zero), LOGISTIC))
        found.append(unary(f"tanh_{scale}_{zero}", "TANH", (scale, zero), TANH))
        found.append(unary(f"relu6_{scale}_{zero}", "RELU6", (scale, zero), (scale, zero)))
        found.append(unary(f"relu6_rescaled_{scale}_{zero}", "RELU6", (scale, zero), (single(scale / 3), -1 - zero)))
    for ratio, zero in itertools.product((1e-10, 0.004, 0.3, 0.5, 1.0, 1.5, 2.0, 100.0, 4e6), ENDS):
        x, y = (0.05, zero), (single(0.05 / ratio), -1 - zero)
        found.append(unary(f"relu_{ratio}_{zero}", "RELU", x, y))
        found.append(leaky(f"leaky_{ratio}_{zero}", x, y, 0.1))
    found += [
        leaky(f"leaky_alpha_{alpha}", (0.05, 3), (0.06, -5), alpha)
        for alpha in (0.0, 0.01, 0.5, 1.0, 2.5, -0.3, -1.0, 1e-12)
    ]
    for scale, ratio, zero in itertools.product(
        (1e-6, 0.003, 0.02, 0.0474, 0.6, 30.0), (0.01, 0.5, 1.0, 1.7, 100.0), ENDS
    ):
        found.append(
            unary(f"hard_swish_{scale}_{ratio}_{zero}", "HARD_SWISH", (scale, zero), (single(scale / ratio), -1 - zero))
        )
    return [
        *found,
        # Each of these changes when a ratio of scales is taken in float32 instead of double.
        unary("relu_ratio_in_double", "RELU", (0.1445649266242981, -104), (0.09637662023305893, -124)),
        leaky("leaky_ratio_in_double", (0.08622843027114868, 124), (0.11497124284505844, 65), 0.6666666865348816),
        unary("hard_swish_ratio_in_double", "HARD_SWISH", (0.008965224027633667, 25), (0.021269749850034714, -101)),
    ]


CASES = cases()
# TFLite Micro has no RELU_N1_TO_1: LiteRT's reference kernel defines it. It takes the ratio of scales in float32.
LITERT_CASES = [
    unary(f"relu_n1_to_1_{scale}_{ratio}_{zero}", "RELU_N1_TO_1", (scale, zero), (single(scale / ratio), -1 - zero))
    for scale, ratio, zero in itertools.product((0.004, 0.01, 0.3), (0.3, 1.0, 1.5, 40.0), ENDS)
] + [
    unary("relu_n1_to_1_ratio_in_float32", "RELU_N1_TO_1", (0.0029102140106260777, -47), (0.0019401427125558257, -106))
]


@pytest.fixture(scope="module")
def proven() -> Proven:
    # The sanitizers see the one kernel in test_shapes_and_equal_tables.
    return prove(CASES, samples=1, sanitize=False)


@pytest.fixture(scope="module")
def proven_by_litert() -> Proven:
    pytest.importorskip("ai_edge_litert", reason="the extra emitc[verify] is not installed")
    return prove(LITERT_CASES, engine="litert", samples=1, sanitize=False)


@pytest.mark.parametrize("name", [case.id for case in CASES])
def test_every_value(proven: Proven, name: str) -> None:
    proven.outcomes[name].check()


@pytest.mark.parametrize("name", [case.id for case in LITERT_CASES])
def test_every_value_by_litert(proven_by_litert: Proven, name: str) -> None:
    proven_by_litert.outcomes[name].check()


def test_random_sweep() -> None:
    rng = np.random.default_rng(40)
    found = []
    for i in range(25):
        x, y = ((single(2.0 ** rng.uniform(-9, 1)), int(rng.integers(-128, 128))) for _ in range(2))
        found += [
            unary(f"logistic{i}", "LOGISTIC", x, LOGISTIC),
            unary(f"tanh{i}", "TANH", x, TANH),
            unary(f"relu{i}", "RELU", x, y),
            unary(f"relu6{i}", "RELU6", x, x),
            leaky(f"leaky{i}", x, y, single(rng.uniform(-0.5, 1.5))),
        ]
        if x[0] / 128 < y[0]:
            found.append(unary(f"hard_swish{i}", "HARD_SWISH", x, y))
    for outcome in prove(found, samples=1, sanitize=False).outcomes.values():
        outcome.check()


def test_shapes_and_equal_tables() -> None:
    """Any rank goes; the result lies over the input; equal tables are printed once."""
    shapes: tuple[tuple[int, ...], ...] = ((1,), (3, 5), (1, 4, 4, 8), (2, 1, 3, 1, 2))
    found = [Case(f"rank{len(s)}", "TANH", (quantized(s, 0.02, 7),), (quantized(s, *TANH),)) for s in shapes]
    result = prove(found)
    for outcome in result.outcomes.values():
        outcome.check()
    assert result.memory_errors == ()
    assert sum(len(step.constants) for step in result.compiled.program.steps) == 1
    assert prove(found[2:3]).compiled.program.plan.arena_bytes == 128


CODE = "there is code for (int8, int8) or (int16, int16)"
REFUSALS = [
    (
        Case("int16", "HARD_SWISH", (quantized((4,), dtype="int16"),), (quantized((4,), dtype="int16"),)),
        (1, "HARD_SWISH with element types (int16, int16) is not supported", "there is code for (int8, int8)"),
    ),
    (
        Case("mixed", "RELU", (quantized((4,)),), (quantized((4,), dtype="int16"),)),
        (2, "RELU with element types (int8, int16) is not supported", CODE),
    ),
    (
        Case("no_scale", "RELU", (plain((4,), "int8"),), (quantized((4,)),)),
        (2, "RELU needs quantized tensors", "this tensor has no scale"),
    ),
    (
        unary("logistic_zero_point", "LOGISTIC", (0.1, 0), (1 / 256, 0)),
        (
            2,
            "LOGISTIC has another output scale or zero point than its int8 kernel writes",
            "(0.00390625, 0) found, TFLite fixes (0.00390625, -128)",
        ),
    ),
    (
        unary("relu6_steps", "RELU6", (1e-9, 0), (1e-9, 0)),
        (
            2,
            "RELU6 has an input scale that is out of proportion",
            "RELU6 ends at 6, which is 6e+09 quantization steps",
        ),
    ),
    (
        unary("relu6_steps_of_the_input", "RELU6", (1e-9, 0), (0.1, 0)),
        (
            2,
            "RELU6 has an input scale that is out of proportion",
            "RELU6 ends at 6, which is 6e+09 quantization steps",
        ),
    ),
    (
        unary("relu_ratio", "RELU", (1.0, 0), (2.0**-24, 0)),
        (
            2,
            "RELU has scales that are out of proportion",
            "values are multiplied by 16777216.0, which the fixed-point arithmetic cannot hold",
        ),
    ),
    (
        leaky("leaky_slope", (1.0, 0), (1.0, 0), -(2.0**24)),
        (
            2,
            "LEAKY_RELU has scales that are out of proportion",
            "values are multiplied by 16777216.0, which the fixed-point arithmetic cannot hold",
        ),
    ),
    (
        unary("hard_swish_left", "HARD_SWISH", (1.0, 0), (2.0**-7, 0)),
        (
            2,
            "HARD_SWISH has scales that are out of proportion",
            "input 1.0, output 0.0078125: the fixed-point arithmetic cannot hold the ratio",
        ),
    ),
    (
        unary("logistic_input", "LOGISTIC", (2.0**-30, 0), LOGISTIC),
        (
            2,
            "LOGISTIC has scales that are out of proportion",
            "input 9.313225746154785e-10, output 0.00390625: the fixed-point arithmetic cannot hold the ratio",
        ),
    ),
]


@pytest.mark.parametrize(("case", "expected"), [pytest.param(*each, id=each[0].id) for each in REFUSALS])
def test_refusal(case: Case, expected: tuple[int, str, str]) -> None:
    assert message(case) == expected


def test_extreme_scales_are_refused_or_tabulated() -> None:
    """No scale or slope that a file can hold ends in another exception than a refusal."""
    rng = np.random.default_rng(41)
    tiny, huge = np.finfo(np.float32).smallest_subnormal, np.finfo(np.float32).max
    accepted = 0
    for i in range(400):
        x, y, alpha = (
            single(rng.choice([tiny, huge, 2.0 ** rng.uniform(-140, 127), 2.0 ** rng.uniform(-9, 1)])) for _ in range(3)
        )
        opcode = ("LOGISTIC", "TANH", "RELU", "RELU6", "RELU_N1_TO_1", "LEAKY_RELU", "HARD_SWISH")[i % 7]
        output = {"LOGISTIC": LOGISTIC, "TANH": TANH, "RELU6": (x, 100)}.get(opcode, (y, -100))
        case = unary(f"extreme{i}", opcode, (x, 100), output, {"alpha": -alpha} if opcode == "LEAKY_RELU" else None)
        try:
            graph_of(case)
        except EmitcError:
            continue
        accepted += 1
        (table,) = layer_of(case).tables
        assert len(table.values) == 256
    assert accepted > 100

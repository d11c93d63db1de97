"""Element by element on plain numbers in TFLite: arithmetic, functions, comparisons, logic, choice and casts."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from emitc.ir import Array, DType
from emitc.kernels.shared.pointwise import bounds
from emitc.verify.tolerances import TOLERANT
from tests.support.float_cases import FINITE, check, constant, with_values
from tests.support.layer_cases import message
from tests.support.single_op import Case, Proven, graph_of, plain, prove, quantized

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

ACTIVATIONS = ("NONE", "RELU", "RELU6", "RELU_N1_TO_1")
SHAPES = {
    "same": ((2, 3, 4, 5), (2, 3, 4, 5)),
    "row": ((2, 3, 4, 5), (1, 1, 1, 5)),
    "scalar": ((4, 15), (1, 1)),
    "middle": ((2, 3, 4, 5), (2, 1, 4, 1)),
    "left": ((1, 5), (40, 5)),
}


def binary(
    name: str,
    opcode: str,
    a: tuple[int, ...],
    b: tuple[int, ...],
    dtype: str = "float32",
    output: str = "",
    **options: str,
) -> Case:
    """Two computed operands."""
    shape = np.broadcast_shapes(a, b)
    case = Case(name, opcode, (plain(a, dtype), plain(b, dtype)), (plain(shape, output or dtype),), options, 1)
    return with_values(case)


def quotient(activation: str) -> Case:
    """DIV of int32 by numbers that the engine can divide by: not 0, and -1 only with dividends that have an opposite."""
    case = binary(f"DIV_int32_{activation}", "DIV", (3, 1, 60), (2, 1), "int32", fused_activation_function=activation)

    def draw(rng: np.random.Generator, sample: int) -> list[Array]:
        low, high = DType.INT32.range if sample == 0 else (-50, 50)
        dividends = rng.integers(low + 1, high, (3, 1, 60), dtype=np.int32, endpoint=True)
        divisors = rng.choice(np.array([-7, -2, -1, 1, 3, 9], np.int32), (2, 1))
        return [dividends, divisors]

    return replace(case, draw=draw)


def unary(name: str, opcode: str, dtype: str = "float32", **options: float) -> Case:
    """One computed operand of 60 elements, so that most special values are among them."""
    return with_values(Case(name, opcode, (plain((3, 20), dtype),), (plain((3, 20), dtype),), options, 1))


ARITHMETIC = [
    *(
        binary(f"{op}_{shape}", op, *SHAPES[shape], fused_activation_function="NONE")
        for op in ("ADD", "SUB", "MUL", "DIV")
        for shape in SHAPES
    ),
    *(
        binary(f"{op}_{activation}", op, (7, 9), (7, 9), fused_activation_function=activation)
        for op in ("ADD", "SUB", "MUL", "DIV")
        for activation in ACTIVATIONS[1:]
    ),
    *(
        binary(f"{op}_int32_{activation}", op, *SHAPES["row"], dtype="int32", fused_activation_function=activation)
        for op in ("ADD", "SUB", "MUL")
        for activation in ACTIVATIONS
    ),
    *(quotient(activation) for activation in ACTIVATIONS),
    *(
        binary(f"{op}_{shape}", op, *SHAPES[shape])
        for op in ("MAXIMUM", "MINIMUM", "SQUARED_DIFFERENCE")
        for shape in SHAPES
    ),
    *(binary(f"{op}_{t}", op, (5, 7), (5, 7), t) for op in ("MAXIMUM", "MINIMUM") for t in ("int32", "int64")),
    binary("SQUARED_DIFFERENCE_int32", "SQUARED_DIFFERENCE", (5, 7), (5, 7), "int32"),
]
CONSTANTS = [
    with_values(
        Case(
            f"constant_{side}",
            "SUB",
            tuple(
                sorted(
                    (plain((2, 3)), constant(np.array([[1.5, np.inf, -0.0]]))), key=lambda t: (t.data is None) == side
                )
            ),
            (plain((2, 3)),),
            {"fused_activation_function": "NONE"},
            1,
        )
    )
    for side in (True, False)
]
FUNCTIONS = [
    *(
        unary(op, op)
        for op in ("ABS", "CEIL", "FLOOR", "NEG", "ROUND", "SQUARE", "SQRT", "RSQRT", "RELU", "RELU6", "HARD_SWISH")
    ),
    *(unary(f"LEAKY_RELU_{i}", "LEAKY_RELU", alpha=alpha) for i, alpha in enumerate((0.1, 0.0, -0.75, 3.0))),
]
SMOOTH = [
    *(with_values(unary(op, op), FINITE) for op in ("LOGISTIC", "TANH", "ELU")),
    *(
        with_values(unary(op, op), np.array([0.0, -0.0, 1.0, -1.0, 3.1, 80.0, -90.0], np.float32))
        for op in ("SIN", "COS", "EXP")
    ),
    with_values(unary("LOG", "LOG"), np.array([0.0, 1.0, 1e-30, 1e30, np.inf], np.float32), least=0.0),
]
COMPARISONS = [
    *(
        binary(f"{op}_{t}_{shape}", op, *SHAPES[shape], t, "bool")
        for op in ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")
        for t, shape in (("float32", "same"), ("float32", "row"), ("int32", "scalar"), ("int64", "same"))
    ),
    *(binary(f"{op}_bool", op, *SHAPES["same"], "bool") for op in ("EQUAL", "NOT_EQUAL", "LOGICAL_AND", "LOGICAL_OR")),
    unary("LOGICAL_NOT", "LOGICAL_NOT", "bool"),
]


def select(
    name: str, condition: tuple[int, ...], a: tuple[int, ...], b: tuple[int, ...], opcode: str = "SELECT_V2"
) -> Case:
    """A choice among floats."""
    shape = np.broadcast_shapes(condition, a, b)
    return with_values(Case(name, opcode, (plain(condition, "bool"), plain(a), plain(b)), (plain(shape),), {}, 1))


def cast(source: str, target: str, values: tuple[float, ...] = (0.0, -0.0, 2.9, -2.9, 100.5, -0.5)) -> Case:
    """A conversion of values that the target holds."""
    case = Case(f"cast_{source}_{target}", "CAST", (plain((4, 6), source),), (plain((4, 6), target),), {}, 1)
    if source != "float32":
        return with_values(case)
    drawn = np.array(values, np.float32)
    return replace(case, draw=lambda rng, sample: [rng.choice(drawn, (4, 6))])


CHOICES = [
    select("select_same", (3, 4), (3, 4), (3, 4)),
    select("select_row", (3, 1), (3, 4), (1, 4)),
    select("select_scalar", (1,), (2, 3, 4), (2, 3, 4)),
    *(cast("float32", t) for t in ("int32", "int16", "int8")),
    *(cast("int32", t) for t in ("float32", "int16", "int8")),
    *(cast("bool", t) for t in ("float32", "int32", "int8")),
]
EXACT_CASES = [*ARITHMETIC, *CONSTANTS, *FUNCTIONS, *COMPARISONS, *CHOICES]


@pytest.fixture(scope="module")
def proven() -> Proven:
    """Every case that TFLite Micro runs, three ways over four inputs."""
    return prove([*EXACT_CASES, *SMOOTH], samples=4)


@pytest.mark.parametrize("name", [case.id for case in EXACT_CASES])
def test_reference_engine_and_c_are_equal(proven: Proven, name: str) -> None:
    check(proven.outcomes[name])


@pytest.mark.parametrize("name", [case.id for case in SMOOTH])
def test_within_the_tolerance_of_the_engine(proven: Proven, name: str) -> None:
    check(proven.outcomes[name], TOLERANT)


def test_no_memory_error(proven: Proven) -> None:
    assert proven.memory_errors == ()


POWERS = [
    with_values(binary(f"POW_{shape}", "POW", *SHAPES[shape]), np.array([0.5, 1.0, 2.0, 3.25], np.float32), least=0.1)
    for shape in ("same", "row")
]
OF_LITERT = [
    *(
        binary(f"ADD_int64_{activation}", "ADD", (3, 5), (3, 5), "int64", fused_activation_function=activation)
        for activation in ACTIVATIONS
    ),
    unary("RELU_N1_TO_1", "RELU_N1_TO_1"),
    select("select_v1", (3, 4), (3, 4), (3, 4), "SELECT"),
]
SMOOTH_OF_LITERT = [
    *POWERS,
    with_values(unary("GELU", "GELU"), FINITE),
    with_values(unary("GELU_tanh", "GELU", approximate=True), FINITE),
]


@pytest.fixture(scope="module")
def of_litert() -> Proven:
    """What only LiteRT runs."""
    pytest.importorskip("ai_edge_litert", reason="the extra emitc[verify] is not installed")
    return prove([*OF_LITERT, *SMOOTH_OF_LITERT], engine="litert", samples=3)


@pytest.mark.parametrize("name", [case.id for case in OF_LITERT])
def test_equal_to_litert(of_litert: Proven, name: str) -> None:
    check(of_litert.outcomes[name])


@pytest.mark.parametrize("name", [case.id for case in SMOOTH_OF_LITERT])
def test_within_the_tolerance_of_litert(of_litert: Proven, name: str) -> None:
    check(of_litert.outcomes[name], TOLERANT)


def test_a_quotient_without_a_meaning_is_0_or_wraps_before_the_bounds() -> None:
    case = binary("DIV_by_0", "DIV", (2, 2), (2,), "int32", fused_activation_function="RELU6")
    low, _ = DType.INT32.range
    values = [np.array([[low, 5], [7, low]], np.int32), np.array([-1, 0], np.int32)]
    outcome = prove([replace(case, draw=lambda rng, sample: values)], engine=None, samples=1)
    (found,) = outcome.outcomes[case.id].compiled[0]
    assert outcome.memory_errors == ()
    assert found.tolist() == [[0, 0], [0, 0]]


def test_a_note_says_that_a_sum_of_int32_has_no_activation() -> None:
    def notes(dtype: str, activation: str) -> tuple[str, ...]:
        return graph_of(binary("sum", "ADD", (4,), (4,), dtype, fused_activation_function=activation)).notes

    assert notes("int32", "RELU6") == (
        'op 0 ADD "sum/out0": fused RELU6 is left out, as in TFLite Micro; LiteRT applies it',
    )
    assert notes("int32", "NONE") == notes("int64", "RELU6") == notes("float32", "RELU6") == ()


def test_an_overflow_ends_at_the_largest_value(proven: Proven) -> None:
    found = proven.outcomes["ADD_same"].compiled[0][0]
    assert bounds("NONE", DType.FLOAT32)[1] in found
    assert not np.isinf(found).any()


@pytest.mark.parametrize(("target", "engine"), [("float64", "litert"), ("uint16", "litert"), ("uint64", None)])
def test_casts_that_tflite_micro_does_not_have(target: str, engine: Literal["litert"] | None) -> None:
    """No engine makes uint64."""
    if engine:
        pytest.importorskip("ai_edge_litert", reason="the extra emitc[verify] is not installed")
    proven = prove([cast("int32", target)], engine=engine, samples=2)
    for outcome in proven.outcomes.values():
        outcome.check()
    assert proven.memory_errors == ()


def test_integers_out_of_the_range_of_a_cast_end_at_its_ends() -> None:
    case = cast("float32", "int8", (300.0, -300.0, np.inf, -np.inf, np.nan))
    outcome = prove([case], engine=None, samples=2, sanitize=True)
    (found,) = outcome.outcomes[case.id].compiled[0]
    assert outcome.memory_errors == ()
    assert set(found.reshape(-1).tolist()) == {127, -128, 0}


REFUSED = [
    (
        Case("int8", "NEG", (quantized((4,)),), (quantized((4,)),)),
        "1\nerror: NEG with element types (int8, int8) is not supported\n",
    ),
    (
        Case("bytes", "EQUAL", (plain((4,), "uint8"), plain((4,), "uint8")), (plain((4,), "bool"),)),
        "1\nerror: EQUAL with element types (uint8, uint8, bool) is not supported\n",
    ),
    (
        Case(
            "int16",
            "DIV",
            (quantized((4,), dtype="int16"),) * 2,
            (quantized((4,), dtype="int16"),),
            {"fused_activation_function": "NONE"},
        ),
        "1\nerror: DIV with element types (int16, int16, int16) is not supported\n",
    ),
    (
        binary("bool", "LESS", (4,), (4,), "bool"),
        "1\nerror: LESS with element types (bool, bool, bool) is not supported\n",
    ),
    (binary("float", "LOGICAL_AND", (4,), (4,), output="bool"), "1\nerror: LOGICAL_AND with element types"),
    (
        binary("int64", "POW", (4,), (4,), "int64"),
        "1\nerror: POW with element types (int64, int64, int64) is not supported\n",
    ),
    (
        replace(
            binary("shapes", "ADD", (4,), (4,), fused_activation_function="NONE"), inputs=(plain((4,)), plain((3,)))
        ),
        "2\nerror: ADD has inputs whose shapes do not fit each other\n",
    ),
    (select("rows", (3,), (3, 3), (3, 3), "SELECT"), "1\nerror: SELECT of rows is not supported\n"),
]


@pytest.mark.parametrize(("case", "start"), REFUSED, ids=lambda v: v.opcode if isinstance(v, Case) else "")
def test_refusal(case: Case, start: str) -> None:
    assert message(case).startswith(start)

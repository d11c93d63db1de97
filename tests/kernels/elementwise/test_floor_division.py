"""FLOOR_DIV and FLOOR_MOD: reference, engine and C agree on every bit, near integers and at zeros of both signs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.elementwise_cases import BROADCASTS, message
from tests.support.float_cases import FINITE, SPECIAL, check, constant, drawn_floats
from tests.support.single_op import Array, Case, Proven, plain, prove

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

NAMES = ("FLOOR_DIV", "FLOOR_MOD")
DIVISORS = FINITE[FINITE != 0]


def reals(opcode: str, name: str, a: tuple[int, ...], b: tuple[int, ...], *, zeros: bool = False) -> Case:
    """zeros: among the divisors; TFLite Micro's FLOOR_DIV does not take them."""

    def draw(rng: np.random.Generator, sample: int) -> list[Array]:
        if sample == 2:  # multiples of the divisor and their neighbours
            divisor = rng.choice(np.array([0.1, 0.3, 3.0, 7.7, -0.7], np.float32), b)
            near = (rng.integers(-9, 10, a) * np.float32(0.1)).astype(np.float32)
            return [np.nextafter(near, rng.choice([-1e9, 1e9, 0.0], a).astype(np.float32)), divisor]
        left = drawn_floats(rng, sample, a, SPECIAL if opcode == "FLOOR_MOD" else FINITE)
        right = drawn_floats(rng, sample, b, SPECIAL if zeros else DIVISORS)
        return [left, right if zeros else np.where(right == 0, np.float32(1), right)]

    shape = np.broadcast_shapes(a, b)
    return Case(f"{opcode}_{name}", opcode, (plain(a), plain(b)), (plain(shape),), draw=draw)


def numbers(opcode: str, name: str, a: tuple[int, ...], b: tuple[int, ...]) -> Case:
    def draw(rng: np.random.Generator, sample: int) -> list[Array]:
        low, high = (-(2**31) + 1, 2**31 - 1) if sample == 0 else (-20, 20)
        left, right = (rng.integers(low, high, shape, endpoint=True).astype(np.int32) for shape in (a, b))
        return [left, np.where(right == 0, 3, right).astype(np.int32)]

    tensors = (plain(a, "int32"), plain(b, "int32"))
    return Case(f"{opcode}_{name}", opcode, tensors, (plain(np.broadcast_shapes(a, b), "int32"),), draw=draw)


FLOATS = [
    *(reals(opcode, f"{i}", a, b) for opcode in NAMES for i, (a, b) in enumerate(BROADCASTS[:11])),
    *(reals(opcode, "many", (40, 50), (40, 50)) for opcode in NAMES),
    reals("FLOOR_MOD", "zeros", (40, 50), (40, 50), zeros=True),
    *(
        replace(
            Case(f"{opcode}_constant", opcode, (plain((7,)), constant(np.array(0.3))), (plain((7,)),)),
            draw=lambda rng, sample: [drawn_floats(rng, sample, (7,), FINITE)],
        )
        for opcode in NAMES
    ),
]
INTEGERS = [numbers(opcode, f"{i}", a, b) for opcode in NAMES for i, (a, b) in enumerate(BROADCASTS[:11])]


@pytest.fixture(scope="module")
def proven() -> Proven:
    return prove(FLOATS)


@pytest.mark.parametrize("name", [case.id for case in FLOATS])
def test_floats(proven: Proven, name: str) -> None:
    check(proven.outcomes[name])


def test_memory(proven: Proven) -> None:
    assert proven.memory_errors == ()


def test_integers() -> None:
    proven = prove(INTEGERS, engine="litert")
    for outcome in proven.outcomes.values():
        outcome.check()
    assert proven.memory_errors == ()


@pytest.mark.parametrize("opcode", NAMES)
def test_what_an_engine_does_not_divide(opcode: str) -> None:
    least = -(2**31)
    a, b = np.array([5, least, least, -7], np.int32), np.array([0, -1, 0, 2], np.int32)
    case = replace(numbers(opcode, "ends", (4,), (4,)), draw=lambda rng, sample: [a, b])
    outcome = prove([case], engine=None, samples=1).outcomes[case.id]
    outcome.check()
    assert outcome.compiled[0][0].tolist() == ([0, least, 0, -4] if opcode == "FLOOR_DIV" else [0, 0, 0, 1])


def test_a_quotient_just_below_an_integer_is_not_rounded_up() -> None:
    a, b = np.array([30.999998, 27.899998], np.float32), np.array([3.1, 3.1], np.float32)
    case = replace(reals("FLOOR_DIV", "near", (2,), (2,)), draw=lambda rng, sample: [a, b])
    outcome = prove([case], samples=1).outcomes[case.id]
    outcome.check()
    assert np.floor(a / b).tolist() != outcome.compiled[0][0].tolist()


@pytest.mark.parametrize("opcode", NAMES)
def test_refusals(opcode: str) -> None:
    def refused(a: tuple[int, ...], b: tuple[int, ...], dtype: str) -> tuple[int, str]:
        return message(Case("r", opcode, (plain(a, dtype), plain(b, dtype)), (plain(a, dtype),)))[:2]

    assert refused((3,), (3,), "int8") == (1, f"{opcode} with element types (int8, int8, int8) is not supported")
    assert refused((3,), (2,), "float32") == (2, f"{opcode} has inputs whose shapes do not fit each other")

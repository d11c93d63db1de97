"""LOG_SOFTMAX: reference, engine and C agree on every bit of int8 values, and closely on floats."""

from __future__ import annotations

import math

import numpy as np
import pytest

from emitc.kernels.normalization.softmax_tables import logarithm
from emitc.verify.tolerances import TOLERANT
from tests.support.elementwise_cases import message, single
from tests.support.float_cases import FINITE, check, with_values
from tests.support.single_op import Array, Case, Proven, plain, prove, quantized

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

SHAPES = ((3, 17), (1, 10), (3, 256), (1,), (1, 4095), (5, 2))
SCALES = {"usual": 0.1, "fine": 2.0**-9, "coarse": 1.0, "huge": 40.0, "tiny": 1e-7, "enormous": 1e3}


def rows(name: str, shape: tuple[int, ...], scale: float = 0.1, zero: int = 3) -> Case:
    def draw(rng: np.random.Generator, sample: int) -> list[Array]:
        """The type's whole range, equal values, then values near the largest."""
        if sample == 0:
            return [rng.integers(-128, 128, shape).astype(np.int8)]
        if sample == 1:
            return [np.full(shape, 127, np.int8)]
        return [np.clip(127 - np.abs(rng.normal(0, 12 * sample, shape)), -128, 127).astype(np.int8)]

    inputs = (quantized(shape, single(scale), zero),)
    return Case(name, "LOG_SOFTMAX", inputs, (quantized(shape, 1 / 16, 127),), draw=draw)


def real(shape: tuple[int, ...]) -> Case:
    name = f"real_{'x'.join(map(str, shape))}"
    return with_values(Case(name, "LOG_SOFTMAX", (plain(shape),), (plain(shape),)), FINITE[np.abs(FINITE) < 100])


INTEGERS = [
    *(rows("x".join(map(str, shape)), shape) for shape in SHAPES),
    *(
        rows(f"{name}_{'x'.join(map(str, shape))}", shape, scale)
        for name, scale in SCALES.items()
        for shape in SHAPES[:3]
    ),
]
REALS = [real(shape) for shape in SHAPES]


@pytest.fixture(scope="module")
def proven() -> Proven:
    return prove([*INTEGERS, *REALS], samples=6)


@pytest.mark.parametrize("name", [case.id for case in INTEGERS])
def test_integers(proven: Proven, name: str) -> None:
    proven.outcomes[name].check()


@pytest.mark.parametrize("name", [case.id for case in REALS])
def test_reals(proven: Proven, name: str) -> None:
    check(proven.outcomes[name], TOLERANT)


def test_memory(proven: Proven) -> None:
    assert proven.memory_errors == ()


def test_random_sweep() -> None:
    rng = np.random.default_rng(21)
    cases = [
        rows(f"random{i}", (int(rng.integers(1, 6)), int(rng.integers(1, 300))), 2.0 ** rng.uniform(-12, 2))
        for i in range(40)
    ]
    for outcome in prove(cases, seed=22).outcomes.values():
        outcome.check()


def test_the_logarithm_is_one() -> None:
    one = 1 << 19
    for total in (one, one + 1, int(1.41 * one), int(1.5 * one), 2 * one, 3 * one, 1000 * one, 4095 * one):
        assert abs(logarithm(total) / (1 << 26) - math.log(total / one)) < 3e-6


REFUSED = [
    (Case("a", "LOG_SOFTMAX", (quantized((4,)),), (quantized((4,)),)), 2,
     "LOG_SOFTMAX has another output scale than 1/16, or another zero point than 127"),
    (rows("b", (4096,)), 1, "LOG_SOFTMAX over 4096 elements"),
    (rows("c", (4,), 1e-9), 2, "LOG_SOFTMAX has an input scale that is out of proportion"),
    (Case("d", "LOG_SOFTMAX", (quantized((4,), 0.1, 0, "int16"),), (quantized((4,), 0.1, 0, "int16"),)), 1,
     "LOG_SOFTMAX with element types (int16, int16) is not supported"),
    (Case("e", "LOG_SOFTMAX", (quantized(()),), (quantized((), 1 / 16, 127),)), 2, "LOG_SOFTMAX has no row or no positive beta"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "code", "what"), REFUSED, ids=[case.id for case, *_ in REFUSED])
def test_refusals(wrong: Case, code: int, what: str) -> None:
    assert message(wrong)[:2] == (code, what)

"""L2_NORMALIZATION: reference, engine and C agree on every bit, for sums over the whole range of 32 bits."""

from __future__ import annotations

import numpy as np
import pytest

from emitc.numerics.gemmlowp import inverse_root
from tests.support.elementwise_cases import message
from tests.support.float_cases import check, with_values
from tests.support.single_op import Array, Case, Proven, plain, prove, quantized

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

OPTIONS = {"fused_activation_function": "NONE"}
SHAPES = ((3, 7), (1,), (300,), (2, 3, 4, 5), (40, 2), (1, 33025))


def normalize(name: str, shape: tuple[int, ...], zero: int = 0, largest: int = 128) -> Case:
    """largest: magnitude of the values of later samples, so that sums are small too."""

    def draw(rng: np.random.Generator, sample: int) -> list[Array]:
        if sample == 0:
            return [np.where(rng.random(shape) < 0.5, -128, 127).astype(np.int8)]
        if sample == 1:
            return [np.full(shape, zero, np.int8)]
        return [np.clip(zero + rng.integers(-largest, largest, shape), -128, 127).astype(np.int8)]

    output = (quantized(shape, 1 / 128, 0),)
    return Case(name, "L2_NORMALIZATION", (quantized(shape, 0.05, zero),), output, OPTIONS, draw=draw)


def real(shape: tuple[int, ...]) -> Case:
    return with_values(
        Case(f"real_{'x'.join(map(str, shape))}", "L2_NORMALIZATION", (plain(shape),), (plain(shape),), OPTIONS)
    )


INTEGERS = [
    *(normalize(f"{'x'.join(map(str, shape))}_{zero}", shape, zero) for shape in SHAPES for zero in (-128, -3, 127)),
    *(normalize(f"up_to_{n}", (200, 3), 5, n) for n in (1, 2, 3, 8)),
]
REALS = [real(shape) for shape in SHAPES[:-1]]


@pytest.fixture(scope="module")
def proven() -> Proven:
    return prove([*INTEGERS, *REALS], samples=5)


@pytest.mark.parametrize("name", [case.id for case in INTEGERS])
def test_integers(proven: Proven, name: str) -> None:
    proven.outcomes[name].check()


@pytest.mark.parametrize("name", [case.id for case in REALS])
def test_reals(proven: Proven, name: str) -> None:
    check(proven.outcomes[name])


def test_memory(proven: Proven) -> None:
    assert proven.memory_errors == ()


def test_the_inverse_root_is_one() -> None:
    for n in (1, 2, 3, 4, 7, 8, 15, 16, 1000, 65535, 1 << 27, 1 << 29, (1 << 31) - 1):
        found = inverse_root(n)
        assert abs(found.q31 * 2.0 ** (found.shift - 31) * n**0.5 - 1) < 1e-5


REFUSED = [
    (Case("b", "L2_NORMALIZATION", (quantized((33026,)),), (quantized((33026,), 1 / 128),), OPTIONS), 1,
     "L2_NORMALIZATION over 33026 elements"),
    (Case("c", "L2_NORMALIZATION", (plain((4,)),), (plain((4,)),), {"fused_activation_function": "RELU"}), 2,
     "L2_NORMALIZATION with fused_activation_function RELU is not defined"),
    (Case("d", "L2_NORMALIZATION", (plain((4,), "int16"),), (plain((4,), "int16"),), OPTIONS), 1,
     "L2_NORMALIZATION with element types (int16, int16) is not supported"),
    (Case("e", "L2_NORMALIZATION", (plain(()),), (plain(()),), OPTIONS), 2, "L2_NORMALIZATION has no row"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "code", "what"), REFUSED, ids=[case.id for case, *_ in REFUSED])
def test_refusals(wrong: Case, code: int, what: str) -> None:
    assert message(wrong)[:2] == (code, what)

"""REDUCE_ALL: reference, engine and C agree, over every set of dimensions."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.elementwise_cases import message
from tests.support.single_op import Array, Case, integers, plain, prove

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")


def every(name: str, shape: tuple[int, ...], axes: tuple[int, ...], *, keep: bool = False) -> Case:
    named = {axis % len(shape) for axis in axes}
    y = tuple(1 if i in named else n for i, n in enumerate(shape) if keep or i not in named)

    def draw(rng: np.random.Generator, sample: int) -> list[Array]:
        return [rng.random(shape) > (0.0, 0.05, 0.3, 1.1)[sample % 4]]

    options = {"keep_dims": keep}
    return Case(name, "REDUCE_ALL", (plain(shape, "bool"), integers(*axes)), (plain(y, "bool"),), options, draw=draw)


CASES = [
    every("last", (5, 7), (1,)),
    every("first", (6, 3), (0,), keep=True),
    every("middle", (2, 3, 4), (-2,)),
    every("two", (2, 3, 4, 5), (0, 2)),
    every("all", (3, 4), (0, 1)),
    every("one", (1,), (0,), keep=True),
]


def test_reference_engine_and_c_agree() -> None:
    proven = prove(CASES, samples=8)
    for outcome in proven.outcomes.values():
        outcome.check()
    assert proven.memory_errors == ()


def test_refusals() -> None:
    wrong = Case("b", "REDUCE_ALL", (plain((2, 3), "int8"), integers(1)), (plain((2,), "int8"),), {"keep_dims": False})
    assert message(wrong)[:2] == (1, "REDUCE_ALL with element types (int8, int8) is not supported")
    beyond = Case("c", "REDUCE_ALL", (plain((2, 3), "bool"), integers(2)), (plain((2,), "bool"),), {"keep_dims": False})
    assert message(beyond)[:2] == (2, "REDUCE_ALL has axes [2]")

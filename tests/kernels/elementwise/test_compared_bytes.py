"""EQUAL, NOT_EQUAL, LESS, LESS_EQUAL, GREATER and GREATER_EQUAL of int8: reference, engine and C agree on every pair of bytes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.layer_cases import message
from tests.support.single_op import Array, Case, Proven, plain, prove, quantized

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

RELATIONS = ("LESS", "EQUAL", "NOT_EQUAL", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")
BYTES = np.arange(-128, 128).astype(np.int8)


def every_pair(name: str, relation: str, a: tuple[float, int], b: tuple[float, int]) -> Case:
    """All bytes of a in a column with all of b in a row."""
    inputs = (quantized((256, 1), *a), quantized((1, 256), *b))

    def draw(rng: np.random.Generator, sample: int) -> list[Array]:
        return [rng.permutation(BYTES).reshape(256, 1), rng.permutation(BYTES).reshape(1, 256)]

    return Case(name, relation, inputs, (plain((256, 256), "bool"),), draw=draw)


SCALES = {
    "near": ((0.05, 7), (0.0501, 5)),
    "far": ((0.9, -128), (0.013, 127)),
    "merging": ((0.001, 3), (0.001, 3)),
    "vanishing": ((1e-12, 0), (0.3, 1)),
}
SHAPES = [
    Case("same_shape", "LESS", (quantized((3, 5), 0.05), quantized((3, 5), 0.04, 3)), (plain((3, 5), "bool"),)),
    Case("alike_shape", "EQUAL", (quantized((3, 5), 0.05), quantized((3, 5), 0.05)), (plain((3, 5), "bool"),)),
    Case(
        "constant", "GREATER", (quantized((2, 3), 0.05), quantized((1,), 0.04, 3, data=np.array([9]))),
        (plain((2, 3), "bool"),),
    ),
]  # fmt: skip
PAIRS = [every_pair(f"{r}_{name}", r, a, b) for r in RELATIONS for name, (a, b) in SCALES.items()]
ALIKE = [every_pair(f"{r}_alike", r, (0.05, -3), (0.05, -3)) for r in RELATIONS]


@pytest.fixture(scope="module")
def proven() -> Proven:
    return prove([*PAIRS, *ALIKE, *SHAPES], samples=2)


@pytest.mark.parametrize("name", [case.id for case in (*PAIRS, *ALIKE, *SHAPES)])
def test_case(proven: Proven, name: str) -> None:
    proven.outcomes[name].check()


def test_no_memory_error(proven: Proven) -> None:
    assert proven.memory_errors == ()


def test_bytes_of_one_scale_are_compared_as_they_are(proven: Proven) -> None:
    kernels = {name: outcome.step.kernel for name, outcome in proven.outcomes.items() if outcome.step}
    assert all(kernels[case.id].startswith("scaled_comparison") for case in PAIRS)
    assert not any(kernels[case.id].startswith("scaled_comparison") for case in ALIKE)


def test_small_scales_make_different_bytes_equal(proven: Proven) -> None:
    results = proven.outcomes["EQUAL_merging"].golden[0][0]
    assert results.sum() > 256


@pytest.mark.parametrize("position", [0, 1])
def test_a_scale_of_one_is_refused(position: int) -> None:
    scales = [0.5, 0.5]
    scales[position] = 1.0
    case = every_pair("large", "LESS", (scales[0], 0), (scales[1], 0))
    assert message(case).startswith("2\nerror: LESS has an input whose scale is not below 1\n")


def test_another_type_is_refused() -> None:
    case = replace(SHAPES[0], inputs=(quantized((3, 5), 0.05, 0, "int16"), quantized((3, 5), 0.04, 0, "int16")))
    assert message(case).startswith("1\nerror: LESS with element types (int16, int16, bool) is not supported\n")
    mixed = replace(SHAPES[0], inputs=(SHAPES[0].inputs[0], plain((3, 5), "int32")))
    assert message(mixed).startswith("1\nerror: LESS with element types (int8, int32, bool) is not supported\n")

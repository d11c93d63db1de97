"""ARG_MAX and ARG_MIN: reference, engine and C agree on every position, the first of equal values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from emitc.ir import Array
from tests.support.elementwise_cases import message
from tests.support.single_op import Case, Proven, integers, plain, prove, quantized

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")


def search(
    name: str, opcode: str, shape: tuple[int, ...], axis: int, output: str = "int32", zero_point: int = 0
) -> Case:
    """One search."""
    found = tuple(size for i, size in enumerate(shape) if i != axis % len(shape))
    inputs = (quantized(shape, 0.05, zero_point), integers(axis))
    return Case(name, opcode, inputs, (plain(found, output),), {"output_type": output.upper()})


def few_values(case: Case) -> Case:
    """The case with values that repeat, or that are all equal."""
    shape = case.inputs[0].shape if case.inputs[0] else ()

    def draw(rng: np.random.Generator, sample: int) -> list[Array]:
        return [rng.choice([-128, 127] if sample else [5], shape).astype(np.int8)]

    return replace(case, id=f"{case.id}_equal", draw=draw)


PLACES: tuple[tuple[tuple[int, ...], int], ...] = (
    ((10,), 0),
    ((1, 10), 1),
    ((1, 10), -1),
    ((3, 4, 5), 0),
    ((3, 4, 5), 1),
    ((3, 4, 5), -3),
    ((2, 3, 4, 5), 2),
    ((2, 1, 3, 1, 2), 3),
    ((1,), 0),
    ((300, 2), 0),
)
PLAIN = [
    search(f"{opcode}_{i}", opcode, shape, axis, zero_point=(-128, 0, 127)[i % 3])
    for opcode in ("ARG_MAX", "ARG_MIN")
    for i, (shape, axis) in enumerate(PLACES)
]
CASES = PLAIN + [few_values(case) for case in PLAIN]
# TFLite Micro has int32 positions only: LiteRT's reference kernel defines the others.
LITERT_CASES = [
    search(f"{opcode}_{i}_int64", opcode, shape, axis, "int64")
    for opcode in ("ARG_MAX", "ARG_MIN")
    for i, (shape, axis) in enumerate(PLACES)
]


@pytest.fixture(scope="module")
def proven() -> Proven:
    return prove(CASES)


@pytest.fixture(scope="module")
def proven_by_litert() -> Proven:
    pytest.importorskip("ai_edge_litert", reason="the extra emitc[verify] is not installed")
    return prove(LITERT_CASES, engine="litert")


@pytest.mark.parametrize("name", [case.id for case in CASES])
def test_case(proven: Proven, name: str) -> None:
    proven.outcomes[name].check()


@pytest.mark.parametrize("name", [case.id for case in LITERT_CASES])
def test_wide_positions(proven_by_litert: Proven, name: str) -> None:
    proven_by_litert.outcomes[name].check()


def test_memory(proven: Proven, proven_by_litert: Proven) -> None:
    assert proven.memory_errors + proven_by_litert.memory_errors == ()


CODE = "there is code for (int8, int32) or (int8, int64) or (float32, int32) or (float32, int64)"
REFUSALS = [
    (
        replace(search("int16", "ARG_MAX", (4, 3), 1), inputs=(quantized((4, 3), dtype="int16"), integers(1))),
        (1, "ARG_MAX with element types (int16, int32) is not supported", CODE),
    ),
    (
        search("int16_out", "ARG_MIN", (4, 3), 1, "int16"),
        (2, "ARG_MIN with element types (int8, int16) is not supported", CODE),
    ),
    (
        replace(search("axis", "ARG_MAX", (4, 3), 1), inputs=(quantized((4, 3)), integers(-3))),
        (2, "ARG_MAX has axis [-3]", "the input has 2 dimensions"),
    ),
    (
        replace(search("axes", "ARG_MIN", (4, 3), 1), inputs=(quantized((4, 3)), integers(0, 1))),
        (2, "ARG_MIN has axis [0, 1]", "the input has 2 dimensions"),
    ),
    (
        replace(search("scalar", "ARG_MAX", (4,), 0), inputs=(quantized(()), integers(0))),
        (2, "ARG_MAX has axis [0]", "the input has 0 dimensions"),
    ),
]


@pytest.mark.parametrize(("case", "expected"), [pytest.param(*each, id=each[0].id) for each in REFUSALS])
def test_refusal(case: Case, expected: tuple[int, str, str]) -> None:
    assert message(case) == expected

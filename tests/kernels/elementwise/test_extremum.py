"""MINIMUM and MAXIMUM: reference, engine and C agree on every bit, for every pair of values."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.elementwise_cases import (
    broadcast_cases,
    constant,
    constant_cases,
    layer_of,
    message,
    pairs,
    shaped,
    single,
    sweep_operands,
)
from tests.support.single_op import Case, Proven, prove, quantized

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

SAME = (0.05, -3)
CASES = [
    *(
        pairs(f"{opcode}_pairs{zero}", opcode, (0.05, zero), (0.05, zero), (0.05, zero))
        for opcode in ("MINIMUM", "MAXIMUM")
        for zero in (-128, 127)
    ),
    shaped("image", "MINIMUM", (1, 5, 4, 3), (1, 5, 4, 3), SAME),
    shaped("rank_1", "MAXIMUM", (17,), (17,), SAME),
    *(case for opcode in ("MINIMUM", "MAXIMUM") for case in broadcast_cases(opcode, SAME)),
    *(case for opcode in ("MINIMUM", "MAXIMUM") for case in constant_cases(opcode, SAME)),
]


@pytest.fixture(scope="module")
def proven() -> Proven:
    return prove(CASES)


@pytest.mark.parametrize("name", [case.id for case in CASES])
def test_case(proven: Proven, name: str) -> None:
    proven.outcomes[name].check()


def test_memory(proven: Proven) -> None:
    assert proven.memory_errors == ()


def test_random_sweep() -> None:
    rng = np.random.default_rng(30)
    cases = []
    for i in range(30):
        (a, b), scale = sweep_operands(rng), single(2.0 ** rng.uniform(-9, 1))
        zero = int(rng.integers(-128, 128))
        inputs = (quantized(a, scale, zero), quantized(b, scale, zero))
        cases.append(shaped(f"random{i}", ("MINIMUM", "MAXIMUM")[i % 2], *inputs, (scale, zero)))
    for outcome in prove(cases, seed=31).outcomes.values():
        outcome.check()


@pytest.mark.parametrize(
    ("case", "template"),
    [
        pytest.param(shaped("same_shape", "MAXIMUM", (4, 3), (4, 3), SAME), "extremum", id="same_shape"),
        pytest.param(shaped("repeated", "MINIMUM", (4, 3), (3,), SAME), "extremum_broadcast", id="repeated"),
        pytest.param(shaped("bound", "MINIMUM", (300,), constant([5]), SAME), "lookup", id="constant_bound"),
    ],
)
def test_template(case: Case, template: str) -> None:
    assert layer_of(case).kernel_name == template


def test_result_lies_over_an_operand() -> None:
    proven = prove([shaped("case", "MAXIMUM", (1, 4, 4, 8), (8,), SAME)])
    proven.outcomes["case"].check()
    assert proven.compiled.program.plan.arena_bytes == 128 + 16


REFUSALS = [
    pytest.param(
        replace(
            shaped("shapes", "MAXIMUM", (4, 3), (4, 3), SAME),
            inputs=(quantized((4, 3), *SAME), quantized((3, 4), *SAME)),
        ),
        (
            2,
            "MAXIMUM has inputs whose shapes do not fit each other",
            "[4, 3] and [3, 4]: each dimension must be equal or 1",
        ),
        id="shapes",
    ),
]


@pytest.mark.parametrize(("case", "expected"), REFUSALS)
def test_refusal(case: Case, expected: tuple[int, str, str]) -> None:
    assert message(case) == expected

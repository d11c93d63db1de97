"""MEAN and SUM: reference, engine and C agree on every bit over any dimensions."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from emitc.errors import EmitcError
from emitc.ir import Array
from tests.support.elementwise_cases import Operand, message, single
from tests.support.single_op import Case, Proven, graph_of, integers, plain, prove, quantized

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")


def reduced(shape: tuple[int, ...], axes: tuple[int, ...], keep: bool) -> tuple[int, ...]:
    """The output's shape."""
    gone = {axis % len(shape) for axis in axes} if shape else set()
    return tuple(1 if i in gone else size for i, size in enumerate(shape) if keep or i not in gone)


def reduction(
    name: str,
    shape: tuple[int, ...],
    axes: tuple[int, ...],
    opcode: str = "MEAN",
    keep: bool = False,
    x: Operand = (0.05, 3),
    y: Operand = (0.06, -5),
) -> Case:
    """One reduction."""
    inputs = (quantized(shape, *x), integers(*axes))
    return Case(name, opcode, inputs, (quantized(reduced(shape, axes, keep), *y),), {"keep_dims": keep})


def at_end(value: int, case: Case) -> Case:
    """The case with every element at one value."""
    shape = case.inputs[0].shape if case.inputs[0] else ()

    def draw(_rng: np.random.Generator, _sample: int) -> list[Array]:
        return [np.full(shape, value, np.int8)]

    return replace(case, draw=draw)


def sums(case: Case, values: Array) -> Case:
    """The case, over dimension 0 of two, with columns that add up to `values`."""
    count = case.inputs[0].shape[0] if case.inputs[0] else 0

    def draw(_rng: np.random.Generator, _sample: int) -> list[Array]:
        whole, rest = np.divmod(values, count)
        return [(whole + (np.arange(count)[:, None] < rest)).astype(np.int8)]

    return replace(case, draw=draw)


def both(name: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> list[Case]:
    """MEAN and SUM, with and without the reduced dimensions."""
    return [
        reduction(f"{name}_{opcode}_{keep}", shape, axes, opcode, keep, y=(0.06 if opcode == "MEAN" else 2.0, -5))
        for opcode in ("MEAN", "SUM")
        for keep in (False, True)
    ]


CASES = [
    *both("image", (1, 7, 5, 3), (1, 2)),
    *both("image_reversed", (1, 7, 5, 3), (2, 1)),
    *both("image_negative", (2, 7, 5, 3), (-2, -3)),
    *both("image_rows", (2, 7, 5, 3), (1,)),
    *both("image_columns", (2, 7, 5, 3), (2,)),
    *both("channels", (2, 7, 5, 3), (3,)),
    *both("batch", (4, 2, 3), (0,)),
    *both("everything", (2, 3, 5), (0, 1, 2)),
    *both("vector", (37,), (0,)),
    *both("apart", (2, 3, 4, 5), (0, 2)),
    *both("apart_odd", (2, 3, 4, 5), (1, 3)),
    *both("listed_twice", (2, 3, 4), (1, -2, 1)),
    *both("of_one", (3, 1, 4), (1,)),
    *both("rank_5", (2, 3, 2, 3, 2), (0, 2, 4)),
    *both("rank_6", (2, 3, 2, 3, 2, 2), (1, 3, 5)),
    # 7 * 7 is no power of two, 8 * 8 is one: the multiplier is divided in integers.
    *(
        reduction(f"count_{count}_{ratio}", (count, 40), (0,), x=(0.05, zero), y=(single(0.05 / ratio), -1 - zero))
        for count, zero in ((1, 0), (2, -128), (3, 127), (31, 5), (49, -128), (64, 127), (65, 0), (1000, -128))
        for ratio in (0.01, 0.5, 1.0, 1.37, 100.0)
    ),
    *(
        reduction(f"sum_{count}_{ratio}", (count, 40), (0,), "SUM", x=(0.05, 3), y=(single(0.05 / ratio), 4))
        for count in (1, 7, 64)
        for ratio in (1e-11, 0.001, 0.25, 1.0, 3.0)
    ),
    *(
        at_end(value, reduction(f"end_{value}_{zero}", (200, 3), (0,), x=(0.05, zero), y=(0.05, zero)))
        for value in (-128, 127)
        for zero in (-128, 127)
    ),
    # A multiplier rounded to nearest after its division by 56 changes 48 of these results.
    sums(
        reduction("multiplier_rounded_down", (56, 5401), (0,), x=(0.09399082511663437, 0), y=(0.03759633004665375, 0)),
        np.arange(-2700, 2701),
    ),
    reduction("vanishes", (9, 20), (0,), y=(3e8, 7)),
    reduction("barely_there", (9, 20), (0,), x=(2.0**-31, 100), y=(1.0, 7)),
    reduction("largest_multiplier", (5, 20), (0,), x=(2.0**20, 100), y=(1.0, 7)),
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
    rng = np.random.default_rng(50)
    cases = []
    for i in range(50):
        shape = tuple(int(size) for size in rng.integers(1, 7, int(rng.integers(1, 6))))
        listed = rng.permutation(len(shape))[: int(rng.integers(1, len(shape) + 1))]
        axes = tuple(int(axis) - len(shape) * int(rng.integers(0, 2)) for axis in listed)
        opcode, scale = ("MEAN", "SUM")[i % 2], single(2.0 ** rng.uniform(-9, 1))
        x, y = (
            (scale, int(rng.integers(-128, 128))),
            (single(scale * 2.0 ** rng.uniform(-3, 3)), int(rng.integers(-128, 128))),
        )
        cases.append(reduction(f"random{i}", shape, axes, opcode, bool(rng.integers(0, 2)), x, y))
    for outcome in prove(cases, seed=51, sanitize=False).outcomes.values():
        outcome.check()


def test_no_scratch() -> None:
    proven = prove([reduction("image", (1, 7, 5, 3), (1, 2))])
    assert proven.compiled.program.plan.arena_bytes == 112 + 16


CODE = "there is code for (int8, int8) or (int16, int16)"
OUT = "{} has scales that are out of proportion"
REFUSALS = [
    (
        reduction("too_many", (1 << 24,), (0,)),
        (1, "MEAN over 16777216 elements", "their sum can leave int32"),
    ),
    (
        reduction("groups", (2, 2, 2, 2, 2, 2, 2, 2), (0, 2, 4, 6)),
        (
            1,
            "MEAN over axes [0, 2, 4, 6] of [2, 2, 2, 2, 2, 2, 2, 2] is not supported",
            "kept and reduced dimensions alternate more than 3 times",
        ),
    ),
    (
        reduction("mean_scales", (4, 3), (1,), x=(1.0, 0), y=(2.0**-28, 0)),
        (2, OUT.format("MEAN"), "sums are multiplied by 268435456.0, which the fixed-point arithmetic cannot hold"),
    ),
    (
        reduction("sum_scales", (4, 300), (1,), "SUM", x=(1.0, 0), y=(2.0**-16, 0)),
        (2, OUT.format("SUM"), "sums are multiplied by 65536.0, which the fixed-point arithmetic cannot hold"),
    ),
    (
        replace(reduction("axis", (4, 3), (1,)), inputs=(quantized((4, 3)), integers(2))),
        (2, "MEAN has axes [2]", "the input has 2 dimensions"),
    ),
    (
        replace(reduction("axis_below", (4, 3), (1,), "SUM"), inputs=(quantized((4, 3)), integers(1, -3))),
        (2, "SUM has axes [1, -3]", "the input has 2 dimensions"),
    ),
    (
        replace(reduction("wrong_output", (4, 3), (1,)), outputs=(quantized((3,)),)),
        (2, "MEAN has an output of the wrong shape", "the file says [3], the operator gives [4]"),
    ),
]


@pytest.mark.parametrize(("case", "expected"), [pytest.param(*each, id=each[0].id) for each in REFUSALS])
def test_refusal(case: Case, expected: tuple[int, str, str]) -> None:
    assert message(case) == expected


def test_computed_axes_are_refused() -> None:
    case = reduction("computed", (4, 3), (1,))
    with pytest.raises(EmitcError) as error:
        graph_of(replace(case, inputs=(case.inputs[0], plain((1,), "int32"))))
    assert error.value.exit_code == 1

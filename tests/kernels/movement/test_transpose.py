"""TRANSPOSE: reference, engine and C agree on every bit; what has no code is refused by name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from emitc.kernels.movement.transpose import cycles
from tests.support.moves import counted, layer_of, message, move, tensor
from tests.support.single_op import Case, Proven, integers, prove

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

TYPES = ("int8", "int16", "float32")


def transpose(name: str, shape: tuple[int, ...], permutation: Sequence[int], dtype: str = "int8") -> Case:
    """A case; the output shape of an illegal permutation is the input's."""
    legal = sorted(permutation) == list(range(len(shape)))
    output = [shape[axis] for axis in permutation] if legal else shape
    return move(name, "TRANSPOSE", [tensor(shape, dtype), integers(*permutation)], [tensor(output, dtype)])


CASES = [
    transpose("matrix", (3, 5), (1, 0)),
    transpose("nhwc_to_nchw", (2, 3, 4, 5), (0, 3, 1, 2)),
    transpose("nchw_to_nhwc", (2, 3, 4, 5), (0, 2, 3, 1)),
    transpose("rows_and_columns", (1, 3, 4, 5), (0, 2, 1, 3)),
    transpose("reversed_4", (2, 3, 4, 5), (3, 2, 1, 0)),
    transpose("reversed_5", (2, 3, 4, 2, 3), (4, 3, 2, 1, 0)),
    transpose("two_blocks", (2, 3, 4, 2, 3), (2, 3, 4, 0, 1)),
    transpose("nothing", (2, 3, 4), (0, 1, 2)),
    transpose("size_1_only", (2, 1, 3, 1), (1, 0, 3, 2)),
    transpose("rank_1", (7,), (0,)),
    transpose("planes_to_pixels", (1, 3, 9, 10), (0, 2, 3, 1)),
    transpose("pixels_to_planes", (1, 9, 10, 3), (0, 3, 1, 2)),
    transpose("planes_of_batches", (2, 3, 9, 10), (0, 2, 3, 1)),
    transpose("batches_to_planes", (3, 5, 9, 3), (0, 3, 1, 2)),
    transpose("two_rows", (2, 85), (1, 0)),
    *(transpose(f"planes_{dtype}", (1, 3, 4, 13), (0, 2, 3, 1), dtype) for dtype in TYPES),
    *(transpose(f"type_{dtype}", (3, 4, 5), (2, 0, 1), dtype) for dtype in TYPES),
    *(transpose(f"runs_{dtype}", (3, 4, 5), (1, 0, 2), dtype) for dtype in TYPES),
]


def sweep() -> list[Case]:
    """Random shapes, permutations and types."""
    rng = np.random.default_rng(14)
    cases = []
    for i in range(30):
        rank = int(rng.integers(1, 6))
        shape = tuple(int(d) for d in rng.integers(1, 5, rank))
        permutation = [int(axis) for axis in rng.permutation(rank)]
        cases.append(transpose(f"random_{i}", shape, permutation, str(rng.choice(TYPES))))
    return cases


SWEEP = sweep()


@pytest.fixture(scope="module")
def proven() -> Proven:
    """All cases, run three ways."""
    return prove([*CASES, *SWEEP])


@pytest.mark.parametrize("case_id", [case.id for case in CASES])
def test_case(proven: Proven, case_id: str) -> None:
    proven.outcomes[case_id].check()


def test_random_cases(proven: Proven) -> None:
    for case in SWEEP:
        proven.outcomes[case.id].check()


def test_memory(proven: Proven) -> None:
    assert proven.memory_errors == ()


def test_six_dimensions_and_more_types_as_litert_has_them() -> None:
    pytest.importorskip("ai_edge_litert", reason="the extra emitc[verify] is not installed")
    cases = [
        transpose("reversed_6", (2, 3, 2, 3, 2, 3), (5, 4, 3, 2, 1, 0)),
        transpose("depth_to_space", (2, 3, 2, 3, 2, 3), (0, 1, 3, 2, 4, 5)),
        *(transpose(dtype, (3, 4, 5), (2, 0, 1), dtype) for dtype in ("uint8", "int32", "int64", "bool")),
        *(
            transpose(f"planes_{dtype}", (1, 3, 6, 9), (0, 2, 3, 1), dtype)
            for dtype in ("uint8", "int32", "int64", "bool")
        ),
    ]
    found = prove(cases, engine="litert")
    for outcome in found.outcomes.values():
        outcome.check()
    assert found.memory_errors == ()


@pytest.mark.parametrize(
    ("shape", "permutation", "run_bytes", "counts"),
    [
        pytest.param((2, 3, 4, 10), (0, 3, 1, 2), 1, (12, 10, 2), id="nhwc_to_nchw"),
        pytest.param((1, 3, 4, 5), (0, 2, 1, 3), 5, (3, 4), id="rows_and_columns"),
        pytest.param((2, 5, 4, 2, 3), (2, 3, 4, 0, 1), 1, (10, 24), id="two_blocks"),
    ],
)
def test_dimensions_that_stay_together_are_one(
    shape: tuple[int, ...], permutation: tuple[int, ...], run_bytes: int, counts: tuple[int, ...]
) -> None:
    params = {p.name: p.value for p in layer_of(transpose("t", shape, permutation)).params}
    assert params["run_bytes"] == run_bytes
    assert tuple(params[f"count_{i}"] for i in range(len(counts))) == counts
    assert f"count_{len(counts)}" not in params


@pytest.mark.parametrize("permutation", [(0, 1, 2, 3), (1, 0, 3, 2), (0, 2, 1, 3)])
def test_a_permutation_of_ones_is_one_copy(permutation: tuple[int, ...]) -> None:
    assert layer_of(transpose("t", (2, 1, 3, 1), permutation)).kernel_name == "copy_run"


def test_a_constant_input_is_a_table() -> None:
    layer = layer_of(move("c", "TRANSPOSE", [counted((2, 2)), integers(1, 0)], [tensor((2, 2))]))
    assert layer.operands == ()
    assert [(t.role, t.values) for t in layer.tables] == [("x", (-50, -49, -48, -47))]


@pytest.mark.parametrize(
    ("shape", "permutation", "expected"),
    [
        pytest.param((1, 3, 9, 10), (0, 2, 3, 1), (1, 270, 3, "_int8"), id="planes"),
        pytest.param((1, 9, 10, 3), (0, 3, 1, 2), (1, 270, 3, "_int8_pull"), id="pixels"),
        pytest.param((2, 3, 9, 10), (0, 2, 3, 1), (2, 270, 3, "_int8"), id="batches"),
        pytest.param((1, 9, 9, 10), (0, 2, 3, 1), None, id="too_many_planes"),
        pytest.param((1, 4, 8, 8), (0, 2, 3, 1), None, id="too_many_cycles"),
        pytest.param((1, 9, 3, 10), (0, 2, 1, 3), None, id="runs"),
        pytest.param((3, 9, 2, 10), (2, 1, 0, 3), None, id="three_dimensions"),
    ],
)
def test_few_rows_or_columns_change_places_where_they_lie(
    shape: tuple[int, ...], permutation: tuple[int, ...], expected: tuple[int, int, int, str] | None
) -> None:
    layer = layer_of(transpose("t", shape, permutation))
    assert (layer.kernel_name == "transpose_in_place") is (expected is not None)
    if expected:
        params = {p.name: p.value for p in layer.params}
        assert (params["matrices"], params["elements"], params["factor"], layer.spec.suffix) == expected
        assert params["cycles"] == len(layer.tables[0].values)


@pytest.mark.parametrize(("rows", "columns"), [(3, 90), (2, 7), (4, 54), (5, 5), (8, 100)])
def test_every_element_is_on_one_cycle(rows: int, columns: int) -> None:
    last = rows * columns - 1
    moved = []
    for start in cycles(rows, last):
        i = start
        while True:
            moved.append(i)
            i = i * rows % last
            if i == start:
                break
    order = np.arange(rows * columns).reshape(rows, columns).T.reshape(-1)
    assert sorted(moved) == [int(i) for i in np.flatnonzero(order != np.arange(last + 1))]


REFUSALS = [
    (
        transpose("twice", (2, 3), (1, 1)),
        (2, "TRANSPOSE has the permutation [1, 1]", "each of 0 to 1 is expected once"),
    ),
    (
        transpose("negative", (2, 3), (-1, 0)),
        (2, "TRANSPOSE has the permutation [-1, 0]", "each of 0 to 1 is expected once"),
    ),
    (
        transpose("short", (2, 3), (0,)),
        (2, "TRANSPOSE has the permutation [0]", "each of 0 to 1 is expected once"),
    ),
    (
        transpose("deep", (2,) * 7, (6, 5, 4, 3, 2, 1, 0)),
        (
            1,
            "TRANSPOSE needs 7 nested loops",
            "the kernel has 6; neighbouring dimensions that move together count as one",
        ),
    ),
    (
        move("type", "TRANSPOSE", [tensor((2, 3)), integers(1, 0)], [tensor((3, 2), "int16")]),
        (2, "TRANSPOSE changes the element type", "int8 and int16, but the operator copies values"),
    ),
]


@pytest.mark.parametrize(("case", "expected"), [pytest.param(*each, id=each[0].id) for each in REFUSALS])
def test_refusal(case: Case, expected: tuple[int, str, str]) -> None:
    assert message(case) == expected

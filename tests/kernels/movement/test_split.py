"""SPLIT and SPLIT_V: reference, engine and C agree on every bit; what has no code is refused by name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from tests.support.moves import TFLM_TYPES, counted, layer_of, message, move, tensor
from tests.support.single_op import Case, Proven, TensorSpec, integers, prove

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")


def scalar(value: int) -> TensorSpec:
    """A constant without dimensions."""
    return TensorSpec("", "int32", (), np.array(value, "<i4").tobytes())


def _parts(shape: Sequence[int], sizes: Sequence[int], axis: int, dtype: str) -> list[TensorSpec]:
    if not -len(shape) <= axis < len(shape):
        return [tensor(shape, dtype) for _ in sizes]
    parts = []
    for size in sizes:
        part = list(shape)
        part[axis] = size
        parts.append(tensor(part, dtype))
    return parts


def split(
    name: str, shape: tuple[int, ...], parts: int, axis: int, dtype: str = "int8", stated: int | None = None
) -> Case:
    """A case of SPLIT into equal parts."""
    size = shape[axis] // parts if -len(shape) <= axis < len(shape) else 1
    outputs = _parts(shape, [size] * parts, axis, dtype)
    return move(name, "SPLIT", [scalar(axis), tensor(shape, dtype)], outputs, {"num_splits": stated or parts})


def split_v(name: str, shape: tuple[int, ...], sizes: Sequence[int], axis: int, dtype: str = "int8") -> Case:
    """A case of SPLIT_V; a size of -1 is the rest."""
    rest = shape[axis] - sum(size for size in sizes if size != -1)
    outputs = _parts(shape, [rest if size == -1 else size for size in sizes], axis, dtype)
    return move(
        name, "SPLIT_V", [tensor(shape, dtype), integers(*sizes), scalar(axis)], outputs, {"num_splits": len(sizes)}
    )


CASES = [
    split("channels", (1, 4, 4, 6), 3, 3),
    split("channels_single", (1, 4, 4, 6), 6, -1),
    split("rows", (1, 6, 1, 8), 2, 1),
    split("batch", (4, 3, 2), 2, 0),
    split("first_from_behind", (4, 3, 2), 4, -3),
    split("one", (4, 3), 1, 1),
    split("rank_1", (8,), 4, 0),
    split("rank_5", (2, 1, 4, 2, 3), 2, 2),
    *(split(f"type_{dtype}", (2, 6, 5), 3, 1, dtype) for dtype in TFLM_TYPES),
    split_v("v_channels", (1, 11, 1, 64), [32, 32], -1),
    split_v("v_uneven", (2, 9, 3), [1, 5, 3], 1),
    split_v("v_one", (2, 9, 3), [9], 1),
    split_v("v_rest", (2, 9, 3), [2, -1, 1], 1),
    split_v("v_narrow", (5, 7, 6), [1, 3, 2], 2),
    split_v("v_narrow_shorts", (9, 2), [1, 1], 1, "int16"),
    *(split_v(f"v_type_{dtype}", (3, 5), [1, 4], 1, dtype) for dtype in TFLM_TYPES),
]


def sweep() -> list[Case]:
    """Random shapes, sizes and types."""
    rng = np.random.default_rng(13)
    cases = []
    for i in range(20):
        rank, dtype = int(rng.integers(1, 6)), str(rng.choice(TFLM_TYPES))
        shape, axis = [int(d) for d in rng.integers(1, 5, rank)], int(rng.integers(0, rank))
        sizes = [int(d) for d in rng.integers(1, 5, int(rng.integers(1, 5)))]
        shape[axis] = sum(sizes)
        cases.append(split_v(f"random_{i}", tuple(shape), sizes, axis - int(rng.integers(0, 2)) * rank, dtype))
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


def test_uint8_as_litert_has_it() -> None:
    pytest.importorskip("ai_edge_litert", reason="the extra emitc[verify] is not installed")
    found = prove([split("uint8", (1, 4, 4, 6), 6, 3, "uint8")], engine="litert", sanitize=False)
    found.outcomes["uint8"].check()


def test_one_output_is_one_copy() -> None:
    assert layer_of(split("one", (2, 3), 1, 1)).kernel_name == "copy_run"


def test_a_constant_input_is_a_table() -> None:
    case = move("c", "SPLIT", [scalar(0), counted((2, 2))], [tensor((1, 2))] * 2, {"num_splits": 2})
    layer = layer_of(case)
    assert layer.operands == ()
    assert [(t.role, t.values) for t in layer.tables] == [("x", (-50, -49, -48, -47)), ("row_bytes", (2, 2))]


def uneven() -> Case:
    return split("uneven", (2, 7), 3, 1)


def wrong_sum() -> Case:
    outputs = [tensor((2, 3)), tensor((2, 3))]
    return move("sum", "SPLIT_V", [tensor((2, 7)), integers(3, 3), scalar(1)], outputs, {"num_splits": 2})


def two_rests() -> Case:
    outputs = [tensor((2, 3)), tensor((2, 4))]
    return move("rests", "SPLIT_V", [tensor((2, 7)), integers(-1, -1), scalar(1)], outputs, {"num_splits": 2})


def negative_size() -> Case:
    outputs = [tensor((2, 9)), tensor((2, 4))]
    return move("size", "SPLIT_V", [tensor((2, 7)), integers(9, -2), scalar(1)], outputs, {"num_splits": 2})


def computed_axis() -> Case:
    return move("axis", "SPLIT", [TensorSpec("", "int32", ()), tensor((2, 2))], [tensor((1, 2))] * 2, {"num_splits": 2})


REFUSALS = [
    (uneven(), (2, "SPLIT makes 3 parts", "they cannot be equal: dimension 1 has 7 elements")),
    (split("axis_range", (2, 3), 1, 2), (2, "SPLIT has axis 2", "the tensor has 2 dimensions")),
    (
        split("stated", (2, 6), 3, 1, stated=2),
        (2, "SPLIT has 3 outputs", "num_splits is 2, and 3 parts are asked for"),
    ),
    (wrong_sum(), (2, "SPLIT_V makes parts of [3, 3]", "they must add up to dimension 1 of [2, 7]")),
    (two_rests(), (2, "SPLIT_V makes parts of [-1, -1]", "they must add up to dimension 1 of [2, 7]")),
    (negative_size(), (2, "SPLIT_V makes parts of [9, -2]", "they must add up to dimension 1 of [2, 7]")),
    (
        computed_axis(),
        (1, "SPLIT takes its axis from a computed tensor", "sizes and layouts must be known at compile time"),
    ),
    (split("many", (1, 65), 65, 1), (1, "SPLIT of 65 tensors is not supported", "64 is the limit")),
]


@pytest.mark.parametrize(("case", "expected"), [pytest.param(*each, id=each[0].id) for each in REFUSALS])
def test_refusal(case: Case, expected: tuple[int, str, str]) -> None:
    assert message(case) == expected


@pytest.mark.parametrize(
    ("case", "template"),
    [
        (split_v("three", (2, 4), [3, 1], 1), "split_narrow"),
        (split_v("four", (2, 5), [4, 1], 1), "split"),
        (split_v("two_shorts", (2, 3), [2, 1], 1, "int16"), "split"),
        (split_v("one_row", (1, 4), [3, 1], 1), "split"),
    ],
    ids=lambda value: getattr(value, "id", value),
)
def test_rows_of_up_to_three_bytes_are_moved_by_columns(case: Case, template: str) -> None:
    assert layer_of(case).kernel_name == template

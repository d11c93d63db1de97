"""SLICE and STRIDED_SLICE: reference, engine and C agree on every bit; what has no code is refused by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from emitc.compiler import compile_model
from emitc.verify.verification import verify
from emitc.writers.tflite import ModelSpec, write_tflite
from tests.support.moves import TFLM_TYPES, counted, layer_of, message, move, tensor
from tests.support.single_op import Case, OperatorSpec, Proven, TensorSpec, integers, prove

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")


def box(
    name: str,
    shape: tuple[int, ...],
    begin: Sequence[int],
    size: Sequence[int],
    dtype: str = "int8",
    index: str = "int32",
) -> Case:
    """A case of SLICE; a size of -1 is the rest."""
    output = [dim - b if s == -1 else abs(s) for dim, b, s in zip(shape, begin, size, strict=False)]
    positions = [integers(*begin, dtype=index), integers(*size, dtype=index)]
    return move(name, "SLICE", [tensor(shape, dtype), *positions], [tensor(output, dtype)])


def strided(
    name: str,
    shape: tuple[int, ...],
    begin: Sequence[int],
    end: Sequence[int],
    strides: Sequence[int],
    output: Sequence[int],
    dtype: str = "int8",
    **options: int | bool,
) -> Case:
    """A case of STRIDED_SLICE with the output's shape written out; options are the masks."""
    positions = [integers(*begin), integers(*end), integers(*strides)]
    return move(name, "STRIDED_SLICE", [tensor(shape, dtype), *positions], [tensor(output, dtype)], options)


CASES = [
    box("box", (2, 5, 4, 3), (1, 1, 1, 1), (1, 3, 2, 1)),
    box("rest", (2, 5, 4, 3), (0, 1, 2, 0), (-1, -1, -1, -1)),
    box("all", (2, 5, 4), (0, 0, 0), (2, 5, 4)),
    box("rows", (1, 9, 4, 3), (0, 2, 0, 0), (1, 5, 4, 3)),
    box("last_channel", (2, 3, 4), (0, 0, 3), (2, 3, 1)),
    box("rank_1", (9,), (4,), (3,)),
    box("rank_5", (2, 3, 2, 3, 2), (1, 0, 1, 1, 0), (1, 3, 1, -1, 2)),
    box("int64_positions", (2, 5), (1, 2), (1, -1), index="int64"),
    *(box(f"type_{dtype}", (3, 4, 5), (1, 1, 2), (2, 2, 2), dtype) for dtype in (*TFLM_TYPES, "bool")),
    strided("stream", (1, 5, 1, 40), (0, -2, 0, 0), (0, 0, 0, 40), (1,) * 4, (1, 2, 1, 40), begin_mask=13, end_mask=15),
    strided("plain", (4, 5, 6), (1, 0, 2), (3, 5, 6), (1, 1, 1), (2, 5, 4)),
    strided("everything", (4, 5, 6), (0, 0, 0), (4, 5, 6), (1, 1, 1), (4, 5, 6)),
    strided("every_second", (4, 7, 6), (0, 0, 1), (4, 7, 6), (1, 2, 3), (4, 4, 2)),
    strided("backwards", (4, 5, 6), (3, -1, 4), (-5, 0, 1), (-1, -2, -1), (4, 2, 3)),
    strided("backwards_whole", (3, 4), (0, 0), (0, 0), (-1, -1), (3, 4), begin_mask=3, end_mask=3),
    strided("backwards_to_front", (5,), (3,), (0,), (-2,), (2,), end_mask=1),
    strided("backwards_from_back", (5,), (0,), (1,), (-1,), (3,), begin_mask=1),
    strided("negative_positions", (6, 6), (-4, -1), (-1, -6), (1, -2), (3, 3)),
    strided("far_outside", (4, 4), (-100, 100), (100, -100), (1, -1), (4, 4)),
    strided("int32_ends", (4,), (-(2**31),), (2**31 - 1,), (1,), (4,)),
    strided("stride_beyond", (4, 3), (1, 0), (4, 3), (100, 1), (1, 3)),
    strided("shrink_first", (4, 5, 6), (2, 0, 0), (3, 5, 6), (1, 1, 1), (5, 6), shrink_axis_mask=1),
    strided("shrink_last", (4, 5, 6), (0, 0, -1), (4, 5, 0), (1, 1, 1), (4, 5), shrink_axis_mask=4),
    strided("shrink_all", (4, 5), (2, -2), (0, 0), (1, 1), (), shrink_axis_mask=3),
    strided("shrink_wins_over_end", (4, 5), (1, 2), (0, 5), (3, 1), (3,), shrink_axis_mask=1, end_mask=1),
    strided("begin_mask_wins_over_shrink", (4, 5), (2, 1), (3, 5), (1, 1), (4,), shrink_axis_mask=1, begin_mask=1),
    strided("shrink_far_before", (4, 5), (-9, 1), (3, 5), (1, 1), (4,), shrink_axis_mask=1),
    strided("masks_beyond_the_rank", (4,), (1,), (3,), (1,), (2,), begin_mask=2, end_mask=4, shrink_axis_mask=8),
    *(
        strided(f"strided_{dtype}", (3, 4, 5), (1, 0, 4), (3, 4, 0), (1, 2, -2), (2, 2, 2), dtype)
        for dtype in (*TFLM_TYPES, "bool")
    ),
]


def sweep() -> list[Case]:
    """Random positions, strides, masks and types; numpy's own slicing gives the output's shape."""
    rng = np.random.default_rng(15)
    cases: list[Case] = []
    while len(cases) < 60:
        rank = int(rng.integers(1, 5))
        shape = tuple(int(d) for d in rng.integers(1, 7, rank))
        begin, end = ([int(v) for v in rng.integers(-8, 9, rank)] for _ in range(2))
        strides = [int(v) for v in rng.choice([1, 1, 2, 3, -1, -2], rank)]
        begin_mask, end_mask, shrink = (int(v) for v in rng.integers(0, 1 << rank, 3))
        shrink &= int(rng.integers(0, 1 << rank))
        index: list[int | slice] = []
        for axis, size in enumerate(shape):
            first = None if begin_mask >> axis & 1 else begin[axis]
            last = None if end_mask >> axis & 1 else end[axis]
            if shrink >> axis & 1:
                strides[axis] = abs(strides[axis])
                begin[axis] = int(rng.integers(-size, size))
                index.append(0 if first is None else begin[axis])
            else:
                index.append(slice(first, last, strides[axis]))
        output = np.empty(shape)[tuple(index)].shape
        if 0 in output:
            continue
        dtype = str(rng.choice(TFLM_TYPES))
        masks = {"begin_mask": begin_mask, "end_mask": end_mask, "shrink_axis_mask": shrink}
        cases.append(strided(f"random_{len(cases)}", shape, begin, end, strides, output, dtype, **masks))
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


def test_more_types_and_dimensions_as_litert_has_them() -> None:
    pytest.importorskip("ai_edge_litert", reason="the extra emitc[verify] is not installed")
    cases = [
        *(box(f"box_{dtype}", (3, 4), (1, 2), (2, 1), dtype) for dtype in ("uint8", "int64")),
        *(strided(dtype, (3, 4), (2, 0), (0, 3), (-1, 2), (2, 2), dtype) for dtype in ("uint8", "int64")),
        strided("rank_5", (2, 3, 2, 3, 4), (0, 2, 0, 0, 1), (2, 0, 2, 3, 4), (1, -1, 1, 2, 2), (2, 2, 2, 2, 2)),
    ]
    found = prove(cases, engine="litert", sanitize=False)
    for outcome in found.outcomes.values():
        outcome.check()


@pytest.mark.parametrize(
    ("case", "start", "run"),
    [
        pytest.param(box("all", (2, 5, 4), (0, 0, 0), (-1, -1, -1)), 0, 40, id="all"),
        pytest.param(box("rows", (1, 9, 4, 3), (0, 2, 0, 0), (1, 5, 4, 3)), 24, 60, id="rows"),
        pytest.param(strided("one", (4, 5), (-1, 2), (0, 0), (1, 1), (), shrink_axis_mask=3), 17, 1, id="one_element"),
    ],
)
def test_elements_that_lie_together_are_one_copy(case: Case, start: int, run: int) -> None:
    layer = layer_of(case)
    assert layer.kernel_name == "copy_run"
    assert [p.value for p in layer.params] == [start, run]
    # One element alone is read before anything is stored: the output may lie from the byte after it on.
    assert [(o.input, o.output, o.distance_bytes) for o in layer.overlaps] == [(0, 0, -start - (run == 1))]


def test_a_chain_of_copies_shares_its_memory(tmp_path: Path) -> None:
    """Each slice dies at the next, so that every output may lie within its input: the proof sees none overwritten early."""
    shapes = [(1, 64, 4), (1, 40, 4), (1, 25, 4), (1, 3, 4)]
    tensors = [tensor(shape) for shape in shapes]
    operators = []
    for i, shape in enumerate(shapes[1:]):
        begin = len(tensors)
        tensors += [integers(0, 5, 0), integers(*shape)]
        operators.append(OperatorSpec("SLICE", (i, begin, begin + 1), (i + 1,)))
    path = tmp_path / "chain.tflite"
    path.write_bytes(write_tflite(ModelSpec(tuple(tensors), tuple(operators), (0,), (3,))))
    compiled = compile_model(path)
    assert compiled.program.plan.arena_bytes == 256
    assert verify(compiled, reference="tflm", samples=4, layers=True, sanitize=True).match


def test_a_constant_input_is_a_table() -> None:
    case = move("c", "SLICE", [counted((2, 2)), integers(0, 1), integers(2, 1)], [tensor((2, 1))])
    layer = layer_of(case)
    assert layer.operands == ()
    assert [(t.role, t.values) for t in layer.tables] == [("x", (-50, -49, -48, -47))]


def computed_begin() -> Case:
    return move("begin", "SLICE", [tensor((2,)), TensorSpec("", "int32", (1,)), integers(1)], [tensor((1,))])


IGNORED = "TFLite Micro, whose result is to be matched, ignores it"
REFUSALS = [
    (
        box("outside", (4, 5), (1, 2), (3, 4)),
        (2, "SLICE reaches outside its input", "begin [1, 2], size [3, 4] of [4, 5]"),
    ),
    (
        box("negative", (4, 5), (-1, 2), (1, 1)),
        (2, "SLICE reaches outside its input", "begin [-1, 2], size [1, 1] of [4, 5]"),
    ),
    (
        box("negative_size", (4, 5), (1, 2), (-2, 1)),
        (2, "SLICE reaches outside its input", "begin [1, 2], size [-2, 1] of [4, 5]"),
    ),
    (box("short", (4, 5), (1,), (1,)), (2, "SLICE has 1 begins and 1 sizes", "one for each of 2 dimensions")),
    (
        computed_begin(),
        (1, "SLICE takes its begin from a computed tensor", "sizes and layouts must be known at compile time"),
    ),
    (
        strided("offset", (4, 5), (0, 1), (2, 2), (1, 1), (2, 2), offset=True),
        (1, "STRIDED_SLICE with offset is not supported", IGNORED),
    ),
    (
        strided("some", (4, 5), (0,), (2,), (1,), (2, 5)),
        (
            1,
            "STRIDED_SLICE with a begin, end and stride for some of the dimensions is not supported",
            "1, 1 and 1 are given for 2 dimensions",
        ),
    ),
    (
        strided("stride_0", (4, 5), (0, 0), (2, 2), (1, 0), (2, 2)),
        (2, "STRIDED_SLICE has a stride of 0", "strides [1, 0]"),
    ),
    (
        strided("shrink_outside", (4, 5), (0, 5), (4, 6), (1, 1), (4,), shrink_axis_mask=2),
        (
            2,
            "STRIDED_SLICE takes element 5 of dimension 1 with stride 1",
            "the dimension has 5 elements, and a dimension shrinks with a positive stride only",
        ),
    ),
    (
        strided("shrink_backwards", (4, 5), (0, 1), (4, 0), (1, -1), (4,), shrink_axis_mask=2),
        (
            2,
            "STRIDED_SLICE takes element 1 of dimension 1 with stride -1",
            "the dimension has 5 elements, and a dimension shrinks with a positive stride only",
        ),
    ),
    (
        strided("empty", (4, 5), (3, 0), (1, 5), (1, 1), (0, 5)),
        (2, "STRIDED_SLICE has an empty output", "a dimension is 0"),
    ),
    (
        strided("deep", (3,) * 8, (0,) * 8, (3,) * 8, (2,) * 8, (2,) * 8),
        (
            1,
            "STRIDED_SLICE needs 8 nested loops",
            "the kernel has 6; neighbouring dimensions that move together count as one",
        ),
    ),
]


@pytest.mark.parametrize(("case", "expected"), [pytest.param(*each, id=each[0].id) for each in REFUSALS])
def test_refusal(case: Case, expected: tuple[int, str, str]) -> None:
    assert message(case) == expected

"""TFLite operators on images and positions: GATHER, GATHER_ND, blocks to batches and channels, masks, bilinear resizing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.float_cases import FINITE, check, constant, with_values
from tests.support.layer_cases import message
from tests.support.single_op import Case, Proven, integers, plain, prove, quantized

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")


def indices(*shape: int, below: tuple[int, ...]) -> np.ndarray:
    """Constant indices, each below its limit; limits are those of the last dimension's places, in turn."""
    rng = np.random.default_rng(sum(shape))
    return rng.integers(0, np.resize(np.array(below), shape[-1]), shape).astype(np.int32)


def gather(
    name: str, x: tuple[int, ...], axis: int, chosen: tuple[int, ...], *, computed: bool, dtype: str = "float32"
) -> Case:
    """Slices along an axis."""
    place = axis % len(x)
    shape = (*x[:place], *chosen, *x[place + 1 :])
    values = indices(*chosen, below=(x[place],))
    tensor = plain(chosen, "int32") if computed else constant(values, "int32")
    data = plain(x) if dtype == "float32" else quantized(x)
    output = plain(shape) if dtype == "float32" else quantized(shape)
    case = Case(name, "GATHER", (data, tensor), (output,), {"axis": axis, "batch_dims": 0}, 1)
    return drawn(case, x[place]) if computed else case if dtype != "float32" else with_values(case)


def gather_nd(name: str, x: tuple[int, ...], chosen: tuple[int, ...], *, computed: bool) -> Case:
    """Elements or slices by tuples."""
    shape = (*chosen[:-1], *x[chosen[-1] :])
    tensor = plain(chosen, "int32") if computed else constant(indices(*chosen, below=x[: chosen[-1]]), "int32")
    case = Case(name, "GATHER_ND", (plain(x), tensor), (plain(shape),), {}, 1)
    return drawn(case, min(x[: chosen[-1]])) if computed else with_values(case)


def drawn(case: Case, size: int) -> Case:
    """The case with computed indices below `size`."""
    x, chosen = case.inputs
    assert x is not None and chosen is not None
    values = with_values(replace(case, inputs=(x,))).draw
    assert values is not None
    return replace(
        case, draw=lambda rng, sample: [*values(rng, sample), rng.integers(0, size, chosen.shape).astype(np.int32)]
    )


def blocks(
    name: str,
    opcode: str,
    x: tuple[int, ...],
    y: tuple[int, ...],
    block: tuple[int, ...],
    ends: tuple[int, ...],
    dtype: str = "",
) -> Case:
    """Images to batches, or back. ends: before and after of each dimension, one after the other."""
    pairs = constant(np.array(ends).reshape(-1, 2), "int32")
    if dtype:
        given = quantized(x, 0.1, 7, dtype), integers(*block), pairs
        return Case(name, opcode, given, (quantized(y, 0.1, 7, dtype),), {}, 1)
    return with_values(Case(name, opcode, (plain(x), integers(*block), pairs), (plain(y),), {}, 1))


def depth(name: str, opcode: str, x: tuple[int, ...], y: tuple[int, ...], block: int) -> Case:
    """Blocks to channels, or back."""
    return with_values(Case(name, opcode, (plain(x),), (plain(y),), {"block_size": block}, 1))


def bilinear(
    name: str, x: tuple[int, int, int, int], size: tuple[int, int], *, corners: bool = False, half: bool = False
) -> Case:
    """An image of another size."""
    options = {"align_corners": corners, "half_pixel_centers": half}
    y = (x[0], *size, x[3])
    return with_values(Case(name, "RESIZE_BILINEAR", (plain(x), integers(*size)), (plain(y),), options, 1), FINITE)


def extremum(opcode: str, axis: int, y: tuple[int, ...]) -> Case:
    """A search among floats."""
    inputs = (plain((3, 4, 5)), integers(axis))
    return with_values(
        Case(f"{opcode}_{axis}", opcode, inputs, (plain(y, "int32"),), {"output_type": "INT32"}, 1), FINITE
    )


CASES = [
    gather("gather_first", (4, 3), 0, (5,), computed=False),
    gather("gather_last", (4, 3), -1, (2, 2), computed=False),
    gather("gather_computed", (2, 4, 3), 1, (5,), computed=True),
    gather("gather_int8", (4, 6), 0, (3,), computed=False, dtype="int8"),
    gather_nd("gather_nd_elements", (3, 4, 2), (5, 3), computed=False),
    gather_nd("gather_nd_slices", (3, 4, 2), (2, 2, 1), computed=False),
    gather_nd("gather_nd_computed", (3, 4, 2), (6, 2), computed=True),
    gather_nd("gather_nd_computed_elements", (5,), (3, 1), computed=True),
    blocks("to_batch", "SPACE_TO_BATCH_ND", (1, 4, 6, 3), (6, 2, 2, 3), (2, 3), (0, 0, 0, 0)),
    blocks("to_batch_padded", "SPACE_TO_BATCH_ND", (2, 3, 4, 2), (8, 3, 4, 2), (2, 2), (1, 2, 3, 1)),
    blocks("to_batch_int8", "SPACE_TO_BATCH_ND", (1, 4, 4, 2), (4, 2, 2, 2), (2, 2), (0, 0, 0, 0), "int8"),
    blocks("to_batch_rows", "SPACE_TO_BATCH_ND", (2, 5, 3), (6, 2, 3), (3,), (1, 0)),
    blocks("to_space", "BATCH_TO_SPACE_ND", (6, 2, 2, 3), (1, 4, 6, 3), (2, 3), (0, 0, 0, 0)),
    blocks("to_space_cropped", "BATCH_TO_SPACE_ND", (8, 3, 4, 2), (2, 3, 4, 2), (2, 2), (1, 2, 3, 1)),
    blocks("to_space_int8", "BATCH_TO_SPACE_ND", (4, 2, 2, 2), (1, 3, 4, 2), (2, 2), (1, 0, 0, 0), "int8"),
    blocks("to_space_rows", "BATCH_TO_SPACE_ND", (6, 2, 3), (2, 5, 3), (3,), (1, 0)),
    depth("to_depth", "SPACE_TO_DEPTH", (2, 4, 6, 3), (2, 2, 3, 12), 2),
    depth("from_depth", "DEPTH_TO_SPACE", (2, 2, 3, 12), (2, 4, 6, 3), 2),
    *(bilinear(f"bilinear_{c}_{h}", (2, 3, 4, 2), (7, 5), corners=c, half=h) for c, h in ((0, 0), (1, 0), (0, 1))),
    *(bilinear(f"bilinear_smaller_{c}_{h}", (1, 9, 8, 1), (4, 3), corners=c, half=h) for c, h in ((0, 0), (1, 0), (0, 1))),
    bilinear("bilinear_to_one", (1, 3, 3, 2), (1, 1), corners=True),
    bilinear("bilinear_from_one", (1, 1, 1, 2), (3, 4), half=True),
    *(
        extremum(op, axis, y)
        for op in ("ARG_MAX", "ARG_MIN")
        for axis, y in ((0, (4, 5)), (-1, (3, 4)))
    ),
]  # fmt: skip


@pytest.fixture(scope="module")
def proven() -> Proven:
    """Every case, run three ways over four inputs."""
    return prove(CASES, samples=4)


@pytest.mark.parametrize("name", [case.id for case in CASES])
def test_reference_engine_and_c_are_equal(proven: Proven, name: str) -> None:
    check(proven.outcomes[name])


def test_no_memory_error(proven: Proven) -> None:
    assert proven.memory_errors == ()


def strided(
    name: str, x: tuple[int, ...], y: tuple[int, ...], lists: tuple[tuple[int, ...], ...], **masks: int
) -> Case:
    """STRIDED_SLICE with begins, ends and strides."""
    given = {f"{mask}_mask": masks.get(mask, 0) for mask in ("begin", "end", "ellipsis", "new_axis", "shrink_axis")}
    return with_values(Case(name, "STRIDED_SLICE", (plain(x), *(integers(*v) for v in lists)), (plain(y),), given, 1))


MASKED = [
    strided("dots_first", (2, 3, 4), (2, 3, 2), ((0, 1), (0, 3), (1, 1)), ellipsis=1),
    strided("dots_between", (2, 3, 4, 5), (1, 3, 4, 2), ((1, 0, 0), (2, 0, 4), (1, 1, 2)), ellipsis=2),
    strided("new_first", (2, 3), (1, 2, 2), ((0, 0, 1), (0, 2, 3), (1, 1, 1)), new_axis=1),
    strided("new_between", (2, 3), (2, 1, 3), ((0, 0, 0), (2, 0, 3), (1, 1, 1)), new_axis=2),
    strided("new_and_fewer", (2, 3, 4), (1, 1, 3, 4), ((0, 1), (1, 2), (1, 1)), new_axis=1),
    strided("new_and_dots", (2, 3, 4), (1, 2, 3, 2), ((0, 0, 2), (1, 0, 4), (1, 1, 1)), new_axis=1, ellipsis=2),
    strided("shrunk_behind_dots", (2, 3, 4), (2, 3), ((0, 2), (0, 3), (1, 1)), ellipsis=1, shrink_axis=2),
    strided("backwards", (2, 3, 4), (2, 3, 3), ((0, 3), (0, 0), (1, -1)), ellipsis=1),
    strided("masks_behind_dots", (2, 3, 4), (2, 3, 4), ((0, 3), (0, 1), (1, 1)), ellipsis=1, begin=2, end=2),
]


PADDED = [
    blocks("zero_points", "SPACE_TO_BATCH_ND", (2, 3, 4, 2), (8, 3, 4, 2), (2, 2), (1, 2, 3, 1), "int8"),
    blocks("zero_points_of_rows", "SPACE_TO_BATCH_ND", (2, 5, 3), (6, 2, 3), (3,), (1, 0), "int8"),
    blocks("zero_points_of_uint8", "SPACE_TO_BATCH_ND", (1, 3, 4, 1), (4, 2, 2, 1), (2, 2), (1, 0, 0, 0), "uint8"),
]


def test_pads_with_the_zero_point_as_litert_does() -> None:
    pytest.importorskip("ai_edge_litert", reason="the extra emitc[verify] is not installed")
    proven = prove(PADDED, engine="litert", samples=2)
    for outcome in proven.outcomes.values():
        outcome.check()
    assert proven.memory_errors == ()


@pytest.fixture(scope="module")
def masked() -> Proven:
    """ellipsis_mask and new_axis_mask, which TFLite Micro does not have."""
    pytest.importorskip("ai_edge_litert", reason="the extra emitc[verify] is not installed")
    return prove(MASKED, engine="litert", samples=2)


@pytest.mark.parametrize("name", [case.id for case in MASKED])
def test_masks_do_what_they_do_in_litert(masked: Proven, name: str) -> None:
    check(masked.outcomes[name])


def test_indices_outside_are_limited() -> None:
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    chosen = np.array([[7, -5], [-1, 1]], np.int32)
    case = replace(gather_nd("outside", (3, 2), (2, 2), computed=True), draw=lambda rng, sample: [x, chosen])
    proven = prove([case], engine=None, samples=1)
    assert proven.memory_errors == ()
    assert proven.outcomes["outside"].compiled[0][0].tolist() == [4.0, 1.0]


OUTSIDE = Case("outside", "GATHER", (plain((2, 3)), integers(3)), (plain((2, 1)),), {"axis": 1, "batch_dims": 0}, 1)
REFUSED = [
    (OUTSIDE, "2\nerror: GATHER takes slices 3 to 3\n"),
    (replace(OUTSIDE, inputs=(plain((2, 3)), integers(-1))), "2\nerror: GATHER takes slices -1 to -1\n"),
    (
        Case("nd", "GATHER_ND", (plain((2, 3)), integers(1, 3)), (plain(()),)),
        "2\nerror: GATHER_ND takes elements outside its input\n",
    ),
    (Case("nd", "GATHER_ND", (plain((2,)), integers(1, 1)), (plain(()),)), "2\nerror: GATHER_ND has indices "),
    (
        blocks("odd", "SPACE_TO_BATCH_ND", (1, 3, 4, 1), (4, 2, 2, 1), (2, 2), (0, 0, 0, 0)),
        "2\nerror: SPACE_TO_BATCH_ND with blocks of 2x2\n",
    ),
    (
        blocks("odd", "BATCH_TO_SPACE_ND", (3, 2, 2, 1), (1, 4, 4, 1), (2, 2), (0, 0, 0, 0)),
        "2\nerror: BATCH_TO_SPACE_ND with blocks of 2x2\n",
    ),
    (
        blocks("none", "SPACE_TO_BATCH_ND", (1, 4, 4, 1), (1, 4, 4, 1), (0, 2), (0, 0, 0, 0)),
        "2\nerror: SPACE_TO_BATCH_ND has blocks [0, 2] and paddings or crops [0, 0, 0, 0]\n",
    ),
    (
        blocks("rank", "SPACE_TO_BATCH_ND", (4, 4), (4, 4), (1, 1), (0, 0, 0, 0)),
        "2\nerror: SPACE_TO_BATCH_ND has 2 block sizes and 4 paddings or crops\n",
    ),
    (depth("odd", "SPACE_TO_DEPTH", (1, 3, 4, 1), (1, 1, 2, 4), 2), "2\nerror: SPACE_TO_DEPTH with blocks of 2x2\n"),
    (
        strided("nothing", (2, 3), (1, 2), ((1, 9, 0), (2, 9, 2), (1, 7, 1)), ellipsis=2),
        "1\nerror: STRIDED_SLICE with an ellipsis for no dimension is not supported\n",
    ),
    (
        blocks("zero_point", "SPACE_TO_BATCH_ND", (1, 3, 4, 1), (4, 2, 2, 1), (2, 2), (1, 0, 0, 0), "int32"),
        "1\nerror: SPACE_TO_BATCH_ND that pads a tensor of int32 with the zero point 7 is not supported\n",
    ),
    (strided("two", (2, 3), (2, 3), ((0, 0), (0, 0), (1, 1)), ellipsis=3), "2\nerror: STRIDED_SLICE has 2, 2, 2 begins"),
    (strided("many", (2,), (2,), ((0, 0, 0), (1, 1, 1), (1, 1, 1)), new_axis=1), "2\nerror: STRIDED_SLICE has 3, 3, 3 begins"),
]  # fmt: skip


@pytest.mark.parametrize(("case", "start"), REFUSED, ids=lambda v: v.id if isinstance(v, Case) else "")
def test_refusal(case: Case, start: str) -> None:
    assert message(case).startswith(start)

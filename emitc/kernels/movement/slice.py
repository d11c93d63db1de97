"""SLICE, STRIDED_SLICE and ONNX's Slice: some of the elements along each dimension.

Shapes  x [d0, ...]; y [count_0, ...] without the dimensions that shrink_axis_mask removes.   Types  any; scale and zero
point must not change.
SLICE: from `begin`, `size` elements or, for -1, the rest. STRIDED_SLICE: from `begin` to before `end` in steps of `stride`;
negative positions count from the end, then all are limited to the tensor; a set bit of begin_mask or end_mask stands for
the tensor's own end in the direction of the stride; a set bit of shrink_axis_mask takes the one element at `begin`.
ONNX's Slice: as STRIDED_SLICE without masks, along the axes that it lists; a start before the front is the front, also where
the step is negative. Lists are attributes up to version 9, inputs from 10 on.
A set bit of ellipsis_mask stands for all elements of as many dimensions as the others leave; a set bit of new_axis_mask for a
new dimension of size 1 in the output, which reads none of the input. Dimensions after the last position are whole.
LiteRT's reference kernel has these two masks, and does what numpy's `...` and `None` do. TFLite Micro does not have them.
Source  TFLite Micro's STRIDED_SLICE, which lets begin_mask win over `begin` also where the axis shrinks.
Errors  `offset`, which TFLite Micro ignores, and lists shorter than the rank, which it reads beyond their end: what such a model
        means there is not defined.

DYNAMIC_UPDATE_SLICE: a tensor with a part of it overwritten, at a place that is computed.

Shapes  x any of rank 1 or more, update of its rank and no larger, start [rank], y as x.   Types  any, start int32 or int64.
Each start is limited to where the update fits. y may be x, so that a cache is updated where it lies.
Source  TFLite Micro's kernel.   Errors  updates that need more than four nested loops; a change of scale or zero point.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op, Shape
from emitc.kernels.contract import KernelDef, Parsed, illegal, parser, unsupported
from emitc.kernels.shared import byte_moves
from emitc.kernels.shared.integer_attributes import axes_of, integer_list
from emitc.kernels.shared.pointwise import operand
from emitc.layer import KernelSpec, Layer, Param, Table, in_step, integers
from emitc.records import dataclass, replace
from emitc.source import SourceNode

Lists = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]


def written_out(
    node: SourceNode, lists: Lists, masks: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Begins, ends, strides and (begin, end, shrink) masks for every input dimension, and the places of new output dimensions.

    lists: begins, ends and strides as the file has them. Places are those in the output, ascending. Raises what is wrong: lists
    of different lengths, more than one ellipsis, more positions than dimensions.
    """
    rank, count = len(node.input(0).shape), len(lists[0])
    ellipsis, new = node.integer("ellipsis_mask", 0), node.integer("new_axis_mask", 0)
    dots = [i for i in range(count) if ellipsis >> i & 1]
    fresh = [i for i in range(count) if new >> i & 1 and i not in dots]
    covered = rank - (count - len(dots) - len(fresh))
    if len({len(values) for values in lists}) != 1 or len(dots) > 1 or covered < 0:
        what = f"has {', '.join(str(len(values)) for values in lists)} begins, ends and strides"
        why = f"with {len(dots)} ellipses and {len(fresh)} new dimensions they do not fit {rank} dimensions"
        raise node.refusal(what, why, tensor=node.input(0))
    if dots and not covered:
        what = "with an ellipsis for no dimension is not supported"
        why = "LiteRT takes it for one all the same, and leaves out a position after it"
        raise node.unsupported(what, why, "export the model without the ellipsis")
    rows: list[tuple[int, ...]] = []
    bits = [0, 0, 0]
    inserted: list[int] = []
    place = 0
    # Without an ellipsis, one at the end is meant.
    for i in range(count if dots else count + 1):
        if i in fresh:
            inserted.append(place)
            place += 1
            continue
        whole = i in dots or i == count
        for _ in range(covered if whole else 1):
            axis = len(rows)
            rows.append((0, 0, 1) if whole else tuple(values[i] for values in lists))
            for which, mask in enumerate(masks):
                bits[which] |= (int(which < 2) if whole else mask >> i & 1) << axis
            place += not bits[2] >> axis & 1
    begins, ends, steps = zip(*rows, strict=True) if rows else ((), (), ())
    return begins, ends, steps, tuple(bits), tuple(inserted)


@dataclass(frozen=True, slots=True)
class Slice(Op):
    """Per input dimension: position of the first element, distance to the next (may be negative), number of elements."""

    starts: tuple[int, ...]
    steps: tuple[int, ...]
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StridedSlice(Slice):
    """shrunk: dimensions (of one element) that the output does not have. inserted: places of new ones, of size 1, in it."""

    shrunk: frozenset[int]
    inserted: tuple[int, ...] = ()


def _slice_from_tflite(node: SourceNode) -> Parsed:
    node.counts((3, 3))
    shape = node.input(0).shape
    begins, sizes = node.constant_integers(1, "begin"), node.constant_integers(2, "size")
    if not len(begins) == len(sizes) == len(shape):
        what = f"has {len(begins)} begins and {len(sizes)} sizes"
        raise node.refusal(what, f"one for each of {len(shape)} dimensions")
    counts = tuple(dim - begin if size == -1 else size for dim, begin, size in zip(shape, begins, sizes, strict=True))
    if any(
        begin < 0 or count < 0 or begin + count > dim for dim, begin, count in zip(shape, begins, counts, strict=True)
    ):
        raise node.refusal("reaches outside its input", f"begin {list(begins)}, size {list(sizes)} of {list(shape)}")
    return Parsed(Slice(begins, (1,) * len(shape), counts))


def _reverse_from_tflite(node: SourceNode) -> Parsed:
    """REVERSE_V2: the dimensions that a constant names run backwards."""
    node.counts((2, 2))
    shape = node.input(0).shape
    axes = axes_of(node, node.constant_integers(1, "axes"), len(shape))
    starts = tuple(size - 1 if axis in axes else 0 for axis, size in enumerate(shape))
    return Parsed(Slice(starts, tuple(-1 if axis in axes else 1 for axis in range(len(shape))), shape))


def _position(position: int, size: int, stride: int) -> int:
    """A begin or end as an index: from the front, within the tensor or one element outside in the direction of the stride."""
    index = position + size if position < 0 else position
    return min(max(index, 0), size) if stride > 0 else min(max(index, -1), size - 1)


def _strided_slice_from_tflite(node: SourceNode) -> Parsed:
    node.counts((4, 4))
    shape = node.input(0).shape
    if node.attribute("offset", 0):
        why = "TFLite Micro, whose result is to be matched, ignores it"
        hint = "export the model with ends that count from the front"
        raise node.unsupported("with offset is not supported", why, hint)
    begins, ends = node.constant_integers(1, "begin"), node.constant_integers(2, "end")
    steps = node.constant_integers(3, "strides")
    masks = tuple(node.integer(f"{name}_mask", 0) for name in ("begin", "end", "shrink_axis"))
    inserted: tuple[int, ...] = ()
    if node.attribute("ellipsis_mask", 0) or node.attribute("new_axis_mask", 0):
        begins, ends, steps, masks, inserted = written_out(node, (begins, ends, steps), masks)
    if not len(begins) == len(ends) == len(steps) == len(shape):
        what = "with a begin, end and stride for some of the dimensions is not supported"
        why = f"{len(begins)}, {len(ends)} and {len(steps)} are given for {len(shape)} dimensions"
        raise node.unsupported(what, why, "export with the positions of every dimension written out")
    if 0 in steps:
        raise node.refusal("has a stride of 0", f"strides {list(steps)}")
    begin_mask, end_mask, shrink_mask = masks
    starts, counts = [], []
    for axis, (size, step) in enumerate(zip(shape, steps, strict=True)):
        first, last = (0, size) if step > 0 else (size - 1, -1)
        start = first if begin_mask >> axis & 1 else _position(begins[axis], size, step)
        end = last if end_mask >> axis & 1 else _position(ends[axis], size, step)
        count = max(0, -((start - end) // step))
        if shrink_mask >> axis & 1:
            if step < 0 or start >= size:
                why = f"the dimension has {size} elements, and a dimension shrinks with a positive stride only"
                raise node.refusal(f"takes element {begins[axis]} of dimension {axis} with stride {step}", why)
            count = 1
        starts.append(start)
        counts.append(count)
    shrunk = frozenset(axis for axis in range(len(shape)) if shrink_mask >> axis & 1)
    return Parsed(StridedSlice(tuple(starts), steps, tuple(counts), shrunk, inserted))


def _slice_from_onnx(node: SourceNode) -> Parsed:
    node.counts((1, 5))
    shape = node.input(0).shape
    starts, ends = integer_list(node, "starts", 1), integer_list(node, "ends", 2)
    if starts is None or ends is None:
        raise node.refusal("has no starts or ends", "both are needed")
    axes, steps = integer_list(node, "axes", 3), integer_list(node, "steps", 4)
    axes = tuple(range(len(starts))) if axes is None else axes
    steps = (1,) * len(starts) if steps is None else steps
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        what = f"has {len(starts)} starts, {len(ends)} ends, {len(axes)} axes and steps {list(steps)}"
        raise node.refusal(what, "one of each is expected for every axis, and steps other than 0")
    first, step, count = [0] * len(shape), [1] * len(shape), list(shape)
    for i, axis in enumerate(axes_of(node, axes, len(shape))):
        size = shape[axis]
        step[axis] = steps[i]
        first[axis] = max(_position(starts[i], size, steps[i]), 0)
        count[axis] = max(0, -((first[axis] - _position(ends[i], size, steps[i])) // steps[i]))
        if count[axis] <= 1:  # a step from INT64_MIN on would not fit the C
            step[axis] = 1
    return Parsed(Slice(tuple(first), tuple(step), tuple(count)))


def _walk(bound: BoundNode) -> byte_moves.StridedLoop:
    """Forward through the output."""
    op, x = bound.op(Slice), bound.input(0)
    lines = byte_moves.strides(x.shape, x.dtype.bytes)
    start = sum(first * line for first, line in zip(op.starts, lines, strict=True))
    x_steps = [step * line for step, line in zip(op.steps, lines, strict=True)]
    return byte_moves.walk(op.counts, x_steps, byte_moves.strides(op.counts, x.dtype.bytes), x.dtype.bytes, start)


def _output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    op = bound.op(Slice)
    if not isinstance(op, StridedSlice):
        return (op.counts,)
    shape = [count for axis, count in enumerate(op.counts) if axis not in op.shrunk]
    for place in op.inserted:
        shape.insert(place, 1)
    return (tuple(shape),)


def _reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    op, values = bound.op(Slice), operand(bound, inputs, 0)
    for axis, (start, step, count) in enumerate(zip(op.starts, op.steps, op.counts, strict=True)):
        values = np.take(values, start + step * np.arange(count), axis)
    return (values.reshape(_output_shapes(bound)[0]),)


def _transposed(bound: BoundNode, permutation: tuple[int, ...]) -> Op:
    op, order = bound.op(Slice), np.argsort(permutation)
    starts, steps, counts = (tuple(values[i] for i in order) for values in (op.starts, op.steps, op.counts))
    return replace(op, starts=starts, steps=steps, counts=counts)


_kernel = partial(
    KernelDef,
    check=lambda bound: byte_moves.check_walk(bound, _walk(bound)),
    reference=_reference,
    lower=lambda bound: byte_moves.move_layer(bound, _walk(bound)),
    output_shapes=_output_shapes,
)


_UPDATE, _START = 1, 2
_LOOPS = 4
_INDICES = (DType.INT32, DType.INT64)


class DynamicUpdateSlice(Op):
    """x, and in it the update."""


def _update_walk(bound: BoundNode) -> byte_moves.StridedLoop:
    shape, size = bound.input(_UPDATE).shape, bound.input(0).dtype.bytes
    x_steps, y_steps = (byte_moves.strides(dims, size) for dims in (shape, bound.input(0).shape))
    return byte_moves.walk(shape, x_steps, y_steps, size)


def _check_update(bound: BoundNode) -> None:
    x, update, start = bound.input(0), bound.input(_UPDATE), bound.input(_START)
    if start.dtype not in _INDICES:
        raise illegal(bound, f"has a start of type {start.dtype.value}", "int32 or int64 is expected", tensor=start)
    fits = len(x.shape) == len(update.shape) and all(a >= b > 0 for a, b in zip(x.shape, update.shape, strict=True))
    if not x.shape or not fits or start.shape != (len(x.shape),):
        why = f"{list(update.shape)} into {list(x.shape)}, at a start of shape {list(start.shape)}"
        raise illegal(bound, "has an update that does not fit", why, tensor=update)
    byte_moves.require_same_values(bound, x, update, bound.output)
    loops = len(_update_walk(bound).loops)
    if loops > _LOOPS:
        hint = "merge neighbouring dimensions"
        raise unsupported(bound, f"needs {loops} nested loops", f"there is code for {_LOOPS}", hint, update)


def _update_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    x, update, start = (operand(bound, inputs, position) for position in (0, _UPDATE, _START))
    first = np.clip(start.astype(np.int64), 0, np.array(x.shape) - np.array(update.shape))
    y = x.copy()
    y[tuple(slice(int(a), int(a) + n) for a, n in zip(first, update.shape, strict=True))] = update
    return (y,)


def _lower_update(bound: BoundNode) -> Layer:
    """The tensor is copied unless it is in place; then runs of the update."""
    x, update = bound.input(0), bound.input(_UPDATE)
    strided = _update_walk(bound)
    loops = [(1, 0)] * (_LOOPS - len(strided.loops)) + [(loop.count, loop.y_step) for loop in reversed(strided.loops)]
    largest_start = tuple(a - b for a, b in zip(x.shape, update.shape, strict=True))
    tables = (
        Table("room", "int32_t", largest_start, "the largest start along each dimension"),
        Table("stride", "int32_t", byte_moves.strides(x.shape, x.dtype.bytes), "bytes from one index to the next"),
    )
    params = (
        *integers(bytes=(x.size_bytes, "of the tensor"), rank=len(x.shape)),
        *(
            Param(name, "int32_t", value)
            for i, (count, step) in enumerate(loops)
            for name, value in ((f"n{i}", count), (f"y{i}", step))
        ),
        Param("run_bytes", "int32_t", strided.run_bytes, "copied at a time"),
    )
    index = bound.input(_START).dtype
    spec = KernelSpec("" if index is DType.INT32 else "_s64", w=index.c_type)
    overlaps = () if x.is_constant else (in_step(bound),)
    operands = (0, _UPDATE, _START)
    template = "movement/dynamic_update_slice"
    return Layer(template, "portable", operands, tables, params, overlaps=overlaps, spec=spec)


KERNELS = (
    _kernel(
        Slice,
        "a box of the tensor",
        tflite={"SLICE": _slice_from_tflite, "REVERSE_V2": _reverse_from_tflite},
        onnx={"Slice": _slice_from_onnx},
        transposed=_transposed,
        moves=True,
    ),
    _kernel(
        StridedSlice, "every n-th element along each dimension", tflite={"STRIDED_SLICE": _strided_slice_from_tflite}
    ),
    KernelDef(
        DynamicUpdateSlice,
        "a part of a tensor overwritten, at a computed place",
        tflite={"DYNAMIC_UPDATE_SLICE": parser(DynamicUpdateSlice(), inputs=3)},
        check=_check_update,
        reference=_update_reference,
        lower=_lower_update,
    ),
)

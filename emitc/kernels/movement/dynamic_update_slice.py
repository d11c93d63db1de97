"""DYNAMIC_UPDATE_SLICE: a tensor with a part of it overwritten, at a place that is computed.

Shapes  x any of rank 1 or more, update of its rank and no larger, start [rank], y as x.   Types  any, start int32 or int64.
Each start is limited to where the update fits. y may be x, so that a cache is updated where it lies.
Source  TFLite Micro's kernel.   Errors  updates that need more than four nested loops; a change of scale or zero point.
"""

from collections.abc import Sequence

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op
from emitc.kernels.contract import KernelDef, illegal, parser, unsupported
from emitc.kernels.shared.pointwise import operand
from emitc.kernels.shared.strided_copy import StridedLoop, require_same_values, strides, walk
from emitc.layer import KernelSpec, Layer, Param, Table, in_step, integers

_UPDATE, _START = 1, 2
_LOOPS = 4
_INDICES = (DType.INT32, DType.INT64)


class DynamicUpdateSlice(Op):
    """x, and in it the update."""


def _walk(bound: BoundNode) -> StridedLoop:
    x, update = bound.input(0), bound.input(_UPDATE)
    size = x.dtype.bytes
    return walk(update.shape, strides(update.shape, size), strides(x.shape, size), size)


def _check(bound: BoundNode) -> None:
    x, update, start = bound.input(0), bound.input(_UPDATE), bound.input(_START)
    if start.dtype not in _INDICES:
        raise illegal(bound, f"has a start of type {start.dtype.value}", "int32 or int64 is expected", tensor=start)
    fits = len(x.shape) == len(update.shape) and all(a >= b > 0 for a, b in zip(x.shape, update.shape, strict=True))
    if not x.shape or not fits or start.shape != (len(x.shape),):
        why = f"{list(update.shape)} into {list(x.shape)}, at a start of shape {list(start.shape)}"
        raise illegal(bound, "has an update that does not fit", why, tensor=update)
    require_same_values(bound, x, update, bound.output)
    loops = len(_walk(bound).loops)
    if loops > _LOOPS:
        hint = "merge neighbouring dimensions"
        raise unsupported(bound, f"needs {loops} nested loops", f"there is code for {_LOOPS}", hint, update)


def _reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    x, update, start = (operand(bound, inputs, position) for position in (0, _UPDATE, _START))
    first = np.clip(start.astype(np.int64), 0, np.array(x.shape) - np.array(update.shape))
    y = x.copy()
    y[tuple(slice(int(a), int(a) + n) for a, n in zip(first, update.shape, strict=True))] = update
    return (y,)


def _lower(bound: BoundNode) -> Layer:
    """The tensor is copied unless it is in place; then runs of the update."""
    x, update = bound.input(0), bound.input(_UPDATE)
    strided = _walk(bound)
    loops = [(1, 0)] * (_LOOPS - len(strided.loops)) + [(loop.count, loop.y_step) for loop in reversed(strided.loops)]
    largest_start = tuple(a - b for a, b in zip(x.shape, update.shape, strict=True))
    tables = (
        Table("room", "int32_t", largest_start, "the largest start along each dimension"),
        Table("stride", "int32_t", strides(x.shape, x.dtype.bytes), "bytes from one index to the next"),
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
    KernelDef(
        DynamicUpdateSlice,
        "a part of a tensor overwritten, at a computed place",
        tflite={"DYNAMIC_UPDATE_SLICE": parser(DynamicUpdateSlice(), inputs=3)},
        check=_check,
        reference=_reference,
        lower=_lower,
    ),
)

"""TRANSPOSE: dimensions in another order.

Shapes  x [d0, ...], y [d_perm[0], d_perm[1], ...].   Types  any; scale and zero point must not change.
ONNX's permutation is an attribute; without one the dimensions are reversed.
Rows and columns of a matrix with few of either, such as the channels of an image, change places where they lie: the input of
a model in NCHW has no second copy. Element i of R x C goes to i * R modulo R * C - 1; the last one stays (the textbook's
in-place transposition, which follows the cycles of that permutation; here their first elements are a table).
Errors  a permutation that does not name every dimension once; negative entries, which neither format allows.
"""

import numpy as np

from emitc.ir import BoundNode, Op, Shape
from emitc.kernels.contract import KernelDef, Parsed
from emitc.kernels.shared.byte_moves import StridedLoop, check_walk, move_layer, strides, walk
from emitc.kernels.shared.integer_attributes import listed
from emitc.kernels.shared.pointwise import operand
from emitc.layer import PLAIN, Layer, Overlap, ReadAllFirst, Table, integers
from emitc.records import dataclass, replace
from emitc.source import SourceNode

MAX_LINES = 4
"""Rows or columns, whichever are fewer, of a matrix that is transposed where it lies: the kernel subtracts that often at most
to find an element's place."""
MAX_ELEMENTS = 1 << 20
"""Of such a matrix: its cycles are found one element at a time."""
_TABLE_SHARE = 8
"""The table of cycles takes at most this part of the bytes that it saves."""


@dataclass(frozen=True, slots=True)
class Transpose(Op):
    """permutation: for each output dimension, the input dimension that it is."""

    permutation: tuple[int, ...]


def _parsed(node: SourceNode, permutation: tuple[int, ...]) -> Parsed:
    """The operator; refuses what is no permutation of the input's dimensions."""
    rank = len(node.input(0).shape)
    if sorted(permutation) != list(range(rank)):
        raise node.refusal(f"has the permutation {list(permutation)}", f"each of 0 to {rank - 1} is expected once")
    return Parsed(Transpose(permutation))


def _from_tflite(node: SourceNode) -> Parsed:
    node.counts((2, 2))
    return _parsed(node, node.constant_integers(1, "permutation"))


def _from_onnx(node: SourceNode) -> Parsed:
    """The attribute `perm`, by default the dimensions from last to first."""
    node.counts((1, 1))
    permutation = listed(node, "perm")
    return _parsed(node, tuple(reversed(range(len(node.input(0).shape)))) if permutation is None else permutation)


def _permutation(bound: BoundNode) -> tuple[int, ...]:
    return bound.op(Transpose).permutation


def _walk(bound: BoundNode) -> StridedLoop:
    """Forward through the output."""
    x, (shape,) = bound.input(0), _output_shapes(bound)
    x_steps = strides(x.shape, x.dtype.bytes)
    return walk(shape, [x_steps[axis] for axis in _permutation(bound)], strides(shape, x.dtype.bytes), x.dtype.bytes)


def _output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    return (tuple(bound.input(0).shape[axis] for axis in _permutation(bound)),)


def _matrices(loop: StridedLoop, element_bytes: int) -> tuple[int, int, int] | None:
    """How many matrices, one after the other, a walk transposes element by element, their rows and columns.

    None where it does something else.
    """
    if loop.run_bytes != element_bytes or len(loop.loops) not in (2, 3):
        return None
    down, along, *outer = loop.loops
    rows, columns = down.count, along.count
    size = rows * columns * element_bytes
    if (down.y_step, along.x_step) != (element_bytes, element_bytes):
        return None
    if (down.x_step, along.y_step) != (columns * element_bytes, rows * element_bytes):
        return None
    if outer and (outer[0].x_step, outer[0].y_step) != (size, size):
        return None
    return outer[0].count if outer else 1, rows, columns


def cycles(factor: int, last: int) -> tuple[int, ...]:
    """The smallest element of every cycle of i -> i * factor modulo last, those of one element left out.

    >>> cycles(3, 14), cycles(2, 3)
    ((1, 2), (1,))
    """
    starts: list[int] = []
    seen = bytearray(last)
    for start in range(1, last):
        if seen[start]:
            continue
        i, length = start, 0
        while not seen[i]:
            seen[i] = 1
            i, length = i * factor % last, length + 1
        if length > 1:
            starts.append(start)
    return tuple(starts)


def _in_place(bound: BoundNode, loop: StridedLoop) -> Layer | None:
    """The layer that needs no second place; None where none exists, or its table of cycles would be long."""
    x = bound.input(0)
    matrices = _matrices(loop, x.dtype.bytes)
    if matrices is None or x.is_constant or x.dtype.packed:
        return None
    count, rows, columns = matrices
    factor, elements = min(rows, columns), rows * columns
    if factor > MAX_LINES or elements > MAX_ELEMENTS:
        return None
    starts = cycles(factor, elements - 1)
    table = Table("starts", "int32_t", starts, "an element of every cycle")
    if table.size_bytes * _TABLE_SHARE > x.size_bytes:
        return None
    c_type = x.dtype.c_type
    spec = replace(PLAIN, suffix=f"_{c_type.removesuffix('_t')}{'_pull' if columns < rows else ''}", x=c_type, y=c_type)
    params = integers(
        matrices=count,
        elements=(elements, f"{rows} x {columns}"),
        factor=factor,
        cycles=len(starts),
    )
    overlap = Overlap(0, 0, ReadAllFirst(x.size_bytes))
    return Layer("movement/transpose_in_place", "portable", (0,), (table,), params, spec=spec, overlaps=(overlap,))


def _lower(bound: BoundNode) -> Layer:
    """Where it lies, if few rows or columns change places; else one walk: dimensions that stay together are copied together."""
    strided = _walk(bound)
    return _in_place(bound, strided) or move_layer(bound, strided)


KERNELS = (
    KernelDef(
        Transpose,
        "dimensions in another order",
        tflite={"TRANSPOSE": _from_tflite},
        onnx={"Transpose": _from_onnx},
        check=lambda bound: check_walk(bound, _walk(bound)),
        reference=lambda bound, inputs: (np.transpose(operand(bound, inputs, 0), _permutation(bound)),),
        lower=_lower,
        output_shapes=_output_shapes,
        moves=True,
    ),
)

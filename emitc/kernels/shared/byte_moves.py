"""Moves of bytes from one tensor to another, for every element type: what the operators that compute nothing share.

Walks (PAD, SLICE, TRANSPOSE): a StridedLoop is a nest of loops around one copy of a contiguous run. Dimensions that lie next to
each other in both tensors are merged, so that most moves need no loop or one. Everything is in bytes; steps may be negative on
the reading side.

Picks (Gather, Tile, Expand, PAD by reflection, Resize by the nearest): y[i, j, ...] = x[positions[0][i], positions[1][j], ...].
Positions at equal distances along every axis are a walk without tables; otherwise each axis whose positions are not simply 0,
1, 2, ... gets a table of byte offsets.

Joined and cut tensors (CONCATENATION, PACK, SPLIT, UNPACK): seen from the axis at which they meet, every tensor is [rows,
row_bytes]; all have the same rows, and a row of the whole is the rows of the parts one after the other.
"""

import math
from collections.abc import Callable, Sequence
from itertools import groupby

import numpy as np

from emitc.ir import Array, BoundNode, DType, Numerics, Shape, Tensor
from emitc.kernels.contract import Variant, illegal, require_same_quantization, unsupported
from emitc.kernels.costs import UNKNOWN_VECTORS
from emitc.layer import ElementwiseOrder, Inside, Layer, Overlap, Param, Table, integers
from emitc.numerics.requantize import Int64
from emitc.records import dataclass, replace
from emitc.source import SourceNode

MAX_LOOPS = 6
"""Loops of the kernel `strided_copy`."""


@dataclass(frozen=True, slots=True)
class Loop:
    """count passes; after each, the reading side advances by x_step bytes and the writing side by y_step."""

    count: int
    x_step: int
    y_step: int


@dataclass(frozen=True, slots=True)
class StridedLoop:
    """Runs of run_bytes from x_start + i * x_step to y_start + i * y_step; loops are innermost first."""

    run_bytes: int
    loops: tuple[Loop, ...]
    x_start: int = 0
    y_start: int = 0


def strides(shape: Shape, element_bytes: int) -> tuple[int, ...]:
    """Bytes from one element to the next along each dimension of a row-major tensor.

    >>> strides((2, 3, 4), 1)
    (12, 4, 1)
    """
    return tuple(element_bytes * math.prod(shape[i + 1 :]) for i in range(len(shape)))


def walk(
    shape: Shape, x_steps: Sequence[int], y_steps: Sequence[int], element_bytes: int, x_start: int = 0, y_start: int = 0
) -> StridedLoop:
    """The shortest nest that moves `shape` elements, which lie x_steps[i] and y_steps[i] bytes from each other along dimension
    i.

    >>> walk((2, 3, 4), (12, 4, 1), (24, 4, 1), 1)
    StridedLoop(run_bytes=12, loops=(Loop(count=2, x_step=12, y_step=24),), x_start=0, y_start=0)
    """
    run = element_bytes
    loops: list[Loop] = []
    for count, x_step, y_step in reversed(list(zip(shape, x_steps, y_steps, strict=True))):
        if count == 1:
            continue
        inner = loops[-1] if loops else None
        if inner is None and x_step == y_step == run:
            run *= count
        elif inner and (x_step, y_step) == (inner.count * inner.x_step, inner.count * inner.y_step):
            loops[-1] = Loop(inner.count * count, inner.x_step, inner.y_step)
        else:
            loops.append(Loop(count, x_step, y_step))
    return StridedLoop(run, tuple(loops), x_start, y_start)


def require_same_type(bound: BoundNode) -> None:
    """Refuses operands and outputs whose element type, scale or zero point differ: a move changes no value.

    Integers of ONNX are moved as they are, whatever they stand for; between float32 values that were quantized, the scales
    count.
    """
    first = bound.input(0)
    tensors = (*(t for t in bound.inputs[1:] if t is not None), *bound.outputs)
    if bound.node.op.numerics is not Numerics.TFLITE:
        require_same_values(bound, first, *tensors)
        return
    for tensor in tensors:
        if tensor.dtype is not first.dtype:
            why = f"{first.dtype.value} and {tensor.dtype.value}, but the operator copies values"
            raise illegal(bound, "changes the element type", why, tensor=tensor)
        if first.quantization and tensor.quantization:
            require_same_quantization(bound, first, tensor)


def require_same_values(bound: BoundNode, first: Tensor, *others: Tensor) -> None:
    """`require_same_type` for a model from ONNX: what differs there is legal, but has no code."""
    for tensor in others:
        quantizations = (first.quantization, tensor.quantization)
        if tensor.dtype is first.dtype and (
            bound.node.op.numerics is Numerics.QOPERATOR or quantizations[0] == quantizations[1]
        ):
            continue
        what = "from one quantization to another is not supported"
        why = f"the operator moves values: {first.describe()} and {tensor.describe()}"
        raise unsupported(bound, what, why, "quantize both alike", tensor)


def check_walk(bound: BoundNode, loop: StridedLoop) -> None:
    """Refuses a change of type, scale or zero point, and more loops than there is code for."""
    require_same_type(bound)
    if len(loop.loops) > MAX_LOOPS:
        why = f"the kernel has {MAX_LOOPS}; neighbouring dimensions that move together count as one"
        hint = "move fewer dimensions at once, for example by two operators"
        raise unsupported(bound, f"needs {len(loop.loops)} nested loops", why, hint, bound.input(0))


def values_table(role: str, values: Array, comment: str) -> Table:
    """A constant as a table for a kernel on bytes. Floats that have no decimal (infinities, NaN) go by their bits."""
    flat = np.ascontiguousarray(values).reshape(-1)
    dtype = DType(flat.dtype.name)
    if dtype is DType.FLOAT32 and not np.isfinite(flat.astype(np.float32)).all():
        return Table(role, "int32_t", tuple(flat.view(np.int32).tolist()), f"{comment}, float32 by its bits")
    if dtype is DType.FLOAT64 and not np.isfinite(flat.astype(np.float64)).all():
        return Table(role, "int64_t", tuple(flat.view(np.int64).tolist()), f"{comment}, float64 by its bits")
    if dtype is DType.BOOL:
        flat = flat.astype(np.uint8)
    return Table(role, dtype.c_type, tuple(flat.tolist()), comment)


def data_operands(tensor: Tensor, position: int = 0, comment: str = "") -> tuple[tuple[int, ...], tuple[Table, ...]]:
    """Layer.operands and Layer.tables for an input: passed as `x`, or the table `x` when it is a constant."""
    if not tensor.is_constant:
        return (position,), ()
    return (), (values_table("x", tensor.array(), comment or f"constant input {list(tensor.shape)}"),)


def move_layer(bound: BoundNode, strided: StridedLoop, fill: Table | None = None) -> Layer:
    """The layer of a walk: one memmove where no loop is left, else nested loops.

    fill: table `padding_byte` or `padding`, a byte or an element that is written everywhere in the output first, for what
    the walk leaves out. y may share memory with x where it is one memmove, and start up to x_start bytes above it.
    """
    operands, tables = data_operands(bound.input(0))
    if not strided.loops and fill is None:
        return Layer(
            "movement/copy_run",
            operands=operands,
            tables=tables,
            params=integers(x_start=(strided.x_start, "bytes"), run_bytes=strided.run_bytes),
            overlaps=(Overlap(0, 0, ElementwiseOrder(strided.run_bytes, first=strided.x_start)),) if operands else (),
            inside=(Inside(output=True, position=0, offset_bytes=strided.x_start),) if operands else (),
        )
    params = [Param("run_bytes", "int32_t", strided.run_bytes, "copied at a time")]
    if strided.x_start:
        params.append(Param("x_start", "int32_t", strided.x_start, "bytes before the first run in x"))
    if strided.y_start:
        params.append(Param("y_start", "int32_t", strided.y_start, "bytes before the first run in y"))
    for level, loop in enumerate(strided.loops):
        params += [
            Param(f"count_{level}", "int32_t", loop.count, "innermost loop" if level == 0 else ""),
            Param(f"x_step_{level}", "int32_t", loop.x_step),
            Param(f"y_step_{level}", "int32_t", loop.y_step),
        ]
    return Layer("movement/strided_copy", "portable", operands, tables + ((fill,) if fill else ()), tuple(params))


OUTSIDE = -1
"""A position that lies in no element: y gets the fill value there."""
_OUTSIDE_BYTES = -(1 << 28)
"""Its offset: so low that the sum with the offsets of other axes is negative, and that eight of them fit int32."""
_MAX_POSITIONS = (1 << 16) - 1
"""Of one axis with a table."""
_MAX_FILL = 256
"""Elements of the largest run that is written from a table of fill values."""


def progression(positions: Int64) -> tuple[int, int] | None:
    """First position and distance of positions at equal distances, None for others and for positions outside.

    >>> progression(np.array([4, 2, 0])), progression(np.array([0, 1, 1]))
    ((4, -2), None)
    """
    first = int(positions[0])
    step = int(positions[1]) - first if positions.size > 1 else 1
    regular = positions.min() >= 0 and bool((positions == first + step * np.arange(positions.size)).all())
    return (first, step) if regular else None


def _is_whole(positions: Int64, size: int) -> bool:
    return positions.size == size and progression(positions) == (0, 1)


def picked_walk(shape: Shape, positions: Sequence[Int64], element_bytes: int) -> StridedLoop | None:
    """The walk through x of `shape` that picks the positions; None where it needs tables, or too many loops."""
    lines = [progression(axis) for axis in positions]
    if None in lines:
        return None
    steps = strides(shape, element_bytes)
    counts = tuple(axis.size for axis in positions)
    start = sum(line[0] * step for line, step in zip(lines, steps, strict=True) if line)
    x_steps = [line[1] * step for line, step in zip(lines, steps, strict=True) if line]
    loops = walk(counts, x_steps, strides(counts, element_bytes), element_bytes, start)
    return loops if len(loops.loops) <= MAX_LOOPS else None


def require_pickable(bound: BoundNode, shape: Shape, positions: Sequence[Int64]) -> None:
    """Refuses positions that need a table of more than 65535 entries along one axis."""
    if picked_walk(shape, positions, bound.input(0).dtype.bytes) is not None:
        return
    for size, axis in zip(shape, positions, strict=True):
        if axis.size > _MAX_POSITIONS and not _is_whole(axis, size):
            what = f"with {axis.size} positions along one dimension is not supported"
            why = f"they go into a table, and {_MAX_POSITIONS} is the limit"
            raise unsupported(bound, what, why, "split the operator", bound.output)


def picked(x: Array, positions: Sequence[Int64], fill: int | float = 0) -> Array:
    """The reference: numpy's take along every axis, with `fill` for positions outside."""
    values: Array = x[np.ix_(*(np.maximum(chosen, 0) for chosen in positions))]
    for axis, chosen in enumerate(positions):
        if (chosen == OUTSIDE).any():
            outside = (chosen == OUTSIDE).reshape([-1 if i == axis else 1 for i in range(len(positions))])
            values = np.where(outside, np.array(fill, x.dtype), values)
    return np.asarray(values)


def pick_layer(bound: BoundNode, shape: Shape, positions: Sequence[Int64], fill: int | float = 0) -> Layer:
    """The layer that picks `positions` of input 0, seen as a tensor of `shape`, in the order of the output.

    fill: value at positions outside, in the tensor's own type.
    """
    x = bound.input(0)
    loops = picked_walk(shape, positions, x.dtype.bytes)
    if loops is not None:
        return move_layer(bound, loops)
    filled = any(bool((axis == OUTSIDE).any()) for axis in positions)
    axes: list[tuple[int, Int64 | None]] = []
    pairs = zip(shape, positions, strict=True)
    for whole, group in groupby(pairs, key=lambda pair: _is_whole(pair[1], pair[0])):
        members = list(group)
        axes += [(math.prod(size for size, _ in members), None)] if whole else members
    run = 1
    if axes[-1][1] is None and (not filled or axes[-1][0] <= _MAX_FILL):
        run = axes.pop()[0]
    planes = axes.pop(0)[0] if len(axes) > 1 and axes[0][1] is None else 1
    run_bytes = run * x.dtype.bytes
    steps = strides(tuple(size for size, _ in axes), run_bytes)
    walked = [np.arange(size) if chosen is None else chosen for size, chosen in axes]
    counts = tuple(loop.size for loop in walked)
    offsets = tuple(
        int(v) * step if v != OUTSIDE else _OUTSIDE_BYTES
        for indices, step in zip(walked, steps, strict=True)
        for v in indices
    )
    operands, tables = data_operands(x)
    tables += (
        Table("counts", "int32_t", counts, "positions along each dimension, the last is the innermost loop"),
        Table("offsets", "int32_t", offsets, "bytes to the positions along each dimension, one after the other"),
    )
    if filled:
        values = np.full(run, fill, x.dtype.value)
        tables += (values_table("fill", values, "what a run outside the input holds"),)
    params = (
        Param("planes", "int32_t", planes),
        Param("plane_bytes", "int32_t", math.prod(size for size, _ in axes) * run_bytes),
        Param("levels", "int32_t", len(counts), "dimensions with positions"),
        Param("run_bytes", "int32_t", run_bytes, "copied at a time"),
    )
    return Layer("movement/pick", "portable", operands, tables, params)


MAX_PARTS = 64
"""Parts of one layer: C compilers need not take more than 127 parameters."""


def axis_of(node: SourceNode, axis: int, rank: int) -> int:
    """`axis` counted from the front, of a tensor of `rank` dimensions; negative values count from the end."""
    if not -rank <= axis < rank:
        raise node.refusal(f"has axis {axis}", f"the tensor has {rank} dimensions")
    return axis % rank


def check_parts(bound: BoundNode) -> None:
    """Refuses a change of type, scale or zero point, and more than MAX_PARTS parts."""
    require_same_type(bound)
    require_few(bound)


def require_few(bound: BoundNode) -> None:
    parts = max(len(bound.inputs), len(bound.outputs))
    if parts > MAX_PARTS:
        what = f"of {parts} tensors is not supported"
        raise unsupported(bound, what, f"{MAX_PARTS} is the limit", "join or split in several steps")


def _whole_copy(bound: BoundNode) -> Layer:
    return move_layer(bound, StridedLoop(bound.output.size_bytes, ()))


def _whole(row_bytes: int) -> Param:
    return Param("whole", "int32_t", row_bytes, "bytes of a row of all parts")


def _layer(name: str, operands: tuple[int, ...], tables: Sequence[Table], sizes: Sequence[int], rows: int) -> Layer:
    """The layer of parts of so many bytes. Rows of a few bytes are not moved one by one, each by a call of memcpy."""
    params = [*integers(rows=rows, parts=len(sizes))]
    if name != _MAPPED and rows > 1 and max(sizes) <= _NARROW * rows:
        name, params = name + _COLUMNS, [*params, _whole(sum(sizes) // rows)]
    widths = Table("row_bytes", "int32_t", tuple(size // rows for size in sizes), "bytes of a row of each part")
    return Layer(f"movement/{name}", "portable", operands, (*tables, widths), tuple(params))


_MAPPED = "join_mapped"
_COLUMNS = "_narrow"
"""Ending of the templates that move column by column."""
_NARROW = 3
"""Bytes of a row, at most, that are moved column by column."""
_FARTHEST = 17
"""Bytes of a row, at most, whose columns vectors move: the places of sixteen bytes are bytes themselves."""
_FEWEST = 4
"""Rows of a few bytes from which on registers move their columns in fewer instructions (counted on qemu_m55)."""
_REGISTER = 16
"""Bytes of a register; parts of fewer take more instructions than the loads and stores of a core (counted there too)."""
BYTES = np.arange(256, dtype=np.uint8).view(np.int8)
"""Every int8, by its bit pattern: where a table of 256 results has them."""
Mapping = Callable[[Tensor, Array], Array]
"""Values of a tensor as values of the output."""


def join_layer(bound: BoundNode, axis: int, mapping: Mapping | None = None) -> Layer:
    """The inputs one after the other in the output, along `axis`.

    Neighbouring constants become one table: `constant_<n>` comes before the n-th input that is passed to the layer.
    mapping: how int8 inputs of another quantization than the output's become its values; by table `map_<n>`.
    """
    inputs = [bound.input(i) for i in range(len(bound.inputs))]
    mapped = [t for t in inputs if mapping and not t.is_constant and t.quantization != bound.output.quantization]
    if len(inputs) == 1 and not mapped:
        return _whole_copy(bound)
    rows = math.prod(inputs[0].shape[:axis])
    operands: list[int] = []
    sizes: list[int] = []
    tables: list[Table] = []
    for constant, group in groupby(enumerate(inputs), key=lambda pair: pair[1].is_constant):
        if constant:
            values = [mapping(tensor, tensor.array()) if mapping else tensor.array() for _, tensor in group]
            blocks = [part.reshape(rows, -1) for part in values if part.size]
            if blocks:
                block = np.concatenate(blocks, axis=1)
                tables.append(values_table(f"constant_{len(operands)}", block, f"constant input, {rows} rows"))
                sizes.append(block.nbytes)
            continue
        for position, tensor in group:
            if mapping and tensor in mapped:
                results = mapping(tensor, BYTES)
                comment = f"result of each byte of input {position}, by its bits"
                tables.append(values_table(f"map_{len(operands)}", results, comment))
            operands.append(position)
            sizes.append(tensor.size_bytes)
    layer = _layer(_MAPPED if mapped else "join", tuple(operands), tables, sizes, rows)
    contiguous = rows == 1 and not mapped and len(operands) == len(inputs)
    return replace(layer, inside=_inside(sizes, output=False)) if contiguous else layer


def _inside(sizes: Sequence[int], *, output: bool) -> tuple[Inside, ...]:
    """Tensors of so many bytes, one after the other."""
    return tuple(Inside(output, i, sum(sizes[:i])) for i in range(len(sizes)))


def split_layer(bound: BoundNode, axis: int) -> Layer:
    """The outputs cut out of the input at `axis`."""
    if len(bound.outputs) == 1:
        return _whole_copy(bound)
    x = bound.input(0)
    rows = math.prod(x.shape[:axis])
    operands, tables = data_operands(x)
    sizes = [tensor.size_bytes for tensor in bound.outputs]
    layer = _layer("split", operands, tables, sizes, rows)
    return replace(layer, inside=_inside(sizes, output=True)) if rows == 1 and operands else layer


def _by_vectors(layer: Layer) -> Layer | str:
    """The same layer for vectors, sixteen bytes at a time; or why there is none."""
    if layer.template not in ("movement/join", "movement/split", "movement/join_narrow", "movement/split_narrow"):
        return f"{layer.kernel_name} has a portable version only"
    (widths,) = (table.values for table in layer.tables if table.role == "row_bytes")
    whole = sum(int(width) for width in widths)
    params = layer.params
    if layer.template.endswith(_COLUMNS):
        (rows,) = (param.value for param in layer.params if param.name == "rows")
        if rows < _FEWEST:
            return f"columns of {rows} bytes: {_FEWEST} are worth a register"
        if whole > _FARTHEST:
            return f"rows of {whole} bytes: {_FARTHEST} is the limit"
    else:
        if whole < _REGISTER * len(widths):
            return f"parts of {whole / len(widths):.3g} bytes: {_REGISTER} are worth a register"
        params += (_whole(whole),)
    headers = ("emitc_mve.h", "emitc_mve_copy.h")
    return replace(layer, template=f"{layer.template}_mve", variant="mve", params=params, headers=headers)


def variants(lower: Callable[[BoundNode], Layer]) -> tuple[Variant, ...]:
    """The variants of an operator whose layers are those of this module."""
    return (Variant("mve", "mve", lambda bound: _by_vectors(lower(bound)), UNKNOWN_VECTORS, tuple(DType)),)

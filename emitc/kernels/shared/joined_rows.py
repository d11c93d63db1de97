"""Tensors joined to one, or cut out of one: what CONCATENATION, PACK, SPLIT and UNPACK share, for every element type.

Seen from the axis at which they meet, every tensor is [rows, row_bytes]; all have the same rows, and a row of the whole is
the rows of the parts one after the other.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from emitc.ir import Array, BoundNode, DType, Tensor
from emitc.kernels.contract import Variant, unsupported
from emitc.kernels.costs import UNKNOWN_VECTORS
from emitc.kernels.shared.strided_copy import StridedLoop, data_operands, move_layer, require_same_type, values_table
from emitc.layer import Inside, Layer, Param, Table, integers
from emitc.source import SourceNode

MAX_PARTS = 64
"""Parts of one layer: C compilers need not take more than 127 parameters."""


def axis_of(node: SourceNode, axis: int, rank: int) -> int:
    """`axis` counted from the front, of a tensor of `rank` dimensions; negative values count from the end."""
    if not -rank <= axis < rank:
        raise node.refusal(f"has axis {axis}", f"the tensor has {rank} dimensions")
    return axis % rank


def check_parts(bound: BoundNode, parts: int) -> None:
    """Refuses a change of type, scale or zero point, and more than MAX_PARTS parts."""
    require_same_type(bound)
    require_few(bound, parts)


def require_few(bound: BoundNode, parts: int) -> None:
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
    waiting: list[Array] = []

    def place_constants() -> None:
        if waiting:
            block = np.concatenate(waiting, axis=1)
            tables.append(values_table(f"constant_{len(operands)}", block, f"constant input, {rows} rows"))
            sizes.append(block.nbytes)
            waiting.clear()

    for position, tensor in enumerate(inputs):
        if tensor.is_constant:
            values = mapping(tensor, tensor.array()) if mapping else tensor.array()
            if values.size:
                waiting.append(values.reshape(rows, -1))
            continue
        place_constants()
        if mapping and tensor in mapped:
            results = mapping(tensor, BYTES)
            comment = f"result of each byte of input {position}, by its bits"
            tables.append(values_table(f"map_{len(operands)}", results, comment))
        operands.append(position)
        sizes.append(tensor.size_bytes)
    place_constants()
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

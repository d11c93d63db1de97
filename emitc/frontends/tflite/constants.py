"""Constants of TFLite that are compressed or sparse in the file, and become plain ones here.

TFLM_DECODE, the custom operator by which TFLite Micro unpacks compressed constants in every run, done once here.

It has pairs of constants as inputs, the encoded bytes and a description of them, and an output for each pair. The description:
byte 0 the kind, byte 1 its version (1), bytes 4 and up what the kind needs, byte 16 and up a table. Numbers are little-endian.

0  table     byte 4 version (1), byte 5 bits of an index (1 to 7), byte 6 values of a channel's table. The encoded bytes are
             indices, the first in the highest bits; each counts from the start of its channel's table.
1  Huffman   byte 4 version (1), byte 5 bit 0 whether entries have 32 bits, otherwise 16, and above bit 3 the bits of the first
             look-up less 1. An entry: the top bit says that a symbol is found; four bits; the rest. Found: the rest is the
             symbol, the four bits say how many of those looked up belong to it. Otherwise the four bits are those of the next
             look-up less 1, which lies that many entries on from here as the rest says.
2  pruned    byte 4 version (1). The encoded bytes have a bit for each element, the first in the highest: whether the table has
             its value; the others are the zero point.

Channels are the slices of the output's quantization along its first or its last dimension.
Source  TFLite Micro's kernel, measured.

Sparse constants of TFLite, whose zeros are not in the file: they become dense ones here, and DENSIFY has nothing to do.

A sparse tensor states its elements as a tree with a level for each dimension, in the order of `traversal_order`. Dimensions that
are divided into blocks come twice: as the number of the block, and at the end as the place within it. A dense level has all its
coordinates under every node of the level above. A sparse one lists them: node n has `indices[segments[n]:segments[n + 1]]`.
The values in the file belong to the nodes of the last level, in order. Every other element is zero.

Source  the schema of TFLite, version 3 (SparsityParameters), and LiteRT's DENSIFY, measured.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from emitc.ir import Array, Shape
from emitc.records import dataclass
from emitc.source import SourceNode, SourceTensor

DECODE = "CUSTOM:TFLM_DECODE"
DENSIFY = "DENSIFY"
DECODED = {
    DECODE: "compressed constants, unpacked while compiling: no code",
    DENSIFY: "sparse constants, made dense while compiling: no code",
}
_TABLE, _HUFFMAN, _PRUNED = 0, 1, 2
_HEAD = 16
_ANY_TYPE = ("bool", "float32", "int8", "int16", "int32", "int64")
_TYPES = {_TABLE: _ANY_TYPE, _HUFFMAN: ("int8", "int16"), _PRUNED: _ANY_TYPE}
_AGAIN = "the file is damaged: compress the model again"

Encoded = NDArray[np.uint8]


class Damage(Exception):
    """What is wrong with the encoded bytes or the values of a constant, or with their description."""


def _channels(tensor: SourceTensor) -> Array | int:
    """The channel of every element, in order; 0 where there is one only."""
    quantization = tensor.quantization
    if quantization is None or quantization.per_tensor:
        return 0
    count, last = len(quantization.scales), len(tensor.shape) - 1
    if quantization.axis == last:
        return np.tile(np.arange(count), tensor.elements // count)
    if quantization.axis == 0:
        return np.repeat(np.arange(count), tensor.elements // count)
    raise Damage(f"the scales are those of dimension {quantization.axis}, neither the first nor the last")


def _bits(encoded: Encoded, count: int) -> NDArray[np.uint8]:
    """The first `count` bits, the highest of each byte first."""
    if count > 8 * len(encoded):
        raise Damage(f"{count} bits are needed, there are {8 * len(encoded)}")
    return np.unpackbits(encoded[: -(-count // 8)])[:count]


def _chosen(table: Array, places: Array) -> Array:
    if places.size and int(places.max()) >= len(table):
        raise Damage(f"value {int(places.max())} of {len(table)} is chosen")
    values: Array = table[places]
    return values


def _values(description: Encoded, dtype: str) -> Array:
    """The table of values; bytes after the last whole one do not count."""
    data = description[_HEAD:].tobytes()
    size = np.dtype(dtype).itemsize
    return np.frombuffer(data[: len(data) // size * size], np.dtype(dtype).newbyteorder("<"))


def _from_table(encoded: Encoded, description: Encoded, tensor: SourceTensor) -> Array:
    width, stride = int(description[5] & 7), int(description[6])
    if width == 0:
        raise Damage("indices have no bits")
    parts = _bits(encoded, width * tensor.elements).reshape(-1, width).astype(np.int64)
    indices = parts @ (1 << np.arange(width - 1, -1, -1, dtype=np.int64))
    return _chosen(_values(description, tensor.dtype), indices + stride * np.asarray(_channels(tensor)))


def _from_pruned(encoded: Encoded, description: Encoded, tensor: SourceTensor) -> Array:
    there = _bits(encoded, tensor.elements).astype(bool)
    table, quantization = _values(description, tensor.dtype), tensor.quantization
    if int(there.sum()) > len(table):
        raise Damage(f"{int(there.sum())} values are needed, there are {len(table)}")
    zeros = np.asarray(quantization.zero_points if quantization else (0,))
    if tensor.dtype != "int8" and zeros.any():
        raise Damage(f"{tensor.dtype} has a zero point that is not 0")
    spread = zeros[_channels(tensor)] if len(zeros) > 1 else zeros
    values = np.broadcast_to(spread, there.shape).astype(tensor.dtype)
    values[there] = table[: int(there.sum())]
    return values


def _from_huffman(encoded: Encoded, description: Encoded, tensor: SourceTensor) -> Array:
    long = bool(description[5] & 1)
    if tensor.dtype == "int16" and not long:
        raise Damage("entries of 16 bits hold no int16")
    table = [int(entry) for entry in _values(description, "uint32" if long else "uint16")]
    rest = 27 if long else 11
    first = (int(description[5]) >> 4) + 1
    end, stream = 8 * len(encoded), encoded.tobytes() + bytes(4)
    if tensor.elements > end:
        raise Damage(f"{tensor.elements} symbols are needed, there are {end} bits")

    def entry(place: int) -> int:
        if place >= len(table):
            raise Damage(f"entry {place} of {len(table)} is looked up")
        return table[place]

    def looked_up(at: int, width: int) -> int:
        """Bits from `at` on; zeros after the last."""
        near = int.from_bytes(stream[at >> 3 : (at >> 3) + 4], "big")
        return near >> (32 - (at & 7) - width) & ((1 << width) - 1)

    symbols, at = [], 0
    for _ in range(tensor.elements):
        width, start = first, at
        place = looked_up(at, width)
        at += width
        code = entry(place)
        while not code >> (rest + 4):
            if at >= end:
                raise Damage("the bits end within a symbol")
            width = ((code >> rest) & 15) + 1
            place += (code & ((1 << rest) - 1)) + looked_up(at, width)
            at += width
            code = entry(place)
        at -= max(width - ((code >> rest) & 15), 0)
        if not start < at <= end:
            raise Damage("a symbol has no bits" if at <= start else "the bits end within a symbol")
        symbols.append(code & ((1 << rest) - 1))
    mask = (1 << 8 * np.dtype(tensor.dtype).itemsize) - 1
    return np.array([symbol & mask for symbol in symbols], f"uint{8 * np.dtype(tensor.dtype).itemsize}")


_DECODERS = {_TABLE: _from_table, _HUFFMAN: _from_huffman, _PRUNED: _from_pruned}


def _decoded(node: SourceNode, position: int) -> bytes:
    """The value of an output. Raises EmitcError, also where the kind has no code."""
    tensor, pair = node.outputs[position], node.inputs[2 * position : 2 * position + 2]
    if any(operand is None or operand.data is None or operand.dtype != "uint8" for operand in pair):
        raise node.refusal("reads something else than constants of bytes", tensor.name, _AGAIN, tensor)
    encoded, description = (np.frombuffer(value.data, np.uint8) for value in pair if value and value.data is not None)
    if len(description) < _HEAD:
        raise node.refusal("has a description that is too short", f"{len(description)} bytes", _AGAIN, tensor)
    kind, version = int(description[0]), int(description[1])
    if kind not in _DECODERS or version != 1 or description[4] != 1:
        what = f"of compressed constants of kind {kind}, version {version} is not supported"
        why = "there is code for tables (0), Huffman (1) and pruned (2), each of version 1"
        raise node.unsupported(what, why, "compress the model otherwise, or leave it uncompressed")
    if tensor.dtype not in _TYPES[kind] or -1 in tensor.shape:
        what = f"of compressed constants of type {tensor.dtype}{list(tensor.shape)} is not supported"
        why = f"this kind has {', '.join(_TYPES[kind])}, and known sizes"
        raise node.unsupported(what, why, "leave this tensor uncompressed")
    try:
        values = _DECODERS[kind](encoded, description, tensor)
    except Damage as damage:
        raise node.refusal("has a constant that cannot be unpacked", str(damage), _AGAIN, tensor) from damage
    if values.size != math.prod(tensor.shape):
        raise node.refusal("has a constant of another size", f"{values.size} values", _AGAIN, tensor)
    return values.tobytes()


def decoded(node: SourceNode) -> tuple[bytes, ...] | None:
    """What TFLM_DECODE computes, None for another operator. Raises EmitcError where it cannot be unpacked."""
    if node.op_type != DECODE:
        return None
    if not node.outputs or len(node.inputs) != 2 * len(node.outputs):
        raise node.refusal(f"has {len(node.inputs)} inputs and {len(node.outputs)} outputs", "two for each", _AGAIN)
    return tuple(_decoded(node, position) for position in range(len(node.outputs)))


# ---- sparse constants ----


MAX_DENSE_BYTES = 1 << 24
"""Of all sparse constants of a file together, once they are dense: a small file may describe large ones."""

Integers = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Level:
    """One level of the tree. size: coordinates of a dense level, -1 for a sparse one, which has segments and indices."""

    size: int
    segments: Integers
    indices: Integers

    def children(self, nodes: int) -> tuple[Integers, Integers]:
        """Of each node of the next level: which of the `nodes` above it belongs to, and its coordinate. Raises Damage."""
        if self.size >= 0:
            return np.repeat(np.arange(nodes), self.size), np.tile(np.arange(self.size), nodes)
        steps = np.diff(self.segments)
        if len(self.segments) != nodes + 1 or self.segments[0] or (steps < 0).any():
            raise Damage(f"{len(self.segments)} segments for {nodes} nodes, or out of order")
        if self.segments[-1] != len(self.indices):
            raise Damage(f"the segments end at {self.segments[-1]} of {len(self.indices)} indices")
        return np.repeat(np.arange(nodes), steps), self.indices


def dense(
    shape: Shape, element_bytes: int, order: Sequence[int], blocks: Sequence[int], levels: Sequence[Level], data: bytes
) -> bytes:
    """The elements of a sparse tensor, row by row, little-endian.

    order: the dimension of each level, those within blocks counted on from the rank; blocks: the dimension that each of these
    divides; data: the values. Raises Damage where the tree does not fit the shape or the values.
    """
    sizes, strides = _extents(shape, order, blocks, levels)
    elements, where = math.prod(shape), np.zeros(1, np.int64)
    for dimension, level in zip(order, levels, strict=True):
        limit = sizes[dimension]
        if level.size not in (-1, limit) or (level.size < 0 and ((level.indices < 0) | (level.indices >= limit)).any()):
            raise Damage(f"dimension {dimension} leaves its {limit} coordinates")
        if max(len(where) * level.size, len(level.indices)) > elements:
            raise Damage(f"more than {elements} elements are listed")
        above, coordinates = level.children(len(where))
        where = where[above] + coordinates * strides[dimension]
    values = np.frombuffer(data, f"V{element_bytes}")
    if len(values) != len(where):
        raise Damage(f"{len(values)} values for {len(where)} elements")
    made = np.zeros(elements, values.dtype)
    made[where] = values
    return made.tobytes()


def _extents(
    shape: Shape, order: Sequence[int], blocks: Sequence[int], levels: Sequence[Level]
) -> tuple[list[int], list[int]]:
    """Coordinates of each dimension, those within blocks at the end, and elements from one to the next. Raises Damage."""
    sizes, strides = list(shape), [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    for place, divided in enumerate(blocks):
        within = levels[order.index(len(shape) + place)].size
        if not 0 <= divided < len(shape) or within < 1 or sizes[divided] % within:
            raise Damage(f"blocks of {within} do not divide dimension {divided}")
        sizes[divided] //= within
        sizes.append(within)
        strides.append(strides[divided])
        strides[divided] *= within
    return sizes, strides


def densified(node: SourceNode) -> tuple[bytes, ...] | None:
    """What DENSIFY makes of a constant, None for another operator. Raises EmitcError for another type or shape."""
    if node.op_type != DENSIFY or len(node.inputs) != 1 or len(node.outputs) != 1:
        return None
    (sparse,), (whole,) = node.inputs, node.outputs
    if sparse is None or sparse.data is None:
        return None
    if (sparse.dtype, sparse.shape) != (whole.dtype, whole.shape):
        what = f"{whole.dtype}{list(whole.shape)} from {sparse.dtype}{list(sparse.shape)}"
        raise node.refusal("changes type or shape", what, tensor=whole)
    return (sparse.data,)

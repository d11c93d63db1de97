"""Sparse constants of TFLite, whose zeros are not in the file: they become dense ones here, and DENSIFY has nothing to do.

A sparse tensor states its elements as a tree with a level for each dimension, in the order of `traversal_order`. Dimensions that
are divided into blocks come twice: as the number of the block, and at the end as the place within it. A dense level has all its
coordinates under every node of the level above. A sparse one lists them: node n has `indices[segments[n]:segments[n + 1]]`.
The values in the file belong to the nodes of the last level, in order. Every other element is zero.

Source  the schema of TFLite, version 3 (SparsityParameters), and LiteRT's DENSIFY, measured.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emitc.frontends.constant_folding import with_constants
from emitc.ir import Shape
from emitc.source import SourceModel, SourceNode

OPERATOR = "DENSIFY"
DENSE = {OPERATOR: "sparse constants, made dense while compiling: no code"}
MAX_DENSE_BYTES = 1 << 24
"""Of all sparse constants of a file together, once they are dense: a small file may describe large ones."""

Integers = NDArray[np.int64]


class Wrong(Exception):
    """What is wrong with the description of a sparse tensor."""


@dataclass(frozen=True, slots=True)
class Level:
    """One level of the tree. size: coordinates of a dense level, -1 for a sparse one, which has segments and indices."""

    size: int
    segments: Integers
    indices: Integers

    def children(self, nodes: int) -> tuple[Integers, Integers]:
        """Of each node of the next level: which of the `nodes` above it belongs to, and its coordinate. Raises Wrong."""
        if self.size >= 0:
            return np.repeat(np.arange(nodes), self.size), np.tile(np.arange(self.size), nodes)
        steps = np.diff(self.segments)
        if len(self.segments) != nodes + 1 or self.segments[0] or (steps < 0).any():
            raise Wrong(f"{len(self.segments)} segments for {nodes} nodes, or out of order")
        if self.segments[-1] != len(self.indices):
            raise Wrong(f"the segments end at {self.segments[-1]} of {len(self.indices)} indices")
        return np.repeat(np.arange(nodes), steps), self.indices


def dense(
    shape: Shape, element_bytes: int, order: Sequence[int], blocks: Sequence[int], levels: Sequence[Level], data: bytes
) -> bytes:
    """The elements of a sparse tensor, row by row, little-endian.

    order: the dimension of each level, those within blocks counted on from the rank; blocks: the dimension that each of these
    divides; data: the values. Raises Wrong where the tree does not fit the shape or the values.
    """
    sizes, strides = _extents(shape, order, blocks, levels)
    elements, where = math.prod(shape), np.zeros(1, np.int64)
    for dimension, level in zip(order, levels, strict=True):
        limit = sizes[dimension]
        if level.size not in (-1, limit) or (level.size < 0 and ((level.indices < 0) | (level.indices >= limit)).any()):
            raise Wrong(f"dimension {dimension} leaves its {limit} coordinates")
        if max(len(where) * level.size, len(level.indices)) > elements:
            raise Wrong(f"more than {elements} elements are listed")
        above, coordinates = level.children(len(where))
        where = where[above] + coordinates * strides[dimension]
    values = np.frombuffer(data, f"V{element_bytes}")
    if len(values) != len(where):
        raise Wrong(f"{len(values)} values for {len(where)} elements")
    made = np.zeros(elements, values.dtype)
    made[where] = values
    return made.tobytes()


def _extents(
    shape: Shape, order: Sequence[int], blocks: Sequence[int], levels: Sequence[Level]
) -> tuple[list[int], list[int]]:
    """Of each dimension, those within blocks at the end: its coordinates, and the elements from one to the next. Raises Wrong."""
    sizes, strides = list(shape), [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    for place, divided in enumerate(blocks):
        within = levels[order.index(len(shape) + place)].size
        if not 0 <= divided < len(shape) or within < 1 or sizes[divided] % within:
            raise Wrong(f"blocks of {within} do not divide dimension {divided}")
        sizes[divided] //= within
        sizes.append(within)
        strides.append(strides[divided])
        strides[divided] *= within
    return sizes, strides


def _densified(node: SourceNode) -> tuple[bytes, ...] | None:
    if node.op_type != OPERATOR or len(node.inputs) != 1 or len(node.outputs) != 1:
        return None
    (sparse,), (whole,) = node.inputs, node.outputs
    if sparse is None or sparse.data is None:
        return None
    if (sparse.dtype, sparse.shape) != (whole.dtype, whole.shape):
        what = f"{whole.dtype}{list(whole.shape)} from {sparse.dtype}{list(sparse.shape)}"
        raise node.refusal("changes type or shape", what, tensor=whole)
    return (sparse.data,)


def with_densified(model: SourceModel) -> SourceModel:
    """The model with constants instead of what DENSIFY makes of sparse ones."""
    return with_constants(model, _densified)

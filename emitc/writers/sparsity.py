"""Sparse constants for .tflite files: the tree of levels that stands for an array, and the values that are left of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

LevelSpec: TypeAlias = int | tuple[tuple[int, ...], tuple[int, ...]]
"""Coordinates of a dense level, or segments and indices of a sparse one."""


@dataclass(frozen=True, slots=True)
class SparsitySpec:
    """What the schema calls SparsityParameters.

    order: the dimension of each level, those within blocks counted on from the rank; blocks: the dimension that each of these
    divides; index_bits: of an index in the file, 8, 16 or 32.
    """

    order: tuple[int, ...]
    blocks: tuple[int, ...]
    levels: tuple[LevelSpec, ...]
    index_bits: int = 32


def sparse(
    array: NDArray[Any],
    order: Sequence[int],
    sparse_levels: Sequence[int],
    blocks: Sequence[tuple[int, int]] = (),
    index_bits: int = 32,
) -> tuple[SparsitySpec, bytes]:
    """The description of an array, and its values. sparse_levels: which levels list their coordinates.

    blocks: pairs of a dimension and the elements of a block along it. Levels of blocks are dense. Zeros that no sparse level
    leaves out are among the values.

    >>> sparse(np.array([[0, 7], [0, 0]], np.int8), (0, 1), (1,))
    (SparsitySpec(order=(0, 1), blocks=(), levels=(2, ((0, 1, 1), (1,))), index_bits=32), b'\\x07')
    """
    divided = array
    for place, (dimension, within) in enumerate(blocks):
        rank = array.ndim + place
        shape = list(divided.shape)
        shape[dimension : dimension + 1] = [shape[dimension] // within, within]
        divided = np.moveaxis(divided.reshape(shape), dimension + 1, rank)
    tree = np.transpose(divided, order)
    nodes: list[tuple[int, ...]] = [()]
    levels: list[LevelSpec] = []
    for level, size in enumerate(tree.shape):
        if level not in sparse_levels:
            levels.append(size)
            nodes = [(*node, i) for node in nodes for i in range(size)]
            continue
        listed = [np.flatnonzero((tree[node] != 0).reshape(size, -1).any(axis=1)).tolist() for node in nodes]
        ends = np.cumsum([0, *map(len, listed)]).tolist()
        levels.append((tuple(ends), tuple(i for row in listed for i in row)))
        nodes = [(*node, i) for node, row in zip(nodes, listed, strict=True) for i in row]
    values = np.array([tree[node] for node in nodes], array.dtype)
    spec = SparsitySpec(tuple(order), tuple(dimension for dimension, _ in blocks), tuple(levels), index_bits)
    return spec, values.tobytes()

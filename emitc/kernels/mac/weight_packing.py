"""Orders in which kernels have their weights, so that the inner loop reads them from one pointer, in order.

A block is four filters whose weights are interleaved. Filters left over from the blocks follow one by one. Packed weights lie
as in TFLite files: two of four bits in a byte, the first one in the low half, and every row starts a byte.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from emitc.ir import Array
from emitc.ir import packed as packed_bytes
from emitc.layer import KernelSpec, Table
from emitc.numerics.requantize import Int64

PACKED = KernelSpec("_w4", int4_weights=True)
"""int8 activations, weights of four bits, fixed point."""
LANES = 16
"""Bytes in a register of MVE."""
BLOCK = 4
"""Filters in a block."""
_HALF_WORD = 32000
"""Largest term of a sum that half of a word is given."""


def with_zeros(values: Int64, size: int) -> Int64:
    """A copy whose last dimension is a multiple of `size`: zeros are at its end."""
    *outer, depth = values.shape
    result = np.zeros((*outer, depth + -depth % size), np.int64)
    result[..., :depth] = values
    return result


def shape_text(shape: tuple[int, ...]) -> str:
    """The shape of weights, as comments of tables state it."""
    return f"weights {'x'.join(map(str, shape))}"


def blocks_of_four(weights: Array) -> Array:
    """Filters [O, K] in blocks of four, interleaved value by value. Flat, as many elements as before."""
    blocks, rest = _split(weights)
    return np.concatenate([blocks.reshape(-1), rest.reshape(-1)])


def _split(weights: Array) -> tuple[Array, Array]:
    """[O, K] as blocks [O // 4, K, 4] and what is left, [O % 4, K]."""
    whole = len(weights) // BLOCK * BLOCK
    return weights[:whole].reshape(whole // BLOCK, BLOCK, weights.shape[1]).transpose(0, 2, 1), weights[whole:]


def packed_rows(weights: Array) -> NDArray[np.int8]:
    """Values of four bits, [..., K], two to a byte; each row of K fills whole bytes. Flat.

    >>> packed_rows(np.array([[1, 2, 3], [-1, -2, -3]], np.int8)).view(np.uint8).tolist()
    [33, 3, 239, 13]
    """
    even = np.pad(weights.astype(np.int8), [(0, 0)] * (weights.ndim - 1) + [(0, weights.shape[-1] % 2)])
    return np.frombuffer(packed_bytes(even), np.int8)


def weight_table(weights: Array, *, interleaved: bool = False, packed: bool = False) -> Table:
    """The array of weights [..., K]. interleaved: of filters [O, ...] in blocks of four. packed: two to a byte."""
    what = shape_text(weights.shape)
    filters = weights.reshape(len(weights), -1)
    if interleaved:
        what += ", filters interleaved four by four"
    if packed:
        what += ", two of four bits in a byte"
    parts = _split(filters) if interleaved else (weights,)
    values: Array = np.concatenate([packed_rows(part) if packed else part.reshape(-1) for part in parts])
    return Table("weights", f"{values.dtype.name}_t", tuple(values.tolist()), what, pixels_per_load=1)


def widening_order(length: int) -> NDArray[np.int64]:
    """Indices of a run's values in the pairs of int16 that SXTB16 widens it to; -1 for none.

    Of four bytes in a word, one instruction widens the first and the third, another one the second and the fourth.

    >>> widening_order(4).tolist(), widening_order(3).tolist(), widening_order(2).tolist(), widening_order(5).tolist()
    ([[0, 2], [1, 3]], [[0, 2], [1, -1]], [[0, 1]], [[0, 2], [1, 3], [4, -1]])
    """
    whole = length // 4 * 4
    rest = {0: [], 1: [(0, -1)], 2: [(0, 1)], 3: [(0, 2), (1, -1)]}[length % 4]
    pairs = np.arange(whole, dtype=np.int64).reshape(-1, 2, 2).transpose(0, 2, 1).reshape(-1, 2)
    tail = np.array(rest, np.int64).reshape(-1, 2)
    return np.concatenate([pairs, np.where(tail < 0, tail, tail + whole)])


def adjacent_order(length: int) -> NDArray[np.int64]:
    """Indices of a run's int16 values as they lie in memory, two to a word; -1 for none.

    >>> adjacent_order(4).tolist(), adjacent_order(3).tolist()
    ([[0, 1], [2, 3]], [[0, 1], [2, -1]])
    """
    order = np.arange(length + length % 2, dtype=np.int64)
    order[length:] = -1
    return order.reshape(-1, 2)


def filter_groups(out: int, size: int) -> NDArray[np.int64]:
    """Numbers of `out` filters in groups of `size`; the last group is the last filters, some of them again."""
    whole = out // size * size
    return np.concatenate([np.arange(whole), np.arange(out - size, out)[: size * min(1, out % size)]])


def joined_pairs(filters: NDArray[Any]) -> NDArray[Any]:
    """Filters of an even number, of which each second one has 1 less where the weight of the first one is negative.

    So the bytes of both are those of an int16, 256 times the second weight plus the first one.

    >>> joined_pairs(np.array([[-1, 2], [3, 4]])).tolist()
    [[-1, 2], [2, 4]]
    """
    borrowed = filters.copy()
    borrowed[1::2] -= filters[::2] < 0
    return borrowed


def pack_filter_pairs(
    filters: Array, order: NDArray[np.int64] | None = None, *, joined: bool = False
) -> tuple[NDArray[np.int8], int]:
    """Filters [O, runs, length] in pairs for SMLAD, and the words of a pair.

    A word has two weights of the pair's first filter in its even bytes and two of the second in its odd bytes. A run of odd
    length has a zero at its end. order: of a run's values, two for each word; `widening_order` by default. joined: as
    `joined_pairs`.
    """
    out, _, length = filters.shape
    order = widening_order(length) if order is None else order
    grouped = filters[filter_groups(out, 2)]
    if joined:
        grouped = joined_pairs(grouped)
    padded = np.pad(grouped, ((0, 0), (0, 0), (0, 1)))  # index -1 is the zero at the end of each run
    words = padded[:, :, order].reshape(-1, 2, filters.shape[1] * len(order), 2)
    return np.ascontiguousarray(words.transpose(0, 2, 3, 1)).reshape(-1).astype(np.int8), words.shape[2]


def pack_filter_quads(
    filters: Array, order: NDArray[np.int64] | None = None, *, joined: bool = False
) -> tuple[NDArray[np.int8], int]:
    """Filters [O, runs, length] in fours, and the words of a pair: a word of the first pair, then one of the second.

    order, joined: as `pack_filter_pairs` takes them.
    """
    values, words = pack_filter_pairs(filters[filter_groups(len(filters), 4)], order, joined=joined)
    return np.ascontiguousarray(values.reshape(-1, 2, words, 4).transpose(0, 2, 1, 3)).reshape(-1), words


def pack_filter_pairs_with_zero(
    filters: Array, zero: int, *, joined: bool = False
) -> tuple[NDArray[np.int8], int, int]:
    """`pack_filter_pairs` of weights as the model has them, and words of their zero point after each pair.

    The kernel multiplies those words by minus the sum of the values. Also the words of a pair with them, and their number.
    """
    values, words = pack_filter_pairs(filters, joined=joined)
    zero_words = -(-128 * filters.shape[1] * filters.shape[2] // (2 * _HALF_WORD))
    pairs = values.reshape(-1, words, 4)
    second = zero - (joined and zero < 0)
    zeros = np.tile(np.array([zero, second] * 2, np.int8), (len(pairs), zero_words, 1))
    return np.concatenate([pairs, zeros], axis=1).reshape(-1), words + zero_words, zero_words


def pack_dsp_blocks(filters: Array, *, joined: bool = False) -> NDArray[np.int8]:
    """Filters [O, K] in blocks of four for kernels that widen the input's bytes as they read them.

    For four values of the input, a block has two words of SMLAD operands for its first two filters, then two for the others.
    joined: as `joined_pairs`, except for the values that are left over.
    """
    whole, depth = len(filters) // BLOCK * BLOCK, filters.shape[1]
    count, quads = whole // BLOCK, depth // 4
    blocks = filters[:whole].reshape(count, 2, 2, depth)  # block, pair of filters, filter of it, value
    in_words = filters[:whole, : 4 * quads]
    # Values 0 1 2 3 of an input word are [low even, low odd, high even, high odd].
    words = (joined_pairs(in_words) if joined else in_words).reshape(count, 2, 2, quads, 2, 2)
    words = words.transpose(0, 3, 5, 1, 4, 2).reshape(count, 16 * quads)
    rest = blocks[..., 4 * quads :].transpose(0, 3, 1, 2).reshape(count, 4 * (depth % 4))
    in_blocks = np.concatenate([words, rest], axis=1).reshape(-1)
    return np.concatenate([in_blocks, filters[whole:].reshape(-1)]).astype(np.int8)


def pack_mve_blocks(filters: Array) -> NDArray[np.int8]:
    """Filters [O, K] in blocks of four: the first K % 16 weights of each filter, then 16 of each at a time."""
    whole = len(filters) // BLOCK * BLOCK
    ordered = pack_mve_groups(filters[:whole], BLOCK)
    return np.concatenate([ordered.reshape(-1), filters[whole:].reshape(-1)]).astype(np.int8)


def pack_mve_groups(filters: Array, group: int) -> Array:
    """Filters [O, K] in groups: the first K % 16 weights of each filter, then 16 of each at a time. Returns [O / group, ...]."""
    count, depth = len(filters) // group, filters.shape[1]
    part = depth % LANES
    groups = filters.reshape(count, group, depth)
    first = groups[..., :part].reshape(count, group * part)
    vectors = groups[..., part:].reshape(count, group, depth // LANES, LANES).transpose(0, 2, 1, 3)
    return np.concatenate([first, vectors.reshape(count, group * (depth - part))], axis=1)


def pack_word_blocks(filters: Array) -> NDArray[np.int8]:
    """Filters [O, K] in blocks of four: four weights of each filter at a time; the last K % 4 of each value by value."""
    blocks, rest = _split(filters)
    count, depth, _ = blocks.shape
    whole = depth // 4 * 4
    words = blocks[:, :whole].reshape(count, whole // 4, 4, BLOCK).transpose(0, 1, 3, 2).reshape(count, BLOCK * whole)
    ordered = np.concatenate([words, blocks[:, whole:].reshape(count, BLOCK * (depth - whole))], axis=1)
    return np.concatenate([ordered.reshape(-1), rest.reshape(-1)]).astype(np.int8)


def pack_mve_taps(filters: Array) -> NDArray[np.int8]:
    """Depthwise filters [taps, C] for 16 channels at a time, tap by tap; those that are left over follow tap by tap."""
    parts = [filters[:, first : first + LANES].reshape(-1) for first in range(0, filters.shape[1], LANES)]
    return np.concatenate(parts).astype(np.int8)


def pack_dsp_taps(filters: Int64, *, wide: bool) -> Int64:
    """Depthwise filters [C, taps] for four channels at a time, tap by tap; those that are left over follow one by one.

    wide: of 16 bits, whose words hold the first and the third channel, then the second and the fourth.
    """
    blocks, rest = _split(filters)
    values = blocks.reshape(-1)
    if wide:
        values = values.reshape(-1, 2, 2).transpose(0, 2, 1).reshape(-1)
    return np.concatenate([values, rest.reshape(-1)])

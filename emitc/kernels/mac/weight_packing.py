"""How kernels have their weights: in the model's order, or filters in blocks of four; one to a byte, or two of four bits.

Packed weights lie as in TFLite files, the first of two in the low half of its byte, except that every row starts a byte.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from emitc.ir import Array
from emitc.ir import packed as packed_bytes
from emitc.layer import KernelSpec, Table

PACKED = KernelSpec("_w4", packed=True)
"""int8 activations, weights of four bits, fixed point."""


def blocks_of_four(weights: Array) -> Array:
    """Filters [O, K] in blocks of four, interleaved value by value, so that a block is read from one pointer.

    The O % 4 filters that are left follow one by one. Flat, as many elements as before.
    """
    blocks, rest = _split(weights)
    return np.concatenate([blocks.reshape(-1), rest.reshape(-1)])


def _split(weights: Array) -> tuple[Array, Array]:
    """[O, K] as blocks [O // 4, K, 4] and what is left, [O % 4, K]."""
    whole = len(weights) // 4 * 4
    return weights[:whole].reshape(whole // 4, 4, weights.shape[1]).transpose(0, 2, 1), weights[whole:]


def packed_rows(weights: Array) -> NDArray[np.int8]:
    """Values of four bits, [..., K], two to a byte; each row of K fills whole bytes. Flat.

    >>> packed_rows(np.array([[1, 2, 3], [-1, -2, -3]], np.int8)).view(np.uint8).tolist()
    [33, 3, 239, 13]
    """
    even = np.pad(weights.astype(np.int8), [(0, 0)] * (weights.ndim - 1) + [(0, weights.shape[-1] % 2)])
    return np.frombuffer(packed_bytes(even), np.int8)


def weight_table(weights: Array, *, interleaved: bool = False, packed: bool = False) -> Table:
    """The array of weights [..., K]. interleaved: of filters [O, ...] in blocks of four. packed: two to a byte."""
    what = f"weights {'x'.join(map(str, weights.shape))}"
    filters = weights.reshape(len(weights), -1)
    if interleaved:
        what += ", filters interleaved four by four"
    if packed:
        what += ", two of four bits in a byte"
        if interleaved:
            blocks, rest = _split(filters)
            values: Array = np.concatenate([packed_rows(blocks), packed_rows(rest)])
        else:
            values = packed_rows(weights)
    else:
        values = blocks_of_four(filters) if interleaved else weights.reshape(-1)
    return Table("weights", f"{values.dtype.name}_t", tuple(values.tolist()), what, pixels_per_load=1)

"""Constants of an ONNX model with which sums leave their type: the result would depend on their order, or on the processor.

This module imports no `onnx`, which takes a tenth of a second.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from emitc.errors import EmitcError, Where
from emitc.source import SourceTensor

AGAIN = "the file is damaged or was written by a faulty exporter: export the model again"


def faulty(what: str, where: Where, why: str) -> EmitcError:
    return EmitcError(what, where, why, AGAIN)


LARGEST_REAL = 2.0**62
"""Magnitude of weights: two such numbers have a product that float32 can sum up."""

LARGEST_FLOAT32 = float(np.finfo(np.float32).max)
"""Magnitude of what quantized values stand for."""

_TRAIN_AGAIN = "train, quantize or export the model again"
ADDED_LAST = frozenset(("Conv", "ConvTranspose", "Gemm"))
"""Operators whose third operand is added to each sum: what an infinite one gives does not depend on the order of sums."""

WEIGHTED = frozenset((
    "BatchNormalization", "Conv", "ConvTranspose", "DynamicQuantizeLSTM", "GRU", "Gemm", "GroupNormalization",
    "InstanceNormalization", "LSTM", "LayerNormalization", "MatMul", "RNN",
))  # fmt: skip
"""Operators that sum up products with their constants."""


def require_weights(op_type: str, constants: Iterable[tuple[int, SourceTensor]], where: Where) -> None:
    """Refuses constants of an operator that sums products where these are no numbers, or leave float32.

    constants: pairs of the operand's position and its tensor.
    """
    for position, tensor in constants:
        if tensor.dtype not in ("float32", "float64"):  # numpy has no name for some of the others
            continue
        place, value = Where(op=where.op, tensor=f'"{tensor.name}"'), tensor.array()
        if value.size == 0:
            continue
        largest = float(np.abs(value.astype(np.float64)).max())
        if not math.isfinite(largest):
            if position == 2 and op_type in ADDED_LAST:
                continue
            what = f"{op_type} has a constant that is infinite or no number"
            why = "what comes of it depends on the order of sums and on the processor"
            raise EmitcError(what, place, why, "train or export the model again: some value of it has left its range")
        if largest > LARGEST_REAL:
            raise too_large(f"{op_type} has a constant of magnitude {largest:.3g}", place)


def too_large(what: str, where: Where) -> EmitcError:
    """The error for numbers whose products leave float32."""
    why = f"products of numbers beyond {LARGEST_REAL:.3g} leave float32, at a point that depends on the order of sums"
    return EmitcError(what, where, why, _TRAIN_AGAIN)


def require_range(op_type: str, scales: Sequence[float], dtype: str, where: Where) -> None:
    """Refuses scales with which 8- and 16-bit numbers stand for values that float32 does not have."""
    info = np.iinfo(dtype)
    if info.bits <= 16 and max(scales) * (int(info.max) - int(info.min)) > LARGEST_FLOAT32:
        why = f"its values leave float32, whose largest number is {LARGEST_FLOAT32:.3g}"
        raise EmitcError(f"{op_type} has a scale of {max(scales):.3g}", where, why, _TRAIN_AGAIN)


def require_differences(
    op_type: str, values: NDArray[np.int64] | None, zero_points: NDArray[np.int64], where: Where
) -> None:
    """Refuses zero points of int32 numbers with which a difference may leave int32; the format has none for them.

    values: the numbers, where they are constant; zero_points in a shape that broadcasts against them.
    """
    if not zero_points.any():
        return
    if values is None:
        why = "the format has no zero points for int32, and here the difference could overflow"
        raise faulty(f"{op_type} has int32 values with a zero point", where, why)
    moved = values - zero_points
    if moved.size and not -(2**31) <= int(moved.min()) <= int(moved.max()) < 2**31:
        why = f"their difference is {int(moved.reshape(-1)[np.abs(moved).argmax()])}, which is no int32"
        raise faulty(f"{op_type} has an int32 zero point too far from its values", where, why)

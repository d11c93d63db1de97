"""Fused activations of TFLite operators on plain numbers: bounds of float32 values and of integers that have no scale.

y = min(max(x, low), high). Without an activation the bounds are the ends of the type, so that what overflows float32 becomes
its largest finite value and not infinite. A NaN stays one, and so does -0 at a bound of 0.
Source  TFLite Micro's kernels.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from emitc.ir import DType
from emitc.layer import PLAIN, KernelSpec, Param

ACTIVATION_BOUNDS: dict[str, tuple[float | None, float | None]] = {
    "NONE": (None, None),
    "RELU": (0.0, None),
    "RELU6": (0.0, 6.0),
    "RELU_N1_TO_1": (-1.0, 1.0),
}
"""Least and greatest value of each activation, None where it has none."""


def bounds(activation: str, dtype: DType) -> tuple[float, float]:
    """The least and the greatest value that an activation leaves, as numbers of the type."""
    largest = float(np.finfo(np.float32).max)
    return _or_ends(activation, (-largest, largest) if dtype is DType.FLOAT32 else dtype.range)


def _or_ends(activation: str, ends: tuple[float, float]) -> tuple[float, float]:
    """The activation's bounds, as numbers of the ends' type; one that it does not have is the end."""
    low, high = (
        end if bound is None else type(end)(bound)
        for bound, end in zip(ACTIVATION_BOUNDS[activation], ends, strict=True)
    )
    return low, high


def _within(values: NDArray[Any], ends: tuple[float, float], dtype: DType) -> NDArray[Any]:
    low, high = (np.array(end, dtype.value) for end in ends)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(values < low, low, np.where(values > high, high, values)), dtype.value)


def bounded(values: NDArray[Any], activation: str, dtype: DType) -> NDArray[Any]:
    return _within(values, bounds(activation, dtype), dtype)


def limited(values: NDArray[Any], activation: str, dtype: DType) -> NDArray[Any]:
    """The values within what bounds the activation itself has, in the type: an infinity that none cuts off stays (ONNX)."""
    return _within(values, _or_ends(activation, (-np.inf, np.inf)), dtype)


def onnx_activation(activation: str) -> tuple[tuple[Param, ...], KernelSpec]:
    if activation == "RELU":
        return (), KernelSpec("_rectified", rectified=True)
    low, high = ACTIVATION_BOUNDS[activation]
    if low is None or high is None:
        return (), PLAIN
    limits = Param("low", "float", low, "the activation's bounds"), Param("high", "float", high)
    return limits, KernelSpec("_limited", clamped=True)


def bound_params(activation: str, dtype: DType) -> tuple[Param, Param]:
    low, high = bounds(activation, dtype)
    return Param("low", dtype.c_type, low, "the activation's bounds"), Param("high", dtype.c_type, high)

"""Fused activations of TFLite operators on plain numbers: bounds of float32 values and of integers that have no scale.

y = min(max(x, low), high). Without an activation the bounds are the ends of the type, so that what overflows float32 becomes
its largest finite value and not infinite. A NaN stays one, and so does -0 at a bound of 0.
Source  TFLite Micro's kernels.
"""

from __future__ import annotations

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
    if dtype is DType.FLOAT32:
        largest = float(np.finfo(np.float32).max)
        ends: tuple[float, float] = (-largest, largest)
        low, high = ACTIVATION_BOUNDS[activation]
        return (ends[0] if low is None else low), (ends[1] if high is None else high)
    ends = dtype.range
    low, high = ACTIVATION_BOUNDS[activation]
    return (ends[0] if low is None else int(low)), (ends[1] if high is None else int(high))


def bounded(values: NDArray[Any], activation: str, dtype: DType) -> NDArray[Any]:
    """The values within the bounds, in the type."""
    low, high = (np.array(bound, dtype.value) for bound in bounds(activation, dtype))
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(values < low, low, np.where(values > high, high, values)), dtype.value)


def limited(values: NDArray[Any], activation: str, dtype: DType) -> NDArray[Any]:
    """The values within what bounds the activation itself has, in the type: an infinity that none cuts off stays (ONNX)."""
    low, high = (
        np.array(end if bound is None else bound, dtype.value)
        for bound, end in zip(ACTIVATION_BOUNDS[activation], (-np.inf, np.inf), strict=True)
    )
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(values < low, low, np.where(values > high, high, values)), dtype.value)


def onnx_activation(activation: str) -> tuple[tuple[Param, ...], KernelSpec]:
    """The parameters and the spec of an activation that is fused into an operator of ONNX."""
    if activation == "RELU":
        return (), KernelSpec("_rectified", rectified=True)
    low, high = ACTIVATION_BOUNDS[activation]
    if low is None or high is None:
        return (), PLAIN
    limits = Param("low", "float", low, "the activation's bounds"), Param("high", "float", high)
    return limits, KernelSpec("_limited", clamped=True)


def bound_params(activation: str, dtype: DType) -> tuple[Param, Param]:
    """The bounds as members of a parameter struct."""
    low, high = bounds(activation, dtype)
    return Param("low", dtype.c_type, low, "the activation's bounds"), Param("high", dtype.c_type, high)

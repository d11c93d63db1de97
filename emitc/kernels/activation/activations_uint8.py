"""LOGISTIC, TANH, RELU, RELU6, RELU_N1_TO_1 and LEAKY_RELU of legacy uint8 models: what each of the 256 values becomes.

LOGISTIC, TANH  dequantized, the function, times 1 / y_scale, rounded half away from zero, in float32; y has scale 1/256 and
                zero point 0, or 1/128 and 128. LOGISTIC is 1 / (1 + exp(-x)) with each of its steps rounded to float32.
RELU, RELU6, RELU_N1_TO_1, LEAKY_RELU  requantized by x_scale / y_scale (times alpha below zero), ratios of float32, and limited
                to the steps of y between the activation's bounds.
Source  LiteRT's reference kernels, measured; TFLite Micro has none of uint8.
Errors  scales beyond the fixed-point arithmetic; output scales other than those that LOGISTIC and TANH fix.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from emitc.ir import BoundNode, DType, Quantization
from emitc.kernels.contract import illegal, require_dtypes, require_quantization
from emitc.kernels.shared.lookup_and_binary import require_activation, require_factor
from emitc.numerics.float_functions import FUNCTIONS
from emitc.numerics.requantize import Float32, Int64, activation_clamp, multiplier_of, requantize


def _logistic(x: Float32) -> Float32:
    """The rounding of each step can move a value across the middle of two codes."""
    return np.float32(1) / (np.float32(1) + FUNCTIONS["Exp"].apply(-x, ()))


_REAL: Mapping[str, Callable[[Float32], Float32]] = {
    "LOGISTIC": _logistic,
    "TANH": lambda x: FUNCTIONS["TanhOfLibrary"].apply(x, ()),
}
_FIXED = {"LOGISTIC": (1 / 256, 0), "TANH": (1 / 128, 128)}
"""Scale and zero point of the output, as uint8."""
_LIFT = 128
_REACH = 255
"""Largest distance of a value to its zero point."""


def _scales(bound: BoundNode) -> tuple[Quantization, Quantization]:
    x, y = bound.input(0).quantization, bound.output.quantization
    assert x and y
    return x, y


def _factors(bound: BoundNode, alpha: float) -> tuple[float, float]:
    """Of values from the zero point up, and of those below it: TFLite divides and multiplies float32 here."""
    x, y = (np.float32(quantization.scale) for quantization in _scales(bound))
    with np.errstate(all="ignore"):
        return float(x / y), float(x * np.float32(alpha) / y)


def check(bound: BoundNode, alpha: float = 0.0) -> None:
    """Refuses scales that the operator's arithmetic does not take. alpha: the slope of LEAKY_RELU below zero."""
    require_dtypes(bound, [(DType.INT8, DType.INT8)], [])
    require_quantization(bound, bound.input(0), bound.output)
    kind = bound.node.op_type
    if kind in _FIXED:
        scale, zero_point = _FIXED[kind]
        found = _scales(bound)[1]
        if (found.scale, found.zero_point + _LIFT) != (scale, zero_point):
            raise illegal(
                bound, f"{kind} has another output scale or zero point than its uint8 kernel writes",
                f"({found.scale!r}, {found.zero_point + _LIFT}) found, TFLite fixes ({scale!r}, {zero_point})",
                tensor=bound.output
            )  # fmt: skip
        return
    for factor in _factors(bound, alpha)[: 2 if kind == "LEAKY_RELU" else 1]:
        require_factor(bound, abs(factor), _REACH)
    if kind != "LEAKY_RELU":
        require_activation(bound, kind, bound.output)


def results(bound: BoundNode, q: Int64, alpha: float = 0.0) -> Int64:
    """The operator on quantized values of any shape, 128 lower than in the file. alpha: as for `check`."""
    x, y = _scales(bound)
    kind, centred = bound.node.op_type, q - x.zero_point
    low, high = bound.output.dtype.range
    if kind in _REAL:
        with np.errstate(all="ignore"):
            real = np.float32(x.scale) * centred.astype(np.float32)
            scaled = _REAL[kind](real) * (np.float32(1) / np.float32(y.scale))
        rounded = np.sign(scaled) * np.floor(np.abs(scaled.astype(np.float64)) + 0.5)
        return np.asarray(np.clip(rounded + y.zero_point, low, high), np.int64)
    above, below = _factors(bound, alpha)
    identity = multiplier_of(above)
    result = requantize(centred, identity.q31, identity.shift)
    if kind == "LEAKY_RELU":
        slope = multiplier_of(abs(below))
        sign = -1 if below < 0 else 1
        slanted = sign * requantize(centred, slope.q31, slope.shift)
        return np.asarray(np.clip(np.where(centred >= 0, result, slanted) + y.zero_point, low, high), np.int64)
    clamp = activation_clamp(kind, bound.output)
    return np.asarray(np.clip(result + y.zero_point, clamp.low, clamp.high), np.int64)

"""ABS, RSQRT, ELU, EXP, GELU and LOG of TFLite's int8: what each of the 256 values becomes; ABS and RSQRT of its int16, without
zero points.

ABS    requantized by x_scale / y_scale; where the two are equal, not at all.
RSQRT  1 / sqrt(q - z_x) as a Q31 multiplier (five Newton steps, as L2_NORMALIZATION has them) on 2**20, requantized by
       1 / (sqrt(x_scale) * y_scale) with 20 bits less. A zero becomes the type's largest value; so does what lies below, for
       which the interpreter ends the run.
ELU    dequantized, exp(x) - 1 below zero, times 1 / y_scale, rounded half away from zero; all in float32. So are EXP, GELU (both
       formulas) and LOG.
LOG    of what is not above zero is the type's smallest value.
Source  TFLite Micro's kernels, measured: both factors are computed in double; EXP, GELU and LOG LiteRT's, measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from emitc.ir import BoundNode, DType, Quantization
from emitc.kernels.contract import out_of_proportion, require_quantization
from emitc.kernels.shared.int16x8 import require_symmetric
from emitc.kernels.shared.lookup_and_binary import byte_table, require_factor
from emitc.kernels.shared.pointwise import pointwise_layer
from emitc.layer import Formula, Layer, Param
from emitc.numerics.float_functions import FUNCTIONS
from emitc.numerics.inverse_root import inverse_root
from emitc.numerics.requantize import BYTES, Int64, Multiplier, multiplier_of, requantize

WIDE_NAMES = frozenset(("Abs", "Rsqrt"))
"""Functions that int16 has too."""
_REAL: Mapping[str, tuple[float, ...]] = {"Elu": (1.0, 1.0), "Exp": (), "Gelu": (), "GeluTanh": (), "Log": ()}
"""Functions that are computed in float32, with their parameters."""
NAMES = WIDE_NAMES | set(_REAL)
_ABSOLUTE = Multiplier(1 << 30, 1)
"""Times 1, without rounding."""
_ABSOLUTE_OF_SHORTS = Formula(
    "absolute_s16",
    "({y})emitc_clamp(emitc_requantize(v < 0 ? -v : v, p->multiplier, p->shift), INT16_MIN, INT16_MAX)",
    "|x| at another scale",
)
_ROOT_BITS = 20
_LARGEST = {DType.INT8: 255, DType.INT16: 1 << 15}
"""Magnitude of a value less its zero point."""


def _scales(bound: BoundNode) -> tuple[Quantization, Quantization]:
    x, y = bound.input(0).quantization, bound.output.quantization
    assert x and y
    return x, y


def _factor(bound: BoundNode, name: str) -> float:
    x, y = (quantization.scale for quantization in _scales(bound))
    if name == "Abs":
        return x / y
    return 1.0 / (math.sqrt(x) * y)


def require_scales(bound: BoundNode, name: str) -> None:
    """Refuses tensors without a scale, and scales beyond the fixed-point arithmetic."""
    require_quantization(bound, bound.input(0), bound.output)
    require_symmetric(bound)
    if name == "Abs":
        require_factor(bound, _factor(bound, name), _LARGEST[bound.output.dtype])
    if name == "Rsqrt":
        factor = _factor(bound, name)
        if not 2.0**-10 <= factor < 2.0**29:
            raise out_of_proportion(
                bound, f"values are multiplied by {factor!r}, which the fixed-point arithmetic cannot hold"
            )


def _multiplier(bound: BoundNode, name: str) -> Multiplier:
    """ABS: from x's scale to y's. RSQRT: of the root with 20 bits more."""
    x, y = _scales(bound)
    if name == "Abs":
        return multiplier_of(_factor(bound, name)) if x.scale != y.scale else _ABSOLUTE
    factor = multiplier_of(_factor(bound, name))
    return Multiplier(factor.q31, factor.shift - _ROOT_BITS)


def results(bound: BoundNode, name: str, values: Int64) -> Int64:
    """Of quantized values."""
    x, y = _scales(bound)
    low, high = bound.output.dtype.range
    centred = values - x.zero_point
    if name in _REAL:
        with np.errstate(all="ignore"):
            real = np.float32(x.scale) * centred.astype(np.float32)
            scaled = FUNCTIONS[name].apply(real, _REAL[name]) * (np.float32(1) / np.float32(y.scale))
            rounded = np.sign(scaled) * np.floor(np.abs(scaled.astype(np.float64)) + 0.5)
            shifted = rounded.astype(np.float32) + np.float32(y.zero_point)
        if name == "Log":
            shifted = np.where(centred > 0, shifted, np.float32(low))
        return np.asarray(np.clip(shifted, low, high), np.int64)
    multiplier = _multiplier(bound, name)
    if name == "Abs":
        return np.clip(requantize(np.abs(centred), multiplier.q31, multiplier.shift) + y.zero_point, low, high)
    unlike, places = np.unique(np.maximum(centred, 1), return_inverse=True)
    roots = [inverse_root(int(value)) for value in unlike]
    one = np.ones(1, np.int64)
    widened = np.concatenate([requantize(one, root.q31, root.shift + _ROOT_BITS) for root in roots])
    found = requantize(widened, multiplier.q31, multiplier.shift)[places].reshape(centred.shape)
    return np.where(centred <= 0, high, np.clip(found + y.zero_point, low, high))


def layer(bound: BoundNode, name: str) -> Layer:
    """A table of the 256 bytes; of int16 the arithmetic."""
    if bound.input(0).dtype is DType.INT8:
        return byte_table(bound, 0, results(bound, name, BYTES))
    multiplier = _multiplier(bound, name)
    params = (Param("multiplier", "int32_t", multiplier.q31, "Q31"), Param("shift", "int32_t", multiplier.shift))
    return pointwise_layer(bound, _ABSOLUTE_OF_SHORTS if name == "Abs" else "activation/reciprocal_root_s16", params)

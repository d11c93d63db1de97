"""ABS, RSQRT and ELU of TFLite's int8: what each of the 256 values becomes.

ABS    requantized by x_scale / y_scale, rounded to float32; where the two are equal, not at all.
RSQRT  1 / sqrt(q - z_x) as a Q31 multiplier (five Newton steps, as L2_NORMALIZATION has them) on 2**20, requantized by
       1 / (sqrt(x_scale) * y_scale) with 20 bits less, the product in float32. A zero becomes 127; so does what lies below, for
       which the interpreter ends the run.
ELU    dequantized, exp(x) - 1 below zero, times 1 / y_scale, rounded half away from zero; all in float32.
Source  TFLite Micro's kernels, measured.
"""

from __future__ import annotations

import numpy as np

from emitc.ir import BoundNode, Quantization
from emitc.kernels.contract import illegal, require_quantization
from emitc.kernels.elementwise import require_factor
from emitc.kernels.l2_normalization import inverse_root
from emitc.kernels.real_functions import FUNCTIONS
from emitc.quantize import Int64, multiplier_of, requantize

NAMES = frozenset(("Abs", "Rsqrt", "Elu"))
_ROOT_BITS = 20
_LARGEST = 255


def _scales(bound: BoundNode) -> tuple[Quantization, Quantization]:
    x, y = bound.input(0).quantization, bound.output.quantization
    assert x and y
    return x, y


def _factor(bound: BoundNode, name: str) -> float:
    x, y = (np.float32(quantization.scale) for quantization in _scales(bound))
    with np.errstate(all="ignore"):
        if name == "Abs":
            return float(x / y)
        product = float(np.sqrt(x) * y)
    return 1.0 / product if product else float("inf")


def require_scales(bound: BoundNode, name: str) -> None:
    """Refuses tensors without a scale, and scales beyond the fixed-point arithmetic."""
    require_quantization(bound, bound.input(0), bound.output)
    if name == "Abs":
        require_factor(bound, _factor(bound, name), _LARGEST)
    if name == "Rsqrt":
        factor = _factor(bound, name)
        if not 2.0**-10 <= factor < 2.0**29:
            raise illegal(
                bound,
                f"{bound.node.op_type} has scales that are out of proportion",
                f"values are multiplied by {factor!r}, which the fixed-point arithmetic cannot hold",
                "quantize the model again",
                bound.output,
            )


def results(bound: BoundNode, name: str) -> Int64:
    """Of the values -128 to 127."""
    x, y = _scales(bound)
    centred = np.arange(-128, 128, dtype=np.int64) - x.zero_point
    if name == "Elu":
        with np.errstate(all="ignore"):
            real = np.float32(x.scale) * centred.astype(np.float32)
            scaled = FUNCTIONS["Elu"].apply(real, (1.0, 1.0)) * (np.float32(1) / np.float32(y.scale))
            rounded = np.sign(scaled) * np.floor(np.abs(scaled.astype(np.float64)) + 0.5)
            shifted = rounded.astype(np.float32) + np.float32(y.zero_point)
        return np.asarray(np.clip(shifted, -128, 127), np.int64)
    if name == "Abs":
        values = np.abs(centred)
        if x.scale != y.scale:
            multiplier = multiplier_of(_factor(bound, name))
            values = requantize(values, multiplier.q31, multiplier.shift)
        return np.asarray(np.clip(values + y.zero_point, -128, 127), np.int64)
    roots = [inverse_root(int(value)) for value in np.maximum(centred, 1)]
    one = np.ones(1, np.int64)
    widened = np.concatenate([requantize(one, root.q31, root.shift + _ROOT_BITS) for root in roots])
    multiplier = multiplier_of(_factor(bound, name))
    values = requantize(widened, multiplier.q31, multiplier.shift - _ROOT_BITS)
    return np.where(centred <= 0, 127, np.clip(values + y.zero_point, -128, 127))

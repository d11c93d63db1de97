"""Softmax of quantized values from tables of exponentials, with ONNX Runtime's bits.

exp of a row's values is taken of their distance to the row's largest, which is one of 256 (int8) or 65 536 (int16) values.
int8    y = rint(e * numerator / sum e) + y_zero, e from a table, the sum in float32. QLinearSoftmax: e is scaled up so far
        that the sum of a row uses float32's range. The numerator is floor(1 / y_scale), and the quotient is a double one: so
        close to a half that a float one could fall on the other side, the C compares whole numbers. Between DequantizeLinear
        and QuantizeLinear: e in (0, 1] and 1 / y_scale, and a float32 quotient.
int16   e in Q31 as the product of two table entries, by the high and the low byte of the distance; sums in 64 bits; then the
        same in float32. ONNX Runtime's own float32 exp is off by more than the two tables: about 1 of 2 500 elements differs
        by one step.
Source  ONNX Runtime's QLinearSoftmax and Softmax; table, order of summation and rounding found by comparing with their
        outputs (int8: 0 differing). Before 1.32 ONNX Runtime had a float32 quotient in QLinearSoftmax too.
"""

import math
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from emitc.ir import Array, BoundNode, DType, Numerics
from emitc.kernels.contract import illegal
from emitc.kernels.normalization.rows import Rows, require_depth
from emitc.layer import PLAIN, KernelSpec, Layer, Param, Table, integers

_ONE = 1 << 31
_MAX_DEPTH = 1 << 24
"""Elements of a row whose Q31 exponentials sum up to what float32 still takes in one conversion."""
_HEADROOM = 5.0
"""What QLinearSoftmax leaves free below the end of float32, as a natural logarithm."""
_FINEST = 2.0**-24
"""Output scale of QLinearSoftmax: one over it is a whole number that float32 holds."""
_EXACT = "_exact"
"""Suffix of kernels for QLinearSoftmax."""
_LARGEST_PART = 2.0**126
"""Of what vectors divide by a sum."""


def _is_integer(bound: BoundNode) -> bool:
    """Whether the operator is QLinearSoftmax."""
    return bound.node.op.numerics is Numerics.QOPERATOR


def check(bound: BoundNode, rows: Rows) -> None:
    """Refuses an output scale whose inverse leaves float32, and rows that are too long."""
    y_scale, integer = np.float32(bound.output.scale), _is_integer(bound)
    if not (_FINEST if integer else 2.0**-100) <= float(y_scale) <= 2.0**100:
        what = "has an output scale that is out of proportion"
        raise illegal(bound, what, f"{float(y_scale)!r}", "quantize the model again", bound.output)
    if integer and DType.INT16 in (bound.input(0).dtype, bound.output.dtype):
        raise illegal(bound, "has int16 tensors", "QLinearSoftmax takes 8 bits")
    require_depth(bound, rows.depth, _MAX_DEPTH)


def _numerator(bound: BoundNode) -> np.float32:
    """What a share of 1 is in quantized steps."""
    steps = np.float32(1.0) / np.float32(bound.output.scale)
    return np.floor(steps) if _is_integer(bound) else steps


def _float_table(bound: BoundNode, rows: Rows) -> NDArray[np.float32]:
    """exp(-d * x_scale) for d = 0 to 255, for QLinearSoftmax times the largest factor that it allows a row."""
    x_scale = float(np.float32(bound.input(0).scale))
    lift = 0.0
    if _is_integer(bound):
        largest = float(np.finfo(np.float32).max / np.float32(rows.depth))
        # This logarithm is a float32 one there; the exponentials below are double.
        lift = max(0.0, float(np.float32(math.log(largest))) - _HEADROOM) / x_scale
    steps = np.arange(255, -1, -1, dtype=np.float64) - 255 + lift
    return np.asarray(np.exp(steps * x_scale).astype(np.float32))


def _integer_tables(bound: BoundNode) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """exp(-d * x_scale) in Q31 for d = 0, 256, 512, ... and for d = 0 to 255."""
    x_scale = float(np.float32(bound.input(0).scale))
    low = np.arange(256, dtype=np.float64)
    with np.errstate(under="ignore"):
        coarse, fine = np.exp(-256 * low * x_scale), np.exp(-low * x_scale)
    return np.rint(coarse * _ONE).astype(np.int64), np.rint(fine * _ONE).astype(np.int64)


def reference(bound: BoundNode, rows: Rows, values: Array) -> Array:
    """Distances to the maximum, exponentials from tables, then float32 in ONNX Runtime's order."""
    y = bound.output
    x = rows.view(values.astype(np.int64))
    distance = x.max(axis=1, keepdims=True) - x
    if bound.input(0).dtype is DType.INT8:
        exponential = _float_table(bound, rows)[distance]
        total = np.zeros((rows.outer, rows.inner), np.float32)
        for i in range(rows.depth):
            total = total + exponential[:, i]
    else:
        coarse, fine = _integer_tables(bound)
        # Half of 2**31 is added before the shift: to nearest, as in the C.
        q31 = (coarse[distance >> 8] * fine[distance & 255] + (_ONE >> 1)) >> 31
        exponential, total = q31.astype(np.float32), q31.sum(axis=1).astype(np.float32)
    low, high = y.dtype.range
    if _is_integer(bound):
        exponential = exponential.astype(np.float64)
    with np.errstate(over="ignore"):
        ratio = exponential * _numerator(bound) / total[:, None]
    steps = np.clip(np.rint(ratio).astype(np.float64) + y.zero_point, low, high)
    return np.asarray(steps.astype(y.dtype.value).reshape(y.shape))


def vectors(bound: BoundNode, rows: Rows) -> Layer | str:
    """The layer of rows of int8 for vectors, four shares at a time; or why there is none."""
    portable = layer(bound, rows)
    if {portable.spec.x, portable.spec.y} != {"int8_t"}:
        return f"{portable.kernel_name}{portable.spec.suffix} has a portable version only"
    if rows.inner != 1:
        return "the values of a row are not contiguous"
    known = {param.name: param.value for param in portable.params}
    # Vectors make no number of what is infinite, where one by one it is limited.
    if float(known["numerator"]) * max(map(float, portable.tables[0].values)) > _LARGEST_PART:
        return "the result may overflow float32"
    highest = int(known["clamp_high"]) - int(known["output_offset"])
    params = (
        *integers(rows=rows.outer, depth=(rows.depth, "values of a row")),
        *(param for param in portable.params if param.name in ("numerator", "output_offset")),
        Param("highest", "int32_t", highest, "limit of a share in steps"),
    )
    spec = PLAIN.extended(_EXACT, exact_rounding=True) if portable.spec.exact_rounding else PLAIN
    headers = ("emitc_mve.h", "emitc_mve_float32.h")
    return replace(portable, template="normalization/softmax_table_mve", params=params, spec=spec, headers=headers)


def layer(bound: BoundNode, rows: Rows) -> Layer:
    """Tables, and two passes over each row."""
    x, y = bound.input(0), bound.output
    exact = _is_integer(bound)
    spec = KernelSpec(f"_{x.dtype.value}_{y.dtype.value}", fixed_point=False, x=x.dtype.c_type, y=y.dtype.c_type)
    spec = spec.extended(_EXACT, exact_rounding=True) if exact else spec
    params = (
        *rows.params,
        Param("numerator", "float", float(_numerator(bound)), "steps of the output that a share of 1 is"),
        *integers(output_offset=y.zero_point, clamp_high=y.dtype.range[1]),
    )
    if not exact:
        highest = float(y.dtype.range[1] - y.zero_point)
        params += (Param("highest", "float", highest, "from here on clamp_high"),)
    if x.dtype is DType.INT8:
        table = tuple(float(v) for v in _float_table(bound, rows))
        tables = (Table("exponentials", "float", table, "exp of minus the distance to the maximum, scaled"),)
        return Layer("normalization/softmax_table", "portable", (0,), tables, params, spec=spec)
    coarse, fine = _integer_tables(bound)
    wide = (
        Table("coarse", "uint32_t", tuple(coarse.tolist()), "exp of minus 256 times the index, Q31"),
        Table("fine", "uint32_t", tuple(fine.tolist()), "exp of minus the index, Q31"),
    )
    return Layer("normalization/softmax_table_wide", "portable", (0,), wide, params, spec=spec)

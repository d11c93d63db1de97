"""L2_NORMALIZATION: y = x / sqrt(sum(x * x)), the sum over the last dimension.

Shapes  x any of rank 1 or more, y the same.
Types   float32: the root is 1e-6 at least. int8, y of scale 1/128 and zero point 0: the inverse root of the integer sum n,
        scaled by a power of 4 into [1/4, 1): five Newton steps x' = (3 - n x * x) x / 2 in Q3.28 from x = 1; the result is a
        Q31 multiplier and a shift. A sum of 0 counts as 1.
Source  TFLite Micro's kernel.   Errors  int8 rows of more than 33 025 elements, whose sum can leave int32.
"""

from collections.abc import Sequence

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op
from emitc.kernels.contract import KernelDef, Parsed, require_dtypes, require_quantization, unsupported
from emitc.kernels.normalization.rows import require_int8_output, require_rows, row_params, row_work
from emitc.kernels.shared.pointwise import operand, plain_numerics
from emitc.layer import PLAIN, KernelSpec, Layer, Param, in_step
from emitc.numerics.inverse_root import inverse_root
from emitc.numerics.requantize import INT32_MAX, requantize
from emitc.source import SourceNode

_TYPES = (DType.INT8, DType.FLOAT32)
_MAX_DEPTH = INT32_MAX // 255**2
_LEAST_ROOT = 1e-6
_OUTPUT_BITS = 7


class L2Normalization(Op):
    """Rows of length 1."""


def from_tflite(node: SourceNode) -> Parsed:
    """No option but an activation, which no engine computes."""
    node.counts((1, 1))
    node.text("fused_activation_function", ("NONE",))
    return Parsed(L2Normalization(numerics=plain_numerics(node)))


def check(bound: BoundNode) -> None:
    """Refuses other types, another output scale than TFLite fixes, and rows that are too long."""
    x, y = bound.input(0), bound.output
    require_dtypes(bound, [(t, t) for t in _TYPES])
    require_rows(bound)
    if x.dtype is DType.FLOAT32:
        return
    require_quantization(bound, x, y)
    require_int8_output(bound, 1 << _OUTPUT_BITS, 0)
    if x.shape[-1] > _MAX_DEPTH:
        what, why = f"over {x.shape[-1]} elements", f"the sum of {_MAX_DEPTH} squares fits int32"
        raise unsupported(bound, what, why, "reduce the depth", x)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    x = operand(bound, inputs, 0)
    if x.dtype == np.float32:
        with np.errstate(all="ignore"):
            real = x.astype(np.float32)
            norm = np.sqrt(np.add.accumulate(real * real, axis=-1, dtype=np.float32)[..., -1:])
            norm = np.where(norm < np.float32(_LEAST_ROOT), np.float32(_LEAST_ROOT), norm)
            return (np.asarray(real / norm, np.float32),)
    quantization = bound.input(0)
    rows = (x.astype(np.int64) - quantization.zero_point).reshape(-1, x.shape[-1])
    factors = [inverse_root(int(total)) for total in (rows * rows).sum(axis=1)]
    q31 = np.array([[factor.q31] for factor in factors], np.int64)
    shift = np.array([[factor.shift + _OUTPUT_BITS] for factor in factors], np.int64)
    return (np.clip(requantize(rows, q31, shift), -128, 127).astype(np.int8).reshape(x.shape),)


def lower(bound: BoundNode) -> Layer:
    """Two passes over each row, which may be overwritten in place."""
    x = bound.input(0)
    if x.dtype is DType.FLOAT32:
        template, spec = "normalization/l2_normalization_float", KernelSpec(x="float", y="float")
        last = Param("least", "float", _LEAST_ROOT, "of the root")
    else:
        template, spec = "normalization/l2_normalization", PLAIN
        last = Param("x_offset", "int32_t", -x.zero_point, "minus the zero point")
    return Layer(template, "portable", (0,), params=(*row_params(x.shape), last), overlaps=(in_step(bound),), spec=spec)


KERNELS = (
    KernelDef(
        L2Normalization, "rows scaled to length 1", _TYPES, ("L2_NORMALIZATION",), from_tflite, check, reference,
        lower, work=row_work,
    ),
)  # fmt: skip

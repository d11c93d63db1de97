"""int16 activations with int8 weights as TFLite Micro has them: sums of 64 bits, a multiplier of 16 bits, one rounding.

y = clamp(floor(acc * q15 * 2**(shift - 15) + 1/2)), acc = bias + sum(x * w); scales are symmetric, so there are no zero
points. With an int32 bias sums have 32 bits and are requantized as for int8.
On the device sums have 32 bits wherever no input can take them further, and every shift is at least 2 to the right: then
acc * q15 / 2**16 has 32 bits too, so that no 64-bit number is shifted. The result is the same bit for bit. For n over 16,
floor((a + 2**(n - 1)) / 2**n) = floor((floor(a / 2**16) + 2**(n - 17)) / 2**(n - 16)). Elsewhere parts of a sum, of 511
products at most, have 32 bits. Source: TFLite 16x8 quantization specification; rounding as TFLite Micro's kernels (measured,
see docs/numerics.md).
"""

from collections.abc import Sequence

import numpy as np

from emitc.ir import BoundNode, DType, Tensor
from emitc.kernels.contract import illegal, unsupported
from emitc.layer import PLAIN, KernelSpec, Table
from emitc.numerics.requantize import INT32_MAX, REDUCED_SUM_LIMIT, Int64, reduced_multiplier

FACTOR_LIMIT = 2.0**7 - 2.0**-25
"""From here on a multiplier is shifted left by more than 7 bits, which TFLite Micro's 64-bit requantization excludes."""
SUM_MAX = REDUCED_SUM_LIMIT - 1
"""Largest sum of 64 bits."""
_LARGEST = 1 << 15
"""Magnitude of an input."""
_NARROW_SHIFT = -2
"""With this shift or a lower one the high half of the product is enough."""


def applies(bound: BoundNode) -> bool:
    """Whether an operator of TFLite works on int16 activations."""
    return not bound.node.op.numerics.float_scale and bound.input(0).dtype is DType.INT16


def combinations(biased: bool, *, short_bias: bool) -> list[tuple[DType, ...]]:
    """Element types of input, weights, bias if there is one, and output. short_bias: it may be int32."""
    biases = (DType.INT64, DType.INT32)[: 2 if short_bias else 1] if biased else (None,)
    return [(DType.INT16, DType.INT8, *((b,) if b else ()), DType.INT16) for b in biases]


def require_symmetric(bound: BoundNode) -> None:
    """Refuses int16 activations with a zero point."""
    for tensor in (*bound.inputs, *bound.outputs):
        if (
            tensor is not None
            and tensor.dtype is DType.INT16
            and tensor.quantization
            and any(tensor.quantization.zero_points)
        ):
            what = f"has an int16 tensor with the zero point {tensor.quantization.zero_point}"
            raise illegal(bound, what, "int16 activations are symmetric in TFLite", "quantize the model again", tensor)


def refuse_int32_bias(bound: BoundNode, bias: Tensor | None) -> None:
    """Of TRANSPOSE_CONV, where the converter writes one on demand."""
    if bias is not None and (bound.input(0).dtype, bias.dtype) == (DType.INT16, DType.INT32):
        what = "of int16 with a bias of int32 is not supported"
        why = "TFLite Micro and LiteRT read the bias as int64, so that their results are those of other numbers"
        raise unsupported(bound, what, why, "convert the model with a bias of int64", bias)


def throughout(dtype: DType) -> KernelSpec:
    """The spec of kernels whose inputs and outputs are all int8 or all int16."""
    return KernelSpec("_s16", x="int16_t", w="int16_t", y="int16_t") if dtype is DType.INT16 else PLAIN


WIDE = KernelSpec("_s16_wide", x="int16_t", y="int16_t", acc="int64_t", reduced=True)
"""Sums of 64 bits."""


def worst_sum(filters: Int64, bias: Int64) -> int:
    """What no partial sum exceeds in magnitude. filters: [O, K], every weight that meets an input."""
    worst = np.abs(filters).sum(axis=1) * _LARGEST + np.abs(bias)
    return int(worst.max()) if worst.size else 0


def spec(filters: Int64, bias: Int64, shifts: Sequence[int], *, reduced: bool) -> KernelSpec:
    """Sums of 32 bits wherever that gives the same, else of 64."""
    if not reduced:
        return KernelSpec("_s16_q31", x="int16_t", y="int16_t")
    if worst_sum(filters, bias) <= INT32_MAX and max(shifts) <= _NARROW_SHIFT:
        return KernelSpec("_s16", x="int16_t", y="int16_t", reduced=True)
    return WIDE


def tables(q31: Sequence[int], shifts: Sequence[int], kind: KernelSpec, extent: str) -> tuple[Table, ...]:
    """Multipliers of 16 bits, and the right shifts of their products beyond the bits that the kernel drops first."""
    first = 0 if kind.acc == "int64_t" else 16
    right = tuple(15 - shift - first for shift in shifts)
    return (
        Table("multiplier", "int16_t", tuple(reduced_multiplier(q) for q in q31), f"Q15 multiplier {extent}"),
        Table("right", "int8_t", right, f"right shift of the product {extent}"),
    )

"""How sums become outputs: factors of scales, multipliers and shifts, and what the layer tells its kernel of them.

TFLite: Q31 multiplier and shift of x_scale * w_scale / y_scale in double; for 64-bit sums of int16 inputs the multiplier in
16 bits (int16x8.py), of legacy uint8 FULLY_CONNECTED the factor in double and one rounding. ONNX: the factor in float32, one
product rounded half to even.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from emitc.ir import Array, BoundNode, DType, Numerics, Op
from emitc.kernels.shared import int16x8
from emitc.layer import KernelSpec, Param, Table, integers
from emitc.numerics.requantize import (
    Clamp,
    Int64,
    multiplier_of,
    requantize,
    requantize_exact,
    requantize_float,
    requantize_reduced,
)
from emitc.source import SourceNode

WEIGHTS = 1
BIAS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Accumulating(Op):
    """An operator that sums products. int32_sums: of int16 inputs without a bias, which then have no 64 bits."""

    int32_sums: bool = False

    @property
    def rounds_once(self) -> bool:
        """Whether the one product with the double factor is rounded once."""
        return False


def int32_sums(node: SourceNode) -> bool:
    """Whether the options of a TFLite operator ask for sums of 32 bits where the bias does not tell."""
    return node.attributes.get("quantized_bias_type") == "INT32"


@dataclass(frozen=True, slots=True)
class Requantization:
    """Multipliers (Q31) and shifts (positive left), or float32 factors: one each, or one per output channel.

    reduced: multipliers are taken in 16 bits, for sums of 64 bits. exact: the factor in double, 0 where it is not that.
    """

    q31: tuple[int, ...] = ()
    shift: tuple[int, ...] = ()
    real: tuple[float, ...] = ()
    reduced: bool = False
    exact: float = 0.0

    @property
    def per_channel(self) -> bool:
        return len(self.q31 or self.real) > 1

    def apply(self, acc: Int64, zero_point: int, clamp: Clamp, dtype: DType) -> Array:
        """acc [..., O] to quantized outputs; a sum with the zero point that leaves int32 wraps, as 32-bit code does."""
        if self.real:
            scaled = requantize_float(acc, np.array(self.real, np.float32))
            return clamp.apply(scaled + zero_point, dtype)
        if self.exact:
            return clamp.apply(requantize_exact(acc, self.exact) + zero_point, dtype)
        rule = requantize_reduced if self.reduced else requantize
        scaled = rule(acc, np.array(self.q31, np.int64), np.array(self.shift, np.int64))
        return clamp.apply((scaled + zero_point).astype(np.int32).astype(np.int64), dtype)


_LAYERS = 64
"""Whose multipliers are remembered."""
SMALLEST_NORMAL = 2.0**-126
"""Lowest float32 factor with all its bits."""
FACTOR_LIMIT = 2.0**30 - 0.25
"""From here on the multiplier rounds to 2**30, which a shift of at most 30 cannot express."""


def rounds_once(bound: BoundNode) -> bool:
    """Whether sums are multiplied by the factor in double and rounded once."""
    return isinstance(bound.node.op, Accumulating) and bound.node.op.rounds_once


def real_factors(bound: BoundNode) -> list[float]:
    """Real factor from accumulator to output in double, one for each weight scale.

    LiteRT's uint8 convolutions round the product of the scales to float32 (accumulators between the two multipliers show it).
    """
    x, w, y = bound.input(0), bound.input(WEIGHTS), bound.output
    assert w.quantization
    if bound.node.op.numerics is Numerics.UNSIGNED and not rounds_once(bound):
        with np.errstate(over="ignore", under="ignore"):
            products = np.float32(x.scale) * np.array(w.quantization.scales, np.float32)
        return [float(product) / y.scale for product in products]
    of_x, of_y = x.scale, y.scale
    return [of_x * scale / of_y for scale in w.quantization.scales]


def float_factors(bound: BoundNode) -> tuple[float, ...]:
    """x_scale * w_scale / y_scale in float32, one for each weight scale, as the doubles that equal them."""
    x, w, y = bound.input(0), bound.input(WEIGHTS), bound.output
    assert w.quantization
    with np.errstate(all="ignore"):
        product = np.float32(x.scale) * np.array(w.quantization.scales, np.float32)
        return tuple(float(v) for v in product / np.float32(y.scale))


def requantization(bound: BoundNode) -> Requantization:
    """x_scale * w_scale / y_scale in double, for one weight scale as for many.

    TFLite Micro's FULLY_CONNECTED is no exception: accumulators between the multipliers of the double and of the float32
    product of scales show it to take the double one. In ONNX every operation on scales is in float32.
    """
    if bound.node.op.numerics.float_scale:
        factors = float_factors(bound)
        return Requantization(real=factors[:1] if len(set(factors)) == 1 else factors)
    if rounds_once(bound):
        return Requantization(exact=real_factors(bound)[0])
    q31, shift = _multipliers(tuple(real_factors(bound)))
    return Requantization(q31, shift, reduced=reduced(bound))


@lru_cache(maxsize=_LAYERS)
def _multipliers(factors: tuple[float, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Multipliers and shifts, one of each where all are the same. Every variant of a kernel asks for those of its layer."""
    multipliers = [multiplier_of(factor) for factor in factors]
    q31 = tuple(m.q31 for m in multipliers)
    shift = tuple(m.shift for m in multipliers)
    return (q31[:1], shift[:1]) if len({*q31}) == len({*shift}) == 1 else (q31, shift)


def reduced(bound: BoundNode) -> bool:
    """Whether sums have 64 bits in TFLite Micro: those of int16 inputs, unless the bias has 32."""
    op, bias = bound.node.op, bound.optional(BIAS)
    if not int16x8.applies(bound):
        return False
    return bias.dtype is not DType.INT32 if bias else not (isinstance(op, Accumulating) and op.int32_sums)


def requantization_tables(scale: Requantization, kind: KernelSpec) -> tuple[Table, ...]:
    """Multipliers and shifts, or float32 factors, as constant arrays."""
    extent = "per output channel" if scale.per_channel else "for all channels"
    if scale.reduced:
        return int16x8.tables(scale.q31, scale.shift, kind, extent)
    if scale.real:
        return (Table("multiplier", "float", scale.real, f"float32 factor {extent}"),)
    return (
        Table("multiplier", "int32_t", scale.q31, f"Q31 multiplier {extent}"),
        Table("shift", "int8_t", scale.shift, f"shift of the product {extent}, positive left"),
    )


def output_limits(bound: BoundNode, clamp: Clamp) -> tuple[Param, ...]:
    return integers(output_offset=bound.output.zero_point, clamp_low=clamp.low, clamp_high=clamp.high)


def output_params(bound: BoundNode, scale: Requantization, clamp: Clamp) -> tuple[Param, ...]:
    step = Param(
        "per_channel", "int32_t", int(scale.per_channel), "1: each output channel has its own multiplier and shift"
    )
    return (*output_limits(bound, clamp), step)

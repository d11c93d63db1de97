"""SignalPCAN: automatic gain, y = shrink((x * gain(noise)) >> snr_shift), per channel.

Shapes  x, noise and y [C], table [125 or more].   Types  x, noise, y uint32, table int16, constant.
        gain: the table has three numbers for each number of bits of noise, of a parabola over the ten bits below the first;
        for noise up to 2 the gain itself. Of the product with x, shifted, 32 bits count, of which 12 are fractions.
        shrink: v * v / 4 below 2, v - 1 from there on; 6 bits of fractions remain.
Source  TFLite Micro's signal library.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op
from emitc.kernels.contract import KernelDef, Parsed, Variant, illegal, require_dtypes, unsupported
from emitc.kernels.costs import UNKNOWN_VECTORS
from emitc.kernels.signal.simd import in_naturals
from emitc.layer import Layer, Param, Table
from emitc.source import SourceNode

_TABLE = 125


@dataclass(frozen=True, slots=True)
class SignalPcan(Op):
    """snr_shift: bits that the products lose."""

    snr_shift: int


def from_tflite(node: SourceNode) -> Parsed:
    """The options."""
    node.counts((3, 3))
    return Parsed(SignalPcan(node.integer("snr_shift", low=0, high=63)), (0, 1, 2))


def check(bound: BoundNode) -> None:
    """Refuses other types, a computed table, and sizes that do not fit."""
    require_dtypes(bound, [(DType.UINT32, DType.UINT32, DType.INT16, DType.UINT32)])
    x, noise, table = (bound.input(i) for i in range(3))
    if not table.is_constant:
        raise unsupported(
            bound, "SignalPCAN with a computed table is not supported", "it must be constant", "export again", table
        )
    if noise.shape != x.shape or len(table.shape) != 1 or table.elements < _TABLE or noise.is_constant or x.is_constant:
        raise illegal(
            bound,
            "SignalPCAN has inputs that do not fit",
            f"{list(x.shape)}, {list(noise.shape)}, {list(table.shape)}",
            tensor=x,
        )


def _wrapped(value: int) -> int:
    return (value + (1 << 31)) % (1 << 32) - (1 << 31)


def _gain(noise: int, table: list[int]) -> int:
    if noise <= 2:
        return table[noise]
    bits = noise.bit_length()
    constant, linear, square = table[4 * bits - 6 : 4 * bits - 3]
    fraction = ((noise << 11) >> bits) & 0x3FF
    slope = ((square * fraction) >> 5) + linear * 32
    rounded = (_wrapped(_wrapped(slope * fraction) + (1 << 14)) >> 15) + constant
    return (rounded + (1 << 15)) % (1 << 16) - (1 << 15)


def _shrunk(snr: int) -> int:
    return (snr * snr) >> 20 if snr < 1 << 13 else (snr >> 6) - 64


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """In Python's integers."""
    op = bound.node.op
    assert inputs[0] is not None and inputs[1] is not None and isinstance(op, SignalPcan)
    table = [int(v) for v in bound.input(2).array().tolist()]
    results = []
    for x, noise in zip(inputs[0].reshape(-1).tolist(), inputs[1].reshape(-1).tolist(), strict=True):
        product = int(x) * (_gain(int(noise), table) % (1 << 32)) % (1 << 64)
        results.append(_shrunk((product >> op.snr_shift) % (1 << 32)))
    return (np.array(results, np.uint32).reshape(bound.output.shape),)


def lower(bound: BoundNode) -> Layer:
    """Channel by channel."""
    op = bound.op(SignalPcan)
    table = Table(
        "gains", "int16_t", tuple(int(v) for v in bound.input(2).array().tolist()), "gains by bits of the noise"
    )
    params = (Param("count", "int32_t", bound.output.elements), Param("snr_shift", "int32_t", op.snr_shift))
    return Layer("signal/signal_pcan", "portable", (0, 1), (table,), params, headers=("emitc_bits.h",))


def lower_mve(bound: BoundNode) -> Layer:
    """Four channels at a time."""
    return in_naturals(lower(bound))


KERNELS = (
    KernelDef(
        SignalPcan,
        "gain by an estimate of noise",
        (DType.UINT32,),
        ("CUSTOM:SignalPCAN",),
        from_tflite,
        check,
        reference,
        lower,
        variants=(Variant("mve", "mve", lower_mve, UNKNOWN_VECTORS, (DType.UINT32,)),),
    ),
)

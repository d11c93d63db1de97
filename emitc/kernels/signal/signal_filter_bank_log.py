"""SignalFilterBankLog: y = min(32767, output_scale * ln(x * 2**input_correction_bits)), 0 for 0 and 1.

Shapes  x any, y as x.   Types  x uint32, y int16.
        The shifted x has 32 bits. log2 has 16 bits of fractions: of the fraction f of the mantissa, log2(1 + f) - f comes from a
        table of 129 values, linear between; ln 2 is 45426 / 2**16. Each of the two products is rounded half up; the second one is
        modulo 2**32, with 16 bits of fractions.
Source  TFLite Micro's signal library; the table is computed here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op
from emitc.kernels.contract import KernelDef, Parsed, Variant, require_dtypes
from emitc.kernels.costs import UNKNOWN_VECTORS
from emitc.kernels.signal.simd import in_naturals
from emitc.layer import Layer, Param, Table
from emitc.source import SourceNode

_SEGMENTS = 128
_LN_2 = 45426
_TABLE = tuple(round((math.log2(1 + i / _SEGMENTS) - i / _SEGMENTS) * 65536) for i in range(_SEGMENTS + 1))


@dataclass(frozen=True, slots=True)
class SignalFilterBankLog(Op):
    """output_scale: factor on the logarithm, modulo 2**32. correction: bits that the input is shifted up by."""

    output_scale: int
    correction: int


def from_tflite(node: SourceNode) -> Parsed:
    """The options."""
    node.counts((1, 1))
    scale = node.integer("output_scale", low=-(1 << 31), high=(1 << 31) - 1)
    return Parsed(SignalFilterBankLog(scale, node.integer("input_correction_bits", low=0, high=31)))


def check(bound: BoundNode) -> None:
    """Refuses other types."""
    require_dtypes(bound, [(DType.UINT32, DType.INT16)])


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """In int64."""
    assert inputs[0] is not None
    op = bound.op(SignalFilterBankLog)
    x = (inputs[0].astype(np.int64) << op.correction) % (1 << 32)
    safe = np.maximum(x, 1)
    whole = np.array([int(v).bit_length() - 1 for v in safe.reshape(-1)], np.int64).reshape(x.shape)
    fraction = ((safe - (np.int64(1) << whole)) << 16) >> whole
    table = np.array((*_TABLE, 0), np.int64)
    segment = fraction >> 9
    between = ((table[segment + 1] - table[segment]) * (fraction - (segment << 9))) >> 16
    log2 = (whole << 16) + fraction + table[segment] + between
    natural = (_LN_2 * log2 + (1 << 15)) >> 16
    scaled = ((op.output_scale * natural + (1 << 15)) % (1 << 32)) >> 16
    return (np.where(x > 1, np.minimum(scaled, 2**15 - 1), 0).astype(np.int16),)


def lower(bound: BoundNode) -> Layer:
    """Value by value."""
    op = bound.op(SignalFilterBankLog)
    params = (
        Param("count", "int32_t", bound.output.elements),
        Param("output_scale", "int32_t", op.output_scale),
        Param("correction", "int32_t", op.correction),
    )
    table = Table("logarithms", "int16_t", _TABLE, "log2(1 + i / 128) - i / 128 with 16 bits of fractions")
    return Layer("signal/signal_filter_bank_log", "portable", (0,), (table,), params, headers=("emitc_bits.h",))


def lower_mve(bound: BoundNode) -> Layer:
    """Four values at a time."""
    return in_naturals(lower(bound))


KERNELS = (
    KernelDef(
        SignalFilterBankLog,
        "logarithms of channels",
        (DType.UINT32,),
        ("CUSTOM:SignalFilterBankLog",),
        from_tflite,
        check,
        reference,
        lower,
        variants=(Variant("mve", "mve", lower_mve, UNKNOWN_VECTORS, (DType.UINT32,)),),
    ),
)

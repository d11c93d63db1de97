"""SignalFilterBankSpectralSubtraction: channels less an estimate of their noise, which follows them slowly from run to run.

Shapes  x, y and estimate [C]; the estimate is kept as state.   Types  uint32.
        s = x * 2**smoothing_bits in 32 bits; estimate = (s * smoothing + estimate * one_minus_smoothing) >> bits, in 64 bits,
        with factors of their own for odd channels;
        y = max((s - min(estimate, s)) >> smoothing_bits, (x * min_signal_remaining) >> bits).
        clamping: the estimate never stays above s.
Source  TFLite Micro's signal library. The state is the frontend's second input.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op, Shape
from emitc.kernels.contract import KernelDef, Parsed, Variant, illegal, require_dtypes
from emitc.kernels.costs import UNKNOWN_VECTORS
from emitc.kernels.signal.simd import in_naturals
from emitc.layer import Layer, Param
from emitc.source import SourceNode

_FACTORS = (
    "smoothing",
    "one_minus_smoothing",
    "alternate_smoothing",
    "alternate_one_minus_smoothing",
    "min_signal_remaining",
)


@dataclass(frozen=True, slots=True)
class SignalFilterBankSpectralSubtraction(Op):
    """factors: as _FACTORS names them. smoothing_bits, bits: fractions of the estimate and of the factors."""

    factors: tuple[int, ...]
    smoothing_bits: int
    bits: int
    clamping: bool


def from_tflite(node: SourceNode) -> Parsed:
    """The options."""
    node.counts((2, 2), (2, 2))
    channels = node.integer("num_channels", low=1)
    if node.input(0).shape != (channels,):
        raise node.refusal(
            f"{node.op_type} has num_channels = {channels}", f"its input has {list(node.input(0).shape)}"
        )
    factors = tuple(node.integer(name, low=0) for name in _FACTORS)
    op = SignalFilterBankSpectralSubtraction(
        factors,
        node.integer("smoothing_bits", low=0, high=31),
        node.integer("spectral_subtraction_bits", low=0, high=31),
        bool(node.attribute("clamping", False)),
    )
    return Parsed(op, (0, 1), states=(1,))


def check(bound: BoundNode) -> None:
    """Refuses other types, and constant channels."""
    require_dtypes(bound, [(DType.UINT32,) * 5])
    if bound.input(0).is_constant:
        raise illegal(bound, f"{bound.node.op_type} has constant channels", "they are computed")


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """The input's shape, for the state too."""
    return (bound.input(0).shape,) * 3


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """In uint64, where no sum or product of the factors and 32-bit values overflows."""
    assert inputs[0] is not None and inputs[1] is not None
    op, x, old = bound.op(SignalFilterBankSpectralSubtraction), inputs[0].astype(np.uint64), inputs[1].astype(np.uint64)
    even, even_rest, odd, odd_rest, remaining = (np.uint64(f) for f in op.factors)
    place, low = np.arange(len(x)) % 2 == 0, np.uint64(2**32 - 1)
    scaled = (x << np.uint64(op.smoothing_bits)) & low
    sums = scaled * np.where(place, even, odd) + old * np.where(place, even_rest, odd_rest)
    noise = (sums >> np.uint64(op.bits)) & low
    taken = np.minimum(noise, scaled)
    floor = ((x * remaining) >> np.uint64(op.bits)) & low
    y = np.maximum((scaled - taken) >> np.uint64(op.smoothing_bits), floor).astype(np.uint32)
    kept = (taken if op.clamping else noise).astype(np.uint32)
    return y, kept, kept.copy()


def lower(bound: BoundNode) -> Layer:
    """Channel by channel."""
    op = bound.op(SignalFilterBankSpectralSubtraction)
    params = (
        Param("count", "int32_t", bound.output.elements),
        *(Param(name, "uint32_t", value) for name, value in zip(_FACTORS, op.factors, strict=True)),
        Param("smoothing_bits", "int32_t", op.smoothing_bits),
        Param("bits", "int32_t", op.bits),
        Param("clamping", "int32_t", int(op.clamping)),
    )
    return Layer("signal/signal_filter_bank_spectral_subtraction", "portable", (0,), params=params)


def lower_mve(bound: BoundNode) -> Layer:
    """Four channels at a time."""
    return in_naturals(lower(bound))


KERNELS = (
    KernelDef(
        SignalFilterBankSpectralSubtraction,
        "channels less their noise, which is kept as state",
        (DType.UINT32,),
        ("CUSTOM:SignalFilterBankSpectralSubtraction",),
        from_tflite,
        check,
        reference,
        lower,
        output_shapes=output_shapes,
        variants=(Variant("mve", "mve", lower_mve, UNKNOWN_VECTORS, (DType.UINT32,)),),
    ),
)

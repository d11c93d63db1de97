"""SignalFftAutoScale: y = x * 2**b with the largest b at which no value leaves 15 bits, and b itself.

Shapes  x any, y as x, b one element.   Types  x, y int16, b int32.   Source  TFLite Micro's signal library.
        b = max(0, 15 - bits of the largest magnitude), 0 for zeros alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op, Shape
from emitc.kernels.contract import KernelDef, Parsed, Variant, require_dtypes
from emitc.kernels.costs import UNKNOWN_PAIRS, UNKNOWN_VECTORS
from emitc.kernels.signal.simd import in_vectors, in_words
from emitc.layer import Layer, Param
from emitc.source import SourceNode


@dataclass(frozen=True, slots=True)
class SignalFftAutoScale(Op):
    """No attributes."""


def from_tflite(node: SourceNode) -> Parsed:
    """One input, two outputs."""
    node.counts((1, 1), (2, 2))
    return Parsed(SignalFftAutoScale())


def check(bound: BoundNode) -> None:
    """Refuses other types."""
    require_dtypes(bound, [(DType.INT16, DType.INT16, DType.INT32)])


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """The input's shape, and a scalar."""
    return bound.input(0).shape, ()


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """In int64."""
    assert inputs[0] is not None
    x = inputs[0].astype(np.int64)
    largest = int(np.abs(x).max())
    bits = max(0, 15 - largest.bit_length()) if largest else 0
    return (x << bits).astype(np.int16), np.array(bits, np.int32)


def lower(bound: BoundNode) -> Layer:
    """Two passes."""
    params = (Param("count", "int32_t", bound.output.elements),)
    return Layer("signal/fft/signal_fft_auto_scale", "portable", (0,), params=params, headers=("emitc_bits.h",))


def lower_dsp(bound: BoundNode) -> Layer:
    """Two values at a time."""
    return in_words(lower(bound))


def lower_mve(bound: BoundNode) -> Layer:
    """Eight values at a time."""
    return in_vectors(lower(bound))


KERNELS = (
    KernelDef(
        SignalFftAutoScale,
        "values shifted up to use 15 bits",
        (DType.INT16,),
        ("CUSTOM:SignalFftAutoScale",),
        from_tflite,
        check,
        reference,
        lower,
        output_shapes=output_shapes,
        variants=(
            Variant("mve", "mve", lower_mve, UNKNOWN_VECTORS, (DType.INT16,)),
            Variant("dsp", "dsp", lower_dsp, UNKNOWN_PAIRS, (DType.INT16,)),
        ),
    ),
)

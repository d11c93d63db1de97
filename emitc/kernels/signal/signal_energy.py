"""SignalEnergy: of complex numbers from start_index up to end_index, y = re * re + im * im; 0 for the others.

Shapes  x [2 * N], real and imaginary parts in turn, y [N].   Types  x int16, y uint32.
Source  TFLite Micro's signal library, which leaves the others as they are in memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op, Shape
from emitc.kernels.contract import KernelDef, Parsed, Variant, illegal, require_dtypes
from emitc.kernels.costs import UNKNOWN_PAIRS, UNKNOWN_VECTORS
from emitc.kernels.signal.simd import in_vectors, in_words
from emitc.layer import Layer, Param
from emitc.source import SourceNode


@dataclass(frozen=True, slots=True)
class SignalEnergy(Op):
    """[start, end): the numbers that count."""

    start: int
    end: int


def from_tflite(node: SourceNode) -> Parsed:
    """The options."""
    node.counts((1, 1))
    return Parsed(SignalEnergy(node.integer("start_index", low=0), node.integer("end_index", low=0)))


def check(bound: BoundNode) -> None:
    """Refuses other types, and a range beyond the input."""
    require_dtypes(bound, [(DType.INT16, DType.UINT32)])
    x, op = bound.input(0), bound.op(SignalEnergy)
    if len(x.shape) != 1 or x.shape[0] % 2 or not op.start <= op.end <= x.shape[0] // 2:
        raise illegal(
            bound, "SignalEnergy has a range that does not fit", f"[{op.start}, {op.end}) of {list(x.shape)}", tensor=x
        )


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """Half of the input's."""
    return ((bound.input(0).shape[0] // 2,),)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """In int64."""
    assert inputs[0] is not None
    op, parts = bound.op(SignalEnergy), inputs[0].astype(np.int64).reshape(-1, 2)
    energy = np.zeros(len(parts), np.uint32)
    energy[op.start : op.end] = (parts**2).sum(axis=1)[op.start : op.end]
    return (energy,)


def lower(bound: BoundNode) -> Layer:
    """Number by number."""
    op = bound.op(SignalEnergy)
    counts = {"count": bound.output.elements, "start": op.start, "end": op.end}
    return Layer(
        "signal/signal_energy", "portable", (0,), params=tuple(Param(n, "int32_t", v) for n, v in counts.items())
    )


def lower_dsp(bound: BoundNode) -> Layer:
    """A number in a word."""
    return in_words(lower(bound))


def lower_mve(bound: BoundNode) -> Layer:
    """Four numbers at a time."""
    return in_vectors(lower(bound))


KERNELS = (
    KernelDef(
        SignalEnergy,
        "squared magnitudes of complex numbers",
        (DType.INT16,),
        ("CUSTOM:SignalEnergy",),
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

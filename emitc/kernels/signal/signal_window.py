"""SignalWindow: every frame times a window, y = saturate16((x * w) >> shift).

Shapes  x of a multiple of N elements, w [N], y as x: frames of N values, one behind the other, whatever rows they are in.
Types   int16; the window is constant.   Source  TFLite Micro's signal library.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op
from emitc.kernels.contract import KernelDef, Parsed, Variant, illegal, require_dtypes, unsupported
from emitc.kernels.costs import UNKNOWN_PAIRS, UNKNOWN_VECTORS
from emitc.kernels.signal.simd import in_vectors, in_words
from emitc.layer import Layer, Param, Table, in_step
from emitc.source import SourceNode


@dataclass(frozen=True, slots=True)
class SignalWindow(Op):
    """shift: bits that products lose."""

    shift: int


def from_tflite(node: SourceNode) -> Parsed:
    """The options."""
    node.counts((2, 2))
    return Parsed(SignalWindow(node.integer("shift", low=0, high=31)), (0, 1))


def check(bound: BoundNode) -> None:
    """Refuses other types, a computed window, and one of another length."""
    require_dtypes(bound, [(DType.INT16,) * 3])
    x, window = bound.input(0), bound.input(1)
    if not window.is_constant:
        raise unsupported(
            bound, "SignalWindow with a computed window is not supported", "it must be constant", "export again", window
        )
    if not x.shape or len(window.shape) != 1 or not window.elements or x.elements % window.elements:
        raise illegal(bound, "SignalWindow has a window that does not fit", f"frames {list(x.shape)}", tensor=window)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """In int64."""
    op = bound.node.op
    assert inputs[0] is not None and isinstance(op, SignalWindow)
    window = bound.input(1).array().astype(np.int64)
    product = (inputs[0].astype(np.int64).reshape(-1, len(window)) * window) >> op.shift
    return (np.clip(product, -(2**15), 2**15 - 1).astype(np.int16).reshape(bound.output.shape),)


def lower(bound: BoundNode) -> Layer:
    """Value by value, in place where the frame is not needed any more."""
    op, window = bound.node.op, bound.input(1)
    assert isinstance(op, SignalWindow)
    values = tuple(int(v) for v in window.array().tolist())
    return Layer(
        "signal/signal_window", "portable", (0,), (Table("window", "int16_t", values, "window"),),
        (
            Param("frames", "int32_t", bound.output.elements // window.elements),
            Param("length", "int32_t", window.elements),
            Param("shift", "int32_t", op.shift),
        ),
        overlaps=(in_step(bound),),
    )  # fmt: skip


def lower_dsp(bound: BoundNode) -> Layer:
    """Two values at a time."""
    return in_words(lower(bound))


def lower_mve(bound: BoundNode) -> Layer:
    """Eight values at a time."""
    return in_vectors(lower(bound))


KERNELS = (
    KernelDef(
        SignalWindow,
        "frames times a window",
        (DType.INT16,),
        ("CUSTOM:SignalWindow",),
        from_tflite,
        check,
        reference,
        lower,
        variants=(
            Variant("mve", "mve", lower_mve, UNKNOWN_VECTORS, (DType.INT16,)),
            Variant("dsp", "dsp", lower_dsp, UNKNOWN_PAIRS, (DType.INT16,)),
        ),
    ),
)

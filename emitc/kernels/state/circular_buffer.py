"""CIRCULAR_BUFFER: the last inputs, oldest first.

Shapes  x [N, 1, W, C], y and kept [N, slots, W, C] with N = 1.   Types  int8; scale and zero point stay.
Before the first run the buffer holds the zero point.
Source  TFLite Micro's kernel. The state is the frontend's second input.
Errors  cycles_max over 1, where TFLite Micro ends most runs at this operator. Without cycles_max it counts the buffers of two
        models that it knows; buffers of 5, 13 and 25 slots run every time there, and others are refused here.
"""

from collections.abc import Sequence

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op
from emitc.kernels.contract import KernelDef, Parsed, illegal, require_dtypes, require_same_quantization
from emitc.kernels.shared.pointwise import operand
from emitc.layer import Layer, integers
from emitc.source import SourceNode

_EVERY_RUN = (5, 13, 25)
"""Slots of buffers that run every time where the file does not say so."""


class CircularBuffer(Op):
    """One slot more, and the oldest one less."""


def _from_tflite(node: SourceNode) -> Parsed:
    cycles = node.integer("cycles_max", 0)
    node.counts((1, 2))
    shape = node.outputs[0].shape
    if not (cycles == 1 or (cycles <= 0 and len(shape) == 4 and shape[1] in _EVERY_RUN)):
        what = f"with cycles_max {cycles} is not supported" if cycles > 0 else "without cycles_max"
        why = "TFLite Micro ends a run at this operator until enough inputs have come"
        raise node.unsupported(what, why, "export the model with a buffer that runs every time (cycles_max 1)")
    node.counts((2, 2))
    return Parsed(CircularBuffer(), (0, 1), states=(1,))


def _check(bound: BoundNode) -> None:
    x, y = bound.input(0), bound.input(1)
    require_dtypes(bound, [(DType.INT8,) * 4])
    if len(x.shape) != 4 or x.shape[:2] != (1, 1) or y.shape[:1] + y.shape[2:] != (1, *x.shape[2:]) or 0 in y.shape:
        raise illegal(bound, "has an input that is no slot", f"{list(x.shape)} into {list(y.shape)}", tensor=x)
    if x.quantization and bound.output.quantization:
        require_same_quantization(bound, x, bound.output)


def _reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    y = np.concatenate([operand(bound, inputs, 1)[:, 1:], operand(bound, inputs, 0)], axis=1)
    return y, y.copy()


def _lower(bound: BoundNode) -> Layer:
    """Two moves, and a copy of the buffer."""
    params = integers(slot_bytes=bound.input(0).size_bytes, bytes=(bound.input(1).size_bytes, "of all slots"))
    return Layer("state/circular_buffer", params=params)


KERNELS = (
    KernelDef(
        CircularBuffer, "the last inputs, which are kept as state", (DType.INT8,), ("CUSTOM:CIRCULAR_BUFFER",), _from_tflite,
        _check, _reference, _lower, output_shapes=lambda bound: (bound.input(1).shape,) * 2,
    ),
)  # fmt: skip

"""SignalFramer: values as overlapping frames, `frame_step` apart.

Shapes  x [..., N], N a multiple of frame_step; y [..., N / frame_step, frame_size], valid []; kept [1 + rows * values].
Types   int16, valid bool.
A frame holds the oldest values that are there: the first frame_size of the last C, which is frame_size rounded up to steps.
prefill: zeros came before the first value, and a frame is the last frame_size values. Otherwise frames before the C-th value are
zeros, which TFLite Micro leaves as they are in memory, and valid is false in their run. A frame shorter than a step is the step's
first values.
Source  TFLite Micro's signal library. The state is the frontend's second input: how many frames are still incomplete, then
        values.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op, Shape
from emitc.kernels.contract import KernelDef, Parsed, illegal, require_dtypes
from emitc.kernels.signal.options import option
from emitc.layer import Layer, Param
from emitc.source import SourceNode


@dataclass(frozen=True, slots=True)
class SignalFramer(Op):
    """size: of a frame. step: from frame to frame. prefill: zeros come before the first value."""

    size: int
    step: int
    prefill: bool


def from_tflite(node: SourceNode) -> Parsed:
    """The options."""
    op = SignalFramer(option(node, "frame_size"), option(node, "frame_step"), bool(node.attribute("prefill", False)))
    x = node.input(0)
    if (op.prefill and op.step > op.size) or not x.shape or x.shape[-1] < 1 or x.shape[-1] % op.step:
        raise node.refusal(
            f"SignalFramer has frame_step = {op.step}",
            f"frames of {op.size} from {list(x.shape)}: the input is a multiple of it, and prefilled frames are no shorter",
            tensor=x,
        )
    node.counts((2, 2), (2, 2))
    return Parsed(op, (0, 1), states=(1,))


def _kept(bound: BoundNode) -> int:
    """Values of a row that frames to come need."""
    op = bound.op(SignalFramer)
    return op.size - op.step if op.prefill else (-(-op.size // op.step) - 1) * op.step


def check(bound: BoundNode) -> None:
    """Refuses other types, and constant values."""
    require_dtypes(bound, [(DType.INT16,) * 3 + (DType.BOOL, DType.INT16)])
    if bound.input(0).is_constant or 0 in bound.input(0).shape:
        raise illegal(bound, f"{bound.node.op_type} has no values", "they are computed")


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """Frames, whether they count, and the state."""
    op, (*outer, count) = bound.op(SignalFramer), bound.input(0).shape
    return (*outer, count // op.step, op.size), (), (1 + math.prod(outer) * _kept(bound),)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """All values of a row one after the other, and frames cut out of them."""
    assert inputs[0] is not None and inputs[1] is not None
    op, width, kept = bound.op(SignalFramer), inputs[0].shape[-1], _kept(bound)
    x = inputs[0].reshape(-1, width)
    missing = int(inputs[1][0])
    line = np.concatenate([inputs[1][1:].reshape(len(x), kept), x], axis=1)
    frames = np.stack([line[:, i : i + op.size] for i in range(0, width, op.step)], axis=1)
    frames[:, :missing] = 0
    state = np.concatenate([[max(missing - width // op.step, 0)], line[:, width:].reshape(-1)]).astype(np.int16)
    return frames.reshape(bound.outputs[0].shape), np.array(missing == 0), state


def lower(bound: BoundNode) -> Layer:
    """Row by row, frame by frame."""
    op, (*outer, width) = bound.op(SignalFramer), bound.input(0).shape
    params = (
        Param("rows", "int32_t", math.prod(outer)),
        Param("frames", "int32_t", width // op.step, "of a run"),
        Param("size", "int32_t", op.size, "of a frame"),
        Param("step", "int32_t", op.step, "from frame to frame"),
        Param("kept", "int32_t", _kept(bound), "values of a row that frames to come need"),
    )
    return Layer("signal/signal_framer", "portable", (0,), params=params)


KERNELS = (
    KernelDef(
        SignalFramer, "overlapping frames of values, which are kept as state", (DType.INT16,), ("CUSTOM:SignalFramer",),
        from_tflite, check, reference, lower, output_shapes=output_shapes,
    ),
)  # fmt: skip

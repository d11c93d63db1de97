"""SignalStacker: the last frames side by side, every `stacker_step` runs.

Shapes  x [num_channels], y [F * num_channels], F = stacker_left_context + 1 + stacker_right_context, valid [];
        kept [1 + (F - 1) * num_channels].   Types  int16, valid bool.
The first frame counts 1 + stacker_left_context times. Where F frames are there, they are the result, and the oldest stacker_step
fall out. Otherwise valid is false and y zeros, which TFLite Micro leaves as it is in memory.
Source  TFLite Micro's signal library. The state is the frontend's second input: how many frames there are, -1 before the first,
        then the frames.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op, Shape
from emitc.kernels.contract import KernelDef, Parsed, illegal, require_dtypes
from emitc.kernels.signal.options import option
from emitc.layer import Layer, Param
from emitc.source import SourceNode


@dataclass(frozen=True, slots=True)
class SignalStacker(Op):
    """channels: of a frame. left: how often the first one counts besides. frames: of a result. step: how many fall out then."""

    channels: int
    left: int
    frames: int
    step: int


def from_tflite(node: SourceNode) -> Parsed:
    """The options."""
    channels, step = option(node, "num_channels"), option(node, "stacker_step")
    left, right = (option(node, f"stacker_{side}_context", 0) for side in ("left", "right"))
    if step > left + 1 + right or node.input(0).shape != (channels,):
        raise node.refusal(
            f"SignalStacker has stacker_step = {step} and num_channels = {channels}",
            f"there are {left + 1 + right} frames of {list(node.input(0).shape)}",
            tensor=node.input(0),
        )
    node.counts((2, 2), (2, 2))
    return Parsed(SignalStacker(channels, left, left + 1 + right, step), (0, 1), states=(1,))


def check(bound: BoundNode) -> None:
    """Refuses other types, and a constant frame."""
    require_dtypes(bound, [(DType.INT16,) * 3 + (DType.BOOL, DType.INT16)])
    if bound.input(0).is_constant:
        raise illegal(bound, f"{bound.node.op_type} has a constant frame", "it is computed")


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """Frames, whether they count, and the state."""
    op = bound.op(SignalStacker)
    return (op.frames * op.channels,), (), (1 + (op.frames - 1) * op.channels,)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """A list of frames."""
    assert inputs[0] is not None and inputs[1] is not None
    op, count = bound.op(SignalStacker), int(inputs[1][0])
    old = inputs[1][1:].reshape(-1, op.channels)[: max(count, 0)]
    frames = np.concatenate([old, np.repeat(inputs[0][None], 1 if count >= 0 else 1 + op.left, axis=0)])
    valid = len(frames) == op.frames
    y = frames if valid else np.zeros((op.frames, op.channels), np.int16)
    left = frames[op.step :] if valid else frames
    state = np.zeros(bound.outputs[2].shape, np.int16)
    state[0] = len(left)
    state[1 : 1 + left.size] = left.reshape(-1)
    return y.reshape(-1).astype(np.int16), np.array(valid), state


def lower(bound: BoundNode) -> Layer:
    """Frames are kept in order."""
    op = bound.op(SignalStacker)
    params = (
        Param("channels", "int32_t", op.channels),
        Param("first", "int32_t", op.left + 1, "how often the first frame counts"),
        Param("frames", "int32_t", op.frames, "of a result"),
        Param("step", "int32_t", op.step, "frames that fall out then"),
    )
    return Layer("signal/signal_stacker", "portable", (0,), params=params)


KERNELS = (
    KernelDef(
        SignalStacker, "the last frames side by side, which are kept as state", (DType.INT16,), ("CUSTOM:SignalStacker",),
        from_tflite, check, reference, lower, output_shapes=output_shapes,
    ),
)  # fmt: skip

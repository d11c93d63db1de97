"""SignalOverlapAdd: frames added up where they lie over each other, `frame_step` values apart.

Shapes  x [..., F, N], y [..., F * frame_step]; kept [rows, N - frame_step], one value where that is none.
Types   int16, every sum limited to its type; float32. T of the options says so (7, 0).
Source  TFLite Micro's signal library. The state is the frontend's second input.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op, Shape
from emitc.kernels.contract import KernelDef, Parsed, illegal, require_dtypes
from emitc.kernels.signal.options import option
from emitc.layer import KernelSpec, Layer, Param
from emitc.source import SourceNode

_TYPES = {7: DType.INT16, 0: DType.FLOAT32}


@dataclass(frozen=True, slots=True)
class SignalOverlapAdd(Op):
    """step: from frame to frame. dtype: of the values."""

    step: int
    dtype: DType


def from_tflite(node: SourceNode) -> Parsed:
    """The options."""
    found = _TYPES.get(node.integer("T"))
    if found is None:
        raise node.unsupported(
            f"SignalOverlapAdd of type {node.integer('T')} is not supported", "there is code for int16 and float32",
            "use one of these",
        )  # fmt: skip
    step = option(node, "frame_step")
    x = node.input(0)
    if len(x.shape) < 2 or x.shape[-1] < step:
        raise node.refusal(f"SignalOverlapAdd has frame_step = {step}", f"its frames are {list(x.shape)}", tensor=x)
    node.counts((2, 2))
    return Parsed(SignalOverlapAdd(step, found), (0, 1), states=(1,))


def _kept(bound: BoundNode) -> int:
    return max(bound.input(0).shape[-1] - bound.op(SignalOverlapAdd).step, 1)


def check(bound: BoundNode) -> None:
    """Refuses other types, and constant frames."""
    require_dtypes(bound, [(bound.op(SignalOverlapAdd).dtype,) * 4])
    if bound.input(0).is_constant or 0 in bound.input(0).shape:
        raise illegal(bound, f"{bound.node.op_type} has no frames", "they are computed")


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """[..., F * frame_step], and the state's shape."""
    *outer, frames, _ = bound.input(0).shape
    return (*outer, frames * bound.op(SignalOverlapAdd).step), (math.prod(outer), _kept(bound))


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """Frame by frame, in a buffer that is as long as a frame."""
    assert inputs[0] is not None and inputs[1] is not None
    step, (frames, size) = bound.op(SignalOverlapAdd).step, inputs[0].shape[-2:]
    x = inputs[0].reshape(-1, frames, size)
    wide = np.float32 if bound.op(SignalOverlapAdd).dtype is DType.FLOAT32 else np.int64
    buffer = np.zeros((len(x), size), wide)
    buffer[:, : size - step] = inputs[1][:, : size - step]
    made = []
    for frame in range(frames):
        buffer = buffer + x[:, frame].astype(wide)
        if wide is np.int64:
            buffer = np.clip(buffer, -(1 << 15), (1 << 15) - 1)
        made.append(buffer[:, :step].astype(inputs[0].dtype))
        buffer = np.concatenate([buffer[:, step:], np.zeros((len(x), step), wide)], axis=1)
    kept = buffer[:, : _kept(bound)].astype(inputs[0].dtype)
    return np.concatenate(made, axis=1).reshape(bound.outputs[0].shape), kept


def lower(bound: BoundNode) -> Layer:
    """Row by row, frame by frame."""
    *outer, frames, size = bound.input(0).shape
    step = bound.op(SignalOverlapAdd).step
    params = (
        Param("rows", "int32_t", math.prod(outer)),
        Param("frames", "int32_t", frames),
        Param("step", "int32_t", step, "from frame to frame"),
        Param("kept", "int32_t", size - step, "values that lie over the next frame"),
        Param("stride", "int32_t", _kept(bound), "from row to row of what is kept"),
    )
    real = bound.op(SignalOverlapAdd).dtype is DType.FLOAT32
    c_type = bound.op(SignalOverlapAdd).dtype.c_type
    spec = KernelSpec(x=c_type, y=c_type)
    return Layer(
        "signal/signal_overlap_add_float" if real else "signal/signal_overlap_add",
        "portable",
        (0,),
        params=params,
        spec=spec,
    )


KERNELS = (
    KernelDef(
        SignalOverlapAdd, "overlapping frames added up, the rest is kept as state", (DType.INT16, DType.FLOAT32),
        ("CUSTOM:SignalOverlapAdd",),
        from_tflite, check, reference, lower, output_shapes=output_shapes,
    ),
)  # fmt: skip

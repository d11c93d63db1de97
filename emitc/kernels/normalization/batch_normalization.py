"""BatchNormalization of ONNX, as it is after training: y = x * factor + offset, one of each per channel.

Shapes  x [N, C, ...] (or the channels in another place, where a Transpose has moved past), y the same.   Types  float32.
factor = scale / sqrt(variance + epsilon), offset = bias - mean * factor, both in float32 and constant.
Errors  training mode, computed statistics, statistics per activation (spatial = 0 before opset 9).
Source  ONNX operator specification.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from emitc.ir import Array, BoundNode, DType, Op
from emitc.kernels.contract import KernelDef, Parsed, illegal, require_constants, require_dtypes
from emitc.kernels.shared.pointwise import operand
from emitc.layer import Layer, Table, in_step, integers
from emitc.source import SourceNode

_STATISTICS = ("scale", "bias", "mean", "variance")


@dataclass(frozen=True, slots=True)
class BatchNormalization(Op):
    """axis: the dimension of the channels."""

    epsilon: float
    axis: int = 1


def from_onnx(node: SourceNode) -> Parsed:
    """BatchNormalization's attributes; momentum serves training alone."""
    node.counts((5, 5), (1, 5))
    if len(node.outputs) > 1 or node.integer("training_mode", 0, 0, 1):
        what = "in training mode is not supported"
        raise node.unsupported(what, "running statistics have no code", "export the model for inference")
    if not node.integer("spatial", 1, 0, 1):
        what = "with statistics per activation is not supported"
        raise node.unsupported(what, "there is code for one set per channel", "export the model with spatial = 1")
    op = BatchNormalization(node.real("epsilon", 1e-5))
    return Parsed(op, (0, 1, 2, 3, 4))


def check(bound: BoundNode) -> None:
    """Refuses other types than float32, computed statistics, and statistics that do not fit the channels."""
    x, axis = bound.input(0), bound.op(BatchNormalization).axis
    require_dtypes(bound, [(DType.FLOAT32,) * 6])
    if len(x.shape) <= axis or 0 in x.shape:
        raise illegal(bound, "has an input without channels", f"its shape is {list(x.shape)}", tensor=x)
    for position, name in enumerate(_STATISTICS, 1):
        tensor = bound.input(position)
        if tensor.shape != (x.shape[axis],):
            why = f"{list(tensor.shape)} for {x.shape[axis]} channels"
            raise illegal(bound, f"has a {name} of the wrong shape", why, tensor=tensor)
        what = f"has a computed {name}"
        require_constants(bound, (tensor,), what, "it is folded while compiling", "export the model for inference")
    factor, offset = _folded(bound)
    if not (np.isfinite(factor).all() and np.isfinite(offset).all()):
        what = "has statistics that make no finite factor"
        why = f"the smallest variance is {float(bound.input(4).array().min())!r}"
        raise illegal(bound, what, why, "train the model again")


def _folded(bound: BoundNode) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Factor and offset of each channel."""
    scale, bias, mean, variance = (bound.input(i).array().astype(np.float32) for i in range(1, 5))
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + np.float32(bound.op(BatchNormalization).epsilon))
        return factor, bias - mean * factor


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """x * factor + offset in double, rounded to float32."""
    shape = [1] * len(bound.output.shape)
    shape[bound.op(BatchNormalization).axis] = -1
    factor, offset = (v.astype(np.float64).reshape(shape) for v in _folded(bound))
    return ((operand(bound, inputs, 0).astype(np.float64) * factor + offset).astype(np.float32),)


def lower(bound: BoundNode) -> Layer:
    """One multiplication and addition per element."""
    shape, axis = bound.output.shape, bound.op(BatchNormalization).axis
    factor, offset = _folded(bound)
    tables = (
        Table("factor", "float", tuple(factor.tolist()), "scale / sqrt(variance + epsilon) per channel"),
        Table("offset", "float", tuple(offset.tolist()), "bias - mean * factor per channel"),
    )
    params = integers(
        outer=math.prod(shape[:axis]),
        channels=shape[axis],
        inner=(math.prod(shape[axis + 1 :]), "values of a channel that lie together"),
    )
    template, macs = "normalization/channel_affine", bound.output.elements
    return Layer(template, "portable", (0,), tables, params, overlaps=(in_step(bound),), macs=macs)


def transposed(bound: BoundNode, permutation: tuple[int, ...]) -> Op:
    """The same with the channels in another place."""
    op = bound.op(BatchNormalization)
    return replace(op, axis=permutation[op.axis])


KERNELS = (
    KernelDef(
        BatchNormalization,
        "normalization by trained statistics",
        (DType.FLOAT32,),
        check=check,
        reference=reference,
        lower=lower,
        onnx={"BatchNormalization": from_onnx},
        transposed=transposed,
    ),
)

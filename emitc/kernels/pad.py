"""PAD, PADV2: the input inside a larger tensor of one value.

Shapes  x [d0, ...], y [before_i + d_i + after_i, ...].   Types  any; scale and zero point must not change.
PAD fills with the real value 0: the output's zero point for int8 and uint8, 0 for every other type. PADV2 brings its value
as a third input, quantized like the output.
Source  TFLite Micro's PAD, which takes a third input under either name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emitc.errors import CannotCompile
from emitc.frontends.source import SourceNode
from emitc.ir import Array, BoundNode, DType, Op, Shape
from emitc.kernels.contract import KernelDef, Layer, Parsed
from emitc.kernels.strided import Walk, move_layer, require_depth, require_same_type, strides, values_table, walk


@dataclass(frozen=True, slots=True)
class Pad(Op):
    """paddings: elements before and after, per dimension. value: what they hold, in the tensor's own type."""

    paddings: tuple[tuple[int, int], ...]
    value: int | float


def _given_value(node: SourceNode) -> int | float:
    """The value in input 2, which must be one constant element, quantized like the output."""
    tensor, x, y = node.input(2), node.input(0), node.outputs[0]
    if tensor.data is None:
        raise CannotCompile(
            f"{node.op_type} takes its padding value from a computed tensor",
            node.where(tensor),
            "the value must be known at compile time",
            "export the model with a constant padding value",
        )
    if tensor.dtype != x.dtype or tensor.array().size != 1:
        raise node.refusal(
            f"{node.op_type} has a padding value of the wrong type or size",
            f"one element of {x.dtype} is expected",
            "export the model again",
            tensor,
        )
    if tensor.quantization != y.quantization:
        raise node.refusal(
            f"{node.op_type} has a padding value of another scale or zero point",
            "the value is copied into the output and must be quantized like it",
            "export the model again",
            tensor,
        )
    value = tensor.array().reshape(-1)[0]
    return float(value) if tensor.dtype == "float32" else int(value)


def _zero(node: SourceNode) -> int | float:
    """The real value 0 in the output's type."""
    y = node.outputs[0]
    if y.dtype in ("int8", "uint8") and y.quantization:
        return y.quantization.zero_point
    return 0.0 if y.dtype == "float32" else 0


def from_tflite(node: SourceNode) -> Parsed:
    """The constant paddings [rank, 2] and the value."""
    node.counts((2, 3))
    rank = len(node.input(0).shape)
    flat = node.constant_integers(1, "paddings")
    if len(flat) != 2 * rank:
        raise node.refusal(
            f"{node.op_type} has {len(flat)} paddings",
            f"two for each of {rank} dimensions are expected",
            "export the model again",
        )
    if min(flat, default=0) < 0:
        raise node.refusal(f"{node.op_type} has negative paddings", f"{list(flat)}", "use SLICE to remove elements")
    value = _given_value(node) if len(node.inputs) == 3 else _zero(node)
    return Parsed(Pad(tuple(zip(flat[::2], flat[1::2], strict=True)), value))


def _op(bound: BoundNode) -> Pad:
    assert isinstance(bound.node.op, Pad)
    return bound.node.op


def _walk(bound: BoundNode) -> Walk:
    """Forward through the input, into its place in the output."""
    x, paddings = bound.input(0), _op(bound).paddings
    y_steps = strides(output_shapes(bound)[0], x.dtype.bytes)
    start = sum(before * step for (before, _), step in zip(paddings, y_steps, strict=True))
    return walk(x.shape, strides(x.shape, x.dtype.bytes), y_steps, x.dtype.bytes, 0, start)


def check(bound: BoundNode) -> None:
    """Refuses a change of type, scale or zero point, and moves that are too deep."""
    require_same_type(bound)
    require_depth(bound, _walk(bound))


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """Each dimension with its paddings."""
    pairs = zip(bound.input(0).shape, _op(bound).paddings, strict=True)
    return (tuple(before + size + after for size, (before, after) in pairs),)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """numpy's pad."""
    op = _op(bound)
    assert inputs[0] is not None
    return (np.pad(inputs[0], op.paddings, constant_values=np.array(op.value, inputs[0].dtype)[()]),)


def lower(bound: BoundNode) -> Layer:
    """The output filled with the value, then the input copied into it; padding by nothing is one copy."""
    op, x = _op(bound), bound.input(0)
    if not any(map(any, op.paddings)):
        return move_layer(bound, _walk(bound))
    value = np.array([op.value], x.dtype.value)
    each = value.view(np.int8 if x.dtype is DType.INT8 else np.uint8)
    if (each == each[0]).all():
        return move_layer(bound, _walk(bound), values_table("padding_byte", each[:1], "every byte of the padding"))
    return move_layer(bound, _walk(bound), values_table("padding", value, "one element of the padding"))


KERNELS = (
    KernelDef(
        Pad,
        "the tensor inside a larger one of a constant value",
        tuple(DType),
        ("PAD", "PADV2"),
        from_tflite,
        check,
        output_shapes,
        reference,
        lower,
    ),
)

"""CONCATENATION: tensors one after the other along an axis.

Shapes  x_i equal but for dimension `axis`, y with the sum of them there.   Types  any; every input has the scale and zero
point of the output, as TFLite demands of int8.
Errors  a fused activation, which TFLite Micro refuses too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emitc.frontends.source import SourceNode
from emitc.ir import Array, BoundNode, DType, Op, Shape
from emitc.kernels.contract import KernelDef, Layer, Parsed, unsupported
from emitc.kernels.parts import axis_of, check_parts, join_layer


@dataclass(frozen=True, slots=True)
class Concatenation(Op):
    """axis: the dimension along which the inputs follow one another, from the front."""

    axis: int


def from_tflite(node: SourceNode) -> Parsed:
    """CONCATENATION's options, and inputs that fit together."""
    node.counts((1, max(1, len(node.inputs))))
    node.text("fused_activation_function", ("NONE",))
    shapes = [node.input(i).shape for i in range(len(node.inputs))]
    axis = axis_of(node, node.integer("axis", 0), len(shapes[0]))
    for i, shape in enumerate(shapes):
        if len(shape) != len(shapes[0]) or any(
            a != b for d, (a, b) in enumerate(zip(shape, shapes[0], strict=True)) if d != axis
        ):
            raise node.refusal(
                f"CONCATENATION of {list(shapes[0])} and {list(shape)}",
                f"all dimensions but {axis} must be equal",
                "export the model again",
                node.input(i),
            )
    return Parsed(Concatenation(axis), tuple(range(len(shapes))))


def _axis(bound: BoundNode) -> int:
    assert isinstance(bound.node.op, Concatenation)
    return bound.node.op.axis


def check(bound: BoundNode) -> None:
    """Refuses a change of type, scale or zero point."""
    y = bound.output
    for i in range(len(bound.inputs)):
        x = bound.input(i)
        if x.dtype is y.dtype is DType.UINT8 and x.quantization != y.quantization:
            raise unsupported(
                bound,
                "CONCATENATION of uint8 tensors of different scales is not supported",
                "TFLite rescales them in floating point",
                "quantize the model to int8",
                x,
            )
    check_parts(bound, len(bound.inputs))


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """The first input's shape with the sum of all at the axis."""
    axis = _axis(bound)
    shape = list(bound.input(0).shape)
    shape[axis] = sum(bound.input(i).shape[axis] for i in range(len(bound.inputs)))
    return (tuple(shape),)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """numpy's concatenate."""
    return (np.concatenate([x for x in inputs if x is not None], _axis(bound)),)


def lower(bound: BoundNode) -> Layer:
    """Row by row of the output; one input is a copy."""
    return join_layer(bound, _axis(bound))


KERNELS = (
    KernelDef(
        Concatenation,
        "tensors one after the other along an axis",
        tuple(DType),
        ("CONCATENATION",),
        from_tflite,
        check,
        output_shapes,
        reference,
        lower,
    ),
)

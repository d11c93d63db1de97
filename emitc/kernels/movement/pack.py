"""PACK and UNPACK: tensors of one shape stacked along a new axis, and separated again.

Shapes  PACK: n of x [d0, ...] to y [..., n, ...]; UNPACK the reverse.   Types  any; scale and zero point must not change.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emitc.ir import Array, BoundNode, Op, Shape
from emitc.kernels.contract import KernelDef, Parsed
from emitc.kernels.shared.joined_rows import axis_of, check_parts, join_layer, split_layer, variants
from emitc.kernels.shared.pointwise import operand
from emitc.layer import Layer
from emitc.source import SourceNode


@dataclass(frozen=True, slots=True)
class Stack(Op):
    """axis: the dimension that the stacked tensor has and the single ones lack, from the front."""

    axis: int


class Pack(Stack):
    """Its output is the stacked tensor."""


class Unpack(Stack):
    """Its input is the stacked tensor."""


def _require_count(node: SourceNode, attribute: str, count: int, what: str) -> None:
    stated = node.integer(attribute)
    if stated != count:
        hint = "the file is damaged: export the model again"
        raise node.refusal(f"has {count} {what}", f"{attribute} is {stated}", hint)


def _pack_from_tflite(node: SourceNode) -> Parsed:
    node.counts((1, max(1, len(node.inputs))))
    _require_count(node, "values_count", len(node.inputs), "inputs")
    shapes = [node.input(i).shape for i in range(len(node.inputs))]
    for i, shape in enumerate(shapes):
        if shape != shapes[0]:
            what = f"of {list(shapes[0])} and {list(shape)}"
            raise node.refusal(what, "all shapes must be equal", tensor=node.input(i))
    return Parsed(Pack(axis_of(node, node.integer("axis", 0), len(shapes[0]) + 1)), tuple(range(len(shapes))))


def _unpack_from_tflite(node: SourceNode) -> Parsed:
    node.counts((1, 1), (1, max(1, len(node.outputs))))
    shape = node.input(0).shape
    axis = axis_of(node, node.integer("axis", 0), len(shape))
    _require_count(node, "num", len(node.outputs), "outputs")
    _require_count(node, "num", shape[axis], f"slices along dimension {axis}")
    return Parsed(Unpack(axis))


def _axis(bound: BoundNode) -> int:
    return bound.op(Stack).axis


def _check(bound: BoundNode) -> None:
    check_parts(bound, max(len(bound.inputs), len(bound.outputs)))


def _pack_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    axis, shape = _axis(bound), bound.input(0).shape
    return ((*shape[:axis], len(bound.inputs), *shape[axis:]),)


def _unpack_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    axis, shape = _axis(bound), bound.input(0).shape
    return ((*shape[:axis], *shape[axis + 1 :]),) * len(bound.outputs)


def _unpack_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    x = operand(bound, inputs, 0)
    return tuple(np.take(x, i, _axis(bound)) for i in range(len(bound.outputs)))


def _pack_lower(bound: BoundNode) -> Layer:
    return join_layer(bound, _axis(bound))


def _unpack_lower(bound: BoundNode) -> Layer:
    return split_layer(bound, _axis(bound))


KERNELS = (
    KernelDef(
        Pack,
        "tensors stacked along a new axis",
        tflite={"PACK": _pack_from_tflite},
        check=_check,
        reference=lambda bound, inputs: (np.stack([x for x in inputs if x is not None], _axis(bound)),),
        lower=_pack_lower,
        output_shapes=_pack_shapes,
        variants=variants(_pack_lower),
    ),
    KernelDef(
        Unpack,
        "splits a tensor along an axis",
        tflite={"UNPACK": _unpack_from_tflite},
        check=_check,
        reference=_unpack_reference,
        lower=_unpack_lower,
        output_shapes=_unpack_shapes,
        variants=variants(_unpack_lower),
    ),
)

"""SPLIT, SPLIT_V and ONNX's Split: a tensor cut along an axis into equal parts, or into parts of given sizes.

Shapes  x [d0, ...]; y_i the same except for dimension `axis`.   Types  any; scale and zero point must not change.
The sizes of SPLIT_V may hold one -1, which stands for the rest. ONNX's sizes are an attribute up to version 12, an input in
version 1 and from 13 on; without them the parts are equal, except for the last one, which is smaller where `num_outputs` (version
18) does not divide the dimension.
Errors  parts that are left out among the outputs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from emitc.ir import Array, BoundNode, Op, Shape
from emitc.kernels.contract import KernelDef, Parsed
from emitc.kernels.shared.integer_attributes import integer_list
from emitc.kernels.shared.joined_rows import axis_of, check_parts, split_layer, variants
from emitc.kernels.shared.pointwise import operand
from emitc.layer import Layer
from emitc.source import SourceNode


@dataclass(frozen=True, slots=True)
class Split(Op):
    """axis: dimension that is cut, from the front. sizes: its size in each output."""

    axis: int
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SplitV(Split):
    """Parts of given sizes."""


def _axis_input(node: SourceNode, position: int, shape: Shape) -> int:
    axes = node.constant_integers(position, "axis")
    if len(axes) != 1:
        raise node.refusal(f"has {len(axes)} axes", "one is expected")
    return axis_of(node, axes[0], len(shape))


def _require_outputs(node: SourceNode, parts: int) -> None:
    if not parts == len(node.outputs) == node.integer("num_splits"):
        why = f"num_splits is {node.integer('num_splits')}, and {parts} parts are asked for"
        raise node.refusal(f"has {len(node.outputs)} outputs", why, "the file is damaged: export the model again")


def _split_from_tflite(node: SourceNode) -> Parsed:
    node.counts((2, 2), (1, max(1, len(node.outputs))))
    shape = node.input(1).shape
    axis, parts = _axis_input(node, 0, shape), len(node.outputs)
    _require_outputs(node, parts)
    if shape[axis] % parts:
        raise node.refusal(f"makes {parts} parts", f"they cannot be equal: dimension {axis} has {shape[axis]} elements")
    return Parsed(Split(axis, (shape[axis] // parts,) * parts), (1,))


def _split_v_from_tflite(node: SourceNode) -> Parsed:
    node.counts((3, 3), (1, max(1, len(node.outputs))))
    shape, stated = node.input(0).shape, node.constant_integers(1, "sizes")
    axis = _axis_input(node, 2, shape)
    _require_outputs(node, len(stated))
    rest = shape[axis] - sum(size for size in stated if size != -1)
    sizes = tuple(rest if size == -1 else size for size in stated)
    if stated.count(-1) > 1 or min(sizes) < 0 or sum(sizes) != shape[axis]:
        raise node.refusal(f"makes parts of {list(stated)}", f"they must add up to dimension {axis} of {list(shape)}")
    return Parsed(SplitV(axis, sizes), (0,))


def _split_from_onnx(node: SourceNode) -> Parsed:
    node.counts((1, 2), (1, max(1, len(node.outputs))))
    shape, parts = node.input(0).shape, len(node.outputs)
    axis = axis_of(node, node.integer("axis", 0), len(shape))
    if node.attributes.get("outputs_present", tuple(range(parts))) != tuple(range(parts)):
        what = "with outputs left out is not supported"
        raise node.unsupported(what, "every part is written", "name every output of the operator")
    sizes = integer_list(node, "split", 1)
    if sizes is None:
        if node.integer("num_outputs", parts) != parts or (
            shape[axis] % parts and "num_outputs" not in node.attributes
        ):
            why = f"they cannot be equal: dimension {axis} has {shape[axis]} elements"
            raise node.refusal(f"makes {parts} parts", why)
        part = -(-shape[axis] // parts)
        sizes = (*(part,) * (parts - 1), shape[axis] - part * (parts - 1))
    if len(sizes) != parts or min(sizes) < 0 or sum(sizes) != shape[axis]:
        why = f"they must add up to dimension {axis} of {list(shape)} and be as many as the outputs, {parts}"
        raise node.refusal(f"makes parts of {list(sizes)}", why)
    return Parsed(Split(axis, sizes))


def _output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    op, shape = bound.op(Split), bound.input(0).shape
    return tuple((*shape[: op.axis], size, *shape[op.axis + 1 :]) for size in op.sizes)


def _reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    op = bound.op(Split)
    return tuple(np.split(operand(bound, inputs, 0), np.cumsum(op.sizes)[:-1], op.axis))


def _lower(bound: BoundNode) -> Layer:
    return split_layer(bound, bound.op(Split).axis)


_kernel = partial(
    KernelDef,
    check=lambda bound: check_parts(bound, len(bound.outputs)),
    reference=_reference,
    lower=_lower,
    output_shapes=_output_shapes,
    variants=variants(_lower),
)
KERNELS = (
    _kernel(
        Split,
        "a tensor cut into equal parts",
        tflite={"SPLIT": _split_from_tflite},
        onnx={"Split": _split_from_onnx},
        transposed=lambda bound, permutation: replace(bound.op(Split), axis=permutation[bound.op(Split).axis]),
        moves=True,
    ),
    _kernel(SplitV, "a tensor cut into parts of given sizes", tflite={"SPLIT_V": _split_v_from_tflite}),
)

"""RESHAPE, SQUEEZE, EXPAND_DIMS: the same bytes under another shape, so that no code is printed.

Shapes  x any, y with as many elements.   Types  any; scale and zero point must not change.
RESHAPE takes its shape from a second input, from its options, or from the output tensor, in that order; a -1 in it stands
for what is left. A model whose batch was open may state the shape of batch 1 or of -1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from emitc.frontends.source import MAX_RANK, SourceNode
from emitc.ir import Array, BoundNode, DType, Op, Shape
from emitc.kernels.contract import KernelDef, Layer, Overlap, Parsed, illegal, require_same_quantization


@dataclass(frozen=True, slots=True)
class Reshape(Op):
    """shape: the new shape, fully known."""

    shape: Shape


class Squeeze(Reshape):
    """Dimensions of size 1 removed."""

    __slots__ = ()


class ExpandDims(Reshape):
    """A dimension of size 1 added."""

    __slots__ = ()


def _resolved(node: SourceNode, wanted: tuple[int, ...]) -> Shape:
    """`wanted` with one -1 computed from the input's number of elements."""
    elements = math.prod(node.input(0).shape)
    if len(wanted) > MAX_RANK or any(d < -1 or d == 0 for d in wanted) or wanted.count(-1) > 1:
        raise node.refusal(
            f"{node.op_type} asks for the shape {list(wanted)}", "positive sizes and at most one -1", "export again"
        )
    known = math.prod(d for d in wanted if d != -1)
    shape = tuple(elements // known if d == -1 else d for d in wanted)
    if math.prod(shape) != elements:
        raise node.refusal(
            f"{node.op_type} changes the number of elements",
            f"{list(node.input(0).shape)} to {list(wanted)}",
            "export the model again",
        )
    return shape


def _reshape_from_tflite(node: SourceNode) -> Parsed:
    node.counts((1, 2))
    if len(node.inputs) == 2 and node.inputs[1] is not None and node.inputs[1].data is not None:
        wanted = node.constant_integers(1, "shape")
    else:
        stated = node.attribute("new_shape", ()) if "new_shape" in node.attributes else ()
        wanted = tuple(int(d) for d in stated) if isinstance(stated, tuple) and stated else node.outputs[0].shape
        if len(node.inputs) == 2 and wanted.count(-1) > 1:
            node.constant(1, "shape")
    return Parsed(Reshape(_resolved(node, wanted)))


def _squeeze_from_tflite(node: SourceNode) -> Parsed:
    node.counts((1, 1))
    shape = node.input(0).shape
    listed = node.attributes.get("squeeze_dims", ())
    assert isinstance(listed, tuple)
    dims = {int(d) % len(shape) if shape and -len(shape) <= d < len(shape) else -1 for d in listed}
    if any(d < 0 or shape[d] != 1 for d in dims):
        raise node.refusal(
            f"SQUEEZE removes dimensions {list(listed)}",
            f"of {list(shape)} only those of size 1 can go",
            "export again",
        )
    keep = (lambda i: i not in dims) if dims else (lambda i: shape[i] != 1)
    return Parsed(Squeeze(tuple(d for i, d in enumerate(shape) if keep(i))))


def _expand_dims_from_tflite(node: SourceNode) -> Parsed:
    node.counts((2, 2))
    axes = node.constant_integers(1, "axis")
    shape = node.input(0).shape
    if len(axes) != 1 or not -len(shape) - 1 <= axes[0] <= len(shape):
        raise node.refusal(
            f"EXPAND_DIMS has axis {list(axes)}", f"the input has {len(shape)} dimensions", "export the model again"
        )
    axis = axes[0] % (len(shape) + 1)
    return Parsed(ExpandDims((*shape[:axis], 1, *shape[axis:])))


def check(bound: BoundNode) -> None:
    """Refuses a change of type, scale or zero point."""
    x, y = bound.input(0), bound.output
    if x.dtype is not y.dtype:
        raise illegal(
            bound,
            f"{bound.node.op_type} changes the element type",
            f"{x.dtype.value} to {y.dtype.value}",
            "export again",
            y,
        )
    if x.quantization and y.quantization:
        require_same_quantization(bound, x, y)


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """The op's shape."""
    assert isinstance(bound.node.op, Reshape)
    return (bound.node.op.shape,)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """numpy's reshape."""
    assert inputs[0] is not None
    return (inputs[0].reshape(bound.output.shape),)


def lower(bound: BoundNode) -> Layer:
    """A copy: printed only where the view pass is switched off."""
    return Layer("copy", "portable", (0,), overlaps=(Overlap(0, 0, 0),))


def _kernel(op: type[Reshape], name: str, from_tflite: Callable[[SourceNode], Parsed]) -> KernelDef:
    summary = "the same bytes under another shape: no code"
    return KernelDef(op, summary, tuple(DType), (name,), from_tflite, check, output_shapes, reference, lower, view=True)


KERNELS = (
    _kernel(Reshape, "RESHAPE", _reshape_from_tflite),
    _kernel(Squeeze, "SQUEEZE", _squeeze_from_tflite),
    _kernel(ExpandDims, "EXPAND_DIMS", _expand_dims_from_tflite),
)

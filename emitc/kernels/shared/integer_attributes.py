"""Lists of integers that ONNX operators take: an attribute in older versions of an operator, a constant input in newer ones."""

import math

from emitc.ir import Shape
from emitc.source import MAX_RANK, SourceNode


def listed(node: SourceNode, name: str) -> tuple[int, ...] | None:
    """An attribute of integers, None where it is absent. Raises EmitcError for one of another kind."""
    value = node.attributes.get(name)
    if value is None:
        return None
    if not isinstance(value, tuple) or not all(isinstance(item, int) for item in value):
        raise node.refusal(f"has {name} = {value}", "a list of integers is expected")
    return tuple(int(item) for item in value)


def integer_list(node: SourceNode, name: str, position: int) -> tuple[int, ...] | None:
    """The list in input `position`, else in the attribute `name`, else None."""
    return node.constant_integers(position, name) if node.has_input(position) else listed(node, name)


def axes_of(node: SourceNode, axes: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """Axes of a tensor of `rank` dimensions counted from the front. Raises EmitcError for one outside, or twice the same."""
    if not all(-rank <= axis < rank for axis in axes) or len({axis % rank for axis in axes}) != len(axes):
        why = f"different ones of a tensor of {rank} dimensions are expected"
        raise node.refusal(f"has the axes {list(axes)}", why)
    return tuple(axis % rank for axis in axes)


def resolved_shape(node: SourceNode, wanted: tuple[int, ...]) -> Shape:
    """`wanted` with one -1 computed from the number of elements of input 0.

    Raises EmitcError for sizes of 0 or below -1, more than one -1, and another number of elements.
    """
    elements = math.prod(node.input(0).shape)
    if len(wanted) > MAX_RANK or any(d < -1 or d == 0 for d in wanted) or wanted.count(-1) > 1:
        raise node.refusal(f"asks for the shape {list(wanted)}", "positive sizes and at most one -1", "export again")
    known = math.prod(d for d in wanted if d != -1)
    shape = tuple(elements // known if d == -1 else d for d in wanted)
    if math.prod(shape) != elements:
        raise node.refusal("changes the number of elements", f"{list(node.input(0).shape)} to {list(wanted)}")
    return shape

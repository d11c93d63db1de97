"""Loops of a reduction over any set of dimensions: what MEAN, SUM and the Reduce operators of ONNX share.

Neighbouring dimensions that are all kept or all reduced are one group, so that almost every model needs one of each; four
of each serve every set of axes of eight dimensions.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from emitc.ir import BoundNode, DType, Shape
from emitc.kernels.shared.integer_attributes import integer_list
from emitc.kernels.shared.pointwise import printed
from emitc.layer import KernelSpec, Layer, Param, ReductionFormula
from emitc.source import SourceNode

_LOOPS = 4
Formulas = tuple[ReductionFormula, ReductionFormula]
"""Of elements that are float32, and of integers."""


@dataclass(frozen=True, slots=True)
class Group:
    """Neighbouring dimensions that are all kept or all reduced: `count` steps of `stride` elements."""

    count: int
    stride: int
    reduced: bool


def groups_of(shape: Shape, axes: Iterable[int]) -> tuple[Group, ...]:
    """The dimensions of a tensor, outermost first; those of size 1 belong to no group.

    >>> groups_of((2, 3, 4), (1,))
    (Group(count=2, stride=12, reduced=False), Group(count=3, stride=4, reduced=True), Group(count=4, stride=1, reduced=False))
    """
    reduced_axes = frozenset(axes)
    groups: list[Group] = []
    for axis, size in enumerate(shape):
        stride = math.prod(shape[axis + 1 :])
        reduced = axis in reduced_axes
        if size == 1:
            continue
        if groups and groups[-1].reduced == reduced:
            groups[-1] = Group(groups[-1].count * size, stride, reduced)
        else:
            groups.append(Group(size, stride, reduced))
    return tuple(groups)


def loop_params(groups: tuple[Group, ...], loops: int) -> tuple[Param, ...]:
    """The members kept0, kept0_stride, ... and reduced0, ... of a parameter struct, `loops` of each, innermost last."""
    params: list[Param] = []
    for name, reduced in (("kept", False), ("reduced", True)):
        own = [group for group in groups if group.reduced == reduced]
        for i, group in enumerate([Group(1, 0, reduced)] * (loops - len(own)) + own):
            params.append(Param(f"{name}{i}", "int32_t", group.count))
            params.append(Param(f"{name}{i}_stride", "int32_t", group.stride))
    return tuple(params)


def onnx_axes(node: SourceNode) -> tuple[int, ...]:
    """The dimensions that a Reduce operator of ONNX names by input or attribute, ascending and not negative.

    None named: all, or with noop_with_empty_axes none.
    """
    rank = len(node.input(0).shape)
    listed = integer_list(node, "axes", 1)
    if not listed:
        return () if node.integer("noop_with_empty_axes", 0, 0, 1) else tuple(range(rank))
    if not all(-rank <= axis < rank for axis in listed):
        raise node.refusal(f"has axes {list(listed)}", f"the input has {rank} dimensions", tensor=node.input(0))
    return tuple(sorted({axis % rank for axis in listed}))


def wrapping(name: str, comment: str, real: str, integer: str, start: str = "0") -> Formulas:
    """The formulas of a reduction whose accumulator has the elements' type. Integers wrap, without sign.

    real, integer: the accumulator's next value; start: its first one.
    """
    return (
        ReductionFormula(name, "acc", comment, accumulator="float", start=f"{start}.0f", step=real),
        ReductionFormula(name, "({y})acc", comment, accumulator="u{x}", start=start, step=integer),
    )


_SMALLEST = ReductionFormula("reduce_min", "acc", "Smallest", start="*x", step="v < acc ? v : acc")
SMALLEST = (_SMALLEST, _SMALLEST)
"""Of any elements, and of truth values whether all are true."""


def typed_layer(
    bound: BoundNode, kernel: Formulas | str, axes: tuple[int, ...], extra: tuple[Param, ...] = ()
) -> Layer:
    """A layer for every set of axes and several element types: of the formula for reals or integers, or of a template."""
    x, y = bound.input(0), bound.output
    types = x.dtype.value if x.dtype is y.dtype else f"{x.dtype.value}_{y.dtype.value}"
    spec = KernelSpec(f"_{types}", fixed_point=False, x=x.dtype.c_type, y=y.dtype.c_type)
    params = (*loop_params(groups_of(x.shape, axes), _LOOPS), *extra)
    own = kernel if isinstance(kernel, str) else kernel[x.dtype is not DType.FLOAT32]
    template, formula = printed(own, "reduction/reduce")
    return Layer(template, "portable", (0,), params=params, spec=spec, formula=formula)

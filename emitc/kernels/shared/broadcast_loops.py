"""Loops over tensors that are broadcast to one shape, by numpy's rule.

Neighbouring dimensions that each operand either repeats or traverses as a whole are one loop, so that almost every
model needs at most two; five are printed.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emitc.ir import BoundNode, Shape, Tensor
from emitc.kernels.contract import illegal, unsupported
from emitc.layer import Param

OUTER_LOOPS = 4
NAMES = "abc"
"""Operands in the templates, in order."""


@dataclass(frozen=True, slots=True)
class BroadcastLoop:
    """`count` steps over the output; steps: elements by which each operand advances (0: repeated)."""

    count: int
    steps: tuple[int, ...]


def common_shape(shapes: Sequence[Shape]) -> Shape | None:
    """The shape that all broadcast to, None where they do not fit each other."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        return None


def _strides(shape: Shape, rank: int) -> list[int]:
    wide = (1,) * (rank - len(shape)) + shape
    return [0 if size == 1 else math.prod(wide[i + 1 :]) for i, size in enumerate(wide)]


def loops_of(shapes: Sequence[Shape], output: Shape) -> tuple[BroadcastLoop, ...]:
    """The loops over the output, outermost first; at least one."""
    strides = [_strides(shape, len(output)) for shape in shapes]
    loops: list[BroadcastLoop] = []
    for i, count in enumerate(output):
        steps = tuple(stride[i] for stride in strides)
        if count == 1:
            continue
        if loops and loops[-1].steps == tuple(step * count for step in steps):
            loops[-1] = BroadcastLoop(loops[-1].count * count, steps)
        else:
            loops.append(BroadcastLoop(count, steps))
    return tuple(loops) or (BroadcastLoop(1, (1,) * len(shapes)),)


def _filled_up(loops: Sequence[BroadcastLoop], count: int) -> tuple[BroadcastLoop, ...]:
    """The loops, inside as many loops of one pass as it takes to have `count`."""
    still = BroadcastLoop(1, (0,) * len(loops[0].steps))
    return (still,) * (count - len(loops)) + tuple(loops)


def walks_of(shapes: Sequence[Shape], output: Shape) -> tuple[BroadcastLoop, ...]:
    """The loops over the output, outermost first, OUTER_LOOPS + 1 or more."""
    return _filled_up(loops_of(shapes, output), OUTER_LOOPS + 1)


def require_broadcast(
    bound: BoundNode,
    *,
    onto_first: bool = False,
    separator: str = ", ",
    hint: str = "expand one input first",
    tensor: Tensor | None = None,
) -> None:
    """Refuses shapes that do not fit each other, or that need too many loops. onto_first: y has the first input's shape.

    separator: between the shapes in the messages. hint: against too many loops. tensor: the one that the errors name.
    """
    shapes = [operand.shape for operand in bound.inputs if operand is not None]
    shape = common_shape(shapes)
    listing = separator.join(str(list(s)) for s in shapes)
    if shape is None or (onto_first and shape != shapes[0]):
        raise illegal(
            bound,
            f"{bound.node.op_type} has inputs whose shapes do not fit each other",
            f"{listing}: each dimension must be equal or 1" + (", and 1 in the second alone" if onto_first else ""),
            tensor=tensor,
        )
    loops = len(walks_of(shapes, shape))
    if loops > OUTER_LOOPS + 1:
        raise unsupported(
            bound,
            f"{bound.node.op_type} repeats its inputs along {loops} alternating dimensions",
            f"{listing} need as many nested loops, there is code for {OUTER_LOOPS + 1}",
            hint,
            tensor,
        )


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """The shape that all inputs broadcast to."""
    shape = common_shape([tensor.shape for tensor in bound.inputs if tensor is not None])
    assert shape is not None
    return (shape,)


def loop_params(loops: Sequence[BroadcastLoop], count: int) -> tuple[Param, ...]:
    """The loops as members of a parameter struct, innermost last; loops of one pass make them `count`."""
    return tuple(
        Param(f"{name}{i}", "int32_t", value)
        for i, loop in enumerate(_filled_up(loops, count))
        for name, value in (("n", loop.count), *zip(NAMES, loop.steps, strict=False))
    )


def walk_params(shapes: Sequence[Shape], output: Shape, step_comment: str = "") -> tuple[Param, ...]:
    """The loops as members of the parameter struct. step_comment: of the first operand's step along a row."""
    *outer, row = walks_of(shapes, output)
    steps = zip(NAMES, row.steps, (step_comment, "", ""), strict=False)
    return (
        *loop_params(outer, OUTER_LOOPS),
        Param("count", "int32_t", row.count, "elements of a row"),
        *(Param(f"{name}_step", "int32_t", step, comment) for name, step, comment in steps),
    )

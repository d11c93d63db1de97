"""ONNX's operators of several tensors, element by element, with numpy's broadcasting and any element types.

Neighbouring dimensions along which every operand behaves alike are one loop, as in shared/lookup_and_binary.py; five are printed.
A constant operand is an array of the layer's, like any other operand.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from emitc.ir import BoundNode, DType, Numerics, Op, Shape
from emitc.kernels.contract import Parsed, illegal, unsupported
from emitc.kernels.shared.pointwise import copied, in_place, printed, typed
from emitc.layer import ByRows, Formula, KernelSpec, Layer, Param, Table
from emitc.source import SourceNode

OUTER_LOOPS = 4
NAMES = "abc"
"""Operands in the templates, in order."""
FOLD_ENTRIES = 15
"""Numbers that say how a round of fold_layer walks: four loops and a row, each of a count and the moves of two operands."""
MAX_OPERANDS = 64


@dataclass(frozen=True, slots=True)
class BroadcastLoop:
    """`count` steps over the output; steps: elements by which each operand moves at each (0: it is repeated)."""

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


def walks_of(shapes: Sequence[Shape], output: Shape) -> tuple[BroadcastLoop, ...]:
    """The loops over the output, outermost first, OUTER_LOOPS + 1 or more."""
    strides = [_strides(shape, len(output)) for shape in shapes]
    walks: list[BroadcastLoop] = []
    for i, count in enumerate(output):
        steps = tuple(stride[i] for stride in strides)
        if count == 1:
            continue
        if walks and walks[-1].steps == tuple(step * count for step in steps):
            walks[-1] = BroadcastLoop(walks[-1].count * count, steps)
        else:
            walks.append(BroadcastLoop(count, steps))
    if not walks:
        walks.append(BroadcastLoop(1, (1,) * len(shapes)))
    still = BroadcastLoop(1, (0,) * len(shapes))
    return (still,) * (OUTER_LOOPS + 1 - len(walks)) + tuple(walks)


def require_broadcast(bound: BoundNode, *, onto_first: bool = False) -> None:
    """Refuses shapes that do not fit each other, or that need too many loops. onto_first: y has the first input's shape."""
    shapes = [tensor.shape for tensor in bound.inputs if tensor is not None]
    shape = common_shape(shapes)
    listing = ", ".join(str(list(s)) for s in shapes)
    if shape is None or (onto_first and shape != shapes[0]):
        raise illegal(
            bound,
            f"{bound.node.op_type} has inputs whose shapes do not fit each other",
            f"{listing}: each dimension must be equal or 1" + (", and 1 in the second alone" if onto_first else ""),
        )
    loops = len(walks_of(shapes, shape))
    if loops > OUTER_LOOPS + 1:
        raise unsupported(
            bound,
            f"{bound.node.op_type} repeats its inputs along {loops} alternating dimensions",
            f"{listing} need as many nested loops, there is code for {OUTER_LOOPS + 1}",
            "expand one input first",
        )


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """The shape that all inputs broadcast to."""
    shape = common_shape([tensor.shape for tensor in bound.inputs if tensor is not None])
    assert shape is not None
    return (shape,)


def walk_params(shapes: Sequence[Shape], output: Shape) -> tuple[Param, ...]:
    """The loops as members of the parameter struct."""
    *outer, row = walks_of(shapes, output)
    names = NAMES[: len(shapes)]
    walk = [
        Param(name, "int32_t", value)
        for i, loop in enumerate(outer)
        for name, value in ((f"n{i}", loop.count), *zip((f"{n}{i}" for n in names), loop.steps, strict=True))
    ]
    steps = [Param(f"{n}_step", "int32_t", step) for n, step in zip(names, row.steps, strict=True)]
    return (*walk, Param("count", "int32_t", row.count, "elements of a row"), *steps)


def broadcast_layer(
    bound: BoundNode,
    kernel: Formula | str,
    parameters: tuple[Param, ...] = (),
    *,
    operands: tuple[int, ...] = (0, 1),
    spec: KernelSpec | None = None,
    template: str = "elementwise/binary",
) -> Layer:
    """A formula of `va` and `vb`, which `template` prints, or a template, over the operands in the order given.

    spec: by the operands' types where it is left out.
    """
    tensors = [bound.input(i) for i in operands]
    y = bound.output
    if spec is None:
        spec = typed(tensors[-2].dtype, y.dtype, tensors[-1].dtype)
    overlaps = in_place(bound, tuple(i for i in operands if not bound.input(i).is_constant))
    params = (*parameters, *walk_params([t.shape for t in tensors], y.shape))
    alike = all(t.shape == y.shape and not t.is_constant for t in tensors)
    by_rows = ByRows(counted="count") if alike else None
    template, formula = printed(kernel, template)
    return Layer(
        template,
        "portable",
        operands,
        params=params,
        overlaps=overlaps,
        spec=spec,
        by_rows=by_rows,
        formula=formula,
    )


def flat_layer(layer: Layer) -> Layer:
    """The layer of `broadcast_layer` in one loop, where its walk is one along which every operand moves by an element."""
    values = {param.name: param.value for param in layer.params}
    outer = [f"n{i}" for i in range(OUTER_LOOPS)]
    moves = [f"{name}_step" for name in NAMES if f"{name}_step" in values]
    if any(values[name] != 1 for name in (*outer, *moves)):
        return layer
    left_out = {*outer, *moves, *(f"{name}{i}" for name in NAMES for i in range(OUTER_LOOPS))}
    params = tuple(param for param in layer.params if param.name not in left_out)
    return replace(layer, params=params, spec=layer.spec.extended("_flat", flat=True))


def two_operands(op: Op, node: SourceNode) -> Parsed:
    """An op of ONNX that takes two tensors."""
    node.counts((2, 2))
    return Parsed(replace(op, numerics=Numerics.QOPERATOR), (0, 1))


def same_types(dtypes: Sequence[DType], inputs: int = 2, output: DType | None = None) -> list[tuple[DType, ...]]:
    """Combinations of types in which all inputs have one, and the output it or a fixed one."""
    return [(t,) * inputs + (output or t,) for t in dtypes]


def fold_layer(bound: BoundNode, kernel: Formula | str, parameters: tuple[Param, ...] = ()) -> Layer:
    """Any number of operands, two by two: y = x0 . x1, then y = y . x2, and so on; one operand is copied.

    y may lie over x0 or x1, which the first round reads for the last time. The loops of each round are FOLD_ENTRIES numbers.
    """
    tensors = [bound.input(i) for i in range(len(bound.inputs))]
    y = bound.output
    if len(tensors) == 1:
        return copied(bound)
    rounds = [[tensors[0].shape, tensors[1].shape], *([y.shape, tensor.shape] for tensor in tensors[2:])]
    walk = tuple(int(param.value) for shapes in rounds for param in walk_params(shapes, y.shape))
    assert len(walk) == FOLD_ENTRIES * len(rounds)
    template, formula = printed(kernel, "elementwise/fold")
    return Layer(
        template,
        "portable",
        tuple(range(len(tensors))),
        (Table("walk", "int32_t", walk, "loops of each round: four of steps, a's and b's moves; then a row's"),),
        parameters,
        overlaps=in_place(bound, tuple(i for i in (0, 1) if not tensors[i].is_constant)),
        spec=typed(y.dtype, y.dtype),
        formula=formula,
    )


def any_operands(op: Op, node: SourceNode) -> Parsed:
    """An op of ONNX that takes one tensor or more."""
    node.counts((1, MAX_OPERANDS))
    for position in range(len(node.inputs)):
        node.input(position)
    return Parsed(replace(op, numerics=Numerics.QOPERATOR), tuple(range(len(node.inputs))))

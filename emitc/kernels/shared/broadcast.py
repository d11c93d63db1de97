"""Operators of several tensors, element by element, with numpy's broadcasting, and the loops over them.

Neighbouring dimensions that each operand either repeats or traverses as a whole are one loop, so that almost every
model needs at most two; five are printed. A constant operand is an array of the layer's, like any other operand.
"""

import math
from collections.abc import Sequence

import numpy as np

from emitc.ir import BoundNode, DType, Op, Shape, Tensor
from emitc.kernels.contract import Parsed, illegal, require_dtypes, require_quantization, unsupported
from emitc.kernels.shared.int16x8 import require_symmetric, throughout
from emitc.kernels.shared.pointwise import copied, in_place, printed, typed
from emitc.layer import ByRows, Formula, KernelSpec, Layer, Param, Table, in_step
from emitc.records import dataclass, replace
from emitc.source import SourceNode

FOLD_ENTRIES = 15
"""Numbers that say how a round of fold_layer walks: four loops and a row, each of a count and the moves of two operands."""
MAX_OPERANDS = 64
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
        why = f"{listing}: each dimension must be equal or 1" + (", and 1 in the second alone" if onto_first else "")
        raise illegal(bound, "has inputs whose shapes do not fit each other", why, tensor=tensor)
    loops = len(walks_of(shapes, shape))
    if loops > OUTER_LOOPS + 1:
        why = f"{listing} need as many nested loops, there is code for {OUTER_LOOPS + 1}"
        raise unsupported(bound, f"repeats its inputs along {loops} alternating dimensions", why, hint, tensor)


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
    spec = spec or typed(tensors[-2].dtype, y.dtype, tensors[-1].dtype)
    overlaps = in_place(bound, tuple(i for i in operands if not bound.input(i).is_constant))
    params = (*parameters, *walk_params([t.shape for t in tensors], y.shape))
    same_shapes = all(t.shape == y.shape and not t.is_constant for t in tensors)
    by_rows = ByRows(counted="count") if same_shapes else None
    template, formula = printed(kernel, template)
    return Layer(
        template, operands=operands, params=params, overlaps=overlaps, spec=spec, by_rows=by_rows, formula=formula
    )


def flat_layer(layer: Layer) -> Layer:
    """The layer of `broadcast_layer` as one loop, where every operand advances by one element per step."""
    values = {param.name: param.value for param in layer.params}
    outer = [f"n{i}" for i in range(OUTER_LOOPS)]
    moves = [f"{name}_step" for name in NAMES if f"{name}_step" in values]
    if any(values[name] != 1 for name in (*outer, *moves)):
        return layer
    left_out = {*outer, *moves, *(f"{name}{i}" for name in NAMES for i in range(OUTER_LOOPS))}
    params = tuple(param for param in layer.params if param.name not in left_out)
    return replace(layer, params=params, spec=layer.spec.extended("_flat", no_broadcast=True))


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
        operands=tuple(range(len(tensors))),
        tables=(Table("walk", "int32_t", walk, "loops of each round: four of steps, a's and b's moves; then a row's"),),
        params=parameters,
        overlaps=in_place(bound, tuple(i for i in (0, 1) if not tensors[i].is_constant)),
        spec=typed(y.dtype, y.dtype),
        formula=formula,
    )


def any_operands(op: Op, node: SourceNode) -> Parsed:
    """An op of ONNX that takes one tensor or more."""
    node.counts((1, MAX_OPERANDS))
    for position in range(len(node.inputs)):
        node.input(position)
    return Parsed(op, tuple(range(len(node.inputs))))


def check_binary(bound: BoundNode) -> None:
    """Refuses other types than int8 and int16, tensors without scale, and shapes that do not fit each other."""
    others = (DType.INT32, DType.INT64, DType.UINT8, DType.FLOAT32)
    require_dtypes(bound, [(DType.INT8,) * 3, (DType.INT16,) * 3], [(dtype,) * 3 for dtype in others])
    a, b = bound.input(0), bound.input(1)
    require_quantization(bound, a, b, bound.output)
    require_symmetric(bound)
    hint = "expand one input first, for example with BROADCAST_TO"
    require_broadcast(bound, separator=" and ", hint=hint, tensor=a)


def binary_layer(bound: BoundNode, template: str, params: tuple[Param, ...]) -> Layer:
    """`template` where both operands have every element of the output, `template`_broadcast where one is repeated.

    Constant operands become the tables a and b. The output may lie over an operand that is not repeated: it is read just
    before the same element is written.
    """
    a, b, y = bound.input(0), bound.input(1), bound.output
    spec = throughout(y.dtype)
    tables = tuple(
        Table(role, spec.x, tuple(tensor.array().reshape(-1).tolist()), f"constant input {i}")
        for i, (role, tensor) in enumerate((("a", a), ("b", b)))
        if tensor.is_constant
    )
    operands = tuple(i for i, tensor in enumerate((a, b)) if not tensor.is_constant)
    overlaps = tuple(in_step(bound, i) for i in operands if bound.input(i).elements == y.elements)
    if a.elements == b.elements == y.elements:
        params = (*params, Param("count", "int32_t", y.elements))
        by_rows = None if tables else ByRows(counted="count")
        return Layer(template, "portable", operands, tables, params, overlaps=overlaps, spec=spec, by_rows=by_rows)
    walk = walk_params([a.shape, b.shape], y.shape, "0: one value for the row")
    return Layer(f"{template}_broadcast", "portable", operands, tables, (*params, *walk), overlaps=overlaps, spec=spec)

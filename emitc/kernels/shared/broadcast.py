"""ONNX's operators of several tensors, element by element, with numpy's broadcasting and any element types.

A constant operand is an array of the layer's, like any other operand.
"""

from collections.abc import Sequence
from dataclasses import replace

from emitc.ir import BoundNode, DType, Op
from emitc.kernels.contract import Parsed
from emitc.kernels.shared.broadcast_loops import NAMES
from emitc.kernels.shared.broadcast_loops import OUTER_LOOPS as OUTER_LOOPS
from emitc.kernels.shared.broadcast_loops import common_shape as common_shape
from emitc.kernels.shared.broadcast_loops import output_shapes as output_shapes
from emitc.kernels.shared.broadcast_loops import require_broadcast as require_broadcast
from emitc.kernels.shared.broadcast_loops import walk_params as walk_params
from emitc.kernels.shared.broadcast_loops import walks_of as walks_of
from emitc.kernels.shared.pointwise import copied, in_place, printed, typed
from emitc.layer import ByRows, Formula, KernelSpec, Layer, Param, Table
from emitc.source import SourceNode

FOLD_ENTRIES = 15
"""Numbers that say how a round of fold_layer walks: four loops and a row, each of a count and the moves of two operands."""
MAX_OPERANDS = 64


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


def two_operands(op: Op, node: SourceNode) -> Parsed:
    """An op of ONNX that takes two tensors."""
    node.counts((2, 2))
    return Parsed(op, (0, 1))


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
    return Parsed(op, tuple(range(len(node.inputs))))

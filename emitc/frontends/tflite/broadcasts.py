"""Operators of TFLite whose operands are repeated along more dimensions than there is code for: some are repeated before.

Neighbouring dimensions along which each operand is repeated, or each is not, are one loop. Where all of six dimensions
are loops of their own, the two neighbouring loops are merged that take the fewest elements: a BROADCAST_TO precedes the
operands that are repeated in only one of them. Only the first subgraph is rewritten.
Source  TFLite Micro, whose shapes have six dimensions at most: of more it writes beyond them.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby, pairwise

import numpy as np

from emitc.errors import Note, NoteCode
from emitc.frontends.tflite.additions import Additions
from emitc.ir import Shape
from emitc.source import SourceModel, SourceNode, SourceTensor

MAX_LOOPS = 5
MAX_RANK = MAX_LOOPS + 1
_OPERATORS = frozenset({
    "ADD", "DIV", "EQUAL", "FLOOR_DIV", "FLOOR_MOD", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "LOGICAL_AND",
    "LOGICAL_OR", "MAXIMUM", "MINIMUM", "MUL", "NOT_EQUAL", "POW", "SELECT_V2", "SQUARED_DIFFERENCE", "SUB",
})  # fmt: skip


def few_loops(shapes: Sequence[Shape], output: Shape) -> list[Shape]:
    """The shapes that operands have to be repeated to, for MAX_LOOPS loops; all of the output's rank, MAX_RANK at most."""
    padded = [(1,) * (len(output) - len(shape)) + shape for shape in shapes]
    dims = (i for i, size in enumerate(output) if size != 1)
    loops = [list(loop) for _, loop in groupby(dims, lambda i: tuple(shape[i] == 1 for shape in padded))]
    if len(loops) <= MAX_LOOPS:
        return padded
    candidates = [[_repeated(shape, (*one, *other), output) for shape in padded] for one, other in pairwise(loops)]
    return min(candidates, key=lambda choice: sum(map(math.prod, choice)))


def _repeated(shape: Shape, dims: Sequence[int], output: Shape) -> Shape:
    """The shape with all elements of the dimensions, unless it has none of its own in any of them."""
    if all(shape[i] == 1 for i in dims):
        return shape
    return tuple(output[i] if i in dims else size for i, size in enumerate(shape))


def _output(node: SourceNode) -> Shape | None:
    """The shape that a node's operands broadcast to, None where they are not known, do not fit or have too many dimensions."""
    shapes = [tensor.shape for tensor in node.inputs if tensor is not None and not tensor.is_variable]
    known = len(shapes) == len(node.inputs) and all(min(shape, default=1) > 0 for shape in shapes)
    if node.op_type not in _OPERATORS or not known or max(map(len, shapes), default=0) > MAX_RANK:
        return None
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        return None


def with_few_loops(model: SourceModel) -> SourceModel:
    """The model with a BROADCAST_TO wherever a node's operands alternate too often."""
    work = Additions(model)
    for node in model.nodes:
        output = _output(node)
        operands = [tensor for tensor in node.inputs if tensor is not None]
        wanted = few_loops([tensor.shape for tensor in operands], output) if output is not None else []
        inputs = list(node.inputs)
        for place, (tensor, shape) in enumerate(zip(operands, wanted, strict=False)):
            if math.prod(shape) == tensor.elements:
                continue
            size = np.array(shape, "<i4").tobytes()
            sizes = work.tensor(SourceTensor(0, f"{tensor.name}_shape", "int32", (len(shape),), None, size))
            whole = work.tensor(tensor, name=f"{tensor.name}_repeated", shape=shape, data=None)
            work.node("BROADCAST_TO", (tensor, sizes), whole)
            inputs[place] = whole
            note = Note(NoteCode.REPEATED, f"input {place} is repeated to {list(shape)} before")
            work.notes.append(note.of(node.where().op))
        work.nodes.append(replace(node, inputs=tuple(inputs)))
    return work.finished()

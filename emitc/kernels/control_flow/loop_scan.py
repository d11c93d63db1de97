"""Loop and Scan of ONNX: a graph again and again, a known or computed number of times, with tensors read and written by slices.

y = x; for round = 0, 1, ... while round < limit and going: going, y, s = body(round, y, x[round], rest); output[round] = s.
Shapes  values that go round keep theirs; slices are along the first dimension, and how many of them there are is known.
Types   any that the operators inside have code for. What is inside keeps no state: ONNX has none.
Source  ONNX's specification of Loop and Scan; measured in ONNX Runtime, which obeys a body's condition also where the
        initial one is left out.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emitc.ir import Array, BoundNode, DType, Graph, Shape, Tensor
from emitc.kernels.contract import KernelDef, Parsed, damaged, unsupported
from emitc.kernels.control_flow.control_flow import ControlFlow, Links, endless, rounds_within, work
from emitc.kernels.shared.subgraph_reference import nested_macs, run_nested
from emitc.layer import Layer, Param, integers
from emitc.source import SourceNode

NO_LIMIT = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Loop(ControlFlow):
    """graphs: the body. Operands: [limit] [whether to begin] values that go round, scanned tensors, what the body only reads.

    The body's inputs: [number of the round, int64] values, one slice of each scanned tensor, the rest. Its outputs: [whether to
    go on] values, slices. counted, conditional, numbered, until: whether those in brackets are there. rounds: the limit where
    no operand gives it. carried, scanned: how many values and scanned tensors. backward: of each scanned tensor, then of
    each output by slices, whether the last slice is the first.
    """

    counted: bool = False
    conditional: bool = False
    numbered: bool = False
    until: bool = False
    rounds: int = NO_LIMIT
    carried: int = 0
    scanned: int = 0
    backward: tuple[bool, ...] = ()

    parts = ("body",)

    @property
    def may_not_end(self) -> bool:
        """Whether the data decide how often the body runs."""
        return self.counted or self.until

    def links(self, operands: int) -> tuple[Links, ...]:
        """Values go round; slices and the rest come from their operands alone, the number from nowhere."""
        first = self.counted + self.conditional
        values = tuple((first + k, k) for k in range(self.carried))
        rest = tuple((position, -1) for position in range(first + self.carried, operands))
        slices = len(self.graphs[0].outputs) - self.until - self.carried
        outputs = (*(-1,) * self.until, *range(self.carried + slices))
        return (Links(((-1, -1),) * self.numbered + values + rest, outputs, values),)


def _from_onnx(node: SourceNode) -> Parsed:
    """The frontend has translated what the two operators of ONNX say to attributes."""
    slices = str(node.attribute("backward"))
    op = Loop(
        node.graphs,
        counted=bool(node.integer("counted")),
        conditional=bool(node.integer("conditional")),
        numbered=bool(node.integer("numbered")),
        until=bool(node.integer("until")),
        rounds=node.integer("rounds", low=0, high=NO_LIMIT),
        carried=node.integer("carried"),
        scanned=node.integer("scanned"),
        backward=tuple(letter == "1" for letter in slices),
    )
    return Parsed(op, tuple(range(len(node.inputs))))


def _sides(bound: BoundNode) -> tuple[Graph, tuple[Tensor, ...], tuple[Tensor, ...]]:
    """The body; the operands after limit and condition; the body's outputs after its condition."""
    op = bound.op(Loop)
    operands = tuple(t for t in bound.inputs[op.counted + op.conditional :] if t is not None)
    (body,) = op.graphs
    return body, operands, tuple(body.tensor(name) for name in body.outputs[op.until :])


def _check(bound: BoundNode) -> None:
    op = bound.op(Loop)
    body, operands, results = _sides(bound)
    inner = [body.tensor(name) for name in body.inputs[op.numbered :]]
    expected = [(t.dtype, t.shape) for t in operands]
    for k in range(op.carried, op.carried + op.scanned):
        expected[k] = (expected[k][0], expected[k][1][1:])
        if operands[k].shape[:1] != (op.rounds,):
            raise damaged(bound, f"scans {operands[k].describe()}", f"it has {op.rounds} rounds")
    if [(t.dtype, t.shape) for t in inner] != expected:
        raise damaged(bound, "has a body that takes something else", "types or shapes differ")
    for value, made in zip(operands[: op.carried], results, strict=False):
        if (value.dtype, value.shape) != (made.dtype, made.shape):
            why = f"{value.describe()} becomes {made.describe()}: sizes must be known at compile time"
            hint = "export the model with fixed shapes, or with a number of rounds that is a constant"
            raise unsupported(bound, "has a body that changes shapes", why, hint)
    if len(results) > op.carried and op.may_not_end:
        why = "the data decide how many rounds there are, each of which adds a slice"
        hint = "export the model with a constant number of rounds, and without a condition"
        raise unsupported(bound, "has outputs of unknown length", why, hint)


def _output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """Values as they are; of slices as many as there are rounds."""
    op = bound.op(Loop)
    _, _, results = _sides(bound)
    return tuple(t.shape if k < op.carried else (op.rounds, *t.shape) for k, t in enumerate(results))


def _reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """Raises CannotCompile for a loop that goes on beyond what anyone waits for."""
    op = bound.op(Loop)
    operands = [value for value in inputs if value is not None]
    limit = int(operands[0].reshape(-1)[0]) if op.counted else op.rounds
    going = bool(operands[op.counted].reshape(-1)[0]) if op.conditional else True
    first = op.counted + op.conditional
    values, scanned = operands[first:][: op.carried], operands[first + op.carried :][: op.scanned]
    rest = operands[first + op.carried + op.scanned :]
    turned = op.backward + (False,) * len(bound.outputs)
    made = [np.zeros(t.shape, t.dtype.value) for t in bound.outputs[op.carried :]]
    allowed = rounds_within(work(bound))
    number = 0
    while number < limit and going:
        if number >= allowed:
            raise endless(bound, allowed)
        slices = [x[len(x) - 1 - number if back else number] for x, back in zip(scanned, turned, strict=False)]
        shape = op.graphs[0].tensor(op.graphs[0].inputs[0]).shape if op.numbered else ()
        own = [np.full(shape, number, np.int64)] if op.numbered else []
        results = run_nested(op.graphs[0], [*own, *values, *slices, *rest])
        going = not op.until or bool(results[0].reshape(-1)[0])
        values = list(results[op.until :][: op.carried])
        for k, (target, value) in enumerate(zip(made, results[op.until + op.carried :], strict=True)):
            target[len(target) - 1 - number if turned[op.scanned + k] else number] = value
        number += 1
    return (*values, *made)


def _lower(bound: BoundNode) -> Layer:
    """Multiply-accumulates are those of all rounds, where their number is known, else of one."""
    op = bound.op(Loop)
    macs = nested_macs(op.graphs[0]) * (1 if op.may_not_end or op.rounds == NO_LIMIT else op.rounds)
    params = (
        *integers(
            counted=int(op.counted), conditional=int(op.conditional), numbered=int(op.numbered), until=int(op.until)
        ),
        Param("rounds", "int64_t", op.rounds),
        *integers(carried=op.carried, scanned=op.scanned),
        Param("backward", "int64_t", sum(1 << k for k, back in enumerate(op.backward) if back)),
    )
    return Layer("control_flow/counted_loop", "portable", tuple(range(len(bound.inputs))), params=params, macs=macs)


KERNELS = (
    KernelDef(
        Loop, "a graph again and again", tuple(DType), (), None, _check, _reference, _lower, output_shapes=_output_shapes,
        work=work, onnx=("Loop", "Scan"), from_onnx=_from_onnx, subgraphs=("body_subgraph_index",),
    ),
)  # fmt: skip

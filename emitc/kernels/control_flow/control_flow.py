"""IF and WHILE of TFLite, If of ONNX: graphs inside of operators, with shapes that are known while compiling.

IF      x0 bool of one element; y = then(x1...) where it is true, otherwise other(x1...).
WHILE   y = x; while condition(y): y = body(y), all of it at once.
Shapes  the operands' inside; both branches give the same, and a body those that it gets.
Types   any that the operators inside have code for.
State   a variable that something inside reads or updates is among the operands and the outputs. So it is among the inputs and
        the outputs of every graph inside, of the condition too: after everything else. All of them are one place in memory.
Source  measured in TFLite Micro and LiteRT, which copy operands in and results out.

Loop and Scan of ONNX: a graph again and again, a known or computed number of times, with tensors read and written by slices.

y = x; for round = 0, 1, ... while round < limit and going: going, y, s = body(round, y, x[round], rest); output[round] = s.
Shapes  values that go round keep theirs; slices are along the first dimension, and how many of them there are is known.
Types   any that the operators inside have code for. What is inside keeps no state: ONNX has none.
Source  ONNX's specification of Loop and Scan; measured in ONNX Runtime, which obeys a body's condition also where the
        initial one is left out.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import numpy as np

from emitc.errors import CannotCompile, Where
from emitc.ir import Array, BoundNode, DType, Graph, Op, Shape, Tensor
from emitc.kernels.contract import KernelDef, Parsed, damaged, unsupported
from emitc.kernels.shared.pointwise import operand
from emitc.kernels.shared.subgraph_reference import nested_macs, nested_work, run_nested
from emitc.layer import Layer, Param, integers
from emitc.records import dataclass
from emitc.source import SourceNode

_MAX_ITERATIONS, _MAX_WORK = 100_000, 1 << 34
"""Of a loop in the reference, and steps of its operators; C goes on for as long as the condition holds."""


def rounds_within(work: int) -> int:
    """Iterations that the reference makes of a loop whose graphs take `work` steps, before it gives up."""
    return min(_MAX_ITERATIONS, max(16, _MAX_WORK // max(work, 1)))


@dataclass(frozen=True, slots=True)
class Links:
    """How values go into one of an operator's graphs and out of it; -1 stands for none.

    inputs: for each input of the graph the operand that it has at first, and the operator's output that it has later, round
    a loop. outputs: for each output of the graph the operator's output that it becomes. starts: operands that are outputs of
    the operator, too, where the graph never runs.
    """

    inputs: tuple[tuple[int, int], ...]
    outputs: tuple[int, ...]
    starts: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class ControlFlow(Op, ABC):
    """graphs: those inside, each with inputs and outputs in the order of the node's."""

    graphs: tuple[Graph, ...]

    parts: ClassVar[tuple[str, ...]] = ()
    """What each graph is called in C."""

    @property
    def may_not_end(self) -> bool:
        """Whether the data decide how often a graph runs."""
        return False

    @abstractmethod
    def links(self, operands: int) -> tuple[Links, ...]:
        """How each graph is joined to the operator's `operands` operands and its outputs."""


class If(ControlFlow):
    """graphs: what runs where the first operand is true, and what runs otherwise."""

    parts = ("then", "else")

    def links(self, operands: int) -> tuple[Links, ...]:
        """Both take all operands but the condition, and give all outputs."""
        inputs = tuple((position, -1) for position in range(1, operands))
        return tuple(Links(inputs, tuple(range(len(graph.outputs)))) for graph in self.graphs)


class While(ControlFlow):
    """graphs: the condition, and the body."""

    parts = ("condition", "body")

    @property
    def may_not_end(self) -> bool:
        """The condition decides."""
        return True

    def links(self, operands: int) -> tuple[Links, ...]:
        """Both take all values of the loop; only the body gives new ones."""
        values = tuple((position, position) for position in range(operands))
        states = range(operands + 1 - len(self.graphs[0].outputs), operands)
        return Links(values, (-1, *states), values), Links(values, tuple(range(operands)))


def _parsed(op: type[ControlFlow], node: SourceNode) -> Parsed:
    states = tuple(i for i, tensor in enumerate(node.inputs) if tensor is not None and tensor.is_variable)
    node.counts((1, 1024 if node.format == "onnx" else 64 + len(states)), (0 if states else 1, 64))
    return Parsed(op(node.graphs), tuple(range(len(node.inputs))), states=states)


def _op(bound: BoundNode) -> ControlFlow:
    assert isinstance(bound.node.op, ControlFlow)
    return bound.node.op


def _same_types(bound: BoundNode, graph: Graph, outputs: bool) -> None:
    names = graph.outputs if outputs else graph.inputs
    own = bound.outputs if outputs else bound.inputs[isinstance(_op(bound), If) :]
    side = "gives" if outputs else "takes"
    if len(names) != len(own):
        does = f"runs a subgraph with other {'outputs' if outputs else 'inputs'}"
        raise damaged(bound, does, f"it {side} {len(names)} tensors, the operator has {len(own)}")
    for name, tensor in zip(names, own, strict=True):
        assert tensor is not None
        inner = graph.tensor(name)
        if inner.dtype is not tensor.dtype:
            why = f"{inner.describe()} inside, {tensor.describe()} outside"
            raise damaged(bound, f"runs a subgraph that {side} another type", why)


def variable_names(bound: BoundNode) -> tuple[str, ...]:
    """The variables that the operator hands to its graphs."""
    return tuple(tensor.name for tensor in bound.inputs if tensor is not None and tensor.is_state)


def _hands_over(bound: BoundNode, graph: Graph) -> bool:
    """Whether a graph gets the operator's variables, gives them, and keeps no others."""
    names = variable_names(bound)

    def ends(values: Sequence[str]) -> tuple[str, ...]:
        return tuple(values[len(values) - len(names) :])

    inner = {tensor.name for tensor in graph.states}
    return (
        ends(bound.node.inputs) == names == ends(bound.node.outputs)
        and ends(graph.inputs) == ends(graph.outputs)
        and set(ends(graph.inputs)) == inner
        and len(inner) == len(names)
    )


def _check(bound: BoundNode) -> None:
    op = _op(bound)
    for position, graph in enumerate(op.graphs):
        if not _hands_over(bound, graph):
            why = "inputs and outputs are made in every run, a variable holds its value"
            raise damaged(bound, "runs a subgraph whose variables are not the operator's", why)
        _same_types(bound, graph, outputs=False)
        if isinstance(op, If) or position == 1:
            _same_types(bound, graph, outputs=True)
    first, second = op.graphs
    condition = bound.input(0) if isinstance(op, If) else None
    if isinstance(op, While):
        if len(first.outputs) != 1 + len(variable_names(bound)):
            values = len(first.outputs) - len(variable_names(bound))
            raise damaged(bound, f"has a condition of {values} values", "one is expected")
        condition = first.tensor(first.outputs[0])
    assert condition is not None
    if condition.dtype is not DType.BOOL or condition.elements != 1:
        stated = f"{condition.dtype.value}{list(condition.shape)}"
        raise damaged(bound, f"has the condition {stated}", "one truth value is expected")
    if isinstance(op, If):
        shapes = [[graph.tensor(name).shape for name in graph.outputs] for graph in op.graphs]
        what = "has branches that give different shapes"
    else:
        shapes = [[t.shape for t in bound.inputs if t is not None], [second.tensor(n).shape for n in second.outputs]]
        what = "has a body that changes shapes"
    if shapes[0] != shapes[1]:
        a, b = next((list(a), list(b)) for a, b in zip(*shapes, strict=True) if a != b)
        why = f"{a} and {b}: sizes must be known at compile time"
        raise unsupported(bound, what, why, "export the model with fixed shapes")


def _output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    graph = _op(bound).graphs[1]
    return tuple(graph.tensor(name).shape for name in graph.outputs)


def _if_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    return run_nested(_op(bound).graphs[0 if operand(bound, inputs, 0).reshape(-1)[0] else 1], inputs[1:])


def _while_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """Raises CannotCompile for a loop that goes on beyond what anyone waits for."""
    condition, body = _op(bound).graphs
    values = tuple(value for value in inputs if value is not None)
    rounds = rounds_within(work(bound))
    for _ in range(rounds):
        goes_on, *kept = run_nested(condition, values)
        values = (*values[: len(values) - len(kept)], *kept)
        if not goes_on.reshape(-1)[0]:
            return values
        values = run_nested(body, values)
    raise endless(bound, rounds)


def endless(bound: BoundNode, rounds: int) -> CannotCompile:
    """That a loop goes on after as many iterations."""
    return CannotCompile(
        "a loop does not end",
        Where(op=bound.node.describe()),
        f"its condition holds after {rounds} iterations on these inputs",
        "verify with --samples 0 and --vectors whose inputs let it end",
    )


def _if_lower(bound: BoundNode) -> Layer:
    """The branch with more of them counts; the memory of both is added when they are planned."""
    macs = max(nested_macs(graph) for graph in _op(bound).graphs)
    return Layer("control_flow/branch", "portable", tuple(range(len(bound.inputs))), macs=macs)


def _while_lower(bound: BoundNode) -> Layer:
    """Multiply-accumulates are those of one iteration."""
    macs = sum(nested_macs(graph) for graph in _op(bound).graphs)
    return Layer("control_flow/loop", "portable", tuple(range(len(bound.inputs))), macs=macs)


def work(bound: BoundNode) -> int:
    """Of both graphs, once each."""
    return sum(nested_work(graph) for graph in _op(bound).graphs) + sum(t.elements for t in bound.outputs)


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


def _loop_from_onnx(node: SourceNode) -> Parsed:
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


def _check_loop(bound: BoundNode) -> None:
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


def _loop_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """Values as they are; of slices as many as there are rounds."""
    op = bound.op(Loop)
    _, _, results = _sides(bound)
    return tuple(t.shape if k < op.carried else (op.rounds, *t.shape) for k, t in enumerate(results))


def _loop_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
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


def _lower_loop(bound: BoundNode) -> Layer:
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
        If, "one of two subgraphs", tuple(DType), ("IF",), partial(_parsed, If), _check, _if_reference, _if_lower,
        output_shapes=_output_shapes,
        work=work, onnx=("If",), from_onnx=partial(_parsed, If),
        subgraphs=("then_subgraph_index", "else_subgraph_index"),
    ),
    KernelDef(
        While, "a subgraph again and again", tuple(DType), ("WHILE",), partial(_parsed, While), _check,
        _while_reference, _while_lower, output_shapes=_output_shapes, work=work,
        subgraphs=("cond_subgraph_index", "body_subgraph_index"),
    ),
    KernelDef(
        Loop, "a graph again and again", tuple(DType), (), None, _check_loop, _loop_reference, _lower_loop,
        output_shapes=_loop_shapes, work=work, onnx=("Loop", "Scan"), from_onnx=_loop_from_onnx,
        subgraphs=("body_subgraph_index",),
    ),
)  # fmt: skip

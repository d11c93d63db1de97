"""IF and WHILE of TFLite, If of ONNX: graphs inside of operators, with shapes that are known while compiling.

IF      x0 bool of one element; y = then(x1...) where it is true, otherwise other(x1...).
WHILE   y = x; while condition(y): y = body(y), all of it at once.
Shapes  the operands' inside; both branches give the same, and a body those that it gets.
Types   any that the operators inside have code for.
State   a variable that something inside reads or updates is among the operands and the outputs. So it is among the inputs and
        the outputs of every graph inside, of the condition too: after everything else. All of them are one place in memory.
Source  measured in TFLite Micro and LiteRT, which copy operands in and results out.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from emitc.errors import CannotCompile, Where
from emitc.ir import Array, BoundNode, DType, Graph, Op, Shape
from emitc.kernels.contract import KernelDef, Parsed, damaged, unsupported
from emitc.kernels.shared.pointwise import operand
from emitc.kernels.shared.subgraph_reference import nested_macs, nested_work, run_nested
from emitc.layer import Layer
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


def _parser(op: type[ControlFlow]) -> Callable[[SourceNode], Parsed]:
    def parse(node: SourceNode) -> Parsed:
        states = tuple(i for i, tensor in enumerate(node.inputs) if tensor is not None and tensor.is_variable)
        node.counts((1, 1024 if node.format == "onnx" else 64 + len(states)), (0 if states else 1, 64))
        return Parsed(op(node.graphs), tuple(range(len(node.inputs))), states=states)

    return parse


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


KERNELS = (
    KernelDef(
        If, "one of two subgraphs", tuple(DType), ("IF",), _parser(If), _check, _if_reference, _if_lower,
        output_shapes=_output_shapes,
        work=work, onnx=("If",), from_onnx=_parser(If), subgraphs=("then_subgraph_index", "else_subgraph_index"),
    ),
    KernelDef(
        While, "a subgraph again and again", tuple(DType), ("WHILE",), _parser(While), _check, _while_reference,
        _while_lower, output_shapes=_output_shapes, work=work, subgraphs=("cond_subgraph_index", "body_subgraph_index"),
    ),
)  # fmt: skip

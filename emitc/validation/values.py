"""One graph executed next to the graph before a pass: every tensor that keeps its name has to keep its value.

The operands of an operator are the values that the graph had as it was built, wherever the tensor is still there. So an operator
that gives other bits is found where it stands, and says nothing about those that follow. A chain of equal values leads
from each tensor back to the graph as it was built. It uses the references of the operators that the graph had then.
Operators that the pass has left alone, with operands of the same values, are not executed again: their references are
functions.
"""

from collections.abc import Mapping, MutableMapping, Sequence

import numpy as np

from emitc.ir import Array, BoundNode, DType, Graph, Tensor
from emitc.kernels import kernel_of
from emitc.kernels.npu.npu_command import Offloaded
from emitc.records import dataclass, field
from emitc.validation.tolerance import EXACT, Judge, Leave, differing

Values = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Wrong:
    """What a step did wrong. ops: the operators that give the tensor its value, each as messages name it.

    step: name of the pass, of the memory technique or of another step. tensor: as messages name it. differing: elements of it,
    in the first run that shows the fault; -1 where it is no matter of elements. why: the fault in words.
    """

    step: str
    ops: tuple[str, ...]
    tensor: str
    differing: int
    why: str = ""

    def to_json(self) -> dict[str, object]:
        return {"pass": self.step, "ops": list(self.ops), "tensor": self.tensor, "differing": self.differing}


class Faulty(Exception):
    """Carries a Wrong to where the steps are counted; it never leaves this package."""

    def __init__(self, wrong: Wrong) -> None:
        super().__init__(wrong.step)
        self.wrong = wrong


@dataclass(slots=True)
class Executed:
    """A graph's values in one run, by name. before, after: those of the state variables at both ends of the run."""

    graph: Graph
    values: dict[str, Array]
    before: dict[str, Array] = field(default_factory=dict)
    after: dict[str, Array] = field(default_factory=dict)


class Execution:
    """One run of a graph. state: its variables, which the run updates; those that are absent have their first values."""

    def __init__(self, graph: Graph, inputs: Values, state: MutableMapping[str, Array]) -> None:
        self.graph = graph
        self.state = state
        for tensor in graph.states:
            state.setdefault(tensor.name, tensor.initial_array())
        self.values: dict[str, Array] = {t.name: t.array() for t in graph.tensors if t.is_constant}
        for name in graph.inputs:
            if graph.tensor(name).is_state:
                state[name] = inputs[name]
            else:
                self.values[name] = inputs[name]
        self.before = dict(state)

    def value(self, name: str) -> Array:
        """A tensor's value now. What shares the bytes of a state variable has what the variable holds at this point."""
        tensor = self.graph.tensor(name)
        root = self.graph.root(name)
        if root.is_state:
            return self.state[root.name].reshape(tensor.shape)
        if name not in self.values:
            self.values[name] = self.value(tensor.alias_of).reshape(tensor.shape)
        return self.values[name]

    def execute(self, bound: BoundNode) -> tuple[Array, ...]:
        """The outputs of an operator by its reference; they are not kept."""
        operands = [None if t is None else self.value(t.name) for t in bound.inputs]
        with np.errstate(all="ignore"):
            results = kernel_of(bound).reference(bound, operands)
        written = []
        for tensor, result in zip(bound.outputs, results, strict=True):
            assert result.shape == tensor.shape and result.dtype.name == tensor.dtype.value, tensor.describe()
            written.append(np.ascontiguousarray(result).reshape(tensor.shape))
        return tuple(written)

    def keep(self, tensor: Tensor, value: Array) -> None:
        if tensor.is_state:
            self.state[tensor.name] = value
        else:
            self.values[tensor.name] = value

    def finished(self) -> Executed:
        """All values. What shares bytes with another tensor is among them, unless that is a state variable."""
        for tensor in self.graph.tensors:
            root = self.graph.root(tensor.name)
            if not root.is_state and root.name in self.values:
                self.value(tensor.name)
        return Executed(self.graph, self.values, self.before, dict(self.state))


def executed(graph: Graph, inputs: Sequence[Array], state: MutableMapping[str, Array]) -> Executed:
    """The graph's values for one set of inputs, all of them computed."""
    run = Execution(graph, dict(zip(graph.inputs, inputs, strict=True)), state)
    for bound in graph.bound():
        for tensor, result in zip(bound.outputs, run.execute(bound), strict=True):
            run.keep(tensor, result)
    return run.finished()


def _kept_channels(values: Array, tensor: Tensor, old: Tensor) -> Array | None:
    """What a tensor's value has to be, by the one before; None where it has another meaning than before."""
    if tensor.dtype is not old.dtype:
        return None
    if tensor.shape == old.shape:
        return values
    if not tensor.channels or tensor.shape[:-1] != old.shape[:-1]:
        return None
    had = list(old.channels or range(old.shape[-1]))
    if not set(tensor.channels) <= set(had):
        return None
    return np.ascontiguousarray(values[..., [had.index(channel) for channel in tensor.channels]])


class Comparison:
    """The graph after a step against a run of the graph before it. judge: says how close a value has to be."""

    def __init__(self, step: str, old: Executed, graph: Graph, state: MutableMapping[str, Array], judge: Judge) -> None:
        self.step = step
        self.old = old
        self.graph = graph
        self.judge = judge
        self.known: dict[str, Array] = {}
        for tensor in graph.tensors:
            if tensor.name in old.values and not graph.root(tensor.name).is_state:
                value = _kept_channels(old.values[tensor.name], tensor, old.graph.tensor(tensor.name))
                if value is not None:
                    self.known[tensor.name] = value
        input_values = {name: self.known[name] for name in graph.inputs if name in self.known}
        input_values |= {name: old.before[name] for name in graph.inputs if graph.tensor(name).is_state}
        if missing := [name for name in graph.inputs if name not in input_values]:
            self.fault((), graph.tensor(missing[0]), -1, "it is an input that the graph did not have before")
        self.deviates = False
        self._given, self._state, self._start = input_values, state, dict(state)
        self.run = Execution(graph, input_values, state)

    def fault(self, nodes: Sequence[BoundNode], tensor: Tensor, count: int, why: str) -> None:
        """Raises Faulty."""
        raise Faulty(Wrong(self.step, tuple(bound.node.describe() for bound in nodes), tensor.describe(), count, why))

    def compare(self) -> Executed:
        """The graph's values. Raises Faulty for the first tensor that is not what it was."""
        for now, before in ((self.graph.inputs, self.old.graph.inputs), (self.graph.outputs, self.old.graph.outputs)):
            if len(now) != len(before):
                tensor = self.graph.tensor((*now, *self.graph.outputs, self.graph.tensors[0].name)[0])
                self.fault((), tensor, -1, f"the interface has {len(now)} tensors instead of {len(before)}")
        self.constants()
        own = {bound.node.index: bound for bound in self.old.graph.bound()}
        for tensor in self.graph.tensors:
            self.aliases_of(tensor, made=False)
        for bound in self.graph.bound():
            if not self._untouched(bound, own):
                for tensor, result in zip(bound.outputs, self.outputs_of(bound), strict=True):
                    self.made(bound, tensor, result)
                continue
            for tensor in bound.outputs:
                self.run.keep(tensor, self.known[tensor.name])
                self.aliases_of(tensor, made=True)
        self.ends()
        return self._anew() if self.deviates else self.run.finished()

    def _anew(self) -> Executed:
        """The graph's own values, which steps that follow are compared with where this one has used a leave."""
        self._state.clear()
        self._state.update(self._start)
        return executed(self.graph, [self._given[name] for name in self.graph.inputs], self._state)

    def outputs_of(self, bound: BoundNode) -> tuple[Array, ...]:
        """What an operator gives. One that takes its operands in form, and fails on their values or sizes, is a fault."""
        try:
            return self.run.execute(bound)
        except (AssertionError, ValueError, IndexError, TypeError, ZeroDivisionError) as error:
            self.fault(self._cone(bound), bound.output, -1, f"its reference fails: {error}")
            raise

    def constants(self) -> None:
        """Compares those that are new, or not the same object as before."""
        for tensor in self.graph.tensors:
            before = self.old.graph.tensor(tensor.name) if self.old.graph.has_tensor(tensor.name) else None
            if tensor.is_constant and tensor is not before and tensor.name in self.known:
                count = differing(tensor.array(), self.known[tensor.name], EXACT)
                if count:
                    self.fault(self._behind(tensor.name), tensor, count, "this constant has another value than before")

    def _untouched(self, bound: BoundNode, own: Mapping[int, BoundNode]) -> bool:
        """Whether an operator is as before, with operands of values that are compared, and no state."""
        before = own.get(bound.node.index)
        if (
            before is None
            or before.node != bound.node
            or any(tensor.name not in self.known for tensor in bound.outputs)
        ):
            return False
        for tensor, old in zip((*bound.inputs, *bound.outputs), (*before.inputs, *before.outputs), strict=True):
            if tensor is None:
                continue
            if tensor.name not in self.known or (tensor is not old and not _same_value(tensor, old)):
                return False
        return True

    def made(self, bound: BoundNode, tensor: Tensor, result: Array) -> None:
        """Takes an operator's output, once it is what the tensor was; later readers get the value as it was."""
        if isinstance(bound.node.op, Offloaded) and bound.node.op.foreign:  # allowed to compute something else
            result = self.known.get(tensor.name, result)
        elif tensor.name in self.known:
            leave = self.judge.leave(bound, tensor)
            count = self.judge.differing(leave, tensor, result, self.known[tensor.name], self.old.values)
            if count:
                self.fault(
                    self._cone(bound), tensor, count, f"{count} of {tensor.elements} elements are not what they were"
                )
            elif leave is not Leave.NONE and differing(result, self.known[tensor.name]):
                self.deviates = True
            result = self.known[tensor.name]
        else:
            self.judge.new(bound, tensor)
        self.run.keep(tensor, result)
        self.aliases_of(tensor, made=True)

    def aliases_of(self, tensor: Tensor, *, made: bool) -> None:
        """Compares what shares the bytes of a tensor, as soon as these are written."""
        if self.graph.root(tensor.name).is_state or (not made and tensor.name not in self.run.values):
            return
        for name in self.graph.aliases(tensor.name):
            alias = self.graph.tensor(name)
            value = self.run.value(tensor.name).reshape(alias.shape)
            if name in self.known:
                before = self.old.graph.tensor(name)
                moved = before.alias_of != alias.alias_of or before.shape != alias.shape
                count = differing(value, self.known[name], EXACT) if moved else 0
                if count:
                    self.fault(
                        self._behind(name), alias, count, f"it shares bytes with {tensor.describe()}, which differ"
                    )
                value = self.known[name]
            self.run.values[name] = value
            self.aliases_of(alias, made=True)

    def ends(self) -> None:
        """Compares outputs by their positions, and what the state variables hold in the end."""
        for name, old in zip(self.graph.outputs, self.old.graph.outputs, strict=True):
            tensor = self.graph.tensor(name)
            if tensor.is_state:
                continue
            actual = self.run.value(name)
            expected = self.old.after[old] if self.old.graph.root(old).is_state else self.old.values[old]
            if (tensor.dtype, tensor.shape) != (self.old.graph.tensor(old).dtype, self.old.graph.tensor(old).shape):
                self.fault(self._behind(name), tensor, -1, f"the output was {self.old.graph.tensor(old).describe()}")
            if tensor.quantization != self.old.graph.tensor(old).quantization:
                self.fault(self._behind(name), tensor, -1, "this output has another scale or zero point than before")
            count = (
                differing(actual, expected.reshape(actual.shape), EXACT) if name != old or name not in self.known else 0
            )
            if count:
                self.fault(self._behind(name), tensor, count, f"the output was {self.old.graph.tensor(old).describe()}")
        for tensor in self.graph.states:
            expected_state = self.old.after.get(tensor.name)
            if expected_state is not None and expected_state.shape == tensor.shape:
                count = differing(self.run.state[tensor.name], expected_state, EXACT)
                if count:
                    self.fault(self._writers(tensor.name), tensor, count, "this state variable holds something else")

    def _behind(self, name: str) -> tuple[BoundNode, ...]:
        producer = self.graph.producer(self.graph.root(name).name)
        if producer is None:
            return tuple(self.graph.bind(node) for node in self.graph.consumers(name))[:4]
        return self._cone(self.graph.bind(producer))

    def _writers(self, name: str) -> tuple[BoundNode, ...]:
        return tuple(self.graph.bind(node) for node in self.graph.nodes if name in node.outputs)

    def _cone(self, bound: BoundNode) -> tuple[BoundNode, ...]:
        """An operator, with those before it that make its operands from tensors that are compared."""
        nodes: list[BoundNode] = []
        wanted = [bound]
        while wanted:
            current = wanted.pop()
            if any(current.node is other.node for other in nodes):
                continue
            nodes.append(current)
            for tensor in current.inputs:
                producer = None if tensor is None else self.graph.producer(self.graph.root(tensor.name).name)
                if tensor is not None and producer is not None and tensor.name not in self.known:
                    wanted.append(self.graph.bind(producer))
        order = {id(node): place for place, node in enumerate(self.graph.nodes)}
        return tuple(sorted(nodes, key=lambda member: order[id(member.node)]))


def _same_value(tensor: Tensor, old: Tensor | None) -> bool:
    if old is None:
        return False
    seen = (tensor.dtype, tensor.shape, tensor.quantization, tensor.data, tensor.initial)
    return seen == (old.dtype, old.shape, old.quantization, old.data, old.initial) and tensor.dtype is not DType.INT4

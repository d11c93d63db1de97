"""State variables inside of IF and WHILE: what a subgraph reads becomes an input of it, what it assigns an output.

The operator gets each variable as an operand, and gives its next value, so that nothing inside keeps state. A subgraph is
rewritten for each operator that runs it, since another one may be handed other variables.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from emitc.errors import EmitcError
from emitc.frontends.limits import MAX_OPERATORS
from emitc.frontends.source import Attribute, SourceModel, SourceNode, SourceSubgraph, SourceTensor
from emitc.frontends.subgraphs import MAX_DEPTH

CALLERS = ("IF", "WHILE")
_HANDLE, _READ, _ASSIGN = "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE"
_INDEX, _CONDITION = "_subgraph_index", "cond_subgraph_index"
_AGAIN = "the file is damaged: export the model again"


def _called(node: SourceNode) -> dict[str, int]:
    """The attributes that say which subgraphs a node runs."""
    return {name: value for name, value in node.attributes.items() if name.endswith(_INDEX) and isinstance(value, int)}


@dataclass(slots=True)
class InnerState:
    """number_of: of the variable that a VAR_HANDLE names, by which all others speak of it. made: subgraphs that are added."""

    source: SourceModel
    number_of: Callable[[SourceNode], int]
    made: list[SourceSubgraph] = field(default_factory=list)
    copied: int = 0

    def touches(self, node: SourceNode, path: tuple[int, ...] = ()) -> Iterator[tuple[SourceNode, int]]:
        """Every operator inside of a node that reads or assigns a variable, and the variable."""
        for index in _called(node).values() if len(path) < MAX_DEPTH else ():
            if not 0 < index <= len(self.source.subgraphs) or index in path:
                continue  # refused when the graph is built
            handles: dict[int, int] = {}
            for inner in self.source.subgraphs[index - 1].nodes:
                if inner.op_type == _HANDLE:
                    handles[self.handle(inner)] = self.number_of(inner)
                elif inner.op_type in (_READ, _ASSIGN):
                    yield inner, self.named(inner, handles)
                elif inner.op_type in CALLERS:
                    yield from self.touches(inner, (*path, index))

    def handle(self, node: SourceNode) -> int:
        """The resource that a VAR_HANDLE writes."""
        node.counts((0, 0))
        return node.outputs[0].index

    def named(self, node: SourceNode, handles: dict[int, int]) -> int:
        """The variable of a node's first input."""
        node.counts(*(((1, 1), (1, 1)) if node.op_type == _READ else ((2, 2), (0, 0))))
        found = handles.get(node.input(0).index)
        if found is None:
            raise node.refusal(
                f"{node.op_type} of a tensor that is no variable",
                "its first input is a resource, which a VAR_HANDLE before it, in the same subgraph, names",
                _AGAIN,
                node.input(0),
            )
        return found

    def rewritten(
        self, node: SourceNode, values: Callable[[int], SourceTensor], path: tuple[int, ...] = ()
    ) -> SourceNode:
        """A node with the variables that it touches as operands behind its own. values: what each holds before it."""
        touched = list(dict.fromkeys(number for _, number in self.touches(node, path)))
        if not touched:
            return node
        given = tuple(values(number) for number in touched)
        attributes: dict[str, Attribute] = dict(node.attributes)
        for name, index in _called(node).items():
            if 0 < index <= len(self.source.subgraphs) and index not in path:
                attributes[name] = self.subgraph(node, index, touched, given, name == _CONDITION, (*path, index))
        return replace(node, inputs=(*node.inputs, *given), attributes=attributes)

    def subgraph(
        self, node: SourceNode, index: int, touched: Sequence[int], given: Sequence[SourceTensor], asks: bool,
        path: tuple[int, ...],
    ) -> int:  # fmt: skip
        """The number of a subgraph's copy that takes variables and, unless it asks for a condition, gives them."""
        sub = self.source.subgraphs[index - 1]
        self.copied += len(sub.nodes)
        if self.copied > MAX_OPERATORS:
            raise node.refusal(
                f"{node.op_type} runs too many operators", f"the limit is {MAX_OPERATORS}", "export the model again"
            )
        tensors, nodes, handles = list(sub.tensors), list[SourceNode](), dict[int, int]()

        def fresh(like: SourceTensor) -> SourceTensor:
            # Without scales: the bytes stand for whatever the operators inside take them for.
            tensors.append(
                replace(
                    like, index=len(tensors), data=None, quantization=None, is_variable=False, initial=None
                )
            )  # fmt: skip
            return tensors[-1]

        held = {number: fresh(tensor) for number, tensor in zip(touched, given, strict=True)}
        inputs = (*sub.inputs, *(tensor.index for tensor in held.values()))
        for inner in sub.nodes:
            if inner.op_type == _HANDLE:
                handles[self.handle(inner)] = self.number_of(inner)
            elif inner.op_type == _READ:
                value = held[self.named(inner, handles)]
                shape: dict[str, Attribute] = {"new_shape": inner.outputs[0].shape}
                nodes.append(replace(inner, op_type="RESHAPE", inputs=(value,), attributes=shape))
            elif inner.op_type == _ASSIGN:
                if asks:
                    raise inner.unsupported(
                        "ASSIGN_VARIABLE in the condition of a WHILE is not supported",
                        "a condition only asks", "assign in the body",
                    )  # fmt: skip
                held[self.named(inner, handles)] = inner.input(1)
            elif inner.op_type in CALLERS:
                made = self.rewritten(inner, held.__getitem__, path)
                numbers = list(dict.fromkeys(number for _, number in self.touches(inner, path)))
                results = {number: fresh(held[number]) for number in numbers}
                held |= results
                nodes.append(replace(made, outputs=(*made.outputs, *results.values())))
            else:
                nodes.append(inner)
        outputs = sub.outputs if asks else (*sub.outputs, *(held[number].index for number in touched))
        self.made.append(SourceSubgraph(tuple(tensors), tuple(nodes), inputs, outputs))
        return len(self.source.subgraphs) + len(self.made)


def with_inner_state(inner: InnerState, node: SourceNode, tensors: Callable[[int], SourceTensor]) -> SourceNode:
    """An operator of the model that runs subgraphs, with the variables as operands; one that cannot be carries its refusal."""
    try:
        return inner.rewritten(node, tensors)
    except EmitcError as error:
        return replace(node, blocker=error)

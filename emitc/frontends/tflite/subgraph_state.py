"""State inside of IF and WHILE: the operator has each variable that its subgraphs touch as an operand, and so have they.

A subgraph is rewritten for each operator that runs it, since another one may be handed other variables: after its own
inputs and outputs it has a variable tensor for each of them, which its operators read and update where it lies.
Variables are of three kinds: those that a VAR_HANDLE names; the variable tensors of operators like SVDF, which a
subgraph has once however many operators run it; whether a CALL_ONCE has run. CALL_ONCE becomes an IF of its own:
nothing where it has run, else what it calls. Source  TFLite Micro, whose subgraphs have one set of tensors each;
CALL_ONCE remembers for itself that it has run.
"""

from collections.abc import Callable, Iterator, Sequence

from emitc.errors import EmitcError
from emitc.frontends.limits import MAX_OPERATORS
from emitc.frontends.subgraphs import MAX_DEPTH
from emitc.records import dataclass, field, replace
from emitc.source import Attribute, SourceModel, SourceNode, SourceSubgraph, SourceTensor

CALLERS = ("IF", "WHILE")
HANDLE, READ, ASSIGN, ONCE = "VAR_HANDLE", "READ_VARIABLE", "ASSIGN_VARIABLE", "CALL_ONCE"
COUNTS = {READ: ((1, 1), (1, 1)), ASSIGN: ((2, 2), (0, 0))}
"""How many inputs and outputs an operator on a variable has."""
_INDEX = "_subgraph_index"
_MAX_LOOKED = 1 << 18
"""Operators that are looked at for what they keep: the limit of operators, on each level of subgraphs, several times."""
_TENSORS_OF_AN_OPERATOR = 8
"""More than it has, so that operators are counted, and tensors that none of them reads."""

Owner = tuple[int, int]
"""Who keeps something in a subgraph: its number, and that of a variable tensor, or -1 less the place of a CALL_ONCE."""


def _called(node: SourceNode) -> dict[str, int]:
    """The attributes that say which subgraphs a node runs."""
    return {name: value for name, value in node.attributes.items() if name.endswith(_INDEX) and isinstance(value, int)}


@dataclass(slots=True)
class InnerState:
    """What the operators inside of others keep.

    number_of: of the variable that a VAR_HANDLE names, by which all others speak of it. own: of the variable that is kept by
    someone, like a tensor. made: subgraphs that are added.
    """

    source: SourceModel
    number_of: Callable[[SourceNode], int]
    own: Callable[[Owner, SourceTensor], int]
    made: list[SourceSubgraph] = field(default_factory=list)
    copied: int = 0
    looked: int = 0

    def touches(self, node: SourceNode, path: tuple[int, ...] = ()) -> Iterator[tuple[SourceNode, int]]:
        """Every operator inside of a node that reads or updates a variable, and the variable."""
        for index in _called(node).values() if len(path) < MAX_DEPTH else ():
            if not 0 < index <= len(self.source.subgraphs) or index in path:
                continue  # refused when the graph is built
            self.looked += len(self.source.subgraphs[index - 1].nodes)
            if self.looked > _MAX_LOOKED:
                raise self.too_many(node)
            handles: dict[int, int] = {}
            for inner in self.source.subgraphs[index - 1].nodes:
                if inner.op_type == HANDLE:
                    handles[self.handle(inner)] = self.number_of(inner)
                elif inner.op_type in (READ, ASSIGN):
                    yield inner, self.named(inner, handles)
                elif inner.op_type in (*CALLERS, ONCE):
                    yield from self.touches(inner, (*path, index))
                    if inner.op_type == ONCE:
                        yield inner, self.ran(index, inner)
                for tensor in inner.inputs:
                    if tensor is not None and tensor.is_variable:
                        inner.require_no_constant(tensor)
                        yield inner, self.own((index, tensor.index), tensor)

    def too_many(self, node: SourceNode) -> EmitcError:
        return node.refusal("runs too many operators", f"the limit is {MAX_OPERATORS}")

    def ran(self, index: int, node: SourceNode) -> int:
        """The variable that says whether a CALL_ONCE of a subgraph has run."""
        name = f"subgraph {index}, CALL_ONCE {node.index}"
        return self.own((index, -1 - node.index), SourceTensor(-1, name, "bool", (1,), None, None, True, b"\0"))

    def handle(self, node: SourceNode) -> int:
        """The resource that a VAR_HANDLE writes."""
        node.counts((0, 0))
        return node.outputs[0].index

    def named(self, node: SourceNode, handles: dict[int, int]) -> int:
        """The variable of a node's first input."""
        node.counts(*COUNTS[node.op_type])
        name = handles.get(node.input(0).index)
        if name is None:
            why = "its first input is a resource, which a VAR_HANDLE before it, in the same subgraph, names"
            raise node.damaged("of a tensor that is no variable", why, node.input(0))
        return name

    def rewritten(
        self, node: SourceNode, values: Callable[[int], SourceTensor], path: tuple[int, ...] = ()
    ) -> SourceNode:
        """A node with the variables that it touches as operands after its own. values: the tensor of each around it."""
        touched = list(dict.fromkeys(number for _, number in self.touches(node, path)))
        for index in _called(node).values():
            if index in path:
                raise node.damaged(f"runs subgraph {index}", "it runs itself")
        if not touched:
            return node
        variables = tuple(values(number) for number in touched)
        attributes: dict[str, Attribute] = dict(node.attributes)
        for name, index in _called(node).items():
            if 0 < index <= len(self.source.subgraphs):
                attributes[name] = self.subgraph(node, index, touched, variables, (*path, index))
        return replace(node, inputs=(*node.inputs, *variables), attributes=attributes)

    def subgraph(
        self, node: SourceNode, index: int, touched: Sequence[int], originals: Sequence[SourceTensor], path: tuple[int, ...],
        done: int = -1,
    ) -> int:  # fmt: skip
        """The number of a subgraph's copy that is handed variables. done: one of them that becomes true at its end."""
        sub = self.source.subgraphs[index - 1]
        self.copied += 1 + len(sub.nodes) + len(sub.tensors) // _TENSORS_OF_AN_OPERATOR
        if self.copied > MAX_OPERATORS:
            raise self.too_many(node)
        if any(sub.tensors[position].is_variable for position in (*sub.inputs, *sub.outputs)):
            what = f"runs subgraph {index}, whose interface has a variable tensor"
            raise node.damaged(what, "inputs and outputs are made in every run, a variable holds its value")
        tensors, nodes, handles = list(sub.tensors), list[SourceNode](), dict[int, int]()

        def added(like: SourceTensor) -> SourceTensor:
            tensors.append(replace(like, index=len(tensors)))
            return tensors[-1]

        own = {self.own((index, t.index), t): t for node in sub.nodes for t in node.inputs if t and t.is_variable}
        variables = {n: own[n] if n in own else added(like) for n, like in zip(touched, originals, strict=True)}
        for inner in sub.nodes:
            if inner.op_type == HANDLE:
                handles[self.handle(inner)] = self.number_of(inner)
            elif inner.op_type in (READ, ASSIGN):
                nodes.append(replace(inner, inputs=(variables[self.named(inner, handles)], *inner.inputs[1:])))
            elif inner.op_type in CALLERS:
                nodes.append(self.rewritten(inner, variables.__getitem__, path))
            elif inner.op_type == ONCE:
                nodes += self.once(inner, self.ran(index, inner), variables, added, path)
            else:
                nodes.append(inner)
        if done >= 0:
            true = added(replace(variables[done], name="true", data=b"\1", is_variable=False, initial=None))
            nodes.append(SourceNode(len(nodes), ASSIGN, "", (variables[done], true), (), {}))
        kept = tuple(tensor.index for tensor in variables.values())
        ends = (*sub.inputs, *kept), (*sub.outputs, *kept)
        return self.add(SourceSubgraph(tuple(tensors), tuple(nodes), *ends, number=index))

    def once(
        self, node: SourceNode, ran: int, variables: dict[int, SourceTensor], added: Callable[[SourceTensor], SourceTensor],
        path: tuple[int, ...],
    ) -> tuple[SourceNode, SourceNode]:  # fmt: skip
        """The operators that replace a CALL_ONCE: it reads whether the subgraph has run, and an IF runs it once.

        ran: number of the variable that says so. variables: those of the graph that has the CALL_ONCE. added: adds a tensor.
        """
        index, _ = initialisation(self.source, node, path, "it runs itself")
        touched = [*dict.fromkeys(number for _, number in self.touches(node, path)), ran]
        values = [variables[number] for number in touched]
        has_run = added(replace(variables[ran], is_variable=False, initial=None))
        read = replace(node, op_type=READ, inputs=(variables[ran],), outputs=(has_run,), attributes={})
        passed = tuple(replace(tensor, index=place) for place, tensor in enumerate(values))
        ends = tuple(range(len(passed)))
        attributes: dict[str, Attribute] = {
            "then_subgraph_index": self.add(SourceSubgraph(passed, (), ends, ends)),
            "else_subgraph_index": self.subgraph(node, index, touched, values, (*path, index), ran),
        }
        return read, replace(node, kind="IF", inputs=(has_run, *values), attributes=attributes)

    def add(self, subgraph: SourceSubgraph) -> int:
        self.made.append(subgraph)
        return len(self.source.subgraphs) + len(self.made)


def initialisation(
    source: SourceModel, node: SourceNode, path: tuple[int, ...], endless: str
) -> tuple[int, SourceSubgraph]:
    """The subgraph that a CALL_ONCE calls, and its number.

    path: subgraphs around it. endless: the reason that is given where the subgraph is one of them.
    """
    node.counts((0, 0), (0, 0))
    index = node.integer("init_subgraph_index")
    if not 0 < index <= len(source.subgraphs) or index in path:
        why = endless if index in (0, *path) else f"the file has {len(source.subgraphs) + 1}"
        raise node.damaged(f"calls subgraph {index}", why)
    subgraph = source.subgraphs[index - 1]
    if subgraph.inputs or subgraph.outputs:
        what = f"calls subgraph {index}, which has inputs or outputs"
        raise node.damaged(what, "an initialisation takes and gives nothing")
    return index, subgraph


def inside_of(node: SourceNode, error: EmitcError) -> EmitcError:
    """The error, which says in which operator of the model it lies where that is another than its own."""
    if error.where.op in ("", node.where().op):
        return error
    return error.at(why=f"{error.why} (inside of {node.where().op})")

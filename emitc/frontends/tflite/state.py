"""Resource variables of TFLite to state variables: what they hold before the first run is known while compiling.

A model with streaming state has VAR_HANDLE, which names a variable and gives a resource. READ_VARIABLE and ASSIGN_VARIABLE take
it. CALL_ONCE runs a further subgraph in the first run: it assigns constants to the variables, or what it computes of constants
(first_values.py). Here handles and CALL_ONCE vanish; READ_VARIABLE and ASSIGN_VARIABLE get a variable tensor instead of the
resource.

A variable is identified by container and name together. Its type and shape are those of what is assigned to it. Without an
initial value it holds the zero point in types of one byte, zeros in others (measured in TFLite Micro).
"""

from collections.abc import Callable
from functools import partial

from emitc.errors import DAMAGED, CannotCompile, EmitcError, Note, NoteCode, Where
from emitc.frontends.state_initialisers import computation
from emitc.frontends.subgraphs import called_subgraphs
from emitc.frontends.tflite.subgraph_state import (
    ASSIGN,
    CALLERS,
    COUNTS,
    HANDLE,
    ONCE,
    READ,
    InnerState,
    Owner,
    initialisation,
    inside_of,
)
from emitc.records import dataclass, field, replace
from emitc.source import SourceModel, SourceNode, SourceSubgraph, SourceTensor

_OPERATORS = (HANDLE, READ, ASSIGN, ONCE)
FOLDED = {HANDLE: "the name of a state variable: no code", ONCE: "the first values of state variables: no code"}
"""Operators that become no node, with their lines in the operator table."""
_CALLERS = ("IF", "WHILE", "CALL", "STABLEHLO", "CUSTOM:", "DELEGATE")
"""Operators, by the start of their names, that run subgraphs."""
_UNASSIGNED = (
    "convert from a Keras model or a SavedModel: a concrete function by itself loses the values of its variables"
)
_ONLY = "an initialisation is computed while compiling, and may only assign to variables what follows from constants"
_CONSTANT = "export the model with constant initial states"
_FIRST = "export the model with CALL_ONCE as its first operator"

_Key = tuple[str, str] | Owner
"""Container and name of a resource, or who keeps a variable inside of IF or WHILE."""


@dataclass(slots=True)
class _Variable:
    """A resource variable while it is put together. index: of its tensor. like: a tensor with its type and shape.

    initial, start: the constant that the last initialisation assigns, or what computes it. touched: the first operator of the
    model that reads or assigns it.
    """

    index: int
    name: str
    like: SourceTensor | None = None
    assigned: bool = False
    initial: bytes | None = None
    start: SourceSubgraph | None = None
    touched: SourceNode | None = None


@dataclass(slots=True)
class _Folding:
    """The model's nodes as far as they are rewritten."""

    source: SourceModel
    variables: dict[_Key, _Variable] = field(default_factory=dict)
    handles: dict[int, _Variable] = field(default_factory=dict)
    nodes: list[SourceNode] = field(default_factory=list)
    folded: list[SourceNode] = field(default_factory=list)
    called: set[int] = field(default_factory=set)
    inner: InnerState = field(init=False)

    def __post_init__(self) -> None:
        self.inner = InnerState(self.source, lambda node: self.variable(node).index, self.own)

    def own(self, place: Owner, like: SourceTensor) -> int:
        """The number of the variable that is kept there, like a tensor."""
        made = _Variable(len(self.source.tensors) + len(self.variables), like.name, like, initial=like.initial)
        return self.variables.setdefault(place, made).index

    def variable(self, node: SourceNode) -> _Variable:
        """The variable that a VAR_HANDLE names."""
        node.counts((0, 0))
        if node.outputs[0].dtype != "resource":
            raise node.damaged(f"writes {node.outputs[0].dtype}", "a handle is a resource", node.outputs[0])
        container, name = str(node.attribute("container", "")), str(node.attribute("shared_name", ""))
        index = len(self.source.tensors) + len(self.variables)
        label = f"{container}/{name}" if container else name
        return self.variables.setdefault((container, name), _Variable(index, label))

    def once(self, node: SourceNode) -> None:
        """Runs an initialisation on the variables. Raises EmitcError where it needs more than constants."""
        index, subgraph = initialisation(self.source, node, (), "it would call the model itself, without end")
        handles: dict[int, _Variable] = {}
        made_by: dict[int, SourceNode] = {}
        computing = partial(computation, subgraph.tensors, made_by)
        for inner in subgraph.nodes:
            try:
                self.initialise(node, inner, handles, computing)
            except EmitcError as error:
                raise error.at(node.where(), f"{error.why} (subgraph {index}, {inner.where().op})") from error
            made_by.update((tensor.index, inner) for tensor in inner.outputs)
        self.called.add(index)

    def initialise(
        self,
        call: SourceNode,
        node: SourceNode,
        handles: dict[int, _Variable],
        computing: Callable[[SourceTensor], SourceSubgraph],
    ) -> None:
        """One operator of an initialisation. computing: what computes a tensor of it."""
        if node.op_type == HANDLE:
            handles[self.output(node, handles).index] = self.variable(node)
            return
        if node.op_type != ASSIGN:
            if node.op_type == READ or node.op_type.startswith((*_CALLERS, ONCE)):
                what = f"CALL_ONCE of a subgraph with {node.op_type} is not supported"
                raise CannotCompile(what, node.where(), _ONLY, _CONSTANT)
            return  # what is assigned says whether it is needed
        node.counts((2, 2), (0, 0))
        variable, value = self.named(node, handles), node.input(1)
        start = computing(value) if value.data is None else None
        if start is not None and (not start.nodes or value.dtype == "uint8"):
            what = "of a computed value as the start of a state variable is not supported"
            raise node.unsupported(what, _ONLY, _CONSTANT)
        if variable.touched is not None and value.data != value.default(tuple(1 if d < 0 else d for d in value.shape)):
            # What comes before sees the default, and the initialisation overwrites what it has assigned.
            why = f"{variable.touched.where().op} comes first, and would see another value in the first run than later"
            raise call.unsupported(f'initialises "{variable.name}" after its first use', why, _FIRST)
        if variable.touched is not None and variable.assigned:
            why = "the first run would lose that value"
            raise call.unsupported(f'initialises "{variable.name}" after it is assigned', why, _FIRST)
        self.fit(node, variable, value)
        variable.initial, variable.start = value.data, start

    def output(self, node: SourceNode, handles: dict[int, _Variable]) -> SourceTensor:
        """The resource that a VAR_HANDLE writes."""
        node.counts((0, 0))
        tensor = node.outputs[0]
        if tensor.index in handles or tensor.data is not None or tensor.is_variable:
            raise node.damaged("writes a tensor that is already there", "each tensor is written once", tensor)
        return tensor

    def named(self, node: SourceNode, handles: dict[int, _Variable]) -> _Variable:
        """The variable of a node's first input."""
        resource = node.input(0)
        if resource.index not in handles:
            why = "its first input is a resource, which a VAR_HANDLE before it names"
            raise node.damaged("of a tensor that is no variable", why, resource)
        return handles[resource.index]

    def fit(self, node: SourceNode, variable: _Variable, value: SourceTensor) -> None:
        """Takes type and shape of a variable from the first value that it is given, and compares the others with it."""
        if variable.like is None or (-1 in variable.like.shape and -1 not in value.shape):
            variable.like = value
        like = variable.like
        same_shape = len(value.shape) == len(like.shape) and all(
            a == b or -1 in (a, b) for a, b in zip(value.shape, like.shape, strict=True)
        )
        if value.dtype != like.dtype or not same_shape:
            what = f'gives the variable "{variable.name}" another type or shape'
            raise node.damaged(what, f"{value.describe()}, but elsewhere {like.describe()}", value)

    def node(self, node: SourceNode) -> None:
        if node.op_type == ONCE:
            self.once(node)
            self.folded.append(node)
        elif node.op_type == HANDLE:
            self.handles[self.output(node, self.handles).index] = self.variable(node)
            self.folded.append(node)
        elif node.op_type in (READ, ASSIGN):
            node.counts(*COUNTS[node.op_type])
            self.touch(node, node, self.named(node, self.handles))
            # The tensor is put in when the variable's type is known.
            self.nodes.append(node)
        elif node.op_type in CALLERS:
            for inner, number in self.inner.touches(node):
                self.touch(node, inner, self.numbered(number))
            self.nodes.append(node)
        else:
            self.nodes.append(node)

    def touch(self, node: SourceNode, inner: SourceNode, variable: _Variable) -> None:
        """A use of a variable by an operator of the model. inner: the operator itself, or the one inside of it."""
        variable.touched = variable.touched or node
        if inner.op_type == ASSIGN:
            variable.assigned = True
            self.fit(inner, variable, inner.input(1))

    def finished(self) -> SourceModel:
        """The model with a tensor for each variable, instead of the resources."""
        tensors = {variable.index: _tensor(variable) for variable in self.variables.values()}
        nodes = tuple(self.with_variables(node, tensors) for node in self.nodes)
        made = tuple(tensor for _, tensor in sorted(tensors.items()))
        return replace(
            self.source, tensors=self.source.tensors + made, nodes=nodes, folded=(*self.source.folded, *self.folded),
            subgraphs=(*self.source.subgraphs, *self.inner.made),
        )  # fmt: skip

    def with_variables(self, node: SourceNode, tensors: dict[int, SourceTensor]) -> SourceNode:
        """A node with the variable's tensor as its first input, or with those of its subgraphs as last inputs."""
        if node.op_type in CALLERS and node.blocker is None:
            try:
                return self.inner.rewritten(node, lambda number: self.known(node, number, tensors))
            except EmitcError as error:
                return replace(node, blocker=inside_of(node, error))
        if node.op_type not in (READ, ASSIGN) or node.blocker is not None:
            return node
        variable = self.handles[node.input(0).index]
        try:
            self.known(node, variable.index, tensors)
            if node.op_type == READ:
                self.fit(node, variable, node.outputs[0])
        except EmitcError as error:
            return replace(node, blocker=error)
        return replace(node, inputs=(tensors[variable.index], *node.inputs[1:]))

    def numbered(self, number: int) -> _Variable:
        return next(variable for variable in self.variables.values() if variable.index == number)

    def known(self, node: SourceNode, number: int, tensors: dict[int, SourceTensor]) -> SourceTensor:
        """The tensor of a variable that a node touches. Raises EmitcError where nothing says what it is like."""
        variable = self.numbered(number)
        if variable.like is None:
            what = f'takes the variable "{variable.name}", which nothing assigns'
            raise node.refusal(what, "its type and size are those of what is assigned", _UNASSIGNED)
        return tensors[number]


def _tensor(variable: _Variable) -> SourceTensor:
    like = variable.like
    if like is None:
        return SourceTensor(variable.index, variable.name, "resource", (), None, None, True)
    return replace(
        like, index=variable.index, name=variable.name, data=None, is_variable=True, start=variable.start,
        initial=variable.initial,  # the builder knows the default
    )  # fmt: skip


def with_state(source: SourceModel, signatures: int = 0) -> SourceModel:
    """The model with state variables instead of resources; a node that cannot be folded carries its refusal.

    signatures: entry points that the file lists. What is left of the other subgraphs stands against compiling the model.
    """
    folding = _Folding(source)
    calls = called_subgraphs(source)
    inside = [node for index in calls for node in source.subgraphs[index - 1].nodes]
    variables = any(tensor is not None and tensor.is_variable for node in inside for tensor in node.inputs)
    if variables or any(node.op_type in _OPERATORS for node in (*source.nodes, *inside)):
        for node in source.nodes:
            try:
                folding.node(node)
            except EmitcError as error:
                folding.nodes.append(replace(node, blocker=inside_of(node, error)))
        source = folding.finished()
    called = folding.called | calls | called_subgraphs(source)
    left = [index for index in range(1, len(source.subgraphs) + 1) if index not in called]
    if not left or any(node.blocker is not None for node in source.nodes):
        return source
    if _only_initialises(source, left[0], signatures):
        why = "it assigns variables at most, and no operator and no signature leads there"
        uncalled = EmitcError(f"nothing calls subgraph {left[0]}", Where(op=f"subgraph {left[0]}"), why, DAMAGED)
        return replace(source, blockers=(*source.blockers, uncalled))
    several = f"subgraphs {', '.join(map(str, left))} are" if len(left) > 1 else f"subgraph {left[0]} is"
    note = f"{several} not compiled: no operator leads there, and the first entry point is what TFLite Micro runs"
    return replace(source, notes=(*source.notes, Note(NoteCode.SUBGRAPH, note)))


def _only_initialises(source: SourceModel, index: int, signatures: int) -> bool:
    """Whether a subgraph that nothing calls would give variables their first values."""
    nodes = (*source.nodes, *(node for subgraph in source.subgraphs for node in subgraph.nodes))
    initialises = {node.op_type for node in source.subgraphs[index - 1].nodes} <= {HANDLE, ASSIGN}
    return initialises and signatures < 2 and not any(node.op_type.startswith(_CALLERS) for node in nodes)

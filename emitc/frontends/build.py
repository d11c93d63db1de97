"""A SourceModel to a Graph: every operator parses its own attributes, checks itself and states its output shapes.

All refusals of a model are collected and raised together, so that one run shows everything that blocks it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from emitc.errors import CannotCompile, EmitcError, Note, NoteCode, Refusals, Where
from emitc.frontends import state_initialisers
from emitc.frontends.limits import MAX_FOLD_WORK, MAX_OPERATORS, ConstantBudget, require_few_alive
from emitc.frontends.node_report import NodeReport, unsupported_operator
from emitc.frontends.onnx.quantization import QUANTIZED_OPERATORS
from emitc.frontends.subgraphs import at_node, inside, place_in, subgraph_model
from emitc.ir import BoundNode, DType, Graph, Node, Numerics, Shape, Tensor
from emitc.kernels.contract import KernelDef
from emitc.source import SourceModel, SourceNode, SourceTensor, check_shape, unique_names

_AGAIN = "export again"
_SIZES = (DType.INT32, DType.INT64)
_MAX_SIZES, _MAX_SIZES_WORK = 64, 1 << 12
"""Elements that are computed while the graph is built, and steps that this may take."""
_DTYPES = {dtype.value: dtype for dtype in DType if not dtype.packed}


class _Builder:
    """The graph under construction: tensors by source index, with open dimensions filled in as they become known."""

    def __init__(self, source: SourceModel, kernels: Mapping[str, KernelDef], outer: _Builder | None = None) -> None:
        self.calls: tuple[int, ...] = ()
        self.nested: list[int] = outer.nested if outer else [max((n.index for n in source.nodes), default=-1) + 1]
        self.source = source
        self.kernels = kernels
        self.names = unique_names(source.tensors)
        self.tensors: dict[int, Tensor] = {}
        self.written: set[int] = set()
        self.nodes: list[Node] = []
        self.reports: list[NodeReport] = []
        self.notes: list[Note] = list(source.notes)
        self.open = {t.index for t in source.tensors if -1 in t.shape}
        self.chosen = source.sizes_chosen or any(index in self.open for index in source.inputs)
        self.known = {t.index for t in source.tensors if t.data is not None}
        self.guessed: set[int] = set()
        self.printed: set[str] = set()
        self.budget: ConstantBudget = outer.budget if outer else ConstantBudget(source.file_bytes)
        self.blockers: list[EmitcError] = []

    def tensor(self, source: SourceTensor, shape: Shape, *, weights: bool = False) -> Tensor:
        """The graph's tensor of a source tensor. Raises CannotCompile for a type that the graph does not have.

        weights: it is read as constant weights by an operator that takes packed ones.
        """
        dtype = DType(source.dtype) if weights else _DTYPES.get(source.dtype)
        if dtype is None:
            why = f"there is code for {', '.join(_DTYPES)}"
            raise source.unsupported(f"element type {source.dtype} is not supported", why, "quantize the model to int8")
        name = self.names[source.index]
        initial = self.initial(source, shape) if source.is_variable else None
        return Tensor(name, dtype, shape, source.quantization, source.data, source.name, source.index, initial=initial)

    def initial(self, source: SourceTensor, shape: Shape) -> bytes:
        """What a variable holds before the first run. Raises Refusals where that cannot be computed."""
        if source.start is None:
            return source.default(shape) if source.initial is None else source.initial
        model = state_initialisers.model_of(self.source, source.start, self.nested[0])
        self.nested[0] += len(model.nodes)
        try:
            return state_initialisers.computed(
                _built(_Builder(model, self.kernels, self), "initialisation"), self.kernels
            )
        except EmitcError as error:
            raise state_initialisers.placed(error, source) from error

    def inputs(self) -> None:
        """Fixes the inputs' shapes: an open batch becomes 1, any other open dimension is refused by name."""
        for index in self.source.inputs:
            source = self.source.tensors[index]
            if source.data is not None:
                raise source.refusal("a graph input is a constant", "inputs are given at run time", _AGAIN)
            if source.is_variable:  # of the model itself it stands against compiling, as the frontend has said
                if self.calls:
                    self.tensors[index] = self.tensor(source, source.shape)
                continue
            if index in self.written:
                raise source.refusal("a tensor is a graph input twice", "each is given once", _AGAIN)
            shape = source.shape
            if -1 in shape[1:]:
                what, why = "a graph input has an open dimension", "sizes must be known at compile time"
                hint = f"give it: --shape {source.name}={','.join(str(d) if d > 0 else '?' for d in shape)}"
                self.blockers.append(source.refusal(what, why, hint))
                self.guessed.add(index)
                shape = (shape[0], *(max(size, 1) for size in shape[1:]))
            if shape[:1] == (-1,):
                shape = (1, *shape[1:])
                self.notes.append(Note(NoteCode.BATCH, f'input "{source.name}": open batch dimension made 1'))
            if 0 in shape:
                raise source.refusal("a graph input is empty", "a dimension is 0", _AGAIN)
            self.written.add(index)
            if source.dtype in _DTYPES:
                self.tensors[index] = self.tensor(source, shape)
            elif not any(index in (t.index for t in node.inputs if t is not None) for node in self.source.nodes):
                # What reads an input of another type says so; of one that nothing reads it has to be said here.
                what, why = f"a graph input has the type {source.dtype}", "there is no code for numbers of this type"
                self.blockers.append(source.unsupported(what, why, "remove the input: no operator reads it"))

    def operand(self, node: SourceNode, source: SourceTensor, *, weights: bool = False) -> Tensor:
        """An input of a node: written before, or a constant. weights: as for `tensor`."""
        if source.dtype == DType.INT4.value and source.data is not None:
            packed = self.tensor(source, source.shape, weights=weights)
            self.tensors[source.index] = packed
            return packed
        if source.is_variable:
            return self.variable(node, source)
        if source.index not in self.tensors:
            if source.data is None and source.index not in self.written:
                what = "reads a tensor that nothing has written"
                raise node.damaged(what, "operators must come in execution order", source)
            self.tensors[source.index] = self.tensor(source, source.shape)
        return self.tensors[source.index]

    def variable(self, node: SourceNode, source: SourceTensor) -> Tensor:
        """The state variable of a variable tensor. An open batch becomes 1."""
        node.require_no_constant(source)
        shape = (1, *source.shape[1:]) if source.shape[:1] == (-1,) else source.shape
        if min(shape, default=1) < 1:
            why = "every dimension of a variable tensor must be known and over 0"
            raise node.refusal("keeps state of an unknown size", why, tensor=source)
        if source.index not in self.tensors:
            self.tensors[source.index] = self.tensor(source, shape)
            self.budget.spend(self.tensors[source.index].size_bytes, node.where(source))
        return self.tensors[source.index]

    def output(self, node: SourceNode, source: SourceTensor) -> Tensor:
        """An output of a node with the shape that the file states (-1 where it is open)."""
        if source.is_variable:
            why = "an operator's output is made anew in every run, a variable holds its value"
            raise node.damaged("writes a variable tensor", why, source)
        if source.index in self.written or source.data is not None:
            raise node.refusal("writes a tensor that is already there", "each tensor is written once", tensor=source)
        return self.tensor(source, source.shape)

    def node(self, source: SourceNode) -> None:
        """Parses, checks and adds one operator."""
        if source.blocker is not None:
            raise source.blocker
        kernel = self.kernels.get(source.kind or source.op_type)
        if kernel is None:
            raise unsupported_operator(source, self.kernels)
        inputs = tuple(
            None if t is None else self.operand(source, t, weights=i == kernel.packed_input)
            for i, t in enumerate(source.inputs)
        )
        outputs = tuple(self.output(source, t) for t in source.outputs)
        resolved = self.resolved(source)
        if kernel.subgraphs:
            present = tuple(t for t in inputs if t is not None)
            resolved = replace(resolved, graphs=self.subgraphs(source, kernel, present))
        parsed = kernel.parse(resolved)
        if type(parsed.op) is not kernel.op:  # a use of the operator that is an operator of its own
            kernel = next((other for other in self.kernels.values() if other.op is type(parsed.op)), kernel)
        if source.format == "tflite" and source.attributes.get("unsigned"):
            parsed = replace(parsed, op=replace(parsed.op, numerics=Numerics.UNSIGNED))
        states = tuple(self.state(source, inputs[i] if i < len(inputs) else None) for i in parsed.states)
        if not outputs + states:
            raise source.refusal("has no output", "every operator writes a tensor")
        operands = tuple(inputs[i] if i < len(inputs) else None for i in parsed.operands)
        bound = source.bound(parsed.op, operands, outputs + states)
        kernel.check(bound)
        notes = [kernel.note(bound)]
        if source.unfused_activation and getattr(parsed.op, "activation", "") == "NONE":
            what = f"fused {source.unfused_activation} is left out, as the engines of TFLite do"
            notes.append(Note(NoteCode.LEFT_OUT, what))
        self.notes += [note.of(source.where().op) for note in notes if note]
        shapes = self.checked_shapes(source, kernel.output_shapes(bound), states)
        for tensor, shape in zip(source.outputs, shapes, strict=True):
            self.add_output(source, tensor, shape)
        written = (*(self.tensors[t.index] for t in source.outputs), *states)
        bound = replace(bound, outputs=written)
        self.bound_work(source, kernel, bound, [source.inputs[i] for i in parsed.operands if i < len(source.inputs)])
        if not self.computed_now(source, kernel, bound):
            self.nodes.append(bound.node)

    def checked_shapes(
        self, source: SourceNode, shapes: tuple[Shape, ...], states: tuple[Tensor, ...]
    ) -> tuple[Shape, ...]:
        """The shapes of an operator's outputs. shapes: those of its states follow. Raises EmitcError where they do not fit."""
        count = len(source.outputs)
        if len(shapes) != count + len(states):
            why = f"{len(shapes) - len(states)} are expected"
            raise source.refusal(f"has {count} outputs", why, "the file is damaged: export again")
        for state, shape in zip(states, shapes[count:], strict=True):
            if state.shape != shape:
                what = "keeps state of the wrong shape"
                why = f"the variable has {list(state.shape)}, the operator writes {list(shape)}"
                raise source.damaged(what, why, self.source.tensors[state.source])
        return shapes[:count]

    def computed_now(self, node: SourceNode, kernel: KernelDef, bound: BoundNode) -> bool:
        """Computes a few integers of TFLite from constants, which shapes and axes of later operators may follow from."""
        few = all(t.dtype in _SIZES and t.elements <= _MAX_SIZES and not t.is_state for t in bound.outputs)
        known = all(t is None or t.is_constant for t in bound.inputs)
        if node.format != "tflite" or kernel.subgraphs or not (few and known) or kernel.work(bound) > _MAX_SIZES_WORK:
            return False
        results = kernel.reference(bound, [None if t is None else t.array() for t in bound.inputs])
        for tensor, result in zip(node.outputs, results, strict=True):
            self.tensors[tensor.index] = replace(self.tensors[tensor.index], data=result.tobytes())
        return True

    def subgraphs(self, node: SourceNode, kernel: KernelDef, operands: tuple[Tensor, ...]) -> tuple[Graph, ...]:
        """The graphs that a node runs. Raises Refusals with every error inside of them."""
        graphs: list[Graph] = []
        errors: list[EmitcError] = []
        for name in kernel.subgraphs:
            index = node.integer(name)
            model = subgraph_model(self.source, node, index, operands, self.nested[0], self.calls)
            self.nested[0] += len(model.nodes)
            if self.nested[0] > MAX_OPERATORS:
                raise node.refusal("runs too many operators", f"the limit is {MAX_OPERATORS}")
            builder = _Builder(model, self.kernels, self)
            builder.calls = (*self.calls, index)
            try:
                graphs.append(_built(builder, f"subgraph {index}"))
            except EmitcError as error:
                place = place_in(self.source, node, name, index)
                errors += [inside(part, place, branch=name.startswith(("then", "else"))) for part in error.parts()]
        if errors:
            raise Refusals(tuple(errors))
        return tuple(graphs)

    def bound_work(
        self, node: SourceNode, kernel: KernelDef, bound: BoundNode, operands: Sequence[SourceTensor | None]
    ) -> None:
        """Refuses constants that take too much memory, and a node of constants that takes too long to compute."""
        constants = [tensor for tensor in bound.inputs if tensor is not None and tensor.is_constant]
        computed = bool(kernel.subgraphs) or any(t.is_state for t in bound.outputs)
        if not computed and all(t is None or t.index in self.known for t in operands):
            self.known |= {tensor.index for tensor in node.outputs}
            constants += bound.outputs
            if kernel.work(bound) > MAX_FOLD_WORK:
                what = "of constants is too large to be computed while compiling"
                why = f"it takes {kernel.work(bound)} steps, the limit is {MAX_FOLD_WORK}"
                raise node.refusal(what, why, "fold the constants before the export")
        if kernel.shares_constants:
            constants = [tensor for tensor in constants if tensor.name not in self.printed]
            self.printed |= {tensor.name for tensor in constants}
        self.budget.spend(sum(tensor.size_bytes for tensor in constants), node.where())

    def state(self, node: SourceNode, tensor: Tensor | None) -> Tensor:
        """An input that the node updates, which must be a variable tensor."""
        if tensor is None or not tensor.is_state:
            why = "what an operator keeps for the next run is a variable tensor, which is not there"
            why = why if tensor is None else f"{tensor.describe()} is computed or constant"
            raise node.refusal("updates a tensor that is no variable", why)
        return tensor

    def resolved(self, source: SourceNode) -> SourceNode:
        """The node with open dimensions of its inputs filled in, and with those that are known by now as constants."""

        def known(tensor: SourceTensor) -> SourceTensor:
            typed = self.tensors[tensor.index]
            return replace(tensor, shape=typed.shape, data=typed.data)

        return replace(source, inputs=tuple(None if t is None else known(t) for t in source.inputs))

    def add_output(self, node: SourceNode, source: SourceTensor, shape: Shape) -> None:
        """Adds an output under its computed shape, which must agree with what the file states."""
        known_open = any(t is not None and t.index in self.open for t in node.inputs)
        stated = source.shape
        custom = node.op_type.startswith("CUSTOM:") and not stated  # converters do not know the shapes of these
        fits = len(stated) == len(shape) and all(s in (-1, d) for s, d in zip(stated, shape, strict=True))
        # A TFLite tensor without a shape is a scalar, or one whose shape the runtime works out.
        fits = fits or (node.format == "tflite" and stated == ())
        # TFLite's engines take the file's sizes as they are; ONNX Runtime replaces those that it finds to be others.
        stale = custom or (known_open and node.format == "onnx" and len(stated) in (0, len(shape)))
        if not fits and not stale:
            why = f"the file says {list(stated)}, the operator gives {list(shape)}"
            raise node.refusal("has an output of the wrong shape", why, tensor=source)
        if not fits or -1 in stated:
            self.open.add(source.index)
        check_shape(shape, source.dtype, node.where(source))
        if 0 in shape:
            raise node.refusal("has an empty output", "a dimension is 0", tensor=source)
        self.tensors[source.index] = self.tensor(source, shape)
        self.written.add(source.index)

    def run(self) -> None:
        """Adds every operator; a refused one is recorded, and its outputs are taken as the file states them."""
        self.inputs()
        for source in self.source.nodes:
            errors: tuple[EmitcError, ...] = ()
            guessed = any(t is not None and t.index in self.guessed for t in source.inputs)
            if guessed:
                self.guessed |= {tensor.index for tensor in source.outputs}
            try:
                self.node(source)
            except EmitcError as error:
                errors = error.errors if isinstance(error, Refusals) else (at_node(error, source, self.chosen),)
                if guessed:  # sizes that do not fit follow from the guess
                    errors = tuple(refusal for refusal in errors if isinstance(refusal, CannotCompile))
                for tensor in source.outputs:
                    self._assume(tensor)
            self.reports.append(NodeReport(source.index, source.op_type, source.name, errors))
        for source in self.source.unread:
            if source.kind not in self.kernels and source.kind not in QUANTIZED_OPERATORS:
                missing = unsupported_operator(source, self.kernels)
                self.reports.append(NodeReport(source.index, source.op_type, source.name, (missing,)))

    def _assume(self, tensor: SourceTensor) -> None:
        if tensor.index in self.tensors or tensor.data is not None:
            return
        self.written.add(tensor.index)
        if tensor.dtype in _DTYPES:
            self.tensors[tensor.index] = self.tensor(tensor, tuple(1 if d < 0 else d for d in tensor.shape))
            self.open.add(tensor.index)

    def outputs(self) -> None:
        """Checks that something writes every output of the graph."""
        for index in self.source.outputs:
            source = self.source.tensors[index]
            if source.is_variable and not (self.calls and index in self.source.inputs):
                why = "an output is made in every run, a variable holds its value"
                raise source.refusal("a graph output is a variable tensor", why, _AGAIN)
            if source.dtype == DType.INT4.value:
                self.tensor(source, source.shape)
            if index in self.known and index in self.tensors:
                self.budget.spend(self.tensors[index].size_bytes, Where(tensor=source.describe()))
            if index not in self.tensors and source.data is None:
                raise source.refusal("nothing writes a graph output", "every output is computed", _AGAIN)
            self.tensors.setdefault(index, self.tensor(source, source.shape))


def survey(
    source: SourceModel, kernels: Mapping[str, KernelDef]
) -> tuple[tuple[EmitcError, ...], tuple[NodeReport, ...]]:
    """What stands against compiling the model as a whole, and each of its operators, in one pass over it."""
    builder = _Builder(source, kernels)
    builder.run()
    if not builder.blockers and not any(report.errors for report in builder.reports):
        try:
            builder.outputs()
        except EmitcError as error:
            builder.blockers.append(error)
    done = (NodeReport(node.index, node.op_type, node.name, ()) for node in source.folded)
    reports = tuple(sorted((*builder.reports, *done), key=lambda report: report.index))
    return (*source.blockers, *builder.blockers), reports


def build_graph(source: SourceModel, kernels: Mapping[str, KernelDef], name: str) -> Graph:
    """The graph of a model. Raises Refusals with every error of every operator."""
    require_few_alive(source)
    return _built(_Builder(source, kernels), name)


def _built(builder: _Builder, name: str) -> Graph:
    source = builder.source
    builder.run()
    blockers = (*source.blockers, *builder.blockers)
    errors = blockers + tuple(error for report in builder.reports for error in report.errors)
    if errors:
        raise Refusals(errors)
    if not source.outputs:
        raise EmitcError("the model has no output", Where(), "there is nothing to compute", "export the model again")
    builder.outputs()
    tensors = tuple(tensor for _, tensor in sorted(builder.tensors.items()))
    inputs, outputs = (tuple(builder.names[i] for i in ends) for ends in (source.inputs, source.outputs))
    return Graph(name, tensors, tuple(builder.nodes), inputs, outputs, tuple(builder.notes))

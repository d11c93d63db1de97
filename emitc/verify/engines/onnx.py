"""The golden engine of ONNX models: ONNX Runtime's CPU kernels, every operator as the file states it.

Graph optimizations are off: fused kernels round differently (a DequantizeLinear-Softmax-QuantizeLinear becomes an integer
softmax with another scale). One thread, so that the order of every sum is fixed. The packages are optional and imported on
first use.

On x86 processors without VNNI, the integer kernels for uint8 activations and int8 weights may saturate sums of two
products: golden values belong to a processor that has it.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from emitc.ir import Graph, Numerics
from emitc.verify.engines.contract import Array, InputType, TensorKey, check_inputs, imported, refusals
from emitc.verify.engines.tensor_names import stated_name

_HINT = "export the model for an older opset, or compare with --reference numpy"
_RUN_HINT = "give inputs that the model takes with --vectors and --samples 0, or compare with --reference numpy"
# The engine's names of element types that emitc's inputs may have.
_DTYPES = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(float16)": "float16",
    "tensor(bool)": "bool",
    **{f"tensor({name})": name for name in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")},
}


class OnnxRuntimeEngine:
    """ONNX Runtime without graph optimizations, one thread; see Engine.

    preserve: keep the value of every node's every output for `tensors()`, by its name, as numpy has it in the file's
    type and layout. The model must be one file: constants in other files are not found. Raises EngineRefused for a
    model that it cannot load (also one of a newer opset or IR version than it knows). Raises EmitcError when the package is
    missing.
    """

    name = "onnxruntime"

    def __init__(self, model_bytes: bytes, *, preserve: bool = False) -> None:
        runtime = imported("onnxruntime", "onnxruntime")
        runtime.disable_telemetry_events()
        options = runtime.SessionOptions()
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.execution_mode = runtime.ExecutionMode.ORT_SEQUENTIAL
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        self._preserve = preserve
        self._values: dict[TensorKey, Array] = {}
        with refusals(self.name, "load the model", _HINT):
            data = _with_every_value_as_output(model_bytes) if preserve else model_bytes
            self._session: Any = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
            self._outputs = [output.name for output in self._session.get_outputs()]
            # Exposed values follow the model's own outputs.
            self._output_count = len(_parsed(model_bytes).graph.output) if preserve else len(self._outputs)

    def reset(self) -> None:
        """See Engine. A session holds no state but the last values."""
        self._values = {}

    def input_types(self) -> list[InputType]:
        with refusals(self.name, "describe its inputs", _HINT):
            described = [(np.dtype(_DTYPES[i.type]), i.shape) for i in self._session.get_inputs()]
            return [(dtype, tuple(s if isinstance(s, int) else -1 for s in shape)) for dtype, shape in described]

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        # An input without a stated rank looks like a scalar here: the engine itself judges what it is given.
        types = self.input_types()
        expected = [(t, shape or array.shape) for (t, shape), array in zip(types, inputs, strict=False)]
        check_inputs(inputs, expected + types[len(expected) :])
        with refusals(self.name, "run the model", _RUN_HINT):
            names = [i.name for i in self._session.get_inputs()]
            feeds = {name: np.array(array, order="C") for name, array in zip(names, inputs, strict=True)}
            outputs = self._session.run(self._outputs, feeds)
        if self._preserve:
            values = zip((*names, *self._outputs), (*feeds.values(), *outputs), strict=True)
            self._values = {name: np.array(value) for name, value in values if isinstance(value, np.ndarray)}
        return [np.array(value) for value in outputs[: self._output_count]]

    def tensors(self) -> Mapping[TensorKey, Array]:
        return {name: value.copy() for name, value in self._values.items()}


def _parsed(model_bytes: bytes) -> Any:
    return imported("onnx", "onnx").ModelProto.FromString(model_bytes)


def with_functions_in_place(model: Any) -> Any:
    """The model with its functions in the places of their calls, as the engine has them, under the frontend's names."""
    return imported("onnx.inliner", "onnx").inline_local_functions(model) if model.functions else model


def _with_every_value_as_output(model_bytes: bytes) -> bytes:
    """The model with the outputs of all its nodes after its own outputs; the engine infers their types."""
    model = with_functions_in_place(_parsed(model_bytes))
    graph = model.graph
    present = {output.name for output in graph.output}
    for node in graph.node:
        for name in node.output:
            if name and name not in present:
                present.add(name)
                graph.output.add().name = name
    data: bytes = model.SerializeToString()
    return data


def inner_model(model_bytes: bytes, graph: Graph, inputs: Sequence[Array]) -> bytes | None:
    """The model of a graph inside. inputs: of one run, for types and shapes.

    None where the file's graph cannot be told from others by the names in it, or reads more than is known.
    """
    onnx = imported("onnx", "onnx")
    model = with_functions_in_place(onnx.ModelProto.FromString(model_bytes))
    matches = [scopes for scopes in _scopes((model.graph,)) if len(scopes) > 1 and _is_that(graph, scopes[-1])]
    if len(matches) != 1:
        return None
    (*round_it, own) = matches[0]
    made = onnx.ModelProto()
    made.CopyFrom(model)
    made.graph.CopyFrom(own)
    for field in (made.graph.input, made.graph.output):
        del field[:]
    feeds = {_label(graph, name): value for name, value in zip(graph.inputs, inputs, strict=True)}
    for name, value in feeds.items():
        kind = onnx.helper.np_dtype_to_tensor_dtype(value.dtype)
        made.graph.input.append(onnx.helper.make_tensor_value_info(name, kind, value.shape))
    for value in own.input:
        if value.name not in feeds:
            # The number of a round that nothing needs, or a condition, which holds in every round.
            kind = value.type.tensor_type.elem_type
            initial = onnx.helper.make_tensor(value.name, kind, (), [kind == onnx.TensorProto.BOOL])
            made.graph.initializer.append(initial)
    for value in own.output:
        made.graph.output.add().name = value.name
    known = {*feeds, *(value.name for value in own.input)}
    outer = _OuterConstants(round_it)
    if not all(outer.has(name) for name in sorted(_free(own)) if name not in known):
        return None
    made.graph.initializer.extend(outer.constants)
    nodes = [*outer.nodes, *own.node]
    del made.graph.node[:]
    made.graph.node.extend(nodes)
    data: bytes = made.SerializeToString()
    return data


def _label(graph: Graph, name: str) -> str:
    tensor = graph.tensor(name)
    return tensor.label or tensor.name


def _inside(node: Any) -> list[Any]:
    return [attribute.g for attribute in node.attribute if attribute.HasField("g")]


def _scopes(scopes: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """Every graph, after the graphs around it."""
    yield scopes
    for node in scopes[-1].node:
        for graph in _inside(node):
            yield from _scopes((*scopes, graph))


def _is_that(graph: Graph, candidate: Any) -> bool:
    """Whether a graph of the file has the names of emitc's."""
    written = {name for node in candidate.node for name in node.output}
    quantized = [node for node in graph.nodes if node.op.numerics is Numerics.QDQ]
    ends = {value.name for value in candidate.output}
    return all(stated_name(_label(graph, name), written) for node in quantized for name in node.outputs) and all(
        stated_name(_label(graph, name), ends) for name in graph.outputs
    )


def _free(graph: Any) -> set[str]:
    """The values that a graph, and those inside of it, read of graphs around it."""
    used = {name for node in graph.node for name in node.input if name} | {value.name for value in graph.output}
    for node in graph.node:
        for inner in _inside(node):
            used |= _free(inner)
    own = {name for node in graph.node for name in node.output} | {value.name for value in graph.input}
    return used - own - {tensor.name for tensor in graph.initializer}


class _OuterConstants:
    """Constants that a graph reads of those around it, and the operators that compute them, in execution order."""

    def __init__(self, graphs: Sequence[Any]) -> None:
        self.constants: list[Any] = []
        self.nodes: list[Any] = []
        self._known: dict[str, bool] = {}
        self._constants: Mapping[str, Any] = {tensor.name: tensor for graph in graphs for tensor in graph.initializer}
        self._writers = {name: node for graph in graphs for node in graph.node for name in node.output if name}

    def has(self, name: str) -> bool:
        """Whether a value is a constant, or computed from constants; all that it takes is then part of this."""
        if name not in self._known:
            self._known[name] = False  # until it is known; a value does not need itself
            self._known[name] = self._add(name)
        return self._known[name]

    def _add(self, name: str) -> bool:
        if name in self._constants:
            self.constants.append(self._constants[name])
            return True
        node = self._writers.get(name)
        if node is None or _inside(node) or not all(self.has(operand) for operand in node.input if operand):
            return False
        if node not in self.nodes:
            self.nodes.append(node)
        return True

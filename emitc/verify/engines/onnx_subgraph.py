"""A graph inside of an ONNX operator as a model of its own. So an engine can run it and show every value in it.

Its inputs are those of emitc's graph, which come from numpy references: any inputs that the graph may have would do.
What it reads of the graphs around it and is constant there, or computed from constants, comes along.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from emitc.ir import Graph, Numerics
from emitc.verify.engines.contract import Array, imported
from emitc.verify.engines.onnx import with_functions_in_place
from emitc.verify.engines.tensor_names import stated_name


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

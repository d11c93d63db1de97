"""A .onnx file as a whole: parsed, put in order, its open dimensions filled in, and checked by the package `onnx`."""

import heapq
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import onnx
import onnx.checker
import onnx.defs
import onnx.numpy_helper
import onnx.shape_inference

from emitc.errors import CannotCompile, EmitcError, Where
from emitc.frontends.file_kinds import recognised
from emitc.frontends.onnx.numbers import AGAIN, faulty
from emitc.frontends.subgraphs import OTHER_SIZES
from emitc.ir import Shape

_STANDARD = ("", "ai.onnx")
_UNCHECKED = "com.microsoft"
"""A domain of whose operators the checker knows nothing."""


class WrongUse(EmitcError):
    """An operator whose operands do not fit it, by the types and sizes that they have in this graph."""


@contextmanager
def refused_as(what: str, where: Where, kind: type[EmitcError] = EmitcError, hint: str = AGAIN) -> Iterator[None]:
    """Turns what the onnx package raises on a bad file into an error; it raises whatever its C++ and numpy raise."""
    try:
        yield
    except EmitcError:
        raise
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise kind(what, where, (" ".join(lines[:4]) or type(error).__name__)[:400], hint) from error


def misfit(op_type: str, where: Where, sizes_chosen: bool) -> AbstractContextManager[None]:
    """Turns what the onnx package has against an operator's operands into a WrongUse.

    sizes_chosen: emitc or the user has chosen sizes of open dimensions, which may be the cause.
    """
    if sizes_chosen:
        return refused_as(f"{op_type} does not fit these sizes", where, WrongUse, OTHER_SIZES)
    return refused_as(f"{op_type} is used wrongly", where, WrongUse)


def messages(message: Any) -> Iterator[Any]:
    """A message and every one inside of it, in the order of the format's fields."""
    yield message
    for field, value in message.ListFields():
        if field.type == field.TYPE_MESSAGE:
            for inner in [value] if hasattr(value, "ListFields") else value:
                yield from messages(inner)


def _require_text(model: onnx.ModelProto) -> None:
    """Refuses text that is not UTF-8, which protobuf hands over as bytes."""
    for field, value in (entry for message in messages(model) for entry in message.ListFields()):
        texts = [value] if isinstance(value, str | bytes) else value
        if field.type == field.TYPE_STRING and any(isinstance(text, bytes) for text in texts):
            raise faulty("a text of the model is not UTF-8", Where(), f"in a field {field.name}")


def complete(model: onnx.ModelProto, shapes: Mapping[str, Shape]) -> None:
    """Gives inputs and outputs without a shape one, and outputs without a type one, since the checker insists.

    An input's shape comes from the user. Those of an output follow from the operators, so that empty ones will do. Outputs that
    a user adds by their names alone have no type; ONNX Runtime runs such a model.
    """
    constants = {initializer.name for initializer in model.graph.initializer}
    for value in model.graph.input:
        tensor = value.type.tensor_type
        if not value.type.HasField("tensor_type") or tensor.HasField("shape"):
            continue
        if value.name not in shapes and value.name not in constants:
            why, hint = "sizes must be known at compile time", f"give it: --shape {value.name}=..."
            raise EmitcError("a graph input has no shape", Where(tensor=value.name), why, hint)
        tensor.shape.SetInParent()
        for size in shapes.get(value.name, ()):
            tensor.shape.dim.add().dim_value = size
    for value in model.graph.output:
        if value.type.WhichOneof("value") is None:
            value.type.tensor_type.elem_type = onnx.TensorProto.UNDEFINED
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()


@contextmanager
def _undefined_left_out(model: onnx.ModelProto) -> Iterator[None]:
    """Hides operators from the checker that the format does not define at the model's opset: the reader names them."""
    opset = next((opset.version for opset in model.opset_import if opset.domain in _STANDARD), 17)
    hidden = []
    for node in nodes_within(model.graph.node):
        if node.domain in _STANDARD and not onnx.defs.has(node.op_type, opset, ""):
            hidden.append((node, node.domain))
            node.domain = _UNCHECKED
    if hidden:
        model.opset_import.append(onnx.helper.make_opsetid(_UNCHECKED, 1))
    try:
        yield
    finally:
        for node, domain in hidden:
            node.domain = domain
        if hidden:
            del model.opset_import[-1]


def check(model: onnx.ModelProto) -> Iterator[EmitcError]:
    """Refuses what the onnx package's checker refuses; returns what of the format has no code."""
    with _undefined_left_out(model), refused_as("this is not a valid ONNX model", Where()):
        onnx.checker.check_model(model)
    if len(model.graph.sparse_initializer):
        what = "the model has sparse constants"
        yield CannotCompile(what, Where(), "there is no code for them", "export it without them")


def parsed(data: bytes) -> onnx.ModelProto:
    """The message of a file, which has a graph, and whose texts are UTF-8."""
    model = onnx.ModelProto()
    try:
        with refused_as("this is not a .onnx file", Where()):
            model.ParseFromString(data)
            if not model.graph.node and not model.graph.output:
                raise EmitcError("this is not a .onnx file", Where(), "it has no graph", "pass an ONNX model")
    except EmitcError as error:
        why, hint = recognised(data)
        raise EmitcError(error.what, error.where, why or error.why, hint or error.hint) from error
    _require_text(model)
    return model


def dims_of(kind: onnx.TypeProto | None, unknown: int = -1) -> tuple[int, ...]:
    """The sizes of a tensor's type, none where it has none; `unknown` for what is open."""
    dims = () if kind is None else kind.tensor_type.shape.dim
    return tuple(d.dim_value if d.HasField("dim_value") else unknown for d in dims)


def dtype_name(elem_type: int) -> str:
    """numpy's name of an element type, or ONNX's where numpy has none."""
    names = {1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64", 8: "string", 9: "bool",
             10: "float16", 11: "float64", 12: "uint32", 13: "uint64"}  # fmt: skip
    if elem_type in names:
        return names[elem_type]
    known = onnx.TensorProto.DataType.items()
    return next((str(name).lower() for name, number in known if number == elem_type), f"type {elem_type}")


def stated_inputs(data: bytes) -> dict[str, Shape]:
    """Shapes of the inputs that are no constants by name, as the file states them, -1 for an open dimension.

    Raises EmitcError when the file is not ONNX. The rest of the file is not looked at.
    """
    graph = parsed(data).graph
    constants = {initializer.name for initializer in graph.initializer}
    return {
        value.name: tuple(d.dim_value if d.dim_value > 0 else -1 for d in value.type.tensor_type.shape.dim)
        for value in graph.input
        if value.name not in constants
    }


def require_inferable(node: onnx.NodeProto, where: Where) -> None:
    """Refuses what ONNX's own shape inference takes for an index into a list without looking, and ends the process by."""
    for attribute in node.attribute:
        if node.op_type == "GatherND" and attribute.name == "batch_dims" and attribute.i < 0:
            raise faulty("GatherND is used wrongly", where, f"batch_dims {attribute.i} is below 0")


# ---- the order of operators ----


def graph_of(node: onnx.NodeProto, name: str) -> onnx.GraphProto | None:
    """The graph that is an attribute of a node, None where it has no such graph."""
    return next((a.g for a in node.attribute if a.name == name and a.type == onnx.AttributeProto.GRAPH), None)


def graphs_of(node: onnx.NodeProto) -> list[onnx.GraphProto]:
    return [graph for a in node.attribute for graph in (*([a.g] if a.HasField("g") else ()), *a.graphs)]


def nodes_within(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    """The nodes, and those of the graphs that they run."""
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        yield node
        waiting += [inner for graph in graphs_of(node) for inner in graph.node]


def _read(node: onnx.NodeProto) -> set[str]:
    """Names that a node reads, those of the graphs that it runs included: some of these may be their own."""
    names = {name for name in node.input if name}
    graphs = graphs_of(node)
    while graphs:
        graph = graphs.pop()
        names |= {value.name for value in graph.output}
        for inner in graph.node:
            names.update(name for name in inner.input if name)
            graphs += graphs_of(inner)
    return names


def _order(nodes: list[onnx.NodeProto]) -> list[int]:
    """The nodes' positions in that order, otherwise unchanged; fewer where nodes read each other in a cycle."""
    made: dict[str, int] = {}
    for position, node in enumerate(nodes):
        for name in node.output:
            made.setdefault(name, position)
    missing = []
    readers: list[list[int]] = [[] for _ in nodes]
    for position, node in enumerate(nodes):
        needed = {made[name] for name in _read(node) if name in made}
        missing.append(len(needed))
        for other in needed:
            readers[other].append(position)
    ready = [position for position, count in enumerate(missing) if count == 0]
    order = []
    while ready:
        position = heapq.heappop(ready)
        order.append(position)
        for reader in readers[position]:
            missing[reader] -= 1
            if missing[reader] == 0:
                heapq.heappush(ready, reader)
    return order


def sort_nodes(model: onnx.ModelProto) -> None:
    """Puts the nodes of the main graph into such an order, where there is one; ONNX Runtime leaves those inside alone, too."""
    nodes = list(model.graph.node)
    order = _order(nodes)
    if len(order) == len(nodes) and order != sorted(order):
        copies = [onnx.NodeProto.FromString(nodes[position].SerializeToString()) for position in order]
        del model.graph.node[:]
        model.graph.node.extend(copies)

"""A described ONNX graph as the bytes of its file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import onnx
from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper

from bench.random_graphs.case import Attribute, Description, Node, Value
from bench.random_graphs.onnx.net import LOCAL, MICROSOFT, element_type

IR_VERSIONS = {
    9: 4, 10: 5, 11: 6, 12: 7, 13: 7, 14: 7, 15: 8, 16: 8, 17: 8, 18: 8, 19: 9, 20: 9, 21: 10, 22: 10, 23: 11, 24: 11
}  # fmt: skip
"""The first version of the format that each version of the operators came with."""


def _tensor(value: Value, name: str) -> TensorProto:
    return TensorProto(data_type=element_type(value.dtype), dims=value.shape, raw_data=value.data, name=name)


def _info(value: Value) -> ValueInfoProto:
    info = ValueInfoProto(name=value.name)
    tensor = info.type.tensor_type
    tensor.elem_type = element_type(value.dtype)
    tensor.shape.SetInParent()
    for size in value.shape:
        tensor.shape.dim.add().dim_value = size
    return info


def _attribute(name: str, value: Attribute, known: dict[str, Value]) -> AttributeProto:
    if isinstance(value, Description):
        return AttributeProto(name=name, type=AttributeProto.GRAPH, g=_graph(value, name, known))
    made: AttributeProto = helper.make_attribute(name, value)
    return made


def _node(node: Node, number: int, known: dict[str, Value]) -> NodeProto:
    domain, _, op_type = node.op.rpartition(".")
    made = NodeProto(op_type=op_type, domain=domain, name=f"n{number}", output=node.outputs)
    if domain == LOCAL:
        made.input.extend(node.inputs)
        return made
    if node.op == "Constant":
        value = known[node.inputs[0]]
        made.attribute.append(AttributeProto(name="value", type=AttributeProto.TENSOR, t=_tensor(value, "")))
        return made
    made.input.extend(node.inputs)
    made.attribute.extend(_attribute(name, value, known) for name, value in sorted(node.attributes.items()))
    return made


def _named(nodes: Iterable[Node]) -> set[str]:
    """What nodes read as operands; the value of a Constant is an attribute of it."""
    return {name for node in nodes if node.op != "Constant" for name in node.inputs}


def _graph(described: Description, name: str, outer: dict[str, Value]) -> GraphProto:
    own = {value.name: value for value in described.values}
    known = outer | own
    graph = GraphProto(name=name)
    graph.node.extend(_node(node, number, known) for number, node in enumerate(described.nodes))
    read = _named(described.nodes).union(
        described.outputs, *(_named(i.nodes) for n in described.nodes for i in n.graphs)
    )
    graph.initializer.extend(_tensor(v, v.name) for v in described.values if v.constant and v.name in read)
    graph.input.extend(_info(known[end]) for end in described.inputs)
    graph.output.extend(_info(known[end]) for end in described.outputs)
    return graph


def _functions(described: Description) -> Iterator[FunctionProto]:
    """The functions that are called, once each; constants are nodes in them."""
    names: set[str] = set()
    for _, node in described.every_node():
        domain, _, name = node.op.rpartition(".")
        if domain != LOCAL or name in names:
            continue
        names.add(name)
        (body,) = node.graphs
        graph = _graph(body, name, {})
        function = FunctionProto(domain=domain, name=name)
        function.input.extend(value.name for value in graph.input)
        function.output.extend(value.name for value in graph.output)
        function.opset_import.extend(_opsets(described.opset))
        for tensor in graph.initializer:
            function.node.append(helper.make_node("Constant", (), (tensor.name,), value=tensor))
        function.node.extend(graph.node)
        yield function


def _opsets(version: int) -> list[onnx.OperatorSetIdProto]:
    own = onnx.OperatorSetIdProto(domain="", version=version)
    return [own, *(onnx.OperatorSetIdProto(domain=domain, version=1) for domain in (MICROSOFT, LOCAL))]


def write(described: Description) -> bytes:
    """The file. Raises ValueError for a graph without outputs, or one that names a value which it has not."""
    if not described.outputs:
        raise ValueError("a graph without outputs")
    try:
        graph = _graph(described, "random", {})
    except KeyError as error:
        raise ValueError(f"no value is called {error}") from error
    functions = list(_functions(described))
    opsets = _opsets(described.opset)[: 3 if functions else 2]
    model = ModelProto(
        ir_version=IR_VERSIONS[described.opset], producer_name="random graphs", graph=graph, opset_import=opsets,
        functions=functions,
    )  # fmt: skip
    data: bytes = model.SerializeToString(deterministic=True)
    return data

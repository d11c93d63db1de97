"""--io: the model's interface kept as it is, or without the float ends that converters add."""

from __future__ import annotations

from dataclasses import replace

from emitc.ir import DType, Graph

INTERFACES = ("keep", "int8")


def with_interface(graph: Graph, io: str) -> Graph:
    """The graph under the interface asked for: `keep` changes nothing; `int8` drops a QUANTIZE that alone reads a float
    input and a DEQUANTIZE that writes a float output, so that the caller passes quantized values.
    """
    if io == "keep":
        return graph
    for node in graph.nodes:
        source, target = (node.inputs or ("",))[0], node.outputs[0]
        if not source:
            continue
        float_in = source in graph.inputs and graph.tensor(source).dtype is DType.FLOAT32
        if (
            node.op_type == "QUANTIZE"
            and float_in
            and len(graph.consumers(source)) == 1
            and source not in graph.outputs
        ):
            inputs = tuple(target if name == source else name for name in graph.inputs)
            nodes = tuple(n for n in graph.nodes if n is not node)
            tensors = tuple(t for t in graph.tensors if t.name != source)
            return with_interface(replace(graph, inputs=inputs, nodes=nodes, tensors=tensors), io)
        float_out = target in graph.outputs and graph.tensor(target).dtype is DType.FLOAT32
        if node.op_type == "DEQUANTIZE" and float_out and not graph.consumers(target):
            outputs = tuple(source if name == target else name for name in graph.outputs)
            nodes = tuple(n for n in graph.nodes if n is not node)
            return with_interface(replace(graph, outputs=outputs, nodes=nodes), io)
    return graph

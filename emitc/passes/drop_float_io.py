"""--io: the model's interface kept as it is, or without the float ends that converters add."""

from dataclasses import replace

from emitc.ir import DType, Graph
from emitc.kernels.quantization.quantize import Dequantize, Quantize
from emitc.passes.rewriter import views_of

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
        root = graph.root(source).name
        if isinstance(node.op, Quantize) and root in graph.inputs and graph.tensor(root).dtype is DType.FLOAT32:
            # The input may be read through a view of it, which then goes with it.
            views = views_of(graph, root)
            readers = [reader for name in (root, *views) for reader in graph.consumers(name)]
            if readers == [node] and not {root, *views} & set(graph.outputs):
                inputs = tuple(target if name == root else name for name in graph.inputs)
                nodes = tuple(n for n in graph.nodes if n is not node)
                tensors = tuple(t for t in graph.tensors if t.name not in (root, *views))
                return with_interface(replace(graph, inputs=inputs, nodes=nodes, tensors=tensors), io)
        float_out = target in graph.outputs and graph.tensor(target).dtype is DType.FLOAT32
        if isinstance(node.op, Dequantize) and float_out and not graph.consumers(target):
            outputs = tuple(source if name == target else name for name in graph.outputs)
            nodes = tuple(n for n in graph.nodes if n is not node)
            return with_interface(replace(graph, outputs=outputs, nodes=nodes), io)
    return graph

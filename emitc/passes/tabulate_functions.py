"""A costly function of dequantized bytes reads the bytes: its kernel is a table of the 256 results in float32.

Only operators of ONNX have such tables. The pass is legal for exp, tanh and similar functions between a DequantizeLinear of int8
with one scale and readers of float32: the table has what the reference computes. A table has 1 KB, so that a tensor has to have
128 elements for one. The DequantizeLinear is dropped where nothing else reads it.
"""

from dataclasses import replace

from emitc.ir import BoundNode, DType, Graph, Node
from emitc.kernels.activation.activations import Logistic, Tanh
from emitc.kernels.activation.unary_functions import Function
from emitc.kernels.quantization.quantize import Dequantize
from emitc.numerics.float_functions import COSTLY
from emitc.passes.rewriter import with_nodes

LEAST = 128
"""Elements from which on a table of 256 is made."""


def _costly(bound: BoundNode) -> bool:
    """Whether the operator is one of ONNX that calls the math library for each of many elements."""
    op = bound.node.op
    if bound.output.dtype is not DType.FLOAT32 or bound.output.elements < LEAST or op.numerics.of_tflite:
        return False
    return isinstance(op, Logistic | Tanh) or (isinstance(op, Function) and op.name in COSTLY)


def _bytes_behind(graph: Graph, bound: BoundNode) -> str:
    """The quantized tensor that the operator's input is dequantized from, "" for none that a table can be made of."""
    producer = graph.producer(bound.input(0).name)
    if producer is None or not isinstance(producer.op, Dequantize):
        return ""
    x = graph.tensor(producer.inputs[0])
    single = x.quantization is not None and x.quantization.per_tensor
    return x.name if single and x.dtype is DType.INT8 and not x.is_constant else ""


def tabulate_functions(graph: Graph) -> Graph:
    """The graph with every such function on bytes."""
    changed: dict[int, Node | None] = {}
    for bound in graph.bound():
        name = _bytes_behind(graph, bound) if _costly(bound) else ""
        if name:
            changed[bound.node.index] = replace(bound.node, inputs=(name,))
    return with_nodes(graph, changed) if changed else graph

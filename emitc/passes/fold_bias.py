"""An Add of one constant for each channel after a sum of products of float32 without a bias becomes its bias (ONNX).

Exporters write a linear layer as a MatMul and an Add. Such a bias is added to the whole sum, where a Conv's own is what its sums
start with; the operator says which (`bias_last`), so that every rounding stays. Nothing else may read the sum.
"""

from dataclasses import replace

from emitc.ir import BoundNode, DType, Graph, Node, Numerics, Tensor
from emitc.kernels.convolution.conv_2d import Conv2D
from emitc.kernels.convolution.depthwise_conv_2d import DepthwiseConv2D
from emitc.kernels.elementwise.arithmetic import Add
from emitc.kernels.mac.accumulation import BIAS
from emitc.kernels.matrix.fully_connected import FullyConnected
from emitc.passes.rewriter import free_name, only_reader, with_nodes

_Sums = Conv2D | DepthwiseConv2D | FullyConnected


def _bias(bound: BoundNode, position: int) -> Tensor | None:
    """The operand of an Add as the bias of what gives the other one, [O]; None where it is none."""
    tensor, sums = bound.input(position), bound.input(1 - position)
    channels = bound.output.shape[-1:]
    if not channels or not tensor.is_constant or tensor.shape[-1:] != channels or tensor.elements != channels[0]:
        return None
    return replace(tensor, shape=channels) if sums.shape == bound.output.shape else None


def _producer(graph: Graph, name: str) -> Node | None:
    """The operator that gives the sums and takes a bias."""
    node = graph.producer(name)
    if node is None or not isinstance(node.op, _Sums) or node.op.numerics is not Numerics.QOPERATOR:
        return None
    free = node.op.activation == "NONE" and not node.op.bias_last and not any(node.inputs[BIAS:])
    floats = all(graph.tensor(n).dtype is DType.FLOAT32 for n in (*node.inputs[:BIAS], name))
    return node if free and floats and only_reader(graph, name) else None


def fold_bias(graph: Graph) -> Graph:
    changed: dict[int, Node | None] = {}
    added: list[Tensor] = []
    for bound in graph.bound():
        add = bound.node
        if not isinstance(add.op, Add) or add.op.numerics is not Numerics.QOPERATOR or add.op.activation != "NONE":
            continue
        for position in (0, 1):
            sums, bias = _producer(graph, add.inputs[1 - position]), _bias(bound, position)
            if sums is None or bias is None:
                continue
            name = free_name(f"{add.outputs[0]}:bias", {tensor.name for tensor in graph.tensors})
            assert isinstance(sums.op, _Sums)
            op, inputs = replace(sums.op, bias_last=True), (*sums.inputs[:BIAS], name)
            changed |= {sums.index: replace(sums, op=op, inputs=inputs, outputs=add.outputs), add.index: None}
            added.append(replace(bias, name=name))
            break
    return with_nodes(graph, changed, added) if changed else graph

"""Operators on constants that a frontend computes itself, so that no node is left of them."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from emitc.errors import EmitcError
from emitc.frontends.subgraphs import rewritten
from emitc.frontends.tflite.additions import Additions, with_tensors
from emitc.ir import DType, unpacked
from emitc.source import SourceModel, SourceNode, SourceTensor

Evaluate = Callable[[SourceNode], tuple[bytes, ...] | None]
"""The values of a node's outputs, None for a node that stays. Raises EmitcError, which the node then carries as its blocker."""


def with_constants(model: SourceModel, evaluate: Evaluate) -> SourceModel:
    """The model with constants instead of what `evaluate` gives for its nodes, in all subgraphs."""
    return rewritten(model, lambda graph: _folded(graph, evaluate))


def _folded(model: SourceModel, evaluate: Evaluate) -> SourceModel:
    """A graph with constants instead of what is computed. `folded` gets the operators that it no longer has."""
    made: dict[int, SourceTensor] = {}
    nodes: list[SourceNode] = []
    done: list[SourceNode] = []
    for node in model.nodes:
        try:
            values = evaluate(node) if node.blocker is None else None
        except EmitcError as error:
            node, values = replace(node, blocker=error), None
        if values is None:
            nodes.append(node)
            continue
        made |= {t.index: replace(t, data=data) for t, data in zip(node.outputs, values, strict=True)}
        done.append(node)
    tensors = tuple(made.get(tensor.index, tensor) for tensor in model.tensors)
    kept = tuple(with_tensors(node, made) for node in nodes)
    return replace(model, tensors=tensors, nodes=kept, folded=(*model.folded, *done))


def widened(node: SourceNode) -> tuple[bytes, ...] | None:
    """float16 constants as the float32 ones that a DEQUANTIZE makes of them, which is exact; None for another operator."""
    if node.op_type != "DEQUANTIZE" or len(node.inputs) != 1 or len(node.outputs) != 1:
        return None
    (half,), (whole,) = node.inputs, node.outputs
    if half is None or half.data is None or (half.dtype, whole.dtype) != ("float16", "float32"):
        return None
    if half.shape != whole.shape:
        raise node.refusal("changes the shape", f"{list(half.shape)} to {list(whole.shape)}", tensor=whole)
    return (np.frombuffer(half.data, "<f2").astype("<f4").tobytes(),)


_WEIGHTS, _BIAS = 1, 2


def _packed_with_computed_bias(node: SourceNode) -> SourceTensor | None:
    """The constant weights of four bits of a layer whose bias is computed."""
    if node.op_type not in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED") or len(node.inputs) <= _BIAS:
        return None
    weights, bias = node.inputs[_WEIGHTS], node.inputs[_BIAS]
    if weights is None or weights.dtype != DType.INT4.value or weights.data is None or node.input(0).dtype != "int8":
        return None
    if node.op_type == "FULLY_CONNECTED" and weights.quantization and not weights.quantization.per_tensor:
        return None  # refused, whatever the bias: TFLite Micro takes one scale of packed weights there
    return weights if bias is not None and bias.data is None and not bias.is_variable else None


def _with_whole_bytes(model: SourceModel) -> SourceModel:
    work = Additions(model)
    whole: dict[int, SourceTensor] = {}
    for node in model.nodes:
        weights = _packed_with_computed_bias(node)
        if weights is not None and weights.data is not None:
            if weights.index not in whole:
                data = unpacked(weights.data, weights.elements).tobytes()
                whole[weights.index] = work.tensor(weights, dtype=DType.INT8.value, data=data)
            node = replace(node, inputs=(*node.inputs[:_WEIGHTS], whole[weights.index], *node.inputs[_BIAS:]))
        work.nodes.append(node)
    return work.finished()


def with_whole_bytes(model: SourceModel) -> SourceModel:
    """The model with a byte for each weight of four bits in layers whose bias is computed: the kernels of such layers read bytes.

    TFLite Micro, too, unpacks such weights before it sums. Other readers of the same constant keep it packed.
    """
    return rewritten(model, _with_whole_bytes)

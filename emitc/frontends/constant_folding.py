"""Operators on constants that a frontend computes itself, so that no node is left of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from emitc.errors import EmitcError
from emitc.ir import DType, unpacked
from emitc.source import SourceModel, SourceNode, SourceSubgraph, SourceTensor

Evaluate = Callable[[SourceNode], tuple[bytes, ...] | None]
"""The values of a node's outputs, None for a node that stays. Raises EmitcError, which the node then carries as its blocker."""


def _graph(graph: SourceSubgraph, evaluate: Evaluate) -> tuple[SourceSubgraph, tuple[SourceNode, ...]]:
    """The graph with constants in the place of what is computed, and the operators that it no longer has."""
    made: dict[int, SourceTensor] = {}
    nodes: list[SourceNode] = []
    done: list[SourceNode] = []
    for node in graph.nodes:
        try:
            values = evaluate(node) if node.blocker is None else None
        except EmitcError as error:
            nodes.append(replace(node, blocker=error))
            continue
        if values is None:
            nodes.append(node)
            continue
        made |= {t.index: replace(t, data=data) for t, data in zip(node.outputs, values, strict=True)}
        done.append(node)

    def settled(node: SourceNode) -> SourceNode:
        inputs = tuple(made.get(tensor.index, tensor) if tensor else None for tensor in node.inputs)
        return replace(node, inputs=inputs)

    tensors = tuple(made.get(tensor.index, tensor) for tensor in graph.tensors)
    return replace(graph, tensors=tensors, nodes=tuple(settled(node) for node in nodes)), tuple(done)


def with_constants(model: SourceModel, evaluate: Evaluate) -> SourceModel:
    """The model with constants in the place of what `evaluate` gives for its nodes, in all subgraphs."""
    main, done = _graph(SourceSubgraph(model.tensors, model.nodes, model.inputs, model.outputs), evaluate)
    others = tuple(_graph(graph, evaluate)[0] for graph in model.subgraphs)
    return replace(model, tensors=main.tensors, nodes=main.nodes, subgraphs=others, folded=(*model.folded, *done))


def _widened(node: SourceNode) -> tuple[bytes, ...] | None:
    if node.op_type != "DEQUANTIZE" or len(node.inputs) != 1 or len(node.outputs) != 1:
        return None
    (half,), (whole,) = node.inputs, node.outputs
    if half is None or half.data is None or (half.dtype, whole.dtype) != ("float16", "float32"):
        return None
    if half.shape != whole.shape:
        raise node.refusal("DEQUANTIZE changes the shape", f"{list(half.shape)} to {list(whole.shape)}", tensor=whole)
    return (np.frombuffer(half.data, "<f2").astype("<f4").tobytes(),)


def with_widened_constants(model: SourceModel) -> SourceModel:
    """The model with float32 constants in the place of float16 ones that a DEQUANTIZE widens, which is exact."""
    return with_constants(model, _widened)


_WEIGHTS, _BIAS = 1, 2


def _packed_beside_a_computed_bias(node: SourceNode) -> SourceTensor | None:
    """The constant weights of four bits of a layer whose bias is computed."""
    if node.op_type not in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED") or len(node.inputs) <= _BIAS:
        return None
    weights, bias = node.inputs[_WEIGHTS], node.inputs[_BIAS]
    if weights is None or weights.dtype != DType.INT4.value or weights.data is None or node.input(0).dtype != "int8":
        return None
    if node.op_type == "FULLY_CONNECTED" and weights.quantization and not weights.quantization.per_tensor:
        return None  # refused, whatever the bias: TFLite Micro takes one scale of packed weights there
    return weights if bias is not None and bias.data is None and not bias.is_variable else None


def _with_whole_bytes(graph: SourceSubgraph) -> SourceSubgraph:
    whole: dict[int, SourceTensor] = {}
    nodes: list[SourceNode] = []
    for node in graph.nodes:
        weights = _packed_beside_a_computed_bias(node)
        if weights is not None:
            assert weights.data is not None
            if weights.index not in whole:
                values = unpacked(weights.data, weights.elements)
                index = len(graph.tensors) + len(whole)
                whole[weights.index] = replace(weights, index=index, dtype=DType.INT8.value, data=values.tobytes())
            node = replace(node, inputs=(*node.inputs[:_WEIGHTS], whole[weights.index], *node.inputs[_BIAS:]))
        nodes.append(node)
    return replace(graph, tensors=(*graph.tensors, *whole.values()), nodes=tuple(nodes))


def with_whole_bytes(model: SourceModel) -> SourceModel:
    """The model with a byte for each weight of four bits in layers whose bias is computed: the kernels of such layers read bytes.

    TFLite Micro, too, takes such weights apart before it sums. Other readers of the same constant keep it packed.
    """
    main = _with_whole_bytes(SourceSubgraph(model.tensors, model.nodes, model.inputs, model.outputs))
    others = tuple(_with_whole_bytes(graph) for graph in model.subgraphs)
    return replace(model, tensors=main.tensors, nodes=main.nodes, subgraphs=others)

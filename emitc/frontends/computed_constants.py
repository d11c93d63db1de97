"""Operators on constants that a frontend computes itself, so that no node is left of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from emitc.errors import EmitcError
from emitc.frontends.source import SourceModel, SourceNode, SourceSubgraph, SourceTensor

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
        raise node.refusal(
            "DEQUANTIZE changes the shape",
            f"{list(half.shape)} to {list(whole.shape)}",
            "export the model again",
            whole,
        )
    return (np.frombuffer(half.data, "<f2").astype("<f4").tobytes(),)


def with_widened_constants(model: SourceModel) -> SourceModel:
    """The model with float32 constants in the place of float16 ones that a DEQUANTIZE widens, which is exact."""
    return with_constants(model, _widened)

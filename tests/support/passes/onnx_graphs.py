"""Graphs of ONNX models for the tests of the passes, as the frontend makes them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from emitc.frontends.build import build_graph
from emitc.frontends.read import read_source
from emitc.ir import Array, Graph
from emitc.kernels import registry_of
from emitc.passes.verify_graph import verify_graph
from emitc.verify.reference import run_reference
from tests.support.models.onnx_net import OnnxNet

Build = Callable[[OnnxNet], None]


def onnx_graph(build: Build, opset: int = 17) -> Graph:
    """The graph before any pass."""
    net = OnnxNet(opset)
    build(net)
    source = read_source(Path("net.onnx"), net.serialized(), {})
    return build_graph(source, registry_of("onnx"), "net")


def classes(graph: Graph) -> Counter[str]:
    """How often each class of operator is there."""
    return Counter(type(node.op).__name__ for node in graph.nodes)


def whole_inputs(graph: Graph, seed: int) -> list[Array]:
    """Small whole numbers, of which sums and products are exact in float32 in any order."""
    rng = np.random.default_rng(seed)
    tensors = [graph.tensor(name) for name in graph.inputs]
    return [rng.integers(-4, 5, t.shape).astype(t.dtype.value) for t in tensors]


def outputs_of(graph: Graph, inputs: Sequence[Array]) -> list[Array]:
    """What the references compute, by output."""
    values = run_reference(graph, inputs)
    return [values[name] for name in graph.outputs]


def check_same(before: Graph, after: Graph, inputs: Sequence[Array]) -> None:
    """A legal graph with the same interface and the same results, on every bit."""
    verify_graph(after)
    assert [before.tensor(n).shape for n in before.inputs] == [after.tensor(n).shape for n in after.inputs]
    for old, new in zip(outputs_of(before, inputs), outputs_of(after, inputs), strict=True):
        assert (old.shape, old.dtype) == (new.shape, new.dtype)
        assert old.tobytes() == new.tobytes()

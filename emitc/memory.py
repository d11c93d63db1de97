"""What the lowered nodes ask of memory: buffers with live ranges, distances between them, and what lies inside others.

Every operand that is not a constant is a buffer of the arena, alive from the step that writes it to its last reader; tensors
that share bytes share a buffer; scratch lives for its step. An overlap that a layer declares applies only where its input is
read for the last time at that step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from emitc.ir import BoundNode, Graph, Tensor
from emitc.kernels.contract import Layer
from emitc.planner import Buffer, Distance, LiveRange, ScratchRequest, buffers_of
from emitc.planner import Step as PlannerStep


@dataclass(frozen=True, slots=True)
class LoweredNode:
    """A node with its layer, and the backend that made it."""

    bound: BoundNode
    layer: Layer
    backend: str

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The operands that are passed to the layer function."""
        return tuple(self.bound.input(position) for position in self.layer.operands)


def scratch_name(node: LoweredNode, role: str) -> str:
    return f"{node.bound.node.index}:scratch:{role}"


def arena_buffers(graph: Graph, nodes: tuple[LoweredNode, ...], alignment: int) -> tuple[Buffer, ...]:
    """What has to be alive when; names are those of the tensors that own the bytes."""
    steps = [
        PlannerStep(
            tuple(graph.root(t.name).name for t in node.inputs if not graph.root(t.name).is_constant),
            tuple(graph.root(t.name).name for t in node.bound.outputs),
            tuple(ScratchRequest(scratch_name(node, s.role), s.size_bytes) for s in node.layer.scratch),
        )
        for node in nodes
    ]
    outputs = [graph.root(name).name for name in graph.outputs if not graph.root(name).is_constant]
    sizes = {t.name: t.size_bytes for t in graph.tensors}
    return buffers_of(steps, sizes, {}, graph.inputs, tuple(dict.fromkeys(outputs)), alignment)


def pins_of(graph: Graph, nodes: tuple[LoweredNode, ...]) -> dict[str, tuple[str, int]]:
    """Scratch buffer and offset of each buffer that a layer wants inside its scratch."""
    found: dict[str, tuple[str, int]] = {}
    for node in nodes:
        for pin in node.layer.pins:
            tensors = node.bound.outputs if pin.output else node.inputs
            name = graph.root(tensors[pin.position].name).name
            assert name not in found, f"{name} is pinned twice"
            found[name] = scratch_name(node, pin.scratch), pin.offset_bytes
    return found


@dataclass(frozen=True, slots=True)
class PinnedBuffer:
    """A buffer inside another one, `offset_bytes` behind its first byte."""

    buffer: Buffer
    inside: str
    offset_bytes: int


def pinned(
    buffers: tuple[Buffer, ...], pins: Mapping[str, tuple[str, int]]
) -> tuple[tuple[Buffer, ...], tuple[PinnedBuffer, ...]]:
    """The buffers to plan, each alive as long as what lies in it, and those that lie in others."""
    inner = tuple(PinnedBuffer(b, *pins[b.name]) for b in buffers if b.name in pins)
    outer = []
    for buffer in buffers:
        held = [pin.buffer for pin in inner if pin.inside == buffer.name]
        if buffer.name in pins:
            continue
        assert all(p.offset_bytes + p.buffer.size_bytes <= buffer.size_bytes for p in inner if p.inside == buffer.name)
        first = min([buffer.live.first, *(b.live.first for b in held)])
        end = max([buffer.live.end, *(b.live.end for b in held)])
        outer.append(replace(buffer, live=LiveRange(first, end)))
    return tuple(outer), inner


def distances(graph: Graph, nodes: tuple[LoweredNode, ...], buffers: tuple[Buffer, ...]) -> tuple[Distance, ...]:
    """The overlaps that are safe: the input's buffer dies at the step, and no other operand of the step shares it.

    A graph output lives on behind the last step, at which its range ends all the same.
    """
    live = {buffer.name: buffer.live for buffer in buffers}
    kept = {graph.root(name).name for name in graph.outputs}
    found: list[Distance] = []
    for step, node in enumerate(nodes):
        roots = [graph.root(t.name).name for t in node.inputs]
        for overlap in node.layer.overlaps:
            operand = graph.root(node.bound.input(overlap.input).name)
            output = graph.root(node.bound.outputs[overlap.output].name)
            if operand.is_constant or operand.name in kept or roots.count(operand.name) > 1:
                continue
            if operand.name not in live or output.name not in live:  # a place inside some scratch is settled
                continue
            if live[operand.name].end == step + 1 and live[output.name].first == step:
                found.append(Distance(operand.name, output.name, above=overlap.distance_bytes, below=None))
    return tuple(found)

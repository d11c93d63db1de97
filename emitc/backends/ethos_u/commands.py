"""Command streams that a TFLite file brings along: vela has compiled them, nothing is cut."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from emitc.backends.contract import Offload, Region
from emitc.backends.ethos_u.driver import Driven, Placed
from emitc.backends.ethos_u.extent import touched_bytes
from emitc.ir import BoundNode, Graph, Node, Tensor
from emitc.kernels.contract import Layer
from emitc.kernels.npu_command import FAST_REGION, PAYLOAD, SCRATCH_REGION, NpuCommand, layer, real_inputs
from emitc.kernels.variables import ReadVariable

_REGIONS = 3
"""Base addresses of a call: constants, scratch, fast scratch."""


class Commands(Driven):
    """The NPU operators of one file. A single one may have its tensors inside its scratch memory, where vela has placed them;
    several, which would each want a tensor between them inside their own, get copies.
    """

    def __init__(self, driver: str) -> None:
        super().__init__(driver)
        self._pinned: dict[int, tuple[bool, bool]] = {}
        self._needed: dict[int, int] = {}

    def offload(self, graph: Graph, keep: frozenset[int]) -> Offload:
        """Each NPU operator as a region of its own. What it computes is not known, so neither are its products and cycles."""
        commands = [bound for bound in graph.bound() if isinstance(bound.node.op, NpuCommand)]
        if len(commands) == 1:
            self._pinned[commands[0].node.index] = _pinned(graph, commands[0])
        regions = []
        for bound in commands:
            index, op = bound.node.index, bound.node.op
            assert isinstance(op, NpuCommand)
            inputs = [graph.root(tensor.name) for tensor in real_inputs(bound)]
            self.edges[index] = _placed(inputs, op.input_offsets), _placed(bound.outputs, op.output_offsets)
            self._needed[index] = op.scratch_bytes if len(graph.nodes) == 1 else _needed(bound, op)
            edge_bytes = sum(tensor.size_bytes for tensor in (*inputs, *bound.outputs))
            regions.append(Region(index, (index,), 0, edge_bytes, 0, 1, 2 * _REGIONS))
        note = "vela has compiled the file: what its NPU operators compute is not known"
        return Offload(replace(graph), tuple(regions), (), (note,))

    def lower(self, bound: BoundNode) -> Layer:
        """The driver's call."""
        inputs, outputs = self._pinned.get(bound.node.index, (False, False))
        return layer(bound, self._needed[bound.node.index], pin_inputs=inputs, pin_outputs=outputs)


def _needed(bound: BoundNode, op: NpuCommand) -> int:
    """Bytes of the scratch memory without what vela has planned for the core behind them."""
    payload = bound.input(PAYLOAD).data
    assert payload is not None
    regions = frozenset([SCRATCH_REGION] if op.fast_bytes else [SCRATCH_REGION, FAST_REGION])
    ends = [touched_bytes(payload, regions, op.scratch_bytes)]
    for tensors, offsets in ((real_inputs(bound), op.input_offsets), (bound.outputs, op.output_offsets)):
        ends += [offset + tensor.size_bytes for tensor, offset in zip(tensors, offsets, strict=True)]
    return min(max(ends), op.scratch_bytes)


def _placed(tensors: Sequence[Tensor], offsets: Sequence[int]) -> Placed:
    pairs = zip(tensors, offsets, strict=True)
    return tuple((tensor.name, SCRATCH_REGION, offset) for tensor, offset in pairs if not tensor.is_constant)


def _pinned(graph: Graph, bound: BoundNode) -> tuple[bool, bool]:
    """Whether inputs, and outputs, shall lie in the scratch memory.

    Each must own its bytes alone, outside of the state block. What others read behind the operator vela has kept. A pinned tensor
    keeps the whole scratch memory alive while the core writes or reads it; a copy needs the tensor beside the scratch memory. The
    smaller one is taken.
    """
    inputs = [graph.root(tensor.name) for tensor in real_inputs(bound)]
    outputs = list(bound.outputs)
    roots = [*inputs, *outputs]
    if any(root.is_constant for root in roots) or len({root.name for root in roots}) < len(roots):
        return False, False
    place = [node.index for node in graph.nodes].index(bound.node.index)
    found = []
    for tensors, others in ((inputs, graph.nodes[:place]), (outputs, graph.nodes[place + 1 :])):
        own = {tensor.name for tensor in tensors}
        beside = max((_bytes(graph, node, own) for node in others), default=0)
        found.append(beside <= sum(tensor.size_bytes for tensor in tensors))
    return found[0] and not any(_is_state(graph, tensor) for tensor in inputs), found[1]


def _is_state(graph: Graph, tensor: Tensor) -> bool:
    """Whether a tensor is what a variable holds: it is copied from there."""
    writer = graph.producer(tensor.name)
    return tensor.is_state or (writer is not None and isinstance(writer.op, ReadVariable))


def _bytes(graph: Graph, node: Node, left_out: set[str]) -> int:
    """Bytes of the tensors that a node of the core reads and writes."""
    names = {graph.root(name).name for name in (*node.inputs, *node.outputs) if name}
    return sum(graph.tensor(n).size_bytes for n in names - left_out if not graph.tensor(n).is_constant)

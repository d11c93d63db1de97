"""Command streams that a TFLite file brings along: vela has compiled them, nothing is cut.

Several NPU operators share a scratch memory, in which vela has placed the tensors. Its plan is right for the operators of the
file. emitc's passes move and merge those on the core, after which a tensor may be needed for longer than vela planned. So one run
is simulated with every tensor in its place. What would be overwritten before it is read is taken out and gets bytes of its own,
until nothing is overwritten.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from emitc.backends.contract import Offload, Region
from emitc.backends.ethos_u.driver import Driven, Edge, Placed
from emitc.errors import Note, NoteCode
from emitc.ir import BoundNode, Graph, Node, Tensor
from emitc.kernels.npu.npu_command import SCRATCH_REGION, NpuCommand, layer, memory_of, pairs, real_inputs, real_outputs
from emitc.kernels.state.state_variables import ReadVariable
from emitc.layer import Layer, Place
from emitc.records import dataclass, replace

_NOBODY, _STREAM = 0, -1
_MOST_RUNS = 64
_MOST_BYTES = 1 << 32
"""Uses of tensors, each as large as the largest one."""


@dataclass(frozen=True, slots=True)
class Command:
    """What an NPU operator does to the shared memory.

    inputs: tensor (root), first byte and the byte after the last; outputs: tensor and first byte. carried, writes: as
    `NpuCommand` has them, as pairs.
    """

    inputs: tuple[tuple[str, int, int], ...]
    outputs: tuple[tuple[str, int], ...]
    carried: tuple[tuple[int, int], ...]
    writes: tuple[tuple[int, int], ...]


def preserved_tensors(graph: Graph, commands: Mapping[int, Command], wanted: Mapping[str, int]) -> dict[str, int]:
    """The tensors of `wanted` (by root, their first byte) that keep their value there. commands: by the node's index.

    None of them where it would take too long to tell, which no file of vela comes near.
    """
    inside = dict(wanted)
    uses = sum(len(node.inputs) + len(node.outputs) for node in graph.nodes)
    largest = max((graph.tensor(name).size_bytes for name in inside), default=0)
    for _ in range(_MOST_RUNS if uses * largest <= _MOST_BYTES else 0):
        bad = _Run(graph, commands, inside).overwritten()
        if not bad:
            return inside
        for name in bad:
            del inside[name]
    return {}


class _Run:
    """One inference, byte by byte: owners has 0 for nobody, -1 for what a stream has written, else the number of a tensor."""

    def __init__(self, graph: Graph, commands: Mapping[int, Command], inside: Mapping[str, int]) -> None:
        self.graph = graph
        self.commands = commands
        self.inside = inside
        self.numbers = {name: number for number, name in enumerate(inside, 1)}
        self.names = {number: name for name, number in self.numbers.items()}
        ends = [offset + graph.tensor(name).size_bytes for name, offset in inside.items()]
        ends += [end for command in commands.values() for _, end in (*command.writes, *command.carried)]
        ends += [end for command in commands.values() for _, _, end in command.inputs]
        self.owners: NDArray[np.int64] = np.zeros(max(ends, default=0), np.int64)
        self.streamed = np.zeros(len(self.owners), bool)

    def overwritten(self) -> set[str]:
        """Tensors that something has overwritten by the first time that somebody needs them, or that have done so themselves."""
        for name in self.graph.inputs:
            self._write(self.graph.root(name).name)
        for node in self.graph.nodes:
            command = self.commands.get(node.index)
            bad = self._on_core(node) if command is None else self._on_npu(command)
            if bad:
                return bad
        return {name for output in self.graph.outputs if not self._intact(name := self.graph.root(output).name)}

    def _range(self, name: str) -> slice:
        return slice(self.inside[name], self.inside[name] + self.graph.tensor(name).size_bytes)

    def _write(self, name: str) -> None:
        if name in self.inside:
            self.owners[self._range(name)] = self.numbers[name]
            self.streamed[self._range(name)] = False

    def _intact(self, name: str) -> bool:
        return name not in self.inside or bool((self.owners[self._range(name)] == self.numbers[name]).all())

    def _on_core(self, node: Node) -> set[str]:
        read = {self.graph.root(name).name for name in node.inputs if name}
        bad = {name for name in read if not self._intact(name)}
        for name in dict.fromkeys(self.graph.root(output).name for output in node.outputs):
            if name in self.inside:
                covered = set(np.unique(self.owners[self._range(name)]).tolist())
                if covered & {self.numbers[other] for other in read if other in self.inside and other != name}:
                    bad.add(name)  # no kernel is asked whether it may write over its input
            self._write(name)
        return bad

    def _on_npu(self, command: Command) -> set[str]:
        bad = {name for name, _, _ in command.inputs if not self._intact(name)}
        for name, first, end in command.inputs:
            if self.inside.get(name) != first:  # copied there
                self.owners[first:end] = _STREAM
                self.streamed[first:end] = True
        for first, end in command.carried:
            here = self.owners[first:end][~self.streamed[first:end]]
            bad |= {self.names[number] for number in np.unique(here).tolist() if number in self.names}
        bad |= {name for name, _, _ in command.inputs if not self._intact(name)}  # a copy has come over it
        for first, end in command.writes:
            self.owners[first:end] = _STREAM
            self.streamed[first:end] = True
        for name, first in command.outputs:
            if self.inside.get(name) == first:
                self.owners[self._range(name)] = self.numbers[name]
        return bad


_REGIONS = 3
"""Base addresses of a call: constants, scratch, fast scratch."""


@dataclass(frozen=True, slots=True)
class _Call:
    """How an operator is lowered: bytes of its scratch memory, the tensors that lie in it, and those that lie in a shared one."""

    scratch_bytes: int
    inside: frozenset[str]
    places: tuple[Place, ...] = ()


class Commands(Driven):
    """The NPU operators of one file. Their tensors lie in the scratch memory, where vela has placed them.

    Tensors of a single operator do so if that costs no memory. Several operators share the memory: their tensors lie in it as
    long as no operator overwrites them.
    """

    def __init__(self, driver: str) -> None:
        super().__init__(driver)
        self._calls: dict[int, _Call] = {}

    def offload(self, graph: Graph, keep: frozenset[int]) -> Offload:
        """Each NPU operator as a region of its own. What it computes is not known, so neither are its products and cycles."""
        graph = replace(graph)
        commands = [bound for bound in graph.bound() if isinstance(bound.node.op, NpuCommand)]
        if commands[0].op(NpuCommand).shared:
            self._sharing(graph, commands)
        else:
            self._calls = {bound.node.index: _alone(graph, bound) for bound in commands}
        kept = _kept(commands)
        before, regions = "", []
        for bound in commands:
            index, op = bound.node.index, bound.op(NpuCommand)
            edges, outputs = _sides(bound)
            inputs = _rooted(graph, edges)
            self.edges[index] = (
                _placed(inputs) + _carried(before, pairs(op.carried)),
                _placed(outputs) + _carried(memory_of(bound), kept[index]),
            )
            before = memory_of(bound)
            edge_bytes = sum(tensor.size_bytes for tensor, _ in (*inputs, *outputs))
            regions.append(Region(index, (index,), 0, edge_bytes, 0, 1, 2 * _REGIONS))
        what = "vela has compiled the file: what its NPU operators compute is not known"
        return Offload(graph, tuple(regions), notes=(Note(NoteCode.TOOL, what),))

    def _sharing(self, graph: Graph, commands: Sequence[BoundNode]) -> None:
        """Finds the tensors that can lie where vela has placed them."""
        memories = [memory_of(bound) for bound in commands]
        inside = preserved_tensors(
            graph,
            {bound.node.index: _command(graph, bound) for bound in commands},
            _wanted(graph, commands, frozenset(memories)),
        )
        places = (*(Place(name, memories[0], 0) for name in memories[1:]),)
        places += tuple(Place(name, memories[0], offset) for name, offset in inside.items())
        for number, bound in enumerate(commands):
            edges = [edge for side in _sides(bound) for edge in side]
            lying = frozenset(t.name for t, offset in edges if inside.get(graph.root(t.name).name) == offset)
            size = bound.op(NpuCommand).scratch_bytes
            self._calls[bound.node.index] = _Call(size, lying, () if number else places)

    def lower(self, bound: BoundNode) -> Layer:
        call = self._calls[bound.node.index]
        return layer(bound, call.scratch_bytes, call.inside, call.places)


Lying = list[tuple[Tensor, int]]
"""Tensors, and where they lie in the scratch memory."""


def _sides(bound: BoundNode) -> tuple[Lying, Lying]:
    op = bound.op(NpuCommand)
    inputs = list(zip(real_inputs(bound), op.input_offsets, strict=True))
    return inputs, list(zip(real_outputs(bound), op.output_offsets, strict=True))


def _rooted(graph: Graph, side: Lying) -> Lying:
    """The same for the tensors that own the bytes."""
    return [(graph.root(tensor.name), offset) for tensor, offset in side]


def _placed(side: Lying) -> Placed:
    return tuple(Edge(tensor.name, SCRATCH_REGION, offset) for tensor, offset in side if not tensor.is_constant)


def _carried(memory: str, parts: Sequence[tuple[int, int]]) -> Placed:
    return tuple(Edge(memory, SCRATCH_REGION, first, first, end - first) for first, end in parts)


def _kept(commands: Sequence[BoundNode]) -> dict[int, tuple[tuple[int, int], ...]]:
    """By index of the node: what it leaves in a shared memory that a later one needs, as first bytes and those after the last."""
    runs: dict[int, tuple[tuple[int, int], ...]] = {}
    needed: list[tuple[int, int]] = []
    for bound in reversed(commands):
        op = bound.op(NpuCommand)
        here = [(max(a, c), min(b, d)) for a, b in needed for c, d in pairs(op.writes)]
        runs[bound.node.index] = tuple(sorted((a, b) for a, b in here if a < b))
        needed += pairs(op.carried)
    return runs


def _wanted(graph: Graph, commands: Sequence[BoundNode], memories: frozenset[str]) -> dict[str, int]:
    """By tensor (root): its first byte in the shared memory, as an NPU operator needs it, else as the file states it."""
    offsets: dict[str, int] = {}
    for bound in commands:
        for side in _sides(bound):
            for tensor, offset in _rooted(graph, side):
                offsets.setdefault(tensor.name, offset)
    first = commands[0].op(NpuCommand)
    offset_of, limit = dict(pairs(first.places)), first.scratch_bytes
    for tensor in graph.tensors:
        offset = offset_of.get(tensor.source, -1)
        if offset >= 0 and not tensor.alias_of and tensor.name not in memories and offset + tensor.size_bytes <= limit:
            offsets.setdefault(tensor.name, offset)
    roots = {name: graph.tensor(name) for name in offsets}
    return {
        name: offset
        for name, offset in offsets.items()
        if not roots[name].is_constant and not _is_state(graph, roots[name]) and name not in graph.streamed_inputs
        and offset % roots[name].dtype.bytes == 0
    }  # fmt: skip


def _command(graph: Graph, bound: BoundNode) -> Command:
    op, (inputs, outputs) = bound.op(NpuCommand), _sides(bound)
    return Command(
        tuple((t.name, offset, offset + t.size_bytes) for t, offset in _rooted(graph, inputs)),
        tuple((t.name, offset) for t, offset in outputs),
        pairs(op.carried),
        pairs(op.writes),
    )


def _alone(graph: Graph, bound: BoundNode) -> _Call:
    """A file's only NPU operator."""
    op = bound.op(NpuCommand)
    ends = [offset + tensor.size_bytes for side in _sides(bound) for tensor, offset in side]
    size = op.scratch_bytes if len(graph.nodes) == 1 else min(max(op.touched_bytes, *ends), op.scratch_bytes)
    inputs, outputs = _pinned(graph, bound)
    inside = {tensor.name for tensor in real_inputs(bound)} if inputs else set()
    return _Call(size, frozenset(inside | ({tensor.name for tensor in bound.outputs} if outputs else set())))


def _pinned(graph: Graph, bound: BoundNode) -> tuple[bool, bool]:
    """Whether inputs, and outputs, shall lie in the scratch memory of the only NPU operator.

    Each must own its bytes alone, outside of the state block. vela has kept the bytes that others read after the
    operator. A pinned tensor keeps the whole scratch memory alive while the core writes or reads it; a copy needs
    memory for the tensor in addition to the scratch memory. The smaller one is taken.
    """
    inputs = [graph.root(tensor.name) for tensor in real_inputs(bound)]
    outputs = list(bound.outputs)
    roots = [*inputs, *outputs]
    if any(root.is_constant for root in roots) or len({root.name for root in roots}) < len(roots):
        return False, False
    place = [node.index for node in graph.nodes].index(bound.node.index)
    fits = []
    for tensors, others in ((inputs, graph.nodes[:place]), (outputs, graph.nodes[place + 1 :])):
        own = {tensor.name for tensor in tensors}
        copied = max((_bytes(graph, node, own) for node in others), default=0)
        fits.append(copied <= sum(tensor.size_bytes for tensor in tensors))
    return fits[0] and not any(_is_state(graph, tensor) for tensor in inputs), fits[1]


def _is_state(graph: Graph, tensor: Tensor) -> bool:
    """Whether a tensor is what a variable holds: it is copied from there."""
    writer = graph.producer(tensor.name)
    return tensor.is_state or (writer is not None and isinstance(writer.op, ReadVariable))


def _bytes(graph: Graph, node: Node, left_out: set[str]) -> int:
    """Bytes of the tensors that a node of the core reads and writes."""
    names = {graph.root(name).name for name in (*node.inputs, *node.outputs) if name}
    return sum(graph.tensor(n).size_bytes for n in names - left_out if not graph.tensor(n).is_constant)

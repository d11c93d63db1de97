"""An independent check of a schedule and its plan: who owns which byte of the arena, stage by stage and row by row.

Shares no code with the planner and none with the search for segments. Every byte has the name of the tensor (for line buffers,
the row) that was written there last. What a stage reads must still be its own. Where an output overlaps an input, the layer must
keep the distance of its access order, and nobody may need the input afterwards.
"""

from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from emitc.ir import Graph
from emitc.planner import PlanError
from emitc.schedule.stages import (
    LoweredNode,
    Segment,
    Stage,
    buffer_name,
    in_arena,
    lines_name,
    place_of,
    placed,
    scratch_name,
    scratch_of,
    staged_name,
)


class _Owners:
    """The arena's bytes by owner: a number for each name, 0 for nobody."""

    def __init__(self, size: int) -> None:
        self.bytes: NDArray[np.int64] = np.zeros(size, np.int64)
        # Written last by a layer that shares a memory with others.
        self.shared: NDArray[np.bool_] = np.zeros(size, bool)
        self.numbers: dict[object, int] = {}

    def write(self, owner: object, offset: int, size: int, by: str) -> None:
        """Gives the bytes to `owner`."""
        if offset < 0 or offset + size > self.bytes.size:
            raise PlanError(f"{by} writes [{offset}, {offset + size}) of {self.bytes.size} bytes")
        self.bytes[offset : offset + size] = self.numbers.setdefault(owner, len(self.numbers) + 1)
        self.shared[offset : offset + size] = False

    def read(self, owner: object, offset: int, size: int, by: str) -> None:
        """Raises PlanError where a byte belongs to somebody else."""
        wrong = np.flatnonzero(self.bytes[offset : offset + size] != self.numbers.get(owner, -1))
        if wrong.size:
            number = int(self.bytes[offset + wrong[0]])
            names = {value: key for key, value in self.numbers.items()}
            raise PlanError(f"{by} reads {owner!r} at byte {offset + int(wrong[0])}, which is of {names.get(number)!r}")


class _RowReplay:
    """A segment that runs on row numbers, as the C does it: a line buffer that is full drops its rows from the front."""

    def __init__(
        self, graph: Graph, stage: Stage, segment: Segment, source: str, owners: _Owners, offsets: Mapping[str, int]
    ) -> None:
        """source: the buffer of the segment's input."""
        self.graph, self.stage, self.segment = graph, stage, segment
        self.source, self.owners, self.offsets = source, owners, offsets
        self.by = f"ops {stage.nodes[0].bound.node.index} to {stage.nodes[-1].bound.node.index}"
        inner = zip(stage.nodes[:-1], segment.capacities[:-1], strict=True)
        self.starts = [*(offsets[lines_name(n)] if capacity else -1 for n, capacity in inner), offsets[segment.target]]
        self.made = [0] * len(segment.layers)
        """Rows that each layer has made."""
        self.first = [0] * len(segment.layers)
        """The first row in each line buffer."""
        rows = segment.source_rows
        self.row_bytes = graph.tensor(segment.source).size_bytes // rows if segment.source else 0
        self.copies = [_copies(node) for node in stage.nodes]

    def run(self) -> None:
        """Every row of every layer. Raises PlanError where a byte is not what a layer needs there."""
        layers = self.segment.layers
        for node, copies in zip(self.stage.nodes, self.copies, strict=True):
            for name, size in copies if node.start < 0 else ():
                self.owners.write(name, self.offsets[name], size, self.by)
        self._split_source()
        while self.made[-1] < layers[-1].rows:
            self._make_row(self._next())
        for row in range(layers[-1].rows):
            offset = self.starts[-1] + row * layers[-1].row_bytes
            self.owners.read((len(layers) - 1, row), offset, layers[-1].row_bytes, self.by)
        self._join_source()
        target = self.segment.target
        self.owners.write(target, self.starts[-1], self.graph.tensor(target).size_bytes, self.by)

    def _split_source(self) -> None:
        """Names the rows of the input one by one."""
        for row in range(self.segment.source_rows):
            offset = self.offsets[self.source] + row * self.row_bytes
            self.owners.read(self.source, offset, self.row_bytes, self.by)
            self.owners.write((self.source, row), offset, self.row_bytes, self.by)

    def _join_source(self) -> None:
        """Gives what is left of the input its own name again, since later stages may read it."""
        owners = self.owners
        for row in range(self.segment.source_rows):
            offset = self.offsets[self.source] + row * self.row_bytes
            number = owners.numbers[self.source, row]
            whole = slice(offset, offset + self.row_bytes)
            owners.bytes[whole][owners.bytes[whole] == number] = owners.numbers[self.source]

    def _next(self) -> int:
        """The last layer that has the rows that it needs for its next one."""
        made, layers = self.made, self.segment.layers

        def asked_for(i: int) -> bool:
            """Whether the next row of some layer reads the next row of layer i."""
            return any(
                r.source == i and made[i] < r.end(made[j]) for j, reader in enumerate(layers) for r in reader.reads
            )

        return max(
            i
            for i, layer in enumerate(layers)
            if made[i] < layer.rows
            and all(r.source < 0 or made[r.source] >= r.end(made[i]) for r in layer.reads)
            and (i not in self.segment.on_demand or asked_for(i))
        )

    def _make_row(self, i: int) -> None:
        layer, place = self.segment.layers[i], self.segment.in_place_of[i]
        if self.made[place] - self.first[place] == self.segment.capacities[place]:
            self._slide(place, layer.row_bytes)
        target = self.starts[place] + (self.made[place] - self.first[place]) * layer.row_bytes
        scratch = zip(scratch_of(self.stage), self.stage.nodes[i].layer.scratch, strict=False)
        needed: list[tuple[object, int, int]] = [(name, self.offsets[name], s.size_bytes) for (name, _), s in scratch]
        for owner, at, length in needed:
            self.owners.write(owner, at, length, self.by)
        for name, length in self.copies[i]:
            self.owners.read(name, self.offsets[name], length, self.by)
        for read in layer.reads:
            for row in range(read.first(self.made[i]), read.end(self.made[i])):
                if read.source >= 0 and not self.segment.capacities[read.source]:
                    # The row lies where this layer's own row goes, which may be written over.
                    self.owners.read(("in place", read.source, row), target, layer.row_bytes, self.by)
                    continue
                needed.append(self._row(read.source, row))
                self.owners.read(*needed[-1], self.by)
        owner = (place, self.made[place]) if place == i else ("in place", i, self.made[i])
        self.owners.write(owner, target, layer.row_bytes, self.by)
        for owner, at, length in needed:  # needed until the row is complete
            self.owners.read(owner, at, length, self.by)
        self.made[i] += 1

    def _row(self, source: int, row: int) -> tuple[object, int, int]:
        """A row that a layer reads: its owner, its offset and its bytes."""
        if source < 0:
            return (self.source, row), self.offsets[self.source] + row * self.row_bytes, self.row_bytes
        size = self.segment.layers[source].row_bytes
        return (source, row), self.starts[source] + (row - self.first[source]) * size, size

    def _slide(self, place: int, size: int) -> None:
        """Drops the rows of a full line buffer that no layer needs any more."""
        readers = [(j, r) for j, layer in enumerate(self.segment.layers) for r in layer.reads if r.source == place]
        needed = min(min(r.first(self.made[j]) for j, r in readers), self.made[place])
        for to, row in enumerate(range(needed, self.made[place])):
            self.owners.read((place, row), self.starts[place] + (row - self.first[place]) * size, size, self.by)
            self.owners.write((place, row), self.starts[place] + to * size, size, self.by)
        self.first[place] = needed


def _replay_node(
    graph: Graph,
    node: LoweredNode,
    moved: Mapping[str, int],
    owners: _Owners,
    offsets: Mapping[str, int],
    hosts: Mapping[str, tuple[str, int]],
) -> None:
    """One whole layer: its inputs intact, its outputs disjoint from them, or at the distance of its access order."""

    def owner(root: str) -> str:
        host, _ = place_of(hosts, root)
        return buffer_name(host, moved.get(host, 0))

    by, memory = node.bound.node.describe(), node.layer.memory
    outputs = [(i, graph.root(t.name).name) for i, t in enumerate(node.bound.outputs) if in_arena(graph, t.name)]
    scratch = [(offsets[scratch_name(node, s.role)], s.size_bytes) for s in node.layer.scratch]
    scratch += [(offsets[name], size) for name, size in _copies(node) if node.start < 0]
    _require_copies(node, owners, offsets)
    if memory is not None:
        outputs = [(i, name) for i, name in outputs if i != memory.output]
    placed_outside = bool(node.layer.pins) or memory is not None  # an accelerator's compiler has placed these
    for position, tensor in zip(node.layer.operands, node.inputs, strict=True):
        if not in_arena(graph, tensor.name):
            continue
        root = graph.root(tensor.name).name
        name = buffer_name(root, moved.get(root, 0))
        start, size = offsets[name], tensor.size_bytes
        owners.read(owner(root), start, size, by)
        for i, output in () if placed_outside else outputs:
            begin, end = offsets[output], offsets[output] + graph.tensor(output).size_bytes
            if begin >= start + size or start >= end:
                continue
            allowed = [o for o in node.layer.overlaps if (o.input, o.output) == (position, i)]
            if not allowed or start - begin < allowed[0].distance_bytes or (start - begin) % allowed[0].multiple:
                raise PlanError(
                    f"{by} writes {output!r} at {begin} over its input {name!r} at {start}: allowed {allowed}"
                )
        for begin, length in scratch:
            if begin < start + size and start < begin + length and not placed_outside:
                raise PlanError(f"{by} has scratch at {begin} over its input {name!r} at {start}")
    for begin, length in scratch:
        owners.write((by, begin), begin, length, by)
    start = 0 if memory is None else offsets[node.bound.outputs[memory.output].name]
    for first, end in () if memory is None else memory.reads:
        if not owners.shared[start + first : start + end].all():
            raise PlanError(f"{by} needs bytes {first} to {end} of a memory, in which another layer has written")
    for first, end in () if memory is None else memory.writes:
        owners.write((by, "memory"), start + first, end - first, by)
        owners.shared[start + first : start + end] = True
    for _, output in outputs:
        begin, length = offsets[output], graph.tensor(output).size_bytes
        kept = owners.shared[begin : begin + length].copy()
        owners.write(owner(output), begin, length, by)
        if memory is not None:  # an output that lies in the memory stays what layers share
            owners.shared[begin : begin + length] = kept
    _require_copies(node, owners, offsets)  # needed until the output is complete


def _copies(node: LoweredNode) -> list[tuple[str, int]]:
    """The buffers of the copies of a layer's tables, and their bytes."""
    return [(staged_name(node, t.role), t.size_bytes) for t in node.layer.tables if t.role in node.staged]


def _require_copies(node: LoweredNode, owners: _Owners, offsets: Mapping[str, int]) -> None:
    """Raises PlanError where a transfer has started for a layer, and somebody has written over the copy since."""
    for name, size in _copies(node) if node.start >= 0 else ():
        owners.read(name, offsets[name], size, node.bound.node.describe())


def _start_transfers(stages: Sequence[Stage], position: int, owners: _Owners, offsets: Mapping[str, int]) -> None:
    """The copies whose transfer starts with the stage at a position: its bytes may change from now on."""
    for node in chain.from_iterable(stage.nodes for stage in stages[position:]):
        for name, size in _copies(node) if node.start == position else ():
            owners.write(name, offsets[name], size, f"a transfer for {node.bound.node.describe()}")


def check_schedule(
    graph: Graph,
    stages: Sequence[Stage],
    offsets: Mapping[str, int],
    hosts: Mapping[str, tuple[str, int]],
    arena_bytes: int,
) -> None:
    """Returns when every stage finds what it reads. offsets: of all buffers, by their names in the plan; hosts: of tensors that
    lie inside others, whose bytes belong to these.

    Errors  PlanError naming the layer, the byte and whose it is: always a bug of emitc, never of a model.
    """
    owners = _Owners(arena_bytes)
    for name in graph.inputs:
        if name in offsets:
            owners.write(name, offsets[name], graph.tensor(name).size_bytes, "the caller")
    current: dict[str, str] = {}
    for position, (stage, moved) in enumerate(placed(stages)):
        _start_transfers(stages, position, owners, offsets)
        if stage.moved:
            count, size = moved.get(stage.moved, 0), graph.tensor(stage.moved).size_bytes
            source, target = (buffer_name(stage.moved, n) for n in (count, count + 1))
            owners.read(source, offsets[source], size, "a move")
            owners.write(target, offsets[target], size, "a move")
            current[stage.moved] = target
        elif stage.segment is not None:
            name = stage.segment.source
            _RowReplay(graph, stage, stage.segment, buffer_name(name, moved.get(name, 0)), owners, offsets).run()
        else:
            _replay_node(graph, stage.nodes[0], moved, owners, offsets, hosts)
    for name in graph.outputs:
        root = graph.root(name).name
        if in_arena(graph, name):
            buffer = current.get(root, root)
            owners.read(buffer, offsets[buffer], graph.tensor(root).size_bytes, "the caller")

"""In which order layers run, which of them row by row, and which vanish: what the memory plan and the C are made from."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import chain, zip_longest

from emitc.backends.contract import PORTABLE
from emitc.ir import BoundNode, Graph, Tensor
from emitc.kernels.shared.windows import WINDOW_PARAMS
from emitc.layer import ChannelOrder, Layer, Overlap, window_order
from emitc.records import dataclass, replace

OUTSIDE = -1
"""In place of a layer's position in a segment: the segment's input."""
_CACHED = 2048
"""Orders of turns that are kept: kernels differ between schedules that are compared, rows mostly not."""


@dataclass(frozen=True, slots=True)
class LoweredNode:
    """A node with its layer, and the backend that made it. staged: roles of tables that are copied to an arena before it runs.

    start: position of the stage at whose start a transfer of these copies starts, -1 where the core copies them just before.
    """

    bound: BoundNode
    layer: Layer
    backend: str
    staged: tuple[str, ...] = ()
    start: int = -1

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The operands that are passed to the layer function."""
        return tuple(self.bound.input(position) for position in self.layer.operands)


@dataclass(frozen=True, slots=True)
class RowRead:
    """Row r of an output reads rows [r * stride - pad, r * stride - pad + extent) of an input of `rows` rows, where they exist.

    source: position in the segment of the layer that makes them, or OUTSIDE.
    """

    source: int
    rows: int
    stride: int = 1
    pad: int = 0
    extent: int = 1

    def first(self, row: int) -> int:
        """The first row read for output row `row`, and by all later ones."""
        return min(max(row * self.stride - self.pad, 0), self.rows)

    def end(self, row: int) -> int:
        return min(max(row * self.stride - self.pad + self.extent, 0), self.rows)

    def whole(self, rows: int) -> bool:
        """Whether every one of the first `rows` output rows reads `extent` rows, none of them outside the input."""
        return self.pad == 0 and (rows - 1) * self.stride + self.extent <= self.rows


@dataclass(frozen=True, slots=True)
class RowLayer:
    """A layer of a segment: rows of its output, their bytes, and what a row reads, operand by operand."""

    rows: int
    row_bytes: int
    reads: tuple[RowRead, ...]


def readers_of(layers: Sequence[RowLayer]) -> Mapping[int, list[tuple[int, RowRead]]]:
    """By the position of a layer, or OUTSIDE: the positions of the layers that read its rows, and how."""
    readers: dict[int, list[tuple[int, RowRead]]] = defaultdict(list)
    for position, layer in enumerate(layers):
        for read in layer.reads:
            readers[read.source].append((position, read))
    return readers


@lru_cache(maxsize=_CACHED)
def _first_rows(read: RowRead, rows: int) -> tuple[int, ...]:
    return tuple(read.first(row) for row in range(rows + 1))


@lru_cache(maxsize=_CACHED)
def _end_rows(read: RowRead, rows: int) -> tuple[int, ...]:
    return tuple(read.end(row) for row in range(rows + 1))


def first_rows_read(layers: Sequence[RowLayer]) -> Mapping[int, list[tuple[int, tuple[int, ...]]]]:
    """As `readers_of`, with `RowRead.first` of every row and of the row after the last one in place of the read."""
    first_rows: dict[int, list[tuple[int, tuple[int, ...]]]] = defaultdict(list)
    for source, readers in readers_of(layers).items():
        first_rows[source] = [(position, _first_rows(read, layers[position].rows)) for position, read in readers]
    return first_rows


@lru_cache(maxsize=_CACHED)
def turns(layers: tuple[RowLayer, ...], on_demand: frozenset[int]) -> tuple[int, ...] | None:
    """The layers' positions in the order in which they make their rows: in turn the last one that has the rows that it needs.

    on_demand: as `Segment` has them. None where no layer has the rows that it needs though the output is not complete.
    """
    made, rows, readers = [0] * len(layers), [layer.rows for layer in layers], readers_of(layers)
    inside = [
        [(read.source, _end_rows(read, layer.rows)) for read in layer.reads if read.source != OUTSIDE]
        for layer in layers
    ]
    asked = {i: [(j, _end_rows(read, rows[j])) for j, read in readers[i]] for i in on_demand}
    # A new row makes only its readers ready, of the layers that come later and were not ready before.
    later = [sorted((j for j, _ in readers[i] if j > i), reverse=True) for i in range(len(layers))]

    def ready(i: int) -> bool:
        row = made[i]
        if row == rows[i]:
            return False
        for source, ends in inside[i]:
            if made[source] < ends[row]:
                return False
        return i not in asked or any(row < ends[made[j]] for j, ends in asked[i])

    order: list[int] = []
    position = len(layers) - 1
    while made[-1] < rows[-1]:
        for i in chain(later[position], range(position, -1, -1)):
            if ready(i):
                break
        else:
            return None
        made[i] += 1
        order.append(i)
        position = i
    return tuple(order)


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive nodes that never keep a tensor between them whole in memory.

    first, end: positions of the nodes in the order of execution. source, target: the tensors (roots) that the segment reads
    ("" where it only asks the application for rows) and writes; source_rows: rows of the image that the layers see in the
    source, whatever its own shape. capacities: rows that each layer's line buffer holds; the last layer's is its whole output.
    in_place_of: for each layer the one in whose next row it makes its own row, so that this one works in place; mostly the layer
    itself. A layer that works in the row of another one has no line buffer. distance_bytes: the least (source's offset -
    target's offset). on_demand: positions of the layers that make a row only when a reader's next row reads it, though they
    could make it earlier. order: the nodes' positions, counted from `first`, in the order of the segment's layers; empty where
    the two orders are the same.
    """

    first: int
    end: int
    source: str
    source_rows: int
    target: str
    layers: tuple[RowLayer, ...]
    capacities: tuple[int, ...]
    in_place_of: tuple[int, ...]
    distance_bytes: int
    on_demand: frozenset[int] = frozenset()
    order: tuple[int, ...] = ()

    def members(self, nodes: Sequence[LoweredNode]) -> tuple[LoweredNode, ...]:
        """The segment's nodes among all nodes, one for each of its layers."""
        own = nodes[self.first : self.end]
        return tuple(own[position] for position in self.order) if self.order else tuple(own)

    @property
    def line_bytes(self) -> tuple[int, ...]:
        """Bytes of the line buffer that each layer but the last one writes."""
        return tuple(
            capacity * layer.row_bytes for capacity, layer in zip(self.capacities[:-1], self.layers[:-1], strict=True)
        )


@dataclass(frozen=True, slots=True)
class Stage:
    """One step of the memory plan: one layer, the layers of a segment, or a tensor (root) moved to another place."""

    nodes: tuple[LoweredNode, ...] = ()
    segment: Segment | None = None
    moved: str = ""


def is_window(layer: Layer, rows: RowLayer) -> bool:
    """Whether the rows that a layer sees differ from row to row, because some windows reach beyond the input."""
    return layer.by_rows is not None and layer.by_rows.window and not all(read.whole(rows.rows) for read in rows.reads)


def one_by_one(nodes: Sequence[LoweredNode]) -> tuple[Stage, ...]:
    return tuple(Stage((node,)) for node in nodes)


def with_segments(nodes: Sequence[LoweredNode], segments: Sequence[Segment]) -> tuple[Stage, ...]:
    """The layers in order, those of each segment as one stage."""
    by_first = {segment.first: segment for segment in segments}
    stages: list[Stage] = []
    position = 0
    while position < len(nodes):
        segment = by_first.get(position)
        end = segment.end if segment else position + 1
        stages.append(Stage(segment.members(nodes) if segment else (nodes[position],), segment))
        position = end
    return tuple(stages)


def with_moves(stages: Sequence[Stage], moves: Sequence[tuple[int, str]]) -> tuple[Stage, ...]:
    """The stages with tensors moved before some of them. moves: position of the stage, and the tensor."""
    made: list[Stage] = []
    for position, stage in enumerate(stages):
        made += [Stage(moved=name) for before, name in moves if before == position]
        made.append(stage)
    return tuple(made)


def placed(stages: Sequence[Stage]) -> Iterator[tuple[Stage, dict[str, int]]]:
    """Every stage with how often each tensor has been moved before it."""
    moved: dict[str, int] = {}
    for stage in stages:
        yield stage, moved
        if stage.moved:
            moved = {**moved, stage.moved: moved.get(stage.moved, 0) + 1}


def buffer_name(name: str, moved: int = 0) -> str:
    """The buffer of a tensor (root) that was moved so often."""
    return f"{name}:moved:{moved}" if moved else name


def scratch_name(node: LoweredNode, role: str) -> str:
    return f"{node.bound.node.index}:scratch:{role}"


def staged_name(node: LoweredNode, role: str) -> str:
    """The buffer of a table's copy."""
    return f"{node.bound.node.index}:staged:{role}"


def scratch_of(stage: Stage) -> tuple[tuple[str, int], ...]:
    """The buffers of a stage's scratch, and their bytes.

    Of the layers of a segment one runs at a time: they share buffers, the first of each layer lies in the first one.
    """
    if stage.segment is None:
        return tuple((scratch_name(node, s.role), s.size_bytes) for node in stage.nodes for s in node.layer.scratch)
    node_sizes = [[scratch.size_bytes for scratch in node.layer.scratch] for node in stage.nodes]
    sizes = [max(together) for together in zip_longest(*node_sizes, fillvalue=0)]
    return tuple((shared_scratch_name(stage.nodes[0], i), size) for i, size in enumerate(sizes))


def shared_scratch_name(first: LoweredNode, number: int) -> str:
    """A buffer of the scratch of all layers of the segment that begins with the node `first`."""
    return f"{first.bound.node.index}:scratch of rows:{number}"


def lines_name(node: LoweredNode) -> str:
    """The line buffer that a layer of a segment writes."""
    return f"{node.bound.node.index}:rows"


def constant_bytes(nodes: Sequence[LoweredNode]) -> int:
    """Bytes of the layers' tables, each distinct one once."""
    sizes = {(t.alignment, t.c_type, t.values): t.size_bytes for node in nodes for t in node.layer.tables}
    return sum(sizes.values())


def in_arena(graph: Graph, name: str) -> bool:
    """Whether a tensor's bytes lie in the arena: not those of constants and state variables, nor of what aliases them,
    nor inputs that are read row by row.
    """
    root = graph.root(name)
    return not root.is_constant and not root.is_state and root.name not in graph.streamed_inputs


# ---- layers in parts ----


def in_parts(nodes: Sequence[LoweredNode], indices: Collection[int]) -> tuple[LoweredNode, ...]:
    """The nodes, those of the indices with overlaps that allow one part after another."""
    return tuple(_able_in_parts(node) if node.bound.node.index in indices else node for node in nodes)


def _able_in_parts(node: LoweredNode) -> LoweredNode:
    """A kernel that makes its output channel by channel keeps rows of a channel in scratch, but not from one part to the next.

    Its input has to lie as far above the output as for a kernel that reads all windows from the input. Any other kernel's input
    and output get bytes of their own.
    """
    layer = node.layer
    kept: tuple[Overlap, ...] = ()
    if layer.by_rows is not None and layer.by_rows.window:
        values = {param.name: int(param.value) for param in layer.params if param.name in WINDOW_PARAMS}
        sizes = node.bound.input(0).dtype.bytes, node.bound.output.dtype.bytes
        window = window_order(values, *sizes, None)
        kept = tuple(
            replace(overlap, order=replace(window, multiple=overlap.order.multiple))
            for overlap in layer.overlaps
            if isinstance(overlap.order, ChannelOrder)
        )
    return replace(node, layer=replace(layer, overlaps=kept))


# ---- layers that only copy ----


@dataclass(frozen=True, slots=True)
class ElidedCopy:
    """A layer that vanishes. node: its index. host: the tensor (root) that holds the others; parts: these, with offsets."""

    node: int
    host: str
    parts: tuple[tuple[str, int], ...]


def elidable_copies(graph: Graph, nodes: Sequence[LoweredNode]) -> tuple[ElidedCopy, ...]:
    """Every layer that could vanish, in order of execution; no tensor is a part twice."""
    interface = {graph.root(name).name for name in (*graph.inputs, *graph.outputs)}
    library_owned = _library_owned(graph, nodes)
    taken: set[str] = set()
    copies: list[ElidedCopy] = []
    for node in nodes:
        inside = node.layer.inside
        if not inside or node.backend != PORTABLE:
            continue
        outer = node.bound.input(0) if inside[0].output else node.bound.output
        inner = [node.bound.outputs[i.position] if i.output else node.bound.input(i.position) for i in inside]
        host, roots = graph.root(outer.name), [graph.root(t.name) for t in inner]
        names = [root.name for root in roots]
        if len({host.name, *names}) <= len(names) or interface & set(names) or library_owned & {host.name, *names}:
            continue
        if not all(in_arena(graph, name) for name in (host.name, *names)) or taken & set(names):
            continue
        parts = tuple(zip(names, (i.offset_bytes for i in inside), strict=True))
        whole = all(root.size_bytes == t.size_bytes for root, t in zip(roots, inner, strict=True))
        if not whole or any(offset % t.dtype.bytes for (_, offset), t in zip(parts, inner, strict=True)):
            continue
        taken |= set(names)
        copies.append(ElidedCopy(node.bound.node.index, host.name, parts))
    return tuple(copies)


def _library_owned(graph: Graph, nodes: Sequence[LoweredNode]) -> set[str]:
    """Tensors (roots) that a library or an accelerator touches, or that have a place: those may ask for aligned places."""
    touched = {
        graph.root(t.name).name
        for node in nodes
        if node.backend != PORTABLE or node.layer.pins
        for t in (*node.inputs, *node.bound.outputs)
    }
    return touched | {place.tensor for node in nodes for place in node.layer.places}


def hosts_of(copies: Sequence[ElidedCopy]) -> dict[str, tuple[str, int]]:
    """By part: the tensor at the end of the chain of hosts, and the offset in it."""
    direct = {part: (copy.host, offset) for copy in copies for part, offset in copy.parts}
    hosts: dict[str, tuple[str, int]] = {}
    for part in direct:
        host, offset, seen = part, 0, set[str]()
        while host in direct and host not in seen:
            seen.add(host)
            host, step = direct[host]
            offset += step
        if host not in direct:
            hosts[part] = host, offset
    return hosts


def place_of(hosts: Mapping[str, tuple[str, int]], name: str) -> tuple[str, int]:
    """The buffer that holds a tensor (root), and the tensor's offset in it."""
    return hosts.get(name, (name, 0))

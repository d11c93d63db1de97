"""Row streaming: a run of layers that never keeps a tensor between them whole in memory.

Each tensor between two layers of a segment is a line buffer: the rows from the first one that is still needed to the last one
made. A layer makes one row of its output at a time, as soon as the rows that this row reads are made; of several layers that
could, the last one does. Where a segment has branches, some wait until a row is asked for. Every row is made once, so there is
no extra multiply-accumulate; weights are read once per row.

`simulated` runs exactly the schedule that the generated code runs, on row numbers alone. It tells how many rows each
line buffer has to hold. It also tells how far the segment's output may follow its input in one piece of memory.

Costs are estimates in cycles, from measurements on an emulated Cortex-M4. A row is a call: the schedule's conditions, the
window's parameters, the kernel's set-up. Line buffers that are full are moved up. Weights are read again for every row, which
costs no instruction.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import lru_cache

from emitc.backends.contract import PORTABLE
from emitc.ir import Graph, Shape, Tensor
from emitc.kernels.shared.windows import WINDOW_PARAMS
from emitc.layer import ElementwiseOrder, Layer, Param
from emitc.records import dataclass, replace
from emitc.schedule.stages import (
    OUTSIDE,
    LoweredNode,
    RowLayer,
    RowRead,
    Segment,
    first_rows_read,
    in_arena,
    is_window,
    turns,
)

MAX_LAYERS = 24
"""Layers of one segment. Longer ones hardly save more, and are long to follow in a debugger."""
_RUNS = 4096
"""Runs that are remembered: a graph is arranged several times, with other kernels but mostly the same rows."""


@dataclass(frozen=True, slots=True)
class Simulated:
    """capacities: rows that each line buffer must hold; the last layer's is its whole output. distance_bytes: the least
    (input offset - output offset) at which the segment's input and output may share memory.
    """

    capacities: tuple[int, ...]
    distance_bytes: int


def simulated(
    layers: tuple[RowLayer, ...], in_place_of: Sequence[int], in_row_bytes: int, on_demand: Collection[int] = ()
) -> Simulated | None:
    """Runs the schedule. in_place_of, on_demand: as `Segment` has them.

    None where the output is not complete and no layer has the rows that it needs. None too where a layer overwrites another
    one's row, and that one does not run next.
    """
    order = turns(layers, frozenset(on_demand))
    if order is None:
        return None
    count = len(layers)
    made, capacities = [0] * count, [0] * count
    readers, last = first_rows_read(layers), layers[-1]
    outer = readers[OUTSIDE]
    total = max((read.rows for layer in layers for read in layer.reads if read.source == OUTSIDE), default=0)
    distance = -total * in_row_bytes
    expected = -1
    for i in order:
        if expected not in (-1, i):
            return None
        place = in_place_of[i]
        expected = place if place != i else -1
        if place == count - 1:
            later = min([first[made[j]] for j, first in outer if made[j] < layers[j].rows], default=total)
            if later < total:
                distance = max(distance, (made[place] + 1) * last.row_bytes - later * in_row_bytes)
        else:
            # A reader that skips rows may need none of those that are made: the new one takes up room all the same.
            needed = min([first[made[j]] for j, first in readers[place]], default=made[place])
            needed = min(needed, made[place])
            capacities[place] = max(capacities[place], made[place] + 1 - needed)
        made[i] += 1
    capacities[-1] = last.rows
    return Simulated(tuple(capacities), distance)


def _in_place(replaced: Sequence[tuple[int, ...]], layers: Sequence[RowLayer]) -> tuple[tuple[int, int], ...]:
    """Pairs of layers of which the second alone reads the first, row by row, and may work in place.

    replaced: `_Node.replaced` of the node of each layer.
    """
    users = Counter(read.source for layer in layers for read in layer.reads)
    pairs: list[tuple[int, int]] = []
    for i, layer in enumerate(layers):
        for position in replaced[i]:
            source = layer.reads[position].source
            if source != OUTSIDE and users[source] == 1 and layers[source].row_bytes == layer.row_bytes:
                pairs.append((source, i))
    return tuple(pairs)


@lru_cache(maxsize=_RUNS)
def _laid_out(
    layers: tuple[RowLayer, ...], in_place: tuple[tuple[int, int], ...], in_row_bytes: int
) -> tuple[tuple[int, ...], frozenset[int], Simulated] | None:
    """Which layers of a segment work in place, which wait until their rows are asked for, and the run with them.

    As many layers as possible work in place. None where no run is possible. in_place: pairs as `_in_place` finds them.
    """
    in_place_of = list(range(len(layers)))
    best = simulated(layers, in_place_of, in_row_bytes)
    if best is None:
        return None
    for source, reader in in_place:
        if in_place_of[reader] != reader or source in (in_place_of[k] for k in range(source)):
            continue
        tried = [reader if i == source else place for i, place in enumerate(in_place_of)]
        simulation = simulated(layers, tried, in_row_bytes)
        if simulation is not None:
            in_place_of, best = tried, simulation
    return tuple(in_place_of), *_on_demand(layers, in_place_of, in_row_bytes, best)


def _on_demand(
    layers: tuple[RowLayer, ...], in_place_of: Sequence[int], in_row_bytes: int, ahead: Simulated
) -> tuple[frozenset[int], Simulated]:
    """The layers that wait until their rows are asked for, where that makes the line buffers smaller, and the run with them.

    In a chain no layer waits: only a segment with branches makes rows before they are needed.
    """

    def line_bytes(result: Simulated) -> int:
        return sum(
            capacity * layer.row_bytes for capacity, layer in zip(result.capacities[:-1], layers[:-1], strict=True)
        )

    chain = all(read.source in (OUTSIDE, i - 1) for i, layer in enumerate(layers) for read in layer.reads)
    on_demand = [i for i in range(1, len(layers) - 1) if in_place_of[i] == i]
    best = None if chain else simulated(layers, in_place_of, in_row_bytes, on_demand)
    if best is None or line_bytes(best) >= line_bytes(ahead):
        return frozenset(), ahead
    for i in tuple(on_demand):
        fewer = [other for other in on_demand if other != i]
        tried = simulated(layers, in_place_of, in_row_bytes, fewer)
        if tried is not None and line_bytes(tried) <= line_bytes(best):
            on_demand, best = fewer, tried
    return frozenset(on_demand), best


def _image(tensor: Tensor) -> bool:
    """One image [1, H, W, C] of at least one row."""
    return len(tensor.shape) == 4 and tensor.shape[0] == 1 and min(tensor.shape) > 0


@dataclass(frozen=True, slots=True)
class _Node:
    """What a node is in any segment. inputs: tensors (roots) with the shapes under which it sees them; reads: what a row of its
    output reads of them, as if all came from outside; replaced: the positions of those whose rows its own may overwrite.
    """

    inputs: tuple[tuple[str, Shape], ...]
    reads: tuple[RowRead, ...]
    target: str
    shape: Shape
    row_bytes: int
    reads_rows: bool
    replaced: tuple[int, ...]


def _node_of(graph: Graph, node: LoweredNode) -> _Node | None:
    """A node as segments see it; None where it cannot be made row by row."""
    form = node.layer.by_rows
    output = node.bound.output
    if form is None or (form.outputs and not form.counted) or node.layer.pins or node.layer.fallible:
        return None
    if len(node.bound.outputs) != 1 or not all(map(_image, (output, *node.inputs))):
        return None
    if not all(in_arena(graph, tensor.name) for tensor in (*node.inputs, output)):
        return None
    if not form.window and any(tensor.shape[1:3] != output.shape[1:3] for tensor in node.inputs):
        return None
    values = {p.name: int(p.value) for p in node.layer.params if p.name in WINDOW_PARAMS}
    window: tuple[int, ...] = ()
    if form.window:
        extent = (values["kernel_h"] - 1) * values["dilation_h"] + 1
        window = (values["stride_h"], values["pad_top"], extent)
    reads = tuple(RowRead(OUTSIDE, tensor.shape[1], *window) for tensor in node.inputs)
    # Element i of an operand of the output's type is read before element i is stored.
    elements = ElementwiseOrder(output.elements, output.dtype.bytes, output.dtype.bytes)
    overlaps = node.layer.overlaps
    same = [node.layer.operands.index(overlap.input) for overlap in overlaps if overlap.order == elements]
    return _Node(
        tuple((graph.root(tensor.name).name, tensor.shape) for tensor in node.inputs),
        reads,
        graph.root(output.name).name,
        output.shape,
        output.size_bytes // output.shape[1],
        bool(node.layer.reads_rows),
        tuple(i for i in same if (reads[i].stride, reads[i].pad, reads[i].extent) == (1, 0, 1)),
    )


class _Run:
    """The nodes of a segment, which is made longer at its end."""

    def __init__(self) -> None:
        self.source = ""
        self.inside: dict[str, int] = {}
        self.shapes: dict[str, Shape] = {}
        self.layers: list[RowLayer] = []
        self.replaced: list[tuple[int, ...]] = []

    def add(self, node: _Node | None) -> bool:
        """Whether the run with this node may still become a segment.

        If not, no longer run may either: the node has no rows, reads a second input, or sees a tensor under another
        shape.
        """
        if node is None:
            return False
        for name, shape in node.inputs:
            if name not in self.inside:
                self.source = self.source or name
                if name != self.source:
                    return False
            if self.shapes.setdefault(name, shape) != shape:
                return False
        if not self.source and not self.inside and not node.reads_rows:
            return False
        if node.target in self.inside or node.target == self.source:
            return False
        sources = [self.inside.get(name, OUTSIDE) for name, _ in node.inputs]
        reads = tuple(
            read if source == OUTSIDE else RowRead(source, read.rows, read.stride, read.pad, read.extent)
            for read, source in zip(node.reads, sources, strict=True)
        )
        self.inside[node.target], self.shapes[node.target] = len(self.layers), node.shape
        self.layers.append(RowLayer(node.shape[1], node.row_bytes, reads))
        self.replaced.append(node.replaced)
        return True


def _late(layers: Sequence[RowLayer]) -> tuple[int, ...]:
    """The layers' positions, each as late as its readers allow.

    Of several that may stand last, the one before which the fewest layers have to run does. A short branch then
    follows a long one, and its rows are made when they can be used.
    """
    if all(any(read.source == i - 1 for read in layer.reads) for i, layer in enumerate(layers) if i):
        return tuple(range(len(layers)))
    deep: list[int] = []
    for layer in layers:
        deep.append(1 + max((deep[read.source] for read in layer.reads if read.source != OUTSIDE), default=0))
    left = set(range(len(layers)))
    order: list[int] = []
    while left:
        read = {r.source for i in left for r in layers[i].reads}
        position = min(left - read, key=lambda i: (deep[i], -i))
        order.append(position)
        left.remove(position)
    return tuple(reversed(order))


class _Segments:
    """The runs of a graph's nodes that can be segments."""

    def __init__(self, graph: Graph, nodes: Sequence[LoweredNode], shared: Collection[str]) -> None:
        self._graph = graph
        self._own = [_node_of(graph, node) for node in nodes]
        # The position of the last node that needs a tensor, or the one after all nodes.
        self._needed = {graph.root(t.name).name: i for i, node in enumerate(nodes) for t in node.inputs}
        self._needed |= dict.fromkeys((graph.root(name).name for name in graph.outputs), len(nodes))
        # Other tensors have their bytes there, which has to be whole for their readers.
        self._needed |= dict.fromkeys(shared, len(nodes))
        self._inputs = {graph.root(name).name for name in graph.inputs}

    def within(self, across: Collection[int] | None, longest: int) -> Iterator[Segment]:
        """As `segments_of` lists them."""
        for first in range(len(self._own)):
            run = _Run()
            for end in range(first + 1, min(first + longest, len(self._own)) + 1):
                if not run.add(self._own[end - 1]):
                    break
                wanted = across is None or any(position in across for position in range(first, end))
                segment = self._segment(run, first, end) if wanted and end - first > 1 else None
                if segment is not None:
                    yield segment

    def _segment(self, run: _Run, first: int, end: int) -> Segment | None:
        """Nodes [first, end) as a segment, in the order that needs the shorter line buffers: theirs, or the late one.

        None where a tensor from inside is needed outside, or the rows do not go together.
        """
        segment = self._in_order(run, first)
        late = () if segment is None else _late(segment.layers)
        if segment is None or late == tuple(range(end - first)):
            return segment
        other = _Run()
        if not all(other.add(self._own[first + i]) for i in late):
            return segment
        moved = self._in_order(other, first)
        if moved is None or sum(moved.line_bytes) >= sum(segment.line_bytes):
            return segment
        return replace(moved, order=late)

    def _in_order(self, run: _Run, first: int) -> Segment | None:
        """The nodes of a run, which start at position `first`, as a segment; None where they cannot be one."""
        end = first + len(run.layers)
        names = list(run.inside)
        if any(self._needed.get(name, -1) >= end for name in names[:-1]) or not self._inputs.isdisjoint(names):
            return None
        rows = run.shapes[run.source][1] if run.source else 0
        row_bytes = self._graph.tensor(run.source).size_bytes // rows if run.source else 0
        layers = tuple(run.layers)
        laid_out = _laid_out(layers, _in_place(run.replaced, layers), row_bytes)
        if laid_out is None:
            return None
        in_place_of, on_demand, result = laid_out
        return Segment(
            first,
            end,
            run.source,
            rows,
            names[-1],
            layers,
            result.capacities,
            in_place_of,
            result.distance_bytes,
            on_demand,
        )


def segments_of(
    graph: Graph,
    nodes: Sequence[LoweredNode],
    across: Collection[int] | None = None,
    longest: int = MAX_LAYERS,
    shared: Collection[str] = (),
) -> tuple[Segment, ...]:
    """Every run of 2 to `longest` nodes that can be a segment. across: positions, one of which has to be among them.

    shared: tensors (roots) that lie in others or hold others, none of which may be in lines only.
    """
    return tuple(_Segments(graph, nodes, shared).within(across, longest))


@dataclass(frozen=True, slots=True)
class Choice:
    """The bytes that a single node or a segment needs with everything else that is alive then, and its positions.

    overhead: cycles that the segment costs more than its layers one by one.
    """

    first: int
    end: int
    held_bytes: int
    segment: Segment | None
    overhead: float = 0.0


Path = tuple[tuple[float, float], tuple[Segment, ...]]
"""The cost of a way through all nodes, in two parts of which the first one counts more, and its segments."""


def number_of_segments(choice: Choice) -> tuple[float, float]:
    """The cost of a choice where segments are to be few, and short among equally few."""
    return (1, choice.end - choice.first) if choice.segment else (0, 0)


def overhead_of_segments(choice: Choice) -> tuple[float, float]:
    """The cost of a choice where overhead is to be small, and segments are to be few at equal overhead."""
    return choice.overhead, 1 if choice.segment else 0


def best_path(
    choices: Sequence[Choice], count: int, limit: int, cost: Callable[[Choice], tuple[float, float]]
) -> Path | None:
    """The cheapest way through `count` nodes that holds at most `limit` bytes anywhere; None where no way does.

    choices: in the order of their first nodes. Of equally cheap ways the first one counts.
    """
    best: list[Path | None] = [((0, 0), ()), *[None] * count]
    for choice in choices:
        before = best[choice.first]
        if before is None or choice.held_bytes > limit:
            continue
        more = cost(choice)
        total = before[0][0] + more[0], before[0][1] + more[1]
        current = best[choice.end]
        if current is None or total < current[0]:
            best[choice.end] = total, before[1] + ((choice.segment,) if choice.segment else ())
    return best[count]


def possible_limits(choices: Sequence[Choice], count: int) -> list[int]:
    """The numbers of bytes that choices hold, from the least one on under which there is a way through `count` nodes."""
    limits = sorted({choice.held_bytes for choice in choices})

    def possible(limit: int) -> bool:
        return best_path(choices, count, limit, number_of_segments) is not None

    return limits[bisect_left(limits, True, key=possible) :]


# ---- costs ----


PER_ROW = 150
"""Cycles of one row's call in addition to its work."""
PER_BYTE = 0.5
"""Cycles for each byte that is moved."""
PORTABLE_WINDOW_SHARE = 0.07
"""What a layer with a portable kernel costs more whose window's parameters are set row by row, as a share: otherwise the
compiler knows how often loops run. Measured with person_detect.
"""
OTHER_WINDOW_SHARE = 0.01
"""The same for kernels that are written for a core, whose inner loops are in assembler or count to constants."""

SOLE_USER_PER_RUN = 40
"""The same, in cycles for every row of every window, for a kernel that serves this layer alone, to whose numbers the compiler
fits what reads the windows otherwise. Measured with the first layer of person_detect, of one channel.
"""


FITTED_SHARE = 0.03
"""The share of a kernel that is printed for the layer's numbers (`ByRows.fitted`) and serves one layer, where a row costs at
least FITTED_ROW, so that its set-up is little. Measured with ic_resnet, micro_kws and person_detect."""
FITTED_ROW = 10_000


def layer_overhead(
    layer: Layer, cost: float, rows: int, capacity: int, row_bytes: int, *, window: bool, sole_user: bool
) -> float:
    """The extra cycles of a layer that runs row by row in a segment.

    cost: cycles of the layer run whole. capacity: rows that its line buffer holds; window: whether its parameters are
    set row by row; sole_user: whether no other layer has its kernel.
    """
    sole_runs = window_runs(layer.params, rows) if sole_user else 0
    kept = max(0, capacity - 1)
    slid = max(0, rows - capacity) * kept * row_bytes
    portable = layer.variant == PORTABLE
    share = (PORTABLE_WINDOW_SHARE if portable else OTHER_WINDOW_SHARE) if window else 0.0
    own = SOLE_USER_PER_RUN * sole_runs if window and not portable else 0
    if sole_runs and window and layer.by_rows and layer.by_rows.fitted and cost >= FITTED_ROW * rows:
        share, own = FITTED_SHARE, 0
    alone = layer.by_rows.alone if layer.by_rows else 0.0
    return (share + alone + tail_waste(layer)) * cost + own + PER_ROW * rows + PER_BYTE * slid


def tail_waste(layer: Layer) -> float:
    """The share of pixels that the kernel computes in vain at the end of each row."""
    width = next((int(param.value) for param in layer.params if param.name == "out_w"), 0)
    return -width % layer.by_rows.tile / width if layer.by_rows and width else 0.0


def window_runs(params: Sequence[Param], rows: int) -> int:
    """Rows of the windows of all pixels in `rows` rows of a layer's output. params: its window's, among others."""
    values = {param.name: int(param.value) for param in params if param.name in ("out_w", "kernel_h")}
    return rows * values.get("out_w", 0) * values.get("kernel_h", 0)


def sole_users(kernels: Mapping[int, str]) -> frozenset[int]:
    """The layers, by index, whose kernel no other layer has. kernels: their names, by index."""
    counts = Counter(kernels.values())
    return frozenset(index for index, kernel in kernels.items() if counts[kernel] == 1)


def segment_overhead(
    nodes: Sequence[LoweredNode], segment: Segment, costs: Mapping[int, float], sole: Collection[int]
) -> float:
    """The extra cycles of a segment.

    nodes: its own; costs: cycles of layers run whole, by the index of the node; sole: nodes with kernels that no other
    node has.
    """
    return sum(
        layer_overhead(
            node.layer,
            costs.get(node.bound.node.index, 0.0),
            rows.rows,
            capacity,
            rows.row_bytes,
            window=is_window(node.layer, rows),
            sole_user=node.bound.node.index in sole,
        )
        for node, rows, capacity in zip(nodes, segment.layers, segment.capacities, strict=True)
    )

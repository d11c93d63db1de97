"""The memory that a schedule needs: buffers with live ranges, the overlaps that are safe, and buffers inside others.

Every operand that is not a constant is a buffer of the arena, alive from the stage that writes it to its last reader; tensors
that share bytes share a buffer; scratch and line buffers live for their stage. A tensor that is moved is another buffer from
there on. An overlap that a layer or a segment declares applies only where its input is read for the last time at that stage.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from math import lcm

from emitc.ir import Graph
from emitc.planner import Buffer, Distance, LiveRange, ScratchRequest, buffers_of
from emitc.planner import Step as PlannerStep
from emitc.records import dataclass, replace
from emitc.schedule.row_overlap import SOURCE, TARGET, near
from emitc.schedule.stages import (
    LoweredNode,
    Stage,
    buffer_name,
    in_arena,
    lines_name,
    place_of,
    placed,
    scratch_name,
    scratch_of,
)

Hosts = Mapping[str, tuple[str, int]]
"""By tensor (root) that lies inside another one: that one, and the offset in it."""


def step_of(graph: Graph, stage: Stage, moved: Mapping[str, int], hosts: Hosts) -> PlannerStep:
    """The buffers that a stage reads, writes and uses as scratch."""

    def buffer(name: str) -> str:
        root, _ = place_of(hosts, graph.root(name).name)
        return buffer_name(root, moved.get(root, 0))

    if stage.moved:
        count = moved.get(stage.moved, 0)
        return PlannerStep((buffer_name(stage.moved, count),), (buffer_name(stage.moved, count + 1),))
    if stage.segment is not None:
        segment = stage.segment
        lines = zip(stage.nodes, segment.line_bytes, strict=False)
        requests = tuple(ScratchRequest(lines_name(node), size) for node, size in lines if size)
        working = tuple(ScratchRequest(name, size) for name, size in scratch_of(stage))
        read = (buffer(segment.source),) if segment.source else ()
        return PlannerStep(read, (buffer(segment.target),), (*requests, *working))
    (node,) = stage.nodes
    return PlannerStep(
        tuple(buffer(t.name) for t in node.inputs if in_arena(graph, t.name)),
        tuple(buffer(t.name) for t in node.bound.outputs if in_arena(graph, t.name)),
        tuple(ScratchRequest(name, size) for name, size in scratch_of(stage)),
    )


def arena_buffers(graph: Graph, stages: Sequence[Stage], alignment: int, hosts: Hosts) -> tuple[Buffer, ...]:
    """The arena's buffers with their live ranges, named after the tensors that own the bytes (`buffer_name`)."""
    steps = [step_of(graph, stage, moved, hosts) for stage, moved in placed(stages)]
    sizes, last = graph.sizes, dict[str, int]()
    for stage, moved in placed(stages):
        if stage.moved:
            last[stage.moved] = moved.get(stage.moved, 0) + 1
            sizes = {**sizes, buffer_name(stage.moved, last[stage.moved]): sizes[stage.moved]}
    roots = [graph.root(name).name for name in graph.outputs if in_arena(graph, name)]
    outputs = dict.fromkeys(buffer_name(root, last.get(root, 0)) for root in roots)
    return buffers_of(steps, sizes, graph.written_inputs, tuple(outputs), alignment)


def parts_in(graph: Graph, buffers: Sequence[Buffer], hosts: Hosts) -> tuple[PinnedBuffer, ...]:
    """The tensors that lie inside other tensors. Each lives as long as its host."""
    by_name = {buffer.name: buffer for buffer in buffers}
    return tuple(
        PinnedBuffer(Buffer(part, graph.tensor(part).size_bytes, by_name[host].live), host, offset)
        for part, (host, offset) in hosts.items()
    )


def pins_of(graph: Graph, nodes: Sequence[LoweredNode]) -> dict[str, tuple[str, int]]:
    """Buffer and offset of each buffer that a layer wants inside its scratch, or inside another tensor."""
    pins: dict[str, tuple[str, int]] = {}
    for node in nodes:
        for place in node.layer.places:
            assert place.tensor not in pins, f"{place.tensor} has two places"
            pins[place.tensor] = place.inside, place.offset_bytes
        for pin in node.layer.pins:
            tensors = node.bound.outputs if pin.output else node.inputs
            name = graph.root(tensors[pin.position].name).name
            assert name not in pins, f"{name} is pinned twice"
            pins[name] = scratch_name(node, pin.scratch), pin.offset_bytes
    return pins


@dataclass(frozen=True, slots=True)
class PinnedBuffer:
    """A buffer inside another one, `offset_bytes` after its first byte."""

    buffer: Buffer
    inside: str
    offset_bytes: int


def pinned(
    buffers: Sequence[Buffer], pins: Mapping[str, tuple[str, int]]
) -> tuple[tuple[Buffer, ...], tuple[PinnedBuffer, ...]]:
    """The buffers to plan, each alive as long as the buffers inside it, and the buffers that lie inside others."""
    inner = tuple(PinnedBuffer(b, *pins[b.name]) for b in buffers if b.name in pins)
    held: dict[str, list[PinnedBuffer]] = {}
    for pin in inner:
        held.setdefault(pin.inside, []).append(pin)
    outer = []
    for buffer in buffers:
        if buffer.name in pins:
            continue
        within = held.get(buffer.name, ())
        assert all(pin.offset_bytes + pin.buffer.size_bytes <= buffer.size_bytes for pin in within)
        first = min([buffer.live.first, *(pin.buffer.live.first for pin in within)])
        end = max([buffer.live.end, *(pin.buffer.live.end for pin in within)])
        outer.append(replace(buffer, live=LiveRange(first, end)) if within else buffer)
    return tuple(outer), inner


def _overlaps(graph: Graph, stage: Stage) -> list[tuple[str, str, int, int]]:
    """Pairs of tensors (roots), read and written by a stage, the distance at which they may share memory, and its multiple."""
    if stage.segment is not None:
        segment = stage.segment
        return [(segment.source, segment.target, segment.distance_bytes, 1)] if segment.source else []
    if stage.moved or not stage.nodes[0].layer.overlaps:
        return []
    (node,) = stage.nodes
    roots = [graph.root(t.name).name for t in node.inputs]
    overlaps = []
    for overlap in node.layer.overlaps:
        operand = graph.root(node.bound.input(overlap.input).name).name
        if in_arena(graph, operand) and roots.count(operand) == 1:
            output = graph.root(node.bound.outputs[overlap.output].name).name
            overlaps.append((operand, output, overlap.distance_bytes, overlap.multiple))
    return overlaps


Safe = Mapping[tuple[str, str], tuple[int, int]]
"""By buffers that a stage reads and writes: the least distance at which they may share bytes, and its multiple."""


def safe_overlaps(graph: Graph, stages: Sequence[Stage], buffers: Sequence[Buffer], hosts: Hosts) -> tuple[Safe, ...]:
    """What of the buffers of each stage may share bytes."""
    live = {buffer.name: buffer.live for buffer in buffers}
    kept = {graph.root(name).name for name in graph.outputs}
    safe: list[dict[tuple[str, str], tuple[int, int]]] = []
    for position, (stage, moved) in enumerate(placed(stages)):
        safe.append({})
        overlaps = _overlaps(graph, stage)
        for operand, output, distance, multiple in overlaps:
            (source, read_at), (target, written_at) = place_of(hosts, operand), place_of(hosts, output)
            name = buffer_name(source, moved.get(source, 0))
            if name not in live or target not in live:  # a place inside some scratch is decided
                continue
            if live[name].end != position + 1 or live[target].first != position or source in kept or source == target:
                continue
            above = distance - read_at + written_at
            if above > graph.tensor(target).size_bytes or above % multiple:
                continue
            read = () if stage.segment else (graph.root(t.name).name for node in stage.nodes for t in node.inputs)
            covered = {other for other, *_ in overlaps}
            if any(place_of(hosts, root)[0] == source for root in read if root not in covered):
                continue
            others = safe[-1].get((name, target), (above, 1))
            safe[-1][name, target] = max(above, others[0]), lcm(multiple, others[1])
    return tuple(safe)


def in_multiples(buffers: Sequence[Buffer], safe: Iterable[Safe]) -> tuple[Buffer, ...]:
    """The buffers, those at such offsets that overlap only at a multiple of some bytes."""
    multiples: dict[str, int] = {}
    for overlaps in safe:
        for pair, (_, multiple) in overlaps.items():
            multiples |= {name: lcm(multiple, multiples.get(name, 1)) for name in pair}
    return tuple(
        replace(buffer, multiple=multiple) if (multiple := multiples.get(buffer.name, 1)) != buffer.multiple else buffer
        for buffer in buffers
    )


def distances(
    graph: Graph, stages: Sequence[Stage], buffers: Sequence[Buffer], hosts: Hosts, safe: Sequence[Safe]
) -> tuple[Distance, ...]:
    """The overlaps that are safe: the input's buffer dies at the stage, and no other operand of the stage shares it, but
    one that may be overlapped as well: the larger distance counts then.

    A graph output is needed after the last stage, although its live range ends there. A tensor may be moved anywhere.
    safe: as `safe_overlaps` gives it for the same buffers.
    """
    live = {buffer.name: buffer.live for buffer in buffers}
    result: list[Distance] = []
    for position, (stage, moved) in enumerate(placed(stages)):
        if stage.moved:
            count = moved.get(stage.moved, 0)
            size = graph.tensor(stage.moved).size_bytes
            result.append(Distance(buffer_name(stage.moved, count), buffer_name(stage.moved, count + 1), above=-size))
        result += [Distance(*pair, above=above, below=None) for pair, (above, _) in safe[position].items()]
        if stage.segment is not None:
            result += _in_segment(graph, stage, position, moved, live, hosts)
    return tuple(result)


def _in_segment(
    graph: Graph, stage: Stage, position: int, moved: Mapping[str, int], live: Mapping[str, LiveRange], hosts: Hosts
) -> Iterator[Distance]:
    """How close the buffers of a segment may lie. `_overlaps` says it for the segment's source and target."""
    segment = stage.segment
    assert segment is not None
    hosting = {host for host, _ in hosts.values()}
    kept = {graph.root(name).name for name in graph.outputs}
    source, target = buffer_name(segment.source, moved.get(segment.source, 0)), segment.target
    names = {}
    if source in live and live[source].end == position + 1 and not {segment.source} & (kept | hosting):
        names[SOURCE] = source
    if target in live and live[target].first == position and target not in hosting:
        names[TARGET] = target
    source_bytes = graph.tensor(segment.source).size_bytes if segment.source else 0
    near_rows = near(stage, source_bytes)
    for (i, one), (j, other) in combinations(enumerate(near_rows.names), 2):
        if (one, other) != (SOURCE, TARGET) and {one, other} & {SOURCE, TARGET} <= set(names):
            left, right = int(near_rows.sizes[i]), int(near_rows.sizes[j])
            above, below = min(int(near_rows.above[i, j]), right), min(int(near_rows.above[j, i]), left)
            if above < right or below < left:
                yield Distance(names.get(one, one), names.get(other, other), above=above, below=below)


def step_distances(graph: Graph, stages: Sequence[Stage]) -> dict[int, list[Distance]]:
    """By stage: every overlap that its layer declares, whether its input dies there or not; for a search of the order."""
    kept = {graph.root(name).name for name in graph.outputs}
    result: dict[int, list[Distance]] = {}
    for position, stage in enumerate(stages):
        for operand, output, distance, _ in _overlaps(graph, stage):
            if operand not in kept:
                result.setdefault(position, []).append(Distance(operand, output, above=distance, below=None))
    return result


def buffers_to_plan(
    graph: Graph, stages: Sequence[Stage], nodes: Sequence[LoweredNode], hosts: Hosts, alignment: int, *, overlaps: bool
) -> tuple[tuple[Buffer, ...], tuple[PinnedBuffer, ...], tuple[Distance, ...]]:
    """The buffers to plan, those that lie inside them, and which of the former may share memory: none without `overlaps`."""
    outer, inner = pinned(arena_buffers(graph, stages, alignment, hosts), pins_of(graph, nodes))
    pairs: tuple[Distance, ...] = ()
    if overlaps:
        safe = safe_overlaps(graph, stages, outer, hosts)
        outer = in_multiples(outer, safe)
        pairs = distances(graph, stages, outer, hosts, safe)
    return outer, (*inner, *parts_in(graph, outer, hosts)), pairs

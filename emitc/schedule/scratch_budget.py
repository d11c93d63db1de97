"""How much scratch the kernels get, by what it costs in bytes of arena and saves in cycles.

Kernels that need scratch are the fast ones. By default every layer gets the kernel of the fewest cycles. Where that makes the
arena larger by more than a share, the layers at the peak get less scratch. With `--optimize size` the arena stays that of kernels
without scratch. With `--ram-budget min` it does so too, unless that costs many cycles: then scratch may add a few per cent. A
budget in bytes is met first, and what is left of it goes to faster kernels. Some kernels get only what is left.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from emitc.backends.contract import PORTABLE
from emitc.errors import CannotCompile
from emitc.schedule.arenas import Arenas
from emitc.schedule.stages import LoweredNode

Limits = Mapping[int, int]
"""Of scratch: bytes by a node's index; any number where it has none."""
Scheduled = Callable[[Limits], Arenas]
"""The schedule with its memory under limits of scratch."""
ByRows = Callable[[Limits, int, bool], Arenas]
"""The same with row streaming: the limits, the bytes of arena that are to be met, and whether first fit may meet them."""

DEFAULT_SHARE = 0.06
"""Of an arena without scratch: what the default may add to it."""
DEFAULT_BYTES = 240
"""What it may add in any case."""
DEFAULT_COST_RATIO_LIMIT = 1.2
"""Kernels with less scratch may cost so many times what the fastest ones do, and as much more as the arena gets smaller: cost
times arena, both against the fastest kernels', stays below it. Otherwise the fastest are taken all the same."""
STREAMED_COST_RATIO_LIMIT = 1.05
STREAMED_GAIN = 0.9
"""The same where the fastest kernels run row by row already: so much cost, for an arena of at most this share."""
LEAST_SHARES = (0.0, 1 / 32, 1 / 12)
"""The same for the smallest arena: the first share at which the cost is at most COST_RATIO_LIMIT times the fastest kernels'."""
COST_RATIO_LIMIT = 1.2
WHOLE = 1 << 62
"""A budget that layers one by one meet."""
ROWS_SHARE = 0.25
"""Of the smallest arena: what scratch may add to it where row streaming is compared with kernels that have less scratch."""
ROWS_GAIN = 0.9
"""Of the arena with less scratch: the most that row streaming may need then."""
ROWS_LAYERS = 24
"""Layers of a model up to which that is tried."""
_ROUNDS = 6
"""How often layers that run where the arena is full get less."""


def fit_scratch(
    scheduled: Scheduled, nodes: Sequence[int], budget: int | str | None, optimize: str, by_rows: ByRows | None = None
) -> Arenas:
    """The schedule with as much scratch as the options allow, and with faster kernels in memory that is free then.

    nodes: indices of all nodes. budget, optimize: the values of `--ram-budget` and `--optimize`. by_rows: None where no
    layers are to run row by row by default.
    """
    arenas = _fit(scheduled, nodes, budget, optimize, by_rows)
    return arenas if optimize == "size" else _with_spare(scheduled, arenas, budget, by_rows)


def _fit(
    scheduled: Scheduled, nodes: Sequence[int], budget: int | str | None, optimize: str, by_rows: ByRows | None
) -> Arenas:
    """The same without those kernels."""
    fastest, small = scheduled({}), optimize == "size"
    if not small and not isinstance(budget, str):
        limit = max(fastest.plan.arena_bytes, budget if isinstance(budget, int) else 0)
        fastest = _fast_by_rows(scheduled, fastest, limit)
    if budget is None and not small:
        if any(node.staged for node in fastest.nodes()):
            return fastest  # who has weights copied wants speed, and said how many bytes the region has
        if _has_segments(fastest) and (_little(fastest) or _saving(fastest, by_rows)):
            return _streamed(scheduled, nodes, fastest)
        if _little(fastest):
            return fastest
    if isinstance(budget, int) and not small and fastest.plan.arena_bytes <= budget:
        return fastest
    without_scratch = scheduled(dict.fromkeys(nodes, 0))
    least = without_scratch.plan.arena_bytes
    if small:
        limits = [least]
    elif budget is None:
        limits = [_default_limit(least)]
    elif isinstance(budget, str):
        # Where nothing runs row by row the default's arena is the smallest, or nearly so.
        largest = 1.0 if _has_segments(without_scratch) else DEFAULT_SHARE
        limits = [int(least * (1 + min(share, largest))) for share in LEAST_SHARES]
    else:
        limits = [max(budget, least)]
    best = without_scratch
    for limit in limits:
        for fitted in _fitted(scheduled, fastest, without_scratch, limit, one_kernel_per_type=small):
            best = min(best, fitted, key=Arenas.cycles)
            if best.cycles() <= COST_RATIO_LIMIT * fastest.cycles():
                return best
    if budget is not None or small:
        return best
    cost_limit = DEFAULT_COST_RATIO_LIMIT * fastest.cycles()
    if best.plan.arena_bytes / fastest.plan.arena_bytes * best.cycles() > cost_limit:
        best = fastest
    return best if by_rows is None else _rows(by_rows, nodes, best, cost_limit)


def _default_limit(least: int) -> int:
    return least + max(int(least * DEFAULT_SHARE), DEFAULT_BYTES)


def _streamed(scheduled: Scheduled, nodes: Sequence[int], fastest: Arenas) -> Arenas:
    """The fastest kernels, which run row by row; or some with less scratch, where more layers can run so for few cycles."""
    without_scratch = scheduled(dict.fromkeys(nodes, 0))
    least, most = without_scratch.plan.arena_bytes, STREAMED_GAIN * fastest.plan.arena_bytes
    if least > most:
        return fastest
    limit = _default_limit(least)
    fitted = _fitted(scheduled, fastest, without_scratch, limit, one_kernel_per_type=False)
    best = min(fitted, key=Arenas.cycles, default=fastest)
    few = best.cycles() <= STREAMED_COST_RATIO_LIMIT * fastest.cycles()
    return best if few and best.plan.arena_bytes <= most else fastest


def _with_spare(scheduled: Scheduled, best: Arenas, budget: int | str | None, by_rows: ByRows | None) -> Arenas:
    """The schedule with kernels that use what it leaves free of its own arena, of the budget, or of regions with copies."""
    offers = (offer for choice in best.partition.choices.values() for offer in choice.offers.values())
    if not any(candidate.spare for offer in offers for candidate in offer.candidates):
        return best
    room = _room(best) if budget is None else budget if isinstance(budget, int) else 0
    limit = max(best.plan.arena_bytes, room)

    def tried(limits: Limits) -> Arenas | None:
        """None where the regions are too small."""
        try:
            return by_rows(limits, limit, False) if by_rows and _has_segments(best) else scheduled(limits)
        except CannotCompile:
            return None

    limits: dict[int, int] = {}
    for position, stage in enumerate(best.schedule.stages):
        alive = [p for p in best.plan.placements if p.live.first <= position < p.live.end]
        used = {at for p in alive for at in range(p.offset_bytes, p.offset_bytes + p.size_bytes, best.plan.alignment)}
        free = limit - len(used) * best.plan.alignment + max(map(_scratch, stage.nodes), default=0)
        limits |= {node.bound.node.index: free for node in stage.nodes}
    for _ in range(_ROUNDS):
        arenas = tried(limits)
        if arenas is None:
            limits = {index: size // 2 for index, size in limits.items()}
            continue
        if arenas.plan.arena_bytes <= limit:
            return min(best, arenas, key=Arenas.cycles_with_waits)
        if not (further := _less(arenas, limit)):
            break
        limits |= further
    return best


def _room(arenas: Arenas) -> int:
    """Bytes of the regions where weights are copied: who has that done said how many there are. 0 elsewhere."""
    if arenas.in_regions is None or not any(node.staged for node in arenas.nodes()):
        return 0
    return sum(part.region.size_bytes for part in arenas.in_regions.assignment.regions)


def _has_segments(arenas: Arenas) -> bool:
    return any(stage.segment is not None for stage in arenas.schedule.stages)


def _saving(arenas: Arenas, by_rows: ByRows | None) -> bool:
    """Whether row streaming saves more than kernels with less scratch could."""
    if not _has_segments(arenas) or by_rows is None:
        return _has_segments(arenas)
    whole = by_rows({}, WHOLE, False).plan.arena_bytes
    return whole - arenas.plan.arena_bytes >= max(map(_scratch, arenas.nodes()))


def _rows(by_rows: ByRows, nodes: Sequence[int], default: Arenas, cost_limit: float) -> Arenas:
    """The default, or row streaming in less memory where that is estimated to cost no more.

    Where the default costs more than `cost_limit`, row streaming may also need more memory, as long as cost times arena is
    smaller.
    """
    if len(nodes) > ROWS_LAYERS:
        return default
    bare = by_rows(dict.fromkeys(nodes, 0), 0, False)
    limit = int(bare.plan.arena_bytes * (1 + ROWS_SHARE)) + bare.plan.alignment  # what rounding may take
    arena, cost = default.plan.arena_bytes, default.cycles()
    if not _has_segments(bare) or (limit > ROWS_GAIN * arena and cost <= cost_limit):
        return default
    limits = _free_bytes(bare, limit)
    best = by_rows(limits, limit, True)
    if best.plan.arena_bytes > limit:
        return default
    for index in [node.bound.node.index for node in best.nodes() if node.layer.scratch]:
        # The backend does not know about row streaming: a kernel of fewer pixels may suit single rows better.
        now = next(_scratch(node) for node in best.nodes() if node.bound.node.index == index)
        fewer = limits | {index: now - 1}
        tried = by_rows(fewer, limit, True)
        if tried.cycles() < best.cycles():
            best, limits = tried, fewer
            continue
        # As much as is free in the stage that the layer is in then, which the first plan may not show.
        more = {other: size for other, size in limits.items() if other != index}
        tried = by_rows(more, limit, True)
        less = _less(tried, limit)
        if tried.plan.arena_bytes > limit and index in less:
            more |= {index: less[index]}
            tried = by_rows(more, limit, True)
        if tried.plan.arena_bytes <= limit and tried.cycles() < best.cycles():
            best, limits = tried, more
    if best.cycles() > cost:
        return default
    best = by_rows(limits, limit, False)
    return best if best.plan.arena_bytes * best.cycles() < arena * cost else default


def _fitted(
    scheduled: Scheduled, fastest: Arenas, without_scratch: Arenas, limit: int, *, one_kernel_per_type: bool
) -> Iterator[Arenas]:
    """Schedules with scratch in an arena of at most `limit` bytes.

    From `fastest`, which has as much scratch as is useful, less where the arena is full; from `without_scratch`, which has none,
    what is left free. one_kernel_per_type: one kernel for all layers of a type.
    """

    def less(arenas: Arenas) -> dict[int, int]:
        smaller = _less(arenas, limit)
        return _of_a_type(arenas, smaller) if one_kernel_per_type else smaller

    for limits in (less(fastest),) if one_kernel_per_type else (less(fastest), _free_bytes(without_scratch, limit)):
        tried = scheduled(limits) if limits else fastest
        for _ in range(_ROUNDS):
            if tried.plan.arena_bytes <= limit:
                yield tried
                break
            if not (further := less(tried)):
                break
            limits = limits | further
            tried = scheduled(limits)


def _fast_by_rows(scheduled: Scheduled, arenas: Arenas, limit: int) -> Arenas:
    """The schedule without limits of scratch, or one that takes fewer cycles in an arena of at most `limit` bytes.

    A kernel that makes several rows in less time than one by one (`ByRows.alone`) may lose that to row streaming.
    """
    streamed = (node for stage in arenas.schedule.stages if stage.segment is not None for node in stage.nodes)
    slow = {
        node.bound.node.index: _scratch(node) - 1
        for node in streamed
        if node.layer.by_rows and node.layer.by_rows.alone and _scratch(node)
    }
    if not slow:
        return arenas
    tried = scheduled(slow)
    return tried if tried.plan.arena_bytes <= limit and tried.cycles() < arenas.cycles() else arenas


def _of_a_type(arenas: Arenas, less: Limits) -> dict[int, int]:
    """Limits of 0 for the layers that need less scratch, and for all other layers with the same kernels."""
    layers = {node.bound.node.index: node.layer for node in arenas.nodes()}
    templates = {layers[index].template for index in less if layers[index].scratch}
    return dict.fromkeys((*less, *(index for index, layer in layers.items() if layer.template in templates)), 0)


def _stages(arenas: Arenas) -> Iterator[tuple[int, tuple[LoweredNode, ...]]]:
    """For every stage with layers: the first byte after the buffers that are alive, and the layers."""
    for position, stage in enumerate(arenas.schedule.stages):
        if stage.nodes:
            alive = [p for p in arenas.plan.placements if p.live.first <= position < p.live.end]
            yield max((p.offset_bytes + p.size_bytes for p in alive), default=0), stage.nodes


def _free_bytes(arenas: Arenas, limit: int) -> dict[int, int]:
    """By layer: the bytes below `limit` that are free while it runs, in a schedule without scratch."""
    return {node.bound.node.index: max(0, limit - end) for end, nodes in _stages(arenas) for node in nodes}


def _scratch(node: LoweredNode) -> int:
    """The layer's scratch, if another kernel could do without it. Only emitc has several kernels for a layer."""
    return sum(scratch.size_bytes for scratch in node.layer.scratch) if node.backend == PORTABLE else 0


def _little(arenas: Arenas) -> bool:
    """Whether the arena is within the default's allowance over the least that its stages need without scratch."""
    least = max((end - max(map(_scratch, nodes)) for end, nodes in _stages(arenas)), default=0)
    return arenas.plan.arena_bytes <= least + max(least * DEFAULT_SHARE, DEFAULT_BYTES)


def _less(arenas: Arenas, limit: int) -> dict[int, int]:
    """Limits for the layers that run while the arena exceeds `limit`: their scratch, less the excess bytes."""
    chosen: dict[int, int] = {}
    for end, nodes in _stages(arenas):
        sizes = {node.bound.node.index: _scratch(node) for node in nodes}
        allowed = max(0, max(sizes.values()) - max(0, end - limit))
        chosen |= {index: allowed for index, size in sizes.items() if size > allowed}
    return chosen

"""How much working memory the kernels get, by what it costs in bytes of arena and brings in cycles.

Kernels that need working memory are the fast ones. By default every layer gets the one that costs least, but where that makes
the arena larger by more than a share, the layers at the peak get less. With `--optimize size` the arena stays that of kernels
without any; with `--ram-budget min` too, unless that costs much: then a few per cent of the arena are spent. A budget in bytes is
met before it is spent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from emitc.backends.contract import PORTABLE
from emitc.schedule.arenas import Arenas
from emitc.schedule.stages import LoweredNode

Limits = Mapping[int, int]
"""Of scratch: bytes by a node's index; any number where it has none."""
Arranged = Callable[[Limits], Arenas]
"""The schedule with its memory under limits of scratch."""
ByRows = Callable[[Limits, int, bool], Arenas]
"""The same with layers row by row: limits, the bytes of arena that are to be met, and whether it is enough to meet them, however
far below a search would come.
"""

DEFAULT_SHARE = 0.06
"""Of an arena without working memory: what the default may add to it."""
DEFAULT_BYTES = 240
"""What it may add in any case."""
DEFAULT_DEAR = 1.2
"""Leaner kernels for that may cost so many times what the fastest ones do, and as much more as the arena gets smaller: cost times
arena, both against the fastest kernels', stays below it. Otherwise the fastest are taken all the same."""
LEAST_SHARES = (0.0, 1 / 32, 1 / 12)
"""The same for the smallest arena: the first of these at which the cost is at most DEAR times that of the fastest kernels."""
DEAR = 1.2
WHOLE = 1 << 62
"""A budget that layers one by one meet."""
ROWS_SHARE = 0.25
"""Of the smallest arena: what working memory may add to it where layers row by row are looked at beside leaner kernels."""
ROWS_GAIN = 0.9
"""Of the arena that leaner kernels give: the most that they may need then."""
ROWS_LAYERS = 24
"""Layers of a model up to which that is tried."""
_ROUNDS = 6
"""How often layers that run where the arena is full get less."""


def fit_scratch(
    arranged: Arranged,
    nodes: Sequence[int],
    budget: int | str | None,
    optimize: str,
    by_rows: ByRows | None = None,
) -> Arenas:
    """The schedule with as much scratch as it is to have.

    nodes: indices of all. budget, optimize: the values of `--ram-budget` and `--optimize`. by_rows: None where no layers are to
    run row by row by default.
    """
    found = arranged({})
    if budget is None and optimize != "size" and (_little(found) or _saving(found, by_rows)):
        return found
    if isinstance(budget, int) and optimize != "size" and found.plan.arena_bytes <= budget:
        return found
    spare = arranged(dict.fromkeys(nodes, 0))
    least = spare.plan.arena_bytes
    if optimize == "size":
        most = [least]
    elif budget is None:
        most = [least + max(int(least * DEFAULT_SHARE), DEFAULT_BYTES)]
    elif isinstance(budget, str):
        # Where nothing runs row by row the default's arena is the smallest, or nearly so.
        largest = 1.0 if _has_segments(spare) else DEFAULT_SHARE
        most = [int(least * (1 + min(share, largest))) for share in LEAST_SHARES]
    else:
        most = [max(budget, least)]
    enough = DEAR * found.cycles()
    best = spare
    for limit in most:
        for fitted in _fitted(arranged, found, spare, limit, alike=optimize == "size"):
            if fitted.cycles() < best.cycles():
                best = fitted
            if best.cycles() <= enough:
                return best
    if budget is None and optimize != "size":
        smaller = best.plan.arena_bytes / found.plan.arena_bytes
        if smaller * best.cycles() > DEFAULT_DEAR * found.cycles():
            best = found
        return best if by_rows is None else _rows(by_rows, nodes, best, DEFAULT_DEAR * found.cycles())
    return best


def _has_segments(arenas: Arenas) -> bool:
    return any(stage.segment is not None for stage in arenas.arrangement.stages)


def _saving(arenas: Arenas, by_rows: ByRows | None) -> bool:
    """Whether layers row by row save more than leaner kernels could."""
    if not _has_segments(arenas) or by_rows is None:
        return _has_segments(arenas)
    whole = by_rows({}, WHOLE, False).plan.arena_bytes
    return whole - arenas.plan.arena_bytes >= max(map(_scratch, arenas.nodes()))


def _rows(by_rows: ByRows, nodes: Sequence[int], default: Arenas, dear: float) -> Arenas:
    """The default, or layers row by row in less memory where that is estimated to cost no more.

    Where the default costs more than `dear`, they may also need more memory than it, as long as cost times arena is smaller.
    """
    if len(nodes) > ROWS_LAYERS:
        return default
    bare = by_rows(dict.fromkeys(nodes, 0), 0, False)
    limit = int(bare.plan.arena_bytes * (1 + ROWS_SHARE)) + bare.plan.alignment  # what rounding may take
    arena, cost = default.plan.arena_bytes, default.cycles()
    if not _has_segments(bare) or (limit > ROWS_GAIN * arena and cost <= dear):
        return default
    limits = _room(bare, limit)
    best = by_rows(limits, limit, True)
    if best.plan.arena_bytes > limit:
        return default
    for index in [node.bound.node.index for node in best.nodes() if node.layer.scratch]:
        # A kernel of fewer pixels may suit the rows better, of which the backend knows nothing.
        now = next(_scratch(node) for node in best.nodes() if node.bound.node.index == index)
        fewer = limits | {index: now - 1}
        tried = by_rows(fewer, limit, True)
        if tried.cycles() < best.cycles():
            best, limits = tried, fewer
            continue
        # As much as there is room for in the stage that the layer is in then, which the first plan may not show.
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


def _fitted(arranged: Arranged, found: Arenas, spare: Arenas, most: int, *, alike: bool) -> Iterator[Arenas]:
    """With working memory where there is room for it, in an arena of at most `most` bytes: what is found to be so.

    From `found`, which has as much as is useful, less where the arena is full; from `spare`, which has none, what is left free.
    alike: one kernel for all layers of a kind.
    """
    less = _less(found, most)
    if alike:
        less = _of_a_kind(found, less)
    for limits in (less,) if alike else (less, _room(spare, most)):
        tried = found if not limits else arranged(limits)
        for _ in range(_ROUNDS):
            if tried.plan.arena_bytes <= most:
                yield tried
                break
            less = _less(tried, most)
            if alike:
                less = _of_a_kind(tried, less)
            if not less:
                break
            limits = limits | less
            tried = arranged(limits)


def _of_a_kind(arenas: Arenas, less: Limits) -> dict[int, int]:
    """No scratch for the layers that are to have less, and for all others with the kernels of these."""
    layers = {node.bound.node.index: node.layer for node in arenas.nodes()}
    templates = {layers[index].template for index in less if layers[index].scratch}
    return dict.fromkeys((*less, *(index for index, layer in layers.items() if layer.template in templates)), 0)


def _stages(arenas: Arenas) -> Iterator[tuple[int, tuple[LoweredNode, ...]]]:
    """The layers of every stage that has any, by its position."""
    return ((at, stage.nodes) for at, stage in enumerate(arenas.arrangement.stages) if stage.nodes)


def _room(arenas: Arenas, most: int) -> dict[int, int]:
    """What is free below `most` when each layer of a schedule without scratch runs."""
    return {node.bound.node.index: max(0, most - _end(arenas, at)) for at, nodes in _stages(arenas) for node in nodes}


def _scratch(node: LoweredNode) -> int:
    """Bytes that a leaner kernel could do without: of emitc's own kernels, since the others have one each."""
    return sum(scratch.size_bytes for scratch in node.layer.scratch) if node.backend == PORTABLE else 0


def _little(arenas: Arenas) -> bool:
    """Whether scratch can hardly be more of the arena than the default may spend: by what each stage needs without."""
    bare = [_end(arenas, at) - max(map(_scratch, nodes)) for at, nodes in _stages(arenas)]
    least = max(bare, default=0)
    return arenas.plan.arena_bytes <= least + max(least * DEFAULT_SHARE, DEFAULT_BYTES)


def _end(arenas: Arenas, position: int) -> int:
    """The first byte after those that are held at a stage."""
    alive = [p for p in arenas.plan.placements if p.live.first <= position < p.live.end]
    return max((p.offset_bytes + p.size_bytes for p in alive), default=0)


def _less(arenas: Arenas, most: int) -> dict[int, int]:
    """Scratch for those that run while bytes beyond `most` are held: what they have, less what is too much."""
    found: dict[int, int] = {}
    for position, nodes in _stages(arenas):
        sizes = {node.bound.node.index: _scratch(node) for node in nodes}
        allowed = max(0, max(sizes.values()) - max(0, _end(arenas, position) - most))
        found |= {index: allowed for index, size in sizes.items() if size > allowed}
    return found

"""How much working memory the kernels get, by what it costs in bytes of arena and brings in cycles.

Kernels that need working memory are the fast ones. By default every layer gets the one that costs least, but where that makes
the arena larger by more than a share, the layers at the peak get less. With `--optimize size` the arena stays that of kernels
without any; with `--ram-budget min` too, unless that costs much: then a few per cent of the arena are spent. A budget in bytes is
met before it is spent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from emitc.backends.contract import PORTABLE
from emitc.backends.partition import Partition
from emitc.errors import CannotCompile, Where
from emitc.program import Program, RowSegment, Step
from emitc.schedule.row_costs import PER_BYTE, alone, layer_overhead

Lowered = tuple[Partition, Program]
ByRows = Callable[[Mapping[int, int], int, bool], Lowered]
"""The graph lowered with layers row by row: limits of working memory in bytes by a node's index, the bytes of arena that are to
be met, and whether it is enough to meet them, however far below a search would come.
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


def estimated(partition: Partition, program: Program) -> float:
    """Cycles of one inference: of the layers as their backends estimate them, and of rows and moves."""
    costs = {assignment.index: assignment.cost for assignment in partition.assignments}
    single = alone({step.index: step.kernel for step in program.steps})
    rows = sum(
        layer_overhead(
            partition.layers[call.step.index],
            costs.get(call.step.index, 0.0),
            call.makes.rows,
            call.makes.room,
            call.makes.row_bytes,
            window=call.step.window,
            alone=call.step.index in single,
        )
        for segment in program.segments
        for call in segment.calls
    )
    return sum(costs.values()) + rows + PER_BYTE * sum(move.size_bytes for move in program.moves)


def fit_scratch(
    lowered: Callable[[Mapping[int, int]], Lowered],
    nodes: Sequence[int],
    budget: int | str | None,
    optimize: str,
    by_rows: ByRows | None = None,
) -> Lowered:
    """The graph lowered with as much working memory as it is to have.

    lowered: for limits in bytes by a node's index, any where there is none. nodes: indices of all. budget, optimize: the values
    of `--ram-budget` and `--optimize`. by_rows: None where no layers are to run row by row by default.
    """
    found = lowered({})
    program = found[1]
    if budget is None and optimize != "size" and (_little(program) or _saving(program, by_rows)):
        return found
    if isinstance(budget, int) and optimize != "size" and program.plan.arena_bytes <= budget:
        return found
    spare = lowered(dict.fromkeys(nodes, 0))
    least = spare[1].plan.arena_bytes
    if optimize == "size":
        most = [least]
    elif budget is None:
        most = [least + max(int(least * DEFAULT_SHARE), DEFAULT_BYTES)]
    elif isinstance(budget, str):
        # Where nothing runs row by row the default's arena is the smallest, or nearly so.
        largest = 1.0 if spare[1].segments else DEFAULT_SHARE
        most = [int(least * (1 + min(share, largest))) for share in LEAST_SHARES]
    else:
        most = [max(budget, least)]
    enough = DEAR * estimated(*found)
    best = spare
    for limit in most:
        for fitted in _fitted(lowered, found, spare[1], limit, alike=optimize == "size"):
            if estimated(*fitted) < estimated(*best):
                best = fitted
            if estimated(*best) <= enough:
                return best
    if budget is None and optimize != "size":
        smaller = best[1].plan.arena_bytes / program.plan.arena_bytes
        if smaller * estimated(*best) > DEFAULT_DEAR * estimated(*found):
            best = found
        return best if by_rows is None else _rows(by_rows, nodes, best, DEFAULT_DEAR * estimated(*found))
    return best


def _saving(program: Program, by_rows: ByRows | None) -> bool:
    """Whether layers row by row save more than leaner kernels could."""
    if not program.segments or by_rows is None:
        return bool(program.segments)
    whole = by_rows({}, WHOLE, False)[1].plan.arena_bytes
    return whole - program.plan.arena_bytes >= max(map(_working, program.steps))


def _rows(by_rows: ByRows, nodes: Sequence[int], default: Lowered, dear: float) -> Lowered:
    """The default, or layers row by row in less memory where that is estimated to cost no more.

    Where the default costs more than `dear`, they may also need more memory than it, as long as cost times arena is smaller.
    """
    if len(nodes) > ROWS_LAYERS:
        return default
    bare = by_rows(dict.fromkeys(nodes, 0), 0, False)[1]
    limit = int(bare.plan.arena_bytes * (1 + ROWS_SHARE)) + bare.plan.alignment  # what rounding may take
    arena, cost = default[1].plan.arena_bytes, estimated(*default)
    if not bare.segments or (limit > ROWS_GAIN * arena and cost <= dear):
        return default
    limits = _room(bare, limit)
    best = by_rows(limits, limit, True)
    if best[1].plan.arena_bytes > limit:
        return default
    for index in [step.index for step in best[1].steps if step.scratch]:
        # A kernel of fewer pixels may suit the rows better, of which the backend knows nothing.
        fewer = limits | {index: next(_working(step) for step in best[1].steps if step.index == index) - 1}
        tried = by_rows(fewer, limit, True)
        if estimated(*tried) < estimated(*best):
            best, limits = tried, fewer
            continue
        # As much as there is room for in the stage that the layer is in then, which the first plan may not show.
        more = {other: size for other, size in limits.items() if other != index}
        tried = by_rows(more, limit, True)
        less = _less(tried[1], limit)
        if tried[1].plan.arena_bytes > limit and index in less:
            more |= {index: less[index]}
            tried = by_rows(more, limit, True)
        if tried[1].plan.arena_bytes <= limit and estimated(*tried) < estimated(*best):
            best, limits = tried, more
    if estimated(*best) > cost:
        return default
    best = by_rows(limits, limit, False)
    return best if best[1].plan.arena_bytes * estimated(*best) < arena * cost else default


def _fitted(
    lowered: Callable[[Mapping[int, int]], Lowered], found: Lowered, spare: Program, most: int, *, alike: bool
) -> Iterator[Lowered]:
    """With working memory where there is room for it, in an arena of at most `most` bytes: what is found to be so.

    From `found`, which has as much as is useful, less where the arena is full; from `spare`, which has none, what is left free.
    alike: one kernel for all layers of a kind.
    """
    less = _less(found[1], most)
    if alike:
        less = _of_a_kind(found[1], less)
    for limits in (less,) if alike else (less, _room(spare, most)):
        tried = found if not limits else lowered(limits)
        for _ in range(_ROUNDS):
            if tried[1].plan.arena_bytes <= most:
                yield tried
                break
            less = _less(tried[1], most)
            if alike:
                less = _of_a_kind(tried[1], less)
            if not less:
                break
            limits = limits | less
            tried = lowered(limits)


def _of_a_kind(program: Program, less: Mapping[int, int]) -> dict[int, int]:
    """No working memory for the layers that are to have less, and for all others with the kernels of these."""
    templates = {step.template for step in program.steps if step.index in less and step.scratch}
    return dict.fromkeys((*less, *(step.index for step in program.steps if step.template in templates)), 0)


def _steps_at(program: Program) -> Iterator[tuple[int, list[Step]]]:
    """Every stage with layers, by its position."""
    for position, stage in enumerate(program.schedule):
        if isinstance(stage, Step | RowSegment):
            yield position, [stage] if isinstance(stage, Step) else [call.step for call in stage.calls]


def _room(program: Program, most: int) -> dict[int, int]:
    """What is free below `most` when each layer of a program without working memory runs."""
    return {step.index: max(0, most - _end(program, at)) for at, steps in _steps_at(program) for step in steps}


def _working(step: Step) -> int:
    """Bytes that a leaner kernel could do without: of emitc's own kernels, since the others have one each."""
    return sum(operand.size_bytes for operand in step.scratch) if step.backend == PORTABLE else 0


def _little(program: Program) -> bool:
    """Whether working memory can hardly be more of the arena than the default may spend: by what each stage needs without."""
    bare = [_end(program, at) - max(map(_working, steps)) for at, steps in _steps_at(program)]
    least = max(bare, default=0)
    return program.plan.arena_bytes <= least + max(least * DEFAULT_SHARE, DEFAULT_BYTES)


def _end(program: Program, position: int) -> int:
    """The byte behind the last one that is held at a stage."""
    alive = [p for p in program.plan.placements if p.live.first <= position < p.live.end]
    return max((p.offset_bytes + p.size_bytes for p in alive), default=0)


def _less(program: Program, most: int) -> dict[int, int]:
    """Working memory for those that run while bytes beyond `most` are held: what they have, less what is too much."""
    found: dict[int, int] = {}
    for position, steps in _steps_at(program):
        sizes = {step.index: _working(step) for step in steps}
        allowed = max(0, max(sizes.values()) - max(0, _end(program, position) - most))
        found |= {index: allowed for index, size in sizes.items() if size > allowed}
    return found


def require_budget(program: Program, budget: int | str | None, io: str) -> None:
    """Refuses an arena over --ram-budget, naming what sets its size. budget, io: the values of the options."""
    arena = program.plan.arena_bytes
    if budget is None or isinstance(budget, str) or arena <= budget:
        return
    float_ends = io == "keep" and any(p.dtype == "float32" for p in (*program.inputs, *program.outputs))
    slots = {p.name: s for p, s in zip(program.plan.placements, program.slots, strict=True)}
    peak = "; ".join(f"{slots[n].what}: {slots[n].size_bytes} bytes" for n in program.plan.peak_buffers)
    raise CannotCompile(
        f"the smallest arena found has {arena} bytes, {arena - budget} over the budget",
        Where(model=program.origin.model_file, op=program.peak_op, option=f"--ram-budget {budget}"),
        f"alive at once at {program.peak_op}: {peak}",
        "--io int8, since the interface is float" if float_ends else "a smaller input, or fewer channels at the peak",
    )

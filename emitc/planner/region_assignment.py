"""Several memory regions: which buffer goes where, so that the slow ones see little traffic, and one plan per region.

The cost of an assignment is the sum over all buffers of (bytes read and written) x (cost per byte of its region). Buffers are
placed one by one, each in the fastest region where everything that is there still packs; in the orders that pay off, most
traffic per byte first. A bounded climb then changes the best order. Buffers that may share bytes share them where they meet in
one region; in two regions they are apart, which is always safe, and costs what sharing would have saved.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from emitc.planner.buffers import DEFAULT_ALIGNMENT, Buffer, Distance, Placement, Plan
from emitc.planner.check import check
from emitc.planner.greedy import UNPLACED, first_fit, height
from emitc.planner.lower_bound import lower_bound
from emitc.planner.problem import Problem, problem_of

_TRIES_PER_BUFFER = 100
_WORK = 1_000_000
"""Limits of the climb: orders tried, and placements (about a second of Python)."""


@dataclass(frozen=True, slots=True)
class Region:
    """Memory that holds an arena of at most `size_bytes`. cost: of a byte read or written, relative to the other regions.

    Errors  ValueError for a negative size and a cost that is not positive.
    """

    name: str
    size_bytes: int
    cost: float

    def __post_init__(self) -> None:
        if self.size_bytes < 0:
            raise ValueError(f"region {self.name!r}: size {self.size_bytes} is negative")
        if not self.cost > 0:
            raise ValueError(f"region {self.name!r}: cost {self.cost} is not positive")


@dataclass(frozen=True, slots=True)
class RegionPlan:
    """A region and the plan of the buffers in it, of which there may be none."""

    region: Region
    plan: Plan


@dataclass(frozen=True, slots=True)
class Assignment:
    """Every buffer in one region. cost: the traffic's, as the module says."""

    regions: tuple[RegionPlan, ...]
    cost: float

    def region_of(self, name: str) -> str:
        """The region of the buffer `name`. Errors: KeyError when no region has it."""
        for part in self.regions:
            if any(placement.name == name for placement in part.plan.placements):
                return part.region.name
        raise KeyError(name)


Planner = Callable[[Sequence[Buffer], Sequence[Distance], int], Plan]
"""Makes the plan of one region's buffers, with their distances, on a grid of so many bytes."""


@dataclass(frozen=True, slots=True)
class _Found:
    """An assignment. where: the region's position by buffer index; offsets: by region and buffer index."""

    cost: float
    where: list[int]
    offsets: list[list[int]]


@dataclass(frozen=True, slots=True)
class _Task:
    """The buffers as a problem, and what is asked for. speed: positions of the regions, the cheapest byte first; traffic: by
    buffer index; pinned: by buffer index, the position of the region that it has to be in.
    """

    problem: Problem
    regions: tuple[Region, ...]
    speed: tuple[int, ...]
    traffic: tuple[int, ...]
    pinned: Mapping[int, int]

    def cost(self, where: Sequence[int]) -> float:
        """Of an assignment: the region's position by buffer index."""
        return sum(traffic * self.regions[r].cost for traffic, r in zip(self.traffic, where, strict=True))

    def packed(self, members: Sequence[int], limit: int) -> list[int] | None:
        """Offsets of buffers that share a region of `limit` bytes, by buffer index; None where none were found."""
        sizes, lives = self.problem.sizes, self.problem.lives
        if max(sizes[i] for i in members) > limit:
            return None
        for key in (
            lambda i: (-sizes[i], i),
            lambda i: (-lives[i].first, -lives[i].end, i),
            lambda i: (lives[i].first - lives[i].end, -sizes[i], i),
            lambda i: (-sizes[i] * (lives[i].end - lives[i].first), i),
            lambda i: i,
        ):
            offsets = first_fit(self.problem, sorted(members, key=key), limit=limit)
            if offsets is not None:
                return offsets
        return None

    def placed(self, order: Sequence[int]) -> _Found | None:
        """Where the buffers go that are placed in `order`, pinned ones before the others; None where one has no room."""
        where = [-1] * len(order)
        inside: list[list[int]] = [[] for _ in self.regions]
        offsets = [[UNPLACED] * len(order) for _ in self.regions]
        for i in sorted(order, key=lambda i: i not in self.pinned):
            for r in (self.pinned[i],) if i in self.pinned else self.speed:
                members, limit = [*inside[r], i], self.regions[r].size_bytes
                found = first_fit(self.problem, members, placed=offsets[r], start=len(inside[r]), limit=limit)
                if found is None:
                    found = self.packed(members, limit)
                if found is not None:
                    inside[r], offsets[r], where[i] = members, found, r
                    break
            else:
                return None
        return _Found(self.cost(where), where, offsets)


def _orders(task: _Task) -> list[list[int]]:
    """What is placed first: by traffic per byte, also per step of its life, by traffic, by size, and in the order of the run."""
    problem, traffic = task.problem, task.traffic
    span = [live.end - live.first for live in problem.lives]
    density = [count / max(1, size) for count, size in zip(traffic, problem.sizes, strict=True)]
    indices = range(len(problem.sizes))
    return [
        sorted(indices, key=lambda i: (-density[i], i)),
        sorted(indices, key=lambda i: (-density[i] / span[i], i)),
        sorted(indices, key=lambda i: (-traffic[i], i)),
        sorted(indices, key=lambda i: (-problem.sizes[i], i)),
        sorted(indices, key=lambda i: (problem.sizes[i], i)),
        sorted(indices, key=lambda i: (problem.lives[i].first, i)),
        sorted(indices, key=lambda i: (-problem.lives[i].first, i)),
    ]


def _climb(task: _Task, order: list[int], best: _Found, rng: random.Random) -> _Found:
    """The cheapest assignment seen while one buffer at a time is taken elsewhere in the order."""
    count = len(order)
    least = task.cost([task.pinned.get(i, task.speed[0]) for i in range(count)])
    for _ in range(min(_TRIES_PER_BUFFER * count, _WORK // (count * count))):
        if best.cost <= least:
            break
        changed = order[:]
        changed.insert(rng.randrange(count), changed.pop(rng.randrange(count)))
        found = task.placed(changed)
        if found is not None and found.cost <= best.cost:
            order, best = changed, found
    return best


def assign(
    buffers: Sequence[Buffer],
    distances: Sequence[Distance],
    traffic: Mapping[str, int],
    regions: Sequence[Region],
    planner: Planner,
    *,
    pins: Mapping[str, str] | None = None,
    alignment: int = DEFAULT_ALIGNMENT,
    seed: int = 0,
) -> Assignment | None:
    """Every buffer in a region, and a plan of each region by `planner`; None where they do not all fit.

    traffic: bytes read and written of each buffer, by its name. pins: buffers that have to be in a region, by name. The
    result is in the order of `regions`; the same input gives the same result.
    Errors  ValueError for input that contradicts itself (see `problem_of`), no region, two of one name, and for pins that
    name what is not there; PlanError when the independent check refuses a plan, a bug of the planner.
    """
    task = _task(buffers, distances, traffic, regions, pins or {}, alignment)
    tried = [(found, order) for order in _orders(task) if (found := task.placed(order)) is not None]
    if not tried:
        return _in_one(task, buffers, distances, planner)
    best, order = min(tried, key=lambda t: t[0].cost)
    if buffers:
        best = _climb(task, order, best, random.Random(seed))
    parts = []
    for region, offsets in zip(task.regions, best.offsets, strict=True):
        parts.append(RegionPlan(region, _plan(task, offsets, region, buffers, distances, planner)))
    return Assignment(tuple(parts), best.cost)


def _in_one(
    task: _Task, buffers: Sequence[Buffer], distances: Sequence[Distance], planner: Planner
) -> Assignment | None:
    """Everything in one region, where first fit finds no room but the planner does; None where it does not either."""
    plan = planner(buffers, distances, task.problem.grid)
    for r in task.speed:
        if plan.arena_bytes <= task.regions[r].size_bytes and set(task.pinned.values()) <= {r}:
            nothing = planner((), (), task.problem.grid)
            parts = tuple(RegionPlan(region, plan if i == r else nothing) for i, region in enumerate(task.regions))
            return Assignment(parts, task.cost([r] * len(buffers)))
    return None


def _task(
    buffers: Sequence[Buffer],
    distances: Sequence[Distance],
    traffic: Mapping[str, int],
    regions: Sequence[Region],
    pins: Mapping[str, str],
    alignment: int,
) -> _Task:
    positions = {region.name: position for position, region in enumerate(regions)}
    if not regions or len(positions) != len(regions):
        raise ValueError(f"regions {[region.name for region in regions]}: none, or two of one name")
    indices = {buffer.name: index for index, buffer in enumerate(buffers)}
    for name, region in pins.items():
        if name not in indices or region not in positions:
            raise ValueError(f"buffer {name!r} in region {region!r}: one of them does not exist")
    return _Task(
        problem_of(buffers, distances, alignment),
        tuple(regions),
        tuple(sorted(range(len(regions)), key=lambda r: (regions[r].cost, r))),
        tuple(traffic[buffer.name] for buffer in buffers),
        {indices[name]: positions[region] for name, region in pins.items()},
    )


def _plan(
    task: _Task,
    offsets: Sequence[int],
    region: Region,
    buffers: Sequence[Buffer],
    distances: Sequence[Distance],
    planner: Planner,
) -> Plan:
    """The plan of the buffers that have an offset in a region: the planner's, or where that one is too large, these offsets."""
    grid = task.problem.grid
    members = [i for i, offset in enumerate(offsets) if offset != UNPLACED]
    own = tuple(buffers[i] for i in members)
    names = {buffer.name for buffer in own}
    between = tuple(d for d in distances if d.buffer in names and d.other in names)
    plan = planner(own, between, grid)
    if plan.arena_bytes <= region.size_bytes:
        return plan
    problem = problem_of(own, between, grid)
    bound, here = lower_bound(problem), [offsets[i] for i in members]
    arena_bytes = height(problem, here)
    plan = Plan(
        arena_bytes=arena_bytes,
        alignment=max(grid, *problem.alignments),
        placements=tuple(
            Placement(buffer.name, buffer.size_bytes, offset, buffer.live)
            for buffer, offset in zip(own, here, strict=True)
        ),
        lower_bound_bytes=bound.size_bytes,
        proven=arena_bytes == bound.size_bytes,
        peak_step=bound.step,
        peak_buffers=bound.names,
    )
    check(own, between, plan, grid)
    return plan

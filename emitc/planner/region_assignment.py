"""Several memory regions: which buffer goes where, so that the slow ones see little traffic, and one plan per region.

The cost of an assignment is the sum over all buffers of (bytes read and written) x (cost per byte of its region). Buffers are
placed one by one, each in the fastest region where everything that is there still packs; in the orders that pay off, most
traffic per byte first. A bounded climb then changes the best order. Buffers that may share bytes share them where they meet in
one region; in two regions they do not overlap, which is always safe, and costs what sharing would have saved.
"""

import random
from collections.abc import Callable, Mapping, Sequence

from emitc.planner import plan_at
from emitc.planner.buffers import DEFAULT_ALIGNMENT, Buffer, Distance, Plan
from emitc.planner.greedy import UNPLACED, first_fit
from emitc.planner.lower_bound import lower_bound
from emitc.planner.problem import problem_of
from emitc.records import dataclass, field

_TRIES_PER_BUFFER = 100
_SEED = 0
_WORK = 1_000_000
"""Limits of the climb: orders tried, and placements (about a second of Python)."""


@dataclass(frozen=True, slots=True)
class Region:
    """Memory that holds an arena of at most `size_bytes`. cost: of a byte read or written, relative to the other regions.

    cache_bytes: of the cache through which constants are read there. Errors: ValueError for a negative size and a cost that
    is not positive.
    """

    name: str
    size_bytes: int
    cost: float
    cache_bytes: int = 0

    def __post_init__(self) -> None:
        if min(self.size_bytes, self.cache_bytes) < 0:
            raise ValueError(f"region {self.name!r}: size {min(self.size_bytes, self.cache_bytes)} is negative")
        if not self.cost > 0:
            raise ValueError(f"region {self.name!r}: cost {self.cost} is not positive")

    def __str__(self) -> str:
        """As the command line takes it."""
        return f"{self.name}={self.size_bytes}:{self.cost:g}" + (f":{self.cache_bytes}" if self.cache_bytes else "")


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


Planner = Callable[[Sequence[Buffer], Sequence[Distance], int], Plan]
"""Makes the plan of one region's buffers, with their distances, on a grid of so many bytes."""


@dataclass(frozen=True, slots=True)
class RegionProblem:
    """Buffers that are to be divided among regions, with the distances between them on the grid `alignment`.

    traffic: bytes read and written of each buffer, by its name. pins: the regions of the buffers that have to be in one, by
    the buffer's name.
    """

    buffers: Sequence[Buffer]
    distances: Sequence[Distance]
    traffic: Mapping[str, int]
    regions: Sequence[Region]
    pins: Mapping[str, str] = field(default_factory=dict)
    alignment: int = DEFAULT_ALIGNMENT


@dataclass(frozen=True, slots=True)
class _Found:
    """An assignment. where: the region's position by buffer index; offsets: by region and buffer index."""

    cost: float
    where: list[int]
    offsets: list[list[int]]


class _Task:
    """A problem by indices. speed: positions of the regions, the cheapest byte first; traffic: by buffer index; pinned: by buffer
    index, the position of the region that it has to be in.
    """

    def __init__(self, request: RegionProblem, planner: Planner) -> None:
        positions = {region.name: position for position, region in enumerate(request.regions)}
        if not request.regions or len(positions) != len(request.regions):
            raise ValueError(f"regions {[region.name for region in request.regions]}: none, or two of one name")
        indices = {buffer.name: index for index, buffer in enumerate(request.buffers)}
        for name, region in request.pins.items():
            if name not in indices or region not in positions:
                raise ValueError(f"buffer {name!r} in region {region!r}: one of them does not exist")
        self.request, self.planner = request, planner
        self.problem = problem_of(request.buffers, request.distances, request.alignment)
        self.regions = tuple(request.regions)
        self.speed = sorted(range(len(self.regions)), key=lambda r: (self.regions[r].cost, r))
        self.traffic = tuple(request.traffic[buffer.name] for buffer in request.buffers)
        self.pinned = {indices[name]: positions[region] for name, region in request.pins.items()}

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
                packing = first_fit(self.problem, members, placed=offsets[r], start=len(inside[r]), limit=limit)
                if packing is None:
                    packing = self.packed(members, limit)
                if packing is not None:
                    inside[r], offsets[r], where[i] = members, packing, r
                    break
            else:
                return None
        return _Found(self.cost(where), where, offsets)

    def plan_of(self, region: Region, offsets: Sequence[int]) -> Plan:
        """The plan of the buffers that have an offset in a region: the planner's, or these offsets where that is too large."""
        grid = self.request.alignment
        members = [i for i, offset in enumerate(offsets) if offset != UNPLACED]
        own = tuple(self.request.buffers[i] for i in members)
        names = {buffer.name for buffer in own}
        between = tuple(d for d in self.request.distances if d.buffer in names and d.other in names)
        plan = self.planner(own, between, grid)
        if plan.arena_bytes <= region.size_bytes:
            return plan
        problem = problem_of(own, between, grid)
        return plan_at(own, between, problem, lower_bound(problem), [offsets[i] for i in members])

    def in_one(self) -> Assignment | None:
        """Everything in one region, where first fit finds no room but the planner does; None where it does not either."""
        buffers, grid = self.request.buffers, self.request.alignment
        plan = self.planner(buffers, self.request.distances, grid)
        for r in self.speed:
            if plan.arena_bytes <= self.regions[r].size_bytes and set(self.pinned.values()) <= {r}:
                nothing = self.planner((), (), grid)
                parts = tuple(RegionPlan(region, plan if i == r else nothing) for i, region in enumerate(self.regions))
                return Assignment(parts, self.cost([r] * len(buffers)))
        return None


def _orders(task: _Task) -> list[list[int]]:
    """What is placed first: by traffic per byte, also per step of its life, by traffic, by size, and in the order of the run."""
    problem, traffic, lives = task.problem, task.traffic, task.problem.lives
    density = [count / max(1, size) for count, size in zip(traffic, problem.sizes, strict=True)]
    keys: tuple[Callable[[int], float], ...] = (
        lambda i: -density[i],
        lambda i: -density[i] / (lives[i].end - lives[i].first),
        lambda i: -traffic[i],
        lambda i: -problem.sizes[i],
        lambda i: problem.sizes[i],
        lambda i: lives[i].first,
        lambda i: -lives[i].first,
    )
    return [sorted(range(len(lives)), key=key) for key in keys]


def _climb(task: _Task, order: list[int], best: _Found, rng: random.Random) -> _Found:
    """The cheapest assignment seen while one buffer at a time is taken elsewhere in the order."""
    count = len(order)
    least = task.cost([task.pinned.get(i, task.speed[0]) for i in range(count)])
    for _ in range(min(_TRIES_PER_BUFFER * count, _WORK // (count * count))):
        if best.cost <= least:
            break
        changed = order[:]
        changed.insert(rng.randrange(count), changed.pop(rng.randrange(count)))
        candidate = task.placed(changed)
        if candidate is not None and candidate.cost <= best.cost:
            order, best = changed, candidate
    return best


def assign(request: RegionProblem, planner: Planner) -> Assignment | None:
    """Every buffer in a region, and a plan of each region by `planner`; None where they do not all fit.

    The result is in the order of the regions; the same input gives the same result.
    Errors  ValueError for input that contradicts itself (see `problem_of`), no region, two of one name, and for pins that
    name what is not there; PlanError when the independent check refuses a plan, a bug of the planner.
    """
    task = _Task(request, planner)
    tried = [(candidate, order) for order in _orders(task) if (candidate := task.placed(order)) is not None]
    if not tried:
        return task.in_one()
    best, order = min(tried, key=lambda t: t[0].cost)
    if request.buffers:
        best = _climb(task, order, best, random.Random(_SEED))
    parts = (
        RegionPlan(*part) for part in zip(task.regions, map(task.plan_of, task.regions, best.offsets), strict=True)
    )
    return Assignment(tuple(parts), best.cost)

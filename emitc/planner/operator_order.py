"""The order of the steps in which the fewest bytes have to be held at once.

The bytes alive between two steps depend only on the set of steps that are done, not on the order in which they were
done. So the search goes over such sets, from the empty one to the full one. It always goes on from the set that was
reached with the lowest peak: the first full one that it takes is reached by a best order. Two things keep it small:

- No order has a lower peak than the most bytes that one step needs for itself, so peaks below that count as equal.
- A step that fits below the peak so far and leaves no more bytes alive than it found is taken at once. To do it before
  everything else makes no other step need more: what it frees is free earlier, an input that it was the other reader of
  can be overlapped, and for bytes that it starts in place of another step that one loses no more than their overlap.

The cost of a step is that of `emitc.planner.lower_bound`: the bytes alive while it runs, without those that its overlaps save.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from functools import cached_property, reduce
from itertools import chain
from operator import or_
from typing import NamedTuple

from emitc.planner.buffers import DEFAULT_ALIGNMENT, Distance, Step, buffers_of, round_up
from emitc.planner.lower_bound import bytes_saved, lower_bound
from emitc.planner.problem import Overlap, problem_of, saving_of
from emitc.records import dataclass, field

MAX_STATES = 40_000
"""Sets of steps that the search for the best order looks at, about half a second; with more it gives up."""
_WORK = 8_000_000
"""Steps that are ready, for each of them: what one of the two searches may look at, about a second; a graph of a thousand
independent steps would go on for minutes.
"""
_BEAM_WORK = 3
"""The second search may look at so many times more: it is the one for large graphs."""
_BEAM_SHARE = 4
"""Of so many sets, the search that follows keeps one."""


@dataclass(frozen=True, slots=True)
class OrderProblem:
    """Steps whose order is to be found.

    `steps`, `sizes`, `inputs`, `outputs` and `alignment` are those of `buffers_of`, and the given order must be a legal one.
    A step stays after every earlier one that touches the same name, unless both only read it. Whatever else must keep its
    order, such as effects on bytes outside the arena (the read of a variable and its assignment), comes as pairs
    (earlier, later) of indices in `precedes`.

    `overlaps` holds, by index of a step, distances of a name that it reads (`Distance.buffer`) to one that it writes (`other`),
    at most one for a pair. A distance counts where the first name is not needed after the step, and the other one is not alive
    before it.
    """

    steps: Sequence[Step]
    sizes: Mapping[str, int]
    inputs: Sequence[str]
    outputs: Sequence[str]
    precedes: Sequence[tuple[int, int]] = ()
    overlaps: Mapping[int, Sequence[Distance]] = field(default_factory=dict)
    alignment: int = DEFAULT_ALIGNMENT

    def peak(self, order: Sequence[int]) -> int:
        """The bound, in bytes, of the arena in which the steps run in `order`."""
        steps = [self.steps[i] for i in order]
        buffers = buffers_of(steps, self.sizes, self.inputs, self.outputs, self.alignment)
        live = {buffer.name: buffer.live for buffer in buffers}
        used = [
            distance
            for at, index in enumerate(order)
            for distance in self.overlaps.get(index, ())
            if distance.buffer not in self.outputs and distance.buffer != distance.other
            if live[distance.buffer].end == at + 1 and live[distance.other].first == at
        ]
        return lower_bound(problem_of(buffers, used, self.alignment)).size_bytes

    def waits(self) -> list[int]:
        """By step: the steps that must be done before it, as bits. Raises ValueError as `best_order`."""
        waits = [0] * len(self.steps)
        for earlier, later in self.precedes:
            if not 0 <= earlier < later < len(self.steps):
                raise ValueError(f"step {earlier} does not stand in front of step {later}")
            waits[later] |= 1 << earlier
        writers: dict[str, int] = {}
        readers: dict[str, int] = {}
        for index, step in enumerate(self.steps):
            for name in step.reads:
                waits[index] |= writers.get(name, 0)
            for name in step.writes:
                waits[index] |= (writers.get(name, 0) | readers.get(name, 0)) & ~(1 << index)
            for names, known in ((step.reads, readers), (step.writes, writers)):
                for name in names:
                    known[name] = known.get(name, 0) | 1 << index
        return waits

    def costs(self) -> _Costs:
        """What the search has to know, with names by number."""

        def grid(size: int) -> int:
            return round_up(size, self.alignment)

        def pair_of(distance: Distance) -> Overlap:
            left, right = number[distance.buffer], number[distance.other]
            above = size[right] if distance.above is None else grid(distance.above)
            below = size[left] if distance.below is None else grid(distance.below)
            return Overlap(left, right, saving_of(size[left], size[right], above, below))

        used = dict.fromkeys(chain(self.inputs, *((*step.reads, *step.writes) for step in self.steps)))
        number = {name: i for i, name in enumerate(used)}
        size = [grid(self.sizes[name]) for name in used]
        touched = [sorted({number[name] for name in (*step.reads, *step.writes)}) for step in self.steps]
        users = [0] * len(size)
        for index, names in enumerate(touched):
            for name in names:
                users[name] |= 1 << index
        pairs = [[pair_of(distance) for distance in self.overlaps.get(index, ())] for index in range(len(self.steps))]
        return _Costs(
            size,
            users,
            frozenset(number[name] for name in self.inputs),
            frozenset(number[name] for name in self.outputs),
            touched,
            [sum(grid(request.size_bytes) for request in step.scratch) for step in self.steps],
            [tuple(pair for pair in candidates if pair.saving > 0 and pair.left != pair.right) for candidates in pairs],
            [reduce(or_, (users[name] for name in names), 0) for names in touched],
            [{} for _ in touched],
        )


def best_order(problem: OrderProblem, max_states: int = MAX_STATES) -> tuple[int, ...]:
    """The indices of the steps in the order in which to run them: another one than given only where its peak is lower.

    The peak is `lower_bound` of the order's own buffers and distances. No order has a lower one than the order returned,
    unless the search has seen `max_states` sets of steps and gave up: then the order is one that a narrow search found, or
    the given one. The same arguments give the same order.

    Errors  ValueError, always a mistake of the caller: what `buffers_of` refuses; a pair in `precedes` whose first step
    does not come before the second.
    """
    file_order = tuple(range(len(problem.steps)))
    given_peak, waits = problem.peak(file_order), problem.waits()
    if all(waits[i] >> (i - 1) & 1 for i in file_order[1:]):
        return file_order  # a chain has one order
    search = _Search(problem.costs(), waits, given_peak)
    order, complete = search.exact(max_states)
    if not complete:
        order = search.beam(max(1, max_states // (_BEAM_SHARE * len(file_order))))
    return order if order is not None and problem.peak(order) < given_peak else file_order


@dataclass(frozen=True)
class _Costs:
    """Sizes on the grid and who touches what; names and steps by number, sets of steps as bits.

    pairs: by step, the overlaps it may use, each from a name that it reads to one that it writes. near: by step, those
    that touch a name that it touches, as bits. changes: by step and those of `near` that are done, what `_change` gave.
    """

    size: list[int]
    users: list[int]
    inputs: frozenset[int]
    outputs: frozenset[int]
    touched: list[list[int]]
    scratch: list[int]
    pairs: list[tuple[Overlap, ...]]
    near: list[int]
    changes: list[dict[int, tuple[int, int]]]

    @cached_property
    def unread(self) -> int:
        """Bytes of inputs that nobody reads: they are held during the first step only."""
        return sum(self.size[name] for name in self.inputs - self.outputs if not self.users[name])

    def at_start(self) -> int:
        """Bytes alive in front of the first step, without inputs that nobody reads."""
        return sum(self.size[name] for name in self.inputs) - self.unread

    def change(self, step: int, near: int) -> tuple[int, int]:
        """`_change`, remembered in `changes`. near: those of the step's `near` that are done."""
        change = self.changes[step].get(near)
        if change is None:
            change = self.changes[step][near] = self._change(step, near)
        return change

    def _change(self, step: int, done: int) -> tuple[int, int]:
        """Bytes more than before `step`: while it runs, and after it. Only the steps that touch the same names matter."""
        after = done | 1 << step
        held, left = self.scratch[step], 0
        for name in self.touched[step]:
            users = self.users[name]
            if not users & done and name not in self.inputs:
                held += self.size[name]
                left += self.size[name]
            if not users & ~after and name not in self.outputs:
                left -= self.size[name]
        used = [pair for pair in self.pairs[step] if self._usable(pair, done, after)]
        return held - (bytes_saved(self.size, used) if used else 0), left

    def _usable(self, pair: Overlap, done: int, after: int) -> bool:
        if pair.left in self.outputs or self.users[pair.left] & ~after:
            return False
        return not self.users[pair.right] & done and pair.right not in self.inputs

    def unavoidable(self) -> int:
        """Bytes that some step holds in any order: what it touches itself, with all its overlaps in use."""
        own = [
            self.scratch[step] + sum(self.size[name] for name in names) - bytes_saved(self.size, self.pairs[step])
            for step, names in enumerate(self.touched)
        ]
        return max([self.at_start() + self.unread, *own])


class _Move(NamedTuple):
    """A step after a state: the set of steps that are done then, the peak until then, and the bytes alive after it."""

    done: int
    peak: int
    alive: int
    step: int


class _State(NamedTuple):
    """A set of steps `done`, the lowest peak and a way by which it was reached, and what is known after it.

    alive: bytes. ready: steps that may be next. previous, step: the state before this one and the step between them.
    """

    done: int
    peak: int
    alive: int
    ready: tuple[int, ...]
    previous: _State | None
    step: int

    def path(self) -> tuple[int, ...]:
        """The steps in the order in which this state did them."""
        order = []
        state: _State | None = self
        while state is not None and state.previous is not None:
            order.append(state.step)
            state = state.previous
        return tuple(reversed(order))


class _Search:
    """Orders whose peak is below `limit` bytes."""

    def __init__(self, costs: _Costs, waits: list[int], limit: int) -> None:
        self._costs, self._waits, self._limit = costs, waits, limit
        self._everything = (1 << len(waits)) - 1
        self._work = 0
        self._followers = [[j for j in range(len(waits)) if waits[j] >> i & 1] for i in range(len(waits))]
        ready = tuple(i for i, before in enumerate(waits) if not before)
        self._start = _State(0, costs.unavoidable(), costs.at_start(), ready, None, -1)

    def exact(self, max_states: int) -> tuple[tuple[int, ...] | None, bool]:
        """(an order with the lowest peak of all, None when that is not below the limit; whether the states sufficed)."""
        if self._start.peak >= self._limit:
            return None, True
        self._work = _WORK
        reached = {0: self._start.peak}
        # Of equal peaks the larger set goes first, then the one found first: an easy net is walked straight through.
        queue: list[tuple[int, int, int, _State, _Move | None]] = [(self._start.peak, 0, 0, self._start, None)]
        visited = 0
        while queue:
            _, _, _, state, last = heapq.heappop(queue)
            if last is not None:
                if last.peak > reached[last.done]:
                    continue
                state = self._after(state, last)
            if state.done == self._everything:
                return state.path(), True
            for move in self._moves(state):
                if reached.get(move.done, self._limit) <= move.peak:
                    continue
                visited += 1
                if visited > max_states or self._work < 0:
                    return None, False
                reached[move.done] = move.peak
                heapq.heappush(queue, (move.peak, -move.done.bit_count(), visited, state, move))
        return None, True

    def beam(self, width: int) -> tuple[int, ...] | None:
        """A good order: of all sets of one size only the `width` with the lowest peaks and fewest bytes alive go on."""
        states = [self._start]
        self._work = _BEAM_WORK * _WORK
        for _ in self._waits:
            level: dict[int, tuple[_State, _Move]] = {}
            for state in states:
                if self._work < 0:
                    return None
                for move in self._moves(state):
                    known = level.get(move.done)
                    if known is None or move.peak < known[1].peak:
                        level[move.done] = state, move
            best = sorted(level.values(), key=lambda way: (way[1].peak, way[1].alive))[:width]
            states = [self._after(state, move) for state, move in best]
        return states[0].path() if states else None

    def _moves(self, state: _State) -> list[_Move]:
        """The steps that may be next and stay below the limit; only one where that can do no harm."""
        costs, near, changes, moves = self._costs, self._costs.near, self._costs.changes, []
        done, peak, alive, ready, _, _ = state
        held = alive if done else alive + costs.unread
        self._work -= len(ready) ** 2
        for step in ready:  # written for speed: most of the search is here
            change = changes[step].get(done & near[step]) or costs.change(step, done & near[step])
            live_bytes, left = held + change[0], alive + change[1]
            if live_bytes <= peak:  # which is below the limit
                if left <= alive:
                    return [_Move(done | 1 << step, peak, left, step)]
                moves.append(_Move(done | 1 << step, peak, left, step))
            elif live_bytes < self._limit:
                moves.append(_Move(done | 1 << step, live_bytes, left, step))
        return moves

    def _after(self, state: _State, move: _Move) -> _State:
        freed = [i for i in self._followers[move.step] if not self._waits[i] & ~move.done]
        ready = (*(i for i in state.ready if i != move.step), *freed)
        return _State(move.done, move.peak, move.alive, ready, state, move.step)

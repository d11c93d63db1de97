"""Whether a problem fits into a given height, answered for certain: for problems of the size of most networks.

The bound of `emitc.planner.lower_bound` looks at one step at a time. A chain of operators that each write a little below their
input needs more: the distances add up along it. So where the packing stays above the bound, this search asks whether one unit
less is possible. Of two buffers alive together one lies above the other, by its distance or its size. Both orders are tried,
pair by pair. Each order narrows the range of offsets that the buffers have left, and most pairs then have one order left.
When no order is left for a pair, there is no such packing. That is a proof, and needs no solver.

Where pairs leave the question open, it depends on how many buffers there are. Of few, `emitc.planner.bottom_up` answers it. With
many, pairs are decided in another order: first the one with the least room left. That finds packings at the lower bound that the
usual order misses, as of an unrolled GRU of 143 buffers.

The search leaves out a buffer that finds a place wherever its neighbours lie, and then those that only this buffer obstructed.
They are placed last, or with the others where that is found in time.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple, TypeAlias

from emitc.planner.bottom_up import BottomUp, Open
from emitc.planner.greedy import first_fit, height
from emitc.planner.problem import Problem

_WORK = 600_000
"""Pairs looked at for one question, about a second of Python; then the next search is asked, or there is no answer."""
_FEW = 13
"""Buffers up to which `emitc.planner.bottom_up` is asked what pairs leave open; with more it takes too long."""
_FIRST_SHARE = 8
"""Of many buffers, pairs get this part of the work before `bound` is asked for: it decided 102 of 113 questions of the corpus."""
_WORK_FROM_BELOW = 2_500_000
"""Neighbours that it looks at, about 0.8 seconds of Python."""
_LARGEST = 4_000
"""Pairs of a problem that the question is asked about at all: with more it is not answered in time."""
_QUESTIONS = 12


_Pair: TypeAlias = tuple[int, int, int, int]
"""(one, other, above, below): offset(one) - offset(other) >= above, or offset(other) - offset(one) >= below. Plain tuples, since
the search unpacks a great many of them.
"""


def exceeds(problem: Problem, limit: int, bound: int, effort: float) -> bool:
    """Whether it is proven that every packing ends above `limit`. bound, effort: as in `lowest_or_best`."""
    if sum(len(near) for near in problem.neighbours) > 2 * _LARGEST:
        return bound > limit
    return bound > limit or _asked(problem, limit, bound, effort)[2] is Open.NONE


def lowest_or_best(problem: Problem, offsets: list[int], bound: int, effort: float = 1.0) -> tuple[list[int], bool]:
    """(offsets that end as low as `offsets` or lower, whether no packing ends lower); `bound` is what none goes below.

    `effort`: share of the usual work of each question.
    """
    if sum(len(near) for near in problem.neighbours) > 2 * _LARGEST:
        return offsets, height(problem, offsets) <= bound
    work = int(_WORK * effort)
    for _ in range(_QUESTIONS):
        top = height(problem, offsets)
        if top <= bound:
            return offsets, True
        limit = top - problem.grid
        core, easy, answer = _asked(problem, limit, bound, effort)
        if answer is Open.NONE:
            return offsets, True
        if isinstance(answer, Open):
            break
        # All of them at the lowest offsets that go together leave more free at the steps that are not full.
        share = 1 if len(core) <= _FEW else _FIRST_SHARE
        together = _Search(problem, limit, range(len(problem.sizes)), work // share).answer()
        if isinstance(together, Open):
            added = first_fit(problem, [*core, *easy], placed=answer, start=len(core), limit=limit)
            assert added is not None, "what is left out finds a place"
            together = added
        offsets = together
    return offsets, height(problem, offsets) <= bound


def _asked(problem: Problem, limit: int, bound: int, effort: float) -> tuple[list[int], list[int], list[int] | Open]:
    """(what `_core` gives, whether the core of it fits into `limit` bytes: offsets by buffer, or why there are none).

    Pairs decide many questions at once and the others hardly ever. Then few buffers are decided from the bottom up. Of many,
    `bound` bytes are asked for first, where a yes ends the search.
    """
    core, easy = _core(problem, limit)
    work = int(_WORK * effort)
    few = len(core) <= _FEW
    by_pairs = _Search(problem, limit, core, work if few else work // _FIRST_SHARE)
    answer = by_pairs.answer()
    if answer is not Open.UNKNOWN:
        return core, easy, answer
    if few:
        return core, easy, by_pairs.from_below(int(_WORK_FROM_BELOW * effort)).answer()
    at_bound = _core(problem, bound)
    answer = _Search(problem, bound, at_bound[0], work, tightest=True).answer()
    if isinstance(answer, list):
        return *at_bound, answer
    return core, easy, _Search(problem, limit, core, work).answer()


def _core(problem: Problem, limit: int) -> tuple[list[int], list[int]]:
    """(buffers that may find no place below `limit` bytes, the others in an order in which each finds one after those).

    A buffer has one place more than its range has steps of its alignment. A neighbour forbids a range between two multiples of
    the grid. Strictly inside it lies one multiple less than steps; of a coarser alignment there may be as many.
    """
    left = dict.fromkeys(i for i, size in enumerate(problem.sizes) if size <= limit)
    if len(left) < len(problem.sizes):
        return list(range(len(problem.sizes))), []
    taken = []
    for step, near in zip(problem.alignments, problem.neighbours, strict=True):
        whole = step == problem.grid
        taken.append({other: -(-(below + above) // step) - whole for other, below, above in near})
    places = [(limit - size) // step + 1 for size, step in zip(problem.sizes, problem.alignments, strict=True)]
    lost = [sum(of.values()) for of in taken]
    easy: list[int] = []
    waiting = [i for i in left if lost[i] < places[i]]
    while waiting:
        i = waiting.pop()
        if i not in left:
            continue
        del left[i]
        easy.append(i)
        for other, _, _ in problem.neighbours[i]:
            lost[other] -= taken[other][i]
            if other in left and lost[other] < places[other]:
                waiting.append(other)
    return list(left), easy[::-1]


class _State(NamedTuple):
    """The offsets that are left to each buffer, [low, high], and the way of each pair that is decided: 0, or 1 or 2.

    decided: pairs at the head of the search's order of pairs that have a way.
    """

    low: list[int]
    high: list[int]
    ways: bytearray
    decided: int


class _Search:
    """The question whether `problem`, or what the buffers `among` are of it, fits into `limit` bytes."""

    def __init__(
        self, problem: Problem, limit: int, among: Collection[int], work: int = _WORK, *, tightest: bool = False
    ) -> None:
        self._among = among
        self._tightest = tightest
        self._problem = problem
        self._work = work
        searched = frozenset(among)
        self._pairs: list[_Pair] = [
            (i, other, above, below)
            for i in sorted(searched)
            for other, below, above in problem.neighbours[i]
            if other < i and other in searched
        ]
        self._of: list[list[int]] = [[] for _ in problem.sizes]
        for index, (one, other, _, _) in enumerate(self._pairs):
            self._of[one].append(index)
            self._of[other].append(index)
        high = [(limit - size) // grid * grid for size, grid in zip(problem.sizes, problem.alignments, strict=True)]
        self._start = _State([0] * len(high), high, bytearray(len(self._pairs)), 0)
        sizes = problem.sizes
        least = [-min(sizes[one], sizes[other]) for one, other, _, _ in self._pairs]
        self._widest_first = sorted(range(len(least)), key=least.__getitem__)

    def answer(self) -> list[int] | Open:
        """Offsets, or why there are none."""
        if min(self._start.high, default=0) < 0:
            return Open.NONE
        if not self._narrowed(self._start, range(len(self._pairs))):
            return Open.NONE
        waiting = [self._start]
        while waiting:
            state = waiting.pop()
            index, decided = self._open(state)
            if index is None:
                return state.low  # every buffer may lie at its lowest offset
            for way in self._ways(state, index):
                following = _State(state.low[:], state.high[:], state.ways[:], decided)
                following.ways[index] = way
                if self._narrowed(following, (index,)):
                    waiting.append(following)
                if self._work <= 0:
                    return Open.UNKNOWN
        return Open.NONE

    def from_below(self, work: int) -> BottomUp:
        """The same question, once `answer` has given none, for a search from the bottom up."""
        under: list[list[int]] = [[] for _ in self._problem.sizes]
        for (one, other, _, _), way in zip(self._pairs, self._start.ways, strict=True):
            if way:
                upper, lower = (one, other) if way == 1 else (other, one)
                under[upper].append(lower)
        return BottomUp(self._problem, list(self._among), (self._start.low, self._start.high), under, work)

    def _open(self, state: _State) -> tuple[int | None, int]:
        """(the next pair to decide, None where all have a way; the pairs before the first open one).

        Pairs are decided in the order of their smaller buffers, the largest first; with `tightest`, the one with the least room.
        """
        self._work -= len(state.ways) // 8
        decided = state.decided
        while decided < len(self._pairs) and state.ways[self._widest_first[decided]]:
            decided += 1
        if decided == len(self._pairs):
            return None, decided
        if not self._tightest:
            return self._widest_first[decided], decided
        return self._least_room(state), decided

    def _ways(self, state: _State, index: int) -> tuple[int, int]:
        """Both ways of an open pair, the one to try first last: with `tightest`, the one that leaves more room."""
        one, other, above, below = self._pairs[index]
        roomier = state.high[one] - state.low[other] - above >= state.high[other] - state.low[one] - below
        return (2, 1) if self._tightest and roomier else (1, 2)

    def _least_room(self, state: _State) -> int:
        """The open pair of which both ways together leave the least room."""
        self._work -= len(state.ways) // 4
        low, high = state.low, state.high
        least, index = None, 0
        for at, (one, other, above, below) in enumerate(self._pairs):
            if not state.ways[at]:
                room = high[one] - low[other] - above + high[other] - low[one] - below
                if least is None or room < least:
                    least, index = room, at
        return index

    def _narrowed(self, state: _State, changed: Iterable[int]) -> bool:
        """Takes from every buffer the offsets that its decided pairs forbid, and decides pairs with one way left.

        False when some pair has none.
        """
        low, high, ways, _ = state
        alignments, pairs, pairs_of = self._problem.alignments, self._pairs, self._of
        queue = list(dict.fromkeys(changed))
        queued = bytearray(len(pairs))
        for index in queue:
            queued[index] = 1
        possible, looked = True, 0
        while queue and possible:
            index = queue.pop()
            queued[index] = 0
            looked += 1
            one, other, above, below = pairs[index]
            way = ways[index]
            if not way:
                first = high[one] - low[other] >= above
                if high[other] - low[one] >= below:
                    if first:
                        continue
                    way = 2
                elif first:
                    way = 1
                else:
                    possible = False
                    break
                ways[index] = way
            upper, lower, least = (one, other, above) if way == 1 else (other, one, below)
            bottom, top = low[lower] + least, high[upper] - least
            if bottom > low[upper]:
                low[upper] = -(-bottom // alignments[upper]) * alignments[upper]
                possible = low[upper] <= high[upper]
                for near in pairs_of[upper]:
                    if not queued[near]:
                        queued[near] = 1
                        queue.append(near)
            if top < high[lower]:
                high[lower] = top // alignments[lower] * alignments[lower]
                possible = possible and low[lower] <= high[lower]
                for near in pairs_of[lower]:
                    if not queued[near]:
                        queued[near] = 1
                        queue.append(near)
        self._work -= looked
        return possible

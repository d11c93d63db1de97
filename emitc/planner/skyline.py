"""A packing of a given height, found like a puzzle: fill the valleys of the skyline, go back where one cannot be filled.

Buffers are put on top of one another, so the placed ones have a skyline: over every step, the height up to which the arena
is used. A valley is a stretch of steps at one level between two higher walls. Only buffers that live inside it can
lie on its floor; where none does, or none is wanted, the floor is lost up to the lower wall.

What makes the search short is the account of what may be lost: at a step whose buffers sum up to the height asked for,
not a byte. There the floor must be covered; next to a wall, by a buffer that begins (or ends) exactly at it. A valley
where none is left is a dead end. The valley with the fewest candidates goes first. From a dead end the search goes back
to the latest choice next to that valley; after a while it starts again with another taste for candidates.

Overlaps are not made use of: buffers that need not be disjoint are placed disjoint, which is legal too.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from emitc.planner.buffers import round_up
from emitc.planner.greedy import UNPLACED
from emitc.planner.problem import Problem
from emitc.records import dataclass

_WALL = 1 << 62
"""Height of the skyline outside the arena and over steps whose buffers are all placed: nothing more comes there."""
_CHOICES = (2, 4, 8)
"""Candidates that are tried for one floor, the most promising first: the number is drawn for every start."""
_SEED = 0
_DEAD_ENDS = 50
"""Dead ends until a new start; every second start may see twice as many, every fourth four times, and so on."""


def packing_within(problem: Problem, limit: int, work: int) -> list[int] | None:
    """Offsets in bytes by buffer index that end at `limit` bytes or below; None when none was found.

    `work` bounds the search: columns and candidates looked at. None is no proof that there is no such packing.
    """
    board = _Board(problem, limit)
    if min(board.losable, default=0) < 0:
        return None  # disjoint buffers do not fit
    rng = random.Random(_SEED)
    run = 0
    while work > 0:
        run += 1
        search = _Search(board, _Taste.drawn(rng, board), rng, _DEAD_ENDS * (run & -run), work)
        if search.complete():
            return search.offsets
        work = search.work
    return None


class _Board:
    """The problem by columns: one for every step at which a buffer starts, since the live set is largest there.

    first, end: columns of each buffer. starting: buffers by their first column. alive: number of buffers by column.
    losable: bytes by column that may stay empty.
    """

    def __init__(self, problem: Problem, limit: int) -> None:
        starts = sorted({live.first for live in problem.lives})
        self.columns = len(starts)
        self.sizes, self.alignments = problem.sizes, problem.alignments
        self.first = [bisect_left(starts, live.first) for live in problem.lives]
        self.end = [bisect_left(starts, live.end) for live in problem.lives]
        self.starting: list[list[int]] = [[] for _ in starts]
        self.alive = [0] * self.columns
        self.losable = [limit] * self.columns
        for i, size in enumerate(self.sizes):
            self.starting[self.first[i]].append(i)
            for column in range(self.first[i], self.end[i]):
                self.alive[column] += 1
                self.losable[column] -= size


@dataclass(frozen=True, slots=True)
class _Taste:
    """How much counts what speaks for a candidate, each on the scale of the problem.

    tight: that it has a column where little may be lost. long: its columns. large: its bytes. fitting: that it begins
    or ends at a wall. flush: that it is as high as the wall next to it. noise: share of chance. choices: candidates
    that are tried for one floor.
    """

    tight: float
    long: float
    large: float
    fitting: float
    flush: float
    noise: float
    choices: int

    @classmethod
    def drawn(cls, rng: random.Random, board: _Board) -> _Taste:
        mean = max(1.0, sum(board.sizes) / len(board.sizes))
        longest = max(end - first for first, end in zip(board.first, board.end, strict=True))
        chance = [rng.random() for _ in range(6)]
        return cls(
            3 * chance[0] / mean,
            6 * chance[1] / longest,
            2 * chance[2] / mean,
            2 * chance[3],
            3 * chance[4],
            0.3 * chance[5],
            rng.choice(_CHOICES),
        )


class _Valley(NamedTuple):
    """Columns [start, end) at `level`, and who may lie on the floor; None where somebody must and nobody can."""

    end: int
    level: int
    candidates: list[int] | None


class _Choice(NamedTuple):
    """The state before a buffer was placed, and the candidates that were not tried."""

    skyline: list[int]
    losable: list[int]
    waiting: list[int]
    valleys: dict[int, _Valley]
    placed: int
    others: list[int]
    level: int


class _Search:
    """One run. skyline, losable, waiting (buffers not placed): by column. valleys: by their first column."""

    def __init__(self, board: _Board, taste: _Taste, rng: random.Random, dead_ends: int, work: int) -> None:
        self._board, self._taste, self._rng = board, taste, rng
        self._dead_ends, self.work = dead_ends, work
        self.offsets = [UNPLACED] * len(board.sizes)
        self._order: list[int] = []
        self._choices: list[_Choice] = []
        self._skyline, self._losable, self._waiting = [0] * board.columns, board.losable[:], board.alive[:]
        self._valleys: dict[int, _Valley] = {}
        self._find_valleys(0, board.columns)

    def complete(self) -> bool:
        """Whether all buffers got a place in `offsets` before the dead ends or the work ran out."""
        while len(self._order) < len(self.offsets):
            start = min(self._valleys, key=self._urgency)
            end, level, candidates = self._valleys[start]
            if candidates:
                ranked = self._ranked(start, end, level, candidates)
                self._place(ranked[0], level, ranked[1:])
            elif candidates is None or not self._give_up(start, end, level):
                self._dead_ends -= 1
                if self._dead_ends < 0 or self.work <= 0 or not self._go_back(start, end):
                    return False
        return True

    def _urgency(self, start: int) -> tuple[int, int]:
        valley = self._valleys[start]
        return -1 if valley.candidates is None else len(valley.candidates), valley.level

    def _ranked(self, start: int, end: int, level: int, candidates: Sequence[int]) -> list[int]:
        """The most promising candidates, the best first."""
        if len(candidates) == 1:
            return list(candidates)
        board, taste = self._board, self._taste
        left, right = self._walls(start, end)
        marks = []
        for i in candidates:
            first, last, size = board.first[i], board.end[i], board.sizes[i]
            at_left, at_right, top = first == start, last == end, level + size
            mark = (
                taste.long * (last - first)
                + taste.large * size
                + taste.fitting * (at_left + at_right)
                + taste.flush * ((at_left and top == left) + (at_right and top == right))
                - taste.tight * min(self._losable[first:last])
            )
            marks.append((-mark * (1 + taste.noise * (self._rng.random() - 0.5)), i))
        self.work -= 4 * len(candidates)
        marks.sort()
        return [i for _, i in marks[: taste.choices]]

    def _place(self, i: int, level: int, others: list[int]) -> None:
        """Puts buffer i on the floor at `level`; `others` may be tried later in its place."""
        self._choices.append(
            _Choice(
                self._skyline[:], self._losable[:], self._waiting[:], self._valleys.copy(), len(self._order), others, level
            )
        )  # fmt: skip
        first, end = self._board.first[i], self._board.end[i]
        self.offsets[i] = level
        self._order.append(i)
        top = level + self._board.sizes[i]
        for column in range(first, end):
            self._waiting[column] -= 1
            self._skyline[column] = top if self._waiting[column] else _WALL
        self._find_valleys(first, end)

    def _give_up(self, start: int, end: int, level: int) -> bool:
        """Loses the floor up to the lower wall, or to where a buffer inside is aligned; False where that is too much."""
        grids = [
            self._board.alignments[i]
            for column in range(start, end)
            for i in self._board.starting[column]
            if self._board.end[i] <= end and self.offsets[i] == UNPLACED
        ]
        raised = min([*self._walls(start, end), *(round_up(level + 1, grid) for grid in grids)])
        if raised == _WALL or min(self._losable[start:end]) < raised - level:
            return False
        for column in range(start, end):
            self._losable[column] -= raised - level
            self._skyline[column] = raised
        self._find_valleys(start, end)
        return True

    def _go_back(self, start: int, end: int) -> bool:
        """Undoes everything up to the latest choice that touches [start, end) and has other candidates; False without one."""
        while self._choices:
            choice = self._choices.pop()
            i = self._order[choice.placed]
            touches = self._board.first[i] <= end and self._board.end[i] >= start
            for j in self._order[choice.placed :]:
                self.offsets[j] = UNPLACED
            del self._order[choice.placed :]
            if choice.others and touches:
                self._skyline, self._losable, self._waiting = choice.skyline, choice.losable, choice.waiting
                self._valleys = choice.valleys
                self._place(choice.others[0], choice.level, choice.others[1:])
                return True
        return False

    def _walls(self, start: int, end: int) -> tuple[int, int]:
        """Heights of the walls at both ends of [start, end)."""
        left = self._skyline[start - 1] if start else _WALL
        right = self._skyline[end] if end < self._board.columns else _WALL
        return left, right

    def _find_valleys(self, start: int, end: int) -> None:
        """Brings the valleys up to date after a change in the columns [start, end)."""
        skyline, columns = self._skyline, self._board.columns
        if start:
            start -= 1
            while start and skyline[start - 1] == skyline[start]:
                start -= 1
        if end < columns:
            end += 1
            while end < columns and skyline[end] == skyline[end - 1]:
                end += 1
        self.work -= columns // 8 + end - start  # the eighth is for the copies that every choice keeps
        for known in [column for column in self._valleys if start <= column < end]:
            del self._valleys[known]
        column = start
        while column < end:
            level, stop = skyline[column], column + 1
            while stop < end and skyline[stop] == level:
                stop += 1
            left, right = self._walls(column, stop)
            if left > level < right and level < _WALL:
                self._valleys[column] = _Valley(stop, level, self._candidates(column, stop, level))
            column = stop

    def _candidates(self, start: int, end: int, level: int) -> list[int] | None:
        """Buffers that may lie on the floor of a valley; where no byte may be lost, only those that touch a wall."""
        board = self._board
        inside = [
            i
            for column in range(start, end)
            for i in board.starting[column]
            if board.end[i] <= end and self.offsets[i] == UNPLACED and level % board.alignments[i] == 0
        ]
        self.work -= len(inside)
        tight = []
        if not self._losable[start]:
            tight.append([i for i in inside if board.first[i] == start])
        if not self._losable[end - 1]:
            tight.append([i for i in inside if board.end[i] == end])
        if not tight:
            return inside
        return min(tight, key=len) or None

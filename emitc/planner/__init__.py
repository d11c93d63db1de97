"""Memory planner: buffers with live ranges -> offsets in one arena, a lower bound and a proof.

It knows bytes, alignment, live ranges, aliases and pairwise distances; no operator and no tensor. It uses the
standard library and `emitc.records` only, no clock and no unseeded randomness: the same input gives the same plan.
"""

from collections.abc import Sequence
from functools import lru_cache

from emitc.planner.buffers import (
    DEFAULT_ALIGNMENT,
    Buffer,
    Distance,
    LiveRange,
    Placement,
    Plan,
    ScratchRequest,
    Step,
    buffers_of,
)
from emitc.planner.check import PlanError, check
from emitc.planner.greedy import height
from emitc.planner.lower_bound import LowerBound, lower_bound
from emitc.planner.lower_bound import held_bytes as _held_bytes
from emitc.planner.operator_order import OrderProblem, best_order
from emitc.planner.problem import Problem, problem_of
from emitc.planner.search import lowest_first_fit, lowest_packing

__all__ = [
    "DEFAULT_ALIGNMENT",
    "Buffer",
    "Distance",
    "LiveRange",
    "OrderProblem",
    "Placement",
    "Plan",
    "PlanError",
    "ScratchRequest",
    "Step",
    "best_order",
    "buffers_of",
    "check",
    "first_fit_bytes",
    "held_bytes",
    "plan",
    "plan_at",
]

_PLANS = 64
"""Plans that are remembered: schedules with other kernels often have the same buffers."""


def plan(
    buffers: Sequence[Buffer],
    distances: Sequence[Distance] = (),
    *,
    alignment: int = DEFAULT_ALIGNMENT,
    effort: float = 1.0,
    target_bytes: int = 0,
    useful_bytes: int | None = None,
) -> Plan:
    """Offsets for all `buffers` in an arena that is proven minimal, or as small as a bounded search made it.

    `alignment` (bytes) is the grid of all offsets and of the arena's size; a buffer may ask for more, and the
    arena's base then needs the largest alignment asked for, `Plan.alignment`. The lower bound is the most bytes held at a
    step, or the arena's size where a search of all packings has shown that none is lower. `effort` is the share of its usual
    work that the search may do. With 0, the result is the best of first fit in a few orders. That result is also taken where it
    needs at most `target_bytes` bytes, or where it is proven that none needs at most `useful_bytes` bytes.

    Errors  ValueError for input that contradicts itself (see `problem_of`); PlanError when the independent check
    refuses the result, a bug of the planner.
    """
    return _plan(tuple(buffers), tuple(distances), alignment, effort, target_bytes, useful_bytes)


def first_fit_bytes(
    buffers: Sequence[Buffer], distances: Sequence[Distance], alignment: int, limit: int | None = None
) -> int | None:
    """The arena of `plan` with an effort of 0, which nothing checks: to compare schedules by. Errors as `plan`.

    None where it needs more than `limit` bytes, which takes less time to find out than its size.
    """
    problem = problem_of(buffers, distances, alignment)
    bound = lower_bound(problem)
    offsets = lowest_first_fit(problem, bound.size_bytes, bound.bytes_at, limit)
    return None if offsets is None else height(problem, offsets)


@lru_cache(maxsize=_PLANS)
def _plan(
    buffers: tuple[Buffer, ...],
    distances: tuple[Distance, ...],
    alignment: int,
    effort: float,
    target_bytes: int,
    useful_bytes: int | None,
) -> Plan:
    problem = problem_of(buffers, distances, alignment)
    bound = lower_bound(problem)
    offsets, lowest = lowest_packing(problem, bound.size_bytes, bound.bytes_at, effort, target_bytes, useful_bytes)
    return plan_at(buffers, distances, problem, bound, offsets, lowest=lowest)


def plan_at(
    buffers: Sequence[Buffer],
    distances: Sequence[Distance],
    problem: Problem,
    bound: LowerBound,
    offsets: Sequence[int],
    *,
    lowest: bool = False,
) -> Plan:
    """The checked plan with these offsets. problem, bound: of the buffers. lowest: no packing ends lower, which is proven."""
    arena_bytes = height(problem, offsets)
    result = Plan(
        arena_bytes=arena_bytes,
        alignment=max([problem.grid, *(buffer.alignment for buffer in buffers)]),
        placements=tuple(
            Placement(buffer.name, buffer.size_bytes, offset, buffer.live)
            for buffer, offset in zip(buffers, offsets, strict=True)
        ),
        lower_bound_bytes=arena_bytes if lowest else bound.size_bytes,
        proven=lowest or arena_bytes == bound.size_bytes,
        peak_step=bound.step,
        peak_buffers=bound.names,
        held_bytes=bound.size_bytes if lowest and arena_bytes > bound.size_bytes else None,
    )
    check(buffers, distances, result, problem.grid)
    return result


def held_bytes(buffers: Sequence[Buffer], distances: Sequence[Distance], alignment: int) -> dict[int, int]:
    """{step: bytes that no plan can go below at it}, at every step at which a buffer starts. Errors as `plan`."""
    return _held_bytes(problem_of(buffers, distances, alignment))

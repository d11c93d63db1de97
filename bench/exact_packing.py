"""Certificates by an exact solver: whether any packing ends at or below a given height.

The planner needs no solver: it proves a plan by meeting the lower bound. Where a gap stays, the question "does it fit
into so many bytes" goes to OR-Tools' CP-SAT. It comes with the extra `emitc[prove]` and is loaded when it is asked
only. A yes brings the offsets, which are checked here; a no rests on the solver's word.

One worker and a fixed seed: the same version of the solver walks the same way on every machine. Only how far it gets in
its time depends on the machine. So an answer may be "unknown" on a slow one, never another yes or no.
"""

from dataclasses import dataclass
from enum import Enum

from emitc.planner.greedy import height
from emitc.planner.problem import Problem

DEFAULT_SECONDS = 10.0
"""For one question."""
_SEED = 1


class Answer(Enum):
    """NO: no packing is that low. UNKNOWN: the time ran out."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Certificate:
    """The answer; with a yes the offsets in bytes by buffer index, else none."""

    answer: Answer
    offsets: tuple[int, ...] = ()


def certify(problem: Problem, height_bytes: int, seconds: float = DEFAULT_SECONDS) -> Certificate:
    """Whether some packing of `problem` ends at `height_bytes` or below.

    Errors  ImportError when OR-Tools is not installed.
    """
    from ortools.sat.python import cp_model

    units = height_bytes // problem.grid
    sizes = [size // problem.grid for size in problem.sizes]
    if any(size > units for size in sizes):
        return Certificate(Answer.NO)
    model = cp_model.CpModel()
    starts = []
    for i, size in enumerate(sizes):
        every = problem.alignments[i] // problem.grid
        domain = cp_model.Domain.from_values(list(range(0, units - size + 1, every)))
        starts.append(model.new_int_var_from_domain(domain, f"offset {i}"))
    relaxed = _relaxed(problem)
    # Rectangles of steps and bytes, for all pairs that are plainly disjoint among those without any relaxed pair.
    plain = [i for i, size in enumerate(sizes) if i not in relaxed and size]
    model.add_no_overlap_2d(
        [
            model.new_fixed_size_interval_var(live.first, live.end - live.first, f"steps {i}")
            for i in plain
            for live in [problem.lives[i]]
        ],
        [model.new_fixed_size_interval_var(starts[i], sizes[i], f"bytes {i}") for i in plain],
    )
    for i, neighbours in enumerate(problem.neighbours):
        for other, below, above in neighbours:
            if other > i or (i not in relaxed and other not in relaxed):
                continue
            is_above = model.new_bool_var(f"{i} above {other}")
            model.add(starts[i] - starts[other] >= above // problem.grid).only_enforce_if(is_above)
            model.add(starts[other] - starts[i] >= below // problem.grid).only_enforce_if(~is_above)
    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = _SEED
    solver.parameters.max_time_in_seconds = seconds
    status = solver.solve(model)
    if status == cp_model.INFEASIBLE:
        return Certificate(Answer.NO)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Certificate(Answer.UNKNOWN)
    offsets = tuple(solver.value(start) * problem.grid for start in starts)
    assert height(problem, offsets) <= height_bytes, "the solver's offsets end above the height asked for"
    return Certificate(Answer.YES, offsets)


def _relaxed(problem: Problem) -> frozenset[int]:
    """Buffers with a neighbour from which they need not be disjoint."""
    indices = set()
    for i, neighbours in enumerate(problem.neighbours):
        for other, below, above in neighbours:
            if above < problem.sizes[other] or below < problem.sizes[i]:
                indices |= {i, other}
    for pair in problem.overlaps:  # such a pair may leave no trace among the neighbours
        indices |= {pair.left, pair.right}
    return frozenset(indices)

"""An independent proof of a plan: reads only what was asked for and what was planned.

Shares no code with the packing. It compares the offsets with the sizes and distances as they were given, not
rounded, pair by pair.
"""

from collections.abc import Sequence

from emitc.planner.buffers import Buffer, Distance, Placement, Plan


class PlanError(Exception):
    """A plan breaks what was asked of it: always a bug of the planner, never of a model."""


def check(buffers: Sequence[Buffer], distances: Sequence[Distance], plan: Plan, alignment: int) -> None:
    """Returns when `plan` is a legal placement of `buffers`; `alignment` is the plan's grid in bytes.

    Errors  PlanError naming the buffers, their offsets and the rule: a buffer missing, unknown, placed twice or
    with another size or live range; an offset negative, misaligned or past the end of the arena; two buffers alive
    together closer than their distance; a lower bound above the arena or a wrong claim about it.
    """
    placed = _placed_once(buffers, plan)
    for buffer in buffers:
        _check_alone(buffer, placed[buffer.name], plan, alignment)
    known = {(distance.buffer, distance.other): distance for distance in distances}
    alive: list[Buffer] = []
    for right in sorted(buffers, key=lambda buffer: buffer.live.first):
        alive = [left for left in alive if left.live.end > right.live.first]
        for left in alive:
            distance = known.get((left.name, right.name)) or known.get((right.name, left.name))
            _check_pair(left, right, distance, placed)
        alive.append(right)
    _check_claims(buffers, plan, alignment)


def _placed_once(buffers: Sequence[Buffer], plan: Plan) -> dict[str, Placement]:
    wanted = {buffer.name for buffer in buffers}
    placed: dict[str, Placement] = {}
    for placement in plan.placements:
        if placement.name not in wanted:
            raise PlanError(f"buffer {placement.name!r} is placed but was not asked for")
        if placement.name in placed:
            raise PlanError(
                f"buffer {placement.name!r} is placed twice, "
                f"at offsets {placed[placement.name].offset_bytes} and {placement.offset_bytes}"
            )
        placed[placement.name] = placement
    for buffer in buffers:
        if buffer.name not in placed:
            raise PlanError(f"buffer {buffer.name!r} is not placed")
    return placed


def _check_alone(buffer: Buffer, placement: Placement, plan: Plan, alignment: int) -> None:
    where = f"buffer {buffer.name!r} at offset {placement.offset_bytes}"
    if placement.size_bytes != buffer.size_bytes or placement.live != buffer.live:
        raise PlanError(
            f"{where} is placed with {placement.size_bytes} B alive in "
            f"[{placement.live.first}, {placement.live.end}), "
            f"asked for with {buffer.size_bytes} B alive in [{buffer.live.first}, {buffer.live.end})"
        )
    for required in (alignment, buffer.alignment, buffer.multiple):
        if placement.offset_bytes % required:
            raise PlanError(f"{where} is not a multiple of {required}")
    if placement.offset_bytes < 0:
        raise PlanError(f"{where} starts before the arena")
    if placement.offset_bytes + buffer.size_bytes > plan.arena_bytes:
        end = placement.offset_bytes + buffer.size_bytes
        raise PlanError(f"{where} ends at {end}, past the arena of {plan.arena_bytes} B")


def _check_pair(left: Buffer, right: Buffer, distance: Distance | None, placed: dict[str, Placement]) -> None:
    upper, lower = left, right
    if distance is not None and distance.buffer == right.name:
        upper, lower = right, left
    above = lower.size_bytes if distance is None or distance.above is None else distance.above
    below = upper.size_bytes if distance is None or distance.below is None else distance.below
    upper_offset, lower_offset = placed[upper.name].offset_bytes, placed[lower.name].offset_bytes
    if upper_offset - lower_offset >= above or lower_offset - upper_offset >= below:
        return
    raise PlanError(
        f"buffers {upper.name!r} at offset {upper_offset} ({upper.size_bytes} B) and {lower.name!r} at offset "
        f"{lower_offset} ({lower.size_bytes} B) are alive together in steps "
        f"[{max(left.live.first, right.live.first)}, {min(left.live.end, right.live.end)}) and too close: "
        f"the first must lie at least {above} above or {below} below the second"
    )


def _check_claims(buffers: Sequence[Buffer], plan: Plan, alignment: int) -> None:
    if plan.arena_bytes % alignment:
        raise PlanError(f"arena of {plan.arena_bytes} B is not a multiple of {alignment}")
    for required in (alignment, *(buffer.alignment for buffer in buffers)):
        if plan.alignment % required:
            raise PlanError(f"arena aligned to {plan.alignment} cannot keep a buffer aligned to {required}")
    if plan.lower_bound_bytes > plan.arena_bytes:
        raise PlanError(f"lower bound {plan.lower_bound_bytes} B is above the arena of {plan.arena_bytes} B")
    if plan.proven != (plan.lower_bound_bytes == plan.arena_bytes):
        raise PlanError(
            f"proven is {plan.proven} with an arena of {plan.arena_bytes} B "
            f"and a lower bound of {plan.lower_bound_bytes} B"
        )
    alive = {buffer.name for buffer in buffers if buffer.live.first <= plan.peak_step < buffer.live.end}
    if alive != set(plan.peak_buffers):
        raise PlanError(f"peak at step {plan.peak_step} names {plan.peak_buffers}, alive are {sorted(alive)}")

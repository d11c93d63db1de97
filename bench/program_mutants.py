"""Deliberate faults of the schedule's techniques: the finished program with one thing wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from emitc.planner.region_assignment import Region
from emitc.program import Move, Operand, Program, RowCall, RowSegment, RowTensor, Slot, Step, arena_variable

_TWO = (Region("FAST", 2048, 1.0), Region("SLOW", 1 << 20, 4.0))

TECHNIQUE_MODELS: dict[str, tuple[tuple[str, dict[str, Any]], ...]] = {
    "order": (("diamond.tflite", {}), ("digits_int8.tflite", {})),
    "views": (("parts.tflite", {}),),
    "overlap": (("digits_int8.tflite", {}), ("person_detect_int8.tflite", {})),
    "moves": (("kws_ref_int8.tflite", {}),),
    "streaming": (("digits_int8.tflite", {"ram_budget": "min"}), ("diamond.tflite", {"ram_budget": "min"})),
    "plan": (
        ("diamond.tflite", {"disabled": frozenset(("overlap",))}),
        ("layers.tflite", {"disabled": frozenset(("overlap",))}),
    ),
    "regions": (("person_detect_int8.tflite", {"regions": _TWO}), ("diamond.tflite", {"regions": _TWO})),
}


@dataclass(frozen=True, slots=True)
class ProgramMutant:
    """A program with a fault. kind: of fault; what: where and how."""

    kind: str
    what: str
    program: Program


def _slot(program: Program, old: Slot, new: Slot) -> Program:
    def changed(slots: tuple[Slot, ...]) -> tuple[Slot, ...]:
        return tuple(new if slot is old else slot for slot in slots)

    return replace(program, slots=changed(program.slots), pins=changed(program.pins))


def _entry(program: Program, old: object, *new: Any) -> Program:
    schedule: list[Any] = []
    for entry in program.schedule:
        schedule += new if entry is old else (entry,)
    return replace(program, schedule=tuple(schedule))


def _order(program: Program) -> Iterator[ProgramMutant]:
    """A layer moved in front of one that makes what it reads."""
    steps = list(program.schedule)
    for late, entry in enumerate(steps):
        if not isinstance(entry, Step):
            continue
        read = {operand.tensor for operand in entry.inputs}
        for early in range(late):
            maker = steps[early]
            if not isinstance(maker, Step) or not read & {operand.tensor for operand in maker.outputs}:
                continue
            what = f"op {entry.index} before op {maker.index}"
            moved = (*steps[:early], entry, *(s for s in steps[early:] if s is not entry))
            yield ProgramMutant("earlier", what, replace(program, schedule=tuple(moved)))
            put_off = (*(s for s in steps[: late + 1] if s is not maker), maker, *steps[late + 1 :])
            yield ProgramMutant("later", f"op {maker.index} after op {entry.index}", replace(program, schedule=put_off))
            swapped = list(steps)
            swapped[early], swapped[late] = entry, maker
            yield ProgramMutant("swapped", what, replace(program, schedule=tuple(swapped)))


def _views(program: Program) -> Iterator[ProgramMutant]:
    """Offsets of tensors that lie inside others."""
    for pin in program.pins:
        for off in (1, -1, 16, -16, pin.size_bytes // 2):
            made = replace(pin, offset_bytes=pin.offset_bytes + off)
            if made.offset_bytes >= 0:
                yield ProgramMutant("offset", f"{pin.name} {off:+} bytes", _slot(program, pin, made))
    for first in program.pins:
        for second in program.pins:
            if first.name < second.name and first.offset_bytes != second.offset_bytes:
                one = _slot(program, first, replace(first, offset_bytes=second.offset_bytes))
                both = _slot(one, second, replace(second, offset_bytes=first.offset_bytes))
                yield ProgramMutant("swapped", f"{first.name} and {second.name}", both)
                yield ProgramMutant("same place", f"{first.name} at {second.name}", one)


def _overlap(program: Program) -> Iterator[ProgramMutant]:
    """A layer's input too close to its output, by the least that counts and by more."""
    slots = {slot.name: slot for slot in program.slots}
    for entry in program.schedule:
        if not isinstance(entry, Step):
            continue
        for source in entry.inputs:
            for target in entry.outputs:
                x, y = _of(slots, source), _of(slots, target)
                if x is None or y is None or x is y:
                    continue
                meet = x.offset_bytes < y.offset_bytes + y.size_bytes and y.offset_bytes < x.offset_bytes + x.size_bytes
                if not meet:
                    continue
                for off in (_gap(entry, x, y), 32, 64):
                    if off:
                        made = replace(y, offset_bytes=y.offset_bytes + off)
                        yield ProgramMutant(
                            "closer", f"op {entry.index}: output {off} bytes up", _slot(program, y, made)
                        )


def _gap(entry: Step, x: Slot, y: Slot) -> int:
    """Bytes by which an output must be moved up so that it is one byte too close to its input, by the kernel's own walk."""
    del entry
    return 1 if x.offset_bytes <= y.offset_bytes else x.offset_bytes - y.offset_bytes + 1


def _of(slots: dict[str, Slot], operand: Operand) -> Slot | None:
    return slots.get(operand.address.slot)


def _moves(program: Program) -> Iterator[ProgramMutant]:
    """Tensors that are moved."""
    schedule = list(program.schedule)
    slots = {slot.name: slot for slot in program.slots}
    for place, move in enumerate(schedule):
        if not isinstance(move, Move):
            continue
        for off in (-1, -16, -(move.size_bytes // 2)):
            made = replace(move, size_bytes=move.size_bytes + off)
            yield ProgramMutant("size", f"{move.destination.text} {off} bytes", _entry(program, move, made))
        turned = replace(move, source=move.destination, destination=move.source)
        yield ProgramMutant("turned", move.destination.text, _entry(program, move, turned))
        yield ProgramMutant("dropped", move.destination.text, _entry(program, move))
        if place + 1 < len(schedule):
            late = list(schedule)
            late[place : place + 2] = late[place + 1], late[place]
            yield ProgramMutant("late", move.destination.text, replace(program, schedule=tuple(late)))
        target = slots[move.destination.slot]
        for off in (1, 16):
            shifted = replace(target, offset_bytes=max(target.offset_bytes - off, 0) if target.offset_bytes else off)
            other = _slot(program, target, shifted)
            readers = [e for e in schedule if isinstance(e, Step) and any(_of(slots, o) is target for o in e.inputs)]
            name = f"{target.name}_ELSEWHERE"
            elsewhere = replace(shifted, name=name)
            pointed = replace(move, destination=replace(move.destination, slot=name))
            del other
            if readers:
                added = replace(program, slots=(*program.slots, elsewhere))
                yield ProgramMutant("destination", f"{target.name} {off} bytes off", _entry(added, move, pointed))


def _streaming(program: Program) -> Iterator[ProgramMutant]:
    """Segments of rows."""
    for segment in program.schedule:
        if not isinstance(segment, RowSegment):
            continue
        for call in segment.calls:
            for kind, what, made in _calls(call):
                calls = tuple(made if old is call else old for old in segment.calls)
                calls = tuple(_same_tensors(old, call.makes, made.makes) for old in calls)
                other = replace(segment, calls=calls)
                yield ProgramMutant(kind, f"op {call.step.index}: {what}", _entry(program, segment, other))
        if segment.source is not None:
            for off in (1, -1):
                source = replace(segment.source, row_bytes=segment.source.row_bytes + off)
                calls = tuple(_same_tensors(old, segment.source, source) for old in segment.calls)
                other = replace(segment, source=source, calls=calls)
                yield ProgramMutant("row bytes", f"source {off:+}", _entry(program, segment, other))


def _same_tensors(call: RowCall, old: RowTensor, new: RowTensor) -> RowCall:
    """The call with a row tensor replaced by another one, wherever it stands."""

    def now(tensor: RowTensor) -> RowTensor:
        return new if tensor.name == old.name else tensor

    uses = tuple(replace(use, tensor=now(use.tensor)) for use in call.uses)
    readers = tuple((now(makes), replace(use, tensor=now(use.tensor))) for makes, use in call.readers)
    return replace(call, uses=uses, readers=readers, makes=now(call.makes), in_place_of=now(call.in_place_of))


def _calls(call: RowCall) -> Iterator[tuple[str, str, RowCall]]:
    for number, use in enumerate(call.uses):
        for name, off in (("extent", -1), ("pad", 1), ("pad", -1), ("stride", 1)):
            value = getattr(use, name) + off
            if value >= (1 if name != "pad" else -1):
                uses = tuple(replace(u, **{name: value}) if i == number else u for i, u in enumerate(call.uses))
                yield name, f"{name} {off:+} of {use.tensor.name}", replace(call, uses=uses)
        if use.waits:
            uses = tuple(replace(u, waits=False) if i == number else u for i, u in enumerate(call.uses))
            yield "waits", f"does not wait for {use.tensor.name}", replace(call, uses=uses)
    if call.makes.capacity > 1 and not call.makes.whole:
        yield "room", "a row less", replace(call, makes=replace(call.makes, capacity=call.makes.capacity - 1))
    yield "rows", "a row less", replace(call, makes=replace(call.makes, rows=call.makes.rows - 1))
    yield "row bytes", "a byte more", replace(call, makes=replace(call.makes, row_bytes=call.makes.row_bytes + 1))


def _together(program: Program) -> list[tuple[Slot, Slot]]:
    """Buffers that are alive at one time in one memory, and do not overlap."""
    pairs = []
    for a in program.slots:
        for b in program.slots:
            disjoint = (
                a.offset_bytes + a.size_bytes <= b.offset_bytes or b.offset_bytes + b.size_bytes <= a.offset_bytes
            )
            both = min(a.end, b.end) - max(a.first, b.first)
            # At one step alone the two may be its input and output, which some kernels take however they lie.
            if a.name != b.name and a.region == b.region and both > 1 and disjoint:
                pairs.append((a, b))
    return pairs


def _plan(program: Program) -> Iterator[ProgramMutant]:
    """Two buffers that are needed at one time at one place, or a part of the way there."""
    for a, b in _together(program):
        same = replace(a, offset_bytes=b.offset_bytes)
        yield ProgramMutant("same place", f"{a.name} at {b.name}", _slot(program, a, same))
        if a.offset_bytes < b.offset_bytes:
            over = replace(a, offset_bytes=b.offset_bytes - a.size_bytes + 1)
            yield ProgramMutant("one byte", f"{a.name} over {b.name}", _slot(program, a, over))
    end = program.plan.arena_bytes
    for slot in program.slots:
        made = replace(slot, offset_bytes=end - slot.size_bytes + 1)
        yield ProgramMutant("outside", f"{slot.name} ends a byte after the arena", _slot(program, slot, made))


def _regions(program: Program) -> Iterator[ProgramMutant]:
    """Pointers into another memory than the buffer's."""
    names = [region.name for region in program.regions]
    for entry in program.schedule:
        if not isinstance(entry, Step):
            continue
        for side in ("inputs", "outputs"):
            for operand in getattr(entry, side):
                for one, other in ((a, b) for a in names for b in names if a != b):
                    if operand.address.variable != arena_variable(one):
                        continue
                    wrong = replace(operand, address=replace(operand.address, variable=arena_variable(other)))
                    operands = tuple(wrong if old is operand else old for old in getattr(entry, side))
                    made = replace(entry, inputs=operands) if side == "inputs" else replace(entry, outputs=operands)
                    yield ProgramMutant(side, f"op {entry.index}: {wrong.pointer}", _entry(program, entry, made))


_MAKERS: dict[str, Callable[[Program], Iterator[ProgramMutant]]] = {
    "order": _order,
    "views": _views,
    "overlap": _overlap,
    "moves": _moves,
    "streaming": _streaming,
    "plan": _plan,
    "regions": _regions,
}


def program_mutants(technique: str, program: Program) -> Iterator[ProgramMutant]:
    """Faults of one technique in a program."""
    return _MAKERS[technique](program)

"""The blocks of memory of a program, byte by byte: what lies there, and who has written it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from emitc.ir import Array
from emitc.kernels import kernel_of
from emitc.program import Address, Block, Program, RowCall, RowSegment, RowTensor, RowUse, arena_variable
from emitc.records import dataclass

if TYPE_CHECKING:
    from emitc.validation.program import ProgramRun


Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Place:
    """Bytes of a block. slot: name of the buffer there."""

    block: str
    offset: int
    slot: str

    def overlaps(self, size: int, other: Place, other_size: int) -> bool:
        disjoint = self.offset + size <= other.offset or other.offset + other_size <= self.offset
        return self.block == other.block and not disjoint


class Outside(Exception):
    """Bytes beyond the end of their block."""


class Blocks:
    """The arenas and the state block of a program; `held_N` for the variables that a part of a program is handed."""

    def __init__(self, program: Program) -> None:
        rng = np.random.default_rng(1)
        sizes = {arena_variable(name): plan.arena_bytes for name, plan in program.arenas}
        sizes["state"] = program.state_bytes
        self.bytes: dict[str, Bytes] = {n: rng.integers(0, 256, size, dtype=np.uint8) for n, size in sizes.items()}
        self.writers: dict[str, NDArray[np.int32]] = {n: np.zeros(size, np.int32) for n, size in sizes.items()}
        self.who: list[str] = [""]
        self._slots = {s.name: s.offset_bytes for s in (*program.slots, *program.pins)}
        self._slots |= {state.name: state.offset_bytes for state in program.states}
        self.regions = {slot.name: slot.region for slot in (*program.slots, *program.pins)}

    def place(self, address: Address) -> Place | None:
        """The bytes at an address; None for a constant."""
        if address.block is Block.CONSTANT:
            return None
        if address.block is Block.STATE_ARGUMENT:
            return Place(address.variable, 0, address.variable)
        return Place(address.variable, self._slots[address.slot], address.slot)

    def buffer(self, address: Address) -> Place:
        """The bytes at an address that is no constant's."""
        place = self.place(address)
        assert place is not None, address
        return place

    def hold(self, block: str, value: bytes) -> None:
        """A variable that lies elsewhere."""
        self.bytes[block] = np.frombuffer(value, np.uint8).copy()
        self.writers[block] = np.zeros(len(value), np.int32)

    def _range(self, place: Place, size: int, skipped: int) -> slice:
        start = place.offset + skipped
        if start < 0 or start + size > self.bytes[place.block].size:
            raise Outside(f"bytes [{start}, {start + size}) of {self.bytes[place.block].size}")
        return slice(start, start + size)

    def write(self, place: Place, value: bytes, who: str, skipped: int = 0) -> None:
        """Stores bytes, `skipped` bytes after the place. who: what they are part of."""
        if not self.who or self.who[-1] != who:
            self.who.append(who)
        part = self._range(place, len(value), skipped)
        self.bytes[place.block][part] = np.frombuffer(value, np.uint8)
        self.writers[place.block][part] = len(self.who) - 1

    def read(self, place: Place, size: int, skipped: int = 0) -> bytes:
        return self.bytes[place.block][self._range(place, size, skipped)].tobytes()

    def mismatch(self, place: Place, expected: bytes, skipped: int = 0) -> tuple[int, str]:
        """How many bytes are not the expected ones, and what has written the first such."""
        part = self._range(place, len(expected), skipped)
        wrong = np.flatnonzero(self.bytes[place.block][part] != np.frombuffer(expected, np.uint8))
        if not wrong.size:
            return 0, ""
        return int(wrong.size), self.who[int(self.writers[place.block][part][wrong[0]])]


COPIED = b"\x5a"
"""What the copies of weights consist of."""


class Rows:
    """A segment, in the order of `templates/model/row_segments.c.j2`."""

    def __init__(self, run: ProgramRun, segment: RowSegment) -> None:
        self.run = run
        self.segment = segment
        self.made = {call.makes.name: 0 for call in segment.calls}
        self.first = dict.fromkeys(self.made, 0)
        self.values: dict[str, bytes] = {}
        for call in segment.calls:
            bound = run.nodes[call.step.index]
            self.values[call.makes.name] = run.run.value(bound.output.name).tobytes()
        last = self.start_of(segment.last.makes)
        run.by_rows |= {last.slot}
        if segment.source is not None:
            source = segment.source
            self.made[source.name], self.first[source.name] = source.rows, 0
            readers = [c for c in segment.calls for use in c.uses if use.tensor.name == source.name]
            bound = run.nodes[readers[0].step.index]
            place = self.start_of(source)
            names = [o.tensor for o in readers[0].step.inputs if run.blocks.place(o.address) == place]
            self.values[source.name] = run.expected(names[0] if names else bound.input(0).name)

    def fault(self, index: int, tensor: RowTensor, count: int, why: str) -> None:
        """Raises Faulty for a row."""
        self.run.fault("streaming", self.run.nodes[index], tensor.what, count, why)

    def start_of(self, tensor: RowTensor) -> Place:
        assert tensor.start is not None, tensor.name
        return self.run.blocks.buffer(tensor.start)

    def row(self, tensor: RowTensor, row: int) -> bytes:
        return self.values[tensor.name][row * tensor.row_bytes : (row + 1) * tensor.row_bytes]

    def reach(self, use: RowUse, row: int) -> range:
        rows, start = use.tensor.rows, row * use.stride - use.pad
        return range(min(max(start, 0), rows), min(max(start + use.extent, 0), rows))

    def ready(self, number: int) -> bool:
        """Whether a layer makes its next row now; the first layer does where no other can."""
        call = self.segment.calls[number]
        row = self.made[call.makes.name]
        last = number == len(self.segment.calls) - 1
        if not last and row >= call.makes.rows:
            return False
        waits = all(self.made[u.tensor.name] >= self.reach(u, row).stop for u in call.uses if u.waits)
        on_demand = any(row < self.reach(use, self.made[makes.name]).stop for makes, use in call.readers)
        return waits and (on_demand or not call.on_demand)

    def execute(self) -> None:
        """Every row. Raises Faulty."""
        last = self.segment.last.makes
        rows = sum(call.makes.rows for call in self.segment.calls)
        for copied in (staged for staged in self.segment.staged if staged.start < 0):
            place = self.run.blocks.buffer(copied.address)
            self.run.blocks.write(place, COPIED * copied.size_bytes, place.slot)
        for call in self.segment.calls:
            self.independent(call)
            for tensor in (call.makes, *(use.tensor for use in call.uses)):
                if tensor.row_bytes * tensor.rows != len(self.values[tensor.name]):
                    self.fault(
                        call.step.index, tensor, -1, f"{tensor.rows} rows of {tensor.row_bytes} bytes are not its size"
                    )
        while self.made[last.name] < last.rows:
            number = next((n for n in range(len(self.segment.calls) - 1, 0, -1) if self.ready(n)), 0)
            self.make(number)
            rows -= 1
            if rows < 0:
                self.fault(self.segment.calls[number].step.index, last, -1, "the layers make more rows than there are")
        for call in self.segment.calls:
            self.run.waiting.discard(call.step.index)

    def make(self, number: int) -> None:
        """The next row of a layer, read and stored where the C does."""
        call = self.segment.calls[number]
        index, makes, place = call.step.index, call.makes, call.in_place_of
        row = self.made[makes.name]
        if row >= makes.rows:
            self.fault(index, makes, -1, f"the layer makes row {row} of {makes.rows}")
        self.roll(number)
        target = self.start_of(place)
        skipped = (self.made[place.name] - self.first[place.name]) * place.row_bytes
        self.reads(number, row, target, skipped)
        for operand in call.step.scratch:
            spot = self.run.blocks.buffer(operand.address)
            self.run.blocks.write(spot, bytes([0xA5]) * operand.size_bytes, spot.slot)
        self.run.blocks.write(target, self.row(makes, row), target.slot, skipped)
        self.reads(number, row, target, skipped, done=True)
        for copied in call.step.staged:
            spot = self.run.blocks.buffer(copied.address)
            count, writer = self.run.blocks.mismatch(spot, COPIED * copied.size_bytes)
            if count:
                self.fault(index, makes, count, f"{writer} has written over the copy of its weights")
        self.made[makes.name] = row + 1

    def reads(self, number: int, row: int, target: Place, skipped: int, *, done: bool = False) -> None:
        """Compares every row that a layer reads, before its own is stored and afterwards."""
        call = self.segment.calls[number]
        for use in call.uses:
            if use.in_place:
                if not done:
                    self.compare(call.step.index, use.tensor, row, target, skipped)
                continue
            start = self.start_of(use.tensor)
            for other in self.reach(use, row):
                kept = range(self.first[use.tensor.name], self.made[use.tensor.name])
                if other not in kept:
                    self.fault(
                        call.step.index, use.tensor, -1, f"row {row} reads row {other}, of which {kept} are there"
                    )
                offset = (other - self.first[use.tensor.name]) * use.tensor.row_bytes
                self.compare(call.step.index, use.tensor, other, start, offset)

    def compare(self, index: int, tensor: RowTensor, row: int, start: Place, skipped: int) -> None:
        """A row of a tensor against its value."""
        count, writer = self.run.blocks.mismatch(start, self.row(tensor, row), skipped)
        if count:
            self.fault(index, tensor, count, f"row {row} has been overwritten by {writer or 'nobody'}")

    def roll(self, number: int) -> None:
        """Moves the rows of a full line buffer up, those that a reader still needs."""
        call = self.segment.calls[number]
        place = call.in_place_of
        kept = self.made[place.name] - self.first[place.name]
        if place.whole or kept < place.capacity:
            return
        needed = [self.reach(use, self.made[makes.name]).start for makes, use in call.readers]
        first = min(min(needed, default=0), self.made[place.name])
        start = self.start_of(place)
        held = [
            self.run.blocks.read(start, place.row_bytes, (row - self.first[place.name]) * place.row_bytes)
            for row in range(first, self.made[place.name])
        ]
        for number, content in enumerate(held):
            self.run.blocks.write(start, content, start.slot, number * place.row_bytes)
        self.first[place.name] = first
        if self.made[place.name] - first >= place.capacity:
            self.fault(call.step.index, place, -1, f"its {place.capacity} rows are all still needed")

    def independent(self, call: RowCall) -> None:
        """That a layer's rows depend only on the rows that it is to read: others are replaced."""
        bound = self.run.nodes[call.step.index]
        uses = {id(o): use for o, use in zip(call.step.inputs, call.uses, strict=False)}
        if not uses:
            return
        distance = max(-(-(use.extent + 2) // use.stride) for use in uses.values())
        rows = range(min(1, call.makes.rows - 1), call.makes.rows, distance)
        named = {o.tensor: uses[id(o)] for o in call.step.inputs if id(o) in uses}
        operands: list[Array | None] = []
        for tensor in bound.inputs:
            value = None if tensor is None else self.run.real.values[tensor.name]
            use = None if tensor is None else named.get(tensor.name)
            if value is not None and use is not None:
                read = {other for row in rows for other in self.reach(use, row)}
                value = _replaced(value, use.tensor.rows, read)
            operands.append(value)
        with np.errstate(all="ignore"):
            computed = np.ascontiguousarray(kernel_of(bound).reference(bound, operands)[0]).tobytes()
        expected = self.run.real.values[bound.output.name].tobytes()
        size = len(expected) // call.makes.rows
        for row in rows:
            if computed[row * size : (row + 1) * size] != expected[row * size : (row + 1) * size]:
                self.fault(call.step.index, call.makes, -1, f"row {row} depends on rows that the layer is not given")


def _replaced(value: Array, rows: int, kept: set[int]) -> Array:
    """A tensor with other values in all rows but some."""
    flat = np.array(value).reshape(rows, -1)
    gone = [row for row in range(rows) if row not in kept]
    if gone:
        raw = flat[gone]
        other = raw + 3 if raw.dtype.kind == "f" else np.bitwise_xor(raw.astype(np.int64), -1)
        flat[gone] = other.astype(flat.dtype)
    return flat.reshape(value.shape)

"""The blocks of memory of a program, byte by byte: what lies there, and who has written it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emitc.program import Address, Block, Program, arena_variable

Bytes = NDArray[np.uint8]
NOBODY = 0


@dataclass(frozen=True, slots=True)
class Place:
    """Bytes of a block. slot: name of the buffer there."""

    block: str
    offset: int
    slot: str

    def overlaps(self, size: int, other: Place, other_size: int) -> bool:
        """Whether two buffers of so many bytes share any."""
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

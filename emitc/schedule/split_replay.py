"""A replay of a layer that makes its rows in parts: whether every part still finds what it reads.

A layer that runs whole may write over its input at the distance of its access order. Between two parts the kernel keeps nothing:
what a later part reads must not lie under what the earlier parts have written. Inside a part the kernel walks as it does over a
whole image of these rows. So its access order for so many rows must allow the distance between the part's own rows.
"""

from __future__ import annotations

from collections.abc import Mapping

from emitc.layer import AccessOrder, ChannelOrder, ElementwiseOrder, Layer, Overlap, ReadAllFirst, WindowOrder
from emitc.program import Address, Program
from emitc.program.stepping import Split, SplitOperand
from emitc.records import dataclass, replace


@dataclass(frozen=True, slots=True)
class MemoryMap:
    """Where the named places of a program lie. offsets: bytes from the start of their block, by the names of the slots."""

    offsets: Mapping[str, int]

    @classmethod
    def of(cls, program: Program) -> MemoryMap:
        """The slots of all arenas, and those of the state block."""
        arena = {slot.name: slot.offset_bytes for slot in (*program.slots, *program.pins)}
        return cls(arena | {slot.name: slot.offset_bytes for slot in program.states})

    def start(self, address: Address) -> tuple[str, int]:
        """The block of an address, by its C variable, and the offset there in bytes."""
        return address.variable, self.offsets[address.slot] if address.slot else 0


@dataclass(frozen=True, slots=True)
class _Bytes:
    """Bytes [first, end) of a block."""

    block: str
    first: int
    end: int

    def meets(self, other: _Bytes) -> bool:
        """Whether the two have a byte in common."""
        return self.block == other.block and max(self.first, other.first) < min(self.end, other.end)


def conflict(split: Split, layer: Layer, memory: MemoryMap) -> str:
    """Why the parts of a layer cannot run one after another; "" where every part finds what it reads.

    Every part is replayed, in the order of the rows.
    """
    made, others = split.makes, _working_memory(split, memory)
    for read in (*split.reads, made):
        if any(other.meets(_rows(read, 0, read.rows, memory)) for other in others):
            return "its working memory shares bytes with its tensors"
    for row in range(0, split.rows, split.together):
        end = min(row + split.together, split.rows)
        written, own = _rows(made, 0, row, memory), _rows(made, row, end, memory)
        for position, read in zip(layer.operands, split.reads, strict=True):
            first, last = read.first(row), read.end(end - 1)
            seen = _rows(read, first, max(first, last), memory)
            if seen.meets(own) and split.outputs:
                return "each part of its output needs the whole input"
            if seen.meets(written):
                return "rows of its input would be overwritten before the next part reads them"
            overlaps = [overlap for overlap in layer.overlaps if (overlap.input, overlap.output) == (position, 0)]
            if seen.meets(own) and not any(
                _allowed(overlap, seen.first - own.first, split, read, (row, end)) for overlap in overlaps
            ):
                return "a part would write over rows of its input that it has not read yet"
    return ""


def _working_memory(split: Split, memory: MemoryMap) -> list[_Bytes]:
    """Scratch, and copies of tables."""
    used = [(operand.address, operand.size_bytes) for operand in split.step.scratch]
    used += [(staged.address, staged.size_bytes) for staged in split.step.staged]
    starts = [(memory.start(address), size) for address, size in used]
    return [_Bytes(block, start, start + size) for (block, start), size in starts]


def _rows(tensor: SplitOperand, first: int, end: int, memory: MemoryMap) -> _Bytes:
    """Rows [first, end) of a tensor. A constant is a block of its own."""
    operand = tensor.operand
    row_bytes = operand.size_bytes // tensor.rows
    block, start = memory.start(operand.address)
    return _Bytes(block, start + first * row_bytes, start + end * row_bytes)


def _allowed(overlap: Overlap, distance: int, split: Split, read: SplitOperand, rows: tuple[int, int]) -> bool:
    """Whether the kernel may make rows [first, end) where the rows that they read lie `distance` bytes above them."""
    order = _order_of_part(overlap.order, split, read, rows)
    if order is None:
        return False
    part = replace(overlap, order=order)
    return distance >= part.distance_bytes and distance % part.multiple == 0


def _order_of_part(order: AccessOrder, split: Split, read: SplitOperand, rows: tuple[int, int]) -> AccessOrder | None:
    """The kernel's access order in a call that makes rows [row, end); None where it is not known for a part."""
    row, end = rows
    first, last = read.first(row), read.end(end - 1)
    count, seen = end - row, last - first
    if isinstance(order, ElementwiseOrder) and order.first == 0:
        return replace(order, count=count * split.makes.elements)
    if isinstance(order, ReadAllFirst):
        return ReadAllFirst(seen * (read.operand.size_bytes // read.rows))
    if isinstance(order, WindowOrder):
        return _window_of_part(order, read, rows)
    if isinstance(order, ChannelOrder) and order.batches == 1:
        pixels = order.in_pixels // read.rows * seen, order.out_pixels // split.rows * count
        return replace(order, in_pixels=pixels[0], out_pixels=pixels[1]) if pixels[1] <= pixels[0] else None
    return None


def _window_of_part(order: WindowOrder, read: SplitOperand, rows: tuple[int, int]) -> WindowOrder | None:
    """The order of a window's kernel. One that multiplies matrices may see each row as an image of its own."""
    row, end = rows
    if order.in_h == order.out_h == 1 and order.batches == read.rows:
        return replace(order, batches=end - row)
    if order.batches == 1 and order.in_h * order.in_w == order.out_h * order.out_w == read.rows > order.in_h:
        return replace(order, in_h=end - row, in_w=1, out_h=end - row, out_w=1) if _by_pixel(order) else None
    if order.batches != 1 or order.in_h != read.rows:
        return None
    first = read.first(row)
    return replace(
        order,
        in_h=read.end(end - 1) - first,
        out_h=end - row,
        pad_top=first - (row * read.stride - read.pad),
    )


def _by_pixel(order: WindowOrder) -> bool:
    """Whether each output pixel reads the one at its own place, so that the rows of an image may be looked at as one column."""
    window = order.kernel_h, order.kernel_w, order.stride_h, order.stride_w
    return window == (1, 1, 1, 1) and (order.pad_top, order.pad_left) == (0, 0)

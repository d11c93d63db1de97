"""Seeded damage: one case is (model, number), and the same number always gives the same bytes."""

from __future__ import annotations

import random
from collections.abc import Callable

from tests.support.hostile.layout import Layout, layout_of

_EXTREMES = (
    b"\x00" * 8,
    b"\xff" * 8,
    b"\xff\xff\xff\x7f\xff\xff\xff\x7f",
    b"\x00\x00\x00\x80\x00\x00\x00\x80",
    b"\x00\x00\xc0\x7f\x00\x00\xc0\x7f",  # NaN
    b"\x00\x00\x80\x7f\x00\x00\x80\x7f",  # infinity
    b"\x01\x00\x00\x00\x00\x00\x00\x00",  # 1, and the smallest denormal
    b"\xff\xff\x7f\x7f\xff\xff\x7f\x7f",  # the largest float
    b"\x00\x00\x01\x00\x00\x00\x01\x00",
)


def _put(data: bytearray, at: int, value: bytes) -> None:
    data[at : at + len(value)] = value[: max(0, len(data) - at)]


def _value(rng: random.Random, width: int) -> bytes:
    """An extreme, a small number, or noise."""
    kind = rng.random()
    if kind < 0.4:
        return rng.choice(_EXTREMES)[:width]
    if kind < 0.8:
        return rng.randrange(-4, 64).to_bytes(8, "little", signed=True)[:width]
    return rng.randbytes(width)


def _truncate(data: bytearray, layout: Layout, rng: random.Random) -> None:
    del data[rng.choice([rng.randrange(len(data)), rng.choice(layout.structure())]) :]


def _flip_anywhere(data: bytearray, layout: Layout, rng: random.Random) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _flip_structure(data: bytearray, layout: Layout, rng: random.Random) -> None:
    data[rng.choice(layout.structure())] ^= 1 << rng.randrange(8)


def _flip_number(data: bytearray, layout: Layout, rng: random.Random) -> None:
    at, width = rng.choice(layout.numbers)
    data[at + rng.randrange(width)] ^= 1 << rng.randrange(8)


def _flip_element(data: bytearray, layout: Layout, rng: random.Random) -> None:
    data[rng.choice(layout.elements) + rng.randrange(4)] ^= 1 << rng.randrange(8)


def _overwrite_number(data: bytearray, layout: Layout, rng: random.Random) -> None:
    at, width = rng.choice(layout.numbers)
    _put(data, at, _value(rng, width))


def _overwrite_element(data: bytearray, layout: Layout, rng: random.Random) -> None:
    _put(data, rng.choice(layout.elements), _value(rng, 4))


def _overwrite_bytes(data: bytearray, layout: Layout, rng: random.Random) -> None:
    _put(data, rng.choice(layout.structure()), _value(rng, rng.choice((1, 2, 4, 8))))


def _length(data: bytearray, layout: Layout, rng: random.Random) -> None:
    at = rng.choice(layout.lengths)
    old = int.from_bytes(data[at : at + 4], "little")
    new = rng.choice((0, 1, old + 1, max(0, old - 1), old * 2, len(data), len(data) // 4, 65535, 2**31 - 1, 2**32 - 1))
    _put(data, at, (new % 2**32).to_bytes(4, "little"))


def _vtable(data: bytearray, layout: Layout, rng: random.Random) -> None:
    _put(data, rng.choice(layout.vtables), _value(rng, 2))


def _offset(data: bytearray, layout: Layout, rng: random.Random) -> None:
    """Somewhere else, and half of the time at something that exists: one table or vector seen from two places."""
    at = rng.choice(layout.offsets)
    if rng.random() < 0.5:
        target = rng.choice(layout.offsets + layout.lengths)
        _put(data, at, ((target - at) % 2**32).to_bytes(4, "little"))
    else:
        _put(data, at, _value(rng, 4))


def _swap(data: bytearray, layout: Layout, rng: random.Random) -> None:
    """Two fields of one kind exchanged."""
    a, b = (rng.choice(layout.elements if rng.random() < 0.5 else layout.offsets) for _ in range(2))
    data[a : a + 4], data[b : b + 4] = data[b : b + 4], data[a : a + 4]


def _shift(data: bytearray, layout: Layout, rng: random.Random) -> None:
    """Bytes lost or gained in the middle, as a broken copy has them."""
    at = rng.choice(layout.structure())
    if rng.random() < 0.5:
        del data[at : at + rng.choice((1, 2, 4, 8, 64))]
    else:
        data[at:at] = rng.randbytes(rng.choice((1, 2, 4, 8, 64)))


def _blank(data: bytearray, layout: Layout, rng: random.Random) -> None:
    at, count = rng.choice(layout.structure()), rng.choice((16, 64, 512, 4096))
    _put(data, at, rng.choice((b"\x00", b"\xff")) * min(count, len(data) - at))


Damage = Callable[[bytearray, Layout, random.Random], None]

DAMAGES: tuple[tuple[str, Damage], ...] = (
    ("truncate", _truncate),
    ("flip anywhere", _flip_anywhere),
    ("flip structure", _flip_structure),
    ("flip number", _flip_number),
    ("flip element", _flip_element),
    ("overwrite number", _overwrite_number),
    ("overwrite element", _overwrite_element),
    ("overwrite bytes", _overwrite_bytes),
    ("length", _length),
    ("vtable", _vtable),
    ("offset", _offset),
    ("swap", _swap),
    ("shift", _shift),
    ("blank", _blank),
)


class Damager:
    """Damaged copies of one model by number."""

    suffix = ".tflite"

    def __init__(self, name: str, data: bytes) -> None:
        self.name = name
        self.data = data
        self.layout = layout_of(data)

    def damaged(self, number: int) -> tuple[str, bytes]:
        """(kind of damage, bytes): every kind in turn; one time in eight several at once."""
        rng = random.Random(f"{self.name}:{number}")
        data = bytearray(self.data)
        kind, damage = DAMAGES[number % len(DAMAGES)]
        damage(data, self.layout, rng)
        if rng.random() < 0.125:
            for _ in range(rng.randrange(1, 4)):
                extra, more = rng.choice(DAMAGES[1:11])
                if data:
                    more_safe(more, data, self.layout, rng)
                    kind = f"{kind} + {extra}"
        return kind, bytes(data)


def more_safe(damage: Damage, data: bytearray, layout: Layout, rng: random.Random) -> None:
    """Applies a further damage to data that the first one may have shortened."""
    before = len(data)
    data.extend(b"\x00" * max(0, layout.size - before))
    damage(data, layout, rng)
    del data[before:]

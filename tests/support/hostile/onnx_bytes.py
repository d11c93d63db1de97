"""Seeded damage to the bytes of a .onnx file. One case always gives the same bytes."""

from __future__ import annotations

import random
from collections.abc import Callable


def _truncate(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def _flip(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _overwrite(data: bytearray, rng: random.Random) -> None:
    at, count = rng.randrange(len(data)), rng.choice((1, 2, 4, 8, 64, 512))
    run = rng.choice((b"\x00" * count, b"\xff" * count, rng.randbytes(count), b"\xff\xff\xff\xff\x0f" * count))[:count]
    data[at : at + count] = run[: len(data) - at]


def _remove(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    del data[at : at + rng.choice((1, 2, 4, 64))]


def _insert(data: bytearray, rng: random.Random) -> None:
    at = rng.randrange(len(data))
    data[at:at] = rng.randbytes(rng.choice((1, 2, 4, 64)))


_BYTES: tuple[tuple[str, Callable[[bytearray, random.Random], None]], ...] = (
    ("truncate", _truncate), ("flip", _flip), ("flip", _flip), ("overwrite", _overwrite), ("remove", _remove),
    ("insert", _insert),
)  # fmt: skip


class OnnxByteDamager:
    """Damaged copies of one file by number."""

    suffix = ".onnx"

    def __init__(self, name: str, data: bytes) -> None:
        self.name = f"{name} bytes"
        self.data = data

    def damaged(self, number: int) -> tuple[str, bytes]:
        """(kind of damage, bytes)."""
        rng = random.Random(f"{self.name}:{number}")
        data = bytearray(self.data)
        kind, damage = _BYTES[number % len(_BYTES)]
        damage(data, rng)
        while kind == "flip" and rng.random() < 0.3:
            damage(data, rng)
        return kind, bytes(data)

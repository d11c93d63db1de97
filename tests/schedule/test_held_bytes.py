"""The bytes that buffers hold between two steps, against a count of every buffer."""

import random

from emitc.planner import Buffer, LiveRange
from emitc.schedule.search import HeldBytes

ALIGNMENT = 16


def test_held_bytes_are_those_of_all_buffers_alive() -> None:
    rng = random.Random(0)
    for _ in range(50):
        buffers = []
        for i in range(rng.randrange(1, 12)):
            first = rng.randrange(8)
            buffers.append(Buffer(f"b{i}", rng.randrange(1, 99), LiveRange(first, rng.randrange(first + 1, 10))))
        held = HeldBytes.of(buffers, ALIGNMENT)
        without = {buffer.name for buffer in buffers if rng.random() < 0.3} | {"absent"}
        for first in range(9):
            for end in range(first + 1, 10):
                alive = [b for b in buffers if b.live.first < end and b.live.end > first and b.name not in without]
                expected = sum(-(-buffer.size_bytes // ALIGNMENT) * ALIGNMENT for buffer in alive)
                assert held.between(first, end, without) == expected

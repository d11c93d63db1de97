"""Long sweeps by sample: which cases of a `sweep` test run when --full does not ask for all of them."""

from __future__ import annotations

import os
import random
import zlib
from collections.abc import Iterable, Sequence

KEPT = 10
"""Cases of one test that run unless its marker says `sweep(keep=n)`."""
SHARE_VARIABLE = "EMITC_TESTS_SHARE"
"""Where the number of the share stands during a run with --share."""


def sampled(names: Sequence[str], keep: int, seed: str) -> frozenset[str]:
    """At most `keep` of the names: the same ones in every process, whatever their order. seed: the test's own name."""
    ordered = sorted(names)
    return frozenset(random.Random(seed).sample(ordered, min(keep, len(ordered))))


def share(left: Sequence[str], part: int, parts: int, seed: str) -> frozenset[str]:
    """The cases of share `part` (from 0) of `parts`, of those that `sampled` leaves out: each case is in one share.

    seed: the test's own name, from which it starts counting, so that tests with few cases do not all fill the first share.
    """
    first = random.Random(seed).randrange(parts)
    return frozenset(name for index, name in enumerate(sorted(left), first) if index % parts == part)


def parse_share(text: str) -> tuple[int, int]:
    """PART/PARTS, such as 3/8, as two numbers. Raises ValueError where it is something else."""
    part, _, parts = text.partition("/")
    if not (part.isdecimal() and parts.isdecimal() and int(part) < int(parts)):
        raise ValueError(f"{text!r} is not PART/PARTS, such as 3/8")
    return int(part), int(parts)


def in_turn(names: Iterable[str], turns: int = 2) -> bool:
    """Whether a costly check of the cases with these names is made: always, but in one of `turns` commits with --share."""
    part = os.environ.get(SHARE_VARIABLE)
    return part is None or (zlib.crc32(" ".join(names).encode()) + int(part)) % turns == 0

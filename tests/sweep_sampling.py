"""Long sweeps by sample: which cases of a `sweep` test run when --full does not ask for all of them."""

from __future__ import annotations

import random
from collections.abc import Sequence

KEPT = 24
"""Cases of one test that run unless its marker says `sweep(keep=n)`."""


def sampled(names: Sequence[str], keep: int, seed: str) -> frozenset[str]:
    """At most `keep` of the names: the same ones in every process, whatever their order. seed: the test's own name."""
    ordered = sorted(names)
    return frozenset(random.Random(seed).sample(ordered, min(keep, len(ordered))))

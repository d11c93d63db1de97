"""An estimate of how much faster a model compiled for any core would be with emitc's kernels for another target."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from emitc.backends.contract import Settings
from emitc.backends.portable.backend import Known, Portable, cost_of
from emitc.ir import BoundNode
from emitc.target import Target, load_target, targets

LEAST_FACTOR = 1.1
"""What a core's kernels must bring to be named."""


_COUNTED = {
    **dict.fromkeys(("cortex-m0", "cortex-m0-small-multiply", "cortex-m0plus", "cortex-m0plus-small-multiply"), 1.33),
    "cortex-m3": 1.04,
    **dict.fromkeys(("cortex-m33", "cortex-m4", "cortex-m4f", "cortex-m7"), 0.97),
    **dict.fromkeys(("cortex-m55", "cortex-m85"), 0.95),
    **dict.fromkeys(("rv32imac", "rv32imafc", "esp32c3", "esp32c6", "esp32p4"), 0.85),
}
"""By target: the factor that QEMU counted over the factor that the costs give, the mean of four int8 nets with convolutions.

The costs rank the kernels of one core, so that all of them may be off by the same share. With this the factors of a Cortex-M4
come within 7 % of what was counted on 2026-11-27, those of the other cores within 11 % of what was counted before that day. A
small network can be farther off: the factor of digits_int8 is 3.3 instead of 2.3, since its own kernels get less working memory.
"""


@dataclass(frozen=True, slots=True)
class FasterTarget:
    """A target whose kernels need fewer instructions on its core.

    factor: instructions of the portable kernels over those of the target's, estimated for one inference on that core.
    """

    name: str
    title: str
    factor: float

    def to_json(self) -> dict[str, Any]:
        return {"target": self.name, "title": self.title, "estimated_factor": round(self.factor, 1)}


def faster_targets(nodes: Iterable[BoundNode], *, small: bool) -> tuple[FasterTarget, ...]:
    """The targets that bring at least LEAST_FACTOR, the largest factor first. small: as in `Settings`."""
    by_features: dict[tuple[str, ...], list[Target]] = {}
    for target in map(load_target, targets()):
        by_features.setdefault(tuple(sorted(target.features)), []).append(target)
    by_features.pop((), None)
    costs: dict[tuple[str, ...], list[tuple[float, float]]] = {features: [] for features in by_features}
    for bound in nodes:
        known = Known(kept_bytes=None)  # the variants of one node share most of what they compute
        for features, (target, *_) in by_features.items():
            own = Portable(Settings(target, small=small), known)
            costs[features].append((cost_of(bound, target), own.least_cost(bound)))
    faster = []
    for features, alike in by_features.items():
        portable, instructions = map(sum, zip((0, 0), *costs[features], strict=True))
        for target in alike:
            factor = _COUNTED.get(target.name, 1.0) * portable / instructions if instructions else 1.0
            if portable > instructions and factor >= LEAST_FACTOR:
                faster.append(FasterTarget(target.name, target.title, factor))
    return tuple(sorted(faster, key=lambda other: (-other.factor, other.name)))

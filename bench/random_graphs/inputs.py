"""Numbers to feed: random ones, and the ends of each type's range."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bench.random_graphs.case import Description, Value
from emitc.ir import Array

KINDS = ("uniform", "near", "ends", "one value")


def draw_inputs(description: Description, rng: np.random.Generator, count: int) -> list[tuple[Array, ...]]:
    """`count` sets of inputs in the graph's order: in turn over the whole range, near zero, only ends, one value throughout."""
    values = [description.value(name) for name in description.inputs]
    return [tuple(_drawn(value, rng, KINDS[n % len(KINDS)]) for value in values) for n in range(count)]


def _drawn(value: Value, rng: np.random.Generator, kind: str) -> Array:
    if value.dtype == "bool":
        return rng.integers(0, 2, value.shape).astype(bool)
    if value.dtype in ("float32", "float64", "float16"):
        return _real(value, rng, kind)
    info = np.iinfo(value.dtype)
    least, most = (int(end) for end in value.bounds) if value.bounds else (info.min, info.max)
    if value.bounds is None and info.bits > 16:
        least, most = max(least, -(1 << 20)), min(most, 1 << 20)
    if kind == "ends":
        return _chosen(rng, (least, most, min(least + 1, most)), value)
    if kind == "one value":
        return np.full(value.shape, rng.integers(least, most, endpoint=True), value.dtype)
    if kind == "near" and value.scales:
        spread = (most - least) / 8
        drawn = np.rint(rng.normal(value.zero_points[0] if value.zero_points else 0, spread, value.shape))
        return np.clip(drawn, least, most).astype(value.dtype)
    return rng.integers(least, most, value.shape, dtype=value.dtype, endpoint=True)


def _real(value: Value, rng: np.random.Generator, kind: str) -> Array:
    least, most = value.bounds or (-4.0, 4.0)
    if kind == "ends":
        inner = [x for x in (0.0, -0.0, 0.5, -0.5, 1.0) if least <= x <= most]
        return _chosen(rng, (least, most, *inner), value)
    if kind == "one value":
        return np.full(value.shape, rng.uniform(least, most), value.dtype)
    if kind == "near":
        middle = min(max(0.0, least), most)
        spread = (most - least) / 16
        return np.clip(rng.normal(middle, spread, value.shape), least, most).astype(value.dtype)
    return rng.uniform(least, most, value.shape).astype(value.dtype)


def _chosen(rng: np.random.Generator, choices: Sequence[float], value: Value) -> Array:
    return rng.choice(np.array(choices, value.dtype), value.shape).astype(value.dtype)

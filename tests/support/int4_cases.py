"""Cases of operators with weights of four bits, two in a byte: those of layer_cases.py with random weights within -8..7."""

from __future__ import annotations

import numpy as np

from emitc.ir import packed
from tests.support.layer_cases import Scales, Slide, conv_2d, depthwise, fully_connected, named_rng, with_input
from tests.support.single_op import Array, Case

ONCE = Slide()
CONV_SCALES, SCALES = Scales(factor=0.01), Scales(factor=0.02)


def nibbles(name: str, *shape: int) -> Array:
    """Random weights over the whole range of four bits."""
    values = named_rng(name).integers(-8, 7, shape, endpoint=True).astype(np.int8)
    values.reshape(-1)[:: max(1, values.size // 3)] = -8
    return values


def in_pairs(case: Case) -> Case:
    """The case with its int8 weights, which are within -8..7, packed."""
    weights = case.inputs[1]
    assert weights is not None and weights.data is not None
    return with_input(case, 1, dtype="int4", data=packed(np.frombuffer(weights.data, np.int8)))


def per_channel(channels: int) -> Scales:
    """A weight scale for each output channel."""
    return Scales(weights=tuple(2.0**e for e in np.linspace(-6.0, -3.0, channels).tolist()), factor=0.02)


def conv(
    name: str, x: tuple[int, int, int, int], out: int, kernel: tuple[int, int], slide: Slide = ONCE,
    scales: Scales = CONV_SCALES, *, groups: int = 1, bias: Array | str = "random",
) -> Case:  # fmt: skip
    w = nibbles(name, out, *kernel, x[3] // groups)
    return in_pairs(conv_2d(name, x, out, kernel, slide, scales, groups=groups, w=w, bias=bias))


def dw(
    name: str, x: tuple[int, int, int, int], multiplier: int, kernel: tuple[int, int], slide: Slide = ONCE,
    scales: Scales = SCALES, *, bias: Array | str = "random",
) -> Case:  # fmt: skip
    w = nibbles(name, 1, *kernel, x[3] * multiplier)
    return in_pairs(depthwise(name, x, multiplier, kernel, slide, scales, w=w, bias=bias))


def fc(
    name: str, x: tuple[int, ...], out: int, depth: int, scales: Scales = SCALES, *, bias: Array | str = "random"
) -> Case:  # fmt: skip
    return in_pairs(fully_connected(name, x, out, depth, scales=scales, w=nibbles(name, out, depth), bias=bias))

"""Random legal layers from a fixed seed: reference, engine and C agree on every bit of every one.

Layers are built many to a model, so that a build serves a hundred of them. The sampled part always runs; the whole sweep
of over a thousand is marked `sweep`.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.support.layer_cases import (
    Image,
    Scales,
    Slide,
    conv_2d,
    depthwise,
    fully_connected,
    pool,
    single,
    softmax,
    weights_of,
)
from tests.support.moves import move, tensor
from tests.support.single_op import Array, Case, integers, prove

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

BATCH = 110
BATCHES = 11
ACTIVATIONS = ("NONE", "NONE", "RELU", "RELU6", "RELU_N1_TO_1")
ENDS = (-128, 127, 0)


class Draws:
    """Random choices from one generator, edges more often than their share."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def integer(self, low: int, high: int) -> int:
        """A uniform integer of the closed range."""
        return int(self.rng.integers(low, high, endpoint=True))

    def of(self, *choices: object) -> object:
        """One of the choices."""
        return choices[self.integer(0, len(choices) - 1)]

    def zero_point(self) -> int:
        """A zero point, at an end or 0 half of the time."""
        return ENDS[self.integer(0, 2)] if self.rng.random() < 0.5 else self.integer(-128, 127)

    def scale(self, low: float, high: float) -> float:
        """A float32 scale, uniform in its logarithm to base two."""
        return single(2.0 ** self.rng.uniform(low, high))

    def slide(self, *, dilated: bool) -> Slide:
        """Strides, dilation, padding and activation."""
        stride = (self.integer(1, 3), self.integer(1, 3)) if self.rng.random() < 0.6 else (1, 1)
        dilation = (self.integer(1, 3), self.integer(1, 3)) if dilated and self.rng.random() < 0.3 else (1, 1)
        padding = "SAME" if self.rng.random() < 0.5 else "VALID"
        return Slide(stride, padding, dilation, ACTIVATIONS[self.integer(0, 4)])

    def image(self, slide: Slide, kernel: tuple[int, int], channels: int) -> Image:
        """An input that the window fits at least once."""
        sizes = []
        for size, dilation in zip(kernel, slide.dilation, strict=True):
            least = 1 if slide.padding == "SAME" else (size - 1) * dilation + 1
            sizes.append(self.integer(least, least + 7))
        return (self.integer(1, 2), sizes[0], sizes[1], channels)

    def kernel(self) -> tuple[int, int]:
        """A window's size; 1x1 often."""
        return (1, 1) if self.rng.random() < 0.2 else (self.integer(1, 5), self.integer(1, 5))

    def scales(self, channels: int, depth: int) -> Scales:
        """Scales whose outputs mostly spread over int8: a factor of about 1 over the accumulator's size."""
        factor = 2.0 ** self.rng.uniform(-3, 4) / (70.0 * math.sqrt(depth))
        if self.rng.random() < 0.05:
            factor = 2.0 ** self.rng.uniform(-40, 12)
        many = channels > 1 and self.rng.random() < 0.7
        spread = self.rng.uniform(-1.5, 1.5, channels if many else 1)
        weights = tuple(single(0.01 * 2.0**e) for e in spread)
        return Scales(
            self.scale(-9, 2), weights, factor, self.zero_point(), self.zero_point(), self.integer(-1, 1)
        )  # fmt: skip

    def weights(self, name: str, shape: tuple[int, ...]) -> Array:
        """Random weights, with -128 in a third of the layers."""
        return weights_of(name, shape, -128 if self.rng.random() < 0.33 else -127)

    def bias(self) -> str:
        """Whether there is a bias."""
        return "random" if self.rng.random() < 0.8 else "none"


def convolution(name: str, d: Draws) -> Case:
    """Any CONV_2D, a quarter of them grouped."""
    kernel, slide = d.kernel(), d.slide(dilated=True)
    groups = d.integer(2, 3) if d.rng.random() < 0.25 else 1
    in_c, channels = d.integer(1, 9 // groups) * groups, d.integer(1, 12 // groups) * groups
    scales = d.scales(channels, kernel[0] * kernel[1] * in_c // groups)
    w = d.weights(name, (channels, *kernel, in_c // groups))
    return conv_2d(
        name, d.image(slide, kernel, in_c), channels, kernel, slide, scales, groups=groups, w=w, bias=d.bias()
    )


def depthwise_convolution(name: str, d: Draws) -> Case:
    """Any DEPTHWISE_CONV_2D, half of them with multiplier 1."""
    kernel, slide = d.kernel(), d.slide(dilated=True)
    multiplier = 1 if d.rng.random() < 0.5 else d.integer(2, 8)
    in_c = d.integer(1, 11) if multiplier == 1 else d.integer(1, 4)
    channels = in_c * multiplier
    scales = d.scales(channels, kernel[0] * kernel[1])
    w = d.weights(name, (1, *kernel, channels))
    return depthwise(name, d.image(slide, kernel, in_c), multiplier, kernel, slide, scales, w=w, bias=d.bias())


def dense(name: str, d: Draws) -> Case:
    """Any FULLY_CONNECTED of up to four dimensions."""
    depth, channels = d.integer(1, 40), d.integer(1, 13)
    keep = d.rng.random() < 0.3
    leading = tuple(d.integer(1, 3) for _ in range(d.integer(1, 3)))
    activation = ACTIVATIONS[d.integer(0, 4)]
    w = d.weights(name, (channels, depth))
    scales = d.scales(channels, depth)
    return fully_connected(
        name, (*leading, depth), channels, depth, activation, scales, keep=keep, w=w, bias=d.bias()
    )  # fmt: skip


def pooling(name: str, d: Draws) -> Case:
    """Any pool."""
    kernel, slide = d.kernel(), d.slide(dilated=False)
    opcode = "AVERAGE_POOL_2D" if d.rng.random() < 0.6 else "MAX_POOL_2D"
    return pool(name, opcode, d.image(slide, kernel, d.integer(1, 9)), kernel, slide, d.scale(-8, 2), d.zero_point())


def soft_maximum(name: str, d: Draws) -> Case:
    """Any SOFTMAX of short rows (long ones of equal values end the engine)."""
    shape = (*(d.integer(1, 4) for _ in range(d.integer(0, 3))), d.integer(1, 64))
    return softmax(name, shape, d.scale(-14, 6), d.scale(-3, 3), d.zero_point())


def view(name: str, d: Draws) -> Case:
    """Any RESHAPE to a permutation of the dimensions with one of them left open."""
    shape = tuple(d.integer(1, 5) for _ in range(d.integer(1, 5)))
    result = [int(v) for v in d.rng.permutation(shape)]
    wanted = list(result)
    wanted[d.integer(0, len(wanted) - 1)] = -1
    return move(name, "RESHAPE", [tensor(shape), integers(*wanted)], [tensor(tuple(result))])


MAKERS = (
    *((convolution,) * 8),
    *((depthwise_convolution,) * 6),
    *((dense,) * 4),
    *((pooling,) * 4),
    *((soft_maximum,) * 2),
    view,
)


def layers(batch: int) -> list[Case]:
    """The random layers of one batch."""
    draws = Draws(1000 + batch)
    return [MAKERS[i % len(MAKERS)](f"{MAKERS[i % len(MAKERS)].__name__}_{batch}_{i}", draws) for i in range(BATCH)]


def _agree(cases: list[Case], *, sanitize: bool) -> None:
    proven = prove(cases, samples=3, sanitize=sanitize)
    for outcome in proven.outcomes.values():
        outcome.check()
    assert proven.memory_errors == ()


def test_sampled_layers() -> None:
    _agree(layers(0), sanitize=True)


@pytest.mark.sweep(keep=3)
@pytest.mark.parametrize("batch", range(1, BATCHES))
def test_all_layers(batch: int) -> None:
    _agree(layers(batch), sanitize=batch % 4 == 1)


def test_batches_are_large_and_differ() -> None:
    assert BATCH * BATCHES > 1000
    assert layers(1) != layers(2) and [c.id for c in layers(1)] == [c.id for c in layers(1)]


def test_random_layers_do_not_all_saturate() -> None:
    # A sweep whose outputs sit at the ends of int8 would compare nothing.
    accumulating = [c for c in layers(0) if c.opcode in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")]
    proven = prove(accumulating, engine=None, samples=2, sanitize=False)
    spread = [len(np.unique(o.reference[1][0])) for o in proven.outcomes.values() if o.reference[1][0].size >= 30]
    assert np.mean(np.array(spread) > 8) > 0.5

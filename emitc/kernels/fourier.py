"""The Fourier transform of complex int16 numbers in fixed point, as TFLite Micro's signal library has it (KISS FFT in 16 bits).

Decimation in time with radix 4 and, where the length has an odd power of two, one radix 2. Every step divides by 4 or 2 first:
v * floor(32767 / 4 or 2), Q15; products are summed in 32 bits and rounded half up to Q15; sums wrap at 16 bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from emitc.quantize import Int64

ONE = 32767
"""1 in Q15, nearly."""


def radices_of(points: int) -> tuple[int, ...]:
    """The steps, the first one of single values."""
    found: list[int] = []
    while points > 1:
        found.append(4 if points % 4 == 0 else 2)
        points //= found[-1]
    return tuple(reversed(found))


def order_of(points: int) -> tuple[int, ...]:
    """Which value comes where before the first step."""
    order, stride = [0], 1
    for radix in reversed(radices_of(points)):
        order = [index + k * stride for index in order for k in range(radix)]
        stride *= radix
    return tuple(order)


def turns_of(angles: Sequence[float]) -> tuple[int, ...]:
    """Cosine and sine in turn of the angles, Q15 rounded half up."""
    return tuple(math.floor(0.5 + ONE * part) for angle in angles for part in (math.cos(angle), math.sin(angle)))


def twiddles(points: int, direction: int = -1) -> tuple[int, ...]:
    """Turns of the steps. direction: -1, or 1 for the transform back."""
    return turns_of([direction * 2.0 * math.pi * i / points for i in range(points)])


def splits(points: int, direction: int = -1) -> tuple[int, ...]:
    """Turns by which even and odd values are taken apart."""
    return turns_of([direction * math.pi * ((i + 1) / points + 0.5) for i in range(points // 2)])


def int16(values: Int64) -> Int64:
    """What wraps at 16 bits."""
    return values.astype(np.int16).astype(np.int64)


def divided(values: Int64, by: int) -> Int64:
    """Times the Q15 number below 1 / by, rounded half up."""
    return int16((values * (ONE // by) + (1 << 14)) >> 15)


def product(a: Int64, b: Int64) -> Int64:
    """Complex numbers [..., 2]."""
    re = a[..., 0] * b[..., 0] - a[..., 1] * b[..., 1]
    im = a[..., 0] * b[..., 1] + a[..., 1] * b[..., 0]
    return int16((np.stack([re, im], axis=-1).astype(np.int32).astype(np.int64) + (1 << 14)) >> 15)


def transformed(values: Int64, direction: int = -1) -> Int64:
    """The complex transform of [N, points, 2]. direction: -1, or 1 for the transform back."""
    points = values.shape[1]
    turns = np.array(twiddles(points, direction), np.int64).reshape(-1, 2)
    work, m = values[:, list(order_of(points))], 1
    for radix in radices_of(points):
        blocks = divided(work.reshape(len(work), -1, radix, m, 2), radix)
        steps = np.arange(m) * (points // (radix * m))
        parts = [blocks[:, :, 0]] + [product(blocks[:, :, k], turns[k * steps]) for k in range(1, radix)]
        if radix == 2:
            made = [parts[0] + parts[1], parts[0] - parts[1]]
        else:
            low, high = int16(parts[0] + parts[2]), int16(parts[0] - parts[2])
            outer, inner = int16(parts[1] + parts[3]), int16(parts[1] - parts[3])
            turned = np.stack([-direction * inner[..., 1], direction * inner[..., 0]], axis=-1)
            made = [low + outer, high + turned, low - outer, high - turned]
        work = int16(np.stack(made, axis=2)).reshape(values.shape)
        m *= radix
    return work

"""The Fourier transform of complex numbers as TFLite Micro's signal library has it (KISS FFT), in fixed point and in float32.

Decimation in time with radix 4, and radix 3 and 5 for these factors. One step has radix 2 where the length has an odd power of
two. In fixed point of B bits every step divides by its radix first: v * floor(one / radix), one = 2**(B-1) - 1; products are
summed in twice the bits and rounded half up by 2**(B-1); sums wrap at B bits. In float32 nothing is divided, and every
operation rounds by itself.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emitc.ir import DType
from emitc.records import dataclass

Values = NDArray[Any]
"""int64 or float32."""


def radices_of(points: int) -> tuple[int, ...]:
    """The steps, the first one of single values; none where the number has other factors than 2, 3 and 5."""
    radices: list[int] = []
    while points > 1:
        radix = next((radix for radix in (4, 2, 3, 5) if points % radix == 0), 0)
        if radix == 0:
            return ()
        radices.append(radix)
        points //= radix
    return tuple(reversed(radices))


def order_of(points: int) -> tuple[int, ...]:
    """Which value comes where before the first step."""
    order, stride = [0], 1
    for radix in reversed(radices_of(points)):
        order = [index + k * stride for index in order for k in range(radix)]
        stride *= radix
    return tuple(order)


def places_of(points: int) -> tuple[int, ...]:
    """Where the first step puts the results that start with value i's, for the values that it takes first."""
    radix = radices_of(points)[0]
    first = order_of(points)[::radix]
    return tuple(radix * place for place in sorted(range(len(first)), key=first.__getitem__))


@dataclass(frozen=True, slots=True)
class Numbers:
    """The arithmetic of one element type: int16, int32 (held in int64 here) or float32. Complex numbers are [..., 2]."""

    dtype: DType

    @property
    def fixed(self) -> bool:
        return self.dtype is not DType.FLOAT32

    @property
    def bits(self) -> int:
        """The bits of a fixed point number without its sign."""
        return 8 * self.dtype.bytes - 1

    @property
    def one(self) -> int:
        """1 in fixed point, nearly."""
        return (1 << self.bits) - 1

    @property
    def computed(self) -> str:
        """The numpy type that values have between the steps."""
        return "int64" if self.fixed else "float32"

    def turns_of(self, angles: Sequence[float]) -> tuple[float, ...]:
        """Cosine and sine in turn of the angles; in fixed point rounded half up."""
        parts = [part for angle in angles for part in (math.cos(angle), math.sin(angle))]
        if self.fixed:
            return tuple(math.floor(0.5 + self.one * part) for part in parts)
        return tuple(float(np.float32(part)) for part in parts)

    def twiddles(self, points: int, direction: int = -1) -> tuple[float, ...]:
        """Turns of the steps. direction: -1, or 1 for the transform back."""
        return self.turns_of([direction * 2.0 * math.pi * i / points for i in range(points)])

    def splits(self, points: int, direction: int = -1) -> tuple[float, ...]:
        """Turns that separate even and odd values."""
        return self.turns_of([direction * math.pi * ((i + 1) / points + 0.5) for i in range(points // 2)])

    def turns_by_step(self, points: int, direction: int = -1) -> tuple[float, ...]:
        """Turns of the steps after the first, all of radix 4: for each by once, twice and three times its angles."""
        turns, ordered = self.twiddles(points, direction), list[float]()
        m = radices_of(points)[0]
        while m < points:
            angles = [times * k * (points // (4 * m)) for times in (1, 2, 3) for k in range(m)]
            ordered += [part for angle in angles for part in turns[2 * angle : 2 * angle + 2]]
            m *= 4
        return tuple(ordered)

    def kept(self, values: Values) -> Values:
        """What is left of sums: in fixed point what wraps at the type's bits."""
        return values.astype(self.dtype.value).astype(np.int64) if self.fixed else values

    def divided(self, values: Values, by: int) -> Values:
        """In fixed point times the number below 1 / by, rounded half up; floats stay."""
        if not self.fixed:
            return values
        return self.kept((values * (self.one // by) + (1 << self.bits - 1)) >> self.bits)

    def times(self, values: Values, turn: float) -> Values:
        """Every number times one part of a turn."""
        if not self.fixed:
            return values * np.float32(turn)
        return self.kept((values * int(turn) + (1 << self.bits - 1)) >> self.bits)

    def halved(self, values: Values) -> Values:
        """By half, rounded down in fixed point."""
        return values >> 1 if self.fixed else values * np.float32(0.5)

    def product(self, a: Values, b: Values) -> Values:
        re = a[..., 0] * b[..., 0] - a[..., 1] * b[..., 1]
        im = a[..., 0] * b[..., 1] + a[..., 1] * b[..., 0]
        made = np.stack([re, im], axis=-1)
        return self.kept((made + (1 << self.bits - 1)) >> self.bits) if self.fixed else made

    def opposite(self, values: Values) -> Values:
        """The conjugates."""
        return self.kept(np.stack([values[..., 0], -values[..., 1]], axis=-1))

    def transformed(self, values: Values, direction: int = -1) -> Values:
        """The complex transform of [N, points, 2]. direction: -1, or 1 for the transform back."""
        points = values.shape[1]
        turns = np.array(self.twiddles(points, direction), self.computed).reshape(-1, 2)
        work, m = values[:, list(order_of(points))], 1
        for radix in radices_of(points):
            blocks = self.divided(work.reshape(len(work), -1, radix, m, 2), radix)
            steps = np.arange(m) * (points // (radix * m))
            parts = [blocks[:, :, 0]] + [self.product(blocks[:, :, k], turns[k * steps]) for k in range(1, radix)]
            if radix == 2:
                made = [parts[0] + parts[1], parts[0] - parts[1]]
            elif radix == 3:
                made = self._three(parts, turns[points // 3])
            elif radix == 5:
                made = self._five(parts, turns[points // 5], turns[2 * points // 5])
            else:
                low, high = self.kept(parts[0] + parts[2]), self.kept(parts[0] - parts[2])
                outer, inner = self.kept(parts[1] + parts[3]), self.kept(parts[1] - parts[3])
                turned = np.stack([-direction * inner[..., 1], direction * inner[..., 0]], axis=-1)
                made = [low + outer, high + turned, low - outer, high - turned]
            work = self.kept(np.stack(made, axis=2)).reshape(values.shape)
            m *= radix
        return work

    def _three(self, parts: Sequence[Values], third: Values) -> list[Values]:
        """Sums of three values, which are turned already. third: a third of a turn."""
        outer, inner = self.kept(parts[1] + parts[2]), self.kept(parts[1] - parts[2])
        low, side = self.kept(parts[0] - self.halved(outer)), self.times(inner, third[1])
        turned = np.stack([-side[..., 1], side[..., 0]], axis=-1)
        return [parts[0] + outer, low + turned, low - turned]

    def _five(self, parts: Sequence[Values], once: Values, twice: Values) -> list[Values]:
        """Sums of five values, which are turned already. once, twice: a fifth and two fifths of a turn."""
        outer, across = self.kept(parts[1] + parts[4]), self.kept(parts[1] - parts[4])
        inner, across_difference = self.kept(parts[2] + parts[3]), self.kept(parts[2] - parts[3])
        near = self.kept(parts[0] + self.times(outer, once[0]) + self.times(inner, twice[0]))
        far = self.kept(parts[0] + self.times(outer, twice[0]) + self.times(inner, once[0]))
        first = self.times(across, once[1]) + self.times(across_difference, twice[1])
        second = self.times(across_difference, once[1]) - self.times(across, twice[1])
        turned = self.kept(np.stack([first[..., 1], -first[..., 0]], axis=-1))
        back = self.kept(np.stack([second[..., 1], -second[..., 0]], axis=-1))
        return [parts[0] + self.kept(outer + inner), near - turned, far + back, far - back, near + turned]

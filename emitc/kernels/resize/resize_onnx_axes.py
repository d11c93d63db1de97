"""Where the pixels of a resized tensor lie in the input, axis by axis, and what weights they have: Resize and Upsample of ONNX.

Everything is computed here, in the float32 steps of ONNX Runtime, so that the C has tables and no coordinates.
Source  the operators' specification (coordinate_transformation_mode, nearest_mode, mode); the roundings of ONNX Runtime's
        CPU kernel, found by comparing indices.
"""

from dataclasses import dataclass

import numpy as np

from emitc.kernels.shared.axis_gather import OUTSIDE
from emitc.numerics.requantize import Float32, Int64

COORDINATES = (
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)
NEAREST = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
SIMPLE = "simple"
"""How versions up to 10 choose: the pixel below, or the one above where the tensor shrinks."""


@dataclass(frozen=True, slots=True)
class Axis:
    """One dimension: elements before and after, the factor (a float32 value), and the region of tf_crop_and_resize."""

    size: int
    wanted: int
    scale: float = 1.0
    start: float = 0.0
    end: float = 1.0


def coordinates(axis: Axis, mode: str) -> Float32:
    """The position in the input, in elements, of each element of the output."""
    one, half = np.float32(1), np.float32(0.5)
    x = np.arange(axis.wanted).astype(np.float32)
    if axis.scale == 1.0:
        return x
    scale, size, wanted = np.float32(axis.scale), np.float32(axis.size), np.float32(axis.wanted)
    if mode == "asymmetric":
        return x / scale
    if mode == "tf_half_pixel_for_nn":
        return (x + half) / scale
    if mode == "half_pixel" or (mode == "pytorch_half_pixel" and axis.wanted > 1):
        return (x + half) / scale - half
    if mode == "half_pixel_symmetric":
        center = size / np.float32(2)
        offset = center * (one - wanted / (scale * size))
        real = np.float64(offset) + (x.astype(np.float64) + 0.5) / np.float64(scale) - 0.5
        return real.astype(np.float32)
    if mode == "align_corners" and axis.wanted > 1:
        return x * (size - one) / (wanted - one)
    if mode == "tf_crop_and_resize":
        start, end = np.float32(axis.start), np.float32(axis.end)
        if axis.wanted > 1:
            return start * (size - one) + (x * (end - start) * (size - one)) / (wanted - one)
        return (0.5 * np.float64(start + end) * np.float64(size - one) + x.astype(np.float64)).astype(np.float32)
    return np.zeros_like(x)


def _outside(axis: Axis, positions: Float32) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    return (positions < 0) | (positions > np.float32(axis.size - 1))


def _away_from_zero(x: Float32) -> Float32:
    """Rounded to the nearest integer, halves away from zero."""
    real = x.astype(np.float64)
    return (np.sign(real) * np.floor(np.abs(real) + 0.5)).astype(np.float32)


def nearest(axis: Axis, mode: str, rounding: str, *, extrapolated: bool) -> Int64:
    """The element of the input that each element of the output is; OUTSIDE where it lies in none."""
    position = coordinates(axis, mode)
    if rounding == "round_prefer_ceil":
        chosen = _away_from_zero(position)
    elif rounding == "floor" or (rounding == SIMPLE and axis.scale >= 1.0):
        chosen = np.floor(position)
    elif rounding in ("ceil", SIMPLE):
        chosen = np.ceil(position)
    else:
        chosen = np.where(
            position == np.trunc(position) + np.float32(0.5), np.floor(position), _away_from_zero(position)
        )
    inside = np.clip(chosen, 0, axis.size - 1).astype(np.int64)
    return np.where(_outside(axis, position), OUTSIDE, inside) if extrapolated else inside


@dataclass(frozen=True, slots=True, eq=False)
class Taps:
    """Elements that each element of the output is made of, and their weights: [wanted, taps]; OUTSIDE where it lies in none."""

    positions: Int64
    weights: Float32


def linear(axis: Axis, mode: str, *, extrapolated: bool) -> Taps:
    """The two neighbours by their nearness; at the end, where they are the same, half each."""
    position = coordinates(axis, mode)
    real = np.clip(position, 0, np.float32(axis.size - 1))
    low = np.minimum(real.astype(np.int64), axis.size - 1)
    high = np.minimum(low + 1, axis.size - 1)
    shares = np.stack([np.abs(real - high.astype(np.float32)), np.abs(real - low.astype(np.float32))], 1)
    shares[low == high] = 0.5
    positions = np.stack([low, high], 1)
    if extrapolated:
        positions[_outside(axis, position)] = OUTSIDE
    return Taps(positions, shares.astype(np.float32))


def cubic(axis: Axis, mode: str, a: float, *, exclude_outside: bool, extrapolated: bool) -> Taps:
    """The four neighbours by Keys' convolution with coefficient `a`; those beyond the end are its last element, or left out."""
    position = coordinates(axis, mode)
    below = np.floor(position)
    s = (position - below).astype(np.float64)
    near, far = (np.abs(s + 1), np.abs(2 - s)), (s, 1 - s)
    outer = [((a * d - 5 * a) * d + 8 * a) * d - 4 * a for d in near]
    inner = [((a + 2) * d - (a + 3)) * d * d + 1 for d in far]
    weights = np.stack([outer[0], *inner, outer[1]], 1)
    positions = below.astype(np.int64)[:, None] + np.arange(-1, 3)
    if exclude_outside:
        weights[(positions < 0) | (positions >= axis.size)] = 0.0
        weights /= weights.sum(1, keepdims=True)
    positions = np.clip(positions, 0, axis.size - 1)
    if extrapolated:
        positions[_outside(axis, position)] = OUTSIDE
    return Taps(positions, weights.astype(np.float32))

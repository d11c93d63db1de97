"""SignalRfft: Fourier transform of real int16 frames, zeros behind them up to fft_length.

Shapes  x [..., L], L <= fft_length; y [..., fft_length + 2]: complex numbers, real and imaginary parts in turn.
Types   int16; T of the options says so (7).
        The transform of the even values as real and the odd as imaginary parts, by decimation in time with radix 4 and, where
        the length has an odd power of two, one radix 2; then the two spectra are taken apart. Every radix step divides by 4 or 2
        first: v * floor(32767 / 4 or 2), Q15; products are summed in 32 bits and rounded half up to Q15; sums wrap at 16 bits.
Errors  lengths that are no power of two, or are out of [8, 4096].
Source  TFLite Micro's signal library, whose transform is that of KISS FFT in 16 bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emitc.frontends.source import SourceNode
from emitc.ir import Array, BoundNode, DType, Op, Shape
from emitc.kernels.contract import KernelDef, Layer, Param, Parsed, Scratch, Table, illegal, require_dtypes
from emitc.quantize import Int64

_INT16 = 7
_ONE = 32767


@dataclass(frozen=True, slots=True)
class SignalRfft(Op):
    """length: of the transform."""

    length: int


def from_tflite(node: SourceNode) -> Parsed:
    """The options."""
    node.counts((1, 1))
    if node.integer("T") != _INT16:
        raise node.unsupported(
            "SignalRfft of another type than int16 is not supported", "T is not 7", "use the int16 front end"
        )
    length = node.integer("fft_length", low=1)
    if length & (length - 1) or not 8 <= length <= 4096:
        raise node.unsupported(
            f"SignalRfft of length {length} is not supported",
            "there is code for powers of two from 8 to 4096",
            "use one of these",
        )
    return Parsed(SignalRfft(length))


def _length(bound: BoundNode) -> int:
    assert isinstance(bound.node.op, SignalRfft)
    return bound.node.op.length


def check(bound: BoundNode) -> None:
    """Refuses other types, and frames that are longer than the transform."""
    require_dtypes(bound, [(DType.INT16, DType.INT16)])
    x = bound.input(0)
    if not x.shape or not 1 <= x.shape[-1] <= _length(bound):
        raise illegal(
            bound, "SignalRfft has frames that do not fit", f"{list(x.shape)} for {_length(bound)}", "export again", x
        )


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """[..., fft_length + 2]."""
    return ((*bound.input(0).shape[:-1], _length(bound) + 2),)


def _radices(points: int) -> tuple[int, ...]:
    """The steps, the first one of single values."""
    found: list[int] = []
    while points > 1:
        found.append(4 if points % 4 == 0 else 2)
        points //= found[-1]
    return tuple(reversed(found))


def _order(points: int) -> tuple[int, ...]:
    """Which value comes where before the first step."""
    order, stride = [0], 1
    for radix in reversed(_radices(points)):
        order = [index + k * stride for index in order for k in range(radix)]
        stride *= radix
    return tuple(order)


def _turns(angles: Sequence[float]) -> tuple[int, ...]:
    """Cosine and sine in turn of the angles, Q15 rounded half up."""
    return tuple(math.floor(0.5 + _ONE * part) for angle in angles for part in (math.cos(angle), math.sin(angle)))


def _twiddles(points: int) -> tuple[int, ...]:
    return _turns([-2.0 * math.pi * i / points for i in range(points)])


def _splits(points: int) -> tuple[int, ...]:
    """Turns by which even and odd values are taken apart."""
    return _turns([-math.pi * ((i + 1) / points + 0.5) for i in range(points // 2)])


def _int16(values: Int64) -> Int64:
    return values.astype(np.int16).astype(np.int64)


def _divided(values: Int64, by: int) -> Int64:
    return _int16((values * (_ONE // by) + (1 << 14)) >> 15)


def _product(a: Int64, b: Int64) -> Int64:
    """Complex numbers [..., 2]."""
    re = a[..., 0] * b[..., 0] - a[..., 1] * b[..., 1]
    im = a[..., 0] * b[..., 1] + a[..., 1] * b[..., 0]
    return _int16((np.stack([re, im], axis=-1).astype(np.int32).astype(np.int64) + (1 << 14)) >> 15)


def _transformed(values: Int64) -> Int64:
    """The complex transform of [N, points, 2]."""
    points = values.shape[1]
    turns = np.array(_twiddles(points), np.int64).reshape(-1, 2)
    work, m = values[:, list(_order(points))], 1
    for radix in _radices(points):
        blocks = _divided(work.reshape(len(work), -1, radix, m, 2), radix)
        steps = np.arange(m) * (points // (radix * m))
        parts = [blocks[:, :, 0]] + [_product(blocks[:, :, k], turns[k * steps]) for k in range(1, radix)]
        if radix == 2:
            made = [parts[0] + parts[1], parts[0] - parts[1]]
        else:
            low, high = _int16(parts[0] + parts[2]), _int16(parts[0] - parts[2])
            outer, inner = _int16(parts[1] + parts[3]), _int16(parts[1] - parts[3])
            turned = np.stack([inner[..., 1], -inner[..., 0]], axis=-1)
            made = [low + outer, high + turned, low - outer, high - turned]
        work = _int16(np.stack(made, axis=2)).reshape(values.shape)
        m *= radix
    return work


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """Step by step, all values of a step at once."""
    assert inputs[0] is not None
    length, frame = _length(bound), bound.input(0).shape[-1]
    points = length // 2
    frames = np.zeros((bound.input(0).elements // frame, length), np.int64)
    frames[:, :frame] = inputs[0].reshape(-1, frame)
    whole = _transformed(frames.reshape(-1, points, 2))
    half = _divided(whole, 2)
    y = np.zeros((len(frames), points + 1, 2), np.int64)
    y[:, 0, 0], y[:, points, 0] = half[:, 0, 0] + half[:, 0, 1], half[:, 0, 0] - half[:, 0, 1]
    near = half[:, 1 : points // 2 + 1]
    far = _divided(_int16(whole[:, points - 1 : points // 2 - 1 : -1] * np.array([1, -1])), 2)
    total, turned = _int16(near + far), _product(_int16(near - far), np.array(_splits(points), np.int64).reshape(-1, 2))
    y[:, 1 : points // 2 + 1] = (total + turned) >> 1
    y[:, points - 1 : points // 2 - 1 : -1, 0] = (total[..., 0] - turned[..., 0]) >> 1
    y[:, points - 1 : points // 2 - 1 : -1, 1] = (turned[..., 1] - total[..., 1]) >> 1
    return (y.astype(np.int16).reshape(bound.output.shape),)


def lower(bound: BoundNode) -> Layer:
    """The steps in a buffer."""
    points, frame = _length(bound) // 2, bound.input(0).shape[-1]
    radices = _radices(points)
    tables = (
        Table("order", "uint16_t", _order(points), "which value comes where"),
        Table("radices", "int8_t", radices, "steps of the transform"),
        Table("turns", "int16_t", _twiddles(points), "turns of the steps, Q15"),
        Table("splits", "int16_t", _splits(points), "turns that take the spectra of even and odd values apart, Q15"),
    )
    params = (
        Param("frames", "int32_t", bound.input(0).elements // frame),
        Param("frame", "int32_t", frame),
        Param("points", "int32_t", points, "of the complex transform"),
        Param("steps", "int32_t", len(radices)),
    )
    return Layer("signal_rfft", "portable", (0,), tables, params, scratch=(Scratch("work", 4 * points),))


KERNELS = (
    KernelDef(
        SignalRfft,
        "Fourier transform of real values",
        (DType.INT16,),
        ("CUSTOM:SignalRfft",),
        from_tflite,
        check,
        output_shapes,
        reference,
        lower,
    ),
)

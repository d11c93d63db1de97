"""SignalRfft: Fourier transform of real int16 frames, zeros behind them up to fft_length.

Shapes  x [..., L], L <= fft_length; y [..., fft_length + 2]: complex numbers, real and imaginary parts in turn.
Types   int16; T of the options says so (7).
        The transform of the even values as real and the odd as imaginary parts, by decimation in time with radix 4 and, where
        the length has an odd power of two, one radix 2 (kernels/fourier.py); then the two spectra are taken apart.
Errors  lengths that are no power of two, or are out of [8, 4096].
Source  TFLite Micro's signal library, whose transform is that of KISS FFT in 16 bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emitc.frontends.source import SourceNode
from emitc.ir import Array, BoundNode, DType, Op, Shape
from emitc.kernels.contract import KernelDef, Layer, Param, Parsed, Scratch, Table, illegal, require_dtypes
from emitc.kernels.fourier import divided, int16, order_of, product, radices_of, splits, transformed, twiddles

_INT16 = 7


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


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """Step by step, all values of a step at once."""
    assert inputs[0] is not None
    length, frame = _length(bound), bound.input(0).shape[-1]
    points = length // 2
    frames = np.zeros((bound.input(0).elements // frame, length), np.int64)
    frames[:, :frame] = inputs[0].reshape(-1, frame)
    whole = transformed(frames.reshape(-1, points, 2))
    half = divided(whole, 2)
    y = np.zeros((len(frames), points + 1, 2), np.int64)
    y[:, 0, 0], y[:, points, 0] = half[:, 0, 0] + half[:, 0, 1], half[:, 0, 0] - half[:, 0, 1]
    near = half[:, 1 : points // 2 + 1]
    far = divided(int16(whole[:, points - 1 : points // 2 - 1 : -1] * np.array([1, -1])), 2)
    total, turned = int16(near + far), product(int16(near - far), np.array(splits(points), np.int64).reshape(-1, 2))
    y[:, 1 : points // 2 + 1] = (total + turned) >> 1
    y[:, points - 1 : points // 2 - 1 : -1, 0] = (total[..., 0] - turned[..., 0]) >> 1
    y[:, points - 1 : points // 2 - 1 : -1, 1] = (turned[..., 1] - total[..., 1]) >> 1
    return (y.astype(np.int16).reshape(bound.output.shape),)


def lower(bound: BoundNode) -> Layer:
    """The steps in a buffer."""
    points, frame = _length(bound) // 2, bound.input(0).shape[-1]
    radices = radices_of(points)
    tables = (
        Table("order", "uint16_t", order_of(points), "which value comes where"),
        Table("radices", "int8_t", radices, "steps of the transform"),
        Table("turns", "int16_t", twiddles(points), "turns of the steps, Q15"),
        Table("splits", "int16_t", splits(points), "turns that take the spectra of even and odd values apart, Q15"),
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

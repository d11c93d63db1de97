"""SignalIrfft: real int16 frames from their Fourier transform.

Shapes  x [..., fft_length + 2]: complex numbers, real and imaginary parts in turn; y [..., fft_length].
Types   int16; T of the options says so (7).
        The spectrum is put together to that of the even values as real and the odd as imaginary parts, which is transformed back
        (kernels/fourier.py).
Errors  lengths that are no power of two, or are out of [8, 4096]; other types.
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
_BACK = 1


@dataclass(frozen=True, slots=True)
class SignalIrfft(Op):
    """length: of the transform."""

    length: int


def from_tflite(node: SourceNode) -> Parsed:
    """The options."""
    node.counts((1, 1))
    if node.integer("T") != _INT16:
        raise node.unsupported(
            "SignalIrfft of another type than int16 is not supported", "T is not 7", "use the int16 operators"
        )
    length = node.integer("fft_length", low=1)
    if length & (length - 1) or not 8 <= length <= 4096:
        raise node.unsupported(
            f"SignalIrfft of length {length} is not supported",
            "there is code for powers of two from 8 to 4096",
            "use one of these",
        )
    return Parsed(SignalIrfft(length))


def _length(bound: BoundNode) -> int:
    assert isinstance(bound.node.op, SignalIrfft)
    return bound.node.op.length


def check(bound: BoundNode) -> None:
    """Refuses other types, and spectra of another length."""
    require_dtypes(bound, [(DType.INT16, DType.INT16)])
    x = bound.input(0)
    if not x.shape or x.shape[-1] != _length(bound) + 2 or 0 in x.shape:
        raise illegal(
            bound, "SignalIrfft has spectra that do not fit", f"{list(x.shape)} for {_length(bound)}", "export again", x
        )


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """[..., fft_length]."""
    return ((*bound.input(0).shape[:-1], _length(bound)),)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """Step by step, all values of a step at once."""
    assert inputs[0] is not None
    points = _length(bound) // 2
    x = inputs[0].astype(np.int64).reshape(-1, points + 1, 2)
    whole = np.zeros((len(x), points, 2), np.int64)
    ends = np.stack([x[:, 0, 0] + x[:, points, 0], x[:, 0, 0] - x[:, points, 0]], axis=-1)
    whole[:, 0] = divided(int16(ends), 2)
    near = divided(x[:, 1 : points // 2 + 1], 2)
    far = divided(int16(x[:, points - 1 : points // 2 - 1 : -1] * np.array([1, -1])), 2)
    total = int16(near + far)
    turned = product(int16(near - far), np.array(splits(points, _BACK), np.int64).reshape(-1, 2))
    whole[:, 1 : points // 2 + 1] = int16(total + turned)
    whole[:, points - 1 : points // 2 - 1 : -1] = int16(int16(total - turned) * np.array([1, -1]))
    return (transformed(whole, _BACK).astype(np.int16).reshape(bound.output.shape),)


def lower(bound: BoundNode) -> Layer:
    """The steps in a buffer."""
    points = _length(bound) // 2
    radices = radices_of(points)
    places = tuple(int(place) for place in np.argsort(order_of(points)))
    tables = (
        Table("places", "uint16_t", places, "where each value goes"),
        Table("radices", "int8_t", radices, "steps of the transform"),
        Table("turns", "int16_t", twiddles(points, _BACK), "turns of the steps, Q15"),
        Table(
            "splits",
            "int16_t",
            splits(points, _BACK),
            "turns that put the spectra of even and odd values together, Q15",
        ),
    )
    params = (
        Param("frames", "int32_t", bound.output.elements // (2 * points)),
        Param("points", "int32_t", points, "of the complex transform"),
        Param("steps", "int32_t", len(radices)),
    )
    return Layer("signal_irfft", "portable", (0,), tables, params, scratch=(Scratch("work", 4 * points),))


KERNELS = (
    KernelDef(
        SignalIrfft, "real values from their Fourier transform", (DType.INT16,), ("CUSTOM:SignalIrfft",), from_tflite, check,
        output_shapes, reference, lower,
    ),
)  # fmt: skip

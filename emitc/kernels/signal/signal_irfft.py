"""SignalIrfft: real frames from their Fourier transform.

Shapes  x [..., fft_length + 2]: complex numbers, real and imaginary parts in turn; y [..., fft_length].
Types   int16, int32, float32; T of the options says which (7, 2, 0).
        The spectrum is put together to that of the even values as real and the odd as imaginary parts, which is transformed
        back. In float32 the results are divided by fft_length; in fixed point the steps have done that.
Errors  lengths that are odd, have prime factors over 5, or are out of [4, 65536]; other types.
Source  TFLite Micro's signal library, whose transform is that of KISS FFT.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from emitc.ir import Array, BoundNode, Shape
from emitc.kernels.contract import KernelDef, illegal
from emitc.kernels.signal.real_fft import TYPES, RealFourier, layer, op_of, parser, require_types
from emitc.layer import Layer, Param, Table
from emitc.numerics.kiss_fft import Numbers, Values, order_of

_BACK = 1


class SignalIrfft(RealFourier):
    """From a spectrum to values."""

    __slots__ = ()


def check(bound: BoundNode) -> None:
    """Refuses other types, and spectra of another length."""
    require_types(bound)
    x, length = bound.input(0), op_of(bound).length
    if not x.shape or x.shape[-1] != length + 2 or 0 in x.shape:
        raise illegal(bound, "SignalIrfft has spectra that do not fit", f"{list(x.shape)} for {length}", tensor=x)


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """[..., fft_length]."""
    return ((*bound.input(0).shape[:-1], op_of(bound).length),)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """Step by step, all values of a step at once."""
    assert inputs[0] is not None
    n, points = Numbers(op_of(bound).dtype), op_of(bound).length // 2
    x: Values = inputs[0].astype(n.computed).reshape(-1, points + 1, 2)
    whole: Values = np.zeros((len(x), points, 2), n.computed)
    ends = np.stack([x[:, 0, 0] + x[:, points, 0], x[:, 0, 0] - x[:, points, 0]], axis=-1)
    whole[:, 0] = n.divided(n.kept(ends), 2)
    near = n.divided(x[:, 1 : points // 2 + 1], 2)
    far = n.divided(n.opposite(x[:, points - 1 : points - points // 2 - 1 : -1]), 2)
    total = n.kept(near + far)
    turned = n.product(n.kept(near - far), np.array(n.splits(points, _BACK), n.computed).reshape(-1, 2))
    whole[:, 1 : points // 2 + 1] = n.kept(total + turned)
    whole[:, points - 1 : points - points // 2 - 1 : -1] = n.opposite(n.kept(total - turned))
    y = n.transformed(whole, _BACK)
    if not n.fixed:
        y = y / np.float32(2 * points)
    return (y.astype(bound.output.dtype.value).reshape(bound.output.shape),)


def lower(bound: BoundNode) -> Layer:
    """One transform a frame."""
    length = op_of(bound).length
    places = tuple(int(place) for place in np.argsort(order_of(length // 2)))
    frames = (Param("frames", "int32_t", bound.output.elements // length),)
    together = "put the spectra of even and odd values together"
    return layer(
        bound,
        Table("places", "uint16_t", places, "where each value goes"),
        together,
        frames,
        _BACK,
        "signal/fft/signal_irfft",
    )


KERNELS = (
    KernelDef(
        SignalIrfft, "real values from their Fourier transform", TYPES, ("CUSTOM:SignalIrfft",), parser(SignalIrfft), check,
        reference, lower, output_shapes=output_shapes,
    ),
)  # fmt: skip

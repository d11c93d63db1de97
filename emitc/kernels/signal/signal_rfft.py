"""SignalRfft: Fourier transform of real frames, zeros behind them up to fft_length.

Shapes  x [..., L], L <= fft_length; y [..., fft_length + 2]: complex numbers, real and imaginary parts in turn.
Types   int16, int32, float32; T of the options says which (7, 2, 0).
        The transform of the even values as real and the odd as imaginary parts; then the two spectra are taken apart.
Errors  lengths that are odd, have prime factors over 5, or are out of [4, 65536]; other types.
Source  TFLite Micro's signal library, whose transform is that of KISS FFT.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from emitc.ir import Array, BoundNode, DType, Shape
from emitc.kernels.contract import KernelDef, Variant, illegal
from emitc.kernels.costs import UNKNOWN_PAIRS, UNKNOWN_VECTORS
from emitc.kernels.signal.real_fft import TYPES, RealFourier, layer, op_of, parser, require_types
from emitc.kernels.signal.simd import in_vectors, in_words
from emitc.layer import Layer, Param, Table
from emitc.numerics.kiss_fft import Numbers, Values, order_of, places_of, radices_of

_FORTH = -1


class SignalRfft(RealFourier):
    """From values to a spectrum."""

    __slots__ = ()


def check(bound: BoundNode) -> None:
    """Refuses other types, and frames that are longer than the transform."""
    require_types(bound)
    x, length = bound.input(0), op_of(bound).length
    if not x.shape or not 1 <= x.shape[-1] <= length:
        raise illegal(bound, "SignalRfft has frames that do not fit", f"{list(x.shape)} for {length}", tensor=x)


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """[..., fft_length + 2]."""
    return ((*bound.input(0).shape[:-1], op_of(bound).length + 2),)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """Step by step, all values of a step at once."""
    assert inputs[0] is not None
    n, length, frame = Numbers(op_of(bound).dtype), op_of(bound).length, bound.input(0).shape[-1]
    points = length // 2
    frames: Values = np.zeros((bound.input(0).elements // frame, length), n.computed)
    frames[:, :frame] = inputs[0].reshape(-1, frame)
    whole = n.transformed(frames.reshape(-1, points, 2), _FORTH)
    half = n.divided(whole, 2)
    y: Values = np.zeros((len(frames), points + 1, 2), n.computed)
    y[:, 0, 0], y[:, points, 0] = half[:, 0, 0] + half[:, 0, 1], half[:, 0, 0] - half[:, 0, 1]
    near = half[:, 1 : points // 2 + 1]
    far = n.divided(n.opposite(whole[:, points - 1 : points - points // 2 - 1 : -1]), 2)
    total = n.kept(near + far)
    turned = n.product(n.kept(near - far), np.array(n.splits(points, _FORTH), n.computed).reshape(-1, 2))
    # Sums of int16 are halved before they wrap, those of int32 after it.
    kept = n.kept if n.bits > 15 else np.asarray
    y[:, 1 : points // 2 + 1] = n.halved(kept(total + turned))
    y[:, points - 1 : points - points // 2 - 1 : -1, 0] = n.halved(kept(total[..., 0] - turned[..., 0]))
    y[:, points - 1 : points - points // 2 - 1 : -1, 1] = n.halved(kept(turned[..., 1] - total[..., 1]))
    return (y.astype(bound.output.dtype.value).reshape(bound.output.shape),)


def lower(bound: BoundNode) -> Layer:
    """One transform a frame."""
    frame = bound.input(0).shape[-1]
    order = Table("order", "uint16_t", order_of(op_of(bound).length // 2), "which value comes where")
    frames = (
        Param("frames", "int32_t", bound.input(0).elements // frame),
        Param("frame", "int32_t", frame),
    )
    apart = "take the spectra of even and odd values apart"
    return layer(bound, order, apart, frames, _FORTH, "signal/fft/signal_rfft")


def _by_steps(bound: BoundNode) -> Layer:
    """Of int16 values: the first step takes them from where they are and turns nothing, the others are of radix 4."""
    points = op_of(bound).length // 2
    general, numbers = lower(bound), Numbers(DType.INT16)
    tables = (
        Table("places", "uint16_t", places_of(points), "where the first step's results go"),
        Table("turns", "int16_t", numbers.turns_by_step(points, _FORTH), "turns of the other steps, Q15", alignment=4),
        *(table for table in general.tables if table.role == "splits"),
    )
    params = tuple(param for param in general.params if param.name != "steps")
    return replace(general, tables=tables, params=params)


def lower_dsp(bound: BoundNode) -> Layer | str:
    """Complex numbers in words."""
    op, radices = op_of(bound), radices_of(op_of(bound).length // 2)
    if op.dtype is not DType.INT16 or set(radices) - {2, 4} or len(radices) < 2:
        return f"{op.dtype.value} of length {op.length}: there is code for int16 and powers of two from 16 on"
    layer = _by_steps(bound)
    radix = Param("radix", "int32_t", radices[0], "of the first step")
    return in_words(replace(layer, params=(*layer.params, radix)))


def lower_mve(bound: BoundNode) -> Layer | str:
    """Four complex numbers at a time."""
    op, radices = op_of(bound), radices_of(op_of(bound).length // 2)
    if op.dtype is not DType.INT16 or set(radices) != {4} or len(radices) < 2:
        return f"{op.dtype.value} of length {op.length}: there is code for int16 and 32, 128, 512, ..."
    return in_vectors(_by_steps(bound))


KERNELS = (
    KernelDef(
        SignalRfft, "Fourier transform of real values", TYPES, ("CUSTOM:SignalRfft",), parser(SignalRfft), check,
        reference, lower, output_shapes=output_shapes, variants=(
            Variant("mve", "mve", lower_mve, UNKNOWN_VECTORS, (DType.INT16,)),
            Variant("dsp", "dsp", lower_dsp, UNKNOWN_PAIRS, (DType.INT16,)),
        ),
    ),
)  # fmt: skip

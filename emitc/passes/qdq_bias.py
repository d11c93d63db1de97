"""The bias of a layer between DequantizeLinear and QuantizeLinear as integers, to be added to the sum of products.

The sum counts units of x_scale * w_scale. A bias that is no multiple of them has to be rounded, which moves every output of its
channel by up to half a unit. Where outputs would show that, the unit is made finer by a power of two: the weights are multiplied
by it, and held in 16 bits. What is still lost then is compared with what the engine's own sums of floats may lose.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from emitc.ir import DType, Op, Quantization, Tensor
from emitc.kernels.convolution.depthwise_conv_2d import DepthwiseConv2D
from emitc.numerics.requantize import INT32_MAX, Int64
from emitc.records import dataclass, replace

VISIBLE = 5e-6
"""Share of 8-bit outputs that rounding the bias may change: half of what the proof grants the engine's sums of floats."""
_VISIBLE_WIDE = 0.25
"""Steps of 16-bit outputs that it may be off by; the proof grants one."""
_INT16_MAX = (1 << 15) - 1

_Real = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Fitted:
    """integers: the bias [O] in units of x_scale * w_scale / 2**finer. rounded: whether some value had to be rounded."""

    integers: Int64
    finer: int
    rounded: bool


def _centred(w: Tensor, q: Quantization) -> Int64:
    """Weights less their zero points."""
    return np.asarray(w.array().astype(np.int64) - q.spread(len(w.shape))[1])


@dataclass(frozen=True, slots=True)
class Sum:
    """What the bias is added to. weights: [O, K] less their zero points. scale: real units of the sum, one or [O].

    factor: output steps of one such unit, one or [O]. reach: largest magnitude of an input less its zero point.
    """

    weights: Int64
    scale: _Real
    factor: _Real
    reach: int
    wide: bool

    @staticmethod
    def of(op: Op, x: Tensor, w: Tensor, y: Tensor) -> Sum:
        """That of a layer. All three tensors have scales, w is a constant."""
        assert w.quantization
        centred = np.moveaxis(_centred(w, w.quantization), -1 if isinstance(op, DepthwiseConv2D) else 0, 0)
        scale = x.scale * np.array(w.quantization.scales, np.float64)
        low, high = x.dtype.range
        reach = max(high - x.zero_point, x.zero_point - low)
        weights = centred.reshape(len(centred), -1)
        return Sum(weights, scale, scale / y.scale, reach, y.dtype is DType.INT16)

    def finer(self, bias: _Real) -> Iterator[int]:
        """0, and the powers of two by which weights, sums and a bias (in units of the sum) stay within their types."""
        yield 0
        largest = int(np.abs(self.weights).max(initial=0))
        worst = float((np.abs(self.weights).sum(axis=1) * float(self.reach) + np.abs(bias) + 1).max())
        power = 1
        while largest << power <= _INT16_MAX and worst * 2.0**power <= INT32_MAX:
            yield power
            power += 1

    def lost(self, exact: _Real, integers: _Real, finer: int) -> _Real:
        """Steps by which the rounded bias puts the outputs of each channel off; 0 or 1 for a channel without weights.

        exact: the bias in finer units.
        """
        factor = np.broadcast_to(self.factor / 2.0**finer, exact.shape)
        steps = np.abs(exact - integers) * factor
        fixed = ~self.weights.any(axis=1)
        same = np.rint(exact * factor) == np.rint(integers * factor)
        return np.where(fixed, np.where(same, 0.0, 1.0), steps)


def fitted(value: _Real, layer: Sum) -> tuple[Fitted | None, float]:
    """The real bias [O] in the coarsest units whose rounding no output shows, None where there are none.

    The second value is the largest number of steps that an output loses in the units that the scales state; infinite where the
    bias is beyond int32 there.
    """
    plain = np.full(value.shape, np.inf)
    for finer in layer.finer(value / layer.scale):
        exact = value / layer.scale * 2.0**finer
        integers = np.rint(exact)
        if not np.abs(integers).max(initial=0.0) < 2**31:  # nor is NaN
            break
        steps = layer.lost(exact, integers, finer)
        if finer == 0:
            plain = steps
        shown = float(steps.max(initial=0.0)) > _VISIBLE_WIDE if layer.wide else float(steps.mean()) > VISIBLE
        if not shown:
            near = bool(np.allclose(integers, exact, rtol=2.0**-22, atol=0.0))
            return Fitted(integers.astype(np.int64), finer, not near), float(plain.max(initial=0.0))
    return None, float(plain.max(initial=0.0))


def finer_weights(w: Tensor, finer: int) -> tuple[DType, Quantization, bytes]:
    """Type, quantization and bytes of the weights in units of scale / 2**finer, without zero points."""
    assert w.quantization
    q = w.quantization
    values = (_centred(w, q) << finer).astype(np.int16)
    scales = tuple(scale / 2.0**finer for scale in q.scales)
    return DType.INT16, replace(q, scales=scales, zero_points=(0,) * len(q.scales)), values.tobytes()

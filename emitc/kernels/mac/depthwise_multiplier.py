"""Depthwise convolutions of several filters for each channel, or of int16: four outputs at a time, tap by tap.

Output o reads input channel o // multiplier. Four outputs gather their values from the channels that they share: by one
instruction on cores with MVE, and one by one on those with DSP instructions. Sums have 32 bits.

Source of the arithmetic: TFLite 8-bit and 16x8 quantization specifications, as the portable kernel has them.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from emitc.ir import DType
from emitc.kernels.mac import accumulation, dsp_int8, int16_dsp_mve
from emitc.kernels.mac.problem import FOUR_BITS, POINTER_BYTES, FoldedWeights, MacProblem, NoKernel, packed_table
from emitc.kernels.mac.requantization import requantization
from emitc.kernels.mac.weight_packing import shape_text
from emitc.layer import Layer, Param, Scratch, Table
from emitc.numerics.requantize import reduced_multiplier

_LANES = 4


def _filled(values: NDArray[np.int64]) -> tuple[int, ...]:
    """The values, and zeros up to a whole register."""
    return tuple(np.pad(values, (0, -len(values) % _LANES)).tolist())


def _ahead(problem: MacProblem, firsts: Sequence[int]) -> int | None:
    """Bytes ahead, as `WindowOrder` says. firsts: the first output of each group of four, in the order of the groups.

    A group's own input channels start above the window's first byte, which leaves that many bytes less.
    """
    in_bytes, out_bytes = problem.bound.input(0).dtype.bytes, problem.bound.output.dtype.bytes
    multiplier = _multiplier(problem)
    groups = list(enumerate(firsts))[1:]
    return max((_LANES * i * out_bytes - first // multiplier * in_bytes for i, first in groups), default=None)


def _multiplier(problem: MacProblem) -> int:
    return problem.channels // problem.bound.input(0).shape[3]


def mve_depthwise(problem: MacProblem) -> Layer:
    bound, out = problem.bound, problem.channels
    x, y = bound.input(0), bound.output
    if bound.node.op.numerics.float_scale or x.dtype is not y.dtype or x.dtype not in (DType.INT8, DType.INT16):
        raise NoKernel(f"{x.dtype.value} to {y.dtype.value} by float32 factors: there is code for fixed point")
    if bound.input(1).dtype.packed or problem.filters.dtype != np.int8:
        raise NoKernel(FOUR_BITS)
    spec = accumulation.spec(bound, problem.matrix)
    if spec.acc != "int32_t":
        raise NoKernel("its sums need 64 bits")
    multiplier, scale, outputs = _multiplier(problem), requantization(bound), np.arange(out, dtype=np.int64)
    factors, shifts = (np.zeros(out, np.int64) + np.array(values) for values in (scale.q31, scale.shift))
    shift = Table("shift", "int8_t", _filled(shifts), "shift of the product, positive left")
    if spec.reduced:
        factors = np.array([reduced_multiplier(int(q)) << 16 for q in factors], np.int64)
        shift = Table("right", "int8_t", _filled(15 - shifts - 16), "right shift of the product")
    channels = outputs // multiplier - outputs // _LANES * _LANES // multiplier
    values = tuple(problem.filters.reshape(-1).tolist())
    folded = FoldedWeights(problem, problem.matrix.astype(np.int64), accumulation.bias_of(bound, out), scale, spec)
    tables = (
        Table("weights", "int8_t", values, shape_text(problem.filters.shape), pixels_per_load=1),
        Table("bias", "int32_t", _filled(folded.bias), "bias per output channel", alignment=4),
        Table("multiplier", "int32_t", _filled(factors), "multiplier per output channel"),
        shift,
        Table(
            "channels", "int8_t", _filled(channels), "input channel of each output, from that of the first of four on"
        ),
    )
    params = (
        *problem.window_params,
        Param("depth_multiplier", "int32_t", multiplier),
        accumulation.input_offset(bound, folded=problem.folded),
        *problem.output_limits,
    )
    ahead = _ahead(problem, range(0, out, _LANES))
    return folded.layer(
        "convolution/depthwise_conv_2d_multiplier_mve", tables, params, ahead=ahead, headers=("emitc_mve.h",)
    )


def dsp_depthwise(problem: MacProblem) -> Layer:
    """The layer for DSP instructions; raises NoKernel where there is none.

    The kernel lists where the taps of a window read, pixel by pixel of the output; outside of the input they read a pixel of zero
    points. Of a number of outputs that is no multiple of four, the last four are computed at the end, some of them again.
    """
    bound, out, x = problem.bound, problem.channels, problem.bound.input(0)
    is_int16, (kernel_h, kernel_w) = int16_dsp_mve.applies(bound), problem.kernel
    if out < _LANES:
        raise NoKernel("it has fewer than four output channels")
    folded = int16_dsp_mve.fold(problem) if is_int16 else dsp_int8.fold(problem)
    multiplier = _multiplier(problem)
    form = "one" if multiplier == 1 else "even" if multiplier % 2 == 0 else ""
    firsts = [*range(0, out - _LANES, _LANES), out - _LANES]
    order = np.add.outer(firsts, np.arange(_LANES))
    packed = folded.filters[order].transpose(0, 2, 1).reshape(-1)
    weights = packed_table(packed, bound.input(1).shape, "four channels after the other", 0)
    tables = (weights, *int16_dsp_mve.number_tables(folded)) if is_int16 else folded.tables(weights)
    multiplied = (Param("depth_multiplier", "int32_t", multiplier),) if multiplier > 1 else ()
    outputs = problem.output_params if is_int16 else problem.output_limits
    suffix = f"{folded.spec.suffix}_{form}" if form else folded.spec.suffix
    return replace(folded, spec=replace(folded.spec, suffix=suffix, window=form)).layer(
        "convolution/depthwise_conv_2d_multiplier_dsp",
        tables,
        (*problem.window_params, problem.zero_point, *multiplied, *outputs),
        scratch=(
            Scratch("padding_pixel", x.shape[3] * x.dtype.bytes),
            Scratch("taps", POINTER_BYTES * kernel_h * kernel_w),
        ),
        ahead=_ahead(problem, firsts),
        headers=(dsp_int8.HEADER, int16_dsp_mve.DSP_HEADER, "emitc_dsp_depthwise.h"),
    )

"""CONV_2D and FULLY_CONNECTED of float32 values with int8 weights: the products are summed in integers (hybrid models).

Shapes  as of CONV_2D and FULLY_CONNECTED; a fully connected layer is a 1x1 convolution of one image per row.
Types   x, b and y float32, w int8 with one scale and without a zero point.
        Of every image, x is quantized to q = round(x * (127 / r)) in [-127, 127], r the largest magnitude in it, all of it in
        float32; y = clamp(float32(sum of q * w) * ((r / 127) * s_w) + b). An image of zeros stays zeros.
        round takes halves away from zero. (LiteRT adds a half and cuts off where it has vectors, so that 1/2 - 2**-25 becomes
        1 there, and 0 in the last values of an image. That number aside all bits are equal.)
        Values that are quantized with a zero point, as where a convolution has a scale per channel: hybrid_offset_conv_2d.py.
Errors  computed weights or bias, groups, a scale per channel; sums that can leave int32.
Source  LiteRT's reference kernels, by their results; TFLite Micro has no hybrid layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from emitc.errors import Reason
from emitc.ir import Array, BoundNode, DType, Op, Shape
from emitc.kernels.contract import KernelDef, Parsed, Variant, illegal, require_one_scale, require_rank, unsupported
from emitc.kernels.costs import Cost, Costs
from emitc.kernels.mac.hybrid_common import (
    Float32,
    as_filters,
    half_away,
    require_int32_sums,
    require_operands,
    settings_of,
    shape_of,
    tables_of,
    window_and_image,
    window_or_pixel,
)
from emitc.kernels.mac.requantization import BIAS, WEIGHTS
from emitc.kernels.shared.float_activation import bound_params, bounded
from emitc.kernels.shared.windows import Window, require_output
from emitc.layer import Layer, Param, Scratch
from emitc.source import SourceNode

_LARGEST = 127


@dataclass(frozen=True, slots=True)
class HybridConv2D(Op):
    """window: strides, dilations, padding; none of a fully connected layer. activation: fused. keep_dims: as there."""

    window: Window | None
    activation: str
    keep_dims: bool = False


def from_tflite(node: SourceNode) -> Parsed:
    """The options of either operator."""
    return Parsed(HybridConv2D(*settings_of(node)), (0, 1, 2))


def check(bound: BoundNode) -> None:
    """Refuses what the module's docstring lists."""
    op, x, w = bound.op(HybridConv2D), bound.input(0), bound.input(WEIGHTS)
    kind = bound.node.op_type
    require_operands(bound, op, w.shape[0])
    if w.quantization is not None and not w.quantization.per_tensor:
        raise unsupported(
            bound, f"{kind} of float32 with {len(w.quantization.scales)} weight scales is not supported",
            "there is code for one", "quantize the model fully, or with one scale for a layer's weights", w,
        )  # fmt: skip
    require_one_scale(bound, w)
    assert w.quantization
    if w.quantization.zero_point:
        raise illegal(
            bound, f"{kind} has weights with a zero point", "int8 weights are symmetric", "quantize them again", w
        )
    if op.window is not None:
        require_rank(bound, x, 4)
        if x.shape[3] != w.shape[3]:
            report = unsupported if x.shape[3] % w.shape[3] == 0 else illegal
            raise report(
                bound, "CONV_2D of float32 with int8 weights in groups is not supported",
                f"input {x.shape[3]} channels, weights {w.shape[3]}", "quantize the model fully", w,
            )  # fmt: skip
        require_output(bound, op.window, w.shape[1], w.shape[2])
    require_int32_sums(bound, w.array(), _LARGEST)


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """[N, OH, OW, O]; [rows, O], or [..., O] with keep_num_dims."""
    return shape_of(bound, bound.op(HybridConv2D), bound.input(WEIGHTS).shape[0])


def _quantized(images: Float32) -> tuple[NDArray[np.int64], Float32]:
    """The images [N, ...] in integers, and the scale of each [N]."""
    reach = np.abs(images.reshape(len(images), -1)).max(axis=1).astype(np.float32)
    steps = np.where(reach > 0, reach / np.float32(_LARGEST), np.float32(1)).astype(np.float32)
    with np.errstate(all="ignore"):
        inverse = np.where(reach > 0, np.float32(_LARGEST) / reach, np.float32(0)).astype(np.float32)
        product = images * inverse.reshape(-1, *(1,) * (images.ndim - 1))
        limited = np.nan_to_num(np.clip(product, -_LARGEST, _LARGEST))
    return half_away(limited), steps


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """Integer sums tap by tap, then float32."""
    op, w, bias = bound.op(HybridConv2D), bound.input(WEIGHTS), bound.optional(BIAS)
    assert inputs[0] is not None
    filters = as_filters(w.array()).astype(np.int64)
    x = inputs[0].astype(np.float32)
    values, steps = _quantized(x if op.window is not None else x.reshape(-1, 1, 1, w.shape[1]))
    rows, columns = window_or_pixel(op).output(*values.shape[1:3], *filters.shape[1:3])
    acc = np.zeros((len(values), rows, columns, len(filters)), np.int64)
    for ky, kx, tap in window_or_pixel(op).taps(values, 0, *filters.shape[1:3]):
        acc += tap @ filters[:, ky, kx].T
    factor = (steps * np.float32(w.scale)).reshape(-1, 1, 1, 1)
    added = np.float32(0) if bias is None else bias.array()
    with np.errstate(all="ignore"):
        real = acc.astype(np.float32) * factor + added
    return (bounded(real.reshape(bound.output.shape), op.activation, DType.FLOAT32),)


def lower(bound: BoundNode) -> Layer:
    """Image by image: largest magnitude, quantized values in scratch, then the sums."""
    op, w = bound.op(HybridConv2D), bound.input(WEIGHTS)
    params, image = window_and_image(bound, op, w.shape[0])
    scale = Param("weight_scale", "float", w.scale)
    return Layer(
        "convolution/hybrid/hybrid_conv_2d", "portable", (0,), tables_of(bound, as_filters(w.array())),
        (*params, scale, *bound_params(op.activation, DType.FLOAT32)),
        scratch=(Scratch("values", image),), macs=work(bound),
    )  # fmt: skip


_HEADERS = {"dsp": "emitc_dsp.h", "mve": "emitc_mve_dot_int8.h"}


def lower_dsp(bound: BoundNode, variant: str = "dsp") -> Layer | str:
    """All taps of a row of the window at a time: pairs of values to an instruction."""
    layer = lower(bound)
    if window_or_pixel(bound.op(HybridConv2D)).dilation_w != 1:
        return Reason("it is dilated along the row", "a dilation of 1 there")
    headers = ("emitc_mve.h",) if variant == "mve" else ()
    return replace(
        layer, template=f"{layer.template}_{variant}", variant=variant, headers=(*headers, _HEADERS[variant])
    )


def lower_mve(bound: BoundNode) -> Layer | str:
    """The same for sixteen values."""
    return lower_dsp(bound, "mve")


def work(bound: BoundNode) -> int:
    """Multiply-accumulates."""
    w = bound.input(WEIGHTS)
    return bound.output.elements * (w.elements // w.shape[0])


KERNELS = (
    KernelDef(
        HybridConv2D,
        "convolution or matrix product of float32 with int8 weights",
        (DType.FLOAT32,),
        ("HybridConv2D",),
        from_tflite,
        check,
        reference,
        lower,
        output_shapes=output_shapes,
        work=work,
        variants=(
            Variant(
                "mve",
                "mve",
                lower_mve,
                Costs("qemu_m55 at d5ec394, 2026-11-23", Cost(mac=0.5, output=60)),
                (DType.FLOAT32,),
            ),
            Variant(
                "dsp",
                "dsp",
                lower_dsp,
                Costs("qemu_m4 at d5ec394, 2026-11-23", Cost(mac=3.0, output=80)),
                (DType.FLOAT32,),
            ),
        ),
    ),
)

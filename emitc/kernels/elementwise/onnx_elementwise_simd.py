"""Add, Sub and Mul of quantized ONNX tensors of equal shape on cores with vectors, pairs of int16 or a float unit.

Products of int8 by the upper half of a product of 32 bits, where that gives the bits of the specified arithmetic for every pair.
Sums, differences and products that no integers give, as those of int16, in float32 as specified: by a float unit, or four at a
time. Vectors have no division; one by a constant is a product with its inverse, corrected twice, which rounds as a division does.
"""

from collections.abc import Collection
from dataclasses import replace
from functools import lru_cache

import numpy as np

from emitc.ir import BoundNode, DType
from emitc.kernels.elementwise.onnx_arithmetic import pairs_of
from emitc.kernels.elementwise.quantized_operands import clamp_params, offset_params, scales, zero_points
from emitc.kernels.mac.dsp_int8 import BYTES_HEADER
from emitc.kernels.mac.dsp_int8 import HEADER as DSP_HEADER
from emitc.kernels.mac.mve_int8 import HEADER as MVE_HEADER
from emitc.layer import Formula, Layer, Param
from emitc.numerics.exhaustive_fit import HighProduct, high_product
from emitc.numerics.requantize import Clamp

REALS = {"real_sum": ("+", "sum"), "real_difference": ("-", "difference"), "real_product": ("*", "product")}
"""Kernels of floats: C's operator, and the name in the runtime's function of vectors."""
PRODUCTS = ("scaled_product", "wide_product")
"""Kernels of integers."""
_FARTHEST = 2.0**30
"""Scales up to it, and down to its inverse, keep vectors away from numbers that they take for 0."""
_REMEMBERED = 8
"""Products whose integers are remembered: the variants of one node ask for them one after another."""
_SHORT = float(1 << 14)
"""Products that are scaled to less have 16 bits, which pairs narrow to bytes."""


def _refusal(bound: BoundNode, layer: Layer, kernels: Collection[str]) -> str:
    a, b, y = bound.input(0), bound.input(1), bound.output
    if layer.kernel_name not in kernels:
        return f"{layer.kernel_name}{layer.spec.suffix} has a portable version only"
    return "" if a.elements == b.elements == y.elements else "an operand is repeated"


def _params(layer: Layer) -> dict[str, int | float]:
    return {param.name: param.value for param in layer.params}


@lru_cache(maxsize=_REMEMBERED)
def _high_product(bound: BoundNode, clamp: Clamp) -> HighProduct | None:
    """The integers of a product of int8 by the upper half."""
    scale_a, scale_b, scale_y = scales(bound)
    return high_product(pairs_of(bound, "*", clamp), scale_a * scale_b / scale_y, zero_points(bound))


def product(bound: BoundNode, layer: Layer, clamp: Clamp, variant: str) -> Layer | str:
    """`layer` of integers for a variant, dsp or mve; or why there is none."""
    if reason := _refusal(bound, layer, PRODUCTS):
        return reason
    scale_a, scale_b, scale_y = scales(bound)
    factor = scale_a * scale_b / scale_y
    fit = _high_product(bound, clamp)
    if fit is None:
        return "no multiplier of 32 bits gives the bits for every pair"
    if variant == "dsp" and factor * 255 * 255 >= _SHORT:
        return "a product of more than 16 bits"
    params = (
        *offset_params(bound),
        Param("multiplier", "int32_t", fit.multiplier),
        Param("bias", "int32_t", fit.bias, "the output's zero point and the rounding"),
        Param("right", "int32_t", fit.right, "of the upper half of the product"),
        *clamp_params(clamp),
        Param("count", "int32_t", bound.output.elements),
    )
    clamped = variant == "dsp" and clamp != Clamp(*DType.INT8.range)
    return replace(
        layer,
        template=f"elementwise/quantized_product/high_product_{variant}",
        params=params,
        spec=replace(layer.spec, suffix="_clamped" if clamped else "", clamped=clamped),
        headers=(MVE_HEADER,) if variant == "mve" else (DSP_HEADER, BYTES_HEADER),
    )


def real(bound: BoundNode, layer: Layer, variant: str) -> Layer | str:
    """`layer` of floats for a variant, fpu or mve; or why there is none."""
    if reason := _refusal(bound, layer, REALS):
        return reason
    known = _params(layer)
    scales = [float(known[name]) for name in ("a_scale", "b_scale", "y_scale")]
    if not 1 / _FARTHEST <= min(scales) <= max(scales) <= _FARTHEST:
        return "its scale is far from 1"
    offsets = tuple(Param(name, "int32_t", known[name]) for name in ("a_offset", "b_offset"))
    params = (
        *offsets,
        *(Param(name, "float", known[name]) for name in ("a_scale", "b_scale", "y_scale")),
        Param("y_inverse", "float", float(np.float32(1.0) / np.float32(scales[2])), "1 / y_scale"),
        Param("lowest", "int32_t", int(known["lowest"]), "the clamp, without the zero point"),
        Param("highest", "int32_t", int(known["highest"])),
        Param("output_offset", "int32_t", known["output_offset"]),
        Param("count", "int32_t", bound.output.elements),
    )
    headers = (MVE_HEADER, "emitc_mve_float32.h") if variant == "mve" else ("emitc_fpu.h",)
    limits = tuple(int(known[name] + known["output_offset"]) for name in ("lowest", "highest"))
    short = variant == "fpu" and limits == DType.INT16.range
    spec = layer.spec.extended("_full", rounding="s16") if short else layer.spec
    operator, name = REALS[layer.kernel_name]
    c = f"emitc_float32x4_{name}(real_a, real_b)" if variant == "mve" else f"real_a {operator} real_b"
    formula = Formula(f"{layer.kernel_name}_{variant}", c, "")
    template = f"elementwise/real_binary_{variant}"
    return replace(layer, template=template, formula=formula, params=params, headers=headers, spec=spec)

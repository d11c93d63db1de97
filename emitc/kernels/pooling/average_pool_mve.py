"""ONNX's averages of int8 on cores with vectors: four channels at a time, by the float32 arithmetic of ONNX Runtime itself.

With four values at a time no integer mean has to tell first whether float32 rounds as it does. The sum of a whole image stays
one of integers.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from emitc.ir import BoundNode, DType
from emitc.kernels.mac.mve_int8 import CHANNELS
from emitc.kernels.mac.mve_int8 import HEADER as MVE_HEADER
from emitc.layer import PLAIN, Layer, Param, Table

_FARTHEST = 2.0**20
"""Scales up to it, and down to its inverse, keep vectors away from numbers that they take for 0."""
_LARGEST_COUNT = 4096
"""Values of a window, for the same reason."""


def layer(bound: BoundNode, portable: Layer) -> Layer | str:
    """The layer of `average_pool_2d_even` or `average_pool_2d_sum` for vectors; or why there is none."""
    if bound.input(0).dtype is not DType.INT8:
        return f"{portable.kernel_name}{portable.spec.suffix} has a portable version only"
    known = {param.name: param.value for param in portable.params}
    if portable.template == "pooling/average_pool_2d_sum":
        factors = Table(
            "factor", "float", (float(known["factor"]),) * CHANNELS, "x_scale / (y_scale * elements of the window)"
        )
        params = tuple(param for param in portable.params if param.name != "factor")
        return _by_fours(portable, params, (factors,), (MVE_HEADER,))
    scales = float(known["x_scale"]), float(known["y_scale"])
    if not 1 / _FARTHEST <= min(scales) <= max(scales) <= _FARTHEST:
        return "its scale is far from 1"
    if int(known["kernel_h"]) * int(known["kernel_w"]) > _LARGEST_COUNT:
        return f"a window of more than {_LARGEST_COUNT} values"
    left_out = ("output_offset", "clamp_low", "clamp_high", "multiplier", "right", "doubt")
    late = int(known["late_offset"])
    params = (
        *(param for param in portable.params if param.name not in left_out),
        Param("y_inverse", "float", float(np.float32(1.0) / np.float32(scales[1])), "1 / y_scale"),
        Param("lowest", "int32_t", int(known["clamp_low"]) - late, "the clamp, without what is added after rounding"),
        Param("highest", "int32_t", int(known["clamp_high"]) - late),
    )
    return _by_fours(portable, params, (), (MVE_HEADER, "emitc_mve_float32.h"))


def _by_fours(portable: Layer, params: tuple[Param, ...], tables: tuple[Table, ...], headers: tuple[str, ...]) -> Layer:
    return replace(
        portable,
        template=f"{portable.template}_mve",
        variant="mve",
        params=params,
        tables=tables,
        spec=PLAIN,
        headers=headers,
    )

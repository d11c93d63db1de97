"""FULLY_CONNECTED of a TFLite model in float32: y = clamp((x @ w.T) + b), the products summed in order, the bias added last.

Errors  computed weights; other types in between (hybrid models).
Source  TFLite Micro's float kernel, for the order of the sums.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from emitc.ir import Array, BoundNode, DType, Numerics
from emitc.kernels.mac import accumulation
from emitc.kernels.mac.operand_checks import require_bias_length, require_constants, require_float_dtypes
from emitc.kernels.mac.requantization import BIAS, WEIGHTS
from emitc.kernels.shared.float_activation import bound_params, bounded
from emitc.layer import KernelSpec, Layer, Table, integers


def applies(bound: BoundNode) -> bool:
    """Whether inputs and weights are float32 in a TFLite model."""
    floats = bound.input(0).dtype is DType.FLOAT32 and bound.input(WEIGHTS).dtype is DType.FLOAT32
    return floats and bound.node.op.numerics is Numerics.TFLITE


def check(bound: BoundNode) -> None:
    """Refuses what the module's docstring lists, and a bias of another length."""
    require_float_dtypes(bound)
    require_constants(bound)
    require_bias_length(bound, bound.input(WEIGHTS).shape[0])


def _bias(bound: BoundNode) -> Array:
    bias = bound.optional(BIAS)
    return np.zeros(bound.input(WEIGHTS).shape[0], np.float32) if bias is None else bias.array()


def reference(bound: BoundNode, activation: str, inputs: Sequence[Array | None]) -> Array:
    """In double, rounded to float32."""
    assert inputs[0] is not None
    weights = bound.input(WEIGHTS).array().astype(np.float64)
    with np.errstate(all="ignore"):  # infinite weights give no number, as in the C
        rows = inputs[0].astype(np.float64).reshape(-1, weights.shape[1]) @ weights.T + _bias(bound).astype(np.float64)
        return bounded(rows.reshape(bound.output.shape).astype(np.float32), activation, DType.FLOAT32)


def layer(bound: BoundNode, activation: str) -> Layer:
    w = bound.input(WEIGHTS)
    out, depth = w.shape
    rows = bound.input(0).elements // depth
    tables = (
        Table("weights", "float", tuple(w.array().reshape(-1).tolist()), f"weights {out}x{depth}", pixels_per_load=0),
        Table("bias", "float", tuple(_bias(bound).tolist()), "bias per output"),
    )
    params = (*integers(**{"rows": rows, "in": depth, "out": out}), *bound_params(activation, DType.FLOAT32))
    return Layer("matrix/fully_connected_float", "portable", (0,), tables, params, macs=rows * out * depth)


def pixels(layer: Layer) -> Layer:
    """The same layer as a 1x1 convolution of as many images of one pixel as it has rows."""
    values = {param.name: param for param in layer.params}
    window = accumulation.pixel_params(*(int(values[name].value) for name in ("rows", "in", "out")))
    return replace(
        layer,
        params=(*window, accumulation.groups_param(1), values["low"], values["high"]),
        spec=KernelSpec("_bounded", clamped=True, bias_last=True),
    )

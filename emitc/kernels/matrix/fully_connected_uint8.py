"""FULLY_CONNECTED of legacy uint8 models: y = clamp(y_zero + round((bias + sum((x - x_zero) * (w - w_zero))) * factor)).

Types   x, w and y int8, 128 lower than in the model; bias and sum int32.
        factor = x_scale * w_scale / y_scale in double; the one rounding takes ties away from zero.
Errors  factors of 2**20 or more, and sums that it takes out of int32. Also factors for which the engine's product in double,
        itself rounded to 53 bits, makes a tie of what is none.
Source  LiteRT's reference kernel, measured: sums next to every tie, where a Q31 multiplier, the float32 product of the scales,
        and ties upward or to even all give other results.
"""

import numpy as np

from emitc.ir import BoundNode
from emitc.kernels.contract import unsupported
from emitc.kernels.mac.accumulation import bias_of, input_offset, weights_of
from emitc.kernels.mac.requantization import WEIGHTS, output_limits, requantization
from emitc.layer import Layer, Param, Table, integers
from emitc.numerics.requantize import INT32_MAX, Clamp, double_shows, exact_multiplier_of

PORTABLE_ONLY = "one rounding of a product in double"
_FACTOR_LIMIT = 2.0**20
_BYTE = 256


def check(bound: BoundNode) -> None:
    """Refuses factors for which integers cannot give the engine's results."""
    factor = requantization(bound).exact
    filters, y = weights_of(bound).astype(np.int64), bound.output
    reach = int(np.abs(filters).sum(axis=1).max()) * _BYTE + int(np.abs(bias_of(bound, len(filters))).max())
    zero = y.zero_point
    if not 0.0 < factor < _FACTOR_LIMIT or min(reach, INT32_MAX) * factor > INT32_MAX - _BYTE:
        why = f"sums up to {reach} are multiplied by {factor!r}, which leaves int32"
    elif double_shows(factor, y.dtype.range[0] - zero, y.dtype.range[1] - zero):
        why = f"the product with {factor!r} in double, as LiteRT computes it, is rounded twice for some sum"
    else:
        return
    raise unsupported(bound, "of uint8 with these scales is not supported", why, "quantize the model to int8", y)


def layer(bound: BoundNode, clamp: Clamp, rows: int, *, folded: bool) -> Layer:
    out, depth = bound.input(WEIGHTS).shape
    w = bound.input(WEIGHTS)
    factor = exact_multiplier_of(requantization(bound).exact)
    tables = (
        Table("weights", "int8_t", tuple(w.array().reshape(-1).tolist()), "weights", pixels_per_load=0),
        Table("bias", "int32_t", tuple(bias_of(bound, out).tolist()), "bias per output channel"),
    )
    params = (
        *integers(**{"rows": rows, "in": depth, "out": out}),
        input_offset(bound, folded=folded),
        Param("weight_offset", "int32_t", -w.zero_point, "minus the zero point"),
        Param("factor_high", "uint32_t", factor.high, "of 53 bits"),
        Param("factor_low", "uint32_t", factor.low),
        Param("right", "int32_t", factor.right, "right shift of the product, in addition to 32 bits"),
        *output_limits(bound, clamp),
    )
    return Layer("matrix/fully_connected_once", "portable", (0,), tables, params, macs=rows * out * depth)

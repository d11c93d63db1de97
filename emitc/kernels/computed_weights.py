"""What CONV_2D, DEPTHWISE_CONV_2D, TRANSPOSE_CONV and FULLY_CONNECTED of TFLite share where their weights are computed bytes.

Nothing is known of such weights but their type, so that sums are bounded by the number of products. A computed bias is added at
their end, where they wrap as TFLite Micro's do; so it is where that alone is computed.
Errors  a computed bias of TRANSPOSE_CONV, or of int16; more products than their type holds.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from emitc.frontends.source import SourceNode
from emitc.ir import Array, BoundNode
from emitc.kernels import accumulate, int16x8
from emitc.kernels.contract import Flavour, Parsed, unsupported
from emitc.kernels.pointwise import operand
from emitc.kernels.requantization import BIAS, WEIGHTS, reduced, requantization
from emitc.quantize import INT32_MAX, Int64

_LARGEST_BYTE = 128


def applies(node: SourceNode) -> bool:
    """Whether the weights of a convolution are computed bytes, of an input of int8 or int16; or its bias, of int8."""
    weights = node.inputs[WEIGHTS] if len(node.inputs) > WEIGHTS else None
    if weights is None or weights.is_variable or node.attributes.get("unsigned"):
        return False
    if weights.dtype != "int8" or node.input(0).dtype not in ("int8", "int16"):
        return False
    return weights.data is None or computes_bias(node)


def computes_bias(node: SourceNode) -> bool:
    """Whether the bias of an operator on int8 is computed."""
    bias = node.inputs[BIAS] if len(node.inputs) > BIAS else None
    return bias is not None and bias.data is None and not bias.is_variable and node.input(0).dtype == "int8"


def late_bias(bound: BoundNode) -> bool:
    """Whether the bias is computed."""
    bias = bound.optional(BIAS)
    return bias is not None and not bias.is_constant


def with_bias(bound: BoundNode, inputs: Sequence[Array | None], products: Int64) -> Int64:
    """The sums [..., O] of products with the bias, which wrap where it is computed."""
    if not late_bias(bound):
        return products + accumulate.bias_of(bound, products.shape[-1])
    sums: Int64 = products + operand(bound, inputs, BIAS).astype(np.int64)
    return sums.astype(np.int32).astype(np.int64)


def check_sums(bound: BoundNode, depth: int, *, late: bool = True) -> None:
    """Refuses a computed bias of int16, and `depth` products per sum where the sum could leave its type.

    late: a computed bias may come at the end.
    """
    kind, bias = bound.node.op_type, bound.optional(BIAS)
    computed = late_bias(bound)
    if bias is not None and computed and (not late or int16x8.applies(bound)):
        raise unsupported(
            bound,
            f"{kind} with a computed bias of integers is not supported",
            "it could take sums out of their type",
            "export the model with a constant bias",
            bias,
        )
    reach = 1 << 15 if int16x8.applies(bound) else 255
    weights = bound.input(WEIGHTS).quantization
    heaviest = 255 if weights and any(weights.zero_points) else _LARGEST_BYTE
    constant = 0 if computed else int(np.abs(accumulate.bias_of(bound, 1)).max())
    largest = reach * heaviest * depth + constant
    wide = reduced(bound)
    if largest > (int16x8.SUM_MAX if wide else INT32_MAX):
        raise unsupported(
            bound,
            f"{kind} with computed weights over {depth} elements is not supported",
            f"sums can reach {largest}, which leaves {48 if wide else 32} bits",
            "reduce the depth",
            bound.input(WEIGHTS),
        )


def flavour(bound: BoundNode, depth: int, suffix: str = "") -> Flavour:
    """Of a kernel that sums `depth` products: as int16x8.flavour says for the largest weights. suffix: that of int8."""
    if not int16x8.applies(bound):
        late = late_bias(bound)
        return Flavour(suffix + ("_late_bias" if late else ""), late_bias=late)
    scale, channels = requantization(bound), bound.output.shape[-1]
    worst = np.full((channels, 1), _LARGEST_BYTE * depth, np.int64)
    return int16x8.flavour(worst, accumulate.bias_of(bound, channels), scale.shift, reduced=scale.reduced)


def never(node: SourceNode) -> Parsed:
    """The parser of an operator that another one's parser makes."""
    raise node.unsupported(
        f"{node.op_type} is no operator of the format", "it is an operator with computed weights", "export again"
    )

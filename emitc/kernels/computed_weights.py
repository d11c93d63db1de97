"""What CONV_2D, DEPTHWISE_CONV_2D, TRANSPOSE_CONV and FULLY_CONNECTED of TFLite share where their weights are computed bytes.

Nothing is known of such weights but their type, so that sums are bounded by the number of products, and a bias is constant.
Errors  a computed bias; more products than their type holds.
"""

from __future__ import annotations

import numpy as np

from emitc.frontends.source import SourceNode
from emitc.ir import BoundNode
from emitc.kernels import accumulate, int16x8
from emitc.kernels.contract import Flavour, Parsed, unsupported
from emitc.kernels.requantization import BIAS, WEIGHTS, reduced, requantization
from emitc.quantize import INT32_MAX

_LARGEST_BYTE = 128


def applies(node: SourceNode) -> bool:
    """Whether the weights of a convolution are computed bytes, of an input of int8 or int16."""
    weights = node.inputs[WEIGHTS] if len(node.inputs) > WEIGHTS else None
    if weights is None or weights.data is not None or weights.is_variable or node.attributes.get("unsigned"):
        return False
    return weights.dtype == "int8" and node.input(0).dtype in ("int8", "int16")


def check_sums(bound: BoundNode, depth: int) -> None:
    """Refuses a computed bias, and `depth` products per sum where the sum could leave its type."""
    kind, bias = bound.node.op_type, bound.optional(BIAS)
    if bias is not None and not bias.is_constant:
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
    largest = reach * heaviest * depth + int(np.abs(accumulate.bias_of(bound, 1)).max())
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
        return Flavour(suffix)
    scale, channels = requantization(bound), bound.output.shape[-1]
    worst = np.full((channels, 1), _LARGEST_BYTE * depth, np.int64)
    return int16x8.flavour(worst, accumulate.bias_of(bound, channels), scale.shift, reduced=scale.reduced)


def never(node: SourceNode) -> Parsed:
    """The parser of an operator that another one's parser makes."""
    raise node.unsupported(
        f"{node.op_type} is no operator of the format", "it is an operator with computed weights", "export again"
    )

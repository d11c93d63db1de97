"""What CONV_2D, DEPTHWISE_CONV_2D, TRANSPOSE_CONV and FULLY_CONNECTED of TFLite share where their weights are computed bytes.

Only the type of such weights is known, so that the number of products bounds the sums. A computed bias is added at the end of a
sum, which wraps then as TFLite Micro's does. With int16 inputs and a bias of 64 bits, sums beyond 48 bits wrap once more when
they are multiplied.
Errors  more products than the type of the sums holds.
"""

from collections.abc import Sequence

import numpy as np

from emitc.ir import Array, BoundNode, DType
from emitc.kernels.contract import Parsed, unsupported
from emitc.kernels.mac import accumulation
from emitc.kernels.mac.accumulation import BIAS, WEIGHTS, output_params, reduced, requantization, requantization_tables
from emitc.kernels.shared import int16x8
from emitc.kernels.shared.pointwise import operand
from emitc.layer import KernelSpec, Layer, Param, Table
from emitc.numerics.requantize import INT32_MAX, Int64, activation_clamp
from emitc.source import SourceNode

_LARGEST_BYTE = 128


def applies(node: SourceNode) -> bool:
    """Whether the weights of a convolution are computed bytes, of an input of int8 or int16; or its bias."""
    weights = node.inputs[WEIGHTS] if len(node.inputs) > WEIGHTS else None
    if weights is None or weights.is_variable or node.attributes.get("unsigned"):
        return False
    if weights.dtype != "int8" or node.input(0).dtype not in ("int8", "int16"):
        return False
    bias = node.inputs[BIAS] if len(node.inputs) > BIAS else None
    return weights.data is None or (bias is not None and bias.data is None and not bias.is_variable)


def late_bias(bound: BoundNode) -> bool:
    bias = bound.optional(BIAS)
    return bias is not None and not bias.is_constant


def with_bias(bound: BoundNode, inputs: Sequence[Array | None], products: Int64) -> Int64:
    """The sums [..., O] of products with the bias, which wrap where it is computed."""
    if not late_bias(bound):
        return products + accumulation.bias_of(bound, products.shape[-1])
    sums: Int64 = products + operand(bound, inputs, BIAS).astype(np.int64)
    return sums if reduced(bound) else sums.astype(np.int32).astype(np.int64)


def check_sums(bound: BoundNode, depth: int) -> None:
    """Refuses `depth` products per sum where a sum of them and a constant bias could leave its type."""
    reach = 1 << 15 if int16x8.applies(bound) else 255
    weights = bound.input(WEIGHTS).quantization
    heaviest = 255 if weights and any(weights.zero_points) else _LARGEST_BYTE
    constant = 0 if late_bias(bound) else int(np.abs(accumulation.bias_of(bound, 1)).max())
    largest = reach * heaviest * depth + constant
    wide = reduced(bound)
    if largest > (int16x8.SUM_MAX if wide else INT32_MAX):
        what = f"with computed weights over {depth} elements is not supported"
        why = f"sums can reach {largest}, which leaves {48 if wide else 32} bits"
        raise unsupported(bound, what, why, "reduce the depth", bound.input(WEIGHTS))


def adding_last(bound: BoundNode, kind: KernelSpec) -> KernelSpec:
    """The spec of a kernel that adds a computed bias at the end of a sum; `kind` itself where the bias is constant."""
    bias = bound.optional(BIAS)
    if bias is None or bias.is_constant:
        return kind
    kind = int16x8.WIDE if kind.reduced else kind
    short = "_s16" if bias.dtype is DType.INT16 else ""
    return kind.extended(f"_late_bias{short}", runtime_bias=bias.dtype.c_type)


def bias_table(bound: BoundNode, kind: KernelSpec) -> tuple[Table, ...]:
    """A constant bias, or zeros, in the type of sums; nothing where it is computed."""
    if kind.runtime_bias:
        return ()
    values = accumulation.bias_of(bound, bound.output.shape[-1])
    return (Table("bias", kind.acc, tuple(values.tolist()), "bias per output channel"),)


def spec(bound: BoundNode, depth: int, suffix: str = "") -> KernelSpec:
    """Of a kernel that sums `depth` products: as int16x8.spec says for the largest weights. suffix: that of int8."""
    kind = KernelSpec(suffix)
    if int16x8.applies(bound):
        scale, channels = requantization(bound), bound.output.shape[-1]
        worst = np.full((channels, 1), _LARGEST_BYTE * depth, np.int64)
        bias = np.zeros(channels, np.int64) if late_bias(bound) else accumulation.bias_of(bound, channels)
        kind = int16x8.spec(worst, bias, scale.shift, reduced=scale.reduced)
    return adding_last(bound, kind)


def runtime_layer(bound: BoundNode, template: str, params: tuple[Param, ...], *, activation: str, depth: int) -> Layer:
    """A layer that takes weights, and a computed bias, in the model's order. depth: products of each output.

    params: those before the parameters of the outputs.
    """
    scale, kind = requantization(bound), spec(bound, depth)
    return Layer(
        template,
        operands=(0, WEIGHTS, *((BIAS,) if kind.runtime_bias else ())),
        tables=(*bias_table(bound, kind), *requantization_tables(scale, kind)),
        params=(*params, *output_params(bound, scale, activation_clamp(activation, bound.output))),
        macs=bound.output.elements * depth,
        spec=kind,
    )


def never(node: SourceNode) -> Parsed:
    """The parser of an operator that another one's parser makes."""
    raise node.unsupported("is no operator of the format", "it is an operator with computed weights", "export again")

"""FULLY_CONNECTED of a TFLite model whose weights or bias are computed: y = requantize((x - x_zero) @ w.T + b).

Shapes  as of FULLY_CONNECTED: x [..., I] flattened to rows of I, w [O, I], b [O] or none, y [rows, O] or [..., O].
Types   float32; x, w and y int8, b and sums int32; x and y int16 with int8 weights, b int64 or int32; w with one scale or one per
        output channel, requantized as with constant weights.
Errors  weights with a zero point and int16 inputs, or with several; depths for which sums can leave their type.
Source  TFLite Micro's kernel, which does not mind where its weights come from.
"""

from collections.abc import Sequence

import numpy as np

from emitc.ir import Array, BoundNode, DType
from emitc.kernels.contract import KernelDef, require_rank
from emitc.kernels.mac import accumulation, operand_checks, runtime_weights
from emitc.kernels.mac.accumulation import BIAS, WEIGHTS, Accumulating, output_limits, reduced, requantization
from emitc.kernels.shared import int16x8
from emitc.kernels.shared.pointwise import bound_params, bounded, operand
from emitc.kernels.shared.windows import WINDOW_PARAMS
from emitc.layer import KernelSpec, Layer, Param, Table, integers
from emitc.numerics.requantize import activation_clamp, reduced_multiplier
from emitc.records import dataclass
from emitc.source import SourceNode

_ROLES = ("x", "w", "bias")


@dataclass(frozen=True, slots=True)
class ComputedFullyConnected(Accumulating):
    """activation: fused. keep_dims: the output keeps x's leading dimensions."""

    activation: str
    keep_dims: bool = False


def applies(node: SourceNode) -> bool:
    """Whether weights or a bias are computed, of types that this operator has."""
    operands = [tensor for tensor in node.inputs if tensor is not None]
    kinds = [tensor.dtype for tensor in operands[:2]]
    if (
        len(kinds) < 2
        or kinds not in (["float32"] * 2, ["int8"] * 2, ["int16", "int8"])
        or operands[WEIGHTS].is_variable
    ):
        return False
    return any(tensor.data is None for tensor in operands[WEIGHTS:])


def check(bound: BoundNode) -> None:
    """Refuses what the module's docstring lists, and shapes that do not fit each other."""
    x, w = bound.input(0), bound.input(WEIGHTS)
    require_rank(bound, w, 2)
    in_float = x.dtype is DType.FLOAT32
    if in_float:
        operand_checks.require_float_dtypes(bound)
    else:
        operand_checks.check_operands(bound, 0, computed=True, one_zero=True)
    operand_checks.require_fitting_rows(bound, keep_dims=bound.op(ComputedFullyConnected).keep_dims)
    operand_checks.require_bias_length(bound, w.shape[0])
    if not in_float:
        runtime_weights.check_sums(bound, w.shape[1])


def float_rows(bound: BoundNode, inputs: Sequence[Array | None], activation: str) -> Array:
    """The product in double, rounded to float32."""
    w = operand(bound, inputs, WEIGHTS).astype(np.float64)
    bias = operand(bound, inputs, BIAS) if bound.optional(BIAS) else np.zeros(1)
    with np.errstate(all="ignore"):  # infinite values give no number, as in the C
        product = operand(bound, inputs, 0).astype(np.float64).reshape(-1, w.shape[1]) @ w.T + bias.astype(np.float64)
        return bounded(product.astype(np.float32).reshape(bound.output.shape), activation, DType.FLOAT32)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """One matrix product, in double or in int64."""
    op, x, y = bound.op(ComputedFullyConnected), bound.input(0), bound.output
    if x.dtype is DType.FLOAT32:
        return (float_rows(bound, inputs, op.activation),)
    w = operand(bound, inputs, WEIGHTS)
    rows = operand(bound, inputs, 0).reshape(-1, w.shape[1])
    quantized = bound.input(WEIGHTS)
    columns = w.T.astype(np.int64) - quantized.zero_point
    products = np.matmul(rows.astype(np.int64) - x.zero_point, columns)
    acc = runtime_weights.with_bias(bound, inputs, products)
    return (accumulation.result(bound, acc, op.activation).reshape(y.shape),)


def _scaling(bound: BoundNode, kind: KernelSpec) -> tuple[Param, ...]:
    scale = requantization(bound)
    if kind.reduced:
        right = (15 - scale.shift[0], "right shift of the product")
        return integers(multiplier=(reduced_multiplier(scale.q31[0]), "Q15"), right=right)
    return integers(multiplier=(scale.q31[0], "Q31"), shift=(scale.shift[0], "positive left"))


def _by_pixels(bound: BoundNode) -> Layer:
    """Rows as the pixels of an image in one row, whose convolution has a scale for each filter."""
    out, depth = bound.input(WEIGHTS).shape
    rows = bound.input(0).elements // depth
    sizes = (1, 1, rows, depth, 1, rows, out, 1, 1, 1, 1, 1, 1, 0, 0)
    window = tuple(Param(name, "int32_t", value) for name, value in zip(WINDOW_PARAMS, sizes, strict=True))
    params = (*window, accumulation.groups_param(1), accumulation.input_offset(bound, folded=False))
    activation = bound.op(ComputedFullyConnected).activation
    return runtime_weights.runtime_layer(bound, "convolution/conv_2d_taps", params, activation=activation, depth=depth)


def lower(bound: BoundNode) -> Layer:
    x, w, y = bound.input(0), bound.input(WEIGHTS), bound.output
    if w.quantization and not w.quantization.per_tensor:
        return _by_pixels(bound)
    out, depth = w.shape
    tensors = [bound.input(0), bound.input(WEIGHTS), bound.optional(BIAS)]
    tables = [
        Table(role, tensor.dtype.c_type, tuple(tensor.array().reshape(-1).tolist()), role)
        for role, tensor in zip(_ROLES, tensors, strict=True)
        if tensor is not None and tensor.is_constant
    ]
    operands = tuple(i for i, tensor in enumerate(tensors) if tensor is not None and not tensor.is_constant)
    params = integers(**{"rows": x.elements // depth, "in": depth, "out": out})
    if x.dtype is DType.FLOAT32:
        tables += [Table("bias", "float", (0.0,) * out, "none")] if tensors[BIAS] is None else []
        spec = KernelSpec(x="float", w="float", y="float", acc="float")
        params += bound_params(bound.op(ComputedFullyConnected).activation, DType.FLOAT32)
        template = "matrix/fully_connected_computed_float"
        return Layer(template, "portable", operands, tuple(tables), params, macs=work(bound), spec=spec)
    assert w.quantization
    zero = w.quantization.zero_point
    kind = KernelSpec("_wz" if zero else "", weight_zero=bool(zero))
    if x.dtype is DType.INT16:
        kind = int16x8.WIDE if reduced(bound) else KernelSpec("_s16", x="int16_t", y="int16_t")
    kind = runtime_weights.adding_last(bound, kind)
    tables = [table for table in tables if table.role != "bias"]
    tables += runtime_weights.bias_table(bound, kind)
    clamp = activation_clamp(bound.op(ComputedFullyConnected).activation, y)
    params += (
        Param("input_offset", "int32_t", -x.zero_point, "minus the zero point"),
        *((Param("weights_offset", "int32_t", -zero, "minus theirs"),) if zero else ()),
        *_scaling(bound, kind),
        *output_limits(bound, clamp),
    )
    return Layer(
        "matrix/fully_connected_computed", "portable", operands, tuple(tables), params, macs=work(bound), spec=kind
    )


def work(bound: BoundNode) -> int:
    return bound.input(0).elements * bound.input(WEIGHTS).shape[0]


KERNELS = (
    KernelDef(
        ComputedFullyConnected,
        "matrix product with computed weights",
        (DType.INT8, DType.INT16, DType.FLOAT32),
        tflite={"ComputedFullyConnected": runtime_weights.never},
        check=check,
        reference=reference,
        lower=lower,
        output_shapes=lambda bound: (
            operand_checks.rows_shape(bound, keep_dims=bound.op(ComputedFullyConnected).keep_dims),
        ),
        work=work,
    ),
)

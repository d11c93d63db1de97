"""BATCH_MATMUL: the matrix product of the last two dimensions, the others broadcast; either matrix may be taken transposed.

Shapes  a [..., M, K], with adj_x [..., K, M]; b [..., K, N], with adj_y [..., N, K]; y [..., M, N]; ranks from 2.
Types   one throughout. float32. int8, each tensor with one scale and a zero point: int32 sums, requantized by
        a_scale * b_scale / y_scale. int16 without zero points: int64 sums, a multiplier of 16 bits and one rounding.
Either operand may be constant.
Source  TFLite Micro's kernel.
Errors  batch dimensions that alternate between repeated and not more than three times; depths whose sums leave their type.
"""

from collections.abc import Sequence

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op, Shape
from emitc.kernels.contract import (
    KernelDef,
    Parsed,
    out_of_proportion,
    require_dtypes,
    require_quantization,
    unsupported,
)
from emitc.kernels.costs import UNKNOWN, Cost
from emitc.kernels.mac import four_channels
from emitc.kernels.mac.accumulation import FACTOR_LIMIT
from emitc.kernels.matrix import matmul
from emitc.kernels.shared import int16x8
from emitc.kernels.shared.pointwise import operand, plain_numerics
from emitc.layer import PLAIN, KernelSpec, Layer, Param, integers
from emitc.numerics.requantize import (
    INT32_MAX,
    Multiplier,
    multiplier_of,
    reduced_multiplier,
    requantize,
    requantize_reduced,
)
from emitc.records import dataclass, replace
from emitc.source import SourceNode

_TYPES = (DType.INT8, DType.INT16, DType.FLOAT32)


@dataclass(frozen=True, slots=True)
class BatchMatMul(Op):
    """a_transposed, b_transposed: whether the last two dimensions of an operand change places first."""

    a_transposed: bool
    b_transposed: bool


def from_tflite(node: SourceNode) -> Parsed:
    node.counts((2, 2))
    flags = (bool(node.attribute(name, False)) for name in ("adj_x", "adj_y"))
    return Parsed(BatchMatMul(*flags, numerics=plain_numerics(node)), (0, 1))


def _turned(shape: Shape, turned: bool) -> Shape:
    return (*shape[:-2], shape[-1], shape[-2]) if turned else shape


def _found(bound: BoundNode) -> matmul.Product | None:
    op, a, b = bound.op(BatchMatMul), bound.input(0).shape, bound.input(1).shape
    if min(len(a), len(b)) < 2:
        return None
    return matmul.product_of(_turned(a, op.a_transposed), _turned(b, op.b_transposed))


def _product(bound: BoundNode) -> matmul.Product:
    product = _found(bound)
    assert product is not None
    return product


def _factor(bound: BoundNode) -> float:
    a, b, y = bound.input(0), bound.input(1), bound.output
    return a.scale * b.scale / y.scale


def _multiplier(bound: BoundNode) -> Multiplier:
    return multiplier_of(_factor(bound))


def check(bound: BoundNode) -> None:
    """Refuses types without code, shapes that do not fit, and what the module's docstring lists."""
    a, b, y = bound.input(0), bound.input(1), bound.output
    mixed = (DType.INT16, DType.INT8, DType.INT16)
    known = [(DType.INT8, DType.INT8, DType.INT32), (DType.FLOAT32, DType.INT8, DType.FLOAT32), mixed]
    require_dtypes(bound, [(t,) * 3 for t in _TYPES], known)
    op = bound.op(BatchMatMul)
    shapes = f"{list(a.shape)}{' transposed' * op.a_transposed} and {list(b.shape)}{' transposed' * op.b_transposed}"
    product = matmul.require_fitting_matrices(bound, _found(bound), shapes)
    if y.dtype is DType.FLOAT32:
        return
    require_quantization(bound, a, b, y)
    int16x8.require_symmetric(bound)
    limit, most = (FACTOR_LIMIT, INT32_MAX) if y.dtype is DType.INT8 else (int16x8.FACTOR_LIMIT, int16x8.SUM_MAX)
    if not _factor(bound) < limit:
        raise out_of_proportion(bound, f"sums are multiplied by {_factor(bound)!r}, below {limit:g} is expected")
    largest = 255 if y.dtype is DType.INT8 else 1 << 15
    if product.depth * largest**2 > most:
        what = f"over {product.depth} elements"
        raise unsupported(bound, what, f"their sum can leave {most.bit_length() + 1} bits", "reduce the depth", a)


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """The broadcast batch, rows and columns."""
    product = _product(bound)
    return ((*product.batch, product.rows, product.columns),)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """numpy's matmul in double, or of integers."""
    op, y = bound.op(BatchMatMul), bound.output
    a, b = operand(bound, inputs, 0), operand(bound, inputs, 1)
    a = np.swapaxes(a, -1, -2) if op.a_transposed else a
    b = np.swapaxes(b, -1, -2) if op.b_transposed else b
    if y.dtype is DType.FLOAT32:
        return (matmul.float_product(a, b),)
    first, second = bound.input(0), bound.input(1)
    acc = np.matmul(a.astype(np.int64) - first.zero_point, b.astype(np.int64) - second.zero_point)
    last = _multiplier(bound)
    rule = requantize if y.dtype is DType.INT8 else requantize_reduced
    moved = (rule(acc, last.q31, last.shift) + y.zero_point).astype(np.int32)
    return (np.clip(moved, *y.dtype.range).astype(y.dtype.value),)


def lower(bound: BoundNode) -> Layer:
    """Loops over the batch round one product, four columns at a time."""
    op, product, y = bound.op(BatchMatMul), _product(bound), bound.output
    operands, tables = matmul.operand_tables(bound)
    a_row, a_step = (1, product.rows) if op.a_transposed else (product.depth, 1)
    b_column, b_step = (product.depth, 1) if op.b_transposed else (1, product.columns)
    params = (
        *matmul.batch_params(product),
        Param("a_row", "int32_t", a_row, "from row to row of a, and along its depth"),
        Param("a_step", "int32_t", a_step),
        Param("b_column", "int32_t", b_column, "from column to column of b, and along its depth"),
        Param("b_step", "int32_t", b_step),
    )
    suffix, spec = "", PLAIN
    if y.dtype is DType.FLOAT32:
        suffix, spec = "_float", KernelSpec(x="float", w="float", y="float", acc="float")
    elif y.dtype is DType.INT16:
        suffix, spec = "_s16", KernelSpec(x="int16_t", w="int16_t", y="int16_t", acc="int64_t")
        last = _multiplier(bound)
        params += integers(
            multiplier=(reduced_multiplier(last.q31), "Q15"), right=(15 - last.shift, "right shift of the product")
        )
    else:
        last = _multiplier(bound)
        params += integers(
            a_offset=(-bound.input(0).zero_point, "minus the zero point"),
            b_offset=-bound.input(1).zero_point,
            multiplier=(last.q31, "Q31"),
            shift=(last.shift, "positive left"),
            output_offset=y.zero_point,
        )
    return Layer(f"matrix/batch_matmul{suffix}", "portable", operands, tables, params, macs=product.macs, spec=spec)


def _by_rows(bound: BoundNode) -> Layer | str:
    """The product of two float32 operands that lie row by row, for four columns at a time; or why there is none."""
    op, layer = bound.op(BatchMatMul), lower(bound)
    if op.a_transposed or op.b_transposed:
        return "an operand is transposed"
    names = ("a_row", "a_step", "b_column", "b_step")
    params = tuple(param for param in layer.params if param.name not in names)
    return matmul.float_fours(replace(layer, template="matrix/matmul_float", params=params, spec=PLAIN))


KERNELS = (
    KernelDef(
        BatchMatMul, "matrix product, batched", _TYPES, ("BATCH_MATMUL",), from_tflite, check, reference, lower,
        output_shapes=output_shapes, work=lambda bound: _product(bound).macs,
        variants=four_channels.float_variants(_by_rows, matmul.FLOAT_UNIT_COST, matmul.FLOAT_VECTORS_COST),
        cost=replace(UNKNOWN, cases={"float32": Cost(mac=4.6, output=4)}),
        cost_with_vectors=replace(UNKNOWN, cases={"float32": Cost(mac=2.05, output=3)}),
    ),
)  # fmt: skip

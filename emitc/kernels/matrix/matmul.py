"""MatMul of ONNX: the matrix product of the last two dimensions, the others broadcast, by numpy's rules.

Shapes  a [..., M, K], b [..., K, N], y [..., M, N]; a vector counts as one row (a) or column (b), which y then has not.
Types   float32. Quantized (QLinearMatMul, or between DequantizeLinear and QuantizeLinear): int8 and int16 with a zero point
        on both sides, b with one scale or one per column; int32 or, where they can overflow, int64 accumulators;
        y = rint(float32(acc) * float32(a_scale * b_scale / y_scale)) + y_zero.
Either operand may be constant.
Source  numpy.matmul; ONNX Runtime's QLinearMatMul (0 differing).
Errors  batch dimensions that alternate between repeated and not more than three times; zero points per column that differ.

Gemm of ONNX: y = alpha * a' * b' + beta * c, where a' and b' are transposed or not, and c is repeated to fit.

Shapes  a [M, K] or [K, M], b [K, N] or [N, K], c [M, N] or anything that broadcasts to it, or none; y [M, N].
Types   float32. Every operand may be constant. (A Gemm by a constant matrix without factors is a fully connected layer.)
Source  ONNX operator specification.
"""

import math
from collections.abc import Sequence

import numpy as np

from emitc.ir import Array, BoundNode, DType, Numerics, Op, Shape, Tensor
from emitc.kernels.contract import (
    KernelDef,
    Parsed,
    Variant,
    illegal,
    out_of_proportion,
    parser,
    require_dtypes,
    require_quantization,
    require_rank,
    unsupported,
)
from emitc.kernels.costs import Cost, Costs
from emitc.kernels.mac import four_channels
from emitc.kernels.mac.accumulation import float_factors, output_limits
from emitc.kernels.mac.dsp_int8 import BYTES_HEADER
from emitc.kernels.mac.dsp_int8 import HEADER as DSP_HEADER
from emitc.kernels.mac.four_channels import TOGETHER
from emitc.kernels.mac.mve_int8 import CHANNELS
from emitc.kernels.mac.mve_int8 import HEADERS as MVE_HEADERS
from emitc.kernels.shared.broadcast import BroadcastLoop, common_shape, loop_params, loops_of
from emitc.kernels.shared.pointwise import operand
from emitc.layer import PLAIN, KernelSpec, Layer, Param, Scratch, Table, integers
from emitc.numerics.requantize import Clamp, Int64, requantize_float
from emitc.records import dataclass, replace
from emitc.source import SourceNode

_BATCH_LOOPS = 3
_INT32 = 1 << 31
_QUANTIZED = (DType.INT8, DType.INT16)
_LARGEST_DEPTH = 32767
"""Products of so many bytes, and what their zero points add, stay within int32 in any order."""
_LARGEST_PAIR_DEPTH = 255
"""Bytes of a column whose sum 16 bits hold."""
_FARTHEST = 1 << 13
"""Bytes between values of a column that eight offsets of 16 bits reach."""


@dataclass(frozen=True, slots=True)
class MatMul(Op):
    """Matrix product."""


@dataclass(frozen=True, slots=True)
class Product:
    """Sizes of one matrix product, and the loops over the batch."""

    rows: int
    depth: int
    columns: int
    batch: Shape
    loops: tuple[BroadcastLoop, ...]

    @property
    def macs(self) -> int:
        return math.prod(self.batch) * self.rows * self.depth * self.columns


def _matrices(a: Shape, b: Shape) -> tuple[Shape, Shape]:
    """Both shapes with the dimension that a vector lacks."""
    return (1, *a) if len(a) == 1 else a, (*b, 1) if len(b) == 1 else b


def product_of(a: Shape, b: Shape) -> Product | None:
    """How the product is computed; None where the shapes do not fit each other."""
    if not a or not b:
        return None
    wide_a, wide_b = _matrices(a, b)
    (rows, depth), (b_depth, columns) = wide_a[-2:], wide_b[-2:]
    batch = common_shape([wide_a[:-2], wide_b[:-2]])
    if depth != b_depth or batch is None:
        return None
    matrices = (rows * depth, depth * columns)
    loops = tuple(
        BroadcastLoop(loop.count, tuple(step * size for step, size in zip(loop.steps, matrices, strict=True)))
        for loop in loops_of([wide_a[:-2], wide_b[:-2]], batch)
    )
    return Product(rows, depth, columns, batch, loops)


def require_fitting_matrices(bound: BoundNode, product: Product | None, shapes: str) -> Product:
    """The product; refuses matrices that do not fit each other, and loops over the batch that are too many. shapes: theirs."""
    a, b = bound.input(0), bound.input(1)
    if product is None or 0 in (*a.shape, *b.shape):
        raise illegal(bound, "has matrices that do not fit each other", shapes, tensor=a)
    if len(product.loops) > _BATCH_LOOPS:
        what = f"repeats its inputs along {len(product.loops)} alternating dimensions"
        raise unsupported(bound, what, f"there is code for {_BATCH_LOOPS}", "expand one input first", a)
    return product


def batch_params(product: Product) -> tuple[Param, ...]:
    """The loops over the batch, and the sizes of one product."""
    sizes = {"rows": product.rows, "depth": product.depth, "columns": product.columns}
    return (*loop_params(product.loops, _BATCH_LOOPS), *integers(**sizes))


def float_product(a: Array, b: Array) -> Array:
    """numpy's matmul in double, rounded to float32."""
    with np.errstate(all="ignore"):
        return np.asarray(np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.float32))


def _product(bound: BoundNode) -> Product:
    product = product_of(bound.input(0).shape, bound.input(1).shape)
    assert product is not None
    return product


def check(bound: BoundNode) -> None:
    """Refuses types without code, shapes that do not fit, and what the module's docstring lists."""
    a, b = bound.input(0), bound.input(1)
    quantized = [(s, t, u) for s in _QUANTIZED for t in _QUANTIZED for u in _QUANTIZED]
    if bound.node.op.numerics is Numerics.QOPERATOR:
        quantized = [(DType.INT8,) * 3]
    require_dtypes(bound, [(DType.FLOAT32,) * 3, *quantized], [(t,) * 3 for t in (DType.INT32, DType.INT64)])
    require_fitting_matrices(bound, product_of(a.shape, b.shape), f"{list(a.shape)} and {list(b.shape)}")
    if a.dtype is not DType.FLOAT32:
        _check_quantization(bound)


def _check_quantization(bound: BoundNode) -> None:
    a, b, y = bound.input(0), bound.input(1), bound.output
    require_quantization(bound, a, y)
    if b.quantization is None or not b.quantization.per_tensor:
        q = b.quantization
        fits = q is not None and b.is_constant and q.axis == len(b.shape) - 1 and len(b.shape) >= 2
        if not fits or q is None or len(set(q.zero_points)) > 1:
            what = "has a second operand with scales that are not supported"
            why = "there is code for one scale, or one per column of a constant under one zero point"
            raise unsupported(bound, what, why, "quantize the model again", b)
    factors = float_factors(bound)
    if not 2.0**-100 <= min(factors) <= max(factors) < 2.0**30:
        raise out_of_proportion(bound, f"products are multiplied by {max(factors)!r}")
    if _largest(bound) >= 1 << 62:
        what = f"over {_product(bound).depth} elements"
        raise unsupported(bound, what, "their sum can leave 64 bits", "reduce the depth", a)


def _reach(tensor: Tensor) -> int:
    """Largest magnitude of a value less its zero point."""
    zero_point = tensor.zero_point
    return max(zero_point - tensor.dtype.range[0], tensor.dtype.range[1] - zero_point)


def _largest(bound: BoundNode) -> int:
    """Bound on an accumulator's magnitude."""
    return _product(bound).depth * _reach(bound.input(0)) * _reach(bound.input(1))


def _is_wide(bound: BoundNode) -> bool:
    """Whether an accumulator can leave int32."""
    return _largest(bound) >= _INT32


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """The broadcast batch, then rows and columns as far as the operands are no vectors."""
    a, b, product = bound.input(0).shape, bound.input(1).shape, _product(bound)
    return ((*product.batch, *((product.rows,) if len(a) > 1 else ()), *((product.columns,) if len(b) > 1 else ())),)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """numpy's matmul in double, or of integers."""
    a, b, y = operand(bound, inputs, 0), operand(bound, inputs, 1), bound.output
    if y.dtype is DType.FLOAT32:
        return (float_product(a, b),)
    first, second = bound.input(0), bound.input(1)
    acc: Int64 = np.asarray(np.matmul(a.astype(np.int64) - first.zero_point, b.astype(np.int64) - second.zero_point))
    scaled = requantize_float(acc, np.array(float_factors(bound), np.float32)) + y.zero_point
    return (np.asarray(np.clip(scaled, *y.dtype.range).astype(y.dtype.value).reshape(y.shape)),)


def operand_tables(bound: BoundNode) -> tuple[tuple[int, ...], tuple[Table, ...]]:
    """The operands that are passed, and the constant ones as the tables a and b."""
    operands, tables = [], []
    for position, role in enumerate(("a", "b")):
        tensor = bound.input(position)
        if tensor.is_constant:
            values = tuple(tensor.array().reshape(-1).tolist())
            tables.append(Table(role, tensor.dtype.c_type, values, f"constant operand {list(tensor.shape)}"))
        else:
            operands.append(position)
    return tuple(operands), tuple(tables)


def lower(bound: BoundNode) -> Layer:
    """Loops over the batch round one product, four columns at a time."""
    a, b, y, product = bound.input(0), bound.input(1), bound.output, _product(bound)
    operands, tables = operand_tables(bound)
    params = batch_params(product)
    macs = y.elements * product.depth
    types = "_".join(tensor.dtype.value for tensor in (a, b, y))
    if y.dtype is DType.FLOAT32:
        return Layer("matrix/matmul_float", "portable", operands, tables, params, macs=macs)
    wide = "_wide" if _is_wide(bound) else ""
    spec = KernelSpec(f"{wide}_{types}", fixed_point=False, x=a.dtype.c_type, w=b.dtype.c_type, y=y.dtype.c_type)
    factors = float_factors(bound)
    tables = (*tables, Table("factor", "float", factors, "a_scale * b_scale / y_scale, per column or for all"))
    params += (
        Param("a_offset", "int32_t", -a.zero_point, "minus the zero point"),
        Param("b_offset", "int32_t", -b.zero_point),
        Param("per_channel", "int32_t", int(len(factors) > 1), "1: each output channel has its own factor"),
        *output_limits(bound, Clamp(*y.dtype.range)),
    )
    return Layer("matrix/matmul", "portable", operands, tables, params, macs=macs, spec=spec)


def _by_columns(bound: BoundNode, variant: str, depth: int, headers: tuple[str, ...], sums: int = 0) -> Layer | str:
    """A layer that arranges b's columns in its scratch; or why there is none.

    depth: the largest that it has code for. sums: numbers that it keeps for each column, in addition to one.
    """
    layer, product = lower(bound), _product(bound)
    of_bytes = {layer.spec.x, layer.spec.w, layer.spec.y} == {"int8_t"}
    if layer.template != "matrix/matmul" or not of_bytes or _is_wide(bound):
        return f"{layer.kernel_name}{layer.spec.suffix} has a portable version only"
    if product.rows == 1:
        return "it has a single row, which is multiplied by each column once"
    if product.depth > depth:
        return f"sums of more than {depth} products"
    columns = -(-product.columns // CHANNELS) * CHANNELS
    return replace(
        layer,
        tables=tuple(_in_fours(table) if table.role == "factor" else table for table in layer.tables),
        template=f"matrix/matmul_{variant}",
        scratch=(Scratch("columns", columns * (4 + product.depth + 4 * sums)),),
        headers=headers,
        spec=PLAIN,
        larger=True,
    )


def _in_fours(table: Table) -> Table:
    """Factors in groups of four: one for all repeated, or the last one, which is read together with those of the last columns."""
    missing = CHANNELS - 1 if len(table.values) == 1 else -len(table.values) % CHANNELS
    return replace(table, values=(*map(float, table.values), *(float(table.values[-1]),) * missing))


def lower_mve(bound: BoundNode) -> Layer | str:
    """Two rows and four columns at a time, sixteen values of each."""
    if _product(bound).columns >= _FARTHEST:
        return "the values of a column are far from each other in memory"
    return _by_columns(bound, "mve", _LARGEST_DEPTH, MVE_HEADERS, sums=2)


def lower_dsp(bound: BoundNode) -> Layer | str:
    """Four columns at a time, pairs of the values of each."""
    return _by_columns(bound, "dsp", _LARGEST_PAIR_DEPTH, (DSP_HEADER, BYTES_HEADER))


def float_fours(layer: Layer) -> Layer | str:
    """The portable layer of a product in float32, where a and b lie row by row, for two rows and four columns at a time; or why
    there is none.
    """
    sizes = {param.name: param.value for param in layer.params}
    if sizes["rows"] == 1:
        return "it has a single row, and the kernel computes two at a time"
    return layer if sizes["columns"] >= TOGETHER else "there is code for four columns"


FLOAT_UNIT_COST = Costs("qemu_m4 at c48a009, 2026-11-23", Cost(mac=2.9, output=4))
FLOAT_VECTORS_COST = Costs("qemu_m55 at c48a009, 2026-11-23", Cost(mac=1.3, output=1))
"""Of two computed matrices of float32."""


_ADDEND = 2


@dataclass(frozen=True, slots=True)
class Gemm(Op):
    """turn_a, turn_b: the operand is transposed."""

    alpha: float
    beta: float
    turn_a: bool
    turn_b: bool


def _gemm_from_onnx(node: SourceNode) -> Parsed:
    node.counts((2, 3))
    op = Gemm(
        node.real("alpha", 1.0),
        node.real("beta", 1.0),
        bool(node.integer("transA", 0)),
        bool(node.integer("transB", 0)),
    )
    return Parsed(op, (0, 1, _ADDEND))


def _sizes(bound: BoundNode) -> tuple[int, int, int, int]:
    """Rows, depth as a has it, depth as b has it, columns."""
    op, a, b = bound.op(Gemm), bound.input(0).shape, bound.input(1).shape
    rows, depth = a[::-1] if op.turn_a else a
    b_depth, columns = b[::-1] if op.turn_b else b
    return rows, depth, b_depth, columns


def _check_gemm(bound: BoundNode) -> None:
    """Refuses other types than float32, and shapes that do not fit each other."""
    a, b, c = bound.input(0), bound.input(1), bound.optional(_ADDEND)
    require_dtypes(bound, [(DType.FLOAT32,) * (4 if c else 3)])
    for tensor in (a, b):
        require_rank(bound, tensor, 2)
    rows, depth, b_depth, columns = _sizes(bound)
    fits = c is None or (len(c.shape) <= 2 and common_shape([c.shape, (rows, columns)]) == (rows, columns))
    if depth != b_depth or 0 in (rows, depth, columns) or not fits:
        what = "has matrices that do not fit each other"
        why = f"{list(a.shape)} and {list(b.shape)}" + (f", plus {list(c.shape)}" if c else "")
        raise illegal(bound, what, why, tensor=a)


def _gemm_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """[M, N]."""
    rows, _, _, columns = _sizes(bound)
    return ((rows, columns),)


def _gemm_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """In double, rounded to float32."""
    op = bound.op(Gemm)
    left, right = (operand(bound, inputs, i).astype(np.float64) for i in (0, 1))
    product = (left.T if op.turn_a else left) @ (right.T if op.turn_b else right)
    c = bound.optional(_ADDEND)
    addend = np.zeros(()) if c is None else operand(bound, inputs, _ADDEND).astype(np.float64)
    with np.errstate(all="ignore"):
        return (np.asarray((op.alpha * product + op.beta * addend).astype(np.float32)),)


def _lower_gemm(bound: BoundNode) -> Layer:
    """One product, four columns at a time; the strides of each operand say how it lies."""
    op, a, b, c = bound.op(Gemm), bound.input(0), bound.input(1), bound.optional(_ADDEND)
    rows, depth, _, columns = _sizes(bound)
    operands, tables = operand_tables(bound)
    c_row = c_column = 0
    if c is not None:
        wide = (1,) * (2 - len(c.shape)) + c.shape
        c_row, c_column = (wide[1] if wide[0] > 1 else 0), int(wide[1] > 1)
        if c.is_constant:
            values = tuple(c.array().reshape(-1).tolist())
            tables = (*tables, Table("c", "float", values, f"addend {list(c.shape)}"))
        else:
            operands = (*operands, _ADDEND)
    params = (
        *integers(rows=rows, depth=depth, columns=columns),
        Param("a_row", "int32_t", 1 if op.turn_a else a.shape[1], "elements from row to row of the product"),
        Param("a_step", "int32_t", a.shape[1] if op.turn_a else 1, "and from factor to factor"),
        *integers(b_column=b.shape[1] if op.turn_b else 1, b_step=1 if op.turn_b else b.shape[1]),
        Param("c_row", "int32_t", c_row, "0: the addend is repeated"),
        Param("c_column", "int32_t", c_column),
        Param("alpha", "float", op.alpha),
        Param("beta", "float", op.beta),
        Param("has_addend", "int32_t", int(c is not None)),
    )
    return Layer("matrix/gemm", "portable", operands, tables, params, macs=rows * depth * columns)


KERNELS = (
    KernelDef(
        MatMul,
        "matrix product, batched",
        (DType.FLOAT32, DType.INT8, DType.INT16),
        check=check,
        reference=reference,
        lower=lower,
        output_shapes=output_shapes,
        work=lambda bound: _product(bound).macs,
        onnx={"MatMul": parser(MatMul(), inputs=2)},
        variants=(
            *four_channels.float_variants(lambda bound: float_fours(lower(bound)), FLOAT_UNIT_COST, FLOAT_VECTORS_COST),
            Variant(
                "mve", "mve", lower_mve, Costs("qemu_m55 at 6cf2ebc, 2026-11-22", Cost(mac=0.2, output=7, once=150))
            ),
            Variant(
                "dsp", "dsp", lower_dsp, Costs("qemu_m4 at 6cf2ebc, 2026-11-22", Cost(mac=1.6, output=13, once=150))
            ),
        ),
        cost=Costs(
            "qemu_m4 at 6cf2ebc c48a009, 2026-11-23", Cost(mac=6.3, output=11), {"float32": Cost(mac=4.6, output=4)}
        ),
        cost_with_vectors=Costs(
            "qemu_m55 at 6cf2ebc c48a009, 2026-11-23", Cost(mac=6.3, output=11), {"float32": Cost(mac=2.05, output=3)}
        ),
    ),
    KernelDef(
        Gemm,
        "matrix product with factors and an addend",
        (DType.FLOAT32,),
        check=_check_gemm,
        reference=_gemm_reference,
        lower=_lower_gemm,
        output_shapes=_gemm_shapes,
        work=lambda bound: _lower_gemm(bound).macs,
        onnx={"Gemm": _gemm_from_onnx},
    ),
)

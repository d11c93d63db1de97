"""Gemm of ONNX: y = alpha * a' * b' + beta * c, where a' and b' are transposed or not, and c is repeated to fit.

Shapes  a [M, K] or [K, M], b [K, N] or [N, K], c [M, N] or anything that broadcasts to it, or none; y [M, N].
Types   float32. Every operand may be constant. (A Gemm by a constant matrix without factors is a fully connected layer.)
Source  ONNX operator specification.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op, Shape
from emitc.kernels.contract import KernelDef, Parsed, illegal, require_dtypes, require_rank
from emitc.kernels.matrix.matmul import operand_tables
from emitc.kernels.shared.broadcast import common_shape
from emitc.kernels.shared.pointwise import operand
from emitc.layer import Layer, Param, Table
from emitc.source import SourceNode

_ADDEND = 2


@dataclass(frozen=True, slots=True)
class Gemm(Op):
    """turn_a, turn_b: the operand is transposed."""

    alpha: float
    beta: float
    turn_a: bool
    turn_b: bool


def from_onnx(node: SourceNode) -> Parsed:
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


def check(bound: BoundNode) -> None:
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


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """[M, N]."""
    rows, _, _, columns = _sizes(bound)
    return ((rows, columns),)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """In double, rounded to float32."""
    op = bound.op(Gemm)
    left, right = (operand(bound, inputs, i).astype(np.float64) for i in (0, 1))
    product = (left.T if op.turn_a else left) @ (right.T if op.turn_b else right)
    c = bound.optional(_ADDEND)
    addend = np.zeros(()) if c is None else operand(bound, inputs, _ADDEND).astype(np.float64)
    with np.errstate(all="ignore"):
        return (np.asarray((op.alpha * product + op.beta * addend).astype(np.float32)),)


def lower(bound: BoundNode) -> Layer:
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
        Param("rows", "int32_t", rows),
        Param("depth", "int32_t", depth),
        Param("columns", "int32_t", columns),
        Param("a_row", "int32_t", 1 if op.turn_a else a.shape[1], "elements from row to row of the product"),
        Param("a_step", "int32_t", a.shape[1] if op.turn_a else 1, "and from factor to factor"),
        Param("b_column", "int32_t", b.shape[1] if op.turn_b else 1),
        Param("b_step", "int32_t", 1 if op.turn_b else b.shape[1]),
        Param("c_row", "int32_t", c_row, "0: the addend is repeated"),
        Param("c_column", "int32_t", c_column),
        Param("alpha", "float", op.alpha),
        Param("beta", "float", op.beta),
        Param("has_addend", "int32_t", int(c is not None)),
    )
    return Layer("matrix/gemm", "portable", operands, tables, params, macs=rows * depth * columns)


def work(bound: BoundNode) -> int:
    rows, depth, _, columns = _sizes(bound)
    return rows * depth * columns


KERNELS = (
    KernelDef(
        Gemm,
        "matrix product with factors and an addend",
        (DType.FLOAT32,),
        check=check,
        reference=reference,
        lower=lower,
        output_shapes=output_shapes,
        work=work,
        onnx={"Gemm": from_onnx},
    ),
)

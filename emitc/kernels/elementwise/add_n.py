"""ADD_N: the sum of two tensors or more of one shape.

Shapes  any, all the same.
Types   float32, added from the first to the last onto a 0. int8, inputs of one scale and zero point:
        y = y_zero + rq(acc * 2**19), acc = sum(x - x_zero) - x_zero, with the factor 2 * x_scale / (2**20 * y_scale). The one
        zero point too many is TFLite Micro's; so is that acc * 2**19 wraps to 32 bits where a sum reaches 4096 steps.
Source  TFLite Micro's kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op
from emitc.kernels.contract import KernelDef, Parsed, illegal, require_dtypes, require_same_quantization
from emitc.kernels.shared.pointwise import in_place, operand, plain_numerics
from emitc.kernels.shared.scaled_sum import check_sum, rescaled, sum_params
from emitc.layer import ByRows, KernelSpec, Layer, Param
from emitc.numerics.requantize import Int64
from emitc.source import SourceNode

_TYPES = (DType.INT8, DType.FLOAT32)
_MAX_OPERANDS = 64


class AddN(Op):
    """Sum of all operands."""

    __slots__ = ()


def from_tflite(node: SourceNode) -> Parsed:
    """Any number of operands."""
    node.counts((2, _MAX_OPERANDS))
    for position in range(len(node.inputs)):
        node.input(position)
    return Parsed(AddN(numerics=plain_numerics(node)), tuple(range(len(node.inputs))))


def check(bound: BoundNode) -> None:
    """Refuses other types, operands of different shapes or scales, and scales out of proportion."""
    count, first = len(bound.inputs), bound.input(0)
    require_dtypes(bound, [(t,) * (count + 1) for t in _TYPES])
    for position in range(count):
        tensor = bound.input(position)
        if tensor.shape != first.shape:
            raise illegal(
                bound,
                f"{bound.node.op_type} has operands of different shapes",
                f"{list(first.shape)} and {list(tensor.shape)}",
                tensor=tensor,
            )
        if first.dtype is DType.INT8:
            require_same_quantization(bound, first, tensor)
    if first.dtype is DType.INT8:
        check_sum(bound)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """One addition after the other."""
    values = [operand(bound, inputs, position) for position in range(len(bound.inputs))]
    if bound.output.dtype is DType.FLOAT32:
        total = np.zeros(bound.output.shape, np.float32)
        with np.errstate(all="ignore"):
            for value in values:
                total = total + value.astype(np.float32)
        return (total,)
    zero = bound.input(0)
    acc: Int64 = np.stack([value.astype(np.int64) for value in values]).sum(axis=0)
    return (rescaled(bound, acc - (len(values) + 1) * zero.zero_point),)


def lower(bound: BoundNode) -> Layer:
    """One loop that reads all operands; the output may lie over any."""
    count = len(bound.inputs)
    operands = tuple(range(count))
    params: tuple[Param, ...] = (
        Param("count", "int32_t", bound.output.elements),
        Param("operands", "int32_t", count),
    )
    computed = tuple(i for i in operands if not bound.input(i).is_constant)
    overlaps = in_place(bound, computed)
    by_rows = ByRows(counted="count") if len(computed) == count else None
    if bound.output.dtype is DType.FLOAT32:
        spec = KernelSpec(x="float", y="float")
        return Layer(
            "elementwise/add_n_float",
            "portable",
            operands,
            params=params,
            overlaps=overlaps,
            spec=spec,
            by_rows=by_rows,
        )
    quantization = bound.input(0)
    start = -(count + 1) * quantization.zero_point
    params = (*params, Param("start", "int32_t", start, "minus the zero points"), *sum_params(bound))
    return Layer("elementwise/add_n", "portable", operands, params=params, overlaps=overlaps, by_rows=by_rows)


def work(bound: BoundNode) -> int:
    """Additions."""
    return bound.output.elements * len(bound.inputs)


KERNELS = (
    KernelDef(
        AddN, "sum of tensors of one shape", _TYPES, ("ADD_N",), from_tflite, check, reference, lower,
        work=work, elementwise=True,
    ),
)  # fmt: skip

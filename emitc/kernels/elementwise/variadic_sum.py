"""ADD_N of TFLite, and Sum and Mean of ONNX: of any number of tensors, element by element.

ADD_N   operands of one shape. float32, added from the first to the last onto a 0. int8, inputs of one scale and zero
        point: y = y_zero + rq(acc * 2**19), acc = sum(x - x_zero) - x_zero, with the factor
        2 * x_scale / (2**20 * y_scale). The one zero point too many is TFLite Micro's; so is that acc * 2**19 wraps to
        32 bits where a sum reaches 4096 steps. Source  TFLite Micro's kernel.
ONNX    one to 64 operands of float32 that broadcast (numpy's rule), y the broadcast shape. (A sum along an axis is a
        ReduceSum.) They are added from the first to the last; Mean multiplies the sum by float32(1 / n), as does ONNX
        Runtime.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op
from emitc.kernels.contract import KernelDef, Parsed, illegal, require_dtypes, require_same_quantization
from emitc.kernels.shared.broadcast import any_operands, fold_layer, output_shapes, require_broadcast, same_types
from emitc.kernels.shared.pointwise import in_place, operand, plain_numerics, require_types
from emitc.kernels.shared.sums import check_sum, rescaled, sum_params
from emitc.layer import PLAIN, ByRows, Formula, KernelSpec, Layer, Param, integers
from emitc.numerics.requantize import Float32, Int64
from emitc.source import SourceNode

_TYPES = (DType.INT8, DType.FLOAT32)
_MAX_OPERANDS = 64


class AddN(Op):
    """Sum of all operands."""


@dataclass(frozen=True, slots=True)
class VariadicSum(Op):
    """mean: whether the sum is divided by the number of operands."""

    mean: bool


def from_tflite(node: SourceNode) -> Parsed:
    node.counts((2, _MAX_OPERANDS))
    for position in range(len(node.inputs)):
        node.input(position)
    return Parsed(AddN(numerics=plain_numerics(node)), tuple(range(len(node.inputs))))


def from_onnx(node: SourceNode) -> Parsed:
    return any_operands(VariadicSum(node.kind == "Mean"), node)


def check_same_shape(bound: BoundNode) -> None:
    """Refuses other types, operands of different shapes or scales, and scales out of proportion."""
    count, first = len(bound.inputs), bound.input(0)
    require_dtypes(bound, [(t,) * (count + 1) for t in _TYPES])
    for position in range(count):
        tensor = bound.input(position)
        if tensor.shape != first.shape:
            why = f"{list(first.shape)} and {list(tensor.shape)}"
            raise illegal(bound, "has operands of different shapes", why, tensor=tensor)
        if first.dtype is DType.INT8:
            require_same_quantization(bound, first, tensor)
    if first.dtype is DType.INT8:
        check_sum(bound)


def check(bound: BoundNode) -> None:
    """Refuses other types than float32, and shapes that do not fit each other."""
    require_types(bound, same_types((DType.FLOAT32,), len(bound.inputs)), "float32")
    require_broadcast(bound)


def _factor(bound: BoundNode) -> np.float32:
    return np.float32(1 / len(bound.inputs))


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """One addition after the other, in float32 or of integers; ADD_N starts from 0."""
    values = [operand(bound, inputs, position) for position in range(len(bound.inputs))]
    if bound.output.dtype is DType.INT8:
        acc: Int64 = np.stack([value.astype(np.int64) for value in values]).sum(axis=0)
        return (rescaled(bound, acc - (len(values) + 1) * bound.input(0).zero_point),)
    op = bound.node.op
    first = np.zeros((), np.float32) if isinstance(op, AddN) else np.asarray(values.pop(0), np.float32)
    with np.errstate(all="ignore"):
        total: Float32 = sum((np.asarray(value, np.float32) for value in values), first)
        mean = isinstance(op, VariadicSum) and op.mean
        return (np.asarray(total * _factor(bound) if mean else total, np.float32),)


def lower_same_shape(bound: BoundNode) -> Layer:
    """One loop that reads all operands; the output may lie over any."""
    operands = tuple(range(len(bound.inputs)))
    params: tuple[Param, ...] = integers(count=bound.output.elements, operands=len(operands))
    template, spec = "elementwise/add_n_float", KernelSpec(x="float", y="float")
    if bound.output.dtype is DType.INT8:
        template, spec = "elementwise/add_n", PLAIN
        start = -(len(operands) + 1) * bound.input(0).zero_point
        params = (*params, Param("start", "int32_t", start, "minus the zero points"), *sum_params(bound))
    computed = tuple(i for i in operands if not bound.input(i).is_constant)
    by_rows = ByRows(counted="count") if computed == operands else None
    overlaps = in_place(bound, computed)
    return Layer(template, "portable", operands, params=params, overlaps=overlaps, spec=spec, by_rows=by_rows)


def lower(bound: BoundNode) -> Layer:
    """Two by two, and one more pass for the factor."""
    if not bound.op(VariadicSum).mean:
        return fold_layer(bound, Formula("sum", "va + vb", "a + b"))
    count = Param("count", "int32_t", bound.output.elements)
    factor = Param("factor", "float", float(_factor(bound)), "one over the operands")
    return fold_layer(bound, "elementwise/mean_of", (count, factor))


KERNELS = (
    KernelDef(
        AddN, "sum of tensors of one shape", _TYPES, ("ADD_N",), from_tflite, check_same_shape, reference,
        lower_same_shape, work=lambda bound: bound.output.elements * len(bound.inputs), elementwise=True,
    ),
    KernelDef(
        VariadicSum, "sum or mean of tensors, broadcasting", (DType.FLOAT32,), (), None, check, reference, lower,
        output_shapes=output_shapes, onnx=("Sum", "Mean"), from_onnx=from_onnx, elementwise=True,
    ),
)  # fmt: skip

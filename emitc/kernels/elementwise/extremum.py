"""MINIMUM and MAXIMUM of two quantized tensors, Min and Max of any number of tensors, with broadcasting.

Shapes  a, b any that broadcast (numpy's rule), y the broadcast shape.
Types   int8 and int16; all three tensors share scale and zero point, so that quantized values are compared as they are.
        float32, int32 and int64 as they are; of two values of which neither is greater, as of a NaN and a number, b.
ONNX    one to 64 operands, of any one numeric type; a NaN wins. Of two zeros the later one (ONNX Runtime's choice).
"""

from collections.abc import Sequence

import numpy as np

from emitc.ir import Array, BoundNode, DType, Numerics, Op
from emitc.kernels.contract import KernelDef, require_same_quantization
from emitc.kernels.elementwise.quantized_operands import table_layer
from emitc.kernels.shared import broadcast
from emitc.kernels.shared.pointwise import (
    FLOATS,
    SIGNED,
    UNSIGNED,
    operand,
    parser_of,
    require_one_meaning,
    require_types,
)
from emitc.layer import Formula, Layer, Param

_TFLITE_PLAIN = (DType.FLOAT32, DType.INT32, DType.INT64)


class Minimum(Op):
    """The smaller of both values."""


class Maximum(Op):
    """The larger of both values."""


def check(bound: BoundNode) -> None:
    """Refuses what check_binary does, and tensors that do not share scale and zero point."""
    if bound.node.op.numerics.float_scale:
        numeric = _TFLITE_PLAIN if bound.node.op.numerics is Numerics.PLAIN else (*FLOATS, *SIGNED, *UNSIGNED)
        require_types(bound, broadcast.same_types(numeric, len(bound.inputs)), "one numeric type throughout")
        broadcast.require_broadcast(bound)
        require_one_meaning(bound, *(bound.input(i) for i in range(len(bound.inputs))), bound.output)
        return
    broadcast.check_binary(bound)
    require_same_quantization(bound, bound.input(0), bound.output)
    require_same_quantization(bound, bound.input(1), bound.output)


def _function(bound: BoundNode) -> np.ufunc:
    return np.minimum if isinstance(bound.node.op, Minimum) else np.maximum


def _folded(bound: BoundNode, inputs: Sequence[Array | None]) -> Array:
    """The operands compared one after the other; a NaN wins, and of equal values the later one."""
    smaller = isinstance(bound.node.op, Minimum)
    result = operand(bound, inputs, 0)
    for position in range(1, len(bound.inputs)):
        other = operand(bound, inputs, position)
        stays = (result < other) if smaller else (result > other)  # type: ignore[operator]
        wins = stays if bound.node.op.numerics is Numerics.PLAIN else stays | (result != result)
        result = np.where(wins, result, other)
    return result


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """numpy's minimum or maximum of two quantized operands; of others each operand in turn."""
    if bound.node.op.numerics.float_scale:
        return (_folded(bound, inputs),)
    return (np.asarray(_function(bound)(operand(bound, inputs, 0), operand(bound, inputs, 1))),)


_FORMULAS = {
    (False, False): Formula("maximum", "va > vb ? va : vb", "the larger of a and b"),
    (False, True): Formula("maximum_real", "va > vb || va != va ? va : vb", "the larger of a and b; a NaN wins"),
    (True, False): Formula("minimum", "va < vb ? va : vb", "the smaller of a and b"),
    (True, True): Formula("minimum_real", "va < vb || va != va ? va : vb", "the smaller of a and b; a NaN wins"),
}
"""By whether it is the smaller one, and whether a NaN wins."""


def lower(bound: BoundNode) -> Layer:
    """A table where one input decides and the tensor is no smaller than the table; else a loop over both operands."""
    if bound.node.op.numerics.float_scale:
        nan_wins = bound.output.dtype in FLOATS and bound.node.op.numerics is not Numerics.PLAIN
        return broadcast.fold_layer(bound, _FORMULAS[isinstance(bound.node.op, Minimum), nan_wins])
    flip = Param("flip", "int32_t", -isinstance(bound.node.op, Minimum), "0: maximum, -1: minimum")
    return table_layer(bound, _function(bound)) or broadcast.binary_layer(bound, "elementwise/extremum", (flip,))


def _kernel(op: type[Op], name: str, summary: str, onnx: str) -> KernelDef:
    dtypes = (DType.INT8, *SIGNED[1:], *UNSIGNED, *FLOATS)
    return KernelDef(
        op, summary, dtypes, (name,), parser_of(op, 2), check, reference, lower, output_shapes=broadcast.output_shapes,
        onnx=(onnx,), from_onnx=lambda node: broadcast.any_operands(op(), node), elementwise=True,
        tflite_dtypes=(DType.INT8, DType.UINT8, DType.INT16, *_TFLITE_PLAIN),
    )  # fmt: skip


KERNELS = (
    _kernel(Minimum, "MINIMUM", "elementwise minimum, broadcasting", "Min"),
    _kernel(Maximum, "MAXIMUM", "elementwise maximum, broadcasting", "Max"),
)

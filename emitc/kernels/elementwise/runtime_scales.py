"""QLinearAdd and QLinearMul whose scales or zero points are only known at run time: the arithmetic of `onnx_arithmetic.py`.

Shapes  a, b any that broadcast (numpy's rule), y the broadcast shape; scales and zero points of one value each.
Types   a, b, y and their zero points int8 or uint8, all alike; scales float32. Any of them may be computed or constant.
With ra = a_scale / y_scale and rb = b_scale / y_scale in float32, and fma rounding once:
QLinearAdd  rint(fma(a, ra, fma(b, rb, y_zero - fma(a_zero, ra, rb * b_zero)))); the operands change places as there.
QLinearMul  rint((a - a_zero) * (b - b_zero) * (a_scale * b_scale / y_scale) + y_zero), each step in float32.
rint to nearest, ties to even; results are limited to the type, those of 2**31 and more too, as by ONNX Runtime on Arm; on x86 it
makes the smallest value of these. What is not a number, as scales of 0 make it, becomes the type's smallest value.
Source      as in `onnx_arithmetic.py`, where scales are constant.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op
from emitc.kernels.contract import KernelDef, Parsed, Variant, unsupported
from emitc.kernels.costs import UNKNOWN, UNKNOWN_PAIRS, UNKNOWN_VECTORS, Cost, Costs
from emitc.kernels.elementwise.onnx_arithmetic import fused, operands_change_places
from emitc.kernels.shared.broadcast import output_shapes, require_broadcast, walk_params
from emitc.kernels.shared.pointwise import in_place, operand, require_types, typed
from emitc.layer import Layer, Param, integers
from emitc.records import dataclass, replace
from emitc.source import SourceNode

A, B, A_SCALE, A_ZERO, B_SCALE, B_ZERO, Y_SCALE, Y_ZERO = range(8)
"""Operands; in the file the scale and zero point of each value follow it."""
_BYTES = (DType.INT8, DType.UINT8)


@dataclass(frozen=True, slots=True)
class ByScales(Op):
    """exchanged: QLinearAdd takes b first."""

    exchanged: bool = False


class AddByScales(ByScales):
    """a + b."""


class MulByScales(ByScales):
    """a * b."""


def _from_onnx(op: type[ByScales], node: SourceNode) -> Parsed:
    node.counts((8, 8))
    exchanged = op is AddByScales and operands_change_places(node.input(0).shape, node.input(3).shape)
    return Parsed(op(exchanged), (0, 3, 1, 2, 4, 5, 6, 7))


def _values(bound: BoundNode) -> BoundNode:
    """The operator with a and b alone, which is what is broadcast."""
    return replace(bound, inputs=bound.inputs[:2])


def check(bound: BoundNode) -> None:
    """Refuses other types, scales per slice, and shapes that do not fit each other."""
    require_broadcast(_values(bound))
    for position in range(A_SCALE, Y_ZERO + 1):
        tensor = bound.input(position)
        if tensor.elements != 1:
            what = f"with {tensor.elements} scales or zero points is not supported"
            hint = "quantize the model with one scale for each tensor"
            raise unsupported(bound, what, "there is one for each tensor", hint, tensor)
    supported = [(t, t, DType.FLOAT32, t, DType.FLOAT32, t, DType.FLOAT32, t, t) for t in _BYTES]
    require_types(bound, supported, "int8 or uint8, all values and zero points alike, with float32 scales")


def _order(bound: BoundNode) -> tuple[int, ...]:
    """The operands as the arithmetic takes them: both values, scale and zero point of each, and those of the output."""
    if bound.op(ByScales).exchanged:
        return (B, A, B_SCALE, B_ZERO, A_SCALE, A_ZERO, Y_SCALE, Y_ZERO)
    return (A, B, A_SCALE, A_ZERO, B_SCALE, B_ZERO, Y_SCALE, Y_ZERO)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """numpy's broadcasting over the float32 arithmetic."""
    first, second, *others = (operand(bound, inputs, position) for position in _order(bound))
    outer, inner = first.astype(np.float32), second.astype(np.float32)
    outer_scale, outer_zero, inner_scale, inner_zero, scale, zero = (
        np.float32(np.asarray(value, np.float32).reshape(-1)[0]) for value in others
    )
    low, high = bound.output.dtype.range
    with np.errstate(all="ignore"):
        if isinstance(bound.node.op, AddByScales):
            outer_factor, inner_factor = outer_scale / scale, inner_scale / scale
            constant = zero - np.float32(fused(outer_zero, outer_factor, inner_factor * inner_zero))
            real = fused(outer, outer_factor, fused(inner, inner_factor, constant))
        else:
            real = (outer - outer_zero) * (inner - inner_zero) * (outer_scale * inner_scale / scale) + zero
    whole = np.rint(np.clip(np.nan_to_num(real.astype(np.float64), nan=low, posinf=high, neginf=low), low, high))
    return (whole.astype(bound.output.dtype.value).reshape(bound.output.shape),)


def lower(bound: BoundNode) -> Layer:
    """The factors are computed once, then a loop over both operands."""
    order = _order(bound)
    low, high = bound.output.dtype.range
    limits = (
        Param("lowest", "float", float(low)),
        Param("highest", "float", float(high)),
        Param("output_offset", "int32_t", 0),
    )
    walk = walk_params([bound.input(i).shape for i in order[:2]], bound.output.shape)
    added, product = "elementwise/quantized_sum/sum_by_scales", "elementwise/quantized_product/product_by_scales"
    template = added if isinstance(bound.node.op, AddByScales) else product
    spec = typed(bound.output.dtype, bound.output.dtype)
    return Layer(template, "portable", order, params=(*limits, *walk), overlaps=in_place(bound, (A, B)), spec=spec)


def _sum_fpu(bound: BoundNode) -> Layer | str:
    """The sum by a float unit's fused multiply-adds; as on every core where a factor is much larger or not a number."""
    layer = lower(bound)
    if not isinstance(bound.node.op, AddByScales):
        return "a product would take as many instructions"
    low, high = bound.output.dtype.range
    limits = integers(lowest=low, highest=high)
    walk = tuple(param for param in layer.params if param.name not in ("lowest", "highest", "output_offset"))
    return replace(layer, template=f"{layer.template}_fpu", params=(*limits, *walk), headers=("emitc_fpu.h",))


def _by_vectors(bound: BoundNode) -> Layer | str:
    """Four values at a time where no operand is repeated."""
    if bound.input(A).shape != bound.output.shape or bound.input(B).shape != bound.output.shape:
        return "an operand is repeated"
    layer = lower(bound)
    limits = tuple(param for param in layer.params if param.name in ("lowest", "highest"))
    headers = {"emitc_mve.h", "emitc_mve_float32.h"}
    if isinstance(bound.node.op, AddByScales):
        headers.add("emitc_fpu.h")
    if bound.output.dtype is DType.UINT8:
        headers |= {"emitc_bits.h", "emitc_mve_uint32.h"}
    params = (*limits, Param("count", "int32_t", bound.output.elements))
    return replace(layer, template=f"{layer.template}_mve", params=params, headers=tuple(sorted(headers)))


def _kernel(op: type[ByScales], summary: str, cost_with_vectors: Costs = UNKNOWN) -> KernelDef:
    return KernelDef(
        op,
        summary,
        _BYTES,
        check=check,
        reference=reference,
        lower=lower,
        output_shapes=lambda bound: output_shapes(_values(bound)),
        onnx={op.__name__: partial(_from_onnx, op)},
        cost_with_vectors=cost_with_vectors,
        variants=(
            Variant("fpu", "fpu", _sum_fpu, UNKNOWN_PAIRS, _BYTES),
            Variant("mve", "mve", _by_vectors, UNKNOWN_VECTORS, _BYTES),
        ),
    )


KERNELS = (
    _kernel(AddByScales, "QLinearAdd with computed scales", Costs("qemu_m55 at 34b2364, 2026-11-22", Cost(mac=3.9))),
    _kernel(MulByScales, "QLinearMul with computed scales"),
)

"""CONCATENATION, and ONNX's Concat and QLinearConcat: tensors one after the other along an axis.

Shapes  x_i equal except for dimension `axis`, y with the sum of them there.   Types  any. TFLite demands of int8 that every
input has the scale and zero point of the output; ONNX's Concat moves integers whatever they stand for.
QLinearConcat, and Concat of dequantized values: an input of another scale or zero point than the output's goes through a table
of 256 results. They are y_zero + rint(float32((x - x_zero) * x_scale) / y_scale), half to even, limited to int8. Of legacy
uint8 models: y_zero + round(x * s + (-x_zero * s)), s = x_scale * (1 / y_scale), on the bytes of the model, half away from
zero, each operation in float32.
Source  ONNX Runtime's QLinearConcat: 0 of 153600 results differ; with the ratio of the scales as factor 495 do. LiteRT's
        reference kernel for uint8.
Errors  a fused activation, which TFLite Micro refuses too; int16 of different scales.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from emitc.ir import Array, BoundNode, DType, Numerics, Op, Quantization, Shape, Tensor
from emitc.kernels.contract import KernelDef, Parsed, illegal, require_quantization, unsupported
from emitc.kernels.shared.joined_rows import axis_of, check_parts, join_layer, require_few, variants
from emitc.kernels.shared.pointwise import dequantized, quantized
from emitc.layer import Layer
from emitc.source import SourceNode

_LIFT = 128


@dataclass(frozen=True, slots=True)
class Concatenation(Op):
    """axis: the dimension along which the inputs follow one another, from the front. rescales: whether real values are kept
    where an input has another quantization than the output (QLinearConcat), not the integers.
    """

    axis: int
    rescales: bool = False


def _from_tflite(node: SourceNode) -> Parsed:
    node.counts((1, max(1, len(node.inputs))))
    node.text("fused_activation_function", ("NONE",))
    return Parsed(Concatenation(_axis(node, 0)), tuple(range(len(node.inputs))))


def _from_onnx(node: SourceNode) -> Parsed:
    """Concat and QLinearConcat; the axis was optional up to version 3."""
    node.counts((1, max(1, len(node.inputs))))
    axis = _axis(node, 1 if node.integer("opset", 4) < 4 else None)
    return Parsed(Concatenation(axis, node.op_type == "QLinearConcat"), tuple(range(len(node.inputs))))


def _axis(node: SourceNode, default: int | None) -> int:
    """The attribute `axis`, from the front. Raises EmitcError where an input is left out."""
    ranks = [len(node.input(i).shape) for i in range(len(node.inputs))]
    return axis_of(node, node.integer("axis", default), ranks[0])


def _keeps_values(bound: BoundNode) -> bool:
    """Whether the integers change where the quantization does."""
    return bound.op(Concatenation).rescales or bound.node.op.numerics in (Numerics.QDQ, Numerics.UNSIGNED)


def _check(bound: BoundNode) -> None:
    """Refuses a change of type, and of scale or zero point where it does not come from ONNX."""
    y = bound.output
    _require_fitting(bound)
    if _keeps_values(bound) and y.dtype is DType.INT8:
        _check_rescaled(bound)
        return
    check_parts(bound, len(bound.inputs))


def _require_fitting(bound: BoundNode) -> None:
    """Refuses inputs that differ in another dimension than the axis."""
    axis, first = bound.op(Concatenation).axis, bound.input(0)
    for position in range(1, len(bound.inputs)):
        tensor = bound.input(position)
        if _other_sizes(tensor.shape, axis) != _other_sizes(first.shape, axis):
            what = f"of {list(first.shape)} and {list(tensor.shape)}"
            raise illegal(bound, what, f"all dimensions but {axis} must be equal", tensor=tensor)


def _other_sizes(shape: Shape, axis: int) -> Shape:
    """The number of dimensions, and the sizes of all but one."""
    return (len(shape), *shape[:axis], *shape[axis + 1 :])


def _check_rescaled(bound: BoundNode) -> None:
    inputs = [bound.input(i) for i in range(len(bound.inputs))]
    require_quantization(bound, *inputs, bound.output)
    require_few(bound, len(inputs))
    for tensor in inputs:
        if tensor.dtype is not DType.INT8:
            what = f"of int8 and {tensor.dtype.value} is not supported"
            raise unsupported(bound, what, "there is code for one type", "quantize the model to int8", tensor)


def _output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    axis = bound.op(Concatenation).axis
    shape = list(bound.input(0).shape)
    shape[axis] = sum(bound.input(i).shape[axis] for i in range(len(bound.inputs)))
    return (tuple(shape),)


def _rescaled(bound: BoundNode, x: Tensor, values: Array) -> Array:
    """An input's values with the output's quantization."""
    y = bound.output
    if not _keeps_values(bound) or x.quantization == y.quantization:
        return values
    assert x.quantization and y.quantization
    if bound.node.op.numerics is Numerics.UNSIGNED:
        return _rescaled_unsigned(x.quantization, y.quantization, values)
    return quantized(dequantized(values, x.quantization), y.quantization, y.dtype).astype(y.dtype.value)


def _rescaled_unsigned(x: Quantization, y: Quantization, values: Array) -> Array:
    """Of values that the model has 128 higher."""
    zero_point = np.float32(x.zero_point + _LIFT)
    with np.errstate(all="ignore"):
        scale = np.float32(x.scale) * (np.float32(1) / np.float32(y.scale))
        real = (values.astype(np.float32) + np.float32(_LIFT)) * scale + -zero_point * scale
    rounded = np.sign(real) * np.floor(np.abs(real.astype(np.float64)) + 0.5) + y.zero_point
    return np.asarray(np.clip(np.nan_to_num(rounded), *DType.INT8.range), np.int8)


def _reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    parts = [_rescaled(bound, bound.input(i), x) for i, x in enumerate(inputs) if x is not None]
    return (np.concatenate(parts, bound.op(Concatenation).axis),)


def _lower(bound: BoundNode) -> Layer:
    return join_layer(bound, bound.op(Concatenation).axis, partial(_rescaled, bound) if _keeps_values(bound) else None)


def _transposed(bound: BoundNode, permutation: tuple[int, ...]) -> Op:
    return replace(bound.op(Concatenation), axis=permutation[bound.op(Concatenation).axis])


KERNELS = (
    KernelDef(
        Concatenation,
        "tensors one after the other along an axis",
        tflite={"CONCATENATION": _from_tflite},
        onnx={"Concat": _from_onnx},
        check=_check,
        reference=_reference,
        lower=_lower,
        output_shapes=_output_shapes,
        transposed=_transposed,
        all_data=True,
        variants=variants(_lower),
    ),
)

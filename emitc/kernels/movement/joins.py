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

PACK and UNPACK: tensors of one shape stacked along a new axis, and separated again.

Shapes  PACK: n of x [d0, ...] to y [..., n, ...]; UNPACK the reverse.   Types  any; scale and zero point must not change.

SPLIT, SPLIT_V and ONNX's Split: a tensor cut along an axis into equal parts, or into parts of given sizes.

Shapes  x [d0, ...]; y_i the same except for dimension `axis`.   Types  any; scale and zero point must not change.
The sizes of SPLIT_V may hold one -1, which stands for the rest. ONNX's sizes are an attribute up to version 12, an input in
version 1 and from 13 on; without them the parts are equal, except for the last one, which is smaller where `num_outputs` (version
18) does not divide the dimension.
Errors  parts that are left out among the outputs.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from emitc.ir import Array, BoundNode, DType, Numerics, Op, Quantization, Shape, Tensor
from emitc.kernels.contract import KernelDef, Parsed, illegal, require_quantization, unsupported
from emitc.kernels.shared.byte_moves import axis_of, check_parts, join_layer, require_few, split_layer, variants
from emitc.kernels.shared.integer_attributes import integer_list
from emitc.kernels.shared.pointwise import dequantized, operand, quantized
from emitc.layer import Layer
from emitc.records import dataclass, replace
from emitc.source import SourceNode

_LIFT = 128


@dataclass(frozen=True, slots=True)
class Concatenation(Op):
    """axis: the dimension along which the inputs follow one another, from the front. rescales: whether real values are kept
    where an input has another quantization than the output (QLinearConcat), not the integers.
    """

    axis: int
    rescales: bool = False


def _concatenation_from_tflite(node: SourceNode) -> Parsed:
    node.counts((1, max(1, len(node.inputs))))
    node.text("fused_activation_function", ("NONE",))
    return Parsed(Concatenation(_common_axis(node, 0)), tuple(range(len(node.inputs))))


def _concatenation_from_onnx(node: SourceNode) -> Parsed:
    """Concat and QLinearConcat; the axis was optional up to version 3."""
    node.counts((1, max(1, len(node.inputs))))
    axis = _common_axis(node, 1 if node.integer("opset", 4) < 4 else None)
    return Parsed(Concatenation(axis, node.op_type == "QLinearConcat"), tuple(range(len(node.inputs))))


def _common_axis(node: SourceNode, default: int | None) -> int:
    """The attribute `axis`, from the front. Raises EmitcError where an input is left out."""
    ranks = [len(node.input(i).shape) for i in range(len(node.inputs))]
    return axis_of(node, node.integer("axis", default), ranks[0])


def _keeps_values(bound: BoundNode) -> bool:
    """Whether the integers change where the quantization does."""
    return bound.op(Concatenation).rescales or bound.node.op.numerics in (Numerics.QDQ, Numerics.UNSIGNED)


def _check_concatenation(bound: BoundNode) -> None:
    """Refuses a change of type, and of scale or zero point where it does not come from ONNX."""
    y = bound.output
    _require_fitting(bound)
    if _keeps_values(bound) and y.dtype is DType.INT8:
        _check_rescaled(bound)
        return
    check_parts(bound)


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
    require_few(bound)
    for tensor in inputs:
        if tensor.dtype is not DType.INT8:
            what = f"of int8 and {tensor.dtype.value} is not supported"
            raise unsupported(bound, what, "there is code for one type", "quantize the model to int8", tensor)


def _concatenation_shapes(bound: BoundNode) -> tuple[Shape, ...]:
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


def _concatenation_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    parts = [_rescaled(bound, bound.input(i), x) for i, x in enumerate(inputs) if x is not None]
    return (np.concatenate(parts, bound.op(Concatenation).axis),)


def _lower_concatenation(bound: BoundNode) -> Layer:
    return join_layer(bound, bound.op(Concatenation).axis, partial(_rescaled, bound) if _keeps_values(bound) else None)


@dataclass(frozen=True, slots=True)
class Stack(Op):
    """axis: the dimension that the stacked tensor has and the single ones lack, from the front."""

    axis: int


class Pack(Stack):
    """Its output is the stacked tensor."""


class Unpack(Stack):
    """Its input is the stacked tensor."""


def _require_count(node: SourceNode, attribute: str, count: int, what: str) -> None:
    stated = node.integer(attribute)
    if stated != count:
        hint = "the file is damaged: export the model again"
        raise node.refusal(f"has {count} {what}", f"{attribute} is {stated}", hint)


def _pack_from_tflite(node: SourceNode) -> Parsed:
    node.counts((1, max(1, len(node.inputs))))
    _require_count(node, "values_count", len(node.inputs), "inputs")
    shapes = [node.input(i).shape for i in range(len(node.inputs))]
    for i, shape in enumerate(shapes):
        if shape != shapes[0]:
            what = f"of {list(shapes[0])} and {list(shape)}"
            raise node.refusal(what, "all shapes must be equal", tensor=node.input(i))
    return Parsed(Pack(axis_of(node, node.integer("axis", 0), len(shapes[0]) + 1)), tuple(range(len(shapes))))


def _unpack_from_tflite(node: SourceNode) -> Parsed:
    node.counts((1, 1), (1, max(1, len(node.outputs))))
    shape = node.input(0).shape
    axis = axis_of(node, node.integer("axis", 0), len(shape))
    _require_count(node, "num", len(node.outputs), "outputs")
    _require_count(node, "num", shape[axis], f"slices along dimension {axis}")
    return Parsed(Unpack(axis))


def _axis(bound: BoundNode) -> int:
    return bound.op(Stack).axis


def _pack_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    axis, shape = _axis(bound), bound.input(0).shape
    return ((*shape[:axis], len(bound.inputs), *shape[axis:]),)


def _unpack_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    axis, shape = _axis(bound), bound.input(0).shape
    return ((*shape[:axis], *shape[axis + 1 :]),) * len(bound.outputs)


@dataclass(frozen=True, slots=True)
class Split(Op):
    """axis: dimension that is cut, from the front. sizes: its size in each output."""

    axis: int
    sizes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SplitV(Split):
    """Parts of given sizes."""


def _axis_input(node: SourceNode, position: int, shape: Shape) -> int:
    axes = node.constant_integers(position, "axis")
    if len(axes) != 1:
        raise node.refusal(f"has {len(axes)} axes", "one is expected")
    return axis_of(node, axes[0], len(shape))


def _require_outputs(node: SourceNode, parts: int) -> None:
    if not parts == len(node.outputs) == node.integer("num_splits"):
        why = f"num_splits is {node.integer('num_splits')}, and {parts} parts are asked for"
        raise node.refusal(f"has {len(node.outputs)} outputs", why, "the file is damaged: export the model again")


def _split_from_tflite(node: SourceNode) -> Parsed:
    node.counts((2, 2), (1, max(1, len(node.outputs))))
    shape = node.input(1).shape
    axis, parts = _axis_input(node, 0, shape), len(node.outputs)
    _require_outputs(node, parts)
    if shape[axis] % parts:
        raise node.refusal(f"makes {parts} parts", f"they cannot be equal: dimension {axis} has {shape[axis]} elements")
    return Parsed(Split(axis, (shape[axis] // parts,) * parts), (1,))


def _split_v_from_tflite(node: SourceNode) -> Parsed:
    node.counts((3, 3), (1, max(1, len(node.outputs))))
    shape, stated = node.input(0).shape, node.constant_integers(1, "sizes")
    axis = _axis_input(node, 2, shape)
    _require_outputs(node, len(stated))
    rest = shape[axis] - sum(size for size in stated if size != -1)
    sizes = tuple(rest if size == -1 else size for size in stated)
    if stated.count(-1) > 1 or min(sizes) < 0 or sum(sizes) != shape[axis]:
        raise node.refusal(f"makes parts of {list(stated)}", f"they must add up to dimension {axis} of {list(shape)}")
    return Parsed(SplitV(axis, sizes), (0,))


def _split_from_onnx(node: SourceNode) -> Parsed:
    node.counts((1, 2), (1, max(1, len(node.outputs))))
    shape, parts = node.input(0).shape, len(node.outputs)
    axis = axis_of(node, node.integer("axis", 0), len(shape))
    if node.attributes.get("outputs_present", tuple(range(parts))) != tuple(range(parts)):
        what = "with outputs left out is not supported"
        raise node.unsupported(what, "every part is written", "name every output of the operator")
    sizes = integer_list(node, "split", 1)
    if sizes is None:
        if node.integer("num_outputs", parts) != parts or (
            shape[axis] % parts and "num_outputs" not in node.attributes
        ):
            why = f"they cannot be equal: dimension {axis} has {shape[axis]} elements"
            raise node.refusal(f"makes {parts} parts", why)
        part = -(-shape[axis] // parts)
        sizes = (*(part,) * (parts - 1), shape[axis] - part * (parts - 1))
    if len(sizes) != parts or min(sizes) < 0 or sum(sizes) != shape[axis]:
        why = f"they must add up to dimension {axis} of {list(shape)} and be as many as the outputs, {parts}"
        raise node.refusal(f"makes parts of {list(sizes)}", why)
    return Parsed(Split(axis, sizes))


def _split_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    op, shape = bound.op(Split), bound.input(0).shape
    return tuple((*shape[: op.axis], size, *shape[op.axis + 1 :]) for size in op.sizes)


def _split_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    op = bound.op(Split)
    return tuple(np.split(operand(bound, inputs, 0), np.cumsum(op.sizes)[:-1], op.axis))


def _kernel(op: type[Op], summary: str, lower: Callable[[BoundNode], Layer], **fields: Any) -> KernelDef:
    """A definition whose layers have the variants of joined and cut tensors. fields: further ones of it."""
    return KernelDef(op, summary, lower=lower, variants=variants(lower), **fields)


_split = partial(
    _kernel,
    lower=lambda bound: split_layer(bound, bound.op(Split).axis),
    check=check_parts,
    reference=_split_reference,
    output_shapes=_split_shapes,
)


KERNELS = (
    _kernel(
        Concatenation,
        "tensors one after the other along an axis",
        _lower_concatenation,
        tflite={"CONCATENATION": _concatenation_from_tflite},
        onnx={"Concat": _concatenation_from_onnx},
        check=_check_concatenation,
        reference=_concatenation_reference,
        output_shapes=_concatenation_shapes,
        transposed=lambda bound, order: replace(bound.op(Concatenation), axis=order[bound.op(Concatenation).axis]),
        all_data=True,
    ),
    _kernel(
        Pack,
        "tensors stacked along a new axis",
        lambda bound: join_layer(bound, _axis(bound)),
        tflite={"PACK": _pack_from_tflite},
        check=check_parts,
        reference=lambda bound, inputs: (np.stack([x for x in inputs if x is not None], _axis(bound)),),
        output_shapes=_pack_shapes,
    ),
    _kernel(
        Unpack,
        "splits a tensor along an axis",
        lambda bound: split_layer(bound, _axis(bound)),
        tflite={"UNPACK": _unpack_from_tflite},
        check=check_parts,
        reference=lambda bound, inputs: tuple(np.moveaxis(operand(bound, inputs, 0), _axis(bound), 0)),
        output_shapes=_unpack_shapes,
    ),
    _split(
        Split,
        "a tensor cut into equal parts",
        tflite={"SPLIT": _split_from_tflite},
        onnx={"Split": _split_from_onnx},
        transposed=lambda bound, permutation: replace(bound.op(Split), axis=permutation[bound.op(Split).axis]),
        moves=True,
    ),
    _split(SplitV, "a tensor cut into parts of given sizes", tflite={"SPLIT_V": _split_v_from_tflite}),
)

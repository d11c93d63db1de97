"""PAD, PADV2, MIRROR_PAD and ONNX's Pad: the input inside a larger tensor, of one value or of the input's own elements.

Shapes  x [d0, ...], y [before_i + d_i + after_i, ...].   Types  any; scale and zero point must not change.
PAD fills with the real value 0: the output's zero point for int8 and uint8, 0 for every other type. PADV2 brings its value
as a third input, quantized like the output.
ONNX pads with a number of its own (an attribute up to version 10, an input from 11 on, 0 by default); where the operator works
on real values that were quantized, with the quantized value.
Negative paddings remove elements; then, over what is left, the elements around it are
    constant  a value,
    reflect   mirrored at the first and the last element, which are not repeated,
    symmetric mirrored at the ends of the first and the last element, which are repeated (TFLite's MIRROR_PAD),
    edge      the first and the last element,
    wrap      those of the other end.
Source  TFLite Micro's PAD, which takes a third input under either name. The order of removal and padding is ONNX Runtime's.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from emitc.errors import CannotCompile
from emitc.ir import Array, BoundNode, DType, Numerics, Op, Shape
from emitc.kernels.contract import KernelDef, Parsed, unsupported
from emitc.kernels.shared import byte_moves
from emitc.kernels.shared.byte_moves import OUTSIDE, pick_layer, picked, require_pickable, require_same_values
from emitc.kernels.shared.integer_attributes import axes_of, integer_list
from emitc.kernels.shared.pointwise import dequantized, filling, operand
from emitc.layer import Layer, Table
from emitc.numerics.requantize import Int64
from emitc.records import dataclass, replace
from emitc.source import SourceNode

MODES = ("constant", "reflect", "edge", "wrap")
_TFLITE_MODES = ("reflect", "symmetric")


@dataclass(frozen=True, slots=True)
class PaddedOp(Op):
    """paddings: elements before and after, per dimension; negative ones are removed."""

    paddings: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class BorderPad(PaddedOp):
    """mode: what lies around the input."""

    mode: str


@dataclass(frozen=True, slots=True)
class CroppingPad(BorderPad):
    """value: what constant padding holds, where elements are removed from other dimensions."""

    value: int | float


def _mirror_from_tflite(node: SourceNode) -> Parsed:
    """MIRROR_PAD: constant paddings [rank, 2]; a side is at most as long as what it mirrors."""
    node.counts((2, 2))
    shape, flat = node.input(0).shape, node.constant_integers(1, "paddings")
    mode = _TFLITE_MODES[node.integer("mode", 0, 0, 1)]
    most = [size - (mode == "reflect") for size in shape]
    paddings = tuple(zip(flat[::2], flat[1::2], strict=False))
    if len(flat) != 2 * len(shape) or any(
        not 0 <= n <= m for pair, m in zip(paddings, most, strict=True) for n in pair
    ):
        why = f"a pair for each dimension of {list(shape)} is expected, none over what it mirrors"
        raise node.refusal(f"has the paddings {list(flat)}", why)
    return Parsed(BorderPad(paddings, mode))


def _around(positions: Int64, size: int, mode: str) -> Int64:
    """Positions inside 0 to size - 1 for those that may lie outside."""
    if mode == "edge":
        return np.clip(positions, 0, size - 1)
    if mode == "wrap":
        return positions % size
    if mode == "reflect":
        period = max(2 * (size - 1), 1)
        folded = positions % period
        return np.minimum(folded, period - folded) if size > 1 else np.zeros_like(positions)
    if mode == "symmetric":
        return np.minimum(positions % (2 * size), 2 * size - 1 - positions % (2 * size))
    return np.where((positions < 0) | (positions >= size), OUTSIDE, positions)


def _positions(bound: BoundNode) -> tuple[Int64, ...]:
    op, positions = bound.op(BorderPad), []
    for size, (before, after) in zip(bound.input(0).shape, op.paddings, strict=True):
        first = max(-before, 0)
        left = size - first - max(-after, 0)
        inside = _around(np.arange(-max(before, 0), left + max(after, 0)), left, op.mode)
        positions.append(np.where(inside == OUTSIDE, OUTSIDE, inside + first))
    return tuple(positions)


def _fill(bound: BoundNode) -> int | float:
    op = bound.node.op
    return filling(bound, op.value) if isinstance(op, CroppingPad) else 0


def _check_border(bound: BoundNode) -> None:
    """Refuses a change of type, scale or zero point, removal of everything, and tables that are too large."""
    x, op = bound.input(0), bound.op(BorderPad)
    require_same_values(bound, x, bound.output)
    left = [size + min(before, 0) + min(after, 0) for size, (before, after) in zip(x.shape, op.paddings, strict=True)]
    if min(left, default=1) <= 0:
        why = f"paddings {[list(pair) for pair in op.paddings]} of {list(x.shape)}"
        raise unsupported(bound, "that removes the whole input is not supported", why, "remove the operator")
    (shape,) = output_shapes(bound)
    if max(shape, default=1) > 1 << 26:
        why = "the output would not fit any microcontroller"
        hint = "the file is damaged, or the model is not meant for one"
        raise unsupported(bound, f"to {list(shape)} is not supported", why, hint)
    require_pickable(bound, x.shape, _positions(bound))


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """Each dimension with its paddings."""
    pairs = zip(bound.input(0).shape, bound.op(PaddedOp).paddings, strict=True)
    return (tuple(before + size + after for size, (before, after) in pairs),)


def transposed(bound: BoundNode, permutation: tuple[int, ...]) -> Op:
    """Each dimension's paddings where the dimension was."""
    op = bound.op(PaddedOp)
    return replace(op, paddings=tuple(op.paddings[i] for i in np.argsort(permutation)))


_kernel = partial(
    KernelDef,
    check=_check_border,
    reference=lambda bound, inputs: (picked(operand(bound, inputs, 0), _positions(bound), _fill(bound)),),
    lower=lambda bound: pick_layer(bound, bound.input(0).shape, _positions(bound), _fill(bound)),
    output_shapes=output_shapes,
    transposed=transposed,
)


_VALUE = 1
"""The operand that holds the value, where it is not known when the model is read."""
_UNKNOWN = Table("padding", "int32_t", (), "")
"""Stands for a value that only the running model knows."""


@dataclass(frozen=True, slots=True)
class Pad(PaddedOp):
    """value: what the paddings hold, in the tensor's own type. real: the same as a
    real value, which stays true when the tensor is quantized; of a model from ONNX in float32. Where neither is there, a
    second operand holds it. `padding_value` is the value as the output has it.
    """

    value: int | float | None
    real: float | None = None


def _given_value(node: SourceNode) -> int | float:
    """The value in input 2, which must be one constant element, quantized like the output."""
    tensor, x, y = node.input(2), node.input(0), node.outputs[0]
    if tensor.data is None:
        what = f"{node.op_type} takes its padding value from a computed tensor"
        hint = "export the model with a constant padding value"
        raise CannotCompile(what, node.where(tensor), "the value must be known at compile time", hint)
    if tensor.dtype != x.dtype or tensor.array().size != 1:
        what = "has a padding value of the wrong type or size"
        raise node.refusal(what, f"one element of {x.dtype} is expected", tensor=tensor)
    if tensor.quantization != y.quantization:
        why = "the value is copied into the output and must be quantized like it"
        raise node.refusal("has a padding value of another scale or zero point", why, tensor=tensor)
    value = tensor.array().reshape(-1)[0]
    return float(value) if tensor.dtype == "float32" else int(value)


def _zero(node: SourceNode) -> int | float:
    """The real value 0 in the output's type."""
    y = node.outputs[0]
    if y.dtype in ("int8", "uint8") and y.quantization:
        return y.quantization.zero_point
    return 0.0 if y.dtype == "float32" else 0


def _from_tflite(node: SourceNode) -> Parsed:
    node.counts((2, 3))
    rank = len(node.input(0).shape)
    flat = node.constant_integers(1, "paddings")
    if len(flat) != 2 * rank:
        raise node.refusal(f"has {len(flat)} paddings", f"two for each of {rank} dimensions are expected")
    if min(flat, default=0) < 0:
        raise node.refusal("has negative paddings", f"{list(flat)}", "use SLICE to remove elements")
    value = _given_value(node) if len(node.inputs) == 3 else _zero(node)
    return Parsed(Pad(tuple(zip(flat[::2], flat[1::2], strict=True)), value))


def _onnx_paddings(node: SourceNode) -> tuple[tuple[int, int], ...]:
    """Before and after of each dimension; those of the dimensions in `axes` only, where it is given."""
    rank = len(node.input(0).shape)
    pads = integer_list(node, "paddings" if node.integer("opset", 13) < 2 else "pads", 1)
    axes = integer_list(node, "axes", 3)
    listed = tuple(range(rank)) if axes is None else axes_of(node, axes, rank)
    if pads is None or len(pads) != 2 * len(listed):
        raise node.refusal(f"has {len(pads or ())} paddings", f"two for each of {len(listed)} dimensions are expected")
    before, after = dict(zip(listed, pads, strict=False)), dict(zip(listed, pads[len(listed) :], strict=True))
    return tuple((before.get(i, 0), after.get(i, 0)) for i in range(rank))


def _onnx_value(node: SourceNode) -> int | float | None:
    """The number that fills, None where an operator computes it (a DequantizeLinear of a constant, say)."""
    x = node.input(0)
    real = x.dtype.startswith("float")
    if not node.has_input(2):
        return node.real("value", 0.0) if real else 0
    tensor = node.input(2)
    was_unsigned = (x.dtype, tensor.dtype) == ("int8", "uint8")
    if tensor.elements != 1 or (tensor.dtype != x.dtype and not was_unsigned):
        what = "has a padding value of the wrong type or size"
        raise node.refusal(what, f"one element of {x.dtype} is expected", tensor=tensor)
    if tensor.data is None:
        return None
    number = tensor.array().reshape(-1)[0]
    return float(number) if real else int(number) - (128 if was_unsigned else 0)


def _from_onnx(node: SourceNode) -> Parsed:
    node.counts((1, 4))
    mode = node.text("mode", MODES, "constant")
    paddings = _onnx_paddings(node)
    if mode != "constant":
        return Parsed(BorderPad(paddings, mode))
    value = _onnx_value(node)
    if min((n for pair in paddings for n in pair), default=0) >= 0:
        number, real = (None, value) if node.input(0).dtype == "float32" else (value, None)
        return Parsed(Pad(paddings, number, real), (0,) if value is not None else (0, 2))
    if value is None:
        what = "with negative paddings and a computed value is not supported"
        hint = "export the model with a constant padding value"
        raise node.unsupported(what, "the value must be known at compile time", hint)
    return Parsed(CroppingPad(paddings, mode, value))


def _walk(bound: BoundNode) -> byte_moves.StridedLoop:
    """Forward through the input, into its place in the output."""
    x, paddings = bound.input(0), bound.op(Pad).paddings
    y_steps = byte_moves.strides(output_shapes(bound)[0], x.dtype.bytes)
    start = sum(before * step for (before, _), step in zip(paddings, y_steps, strict=True))
    return byte_moves.walk(x.shape, byte_moves.strides(x.shape, x.dtype.bytes), y_steps, x.dtype.bytes, 0, start)


def padding_value(bound: BoundNode) -> int | float | None:
    """What the padding holds, in the output's type; None where only the running model knows."""
    op, y = bound.op(Pad), bound.output
    if op.value is not None:
        return op.value
    if op.real is not None:
        return filling(bound, op.real)
    given_value = bound.input(_VALUE)
    if not given_value.is_constant:
        return None
    number = given_value.array().reshape(-1)[:1]
    if bound.node.op.numerics is Numerics.QDQ and given_value.quantization:
        return filling(bound, float(dequantized(number, given_value.quantization)[0]))
    return float(number[0]) if y.dtype in (DType.FLOAT32, DType.FLOAT64) else int(number[0])


def _check(bound: BoundNode) -> None:
    if isinstance(bound.node.op, BorderPad):
        _check_border(bound)
        return
    byte_moves.check_walk(replace(bound, inputs=bound.inputs[:1]), _walk(bound))
    x, value = bound.input(0), bound.optional(_VALUE)
    if value and not value.is_constant and (value.dtype, value.quantization) != (x.dtype, x.quantization):
        what = "with a computed value of another quantization is not supported"
        raise unsupported(bound, what, "the value is copied", "export the model with a constant padding value", value)


def _reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    x, value = operand(bound, inputs, 0), padding_value(bound)
    number = operand(bound, inputs, _VALUE).reshape(-1)[0] if value is None else value
    return (np.pad(x, bound.op(Pad).paddings, constant_values=np.array(number, x.dtype)[()]),)


def _lower(bound: BoundNode) -> Layer:
    """The output filled with the value, then the input copied into it; padding by nothing is one copy."""
    op, x = bound.op(Pad), bound.input(0)
    if not any(map(any, op.paddings)):
        return byte_moves.move_layer(bound, _walk(bound))
    filled = padding_value(bound)
    if filled is None:
        # Both operands are passed to the layer, also where x is a constant.
        plain = byte_moves.move_layer(replace(bound, inputs=(replace(x, data=None),)), _walk(bound), _UNKNOWN)
        return replace(plain, operands=(0, _VALUE), tables=())
    value = np.array([filled], x.dtype.value)
    fill_bytes = value.view(np.int8 if x.dtype is DType.INT8 else np.uint8)
    if (fill_bytes == fill_bytes[0]).all():
        return byte_moves.move_layer(
            bound, _walk(bound), byte_moves.values_table("padding_byte", fill_bytes[:1], "every byte of the padding")
        )
    return byte_moves.move_layer(
        bound, _walk(bound), byte_moves.values_table("padding", value, "one element of the padding")
    )


KERNELS = (
    _kernel(
        BorderPad,
        "the tensor inside a larger one of its own values",
        tflite={"MIRROR_PAD": _mirror_from_tflite},
        moves=True,
    ),
    _kernel(CroppingPad, "a part of the tensor inside a larger one of a constant value"),
    KernelDef(
        Pad,
        "the tensor inside a larger one of a constant value",
        tflite={"PAD": _from_tflite, "PADV2": _from_tflite},
        onnx={"Pad": _from_onnx},
        check=_check,
        reference=_reference,
        lower=_lower,
        output_shapes=output_shapes,
        transposed=transposed,
    ),
)

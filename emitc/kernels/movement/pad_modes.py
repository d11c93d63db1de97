"""Pad of ONNX by more than a constant: what lies around the input is taken from it, or parts of the input are removed.

Shapes  x [d0, ...], y [before_i + d_i + after_i, ...].   Types  any; scale and zero point must not change.
Negative paddings remove elements; then, over what is left, the elements around it are
    constant  a value,
    reflect   mirrored at the first and the last element, which are not repeated,
    symmetric mirrored at the ends of the first and the last element, which are repeated (TFLite's MIRROR_PAD),
    edge      the first and the last element,
    wrap      those of the other end.
Source  ONNX's Pad; the order of removal and padding as ONNX Runtime has it.
"""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from emitc.ir import BoundNode, Op, Shape
from emitc.kernels.contract import KernelDef, Parsed, unsupported
from emitc.kernels.shared.axis_gather import OUTSIDE, pick_layer, picked, require_pickable
from emitc.kernels.shared.pointwise import filling, operand
from emitc.kernels.shared.strided_copy import require_same_values
from emitc.numerics.requantize import Int64
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


def _from_tflite(node: SourceNode) -> Parsed:
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


def check(bound: BoundNode) -> None:
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
    check=check,
    reference=lambda bound, inputs: (picked(operand(bound, inputs, 0), _positions(bound), _fill(bound)),),
    lower=lambda bound: pick_layer(bound, bound.input(0).shape, _positions(bound), _fill(bound)),
    output_shapes=output_shapes,
    transposed=transposed,
)
KERNELS = (
    _kernel(
        BorderPad, "the tensor inside a larger one of its own values", tflite={"MIRROR_PAD": _from_tflite}, moves=True
    ),
    _kernel(CroppingPad, "a part of the tensor inside a larger one of a constant value"),
)

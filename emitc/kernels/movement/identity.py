"""Identity and Dropout of inference of ONNX, and Reinterpret: the same bytes, so that no code is printed.

Shapes  x any, y the same.   Types  any; Identity and Dropout keep scale and zero point, Reinterpret is how the frontends read
the same numbers under another quantization.
A Dropout with a mask as second output writes 1 for every element there, since nothing is dropped; up to version 11 ONNX Runtime
writes 0.
Errors  Dropout in training with a ratio over 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emitc.ir import Array, BoundNode, DType, Numerics, Op, Shape
from emitc.kernels.contract import KernelDef, Parsed, illegal
from emitc.kernels.shared.strided_copy import require_same_values, values_table
from emitc.layer import Layer, in_step
from emitc.source import SourceNode


@dataclass(frozen=True, slots=True)
class Identity(Op):
    """Values unchanged."""


@dataclass(frozen=True, slots=True)
class Reinterpret(Op):
    """Numbers unchanged, with another meaning."""


@dataclass(frozen=True, slots=True)
class MaskedDropout(Op):
    """Values unchanged, and a mask that holds `mask` everywhere."""

    mask: bool


def _identity_from_onnx(node: SourceNode) -> Parsed:
    """Identity and Dropout."""
    if node.kind == "Identity":
        node.counts((1, 1))
        return Parsed(Identity(numerics=Numerics.QOPERATOR))
    node.counts((1, 3), (1, 2))
    _require_inference(node)
    if len(node.outputs) == 1:
        return Parsed(Identity(numerics=Numerics.QOPERATOR))
    return Parsed(MaskedDropout(node.integer("opset", 13) >= 12, numerics=Numerics.QOPERATOR))


def _require_inference(node: SourceNode) -> None:
    """Refuses a Dropout that drops: training mode (an attribute up to version 6) with a ratio over 0."""
    if node.attributes.get("outputs_present", (0,)) == (1,):
        raise node.unsupported(
            "Dropout without its first output is not supported", "only its mask is used", "export again"
        )
    training = node.integer("opset", 13) < 7 and not node.integer("is_test", 0)
    ratio = node.real("ratio", 0.5)
    if node.has_input(1):
        ratio = float(np.ravel(node.value(1, "ratio"))[:1].astype(np.float64).sum())
    if node.has_input(2):
        training = bool(np.any(node.value(2, "training_mode")))
    if training and ratio != 0.0:
        raise node.unsupported(
            "Dropout in training mode is not supported",
            f"it drops values at random, {ratio!r} of them",
            "export the model for inference",
        )


def _reinterpret_from_tflite(node: SourceNode) -> Parsed:
    node.counts((1, 1))
    return Parsed(Reinterpret())


def _reinterpret_from_onnx(node: SourceNode) -> Parsed:
    node.counts((1, 1))
    return Parsed(Reinterpret(numerics=Numerics.QOPERATOR))


def _check_identity(bound: BoundNode) -> None:
    require_same_values(bound, bound.input(0), bound.output)


def _check_reinterpret(bound: BoundNode) -> None:
    x, y = bound.input(0), bound.output
    if x.dtype is not y.dtype:
        raise illegal(
            bound, f"{bound.node.op_type} changes the element type", f"{x.dtype.value} to {y.dtype.value}", tensor=y
        )


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """The input's shape, for the mask too."""
    return (bound.input(0).shape,) * len(bound.outputs)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """The input, and the mask in its type."""
    op = bound.node.op
    assert inputs[0] is not None
    if not isinstance(op, MaskedDropout):
        return (inputs[0],)
    mask = bound.outputs[1]
    return inputs[0], np.full(mask.shape, op.mask, mask.dtype.value)


def lower(bound: BoundNode) -> Layer:
    """A copy: printed only where the view pass is switched off."""
    return Layer("movement/copy", "portable", (0,), overlaps=(in_step(bound),))


def _lower_masked(bound: BoundNode) -> Layer:
    """A copy, in place where the input is not needed any more, and the mask."""
    op, mask = bound.node.op, bound.outputs[1]
    assert isinstance(op, MaskedDropout)
    tables = (values_table("value", np.full(1, op.mask, mask.dtype.value), "every element of the mask"),)
    return Layer("movement/dropout_mask", "portable", (0,), tables, overlaps=(in_step(bound),))


KERNELS = (
    KernelDef(
        Identity,
        "the same values: no code",
        tuple(DType),
        (),
        None,
        _check_identity,
        reference,
        lower,
        output_shapes=output_shapes,
        view=True,
        onnx=("Identity", "Dropout"),
        from_onnx=_identity_from_onnx,
        moves=True,
        elementwise=True,
    ),
    KernelDef(
        MaskedDropout,
        "the same values, and a constant mask",
        tuple(DType),
        (),
        None,
        _check_identity,
        reference,
        _lower_masked,
        output_shapes=output_shapes,
        elementwise=True,
    ),
    KernelDef(
        Reinterpret,
        "the same numbers under another quantization: no code",
        tuple(DType),
        ("Reinterpret",),
        _reinterpret_from_tflite,
        _check_reinterpret,
        reference,
        lower,
        output_shapes=output_shapes,
        view=True,
        onnx=("Reinterpret",),
        from_onnx=_reinterpret_from_onnx,
        elementwise=True,
    ),
)

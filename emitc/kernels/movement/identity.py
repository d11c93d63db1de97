"""Identity and Dropout of inference of ONNX, and Reinterpret: the same bytes, so that no code is printed.

Shapes  x any, y the same.   Types  any; Identity and Dropout keep scale and zero point, Reinterpret is how the frontends read
the same numbers under another quantization.
A Dropout with a mask as second output writes 1 for every element there, since nothing is dropped; up to version 11 ONNX Runtime
writes 0.
Errors  Dropout in training with a ratio over 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from emitc.ir import Array, BoundNode, Op
from emitc.kernels.contract import KernelDef, Parsed, parser, require_same_dtype
from emitc.kernels.shared.pointwise import copied, operand
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


def _dropout(node: SourceNode) -> Parsed:
    node.counts((1, 3), (1, 2))
    _require_inference(node)
    return Parsed(Identity() if len(node.outputs) == 1 else MaskedDropout(node.integer("opset", 13) >= 12))


def _require_inference(node: SourceNode) -> None:
    """Refuses a Dropout that drops: training mode (an attribute up to version 6) with a ratio over 0."""
    if node.attributes.get("outputs_present", (0,)) == (1,):
        raise node.unsupported("without its first output is not supported", "only its mask is used", "export again")
    training = node.integer("opset", 13) < 7 and not node.integer("is_test", 0)
    ratio = node.real("ratio", 0.5)
    if node.has_input(1):
        ratio = float(np.ravel(node.value(1, "ratio"))[:1].astype(np.float64).sum())
    if node.has_input(2):
        training = bool(np.any(node.value(2, "training_mode")))
    if training and ratio != 0.0:
        why = f"it drops values at random, {ratio!r} of them"
        raise node.unsupported("in training mode is not supported", why, "export the model for inference")


def _check_identity(bound: BoundNode) -> None:
    require_same_values(bound, bound.input(0), bound.output)


def _reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    op, x = bound.node.op, operand(bound, inputs, 0)
    if not isinstance(op, MaskedDropout):
        return (x,)
    mask = bound.outputs[1]
    return x, np.full(mask.shape, op.mask, mask.dtype.value)


def _lower_masked(bound: BoundNode) -> Layer:
    """A copy, in place where the input is not needed any more, and the mask."""
    value = np.full(1, bound.op(MaskedDropout).mask, bound.outputs[1].dtype.value)
    tables = (values_table("value", value, "every element of the mask"),)
    return Layer("movement/dropout_mask", tables=tables, overlaps=(in_step(bound),))


_kernel = partial(
    KernelDef,
    reference=_reference,
    output_shapes=lambda bound: (bound.input(0).shape,) * len(bound.outputs),
    elementwise=True,
)
KERNELS = (
    _kernel(
        Identity,
        "the same values: no code",
        onnx={"Identity": parser(Identity()), "Dropout": _dropout},
        check=_check_identity,
        lower=copied,
        view=True,
        moves=True,
    ),
    _kernel(MaskedDropout, "the same values, and a constant mask", check=_check_identity, lower=_lower_masked),
    _kernel(
        Reinterpret,
        "the same numbers under another quantization: no code",
        tflite={"Reinterpret": parser(Reinterpret())},
        onnx={"Reinterpret": parser(Reinterpret())},
        check=require_same_dtype,
        lower=copied,
        view=True,
    ),
)

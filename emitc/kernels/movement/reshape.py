"""RESHAPE, SQUEEZE, EXPAND_DIMS, and ONNX's Flatten and Unsqueeze: the same bytes under another shape; no code is printed.

Shapes  x any, y with as many elements.   Types  any; scale and zero point must not change.
RESHAPE takes its shape from a second input, from its options, or from the output tensor, in that order; a -1 in it stands
for what is left. A model whose batch was open may state the shape of batch 1 or of -1. ONNX's Reshape takes it from a second
input or, up to version 4 and where the frontend has put the operator, from its attribute; a 0 copies the input's dimension.

Identity and Dropout of inference of ONNX, and Reinterpret: the same bytes, so that no code is printed.

Shapes  x any, y the same.   Types  any; Identity and Dropout keep scale and zero point, Reinterpret is how the frontends read
the same numbers under another quantization.
A Dropout with a mask as second output writes 1 for every element there, since nothing is dropped; up to version 11 ONNX Runtime
writes 0.
Errors  Dropout in training with a ratio over 0.
"""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from emitc.ir import Array, BoundNode, Numerics, Op, Shape
from emitc.kernels.contract import KernelDef, Parsed, parser, require_same_dtype, require_same_quantization
from emitc.kernels.shared.byte_moves import require_same_values, values_table
from emitc.kernels.shared.integer_attributes import axes_of, integer_list, resolved_shape
from emitc.kernels.shared.pointwise import copied, operand
from emitc.layer import Layer, in_step
from emitc.records import dataclass
from emitc.source import MAX_RANK, SourceNode


@dataclass(frozen=True, slots=True)
class Reshape(Op):
    """shape: the new shape, fully known."""

    shape: Shape


def _reshape_from_tflite(node: SourceNode) -> Parsed:
    node.counts((1, 2))
    if len(node.inputs) == 2 and node.inputs[1] is not None and node.inputs[1].data is not None:
        wanted = node.constant_integers(1, "shape")
    else:
        stated = node.attribute("new_shape", ()) if "new_shape" in node.attributes else ()
        wanted = tuple(int(d) for d in stated) if isinstance(stated, tuple) and stated else node.outputs[0].shape
        if len(node.inputs) == 2 and wanted.count(-1) > 1:
            node.constant(1, "shape")
    return Parsed(Reshape(resolved_shape(node, wanted)))


def _squeeze_from_tflite(node: SourceNode) -> Parsed:
    node.counts((1, 1))
    shape = node.input(0).shape
    listed = node.attributes.get("squeeze_dims", ())
    assert isinstance(listed, tuple)
    dims = {int(d) % len(shape) if shape and -len(shape) <= d < len(shape) else -1 for d in listed}
    if any(d < 0 or shape[d] != 1 for d in dims):
        why = f"of {list(shape)} only those of size 1 can go"
        raise node.refusal(f"removes dimensions {list(listed)}", why, "export again")
    keep = (lambda i: i not in dims) if dims else (lambda i: shape[i] != 1)
    return Parsed(Reshape(tuple(d for i, d in enumerate(shape) if keep(i))))


def _expand_dims_from_tflite(node: SourceNode) -> Parsed:
    node.counts((2, 2))
    axes = node.constant_integers(1, "axis")
    shape = node.input(0).shape
    if len(axes) != 1 or not -len(shape) - 1 <= axes[0] <= len(shape):
        raise node.refusal(f"has axis {list(axes)}", f"the input has {len(shape)} dimensions")
    axis = axes[0] % (len(shape) + 1)
    return Parsed(Reshape((*shape[:axis], 1, *shape[axis:])))


def _copied_dimensions(node: SourceNode, wanted: tuple[int, ...]) -> tuple[int, ...]:
    """`wanted` with each 0 replaced by the input's dimension in its place."""
    shape = node.input(0).shape
    if any(d == 0 for d in wanted[len(shape) :]):
        why = f"a 0 copies a dimension of the input, which has {len(shape)}"
        raise node.refusal(f"asks for the shape {list(wanted)}", why)
    return tuple(shape[i] if d == 0 else d for i, d in enumerate(wanted))


def _flatten_from_onnx(node: SourceNode) -> Parsed:
    node.counts((1, 2))
    shape = node.input(0).shape
    axis = node.integer("axis", 1, -len(shape), len(shape))
    axis += len(shape) if axis < 0 else 0
    return Parsed(Reshape((math.prod(shape[:axis]), math.prod(shape[axis:]))))


def _reshape_from_onnx(node: SourceNode) -> Parsed:
    node.counts((1, 2))
    wanted = integer_list(node, "shape", 1)
    if wanted is None:
        raise node.refusal("has no shape", "it is neither an input nor an attribute")
    if not node.integer("allowzero", 0):
        wanted = _copied_dimensions(node, wanted)
    return Parsed(Reshape(resolved_shape(node, wanted)))


def _squeeze_from_onnx(node: SourceNode) -> Parsed:
    node.counts((1, 2))
    shape, listed = node.input(0).shape, integer_list(node, "axes", 1)
    if listed is None:
        listed = tuple(i for i, d in enumerate(shape) if d == 1)
    axes = axes_of(node, listed, len(shape))
    if any(shape[axis] != 1 for axis in axes):
        raise node.refusal(f"removes dimensions {list(listed)}", f"of {list(shape)} only those of size 1 can go")
    return Parsed(Reshape(tuple(d for i, d in enumerate(shape) if i not in axes)))


def _unsqueeze_from_onnx(node: SourceNode) -> Parsed:
    node.counts((1, 2))
    shape, listed = node.input(0).shape, integer_list(node, "axes", 1)
    if listed is None or len(shape) + len(listed) > MAX_RANK:
        why = f"at least one is expected, and no more than {MAX_RANK} dimensions in all"
        raise node.refusal(f"has the axes {list(listed or ())}", why)
    axes = axes_of(node, listed, len(shape) + len(listed))
    rest = iter(shape)
    return Parsed(Reshape(tuple(1 if i in axes else next(rest) for i in range(len(shape) + len(axes)))))


def _check(bound: BoundNode) -> None:
    x, y = bound.input(0), bound.output
    if bound.node.op.numerics is not Numerics.TFLITE:
        require_same_values(bound, x, y)
    require_same_dtype(bound)
    if bound.node.op.numerics is Numerics.TFLITE and x.quantization and y.quantization:
        require_same_quantization(bound, x, y)


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


def _identity_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
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


_identity = partial(
    KernelDef,
    reference=_identity_reference,
    output_shapes=lambda bound: (bound.input(0).shape,) * len(bound.outputs),
    elementwise=True,
)


KERNELS = (
    KernelDef(
        Reshape,
        "the same bytes under another shape: no code",
        tflite={
            "RESHAPE": _reshape_from_tflite,
            "SQUEEZE": _squeeze_from_tflite,
            "EXPAND_DIMS": _expand_dims_from_tflite,
        },
        onnx={
            "Reshape": _reshape_from_onnx,
            "Flatten": _flatten_from_onnx,
            "Squeeze": _squeeze_from_onnx,
            "Unsqueeze": _unsqueeze_from_onnx,
        },
        check=_check,
        reference=lambda bound, inputs: (operand(bound, inputs, 0).reshape(bound.output.shape),),
        lower=copied,
        output_shapes=lambda bound: (bound.op(Reshape).shape,),
        view=True,
        moves=True,
    ),
    _identity(
        Identity,
        "the same values: no code",
        onnx={"Identity": parser(Identity()), "Dropout": _dropout},
        check=_check_identity,
        lower=copied,
        view=True,
        moves=True,
    ),
    _identity(MaskedDropout, "the same values, and a constant mask", check=_check_identity, lower=_lower_masked),
    _identity(
        Reinterpret,
        "the same numbers under another quantization: no code",
        tflite={"Reinterpret": parser(Reinterpret())},
        onnx={"Reinterpret": parser(Reinterpret())},
        check=require_same_dtype,
        lower=copied,
        view=True,
    ),
)

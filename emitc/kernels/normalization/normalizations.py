"""LayerNormalization, InstanceNormalization, GroupNormalization and BatchNormalization of ONNX; L2_NORMALIZATION.

Layer, instance and group: y = (x - mean) / sqrt(variance + epsilon) * scale + bias
Shapes  x is seen as rows of `size` values that lie together, each with its own mean and variance: the dimensions from `axis`
        on (layer), the image of one channel of [N, C, ...] (instance), the images of C / num_groups channels (group). scale
        and bias: one per value of a row (layer; bias may be missing), per channel, or per group (before opset 21).
Types   float32. Scale and bias may be computed.
Outputs LayerNormalization: also Mean and InvStdDev, [..., 1, 1], where the model names them.
Source  ONNX operator specification; the variance from differences to the mean, in two passes.

BatchNormalization of ONNX, as it is after training: y = x * factor + offset, one of each per channel.
Shapes  x [N, C, ...] (or the channels in another place, where a Transpose has moved past), y the same.   Types  float32.
factor = scale / sqrt(variance + epsilon), offset = bias - mean * factor, both in float32 and constant.
Errors  training mode, computed statistics, statistics per activation (spatial = 0 before opset 9).
Source  ONNX operator specification.

L2_NORMALIZATION: y = x / sqrt(sum(x * x)), the sum over the last dimension.
Shapes  x any of rank 1 or more, y the same.
Types   float32: the root is 1e-6 at least. int8, y of scale 1/128 and zero point 0: the inverse root of the integer sum n,
        scaled by a power of 4 into [1/4, 1): five Newton steps x' = (3 - n x * x) x / 2 in Q3.28 from x = 1; the result is a
        Q31 multiplier and a shift. A sum of 0 counts as 1.
Source  TFLite Micro's kernel.   Errors  int8 rows of more than 33 025 elements, whose sum can leave int32.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from emitc.errors import EXPORT_AGAIN
from emitc.ir import Array, BoundNode, DType, Op, Shape
from emitc.kernels.contract import (
    KernelDef,
    Parsed,
    Variant,
    illegal,
    require_constants,
    require_dtypes,
    require_quantization,
    unsupported,
)
from emitc.kernels.costs import UNKNOWN_PAIRS, UNKNOWN_VECTORS
from emitc.kernels.normalization.softmax_tables import require_int8_output, require_rows, row_params, row_work
from emitc.kernels.shared.byte_moves import axis_of
from emitc.kernels.shared.pointwise import operand, plain_numerics
from emitc.layer import PLAIN, KernelSpec, Layer, Param, Table, in_step, integers
from emitc.numerics.gemmlowp import inverse_root
from emitc.numerics.requantize import INT32_MAX, requantize
from emitc.records import dataclass, replace
from emitc.source import SourceNode

_SCALE, _BIAS = 1, 2
_EXTRA = ("mean", "inverse")
Float64 = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Normalization(Op):
    """outputs: positions of the outputs that are there, of y, Mean and InvStdDev."""

    epsilon: float
    outputs: tuple[int, ...] = (0,)


@dataclass(frozen=True, slots=True)
class LayerNormalization(Normalization):
    """axis: first normalized dimension."""

    axis: int = -1


class InstanceNormalization(Normalization):
    """Over the image of each channel."""


@dataclass(frozen=True, slots=True)
class GroupNormalization(Normalization):
    """Over the images of C / groups channels."""

    groups: int = 1


@dataclass(frozen=True, slots=True)
class _Rows:
    """`rows` of `segments` x `run` values. Each segment has its scale and bias; after `period` rows they start again."""

    rows: int
    segments: int
    run: int
    period: int

    @property
    def affine(self) -> int:
        """Number of scales."""
        return self.segments * self.period


def _epsilon(node: SourceNode) -> float:
    value = node.real("epsilon", 1e-5)
    if not 0.0 <= value <= 1e30:
        raise node.refusal(f"has epsilon {value!r}", "it is not negative")
    return value


def _layer_from_onnx(node: SourceNode) -> Parsed:
    node.counts((2, 3), (1, 3))
    if node.integer("stash_type", 1) != 1:
        what = "in another precision than float32 is not supported"
        raise node.unsupported(what, f"stash_type {node.attributes['stash_type']}", "export the model in float32")
    axis = axis_of(node, node.integer("axis", -1), len(node.input(0).shape))
    present = node.attributes.get("outputs_present", (0,))
    outputs = tuple(int(v) for v in present) if isinstance(present, tuple) else (0,)
    return Parsed(LayerNormalization(_epsilon(node), outputs, axis), (0, _SCALE, _BIAS))


def _instance_from_onnx(node: SourceNode) -> Parsed:
    node.counts((3, 3))
    return Parsed(InstanceNormalization(_epsilon(node)), (0, _SCALE, _BIAS))


def _group_from_onnx(node: SourceNode) -> Parsed:
    node.counts((3, 3))
    groups = node.integer("num_groups", low=1)
    return Parsed(GroupNormalization(_epsilon(node), groups=groups), (0, _SCALE, _BIAS))


def _rows(bound: BoundNode) -> _Rows:
    """How x falls into rows; `check` has shown the shapes to fit."""
    op, shape, scale = bound.node.op, bound.input(0).shape, bound.input(_SCALE)
    if isinstance(op, LayerNormalization):
        return _Rows(math.prod(shape[: op.axis]), math.prod(shape[op.axis :]), 1, 1)
    batches, channels, image = shape[0], shape[1], math.prod(shape[2:])
    if isinstance(op, InstanceNormalization):
        return _Rows(batches * channels, 1, image, channels)
    assert isinstance(op, GroupNormalization)
    group_channels = channels // op.groups
    if scale.elements == channels:
        return _Rows(batches * op.groups, group_channels, image, op.groups)
    return _Rows(batches * op.groups, 1, group_channels * image, op.groups)


def check(bound: BoundNode) -> None:
    """Refuses other types than float32, and shapes of scale and bias that do not fit."""
    op, x, scale, bias = bound.node.op, bound.input(0), bound.input(_SCALE), bound.optional(_BIAS)
    require_dtypes(bound, [(DType.FLOAT32,) * (2 + (bias is not None) + len(bound.outputs))])
    if 0 in x.shape:
        raise illegal(bound, "has an empty input", "a dimension is 0", tensor=x)
    if isinstance(op, LayerNormalization):
        if len(op.outputs) != len(bound.outputs) or op.outputs[0]:
            what = "without its first output is not supported"
            raise unsupported(bound, what, f"it writes outputs {list(op.outputs)}", EXPORT_AGAIN)
    elif len(x.shape) < 2 or (isinstance(op, GroupNormalization) and x.shape[1] % op.groups):
        raise illegal(bound, "has channels that do not fit", f"the input is {list(x.shape)}", tensor=x)
    expected = _rows(bound).affine
    for tensor in (scale, bias):
        if tensor is not None and tensor.elements != expected:
            what = f"has {tensor.elements} scales or biases"
            why = f"there is code for one of each of the {expected} that differ"
            raise unsupported(bound, what, why, "expand scale and bias before the export", tensor)


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """The input's shape; of Mean and InvStdDev with 1 for the normalized dimensions."""
    op, shape = bound.node.op, bound.input(0).shape
    if not isinstance(op, LayerNormalization):
        return (shape,)
    reduced = shape[: op.axis] + (1,) * (len(shape) - op.axis)
    return (shape, *(reduced for _ in op.outputs[1:]))


def normalized_rows(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Float64, Float64, Float64, float]:
    """x [rows / period, period, segments, run], scale and bias [period, segments, 1] in double, and epsilon."""
    rows = _rows(bound)
    x = operand(bound, inputs, 0).astype(np.float64).reshape(-1, rows.period, rows.segments, rows.run)
    scale = operand(bound, inputs, _SCALE).astype(np.float64).reshape(rows.period, rows.segments, 1)
    offset = np.zeros_like(scale)
    if bound.optional(_BIAS) is not None:
        offset = operand(bound, inputs, _BIAS).astype(np.float64).reshape(scale.shape)
    return x, scale, offset, bound.op(Normalization).epsilon


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """In double, rounded to float32."""
    x, scale, offset, epsilon = normalized_rows(bound, inputs)
    mean = x.mean(axis=(2, 3), keepdims=True)
    inverse = 1.0 / np.sqrt(x.var(axis=(2, 3), keepdims=True) + epsilon)
    results: list[Array] = [(x - mean) * inverse * scale + offset, mean, inverse]
    return tuple(
        np.asarray(results[position].astype(np.float32).reshape(tensor.shape))
        for position, tensor in zip(bound.op(Normalization).outputs, bound.outputs, strict=True)
    )


def lower(bound: BoundNode) -> Layer:
    """Three passes over each row: mean, variance, result; a row may be overwritten in place."""
    op, rows = bound.op(Normalization), _rows(bound)
    operands, tables = [0], []
    for position, role in ((_SCALE, "scale"), (_BIAS, "bias")):
        tensor = bound.optional(position)
        if tensor is not None and tensor.is_constant:
            values = tuple(tensor.array().reshape(-1).tolist())
            tables.append(Table(role, "float", values, f"{role} {list(tensor.shape)}"))
        elif tensor is not None:
            operands.append(position)
    params = (
        Param("rows", "int32_t", rows.rows),
        Param("segments", "int32_t", rows.segments, "of a row, each with its own scale"),
        Param("run", "int32_t", rows.run, "values of a segment"),
        Param("period", "int32_t", rows.period, "rows after which the scales start again"),
        Param("epsilon", "float", op.epsilon),
        Param("has_bias", "int32_t", int(bound.optional(_BIAS) is not None)),
        *(Param(f"has_{name}", "int32_t", int(i + 1 in op.outputs)) for i, name in enumerate(_EXTRA)),
    )
    return Layer(
        "normalization/normalization", "portable", tuple(operands), tuple(tables), params, overlaps=(in_step(bound),)
    )


def _by_fours(bound: BoundNode, variant: str) -> Layer | str:
    """Four values at a time of rows in which each has its scale and bias; or why there is none."""
    rows, layer = _rows(bound), lower(bound)
    if variant == "mve" and rows.segments % 4:
        return "the row length is not a multiple of 4"
    if (rows.run, rows.period) != (1, 1) or bound.optional(_BIAS) is None:
        return "there is code for a scale and a bias of each value of a row"
    params = (
        *integers(rows=rows.rows, size=(rows.segments, "values of a row")),
        *(param for param in layer.params if param.name in ("epsilon", *(f"has_{name}" for name in _EXTRA))),
    )
    spec = KernelSpec(f"_{variant}", fixed_point=False)
    return replace(layer, template="normalization/normalization_rows", params=params, spec=spec)


_VECTOR_HEADERS = ("emitc_mve.h", "emitc_mve_float32.h", "emitc_mve_norm.h")
_VARIANTS = (
    Variant(
        "mve", "mve", partial(_by_fours, variant="mve"), UNKNOWN_VECTORS, (DType.FLOAT32,), headers=_VECTOR_HEADERS
    ),
    Variant(
        "fpu", "fpu", partial(_by_fours, variant="fpu"), UNKNOWN_PAIRS, (DType.FLOAT32,), headers=("emitc_fpu_norm.h",)
    ),
)


def _kernel(
    op: type[Op], summary: str, from_onnx: Callable[[SourceNode], Parsed], variants: tuple[Variant, ...] = ()
) -> KernelDef:
    return KernelDef(
        op,
        summary,
        (DType.FLOAT32,),
        check=check,
        reference=reference,
        lower=lower,
        output_shapes=output_shapes,
        onnx={op.__name__: from_onnx},
        variants=variants,
    )


_STATISTICS = ("scale", "bias", "mean", "variance")


@dataclass(frozen=True, slots=True)
class BatchNormalization(Op):
    """axis: the dimension of the channels."""

    epsilon: float
    axis: int = 1


def _batch_from_onnx(node: SourceNode) -> Parsed:
    """BatchNormalization's attributes; momentum serves training alone."""
    node.counts((5, 5), (1, 5))
    if len(node.outputs) > 1 or node.integer("training_mode", 0, 0, 1):
        what = "in training mode is not supported"
        raise node.unsupported(what, "running statistics have no code", "export the model for inference")
    if not node.integer("spatial", 1, 0, 1):
        what = "with statistics per activation is not supported"
        raise node.unsupported(what, "there is code for one set per channel", "export the model with spatial = 1")
    op = BatchNormalization(node.real("epsilon", 1e-5))
    return Parsed(op, (0, 1, 2, 3, 4))


def _check_batch(bound: BoundNode) -> None:
    """Refuses other types than float32, computed statistics, and statistics that do not fit the channels."""
    x, axis = bound.input(0), bound.op(BatchNormalization).axis
    require_dtypes(bound, [(DType.FLOAT32,) * 6])
    if len(x.shape) <= axis or 0 in x.shape:
        raise illegal(bound, "has an input without channels", f"its shape is {list(x.shape)}", tensor=x)
    for position, name in enumerate(_STATISTICS, 1):
        tensor = bound.input(position)
        if tensor.shape != (x.shape[axis],):
            why = f"{list(tensor.shape)} for {x.shape[axis]} channels"
            raise illegal(bound, f"has a {name} of the wrong shape", why, tensor=tensor)
        what = f"has a computed {name}"
        require_constants(bound, (tensor,), what, "it is folded while compiling", "export the model for inference")
    factor, offset = _folded(bound)
    if not (np.isfinite(factor).all() and np.isfinite(offset).all()):
        what = "has statistics that make no finite factor"
        why = f"the smallest variance is {float(bound.input(4).array().min())!r}"
        raise illegal(bound, what, why, "train the model again")


def _folded(bound: BoundNode) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Factor and offset of each channel."""
    scale, bias, mean, variance = (bound.input(i).array().astype(np.float32) for i in range(1, 5))
    with np.errstate(all="ignore"):
        factor = scale / np.sqrt(variance + np.float32(bound.op(BatchNormalization).epsilon))
        return factor, bias - mean * factor


def _batch_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """x * factor + offset in double, rounded to float32."""
    shape = [1] * len(bound.output.shape)
    shape[bound.op(BatchNormalization).axis] = -1
    factor, offset = (v.astype(np.float64).reshape(shape) for v in _folded(bound))
    return ((operand(bound, inputs, 0).astype(np.float64) * factor + offset).astype(np.float32),)


def _lower_batch(bound: BoundNode) -> Layer:
    """One multiplication and addition per element."""
    shape, axis = bound.output.shape, bound.op(BatchNormalization).axis
    factor, offset = _folded(bound)
    tables = (
        Table("factor", "float", tuple(factor.tolist()), "scale / sqrt(variance + epsilon) per channel"),
        Table("offset", "float", tuple(offset.tolist()), "bias - mean * factor per channel"),
    )
    params = integers(
        outer=math.prod(shape[:axis]),
        channels=shape[axis],
        inner=(math.prod(shape[axis + 1 :]), "values of a channel that lie together"),
    )
    template, macs = "normalization/channel_affine", bound.output.elements
    return Layer(template, "portable", (0,), tables, params, overlaps=(in_step(bound),), macs=macs)


_TYPES = (DType.INT8, DType.FLOAT32)
_MAX_DEPTH = INT32_MAX // 255**2
_LEAST_ROOT = 1e-6
_OUTPUT_BITS = 7


class L2Normalization(Op):
    """Rows of length 1."""


def _l2_from_tflite(node: SourceNode) -> Parsed:
    """No option but an activation, which no engine computes."""
    node.counts((1, 1))
    node.text("fused_activation_function", ("NONE",))
    return Parsed(L2Normalization(numerics=plain_numerics(node)))


def _check_l2(bound: BoundNode) -> None:
    """Refuses other types, another output scale than TFLite fixes, and rows that are too long."""
    x, y = bound.input(0), bound.output
    require_dtypes(bound, [(t, t) for t in _TYPES])
    require_rows(bound)
    if x.dtype is DType.FLOAT32:
        return
    require_quantization(bound, x, y)
    require_int8_output(bound, 1 << _OUTPUT_BITS, 0)
    if x.shape[-1] > _MAX_DEPTH:
        what, why = f"over {x.shape[-1]} elements", f"the sum of {_MAX_DEPTH} squares fits int32"
        raise unsupported(bound, what, why, "reduce the depth", x)


def _l2_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    x = operand(bound, inputs, 0)
    if x.dtype == np.float32:
        with np.errstate(all="ignore"):
            real = x.astype(np.float32)
            norm = np.sqrt(np.add.accumulate(real * real, axis=-1, dtype=np.float32)[..., -1:])
            norm = np.where(norm < np.float32(_LEAST_ROOT), np.float32(_LEAST_ROOT), norm)
            return (np.asarray(real / norm, np.float32),)
    quantization = bound.input(0)
    rows = (x.astype(np.int64) - quantization.zero_point).reshape(-1, x.shape[-1])
    factors = [inverse_root(int(total)) for total in (rows * rows).sum(axis=1)]
    q31 = np.array([[factor.q31] for factor in factors], np.int64)
    shift = np.array([[factor.shift + _OUTPUT_BITS] for factor in factors], np.int64)
    return (np.clip(requantize(rows, q31, shift), -128, 127).astype(np.int8).reshape(x.shape),)


def _lower_l2(bound: BoundNode) -> Layer:
    """Two passes over each row, which may be overwritten in place."""
    x = bound.input(0)
    if x.dtype is DType.FLOAT32:
        template, spec = "normalization/l2_normalization_float", KernelSpec(x="float", y="float")
        last = Param("least", "float", _LEAST_ROOT, "of the root")
    else:
        template, spec = "normalization/l2_normalization", PLAIN
        last = Param("x_offset", "int32_t", -x.zero_point, "minus the zero point")
    return Layer(template, "portable", (0,), params=(*row_params(x.shape), last), overlaps=(in_step(bound),), spec=spec)


KERNELS = (
    _kernel(LayerNormalization, "normalization over the last dimensions", _layer_from_onnx, _VARIANTS),
    _kernel(InstanceNormalization, "normalization over each channel's image", _instance_from_onnx),
    _kernel(GroupNormalization, "normalization over groups of channels", _group_from_onnx),
    KernelDef(
        BatchNormalization,
        "normalization by trained statistics",
        (DType.FLOAT32,),
        check=_check_batch,
        reference=_batch_reference,
        lower=_lower_batch,
        onnx={"BatchNormalization": _batch_from_onnx},
        transposed=lambda bound, order: replace(bound.op(BatchNormalization), axis=order[bound.op(BatchNormalization).axis]),
    ),
    KernelDef(
        L2Normalization, "rows scaled to length 1", _TYPES, ("L2_NORMALIZATION",), _l2_from_tflite, _check_l2, _l2_reference,
        _lower_l2, work=row_work,
    ),
)  # fmt: skip

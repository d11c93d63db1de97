"""SOFTMAX: y_i = exp(beta * x_i) / sum exp(beta * x_j), in fixed point; Softmax and LogSoftmax of ONNX.

TFLite  over the last dimension, int8; y has scale 1/256 and zero point -128, or as int16 1/65536 and -32768.
        exp of a difference to the row's maximum is one
        of at most 256 values: they are a table (Q31 in [0, 1)).
        Source: TFLite's integer softmax over gemmlowp's fixed-point exp and reciprocal (Q5.26 differences, Q12.19 sum).
        int16, and LOG_SOFTMAX of int8: softmax_tables.py.
        Errors: rows of more than 4 095 elements, whose sum can leave Q12.19.
ONNX    along any dimension, or over all from one on (before opset 13); float32; Softmax also int8 and int16, see
        softmax_table. LogSoftmax: x - max - log(sum exp(x - max)). Softmax of float32 has the exponential of ONNX Runtime's MLAS
        library (compute.cpp), whose sums depend on the processor.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from emitc.ir import Array, BoundNode, DType, Numerics, Op
from emitc.kernels.contract import (
    KernelDef,
    Parsed,
    Variant,
    illegal,
    parser,
    require_dtypes,
    require_quantization,
    unsupported,
)
from emitc.kernels.costs import Cost, Costs
from emitc.kernels.normalization import softmax_tables
from emitc.kernels.shared import int16x8
from emitc.kernels.shared.byte_moves import axis_of
from emitc.layer import PLAIN, KernelSpec, Layer, Overlap, Param, Table, in_step
from emitc.numerics import engine_functions, gemmlowp
from emitc.numerics.requantize import Multiplier, multiplier_of, rounding_doubling_high_mul, rounding_shift_right
from emitc.records import dataclass, replace
from emitc.source import SourceNode

_DIFFERENCE_BITS = 5
_SUM_BITS = 12
_MAX_DEPTH = (1 << _SUM_BITS) - 1
_LARGEST = Multiplier(2**31 - 1, 30)
"""What TFLite takes for every factor that has no multiplier (QuantizeMultiplier)."""
_SINGLE_AXIS = 13
"""The opset from which on ONNX's softmax is over one dimension."""
_REALS = ("emitc_fpu_norm.h", "emitc_mve.h", "emitc_mve_float32.h", "emitc_mve_tanh.h", "emitc_mve_exp.h")


@dataclass(frozen=True, slots=True)
class Softmax(Op):
    """beta: factor on the input. axis: the dimension. flat: it and all later ones are one row."""

    beta: float
    axis: int = -1
    flat: bool = False


class LogSoftmax(Softmax):
    """Logarithm of softmax."""


def from_tflite(node: SourceNode) -> Parsed:
    node.counts((1, 1))
    return Parsed(Softmax(node.real("beta")))


def _from_onnx(op: type[Softmax]) -> Callable[[SourceNode], Parsed]:
    def parse(node: SourceNode) -> Parsed:
        node.counts((1, 1))
        rank = len(node.input(0).shape)
        opset = node.integer("opset", _SINGLE_AXIS)
        single = opset >= _SINGLE_AXIS
        axis = axis_of(node, node.integer("axis", -1 if single else 1), rank)
        if node.op_type.startswith("QLinear") and opset == 1 and axis != rank - 1:
            why = f"without an opset its axis {axis} is one dimension, or that and all after it"
            raise node.unsupported("does not say whose Softmax it is", why, "quantize the model again")
        return Parsed(op(1.0, axis, not single))

    return parse


def rows_of(bound: BoundNode) -> softmax_tables.Rows:
    """How the values of one softmax lie."""
    op, shape = bound.op(Softmax), bound.input(0).shape
    axis = op.axis % len(shape) if op.axis < 0 else op.axis
    if op.flat:
        return softmax_tables.Rows(math.prod(shape[:axis]), math.prod(shape[axis:]), 1)
    return softmax_tables.Rows(math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]))


def check_onnx(bound: BoundNode) -> None:
    """Refuses other types than float32 and, for Softmax, int8 and int16; scalars; tensors of no element."""
    x, y = bound.input(0), bound.output
    quantized = (DType.INT8, DType.INT16) if type(bound.node.op) is Softmax else ()
    require_dtypes(
        bound,
        [(DType.FLOAT32, DType.FLOAT32), *((a, b) for a in quantized for b in quantized)],
        [(DType.UINT8, DType.UINT8), (DType.INT8, DType.INT16), (DType.INT16, DType.INT8)],
    )
    softmax_tables.require_rows(bound)
    if x.dtype is not DType.FLOAT32:
        require_quantization(bound, x, y)
        softmax_tables.check_table(bound, rows_of(bound))


def _is_real(bound: BoundNode) -> bool:
    """Whether the softmax is one of float32 values, or of ONNX."""
    return bound.node.op.numerics.float_scale or bound.input(0).dtype is DType.FLOAT32


def _engines_exponential(bound: BoundNode) -> bool:
    """Whether it is a Softmax of ONNX."""
    return type(bound.node.op) is Softmax and bound.node.op.numerics is Numerics.QOPERATOR


def _float_reference(bound: BoundNode, values: Array) -> Array:
    """exp and log in double, rounded to float32; Softmax of ONNX in float32, summed front to back."""
    if _engines_exponential(bound):
        rows = rows_of(bound).view(values.astype(np.float32))
        with np.errstate(all="ignore"):
            powers = engine_functions.exponential(np.asarray(rows - rows.max(axis=1, keepdims=True)))
            shares = powers / np.add.accumulate(powers, axis=1, dtype=np.float32)[:, -1:]
        return np.asarray(shares.reshape(bound.output.shape))
    x = rows_of(bound).view(values.astype(np.float64))
    with np.errstate(invalid="ignore", divide="ignore"):
        shifted = x - x.max(axis=1, keepdims=True)
        if (beta := bound.op(Softmax).beta) != 1.0:
            shifted = (shifted.astype(np.float32) * np.float32(beta)).astype(np.float64)
        total = np.exp(shifted).sum(axis=1, keepdims=True)
        result = shifted - np.log(total) if isinstance(bound.node.op, LogSoftmax) else np.exp(shifted) / total
    return np.asarray(result.astype(np.float32).reshape(bound.output.shape))


def _in_place(bound: BoundNode, rows: softmax_tables.Rows) -> tuple[Overlap, ...]:
    """A row that lies together is read whole before it is written."""
    same = bound.input(0).dtype.bytes == bound.output.dtype.bytes
    return (in_step(bound),) if rows.inner == 1 and same else ()


def _lower_onnx(bound: BoundNode) -> Layer:
    rows, beta = rows_of(bound), bound.op(Softmax).beta
    if bound.input(0).dtype is not DType.FLOAT32:
        layer = softmax_tables.table_layer(bound, rows)
    elif _engines_exponential(bound):
        layer = Layer(
            "normalization/softmax_exp", "portable", (0,), params=rows.params, headers=engine_functions.EXP_HEADERS
        )
    elif beta != 1.0:
        factor = Param("beta", "float", beta, "factor on the differences")
        layer = Layer("normalization/softmax_float_scaled", "portable", (0,), params=(*rows.params, factor))
    else:
        kind = "log_softmax" if isinstance(bound.node.op, LogSoftmax) else "softmax"
        layer = Layer(f"normalization/{kind}_float", "portable", (0,), params=rows.params)
    return replace(layer, overlaps=_in_place(bound, rows))


def transposed(bound: BoundNode, permutation: tuple[int, ...]) -> Op | None:
    """The same softmax along another dimension; over several dimensions it must stay as it is.

    None where the row would no longer lie together and the kernel is one of TFLite's integer ones.
    """
    op = bound.op(Softmax)
    rank = len(permutation)
    if op.flat and op.axis % rank != rank - 1:
        return None
    axis = permutation[op.axis % rank]
    if not _is_real(bound):
        return op if axis == rank - 1 else None
    return replace(op, axis=axis, flat=False)


def check(bound: BoundNode) -> None:
    """Refuses other types, another output scale than TFLite fixes, and rows that are too long; ONNX: see check_onnx."""
    op, x, y = bound.op(Softmax), bound.input(0), bound.output
    if _is_real(bound):
        check_onnx(bound)
        return
    if op.axis not in (-1, len(x.shape) - 1):
        what = f"runs over dimension {op.axis} of {len(x.shape)}"
        why = "TFLite's integer kernels run over the last dimension"
        raise unsupported(bound, what, why, "report this, since TFLite has no such option", x)
    logarithm = isinstance(op, LogSoftmax)
    wider = [] if logarithm else [(DType.INT8, DType.INT16), (DType.INT16, DType.INT16)]
    require_dtypes(bound, [(DType.INT8, DType.INT8), *wider])
    require_quantization(bound, x, y)
    if x.dtype is DType.INT16:
        int16x8.require_symmetric(bound)
        softmax_tables.check_int16(bound, op.beta)
        return
    wide = y.dtype is DType.INT16
    fits = softmax_tables.near(y.scale, 2.0**-16) if wide else y.scale == 2.0**-8
    if logarithm:
        softmax_tables.require_int8_output(bound, 16, 127)
    elif not fits or y.zero_point != y.dtype.range[0]:
        what = f"has another output scale than 1/{65536 if wide else 256}, or another zero point"
        raise illegal(bound, what, f"TFLite's softmax fixes them for {y.dtype.value}", tensor=y)
    if not x.shape or op.beta <= 0:
        raise illegal(bound, "has no row or no positive beta", f"beta {op.beta}", tensor=x)
    if _factor(bound) <= 1.0:
        why = f"scale {x.scale!r} times beta {op.beta!r} leaves nothing of 26 fractional bits"
        raise softmax_tables.out_of_proportion_input(bound, why)
    softmax_tables.require_depth(bound, x.shape[-1], _MAX_DEPTH)


def _factor(bound: BoundNode) -> float:
    """What a difference of quantized values is multiplied with to become Q5.26."""
    return bound.op(Softmax).beta * bound.input(0).scale * (1 << (31 - _DIFFERENCE_BITS))


def _multiplier(bound: BoundNode) -> Multiplier:
    factor = _factor(bound)
    return multiplier_of(factor) if factor < 2.0**30 - 1.0 else _LARGEST


def _exponentials(bound: BoundNode) -> tuple[int, ...]:
    """exp(-d * scale * beta) in Q31 for d = 0, 1, ... until it counts for nothing."""
    multiplier = _multiplier(bound)
    radius = math.floor(((1 << _DIFFERENCE_BITS) - 1) * 2.0 ** (31 - _DIFFERENCE_BITS - multiplier.shift))
    differences = -np.arange(min(256, radius + 1), dtype=np.int64)
    scaled = rounding_doubling_high_mul((differences << max(multiplier.shift, 0)), multiplier.q31)
    return tuple(int(v) for v in gemmlowp.exp_on_negative_values(scaled, _DIFFERENCE_BITS))


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """Row by row, from the table of exponentials."""
    y = bound.output
    assert inputs[0] is not None
    if bound.input(0).dtype is DType.FLOAT32:
        return (_float_reference(bound, inputs[0]),)
    if bound.node.op.numerics.float_scale:
        return (softmax_tables.table_reference(bound, rows_of(bound), inputs[0]),)
    if bound.input(0).dtype is DType.INT16:
        result = softmax_tables.int16_reference(bound, bound.op(Softmax).beta, inputs[0].astype(np.int64))
        return (result.astype(np.int16).reshape(y.shape),)
    if isinstance(bound.node.op, LogSoftmax):
        return (softmax_tables.log_reference(inputs[0], _multiplier(bound), _exponentials(bound)),)
    low, high = y.dtype.range
    table = np.array(_exponentials(bound), np.int64)
    rows = inputs[0].astype(np.int64).reshape(-1, y.shape[-1])
    counted, exponential = softmax_tables.of_distances(rows.max(axis=1, keepdims=True) - rows, table)
    out = np.empty_like(rows)
    for i, row in enumerate(exponential):
        total = int(rounding_shift_right(row, _SUM_BITS)[counted[i]].sum())
        headroom = 32 - total.bit_length()
        scale = gemmlowp.one_over_one_plus_x((total << headroom) - (1 << 31))
        exponent = _SUM_BITS - headroom + 31 - 8 * y.dtype.bytes
        out[i] = rounding_shift_right(rounding_doubling_high_mul(row, scale), exponent) + low
    return (np.clip(np.where(counted, out, low), low, high).astype(y.dtype.value).reshape(y.shape),)


def lower(bound: BoundNode) -> Layer:
    """One table, two passes over each row; the row may be overwritten in place."""
    if _is_real(bound):
        return _lower_onnx(bound)
    y = bound.output
    if bound.input(0).dtype is DType.INT16:
        return softmax_tables.int16_layer(bound, bound.op(Softmax).beta)
    table = _exponentials(bound)
    if isinstance(bound.node.op, LogSoftmax):
        return softmax_tables.log_layer(bound, _multiplier(bound), table)
    params = (
        *softmax_tables.row_params(y.shape),
        Param("steps", "int32_t", len(table), "entries of the table; beyond it exp counts for nothing"),
        Param("bits", "int32_t", 8 * y.dtype.bytes, "of the output"),
        Param("clamp_low", "int32_t", y.dtype.range[0]),
        Param("clamp_high", "int32_t", y.dtype.range[1]),
    )
    return Layer(
        "normalization/softmax",
        tables=(Table("exponentials", "int32_t", table, "exp of minus the distance to the maximum, Q31"),),
        params=params,
        spec=PLAIN if y.dtype is DType.INT8 else KernelSpec("_y16", y="int16_t"),
        headers=("emitc_bits.h",),
        overlaps=(in_step(bound),),
    )


def _no_variant(layer: Layer) -> str:
    return f"{layer.kernel_name}{layer.spec.suffix} has a portable version only"


def lower_mve(bound: BoundNode) -> Layer | str:
    """Four shares at a time; ONNX's in float32."""
    rows, portable = rows_of(bound), lower(bound)
    if bound.input(0).dtype is DType.FLOAT32:
        layer = _lower_real(bound, "mve") if rows.inner == 1 else "the values of a row are not contiguous"
        return layer if isinstance(layer, str) else replace(layer, headers=(*layer.headers, *_REALS))
    if bound.node.op.numerics.float_scale:
        layer = softmax_tables.table_vectors(bound, rows)
        return layer if isinstance(layer, str) else replace(layer, overlaps=_in_place(bound, rows))
    headers = ("emitc_bits.h", "emitc_mve.h", "emitc_mve_softmax.h")
    if portable.template == "normalization/softmax_s16":
        return replace(portable, template="normalization/softmax_s16_mve", headers=headers)
    if portable.template != "normalization/softmax" or portable.spec is not PLAIN:
        return _no_variant(portable)
    (table,) = portable.tables
    # A larger distance reads the 0 after the table, which takes no comparison.
    table = replace(table, values=(*table.values, 0), comment=f"{table.comment}; 0 for all larger ones")
    params = tuple(param for param in portable.params if param.name in ("rows", "depth", "steps"))
    return replace(portable, template="normalization/softmax_mve", tables=(table,), params=params, headers=headers)


def _lower_real(bound: BoundNode, variant: str) -> Layer | str:
    """ONNX's of float32 with the exponential of an instruction set."""
    portable = lower(bound)
    if portable.template != "normalization/softmax_exp":
        return _no_variant(portable)
    return replace(portable, template=f"normalization/softmax_exp_{variant}")


_definition = partial(
    KernelDef, check=check, reference=reference, lower=lower, work=softmax_tables.row_work, transposed=transposed
)
_INT16 = Cost(output=33, once=110)
_VECTORS = Costs("qemu_m55 at 6606f35, 2026-11-22", Cost(output=9, once=90), {"int16": Cost(output=12, once=110)})
_FLOAT_UNIT = Costs("qemu_m4 at 82f2529, 2026-11-23", Cost(output=20, once=150))
KERNELS = (
    _definition(
        Softmax,
        "softmax over the last dimension; ONNX: along any",
        (DType.INT8, DType.INT16, DType.FLOAT32),
        ("SOFTMAX",),
        from_tflite,
        tflite_dtypes=(DType.INT8, DType.UINT8, DType.INT16, DType.FLOAT32),
        onnx=("Softmax",),
        from_onnx=_from_onnx(Softmax),
        variants=(
            Variant("mve", "mve", lower_mve, _VECTORS, (DType.INT8, DType.INT16, DType.FLOAT32)),
            Variant(
                "fpu",
                "fpu",
                partial(_lower_real, variant="fpu"),
                _FLOAT_UNIT,
                (DType.FLOAT32,),
                headers=("emitc_fpu_exp.h",),
            ),
        ),
        cost=Costs("qemu_m4 at 5d63adc 6606f35, 2026-11-22", Cost(output=21.5, once=150), {"int16": _INT16}),
        cost_with_vectors=Costs(
            "qemu_m55 at 5d63adc 6606f35, 2026-11-22", Cost(output=21, once=155), {"int16": _INT16}
        ),
    ),
    _definition(
        LogSoftmax,
        "logarithm of softmax over the last dimension; ONNX: along any",
        (DType.FLOAT32,),
        ("LOG_SOFTMAX",),
        parser(LogSoftmax(1.0)),
        tflite_dtypes=(DType.INT8, DType.FLOAT32),
        onnx=("LogSoftmax",),
        from_onnx=_from_onnx(LogSoftmax),
    ),
)

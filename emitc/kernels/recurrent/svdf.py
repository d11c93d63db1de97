"""SVDF: each filter scores the newest input, and weighs its last M scores; R filters together make an output.

s = clamp(rq1(sum((x - x_zero) * wf))) is appended to the filter's memory, whose oldest value falls out;
y = clamp(y_zero + rq2(b + sum over R filters and M values of (s - s_zero) * wt)).

Shapes  x [B, I], wf [F, I], wt [F, M], b [F / R] or none, memory [B, F * M], y [B, F / R].
Types   int8; wt and memory both int8, or both int16 and then without zero point; b and sums int32. float32 throughout, without
        rq1, rq2 and zero points: then y is limited by the activation alone.
        In int8 y is limited by its type alone, whatever activation is fused.
Errors  constants that are computed.
Source  TFLite Micro's SVDF: s is limited to the memory's type before its zero point is added, which wraps; sums wrap at
        32 bits. Both factors are computed in double (measured, on sums for which float32 would give another result).
        Floats are summed in order: each filter's products by themselves, then the filters of an output onto its bias.
"""

import math
from collections.abc import Sequence

import numpy as np

from emitc.errors import Note, NoteCode
from emitc.ir import Array, BoundNode, DType, Op, Shape, Tensor
from emitc.kernels.contract import (
    KernelDef,
    Parsed,
    illegal,
    require_constants,
    require_dtypes,
    require_one_scale,
    require_quantization,
    require_rank,
)
from emitc.kernels.costs import Cost, Costs
from emitc.kernels.mac import four_channels
from emitc.kernels.mac.accumulation import FACTOR_LIMIT
from emitc.kernels.mac.weight_packing import blocks_of_four
from emitc.kernels.recurrent.recurrence import Real, require_input_shapes
from emitc.kernels.shared.pointwise import ACTIVATION_BOUNDS
from emitc.kernels.shared.windows import ACTIVATIONS
from emitc.layer import KernelSpec, Layer, Param, Table
from emitc.numerics.requantize import (
    INT32_MAX,
    Clamp,
    Int64,
    Multiplier,
    activation_clamp,
    multiplier_of,
    requantize,
    scale_ratio,
)
from emitc.records import dataclass
from emitc.source import SourceNode

X, FEATURE, TIME, BIAS, MEMORY = range(5)
_SIXTEEN_BITS = KernelSpec("_s16", w="int16_t")


@dataclass(frozen=True, slots=True)
class Svdf(Op):
    """rank: filters of an output. activation: fused."""

    rank: int
    activation: str


def from_tflite(node: SourceNode) -> Parsed:
    """The options; the memory is read and updated."""
    node.counts((MEMORY + 1, MEMORY + 1) if node.has_input(BIAS) else (BIAS, MEMORY + 1))
    node.input(MEMORY)
    activation = node.text("fused_activation_function", ACTIVATIONS)
    op = Svdf(node.integer("rank", low=1, high=1 << 16), activation)
    return Parsed(op, (X, FEATURE, TIME, BIAS, MEMORY), states=(MEMORY,))


def in_float(bound: BoundNode) -> bool:
    return bound.input(X).dtype is DType.FLOAT32


def check(bound: BoundNode) -> None:
    """Refuses what the module's docstring lists."""
    x, feature, time, memory = (bound.input(i) for i in (X, FEATURE, TIME, MEMORY))
    bias, y = bound.optional(BIAS), bound.output
    middle = (DType.INT32,) if bias else ()
    floats = (DType.FLOAT32,) * (len(middle) + 6)
    taken = [(DType.INT8, DType.INT8, t, *middle, t, DType.INT8, t) for t in (DType.INT8, DType.INT16)]
    hybrid = (floats[0], DType.INT8, *floats[2:])
    require_dtypes(bound, [*taken, floats], (hybrid,))
    if not in_float(bound):
        require_quantization(bound, x, memory, y)
        require_one_scale(bound, feature, time)
    for tensor in (x, feature, time, memory):
        require_rank(bound, tensor, 2)
    what, why = "with computed weights is not supported", "weights and bias must be constants"
    require_constants(bound, (feature, time, bias), what, why, "export the model with constant weights")
    filters, depth = feature.shape
    rank = bound.op(Svdf).rank
    if min(*x.shape, *feature.shape, *time.shape) < 1 or filters % rank:
        raise illegal(
            bound,
            "has sizes that do not fit",
            f"{filters} filters of {depth} values, {rank} for each output",
            tensor=feature,
        )
    expected: dict[int, Shape] = {
        X: (x.shape[0], depth),
        TIME: (filters, time.shape[1]),
        MEMORY: (x.shape[0], filters * time.shape[1]),
    }
    if bias is not None:
        expected[BIAS] = (filters // rank,)
    require_input_shapes(bound, expected)
    if not in_float(bound):
        _require_symmetric(bound)
        _require_range(bound)


def _note(bound: BoundNode) -> Note | None:
    """That an activation which would limit int8 outputs further than their type is left out."""
    activation, y = bound.op(Svdf).activation, bound.output
    if in_float(bound) or activation_clamp(activation, y) == _whole(y):
        return None
    return Note(NoteCode.LEFT_OUT, f"fused {activation} is left out, as in TFLite Micro")


def _require_symmetric(bound: BoundNode) -> None:
    wide = bound.input(MEMORY).dtype is DType.INT16
    for position in (FEATURE, TIME, *((MEMORY,) if wide else ())):
        tensor = bound.input(position)
        if tensor.zero_point:
            what = "has weights or a 16-bit memory with a zero point"
            raise illegal(bound, what, "they are symmetric in TFLite's scheme", "quantize the model again", tensor)


def _require_range(bound: BoundNode) -> None:
    """Refuses factors out of proportion, and scores whose sum can leave 32 bits."""
    factors = _factors(bound)
    if not all(0.0 <= factor < FACTOR_LIMIT for factor in factors):
        why = f"the factors of scales are {factors[0]!r} and {factors[1]!r}"
        raise illegal(bound, "has an output scale that is out of proportion", why, "quantize again", bound.output)
    weights = bound.input(FEATURE).array().astype(np.int64)
    # The products with inputs as they are, and those with the zero point that are taken off in front.
    worst = int(np.abs(weights).sum(axis=1).max()) * 256
    if worst > INT32_MAX:
        what = "can overflow an accumulator of 32 bits"
        hint = "quantize the model again: weights of this size are not meaningful"
        raise illegal(bound, what, f"a filter's score can reach {worst}", hint, bound.input(FEATURE))


def _whole(tensor: Tensor) -> Clamp:
    return Clamp(*tensor.dtype.range)


def _factors(bound: BoundNode) -> tuple[float, float]:
    """From the scores' sums to the memory, and from the memory's sums to the output."""
    x, wf, wt, memory = (bound.input(i).scale for i in (X, FEATURE, TIME, MEMORY))
    return scale_ratio(x, wf, over=memory), scale_ratio(memory, wt, over=bound.output.scale)


def multipliers(bound: BoundNode) -> tuple[Multiplier, Multiplier]:
    """Of the scores, and of their weighed sums."""
    first, second = _factors(bound)
    return multiplier_of(first), multiplier_of(second)


def _bias(bound: BoundNode) -> Int64:
    bias = bound.optional(BIAS)
    units = bound.input(FEATURE).shape[0] // bound.op(Svdf).rank
    return np.zeros(units, np.int64) if bias is None else bias.array().astype(np.int64)


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """[B, F / R], and the memory's."""
    batches, filters = bound.input(X).shape[0], bound.input(FEATURE).shape[0]
    return (batches, filters // bound.op(Svdf).rank), bound.input(MEMORY).shape


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """In int64; what wraps at 32 bits, or in the memory's type, does so explicitly. Floats in double."""
    x, old, y, memory = inputs[X], inputs[MEMORY], bound.output, bound.input(MEMORY)
    assert x is not None and old is not None
    if in_float(bound):
        return _real(bound, x.astype(np.float64), old)
    scored, summed = multipliers(bound)
    feature, time = (bound.input(i).array().astype(np.int64) for i in (FEATURE, TIME))
    scores = (x.astype(np.int64) - bound.input(X).zero_point) @ feature.T
    limited = _whole(memory).apply(requantize(scores, scored.q31, scored.shift), DType.INT32)
    newest = (limited.astype(np.int64) + memory.zero_point).astype(memory.dtype.value)
    kept = old.reshape(len(x), *time.shape)[:, :, 1:]
    new = np.concatenate([kept, newest[:, :, None]], axis=2)
    products = (new.astype(np.int64) - memory.zero_point) * time
    units = products.reshape(len(x), -1, bound.op(Svdf).rank * time.shape[1]).sum(axis=2) + _bias(bound)
    wrapped = units.astype(np.int32).astype(np.int64)
    offset = requantize(wrapped, summed.q31, summed.shift) + y.zero_point
    values = _whole(y).apply(offset.astype(np.int32).astype(np.int64), y.dtype)
    return values, np.ascontiguousarray(new.reshape(memory.shape))


def _real(bound: BoundNode, x: Real, old: Array) -> tuple[Array, ...]:
    feature, time = (bound.input(i).array().astype(np.float64) for i in (FEATURE, TIME))
    bias, rank = bound.optional(BIAS), bound.op(Svdf).rank
    low, high = _limits(bound)
    with np.errstate(all="ignore"):
        kept = old.reshape(len(x), *time.shape)[:, :, 1:]
        new = np.concatenate([kept, (x @ feature.T).astype(np.float32)[:, :, None]], axis=2)
        sums = (new * time).sum(axis=2).reshape(len(x), -1, rank).sum(axis=2)
        values = sums if bias is None else sums + bias.array().astype(np.float64)
        limited = np.where(values < low, low, np.where(values > high, high, values)).astype(np.float32)
    return limited, np.ascontiguousarray(new.astype(np.float32).reshape(bound.input(MEMORY).shape))


def _limits(bound: BoundNode) -> tuple[float, float]:
    """Of a float output; without an activation it may be infinite."""
    low, high = ACTIVATION_BOUNDS[bound.op(Svdf).activation]
    return -math.inf if low is None else low, math.inf if high is None else high


def _lower_float(bound: BoundNode) -> Layer:
    x, feature, time = (bound.input(i) for i in (X, FEATURE, TIME))
    bias, units = bound.optional(BIAS), bound.output.shape[1]
    offsets = (0.0,) * units if bias is None else tuple(bias.array().tolist())
    low, high = _limits(bound)
    tables = (
        Table("feature", "float", tuple(feature.array().reshape(-1).tolist()), "feature weights, filter by filter"),
        Table("time", "float", tuple(time.array().reshape(-1).tolist()), "time weights"),
        Table("bias", "float", offsets, "bias per output"),
    )
    params = (
        Param("batches", "int32_t", x.shape[0]),
        Param("in", "int32_t", x.shape[1]),
        Param("units", "int32_t", units),
        Param("rank", "int32_t", bound.op(Svdf).rank, "filters of an output"),
        Param("steps", "int32_t", time.shape[1], "values that a filter remembers"),
        Param("low", "float", low, "the activation's bounds"),
        Param("high", "float", high),
    )
    return Layer("recurrent/svdf_float", "portable", (X,), tables, params, macs=work(bound))


def lower(bound: BoundNode) -> Layer:
    """Filter by filter, four of which share the input's values; no scratch."""
    if in_float(bound):
        return _lower_float(bound)
    x, feature, time, memory = (bound.input(i) for i in (X, FEATURE, TIME, MEMORY))
    (filters, depth), steps = feature.shape, time.shape[1]
    scored, summed = multipliers(bound)
    start = -x.zero_point * feature.array().astype(np.int64).sum(axis=1)
    c_type = time.dtype.c_type
    tables = (
        Table(
            "feature", "int8_t", tuple(blocks_of_four(feature.array()).tolist()),
            f"feature weights {filters}x{depth}, filters interleaved four by four",
        ),
        Table("start", "int32_t", tuple(start.tolist()), "the input zero point's share of each filter's score"),
        Table("time", c_type, tuple(time.array().reshape(-1).tolist()), f"time weights {filters}x{steps}"),
        Table("bias", "int32_t", tuple(_bias(bound).tolist()), "bias per output"),
    )  # fmt: skip
    low, high = memory.dtype.range
    params = (
        Param("batches", "int32_t", x.shape[0]),
        Param("in", "int32_t", depth),
        Param("filters", "int32_t", filters),
        Param("rank", "int32_t", bound.op(Svdf).rank, "filters of an output"),
        Param("steps", "int32_t", steps, "values that a filter remembers"),
        Param("score_q31", "int32_t", scored.q31),
        Param("score_shift", "int32_t", scored.shift, "positive left"),
        Param("score_low", "int32_t", low),
        Param("score_high", "int32_t", high),
        Param("memory_zero", "int32_t", memory.zero_point),
        Param("output_q31", "int32_t", summed.q31),
        Param("output_shift", "int32_t", summed.shift, "positive left"),
        Param("output_zero", "int32_t", bound.output.zero_point),
    )
    kind = _SIXTEEN_BITS if time.dtype is DType.INT16 else KernelSpec()
    return Layer("recurrent/svdf", "portable", (X,), tables, params, macs=work(bound), spec=kind)


def _filters(bound: BoundNode) -> dict[str, Array] | str:
    """The feature weights by the role of their table, or why there are no kernels for them."""
    if bound.input(TIME).dtype is not DType.INT8:
        return f"a memory of {bound.input(TIME).dtype.value}"
    return {"feature": bound.input(FEATURE).array()}


def work(bound: BoundNode) -> int:
    filters, depth = bound.input(FEATURE).shape
    return bound.input(X).shape[0] * filters * (depth + bound.input(TIME).shape[1])


KERNELS = (
    KernelDef(
        Svdf,
        "filters over the last inputs, which they remember",
        (DType.INT8, DType.INT16, DType.FLOAT32),
        tflite={"SVDF": from_tflite},
        check=check,
        reference=reference,
        lower=lower,
        output_shapes=output_shapes,
        work=work,
        note=_note,
        variants=four_channels.int8_variants(
            lower,
            _filters,
            Costs("qemu_m55 at 4d93568, 2026-11-22", Cost(mac=0.7, output=40)),
            Costs("qemu_m4 at 4d93568, 2026-11-22", Cost(mac=2.0, output=40)),
        ),
        cost=Costs("qemu_m4 at 4d93568, 2026-11-22", Cost(mac=5.0, output=60)),
    ),
)

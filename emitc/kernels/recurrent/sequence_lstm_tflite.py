"""UNIDIRECTIONAL_SEQUENCE_LSTM: a layer of cells over all steps of a sequence; its state stays from one run to the next.

i = sigmoid(Wi x + Ri h + bi), f = sigmoid(Wf x + Rf h + bf), g = tanh(Wg x + Rg h + bg), c' = clip(f c + i g),
o = sigmoid(Wo x + Ro h + bo), h' = o tanh(c'), y = h'

Shapes  x [B, T, I], or [T, B, I] where time_major; each W [U, I], R [U, U], b [U]; h and c [B, U]; y as x with U for I.
Types   int8 with c in int16 and b in int32; int16 without zero points, with int8 weights and b in int64; float32.
Errors  peepholes, a projection, layer normalization, coupled gates; weights with several scales; computed weights.
Source  TFLite Micro. int8: both products of a gate are requantized to Q3.12 and limited to 16 bits before they are added; so
        are f c and i g, to the scale of c; sigmoid and tanh by the table of `sigmoid_table.py`; h' is requantized from tanh(c')
        in Q0.15 times o in Q0.15. The scale of c is a power of two. int16: the same, with sums of 64 bits that are requantized
        by multipliers of 16 bits.
"""

import math
from collections.abc import Sequence

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op, Shape
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
from emitc.kernels.recurrent.recurrence import Real, Sizes, require_input_shapes, sigmoid
from emitc.kernels.shared import int16x8
from emitc.kernels.shared.sigmoid_table import MAX_LEFT, sigmoid_q15, sigmoid_table, tanh_q15, tanh_scaling
from emitc.kernels.shared.windows import whole_window
from emitc.layer import KernelSpec, Layer, Overlap, Param, Table, WindowOrder
from emitc.numerics.requantize import INT32_MAX, Int64, Multiplier, multiplier_of, requantize, requantize_reduced
from emitc.records import dataclass
from emitc.source import SourceNode

X = 0
INPUT_WEIGHTS, STATE_WEIGHTS, BIASES = 1, 5, 12
"""Positions of the first of four operands: for the gates i, f, g, o."""
HIDDEN, CELL = 18, 19
GATES = 4
_INPUTS, _ALL_INPUTS = 20, 24
"""With layer normalization a node has four more."""
_PEEPHOLES, _PROJECTION, _NORMALIZATION = (9, 10, 11), (16, 17), (20, 21, 22, 23)
_OPERANDS = (0, *range(1, 9), *range(12, 16), 18, 19)
"""Inputs of the source that are operands; positions below are among these."""
_GATE_SCALE = 2.0**-12
_UNIT_SCALE = 2.0**-15
INPUT, RECURRENT = (1, 2, 3, 4), (5, 6, 7, 8)
"""Operands: the weights of i, f, g, o."""
_SHORTS = KernelSpec(acc="int64_t", reduced=True)
_B = (9, 10, 11, 12)
_H, _C = 13, 14


@dataclass(frozen=True, slots=True)
class UnidirectionalSequenceLstm(Op):
    """time_major: x is [T, B, I]. cell_clip: largest magnitude of c, 0 for none."""

    time_major: bool
    cell_clip: float


def from_tflite(node: SourceNode) -> Parsed:
    """The options. Refuses variants of the cell by the inputs that they have, or lack."""
    wanted = _INPUTS if len(node.inputs) <= _INPUTS else _ALL_INPUTS
    if len(node.inputs) != wanted or len(node.outputs) != 1:
        why = f"{_INPUTS} or {_ALL_INPUTS} inputs and one output are expected"
        hint = "the file is damaged: export the model again"
        raise node.refusal(f"has {len(node.inputs)} inputs and {len(node.outputs)} outputs", why, hint)
    node.text("fused_activation_function", ("TANH",))
    none = "TFLite Micro, whose result is to be matched, has none"
    variants = ((_PEEPHOLES, "peepholes"), (_PROJECTION, "a projection"), (_NORMALIZATION, "layer normalization"))
    for positions, what in variants:
        if any(node.has_input(position) for position in positions):
            raise node.unsupported(f"with {what} is not supported", none, "train the net without")
    if not all(node.has_input(position) for position in (INPUT_WEIGHTS, STATE_WEIGHTS, BIASES)):
        what = "with coupled input and forget gates is not supported"
        raise node.unsupported(what, none, "train the net with an input gate of its own")
    for position in _OPERANDS:
        node.input(position)
    clip = node.real("cell_clip", 0.0)
    if clip < 0.0:
        raise node.refusal(f"has cell_clip {clip!r}", "it is a magnitude, or 0")
    op = UnidirectionalSequenceLstm(bool(node.attribute("time_major", False)), clip)
    return Parsed(op, _OPERANDS, states=(HIDDEN, CELL))


def is_time_major(bound: BoundNode) -> bool:
    """Whether steps come before batches."""
    return bound.op(UnidirectionalSequenceLstm).time_major


def in_float(bound: BoundNode) -> bool:
    return bound.input(X).dtype is DType.FLOAT32


def is_int16(bound: BoundNode) -> bool:
    return bound.input(X).dtype is DType.INT16


def sizes_of(bound: BoundNode) -> Sizes:
    """The sizes; `check` has shown x to have three dimensions and the weights two."""
    first, second, inputs = bound.input(X).shape
    batches, steps = (second, first) if is_time_major(bound) else (first, second)
    return Sizes(steps, batches, inputs, bound.input(INPUT[0]).shape[0], directions=1)


def check(bound: BoundNode) -> None:
    """Refuses what the module's docstring lists."""
    narrow = (DType.INT8,) * 9 + (DType.INT32,) * 4 + (DType.INT8, DType.INT16, DType.INT8, DType.INT8, DType.INT16)
    wide = (DType.INT16,) + (DType.INT8,) * 8 + (DType.INT64,) * 4 + (DType.INT16,) * 5
    hybrid = (DType.FLOAT32,) + (DType.INT8,) * 8 + (DType.FLOAT32,) * 9
    require_dtypes(bound, [narrow, wide, (DType.FLOAT32,) * 18], (hybrid,))
    require_rank(bound, bound.input(X), 3)
    require_rank(bound, bound.input(INPUT[0]), 2)
    weights = [bound.input(position) for position in (*INPUT, *RECURRENT, *_B)]
    what = "with computed weights is not supported"
    require_constants(
        bound, weights, what, "weights and bias must be constants", "export the model with constant weights"
    )
    _require_shapes(bound)
    if not in_float(bound):
        _require_scales(bound)
        _require_sums(bound)


def _require_shapes(bound: BoundNode) -> None:
    s = sizes_of(bound)
    if min(s.batches, s.steps, s.inputs, s.units) < 1:
        raise illegal(bound, "has an empty input", "a dimension is 0", tensor=bound.input(X))
    expected: dict[int, Shape] = dict.fromkeys(INPUT, (s.units, s.inputs))
    expected |= dict.fromkeys(RECURRENT, (s.units, s.units))
    expected |= {**dict.fromkeys(_B, (s.units,)), **dict.fromkeys((_H, _C), (s.batches, s.units))}
    require_input_shapes(bound, expected)


def _require_scales(bound: BoundNode) -> None:
    """Refuses scales and zero points that the arithmetic does not have, and factors out of proportion."""
    x, h, c, y = bound.input(X), bound.input(_H), bound.input(_C), bound.output
    require_quantization(bound, x, h, c, y)
    require_one_scale(bound, *(bound.input(position) for position in (*INPUT, *RECURRENT)))
    if is_int16(bound):
        int16x8.require_symmetric(bound)
    for tensor in (*(bound.input(position) for position in (*INPUT, *RECURRENT)), c):
        if tensor.zero_point:
            what = "has weights or a cell state with a zero point"
            raise illegal(bound, what, "they are symmetric in TFLite", "quantize the model again", tensor)
    if (h.scale, h.zero_point) != (y.scale, y.zero_point):
        what = "has an output quantized otherwise than its hidden state"
        raise illegal(bound, what, "they are the same values", tensor=y)
    mantissa, exponent = math.frexp(c.scale)
    if mantissa != 0.5 or not -12 - MAX_LEFT <= exponent - 1 <= MAX_LEFT - 12:
        why = f"a power of two from 2**{-12 - MAX_LEFT} to 2**{MAX_LEFT - 12} is expected"
        raise illegal(bound, f"has the scale {c.scale!r} for its cell state", why, "quantize the model again", c)
    gates, products = _real_factors(bound)
    limit = int16x8.FACTOR_LIMIT if is_int16(bound) else FACTOR_LIMIT
    if max(gates) >= limit or max(products) > 1.0:
        why = f"the largest factors are {max(gates)!r} of a gate and {max(products)!r} of a product of gates"
        raise illegal(bound, "has an output scale that is out of proportion", why, "quantize again", y)


def _require_sums(bound: BoundNode) -> None:
    wide = is_int16(bound)
    reach, limit = (1 << 15, int16x8.SUM_MAX) if wide else (256, INT32_MAX)
    for weights, bias in (*zip(INPUT, _B, strict=True), *((position, None) for position in RECURRENT)):
        worst = reach * np.abs(bound.input(weights).array().astype(np.int64)).sum(axis=1)
        if bias is not None:
            worst = worst + np.abs(bound.input(bias).array().astype(np.int64))
        if int(worst.max()) > limit:
            what = f"can overflow an accumulator of {48 if wide else 32} bits"
            hint = "quantize the model again: weights or bias of this size are not meaningful"
            raise illegal(bound, what, f"a sum can reach {int(worst.max())}", hint, bound.input(weights))


def recurrent_parts(bound: BoundNode) -> list[float]:
    """The largest magnitude of each gate's recurrent part in Q3.12, were it not limited."""
    factors, _ = _real_factors(bound)
    reach = max(abs(limit - bound.input(_H).zero_point) for limit in DType.INT8.range)
    sums = (np.abs(bound.input(p).array().astype(np.int64)).sum(axis=1).max() for p in RECURRENT)
    return [float(total) * reach * factor for total, factor in zip(sums, factors[GATES:], strict=True)]


def _real_factors(bound: BoundNode) -> tuple[list[float], list[float]]:
    """From sums to gates (of inputs, then of states), and from products to c twice and to h; in double."""
    gates = [bound.input(X).scale * bound.input(p).scale / _GATE_SCALE for p in INPUT]
    gates += [bound.input(_H).scale * bound.input(p).scale / _GATE_SCALE for p in RECURRENT]
    cell = bound.input(_C).scale
    square = _UNIT_SCALE * _UNIT_SCALE
    return gates, [_UNIT_SCALE * cell / cell, square / cell, square / bound.input(_H).scale]


def multipliers(bound: BoundNode) -> tuple[list[Multiplier], list[Multiplier]]:
    """Of gates i, f, g, o for inputs, then for states; of f c, of i g and of o tanh(c)."""
    gates, products = _real_factors(bound)
    return [multiplier_of(factor) for factor in gates], [multiplier_of(factor) for factor in products]


def cell_exponent(bound: BoundNode) -> int:
    """Of the cell state's scale to base two."""
    return math.frexp(bound.input(_C).scale)[1] - 1


def cell_limit(bound: BoundNode) -> int | None:
    """Largest magnitude of c in its own units, rounded towards 0; None for no limit."""
    clip = bound.op(UnidirectionalSequenceLstm).cell_clip
    return int(min(clip / bound.input(_C).scale, 32767.0)) if clip > 0.0 else None


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """As x with the units last, and those of the states."""
    return (*bound.input(X).shape[:2], sizes_of(bound).units), bound.input(_H).shape, bound.input(_C).shape


# ---- reference ----


def _sixteen_bits(values: Int64) -> Int64:
    return np.clip(values, -(2**15), 2**15 - 1)


def _integer_step(bound: BoundNode, x: Int64, h: Int64, c: Int64) -> tuple[Int64, Int64]:
    """h and c [B, U] after a step."""
    gates, (keep, add, out) = multipliers(bound)
    scaled = requantize_reduced if is_int16(bound) else requantize
    x, h = x - bound.input(X).zero_point, h - bound.input(_H).zero_point
    sums = []
    for k in range(GATES):
        of_x = x @ bound.input(INPUT[k]).array().astype(np.int64).T + bound.input(_B[k]).array().astype(np.int64)
        of_h = h @ bound.input(RECURRENT[k]).array().astype(np.int64).T
        first = _sixteen_bits(scaled(of_x, gates[k].q31, gates[k].shift))
        second = _sixteen_bits(scaled(of_h, gates[GATES + k].q31, gates[GATES + k].shift))
        sums.append(_sixteen_bits(first + second))
    i, f, o = (sigmoid_q15(sums[k]) for k in (0, 1, 3))
    g = tanh_q15(sums[2], -12)
    kept = _sixteen_bits(requantize(f * c, keep.q31, keep.shift))
    c = _sixteen_bits(kept + _sixteen_bits(requantize(i * g, add.q31, add.shift)))
    limit = cell_limit(bound)
    if limit is not None:
        c = np.clip(c, -limit, limit)
    h = requantize(o * tanh_q15(c, cell_exponent(bound)), out.q31, out.shift) + bound.input(_H).zero_point
    return np.clip(h, *bound.output.dtype.range), c


def _float_step(bound: BoundNode, x: Real, h: Real, c: Real) -> tuple[Real, Real]:
    """h and c [B, U] after a step, in double."""
    sums = []
    for positions in zip(INPUT, RECURRENT, _B, strict=True):
        w, r, b = (bound.input(position).array().astype(np.float64) for position in positions)
        sums.append(x @ w.T + h @ r.T + b)
    i, f, o = (sigmoid(sums[k]) for k in (0, 1, 3))
    c = f * c + i * np.tanh(sums[2])
    clip = bound.op(UnidirectionalSequenceLstm).cell_clip
    if clip > 0.0:
        c = np.clip(c, -clip, clip)
    return o * np.tanh(c), c


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """Step by step, all batches and units of a step at once: in int64, or in double."""
    s = sizes_of(bound)
    x, h, c = inputs[X], inputs[_H], inputs[_C]
    assert x is not None and h is not None and c is not None
    working = np.float64 if in_float(bound) else np.int64
    sequence = (x if is_time_major(bound) else x.swapaxes(0, 1)).astype(working)
    hidden, cell = (state.astype(working).reshape(s.batches, s.units) for state in (h, c))
    step = _float_step if in_float(bound) else _integer_step
    every = []
    with np.errstate(all="ignore"):
        for values in sequence:
            hidden, cell = step(bound, values, hidden, cell)  # type: ignore[arg-type]
            every.append(hidden)
    y = np.stack(every, axis=0 if is_time_major(bound) else 1)
    states = ((hidden, bound.input(_H)), (cell, bound.input(_C)))
    return (
        y.astype(bound.output.dtype.value),
        *(np.ascontiguousarray(value.reshape(t.shape)).astype(t.dtype.value) for value, t in states),
    )


# ---- layer ----


def _interleaved(bound: BoundNode, positions: Sequence[int]) -> Array:
    """Weights [U, K] of the four gates, or vectors [U], side by side: the gates are the last dimension."""
    return np.stack([bound.input(position).array() for position in positions], axis=-1)


def starts(bound: BoundNode) -> tuple[Int64, Int64]:
    """Where the sums of inputs and states begin, [U, 4]: biases and the zero points' shares."""
    of_x = _interleaved(bound, INPUT).astype(np.int64).sum(axis=1) * -bound.input(X).zero_point
    of_h = _interleaved(bound, RECURRENT).astype(np.int64).sum(axis=1) * -bound.input(_H).zero_point
    return of_x + _interleaved(bound, _B).astype(np.int64), of_h


def _size_params(bound: BoundNode) -> tuple[Param, ...]:
    """Two loops over the rows of x in their order, the distance of states in each, and where y has the row before."""
    s = sizes_of(bound)
    major = is_time_major(bound)
    return (
        Param("outer", "int32_t", s.steps if major else s.batches, "steps" if major else "batches"),
        Param("inner", "int32_t", s.batches if major else s.steps, "batches" if major else "steps"),
        Param("time_major", "int32_t", int(major)),
        Param("steps", "int32_t", s.steps),
        Param("in", "int32_t", s.inputs),
        Param("units", "int32_t", s.units),
        Param("step_back", "int32_t", s.units * (s.batches if major else 1), "elements of y from one step to the next"),
    )


def _overlaps(bound: BoundNode) -> tuple[Overlap, ...]:
    """Row by row: all of y's row but the last unit are stored before x's row is read for the last time."""
    s, width = sizes_of(bound), bound.output.dtype.bytes
    rows, one = s.batches * s.steps, 1
    walk = WindowOrder(
        batches=rows, in_h=one, in_w=one, out_h=one, out_w=one, kernel_h=one, kernel_w=one, stride_h=one, stride_w=one,
        dilation_h=one, dilation_w=one, pad_top=0, pad_left=0, in_pixel=s.inputs * width, out_pixel=s.units * width,
        ahead=whole_window(s.units, 1, width),
    )  # fmt: skip
    return (Overlap(X, 0, walk),)


def lower(bound: BoundNode) -> Layer:
    """All units of a step one after the other, with the four gates of a unit together; no scratch: h is y's last row."""
    if in_float(bound):
        return _lower_float(bound)
    gates, products = multipliers(bound)
    of_x, of_h = starts(bound)
    factor, right = tanh_scaling(cell_exponent(bound))
    limit = cell_limit(bound)
    biases, extent = tuple(of_x.reshape(-1).tolist()), "for i, f, g, o of inputs, then of states"
    tables: tuple[Table, ...] = (
        _weights("w", bound, INPUT, "int8_t", "input weights"),
        _weights("r", bound, RECURRENT, "int8_t", "recurrent weights"),
    )
    if is_int16(bound):
        factors = int16x8.tables([m.q31 for m in gates], [m.shift for m in gates], _SHORTS, extent)
        tables = (*tables, Table("bias", "int64_t", biases, "biases of each unit's gates"), *factors, sigmoid_table())
    else:
        starts_of_h = tuple(of_h.reshape(-1).tolist())
        tables = (
            *tables,
            Table("bias", "int32_t", biases, "biases of each unit's gates with the input's zero point"),
            Table("start", "int32_t", starts_of_h, "the hidden state's zero point in the same sums"),
            Table("multiplier", "int32_t", tuple(m.q31 for m in gates), f"Q31 {extent}"),
            Table("shift", "int8_t", tuple(m.shift for m in gates), "shift of the product, positive left"),
            sigmoid_table(),
        )
    named = zip(("keep", "add", "output"), products, strict=True)
    scaling = [
        param
        for name, m in named
        for param in (Param(f"{name}_q31", "int32_t", m.q31), Param(f"{name}_shift", "int32_t", m.shift))
    ]
    params = (
        *_size_params(bound),
        *scaling,
        Param("output_zero", "int32_t", bound.output.zero_point),
        Param("cell_low", "int32_t", -(2**15) if limit is None else -limit),
        Param("cell_high", "int32_t", 2**15 - 1 if limit is None else limit),
        Param("tanh_factor", "int32_t", factor, "of the cell state"),
        Param("tanh_right", "int32_t", right),
    )
    template = "recurrent/sequence_lstm_s16" if is_int16(bound) else "recurrent/sequence_lstm"
    return Layer(template, "portable", (X,), tables, params, overlaps=_overlaps(bound), macs=work(bound))


def _filters(bound: BoundNode) -> dict[str, Array]:
    """The gates' weights [4 U, K], by the role of their table."""
    gates = (("w", INPUT), ("r", RECURRENT))
    return {role: np.concatenate(_interleaved(bound, positions).transpose(0, 2, 1)) for role, positions in gates}


def _weights(role: str, bound: BoundNode, positions: Sequence[int], c_type: str, what: str) -> Table:
    values = _interleaved(bound, positions)
    shape = "x".join(map(str, values.shape))
    return Table(role, c_type, tuple(values.reshape(-1).tolist()), f"{what} {shape}, gates i, f, g, o")


def _lower_float(bound: BoundNode) -> Layer:
    tables = (
        _weights("w", bound, INPUT, "float", "input weights"),
        _weights("r", bound, RECURRENT, "float", "recurrent weights"),
        _weights("bias", bound, _B, "float", "biases"),
    )
    clip = bound.op(UnidirectionalSequenceLstm).cell_clip
    params = (
        *_size_params(bound),
        Param("cell_clip", "float", clip if clip > 0.0 else math.inf, "largest magnitude of c"),
    )
    return Layer(
        "recurrent/sequence_lstm_float", "portable", (X,), tables, params, overlaps=_overlaps(bound), macs=work(bound),
    )  # fmt: skip


def work(bound: BoundNode) -> int:
    s = sizes_of(bound)
    return s.batches * s.steps * GATES * s.units * (s.inputs + s.units)


def _cost(board: str, floats: Cost) -> Costs:
    return Costs(f"{board} at 4d93568 a7eb90f, 2026-11-23", Cost(mac=2.4, output=600), {"float32": floats})


KERNELS = (
    KernelDef(
        UnidirectionalSequenceLstm,
        "long short-term memory over all steps of a sequence, which keeps its state",
        (DType.INT8, DType.INT16, DType.FLOAT32),
        tflite={"UNIDIRECTIONAL_SEQUENCE_LSTM": from_tflite},
        check=check,
        reference=reference,
        lower=lower,
        output_shapes=output_shapes,
        work=work,
        variants=(
            *four_channels.float_variants(
                _lower_float,
                Costs("qemu_m4 at a7eb90f, 2026-11-23", Cost(mac=2.63, output=605)),
                Costs("qemu_m55 at a7eb90f, 2026-11-23", Cost(mac=1.1, output=400)),
            ),
            *four_channels.int8_variants(
                lower,
                _filters,
                Costs("qemu_m55 at 4d93568, 2026-11-22", Cost(mac=0.4, output=600)),
                Costs("qemu_m4 at 4d93568, 2026-11-22", Cost(mac=1.3, output=600)),
            ),
        ),
        cost=_cost("qemu_m4", Cost(mac=3.3, output=590)),
        cost_with_vectors=_cost("qemu_m55", Cost(mac=3.5, output=390)),
    ),
)

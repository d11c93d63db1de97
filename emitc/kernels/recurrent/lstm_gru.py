"""LSTM and GRU of ONNX, run over all steps of a sequence: cells with input, output and forget gate; with update and reset gate.

LSTM: i = sigmoid(Wi x + Ri h + bi + Pi c), f = sigmoid(Wf x + Rf h + bf + Pf c), g = tanh(Wc x + Rc h + bc), c' = f c + i g,
o = sigmoid(Wo x + Ro h + bo + Po c'), h' = o tanh(c')

Shapes  as `recurrence.py` has them; the gates of W, R and B come in the order i, o, f, c, the peepholes P as i, o, f. Bias,
        initial states and peepholes may be missing, as may each of the outputs Y, Y_h and Y_c.

GRU: z = sigmoid(Wz x + Rz h + bz), r = sigmoid(Wr x + Rr h + br), h' = (1 - z) g + z h, where
g = tanh(Wh x + Wbh + Rh (r h) + Rbh), or with linear_before_reset g = tanh(Wh x + Wbh + r (Rh h + Rbh))

Shapes  as `recurrence.py` has them; the gates of W, R and B come in the order z, r, h. Bias and initial state may be missing,
        as may each of the outputs Y and Y_h.

Types   float32. Weights, bias, states and peepholes may be computed.   Source  ONNX operator specification, opset 14.

DynamicQuantizeLSTM of ONNX Runtime: an LSTM whose weights are integers, and which quantizes what they are multiplied with.
sums = float32(q(X) W) * (x_scale * w_scale) + float32(q(h) R) * (h_scale * r_scale) + (Wb + Rb), then as an LSTM.
q is DynamicQuantizeLinear's uint8: of the whole sequence X, all steps and batches together, and of h [B, H] before each step.

Shapes  as `recurrence.py` has them, layout 0, but W [D, I, 4 * H] and R [D, H, 4 * H]. Their scales and zero points: one for
        each direction [D], or scales [D, 4 * H] with equal zero points in each direction.
Types   float32, weights int8 or uint8. Weights, scales and zero points are constant.
Source  ONNX Runtime's results on x86, not optimized: this order of sums and these sets of values quantized together differ by
        3e-7 at most over hundreds of sequences. Where h lies that close to the border between two steps of its
        quantization, the two may take different ones. Their outputs then differ by what a step makes.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from emitc.ir import Array, BoundNode, DType, Shape
from emitc.kernels.contract import KernelDef, Parsed, Variant, illegal, require_constants, unsupported
from emitc.kernels.costs import UNKNOWN_PAIRS, UNKNOWN_VECTORS, Cost, Costs
from emitc.kernels.mac import four_channels
from emitc.kernels.mac.dsp_int8 import BYTES_HEADER, HEADER
from emitc.kernels.mac.four_channels import TOGETHER
from emitc.kernels.mac.mve_int8 import HEADERS
from emitc.kernels.mac.weight_packing import blocks_of_four, pack_dsp_blocks
from emitc.kernels.quantization.quantize import quantized_by_range
from emitc.kernels.recurrent import recurrence
from emitc.kernels.recurrent.recurrence import INITIAL_C, INITIAL_H, PEEPHOLES, B, R, Real, Recurrent, W, X, sigmoid
from emitc.layer import Layer, Param, Scratch, Table
from emitc.numerics import engine_functions
from emitc.numerics.requantize import Float32, Int64
from emitc.records import dataclass, replace
from emitc.source import SourceNode

GATES = 4
ACTIVATIONS = ("sigmoid", "tanh", "tanh")
_OUTPUTS = ("y", "y_h", "y_c")
ROLES = {W: "w", R: "r", B: "bias", INITIAL_H: "initial_h", INITIAL_C: "initial_c", PEEPHOLES: "peepholes"}


@dataclass(frozen=True, slots=True)
class Lstm(Recurrent):
    """A layer of LSTM cells."""


def from_onnx(node: SourceNode) -> Parsed:
    """The sequence lengths are no operand: all steps are taken."""
    node.counts((3, 8), (1, 3))
    return Parsed(Lstm(*recurrence.settings_of(node, ACTIVATIONS)), (0, 1, 2, 3, 5, 6, 7))


def cell(sums: Real, c: Real, peepholes: Real) -> tuple[Real, Real]:
    """h and c after a step: of the gates' sums [B, 4 * H] in the order i, o, f, c, of c [B, H] and peepholes [3 * H]."""
    i, o, f, g = np.split(sums, GATES, axis=1)
    p_i, p_o, p_f = np.split(peepholes, 3)
    after = sigmoid(f + p_f * c) * c + sigmoid(i + p_i * c) * np.tanh(g)
    return sigmoid(o + p_o * after) * np.tanh(after), after


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """In double, rounded to float32."""
    s, values = recurrence.sizes_of(bound), recurrence.operand_values(bound, inputs)
    x, w, r, biases, peepholes = values[X], values[W], values[R], values[B], values[PEEPHOLES]
    assert x is not None and w is not None and r is not None
    bias = np.zeros((s.directions, 1)) if biases is None else biases.reshape(s.directions, 2, -1).sum(axis=1)
    own = np.zeros((s.directions, 3 * s.units)) if peepholes is None else peepholes

    def step(d: int, t: int, states: Sequence[Real]) -> tuple[Real, Real]:
        h, c = states
        return cell(x[t] @ w[d].T + h @ r[d].T + bias[d], c, own[d])

    states = [recurrence.initial_state(bound, values[position]) for position in (INITIAL_H, INITIAL_C)]
    return recurrence.over_steps(bound, states, step)


def bias_and_presence(
    bound: BoundNode, tables: tuple[Table, ...], present: dict[str, bool]
) -> tuple[tuple[Table, ...], Param, tuple[Param, ...]]:
    """The tables with a constant bias summed up, how many biases each gate of a unit has, and which operands there are.

    present: as `recurrence.constant_or_operand` says.
    """
    has_bias = present.pop("bias")
    tables, summed = recurrence.with_summed_bias(bound, tables, GATES, GATES, "both biases of each gate, i, o, f and c")
    count = 1 if summed else 2 if has_bias else 0
    biases = Param("biases", "int32_t", count, "for each unit of a gate: one, two or none")
    return tables, biases, recurrence.presence_params(bound, present, _OUTPUTS)


def lower(bound: BoundNode) -> Layer:
    """All units of a step one after the other, with the four gates of a unit together; h is replaced when all are done."""
    operands, tables, present = recurrence.constant_or_operand(bound, ROLES)
    tables, biases, presence = bias_and_presence(bound, tables, present)
    params = (*recurrence.size_params(bound), biases, *presence)
    return recurrence.float_layer(bound, "recurrent/lstm", operands, tables, params)


def _side_by_side(bound: BoundNode) -> Layer | str:
    """The same layer with the weights of a unit's gates side by side."""
    rows = (GATES, recurrence.sizes_of(bound).units)
    return recurrence.four_rows_at_a_time(bound, lower(bound), rows, (0, 2, 3, 1))


_GRU_GATES = 3
_GRU_ACTIVATIONS = ("sigmoid", "tanh")
_GRU_OUTPUTS = ("y", "y_h")
_GRU_ROLES = {W: "w", R: "r", B: "bias", INITIAL_H: "initial_h"}


@dataclass(frozen=True, slots=True)
class Gru(Recurrent):
    """reset_last: the reset gate is applied to the product with the recurrent weights, not to the state before it."""

    reset_last: bool


def _gru_from_onnx(node: SourceNode) -> Parsed:
    """The sequence lengths are no operand: all steps are taken."""
    node.counts((3, 6), (1, 2))
    reset_last = bool(node.integer("linear_before_reset", 0))
    op = Gru(*recurrence.settings_of(node, _GRU_ACTIVATIONS), reset_last)
    return Parsed(op, (0, 1, 2, 3, 5))


def _gru_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """In double, rounded to float32."""
    s, values = recurrence.sizes_of(bound), recurrence.operand_values(bound, inputs)
    x, w, r, biases = values[X], values[W], values[R], values[B]
    assert x is not None and w is not None and r is not None
    if biases is None:
        biases = np.zeros((s.directions, 2 * _GRU_GATES * s.units))

    def step(d: int, t: int, states: Sequence[Real]) -> tuple[Real]:
        (h,) = states
        of_x, of_h = np.split(biases[d], 2)
        z_row, r_row, h_row = np.split(r[d], _GRU_GATES)
        bias_z, bias_r, bias_h = np.split(of_h, _GRU_GATES)
        x_z, x_r, x_h = np.split(x[t] @ w[d].T + of_x, _GRU_GATES, axis=1)
        update = sigmoid(x_z + h @ z_row.T + bias_z)
        reset = sigmoid(x_r + h @ r_row.T + bias_r)
        if bound.op(Gru).reset_last:
            fresh = np.tanh(x_h + reset * (h @ h_row.T + bias_h))
        else:
            fresh = np.tanh(x_h + (reset * h) @ h_row.T + bias_h)
        return ((1 - update) * fresh + update * h,)

    return recurrence.over_steps(bound, [recurrence.initial_state(bound, values[INITIAL_H])], step)


def _lower_gru(bound: BoundNode) -> Layer:
    """All units of a step one after the other: their gates, then the new state."""
    units, reset_last = recurrence.sizes_of(bound).units, bound.op(Gru).reset_last
    operands, tables, present = recurrence.constant_or_operand(bound, _GRU_ROLES)
    comment = "biases of z, r and h, added up where they may be"
    tables, summed = recurrence.with_summed_bias(
        bound, tables, _GRU_GATES, _GRU_GATES - 1 if reset_last else _GRU_GATES, comment
    )
    recurrent_bias, hidden_bias = _GRU_GATES * units, (2 * _GRU_GATES - 1) * units
    if summed:
        recurrent_bias, hidden_bias = 0, _GRU_GATES * units if reset_last else 0
    params = (
        *recurrence.size_params(bound),
        Param("reset_last", "int32_t", int(reset_last), "1: the reset gate is applied to the product"),
        Param("bias_step", "int32_t", summed or 2 * _GRU_GATES * units, "biases of a direction"),
        Param("recurrent_bias", "int32_t", recurrent_bias, "where those of z and r by h begin, 0: among the others"),
        Param("hidden_bias", "int32_t", hidden_bias, "where that of the new state by h begins, 0: among the others"),
        *recurrence.presence_params(bound, present, _GRU_OUTPUTS),
    )
    return recurrence.float_layer(bound, "recurrent/gru", operands, tables, params)


def _four_rows(bound: BoundNode) -> Layer | str:
    """The same layer with the weights of four rows side by side, which are units of one gate; or why there is none."""
    units = recurrence.sizes_of(bound).units
    if units % TOGETHER:
        return "the number of units is not a multiple of 4"
    rows = (_GRU_GATES * units // TOGETHER, TOGETHER)
    return recurrence.four_rows_at_a_time(bound, replace(_lower_gru(bound), larger=True), rows, (0, 1, 3, 2))


_W_SCALE, _W_ZERO, _R_SCALE, _R_ZERO = range(7, 11)
_MAX_PRODUCTS = (2**31 - 1) // 255**2
"""Products of two numbers of 9 bits that an int32 sum holds."""
_PAIR_HEADERS = ("emitc_fpu.h", HEADER, BYTES_HEADER)
_VECTOR_HEADERS = ("emitc_fpu.h", *HEADERS, "emitc_mve_copy.h")


@dataclass(frozen=True, slots=True)
class DynamicQuantizeLstm(Recurrent):
    """An LSTM on integer weights."""


def _dynamic_from_onnx(node: SourceNode) -> Parsed:
    """The sequence lengths are no operand: all steps are taken."""
    node.counts((3, 12), (1, 3))
    for position in range(8, 12):
        node.input(position)
    settings = recurrence.settings_of(node, ACTIVATIONS, units_at=1)
    operands = (0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11)
    return Parsed(DynamicQuantizeLstm(*settings), operands)


def _check_dynamic(bound: BoundNode) -> None:
    """Refuses computed weights, other types, shapes that do not fit, and zero points that differ within a direction."""
    s = recurrence.sizes_of(bound)
    rows = GATES * s.units
    shapes: dict[int, Shape] = recurrence.operand_shapes(bound, GATES)
    shapes |= {W: (s.directions, s.inputs, rows), R: (s.directions, s.units, rows)}
    weights = [bound.input(position) for position in (W, _W_SCALE, _W_ZERO, R, _R_SCALE, _R_ZERO)]
    what = "with computed weights is not supported"
    why = "weights, their scales and their zero points are constants in the generated code"
    require_constants(bound, weights, what, why, "export the model with constant weights")
    for position in (_W_SCALE, _W_ZERO, _R_SCALE, _R_ZERO):
        per_row = len(bound.input(position).shape) == 2
        shapes[position] = (s.directions, rows) if per_row else (s.directions,)
    recurrence.require_shapes(bound, shapes)
    _require_types(bound)
    for position in (_W_ZERO, _R_ZERO):
        zeros = bound.input(position).array().reshape(s.directions, -1)
        if not (zeros == zeros[:, :1]).all():
            what = "with zero points that differ within a direction is not supported"
            hint = "quantize the weights with zero points of 0"
            raise unsupported(bound, what, "there is one for all gates", hint, bound.input(position))
    if max(s.inputs, s.units) > _MAX_PRODUCTS:
        what = f"with sums of {max(s.inputs, s.units)} products is not supported"
        raise unsupported(bound, what, f"{_MAX_PRODUCTS} fit an int32 sum", "make the layer smaller")


def _require_types(bound: BoundNode) -> None:
    for position, tensor in enumerate(bound.inputs):
        allowed = (DType.INT8, DType.UINT8) if position in (W, R) else (DType.FLOAT32,)
        if position in (_W_ZERO, _R_ZERO):
            allowed = (bound.input(W if position == _W_ZERO else R).dtype,)
        if tensor is not None and tensor.dtype not in allowed:
            why = f"{' or '.join(dtype.value for dtype in allowed)} is expected"
            raise illegal(bound, f"has an input of type {tensor.dtype.value}", why, tensor=tensor)


def _centred(bound: BoundNode, weights: int, zero: int) -> tuple[Int64, Int64]:
    """Weights [D, n, 4 * H] as they are, and zero points [D, 1, 1]; both 128 lower where they are uint8."""
    tensor = bound.input(weights)
    lower_by = 128 if tensor.dtype is DType.UINT8 else 0
    zeros = bound.input(zero).array().reshape(tensor.shape[0], -1)[:, :1, None]
    return tensor.array().astype(np.int64) - lower_by, zeros.astype(np.int64) - lower_by


def _product(bound: BoundNode, values: Float32, d: int, weights: int) -> Float32:
    """The values [n, I or H], quantized together, by the weights of a direction: [n, 4 * H] in float32."""
    scale_at, zero_at = (_W_SCALE, _W_ZERO) if weights == W else (_R_SCALE, _R_ZERO)
    q, scale, zero_point = quantized_by_range(values)
    w, zeros = _centred(bound, weights, zero_at)
    sums = (q.astype(np.int64) - zero_point) @ (w[d] - zeros[d])
    factor = scale * bound.input(scale_at).array()[d].astype(np.float32)
    return np.asarray(sums.astype(np.float32) * factor, np.float32)


def _dynamic_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """Integer sums, scaled and added up in float32; the gates in double, h and c rounded to float32."""
    s, values = recurrence.sizes_of(bound), recurrence.operand_values(bound, inputs)
    x, biases, peepholes = values[X], values[B], values[PEEPHOLES]
    assert x is not None
    rows = x.astype(np.float32).reshape(-1, s.inputs)
    both = np.zeros((s.directions, 2, 1)) if biases is None else biases.reshape(s.directions, 2, -1)
    own = np.zeros((s.directions, 3 * s.units)) if peepholes is None else peepholes
    with np.errstate(all="ignore"):
        bias = both[:, 0].astype(np.float32) + both[:, 1].astype(np.float32)
        of_x = [_product(bound, rows, d, W).reshape(s.steps, s.batches, -1) for d in range(s.directions)]

    def step(d: int, t: int, states: Sequence[Float32]) -> tuple[Real, Real]:
        h, c = states
        sums = of_x[d][t] + _product(bound, h, d, R) + bias[d]
        return cell(sums.astype(np.float64), c.astype(np.float64), own[d])

    states = [
        recurrence.initial_state(bound, values[position]).astype(np.float32) for position in (INITIAL_H, INITIAL_C)
    ]
    return recurrence.over_steps(bound, states, step)


def _lower_dynamic(bound: BoundNode) -> Layer:
    """Weights as rows of int8. x and h are quantized as a step needs them; their scales come from all of x, and of h."""
    s = recurrence.sizes_of(bound)
    roles = {position: role for position, role in ROLES.items() if position not in (W, R)}
    operands, tables, present = recurrence.constant_or_operand(bound, roles)
    tables, biases, presence = bias_and_presence(bound, tables, present)
    zeros = []
    steps = []
    for position, role, scale, zero in ((W, "w", _W_SCALE, _W_ZERO), (R, "r", _R_SCALE, _R_ZERO)):
        numbers, zero_points = _centred(bound, position, zero)
        units = _units(numbers)
        rows = tuple(blocks_of_four(units).tolist())
        centred = (units.reshape(s.directions, -1, units.shape[1]) - zero_points).sum(axis=2)
        factors = bound.input(scale).array()
        tables += (
            Table(
                role, "int8_t", rows, f"{role} {list(bound.input(position).shape)}, each unit's {GATES} rows together"
            ),
            Table(
                f"{role}_sums", "int32_t", tuple(centred.reshape(-1).tolist()), f"sums of {role} without zero points"
            ),
            Table(f"{role}_scale", "float", tuple(factors.reshape(-1).tolist()), f"scales {list(factors.shape)}"),
        )
        zeros.append(zero_points.reshape(-1))
        steps.append(Param(f"{role}_scale_step", "int32_t", int(factors.ndim == 2), "0: one scale for all gates"))
    of_directions = tuple(int(v) for v in np.stack(zeros, axis=1).reshape(-1))
    tables += (Table("zeros", "int32_t", of_directions, "zero points of w and r, by direction"),)
    params = (*recurrence.size_params(bound), biases, *steps, *presence)
    scratch = (Scratch("states", 2 * 4 * s.batches * s.units), Scratch("values", s.inputs + s.units))
    return Layer(
        "recurrent/dynamic_lstm",
        operands=operands,
        tables=tables,
        params=params,
        scratch=scratch,
        macs=recurrence.products_of(bound, GATES),
        headers=engine_functions.HEADERS,
    )


def _units(numbers: Int64) -> Int64:
    """Weights [D, n, 4 * H] as rows [D * H * 4, n]: those of a unit's gates together."""
    directions, depth, rows = numbers.shape
    by_gate = numbers.reshape(directions, depth, GATES, rows // GATES)
    return np.asarray(by_gate.transpose(0, 3, 2, 1).reshape(-1, depth))


def _in_rows(variant: str) -> Callable[[BoundNode], Layer]:
    """The same for pairs of values or for sixteen of them, quantized by a float unit's conversions."""

    def lower_rows(bound: BoundNode) -> Layer:
        layer = _lower_dynamic(bound)
        tables = {table.role: table for table in layer.tables}
        for role, position, zero in (("w", W, _W_ZERO), ("r", R, _R_ZERO)):
            units = _units(_centred(bound, position, zero)[0])
            values = pack_dsp_blocks(units) if variant == "dsp" else units
            tables[role] = replace(tables[role], values=tuple(values.reshape(-1).tolist()), alignment=4)
        return replace(layer, template=f"{layer.template}_{variant}", tables=tuple(tables.values()))

    return lower_rows


_recurrent = partial(KernelDef, dtypes=(DType.FLOAT32,), output_shapes=recurrence.output_shapes)
_cells = partial(recurrence.products_of, gates=GATES)
KERNELS = (
    _recurrent(
        Lstm, "long short-term memory over all steps of a sequence", onnx=("LSTM",), from_onnx=from_onnx,
        check=partial(recurrence.check_floats, gates=GATES), reference=reference, lower=lower, work=_cells,
        variants=four_channels.float_variants(
            _side_by_side,
            Costs("qemu_m4 at a7eb90f, 2026-11-23", Cost(mac=2.63, output=175)),
            Costs("qemu_m55 at a7eb90f, 2026-11-23", Cost(mac=1.1, output=145)),
        ),
        cost=Costs("qemu_m4 at a7eb90f, 2026-11-23", Cost(mac=3.9, output=160)),
        cost_with_vectors=Costs("qemu_m55 at a7eb90f, 2026-11-23", Cost(mac=4.0, output=135)),
    ),
    _recurrent(
        Gru, "gated recurrent units over all steps of a sequence", onnx=("GRU",), from_onnx=_gru_from_onnx,
        check=partial(recurrence.check_floats, gates=_GRU_GATES), reference=_gru_reference, lower=_lower_gru,
        work=partial(recurrence.products_of, gates=_GRU_GATES),
        variants=four_channels.float_variants(
            _four_rows,
            Costs("qemu_m4 at 451e667, 2026-11-23", Cost(mac=2.63, output=110)),
            Costs("qemu_m55 at 451e667, 2026-11-23", Cost(mac=1.1, output=119)),
        ),
        cost=Costs("qemu_m4 at 451e667, 2026-11-23", Cost(mac=6.35, output=110)),
        cost_with_vectors=Costs("qemu_m55 at 451e667, 2026-11-23", Cost(mac=4.15, output=119)),
    ),
    _recurrent(
        DynamicQuantizeLstm, "LSTM on integer weights, inputs and state quantized by their range",
        onnx=("DynamicQuantizeLSTM",), from_onnx=_dynamic_from_onnx,
        check=_check_dynamic, reference=_dynamic_reference, lower=_lower_dynamic, work=_cells,
        variants=(
            Variant("mve", "mve", _in_rows("mve"), UNKNOWN_VECTORS, (DType.FLOAT32,), headers=_VECTOR_HEADERS),
            Variant("dsp", "dsp", _in_rows("dsp"), UNKNOWN_PAIRS, (DType.FLOAT32,), headers=_PAIR_HEADERS),
        ),
    ),
)  # fmt: skip

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
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from emitc.ir import Array, BoundNode, DType
from emitc.kernels.contract import KernelDef, Parsed
from emitc.kernels.costs import Cost, Costs
from emitc.kernels.mac import four_channels
from emitc.kernels.mac.four_channels import TOGETHER
from emitc.kernels.recurrent import recurrence
from emitc.kernels.recurrent.recurrence import INITIAL_C, INITIAL_H, PEEPHOLES, B, R, Real, Recurrent, W, X, sigmoid
from emitc.layer import Layer, Param, Table
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


KERNELS = (
    KernelDef(
        Lstm, "long short-term memory over all steps of a sequence", (DType.FLOAT32,), (), None,
        partial(recurrence.check_floats, gates=GATES), reference, lower, output_shapes=recurrence.output_shapes,
        work=partial(recurrence.products_of, gates=GATES), onnx=("LSTM",), from_onnx=from_onnx,
        variants=four_channels.float_variants(
            _side_by_side,
            Costs("qemu_m4 at a7eb90f, 2026-11-23", Cost(mac=2.63, output=175)),
            Costs("qemu_m55 at a7eb90f, 2026-11-23", Cost(mac=1.1, output=145)),
        ),
        cost=Costs("qemu_m4 at a7eb90f, 2026-11-23", Cost(mac=3.9, output=160)),
        cost_with_vectors=Costs("qemu_m55 at a7eb90f, 2026-11-23", Cost(mac=4.0, output=135)),
    ),
    KernelDef(
        Gru, "gated recurrent units over all steps of a sequence", (DType.FLOAT32,), (), None,
        partial(recurrence.check_floats, gates=_GRU_GATES), _gru_reference, _lower_gru, output_shapes=recurrence.output_shapes,
        work=partial(recurrence.products_of, gates=_GRU_GATES), onnx=("GRU",), from_onnx=_gru_from_onnx,
        variants=four_channels.float_variants(
            _four_rows,
            Costs("qemu_m4 at 451e667, 2026-11-23", Cost(mac=2.63, output=110)),
            Costs("qemu_m55 at 451e667, 2026-11-23", Cost(mac=1.1, output=119)),
        ),
        cost=Costs("qemu_m4 at 451e667, 2026-11-23", Cost(mac=6.35, output=110)),
        cost_with_vectors=Costs("qemu_m55 at 451e667, 2026-11-23", Cost(mac=4.15, output=119)),
    ),
)  # fmt: skip

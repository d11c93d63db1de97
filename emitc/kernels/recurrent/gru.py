"""GRU of ONNX: a layer of gated units with update and reset gate, run over all steps of a sequence.

z = sigmoid(Wz x + Rz h + bz), r = sigmoid(Wr x + Rr h + br), h' = (1 - z) g + z h, where
g = tanh(Wh x + Wbh + Rh (r h) + Rbh), or with linear_before_reset g = tanh(Wh x + Wbh + r (Rh h + Rbh))

Shapes  as `recurrent.py` has them; the gates of W, R and B come in the order z, r, h. Bias and initial state may be missing,
        as may each of the outputs Y and Y_h.
Types   float32. Weights, bias and state may be computed.
Source  ONNX operator specification, opset 14.
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
from emitc.kernels.recurrent.recurrence import INITIAL_H, B, R, Real, Recurrent, W, X, sigmoid
from emitc.layer import Layer, Param
from emitc.source import SourceNode

_GATES = 3
_ACTIVATIONS = ("sigmoid", "tanh")
_OUTPUTS = ("y", "y_h")
_ROLES = {W: "w", R: "r", B: "bias", INITIAL_H: "initial_h"}


@dataclass(frozen=True, slots=True)
class Gru(Recurrent):
    """reset_last: the reset gate is applied to the product with the recurrent weights, not to the state before it."""

    reset_last: bool


def from_onnx(node: SourceNode) -> Parsed:
    """The sequence lengths are no operand: all steps are taken."""
    node.counts((3, 6), (1, 2))
    reset_last = bool(node.integer("linear_before_reset", 0))
    op = Gru(*recurrence.settings_of(node, _ACTIVATIONS), reset_last)
    return Parsed(op, (0, 1, 2, 3, 5))


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """In double, rounded to float32."""
    s, values = recurrence.sizes_of(bound), recurrence.operand_values(bound, inputs)
    x, w, r, biases = values[X], values[W], values[R], values[B]
    assert x is not None and w is not None and r is not None
    if biases is None:
        biases = np.zeros((s.directions, 2 * _GATES * s.units))

    def step(d: int, t: int, states: Sequence[Real]) -> tuple[Real]:
        (h,) = states
        of_x, of_h = np.split(biases[d], 2)
        z_row, r_row, h_row = np.split(r[d], _GATES)
        bias_z, bias_r, bias_h = np.split(of_h, _GATES)
        x_z, x_r, x_h = np.split(x[t] @ w[d].T + of_x, _GATES, axis=1)
        update = sigmoid(x_z + h @ z_row.T + bias_z)
        reset = sigmoid(x_r + h @ r_row.T + bias_r)
        if bound.op(Gru).reset_last:
            fresh = np.tanh(x_h + reset * (h @ h_row.T + bias_h))
        else:
            fresh = np.tanh(x_h + (reset * h) @ h_row.T + bias_h)
        return ((1 - update) * fresh + update * h,)

    return recurrence.over_steps(bound, [recurrence.initial_state(bound, values[INITIAL_H])], step)


def lower(bound: BoundNode) -> Layer:
    """All units of a step one after the other: their gates, then the new state."""
    units, reset_last = recurrence.sizes_of(bound).units, bound.op(Gru).reset_last
    operands, tables, present = recurrence.constant_or_operand(bound, _ROLES)
    comment = "biases of z, r and h, added up where they may be"
    tables, summed = recurrence.with_summed_bias(bound, tables, _GATES, _GATES - 1 if reset_last else _GATES, comment)
    recurrent_bias, hidden_bias = _GATES * units, (2 * _GATES - 1) * units
    if summed:
        recurrent_bias, hidden_bias = 0, _GATES * units if reset_last else 0
    params = (
        *recurrence.size_params(bound),
        Param("reset_last", "int32_t", int(reset_last), "1: the reset gate is applied to the product"),
        Param("bias_step", "int32_t", summed or 2 * _GATES * units, "biases of a direction"),
        Param("recurrent_bias", "int32_t", recurrent_bias, "where those of z and r by h begin, 0: among the others"),
        Param("hidden_bias", "int32_t", hidden_bias, "where that of the new state by h begins, 0: among the others"),
        *recurrence.presence_params(bound, present, _OUTPUTS),
    )
    return recurrence.float_layer(bound, "recurrent/gru", operands, tables, params)


def _four_rows(bound: BoundNode) -> Layer | str:
    """The same layer with the weights of four rows side by side, which are units of one gate; or why there is none."""
    units = recurrence.sizes_of(bound).units
    if units % TOGETHER:
        return "the number of units is not a multiple of 4"
    rows = (_GATES * units // TOGETHER, TOGETHER)
    return recurrence.four_rows_at_a_time(bound, replace(lower(bound), larger=True), rows, (0, 1, 3, 2))


KERNELS = (
    KernelDef(
        Gru, "gated recurrent units over all steps of a sequence", (DType.FLOAT32,), (), None,
        partial(recurrence.check_floats, gates=_GATES), reference, lower, output_shapes=recurrence.output_shapes,
        work=partial(recurrence.products_of, gates=_GATES), onnx=("GRU",), from_onnx=from_onnx,
        variants=four_channels.float_variants(
            _four_rows,
            Costs("qemu_m4 at 451e667, 2026-11-23", Cost(mac=2.63, output=110)),
            Costs("qemu_m55 at 451e667, 2026-11-23", Cost(mac=1.1, output=119)),
        ),
        cost=Costs("qemu_m4 at 451e667, 2026-11-23", Cost(mac=6.35, output=110)),
        cost_with_vectors=Costs("qemu_m55 at 451e667, 2026-11-23", Cost(mac=4.15, output=119)),
    ),
)  # fmt: skip

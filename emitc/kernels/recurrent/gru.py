"""GRU of ONNX: a layer of gated units with update and reset gate, run over all steps of a sequence.

z = sigmoid(Wz x + Rz h + bz), r = sigmoid(Wr x + Rr h + br), h' = (1 - z) g + z h, where
g = tanh(Wh x + Wbh + Rh (r h) + Rbh), or with linear_before_reset g = tanh(Wh x + Wbh + r (Rh h + Rbh))

Shapes  as `recurrent.py` has them; the gates of W, R and B come in the order z, r, h. Bias and initial state may be missing,
        as may each of the outputs Y and Y_h.
Types   float32. Weights, bias and state may be computed.
Source  ONNX operator specification, opset 14.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from emitc.ir import Array, BoundNode, DType, Numerics
from emitc.kernels.contract import KernelDef, Parsed, require_dtypes
from emitc.kernels.costs import Cost, Costs
from emitc.kernels.mac import block4_float_recurrent
from emitc.kernels.mac.block4_float_conv import TOGETHER
from emitc.kernels.recurrent import recurrence
from emitc.kernels.recurrent.recurrence import INITIAL_H, B, R, Recurrent, W, X, sigmoid
from emitc.layer import Layer, Param, Scratch, Table
from emitc.numerics import tanh_logistic
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
    op = Gru(*recurrence.settings_of(node, _ACTIVATIONS), reset_last, numerics=Numerics.QOPERATOR)
    return Parsed(op, (0, 1, 2, 3, 5))


def _resets_last(bound: BoundNode) -> bool:
    assert isinstance(bound.node.op, Gru)
    return bound.node.op.reset_last


def check(bound: BoundNode) -> None:
    """Refuses other types than float32, and shapes that do not fit each other."""
    tensors = [tensor for tensor in bound.inputs if tensor is not None]
    require_dtypes(bound, [(DType.FLOAT32,) * (len(tensors) + len(bound.outputs))])
    recurrence.require_shapes(bound, recurrence.operand_shapes(bound, _GATES))


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """In double, rounded to float32."""
    s = recurrence.sizes_of(bound)
    values = recurrence.operand_values(bound, inputs)
    values += [None] * (INITIAL_H + 1 - len(values))
    x, w, r = values[X], values[W], values[R]
    assert x is not None and w is not None and r is not None
    if recurrence.operator_of(bound).layout:
        x = x.swapaxes(0, 1)
    h = recurrence.initial_state(bound, values[INITIAL_H]).copy()
    biases = values[B]
    if biases is None:
        biases = np.zeros((s.directions, 2 * _GATES * s.units))
    every = np.zeros((s.steps, s.directions, s.batches, s.units))
    for d in range(s.directions):
        of_x, of_h = np.split(biases[d], 2)
        z_row, r_row, h_row = np.split(r[d], _GATES)
        bias_z, bias_r, bias_h = np.split(of_h, _GATES)
        for step in recurrence.steps_of(bound, d):
            x_z, x_r, x_h = np.split(x[step] @ w[d].T + of_x, _GATES, axis=1)
            update = sigmoid(x_z + h[d] @ z_row.T + bias_z)
            reset = sigmoid(x_r + h[d] @ r_row.T + bias_r)
            if _resets_last(bound):
                fresh = np.tanh(x_h + reset * (h[d] @ h_row.T + bias_h))
            else:
                fresh = np.tanh(x_h + (reset * h[d]) @ h_row.T + bias_h)
            h[d] = (1 - update) * fresh + update * h[d]
            every[step, d] = h[d]
    return recurrence.outputs_of(bound, every, h)


def lower(bound: BoundNode) -> Layer:
    """All units of a step one after the other: their gates, then the new state."""
    units = recurrence.sizes_of(bound).units
    operands, tables, present = recurrence.constant_or_operand(bound, _ROLES)
    each, recurrent_bias, hidden_bias = 2 * _GATES * units, _GATES * units, (2 * _GATES - 1) * units
    found = recurrence.bias_table(bound, _GATES, _GATES - 1 if _resets_last(bound) else _GATES)
    if found is not None:
        values, each = found
        recurrent_bias, hidden_bias = 0, _GATES * units if _resets_last(bound) else 0
        summed = Table(
            "bias", "float", tuple(values.reshape(-1).tolist()), "biases of z, r and h, added up where they may be"
        )
        tables = tuple(summed if table.role == "bias" else table for table in tables)
    params = (
        *recurrence.size_params(bound),
        Param("reset_last", "int32_t", int(_resets_last(bound)), "1: the reset gate is applied to the product"),
        Param("bias_step", "int32_t", each, "biases of a direction"),
        Param("recurrent_bias", "int32_t", recurrent_bias, "where those of z and r by h begin, 0: among the others"),
        Param("hidden_bias", "int32_t", hidden_bias, "where that of the new state by h begins, 0: among the others"),
        *recurrence.presence_params(bound, present, _OUTPUTS),
    )
    states = Scratch("states", 3 * 4 * units)
    return Layer(
        "recurrent/gru",
        "portable",
        operands,
        tables,
        params,
        scratch=(states,),
        macs=work(bound),
        headers=tanh_logistic.HEADERS,
    )


def _four_rows(bound: BoundNode) -> Layer | str:
    """The same layer with the weights of four rows side by side, which are units of one gate; or why there is none."""
    s, layer = recurrence.sizes_of(bound), lower(bound)
    if s.units % TOGETHER:
        return "the number of units is not a multiple of 4"
    fours = _GATES * s.units // TOGETHER
    sizes = {role: (s.directions, fours, TOGETHER, depth) for role, depth in (("w", s.inputs), ("r", s.units))}
    headers = (*layer.headers, "emitc_fpu_tanh.h")
    return block4_float_recurrent.laid_out(replace(layer, headers=headers, larger=True), sizes, (0, 1, 3, 2))


def work(bound: BoundNode) -> int:
    """Multiply-accumulates of the weights."""
    return recurrence.products_of(bound, _GATES)


KERNELS = (
    KernelDef(
        Gru, "gated recurrent units over all steps of a sequence", (DType.FLOAT32,), (), None, check,
        reference, lower, output_shapes=recurrence.output_shapes, work=work, onnx=("GRU",), from_onnx=from_onnx,
        variants=block4_float_recurrent.variants(
            _four_rows,
            Costs("qemu_m4 at 451e667, 2026-11-23", Cost(mac=2.63, output=110)),
            Costs("qemu_m55 at 451e667, 2026-11-23", Cost(mac=1.1, output=119)),
        ),
        cost=Costs("qemu_m4 at 451e667, 2026-11-23", Cost(mac=6.35, output=110)),
        cost_with_vectors=Costs("qemu_m55 at 451e667, 2026-11-23", Cost(mac=4.15, output=119)),
    ),
)  # fmt: skip

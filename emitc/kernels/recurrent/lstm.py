"""LSTM of ONNX: a layer of cells with input, output and forget gate, run over all steps of a sequence.

i = sigmoid(Wi x + Ri h + bi + Pi c), f = sigmoid(Wf x + Rf h + bf + Pf c), g = tanh(Wc x + Rc h + bc), c' = f c + i g,
o = sigmoid(Wo x + Ro h + bo + Po c'), h' = o tanh(c')

Shapes  as `recurrent.py` has them; the gates of W, R and B come in the order i, o, f, c, the peepholes P as i, o, f. Bias,
        initial states and peepholes may be missing, as may each of the outputs Y, Y_h and Y_c.
Types   float32. Weights, bias, states and peepholes may be computed.
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
from emitc.kernels.recurrent import recurrence
from emitc.kernels.recurrent.recurrence import INITIAL_C, INITIAL_H, PEEPHOLES, B, R, Real, Recurrent, W, X, sigmoid
from emitc.layer import Layer, Param, Scratch, Table
from emitc.numerics import tanh_logistic
from emitc.source import SourceNode

GATES = 4
ACTIVATIONS = ("sigmoid", "tanh", "tanh")
OUTPUTS = ("y", "y_h", "y_c")
ROLES = {W: "w", R: "r", B: "bias", INITIAL_H: "initial_h", INITIAL_C: "initial_c", PEEPHOLES: "peepholes"}


@dataclass(frozen=True, slots=True)
class Lstm(Recurrent):
    """A layer of LSTM cells."""


def from_onnx(node: SourceNode) -> Parsed:
    """The sequence lengths are no operand: all steps are taken."""
    node.counts((3, 8), (1, 3))
    return Parsed(Lstm(*recurrence.settings_of(node, ACTIVATIONS), numerics=Numerics.QOPERATOR), (0, 1, 2, 3, 5, 6, 7))


def check(bound: BoundNode) -> None:
    """Refuses other types than float32, and shapes that do not fit each other."""
    tensors = [tensor for tensor in bound.inputs if tensor is not None]
    require_dtypes(bound, [(DType.FLOAT32,) * (len(tensors) + len(bound.outputs))])
    recurrence.require_shapes(bound, recurrence.operand_shapes(bound, GATES))


def cell(sums: Real, c: Real, peepholes: Real) -> tuple[Real, Real]:
    """h and c after a step: of the gates' sums [B, 4 * H] in the order i, o, f, c, of c [B, H] and peepholes [3 * H]."""
    i, o, f, g = np.split(sums, GATES, axis=1)
    p_i, p_o, p_f = np.split(peepholes, 3)
    after = sigmoid(f + p_f * c) * c + sigmoid(i + p_i * c) * np.tanh(g)
    return sigmoid(o + p_o * after) * np.tanh(after), after


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """In double, rounded to float32."""
    s = recurrence.sizes_of(bound)
    values = recurrence.operand_values(bound, inputs)
    values += [None] * (PEEPHOLES + 1 - len(values))
    x, w, r = values[X], values[W], values[R]
    assert x is not None and w is not None and r is not None
    if recurrence.operator_of(bound).layout:
        x = x.swapaxes(0, 1)
    biases, peepholes = values[B], values[PEEPHOLES]
    h = recurrence.initial_state(bound, values[INITIAL_H]).copy()
    c = recurrence.initial_state(bound, values[INITIAL_C]).copy()
    every = np.zeros((s.steps, s.directions, s.batches, s.units))
    with np.errstate(all="ignore"):
        for d in range(s.directions):
            bias = np.zeros(1) if biases is None else biases[d].reshape(2, -1).sum(axis=0)
            own = np.zeros(3 * s.units) if peepholes is None else peepholes[d]
            for step in recurrence.steps_of(bound, d):
                h[d], c[d] = cell(x[step] @ w[d].T + h[d] @ r[d].T + bias, c[d], own)
                every[step, d] = h[d]
    return recurrence.outputs_of(bound, every, h, c)


def lower(bound: BoundNode) -> Layer:
    """All units of a step one after the other, with the four gates of a unit together; h is replaced when all are done."""
    operands, tables, present = recurrence.constant_or_operand(bound, ROLES)
    biases = 2 if present.pop("bias") else 0
    found = recurrence.bias_table(bound, GATES, GATES)
    if found is not None:
        values, biases = tuple(found[0].reshape(-1).tolist()), 1
        summed = Table("bias", "float", values, "both biases of each gate, i, o, f and c")
        tables = tuple(summed if table.role == "bias" else table for table in tables)
    params = (
        *recurrence.size_params(bound),
        Param("biases", "int32_t", biases, "for each unit of a gate: one, two or none"),
        *recurrence.presence_params(bound, present, OUTPUTS),
    )
    states = Scratch("states", 3 * 4 * recurrence.sizes_of(bound).units)
    return Layer(
        "recurrent/lstm",
        "portable",
        operands,
        tables,
        params,
        scratch=(states,),
        macs=work(bound),
        headers=tanh_logistic.HEADERS,
    )


def _side_by_side(bound: BoundNode) -> Layer | str:
    """The same layer with the weights of a unit's gates side by side."""
    s = recurrence.sizes_of(bound)
    sizes = {role: (s.directions, GATES, s.units, depth) for role, depth in (("w", s.inputs), ("r", s.units))}
    layer = lower(bound)
    headers = (*layer.headers, "emitc_fpu_tanh.h")
    return block4_float_recurrent.laid_out(replace(layer, headers=headers), sizes, (0, 2, 3, 1))


def work(bound: BoundNode) -> int:
    """Multiply-accumulates of the weights."""
    return recurrence.products_of(bound, GATES)


KERNELS = (
    KernelDef(
        Lstm, "long short-term memory over all steps of a sequence", (DType.FLOAT32,), (), None, check,
        reference, lower, output_shapes=recurrence.output_shapes, work=work, onnx=("LSTM",), from_onnx=from_onnx,
        variants=block4_float_recurrent.variants(
            _side_by_side,
            Costs("qemu_m4 at a7eb90f, 2026-11-23", Cost(mac=2.63, output=175)),
            Costs("qemu_m55 at a7eb90f, 2026-11-23", Cost(mac=1.1, output=145)),
        ),
        cost=Costs("qemu_m4 at a7eb90f, 2026-11-23", Cost(mac=3.9, output=160)),
        cost_with_vectors=Costs("qemu_m55 at a7eb90f, 2026-11-23", Cost(mac=4.0, output=135)),
    ),
)  # fmt: skip

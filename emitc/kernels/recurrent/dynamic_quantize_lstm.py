"""DynamicQuantizeLSTM of ONNX Runtime: an LSTM whose weights are integers, and which quantizes what they are multiplied with.

sums = float32(q(X) W) * (x_scale * w_scale) + float32(q(h) R) * (h_scale * r_scale) + (Wb + Rb), then as an LSTM.
q is DynamicQuantizeLinear's uint8: of the whole sequence X, all steps and batches together, and of h [B, H] before each step.

Shapes  as `recurrent.py` has them, layout 0, but W [D, I, 4 * H] and R [D, H, 4 * H]. Their scales and zero points: one for
        each direction [D], or scales [D, 4 * H] with equal zero points in each direction.
Types   float32, weights int8 or uint8. Weights, scales and zero points are constant.
Source  ONNX Runtime's results on x86, not optimized: this order of sums and these sets of values quantized together differ by
        3e-7 at most over hundreds of sequences. Where h lies that close to the border between two steps of its
        quantization, the two may take different ones. Their outputs then differ by what a step makes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from emitc.ir import Array, BoundNode, DType, Shape
from emitc.kernels.contract import KernelDef, Parsed, Variant, illegal, require_constants, unsupported
from emitc.kernels.costs import UNKNOWN_PAIRS, UNKNOWN_VECTORS
from emitc.kernels.mac.dsp_int8 import BYTES_HEADER, HEADER
from emitc.kernels.mac.mve_int8 import HEADERS
from emitc.kernels.mac.weight_packing import blocks_of_four, pack_dsp_blocks
from emitc.kernels.quantization.quantize import quantized_by_range
from emitc.kernels.recurrent import recurrence
from emitc.kernels.recurrent.lstm_gru import ACTIVATIONS, GATES, ROLES, bias_and_presence, cell
from emitc.kernels.recurrent.recurrence import INITIAL_C, INITIAL_H, PEEPHOLES, B, R, Real, Recurrent, W, X
from emitc.layer import Layer, Param, Scratch, Table
from emitc.numerics import engine_functions
from emitc.numerics.requantize import Float32, Int64
from emitc.source import SourceNode

_W_SCALE, _W_ZERO, _R_SCALE, _R_ZERO = range(7, 11)
_MAX_PRODUCTS = (2**31 - 1) // 255**2
"""Products of two numbers of 9 bits that an int32 sum holds."""
_PAIR_HEADERS = ("emitc_fpu.h", HEADER, BYTES_HEADER)
_VECTOR_HEADERS = ("emitc_fpu.h", *HEADERS, "emitc_mve_copy.h")


@dataclass(frozen=True, slots=True)
class DynamicQuantizeLstm(Recurrent):
    """An LSTM on integer weights."""


def from_onnx(node: SourceNode) -> Parsed:
    """The sequence lengths are no operand: all steps are taken."""
    node.counts((3, 12), (1, 3))
    for position in range(8, 12):
        node.input(position)
    settings = recurrence.settings_of(node, ACTIVATIONS, units_at=1)
    operands = (0, 1, 2, 3, 5, 6, 7, 8, 9, 10, 11)
    return Parsed(DynamicQuantizeLstm(*settings), operands)


def check(bound: BoundNode) -> None:
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


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
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


def lower(bound: BoundNode) -> Layer:
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
        layer = lower(bound)
        tables = {table.role: table for table in layer.tables}
        for role, position, zero in (("w", W, _W_ZERO), ("r", R, _R_ZERO)):
            units = _units(_centred(bound, position, zero)[0])
            values = pack_dsp_blocks(units) if variant == "dsp" else units
            tables[role] = replace(tables[role], values=tuple(values.reshape(-1).tolist()))
        return replace(layer, template=f"{layer.template}_{variant}", tables=tuple(tables.values()))

    return lower_rows


KERNELS = (
    KernelDef(
        DynamicQuantizeLstm, "LSTM on integer weights, inputs and state quantized by their range", (DType.FLOAT32,), (), None,
        check, reference, lower, output_shapes=recurrence.output_shapes, work=partial(recurrence.products_of, gates=GATES),
        onnx=("DynamicQuantizeLSTM",), from_onnx=from_onnx,
        variants=(
            Variant("mve", "mve", _in_rows("mve"), UNKNOWN_VECTORS, (DType.FLOAT32,), headers=_VECTOR_HEADERS),
            Variant("dsp", "dsp", _in_rows("dsp"), UNKNOWN_PAIRS, (DType.FLOAT32,), headers=_PAIR_HEADERS),
        ),
    ),
)  # fmt: skip

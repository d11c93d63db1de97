"""What ONNX's LSTM and GRU share: attributes, shapes, and how a step of the recurrence finds its values.

Layout 0 has the steps first: X [T, B, I], Y [T, D, B, H], states [D, B, H]. Layout 1 has the batch first: X [B, T, I],
Y [B, T, D, H], states [B, D, H]. T steps, B batches, I inputs, H units, D directions (2 where bidirectional).
W [D, G * H, I], R [D, G * H, H], B [D, 2 * G * H], peepholes [D, 3 * H]; G gates.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emitc.ir import Array, BoundNode, Op, Shape
from emitc.kernels.contract import illegal, unsupported
from emitc.layer import Param, Table
from emitc.source import SourceNode

Real = NDArray[np.float64]
X, W, R, B, INITIAL_H, INITIAL_C, PEEPHOLES = range(7)
"""Positions of the operands, without the sequence lengths, which are no operand."""
SEQUENCE_LENGTHS = 4
_DIRECTIONS = ("forward", "reverse", "bidirectional")


@dataclass(frozen=True, slots=True)
class Recurrent(Op):
    """direction: forward, reverse or bidirectional. outputs: positions of those that are there, of Y, Y_h and Y_c."""

    units: int
    direction: str
    layout: int
    outputs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Sizes:
    """What the operands' shapes come to."""

    steps: int
    batches: int
    inputs: int
    units: int
    directions: int


def operator_of(bound: BoundNode) -> Recurrent:
    """The node's operator."""
    assert isinstance(bound.node.op, Recurrent)
    return bound.node.op


def sizes_of(bound: BoundNode) -> Sizes:
    """The sizes; parsing has shown x to have three dimensions."""
    op, x = operator_of(bound), bound.input(X).shape
    steps, batches = x[1::-1] if op.layout else x[:2]
    return Sizes(steps, batches, x[2], op.units, 2 if op.direction == "bidirectional" else 1)


def settings_of(
    node: SourceNode, activations: tuple[str, ...], units_at: int = 2
) -> tuple[int, str, int, tuple[int, ...]]:
    """Units, direction, layout and outputs of a node. Refuses settings without code, and sequences that end early.

    activations: the operator's default ones, in lower case. units_at: the dimension of the recurrent weights that counts units.
    """
    units = _units(node, units_at)
    direction = node.attribute("direction", "forward")
    if direction not in _DIRECTIONS:
        raise node.refusal(f"{node.op_type} has direction {direction}", f"it is one of {', '.join(_DIRECTIONS)}")
    layout = node.integer("layout", 0, 0, 1)
    if node.integer("hidden_size", units) != units:
        raise node.refusal(
            f"{node.op_type} has hidden_size {node.attributes['hidden_size']}",
            f"the recurrent weights are for {units} units",
        )
    names = str(node.attributes.get("activations", "")).lower().split(",")
    if tuple(names) not in (("",), activations, activations * 2):
        raise node.unsupported(
            f"{node.op_type} with activations {', '.join(names)} is not supported",
            f"there is code for {', '.join(activations)}",
            "export the model with the default activations",
        )
    if "clip" in node.attributes:
        raise node.unsupported(
            f"{node.op_type} with a clip is not supported",
            "the activations take sums of any size",
            "export the model without it",
        )
    if node.integer("input_forget", 0):
        raise node.unsupported(
            f"{node.op_type} with coupled input and forget gates is not supported",
            "there is code for input_forget = 0",
            "export the model without it",
        )
    present = node.attributes.get("outputs_present", (0,))
    outputs = tuple(int(v) for v in present) if isinstance(present, tuple) else (0,)
    x = node.input(X).shape
    if len(x) != 3:
        raise node.refusal(f"{node.op_type} has an input of rank {len(x)}", "rank 3 is expected")
    if node.has_input(SEQUENCE_LENGTHS):
        lengths, steps = node.constant(SEQUENCE_LENGTHS, "sequence lengths"), x[1 if layout else 0]
        if not (lengths == steps).all():
            raise node.unsupported(
                f"{node.op_type} with sequences of different lengths is not supported",
                f"every sequence has {steps} steps in the generated code",
                "leave out the sequence lengths",
            )
    return units, str(direction), layout, outputs


def _units(node: SourceNode, position: int) -> int:
    shape = node.input(R).shape
    if len(shape) != 3:
        raise node.refusal(f"{node.op_type} has recurrent weights of rank {len(shape)}", "rank 3 is expected")
    return shape[position]


def state_shape(bound: BoundNode) -> Shape:
    """Of the state after the last step, and before the first."""
    s = sizes_of(bound)
    return (s.batches, s.directions, s.units) if operator_of(bound).layout else (s.directions, s.batches, s.units)


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """Of the outputs that are there."""
    s, state = sizes_of(bound), state_shape(bound)
    all_steps = (s.steps, s.directions, s.batches, s.units)
    if operator_of(bound).layout:
        all_steps = (s.batches, s.steps, s.directions, s.units)
    return tuple((all_steps, state, state)[position] for position in operator_of(bound).outputs)


def require_shapes(bound: BoundNode, expected: Mapping[int, Shape]) -> None:
    """Refuses operands of other shapes than expected (by position), and empty ones."""
    if 0 in bound.input(X).shape or 0 in bound.input(R).shape:
        raise illegal(bound, f"{bound.node.op_type} has an empty input", "a dimension is 0", tensor=bound.input(X))
    for position, shape in expected.items():
        tensor = bound.optional(position)
        if tensor is not None and tensor.shape != shape:
            raise illegal(
                bound,
                f"{bound.node.op_type} has an input {list(tensor.shape)}",
                f"{list(shape)} is expected",
                tensor=tensor,
            )
    if len(operator_of(bound).outputs) != len(bound.outputs):
        raise unsupported(
            bound, f"{bound.node.op_type} has other outputs than it names", "one is missing", "export the model again"
        )


def operand_shapes(bound: BoundNode, gates: int) -> dict[int, Shape]:
    """The shapes that float32 operands have to have, by position."""
    s = sizes_of(bound)
    rows = gates * s.units
    return {
        W: (s.directions, rows, s.inputs),
        R: (s.directions, rows, s.units),
        B: (s.directions, 2 * rows),
        INITIAL_H: state_shape(bound),
        INITIAL_C: state_shape(bound),
        PEEPHOLES: (s.directions, 3 * s.units),
    }


# ---- reference ----


def operand_values(bound: BoundNode, inputs: Sequence[Array | None]) -> list[Real | None]:
    """Every operand's value in double, constants from the graph; one that is left out is None."""
    return [
        None if tensor is None else np.asarray(tensor.array() if value is None else value, np.float64)
        for tensor, value in zip(bound.inputs, inputs, strict=True)
    ]


def initial_state(bound: BoundNode, value: Real | None) -> Real:
    """[D, B, H], of zeros where the model gives none."""
    s = sizes_of(bound)
    if value is None:
        return np.zeros((s.directions, s.batches, s.units))
    return value.swapaxes(0, 1) if operator_of(bound).layout else value


def sigmoid(x: Real) -> Real:
    """1 / (1 + exp(-x))."""
    with np.errstate(all="ignore"):
        return np.asarray(1 / (1 + np.exp(-x)))


def steps_of(bound: BoundNode, direction: int) -> range:
    """The steps in the order in which a direction takes them."""
    steps = range(sizes_of(bound).steps)
    return steps[::-1] if direction or operator_of(bound).direction == "reverse" else steps


def outputs_of(bound: BoundNode, every: Real, *last: Real) -> tuple[Array, ...]:
    """The outputs that are there, in float32: of [T, D, B, H] and states [D, B, H], in the node's layout."""
    op = operator_of(bound)
    found = [every.transpose(2, 0, 1, 3) if op.layout else every]
    found += [state.swapaxes(0, 1) if op.layout else state for state in last]
    return tuple(np.ascontiguousarray(found[position], np.float32) for position in op.outputs)


# ---- layers ----


def products_of(bound: BoundNode, gates: int) -> int:
    """Multiply-accumulates of the weights."""
    s = sizes_of(bound)
    return s.steps * s.directions * s.batches * gates * s.units * (s.inputs + s.units)


def bias_table(bound: BoundNode, gates: int, summed: int) -> tuple[Array, int] | None:
    """A constant bias [D, ...] with the sums of both biases of the first `summed` gates, and 2 biases of the others.

    The second number: biases of a direction. None where the bias is computed, or left out.
    """
    tensor = bound.optional(B)
    if tensor is None or not tensor.is_constant:
        return None
    units = sizes_of(bound).units
    of_input, recurrent = np.split(tensor.array().astype(np.float32), 2, axis=1)
    cut = summed * units
    with np.errstate(all="ignore"):
        both = of_input[:, :cut] + recurrent[:, :cut]
    values = np.concatenate([both, of_input[:, cut:], recurrent[:, cut:]], axis=1)
    return values, values.shape[1]


def constant_or_operand(
    bound: BoundNode, roles: Mapping[int, str]
) -> tuple[tuple[int, ...], tuple[Table, ...], dict[str, bool]]:
    """Operands that are passed, tables of the constant ones, and which roles there are at all.

    X comes first and is always passed. A constant state of zeros counts as left out.
    """
    operands, tables, present = [X], [], {}
    for position, role in roles.items():
        tensor = bound.optional(position)
        zeros = position in (INITIAL_H, INITIAL_C) and tensor is not None and tensor.is_constant
        present[role] = tensor is not None and not (zeros and not tensor.array().any())
        if tensor is None or not present[role]:
            continue
        if tensor.is_constant:
            values = tuple(tensor.array().reshape(-1).tolist())
            tables.append(Table(role, tensor.dtype.c_type, values, f"{role} {list(tensor.shape)}"))
        else:
            operands.append(position)
    return tuple(operands), tuple(tables), present


def size_params(bound: BoundNode) -> tuple[Param, ...]:
    """Sizes, and how far apart the values of steps, batches and directions lie."""
    op, s = operator_of(bound), sizes_of(bound)
    x_step, x_batch = s.batches * s.inputs, s.inputs
    y_step, y_batch, y_direction = s.directions * s.batches * s.units, s.units, s.batches * s.units
    state_batch, state_direction = s.units, s.batches * s.units
    if op.layout:
        x_step, x_batch = s.inputs, s.steps * s.inputs
        y_step, y_batch, y_direction = s.directions * s.units, s.steps * s.directions * s.units, s.units
        state_batch, state_direction = s.directions * s.units, s.units
    return (
        Param("steps", "int32_t", s.steps),
        Param("batches", "int32_t", s.batches),
        Param("inputs", "int32_t", s.inputs),
        Param("units", "int32_t", s.units),
        Param("directions", "int32_t", s.directions),
        Param("reverse", "int32_t", int(op.direction == "reverse"), "1: from the last step to the first"),
        Param("x_step", "int32_t", x_step, "elements of x to the next step"),
        Param("x_batch", "int32_t", x_batch),
        Param("y_step", "int32_t", y_step, "elements of y"),
        Param("y_batch", "int32_t", y_batch),
        Param("y_direction", "int32_t", y_direction),
        Param("state_batch", "int32_t", state_batch, "elements of a state"),
        Param("state_direction", "int32_t", state_direction),
    )


def presence_params(bound: BoundNode, present: Mapping[str, bool], outputs: Sequence[str]) -> tuple[Param, ...]:
    """1 for each operand and output that is there; the weights always are."""
    written = operator_of(bound).outputs
    optional = {role: there for role, there in present.items() if role not in "wr"}
    flags = {**optional, **{role: position in written for position, role in enumerate(outputs)}}
    return tuple(Param(f"has_{role}", "int32_t", int(flag)) for role, flag in flags.items())

"""What ONNX's LSTM and GRU share: attributes, shapes, and how a step of the recurrence finds its values.

Layout 0 has the steps first: X [T, B, I], Y [T, D, B, H], states [D, B, H]. Layout 1 has the batch first: X [B, T, I],
Y [B, T, D, H], states [B, D, H]. T steps, B batches, I inputs, H units, D directions (2 where bidirectional).
W [D, G * H, I], R [D, G * H, H], B [D, 2 * G * H], peepholes [D, 3 * H]; G gates.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emitc.ir import Array, BoundNode, DType, Op, Shape
from emitc.kernels.contract import illegal, require_dtypes, unsupported
from emitc.kernels.mac import four_channels
from emitc.layer import Layer, Param, Scratch, Table, integers
from emitc.numerics import engine_functions
from emitc.records import dataclass, replace
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


def sizes_of(bound: BoundNode) -> Sizes:
    """The sizes; parsing has shown x to have three dimensions."""
    op, x = bound.op(Recurrent), bound.input(X).shape
    steps, batches = x[1::-1] if op.layout else x[:2]
    return Sizes(steps, batches, x[2], op.units, 2 if op.direction == "bidirectional" else 1)


def settings_of(
    node: SourceNode, activations: tuple[str, ...], units_at: int = 2
) -> tuple[int, str, int, tuple[int, ...]]:
    """Units, direction, layout and outputs of a node. Refuses settings without code, and sequences that end early.

    activations: the operator's default ones, in lower case. units_at: the dimension of the recurrent weights that counts units.
    """
    weights = node.input(R).shape
    if len(weights) != 3:
        raise node.refusal(f"has recurrent weights of rank {len(weights)}", "rank 3 is expected")
    units = weights[units_at]
    direction = node.attribute("direction", "forward")
    if direction not in _DIRECTIONS:
        raise node.refusal(f"has direction {direction}", f"it is one of {', '.join(_DIRECTIONS)}")
    layout = node.integer("layout", 0, 0, 1)
    if node.integer("hidden_size", units) != units:
        what = f"has hidden_size {node.attributes['hidden_size']}"
        raise node.refusal(what, f"the recurrent weights are for {units} units")
    names = str(node.attributes.get("activations", "")).lower().split(",")
    if tuple(names) not in (("",), activations, activations * 2):
        what = f"with activations {', '.join(names)} is not supported"
        hint = "export the model with the default activations"
        raise node.unsupported(what, f"there is code for {', '.join(activations)}", hint)
    if "clip" in node.attributes:
        why = "the activations take sums of any size"
        raise node.unsupported("with a clip is not supported", why, "export the model without it")
    if node.integer("input_forget", 0):
        what = "with coupled input and forget gates is not supported"
        raise node.unsupported(what, "there is code for input_forget = 0", "export the model without it")
    present = node.attributes.get("outputs_present", (0,))
    outputs = tuple(int(v) for v in present) if isinstance(present, tuple) else (0,)
    x = node.input(X).shape
    if len(x) != 3:
        raise node.refusal(f"has an input of rank {len(x)}", "rank 3 is expected")
    if node.has_input(SEQUENCE_LENGTHS):
        lengths, steps = node.constant(SEQUENCE_LENGTHS, "sequence lengths"), x[1 if layout else 0]
        if not (lengths == steps).all():
            what = "with sequences of different lengths is not supported"
            why = f"every sequence has {steps} steps in the generated code"
            raise node.unsupported(what, why, "leave out the sequence lengths")
    return units, str(direction), layout, outputs


def state_shape(bound: BoundNode) -> Shape:
    """Of the state after the last step, and before the first."""
    s = sizes_of(bound)
    return (s.batches, s.directions, s.units) if bound.op(Recurrent).layout else (s.directions, s.batches, s.units)


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    s, state = sizes_of(bound), state_shape(bound)
    all_steps = (s.steps, s.directions, s.batches, s.units)
    if bound.op(Recurrent).layout:
        all_steps = (s.batches, s.steps, s.directions, s.units)
    return tuple((all_steps, state, state)[position] for position in bound.op(Recurrent).outputs)


def require_input_shapes(bound: BoundNode, expected: Mapping[int, Shape]) -> None:
    """Refuses operands of other shapes than expected, by position."""
    for position, shape in expected.items():
        tensor = bound.optional(position)
        if tensor is not None and tensor.shape != shape:
            raise illegal(bound, f"has an input {list(tensor.shape)}", f"{list(shape)} is expected", tensor=tensor)


def require_shapes(bound: BoundNode, expected: Mapping[int, Shape]) -> None:
    """Refuses operands of other shapes than expected (by position), and empty ones."""
    if 0 in bound.input(X).shape or 0 in bound.input(R).shape:
        raise illegal(bound, "has an empty input", "a dimension is 0", tensor=bound.input(X))
    require_input_shapes(bound, expected)
    if len(bound.op(Recurrent).outputs) != len(bound.outputs):
        raise unsupported(bound, "has other outputs than it names", "one is missing", "export the model again")


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


def check_floats(bound: BoundNode, gates: int) -> None:
    """Refuses other types than float32, and shapes that do not fit each other."""
    tensors = [tensor for tensor in bound.inputs if tensor is not None]
    require_dtypes(bound, [(DType.FLOAT32,) * (len(tensors) + len(bound.outputs))])
    require_shapes(bound, operand_shapes(bound, gates))


# ---- reference ----


def operand_values(bound: BoundNode, inputs: Sequence[Array | None]) -> list[Real | None]:
    """Every operand's value in double, X with the steps first, constants from the graph; one that is left out is None."""
    values = [
        None if tensor is None else np.asarray(tensor.array() if value is None else value, np.float64)
        for tensor, value in zip(bound.inputs, inputs, strict=True)
    ]
    x = values[X]
    if bound.op(Recurrent).layout and x is not None:
        values[X] = x.swapaxes(0, 1)
    return values + [None] * (PEEPHOLES + 1 - len(values))


def initial_state(bound: BoundNode, value: Real | None) -> Real:
    """[D, B, H], of zeros where the model gives none."""
    s = sizes_of(bound)
    if value is None:
        return np.zeros((s.directions, s.batches, s.units))
    return value.swapaxes(0, 1) if bound.op(Recurrent).layout else value


def sigmoid(x: Real) -> Real:
    """1 / (1 + exp(-x))."""
    with np.errstate(all="ignore"):
        return np.asarray(1 / (1 + np.exp(-x)))


def over_steps(
    bound: BoundNode,
    states: Sequence[NDArray[Any]],
    step: Callable[[int, int, Sequence[NDArray[Any]]], Sequence[NDArray[Any]]],
) -> tuple[Array, ...]:
    """The outputs that are there, in float32 and the node's layout, of a layer whose first state is its output.

    states: [D, B, H] before the first step. step: gives the states [B, H] after a step, from the direction, the number of the
    step and the states before it.
    """
    op, s = bound.op(Recurrent), sizes_of(bound)
    states = [state.copy() for state in states]
    every = np.zeros((s.steps, s.directions, s.batches, s.units))
    with np.errstate(all="ignore"):
        for d in range(s.directions):
            for t in range(s.steps)[:: -1 if d or op.direction == "reverse" else 1]:
                for state, value in zip(states, step(d, t, [state[d] for state in states]), strict=True):
                    state[d] = value
                every[t, d] = states[0][d]
    results = [every.transpose(2, 0, 1, 3) if op.layout else every]
    results += [state.swapaxes(0, 1) if op.layout else state for state in states]
    return tuple(np.ascontiguousarray(results[position], np.float32) for position in op.outputs)


# ---- layers ----


def products_of(bound: BoundNode, gates: int) -> int:
    s = sizes_of(bound)
    return s.steps * s.directions * s.batches * gates * s.units * (s.inputs + s.units)


def with_summed_bias(
    bound: BoundNode, tables: tuple[Table, ...], gates: int, summed: int, comment: str
) -> tuple[tuple[Table, ...], int]:
    """The tables with a constant bias as the sums of both biases of the first `summed` gates, and 2 biases of the others.

    The second result counts these biases of a direction. It is 0 where the bias is computed, or left out.
    """
    tensor = bound.optional(B)
    if tensor is None or not tensor.is_constant:
        return tables, 0
    of_input, recurrent = np.split(tensor.array().astype(np.float32), 2, axis=1)
    cut = summed * sizes_of(bound).units
    with np.errstate(all="ignore"):
        both = of_input[:, :cut] + recurrent[:, :cut]
    values = np.concatenate([both, of_input[:, cut:], recurrent[:, cut:]], axis=1)
    bias = Table("bias", "float", tuple(values.reshape(-1).tolist()), comment)
    return tuple(bias if table.role == "bias" else table for table in tables), values.shape[1]


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
    """Sizes, and the distances between the values of steps, batches and directions."""
    op, s = bound.op(Recurrent), sizes_of(bound)
    x_step, x_batch = s.batches * s.inputs, s.inputs
    y_step, y_batch, y_direction = s.directions * s.batches * s.units, s.units, s.batches * s.units
    state_batch, state_direction = s.units, s.batches * s.units
    if op.layout:
        x_step, x_batch = s.inputs, s.steps * s.inputs
        y_step, y_batch, y_direction = s.directions * s.units, s.steps * s.directions * s.units, s.units
        state_batch, state_direction = s.directions * s.units, s.units
    return integers(
        steps=s.steps,
        batches=s.batches,
        inputs=s.inputs,
        units=s.units,
        directions=s.directions,
        reverse=(int(op.direction == "reverse"), "1: from the last step to the first"),
        x_step=(x_step, "elements of x to the next step"),
        x_batch=x_batch,
        y_step=(y_step, "elements of y"),
        y_batch=y_batch,
        y_direction=y_direction,
        state_batch=(state_batch, "elements of a state"),
        state_direction=state_direction,
    )


def presence_params(bound: BoundNode, present: Mapping[str, bool], outputs: Sequence[str]) -> tuple[Param, ...]:
    """1 for each operand and output that is there; the weights always are."""
    written = bound.op(Recurrent).outputs
    optional = {role: there for role, there in present.items() if role not in "wr"}
    flags = {**optional, **{role: position in written for position, role in enumerate(outputs)}}
    return tuple(Param(f"has_{role}", "int32_t", int(flag)) for role, flag in flags.items())


def float_layer(
    bound: BoundNode, template: str, operands: tuple[int, ...], tables: tuple[Table, ...], params: tuple[Param, ...]
) -> Layer:
    """The portable layer of an operator in float32, whose working memory has room for three states."""
    states, gates = Scratch("states", 3 * 4 * sizes_of(bound).units), bound.input(W).shape[1] // sizes_of(bound).units
    return Layer(
        template,
        operands=operands,
        tables=tables,
        params=params,
        scratch=(states,),
        macs=products_of(bound, gates),
        headers=engine_functions.HEADERS,
    )


def four_rows_at_a_time(bound: BoundNode, layer: Layer, rows: tuple[int, int], order: tuple[int, ...]) -> Layer | str:
    """The layer with its weights in another order; or why it has none to lay out.

    rows: what the rows of a direction's weights are taken for. order: of directions, these two dimensions and the values.
    """
    s = sizes_of(bound)
    sizes = {role: (s.directions, *rows, depth) for role, depth in (("w", s.inputs), ("r", s.units))}
    layer = replace(layer, headers=(*layer.headers, "emitc_fpu_tanh.h"))
    return four_channels.laid_out(layer, sizes, order)

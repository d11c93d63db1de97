"""SVDF and LSTM as calls of CMSIS-NN. Their states are further outputs of the layer function: y1, y2."""

from collections.abc import Mapping

import numpy as np

from emitc.backends.cmsis_nn.buffer_sizes import Call, Dims
from emitc.backends.cmsis_nn.calls import Arguments, Library, limits, reference, scaled
from emitc.backends.cmsis_nn.mac import kernel_sums
from emitc.backends.kernel_library import POINTER, number
from emitc.ir import BoundNode, DType
from emitc.kernels.recurrent import sequence_lstm_tflite as sequence
from emitc.kernels.recurrent.svdf import BIAS, FEATURE, MEMORY, TIME, Svdf, X
from emitc.kernels.recurrent.svdf import multipliers as svdf_multipliers
from emitc.layer import Expression, Layer, Scratch, Structure, Table
from emitc.numerics.requantize import Clamp

_INT16 = 2
_INT32 = 4
_LARGEST_PART = 2**15 - 1
"""Of a gate's input, in Q3.12."""
_LEAST_CELL_EXPONENT = -14
"""From here on the product of two gates is no larger than the cell state's type holds."""


def svdf_refusal(library: Library, bound: BoundNode) -> str:
    """Its 8-bit memory has no zero point."""
    memory = bound.input(MEMORY)
    return "its 8-bit memory has no zero point" if memory.zero_point else ""


def svdf(library: Library, bound: BoundNode) -> Layer:
    """arm_svdf_s8, arm_svdf_state_s16_s8: input_offset is the zero point itself, and not its negative as elsewhere."""
    op, x, memory, y = bound.op(Svdf), bound.input(X), bound.input(MEMORY), bound.output
    feature, time, bias = bound.input(FEATURE), bound.input(TIME), bound.optional(BIAS)
    (batches, depth), (filters, steps), units = x.shape, time.shape, y.shape[1]
    function = "arm_svdf_state_s16_s8" if memory.dtype is DType.INT16 else "arm_svdf_s8"
    with_sums = library.tree.takes(function, "ctx")
    biases = np.zeros(units, np.int64) if bias is None else bias.array().astype(np.int64)
    tables: tuple[Table, ...] = (
        Table("feature", "int8_t", tuple(feature.array().reshape(-1).tolist()), f"feature weights {filters}x{depth}"),
        Table("time", time.dtype.c_type, tuple(time.array().reshape(-1).tolist()), f"time weights {filters}x{steps}"),
        Table("bias", "int32_t", tuple(biases.tolist()), "bias per output"),
    )
    call = Call(Dims(batches, depth, 1, 1), Dims(filters, depth, 1, 1), Dims(batches, units, 1, 1))
    sums_bytes = library.bytes_of("arm_svdf_s8", call) if with_sums else 0
    if sums_bytes:
        sums = feature.array().astype(np.int64).sum(axis=1)
        tables = (*tables, kernel_sums(library, sums, np.zeros(filters, np.int64), -x.zero_point))
    members = {
        "rank": number(op.rank),
        "input_offset": number(x.zero_point),
        "output_offset": number(y.zero_point),
        "input_activation": limits(Clamp(*memory.dtype.range)),
        "output_activation": limits(Clamp(*y.dtype.range)),
    }
    of_inputs, of_outputs = svdf_multipliers(bound)
    shapes = {
        "input_dims": call.input,
        "state_dims": Dims(batches, filters, steps, 1),
        "weights_feature_dims": call.filter,
        "weights_time_dims": Dims(filters, steps, 1, 1),
        "bias_dims": Dims(units, 1, 1, 1),
        "output_dims": call.output,
    }
    scratch = (Scratch("scores", _INT32 * batches * filters), Scratch("sums_of_outputs", _INT32 * batches * units))
    roles = ("input_context", "output_context")
    structures = (
        library.structure("params", "cmsis_nn_svdf_params", members),
        library.quantization(of_inputs, "input_quantization"),
        library.quantization(of_outputs, "output_quantization"),
        *library.dims(shapes),
        *((library.context(sums_bytes, Expression(POINTER, "sums")),) if with_sums else ()),
        *(library.context(s.size_bytes, Expression(s.role), role) for s, role in zip(scratch, roles, strict=True)),
    )
    data = {
        "state_data": Expression("y1"),
        "weights_feature_data": Expression(table="feature"),
        "weights_time_data": Expression(table="time"),
    }
    macs = batches * filters * (depth + steps)
    return library.called(function, Arguments(structures, data), tables, scratch, macs, (X,))


def lstm_refusal(library: Library, bound: BoundNode) -> str:
    """Versions whose state ends with the call, and layers in which the library limits values at other places.

    It adds the second product of a gate to the first before it limits the sum, where TFLite Micro limits both products; so
    it does with what is added to the cell state. Where these cannot be beyond 16 bits the results are the same.
    """
    if sequence.in_float(bound):
        return "emitc calls CMSIS-NN for int8"
    if not library.tree.has_member("cmsis_nn_lstm_context", "hidden_state"):
        return f"CMSIS-NN {library.tree.version}: its LSTM begins every call with a state of zeros"
    largest = max(sequence.recurrent_parts(bound))
    if largest > _LARGEST_PART:
        return (
            f"the recurrent part of a gate can reach {largest:.0f} of {_LARGEST_PART}, where TFLite Micro limits it by itself, "
            "but the library only the whole"
        )
    if sequence.cell_exponent(bound) < _LEAST_CELL_EXPONENT:
        return "what is added to the cell state can be larger than that, which TFLite Micro limits and the library does not"
    return "the library takes a cell_clip below one step for none" if sequence.cell_limit(bound) == 0 else ""


_GATES = ("input_gate", "forget_gate", "cell_gate", "output_gate")
"""The library's names, in the order i, f, g, o."""


def _gates(bound: BoundNode) -> tuple[list[Table], dict[str, Expression]]:
    """Weights and biases of the four gates, and the members of the parameters that name them."""
    gates, _ = sequence.multipliers(bound)
    of_x, of_h = sequence.starts(bound)
    tables: list[Table] = []
    members: dict[str, Expression] = {}
    for k, gate in enumerate(_GATES):
        parts = (("input", of_x, gates[k], sequence.INPUT), ("hidden", of_h, gates[4 + k], sequence.RECURRENT))
        for part, start, factor, positions in parts:
            weights = bound.input(positions[k]).array()
            shape = "x".join(map(str, weights.shape))
            role, bias = f"{gate}_{part}", f"{gate}_{part}_bias"
            tables.append(
                Table(role, "int8_t", tuple(weights.reshape(-1).tolist()), f"{part} weights {shape} of {gate}")
            )
            tables.append(Table(bias, "int32_t", tuple(start[:, k].tolist()), "bias with the zero point's share"))
            members |= scaled(f"{gate}.{part}_multiplier", f"{gate}.{part}_shift", factor) | {
                f"{gate}.{part}_weights": Expression(table=role),
                f"{gate}.{part}_effective_bias": Expression(table=bias),
            }
        members[f"{gate}.activation_type"] = Expression("ARM_TANH" if gate == "cell_gate" else "ARM_SIGMOID")
    return tables, members


def lstm(library: Library, bound: BoundNode) -> Layer:
    """arm_lstm_unidirectional_s8 with both states; cell_clip 0 is none."""
    sizes, major = sequence.sizes_of(bound), sequence.is_time_major(bound)
    _, (keep, add, out) = sequence.multipliers(bound)
    x, h = bound.input(0), bound.output
    members: dict[str, Expression] = {
        "time_major": number(int(major)),
        "batch_size": number(sizes.batches),
        "time_steps": number(sizes.steps),
        "input_size": number(sizes.inputs),
        "hidden_size": number(sizes.units),
        "input_offset": number(-x.zero_point),
        **scaled("forget_to_cell_multiplier", "forget_to_cell_shift", keep),
        **scaled("input_to_cell_multiplier", "input_to_cell_shift", add),
        "cell_clip": number(sequence.cell_limit(bound) or 0),
        "cell_scale_power": number(sequence.cell_exponent(bound)),
        **scaled("output_multiplier", "output_shift", out),
        "output_offset": number(h.zero_point),
    }
    tables, of_gates = _gates(bound)
    members |= of_gates
    gate_bytes = _INT16 * sizes.units * (sizes.batches if major else 1)
    scratch = (Scratch("temp1", gate_bytes), Scratch("temp2", gate_bytes))
    pointers = {"temp1": "temp1", "temp2": "temp2", "cell_state": "y2", "hidden_state": "y1"}
    buffers = {name: Expression(pointer) for name, pointer in pointers.items()}
    structures = (
        _nested(library, "params", "cmsis_nn_lstm_params", members),
        library.structure("buffers", "cmsis_nn_lstm_context", buffers, constant=False),
    )
    others = {
        "params": reference(structures[0]),
        "buffers": Expression(f"{POINTER}&buffers"),  # it is read only
    }
    arguments = Arguments(structures, others)
    return library.called("arm_lstm_unidirectional_s8", arguments, tuple(tables), scratch, sequence.work(bound))


def _nested(library: Library, role: str, c_type: str, members: Mapping[str, Expression]) -> Structure:
    """A constant structure, members of members among its own, as this version has them."""
    known: list[str] = []
    for member in library.tree.structures[c_type]:
        inner = library.tree.structures.get(member.c_type, ())
        known += [f"{member.name}.{tensor.name}" for tensor in inner] or [member.name]
    return Structure(role, c_type, tuple((name, members[name]) for name in known if name in members))

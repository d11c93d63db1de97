"""Cases of operators that keep state: SVDF and UNIDIRECTIONAL_SEQUENCE_LSTM, with random weights from the case's name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from emitc.writers.tflite import TensorSpec
from tests.support.layer_cases import named_rng, single
from tests.support.single_op import Case, plain, quantized


@dataclass(frozen=True, slots=True)
class SvdfScales:
    """Scales of input, memory and output, and their zero points; those of the weights are 0.01 and 0.01 or 2**-15."""

    x: float = 0.05
    memory: float = 0.3
    y: float = 0.2
    x_zero: int = -5
    memory_zero: int = 7
    y_zero: int = -12


WIDE = SvdfScales(memory=0.0013, memory_zero=0)
NARROW = SvdfScales()


def svdf(
    name: str, batches: int, depth: int, units: int, rank: int, steps: int, scales: SvdfScales = NARROW, *,
    kind: str = "int8", activation: str = "NONE", bias: int = 3000, full: bool = False,
) -> Case:  # fmt: skip
    """full: weights at the ends of their types."""
    rng = named_rng(name)
    filters = units * rank
    end = np.iinfo(kind).max
    feature = rng.integers(-127, 127, (filters, depth), endpoint=True).astype(np.int8)
    time = rng.integers(-end, end, (filters, steps), endpoint=True).astype(kind)
    if full:
        feature, time = np.where(feature < 0, -127, 127).astype(np.int8), np.where(time < 0, -end, end).astype(kind)
    time_scale = single(0.01 if kind == "int8" else 2.0**-15)
    bias_scale = single(np.float32(scales.memory) * np.float32(time_scale))
    memory = TensorSpec(
        "", kind, (batches, filters * steps), None, (single(scales.memory),), (scales.memory_zero,), is_variable=True
    )
    values = rng.integers(-bias, bias, units, endpoint=True).astype("<i4")
    inputs = (
        quantized((batches, depth), single(scales.x), scales.x_zero),
        TensorSpec("", "int8", feature.shape, feature.tobytes(), (single(0.01),), (0,)),
        TensorSpec("", kind, time.shape, time.tobytes(), (time_scale,), (0,)),
        TensorSpec("", "int32", (units,), values.tobytes(), (bias_scale,), (0,)),
        memory,
    )
    y = quantized((batches, units), single(scales.y), scales.y_zero)
    return Case(name, "SVDF", inputs, (y,), {"rank": rank, "fused_activation_function": activation}, 3)


def svdf_float(
    name: str, batches: int, depth: int, units: int, rank: int, steps: int, activation: str = "NONE"
) -> Case:  # fmt: skip
    """A layer of float32 with random weights."""
    rng = named_rng(name)
    sizes = ((units * rank, depth), (units * rank, steps), (units,))
    weights = [TensorSpec("", "float32", size, rng.normal(0.0, 1.0, size).astype("<f4").tobytes()) for size in sizes]
    memory = TensorSpec("", "float32", (batches, units * rank * steps), None, is_variable=True)
    options = {"rank": rank, "fused_activation_function": activation}
    return Case(name, "SVDF", (plain((batches, depth)), *weights, memory), (plain((batches, units)),), options, 1)


OPCODE = "UNIDIRECTIONAL_SEQUENCE_LSTM"
GATES = range(4)


@dataclass(frozen=True, slots=True)
class LstmScales:
    """Quantization of a layer. weights: of each gate, i, f, g, o. cell: exponent of the cell state's scale to base two."""

    x: float = 0.02
    weights: tuple[float, float, float, float] = (0.008, 0.007, 0.009, 0.011)
    h: float = 0.0078
    x_zero: int = -5
    h_zero: int = 3
    cell: int = -12


USUAL = LstmScales()
SHORTS = LstmScales(x=0.0001, h=2.0**-15)


def lstm(
    name: str, batches: int, steps: int, depth: int, units: int, scales: LstmScales = USUAL, *,
    time_major: bool = False, clip: float = 10.0, inputs: int = 24,
) -> Case:  # fmt: skip
    """A layer with random weights; inputs: 20 or 24, of which those of variants are left out."""
    rng = named_rng(name)
    x_scale, h_scale = single(scales.x), single(scales.h)
    operands: list[TensorSpec | None] = [None] * inputs
    shape = (steps, batches, depth) if time_major else (batches, steps, depth)
    operands[0] = quantized(shape, x_scale, scales.x_zero)
    for gate in GATES:
        scale = single(scales.weights[gate])
        for first, columns in ((1, depth), (5, units)):
            values = rng.integers(-127, 127, (units, columns), endpoint=True).astype(np.int8)
            operands[first + gate] = TensorSpec("", "int8", values.shape, values.tobytes(), (scale,), (0,))
        bias = rng.integers(-4000, 4000, units, endpoint=True).astype("<i4")
        operands[12 + gate] = TensorSpec("", "int32", bias.shape, bias.tobytes(), (single(x_scale * scale),), (0,))
    operands[18] = TensorSpec("", "int8", (batches, units), None, (h_scale,), (scales.h_zero,), is_variable=True)
    operands[19] = TensorSpec("", "int16", (batches, units), None, (2.0**scales.cell,), (0,), is_variable=True)
    y = quantized((*shape[:2], units), h_scale, scales.h_zero)
    options: Mapping[str, float | bool | str] = {
        "fused_activation_function": "TANH", "cell_clip": clip, "proj_clip": 0.0, "time_major": time_major,
    }  # fmt: skip
    return Case(name, OPCODE, tuple(operands), (y,), options, 3)


def lstm_wide(
    name: str, batches: int, steps: int, depth: int, units: int, scales: LstmScales = SHORTS, *,
    time_major: bool = False, clip: float = 10.0, full: bool = False,
) -> Case:  # fmt: skip
    """A layer of int16 with biases of 64 bits. full: weights of -128 and inputs of -32768."""
    case, rng = lstm(name, batches, steps, depth, units, scales, time_major=time_major, clip=clip), named_rng(name)
    inputs = list(case.inputs)
    for position, tensor in enumerate(inputs):
        if tensor is not None and position in (0, 18):
            inputs[position] = replace(tensor, dtype="int16", zero_points=(0,))
        elif tensor is not None and tensor.dtype == "int32":
            values = rng.integers(-(10**7), 10**7, units, endpoint=True).astype("<i8")
            inputs[position] = replace(tensor, dtype="int64", data=values.tobytes())
        elif tensor is not None and full and tensor.dtype == "int8":
            inputs[position] = replace(tensor, data=np.full(tensor.shape, -128, np.int8).tobytes())
    y = replace(case.outputs[0], dtype="int16", zero_points=(0,))
    least = np.full(inputs[0].shape if inputs[0] else (), -(1 << 15), np.int16)
    return replace(
        case, inputs=tuple(inputs), outputs=(y,), draw=(lambda _, sample: [least // (1 + sample)]) if full else None
    )


def lstm_float(
    name: str, batches: int, steps: int, depth: int, units: int, *, time_major: bool = False, clip: float = 0.0,
    spread: float = 1.0,
) -> Case:  # fmt: skip
    """A layer of float32 with random weights of that spread."""
    rng = named_rng(name)
    operands: list[TensorSpec | None] = [None] * 24
    shape = (steps, batches, depth) if time_major else (batches, steps, depth)
    operands[0] = plain(shape)
    for gate in GATES:
        for position, size in ((1 + gate, (units, depth)), (5 + gate, (units, units)), (12 + gate, (units,))):
            values = rng.normal(0.0, spread, size).astype("<f4")
            operands[position] = TensorSpec("", "float32", size, values.tobytes())
    for position in (18, 19):
        operands[position] = TensorSpec("", "float32", (batches, units), None, is_variable=True)
    options: Mapping[str, float | bool | str] = {
        "fused_activation_function": "TANH", "cell_clip": clip, "proj_clip": 0.0, "time_major": time_major,
    }  # fmt: skip
    return Case(name, OPCODE, tuple(operands), (plain((*shape[:2], units)),), options, 1)

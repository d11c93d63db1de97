"""The intact models that the campaign damages: the shipped ones, and made ones that hold every operator once."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np

from emitc.kernels import tflite_registry
from emitc.writers.tflite import ModelSpec, OperatorSpec, OptionValue, TensorSpec, write_tflite
from tests.support.models.streaming import MODELS as STREAMING

SHIPPED = Path(__file__).resolve().parents[3] / "examples" / "models"


def int32(*values: int) -> TensorSpec:
    """A constant vector."""
    return TensorSpec("list", "int32", (len(values),), np.array(values, "<i4").tobytes())


def int8(*shape: int, scale: float = 0.05, zero_point: int = 3) -> TensorSpec:
    """A computed tensor."""
    return TensorSpec("value", "int8", shape, None, (scale,), (zero_point,))


def weights(*shape: int, scales: int = 1, axis: int = 0, seed: int = 1) -> TensorSpec:
    """A constant int8 tensor, symmetric."""
    data = np.random.default_rng(seed).integers(-128, 128, shape, np.int8).tobytes()
    return TensorSpec("weights", "int8", shape, data, (0.01,) * scales, (0,) * scales, axis)


def bias(count: int, scale: float = 0.0005) -> TensorSpec:
    """A constant int32 vector."""
    return TensorSpec(
        "bias", "int32", (count,), np.arange(count, dtype="<i4").tobytes(), (scale,) * count, (0,) * count
    )


Step = tuple[str, tuple[TensorSpec | int | None, ...], tuple[TensorSpec, ...], dict[str, OptionValue]]


def model(inputs: tuple[TensorSpec, ...], steps: list[Step]) -> ModelSpec:
    """Steps over tensors: an operand is a constant or variable, or the number of an input or of an earlier output.

    Values that nothing reads are the model's outputs.
    """
    tensors = list(inputs)
    values = list(range(len(inputs)))
    read: set[int] = set()
    operators = []
    for opcode, operands, outputs, options in steps:
        indices = []
        for operand in operands:
            if operand is None:
                indices.append(-1)
            elif isinstance(operand, TensorSpec):
                tensors.append(operand)
                indices.append(len(tensors) - 1)
            else:
                read.add(values[operand])
                indices.append(values[operand])
        written = tuple(range(len(tensors), len(tensors) + len(outputs)))
        tensors += outputs
        values += written
        operators.append(OperatorSpec(opcode, tuple(indices), written, options))
    named = tuple(replace(t, name=f"{t.name}_{i}") for i, t in enumerate(tensors))
    ends = tuple(v for v in values[len(inputs) :] if v not in read)
    return ModelSpec(named, tuple(operators), tuple(range(len(inputs))), ends, "hostile corpus")


def network() -> ModelSpec:
    """Windows, matrix products and a softmax in a row."""
    pool: dict[str, OptionValue] = {
        "padding": "VALID",
        "stride_w": 1,
        "stride_h": 1,
        "filter_width": 2,
        "filter_height": 2,
    }
    conv: dict[str, OptionValue] = {
        "padding": "SAME",
        "stride_w": 2,
        "stride_h": 2,
        "fused_activation_function": "RELU6",
    }
    depthwise: dict[str, OptionValue] = {
        "padding": "SAME", "stride_w": 1, "stride_h": 1, "depth_multiplier": 2, "dilation_w_factor": 2, "dilation_h_factor": 2,
    }  # fmt: skip
    return model(
        (int8(1, 12, 12, 4),),
        [
            ("PAD", (0, int32(0, 0, 1, 0, 0, 1, 0, 0)), (int8(1, 13, 13, 4),), {}),
            ("CONV_2D", (1, weights(8, 3, 3, 4, scales=8), bias(8)), (int8(1, 7, 7, 8),), conv),
            ("DEPTHWISE_CONV_2D", (2, weights(1, 3, 3, 16, scales=16, axis=3), bias(16)), (int8(1, 7, 7, 16),), depthwise),
            ("CONV_2D", (3, weights(4, 1, 1, 16)), (int8(1, 7, 7, 4),), conv | {"stride_w": 1, "stride_h": 1}),
            ("MAX_POOL_2D", (4,), (int8(1, 6, 6, 4),), pool),
            ("AVERAGE_POOL_2D", (5,), (int8(1, 5, 5, 4),), pool),
            ("RESHAPE", (6, int32(-1, 100)), (int8(1, 100),), {"new_shape": (-1, 100)}),
            ("FULLY_CONNECTED", (7, weights(10, 100), bias(10)), (int8(1, 10),), {"fused_activation_function": "RELU"}),
            ("SOFTMAX", (8,), (int8(1, 10, scale=1 / 256, zero_point=-128),), {"beta": 1.0}),
        ],
    )  # fmt: skip


def moves() -> ModelSpec:
    """Everything that moves values without changing them, each on its own."""
    middle = replace(weights(1, 4, 2, 4), scales=(0.05,), zero_points=(3,))
    box: dict[str, OptionValue] = {"begin_mask": 1, "end_mask": 1, "shrink_axis_mask": 8}
    steps: list[Step] = [
        ("PADV2", (0, int32(0, 0, 2, 1, 0, 3, 0, 0), TensorSpec("fill", "int8", (1,), b"\x05", (0.05,), (3,))),
         (int8(1, 7, 9, 4),), {}),
        ("RESHAPE", (0, int32(4, -1)), (int8(4, 24),), {"new_shape": (4, -1)}),
        ("SQUEEZE", (0,), (int8(4, 6, 4),), {"squeeze_dims": (0,)}),
        ("EXPAND_DIMS", (0, int32(1)), (int8(1, 1, 4, 6, 4),), {}),
        ("TRANSPOSE", (0, int32(0, 2, 3, 1)), (int8(1, 6, 4, 4),), {}),
        ("SLICE", (0, int32(0, 1, 2, 0), int32(1, 2, -1, 3)), (int8(1, 2, 4, 3),), {}),
        ("STRIDED_SLICE", (0, int32(0, 3, 0, 1), int32(1, 0, 6, 2), int32(1, -1, 2, 1)), (int8(1, 3, 3),), box),
        ("SPLIT", (int32(3), 0), (int8(1, 4, 6, 2), int8(1, 4, 6, 2)), {"num_splits": 2}),
        ("SPLIT_V", (0, int32(1, -1, 2), int32(2)), (int8(1, 4, 1, 4), int8(1, 4, 3, 4), int8(1, 4, 2, 4)), {"num_splits": 3}),
        ("CONCATENATION", (0, middle, 0), (int8(1, 4, 14, 4),), {"axis": 2}),
        ("PACK", (0, 0), (int8(1, 4, 2, 6, 4),), {"values_count": 2, "axis": 2}),
        ("UNPACK", (0,), (int8(1, 6, 4),) * 4, {"num": 4, "axis": 1}),
        ("RESIZE_NEAREST_NEIGHBOR", (0, int32(7, 9)), (int8(1, 7, 9, 4),), {}),
        ("RESIZE_BILINEAR", (0, int32(8, 12)), (int8(1, 8, 12, 4),), {"half_pixel_centers": True}),
    ]  # fmt: skip
    return model((int8(1, 4, 6, 4),), [step for step in steps if step[0] in tflite_registry()])


def arithmetic() -> ModelSpec:
    """Everything that works element by element or along an axis, each on its own."""
    row = replace(weights(1, 1, 1, 4), scales=(0.02,), zero_points=(-4,))
    relu: dict[str, OptionValue] = {"fused_activation_function": "RELU"}
    unit = int8(1, 4, 6, 4, scale=1 / 256, zero_point=-128)
    steps: list[Step] = [
        ("ADD", (0, 1), (int8(1, 4, 6, 4),), relu),
        ("ADD", (0, row), (int8(1, 4, 6, 4),), {}),
        ("SUB", (0, 1), (int8(1, 4, 6, 4),), relu),
        ("MUL", (0, 1), (int8(1, 4, 6, 4),), relu),
        ("MUL", (row, 0), (int8(1, 4, 6, 4),), {}),
        ("MINIMUM", (0, 2), (int8(1, 4, 6, 4),), {}),
        ("MAXIMUM", (0, 2), (int8(1, 4, 6, 4),), {}),
        ("LOGISTIC", (0,), (unit,), {}),
        ("TANH", (0,), (int8(1, 4, 6, 4, scale=1 / 128, zero_point=0),), {}),
        ("RELU", (0,), (int8(1, 4, 6, 4),), {}),
        ("RELU6", (0,), (int8(1, 4, 6, 4),), {}),
        ("LEAKY_RELU", (0,), (int8(1, 4, 6, 4),), {"alpha": 0.1}),
        ("HARD_SWISH", (0,), (int8(1, 4, 6, 4),), {}),
        ("MEAN", (0, int32(1, 2)), (int8(1, 1, 1, 4),), {"keep_dims": True}),
        ("ARG_MAX", (0, int32(3)), (TensorSpec("index", "int32", (1, 4, 6)),), {"output_type": "INT32"}),
        ("QUANTIZE", (0,), (int8(1, 4, 6, 4, scale=0.2, zero_point=-9),), {}),
        ("DEQUANTIZE", (0,), (TensorSpec("real", "float32", (1, 4, 6, 4)),), {}),
        ("QUANTIZE", (3,), (int8(1, 4),), {}),
    ]
    inputs = (
        int8(1, 4, 6, 4),
        int8(1, 1, 6, 1, scale=0.3, zero_point=-20),
        int8(1, 4, 6, 4),
        TensorSpec("real", "float32", (1, 4)),
    )
    return model(inputs, [step for step in steps if step[0] in tflite_registry()])


def halves(*shape: int, seed: int = 1) -> TensorSpec:
    """A constant int4 tensor."""
    count = (int(np.prod(shape)) + 1) // 2
    return replace(weights(count, seed=seed), dtype="int4", shape=shape)


def variable(*shape: int, dtype: str = "int8", scale: float = 0.1, zero_point: int = 0) -> TensorSpec:
    """A state."""
    return TensorSpec("state", dtype, shape, None, (scale,), (zero_point,), is_variable=True)


def sequences() -> ModelSpec:
    """What keeps state, and weights of four bits."""
    window: dict[str, OptionValue] = {"padding": "SAME", "stride_w": 1, "stride_h": 1}
    gates = [weights(5, 4, seed=k) for k in range(4)] + [weights(5, 5, seed=k) for k in range(4, 8)]
    cell: dict[str, OptionValue] = {"fused_activation_function": "TANH", "cell_clip": 8.0, "time_major": False}
    states = (variable(3, 5, scale=0.01), variable(3, 5, dtype="int16", scale=2.0**-12))
    h = int8(3, 6, 5, scale=0.01, zero_point=0)
    filters = (weights(6, 24), weights(6, 4, seed=2), bias(3, 0.001))
    steps: list[Step] = [
        ("CONV_2D", (0, halves(5, 3, 3, 4), bias(5)), (int8(3, 6, 1, 5),), window),
        ("DEPTHWISE_CONV_2D", (0, halves(1, 3, 3, 4), bias(4)), (int8(3, 6, 1, 4),), window | {"depth_multiplier": 1}),
        ("RESHAPE", (0, int32(3, 24)), (int8(3, 24),), {"new_shape": (3, 24)}),
        ("FULLY_CONNECTED", (3, halves(7, 24), bias(7)), (int8(3, 7),), {"fused_activation_function": "RELU"}),
        ("SVDF", (3, *filters, variable(3, 24, zero_point=4)), (int8(3, 3),), {"rank": 2}),
        ("RESHAPE", (0, int32(3, 6, 4)), (int8(3, 6, 4),), {"new_shape": (3, 6, 4)}),
        ("UNIDIRECTIONAL_SEQUENCE_LSTM",
         (6, *gates, None, None, None, *(bias(5),) * 4, None, None, *states, None, None, None, None), (h,), cell),
    ]  # fmt: skip
    return model((int8(3, 6, 1, 4),), steps)


def made() -> dict[str, ModelSpec]:
    """The made models by name."""
    nets = {"network": network(), "moves": moves(), "arithmetic": arithmetic(), "sequences": sequences()}
    return nets | {name: STREAMING[name]() for name in ("rows", "twice")}


def corpus() -> dict[str, bytes]:
    """Every intact model by name."""
    shipped = {path.stem: path.read_bytes() for path in sorted(SHIPPED.glob("*.tflite"))}
    return shipped | {name: write_tflite(spec) for name, spec in made().items()}


_NUMBERS = (0, 1, -1, 2, 3, 7, 64, 255, 256, 4096, 65535, 65536, 2**24, 2**30, 2**31 - 1, -(2**31), -2, -128)
_REALS = (
    0.0,
    -0.1,
    1e-45,
    1e-38,
    1e-10,
    1e-4,
    0.5,
    1.0,
    255.0,
    1e6,
    1e20,
    3e38,
    float("inf"),
    float("nan"),
    -float("inf"),
)
_TYPES = (
    "int8",
    "uint8",
    "int16",
    "int32",
    "int64",
    "float32",
    "float16",
    "bool",
    "int4",
    "string",
    "complex64",
    "float64",
)


class SpecDamager:
    """A made model described wrongly: its numbers, types, shapes, scales and wiring changed, the file itself well formed."""

    suffix = ".tflite"

    def __init__(self, name: str, spec: ModelSpec) -> None:
        self.name = f"{name} described wrongly"
        self.spec = spec

    def damaged(self, number: int) -> tuple[str, bytes]:
        """(what was changed, bytes)."""
        rng = random.Random(f"{self.name}:{number}")
        while True:
            spec, kinds = self.spec, []
            for _ in range(1 if rng.random() < 0.85 else rng.randrange(2, 5)):
                kind, spec = _changed(spec, rng)
                kinds.append(kind)
            try:
                return " + ".join(kinds), write_tflite(spec)
            except ValueError:
                continue


def _changed(spec: ModelSpec, rng: random.Random) -> tuple[str, ModelSpec]:
    if rng.random() < 0.45:
        index = rng.randrange(len(spec.operators))
        kind, operator = _changed_operator(spec, spec.operators[index], rng)
        return kind, replace(spec, operators=(*spec.operators[:index], operator, *spec.operators[index + 1 :]))
    index = rng.randrange(len(spec.tensors))
    kind, tensor = _changed_tensor(spec.tensors[index], rng)
    return kind, replace(spec, tensors=(*spec.tensors[:index], tensor, *spec.tensors[index + 1 :]))


def _changed_operator(spec: ModelSpec, operator: OperatorSpec, rng: random.Random) -> tuple[str, OperatorSpec]:
    kind = rng.choice(("option", "option", "option", "operand", "operand", "arity", "output", "opcode", "version"))
    if kind == "option" and operator.options:
        name = rng.choice(sorted(operator.options))
        old = operator.options[name]
        new: OptionValue = rng.choice(_NUMBERS)
        if isinstance(old, tuple):
            new = tuple(rng.choice(_NUMBERS) for _ in range(rng.randrange(0, 9)))
        elif isinstance(old, float):
            new = rng.choice(_REALS)
        elif isinstance(old, bool):
            new = not old
        elif isinstance(old, str):
            new = rng.randrange(0, 8)
        return f"option {name}", replace(operator, options={**operator.options, name: new})
    if kind == "operand" and operator.inputs:
        at = rng.randrange(len(operator.inputs))
        new_input = rng.choice(
            (-1, -2, len(spec.tensors), rng.randrange(len(spec.tensors)), rng.randrange(len(spec.tensors)))
        )
        return kind, replace(operator, inputs=(*operator.inputs[:at], new_input, *operator.inputs[at + 1 :]))
    if kind == "arity":
        count = rng.choice((0, 1, 2, 3, 5, 70))
        return kind, replace(operator, inputs=(operator.inputs * 70)[:count])
    if kind == "output":
        return kind, replace(
            operator, outputs=(*operator.outputs[1:], rng.randrange(len(spec.tensors)))[: rng.choice((0, 1, 2))]
        )
    if kind == "opcode":
        other = rng.choice(spec.operators).opcode
        return kind, replace(operator, opcode=other, options={})
    return "version", replace(operator, version=rng.choice((0, 2, 3, 99, 2**31 - 1)))


def _changed_tensor(tensor: TensorSpec, rng: random.Random) -> tuple[str, TensorSpec]:
    kind = rng.choice(
        ("scale", "scale", "zero point", "scales", "shape", "shape", "rank", "type", "values", "values", "constant")
    )
    if kind == "scale" and tensor.scales:
        at = rng.randrange(len(tensor.scales))
        return kind, replace(tensor, scales=(*tensor.scales[:at], rng.choice(_REALS), *tensor.scales[at + 1 :]))
    if kind == "zero point" and tensor.zero_points:
        at = rng.randrange(len(tensor.zero_points))
        new = rng.choice((-128, 127, 128, 2**31, -(2**63), 1))
        return kind, replace(tensor, zero_points=(*tensor.zero_points[:at], new, *tensor.zero_points[at + 1 :]))
    if kind == "scales":
        count = rng.choice((0, 1, 2, 4, 8, 100))
        scales = (tensor.scales or (0.1,)) * 100
        axis = rng.choice((0, 1, 3, 4, -1, 2**31 - 1))
        return kind, replace(tensor, scales=scales[:count], zero_points=(0,) * count, quantized_dimension=axis)
    if kind == "shape" and tensor.shape:
        at = rng.randrange(len(tensor.shape))
        return kind, replace(tensor, shape=(*tensor.shape[:at], rng.choice(_NUMBERS), *tensor.shape[at + 1 :]))
    if kind == "rank":
        return kind, replace(
            tensor, shape=rng.choice((tensor.shape[1:], (1, *tensor.shape), (), (1,) * 40, (65536,) * 4))
        )
    if kind == "type":
        return kind, replace(tensor, dtype=rng.choice(_TYPES))
    if kind == "values" and tensor.data is not None and tensor.dtype == "int32":
        values = [v if rng.random() < 0.5 else rng.choice(_NUMBERS) for v in np.frombuffer(tensor.data, "<i4").tolist()]
        return kind, replace(tensor, data=np.array(values, "<i4").tobytes())
    if tensor.data is None:
        return "constant", replace(tensor, data=bytes(64))
    return "computed", replace(tensor, data=None)

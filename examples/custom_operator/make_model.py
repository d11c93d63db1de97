"""Writes smoothed.tflite: two fully connected layers with a LeakyIntegrator between them, weights from a fixed seed."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from flatbuffers import flexbuffers

from emitc.writers.tflite import ModelSpec, OperatorSpec, TensorSpec, write_tflite

FEATURES, CHANNELS, CLASSES, SHIFT = 16, 8, 4, 3


def options(**values: int) -> bytes:
    """A FlexBuffers map, as converters write the options of custom operators."""
    builder = flexbuffers.Builder()
    with builder.Map():
        for key, value in values.items():
            builder.Int(key, value)
    return bytes(builder.Finish())


def model() -> bytes:
    """The model's file."""
    rng = np.random.default_rng(8)

    def constant(name: str, shape: tuple[int, ...], dtype: str, scale: float, limit: int) -> TensorSpec:
        values = rng.integers(-limit, limit + 1, shape).astype(dtype)
        return TensorSpec(name, dtype, shape, values.tobytes(), (scale,), (0,))

    tensors = (
        TensorSpec("features", "int8", (1, FEATURES), None, (0.05,), (-3,)),
        constant("dense/weights", (CHANNELS, FEATURES), "int8", 0.02, 127),
        constant("dense/bias", (CHANNELS,), "int32", 0.05 * 0.02, 2000),
        TensorSpec("dense", "int8", (1, CHANNELS), None, (0.1,), (4,)),
        TensorSpec("smoothed/memory", "int16", (1, CHANNELS), None, (0.1 / 128,), (0,), is_variable=True),
        TensorSpec("smoothed", "int8", (1, CHANNELS), None, (0.1,), (4,)),
        constant("classes/weights", (CLASSES, CHANNELS), "int8", 0.02, 127),
        constant("classes/bias", (CLASSES,), "int32", 0.1 * 0.02, 2000),
        TensorSpec("classes", "int8", (1, CLASSES), None, (0.2,), (0,)),
    )
    operators = (
        OperatorSpec("FULLY_CONNECTED", (0, 1, 2), (3,), {"fused_activation_function": "NONE"}),
        OperatorSpec(
            "CUSTOM", (3, 4), (5,), custom_code="LeakyIntegrator", custom_options=options(shift=SHIFT)
        ),
        OperatorSpec("FULLY_CONNECTED", (5, 6, 7), (8,), {"fused_activation_function": "NONE"}),
    )  # fmt: skip
    return write_tflite(ModelSpec(tensors, operators, (0,), (8,), "a custom operator"))


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).with_name("smoothed.tflite"))
    target.write_bytes(model())
    print(f"{target.name}: {target.stat().st_size} bytes")

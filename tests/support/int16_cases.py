"""Cases of layers with int16 activations, made of those with int8."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from emitc.writers.tflite import OptionValue
from tests.support.single_op import Array, Case, TensorSpec


def _symmetric(tensor: TensorSpec) -> TensorSpec:
    return replace(tensor, dtype="int16", zero_points=())


def wide(
    case: Case, bias: str = "int64", *, values: Array | None = None, options: dict[str, OptionValue] | None = None
) -> Case:
    """The case with int16 input and output, symmetric; bias: its type. values: of the bias. options: more of them."""
    data = [i for i, t in enumerate(case.inputs) if t is not None and t.data is None]
    inputs: list[TensorSpec | None] = []
    for i, tensor in enumerate(case.inputs):
        if tensor is not None and i in data:
            tensor = _symmetric(tensor)
        elif tensor is not None and tensor.dtype == "int32" and i == len(case.inputs) - 1:
            bias_values = np.frombuffer(tensor.data or b"", "<i4") if values is None else values
            tensor = replace(tensor, dtype=bias, data=bias_values.astype(bias).tobytes())
        inputs.append(tensor)
    outputs = tuple(_symmetric(tensor) for tensor in case.outputs)
    return replace(case, inputs=tuple(inputs), outputs=outputs, options={**case.options, **(options or {})})

"""What the tests of the operators that move values share: tensors of every type, and inputs of arbitrary bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from emitc.kernels import kernel_of
from emitc.layer import Layer
from tests.support.single_op import Array, Case, OptionValue, TensorSpec, graph_of, refusal

TFLM_TYPES = ("int8", "int16", "int32", "float32")
"""Types that TFLite Micro moves by nearly every operator."""


def tensor(
    shape: Sequence[int], dtype: str = "int8", data: Array | None = None, zero_point: int | None = None
) -> TensorSpec:
    """A tensor with the quantization that its type usually has; a constant where `data` is given."""
    quantization = {"int8": ((0.05,), (-7,)), "uint8": ((0.05,), (131,)), "int16": ((0.001,), (0,))}.get(
        dtype, ((), ())
    )
    scales, zero_points = quantization if zero_point is None else ((0.05,), (zero_point,))
    content = None if data is None else data.astype(dtype).tobytes()
    return TensorSpec("", dtype, tuple(shape), content, scales, zero_points)


def counted(shape: Sequence[int], dtype: str = "int8") -> TensorSpec:
    """A constant tensor of values that all differ as far as the type allows."""
    return tensor(shape, dtype, np.arange(int(np.prod(shape))).reshape(shape) - 50)


def bits(spec: TensorSpec, rng: np.random.Generator) -> Array:
    """Arbitrary bits as values of the tensor: floats may be infinite or NaN, since a move keeps every bit."""
    count = int(np.prod(spec.shape))
    if spec.dtype == "bool":
        return rng.integers(0, 2, count).astype(bool).reshape(spec.shape)
    return np.frombuffer(rng.bytes(count * np.dtype(spec.dtype).itemsize), spec.dtype).reshape(spec.shape)


def move(
    name: str,
    opcode: str,
    inputs: Sequence[TensorSpec],
    outputs: Sequence[TensorSpec],
    options: Mapping[str, OptionValue] | None = None,
) -> Case:
    """A case whose computed inputs are arbitrary bits; an input that is given twice is one tensor."""
    computed = list({id(spec): spec for spec in inputs if spec.data is None}.values())

    def draw(rng: np.random.Generator, _sample: int) -> list[Array]:
        return [bits(spec, rng) for spec in computed]

    return Case(name, opcode, tuple(inputs), tuple(outputs), options or {}, draw=draw)


def layer_of(case: Case) -> Layer:
    """The layer that the case's operator is lowered to, before any pass."""
    (bound,) = graph_of(case).bound()
    return kernel_of(bound).lower(bound)


def message(case: Case) -> tuple[int, str, str]:
    """Exit code, what and why of the case's refusal."""
    error = refusal(case)
    return error.exit_code, error.what, error.why

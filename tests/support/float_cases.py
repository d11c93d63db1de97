"""Cases of float32 TFLite operators: values that cover what float32 has, and how the three results are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from emitc.ir import DType
from emitc.verify.tolerances import EXACT, Tolerance, compared
from emitc.writers.tflite import TensorSpec
from tests.support.single_op import Array, Case, Outcome

_LARGEST = float(np.finfo(np.float32).max)
SPECIAL = np.array(
    [
        0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 0.3, -0.3, 6.0, -3.0, 3.0, 1e-40, -1e-40, 7.25, -9.5, 17.0, 1e20,
        -1e20, _LARGEST, -_LARGEST, np.inf, -np.inf, np.nan, 8388609.0, 2147483648.0, -2147483904.0,
    ],
    np.float32,
)  # fmt: skip
"""Zeros of both signs, ties, ends of activations, subnormals, the largest values, infinities and NaN."""
FINITE = SPECIAL[np.isfinite(SPECIAL)]


def constant(values: Array, dtype: str = "float32") -> TensorSpec:
    """A constant tensor."""
    return TensorSpec("", dtype, values.shape, values.astype(dtype).tobytes())


def drawn_floats(rng: np.random.Generator, sample: int, shape: tuple[int, ...], special: Array = SPECIAL) -> Array:
    """Sample 0 mixes special values, the second one is large, the others are normal."""
    if sample == 0:
        return rng.choice(special, shape)
    return rng.normal(0.0, 40.0 if sample == 1 else 1.5, shape).astype(np.float32)


def with_values(case: Case, special: Array = SPECIAL, least: float | None = None) -> Case:
    """The case with values of its computed inputs: floats as `drawn_floats` has them, bools, and integers that may overflow.

    least: floats are at least that.
    """
    distinct = {id(t): t for t in case.inputs if t is not None}.values()
    tensors = [t for t in distinct if t.data is None and not t.is_variable]

    def draw(rng: np.random.Generator, sample: int) -> Sequence[Array]:
        values: list[Array] = []
        for tensor in tensors:
            if tensor.dtype == "float32":
                values_drawn = drawn_floats(rng, sample, tensor.shape, special)
                values.append(values_drawn if least is None else np.maximum(values_drawn, np.float32(least)))
            elif tensor.dtype == "bool":
                values.append(rng.integers(0, 2, tensor.shape).astype(bool))
            else:
                low, high = DType(tensor.dtype).range if sample == 0 else (-50, 50)
                values.append(rng.integers(low, high, tensor.shape, dtype=tensor.dtype, endpoint=True))
        return values

    return replace(case, draw=draw)


def _one_nan(values: Array) -> Array:
    """The values with one bit pattern for every NaN: which of them an operation gives is the processor's affair."""
    if values.dtype.kind != "f":
        return values
    return np.where(np.isnan(values), np.float32(np.nan), values)


def check(outcome: Outcome, rule: Tolerance = EXACT) -> None:
    """Asserts that reference, engine and C agree as the rule has it; two NaN are equal."""
    for sample, (reference, golden, compiled) in enumerate(
        zip(outcome.reference, outcome.golden, outcome.compiled, strict=True)
    ):
        for output, expected in enumerate(golden):
            where = f"{outcome.case.id}, sample {sample}, output {output}"
            wanted = _one_nan(expected.reshape(reference[output].shape))
            assert compared(_one_nan(reference[output]), wanted, rule).differing == 0, (
                f"{where}: reference and engine differ"
            )
            assert compared(_one_nan(compiled[output]), wanted, rule).differing == 0, f"{where}: C and engine differ"

"""What the tests of the elementwise operators share: every pair of values, and cases of two operands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from emitc.ir import Array
from emitc.kernels import kernel_of
from emitc.layer import Layer
from emitc.writers.tflite import OptionValue, TensorSpec
from tests.support.single_op import Case, graph_of, quantized, refusal

Operand = tuple[float, int]
"""Scale and zero point."""
PAIRS = (256, 256)
"""Shape of two operands that between them hold every pair of int8 values."""


def single(value: float) -> float:
    """The float32 nearest to `value`: what a file can hold."""
    return float(np.float32(value))


def every_value(_rng: np.random.Generator, _sample: int) -> Sequence[Array]:
    """One operand [256] with every int8 value."""
    return [np.arange(-128, 128).astype(np.int8)]


def every_pair(_rng: np.random.Generator, _sample: int) -> Sequence[Array]:
    """Two operands [256, 256] with every pair of int8 values."""
    values = np.arange(-128, 128).astype(np.int8)
    return [np.repeat(values, 256).reshape(PAIRS), np.tile(values, 256).reshape(PAIRS)]


def pairs(
    name: str, opcode: str, a: Operand, b: Operand, y: Operand, options: Mapping[str, OptionValue] | None = None
) -> Case:
    """An operator on every pair of values."""
    inputs = (quantized(PAIRS, *a), quantized(PAIRS, *b))
    return Case(name, opcode, inputs, (quantized(PAIRS, *y),), options or {}, draw=every_pair)


def shaped(
    name: str,
    opcode: str,
    a: TensorSpec | tuple[int, ...],
    b: TensorSpec | tuple[int, ...],
    y: Operand = (0.07, 5),
    options: Mapping[str, OptionValue] | None = None,
) -> Case:
    """An operator on two tensors that broadcast; a shape stands for a computed tensor of scale 0.05, zero point -3."""
    first = quantized(a, 0.05, -3) if isinstance(a, tuple) else a
    second = quantized(b, 0.05, -3) if isinstance(b, tuple) else b
    shape = np.broadcast_shapes(first.shape, second.shape)
    return Case(name, opcode, (first, second), (quantized(shape, *y),), options or {})


def constant(values: Sequence[int] | Array, shape: tuple[int, ...] | None = None, scale: float = 0.05) -> TensorSpec:
    """A constant int8 operand with zero point -3."""
    array = np.array(values)
    return quantized(array.shape if shape is None else shape, scale, -3, data=array)


def counted(shape: tuple[int, ...]) -> TensorSpec:
    """A constant operand of many different values."""
    return constant((np.arange(int(np.prod(shape))) * 37 % 256 - 128).reshape(shape))


BROADCASTS: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((7,), (1,)),
    ((1,), (7,)),
    ((2, 3), (3,)),
    ((3,), (2, 3)),
    ((1, 4, 5, 3), (3,)),
    ((1, 4, 5, 3), (1, 1, 1, 3)),
    ((2, 4, 5, 3), (2, 1, 1, 3)),
    ((2, 4, 5, 3), (2, 4, 5, 1)),
    ((2, 4, 5, 3), (1, 4, 1, 3)),
    ((2, 1, 5, 1), (1, 4, 1, 3)),
    ((4, 1), (1, 6)),
    ((2, 1, 3, 1, 2), (1, 4, 1, 5, 1)),
    ((2, 3, 1, 2, 2), (2, 1, 2, 1, 2)),
    ((1, 2, 3, 1, 2, 2), (3, 4, 1, 1)),
    ((1, 1, 1), (1, 1)),
    ((2, 3), (1, 1, 2, 3)),
)
"""Shapes that repeat either operand, or both, in every position; ranks 1 to 6."""


def broadcast_cases(opcode: str, y: Operand = (0.07, 5)) -> list[Case]:
    """Every pair of shapes with both operands computed, then with either one constant."""
    cases = []
    for i, (a, b) in enumerate(BROADCASTS):
        cases.append(shaped(f"{opcode}_broadcast{i}", opcode, a, b, y))
        cases.append(shaped(f"{opcode}_broadcast{i}_a_constant", opcode, counted(a), b, y))
        cases.append(shaped(f"{opcode}_broadcast{i}_b_constant", opcode, a, counted(b), y))
    return cases


def constant_cases(opcode: str, y: Operand = (0.07, 5)) -> list[Case]:
    """Constant operands of one value, of many, of rank 0, and the same tensor twice; below and above a table's size."""
    cases = []
    for count in (1, 255, 256, 300):
        twice = quantized((count,), 0.05, -3)
        cases += [
            shaped(f"{opcode}_{count}_twice", opcode, twice, twice, y),
            shaped(f"{opcode}_{count}_scalar_a", opcode, constant([-128], ()), (count,), y),
            shaped(f"{opcode}_{count}_scalar_b", opcode, (count,), constant([127], ()), y),
            shaped(f"{opcode}_{count}_one_a", opcode, constant([57]), (count,), y),
            shaped(f"{opcode}_{count}_one_b", opcode, (count,), constant([-3]), y),
            shaped(f"{opcode}_{count}_equal_b", opcode, (count,), constant([9] * count), y),
            shaped(f"{opcode}_{count}_many_b", opcode, (count,), counted((count,)), y),
        ]
    cases.append(shaped(f"{opcode}_widened_by_equal_values", opcode, (2, 1, 200), constant(np.full((3, 1), 9)), y))
    return cases


def layer_of(case: Case) -> Layer:
    """The layer of the case's only operator, before any pass."""
    (bound,) = graph_of(case).bound()
    return kernel_of(bound).lower(bound)


def message(case: Case) -> tuple[int, str, str]:
    """Exit code, what and why of the case's refusal."""
    error = refusal(case)
    return error.exit_code, error.what, error.why


def sweep_operands(rng: np.random.Generator) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Two random shapes that broadcast, of rank 1 to 5."""
    full = [int(size) for size in rng.integers(1, 6, int(rng.integers(1, 6)))]

    def side() -> tuple[int, ...]:
        shape = tuple(1 if rng.random() < 0.3 else size for size in full)
        return shape[int(rng.integers(0, len(full))) :] if rng.random() < 0.3 else shape

    return side(), side()

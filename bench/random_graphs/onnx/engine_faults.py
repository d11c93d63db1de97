"""Faults of ONNX Runtime that random graphs meet, each with its proof by exact arithmetic on the engine's own operands.

Integer ReduceSum, ReduceProd and ReduceSumSquare are computed in float64 and limited to the type. A result beyond 2^53
is rounded, and one beyond the type is its end. An integer operator wraps, as Add and Mul of the same engine do.

Quantized products are computed in float32. Where a step of an int16 output is smaller than a rounding of those sums, terms that
cancel leave several steps.

A Softmax between DequantizeLinear and QuantizeLinear sums its exponentials in float32, in an order that depends on the processor.
An element next to the middle of two steps is rounded either way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from emitc.compiled import Compiled
from emitc.ir import Array, BoundNode, DType
from emitc.kernels import kernel_of
from emitc.kernels.normalization.softmax import Softmax, rows_of
from emitc.kernels.reduction.mean import Reduction
from emitc.verify.engine_values import completed, known_value
from emitc.verify.exact_sums import steps_of_sums
from emitc.verify.float_noise import gamma
from emitc.verify.golden_run import golden_run
from emitc.verify.operator_checks import Group, kind_of
from emitc.verify.proof import Proof

_EXACT: dict[str, Callable[[list[int]], int]] = {
    "ReduceSum": sum,
    "ReduceProd": math.prod,
    "ReduceSumSquare": lambda values: sum(value * value for value in values),
}


def limited_reduction(compiled: Compiled, inputs: Sequence[tuple[Array, ...]], index: int) -> str:
    """What is wrong with the engine's integer reduction at this position of the model; "" where that is not shown.

    It is shown where every element of the engine is the exact result rounded to float64 and limited to the type, every element of
    the numpy reference is the exact result modulo 2^bits, and some of them differ.
    """
    bound = next((b for b in compiled.graph.bound() if b.node.index == index), None)
    if bound is None or bound.node.op_type not in _EXACT or bound.output.dtype not in (DType.INT32, DType.INT64):
        return ""
    runs = golden_run(compiled, "auto", inputs, preserve=True).tensors
    faults = [_faulty(compiled, bound, completed(compiled.graph, values)) for values in runs]
    if None in faults or not any(faults):
        return ""
    elements = sum(fault for fault in faults if fault)
    return f"ONNX Runtime computes {bound.node.op_type} of {bound.output.dtype.value} in float64: {elements} elements"


def _faulty(compiled: Compiled, bound: BoundNode, values: Mapping[str, Array]) -> int | None:
    """Elements that the engine limits or rounds; None where an element is explained by neither rule."""
    op = bound.node.op
    assert isinstance(op, Reduction)
    operand, result = (known_value(compiled.graph, values, tensor.name) for tensor in (bound.input(0), bound.output))
    if operand is None or result is None:
        return None
    rows = np.moveaxis(operand, op.axes, range(-len(op.axes), 0)).reshape(bound.output.elements, -1).tolist()
    exact = [_EXACT[bound.node.op_type](row) for row in rows]
    bits = 8 * bound.output.dtype.bytes
    wrapped = [(value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1)) for value in exact]
    (own,) = kernel_of(bound).reference(bound, [operand])
    engine: list[int] = result.reshape(-1).tolist()
    if own.reshape(-1).tolist() != wrapped or not all(
        _is_limited(value, real, bits, len(rows[0])) for value, real in zip(engine, exact, strict=True)
    ):
        return None
    return sum(a != b for a, b in zip(engine, wrapped, strict=True))


def _is_limited(value: int, exact: int, bits: int, terms: int) -> bool:
    """Whether a value is the exact one as float64 arithmetic has it, within the type."""
    low, high = -(1 << (bits - 1)), (1 << (bits - 1)) - 1
    slack = 0 if abs(exact) < 1 << 53 else abs(exact) * terms >> 52
    return min(max(exact - slack, low), high) <= value <= min(max(exact + slack, low), high)


def rounded_sums(compiled: Compiled, inputs: Sequence[tuple[Array, ...]], proof: Proof) -> str:
    """What is wrong with the engine's int16 sums of products in a proof that does not hold; "" where that is not shown.

    It is shown where the proof holds except for such operators, every element of their numpy references is the exact sum rounded
    to a step, and every element of the engine is as near to it as float32 sums of those terms are sure to come. Some elements of
    the engine are then off by more than a step.
    """
    broken = [group for group in proof.groups if not group.holds]
    if not broken or not all(group.kind == "word" for group in broken):
        return ""
    if not replace(proof, groups=tuple(replace(g, largest=1.0) if g in broken else g for g in proof.groups)).match:
        return ""
    runs = [completed(compiled.graph, run) for run in golden_run(compiled, "auto", inputs, preserve=True).tensors]
    counts = [_rounded(compiled, group, runs) for group in broken]
    if None in counts:
        return ""
    names = " and ".join(group.op_type for group in broken)
    return f"ONNX Runtime sums {names} in float32: {sum(n for n in counts if n)} elements are off by several steps of int16"


def _rounded(compiled: Compiled, group: Group, runs: Sequence[Mapping[str, Array]]) -> int | None:
    """Elements of a group's operators that are off by more than a step; None where the exact sums do not explain each."""
    elements, largest = 0, 0.0
    for bound in compiled.graph.bound():
        if (bound.node.op_type, kind_of(bound)) != (group.op_type, group.kind):
            continue
        for values in runs:
            operands = [None if t is None else known_value(compiled.graph, values, t.name) for t in bound.inputs]
            engine = known_value(compiled.graph, values, bound.output.name)
            exact = steps_of_sums(bound, operands)
            if engine is None or exact is None or bound.output.quantization is None:
                return None
            steps, noise, last = exact
            (own,) = kernel_of(bound).reference(bound, operands)
            rounded = np.clip(steps + bound.output.quantization.zero_point, *bound.output.dtype.range)
            ours, theirs = own.astype(np.float64), engine.astype(np.float64)
            if (np.abs(ours - rounded) > 0.5 + last).any() or (np.abs(theirs - rounded) > 0.5 + noise).any():
                return None
            gaps = np.abs(theirs - ours)
            elements += int((gaps > 1).sum())
            largest = max(largest, float(gaps.max(initial=0)))
    return elements if largest == group.largest else None


_SOFTMAX_ROUNDINGS = 8
"""Of an exponential with its polynomial, the quotient, and the division by the output's scale."""


def rounded_softmax(compiled: Compiled, inputs: Sequence[tuple[Array, ...]], proof: Proof) -> str:
    """What is wrong with the engine's Softmax in a proof that does not hold; "" where that is not shown.

    It is shown where the proof holds except for quantized Softmax, and every element that differs is off by one step. Its exact
    value then lies as near to the middle of two steps as float32 exponentials and sums are sure to come.
    """
    broken = [group for group in proof.groups if not group.holds]
    if not broken or any((group.op_type, group.kind, group.largest) != ("Softmax", "exact", 1.0) for group in broken):
        return ""
    if not replace(proof, groups=tuple(replace(g, broken=0) if g in broken else g for g in proof.groups)).match:
        return ""
    elements = 0
    for run in golden_run(compiled, "auto", inputs, preserve=True).tensors:
        values = completed(compiled.graph, run)
        for bound in compiled.graph.bound():
            if type(bound.node.op) is not Softmax or bound.output.quantization is None:
                continue
            codes, engine = (
                known_value(compiled.graph, values, tensor.name) for tensor in (bound.input(0), bound.output)
            )
            if codes is None or engine is None:
                return ""
            differs = kernel_of(bound).reference(bound, [codes])[0] != engine
            if (differs > _near_the_middle(bound, codes)).any():
                return ""
            elements += int(differs.sum())
    return (
        f"ONNX Runtime sums Softmax in float32: {elements} elements next to the middle of two steps" if elements else ""
    )


def _near_the_middle(bound: BoundNode, codes: Array) -> Array:
    """Whether float32 arithmetic may round an element of a quantized Softmax otherwise than exact arithmetic does."""
    x, y = bound.input(0).quantization, bound.output.quantization
    assert x is not None and y is not None
    rows = rows_of(bound)
    values = rows.view((codes.astype(np.float64) - x.zero_point) * x.scale)
    distances = values - values.max(axis=1, keepdims=True)
    steps = np.exp(distances) / np.exp(distances).sum(axis=1, keepdims=True) / y.scale
    # An exponential is off by the error of its argument, which is a share of the argument's magnitude.
    roundings = rows.depth + _SOFTMAX_ROUNDINGS + 2 * int(np.ceil(np.abs(values).max(initial=0)))
    near = np.abs(steps - np.floor(steps) - 0.5) <= gamma(roundings) * steps
    return np.asarray(near.reshape(bound.output.shape))

"""Cycles of one layer, estimated from its shape: what kernel libraries are ranked by, never shown as a measurement.

cycles = mac * multiply-accumulates + output * elements written + gathered * input values that the windows gather
+ sums * rows of the windows of all elements written + once.
A library has one row of such coefficients per kind of layer and instruction set.
Source: least squares over instructions per layer of the seven nets, and of three with int16 activations, on the emulated
boards (`python -m bench.boards --layers`, `emitc run --layers`), each instruction taken for a cycle.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from emitc.ir import BoundNode, DType
from emitc.kernels import kernel_of
from emitc.kernels.mac.requantization import WEIGHTS


@dataclass(frozen=True, slots=True)
class Cost:
    """Coefficients of one kind of layer. gathered: per input value that a window meets, once per window; sums: per row of a
    window and element, for kernels that add up a window row by row.
    """

    mac: float = 0.0
    output: float = 0.0
    gathered: float = 0.0
    once: float = 0.0
    sums: float = 0.0


OTHER = "other"


def kinds_of(bound: BoundNode) -> tuple[str, ...]:
    """Rows of a table that a node belongs to, the most exact one first: the class of its op, finer for convolutions, for
    int16 and for float32 activations. A table may leave out the more exact ones.
    """
    kind = type(bound.node.op).__name__
    finer = ""
    if kind == "Conv2D":
        _, height, width, _ = bound.input(WEIGHTS).shape
        kind = "Conv2D 1x1" if height * width == 1 else kind
    if kind == "DepthwiseConv2D" and bound.input(WEIGHTS).shape[3] != bound.input(0).shape[3]:
        kind = "DepthwiseConv2D several filters"
        finer = f"{kind} each" if bound.input(0).shape[3] > 1 else ""
    dtype = DType.INT8 if bound.optional(0) is None else bound.input(0).dtype
    names = tuple(name for name in (finer, kind) if name)
    if dtype is DType.FLOAT32:
        return (*(f"{name} float32" for name in names), *names)
    return tuple(f"{name} int16" for name in names) if dtype is DType.INT16 else names


def estimate(bound: BoundNode, table: Mapping[str, Cost]) -> float:
    """Cycles of one run of a node by a table; what the table does not have counts as OTHER."""
    cost = next((table[kind] for kind in kinds_of(bound) if kind in table), table[OTHER])
    outputs = sum(tensor.elements for tensor in bound.outputs)
    work = kernel_of(bound).work(bound)
    channels = max(1, bound.output.shape[-1] if bound.output.shape else 1)
    rows = outputs * bound.input(WEIGHTS).shape[1] if cost.sums else 0
    return cost.mac * work + cost.output * outputs + cost.gathered * (work / channels) + cost.sums * rows + cost.once

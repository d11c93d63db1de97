"""What calls of kernel libraries have in common: numbers, factors, cost, and what keeps functions from an operator's bits."""

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from emitc.ir import BoundNode
from emitc.kernels import kernel_of
from emitc.kernels.costs import Cost, case_names
from emitc.kernels.normalization.softmax import Softmax
from emitc.kernels.pooling.pool_ops import AveragePool2D, MaxPool2D
from emitc.layer import Expression
from emitc.numerics.requantize import Multiplier, multiplier_of

OTHER = "other"
"""What a table does not have."""


@cache
def _table(file: Path) -> Mapping[str, Mapping[str, Cost]]:
    """The coefficients by operator and case, then by instruction set or chip."""
    content = tomllib.loads(file.read_text(encoding="utf-8"))
    return {case: {core: Cost(**row) for core, row in rows.items()} for case, rows in content.items()}


def cost_of(file: Path, bound: BoundNode, core: str) -> float:
    """Estimated cycles of one run of the node. file: the library's table. core: instruction set or chip, as the table has it."""
    table, kernel, op = _table(file), kernel_of(bound), type(bound.node.op).__name__
    keys = (f"{op} {name}".strip() for name in case_names(bound, kernel.cases(bound)))
    key = next((key for key in keys if key in table), OTHER)
    return table[key][core].cycles(bound, kernel.work(bound))


def plain_pool_refusal(bound: BoundNode) -> str:
    """Why a function that slides a dense window and averages over the input alone is wrong for a pool; "" where it is right."""
    op = bound.node.op
    assert isinstance(op, AveragePool2D | MaxPool2D)
    if (op.window.dilation_h, op.window.dilation_w) != (1, 1):
        return "its pools have no dilation"
    if isinstance(op, AveragePool2D) and op.count_padding and op.window.padding.any:
        return "its average leaves out what lies outside the input"
    return ""


POINTER = "(void *)(uintptr_t)"
"""The libraries' structures point to constants through pointers that could write; they never do."""
_DIFFERENCE_BITS = 5
"""Whole bits of the differences that softmax takes the exponential of, as in TensorFlow Lite."""


def number(value: int) -> Expression:
    return Expression(f"({value})" if value < 0 else str(value))


def sum_factors(bound: BoundNode, left_shift: int) -> tuple[float, float, float]:
    """The factors of both inputs of a sum, which are shifted to the left first, and of its output, as in TensorFlow Lite."""
    a, b, y = bound.input(0).scale, bound.input(1).scale, bound.output.scale
    reach = 2 * max(a, b)
    return a / reach, b / reach, reach / ((1 << left_shift) * y)


def same_shapes(bound: BoundNode) -> bool:
    """Whether no operand of two is repeated."""
    return all(bound.input(position).shape == bound.output.shape for position in (0, 1))


def _softmax_factor(bound: BoundNode) -> float:
    """Input scale times beta, with 26 fractional bits."""
    return bound.op(Softmax).beta * bound.input(0).scale * (1 << (31 - _DIFFERENCE_BITS))


def softmax_refusal(bound: BoundNode) -> str:
    inside = 1.0 < _softmax_factor(bound) < 2.0**31 - 1
    return "" if inside else "the scale of its input leaves the range of the function"


def softmax_factor(bound: BoundNode) -> tuple[Multiplier, int]:
    """The factor of a softmax of bytes, and the least difference from the largest value that counts."""
    factor = multiplier_of(_softmax_factor(bound))
    return factor, -(((1 << _DIFFERENCE_BITS) - 1) * (1 << (31 - _DIFFERENCE_BITS)) >> factor.shift)

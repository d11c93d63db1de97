"""Rows of values and their refusals: what softmax and the normalizations have in common."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emitc.ir import Array, BoundNode, Shape
from emitc.kernels.contract import illegal, unsupported
from emitc.layer import Param, integers
from emitc.numerics.requantize import Int64


@dataclass(frozen=True, slots=True)
class Rows:
    """`outer` blocks of `depth` x `inner` values; a row is `depth` values at a distance of `inner`."""

    outer: int
    depth: int
    inner: int

    def view(self, values: Array) -> Array:
        """[outer, depth, inner]."""
        return values.reshape(self.outer, self.depth, self.inner)

    @property
    def params(self) -> tuple[Param, ...]:
        return integers(
            outer=self.outer,
            depth=(self.depth, "values of a row"),
            inner=(self.inner, "distance between them, and rows side by side"),
        )


def row_params(shape: Shape) -> tuple[Param, ...]:
    """Number and length of the rows along the last dimension, as members of a kernel's parameter struct."""
    return integers(rows=math.prod(shape[:-1]), depth=shape[-1])


def row_work(bound: BoundNode) -> int:
    """Elements, and what a row costs in the reference's loop over the rows."""
    return bound.output.elements + 1000 * (bound.output.elements // max(1, bound.output.shape[-1]))


def require_rows(bound: BoundNode) -> None:
    """Refuses an input without elements, or without dimensions."""
    x = bound.input(0)
    if not x.shape or 0 in x.shape:
        raise illegal(bound, "has no row", f"its input is {list(x.shape)}", tensor=x)


def require_depth(bound: BoundNode, depth: int, most: int) -> None:
    """Refuses rows of more than `most` elements."""
    if depth > most:
        what, hint = f"over {depth} elements", "reduce the number of classes"
        raise unsupported(bound, what, f"the sum fits {most}", hint, bound.input(0))


def require_int8_output(bound: BoundNode, steps: int, zero_point: int) -> None:
    """Refuses another output quantization than the scale 1 / steps and the zero point that TFLite fixes for int8."""
    y = bound.output
    if (y.scale, y.zero_point) != (1 / steps, zero_point):
        what = f"has another output scale than 1/{steps}, or another zero point than {zero_point}"
        raise illegal(bound, what, f"({y.scale!r}, {y.zero_point}) found, TFLite fixes them for int8", tensor=y)


def out_of_proportion_input(bound: BoundNode, why: str) -> Exception:
    """An input scale of which the arithmetic cannot hold the multiplier (exit code 2)."""
    what = "has an input scale that is out of proportion"
    return illegal(bound, what, why, "quantize the model again", bound.input(0))


def of_distances(distance: Int64, table: Int64) -> tuple[NDArray[np.bool_], Int64]:
    """Which distances to a row's maximum the table of exponentials has, and the exponentials, 0 for all other distances."""
    counted = distance < len(table)
    return counted, np.where(counted, table[np.minimum(distance, len(table) - 1)], 0)

"""The model's input asked for row by row: what `--input-rows` puts in front of the operators that read it.

Shapes  x any, y [1, H, W, C] of as many elements, which is what the readers see of x.   Types  any.
The tensor x lies nowhere: for each row of y, from row 0 on, the application's reader writes where the row is wanted.
"""

from dataclasses import dataclass

from emitc.ir import BoundNode, Op, Shape
from emitc.kernels.contract import KernelDef, illegal
from emitc.kernels.shared.pointwise import operand
from emitc.layer import ByRows, Layer, Param


@dataclass(frozen=True, slots=True)
class InputRows(Op):
    """Values unchanged. shape: of the image."""

    shape: Shape


def _check(bound: BoundNode) -> None:
    x, y = bound.input(0), bound.output
    if x.dtype is not y.dtype or x.elements != y.elements:
        raise illegal(bound, "changes type or size", f"{x.describe()} and {y.describe()}", "leave --input-rows out", y)


def _lower(bound: BoundNode) -> Layer:
    """A loop over the rows; in a segment a row at a time, without a function of its own."""
    y = bound.output
    params = (
        Param("rows", "uint32_t", y.shape[1], "rows that are asked for"),
        Param("row_bytes", "uint32_t", y.size_bytes // y.shape[1], "bytes of each"),
    )
    return Layer("state/input_rows", "portable", (), params=params, by_rows=ByRows(), reads_rows=True)


KERNELS = (
    KernelDef(
        InputRows,
        "the rows of the input, asked for one by one",
        check=_check,
        reference=lambda bound, inputs: (operand(bound, inputs, 0).reshape(bound.output.shape),),
        lower=_lower,
        output_shapes=lambda bound: (bound.op(InputRows).shape,),
    ),
)

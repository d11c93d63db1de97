"""READ_VARIABLE and ASSIGN_VARIABLE: a state variable's value, and its next one.

Shapes  variable, x and y all the same.   Types  any; the numbers are moved as they are, whatever they stand for.
A Read gives the value that the variable has at its place in the order of the operators; where nothing writes the variable
before the value's last use, no code is left of it (`passes/state_in_place.py`).

Append is how a buffer of the last rows is kept, made by that pass: the variable moves towards its front by the bytes of x,
which then follows at its end. Its value is what CONCATENATION of the older rows and x would be.
Errors  a type or shape that is not the variable's.

CIRCULAR_BUFFER: the last inputs, oldest first.

Shapes  x [N, 1, W, C], y and kept [N, slots, W, C] with N = 1.   Types  int8; scale and zero point stay.
Before the first run the buffer holds the zero point.
Source  TFLite Micro's kernel. The state is the frontend's second input.
Errors  cycles_max over 1, where TFLite Micro ends most runs at this operator. Without cycles_max it counts the buffers of two
        models that it knows; buffers of 5, 13 and 25 slots run every time there, and others are refused here.

The model's input asked for row by row: what `--input-rows` puts in front of the operators that read it.

Shapes  x any, y [1, H, W, C] of as many elements, which is what the readers see of x.   Types  any.
The tensor x lies nowhere: for each row of y, from row 0 on, the application's reader writes where the row is wanted.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from emitc.errors import DAMAGED
from emitc.ir import Array, BoundNode, DType, Op, Shape
from emitc.kernels.contract import (
    KernelDef,
    Parsed,
    Variant,
    damaged,
    illegal,
    require_dtypes,
    require_same_quantization,
)
from emitc.kernels.costs import Cost, Costs
from emitc.kernels.shared.byte_moves import data_operands
from emitc.kernels.shared.pointwise import operand
from emitc.layer import PLAIN, ByRows, KernelSpec, Layer, Param, integers
from emitc.records import dataclass, replace
from emitc.source import SourceNode

_MVE_HEADER = "emitc_mve.h"
_WORD_BYTES = 4
_BLOCK_BYTES = 16
"""Moved at once."""
_ANY = tuple(dtype for dtype in DType if not dtype.packed)


@dataclass(frozen=True, slots=True)
class ReadVariable(Op):
    """y = variable."""


@dataclass(frozen=True, slots=True)
class AssignVariable(Op):
    """variable = x."""


@dataclass(frozen=True, slots=True)
class Append(Op):
    """variable = its last elements, as many as x leaves room for, then those of x."""


def _read_from_tflite(node: SourceNode) -> Parsed:
    node.counts((1, 1))
    _require_variable(node)
    return Parsed(ReadVariable())


def _assign_from_tflite(node: SourceNode) -> Parsed:
    node.counts((2, 2), (0, 0))
    _require_variable(node)
    return Parsed(AssignVariable(), (1,), states=(0,))


def _require_variable(node: SourceNode) -> None:
    if not node.input(0).is_variable:
        why = "its first input is a resource, which VAR_HANDLE names"
        raise node.refusal("of a tensor that is no variable", why, DAMAGED, node.input(0))


def _check(bound: BoundNode) -> None:
    x, y = bound.input(0), bound.output
    if x.dtype is not y.dtype:
        raise damaged(bound, "changes the element type", f"{x.dtype.value} to {y.dtype.value}", y if x.is_state else x)


def _check_append(bound: BoundNode) -> None:
    _check(bound)
    assert bound.output.is_state and bound.input(0).elements <= bound.output.elements


def _append_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """The two values in a row, without what is too much at the front."""
    x, old = operand(bound, inputs, 0), operand(bound, inputs, 1)
    both = np.concatenate([old.reshape(-1), x.reshape(-1)])
    return (both[x.size :].reshape(old.shape),)


def _lower(bound: BoundNode) -> Layer:
    operands, tables = data_operands(bound.input(0))
    size = Param("run_bytes", "int32_t", bound.output.size_bytes, "bytes")
    return Layer("movement/copy_run", "portable", operands, tables, (Param("x_start", "int32_t", 0, "bytes"), size))


def _lower_append(bound: BoundNode) -> Layer:
    """One move inside the variable, by blocks where its steps allow that, and one copy after it."""
    x, y = bound.input(0), bound.output
    operands, tables = data_operands(x)
    kept = y.size_bytes - x.size_bytes
    params = integers(kept_bytes=(kept, "of the variable that stay"), new_bytes=(x.size_bytes, "that follow them"))
    by_words = x.size_bytes >= _BLOCK_BYTES and not x.size_bytes % _WORD_BYTES and not kept % _WORD_BYTES
    return Layer("state/append", "portable", operands, tables, params, spec=KernelSpec("_words") if by_words else PLAIN)


def _lower_append_mve(bound: BoundNode) -> Layer:
    """The same by registers of 16 bytes, wherever they lie."""
    return replace(_lower_append(bound), template="state/append_mve", variant="mve", spec=PLAIN, headers=(_MVE_HEADER,))


_MVE = Variant("mve", "mve", _lower_append_mve, Costs("qemu_m55 at 6df7847, 2026-11-22", Cost(mac=0.19, once=25)), _ANY)
_kernel = partial(
    KernelDef,
    dtypes=_ANY,
    check=_check,
    reference=lambda bound, inputs: (np.array(operand(bound, inputs, 0)),),
    lower=_lower,
)


_EVERY_RUN = (5, 13, 25)
"""Slots of buffers that run every time where the file does not say so."""


class CircularBuffer(Op):
    """One slot more, and the oldest one less."""


def _buffer_from_tflite(node: SourceNode) -> Parsed:
    cycles = node.integer("cycles_max", 0)
    node.counts((1, 2))
    shape = node.outputs[0].shape
    if not (cycles == 1 or (cycles <= 0 and len(shape) == 4 and shape[1] in _EVERY_RUN)):
        what = f"with cycles_max {cycles} is not supported" if cycles > 0 else "without cycles_max"
        why = "TFLite Micro ends a run at this operator until enough inputs have come"
        raise node.unsupported(what, why, "export the model with a buffer that runs every time (cycles_max 1)")
    node.counts((2, 2))
    return Parsed(CircularBuffer(), (0, 1), states=(1,))


def _check_buffer(bound: BoundNode) -> None:
    x, y = bound.input(0), bound.input(1)
    require_dtypes(bound, [(DType.INT8,) * 4])
    if len(x.shape) != 4 or x.shape[:2] != (1, 1) or y.shape[:1] + y.shape[2:] != (1, *x.shape[2:]) or 0 in y.shape:
        raise illegal(bound, "has an input that is no slot", f"{list(x.shape)} into {list(y.shape)}", tensor=x)
    if x.quantization and bound.output.quantization:
        require_same_quantization(bound, x, bound.output)


def _buffer_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    y = np.concatenate([operand(bound, inputs, 1)[:, 1:], operand(bound, inputs, 0)], axis=1)
    return y, y.copy()


def _lower_buffer(bound: BoundNode) -> Layer:
    """Two moves, and a copy of the buffer."""
    params = integers(slot_bytes=bound.input(0).size_bytes, bytes=(bound.input(1).size_bytes, "of all slots"))
    return Layer("state/circular_buffer", params=params)


@dataclass(frozen=True, slots=True)
class InputRows(Op):
    """Values unchanged. shape: of the image."""

    shape: Shape


def _check_rows(bound: BoundNode) -> None:
    x, y = bound.input(0), bound.output
    if x.dtype is not y.dtype or x.elements != y.elements:
        raise illegal(bound, "changes type or size", f"{x.describe()} and {y.describe()}", "leave --input-rows out", y)


def _lower_rows(bound: BoundNode) -> Layer:
    """A loop over the rows; in a segment a row at a time, without a function of its own."""
    y = bound.output
    params = (
        Param("rows", "uint32_t", y.shape[1], "rows that are asked for"),
        Param("row_bytes", "uint32_t", y.size_bytes // y.shape[1], "bytes of each"),
    )
    return Layer("state/input_rows", "portable", (), params=params, by_rows=ByRows(), reads_rows=True)


KERNELS = (
    _kernel(ReadVariable, "the value of a state variable", tflite={"READ_VARIABLE": _read_from_tflite}),
    _kernel(AssignVariable, "the next value of a state variable", tflite={"ASSIGN_VARIABLE": _assign_from_tflite}),
    KernelDef(
        Append,
        "the last rows of a state variable, and new ones",
        _ANY,
        check=_check_append,
        reference=_append_reference,
        lower=_lower_append,
        output_shapes=lambda bound: (bound.output.shape,),
        variants=(_MVE,),
        cost=Costs("qemu_m4 at d977087, 2026-11-22", Cost(mac=0.4, once=40)),
    ),
    KernelDef(
        CircularBuffer, "the last inputs, which are kept as state", (DType.INT8,), ("CUSTOM:CIRCULAR_BUFFER",),
        _buffer_from_tflite, _check_buffer, _buffer_reference, _lower_buffer,
        output_shapes=lambda bound: (bound.input(1).shape,) * 2,
    ),
    KernelDef(
        InputRows,
        "the rows of the input, asked for one by one",
        check=_check_rows,
        reference=lambda bound, inputs: (operand(bound, inputs, 0).reshape(bound.output.shape),),
        lower=_lower_rows,
        output_shapes=lambda bound: (bound.op(InputRows).shape,),
    ),
)  # fmt: skip

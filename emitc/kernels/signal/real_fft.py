"""What SignalRfft and SignalIrfft share: the length and the type, how they are read, and what their kernels are given.

A real transform of `fft_length` values is a complex one of half as many points, of the even values as real and the odd as
imaginary parts (kernels/fourier.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from emitc.ir import BoundNode, DType, Op
from emitc.kernels.contract import Parsed, require_dtypes
from emitc.layer import KernelSpec, Layer, Param, Scratch, Table
from emitc.numerics.kiss_fft import Numbers, radices_of
from emitc.source import SourceNode

TYPES = (DType.INT16, DType.INT32, DType.FLOAT32)
LARGEST = 1 << 16
"""Values of a transform: places of half as many are uint16."""
_NUMBERED = {0: DType.FLOAT32, 2: DType.INT32, 7: DType.INT16}
"""The types by their numbers in the schema, which the option T has."""


@dataclass(frozen=True, slots=True)
class RealFourier(Op):
    """length: of the transform, in real values. dtype: of the values and of the spectrum."""

    length: int
    dtype: DType


def parser(op: type[RealFourier]) -> Callable[[SourceNode], Parsed]:
    """Reads the options of the operator that `op` stands for."""

    def from_tflite(node: SourceNode) -> Parsed:
        node.counts((1, 1))
        dtype = _NUMBERED.get(node.integer("T"))
        if dtype is None:
            raise node.unsupported(
                f"{op.__name__} of this type is not supported",
                f"T is {node.integer('T')}, there is code for 7 (int16), 2 (int32) and 0 (float32)",
                "use one of these",
            )
        length = node.integer("fft_length", low=1)
        if length % 2 or not 4 <= length <= LARGEST or not radices_of(length // 2):
            raise node.unsupported(
                f"{op.__name__} of length {length} is not supported",
                f"there is code for even lengths from 4 to {LARGEST} without prime factors over 5, as in TFLite Micro",
                "use one of these",
            )
        return Parsed(op(length, dtype))

    return from_tflite


def op_of(bound: BoundNode) -> RealFourier:
    """The node's operator."""
    assert isinstance(bound.node.op, RealFourier)
    return bound.node.op


def require_types(bound: BoundNode) -> None:
    """Refuses tensors of another type than the option T says."""
    require_dtypes(bound, [(op_of(bound).dtype,) * 2])


def layer(
    bound: BoundNode, places: Table, splitting: str, frames: tuple[Param, ...], direction: int, template: str
) -> Layer:
    """The steps in a buffer. places: which value comes where. splitting: what the turns of the halves do. frames: parameters."""
    op = op_of(bound)
    numbers, points = Numbers(op.dtype), op.length // 2
    radices = radices_of(points)
    unit = {DType.INT16: ", Q15", DType.INT32: ", Q31", DType.FLOAT32: ""}[op.dtype]
    tables = (
        places,
        Table("radices", "int8_t", radices, "steps of the transform"),
        Table("turns", op.dtype.c_type, numbers.twiddles(points, direction), f"turns of the steps{unit}"),
        Table("splits", op.dtype.c_type, numbers.splits(points, direction), f"turns that {splitting}{unit}"),
    )
    params = (
        *frames,
        Param("points", "int32_t", points, "of the complex transform"),
        Param("steps", "int32_t", len(radices)),
    )
    scratch = (Scratch("work", 2 * op.dtype.bytes * points),)
    mixed = "_mixed" if set(radices) & {3, 5} else ""
    if op.dtype is DType.INT16:
        return Layer(template + mixed, "portable", (0,), tables, params, scratch=scratch)
    c_type = op.dtype.c_type
    spec = KernelSpec(f"_{op.dtype.value}", numbers.fixed, x=c_type, w=c_type, y=c_type)
    return Layer(f"{template}_wide{mixed}", "portable", (0,), tables, params, scratch=scratch, spec=spec)

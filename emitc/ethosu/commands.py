"""What a command stream says, one frozen value per operation: the decoder makes them, the executor runs them, or refuses.

Feature maps are [H, W, C]; sizes are elements, offsets and strides bytes inside a region.
"""

from enum import Enum
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from emitc.errors import CannotCompile, EmitcError, Where
from emitc.records import dataclass

Array: TypeAlias = NDArray[Any]
"""Integers of any width."""


class NpuFault(EmitcError):
    """The payload, its command stream or a memory access of it is wrong: no NPU may be given it."""


class NpuUnsupported(CannotCompile):
    """The stream is well formed, but the host model does not compute what it asks for."""


_COMPILE_AGAIN = "compile the model again with vela; if it stays, report it with the file"


def fault(what: str, why: str, place: str = "payload") -> NpuFault:
    """An error that says the stream is wrong. place: the command, `command 3 CONV (word 120)`."""
    return NpuFault(what, Where(op=place), why, _COMPILE_AGAIN)


def unsupported(what: str, why: str, place: str = "payload") -> NpuUnsupported:
    """An error that says the host model has no code for it."""
    hint = "compile for Ethos-U55 or Ethos-U65 with up to 256 MACs, int8 or int16"
    return NpuUnsupported(what, Where(op=place), why, hint)


Rounding = Enum("Rounding", "TFL TRUNCATE NATURAL", start=0)
"""How a product is shifted right. TFL is TFLite's: half away from zero, in two steps where the shift is above 31."""
Upscale = Enum("Upscale", "NONE NEAREST ZEROS", start=0)
"""What becomes of an input before the kernel: nothing, every element 2x2, or zeros put between the elements."""
PoolKind = Enum("PoolKind", "MAX AVERAGE REDUCE_SUM", start=0)
"""Parameter of POOL."""
OperandScaling = Enum("OperandScaling", "BOTH FIRST SECOND", start=0)
"""Which operands of ADD and SUB are scaled: both by 16-bit factors, or one by a 32-bit multiplier and a shift."""


ElementwiseKind = Enum("ElementwiseKind", "MUL ADD SUB MIN MAX LRELU ABS CLZ SHR SHL", start=0)
"""Parameter of ELEMENTWISE."""
UNARY = (ElementwiseKind.LRELU, ElementwiseKind.ABS, ElementwiseKind.CLZ)
"""Those without a second operand."""


@dataclass(frozen=True, slots=True)
class Accelerator:
    """The chip that the payload was made for.

    name: "ethos-u55-128". macs: multiply-accumulates per cycle. shram_bytes: internal memory, its last 2 KB hold tables.
    block_channels: output channels that one block of weights interleaves.
    """

    name: str
    macs: int
    shram_bytes: int
    block_channels: int


@dataclass(frozen=True, slots=True)
class Span:
    """`size` bytes from `offset` of a region. A region of None is the internal memory."""

    region: int | None
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class FeatureMap:
    """A tensor in a region, in up to four tiles, each with a base of its own.

    Columns below width0 lie in tile 0 (rows below height0) and 2, the others in tile 1 (rows below height1) and 3.
    dtype: numpy's name. bricks: NHCWB16, channels in groups of 16, stride_c from one to the next; else NHWC.
    """

    region: int
    height: int
    width: int
    depth: int
    dtype: str
    bricks: bool
    bases: tuple[int, int, int, int]
    height0: int
    height1: int
    width0: int
    stride_y: int
    stride_x: int
    stride_c: int
    zero_point: int

    @property
    def elements(self) -> int:
        return self.height * self.width * self.depth

    @property
    def element_bytes(self) -> int:
        return np.dtype(self.dtype).itemsize

    @property
    def size(self) -> int:
        """Bytes of all values."""
        return self.elements * self.element_bytes


@dataclass(frozen=True, slots=True)
class Kernel:
    """Window of a convolution or pooling; height and width count taps, without dilation."""

    height: int
    width: int
    stride_y: int
    stride_x: int
    dilation_y: int
    dilation_x: int

    @property
    def extent_y(self) -> int:
        return (self.height - 1) * self.dilation_y + 1

    @property
    def extent_x(self) -> int:
        return (self.width - 1) * self.dilation_x + 1


@dataclass(frozen=True, slots=True)
class Padding:
    """Rows and columns around the (upscaled) input."""

    top: int
    left: int
    bottom: int
    right: int

    @property
    def any(self) -> bool:
        return bool(self.top or self.left or self.bottom or self.right)


@dataclass(frozen=True, slots=True)
class Scale:
    """x * multiplier >> shift."""

    multiplier: int
    shift: int


@dataclass(frozen=True, slots=True)
class Output:
    """How a result is rounded, clamped, mapped and stored.

    scale: one for all channels, None where the operation has its own (per channel, or none). minimum, maximum: None for
    32-bit results, which are not clamped. table: number of a lookup table in internal memory, or None.
    table_signed: whether the table's first entry stands for the lowest signed index.
    """

    feature_map: FeatureMap
    scale: Scale | None
    rounding: Rounding
    minimum: int | None
    maximum: int | None
    table: int | None
    table_signed: bool


Part: TypeAlias = FeatureMap | Span
"""What an operation reads or writes."""


@dataclass(frozen=True, slots=True)
class Operation:
    """What every operation on feature maps has. place: the command in the stream, `command 3 CONV (word 120)`."""

    place: str
    ifm: FeatureMap
    output: Output

    @property
    def reads(self) -> tuple[Part, ...]:
        return (self.ifm,)

    @property
    def writes(self) -> tuple[Part, ...]:
        return (self.output.feature_map,)


@dataclass(frozen=True, slots=True)
class Windowed(Operation):
    """An operation whose outputs each depend on a window of the padded and upscaled input."""

    kernel: Kernel
    padding: Padding
    upscale: Upscale


@dataclass(frozen=True, slots=True)
class Convolution(Windowed):
    """CONV or DEPTHWISE. block_depth: output channels of a block, which the order of the weights follows."""

    depthwise: bool
    weights: Span
    scales: Span
    block_depth: int
    part_kernel_first: bool
    accumulator_bits: int

    @property
    def reads(self) -> tuple[Part, ...]:
        return self.ifm, self.weights, self.scales


@dataclass(frozen=True, slots=True)
class Pooling(Windowed):
    """POOL."""

    kind: PoolKind


@dataclass(frozen=True, slots=True)
class Elementwise(Operation):
    """ELEMENTWISE. ifm2: a tensor (broadcast where a size is 1), a scalar, or None. swapped: ifm2 is the first operand."""

    kind: ElementwiseKind
    ifm2: FeatureMap | int | None
    ifm2_zero_point: int
    swapped: bool
    scaling: OperandScaling
    scale_a: Scale | None
    scale_b: Scale | None

    @property
    def reads(self) -> tuple[Part, ...]:
        return (self.ifm, self.ifm2) if isinstance(self.ifm2, FeatureMap) else (self.ifm,)


@dataclass(frozen=True, slots=True)
class Dma:
    """DMA_START of one dimension."""

    place: str
    source: Span
    destination: Span

    @property
    def reads(self) -> tuple[Part, ...]:
        return (self.source,)

    @property
    def writes(self) -> tuple[Part, ...]:
        return (self.destination,)


@dataclass(frozen=True, slots=True)
class Wait:
    """DMA_WAIT or KERNEL_WAIT: goes on when at most `outstanding` of them are unfinished."""

    place: str
    dma: bool
    outstanding: int


Command: TypeAlias = Convolution | Pooling | Elementwise | Dma | Wait


@dataclass(frozen=True, slots=True)
class CommandStream:
    """A decoded payload."""

    accelerator: Accelerator
    commands: tuple[Command, ...]

"""One operator with every decision taken: what lowering makes of a node, and what its template prints.

The values are frozen and know no operator. The planner sees bytes and overlaps of them, emission prints the rest.
Overlap: the order in which a kernel reads an input and stores its output says how close the two may lie.
A kernel walks forward: what it stores only grows, and so, except for what a window reads again, does what it reads. Where the
input starts `distance_bytes` above the output, every byte is read for the last time before a store reaches it:

    distance = max over all readings of (end of what is stored before it - first byte that it or a later one reads)

Readings before the first store ask for nothing. The distance may be negative (the input may even start below the output):
minus the input's size, where all is read before anything is stored. It is at most the output's size. Offsets are in bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from emitc.ir import BoundNode
from emitc.records import MISSING, dataclass, fields, replace

_CACHED = 2048


class AccessOrder(Protocol):
    """What a kernel declares about one input and one output."""

    def distance_bytes(self) -> int:
        """The least (input offset - output offset) at which both may share memory."""


@dataclass(frozen=True, slots=True)
class ElementwiseOrder:
    """Element by element: element i is read for the last time, then output element i is stored.

    count: elements. in_bytes, out_bytes: of one element. first: byte of the input at which element 0 lies.
    """

    count: int
    in_bytes: int = 1
    out_bytes: int = 1
    first: int = 0

    def distance_bytes(self) -> int:
        """i * out_bytes are stored before element i is read: the difference is greatest at element 1 or at the last one."""
        if self.count < 2:
            return -self.first - self.in_bytes
        growth = self.out_bytes - self.in_bytes
        return max(growth, (self.count - 1) * growth) - self.first


@dataclass(frozen=True, slots=True)
class ReadAllFirst:
    """All of the input is read before anything is stored, or moved to where the output lies. size_bytes: of the input."""

    size_bytes: int

    def distance_bytes(self) -> int:
        """Any place will do: with the input right below the output, the two do not overlap."""
        return -self.size_bytes


@dataclass(frozen=True, slots=True)
class WindowOrder:
    """Image by image, row by row, pixel by pixel; each output pixel is stored while its window is read.

    Sizes, strides, dilations and pads are in pixels. in_pixel, out_pixel: bytes of one. ahead: bytes of an output
    pixel that are stored before its window is read for the last time, less the byte of the window's first pixel at which that
    reading starts (see `by_channel`); None where the window is read once, before anything of the pixel is stored. tile: pixels
    of an image that are made at a time, so that `ahead` counts from the last one of them; what is left of an image is made
    pixel by pixel. multiple: in_pixel where all pixels of a channel are made before those of the next one.
    """

    batches: int
    in_h: int
    in_w: int
    out_h: int
    out_w: int
    kernel_h: int
    kernel_w: int
    stride_h: int
    stride_w: int
    dilation_h: int
    dilation_w: int
    pad_top: int
    pad_left: int
    in_pixel: int
    out_pixel: int
    ahead: int | None = None
    tile: int = 1
    multiple: int = 1

    def distance_bytes(self) -> int:
        """The greatest of all pixels', for what is read later of its own window and of every later one."""
        return _window_distance(self)


@dataclass(frozen=True, slots=True)
class ChannelOrder:
    """Image by image, four channels after the other, pixel by pixel: a pixel's values are read before its place is stored.

    in_pixels, out_pixels: of an image, these being no more. multiple: bytes of a pixel, of which the distance is a multiple.
    """

    batches: int
    in_pixels: int
    out_pixels: int
    multiple: int

    def distance_bytes(self) -> int:
        """A pixel is stored where it was read, or below."""
        return 0


@lru_cache(maxsize=_CACHED)
def _window_distance(order: WindowOrder) -> int:
    """`WindowOrder.distance_bytes`; plans of many schedules ask for the same one."""
    rows = first_inside(order.out_h, order.stride_h, order.dilation_h, order.kernel_h, order.pad_top, order.in_h)
    columns = first_inside(order.out_w, order.stride_w, order.dilation_w, order.kernel_w, order.pad_left, order.in_w)
    low = (rows[:, None] * order.in_w + columns[None, :]).reshape(-1) * order.in_pixel
    images = np.arange(order.batches, dtype=np.int64)[:, None] * (order.in_h * order.in_w * order.in_pixel)
    low = (images + low[None, :]).reshape(-1)
    later = np.minimum.accumulate(low[::-1])[::-1]
    start = np.arange(low.size, dtype=np.int64) * order.out_pixel
    nothing = -order.batches * order.in_h * order.in_w * order.in_pixel
    # Of the first pixel nothing is stored yet where each pixel is stored at once.
    if order.ahead is None:
        inside = (start - low)[1:].max(initial=nothing)
    else:
        pixel = np.arange(order.out_h * order.out_w, dtype=np.int64)
        tiled = pixel < pixel.size // order.tile * order.tile
        waits = np.tile(np.where(tiled, order.tile - 1 - pixel % order.tile, 0), order.batches) * order.out_pixel
        inside = (start + waits + order.ahead - low).max()
    return int((start[1:] - later[1:]).max(initial=inside))


def first_inside(outputs: int, stride: int, dilation: int, kernel: int, pad: int, size: int) -> NDArray[np.int64]:
    """Along one dimension: the first input that the window of each output meets; the input's end where it meets none.

    >>> first_inside(3, 1, 1, 3, 1, 3).tolist()
    [0, 0, 1]
    """
    start = np.arange(outputs, dtype=np.int64) * stride - pad
    tap = np.maximum(0, -(start // dilation))
    position = start + tap * dilation
    met = (tap < kernel) & (position < size)
    return np.where(met, position, size)


def window_order(values: Mapping[str, int], in_bytes: int, out_bytes: int, ahead: int | None) -> WindowOrder:
    """The access order of a kernel whose parameters start with the window's.

    values: those parameters. in_bytes, out_bytes: of one element. ahead: bytes, as `WindowOrder` says.
    """
    *geometry, _, _ = (field.name for field in fields(WindowOrder) if field.default is MISSING)
    pixels = {"in_pixel": values["in_c"] * in_bytes, "out_pixel": values["out_c"] * out_bytes}
    return WindowOrder(**{name: values[name] for name in geometry}, **pixels, ahead=ahead)


def by_channel(channels: int, groups: int, depth: int, in_bytes: int, out_bytes: int) -> int | None:
    """Bytes ahead, where each output channel reads the `depth` input channels of its group only.

    >>> by_channel(16, 16, 1, 1, 1), by_channel(16, 8, 1, 1, 1), by_channel(8, 2, 4, 1, 1), by_channel(1, 1, 9, 1, 1)
    (0, 8, 3, None)
    """
    group_channels = channels // groups
    lasts = [(group, (group + 1) * group_channels - 1) for group in (0, min(1, groups - 1), groups - 1)]
    return max((last * out_bytes - group * depth * in_bytes for group, last in lasts if last > 0), default=None)


@dataclass(frozen=True, slots=True)
class Table:
    """A constant array to print: role is its name in the template, values are its elements in order.

    comment: one line that says what the numbers are. alignment: bytes, 0 for the type's. pixels_per_load: output pixels that
    share what the kernel loads of the array; 0 where the layer function does not take the array from its caller, so that no
    copy in faster memory can replace it. An array with the role `weights` must state it.
    """

    role: str
    c_type: str
    values: tuple[int, ...] | tuple[float, ...]
    comment: str
    alignment: int = 0
    pixels_per_load: int = 0

    @property
    def size_bytes(self) -> int:
        """Bytes in flash."""
        widths = {"int8_t": 1, "uint8_t": 1, "int16_t": 2, "uint16_t": 2, "int64_t": 8, "uint64_t": 8, "double": 8}
        return widths.get(self.c_type, 4) * len(self.values)


@dataclass(frozen=True, slots=True)
class Param:
    """A member of the layer's parameter struct: printed as a designated initialiser with its comment."""

    name: str
    c_type: str
    value: int | float
    comment: str = ""


def integers(**values: int | tuple[int, str]) -> tuple[Param, ...]:
    """Members of the type int32_t in their order: each has its value, or its value and comment."""
    return tuple(Param(n, "int32_t", *(v if isinstance(v, tuple) else (v,))) for n, v in values.items())


@dataclass(frozen=True, slots=True)
class Scratch:
    """Working memory of one step: role is its name in the template."""

    role: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Pin:
    """An operand, or an output, that lies inside the step's scratch of that role, at an offset in bytes.

    The scratch lives as long as everything that is pinned in it. A tensor is pinned once.
    """

    output: bool
    position: int
    scratch: str
    offset_bytes: int


@dataclass(frozen=True, slots=True)
class Place:
    """A tensor that lies inside another one, at an offset in bytes, whichever layers read and write it.

    The other one lives as long as everything that lies in it. A tensor has one place.
    """

    tensor: str
    inside: str
    offset_bytes: int


@dataclass(frozen=True, slots=True)
class Memory:
    """An output that is the content of a memory which several layers share.

    output: its position. reads: bytes [first, end) that one of these layers must have written before. writes: those written.
    """

    output: int
    reads: tuple[tuple[int, int], ...]
    writes: tuple[tuple[int, int], ...]


@dataclass(frozen=True, slots=True)
class Overlap:
    """Output `output` may share memory with input `input`, as close as the kernel's access order allows."""

    input: int
    output: int
    order: AccessOrder

    @property
    def distance_bytes(self) -> int:
        """The least (input offset - output offset); by the order."""
        return self.order.distance_bytes()

    @property
    def multiple(self) -> int:
        """What the difference of the offsets is a multiple of."""
        return self.order.multiple if isinstance(self.order, ChannelOrder | WindowOrder) else 1


def in_step(bound: BoundNode, position: int = 0) -> Overlap:
    """Of input `position` and the only output, where element i is read for the last time before output element i is stored."""
    x, y = bound.input(position), bound.output
    return Overlap(position, 0, ElementwiseOrder(y.elements, x.dtype.bytes, y.dtype.bytes))


@dataclass(frozen=True, slots=True)
class Inside:
    """That a layer has nothing to do where an operand lies in the only output, or an output in the only operand, at an offset.

    position: of the operand among the node's inputs, or of the output. A layer says so of all of them or of none.
    """

    output: bool
    position: int
    offset_bytes: int


@dataclass(frozen=True, slots=True)
class ByRows:
    """That a layer can make its output [1, H, W, C] row by row, each operand being an image too.

    window: rows of a window; the parameters start with the window's, and `in_h`, `out_h`, `pad_top` are those of the rows in
    sight. Otherwise row r reads row r of each operand, and `counted` is the parameter that counts what a row has a share of.
    tile: pixels of a row made at a time, even where fewer are left. left_over: a pixel's part of the time of a tile, where tiles
    cross rows. fitted: printed for the layer's numbers. alone: what single rows cost more, a share. outputs: channels of a part.
    """

    window: bool = False
    counted: str = ""
    tile: int = 1
    fitted: bool = False
    alone: float = 0.0
    outputs: int = 0
    left_over: float = 0.0


@dataclass(frozen=True, slots=True)
class KernelSpec:
    """What a kernel is printed for, where one template serves several: part of the kernel's C name.

    suffix: of that name. fixed_point: accumulators are requantized by a Q31 multiplier and a shift, otherwise by a float32
    factor. x, w, y: C types of inputs, weights and outputs. weight_zero: weights have zero points, which the kernel takes
    off by the sum of the inputs. int4_weights: a byte holds two of them. acc: C type of sums and biases. reduced: the multiplier
    has 16 bits, and the one rounding is half up. unsigned: the model has the values as uint8, 128 higher, and rounds there.
    rounding: which of the runtime's short requantizations for one instruction set is enough: `up`, `away` from zero, or `any`; of
    a float sum, the type to which it saturates. clamped: outputs have limits in addition to those of their type.
    per_tensor: one multiplier for all channels, where the template does not take that as a number. small_sums: three products
    of 32 bits requantize the sums. window: what is fixed of the window, by the template's own names. has_tail: channels or
    columns are left over from the kernel's groups. exact_rounding: float32 factors as mantissas and left shifts, for cores
    without floats; quotients are rounded as if there were no end to their digits. interleaved: filters lie value by value,
    not one after the other. runtime_bias: the C type of a computed bias, which is added to the sum at its end, where that
    wraps. bias_last: any bias of a sum of floats is added at its end. rectified: outputs are limited to 0 and more.
    no_broadcast: no operand is repeated.
    joined: the weights of two channels are one number.
    """

    suffix: str = ""
    fixed_point: bool = True
    x: str = "int8_t"
    w: str = "int8_t"
    y: str = "int8_t"
    weight_zero: bool = False
    int4_weights: bool = False
    acc: str = "int32_t"
    reduced: bool = False
    unsigned: bool = False
    rounding: str = ""
    clamped: bool = False
    per_tensor: bool = False
    small_sums: bool = False
    window: str = ""
    has_tail: bool = False
    exact_rounding: bool = False
    interleaved: bool = False
    runtime_bias: str = ""
    bias_last: bool = False
    rectified: bool = False
    no_broadcast: bool = False
    joined: bool = False

    def extended(self, ending: str, **fields: Any) -> KernelSpec:
        """The spec with other fields, which `ending` names at the end of the suffix."""
        return replace(self, suffix=self.suffix + ending, **fields)


PLAIN = KernelSpec()
"""int8 throughout, fixed point."""


@dataclass(frozen=True, slots=True)
class Formula:
    """What a kernel computes of each element, where one template prints the kernels of many functions.

    name: of the kernel in C. c: the result as a C expression of the elements, whose names the template states, and of the
    parameters `p`. comment: the result in words. In both texts {x}, {w} and {y} stand for the spec's types, and {kernel} for
    the name of the C function. math: whether the expression needs <math.h>.
    """

    name: str
    c: str
    comment: str
    math: bool = False

    def result(self, spec: KernelSpec) -> str:
        return self._of(self.c, spec)

    def meaning(self, spec: KernelSpec) -> str:
        return self._of(self.comment, spec)

    def kernel(self, spec: KernelSpec) -> str:
        return f"emitc_{self.name}{spec.suffix}"

    def _of(self, text: str, spec: KernelSpec) -> str:
        return text.format(x=spec.x, w=spec.w, y=spec.y, kernel=self.kernel(spec))


@dataclass(frozen=True, slots=True)
class ReductionFormula(Formula):
    """What a kernel computes of many elements: `acc` starts as `start`, becomes `step` with each element `v`, and gives `c`.

    accumulator: the C type of `acc`, in which {x} is the elements' type; so it is in `step`.
    """

    accumulator: str = "{x}"
    start: str = "0"
    step: str = ""

    def accumulator_type(self, spec: KernelSpec) -> str:
        return self._of(self.accumulator, spec)

    def next(self, spec: KernelSpec) -> str:
        return self._of(self.step, spec)


@dataclass(frozen=True, slots=True)
class Expression:
    """C text: `text`, followed by the name of the layer's table or structure of that role, where one is given."""

    text: str = ""
    table: str = ""
    structure: str = ""


@dataclass(frozen=True, slots=True)
class Structure:
    """A structure that a library function takes. members: name and initialiser. constant: it has no pointer in it, so that it
    is a constant of the file and not of the function.
    """

    role: str
    c_type: str
    members: tuple[tuple[str, Expression], ...]
    constant: bool = True


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """A call of a function of a library, decided to the last argument.

    check: name and arguments of the function that tells the bytes of scratch it needs, and how many it gets. copies,
    results: done before and after the call, as destination, offset in the buffer that the library sees, source, and bytes.
    unused: parameters of the layer function that it does not read.
    """

    function: str
    arguments: tuple[Expression, ...]
    structures: tuple[Structure, ...] = ()
    check: tuple[str, tuple[Expression, ...], int] | None = None
    copies: tuple[tuple[str, int, str, int], ...] = ()
    results: tuple[tuple[str, int, str, int], ...] = ()
    unused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Layer:
    """An operator with every decision taken: what its template prints.

    template: file under templates/kernels without its suffix. formula: what the kernel computes, where the template prints the
    kernels of many functions. variant: name a user sees (`portable`). operands: positions of the inputs that are passed to the
    layer function, in order (constants are among tables instead). macs: multiply-accumulates of one run. spec: what the
    template's kernel is printed for. fallible: the layer function returns a status. call: of a library, where the template
    prints one. pins: operands and outputs inside the scratch. places: tensors inside of others. memory: an output that is a
    memory which several layers share. by_rows: how it makes a single row, where it can. inside: where memory can be laid out so
    that it vanishes. headers: of the runtime, beyond the common one. larger: its code is larger than the portable kernel's.
    reads_rows: the application gives it rows. flash_bytes: of its constants beyond the model's.
    """

    template: str
    variant: str = "portable"
    operands: tuple[int, ...] = (0,)
    tables: tuple[Table, ...] = ()
    params: tuple[Param, ...] = ()
    scratch: tuple[Scratch, ...] = ()
    overlaps: tuple[Overlap, ...] = ()
    macs: int = 0
    spec: KernelSpec = PLAIN
    fallible: bool = False
    call: LibraryCall | None = None
    pins: tuple[Pin, ...] = ()
    places: tuple[Place, ...] = ()
    memory: Memory | None = None
    by_rows: ByRows | None = None
    inside: tuple[Inside, ...] = ()
    headers: tuple[str, ...] = ()
    larger: bool = False
    reads_rows: bool = False
    flash_bytes: int = 0
    formula: Formula | None = None

    @property
    def kernel_name(self) -> str:
        return kernel_name(self.template, self.call, self.formula)

    def __post_init__(self) -> None:
        names = [t.role for t in self.tables] + [p.name for p in self.params]
        assert len(set(names)) == len(names), f"{self.template} names one thing twice: {names}"


def kernel_name(template: str, call: LibraryCall | None, formula: Formula | None) -> str:
    """The name of a kernel for users: its formula's, or its template's without the folder. A library's keeps the folder."""
    if formula is not None:
        return formula.name
    return template if call is not None else template.rpartition("/")[2]

"""Bytes of working memory that CMSIS-NN's functions ask for, by version and instruction set.

Each function here gives what the library's function of that name followed by _get_buffer_size returns, compiled by GCC or
LLVM for that instruction set; Arm Compiler 6 selects other code from 7.0.0 on. The library's own functions for other
instruction sets than that of the build (..._dsp, ..._mve) differ from these in places, so they are not used.
Source  the releases and the development of CMSIS-NN, each value compared with the compiled function (tests).
"""

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from emitc.backends.cmsis_nn.versions import InstructionSet, Version
from emitc.records import dataclass, replace

_INT16 = 2
_INT32 = 4
_COLUMNS = 4
"""Columns of the matrix that MVE kernels gather at a time."""
BLOCK_CHANNELS = 124
"""Channels that the MVE depthwise kernels gather at a time."""
FAST_S16_TAPS = 512
_REVERSED_CHANNELS = 16
"""Up to this many input channels a transposed convolution is not run as a convolution."""


@dataclass(frozen=True, slots=True)
class Dims:
    """cmsis_nn_dims: an activation [n, h, w, c]; a filter OHWI, or [1, h, w, c] of a depthwise convolution."""

    n: int
    h: int
    w: int
    c: int


@dataclass(frozen=True, slots=True)
class Call:
    """What buffer sizes depend on. A fully connected layer: filter (depth, 1, 1, outputs)."""

    input: Dims
    filter: Dims
    output: Dims
    stride_h: int = 1
    stride_w: int = 1
    pad_h: int = 0
    pad_w: int = 0
    dilation_h: int = 1
    dilation_w: int = 1

    @property
    def dilated(self) -> bool:
        """Whether the window has gaps."""
        return (self.dilation_h, self.dilation_w) != (1, 1)

    @property
    def padded(self) -> bool:
        """Whether there is padding at the top or left."""
        return (self.pad_h, self.pad_w) != (0, 0)

    @property
    def taps(self) -> int:
        return self.filter.h * self.filter.w


Size = Callable[[Version, InstructionSet, Call], int]


def _none(version: Version, instructions: InstructionSet, call: Call) -> int:
    return 0


def _rounded_up(value: int, step: int) -> int:
    return -(-value // step) * step


def convolve_s8(version: Version, instructions: InstructionSet, call: Call) -> int:
    """Two columns of int16, or four of int8 for MVE."""
    elements = call.taps * call.input.c
    if instructions is InstructionSet.MVE:
        return _COLUMNS * _rounded_up(elements, 16 if version.support >= (20, 0, 0) else 8)
    if version.support >= (17, 0, 0):
        elements = _rounded_up(elements, 4)
    return 2 * elements * _INT16


def is_1x1(version: Version, call: Call, *, wrapper: bool) -> bool:
    """Whether the wrapper runs a 1x1 kernel. wrapper: what runs; otherwise what buffer sizes take for it.

    Between the arrival of groups and the alignment of the two, buffer sizes overlook the number of filter channels.
    """
    pointwise = call.taps == 1 and not call.padded and not call.dilated
    return pointwise and (not _grouped(version, call, wrapper=wrapper))


def is_1_x_n(version: Version, call: Call, *, wrapper: bool) -> bool:
    """Whether the wrapper runs the kernel for images of one row; see is_1x1."""
    if call.input.h != 1 or call.dilation_w != 1 or call.filter.h != 1:
        return False
    if version.support < (15, 0, 1):
        return call.output.w % 4 == 0
    return call.stride_w * call.input.c % 4 == 0 and not _grouped(version, call, wrapper=wrapper)


def _grouped(version: Version, call: Call, *, wrapper: bool) -> bool:
    seen = version.support >= (22, 8, 1) or (wrapper and version.functions >= (12, 6, 0))
    return seen and call.input.c != call.filter.c


@dataclass(frozen=True, slots=True)
class Row:
    """How the MVE kernel for one row splits its outputs: at the left border, inside, at the right border.

    total: columns of padding on both sides; odd: its remainder by two, with its sign. exact: the three parts are all outputs.
    """

    left: int
    inside: int
    right: int
    total: int
    odd: int
    exact: bool


def row_of(call: Call) -> Row:
    """The split of a convolution over one row."""
    total = (call.output.w - 1) * call.stride_w + call.filter.w - call.input.w
    odd = total % 2 if total >= 0 else -(-total % 2)  # C's remainder

    def windows(padding: int) -> int:
        return max(1, int((padding + call.stride_w - 1) / call.stride_w)) if padding else 0

    left, right = windows(call.pad_w), windows(call.pad_w + odd)
    inside = max(call.output.w - left - right, 0)
    return Row(left, inside, right, total, odd, left + inside + right == call.output.w)


def convolve_1_x_n_s8(version: Version, instructions: InstructionSet, call: Call) -> int:
    """Nothing in early MVE code; a window at each border later, or what the general kernel needs."""
    if instructions is not InstructionSet.MVE:
        return convolve_s8(version, instructions, call)
    if version.functions < (15, 0, 0):
        return 0
    row = row_of(call)
    if not row.exact:
        return convolve_s8(version, instructions, call)
    channels = call.input.c
    left = call.filter.w * channels + call.pad_w * channels
    right = (call.filter.w - 1) * channels + (row.right if row.odd else call.pad_w) * channels
    return max(left, right)


def convolve_wrapper_s8(version: Version, instructions: InstructionSet, call: Call, *, wrapper: bool = False) -> int:
    """The size for the kernel that the library takes the wrapper to run. wrapper: for the kernel that really runs."""
    if is_1x1(version, call, wrapper=wrapper):
        return 0
    if is_1_x_n(version, call, wrapper=wrapper):
        return convolve_1_x_n_s8(version, instructions, call)
    return convolve_s8(version, instructions, call)


def convolve_s16(version: Version, instructions: InstructionSet, call: Call) -> int:
    """Nothing before the MVE kernel came; two columns, or four for MVE, since."""
    elements = call.taps * call.input.c
    if version.functions < (15, 0, 0):
        return 0
    if instructions is InstructionSet.MVE:
        return _COLUMNS * _rounded_up(elements, 8) * _INT16
    return 2 * elements * _INT16


def convolve_fast_s16(version: Version, instructions: InstructionSet, call: Call) -> int:
    """Two columns for DSP; the function is gone since the MVE kernel came."""
    return 2 * call.taps * call.input.c * _INT16 if instructions is InstructionSet.DSP else 0


def convolve_wrapper_s16(version: Version, instructions: InstructionSet, call: Call) -> int:
    """The size for the kernel that runs."""
    if version.functions < (15, 0, 0):
        fast = call.taps * call.input.c < FAST_S16_TAPS and not call.dilated
        return convolve_fast_s16(version, instructions, call) if fast else 0
    return convolve_s16(version, instructions, call)


def convolve_s4(version: Version, instructions: InstructionSet, call: Call) -> int:
    """Two columns of int16, also where the MVE kernel needs less."""
    return 2 * call.taps * call.input.c * _INT16


def _convolve_s4_mve(call: Call) -> int:
    return _COLUMNS * _rounded_up(call.taps * call.input.c, 16)


def convolve_1_x_n_s4(version: Version, instructions: InstructionSet, call: Call) -> int:
    """Nothing for MVE, unless the general kernel has to run."""
    if instructions is not InstructionSet.MVE:
        return convolve_s4(version, instructions, call)
    return 0 if row_of(call).exact else _convolve_s4_mve(call)


def convolve_wrapper_s4(version: Version, instructions: InstructionSet, call: Call) -> int:
    """The size for the kernel that runs. Older releases return the size for the 8-bit kernel in MVE builds."""
    if instructions is InstructionSet.MVE and version.functions >= (15, 2, 0):
        if version.support < (22, 8, 1):
            return convolve_wrapper_s8(version, instructions, call)
        if is_1x1(version, call, wrapper=False):
            return 0
        if is_1_x_n(version, call, wrapper=False):
            return convolve_1_x_n_s4(version, instructions, call)
        return _convolve_s4_mve(call)
    return 0 if is_1x1(version, call, wrapper=False) else convolve_s4(version, instructions, call)


def depthwise_conv_s8_opt(version: Version, instructions: InstructionSet, call: Call) -> int:
    """Four columns of a block of channels for MVE, one of int16 for DSP."""
    if instructions is InstructionSet.MVE:
        return 4 * BLOCK_CHANNELS * call.taps
    return call.input.c * call.taps * _INT16 if instructions is InstructionSet.DSP else 0


def _one_filter_a_channel(call: Call) -> bool:
    return call.input.c == call.output.c and call.input.n == 1 and not call.dilated


def as_convolution(version: Version, instructions: InstructionSet, call: Call) -> bool:
    """Whether a depthwise convolution runs as a convolution: of one input channel, for MVE, since 7.0.0."""
    one = call.input.c == 1 and call.output.c > 1
    return instructions is InstructionSet.MVE and version.support >= (22, 6, 0) and one


def turned(call: Call) -> Call:
    """A depthwise convolution of one input channel as the convolution that it is."""
    filter_dims = call.filter
    return replace(call, filter=Dims(filter_dims.c, filter_dims.h, filter_dims.w, filter_dims.n))


def depthwise_conv_wrapper_s8(version: Version, instructions: InstructionSet, call: Call) -> int:
    """The size for the kernel that runs.

    For MVE, one input channel is a convolution with reordered weights since 7.0.0.
    """
    mve = instructions is InstructionSet.MVE
    if as_convolution(version, instructions, call):
        weights = call.filter.n * call.filter.h * call.filter.w * call.filter.c
        return convolve_wrapper_s8(version, instructions, turned(call)) + weights
    if not _one_filter_a_channel(call):
        return 0
    small = (call.filter.h, call.filter.w) == (3, 3) and call.pad_h <= 1 and call.pad_w <= 1
    if small and not mve and version.functions >= (11, 3, 0):
        return 0
    return depthwise_conv_s8_opt(version, instructions, call)


def depthwise_conv_s4_opt(version: Version, instructions: InstructionSet, call: Call) -> int:
    """The size for the 8-bit kernel for DSP; for MVE, from 6.0.0 on, that for the 8-bit MVE kernel."""
    mve = instructions is InstructionSet.MVE and version.support >= (21, 1, 0)
    return depthwise_conv_s8_opt(version, InstructionSet.MVE if mve else InstructionSet.DSP, call)


def depthwise_conv_wrapper_s4(version: Version, instructions: InstructionSet, call: Call) -> int:
    """The size for the kernel that runs."""
    return depthwise_conv_s4_opt(version, instructions, call) if _one_filter_a_channel(call) else 0


def depthwise_conv_fast_s16(version: Version, instructions: InstructionSet, call: Call) -> int:
    """Four columns and eight bytes for MVE, one for DSP."""
    column = call.input.c * call.taps * _INT16
    return {InstructionSet.PORTABLE: 0, InstructionSet.DSP: column, InstructionSet.MVE: 4 * column + 8}[instructions]


def depthwise_conv_wrapper_s16(version: Version, instructions: InstructionSet, call: Call) -> int:
    """The size for the kernel that runs."""
    taps = call.taps * (call.input.c if version.support < (14, 2, 0) else 1)
    fast = call.input.c == call.output.c and not call.dilated and taps < FAST_S16_TAPS
    return depthwise_conv_fast_s16(version, instructions, call) if fast else 0


def fully_connected_s8(version: Version, instructions: InstructionSet, call: Call) -> int:
    """Sums of the weights of each output for MVE since 5.0.0: constants, which the caller provides."""
    sums = instructions is InstructionSet.MVE and version.functions >= (12, 0, 0)
    return call.filter.c * _INT32 if sums else 0


def avgpool(version: Version, instructions: InstructionSet, call: Call) -> int:
    """int32 sums of all channels for DSP."""
    return call.input.c * _INT32 if instructions is InstructionSet.DSP else 0


def svdf_s8(version: Version, instructions: InstructionSet, call: Call) -> int:
    """Sums of the feature weights of each filter for MVE since 5.0.0: constants, which the caller provides."""
    return call.filter.n * _INT32 if instructions is InstructionSet.MVE else 0


def is_reversed(version: Version, call: Call) -> bool:
    """Whether a transposed convolution is run as a convolution of the spread input (strides up to 2, many channels)."""
    few_steps = call.stride_h <= 2 and call.stride_w <= 2
    return version.functions >= (18, 0, 0) and few_steps and call.input.c > _REVERSED_CHANNELS


def transpose_conv_s8(version: Version, instructions: InstructionSet, call: Call) -> int:
    """All products in 5.0.0; since 7.0.0 the output rows in reach of one input row, or a convolution's columns."""
    if version.functions < (18, 0, 0):
        return call.taps * call.input.w * call.input.h * call.output.c * _INT32
    if is_reversed(version, call):
        return convolve_s8(version, instructions, call)
    # The library takes the larger of the filter's width and the vertical stride.
    return _reached_rows(call, max(call.filter.w, call.stride_h))


def _reached_rows(call: Call, width: int) -> int:
    """int32 sums of the output rows that one input row reaches. width: columns that one of its values reaches."""
    columns = (call.input.w - 1) * call.stride_w + width
    return columns * call.output.c * max(call.filter.h, call.stride_h) * _INT32


def transpose_conv_s8_reverse(version: Version, instructions: InstructionSet, call: Call) -> int:
    """Reordered weights of a transposed convolution that is run as a convolution (its second buffer)."""
    return call.input.c * call.taps * call.filter.n if is_reversed(version, call) else 0


_SAME_NAMES: tuple[Size, ...] = (
    *(convolve_s8, convolve_1_x_n_s8, convolve_wrapper_s8, convolve_s16, convolve_fast_s16, convolve_wrapper_s16),
    *(convolve_s4, convolve_1_x_n_s4, convolve_wrapper_s4, depthwise_conv_s8_opt, depthwise_conv_wrapper_s8),
    *(depthwise_conv_s4_opt, depthwise_conv_wrapper_s4, depthwise_conv_fast_s16, depthwise_conv_wrapper_s16),
    *(fully_connected_s8, svdf_s8, transpose_conv_s8),
)
BUFFER_SIZES: Mapping[str, Size] = MappingProxyType({
    **{f"arm_{size.__name__}_get_buffer_size": size for size in _SAME_NAMES},
    **{f"arm_convolve_1x1_{bits}_fast_get_buffer_size": _none for bits in ("s8", "s4")},
    **{f"arm_avgpool_{bits}_get_buffer_size": avgpool for bits in ("s8", "s16")},
    "arm_fully_connected_s16_get_buffer_size": _none,
    "arm_transpose_conv_s8_get_reverse_conv_buffer_size": transpose_conv_s8_reverse,
})  # fmt: skip
"""Every function of the library that tells a size of a quantized operator's buffer, in bytes."""


def _transpose_conv_s8_need(version: Version, instructions: InstructionSet, call: Call) -> int:
    if version.functions < (18, 0, 0) or is_reversed(version, call):
        return 0
    return _reached_rows(call, max(call.filter.w, call.stride_w))


_NEEDS: Mapping[str, Size] = MappingProxyType(
    {
        "arm_convolve_wrapper_s8_get_buffer_size": partial(convolve_wrapper_s8, wrapper=True),
        "arm_transpose_conv_s8_get_buffer_size": _transpose_conv_s8_need,
    }
)
"""Where kernels use more than the library's own function tells."""


def workspace_bytes(size_function: str, version: Version, instructions: InstructionSet, call: Call) -> int:
    """Bytes to provide: what the library tells, or more where its kernel uses more.

    It tells too little for grouped convolutions of one row or of 1x1 from 5.0.0+ to 7.0.0. It does so too for transposed
    convolutions whose horizontal stride is larger than filter and vertical stride.
    """
    told = BUFFER_SIZES[size_function](version, instructions, call)
    need = _NEEDS.get(size_function)
    return told if need is None else max(told, need(version, instructions, call))


def transpose_conv_second_bytes(version: Version, instructions: InstructionSet, call: Call) -> int:
    """The second buffer of a transposed convolution: int32 sums of all outputs before 7.0.0, reordered weights since."""
    if version.functions < (18, 0, 0):
        return call.output.h * call.output.w * call.output.c * _INT32
    return transpose_conv_s8_reverse(version, instructions, call)

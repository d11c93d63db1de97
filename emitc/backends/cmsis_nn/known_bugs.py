"""Calls that a version of CMSIS-NN computes wrongly, refuses, or was never written for, and what to do instead.

Each was measured: the function against emitc's reference over random shapes, compiled for the host and for emulated
Cortex-M4 and Cortex-M55 (tests). Only the calls named here differ.
"""

from collections.abc import Callable
from enum import Enum

from emitc.backends.cmsis_nn import buffer_sizes
from emitc.backends.cmsis_nn.versions import InstructionSet, Revision, Tree, Version, revision_of
from emitc.records import dataclass


class Remedy(Enum):
    """What computes the layer nevertheless."""

    NONE = "take another kernel"
    ZERO_BIAS = "give a bias of zeros"
    GENERAL_KERNEL = "call the general kernel instead of the wrapper"
    EACH_BATCH = "call once for each batch"


@dataclass(frozen=True, slots=True)
class Use:
    """A call with what faults depend on in addition to its geometry. bias: whether there is one."""

    function: str
    call: buffer_sizes.Call
    bias: bool = True


@dataclass(frozen=True, slots=True)
class Repair:
    """A C file and the revision in its head since which it is right, where the headers' revisions do not tell."""

    file: str
    revision: Revision


@dataclass(frozen=True, slots=True)
class Fault:
    """functions: of the library. applies: whether a use is concerned. reason: one sentence for the user."""

    functions: tuple[str, ...]
    reason: str
    remedy: Remedy
    applies: Callable[[Version, InstructionSet, Use], bool]
    repair: Repair | None = None


def _grouped(call: buffer_sizes.Call) -> bool:
    return call.input.c != call.filter.c


def row_is_right(version: Version, call: buffer_sizes.Call) -> bool:
    """Whether the MVE kernel for images of one row computes this convolution.

    It counts the windows that reach beyond a border by dividing the padding by the stride; it is right where these counts
    are the true ones, and, since 6.0.0, where the first window at the right border misses one column.
    """
    if version.support < (15, 0, 1):
        return True
    row, stride, kernel, width = buffer_sizes.row_of(call), call.stride_w, call.filter.w, call.input.w
    if 2 * call.pad_w + row.odd != row.total:
        return False
    if not row.exact:
        return version.functions >= (14, 0, 0)
    if row.left + row.inside > 0 and (row.left + row.inside - 1) * stride - call.pad_w + kernel > width:
        return False
    first = stride * (row.left + row.inside) - call.pad_w
    if version.functions < (14, 0, 0):
        return first >= 0
    if row.left and width < kernel:
        return False
    beyond = row.right if row.odd else call.pad_w
    return row.right == 0 or (width - first == kernel - 1 and (row.right - 1) * stride + 1 <= beyond)


def _wrong_row(version: Version, instructions: InstructionSet, use: Use) -> bool:
    mve = instructions is InstructionSet.MVE
    return mve and buffer_sizes.is_1_x_n(version, use.call, wrapper=True) and not row_is_right(version, use.call)


_CARRYING_ROW = 9
"""So many values of an int16 softmax can add up to 2**18 - 1."""


def _general_depthwise_of_nibbles(version: Version, instructions: InstructionSet, use: Use) -> bool:
    return use.call.input.c != use.call.output.c or use.call.input.n > 1 or use.call.dilated


FAULTS: tuple[Fault, ...] = (
    Fault(
        ("arm_convolve_wrapper_s8", "arm_convolve_s8"),
        "it computes no grouped convolutions before 24.02",
        Remedy.NONE,
        lambda version, instructions, use: version.functions < (12, 6, 0) and _grouped(use.call),
    ),
    Fault(
        ("arm_convolve_wrapper_s8", "arm_convolve_s8"),
        "without a bias it reads one from a wrong address for all groups but the first",
        Remedy.ZERO_BIAS,
        lambda version, instructions, use: version.functions >= (12, 6, 0) and _grouped(use.call) and not use.bias,
    ),
    Fault(
        ("arm_convolve_wrapper_s8",),
        "its MVE kernel for images of one row miscounts the windows at the borders of this layer",
        Remedy.GENERAL_KERNEL,
        _wrong_row,
    ),
    Fault(
        ("arm_depthwise_conv_wrapper_s8",),
        "for MVE it runs this layer by a kernel that miscounts the windows at the borders of images of one row",
        Remedy.GENERAL_KERNEL,
        lambda version, instructions, use: (
            buffer_sizes.as_convolution(version, instructions, use.call)
            and _wrong_row(version, instructions, Use(use.function, buffer_sizes.turned(use.call)))
        ),
    ),
    Fault(
        ("arm_depthwise_conv_wrapper_s8", "arm_depthwise_conv_s8_opt"),
        "without a bias its MVE kernel reads one from a wrong address for all channels but the first 124",
        Remedy.ZERO_BIAS,
        lambda version, instructions, use: (
            instructions is InstructionSet.MVE
            and not use.bias
            and use.call.input.c == use.call.output.c > buffer_sizes.BLOCK_CHANNELS
            and use.call.input.n == 1
            and not use.call.dilated
        ),
    ),
    Fault(
        ("arm_convolve_wrapper_s16", "arm_convolve_fast_s16"),
        "without a bias its DSP kernel rounds otherwise than TFLite",
        Remedy.ZERO_BIAS,
        lambda version, instructions, use: (
            version.functions < (15, 0, 0)
            and instructions is InstructionSet.DSP
            and use.call.taps * use.call.input.c < buffer_sizes.FAST_S16_TAPS
            and not use.call.dilated
            and not use.bias
        ),
    ),
    Fault(
        ("arm_softmax_s16",),
        "a row of one value comes out as -32768, since nothing limits it",
        Remedy.NONE,
        lambda version, instructions, use: use.call.input.c == 1,
    ),
    Fault(
        ("arm_softmax_s16",),
        "rows of 9 values or more can have a sum whose rounding leaves 32 bits, 262143 for example",
        Remedy.NONE,
        lambda version, instructions, use: use.call.input.c >= _CARRYING_ROW,
    ),
    Fault(
        ("arm_transpose_conv_wrapper_s8", "arm_transpose_conv_s8"),
        "it mixes output rows where the padding is no multiple of the stride",
        Remedy.NONE,
        lambda version, instructions, use: (
            version.functions >= (18, 0, 0)
            and not buffer_sizes.is_reversed(version, use.call)
            and use.call.pad_h % use.call.stride_h != 0
        ),
        Repair("arm_transpose_conv_s8.c", (2, 0, 1)),
    ),
    Fault(
        ("arm_convolve_wrapper_s4",),
        "its MVE kernel of 4-bit weights for images of one row is wrong or refuses at borders",
        Remedy.GENERAL_KERNEL,
        lambda version, instructions, use: (
            instructions is InstructionSet.MVE
            and version.functions >= (15, 2, 0)
            and not buffer_sizes.is_1x1(version, use.call, wrapper=True)
            and buffer_sizes.is_1_x_n(version, use.call, wrapper=True)
        ),
    ),
    Fault(
        ("arm_depthwise_conv_wrapper_s4",),
        "its general kernel of 4-bit weights is wrong: several filters a channel, several batches, or dilation",
        Remedy.NONE,
        _general_depthwise_of_nibbles,
    ),
    Fault(
        ("arm_depthwise_conv_wrapper_s4",),
        "its MVE kernel of 4-bit weights is wrong since 6.0.0",
        Remedy.NONE,
        lambda version, instructions, use: (
            instructions is InstructionSet.MVE
            and version.support >= (21, 1, 0)
            and not _general_depthwise_of_nibbles(version, instructions, use)
        ),
    ),
    Fault(
        ("arm_avgpool_s8", "arm_max_pool_s8", "arm_avgpool_s16", "arm_max_pool_s16"),
        "before 24.02 it computes the first batch only",
        Remedy.EACH_BATCH,
        lambda version, instructions, use: version.functions < (12, 5, 0) and use.call.input.n > 1,
    ),
)


def _file_revision(tree: Tree, name: str) -> Revision | None:
    """The revision in the head of a C file; None where file or line is missing."""
    path = min(tree.root.rglob(name), default=None)
    return None if path is None else revision_of(path.read_text(encoding="utf-8", errors="replace"))


def faults_of(tree: Tree, instructions: InstructionSet, use: Use) -> tuple[Fault, ...]:
    """What stands against a call in this tree, compiled for an instruction set; empty where it is right."""
    faults = []
    for fault in FAULTS:
        if use.function not in fault.functions or not fault.applies(tree.version, instructions, use):
            continue
        revision = _file_revision(tree, fault.repair.file) if fault.repair is not None else None
        if fault.repair is None or revision is None or revision < fault.repair.revision:
            faults.append(fault)
    return tuple(faults)

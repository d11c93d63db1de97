"""SignalFramer, SignalStacker, SignalDelay, SignalOverlapAdd and SignalWindow: frames of int16 values.

What is kept from run to run is the frontend's second input, which the operator updates.
Source  TFLite Micro's signal library.

SignalFramer: values as overlapping frames, one every `frame_step` values.
        x [..., N], N a multiple of frame_step; y [..., N / frame_step, frame_size], valid []; kept [1 + rows * values]: how many
        frames are still incomplete, then values.
        A frame holds the oldest values that are there: the first frame_size of the last C, which is frame_size rounded up to
        steps. prefill: zeros came before the first value, and a frame is the last frame_size values. Otherwise frames before the
        C-th value are zeros, which TFLite Micro leaves as it is in memory, and valid is false in their run. A frame shorter than
        a step is the step's first values.
SignalStacker: the last frames side by side, every `stacker_step` runs.
        x [num_channels], y [F * num_channels], F = stacker_left_context + 1 + stacker_right_context, valid [];
        kept [1 + (F - 1) * num_channels]: how many frames there are, -1 before the first, then the frames.
        The first frame counts 1 + stacker_left_context times. Where F frames are there, they are the result, and the oldest
        stacker_step fall out. Otherwise valid is false and y zeros, which TFLite Micro leaves as it is in memory.
SignalDelay: every row `delay_length` values later; what comes first are zeros.
        x [..., N], y the same; kept [rows, delay_length], nothing without a delay.
SignalOverlapAdd: overlapping frames, one every `frame_step` values, added up.
        x [..., F, N], y [..., F * frame_step]; kept [rows, N - frame_step], one value where that is none.
        int16, every sum limited to its type; float32. T of the options says so (7, 0).
SignalWindow: every frame times a constant window, y = saturate16((x * w) >> shift); nothing is kept.
        x of a multiple of N elements, w [N], y as x: contiguous frames of N values, whatever rows they are in.
"""

import math
from collections.abc import Sequence

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op, Shape
from emitc.kernels.contract import KernelDef, Parsed, illegal, require_constants, require_dtypes
from emitc.kernels.shared.pointwise import copied
from emitc.kernels.signal.simd import int16_vectors, pairs
from emitc.layer import KernelSpec, Layer, Table, in_step, integers
from emitc.records import dataclass
from emitc.source import SourceNode

_LARGEST = 1 << 15
"""Of values, frames or channels; the frontend makes no state for more."""
_TYPES = {7: DType.INT16, 0: DType.FLOAT32}


@dataclass(frozen=True, slots=True)
class SignalFramer(Op):
    """size: of a frame. step: from frame to frame. prefill: zeros come before the first value."""

    size: int
    step: int
    prefill: bool


@dataclass(frozen=True, slots=True)
class SignalStacker(Op):
    """channels: of a frame. left: how often the first one is repeated. frames: of a result. step: how many fall out then."""

    channels: int
    left: int
    frames: int
    step: int


@dataclass(frozen=True, slots=True)
class SignalDelay(Op):
    """length: values of the delay."""

    length: int


@dataclass(frozen=True, slots=True)
class SignalOverlapAdd(Op):
    """step: from frame to frame. dtype: of the values."""

    step: int
    dtype: DType


@dataclass(frozen=True, slots=True)
class SignalWindow(Op):
    """shift: bits that products lose."""

    shift: int


def _option(node: SourceNode, name: str, low: int = 1) -> int:
    return node.integer(name, low=low, high=_LARGEST)


def _with_state(op: Op) -> Parsed:
    return Parsed(op, (0, 1), states=(1,))


def _require_computed(bound: BoundNode, what: str) -> None:
    """Refuses a constant first input, and one without elements."""
    if bound.input(0).is_constant or 0 in bound.input(0).shape:
        raise illegal(bound, f"has no {what}", "they are computed")


def _framer_from_tflite(node: SourceNode) -> Parsed:
    op = SignalFramer(_option(node, "frame_size"), _option(node, "frame_step"), bool(node.attribute("prefill", False)))
    x = node.input(0)
    if (op.prefill and op.step > op.size) or not x.shape or x.shape[-1] < 1 or x.shape[-1] % op.step:
        raise node.refusal(
            f"has frame_step = {op.step}",
            f"frames of {op.size} from {list(x.shape)}: the input is a multiple of it, and prefilled frames are no shorter",
            tensor=x,
        )
    node.counts((2, 2), (2, 2))
    return _with_state(op)


def _framer_check(bound: BoundNode) -> None:
    require_dtypes(bound, [(DType.INT16,) * 3 + (DType.BOOL, DType.INT16)])
    _require_computed(bound, "values")


def _framer_kept(bound: BoundNode) -> int:
    """Values of a row that frames to come need."""
    op = bound.op(SignalFramer)
    return op.size - op.step if op.prefill else (-(-op.size // op.step) - 1) * op.step


def _framer_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    op, (*outer, count) = bound.op(SignalFramer), bound.input(0).shape
    return (*outer, count // op.step, op.size), (), (1 + math.prod(outer) * _framer_kept(bound),)


def _framer_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """All values of a row one after the other, and frames cut out of them."""
    assert inputs[0] is not None and inputs[1] is not None
    op, width, kept = bound.op(SignalFramer), inputs[0].shape[-1], _framer_kept(bound)
    x = inputs[0].reshape(-1, width)
    missing = int(inputs[1][0])
    line = np.concatenate([inputs[1][1:].reshape(len(x), kept), x], axis=1)
    frames = np.stack([line[:, i : i + op.size] for i in range(0, width, op.step)], axis=1)
    frames[:, :missing] = 0
    state = np.concatenate([[max(missing - width // op.step, 0)], line[:, width:].reshape(-1)]).astype(np.int16)
    return frames.reshape(bound.outputs[0].shape), np.array(missing == 0), state


def _framer_lower(bound: BoundNode) -> Layer:
    op, (*outer, width) = bound.op(SignalFramer), bound.input(0).shape
    params = integers(
        rows=math.prod(outer),
        frames=(width // op.step, "of a run"),
        size=(op.size, "of a frame"),
        step=(op.step, "from frame to frame"),
        kept=(_framer_kept(bound), "values of a row that frames to come need"),
    )
    return Layer("signal/signal_framer", "portable", (0,), params=params)


def _stacker_from_tflite(node: SourceNode) -> Parsed:
    channels, step = _option(node, "num_channels"), _option(node, "stacker_step")
    left, right = (_option(node, f"stacker_{side}_context", 0) for side in ("left", "right"))
    if step > left + 1 + right or node.input(0).shape != (channels,):
        why = f"there are {left + 1 + right} frames of {list(node.input(0).shape)}"
        raise node.refusal(f"has stacker_step = {step} and num_channels = {channels}", why, tensor=node.input(0))
    node.counts((2, 2), (2, 2))
    return _with_state(SignalStacker(channels, left, left + 1 + right, step))


def _stacker_check(bound: BoundNode) -> None:
    require_dtypes(bound, [(DType.INT16,) * 3 + (DType.BOOL, DType.INT16)])
    if bound.input(0).is_constant:
        raise illegal(bound, "has a constant frame", "it is computed")


def _stacker_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    op = bound.op(SignalStacker)
    return (op.frames * op.channels,), (), (1 + (op.frames - 1) * op.channels,)


def _stacker_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    assert inputs[0] is not None and inputs[1] is not None
    op, count = bound.op(SignalStacker), int(inputs[1][0])
    old = inputs[1][1:].reshape(-1, op.channels)[: max(count, 0)]
    frames = np.concatenate([old, np.repeat(inputs[0][None], 1 if count >= 0 else 1 + op.left, axis=0)])
    valid = len(frames) == op.frames
    y = frames if valid else np.zeros((op.frames, op.channels), np.int16)
    left = frames[op.step :] if valid else frames
    state = np.zeros(bound.outputs[2].shape, np.int16)
    state[0] = len(left)
    state[1 : 1 + left.size] = left.reshape(-1)
    return y.reshape(-1).astype(np.int16), np.array(valid), state


def _stacker_lower(bound: BoundNode) -> Layer:
    op = bound.op(SignalStacker)
    params = integers(
        channels=op.channels,
        first=(op.left + 1, "how often the first frame counts"),
        frames=(op.frames, "of a result"),
        step=(op.step, "frames that fall out then"),
    )
    return Layer("signal/signal_stacker", "portable", (0,), params=params)


def _delay_from_tflite(node: SourceNode) -> Parsed:
    length = _option(node, "delay_length", 0)
    node.counts((2, 2) if length else (1, 1))
    return _with_state(SignalDelay(length)) if length else Parsed(SignalDelay(0))


def _delay_check(bound: BoundNode) -> None:
    require_dtypes(bound, [(DType.INT16,) * (4 if bound.op(SignalDelay).length else 2)])
    if bound.input(0).is_constant or not bound.input(0).shape or 0 in bound.input(0).shape:
        raise illegal(bound, "has no rows", "they are computed")


def _delay_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    shape, length = bound.input(0).shape, bound.op(SignalDelay).length
    return (shape, (math.prod(shape[:-1]), length)) if length else (shape,)


def _delay_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """Kept and new values one after the other."""
    assert inputs[0] is not None
    if not bound.op(SignalDelay).length:
        return (inputs[0],)
    assert inputs[1] is not None
    width = inputs[0].shape[-1]
    row = np.concatenate([inputs[1], inputs[0].reshape(-1, width)], axis=1)
    return row[:, :width].reshape(inputs[0].shape), row[:, width:].copy()


def _delay_lower(bound: BoundNode) -> Layer:
    shape, length = bound.input(0).shape, bound.op(SignalDelay).length
    if not length:
        return copied(bound)
    params = integers(rows=math.prod(shape[:-1]), width=shape[-1], delay=(length, "values that are kept of each row"))
    return Layer("signal/signal_delay", "portable", (0,), params=params)


def _overlap_from_tflite(node: SourceNode) -> Parsed:
    dtype = _TYPES.get(node.integer("T"))
    if dtype is None:
        what = f"of type {node.integer('T')} is not supported"
        raise node.unsupported(what, "there is code for int16 and float32", "use one of these")
    step = _option(node, "frame_step")
    x = node.input(0)
    if len(x.shape) < 2 or x.shape[-1] < step:
        raise node.refusal(f"has frame_step = {step}", f"its frames are {list(x.shape)}", tensor=x)
    node.counts((2, 2))
    return _with_state(SignalOverlapAdd(step, dtype))


def _overlap_kept(bound: BoundNode) -> int:
    return max(bound.input(0).shape[-1] - bound.op(SignalOverlapAdd).step, 1)


def _overlap_check(bound: BoundNode) -> None:
    require_dtypes(bound, [(bound.op(SignalOverlapAdd).dtype,) * 4])
    _require_computed(bound, "frames")


def _overlap_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    *outer, frames, _ = bound.input(0).shape
    return (*outer, frames * bound.op(SignalOverlapAdd).step), (math.prod(outer), _overlap_kept(bound))


def _overlap_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """Frame by frame, in a buffer that is as long as a frame."""
    assert inputs[0] is not None and inputs[1] is not None
    step, (frames, size) = bound.op(SignalOverlapAdd).step, inputs[0].shape[-2:]
    x = inputs[0].reshape(-1, frames, size)
    wide = np.float32 if bound.op(SignalOverlapAdd).dtype is DType.FLOAT32 else np.int64
    buffer = np.zeros((len(x), size), wide)
    buffer[:, : size - step] = inputs[1][:, : size - step]
    made = []
    for frame in range(frames):
        buffer = buffer + x[:, frame].astype(wide)
        if wide is np.int64:
            buffer = np.clip(buffer, -(1 << 15), (1 << 15) - 1)
        made.append(buffer[:, :step].astype(inputs[0].dtype))
        buffer = np.concatenate([buffer[:, step:], np.zeros((len(x), step), wide)], axis=1)
    kept = buffer[:, : _overlap_kept(bound)].astype(inputs[0].dtype)
    return np.concatenate(made, axis=1).reshape(bound.outputs[0].shape), kept


def _overlap_lower(bound: BoundNode) -> Layer:
    op, (*outer, frames, size) = bound.op(SignalOverlapAdd), bound.input(0).shape
    params = integers(
        rows=math.prod(outer),
        frames=frames,
        step=(op.step, "from frame to frame"),
        kept=(size - op.step, "values that lie over the next frame"),
        stride=(_overlap_kept(bound), "from row to row of what is kept"),
    )
    template = "signal/signal_overlap_add" + ("_float" if op.dtype is DType.FLOAT32 else "")
    return Layer(template, "portable", (0,), params=params, spec=KernelSpec(x=op.dtype.c_type, y=op.dtype.c_type))


def _window_from_tflite(node: SourceNode) -> Parsed:
    node.counts((2, 2))
    return Parsed(SignalWindow(node.integer("shift", low=0, high=31)), (0, 1))


def _window_check(bound: BoundNode) -> None:
    require_dtypes(bound, [(DType.INT16,) * 3])
    x, window = bound.input(0), bound.input(1)
    what = "with a computed window is not supported"
    require_constants(bound, (window,), what, "it must be constant", "export again")
    if not x.shape or len(window.shape) != 1 or not window.elements or x.elements % window.elements:
        raise illegal(bound, "has a window that does not fit", f"frames {list(x.shape)}", tensor=window)


def _window_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """In int64."""
    assert inputs[0] is not None
    window = bound.input(1).array().astype(np.int64)
    product = (inputs[0].astype(np.int64).reshape(-1, len(window)) * window) >> bound.op(SignalWindow).shift
    return (np.clip(product, -(2**15), 2**15 - 1).astype(np.int16).reshape(bound.output.shape),)


def _window_lower(bound: BoundNode) -> Layer:
    """Value by value, in place where the frame is not needed any more."""
    window = bound.input(1)
    table = Table("window", "int16_t", tuple(window.array().tolist()), "window")
    params = integers(
        frames=bound.output.elements // window.elements, length=window.elements, right=bound.op(SignalWindow).shift
    )
    return Layer("signal/signal_window", "portable", (0,), (table,), params, overlaps=(in_step(bound),))


_SHORTS = (DType.INT16,)
KERNELS = (
    KernelDef(
        SignalFramer, "overlapping frames of values, which are kept as state", _SHORTS, ("CUSTOM:SignalFramer",),
        _framer_from_tflite, _framer_check, _framer_reference, _framer_lower, output_shapes=_framer_shapes,
    ),
    KernelDef(
        SignalStacker, "the last frames side by side, which are kept as state", _SHORTS, ("CUSTOM:SignalStacker",),
        _stacker_from_tflite, _stacker_check, _stacker_reference, _stacker_lower, output_shapes=_stacker_shapes,
    ),
    KernelDef(
        SignalDelay, "rows later by a number of values, which are kept as state", _SHORTS, ("CUSTOM:SignalDelay",),
        _delay_from_tflite, _delay_check, _delay_reference, _delay_lower, output_shapes=_delay_shapes,
    ),
    KernelDef(
        SignalOverlapAdd, "overlapping frames added up, the rest is kept as state", (DType.INT16, DType.FLOAT32),
        ("CUSTOM:SignalOverlapAdd",),
        _overlap_from_tflite, _overlap_check, _overlap_reference, _overlap_lower, output_shapes=_overlap_shapes,
    ),
    KernelDef(
        SignalWindow, "frames times a window", _SHORTS, ("CUSTOM:SignalWindow",),
        _window_from_tflite, _window_check, _window_reference, _window_lower,
        variants=(int16_vectors(_window_lower), pairs(_window_lower)),
    ),
)  # fmt: skip

"""Sliding windows: what convolutions and pools share in attributes, geometry and refusals.

Windows are [height, width]; activations NHWC. Source of SAME and VALID: TFLite's padding rules (surplus at the end); of
auto_pad and ceil_mode: the ONNX operator specification.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from emitc.ir import BoundNode
from emitc.kernels.contract import illegal
from emitc.layer import ByRows, Overlap, Param, window_order
from emitc.records import dataclass, replace
from emitc.source import SourceNode

_Element = TypeVar("_Element", bound=np.generic)
ACTIVATIONS = ("NONE", "RELU", "RELU6", "RELU_N1_TO_1")
_MAX = 1 << 16


@dataclass(frozen=True, slots=True)
class Padding:
    """Rows and columns that the window may reach beyond the input, in elements."""

    top: int = 0
    bottom: int = 0
    left: int = 0
    right: int = 0

    @property
    def any(self) -> bool:
        """Whether some window reaches outside the input."""
        return (self.top, self.bottom, self.left, self.right) != (0, 0, 0, 0)

    def plus(self, other: Padding) -> Padding:
        """Both paddings, one around the other."""
        return Padding(
            self.top + other.top, self.bottom + other.bottom, self.left + other.left, self.right + other.right
        )


@dataclass(frozen=True, slots=True)
class Window:
    """Strides, dilations and padding of a sliding window."""

    stride_h: int
    stride_w: int
    padding: Padding
    dilation_h: int = 1
    dilation_w: int = 1

    def output(self, height: int, width: int, kernel_h: int, kernel_w: int) -> tuple[int, int]:
        """Output height and width; 0 or less where the window does not fit."""
        pad = self.padding
        rows = height + pad.top + pad.bottom - (kernel_h - 1) * self.dilation_h - 1
        columns = width + pad.left + pad.right - (kernel_w - 1) * self.dilation_w - 1
        return rows // self.stride_h + 1, columns // self.stride_w + 1

    def meets(self, kernel_h: int, kernel_w: int) -> bool:
        """Whether every window of that size overlaps the input: the padding is narrower than the window's extent."""
        pad = self.padding
        tall, wide = (kernel_h - 1) * self.dilation_h, (kernel_w - 1) * self.dilation_w
        return max(pad.top, pad.bottom) <= tall and max(pad.left, pad.right) <= wide

    def covers(self, height: int, width: int, kernel_h: int, kernel_w: int) -> bool:
        """Whether every window of that size has a tap inside the input; with dilation one may step over all of it."""
        rows, columns = self.output(height, width, kernel_h, kernel_w)
        across = _inside(kernel_w, columns, width, self.stride_w, self.dilation_w, self.padding.left)
        down = _inside(kernel_h, rows, height, self.stride_h, self.dilation_h, self.padding.top)
        return _all_met(down, rows) and _all_met(across, columns)

    def taps(
        self, image: NDArray[_Element], fill: float, kernel_h: int, kernel_w: int
    ) -> Iterator[tuple[int, int, NDArray[_Element]]]:
        """For the references: each tap (y, x) of the window with the input values it meets, [N, OH, OW, C].

        image: [N, H, W, C] of any type; fill: value outside it. Taps that lie outside in every window are left out: their number
        and distance come from the file, and only what meets the input may cost time and memory.
        """
        batches, height, width, channels = image.shape
        rows, columns = self.output(height, width, kernel_h, kernel_w)
        across = list(_inside(kernel_w, columns, width, self.stride_w, self.dilation_w, self.padding.left))
        for ky, out_y, in_y in _inside(kernel_h, rows, height, self.stride_h, self.dilation_h, self.padding.top):
            for kx, out_x, in_x in across:
                values = np.full((batches, rows, columns, channels), fill, image.dtype)
                values[:, out_y, out_x] = image[:, in_y, in_x]
                yield ky, kx, values


def _inside(
    kernel: int, outputs: int, size: int, stride: int, dilation: int, before: int
) -> Iterator[tuple[int, slice, slice]]:
    """Along one dimension: each tap that meets the input, with the outputs for which it does and the inputs it meets."""
    for tap in range(kernel):
        origin = tap * dilation - before
        first = max(0, -(origin // stride))
        end = min(outputs, (size - 1 - origin) // stride + 1)
        if first < end:
            yield tap, slice(first, end), slice(origin + first * stride, origin + (end - 1) * stride + 1, stride)


def _all_met(taps: Iterator[tuple[int, slice, slice]], outputs: int) -> bool:
    """Whether the taps along one dimension together meet the input in every output."""
    change = np.zeros(outputs + 1, np.int64)
    for _, met, _ in taps:
        change[met.start] += 1
        change[met.stop] -= 1
    return bool((np.cumsum(change)[:-1] > 0).all())


def _same(size: int, kernel: int, stride: int, dilation: int) -> tuple[int, int]:
    """Padding before and after for SAME: output is size/stride rounded up, the surplus goes to the end."""
    total = max(0, (-(-size // stride) - 1) * stride + (kernel - 1) * dilation + 1 - size)
    return total // 2, total - total // 2


def _require_reach(node: SourceNode, kernel_h: int, kernel_w: int, dilation_h: int, dilation_w: int) -> None:
    """Refuses a window that spans more than _MAX rows or columns."""
    reach = max((kernel_h - 1) * dilation_h, (kernel_w - 1) * dilation_w) + 1
    if reach > _MAX:
        what = f"has a window that reaches over {reach} rows or columns"
        why = f"{kernel_h}x{kernel_w} dilated by {dilation_h}x{dilation_w}; the limit is {_MAX}"
        raise node.refusal(what, why, "the file is damaged: export the model again")


def window_of(node: SourceNode, height: int, width: int, kernel_h: int, kernel_w: int, *, dilated: bool) -> Window:
    """The window that a TFLite operator describes, its padding made explicit for this input size."""
    stride_h = node.integer("stride_h", low=1, high=_MAX)
    stride_w = node.integer("stride_w", low=1, high=_MAX)
    dilation_h = node.integer("dilation_hfactor", 1, low=1, high=_MAX) if dilated else 1
    dilation_w = node.integer("dilation_wfactor", 1, low=1, high=_MAX) if dilated else 1
    _require_reach(node, kernel_h, kernel_w, dilation_h, dilation_w)
    padding = Padding()
    if node.text("padding", ("SAME", "VALID")) == "SAME":
        top, bottom = _same(height, kernel_h, stride_h, dilation_h)
        left, right = _same(width, kernel_w, stride_w, dilation_w)
        padding = Padding(top, bottom, left, right)
    return Window(stride_h, stride_w, padding, dilation_h, dilation_w)


def integers_attribute(node: SourceNode, name: str, count: int, default: int, low: int) -> tuple[int, ...]:
    """A list attribute of ONNX: `count` integers from `low` to _MAX, all `default` where the node leaves it out."""
    values = node.attributes.get(name, (default,) * count)
    if not isinstance(values, tuple) or len(values) != count or not all(low <= v <= _MAX for v in values):
        listed = list(values[:8]) if isinstance(values, tuple) else values
        why = f"{count} integers in [{low}, {_MAX}] are expected"
        raise node.refusal(f"has {name} = {listed}", why, "the file is damaged: export the model again")
    return tuple(int(v) for v in values)


def automatic_padding(node: SourceNode) -> str:
    """The attribute auto_pad of ONNX: NOTSET, VALID, SAME_UPPER or SAME_LOWER."""
    value = node.attributes.get("auto_pad", "NOTSET")
    if value not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise node.refusal(f"has auto_pad {str(value)[:32]!r}", "NOTSET, VALID, SAME_UPPER or SAME_LOWER is expected")
    return str(value)


def onnx_window(node: SourceNode, height: int, width: int, kernel_h: int, kernel_w: int) -> Window:
    """The window that an ONNX operator on NHWC describes, its padding made explicit for this input size.

    Reads strides, dilations, pads [top, left, bottom, right] and auto_pad; SAME_UPPER has its surplus at the end, SAME_LOWER
    at the start. Raises EmitcError for values outside their ranges and CannotCompile for padding as wide as the window.
    """
    stride_h, stride_w = integers_attribute(node, "strides", 2, 1, 1)
    dilation_h, dilation_w = integers_attribute(node, "dilations", 2, 1, 1)
    _require_reach(node, kernel_h, kernel_w, dilation_h, dilation_w)
    top, left, bottom, right = integers_attribute(node, "pads", 4, 0, 0)
    mode = automatic_padding(node)
    if mode != "NOTSET":
        top = left = bottom = right = 0
    if mode.startswith("SAME"):
        top, bottom = _same(height, kernel_h, stride_h, dilation_h)
        left, right = _same(width, kernel_w, stride_w, dilation_w)
    if mode == "SAME_LOWER":
        top, bottom, left, right = bottom, top, right, left
    window = Window(stride_h, stride_w, Padding(top, bottom, left, right), dilation_h, dilation_w)
    if not window.meets(kernel_h, kernel_w):
        what = f"has padding [{top}, {left}, {bottom}, {right}] round a {kernel_h}x{kernel_w} window"
        why = "padding as wide as the window leaves some windows empty"
        raise node.unsupported(what, why, "pad in a separate operator")
    return window


def rounded_up(window: Window, height: int, width: int, kernel_h: int, kernel_w: int) -> Window:
    """The window with padding added at the bottom and the right, so that the outputs are those of ceil_mode.

    A window more where the last one leaves rows or columns over, unless it would start beyond the input.
    """
    pad = window.padding

    def more(size: int, before: int, after: int, kernel: int, stride: int, dilation: int) -> int:
        over = size + before + after - (kernel - 1) * dilation - 1
        count = -(-over // stride) + 1
        if (count - 1) * stride >= size + before:
            count -= 1
        return max(0, (count - 1) * stride - over)

    bottom = more(height, pad.top, pad.bottom, kernel_h, window.stride_h, window.dilation_h)
    right = more(width, pad.left, pad.right, kernel_w, window.stride_w, window.dilation_w)
    return replace(window, padding=pad.plus(Padding(bottom=bottom, right=right)))


def image_size(node: SourceNode) -> tuple[int, int]:
    """Height and width of input 0, which must be NHWC."""
    shape = node.input(0).shape
    if len(shape) != 4 or any(d < 1 for d in shape):
        what = f"has an input of shape {list(shape)}"
        raise node.refusal(what, "four dimensions NHWC are expected", "export again", node.input(0))
    return shape[1], shape[2]


def require_output(bound: BoundNode, window: Window, kernel_h: int, kernel_w: int) -> None:
    """Refuses a window that does not fit its input even once."""
    _, height, width, _ = bound.input(0).shape
    if min(window.output(height, width, kernel_h, kernel_w)) < 1:
        what = f"has a {kernel_h}x{kernel_w} window that does not fit its input"
        why = f"the input is {height}x{width} with padding {window.padding}"
        raise illegal(bound, what, why, tensor=bound.input(0))


BY_ROWS = ByRows(window=True)
"""Of kernels with a window whose other parameters are the same for every row."""
WINDOW_PARAMS = (
    "batches", "in_h", "in_w", "in_c", "out_h", "out_w", "out_c", "kernel_h", "kernel_w", "stride_h", "stride_w",
    "dilation_h", "dilation_w", "pad_top", "pad_left",
)  # fmt: skip
"""Members that every windowed kernel's parameter struct starts with."""


def window_params(bound: BoundNode, window: Window, kernel_h: int, kernel_w: int) -> tuple[Param, ...]:
    """The window as members of a parameter struct, in the order of WINDOW_PARAMS."""
    batches, in_h, in_w, in_c = bound.input(0).shape
    _, out_h, out_w, out_c = bound.output.shape
    values = (
        batches, in_h, in_w, in_c, out_h, out_w, out_c, kernel_h, kernel_w, window.stride_h, window.stride_w,
        window.dilation_h, window.dilation_w, window.padding.top, window.padding.left,
    )  # fmt: skip
    return tuple(Param(name, "int32_t", value) for name, value in zip(WINDOW_PARAMS, values, strict=True))


def window_overlap(bound: BoundNode, params: Sequence[Param], ahead: int | None) -> tuple[Overlap, ...]:
    """Of input and output of a kernel that walks over the output's pixels.

    params: start with the window's. ahead: bytes, as `WindowOrder` says. None between types of which neither is a byte: C lets
    no other type alias another one.
    """
    x, y = bound.input(0).dtype, bound.output.dtype
    if x is not y and 1 not in (x.bytes, y.bytes):
        return ()
    values = {param.name: int(param.value) for param in params if param.name in WINDOW_PARAMS}
    return (Overlap(0, 0, window_order(values, x.bytes, y.bytes, ahead)),)


def whole_window(channels: int, together: int, out_bytes: int) -> int | None:
    """Bytes ahead, where the whole window is read for every `together` output channels and what is left one by one.

    >>> whole_window(16, 4, 1), whole_window(10, 4, 1), whole_window(4, 4, 1)
    (12, 9, None)
    """
    return (channels - (1 if channels % together else together)) * out_bytes or None

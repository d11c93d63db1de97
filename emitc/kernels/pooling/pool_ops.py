"""The pools as operators: attributes in TFLite and ONNX, shapes, layers, and how ONNX Runtime sums a window.

L2_POOL_2D: the root of the mean of the squares in each window, over the part of it that lies inside the input.

Shapes  x [N, H, W, C], y [N, OH, OW, C].   Types  float32.   The fused activation limits the result.
Source  TFLite Micro's kernel: the squares are added row by row.
"""

from collections.abc import Sequence
from enum import Enum
from functools import partial

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op, Shape
from emitc.kernels.contract import KernelDef, Parsed, require_dtypes, require_rank
from emitc.kernels.shared import windows
from emitc.kernels.shared.pointwise import bound_params, bounded, operand, plain_numerics
from emitc.layer import PLAIN, ByRows, KernelSpec, Layer, Param, by_channel
from emitc.records import dataclass
from emitc.source import SourceNode

_VECTOR_OPSET = 19
"""Before it ONNX Runtime sums windows of these strides and sizes column by column."""
_VECTOR_STRIDE, _VECTOR_KERNEL, _VECTOR_WIDTH = 2, 32, 2045
_NO_PADDING = windows.Padding()


class SumOrder(Enum):
    """The order in which ONNX Runtime adds up a window's float32 values, as the C has it."""

    ROWS = 0
    """Row by row."""
    COLUMNS = 1
    """Each column on its own, then these."""
    FOURS = 2
    """Four sums, each of every fourth value; the sums of these four, crosswise; then the values left over."""


@dataclass(frozen=True, slots=True)
class Pool2D(Op):
    """window: strides and padding. kernel: [height, width]. activation: fused."""

    window: windows.Window
    kernel_h: int
    kernel_w: int
    activation: str


@dataclass(frozen=True, slots=True)
class AveragePool2D(Pool2D):
    """count_padding: values outside the input count, as the zero point.

    uncounted: the part of the padding that does not count even then: what ceil_mode adds. whole_image: the window is the
    image. order: of ONNX Runtime's sum. unsigned: the model has the tensors as uint8, 128 higher.
    """

    count_padding: bool = False
    uncounted: windows.Padding = _NO_PADDING
    whole_image: bool = False
    order: SumOrder = SumOrder.ROWS
    unsigned: bool = False


@dataclass(frozen=True, slots=True)
class MaxPool2D(Pool2D):
    """Largest value of the window."""


def pool_from_tflite(op: type[Pool2D], node: SourceNode) -> Parsed:
    """A pool that has no more than a window and an activation."""
    node.counts((1, 1))
    height, width = windows.image_size(node)
    kernel_h = node.integer("filter_height", low=1, high=1 << 16)
    kernel_w = node.integer("filter_width", low=1, high=1 << 16)
    window = windows.window_of(node, height, width, kernel_h, kernel_w, dilated=False)
    activation = node.fused_activation(windows.ACTIVATIONS)
    return Parsed(op(window, kernel_h, kernel_w, activation, numerics=plain_numerics(node)))


def _onnx_parse(node: SourceNode) -> tuple[windows.Window, int, int, windows.Padding]:
    """Window, its size, and what ceil_mode adds to the padding; a global pool has the image as its window."""
    node.counts((1, 1))
    height, width = windows.image_size(node)
    if node.integer("channels_last", 0, 0, 1):
        what = "with channels_last is not supported"
        raise node.unsupported(what, "images are NCHW in ONNX", "export the model in NCHW")
    if node.kind.startswith("Global"):
        return windows.Window(1, 1, windows.Padding()), height, width, windows.Padding()
    node.attribute("kernel_shape")
    kernel_h, kernel_w = windows.integers_attribute(node, "kernel_shape", 2, 1, 1)
    window = windows.onnx_window(node, height, width, kernel_h, kernel_w)
    if node.integer("ceil_mode", 0, 0, 1) and node.attributes.get("auto_pad", "NOTSET") in ("NOTSET", "VALID"):
        wider = windows.rounded_up(window, height, width, kernel_h, kernel_w)
        pad, old = wider.padding, window.padding
        return wider, kernel_h, kernel_w, windows.Padding(bottom=pad.bottom - old.bottom, right=pad.right - old.right)
    return window, kernel_h, kernel_w, windows.Padding()


def _sum_order(node: SourceNode, window: windows.Window, kernel_h: int, kernel_w: int, *, whole: bool) -> SumOrder:
    """ONNX Runtime's order: it has a kernel for whole images, one for narrow windows of few strides, and one for the rest."""
    if node.kind.startswith("Global"):
        return SumOrder.FOURS
    plain = not (node.integer("ceil_mode", 0) and node.integer("count_include_pad", 0))
    if node.op_type.startswith("QLinear") or node.integer("opset", _VECTOR_OPSET) >= _VECTOR_OPSET or not plain:
        return SumOrder.ROWS
    if whole and (window.stride_h, window.stride_w) == (1, 1):
        return SumOrder.FOURS
    width = windows.image_size(node)[1] + window.padding.left + window.padding.right
    narrow = window.stride_w <= _VECTOR_STRIDE and max(kernel_h, kernel_w) <= _VECTOR_KERNEL
    return SumOrder.COLUMNS if narrow and width <= _VECTOR_WIDTH else SumOrder.ROWS


def average_from_onnx(node: SourceNode) -> Parsed:
    window, kernel_h, kernel_w, added = _onnx_parse(node)
    quantized = node.input(0).dtype != "float32"
    whole = (kernel_h, kernel_w) == windows.image_size(node) and not window.padding.any
    op = AveragePool2D(
        window,
        kernel_h,
        kernel_w,
        "NONE",
        count_padding=bool(node.integer("count_include_pad", 0, 0, 1)),
        # ONNX Runtime's QLinearAveragePool divides by the whole window wherever padding counts.
        uncounted=windows.Padding() if quantized else added,
        whole_image=whole,
        order=_sum_order(node, window, kernel_h, kernel_w, whole=whole),
        unsigned=bool(node.integer("unsigned", 0, 0, 1)),
    )
    return Parsed(op)


def max_from_onnx(node: SourceNode) -> Parsed:
    if len(node.outputs) > 1:
        what = "with the output Indices is not supported"
        raise node.unsupported(what, "there is code for the values only", "export the model without MaxUnpool")
    window, kernel_h, kernel_w, _ = _onnx_parse(node)
    return Parsed(MaxPool2D(window, kernel_h, kernel_w, "NONE"))


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """[N, OH, OW, C]."""
    op, (batches, height, width, channels) = bound.op(Pool2D), bound.input(0).shape
    return ((batches, *op.window.output(height, width, op.kernel_h, op.kernel_w), channels),)


def work(bound: BoundNode) -> int:
    """Values that the windows meet, with those outside the input."""
    return bound.output.elements * bound.op(Pool2D).kernel_h * bound.op(Pool2D).kernel_w


def pool_params(bound: BoundNode) -> tuple[Param, ...]:
    """The window as the first members of a kernel's parameter struct."""
    op = bound.op(Pool2D)
    return windows.window_params(bound, op.window, op.kernel_h, op.kernel_w)


def pool_layer(
    bound: BoundNode,
    template: str,
    params: tuple[Param, ...],
    spec: KernelSpec = PLAIN,
    by_rows: ByRows | None = windows.BY_ROWS,
) -> Layer:
    """The portable layer of a pool, pixel by pixel with the channels innermost. params: those of `pool_params` come first."""
    x, y = bound.input(0), bound.output
    overlaps = windows.window_overlap(
        bound, params, by_channel(x.shape[3], x.shape[3], 1, x.dtype.bytes, y.dtype.bytes)
    )
    return Layer(template, "portable", (0,), params=params, overlaps=overlaps, spec=spec, by_rows=by_rows)


class L2Pool2D(Pool2D):
    """Root of the mean square."""


def _check_l2(bound: BoundNode) -> None:
    """Refuses other types than float32, and windows that do not fit."""
    op = bound.op(L2Pool2D)
    require_rank(bound, bound.input(0), 4)
    require_dtypes(bound, [(DType.FLOAT32, DType.FLOAT32)], [(t, t) for t in (DType.INT8, DType.UINT8)])
    windows.require_output(bound, op.window, op.kernel_h, op.kernel_w)


def _l2_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """Tap by tap, in float32."""
    op, y = bound.op(L2Pool2D), bound.output
    image = operand(bound, inputs, 0).astype(np.float32)
    ones = np.ones((1, *image.shape[1:3], 1), np.float32)
    total, count = np.zeros(y.shape, np.float32), np.zeros((1, *y.shape[1:3], 1), np.float32)
    with np.errstate(all="ignore"):
        for _, _, met in op.window.taps(image, 0.0, op.kernel_h, op.kernel_w):
            total += met * met
        for _, _, inside in op.window.taps(ones, 0.0, op.kernel_h, op.kernel_w):
            count += inside
        return (bounded(np.sqrt(total / count), op.activation, y.dtype),)


def _lower_l2(bound: BoundNode) -> Layer:
    """Channels innermost."""
    params = (*pool_params(bound), *bound_params(bound.op(L2Pool2D).activation, bound.output.dtype))
    return pool_layer(bound, "pooling/l2_pool_2d", params, KernelSpec(x="float", y="float"))


KERNELS = (
    KernelDef(
        L2Pool2D, "root of the mean square of a window, fused activation", (DType.FLOAT32,), ("L2_POOL_2D",),
        partial(pool_from_tflite, L2Pool2D), _check_l2, _l2_reference, _lower_l2, output_shapes=output_shapes, work=work,
    ),
)  # fmt: skip

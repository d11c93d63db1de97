"""DepthToSpace, SpaceToDepth, DEPTH_TO_SPACE and SPACE_TO_DEPTH: blocks of pixels as channels, and back. Images are NHWC.

DepthToSpace  x [N, H, W, C * b * b], y [N, H * b, W * b, C]. Mode DCR: channel (i * b + j) * C + c of a pixel is channel c of
              pixel (i, j) of its block; mode CRD: channel (c * b + i) * b + j is.
SpaceToDepth  x [N, H * b, W * b, C], y [N, H, W, C * b * b], the reverse of either mode. TFLite has the mode DCR.
Types         any; scale and zero point must not change.

SPACE_TO_BATCH_ND and BATCH_TO_SPACE_ND: every b-th pixel as an image of its own, and back.

Shapes  image [N, H, W, C] or [N, H, C]; batch [bh * bw * N, H', W', C] or [b * N, H', C]. Image (i * bw + j) * N + n of the batch
has the pixels (y * bh + i - top, x * bw + j - left) of image n.
SPACE_TO_BATCH_ND   pads the image with zeros, of bytes with the zero point, so that the blocks divide it.
BATCH_TO_SPACE_ND   leaves out what lies in the crops.
Types   any; scale and zero point must not change.
Source  TFLite Micro's kernels, which have these two ranks. It pads with a number that it never sets: in its place LiteRT's
        reference kernel, which pads with the zero point.
Errors  padding of a tensor of more than a byte whose zero point is not 0.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np

from emitc.ir import Array, BoundNode, Op, Shape
from emitc.kernels.contract import KernelDef, Parsed, illegal, require_rank, unsupported
from emitc.kernels.shared.byte_moves import data_operands, move_layer, require_same_type, strides, walk
from emitc.kernels.shared.pointwise import operand
from emitc.layer import Layer, Param
from emitc.records import dataclass
from emitc.source import SourceNode

_TO_SPACE = {"DCR": (0, 1, 3, 2, 4, 5), "CRD": (0, 1, 4, 2, 5, 3)}
"""Order of the input's dimensions in y [N, H, b, W, b, C]; the input is [N, H, W, b, b, C] or [N, H, W, C, b, b]."""
_TO_DEPTH = {"DCR": (0, 1, 3, 2, 4, 5), "CRD": (0, 1, 3, 5, 2, 4)}
"""The same for y [N, H, W, b, b, C] or [N, H, W, C, b, b] and the input [N, H, b, W, b, C]."""


@dataclass(frozen=True, slots=True)
class BlocksOfPixels(Op):
    """block: pixels along the edge of a block. mode: DCR or CRD."""

    block: int
    mode: str


class DepthToSpace(BlocksOfPixels):
    """Channels as blocks of pixels."""


class SpaceToDepth(BlocksOfPixels):
    """Blocks of pixels as channels."""


def _from_tflite(node: SourceNode) -> Parsed:
    node.counts((1, 1))
    op = DepthToSpace if node.op_type == "DEPTH_TO_SPACE" else SpaceToDepth
    return Parsed(op(node.integer("block_size", low=1, high=1 << 15), "DCR"))


def _from_onnx(node: SourceNode) -> Parsed:
    """SpaceToDepth has a mode from version 28 on."""
    node.counts((1, 1))
    mode = node.text("mode", ("DCR", "CRD"), "DCR")
    op = DepthToSpace if node.kind == "DepthToSpace" else SpaceToDepth
    return Parsed(op(node.integer("blocksize", low=1), mode))


def _view(bound: BoundNode) -> tuple[Shape, tuple[int, ...]]:
    """The input's shape with blocks as dimensions, and their order in the output."""
    op, (n, h, w, c) = bound.op(BlocksOfPixels), bound.input(0).shape
    b = op.block
    if isinstance(op, SpaceToDepth):
        return (n, h // b, b, w // b, b, c), _TO_DEPTH[op.mode]
    inner = c // (b * b)
    return ((n, h, w, b, b, inner) if op.mode == "DCR" else (n, h, w, inner, b, b)), _TO_SPACE[op.mode]


def _check(bound: BoundNode) -> None:
    x = bound.input(0)
    require_same_type(bound)
    require_rank(bound, x, 4)
    op, (_, h, w, c) = bound.op(BlocksOfPixels), x.shape
    b = op.block
    if c % (b * b) if isinstance(op, DepthToSpace) else h % b or w % b:
        why = f"{h}x{w} pixels of {c} channels cannot be divided into them"
        raise illegal(bound, f"with blocks of {b}x{b}", why, tensor=x)


def _output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """[N, H * b, W * b, C / b / b], or [N, H / b, W / b, C * b * b]."""
    view, order = _view(bound)
    shape = [view[i] for i in order]
    if isinstance(bound.node.op, DepthToSpace):
        return ((shape[0], shape[1] * shape[2], shape[3] * shape[4], shape[5]),)
    return ((shape[0], shape[1], shape[2], shape[3] * shape[4] * shape[5]),)


def _reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    view, order = _view(bound)
    return (operand(bound, inputs, 0).reshape(view).transpose(order).reshape(_output_shapes(bound)[0]),)


def _lower(bound: BoundNode) -> Layer:
    view, order = _view(bound)
    width = bound.input(0).dtype.bytes
    steps, counts = strides(view, width), tuple(view[i] for i in order)
    return move_layer(bound, walk(counts, [steps[i] for i in order], strides(counts, width), width))


_kernel = partial(KernelDef, check=_check, reference=_reference, lower=_lower, output_shapes=_output_shapes, moves=True)


_MAX = 1 << 16


@dataclass(frozen=True, slots=True)
class Blocks(Op):
    """block: rows and columns of a block. before, after: rows and columns of padding, or that are left out, at both ends."""

    block: tuple[int, int]
    before: tuple[int, int]
    after: tuple[int, int]


class SpaceToBatch(Blocks):
    """An image as a batch."""


class BatchToSpace(Blocks):
    """A batch as an image."""


def _batch_from_tflite(node: SourceNode) -> Parsed:
    node.counts((3, 3))
    dimensions = len(node.input(0).shape) - 2
    block, ends = node.constant_integers(1, "block shape"), node.constant_integers(2, "paddings or crops")
    if dimensions not in (1, 2) or len(block) != dimensions or len(ends) != 2 * dimensions:
        why = f"one and two are expected for each of {dimensions} dimensions, of which there may be one or two"
        raise node.refusal(f"has {len(block)} block sizes and {len(ends)} paddings or crops", why, tensor=node.input(0))
    if not all(1 <= b <= _MAX for b in block) or not all(0 <= e <= _MAX for e in ends):
        why = f"blocks of 1 to {_MAX}, and not negative numbers up to {_MAX}"
        raise node.refusal(f"has blocks {list(block)} and paddings or crops {list(ends)}", why)
    op = SpaceToBatch if node.op_type == "SPACE_TO_BATCH_ND" else BatchToSpace
    if dimensions == 1:
        return Parsed(op((block[0], 1), (ends[0], 0), (ends[1], 0)))
    return Parsed(op((block[0], block[1]), (ends[0], ends[2]), (ends[1], ends[3])))


def _image(shape: Shape) -> tuple[int, int, int, int]:
    """[N, H, W, C] of a tensor of rank 3 or 4."""
    return (shape[0], shape[1], 1 if len(shape) == 3 else shape[2], shape[-1])


def _check_batch(bound: BoundNode) -> None:
    op, x = bound.op(Blocks), bound.input(0)
    require_same_type(bound)
    require_rank(bound, x, 3, 4)
    n, h, w, _ = _image(x.shape)
    (block_h, block_w), (top, left), (bottom, right) = op.block, op.before, op.after
    if pads_with(bound) and x.dtype.bytes > 1:
        what = f"that pads a tensor of {x.dtype.value} with the zero point {pads_with(bound)} is not supported"
        why = "LiteRT writes one byte everywhere: there is code for elements of one byte"
        raise unsupported(bound, what, why, "pad by a PAD operator before", x)
    if isinstance(op, SpaceToBatch):
        fits = not (h + top + bottom) % block_h and not (w + left + right) % block_w
    else:
        fits = not n % (block_h * block_w) and top + bottom <= h * block_h and left + right <= w * block_w
    if not fits:
        why = f"{n} images of {h}x{w} cannot be divided into them, with {op.before} before and {op.after} after"
        raise illegal(bound, f"with blocks of {block_h}x{block_w}", why, tensor=x)


def pads_with(bound: BoundNode) -> int:
    """The zero point that SPACE_TO_BATCH_ND pads with; 0 where it pads with zeros or not at all."""
    op = bound.node.op
    if not isinstance(op, SpaceToBatch) or not any((*op.before, *op.after)):
        return 0
    quantization = bound.input(0).quantization
    return quantization.zero_point if quantization else 0


def _batch_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    op, shape = bound.op(Blocks), bound.input(0).shape
    n, h, w, c = _image(shape)
    (block_h, block_w), (top, left), (bottom, right) = op.block, op.before, op.after
    if isinstance(op, SpaceToBatch):
        n, h, w = n * block_h * block_w, (h + top + bottom) // block_h, (w + left + right) // block_w
    else:
        n, h, w = n // (block_h * block_w), h * block_h - top - bottom, w * block_w - left - right
    return ((n, h, w, c) if len(shape) == 4 else (n, h, c),)


def _batch_reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    op = bound.op(Blocks)
    values = operand(bound, inputs, 0)
    n, h, w, c = _image(values.shape)
    (block_h, block_w), (top, left), (bottom, right) = op.block, op.before, op.after
    shape = _batch_shapes(bound)[0]
    if isinstance(op, SpaceToBatch):
        ends = (0, 0), (top, bottom), (left, right), (0, 0)
        padded = np.pad(values.reshape(n, h, w, c), ends, constant_values=pads_with(bound))
        rows, columns = padded.shape[1] // block_h, padded.shape[2] // block_w
        parts = padded.reshape(n, rows, block_h, columns, block_w, c).transpose(2, 4, 0, 1, 3, 5)
        return (np.asarray(parts, values.dtype).reshape(shape),)
    count = n // (block_h * block_w)
    parts = values.reshape(block_h, block_w, count, h, w, c).transpose(2, 3, 0, 4, 1, 5)
    whole = parts.reshape(count, h * block_h, w * block_w, c)
    return (whole[:, top : h * block_h - bottom, left : w * block_w - right].reshape(shape),)


def _lower_batch(bound: BoundNode) -> Layer:
    op, x, y = bound.op(Blocks), bound.input(0), bound.output
    to_batch = isinstance(op, SpaceToBatch)
    image, batch = (_image(x.shape), _image(y.shape)) if to_batch else (_image(y.shape), _image(x.shape))
    operands, tables = data_operands(x)
    params: tuple[Param, ...] = (
        Param("images", "int32_t", image[0]),
        Param("height", "int32_t", image[1], "of an image"),
        Param("width", "int32_t", image[2]),
        Param("rows", "int32_t", batch[1], "of an image of the batch"),
        Param("columns", "int32_t", batch[2]),
        Param("block_h", "int32_t", op.block[0]),
        Param("block_w", "int32_t", op.block[1]),
        Param("top", "int32_t", op.before[0], "rows of the first block that lie above the image"),
        Param("left", "int32_t", op.before[1]),
        Param("pixel_bytes", "int32_t", image[3] * x.dtype.bytes),
    )
    if to_batch:
        params += (Param("fill", "int32_t", pads_with(bound) & 0xFF, "byte outside the image"),)
    template = "movement/space_to_batch" if to_batch else "movement/batch_to_space"
    return Layer(template, "portable", operands, tables, params)


_batch = partial(
    KernelDef, check=_check_batch, reference=_batch_reference, lower=_lower_batch, output_shapes=_batch_shapes
)


KERNELS = (
    _kernel(
        DepthToSpace,
        "channels of an image as blocks of pixels",
        tflite={"DEPTH_TO_SPACE": _from_tflite},
        onnx={"DepthToSpace": _from_onnx},
    ),
    _kernel(
        SpaceToDepth,
        "blocks of pixels of an image as channels",
        tflite={"SPACE_TO_DEPTH": _from_tflite},
        onnx={"SpaceToDepth": _from_onnx},
    ),
    _batch(SpaceToBatch, "every n-th pixel as an image of its own", tflite={"SPACE_TO_BATCH_ND": _batch_from_tflite}),
    _batch(
        BatchToSpace,
        "images as every n-th pixel of a larger one",
        tflite={"BATCH_TO_SPACE_ND": _batch_from_tflite},
        moves=True,
    ),
)

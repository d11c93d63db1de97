"""DepthToSpace, SpaceToDepth, DEPTH_TO_SPACE and SPACE_TO_DEPTH: blocks of pixels as channels, and back. Images are NHWC.

DepthToSpace  x [N, H, W, C * b * b], y [N, H * b, W * b, C]. Mode DCR: channel (i * b + j) * C + c of a pixel is channel c of
              pixel (i, j) of its block; mode CRD: channel (c * b + i) * b + j is.
SpaceToDepth  x [N, H * b, W * b, C], y [N, H, W, C * b * b], the reverse of either mode. TFLite has the mode DCR.
Types         any; scale and zero point must not change.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from emitc.ir import Array, BoundNode, Op, Shape
from emitc.kernels.contract import KernelDef, Parsed, illegal, require_rank
from emitc.kernels.shared.pointwise import operand
from emitc.kernels.shared.strided_copy import move_layer, require_same_type, strides, walk
from emitc.layer import Layer
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
    mode = node.text("mode", ("DCR", "CRD")) if "mode" in node.attributes else "DCR"
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
)

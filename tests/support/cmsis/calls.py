"""Layers as the buffer sizes see them: random ones from a fixed seed, and those of the corpus's models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from emitc.backends.cmsis_nn.buffer_sizes import BUFFER_SIZES, Call, Dims
from emitc.errors import EmitcError
from emitc.frontends.tflite.reader import read_tflite
from emitc.source import SourceModel, SourceNode

Sized = tuple[str, Call]
"""A size function's name and what it is asked for."""

CONVOLUTIONS = tuple(n for n in BUFFER_SIZES if "_convolve_" in n)
DEPTHWISE = tuple(n for n in BUFFER_SIZES if "depthwise" in n)
FULLY_CONNECTED = tuple(n for n in BUFFER_SIZES if "fully_connected" in n)
POOLS = tuple(n for n in BUFFER_SIZES if "avgpool" in n)
SVDF = tuple(n for n in BUFFER_SIZES if "svdf" in n)
TRANSPOSED = tuple(n for n in BUFFER_SIZES if "transpose" in n)


def _extent(size: int, kernel: int, stride: int, dilation: int, padding: str) -> tuple[int, int]:
    """Output extent and the padding before it."""
    if padding == "VALID":
        return (size - (kernel - 1) * dilation - 1) // stride + 1, 0
    out = -(-size // stride)
    return out, max(0, (out - 1) * stride + (kernel - 1) * dilation + 1 - size) // 2


def _window(
    image: tuple[int, ...],
    kernel: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
    padding: str,
    filter_: Dims,
    channels: int,
) -> Call:
    """A call for a sliding window over an image [n, h, w, c]."""
    (h, top), (w, left) = (_extent(image[1 + i], kernel[i], stride[i], dilation[i], padding) for i in range(2))
    return Call(Dims(*image), filter_, Dims(image[0], h, w, channels), *stride, top, left, *dilation)


def random_calls(count: int, seed: int = 0) -> list[Sized]:
    """Layers of every size function, edges more often than their share: one row, one channel, 1x1 and 3x3 windows."""
    rng = np.random.default_rng(seed)
    calls: list[Sized] = []

    def integer(low: int, high: int) -> int:
        return int(rng.integers(low, high, endpoint=True))

    while len(calls) < count:
        name = list(BUFFER_SIZES)[integer(0, len(BUFFER_SIZES) - 1)]
        kernel = [(1, 1), (3, 3), (1, integer(1, 9)), (integer(1, 6), integer(1, 6))][integer(0, 3)]
        stride = (1, 1) if rng.random() < 0.4 else (integer(1, 4), integer(1, 4))
        dilation = (1, 1) if rng.random() < 0.7 else (integer(1, 3), integer(1, 3))
        padding = ("SAME", "VALID")[integer(0, 1)]
        least = [(kernel[i] - 1) * dilation[i] + 1 for i in range(2)]
        height = 1 if kernel[0] == 1 and rng.random() < 0.5 else integer(least[0], least[0] + 12)
        image = (1 if rng.random() < 0.7 else 2, height, integer(least[1], least[1] + 20), integer(1, 40))
        if rng.random() < 0.2:
            image = (*image[:3], 1)
        channels = integer(1, 300) if rng.random() < 0.1 else integer(1, 40)
        if name in DEPTHWISE:
            multiplier = 1 if rng.random() < 0.6 else integer(2, 8)
            filter_ = Dims(1, *kernel, image[3] * multiplier)
            call = _window(image, kernel, stride, dilation, padding, filter_, image[3] * multiplier)
        elif name in FULLY_CONNECTED:
            call = Call(Dims(integer(1, 3), 1, 1, channels), Dims(channels, 1, 1, integer(1, 99)), Dims(1, 1, 1, 1))
        elif name in SVDF:
            call = Call(Dims(1, integer(1, 40), 1, 1), Dims(integer(1, 99), 1, 1, 1), Dims(1, 1, 1, 1))
        elif name in TRANSPOSED:
            filter_ = Dims(channels, *kernel, image[3])
            out = Dims(image[0], image[1] * stride[0], image[2] * stride[1], channels)
            call = Call(Dims(*image), filter_, out, *stride)
        else:
            groups = 2 if image[3] % 2 == 0 and "_s8" in name and rng.random() < 0.2 else 1
            filter_ = Dims(channels, *kernel, image[3] // groups)
            call = _window(image, kernel, stride, dilation, padding, filter_, channels)
        calls.append((name, call))
    return calls


def _slide(node: SourceNode) -> tuple[tuple[int, int], tuple[int, int], str]:
    stride = (node.integer("stride_h"), node.integer("stride_w"))
    dilation = (node.integer("dilation_hfactor", 1), node.integer("dilation_wfactor", 1))
    return stride, dilation, node.text("padding", ("SAME", "VALID"))


def _of_node(node: SourceNode) -> Iterator[Sized]:
    names: tuple[str, ...] = ()
    if node.op_type in ("CONV_2D", "DEPTHWISE_CONV_2D"):
        stride, dilation, padding = _slide(node)
        w, image = node.input(1).shape, node.input(0).shape
        out = w[0] if node.op_type == "CONV_2D" else w[3]
        names = CONVOLUTIONS if node.op_type == "CONV_2D" else DEPTHWISE
        call = _window(image, (w[1], w[2]), stride, dilation, padding, Dims(*w), out)
    elif node.op_type == "FULLY_CONNECTED":
        rows, depth = node.input(1).shape
        names, call = FULLY_CONNECTED, Call(Dims(1, 1, 1, depth), Dims(depth, 1, 1, rows), Dims(1, 1, 1, rows))
    elif node.op_type == "AVERAGE_POOL_2D":
        kernel = (node.integer("filter_height"), node.integer("filter_width"))
        stride = (node.integer("stride_h"), node.integer("stride_w"))
        image, padding = node.input(0).shape, node.text("padding", ("SAME", "VALID"))
        names, call = POOLS, _window(image, kernel, stride, (1, 1), padding, Dims(1, *kernel, 1), image[3])
    elif node.op_type == "SVDF":
        filters, depth = node.input(1).shape
        names, call = SVDF, Call(Dims(1, depth, 1, 1), Dims(filters, depth, 1, 1), Dims(1, 1, 1, 1))
    elif node.op_type == "TRANSPOSE_CONV":
        w, image, out = node.input(1).shape, node.input(2).shape, node.outputs[0].shape
        stride = (node.integer("stride_h"), node.integer("stride_w"))
        names, call = TRANSPOSED, Call(Dims(*image), Dims(*w), Dims(*out), *stride)
    for name in names:
        yield name, call


def _models(folder: Path) -> Iterator[SourceModel]:
    for path in sorted(folder.rglob("*.tflite")):
        try:
            yield read_tflite(path.read_bytes())
        except EmitcError:
            continue


def corpus_calls(folder: Path) -> list[Sized]:
    """Every distinct layer of the models below a folder, for every function that could serve it."""
    calls: dict[Sized, None] = {}
    for model in _models(folder):
        for node in model.nodes:
            if all(min(t.shape, default=1) > 0 for t in node.inputs if t is not None):
                calls.update(dict.fromkeys(_of_node(node)))
    return list(calls)

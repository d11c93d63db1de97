"""What emitc's own kernels cost, by whether the core has a vector unit (the compiler uses it for some loops)."""

from __future__ import annotations

from dataclasses import replace

from emitc.backends.cost_model import OTHER, Cost, estimate
from emitc.ir import BoundNode
from emitc.kernels.convolution.conv_2d import Conv2D
from emitc.kernels.convolution.depthwise_conv_2d import DepthwiseConv2D
from emitc.kernels.mac.dsp_shared_stretch import Span
from emitc.kernels.mac.requantization import WEIGHTS
from emitc.target import Target

_SCALAR = {
    "Conv2D": Cost(mac=2.344, output=70.2),
    "Conv2D 1x1": Cost(mac=2.462, output=35.2, once=1440),
    "DepthwiseConv2D": Cost(mac=9.68, gathered=19.8),
    "DepthwiseConv2D several filters": Cost(mac=3.38, output=40.7),
    "DepthwiseConv2D several filters each": Cost(mac=14.5),
    "FullyConnected": Cost(mac=2.569, output=28.8, once=190),
    "AveragePool2D": Cost(mac=5.57),
    "MaxPool2D": Cost(mac=5.57),
    "Softmax": Cost(output=21.5, once=150),
    "Append": Cost(mac=0.4, once=40),
    "Mean": Cost(mac=4.4, output=18),
    "Sum": Cost(mac=4.4, output=18),
    "Mean int16": Cost(mac=4.4, output=18),
    "Sum int16": Cost(mac=4.4, output=18),
    "Add": Cost(output=14.0, once=16),
    "Mul": Cost(output=20.0, once=20),
    "Conv2D int16": Cost(mac=2.15, output=68.2),
    "Conv2D 1x1 int16": Cost(mac=2.4, output=37),
    "DepthwiseConv2D int16": Cost(mac=8.4),
    "DepthwiseConv2D several filters int16": Cost(mac=3.4, output=42),
    "DepthwiseConv2D several filters each int16": Cost(mac=13.3),
    "FullyConnected int16": Cost(mac=3.0, output=30, once=190),
    "UnidirectionalSequenceLstm": Cost(mac=2.4, output=600),
    "Svdf": Cost(mac=5.0, output=60),
    "AveragePool2D int16": Cost(mac=6.0),
    "MaxPool2D int16": Cost(mac=6.0),
    "Softmax int16": Cost(output=33, once=110),
    "Add int16": Cost(output=32),
    "Sub int16": Cost(output=32),
    "Mul int16": Cost(output=22),
    "MatMul": Cost(mac=6.3, output=11),
    "MatMulInteger": Cost(mac=2.5, output=25),
    **dict.fromkeys(("Add float32", "Sub float32", "Mul float32"), Cost(output=6.5, once=25)),
    **dict.fromkeys(("Conv2D float32", "Conv2D 1x1 float32", "FullyConnected float32"), Cost(mac=5.2, output=14)),
    "DepthwiseConv2D float32": Cost(mac=10.0, output=14),
    "DepthwiseConv2D several filters float32": Cost(mac=10.0, output=14),
    "DepthwiseConv2D several filters each float32": Cost(mac=10.0, output=14),
    "UnidirectionalSequenceLstm float32": Cost(mac=3.3, output=590),
    "Lstm float32": Cost(mac=3.9, output=160),
    "MaxPool2D float32": Cost(mac=10.0, output=35),
    "Gru float32": Cost(mac=6.35, output=110),
    **dict.fromkeys(("MatMul float32", "BatchMatMul float32"), Cost(mac=4.6, output=4)),
    OTHER: Cost(mac=8.0),
}
_VECTOR = {
    **_SCALAR,
    "UnidirectionalSequenceLstm float32": Cost(mac=3.5, output=390),
    "Lstm float32": Cost(mac=4.0, output=135),
    "Gru float32": Cost(mac=4.15, output=119),
    **dict.fromkeys(("MatMul float32", "BatchMatMul float32"), Cost(mac=2.05, output=3)),
    "Conv2D": Cost(mac=2.31, output=62.4),
    "Conv2D 1x1": Cost(mac=2.395, output=38.6, once=970),
    "DepthwiseConv2D": Cost(mac=9.59, gathered=19.7),
    "DepthwiseConv2D several filters": Cost(mac=3.12, output=43.9),
    "FullyConnected": Cost(mac=2.53, output=30.8, once=180),
    "AveragePool2D": Cost(mac=5.2, output=0.2),
    "MaxPool2D float32": Cost(mac=8.1, output=36),
    "Softmax": Cost(output=21, once=155),
    "Add": Cost(output=13.0, once=15),
    "AddByScales": Cost(mac=3.9),
    **dict.fromkeys(("Add float32", "Sub float32", "Mul float32"), Cost(output=2.5, once=20)),
}


_DSP = {
    "HybridConv2D": Cost(mac=3.0, output=80),
    "Conv2D": Cost(mac=0.9, output=10, gathered=1.5, once=200),
    "Conv2D 1x1": Cost(mac=0.9, output=10, gathered=1.5, once=200),
    "DepthwiseConv2D": Cost(mac=2.2, output=12),
    "DepthwiseConv2D several filters": Cost(mac=0.9, output=10, gathered=4.1, once=200),
    "DepthwiseConv2D several filters each": Cost(mac=3.1, output=21),
    "FullyConnected": Cost(mac=1.35, output=14, once=60),
    "AveragePool2D": Cost(mac=1.5, output=6),
    "MaxPool2D": Cost(mac=1.5, output=1),
    "Add": Cost(mac=7.1, once=30),
    "Sub": Cost(mac=7.1, once=30),
    "Mul": Cost(mac=10.1, once=30),
    "Add int16": Cost(mac=19, once=30),
    "Sub int16": Cost(mac=19, once=30),
    "MatMul": Cost(mac=1.6, output=13, once=150),
    "MatMulInteger": Cost(mac=1.5, output=18, once=30),
    "Conv2D int16": Cost(mac=0.9, output=16, gathered=1.5, once=200),
    "Conv2D 1x1 int16": Cost(mac=0.9, output=16, gathered=1.5, once=200),
    "DepthwiseConv2D int16": Cost(mac=3.3, output=35),
    "DepthwiseConv2D several filters int16": Cost(mac=0.9, output=16, gathered=4.1, once=200),
    "DepthwiseConv2D several filters each int16": Cost(mac=3.1, output=29),
    "FullyConnected int16": Cost(mac=1.4, output=16, once=60),
    "UnidirectionalSequenceLstm": Cost(mac=1.3, output=600),
    "Svdf": Cost(mac=2.0, output=40),
    OTHER: Cost(mac=4.0),
}
_TUNED = {
    "Conv2D": Cost(mac=1.6, output=16, gathered=2.5, once=300),
    "Conv2D 1x1": Cost(mac=1.6, output=16, gathered=2.5, once=300),
    "DepthwiseConv2D": Cost(mac=4, output=16),
    "DepthwiseConv2D several filters": Cost(mac=1.6, output=16, gathered=2.5, once=300),
    "FullyConnected": Cost(mac=2.2, output=16, once=100),
    OTHER: Cost(mac=4.0),
}
_NARROW = {kind: replace(cost, output=0.9 * cost.output) for kind, cost in _TUNED.items()}


_MVE = {
    "HybridConv2D": Cost(mac=0.5, output=60),
    **dict.fromkeys(("Conv2D float32", "Conv2D 1x1 float32"), Cost(mac=1.15, output=15, once=100)),
    "FullyConnected float32": Cost(mac=1.21, output=7.5, once=70),
    "DepthwiseConv2D float32": Cost(mac=1.75, output=22, once=60),
    "DepthwiseConv2D several filters float32": Cost(mac=1.1, output=25, once=60),
    "UnidirectionalSequenceLstm float32": Cost(mac=1.1, output=400),
    "Lstm float32": Cost(mac=1.1, output=145),
    "Gru float32": Cost(mac=1.1, output=119),
    **dict.fromkeys(("MatMul float32", "BatchMatMul float32"), Cost(mac=1.3, output=1)),
    "Conv2D": Cost(mac=0.1, output=9, gathered=0.65, once=200),
    "Conv2D 1x1": Cost(mac=0.107, output=4.6, once=440),
    "DepthwiseConv2D": Cost(mac=1.0, gathered=2.5, once=100),
    "DepthwiseConv2D several filters": Cost(mac=0.21, output=17.5, once=200),
    "DepthwiseConv2D several filters each": Cost(mac=4, output=11),
    "FullyConnected": Cost(mac=0.167, output=7.9, once=130),
    "AveragePool2D": Cost(mac=0.9, output=9.0),
    "MaxPool2D": Cost(mac=0.6, output=1.0),
    "MaxPool2D float32": Cost(mac=2.3, output=16),
    "Add": Cost(mac=2.75, once=17),
    "Sub": Cost(mac=2.75, once=17),
    "Mul": Cost(mac=5.0, once=30),
    "Append": Cost(mac=0.19, once=25),
    "MatMul": Cost(mac=0.2, output=7, once=150),
    "MatMulInteger": Cost(mac=0.35, output=10, once=60),
    "Mean": Cost(mac=1.3, output=8, once=40),
    "Sum": Cost(mac=1.3, output=8, once=40),
    "Mean int16": Cost(mac=1.3, output=8, once=40),
    "Sum int16": Cost(mac=1.3, output=8, once=40),
    "Softmax": Cost(output=9, once=90),
    "Softmax int16": Cost(output=12, once=110),
    "Add int16": Cost(mac=9.0, once=30),
    "Sub int16": Cost(mac=9.0, once=30),
    "Mul int16": Cost(mac=9.0, once=30),
    "Conv2D int16": Cost(mac=0.35, output=16, gathered=0.5, once=200),
    "Conv2D 1x1 int16": Cost(mac=0.35, output=16, gathered=0.5, once=200),
    "DepthwiseConv2D int16": Cost(mac=3.5, output=28),
    "DepthwiseConv2D several filters int16": Cost(mac=0.35, output=20, gathered=0.5, once=200),
    "DepthwiseConv2D several filters each int16": Cost(mac=3.5, output=10),
    "FullyConnected int16": Cost(mac=0.35, output=16, once=60),
    "UnidirectionalSequenceLstm": Cost(mac=0.4, output=600),
    "Svdf": Cost(mac=0.7, output=40),
    OTHER: Cost(mac=1.0, once=20),
}


_DSP_LEAN = {
    "Conv2D": Cost(mac=1.445, output=14, once=200, sums=12),
    "DepthwiseConv2D several filters": Cost(mac=2.2, output=14, gathered=4.4, once=200),
    "Conv2D 1x1": Cost(mac=1.45, output=12, once=200),
    "DepthwiseConv2D": Cost(mac=2.2, output=12.1),
    OTHER: Cost(mac=4.0),
}
_DSP_TWO = {
    "Conv2D": Cost(mac=0.975, output=11, gathered=1.5, once=200),
    "DepthwiseConv2D several filters": Cost(mac=0.975, output=14, gathered=3.6, once=200),
    OTHER: Cost(mac=4.0),
}
_DSP_PART = {
    "Conv2D": Cost(mac=1.0, output=11, gathered=1.5, once=200, sums=6),
    "DepthwiseConv2D several filters": Cost(mac=1.0, output=14, gathered=3.6, once=200, sums=6),
    OTHER: Cost(mac=4.0),
}
_DSP_ONE = {
    "Conv2D": Cost(mac=1.3, output=14, gathered=1.5, once=200),
    "DepthwiseConv2D several filters": Cost(mac=1.3, output=14, gathered=4.3, once=200),
    OTHER: Cost(mac=4.0),
}


_FPU = {
    **dict.fromkeys(("Conv2D float32", "Conv2D 1x1 float32"), Cost(mac=2.5, output=25, once=100)),
    "FullyConnected float32": Cost(mac=2.5, output=17, once=100),
    "Softmax": Cost(output=20, once=150),
    **dict.fromkeys(("Add float32", "Sub float32", "Mul float32"), Cost(output=3.2, once=40)),
    "DepthwiseConv2D float32": Cost(mac=3.75, output=25, once=60),
    "DepthwiseConv2D several filters float32": Cost(mac=2.63, output=27, once=60),
    "UnidirectionalSequenceLstm float32": Cost(mac=2.63, output=605),
    "Lstm float32": Cost(mac=2.63, output=175),
    "MaxPool2D float32": Cost(mac=5.4, output=20),
    "Gru float32": Cost(mac=2.63, output=110),
    **dict.fromkeys(("MatMul float32", "BatchMatMul float32"), Cost(mac=2.9, output=4)),
    **dict.fromkeys(("Add", "Sub", "Mul"), Cost(mac=20.0, once=30)),
    "Add int16": Cost(mac=18.0, once=20),
    "Sub int16": Cost(mac=18.0, once=20),
    "Mul int16": Cost(mac=18.0, once=20),
    OTHER: Cost(mac=4.0),
}


_VARIANTS = {
    "dsp": _DSP,
    "dsp-two": _DSP_TWO,
    "dsp-part": _DSP_PART,
    "dsp-one": _DSP_ONE,
    "dsp-lean": _DSP_LEAN,
    "mve": _MVE,
    "fpu": _FPU,
    "scalar": _TUNED,
    "narrow": _NARROW,
}


_SPANS = {"dsp-span": 4, "dsp-span-three": 3}
"""Pixels that read one stretch of the input at a time."""


def _against_four(bound: BoundNode, pixels: int) -> float:
    """Instructions of a convolution whose pixels read one stretch of the input, against those of `dsp`.

    Counted in the loops of both: of a word of two channels' weights, of a row of a window, and of a pair of channels.
    """
    op = bound.node.op
    assert isinstance(op, Conv2D | DepthwiseConv2D)
    kernel_h, kernel_w = bound.input(WEIGHTS).shape[1:3]
    depth = bound.input(0).shape[3]
    _, out_h, out_w, out_c = bound.output.shape
    span, pairs = Span(pixels, kernel_w * depth, op.window.stride_w * depth), (out_c + 1) // 2
    word = (15 if pixels == 4 else 12) - (0 if span.step % 2 else 2 if pixels == 4 or span.step == 2 else 1)
    inside = kernel_h * (word * span.words + 4) + 14 * pixels + 24
    ours = -(-out_w // pixels) * out_h * (pairs * inside + kernel_h * (1.75 * span.values + 12) + 60)
    theirs = -(-out_w * out_h // 4) * (
        pairs * (13 * span.words * kernel_h + 110) + 4 * kernel_h * (2.5 * span.run + 18)
    )
    return ours / theirs


def cost_of(bound: BoundNode, target: Target, variant: str) -> float:
    """Estimated cycles of one run of the node by a kernel of that name on the target."""
    if variant in _SPANS:
        return estimate(bound, _DSP) * _against_four(bound, _SPANS[variant])
    if variant in _VARIANTS:
        return estimate(bound, _VARIANTS[variant])
    return estimate(bound, _VECTOR if "mve" in target.features else _SCALAR)

"""What emitc's kernels cost: cycles per multiply-accumulate or per element, estimated.

Source: instructions per layer of the seven MLPerf Tiny and TensorFlow Lite Micro nets on the emulated boards
(`python -m bench.boards --layers`), each instruction taken for a cycle.
"""

from __future__ import annotations

from emitc.ir import BoundNode
from emitc.kernels import kernel_of
from emitc.target import Target

_PER_MAC = {"Conv2D": 2.9, "DepthwiseConv2D": 7.5, "FullyConnected": 2.6}
_PER_ELEMENT = {"Add": 22.0, "Mul": 22.0, "Softmax": 160.0, "AveragePool2D": 6.0, "MaxPool2D": 6.0}
_OTHER = 8.0
_OUTPUT = 30.0
"""Requantizing and storing one output of an accumulating kernel."""


def cost_of(bound: BoundNode, target: Target) -> float:
    """Estimated cycles of one run of the node on the target."""
    kind = type(bound.node.op).__name__
    outputs = sum(tensor.elements for tensor in bound.outputs)
    if kind in _PER_MAC:
        return kernel_of(bound).lower(bound).macs * _PER_MAC[kind] + outputs * _OUTPUT
    return kernel_of(bound).work(bound) * _PER_ELEMENT.get(kind, _OTHER) * max(1.0, target.cost.multiply_long / 2)

"""What CMSIS-NN's functions cost, by instruction set: cycles per multiply-accumulate or element, estimated.

Source: instructions per layer on the emulated boards, each taken for a cycle.
"""

from __future__ import annotations

from emitc.backends.cmsis_nn.headers import InstructionSet
from emitc.ir import BoundNode
from emitc.kernels import kernel_of

_PER_MAC = {
    InstructionSet.PORTABLE: {"Conv2D": 4.0, "DepthwiseConv2D": 9.0, "FullyConnected": 4.0},
    InstructionSet.DSP: {"Conv2D": 1.9, "DepthwiseConv2D": 3.0, "FullyConnected": 2.0},
    InstructionSet.MVE: {"Conv2D": 0.4, "DepthwiseConv2D": 1.5, "FullyConnected": 0.5},
}
_PER_ELEMENT = {
    InstructionSet.PORTABLE: {"Add": 40.0, "Mul": 30.0, "Softmax": 160.0, "AveragePool2D": 8.0, "MaxPool2D": 8.0},
    InstructionSet.DSP: {"Add": 25.0, "Mul": 20.0, "Softmax": 160.0, "AveragePool2D": 5.0, "MaxPool2D": 5.0},
    InstructionSet.MVE: {"Add": 6.0, "Mul": 4.0, "Softmax": 100.0, "AveragePool2D": 1.0, "MaxPool2D": 1.0},
}
_OUTPUT = {InstructionSet.PORTABLE: 40.0, InstructionSet.DSP: 25.0, InstructionSet.MVE: 6.0}


def cost_of(bound: BoundNode, instructions: InstructionSet) -> float:
    """Estimated cycles of one run of the node."""
    kind = type(bound.node.op).__name__
    outputs = sum(tensor.elements for tensor in bound.outputs)
    if kind in _PER_MAC[instructions]:
        return kernel_of(bound).work(bound) * _PER_MAC[instructions][kind] + outputs * _OUTPUT[instructions]
    return kernel_of(bound).work(bound) * _PER_ELEMENT[instructions].get(kind, 10.0)

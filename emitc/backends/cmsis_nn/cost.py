"""What CMSIS-NN's functions cost, by instruction set. For cores without DSP the coefficients are those of its plain C loops on
a Cortex-M3.
"""

from __future__ import annotations

from emitc.backends.cmsis_nn.headers import InstructionSet
from emitc.ir import BoundNode
from emitc.kernels import kernel_of
from emitc.kernels.costs import Cost, case_names

OTHER = "other"
"""What a table does not have."""
_TABLES = {
    InstructionSet.PORTABLE: {
        "Conv2D": Cost(mac=2.7, output=90, gathered=7),
        "Conv2D 1x1": Cost(mac=2.8, output=45, once=1900),
        "DepthwiseConv2D": Cost(mac=9.9, gathered=14),
        "DepthwiseConv2D several filters": Cost(mac=4.5, output=70),
        "FullyConnected": Cost(mac=3.0, output=55, once=120),
        "AveragePool2D": Cost(mac=6.3, output=12),
        "MaxPool2D": Cost(mac=6.3, output=12),
        "Softmax": Cost(output=53, once=1160),
        "Add": Cost(output=81, once=2100),
        "Mul": Cost(output=40, once=1000),
        "Conv2D int16": Cost(mac=2.31, output=108),
        "Conv2D 1x1 int16": Cost(mac=2.37, output=52),
        "DepthwiseConv2D int16": Cost(mac=37),
        "DepthwiseConv2D several filters int16": Cost(mac=32),
        "FullyConnected int16": Cost(mac=6.2, output=30),
        "AveragePool2D int16": Cost(mac=7.6),
        "MaxPool2D int16": Cost(mac=7.6),
        "Softmax int16": Cost(output=60),
        "Add int16": Cost(output=78),
        "Mul int16": Cost(output=40),
        OTHER: Cost(mac=10),
    },
    InstructionSet.DSP: {
        "Conv2D": Cost(mac=1.411, output=83.5, gathered=6.92),
        "Conv2D 1x1": Cost(mac=1.566, output=38.9, once=1930),
        "DepthwiseConv2D": Cost(mac=7.45, gathered=13.7),
        "DepthwiseConv2D several filters": Cost(mac=3.71, output=68),
        "FullyConnected": Cost(mac=1.881, output=50.4, once=115),
        "AveragePool2D": Cost(mac=6.26, output=12),
        "MaxPool2D": Cost(mac=6.26, output=12),
        "Softmax": Cost(output=53.1, once=1160),
        "Add": Cost(output=81.3, once=2140),
        "Mul": Cost(output=40, once=1000),
        "Conv2D int16": Cost(mac=1.65, output=112),
        "Conv2D 1x1 int16": Cost(mac=1.68, output=57),
        "DepthwiseConv2D int16": Cost(mac=22.9),
        "DepthwiseConv2D several filters int16": Cost(mac=29),
        "FullyConnected int16": Cost(mac=5.0, output=30),
        "AveragePool2D int16": Cost(mac=6.4),
        "MaxPool2D int16": Cost(mac=6.4),
        "Softmax int16": Cost(output=60),
        "Add int16": Cost(output=78),
        "Mul int16": Cost(output=40),
        OTHER: Cost(mac=10),
    },
    InstructionSet.MVE: {
        "Conv2D": Cost(mac=0.106, output=34.8, gathered=1.0),
        "Conv2D 1x1": Cost(mac=0.173, output=14.5, once=340),
        "DepthwiseConv2D": Cost(mac=1.99, gathered=24.8, once=3600),
        "DepthwiseConv2D several filters": Cost(mac=2.74, output=29.6),
        "FullyConnected": Cost(mac=0.456, output=15.5, once=180),
        "AveragePool2D": Cost(mac=1.5, output=13.3),
        "MaxPool2D": Cost(mac=1.5, output=13.3),
        "Softmax": Cost(output=64, once=1230),
        "Add": Cost(output=13.75, once=100),
        "Mul": Cost(output=8, once=100),
        "Conv2D int16": Cost(mac=0.286, output=59),
        "Conv2D 1x1 int16": Cost(mac=0.2, output=37),
        "DepthwiseConv2D int16": Cost(mac=17.9),
        "DepthwiseConv2D several filters int16": Cost(mac=26.6),
        "FullyConnected int16": Cost(mac=2.2, output=30),
        "AveragePool2D int16": Cost(mac=1.9),
        "MaxPool2D int16": Cost(mac=1.9),
        "Softmax int16": Cost(output=60),
        "Add int16": Cost(output=10.3),
        "Mul int16": Cost(output=8),
        OTHER: Cost(mac=10),
    },
}


def cost_of(bound: BoundNode, instructions: InstructionSet) -> float:
    """Estimated cycles of one run of the node."""
    table, kernel, op = _TABLES[instructions], kernel_of(bound), type(bound.node.op).__name__
    cases = kernel.cases(bound)
    keys = (f"{op} {name}".strip() for name in case_names(bound, cases))
    cost = next((table[key] for key in keys if key in table), table[OTHER])
    return cost.cycles(bound, kernel.work(bound))

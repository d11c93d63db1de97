"""The value that constant padding has in memory."""

import numpy as np

from emitc.ir import BoundNode, DType, Numerics
from emitc.kernels.shared.pointwise import quantized


def filling(bound: BoundNode, value: int | float) -> int | float:
    """The value of constant padding in the output's type: quantized where the operator works on real values."""
    y = bound.output
    if bound.node.op.numerics is not Numerics.QDQ or y.quantization is None or y.dtype is DType.FLOAT32:
        return value
    return int(quantized(np.array([value], np.float32), y.quantization, y.dtype)[0])

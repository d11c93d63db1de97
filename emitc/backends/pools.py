"""What keeps the pools of kernel libraries from an operator's bits."""

from emitc.ir import BoundNode
from emitc.kernels.pooling.pool_ops import AveragePool2D, MaxPool2D


def plain_pool_refusal(bound: BoundNode) -> str:
    """Why a function that slides a dense window and averages over the input alone is wrong for a pool; "" where it is right."""
    op = bound.node.op
    assert isinstance(op, AveragePool2D | MaxPool2D)
    if (op.window.dilation_h, op.window.dilation_w) != (1, 1):
        return "its pools have no dilation"
    if isinstance(op, AveragePool2D) and op.count_padding and op.window.padding.any:
        return "its average leaves out what lies outside the input"
    return ""

"""Operators as calls of CMSIS-NN: which are taken, and why the others are not."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from emitc.backends.cmsis_nn.calls import Library
from emitc.backends.cmsis_nn.elementwise import (
    arithmetic,
    arithmetic_refusal,
    pool,
    pool_refusal,
    softmax,
    softmax_refusal,
)
from emitc.backends.cmsis_nn.int16 import softmax as softmax_16
from emitc.backends.cmsis_nn.int16 import softmax_refusal as softmax_16_refusal
from emitc.backends.cmsis_nn.mac import (
    conv_2d,
    conv_2d_refusal,
    depthwise,
    depthwise_refusal,
    fully_connected,
    fully_connected_refusal,
    transposed,
    transposed_refusal,
)
from emitc.backends.cmsis_nn.recurrent import lstm, lstm_refusal, svdf, svdf_refusal
from emitc.backends.contract import Coverage
from emitc.ir import BoundNode, DType, Numerics, Op
from emitc.kernels.convolution.conv_2d import Conv2D
from emitc.kernels.convolution.conv_transpose import ConvTranspose
from emitc.kernels.convolution.depthwise_conv_2d import DepthwiseConv2D
from emitc.kernels.elementwise.arithmetic import Add, Mul
from emitc.kernels.mac.requantization import WEIGHTS
from emitc.kernels.matrix.fully_connected import FullyConnected
from emitc.kernels.normalization.softmax import Softmax
from emitc.kernels.pooling.pool_ops import AveragePool2D, MaxPool2D
from emitc.kernels.recurrent.sequence_lstm_tflite import UnidirectionalSequenceLstm
from emitc.kernels.recurrent.svdf import MEMORY, Svdf
from emitc.layer import Layer


def _plain(bound: BoundNode) -> str:
    """Refuses other arithmetic than TFLite's and other types than int8 and int16."""
    if bound.node.op.numerics is not Numerics.TFLITE:
        return f"CMSIS-NN rounds as TensorFlow Lite does, this model is rounded as {bound.node.op.numerics.engine} does"
    x, y = bound.input(0).dtype, bound.output.dtype
    from_bytes = x is DType.INT8 and (y is DType.INT8 or isinstance(bound.node.op, Softmax))
    if from_bytes or x is y is DType.INT16:
        return ""
    return f"emitc calls CMSIS-NN for int8 and int16; {x.value} to {y.value} is asked for"


def _one_image(bound: BoundNode) -> str:
    return "" if bound.input(0).shape[0] == 1 else "the function takes one image at a time"


@dataclass(frozen=True, slots=True)
class Rule:
    """How one operator becomes a call. functions: what it may call. refusal: "" where the node can be taken."""

    functions: tuple[str, ...]
    lower: Callable[[Library, BoundNode], Layer]
    refusal: Callable[[Library, BoundNode], str] = lambda library, bound: ""
    images: bool = True


RULES: Mapping[type[Op], Rule] = {
    Conv2D: Rule(("arm_convolve_wrapper_s8",), conv_2d, conv_2d_refusal),
    DepthwiseConv2D: Rule(("arm_depthwise_conv_wrapper_s8",), depthwise, depthwise_refusal),
    ConvTranspose: Rule(("arm_transpose_conv_s8",), transposed, transposed_refusal),
    FullyConnected: Rule(
        ("arm_fully_connected_s8", "arm_convolve_wrapper_s8"), fully_connected, fully_connected_refusal, images=False
    ),
    AveragePool2D: Rule(("arm_avgpool_s8",), pool, pool_refusal),
    MaxPool2D: Rule(("arm_max_pool_s8",), pool, pool_refusal),
    Add: Rule(("arm_elementwise_add_s8",), arithmetic, arithmetic_refusal, images=False),
    Mul: Rule(("arm_elementwise_mul_s8",), arithmetic, arithmetic_refusal, images=False),
    Softmax: Rule(("arm_softmax_s8",), softmax, softmax_refusal, images=False),
    Svdf: Rule(("arm_svdf_s8",), svdf, svdf_refusal, images=False),
    UnidirectionalSequenceLstm: Rule(("arm_lstm_unidirectional_s8",), lstm, lstm_refusal, images=False),
}


FOUR_BITS: Mapping[type[Op], Rule] = {
    Conv2D: Rule(("arm_convolve_wrapper_s4",), conv_2d, conv_2d_refusal),
    DepthwiseConv2D: Rule(("arm_depthwise_conv_wrapper_s4",), depthwise, depthwise_refusal),
    FullyConnected: Rule(("arm_fully_connected_s4",), fully_connected, images=False),
}
"""With weights of four bits."""
SIXTEEN_BITS: Mapping[type[Op], Rule] = {
    Conv2D: Rule(("arm_convolve_wrapper_s16",), conv_2d, conv_2d_refusal),
    DepthwiseConv2D: Rule(("arm_depthwise_conv_wrapper_s16",), depthwise, depthwise_refusal),
    FullyConnected: Rule(
        ("arm_fully_connected_s16", "arm_convolve_wrapper_s16"), fully_connected, fully_connected_refusal, images=False
    ),
    AveragePool2D: Rule(("arm_avgpool_s16",), pool, pool_refusal),
    MaxPool2D: Rule(("arm_max_pool_s16",), pool, pool_refusal),
    Add: Rule(("arm_elementwise_add_s16",), arithmetic, arithmetic_refusal, images=False),
    Mul: Rule(("arm_elementwise_mul_s16",), arithmetic, arithmetic_refusal, images=False),
    Softmax: Rule(("arm_softmax_s16",), softmax_16, softmax_16_refusal, images=False),
}
"""With int16 activations."""
TO_16_BITS = Rule(("arm_softmax_s8_s16",), softmax, softmax_refusal, images=False)
"""Softmax of bytes as int16."""
WIDE_MEMORY = Rule(("arm_svdf_state_s16_s8",), svdf, svdf_refusal, images=False)
"""SVDF with a memory of 16 bits."""


def covers() -> tuple[Coverage, ...]:
    """The operators with a rule, by the types of their activations; four bits are those of weights."""
    tables = {DType.INT8: RULES, DType.INT16: SIXTEEN_BITS, DType.INT4: FOUR_BITS}
    ops = dict.fromkeys(op for rules in tables.values() for op in rules)
    return tuple(Coverage(op, tuple(t for t, rules in tables.items() if op in rules)) for op in ops)


def _rule_of(bound: BoundNode) -> Rule | None:
    op = type(bound.node.op)
    if bound.node.op.numerics is Numerics.TFLITE and bound.output.dtype is DType.INT16:
        return TO_16_BITS if op is Softmax and bound.input(0).dtype is DType.INT8 else SIXTEEN_BITS.get(op)
    if op is Svdf and bound.input(MEMORY).dtype is DType.INT16:
        return WIDE_MEMORY
    if op in FOUR_BITS and bound.input(WEIGHTS).dtype.packed:
        return FOUR_BITS[op]
    return RULES.get(op)


def refusal(library: Library, bound: BoundNode) -> str:
    """Why CMSIS-NN cannot run the node with the interpreter's bits; "" when it can."""
    rule = _rule_of(bound)
    if rule is None:
        return "CMSIS-NN has no function for this operator that emitc calls"
    absent = [name for name in rule.functions if name not in library.tree.functions]
    if absent:
        return f"CMSIS-NN {library.tree.version} has no {absent[0]}"
    undefined = [name for name in rule.functions if name not in library.defined]
    if undefined:
        return f"this copy of CMSIS-NN {library.tree.version} lacks the source of {undefined[0]}"
    return _plain(bound) or (_one_image(bound) if rule.images else "") or rule.refusal(library, bound)


def layer_of(library: Library, bound: BoundNode) -> Layer:
    """The call of a node that is not refused."""
    rule = _rule_of(bound)
    assert rule is not None
    return rule.lower(library, bound)

"""Operators as calls of CMSIS-NN: which are taken, and why the others are not."""

from collections.abc import Callable, Mapping

from emitc.backends.cmsis_nn import elementwise, mac
from emitc.backends.cmsis_nn.calls import Library
from emitc.backends.cmsis_nn.recurrent import lstm, lstm_refusal, svdf, svdf_refusal
from emitc.backends.contract import Coverage
from emitc.backends.kernel_library import plain_pool_refusal, softmax_refusal
from emitc.ir import BoundNode, DType, Numerics, Op
from emitc.kernels.convolution.conv_2d import Conv2D
from emitc.kernels.convolution.conv_transpose import ConvTranspose
from emitc.kernels.convolution.depthwise_conv_2d import DepthwiseConv2D
from emitc.kernels.elementwise.arithmetic import Add, Mul
from emitc.kernels.mac.accumulation import WEIGHTS
from emitc.kernels.matrix.fully_connected import FullyConnected
from emitc.kernels.normalization.softmax import Softmax
from emitc.kernels.pooling.pool_ops import AveragePool2D, MaxPool2D
from emitc.kernels.recurrent.sequence_lstm_tflite import UnidirectionalSequenceLstm
from emitc.kernels.recurrent.svdf import MEMORY, Svdf
from emitc.layer import Layer
from emitc.records import dataclass, replace


def _plain(bound: BoundNode) -> str:
    """Refuses other arithmetic than TFLite's and other types than int8 and int16."""
    if bound.node.op.numerics is not Numerics.TFLITE:
        return f"CMSIS-NN rounds as TensorFlow Lite does, this model is rounded as {bound.node.op.numerics.engine} does"
    x, y = bound.input(0).dtype, bound.output.dtype
    from_bytes = x is DType.INT8 and (y is DType.INT8 or isinstance(bound.node.op, Softmax))
    if from_bytes or x is y is DType.INT16:
        return ""
    return f"emitc calls CMSIS-NN for int8 and int16; {x.value} to {y.value} is asked for"


@dataclass(frozen=True, slots=True)
class Rule:
    """How one operator becomes a call. functions: what it may call. refusal: "" where the node can be taken.

    images: whether the function takes one image at a time.
    """

    functions: tuple[str, ...]
    lower: Callable[[Library, BoundNode], Layer]
    refusal: Callable[[Library, BoundNode], str] = lambda library, bound: ""
    images: bool = True


def _of_node(refusal: Callable[[BoundNode], str]) -> Callable[[Library, BoundNode], str]:
    """A refusal that no version of the library changes."""
    return lambda library, bound: refusal(bound)


_CONVOLUTION = Rule(("arm_convolve_wrapper",), mac.windowed, mac.windowed_refusal)
_DEPTHWISE = Rule(("arm_depthwise_conv_wrapper",), mac.windowed, mac.windowed_refusal)
_SOFTMAX = Rule(("arm_softmax",), elementwise.softmax, _of_node(softmax_refusal), images=False)
_FOR_ALL_ACTIVATIONS: Mapping[type[Op], Rule] = {
    Conv2D: _CONVOLUTION,
    DepthwiseConv2D: _DEPTHWISE,
    FullyConnected: Rule(
        ("arm_fully_connected", "arm_convolve_wrapper"), mac.fully_connected, mac.fully_connected_refusal, images=False
    ),
    AveragePool2D: Rule(("arm_avgpool",), elementwise.pool, _of_node(plain_pool_refusal)),
    MaxPool2D: Rule(("arm_max_pool",), elementwise.pool, _of_node(plain_pool_refusal)),
    Add: Rule(("arm_elementwise_add",), elementwise.arithmetic, elementwise.arithmetic_refusal, images=False),
    Mul: Rule(("arm_elementwise_mul",), elementwise.arithmetic, elementwise.arithmetic_refusal, images=False),
}


def _typed(rules: Mapping[type[Op], Rule], types: str) -> Mapping[type[Op], Rule]:
    """The rules for functions whose names end in these types."""
    return {
        op: replace(rule, functions=tuple(f"{name}_{types}" for name in rule.functions)) for op, rule in rules.items()
    }


RULES: Mapping[type[Op], Rule] = _typed(
    {
        **_FOR_ALL_ACTIVATIONS,
        ConvTranspose: Rule(("arm_transpose_conv",), mac.transposed, mac.transposed_refusal),
        Softmax: _SOFTMAX,
        Svdf: Rule(("arm_svdf",), svdf, svdf_refusal, images=False),
        UnidirectionalSequenceLstm: Rule(("arm_lstm_unidirectional",), lstm, lstm_refusal, images=False),
    },
    "s8",
)
FOUR_BITS: Mapping[type[Op], Rule] = _typed(
    {
        Conv2D: _CONVOLUTION,
        DepthwiseConv2D: _DEPTHWISE,
        FullyConnected: Rule(("arm_fully_connected",), mac.fully_connected, images=False),
    },
    "s4",
)
"""With weights of four bits."""
SIXTEEN_BITS: Mapping[type[Op], Rule] = _typed(
    {
        **_FOR_ALL_ACTIVATIONS,
        Softmax: Rule(("arm_softmax",), elementwise.softmax_16, elementwise.softmax_16_refusal, images=False),
    },
    "s16",
)
"""With int16 activations."""
TO_16_BITS = replace(_SOFTMAX, functions=("arm_softmax_s8_s16",))
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
    several = "the function takes one image at a time" if rule.images and bound.input(0).shape[0] != 1 else ""
    return _plain(bound) or several or rule.refusal(library, bound)


def layer_of(library: Library, bound: BoundNode) -> Layer:
    """The call of a node that is not refused."""
    rule = _rule_of(bound)
    assert rule is not None
    return rule.lower(library, bound)

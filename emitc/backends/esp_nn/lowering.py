"""Operators as calls of ESP-NN: which are taken, why the others are not, and how.

The functions return nothing and get their scratch through a variable of the library, so that two models must not run at once.
"""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from emitc.backends.contract import Coverage
from emitc.backends.esp_nn.scratch import Chip, Shape, conv_bytes, depthwise_bytes, softmax_bytes
from emitc.backends.kernel_library import (
    POINTER,
    number,
    plain_pool_refusal,
    same_shapes,
    softmax_factor,
    softmax_refusal,
    sum_factors,
)
from emitc.ir import BoundNode, DType, Numerics, Op
from emitc.kernels.convolution.conv_2d import Conv2D
from emitc.kernels.convolution.depthwise_conv_2d import DepthwiseConv2D
from emitc.kernels.elementwise.arithmetic import Add, Arithmetic, Mul
from emitc.kernels.mac.accumulation import WEIGHTS, model_bias, requantization, weights_of
from emitc.kernels.matrix.fully_connected import FullyConnected
from emitc.kernels.normalization.softmax import Softmax
from emitc.kernels.pooling.pool_ops import AveragePool2D, MaxPool2D
from emitc.kernels.shared.windows import Window
from emitc.layer import Expression, Layer, LibraryCall, Scratch, Structure, Table
from emitc.numerics.requantize import Int64, Multiplier, activation_clamp, multiplier_of
from emitc.records import dataclass, replace

VARIANT = "esp-nn"
_X, _Y, _WEIGHTS, _BIAS = Expression("x0"), Expression("y"), Expression(table="weights"), Expression(table="bias")
_LARGEST = 1 << 15
"""Sizes are 16 bits in its functions, some of them signed."""
_LEFT_SHIFT = 20
"""Bits by which the two inputs of a sum are widened, as in TensorFlow Lite."""


@dataclass(frozen=True, slots=True)
class Rule:
    """How one operator becomes a call. refusal: "" where the node can be taken. images: its inputs are images, one at a time."""

    lower: Callable[[Chip, BoundNode], Layer]
    refusal: Callable[[BoundNode], str]
    images: bool = True


def _numbers(*values: int) -> tuple[Expression, ...]:
    return tuple(map(number, values))


def _address(role: str) -> Expression:
    """Of a structure that is a constant of the file."""
    return Expression("&", structure=role)


def _structure(role: str, c_type: str, **members: str | int) -> Structure:
    texts = tuple((name, Expression(str(value))) for name, value in members.items())
    return Structure(role, c_type, texts)


def _dims(role: str, width: int, height: int, channels: int) -> Structure:
    return _structure(role, "data_dims_t", width=width, height=height, channels=channels, extra=1)


def _pair(vertical: int, horizontal: int) -> str:
    return f"{{.width = {horizontal}, .height = {vertical}}}"


def _call(
    template: str,
    function: str,
    arguments: Sequence[Expression],
    *,
    structures: tuple[Structure, ...] = (),
    tables: tuple[Table, ...] = (),
    check: tuple[str, tuple[Expression, ...], int] | None = None,
    macs: int = 0,
) -> Layer:
    """The layer of a call. check: the function that tells the bytes of scratch, its arguments, and what the step has of it."""
    call = LibraryCall(function, tuple(arguments), structures, check)
    scratch = (Scratch("scratch", check[2]),) if check is not None and check[2] else ()
    return Layer(
        f"esp_nn/{template}",
        VARIANT,
        tables=tables,
        scratch=scratch,
        macs=macs,
        fallible=check is not None,
        call=call,
    )


# ---- what accumulates ----


def _accumulating_refusal(bound: BoundNode) -> str:
    op, w = bound.node.op, bound.input(WEIGHTS)
    assert isinstance(op, Conv2D | DepthwiseConv2D | FullyConnected)
    if not all(tensor is None or tensor.is_constant for tensor in bound.inputs[WEIGHTS:]):
        return "computed weights or bias"
    if w.dtype is not DType.INT8:
        return f"weights of {w.dtype.value}; its functions take int8"
    if weights_of(bound).dtype != np.int8:
        return "weights with a zero point"
    return ""


def _windowed_refusal(bound: BoundNode) -> str:
    op = bound.node.op
    assert isinstance(op, Conv2D | DepthwiseConv2D)
    if (op.window.dilation_h, op.window.dilation_w) != (1, 1):
        return "its convolutions have no dilation"
    if isinstance(op, Conv2D):
        if bound.input(0).shape[3] != bound.input(WEIGHTS).shape[3]:
            return "its function for 1x1 filters ignores groups"
        if bound.input(WEIGHTS).shape[1:3] == (1, 1) and op.window.padding.any:
            return "its function for 1x1 filters ignores padding"
    return _accumulating_refusal(bound)


def _tables(bound: BoundNode, weights: Int64, bias: Int64, channels: int) -> tuple[Table, ...]:
    """Weights and bias, and a multiplier and a shift for each of the channels; none of these for 0."""
    scale, shape = requantization(bound), "x".join(map(str, bound.input(WEIGHTS).shape))
    repeat = 1 if scale.per_channel else channels
    tables = (
        Table("weights", "int8_t", tuple(weights.reshape(-1).tolist()), f"weights {shape}", pixels_per_load=1),
        Table("bias", "int32_t", tuple(bias.reshape(-1).tolist()), "bias per output channel"),
    )
    if not channels:
        return tables
    return (
        *tables,
        Table("multiplier", "int32_t", scale.q31 * repeat, "Q31 per output channel"),
        Table("shift", "int32_t", scale.shift * repeat, "positive left"),
    )


def _shape(bound: BoundNode, window: Window, kernel: tuple[int, int], multiplier: int = 1) -> Shape:
    """A windowed operator as the sizes of its scratch see it."""
    _, height, width, channels = bound.input(0).shape
    _, out_h, out_w, out_channels = bound.output.shape
    return Shape(
        height, width, channels, *kernel, out_h, out_w, out_channels,
        window.padding.top, window.padding.left, window.stride_h, window.stride_w, multiplier,
    )  # fmt: skip


def _convolution(chip: Chip, bound: BoundNode) -> Layer:
    """esp_nn_conv_s8 and esp_nn_depthwise_conv_s8."""
    op = bound.node.op
    assert isinstance(op, Conv2D | DepthwiseConv2D)
    depthwise, w = isinstance(op, DepthwiseConv2D), bound.input(WEIGHTS)
    window, weights = op.window, weights_of(bound).astype(np.int64)
    channels, out_channels = bound.input(0).shape[3], bound.output.shape[3]
    sums = weights.reshape(-1, out_channels).sum(axis=0) if depthwise else weights.reshape(out_channels, -1).sum(axis=1)
    shape = _shape(bound, window, (w.shape[1], w.shape[2]), out_channels // channels if depthwise else 1)
    clamp = activation_clamp(op.activation, bound.output)
    own = {"ch_mult": shape.multiplier} if depthwise else {}
    params = _structure(
        "params",
        "dw_conv_params_t" if depthwise else "conv_params_t",
        in_offset=-bound.input(0).zero_point,
        out_offset=bound.output.zero_point,
        **own,
        stride=_pair(window.stride_h, window.stride_w),
        padding=_pair(window.padding.top, window.padding.left),
        dilation=_pair(1, 1),
        activation=f"{{.min = {clamp.low}, .max = {clamp.high}}}",
    )
    factors = (("shift", Expression(POINTER, "shift")), ("mult", Expression(POINTER, "multiplier")))
    structures = (
        params,
        _dims("input_dims", shape.width, shape.height, channels),
        _dims("filter_dims", shape.kernel_w, shape.kernel_h, 1 if depthwise else channels),
        _dims("output_dims", shape.out_w, shape.out_h, out_channels),
        Structure("quantization", "quant_data_t", factors, constant=False),
    )
    told = tuple(_address(role) for role in ("input_dims", "filter_dims", "output_dims", "params"))
    name, size = ("depthwise_conv", depthwise_bytes) if depthwise else ("conv", conv_bytes)
    return _call(
        name,
        f"esp_nn_{name}_s8",
        (told[0], _X, told[1], _WEIGHTS, _BIAS, told[2], _Y, told[3], Expression("&quantization")),
        structures=structures,
        tables=_tables(bound, weights, model_bias(bound, sums, folded=op.zero_point_folded), out_channels),
        check=(f"esp_nn_get_{name}_scratch_size", told, size(chip, shape)),
        macs=shape.out_h * shape.out_w * weights.size,
    )


def _dense_refusal(bound: BoundNode) -> str:
    depth = bound.input(WEIGHTS).shape[1]
    if bound.input(0).elements != depth:
        return "its function takes one row at a time"
    return _accumulating_refusal(bound)


def _dense(chip: Chip, bound: BoundNode) -> Layer:
    """esp_nn_fully_connected_s8, and esp_nn_fully_connected_per_ch_s8 for a factor for each output."""
    op = bound.op(FullyConnected)
    out, depth = bound.input(WEIGHTS).shape
    scale, weights = requantization(bound), weights_of(bound).astype(np.int64)
    bias = model_bias(bound, weights.sum(axis=1), folded=op.zero_point_folded)
    clamp = activation_clamp(op.activation, bound.output)
    factors = (
        (Expression(table="shift"), Expression(table="multiplier"))
        if scale.per_channel
        else _numbers(scale.shift[0], scale.q31[0])
    )
    return _call(
        "call",
        f"esp_nn_fully_connected_{'per_ch_' if scale.per_channel else ''}s8",
        (
            _X, *_numbers(-bound.input(0).zero_point, depth), _WEIGHTS, number(0), _BIAS, _Y,
            *_numbers(out, bound.output.zero_point), *factors, *_numbers(clamp.low, clamp.high),
        ),
        tables=_tables(bound, weights, bias, out if scale.per_channel else 0),
        macs=out * depth,
    )  # fmt: skip


# ---- what does not ----


def _pool(chip: Chip, bound: BoundNode) -> Layer:
    op = bound.node.op
    assert isinstance(op, AveragePool2D | MaxPool2D)
    s, clamp = _shape(bound, op.window, (op.kernel_h, op.kernel_w)), activation_clamp(op.activation, bound.output)
    values = (
        _X, *_numbers(s.width, s.height), _Y, *_numbers(s.out_w, s.out_h, s.stride_w, s.stride_h, s.kernel_w, s.kernel_h),
        *_numbers(s.pad_w, s.pad_h, clamp.low, clamp.high, s.channels),
    )  # fmt: skip
    return _call("call", f"esp_nn_{'avg' if isinstance(op, AveragePool2D) else 'max'}_pool_s8", values)


def _factors(bound: BoundNode) -> tuple[Multiplier, ...]:
    """Of a product its one factor; of a sum those of its inputs and of its output."""
    a, b, y = bound.input(0), bound.input(1), bound.output
    if isinstance(bound.node.op, Mul):
        return (multiplier_of(a.scale * b.scale / y.scale),)
    return tuple(map(multiplier_of, sum_factors(bound, _LEFT_SHIFT)))


def _arithmetic_refusal(bound: BoundNode) -> str:
    if not same_shapes(bound):
        return "the function takes two tensors of one shape"
    if any(factor.shift > 0 for factor in _factors(bound)):
        return "the function takes no factor above one"
    return ""


def _arithmetic(chip: Chip, bound: BoundNode) -> Layer:
    op, y = bound.op(Arithmetic), bound.output
    clamp, factors = activation_clamp(op.activation, y), _factors(bound)
    product = isinstance(op, Mul)
    widened = () if product else (*(f.q31 for f in factors[:2]), *(f.shift for f in factors[:2]), _LEFT_SHIFT)
    values = (
        _X, Expression("x1"), *_numbers(-bound.input(0).zero_point, -bound.input(1).zero_point, *widened), _Y,
        *_numbers(y.zero_point, factors[-1].q31, factors[-1].shift, clamp.low, clamp.high, y.elements),
    )  # fmt: skip
    return replace(_call("call", f"esp_nn_{'mul' if product else 'add'}_elementwise_s8", values), operands=(0, 1))


def _softmax(chip: Chip, bound: BoundNode) -> Layer:
    (factor, least), width = softmax_factor(bound), bound.output.shape[-1]
    rows = bound.output.elements // width
    return _call(
        "softmax",
        "esp_nn_softmax_s8",
        (_X, *_numbers(rows, width, factor.q31, factor.shift, least), _Y),
        check=("esp_nn_get_softmax_scratch_size", _numbers(width, rows), softmax_bytes(width)),
    )


RULES: Mapping[type[Op], Rule] = {
    Conv2D: Rule(_convolution, _windowed_refusal),
    DepthwiseConv2D: Rule(_convolution, _windowed_refusal),
    FullyConnected: Rule(_dense, _dense_refusal, images=False),
    AveragePool2D: Rule(_pool, plain_pool_refusal),
    MaxPool2D: Rule(_pool, plain_pool_refusal),
    Add: Rule(_arithmetic, _arithmetic_refusal, images=False),
    Mul: Rule(_arithmetic, _arithmetic_refusal, images=False),
    Softmax: Rule(_softmax, softmax_refusal, images=False),
}
"""The operators that have a function with the interpreter's bits."""


def covers() -> tuple[Coverage, ...]:
    return tuple(Coverage(op, (DType.INT8,)) for op in RULES)


def refusal(bound: BoundNode) -> str:
    """Why ESP-NN cannot run the node with the interpreter's bits; "" when it can."""
    rule = RULES.get(type(bound.node.op))
    if rule is None:
        return "ESP-NN has no function for this operator that emitc calls"
    if bound.node.op.numerics is not Numerics.TFLITE:
        return f"ESP-NN rounds as TensorFlow Lite does, this model is rounded as {bound.node.op.numerics.engine} does"
    x, y = bound.input(0).dtype, bound.output.dtype
    if x is not DType.INT8 or y is not DType.INT8:
        return f"emitc calls ESP-NN for int8; {x.value} to {y.value} is asked for"
    if rule.images and bound.input(0).shape[0] != 1:
        return "the function takes one image at a time"
    if any(t is not None and max(t.shape, default=0) >= _LARGEST for t in (*bound.inputs, bound.output)):
        return f"a size of {_LARGEST} or more, which its functions cannot count"
    return rule.refusal(bound)


def layer_of(chip: Chip, bound: BoundNode) -> Layer:
    """The call of a node that is not refused."""
    return RULES[type(bound.node.op)].lower(chip, bound)

"""What convolutions, depthwise and transposed convolutions, and matrix products refuse of their operands, and their shapes.

MatMulInteger and ConvInteger have operands of uint8 or int8, each with a zero point, and sums of int32.
Operands  a, b, a_zero or none, b_zero or none. A zero point has its operand's type; it may be computed by the running model
(DynamicQuantizeLinear) or constant, one value, or one for each row of a or output channel of b.
"""

from collections.abc import Sequence

import numpy as np

from emitc.errors import EXPORT_AGAIN
from emitc.ir import Array, BoundNode, DType, Numerics, Op, Shape, Tensor
from emitc.kernels.contract import Parsed, illegal, require_dtypes, require_quantization, require_rank, unsupported
from emitc.kernels.mac import accumulation
from emitc.kernels.shared import int16x8
from emitc.kernels.shared.windows import Window, image_size, onnx_window, require_output, window_of
from emitc.layer import Table
from emitc.numerics.requantize import INT32_MAX, Int64
from emitc.source import SourceNode


def onnx_kernel(node: SourceNode) -> tuple[int, int]:
    """Height and width of the weights' window, [?, KH, KW, ?]; an attribute kernel_shape that differs is refused."""
    weights = node.input(accumulation.WEIGHTS)
    if len(weights.shape) != 4:
        raise node.refusal(f"has weights of rank {len(weights.shape)}", "4 is expected", "export again", weights)
    size = weights.shape[1], weights.shape[2]
    stated = node.attribute("kernel_shape", size)
    if stated != size:
        raise node.refusal(f"has kernel_shape {stated}", f"the weights are {size}", tensor=weights)
    return size


def require_weight_rank(node: SourceNode, rank: int, why: str, hint: str = EXPORT_AGAIN) -> Shape:
    """The shape of the weights; refuses another rank. why: what is expected."""
    weights = node.input(accumulation.WEIGHTS)
    if len(weights.shape) != rank:
        raise node.refusal("has weights of the wrong rank", why, hint, weights)
    return weights.shape


def require_bias_length(bound: BoundNode, channels: int) -> None:
    bias = bound.optional(accumulation.BIAS)
    if bias is not None and bias.shape != (channels,):
        raise illegal(bound, "has a bias of the wrong length", f"{channels} output channels", tensor=bias)


def require_constants(bound: BoundNode) -> None:
    w, bias = bound.input(accumulation.WEIGHTS), bound.optional(accumulation.BIAS)
    if not w.is_constant or (bias is not None and not bias.is_constant):
        what, hint = (
            ("a computed bias", "a constant bias") if w.is_constant else ("computed weights", "constant weights")
        )
        why = "weights and bias must be constants"
        raise unsupported(bound, f"with {what} is not supported", why, f"export the model with {hint}", w)


def require_symmetric_weights(bound: BoundNode) -> None:
    w = bound.input(accumulation.WEIGHTS)
    if w.quantization is not None and any(w.quantization.zero_points):
        why = "weights are symmetric in TFLite's int8 scheme"
        raise illegal(bound, "has weights with a zero point", why, "quantize the weights symmetrically", w)


def require_float_dtypes(bound: BoundNode) -> None:
    require_dtypes(bound, [(DType.FLOAT32,) * (4 if bound.optional(accumulation.BIAS) else 3)])


def check_float_operands(bound: BoundNode, channels: int) -> None:
    """Refuses other types than float32, and a bias of another length. Weights and bias may be computed."""
    require_float_dtypes(bound)
    require_bias_length(bound, channels)


def check_operands(
    bound: BoundNode, weight_axis: int, *, short_bias: bool = True, computed: bool = False, one_zero: bool = False
) -> None:
    """Refuses types, quantizations, and constants that the integer accumulation does not cover.

    weight_axis: dimension of the weights that counts output channels. short_bias: with int16 inputs it may be int32. computed: so
    may the weights be. one_zero: int8 weights with one scale may have a zero point in TFLite.
    """
    x, w, bias, y = bound.input(0), bound.input(accumulation.WEIGHTS), bound.optional(accumulation.BIAS), bound.output
    _check_types(bound, bias, short_bias=short_bias)
    require_quantization(bound, x, y)
    if int16x8.applies(bound):
        int16x8.require_symmetric(bound)
    _check_weights(bound, weight_axis, one_zero=one_zero)
    require_bias_length(bound, w.shape[weight_axis])
    float_scale = bound.node.op.numerics.float_scale
    factors = accumulation.float_factors(bound) if float_scale else accumulation.real_factors(bound)
    lowest = accumulation.SMALLEST_NORMAL if float_scale else 0.0
    limit = int16x8.FACTOR_LIMIT if accumulation.reduced(bound) else accumulation.FACTOR_LIMIT
    if not lowest <= min(factors) <= max(factors) < limit:
        why = f"input scale * weight scale / output scale = {max(factors, key=abs)!r}"
        raise illegal(bound, "has an output scale that is out of proportion", why, "quantize again", y)
    if not computed:
        require_constants(bound)


def _check_types(bound: BoundNode, bias: Tensor | None, *, short_bias: bool) -> None:
    """Refuses types of input, weights, bias and output that do not go together. short_bias: as in `check_operands`."""
    known = (
        (DType.INT16, DType.INT8, DType.INT32, DType.INT16),
        (DType.FLOAT32, DType.INT8, DType.FLOAT32, DType.FLOAT32),
        (DType.FLOAT32, DType.INT8, DType.FLOAT32),
    )
    if bias is not None and bias.dtype not in (DType.INT32, DType.INT64, DType.FLOAT32):
        what = f"has a bias of type {bias.dtype.value}"
        why = "it is added to the accumulator: int32, or int64 and float32 where that is"
        raise illegal(bound, what, why, tensor=bias)
    numerics = bound.node.op.numerics
    widths = (DType.INT8, DType.INT16) if numerics.float_scale else (DType.INT8,)
    added = (DType.INT32,) if bias else ()
    weights = (DType.INT8,) if numerics.float_scale else (DType.INT8, DType.INT4)
    if numerics is Numerics.QDQ:  # those that `recognise-qdq` makes finer for the sake of a bias
        weights = (DType.INT8, DType.INT16)
    combinations = [(a, weight, *added, b) for a in widths for b in widths for weight in weights]
    if not numerics.float_scale:
        combinations += int16x8.combinations(bias is not None, short_bias=short_bias)
    require_dtypes(bound, combinations, known)


def _check_weights(bound: BoundNode, weight_axis: int, *, one_zero: bool) -> None:
    """Refuses scales and zero points of the weights. Arguments are as in `check_operands`."""
    x, w = bound.input(0), bound.input(accumulation.WEIGHTS)
    scales, axis = w.quantization, weight_axis % len(w.shape)
    if scales is None:
        raise illegal(bound, "has weights without a scale", "int8 weights are quantized", "quantize the model fully", w)
    if not scales.per_tensor and scales.axis != axis:
        why = f"one scale, or one per output channel (dimension {axis}) is expected"
        raise illegal(bound, f"has weights quantized along dimension {scales.axis}", why, "quantize again", w)
    zero_fits = one_zero and scales.per_tensor and x.dtype is w.dtype is DType.INT8
    if bound.node.op.numerics is Numerics.TFLITE and not zero_fits:
        require_symmetric_weights(bound)


def require_fitting_channels(bound: BoundNode, *, depthwise: bool = False) -> None:
    """Refuses channels that are not [..., I] and weights [O, KH, KW, I / groups], or [1, KH, KW, I * multiplier] if depthwise."""
    x, w = bound.input(0), bound.input(accumulation.WEIGHTS)
    out, *_, depth = w.shape
    if depthwise:
        fits, weights = min(w.shape) > 0 and out == 1 and depth % x.shape[3] == 0, f"{list(w.shape)}"
    else:
        fits = min(w.shape) > 0 and x.shape[3] % depth == 0 and out % (x.shape[3] // depth) == 0
        weights = f"{depth} to {out}"
    if not fits:
        raise illegal(bound, "has channels that do not fit", f"input {x.shape[3]}, weights {weights}", tensor=w)


def check_convolution(bound: BoundNode, window: Window, *, folded: bool, depthwise: bool = False) -> None:
    """Refuses operands of a convolution with constant weights that no kernel covers. folded: as in `check_accumulator`."""
    x, w, axis = bound.input(0), bound.input(accumulation.WEIGHTS), 3 if depthwise else 0
    require_rank(bound, x, 4)
    require_rank(bound, w, 4)
    floats = accumulation.in_float(bound)
    if floats:
        check_float_operands(bound, w.shape[axis])
    else:
        check_operands(bound, axis, short_bias=not depthwise)
    require_fitting_channels(bound, depthwise=depthwise)
    require_output(bound, window, w.shape[1], w.shape[2])
    if not floats:
        filters = np.moveaxis(accumulation.weights_of(bound), axis, 0).astype(np.int64).reshape(w.shape[axis], -1)
        check_accumulator(bound, filters, folded=folded)


def tflite_window(node: SourceNode, why: str, hint: str = EXPORT_AGAIN) -> Window:
    """The window of a convolution of TFLite over NHWC, of the weights' size. why, hint: of a refusal of another rank."""
    node.counts((2, 3))
    size = image_size(node)
    _, kernel_h, kernel_w, _ = require_weight_rank(node, 4, why, hint)
    return window_of(node, *size, kernel_h, kernel_w, dilated=True)


def onnx_convolution_window(node: SourceNode) -> Window:
    """The window of a convolution of ONNX on NHWC, whose size is that of its weights."""
    return onnx_window(node, *image_size(node), *onnx_kernel(node))


def require_fitting_rows(bound: BoundNode, *, keep_dims: bool) -> None:
    """Refuses an input [..., I] that weights [O, I] do not fit. keep_dims: the output keeps its leading dimensions."""
    x, (out, depth) = bound.input(0), bound.input(accumulation.WEIGHTS).shape
    if depth < 1 or out < 1 or x.elements % depth or (keep_dims and x.shape[-1:] != (depth,)):
        raise illegal(bound, "has an input that does not fit its weights", f"weights take rows of {depth}", tensor=x)


def rows_shape(bound: BoundNode, *, keep_dims: bool) -> Shape:
    """The output of a matrix product with weights [O, I]: [rows, O], or x's leading dimensions and O."""
    x, (out, depth) = bound.input(0), bound.input(accumulation.WEIGHTS).shape
    return (*x.shape[:-1], out) if keep_dims else (x.elements // depth, out)


def window_shape(bound: BoundNode, window: Window, filters: Shape) -> Shape:
    """The output [N, OH, OW, O] of a convolution with filters [O, KH, KW, ...]."""
    batches, height, width, _ = bound.input(0).shape
    return (batches, *window.output(height, width, filters[1], filters[2]), filters[0])


def check_accumulator(bound: BoundNode, filters: Int64, *, folded: bool) -> None:
    """Refuses weights for which some input could take the accumulator out of its type.

    filters: [O, K], every weight that meets an input, per output channel. The bound is on every partial sum: int32, or
    what TFLite Micro requantizes of 64 bits.
    """
    x = bound.input(0)
    zero_point = 0 if folded else x.zero_point
    low, high = x.dtype.range
    reach = max(high - zero_point, zero_point - low)
    worst = np.abs(filters).sum(axis=1) * reach + np.abs(accumulation.bias_of(bound, len(filters)))
    largest, bits = (int16x8.SUM_MAX, 48) if accumulation.reduced(bound) else (INT32_MAX, 32)
    if worst.size and not 0 <= int(worst.min()) <= int(worst.max()) <= largest:
        channel = int(worst.argmax())
        why = f"output channel {channel} can reach {int(worst[channel])}"
        hint = "quantize the model again: weights or bias of this size are not meaningful"
        raise illegal(
            bound, f"can overflow an accumulator of {bits} bits", why, hint, bound.input(accumulation.WEIGHTS)
        )


A, B, A_ZERO, B_ZERO = range(4)
BYTE_TYPES = (DType.UINT8, DType.INT8)
MAX_DEPTH = 1 << 14
"""Products of a sum. Each is under 2**16, and the forms that take zero points out of the sum need one more bit."""


def parsed(op: Op, node: SourceNode) -> Parsed:
    node.counts((2, 4))
    return Parsed(op, (A, B, A_ZERO, B_ZERO))


def require_bytes(bound: BoundNode, depth: int) -> None:
    """Refuses other types than uint8 and int8 to int32, zero points of other types, and sums that can leave int32."""
    a, b, y = bound.input(A), bound.input(B), bound.output
    if a.dtype not in BYTE_TYPES or b.dtype not in BYTE_TYPES or y.dtype is not DType.INT32:
        what = f"of {a.dtype.value} and {b.dtype.value} is not supported"
        raise unsupported(bound, what, "there is code for uint8 and int8", "quantize the model to 8 bits", a)
    for operand, position in ((a, A_ZERO), (b, B_ZERO)):
        zero = bound.optional(position)
        if zero is not None and zero.dtype is not operand.dtype:
            what = f"has a zero point of type {zero.dtype.value}"
            raise illegal(bound, what, f"its operand is {operand.dtype.value}", tensor=zero)
    if depth > MAX_DEPTH:
        what = f"with sums of {depth} products is not supported"
        why = f"an accumulator of 32 bits is sure to hold {MAX_DEPTH}"
        raise unsupported(bound, what, why, "split the operator", b)


def zero_step(bound: BoundNode, position: int, count: int) -> int:
    """0 where one zero point serves all, 1 where each of `count` slices has its own; other shapes are refused."""
    zero = bound.optional(position)
    if zero is None or zero.elements == 1:
        return 0
    if zero.elements == count and count in zero.shape:
        return 1
    what = f"with zero points of shape {list(zero.shape)} is not supported"
    hint = "export the model with one zero point for each operand"
    raise unsupported(bound, what, f"there is code for one, or {count}", hint, zero)


def values(bound: BoundNode, inputs: Sequence[Array | None], position: int) -> Int64:
    """An operand as integers; 0 for a zero point that is left out."""
    tensor = bound.optional(position)
    if tensor is None:
        return np.zeros((), np.int64)
    value = inputs[position]
    return (tensor.array() if value is None else value).astype(np.int64)


def zero_points(bound: BoundNode, positions: Sequence[int]) -> tuple[tuple[int, ...], tuple[Table, ...]]:
    """Positions of the zero points that are operands, and tables for those that are left out."""
    roles = {A_ZERO: ("a_zero", A), B_ZERO: ("b_zero", B)}
    present = tuple(p for p in positions if bound.optional(p) is not None)
    absent = tuple(
        Table(roles[p][0], bound.input(roles[p][1]).dtype.c_type, (0,), "no zero point")
        for p in positions
        if p not in present
    )
    return present, absent


def constant_zero(bound: BoundNode, position: int) -> bool:
    zero: Tensor | None = bound.optional(position)
    return zero is None or zero.is_constant

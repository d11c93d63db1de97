"""Changes of a float model that leave less noise when it is quantized, and nearly the same results in float32.

Splitting heads: a box of 300 pixels and a score of 0.3 in one int8 tensor leave the score two codes. The layer that makes such an
output becomes two, one for the channels with large values and one for those with small ones. A Concat that stays in float32 joins
both. So each part has a scale of its own, and the model's interface stays as it is.

Cross-layer equalization: an activation in int8 has one scale for all channels, so a channel with small values has few codes.
Where two layers follow each other, the first one's channel may be divided by a factor by which the second one's weights are
multiplied: Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction, 2019, section 4.1. Here the
first layer's weights have a scale for each channel already, so what is balanced is the range of the activations on the samples
against the second layer's weights. Factors are powers of two. A product with one rounds nothing, so that the float model's
outputs stay equal to the bit, as long as no value leaves the range of normal numbers.

Bias correction: rounding a weight shifts the sums of its channel by the error of the weight times the mean of what it is
multiplied by. Where that mean is not zero, as after a ReLU, the channel's output is shifted by a constant, which a bias removes:
the same paper, section 4.2. Means are those of the samples.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emitc.calibrate.float_graph import FloatGraph, Floats, Integers, Statistics, attribute
from emitc.calibrate.packages import package
from emitc.records import dataclass

StatisticsOf = Callable[[bytes], Statistics]
"""Of the tensors of an ONNX model in float32, on the samples."""


@dataclass(frozen=True, slots=True)
class Remedied:
    """model: the float model, equalized and with its heads split. stay: operators of it that have to stay in
    float32."""

    model: bytes
    stay: tuple[str, ...] = ()


def remedied(message: Any, remedies: Sequence[str], kept: Sequence[str], statistics_of: StatisticsOf) -> Remedied:
    """The float model with those of the remedies that need no quantized one. message: an ONNX message, which is
    changed.

    kept: names of operators that are not split.
    """
    graph, stay = FloatGraph(message), tuple[str, ...]()
    if "heads" in remedies or "equalize" in remedies:
        statistics = statistics_of(_bytes(message))
        stay = split_heads(graph, statistics, kept) if "heads" in remedies else ()
        if "equalize" in remedies:
            equalize(graph, statistics)
    return Remedied(_bytes(message), stay)


def with_corrected_bias(message: Any, quantized: Any, statistics_of: StatisticsOf) -> bytes:
    """The float model whose biases take off the mean errors of the quantized one's weights. Both are ONNX messages."""
    correct_bias(FloatGraph(message), quantized, statistics_of(_bytes(message)))
    return _bytes(message)


def _bytes(message: Any) -> bytes:
    return bytes(message.SerializeToString(deterministic=True))


# ---- heads ----


RATIO = 8.0
"""Between the ranges of two neighbours, in order of size, from which a head is split: small ones lose three of eight
bits."""
_MOVING = frozenset(("Flatten", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"))
"""Operators between a head and the model's output that copy values."""


def split_heads(graph: FloatGraph, statistics: Statistics, kept: Sequence[str] = ()) -> tuple[str, ...]:
    """Splits the heads in place; names of the operators that have to stay in float32, none where nothing is split.

    statistics: of the float model's tensors. kept: names of operators that are not split. A Concat that is an output
    stays in float32 where its operands differ by so much.
    """
    stay: list[str] = []
    for output in sorted(graph.outputs):
        node, moving = graph.made.get(output), []
        while node is not None and node.op_type in _MOVING and graph.only_reader(node.input[0]) is not None:
            moving.append(_named(graph, node))
            node = graph.made.get(node.input[0])
        if node is None or node.name in kept:
            continue
        joining: list[str] = []
        if node.op_type == "Concat":
            ranges = [float(statistics[name].largest.max()) for name in node.input if name in statistics]
            if len(ranges) == len(node.input) and _large(np.array(ranges)) is not None:
                joining = [_named(graph, node)]
        elif node.output[0] in statistics:
            joining = _split(graph, node, statistics[node.output[0]].largest)
        stay += [*joining, *moving] if joining else []
    return tuple(stay)


def _large(ranges: Floats) -> NDArray[np.bool_] | None:
    """Which of the ranges are the large ones, where two neighbours in order of size differ by RATIO; None where none
    do."""
    order = np.sort(ranges[ranges > 0].astype(np.float64))
    if len(order) < 2:
        return None
    ratios = order[1:] / order[:-1]
    place = int(ratios.argmax())
    return np.asarray(ranges >= order[place + 1]) if ratios[place] >= RATIO else None


def _named(graph: FloatGraph, node: Any) -> str:
    """The operator's name, which it gets where it has none."""
    node.name = node.name or graph.unused(f"{node.op_type}_{node.output[0]}")
    return str(node.name)


def _split(graph: FloatGraph, node: Any, ranges: Floats) -> list[str]:
    """Names of the operators that join the two layers which stand for one; none where it is not split."""
    weights = graph.weights(node)
    large = _large(ranges)
    bias = graph.bias(node, len(ranges))
    fits = weights is not None and len(ranges) == len(weights) and node.op_type != "MatMul"
    if not fits or weights is None or large is None or bias is None:
        return []
    helper = package("onnx.helper")
    rows = {"large": np.flatnonzero(large), "small": np.flatnonzero(~large)}
    parts = [_part(graph, node, suffix, weights[some], bias[some]) for suffix, some in rows.items()]
    order = np.concatenate(list(rows.values()))
    in_order = bool((np.diff(order) > 0).all())
    joined = node.output[0] if in_order else graph.unused(f"{node.output[0]}_joined")
    joining = [helper.make_node("Concat", [part.output[0] for part in parts], [joined], axis=1)]
    if not in_order:
        places = graph.add_constant(f"{node.output[0]}_order", np.argsort(order))
        joining.append(helper.make_node("Gather", [joined, places], [node.output[0]], axis=1))
    names = [_named(graph, join) for join in joining]
    graph.replace(node, [*parts, *joining])
    return names


def _part(graph: FloatGraph, node: Any, suffix: str, weights: Floats, bias: Floats) -> Any:
    """A layer with some of the channels of another one."""
    part = type(node)()
    part.CopyFrom(node)
    part.output[0] = graph.unused(f"{node.output[0]}_{suffix}")
    part.name = graph.unused(f"{node.name or node.output[0]}_{suffix}")
    del part.input[1:]
    graph.set_weights(part, weights)
    if bias.any():
        graph.own_constant(part, 2, bias)
    return part


# ---- equalization ----


_HOMOGENEOUS = frozenset(("AveragePool", "Dropout", "GlobalAveragePool", "Identity", "LeakyRelu", "MaxPool", "Relu"))
"""Operators f on channels with f(c x) = c f(x) for c > 0."""
_MOST = 12
"""Factors are 2**-12 to 2**12."""


@dataclass(frozen=True, slots=True)
class _Pair:
    """Two layers of which the second alone reads the first. reached: the tensor that the second one reads."""

    first: Any
    second: Any
    reached: str


def equalize(graph: FloatGraph, statistics: Statistics) -> int:
    """Balances every pair of layers that allows it, in place; the number of pairs whose factors are not all 1.

    statistics: of the float model's tensors, whose largest values decide the factors. A ReLU6 between two layers
    keeps them as they are, since its bound belongs to no channel.
    """
    changed = 0
    for node, _ in graph.weighted():
        pair = _pair(graph, node)
        if pair is not None and pair.reached in statistics:
            if "MatMul" in (pair.first.op_type, pair.second.op_type) and statistics[pair.reached].mean.ndim > 1:
                continue  # Its channels are the last dimension; statistics are those of dimension 1.
            changed += _balanced(graph, pair, statistics[pair.reached].largest)
    return changed


def _pair(graph: FloatGraph, first: Any) -> _Pair | None:
    """The layer with the one that alone reads it, through operators that keep channels; None where there is none."""
    reached = first.output[0]
    reader = graph.only_reader(reached)
    while reader is not None and _keeps_channels(reader):
        reached = reader.output[0]
        reader = graph.only_reader(reached)
    if reader is None or graph.weights(reader) is None or reader.input[0] != reached:
        return None
    return _Pair(first, reader, reached)


def _keeps_channels(node: Any) -> bool:
    """Whether an operator treats a factor on a channel as one on its result."""
    return node.op_type in _HOMOGENEOUS or (node.op_type == "Flatten" and attribute(node, "axis", 1) == 1)


def _balanced(graph: FloatGraph, pair: _Pair, largest: Floats) -> bool:
    """Divides each channel of the first layer by a factor; False where the layers do not fit, or all factors are 1."""
    first, second = graph.weights(pair.first), graph.weights(pair.second)
    assert first is not None and second is not None
    channels, group = len(first), _groups(pair.second)
    inputs, bias = second.shape[1] * group, graph.bias(pair.first, channels)
    if inputs % channels or bias is None or len(largest) not in (channels, inputs):
        return False
    columns = np.repeat(np.arange(channels), inputs // channels)  # of each input the channel that it reads
    factors = _factors(second, columns, largest, channels)
    if factors is None or (factors == 1).all():
        return False
    graph.set_weights(pair.first, first / factors.reshape(-1, *[1] * (first.ndim - 1)))
    if bias.any():
        graph.own_constant(pair.first, 2, bias / factors)
    rows = len(second) // group
    by_input = factors[columns].reshape(group, 1, second.shape[1]).repeat(rows, axis=1).reshape(second.shape[:2])
    graph.set_weights(pair.second, second * by_input.reshape(*second.shape[:2], *[1] * (second.ndim - 2)))
    return True


def _groups(node: Any) -> int:
    return int(attribute(node, "group", 1)) if node.op_type == "Conv" else 1


def _factors(weights: Floats, columns: Integers, largest: Floats, channels: int) -> Floats | None:
    """By which each channel of the first layer is divided; None where no channel has a range. weights: of the second."""
    range_of = np.zeros(channels)
    places = columns if len(largest) == len(columns) else np.arange(channels)
    np.maximum.at(range_of, places, largest.astype(np.float64))
    group = len(columns) // weights.shape[1]
    if group == channels and weights.shape[1] == 1:
        # Each output channel of a depthwise convolution has a scale of its own: the factor costs it nothing.
        wanted = range_of
    else:
        weight = np.zeros(channels)
        parts = np.abs(weights).reshape(group, len(weights) // group, weights.shape[1], -1)
        np.maximum.at(weight, columns, parts.max(axis=(1, 3), initial=0).reshape(-1).astype(np.float64))
        wanted = np.sqrt(range_of / np.where(weight > 0, weight, 1))
        wanted[weight == 0] = 0
    used = wanted > 0
    if not used.any():
        return None
    exponents = np.where(used, np.rint(np.log2(np.where(used, wanted, 1) / wanted.max())), 0)
    return np.asarray(np.exp2(np.clip(exponents, -_MOST, _MOST)), np.float32)


# ---- bias correction ----


def correct_bias(graph: FloatGraph, quantized: Any, statistics: Statistics) -> int:
    """Changes the biases of convolutions and dense layers in place; the number of layers that were changed.

    quantized: the int8 model that was made of the graph, as an ONNX message, whose weights tell the error.
    statistics: of the float model's tensors.
    """
    rounded = _rounded_weights(quantized)
    changed = 0
    for node, weights in graph.weighted():
        stored, mean = rounded.get(node.input[1]), statistics.get(node.input[0])
        bias = graph.bias(node, len(weights))
        if stored is None or mean is None or bias is None or node.op_type == "MatMul":
            continue
        if node.op_type == "Gemm" and not attribute(node, "transB", 0):
            stored = stored.T
        shift = _shift(node, stored.astype(np.float64) - weights, mean.mean.astype(np.float64))
        if shift is not None and shift.any():
            graph.own_constant(node, 2, (bias - shift).astype(np.float32))
            changed += 1
    return changed


def _shift(node: Any, error: Floats, mean: Floats) -> Floats | None:
    """Mean error of each output channel; None where the input does not fit.

    error: of the weights, [outputs, inputs of a group, ...]. mean: of the input, [channels, ...].
    """
    group, inputs = _groups(node), error.shape[1]
    if mean.ndim != error.ndim - 1 or len(mean) != inputs * group or len(error) % group:
        return None
    taps = _tap_means(node, error.shape[2:], mean).reshape(group, -1, 1)
    alpha = 1.0 if node.op_type == "Conv" else attribute(node, "alpha", 1.0)
    return np.asarray(alpha * (error.reshape(group, len(error) // group, -1) @ taps).reshape(-1))


def _tap_means(node: Any, sizes: tuple[int, ...], mean: Floats) -> Floats:
    """What each position of a window is multiplied by in the mean over all outputs, [channels, *sizes]: padding is 0."""
    axes = len(sizes)
    if attribute(node, "auto_pad", b"NOTSET") in (b"SAME_UPPER", b"SAME_LOWER"):
        return np.broadcast_to(mean.mean(axis=tuple(range(1, axes + 1)), keepdims=True), (len(mean), *sizes)).copy()
    pads, strides = attribute(node, "pads", [0] * 2 * axes), attribute(node, "strides", [1] * axes)
    dilations = attribute(node, "dilations", [1] * axes)
    padded = np.pad(mean, [(0, 0), *zip(pads[:axes], pads[axes:], strict=True)])
    means = np.zeros((len(mean), *sizes))
    for tap in np.ndindex(*sizes):
        places = [slice(None)]
        for place, size, stride, dilation, length in zip(tap, sizes, strides, dilations, padded.shape[1:], strict=True):
            places.append(slice(place * dilation, length - (size - 1 - place) * dilation, stride))
        means[(slice(None), *tap)] = padded[tuple(places)].mean(axis=tuple(range(1, axes + 1)))
    return means


def _rounded_weights(quantized: Any) -> dict[str, Floats]:
    """Weights as the int8 model has them, in float64, by the name of the float constant that they were made of."""
    numpy_helper = package("onnx.numpy_helper")
    constants = {tensor.name: tensor for tensor in quantized.graph.initializer}
    values: dict[str, Floats] = {}
    for node in quantized.graph.node:
        if node.op_type != "DequantizeLinear" or any(name not in constants for name in node.input):
            continue
        codes, scale, *zero = (np.asarray(numpy_helper.to_array(constants[name]), np.float64) for name in node.input)
        if scale.size > 1:
            shape = [1] * codes.ndim
            shape[attribute(node, "axis", 1)] = scale.size
            scale, zero = scale.reshape(shape), [part.reshape(shape) for part in zero]
        values[node.input[0].removesuffix("_quantized")] = (codes - (zero[0] if zero else 0)) * scale
    return values

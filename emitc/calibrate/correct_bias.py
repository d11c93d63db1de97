"""Bias correction: the mean error that rounded weights make in a layer's output is taken off its bias.

Rounding a weight shifts the sums of its channel by the error of the weight times the mean of what it is multiplied
by. Where that mean is not zero, as after a ReLU, the channel's output is shifted by a constant, which a bias removes:
Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction, 2019, section 4.2. Means are
those of the samples.
"""

from typing import Any

import numpy as np

from emitc.calibrate.float_graph import FloatGraph, Floats, Statistics, attribute
from emitc.calibrate.packages import package


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
    group = attribute(node, "group", 1) if node.op_type == "Conv" else 1
    inputs = error.shape[1]
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

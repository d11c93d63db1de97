"""Cross-layer equalization: channels between two layers get ranges of nearly one size, and the results stay equal.

An activation in int8 has one scale for all channels, so a channel with small values has few codes. Where two layers
follow each other, the first one's channel may be divided by a factor by which the second one's weights are
multiplied: Nagel et al., Data-Free Quantization Through Weight Equalization and Bias Correction, 2019, section 4.1.
Here the first layer's weights have a scale for each channel already, so what is balanced is the range of the
activations on the samples against the second layer's weights.

Factors are powers of two. A product with one rounds nothing, so that the float model's outputs stay equal to the bit,
as long as no value leaves the range of normal numbers.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from emitc.calibrate.float_graph import FloatGraph, Floats, Integers, Statistics, attribute

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
            factors = _factors(graph, pair, statistics[pair.reached].largest)
            if factors is not None and (factors != 1).any():
                _apply(graph, pair, factors)
                changed += 1
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


def _columns(graph: FloatGraph, pair: _Pair, channels: int) -> Integers | None:
    """Of each input of the second layer the channel of the first one that it reads; None where they do not fit."""
    weights = graph.weights(pair.second)
    assert weights is not None
    group = attribute(pair.second, "group", 1) if pair.second.op_type == "Conv" else 1
    inputs = weights.shape[1] * group
    return np.repeat(np.arange(channels), inputs // channels) if inputs % channels == 0 else None


def _factors(graph: FloatGraph, pair: _Pair, largest: Floats) -> Floats | None:
    """By which each channel of the first layer is divided, [channels]; None where the layers do not fit."""
    first, second = graph.weights(pair.first), graph.weights(pair.second)
    assert first is not None and second is not None
    channels = len(first)
    columns = _columns(graph, pair, channels)
    if columns is None or len(largest) not in (channels, len(columns)) or graph.bias(pair.first, channels) is None:
        return None
    range_of = np.zeros(channels)
    places = columns if len(largest) == len(columns) else np.arange(channels)
    np.maximum.at(range_of, places, largest.astype(np.float64))
    group = attribute(pair.second, "group", 1) if pair.second.op_type == "Conv" else 1
    if group == channels and second.shape[1] == 1:
        # Each output channel of a depthwise convolution has a scale of its own: the factor costs it nothing.
        wanted = range_of
    else:
        weight = np.zeros(channels)
        np.maximum.at(weight, columns, _of_inputs(second, group))
        wanted = np.sqrt(range_of / np.where(weight > 0, weight, 1))
        wanted[weight == 0] = 0
    used = wanted > 0
    if not used.any():
        return None
    exponents = np.where(used, np.rint(np.log2(np.where(used, wanted, 1) / wanted.max())), 0)
    return np.asarray(np.exp2(np.clip(exponents, -_MOST, _MOST)), np.float32)


def _of_inputs(weights: Floats, group: int) -> Floats:
    """The largest absolute weight of each input, [group * inputs of a group]."""
    parts = np.abs(weights).reshape(group, len(weights) // group, weights.shape[1], -1)
    return np.asarray(parts.max(axis=(1, 3), initial=0).reshape(-1), np.float64)


def _apply(graph: FloatGraph, pair: _Pair, factors: Floats) -> None:
    first, second = graph.weights(pair.first), graph.weights(pair.second)
    assert first is not None and second is not None
    channels = len(first)
    bias, columns = graph.bias(pair.first, channels), _columns(graph, pair, channels)
    assert bias is not None and columns is not None
    graph.set_weights(pair.first, first / factors.reshape(-1, *[1] * (first.ndim - 1)))
    if bias.any():
        graph.own_constant(pair.first, 2, bias / factors)
    group = attribute(pair.second, "group", 1) if pair.second.op_type == "Conv" else 1
    rows = len(second) // group
    by_input = factors[columns].reshape(group, 1, second.shape[1]).repeat(rows, axis=1).reshape(second.shape[:2])
    graph.set_weights(pair.second, second * by_input.reshape(*second.shape[:2], *[1] * (second.ndim - 2)))

"""Which share of a float tensor's values is 0, where a layer limits its outputs to 0 and more.

Software routines for floats take a short way for 0, so the share decides what such a layer costs. It is estimated without a run:
means and variances of each channel are propagated through the layers as those of independent values with a normal distribution,
and a limit of 0 makes all values below it 0.
"""

from math import erf

import numpy as np
from numpy.typing import NDArray

from emitc.backends.partition import Partition
from emitc.ir import BoundNode, DType, Tensor
from emitc.kernels.mac.accumulation import BIAS, WEIGHTS
from emitc.layer import Layer
from emitc.target import FEATURES

Channels = NDArray[np.float64]
Moments = tuple[Channels, Channels]
"""Means and variances by channel, the last dimension."""
_INPUT = (0.0, 1.0 / 3.0)
"""Mean and variance of the samples of `emitc.verify.reference`: from -1 to 1."""
_PRODUCTS = ("conv_2d", "depthwise", "fully_connected", "matmul", "gemm")
"""Kernels of which one of the first two operands is weights of the other one's channels, and the third one a bias."""
_DENSITY = 0.3989422804014327
"""1 / sqrt(2 pi)."""


def zero_shares(partition: Partition) -> dict[str, float]:
    """By the names of tensors that a layer limits to 0 and more; none where no layer computes floats in software."""
    if not any(_in_software(layer) for layer in partition.layers.values()):
        return {}
    known: dict[str, Moments] = {}
    shares: dict[str, float] = {}
    for bound in partition.graph.bound():
        layer = partition.layers.get(bound.node.index)
        with np.errstate(all="ignore"):
            moments = _moments(bound, known, layer.kernel_name if layer is not None else "")
            share, bounded = limited(moments)
        if layer is not None and is_limited(layer):
            moments = bounded
            shares |= dict.fromkeys(bound.node.outputs, share)
        elif layer is None and bound.node.inputs and bound.node.inputs[0] in shares:
            shares |= dict.fromkeys(bound.node.outputs, shares[bound.node.inputs[0]])
        known |= dict.fromkeys(bound.node.outputs, moments)
    return shares


def _in_software(layer: Layer) -> bool:
    words = layer.kernel_name.split("_")
    return "float" in words and not any(feature in words for feature in FEATURES)


def is_limited(layer: Layer) -> bool:
    """Whether a layer of floats limits its outputs to 0 and more."""
    return layer.kernel_name.startswith("relu") or any(p.name == "low" and str(p.value) == "0.0" for p in layer.params)


def _of(tensor: Tensor, known: dict[str, Moments]) -> Moments:
    channels = tensor.shape[-1] if tensor.shape else 1
    own = known.get(tensor.name)
    if own is None:
        return np.full(channels, _INPUT[0]), np.full(channels, _INPUT[1])
    if len(own[0]) == channels:
        return own
    return np.full(channels, own[0].mean()), np.full(channels, own[1].mean() + own[0].var())


def _moments(bound: BoundNode, known: dict[str, Moments], kernel: str) -> Moments:
    """Of a node's first output, before its limits."""
    tensors = [tensor for tensor in bound.inputs if tensor is not None and tensor.data is None]
    constants = {
        position: np.frombuffer(tensor.data, "<f4").astype(np.float64).reshape(tensor.shape)
        for position, tensor in enumerate(bound.inputs)
        if tensor is not None and tensor.data is not None and tensor.dtype is DType.FLOAT32
    }
    weights, bias = constants.get(0, constants.get(WEIGHTS)), constants.get(BIAS)
    inputs = [_of(tensor, known) for tensor in tensors]
    channels = bound.output.shape[-1] if bound.output.shape else 1
    if inputs and weights is not None and weights.ndim > 1 and kernel.startswith(_PRODUCTS):
        mean, variance = weighted(inputs[0], weights, channels)
        return mean + (bias.reshape(-1) if bias is not None and bias.size == channels else 0.0), variance
    if len(inputs) == 2 and len(inputs[0][0]) == len(inputs[1][0]) == channels:
        return inputs[0][0] + inputs[1][0], inputs[0][1] + inputs[1][1]
    return _of(bound.output, {bound.output.name: inputs[0]} if inputs else {})


def weighted(inputs: Moments, weights: Channels, channels: int) -> Moments:
    """Sums of weighted inputs: filters of all channels of the input, or of one channel each."""
    mean, variance = inputs
    depth = weights.shape[-1]
    if weights.shape[0] == channels and depth == len(mean):
        filters = weights.reshape(channels, -1, depth).sum(axis=1)
        return filters @ mean, (weights.reshape(channels, -1, depth) ** 2).sum(axis=1) @ variance
    if depth == channels:
        taps = weights.reshape(-1, channels)
        own = np.resize(mean, channels), np.resize(variance, channels)
        return taps.sum(axis=0) * own[0], (taps**2).sum(axis=0) * own[1]
    return np.resize(mean, channels), np.resize(variance, channels)


def limited(moments: Moments) -> tuple[float, Moments]:
    """The share below 0, and the moments of what is left with 0 there."""
    mean, variance = moments
    sigma = np.sqrt(np.maximum(variance, 1e-30))
    ratio = mean / sigma
    above = np.array([0.5 * (1 + erf(value / 2**0.5)) for value in ratio])
    density = _DENSITY * np.exp(-0.5 * ratio**2)
    first = mean * above + sigma * density
    second = (mean**2 + variance) * above + mean * sigma * density
    share = float(np.nan_to_num(1 - above.mean()))
    return min(1.0, max(0.0, share)), (first, np.maximum(second - first**2, 0.0))

"""Channels that hold one value whatever the input is are neither computed nor stored; their readers get it in the bias.

Training leaves such channels after rectifiers: the sum is negative for every input, or so is what the channel adds to
any later one. The proof is interval arithmetic on the quantized weights, layer by layer from the model's input on:
every channel has a lowest and a highest value; where they are equal the channel is constant. Bit for bit the model's
outputs stay.

Legal where all that reads the channel can do without: convolutions without groups and fully connected layers, by a term
in their bias (after padding only if the value is the zero point, which adds nothing); and what works channel by channel and is
itself read by such only. Channels go in fours, as kernels do.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from emitc.ir import BoundNode, DType, Graph, Node, Tensor, stored
from emitc.kernels.convolution.conv_2d import Conv2D
from emitc.kernels.convolution.depthwise_conv_2d import DepthwiseConv2D
from emitc.kernels.mac.accumulation import BIAS, WEIGHTS, bias_of, float_factors, in_float, real_factors, requantization
from emitc.kernels.matrix.fully_connected import FullyConnected
from emitc.kernels.pooling.pool_ops import AveragePool2D, MaxPool2D
from emitc.numerics.requantize import INT32_MAX, activation_clamp
from emitc.passes.rewriter import free_name, same_scale
from emitc.records import dataclass, replace

Int64 = NDArray[np.int64]
TOGETHER = 4
"""Channels are kept up to a multiple of this."""
_LARGEST = 2.0**30
"""Outputs from which on the addition of a zero point may wrap, so that larger sums give no larger outputs."""


@dataclass(frozen=True, slots=True)
class Range:
    """Lowest and highest quantized value of each channel, the last dimension."""

    low: Int64
    high: Int64

    @property
    def constant(self) -> NDArray[np.bool_]:
        """Which channels have one value."""
        return np.asarray(self.low == self.high)


def drop_constant_channels(graph: Graph) -> Graph:
    ranges: dict[str, Range] = {}
    for bound in graph.bound():
        if len(bound.outputs) == 1 and bound.output.dtype is DType.INT8 and bound.output.shape:
            value_range = _range_of(graph, bound, ranges)
            if value_range is not None:
                ranges[graph.root(bound.output.name).name] = value_range
    kept: dict[str, Int64] = {}
    for group in _groups(graph):
        keep = _kept(graph, group, ranges)
        if keep is not None:
            kept |= dict.fromkeys(group, keep)
    return _Rewriting(graph, ranges, kept).graph() if kept else graph


# ---- ranges ----


def _plain(bound: BoundNode) -> bool:
    """Whether a convolution or fully connected layer is one of bytes whose weights are known bytes without zero points."""
    op, w, bias = bound.node.op, bound.input(WEIGHTS), bound.optional(BIAS)
    assert isinstance(op, Conv2D | DepthwiseConv2D | FullyConnected)
    if in_float(bound) or (bound.input(0).dtype, w.dtype, bound.output.dtype) != (DType.INT8,) * 3:
        return False
    if not w.is_constant or w.quantization is None or any(w.quantization.zero_points) or op.zero_point_folded:
        return False
    return bias is None or bias.is_constant


def _mixes(bound: BoundNode) -> bool:
    """Whether each output channel reads all input channels, and input channels are those of the weights' last dimension."""
    op = bound.node.op
    if not isinstance(op, Conv2D | FullyConnected) or not _plain(bound):
        return False
    return bound.input(WEIGHTS).shape[-1] == bound.input(0).shape[-1]


def _by_channel(bound: BoundNode) -> bool:
    """Whether output channel c reads input channel c alone."""
    op, x, y = bound.node.op, bound.input(0), bound.output
    if isinstance(op, DepthwiseConv2D):
        return _plain(bound) and x.shape[-1] == y.shape[-1]
    if not isinstance(op, AveragePool2D | MaxPool2D) or (isinstance(op, AveragePool2D) and op.count_padding):
        return False
    pool = x.dtype is y.dtype is DType.INT8
    return pool and x.quantization is not None and same_scale(x, y)


def _input_range(graph: Graph, tensor: Tensor, ranges: Mapping[str, Range]) -> Range:
    """What is known of a tensor's channels."""
    stated = ranges.get(graph.root(tensor.name).name)
    channels = tensor.shape[-1]
    if stated is not None and len(stated.low) == channels:
        return stated
    low, high = tensor.dtype.range
    return Range(np.full(channels, low, np.int64), np.full(channels, high, np.int64))


def _range_of(graph: Graph, bound: BoundNode, ranges: Mapping[str, Range]) -> Range | None:
    """Of the output of an operator, None where nothing is known of it."""
    if not bound.inputs or bound.inputs[0] is None or not bound.input(0).shape:
        return None
    op = bound.node.op
    if isinstance(op, AveragePool2D | MaxPool2D) and _by_channel(bound):
        before, clamp = _input_range(graph, bound.input(0), ranges), activation_clamp(op.activation, bound.output)
        return Range(np.clip(before.low, clamp.low, clamp.high), np.clip(before.high, clamp.low, clamp.high))
    if not _mixes(bound) and not (isinstance(op, DepthwiseConv2D) and _by_channel(bound)):
        return None
    assert isinstance(op, Conv2D | DepthwiseConv2D | FullyConnected)
    x, y, w = bound.input(0), bound.output, bound.input(WEIGHTS).array().astype(np.int64)
    zero_point = x.zero_point
    known = _input_range(graph, x, ranges)
    low, high = known.low - zero_point, known.high - zero_point
    if not isinstance(op, FullyConnected) and op.window.padding.any:
        low, high = np.minimum(low, 0), np.maximum(high, 0)
    axes = (0, 1, 2) if isinstance(op, DepthwiseConv2D) else tuple(range(1, w.ndim))
    bias = bias_of(bound, y.shape[-1])
    sums = np.stack([
        bias + np.minimum(w * low, w * high).sum(axis=axes),
        bias + np.maximum(w * low, w * high).sum(axis=axes),
    ])  # fmt: skip
    factors = np.array(float_factors(bound) if op.numerics.float_scale else real_factors(bound))
    if np.abs(sums).max() > INT32_MAX or (np.abs(sums) * factors).max() >= _LARGEST:
        return None
    ends = requantization(bound).apply(sums, y.zero_point, activation_clamp(op.activation, y), y.dtype)
    return Range(ends[0].astype(np.int64), ends[1].astype(np.int64))


# ---- what can go ----


def _groups(graph: Graph) -> list[list[str]]:
    """Tensors that have their channels from each other, by roots; the first one is made by an operator that mixes channels."""
    groups: dict[str, list[str]] = {}
    head: dict[str, str] = {}
    for bound in graph.bound():
        if len(bound.outputs) != 1 or bound.output.dtype is not DType.INT8:
            continue
        root = bound.output.name
        if bound.inputs and bound.inputs[0] is not None and isinstance(bound.node.op, Conv2D | FullyConnected):
            if _plain(bound):
                groups[root], head[root] = [root], root
        elif isinstance(bound.node.op, DepthwiseConv2D | AveragePool2D | MaxPool2D) and _by_channel(bound):
            source = graph.root(bound.input(0).name).name
            if source in head:
                head[root] = head[source]
                groups[head[source]].append(root)
    return list(groups.values())


def _kept(graph: Graph, group: list[str], ranges: Mapping[str, Range]) -> Int64 | None:
    """The channels that must stay; None where all must."""
    channels = graph.tensor(group[0]).shape[-1]
    going = np.ones(channels, bool)
    absorbed = False
    for root in group:
        for tensor in graph.tensors:
            name = tensor.name
            if graph.root(name).name != root:
                continue
            if name in graph.outputs or tensor.is_state or tensor.order or tensor.shape[-1:] != (channels,):
                return None
            for node in graph.consumers(name):
                bound = graph.bind(node)
                if node.inputs[0] != name or name in node.inputs[1:] or len(node.outputs) != 1:
                    return None
                if graph.root(node.outputs[0]).name in group:
                    continue
                if not _mixes(bound):
                    return None
                absorbed = True
                going &= _absorbable(bound, ranges.get(root))
    kept = np.flatnonzero(~going)
    if not absorbed or len(kept) == channels:
        return None
    more = min(-(-max(len(kept), 1) // TOGETHER) * TOGETHER, channels) - len(kept)
    if len(kept) + more == channels:
        return None
    return np.sort(np.concatenate([kept, np.flatnonzero(going)[:more]]))


def _absorbable(bound: BoundNode, known: Range | None) -> NDArray[np.bool_]:
    """Which channels of its input an operator that mixes channels can do without."""
    x, op = bound.input(0), bound.node.op
    if known is None:
        return np.zeros(x.shape[-1], bool)
    padded = isinstance(op, Conv2D) and op.window.padding.any
    constant = known.constant & (known.low == x.zero_point) if padded else known.constant
    left = bias_of(bound, bound.input(WEIGHTS).shape[0]) + _share(bound, known, constant)
    return constant if np.abs(left).max() <= INT32_MAX else np.zeros(x.shape[-1], bool)


def _share(bound: BoundNode, known: Range, channels: NDArray[np.bool_]) -> Int64:
    """What these channels, each constant, add to every sum."""
    x, w = bound.input(0), bound.input(WEIGHTS).array().astype(np.int64)
    values = np.where(channels, known.low - x.zero_point, 0)
    return np.asarray((w * values).sum(axis=tuple(range(1, w.ndim))), np.int64)


# ---- the new graph ----


class _Rewriting:
    """Makes the graph in which every tensor of `kept` has these channels only."""

    def __init__(self, graph: Graph, ranges: Mapping[str, Range], kept: Mapping[str, Int64]) -> None:
        self._graph = graph
        self._ranges = ranges
        self._kept = kept
        self._added: list[Tensor] = []
        self._taken = {tensor.name for tensor in graph.tensors}

    def graph(self) -> Graph:
        tensors = tuple(map(self._tensor, self._graph.tensors))
        nodes = tuple(self._node(bound) for bound in self._graph.bound())
        used = {name for node in nodes for name in node.inputs}
        tensors = tuple(t for t in tensors if not t.is_constant or t.name in used or t.name in self._graph.outputs)
        return replace(self._graph, tensors=(*tensors, *self._added), nodes=nodes)

    def _tensor(self, tensor: Tensor) -> Tensor:
        kept = self._kept.get(self._graph.root(tensor.name).name)
        if kept is None:
            return tensor
        return replace(tensor, shape=(*tensor.shape[:-1], len(kept)), channels=tuple(kept.tolist()))

    def _node(self, bound: BoundNode) -> Node:
        node, op = bound.node, bound.node.op
        if not isinstance(op, Conv2D | DepthwiseConv2D | FullyConnected) or bound.inputs[0] is None:
            return node
        source = self._graph.root(bound.input(0).name).name
        into = self._kept.get(source)
        out = self._kept.get(self._graph.root(bound.output.name).name)
        if into is None and out is None:
            return node
        w = bound.input(WEIGHTS)
        values, bias = w.array(), bias_of(bound, bound.output.shape[-1])
        if isinstance(op, DepthwiseConv2D):
            assert out is not None
            values = values[..., out]
        else:
            if into is not None:
                known = self._ranges[source]
                gone = np.ones(len(known.low), bool)
                gone[into] = False
                bias = bias + _share(bound, known, gone)
                values = values[..., into]
            values = values if out is None else values[out]
        bias = bias if out is None else bias[out]
        weights = self._constant(
            f"{w.name}/kept", replace(w, shape=values.shape, data=stored(values, w.dtype)), out, w.shape
        )
        summand = Tensor("", DType.INT32, bias.shape, data=bias.astype(np.int32).tobytes())
        return replace(node, inputs=(node.inputs[0], weights, self._constant(f"{w.name}/bias", summand, None, ())))

    def _constant(self, name: str, tensor: Tensor, out: Int64 | None, before: tuple[int, ...]) -> str:
        """Adds a constant under that name or one like it; `out`: channels of its quantization's axis in `before` that stay."""
        name = free_name(name, self._taken)
        self._taken.add(name)
        quantization = tensor.quantization
        if out is not None and quantization is not None and not quantization.per_tensor:
            assert len(quantization.scales) == before[quantization.axis]
            scales, zero_points = quantization.scales, quantization.zero_points
            if len(zero_points) == len(scales):
                zero_points = tuple(zero_points[i] for i in out.tolist())
            quantization = replace(quantization, scales=tuple(scales[i] for i in out.tolist()), zero_points=zero_points)
        self._added.append(replace(tensor, name=name, label=name, source=-1, quantization=quantization))
        return name

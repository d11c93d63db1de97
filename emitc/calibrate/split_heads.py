"""Heads whose outputs need two scales: a box of 300 pixels and a score of 0.3 in one int8 tensor leave the score two
codes.

The layer that makes such an output becomes two, one for the channels with large values and one for those with small
ones. A Concat that stays in float32 joins both. So each part has a scale of its own, and the model's interface stays
as it is.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emitc.calibrate.float_graph import FloatGraph, Floats, Statistics
from emitc.calibrate.packages import package

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

"""Random ONNX operators along dimensions: reductions, positions of extremes, Softmax and normalizations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bench.random_graphs.onnx.net import FLOAT, Known, Net, Unfit
from bench.random_graphs.onnx.operands import operand, ranked, result, weights
from emitc.ir import Shape

_REDUCTIONS = (
    "ReduceMean", "ReduceMean", "ReduceSum", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
    "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare",
)  # fmt: skip


def _reduced(shape: Shape, axes: list[int], keep: bool) -> Shape:
    return tuple(1 if i in axes else size for i, size in enumerate(shape) if keep or i not in axes)


def reduction(net: Net) -> None:
    """A reduction over some or all dimensions, counted from either end."""
    kind = net.rng.choice(_REDUCTIONS)
    selecting = kind in ("ReduceMax", "ReduceMin")
    x = operand(net, lambda v: v.rank >= 1, net.shape(net.rng.randint(1, 5)))
    if kind == "ReduceLogSum":
        (x,) = net.add("Abs", [x], (FLOAT, x.shape), top=x.top, exact=True, pool=False)
        (x,) = net.add("Add", [x, net.scalar(0.5)], (FLOAT, x.shape), top=x.top + 1, exact=True, pool=False)
    axes = sorted(net.rng.sample(range(x.rank), net.rng.randint(1, x.rank)))
    keep = net.rng.choice((None, 0, 1))
    attributes: dict[str, Any] = {"keepdims": keep}
    names: list[Known | str] = [x]
    stated = tuple(a - x.rank * (net.rng.random() < 0.3) for a in axes)
    if len(axes) < x.rank or net.rng.random() < 0.7:
        if net.opset >= 18 or (kind == "ReduceSum" and net.opset >= 13):
            names.append(net.ints(stated))
        else:
            attributes["axes"] = stated
    count = math.prod(x.shape[a] for a in axes)
    if kind == "ReduceProd" and count > 12:
        raise Unfit
    top = {
        "ReduceSum": x.top * math.sqrt(count), "ReduceL1": x.top * count * 0.5, "ReduceL2": x.top * math.sqrt(count),
        "ReduceSumSquare": x.top**2 * count * 0.4, "ReduceProd": min(x.top, 4.0) ** min(count, 12),
        "ReduceLogSum": math.log(count * x.top + 1) + 1, "ReduceLogSumExp": x.top + math.log(count) + 1,
    }.get(kind, x.top)  # fmt: skip
    if kind == "ReduceLogSumExp" and x.top > 60:
        raise Unfit
    result(net, kind, names, _reduced(x.shape, axes, keep != 0), top, exact=selecting, **attributes)


def whole_reduction(net: Net) -> None:
    """A reduction of integers."""
    x = net.pick(lambda v: v.dtype in ("int32", "int64", "int8", "uint8") and v.rank >= 1 and not v.constant)
    kinds = ["ReduceMax", "ReduceMin"]
    axis = net.rng.randrange(x.rank)
    if x.dtype in ("int32", "int64"):  # the engine computes these in float64 and limits the result: exact up to here
        limit = float(1 << (31 if x.dtype == "int32" else 52))
        beyond = net.rng.random() < 0.04
        count = x.shape[axis]
        kinds += ["ReduceSum"] * (beyond or x.top * count < limit)
        kinds += ["ReduceProd"] * (beyond or count * math.log2(max(x.top, 2.0)) < math.log2(limit))
        kinds += ["ReduceSumSquare"] * (beyond or x.top**2 * count < limit)
    kind = net.rng.choice(kinds)
    if net.opset < 12:
        raise Unfit
    attributes: dict[str, Any] = {}
    names: list[Known | str] = [x]
    if net.opset >= 18 or (kind == "ReduceSum" and net.opset >= 13):
        names.append(net.ints((axis,)))
    else:
        attributes["axes"] = (axis,)
    count = x.shape[axis]
    top = {
        "ReduceSum": x.top * count,
        "ReduceProd": max(x.top, 1.0) ** min(count, 60),
        "ReduceSumSquare": x.top**2 * count,
    }.get(kind, x.top)
    net.add(
        kind, names, (x.dtype, _reduced(x.shape, [axis], True)), exact=True, quantized=(x.scale, x.zero), top=top, **attributes
    )  # fmt: skip


def arg_extremum(net: Net) -> None:
    """ArgMax or ArgMin."""
    x = net.pick(lambda v: v.dtype in (FLOAT, "int8", "uint8", "int32") and v.rank >= 1 and v.exact and not v.constant)
    if x.quantized and net.rng.random() < 0.5:
        x = net.dequantize(x)
    if x.dtype in ("int8", "uint8") and net.opset < 13:
        raise Unfit
    axis, keep = net.rng.randrange(x.rank), net.rng.choice((None, 0, 1))
    net.add(
        net.rng.choice(("ArgMax", "ArgMin")), [x], ("int64", _reduced(x.shape, [axis], keep != 0)), exact=True,
        top=float(x.shape[axis]), keepdims=keep, axis=axis - x.rank * (net.rng.random() < 0.3),
        select_last_index=net.rng.choice((None, None, 1)) if net.opset >= 12 else None,
    )  # fmt: skip


def softmax(net: Net) -> None:
    """Softmax and LogSoftmax along any dimension."""
    x = operand(net, lambda v: v.rank >= 1, net.shape(net.rng.randint(1, 4)))
    kind = net.rng.choice(("Softmax", "Softmax", "LogSoftmax"))
    axis = net.rng.randrange(-x.rank, x.rank) if net.rng.random() < 0.8 else None
    if axis is None and net.opset < 13 and x.rank < 2:
        raise Unfit
    result(net, kind, [x], x.shape, 1.0 if kind == "Softmax" else 2 * x.top, axis=axis)


def batch_normalization(net: Net) -> None:
    """BatchNormalization."""
    x = ranked(net, (2, 3, 4, 4))
    channels = (x.shape[1],)

    def real(low: float, high: float) -> Known:
        return net.constant_value(net.data.uniform(low, high, channels).astype(np.float32))

    coded = net.rng.random() < 0.4  # as ONNX Runtime's quantizer writes them
    first = [weights(net, channels, 0), weights(net, channels, 0)] if coded else [real(0.5, 2), real(-1, 1)]
    names: list[Known | str] = [x, *first, real(-1, 1), real(0.3, 2)]
    epsilon = net.rng.choice((None, 1e-3))
    result(net, "BatchNormalization", names, x.shape, 2 * x.top, epsilon=epsilon)


def _spread(net: Net, x: Known, count: int) -> Known:
    """The operand with a constant added: rows of equal values have a variance that is only the rounding of sums."""
    if count < 3 or net.repeated:
        raise Unfit
    noise = net.constant_value(net.data.uniform(-x.top, x.top, x.shape).astype(np.float32), x.top)
    return net.add("Add", [x, noise], (FLOAT, x.shape), top=2 * x.top, exact=True, pool=False)[0]


def normalization(net: Net) -> None:
    """LayerNormalization, InstanceNormalization and GroupNormalization."""
    kind = net.rng.choice(("LayerNormalization", "LayerNormalization", "InstanceNormalization", "GroupNormalization"))
    if net.opset < {"LayerNormalization": 17, "GroupNormalization": 21}.get(kind, 11):
        raise Unfit
    x = ranked(net, (2, 3, 4) if kind == "LayerNormalization" else (3, 4))
    attributes: dict[str, Any] = {"epsilon": net.rng.choice((None, 1e-3))}
    shape: Shape = (x.shape[1],)
    if kind == "LayerNormalization":
        axis = net.rng.randrange(x.rank)
        shape = x.shape[axis:]
        attributes["axis"] = net.rng.choice((axis, axis - x.rank))
    if kind == "GroupNormalization":
        groups = net.rng.choice([g for g in range(1, x.shape[1] + 1) if x.shape[1] % g == 0])
        attributes["num_groups"] = groups
        shape = (x.shape[1],)
    x = _spread(net, x, math.prod(x.shape[attributes["axis"] :]) if "axis" in attributes else math.prod(x.shape[2:]))
    names: list[Known | str] = [x, net.constant_value(net.reals(shape, 2.0))]
    if kind != "LayerNormalization" or net.rng.random() < 0.7:
        names.append(net.constant_value(net.reals(shape, 1.0)))
    result(net, kind, names, x.shape, 6.0, **attributes)

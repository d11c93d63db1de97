"""Random ONNX operators that run graphs: If, Loop and Scan, with values of the graph round them in sight, and functions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bench.random_graphs.case import Value
from bench.random_graphs.onnx.net import FLOAT, LOCAL, Known, Net, Unfit
from bench.random_graphs.onnx.operands import is_real
from emitc.ir import Shape

Grow = Callable[[Net, int], None]
"""Adds operators to a graph."""


def _inside(net: Net) -> Net:
    depth, outer = 0, net.parent
    while outer is not None:
        depth, outer = depth + 1, outer.parent
    if depth >= 2:
        raise Unfit
    inner = Net(net.rng, net.style, net.opset, net)
    inner.most_elements = 2048
    return inner


def _given(inner: Net, dtype: str, shape: Shape, like: Known | None = None) -> Known:
    """An input of a graph inside."""
    top = like.top if like is not None else 4.0
    value = Known(inner.name("x"), dtype, shape, top=top, exact=like.exact if like is not None else True)
    inner.known[value.name] = value
    inner.values.append(Value(value.name, dtype, shape))
    inner.inputs.append(value)
    return value


def _end(inner: Net, dtype: str, shape: Shape, limit: float = 0.0) -> Known:
    """An output of a graph inside with this type and shape; limited, where it goes round a loop."""
    made = [
        v for v in inner.pool if v.name not in {i.name for i in inner.inputs} and v.dtype == FLOAT and not v.constant
    ]
    matching = [v for v in made if v.shape == shape]
    value = inner.rng.choice(matching) if matching and inner.rng.random() < 0.8 else None
    if value is None and made:
        value = _fitted(inner, inner.rng.choice(made), shape)
    if value is None:
        source = inner.candidates(lambda v: v.dtype == FLOAT and v.shape == shape)
        value = inner.rng.choice(source) if source else inner.constant_value(inner.reals(shape, 1.0))
        (value,) = inner.add("Neg", [value], (FLOAT, shape), top=value.top, exact=True)
    if limit:
        low, high = inner.scalar(-limit), inner.scalar(limit)
        (value,) = inner.add("Clip", [value, low, high], (FLOAT, shape), top=limit, exact=True)
    return value


def _fitted(inner: Net, value: Known, shape: Shape) -> Known | None:
    """A value reduced to one number and broadcast to a shape."""
    axes: dict[str, Any] = {"keepdims": 0}
    (one,) = inner.add("ReduceMax", [value], (FLOAT, ()), top=value.top, exact=True, **axes)
    (made,) = inner.add("Expand", [one, inner.ints(shape)], (FLOAT, shape), top=value.top, exact=True)
    return made


def branches(net: Net, grow: Grow) -> None:
    """If on a computed or given condition."""
    conditions = net.candidates(lambda v: v.dtype == "bool" and v.elements == 1 and v.rank <= 1)
    if conditions:
        condition = net.rng.choice(conditions)
    elif net.parent is None and len(net.inputs) <= net.most_inputs and net.rng.random() < 0.5:
        condition = net.input("bool", net.rng.choice(((), (1,))))
    else:
        x = net.pick(lambda v: v.dtype == FLOAT and v.exact and v.rank > 0)
        (least,) = net.add("ReduceMin", [x], (FLOAT, ()), exact=True, top=x.top, pool=False, keepdims=0)
        (condition,) = net.add("Less", [least, net.scalar(-1.0)], ("bool", ()), exact=True, top=1, pool=False)
    shapes = [
        net.rng.choice([v.shape for v in net.pool if is_real(v)] or [(3,)]) for _ in range(net.rng.choice((1, 1, 2)))
    ]
    graphs, tops, exact = [], [1.0] * len(shapes), True
    for _ in range(2):
        inner = _inside(net)
        grow(inner, net.rng.randint(1, 4))
        ends: list[Known] = []
        for shape in shapes:
            value = _end(inner, FLOAT, shape)
            if any(value.name == end.name for end in ends):
                (value,) = inner.add("Neg", [value], (FLOAT, shape), top=value.top, exact=True)
            ends.append(value)
        tops = [max(top, end.top) for top, end in zip(tops, ends, strict=True)]
        exact &= all(end.exact for end in ends)
        graphs.append(inner.described(ends, []))
    net.add(
        "If", [condition], *((FLOAT, shape) for shape in shapes), exact=exact, top=max(tops), then_branch=graphs[0],
        else_branch=graphs[1],
    )  # fmt: skip


def loop(net: Net, grow: Grow) -> None:
    """Loop with values that go round and slices that it collects, ended by a number or by a condition."""
    carried = [net.pick(lambda v: v.dtype == FLOAT and v.elements <= 512 and v.rank > 0)]
    if net.rng.random() < 0.3:
        carried.append(net.pick(lambda v: v.dtype == FLOAT and v.elements <= 512))
    rounds = net.rng.randint(1, 5)
    inner = _inside(net)
    inner.repeated = True
    number = _given(inner, "int64", ())
    going = _given(inner, "bool", ())
    inside = [_given(inner, FLOAT, v.shape, v) for v in carried]
    inner.pool += inside
    if net.rng.random() < 0.3:
        inner.add("Cast", [number], (FLOAT, ()), top=5, exact=True, to=1)
    grow(inner, net.rng.randint(1, 4))
    ends = [_end(inner, FLOAT, v.shape, limit=8.0) for v in carried]
    conditional = net.rng.random() < 0.3
    if conditional:
        (keep,) = inner.add(
            "Less", [number, inner.scalar(net.rng.randint(0, 6), "int64")], ("bool", ()), exact=True, pool=False
        )
    else:
        (keep,) = inner.add("Identity", [going], ("bool", ()), exact=True, pool=False)
    slices = []
    if not conditional and net.rng.random() < 0.4:
        source = inner.rng.choice(ends)
        (slices_of,) = inner.add("Identity", [source], (FLOAT, source.shape), top=source.top, exact=True)
        slices = [slices_of]
    limit = net.scalar(rounds, "int64")
    condition = net.scalar(True, "bool") if conditional or net.rng.random() < 0.3 else ""
    outputs = [(FLOAT, v.shape) for v in carried] + [(FLOAT, (rounds, *v.shape)) for v in slices]
    exact = all(v.exact for v in (*ends, *carried))
    body = inner.described([keep, *ends, *slices])
    net.add("Loop", [limit, condition, *carried], *outputs, exact=exact, top=8.0, body=body)


def scan(net: Net, grow: Grow) -> None:
    """Scan over slices along the first dimension, forwards or backwards."""
    read = [net.pick(lambda v: v.dtype == FLOAT and v.rank >= 2 and v.shape[0] <= 16 and v.elements <= 2048)]
    state = net.constant_value(np.zeros(read[0].shape[1:], np.float32))
    if net.rng.random() < 0.5:
        states = net.candidates(lambda v: v.dtype == FLOAT and v.elements <= 512)
        state = net.rng.choice(states) if states else state
    inner = _inside(net)
    inner.repeated = True
    held = _given(inner, FLOAT, state.shape, state)
    row = _given(inner, FLOAT, read[0].shape[1:], read[0])
    inner.pool += [held, row]
    grow(inner, net.rng.randint(1, 4))
    kept = _end(inner, FLOAT, state.shape, limit=8.0)
    (made,) = inner.add("Identity", [kept], (FLOAT, kept.shape), top=8.0, exact=True)
    if net.rng.random() < 0.5:
        made = _end(inner, FLOAT, row.shape, limit=8.0)
        if made.name == kept.name:
            (made,) = inner.add("Neg", [made], (FLOAT, made.shape), top=8.0, exact=True)
    outputs = [(FLOAT, state.shape), (FLOAT, (read[0].shape[0], *made.shape))]
    backwards = net.rng.choice((None, (0,), (1,)))
    net.add(
        "Scan", [state, *read], *outputs, exact=kept.exact and made.exact, top=8.0, num_scan_inputs=1,
        scan_input_directions=backwards, scan_output_directions=net.rng.choice((None, (0,), (1,))),
        body=inner.described([kept, made]),
    )  # fmt: skip


def function(net: Net, grow: Grow) -> None:
    """Calls of a function that the model defines, which sees its operands only."""
    if net.opset < 15 or net.parent is not None:
        raise Unfit
    inner = Net(net.rng, net.style, net.opset)
    inner._counter = net._counter  # names differ in the whole model
    inner.most_inputs, inner.most_elements = -2, 2048  # what an operator may ask for is no operand of the call
    count = net.rng.choice((1, 1, 2))
    values = [net.pick(lambda v: v.dtype == FLOAT and v.elements <= 2048) for _ in range(count)]
    inner.pool += [_given(inner, FLOAT, value.shape, value) for value in values]
    operands = list(inner.pool)
    grow(inner, net.rng.randint(1, 4))
    made = [v for v in inner.pool if v not in operands and not v.constant and not v.quantized]
    if not made:
        raise Unfit
    ends = [v for v in made if v.name not in inner.read][:2] or made[-1:]
    body = inner.described(ends)
    name = f"{LOCAL}.{net.name('Part')}"
    exact = all(value.exact for value in values) and all(end.exact for end in ends)
    others = net.candidates(lambda v: v.dtype == FLOAT and v.shape == values[0].shape and v.top <= values[0].top)
    for turn in range(net.rng.choice((1, 1, 2))):
        first = values[0] if turn == 0 else net.rng.choice(others)
        results = [(end.dtype, end.shape) for end in ends]
        calls = net.add(name, [first, *values[1:]], *results, exact=exact, body=body)
        for value, end in zip(calls, ends, strict=True):
            net.output_of(value, top=end.top, exact=value.exact and end.exact)

"""State variables, branches and loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from bench.random_graphs.case import Attribute, Description, Node, Value
from bench.random_graphs.tflite.graph_builder import ANY, GraphBuilder, Unfit, offers

_KINDS = ("int8", "int16", "float32", "int32", "int64")
UNFUSED: dict[str, Attribute] = {"fused_activation_function": "NONE", "pot_scale_int16": False}
"""Options of an ADD."""


def handle(d: GraphBuilder, name: str) -> Value:
    """A variable's handle, made by an operator."""
    value = d.add(Value(d.name(), "resource", ()))
    d.nodes.append(Node("VAR_HANDLE", (), (value.name,), {"container": "", "shared_name": name}))
    return value


def variable(d: GraphBuilder, like: Value) -> tuple[Value, Value]:
    """A variable for values like that: its handle, and its value before this run."""
    name = f"{d.prefix}state{len(d.values)}"
    if d.chance(0.6):
        start = GraphBuilder(d.rng, d.dtype, prefix=f"{name}_")
        first = start.numbers(like.dtype, like.shape, (like.scales, like.zero_points))
        inner = handle(start, name)
        start.node("ASSIGN_VARIABLE", (inner, first), ())
        d.nodes.append(Node("CALL_ONCE", (), (), {"init_subgraph_index": start.description(())}))
    variable_handle = handle(d, name)
    before = d.computed(like.dtype, like.shape, (like.scales, like.zero_points))
    d.node("READ_VARIABLE", (variable_handle,), (before,))
    return variable_handle, before


@offers(_KINDS, "READ_VARIABLE", weight=0.5)
def accumulator(d: GraphBuilder, x: Value) -> Sequence[Value]:
    """A sum over all runs, or the value of the run before."""
    if d.depth:
        raise Unfit
    variable_handle, before = variable(d, x)
    if d.chance(0.3):
        d.node("ASSIGN_VARIABLE", (variable_handle, x), ())
        return [before]
    total = d.unary("ADD", (before, x), x.shape, x.dtype, (x.scales, x.zero_points), **UNFUSED)
    d.node("ASSIGN_VARIABLE", (variable_handle, total), ())
    return [total, before] if d.chance(0.3) else [total]


@offers(ANY, "ASSIGN_VARIABLE", weight=0.7)
def streaming(d: GraphBuilder, x: Value) -> Sequence[Value]:
    """The last rows of the runs before, with the new ones at their end."""
    if d.depth or x.elements > 600:
        raise Unfit
    if len(x.shape) != 4 or x.shape[0] != 1:
        x = d.reshaped(x, (1, *d.factors(x.elements, 3)))
    rows, old = x.shape[1], d.between(1, 4)
    like = replace(x, shape=(1, old, *x.shape[2:]))
    variable_handle, before = variable(d, like)
    both = d.computed(x.dtype, (1, old + rows, *x.shape[2:]), (x.scales, x.zero_points))
    d.node("CONCATENATION", (before, x), (both,), axis=1)
    ends = [(0, rows, 0, 0), both.shape, (1, 1, 1, 1)]
    last = d.moved("STRIDED_SLICE", (both, *(d.integers(ends_of) for ends_of in ends)), like.shape)
    d.node("ASSIGN_VARIABLE", (variable_handle, last), ())
    return [both]


def condition(d: GraphBuilder, x: Value) -> Value:
    """A bool: an input, a constant, or whether the first element of x is over zero."""
    how = d.between(0, 4)
    if how == 0:
        return d.constant(np.bool_(d.chance(0.5)))
    if how == 1 or x.dtype not in ("int8", "float32"):
        value = d.model_input("bool", ())
        d.pool.pop()
        return value
    flat = d.reshaped(x, (x.elements,))
    ends = [d.integers([0]), d.integers([1]), d.integers([1])]
    first = d.moved("STRIDED_SLICE", (flat, *ends), (), shrink_axis_mask=1)
    if x.dtype == "int8":
        first = d.unary("DEQUANTIZE", (first,), (), "float32")
    return d.unary("GREATER", (first, d.constant(np.float32(0))), (), "bool")


def body(
    d: GraphBuilder, x: Value, name: str, grow: Callable[[GraphBuilder], None]
) -> tuple[GraphBuilder, Value, Value]:
    """A graph of a few operators from x to a value of its type, shape and quantization: its builder, x in it, and the value."""
    inner = GraphBuilder(d.rng, d.dtype, min(d.limit, 500), f"{d.prefix}{name}_", d.depth + 1, d.engine)
    kept = (x.scales, x.zero_points)
    source = inner.add(Value(inner.name(), x.dtype, x.shape, None, *kept))
    inner.inputs.append(source.name)
    inner.pool.append(source)
    for _ in range(d.between(0, 3)):
        grow(inner)
    y = inner.pool[-1]
    if y is source or y.dtype != x.dtype or any(n not in inner.inputs[:1] for n in inner.inputs):
        y = source
    if len(y.shape) != len(x.shape) or any(a not in (1, b) for a, b in zip(y.shape, x.shape, strict=False)):
        axes = inner.integers(range(len(y.shape)))
        reduced = len(y.shape) == 1 and x.dtype not in ("int32", "int64")
        y = inner.unary("MEAN", (y, axes), (), x.dtype, kept, keep_dims=False) if reduced else source
    last = inner.unary("ADD", (source, y), x.shape, x.dtype, kept, **UNFUSED)
    return inner, source, last


def _grow(inner: GraphBuilder) -> None:
    from bench.random_graphs.tflite.draw import append  # the operators of a body are any operators, these included

    append(inner)


def _plain(inner: GraphBuilder) -> bool:
    return len(inner.inputs) == 1


@offers(ANY, "IF", weight=0.5)
def branches(d: GraphBuilder, x: Value) -> Sequence[Value]:
    """Two graphs for one value, one of which runs."""
    if x.dtype not in _KINDS:
        return moved_or_not(d, x)
    if d.depth > 1 or not x.shape or x.elements > 500:
        raise Unfit
    is_true = condition(d, x)
    graphs: list[Description] = []
    for which in ("then", "else"):
        inner, source, last = body(d, x, f"{which}{len(d.values)}", _grow)
        if not _plain(inner):
            raise Unfit
        graphs.append(inner.description([source.name if d.chance(0.05) else last.name]))
    y = d.computed(x.dtype, x.shape, (x.scales, x.zero_points))
    d.node("IF", (is_true, x), (y,), then_subgraph_index=graphs[0], else_subgraph_index=graphs[1])
    return [y]


def moved_or_not(d: GraphBuilder, x: Value) -> Sequence[Value]:
    """x as it is, or turned round, of a type that nothing adds."""
    if d.depth > 1 or not 1 <= len(x.shape) <= 4:
        raise Unfit
    is_true = condition(d, x)
    graphs = []
    for which in ("then", "else"):
        inner = GraphBuilder(d.rng, d.dtype, 500, f"{d.prefix}{which}{len(d.values)}_", d.depth + 1, d.engine)
        source = inner.add(Value(inner.name(), x.dtype, x.shape))
        inner.inputs.append(source.name)
        y = inner.moved("REVERSE_V2", (source, inner.integers([0])), x.shape) if which == "then" else source
        graphs.append(inner.description([y.name]))
    y = d.computed(x.dtype, x.shape)
    d.node("IF", (is_true, x), (y,), then_subgraph_index=graphs[0], else_subgraph_index=graphs[1])
    return [y]


@offers(ANY, "WHILE", weight=0.5)
def loop(d: GraphBuilder, x: Value) -> Sequence[Value]:
    """A graph that runs a few times."""
    if d.depth > 1 or not x.shape or x.elements > 500:
        raise Unfit
    if x.dtype in _KINDS:
        inner, _, last = body(d, x, f"body{len(d.values)}", _grow)
    else:
        inner = GraphBuilder(d.rng, d.dtype, 500, f"{d.prefix}body{len(d.values)}_", d.depth + 1, d.engine)
        source = inner.add(Value(inner.name(), x.dtype, x.shape))
        inner.inputs.append(source.name)
        last = inner.moved("REVERSE_V2", (source, inner.integers([-1])), x.shape)
    if not _plain(inner):
        raise Unfit
    count = inner.add(Value(inner.name(), "int32", (1,)))
    more = inner.unary(
        "ADD", (count, inner.constant(np.array([1], np.int32))), (1,), "int32", fused_activation_function="NONE"
    )
    inner.inputs.insert(0, count.name)
    test_graph = GraphBuilder(d.rng, d.dtype, prefix=f"{d.prefix}while{len(d.values)}_")
    a = test_graph.add(Value(test_graph.name(), "int32", (1,)))
    b = test_graph.add(Value(test_graph.name(), x.dtype, x.shape, None, x.scales, x.zero_points))
    test_graph.inputs += [a.name, b.name]
    times = test_graph.constant(np.array([d.between(0, 4)], np.int32))
    less = test_graph.unary("LESS", (a, times), (1,), "bool")
    start = d.constant(np.array([0], np.int32))
    if d.chance(0.4):
        start = d.model_input("int32", (1,), (-2, 5))
        d.pool.pop()
    ends = d.computed("int32", (1,)), d.computed(x.dtype, x.shape, (x.scales, x.zero_points))
    d.node("WHILE", (start, x), ends, cond_subgraph_index=test_graph.description([less.name]),
           body_subgraph_index=inner.description([more.name, last.name]))  # fmt: skip
    return [ends[1], ends[0]]

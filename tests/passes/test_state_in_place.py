"""Which reads of state need no copy, which buffers of rows are kept in one piece, and which are left as they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from emitc.frontends.build import build_graph
from emitc.frontends.tflite.reader import read_tflite
from emitc.ir import Array, Graph
from emitc.kernels import tflite_registry
from emitc.kernels.state.state_variables import Append
from emitc.passes import LATE_PASSES, run_passes
from emitc.passes.simplify import drop_dead
from emitc.passes.verify_graph import verify_graph
from emitc.verify.reference import random_samples, run_reference
from emitc.writers.tflite import ModelSpec, TensorSpec, write_tflite
from tests.support.models.streaming import MODELS, Stream


def graph_of(spec: ModelSpec) -> Graph:
    """The graph under the passes before the regions are cut."""
    graph = build_graph(read_tflite(write_tflite(spec)), tflite_registry(), "g")
    return run_passes(graph)[0]


def in_place(graph: Graph) -> Graph:
    """The graph under the pass, which computes the same over a sequence."""
    after, _ = run_passes(graph, passes=LATE_PASSES)
    states: tuple[dict[str, Array], dict[str, Array]] = ({}, {})
    for inputs in random_samples(graph, 12, 3):
        expected, found = (run_reference(g, inputs, s) for g, s in zip((graph, after), states, strict=True))
        for name in graph.outputs:
            assert np.array_equal(expected[name], found[name]), name
    return after


def types(graph: Graph) -> list[str]:
    return [node.op_type if not isinstance(node.op, Append) else "APPEND" for node in graph.nodes]


LEFT = {
    "rows": ["APPEND", "CONV_2D", "APPEND", "CONV_2D"],
    "blocks": ["APPEND", "CONV_2D"],
    "window": ["APPEND", "FULLY_CONNECTED"],
    "channels": ["CONCATENATION", "STRIDED_SLICE", "ASSIGN_VARIABLE"],
    "delay": ["READ_VARIABLE", "ASSIGN_VARIABLE"],
    "swap": ["READ_VARIABLE", "READ_VARIABLE", "ADD", "ASSIGN_VARIABLE", "ASSIGN_VARIABLE"],
    "twice": ["READ_VARIABLE", "ADD", "ASSIGN_VARIABLE", "SUB", "ASSIGN_VARIABLE", "ADD"],
    "sum": ["ADD", "ASSIGN_VARIABLE"],
}
"""What is left of each streaming model."""


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left(name: str) -> None:
    assert types(in_place(graph_of(MODELS[name]()))) == LEFT[name]


def test_the_rows_start_as_the_variable_did_and_have_its_name() -> None:
    before = graph_of(MODELS["rows"]())
    after = in_place(before)
    old, new = {t.label: t for t in before.states}, {t.label: t for t in after.states}
    assert old.keys() == new.keys() == {"first", "second"}
    assert new["first"].shape == (1, 5, 1, 5) and old["first"].shape == (1, 3, 1, 5)
    for label, tensor in new.items():
        first, kept = old[label].initial, tensor.initial
        assert first is not None and kept is not None and kept.endswith(first)


def changed(change: Callable[[Stream, dict[str, int]], tuple[int, ...]]) -> Graph:
    """`window` without its layer, with something else that uses one of its tensors."""
    net = Stream()
    frame, rows = (TensorSpec(n, "int8", (1, k, 4), None, (0.05,), (3,)) for n, k in (("frame", 1), ("rows", 5)))
    x = net.tensor(frame)
    handle = net.variable("rows", rows)
    old = net.read(handle, rows, "old")
    rest = net.cut(old, replace(frame, shape=(1, 4, 4)), (0, 1, 0), (1, 5, 4), "rest")
    joined = net.tensor(replace(rows, name="joined"))
    net.op("CONCATENATION", (rest, x), (joined,), axis=1, fused_activation_function="NONE")
    found = {"x": x, "handle": handle, "old": old, "rest": rest, "joined": joined}
    outputs = change(net, found)
    net.assign(handle, joined)
    return drop_dead(graph_of(net.stream((x,), (joined, *outputs))))


def test_the_plain_form_is_one_append() -> None:
    assert types(in_place(changed(lambda net, at: ()))) == ["APPEND"]


def test_another_reader_of_the_old_rows_keeps_the_variable_apart() -> None:
    def use(net: Stream, at: dict[str, int]) -> tuple[int, ...]:
        y = net.activation("y", (1, 5, 4))
        net.op("ADD", (at["old"], at["old"]), (y,), fused_activation_function="NONE")
        return (y,)

    after = in_place(changed(use))
    assert "APPEND" not in types(after) and "READ_VARIABLE" not in types(after)


def test_an_output_of_the_old_rows_is_a_copy() -> None:
    after = in_place(changed(lambda net, at: (at["old"],)))
    assert "APPEND" not in types(after) and "READ_VARIABLE" in types(after)


def test_an_output_of_what_is_left_keeps_the_variable_apart() -> None:
    assert "APPEND" not in types(in_place(changed(lambda net, at: (at["rest"],))))


def test_a_second_assignment_keeps_the_variable_apart() -> None:
    def use(net: Stream, at: dict[str, int]) -> tuple[int, ...]:
        net.assign(at["handle"], at["joined"])
        return ()

    assert "APPEND" not in types(in_place(changed(use)))


def test_a_second_read_keeps_the_variable_apart() -> None:
    def use(net: Stream, at: dict[str, int]) -> tuple[int, ...]:
        return (net.read(at["handle"], TensorSpec("again", "int8", (1, 5, 4), None, (0.05,), (3,)), "again"),)

    after = in_place(changed(use))
    assert "APPEND" not in types(after) and types(after).count("READ_VARIABLE") == 1


def test_new_rows_at_the_front_are_left_as_they_are() -> None:
    net = Stream()
    frame, rows = (TensorSpec(n, "int8", (1, k, 4), None, (0.05,), (3,)) for n, k in (("frame", 1), ("rows", 5)))
    x = net.tensor(frame)
    handle = net.variable("rows", rows)
    old = net.read(handle, rows, "old")
    joined = net.tensor(replace(rows, name="joined", shape=(1, 6, 4)))
    net.op("CONCATENATION", (x, old), (joined,), axis=1, fused_activation_function="NONE")
    net.assign(handle, net.cut(joined, rows, (0, 0, 0), (1, 5, 4), "first"))
    after = in_place(graph_of(net.stream((x,), (joined,))))
    assert types(after) == ["CONCATENATION", "STRIDED_SLICE", "ASSIGN_VARIABLE"]


def test_rows_that_are_used_beside_the_assignment_stay_readable() -> None:
    """The slice has another reader: it is kept, and reads the joined rows."""
    net = Stream()
    frame, rows = (TensorSpec(n, "int8", (1, k, 4), None, (0.05,), (3,)) for n, k in (("frame", 2), ("rows", 3)))
    x = net.tensor(frame)
    handle = net.variable("rows", rows)
    old = net.read(handle, rows, "old")
    joined = net.tensor(replace(rows, name="joined", shape=(1, 5, 4)))
    net.op("CONCATENATION", (old, x), (joined,), axis=1, fused_activation_function="NONE")
    last = net.cut(joined, rows, (0, 2, 0), (1, 5, 4), "last")
    net.assign(handle, last)
    y = net.activation("y", (1, 3, 4))
    net.op("ADD", (last, last), (y,), fused_activation_function="NONE")
    after = in_place(graph_of(net.stream((x,), (y,))))
    assert types(after) == ["APPEND", "STRIDED_SLICE", "ADD"]


def test_state_order_names_every_pair_that_matters() -> None:
    graph = graph_of(MODELS["twice"]())
    kinds = [(graph.nodes[a].op_type, graph.nodes[b].op_type) for a, b in graph.state_order()]
    assert kinds == [
        ("READ_VARIABLE", "ASSIGN_VARIABLE"), ("ASSIGN_VARIABLE", "READ_VARIABLE"), ("ASSIGN_VARIABLE", "ASSIGN_VARIABLE"),
        ("READ_VARIABLE", "ASSIGN_VARIABLE"), ("ASSIGN_VARIABLE", "READ_VARIABLE"),
    ]  # fmt: skip


def test_a_state_variable_is_no_constant_and_no_alias() -> None:
    graph = graph_of(MODELS["delay"]())
    (state,) = graph.states
    assert graph.producer(state.name) is None
    for wrong in (
        replace(state, data=bytes(7)),
        replace(state, initial=bytes(3)),
        replace(state, alias_of=graph.inputs[0]),
    ):
        tensors = tuple(wrong if t is state else t for t in graph.tensors)
        with pytest.raises(AssertionError):
            verify_graph(replace(graph, tensors=tensors))

"""fold-constants, drop-dead and alias-views: what they remove, what they must leave, and that no number changes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from emitc.passes import PASSES, run_passes
from emitc.verify.reference import run_reference
from tests.support.passes.pass_graphs import (
    Net,
    PassCase,
    check_numbers,
    check_structure,
    graph_of,
    operators,
    pass_named,
)

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

X = (1, 4, 3, 2)


# fold-constants


def sum_of_constants(net: Net) -> None:
    net.output(net.binary("ADD", net.input(X), net.binary("ADD", net.constant(X), net.constant(X))))


def chain_of_constants(net: Net) -> None:
    x = net.reshape(net.unary("RELU", net.constant((6, 4))), X)
    net.output(net.binary("MUL", x, net.input(X)))


def layer_on_a_constant(net: Net) -> None:
    net.output(net.binary("SUB", net.conv(net.constant((1, 5, 5, 2)), 3), net.input((1, 3, 3, 3))))


def constant_output(net: Net) -> None:
    net.output(net.unary("RELU", net.constant(X)), net.unary("RELU", net.input(X)))


def one_constant_operand(net: Net) -> None:
    net.output(net.binary("ADD", net.input(X), net.constant(X)))


def constant_first(net: Net) -> None:
    net.output(net.binary("SUB", net.constant(X), net.input(X)))


CONSTANTS = [
    PassCase("sum_of_constants", sum_of_constants, ("ADD",)),
    PassCase("chain_of_constants", chain_of_constants, ("MUL",)),
    PassCase("layer_on_a_constant", layer_on_a_constant, ("SUB",)),
    PassCase("constant_output", constant_output, ("RELU",)),
    PassCase("one_constant_operand", one_constant_operand, ("ADD",)),
    PassCase("constant_first", constant_first, ("SUB",)),
]


@pytest.mark.parametrize("case", CONSTANTS, ids=lambda case: case.id)
def test_fold_constants(case: PassCase) -> None:
    check_structure("fold-constants", case)


def test_folded_values_are_the_references() -> None:
    before = graph_of(sum_of_constants)
    after = pass_named("fold-constants")(before)
    name = before.nodes[0].outputs[0]
    values = run_reference(before, [np.zeros(X, np.int8)])
    assert after.tensor(name).is_constant and np.array_equal(after.tensor(name).array(), values[name])


# drop-dead


def unread(net: Net) -> None:
    x = net.input(X)
    net.unary("RELU", x)
    net.output(net.unary("RELU6", x))


def unread_chain(net: Net) -> None:
    x = net.input(X)
    net.reshape(net.unary("TANH", net.unary("RELU", x), scales=(1 / 128,), zero_points=(0,)), (24,))
    net.output(net.unary("RELU6", x))


def unread_reader(net: Net) -> None:
    y = net.unary("RELU", net.input(X))
    net.unary("RELU6", y)
    net.output(y)


def unread_but_an_output(net: Net) -> None:
    x = net.input(X)
    net.output(net.unary("RELU", x), net.unary("RELU6", x))


def read_through_a_view(net: Net) -> None:
    net.output(net.unary("RELU6", net.reshape(net.unary("RELU", net.input(X)), (24,))))


def unread_input(net: Net) -> None:
    net.input(X)
    net.output(net.unary("RELU", net.input(X)))


DEAD = [
    PassCase("unread", unread, ("RELU6",)),
    PassCase("unread_chain", unread_chain, ("RELU6",)),
    PassCase("unread_reader", unread_reader, ("RELU",)),
    PassCase("unread_but_an_output", unread_but_an_output, ("RELU", "RELU6")),
    PassCase("read_through_a_view", read_through_a_view, ("RELU", "RESHAPE", "RELU6")),
    PassCase("unread_input", unread_input, ("RELU",), engine=False),
]


@pytest.mark.parametrize("case", DEAD, ids=lambda case: case.id)
def test_drop_dead(case: PassCase) -> None:
    check_structure("drop-dead", case)


def test_unread_inputs_stay_in_the_interface() -> None:
    before = graph_of(unread_input)
    assert pass_named("drop-dead")(before).inputs == before.inputs


def test_unread_tensors_go() -> None:
    before = graph_of(unread_chain)
    after = pass_named("drop-dead")(before)
    assert {t.name for t in after.tensors} == {after.inputs[0], after.outputs[0]}


# alias-views


def view_between(net: Net) -> None:
    net.output(net.unary("RELU6", net.reshape(net.unary("RELU", net.input(X)), (24,))))


def view_of_views(net: Net) -> None:
    x = net.reshape(net.reshape(net.reshape(net.unary("RELU", net.input(X)), (24,)), (4, 6)), (2, 12))
    net.output(net.unary("RELU6", x))


def view_first(net: Net) -> None:
    net.output(net.unary("RELU", net.reshape(net.input(X), (24,))))


def view_last(net: Net) -> None:
    net.output(net.reshape(net.unary("RELU", net.input(X)), (24,)))


def view_alone(net: Net) -> None:
    net.output(net.reshape(net.input(X), (24,)))


def view_and_original_are_outputs(net: Net) -> None:
    y = net.unary("RELU", net.input(X))
    net.output(y, net.reshape(y, (24,)), net.reshape(y, (12, 2)))


def view_of_an_input_that_is_read_later(net: Net) -> None:
    """The operator between could write in place, were it not for the view that is read afterwards."""
    x = net.input(X)
    view = net.reshape(x, (24,))
    y = net.reshape(net.unary("RELU", x), (24,))
    net.output(net.binary("ADD", y, view))


def original_read_after_the_view(net: Net) -> None:
    x = net.unary("RELU", net.input(X))
    y = net.unary("RELU6", net.reshape(x, (24,)))
    net.output(net.binary("ADD", x, net.reshape(y, X)))


def operator_on_a_tensor_and_its_view(net: Net) -> None:
    """Both operands are the same bytes."""
    x = net.unary("RELU", net.input(X))
    net.output(net.binary("MUL", x, net.reshape(net.reshape(x, (24,)), X)))


def squeezed_and_expanded(net: Net) -> None:
    x = net.unary("RELU", net.input((1, 4, 1, 3)))
    y = net.op("SQUEEZE", (x,), net.like(x, shape=(4, 3)), squeeze_dims=(0, 2))
    net.output(net.op("EXPAND_DIMS", (y, net.integers([-1])), net.like(y, shape=(4, 3, 1))))


def view_of_a_constant(net: Net) -> None:
    net.output(net.binary("ADD", net.input(X), net.reshape(net.constant((24,)), X)))


VIEWS = [
    PassCase("view_between", view_between, ("RELU", "RELU6")),
    PassCase("view_of_views", view_of_views, ("RELU", "RELU6")),
    PassCase("view_first", view_first, ("RELU",)),
    PassCase("view_last", view_last, ("RELU",)),
    PassCase("view_alone", view_alone, ()),
    PassCase("view_and_original_are_outputs", view_and_original_are_outputs, ("RELU",)),
    PassCase("view_of_an_input_that_is_read_later", view_of_an_input_that_is_read_later, ("RELU", "ADD")),
    PassCase("original_read_after_the_view", original_read_after_the_view, ("RELU", "RELU6", "ADD")),
    PassCase("operator_on_a_tensor_and_its_view", operator_on_a_tensor_and_its_view, ("RELU", "MUL")),
    PassCase("squeezed_and_expanded", squeezed_and_expanded, ("RELU",)),
    PassCase("view_of_a_constant", view_of_a_constant, ("RESHAPE", "ADD")),
]


@pytest.mark.parametrize("case", VIEWS, ids=lambda case: case.id)
def test_alias_views(case: PassCase) -> None:
    check_structure("alias-views", case)


def test_views_name_the_bytes_they_share() -> None:
    after = pass_named("alias-views")(graph_of(view_of_views))
    last = after.nodes[1].inputs[0]
    assert after.root(last).name == after.nodes[0].outputs[0]


# all of them


ALL = [*CONSTANTS, *DEAD, *VIEWS]
NAMES = ("fold-constants", "drop-dead", "alias-views")


@pytest.mark.sweep(keep=2)
@pytest.mark.parametrize("disabled", [(), *((name,) for name in NAMES)], ids=["on", *NAMES])
def test_numbers(tmp_path: Path, disabled: tuple[str, ...]) -> None:
    for report in check_numbers(ALL, tmp_path, *disabled):
        assert report.enabled == (report.name not in disabled)
        if report.name in NAMES:
            assert (report.changes > 0) == report.enabled


def test_reports_count_what_changed() -> None:
    graph, reports = run_passes(graph_of(unread_chain))
    assert operators(graph) == ("RELU6",)
    by_name = {report.name: report for report in reports}
    assert [report.name for report in reports] == [name for name, _ in PASSES]
    dead = by_name["drop-dead"]
    assert (dead.enabled, dead.nodes_before, dead.nodes_after, dead.changes) == (True, 4, 1, 3)
    assert by_name["fold-constants"].changes == 0


def test_a_disabled_pass_is_reported_as_such() -> None:
    graph, reports = run_passes(graph_of(unread_chain), frozenset({"drop-dead", "alias-views"}))
    assert operators(graph) == ("RELU", "TANH", "RESHAPE", "RELU6")
    assert {r.name for r in reports if not r.enabled} == {"drop-dead", "alias-views"}


def test_passes_leave_a_graph_without_work_untouched() -> None:
    before = graph_of(lambda net: net.output(net.unary("RELU", net.input(X))))
    after, reports = run_passes(before)
    assert after is before and all(report.changes == 0 for report in reports)

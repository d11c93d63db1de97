"""Operators that keep something inside of IF and WHILE: against TFLite Micro over sequences, in streams, and refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from emitc.errors import EmitcError, Refusals
from emitc.frontends.build import build_graph
from emitc.frontends.tflite.reader import read_tflite
from emitc.ir import Array
from emitc.kernels import tflite_registry
from emitc.kernels.control_flow.control_flow import If
from emitc.report.inspection import inspect_model
from emitc.verify.build import HostModel, build_shared
from emitc.verify.engines.run import run_isolated
from emitc.verify.golden_run import interface_of
from emitc.verify.reference import random_samples, run_reference
from emitc.verify.verification import verify
from emitc.writers.tflite import ModelSpec, OperatorSpec, SubgraphSpec, TensorSpec, write_tflite
from tests.support.models.control_flow import Sub, compiled, product
from tests.support.models.subgraph_state import (
    MODELS,
    branches,
    buffer,
    filters,
    filters_round,
    filters_shared,
    first_time,
    first_time_of_two,
    once,
    placed,
    remembering,
    start,
)
from tests.support.recurrent_cases import svdf


@pytest.mark.parametrize("name", MODELS)
def test_sequences_equal_the_interpreter_bit_for_bit(name: str, tmp_path: Path) -> None:
    """The proof resets at the end, and asks for the first answer again."""
    pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")
    proof = verify(compiled(MODELS[name](), tmp_path), samples=12, reference="tflm")
    assert proof.match
    assert (proof.differing, proof.numpy_differing, proof.reference) == (0, 0, "tflm")


@pytest.mark.parametrize("name", ["first_time_shared", "first_round"])
def test_initialisations_inside_are_those_of_litert_too(name: str, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="the extra emitc[verify] is not installed")
    proof = verify(compiled(MODELS[name](), tmp_path), samples=12, reference="litert")
    assert (proof.match, proof.differing, proof.reference) == (True, 0, "litert")


@pytest.mark.parametrize("name", MODELS)
def test_what_came_before_makes_a_difference(name: str, tmp_path: Path) -> None:
    """Otherwise the comparison above would say nothing of what is kept."""
    graph = compiled(MODELS[name](), tmp_path).graph
    assert graph.states
    state: dict[str, Array] = {}
    sequence = random_samples(graph, 12, 1)
    later = [run_reference(graph, inputs, state)[name] for inputs in sequence for name in graph.outputs]
    fresh = [run_reference(graph, inputs)[name] for inputs in sequence for name in graph.outputs]
    assert any(not np.array_equal(a, b) for a, b in zip(later, fresh, strict=True))


@pytest.mark.parametrize("name", ["filters_deep", "asking"])
def test_memory_is_clean_layer_by_layer(name: str, tmp_path: Path) -> None:
    pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")
    proof = verify(compiled(MODELS[name](), tmp_path), samples=6, reference="tflm", layers=True, sanitize=True)
    assert proof.match
    assert proof.layers_checked > 0


def test_streams_and_resets(tmp_path: Path) -> None:
    """Two sequences in turn in one arena, each in a state block of its own, equal the engine's; so does one after a reset."""
    pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")
    made = compiled(MODELS["first_time_late"](), tmp_path)
    made.write(tmp_path / "package")
    library = build_shared(tmp_path / "package", tmp_path, trace=False)
    first = HostModel(library, interface_of(made))
    second = HostModel(library, interface_of(made), sharing=first)
    sequences = [random_samples(made.graph, 60, seed) for seed in (1, 2)]
    golden = [run_isolated(made.model_bytes, sequence, engine="tflm").outputs for sequence in sequences]
    for again in (False, True):
        for number, frames in enumerate(zip(*sequences, strict=True)):
            for host, inputs, expected in zip((first, second), frames, (each[number] for each in golden), strict=True):
                host.fill(number % 251)
                assert np.array_equal(host.run(inputs)[0], expected[0].reshape(1, 6)), (again, number)
        first.reset()
        second.reset()


# ---- memory ----


def test_a_memory_is_updated_where_it_lies(tmp_path: Path) -> None:
    """A longer one takes more of the state block, and nothing of the arena."""
    found = []
    for steps in (3, 300):
        net = Sub()
        x = net.bytes()
        sub = net.sub((x,), (placed(net, svdf("long", 1, 6, 6, 1, steps), x),))
        found.append(compiled(branches(sub, product()), tmp_path).program)
    short, long = found
    assert long.state_bytes - short.state_bytes >= 6 * 290
    assert long.plan.arena_bytes == short.plan.arena_bytes


@pytest.mark.parametrize(
    ("made", "states"), [(filters_shared, 1), (filters, 1), (filters_round, 1), (first_time_of_two, 3)]
)
def test_a_subgraph_has_one_memory_however_many_operators_run_it(
    made: Callable[[], ModelSpec], states: int, tmp_path: Path
) -> None:
    assert len(compiled(made(), tmp_path).graph.states) == states


def test_first_values_are_held_once_while_compiling(tmp_path: Path) -> None:
    """Otherwise a small file with a large variable in many branches would take any amount of memory."""
    path = tmp_path / "model.tflite"
    path.write_bytes(write_tflite(filters_shared()))
    graph = build_graph(read_tflite(path.read_bytes()), tflite_registry(), "model")
    inside = [inner.states for node in graph.nodes if isinstance(node.op, If) for inner in node.op.graphs]
    assert len(inside) == 4
    assert all(tensor.initial is graph.states[0].initial for states in inside for tensor in states)


def test_a_known_condition_keeps_its_operator_where_the_branch_keeps_something(tmp_path: Path) -> None:
    net = Sub()
    x = net.bytes()
    indices = {"then_subgraph_index": 1, "else_subgraph_index": 2}
    y = net.op("IF", (net.constant(True, "bool"), x), net.bytes(), **indices)
    made = compiled(net.model((x,), (y,), remembering(), product()), tmp_path)
    assert [step.op_type for step in made.program.steps] == ["IF"]
    assert verify(made, samples=5, reference="numpy").match


# ---- refusals ----


def _replaced(spec: ModelSpec, position: int, sub: SubgraphSpec) -> ModelSpec:
    subs = list(spec.subgraphs)
    subs[position] = sub
    return replace(spec, subgraphs=tuple(subs))


def _changed(position: int, **changes: object) -> ModelSpec:
    """`filters` with another tensor in its branch: 0 is the input, 4 the memory, 5 the output."""
    sub = remembering()
    tensors = list(sub.tensors)
    tensors[position] = replace(tensors[position], **changes)
    return _replaced(filters(), 0, replace(sub, tensors=tuple(tensors)))


def given_memory() -> ModelSpec:
    sub = remembering()
    return _replaced(filters(), 0, replace(sub, inputs=(4,)))


def gives_memory() -> ModelSpec:
    sub = remembering()
    return _replaced(filters(), 0, replace(sub, outputs=(4,)))


def unused_memory() -> ModelSpec:
    """A variable tensor goes in and out of a branch, and no operator reads it."""
    variable = TensorSpec("v", "int8", (1, 6), None, (0.1,), (3,), is_variable=True)
    return _replaced(filters(), 0, SubgraphSpec((variable,), (), (0,), (0,)))


def _once(index: int, *others: SubgraphSpec) -> ModelSpec:
    """A branch with CALL_ONCE of a subgraph; the third and what follows it are `others`."""
    net = Sub()
    x = net.bytes()
    once(net, index)
    return branches(net.sub((x,), (net.op("RELU", (x,), net.bytes()),)), product(), *others)


def once_in_a_ring() -> ModelSpec:
    net = Sub()
    once(net, 4)
    back = Sub()
    once(back, 3)
    return _once(3, net.sub((), ()), back.sub((), ()))


def ring() -> ModelSpec:
    """A branch runs another subgraph, and this one the branch; a variable in one of them."""
    graphs = []
    for other in (3, 1):
        net = Sub()
        x = net.bytes()
        y = placed(net, svdf("ring", 1, 6, 6, 1, 3), x) if other == 1 else x
        indices = {"then_subgraph_index": other, "else_subgraph_index": 2}
        graphs.append(net.sub((x,), (net.op("IF", (net.constant(True, "bool"), y), net.bytes(), **indices),)))
    return branches(graphs[0], product(), graphs[1])


def too_many() -> ModelSpec:
    """Eight subgraphs, each of which runs the next one thirty times."""
    graphs = []
    for number in range(1, 9):
        net = Sub()
        x = net.bytes()
        for _ in range(30 if number < 8 else 0):
            indices = {"then_subgraph_index": number + 2, "else_subgraph_index": number + 2}
            net.op("IF", (net.constant(True, "bool"), x), net.bytes(), **indices)
        graphs.append(net.sub((x,), (placed(net, svdf("many", 1, 6, 6, 1, 3), x),)))
    return branches(graphs[0], product(), *graphs[1:])


REFUSED: dict[str, tuple[Callable[[], ModelSpec], str, str, int]] = {
    "waiting_buffer": (lambda: buffer(2), "CUSTOM:CIRCULAR_BUFFER with cycles_max 2 is not supported", "ends a run", 1),
    "given_memory": (given_memory, "IF runs subgraph 1, whose interface has a variable tensor", "made in every run", 2),
    "gives_memory": (gives_memory, "IF runs subgraph 1, whose interface has a variable tensor", "made in every run", 2),
    "unused_memory": (unused_memory, "IF runs subgraph 1, whose variables are not the operator's", "made in every run", 2),
    "constant_memory": (
        lambda: _changed(4, data=bytes(18)), "SVDF has a variable tensor with a constant value", "inside of op 4 IF", 2,
    ),
    "computed_memory": (lambda: _changed(4, is_variable=False), "SVDF reads a tensor that nothing has written", "order", 2),
    "short_memory": (lambda: _changed(4, shape=(1, 12)), "SVDF has an input [1, 12]", "[1, 18] is expected", 1),
    "open_memory": (
        lambda: _changed(4, shape=(1, 1), shape_signature=(1, -1)), "IF keeps state of an unknown size", "known and over 0", 2,
    ),
    "once_of_nothing": (lambda: _once(9), "CALL_ONCE calls subgraph 9", "the file has 3", 2),
    "once_of_the_model": (lambda: _once(0), "CALL_ONCE calls subgraph 0", "runs itself", 2),
    "once_of_a_branch": (lambda: _once(2), "CALL_ONCE calls subgraph 2, which has inputs or outputs", "takes and gives", 2),
    "once_of_itself": (lambda: _once(1), "CALL_ONCE calls subgraph 1", "runs itself", 2),
    "once_in_a_ring": (once_in_a_ring, "CALL_ONCE calls subgraph 3", "runs itself", 2),
    "once_without_code": (
        lambda: _once(3, replace(start(), operators=(*start().operators, OperatorSpec("SKIP_GRAM", (0,), (0,))))),
        "SKIP_GRAM is not supported", "of op", 1,
    ),
    "ring": (ring, "IF runs subgraph 1", "it runs itself", 2),
    "too_many": (too_many, "IF runs too many operators", "the limit is 4096", 2),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str, tmp_path: Path) -> None:
    spec, what, why, code = REFUSED[case]
    with pytest.raises(EmitcError) as refused:
        compiled(spec(), tmp_path)
    errors = refused.value.errors if isinstance(refused.value, Refusals) else (refused.value,)
    assert what in [error.what for error in errors]
    assert why in next(error.why for error in errors if error.what == what)
    assert refused.value.exit_code == code
    found = inspect_model(tmp_path / "model.tflite", {})
    assert what in "".join((*found["blockers"], *(row["reason"] for row in found["operators"])))


def test_first_time_is_an_operator_of_the_branch(tmp_path: Path) -> None:
    """It is one that calls nothing in later runs."""
    (step,) = (step for step in compiled(first_time(), tmp_path).program.steps if step.op_type == "IF")
    inner = [each for each in step.parts[0].steps if each.parts]
    assert [(each.op_type, [len(part.steps) for part in each.parts]) for each in inner] == [("CALL_ONCE", [0, 2])]

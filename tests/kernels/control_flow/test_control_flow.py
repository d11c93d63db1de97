"""IF and WHILE of TFLite: against TFLite Micro and the references, their memory, what is folded, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from emitc.errors import EmitcError, Refusals
from emitc.kernels.control_flow.control_flow import If, rounds_within
from emitc.report.inspection import inspect_model
from emitc.verify.reference import run_reference
from emitc.verify.tolerances import EXACT, NEAR, TOLERANT, Tolerance, rules
from emitc.verify.verification import verify
from emitc.writers.tflite import ModelSpec, OperatorSpec, SubgraphSpec, write_tflite
from tests.support.models.control_flow import (
    MODELS,
    SHAPE,
    STATEFUL,
    Sub,
    _below,
    _greater,
    _next,
    _variable,
    add,
    choice,
    compiled,
    count,
    nested,
    product,
)


@pytest.mark.sweep(keep=7)
@pytest.mark.parametrize("name", MODELS)
def test_models_equal_the_interpreter_bit_for_bit(name: str, tmp_path: Path) -> None:
    pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")
    proof = verify(compiled(MODELS[name](), tmp_path), samples=30, reference="tflm", layers=True, sanitize=True)
    assert proof.match
    assert (proof.differing, proof.numpy_differing, proof.reference) == (0, 0, "tflm")
    assert proof.layers_checked > 0


@pytest.mark.parametrize("name", STATEFUL)
def test_variables_inside_hold_their_values_between_runs(name: str, tmp_path: Path) -> None:
    pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")
    made = compiled(STATEFUL[name](), tmp_path)
    proof = verify(made, samples=30, reference="tflm", layers=True, sanitize=True)
    assert proof.match
    assert (proof.differing, proof.numpy_differing, proof.reference) == (0, 0, "tflm")


def test_both_branches_are_taken_by_the_samples(tmp_path: Path) -> None:
    """Otherwise the comparison above would say nothing of one of them."""
    graph = compiled(choice(), tmp_path).graph
    node = next(node for node in graph.nodes if isinstance(node.op, If))
    rng = np.random.default_rng(0)
    taken = {
        bool(run_reference(graph, [rng.integers(-128, 128, SHAPE, np.int8)])[node.inputs[0]].reshape(-1)[0])
        for _ in range(20)
    }
    assert taken == {True, False}


@pytest.mark.parametrize("name", ["known", "derived", "passed_known"])
def test_a_known_condition_leaves_one_branch(name: str, tmp_path: Path) -> None:
    made = compiled(MODELS[name](), tmp_path)
    assert "IF" not in {step.op_type for step in made.program.steps}
    (report,) = (each for each in made.passes if each.name == "inline-branches")
    assert report.changes > 0
    whole = compiled(MODELS[name](), tmp_path, disabled=frozenset({"inline-branches"}))
    assert "IF" in {step.op_type for step in whole.program.steps}
    assert whole.program.plan.arena_bytes > made.program.plan.arena_bytes
    assert verify(whole, samples=5, reference="numpy").match


def test_only_the_taken_branch_is_left_in_the_source(tmp_path: Path) -> None:
    """`known` is false, and its other branch multiplies."""
    kinds = [step.op_type for step in compiled(MODELS["known"](), tmp_path).program.steps]
    assert "MUL" in kinds
    assert "ADD" not in kinds


def test_graphs_of_one_operator_share_its_memory(tmp_path: Path) -> None:
    program = compiled(choice(), tmp_path).program
    (step,) = (step for step in program.steps if step.parts)
    arenas = [part.plan.arena_bytes for part in step.parts]
    assert [operand.size_bytes for operand in step.scratch] == [max(arenas)]
    assert [part.name for part in step.parts] == [f"op{step.index}_then", f"op{step.index}_else"]
    (loop,) = compiled(count(), tmp_path).program.steps
    assert [part.name for part in loop.parts] == ["op0_condition", "op0_body"]


def test_operators_inside_are_numbered_behind_the_others(tmp_path: Path) -> None:
    program = compiled(nested(), tmp_path).program
    every = [step.index for step in program.every_step]
    assert len(set(every)) == len(every)
    assert max(step.index for step in program.steps) < min(set(every) - {step.index for step in program.steps})
    assert len([step for step in program.every_step if step.parts]) == 2


def test_passes_run_inside(tmp_path: Path) -> None:
    """A RELU after a product becomes its clamp in the branch, too."""
    program = compiled(choice(), tmp_path).program
    (step,) = (step for step in program.steps if step.parts)
    assert [inner.op_type for inner in step.parts[1].steps] == ["MUL"]
    plain = compiled(choice(), tmp_path, disabled=frozenset({"fuse-activation"})).program
    (step,) = (step for step in plain.steps if step.parts)
    assert [inner.op_type for inner in step.parts[1].steps] == ["MUL", "RELU"]


def test_a_loop_that_does_not_end_is_an_error_of_the_reference(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("emitc.kernels.control_flow.control_flow.rounds_within", lambda work: 3)
    made = compiled(count(0, 5), tmp_path)
    with pytest.raises(EmitcError, match="a loop does not end"):
        run_reference(made.graph, [np.zeros(SHAPE, np.int8)])


@pytest.mark.sweep(keep=1)
@pytest.mark.parametrize("reference", ["tflm", "auto", "numpy"])
def test_a_loop_without_end_is_reported_before_anything_runs_it(reference: str, tmp_path: Path) -> None:
    """The counter is an input, so that random values keep the loop going for billions of rounds."""
    body = Sub()
    counter = body.tensor("int32", (1,))
    loop = body.sub((counter,), (body.op("MAXIMUM", (counter, counter), body.tensor("int32", (1,))),))
    net = Sub()
    start = net.tensor("int32", (1,))
    end = net.tensor("int32", (1,))
    net.ops("WHILE", (start,), (end,), cond_subgraph_index=1, body_subgraph_index=2)
    made = compiled(net.model((start,), (end,), _below(-(2**31) + 1), loop), tmp_path)
    assert verify(made, samples=2, reference=reference).match, "no round at all"
    made = compiled(net.model((start,), (end,), _below(2**31 - 1), loop), tmp_path)
    with pytest.raises(EmitcError, match="a loop does not end") as refused:
        verify(made, samples=2, reference=reference)
    assert refused.value.hint == "verify with --samples 0 and --vectors whose inputs let it end"


def test_rounds_of_a_large_body_are_fewer(tmp_path: Path) -> None:
    assert rounds_within(1) == 100_000
    assert rounds_within(1 << 30) == 16


# ---- refusals ----


def _with(spec: ModelSpec, position: int, sub: SubgraphSpec) -> ModelSpec:
    subs = list(spec.subgraphs)
    subs[position] = sub
    return replace(spec, subgraphs=tuple(subs))


def _operator(spec: ModelSpec, opcode: str, **options: int) -> ModelSpec:
    operators = tuple(replace(o, options={**o.options, **options}) if o.opcode == opcode else o for o in spec.operators)
    return replace(spec, operators=operators)


def two_outputs() -> ModelSpec:
    sub = add()
    return _with(choice(), 0, replace(sub, outputs=(*sub.outputs, *sub.outputs)))


def other_shape() -> ModelSpec:
    net = Sub()
    x = net.bytes()
    y = net.op("CONCATENATION", (x, x), net.bytes((2, 6)), axis=0, fused_activation_function="NONE")
    return _with(choice(), 0, net.sub((x,), (y,)))


def other_input() -> ModelSpec:
    net = Sub()
    x = net.bytes((1, 5))
    return _with(choice(), 0, net.sub((x,), (net.op("RELU", (x,), net.bytes((1, 5))),)))


def other_type() -> ModelSpec:
    net = Sub()
    x = net.bytes()
    y = net.op("DEQUANTIZE", (x,), net.tensor("float32", SHAPE))
    return _with(choice(), 1, net.sub((x,), (y,)))


def growing() -> ModelSpec:
    body = Sub()
    counter, x = body.tensor("int32", (1,)), body.bytes()
    y = body.op("CONCATENATION", (x, x), body.bytes((2, 6)), axis=0, fused_activation_function="NONE")
    return _with(count(), 1, body.sub((counter, x), (_next(body, counter), y)))


def condition_of_two() -> ModelSpec:
    sub = _below(5, ("int8", SHAPE))
    return _with(count(), 0, replace(sub, outputs=(*sub.outputs, *sub.outputs)))


def condition_of_int32() -> ModelSpec:
    net = Sub()
    counter, _ = net.tensor("int32", (1,)), net.bytes()
    return _with(count(), 0, net.sub((counter, 1), (_next(net, counter),)))


def _with_state(*operators: str, other: bool = False) -> ModelSpec:
    """A branch that touches a variable."""
    net = Sub()
    inputs = (net.bytes(),)
    handle = _variable(net)
    for opcode in operators:
        if opcode == "ASSIGN_VARIABLE":
            value = net.constant([[1] * 6], "int32") if other else inputs[-1]
            net.operators.append(OperatorSpec(opcode, (handle, value), ()))
        else:
            net.op(opcode, (handle,), net.bytes())
    return _with(choice(), 0, net.sub(inputs, (net.op("RELU", inputs, net.bytes()),)))


def never_assigned() -> ModelSpec:
    return _with_state("READ_VARIABLE")


def of_two_types() -> ModelSpec:
    spec = _with_state("ASSIGN_VARIABLE")
    return _with(spec, 1, _with_state("ASSIGN_VARIABLE", other=True).subgraphs[0])


def once_of_a_branch() -> ModelSpec:
    spec = choice()
    sub = replace(spec.subgraphs[0], operators=(OperatorSpec("CALL_ONCE", (), (), {"init_subgraph_index": 2}),))
    return _with(spec, 0, sub)


def stray_handle() -> ModelSpec:
    net = Sub()
    x, stray = net.bytes(), net.tensor("resource", ())
    net.operators.append(OperatorSpec("ASSIGN_VARIABLE", (stray, x), ()))
    return _with(choice(), 0, net.sub((x,), (net.op("RELU", (x,), net.bytes()),)))


def state_in_itself() -> ModelSpec:
    net = Sub()
    x = net.bytes()
    net.operators.append(OperatorSpec("ASSIGN_VARIABLE", (_variable(net), x), ()))
    yes = net.constant(True, "bool")
    y = net.op("IF", (yes, x), net.bytes(), then_subgraph_index=1, else_subgraph_index=2)
    return _with(choice(), 0, net.sub((x,), (y,)))


def itself() -> ModelSpec:
    net = Sub()
    x = net.bytes()
    yes = net.constant(True, "bool")
    y = net.op("IF", (yes, x), net.bytes(), then_subgraph_index=1, else_subgraph_index=2)
    return _with(choice(), 0, net.sub((x,), (y,)))


def unsupported_inside() -> ModelSpec:
    net = Sub()
    x = net.bytes()
    y = net.op("DENSIFY", (x,), net.bytes())
    z = net.op("NEG", (y,), net.bytes())
    return _with(choice(), 0, net.sub((x,), (z,)))


REFUSED: dict[str, tuple[Callable[[], ModelSpec], str, str, int]] = {
    "two_outputs": (two_outputs, "IF runs a subgraph with other outputs", "gives 2 tensors, the operator has 1", 2),
    "other_shape": (other_shape, "IF has branches that give different shapes", "[2, 6] and [1, 6]", 1),
    "other_input": (other_input, "IF runs subgraph 1 on another type or shape", "int8[1,5]", 2),
    "other_type": (other_type, "IF runs a subgraph that gives another type", "float32", 2),
    "growing": (growing, "WHILE has a body that changes shapes", "[1, 6] and [2, 6]", 1),
    "condition_of_two": (condition_of_two, "WHILE has a condition of 2 values", "one is expected", 2),
    "condition_of_int32": (condition_of_int32, "WHILE has the condition int32[1]", "one truth value is expected", 2),
    "never_assigned": (never_assigned, 'IF takes the variable "s", which nothing assigns', "what is assigned", 2),
    "of_two_types": (of_two_types, 'ASSIGN_VARIABLE gives the variable "s" another type or shape', "int32", 2),
    "once_of_a_branch": (
        once_of_a_branch, "CALL_ONCE calls subgraph 2, which has inputs or outputs", 'inside of op 4 IF "t10"', 2,
    ),
    "stray_handle": (stray_handle, "ASSIGN_VARIABLE of a tensor that is no variable", "in the same subgraph", 2),
    "state_in_itself": (state_in_itself, "IF runs subgraph 1", "it runs itself", 2),
    "itself": (itself, "IF runs subgraph 1", "it runs itself", 2),
    "no_such_subgraph": (
        lambda: _operator(choice(), "IF", then_subgraph_index=7), "IF runs subgraph 7", "the file has 3", 2,
    ),
    "the_model": (
        lambda: _operator(choice(), "IF", else_subgraph_index=0), "IF runs subgraph 0", "the model itself, without end", 2,
    ),
    "operands": (
        lambda: _with(choice(), 0, replace(product(), inputs=())), "IF runs subgraph 1 with 1 operands", "it takes 0", 2,
    ),
    "unsupported_inside": (unsupported_inside, "DENSIFY is not supported", 'in the then branch of op 4 IF "t10", subgraph 1', 1),
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


def test_inspection_names_everything_inside(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(write_tflite(unsupported_inside()))
    found = inspect_model(path, {})
    (row,) = (row for row in found["operators"] if not row["supported"])
    assert row["op"] == "IF"
    assert "DENSIFY is not supported" in row["reason"]
    assert "NEG with element types (int8, int8) is not supported" in row["reason"]
    assert [(each["op"], each["name"]) for each in row["inside"]] == [("DENSIFY", "t1"), ("NEG", "t2")]
    assert all(
        '(in the then branch of op 4 IF "t10", subgraph 1)' in each["reason"] and each["hint"] for each in row["inside"]
    )


def test_inspection_names_a_custom_operator_inside_whose_code_has_spaces(tmp_path: Path) -> None:
    net = Sub()
    x, y = net.bytes(), net.bytes()
    net.operators.append(OperatorSpec("CUSTOM", (x,), (y,), custom_code="My own op"))
    path = tmp_path / "model.tflite"
    path.write_bytes(write_tflite(_with(choice(), 0, net.sub((x,), (y,)))))
    (row,) = (row for row in inspect_model(path, {})["operators"] if not row["supported"])
    assert [(each["op"], each["name"]) for each in row["inside"]] == [("CUSTOM:My own op", "t1")]


def test_a_subgraph_that_nothing_runs_is_left_out_with_a_note(tmp_path: Path) -> None:
    spec = choice()
    whole, more = (compiled(each, tmp_path) for each in (spec, replace(spec, subgraphs=(*spec.subgraphs, add()))))
    (note,) = set(more.source.notes) - set(whole.source.notes)
    assert note.startswith("subgraph 3 is not compiled: no operator leads there")
    assert len(more.program.steps) == len(whole.program.steps)


# ---- floats ----


def _floats(inside: str, fine: bool = False) -> ModelSpec:
    """A choice between TANH and a product of floats, a loop of the same, or a choice after a sum."""
    graphs = []
    for opcode in ("TANH", "MUL") if fine else ("EXP", "MUL"):
        net = Sub()
        x = net.tensor("float32", SHAPE)
        operands, options = ((x, x), {"fused_activation_function": "NONE"}) if opcode == "MUL" else ((x,), {})
        graphs.append(net.sub((x,), (net.op(opcode, operands, net.tensor("float32", SHAPE), **options),)))
    net = Sub()
    x0 = net.bytes()
    real = net.op("DEQUANTIZE", (x0,), net.tensor("float32", SHAPE))
    if inside == "behind":
        real = net.op("LOGISTIC", (real,), net.tensor("float32", SHAPE))
        graphs[0] = graphs[1]
    if inside == "loop":
        body = Sub()
        counter, y = body.tensor("int32", (1,)), body.tensor("float32", SHAPE)
        z = body.op("TANH" if fine else "EXP", (y,), body.tensor("float32", SHAPE))
        negative = body.op("NEG", (z,), body.tensor("float32", SHAPE))
        loop = body.sub((counter, y), (_next(body, counter), negative))
        outputs = net.tensor("int32", (1,)), net.tensor("float32", SHAPE)
        start = net.constant([0], "int32")
        net.ops("WHILE", (start, real), outputs, cond_subgraph_index=1, body_subgraph_index=2)
        return net.model((x0,), outputs, _below(3, ("float32", SHAPE)), loop)
    out = net.tensor("float32", SHAPE)
    y = net.op("IF", (_greater(net, x0), real), out, then_subgraph_index=1, else_subgraph_index=2)
    return net.model((x0,), (y, net.op("NEG", (y,), net.tensor("float32", SHAPE))), *graphs)


@pytest.mark.parametrize(
    ("inside", "fine", "expected"),
    [
        ("choice", False, [TOLERANT, TOLERANT]),
        ("choice", True, [NEAR, NEAR]),
        ("behind", False, [TOLERANT, TOLERANT]),
        ("loop", False, [EXACT, TOLERANT]),
        ("loop", True, [EXACT, NEAR]),
    ],
)
def test_floats_from_inside_are_judged_by_what_computes_them(
    inside: str, fine: bool, expected: list[Tolerance], tmp_path: Path
) -> None:
    pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")
    made = compiled(_floats(inside, fine), tmp_path)
    found = rules(made.graph, "tflite")
    assert [found[name] for name in made.graph.outputs] == expected
    proof = verify(made, samples=10, reference="tflm")
    assert (proof.match, proof.rule, proof.differing) == (True, "tolerance", 0)


def test_a_tolerance_goes_round_a_loop_until_nothing_widens(tmp_path: Path) -> None:
    """a, b = b, exp(b): what comes out as a was computed a round before."""
    real = "float32", SHAPE
    body = Sub()
    counter, a, b = body.tensor("int32", (1,)), body.tensor(*real), body.tensor(*real)
    c = body.op("EXP", (b,), body.tensor(*real))
    loop = body.sub((counter, a, b), (_next(body, counter), b, c))
    net = Sub()
    x, y, start = net.tensor(*real), net.tensor(*real), net.constant([0], "int32")
    outputs = net.tensor("int32", (1,)), net.tensor(*real), net.tensor(*real)
    net.ops("WHILE", (start, x, y), outputs, cond_subgraph_index=1, body_subgraph_index=2)
    made = compiled(net.model((x, y), outputs, _below(2, real, real), loop), tmp_path).graph
    assert [rules(made, "tflite")[name] for name in made.outputs] == [EXACT, TOLERANT, TOLERANT]


def test_floats_that_are_only_moved_or_multiplied_inside_stay_exact(tmp_path: Path) -> None:
    spec = _floats("choice")
    product_of_floats = compiled(replace(spec, subgraphs=(spec.subgraphs[1], spec.subgraphs[1])), tmp_path).graph
    assert {rules(product_of_floats, "tflite")[name] for name in product_of_floats.outputs} == {EXACT}

"""If, Loop and Scan of ONNX: against ONNX Runtime and the references, what becomes of them, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import GraphProto, ModelProto, TensorProto

from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.errors import EmitcError, Refusals
from emitc.kernels.control_flow.control_flow import Loop
from emitc.report.catalogue import inspect_text
from emitc.report.inspection import inspect_model
from emitc.verify.reference import random_samples, run_reference
from emitc.verify.tolerances import EXACT, TOLERANT, rules
from emitc.verify.verification import verify
from tests.support.models.onnx_control import (
    BOOL,
    FLOAT,
    GO_ON,
    INT64,
    LESS,
    MODELS,
    POSITIVE,
    ROUND,
    SHAPE,
    ZERO,
    Value,
    _loop,
    at_most,
    choice,
    constant,
    counted,
    floats,
    graph,
    growing,
    model,
    node,
    obeyed,
    rounds,
    scan,
    swapped,
)  # fmt: skip


def compiled(made: ModelProto, folder: Path, **options: object) -> Compiled:
    path = folder / "model.onnx"
    path.write_bytes(made.SerializeToString())
    return compile_model(path, **options)


@pytest.mark.sweep(keep=9)
@pytest.mark.parametrize("name", MODELS)
def test_models_equal_the_runtime(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")
    sanitize = name in ("rounds", "backward", "loop_if", "nested")
    proof = verify(compiled(MODELS[name](), tmp_path), samples=12, layers=True, sanitize=sanitize)
    assert proof.match
    assert (proof.differing, proof.numpy_differing, proof.reference) == (0, 0, "onnxruntime")


KINDS = {
    "choice": ["ReduceSum", "Greater", "If"],
    "rounds": ["Loop"],
    "until": ["ReduceMax", "Less", "Loop"],
    "scan": ["Scan"],
    "growing": ["Concat"] * 3,
    "descending": ["Concat"] * 4,
    "sliced": ["Add", "Neg"] * 4,
}
"""What is left of a model. Rounds are put one after the other only where shapes ask for it."""


@pytest.mark.parametrize("name", KINDS)
def test_loops_are_loops_where_shapes_allow_it(name: str, tmp_path: Path) -> None:
    made = compiled(MODELS[name](), tmp_path, disabled=frozenset({"alias-views"}))
    found = [step.op_type for step in made.program.steps if step.op_type not in ("Identity", "Unsqueeze", "Reshape")]
    assert sorted(found) == sorted(KINDS[name])


def test_the_body_decides_although_no_condition_is_given(tmp_path: Path) -> None:
    """The specification leaves the body's condition out of account then, ONNX Runtime does not."""
    graph_ = compiled(obeyed(), tmp_path).graph
    one_round = run_reference(graph_, [np.ones(SHAPE, np.float32)])[graph_.outputs[0]]
    assert one_round.tolist() == [[1.0] * 4]
    every = run_reference(graph_, [np.full(SHAPE, -1, np.float32)])[graph_.outputs[0]]
    assert every.tolist() == [[1.0] * 4], "the first product is 1"


def test_a_body_gets_external_weights(tmp_path: Path) -> None:
    """A body with constants takes the weights as an argument, which its loop hands on."""
    made = compiled(MODELS["scan"](), tmp_path, weights="external")
    assert "_body(const struct" in made.files[f"{made.program.name}.c"].decode()
    assert verify(made, samples=2).match


def test_both_limit_and_condition_end_a_loop(tmp_path: Path) -> None:
    """Otherwise the comparison above would say little of one of them."""
    found = compiled(at_most(), tmp_path).graph
    results = [run_reference(found, sample)[found.outputs[0]].max() for sample in random_samples(found, 12, 0)]
    assert {bool(largest >= 5) for largest in results} == {True, False}


def test_a_value_that_goes_round_need_not_come_out(tmp_path: Path) -> None:
    """ONNX Runtime ends its process on such a model."""
    made = swapped()
    made.graph.node[0].output[1] = ""
    both, one = (compiled(each, tmp_path).graph for each in (swapped(), made))
    operands = [np.arange(4, dtype=np.float32)[np.newaxis] * k for k in (1, 2)]
    assert (
        run_reference(one, operands)[one.outputs[0]].tobytes()
        == run_reference(both, operands)[both.outputs[0]].tobytes()
    )
    assert verify(compiled(made, tmp_path), samples=3, reference="numpy").match


def test_constants_are_shared_and_values_become_operands(tmp_path: Path) -> None:
    found = compiled(choice(), tmp_path).graph
    (chosen,) = (each for each in found.nodes if each.op_type == "If")
    assert [found.tensor(name).label for name in chosen.inputs] == ["positive", "x"]
    assert [len(inner.inputs) for inner in chosen.op.graphs] == [1, 1]


def test_operators_that_passes_add_inside_have_numbers_of_their_own(tmp_path: Path) -> None:
    """Convolutions on weights from outside: each branch gets a further operator, whose number was the other branch's, too."""
    image, codes = (1, 3, 5, 5), TensorProto.UINT8

    def branch(y: str) -> GraphProto:
        nodes = [
            node("DequantizeLinear", ["q", "s", "p"], [f"{y}_r"]), node("Conv", [f"{y}_r", "rw"], [f"{y}_c"], pads=[1] * 4),
            node("QuantizeLinear", [f"{y}_c", "s", "p"], [y]),
        ]  # fmt: skip
        return graph(nodes, (), [(y, codes, image)])

    weights = np.random.default_rng(7).integers(-127, 128, (3, 3, 3, 3))
    constants = [constant("s", 0.02), constant("p", 120, "uint8"), constant("w", weights, "int8"), ZERO]
    nodes = [
        *POSITIVE, node("QuantizeLinear", ["x", "s", "p"], ["q"]), node("DequantizeLinear", ["w", "s"], ["rw"]),
        node("If", ["positive"], ["y"], then_branch=branch("a"), else_branch=branch("b")),
    ]  # fmt: skip
    made = compiled(model(nodes, [("x", FLOAT, image)], [("y", codes, image)], constants), tmp_path)
    found = [step.index for step in made.program.every_step]
    assert len(set(found)) == len(found)


def test_a_number_of_rounds_that_nothing_reads_is_not_passed(tmp_path: Path) -> None:
    quiet = _loop([GO_ON, node("Add", ["v", "x"], ["v2"])], "m", "", [constant("m", 3, "int64")])
    loops = [compiled(made, tmp_path).graph.nodes[-1].op for made in (quiet, rounds())]
    assert [isinstance(op, Loop) and op.numbered for op in loops] == [False, True]


def test_floats_from_a_loop_are_tolerant_and_what_is_only_moved_is_exact(tmp_path: Path) -> None:
    turned = [GO_ON, node("Transpose", ["v"], ["t"], perm=[1, 0]), node("Reshape", ["t", "shape"], ["v2"])]
    moved = _loop(turned, "m", "", [constant("m", 2, "int64"), constant("shape", SHAPE, "int64")])
    for made, rule in ((moved, EXACT), (rounds(), TOLERANT)):
        found = compiled(made, tmp_path).graph
        assert {rules(found, "onnx")[name] for name in found.outputs} == {rule}


def test_a_loop_without_end_is_reported_before_anything_runs_it(tmp_path: Path) -> None:
    condition = node("Less", ["most", "limit"], ["go_on"])
    endless = _loop([*ROUND, condition], "", "less", [constant("limit", 1e30)], LESS)
    made = compiled(endless, tmp_path)
    with np.errstate(all="ignore"), pytest.raises(EmitcError, match="a loop does not end"):
        verify(made, samples=1)


# ---- refusals ----


def of_other_shape() -> ModelProto:
    wide = graph([node("Concat", ["x", "x"], ["w"], axis=1)], (), [("w", FLOAT, (1, 8))])
    kept = graph([node("Neg", ["x"], ["n"])], (), floats("n"))
    nodes = [*POSITIVE, node("If", ["positive"], ["y"], then_branch=wide, else_branch=kept)]
    return model(nodes, floats("x"), [("y", FLOAT, None)], [ZERO])


def growing_by_data() -> ModelProto:
    made = growing()
    made.graph.initializer[0].CopyFrom(constant("unused", 1, "int64"))
    made.graph.input.append(graph([], [("m", INT64, ())]).input[0])
    return made


def endless() -> ModelProto:
    return _loop([GO_ON, *ROUND], "", "")


def slices_by_data() -> ModelProto:
    made = counted()
    loop = made.graph.node[-1]
    loop.attribute[0].g.output.append(graph([], [("w", FLOAT, SHAPE)]).input[0])
    loop.output.append("ys")
    return made


def many_rounds() -> ModelProto:
    made = growing()
    made.graph.initializer[0].CopyFrom(constant("m", 10**12, "int64"))
    return made


def other_inputs() -> ModelProto:
    made = rounds()
    made.graph.node[-1].attribute[0].g.input.append(graph([], floats("more")).input[0])
    return made


def no_kernel_inside() -> ModelProto:
    inner = [GO_ON, node("Hardmax", ["v"], ["d"]), node("Add", ["v", "d"], ["v2"])]
    return _loop(inner, "m", "", [constant("m", 3, "int64")])


def no_kernels_inside() -> ModelProto:
    """Branches of a branch, each with operators of its own without code."""
    random = graph([node("Bernoulli", ["x"], ["d"]), node("Hardmax", ["d"], ["b"])], (), floats("b"))
    summed = graph([node("Einsum", ["x"], ["c"], equation="ij->ij")], (), floats("c"))
    first = graph([node("If", ["positive"], ["i"], then_branch=random, else_branch=summed)], (), floats("i"))
    second = graph([node("Neg", ["x"], ["n"])], (), floats("n"))
    nodes = [*POSITIVE, node("If", ["positive"], ["y"], then_branch=first, else_branch=second)]
    return model(nodes, floats("x"), floats("y"), [ZERO])


def test_inspection_lists_every_operator_inside(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(no_kernels_inside().SerializeToString())
    found = inspect_model(path, {})
    (row,) = (row for row in found["operators"] if not row["supported"])
    assert [(inner["op"], inner["name"]) for inner in row["inside"]] == [
        ("Bernoulli", "d"),
        ("Hardmax", "b"),
        ("Einsum", "c"),
    ]
    places = [inner["reason"].partition("(")[2].partition(")")[0] for inner in row["inside"]]
    assert places == ['in the then branch of op 3 If "i"'] * 2 + ['in the else branch of op 3 If "i"']
    assert all(inner["hint"] for inner in row["inside"])
    text = inspect_text(found)
    assert "operators inside, as follows" in text
    assert "ops 4 Bernoulli, 5 Hardmax, 6 Einsum" in text


def other_axis() -> ModelProto:
    made = scan()
    made.graph.node[0].attribute.extend(node("X", [], [], scan_input_axes=[1]).attribute)
    return made


def deep(levels: int = 40) -> ModelProto:
    branch = graph([node("Neg", ["x"], ["n0"])], (), floats("n0"))
    for level in range(1, levels):
        branch = graph(
            [node("If", ["positive"], [f"n{level}"], then_branch=branch, else_branch=branch)], (), floats(f"n{level}")
        )
        if level > 9:  # both branches hold all that lies below
            break
    nodes = [*POSITIVE, node("If", ["positive"], ["y"], then_branch=branch, else_branch=branch)]
    return model(nodes, floats("x"), floats("y"), [ZERO])


def rounds_of_rounds() -> ModelProto:
    """Loops that would all be put one after the other, and each has a thousand rounds."""
    nodes = [node("Concat", ["v5", "x"], ["w5"], axis=1)]
    for level in range(5, 0, -1):
        inputs: list[Value] = [(f"i{level}", INT64, ()), (f"c{level}", BOOL, ()), *floats(f"v{level}")]
        keep = node("Identity", [f"c{level}"], [f"k{level}"])
        inner = graph([keep, *nodes], inputs, [(f"k{level}", BOOL, ()), *floats(f"w{level}")])
        nodes = [node("Loop", ["m", "", f"v{level - 1}" if level > 1 else "x"], [f"w{level - 1}"], body=inner)]
    return model(nodes, floats("x"), [("w0", FLOAT, None)], [constant("m", 1000, "int64")])


REFUSED: dict[str, tuple[Callable[[], ModelProto], str, str, int]] = {
    "of_other_shape": (of_other_shape, "If has branches that give different shapes", "[1, 8] and [1, 4]", 1),
    "growing_by_data": (growing_by_data, "Loop has a body that changes shapes", "sizes must be known", 1),
    "endless": (endless, "a Loop has no end", "neither limit nor condition", 1),
    "slices_by_data": (slices_by_data, "Loop has outputs of unknown length", "the data decide", 1),
    "many_rounds": (many_rounds, "a Loop has too many rounds to compile each by itself", "changes shapes", 1),
    "other_inputs": (other_inputs, "a Loop does not fit its body", "other values", 2),
    "no_kernel_inside": (no_kernel_inside, "Hardmax is not supported", "no kernel", 1),
    "other_axis": (other_axis, "Scan along another dimension than the first is not supported", "where they lie", 1),
    "deep": (deep, "a graph lies too deep inside of operators", "the limit is 8", 2),
    "rounds_of_rounds": (rounds_of_rounds, "graphs inside of operators are too large", "operators read", 2),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str, tmp_path: Path) -> None:
    made, what, why, code = REFUSED[case]
    with pytest.raises(EmitcError) as refused:
        compiled(made(), tmp_path)
    errors = refused.value.errors if isinstance(refused.value, Refusals) else (refused.value,)
    assert what in [error.what for error in errors]
    assert why in next(error.why for error in errors if error.what == what)
    assert refused.value.exit_code == code

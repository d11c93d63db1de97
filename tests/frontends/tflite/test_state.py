"""Resource variables of hostile and unusual files: what they are refused for, and what is accepted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from emitc.compiler import compile_model
from emitc.errors import EmitcError
from emitc.frontends.read import read_source
from emitc.report.inspection import inspect_model
from emitc.verify.verification import verify
from emitc.writers.tflite import ModelSpec, OperatorSpec, SubgraphSpec, TensorSpec, write_tflite

X = TensorSpec("x", "int8", (1, 4), None, (0.5,), (5,))
START = np.array([[1, 2, 3, 4]], np.int8)


def handle(tensor: int, name: str = "s", container: str = "") -> OperatorSpec:
    return OperatorSpec("VAR_HANDLE", (), (tensor,), {"container": container, "shared_name": name})


def once(subgraph: int = 1) -> OperatorSpec:
    return OperatorSpec("CALL_ONCE", (), (), {"init_subgraph_index": subgraph})


READ = OperatorSpec("READ_VARIABLE", (1,), (2,))
ASSIGN = OperatorSpec("ASSIGN_VARIABLE", (1, 0), ())
TENSORS = (X, TensorSpec("h", "resource", ()), replace(X, name="y"))
INIT = SubgraphSpec(
    (TensorSpec("h", "resource", ()), replace(X, name="start", data=START.tobytes())),
    (handle(0), OperatorSpec("ASSIGN_VARIABLE", (0, 1), ())),
    (),
    (),
    "init",
)
BODY = SubgraphSpec((X, replace(X, name="y")), (OperatorSpec("RELU", (0,), (1,)),), (0,), (1,), "body")
MODEL = ModelSpec(TENSORS, (once(), handle(1), READ, ASSIGN), (0,), (2,), subgraphs=(INIT,))
"""y = s; s = x."""


def initially(value: TensorSpec) -> SubgraphSpec:
    """The initialisation with another value."""
    return replace(INIT, tensors=(INIT.tensors[0], value))


def twice() -> SubgraphSpec:
    """The initialisation with twice its value, and an operator that nothing needs."""
    tensors = (*INIT.tensors, replace(X, name="twice"), replace(X, name="unused"))
    double = OperatorSpec("ADD", (1, 1), (2,), {"fused_activation_function": "NONE"})
    found = (handle(0), double, OperatorSpec("DENSIFY", (1,), (3,)), OperatorSpec("ASSIGN_VARIABLE", (0, 2), ()))
    return replace(INIT, tensors=tensors, operators=found)


def operators(*found: OperatorSpec) -> ModelSpec:
    return replace(MODEL, operators=found)


def refusal(spec: ModelSpec, folder: Path) -> EmitcError:
    path = folder / "model.tflite"
    path.write_bytes(write_tflite(spec))
    with pytest.raises(EmitcError) as caught:
        compile_model(path)
    content = inspect_model(path, {})
    reasons = "".join((*content["blockers"], *(operator["reason"] for operator in content["operators"])))
    assert caught.value.what in reasons or "graph output" in caught.value.what
    return caught.value


WRONG: dict[str, tuple[ModelSpec, str, str]] = {
    "calls_itself": (operators(once(0), handle(1), READ, ASSIGN), "CALL_ONCE calls subgraph 0", "without end"),
    "subgraph_is_missing": (operators(once(2), handle(1), READ, ASSIGN), "CALL_ONCE calls subgraph 2", "the file has 2"),
    "subgraph_is_negative": (operators(once(-1), handle(1), READ, ASSIGN), "CALL_ONCE calls subgraph -1", "the file has 2"),
    "init_with_outputs": (
        replace(MODEL, subgraphs=(replace(INIT, outputs=(1,)),)), "which has inputs or outputs", "takes and gives nothing",
    ),
    "init_with_inputs": (
        replace(MODEL, subgraphs=(replace(INIT, tensors=(*INIT.tensors, X), inputs=(2,)),)), "which has inputs or outputs",
        "takes and gives nothing",
    ),
    "init_of_another_shape": (
        replace(MODEL, subgraphs=(initially(replace(X, name="start", shape=(1, 5), data=bytes(5))),)),
        'ASSIGN_VARIABLE gives the variable "s" another type or shape', "int8[1,4], but elsewhere",
    ),
    "init_of_another_rank": (
        replace(MODEL, subgraphs=(initially(replace(X, name="start", shape=(4,), data=bytes(4))),)),
        'ASSIGN_VARIABLE gives the variable "s" another type or shape', "int8[1,4], but elsewhere",
    ),
    "init_of_another_type": (
        replace(MODEL, subgraphs=(initially(TensorSpec("start", "int16", (1, 4), bytes(8), (0.5,))),)),
        'ASSIGN_VARIABLE gives the variable "s" another type or shape', "int8[1,4], but elsewhere",
    ),
    "init_of_an_unknown_handle": (
        replace(MODEL, subgraphs=(replace(INIT, operators=(INIT.operators[1], INIT.operators[0])),)),
        "ASSIGN_VARIABLE of a tensor that is no variable", "a VAR_HANDLE before it names",
    ),
    "read_gives_another_shape": (
        replace(MODEL, tensors=(*TENSORS[:2], replace(X, name="y", shape=(2, 2)))),
        'READ_VARIABLE gives the variable "s" another type or shape', "int8[2,2], but elsewhere",
    ),
    "read_gives_another_type": (
        replace(MODEL, tensors=(*TENSORS[:2], TensorSpec("y", "int32", (1, 4)))),
        'READ_VARIABLE gives the variable "s" another type or shape', "int32[1,4], but elsewhere",
    ),
    "read_before_the_handle": (operators(once(), READ, handle(1), ASSIGN), "READ_VARIABLE of a tensor that is no variable",
                               "a VAR_HANDLE before it names"),
    "read_of_an_input": (operators(OperatorSpec("READ_VARIABLE", (0,), (2,))), "READ_VARIABLE of a tensor that is no variable",
                         "a VAR_HANDLE before it names"),
    "nothing_assigns": (
        replace(MODEL, operators=(handle(1), READ), subgraphs=()),
        'takes the variable "s", which nothing assigns', "of what is assigned",
    ),
    "handle_is_no_resource": (
        replace(MODEL, tensors=(X, TensorSpec("h", "int32", (1,)), TENSORS[2])), "VAR_HANDLE writes int32", "a resource",
    ),
    "two_handles_in_one_tensor": (
        operators(once(), handle(1), handle(1, "t"), READ, ASSIGN), "VAR_HANDLE writes a tensor that is already there",
        "written once",
    ),
    "a_subgraph_that_nothing_calls": (
        replace(MODEL, subgraphs=(INIT, INIT)), "nothing calls subgraph 2",
        "it assigns variables at most, and no operator and no signature leads there",
    ),
    "handle_is_an_output": (replace(MODEL, outputs=(1,)), "nothing writes a graph output", "every output is computed"),
    "assign_with_three_inputs": (
        operators(once(), handle(1), READ, OperatorSpec("ASSIGN_VARIABLE", (1, 0, 0), ())), "ASSIGN_VARIABLE has 3 inputs",
        "2 are expected",
    ),
    "assign_with_an_output": (
        operators(once(), handle(1), OperatorSpec("ASSIGN_VARIABLE", (1, 0), (2,))), "ASSIGN_VARIABLE has 1 outputs",
        "0 are expected",
    ),
    "assign_left_out": (
        operators(once(), handle(1), READ, OperatorSpec("ASSIGN_VARIABLE", (1, -1), ())), "ASSIGN_VARIABLE has no input 1",
        "the file lists",
    ),
    "once_with_an_input": (
        operators(replace(once(), inputs=(0,)), handle(1), READ, ASSIGN), "CALL_ONCE has 1 inputs", "0 are expected",
    ),
    "variable_tensor_with_a_value": (
        ModelSpec(
            (X, replace(X, name="v", data=bytes(4), is_variable=True), replace(X, name="y")),
            (OperatorSpec("ADD", (0, 1), (2,), {"fused_activation_function": "NONE"}),), (0,), (2,),
        ),
        "ADD has a variable tensor with a constant value", "changes from run to run",
    ),
    "variable_tensor_is_written": (
        ModelSpec(
            (X, replace(X, name="y", is_variable=True)),
            (OperatorSpec("ADD", (0, 0), (1,), {"fused_activation_function": "NONE"}),), (0,), (1,),
        ),
        "ADD writes a variable tensor", "made anew in every run",
    ),
    "variable_tensor_is_an_output": (
        ModelSpec((X, replace(X, name="y", is_variable=True)), (), (0,), (1,)), "a graph output is a variable tensor",
        "made in every run",
    ),
    "empty_variable": (
        ModelSpec(
            (X, replace(X, name="v", shape=(1, 0), is_variable=True), replace(X, name="y")),
            (OperatorSpec("ADD", (0, 1), (2,), {"fused_activation_function": "NONE"}),), (0,), (2,),
        ),
        "ADD keeps state of an unknown size", "known and over 0",
    ),
}  # fmt: skip

NO_CODE: dict[str, tuple[ModelSpec, str, str]] = {
    "init_reads": (
        replace(MODEL, subgraphs=(replace(
            INIT, tensors=(*INIT.tensors, replace(X, name="read")),
            operators=(*INIT.operators, OperatorSpec("READ_VARIABLE", (0,), (2,))),
        ),)),
        "CALL_ONCE of a subgraph with READ_VARIABLE is not supported",
        "only assign to variables what follows from constants",
    ),
    "init_computes_what_has_no_code": (
        replace(MODEL, subgraphs=(replace(
            INIT, tensors=(*INIT.tensors, replace(X, name="dense")),
            operators=(handle(0), OperatorSpec("SKIP_GRAM", (1,), (2,)), OperatorSpec("ASSIGN_VARIABLE", (0, 2), ())),
        ),)),
        "SKIP_GRAM is not supported", '(in the initialisation of the variable "s")',
    ),
    "init_computes_unsigned_bytes": (
        replace(
            MODEL, tensors=tuple(replace(t, dtype="uint8") if t.dtype == "int8" else t for t in TENSORS),
            subgraphs=(replace(twice(), tensors=(INIT.tensors[0], *(replace(t, dtype="uint8") for t in twice().tensors[1:]))),),
        ),
        "of a computed value as the start of a state variable is not supported",
        "only assign to variables what follows from constants",
    ),
    "init_computes_late": (
        replace(operators(handle(1), READ, once(), ASSIGN), subgraphs=(twice(),)),
        'initialises "s" after its first use', "READ_VARIABLE",
    ),
    "init_assigns_no_constant": (
        replace(MODEL, subgraphs=(initially(replace(X, name="start")),)),
        "of a computed value as the start of a state variable is not supported",
        "only assign to variables what follows from constants",
    ),
    "init_calls_init": (
        replace(MODEL, subgraphs=(replace(INIT, operators=(once(1), *INIT.operators)),)),
        "CALL_ONCE of a subgraph with CALL_ONCE is not supported",
        "only assign to variables what follows from constants",
    ),
    "init_comes_late": (
        operators(handle(1), READ, once(), ASSIGN), 'initialises "s" after its first use', "READ_VARIABLE",
    ),
    "init_overwrites": (
        operators(handle(1), ASSIGN, once(), READ), 'initialises "s" after its first use', "ASSIGN_VARIABLE",
    ),
    "init_overwrites_with_the_default": (
        replace(
            operators(handle(1), ASSIGN, once(), READ),
            subgraphs=(initially(replace(X, name="start", data=bytes((5,) * 4))),),
        ),
        'initialises "s" after it is assigned', "would lose that value",
    ),
    "another_caller": (
        replace(
            MODEL, operators=(*MODEL.operators, OperatorSpec("CALL", (0,), (3,), {"subgraph": 2})),
            tensors=(*TENSORS, replace(X, name="z")), subgraphs=(INIT, BODY),
        ),
        "CALL is not supported", "emitc has no kernel",
    ),
    "variable_tensor_is_an_input": (
        ModelSpec(
            (replace(X, is_variable=True), replace(X, name="y")),
            (OperatorSpec("ADD", (0, 0), (1,), {"fused_activation_function": "NONE"}),), (0,), (1,),
        ),
        "a graph input that keeps state is not supported", "holds its value between runs",
    ),
    "variable_of_strings": (
        ModelSpec(
            (TensorSpec("x", "string", (1,)), TENSORS[1], TensorSpec("y", "string", (1,))), (handle(1), READ, ASSIGN), (0,), (2,),
        ),
        "a graph input of type string is not supported", "there is code for",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_file_that_contradicts_itself_is_exit_code_2(case: str, tmp_path: Path) -> None:
    spec, what, why = WRONG[case]
    error = refusal(spec, tmp_path)
    assert error.exit_code == 2, error
    assert what in str(error) and why in str(error), error


@pytest.mark.parametrize("case", NO_CODE)
def test_a_right_file_without_code_is_exit_code_1(case: str, tmp_path: Path) -> None:
    spec, what, why = NO_CODE[case]
    error = refusal(spec, tmp_path)
    assert error.exit_code == 1, error
    assert what in str(error) and why in str(error), error


def variables(spec: ModelSpec, folder: Path) -> dict[str, bytes]:
    """Labels of the model's state variables with what they start from."""
    path = folder / "model.tflite"
    path.write_bytes(write_tflite(spec))
    graph = compile_model(path).graph
    return {tensor.label: tensor.initial or b"" for tensor in graph.states}


def test_the_initialisation_becomes_the_first_value(tmp_path: Path) -> None:
    assert variables(MODEL, tmp_path) == {"s": START.tobytes()}


def test_what_the_initialisation_computes_becomes_the_first_value(tmp_path: Path) -> None:
    """2 (q - 5) / 2 steps of 0.5 are q - 5 twice."""
    doubled = (2 * (START.astype(int) - 5) + 5).astype(np.int8)
    assert variables(replace(MODEL, subgraphs=(twice(),)), tmp_path) == {"s": doubled.tobytes()}
    constant = replace(operators(once(1), once(2), handle(1), READ, ASSIGN), subgraphs=(twice(), INIT))
    assert variables(constant, tmp_path) == {"s": START.tobytes()}


def test_the_engine_starts_from_what_the_initialisation_computes(tmp_path: Path) -> None:
    pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")
    real = TensorSpec("real", "float32", (4,), np.array([1.26, -70.0, 0.0, 3.25], "<f4").tobytes())
    shape = TensorSpec("shape", "int32", (2,), np.array([1, 4], "<i4").tobytes())
    tensors = (INIT.tensors[0], real, shape, TensorSpec("row", "float32", (1, 4)), replace(X, name="q"))
    found = (
        handle(0), OperatorSpec("RESHAPE", (1, 2), (3,), {"new_shape": (1, 4)}), OperatorSpec("QUANTIZE", (3,), (4,)),
        OperatorSpec("ASSIGN_VARIABLE", (0, 4), ()),
    )  # fmt: skip
    path = tmp_path / "model.tflite"
    path.write_bytes(write_tflite(replace(MODEL, subgraphs=(replace(INIT, tensors=tensors, operators=found),))))
    proof = verify(compile_model(path), samples=3, layers=True)
    assert proof.match and proof.reference == "tflm"
    assert variables(replace(MODEL, subgraphs=(replace(INIT, tensors=tensors, operators=found),)), tmp_path) == {
        "s": np.array([8, -128, 5, 12], np.int8).tobytes()
    }


def test_other_entry_points_are_left_out_with_a_note(tmp_path: Path) -> None:
    """TFLite Micro runs the first one alone, too."""
    path = tmp_path / "model.tflite"
    path.write_bytes(write_tflite(replace(MODEL, subgraphs=(INIT, BODY, BODY))))
    compiled = compile_model(path)
    assert any(
        note.startswith("subgraphs 2, 3 are not compiled: no operator leads there") for note in compiled.source.notes
    )
    proof = verify(compiled, samples=3)
    assert proof.match and proof.reference == "tflm"


def test_without_one_it_is_the_zero_point_of_bytes_and_zero_elsewhere(tmp_path: Path) -> None:
    bare = replace(MODEL, operators=(handle(1), READ, ASSIGN), subgraphs=())
    assert variables(bare, tmp_path) == {"s": bytes((5,) * 4)}
    wide = TensorSpec("x", "int16", (1, 4), None, (0.5,))
    tensors = (wide, TENSORS[1], replace(wide, name="y"))
    assert variables(replace(bare, tensors=tensors), tmp_path) == {"s": bytes(8)}


def test_a_late_initialisation_that_changes_nothing_is_taken(tmp_path: Path) -> None:
    """vela writes CALL_ONCE after the READ_VARIABLEs."""
    late = operators(handle(1), READ, once(), ASSIGN)
    start = replace(X, name="start", data=bytes((5,) * 4))
    assert variables(replace(late, subgraphs=(initially(start),)), tmp_path) == {"s": bytes((5,) * 4)}


def test_the_last_of_two_initialisations_counts(tmp_path: Path) -> None:
    other = initially(replace(X, name="start", data=bytes((9,) * 4)))
    spec = replace(operators(once(1), once(2), handle(1), READ, ASSIGN), subgraphs=(INIT, other))
    assert variables(spec, tmp_path) == {"s": bytes((9,) * 4)}
    spec = replace(spec, operators=(once(2), once(1), *spec.operators[2:]))
    assert variables(spec, tmp_path) == {"s": START.tobytes()}


def test_container_and_name_together_name_a_variable(tmp_path: Path) -> None:
    """Two handles of one variable are the same; the same name in another container is another variable."""
    tensors = (*TENSORS, TensorSpec("h2", "resource", ()), TensorSpec("h3", "resource", ()), replace(X, name="z"))
    found = (
        once(), handle(1), handle(3), handle(4, container="box"), READ, OperatorSpec("READ_VARIABLE", (4,), (5,)),
        OperatorSpec("ASSIGN_VARIABLE", (3, 0), ()), OperatorSpec("ASSIGN_VARIABLE", (4, 2), ()),
    )  # fmt: skip
    spec = replace(MODEL, tensors=tensors, operators=found, outputs=(2, 5))
    assert variables(spec, tmp_path) == {"s": START.tobytes(), "box/s": bytes((5,) * 4)}


def test_a_variable_that_no_output_depends_on_is_dropped(tmp_path: Path) -> None:
    tensors = (*TENSORS, TensorSpec("h2", "resource", ()))
    found = (*MODEL.operators, handle(3, "unused"), OperatorSpec("ASSIGN_VARIABLE", (3, 0), ()))
    assert variables(replace(MODEL, tensors=tensors, operators=found), tmp_path) == {"s": START.tobytes()}


def test_inspect_lists_the_operators_that_leave_no_code(tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(write_tflite(MODEL))
    content = inspect_model(path, {})
    assert content["compiles"]
    assert [(o["index"], o["op"], o["supported"]) for o in content["operators"]] == [
        (0, "CALL_ONCE", True), (1, "VAR_HANDLE", True), (2, "READ_VARIABLE", True), (3, "ASSIGN_VARIABLE", True),
    ]  # fmt: skip


def test_a_hostile_name_stays_harmless(tmp_path: Path) -> None:
    name = 'x*/ "\n#error'
    named = replace(
        MODEL,
        operators=(once(), handle(1, name), READ, ASSIGN),
        subgraphs=(replace(INIT, operators=(handle(0, name), INIT.operators[1])),),
    )
    path = tmp_path / "model.tflite"
    path.write_bytes(write_tflite(named))
    source = compile_model(path).files["model.c"].decode("ascii")
    assert "*/ " not in source.split("STATE_0 = 0, /* ")[1].split("\n")[0][:-3]
    assert read_source(path, path.read_bytes(), {}).tensors[-1].name == name

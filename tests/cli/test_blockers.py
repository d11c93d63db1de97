"""`emitc inspect` on a model that does not compile: every blocker in one run, each with what would help."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emitc.compiler import compile_model
from emitc.errors import Refusals
from emitc.report import catalogue
from emitc.report.inspection import inspect_model
from emitc.writers.tflite import ModelSpec, OperatorSpec, TensorSpec, write_tflite
from tests.support.cli_call import Emitc


def real(name: str, shape: tuple[int, ...], signature: tuple[int, ...] | None = None) -> TensorSpec:
    return TensorSpec(name, "float32", shape, shape_signature=signature)


def bytes_of(name: str, shape: tuple[int, ...]) -> TensorSpec:
    return TensorSpec(name, "int8", shape, None, (0.1,), (0,))


def tflite_with_five(folder: Path) -> Path:
    """An open dimension, an operator without code, a type without code, a custom operator, and what is fine."""
    tensors = (
        real("audio", (1, 1, 4), (1, -1, 4)),  # 0
        real("dense", (1, 1, 4)),
        bytes_of("features", (1, 4)),  # 2
        bytes_of("elu", (1, 4)),
        bytes_of("mystery", (1, 4)),  # 4
        bytes_of("fine", (1, 4)),
        real("behind", (1, 1, 4), (1, -1, 4)),  # 6
    )
    operators = (
        OperatorSpec("DENSIFY", (0,), (1,)),
        OperatorSpec("NEG", (2,), (3,)),
        OperatorSpec("CUSTOM", (3,), (4,), custom_code="Mystery"),
        OperatorSpec("RELU", (4,), (5,)),
        OperatorSpec("RELU", (0,), (6,)),
    )
    path = folder / "five.tflite"
    path.write_bytes(write_tflite(ModelSpec(tensors, operators, (0, 2), (1, 5, 6))))
    return path


def reasons(found: dict[str, Any]) -> dict[str, str]:
    return {row["op"]: row["reason"].split(":")[0] for row in found["operators"] if not row["supported"]}


def test_a_tflite_model_with_blockers_of_every_kind(tmp_path: Path) -> None:
    path = tflite_with_five(tmp_path)
    found = inspect_model(path, {})
    assert not found["compiles"]
    assert found["blockers"] == ["a graph input has an open dimension: sizes must be known at compile time"]
    assert found["blocker_hints"] == ["give it: --shape audio=1,?,4"]
    assert reasons(found) == {
        "DENSIFY": "DENSIFY is not supported",
        "NEG": "NEG with element types (int8, int8) is not supported",
        "CUSTOM:Mystery": "CUSTOM",
    }
    assert [row["supported"] for row in found["operators"]] == [False, False, False, True, True]
    assert all(row["hint"] for row in found["operators"] if not row["supported"])
    text = catalogue.inspect_text(found)
    assert "try:   give it: --shape audio=1,?,4" in text
    assert "op 2 CUSTOM:Mystery\n    try:   bring its definition along with --plugin" in text
    with pytest.raises(Refusals) as refused:
        compile_model(path)
    assert len(refused.value.errors) == 4
    assert refused.value.exit_code == 2


def test_a_shape_leaves_the_others(tmp_path: Path) -> None:
    found = inspect_model(tflite_with_five(tmp_path), {"audio": (1, 7, 4)})
    assert found["blockers"] == []
    assert len(reasons(found)) == 3


def test_sizes_that_follow_from_an_open_dimension_are_no_blockers(tmp_path: Path) -> None:
    """With an unknown size made 1, the reshape would not fit; nothing is known against it."""
    target = TensorSpec("to", "int32", (2,), np.array([2, 6], np.int32).tobytes())
    tensors = (real("x", (1, 1, 4), (1, -1, 4)), target, real("y", (2, 6)))
    operator = OperatorSpec("RESHAPE", (0, 1), (2,), {"new_shape": (2, 6)})
    path = tmp_path / "open.tflite"
    path.write_bytes(write_tflite(ModelSpec(tensors, (operator,), (0,), (2,))))
    found = inspect_model(path, {})
    assert len(found["blockers"]) == 1
    assert reasons(found) == {}
    assert inspect_model(path, {"x": (1, 3, 4)})["compiles"]
    assert not inspect_model(path, {"x": (1, 2, 4)})["compiles"]


def test_a_model_that_is_sound_has_none(tmp_path: Path) -> None:
    path = tmp_path / "fine.tflite"
    operator = OperatorSpec("RELU", (0,), (1,))
    path.write_bytes(write_tflite(ModelSpec((bytes_of("x", (1, 4)), bytes_of("y", (1, 4))), (operator,), (0,), (1,))))
    found = inspect_model(path, {})
    assert found["compiles"]
    assert "try:" not in catalogue.inspect_text(found)


def test_an_onnx_model_behind_its_first_blocker(tmp_path: Path) -> None:
    """What reads the result of an operator without code is named when it has none itself, and not when it has."""
    onnx = pytest.importorskip("onnx", reason="the extra emitc[onnx] is not installed")
    helper, kind = onnx.helper, onnx.TensorProto
    x = helper.make_tensor_value_info("x", kind.FLOAT, [1, 4, 4])
    y = helper.make_tensor_value_info("y", kind.FLOAT, [1, 2])
    branch = helper.make_graph(
        [helper.make_node("Neg", ["e"], ["g"])], "b", [], [helper.make_tensor_value_info("g", kind.FLOAT, None)]
    )
    nodes = [
        helper.make_node("Foreign", ["x"], ["a"], "foreign", domain="org.example"),
        helper.make_node("Relu", ["a"], ["b"], "fine"),
        helper.make_node("Det", ["b"], ["c"], "determinant"),
        helper.make_node("QLinearAdd", ["c"] * 8, ["d"], "known", domain="com.microsoft"),
        helper.make_node("BiasGelu", ["d", "d"], ["n"], "unknown", domain="com.microsoft"),
        helper.make_node("Nameless", ["n"], ["e"], "of no domain"),
        helper.make_node("Shape", ["e"], ["f"], "shape"),
        helper.make_node("If", ["f"], ["y"], "choice", then_branch=branch, else_branch=branch),
    ]
    opsets = [
        helper.make_opsetid(domain, version) for domain, version in (("", 17), ("org.example", 1), ("com.microsoft", 1))
    ]
    path = tmp_path / "foreign.onnx"
    path.write_bytes(
        helper.make_model(
            helper.make_graph(nodes, "g", [x], [y]), opset_imports=opsets, ir_version=9
        ).SerializeToString()
    )
    found = inspect_model(path, {})
    assert (found["blockers"], found["blocker_hints"]) == ([], [])
    assert set(reasons(found)) == {"org.example.Foreign", "Det", "BiasGelu", "Nameless"}
    assert [row["index"] for row in found["operators"]] == [0, 2, 4, 5]
    assert "org.example.Foreign" in found["operators"][0]["hint"]
    assert (found["supported"], found["unsupported"], found["compiles"]) == (0, 4, False)
    output = {"name": "y", "dtype": "float32", "shape": [1, 2], "scale": None, "zero_point": None}
    assert found["outputs"] == [output]
    text = catalogue.inspect_text(found)
    assert "\n  input   x float32[1,4,4]\n  output  y float32[1,2]\n" in text
    assert "\n 0   org.example" in text
    assert text.endswith("0 of 4 operators have code: does not compile")


def test_the_command_says_it_in_one_run(emitc: Emitc, tmp_path: Path) -> None:
    called = emitc("inspect", tflite_with_five(tmp_path))
    assert called.code == 0
    assert called.out.count("try:") == 4

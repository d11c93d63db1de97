"""Files that an engine takes are not called damaged: what does not fit is a branch, or are sizes chosen for open dimensions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from emitc.compiler import compile_model
from emitc.errors import CannotCompile, EmitcError, Refusals
from emitc.options import Options
from emitc.writers.tflite import ModelSpec, OperatorSpec, SubgraphSpec, TensorSpec, write_tflite

SIZES = {"x": (2, 3)}


def branching(node: onnx.NodeProto, constants: dict[str, np.ndarray]) -> onnx.ModelProto:
    """y = node(x) where the sum of x is positive, otherwise x; both dimensions of x are open."""

    def branch(made: onnx.NodeProto) -> onnx.GraphProto:
        return helper.make_graph(
            [made], "branch", [], [helper.make_tensor_value_info(made.output[0], TensorProto.FLOAT, None)]
        )

    nodes = [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Greater", ["sum", "zero"], ["condition"]),
        helper.make_node(
            "If", ["condition"], ["y"], "choice",
            then_branch=branch(node), else_branch=branch(helper.make_node("Identity", ["x"], ["same"])),
        ),
    ]  # fmt: skip
    values = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    values.append(numpy_helper.from_array(np.zeros((), np.float32), "zero"))
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, d) for n, d in (("x", ["a", "b"]), ("y", None))]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], values)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def whole(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


UNFIT = {
    "Squeeze": ({}, whole(1)),
    "Reshape": ({}, whole(5, 5)),
    "Expand": ({}, whole(5, 5)),
    "Gather": ({}, whole(5, 1)),
    "Concat": ({"axis": 0}, np.zeros((1, 7), np.float32)),
    "Add": ({}, np.zeros((1, 7), np.float32)),
    "MatMul": ({}, np.zeros((7, 3), np.float32)),
}
"""Operators that mean something for other sizes of x than 2 and 3: attributes, and the second operand."""


def refused(path: Path, **options: object) -> EmitcError:
    with pytest.raises(EmitcError) as caught:
        compile_model(path, Options(**options))  # type: ignore[arg-type]
    return caught.value


@pytest.mark.parametrize("op_type", UNFIT)
def test_a_branch_that_does_not_fit_is_no_damage(op_type: str, tmp_path: Path) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")
    attributes, operand = UNFIT[op_type]
    node = helper.make_node(op_type, ["x", "operand"], ["changed"], **attributes)
    data = branching(node, {"operand": operand}).SerializeToString()
    runtime.set_default_logger_severity(4)
    (y,) = runtime.InferenceSession(data).run(None, {"x": np.full((2, 3), -1, np.float32)})
    assert y.shape == (2, 3)
    path = tmp_path / "net.onnx"
    path.write_bytes(data)
    error = refused(path, shapes=SIZES)
    assert error.exit_code == 1
    assert "damaged" not in str(error)
    assert 'in the then branch of op 2 If "choice"; both branches are compiled' in error.why
    assert error.hint == "export the model with a constant condition, or without this branch"


def test_a_branch_of_tflite_that_does_not_fit_is_no_damage(tmp_path: Path) -> None:
    """RESHAPE to other sizes in the branch that the condition, an input, may choose."""
    x = TensorSpec("x", "float32", (2, 3))
    sizes = TensorSpec("sizes", "int32", (2,), np.array([5, 5], "<i4").tobytes())
    then = SubgraphSpec(
        (x, sizes, TensorSpec("y", "float32", (5, 5))), (OperatorSpec("RESHAPE", (0, 1), (2,)),), (0,), (2,), "then"
    )
    other = SubgraphSpec(
        (x, TensorSpec("y", "float32", (2, 3))), (OperatorSpec("ABS", (0,), (1,)),), (0,), (1,), "else"
    )
    options = {"then_subgraph_index": 1, "else_subgraph_index": 2}
    tensors = (TensorSpec("condition", "bool", (1,)), x, TensorSpec("y", "float32", (2, 3)))
    spec = ModelSpec(tensors, (OperatorSpec("IF", (0, 1), (2,), options),), (0, 1), (2,), "", (then, other))
    path = tmp_path / "net.tflite"
    path.write_bytes(write_tflite(spec))
    error = refused(path)
    assert isinstance(error, CannotCompile | Refusals) and error.exit_code == 1
    assert "damaged" not in str(error)
    assert 'in the then branch of op 0 IF "y", subgraph 1; both branches are compiled' in str(error)


@pytest.mark.parametrize("shapes", [{}, {"x": (4, 5)}], ids=["batch_made_1", "given"])
def test_sizes_that_were_chosen_may_be_the_wrong_ones(shapes: dict[str, tuple[int, ...]], tmp_path: Path) -> None:
    """A matrix of 7 rows and a bias of 3: the file fits [N, 7], and emitc or the user has taken something else."""
    ends = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["a", "b" if shapes else 5]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, None),
    ]
    matrix = numpy_helper.from_array(np.zeros((7, 3), np.float32), "matrix")
    node = helper.make_node("MatMul", ["x", "matrix"], ["y"])
    graph = helper.make_graph([node], "net", ends[:1], ends[1:], [matrix])
    path = tmp_path / "net.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    error = refused(path, shapes=shapes)
    assert (error.what, error.exit_code) == ("MatMul does not fit these sizes", 2)
    assert error.hint == "other sizes for the open dimensions, by --shape; where none fit, export the model again"


@pytest.mark.parametrize(
    ("op_type", "operand"), [("Reshape", whole(4, 3, 2)), ("Gather", whole(2, 3)), ("Split", whole(2, 2))]
)
def test_a_batch_of_1_may_be_the_wrong_one(op_type: str, operand: np.ndarray, tmp_path: Path) -> None:
    """The files fit a batch of 4, which ONNX Runtime takes as it comes."""
    runtime = pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")
    results = ["y", "z"][: 1 + (op_type == "Split")]
    node = helper.make_node(op_type, ["x", "operand"], results)
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 6])]
    ends += [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results]
    graph = helper.make_graph([node], "net", ends[:1], ends[1:], [numpy_helper.from_array(operand, "operand")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    data = model.SerializeToString()
    assert runtime.InferenceSession(data).run(None, {"x": np.ones((4, 6), np.float32)})[0].size
    path = tmp_path / "net.onnx"
    path.write_bytes(data)
    error = refused(path)
    assert "damaged" not in str(error)
    assert error.hint == "other sizes for the open dimensions, by --shape; where none fit, export the model again"
    assert compile_model(path, shapes={"x": (4, 6)}).files


def test_a_window_may_be_larger_than_a_size_of_1(tmp_path: Path) -> None:
    """Frames of 2 values become a signal of 2 channels, whose open length is the first size of the input."""
    signal = helper.make_node("Transpose", ["x"], ["signal"], perm=[1, 0])
    axes = [numpy_helper.from_array(whole(0), "axes"), numpy_helper.from_array(np.ones((1, 2, 3), np.float32), "w")]
    nodes = [
        signal,
        helper.make_node("Unsqueeze", ["signal", "axes"], ["batch"]),
        helper.make_node("Conv", ["batch", "w"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["frames", 2])]
    ends += [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    model = helper.make_model(
        helper.make_graph(nodes, "net", ends[:1], ends[1:], axes),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    path = tmp_path / "net.onnx"
    path.write_bytes(model.SerializeToString())
    error = refused(path)
    assert (error.what, error.why) == ("an output has sizes [1, 1, -1]", "a window is larger than its input")
    assert error.hint.startswith("other sizes for the open dimensions, by --shape")
    assert compile_model(path, shapes={"x": (4, 2)}).files

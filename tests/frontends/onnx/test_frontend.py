"""What a .onnx file says: open dimensions, folded shapes, external data, refusals by name, and names that are hostile to C."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from emitc.compiler import compile_model
from emitc.errors import EmitcError, Refusals
from emitc.frontends.build import build_graph
from emitc.frontends.onnx.reader import read_onnx
from emitc.ir import Shape
from emitc.kernels import registry_of
from emitc.report.inspection import inspect_model
from emitc.source import SourceModel
from emitc.verify.build import WARNINGS, compiler_command
from emitc.verify.verification import verify
from tests.support.models.onnx_net import MICROSOFT, OnnxNet


def relu(shape: list[int | str]) -> bytes:
    """A Relu of an input called "data"."""
    net = OnnxNet()
    net.output(net.op("Relu", net.input(shape, name="data")))
    return net.serialized()


def refusal(model: bytes | onnx.ModelProto, **shapes: Shape) -> EmitcError:
    """The error that reading a file ends in."""
    with pytest.raises(EmitcError) as caught:
        read_onnx(model if isinstance(model, bytes) else model.SerializeToString(), shapes)
    return caught.value


def saved(net: OnnxNet | onnx.ModelProto, folder: Path, name: str = "m") -> Path:
    """The file of a model."""
    path = folder / f"{name}.onnx"
    path.write_bytes((net.model() if isinstance(net, OnnxNet) else net).SerializeToString())
    return path


def operators(model: SourceModel) -> list[str]:
    """The operators that remain."""
    return [node.op_type for node in model.nodes]


# ---- open dimensions ----


@pytest.mark.parametrize("shape", [["batch", 3, 4], ["N", 3, 4]], ids=["named", "letter"])
def test_an_open_batch_becomes_one_with_a_note(shape: list[int | str]) -> None:
    model = read_onnx(relu(shape))
    assert model.tensors[model.inputs[0]].shape == model.tensors[model.outputs[0]].shape == (1, 3, 4)
    assert model.notes == ('input "data": open batch dimension made 1',)


@pytest.mark.parametrize(("shape", "hint"), [([0, 3], "?,3"), ([2, 0], "2,?"), ([0], "?")])
def test_an_input_of_size_0_is_refused_until_its_size_is_given(shape: list[int | str], hint: str) -> None:
    with pytest.raises(EmitcError) as caught:
        read_onnx(relu(shape))
    assert (caught.value.what, caught.value.exit_code) == ("a graph input is empty", 2)
    assert caught.value.hint == f"where 0 stands for an open dimension, give it: --shape data={hint}"
    sizes = tuple(size or 5 for size in shape)
    assert read_onnx(relu(shape), {"data": sizes}).tensors[0].shape == sizes  # type: ignore[dict-item]


def test_a_batch_that_is_given_needs_no_note() -> None:
    model = read_onnx(relu(["batch", 3, 4]), {"data": (2, 3, 4)})
    assert model.tensors[model.outputs[0]].shape == (2, 3, 4)
    assert model.notes == ()


def test_another_open_dimension_is_refused_with_the_option_and_accepted_with_it() -> None:
    data = relu(["batch", "time", 4])
    error = refusal(data)
    assert str(error) == (
        "error: a graph input has an open dimension\n  at:    data\n  why:   its shape is [1, -1, 4]\n"
        "  try:   give it: --shape data=1,?,4"
    )
    assert error.exit_code == 2
    model = read_onnx(data, {"data": (1, 49, 4)})
    assert model.tensors[model.outputs[0]].shape == (1, 49, 4)


@pytest.mark.parametrize(
    ("shape", "what"),
    [
        ((1, 49, 5), "the shape [1, 49, 5] does not fit"),
        ((1, 49), "the shape [1, 49] does not fit"),
        ((1, -1, 4), "a graph input has an open dimension"),
        ((1, 2**31, 4), "a tensor has an impossible shape"),
        ((1, 2**24, 4), "a tensor of 268435456 bytes is too large"),
    ],
    ids=["closed", "rank", "open", "huge", "large"],
)
def test_a_wrong_shape_is_refused(shape: Shape, what: str) -> None:
    error = refusal(relu(["batch", "time", 4]), data=shape)
    assert (error.what, error.exit_code) == (what, 2)


def test_every_open_dimension_is_named_in_one_run() -> None:
    net = OnnxNet()
    sizes: list[list[int | str]] = [["batch", "time", 4], ["batch", 5, 4], [2, "time", 4]]
    names = [net.input(shape) for shape in sizes]
    net.output(net.op("Add", net.op("Add", names[0], names[1]), names[2]))
    with pytest.raises(Refusals) as caught:
        read_onnx(net.serialized())
    hints = [error.hint for error in caught.value.errors]
    assert hints == [f"give it: --shape {names[0]}=1,?,4", f"give it: --shape {names[2]}=2,?,4"]
    assert caught.value.exit_code == 2


def test_a_shape_for_what_is_no_input_is_refused() -> None:
    error = refusal(relu([1, 3]), v0=(1, 3))
    assert (error.what, error.why) == ("no input is called v0", "the model's inputs: data")


def test_an_input_without_a_shape_takes_it_from_the_option() -> None:
    model = onnx.ModelProto.FromString(relu([1, 3]))
    model.graph.input[0].type.tensor_type.ClearField("shape")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    error = refusal(model)
    assert (error.what, error.hint) == ("a graph input has no shape", "give it: --shape data=...")
    read = read_onnx(model.SerializeToString(), {"data": (2, 5)})
    assert read.tensors[read.outputs[0]].shape == (2, 5)


def test_an_output_that_is_named_alone_takes_its_type_from_the_operators(tmp_path: Path) -> None:
    """As users add one who want to see an inner value. ONNX Runtime runs such a model."""
    net = OnnxNet()
    net.output(net.op("Relu", net.op("Neg", net.input((1, 3)), name="inner")))
    model = net.model()
    model.graph.output.append(onnx.ValueInfoProto(name=model.graph.node[0].output[0]))
    made = compile_model(saved(model, tmp_path))
    outputs = [made.graph.tensor(name) for name in made.graph.outputs]
    assert [(tensor.dtype.value, tensor.shape) for tensor in outputs] == [("float32", (1, 3))] * 2
    assert verify(made, samples=2).match


# ---- external data ----


def external(location: str, offset: int = 0) -> onnx.ModelProto:
    """x + w, where w is four floats in another file."""
    net = OnnxNet()
    net.output(net.op("Mul", net.input((4,)), net.constant(np.zeros(4, np.float32), name="w")))
    model = net.model()
    weights = model.graph.initializer[0]
    weights.ClearField("raw_data")
    weights.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", str(offset)), ("length", "16")):
        weights.external_data.append(onnx.StringStringEntryProto(key=key, value=value))
    return model


def test_external_data_in_the_folder_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").mkdir()
    values = np.array([9, 1, 2, 3, 4], np.float32)
    (tmp_path / "data" / "w.bin").write_bytes(values.tobytes())
    monkeypatch.chdir("/")
    read = read_onnx(external("data/w.bin", 4).SerializeToString(), folder=tmp_path)
    (weights,) = (t for t in read.tensors if t.name == "w")
    assert np.array_equal(weights.array(), values[1:])
    assert compile_model(saved(external("data/w.bin", 4), tmp_path)).files


def test_external_data_outside_is_refused(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(16))
    (tmp_path / "inner").mkdir()
    with pytest.raises(EmitcError) as caught:
        compile_model(saved(external("../w.bin"), tmp_path / "inner"))
    assert str(caught.value) == (
        "error: a constant lies outside the model's folder\n  at:    m.onnx, w\n"
        '  why:   in "../w.bin"\n  try:   save the model as one file, or keep its data files in its folder'
    )
    assert refusal(external("w.bin")).what == "a constant lies outside the model's folder"  # no folder is known


# ---- form ----


def chain() -> OnnxNet:
    """Two operators in a row."""
    net = OnnxNet()
    net.output(net.op("Neg", net.op("Relu", net.input((1, 4)), name="first"), name="second"))
    return net


def test_operators_in_a_circle_are_named() -> None:
    model = chain().model()
    model.graph.node[0].input[0] = model.graph.node[1].output[0]
    error = refusal(model)
    assert error.exit_code == 2
    assert "v1" in error.why and "first" in error.why


def in_disorder(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with the order of its nodes turned around."""
    nodes = [onnx.NodeProto.FromString(node.SerializeToString()) for node in model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(reversed(nodes))
    return model


def test_nodes_are_put_in_order(tmp_path: Path) -> None:
    """An If comes after what only its branches read. ONNX Runtime takes such a file, too."""
    net = OnnxNet()
    x = net.input((1, 4), name="x")
    condition = net.op("Less", net.op("ReduceSum", net.op("Relu", x), keepdims=0), net.constant(np.float32(1.0)))
    net.output(net.op("Exp", branching(condition, net, net.op("Neg", x))))
    read = operators(read_onnx(net.serialized()))
    model = in_disorder(net.model())
    assert [node.op_type for node in model.graph.node][:3] == ["Exp", "If", "Neg"]
    assert operators(read_onnx(model.SerializeToString())) == [read[i] for i in (3, 0, 1, 2, 4, 5)]
    pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")
    assert verify(compile_model(saved(model, tmp_path)), reference="onnxruntime", samples=4, layers=True).match


def test_a_node_that_reads_itself_is_named() -> None:
    model = chain().model()
    model.graph.node[1].input[0] = model.graph.node[1].output[0]
    error = refusal(model)
    assert error.exit_code == 2
    assert "second" in error.why


def test_a_value_that_nothing_writes_is_named() -> None:
    model = chain().model()
    model.graph.node[1].input[0] = "nowhere"
    error = refusal(model)
    assert error.exit_code == 2
    assert "nowhere" in error.why and "second" in error.why


def test_an_output_that_nothing_writes_is_named() -> None:
    model = chain().model()
    model.graph.output[0].name = "nowhere"
    error = refusal(model)
    assert error.exit_code == 2
    assert "nowhere" in error.why


def test_a_value_that_is_written_twice_is_refused() -> None:
    model = chain().model()
    model.graph.node[1].output[0] = model.graph.node[0].output[0]
    assert refusal(model).exit_code == 2


def test_data_of_another_length_than_its_shape_is_refused() -> None:
    net = OnnxNet()
    net.output(net.op("Add", net.input((4,)), net.constant(np.ones(4, np.float32), name="w")))
    model = net.model()
    model.graph.initializer[0].dims[0] = 3
    assert refusal(model).exit_code == 2


def test_initializers_among_the_inputs_are_constants() -> None:
    """Files of IR version 3 list every constant as an input too."""
    net = OnnxNet(opset=8)
    net.output(net.op("Add", net.input((4,)), net.constant(np.ones(4, np.float32), name="w")))
    net.input((4,), name="w")
    read = read_onnx(net.model(ir_version=3).SerializeToString())
    assert [read.tensors[i].name for i in read.inputs] == ["x0"]
    (weights,) = (t for t in read.tensors if t.name == "w")
    assert weights.data is not None


# ---- shape arithmetic ----


def flatten_as_exported(net: OnnxNet, x: str) -> str:
    """view(x.size(0), -1) as an exporter writes it."""
    batch = net.op("Gather", net.op("Shape", x), net.constant(0, "int64"), axis=0)
    parts = [net.op("Unsqueeze", batch, net.ints(0)), net.op("Unsqueeze", net.constant(-1, "int64"), net.ints(0))]
    return net.op("Reshape", x, net.op("Concat", *parts, axis=0))


def halves_as_exported(net: OnnxNet, x: str) -> str:
    """x[:, : x.size(1) // 2] as an exporter writes it."""
    size = net.op("Gather", net.op("Shape", x), net.constant(1, "int64"), axis=0)
    half = net.op(
        "Cast", net.op("Floor", net.op("Div", net.op("Cast", size, to=1), net.constant(2.0, "float32"))), to=7
    )
    return net.op("Slice", x, net.ints(0), net.op("Unsqueeze", half, net.ints(0)), net.ints(1))


def grown_as_exported(net: OnnxNet, x: str) -> str:
    """interpolate(x, scale_factor=2) with its sizes computed."""
    shape = net.op("Shape", x)
    sizes = net.op("Mul", net.op("Slice", shape, net.ints(2), net.ints(4)), net.ints(2, 2))
    wanted = net.op("Concat", net.op("Slice", shape, net.ints(0), net.ints(2)), sizes, axis=0)
    return net.op(
        "Resize", x, "", "", wanted, mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    )


def expanded_as_exported(net: OnnxNet, x: str) -> str:
    """x.expand(-1, 2, ...) with the -1 replaced through Where."""
    asked = net.ints(-1, 8, -1, -1)
    shape = net.op("Shape", x)
    minus = net.op("ConstantOfShape", net.ints(4), value=helper.make_tensor("v", 7, [1], [-1]))
    keeps = net.op("Equal", asked, net.op("Mul", minus, net.ints(1, 1, 1, 1)))
    return net.op("Expand", x, net.op("Where", keeps, shape, asked))


@pytest.mark.parametrize(
    ("build", "left", "shape"),
    [
        (flatten_as_exported, ["Reshape"], (1, 48)),
        (halves_as_exported, ["Slice"], (1, 4, 2, 2)),
        (grown_as_exported, ["Resize"], (1, 8, 4, 4)),
        (expanded_as_exported, ["Expand"], (1, 8, 3, 2)),
    ],
    ids=["flatten", "halves", "interpolate", "expand"],
)
def test_shape_arithmetic_is_computed(build: Callable[[OnnxNet, str], str], left: list[str], shape: Shape) -> None:
    size = {"Reshape": (8, 3, 2), "Slice": (8, 2, 2), "Resize": (8, 2, 2), "Expand": (1, 3, 2)}[left[0]]
    net = OnnxNet()
    net.output(build(net, net.input(("batch", *size))), shape=shape)
    read = read_onnx(net.serialized())
    assert operators(read) == left
    assert read.tensors[read.outputs[0]].shape == shape


def test_weights_that_are_computed_from_constants_are_constants() -> None:
    net = OnnxNet()
    weights = net.op(
        "Mul",
        net.op("Transpose", net.constant(np.arange(6, dtype=np.float32).reshape(2, 3))),
        net.constant(2.0, "float32"),
    )
    net.output(net.op("MatMul", net.input((1, 3)), weights))
    read = read_onnx(net.serialized())
    assert operators(read) == ["MatMul"]
    constant = read.nodes[0].inputs[1]
    assert constant is not None and constant.array().tolist() == [[0, 6], [2, 8], [4, 10]]


def branching(condition: str, net: OnnxNet, x: str) -> str:
    """An If: x negated, with another If inside, or x times a constant of the branch."""
    values = [helper.make_tensor_value_info("b", 1, [1, 4])]
    inner = helper.make_graph(
        [helper.make_node("Abs", ["kept"], ["a"])], "inner", [], [helper.make_tensor_value_info("a", 1, [1, 4])]
    )
    first = helper.make_graph(
        [
            helper.make_node("Neg", [x], ["kept"]),
            helper.make_node("If", [condition], ["b"], then_branch=inner, else_branch=inner),
        ],
        "first", [], values,
    )  # fmt: skip
    scale = onnx.numpy_helper.from_array(np.array([[1, -2, 3, 0.5]], np.float32), "scale")
    second = helper.make_graph([helper.make_node("Mul", [x, "scale"], ["b"])], "second", [], values, [scale])
    return net.op("If", condition, name="choice", then_branch=first, else_branch=second)


@pytest.mark.parametrize(("limit", "kinds"), [(4, ["Neg", "Abs", "Identity", "Identity"]), (9, ["Mul", "Identity"])])
def test_an_if_of_a_known_condition_is_the_branch_that_it_takes(limit: int, kinds: list[str], tmp_path: Path) -> None:
    """The condition is computed from a shape while reading. ONNX Runtime, which runs the If, agrees."""
    net = OnnxNet()
    x = net.input((1, 4), name="x")
    condition = net.op("Less", net.op("Size", net.op("Relu", x)), net.constant(limit + 1, "int64"))
    known = net.op("Not", condition) if limit == 9 else condition
    net.output(net.op("Exp", branching(known, net, x)))
    assert operators(read_onnx(net.serialized())) == ["Relu", *kinds, "Exp"]
    pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")
    path = tmp_path / "m.onnx"
    path.write_bytes(net.serialized())
    assert verify(compile_model(path), reference="onnxruntime", samples=4, layers=True).match


def test_branches_that_do_not_fit_are_refused() -> None:
    net = OnnxNet()
    x = net.input((1, 4), name="x")
    condition = net.constant(np.array([True, False]))
    net.output(branching(condition, net, x))
    with pytest.raises(EmitcError, match="an If does not fit its branches"):
        read_onnx(net.serialized())


# ---- what has no code ----


def foreign() -> OnnxNet:
    """An operator of somebody's own."""
    net = OnnxNet()
    net.output(net.op("Attention", net.input((1, 4)), domain="org.example", name="mine"), shape=(1, 4))
    return net


def unknown_contrib() -> OnnxNet:
    """An operator of ONNX Runtime's that has no kernel."""
    net = OnnxNet()
    net.output(net.op("BiasGelu", net.input((1, 4)), net.input((4,)), domain=MICROSOFT, name="bias"), shape=(1, 4))
    return net


def with_opset(net: OnnxNet, domain: str) -> onnx.ModelProto:
    """The model with an opset of another domain."""
    model = net.model()
    if all(opset.domain != domain for opset in model.opset_import):
        model.opset_import.append(helper.make_opsetid(domain, 1))
    return model


@pytest.mark.parametrize(
    ("net", "what", "where"),
    [
        (foreign, "Attention is not supported", 'op 0 org.example.Attention "mine"'),
        (unknown_contrib, "BiasGelu is not supported", 'op 0 BiasGelu "bias"'),
    ],
    ids=["domain", "contrib"],
)
def test_what_has_no_code_is_refused_by_name(net: Callable[[], OnnxNet], what: str, where: str, tmp_path: Path) -> None:
    path = saved(with_opset(net(), "org.example"), tmp_path)
    with pytest.raises(EmitcError) as caught:
        compile_model(path)
    assert (caught.value.what, caught.value.where.op, caught.value.exit_code) == (what, where, 1)
    assert any(row["reason"].startswith(what) for row in inspect_model(path, {})["operators"])


def with_functions(*bodies: tuple[str, list[str]], first: str) -> onnx.ModelProto:
    """The chain with a call instead of its first operator. bodies: name and operators, or functions, of each in a row."""
    model = with_opset(chain(), "own")
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    names = {name for name, _ in bodies}
    for name, body in bodies:
        nodes = [
            helper.make_node(op, [f"v{i}"], [f"v{i + 1}"], domain="own" if op in names else "")
            for i, op in enumerate(body)
        ]
        model.functions.append(helper.make_function("own", name, ["v0"], [f"v{len(body)}"], nodes, opsets))
    model.graph.node[0].op_type, model.graph.node[0].domain = first, "own"
    return model


def test_functions_are_put_in_the_places_of_their_calls(tmp_path: Path) -> None:
    model = with_functions(("F", ["Abs", "G", "G"]), ("G", ["Sqrt", "Exp"]), first="F")
    assert operators(read_onnx(model.SerializeToString())) == ["Abs", "Sqrt", "Exp", "Sqrt", "Exp", "Neg"]
    pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")
    assert verify(compile_model(saved(model, tmp_path)), reference="onnxruntime", samples=4).match


@pytest.mark.parametrize(
    ("bodies", "what"),
    [
        ([("F", ["Abs", "F"])], "a function of the model calls itself"),
        ([("F", ["G"]), ("G", ["H"]), ("H", ["Abs", "F"])], "a function of the model calls itself"),
        ([(f"F{i}", [f"F{i + 1}"] * 2) for i in range(40)] + [("F40", ["Abs"])], "the model has too many operators"),
        ([(f"F{i}", [f"F{i + 1}"]) for i in range(3000)] + [("F3000", ["Abs"])], "call each other too deep"),
    ],
    ids=["itself", "in a circle", "growth", "depth"],
)
def test_functions_without_an_end_are_refused(bodies: list[tuple[str, list[str]]], what: str) -> None:
    error = refusal(with_functions(*bodies, first=bodies[0][0]))
    assert what in error.what and error.exit_code == 2


def test_a_function_of_another_opset_is_refused() -> None:
    model = with_functions(("F", ["Neg"]), first="F")
    model.functions[0].opset_import[0].version = 12
    assert "Neg" in refusal(model).why


def test_sparse_constants_are_named(tmp_path: Path) -> None:
    model = chain().model()
    sparse = helper.make_sparse_tensor(
        helper.make_tensor("s", 1, [1], [1.0]), helper.make_tensor("i", 7, [1], [2]), [1, 4]
    )
    model.graph.sparse_initializer.append(sparse)
    with pytest.raises(EmitcError) as caught:
        compile_model(saved(model, tmp_path))
    assert caught.value.what == "the model has sparse constants"


def test_everything_that_blocks_a_model_is_reported_at_once(tmp_path: Path) -> None:
    """In the file, in the scales, in the layout, and among the kernels; what merely follows is not."""
    net = OnnxNet()
    x = net.input((1, 2, 4, 4))
    scale = net.input((), name="scale")
    known = (net.constant(0.1, "float32"), net.constant(0, "int8"))
    matrix = net.constant(np.ones((4, 4), np.int8))
    computed = net.op("QLinearMatMul", net.quantize(x), scale, known[1], matrix, *known, *known, name="computed")
    net.output(net.op("MaxPool", computed, kernel_shape=[2, 2], name="follows"), "int8")
    volume = net.input((1, 2, 3, 3, 3))
    net.output(net.op("Conv", volume, net.constant(np.ones((2, 2, 1, 1, 1), np.float32)), name="volume"))
    net.output(net.op("Det", net.input((4, 4)), name="det"))
    net.output(net.op("Foreign", x, domain="org.example", name="foreign"), shape=(1,))
    path = saved(with_opset(net, "org.example"), tmp_path)
    found = inspect_model(path, {})
    assert not found["compiles"]
    assert found["blockers"] == []
    assert {row["name"]: row["reason"].split(":")[0] for row in found["operators"] if not row["supported"]} == {
        "computed": "QLinearMatMul takes its scale from a computed tensor",
        "volume": "Conv with 3 spatial dimensions is not supported",
        "det": "Det is not supported",
        "foreign": "Foreign is not supported",
    }
    with pytest.raises(Refusals) as caught:
        compile_model(path)
    assert [error.where.op for error in caught.value.errors] == [
        'op 5 org.example.Foreign "foreign"', 'op 1 QLinearMatMul "computed"', 'op 3 Conv "volume"', 'op 4 Det "det"',
    ]  # fmt: skip
    assert caught.value.exit_code == 1


def test_one_wrong_operator_makes_the_whole_model_wrong(tmp_path: Path) -> None:
    net = OnnxNet()
    x = net.input((1, 4))
    net.output(
        net.op("QuantizeLinear", x, net.constant(-1.0, "float32"), net.constant(0, "int8"), name="negative"), "int8"
    )
    net.output(net.op("Det", net.input((4, 4))))
    with pytest.raises(Refusals) as caught:
        compile_model(saved(net, tmp_path))
    assert [(error.what, error.exit_code) for error in caught.value.errors] == [
        ("QuantizeLinear has a scale that is not positive", 2), ("Det is not supported", 1),
    ]  # fmt: skip
    assert caught.value.exit_code == 2


# ---- names ----

MARK = "InJected"
NAMES = (
    f"*/ {MARK} /*", f"/*/ {MARK} //*/", f'"; {MARK}; "', f"\n#error {MARK}\n", f"a\r#error {MARK}", f"??/\n{MARK}", f"{MARK}\\",
    f"%s%n{MARK}", "{{ 1 }}{% raw %}" + MARK, MARK + "x" * 10_000, f"вход {MARK} \U0001f600\u202e", f"a\x00{MARK}", "while",
    "__FILE__", "_Generic", "3d", "a\u2028b", "\x1b[31m", "x", "X", "x.1", "x_s8", "x_s8.1",
)  # fmt: skip


def named(first: int) -> onnx.ModelProto:
    """A quantized net of which every value, operator and text has one of the names."""
    net = OnnxNet(opset=13)
    scale, zero = net.scales(0.05, 120, "uint8")
    y = net.op("QuantizeLinear", net.input((1, 3, 4, 4)), scale, zero)
    y = net.op("QLinearConv", y, scale, zero, net.integers((4, 3, 1, 1)), *net.scales(0.01, 0, "int8"), scale, zero,
               net.integers((4,), "int32"))  # fmt: skip
    y = net.op("MaxPool", y, kernel_shape=[2, 2])
    z = net.op("QuantizeLinear", net.input((1, 4, 3, 3)), scale, zero)
    net.output(net.op("Concat", y, z, axis=1), "uint8")
    net.output(net.op("DequantizeLinear", y, scale, zero))
    model = net.model()
    values = [v.name for v in model.graph.input] + [t.name for t in model.graph.initializer]
    values += [name for node in model.graph.node for name in node.output]
    new = {name: NAMES[(first + i) % len(NAMES)] for i, name in enumerate(values)}
    for node in model.graph.node:
        node.input[:] = [new[name] for name in node.input]
        node.output[:] = [new[name] for name in node.output]
        node.name = node.doc_string = NAMES[first]
    for thing in (*model.graph.input, *model.graph.output, *model.graph.initializer):
        thing.name = new[thing.name]
    model.graph.name = model.producer_name = model.producer_version = model.doc_string = NAMES[first]
    return model


@pytest.mark.parametrize("first", range(0, len(NAMES), 3))
def test_names_stay_in_comments(first: int, tmp_path: Path) -> None:
    compiled = compile_model(saved(named(first), tmp_path))
    for path, data in compiled.files.items():
        text = data.decode("ascii")
        if path.endswith((".c", ".h")):
            code = re.sub(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"', " ", text, flags=re.S)
            assert MARK not in code and "??" not in text, path
            assert all(" " <= c <= "~" or c == "\n" for c in text), path
    compiled.write(tmp_path / "package")
    command = [*compiler_command(), *WARNINGS, "-fsyntax-only", str(tmp_path / "package" / "m.c")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_c_under_hostile_names_is_right(tmp_path: Path) -> None:
    assert verify(compile_model(saved(named(3), tmp_path)), reference="numpy", samples=3).match


def test_operators_without_names_and_with_equal_ones(tmp_path: Path) -> None:
    net = chain()
    model = net.model()
    for name in ("", "same", "while"):
        for node in model.graph.node:
            node.name = name
        assert compile_model(saved(model, tmp_path)).files


def test_a_graph_is_built_from_what_was_read() -> None:
    """Types that the interpreter of shapes is asked about arrive in the graph."""
    net = OnnxNet()
    net.output(net.op("Cast", net.input((2, 3), "int32"), to=1))
    graph = build_graph(read_onnx(net.serialized()), registry_of("onnx"), "m")
    assert [(t.dtype.value, t.shape) for t in graph.tensors] == [("int32", (2, 3)), ("float32", (2, 3))]


def test_an_input_of_a_type_without_code_that_nothing_reads_is_refused(tmp_path: Path) -> None:
    net = OnnxNet()
    net.output(net.op("Relu", net.input((1, 3), name="data")))
    model = net.model()
    model.graph.input.append(helper.make_tensor_value_info("unread", TensorProto.STRING, [1, 3]))
    with pytest.raises(EmitcError, match="a graph input has the type string") as caught:
        compile_model(saved(model, tmp_path))
    assert caught.value.exit_code == 1

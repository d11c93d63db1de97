"""A pass that is wrong is named, with the operators and the tensor, by `emitc compile` and `emitc verify`."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import emitc.api
import emitc.compiler
from bench.mutant_models import Builder, branches
from emitc.cli.main import cli
from emitc.compiler import compile_model
from emitc.ir import Graph, GraphStep
from emitc.kernels.convolution.conv_2d import Conv2D
from emitc.kernels.movement.transpose import Transpose
from emitc.kernels.normalization.softmax import Softmax
from emitc.passes import BUILT, PASSES, Pass, run_passes
from emitc.passes.fold import fold_pad, fold_zero_point
from emitc.passes.transposes import cancel_transposes
from emitc.passes.verify_graph import verify_graph
from emitc.validation import Chain, Wrong, chains, effort, validate, validate_unasked, validation_inputs
from emitc.validation.values import Faulty
from tests.support.models.onnx_net import OnnxNet
from tests.support.passes.onnx_graphs import onnx_graph
from tests.support.passes.pass_graphs import Net, graph_of

MODELS = Path(__file__).resolve().parents[2] / "examples" / "models"


Passes = tuple[tuple[str, Pass], ...]


def wrong(before: Graph, after: Graph, name: str, source_format: str = "tflite") -> Wrong | None:
    """What validation says of a step from one graph to another."""
    verify_graph(after)
    chain = Chain((GraphStep(BUILT, before), GraphStep(name, after)))
    try:
        for inputs in validation_inputs(before, 2):
            chain.run(inputs, source_format)
    except Faulty as fault:
        return fault.wrong
    return None


def transposed_softmax(net: Net) -> None:
    """SOFTMAX over the last dimension of what a Transpose has made."""
    x = net.input((2, 6, 4), zero_point=-128, scale=0.1)
    turned = net.like(x, shape=(2, 4, 6))
    net.op("TRANSPOSE", (x, net.integers([0, 2, 1])), turned)
    y = net.like(turned, scales=(1 / 256,))
    net.output(net.op("SOFTMAX", (turned,), y, beta=1.0))


def test_softmax_of_another_dimension_is_found() -> None:
    """The fault of 2fe1bdb: the operator runs over other rows, and neither its reference nor its code can tell."""
    graph = graph_of(transposed_softmax)
    transpose, softmax = graph.nodes
    made = replace(graph.tensor(softmax.outputs[0]), name="moved", shape=(2, 6, 4))
    first = replace(softmax, inputs=transpose.inputs[:1], outputs=("moved",))
    second = replace(transpose, inputs=("moved",), outputs=softmax.outputs)
    tensors = tuple(t for t in graph.tensors if t.name != transpose.outputs[0])
    moved = replace(graph, tensors=(*tensors, made), nodes=(first, second))
    found = wrong(graph, moved, "cancel-transposes")
    assert found is not None
    assert found.step == "cancel-transposes"
    assert [op.split()[2] for op in found.ops] == ["SOFTMAX", "TRANSPOSE"]
    assert graph.tensor(softmax.outputs[0]).describe() == found.tensor
    assert 0 < found.differing <= 48


def wrong_bias(graph: Graph) -> Graph:
    """`fold-zero-point` with the bias of the first operator one step of its output off."""
    after = fold_zero_point(graph)
    bias = next(t for t in after.tensors if t.name.endswith(":folded bias"))
    values = bias.array().astype("<i4") + 4000
    other = replace(bias, data=values.tobytes())
    return replace(after, tensors=tuple(other if t is bias else t for t in after.tensors))


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A compiler whose `fold-zero-point` is wrong."""
    passes: Passes = tuple((name, wrong_bias if name == "fold-zero-point" else function) for name, function in PASSES)

    def with_passes(
        graph: Graph, disabled: frozenset[str] = frozenset(), which: Passes = passes, *rest: Any, **more: Any
    ):
        return run_passes(graph, disabled, which, *rest, **more)

    monkeypatch.setattr(emitc.compiler, "run_passes", with_passes)


def test_compile_stops_at_a_wrong_pass_and_keeps_the_old_package(
    broken: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ["compile", str(MODELS / "digits_int8.tflite"), "-o", "out"]
    assert CliRunner().invoke(cli, [*arguments, "--no-check"]).exit_code == 0
    before = {path.name: path.read_bytes() for path in tmp_path.glob("out/*")}
    called = CliRunner().invoke(cli, [*arguments, "--target", "cortex-m4"])
    assert called.exit_code == 1
    assert {path.name: path.read_bytes() for path in tmp_path.glob("out/*")} == before
    lines = called.stderr.splitlines()
    assert lines[0] == "error: fold-zero-point has changed what the model computes"
    assert "op 2 CONV_2D" in lines[1] and "tensor" in lines[1]
    assert lines[3].strip().startswith("try:   compile with --without fold-zero-point")
    assert CliRunner().invoke(cli, [*arguments, "--check", "--without", "fold-zero-point"]).exit_code == 0


def test_compile_and_verify_say_so_in_json(broken: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    model = str(MODELS / "digits_int8.tflite")
    made = json.loads(CliRunner().invoke(cli, ["compile", model, "-o", "out", "--json"]).stdout)
    assert made["error"][0]["what"] == "fold-zero-point has changed what the model computes"
    proved = CliRunner().invoke(cli, ["verify", model, "--reference", "numpy", "--samples", "1", "--json"])
    stated = json.loads(proved.stdout)
    assert proved.exit_code == 1
    assert stated["match"] is False
    assert stated["passes_checked"] == made["passes_checked"]
    for found in (made["first_wrong_pass"], stated["first_wrong_pass"]):
        assert found["pass"] == "fold-zero-point"
        assert [op.split('"')[0] for op in found["ops"]] == ["op 2 CONV_2D "]
        assert found["differing"] > 0


def test_the_first_of_two_wrong_passes_is_named(broken: None, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = compile_model(MODELS / "digits_int8.tflite")
    assert validate(compiled).wrong is not None
    steps = list(compiled.history)
    place = next(i for i, step in enumerate(steps) if step.name == "alias-views")
    graph = steps[place].graph
    head = graph.nodes[-1]
    other = replace(head, op=replace(head.op, beta=0.5)) if isinstance(head.op, Softmax) else head
    assert other is not head
    for later in range(place, len(steps)):
        nodes = tuple(other if node.index == head.index else node for node in steps[later].graph.nodes)
        steps[later] = replace(steps[later], graph=replace(steps[later].graph, nodes=nodes))
    found = validate(replace(compiled, history=tuple(steps))).wrong
    assert found is not None and found.step == "alias-views"


@pytest.mark.parametrize("model", sorted(MODELS.glob("*.tflite")) + sorted(MODELS.glob("*.onnx")), ids=lambda p: p.name)
def test_shipped_models_are_right_after_every_pass(model: Path) -> None:
    compiled = compile_model(model)
    found = validate(compiled)
    assert found.right, found.wrong
    ran = {report.name for report in compiled.passes if report.changes}
    assert ran <= set(found.changed)
    assert found.runs >= 2
    assert validate_unasked(compiled) is not None


@pytest.mark.parametrize("options", [{"io": "int8"}, {"target": "cortex-m4"}, {"io": "int8", "ram_budget": "min"}])
def test_interfaces_are_compared(options: dict[str, str]) -> None:
    found = validate(compile_model(MODELS / "digits_qdq.onnx", **options))
    assert found.right, found.wrong
    assert ("--io" in found.changed) == ("io" in options)


def test_an_interface_of_other_values_is_found() -> None:
    compiled = compile_model(MODELS / "digits_qdq.onnx", io="int8")
    start, good = compiled.history[:2]
    assert good.name == "--io" and good.graph is not start.graph
    outputs = [name for node in good.graph.nodes for name in node.outputs]
    told = [name for name in outputs if good.graph.tensor(name).quantization and name not in good.graph.outputs]
    assert told
    bad = GraphStep("--io", replace(good.graph, outputs=(told[-1],)))
    found = validate(replace(compiled, history=(start, bad))).wrong
    assert found is not None and found.step == "--io"


def joined_convolutions(net: OnnxNet) -> None:
    """Transposes meet a Concat."""
    x = net.input((1, 3, 6, 5))
    a = net.op("MaxPool", x, kernel_shape=[2, 2])
    b = net.op("AveragePool", x, kernel_shape=[2, 2])
    net.output(net.op("Concat", a, b, axis=1))


def test_every_permutation_of_a_wrong_axis_is_found() -> None:
    graph = onnx_graph(joined_convolutions)
    after = cancel_transposes(graph)
    assert wrong(graph, after, "cancel-transposes", "onnx") is None
    turned = [node for node in after.nodes if isinstance(node.op, Transpose)]
    assert turned
    node = turned[-1]
    assert isinstance(node.op, Transpose)
    shape = after.tensor(node.inputs[0]).shape
    for other in ((0, 3, 2, 1), (0, 1, 2, 3), (0, 3, 1, 2), (0, 2, 3, 1)):
        expected = tuple(shape[axis] for axis in other)
        if other == node.op.permutation or expected != after.tensor(node.outputs[0]).shape:
            continue
        bad = replace(node, op=replace(node.op, permutation=other))
        nodes = tuple(bad if each is node else each for each in after.nodes)
        found = wrong(graph, replace(after, nodes=nodes), "cancel-transposes", "onnx")
        assert found is not None


def test_effort_is_the_same_everywhere_and_grows_with_the_model() -> None:
    small, large = (
        effort(compile_model(MODELS / name).history[0].graph)
        for name in ("digits_int8.tflite", "person_detect_int8.tflite")
    )
    assert 0 < small < large < 60_000_000


def test_a_pass_that_is_wrong_inside_of_an_operator_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The main graph is left alone: the operator that runs the graph gives other values, and so does the graph itself."""
    (tmp_path / "branches.tflite").write_bytes(branches())

    def wrong_padding(graph: Graph) -> Graph:
        after = fold_pad(graph)
        if after is graph:
            return graph
        folded = next(node for node in after.nodes if node not in graph.nodes)
        assert isinstance(folded.op, Conv2D)
        padding = replace(folded.op.window.padding, top=0, bottom=2)
        op = replace(folded.op, window=replace(folded.op.window, padding=padding))
        return replace(after, nodes=tuple(replace(n, op=op) if n is folded else n for n in after.nodes))

    passes: Passes = tuple((n, wrong_padding if n == "fold-pad" else function) for n, function in PASSES)

    def with_passes(
        graph: Graph, disabled: frozenset[str] = frozenset(), which: Passes = passes, *rest: Any, **more: Any
    ):
        return run_passes(graph, disabled, which, *rest, **more)

    monkeypatch.setattr(emitc.compiler, "run_passes", with_passes)
    found = validate(compile_model(tmp_path / "branches.tflite")).wrong
    assert found is not None and found.step == "fold-pad"
    assert "CONV_2D" in found.ops[-1]


def test_a_reference_that_fails_is_a_fault_and_no_traceback() -> None:
    compiled = compile_model(MODELS / "mww_hey_jarvis_v2.tflite")
    place = next(i for i, step in enumerate(compiled.history) if step.name == "state-in-place")
    before, after = compiled.history[place - 1].graph, compiled.history[place].graph
    append = next(node for node in after.nodes if node not in before.nodes)
    longer = tuple(n for n in after.nodes if n is not append and append.outputs[0] not in n.outputs)
    found = wrong(before, replace(after, nodes=longer), "state-in-place")
    assert found is not None and found.step == "state-in-place"


def test_python_has_the_check_too() -> None:
    found = emitc.api.compile_model(MODELS / "digits_int8.tflite").check()
    assert found.right and found.passes_checked >= len(PASSES)


def test_graphs_inside_of_graphs_have_their_own_steps() -> None:
    graph = graph_of(transposed_softmax)
    outer, inner = ("a",), ("a", "b")
    named = [
        (BUILT, ()),
        ("p", ()),
        (BUILT, outer),
        ("p", outer),
        (BUILT, inner),
        ("p", inner),
        ("q", outer),
        (BUILT, outer),
    ]
    found = chains([GraphStep(name, graph, inside) for name, inside in named])
    assert [[step.name for step in chain.steps] for chain in found] == [
        [BUILT, "p"], [BUILT, "p", "q"], [BUILT, "p"], [BUILT]
    ]  # fmt: skip


def test_an_output_too_few_is_a_fault() -> None:
    compiled = compile_model(MODELS / "mww_hey_jarvis_v2.tflite")
    graph = compiled.history[0].graph
    found = wrong(graph, replace(graph, outputs=(*graph.outputs, *graph.outputs)), "drop-dead")
    assert found is not None and found.step == "drop-dead"


def endless() -> bytes:
    """A WHILE whose condition is always true."""
    condition, body, net = Builder(), Builder(), Builder()
    flag = condition.constant(True, "bool")
    shape = (1, 4)
    x = condition.computed(*shape)
    y = body.computed(*shape)
    given = net.computed(*shape)
    found = net.op("WHILE", (given,), net.like(given), cond_subgraph_index=1, body_subgraph_index=2)
    same = body.op("RELU", (y,), body.like(y))
    return net.model((given,), (found,), condition.sub((x,), (flag,)), body.sub((y,), (same,)))


def test_a_loop_without_an_end_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The references would run for long, so that a compilation does not start them unasked."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "endless.tflite").write_bytes(endless())
    called = CliRunner().invoke(cli, ["compile", "endless.tflite", "-o", "out"])
    assert called.exit_code == 0, called.stderr
    assert "loop that may not end: --check asks for it" in called.stdout
    assert validate_unasked(compile_model(tmp_path / "endless.tflite")) is None

"""State in a model with an NPU: variables stay with the core, regions keep their place among reads and writes, bits are right."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from emitc.backends.ethos_u.backend import convex_regions, in_order
from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.ir import DType, Graph, Node, Op, Tensor
from emitc.verify import golden_run, verification
from emitc.verify.engines.run import run_isolated
from emitc.verify.reference import random_samples
from emitc.writers.tflite import ModelSpec, TensorSpec, write_tflite
from tests.support.models.streaming import MODELS, Stream

pytestmark = pytest.mark.usefixtures("vela")
CORPUS = Path(__file__).resolve().parents[4] / "shared" / "models" / "tflite"
OPTIONS = {"npu": "ethos-u55-128", "npu-always": "yes"}


def written(spec: ModelSpec, folder: Path) -> Path:
    path = folder / "model.tflite"
    path.write_bytes(write_tflite(spec))
    return path


def vela_file(folder: Path, model: Path) -> Path:
    """The file that vela's own command makes of a model."""
    start = "import sys; from ethosu.vela.vela import main; sys.exit(main())"
    command = [
        sys.executable,
        "-c",
        start,
        str(model),
        "--accelerator-config",
        "ethos-u55-128",
        "--output-dir",
        str(folder),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / f"{model.stem}_vela.tflite"


def on_npu(made: Compiled) -> list[list[str]]:
    """Operator types of every region."""
    types = {row.index: row.op_type for row in made.partition.assignments}
    return [[types[index] for index in region.nodes] for _, region in made.partition.regions]


@pytest.mark.parametrize("name", ["rows", "window", "channels", "swap", "twice", "sum"])
def test_streaming_models_run_on_both(name: str, tmp_path: Path) -> None:
    made = compile_model(written(MODELS[name](), tmp_path), backends=OPTIONS)
    assert made.partition.regions
    proof = verification.verify(made, samples=25, layers=True, sanitize=True)
    assert proof.match, proof
    assert (proof.reference, proof.rule) == ("tflm", "exact")


def test_one_region_takes_everything_between_the_variables(tmp_path: Path) -> None:
    made = compile_model(written(MODELS["rows"](), tmp_path), backends=OPTIONS)
    (region,) = on_npu(made)
    assert sorted(set(region)) == ["CONCATENATION", "CONV_2D", "STRIDED_SLICE"]
    refused = {row.op_type: dict(row.refused) for row in made.partition.assignments if row.region < 0}
    assert refused["ASSIGN_VARIABLE"]["ethos-u"] == "it reads or writes state, which is the core's"


def late_read() -> ModelSpec:
    """Two chains over one variable: what is read after the assignment must not run with what is in front of it.

    a = s + x; s = x; b = s; y = a + b. A region with both sums would need s from after the assignment, and could be placed
    where the first sum was.
    """
    net = Stream()
    like = TensorSpec("x", "int8", (1, 8, 8, 16), None, (0.05,), (3,))
    x = net.tensor(like)
    handle = net.variable("s", like)
    old = net.read(handle, like, "old")
    a = net.activation("a", like.shape, 0.07)
    net.op("ADD", (old, x), (a,), fused_activation_function="NONE")
    net.assign(handle, x)
    new = net.read(handle, like, "new")
    b = net.activation("b", like.shape, 0.06)
    net.op("SUB", (new, a), (b,), fused_activation_function="NONE")
    y = net.activation("y", like.shape, 0.09)
    net.op("ADD", (a, b), (y,), fused_activation_function="NONE")
    net.assign(handle, y)
    return net.stream((x,), (y,))


def test_a_region_keeps_its_place_among_reads_and_assignments(tmp_path: Path) -> None:
    made = compile_model(written(late_read(), tmp_path), backends=OPTIONS)
    assert made.partition.regions
    proof = verification.verify(made, samples=12, layers=True, sanitize=True)
    assert proof.match, proof


def test_sets_are_convex_over_the_order_of_state_too() -> None:
    """0 writes s, 1 reads s: no tensor leads from 0's operand to 1's result, but a path does."""
    tensors = (
        Tensor("x", DType.INT8, (4,)),
        Tensor("s", DType.INT8, (4,), initial=bytes(4)),
        *(Tensor(name, DType.INT8, (4,)) for name in ("a", "b", "y")),
    )
    nodes = (
        Node(Op(), "OP", ("x",), ("a",), 0),
        Node(Op(), "ASSIGN", ("a",), ("s",), 1),
        Node(Op(), "READ", ("s",), ("b",), 2),
        Node(Op(), "OP", ("a", "b"), ("y",), 3),
    )
    graph = Graph("g", tensors, nodes, ("x",), ("y",))
    assert graph.state_order() == ((1, 2),)
    assert convex_regions(graph, frozenset([0, 3])) == ((0,), (3,))
    shuffled = (nodes[2], nodes[0], nodes[1], nodes[3])
    assert [node.index for node in in_order(graph, shuffled)] == [0, 1, 2, 3]


def test_a_write_waits_for_the_reads_before_it() -> None:
    tensors = (
        Tensor("x", DType.INT8, (4,)),
        Tensor("s", DType.INT8, (4,), initial=bytes(4)),
        Tensor("y", DType.INT8, (4,)),
    )
    nodes = (Node(Op(), "READ", ("s",), ("y",), 0), Node(Op(), "ASSIGN", ("x",), ("s",), 1))
    graph = Graph("g", tensors, nodes, ("x",), ("y",))
    assert [node.index for node in in_order(graph, nodes[::-1])] == [0, 1]


def test_a_file_that_vela_has_compiled_keeps_its_variables(tmp_path: Path) -> None:
    """vela initialises variables after their first read; what they start from is the default there."""
    model = written(plain_rows(), tmp_path)
    made = compile_model(vela_file(tmp_path, model))
    assert "CUSTOM:ethos-u" in {node.op_type for node in made.graph.nodes}
    assert made.program.state_bytes > 0
    cases = random_samples(made.graph, 20, 5)
    golden = run_isolated(model.read_bytes(), cases, engine="tflm")
    for values, expected in zip(golden_run.layer_values(made, cases), golden.outputs, strict=True):
        assert np.array_equal(values[made.graph.outputs[0]].reshape(expected[0].shape), expected[0])
    proof = verification.verify(made, samples=10, layers=True, sanitize=True)
    assert proof.match, proof


@pytest.mark.parametrize("name", ["mww_hey_jarvis_v2", "mww_okay_nabu_v2", "mww_vad_v2", "mww_alexa_v1"])
def test_the_npu_takes_all_of_a_wake_word_but_its_state(name: str) -> None:
    path = CORPUS / f"{name}.tflite"
    if not path.is_file():
        pytest.skip("the model corpus ../shared/models is not next to the checkout")
    made = compile_model(path, backends={"npu": "ethos-u55-128"})
    proof = verification.verify(made, samples=25, layers=True, sanitize=True)
    assert proof.match, proof
    left = {row.op_type for row in made.partition.assignments if row.region < 0}
    assert left == {"ASSIGN_VARIABLE", "QUANTIZE"}
    assert len(made.partition.regions) == 1


def plain_rows() -> ModelSpec:
    """`rows` from zero points, which is what vela can be told."""
    spec = MODELS["rows"]()
    (start,) = spec.subgraphs
    tensors = tuple(
        TensorSpec(t.name, t.dtype, t.shape, bytes((t.zero_points[0] % 256,)) * len(t.data), t.scales, t.zero_points)
        if t.data is not None
        else t
        for t in start.tensors
    )
    return ModelSpec(
        spec.tensors,
        spec.operators,
        spec.inputs,
        spec.outputs,
        "",
        (type(start)(tensors, start.operators, (), (), "start"),),
    )

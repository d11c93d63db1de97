"""Remedies of `emitc quantize`: the float model keeps its results, and what they are for gets better."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from onnx import numpy_helper

import emitc
from emitc.calibrate.float_graph import FloatGraph
from emitc.calibrate.remedies import correct_bias, equalize, split_heads
from emitc.cli.main import cli
from emitc.evaluate.quality import channel_statistics, sqnr_db
from emitc.evaluate.quantization import channels_db
from emitc.verify.engines.run import answer, engines_in, run_isolated
from tests.support.models.onnx_net import OnnxNet

pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")

BETWEEN: dict[str, dict[str, Any]] = {
    "Relu": {},
    "LeakyRelu": {"alpha": 0.1},
    "MaxPool": {"kernel_shape": [2, 2], "strides": [2, 2]},
    "AveragePool": {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]},
    "Sigmoid": {},
}
"""Operators between two layers; the last one does not keep factors."""


@pytest.fixture(autouse=True)
def _engine_in_this_process() -> Iterator[None]:
    """ONNX Runtime without a process for each run: the models are the test's own."""
    with engines_in(lambda message, _: subprocess.CompletedProcess([], 0, answer(message), b"")):
        yield


def outputs(model: onnx.ModelProto, cases: list[np.ndarray]) -> list[np.ndarray]:
    """Output 0 of each case in ONNX Runtime."""
    run = run_isolated(
        model.SerializeToString(), [[x] for x in cases], source_format="onnx", resets=range(1, len(cases))
    )
    return [np.asarray(found[0]) for found in run.outputs]


def statistics(model: onnx.ModelProto, cases: list[np.ndarray], name: str) -> Any:
    return channel_statistics(model.SerializeToString(), [{name: x} for x in cases])


def random_net(rng: np.random.Generator) -> tuple[onnx.ModelProto, list[np.ndarray]]:
    """Three to five layers with channels of very different size, and operators between them."""
    net, channels, size = OnnxNet(), int(rng.choice([4, 6, 8])), 8
    y = net.op("Conv", net.input((1, 3, size, size)), *layer(net, rng, (channels, 3, 3, 3)), pads=[1, 1, 1, 1])
    for _ in range(int(rng.integers(1, 4))):
        for op in map(str, rng.choice(list(BETWEEN), int(rng.integers(0, 3)), replace=False)):
            if op != "MaxPool" or size >= 4:
                y = net.op(op, y, **BETWEEN[op])
                size //= 2 if op == "MaxPool" else 1
        group = int(rng.choice([1, 2, channels]))
        made = channels if group > 1 else int(rng.choice([4, 6, 8]))
        y = net.op("Conv", y, *layer(net, rng, (made, channels // group, 1, 1)), group=group)
        channels = made
    y = net.op("Flatten", net.op("GlobalAveragePool", net.op("Relu", y)))
    y = net.op("Relu", net.op("MatMul", y, layer(net, rng, (channels, channels))[0]))
    net.output(net.op("Gemm", y, *layer(net, rng, (5, channels)), transB=1), shape=(1, 5))
    return net.model(), [rng.normal(size=(1, 3, 8, 8)).astype(np.float32) for _ in range(4)]


def layer(net: OnnxNet, rng: np.random.Generator, shape: tuple[int, ...]) -> list[str]:
    """Weights whose channels have sizes from 1/64 to 64, and mostly a bias."""
    size = np.exp2(rng.uniform(-6, 6, shape[0]))
    weights = rng.normal(size=shape) * size.reshape(-1, *[1] * (len(shape) - 1))
    operands = [net.constant(weights.astype(np.float32))]
    return operands + [net.constant((rng.normal(size=shape[0]) * size).astype(np.float32))] * int(rng.random() < 0.8)


@pytest.mark.parametrize("seed", range(12))
def test_an_equalized_network_has_the_outputs_that_it_had_to_the_bit(seed: int) -> None:
    model, cases = random_net(np.random.default_rng(seed))
    before = outputs(model, cases)
    name = model.graph.input[0].name
    assert equalize(FloatGraph(model), statistics(model, cases, name)) >= 1
    for x, y in zip(before, outputs(model, cases), strict=True):
        assert x.tobytes() == y.tobytes()


def chain(*between: str, group: int = 1) -> tuple[OnnxNet, str]:
    """Two layers of four channels, whose sizes are 1, 4, 64 and 512, with operators between them; and the tensor there."""
    net = OnnxNet()
    first = np.array([1, 4, 64, 512], np.float32).reshape(4, 1, 1, 1)
    y = net.op("Conv", net.input((1, 1, 4, 4)), net.constant(first), net.constant(np.zeros(4, np.float32)))
    for op in between:
        bounds = [net.constant(np.float32(0)), net.constant(np.float32(6))] if op == "Clip" else []
        y = net.op(op, y, *bounds)
    second = np.ones((4, 4 // group, 1, 1), np.float32)
    net.output(net.op("Conv", y, net.constant(second), group=group), shape=(1, 4, 4, 4))
    return net, y


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        pytest.param(4, [512, 512, 512, 512], id="depthwise: its scales take the whole factor"),
        pytest.param(1, [16, 64, 256, 512], id="dense: half of it, as a power of two"),
    ],
)
def test_channels_get_ranges_of_nearly_one_size(group: int, expected: list[int]) -> None:
    net, between = chain("Relu", group=group)
    model, cases = net.model(), [np.linspace(0, 1, 16, dtype=np.float32).reshape(1, 1, 4, 4)]
    before = statistics(model, cases, "x0")[between].largest
    assert before.tolist() == [1, 4, 64, 512]
    assert equalize(FloatGraph(model), statistics(model, cases, "x0")) == 1
    assert statistics(model, cases, "x0")[between].largest.tolist() == expected


@pytest.mark.parametrize("between", [("Clip",), ("Sigmoid",), ("Relu", "HardSwish")])
def test_other_functions_between_layers_leave_them_as_they_are(between: tuple[str, ...]) -> None:
    net, _ = chain(*between)
    model, cases = net.model(), [np.ones((1, 1, 4, 4), np.float32)]
    before = model.SerializeToString()
    assert equalize(FloatGraph(model), statistics(model, cases, "x0")) == 0
    assert model.SerializeToString() == before


def test_a_second_reader_leaves_a_layer_as_it_is() -> None:
    net = OnnxNet()
    y = net.op("Conv", net.input((1, 1, 4, 4)), net.constant(np.array([1, 64], np.float32).reshape(2, 1, 1, 1)))
    z = net.op("Conv", net.op("Relu", y), net.constant(np.ones((2, 2, 1, 1), np.float32)))
    net.output(net.op("Add", y, z), shape=(1, 2, 4, 4))
    model = net.model()
    assert equalize(FloatGraph(model), statistics(model, [np.ones((1, 1, 4, 4), np.float32)], "x0")) == 0


def quantized(
    folder: Path, net: OnnxNet, cases: list[np.ndarray], *more: str
) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """What `emitc quantize` makes of a net, and its report."""
    (folder / "net.onnx").write_bytes(net.serialized())
    np.savez(folder / "c.npz", allow_pickle=False, **{f"in0_{k}": x for k, x in enumerate(cases)})
    arguments = [
        str(folder / "net.onnx"),
        "--calibration",
        str(folder / "c.npz"),
        "-o",
        str(folder / "q.onnx"),
        "--force",
    ]
    found = CliRunner().invoke(cli, ["quantize", *arguments, "--json", *more])
    assert found.exit_code == 0, found.output
    return onnx.load(folder / "q.onnx"), json.loads(found.stdout)


def test_a_bias_takes_off_what_rounded_weights_add(tmp_path: Path) -> None:
    """All weights but one are rounded up by 0.4 of a step, and their inputs are positive."""
    net, rng = OnnxNet(), np.random.default_rng(2)
    weights = np.full((3, 32), 10.6 / 127, np.float32)
    weights[:, 0] = 1.0
    y = net.op("Gemm", net.input((1, 32)), net.constant(weights), net.constant(np.ones(3, np.float32)), transB=1)
    net.output(y, shape=(1, 3))
    cases = [rng.uniform(0, 1, (1, 32)).astype(np.float32) for _ in range(40)]
    errors = {}
    for remedy in ("heads", "bias"):
        made, report = quantized(tmp_path, net, cases, "--remedy", remedy)
        assert report["remedies"] == [remedy]
        pairs = zip(outputs(made, cases), outputs(net.model(), cases), strict=True)
        errors[remedy] = float(np.mean([x - y for x, y in pairs]))
    assert errors["heads"] > 0.04 and abs(errors["bias"]) < 0.005


def test_the_error_of_a_channel_by_hand() -> None:
    """Weights 1.25 and -0.5 in steps of 1, half to even: errors -0.25 and 0.5, times means 2 and 3."""
    net = OnnxNet()
    weights = net.constant(np.array([[1.25], [-0.5]], np.float32))
    net.output(net.op("Gemm", net.input((1, 2)), weights), shape=(1, 1))
    model = net.model()
    codes = numpy_helper.from_array(np.array([[1], [0]], np.int8), f"{weights}_quantized")
    scale = numpy_helper.from_array(np.array([1.0], np.float32), "scale")
    node = onnx.helper.make_node("DequantizeLinear", [codes.name, "scale"], ["w"], axis=1)
    graph = onnx.helper.make_graph([node], "q", [], [], [codes, scale])
    cases = [np.array([[1, 3]], np.float32), np.array([[3, 3]], np.float32)]
    assert correct_bias(FloatGraph(model), onnx.helper.make_model(graph), statistics(model, cases, "x0")) == 1
    (bias,) = (numpy_helper.to_array(t) for t in model.graph.initializer if t.name == model.graph.node[0].input[2])
    assert bias.tolist() == [0.25 * 2 - 0.5 * 3]


@pytest.mark.parametrize(
    ("shape", "attributes"),
    [
        ((6, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
        ((6, 3, 3, 2), {"pads": [0, 1, 2, 0], "strides": [2, 3]}),
        ((6, 1, 3, 3), {"group": 3, "dilations": [2, 1], "pads": [2, 0, 1, 1]}),
        ((4, 3, 5), {"pads": [2, 2]}),
    ],
    ids=["padded", "strided", "grouped and dilated", "one dimension"],
)
def test_with_rounded_weights_each_channel_has_the_mean_that_it_had(
    shape: tuple[int, ...], attributes: dict[str, Any]
) -> None:
    """A window that reaches out of the input meets zeros there, whose weights make no error."""
    net, rng = OnnxNet(), np.random.default_rng(6)
    weights = rng.normal(size=shape).astype(np.float32)
    name = net.constant(weights)
    y = net.op("Conv", net.input((1, 3, *[7] * (len(shape) - 2))), name, **attributes)
    net.output(y)
    model = net.model()
    cases = [rng.uniform(0, 1, (1, 3, *[7] * (len(shape) - 2))).astype(np.float32) for _ in range(8)]
    codes = np.rint(weights * 4).astype(np.int8)
    constants = [
        numpy_helper.from_array(codes, f"{name}_quantized"),
        numpy_helper.from_array(np.float32(0.25), "scale"),
    ]
    node = onnx.helper.make_node("DequantizeLinear", [f"{name}_quantized", "scale"], ["w"])
    quantized_model = onnx.helper.make_model(onnx.helper.make_graph([node], "q", [], [], constants))

    def means() -> np.ndarray:
        return np.stack(outputs(model, cases)).mean(axis=(0, 1, *range(3, len(shape) + 1)))

    wanted = means()
    assert correct_bias(FloatGraph(model), quantized_model, statistics(model, cases, "x0")) == 1
    (stored,) = (tensor for tensor in model.graph.initializer if tensor.name == name)
    stored.CopyFrom(numpy_helper.from_array(codes.astype(np.float32) / 4, name))
    np.testing.assert_allclose(means(), wanted, rtol=1e-5, atol=1e-5)


def head(rows: list[float]) -> OnnxNet:
    """A hidden layer, and a head whose outputs have these sizes."""
    rng, net = np.random.default_rng(4), OnnxNet()
    y = net.op("Relu", net.op("Gemm", net.input((1, 16)), net.constant(rng.normal(size=(16, 24)).astype(np.float32))))
    weights = rng.normal(size=(24, len(rows))) * np.array(rows)
    y = net.op("Gemm", y, net.constant(weights.astype(np.float32)), net.constant(np.array(rows, np.float32)))
    net.output(net.op("Reshape", y, net.constant(np.array([1, len(rows), 1]))), shape=(1, len(rows), 1))
    return net


@pytest.mark.parametrize("rows", [[300, 300, 1, 1], [1, 300, 1, 300]], ids=["in order", "mixed"])
def test_small_outputs_of_a_split_head_have_a_scale_of_their_own(rows: list[float], tmp_path: Path) -> None:
    net = head(rows)
    cases = [np.random.default_rng(k).normal(size=(1, 16)).astype(np.float32) for k in range(40)]
    exact = np.stack(outputs(net.model(), cases))
    small = [i for i, size in enumerate(rows) if size == 1]
    ratios = {}
    for remedy in ("bias", "auto"):
        made, report = quantized(tmp_path, net, cases, "--remedy", remedy)
        found = np.stack(outputs(made, cases))
        assert found.shape == exact.shape and (remedy == "bias" or "heads" in report["remedies"])
        ratios[remedy] = sqnr_db(exact[:, :, small], found[:, :, small])
    assert ratios["bias"] < 10 and ratios["auto"] > 25
    assert emitc.compile_model(tmp_path / "q.onnx").verify().match


def test_every_channel_of_an_output_counts_alike() -> None:
    """Channels of 300 and of 3, both off by 0.3: 60 dB and 20 dB. The whole has 57 dB."""
    before = np.array([[[300.0, 3.0]], [[-300.0, 3.0]]])
    assert channels_db(before, before + 0.3) == pytest.approx(40)
    assert channels_db(before, before) == 100
    assert channels_db(before[:, 0, :1], before[:, 0, :1] + 0.3) == pytest.approx(60)


def test_a_split_head_computes_what_it_did() -> None:
    model, cases = head([1, 300, 1, 300]).model(), [np.ones((1, 16), np.float32), -np.ones((1, 16), np.float32)]
    before = outputs(model, cases)
    stay = split_heads(FloatGraph(model), statistics(model, cases, "x0"))
    kinds = [node.op_type for node in model.graph.node if node.name in stay]
    assert kinds == ["Concat", "Gather", "Reshape"]
    assert [node.op_type for node in model.graph.node].count("Gemm") == 3
    onnx.checker.check_model(model)
    np.testing.assert_allclose(np.stack(outputs(model, cases)), np.stack(before), rtol=1e-5, atol=1e-5)


def test_outputs_of_one_size_and_named_operators_are_not_split() -> None:
    for rows, kept in (([1, 2, 4, 8], ()), ([1, 300, 1, 300], ("head",))):
        model = head([float(row) for row in rows]).model()
        model.graph.node[-2].name = "head"
        before = model.SerializeToString()
        cases = [np.random.default_rng(k).normal(size=(1, 16)).astype(np.float32) for k in range(40)]
        assert split_heads(FloatGraph(model), statistics(model, cases, "x0"), kept) == ()
        assert model.SerializeToString() == before or not kept


def test_an_unknown_remedy_is_refused(tmp_path: Path) -> None:
    found = CliRunner().invoke(cli, ["quantize", "m.onnx", "--calibration", "c.npz", "--remedy", "equalise"])
    assert found.exit_code == 2 and "did you mean equalize?" in found.stderr

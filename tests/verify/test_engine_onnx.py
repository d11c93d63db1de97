"""emitc.verify.engines.onnx: onnxruntime gives the stored golden vectors, every value by its name, and refuses in words."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from emitc.errors import CannotCompile, EmitcError
from emitc.verify.engines import run as golden
from emitc.verify.engines.run import EngineRefused, OnnxRuntimeEngine, engine_for, run_isolated

pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "models"


def chain(opset: int = 21, ir_version: int = 10, batch: int | str = 2) -> bytes:
    """z = relu(x + w) * x on [2, 3], w = (1, 2, 3); the sum is "s", its relu "r"."""
    shape = [batch, 3]
    nodes = [
        helper.make_node("Add", ["x", "w"], ["s"]),
        helper.make_node("Relu", ["s"], ["r"]),
        helper.make_node("Mul", ["r", "x"], ["z"]),
    ]
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, shape)],
        [numpy_helper.from_array(np.array([1, 2, 3], np.float32), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)
    return bytes(model.SerializeToString())


X = np.array([[-3, 0, 1], [2, -2, 4]], np.float32)
SUM = X + np.array([1, 2, 3], np.float32)
Z = np.maximum(SUM, 0) * X


def assert_same(found: np.ndarray, expected: np.ndarray) -> None:
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == expected.tobytes()


def test_written_model() -> None:
    engine = OnnxRuntimeEngine(chain(), preserve=True)
    assert engine.name == "onnxruntime"
    assert engine.input_types() == [(np.dtype(np.float32), (2, 3))]
    assert engine.tensors() == {}
    (z,) = engine.run([X])
    assert_same(z, Z)
    tensors = engine.tensors()
    assert sorted(map(str, tensors)) == ["r", "s", "x", "z"]
    assert_same(tensors["s"], SUM)
    assert_same(tensors["r"], np.maximum(SUM, 0))
    assert_same(tensors["z"], Z)
    # Copies: a later run changes nothing that was handed out.
    engine.run([X * 2])
    assert_same(tensors["s"], SUM)
    assert_same(z, Z)
    engine.reset()
    assert engine.tensors() == {}


def test_without_preserve_there_are_no_tensors() -> None:
    engine = OnnxRuntimeEngine(chain())
    engine.run([X])
    assert engine.tensors() == {}


def test_an_open_size_takes_any() -> None:
    engine = OnnxRuntimeEngine(chain(batch="N"))
    assert engine.input_types() == [(np.dtype(np.float32), (-1, 3))]
    assert_same(engine.run([X[:1]])[0], Z[:1])
    with pytest.raises(EmitcError, match="input 0 does not fit the model"):
        engine.run([X.T.copy()])


def test_an_output_that_is_an_inner_value_too_is_there_once() -> None:
    model = onnx.ModelProto.FromString(chain())
    model.graph.output.append(helper.make_tensor_value_info("r", TensorProto.FLOAT, [2, 3]))
    engine = OnnxRuntimeEngine(model.SerializeToString(), preserve=True)
    outputs = engine.run([X])
    assert_same(outputs[0], Z)
    assert_same(outputs[1], np.maximum(SUM, 0))
    assert len(outputs) == 2


def test_values_without_an_array_are_left_out() -> None:
    """A sequence has no numpy value; the tensors beside it do."""
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["list"]),
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("ConcatFromSequence", ["list"], ["y"], axis=0),
    ]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy"]
    model = helper.make_model(
        helper.make_graph(nodes, "g", info[:1], info[1:]), opset_imports=[helper.make_opsetid("", 21)], ir_version=10
    )
    engine = OnnxRuntimeEngine(model.SerializeToString(), preserve=True)
    engine.run([X])
    assert sorted(map(str, engine.tensors())) == ["same", "x", "y"]


def test_operators_are_not_fused() -> None:
    """Optimized, a softmax between DequantizeLinear and QuantizeLinear multiplies by floor(1 / y_scale)."""
    scale, zero = np.float32(0.05), np.int8(3)
    y_scale, y_zero = np.float32(1 / 255), np.int8(-128)
    constants = {"xs": scale, "xz": zero, "ys": y_scale, "yz": y_zero}
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["f"]),
        helper.make_node("Softmax", ["f"], ["p"], axis=-1),
        helper.make_node("QuantizeLinear", ["p", "ys", "yz"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "softmax",
        [helper.make_tensor_value_info("x", TensorProto.INT8, [64, 10])],
        [helper.make_tensor_value_info("y", TensorProto.INT8, [64, 10])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    x = np.random.default_rng(1).integers(-128, 128, (64, 10)).astype(np.int8)
    (found,) = OnnxRuntimeEngine(model.SerializeToString()).run([x])
    real = np.exp((x.astype(np.float64) - 3) * float(scale))
    softmax = real / real.sum(axis=1, keepdims=True)
    expected = np.clip(np.rint(softmax / float(y_scale)) - 128, -128, 127)
    fused = np.clip(np.rint(softmax * 254) - 128, -128, 127)
    assert np.count_nonzero(fused != expected) > 20, "the two must be told apart"
    assert np.array_equal(found, expected)


@pytest.mark.parametrize(
    "name",
    [
        "digits_cnn_qop_u8s8_pc", "digits_dscnn_qdq_u8u8", "digits_cnn_qdq_s16s8_pc", "digits_transformer_qop_u8s8_pc",
        "tf2onnx_kws_int8", "float/digits_mlp",
    ],
)  # fmt: skip
def test_corpus_vectors(name: str) -> None:
    path = CORPUS / "onnx" / f"{name}.onnx"
    if not path.is_file():
        pytest.skip("the model corpus ../shared/models is not next to the checkout")
    with np.load(CORPUS / "vectors" / "onnx" / f"{name}.npz") as file:
        arrays = {key: file[key] for key in file.files}
    count = sum(key.startswith("in0_") for key in arrays)
    run = run_isolated(path.read_bytes(), [[arrays[f"in0_{k}"]] for k in range(count)], source_format="onnx")
    assert run.engine == "onnxruntime"
    for k, outputs in enumerate(run.outputs):
        if name.startswith("float/"):
            np.testing.assert_allclose(outputs[0], arrays[f"out0_{k}"], rtol=1e-5, atol=1e-5)
        else:
            assert_same(outputs[0], arrays[f"out0_{k}"])


def test_isolated_tensors_have_names() -> None:
    """Also names that mean something in a path or an archive."""
    model = onnx.ModelProto.FromString(chain())
    strange = "../s\n.npy é"
    for node in model.graph.node:
        for names in (node.input, node.output):
            names[:] = [strange if name == "s" else name for name in names]
    run = run_isolated(model.SerializeToString(), [[X], [X * 2]], source_format="onnx", preserve=True)
    assert [sorted(map(str, t)) for t in run.tensors] == [sorted(["r", strange, "x", "z"])] * 2
    assert_same(run.tensors[0][strange], SUM)
    assert_same(run.outputs[0][0], Z)


def test_auto_is_onnxruntime() -> None:
    assert engine_for(chain(), "auto", source_format="onnx").name == "onnxruntime"
    assert engine_for(chain(), "onnxruntime", source_format="onnx").name == "onnxruntime"


@pytest.mark.parametrize(
    ("engine", "source_format", "message"),
    [
        pytest.param(
            "onnxruntime",
            "tflite",
            "error: the engine onnxruntime does not read tflite models\n"
            "  at:    --reference onnxruntime\n"
            "  why:   engines for tflite: tflm, litert\n"
            "  try:   verify with --reference auto, tflm, litert or numpy",
            id="onnxruntime-tflite",
        ),
        pytest.param(
            "tflm",
            "onnx",
            "error: the engine tflm does not read onnx models\n"
            "  at:    --reference tflm\n"
            "  why:   engines for onnx: onnxruntime\n"
            "  try:   verify with --reference auto, onnxruntime or numpy",
            id="tflm-onnx",
        ),
    ],
)
@pytest.mark.parametrize("isolated", [False, True])
def test_an_engine_of_the_other_format_is_refused(
    engine: golden.EngineName, source_format: str, message: str, isolated: bool
) -> None:
    run = (lambda *a, **k: run_isolated(a[0], [], engine=a[1], **k)) if isolated else engine_for
    with pytest.raises(EmitcError) as caught:
        run(chain(), engine, source_format=source_format)
    assert str(caught.value) == message
    assert type(caught.value) is EmitcError


REFUSED: dict[str, tuple[Callable[[], bytes], str]] = {
    "a newer IR": (lambda: chain(ir_version=10_000), "IR version"),
    "a newer opset": (lambda: chain(opset=10_000), "opset"),
    "not a model": (lambda: b"not a model", ""),
    "an unknown operator": (lambda: chain().replace(b"Relu", b"Rxlu"), "Rxlu"),
}


@pytest.mark.parametrize("what", REFUSED)
@pytest.mark.parametrize("preserve", [False, True])
def test_a_refusal_carries_the_reason_and_prints_nothing(
    what: str, preserve: bool, capfd: pytest.CaptureFixture[str]
) -> None:
    make, word = REFUSED[what]
    with pytest.raises(EngineRefused) as caught:
        OnnxRuntimeEngine(make(), preserve=preserve)
    assert isinstance(caught.value, CannotCompile)
    assert caught.value.what == "the golden engine cannot load the model"
    assert str(caught.value.where) == "--reference onnxruntime"
    assert word.lower() in caught.value.why.lower()
    assert caught.value.hint == "export the model for an older opset, or compare with --reference numpy"
    assert capfd.readouterr() == ("", "")


def test_a_refusal_comes_back_from_the_child() -> None:
    with pytest.raises(EngineRefused) as caught:
        run_isolated(chain(ir_version=10_000), [[X]], source_format="onnx")
    assert "IR version" in caught.value.why


def test_a_failing_run_is_refused() -> None:
    """Gather beyond the end is seen only when it runs."""
    node = helper.make_node("Gather", ["w", "i"], ["y"])
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("i", TensorProto.INT64, [1])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])],
        [numpy_helper.from_array(np.zeros(3, np.float32), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    engine = OnnxRuntimeEngine(model.SerializeToString())
    with pytest.raises(EngineRefused) as caught:
        engine.run([np.array([7], np.int64)])
    assert caught.value.what == "the golden engine cannot run the model"
    assert "out of data bounds" in caught.value.why


@pytest.mark.parametrize(
    ("inputs", "what", "why"),
    [
        pytest.param([], "the number of inputs is wrong", "expected 1 arrays, got 0", id="count"),
        pytest.param(
            [X.T.copy()], "input 0 does not fit the model", "expected float32[2, 3], got float32[3, 2]", id="shape"
        ),
        pytest.param(
            [X.astype(np.int8)], "input 0 does not fit the model", "expected float32[2, 3], got int8[2, 3]", id="dtype"
        ),
        pytest.param([X[0]], "input 0 does not fit the model", "expected float32[2, 3], got float32[3]", id="rank"),
    ],
)
def test_inputs_that_do_not_fit(inputs: list[np.ndarray], what: str, why: str) -> None:
    for run in (
        lambda: OnnxRuntimeEngine(chain()).run(inputs),
        lambda: run_isolated(chain(), [inputs], source_format="onnx"),
    ):
        with pytest.raises(EmitcError) as caught:
            run()
        assert type(caught.value) is EmitcError
        assert (caught.value.what, str(caught.value.where), caught.value.why) == (what, "--vectors", why)


def test_a_missing_package_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(EmitcError) as caught:
        engine_for(chain(), "auto", source_format="onnx")
    assert str(caught.value) == (
        "error: the golden engine onnxruntime is not installed\n"
        "  at:    --reference\n"
        "  why:   importing onnxruntime failed: import of onnxruntime halted; None in sys.modules\n"
        '  try:   in a checkout of emitc: pip install -e ".[verify]"; or --reference numpy, which needs no engine'
    )

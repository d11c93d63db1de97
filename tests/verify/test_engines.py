"""emitc.verify.engines.run: the engines give the stored golden vectors, and none of their failures reaches the caller raw."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from emitc.errors import CannotCompile, EmitcError
from emitc.verify.engines import run as golden
from emitc.verify.engines.run import EngineRefused, LiteRtEngine, TflmEngine, engine_for, run_isolated
from emitc.writers.tflite import ModelSpec, OperatorSpec, SubgraphSpec, TensorSpec, write_tflite

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")
pytest.importorskip("ai_edge_litert", reason="the extra emitc[verify] is not installed")

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "models"

# (model, engine, stateful: the cases are one sequence from a fresh interpreter)
CORPUS_CASES = [
    pytest.param("hello_world_int8", "tflm", False, id="hello_world_int8"),
    pytest.param("kws_ref_int8", "tflm", False, id="kws_ref_int8"),
    pytest.param("person_detect_int8", "tflm", False, id="person_detect_int8"),
    pytest.param("ad01_int8", "tflm", False, id="ad01_int8"),
    pytest.param("simple_add_int8", "tflm", False, id="simple_add_int8"),
    pytest.param("mnist_fc_int16x8", "tflm", False, id="mnist_fc_int16x8"),
    pytest.param("catdog_int8_floatio", "tflm", False, id="catdog_int8_floatio"),
    pytest.param("magic_wand_float", "tflm", False, id="magic_wand_float"),
    pytest.param("mww_hey_jarvis_v2", "tflm", True, id="mww_hey_jarvis_v2"),
    pytest.param("audio_preprocessor_int8", "tflm", True, id="audio_preprocessor_int8"),
    pytest.param("split_concat_uint8", "litert", False, id="split_concat_uint8"),
    pytest.param("detection_postprocess_uint8", "litert", False, id="detection_postprocess_uint8"),
]


def corpus_model(name: str) -> tuple[bytes, list[list[np.ndarray]], list[list[np.ndarray]]]:
    """Model bytes, inputs and golden outputs of each case; skips where the corpus is not next to the checkout."""
    path = CORPUS / "tflite" / f"{name}.tflite"
    if not path.is_file():
        pytest.skip("the model corpus ../shared/models is not next to the checkout")
    with np.load(CORPUS / "vectors" / "tflite" / f"{name}.npz") as file:
        arrays = {key: file[key] for key in file.files}
    count = sum(key.startswith("in0_") for key in arrays)
    return path.read_bytes(), _columns(arrays, "in", count), _columns(arrays, "out", count)


def _columns(arrays: dict[str, np.ndarray], prefix: str, count: int) -> list[list[np.ndarray]]:
    width = sum(key.startswith(prefix) and key.endswith("_0") for key in arrays)
    return [[arrays[f"{prefix}{i}_{k}"] for i in range(width)] for k in range(count)]


def add_model(opcode: str = "ADD", dtype: str = "float32") -> bytes:
    """z = (x + y) + y on [2, 3]; tensors 0 x, 1 y, 2 x + y, 3 z."""
    quantization = () if dtype == "float32" else (0.5,)
    tensors = tuple(TensorSpec(name, dtype, (2, 3), scales=quantization) for name in ("x", "y", "sum", "z"))
    operators = (OperatorSpec(opcode, (0, 1), (2,)), OperatorSpec(opcode, (2, 1), (3,)))
    return write_tflite(ModelSpec(tensors, operators, (0, 1), (3,)))


def counter_model() -> bytes:
    """y = state; state = state + x, on a resource variable of float32 [1] that CALL_ONCE sets to 0."""
    handle = {"container": "", "shared_name": "state"}
    init = SubgraphSpec(
        tensors=(TensorSpec("h", "resource", ()), TensorSpec("zero", "float32", (1,), b"\0\0\0\0")),
        operators=(OperatorSpec("VAR_HANDLE", (), (0,), handle), OperatorSpec("ASSIGN_VARIABLE", (0, 1), ())),
        inputs=(),
        outputs=(),
    )
    tensors = (
        TensorSpec("x", "float32", (1,)),
        TensorSpec("h", "resource", ()),
        TensorSpec("state", "float32", (1,)),
        TensorSpec("next", "float32", (1,)),
    )
    operators = (
        OperatorSpec("CALL_ONCE", (), (), {"init_subgraph_index": 1}),
        OperatorSpec("VAR_HANDLE", (), (1,), handle),
        OperatorSpec("READ_VARIABLE", (1,), (2,)),
        OperatorSpec("ADD", (2, 0), (3,)),
        OperatorSpec("ASSIGN_VARIABLE", (1, 3), ()),
    )
    return write_tflite(ModelSpec(tensors, operators, (0,), (2,), subgraphs=(init,)))


def crashing_model() -> bytes:
    """A model whose operator names a tensor far outside the subgraph; tflite_micro reads there without a check."""
    tensors = (TensorSpec("x", "float32", (1,)), TensorSpec("y", "float32", (1,)))
    return write_tflite(ModelSpec(tensors, (OperatorSpec("RELU", (1 << 30,), (1,)),), (0,), (1,)))


def assert_equal(actual: Sequence[np.ndarray], expected: Sequence[np.ndarray]) -> None:
    assert [(a.dtype, a.shape) for a in actual] == [(e.dtype, e.shape) for e in expected]
    assert all(a.tobytes() == e.tobytes() for a, e in zip(actual, expected, strict=True))


@pytest.mark.parametrize(("name", "engine", "stateful"), CORPUS_CASES)
def test_corpus_vectors(name: str, engine: str, stateful: bool) -> None:
    model, inputs, outputs = corpus_model(name)
    run = run_isolated(model, inputs, resets=() if stateful else range(1, len(inputs)))
    assert run.engine == engine
    for actual, expected in zip(run.outputs, outputs, strict=True):
        assert_equal(actual, expected)


@pytest.mark.parametrize("name", ["kws_ref_int8", "mww_hey_jarvis_v2"])
def test_preserved_tensors_give_the_same_outputs(name: str) -> None:
    model, inputs, outputs = corpus_model(name)
    engine = TflmEngine(model, preserve=True)
    for case, expected in zip(inputs, outputs, strict=True):
        assert_equal(engine.run(case), expected)
    values = {array.tobytes() for array in engine.tensors().values()}
    assert inputs[-1][0].tobytes() in values
    assert outputs[-1][0].tobytes() in values


@pytest.mark.parametrize("kind", [TflmEngine, LiteRtEngine])
def test_written_model(kind: type[TflmEngine] | type[LiteRtEngine]) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    y = np.full((2, 3), 0.5, np.float32)
    engine = kind(add_model(), preserve=True)
    assert engine.tensors() == {}
    assert engine.input_types() == [(np.dtype(np.float32), (2, 3))] * 2
    outputs = engine.run([x, y])
    assert_equal(outputs, [x + 1])
    tensors = engine.tensors()
    assert_equal([tensors[i] for i in range(4)], [x, y, x + y, x + 1])
    # Copies: a later run changes nothing that was handed out.
    engine.run([y, y])
    assert_equal([tensors[3], outputs[0]], [x + 1, x + 1])


@pytest.mark.parametrize("kind", [TflmEngine, LiteRtEngine])
def test_without_preserve_there_are_no_tensors(kind: type[TflmEngine] | type[LiteRtEngine]) -> None:
    engine = kind(add_model())
    engine.run([np.zeros((2, 3), np.float32)] * 2)
    assert engine.tensors() == {}


@pytest.mark.parametrize("kind", [TflmEngine, LiteRtEngine])
def test_state_lasts_until_reset(kind: type[TflmEngine] | type[LiteRtEngine]) -> None:
    engine = kind(counter_model(), preserve=True)
    two = np.array([2], np.float32)
    seen = [float(engine.run([two])[0][0]) for _ in range(3)]
    assert sorted(engine.tensors())[:3] == [0, 2, 3]
    engine.reset()
    assert [*seen, float(engine.run([two])[0][0])] == [0.0, 2.0, 4.0, 0.0]


def test_isolated_state_lasts_unless_it_is_reset() -> None:
    cases = [[np.array([2], np.float32)]] * 3
    kept = run_isolated(counter_model(), cases, engine="tflm")
    fresh = run_isolated(counter_model(), cases, engine="tflm", resets=range(1, len(cases)))
    assert [float(outputs[0][0]) for outputs in kept.outputs] == [0.0, 2.0, 4.0]
    assert [float(outputs[0][0]) for outputs in fresh.outputs] == [0.0, 0.0, 0.0]


def test_isolated_run_equals_the_run_in_process() -> None:
    rng = np.random.default_rng(5)
    cases = [[rng.standard_normal((2, 3)).astype(np.float32) for _ in range(2)] for _ in range(11)]
    engine = TflmEngine(add_model(), preserve=True)
    isolated = run_isolated(add_model(), cases, preserve=True)
    assert isolated.engine == "tflm"
    for case, outputs, tensors in zip(cases, isolated.outputs, isolated.tensors, strict=True):
        assert_equal(outputs, engine.run(case))
        assert sorted(tensors) == [0, 1, 2, 3]
        assert_equal([tensors[i] for i in range(4)], [engine.tensors()[i] for i in range(4)])


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
def test_auto_is_the_golden_engine(dtype: str) -> None:
    engine = engine_for(add_model(dtype=dtype), "auto")
    assert engine.name == {"float32": "tflm", "uint8": "litert"}[dtype]


@pytest.mark.parametrize("name", ["tflm", "litert"])
def test_named_engine(name: golden.EngineName) -> None:
    assert engine_for(add_model(), name).name == name


def test_refusal_carries_the_interpreters_reason() -> None:
    with pytest.raises(EngineRefused) as caught:
        engine_for(add_model("POW"), "tflm")
    assert isinstance(caught.value, CannotCompile)
    assert caught.value.what == "the golden engine cannot load the model"
    assert str(caught.value.where) == "--reference tflm"
    assert "Didn't find op for builtin opcode 'POW'" in caught.value.why


def test_refusal_during_the_run() -> None:
    engine = TflmEngine(add_model(dtype="uint8"))
    with pytest.raises(EngineRefused) as caught:
        engine.run([np.zeros((2, 3), np.uint8)] * 2)
    assert caught.value.what == "the golden engine cannot run the model"
    assert "Node ADD (number 0) failed to invoke with status 1" in caught.value.why


def test_refusal_names_every_engines_reason() -> None:
    with pytest.raises(EngineRefused) as caught:
        engine_for(b"not a model", "auto")
    assert caught.value.what == "no golden engine runs this model"
    assert "tflm: " in caught.value.why
    assert "litert: ValueError: The model is not a valid Flatbuffer buffer" in caught.value.why


def test_refusal_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(EngineRefused):
        TflmEngine(add_model("POW"))
    assert capfd.readouterr() == ("", "")


def test_refusal_comes_back_from_the_child() -> None:
    with pytest.raises(EngineRefused) as caught:
        run_isolated(add_model("POW"), [], engine="tflm")
    assert "Didn't find op for builtin opcode 'POW'" in caught.value.why


def test_crash_becomes_an_error() -> None:
    x = np.zeros(1, np.float32)
    with pytest.raises(EngineRefused) as caught:
        run_isolated(crashing_model(), [[x]], engine="tflm")
    assert caught.value.what == "the golden engine crashes on this model"
    assert str(caught.value.where) == "--reference tflm"
    assert "its process ended with SIG" in caught.value.why


def test_timeout_becomes_an_error() -> None:
    with pytest.raises(EngineRefused) as caught:
        run_isolated(add_model(), [], engine="litert", timeout_seconds=0.001)
    assert str(caught.value) == (
        "error: the golden engine does not finish\n"
        "  at:    --reference litert\n"
        "  why:   0 runs took longer than 0.001 s and were ended\n"
        "  try:   use fewer samples, or choose another engine with --reference tflm, litert or numpy"
    )


def test_bug_in_the_child_is_no_error_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(golden, "_CHILD", "raise LookupError('inside')")
    with pytest.raises(RuntimeError, match="LookupError: inside"):
        run_isolated(add_model(), [])


@pytest.mark.parametrize(
    ("inputs", "what", "why"),
    [
        pytest.param(
            [np.zeros((2, 3), np.float32)], "the number of inputs is wrong", "expected 2 arrays, got 1", id="count"
        ),
        pytest.param(
            [np.zeros((2, 3), np.float32), np.zeros((3, 2), np.float32)],
            "input 1 does not fit the model",
            "expected float32[2, 3], got float32[3, 2]",
            id="shape",
        ),
        pytest.param(
            [np.zeros((2, 3), np.int8), np.zeros((2, 3), np.float32)],
            "input 0 does not fit the model",
            "expected float32[2, 3], got int8[2, 3]",
            id="dtype",
        ),
    ],
)
@pytest.mark.parametrize("engine", ["tflm", "litert", "child"])
def test_inputs_that_do_not_fit(engine: str, inputs: list[np.ndarray], what: str, why: str) -> None:
    runs: dict[str, Callable[[], object]] = {
        "tflm": lambda: TflmEngine(add_model()).run(inputs),
        "litert": lambda: LiteRtEngine(add_model()).run(inputs),
        "child": lambda: run_isolated(add_model(), [inputs]),
    }
    with pytest.raises(EmitcError) as caught:
        runs[engine]()
    assert type(caught.value) is EmitcError
    assert (caught.value.what, str(caught.value.where), caught.value.why) == (what, "--vectors", why)


@pytest.mark.parametrize(
    ("name", "module", "package"),
    [("tflm", "tflite_micro", "tflite-micro"), ("litert", "ai_edge_litert.interpreter", "ai-edge-litert")],
)
def test_missing_package_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, name: golden.EngineName, module: str, package: str
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(EmitcError) as caught:
        engine_for(add_model(), name)
    assert str(caught.value) == (
        f"error: the golden engine {package} is not installed\n"
        "  at:    --reference\n"
        f"  why:   importing {module} failed: import of {module} halted; None in sys.modules\n"
        '  try:   in a checkout of emitc: pip install -e ".[verify]"; or --reference numpy, which needs no engine'
    )
    assert caught.value.exit_code == 2


def test_auto_does_not_replace_a_missing_engine_silently(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tflite_micro", None)
    with pytest.raises(EmitcError, match="tflite-micro is not installed"):
        engine_for(add_model(), "auto")


def test_child_does_not_import_from_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit(9)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", os.fspath(tmp_path))])
    assert run_isolated(add_model(), [], engine="tflm").engine == "tflm"

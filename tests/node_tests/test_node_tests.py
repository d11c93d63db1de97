"""The committed verdicts on ONNX's node tests: complete, true for a fixed sample; and the tool sees what is wrong."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from bench import node_tests
from bench.node_tests import Case, Verdict
from emitc.compiler import compile_model
from emitc.verify.build import HostModel, build_shared
from emitc.verify.engines.run import OnnxRuntimeEngine
from emitc.verify.golden_run import interface_of

VERSION, _ROWS = node_tests.read_verdicts(node_tests.JSON_FILE)
COMMITTED = {verdict.case: verdict for verdict in _ROWS}
BATCHES = {
    f"{names[0]}..{names[-1]}": names for names in (list(COMMITTED)[i : i + 20] for i in range(0, len(COMMITTED), 20))
}
"""The committed cases, as many at once as one library takes, by the first and the last."""

QUANTIZATION = (
    "convinteger_with_padding", "convinteger_without_padding", "dequantizelinear", "dequantizelinear_axis",
    "dequantizelinear_blocked", "dequantizelinear_e4m3fn", "dequantizelinear_e4m3fn_float16",
    "dequantizelinear_e4m3fn_zero_point", "dequantizelinear_e5m2", "dequantizelinear_float4e2m1", "dequantizelinear_int16",
    "dequantizelinear_int2", "dequantizelinear_int4", "dequantizelinear_uint16", "dequantizelinear_uint2",
    "dequantizelinear_uint4", "dynamicquantizelinear", "dynamicquantizelinear_expanded",
    "dynamicquantizelinear_max_adjusted", "dynamicquantizelinear_max_adjusted_expanded",
    "dynamicquantizelinear_min_adjusted", "dynamicquantizelinear_min_adjusted_expanded", "matmulinteger", "qlinearconv",
    "qlinearmatmul_2D_int8_float16", "qlinearmatmul_2D_int8_float32", "qlinearmatmul_2D_uint8_float16",
    "qlinearmatmul_2D_uint8_float32", "qlinearmatmul_3D_int8_float16", "qlinearmatmul_3D_int8_float32",
    "qlinearmatmul_3D_uint8_float16", "qlinearmatmul_3D_uint8_float32", "quantizelinear", "quantizelinear_axis",
    "quantizelinear_blocked_asymmetric", "quantizelinear_blocked_symmetric", "quantizelinear_e4m3fn", "quantizelinear_e5m2",
    "quantizelinear_float4e2m1", "quantizelinear_int16", "quantizelinear_int2", "quantizelinear_int4",
    "quantizelinear_uint16", "quantizelinear_uint2", "quantizelinear_uint4",
)  # fmt: skip
"""All cases about quantization: every element type, scales constant, computed and per block."""
DISPUTED = tuple(node_tests.KNOWN)


def test_nothing_is_wrong_and_nothing_crashes() -> None:
    assert [v.case for v in COMMITTED.values() if v.verdict in ("wrong", "crashed")] == []
    assert {v.verdict for v in COMMITTED.values()} <= set(node_tests.VERDICTS)


def test_every_case_without_code_says_why_and_every_passed_one_was_compared() -> None:
    for verdict in COMMITTED.values():
        assert bool(verdict.reasons) == (verdict.verdict != "passed"), verdict.case
        assert verdict.elements > 0 or verdict.verdict != "passed", verdict.case


@pytest.mark.parametrize("name", QUANTIZATION)
def test_all_quantization_cases_pass(name: str) -> None:
    assert COMMITTED[name].verdict == "passed"
    assert COMMITTED[name].exact


def test_there_are_no_other_quantization_cases() -> None:
    assert sorted(v.case for v in COMMITTED.values() if v.exact) == sorted(QUANTIZATION)
    assert len(QUANTIZATION) == 45


@pytest.mark.parametrize("operator", ["QuantizeLinear", "DequantizeLinear"])
def test_they_pass_with_constant_scales_too(operator: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which take other kernels than the computed ones of the committed verdicts."""
    names = [name for name in QUANTIZATION if COMMITTED[name].operator == operator and name in node_tests.cases()]
    monkeypatch.setattr(node_tests, "freezings", lambda case: [tuple(case.inputs)[1:]])
    verdicts = node_tests.judged(names)
    assert [v.case for v in verdicts if v.verdict != "passed"] == []
    assert all(v.frozen for v in verdicts) and len(verdicts) > 10


@pytest.mark.parametrize("name", DISPUTED)
def test_disputed_cases_have_the_outputs_of_the_engine(name: str, tmp_path: Path) -> None:
    """An older opset of the same model, since the engine does not know the case's own."""
    assert COMMITTED[name].verdict == "disputed"
    if name not in node_tests.cases():
        return  # another version of onnx brings other cases
    case = node_tests.cases()[name]
    model = onnx.ModelProto.FromString(node_tests.frozen_model(case, COMMITTED[name].frozen))
    model.opset_import[0].version, model.ir_version = 19, 9
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    compiled = compile_model(tmp_path / "model.onnx", name="resize")
    inputs = [case.inputs[graph_input.name] for graph_input in model.graph.input]
    (expected,) = OnnxRuntimeEngine(model.SerializeToString()).run(inputs)
    compiled.write(tmp_path / "package")
    library = build_shared(tmp_path / "package", tmp_path, trace=False)
    (found,) = HostModel(library, interface_of(compiled)).run(inputs)
    assert np.isclose(found, expected, rtol=case.rtol, atol=case.atol).all()
    assert not np.isclose(found, case.outputs[0], rtol=case.rtol, atol=case.atol).all()


def test_the_text_is_that_of_the_rows() -> None:
    rows = list(COMMITTED.values())
    assert node_tests.TEXT_FILE.read_text(encoding="utf-8") == node_tests.markdown_text(rows, VERSION)
    assert node_tests.JSON_FILE.read_text(encoding="utf-8") == node_tests.json_text(rows, VERSION)


def test_the_file_knows_exactly_the_cases_that_are_run() -> None:
    """Of the version of onnx that it was written with; another one brings other cases."""
    if onnx.__version__ == VERSION:
        assert list(COMMITTED) == list(node_tests.cases())
    else:
        assert len(set(COMMITTED) & set(node_tests.cases())) > len(COMMITTED) // 2


@pytest.mark.sweep(keep=3)
@pytest.mark.parametrize("batch", BATCHES)
def test_the_committed_verdicts_are_true(batch: str) -> None:
    """A sample of the cases; --full takes all of them. In another version of onnx a case may be another one."""
    names = [name for name in BATCHES[batch] if name in node_tests.cases()]
    found = node_tests.judged(names)
    if onnx.__version__ == VERSION:
        assert node_tests.changes(found, list(COMMITTED.values())) == []
    assert [v for v in found if v.verdict in ("wrong", "crashed")] == []


# ---- the tool ----


def add_case(**changes: object) -> Case:
    """y = x + w on [2, 3]."""
    x, w = np.arange(6, dtype=np.float32).reshape(2, 3), np.array([1, 2, 4], np.float32)
    info = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
        for name, shape in (("x", (2, 3)), ("w", (3,)), ("y", (2, 3)))
    ]
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", info[:2], info[2:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=3)
    return replace(Case("add", model, {"x": x, "w": w}, (x + w,), 1e-3, 1e-7), **changes)  # type: ignore[arg-type]


def quantize_case(output: Sequence[int] = (-1, 4, 127)) -> Case:
    """y = rint(x / 0.5) on [3], to int8."""
    scale, x = np.array(0.5, np.float32), np.array([-0.5, 2.1, 1e9], np.float32)
    info = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [3]),
        helper.make_tensor_value_info("s", TensorProto.FLOAT, []),
        helper.make_tensor_value_info("z", TensorProto.INT8, []),
        helper.make_tensor_value_info("y", TensorProto.INT8, [3]),
    ]
    graph = helper.make_graph([helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])], "g", info[:3], info[3:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    inputs = {"x": x, "s": scale, "z": np.array(0, np.int8)}
    return Case("quantize", model, inputs, (np.array(output, np.int8),), 1e-3, 1e-7)


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> dict[str, Case]:
    """The only cases that the tool knows."""
    found: dict[str, Case] = {"quantize": quantize_case()}
    monkeypatch.setattr(node_tests, "cases", lambda: found)
    return found


def test_inputs_are_frozen_from_the_last_to_the_second() -> None:
    inputs = {"x": np.zeros((2, 2)), "w": np.zeros((2, 2)), "s": np.zeros(1), "z": np.zeros(())}
    assert list(node_tests.freezings(replace(add_case(), inputs=inputs))) == [
        (), ("z",), ("s", "z"), ("w", "s", "z"),
    ]  # fmt: skip
    inputs = {"x": np.zeros((2, 2)), "s": np.zeros(1), "w": np.zeros((2, 2))}
    assert list(node_tests.freezings(replace(add_case(), inputs=inputs))) == [(), ("w",), ("s",), ("s", "w")]


def test_frozen_inputs_become_constants() -> None:
    case = add_case()
    model = onnx.ModelProto.FromString(node_tests.frozen_model(case, ("w",)))
    onnx.checker.check_model(model)
    assert [value.name for value in model.graph.input] == ["x"]
    assert [t.name for t in model.graph.initializer] == ["w"]
    assert [value.name for value in case.model.graph.input] == ["x", "w"], "the case itself is left alone"


def test_selection() -> None:
    assert node_tests.wanted(frozenset({"Conv"}))
    assert node_tests.wanted(frozenset({"QuantizeLinear", "NoSuchOperator"}))
    assert not node_tests.wanted(frozenset({"Conv", "Bernoulli"}))
    assert node_tests.wanted(frozenset({"Conv", "Bernoulli"}), ["Bernoulli"])


def test_a_right_case_passes(known: dict[str, Case]) -> None:
    (verdict,) = node_tests.judged(["quantize"])
    assert verdict == Verdict("quantize", "QuantizeLinear", True, "passed", (), (), 3)


def test_a_wrong_output_is_seen_in_both(known: dict[str, Case]) -> None:
    known["quantize"] = quantize_case((-1, 5, 127))
    (verdict,) = node_tests.judged(["quantize"])
    assert verdict.verdict == "wrong"
    assert verdict.reasons == (
        "numpy reference, output 0: 1 of 3 elements differ, by 1 at most",
        "C, output 0: 1 of 3 elements differ, by 1 at most",
    )


def test_a_known_contradiction_is_disputed(known: dict[str, Case], monkeypatch: pytest.MonkeyPatch) -> None:
    """Only where the outputs do differ."""
    monkeypatch.setattr(node_tests, "KNOWN", {"quantize": "it says so"})
    assert [v.verdict for v in node_tests.judged(["quantize"])] == ["passed"]
    known["quantize"] = quantize_case((-1, 5, 127))
    (verdict,) = node_tests.judged(["quantize"])
    assert (verdict.verdict, verdict.reasons[0], len(verdict.reasons)) == ("disputed", "it says so", 3)


@pytest.mark.parametrize(
    ("value", "dtype", "numbers"),
    [
        (np.array([[-8, 7]], ml_dtypes.int4), "int8", [[-8, 7]]),
        (np.array([[-2], [1]], ml_dtypes.int2), "int8", [[-2], [1]]),
        (np.array([15], ml_dtypes.uint4), "uint8", [15]),
        (np.array([3], ml_dtypes.uint2), "uint8", [3]),
        (np.array([-0.0, 448], ml_dtypes.float8_e4m3fn), "uint8", [0x80, 0x7E]),
        (np.array([1.0, -1.0], ml_dtypes.float8_e5m2), "uint8", [0x3C, 0xBC]),
        (np.array([-6], ml_dtypes.float4_e2m1fn), "uint8", [15]),
        (np.array(-2, np.float16), "uint16", 0xC000),
        (np.array([-2], np.float32), "float32", [-2]),
        (np.array([300], np.uint16), "uint16", [300]),
    ],
)
def test_values_keep_their_bits_at_the_interface(value: np.ndarray, dtype: str, numbers: object) -> None:  # type: ignore[type-arg]
    found = node_tests.as_stored(value)
    assert (found.dtype, found.tolist()) == (dtype, numbers)


def test_another_number_of_outputs_is_wrong(known: dict[str, Case]) -> None:
    known["quantize"] = replace(known["quantize"], outputs=known["quantize"].outputs * 2)
    (verdict,) = node_tests.judged(["quantize"])
    assert verdict.reasons == ("numpy reference: 1 outputs instead of 2", "C: 1 outputs instead of 2")


def test_comparison() -> None:
    case, exact = add_case(), quantize_case()
    a = np.array([1.0, np.nan, np.inf], np.float32)
    assert node_tests.unequal(a, a.copy(), case) == ""
    near = a * np.float32(1.0005)
    assert node_tests.unequal(near, a, case) == ""
    assert "1 of 3 elements differ" in node_tests.unequal(near, a, exact)
    assert "1 of 3 elements differ" in node_tests.unequal(a * np.array([1.01, 1, 1], np.float32), a, case)
    assert "1 of 3 elements differ" in node_tests.unequal(np.array([1, 5, np.inf], np.float32), a, case)
    assert "1 of 1 elements differ, by 1 at most" in node_tests.unequal(np.array([1000]), np.array([1001]), case)
    assert node_tests.unequal(a[None], a, case) == "float32[1, 3] instead of float32[3]"
    assert node_tests.unequal(a.astype(np.float64), a, case) == "float64[3] instead of float32[3]"


def test_no_code_is_unsupported_and_a_bad_model_is_refused(known: dict[str, Case]) -> None:
    def renamed(case: Case, op_type: str) -> Case:
        model = onnx.ModelProto.FromString(case.model.SerializeToString())
        model.graph.node[0].op_type = op_type
        return replace(case, name=op_type, model=model)

    one_input = add_case()
    del one_input.model.graph.node[0].input[1:]
    known["none"] = renamed(one_input, "Bernoulli")
    known["bad"] = renamed(add_case(), "Relu")
    unsupported, refused = node_tests.judged(["none", "bad"])
    assert (unsupported.verdict, refused.verdict) == ("unsupported", "refused")
    assert unsupported.reasons and refused.reasons


def test_an_exception_in_the_compiler_is_a_crash(known: dict[str, Case], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise AssertionError("inside")

    monkeypatch.setattr(node_tests, "compile_model", broken)
    (verdict,) = node_tests.judged(["quantize"])
    assert (verdict.verdict, verdict.reasons) == ("crashed", ("compiler: AssertionError: inside",))


def test_c_that_does_not_build_is_a_crash_of_its_case_alone(
    known: dict[str, Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    known["broken"] = replace(known["quantize"], name="broken")
    real = node_tests.compile_model

    def changed(path: Path, name: str) -> object:
        compiled = real(path, name=name)
        if name == "case1":
            compiled.files["case1.c"] += b"nonsense"
        return compiled

    monkeypatch.setattr(node_tests, "compile_model", changed)
    passed, crashed = node_tests.judged(["quantize", "broken"])
    assert (passed.verdict, crashed.verdict) == ("passed", "crashed")
    assert "nonsense" in crashed.reasons[0]


DYING = """
import os
from bench import node_tests
real = node_tests.run_case
node_tests.run_case = lambda case, *rest: os._exit(7) if case.name == "relu" else real(case, *rest)
for verdict in node_tests.all_judged(["abs", "relu"], 1):
    print(verdict.case, verdict.verdict, *verdict.reasons)
"""


def test_a_case_that_ends_its_process_takes_no_other_with_it() -> None:
    """In a process of its own, which forks without threads about."""
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", DYING], cwd=root, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["abs passed", "relu crashed run: its process ended"], done.stderr


def test_the_command_writes_checks_and_notices_a_change(
    known: dict[str, Case], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(node_tests, "JSON_FILE", tmp_path / "v.json")
    monkeypatch.setattr(node_tests, "TEXT_FILE", tmp_path / "v.md")
    assert node_tests.main(["--jobs", "0"]) == 1, "there is nothing to compare with"
    assert node_tests.main(["--update", "--jobs", "0"]) == 0
    assert "1 cases: 1 passed" in (tmp_path / "v.md").read_text(encoding="utf-8")
    version, rows = node_tests.read_verdicts(tmp_path / "v.json")
    assert (version, [v.case for v in rows]) == (onnx.__version__, ["quantize"])
    capsys.readouterr()
    assert node_tests.main(["--sample", "5", "--seed", "3", "--jobs", "0"]) == 0
    assert "as in the committed file" in capsys.readouterr().out
    text = (tmp_path / "v.json").read_text(encoding="utf-8")
    (tmp_path / "v.json").write_text(text.replace("passed", "unsupported"), encoding="utf-8")
    assert node_tests.main(["--case", "test_quantize", "--jobs", "0"]) == 1
    assert "quantize: Verdict(" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [["--case", "no_such_case"], ["--update", "--sample", "3"]])
def test_what_the_command_does_not_know_is_refused(arguments: list[str], known: dict[str, Case]) -> None:
    with pytest.raises(SystemExit) as caught:
        node_tests.main(arguments)
    assert caught.value.code == 2


def test_a_wrong_case_fails_the_command(
    known: dict[str, Case], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_tests, "JSON_FILE", tmp_path / "v.json")
    monkeypatch.setattr(node_tests, "TEXT_FILE", tmp_path / "v.md")
    known["quantize"] = quantize_case((0, 0, 0))
    assert node_tests.main(["--update", "--jobs", "0"]) == 1
    assert node_tests.main(["--jobs", "0"]) == 1, "a wrong case fails even where the file says so"

"""What a newcomer meets in the first hour: which core, which engine, which arrays, several boards, short names, hints."""

from __future__ import annotations

import json
import re
import shutil
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import emitc as library
from emitc.backends.portable import backend as portable_backend
from emitc.boards import verify
from emitc.boards.result import LayerCount, RunResult
from emitc.calibrate import calibrate
from emitc.cli import main as cli_module
from emitc.compiler import compile_model
from emitc.errors import EmitcError
from emitc.explore import pareto
from emitc.report import inspection
from emitc.report.cost import partition_text
from emitc.report.run import run_text
from emitc.schedule.search import TECHNIQUES
from emitc.verify import golden_run
from emitc.verify.engines import run as golden
from emitc.verify.reference import random_samples, run_reference
from emitc.writers.tflite import OperatorSpec, write_tflite
from tests.support.cli_call import Emitc
from tests.support.models.tiny import Net

MODELS = Path(__file__).resolve().parents[2] / "examples" / "models"
DIGITS, SPOTTER = MODELS / "digits_int8.tflite", MODELS / "kws_ref_int8.tflite"


# ---- which core ----


def test_without_a_target_compile_names_faster_ones(emitc: Emitc) -> None:
    text = emitc("compile", DIGITS, "-o", "out").out
    assert "  target      generic32: portable C for any core" in text
    named = dict(re.findall(r"([a-z0-9-]+) (\d+(?:\.\d)?) times", text))
    found = emitc("compile", DIGITS, "-o", "out", "--json").json["faster_targets"]
    factors = {each["target"]: each["estimated_factor"] for each in found}
    assert list(factors.values()) == sorted(factors.values(), reverse=True)
    assert {"cortex-m4f", "cortex-m55"} <= set(named) <= set(factors)
    assert factors["cortex-m55"] > factors["cortex-m4f"] > 1.5
    assert "generic32" not in factors and "host" not in factors
    assert all(float(shown) == pytest.approx(factors[name], abs=0.51) for name, shown in named.items())


@pytest.mark.parametrize(
    "options", [("--target", "cortex-m4f"), ("--target", "generic32"), ("--board", "nucleo_f446re")], ids=" ".join
)
def test_with_a_target_it_says_nothing_of_others(options: tuple[str, str], emitc: Emitc) -> None:
    assert "  target " not in emitc("compile", DIGITS, "-o", "out", *options).out


def test_the_estimate_is_of_kernels_that_the_target_would_get(emitc: Emitc) -> None:
    """Without working memory's limits, the kernels that make the factor are those of a compilation for the target."""
    generic, own = compile_model(DIGITS), compile_model(DIGITS, target="cortex-m4f", ram_budget=1 << 20)
    (found,) = (each for each in generic.faster_targets() if each.name == "cortex-m4f")
    costs = [sum(a.cost for a in each.partition.assignments) for each in (generic, own)]
    assert found.factor == pytest.approx(portable_backend._COUNTED["cortex-m4f"] * costs[0] / costs[1], rel=0.02)
    assert own.faster_targets() == ()


@pytest.mark.board
@pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")), reason="needs the Arm tools and QEMU"
)
def test_the_estimate_is_near_what_is_counted(emitc: Emitc) -> None:
    """Of a network with convolutions, as those that the estimate was calibrated with."""
    options = ("--board", "qemu_m4", "--samples", 1, "--reference", "numpy", "--json")
    counted = [
        emitc("run", SPOTTER, *options, "--target", target).json["instructions"]
        for target in ("generic32", "cortex-m4f")
    ]
    (found,) = (each for each in compile_model(SPOTTER).faster_targets() if each.name == "cortex-m4f")
    assert found.factor == pytest.approx(counted[0] / counted[1], rel=0.1)


# ---- which arena ----


def test_an_arena_that_is_much_smaller_for_little_is_named(emitc: Emitc, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ("compile", DIGITS, "-o", "out", "--target", "cortex-m4f")
    assert emitc(*command, "--json").json["smaller_arena"] is None, "of a small arena a quarter matters to nobody"
    monkeypatch.setattr(pareto, "LEAST_ARENA", 1024)
    content = emitc(*command, "--json").json
    found = content["smaller_arena"]
    assert found["arena_bytes"] <= 0.75 * content["arena_bytes"] and 1 < found["estimated_cost"] <= 1.1
    budget = ("--ram-budget", found["arena_bytes"])
    shown = f"{found['arena_bytes']:,}".replace(",", " ")
    line = rf"^  smaller     an arena of {shown} B takes \+\d\.\d % cycles by estimate: {' '.join(map(str, budget))};"
    assert re.search(line, emitc(*command).out, re.M)
    budgeted = emitc(*command, *budget, "--json").json
    assert budgeted["arena_bytes"] == found["arena_bytes"] and budgeted["smaller_arena"] is None
    with monkeypatch.context() as dear:
        dear.setattr(pareto, "DEARER", 1.01)
        assert emitc(*command, "--json").json["smaller_arena"] is None
    assert emitc("compile", DIGITS, "-o", "out", "--board", "nucleo_f446re", "--json").json["smaller_arena"] is None


# ---- what is slow ----


def test_only_layers_that_count_are_called_slow(emitc: Emitc) -> None:
    """The softmax of ten numbers has no kernel for the core, and is no 1 % of the work."""
    text = emitc("compile", DIGITS, "-o", "out", "--target", "cortex-m4f").out
    assert "  kernels     " in text and "has a portable version only" not in text
    assert "SOFTMAX" not in text
    compiled = compile_model(DIGITS, target="cortex-m4f")
    refused = {
        a.op_type
        for a in compiled.partition.assignments
        if any("softmax has a portable" in why for _, why in a.refused)
    }
    assert refused == {"SOFTMAX"}, "the model shows nothing any more"


def test_a_loop_without_a_version_for_the_core_is_said_in_words(emitc: Emitc, tmp_path: Path) -> None:
    net = Net()
    x, y = net.activation("x", (1, 64, 100), 0.05), net.activation("y", (1, 64, 100), 1 / 256, -128)
    net.op("SOFTMAX", (x,), (y,), beta=1.0)
    (tmp_path / "wide.tflite").write_bytes(write_tflite(net.spec((x,), (y,))))
    text = emitc("compile", tmp_path / "wide.tflite", "-o", "out", "--target", "cortex-m4f").out
    slow = "op 0 SOFTMAX (100 % of the estimated cycles) has no fpu kernel, because softmax has a portable version only"
    assert f"  slow        {slow} (N0902)\n" in text


# ---- which engine ----


@pytest.fixture
def no_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without any golden engine."""
    real = golden.importlib.util.find_spec
    hidden = set(golden.MODULES.values())
    monkeypatch.setattr(golden.importlib.util, "find_spec", lambda name: None if name in hidden else real(name))
    monkeypatch.setattr(golden_run, "run_isolated", lambda *a, **k: pytest.fail("an engine was asked"))


@pytest.mark.usefixtures("no_engine")
def test_auto_is_numpy_where_no_engine_is_installed(emitc: Emitc) -> None:
    text = emitc("verify", DIGITS, "--samples", 2)
    assert text.code == 0, text.err
    assert "elements differ from numpy (2 inputs" in text.out
    assert (
        "  reference   tflite_micro and ai_edge_litert are not installed (in a checkout of emitc: pip install -e"
        ' ".[verify]"), so emitc\'s own numpy references decide (N1005)\n'
    ) in text.out
    content = emitc("verify", DIGITS, "--samples", 2, "--json").json
    assert (content["reference"], content["match"]) == ("numpy", True)
    why = 'tflite_micro and ai_edge_litert are not installed (in a checkout of emitc: pip install -e ".[verify]")'
    assert content["no_engine"] == {"operators": [], "why": why}
    assert "no_engine" not in emitc("verify", DIGITS, "--samples", 2, "--reference", "numpy", "--json").json


@pytest.mark.usefixtures("no_engine")
def test_a_dry_run_of_flash_needs_no_engine(emitc: Emitc) -> None:
    called = emitc("flash", DIGITS, "--board", "nucleo_f446re", "--dry-run", "-o", "project")
    assert called.code == 0, called.err
    assert verify.expected(compile_model(DIGITS), "auto", 1, 0)[0] == "numpy"


# ---- which outputs differ ----


def test_given_outputs_that_differ_are_not_the_engines(emitc: Emitc) -> None:
    graph = compile_model(DIGITS).graph
    arrays = {}
    for k, (value,) in enumerate(random_samples(graph, 3, 5)):
        arrays |= {f"in0_{k}": value, f"out0_{k}": run_reference(graph, [value])[graph.outputs[0]].copy()}
    arrays["out0_1"][0, 3] ^= 1
    np.savez("v.npz", **arrays)
    command = ("verify", DIGITS, "--samples", 0, "--vectors", "v.npz", "--reference", "numpy")
    text = emitc(*command)
    assert text.code == 1
    assert "  outputs     0 of 30 elements differ from numpy (3 inputs)\n" in text.out
    assert (
        "  given       1 of 30 elements differ from the outputs of --vectors (case 1, largest difference 1)\n"
        in text.out
    )
    content = emitc(*command, "--json").json
    assert (content["elements"], content["differing"], content["match"]) == (60, 1, False)
    assert (content["given_elements"], content["given_differing"], content["given_cases"]) == (30, 1, [1])


# ---- several boards ----


@pytest.mark.board
@pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")), reason="needs the Arm tools and QEMU"
)
def test_every_board_that_is_named_is_run(emitc: Emitc, tiny: Path) -> None:
    command = ("run", tiny / "spotter.tflite", "--samples", 1, "--reference", "numpy", "--workdir", "work", "--json")
    content = emitc(*command, "--board", "qemu_m4", "--board", "qemu_m3", "--board", "qemu_m4").json
    assert sorted(content) == ["match", "runs"] and content["match"] is True
    assert [run["board"] for run in content["runs"]] == ["qemu_m4", "qemu_m3"]
    assert {run["reference"] for run in content["runs"]} == {"numpy"}
    assert content["runs"][0]["instructions"] != content["runs"][1]["instructions"], "each for its own target"
    assert sorted(path.name for path in Path("work").iterdir()) == ["qemu_m3", "qemu_m4"]


def _result(board: str, match: bool) -> RunResult:
    layer = LayerCount(0, "ADD", "functional_1/Relu;functional_1/normalization/FusedBatchNorm", 10, 4)
    return RunResult(
        board=board, match=match, cases=1, differing_bytes=0, unit="instructions", count=10, counter="plugin", stack_bytes=1,
        flash_bytes=1, code_bytes=1, constant_bytes=1, model_flash_bytes=1, cases_bytes=1, ram_bytes=1, arena_bytes=1,
        layers=(layer,), reference="tflm",
    )  # fmt: skip


@pytest.mark.parametrize("fails", ["", "qemu_m4", "qemu_m7"])
def test_several_boards_are_one_object_and_one_verdict(
    fails: str, emitc: Emitc, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verify, "on_emulator", lambda compiled, board, **rest: _result(board, board != fails))
    boards = ("--board", "qemu_m4", "--board", "qemu_m7")
    called = emitc("run", DIGITS, *boards, "--json")
    assert called.code == (1 if fails else 0)
    assert called.json["match"] is not bool(fails)
    assert [(run["board"], run["match"]) for run in called.json["runs"]] == [
        ("qemu_m4", fails != "qemu_m4"), ("qemu_m7", fails != "qemu_m7")
    ]  # fmt: skip
    text = emitc("run", DIGITS, *boards).out
    assert [line.split()[2] for line in text.splitlines() if line.startswith("digits_int8")] == ["qemu_m4:", "qemu_m7:"]
    single = emitc("run", DIGITS, "--board", "qemu_m4", "--json").json
    assert single["board"] == "qemu_m4" and "runs" not in single
    assert emitc("run", DIGITS, "--board", "qemu_m4", "--board", "breadboard").code == 2


@pytest.mark.parametrize("command", [("compile", "-o", "out"), ("flash", "--dry-run")])
def test_where_one_board_is_taken_two_are_refused(command: tuple[str, ...], emitc: Emitc) -> None:
    refused = emitc(command[0], DIGITS, *command[1:], "--board", "nucleo_f446re", "--board", "pico")
    assert refused.code == 2
    assert "one board at a time, not nucleo_f446re and pico" in refused.err
    assert not Path("out").exists()


# ---- short names, short reports ----


def test_joined_names_are_cut_in_the_table_of_layers() -> None:
    text = run_text(compile_model(DIGITS), _result("qemu_m4", True))
    assert "functional_1/Relu;..." in text and "FusedBatchNorm" not in text
    assert re.search(r"^expected outputs of +tflm$", text, re.M)


def test_the_reason_column_is_there_where_it_says_something() -> None:
    found = compile_model(DIGITS).partition.to_json()
    assert "why" not in partition_text(found).splitlines()[2]
    found["nodes"][0]["reason"] = "cmsis-nn does not take it"
    lines = partition_text(found).splitlines()
    assert lines[2].endswith("why") and "cmsis-nn does not take it" in lines[4]


def test_operators_by_name(emitc: Emitc) -> None:
    everything = inspection.operator_list()["operators"]
    found = emitc("ops", "conv", "Softmax", "--json").json["operators"]
    assert found == [row for row in everything if re.search("conv|softmax", row["op"], re.IGNORECASE)]
    assert 5 < len(found) < len(everything)
    assert {row["format"] for row in emitc("ops", "ONNX", "--json").json["operators"]} == {"onnx"}
    refused = emitc("ops", "softmaxx")
    assert refused.code == 2 and "did you mean softmax?" in refused.err


def test_floats_have_no_scale_to_show(emitc: Emitc, tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "relu.onnx").write_bytes(model.SerializeToString())
    lines = emitc("inspect", "relu.onnx").out.splitlines()
    assert lines[1:3] == ["  input   x float32[1,4]", "  output  y float32[1,4]"]


def test_a_compiled_model_is_one_line() -> None:
    assert repr(library.compile_model(DIGITS)) == (
        "<Model digits_int8 for generic32: 7 layers, 68352 multiply-accumulates, 5985 bytes of constants, arena of 3104 bytes>"
    )
    assert repr(compile_model(DIGITS)).startswith("<Compiled digits_int8 for generic32: ")


def test_the_bar_counts(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(cli_module.sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    with cli_module._progress("proving") as progress:
        assert progress is not None
        progress(3, 12)
        time.sleep(0.25)
    shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", capsys.readouterr().err)
    assert re.search(r"proving .* 3/12 +25%", shown), shown


# ---- help ----


def test_options_stand_under_headings(emitc: Emitc) -> None:
    text = emitc("compile", "--help").out
    blocks = dict(re.findall(r"^(\w+):\n((?:  .*\n?)+)", text, re.M))
    assert list(blocks) == ["Options", "Kernels", "Memory", "Output", "Budget", "Model", "NPU"]
    flags = {heading: set(re.findall(r"^ +(?:-\w, )?(--[\w-]+)", block, re.M)) for heading, block in blocks.items()}
    assert flags["Memory"] == {
        "--ram-budget",
        "--flash-budget",
        "--input-rows",
        "--regions",
        "--place",
        "--stage-weights",
        "--load-ahead",
    }
    assert {"--target", "--kernels", "--kernel"} <= flags["Kernels"]
    assert {"--npu", "--npu-memory", "--fallback", "--ethosu-driver"} <= flags["NPU"]
    assert {"--output", "--package", "--split-weights", "--json"} <= flags["Output"]
    command = cli_module.cli.commands["compile"]
    every = {
        p.opts[-1] for p in command.get_params(SimpleNamespace(help_option_names=["--help"])) if p.opts[0][0] == "-"
    }  # type: ignore[arg-type]
    assert set().union(*flags.values()) | {"--help"} == every | {"--help"}


# ---- what quantize takes ----


def _arrays(path: Path, **arrays: Any) -> Path:
    np.savez(path, **{name: np.asarray(array, np.float32) for name, array in arrays.items()})
    return path


@pytest.mark.parametrize("batch", [(), (1,)], ids=["samples", "batches"])
def test_the_only_array_that_fits_is_taken(batch: tuple[int, ...], tmp_path: Path) -> None:
    values = np.arange(5 * 6, dtype=np.float32).reshape(5, *batch, 2, 3)
    path = _arrays(tmp_path / "c.npz", X=values, y=np.arange(5))
    samples = calibrate.read_calibration(path, {"image": (1, 2, 3)})
    assert [sample["image"].shape for sample in samples] == [(1, 2, 3)] * 5
    assert np.array_equal(np.concatenate([sample["image"] for sample in samples]), values.reshape(5, 2, 3))


@pytest.mark.parametrize(
    ("arrays", "inputs"),
    [
        pytest.param({"X": np.zeros((5, 2, 3)), "Z": np.zeros((4, 2, 3))}, {"image": (1, 2, 3)}, id="two that fit"),
        pytest.param({"X": np.zeros((5, 2, 3))}, {"a": (1, 2, 3), "b": (1, 2, 3)}, id="two inputs"),
        pytest.param({"X": np.zeros((5, 3, 3))}, {"image": (1, 2, 3)}, id="none that fits"),
    ],
)
def test_what_is_not_clear_names_what_was_found(
    arrays: dict[str, Any], inputs: dict[str, tuple[int, ...]], tmp_path: Path
) -> None:
    with pytest.raises(EmitcError) as refused:
        calibrate.read_calibration(_arrays(tmp_path / "c.npz", **arrays), inputs)
    held = ", ".join(f"{name}{list(array.shape)}" for name, array in arrays.items())
    wanted = ", ".join(f"{name}{list(shape)}" for name, shape in inputs.items())
    assert refused.value.why == f"it holds {held}; the inputs of the model are {wanted}"


# ---- hints ----


def test_a_flex_operator_says_how_to_convert_without_it(emitc: Emitc, tmp_path: Path) -> None:
    net = Net()
    x, y = net.activation("x", (1, 4), 0.05), net.activation("y", (1, 4), 0.05)
    net.operators.append(OperatorSpec("CUSTOM", (x,), (y,), custom_code="FlexErf"))
    (tmp_path / "flex.tflite").write_bytes(write_tflite(net.spec((x,), (y,))))
    refused = emitc("compile", "flex.tflite", "-o", "out")
    assert refused.code == 1
    assert "CUSTOM:FlexErf is not supported" in refused.err and "SELECT_TF_OPS has let through" in refused.err
    assert "try:   convert with supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS] only" in refused.err
    assert "--plugin" not in refused.err


def test_a_shape_that_depends_on_values_is_not_blamed_on_the_input(emitc: Emitc, tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("NonZero", ["x"], ["y"])], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])],
        [helper.make_tensor_value_info("y", TensorProto.INT64, [2, None])],
        [numpy_helper.from_array(np.zeros(1, np.float32), "unused")],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "nonzero.onnx").write_bytes(model.SerializeToString())
    refused = emitc("compile", "nonzero.onnx", "-o", "out", "--json")
    assert refused.code == 1
    (error,) = refused.json["error"]
    assert error["hint"] == "replace the operator: the arrays of the C have fixed sizes"
    assert "depends on their values" in error["why"]
    assert json.loads(emitc("inspect", "nonzero.onnx", "--json").out)["outputs"][0]["shape"] == [2, -1]


def test_the_help_names_every_memory_technique(emitc: Emitc) -> None:
    text = " ".join(emitc("compile", "--help").out.split())
    *first, last = TECHNIQUES
    assert f"memory techniques {', '.join(first)} and {last}." in text

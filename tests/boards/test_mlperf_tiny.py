"""A model as a benchmark of MLPerf Tiny: the runner's commands over a pseudo terminal, answered as its firmware answers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from emitc.boards import build
from emitc.boards.mlperf_tiny import BENCHMARKS, benchmark_named, write_mlperf_project
from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.errors import EmitcError
from emitc.target import boards, load_board
from emitc.verify.golden_run import golden_run
from emitc.writers.tflite import write_tflite
from tests.support.mlperf_runner import built, on_terminal
from tests.support.models.tiny import Net

REAL = [name for name in boards() if load_board(name).kind == "silicon"]
WARNINGS = (
    "-Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wcast-qual -Wcast-align=strict -Wundef"
    " -Wmissing-prototypes -Wstrict-prototypes -Wdouble-promotion -Wvla -Werror"
)
STRICT = (*WARNINGS.split(), "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
RUNNER = os.environ.get("MLPERF_TINY_RUNNER", "")


def autoencoder(path: Path) -> Path:
    """Twelve numbers through five to twelve."""
    net = Net(11)
    x = net.activation("features", (1, 12), 0.31, 7)
    code = net.activation("code", (1, 5), 0.4, -128)
    net.op("FULLY_CONNECTED", (x, net.weights("w", (5, 12), (0.011,)), net.bias("b", 5, (0.31 * 0.011,))), (code,),
           fused_activation_function="RELU")  # fmt: skip
    y = net.activation("again", (1, 12), 0.27, -3)
    net.op("FULLY_CONNECTED", (code, net.weights("v", (12, 5), (0.02,)), net.bias("c", 12, (0.4 * 0.02,))), (y,),
           fused_activation_function="NONE")  # fmt: skip
    path.write_bytes(write_tflite(net.spec((x,), (y,))))
    return path


def compiled_for(model: Path, board: str = "nucleo_l4r5zi") -> Compiled:
    return compile_model(model, package="platformio", target=load_board(board).target)


def application(model: Path, name: str, work: Path, **how: object) -> tuple[Compiled, Path]:
    compiled = compiled_for(model)
    write_mlperf_project(compiled, "nucleo_l4r5zi", benchmark_named(name), work / "project")
    return compiled, built(work / "project", work, **how)  # type: ignore[arg-type]


def reals(compiled: Compiled, elements: np.ndarray) -> np.ndarray:
    """The real values of the outputs that the golden references give for int8 inputs."""
    sample = [elements.reshape(compiled.program.inputs[0].shape)]
    (output,) = golden_run(compiled, "numpy", [sample], preserve=False).outputs[0]
    port = compiled.program.outputs[0]
    return np.float32(port.scale) * (output.astype(np.int32).ravel() - port.zero_point).astype(np.float32)


@pytest.mark.parametrize("name", ["kws01", "vww01", "ic01"])
def test_the_runner_gets_the_results_of_the_references(name: str, tiny: Path, tmp_path: Path) -> None:
    compiled, program = application(tiny / "spotter.tflite", name, tmp_path, flags=STRICT)
    rng = np.random.default_rng(5)
    with on_terminal(program) as (runner, _):
        greeting = runner.answer()
        assert greeting[0] == "m-timestamp-mode-performance"
        assert greeting[-1] == "m-init-done"
        assert runner.command("name") == ["m-name-dut-[nucleo_l4r5zi]"]
        assert runner.command("profile")[-1] == f"m-model-[{name}]"
        for _ in range(3):
            sent = rng.integers(0, 256, 96).astype(np.uint8)
            assert runner.load(sent.tobytes()) == ["m-load-done"]
            elements = sent.view(np.int8) if name == "kws01" else (sent.astype(np.int32) - 128).astype(np.int8)
            wanted = [round(float(value), 6) for value in reals(compiled, elements)]
            # The second and later runs of one command have the same input, although a run overwrites the arena.
            for runs, warm_up in ((1, 0), (3, 2)):
                results, microseconds = runner.infer(runs, warm_up)
                assert results == pytest.approx(wanted, abs=1.5e-6)
                assert microseconds > 0
            assert runner.command("results")[0].count(",") == 2


def test_the_anomaly_score_is_the_mean_squared_difference(tmp_path: Path) -> None:
    compiled, program = application(autoencoder(tmp_path / "ae.tflite"), "ad01", tmp_path, flags=STRICT)
    rng = np.random.default_rng(6)
    port = compiled.program.inputs[0]
    with on_terminal(program) as (runner, _):
        runner.answer()
        for _ in range(4):
            sent = rng.normal(0, 12, 12).astype("<f4")
            runner.load(sent.tobytes())
            ratio = (sent / np.float32(port.scale)).astype(np.float64)
            steps = np.sign(ratio) * np.floor(np.abs(ratio) + 0.5) + port.zero_point
            difference = reals(compiled, np.clip(steps, -128, 127).astype(np.int8)) - sent
            results, _ = runner.infer(2, 1)
            # A tolerance of float32 rounding: the board adds the squares one by one.
            assert results == pytest.approx([float((difference.astype(np.float64) ** 2).mean())], rel=1e-5)


REFUSED: list[tuple[str, str]] = [
    ("db load 95", "e-[the number of bytes is not that of the model's input]"),
    ("db load 4294967392", "e-[the number of bytes is not that of the model's input]"),
    ("db load", "e-[the number of bytes is not that of the model's input]"),
    ("db", "e-[db needs a subcommand]"),
    ("db xy", "e-[bytes are pairs of hexadecimal digits]"),
    ("db 0", "e-[bytes are pairs of hexadecimal digits]"),
    ("infer 0", "e-[infer takes the number of runs, and of those to warm up]"),
    ("infer 1 -1", "e-[infer takes the number of runs, and of those to warm up]"),
    ("infer 99999999999", "e-[infer takes the number of runs, and of those to warm up]"),
    ("infer 1 0", "e-[the input is not complete]"),
    ("", "e-[unknown command]"),
    ("nonsense", "e-[unknown command]"),
    ("x" * 5000, "e-[the command is too long]"),
]


def test_commands_that_make_no_sense_are_refused_and_do_no_harm(tiny: Path, tmp_path: Path) -> None:
    _, program = application(tiny / "spotter.tflite", "kws01", tmp_path, flags=STRICT)
    with on_terminal(program) as (runner, _):
        runner.answer()
        runner.command("db load 96")
        for command, wanted in REFUSED:
            if command != "infer 1 0":
                assert wanted in (lines := runner.command(command)), (command, lines)
        assert "e-[the input is not complete]" in runner.command("infer 1 0")
        # More bytes than were announced are not taken.
        runner.load(bytes(range(96)))
        assert runner.command("db 0102") == []
        assert runner.command("db print")[11] == "m-buffer-58-59-5a-5b-5c-5d-5e-5f"
        assert len(runner.infer(1, 0)[0]) == 3


@pytest.mark.parametrize("board", REAL)
def test_every_real_boards_project_passes_the_linter(board: str, tiny: Path, tmp_path: Path) -> None:
    write_mlperf_project(compiled_for(tiny / "spotter.tflite", board), board, BENCHMARKS["kws01"], tmp_path / "p")
    command = [*build.pio_command(), "project", "config", "--lint", "-d", str(tmp_path / "p")]
    done = subprocess.run(
        command, env=build.environment(tmp_path / "core"), capture_output=True, text=True, check=False
    )
    assert "is free from linting errors" in done.stdout
    main = next((tmp_path / "p" / "src").glob("main.c*")).read_text(encoding="ascii")
    assert main.count("emitc_mlperf_receive(") == 1
    assert "emitc_proof" not in main


@pytest.mark.parametrize(
    ("model", "name", "why"),
    [
        ("branches", "kws01", "2 inputs and 2 outputs"),
        ("edges", "ic01", "1 inputs and 4 outputs"),
        ("spotter", "ad01", "different numbers of elements"),
        ("spotter", "kws02", "ad01"),
    ],
)
def test_a_model_of_another_kind_is_refused(model: str, name: str, why: str, tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(EmitcError, match=why):
        write_mlperf_project(
            compiled_for(tiny / f"{model}.tflite"), "nucleo_l4r5zi", benchmark_named(name), tmp_path / "p"
        )
    assert not (tmp_path / "p").exists()


@pytest.mark.skipif(not RUNNER, reason="MLPERF_TINY_RUNNER does not name the folder benchmark/runner of mlcommons/tiny")
def test_the_benchmarks_own_runner_reads_the_answers(tiny: Path, tmp_path: Path) -> None:
    compiled, program = application(tiny / "spotter.tflite", "kws01", tmp_path)
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from device_under_test import DUT\n"
        "with DUT(sys.argv[2], 115200) as dut:\n"
        "    print('MODEL', dut.get_model(), dut.get_name())\n"
        "    dut.load(bytes(range(96)))\n"
        "    print('RESULT', next(l for l in dut.infer(2, 1) if l.startswith('m-results')))\n"
    )
    with on_terminal(program) as (runner, terminal):
        runner.answer()
        done = subprocess.run(
            [sys.executable, "-c", script, RUNNER, terminal], capture_output=True, text=True,
            check=True, timeout=60,
        )  # fmt: skip
    assert "MODEL kws01 nucleo_l4r5zi" in done.stdout
    wanted = reals(compiled, np.arange(96, dtype=np.int8))
    results = done.stdout.split("m-results-[")[1].split("]")[0]
    assert [float(text) for text in results.split(",")] == pytest.approx(list(wanted), abs=1.5e-6)

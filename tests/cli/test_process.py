"""The console script as a process: what it loads, how it ends, and what it writes to a pipe of any encoding."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from emitc.cli.options import reported

ROOT = Path(__file__).resolve().parents[2]


def emitc(*arguments: object, folder: Path, code: int = 0, **environment: str) -> subprocess.CompletedProcess[bytes]:
    """`python -m emitc`; the exit code is checked, and that no traceback shows."""
    env = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    command = [sys.executable, "-m", "emitc", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, check=False, cwd=folder, env=env)
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    assert done.returncode == code, done.stderr.decode()
    return done


@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["--version"], ["compile", "--help"], ["verify", "-h"], ["boards", "--json"], ["targets", "--json"]],
)
def test_help_and_lists_load_neither_numpy_nor_a_frontend(arguments: list[str], tmp_path: Path) -> None:
    text = (
        "import sys\nfrom emitc.cli.main import main\n"
        f"sys.argv = ['emitc', *{arguments!r}]\n"
        "try:\n    main()\nexcept SystemExit as end:\n    code = end.code\n"
        "heavy = sorted({name.split('.')[0] for name in sys.modules}"
        " & {'numpy', 'tflite', 'flatbuffers', 'jinja2', 'cffi', 'rich', 'elftools', 'tflite_micro', 'platformio'})\n"
        "print('\\n', code, heavy)\n"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=True, cwd=tmp_path, env=env
    )
    assert done.stdout.splitlines()[-1] == " 0 []"


NOT_FOR_TFLITE = (
    "onnx", "cffi", "rich", "elftools", "jsonschema", "tflite_micro", "ai_edge_litert", "onnxruntime", "ortools", "ethosu",
    "importlib.metadata", "subprocess", "socket", "zipfile",
    "emitc.boards", "emitc.writers", "emitc.ethosu", "emitc.verify.engines.run", "emitc.frontends.onnx.reader",
    "emitc.backends.cmsis_nn.backend", "emitc.backends.ethos_u.backend", "emitc.backends.ethos_u.vela",
    "emitc.kernels.recurrent.lstm_gru", "emitc.kernels.recurrent.svdf",
    "emitc.kernels.normalization.normalizations", "emitc.kernels.resize.resize_onnx",
    "emitc.kernels.signal.signal_fft",
)  # fmt: skip
"""What a compilation of a TFLite file of convolutions does without. More than half of its time would be that of imports."""


def test_a_compilation_loads_only_what_its_model_needs(tmp_path: Path) -> None:
    text = (
        "import sys\nfrom emitc.cli.main import main\n"
        f"sys.argv = ['emitc', 'compile', {str(ROOT / 'examples/models/kws_ref_int8.tflite')!r}, '-o', 'out']\n"
        "try:\n    main()\nexcept SystemExit as end:\n    print(end.code, *sys.modules)\n"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True, check=True, cwd=tmp_path, env=env
    )
    code, *loaded = done.stdout.splitlines()[-1].split()
    assert code == "0"
    assert {
        "numpy",
        "jinja2",
        "emitc.kernels.convolution.conv_2d",
        "emitc.kernels.normalization.softmax",
        "emitc.validation",
    } <= set(loaded)
    assert sorted(set(loaded) & set(NOT_FOR_TFLITE)) == []


def test_help_lists_every_command(tmp_path: Path) -> None:
    out = emitc("--help", folder=tmp_path).stdout.decode()
    for command in ("compile", "verify", "inspect", "plan", "run", "flash", "boards", "targets", "ops"):
        assert re.search(rf"^  {command} ", out, re.M)


def test_the_list_of_operators_has_every_name_on_one_line(tmp_path: Path) -> None:
    out = emitc("ops", folder=tmp_path).stdout.decode()
    for row in json.loads(emitc("ops", "--json", folder=tmp_path).stdout)["operators"]:
        assert re.search(rf"^{re.escape(row['op'])} +{row['format']} ", out, re.M), row["op"]


def test_the_console_script_is_declared() -> None:
    assert 'emitc = "emitc.cli.main:main"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_a_wrong_command_line_is_an_object_too(tmp_path: Path) -> None:
    done = emitc("compile", "--bogus", "--json", folder=tmp_path, code=2)
    (error,) = json.loads(done.stdout)["error"]
    assert "--bogus" in error["what"]
    assert b"Usage: " in done.stderr
    assert emitc("compile", "--bogus", folder=tmp_path, code=2).stdout == b""


@pytest.mark.parametrize(
    "arguments", [["boards"], ["plan", "{tiny}/branches.tflite"], ["inspect", "{tiny}/branches.tflite"]]
)
def test_a_pipe_gets_plain_text_in_any_encoding(arguments: list[str], tiny: Path, tmp_path: Path) -> None:
    done = emitc(*(a.replace("{tiny}", str(tiny)) for a in arguments), folder=tmp_path, PYTHONIOENCODING="ascii")
    assert done.stderr == b""
    assert re.fullmatch(rb"[\n -~]+", done.stdout), "control characters or colours in a pipe"


def test_colours_are_not_forced_by_the_environment(tmp_path: Path) -> None:
    done = emitc("targets", folder=tmp_path, FORCE_COLOR="1", CLICOLOR_FORCE="1", TERM="xterm-256color")
    assert b"\x1b" not in done.stdout


def test_hostile_names_stay_on_their_line(tiny: Path, tmp_path: Path) -> None:
    out = emitc("inspect", tiny / "branches.tflite", folder=tmp_path).stdout.decode()
    assert "\n#error" not in out
    assert 'left*/ "x"\\u000a#error' in out


@pytest.mark.skipif(sys.platform == "win32", reason="there are no POSIX pipes")
def test_a_reader_that_leaves_early_is_no_error(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "emitc", "ops"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False, cwd=tmp_path, env=env)
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full")
@pytest.mark.parametrize("arguments", [("ops",), ("ops", "--json")])
def test_an_output_that_is_full_is_an_error(arguments: tuple[str, ...], tmp_path: Path) -> None:
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "emitc", *arguments]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, cwd=tmp_path, env=env
        )
    assert done.returncode == 2
    assert done.stderr.startswith(
        "error: the result cannot be written\n  at:    standard output\n  why:   No space left"
    )
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


def test_a_project_that_cannot_be_written_is_an_error(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    options = ("--board", "nucleo_f446re", "--dry-run", "--reference", "numpy", "-o")
    done = emitc("flash", tiny / "spotter.tflite", *options, "file/project", folder=tmp_path, code=2)
    assert done.stderr.startswith(
        b"error: the project cannot be written to file/project\n  at:    -o\n  why:   Not a directory\n"
    )
    done = emitc("flash", tiny / "spotter.tflite", *options, "a project", folder=tmp_path)
    assert done.stdout.endswith(b": pio run -d 'a project' -t upload\n")


def test_a_full_disk_is_an_error_and_a_missing_file_a_bug(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended, reported(as_json=True):
        raise OSError(errno.ENOSPC, "No space left on device", "/somewhere/file")
    printed = capsys.readouterr()
    assert ended.value.code == 2 and json.loads(printed.out)["error"][0]["why"] == "No space left on device"
    assert (
        printed.err.startswith("error: there is no room for a file\n  at:    /somewhere/file\n")
        and "TMPDIR" in printed.err
    )
    with pytest.raises(FileNotFoundError), reported(as_json=False):
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")


def test_python_m_and_the_library_give_the_same_package(tiny: Path, tmp_path: Path) -> None:
    import emitc as library

    emitc("compile", tiny / "spotter.tflite", "-o", "out", folder=tmp_path)
    library.compile_model(tiny / "spotter.tflite").write(tmp_path / "api")
    files = sorted(p.name for p in (tmp_path / "api").iterdir())
    assert files == sorted(p.name for p in (tmp_path / "out").iterdir())
    assert all((tmp_path / "api" / n).read_bytes() == (tmp_path / "out" / n).read_bytes() for n in files)

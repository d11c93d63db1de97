"""What a command does to the place of a single file: devices, pipes, links, folders, its own input and foreign files."""

from __future__ import annotations

import os
import shutil
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, save

from tests.support.cli_call import Called, Emitc

NULL, BLOCK = os.makedev(1, 3), os.makedev(7, 200)


def _float_model(folder: Path) -> list[object]:
    """A float ONNX model with samples, as arguments of `emitc quantize`."""
    value = helper.make_tensor_value_info
    weights = helper.make_tensor("w", TensorProto.FLOAT, [4, 2], np.linspace(-1, 1, 8).tolist())
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    ends = [value("x", TensorProto.FLOAT, [1, 4])], [value("y", TensorProto.FLOAT, [1, 2])]
    model = helper.make_model(
        helper.make_graph([node], "g", *ends, [weights]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    save(model, folder / "float.onnx")
    np.savez(folder / "samples.npz", x=np.random.default_rng(0).uniform(-1, 1, (8, 1, 4)).astype(np.float32))
    return [folder / "float.onnx", "--calibration", folder / "samples.npz"]


Writes = Callable[..., Called]
"""Runs a command that writes one file: `writes("path", "--force")`; `.model` is what it reads."""


@pytest.fixture(params=["svg", "html", "quantize", "together"])
def case(request: pytest.FixtureRequest, emitc: Emitc, tiny: Path, tmp_path: Path) -> tuple[Writes, Path, str]:
    """The command, the model that it reads, and the option that names the file, which is `out/both_together.h`."""
    (tmp_path / "out").mkdir()
    if request.param == "quantize":
        arguments = _float_model(tmp_path)
        return (
            lambda *more: emitc("quantize", *arguments, "-o", "out/both_together.h", *more),
            tmp_path / "float.onnx",
            "-o",
        )
    models = [shutil.copy(tiny / f"{name}.tflite", tmp_path) for name in ("spotter", "branches")]
    if request.param == "together":
        options = ["--together", *models, "--name", "both", "-o", "out"]
        return lambda *more: emitc("plan", *options, *more), tmp_path / "spotter.tflite", "-o"
    option = f"--{request.param}"
    path = "out/both_together.h"
    return lambda *more: emitc("plan", models[0], option, path, *more), tmp_path / "spotter.tflite", option


@pytest.fixture
def node(tmp_path: Path) -> Callable[[int, int], Path]:
    """Makes `out/both_together.h` a device node; only root may, and only where the file system lets it be opened."""

    def make(kind: int, device: int) -> Path:
        path = tmp_path / "out" / "both_together.h"
        try:
            os.mknod(path, kind | 0o666, device)
            if kind == stat.S_IFCHR:
                os.close(os.open(path, os.O_WRONLY))
        except PermissionError:
            path.unlink(missing_ok=True)
            pytest.skip("this user cannot make a device node here")
        return path

    return make


def refusal(called: Called, option: str, why: str) -> None:
    """Asserts that the command refused the place for a reason."""
    assert called.code == 2
    assert called.err.startswith(
        f"error: out/both_together.h cannot be written\n  at:    {option}\n  why:   {why}\n"
    ), called.err


def test_a_character_device_stays_one(case: tuple[Writes, Path, str], node: Callable[[int, int], Path]) -> None:
    writes, _, _ = case
    path = node(stat.S_IFCHR, NULL)
    called = writes()
    assert called.code == 0, called.err
    assert stat.S_ISCHR(path.lstat().st_mode) and path.lstat().st_rdev == NULL


def test_a_block_device_is_refused(case: tuple[Writes, Path, str], node: Callable[[int, int], Path]) -> None:
    writes, _, option = case
    path = node(stat.S_IFBLK, BLOCK)
    for more in ([], ["--force"]):
        refusal(writes(*more), option, "it exists and is a block device")
    assert stat.S_ISBLK(path.lstat().st_mode)


def test_a_pipe_gets_the_bytes(case: tuple[Writes, Path, str]) -> None:
    writes, _, _ = case
    path = Path("out/both_together.h")
    assert writes().code == 0
    expected = path.read_bytes()
    path.unlink()
    os.mkfifo(path)
    received: list[bytes] = []
    reader = threading.Thread(target=lambda: received.append(path.read_bytes()), daemon=True)
    reader.start()
    assert writes().code == 0
    reader.join(30)
    assert received == [expected]
    assert stat.S_ISFIFO(path.lstat().st_mode)


def test_a_directory_is_refused(case: tuple[Writes, Path, str]) -> None:
    writes, _, option = case
    Path("out/both_together.h").mkdir()
    for more in ([], ["--force"]):
        refusal(writes(*more), option, "it exists and is a directory")


def test_a_link_to_nothing_is_refused(case: tuple[Writes, Path, str]) -> None:
    writes, _, option = case
    path = Path("out/both_together.h")
    path.symlink_to("elsewhere")
    for more in ([], ["--force"]):
        refusal(writes(*more), option, "it is a link to elsewhere, which does not exist")
    assert path.is_symlink() and os.listdir("out") == [path.name]


def test_a_link_stays_one_and_its_file_is_written(case: tuple[Writes, Path, str]) -> None:
    writes, _, option = case
    path, real = Path("out/both_together.h"), Path("real")
    path.symlink_to("../real")
    real.write_bytes(b"mine")
    refusal(writes(), option, "it exists, and emitc did not write it")
    assert real.read_bytes() == b"mine"
    assert writes("--force").code == 0
    assert path.is_symlink() and real.read_bytes() == path.read_bytes() != b"mine"


@pytest.mark.parametrize("how", ["itself", "link", "hard link"])
def test_the_input_is_never_written(case: tuple[Writes, Path, str], how: str) -> None:
    writes, model, option = case
    path, before = Path("out/both_together.h"), model.read_bytes()
    if how == "itself":
        Path("out").rmdir()
        Path("out").symlink_to(".")
        model.rename(path.name)
        model.symlink_to(path.name)
    elif how == "link":
        path.symlink_to(model)
    else:
        path.hardlink_to(model)
    for more in ([], ["--force"]):
        refusal(writes(*more), option, f"it is {model}, which the command reads")
    assert model.read_bytes() == before


def test_foreign_content_asks_for_force_and_own_does_not(case: tuple[Writes, Path, str]) -> None:
    writes, _, option = case
    path = Path("out/both_together.h")
    path.write_bytes(b"notes of mine")
    refusal(writes(), option, "it exists, and emitc did not write it")
    assert path.read_bytes() == b"notes of mine"
    path.chmod(0o640)
    assert writes("--force").code == 0
    written = path.read_bytes()
    assert written != b"notes of mine" and stat.S_IMODE(path.stat().st_mode) == 0o640
    assert writes().code == 0 and path.read_bytes() == written
    path.write_bytes(b"")
    assert writes().code == 0 and path.read_bytes() == written
    assert os.listdir("out") == [path.name]


@pytest.mark.parametrize(
    "arguments",
    [["plan", "{model}", "--svg", "-"], ["plan", "{model}", "--html", "-"], ["compile", "{model}", "-o", "-"]],
    ids=lambda arguments: arguments[-2],
)
def test_a_dash_is_no_file(arguments: list[str], emitc: Emitc, tiny: Path) -> None:
    refused = emitc(*(a.replace("{model}", str(tiny / "spotter.tflite")) for a in arguments))
    assert refused.code == 2 and "standard output" in refused.err
    assert os.listdir(".") == []


def test_one_name_for_both_pictures_is_refused(emitc: Emitc, tiny: Path) -> None:
    refused = emitc("plan", tiny / "spotter.tflite", "--svg", "x", "--html", "x")
    assert refused.code == 2 and "why:   the drawing has the same name\n" in refused.err
    assert os.listdir(".") == []


def test_the_working_directory_is_not_replaced(emitc: Emitc, tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shell that called would stay in the removed directory, where its next command fails."""
    assert emitc("compile", tiny / "spotter.tflite", "-o", "here").code == 0
    before = sorted(os.listdir("here"))
    monkeypatch.chdir("here")
    for name in (".", "../here"):
        refused = emitc("compile", tiny / "spotter.tflite", "-o", name)
        assert refused.code == 2
        assert refused.err.startswith(f"error: {name} is the working directory, or holds it\n  at:    -o\n")
    assert sorted(os.listdir(".")) == before and os.path.samefile(".", "../here")

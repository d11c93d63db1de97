"""The packages as a firmware project meets them: what they hold, that they build there, and how a directory is replaced."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import jsonschema
import pytest

from emitc.boards import build
from emitc.cli import main
from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.emit import package as package_module
from emitc.emit.package import PACKAGES, write_package
from emitc.errors import EmitcError
from emitc.ir import Array
from emitc.target import boards_dir
from emitc.verify.build import HostModel, build_shared
from emitc.verify.golden_run import interface_of
from emitc.verify.reference import random_samples

SOURCES = {"spotter.c", "spotter.h", "emitc_runtime.c", "emitc_runtime.h", "emitc_bits.h"}
CHECK = "examples/check/spotter_check.h"
IN_TWO_FOLDERS = {
    "src/spotter.c",
    "include/spotter.h",
    "src/emitc_runtime.c",
    "include/emitc_runtime.h",
    "include/emitc_bits.h",
}
LAYOUTS = {
    "plain": {"manifest.json", *SOURCES},
    "cmake": {"manifest.json", "CMakeLists.txt", CHECK, "examples/check/CMakeLists.txt", "examples/check/main.c",
              *IN_TWO_FOLDERS},
    "platformio": {"manifest.json", "library.json", CHECK, "examples/check/main.cpp", *IN_TWO_FOLDERS},
    "arduino": {"manifest.json", "library.properties", "keywords.txt", CHECK, "examples/check/check.ino",
                *(f"src/{name}" for name in SOURCES)},
    "esp-idf": {"manifest.json", "CMakeLists.txt", "idf_component.yml", "Kconfig", "README.md", *IN_TWO_FOLDERS,
                "examples/check/CMakeLists.txt", "examples/check/sdkconfig.defaults",
                *(f"examples/check/main/{name}" for name in ("CMakeLists.txt", "idf_component.yml", "main.c")),
                "examples/check/main/spotter_check.h"},
    "zephyr": {"manifest.json", "zephyr/CMakeLists.txt", "zephyr/Kconfig", "zephyr/module.yml",
               *(f"samples/check/{name}" for name in ("CMakeLists.txt", "prj.conf", "sample.yaml", "src/main.c")),
               "samples/check/src/spotter_check.h", *IN_TWO_FOLDERS},
    "cmsis-pack": {"manifest.json", "emitc.spotter.pdsc", "layer/spotter.clayer.yml", CHECK, "examples/check/main.c",
                   *IN_TWO_FOLDERS},
    "esphome": {"manifest.json", "example.yaml",
                *(f"components/emitc_spotter/{name}" for name in (*SOURCES, "__init__.py", "spotter_component.h",
                  "spotter_component.cpp", "spotter_check.cpp"))},
    "rust": {"manifest.json", "Cargo.toml", "build.rs", "src/lib.rs", "examples/golden.rs",
             *(f"c/{name}" for name in SOURCES)},
    "zig": {"manifest.json", "build.zig", "build.zig.zon", "src/spotter.zig", "examples/golden.zig",
            "c/freestanding/string.h", *(f"c/{name}" for name in SOURCES)},
    "micropython": {"manifest.json", "modemitc.c", "micropython.mk", "micropython.cmake", "Makefile", "examples/golden.py",
                    *(f"c/{name}" for name in SOURCES)},
}  # fmt: skip
LIBRARY_SCHEMA = {
    "type": "object",
    "required": ["name", "version", "description", "frameworks", "platforms", "headers", "build"],
    "properties": {
        "name": {"type": "string", "maxLength": 100, "pattern": r"^[^:;/,@<>]+$"},
        "version": {"type": "string", "pattern": r"^\d+\.\d+\.\d+$"},
        "description": {"type": "string", "maxLength": 1000},
        "build": {"type": "object", "properties": {"flags": {"type": "array", "items": {"enum": ["-O2", "-Os"]}}}},
    },
}
"""The fields of PlatformIO's library.json that it checks, by its documentation."""


def compiled(tiny: Path, name: str, **changes: Any) -> Compiled:
    return compile_model(tiny / f"{name}.tflite", **changes)


def digest(outputs: list[Array]) -> str:
    """What firmware prints of its outputs: all bytes in hexadecimal."""
    return "".join(value.tobytes().hex() for value in outputs)


MAIN = """\
#include "spotter.h"
#include "branches.h"
@include@

_Alignas(16) static unsigned char spotter_arena[SPOTTER_ARENA_BYTES];
_Alignas(16) static unsigned char branches_arena[BRANCHES_ARENA_BYTES];
static const signed char spotter_in[] = {@spotter_in@};
static const signed char branches_in_0[] = {@branches_in_0@};
static const signed char branches_in_1[] = {@branches_in_1@};

static void copy(int8_t *to, const signed char *from, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        to[i] = from[i];
    }
}

int main(void)
{
    spotter_t s;
    branches_t b;
    if (spotter_init(&s, spotter_arena, sizeof spotter_arena, NULL, 0) != EMITC_OK) {
        return 1;
    }
    if (branches_init(&b, branches_arena, sizeof branches_arena, NULL, 0) != EMITC_OK) {
        return 2;
    }
    copy(spotter_input_0(&s), spotter_in, sizeof spotter_in);
    copy(branches_input_0(&b), branches_in_0, sizeof branches_in_0);
    copy(branches_input_1(&b), branches_in_1, sizeof branches_in_1);
    if (spotter_run(&s) != EMITC_OK || branches_run(&b) != EMITC_OK) {
        return 3;
    }
    hex(spotter_output_0(&s), SPOTTER_OUTPUT_0_BYTES);
    hex(branches_output_0(&b), BRANCHES_OUTPUT_0_BYTES);
    hex(branches_output_1(&b), BRANCHES_OUTPUT_1_BYTES);
    return 0;
}
"""
HEX_ON_HOST = """\
#include <stdio.h>
static void hex(const int8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        printf("%02x", (unsigned)(unsigned char)bytes[i]);
    }
}"""
HEX_ON_BOARD = """\
#include "emitc_board.h"
static void hex(const int8_t *bytes, size_t n)
{
    emitc_print_hex((const uint8_t *)bytes, (uint32_t)n);
}"""


@pytest.fixture(scope="module")
def firmware(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A main.c for both models with @include@ left open, and what it has to print."""
    text, printed = MAIN, ""
    for name in ("spotter", "branches"):
        model = compiled(tiny, name)
        folder = tmp_path_factory.mktemp(name)
        model.write(folder / "package")
        sample = random_samples(model.graph, 1, 9)[0]
        host = HostModel(build_shared(folder / "package", folder, trace=False), interface_of(model))
        printed += digest(host.run(sample))
        keys = [f"@{name}_in@"] if len(sample) == 1 else [f"@{name}_in_{i}@" for i in range(len(sample))]
        for key, value in zip(keys, sample, strict=True):
            text = text.replace(key, ", ".join(map(str, value.reshape(-1).tolist())))
    return text, printed


def test_every_layout_is_tested() -> None:
    assert set(LAYOUTS) == set(PACKAGES)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_package_holds_these_files_and_its_manifest_knows_them(layout: str, tiny: Path, tmp_path: Path) -> None:
    written = compiled(tiny, "spotter", package=layout).write(tmp_path / "out")
    assert set(written) == LAYOUTS[layout]
    found = {str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*") if p.is_file()}
    assert found == LAYOUTS[layout]
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text(encoding="ascii"))
    hashes = {n: hashlib.sha256((tmp_path / "out" / n).read_bytes()).hexdigest() for n in found - {"manifest.json"}}
    assert manifest["files"] == hashes
    assert manifest["model"]["sha256"] == hashlib.sha256((tiny / "spotter.tflite").read_bytes()).hexdigest()
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_differ_in_place_only(layout: str, tiny: Path) -> None:
    plain = compiled(tiny, "spotter").files
    other = compiled(tiny, "spotter", package=layout).files
    for name in SOURCES - {"spotter.c", "spotter.h"}:
        (path,) = (path for path in other if path.endswith(name))
        assert other[path] == plain[name]


@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")
def test_two_cmake_packages_build_and_run_in_one_project(firmware: tuple[str, str], tiny: Path, tmp_path: Path) -> None:
    for name in ("spotter", "branches"):
        compiled(tiny, name, package="cmake").write(tmp_path / name)
    text, printed = firmware
    (tmp_path / "main.c").write_text(text.replace("@include@", HEX_ON_HOST), encoding="ascii")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\nproject(app C)\n"
        "add_compile_options(-Wall -Wextra -Werror)\nadd_subdirectory(spotter)\nadd_subdirectory(branches)\n"
        "add_executable(app main.c)\ntarget_link_libraries(app PRIVATE spotter branches)\n",
        encoding="ascii",
    )
    for command in (["cmake", "-S", ".", "-B", "build"], ["cmake", "--build", "build"], ["build/app"]):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == printed


ZEPHYR_FUNCTIONS = """\
set(CONFIG_EMITC_SPOTTER y)
set(CONFIG_EMITC_BRANCHES y)
macro(zephyr_library_named name)
  set(ZEPHYR_CURRENT_LIBRARY ${name})
  add_library(${name} STATIC)
  set_property(GLOBAL APPEND PROPERTY LIBRARIES ${name})
endmacro()
function(zephyr_library_sources)
  target_sources(${ZEPHYR_CURRENT_LIBRARY} PRIVATE ${ARGN})
endfunction()
function(zephyr_library_compile_options)
  target_compile_options(${ZEPHYR_CURRENT_LIBRARY} PRIVATE ${ARGN})
endfunction()
function(zephyr_include_directories)
  include_directories(${ARGN})
  set_property(GLOBAL APPEND PROPERTY INCLUDES ${ARGN})
endfunction()
"""
"""What Zephyr's build has under these names, as far as a module uses it."""


@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")
def test_two_zephyr_modules_build_in_one_application(firmware: tuple[str, str], tiny: Path, tmp_path: Path) -> None:
    """With stand-ins for the functions of Zephyr's build system, which is not installed."""
    for name in ("spotter", "branches"):
        compiled(tiny, name, package="zephyr").write(tmp_path / name)
    text, printed = firmware
    (tmp_path / "main.c").write_text(text.replace("@include@", HEX_ON_HOST), encoding="ascii")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(app C)\n"
        + ZEPHYR_FUNCTIONS
        + "add_subdirectory(spotter/zephyr)\n"
        "add_subdirectory(branches/zephyr)\nget_property(libraries GLOBAL PROPERTY LIBRARIES)\n"
        "get_property(folders GLOBAL PROPERTY INCLUDES)\nadd_executable(app main.c)\n"
        "target_include_directories(app PRIVATE ${folders})\n"
        "target_link_libraries(app PRIVATE -Wl,--start-group ${libraries} -Wl,--end-group)\n",
        encoding="ascii",
    )
    for command in (["cmake", "-S", ".", "-B", "build"], ["cmake", "--build", "build"], ["build/app"]):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == printed


def test_a_zephyr_module_is_described(tiny: Path) -> None:
    files = compiled(tiny, "spotter", package="zephyr").files
    module = dict(
        line.strip().split(": ", 1)
        for line in files["zephyr/module.yml"].decode().splitlines()
        if ": " in line and line[0] != "#"
    )
    assert module == {"name": "emitc_spotter", "cmake": "zephyr", "kconfig": "zephyr/Kconfig"}
    kconfig = files["zephyr/Kconfig"].decode()
    assert "config EMITC_SPOTTER\n\tbool " in kconfig
    assert "select" not in kconfig


@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")
@pytest.mark.parametrize(("optimize", "flag"), [("speed", "-O2"), ("size", "-Os")])
def test_the_optimization_reaches_the_build_files(optimize: str, flag: str, tiny: Path) -> None:
    cmake = compiled(tiny, "wires", package="cmake", optimize=optimize).files["CMakeLists.txt"].decode()
    assert f"target_compile_options(wires PRIVATE {flag})" in cmake
    library = json.loads(compiled(tiny, "wires", package="platformio", optimize=optimize).files["library.json"])
    assert library["build"]["flags"] == [flag]


def test_library_json_is_valid(tiny: Path) -> None:
    files = compiled(tiny, "spotter", package="platformio").files
    library = json.loads(files["library.json"])
    jsonschema.validate(library, LIBRARY_SCHEMA)
    assert library["headers"] == "spotter.h"
    assert f"{library['build']['includeDir']}/spotter.h" in files
    assert f"{library['build']['srcDir']}/spotter.c" in files


def test_platformio_reads_the_library(tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """PlatformIO's own parser and schema, as `pio pkg publish` runs them, except for the list of licences, which it fetches."""
    parser = pytest.importorskip("platformio.package.manifest.parser", reason="PlatformIO is not installed")
    schema = pytest.importorskip("platformio.package.manifest.schema")
    licences = {"licenses": [{"licenseId": "0BSD"}, {"licenseId": "Apache-2.0"}]}
    monkeypatch.setattr(schema.ManifestSchema, "load_spdx_licenses", staticmethod(lambda: licences))
    compiled(tiny, "spotter", package="platformio").write(tmp_path / "spotter")
    content = parser.ManifestParserFactory.new_from_dir(str(tmp_path / "spotter")).as_dict()
    loaded = schema.ManifestSchema().load_manifest(content)
    assert loaded["name"] == "spotter"
    assert loaded["headers"] == ["spotter.h"]
    assert loaded["license"] == "Apache-2.0 OR 0BSD"


@pytest.mark.board
@pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")), reason="needs the Arm tools and QEMU"
)
def test_two_platformio_packages_build_and_boot_in_one_project(
    firmware: tuple[str, str], tiny: Path, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    for name in ("spotter", "branches"):
        compiled(tiny, name, package="platformio", target="cortex-m4").write(project / "lib" / name)
    shutil.copytree(boards_dir() / "platform", project / "platform", ignore=shutil.ignore_patterns("__pycache__"))
    (project / "platformio.ini").write_text(
        "[platformio]\nplatforms_dir = .pio/platforms\n[env:qemu_m4]\n"
        "platform = symlink://${PROJECT_DIR}/platform\nboard = qemu_m4\nbuild_src_flags = -Wall -Wextra -Werror\n",
        encoding="ascii",
    )
    text, printed = firmware
    (project / "src").mkdir()
    (project / "src" / "main.c").write_text(text.replace("@include@", HEX_ON_BOARD), encoding="ascii")
    command = [*build.pio_command(), "run", "-d", str(project), "-t", "upload"]
    env = build.environment(tmp_path / "core")
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert printed in done.stdout


def test_an_old_package_is_replaced_whole(tiny: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    compiled(tiny, "spotter", package="cmake").write(out)
    compiled(tiny, "wires").write(out)
    expected = {"wires.c", "wires.h", "emitc_runtime.c", "emitc_runtime.h", "manifest.json"}
    assert {p.name for p in out.iterdir()} == expected
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_an_empty_directory_is_taken_and_parents_are_made(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    compiled(tiny, "wires").write(tmp_path / "empty")
    compiled(tiny, "wires").write(tmp_path / "a" / "b" / "c")
    assert (tmp_path / "empty" / "wires.c").read_bytes() == (tmp_path / "a" / "b" / "c" / "wires.c").read_bytes()


def _foreign_directory(place: Path) -> None:
    place.mkdir()
    (place / "thesis.tex").write_text("years of work\n", encoding="ascii")


def _file(place: Path) -> None:
    place.write_text("years of work\n", encoding="ascii")


def _link(place: Path) -> None:
    (place.parent / "real").mkdir()
    place.symlink_to(place.parent / "real")


@pytest.mark.parametrize("make", [_foreign_directory, _file, _link])
def test_what_emitc_did_not_write_is_refused_and_kept(make: Any, tiny: Path, tmp_path: Path) -> None:
    place = tmp_path / "out"
    make(place)
    before = sorted((p.relative_to(tmp_path), p.is_file() and p.read_bytes()) for p in tmp_path.rglob("*"))
    with pytest.raises(EmitcError) as refused:
        compiled(tiny, "wires").write(place)
    assert refused.value.exit_code == 2
    assert refused.value.where.option == "-o"
    after = sorted((p.relative_to(tmp_path), p.is_file() and p.read_bytes()) for p in tmp_path.rglob("*"))
    assert after == before


def test_a_failure_while_writing_leaves_what_was_there(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    compiled(tiny, "wires").write(out)
    before = {p.name: p.read_bytes() for p in out.iterdir()}
    real = os.replace

    def failing(source: Any, target: Any) -> None:
        if Path(target) == out and Path(source).name == "new":
            raise OSError(28, "No space left on device")
        real(source, target)

    monkeypatch.setattr(package_module.os, "replace", failing)
    with pytest.raises(EmitcError, match="cannot be written") as refused:
        compiled(tiny, "spotter").write(out)
    assert refused.value.why == "No space left on device"
    assert {p.name: p.read_bytes() for p in out.iterdir()} == before
    assert [p.name for p in tmp_path.iterdir()] == ["out"]


def test_a_place_that_cannot_be_written_is_refused(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x", encoding="ascii")
    with pytest.raises(EmitcError, match="cannot be written") as refused:
        compiled(tiny, "wires").write(tmp_path / "file" / "out")
    assert (refused.value.exit_code, refused.value.where.option) == (2, "-o")


def test_a_full_temporary_folder_is_named_by_the_environment(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user of `emitc verify` has given no option for it."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(package_module.os, "replace", Mock(side_effect=OSError(28, "No space left on device")))
    folder = tmp_path / "emitc-1"
    folder.mkdir()
    with pytest.raises(EmitcError, match="cannot be written") as refused:
        compiled(tiny, "wires").write(folder / "package")
    assert refused.value.where.option == "TMPDIR"


def test_nothing_is_written_before_everything_is_rendered(
    tiny: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> dict[str, str]:
        raise RuntimeError("a template is broken")

    monkeypatch.setattr(package_module, "render_sources", failing)
    with pytest.raises(RuntimeError, match="broken"):
        compiled(tiny, "wires").write(tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("text", ['{"manifest_version": 3}\n', "[]", "{", '{"emitc_version": 1, "schema_version": 1}'])
def test_a_manifest_that_is_not_emitcs_does_not_open_a_directory(tmp_path: Path, text: str) -> None:
    """A web extension has a manifest.json too."""
    place = tmp_path / "extension"
    place.mkdir()
    (place / "manifest.json").write_text(text, encoding="ascii")
    with pytest.raises(EmitcError, match="has content that emitc did not write"):
        write_package({"manifest.json": b"{}"}, place)
    assert (place / "manifest.json").read_text(encoding="ascii") == text


def test_a_file_that_the_user_added_is_not_wiped(tiny: Path, tmp_path: Path) -> None:
    compiled = compile_model(tiny / "wires.tflite")
    compiled.write(tmp_path / "out")
    compiled.write(tmp_path / "out")
    (tmp_path / "out" / "mine.c").write_text("int mine;\n", encoding="ascii")
    with pytest.raises(EmitcError) as refused:
        compiled.write(tmp_path / "out")
    assert "mine.c is not of an emitc package" in refused.value.why
    assert (tmp_path / "out" / "mine.c").is_file()


def test_the_command_line_names_every_layout() -> None:
    (option,) = (option for option in main.cli.commands["compile"].params if "--package" in option.opts)
    assert " | ".join(PACKAGES) in option.help

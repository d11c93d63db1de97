"""Components of ESP-IDF: its component manager packs them, its Kconfig tools read them, and a stand-in for its build builds them.

The stand-in has the function of ESP-IDF's build that a component calls. The compiler and the emulator are those of RISC-V boards.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from emitc.boards.run import boot
from emitc.compiler import compile_model
from emitc.target import boards_dir, load_board, load_target
from tests.emit.package_kinds.test_package_examples import with_one_byte_changed

RISCV = [name for name in ("esp32c3", "esp32c6", "esp32p4") if load_target(name).isa.startswith("rv32")]
NEEDS_RISCV = pytest.mark.skipif(
    not (shutil.which("riscv64-unknown-elf-gcc") and shutil.which("qemu-system-riscv32") and shutil.which("cmake")),
    reason="needs riscv64-unknown-elf-gcc, CMake and QEMU",
)
WARNINGS = "-Wall -Wextra -Werror"
COMPOTE = [sys.executable, "-c", "import sys; from idf_component_manager.cli import safe_cli; sys.exit(safe_cli())"]
"""The command of the package manager, whose script need not be on PATH."""


def ran(command: list[str], folder: Path, expected: int = 0) -> str:
    """What a command prints; without telemetry, a cache or a settings folder outside of `folder`."""
    env = {**os.environ, "IDF_TOOLS_PATH": str(folder / "tools"), "IDF_COMPONENT_CHECK_NEW_VERSION": "0"}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) is (expected == 0), done.stdout + done.stderr
    return done.stdout + done.stderr


def component(model: Path, folder: Path, target: str = "generic32") -> Path:
    """The model as a component in a folder of its name."""
    compile_model(model, package="esp-idf", target=target).write(folder / model.stem)
    return folder / model.stem


def files_of(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_the_package_manager_packs_the_component_and_its_example(tiny: Path, tmp_path: Path) -> None:
    pytest.importorskip("idf_component_manager", reason="idf-component-manager is not installed")
    folder = component(tiny / "spotter.tflite", tmp_path)
    written = files_of(folder)
    ran([*COMPOTE, "component", "pack", "--name", "spotter", "--dest-dir", str(tmp_path / "dist")], folder)
    with tarfile.open(tmp_path / "dist" / "spotter_0.1.0.tgz") as archive:
        packed = {member.name.removeprefix("./") for member in archive if member.isfile()}
        archive.extractall(tmp_path / "unpacked", filter="data")
    assert packed - {"CHECKSUMS.json"} == written
    for name in written - {"idf_component.yml"}:
        assert (tmp_path / "unpacked" / name).read_bytes() == (folder / name).read_bytes()


@pytest.mark.parametrize(
    ("old", "new"), [('"0.1.0"', '"one"'), ('license: "Apache-2.0 OR 0BSD"', "license: 7"), ("idf:", "i d f:")]
)
def test_the_package_manager_refuses_a_wrong_manifest(old: str, new: str, tiny: Path, tmp_path: Path) -> None:
    pytest.importorskip("idf_component_manager", reason="idf-component-manager is not installed")
    folder = component(tiny / "spotter.tflite", tmp_path)
    manifest = folder / "idf_component.yml"
    text = manifest.read_text(encoding="ascii")
    assert old in text
    manifest.write_text(text.replace(old, new), encoding="ascii")
    command = [*COMPOTE, "--warnings-as-errors", "component", "pack", "--name", "spotter"]
    ran([*command, "--dest-dir", str(tmp_path / "dist")], folder, expected=1)


def test_the_example_takes_the_component_from_the_folder_it_lies_in(tiny: Path, tmp_path: Path) -> None:
    manager = pytest.importorskip("idf_component_tools.manager", reason="idf-component-manager is not installed")
    main = component(tiny / "spotter.tflite", tmp_path) / "examples" / "check" / "main"
    loaded = manager.ManifestManager(str(main), "main").load()
    (named,) = [row for row in loaded.requirements if row.name.endswith("spotter")]
    assert (main / named.override_path).resolve() == tmp_path / "spotter"


def test_its_kconfig_is_read_and_follows_espressifs_rules(tiny: Path, tmp_path: Path) -> None:
    pytest.importorskip("kconfcheck", reason="esp-idf-kconfig is not installed")
    folder = component(tiny / "spotter.tflite", tmp_path)
    ran([sys.executable, "-m", "kconfcheck", "--check", "syntax", str(folder / "Kconfig")], tmp_path)
    wanted = tmp_path / "sdkconfig.defaults"
    wanted.write_text("CONFIG_EMITC_SPOTTER_NO_ASM=y\n", encoding="ascii")
    command = [sys.executable, "-m", "kconfgen", "--kconfig", str(folder / "Kconfig"), "--defaults", str(wanted)]
    ran([*command, "--output", "json", str(tmp_path / "config.json"), "--env", "IDF_TARGET=esp32c3"], tmp_path)
    values = json.loads((tmp_path / "config.json").read_text(encoding="utf-8"))
    assert values["EMITC_SPOTTER_NO_ASM"] is True
    assert values["EMITC_SPOTTER_TRACE"] is False


STAND_IN = """\
cmake_minimum_required(VERSION 3.16)
project(app C)
function(idf_component_register)
  cmake_parse_arguments(given "" "" "SRCS;INCLUDE_DIRS" ${ARGN})
  get_filename_component(name ${CMAKE_CURRENT_LIST_DIR} NAME)
  add_library(${name} STATIC ${given_SRCS})
  target_include_directories(${name} PUBLIC ${given_INCLUDE_DIRS})
  set(COMPONENT_LIB ${name} PARENT_SCOPE)
endfunction()
add_subdirectory(spotter)
add_subdirectory(branches)
add_subdirectory(spotter/examples/check/main)
target_link_libraries(main PUBLIC spotter)
add_executable(app start.c)
target_link_libraries(app PRIVATE -Wl,--start-group main branches spotter ${PLATFORM} -Wl,--end-group)
"""
"""The function of ESP-IDF's build that a component calls, and a project that has a model in use and one besides."""
HOOK = """\
#include <stddef.h>
#include <stdint.h>
void emitc_layer_hook(const char *model, uint32_t index, const void *output, size_t output_bytes);
void emitc_layer_hook(const char *model, uint32_t index, const void *output, size_t output_bytes)
{
    (void)model, (void)index, (void)output, (void)output_bytes;
}
"""
START = "void app_main(void);\nint main(void)\n{\n    app_main();\n    return 0;\n}\n"


def built(project: Path, *options: str) -> Path:
    """The program of a stand-in project that holds the components."""
    (project / "CMakeLists.txt").write_text(STAND_IN, encoding="ascii")
    (project / "start.c").write_text(HOOK + START, encoding="ascii")
    ran(["cmake", "-S", ".", "-B", "build", *options], project)
    ran(["cmake", "--build", "build"], project)
    return project / "build" / "app"


@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")
@pytest.mark.parametrize("config", ["NO_ASM", "TRACE"])
def test_the_example_builds_with_each_option_and_finds_a_wrong_byte(config: str, tiny: Path, tmp_path: Path) -> None:
    for name in ("spotter", "branches"):
        component(tiny / f"{name}.tflite", tmp_path)
    options = [f"-DCMAKE_C_FLAGS={WARNINGS}", f"-DCONFIG_EMITC_SPOTTER_{config}=y"]
    options.append(f"-DCONFIG_EMITC_BRANCHES_{config}=y")
    assert ran([str(built(tmp_path, *options))], tmp_path) == "MATCH\n"
    flags = {path.parent.name: path.read_text(encoding="utf-8") for path in tmp_path.rglob("flags.make")}
    with_option = {name for name, text in flags.items() if f"-DEMITC_{config}" in text}
    assert with_option >= {"spotter.dir", "branches.dir", "main.dir"}, "a component, and what uses it"
    with_one_byte_changed(tmp_path / "spotter/examples/check/main/spotter_check.h", "spotter_check_output_0")
    ran(["cmake", "--build", "build"], tmp_path)
    assert ran([str(tmp_path / "build" / "app")], tmp_path) == "MISMATCH in output 0\n"


def platform_options(target: str) -> list[str]:
    """CMake's options for the compiler of a RISC-V target, with what boots on `qemu_rv32`."""
    folder = boards_dir() / "platform"
    described = json.loads((folder / "boards" / "qemu_rv32.json").read_text(encoding="utf-8"))["build"]
    symbols = [
        f"-Wl,--defsym=__{region}_{what}={value}"
        for region, bounds in described["memory"].items()
        for what, value in zip(("org", "len"), bounds, strict=True)
    ]
    link = ["-nostartfiles", "-Wl,--no-warn-rwx-segments", *symbols, f"-L{folder / 'ldscripts'}"]
    link += [f"-T{folder / 'ldscripts' / described['isa']}.ld"]
    flags = [*load_target(target).compiler_flags, "-mcmodel=medany", "--specs=picolibc.specs"]
    flags += [WARNINGS, f"-I{folder / 'runtime'}", "-DF_CPU=1000000L", "-DEMITC_ICOUNT_SHIFT=0"]
    sources = ";".join(str(path) for path in sorted((folder / "runtime").glob("*.c")))
    return [
        "-DCMAKE_SYSTEM_NAME=Generic",
        "-DCMAKE_C_COMPILER=riscv64-unknown-elf-gcc",
        "-DCMAKE_TRY_COMPILE_TARGET_TYPE=STATIC_LIBRARY",
        f"-DCMAKE_C_FLAGS={' '.join(flags)}",
        f"-DCMAKE_EXE_LINKER_FLAGS={' '.join(link)}",
        f"-DBOARD={sources}",
    ]


@pytest.mark.board
@NEEDS_RISCV
@pytest.mark.parametrize("target", RISCV)
def test_the_example_boots_with_the_flags_of_the_chip(target: str, tiny: Path, tmp_path: Path) -> None:
    """Compiled for the instruction set of the chip, and run on an emulated core that has it."""
    for name in ("spotter", "branches"):
        component(tiny / f"{name}.tflite", tmp_path, target)
    options = platform_options(target)
    (tmp_path / "start.c").write_text(START, encoding="ascii")
    stand_in = STAND_IN.replace("add_executable(app start.c)", "add_executable(app start.c ${BOARD})")
    (tmp_path / "CMakeLists.txt").write_text(stand_in, encoding="ascii")
    ran(["cmake", "-S", ".", "-B", "build", *options], tmp_path)
    ran(["cmake", "--build", "build"], tmp_path)
    assert boot(load_board("qemu_rv32"), tmp_path / "build" / "app", (), timeout=60) == "MATCH\n"

"""Packages that call CMSIS-NN in a firmware project: CMake and PlatformIO compile the library's files from its folder."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from emitc.backends.cmsis_nn.definition import NAME
from emitc.boards import build
from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.target import boards_dir
from emitc.verify.reference import random_samples, run_reference
from tests.support.cmsis.library import SKIPPED, trees

MODEL = Path(__file__).resolve().parents[3] / "examples" / "models" / "digits_int8.tflite"
TREES = trees()
pytestmark = pytest.mark.skipif(not TREES, reason=SKIPPED)

MAIN = """\
#include "digits_int8.h"
@include@

_Alignas(16) static unsigned char arena[DIGITS_INT8_ARENA_BYTES];
static const signed char image[] = {@image@};

int main(void)
{
    digits_int8_t model;
    if (digits_int8_init(&model, arena, sizeof arena, NULL, 0) != EMITC_OK) {
        return 1;
    }
    int8_t *const input = digits_int8_input_0(&model);
    for (size_t i = 0; i < sizeof image; i++) {
        input[i] = image[i];
    }
    if (digits_int8_run(&model) != EMITC_OK) {
        return 2;
    }
    hex(digits_int8_output_0(&model), DIGITS_INT8_OUTPUT_0_BYTES);
    return 0;
}
"""
ON_HOST = """\
#include <stdio.h>
static void hex(const int8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        printf("%02x", (unsigned)(unsigned char)bytes[i]);
    }
}"""
ON_BOARD = """\
#include "emitc_board.h"
static void hex(const int8_t *bytes, size_t n)
{
    emitc_print_hex((const uint8_t *)bytes, (uint32_t)n);
}"""


def compiled(package: str, target: str) -> Compiled:
    options = {NAME: str(TREES[0].root)}
    return compile_model(MODEL, kernels=NAME, package=package, target=target, backends=options)


def firmware(made: Compiled, printing: str) -> tuple[str, str]:
    """main.c, and what it has to print by the numpy references."""
    sample = random_samples(made.graph, 1, 5)[0]
    values = run_reference(made.graph, sample)
    image = ", ".join(map(str, sample[0].reshape(-1).tolist()))
    text = MAIN.replace("@include@", printing).replace("@image@", image)
    return text, values[made.graph.outputs[0]].tobytes().hex()


@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")
def test_a_cmake_package_compiles_the_library_from_its_folder(tmp_path: Path) -> None:
    made = compiled("cmake", "host")
    made.write(tmp_path / "digits")
    text, printed = firmware(made, ON_HOST)
    (tmp_path / "main.c").write_text(text, encoding="ascii")
    support = made.support("host")
    lines = [f"#include <{header}>" for header in support.headers]
    lines += ["#define " + define.replace("=", " ", 1) for define in support.defines]
    (tmp_path / "host.h").write_text("\n".join(lines) + "\n", encoding="ascii")
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.13)\nproject(app C)\ninclude_directories(.)\nadd_compile_options(-include host.h)\n"
        "add_subdirectory(digits)\n"
        "add_executable(app main.c)\ntarget_link_libraries(app PRIVATE digits_int8)\n",
        encoding="ascii",
    )

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    without = run("cmake", "-S", ".", "-B", "without")
    assert without.returncode != 0
    assert "set CMSIS_NN_PATH to its folder" in " ".join(without.stderr.split())
    for command in (
        ["cmake", "-S", ".", "-B", "build", f"-DCMSIS_NN_PATH={TREES[0].root}"],
        ["cmake", "--build", "build"],
        ["build/app"],
    ):
        done = run(*command)
        assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == printed


@pytest.mark.board
@pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")), reason="needs the Arm tools and QEMU"
)
def test_a_platformio_package_compiles_the_library_from_its_folder(tmp_path: Path) -> None:
    made = compiled("platformio", "cortex-m4")
    project = tmp_path / "project"
    made.write(project / "lib" / "digits")
    shutil.copytree(boards_dir() / "platform", project / "platform", ignore=shutil.ignore_patterns("__pycache__"))
    text, printed = firmware(made, ON_BOARD)
    (project / "src").mkdir()
    (project / "src" / "main.c").write_text(text, encoding="ascii")

    def run(*options: str) -> subprocess.CompletedProcess[str]:
        (project / "platformio.ini").write_text(
            "[platformio]\nplatforms_dir = .pio/platforms\n[env:qemu_m4]\n"
            "platform = symlink://${PROJECT_DIR}/platform\nboard = qemu_m4\n" + "".join(f"{o}\n" for o in options),
            encoding="ascii",
        )
        command = [*build.pio_command(), "run", "-d", str(project), "-t", "upload"]
        env = build.environment(tmp_path / "core")
        return subprocess.run(command, env=env, capture_output=True, text=True, check=False)

    without = run()
    assert without.returncode != 0
    assert "set custom_cmsis_nn_path in platformio.ini to its folder" in without.stdout + without.stderr
    done = run(f"custom_cmsis_nn_path = {TREES[0].root}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert printed in done.stdout


def test_a_zephyr_module_selects_the_library() -> None:
    assert "\tselect CMSIS_NN\n" in compiled("zephyr", "cortex-m4").files["zephyr/Kconfig"].decode()

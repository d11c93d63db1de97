"""The PlatformIO platform itself: the SCons that it lends, its own commands, and what an image holds."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from emitc.boards import build, run
from emitc.boards.elf import addresses, image_sizes
from emitc.boards.project import Firmware, write_qemu_project
from emitc.target import boards_dir, load_board
from tests.support.board_standin import CASES, MODEL, write_package

FLAGS = "-std=c11 -O2 -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wcast-qual -Wcast-align=strict"
FLAGS += " -Wundef -Wmissing-prototypes -Wdouble-promotion -Wvla -Werror -DF_CPU=16000000L -DEMITC_ICOUNT_SHIFT=6"
CORES = {
    "m0": "arm-none-eabi-gcc --specs=nano.specs -mthumb -mcpu=cortex-m0",
    "m55": "arm-none-eabi-gcc --specs=nano.specs -mthumb -mcpu=cortex-m55 -mfloat-abi=hard",
    "rv32": "riscv64-unknown-elf-gcc --specs=picolibc.specs -march=rv32imac -misa-spec=2.2 -mabi=ilp32",
}


def test_platformio_accepts_the_scons_that_the_platform_lends() -> None:
    """Fails when a new PlatformIO wants another version: raise that of tools/tool-scons, and pip's SCons with it."""
    semver = pytest.importorskip("semantic_version")
    dependencies = pytest.importorskip("platformio.dependencies").get_core_dependencies()
    for name in ("tool-scons", "tool-cppcheck"):
        package = boards_dir() / "platform" / "tools" / name / "package.json"
        version = json.loads(package.read_text(encoding="utf-8"))["version"]
        assert semver.Version(version) in semver.SimpleSpec(dependencies[name])


@pytest.mark.parametrize("core", CORES)
def test_the_runtimes_sources_are_free_of_warnings(core: str, tmp_path: Path) -> None:
    compiler = CORES[core].split()
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"{compiler[0]} is not installed")
    root = boards_dir()
    for folder in ("platform/runtime", "proof", "silicon"):
        for source in sorted((root / folder).glob("*.c")):
            include = ["-I", str(root / "platform" / "runtime")]
            command = [*compiler, *FLAGS.split(), "-DEMITC_TRACE", *include, "-c", str(source), "-o", "/dev/null"]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr


@pytest.mark.board
@pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")), reason="needs the Arm tools and QEMU"
)
def test_the_projects_own_upload_boots_it_and_a_firmware_that_fails_fails_it(tmp_path: Path) -> None:
    project = tmp_path / "project"
    package = write_package(tmp_path / "package")
    write_qemu_project(Firmware(package, MODEL, CASES), load_board("qemu_m4"), project, with_timer=True)
    command = [*build.pio_command(), "run", "-d", str(project), "-t", "upload"]
    env = build.environment(tmp_path / "core")
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\nemitc begin 1 qemu_m4\nemitc counter instructions\n" in done.stdout
    assert "\nemitc done\n" in done.stdout

    image = project / ".pio" / "build" / "plain" / "firmware.elf"
    sizes = image_sizes(image)
    assert sizes.cases_bytes == 16
    assert sizes.data_bytes == 0
    assert sizes.ram_bytes >= MODEL.arena_bytes
    assert sizes.flash_bytes > sizes.model_flash_bytes + sizes.cases_bytes
    assert addresses(image, ("emitc_count_begin", "no_such_symbol")).keys() == {"emitc_count_begin"}

    main = project / "src" / "main.c"
    main.write_text(main.read_text(encoding="utf-8").replace("return 0;", "return 3;"), encoding="utf-8")
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode != 0


def test_nothing_that_a_firmware_prints_is_lost_where_the_reader_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """QEMU writes its console without waiting: a full pipe would take a part of a line."""
    written = "import os; os.set_blocking(1, False); count = os.write(1, b'x' * 300_000 + b'\\r\\n')"
    monkeypatch.setattr(run, "_qemu_command", lambda *_: [sys.executable, "-c", written])
    printed = run.boot(load_board("qemu_m4"), Path("none.elf"), (), timeout=60.0)
    assert printed == "x" * 300_000 + "\n"

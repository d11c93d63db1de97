"""Projects for real boards: PlatformIO's linter accepts each, and a recorded serial line is read as a result."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from board_standin import CASES, MODEL, write_package

from emitc.boards import build
from emitc.boards import flash as flash_module
from emitc.boards.flash import flash
from emitc.boards.project import write_flash_project
from emitc.errors import CannotCompile, EmitcError
from emitc.target import boards, load_board

REAL = [name for name in boards() if load_board(name).kind == "silicon"]
FLAGS = (
    "-std=c11 -Wall -Wextra -Wpedantic -Wconversion -Wsign-conversion -Wshadow -Wcast-qual -Wcast-align=strict -Wundef"
)
FLAGS += " -Wmissing-prototypes -Wdouble-promotion -Wvla -Werror"


@pytest.mark.parametrize("name", REAL)
def test_every_real_boards_project_passes_the_linter(name: str, tmp_path: Path) -> None:
    project = tmp_path / "project"
    write_flash_project(write_package(tmp_path / "package"), MODEL, load_board(name), CASES, project)
    command = [*build.pio_command(), "project", "config", "--lint", "-d", str(project)]
    done = subprocess.run(
        command, env=build.environment(tmp_path / "core"), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "is free from linting errors" in done.stdout
    ini = (project / "platformio.ini").read_text(encoding="utf-8")
    assert f"[env:{name}]" in ini
    assert f"board = {load_board(name).platformio.board}\n" in ini


def test_the_linter_finds_an_unknown_option(tmp_path: Path) -> None:
    (tmp_path / "platformio.ini").write_text("[env:x]\nplatform = y\nuplod_speed = 3\n", encoding="utf-8")
    command = [*build.pio_command(), "project", "config", "--lint", "-d", str(tmp_path)]
    env = build.environment(tmp_path / "core")
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert "is free from linting errors" not in done.stdout


@pytest.mark.skipif(shutil.which("arm-none-eabi-gcc") is None, reason="needs arm-none-eabi-gcc")
@pytest.mark.parametrize("traced", [False, True], ids=["plain", "traced"])
@pytest.mark.parametrize("timer", [False, True], ids=["plugin", "timer"])
@pytest.mark.parametrize("compiler", ["gcc", "arm-none-eabi-gcc -mthumb -mcpu=cortex-m4"])
def test_the_proofs_sources_are_free_of_warnings(compiler: str, timer: bool, traced: bool, tmp_path: Path) -> None:
    project = tmp_path / "project"
    write_flash_project(write_package(tmp_path / "package"), MODEL, load_board("nucleo_f446re"), CASES, project)
    defines = [*(["-DEMITC_COUNT_WITH_TIMER"] if timer else []), *(["-DEMITC_TRACE"] if traced else [])]
    include = ["-I", str(project / "lib" / "model" / "include")]
    for source in sorted((project / "src").glob("*.c")):
        command = [*compiler.split(), *FLAGS.split(), *defines, *include, "-c", str(source), "-o", "/dev/null"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    package = write_package(tmp_path / "package")
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").write_text("years of work")
    with pytest.raises(EmitcError, match="is not empty"):
        write_flash_project(package, MODEL, load_board("pico"), CASES, mine)
    project = tmp_path / "project"
    for name in ("pico", "esp32s3"):  # its own project it does replace
        write_flash_project(package, MODEL, load_board(name), CASES, project)
    assert not (project / "src" / "main.cpp").exists()


def test_an_emulated_board_is_not_flashed(tmp_path: Path) -> None:
    with pytest.raises(EmitcError, match="is emulated"):
        write_flash_project(write_package(tmp_path / "p"), MODEL, load_board("qemu_m4"), CASES, tmp_path / "out")


PRINTED = """\
garbage of a boot loader
emitc output 1 0 0 8382
emitc begin 1 nucleo_f446re
emitc counter cycles
emitc check 0 200010
emitc layer 0 0 4 30
emitc layer 0 1 4 21
emitc run 0 24 99
emitc output 0 0 0 07060504
emitc differ 0 0 0
emitc layer 1 0 4 31
emitc layer 1 1 4 22
emitc run 1 28 101
emitc output 1 0 0 83820300
emitc differ 1 0 0
emitc done
"""


@pytest.fixture
def attached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose PlatformIO is a script that uploads at once and monitors what lies in `serial.txt`."""
    project = tmp_path / "project"
    write_flash_project(write_package(tmp_path / "package"), MODEL, load_board("nucleo_f446re"), CASES, project)
    image = project / ".pio" / "build" / "nucleo_f446re" / "firmware.elf"
    image.parent.mkdir(parents=True)
    shutil.copyfile(Path(sys.executable).resolve(), image)
    script = tmp_path / "pio.py"
    script.write_text(
        "import pathlib, sys, time\n"
        "if 'monitor' in sys.argv:\n"
        f"    print(pathlib.Path({str(tmp_path / 'serial.txt')!r}).read_text(), flush=True)\n"
        "    time.sleep(60)\n"
        f"sys.exit(pathlib.Path({str(tmp_path / 'no_board')!r}).exists() and print('no probe found') is None)\n"
    )
    monkeypatch.setattr(flash_module, "pio_command", lambda: [sys.executable, str(script)])
    return project


def test_an_attached_board_is_read_until_its_proof_is_complete(attached: Path) -> None:
    (attached.parent / "serial.txt").write_text(PRINTED)
    result = flash(attached, MODEL, load_board("nucleo_f446re"), CASES, timeout=30)
    assert result.match
    assert (result.unit, result.cycles, result.instructions, result.stack_bytes) == ("cycles", 101, None, 28)
    assert result.layers is not None
    assert [each.count for each in result.layers] == [31, 22]
    assert result.as_json()["cycles"] == 101


def test_a_wrong_byte_from_a_real_board_is_no_match(attached: Path) -> None:
    (attached.parent / "serial.txt").write_text(
        PRINTED.replace("83820300", "83820301").replace("differ 1 0 0", "differ 1 0 1")
    )
    result = flash(attached, MODEL, load_board("nucleo_f446re"), CASES, timeout=30)
    assert (result.match, result.differing_bytes) == (False, 1)


def test_a_board_that_contradicts_itself_is_not_believed(attached: Path) -> None:
    (attached.parent / "serial.txt").write_text(PRINTED.replace("83820300", "83820301"))
    with pytest.raises(CannotCompile, match="contradicts itself"):
        flash(attached, MODEL, load_board("nucleo_f446re"), CASES, timeout=30)


def test_a_silent_board_ends_in_time(attached: Path) -> None:
    (attached.parent / "serial.txt").write_text("emitc begin 1 nucleo_f446re\n")
    with pytest.raises(CannotCompile, match="no complete proof arrived within 1 s"):
        flash(attached, MODEL, load_board("nucleo_f446re"), CASES, timeout=1)


def test_a_failed_upload_is_shown(attached: Path) -> None:
    (attached.parent / "no_board").touch()
    with pytest.raises(CannotCompile, match="no probe found"):
        flash(attached, MODEL, load_board("nucleo_f446re"), CASES, timeout=1)

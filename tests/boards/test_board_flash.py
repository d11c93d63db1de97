"""Projects for real boards: PlatformIO's linter accepts each, and a recorded serial line is read as a result."""

from __future__ import annotations

import http.server
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from serial.tools import list_ports

from emitc.boards import build, serial_port
from emitc.boards import flash as flash_module
from emitc.boards.flash import flash
from emitc.boards.project import TRACED, Firmware, write_flash_project, write_qemu_project
from emitc.boards.result import RunResult
from emitc.boards.run import TIMER_TOLERANCE, boot, run_on_board
from emitc.errors import CannotCompile, EmitcError, Where
from emitc.target import boards, load_board, load_target
from tests.support.board_standin import CASES, MODEL, needs_boards, write_package
from tests.support.serial_line import serial_line

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


ESP_CPU = """\
#include <stdint.h>
uint32_t esp_cpu_get_cycle_count(void);
"""
"""What of ESP-IDF's header of that name the proof uses."""


@pytest.mark.skipif(shutil.which("riscv64-unknown-elf-gcc") is None, reason="needs riscv64-unknown-elf-gcc")
@pytest.mark.parametrize(("name", "megabytes"), [("esp32c3", 4), ("esp32c6", 8), ("esp32p4", 16)])
def test_cycles_on_espressif_chips_are_those_that_esp_idf_reads(name: str, megabytes: int, tmp_path: Path) -> None:
    """Their cores have no `mcycle`, or one that user code need not have: the framework's function knows."""
    project, board = tmp_path / "project", load_board(name)
    write_flash_project(write_package(tmp_path / "package"), MODEL, board, CASES, project)
    defaults = (project / "sdkconfig.defaults").read_text(encoding="utf-8")
    assert f"CONFIG_ESPTOOLPY_FLASHSIZE_{megabytes}MB=y\n" in defaults
    (tmp_path / "esp_cpu.h").write_text(ESP_CPU, encoding="ascii")
    flags = ["--specs=picolibc.specs", *load_target(board.target).compiler_flags, *FLAGS.split(), "-O2"]
    flags += ["-DESP_PLATFORM", f"-I{tmp_path}"]
    source = str(project / "src" / "cycles.c")
    assembly = subprocess.run(
        ["riscv64-unknown-elf-gcc", *flags, "-S", source, "-o", "-"], capture_output=True, text=True, check=False
    )
    assert assembly.returncode == 0, assembly.stderr
    assert "esp_cpu_get_cycle_count" in assembly.stdout
    assert "cycle\n" not in assembly.stdout and "csrr" not in assembly.stdout


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


def test_a_link_in_a_project_is_not_followed(tmp_path: Path) -> None:
    package = write_package(tmp_path / "package")
    project, mine = tmp_path / "project", tmp_path / "mine"
    write_flash_project(package, MODEL, load_board("pico"), CASES, project)
    (project / "src").rename(mine)
    (project / "src").symlink_to(mine)
    before = {path.name: path.read_bytes() for path in mine.iterdir()}
    with pytest.raises(EmitcError, match="is a link"):
        write_flash_project(package, MODEL, load_board("esp32s3"), CASES, project)
    assert {path.name: path.read_bytes() for path in mine.iterdir()} == before


def test_the_folder_of_an_emulated_board_may_hold_nothing_else(tmp_path: Path) -> None:
    package, project = write_package(tmp_path / "package"), tmp_path / "work" / "project"
    board = load_board("qemu_m4")
    project.mkdir(parents=True)
    (project / "thesis.txt").write_text("years of work")
    with pytest.raises(EmitcError, match="is not empty") as refused:
        write_qemu_project(Firmware(package, MODEL, CASES), board, project, with_timer=False)
    assert refused.value.where.option == "--workdir" and (project / "thesis.txt").exists()
    (project / "thesis.txt").unlink()
    for _ in range(2):  # its own project it does replace
        write_qemu_project(Firmware(package, MODEL, CASES), board, project, with_timer=False)
    assert (project / "src" / "main.c").is_file()


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
    """A project whose PlatformIO is a script that uploads at once."""
    project = tmp_path / "project"
    write_flash_project(write_package(tmp_path / "package"), MODEL, load_board("nucleo_f446re"), CASES, project)
    image = project / ".pio" / "build" / "nucleo_f446re" / "firmware.elf"
    image.parent.mkdir(parents=True)
    shutil.copyfile(Path(sys.executable).resolve(), image)
    script = tmp_path / "pio.py"
    script.write_text(
        "import pathlib, sys, time\n"
        f"said = pathlib.Path({str(tmp_path / 'said.py')!r})\n"
        "exec(said.read_text() if said.exists() else '')\n"
    )
    monkeypatch.setenv("PLATFORMIO_CORE_DIR", str(tmp_path / "core"))
    (tmp_path / "core" / "platforms" / "ststm32").mkdir(parents=True)
    monkeypatch.setattr(flash_module, "pio_command", lambda: [sys.executable, str(script)])
    return project


def _flashed(attached: Path, printed: str, timeout: float = 30, pause: float = 0.05) -> RunResult:
    """The result of a board that prints a text, again and again."""
    with serial_line(lambda turn: printed.encode(), pause) as port:
        return flash(attached, MODEL, load_board("nucleo_f446re"), CASES, timeout=timeout, port=port)


def test_an_attached_board_is_read_until_its_proof_is_complete(attached: Path) -> None:
    result = _flashed(attached, PRINTED)
    assert result.match
    assert (result.unit, result.cycles, result.instructions, result.stack_bytes) == ("cycles", 101, None, 28)
    assert result.layers is not None
    assert [each.count for each in result.layers] == [31, 22]
    assert result.as_json()["cycles"] == 101


@pytest.mark.parametrize("layers", [False, True])
def test_a_project_has_the_layer_hook_where_layers_are_asked_for(layers: bool, tmp_path: Path) -> None:
    project = tmp_path / "project"
    board = load_board("nucleo_f446re")
    write_flash_project(write_package(tmp_path / "package"), MODEL, board, CASES, project, layers=layers)
    ini = (project / "platformio.ini").read_text(encoding="utf-8")
    assert ("-DEMITC_TRACE" in ini) is layers


@needs_boards
@pytest.mark.parametrize("name", ["qemu_m4", "qemu_rv32"])
def test_an_emulated_board_counts_its_layers_over_a_serial_line(name: str, attached: Path, tmp_path: Path) -> None:
    """By the timer, as a real board does, and close to what the plugin counts."""
    board, firmware = load_board(name), Firmware(tmp_path / "package", MODEL, CASES)
    work = tmp_path / "work"
    write_qemu_project(firmware, board, work / "project", with_timer=True)
    (image,) = build.build(work / "project", (TRACED,), board, core_dir=work / "core", log=work / "log")
    said = boot(board, image, (), timeout=60).encode()
    with serial_line(lambda turn: said) as port:
        result = flash(attached, MODEL, load_board("nucleo_f446re"), CASES, timeout=30, port=port)
    counted = run_on_board(firmware, board, layers=True, workdir=tmp_path / "counted")
    assert result.match and counted.layers is not None and result.layers is not None
    assert (result.unit, result.counter) == ("instructions", "timer")
    assert [(each.index, each.op, each.macs) for each in result.layers] == [(0, "ADD", 4), (1, "REVERSE", 0)]
    for seen, exact in zip(result.layers, counted.layers, strict=True):
        assert 0 <= seen.count - exact.count <= TIMER_TOLERANCE


def test_a_wrong_byte_from_a_real_board_is_no_match(attached: Path) -> None:
    printed = PRINTED.replace("83820300", "83820301").replace("differ 1 0 0", "differ 1 0 1")
    result = _flashed(attached, printed)
    assert (result.match, result.differing_bytes) == (False, 1)


def test_a_board_that_contradicts_itself_is_not_believed(attached: Path) -> None:
    with pytest.raises(CannotCompile, match="contradicts itself"):
        _flashed(attached, PRINTED.replace("83820300", "83820301"))


def test_a_silent_board_ends_in_time(attached: Path) -> None:
    with pytest.raises(CannotCompile, match="no complete proof arrived within 1 s") as error:
        _flashed(attached, "emitc begin 1 nucleo_f446re\n", timeout=1, pause=30)
    assert error.value.why == "the last line was: emitc begin 1 nucleo_f446re"


def test_without_a_port_the_only_one_is_taken(attached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Port:
        def __init__(self, device: str, vid: int | None) -> None:
            self.device, self.vid = device, vid

    ports: list[Port] = [Port("/dev/ttyS0", None)]
    monkeypatch.setattr(list_ports, "comports", lambda: ports)
    board = load_board("nucleo_f446re")
    with pytest.raises(CannotCompile, match="the board's serial port is not known") as error:
        flash(attached, MODEL, board, CASES, timeout=1)
    assert error.value.why == "no USB serial port is attached"
    with serial_line(lambda turn: PRINTED.encode()) as port:
        ports.append(Port(port, 0x483))
        assert flash(attached, MODEL, board, CASES, timeout=30).match
    ports.append(Port("/dev/ttyACM7", 0x2341))
    with pytest.raises(CannotCompile, match=f"several are attached: {port}, /dev/ttyACM7"):
        flash(attached, MODEL, board, CASES, timeout=1)


def test_a_port_that_is_not_there_or_goes_away_is_named(
    attached: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serial_port, "_OPEN_SECONDS", 0.1)
    gone = str(tmp_path / "ttyUSB9")
    with pytest.raises(CannotCompile, match="ttyUSB9 cannot be read") as error:
        flash(attached, MODEL, load_board("nucleo_f446re"), CASES, timeout=30, port=gone)
    assert "No such file" in error.value.why and "--port" in error.value.hint
    with pytest.raises(CannotCompile, match="nonsense://x cannot be read"):
        flash(attached, MODEL, load_board("nucleo_f446re"), CASES, timeout=30, port="nonsense://x")


def test_a_line_without_an_end_is_cut() -> None:
    with serial_line(lambda turn: b"x" * 3 * serial_port.LONGEST_LINE) as port:
        line = next(serial_port.read_lines(port, 115200, 30, Where(option="--port")))
    assert line == "x" * serial_port.LONGEST_LINE


def _failure(attached: Path, script: str, say: Callable[[str], None] = lambda line: None) -> CannotCompile:
    """How `flash` fails where PlatformIO runs a script."""
    (attached.parent / "said.py").write_text(script)
    with pytest.raises(CannotCompile) as caught:
        flash(attached, MODEL, load_board("nucleo_f446re"), CASES, timeout=1, say=say)
    return caught.value


def test_a_failed_upload_is_shown(attached: Path) -> None:
    error = _failure(attached, "print('Uploading .pio/firmware.elf'); print('no probe found'); sys.exit(1)")
    assert error.what == "uploading to ST Nucleo-F446RE failed"
    assert error.why == "Uploading .pio/firmware.elf | no probe found"
    assert error.hint.startswith("attach the board and name its port with --port, or run it by hand: pio run -d ")


def test_a_failed_build_says_nothing_of_the_board(attached: Path) -> None:
    error = _failure(attached, "print('src/proof.c:3: error: no such thing'); sys.exit(1)")
    assert error.what == "the build for nucleo_f446re failed"
    assert error.why == "src/proof.c:3: error: no such thing"
    assert error.hint == f"the whole output is in {attached / 'build.log'}"
    assert "no such thing" in (attached / "build.log").read_text(encoding="utf-8")


def test_a_download_that_fails_while_building_is_named(attached: Path) -> None:
    error = _failure(attached, "print('Tool Manager: Installing toolchain'); print('HTTPClientError: '); sys.exit(1)")
    assert error.what == "PlatformIO cannot download what ST Nucleo-F446RE needs (ststm32@~19.6)"
    assert error.why == "HTTPClientError:"
    assert "HTTPS_PROXY" in error.hint and "attach" not in error.hint


def test_a_platform_out_of_reach_is_refused_before_pio_starts(attached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.rmtree(attached.parent / "core")
    asked: list[str] = []
    monkeypatch.setattr(flash_module, "answers", lambda url: bool(asked.append(url)))
    error = _failure(attached, f"open({str(attached.parent / 'started')!r}, 'w')")
    assert error.what == "PlatformIO cannot download what ST Nucleo-F446RE needs (ststm32@~19.6)"
    assert error.why == f"it is not installed, and {flash_module.REGISTRY} does not answer"
    assert 'pio pkg install -g -p "ststm32@~19.6"' in error.hint
    assert asked == [flash_module.REGISTRY] and not (attached.parent / "started").exists()


@pytest.mark.parametrize(
    ("board", "source"),
    [("pico", flash_module.REGISTRY), ("pico2", "https://github.com"), ("esp32s3", flash_module.REGISTRY)],
)
def test_each_platform_is_looked_for_where_it_comes_from(
    board: str, source: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    described = load_board(board)
    name = {"pico": "raspberrypi@1.19.0", "pico2": "raspberrypi", "esp32s3": "espressif32"}[board]
    asked: list[str] = []
    monkeypatch.setattr(flash_module, "answers", lambda url: bool(asked.append(url)))
    (tmp_path / "platforms" / "raspberry").mkdir(parents=True)
    with pytest.raises(CannotCompile):
        flash_module.require_platform(described, Where(option="--board"), tmp_path)
    assert asked == [source]
    (tmp_path / "platforms" / name).mkdir()
    flash_module.require_platform(described, Where(option="--board"), tmp_path)
    assert asked == [source]


def test_any_answer_is_an_answer_and_none_is_not() -> None:
    class Refuse(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.send_error(404)

        def log_message(self, *arguments: object) -> None:
            """Nothing on the terminal."""

    with http.server.HTTPServer(("127.0.0.1", 0), Refuse) as server:
        url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.handle_request, daemon=True).start()
        assert flash_module.answers(url)
    assert not flash_module.answers(url)


def test_the_build_is_shown_while_it_runs(attached: Path) -> None:
    said: list[tuple[str, float]] = []
    _failure(
        attached,
        "print('Compiling a', flush=True); time.sleep(0.5); print(); print('Compiling b\x1b[0m'); sys.exit(1)",
        lambda line: said.append((line, time.monotonic())),
    )
    assert said[0][0].startswith("building for ST Nucleo-F446RE: pio run -d ")
    assert [line for line, _ in said[1:]] == ["Compiling a", "Compiling b\\u001b[0m"]
    assert said[2][1] - said[1][1] > 0.3


def test_a_build_without_end_is_ended_with_all_that_it_started(attached: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flash_module, "BUILD_SECONDS", 1.0)
    child = attached.parent / "child"
    error = _failure(
        attached,
        "import subprocess\n"
        "started = subprocess.Popen(['sleep', '60'])\n"
        f"pathlib.Path({str(child)!r}).write_text(str(started.pid))\n"
        "print('Compiling a', flush=True); time.sleep(60)",
    )
    assert error.what == "the build for ST Nucleo-F446RE did not end"
    assert error.why == "PlatformIO was still running after 1 s; it printed: Compiling a"
    assert _ends(int(child.read_text()))


def _ends(pid: int) -> bool:
    """Whether a process that was sent a signal ends within five seconds: the kernel delivers it when the process runs next."""
    state = Path(f"/proc/{pid}/stat")
    for _ in range(100):
        try:
            if state.read_text().split()[2] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.05)
    return False

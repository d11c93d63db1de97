"""Building a project with PlatformIO, and saying in one message why it did not build."""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from emitc.errors import CannotCompile, Where, install_hint
from emitc.target import Board, Target
from emitc.verify.build import captured

BUILD_SECONDS = 600.0
_SHOWN_LINES = 6
_OVERFLOW = re.compile(r"region `(FLASH|RAM)' overflowed by (\d+) bytes")
_NO_STACK = "are left for the stack"
_TELLING = re.compile(r"error|undefined reference|No such file|overflowed|Unknown|not found", re.IGNORECASE)


def pio_command() -> list[str]:
    """PlatformIO as a command; CannotCompile where it, or the SCons that it runs, is not installed."""
    for module, package in (("platformio", "platformio"), ("SCons", "scons")):
        if importlib.util.find_spec(module) is None:
            why = "boards are built with PlatformIO, which runs SCons"
            raise CannotCompile(f"{package} is not installed", Where(option="--board"), why, install_hint("boards"))
    return [sys.executable, "-m", "platformio"]


def check_tools(board: Board, target: Target, emulator: str | None) -> None:
    """Raises CannotCompile where a cross compiler or the emulator is not on PATH. emulator: None where none is used."""
    linker = f"{target.compiler_prefix}gcc"
    packages = {
        "arm-none-eabi-gcc": "gcc-arm-none-eabi libnewlib-arm-none-eabi",
        "riscv64-unknown-elf-gcc": "gcc-riscv64-unknown-elf picolibc-riscv64-unknown-elf",
        "clang-19": "clang-19",
        "qemu-system-arm": "qemu-system-arm",
        "qemu-system-riscv32": "qemu-system-misc",
    }
    uses = {linker: "links for", target.c_compiler: "compiles for", emulator: "emulates"}
    for tool, use in uses.items():
        if tool is not None and shutil.which(tool) is None:
            why = f"it {use} {board.title}, and is not on PATH"
            hint = f"on Debian and Ubuntu: apt-get install {packages.get(tool, tool)}"
            raise CannotCompile(f"{tool} is not installed", Where(option=f"--board {board.name}"), why, hint)


def environment(core_dir: Path | None) -> dict[str, str]:
    """The environment for PlatformIO: no telemetry, no upgrade check, and no setting of the caller's shell.

    core_dir: where it keeps its packages; None keeps the user's own, which has the toolchains of real boards.
    """
    keep = {"PLATFORMIO_CORE_DIR"} if core_dir is None else set()
    env = {name: value for name, value in os.environ.items() if not name.startswith("PLATFORMIO_") or name in keep}
    env["PLATFORMIO_SETTING_ENABLE_TELEMETRY"] = "no"
    env["PLATFORMIO_DISABLE_UPGRADE_CHECK"] = "true"
    if core_dir is not None:
        env["PLATFORMIO_CORE_DIR"] = str(core_dir)
    return env


def build(project: Path, names: Sequence[str], board: Board, *, core_dir: Path, log: Path) -> list[Path]:
    """Builds the project's environments `names` and returns their ELF files; the whole output is written to `log`.

    Raises CannotCompile with the lines that tell why, or with the bytes by which the image exceeds the board.
    """
    command = [*pio_command(), "run", "-d", str(project)]
    for name in names:
        command += ["-e", name]
    where = Where(option=f"--board {board.name}")
    try:
        settings = {"cwd": project.parent, "env": environment(core_dir), "timeout": BUILD_SECONDS}
        done = captured(command, stdin=subprocess.DEVNULL, **settings)
    except subprocess.TimeoutExpired as error:
        why = f"PlatformIO was still running after {BUILD_SECONDS:g} s"
        hint = f"run it by hand: pio run -d {project}"
        raise CannotCompile("the board build did not end", where, why, hint) from error
    output = done.stdout + done.stderr
    log.write_text(output, encoding="utf-8")
    if done.returncode != 0:
        raise build_failure(output, board, where, log)
    return [project / ".pio" / "build" / name / "firmware.elf" for name in names]


def build_failure(output: str, board: Board, where: Where, log: Path) -> CannotCompile:
    """Why a build failed, by what PlatformIO printed. log: where all of it is."""
    over = {region: int(count) for region, count in _OVERFLOW.findall(output)}
    if over:
        size = {"FLASH": ("flash", board.flash_bytes), "RAM": ("RAM", board.ram_bytes)}
        parts = [f"{size[r][0]} is exceeded by {over[r]} bytes of {size[r][1]}" for r in sorted(over)]
        why = f"{'; '.join(parts)} (model, runtime, test cases and start-up code)"
        hint = "choose a larger board (`emitc boards`) or fewer test cases"
    elif _NO_STACK in output:
        why = f"static data leaves less than 1024 of {board.ram_bytes} bytes of RAM for the stack"
        hint = "choose a larger board (`emitc boards`)"
    if over or _NO_STACK in output:
        return CannotCompile(f"the image does not fit {board.title}", where, why, hint)
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    lines = [line for line in lines if _TELLING.search(line)] or lines
    why = " | ".join(lines[:_SHOWN_LINES]) or "PlatformIO printed nothing"
    return CannotCompile(f"the build for {board.name} failed", where, why, f"the whole output is in {log}")

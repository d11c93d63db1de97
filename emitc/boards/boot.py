"""Booting a firmware image on an emulated board."""

import importlib.util
import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from emitc.boards import protocol
from emitc.errors import CannotCompile, Where
from emitc.target import Board, boards_dir


def emulator(board: Board) -> str:
    """The program that emulates a board of kind "qemu"."""
    return f"qemu-system-{_manifest(board)['qemu']['system']}"


def _manifest(board: Board) -> dict[str, Any]:
    path = boards_dir() / "platform" / "boards" / f"{board.platformio.board}.json"
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def boot(board: Board, elf: Path, extra: Sequence[str], *, timeout: float) -> str:
    """What the firmware printed until it stopped. `extra`: further arguments of QEMU. `timeout`: seconds.

    Raises CannotCompile where it does not stop in time, faults, or leaves with another code than 0.
    """
    printed, error = booted(board, elf, extra, timeout=timeout)
    if error is not None:
        raise error
    return printed


def booted(board: Board, elf: Path, extra: Sequence[str], *, timeout: float) -> tuple[str, CannotCompile | None]:
    """What the firmware printed, and why it did not end well, as `boot` raises it; None where it did."""
    command = _qemu_command(_manifest(board), elf, extra)
    where = Where(option=f"--board {board.name}")
    # QEMU writes without waiting: what does not fit into a pipe whose reader is slow would be lost. A file takes everything.
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE, encoding="ascii", errors="replace"
        )
        with process:
            try:
                _, complaints = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                why = f"its last line was: {protocol.last_line(_printed(out))}"
                hint = "allow more time with --timeout, or fewer test cases"
                late = CannotCompile(f"the firmware did not stop within {timeout:g} s", where, why, hint)
                return _printed(out), late
            except BaseException:
                process.kill()
                raise
        printed = _printed(out)
    if process.returncode == 0:
        return printed, None
    why = protocol.fault(printed) or complaints.strip() or protocol.last_line(printed)
    what = "the firmware faulted" if protocol.fault(printed) else "the firmware did not end as it should"
    hint = f"look at it by hand: {' '.join(command)}"
    return printed, CannotCompile(f"{what} on {board.title}", where, f"exit code {process.returncode}: {why}", hint)


def _printed(out: IO[bytes]) -> str:
    out.seek(0)
    return out.read().decode("ascii", errors="replace").replace("\r\n", "\n")


def _qemu_command(manifest: dict[str, Any], elf: Path, extra: Sequence[str]) -> list[str]:
    # The platform's own module, so that `pio run -t upload` and this function start QEMU alike.
    path = boards_dir() / "platform" / "qemu.py"
    spec = importlib.util.spec_from_file_location("emitc_platform_qemu", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    command: list[str] = module.command(manifest, elf, extra)
    return command

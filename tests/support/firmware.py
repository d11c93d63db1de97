"""Small programs on emulated boards, built with the runtime's sources and the boards' own start-up code."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from emitc.boards.run import boot
from emitc.target import boards_dir, load_board
from tests.support.runtime import INCLUDES
from tests.support.runtime import SOURCE as RUNTIME_SOURCE


def run(command: list[str], folder: Path) -> str:
    """The command's stdout; a failure shows what it printed. Skips when the program is not installed."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, (done.stdout + done.stderr)[:4000]
    return done.stdout


def printed_by(source: str, board: str, flags: tuple[str, ...], folder: Path) -> str:
    """What a program prints on the board. Skips where an emulator or a compiler is not installed."""
    return boot(load_board(board), built(source, board, flags, folder), (), timeout=120)


def built(source: str, board: str, flags: tuple[str, ...], folder: Path) -> Path:
    """The image of a program for the board. Skips where an emulator or a compiler is not installed."""
    platform_dir = boards_dir() / "platform"
    manifest = json.loads((platform_dir / "boards" / f"{board}.json").read_text(encoding="utf-8"))
    described = manifest["build"]
    if shutil.which(f"qemu-system-{manifest['qemu']['system']}") is None:
        pytest.skip(f"qemu-system-{manifest['qemu']['system']} is not installed")
    (folder / "main.c").write_text(source, encoding="ascii")
    specs = {"cortex_m": "--specs=nano.specs", "riscv": "--specs=picolibc.specs"}[described["isa"]]
    symbols = [
        f"-Wl,--defsym=__{region}_{what}={value}"
        for region, bounds in described["memory"].items()
        for what, value in zip(("org", "len"), bounds, strict=True)
    ]
    command = [f"{described['toolchain']}gcc", specs, *described["arch_flags"], "-O2", "-std=c11", *flags]
    command += ["-DF_CPU=1000000L", f"-DEMITC_ICOUNT_SHIFT={manifest['qemu']['icount_shift']}"]
    command += ["-ffunction-sections", "-fno-tree-loop-distribute-patterns", "-nostartfiles", "-Wl,--gc-sections"]
    command += ["-Wl,--no-warn-rwx-segments", *symbols, *INCLUDES, f"-I{platform_dir / 'runtime'}"]
    command += [f"-L{platform_dir / 'ldscripts'}", f"-T{platform_dir / 'ldscripts' / described['isa']}.ld"]
    sources = [*sorted((platform_dir / "runtime").glob("*.c")), RUNTIME_SOURCE, folder / "main.c"]
    run([*command, *map(str, sources), "-o", "firmware.elf"], folder)
    return folder / "firmware.elf"

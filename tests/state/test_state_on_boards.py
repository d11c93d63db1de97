"""State on emulated boards: the cases are one sequence there too, however the run is counted."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from emitc.boards import counter, verify
from emitc.compiled import Compiled
from emitc.compiler import compile_model

pytest.importorskip("platformio", reason="PlatformIO, which builds for the boards, is not installed")
TOOLS = {
    "qemu_m4": ("qemu-system-arm", "arm-none-eabi-gcc"),
    "qemu_m55": ("qemu-system-arm", "arm-none-eabi-gcc"),
    "qemu_rv32": ("qemu-system-riscv32", "riscv64-unknown-elf-gcc"),
}


def proven(made: Compiled, board: str, folder: Path) -> None:
    for tool in TOOLS[board]:
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    path = folder / "model.tflite"
    path.write_bytes(made.model_bytes)
    target = {"qemu_m4": "cortex-m4", "qemu_m55": "cortex-m55", "qemu_rv32": "rv32imac"}[board]
    again = compile_model(path, target=target, package="platformio")
    result = verify.on_emulator(again, board, reference="auto", samples=6, seed=1, layers=True, workdir=folder / "work")
    assert result.match, result
    assert result.cases == 6
    assert result.as_json()["state_bytes"] == again.program.state_bytes > 0
    assert result.ram_bytes >= result.arena_bytes + result.state_bytes


@pytest.mark.parametrize("name", ["rows", "blocks"])
@pytest.mark.parametrize("board", TOOLS)
def test_the_cases_are_one_sequence(board: str, name: str, compiled: Callable[[str], Compiled], tmp_path: Path) -> None:
    proven(compiled(name), board, tmp_path)


def test_a_run_that_is_repeated_against_the_clock_starts_from_the_same_state(
    compiled: Callable[[str], Compiled], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counter, "plugin", lambda emulator, cache: None)
    proven(compiled("swap"), "qemu_m4", tmp_path)

"""Several regions on an emulated board: each arena a variable of its own, and the same bits."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from emitc.boards import verify
from emitc.compiler import compile_model
from emitc.errors import CannotCompile
from emitc.planner.region_assignment import Region

pytest.importorskip("platformio", reason="PlatformIO, which builds for the boards, is not installed")
pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")


def test_a_board_proves_it(tiny: Path, tmp_path: Path) -> None:
    for tool in ("qemu-system-arm", "arm-none-eabi-gcc"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    regions = (Region("DTCM", 112, 1.0), Region("SRAM", 4096, 4.0), Region("QSPI", 0, 9.0))
    made = compile_model(
        tiny / "spotter.tflite",
        target="cortex-m4",
        package="platformio",
        regions=regions,
        places=(("weights", "QSPI"),),
    )
    arenas = [region.plan.arena_bytes for region in made.program.regions]
    assert min(arenas[:2]) > 0 == arenas[2]
    result = verify.on_emulator(
        made, "qemu_m4", reference="auto", samples=3, seed=1, layers=True, workdir=tmp_path / "work"
    )
    assert result.match and result.cases == 3
    assert result.arena_bytes == sum(arenas)


@pytest.mark.parametrize(("board", "fits"), [("hifive1_revb", False), ("pico", True), ("disco_f746ng", True)])
def test_in_one_ram_all_arenas_lie_together(board: str, fits: bool, tiny: Path) -> None:
    """Where a board has several, its linker script decides, and only the largest arena has to fit the largest RAM."""
    made = compile_model(tiny / "spotter.tflite", regions=(Region("A", 112, 1.0), Region("B", 4096, 2.0)))
    grown = 12 << 10
    parts = tuple(replace(each, plan=replace(each.plan, arena_bytes=grown)) for each in made.program.regions)
    larger = replace(made, program=replace(made.program, regions=parts))
    if fits:
        verify.require_fit(larger, board)
        return
    with pytest.raises(CannotCompile, match=f"{2 * grown} for arena and state"):
        verify.require_fit(larger, board)

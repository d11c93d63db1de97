"""The cycle model against cycles that the manuals' rules give by hand."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from emitc.boards import result
from emitc.boards.counter import windows
from emitc.boards.cycle_model import Estimate, Ran, StageWork, estimate, listing, overlapped, parsed
from emitc.errors import EmitcError
from emitc.target import DmaTiming, FlashTiming, Timing, load_board, load_target, targets

LISTING = """
firmware.elf:     file format elf32-littlearm

08000000 <first>:
 8000000:\tldr\tr1, [r0, #0]
 8000002:\tldr\tr2, [r0, #4]
 8000004:\tldr\tr3, [r2, #0]
 8000006:\tldrd\tr4, r5, [r0]
 800000a:\tldmia.w\tr0!, {r1, r4-r6, lr}
 800000e:\tstr\tr1, [r0, #0]
 8000010:\tsmlad\tr1, r2, r3, r4
 8000014:\tsdiv\tr1, r2, r3

08000018 <second>:
 8000018:\tsubs\tr0, #1
 800001a:\tbne.n\t8000018 <second>
 800001c:\tbx\tlr
"""
M4 = load_target("cortex-m4f").timing


def cycles(name: str, counts: dict[int, int]) -> float:
    """Of instructions of the listing, by their last two digits, on a target's core."""
    timing = load_target(name).timing
    assert timing is not None
    return estimate(Ran({0x08000000 + at: count for at, count in counts.items()}), parsed(LISTING), timing).cycles


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({0x00: 1}, 2),  # a load by itself
        ({0x00: 1, 0x02: 1}, 3),  # two neighbours, N + 1
        ({0x00: 1, 0x02: 1, 0x04: 1}, 5),  # the third one needs the second one's result
        ({0x02: 10, 0x04: 1}, 22),  # in a loop of another length, and dependent all the same
        ({0x06: 1}, 3),  # 1 + two registers
        ({0x0A: 2}, 12),  # 1 + five registers, twice
        ({0x0E: 1, 0x10: 1}, 2),
        ({0x14: 1}, 7),
        ({0x18: 100, 0x1A: 100, 0x1C: 1}, 100 + 100 + 1.5 * 99 + 2.5),  # 99 of 100 branches are taken
    ],
)
def test_a_cortex_m4_takes_what_its_manual_says(counts: dict[int, int], expected: float) -> None:
    assert cycles("cortex-m4f", counts) == pytest.approx(expected)


def test_a_core_without_pipelined_loads_pays_each() -> None:
    assert cycles("cortex-m0plus", {0x00: 1, 0x02: 1}) == 4


@pytest.mark.parametrize("core", ["cortex-m0", "cortex-m0plus"])
def test_the_small_multiplier_takes_32_cycles(core: str) -> None:
    product = parsed("08000000 <f>:\n 8000000:\tmuls\tr0, r1\n")
    one, small = (load_target(core + part).timing for part in ("", "-small-multiply"))
    assert one is not None and small is not None
    assert [estimate(Ran({0x08000000: 3}), product, timing).cycles for timing in (one, small)] == [3, 96]


def test_vectors_overlap_with_another_unit_only() -> None:
    text = "00000000 <f>:\n" + "".join(
        f" {at:x}:\t{line}\n"
        for at, line in enumerate(
            ["vldrb.8\tq0, [r0]", "vmladava.s8\tr4, q0, q1", "vmladava.s8\tr6, q0, q2", "vldrb.8\tq1, [r1]"]
        )
    )
    timing = load_target("cortex-m55").timing
    assert timing is not None
    found = estimate(Ran(dict.fromkeys(range(4), 1)), parsed(text), timing)
    assert found.cycles == 2 + 1 + 2 + 1
    assert dict(found.kinds) == {"vector load": 3, "vector multiply": 3}


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["add\tr1, r2, r3", "add\tr4, r5, r6"], 1),  # independent: both in one cycle
        (["add\tr1, r2, r3", "add\tr4, r1, r6"], 2),  # the second one needs the first one's result
        (["add\tr1, r2, r3", "add\tr4, r5, r6", "add\tr7, r8, r9"], 2),
        (["ldr\tr1, [r0]", "ldr\tr2, [r0, #4]"], 1),  # an even and an odd word
        (["ldr\tr1, [r0]", "ldr\tr2, [r0, #8]"], 2),  # one bank
        (["ldr\tr1, [r0]", "ldr\tr2, [r3, #4]"], 2),  # who knows which banks
        (["ldr\tr1, [r0], #4", "ldr\tr2, [r0]"], 2),
        (["ldr\tr1, [r0]", "str\tr2, [r3]"], 1),
        (["str\tr1, [r0]", "str\tr2, [r3]"], 2),
        (["ldr\tr1, [r0]", "smlad\tr2, r3, r4, r2"], 1),
        (["smlad\tr2, r3, r4, r2", "str\tr5, [r3]"], 2),
        (["ldr\tr1, [r0]", "add\tr2, r3, r4", "add\tr5, r1, r2"], 2),  # a word is there in the next cycle
        (["ldrb\tr1, [r0]", "add\tr2, r3, r4", "add\tr5, r1, r2"], 3),  # a byte one later
        (["ldr\tr1, [r0]", "smlad\tr2, r3, r1, r2"], 3),  # as the factor of a product
        (["ldr\tr1, [r0]", "smlad\tr1, r3, r4, r1"], 2),  # but not as what it is added to
        (["ldr\tr1, [r0]", "add\tr2, r3, r1, lsl #2"], 3),
        (["ldr\tr1, [r0]", "ldr\tr2, [r1]"], 4),
        (["add\tr1, r2, r3", "ldr\tr4, [r1]"], 2),
        (["sxtb16\tr1, r2", "ldr\tr4, [r1]"], 3),
        (["sxtb16\tr1, r2", "smlad\tr5, r3, r4, r5"], 1),
        (["smlad\tr5, r3, r4, r5", "sxtb16\tr1, r2"], 2),  # the SIMD unit comes first in a pair
        (["sxtb16\tr1, r2", "sadd16\tr4, r5, r6"], 2),
        (["add\tr1, r2, r3, lsl #1", "sub\tr4, r5, r6, lsl #1"], 2),  # one shifted operand
        (["ssat\tr1, #8, r2", "add\tr3, r4, r1"], 3),
        (["smlad\tr1, r2, r3, r1", "smlad\tr1, r4, r5, r1"], 2),  # one multiplier, and a forwarded accumulator
        (["smlad\tr1, r2, r3, r1", "add\tr4, r5, r6", "mov\tr7, r1"], 3),
        (["smlad\tr1, r2, r3, r1", "smlad\tr4, r1, r3, r4"], 3),
        (["smlald\tr1, r2, r3, r4", "smlald\tr1, r2, r5, r6"], 2),
        (["vadd.f32\ts1, s2, s3", "vmul.f32\ts4, s5, s6"], 2),
        (["vadd.f32\ts1, s2, s3", "vmul.f32\ts4, s1, s6"], 4),
        (["ldrd\tr1, r2, [r0]", "add\tr7, r8, r9"], 2),  # nothing with it
        (["ldmia.w\tr0!, {r1, r4-r6}", "add\tr7, r8, r9"], 3),  # two registers a cycle
        (["sdiv\tr1, r2, r3", "add\tr7, r8, r9"], 8),
    ],
)
def test_a_cortex_m7_begins_two_independent_instructions_in_a_cycle(lines: list[str], expected: int) -> None:
    timing = load_target("cortex-m7").timing
    assert timing is not None and timing.issues == 2
    text = "00000000 <f>:\n" + "".join(f" {at:x}:\t{line}\n" for at, line in enumerate(lines))
    assert estimate(Ran(dict.fromkeys(range(len(lines)), 10)), parsed(text), timing).cycles == 10 * expected


def test_a_loop_waits_for_what_the_turn_before_it_loaded() -> None:
    text = "00000000 <f>:\n 0:\tsmlad\tr2, r1, r3, r2\n 4:\tldr\tr1, [r0], #4\n 8:\tcmp\tr0, r4\n a:\tbne.n\t0 <f>\n"
    timing = load_target("cortex-m7").timing
    assert timing is not None
    # A branch that is taken ends a pair: two cycles for four instructions, and one in which the product waits for the load.
    assert estimate(Ran({0: 100, 4: 100, 8: 100, 10: 100}), parsed(text), timing).cycles == 200
    late = text.replace("ldr\tr1, [r0], #4", "nop").replace("cmp\tr0, r4", "ldr\tr1, [r0], #4")
    assert estimate(Ran({0: 100, 4: 100, 8: 100, 10: 100}), parsed(late), timing).cycles == 300


def test_objdump_is_told_of_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it, GNU objdump 2.40 prints `cdp` for vmladava.s8 and `ldc` for vldrb.8, which the model takes for scalar."""
    commands: list[list[str]] = []

    def run(command: list[str], **_: object) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, LISTING)

    monkeypatch.setattr(subprocess, "run", run)
    for name in ("cortex-m4f", "cortex-m55"):
        assert listing(load_target(name), Path("firmware.elf")) == parsed(LISTING)
    assert [command[0] for command in commands] == ["arm-none-eabi-objdump"] * 2
    assert ["armv8.1-m.main" in command for command in commands] == [False, True]


def test_cycles_are_listed_by_function() -> None:
    assert isinstance(M4, Timing)
    found = estimate(Ran({0x08000000: 1, 0x0800001C: 2}), parsed(LISTING), M4)
    assert dict(found.functions) == {"first": 2, "second": 5}
    assert found.instructions == 3


def test_every_window_of_the_counts_is_read(tmp_path: Path) -> None:
    lines = ["begin", "at 16 3", "constants 8", "end 3", "begin", "cut 5", "at 16 1", "at 18 2", "end 3"]
    counts = tmp_path / "counts.txt"
    counts.write_text("\n".join(lines), encoding="ascii")
    first, second = windows(counts)
    assert (first.ran, second.ran) == (Ran({16: 3}, 8), Ran({16: 1, 18: 2}, 0))
    assert (first.cuts, first.rest, second.cuts, second.rest) == ((), 2, (4,), 3)


def test_an_estimate_for_a_real_board_has_its_clock_flash_and_energy() -> None:
    assert isinstance(M4, Timing)
    found = estimate(Ran({0x08000010: 1_000_000}, 800_000), parsed(LISTING), M4)
    emulated = result.CycleEstimate(found, "Arm Cortex-M4 with FPU", "qemu_m4", 25_000_000, 0)
    assert emulated.cycles == 1_000_000
    assert "uj_estimated" not in emulated.as_json()
    real = emulated.on(load_board("nucleo_l4r5zi")).as_json()
    assert real["cycles_estimated"] == 1_070_000 + 500_000
    assert real["ms_estimated"] == pytest.approx(1_570_000 / 120_000, abs=1e-3)
    assert real["uj_estimated"] == pytest.approx(1_570 * 0.37, abs=0.1)
    assert real["error_band"] == "+-4 %"
    assert real["estimate_of"] == "Arm Cortex-M4 with FPU of nucleo_l4r5zi, with the wait states of its flash"


def test_a_real_board_without_a_model_of_its_flash_has_its_clock_alone() -> None:
    timing = load_target("cortex-m33").timing
    assert timing is not None
    found = estimate(Ran({0x08000010: 1_000}), parsed(LISTING), timing)
    real = result.CycleEstimate(found, "core", "qemu_m33", 20_000_000, 6).on(load_board("nucleo_u575zi_q"))
    assert (real.cycles, real.clock_hz, real.error_band) == (1_000, 160_000_000, "+-6 %")
    assert real.memory == "memory without wait states"


@pytest.mark.parametrize(
    ("real", "board", "why"),
    [
        ("nucleo_l4r5zi", "qemu_m3", "its target is cortex-m4f, and qemu_m3 is of kind qemu with cortex-m3"),
        ("hifive1_revb", "rtl_ibex", "are not known"),
    ],
)
def test_a_board_stands_for_those_with_its_core_alone(real: str, board: str, why: str) -> None:
    result.check_estimate_for("nucleo_l4r5zi", "qemu_m4")
    with pytest.raises(EmitcError) as caught:
        result.check_estimate_for(real, board)
    assert why in caught.value.why


def test_every_arm_core_has_a_timing_with_its_source() -> None:
    timed = {name for name in targets() if load_target(name).timing is not None}
    assert timed == {
        "cortex-m0", "cortex-m0-small-multiply", "cortex-m0plus", "cortex-m0plus-small-multiply", "cortex-m3",
        "cortex-m33", "cortex-m4", "cortex-m4f", "cortex-m55", "cortex-m7", "cortex-m85",
    }  # fmt: skip
    for name in timed:
        timing = load_target(name).timing
        assert timing is not None
        assert timing.source


FLASH = FlashTiming("", 1, 0.0, 0.625)
DMA = DmaTiming("", 2.0, 10.0, 8.0, 6.0)
QUIET = replace(DMA, line_cycles=1e-9)
"""A DMA whose reads of the flash keep nobody out."""


def _run(cycles: float, constants: int, copied: float = 0.0) -> Estimate:
    """What an emulator says of a run in which `memcpy` took some of the cycles."""
    return Estimate(cycles, 0, constants, (("f", cycles - copied), ("memcpy", copied)), (("other", cycles),))


def test_a_copy_that_is_hidden_costs_no_more_than_its_start() -> None:
    """800 bytes take 1600 cycles of a stage of 5000, and the stage that needs them reads nothing of the flash."""
    stages = (StageWork(0.5, 1.0, early=(800,)), StageWork(0.5, 0.0, waits=True))
    run = _run(10_000.0 + 700.0, 400 + 800, copied=700.0)
    assert overlapped(run, stages, FLASH, QUIET) == pytest.approx(10_000 + 0.625 * 400 + 10)


def test_what_is_not_hidden_is_waited_for() -> None:
    """The copy of 5000 bytes takes 10000 cycles, of which 5250 are those of the stage before."""
    stages = (StageWork(0.5, 1.0, early=(5000,)), StageWork(0.5, 0.0, waits=True))
    hidden = 5000 + 0.625 * 400
    run = _run(10_000.0, 400 + 5000)
    assert overlapped(run, stages, FLASH, QUIET) == pytest.approx(10_000 + 0.625 * 400 + 10 + 10_000 - hidden)
    late = (StageWork(0.5, 1.0), StageWork(0.5, 0.0, late=(5000,), waits=True))
    assert overlapped(run, late, FLASH, QUIET) == pytest.approx(10_000 + 0.625 * 400 + 10 + 10_000)


def test_a_stage_waits_for_its_own_copies_only() -> None:
    first = StageWork(0.0, 0.0, early=(100, 4000))
    own, later = StageWork(0.5, 0.0, waits=True, left=1), StageWork(0.5, 0.0, waits=True)
    run = _run(10_000.0, 4100)
    assert overlapped(run, (first, own, later), FLASH, QUIET) == pytest.approx(20 + 200 + 5000 + 3000 + 5000)


def test_core_and_dma_slow_each_other_down() -> None:
    """With a DMA that reads half of the time, each read of the core waits 1.5 cycles or less more."""
    stages = (StageWork(1.0, 1.0, early=(1 << 20,)),)
    run = _run(10_000.0, 4000 + (1 << 20))
    alone = FLASH.cycles(10_000.0, 4000)
    disturbed = overlapped(run, stages, FLASH, DMA) - 10
    reads = 0.625 * 4000 / 5
    assert alone + 0.7 * reads < disturbed < alone + 1.5 * reads
    stores = replace(run, kinds=(("other", 5000.0), ("store", 5000.0)))
    assert overlapped(stores, stages, FLASH, DMA) > disturbed + 10 + 500


def test_a_board_with_a_dma_is_estimated_with_its_copies() -> None:
    stages = (StageWork(0.5, 1.0, early=(800,)), StageWork(0.5, 0.0, waits=True))
    of_core = result.CycleEstimate(_run(10_700.0, 1200, copied=700.0), "a core", "qemu_m4", 1, 0, stages=stages)
    board = load_board("nucleo_l4r5zi")
    real = of_core.on(board)
    assert board.dma_timing is not None and board.flash_timing is not None
    assert real.cycles == overlapped(of_core.zero_wait, stages, board.flash_timing, board.dma_timing)
    assert real.cycles < board.flash_timing.cycles(10_700.0, 1200)
    assert "its DMA copies" in real.memory and "DMA" not in of_core.memory
    assert of_core.cycles == 10_700.0

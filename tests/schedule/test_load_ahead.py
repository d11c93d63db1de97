"""Weights that the application copies to fast memory while other layers run (`--load-ahead`): the same bits with any DMA.

The host proof copies as late as the interface allows, and fills the destination with other bytes until then.
"""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emitc.boards.verify import on_emulator
from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.emit.manifest import memory_plan
from emitc.errors import EmitcError
from emitc.explore.weights_exchange import exchange
from emitc.lower.layers import lower_nodes
from emitc.planner import PlanError, plan
from emitc.planner.region_assignment import Region
from emitc.report.compile import compile_text
from emitc.schedule.arenas import ALIGNMENT
from emitc.schedule.check import check_schedule
from emitc.schedule.search import best_schedule
from emitc.schedule.weight_staging import Candidate, Overlap, Transfers, candidates, with_copies
from emitc.target import load_board
from emitc.validation import validate
from emitc.verify.build import HostModel, MemoryFault, build_shared
from emitc.verify.golden_run import interface_of
from emitc.verify.verification import verify
from emitc.writers.tflite import write_tflite
from tests.support.models.image_nets import ImageNet, four_convolutions

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

MODELS = Path(__file__).resolve().parents[2] / "examples" / "models"
NOT_READY = 1
REGIONS = (Region("DTCM", 16 << 10, 1.0), Region("SRAM", 64 << 10, 3.0), Region("QSPI", 0, 9.0))
AHEAD: dict[str, Any] = {
    "regions": REGIONS,
    "places": (("weights", "QSPI"),),
    "stage_weights": "DTCM",
    "load_ahead": 20.0,
}


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four convolutions, of which one is depthwise."""
    made = ImageNet(7)
    first, x, _ = four_convolutions(made)
    file = tmp_path_factory.mktemp("ahead") / "net.tflite"
    file.write_bytes(write_tflite(made.spec((first,), (x,))))
    return file


def _earlier(compiled: Compiled) -> int:
    """Copies that start before the stage that needs them."""
    transfers = compiled.program.transfers
    return sum(len(stage.early) for stage in transfers.stages) if transfers else 0


@pytest.mark.sweep(keep=3)
@pytest.mark.parametrize("target", ["generic32", "cortex-m0", "cortex-m4", "cortex-m55", "rv32imac"])
@pytest.mark.parametrize(
    "more",
    [
        {},
        {"ram_budget": "min"},
        {"max_step_cycles": 3000},
        {"ram_budget": "min", "max_step_cycles": 3000},
        {"input_rows": True},
    ],
    ids=["run", "rows", "steps", "rows in steps", "input rows"],
)
def test_the_bits_stay_and_the_plan_holds(target: str, more: dict[str, Any], net: Path) -> None:
    made = compile_model(net, target=target, **AHEAD, **more)
    transfers = made.program.transfers
    assert transfers is not None and _earlier(made) and transfers.most <= len(made.program.staged)
    proof = verify(made, samples=3, layers=True, sanitize=True)
    assert proof.match and proof.differing == 0 and proof.memory_errors == ()
    assert all(use.planned == use.observed for use in proof.arenas)
    assert not validate(made).wrong


@pytest.mark.parametrize("target", ["cortex-m7", "rv32imac"])
def test_external_weights_are_loaded_the_same_way(target: str, net: Path) -> None:
    made = compile_model(net, target=target, weights="external", max_step_cycles=3000, **AHEAD)
    assert _earlier(made)
    assert b"emitc_weights_load(" not in made.files["net.c"]
    assert verify(made, samples=3, sanitize=True).match


def test_a_self_test_copies_by_itself(net: Path) -> None:
    made = compile_model(net, self_test=2, **AHEAD)
    assert _earlier(made) and verify(made, samples=2, layers=True).match


def _changed(made: Compiled, pattern: str, to: str) -> Compiled:
    text = made.files["net.c"].decode("ascii")
    wrong, count = re.subn(pattern, to, text)
    assert count
    return replace(made, files=made.files | {"net.c": wrong.encode("ascii")})


def _differs(made: Compiled) -> bool:
    """Whether the host proof finds other bits, or copies that are under way after a run."""
    try:
        return not verify(made, samples=2).match
    except MemoryFault:
        return True


@pytest.mark.parametrize(
    ("pattern", "to"),
    [
        (r"emitc_transfers_wait\(&self->transfers, (\d)u\)", r"emitc_transfers_wait(&self->transfers, \1u + 1u)"),
        (r"emitc_transfers_wait\(&self->transfers, (\d)u\)", "emitc_transfers_wait(&self->transfers, 99u)"),
    ],
    ids=["one too many left", "none waited for"],
)
def test_a_run_that_does_not_wait_is_detected(pattern: str, to: str, net: Path) -> None:
    made = compile_model(net, **AHEAD)
    assert _differs(_changed(made, pattern, to))


def test_a_buffer_that_lives_too_short_is_detected(net: Path) -> None:
    """A plan in which the copy is alive during its own stage only, though its transfer starts one stage earlier."""
    made = compile_model(net)
    graph = made.partition.graph
    schedule = best_schedule(graph, lower_nodes(made.partition), ALIGNMENT, None, frozenset())
    able = [c for c in candidates(schedule) if c.position]
    starts = [c.position - 1 for c in able]
    right = with_copies(schedule, able, starts)
    result = plan(right.buffers, right.pairs, alignment=ALIGNMENT)
    offsets = {p.name: p.offset_bytes for p in result.placements}
    check_schedule(graph, right.stages, offsets, right.hosts, result.arena_bytes)
    short = with_copies(schedule, able)
    result = plan(short.buffers, short.pairs, alignment=ALIGNMENT)
    offsets = {p.name: p.offset_bytes for p in result.placements}
    with pytest.raises(PlanError):
        check_schedule(graph, right.stages, offsets, right.hosts, result.arena_bytes)


def test_the_program_with_such_a_plan_is_refused_by_the_validation(net: Path) -> None:
    """The copy of one layer lies where the output of the layer before does."""
    made = compile_model(net, **AHEAD)
    program = made.program
    staged = next(s for s in program.staged if s.start >= 0 and s.start < program.steps.index(program.steps[-1]))
    slots = {slot.name: slot for slot in program.slots}
    other = next(slot for slot in program.slots if slot.region == "DTCM" and slot.kind.name == "TENSOR")
    moved = replace(slots[staged.address.slot], offset_bytes=other.offset_bytes)
    wrong = tuple(moved if slot.name == moved.name else slot for slot in program.slots)
    assert validate(replace(made, program=replace(program, slots=wrong))).wrong


def test_what_is_copied_while_layers_run_is_said(net: Path) -> None:
    made = compile_model(net, **AHEAD)
    program = made.program
    assert program.transfers is not None
    said = memory_plan(program)["copied_weights"]
    assert said["ahead"] == program.transfers.ahead and said["at_once"] == program.transfers.most
    assert "while others run" in made.files["net.c"].decode("ascii")
    assert "while other layers run" in compile_text(made, Path("out"))
    assert made.options.to_json()["load_ahead"] == 20.0


def test_new_weights_fit_the_same_code(net: Path, tmp_path: Path) -> None:
    made = compile_model(net, target="cortex-m4", weights="external", **AHEAD)
    made.write(tmp_path / "package")
    assert exchange(net, tmp_path / "package").data[64:] == made.files["net.weights.bin"][64:]


class _Dma:
    """Copies at once, or fails at the call `failing`. calls: what was called, in order."""

    def __init__(self, host: HostModel, failing: int = -1) -> None:
        self.calls: list[str] = []
        ffi = host._ffi

        def load(_: Any, to: Any, source: Any, count: int) -> int:
            self.calls.append("load")
            ffi.memmove(to, source, count)
            return 6 if len(self.calls) - 1 == failing else 0

        def wait(_: Any, left: int) -> int:
            self.calls.append(f"wait {left}")
            return 7 if len(self.calls) - 1 == failing else 0

        self.load = ffi.callback("int(void *, void *, const void *, size_t)", load)
        self.wait = ffi.callback("int(void *, uint32_t)", wait)
        assert host._lib.net_set_weights_loader(host._self, self.load, self.wait, ffi.NULL) == 0


@pytest.fixture
def host(net: Path, tmp_path: Path) -> HostModel:
    made = compile_model(net, steps=True, **AHEAD)
    made.write(tmp_path / "package")
    return HostModel(build_shared(tmp_path / "package", tmp_path, trace=False), interface_of(made))


def test_an_error_ends_the_run_after_all_copies(host: HostModel) -> None:
    assert host._lib.net_run(host._self) == 0
    whole = _Dma(host)
    assert host._lib.net_run(host._self) == 0
    assert whole.calls[-1] == "wait 0"
    for failing, call in enumerate(whole.calls):
        dma = _Dma(host, failing)
        assert host._lib.net_run(host._self) == (6 if call == "load" else 7)
        assert dma.calls == [*whole.calls[: failing + 1], "wait 0"]


@pytest.mark.parametrize("ending", ["net_cancel", "net_reset"])
def test_the_end_of_an_inference_in_steps_waits(ending: str, host: HostModel) -> None:
    dma = _Dma(host)
    host.begin()
    assert host.step()
    assert host._lib.net_set_weights_loader(host._self, dma.load, dma.wait, host._ffi.NULL) != 0
    before = len(dma.calls)
    assert getattr(host._lib, ending)(host._self) == 0
    assert dma.calls[before:] == ["wait 0"]
    assert getattr(host._lib, ending)(host._self) == 0
    assert len(dma.calls) == before + 1


def test_weights_are_not_exchanged_while_copies_of_them_are_under_way(net: Path, tmp_path: Path) -> None:
    made = compile_model(net, steps=True, weights="external", **AHEAD)
    made.write(tmp_path / "package")
    host = HostModel(build_shared(tmp_path / "package", tmp_path, trace=False), interface_of(made))
    host._ffi.cdef("int net_exchange_weights(net_t *self, const void *weights, size_t weights_bytes);")
    dma = _Dma(host)
    weights = (host._ffi.cast("void *", host._weights.address), len(host._weights.bytes))
    assert host._lib.net_exchange_weights(host._self, *weights) == 0 and dma.calls == []
    host.begin()
    assert host.step()
    before = len(dma.calls)
    assert host._lib.net_exchange_weights(host._self, *weights) == NOT_READY
    assert len(dma.calls) == before
    while host.step():
        pass
    assert dma.calls[-1] == "wait 0"
    assert host._lib.net_exchange_weights(host._self, *weights) == 0


def _layers(*sizes: int) -> list[Candidate]:
    return [Candidate(position, None, size, size, size) for position, size in enumerate(sizes)]  # type: ignore[arg-type]


def test_layers_that_load_each_weight_once_gain_too() -> None:
    """The first one has nothing that hides its transfer."""
    overlap = Overlap((300.0, 300.0, 300.0), 2.0, lambda c: 0.5 * c.size_bytes)
    best = overlap.best(_layers(100, 100, 100), depth=3)
    assert [c.position for c in best.chosen] == [1, 2]
    assert (best.starts, best.waits, best.gain) == ((0, 1), 0.0, 100.0)


def test_a_layer_waits_for_what_is_not_hidden() -> None:
    overlap = Overlap((100.0, 100.0), 2.0, lambda c: 3.0 * c.size_bytes)
    layers = _layers(0, 100)[1:]
    assert overlap.timed(layers, depth=1) == Transfers(tuple(layers), (0,), 100.0, 200.0, (0.0, 200.0))
    assert overlap.timed(_layers(0, 100)[1:], depth=0).waits == 200.0


def test_a_large_layer_gives_way_to_no_many_small_ones() -> None:
    """Leaving out one after another would keep the small ones, which save less together."""
    overlap = Overlap((100.0, *[20.0] * 6, 100.0), 1.0, lambda c: 0.5 * c.size_bytes)
    sizes = (100, *[20] * 6, 150)
    chosen = overlap.best(_layers(*sizes)[1:], depth=9).chosen
    assert sum(c.size_bytes for c in chosen) >= 200 and chosen[-1].position == 7


def test_short_memory_leads_to_later_starts(net: Path) -> None:
    small = (Region("DTCM", 1100, 1.0), *REGIONS[1:])
    made = compile_model(net, **AHEAD | {"regions": small})
    assert made.program.staged
    assert made.program.regions[0].plan.arena_bytes <= 1100
    assert verify(made, samples=2, layers=True, sanitize=True).match


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"load_ahead": 2.0}, "--load-ahead has no effect"),
        ({**AHEAD, "load_ahead": -1.0}, "-1 is no speed of a DMA"),
        ({**AHEAD, "load_ahead": float("nan")}, "nan is no speed of a DMA"),
    ],
    ids=["no region", "negative", "nan"],
)
def test_what_says_no_speed_is_refused(more: dict[str, Any], what: str, net: Path) -> None:
    with pytest.raises(EmitcError) as error:
        compile_model(net, **more)
    assert error.value.what == what


def test_without_the_option_nothing_of_it_is_in_the_package(net: Path) -> None:
    files = compile_model(net, **{**AHEAD, "load_ahead": 0.0}).files
    assert "emitc_transfers.h" not in files and not any(b"transfers" in content for content in files.values())


_BOARD = """
#include "net.h"
static void dma_start(void *to, const void *from, size_t words);
static void disable_interrupts(void) {}
static void enable_interrupts(void) {}
static void wait_for_interrupt(void);
void dma_interrupt(void);
"""
_BOARD_END = """
static void *target;
static const void *source;
static size_t words_left;
static void dma_start(void *to, const void *from, size_t words)
{
    target = to;
    source = from;
    words_left = words;
    memset(to, 0x77, 4u * words);
}
static void wait_for_interrupt(void)
{
    memcpy(target, source, 4u * words_left);
    dma_interrupt();
}
int install(net_t *net);
int install(net_t *net)
{
    return (int)net_set_weights_loader(net, load, wait, NULL);
}
"""


def test_the_queue_of_the_documentation_works(net: Path, tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "generated-api.md").read_text(encoding="utf-8")
    (queue,) = re.findall(r"<!-- dma queue -->\n```c\n(.*?)```", page, re.DOTALL)
    # Every size of the net is a whole number of words.
    made = compile_model(net, **AHEAD)
    assert made.program.transfers is not None and 1 < made.program.transfers.most <= 8
    made.write(tmp_path / "package")
    (tmp_path / "package" / "board.c").write_text(_BOARD + queue + _BOARD_END, encoding="ascii")
    host = HostModel(build_shared(tmp_path / "package", tmp_path, trace=False), interface_of(made))
    inputs = [np.arange(320, dtype=np.int64).astype(np.int8).reshape(1, 10, 8, 4)]
    expected = host.run(inputs)[0]
    host._ffi.cdef("int install(net_t *net);")
    assert host._lib.install(host._self) == 0
    assert np.array_equal(host.run(inputs)[0], expected)
    assert len(np.unique(expected)) > 4


def test_an_emulated_board_proves_it_and_its_twin_is_estimated(net: Path, tmp_path: Path) -> None:
    """There memcpy makes the copies; the estimate for a board with a DMA takes their cycles out."""
    pytest.importorskip("platformio", reason="PlatformIO, which builds for the boards, is not installed")
    for tool in ("qemu-system-arm", "arm-none-eabi-gcc"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    made = compile_model(net, target="cortex-m4", package="platformio", **AHEAD)
    result = on_emulator(made, "qemu_m4", reference="auto", samples=2, seed=1, layers=True, workdir=tmp_path)
    assert result.match and result.estimate is not None
    assert len(result.estimate.stages) == len(made.program.schedule)
    board = load_board("nucleo_l4r5zi")
    assert board.flash_timing is not None
    zero_wait = result.estimate.zero_wait
    by_core = board.flash_timing.cycles(zero_wait.cycles, zero_wait.constant_bytes)
    assert 0.5 * by_core < result.estimate.on(board).cycles < by_core

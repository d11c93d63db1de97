"""Weights that are loaded often are copied to fast memory before their layer runs, into planned buffers: the same bits."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from emitc.boards import verify as prove
from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.emit.manifest import memory_plan
from emitc.errors import EmitcError
from emitc.lower.layers import lower_nodes
from emitc.planner import PlanError, plan
from emitc.planner.region_assignment import Region
from emitc.report.compile import compile_text
from emitc.schedule.arenas import ALIGNMENT
from emitc.schedule.check import check_schedule
from emitc.schedule.search import SMALLEST, best_schedule
from emitc.schedule.stages import lines_name, staged_name
from emitc.schedule.weight_staging import candidates, with_copies
from emitc.verify.verification import verify
from emitc.writers.tflite import write_tflite
from tests.support.models.image_nets import ImageNet, four_convolutions

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

REGIONS = (Region("DTCM", 8 << 10, 1.0), Region("SRAM", 64 << 10, 3.0), Region("QSPI", 0, 9.0))
IN_FLASH = ("weights", "QSPI")


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A convolution, a depthwise one, a pointwise one, one with dilation, and one that sees its input once."""
    made = ImageNet(5)
    first, x, shape = four_convolutions(made)
    made.operators[-1].options["dilation_w_factor"] = 2  # type: ignore[index]
    x, shape = made.window(x, shape, 10, 5, 5, "SAME", depthwise=False)
    file = tmp_path_factory.mktemp("staged") / "net.tflite"
    file.write_bytes(write_tflite(made.spec((first,), (x,))))
    return file


def _staged(compiled: Compiled) -> list[int]:
    return [step.index for step in compiled.program.steps if step.staged]


@pytest.mark.sweep(keep=2)
@pytest.mark.parametrize("target", ["generic32", "cortex-m0", "cortex-m4", "cortex-m55"])
def test_the_bits_stay_and_the_plan_holds(target: str, net: Path) -> None:
    made = compile_model(net, target=target, regions=REGIONS, places=(IN_FLASH,), stage_weights="DTCM")
    # MVE's 3x3 depthwise kernel reads its weights with their scales as records, which are not staged.
    assert {0, 2, 3} | ({1} - {int(target == "cortex-m55")}) <= set(_staged(made))
    proof = verify(made, samples=4, layers=True, sanitize=True)
    assert proof.match and proof.differing == 0 and proof.memory_errors == ()
    assert all(use.planned == use.observed for use in proof.arenas)
    slots = {slot.name: slot for slot in made.program.slots}
    for index in _staged(made):
        slot = slots[f"AT_OP{index}_WEIGHTS"]
        assert (slot.region, slot.end - slot.first) == ("DTCM", 1)
    assert all(region.plan.arena_bytes <= region.limit_bytes for region in made.program.regions)


def test_what_is_copied_is_said(net: Path) -> None:
    made = compile_model(net, regions=REGIONS, places=(IN_FLASH,), stage_weights="DTCM")
    program = made.program
    said = {"region": "DTCM", "layers": len(program.staged), "bytes": sum(s.size_bytes for s in program.staged)}
    assert memory_plan(program)["copied_weights"] == said
    assert f"staged      weights of {said['layers']} layers in DTCM" in compile_text(made, Path("out"))
    text = made.files["net.c"].decode("ascii")
    assert f"Weights of {said['layers']} layers are copied to DTCM" in text
    assert "memcpy(arena_dtcm + AT_OP0_WEIGHTS, op0_conv_2d_weights, 288u);" in text
    assert "copied_weights" not in memory_plan(compile_model(net, regions=REGIONS, places=(IN_FLASH,)).program)


@pytest.mark.parametrize("index", [0, 1])
def test_a_copy_that_is_too_short_is_found(index: int, net: Path) -> None:
    made = compile_model(net, regions=REGIONS, places=(IN_FLASH,), stage_weights="DTCM")
    text = made.files["net.c"].decode("ascii")
    (size,) = re.findall(rf"memcpy\(arena_dtcm \+ AT_OP{index}_WEIGHTS, \w+, (\d+)u\);", text)
    wrong = text.replace(f"_weights, {size}u);", f"_weights, {int(size) // 2}u);", 1)
    assert wrong != text
    proof = verify(replace(made, files=made.files | {"net.c": wrong.encode("ascii")}), samples=4, layers=True)
    assert not proof.match


def test_only_what_pays_is_copied(net: Path) -> None:
    """Not where flash costs no more than the copy's region, not what is loaded once or twice, and not what has no room."""
    cheap = (*REGIONS[:2], Region("QSPI", 0, 1.0))
    assert _staged(compile_model(net, regions=cheap, places=(IN_FLASH,), stage_weights="DTCM")) == []
    dear = (*REGIONS[:2], Region("QSPI", 0, 1.2))
    some = _staged(compile_model(net, target="cortex-m4", regions=dear, places=(IN_FLASH,), stage_weights="DTCM"))
    assert 4 not in some
    small = (Region("DTCM", 512, 1.0), *REGIONS[1:])
    made = compile_model(net, regions=small, places=(IN_FLASH,), stage_weights="DTCM")
    assert made.program.regions[0].plan.arena_bytes <= 512
    assert all(staged.size_bytes <= 512 for staged in made.program.staged)
    assert _staged(made)
    assert verify(made, samples=2, layers=True, sanitize=True).match


def test_what_a_cache_holds_is_not_copied(net: Path) -> None:
    """The flash without room for an arena is the one of the constants, without a place that says so."""
    sizes = {}
    for cache in (0, 256, 1 << 20):
        cached = (*REGIONS[:2], Region("QSPI", 0, 9.0, cache))
        made = compile_model(net, regions=cached, stage_weights="DTCM")
        sizes[cache] = sorted(staged.size_bytes for staged in made.program.staged)
        assert verify(made, samples=1).match
    assert sizes[256] == [size for size in sizes[0] if size > 256] != sizes[0]
    assert sizes[256] and not sizes[1 << 20]


def test_a_copy_costs_no_layer_its_fast_kernel(net: Path) -> None:
    """Nothing is traded for a smaller arena: the user said how many bytes the region has."""
    regions = (Region("SRAM", 64 << 10, 1.0), Region("QSPI", 0, 9.0))
    staged = compile_model(net, target="rv32imac", regions=regions, stage_weights="SRAM").program
    fastest = compile_model(net, target="rv32imac", ram_budget=64 << 10).program
    assert staged.staged
    assert [step.kernel for step in staged.steps] == [step.kernel for step in fastest.steps]


def test_without_a_place_of_their_own_constants_cost_twice_the_dearest_region(net: Path) -> None:
    made = compile_model(net, regions=REGIONS[:2], stage_weights="DTCM")
    assert _staged(made) and made.program.weights == ""
    assert verify(made, samples=2).match


@pytest.mark.sweep(keep=1)
@pytest.mark.parametrize("target", ["generic32", "cortex-m4", "cortex-m55"])
def test_layers_that_run_row_by_row_have_theirs_from_the_first_row_to_the_last(target: str, net: Path) -> None:
    made = compile_model(
        net, target=target, regions=REGIONS, places=(IN_FLASH,), stage_weights="DTCM", ram_budget="min"
    )
    (segment,) = made.program.segments
    rows = {call.step.index for call in segment.calls}
    assert len(rows & set(_staged(made))) >= 2 and segment.staged
    proof = verify(made, samples=4, layers=True, sanitize=True)
    assert proof.match and proof.differing == 0 and proof.memory_errors == ()
    assert all(use.planned == use.observed for use in proof.arenas)
    slots = {slot.name: slot for slot in made.program.slots}
    stages = {(slots[f"AT_OP{i}_WEIGHTS"].first, slots[f"AT_OP{i}_WEIGHTS"].end) for i in rows & set(_staged(made))}
    assert len(stages) == 1
    text = made.files["net.c"].decode("ascii")
    call = text.index(f"    {segment.name}(")
    assert all(text.index(f"memcpy({staged.address.text}, {staged.constant}, ") < call for staged in segment.staged)


def test_a_copy_under_the_rows_is_seen(net: Path) -> None:
    """The replay of a plan in which a line buffer, or the output, lies on weights that the rows still need."""
    made = compile_model(net, ram_budget="min")
    graph = made.partition.graph
    rows = best_schedule(graph, lower_nodes(made.partition), ALIGNMENT, SMALLEST)
    able = [each for each in candidates(rows) if rows.stages[each.position].segment is not None]
    assert len(able) >= 2
    copied = with_copies(rows, able)
    assert [len(stage.nodes) for stage in copied.stages] == [len(stage.nodes) for stage in rows.stages]
    found = plan(copied.buffers, copied.pairs, alignment=ALIGNMENT)
    offsets = {p.name: p.offset_bytes for p in found.placements}
    check_schedule(graph, copied.stages, offsets, copied.hosts, found.arena_bytes)
    stage = copied.stages[able[0].position]
    assert stage.segment is not None
    for name in (stage.segment.target, lines_name(stage.nodes[0])):
        wrong = offsets | {staged_name(able[0].node, "weights"): offsets[name]}
        with pytest.raises(PlanError):
            check_schedule(graph, copied.stages, wrong, copied.hosts, found.arena_bytes + able[0].size_bytes)


@pytest.mark.parametrize(
    ("region", "what"),
    [("QSPI", "there is no room for copies in QSPI"), ("FLASH", "there is no region FLASH")],
)
def test_a_region_that_cannot_hold_copies_is_refused(region: str, what: str, net: Path) -> None:
    with pytest.raises(EmitcError) as error:
        compile_model(net, regions=REGIONS, stage_weights=region)
    assert error.value.what == what


def test_a_board_proves_it(net: Path, tmp_path: Path) -> None:
    pytest.importorskip("platformio", reason="PlatformIO, which builds for the boards, is not installed")
    for tool in ("qemu-system-arm", "arm-none-eabi-gcc"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    made = compile_model(
        net, target="cortex-m4", package="platformio", regions=REGIONS, places=(IN_FLASH,), stage_weights="DTCM"
    )
    result = prove.on_emulator(made, "qemu_m4", reference="auto", samples=2, seed=1, layers=True, workdir=tmp_path)
    assert _staged(made) and result.match

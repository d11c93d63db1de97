"""Layers that run row by row: the C gives the engine's bits, every line buffer is as short as it can be, budgets are met."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from unittest.mock import patch

import pytest

from emitc.backends.portable import backend
from emitc.backends.portable.backend import cost_of
from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.errors import CannotCompile
from emitc.ir import BoundNode
from emitc.kernels.contract import Variant
from emitc.lower.layers import lower_nodes
from emitc.options import Options
from emitc.planner import PlanError
from emitc.schedule.arenas import ALIGNMENT
from emitc.schedule.check import check_schedule
from emitc.schedule.row_overlap import SOURCE, TARGET, near
from emitc.schedule.row_streaming import segments_of, simulated
from emitc.schedule.search import SMALLEST, STREAMED_GAIN, STREAMED_SHARE, MemorySchedule, best_schedule
from emitc.schedule.stages import Segment, Stage, lines_name, scratch_of
from emitc.target import Target
from emitc.verify.verification import verify
from emitc.writers.tflite import write_tflite
from tests.support.models.image_nets import ImageNet, random_net

MODELS = Path(__file__).resolve().parents[2] / "examples" / "models"
NETS = range(40)


def _model(folder: Path, seed: int) -> Path:
    file = folder / f"net{seed}.tflite"
    file.write_bytes(write_tflite(random_net(seed)))
    return file


def _arrangement(compiled: Compiled, budget: int | None) -> MemorySchedule:
    return best_schedule(compiled.partition.graph, lower_nodes(compiled.partition), ALIGNMENT, budget)


def _replayed(compiled: Compiled, stages: Sequence[Stage], schedule: MemorySchedule) -> None:
    offsets = {p.name: p.offset_bytes for p in schedule.plan.placements}
    check_schedule(compiled.partition.graph, stages, offsets, {}, schedule.plan.arena_bytes)


@pytest.mark.sweep(keep=3)
@pytest.mark.parametrize("seed", NETS)
def test_rows_give_the_engines_bits(seed: int, tmp_path: Path) -> None:
    """Also of every tensor inside a segment, and with nothing touched that is not alive."""
    whole, rows = (compile_model(_model(tmp_path, seed), Options(ram_budget=budget)) for budget in (None, "min"))
    assert rows.program.plan.arena_bytes <= whole.program.plan.arena_bytes
    proof = verify(rows, samples=4, layers=True, sanitize=True)
    assert proof.match and proof.differing == 0 and proof.memory_errors == ()
    assert proof.layers_checked == 4 * len(rows.program.steps)
    assert proof.arena_observed == proof.arena_planned == rows.program.plan.arena_bytes


def test_the_random_networks_have_segments(tmp_path: Path) -> None:
    """Otherwise the test above would prove little."""
    compiled = [compile_model(_model(tmp_path, seed), Options(ram_budget="min")) for seed in NETS]
    segments = [s for c in compiled for s in c.program.segments]
    assert len(segments) >= 20
    assert sum(call.step.op_type == "ADD" for s in segments for call in s.calls) >= 3
    assert sum(call.step.window for s in segments for call in s.calls) >= 20
    assert sum(call.makes.capacity == 0 for s in segments for call in s.calls) >= 2  # made instead of another row


def _shorter(segment: Segment) -> list[Segment]:
    """The segment with each line buffer one row shorter."""
    found = []
    for i, room in enumerate(segment.capacities[:-1]):
        if room > 1:
            capacities = (*segment.capacities[:i], room - 1, *segment.capacities[i + 1 :])
            found.append(replace(segment, capacities=capacities))
    return found


def test_a_line_buffer_that_is_one_row_shorter_does_not_do(tmp_path: Path) -> None:
    tried = 0
    for seed in NETS:
        compiled = compile_model(_model(tmp_path, seed))
        schedule = _arrangement(compiled, SMALLEST)
        _replayed(compiled, schedule.stages, schedule)
        for position, stage in enumerate(schedule.stages):
            for segment in _shorter(stage.segment) if stage.segment else ():
                stages = list(schedule.stages)
                stages[position] = replace(stage, segment=segment)
                tried += 1
                with pytest.raises((PlanError, ValueError)):  # a row that is gone, or no rows to drop
                    _replayed(compiled, stages, schedule)
    assert tried >= 20


def test_an_output_that_follows_too_closely_is_seen(tmp_path: Path) -> None:
    """Row by row the derived distance is safe; the replay sees it broken where it is a row too small."""
    tried = seen = 0
    for seed in NETS:
        compiled = compile_model(_model(tmp_path, seed))
        nodes, graph = lower_nodes(compiled.partition), compiled.partition.graph
        for segment in segments_of(graph, nodes):
            source, target = graph.tensor(segment.source), graph.tensor(segment.target)
            if segment.distance_bytes <= -source.size_bytes or segment.first:
                continue
            row = max(source.size_bytes // source.shape[1], segment.layers[-1].row_bytes)
            room = source.size_bytes + target.size_bytes + abs(segment.distance_bytes) + 2 * row
            offsets = {segment.target: room, segment.source: room + segment.distance_bytes}
            position = 4 * room
            for node, size in zip(segment.members(nodes), segment.line_bytes, strict=False):
                offsets[f"{node.bound.node.index}:rows"] = position
                position += size
            stages = (Stage(segment.members(nodes), segment),)
            kept = replace(graph, outputs=())
            check_schedule(kept, stages, offsets, {}, position)
            tried += 1
            try:
                check_schedule(
                    kept, stages, offsets | {segment.source: offsets[segment.source] - 2 * row}, {}, position
                )
            except PlanError:
                seen += 1
    assert tried >= 40 and seen >= 0.8 * tried


def test_buffers_of_a_segment_lie_as_close_as_their_rows_allow(tmp_path: Path) -> None:
    """Two at a time, with everything else apart: the replay holds at the distance, and sees it broken where it is less."""
    tried = seen = 0
    for seed in NETS[::4]:
        compiled = compile_model(_model(tmp_path, seed), target="cortex-m4")
        nodes, graph = lower_nodes(compiled.partition), compiled.partition.graph
        for segment in segments_of(graph, nodes)[:2]:
            if segment.first:
                continue
            stage = Stage(segment.members(nodes), segment)
            found = near(stage, graph.tensor(segment.source).size_bytes)
            own = {SOURCE: segment.source, TARGET: segment.target}
            names = [own.get(name, name) for name in found.names]
            room = 2 * int(found.sizes.sum())
            apart = {name: (1 + i) * room for i, name in enumerate(names)}
            kept, arena = replace(graph, outputs=()), (2 + len(names)) * room
            for i, j in permutations(range(len(names)), 2):
                above, least = int(found.above[i, j]), -int(found.sizes[i])
                check_schedule(kept, (stage,), apart | {names[i]: apart[names[j]] + max(above, least)}, {}, arena)
                if above <= least:
                    continue
                tried += 1
                try:
                    check_schedule(kept, (stage,), apart | {names[i]: apart[names[j]] + above - 1}, {}, arena)
                except PlanError:
                    seen += 1
    assert tried >= 100 and seen >= 0.9 * tried, (tried, seen)


@pytest.mark.parametrize(
    ("name", "default", "smallest"),
    [("kws_ref_int8", 8384, 8384), ("person_detect_int8", 19280, 13600), ("digits_int8", 3104, 1280)],
)
def test_arenas_of_the_shipped_models(name: str, default: int, smallest: int) -> None:
    """The figures of docs/benchmarks.md."""
    model = MODELS / f"{name}.tflite"
    assert compile_model(model).program.plan.arena_bytes == default
    assert compile_model(model, Options(ram_budget="min")).program.plan.arena_bytes == smallest


def test_a_budget_takes_the_fewest_segments() -> None:
    model = MODELS / "person_detect_int8.tflite"
    counts = []
    for budget in (36880, 30000, 20000, 13600):
        compiled = compile_model(model, Options(ram_budget=budget))
        assert compiled.program.plan.arena_bytes <= budget
        counts.append(sum(len(s.calls) for s in compiled.program.segments))
    assert counts[0] == 0 and counts == sorted(counts) and counts[1] < counts[-1]


def test_a_budget_that_nothing_meets_names_the_smallest_arena() -> None:
    with pytest.raises(CannotCompile) as caught:
        compile_model(MODELS / "person_detect_int8.tflite", Options(ram_budget=13000))
    assert "the smallest arena found has 13600 bytes, 600 over the budget" in str(caught.value)
    assert "ops 0 to 3, row by row" in str(caught.value) and "from op 1: 384 bytes" in str(caught.value)


def test_the_schedule_is_written_for_people() -> None:
    compiled = compile_model(MODELS / "person_detect_int8.tflite", Options(ram_budget="min"))
    source = compiled.files["person_detect_int8.c"].decode("ascii")
    unwrapped = " ".join(re.sub(r"\n\s+\* ", " ", source).split())
    assert "row r from rows [r - 1, r + 2) of op" in unwrapped
    assert "rows kept, " in source
    assert source.count("static void rows_op") == len(compiled.program.segments)


@pytest.mark.parametrize("seed", [8, 31])
def test_rows_with_working_memory_give_the_engines_bits(seed: int, tmp_path: Path) -> None:
    """Kernels for a core, on this machine: one buffer serves all layers of a segment."""
    rows = compile_model(_model(tmp_path, seed), target="cortex-m4", ram_budget="min")
    working = [c.step for s in rows.program.segments for c in s.calls if c.step.scratch]
    assert len(working) >= 1
    assert len({operand.pointer for step in working for operand in step.scratch}) <= len(rows.program.segments)
    proof = verify(rows, samples=3, layers=True, sanitize=True)
    assert proof.match and proof.differing == 0 and proof.memory_errors == ()
    assert proof.arena_observed == proof.arena_planned


@pytest.mark.parametrize("seed", [14, 16])
def test_pixels_that_read_one_stretch_do_so_row_by_row(seed: int, tmp_path: Path) -> None:
    def cost(bound: BoundNode, target: Target, row: Variant | None = None) -> float:
        return 0.0 if row and row.name.startswith("dsp-stretch") else cost_of(bound, target, row)

    with patch.object(backend, "cost_of", cost):
        rows = compile_model(_model(tmp_path, seed), target="cortex-m4", ram_budget="min")
    assert any(c.step.variant.startswith("dsp-stretch") for s in rows.program.segments for c in s.calls)
    proof = verify(rows, samples=2, layers=True, sanitize=True)
    assert proof.match and proof.differing == 0 and proof.memory_errors == ()


def test_working_memory_of_a_segment_over_its_rows_is_seen(tmp_path: Path) -> None:
    model = MODELS / "person_detect_int8.tflite"
    compiled = compile_model(model, target="cortex-m4")
    schedule = compiled_arrangement(compiled)
    offsets = {p.name: p.offset_bytes for p in schedule.plan.placements}
    arena = schedule.plan.arena_bytes
    graph = compiled.partition.graph
    check_schedule(graph, schedule.stages, offsets, {}, arena)
    (stage,) = (stage for stage in schedule.stages if stage.segment is not None)
    ((name, size),) = scratch_of(stage)
    for other in (stage.segment.source, stage.segment.target, lines_name(stage.nodes[0])):  # type: ignore[union-attr]
        with pytest.raises(PlanError):
            check_schedule(graph, schedule.stages, offsets | {name: offsets[other]}, {}, arena + size)


def compiled_arrangement(compiled: Compiled) -> MemorySchedule:
    """As the compiler has made it: by default, with costs."""
    costs = {a.index: a.cost for a in compiled.partition.assignments}
    graph, nodes = compiled.partition.graph, lower_nodes(compiled.partition)
    return best_schedule(graph, nodes, ALIGNMENT, None, frozenset(), costs)


def _residual(folder: Path, *, short_first: bool = False) -> Path:
    """Two convolutions and one of a single pixel, which both read the layer before; their sum."""
    net = ImageNet(1)
    x, shape = net.image(16, 16, 4)
    first, made = net.window(x, shape, 8, 3, 1, "SAME", depthwise=False)
    c, half = net.window(first, made, 8, 1, 2, "SAME", depthwise=False) if short_first else (-1, made)
    a, half = net.window(first, made, 8, 3, 2, "SAME", depthwise=False)
    b, half = net.window(a, half, 8, 3, 1, "SAME", depthwise=False)
    if not short_first:
        c, half = net.window(first, made, 8, 1, 2, "SAME", depthwise=False)
    y, _ = net.add(b, c, half)
    file = folder / "residual.tflite"
    file.write_bytes(write_tflite(net.spec((x,), (y,))))
    return file


def test_a_branch_waits_until_its_rows_are_asked_for(tmp_path: Path) -> None:
    compiled = compile_model(_residual(tmp_path), ram_budget="min")
    schedule = _arrangement(compiled, SMALLEST)
    (segment,) = (s.segment for s in schedule.stages if s.segment is not None)
    assert segment.on_demand == {3} and segment.capacities[3] == 1
    eager = simulated(segment.layers, segment.in_place_of, 64)
    assert eager is not None and eager.capacities[3] == 3
    stages = [
        replace(s, segment=replace(s.segment, on_demand=frozenset())) if s.segment else s for s in schedule.stages
    ]
    with pytest.raises(PlanError):
        _replayed(compiled, stages, schedule)
    (made,) = compiled.program.segments
    assert [call.on_demand for call in made.calls] == [False, False, False, True, False]
    proof = verify(compiled, samples=3, layers=True, sanitize=True)
    assert proof.match and proof.memory_errors == ()


def test_a_model_with_the_short_branch_first_gets_the_same_lines(tmp_path: Path) -> None:
    """A segment has its layers in an order of its own, in which the branch waits."""
    last, first = (
        compile_model(_residual(tmp_path, short_first=turned), ram_budget="min", disabled=frozenset({"order"}))
        for turned in (False, True)
    )
    stages = _arrangement(first, SMALLEST).stages
    (stage,) = (s for s in stages if s.segment is not None)
    assert stage.segment is not None and stage.segment.order == (0, 2, 3, 1, 4)
    assert [node.bound.node.index for node in stage.nodes] == [0, 2, 3, 1, 4]
    assert stage.segment.on_demand == {3} and stage.segment.capacities[3] == 1
    assert first.program.plan.arena_bytes == last.program.plan.arena_bytes
    proof = verify(first, samples=3, layers=True, sanitize=True)
    assert proof.match and proof.differing == 0 and proof.memory_errors == ()
    assert proof.arena_observed == proof.arena_planned


def test_rows_are_taken_by_default_where_they_are_nearly_free() -> None:
    model = MODELS / "person_detect_int8.tflite"
    whole = compile_model(model, target="cortex-m4", disabled=frozenset({"streaming"}))
    default = compile_model(model, target="cortex-m4")
    assert whole.program.segments == () and len(default.program.segments) == 1
    assert default.program.plan.arena_bytes <= (1 - STREAMED_GAIN) * whole.program.plan.arena_bytes
    costs = [each.program.estimated_cycles for each in (whole, default)]
    assert costs[0] < costs[1] <= (1 + STREAMED_SHARE) * costs[0]
    least = compile_model(model, target="cortex-m4", ram_budget="min")
    assert least.program.plan.arena_bytes < default.program.plan.arena_bytes
    assert least.program.estimated_cycles > (1 + STREAMED_SHARE) * costs[0]

"""Tensors that are moved so that the next output finds room below them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emitc.compiler import compile_model
from emitc.lower.layers import lower_nodes
from emitc.options import Options
from emitc.schedule.arenas import ALIGNMENT
from emitc.schedule.search import MOVED_SHARE, MemorySchedule, _ScheduleSearch
from emitc.schedule.stages import one_by_one
from emitc.verify.verification import verify
from emitc.writers.tflite import write_tflite
from tests.support.models.image_nets import chain

SHIPPED = Path(__file__).resolve().parents[2] / "examples" / "models"


@pytest.mark.parametrize("layers", [2, 3, 6, 9])
def test_a_chain_of_equal_tensors_needs_little_more_than_one(layers: int, tmp_path: Path) -> None:
    file = tmp_path / "chain.tflite"
    file.write_bytes(write_tflite(chain(1, layers)))
    moved = compile_model(file)
    still = compile_model(file, Options(disabled=frozenset({"moves"})))
    apart = compile_model(file, Options(disabled=frozenset({"overlap"})))
    tensor = 10 * 8 * 16
    assert apart.program.plan.arena_bytes == 2 * tensor and not apart.program.moves
    assert not still.program.moves
    assert moved.program.plan.arena_bytes <= still.program.plan.arena_bytes < 2 * tensor
    if layers > 6:
        assert moved.program.moves and moved.program.plan.arena_bytes < still.program.plan.arena_bytes
    proof = verify(moved, samples=4, layers=True, sanitize=True)
    assert proof.match and proof.differing == 0
    assert proof.arena_observed == proof.arena_planned


def test_no_more_is_moved_than_a_share_of_the_work() -> None:
    program = compile_model(SHIPPED / "kws_ref_int8.tflite").program
    assert 0 < sum(move.size_bytes for move in program.moves) <= MOVED_SHARE * program.macs


def test_fewer_moves_would_need_more() -> None:
    """Every move of the shipped keyword net is needed."""
    compiled = compile_model(SHIPPED / "kws_ref_int8.tflite")
    nodes = lower_nodes(compiled.partition)
    planner = _ScheduleSearch(compiled.partition.graph, nodes, ALIGNMENT)
    best = planner.moving(planner.planned(one_by_one(nodes)))
    moves = [position for position, stage in enumerate(best.stages) if stage.moved]
    assert moves
    for position in moves:
        fewer = (*best.stages[:position], *best.stages[position + 1 :])
        assert planner.planned(fewer, effort=0.0).plan.arena_bytes > best.plan.arena_bytes


def test_a_plan_for_each_move_is_enough_to_find_those_that_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the shipped keyword net: the time of planning grows with the moves, not their square."""
    partition = compile_model(SHIPPED / "kws_ref_int8.tflite").partition
    nodes = lower_nodes(partition)
    planner = _ScheduleSearch(partition.graph, nodes, ALIGNMENT)
    base = planner.planned(one_by_one(nodes))
    possible = planner.movable(base.stages)
    plans: list[bool] = []
    planned = _ScheduleSearch.planned

    def counted(self: _ScheduleSearch, *arguments: Any, **options: Any) -> MemorySchedule:
        plans.append(True)
        return planned(self, *arguments, **options)

    monkeypatch.setattr(_ScheduleSearch, "planned", counted)
    assert planner.moving(base).plan.arena_bytes < base.plan.arena_bytes
    assert 2 < len(possible) < len(plans) <= 2 * len(possible) + 1

"""The benchmark of the packing: what it makes up stays the same, and its recorded result is what it claims."""

from __future__ import annotations

import json

import pytest

from emitc.planner import plan

pytest.importorskip("bench.packing", reason="the benchmarks are not next to the tests")

from bench.packing import COUNTS, FAMILIES, RESULTS, instance


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_is_the_same_every_time_and_is_planned_well(family: str) -> None:
    buffers, distances = instance(family, 60, 0)
    assert len(buffers) == 60
    assert instance(family, 60, 0) == (buffers, distances)
    assert instance(family, 60, 1) != (buffers, distances)
    assert bool(distances) == family.endswith("overlaps")
    result = plan(buffers, distances)
    assert result.arena_bytes <= 1.03 * result.lower_bound_bytes


def test_the_recorded_result() -> None:
    recorded = json.loads(RESULTS.read_text(encoding="utf-8"))
    rows = recorded["rows"]
    assert {(row["family"], row["buffers"]) for row in rows} == {(f, count) for f in FAMILIES for count in COUNTS}
    for name in ("instances", "reached", "proven"):
        assert recorded[name] == sum(row[name] for row in rows)
    assert recorded["proven"] >= 0.95 * recorded["instances"]
    assert max(row["seconds"] for row in rows) < 5

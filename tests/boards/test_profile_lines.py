"""What emitc_profile.h writes, read back: whole blocks come out as they went in, and whatever else arrives is named."""

from __future__ import annotations

import json
import random
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from emitc.boards.profile import (
    BEGIN,
    END,
    MOST_RECORDS,
    Block,
    KnownLayer,
    ProfiledModel,
    ProfileReader,
    profile_of,
    read_model,
)
from emitc.errors import CannotCompile, EmitcError
from emitc.report.run import profile_text, trace_json

SHA256 = "ab" * 32
MODEL = ProfiledModel(
    "net", "net.tflite", SHA256, (KnownLayer(0, "CONV_2D", "stem", 100), KnownLayer(3, "ADD", "sum", 0))
)
RUN = [(BEGIN, 10), (0, 110), (3, 130), (END, 131)]


def line(words: str) -> str:
    text = f"emitc-profile {words}"
    return f"{text} *{zlib.crc32(text.encode('ascii')):08x}"


def written(
    records: list[tuple[int, int]], name: str = "net", sha256: str = SHA256, lost: int = 0, rate: int = 1000
) -> list[str]:
    """The lines that emitc_profile_write writes."""
    digits = [f"{layer:08x}{ticks:08x}" for layer, ticks in records]
    parts = ["".join(digits[at : at + 6]) for at in range(0, len(digits), 6)]
    return [
        line(f"begin 00000001 {name} {sha256} {rate:08x} {len(records):08x} {lost:08x}"),
        *(line(f"data {6 * at:08x} {part}") for at, part in enumerate(parts)),
        line(f"end {len(records):08x} {zlib.crc32(''.join(digits).encode('ascii')):08x}"),
    ]


def read(lines: list[str]) -> tuple[list[Block], list[str]]:
    reader = ProfileReader()
    return list(reader.read(lines)), reader.problems


LINES = written(RUN * 3)


def test_a_block_comes_out_as_it_went_in() -> None:
    blocks, problems = read(["boot", *LINES, "", *(f"[12:00] {text}" for text in LINES)])
    assert problems == []
    assert blocks == [
        Block(2, "net", SHA256, 1000, 0, tuple(RUN * 3)),
        Block(7, "net", SHA256, 1000, 0, tuple(RUN * 3)),
    ]


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (LINES[:-1], "the profile of line 1 has no end: 12 of 12 records arrived"),
        (LINES[:2], "the profile of line 1 has no end: 6 of 12 records arrived"),
        (LINES[1:], "line 1: records without the beginning of their profile"),
        (LINES[-1:], "line 1: the end of a profile without its beginning"),
        ([LINES[0], *LINES[2:]], "line 2: record 6 follows, and 0 is the next; the profile of line 1 is left out"),
        ([*LINES[:3], *LINES[2:]], "line 4: record 6 follows, and 12 is the next"),
        ([LINES[0], LINES[1][:50], *LINES[2:]], "line 2: it is cut, or no line of a profile"),
        ([LINES[0], LINES[1].replace("0a", "0b", 1), *LINES[2:]], "line 2: its checksum is"),
        (
            [*LINES[:2], *LINES],
            "the profile of line 1 has no end, and the next begins in line 3: 6 of 12 records arrived",
        ),
        ([line("begin 00000002 net a 00000000 00000000 00000000")], "the profile has format 2, and this emitc reads 1"),
        ([line(f"begin 00000001 net a 00000000 {MOST_RECORDS + 1:08x} 00000000")], "it promises 1048577 records"),
        (
            [line("begin 00000001 net a 00000000 00000001 00000000"), LINES[1]],
            "more records than the 1 that were promised",
        ),
        ([line("drop table")], "its checksum is right, and it is no line of a profile"),
        ([line("data 00000000 xyz")], "its checksum is right, and it is no line of a profile"),
        ([*LINES[:-1], line("end 0000000b 00000000")], "the end counts 11 records, the beginning 12, and 12 of 12"),
        ([*LINES[:-1], line("end 0000000c 00000000")], "the checksum of all records is 00000000, and theirs is"),
        (["emitc-profile"], "line 1: it is cut, or no line of a profile"),
    ],
)
def test_what_is_cut_damaged_or_forged_is_named(lines: list[str], problem: str) -> None:
    blocks, problems = read(lines)
    assert any(problem in text for text in problems), problems
    assert all(block.records == tuple(RUN * 3) for block in blocks)


def test_a_damaged_block_costs_no_other_one() -> None:
    broken = [*LINES[:1], "#" + LINES[1][1:], *LINES[2:]]
    blocks, problems = read([*LINES, *broken, *LINES])
    assert [block.line for block in blocks] == [1, 9]
    assert len(problems) == 1 and "the profile of line 5 is left out" in problems[0]


def test_no_changed_byte_is_believed() -> None:
    """Every byte of a profile replaced once, cut once and doubled once: never other records than those that were written."""
    text = "\n".join(written(RUN)) + "\n"
    for at in range(len(text)):
        for changed in (chr(ord(text[at]) ^ 1), "\x00", "", text[at] * 2, "\n"):
            blocks, _ = read((text[:at] + changed + text[at + 1 :]).splitlines())
            assert all(block.records == tuple(RUN) and block.sha256 == SHA256 for block in blocks)


def test_noise_ends_in_time_and_says_so() -> None:
    draw = random.Random(7)
    noise = bytes(draw.randrange(256) for _ in range(200_000)).decode("ascii", errors="replace")
    shuffled = [draw.choice(LINES)[draw.randrange(5) :] for _ in range(3000)]
    blocks, problems = read([*noise.splitlines(), *shuffled])
    assert len(problems) <= 1000
    assert all(block.records == tuple(RUN * 3) for block in blocks)


def blocks_of(*records: tuple[int, int], lost: int = 0, **more: Any) -> list[Block]:
    return read(written(list(records), lost=lost, **more))[0]


def test_the_runs_of_a_profile() -> None:
    profile = profile_of(MODEL, blocks_of(*RUN, *[(layer, ticks + 1000) for layer, ticks in RUN]), ["noise"])
    assert [(run.start, run.total, run.layers) for run in profile.runs] == [(0, 121, (100, 20)), (1000, 121, (100, 20))]
    json_of = profile.to_json()
    assert (json_of["runs"], json_of["ticks"], json_of["microseconds"]) == (2, 121.0, 121000.0)
    assert json_of["layers"][0] == {
        "index": 0, "before": [], "op": "CONV_2D", "name": "stem", "macs": 100,
        "ticks": 100.0, "ticks_min": 100, "ticks_max": 100, "microseconds": 100000.0,
    }  # fmt: skip
    text = profile_text(profile)
    assert "net.tflite: 2 runs, 1 000 ticks a second" in text and "left out: noise" in text
    assert [row.split() for row in text.splitlines() if "CONV_2D" in row] == [
        ["0", "CONV_2D", "stem", "100", "100", "100", "82.6%", "100000.0", "1.00"]
    ]


def test_a_slow_counter_shows_its_share_of_a_tick_for_each_product() -> None:
    model = replace(MODEL, layers=(KnownLayer(0, "CONV_2D", "stem", 320_000), *MODEL.layers[1:]))
    text = profile_text(profile_of(model, blocks_of(*RUN), []))
    assert [row.split()[-1] for row in text.splitlines() if "CONV_2D" in row] == ["0.00031"]


def test_a_clock_that_starts_again_with_0() -> None:
    late = [(layer, (ticks + (1 << 32) - 115) % (1 << 32)) for layer, ticks in RUN]
    assert profile_of(MODEL, blocks_of(*late), ()).runs[0].layers == (100, 20)


def test_a_layer_with_several_outputs_ends_with_the_last() -> None:
    profile = profile_of(MODEL, blocks_of((BEGIN, 0), (0, 5), (0, 9), (3, 12), (END, 12)), ())
    assert profile.runs[0].layers == (9, 3)


def test_whole_runs_alone() -> None:
    profile = profile_of(MODEL, blocks_of((BEGIN, 5), (END, 9)), ())
    assert (profile.runs[0].total, profile.by_layer) == (4, ())
    assert "built without EMITC_TRACE" in profile_text(profile)


def test_a_ring_that_has_lost_the_beginning_of_a_run() -> None:
    profile = profile_of(MODEL, blocks_of(*RUN[2:], *RUN, lost=6), ())
    assert (len(profile.runs), profile.lost, profile.problems) == (1, 6, ())
    assert "the ring has lost 6 older records" in profile_text(profile)


@pytest.mark.parametrize(
    ("blocks", "problem"),
    [
        ([], "no line of a profile arrived"),
        (blocks_of(), "no run was recorded"),
        (blocks_of(*RUN[1:]), "record 0 is outside of a run"),
        (blocks_of(*RUN[:-1]), "run 1 has no end"),
        (blocks_of(*RUN[:2], *RUN[:2]), "run 1 has no end"),
        (blocks_of(RUN[0], RUN[1], RUN[3]), "run 1: it ended after op 0, and op 3 was to follow"),
        (blocks_of(RUN[0], RUN[2], RUN[3]), "run 1: op 3 ran, and op 0 is the model's next layer"),
        (blocks_of(*RUN[:3], (9, 130), RUN[3]), "run 1: op 9 ran after the model's last layer"),
        (blocks_of(*RUN, name="other"), "the profile of line 1 is of model other"),
        (blocks_of(*RUN, sha256="cd"), "is of another file of net: its SHA-256 is cd"),
    ],
)
def test_a_profile_without_a_whole_run_says_why(blocks: list[Block], problem: str) -> None:
    with pytest.raises(CannotCompile, match="there is no whole run in the profile") as error:
        profile_of(MODEL, blocks, ())
    assert problem in error.value.why
    assert ("a run needs 4 records" if blocks else "call emitc_profile_write()") in error.value.hint


def test_a_trace_has_the_layers_inside_of_their_run() -> None:
    two = [*blocks_of(*RUN), *blocks_of(*RUN)]
    trace = json.loads(trace_json(profile_of(MODEL, two, ())))
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert [(event["name"], event["ts"], event["dur"], event["tid"]) for event in events[:3]] == [
        ("run of net", 0.0, 121000.0, 1), ("op 0 CONV_2D", 0.0, 100000.0, 1), ("op 3 ADD", 100000.0, 20000.0, 1),
    ]  # fmt: skip
    assert {event["tid"] for event in events} == {1, 2}
    unknown = json.loads(trace_json(profile_of(MODEL, blocks_of(*RUN, rate=0), ())))
    assert (unknown["otherData"]["unit"], unknown["traceEvents"][1]["dur"]) == ("ticks", 121)


def test_profiles_of_different_clocks_have_no_times() -> None:
    blocks = [*blocks_of(*RUN), *blocks_of(*RUN, rate=7)]
    profile = profile_of(MODEL, blocks, ())
    assert profile.rate == 0 and "different ticks a second: [7, 1000]" in profile.problems[0]
    assert profile_of(MODEL, blocks, (), rate=50).rate == 50


MANIFEST = {
    "name": "net",
    "model": {"file": "net.tflite", "sha256": SHA256},
    "layers": [
        {"index": 0, "op": "CONV_2D", "name": "stem", "macs": 60},
        {"index": 2, "op": "MUL", "name": "by", "macs": 40},
        {"index": 3, "op": "ADD", "name": "sum", "macs": 0},
    ],
    "schedule": [{"move": "x", "bytes": 1}, {"by_rows": [0, 2]}, {"layer": 3}],
    "trace": [{"layer": 2, "first": 0, "end": 2}, {"layer": 3, "first": 2, "end": 3}],
}


def test_a_segment_counts_as_its_last_layer(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps(MANIFEST), encoding="utf-8")
    layers = (KnownLayer(2, "MUL", "by", 100), KnownLayer(3, "ADD", "sum", 0))
    assert read_model(tmp_path) == ProfiledModel("net", "net.tflite", SHA256, layers)


def test_layers_that_share_a_record_are_a_row(tmp_path: Path) -> None:
    """A record of the whole run needs no call of the layer hook: its two marks say all."""
    content = MANIFEST | {"profile": {"interval": 1, "records": [[2, 3]]}}
    (tmp_path / "manifest.json").write_text(json.dumps(content), encoding="utf-8")
    model = read_model(tmp_path)
    assert model.layers == (KnownLayer(3, "2 layers", "by", 100, (2,)),)
    profile = profile_of(model, blocks_of((BEGIN, 5), (END, 105)), ())
    assert profile.runs[0].layers == (100,)
    (row,) = (row.split() for row in profile_text(profile).splitlines() if "2 layers" in row)
    assert row[:6] == ["2", "to", "3", "2", "layers", "by"]
    assert profile.to_json()["layers"][0]["before"] == [2]


@pytest.mark.parametrize(
    "content",
    [
        b"", b"{", b"[]", b"null", b"7", b"\xff", b"[" * 100_000, b'{"layers": 1}',
        json.dumps(MANIFEST | {"layers": [7]}).encode(), json.dumps(MANIFEST | {"name": 7}).encode(),
        json.dumps(MANIFEST | {"trace": [{"layer": 9, "first": 0, "end": 1}]}).encode(),
        json.dumps(MANIFEST | {"trace": [{"layer": 2, "first": -1, "end": 1 << 70}]}).encode(),
        *(
            json.dumps(MANIFEST | {"profile": {"records": records}}).encode()
            for records in ([[2]], [[3, 2]], [[2, 3], []], [2, 3], 7, [[2, 3, 3]])
        ),
        json.dumps(MANIFEST | {"profile": 7}).encode(),
        json.dumps(MANIFEST | {"layers": [{"index": True, "op": "A", "name": "a", "macs": 1}]}).encode(),
    ],
)  # fmt: skip
def test_a_manifest_of_any_content_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(EmitcError, match="is no manifest of emitc"):
        read_model(tmp_path)
    with pytest.raises(EmitcError, match="cannot be read"):
        read_model(tmp_path / "nothing.json")

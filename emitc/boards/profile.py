"""What emitc_profile.h has recorded on a board: its lines, and with a package's manifest which layer took how many ticks.

Noise, cut, repeated and forged lines are named. A block of lines counts only as a whole: every line with the right checksum, all
records in their order, and the checksum of all of them.
"""

import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from emitc.errors import CannotCompile, EmitcError, Warned, WarningCode, Where, shown
from emitc.program.members import members
from emitc.records import dataclass, field, replace

FORMAT = 1
MOST_RECORDS = 1 << 20
"""Of one block; a microcontroller has no memory for more."""
_MOST_PROBLEMS = 1000
_RECORDS_PER_LINE = 6
_LINE = re.compile(r"emitc-profile (?P<words>[!-~ ]*?) \*(?P<crc>[0-9a-f]{8})(?![!-~])", re.ASCII)
_HEX = r"[0-9a-f]{8}"
_BEGIN = re.compile(
    rf"begin (?P<format>{_HEX}) (?P<name>[!-~]+) (?P<sha256>[!-~]+) (?P<rate>{_HEX}) (?P<count>{_HEX}) (?P<lost>{_HEX})"
)
_DATA = re.compile(rf"data (?P<first>{_HEX}) (?P<records>(?:{_HEX}{_HEX}){{1,{_RECORDS_PER_LINE}}})")
_END = re.compile(rf"end (?P<count>{_HEX}) (?P<crc>{_HEX})")


@dataclass(frozen=True, slots=True)
class Block:
    """What one call of emitc_profile_write has written, and the line on which it begins.

    rate: ticks a second, 0 where the application does not know. lost: records that a full ring has overwritten.
    records: pairs of a layer (or a mark) and the time in ticks, which starts again with 0 after 2^32 - 1.
    """

    line: int
    name: str
    sha256: str
    rate: int
    lost: int
    records: tuple[tuple[int, int], ...]


@dataclass(slots=True)
class _Open:
    """A block whose end has not come yet. digits: those of the records so far."""

    line: int
    begin: re.Match[str]
    count: int
    digits: list[str] = field(default_factory=list)
    records: list[tuple[int, int]] = field(default_factory=list)


class ProfileReader:
    """Takes lines one by one, and hands out each whole block. problems: what is wrong with the others, in words."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._open: _Open | None = None
        self._left_out = False
        self._number = 0

    def read(self, lines: Iterable[str]) -> Iterator[Block]:
        """The whole blocks of the lines, in their order; at the end an open block becomes a problem."""
        for line in lines:
            block = self.add(line)
            if block is not None:
                yield block
        self.finish()

    def add(self, line: str) -> Block | None:
        """Takes the next line; the block that it ends, where it ends one. Text before `emitc-profile` is of a log."""
        self._number += 1
        at = line.find("emitc-profile")
        if at < 0:
            return None
        match = _LINE.match(line, at)
        if match is None:
            return self._broken("it is cut, or no line of a profile")
        words = match["words"]
        crc = zlib.crc32(f"emitc-profile {words}".encode("ascii"))
        if crc != int(match["crc"], 16):
            return self._broken(f"its checksum is {match['crc']}, and that of its text is {crc:08x}")
        if begin := _BEGIN.fullmatch(words):
            return self._begin(begin)
        if data := _DATA.fullmatch(words):
            return self._data(data)
        if end := _END.fullmatch(words):
            return self._end(end)
        return self._broken("its checksum is right, and it is no line of a profile")

    def finish(self) -> None:
        if self._open is not None:
            self._problem(f"the profile of line {self._open.line} has no end: {self._arrived()}")
            self._open = None

    def _arrived(self) -> str:
        assert self._open is not None
        return f"{len(self._open.records)} of {self._open.count} records arrived"

    def _problem(self, text: str) -> None:
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(text)

    def _broken(self, why: str) -> Block | None:
        """A line that cannot be used, which ends no block. With it the block that is open, if any, is of no use.

        The lines that follow up to the next beginning are left out too, without a word.
        """
        if self._left_out:
            return None
        block, self._open, self._left_out = self._open, None, True
        ending = "" if block is None else f"; the profile of line {block.line} is left out"
        self._problem(f"line {self._number}: {why}{ending}")
        return None

    def _begin(self, match: re.Match[str]) -> Block | None:
        if self._open is not None:
            why = f"the profile of line {self._open.line} has no end, and the next begins in line {self._number}"
            self._problem(f"{why}: {self._arrived()}; the board has started again, or lines are lost")
            self._open = None
        self._left_out = False
        count, version = int(match["count"], 16), int(match["format"], 16)
        if version != FORMAT:
            return self._broken(f"the profile has format {version}, and this emitc reads {FORMAT}")
        if count > MOST_RECORDS:
            return self._broken(f"it promises {count} records, and {MOST_RECORDS} are the most")
        self._open = _Open(self._number, match, count)
        return None

    def _data(self, match: re.Match[str]) -> Block | None:
        block = self._open
        if block is None:
            return self._broken("records without the beginning of their profile")
        first, digits = int(match["first"], 16), match["records"]
        if first != len(block.records):
            return self._broken(f"record {first} follows, and {len(block.records)} is the next")
        numbers = [int(digits[at : at + 8], 16) for at in range(0, len(digits), 8)]
        block.digits.append(digits)
        block.records += zip(numbers[::2], numbers[1::2], strict=True)
        if len(block.records) > block.count:
            return self._broken(f"more records than the {block.count} that were promised")
        return None

    def _end(self, match: re.Match[str]) -> Block | None:
        block = self._open
        if block is None:
            return self._broken("the end of a profile without its beginning")
        count, crc = int(match["count"], 16), zlib.crc32("".join(block.digits).encode("ascii"))
        if not count == block.count == len(block.records):
            return self._broken(f"the end counts {count} records, the beginning {block.count}, and {self._arrived()}")
        if crc != int(match["crc"], 16):
            return self._broken(f"the checksum of all records is {match['crc']}, and theirs is {crc:08x}")
        self._open = None
        begin = block.begin
        rate, lost = int(begin["rate"], 16), int(begin["lost"], 16)
        return Block(block.line, begin["name"], begin["sha256"], rate, lost, tuple(block.records))


BEGIN, END = 0xFFFFFFFF, 0xFFFFFFFE
"""Values of a record's layer that mark the beginning and the end of a run."""
_WRAP = 1 << 32
_LARGEST = 1 << 26
"""Bytes of a manifest at most."""
_SHOWN_PROBLEMS = 3


@dataclass(frozen=True, slots=True)
class KnownLayer:
    """A layer as the manifest has it, or several that share a record. index: of the last one. before: of the others. macs: of
    all layers that the layer hook reports with it.
    """

    index: int
    op: str
    name: str
    macs: int
    before: tuple[int, ...] = ()

    @property
    def label(self) -> str:
        """Which operators it is: `3`, or `0 to 3`."""
        return f"{self.before[0]} to {self.index}" if self.before else str(self.index)


@dataclass(frozen=True, slots=True)
class ProfiledModel:
    """What a manifest says of a model: C name, its file with its hash, and the layers in the order of the layer hook's calls."""

    name: str
    file: str
    sha256: str
    layers: tuple[KnownLayer, ...]


@dataclass(frozen=True, slots=True)
class Run:
    """One run. start: ticks since the first record of its block. layers: ticks of each, () where only runs were recorded.

    block: number of the block that it is from; the clocks of two blocks are not related.
    """

    start: int
    total: int
    layers: tuple[int, ...]
    block: int = 0


@dataclass(frozen=True, slots=True)
class Profile:
    """The runs of a model. rate: ticks a second, 0 where it is not known. lost: records that rings have overwritten.

    problems: what was wrong with other lines, blocks and runs, in words.
    """

    model: ProfiledModel
    rate: int
    lost: int
    runs: tuple[Run, ...]
    problems: tuple[str, ...]

    @property
    def by_layer(self) -> tuple[tuple[KnownLayer, tuple[int, ...]], ...]:
        """Each layer with its ticks in every run that recorded layers; nothing where none did."""
        runs = [run.layers for run in self.runs if run.layers]
        if not runs:
            return ()
        return tuple(zip(self.model.layers, zip(*runs, strict=True), strict=True))

    def microseconds(self, ticks: float) -> float | None:
        """So many ticks in microseconds; None where the ticks of a second are not known."""
        return ticks / self.rate * 1e6 if self.rate else None

    @property
    def warnings(self) -> tuple[Warned, ...]:
        """What the runs do not show: records that are lost, and what was wrong with others."""
        lost = (f"the ring has lost {self.lost} older records",) if self.lost else ()
        left_out = (f"left out: {shown(problem, 300)}" for problem in self.problems)
        return tuple(Warned(WarningCode.RECORDS, what) for what in (*lost, *left_out))

    def to_json(self) -> dict[str, Any]:
        return {
            **members(self, "model=model.name model_file=model.file model_sha256=model.sha256 ticks_per_second=rate"),
            "runs": len(self.runs),
            "lost_records": self.lost,
            **self._spread([run.total for run in self.runs]),
            "layers": [
                members(layer, "index before op name macs") | self._spread(ticks) for layer, ticks in self.by_layer
            ],
            "problems": list(self.problems),
            "warnings": [warning.as_json() for warning in self.warnings],
        }

    def _spread(self, ticks: Sequence[int]) -> dict[str, Any]:
        mean = sum(ticks) / len(ticks)
        micros = self.microseconds(mean)
        return {
            "ticks": round(mean, 1),
            "ticks_min": min(ticks),
            "ticks_max": max(ticks),
            "microseconds": None if micros is None else round(micros, 3),
        }


def read_model(path: Path) -> ProfiledModel:
    """The model of a package, or of its manifest.json. Raises EmitcError for what cannot be read or is no manifest."""
    file = path / "manifest.json" if path.is_dir() else path
    where, hint = Where(model=file.name, option="--manifest"), "name the folder of emitc compile, or its manifest.json"
    try:
        with file.open("rb") as stream:
            data = stream.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise ValueError(f"it has more than {_LARGEST} bytes")
        return _model_of(json.loads(data.decode("utf-8")))
    except OSError as error:
        raise EmitcError(f"{shown(file.name)} cannot be read", where, error.strerror or str(error), hint) from error
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        why = str(error)[:200] or type(error).__name__
        raise EmitcError(f"{shown(file.name)} is no manifest of emitc", where, why, hint) from error


def _model_of(content: Any) -> ProfiledModel:
    """The model of a manifest's content. Raises ValueError, TypeError or LookupError for what is no manifest."""
    layers = {_whole(layer["index"]): layer for layer in _of_type(list, content["layers"])}
    schedule, trace = _of_type(list, content["schedule"]), _of_type(list, content["trace"])
    known = []
    for traced in trace:
        index, first, end = (_whole(traced[key]) for key in ("layer", "first", "end"))
        layer = layers[index]
        macs = sum(_whole(layers[i]["macs"]) for stage in schedule[first:end] for i in _indices(stage))
        known.append(KnownLayer(index, _of_type(str, layer["op"]), _of_type(str, layer["name"]), macs))
    model = content["model"]
    name, file, sha256 = (_of_type(str, text) for text in (content["name"], model["file"], model["sha256"]))
    return ProfiledModel(name, file, sha256, _by_record(known, content.get("profile")))


def _by_record(layers: list[KnownLayer], profile: Any) -> tuple[KnownLayer, ...]:
    """The layers of each record. profile: what the manifest says of records, None where each layer has its own."""
    if profile is None:
        return tuple(layers)
    records = [[_whole(index) for index in _of_type(list, record)] for record in _of_type(list, profile["records"])]
    if [index for record in records for index in record] != [layer.index for layer in layers] or not all(records):
        raise ValueError("its records are not those of its layers")
    rest = iter(layers)
    return tuple(map(_joined, ([next(rest) for _ in record] for record in records)))


def _joined(layers: list[KnownLayer]) -> KnownLayer:
    ops = {layer.op for layer in layers}
    op = ops.pop() if len(ops) == 1 else f"{len(layers)} layers"
    before = tuple(layer.index for layer in layers[:-1])
    return KnownLayer(layers[-1].index, op, layers[0].name, sum(layer.macs for layer in layers), before)


def _of_type(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{str(value)[:40]!r} is no {kind.__name__}")
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 62:
        raise TypeError(f"{str(value)[:40]!r} is no size or index")
    return value


def _indices(stage: Mapping[str, Any]) -> list[int]:
    if "layer" in stage:
        return [_whole(stage["layer"])]
    return [_whole(index) for index in _of_type(list, stage.get("by_rows", []))]


def profile_of(model: ProfiledModel, blocks: Sequence[Block], problems: Sequence[str], rate: int = 0) -> Profile:
    """The profile in the blocks of a model. problems: those of the lines. rate: ticks a second, replaces what the blocks say.

    Raises CannotCompile where no whole run of the model is in them; the reason names what is.
    """
    said = list(problems)
    runs: list[Run] = []
    lost, rates = 0, {rate} if rate else set()
    expected = [layer.index for layer in model.layers]
    for number, block in enumerate(blocks):
        place = f"the profile of line {block.line}"
        if block.name != model.name:
            said.append(f"{place} is of model {shown(block.name)}")
        elif block.sha256 != model.sha256:
            said.append(f"{place} is of another file of {model.name}: its SHA-256 is {shown(block.sha256, 64)}")
        else:
            fresh, wrong = _runs(expected, block)
            said += [f"{place}: {text}" for text in wrong[:_MOST_PROBLEMS]]
            runs += [replace(run, block=number) for run in fresh]
            lost += block.lost
            rates |= set() if rate else {block.rate}
    if len(rates) > 1:
        said.append(f"the profiles say different ticks a second: {sorted(rates)}; times are left out")
    if not runs:
        raise _no_run(model, blocks, said)
    return Profile(model, rates.pop() if len(rates) == 1 else 0, lost, tuple(runs), tuple(said[:_MOST_PROBLEMS]))


def _no_run(model: ProfiledModel, blocks: Sequence[Block], problems: Sequence[str]) -> CannotCompile:
    why = "; ".join(problems[:_SHOWN_PROBLEMS])
    if len(problems) > _SHOWN_PROBLEMS:
        why += f"; and {len(problems) - _SHOWN_PROBLEMS} more"
    if not why:
        why = "no run was recorded" if blocks else "no line of a profile arrived"
    hint = f"a run needs {len(model.layers) + 2} records of the ring, and more where a layer has several outputs"
    if not (blocks or problems):
        hint = "let the firmware call emitc_profile_write() after a run, and read what it writes"
    return CannotCompile(
        "there is no whole run in the profile", Where(model=model.name, option="emitc profile"), why, hint
    )


def _runs(expected: Sequence[int], block: Block) -> tuple[list[Run], list[str]]:
    """The whole runs of a block, and what is wrong with the others. expected: the layers of a run."""
    runs: list[Run] = []
    problems: list[str] = []
    now = 0
    before = block.records[0][1] if block.records else 0
    current: list[tuple[int, int]] | None = None
    number = 0
    for position, (layer, ticks) in enumerate(block.records):
        now, before = now + (ticks - before) % _WRAP, ticks
        if layer == BEGIN:
            if current is not None:
                problems.append(f"run {number} has no end")
            current, number = [(BEGIN, now)], number + 1
        elif current is not None:
            current.append((layer, now))
            if layer == END:
                run, wrong = _run(expected, current)
                runs += [] if run is None else [run]
                problems += [f"run {number}: {wrong}"] if wrong else []
                current = None
        elif block.lost == 0 or number > 0:
            problems.append(f"record {position} is outside of a run")
    if current is not None:
        problems.append(f"run {number} has no end")
    return runs, problems


def _run(expected: Sequence[int], records: Sequence[tuple[int, int]]) -> tuple[Run | None, str]:
    """A run of its records, from the mark of its beginning to that of its end; or what is wrong with it.

    A layer with several outputs has a record for each.
    """
    start, total = records[0][1], records[-1][1] - records[0][1]
    ends: list[tuple[int, int]] = []
    for layer, now in records[1:-1]:
        if ends and ends[-1][0] == layer:
            ends.pop()
        ends.append((layer, now))
    recorded = [layer for layer, _ in ends]
    if not recorded:  # a record of all layers needs no call of the layer hook
        return Run(start, total, (total,) if len(expected) == 1 else ()), ""
    if recorded != expected:
        same = next((i for i, pair in enumerate(zip(recorded, expected, strict=False)) if pair[0] != pair[1]), None)
        if same is not None:
            return None, f"op {recorded[same]} ran, and op {expected[same]} is the model's next layer"
        if len(recorded) < len(expected):
            return None, f"it ended after op {recorded[-1]}, and op {expected[len(recorded)]} was to follow"
        return None, f"op {recorded[len(expected)]} ran after the model's last layer"
    times = [start, *(now for _, now in ends)]
    return Run(start, total, tuple(end - begin for begin, end in pairwise(times))), ""

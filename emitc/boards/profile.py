"""Profiles of a board (`profile_lines`) with a package's manifest: which layer took how many ticks, run by run."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from emitc.boards.profile_lines import Block
from emitc.errors import CannotCompile, EmitcError, Warned, WarningCode, Where, shown
from emitc.program.members import members

BEGIN, END = 0xFFFFFFFF, 0xFFFFFFFE
"""Values of a record's layer that mark the beginning and the end of a run."""
_WRAP = 1 << 32
_LARGEST = 1 << 26
"""Bytes of a manifest at most."""
_SHOWN_PROBLEMS = 3
_MOST_PROBLEMS = 1000


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
        """For `emitc profile --json`."""
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
    """Layers that share a record."""
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
    """The layers of one stage of the schedule."""
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

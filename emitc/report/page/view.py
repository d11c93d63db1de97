"""What a report shows of a model, read from the manifest of its package.

A manifest of a folder is a file of somebody's: every value is checked for its type and size before anything is drawn.
"""

import re
from collections.abc import Callable, Mapping
from itertools import zip_longest
from typing import Any

from emitc.errors import EmitcError, Where, first_name
from emitc.records import dataclass
from emitc.report.picture import Bar

MOST_LAYERS = 1 << 14
MOST_BUFFERS = 1 << 13
_MOST_BYTES = 1 << 40
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer. stage: of the memory plan, in which it runs. arena_bytes: bytes in use then. inputs: numbers of layers that it
    reads, or -1 - k for input k of the model; () where that is not known.
    """

    index: int
    op: str
    name: str
    backend: str
    kernel: str
    variant: str
    macs: int
    constant_bytes: int
    output_bytes: int
    stage: int
    arena_bytes: int
    inputs: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of the model."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    size_bytes: int
    scale: float | None
    zero_point: int | None


@dataclass(frozen=True, slots=True)
class View:
    """A model as its report shows it. stages: what runs at each step of the memory plan. buffers: each with its region."""

    name: str
    file: str
    sha256: str
    producer: str
    emitc: str
    target: str
    options: Mapping[str, Any]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    layers: tuple[Layer, ...]
    stages: tuple[str, ...]
    buffers: tuple[tuple[str, Bar], ...]
    arena_bytes: int
    bound_bytes: int
    proven: bool
    peak_stage: int
    proof: str
    regions: tuple[tuple[str, int, str], ...]
    state_bytes: int
    constant_bytes: int
    macs: int
    notes: tuple[str, ...]
    passes: tuple[tuple[str, int, int, int], ...]


def view_of(manifest: Any, file: str) -> View:
    """The view of a manifest. file: its name, for messages. Raises EmitcError for a manifest that is none or makes no sense."""
    try:
        return _view(manifest)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RecursionError, OverflowError) as error:
        why = f"{type(error).__name__}: {error}"
        raise EmitcError("this is no manifest of emitc", Where(option=file), why, "compile the model again") from error


def _number(value: object, most: int = _MOST_BYTES, least: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ValueError(f"{str(value)[:40]!r} is no whole number from {least} to {most}")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{str(value)[:40]!r} is no text")
    return value


def _list(value: object, most: int) -> list[Any]:
    if not isinstance(value, list) or len(value) > most:
        raise ValueError(f"a list of at most {most} values is expected")
    return value


def _real(value: object) -> float | None:
    if value is None or (isinstance(value, int | float) and not isinstance(value, bool)):
        return value
    raise TypeError(f"{str(value)[:40]!r} is no number")


def _read(read: Callable[[object], Any], content: Mapping[str, Any], names: str) -> dict[str, Any]:
    """Values of an object of the manifest; names: `name`, or `name=key` for one under another key."""
    return {name: read(content[key or name]) for name, _, key in (stated.partition("=") for stated in names.split())}


def _view(m: dict[str, Any]) -> View:
    stages = _list(m["schedule"], MOST_LAYERS)
    memory = m["memory"]
    ends: dict[str, str] = {}
    for kind, ports in (("input", m["inputs"]), ("output", m["outputs"])):
        ends |= {_text(port["name"]): kind for port in _list(ports, MOST_LAYERS)}
    buffers = tuple(_buffer(buffer, ends, len(stages)) for buffer in _list(memory["buffers"], MOST_BUFFERS))
    used = _bytes_by_stage(buffers, len(stages))
    layers = _list(m["layers"], MOST_LAYERS)
    ops = {_number(layer["index"]): _text(layer["op"]) for layer in layers}
    where = _stage_of(stages)
    regions = tuple(
        (_text(region["name"]), _number(region["arena_bytes"]), _text(region.get("claim", region.get("proof", ""))))
        for region in _list(memory.get("regions", []), 64)
    )
    codes = _list(m.get("note_codes", []), MOST_LAYERS)
    notes = zip_longest(_list(m["notes"], MOST_LAYERS), codes, fillvalue="")
    return View(
        **_read(_text, m, "name emitc=emitc_version target"),
        **_read(_text, m["model"], "file sha256 producer"),
        options=dict(m["options"]),
        inputs=tuple(map(_port, m["inputs"])),
        outputs=tuple(map(_port, m["outputs"])),
        layers=tuple(_layer(layer, where, used) for layer in layers),
        stages=tuple(_stage_text(stage, ops) for stage in stages),
        buffers=buffers,
        **_read(_number, memory, "arena_bytes bound_bytes=lower_bound_bytes"),
        proven=memory["proven"] is True,
        peak_stage=_number(memory["peak"]["step"], MOST_LAYERS, -1),
        proof=_text(memory["proof"]),
        regions=regions,
        **_read(_number, m, "state_bytes constant_bytes"),
        macs=_number(m["macs"], 1 << 60),
        notes=tuple(f"{_text(note)} ({_text(code)})" if code else _text(note) for note, code in notes),
        passes=tuple(
            (_text(p["name"]), _number(p["changes"]), _number(p["nodes_before"]), _number(p["nodes_after"]))
            for p in _list(m["passes"], 1000)
        ),
    )


def _port(port: dict[str, Any]) -> Port:
    shape = tuple(_number(size) for size in _list(port["shape"], 16))
    zero = port["zero_point"]
    point = None if zero is None else _number(zero, 1 << 32, -(1 << 32))
    return Port(_text(port["name"]), _text(port["dtype"]), shape, _number(port["bytes"]), _real(port["scale"]), point)


def _buffer(buffer: dict[str, Any], ends: Mapping[str, str], stages: int) -> tuple[str, Bar]:
    what, tensor = _text(buffer["what"]), _text(buffer["tensor"])
    first, end = _number(buffer["first"], stages), _number(buffer["end"], stages)
    if end <= first:
        raise ValueError(f"a buffer lives in the steps [{first}, {end})")
    scratch = what.startswith(("scratch", "copy", "weights"))
    named = _QUOTED.search(what)
    return _text(buffer.get("region", "")), Bar(
        first_name(named[1]) if named and named[1] else _text(buffer["name"]).removeprefix("AT_").lower(),
        _number(buffer["bytes"]),
        _number(buffer["offset"]),
        first,
        end,
        f"{_text(buffer['name'])}: {what}",
        "scratch" if scratch else ends.get(tensor, "tensor"),
    )


def _bytes_by_stage(buffers: tuple[tuple[str, Bar], ...], stages: int) -> list[int]:
    """Bytes that are in use at each stage: every address counts once, though buffers may share it."""
    used = [0] * stages
    by_stage: list[list[tuple[str, int, int]]] = [[] for _ in range(stages)]
    for region, bar in buffers:
        for stage in range(bar.first, bar.end):
            by_stage[stage].append((region, bar.offset_bytes, bar.offset_bytes + bar.size_bytes))
    for stage, spans in enumerate(by_stage):
        region, reached = "", 0
        for place, low, high in sorted(spans):
            if place != region:
                region, reached = place, 0
            used[stage] += max(0, high - max(low, reached))
            reached = max(reached, high)
    return used


def _stage_of(stages: list[Any]) -> dict[int, int]:
    where: dict[int, int] = {}
    for position, stage in enumerate(stages):
        for index in [stage["layer"]] if "layer" in stage else stage.get("by_rows", []):
            where[_number(index)] = position
    return where


def _stage_text(stage: dict[str, Any], ops: Mapping[int, str]) -> str:
    if "layer" in stage:
        return f"{_number(stage['layer'])} {ops.get(stage['layer'], '')}".strip()
    if "by_rows" in stage:
        rows = _list(stage["by_rows"], MOST_LAYERS)
        return f"ops {_number(rows[0])} to {_number(rows[-1])} row by row"
    return "move"


def _layer(layer: dict[str, Any], where: Mapping[int, int], used: list[int]) -> Layer:
    index = _number(layer["index"])
    stage = where.get(index, -1)
    return Layer(
        index=index,
        **_read(_text, layer, "op backend kernel variant"),
        name=first_name(_text(layer["name"])),
        macs=_number(layer["macs"], 1 << 60),
        constant_bytes=_number(layer["constant_bytes"]),
        output_bytes=sum(_number(output["bytes"]) for output in _list(layer["outputs"], MOST_LAYERS)),
        stage=stage,
        arena_bytes=used[stage] if stage >= 0 else 0,
    )

"""What differs between two packages, manifests or measurements: sizes and counts, layers, and the interface of the
model."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from emitc.errors import EmitcError, Where
from emitc.records import dataclass

_LARGEST = 1 << 26
"""Bytes of a file at most."""
FIGURES = (
    "instructions",
    "cycles",
    "microseconds",
    "cycles_estimated",
    "ms_estimated",
    "arena_bytes",
    "state_bytes",
    "stack_bytes",
    "model_flash_bytes",
    "flash_bytes",
    "code_bytes",
    "constant_bytes",
    "ram_bytes",
    "macs",
)
"""Figures that are compared where both sides have them; less is better. Those that may grow with a bigger image are
last."""
_COUNTS = ("instructions", "cycles", "microseconds", "macs", "constant_bytes")
"""Of these a layer's first one that both sides have is compared."""
_FACTS = ("name", "model", "model_file", "model_sha256", "emitc_version", "target", "board", "options", "match")
_PORT = ("name", "dtype", "shape", "scale", "zero_point")
"""What an application relies on."""


@dataclass(frozen=True, slots=True)
class Change:
    """A figure of both sides."""

    name: str
    old: float
    new: float

    @property
    def share(self) -> float:
        """The change over the old value: infinite where that was 0."""
        if self.old == self.new:
            return 0.0
        return (self.new - self.old) / self.old if self.old else math.inf

    def to_json(self) -> dict[str, Any]:
        """For --json: a share of null where the old value is 0."""
        share = round(self.share, 6) if math.isfinite(self.share) else None
        return {"name": self.name, "old": self.old, "new": self.new, "share": share}


@dataclass(frozen=True, slots=True)
class Difference:
    """figures: of both sides, equal ones too. layers: figures and kernels that differ. facts: what else differs, old
    and new.

    breaks: changes of the interface, in words; code that uses the model has to change with each.
    """

    figures: tuple[Change, ...]
    layers: tuple[Change, ...]
    kernels: tuple[tuple[str, str, str], ...]
    facts: tuple[tuple[str, str, str], ...]
    breaks: tuple[str, ...]

    def failed(self, most: float) -> tuple[str, ...]:
        """What a gate refuses, in words. most: share by which a figure may grow."""
        grown = [f"{c.name} grew by {_percent(c.share)}" for c in self.figures if c.share > most]
        lost = [
            f"{name} was {old}, and is {new}" for name, old, new in self.facts if name == "match" and new == "False"
        ]
        return (*grown, *lost, *self.breaks)

    def to_json(self) -> dict[str, Any]:
        return {
            "figures": [change.to_json() for change in self.figures],
            "layers": [change.to_json() for change in self.layers],
            "kernels": [{"layer": layer, "old": old, "new": new} for layer, old, new in self.kernels],
            "facts": [{"name": name, "old": old, "new": new} for name, old, new in self.facts],
            "breaks": list(self.breaks),
        }


def _percent(share: float) -> str:
    return f"{100 * share:+.1f} %" if math.isfinite(share) else "from 0"


def read_side(path: Path) -> Mapping[str, Any]:
    """The JSON object of a package, its manifest, or a file that `--json` has written.

    Raises EmitcError for what cannot be read or is no such object.
    """
    where, hint = Where(model=path.name), "a package, a manifest.json, or what emitc run --json has printed"
    file = path / "manifest.json" if path.is_dir() else path
    try:
        with file.open("rb") as stream:
            data = stream.read(_LARGEST + 1)
        content = json.loads(data.decode("utf-8")) if len(data) <= _LARGEST else None
    except OSError as error:
        raise EmitcError(f"{file.name} cannot be read", where, error.strerror or str(error), hint) from error
    except (ValueError, RecursionError) as error:
        raise EmitcError(f"{file.name} is no JSON", where, str(error)[:200], hint) from error
    if not isinstance(content, dict) or not (set(FIGURES) & _figures(content).keys()):
        raise EmitcError(f"{file.name} cannot be compared", where, "it has none of the figures that are compared", hint)
    return content


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def _figures(content: Mapping[str, Any]) -> dict[str, float]:
    """The figures of one side; a manifest has those of its arena in its memory plan."""
    memory = content.get("memory")
    merged = {**(memory if isinstance(memory, dict) else {}), **content}
    return {name: value for name in FIGURES if (value := _number(merged.get(name))) is not None}


def _facts(content: Mapping[str, Any]) -> dict[str, str]:
    facts = {name: content[name] for name in _FACTS if name in content}
    model = facts.pop("model", None)
    if isinstance(model, dict):
        facts |= {"model_file": model.get("file"), "model_sha256": model.get("sha256")}
    elif model is not None:
        facts["name"] = model
    if isinstance(options := facts.get("options"), dict):
        del facts["options"]
        facts |= {
            f"option {name}": json.dumps(value, sort_keys=True) for name, value in options.items() if name not in facts
        }
    return {name: str(value) for name, value in facts.items()}


def _rows(content: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    rows = content.get(name)
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _layers(content: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {f"op {row.get('index')} {row.get('op')}": row for row in _rows(content, "layers")}


def difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> Difference:
    """What differs between two sides of `read_side`."""
    before, after = _figures(old), _figures(new)
    figures = tuple(Change(name, before[name], after[name]) for name in FIGURES if name in before and name in after)
    layers, kernels = [], []
    rows, others = _layers(old), _layers(new)
    for name in dict.fromkeys((*rows, *others)):
        a, b = rows.get(name), others.get(name)
        if a is None or b is None:
            kernels.append((name, "-" if a is None else "is there", "-" if b is None else "is there"))
            continue
        if str(a.get("kernel")) != str(b.get("kernel")):
            kernels.append((name, str(a.get("kernel")), str(b.get("kernel"))))
        for count in _COUNTS:
            x, y = _number(a.get(count)), _number(b.get(count))
            if x is not None and y is not None:
                layers += [Change(f"{name} {count}", x, y)] if x != y else []
                break
    known, others_known = _facts(old), _facts(new)
    facts = tuple(
        (name, known[name], others_known[name])
        for name in known
        if name in others_known and known[name] != others_known[name]
    )
    return Difference(figures, tuple(layers), tuple(kernels), facts, _breaks(old, new))


def _breaks(old: Mapping[str, Any], new: Mapping[str, Any]) -> tuple[str, ...]:
    """Changes of the inputs and outputs, where both sides have them."""
    breaks: list[str] = []
    for kind in ("inputs", "outputs"):
        if kind not in old or kind not in new:
            continue
        before, after = _rows(old, kind), _rows(new, kind)
        if len(before) != len(after):
            breaks.append(f"the number of {kind} was {len(before)}, and is {len(after)}")
            continue
        breaks += [
            f"{key.replace('_', ' ')} of {kind[:-1]} {number} was {a.get(key)}, and is {b.get(key)}"
            for number, (a, b) in enumerate(zip(before, after, strict=True))
            for key in _PORT
            if a.get(key) != b.get(key)
        ]
    return tuple(breaks)

"""What a campaign has seen, counted: verdicts, refusals by reason, and which operators, types and attributes occurred."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bench.random_graphs.case import Case, Description, Node
from bench.random_graphs.judge import FAILURES, Trial

_NUMBER = re.compile(r"-?\d+(\.\d+)?(e-?\d+)?")
_QUOTED = re.compile(r'"[^"]*"')
_LIST = re.compile(r"\[[^\]]*\]")


@dataclass
class Tally:
    """Counters that add up. refusals: by reason, a count for each engine that ran the graph ("none" for none), and an example.

    engine_faults: operators that LiteRT computes otherwise than TFLite Micro on the same inputs, counted by verdict.
    """

    graphs: int = 0
    seconds: float = 0.0
    verdicts: Counter[str] = field(default_factory=Counter)
    engines: Counter[str] = field(default_factory=Counter)
    operators: Counter[str] = field(default_factory=Counter)
    attributes: Counter[str] = field(default_factory=Counter)
    shapes: Counter[str] = field(default_factory=Counter)
    modes: Counter[str] = field(default_factory=Counter)
    modes_refused: Counter[str] = field(default_factory=Counter)
    refusals: dict[str, dict[str, Any]] = field(default_factory=dict)
    engine_refusals: dict[str, dict[str, Any]] = field(default_factory=dict)
    engine_faults: dict[str, dict[str, Any]] = field(default_factory=dict)

    def add(self, trial: Trial) -> None:
        """Counts one graph that has its verdict."""
        case = trial.case
        self.graphs += 1
        self.verdicts[f"{case.format} {trial.verdict}"] += 1
        self.engines[f"{case.format} {trial.engine or 'none'}"] += 1
        if trial.verdict == "refused":
            _noted(self.refusals, f"{case.format}: {general(trial.detail)}", trial.engine or "none", case)
        else:
            self._cover(case)
        if trial.refused_by_engine:
            _noted(
                self.engine_refusals, f"{case.format}: {general(trial.refused_by_engine)[-300:]}", trial.verdict, case
            )
        for dispute in trial.facts.get("disputes", ()):
            _noted(self.engine_faults, f"{case.format} {disputed(case.description, dispute)}", trial.verdict, case)
        for name in modes_of(trial.mode):
            self.modes[name] += 1
        self.modes["npu runs regions"] += bool(trial.facts.get("npu"))
        for text in trial.facts.get("modes refused", ()):
            self.modes_refused[general(text)[:200]] += 1

    def _cover(self, case: Case) -> None:
        for owner, node in case.description.every_node():
            called = "a function" if node.op.startswith("local.") else node.op
            self.operators[f"{case.format} {called} {type_of(owner, node)}"] += 1
            for name, value in node.attributes.items():
                if not isinstance(value, Description | bytes):
                    self.attributes[f"{case.format} {node.op}.{name}={_bucket(value)}"] += 1
        if case.description.opset:
            self.attributes[f"{case.format} opset={case.description.opset}"] += 1
        for tensor in case.description.values:
            if not tensor.constant:
                self.shapes[f"rank {len(tensor.shape)}"] += 1
                self.shapes[f"elements {_size(tensor.elements)}"] += 1

    def merge(self, other: Tally) -> None:
        """Adds another's counts."""
        self.graphs += other.graphs
        self.seconds += other.seconds
        for name in _COUNTERS:
            getattr(self, name).update(getattr(other, name))
        for name in _NOTED:
            mine = getattr(self, name)
            for reason, entry in getattr(other, name).items():
                known = mine.setdefault(reason, {"count": {}, "example": entry["example"]})
                for engine, count in entry["count"].items():
                    known["count"][engine] = known["count"].get(engine, 0) + count

    def to_json(self) -> dict[str, Any]:
        """For files; `from_json` reads it."""
        counters = {name: dict(sorted(getattr(self, name).items())) for name in _COUNTERS}
        refusals = {name: dict(sorted(getattr(self, name).items())) for name in _NOTED}
        return {"graphs": self.graphs, "seconds": round(self.seconds, 1), **counters, **refusals}

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Tally:
        """The tally of `to_json`."""
        tally = Tally(data["graphs"], data["seconds"])
        for name in _COUNTERS:
            getattr(tally, name).update(data[name])
        for name in _NOTED:
            getattr(tally, name).update(data.get(name, {}))
        return tally

    def failures(self) -> int:
        """Graphs whose verdict is a fault."""
        return sum(count for verdict, count in self.verdicts.items() if verdict.partition(" ")[2] in FAILURES)


_COUNTERS = ("verdicts", "engines", "operators", "attributes", "shapes", "modes", "modes_refused")
_NOTED = ("refusals", "engine_refusals", "engine_faults")


def _noted(table: dict[str, dict[str, Any]], reason: str, by: str, case: Case) -> None:
    entry = table.setdefault(reason, {"count": {}, "example": case.name})
    entry["count"][by] = entry["count"].get(by, 0) + 1


def general(reason: str) -> str:
    """A reason without the numbers and names of one graph."""
    return _NUMBER.sub("N", _LIST.sub("[..]", _QUOTED.sub('".."', " ".join(reason.split()))))[:400]


def disputed(description: Description, words: str) -> str:
    """The operator and the type that a dispute of the engines is about."""
    match = re.match(r"op (\d+) ([\w:]+)", words)
    if match is None or int(match[1]) >= len(description.nodes):
        return general(words)
    return f"{match[2]} {type_of(description, description.nodes[int(match[1])])}"


def type_of(description: Description, node: Node) -> str:
    """The type of a node's first operand, and of weights that are not floats like it."""
    types = {entry.name: entry.dtype for entry in description.values}
    named = node.outputs if node.op in _BY_OUTPUT else node.inputs[_DATA_AT.get(node.op, 0) :]
    operands = [types.get(name, "") for name in named if name]
    first = next((entry for entry in operands if entry), "none")
    if len(operands) > 1 and first == "float32" and operands[1] in ("int8", "uint8"):
        return f"hybrid {operands[1]}"
    if node.op == "SVDF" and operands[2] == "int16":
        return "int16"
    return "int4" if "int4" in operands[1:2] else first


_DATA_AT = {
    **dict.fromkeys(("SPLIT", "SELECT", "SELECT_V2", "IF", "WHILE", "ASSIGN_VARIABLE", "FILL", "EMBEDDING_LOOKUP"), 1),
    "TRANSPOSE_CONV": 2,
}
"""Where the data of TFLite's operators are that begin with something else."""
_BY_OUTPUT = frozenset({"READ_VARIABLE", "SHAPE"})
"""Those that the type of their output tells from each other."""


def _bucket(value: object) -> str:
    """An attribute's value, coarse where there are many."""
    if isinstance(value, bool | str):
        return str(value)
    if isinstance(value, int):
        return str(value) if -8 <= value <= 8 else "more" if value > 0 else "less"
    if isinstance(value, float):
        return f"{value:.0e}"
    if isinstance(value, tuple) and value and isinstance(value[0], str):
        return ",".join(map(str, value))
    if isinstance(value, tuple):
        return f"{len(value)} numbers"
    return type(value).__name__


def _size(elements: int) -> str:
    for limit in (1, 10, 100, 1000, 10_000):
        if elements <= limit:
            return f"<= {limit}"
    return "> 10000"


def modes_of(mode: Mapping[str, Any]) -> Iterator[str]:
    """A mode as the choices that it is made of."""
    for name, value in mode.items():
        if name == "disabled":
            yield from (f"without {item}" for item in value)
        elif name == "backends" and "npu" in value:
            yield f"npu {value['npu']}"
        elif name in ("variant", "regions", "places", "backends", "input_rows"):
            yield name
        elif name == "ram_budget" and value != "min":
            yield "ram_budget bytes"
        else:
            yield f"{name} {value}"

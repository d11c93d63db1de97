"""Failures that were cut down, as files: a model, and what it is to be run with."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.random_graphs.case import Case, Description, Value
from bench.random_graphs.judge import Trial, tried
from bench.random_graphs.modes import Mode
from bench.random_graphs.native import Builds


def kept(folder: Path, verdict: str, case_name: str, small: Case, mode: Mode) -> Path | None:
    """Writes a failure into the folder; None where it has one of the same operators and verdict.

    case_name: the name of the case that it was cut out of.
    """
    folder.mkdir(parents=True, exist_ok=True)
    ops = "_".join(re.sub(r"\W+", "-", node.op.lower()) for node in small.description.nodes)[:60]
    stem = f"{verdict}_{ops}"
    if any(folder.glob(f"{stem}_????????.{small.format}")):
        return None
    path = folder / f"{stem}_{hashlib.sha256(small.model).hexdigest()[:8]}.{small.format}"
    path.write_bytes(small.model)
    inputs = [_stated(small.description.value(name)) for name in small.description.inputs]
    about = {
        "found": case_name,
        "verdict": verdict,
        "mode": dict(mode),
        "seed": [small.seed, small.index],
        "inputs": inputs,
    }
    path.with_suffix(".json").write_text(json.dumps(about, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return path


def _stated(value: Value) -> dict[str, Any]:
    return {
        "name": value.name,
        "dtype": value.dtype,
        "shape": list(value.shape),
        "scales": list(value.scales),
        "zero_points": list(value.zero_points),
        "bounds": list(value.bounds) if value.bounds else None,
    }


def _given(stated: Mapping[str, Any]) -> Value:
    bounds = stated["bounds"]
    return Value(
        stated["name"],
        stated["dtype"],
        tuple(stated["shape"]),
        None,
        tuple(stated["scales"]),
        tuple(stated["zero_points"]),
        bounds=tuple(bounds) if bounds else None,
    )


def replayed(path: Path, builds: Builds) -> Trial:
    """A kept failure run again: the same model, mode and inputs."""
    about = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    values = tuple(_given(stated) for stated in about["inputs"])
    described = Description(values, (), tuple(value.name for value in values), ())
    seed, index = about["seed"]
    case = Case(path.suffix.removeprefix("."), seed, index, described, path.read_bytes())
    return tried(case, about["mode"], builds)

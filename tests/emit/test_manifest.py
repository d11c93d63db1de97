"""manifest.json against the JSON schema that emitc ships: it is valid, and each of its keys is described."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from emitc.compiled import Compiled, with_stack
from emitc.compiler import compile_model
from emitc.emit.facts import StackBound
from emitc.emit.manifest import SCHEMA, SCHEMA_VERSION
from emitc.emit.manifest import manifest as manifest_of
from emitc.planner.region_assignment import Region
from emitc.program import Requirement
from emitc.program.extras import Classes, Extras, Profiling

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "examples" / "models"


def packages(tiny: Path) -> Iterator[Compiled]:
    """Packages that together have every key."""
    spotter = tiny / "spotter.tflite"
    yield with_stack(compile_model(spotter, target="cortex-m55"), StackBound(1, 0, "gcc", ("-O2",), ("memcpy",)))
    yield compile_model(MODELS / "mww_hey_jarvis_v2.tflite", ram_budget="min")
    yield compile_model(MODELS / "kws_ref_int8.tflite", max_step_cycles=1)
    yield compile_model(tiny / "camera.tflite", input_rows=True)
    yield compile_model(MODELS / "digits_qdq.onnx")
    yield compile_model(MODELS / "kws_ref_int8.tflite", target="cortex-m7", optimize="size")
    regions = (Region("DTCM", 24 << 10, 1.0), Region("SRAM", 64 << 10, 3.0), Region("QSPI", 0, 9.0))
    yield compile_model(
        MODELS / "kws_ref_int8.tflite", regions=regions, places=(("weights", "QSPI"),), stage_weights="DTCM"
    )
    yield compile_model(
        MODELS / "kws_ref_int8.tflite",
        regions=regions,
        places=(("weights", "QSPI"),),
        stage_weights="DTCM",
        load_ahead=2.0,
        weights="external",
    )


def described(value: Any, schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Paths of a manifest's keys; fails for one that the schema does not describe."""
    if isinstance(value, list):
        for each in value:
            yield from described(each, schema.get("items", {}), f"{path}[]")
    if isinstance(value, dict) and "properties" in schema:
        for key, inner in value.items():
            assert key in schema["properties"], f"{path}.{key} is not described"
            yield f"{path}.{key}"
            yield from described(inner, schema["properties"][key], f"{path}.{key}")


def known(schema: dict[str, Any], path: str = "") -> Iterator[str]:
    """Paths of the keys that a schema describes."""
    for key, inner in schema.get("properties", {}).items():
        assert inner.get("description"), f"{path}.{key} has no description"
        yield f"{path}.{key}"
        yield from known(inner, f"{path}.{key}")
    if "items" in schema:
        yield from known(schema["items"], f"{path}[]")


def test_every_manifest_is_valid_and_every_key_is_described_and_occurs(tiny: Path) -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    found: set[str] = set()
    for compiled in packages(tiny):
        manifest = json.loads(compiled.files["manifest.json"])
        jsonschema.validate(manifest, schema)
        found |= set(described(manifest, schema))
    library = replace(
        compiled.program,
        requirements=(Requirement("cmsis-nn", "CMSIS-NN", "7", "Apache-2.0", ("a.h",)),),
        extras=Extras((Classes(0, 12, ("a",) * 12),), False, "MIT", "0123abc", Profiling(((0, 1),), 64)),
    )
    needing = manifest_of(library, compiled.passes, {}, {})
    jsonschema.validate(needing, schema)
    assert set(known(schema)) - found - set(described(needing, schema)) == set()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("schema_version", SCHEMA_VERSION + 1),
        ("files", {"a.c": "no hash"}),
        ("license", None),
        ("layers", [{"index": 0}]),
    ],
)
def test_a_manifest_that_is_wrong_is_refused(key: str, value: object, tiny: Path) -> None:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    manifest = json.loads(compile_model(tiny / "spotter.tflite").files["manifest.json"])
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(manifest | {key: value}, schema)

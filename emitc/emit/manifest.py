"""manifest.json: everything that says what was compiled, how, and what came out. Its schema has a version."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from emitc.emit.external_weights import weights_json
from emitc.emit.facts import StackBound
from emitc.emit.licence import LICENSE
from emitc.planner.proof_text import to_json
from emitc.program import Move, PassReport, Port, Program, RowSegment, Step
from emitc.program.members import members

SCHEMA_VERSION = 1
SCHEMA = Path(__file__).resolve().parent / "manifest.schema.json"
"""The JSON schema of the manifest, which describes each key."""
_REQUIREMENT = "backend library version license headers=includes"


def _port(port: Port) -> dict[str, Any]:
    entry = members(port, "name=label tensor=source dtype shape bytes=size_bytes scale zero_point")
    return entry | ({"rows": port.rows} if port.rows else {})


def _labels(program: Program, output: int) -> dict[str, Any]:
    """The classes of an output, where the package has functions for them."""
    rows = [row for row in program.extras.classes if row.output == output]
    return {"classes": rows[0].count, "labels": list(rows[0].labels)} if rows else {}


def _third_party(program: Program) -> list[dict[str, str]]:
    """What a product has of others: the model, where its licence is stated, and the libraries that are linked."""
    model = [("model", program.origin.model_file, program.extras.model_licence)] if program.extras.model_licence else []
    libraries = [("library", r.library, r.license) for r in program.requirements]
    return [{"kind": kind, "name": name, "license": licence} for kind, name, licence in (*model, *libraries)]


def _layer(step: Step) -> dict[str, Any]:
    return {
        **members(step, "index op=op_type name=label function=name backend kernel variant macs"),
        "constant_bytes": sum(c.table.size_bytes for c in step.constants),
        "outputs": [members(output, "name=tensor tensor=source bytes=size_bytes") for output in step.outputs],
    }


def _stage(stage: Step | Move | RowSegment) -> dict[str, Any]:
    """What run() does at one step of the memory plan."""
    if isinstance(stage, Move):
        return members(stage, "move=what bytes=size_bytes")
    if isinstance(stage, RowSegment):
        return {
            "by_rows": [call.step.index for call in stage.calls],
            "rows_kept": [call.makes.capacity for call in stage.calls],
            "rows": [call.makes.rows for call in stage.calls],
        }
    return {"layer": stage.index}


def partitions(program: Program) -> list[dict[str, Any]]:
    return [{"backend": name, "nodes": nodes, "macs": macs} for name, nodes, macs in program.backends]


_REGION = (
    "name bytes=limit_bytes arena_bytes=plan.arena_bytes lower_bound_bytes=plan.lower_bound_bytes proven=plan.proven proof "
    "traffic=traffic_bytes"
)
"""The arena of one of several regions. bytes: that the region has for it; traffic: bytes read and written there, about."""


def _copied(program: Program) -> dict[str, Any]:
    """The weights that a run copies. ahead: by how many stages a copy starts early; at_once: copies that are under way."""
    copied = {"region": program.staged[0].region, "layers": len(program.staged), "bytes": program.staged_bytes}
    transfers = program.transfers
    return copied | ({"ahead": transfers.ahead, "at_once": transfers.most} if transfers else {})


def memory_plan(program: Program) -> dict[str, Any]:
    """The plan as `emitc plan --json` and the manifest show it: buffers under their names in the C source."""
    plan = to_json(program.plan)
    names = {p.name: slot for p, slot in zip(program.plan.placements, program.slots, strict=True)}
    return {
        "arena_bytes": plan["arena_bytes"],
        "lower_bound_bytes": plan["lower_bound_bytes"],
        "proven": plan["proven"],
        "alignment": program.plan.alignment,
        "proof": program.proof,
        "peak": {
            "step": plan["peak"]["step"],
            "op": program.peak_op,
            "tensors": [f"{names[n].name} ({names[n].size_bytes} bytes, {names[n].what})" for n in plan["peak"]["tensors"]],
        },
        "buffers": [
            {"name": names[b["name"]].name, "tensor": b["name"], "what": names[b["name"]].what,
             "bytes": b["bytes"], "offset": names[b["name"]].offset_bytes, "first": b["first"], "end": b["end"],
             **({"region": names[b["name"]].region} if program.regions else {})}
            for b in plan["buffers"]
        ],
        **({"regions": [members(region, _REGION) for region in program.regions]} if program.regions else {}),
        **({"copied_weights": _copied(program)} if program.staged else {}),
        "state": [members(state, "name what bytes=size_bytes offset=offset_bytes") for state in program.states],
    }  # fmt: skip


def manifest(
    program: Program,
    passes: tuple[PassReport, ...],
    options: Mapping[str, Any],
    files: Mapping[str, bytes],
    stack: StackBound | None = None,
) -> dict[str, Any]:
    """The manifest's content; `files` are the other files of the package with their bytes."""
    origin = program.origin
    return {
        "schema_version": SCHEMA_VERSION,
        "emitc_version": origin.version,
        "license": LICENSE,
        "name": program.name,
        "model": {
            **members(origin, "file=model_file sha256 format producer"),
            **({"license": program.extras.model_licence} if program.extras.model_licence else {}),
        },
        **({"emitc_commit": program.extras.commit} if program.extras.commit else {}),
        **({"third_party": parts} if (parts := _third_party(program)) else {}),
        "options": dict(options),
        "target": origin.target,
        "notes": list(program.notes),
        **({"note_codes": [note.code.number for note in program.notes]} if program.notes else {}),
        "inputs": [_port(p) for p in program.inputs],
        "outputs": [_port(p) | _labels(program, p.index) for p in program.outputs],
        "passes": [members(p, "name enabled nodes_before nodes_after changes") for p in passes],
        "partitions": partitions(program),
        "requirements": [members(r, _REQUIREMENT) for r in program.requirements],
        "layers": [_layer(step) for step in program.steps],
        "schedule": [_stage(stage) for stage in program.schedule],
        **({"steps": program.stepping.to_json()} if program.stepping else {}),
        **({"profile": program.extras.profiling.to_json()} if program.extras.profiling else {}),
        "trace": [
            {"layer": t.step.index, "outputs": len(t.step.outputs), "first": t.first, "end": t.end}
            for t in program.traced
        ],
        "memory": memory_plan(program),
        "state_bytes": program.state_bytes,
        **({"stack": stack.to_json()} if stack else {}),
        "constant_bytes": program.constant_bytes,
        **({"weights": weights_json(program)} if program.external else {}),
        "macs": program.macs,
        "files": {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())},
    }

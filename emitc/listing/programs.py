"""Schedule, plan and program as JSON."""

from typing import Any

from emitc.emit.manifest import memory_plan
from emitc.layer import Table
from emitc.listing.graphs import digest, members, plain
from emitc.program import Constant, Move, Port, Program, RowCall, RowSegment, RowTensor, Step

_OPERAND = "tensor what=text at=pointer bytes=size_bytes"
_STAGED = "name c_type constant place=address.text pointer size_bytes region"
_ROW_USE = "of=tensor.name stride pad extent waits in_place"
_SLOT = "name offset_bytes size_bytes first end what region"
_STATE = "name offset=offset_bytes bytes=size_bytes tensor what fill"
"""Members of values of the program, as `members` takes them."""


def _table(table: Table) -> dict[str, Any]:
    content = digest(repr(table.values).encode())
    return {"role": table.role, "type": table.c_type, "values": len(table.values), "sha256": content}


def _constant(constant: Constant) -> dict[str, Any]:
    section = {"section": constant.section} if constant.section else {}
    return {"name": constant.name, **_table(constant.table), **section}


def _step(step: Step) -> dict[str, Any]:
    return {
        **members(step, "step=index op=op_type label backend kernel variant"),
        **{
            side: [members(operand, _OPERAND) for operand in getattr(step, side)]
            for side in ("inputs", "outputs", "scratch")
        },
        "staged": [members(staged, _STAGED) for staged in step.staged],
        "params": {param.name: plain(param.value) for param in step.params},
        "tables": dict(sorted(step.tables.items())),
        "constants": [_constant(constant) for constant in step.constants],
        "macs": step.macs,
        **({"parts": [program_json(part) for part in step.parts]} if step.parts else {}),
    }


def _rows(tensor: RowTensor) -> dict[str, Any]:
    return members(tensor, "rows=name what at=pointer row_bytes count=rows capacity")


def _call(call: RowCall) -> dict[str, Any]:
    makes = {"makes": _rows(call.makes)}
    uses = {"reads": [members(use, _ROW_USE) for use in call.uses]}
    return members(call, "layer=step.index") | makes | members(call, "place=in_place_of.name on_demand") | uses


def _stage(entry: Step | Move | RowSegment) -> dict[str, Any]:
    if isinstance(entry, Move):
        return members(entry, "move=what to=destination.text from=source.text bytes=size_bytes")
    if isinstance(entry, RowSegment):
        source = {} if entry.source is None else {"source": _rows(entry.source)}
        return {"by_rows": entry.name, **source, "layers": [_call(call) for call in entry.calls]}
    places = {side: [o.pointer for o in getattr(entry, side)] for side in ("inputs", "outputs", "scratch")}
    return members(entry, "layer=index op=op_type label") | places


def schedule_json(program: Program) -> dict[str, Any]:
    """What run() does, in order, and the layers that vanish in memory, by the tensors that lie inside others."""
    pins = [members(slot, "tensor=name offset=offset_bytes bytes=size_bytes what") for slot in program.pins]
    return {"stages": [_stage(entry) for entry in program.schedule], **({"inside": pins} if pins else {})}


def plan_json(program: Program) -> dict[str, Any]:
    return {"plan": memory_plan(program)}


def _port(port: Port) -> dict[str, Any]:
    """The port's own values, with the C expression instead of the address that it is made of."""
    entry: dict[str, Any] = plain(port)
    del entry["const"]
    return {("pointer" if key == "address" else key): value for key, value in entry.items()} | {"pointer": port.pointer}


def program_json(program: Program) -> dict[str, Any]:
    """Everything that the C is printed from, constants by their hashes."""
    return {
        "program": program.name,
        "inputs": [_port(port) for port in program.inputs],
        "outputs": [_port(port) for port in program.outputs],
        "steps": [_step(step) for step in program.steps],
        "constants": [_constant(constant) for constant in program.output_constants],
        "slots": [members(slot, _SLOT) for slot in (*program.slots, *program.pins)],
        "states": [members(state, _STATE) for state in program.states],
        **schedule_json(program),
        "notes": list(program.notes),
    }

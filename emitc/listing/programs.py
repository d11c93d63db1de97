"""Schedule, plan and program as JSON."""

from __future__ import annotations

from typing import Any

from emitc.emit.manifest import memory_plan
from emitc.layer import Table
from emitc.listing.graphs import digest, plain
from emitc.program import (
    Constant,
    Move,
    Operand,
    Port,
    Program,
    RowCall,
    RowSegment,
    RowTensor,
    RowUse,
    Slot,
    Staged,
    Step,
)


def _operand(operand: Operand) -> dict[str, Any]:
    return {"tensor": operand.tensor, "what": operand.text, "at": operand.pointer, "bytes": operand.size_bytes}


def _table(table: Table) -> dict[str, Any]:
    content = digest(repr(table.values).encode())
    return {"role": table.role, "type": table.c_type, "values": len(table.values), "sha256": content}


def _constant(constant: Constant) -> dict[str, Any]:
    return {
        "name": constant.name,
        **_table(constant.table),
        **({"section": constant.section} if constant.section else {}),
    }


def _step(step: Step) -> dict[str, Any]:
    return {
        "step": step.index,
        "op": step.op_type,
        "label": step.label,
        "backend": step.backend,
        "kernel": step.kernel,
        "variant": step.variant,
        "inputs": [_operand(operand) for operand in step.inputs],
        "outputs": [_operand(operand) for operand in step.outputs],
        "scratch": [_operand(operand) for operand in step.scratch],
        "staged": [_staged(staged) for staged in step.staged],
        "params": {param.name: plain(param.value) for param in step.params},
        "tables": dict(sorted(step.tables.items())),
        "constants": [_constant(constant) for constant in step.constants],
        "macs": step.macs,
        **({"parts": [program_json(part) for part in step.parts]} if step.parts else {}),
    }


def _rows(tensor: RowTensor) -> dict[str, Any]:
    return {
        "rows": tensor.name, "what": tensor.what, "at": tensor.pointer, "row_bytes": tensor.row_bytes,
        "count": tensor.rows, "room": tensor.capacity,
    }  # fmt: skip


def _use(use: RowUse) -> dict[str, Any]:
    return {
        "of": use.tensor.name, "stride": use.stride, "pad": use.pad, "extent": use.extent, "waits": use.waits,
        "in_place": use.in_place,
    }  # fmt: skip


def _call(call: RowCall) -> dict[str, Any]:
    uses = [_use(use) for use in call.uses]
    return {
        "layer": call.step.index,
        "makes": _rows(call.makes),
        "place": call.in_place_of.name,
        "asked": call.on_demand,
        "reads": uses,
    }


def _stage(entry: Step | Move | RowSegment) -> dict[str, Any]:
    if isinstance(entry, Move):
        return {"move": entry.what, "to": entry.destination.text, "from": entry.source.text, "bytes": entry.size_bytes}
    if isinstance(entry, RowSegment):
        source = {} if entry.source is None else {"source": _rows(entry.source)}
        return {"by_rows": entry.name, **source, "layers": [_call(call) for call in entry.calls]}
    places = {side: [o.pointer for o in getattr(entry, side)] for side in ("inputs", "outputs", "scratch")}
    return {"layer": entry.index, "op": entry.op_type, "label": entry.label, **places}


def schedule_json(program: Program) -> dict[str, Any]:
    """What run() does, in order, and the layers that vanish in memory, by the tensors that lie inside others."""
    pins = [
        {"tensor": slot.name, "offset": slot.offset_bytes, "bytes": slot.size_bytes, "what": slot.what}
        for slot in program.pins
    ]
    return {"stages": [_stage(entry) for entry in program.schedule], **({"inside": pins} if pins else {})}


def plan_json(program: Program) -> dict[str, Any]:
    """The arena as `emitc plan --json` has it."""
    return {"plan": memory_plan(program)}


def _port(port: Port) -> dict[str, Any]:
    """The port's own values, with the C expression in the place of the address that it is made of."""
    found: dict[str, Any] = plain(port)
    del found["const"]
    return {("pointer" if key == "address" else key): value for key, value in found.items()} | {"pointer": port.pointer}


def _staged(staged: Staged) -> dict[str, Any]:
    return {
        "name": staged.name, "c_type": staged.c_type, "constant": staged.constant, "place": staged.address.text,
        "pointer": staged.pointer, "size_bytes": staged.size_bytes, "region": staged.region,
    }  # fmt: skip


def _slot(slot: Slot) -> dict[str, Any]:
    return {
        "name": slot.name, "offset_bytes": slot.offset_bytes, "size_bytes": slot.size_bytes, "first": slot.first,
        "end": slot.end, "what": slot.what, "region": slot.region,
    }  # fmt: skip


def program_json(program: Program) -> dict[str, Any]:
    """Everything that the C is printed from, constants by their hashes."""
    return {
        "program": program.name,
        "inputs": [_port(port) for port in program.inputs],
        "outputs": [_port(port) for port in program.outputs],
        "steps": [_step(step) for step in program.steps],
        "constants": [_constant(constant) for constant in program.output_constants],
        "slots": [_slot(slot) for slot in (*program.slots, *program.pins)],
        "states": [
            {
                "name": s.name,
                "offset": s.offset_bytes,
                "bytes": s.size_bytes,
                "tensor": s.tensor,
                "what": s.what,
                "fill": s.fill,
            }
            for s in program.states
        ],
        **schedule_json(program),
        "notes": list(program.notes),
    }

"""The file's model and graphs as JSON. Bytes are shown by their number and their hash, real numbers as the shortest text that
stands for them.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from emitc.emit.manifest import memory_plan
from emitc.ir import Graph, Node, Quantization, Tensor
from emitc.layer import Table
from emitc.program import Constant, Move, Port, Program, RowCall, RowSegment, RowTensor, Step
from emitc.program.members import members as stated_members
from emitc.source import SourceModel, SourceNode, SourceSubgraph, SourceTensor

_DIGITS = 16


def digest(data: bytes) -> str:
    """The start of the SHA-256 of some bytes."""
    return hashlib.sha256(data).hexdigest()[:_DIGITS]


def plain(value: object) -> Any:
    """A value of an attribute for JSON: numbers that JSON has not, and objects, as text."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if value - value == 0 else repr(value)
    if isinstance(value, bytes):
        return {"bytes": len(value), "sha256": digest(value)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Graph):
        return graph_json(value)
    if isinstance(value, tuple | list):
        if len(value) > 64 and all(isinstance(v, int | float) for v in value):
            return {"values": len(value), "sha256": digest(repr(tuple(value)).encode())}
        return [plain(v) for v in value]
    if isinstance(value, frozenset | set):
        return sorted((plain(v) for v in value), key=repr)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in sorted(value.items(), key=lambda pair: str(pair[0]))}
    if is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value) if f.repr}
    return type(value).__name__


def members(value: object, names: str) -> dict[str, Any]:
    """Attributes of a value for JSON, named as for `stated_members`."""
    return {key: plain(item) for key, item in stated_members(value, names).items()}


def _stated(value: object, names: str) -> dict[str, Any]:
    return {key: stated for key, stated in members(value, names).items() if stated}


def _quantization(q: Quantization | None) -> dict[str, Any]:
    if q is None:
        return {}
    return {"quantization": members(q, "scales zero_points" if q.per_tensor else "scales zero_points axis")}


def _content(data: bytes | None) -> dict[str, Any]:
    return {} if data is None else {"constant": plain(data)}


def _tensor(tensor: Tensor) -> dict[str, Any]:
    entry = members(tensor, "name dtype shape") | _quantization(tensor.quantization) | _content(tensor.data)
    if tensor.initial is not None:
        entry["state"] = plain(tensor.initial)
    entry |= _stated(tensor, "alias_of order channels")
    return entry | ({"label": tensor.label} if tensor.label not in ("", tensor.name) else {})


def _node(node: Node) -> dict[str, Any]:
    attributes = {f.name: plain(getattr(node.op, f.name)) for f in fields(node.op)}
    entry = members(node, "index op=op_type") | {"class": type(node.op).__name__}
    return entry | members(node, "label inputs outputs") | {"attributes": attributes}


def graph_json(graph: Graph) -> dict[str, Any]:
    """A graph: its interface, its operators in order, its tensors by name."""
    return {
        **members(graph, "graph=name inputs outputs"),
        **_stated(graph, "streamed_inputs"),
        "nodes": [_node(node) for node in graph.nodes],
        "tensors": [_tensor(tensor) for tensor in sorted(graph.tensors, key=lambda tensor: tensor.name)],
        **_stated(graph, "notes"),
    }


def _source_tensor(tensor: SourceTensor) -> dict[str, Any]:
    entry = members(tensor, "index name dtype shape") | _quantization(tensor.quantization) | _content(tensor.data)
    return entry | _stated(tensor, "variable=is_variable")


def _source_node(node: SourceNode) -> dict[str, Any]:
    return {
        **members(node, "index op=op_type"),
        **({"kind": node.kind} if node.kind not in ("", node.op_type) else {}),
        "label": node.name,
        "inputs": [None if t is None else t.index for t in node.inputs],
        "outputs": [t.index for t in node.outputs],
        "attributes": plain(node.attributes),
    }


def _source_graph(part: SourceModel | SourceSubgraph) -> dict[str, Any]:
    return {
        **members(part, "inputs outputs"),
        "nodes": [_source_node(node) for node in part.nodes],
        "tensors": [_source_tensor(tensor) for tensor in part.tensors],
    }


def source_json(source: SourceModel) -> dict[str, Any]:
    """What the file says, after the frontend has put quantization on tensors and images into one order."""
    entry = members(source, "format producer sha256") | _source_graph(source)
    return entry | ({"subgraphs": [_source_graph(part) for part in source.subgraphs]} if source.subgraphs else {})


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

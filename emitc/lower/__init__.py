"""Graph to Program: the last decisions, all sizes and all constants. After this no graph object is in sight."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from emitc.backends.partition import Partition
from emitc.c_names import identifier, unique
from emitc.errors import EmitcError, Where
from emitc.ir import Graph, Tensor
from emitc.layer import Table
from emitc.lower.row_segments import row_params, schedule_of
from emitc.planner import LiveRange, Plan
from emitc.planner.proof_text import proof_line
from emitc.program import (
    ArenaRegion,
    Constant,
    Move,
    Operand,
    Origin,
    Port,
    Program,
    RowSegment,
    Slot,
    Staged,
    StateSlot,
    Step,
    arena_variable,
)
from emitc.schedule.check import check_schedule
from emitc.schedule.memory_regions import Regions, RegionSchedule, assign_regions
from emitc.schedule.search import best_schedule
from emitc.schedule.slots import Slots, pointer, text_of
from emitc.schedule.stages import (
    LoweredNode,
    RowLayer,
    Stage,
    buffer_name,
    is_window,
    placed,
    scratch_name,
    staged_name,
)

ALIGNMENT = 16
"""Of the arena and every buffer in it; a backend may need more."""
MAX_ADDED_BYTES = 16 << 20
"""Bytes of tables (exponentials, row indices) that lowering may add; the largest corpus model adds a few kilobytes."""


class _ConstantPool:
    """C names of constant arrays; an array that was printed before is named again instead of printed."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, bytes], str] = {}

    def name(self, table: Table, wanted: str) -> tuple[str, bool]:
        """The array's C name, and whether it is new."""
        key = (f"{table.alignment} {table.c_type}", hashlib.sha256(repr(table.values).encode()).digest())
        known = self._names.get(key)
        if known is not None:
            return known, False
        self._names[key] = wanted
        return wanted, True


def lower_nodes(partition: Partition) -> tuple[LoweredNode, ...]:
    """Every node's layer, in execution order.

    Raises EmitcError when the tables that the layers add to the model's own constants pass MAX_ADDED_BYTES: a small file
    of many operators could ask for any amount of them.
    """
    graph = partition.graph
    left = MAX_ADDED_BYTES + 2 * sum(t.size_bytes for t in graph.tensors if t.is_constant)
    backend_of = partition.backend_of()
    nodes: list[LoweredNode] = []
    printed: set[int] = set()
    for bound in graph.bound():
        layer = partition.layers[bound.node.index]
        left -= sum(table.size_bytes for table in layer.tables if id(table.values) not in printed)
        printed |= {id(table.values) for table in layer.tables}
        if left < 0:
            raise EmitcError(
                "the tables of the model's operators are too large",
                Where(op=bound.node.describe()),
                f"up to this operator they take over {MAX_ADDED_BYTES} bytes more than the model's own constants",
                "the file is damaged, or the model is not meant for a microcontroller",
            )
        nodes.append(LoweredNode(bound, layer, backend_of[bound.node.index]))
    return tuple(nodes)


def _constant_bytes(nodes: Sequence[LoweredNode]) -> int:
    """Bytes of the layers' tables, each distinct one once."""
    found = {(t.alignment, t.c_type, t.values): t.size_bytes for node in nodes for t in node.layer.tables}
    return sum(found.values())


def _steps(graph: Graph, stages: Sequence[Stage], slots: Slots, section: str, region: str = "") -> tuple[Step, ...]:
    """The layers of all stages. section: the macro that places their constants, "" for none; region: where weights are copied."""
    pool = _ConstantPool()
    steps: list[Step] = []
    for stage, moved in placed(stages):
        for position, node in enumerate(stage.nodes):
            rows = None if stage.segment is None else stage.segment.layers[position]
            step = _step(graph, node, moved, rows, slots, pool, region)
            steps.append(replace(step, constants=tuple(replace(c, section=section) for c in step.constants)))
    return tuple(steps)


def _step(
    graph: Graph,
    node: LoweredNode,
    moved: Mapping[str, int],
    rows: RowLayer | None,
    slots: Slots,
    pool: _ConstantPool,
    region: str,
) -> Step:
    """One layer. moved: how often each tensor was moved before; rows: where the layer makes one row at a time."""
    bound, layer = node.bound, node.layer
    name = f"op{bound.node.index}_{identifier(bound.node.op_type, '')}"
    tables: dict[str, str] = {}
    constants: list[Constant] = []
    for table in layer.tables:
        tables[table.role], new = pool.name(table, f"{name}_{table.role}")
        if new:
            constants.append(Constant(tables[table.role], table))
    staged = []
    for table in layer.tables:
        if table.role in node.staged:
            place = slots.place(staged_name(node, table.role))
            copy = pointer(table.c_type, place, const=True)
            own = f"staged_{table.role}"
            staged.append(Staged(own, table.c_type, tables[table.role], place, copy, table.size_bytes, region))
            tables[table.role] = own
    inputs = []
    for position, tensor in enumerate(node.inputs):
        root = graph.root(tensor.name)
        if not root.is_constant:  # in the arena, or a state variable
            inputs.append(_operand(tensor, slots.place(buffer_name(root.name, moved.get(root.name, 0))), const=True))
            continue
        # Left by constant folding: switched off, or too much to compute now.
        c_type, text = tensor.dtype.c_type, text_of(tensor)
        table = Table(f"operand_{position}", c_type, tuple(root.array().reshape(-1).tolist()), f"constant {text}")
        array, new = pool.name(table, f"{name}_operand_{position}")
        if new:
            constants.append(Constant(array, table))
        inputs.append(Operand(c_type, text, array, tensor.size_bytes, tensor.name, tensor.source))
    outputs = [_operand(t, slots.place(graph.root(t.name).name), const=False) for t in bound.outputs]
    scratch = [
        Operand(
            "int8_t",
            "scratch",
            pointer("int8_t", slots.place(scratch_name(node, s.role)), const=False),
            s.size_bytes,
            s.role,
            -1,
        )
        for s in layer.scratch
    ]
    return Step(
        bound.node.index,
        name,
        bound.node.op_type,
        bound.node.label,
        layer.template,
        layer.variant,
        tuple(inputs),
        tuple(outputs),
        tuple(scratch),
        tables,
        tuple(constants),
        layer.params if rows is None else row_params(layer, rows),
        layer.macs,
        layer.spec,
        node.backend,
        layer.fallible,
        layer.call,
        headers=layer.headers,
        staged=tuple(staged),
        by_rows=rows is not None,
        window=rows is not None and is_window(layer, rows),
        pulls=layer.pulls,
        formula=layer.formula,
    )


def _operand(tensor: Tensor, place: str, *, const: bool) -> Operand:
    c_type = tensor.dtype.c_type
    return Operand(
        c_type, text_of(tensor), pointer(c_type, place, const=const), tensor.size_bytes, tensor.name, tensor.source
    )


def _ports(
    graph: Graph, tensors: tuple[str, ...], slots: Slots, *, output: bool, prefix: str = ""
) -> tuple[tuple[Port, ...], tuple[Constant, ...]]:
    """The interface, and the arrays of outputs that are constants."""
    taken = {str(i) for i in range(len(tensors))}
    ports: list[Port] = []
    constants: list[Constant] = []
    for i, name in enumerate(tensors):
        tensor, root = graph.tensor(name), graph.root(name)
        c_type, rows = tensor.dtype.c_type, 0
        if root.is_constant:
            table = Table(f"output_{i}", c_type, tuple(root.array().reshape(-1).tolist()), f"constant output {i}")
            place = f"{prefix}output_{i}_value"
            constants.append(Constant(place, table))
        elif name in slots.held:
            place = ""
        elif name in graph.pulled:
            place, rows = "", next(graph.tensor(node.outputs[0]).shape[1] for node in graph.consumers(name))
        else:
            place = pointer(c_type, slots.place(root.name), const=output)
        alias = identifier(tensor.label, "")
        alias = "" if not alias or alias in taken else unique(alias, taken)
        quantization = tensor.quantization
        ports.append(
            Port(
                i,
                tensor.label,
                alias,
                c_type,
                text_of(tensor),
                tensor.shape,
                tensor.dtype.value,
                tensor.size_bytes,
                tensor.elements,
                quantization.scale if quantization else None,
                quantization.zero_point if quantization else None,
                place,
                tensor.name,
                tensor.source,
                rows,
            )
        )
    return tuple(ports), tuple(constants)


def _state_slots(graph: Graph, slots: Slots, alignment: int) -> tuple[StateSlot, ...]:
    """The state block: every variable at a multiple of the alignment, in the order of the graph."""
    found: list[StateSlot] = []
    offset = 0
    for i, tensor in enumerate(graph.states):
        assert tensor.initial is not None
        distinct = set(tensor.initial)
        constant = None
        if len(distinct) > 1:
            values = tuple(tensor.initial_array().reshape(-1).tolist())
            table = Table(f"state_{i}", tensor.dtype.c_type, values, f"state {i} before the first run")
            constant = Constant(f"state_{i}_initial", table)
        found.append(
            StateSlot(
                slots.names[tensor.name],
                offset,
                tensor.size_bytes,
                slots.what[tensor.name],
                tensor.name,
                0 if constant else min(distinct),
                constant,
            )
        )
        offset += -(-tensor.size_bytes // alignment) * alignment
    return tuple(found)


def _peak_label(stages: Sequence[Stage], result: Plan) -> str:
    if result.peak_step >= len(stages):
        return "the interface"
    stage = stages[result.peak_step]
    if not stage.nodes:
        return "a move"
    first, last = stage.nodes[0].bound.node, stage.nodes[-1].bound.node
    if len(stage.nodes) == 1:
        return f"op {first.index} {first.op_type}"
    return f"ops {first.index} to {last.index}, row by row"


def _arena_regions(
    chosen: RegionSchedule, stages: Sequence[Stage], schedule: Sequence[Step | Move | RowSegment]
) -> tuple[ArenaRegion, ...]:
    """The arena of every region, in the user's order."""
    used: set[str] = set()
    for stage in schedule:
        if isinstance(stage, Move):
            pointers: list[str] = [stage.destination, stage.source]
        elif isinstance(stage, RowSegment):
            pointers = list(stage.arenas)
        else:
            pointers = [o.pointer.rpartition("(")[2] for o in (*stage.inputs, *stage.outputs, *stage.scratch)]
            pointers += [staged.place for staged in stage.staged]
        used |= {pointer.split(" + ")[0] for pointer in pointers}
    starts = chosen.starts()
    found = []
    for part in chosen.assignment.regions:
        region, result = part.region, part.plan
        label = _peak_label(stages, result)
        found.append(
            ArenaRegion(
                region.name,
                result,
                f"{region.name} {proof_line(result, label)}",
                label,
                starts[region.name],
                region.size_bytes,
                sum(chosen.traffic[p.name] for p in result.placements),
                arena_variable(region.name) in used,
            )
        )
    return tuple(found)


def _in_section(part: Program, section: str) -> Program:
    """The program inside of an operator with its constants where the model's are placed."""

    def placed_there(step: Step) -> Step:
        constants = tuple(replace(constant, section=section) for constant in step.constants)
        return replace(step, constants=constants, parts=tuple(_in_section(each, section) for each in step.parts))

    return replace(part, steps=tuple(map(placed_there, part.steps))) if section else part


def lower(
    partition: Partition,
    name: str,
    origin: Origin,
    budget: int | None = None,
    without: frozenset[str] = frozenset(),
    regions: Regions | None = None,
    parts: Mapping[int, tuple[Program, ...]] = MappingProxyType({}),
    prefix: str = "",
    held: Mapping[str, str] = MappingProxyType({}),
    *,
    rough: bool = False,
) -> Program:
    """The program of a partitioned graph: layers, constants, schedule, arena plan and interface under the model's C name.

    budget: bytes of arena; without: techniques to leave out; rough; all as `best_schedule` takes them. regions: the arenas that
    the buffers are divided among, None for a single one. parts: the programs inside of operators, by index. prefix: of names that
    would be those of the model's own interface, for such a program. held: its variables, by name, with the C names of the
    pointers to them that its function gets.
    """
    graph = partition.graph
    nodes = lower_nodes(partition)
    used = {node.backend for node in nodes}
    alignment = max([ALIGNMENT, *(partition.backends[name].alignment for name in used)])
    costs = {assignment.index: assignment.cost for assignment in partition.assignments}
    chosen = None
    if regions is not None:
        chosen = assign_regions(graph, nodes, alignment, budget, without, regions, _constant_bytes(nodes))
    arrangement = (
        chosen.arrangement if chosen else best_schedule(graph, nodes, alignment, budget, without, costs, rough=rough)
    )
    stages, result = arrangement.stages, chosen.whole() if chosen else arrangement.plan
    slots = Slots(graph, stages, arrangement.vanished, prefix, held)
    region_of, starts = (chosen.region_of(), chosen.starts()) if chosen else ({}, {})
    region_of |= {p.buffer.name: region_of[p.inside] for p in arrangement.inside if p.inside in region_of}
    slots.arenas = {slots.names[buffer]: arena_variable(region) for buffer, region in region_of.items()}

    def slot(buffer: str, offset: int, size: int, live: LiveRange) -> Slot:
        region = region_of.get(buffer, "")
        start = starts.get(region, 0)
        return Slot(slots.names[buffer], offset - start, size, live.first, live.end, slots.what[buffer], region)

    placements = tuple(slot(p.name, p.offset_bytes, p.size_bytes, p.live) for p in result.placements)
    inputs, _ = _ports(graph, graph.inputs, slots, output=False)
    outputs, output_constants = _ports(graph, graph.outputs, slots, output=True, prefix=prefix.lower())
    offsets = {p.name: p.offset_bytes for p in result.placements}
    inside = tuple(
        slot(p.buffer.name, offsets[p.inside] + p.offset_bytes, p.buffer.size_bytes, p.buffer.live)
        for p in arrangement.inside
    )
    places = offsets | {p.buffer.name: offsets[p.inside] + p.offset_bytes for p in arrangement.inside}
    check_schedule(graph, stages, places, arrangement.hosts, result.arena_bytes)
    peak = _peak_label(stages, result)
    section = f"{name.upper()}_SECTION_WEIGHTS" if regions and regions.weights else ""
    copied_to = regions.staged if regions else ""
    inner = {index: tuple(_in_section(part, section) for part in found) for index, found in parts.items()}
    steps = tuple(
        replace(step, parts=inner.get(step.index, ())) for step in _steps(graph, stages, slots, section, copied_to)
    )
    schedule = schedule_of(graph, stages, steps, slots)
    arenas = _arena_regions(chosen, stages, schedule) if chosen else ()
    states = () if held else _state_slots(graph, slots, alignment)
    program = Program(
        name,
        name.upper(),
        origin,
        inputs,
        outputs,
        placements,
        steps,
        output_constants,
        result,
        "; ".join(arena.proof for arena in arenas) or proof_line(result, peak),
        peak,
        states=states,
        schedule=schedule,
        state_bytes=max((-(-(s.offset_bytes + s.size_bytes) // alignment) * alignment for s in states), default=0),
        notes=(*graph.notes, *partition.notes),
        pins=inside,
        regions=arenas,
        weights=regions.weights if regions else "",
        held=tuple(held.values()),
    )
    needed = [partition.backends[backend].requirement(program) for backend, _, _ in program.backends]
    return replace(program, requirements=tuple(requirement for requirement in needed if requirement is not None))

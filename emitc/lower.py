"""Graph to Program: the last decisions, all sizes and all constants. After this no graph object is in sight."""

from __future__ import annotations

import hashlib
from dataclasses import replace

from emitc.backends.partition import Partition
from emitc.emit.names import identifier, unique
from emitc.errors import EmitcError, Where
from emitc.ir import Graph, Tensor
from emitc.kernels.contract import Table
from emitc.memory import LoweredNode, arena_buffers, distances, pinned, pins_of, scratch_name
from emitc.planner import Plan, plan
from emitc.planner.report import proof_line
from emitc.program import Constant, Operand, Origin, Port, Program, Slot, Step

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


def _text(tensor: Tensor) -> str:
    return f"{tensor.dtype.value}[{','.join(map(str, tensor.shape))}]"


def _named(tensor: Tensor) -> str:
    """Type, shape and the model's own name, which is hostile text; templates and reports make it harmless."""
    return f'{_text(tensor)} "{tensor.label}"' if tensor.label else _text(tensor)


def lower_nodes(partition: Partition) -> tuple[LoweredNode, ...]:
    """Every node's layer, in execution order.

    Raises EmitcError when the tables that the layers add to the model's own constants pass MAX_ADDED_BYTES: a small file
    of many operators could ask for any amount of them.
    """
    graph = partition.graph
    left = MAX_ADDED_BYTES + 2 * sum(t.size_bytes for t in graph.tensors if t.is_constant)
    nodes: list[LoweredNode] = []
    for bound in graph.bound():
        layer = partition.layers[bound.node.index]
        left -= sum(table.size_bytes for table in layer.tables)
        if left < 0:
            raise EmitcError(
                "the tables of the model's operators are too large",
                Where(op=bound.node.describe()),
                f"up to this operator they take over {MAX_ADDED_BYTES} bytes more than the model's own constants",
                "the file is damaged, or the model is not meant for a microcontroller",
            )
        nodes.append(LoweredNode(bound, layer, partition.backend_of(bound.node)))
    return tuple(nodes)


def _pointer(c_type: str, slot: str, *, const: bool) -> str:
    """The C expression of a buffer: through void where the type is wider than a byte."""
    qualifier = "const " if const else ""
    through = "" if c_type in ("int8_t", "uint8_t") else f"({qualifier}void *)"
    return f"({qualifier}{c_type} *){through}(arena + {slot})"


class _Names:
    """Slot names of the arena: by input, by the step that writes the buffer, or by scratch."""

    def __init__(self, graph: Graph, nodes: tuple[LoweredNode, ...]) -> None:
        self.slots: dict[str, str] = {}
        self.what: dict[str, str] = {}
        for i, name in enumerate(graph.inputs):
            self._add(name, f"AT_INPUT_{i}", f"{_named(graph.tensor(name))}, input {i}")
        for node in nodes:
            outputs = node.bound.outputs
            for i, tensor in enumerate(outputs):
                suffix = "" if len(outputs) == 1 else f"_{i}"
                root = graph.root(tensor.name).name
                self._add(
                    root, f"AT_OP{node.bound.node.index}{suffix}", f"{_named(tensor)}, from op {node.bound.node.index}"
                )
            for scratch in node.layer.scratch:
                index = node.bound.node.index
                self._add(
                    scratch_name(node, scratch.role), f"AT_OP{index}_{scratch.role.upper()}", f"scratch of op {index}"
                )

    def _add(self, buffer: str, slot: str, what: str) -> None:
        if buffer not in self.slots:
            self.slots[buffer] = slot
            self.what[buffer] = what


def _steps(graph: Graph, nodes: tuple[LoweredNode, ...], names: _Names) -> tuple[Step, ...]:
    pool = _ConstantPool()
    steps: list[Step] = []
    for node in nodes:
        bound, layer = node.bound, node.layer
        name = f"op{bound.node.index}_{identifier(bound.node.op_type, '')}"
        tables: dict[str, str] = {}
        constants: list[Constant] = []
        for table in layer.tables:
            tables[table.role], new = pool.name(table, f"{name}_{table.role}")
            if new:
                constants.append(Constant(tables[table.role], table))
        inputs = []
        for position, tensor in enumerate(node.inputs):
            root = graph.root(tensor.name)
            if not root.is_constant:
                inputs.append(_operand(tensor, names.slots[root.name], const=True))
                continue
            # Left by constant folding: switched off, or too much to compute now.
            c_type, text = tensor.dtype.c_type, _text(tensor)
            table = Table(f"operand_{position}", c_type, tuple(root.array().reshape(-1).tolist()), f"constant {text}")
            array, new = pool.name(table, f"{name}_operand_{position}")
            if new:
                constants.append(Constant(array, table))
            inputs.append(Operand(c_type, text, array, tensor.size_bytes, tensor.name, tensor.source))
        outputs = [_operand(t, names.slots[graph.root(t.name).name], const=False) for t in bound.outputs]
        scratch = [
            Operand(
                "int8_t",
                "scratch",
                _pointer("int8_t", names.slots[scratch_name(node, s.role)], const=False),
                s.size_bytes,
                s.role,
                -1,
            )
            for s in layer.scratch
        ]
        steps.append(
            Step(
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
                layer.params,
                layer.macs,
                layer.flavour,
                node.backend,
                layer.fallible,
                layer.call,
            )
        )
    return tuple(steps)


def _operand(tensor: Tensor, slot: str, *, const: bool) -> Operand:
    c_type = tensor.dtype.c_type
    return Operand(
        c_type, _text(tensor), _pointer(c_type, slot, const=const), tensor.size_bytes, tensor.name, tensor.source
    )


def _ports(
    graph: Graph, tensors: tuple[str, ...], names: _Names, *, output: bool
) -> tuple[tuple[Port, ...], tuple[Constant, ...]]:
    """The interface, and the arrays of outputs that are constants."""
    taken = {str(i) for i in range(len(tensors))}
    ports: list[Port] = []
    constants: list[Constant] = []
    for i, name in enumerate(tensors):
        tensor, root = graph.tensor(name), graph.root(name)
        c_type = tensor.dtype.c_type
        if root.is_constant:
            table = Table(f"output_{i}", c_type, tuple(root.array().reshape(-1).tolist()), f"constant output {i}")
            constants.append(Constant(f"output_{i}_value", table))
            pointer = f"output_{i}_value"
        else:
            pointer = _pointer(c_type, names.slots[root.name], const=output)
        alias = identifier(tensor.label, "")
        alias = "" if not alias or alias in taken else unique(alias, taken)
        quantization = tensor.quantization
        ports.append(
            Port(
                i,
                tensor.label,
                alias,
                c_type,
                _text(tensor),
                tensor.shape,
                tensor.dtype.value,
                tensor.size_bytes,
                tensor.elements,
                quantization.scale if quantization else None,
                quantization.zero_point if quantization else None,
                pointer,
                tensor.name,
                tensor.source,
            )
        )
    return tuple(ports), tuple(constants)


def _peak_label(nodes: tuple[LoweredNode, ...], result: Plan) -> str:
    if result.peak_step >= len(nodes):
        return "the interface"
    node = nodes[result.peak_step].bound.node
    return f"op {node.index} {node.op_type}"


def lower(partition: Partition, name: str, origin: Origin) -> Program:
    """The program of a partitioned graph: layers, constants, arena plan and interface under the model's C name."""
    graph = partition.graph
    nodes = lower_nodes(partition)
    used = {node.backend for node in nodes}
    alignment = max([ALIGNMENT, *(partition.backends[name].alignment for name in used)])
    buffers, pins = pinned(arena_buffers(graph, nodes, alignment), pins_of(graph, nodes))
    result = plan(buffers, distances(graph, nodes, buffers), alignment=alignment)
    names = _Names(graph, nodes)
    slots = tuple(
        Slot(names.slots[p.name], p.offset_bytes, p.size_bytes, p.live.first, p.live.end, names.what[p.name])
        for p in result.placements
    )
    inputs, _ = _ports(graph, graph.inputs, names, output=False)
    outputs, output_constants = _ports(graph, graph.outputs, names, output=True)
    offsets = {p.name: p.offset_bytes for p in result.placements}
    inside = tuple(
        Slot(
            names.slots[p.buffer.name],
            offsets[p.inside] + p.offset_bytes,
            p.buffer.size_bytes,
            p.buffer.live.first,
            p.buffer.live.end,
            names.what[p.buffer.name],
        )
        for p in pins
    )
    peak = _peak_label(nodes, result)
    steps = _steps(graph, nodes, names)
    proof = proof_line(result, peak)
    program = Program(
        name,
        name.upper(),
        origin,
        inputs,
        outputs,
        slots,
        steps,
        output_constants,
        result,
        proof,
        peak,
        notes=(*graph.notes, *partition.notes),
    )
    program = replace(program, pins=inside)
    needed = [partition.backends[backend].requirement(program) for backend, _, _ in program.backends]
    return replace(program, requirements=tuple(requirement for requirement in needed if requirement is not None))

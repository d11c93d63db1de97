"""Nodes to layers, and layers to the functions that the C has: operands, constants and parameters of each."""

import hashlib
from array import array
from collections.abc import Mapping, Sequence

from emitc.backends.partition import Partition
from emitc.errors import EmitcError, Where
from emitc.ir import Graph, Tensor
from emitc.layer import Table
from emitc.lower.external_weights import may_be_stored
from emitc.lower.row_segments import row_params
from emitc.program import Address, Block, Constant, Operand, Program, Staged, Step
from emitc.program.c_names import identifier
from emitc.records import dataclass, field, replace
from emitc.schedule.slots import Slots, text_of
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

MAX_ADDED_BYTES = 16 << 20
"""Bytes of tables (exponentials, row indices) that lowering may add; the largest corpus model adds a few kilobytes."""
_WORD_BYTES = 4
"""Of what a DMA copies at a time."""


class ConstantPool:
    """C names of constant arrays; an array that was printed before is named again instead of printed."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, bytes], str] = {}

    def name(self, table: Table, wanted: str, *, alone: bool = False) -> tuple[str, bool]:
        """The array's C name, and whether it is new. alone: it is, whatever was printed before."""
        if alone:
            return wanted, True
        real = table.c_type in ("float", "double")
        content = array("d", table.values).tobytes() if real else repr(table.values).encode()
        key = (f"{table.alignment} {table.c_type}", hashlib.sha256(content).digest())
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
            what = "the tables of the model's operators are too large"
            why = f"up to this operator they take over {MAX_ADDED_BYTES} bytes more than the model's own constants"
            hint = "the file is damaged, or the model is not meant for a microcontroller"
            raise EmitcError(what, Where(op=bound.node.describe()), why, hint)
        nodes.append(LoweredNode(bound, layer, backend_of[bound.node.index]))
    return tuple(nodes)


@dataclass(frozen=True, slots=True)
class ConstantPlacement:
    """Where the constants of a model lie. weights: the region that is to hold them; staged: the one that weights are copied to.

    prefix: of the names of constants that have a file of their own, such as `kws_`. Each is "" where the user asks for none.
    external: arrays that training changes are to lie outside of the C, so that equal ones must not be one.
    """

    weights: str = ""
    staged: str = ""
    prefix: str = ""
    external: bool = False


def _in_words(table: Table, node: LoweredNode) -> Table:
    """The table, which begins at a word where a DMA copies it."""
    if node.start < 0 or table.role not in node.staged:
        return table
    return replace(table, alignment=max(_WORD_BYTES, table.alignment, table.size_bytes // max(1, len(table.values))))


@dataclass(frozen=True, slots=True)
class Steps:
    """Makes the functions of one program. section: the macro that places their constants, "" for none; parts: the programs inside
    of operators, by the operator's index.
    """

    graph: Graph
    slots: Slots
    section: str = ""
    placement: ConstantPlacement = field(default_factory=ConstantPlacement)
    parts: Mapping[int, tuple[Program, ...]] = field(default_factory=dict)
    pool: ConstantPool = field(default_factory=ConstantPool)

    def of_stages(self, stages: Sequence[Stage]) -> tuple[Step, ...]:
        steps: list[Step] = []
        for stage, moved in placed(stages):
            for position, node in enumerate(stage.nodes):
                rows = None if stage.segment is None else stage.segment.layers[position]
                steps.append(self._step(node, moved, rows))
        return tuple(steps)

    def _step(self, node: LoweredNode, moved: Mapping[str, int], rows: RowLayer | None) -> Step:
        """One layer. moved: how often each tensor was moved before; rows: where the layer makes one row at a time."""
        bound, layer = node.bound, node.layer
        name = f"op{bound.node.index}_{identifier(bound.node.op_type, '')}"
        constants: list[Constant] = []
        tables = {
            table.role: self._array(_in_words(table, node), f"{name}_{table.role}", constants) for table in layer.tables
        }
        staged = tuple(
            self._copy(node, table, tables[table.role]) for table in layer.tables if table.role in node.staged
        )
        inputs = tuple(
            self._input(tensor, position, name, moved, constants) for position, tensor in enumerate(node.inputs)
        )
        return Step(
            index=bound.node.index,
            name=name,
            op_type=bound.node.op_type,
            label=bound.node.label,
            template=layer.template,
            variant=layer.variant,
            inputs=inputs,
            outputs=tuple(
                _operand(t, self.slots.address(self.graph.root(t.name).name), const=False) for t in bound.outputs
            ),
            scratch=self._scratch(node),
            table_names=tables | {role: f"staged_{role}" for role in node.staged if role in tables},
            constants=tuple(constants),
            params=layer.params if rows is None else row_params(layer, rows),
            macs=layer.macs,
            spec=layer.spec,
            backend=node.backend,
            fallible=layer.fallible,
            call=layer.call,
            by_rows=rows is not None,
            window=rows is not None and is_window(layer, rows),
            parts=tuple(_in_section(part, self.section) for part in self.parts.get(bound.node.index, ())),
            headers=layer.headers,
            staged=staged,
            reads_rows=layer.reads_rows,
            formula=layer.formula,
        )

    def _array(self, table: Table, wanted: str, constants: list[Constant]) -> str:
        """The C name of a constant array, which is added to `constants` where it is new."""
        name, new = self.pool.name(
            table, f"{self.placement.prefix}{wanted}", alone=self.placement.external and may_be_stored(table)
        )
        if new:
            constants.append(Constant(name, table, self.section, external=bool(self.placement.prefix)))
        return name

    def _copy(self, node: LoweredNode, table: Table, constant: str) -> Staged:
        """A table that is copied before its layer runs."""
        return Staged(
            name=f"staged_{table.role}",
            c_type=table.c_type,
            constant=constant,
            address=self.slots.address(staged_name(node, table.role)),
            size_bytes=table.size_bytes,
            region=self.placement.staged,
            start=node.start,
        )

    def _input(
        self, tensor: Tensor, position: int, name: str, moved: Mapping[str, int], constants: list[Constant]
    ) -> Operand:
        """The operand at a position of the layer called `name`: a buffer, or an array where it is a constant."""
        root = self.graph.root(tensor.name)
        if not root.is_constant:  # in the arena, or a state variable
            address = self.slots.address(buffer_name(root.name, moved.get(root.name, 0)))
            return _operand(tensor, address, const=True)
        # Left by constant folding: switched off, or too much to compute now.
        values = tuple(root.array().reshape(-1).tolist())
        table = Table(f"operand_{position}", tensor.dtype.c_type, values, f"constant {text_of(tensor)}")
        array = self._array(table, f"{name}_operand_{position}", constants)
        return _operand(tensor, Address(Block.CONSTANT, array), const=True)

    def _scratch(self, node: LoweredNode) -> tuple[Operand, ...]:
        return tuple(
            Operand(
                c_type="int8_t",
                text="scratch",
                address=self.slots.address(scratch_name(node, scratch.role)),
                const=False,
                size_bytes=scratch.size_bytes,
                tensor=scratch.role,
                source=-1,
            )
            for scratch in node.layer.scratch
        )


def _operand(tensor: Tensor, address: Address, *, const: bool) -> Operand:
    return Operand(
        c_type=tensor.dtype.c_type,
        text=text_of(tensor),
        address=address,
        const=const,
        size_bytes=tensor.size_bytes,
        tensor=tensor.name,
        source=tensor.source,
    )


def _in_section(part: Program, section: str) -> Program:
    """The program inside of an operator with its constants where the model's are placed."""

    def placed_there(step: Step) -> Step:
        constants = tuple(replace(constant, section=section) for constant in step.constants)
        return replace(step, constants=constants, parts=tuple(_in_section(part, section) for part in step.parts))

    return replace(part, steps=tuple(map(placed_there, part.steps))) if section else part


def with_shared_tails(steps: Sequence[Step]) -> tuple[Step, ...]:
    """The layers, where those of one kernel say alike what its name does not say.

    Some kernels are named without whether channels or columns are left over from their groups, and without their window. Such
    a kernel has code for that where one of its layers needs it.
    """
    names = [(step.template, step.spec.suffix) for step in steps]
    tails = {name for name, step in zip(names, steps, strict=True) if step.spec.has_tail}
    windows = {name: step.spec.window for name, step in zip(names, steps, strict=True) if step.spec.window}
    return tuple(
        replace(step, spec=replace(step.spec, has_tail=name in tails, window=windows.get(name, "")))
        if name in tails or name in windows
        else step
        for name, step in zip(names, steps, strict=True)
    )

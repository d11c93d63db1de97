"""Names of buffers in the arena and in the state block, and their addresses."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from emitc.errors import first_name
from emitc.ir import Graph, Tensor
from emitc.program import Address, Block, Slot, SlotKind, arena_variable, state_argument
from emitc.schedule.stages import (
    LoweredNode,
    Stage,
    buffer_name,
    lines_name,
    placed,
    scratch_name,
    scratch_of,
    staged_name,
)


def text_of(tensor: Tensor) -> str:
    """Type and shape: `int8[1,49,10,1]`."""
    return f"{tensor.dtype.value}[{','.join(map(str, tensor.shape))}]"


def described(tensor: Tensor) -> str:
    """Type, shape and the first of the model's own names. The text may be hostile: templates and reports escape it."""
    return f'{text_of(tensor)} "{first_name(tensor.label)}"' if tensor.label else text_of(tensor)


class Slots:
    """Slot names of arena and state block: by state variable, by input, by the layer that writes the buffer, by scratch, by
    line buffer. vanished: layers that are not run, whose tensors have places all the same. prefix: of the names of inputs.
    state_args: state variables that the graph is handed and that have no slot, each with the number of its pointer.

    named: by buffer of the arena, without its place there. states: by state variable. arenas: the C variable of the arena, by
    slot name, where it is another than `arena`.
    """

    def __init__(
        self, graph: Graph, stages: Sequence[Stage], vanished: Sequence[LoweredNode] = (), prefix: str = "",
        state_args: Mapping[str, int] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        self.state_args = state_args
        self.named: dict[str, Slot] = {}
        self.states: dict[str, Slot] = {}
        self.arenas: dict[str, str] = {}
        for i, tensor in enumerate(graph.states if not state_args else ()):
            self.states[tensor.name] = Slot(f"STATE_{i}", described(tensor), SlotKind.TENSOR)
        for i, name in enumerate(graph.inputs):
            if name in graph.streamed_inputs or name in state_args:
                continue
            what = f"{described(graph.tensor(name))}, input {i}"
            self._add(name, Slot(f"AT_{prefix}INPUT_{i}", what, SlotKind.INPUT))
        for stage, moved in placed(stages):
            if stage.segment is not None:
                self._add_shared(stage)
            for node in stage.nodes:
                self._add_node(graph, node, inside=stage.segment is not None and node is not stage.nodes[-1])
            if stage.moved:
                self._add_moved(stage.moved, moved.get(stage.moved, 0) + 1)
        for node in vanished:
            self._add_node(graph, node, inside=False)

    def address(self, buffer: str) -> Address:
        if buffer in self.state_args:
            return Address(Block.STATE_ARGUMENT, state_argument(self.state_args[buffer]))
        if buffer in self.states:
            return Address(Block.STATE, "state", self.states[buffer].name)
        slot = self.named[buffer].name
        return Address(Block.ARENA, self.arenas.get(slot, arena_variable("")), slot)

    def _add_node(self, graph: Graph, node: LoweredNode, *, inside: bool) -> None:
        index, outputs = node.bound.node.index, node.bound.outputs
        for i, tensor in enumerate(outputs):
            root = graph.root(tensor.name).name
            if inside:
                name, what = f"AT_OP{index}_ROWS", f"rows of {described(tensor)}, from op {index}"
                self._add(lines_name(node), Slot(name, what, SlotKind.ROWS, index))
                self._add(root, Slot(name, "", SlotKind.ROWS, index))
                continue
            suffix = "" if len(outputs) == 1 else f"_{i}"
            what = f"{described(tensor)}, from op {index}"
            self._add(root, Slot(f"AT_OP{index}{suffix}", what, SlotKind.TENSOR, index))
        for scratch in node.layer.scratch:
            name = f"AT_OP{index}_{scratch.role.upper()}"
            slot = Slot(name, f"scratch of op {index}", SlotKind.SCRATCH, index)
            self._add(scratch_name(node, scratch.role), slot)
        for role in node.staged:
            what = f"copy of the {role} of op {index}"
            self._add(staged_name(node, role), Slot(f"AT_OP{index}_{role.upper()}", what, SlotKind.STAGED, index))

    def _add_shared(self, stage: Stage) -> None:
        """Adds the scratch of a segment, which all of its layers share."""
        first, last = (stage.nodes[i].bound.node.index for i in (0, -1))
        for number, (name, _) in enumerate(scratch_of(stage)):
            slot = f"AT_OP{first}_ROWS_SCRATCH{f'_{number}' if number else ''}"
            self._add(name, Slot(slot, f"scratch of ops {first} to {last}", SlotKind.SCRATCH, first))
            for node in stage.nodes:
                for scratch in node.layer.scratch[number : number + 1]:
                    self._add(scratch_name(node, scratch.role), Slot(slot, "", SlotKind.SCRATCH, first))

    def _add_moved(self, tensor: str, count: int) -> None:
        """The place of a tensor that has been moved `count` times."""
        first = self.named[tensor]
        name = f"{first.name}_MOVED{'' if count == 1 else f'_{count}'}"
        moved = replace(first, name=name, what=f"{first.what}, moved", kind=SlotKind.TENSOR, moved_from=first.name)
        self._add(buffer_name(tensor, count), moved)

    def _add(self, buffer: str, slot: Slot) -> None:
        if buffer not in self.states:
            self.named.setdefault(buffer, slot)

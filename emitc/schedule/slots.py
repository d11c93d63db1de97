"""Names of places in the arena, and the C expressions that lead to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from emitc.errors import first_name
from emitc.ir import Graph, Tensor
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
    """Type, shape and the model's own name, the first of several; hostile text, which templates and reports make harmless."""
    return f'{text_of(tensor)} "{first_name(tensor.label)}"' if tensor.label else text_of(tensor)


def cast(c_type: str, *, const: bool) -> str:
    """The C text before a pointer to bytes that makes it one to elements: through void where they are wider than a byte."""
    qualifier = "const " if const else ""
    through = "" if c_type in ("int8_t", "uint8_t") else f"({qualifier}void *)"
    return f"({qualifier}{c_type} *){through}"


def pointer(c_type: str, place: str, *, const: bool) -> str:
    """The C expression of a buffer at a place, which is itself C text: a block of bytes and an offset in it."""
    return f"{cast(c_type, const=const)}({place})"


class Slots:
    """Slot names of arena and state block: by state variable, by input, by the layer that writes the buffer, by scratch, by
    line buffer. vanished: layers that are not run, whose tensors have places all the same. prefix: of the names of inputs.
    held: C pointers to the state variables that the graph is handed, which have no slot.

    names, what: by buffer; what says what lies there. arenas: the C variable of the arena, by slot name, where it is another
    than `arena`.
    """

    def __init__(
        self, graph: Graph, stages: Sequence[Stage], vanished: Sequence[LoweredNode] = (), prefix: str = "",
        held: Mapping[str, str] = MappingProxyType({}),
    ) -> None:  # fmt: skip
        self.held = held
        self.names: dict[str, str] = {}
        self.what: dict[str, str] = {}
        self.arenas: dict[str, str] = {}
        for i, tensor in enumerate(graph.states if not held else ()):
            self._add(tensor.name, f"STATE_{i}", described(tensor))
        for i, name in enumerate(graph.inputs):
            if name in graph.pulled or name in held:
                continue
            self._add(name, f"AT_{prefix}INPUT_{i}", f"{described(graph.tensor(name))}, input {i}")
        for stage, moved in placed(stages):
            if stage.segment is not None:
                self._add_shared(stage)
            for node in stage.nodes:
                self._add_node(graph, node, inside=stage.segment is not None and node is not stage.nodes[-1])
            if stage.moved:
                count = moved.get(stage.moved, 0) + 1
                name, what = self.names[stage.moved], self.what[stage.moved]
                self._add(
                    buffer_name(stage.moved, count),
                    f"{name}_MOVED{'' if count == 1 else f'_{count}'}",
                    f"{what}, moved",
                )
        for node in vanished:
            self._add_node(graph, node, inside=False)

    def place(self, buffer: str) -> str:
        """The C text of the address of a buffer: `arena + AT_OP3`."""
        if buffer in self.held:
            return self.held[buffer]
        slot = self.names[buffer]
        return f"{'state' if slot.startswith('STATE_') else self.arenas.get(slot, 'arena')} + {slot}"

    def _add_node(self, graph: Graph, node: LoweredNode, *, inside: bool) -> None:
        index, outputs = node.bound.node.index, node.bound.outputs
        for i, tensor in enumerate(outputs):
            root = graph.root(tensor.name).name
            if inside:
                self._add(lines_name(node), f"AT_OP{index}_ROWS", f"rows of {described(tensor)}, from op {index}")
                self._add(root, f"AT_OP{index}_ROWS", "")
                continue
            suffix = "" if len(outputs) == 1 else f"_{i}"
            self._add(root, f"AT_OP{index}{suffix}", f"{described(tensor)}, from op {index}")
        for scratch in node.layer.scratch:
            self._add(
                scratch_name(node, scratch.role), f"AT_OP{index}_{scratch.role.upper()}", f"scratch of op {index}"
            )

        for role in node.staged:
            self._add(staged_name(node, role), f"AT_OP{index}_{role.upper()}", f"copy of the {role} of op {index}")

    def _add_shared(self, stage: Stage) -> None:
        """The scratch of a segment, which is that of each of its layers."""
        first, last = (stage.nodes[i].bound.node.index for i in (0, -1))
        for number, (name, _) in enumerate(scratch_of(stage)):
            slot = f"AT_OP{first}_ROWS_SCRATCH{f'_{number}' if number else ''}"
            self._add(name, slot, f"scratch of ops {first} to {last}")
            for node in stage.nodes:
                for scratch in node.layer.scratch[number : number + 1]:
                    self._add(scratch_name(node, scratch.role), slot, "")

    def _add(self, buffer: str, slot: str, what: str) -> None:
        if buffer not in self.names:
            self.names[buffer] = slot
            self.what[buffer] = what

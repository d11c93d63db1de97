"""A graph of a TFLite file to which a rewriting adds tensors and operators."""

from collections.abc import Mapping

from emitc.errors import Note
from emitc.records import dataclass, field, replace
from emitc.source import SourceModel, SourceNode, SourceTensor


@dataclass(slots=True)
class Additions:
    """tensors: those of the file, then new ones. nodes: those that are rewritten. next_node: number of the next new one."""

    model: SourceModel
    tensors: list[SourceTensor] = field(init=False)
    nodes: list[SourceNode] = field(default_factory=list)
    notes: list[Note] = field(default_factory=list)
    next_node: int = field(init=False)

    def __post_init__(self) -> None:
        self.tensors = list(self.model.tensors)
        self.next_node = 1 + max((node.index for node in self.model.nodes), default=-1)

    def tensor(self, like: SourceTensor, **changes: object) -> SourceTensor:
        self.tensors.append(replace(like, index=len(self.tensors), **changes))  # type: ignore[arg-type]
        return self.tensors[-1]

    def node(self, op_type: str, inputs: tuple[SourceTensor, ...], output: SourceTensor, kind: str = "") -> None:
        """Adds an operator with one output and no attributes."""
        self.nodes.append(SourceNode(self.next_node, op_type, output.name, inputs, (output,), {}, kind=kind))
        self.next_node += 1

    def finished(self) -> SourceModel:
        """The model as it is now; the model itself where no tensor was added."""
        if len(self.tensors) == len(self.model.tensors):
            return self.model
        notes = (*self.model.notes, *self.notes)
        return replace(self.model, tensors=tuple(self.tensors), nodes=tuple(self.nodes), notes=notes)


def with_tensors(node: SourceNode, replacements: Mapping[int, SourceTensor], *, outputs: bool = False) -> SourceNode:
    """The node with other tensors as inputs, and as outputs if `outputs` is set. replacements: by index of the old tensor."""
    inputs = tuple(replacements.get(tensor.index, tensor) if tensor else None for tensor in node.inputs)
    made = tuple(replacements.get(tensor.index, tensor) for tensor in node.outputs) if outputs else node.outputs
    return replace(node, inputs=inputs, outputs=made)

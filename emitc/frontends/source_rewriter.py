"""A SourceModel under rewriting: tensors and nodes by number, so that a change to a tensor reaches everything that reads it.

The ONNX frontend moves what operators carry as inputs (scales, zero points) onto tensors and turns images to NHWC with it.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from emitc.errors import EmitcError, Where
from emitc.frontends.limits import ConstantBudget
from emitc.ir import Array, Quantization, Shape
from emitc.records import dataclass, replace
from emitc.source import Attribute, SourceModel, SourceNode, SourceTensor

ABSENT = -1
"""An optional input that is left out."""


@dataclass(slots=True)
class RewriterNode:
    """An operator: tensors are indices into SourceRewriter.tensors. index: in the file, or beyond its last for one added here.

    blocker: what stands against compiling it; a blocked operator is left as it is, and reported with the others.
    """

    op_type: str
    kind: str
    name: str
    inputs: list[int]
    outputs: list[int]
    attributes: dict[str, Attribute]
    index: int
    blocker: EmitcError | None = None

    def input(self, position: int) -> int:
        """The tensor at an input, ABSENT where it is left out."""
        return self.inputs[position] if position < len(self.inputs) else ABSENT


class SourceRewriter:
    """Tensors and nodes of a model, in execution order, that may be changed in place."""

    def __init__(self, model: SourceModel) -> None:
        self.model = model
        self.tensors, self.notes = list(model.tensors), list(model.notes)
        self.inputs, self.outputs = list(model.inputs), list(model.outputs)
        self.nodes = [
            RewriterNode(
                node.op_type, node.kind or node.op_type, node.name,
                [ABSENT if t is None else t.index for t in node.inputs], [t.index for t in node.outputs],
                dict(node.attributes), node.index, node.blocker,
            )
            for node in model.nodes
        ]  # fmt: skip
        self.next_index = 1 + max((node.index for node in self.nodes), default=-1)
        self.budget = ConstantBudget(model.file_bytes)  # bytes of constants that may be added
        self._names = {tensor.name for tensor in model.tensors}
        self._numbers: dict[str, int] = {}

    def freeze(self) -> SourceModel:
        """The model that the rewriter has made, without tensors that nothing refers to losing their index."""
        nodes = tuple(self.source_node(node) for node in self.nodes)
        return replace(
            self.model, tensors=tuple(self.tensors), nodes=nodes, inputs=tuple(self.inputs), outputs=tuple(self.outputs),
            notes=tuple(self.notes),
        )  # fmt: skip

    def source_node(self, node: RewriterNode) -> SourceNode:
        """The node with its tensors, for reading attributes and for errors."""
        return SourceNode(
            node.index,
            node.op_type,
            node.name,
            tuple(None if i == ABSENT else self.tensors[i] for i in node.inputs),
            tuple(self.tensors[i] for i in node.outputs),
            dict(node.attributes),
            "onnx",
            node.kind,
            node.blocker,
        )

    def tensor(
        self, like: str, dtype: str, shape: Shape, quantization: Quantization | None = None, data: Array | None = None
    ) -> int:
        """Adds a tensor named after `like`; returns its index. Raises EmitcError where constants are too large together."""
        name = like
        while name in self._names:
            # Counted on from the last one: thousands of operators may share a name.
            self._numbers[like] = self._numbers.get(like, 0) + 1
            name = f"{like}.{self._numbers[like]}"
        self._names.add(name)
        if data is not None:
            self.budget.spend(data.nbytes, Where(tensor=like))
        raw = None if data is None else np.ascontiguousarray(data, dtype).tobytes()
        self.tensors.append(SourceTensor(len(self.tensors), name, dtype, shape, quantization, raw))
        return len(self.tensors) - 1

    def set(self, index: int, **changes: object) -> None:
        self.tensors[index] = replace(self.tensors[index], **changes)  # type: ignore[arg-type]

    def node(
        self, kind: str, name: str, inputs: Sequence[int], outputs: Sequence[int], **attributes: Attribute
    ) -> RewriterNode:
        """A new node, not yet in `nodes`."""
        self.next_index += 1
        return RewriterNode(kind, kind, name, list(inputs), list(outputs), dict(attributes), self.next_index - 1)

    def producers(self) -> dict[int, RewriterNode]:
        return {output: node for node in self.nodes for output in node.outputs}

    def readers(self) -> dict[int, list[RewriterNode]]:
        readers: dict[int, list[RewriterNode]] = {}
        for node in self.nodes:
            for index in dict.fromkeys(node.inputs):
                if index != ABSENT:
                    readers.setdefault(index, []).append(node)
        return readers

    def replace_each(
        self, replacement: Callable[[RewriterNode], Iterable[RewriterNode]], added: list[RewriterNode] | None = None
    ) -> None:
        """Puts other nodes instead of each one that is not blocked. An EmitcError blocks the node, which stays.

        added: where the replacement puts nodes that come before those that it returns.
        """
        nodes: list[RewriterNode] = []
        before = [] if added is None else added
        for node in self.nodes:
            before.clear()
            made: Iterable[RewriterNode] = [node]
            try:
                made = [node] if node.blocker is not None else replacement(node)
            except EmitcError as error:
                node.blocker = error
                before.clear()
            nodes += (*before, *made)
        self.nodes = nodes

    def known(self, node: RewriterNode, index: int, what: str, why: str, hint: str = "") -> Array:
        """The value of a constant; see `SourceNode.known`."""
        return self.source_node(node).known(self.tensors[index], what, why, hint)

"""The scheme of TFLite for ONNX models with uint8 values: they are computed as int8."""

from collections.abc import Collection

from emitc.frontends.source_rewriter import ABSENT, RewriterNode, SourceRewriter
from emitc.ir import Array


class SignRewriter:
    """Quantized uint8 tensors become int8, 128 lower; at the interface and at operators that see numbers they are kept."""

    def __init__(self, rewriter: SourceRewriter, unsigned_only: Collection[str]) -> None:
        """unsigned_only: kinds of operators that see numbers, whatever their other tensors are."""
        self.rewriter, self.unsigned_only = rewriter, unsigned_only
        self.unsigned = {t.index: t for t in rewriter.tensors if t.dtype == "uint8" and t.quantization is not None}
        self.nodes: list[RewriterNode] = []
        self.outside: dict[int, int] = {}
        """By the index of an int8 tensor, the uint8 tensor of the same values."""

    def rewrite(self) -> None:
        for tensor in self.unsigned.values():
            self.rewriter.tensors[tensor.index] = tensor.as_int8()
        self._inputs()
        available = set(self.outside)
        for node in self.rewriter.nodes:
            self.nodes += self._around(node, available)
        self._outputs()
        self.rewriter.nodes = self.nodes

    def _raw(self, index: int, name: str = "", data: Array | None = None) -> int:
        """A new uint8 tensor instead of an int8 one. name: "" for the same."""
        tensor = self.unsigned[index]
        return self.rewriter.tensor(name or tensor.name, "uint8", tensor.shape, tensor.quantization, data)

    def _shift(self, name: str, source: int, target: int) -> None:
        self.nodes.append(self.rewriter.node("ShiftSign", name, [source], [target]))

    def _inputs(self) -> None:
        """The interface keeps its types and names."""
        for position, index in enumerate(self.rewriter.inputs):
            if index in self.unsigned:
                self.outside[index] = self.rewriter.inputs[position] = target = self._at_interface(index)
                self._shift(self.rewriter.tensors[target].name, target, index)

    def _outputs(self) -> None:
        for position, index in enumerate(self.rewriter.outputs):
            if index not in self.unsigned:
                continue
            if index not in self.outside:
                self.outside[index] = target = self._at_interface(index)
                self._shift(self.rewriter.tensors[target].name, index, target)
            self.rewriter.outputs[position] = self.outside[index]

    def _at_interface(self, index: int) -> int:
        """A uint8 tensor with the tensor's name, which gets another one."""
        name = self.rewriter.tensors[index].name
        self.rewriter.set(index, name=f"{name}_s8")
        tensor = self._raw(index, name)
        self.rewriter.set(tensor, name=name)
        return tensor

    def _around(self, node: RewriterNode, inputs: Collection[int]) -> list[RewriterNode]:
        """The node, with nodes after it that turn its uint8 outputs into int8. inputs: those of the model."""
        late: list[RewriterNode] = []
        if node.blocker is None and self._sees_numbers(node):
            node.inputs = [self._kept(node, index) if index in self.unsigned else index for index in node.inputs]
            for position, index in enumerate(node.outputs):
                if index in self.unsigned and index not in inputs:
                    raw = self._raw(index)
                    node.outputs[position] = raw
                    late.append(self.rewriter.node("ShiftSign", node.name, [raw], [index]))
        return [node, *late]

    def _kept(self, node: RewriterNode, index: int) -> int:
        """The tensor as the model has it, for an operator that sees numbers."""
        if index not in self.outside:
            tensor = self.unsigned[index]
            data = None if tensor.data is None else tensor.array()
            self.outside[index] = self._raw(index, data=data)
            if data is None:
                self._shift(node.name, index, self.outside[index])
        return self.outside[index]

    def _sees_numbers(self, node: RewriterNode) -> bool:
        """Whether an operator computes with the numbers: by its kind, or because some of its bytes stand for nothing else."""
        tensors = {index for index in (*node.inputs, *node.outputs) if index != ABSENT}
        plain = any(self.rewriter.tensors[index].dtype == "uint8" for index in tensors - self.unsigned.keys())
        return node.kind in self.unsigned_only or (plain and bool(tensors & self.unsigned.keys()))

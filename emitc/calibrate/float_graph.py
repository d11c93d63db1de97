"""A float ONNX graph under change: who reads and who makes a tensor, constants as arrays, and what flows between
operators."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emitc.calibrate.packages import package
from emitc.records import dataclass

Floats = NDArray[np.floating[Any]]
Integers = NDArray[np.integer[Any]]

WEIGHTED = ("Conv", "Gemm", "MatMul")
"""Operators with weights that the remedies change. MatMul has no bias; of its values only [batch, channels] are taken."""


@dataclass(frozen=True, slots=True)
class ChannelStatistics:
    """Of the channels of one tensor on the samples. largest: of absolute values, [C]. mean: over the samples, [C, ...]."""

    largest: Floats
    mean: Floats


Statistics = Mapping[str, ChannelStatistics]
"""By the name of a tensor; its channels are dimension 1."""


class FloatGraph:
    """An ONNX message in float32 that is changed in place. model: the message."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.graph = model.graph
        self.outputs = {value.name for value in self.graph.output}
        self._index()

    def _index(self) -> None:
        self.made = {name: node for node in self.graph.node for name in node.output if name}
        self._constants = {tensor.name: tensor for tensor in self.graph.initializer}

    def readers(self, name: str) -> list[Any]:
        """The operators that read a tensor, in order; one that reads it twice occurs twice."""
        return [node for node in self.graph.node for used in node.input if used == name]

    def only_reader(self, name: str) -> Any | None:
        """The operator that alone reads a tensor that is no output of the model; None where there are more or none."""
        readers = self.readers(name)
        return readers[0] if len(readers) == 1 and name not in self.outputs else None

    def constant(self, name: str) -> Floats | None:
        """The value of a float32 constant, None for any other tensor."""
        tensor = self._constants.get(name)
        if tensor is None or tensor.data_type != package("onnx").TensorProto.FLOAT:
            return None
        return np.array(package("onnx.numpy_helper").to_array(tensor))

    def own_constant(self, node: Any, index: int, value: Floats) -> None:
        """Makes `value` the constant operand `index` of an operator; the constant that others read stays as it is."""
        numpy_helper = package("onnx.numpy_helper")
        name = node.input[index] if len(node.input) > index else ""
        if name in self._constants and len(self.readers(name)) == 1:
            self._constants[name].CopyFrom(numpy_helper.from_array(value, name))
            return
        name = self.add_constant(f"{node.output[0]}_{('input', 'weight', 'bias')[index]}", value)
        while len(node.input) <= index:
            node.input.append("")
        node.input[index] = name

    def add_constant(self, name: str, value: Floats | Integers) -> str:
        """A new constant; its name, which begins with `name`."""
        name = self.unused(name)
        self.graph.initializer.append(package("onnx.numpy_helper").from_array(value, name))
        self._constants[name] = self.graph.initializer[-1]
        return name

    def replace(self, node: Any, others: Sequence[Any]) -> None:
        """Puts operators in order where one was; constants that nothing reads any more are removed."""
        nodes: list[Any] = []
        for old in self.graph.node:
            for new in others if old is node else (old,):
                nodes.append(type(new)())
                nodes[-1].CopyFrom(new)
        del self.graph.node[:]
        self.graph.node.extend(nodes)
        used = {name for new in nodes for name in new.input} | self.outputs
        for tensor in [tensor for tensor in self.graph.initializer if tensor.name not in used]:
            self.graph.initializer.remove(tensor)
        self._index()

    def unused(self, name: str) -> str:
        """`name`, with a number where a tensor or operator is called that."""
        taken: set[str] = {*self.made, *self._constants, *(node.name for node in self.graph.node)}
        taken |= {value.name for value in self.graph.input}
        number, free = 1, name
        while free in taken:
            number, free = number + 1, f"{name}_{number}"
        return free

    def weighted(self) -> Iterator[tuple[Any, Floats]]:
        """Convolutions and dense layers with their weights as [channel, ...], in the order of the graph."""
        for node in list(self.graph.node):
            weights = self.weights(node)
            if weights is not None:
                yield node, weights

    def weights(self, node: Any) -> Floats | None:
        """Weights of a convolution as OIHW, of a dense layer as [outputs, inputs]; None where they are no float
        constant."""
        if node.op_type not in WEIGHTED or len(node.input) < 2:
            return None
        value = self.constant(node.input[1])
        if value is None or (node.op_type != "Conv" and (attribute(node, "transA", 0) or value.ndim != 2)):
            return None
        return value.T if _transposed(node) else value

    def set_weights(self, node: Any, value: Floats) -> None:
        """The inverse of `weights`."""
        self.own_constant(node, 1, np.ascontiguousarray(value.T if _transposed(node) else value))

    def bias(self, node: Any, channels: int) -> Floats | None:
        """The bias as [channels], of zeros where there is none; None where it is no such constant."""
        if len(node.input) < 3 or not node.input[2]:
            return np.zeros(channels, np.float32)
        value = self.constant(node.input[2])
        if value is None or attribute(node, "beta", 1.0) != 1.0 or value.size not in (1, channels):
            return None
        return np.broadcast_to(value.reshape(-1), (channels,)).copy()


def _transposed(node: Any) -> bool:
    """Whether a dense layer's weights are stored as [inputs, outputs]."""
    return node.op_type == "MatMul" or (node.op_type == "Gemm" and not attribute(node, "transB", 0))


def attribute(node: Any, name: str, default: Any) -> Any:
    """An attribute's value, `default` where the operator does not state it."""
    for entry in node.attribute:
        if entry.name == name:
            return package("onnx.helper").get_attribute_value(entry)
    return default

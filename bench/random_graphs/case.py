"""A graph as a description that can be cut: values, typed nodes, and the names of what goes in and out."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias, Union

import numpy as np

Attribute: TypeAlias = Union[
    int, float, bool, str, bytes, tuple[int, ...], tuple[float, ...], tuple[str, ...], "Description"
]


@dataclass(frozen=True, slots=True)
class Value:
    """One tensor of a graph.

    dtype: numpy's name; "int4" for packed weights and "resource" for a handle of TFLite. data: row-major little-endian bytes of a
    constant. scales, zero_points, axis: TFLite's quantization, one pair or one for each slice of `axis`; ONNX has none here.
    variable: state that an engine keeps for an operator (SVDF, LSTM). bounds: least and largest number to feed. sparse: the
    dimensions of a constant whose zeros are left out of the file.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: bytes | None = None
    scales: tuple[float, ...] = ()
    zero_points: tuple[int, ...] = ()
    axis: int = 0
    variable: bool = False
    bounds: tuple[float, float] | None = None
    sparse: tuple[int, ...] = ()

    @property
    def elements(self) -> int:
        """Product of the dimensions."""
        return math.prod(self.shape)

    @property
    def constant(self) -> bool:
        """Whether its bytes are in the model."""
        return self.data is not None

    def array(self) -> np.ndarray:
        """A constant's numbers. Raises ValueError for a value without data."""
        if self.data is None:
            raise ValueError(f"{self.name} is computed")
        return np.frombuffer(self.data, self.dtype).reshape(self.shape)


@dataclass(frozen=True, slots=True)
class Node:
    """One operator. op: the format's name for it; inputs and outputs: names of values, "" for one that is left out."""

    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Attribute] = field(default_factory=dict)

    @property
    def graphs(self) -> tuple[Description, ...]:
        """The graphs inside."""
        return tuple(value for value in self.attributes.values() if isinstance(value, Description))


@dataclass(frozen=True, slots=True)
class Description:
    """A graph: every value that a node or an end names, the nodes in running order, and the names of the ends.

    opset: the version of an ONNX graph's operators.
    """

    values: tuple[Value, ...]
    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    opset: int = 0

    def value(self, name: str) -> Value:
        """The value of that name. Raises KeyError where there is none."""
        for value in self.values:
            if value.name == name:
                return value
        raise KeyError(name)

    def every_node(self) -> Iterator[tuple[Description, Node]]:
        """All nodes with the graph that they are in, those of graphs inside included."""
        for node in self.nodes:
            yield self, node
            for inner in node.graphs:
                yield from inner.every_node()

    def keeping(self, positions: Collection[int]) -> Description:
        """The graph of these nodes alone: what they read and none of them computes is given, what none reads is an output."""
        nodes = tuple(node for position, node in enumerate(self.nodes) if position in positions)
        made = {name for node in nodes for name in node.outputs if name}
        read = {name for node in nodes for name in (*node.inputs, *captured(node)) if name}
        sources = [
            value.name
            for value in self.values
            if value.name in read - made and not value.constant and not value.variable
        ]
        inputs = [name for name in self.inputs if name in sources]
        inputs += [name for name in sources if name not in inputs]
        outputs = [name for name in self.outputs if name in made]
        outputs += [n for node in nodes for n in node.outputs if n and n not in read and n not in outputs]
        named = made | read | set(outputs)
        kept = tuple(v for v in self.values if v.name in named)
        return Description(kept, nodes, tuple(inputs), tuple(outputs), self.opset)

    def without_output(self, name: str) -> Description:
        """The same graph with one output less."""
        return replace(self, outputs=tuple(output for output in self.outputs if output != name))


def captured(node: Node) -> set[str]:
    """Names that the graphs inside a node read of the graph around it, as those of ONNX may."""
    names: set[str] = set()
    for inner in node.graphs:
        own = {value.name for value in inner.values}
        for inside in inner.nodes:
            names |= {name for name in (*inside.inputs, *captured(inside)) if name and name not in own}
        names |= {name for name in inner.outputs if name not in own}
    return names


@dataclass(frozen=True, slots=True)
class Case:
    """A graph with the model's file. seed, index: of the campaign that drew it; they say which inputs and options it gets."""

    format: str
    seed: int
    index: int
    description: Description
    model: bytes

    @property
    def name(self) -> str:
        """What records call it: `tflite:7:1234`."""
        return f"{self.format}:{self.seed}:{self.index}"

"""The proof of a QDQ model: every operator by itself, on the golden engine's own inputs to it.

A QDQ model states its arithmetic in float32, and the engine computes it so: sums of products with the rounding of every
step. Integer code has the exact sum instead and rounds once. The two agree but where the value lies so near the middle of
two steps that the engine's rounding decides. Such an element is off by one step, may set off others behind it, and says
nothing about them. So each operator is given what the engine had before it, and its output is compared with what the
engine had after it, under the rule of its kind:

- convolutions, Gemm and MatMul: at most 1 step, in at most 1 of 10^5 elements (more inputs are drawn where a few
  elements would decide);
- averages: at most 1 step, on ties; they are frequent where input and output have one scale;
- everything else on bytes: every bit. On int16, where a step is as small as the float error: at most 1 step;
- operators on float32: the tolerance of `golden_rules`.

The same is the proof of a TFLite model that TFLite Micro does not run, so that LiteRT has to stand in for it, and that has
operators in integers which LiteRT rounds otherwise: FULLY_CONNECTED, and LEAKY_RELU and SOFTMAX of int16. The C follows TFLite
Micro's rule. These are off by at most 1 step, everything else by no bit. And so where layers quantize floats while they run that
are themselves within a tolerance only: a last bit may become a step, which says nothing about the layer.

That the C computes what these references compute is a comparison of every output bit, which `verify` does as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from emitc.host.golden_engine import Array
from emitc.host.golden_rules import Rule, compared
from emitc.ir import BoundNode, DType, Graph, Numerics
from emitc.kernels import kernel_of
from emitc.kernels.conv_2d import Conv2D
from emitc.kernels.depthwise_conv_2d import DepthwiseConv2D
from emitc.kernels.fully_connected import FullyConnected
from emitc.kernels.fully_connected_computed import ComputedFullyConnected
from emitc.kernels.hybrid_conv_2d import HybridConv2D
from emitc.kernels.hybrid_offset_conv_2d import HybridOffsetConv2D
from emitc.kernels.mean import Reduction
from emitc.kernels.pooling_ops import AveragePool2D
from emitc.kernels.softmax import Softmax
from emitc.kernels.unary import LeakyRelu

ONE_IN = 100_000
ENOUGH = 20 * ONE_IN
"""Elements after which a rate of 1 in ONE_IN is told from a higher one: 20 are expected."""

_SUMS: tuple[type, ...] = (Conv2D, DepthwiseConv2D, FullyConnected)
_AVERAGES: tuple[type, ...] = (AveragePool2D, Reduction)
_NAMED_SUMS = frozenset(("MatMul", "Gemm", "ConvTranspose"))
_NAMED_AVERAGES = frozenset(("AveragePool", "GlobalAveragePool", "ReduceMean"))
_INTEGERS = (DType.INT8, DType.UINT8, DType.INT16)
_DISPUTED: Mapping[type, tuple[DType, ...]] = {
    FullyConnected: (DType.INT8, DType.INT16),
    ComputedFullyConnected: (DType.INT8, DType.INT16),
    LeakyRelu: (DType.INT16,),
    Softmax: (DType.INT16,),
}
"""Types of output in which LiteRT rounds otherwise than TFLite Micro, by one step at most."""


@dataclass(slots=True)
class Group:
    """All operators of one type, and how their outputs compare. largest: in steps, or real for float32.

    kind: sum, average, word (at most one step), exact or float, as in the module's docstring.
    """

    op_type: str
    kind: str
    operators: int = 0
    elements: int = 0
    differing: int = 0
    largest: float = 0.0
    broken: int = 0

    @property
    def holds(self) -> bool:
        """Whether the rule of its kind is kept."""
        if self.kind == "sum":
            return self.largest <= 1 and self.differing <= -(-self.elements // ONE_IN)
        return self.largest <= 1 if self.kind in ("average", "word") else self.broken == 0

    def to_json(self) -> dict[str, Any]:
        """For --json."""
        return {
            "op": self.op_type,
            "rule": self.kind,
            "operators": self.operators,
            "elements": self.elements,
            "differing": self.differing,
            "largest": self.largest if np.isfinite(self.largest) else None,
            "holds": self.holds,
        }


def has_groups(graph: Graph) -> bool:
    """Whether some operator computes in integers what the model states in float32."""
    return any(node.op.numerics is Numerics.QDQ for node in graph.nodes)


def rounded_otherwise(graph: Graph, engine: str) -> bool:
    """Whether the engine is LiteRT and the graph has operators in integers that it rounds otherwise than TFLite Micro."""
    return engine == "litert" and any(_is_disputed(bound) for bound in graph.bound())


def quantizes_inexact(graph: Graph, rules: Mapping[str, Rule]) -> bool:
    """Whether a layer quantizes floats while it runs that are within a tolerance only."""
    hybrids = (node for node in graph.nodes if isinstance(node.op, HybridConv2D | HybridOffsetConv2D))
    return any(not rules[node.inputs[0]].exact for node in hybrids)


def _is_disputed(bound: BoundNode) -> bool:
    op = bound.node.op
    return op.numerics is Numerics.TFLITE and bound.output.dtype in _DISPUTED.get(type(op), ())


def kind_of(bound: BoundNode) -> str:
    """The kind of an operator's outputs, as `Group` has it."""
    output = bound.output.dtype
    if output not in _INTEGERS:
        return "float" if output in (DType.FLOAT32, DType.FLOAT64) else "exact"
    if _is_disputed(bound):
        return "word"
    if bound.node.op.numerics is not Numerics.QDQ:
        return "exact"
    if output is DType.INT16:
        return "word"
    if isinstance(bound.node.op, _SUMS) or bound.node.op_type in _NAMED_SUMS:
        return "sum"
    averages = isinstance(bound.node.op, _AVERAGES) or bound.node.op_type in _NAMED_AVERAGES
    return "average" if averages else "exact"


def known_value(graph: Graph, values: Mapping[str, Array], name: str) -> Array | None:
    """The engine's value of a tensor, also through the tensor that it shares bytes with."""
    tensor = graph.tensor(name)
    if tensor.is_constant:
        return tensor.array()
    while tensor.name not in values and tensor.alias_of:
        tensor = graph.tensor(tensor.alias_of)
    value = values.get(tensor.name)
    return None if value is None else value.reshape(graph.tensor(name).shape)


class GroupCheck:
    """Compares every operator whose operands and outputs are known with its reference, and counts by type.

    rules: how closely each tensor is to follow, by name. without: operators that are left out, by index.
    """

    def __init__(self, graph: Graph, rules: Mapping[str, Rule], without: frozenset[int] = frozenset()) -> None:
        self._graph = graph
        self._rules = rules
        self._without = without
        self._groups: dict[tuple[str, str], Group] = {}
        self._counted: set[int] = set()
        self._samples = 0

    def add(self, values: Mapping[str, Array]) -> None:
        """One run. values: of tensors, by name."""
        self._samples += 1
        for bound in self._graph.bound():
            operands = [None if t is None else known_value(self._graph, values, t.name) for t in bound.inputs]
            if any(t is not None and v is None for t, v in zip(bound.inputs, operands, strict=True)):
                continue
            if bound.node.index in self._without or any(t.name not in values for t in bound.outputs):
                continue
            kind = kind_of(bound)
            group = self._groups.setdefault((bound.node.op_type, kind), Group(bound.node.op_type, kind))
            group.operators += bound.node.index not in self._counted
            self._counted.add(bound.node.index)
            for tensor, result in zip(bound.outputs, kernel_of(bound).reference(bound, operands), strict=True):
                expected = np.ascontiguousarray(values[tensor.name]).reshape(
                    tensor.shape
                )  # a scalar has become a vector
                difference = compared(np.asarray(result), expected, self._rules[tensor.name])
                group.elements += tensor.elements
                group.differing += difference.differing + difference.tolerated
                group.broken += difference.differing
                group.largest = max(group.largest, difference.largest)

    @property
    def counted(self) -> frozenset[int]:
        """The operators that were compared, by index."""
        return frozenset(self._counted)

    def wanted(self) -> int:
        """Further runs after which every group that breaks a rate has the elements that a rate of 1 in 10^5 shows in; else 0."""
        missing = 0
        for group in self._groups.values():
            if group.kind == "sum" and group.largest <= 1 and not group.holds and group.elements < ENOUGH:
                missing = max(missing, -(-(ENOUGH - group.elements) * self._samples // group.elements))
        return missing

    def found(self) -> tuple[Group, ...]:
        """What was counted, by type of operator."""
        return tuple(sorted(self._groups.values(), key=lambda group: (group.op_type, group.kind)))

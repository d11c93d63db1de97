"""The proof of a QDQ model: every operator by itself, on the golden engine's own inputs to it.

A QDQ model states its arithmetic in float32, and the engine computes it so: sums of products with the rounding of every
step. Integer code has the exact sum instead and rounds once. The two agree but where the value lies so near the middle of
two steps that the engine's rounding decides. Such an element is off by one step, may change later elements, and says
nothing about them. So each operator is given what the engine had before it. Its output is compared with what the engine
had after it, under the rule of its kind:

- convolutions, Gemm and MatMul: at most 1 step, and only where the exact value lies near the middle of two steps: the rounding
  errors of float32 sums can reach it (`exact_sums`); at a rate of at most 1 in 10^5 other elements. Exact ties do not count in
  it: scales in a simple ratio have many of them, and the engine's last rounding decides each. A rate is only known to a
  confidence: the rule is broken where as many differences had a chance of less than 10^-6 at that rate. More inputs are drawn
  for few elements, and for a count in doubt; what rate is excluded with 99 % confidence is reported;
- ConvTranspose: the same at a rate of 1 in 10^4;
- averages: at most 1 step, on ties; they are frequent where input and output have one scale;
- everything else on bytes: every bit. On int16, where a step is as small as the float error: at most 1 step;
- operators on float32: the tolerance of `tolerances`, or the largest difference of two orders of the same sum
  (`float_noise`), if that is more.

The same is the proof of a TFLite model that TFLite Micro does not run, so that LiteRT has to stand in for it. Such a model has
operators in integers which LiteRT rounds otherwise: FULLY_CONNECTED, and LEAKY_RELU and SOFTMAX of int16. The C follows TFLite
Micro's rule. These are off by at most 1 step, everything else by no bit. It is so too where layers quantize floats that are
themselves within a tolerance only, or make integers of them in another way. Hybrid layers of TFLite and DynamicQuantizeLinear
of ONNX are such: a last bit may become a step, which says nothing about the layer.

That the C computes what these references compute is a comparison of every output bit, which `verify` does as well.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from emitc.ir import BoundNode, DType, Graph, Node, Numerics, Tensor
from emitc.kernels import kernel_of
from emitc.kernels.activation.activations import LeakyRelu
from emitc.kernels.control_flow.control_flow import ControlFlow
from emitc.kernels.convolution.conv_2d import Conv2D
from emitc.kernels.convolution.conv_transpose import ConvTranspose
from emitc.kernels.convolution.depthwise_conv_2d import DepthwiseConv2D
from emitc.kernels.convolution.hybrid_conv_2d import HybridConv2D, HybridOffsetConv2D
from emitc.kernels.matrix.fully_connected import FullyConnected
from emitc.kernels.matrix.fully_connected_runtime import ComputedFullyConnected
from emitc.kernels.normalization.softmax import Softmax
from emitc.kernels.pooling.pool_ops import AveragePool2D
from emitc.kernels.recurrent.lstm_gru import DynamicQuantizeLstm
from emitc.kernels.recurrent.svdf import MEMORY, Svdf
from emitc.kernels.reduction.mean import Reduction
from emitc.records import dataclass
from emitc.verify.engine_values import completed, known_value, shown
from emitc.verify.engines.contract import Array
from emitc.verify.exact_sums import last_roundings, steps_and_noise, steps_of_sums
from emitc.verify.float_noise import noise
from emitc.verify.tolerances import Tolerance, compared, finite

ONE_IN = 100_000
LEAST = ONE_IN
"""Elements that are compared of every type with such a rate, where FEW_RUNS further ones give as many."""
FEW_RUNS = 100
ENOUGH = 20 * ONE_IN
"""Elements after which a rate of 1 in ONE_IN is told from three times as many: 20 are expected."""
_RATES: Mapping[str, float] = {"sum": 1 / ONE_IN, "scatter": 10 / ONE_IN}
"""The rates that are granted, by kind."""
_BROKEN = 1e-6
"""Chance of a count, at the rate that is granted, below which the rate is a higher one."""
_IN_DOUBT = 0.01
"""Chance of a count below which more elements are compared."""
CONFIDENCE = 0.99

_SUMS: tuple[type, ...] = (Conv2D, DepthwiseConv2D, FullyConnected)
_AVERAGES: tuple[type, ...] = (AveragePool2D, Reduction)
_NAMED_SUMS = frozenset(("MatMul", "Gemm"))
_NAMED_AVERAGES = frozenset(("AveragePool", "GlobalAveragePool", "ReduceMean"))
_FLOATS = (DType.FLOAT32, DType.FLOAT64)
_INTEGERS = (DType.INT8, DType.UINT8, DType.INT16)
_ROUNDING = frozenset(("CEIL", "FLOOR", "FLOOR_DIV", "FLOOR_MOD", "ROUND", "SIGN"))
"""TFLite operators that give floats in steps: a last bit of the operand may be a whole step of the result."""
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

    kind: sum, scatter (ConvTranspose), average, word (at most one step), exact or float, as in the module's docstring.
    broken: elements that break a rule of their own. ties: differing ones whose exact value is the middle of two steps, except for
    the last roundings of float32.
    """

    op_type: str
    kind: str
    operators: int = 0
    elements: int = 0
    differing: int = 0
    largest: float = 0.0
    broken: int = 0
    ties: int = 0

    def add(self, other: Group) -> None:
        for name in ("operators", "elements", "differing", "ties", "broken"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.largest = max(self.largest, other.largest)

    @property
    def holds(self) -> bool:
        """Whether the rule of its kind is kept."""
        if self.kind in _RATES:
            return self.largest <= 1 and self.chance >= _BROKEN and self.broken == 0
        return self.largest <= 1 if self.kind in ("average", "word") else self.broken == 0

    @property
    def chance(self) -> float:
        """The chance of as many differences or more at the rate that is granted."""
        return chance_of_more(self.differing - self.ties, self.elements, _RATES[self.kind])

    @property
    def at_most(self) -> float | None:
        """The rate that differences stay below, at CONFIDENCE; None where the rule is not a rate."""
        return highest_rate(self.differing - self.ties, self.elements, CONFIDENCE) if self.kind in _RATES else None

    def to_json(self) -> dict[str, Any]:
        counts = {name: getattr(self, name) for name in ("operators", "elements", "differing", "ties")}
        entries = {"op": self.op_type, "rule": self.kind, **counts, "largest": finite(self.largest)}
        return entries | {"holds": self.holds, "at_most": self.at_most}


def has_operator_checks(graph: Graph) -> bool:
    """Whether some operator computes in integers what the model states in float32."""
    return any(node.op.numerics is Numerics.QDQ for node in graph.nodes)


def rounded_otherwise(graph: Graph, engine: str) -> bool:
    """Whether the engine is LiteRT and the graph has operators in integers that it rounds otherwise than TFLite Micro."""
    return engine == "litert" and any(_is_disputed(bound) for bound in graph.bound())


def has_int8_memory(graph: Graph) -> bool:
    """Whether the graph has an SVDF whose memory is int8, which LiteRT reads as int16: it cannot be the reference then."""
    return any(isinstance(b.node.op, Svdf) and b.input(MEMORY).dtype is DType.INT8 for b in graph.bound())


def quantizes_inexact(graph: Graph, rules: Mapping[str, Tolerance]) -> bool:
    """Whether a layer quantizes floats while it runs that are within a tolerance only, or makes other integers of them."""
    return any(_steps(graph, node, rules) for node in graph.nodes)


def _steps(graph: Graph, node: Node, rules: Mapping[str, Tolerance]) -> bool:
    """Whether the last bit of a float that is within a tolerance may change what an operator gives by a whole step."""
    tolerant = any(name and not rules[name].exact for name in node.inputs)
    if isinstance(node.op, HybridConv2D | HybridOffsetConv2D):
        return not rules[node.inputs[0]].exact
    if node.op.numerics.of_tflite or isinstance(node.op, ControlFlow) or not tolerant:
        return False
    return isinstance(node.op, DynamicQuantizeLstm) or any(
        graph.tensor(name).dtype not in _FLOATS for name in node.outputs
    )


def has_steps_of_floats(graph: Graph, rules: Mapping[str, Tolerance]) -> bool:
    """Whether a TFLite graph rounds floats within a tolerance to whole numbers, or makes integers of them."""
    return any(_steps_of_floats(graph, node, rules) for node in graph.nodes)


def _steps_of_floats(graph: Graph, node: Node, rules: Mapping[str, Tolerance]) -> bool:
    if not node.op.numerics.of_tflite or isinstance(node.op, ControlFlow):
        return False
    rounds = node.op_type in _ROUNDING or any(graph.tensor(name).dtype not in _FLOATS for name in node.outputs)
    return rounds and any(name and not rules[name].exact for name in node.inputs)


def _is_disputed(bound: BoundNode) -> bool:
    op = bound.node.op
    return op.numerics is Numerics.TFLITE and bound.output.dtype in _DISPUTED.get(type(op), ())


def kind_of(bound: BoundNode) -> str:
    """The kind of an operator's outputs, as `Group` has it."""
    output = bound.output.dtype
    if output not in _INTEGERS:
        return "float" if output in _FLOATS else "exact"
    if _is_disputed(bound):
        return "word"
    if bound.node.op.numerics is not Numerics.QDQ:
        return "exact"
    if output is DType.INT16:
        return "word"
    if isinstance(bound.node.op, ConvTranspose):
        return "scatter"
    if isinstance(bound.node.op, _SUMS) or bound.node.op_type in _NAMED_SUMS:
        return "sum"
    averages = isinstance(bound.node.op, _AVERAGES) or bound.node.op_type in _NAMED_AVERAGES
    return "average" if averages else "exact"


def _ties(bound: BoundNode, operands: Sequence[Array | None]) -> tuple[Array, Array] | None:
    """Of each output element of a sum: may float32 sums round it otherwise, and is it an exact tie. None if that is not known."""
    if isinstance(bound.node.op, ConvTranspose):
        steps, noise = steps_and_noise(bound, operands)
        last = last_roundings(steps, bound.output.zero_point) + 2.0**-17  # steps are known to half of 2**-16
        rounding: tuple[Array, ...] | None = steps, noise + 2.0**-15, last
    else:
        rounding = steps_of_sums(bound, operands)
    if rounding is None:
        return None
    steps, noise, last = rounding
    distance = np.abs(steps - np.floor(steps) - 0.5)
    return distance <= noise, distance <= last


def _beyond_noise(result: Array, expected: Array, rule: Tolerance, limits: Array) -> int:
    """Elements that are off by more than their rule, and by more than two orders of a sum may be: the limits."""
    with np.errstate(all="ignore"):
        gap = np.abs(result.astype(np.float64) - expected.astype(np.float64))
    within = np.isfinite(limits) & (gap <= limits)
    return compared(np.where(within, expected, result), expected, rule).differing


class OperatorCheck:
    """Compares every operator whose operands and outputs are known with its reference, and counts by type.

    rules: how closely each tensor is to follow, by name. without: operators that are left out, by index. floats: operators
    on floats have to be compared as well. own: the values are those of the C, and not an engine's that rounds otherwise.

    A state variable of an engine has the value that the run leaves. One of the C has the value that its layer has read. That has
    to be what the reference made of the run before.
    """

    def __init__(
        self, graph: Graph, rules: Mapping[str, Tolerance], without: frozenset[int] = frozenset(), *, floats: bool = False,
        own: bool = False,
    ) -> None:  # fmt: skip
        self._floats = floats
        self._own = own
        self._graph = graph
        self._rules = rules
        self._without = without
        self._groups: dict[tuple[str, str], Group] = {}
        self._counted: set[int] = set()
        self._samples = 0
        self._states: dict[str, Array] = {}

    def reset(self) -> None:
        """The next run begins with the initial state."""
        self._states = {}

    def _operand(self, values: Mapping[str, Array], tensor: Tensor) -> Array | None:
        """The value that an operator reads; None where it is not known, as that of state which several operators use."""
        if not tensor.is_state or self._own:
            return known_value(self._graph, values, tensor.name)
        readers = self._graph.consumers(tensor.name)
        if tensor.name not in values or len(readers) != 1 or tensor.name not in readers[0].outputs:
            return None
        return self._states.get(tensor.name, tensor.initial_array())

    def add(self, values: Mapping[str, Array], *, sums: bool = False) -> None:
        """One run. values: of tensors, by name. sums: only operators whose rule is a rate that is not known yet."""
        self._samples += 1
        values = completed(self._graph, values)
        asking = {key for key, group in self._groups.items() if self._missing(group)}
        for bound in self._graph.bound():
            kind = kind_of(bound)
            if bound.node.index in self._without or (sums and (bound.node.op_type, kind) not in asking):
                continue
            operands = [None if t is None else self._operand(values, t) for t in bound.inputs]
            if any(t is not None and v is None for t, v in zip(bound.inputs, operands, strict=True)):
                continue
            integer = bound.node.op.numerics is Numerics.QDQ and len(bound.outputs) == 1
            if not integer and any(t.name not in values for t in bound.outputs):
                continue
            results = kernel_of(bound).reference(bound, operands)
            pairs = zip(bound.outputs, results, strict=True)
            shown_results = [shown(self._graph, values, tensor.name, np.asarray(result)) for tensor, result in pairs]
            if any(item is None for item in shown_results):
                continue
            group = self._groups.setdefault((bound.node.op_type, kind), Group(bound.node.op_type, kind))
            group.operators += bound.node.index not in self._counted
            self._counted.add(bound.node.index)
            for position, (name, result) in enumerate(item for item in shown_results if item is not None):
                if self._own and bound.outputs[position].is_state:
                    group.broken += self._wrong_state(bound, name, values[name], result)
                    continue
                # A scalar has become a vector.
                expected = np.ascontiguousarray(values[name]).reshape(result.shape)
                difference = compared(result, expected, self._rules[name])
                group.elements += result.size
                group.differing += difference.differing + difference.tolerated
                group.largest = max(group.largest, difference.largest)
                if not self._own and kind in _RATES:
                    explained, ties = self._explained(bound, operands, values, result != expected)
                    group.broken += difference.differing - explained
                    group.ties += ties
                elif kind == "float" and difference.differing:
                    group.broken += self._broken(bound, operands, values, position, name, result)
                else:
                    group.broken += difference.differing
        if not self._own:
            self._states = {t.name: values[t.name] for t in self._graph.states if t.name in values}

    def _wrong_state(self, bound: BoundNode, name: str, read: Array, result: Array) -> int:
        """Elements of a state variable that a layer of the C has not read as the reference left them in the run before."""
        if name not in bound.node.inputs:
            return 0
        before = self._states.get(name, self._graph.tensor(name).initial_array())
        self._states[name] = result
        return compared(read, before, self._rules[name]).differing

    def _explained(
        self, bound: BoundNode, operands: Sequence[Array | None], values: Mapping[str, Array], differs: Array
    ) -> tuple[int, int]:
        """How many elements of a sum differ as float32 sums may, and how many of these are ties; moved as the engine shows them.

        A MaxPool selects by value, so that its elements are not found again. The rate alone decides about those.
        """
        count = int(differs.sum())
        if not count:
            return 0, 0
        known = _ties(bound, operands)
        if known is None:
            return count, 0
        name, dtype, shape = bound.output.name, bound.output.dtype.value, bound.output.shape
        blank = shown(self._graph, values, name, np.zeros(shape, dtype), selecting=False)
        moved = [
            shown(self._graph, values, name, np.broadcast_to(flags, shape).astype(dtype), selecting=False)
            for flags in known
        ]
        ratios = [
            int((flags[1] != blank[1])[differs].sum()) for flags in moved if flags is not None and blank is not None
        ]
        return (ratios[0], ratios[1]) if ratios else (count, 0)

    def _broken(
        self, bound: BoundNode, operands: Sequence[Array | None], values: Mapping[str, Array], position: int, name: str,
        result: Array,
    ) -> int:  # fmt: skip
        """Elements of an output on floats that break its rule. name, result: where the engine shows it."""
        rule, limits = self._rules[name], noise(bound, operands, own=self._own)[position]
        expected = np.ascontiguousarray(values[name]).reshape(result.shape)
        there = None
        if limits is not None and not rule.exact:
            there = shown(self._graph, values, bound.outputs[position].name, limits.astype(np.float32))
        if there is None:
            return compared(result, expected, rule).differing
        return _beyond_noise(result, expected, rule, there[1])

    @property
    def unjudged(self) -> int:
        """Operators that no run has compared with the engine, of those that have to be."""
        nodes = self._graph.nodes
        own = {n.index for n in nodes if self._floats and any(not self._rules[name].exact for name in n.outputs)}
        own |= {n.index for n in nodes if n.op.numerics is Numerics.QDQ or _steps(self._graph, n, self._rules)}
        own |= {n.index for n in nodes if self._floats and _steps_of_floats(self._graph, n, self._rules)}
        return len(own - self._counted - self._without)

    @property
    def in_doubt(self) -> bool:
        """Whether some count is unlikely at the rate that is granted, and no proof of a higher one yet."""
        groups = self._groups.values()
        return any(g.kind in _RATES and g.holds and g.chance < _IN_DOUBT and g.elements < ENOUGH for g in groups)

    @property
    def counted(self) -> frozenset[int]:
        """The operators that were compared, by index."""
        return frozenset(self._counted)

    def _missing(self, group: Group) -> int:
        """Further runs that a group asks for; none where it is not in doubt, and FEW_RUNS are too few for it."""
        if group.kind not in _RATES or not group.holds:
            return 0
        doubtful = group.chance < _IN_DOUBT
        left = (ENOUGH if doubtful else LEAST) - group.elements
        runs = -(-left * self._samples // group.elements)
        return max(0, runs) if doubtful or runs <= FEW_RUNS else 0

    def wanted(self) -> int:
        """Further runs after which every rate is known as well as it can be with few of them; 0 where all are."""
        return max(map(self._missing, self._groups.values()), default=0)

    def groups(self) -> tuple[Group, ...]:
        return tuple(sorted(self._groups.values(), key=lambda group: (group.op_type, group.kind)))


def _log_chance(count: int, elements: int, rate: float) -> float:
    """Logarithm of the chance that exactly `count` of `elements` differ where each does so with the chance `rate`."""
    ways = math.lgamma(elements + 1) - math.lgamma(count + 1) - math.lgamma(elements - count + 1)
    return ways + count * math.log(rate) + (elements - count) * math.log1p(-rate)


def chance_of_more(count: int, elements: int, rate: float) -> float:
    """The chance that `count` or more of `elements` differ where each does so with the chance `rate`, in 0..1 (both excluded)."""
    if count <= 0:
        return 1.0
    if count <= elements * rate:  # the other tail is the shorter sum
        return max(0.0, 1.0 - sum(math.exp(_log_chance(k, elements, rate)) for k in range(count)))
    total, k = 0.0, count
    while k <= elements:
        chance = math.exp(_log_chance(k, elements, rate))
        total += chance
        if chance <= total * 1e-12:
            break
        k += 1
    return min(total, 1.0)


def chance_of_fewer(count: int, elements: int, rate: float) -> float:
    """The chance that `count` or fewer of `elements` differ."""
    if count > elements * rate:  # the other tail is the shorter sum
        return max(0.0, 1.0 - chance_of_more(count + 1, elements, rate))
    return sum(math.exp(_log_chance(k, elements, rate)) for k in range(count + 1))


def highest_rate(count: int, elements: int, confidence: float) -> float:
    """The rate that the true one is below with this confidence (Clopper and Pearson's upper limit, one-sided).

    >>> round(highest_rate(0, 100_000, 0.99) * 1e5, 1)
    4.6
    """
    if count >= elements:
        return 1.0
    low, high = count / elements, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if middle <= 0.0 or middle >= 1.0:
            break
        if chance_of_fewer(count, elements, middle) > 1.0 - confidence:
            low = middle
        else:
            high = middle
    return high

"""How closely the C has to follow the golden engine: bit for bit, or within a tolerance that the format asks for.

Bit for bit is the rule. It holds for all integers, and for every float that comes out of a table, a copy, a selection or a
single DequantizeLinear.

ONNX leaves the order of a float sum and the last bits of exp, tanh and similar functions to the runtime. So a float
tensor that an operator on floats of an ONNX graph has computed may differ from the engine's. The limit is 1e-5 + 1e-5
of the largest magnitude in the tensor. The same holds for the sums of TFLite's float operators. TFLite's float LSTM,
SOFTMAX and TANH by themselves have to be within 1e-6. Infinities and NaN have to be where the engine has them. Which of
0 and -0 an operator of ONNX selects is open, since the two compare equal.

The rule of an output of IF, WHILE, If, Loop or Scan is the widest rule that its graphs give it in any round.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from emitc.ir import DType, Graph, Node
from emitc.kernels.activation.activations import Logistic, Tanh
from emitc.kernels.activation.unary_functions import Function
from emitc.kernels.control_flow.control_flow import ControlFlow
from emitc.records import dataclass
from emitc.verify.engines.contract import Array

if TYPE_CHECKING:
    from emitc.compiled import Compiled


FLOAT_TOLERANCE = 1e-5
FINE_TOLERANCE = 1e-6

_SELECTING = (
    "Abs Clip Concat DepthToSpace Dropout Expand Flatten Gather GatherElements GatherND GlobalMaxPool Identity Max MaxPool "
    "Min Neg Pad ReduceMax ReduceMin Reinterpret Relu Reshape Slice SpaceToDepth Split Squeeze Tile Transpose Unsqueeze "
    "Where"
)
EXACT_ON_FLOATS = frozenset(_SELECTING.split())
"""ONNX operators whose float outputs are values of their inputs, constants, or such with another sign."""
EITHER_ZERO = frozenset(("GlobalMaxPool", "Max", "MaxPool", "Min", "ReduceMax", "ReduceMin", "Where"))
"""Those of them that select among values, or by a product. IEEE 754 leaves open which of 0 and -0 is the larger, and
ONNX says nothing. ONNX Runtime gives the first or the last of equal values by shape and processor; its Where merges what
it selects with zeros, so that a selected -0 becomes 0."""
_SUMMING = (
    "BATCH_MATMUL CONV_2D COS DEPTHWISE_CONV_2D ELU EXP FULLY_CONNECTED GELU L2_NORMALIZATION L2_POOL_2D LOG LOGISTIC "
    "LOG_SOFTMAX MEAN POW REDUCE_PROD SIN SOFTMAX SUM SVDF TANH TRANSPOSE_CONV UNIDIRECTIONAL_SEQUENCE_LSTM"
)
SUMS_OF_FLOATS = frozenset(
    (*_SUMMING.split(), "CUSTOM:SignalIrfft", "CUSTOM:SignalRfft", "CUSTOM:TFLite_Detection_PostProcess")
)
"""TFLite operators that sum floats, or take exp, tanh and the like of them; the others that have float outputs are exact."""

FINE = frozenset({"SOFTMAX", "TANH", "UNIDIRECTIONAL_SEQUENCE_LSTM"})
"""Those whose outputs have to be nearer, unless their inputs are themselves within the wider tolerance only."""

_KEEPING = (
    "ABS APPEND ASSIGN_VARIABLE BATCH_TO_SPACE_ND BROADCAST_TO CONCATENATION DEPTH_TO_SPACE DYNAMIC_UPDATE_SLICE "
    "EMBEDDING_LOOKUP EXPAND_DIMS FILL GATHER GATHER_ND MAXIMUM MAX_POOL_2D MINIMUM MIRROR_PAD NEG PACK PAD PADV2 "
    "READ_VARIABLE REDUCE_MAX REDUCE_MIN RELU RELU6 RELU_N1_TO_1 RESHAPE RESIZE_NEAREST_NEIGHBOR REVERSE_V2 SELECT SELECT_V2 "
    "SLICE SPACE_TO_BATCH_ND SPACE_TO_DEPTH SPLIT SPLIT_V SQUEEZE STRIDED_SLICE TILE TRANSPOSE UNPACK"
)
KEEPING = frozenset(name.replace("_", "") for name in _KEEPING.split())
"""TFLite operators that do not enlarge a difference of their inputs; names without underscores.

A sum of n values that are each within 1e-6 is within n * 1e-6 only, and a product by c within c * 1e-6. The finer tolerance is
therefore no bound after any other operator, and the wider one applies.
"""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far an element may be off: absolute + relative * the largest magnitude expected in its tensor.

    zeros: 0 and -0 are the same.
    """

    absolute: float = 0.0
    relative: float = 0.0
    zeros: bool = False

    @property
    def exact(self) -> bool:
        """Whether every bit counts, except for the sign of a zero where `zeros` says so."""
        return self.absolute == 0 and self.relative == 0

    def __str__(self) -> str:
        """For a report: `1e-05 + 1e-05 of the largest`."""
        return f"{self.absolute:g}" + (f" + {self.relative:g} of the largest" if self.relative else "")


EXACT = Tolerance()
ANY_ZERO = Tolerance(zeros=True)
TOLERANT = Tolerance(FLOAT_TOLERANCE, FLOAT_TOLERANCE)
NEAR = Tolerance(FINE_TOLERANCE)


def rules(graph: Graph, source_format: str, built: Graph | None = None) -> Mapping[str, Tolerance]:
    """The rule of every tensor of the graph, by name.

    built: the graph before the passes, for constants that emitc has computed: they are no nearer than their operators are.
    """
    before = {} if built is None else rules(built, source_format)
    computed = {t.name: before[t.name] for t in graph.tensors if t.is_constant and not before.get(t.name, EXACT).exact}
    variables = [graph.root(tensor.name).name for tensor in graph.states]
    initial: dict[str, Tolerance] = dict(computed)
    while True:  # what a run leaves in a variable, the next one reads
        tolerances = _tolerated(graph, source_format == "onnx", initial)
        kept = computed | {name: tolerances[name] for name in variables if name in tolerances}
        if kept == initial:
            break
        initial = kept
    return {tensor.name: tolerances.get(graph.root(tensor.name).name, EXACT) for tensor in graph.tensors}


def tolerances_of(compiled: Compiled) -> Mapping[str, Tolerance]:
    built = next((step.graph for step in compiled.history if not step.inside), None)
    return rules(compiled.graph, compiled.source.format, built)


def _tolerated(graph: Graph, onnx: bool, input_rules: Mapping[str, Tolerance]) -> dict[str, Tolerance]:
    """The rules that are not exact, by the name of what owns the bytes. input_rules: those of the graph's inputs."""
    tolerances = dict(input_rules)
    floats = {tensor.name for tensor in graph.tensors if tensor.dtype in (DType.FLOAT32, DType.FLOAT64)}
    for node in graph.nodes:
        made = [graph.root(name).name for name in node.outputs]
        if isinstance(node.op, ControlFlow):
            rule_of = [tolerances.get(graph.root(name).name, EXACT) if name else EXACT for name in node.inputs]
            inner = zip(made, _nested(node, node.op, onnx, rule_of), strict=True)
            tolerances |= {name: rule for name, rule in inner if name in floats and rule != EXACT}
            continue
        read = {graph.root(name).name for name in node.inputs if name} & floats
        sums = node.op_type not in EXACT_ON_FLOATS if onnx else node.op_type in SUMS_OF_FLOATS
        sums |= type(node.op).definition is not None
        before = {tolerances[name] for name in read if name in tolerances}
        before |= {ANY_ZERO} if onnx and node.op_type in EITHER_ZERO else set()
        # Some of these have float outputs of dequantized bytes, by a table.
        if not (read or isinstance(node.op, Function | Logistic | Tanh)) or not (sums or before):
            continue
        keeps = not sums and (onnx or node.op_type.upper().replace("_", "") in KEEPING)
        near = not onnx and node.op_type in FINE and TOLERANT not in before
        rule = max(before, key=_width) if keeps else NEAR if near else TOLERANT
        tolerances |= dict.fromkeys(set(made) & floats, rule)
    return tolerances


def _width(rule: Tolerance) -> tuple[float, float, bool]:
    return rule.absolute, rule.relative, rule.zeros


def _wider(a: Tolerance, b: Tolerance) -> Tolerance:
    return max(a, b, key=_width)


def _nested(node: Node, op: ControlFlow, onnx: bool, input_rules: Sequence[Tolerance]) -> Sequence[Tolerance]:
    """The rules of the outputs of an operator that runs graphs, from those of its operands.

    Going round a loop can only widen them, and there are four rules, so that this comes to an end.
    """
    links = op.links(len(input_rules))
    outputs = [EXACT] * len(node.outputs)
    for operand, output in (pair for link in links for pair in link.starts):
        outputs[output] = _wider(outputs[output], input_rules[operand])
    while True:
        before = list(outputs)
        for graph, link in zip(op.graphs, links, strict=True):
            entering = [
                _wider(EXACT if operand < 0 else input_rules[operand], EXACT if output < 0 else outputs[output])
                for operand, output in link.inputs
            ]
            tolerances = _tolerated(
                graph, onnx, {n: r for n, r in zip(graph.inputs, entering, strict=True) if r != EXACT}
            )
            for name, output in zip(graph.outputs, link.outputs, strict=True):
                if output >= 0:
                    outputs[output] = _wider(outputs[output], tolerances.get(graph.root(name).name, EXACT))
        if outputs == before:
            return outputs


@dataclass(frozen=True, slots=True)
class Difference:
    """differing: elements that break the rule. tolerated: others whose bits differ. largest: difference of values."""

    differing: int
    tolerated: int
    largest: float


def compared_bytes(
    actual: bytes, expected: bytes, c_type: str, rule: Tolerance = EXACT, *, any_nan: bool = False
) -> Difference:
    """Compares the bytes of two tensors. c_type: of their elements, as `DType.c_type` has it."""
    dtype = {"float": "float32", "double": "float64"}.get(c_type, c_type.removesuffix("_t"))
    return compared(np.frombuffer(actual, dtype), np.frombuffer(expected, dtype), rule, any_nan=any_nan)


def compared(actual: Array, expected: Array, rule: Tolerance = EXACT, *, any_nan: bool = False) -> Difference:
    """Compares two arrays of one dtype and shape; raises ValueError for others.

    any_nan: a NaN may have other bits under an exact rule too, for arrays of two processors: IEEE 754 leaves the sign of the
    NaN that an operation makes to them, and x86 and Arm differ in it.
    """
    if actual.shape != expected.shape or actual.dtype != expected.dtype:
        raise ValueError(f"{actual.dtype}{actual.shape} is compared with {expected.dtype}{expected.shape}")
    width = actual.dtype.itemsize
    a = np.frombuffer(np.ascontiguousarray(actual).tobytes(), f"u{width}")
    b = np.frombuffer(np.ascontiguousarray(expected).tobytes(), f"u{width}")
    unequal = a != b
    zeros = 0
    if rule.zeros:
        either = unequal & ((actual == 0) & (expected == 0)).reshape(-1)
        zeros, unequal = int(either.sum()), unequal & ~either
    count = int(unequal.sum())
    if count == 0:
        return Difference(0, zeros, 0.0)
    x, y = (array.reshape(-1)[unequal].astype(np.float64) for array in (actual, expected))
    # Equal infinities have equal bits, so that those left here and every NaN are infinitely far off.
    finite = np.isfinite(x) & np.isfinite(y)
    gap = np.full(count, np.inf)
    gap[finite] = np.abs(x[finite] - y[finite])
    nans = np.isnan(x) & np.isnan(y) & (any_nan or not rule.exact)
    gap[nans] = 0.0
    if rule.exact:
        return Difference(count - int(nans.sum()), int(nans.sum()) + zeros, float(gap.max()))
    magnitudes = np.abs(expected[np.isfinite(expected)].astype(np.float64))
    limit = rule.absolute + rule.relative * float(magnitudes.max(initial=0.0))
    beyond = int((gap > limit).sum())
    return Difference(beyond, count - beyond, float(gap.max()))


@dataclass(slots=True)
class Tally:
    """Elements compared so far. tolerated: those whose bits differ within their rule's tolerance."""

    elements: int = 0
    differing: int = 0
    max_abs_diff: float = 0.0
    tolerated: int = 0

    def add(self, actual: Array, expected: Array, rule: Tolerance = EXACT) -> int:
        """Compares two arrays under a rule; returns how many elements break it."""
        result = compared(actual, expected, rule)
        self.elements += actual.size
        self.differing += result.differing
        self.tolerated += result.tolerated
        self.max_abs_diff = max(self.max_abs_diff, result.largest)
        return result.differing

    def with_those_of(self, other: Tally) -> Tally:
        return Tally(
            self.elements + other.elements,
            self.differing + other.differing,
            max(self.max_abs_diff, other.max_abs_diff),
            self.tolerated + other.tolerated,
        )


def finite(value: float) -> float | None:
    """The number, or None where one of the two values that differ is infinite or not a number: JSON has neither."""
    return value if math.isfinite(value) else None


def difference(actual: Array, expected: Array) -> tuple[int, float]:
    """Elements whose bits differ, and the largest absolute difference of their values."""
    result = compared(actual, expected)
    return result.differing, result.largest

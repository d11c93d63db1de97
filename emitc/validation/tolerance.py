"""How close the values after a step have to be to those before it: every bit, except for what this module lists.

- `recognise-qdq` puts integer arithmetic instead of float arithmetic. An element may then be off by one step. The float
in front of the QuantizeLinear has to be within the float tolerance of `tolerances` of the middle between two steps.
  What operators compute that `operator_checks` judges bit for bit has no such leave.
- `REORDERING` passes may change in which order floats are summed, or whether the sum is rounded before its bias is added. The
  tolerance of `tolerances` holds for what an operator has computed that this tolerance is meant for. Bytes that are
  quantized from it may be off by a step as above.
- Where a leave is used, the steps that follow are compared with the graph after this step.
"""

from enum import Enum

import numpy as np

from emitc.ir import Array, BoundNode, DType, Graph, Tensor
from emitc.kernels import definition_of, kernel_of
from emitc.kernels.quantization.quantize import Quantize
from emitc.verify.tolerances import EXACT as EXACT
from emitc.verify.tolerances import Tolerance, compared, rules

QDQ = "recognise-qdq"
REORDERING = ("cancel-transposes", "absorb-transposes", "fold-bias")
_FLOATS = (DType.FLOAT32, DType.FLOAT64)


def differing(actual: Array, expected: Array, rule: Tolerance = EXACT) -> int:
    """Elements that break a rule. Both arrays have one dtype and shape."""
    if actual is expected or actual.tobytes() == expected.tobytes():
        return 0
    return compared(actual, expected, rule).differing


class Leave(Enum):
    """What an element may deviate by."""

    NONE = "none"
    FLOAT = "float"
    """The rule of `tolerances` for the tensor."""
    STEP = "step"
    """One step, where the float before it is that close to the middle of two."""


class Judge:
    """The leaves of one step. before: the graph before it; source_format: `tflite` or `onnx`."""

    def __init__(self, step: str, before: Graph, source_format: str) -> None:
        self._step = step
        self._before = before
        self._may = step == QDQ or step in REORDERING
        self._rules = rules(before, source_format) if self._may else {}
        self._loose: set[str] = set()

    def _is_loose(self, bound: BoundNode) -> bool:
        """Whether an operator's outputs may deviate from what they were: by its own arithmetic or by that of an operand."""
        if not self._may:
            return False
        if any(tensor is not None and tensor.name in self._loose for tensor in bound.inputs):
            return True
        if self._step == QDQ:
            # Imported here: it knows the operators of both formats, and only this step of ONNX models asks for it.
            from emitc.verify.operator_checks import kind_of

            return kind_of(bound) in ("sum", "scatter", "average", "word")
        return any(t.dtype in _FLOATS and not self._rules.get(t.name, EXACT).exact for t in bound.outputs) or (
            bound.output.dtype in _FLOATS and bound.output.name not in self._rules
        )

    def new(self, bound: BoundNode, tensor: Tensor) -> None:
        """Takes note of a tensor that the graph did not have before."""
        if self._is_loose(bound):
            self._loose.add(tensor.name)

    def leave(self, bound: BoundNode, tensor: Tensor) -> Leave:
        """What a tensor may deviate by that the graph had before."""
        if not self._is_loose(bound):
            return Leave.NONE
        if tensor.dtype in _FLOATS:
            return Leave.NONE if self._step == QDQ else Leave.FLOAT
        return Leave.STEP

    def differing(self, leave: Leave, tensor: Tensor, actual: Array, expected: Array, old: dict[str, Array]) -> int:
        """Elements that deviate by more than the leave. old: the values before the step."""
        if leave is Leave.NONE:
            return differing(actual, expected)
        if leave is Leave.FLOAT:
            return differing(actual, expected, self._rules[tensor.name])
        if differing(actual, expected) == 0:
            return 0
        low, high = self._ends(tensor.name, old)
        if low.shape != actual.shape:  # of the channels some are left out
            return differing(actual, expected)
        wide = actual.astype(np.int64)
        far = np.abs(wide - expected.astype(np.int64)) > 1
        return int((far | (wide < low.astype(np.int64)) | (wide > high.astype(np.int64))).sum())

    def _ends(self, name: str, old: dict[str, Array]) -> tuple[Array, Array]:
        """The least and the largest integers that a tensor would have had, had the floats before it used their tolerance."""
        node = self._before.producer(name)
        if node is not None and isinstance(node.op, Quantize) and self._before.tensor(node.inputs[0]).dtype in _FLOATS:
            bound, real = self._before.bind(node), np.asarray(old[node.inputs[0]], np.float64)
            rule = self._rules[node.inputs[0]]
            largest = float(np.abs(real[np.isfinite(real)]).max(initial=0.0))
            reach = rule.absolute + rule.relative * largest
            dtype = self._before.tensor(node.inputs[0]).dtype.value
            with np.errstate(all="ignore"):
                low, high = (
                    kernel_of(bound).reference(bound, [np.asarray(real + off, dtype)])[0] for off in (-reach, reach)
                )
            return low, high
        if node is not None and definition_of(node.op).moves and len(node.outputs) == 1:
            bound = self._before.bind(node)
            others = [None if t is None else old[t.name] for t in bound.inputs[1:]]
            low, high = (
                kernel_of(bound).reference(bound, [end, *others])[0] for end in self._ends(node.inputs[0], old)
            )
            return low, high
        return old[name], old[name]

"""The Python API: a compiled model with its check, proof, plan and report as methods.

import emitc
emitc.compile_model("model.tflite", target="cortex-m4").write("out")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emitc import compiler
from emitc.compiled import Compiled
from emitc.options import Options
from emitc.planner import Plan
from emitc.report.plan import plan_text

if TYPE_CHECKING:
    from emitc.evaluate.dataset import DataSet
    from emitc.evaluate.evaluation import Evaluation
    from emitc.evaluate.session import Session, TensorInfo
    from emitc.ir import Array
    from emitc.validation import Validation
    from emitc.verify.proof import Proof


@dataclass(frozen=True, slots=True, repr=False)
class Model(Compiled):
    """A compiled model. `write` is inherited."""

    _sessions: list[Session] = field(default_factory=list, compare=False)

    @property
    def inputs(self) -> tuple[TensorInfo, ...]:
        """Name, type, shape, scale and zero point of each input."""
        from emitc.evaluate.session import info_of

        return tuple(map(info_of, self.program.inputs))

    @property
    def outputs(self) -> tuple[TensorInfo, ...]:
        """Name, type, shape, scale and zero point of each output."""
        from emitc.evaluate.session import info_of

        return tuple(map(info_of, self.program.outputs))

    def run(self, *inputs: Array, quantize: bool = False, **named: Array) -> Array | tuple[Array, ...]:
        """The outputs that the generated C computes on this machine: one array, or a tuple for several outputs.

        inputs: an array for each input, in order or by name. Each has the input's own shape, or samples of that shape along
        a further first dimension, or instead of a first dimension of 1; there are as many outputs then. quantize:
        inputs and outputs are real numbers. The state of a model lasts from run to run, until `reset`. The first run
        compiles the C. Raises EmitcError for arrays that do not fit, CannotCompile without a compiler.
        """
        arrays: Sequence[Array] | Mapping[str, Array] = named or inputs
        outputs = self._session().run(arrays, quantize=quantize)
        return outputs[0] if len(outputs) == 1 else outputs

    def reset(self) -> None:
        """The model's state back to its start."""
        self._session().reset()

    def _session(self) -> Session:
        from emitc.evaluate.session import Session

        if not self._sessions:
            self._sessions.append(Session(self))
        return self._sessions[0]

    def evaluate(self, data: str | Path | DataSet, **options: Any) -> Evaluation:
        """How well the generated C does on labelled data; options: those of `emitc.evaluate.evaluation.EvaluationOptions`."""
        from emitc.evaluate.evaluation import EvaluationOptions, evaluate

        return evaluate(self, Path(data) if isinstance(data, str) else data, EvaluationOptions(**options))

    @property
    def plan(self) -> Plan:
        """The arena: offsets, lower bound, peak."""
        return self.program.plan

    def verify(self, **options: Any) -> Proof:
        """The proof on this machine.

        options: as for `emitc.verify.verification.verify` (samples, seed, vectors, layers, sanitize).
        """
        from emitc.verify import verification

        return verification.verify(self, **options)

    def check(self) -> Validation:
        """Whether the graph after every pass, and the program, give what the graph gave as it was built."""
        from emitc import validation

        return validation.validate(self)

    def report(self) -> str:
        """The arena, its proof and every buffer, as text."""
        return plan_text(self)


def compile_model(path: str | Path, options: Options | None = None, **changes: Any) -> Model:
    """Compiles the model file at `path`; keyword arguments are those of `Options` (target="cortex-m4", package="cmake").

    Raises EmitcError when the file or an option is refused, CannotCompile when there is no code for it.
    """
    compiled = compiler.compile_model(path, options, **changes)
    return Model(**{field.name: getattr(compiled, field.name) for field in fields(Compiled)})

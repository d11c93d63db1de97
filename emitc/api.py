"""The Python API: a compiled model with its check, proof, plan and report as methods.

import emitc
emitc.compile_model("model.tflite", target="cortex-m4").write("out")
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emitc import compiler
from emitc.compiled import Compiled
from emitc.options import Options
from emitc.planner import Plan
from emitc.report.plan import plan_text

if TYPE_CHECKING:
    from emitc.validation import Validation
    from emitc.verify.proof import Proof


@dataclass(frozen=True, slots=True, repr=False)
class Model(Compiled):
    """A compiled model. `write` is inherited."""

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

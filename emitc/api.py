"""The Python API: a compiled model with its check, proof, plan and report as methods.

import emitc
emitc.compile_model("model.tflite", target="cortex-m4").write("out")
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emitc import compiler
from emitc.compiled import Compiled
from emitc.errors import EmitcError, Where
from emitc.explore.cost import Cost
from emitc.explore.cost import cost as cost_of_file
from emitc.options import Options
from emitc.planner import Plan
from emitc.records import dataclass, field, fields, replace
from emitc.report.plan import plan_text

if TYPE_CHECKING:
    from emitc.boards.measurement import Measurement
    from emitc.evaluate.dataset import DataSet
    from emitc.evaluate.evaluation import Evaluation
    from emitc.evaluate.quantization import Quantization
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
        """How well the generated C does on labelled data; options: those of
        `emitc.evaluate.evaluation.EvaluationOptions`."""
        from emitc.evaluate.evaluation import EvaluationOptions, evaluate

        _check_names("evaluate", options, tuple(option.name for option in fields(EvaluationOptions)))
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

    def measure(
        self, board: str, *, layers: bool = False, samples: int = 3, seed: int = 0, reference: str = "auto"
    ) -> Measurement:
        """The proof and measurement on an emulated board, as `emitc run` makes them, of the model as it was compiled.

        layers: instructions of each layer too. The code is for the target of the model: `emitc run` takes that of the
        board. Raises CannotCompile where a tool is missing or the model does not fit, EmitcError for a board that is
        not emulated.
        """
        from emitc.boards.verify import on_emulator

        package = compiler.recompiled(self, package="platformio")
        return on_emulator(package, board, reference=reference, samples=samples, seed=seed, layers=layers, workdir=None)

    def cost(self) -> Cost:
        """Estimates of instructions, cycles and flash, as `emitc.cost` has them."""
        from emitc.explore.cost import cost_of

        return cost_of(self.partition, self.program, self.options.optimize)

    def _repr_html_(self) -> str:
        from emitc.boards.measurement import html_table

        program = self.program
        ports = [
            (what, port.tensor, port.text, "" if port.scale is None else f"{port.scale:g}", port.zero_point)
            for what, some in (("input", program.inputs), ("output", program.outputs))
            for port in some
        ]
        return html_table(repr(self)[1:-1], ("", "name", "type", "scale", "zero point"), ports)

    def check(self) -> Validation:
        """Whether the graph after every pass, and the program, give what the graph gave as it was built."""
        from emitc import validation

        return validation.validate(self)

    def report(
        self, output: str | Path | None = None, *, board: str = "", samples: int = 3, force: bool = False
    ) -> str:
        """The arena, its proof and every buffer, as text; with an output, everything that is known as a page of HTML.

        output: the page's file; its path is returned. board: whose memories the page shows; an emulated one with the
        model's target is booted and measured. samples: inputs of the proof, 0 for none. force: replace a file that emitc
        did not write. Raises EmitcError for a place that cannot be written and a board that does not exist.
        """
        if output is None:
            return plan_text(self)
        from emitc.emit.output_file import OutputFile
        from emitc.report.page import PAGE_MARK
        from emitc.report.page.compiled import compiled_page
        from emitc.target import load_board

        described = load_board(board) if board else None
        file = OutputFile(Path(output), "output", PAGE_MARK.encode("ascii"), force=force)
        file.check()
        booted = described is not None and described.kind == "qemu"
        compiled = compiler.recompiled(self, package="platformio") if booted else self
        file.write(compiled_page(compiled, described, samples).encode("utf-8"))
        return str(output)


def compile_model(path: str | Path, options: Options | None = None, **changes: Any) -> Model:
    """Compiles the model file at `path`; keyword arguments are those of `Options` (target="cortex-m4",
    package="cmake").

    Raises EmitcError when the file or an option is refused, CannotCompile when there is no code for it.
    """
    _check_names("compile_model", changes, tuple(option.name for option in fields(Options)))
    compiled = compiler.compile_model(path, options, **changes)
    return Model(**{field.name: getattr(compiled, field.name) for field in fields(Compiled)})


def cost(
    path: str | Path, target: str = "", options: Options | None = None, *, link: bool = False, **changes: Any
) -> Cost:
    """What the model file at `path` costs on a target, without a C compiler; keyword arguments are those of `Options`.

    The arena is exact. Flash, instructions and cycles are estimates from counts of emitc's kernels. link: the C is compiled and
    linked with the target's compiler, so that flash is exact too. Raises what `compile_model` raises, and with link
    CannotCompile where the compiler is missing.
    """
    _check_names("cost", changes, (*(option.name for option in fields(Options)), "link"))
    if not link:
        return cost_of_file(path, target, options, **changes)
    from emitc.boards.target_build import linked_cost

    chosen = replace(options or Options(), **changes)
    return linked_cost(path, replace(chosen, target=target) if target else chosen)


def quantize(
    model: str | Path,
    calibration: str | Path,
    output: str | Path | None = None,
    *,
    test: str | Path | None = None,
    force: bool = False,
    **options: Any,
) -> Quantization:
    """Quantizes the float ONNX model `model` to int8, as `emitc quantize` does, and says what that has cost.

    calibration: an .npz file of sample inputs. output: the file, MODEL_int8.onnx where none is given. test: labelled
    samples, for the accuracy of both models. force: replace a file that emitc did not write. options: `method`,
    `exclude` and `int16` (names of operators), `remedies`, `auto_remedies`, `auto_mixed`, `max_drop`. Raises EmitcError for
    files and options that do not fit.
    """
    from emitc.calibrate.settings import QuantizeSettings
    from emitc.evaluate.quantization import QuantizeOptions, quantized

    lists, searches = ("exclude", "int16", "remedies"), ("auto_mixed", "auto_remedies")
    _check_names("quantize", options, ("method", *lists, *searches, "max_drop"))
    names = (tuple(options.get(key, ())) for key in lists)
    settings = QuantizeSettings(options.get("method", "minmax"), *names)
    wanted = {key: options.get(key, False) for key in searches}
    chosen = QuantizeOptions(settings, max_drop=options.get("max_drop"), force=force, **wanted)
    path = Path(model)
    target = Path(output) if output is not None else path.with_name(f"{path.stem}_int8.onnx")
    return quantized(path, Path(calibration), target, Path(test) if test is not None else None, chosen)


def _check_names(function: str, keywords: Mapping[str, Any], known: Sequence[str]) -> None:
    """Refuses a keyword argument that does not exist, and names the one that is spelt nearly alike."""
    for name in keywords:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else "choose one of these"
            why = f"it takes {', '.join(known)}"
            raise EmitcError(f"{function} has no option {name}", Where(option=name), why, hint)

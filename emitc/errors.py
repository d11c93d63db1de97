"""What emitc says when it refuses: what, where, why and a hint, all four mandatory.

Exit codes: 2 when the input or an option is refused (class `EmitcError`), 1 when both are valid but cannot be compiled
or proven (class `CannotCompile`). Anything else that escapes is a bug in emitc and shows as a traceback.

Which of the two: `CannotCompile` is a statement about emitc. It says that the file, exactly as it is, has a meaning
that the format defines, and that emitc has no code for it. So it needs a file that agrees with itself. The operator is
in the schema, in a version that exists, with the options table that the schema pairs with it. An engine computes its
settings. Each tensor has a type that the operator takes in some version, and the size that its shape asks for. A file
that breaks one of these is damaged or forged, whatever else emitc lacks, and is an `EmitcError`. Files above the limits
that protect emitc itself are too, and models without an option that they need (an open dimension without `--shape`). An
operator code that a damaged file got by accident is therefore refused by what surrounds it. Where one model gives both,
the exit code is 2. A check that could find either looks for what is wrong first, for what is missing last.
"""

from __future__ import annotations

import difflib
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum

from emitc.records import dataclass, replace

_SHOWN = 200
_REPORTED = 100
"""Refusals of one model that are printed."""
_ALIKE = 5
"""Of these, refusals for one reason with one hint; the operators and tensors of the others are like theirs."""
EXPORT_AGAIN = "export the model again"
"""The hint for a file that is wrong where nothing more is known."""
DAMAGED = "the file is damaged: export the model again"
"""The hint for a file that contradicts itself."""


def shown(text: str, limit: int = _SHOWN) -> str:
    """`text` as one printable ASCII line of at most `limit` characters, so that a hostile name cannot forge a message."""
    plain = "".join(c if " " <= c <= "~" else f"\\u{ord(c):04x}" for c in text)
    return plain if len(plain) <= limit else plain[: limit - 3] + "..."


def install_hint(extra: str) -> str:
    """How to install an extra of emitc. It is on no package index, so the command names a checkout."""
    return f'in a checkout of emitc: pip install -e ".[{extra}]"'


def first_name(text: str) -> str:
    """A tensor's name, maybe in quotes and after other words, without the further ones that converters join to it by semicolons.

    >>> first_name('int8[1,8] "relu/Relu;conv/Conv2D;conv/bias", from op 3')
    'int8[1,8] "relu/Relu;...", from op 3'
    """
    return re.sub(r'(?<=[^\s";]);[^"]+', ";...", text)


class _NumberedSentence(Enum):
    """Members whose value is a number and a sentence."""

    _value_: tuple[str, str]

    @property
    def number(self) -> str:
        """Such as `E0302`."""
        return self.value[0]

    @property
    def meaning(self) -> str:
        return self.value[1]


class Code(_NumberedSentence):
    """What an error is about, for tools: `E0302`. The first two digits are its class. A number is never used for anything else.

    The value is the number and the sentence of docs/errors.md.
    """

    COMMAND = "E0101", "The command line is wrong."
    OPTION = "E0102", "An option, or its value, is unknown, is missing or contradicts others."
    UNREADABLE = "E0103", "A file or folder cannot be read."
    UNWRITABLE = "E0104", "A result cannot be written, or would replace what emitc did not write."
    NO_TOOL = "E0105", "A package, compiler or emulator is missing or fails."
    PLUGIN = "E0106", "A plugin is wrong, or its operator is."
    NO_MODEL = "E0201", "A file is no model that emitc reads."
    INVALID_TFLITE = "E0202", "A TFLite file contradicts itself or its schema."
    INVALID_ONNX = "E0203", "An ONNX file contradicts itself or the specification."
    INVALID_OPERATOR = "E0204", "An operator has attributes, shapes or tensors that its specification excludes."
    TOO_LARGE = "E0205", "A model is beyond the limits that protect emitc."
    UNKNOWN_OPERATOR = "E0301", "There is no code for an operator."
    OPERATOR_USE = "E0302", "There is no code for an operator with these attributes, shapes or operands."
    TYPE = "E0401", "There is no code for an operator with these element types."
    QUANTIZATION = "E0402", "Scales or zero points are missing, or are not those that the operator takes."
    SHAPE = "E0501", "A dimension is open, or a shape depends on values."
    CONTROL_FLOW = "E0601", "There is no code for this branch, loop, function or subgraph."
    STATE = "E0602", "There is no code for this state, or its initial value."
    ARENA = "E0701", "The arena does not fit its budget or regions."
    FLASH = "E0702", "The constants do not fit their budget."
    BOARD_MEMORY = "E0703", "The model does not fit the memories of the board."
    TARGET = "E0801", "A target or board does not exist, or its description is wrong."
    BOARD = "E0802", "A board cannot do what it is asked to."
    BOARD_RUN = "E0803", "A build for a board failed, or a run there did not end as it must."
    BACKEND = "E0901", "A backend, accelerator or library cannot run this, or is not as expected."
    PARTITION = "E0902", "The partition is not the expected one, or the rest may not run on the core."
    NUMERICAL = "E1001", "Scales are out of proportion, or a sum can leave its type."
    PROOF = "E1002", "The proof cannot be made: no engine runs the model, or the cases do not fit."
    PASS = "E1003", "A pass changes what the model computes."
    DATA = "E1101", "Samples, labels or a calibration do not fit the model."
    BUDGET = "E1102", "A budget or a difference cannot be checked."


class WarningCode(_NumberedSentence):
    """What a warning is about, for tools: `W1101`. Classes, numbers and values are as those of `Code`."""

    UNCOUNTED = "W0901", "An estimate has much of its work in kernels that no board has counted."
    POOR_OUTPUT = "W1001", "An output has much quantization noise."
    FEW_AGREE = "W1002", "The quantized model often has its largest output at another place than the float model."
    FEW_SAMPLES = "W1101", "A calibration has few samples."
    CONSTANT_SAMPLES = "W1102", "Samples of a calibration have one value throughout, and show no range."
    EQUAL_SAMPLES = "W1103", "Samples of a calibration are equal."
    UNUSED_RANGE = "W1104", "Samples of a test use a small part of the range that the calibration has set."
    OUTSIDE_RANGE = "W1105", "Values of a test are outside of the range of the model's input."
    RECORDS = "W1106", "Records of a profile are lost or make no sense."


class NoteCode(_NumberedSentence):
    """What a note is about, for tools: `N0501`. Classes, numbers and values are as those of `Code`."""

    LEFT_OUT = "N0301", "A fused activation is left out, as the engine leaves it out."
    STORAGE = "N0401", "Values of a type that C lacks are held in another one."
    OTHER_SCALE = "N0402", "The engine computes with another scale than the one that a tensor states."
    BATCH = "N0501", "An open batch dimension is 1."
    SUBGRAPH = "N0601", "A subgraph that no operator runs is not compiled."
    REPEATED = "N0701", "An operand is repeated in the arena in front of an operator."
    SMALLER_ARENA = "N0702", "A much smaller arena costs few cycles more."
    FASTER_TARGET = "N0801", "Kernels of one core are faster than portable C."
    TOOL = "N0901", "A backend has used a tool, or the file is made by it."
    SLOW_LAYER = "N0902", "Layers that take much of the time have no fast kernel."
    INTEGERS = "N1001", "Float operators between quantized tensors became integer operators."
    FLOATS = "N1002", "A float operator between quantized tensors stays in float."
    BIAS = "N1003", "A bias is rounded, or weights are finer, so that an operator can be one of integers."
    UNCHECKED = "N1004", "The graphs after the passes were not compared with the graph as it was built."
    NO_ENGINE = "N1005", "No engine runs the model as a whole."
    DISPUTED = "N1006", "Engines differ from each other."
    UNJUDGED = "N1007", "The values of some operators are not compared."
    ROUNDING = "N1008", "Outputs may differ from the engine's by the rounding of some operators."
    LONG_STEP = "N1101", "A part of the work cannot be divided into steps as short as asked for."


class Note(str):
    """What a reader should know of a result that is as it was asked for, as text. code: what it is about."""

    __slots__ = ("code",)
    code: NoteCode

    def __new__(cls, code: NoteCode, text: str) -> Note:
        note = super().__new__(cls, text)
        note.code = code
        return note

    def __getnewargs__(self) -> tuple[NoteCode, str]:  # type: ignore[override]
        """For copies."""
        return self.code, str(self)

    def of(self, place: str) -> Note:
        """The same note, said of a place."""
        return Note(self.code, f"{place}: {self}")

    def as_json(self) -> dict[str, str]:
        """For `notes[]` under --json."""
        return {"code": self.code.number, "what": str(self)}

    def line(self) -> str:
        """For a person, with the code."""
        return f"{shown(self, 1000)} ({self.code.number})"


@dataclass(frozen=True, slots=True)
class Warned:
    """A cause for doubt in a result that is not refused."""

    code: WarningCode
    what: str

    def as_json(self) -> dict[str, str]:
        """For `warnings[]` under --json."""
        return {"code": self.code.number, "what": self.what}

    def __str__(self) -> str:
        return f"{self.what} ({self.code.number})"


CLASSES = {
    "E01": "command line and machine",
    "E02": "invalid model",
    "E03": "unsupported operator",
    "E04": "type",
    "E05": "dynamic shape",
    "E06": "control flow and state",
    "E07": "allocation",
    "E08": "target and board",
    "E09": "backend",
    "E10": "numerical",
    "E11": "data and limits",
}
"""Classes of codes by their first digits."""

_OF_MODULE: dict[str, tuple[Code, Code]] = {
    "emitc.api": (Code.OPTION, Code.OPTION),
    "emitc.backends": (Code.BACKEND, Code.BACKEND),
    "emitc.backends.partition": (Code.PARTITION, Code.PARTITION),
    "emitc.backends.portable": (Code.OPTION, Code.OPTION),
    "emitc.boards": (Code.BOARD, Code.BOARD_RUN),
    "emitc.boards.build": (Code.NO_TOOL, Code.NO_TOOL),
    "emitc.boards.stack": (Code.NO_TOOL, Code.NO_TOOL),
    "emitc.boards.target_build": (Code.NO_TOOL, Code.NO_TOOL),
    "emitc.calibrate": (Code.DATA, Code.DATA),
    "emitc.calibrate.packages": (Code.NO_TOOL, Code.NO_TOOL),
    "emitc.cli": (Code.OPTION, Code.OPTION),
    "emitc.emit": (Code.UNWRITABLE, Code.UNWRITABLE),
    "emitc.emit.package_kinds": (Code.OPTION, Code.OPTION),
    "emitc.emit.render": (Code.PLUGIN, Code.PLUGIN),
    "emitc.emit.self_test": (Code.OPTION, Code.OPTION),
    "emitc.ethosu": (Code.BACKEND, Code.BACKEND),
    "emitc.evaluate": (Code.DATA, Code.DATA),
    "emitc.explore": (Code.OPTION, Code.OPTION),
    "emitc.explore.budget": (Code.BUDGET, Code.BUDGET),
    "emitc.explore.difference": (Code.BUDGET, Code.BUDGET),
    "emitc.explore.weights_exchange": (Code.OPTION, Code.OPTION),
    "emitc.frontends": (Code.INVALID_OPERATOR, Code.OPERATOR_USE),
    "emitc.frontends.build": (Code.INVALID_OPERATOR, Code.UNKNOWN_OPERATOR),
    "emitc.frontends.file_kinds": (Code.NO_MODEL, Code.NO_MODEL),
    "emitc.frontends.labels": (Code.DATA, Code.DATA),
    "emitc.frontends.limits": (Code.TOO_LARGE, Code.TOO_LARGE),
    "emitc.frontends.node_report": (Code.UNKNOWN_OPERATOR, Code.UNKNOWN_OPERATOR),
    "emitc.frontends.onnx": (Code.INVALID_ONNX, Code.OPERATOR_USE),
    "emitc.frontends.onnx.custom": (Code.UNKNOWN_OPERATOR, Code.UNKNOWN_OPERATOR),
    "emitc.frontends.onnx.external_data": (Code.UNREADABLE, Code.UNREADABLE),
    "emitc.frontends.onnx.quantization": (Code.QUANTIZATION, Code.QUANTIZATION),
    "emitc.frontends.onnx.subgraphs": (Code.CONTROL_FLOW, Code.CONTROL_FLOW),
    "emitc.frontends.read": (Code.UNREADABLE, Code.UNREADABLE),
    "emitc.frontends.state_initialisers": (Code.STATE, Code.STATE),
    "emitc.frontends.subgraphs": (Code.CONTROL_FLOW, Code.CONTROL_FLOW),
    "emitc.frontends.tflite": (Code.INVALID_TFLITE, Code.UNKNOWN_OPERATOR),
    "emitc.frontends.tflite.state": (Code.STATE, Code.STATE),
    "emitc.kernels": (Code.INVALID_OPERATOR, Code.OPERATOR_USE),
    "emitc.kernels.control_flow": (Code.CONTROL_FLOW, Code.CONTROL_FLOW),
    "emitc.listing": (Code.OPTION, Code.OPTION),
    "emitc.lower": (Code.OPTION, Code.ARENA),
    "emitc.options": (Code.OPTION, Code.OPTION),
    "emitc.passes": (Code.OPTION, Code.OPERATOR_USE),
    "emitc.plugins": (Code.PLUGIN, Code.PLUGIN),
    "emitc.report": (Code.OPTION, Code.OPTION),
    "emitc.schedule": (Code.OPTION, Code.ARENA),
    "emitc.source": (Code.INVALID_OPERATOR, Code.OPERATOR_USE),
    "emitc.sweep": (Code.OPTION, Code.OPTION),
    "emitc.sweep.cluster": (Code.NO_TOOL, Code.NO_TOOL),
    "emitc.target": (Code.TARGET, Code.TARGET),
    "emitc.toml_table": (Code.TARGET, Code.TARGET),
    "emitc.validation": (Code.PASS, Code.PASS),
    "emitc.verify": (Code.PROOF, Code.PROOF),
    "emitc.verify.self_test": (Code.OPTION, Code.OPTION),
    "emitc.verify.build": (Code.NO_TOOL, Code.NO_TOOL),
}
"""Codes of a module's errors, or of those of the folder that it is in: refused (exit code 2), and without code (exit code 1)."""
_HELPERS = (
    *("emitc.errors", "emitc.source", "emitc.toml_table"),
    *("emitc.kernels.contract", "emitc.kernels.shared", "emitc.kernels.mac"),
)
"""Modules whose functions raise for others, unless they say the code themselves."""


def code_of_module(module: str, exit_code: int) -> Code | None:
    """The code of an error of that exit code which a module raises; None where the table has no line for it."""
    while module:
        if module in _OF_MODULE:
            return _OF_MODULE[module][exit_code == 1]
        module = module.rpartition(".")[0]
    return None


def _raising_module() -> str:
    """The module that makes an error: the first one among the callers that is no helper."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__", "") in _HELPERS:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__", ""))


@dataclass(frozen=True, slots=True)
class Where:
    """The place an error speaks of; every part is optional, at least one is set.

    model: file name. op: `op 3 CONV_2D "stem/conv"`. tensor: `tensor "stem/relu" int8[1,48,48,16]`. option: `--target`.
    """

    model: str = ""
    op: str = ""
    tensor: str = ""
    option: str = ""

    def __str__(self) -> str:
        return ", ".join(shown(part) for part in (self.model, self.op, self.tensor, self.option) if part)


class EmitcError(Exception):
    """The input or an option is refused. Without a code it gets that of the module which raises it."""

    exit_code = 2

    def __init__(self, what: str, where: Where, why: str, hint: str, code: Code | None = None) -> None:
        super().__init__(what, where, why, hint)
        # Errors of a user's own program, which has no line in the table, are about an option of a call.
        self.code = code or code_of_module(_raising_module(), self.exit_code) or Code.OPTION
        self.what = what
        self.where = where
        self.why = why
        self.hint = hint

    def parts(self) -> tuple[EmitcError, ...]:
        """The refusals that this one stands for: itself alone, unless it is `Refusals`."""
        return (self,)

    def at(self, where: Where | None = None, why: str = "", hint: str = "") -> EmitcError:
        """The same error with another place, reason or hint, where one is given."""
        return type(self)(self.what, where or self.where, why or self.why, hint or self.hint, self.code)

    def message(self) -> str:
        """The text with the code, as the command line prints it."""
        return f"{self}\n  code:  {self.code.number}"

    def __str__(self) -> str:
        return (
            f"error: {shown(self.what, 2000)}\n  at:    {self.where}\n"
            f"  why:   {shown(self.why, 2000)}\n  try:   {shown(self.hint, 2000)}"
        )


class CannotCompile(EmitcError):
    """The model and the options are valid, but there is no code for them, or the proof failed."""

    exit_code = 1


class Refusals(EmitcError):
    """Several refusals of one model, reported in one run; the exit code is that of the worst one (2 before 1)."""

    def __init__(self, errors: tuple[EmitcError, ...]) -> None:
        first = errors[0]
        super().__init__(first.what, first.where, first.why, first.hint, first.code)
        self.errors = errors
        self.exit_code = max(error.exit_code for error in errors)

    def parts(self) -> tuple[EmitcError, ...]:
        return self.errors

    def __str__(self) -> str:
        return self._text(str)

    def message(self) -> str:
        return self._text(EmitcError.message)

    def _text(self, shown_as: Callable[[EmitcError], str]) -> str:
        counts: Counter[tuple[str, str]] = Counter()
        texts: list[str] = []
        for error in self.errors:
            counts[error.why, error.hint] += 1
            if counts[error.why, error.hint] <= _ALIKE and len(texts) < _REPORTED:
                texts.append(shown_as(error))
        if len(texts) < len(self.errors):
            texts.append(f"and {len(self.errors) - len(texts)} more errors of this model; `emitc inspect` shows them")
        return "\n".join(texts)


def unknown_choice(option: str, value: str, choices: Sequence[str], why: str = "") -> EmitcError:
    """For a value that is none of the choices; the one that is spelt nearly alike is the hint. why: instead of all of them."""
    near = difflib.get_close_matches(value.lower(), choices, n=1)
    return EmitcError(
        f"{option} {value} is unknown",
        Where(option=option),
        why or f"known: {', '.join(choices)}",
        f"did you mean {near[0]}?" if near else "choose one of these",
        Code.OPTION,
    )


@contextmanager
def writing(what: str, option: str) -> Iterator[None]:
    """Raises EmitcError for what the operating system has against it. what: a whole sentence; option: that named the place."""
    try:
        yield
    except OSError as error:
        first = error.args[0][0][2] if isinstance(error, shutil.Error) else ""
        why = first or error.strerror or str(error)
        hint = "check the path, its rights and the free space"
        raise EmitcError(what, Where(option=option), str(why), hint, Code.UNWRITABLE) from error


def with_model(error: EmitcError, model: str) -> EmitcError:
    """The same error with the model's file name in its place (frontends and kernels do not know it)."""
    if isinstance(error, Refusals):
        return Refusals(tuple(with_model(part, model) for part in error.errors))
    return error.at(replace(error.where, model=error.where.model or model))


class RefusalKind(Enum):
    """Which sort of reason keeps a kernel or a backend from running a node."""

    UNSUPPORTED = "unsupported"
    """It cannot compute this node."""
    SCRATCH = "scratch"
    """It needs more scratch than the node may have."""
    FLASH = "flash"
    """Its constants take more flash than the node may have."""
    CODE_SIZE = "code size"
    """`--optimize size` does without it."""
    COST = "cost"
    """It is estimated to need more cycles than the kernel that runs the node."""


class Reason(str):
    """Why a kernel or a backend does not run a node, as text.

    hint: what would make it run the node, "" where nothing would. kind: which sort of reason the text states.
    """

    __slots__ = ("hint", "kind")
    hint: str
    kind: RefusalKind

    def __new__(cls, text: str, hint: str = "", kind: RefusalKind = RefusalKind.UNSUPPORTED) -> Reason:
        reason = super().__new__(cls, text)
        reason.hint, reason.kind = hint, kind
        return reason

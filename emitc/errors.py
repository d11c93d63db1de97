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
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum

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
    """The input or an option is refused."""

    exit_code = 2

    def __init__(self, what: str, where: Where, why: str, hint: str) -> None:
        super().__init__(what, where, why, hint)
        self.what = what
        self.where = where
        self.why = why
        self.hint = hint

    def parts(self) -> tuple[EmitcError, ...]:
        """The refusals that this one stands for: itself alone, unless it is `Refusals`."""
        return (self,)

    def at(self, where: Where | None = None, why: str = "", hint: str = "") -> EmitcError:
        """The same error with another place, reason or hint, where one is given."""
        return type(self)(self.what, where or self.where, why or self.why, hint or self.hint)

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
        super().__init__(first.what, first.where, first.why, first.hint)
        self.errors = errors
        self.exit_code = max(error.exit_code for error in errors)

    def parts(self) -> tuple[EmitcError, ...]:
        return self.errors

    def __str__(self) -> str:
        counts: Counter[tuple[str, str]] = Counter()
        texts: list[str] = []
        for error in self.errors:
            counts[error.why, error.hint] += 1
            if counts[error.why, error.hint] <= _ALIKE and len(texts) < _REPORTED:
                texts.append(str(error))
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
    )


@contextmanager
def writing(what: str, option: str) -> Iterator[None]:
    """Raises EmitcError for what the operating system has against it. what: a whole sentence; option: that named the place."""
    try:
        yield
    except OSError as error:
        why = (
            error.args[0][0][2] if isinstance(error, shutil.Error) else error.strerror or str(error)
        )  # the first of its files
        raise EmitcError(
            what, Where(option=option), str(why), "check the path, its rights and the free space"
        ) from error


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
        """The text, with its hint and kind."""
        reason = super().__new__(cls, text)
        reason.hint, reason.kind = hint, kind
        return reason

"""Several models in one memory: one arena that they take turns in, or one beside another, and a header that says which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from emitc.emit.names import is_model_name
from emitc.emit.render import environment
from emitc.errors import EmitcError, Where
from emitc.program import Program


@dataclass(frozen=True, slots=True)
class Share:
    """One model's part, in bytes from the start of the common arena and of the common state block."""

    name: str
    upper: str
    model_file: str
    sha256: str
    arena_bytes: int
    arena_offset: int
    state_bytes: int
    state_offset: int


@dataclass(frozen=True, slots=True)
class Together:
    """Models in one arena. concurrent: they may run at the same time, so that every one has its own bytes.

    States are always apart: they have to outlive the runs of the others. alignment: of both blocks, in bytes.
    """

    name: str
    concurrent: bool
    arena_bytes: int
    state_bytes: int
    alignment: int
    version: str
    shares: tuple[Share, ...]

    @property
    def upper(self) -> str:
        """The prefix of the macros."""
        return f"{self.name.upper()}_TOGETHER"

    @property
    def header_name(self) -> str:
        """The file's name."""
        return f"{self.name}_together.h"

    def to_json(self) -> dict[str, Any]:
        """What `emitc plan --together --json` prints."""
        return {
            "name": self.name,
            "concurrent": self.concurrent,
            "arena_bytes": self.arena_bytes,
            "separate_bytes": sum(share.arena_bytes for share in self.shares),
            "state_bytes": self.state_bytes,
            "alignment": self.alignment,
            "models": [
                {
                    "name": share.name,
                    "file": share.model_file,
                    "arena_bytes": share.arena_bytes,
                    "arena_offset": share.arena_offset,
                    "state_bytes": share.state_bytes,
                    "state_offset": share.state_offset,
                }
                for share in self.shares
            ],
        }


def _round_up(value: int, alignment: int) -> int:
    return -(-value // alignment) * alignment


def together(programs: Sequence[Program], *, concurrent: bool, name: str = "") -> Together:
    """The common memory of `programs`; `name` is the header's, by default made of those of the models.

    Raises EmitcError for fewer than two models, two of one name, and a name that is none.
    """
    names = [program.name for program in programs]
    if len(programs) < 2:
        raise EmitcError(
            "there is one model only",
            Where(option="--together"),
            "one model has an arena of its own",
            "name two models or more",
        )
    twice = next((n for n in names if names.count(n) > 1), None)
    if twice is not None:
        raise EmitcError(
            f"two models are named {twice}",
            Where(option="--together"),
            "a firmware cannot link two models of one C name",
            "rename one of the files: the C name is made of the file's",
        )
    divided = next((program for program in programs if program.regions), None)
    if divided is not None:
        raise EmitcError(
            f"{divided.name} has an arena in each of several regions",
            Where(option="--together"),
            "models share one arena in one region",
            "leave --regions out",
        )
    name = name or "_".join(names)
    if not is_model_name(f"{name}_together"):
        raise EmitcError(
            f"{name} is no name for the header",
            Where(option="--name"),
            "with _together it must be a C identifier of at most 63 characters",
            "use letters, digits and single underscores, and --name for a shorter one",
        )
    alignment = max(program.plan.alignment for program in programs)
    shares: list[Share] = []
    arena_end = state_end = 0
    for program in programs:
        arena_offset = _round_up(arena_end, alignment) if concurrent else 0
        state_offset = _round_up(state_end, alignment)
        shares.append(
            Share(
                program.name,
                program.upper,
                program.origin.model_file,
                program.origin.sha256,
                program.plan.arena_bytes,
                arena_offset,
                program.state_bytes,
                state_offset,
            )
        )
        arena_end = max(arena_end, arena_offset + program.plan.arena_bytes)
        state_end = max(state_end, state_offset + program.state_bytes)
    return Together(
        name,
        concurrent,
        _round_up(arena_end, alignment),
        _round_up(state_end, alignment),
        alignment,
        programs[0].origin.version,
        tuple(shares),
    )


def together_header(memory: Together) -> str:
    """The header's text; the models' own headers lie in the include path when it is compiled."""
    return environment().get_template("together.h.j2").render(t=memory)

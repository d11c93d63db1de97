"""Which instructions beyond those of every core the kernels of a program use: the source warns where a build lacks them."""

from __future__ import annotations

from dataclasses import dataclass

from emitc.program import Program


@dataclass(frozen=True, slots=True)
class Extension:
    """Instructions that kernels of a program use. name: for messages. macro: of the runtime, 1 where a build has them."""

    name: str
    macro: str


EXTENSIONS = {
    "emitc_dsp": Extension("DSP extension", "EMITC_DSP"),
    "emitc_fpu": Extension("float unit", "EMITC_FLOAT_HARDWARE"),
    "emitc_mve": Extension("vector extension (MVE)", "EMITC_MVE"),
}
"""By the start of the names of the runtime's headers."""


def extensions(program: Program) -> tuple[Extension, ...]:
    """The instructions that its kernels use, and that plain C replaces on cores without them."""
    starts = [start for start in EXTENSIONS if any(header.startswith(start) for header in program.headers)]
    return tuple(EXTENSIONS[start] for start in starts)

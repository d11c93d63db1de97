"""Which instructions beyond those of every core the kernels of a program use: the source warns where a build lacks them."""

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
    "emitc_rvv": Extension("vector extension of RISC-V", "EMITC_RVV"),
    "emitc_xpulp": Extension("CORE-V extension (Xpulp)", "EMITC_XPULP"),
}
"""By the start of the names of the runtime's headers."""


def extensions(program: Program) -> tuple[Extension, ...]:
    """The instructions that its kernels use, and that plain C replaces on cores without them."""
    # Kernels of every kind include emitc_fpu.h for its plain C: only those for float units ask for one.
    names = {f"emitc_{step.variant}" for step in program.every_step}
    names |= {header for header in program.headers if not header.startswith("emitc_fpu")}
    starts = [start for start in EXTENSIONS if any(name.startswith(start) for name in names)]
    return tuple(EXTENSIONS[start] for start in starts)

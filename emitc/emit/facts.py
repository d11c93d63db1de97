"""What the printed files say of a program in addition to its values.

That is which instructions beyond those of every core its kernels use, the limits of quantized types, and what the ends of the
names of kernels mean.
"""

import re
from types import MappingProxyType
from typing import Any

from emitc.program import Port, Program
from emitc.program.members import members
from emitc.records import dataclass


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


_ENDS = {"int8": (-128, 127), "uint8": (0, 255), "int16": (-(2**15), 2**15 - 1), "uint16": (0, 2**16 - 1)}


@dataclass(frozen=True, slots=True)
class Limits:
    """Ends of a quantized type: the elements low and high, and their quotients of real value and scale."""

    low: int
    high: int
    lowest: float
    highest: float


def limits(port: Port) -> Limits | None:
    """Of a quantized tensor of 8 or 16 bits with one scale; None for every other one."""
    ends = _ENDS.get(port.dtype)
    if ends is None or port.zero_point is None:
        return None
    low, high = ends
    return Limits(low, high, float(low - port.zero_point), float(high - port.zero_point))


def halves_to_even(program: Program) -> bool:
    """Whether the model's format rounds halves to the even neighbour when it quantizes: ONNX; TFLite away from zero."""
    return program.origin.format == "onnx"


_WORDS = MappingProxyType({
    "up": "halves are rounded up, which is enough where the output ends at its zero point",
    "away": "halves are rounded away from zero",
    "any": "sums may be shifted in both directions",
    "q31": "multipliers of 32 bits, for int16 values",
    "exact": "the factors' quotients are exact",
    "small": "sums have at most 20 bits",
    "shared": "all channels have one factor",
    "clamped": "outputs have limits in addition to those of their type",
    "bounded": "outputs have limits",
    "rectified": "outputs are 0 or more",
    "full": "outputs have the limits of their type alone",
    "uneven": "channels are left over from the kernel's groups",
    "even": "an even number of filters for each channel",
    "one": "one pixel at a time, or one filter for each channel",
    "two": "two pixels at a time",
    "flat": "no operand is repeated",
    "wide": "sums have 64 bits",
    "limited": "outputs have limits",
    "late": "the bias is added to the sum at its end",
    "interleaved": "filters lie value by value",
    "zero": "all weights have one zero point",
    "wz": "weights have zero points",
    "joined": "weights of two channels are one number of 16 bits",
    "lean": "fewer pixels at a time, in less working memory",
    "few": "fewer channels than the kernel takes at a time",
    "fours": "the products of four weights are added in one word",
    "parts": "parts of weights are added one by one",
    "flash": "weights were transformed by the compiler",
    "scratch": "weights are transformed in working memory",
    "strided": "windows lie farther from each other than one row or column",
    "w4": "weights have 4 bits",
    "many": "more boxes than 16 bits count",
    "pull": "elements are moved against the order of the output",
})  # fmt: skip
_PATTERNS = (
    (re.compile(r"[wxy]16"), "int16 weights (w), inputs (x) or outputs (y)"),
    (
        re.compile(r"[sfu]\d+|u?int\d+|float32|bool"),
        "types of values, s for signed and u for unsigned; f32 of factors too",
    ),
    (re.compile(r"\d+x\d+x\d+"), "pixels at a time, values of a window's row, values from one pixel to the next"),
    (re.compile(r"\d+x\d+"), "the window"),
    (re.compile(r"\d+px"), "pixels at a time"),
    (re.compile(r"step\d+"), "columns of the input from one pixel's window to the next"),
    (re.compile(r"\d+"), "channels at a time"),
)


def meaning(word: str) -> str:
    """What a word of a suffix says; "" for a word that explains itself."""
    return _WORDS.get(word, next((text for pattern, text in _PATTERNS if pattern.fullmatch(word)), ""))


def suffixes(program: Program) -> tuple[str, ...]:
    """A line for each meaning of the words at the ends of the program's kernel names."""
    words = {word for step in program.kernels for word in step.spec.suffix.split("_") if word}
    by_meaning: dict[str, list[str]] = {}
    for word in sorted(words):
        by_meaning.setdefault(meaning(word), []).append(f"_{word}")
    return tuple(f"{', '.join(ends)}: {text}" for text, ends in by_meaning.items() if text)


@dataclass(frozen=True, slots=True)
class StackBound:
    """The most bytes that the frames of any public function, and of all that it calls, take at once.

    library_bytes: those of them for functions of the C library and the compiler's. compiler: its name and version. flags: what
    it was called with. outside: functions that are called, whose frames are not counted.
    """

    size_bytes: int
    library_bytes: int
    compiler: str
    flags: tuple[str, ...]
    outside: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return members(self, "bytes=size_bytes library_bytes compiler flags not_counted=outside")

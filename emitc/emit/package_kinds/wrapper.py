"""What the packages share whose files wrap the model for another language: what they refuse, ports and golden vectors."""

from collections.abc import Iterator
from dataclasses import dataclass

from emitc.emit.literals import real
from emitc.emit.package_kinds.kind import Content
from emitc.errors import EmitcError, Where
from emitc.program import Port, Program
from emitc.program.extras import ExampleTensor, Limit

FOLDER = "c"
"""Where the C files lie in such a package."""
BIT_TYPES = {
    "int8_t": "i8", "int16_t": "i16", "int32_t": "i32", "int64_t": "i64", "uint8_t": "u8", "uint16_t": "u16",
    "uint32_t": "u32", "uint64_t": "u64", "float": "f32", "double": "f64",
}  # fmt: skip
"""Types of elements in languages that name them by their bits, by C type."""
_PER_LINE = 24


def require_one_arena(program: Program, kind: str) -> None:
    """Raises EmitcError for what the wrappers have no place for. kind: the word of `--package`."""
    where = Where(option=f"--package {kind}")
    hint = "choose --package cmake or plain, or leave the option out that asks for this"
    if program.regions:
        why = "the wrapper of this package takes one arena, and --regions makes several"
        raise EmitcError(f"{program.name} has several arenas", where, why, hint)
    if program.streamed_input is not None:
        why = "the wrapper of this package writes whole inputs, and --input-rows asks the application for rows"
        raise EmitcError(f"{program.name} asks for the rows of its input", where, why, hint)
    if program.requirements:
        needed = ", ".join(requirement.library for requirement in program.requirements)
        why = "the build files of this package compile emitc's own kernels only"
        raise EmitcError(f"{program.name} needs {needed}", where, why, hint)


def c_files(program: Program, units: tuple[str, ...]) -> tuple[str, ...]:
    """The C files to compile, without a folder."""
    weights = (f"{program.name}_weights",) if program.split_constants else ()
    return tuple(f"{name}.c" for name in (program.name, *weights, "emitc_runtime", *units))


def language_name(name: str, taken: frozenset[str], longest: int = 64) -> str:
    """The model's C name as one of another language: small letters, with `_model` where the language has taken it.

    >>> language_name("KWS", frozenset()), language_name("match", frozenset({"match"}))
    ('kws', 'match_model')
    """
    lower = name.lower()
    lower = f"{lower}_model" if lower in taken else lower
    return lower[:longest].rstrip("_")


@dataclass(frozen=True, slots=True)
class WrappedPort:
    """An input or output for a template. type: of an element in the language. lines: golden vectors, the bytes of each run.

    tolerance: of the golden vectors, None where every bit counts.
    """

    port: Port
    type: str
    lines: tuple[tuple[str, ...], ...]
    tolerance: Limit | None = None

    @property
    def variable(self) -> str:
        """The name of a variable for it where there are outputs only."""
        return f"output_{self.port.index}"

    @property
    def scale(self) -> str:
        """The scale as a decimal that reads back as the same float32, without a suffix."""
        return real(self.port.scale or 0.0).removesuffix("f")


def _lines(data: bytes) -> Iterator[str]:
    """Bytes as escapes of a string, which Rust, Zig, Python and C write alike."""
    for start in range(0, len(data), _PER_LINE):
        yield "".join(f"\\x{byte:02x}" for byte in data[start : start + _PER_LINE])


def wrapped_ports(content: Content, types: dict[str, str]) -> tuple[list[WrappedPort], list[WrappedPort]]:
    """Inputs and outputs with their golden vectors. types: of elements in the language, by C type."""

    def port_of(port: Port, stored: list[ExampleTensor]) -> WrappedPort:
        lines = tuple(tuple(_lines(tensor.data)) for tensor in stored)
        return WrappedPort(port, types[port.c_type], lines, stored[0].limit)

    program, runs = content.program, content.example
    inputs = [port_of(port, [run.inputs[port.index] for run in runs]) for port in program.inputs]
    return inputs, [port_of(port, [run.outputs[port.index] for run in runs]) for port in program.outputs]

"""Packages whose files wrap the model for another language: Rust, Zig and MicroPython."""

import hashlib
import zlib
from collections.abc import Iterator

from emitc.emit.literals import real
from emitc.emit.package_kinds.kind import Content
from emitc.emit.wrap import wrapped
from emitc.errors import EmitcError, Where
from emitc.program import Port, Program
from emitc.program.extras import ExampleTensor, Limit
from emitc.program.weights import ALIGNMENT
from emitc.records import dataclass

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


def _wrapper(
    content: Content, language: str, types: dict[str, str], templates: dict[str, str], **values: object
) -> dict[str, str]:
    """The files of a language by their templates, which know ports, C files and `values`."""
    inputs, outputs = wrapped_ports(content, types)
    values |= {
        "folder": FOLDER,
        "c_files": c_files(content.program, content.units),
        "inputs": inputs,
        "outputs": outputs,
    }
    return content.rendered({path: f"{language}/{template}" for path, template in templates.items()}, **values)


_RUST_KEYWORDS = (
    "abstract as async await become box const crate do dyn extern final fn gen impl in let loop macro match mod move mut "
    "override priv pub ref self super trait try type unsafe unsized use virtual where yield"
)
_OF_CARGO = "alloc aux build cc con core deps emitc examples incremental nul prn proc_macro std test"
_RUST_TAKEN = frozenset((*_RUST_KEYWORDS.split(), *_OF_CARGO.split()))
"""Names that Cargo refuses for a crate, or that a crate would hide: keywords that C lacks, its folders, the library's crates."""


def rust(content: Content) -> dict[str, str]:
    """A crate: manifest, build script, a wrapper without the standard library, and an example with golden vectors."""
    program = content.program
    templates = {
        "Cargo.toml": "Cargo.toml",
        "build.rs": "build.rs",
        "src/lib.rs": "lib.rs",
        "examples/golden.rs": "golden.rs",
    }
    return _wrapper(
        content,
        "rust",
        BIT_TYPES,
        templates,
        crate=language_name(program.name, _RUST_TAKEN),
        level=content.optimize.removeprefix("-O"),
        weights_align=ALIGNMENT,
        quantized=[
            f"{side}_{port.index}"
            for side, ports in (("input", program.inputs), ("output", program.outputs))
            for port in ports
            if port.scale is not None and port.zero_point is not None
        ],
    )


_ZIG_KEYWORDS = (
    "addrspace align allowzero and anyframe anytype asm async await break callconv catch comptime const continue defer "
    "else enum errdefer error export extern fn for if inline linksection noalias noinline nosuspend opaque or orelse "
    "packed pub resume return struct suspend switch test threadlocal try undefined union unreachable usingnamespace var "
    "volatile while"
)
_ZIG_TAKEN = frozenset(
    (*_ZIG_KEYWORDS.split(), "anyerror", "builtin", "golden", "model", "noreturn", "root", "std", "type")
)
"""Names that the manifest cannot have as the name of a package, or that mean another module."""
_LONGEST = 32
"""Bytes of the name of a package of Zig."""
_MINIMUM = "0.15.1"


def fingerprint(package: str) -> str:
    """The number that Zig knows the package by: the CRC of its name above, and below an identity of 32 bits.

    Zig asks for the CRC, and for an identity that is neither 0 nor the largest number. emitc takes it from the name, so that it
    stays the same when the model changes.
    """
    identity = int.from_bytes(hashlib.sha256(f"emitc {package}".encode()).digest()[:4], "little")
    identity = min(max(identity, 1), 2**32 - 2)
    return f"0x{zlib.crc32(package.encode()):08x}{identity:08x}"


def zig(content: Content) -> dict[str, str]:
    """A module: manifest, a build script that compiles the C, declarations, and an example with golden vectors."""
    package = language_name(content.program.name, _ZIG_TAKEN, _LONGEST)
    templates = {
        "build.zig": "build.zig",
        "build.zig.zon": "build.zig.zon",
        f"{FOLDER}/freestanding/string.h": "string.h",
        f"src/{package}.zig": "wrapper.zig",
        "examples/golden.zig": "golden.zig",
    }
    values = {"package": package, "fingerprint": fingerprint(package), "minimum": _MINIMUM}
    return _wrapper(content, "zig", BIT_TYPES, templates, **values)


_CODES = {
    "int8_t": "b", "int16_t": "h", "int32_t": "i", "int64_t": "q", "uint8_t": "B", "uint16_t": "H", "uint32_t": "I",
    "uint64_t": "Q", "float": "f", "double": "d",
}  # fmt: skip
"""Of Python's module struct."""
_PYTHON_KEYWORDS = (
    "and as assert async await break class continue def del elif else except finally for from global if import in is "
    "lambda nonlocal not or pass raise return try while with yield false none true"
)
_MODULES = (
    "array asyncio binascii bluetooth boot btree builtins cmath collections cryptolib deflate errno esp esp32 framebuf gc "
    "golden hashlib heapq io json lwip machine main marshal math micropython mimxrt neopixel network ntptime openamp os "
    "platform pyb random re requests rp2 samd select socket ssl stm struct sys time tls uasyncio uctypes vfs websocket "
    "zephyr zlib"
)
"""Modules of MicroPython and its ports, which a model of that name would hide."""
_PYTHON_TAKEN = frozenset((*_PYTHON_KEYWORDS.split(), *_MODULES.split()))


def micropython(content: Content) -> dict[str, str]:
    """A module of the firmware or a file: its C, the build files of both ways, and an example in Python with golden vectors."""
    program = content.program
    shared = ("emitc_runtime.c", *(f"{unit}.c" for unit in content.units))
    own = tuple(name for name in c_files(program, content.units) if name not in shared)
    templates = {name: name for name in ("modemitc.c", "micropython.mk", "micropython.cmake", "Makefile")}
    templates["examples/golden.py"] = "golden.py"
    module = language_name(program.name, _PYTHON_TAKEN)
    values = {"module": module, "own_files": own, "shared_files": shared}
    texts = _wrapper(content, "micropython", _CODES, templates, **values)
    return texts | {"modemitc.c": wrapped(texts["modemitc.c"])}

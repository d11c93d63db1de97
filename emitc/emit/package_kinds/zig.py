"""A package that is a module of Zig: a build script that compiles the C, declarations, an example."""

import hashlib
import zlib

from emitc.emit.package_kinds.kind import Content
from emitc.emit.package_kinds.wrapper import BIT_TYPES, FOLDER, c_files, language_name, wrapped_ports

_KEYWORDS = (
    "addrspace align allowzero and anyframe anytype asm async await break callconv catch comptime const continue defer "
    "else enum errdefer error export extern fn for if inline linksection noalias noinline nosuspend opaque or orelse "
    "packed pub resume return struct suspend switch test threadlocal try undefined union unreachable usingnamespace var "
    "volatile while"
)
_TAKEN = frozenset((*_KEYWORDS.split(), "anyerror", "builtin", "golden", "model", "noreturn", "root", "std", "type"))
"""Names that the manifest cannot have as the name of a package, or that mean another module."""
_LONGEST = 32
"""Bytes of a package's name."""
_MINIMUM = "0.15.1"


def fingerprint(package: str) -> str:
    """The number that Zig knows the package by: the CRC of its name above, and below an identity of 32 bits.

    Zig asks for the CRC, and for an identity that is neither 0 nor the largest number. emitc takes it from the name, so that it
    stays the same when the model changes.
    """
    identity = int.from_bytes(hashlib.sha256(f"emitc {package}".encode()).digest()[:4], "little")
    identity = min(max(identity, 1), 2**32 - 2)
    return f"0x{zlib.crc32(package.encode()):08x}{identity:08x}"


def files(content: Content) -> dict[str, str]:
    """The manifest, the build script, the declarations, and the example with golden vectors."""
    program = content.program
    inputs, outputs = wrapped_ports(content, BIT_TYPES)
    package = language_name(program.name, _TAKEN, _LONGEST)
    values = {
        "package": package,
        "fingerprint": fingerprint(package),
        "minimum": _MINIMUM,
        "folder": FOLDER,
        "c_files": c_files(program, content.units),
        "inputs": inputs,
        "outputs": outputs,
    }
    templates = {
        "build.zig": "build.zig",
        "build.zig.zon": "build.zig.zon",
        f"{FOLDER}/freestanding/string.h": "string.h",
        f"src/{package}.zig": "wrapper.zig",
        "examples/golden.zig": "golden.zig",
    }
    return {path: content.render(f"zig/{template}", **values) for path, template in templates.items()}

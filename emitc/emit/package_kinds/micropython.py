"""A package that is a module of MicroPython: in the firmware or loaded from a file, and an example in Python."""

from emitc.emit.package_kinds.kind import Content
from emitc.emit.package_kinds.wrapper import FOLDER, c_files, language_name, wrapped_ports
from emitc.emit.wrap import wrapped

_CODES = {
    "int8_t": "b", "int16_t": "h", "int32_t": "i", "int64_t": "q", "uint8_t": "B", "uint16_t": "H", "uint32_t": "I",
    "uint64_t": "Q", "float": "f", "double": "d",
}  # fmt: skip
"""Of the module struct."""
_KEYWORDS = (
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
_TAKEN = frozenset((*_KEYWORDS.split(), *_MODULES.split()))


def files(content: Content) -> dict[str, str]:
    """The module's C, the build files of both ways, and the example with golden vectors."""
    program = content.program
    inputs, outputs = wrapped_ports(content, _CODES)
    shared = ("emitc_runtime.c", *(f"{unit}.c" for unit in content.units))
    own = tuple(name for name in c_files(program, content.units) if name not in shared)
    values = {
        "module": language_name(program.name, _TAKEN),
        "folder": FOLDER,
        "own_files": own,
        "shared_files": shared,
        "inputs": inputs,
        "outputs": outputs,
    }
    templates = {
        "modemitc.c": "modemitc.c",
        "micropython.mk": "micropython.mk",
        "micropython.cmake": "micropython.cmake",
        "Makefile": "Makefile",
        "examples/golden.py": "golden.py",
    }
    texts = {path: content.render(f"micropython/{template}", **values) for path, template in templates.items()}
    return texts | {"modemitc.c": wrapped(texts["modemitc.c"])}

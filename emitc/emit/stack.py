"""How much stack a package's functions need, as a compiler found it: a value that header and manifest state."""

from dataclasses import dataclass
from typing import Any

from emitc.program.members import members


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

"""Weights that lie outside of the C: the structure that a file of weights has, and its bytes.

The file is a header of HEADER_BYTES bytes, the members of the structure, and an optional signature. Every integer is
little-endian. The offsets of the members are part of the generated code, so that no byte of the file leads to an address.

Of some arrays numbers between the weights say where a kernel reads next. Their length follows from the weights. So a file keeps
room for more, up to a number that follows from shapes alone: a network that was trained again then fits. Zeros fill what it does
not need.
"""

import struct
import zlib
from collections.abc import Sequence

from emitc.layer import KernelSpec, Param
from emitc.records import dataclass

FOURS = "fours"
"""What the spec of a kernel says whose weights are as c_runtime/scalar/emitc_scalar_fours.h has them."""
_PARTS_OF_FOURS = 8
"""A file has room for a part in one of so many fours of weights, and for one in each filter. Layers of the main nets use up
to three quarters of that."""


@dataclass(frozen=True, slots=True)
class Stream:
    """An array whose runs of parts a file of weights may lengthen.

    check: the end of the name of the C function that follows it. filters: of the layer. fours: of the weights of each filter.
    """

    check: str
    filters: int
    fours: int

    @property
    def room_bytes(self) -> int:
        """Bytes that a file keeps: the weights, two for each part, and one for each run of parts and for the end of each filter.

        A run has two parts or more unless it is a filter's last: two parts always fit, whose magnitudes are 127 at most.
        """
        parts = self.filters * self.fours // _PARTS_OF_FOURS + self.filters
        runs = (parts + self.filters) // 2
        return 4 * self.filters * self.fours + 2 * parts + runs + self.filters


def stream_of(spec: KernelSpec, params: Sequence[Param]) -> Stream | None:
    """How the weights of a layer with that kernel and those parameters are followed, None where their values lead nowhere."""
    if spec.window != FOURS:
        return None
    numbers = {param.name: int(param.value) for param in params}
    return Stream(FOURS, numbers["out_c"], numbers["pairs"] // 2)


MAGIC = 0x54574D45
"""`EMWT` as the first four bytes."""
FORMAT = 1
BYTE_ORDER = 0x01020304
HEADER_BYTES = 64
ALIGNMENT = 16
"""Of the file in memory, in bytes; no table of a kernel asks for more."""
SIGNATURE_CHECK_BYTES = 4
"""The CRC that follows a signature."""
ARGUMENT = "blob"
"""The C name of the pointer to the structure."""
_CODES = {
    "int8_t": "b",
    "uint8_t": "B",
    "int16_t": "h",
    "uint16_t": "H",
    "int32_t": "i",
    "uint32_t": "I",
    "int64_t": "q",
    "uint64_t": "Q",
    "float": "f",
    "double": "d",
}
STORABLE = frozenset(_CODES)
"""C types that a member may have."""
_WORDS = struct.Struct("<15I")


def bytes_of(c_type: str) -> int:
    """Bytes of one value of a storable type."""
    return struct.calcsize(f"<{_CODES[c_type]}")


@dataclass(frozen=True, slots=True)
class Member:
    """One member of the structure. count: elements of an array, 0 for a number. alignment: in bytes, 0 for the type's.

    stream: how a kernel follows numbers between the weights, where it does. struct: the C structure that has it; the name is then
    that of the structure's variable, a dot and its own.
    """

    name: str
    c_type: str
    values: tuple[int, ...] | tuple[float, ...]
    count: int
    comment: str
    alignment: int = 0
    stream: Stream | None = None
    struct: str = ""

    @property
    def variable(self) -> str:
        """What the structure of all weights has a member for."""
        return self.name.partition(".")[0]

    @property
    def own_name(self) -> str:
        """Its name where it is declared."""
        return self.name.rpartition(".")[2]

    @property
    def element_bytes(self) -> int:
        return bytes_of(self.c_type)

    @property
    def aligned(self) -> int:
        """What its offset is a multiple of."""
        return max(self.alignment, self.element_bytes)

    @property
    def stated_alignment(self) -> int:
        """The alignment that the declaration states: compilers differ for types of eight bytes. 0 for none."""
        return self.aligned if self.aligned > self.element_bytes or self.element_bytes > 4 else 0

    @property
    def size_bytes(self) -> int:
        return self.element_bytes * max(self.count, 1)

    def data(self) -> bytes:
        """The elements, little-endian."""
        return struct.pack(f"<{len(self.values)}{_CODES[self.c_type]}", *self.values)


@dataclass(frozen=True, slots=True)
class ExternalWeights:
    """The structure of a model's weights. name: of the C structure. structure: 32 hexadecimal digits, "" before it is known.

    version: of the weights, which the user counts up.
    """

    name: str
    members: tuple[Member, ...]
    structure: str = ""
    version: int = 0

    @property
    def offsets(self) -> tuple[int, ...]:
        """The offset of each member in the structure, in bytes. A structure inside begins and ends at its widest member's."""
        widest: dict[str, int] = {}
        for member in self.members:
            widest[member.variable] = max(widest.get(member.variable, 1), member.aligned)
        result, end, last = [], 0, ""
        for member in self.members:
            steps = [member.aligned] if member.variable == last else [widest.get(last, 1), widest[member.variable]]
            for step in steps:
                end = -(-end // step) * step
            result.append(end)
            end, last = end + member.size_bytes, member.variable
        return tuple(result)

    @property
    def size_bytes(self) -> int:
        """Bytes of the structure, a multiple of ALIGNMENT."""
        end = self.offsets[-1] + self.members[-1].size_bytes if self.members else 0
        return -(-end // ALIGNMENT) * ALIGNMENT

    @property
    def streams(self) -> tuple[Member, ...]:
        """The arrays whose values lead to addresses, so that a file's must be checked."""
        return tuple(member for member in self.members if member.stream)

    @property
    def structs(self) -> dict[str, tuple[Member, ...]]:
        """The members of each structure of numbers: of the first layer that has one."""
        variables = {member.struct: member.variable for member in reversed(self.members) if member.struct}
        return {
            name: tuple(member for member in self.members if member.variable == variables[name])
            for name in dict.fromkeys(member.struct for member in self.members if member.struct)
        }

    @property
    def declared(self) -> tuple[Member, ...]:
        """The members without all but the first one of each structure of numbers."""
        seen = {member.variable: member for member in reversed(self.members)}
        return tuple(member for member in self.members if seen[member.variable] is member)

    @property
    def file_bytes(self) -> int:
        """Bytes of a file without a signature."""
        return HEADER_BYTES + self.size_bytes

    @property
    def words(self) -> tuple[int, ...]:
        """The structure's digest as four numbers of 32 bits."""
        return struct.unpack("<4I", bytes.fromhex(self.structure))

    def payload(self) -> bytes:
        """The members with zeros between them."""
        data = bytearray(self.size_bytes)
        for member, offset in zip(self.members, self.offsets, strict=True):
            data[offset : offset + member.size_bytes] = member.data()
        return bytes(data)

    def file(self) -> bytes:
        """The file without a signature: the header and the payload."""
        return with_header(self.payload(), self.structure, self.version)


def with_header(payload: bytes, structure: str, version: int, signature: bytes = b"", room: int = 0) -> bytes:
    """A file of weights. structure: 32 hexadecimal digits. room: bytes for a signature that is not known yet.

    What a signature covers are the header and the payload, so that its size is stated before it is made.
    """
    size = max(len(signature), room)
    total = HEADER_BYTES + len(payload) + (size + SIGNATURE_CHECK_BYTES if size else 0)
    digest = struct.unpack("<4I", bytes.fromhex(structure))
    crc = zlib.crc32(payload)
    words = (MAGIC, FORMAT, BYTE_ORDER, total, len(payload), *digest, version, crc, size, 0, 0, 0)
    header = _WORDS.pack(*words)
    header += struct.pack("<I", zlib.crc32(header))
    filled = signature.ljust(size, b"\0")
    return header + payload + (filled + struct.pack("<I", zlib.crc32(filled)) if size else b"")

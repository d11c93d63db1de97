"""Numbers of the command stream of Ethos-U55 and Ethos-U65: operations, registers, and the file that holds them.

A word of the stream has the opcode in bits 0-9 and a 16-bit parameter in bits 16-31. Bit 14 says that a second word
follows, whose registers hold 32 bits. The parameter then has the bits above them (addresses) or a shift (scales).
Registers keep their value until the stream sets them again. Source: the numbers and names that vela's package lists for
Ethos-U55, and the streams that vela writes.
"""

from collections.abc import Iterator, Mapping

from emitc.ethosu.commands import Scale, fault
from emitc.records import dataclass

STOP, IRQ, CONV, DEPTHWISE, POOL, ELEMENTWISE = 0x00, 0x01, 0x02, 0x03, 0x05, 0x06
DMA_START, DMA_WAIT, KERNEL_WAIT, PMU_MASK = 0x10, 0x11, 0x12, 0x13

OPERATIONS: Mapping[int, str] = {
    STOP: "STOP", IRQ: "IRQ", CONV: "CONV", DEPTHWISE: "DEPTHWISE", POOL: "POOL", ELEMENTWISE: "ELEMENTWISE",
    DMA_START: "DMA_START", DMA_WAIT: "DMA_WAIT", KERNEL_WAIT: "KERNEL_WAIT", PMU_MASK: "PMU_MASK",
}  # fmt: skip

SHORT: Mapping[int, str] = {
    0x100: "IFM_PAD_TOP", 0x101: "IFM_PAD_LEFT", 0x102: "IFM_PAD_RIGHT", 0x103: "IFM_PAD_BOTTOM", 0x104: "IFM_DEPTH_M1",
    0x105: "IFM_PRECISION", 0x107: "IFM_UPSCALE", 0x109: "IFM_ZERO_POINT", 0x10A: "IFM_WIDTH0_M1", 0x10B: "IFM_HEIGHT0_M1",
    0x10C: "IFM_HEIGHT1_M1", 0x10D: "IFM_IB_END", 0x10F: "IFM_REGION",
    0x111: "OFM_WIDTH_M1", 0x112: "OFM_HEIGHT_M1", 0x113: "OFM_DEPTH_M1", 0x114: "OFM_PRECISION", 0x115: "OFM_BLK_WIDTH_M1",
    0x116: "OFM_BLK_HEIGHT_M1", 0x117: "OFM_BLK_DEPTH_M1", 0x118: "OFM_ZERO_POINT", 0x11A: "OFM_WIDTH0_M1",
    0x11B: "OFM_HEIGHT0_M1", 0x11C: "OFM_HEIGHT1_M1", 0x11F: "OFM_REGION",
    0x120: "KERNEL_WIDTH_M1", 0x121: "KERNEL_HEIGHT_M1", 0x122: "KERNEL_STRIDE", 0x123: "PARALLEL_MODE", 0x124: "ACC_FORMAT",
    0x125: "ACTIVATION", 0x126: "ACTIVATION_MIN", 0x127: "ACTIVATION_MAX", 0x128: "WEIGHT_REGION", 0x129: "SCALE_REGION",
    0x12D: "AB_START", 0x12F: "BLOCKDEP", 0x130: "DMA0_SRC_REGION", 0x131: "DMA0_DST_REGION", 0x132: "DMA0_SIZE0",
    0x133: "DMA0_SIZE1",
    0x180: "IFM2_BROADCAST", 0x181: "IFM2_SCALAR", 0x185: "IFM2_PRECISION", 0x189: "IFM2_ZERO_POINT", 0x18A: "IFM2_WIDTH0_M1",
    0x18B: "IFM2_HEIGHT0_M1", 0x18C: "IFM2_HEIGHT1_M1", 0x18D: "IFM2_IB_START", 0x18F: "IFM2_REGION",
}  # fmt: skip
"""Registers of 16 bits, set by one word."""

LONG: Mapping[int, str] = {
    0x00: "IFM_BASE0", 0x01: "IFM_BASE1", 0x02: "IFM_BASE2", 0x03: "IFM_BASE3", 0x04: "IFM_STRIDE_X", 0x05: "IFM_STRIDE_Y",
    0x06: "IFM_STRIDE_C", 0x10: "OFM_BASE0", 0x11: "OFM_BASE1", 0x12: "OFM_BASE2", 0x13: "OFM_BASE3", 0x14: "OFM_STRIDE_X",
    0x15: "OFM_STRIDE_Y", 0x16: "OFM_STRIDE_C", 0x20: "WEIGHT_BASE", 0x21: "WEIGHT_LENGTH", 0x22: "SCALE_BASE",
    0x23: "SCALE_LENGTH", 0x24: "OFM_SCALE", 0x25: "OPA_SCALE", 0x26: "OPB_SCALE", 0x30: "DMA0_SRC", 0x31: "DMA0_DST",
    0x32: "DMA0_LEN", 0x33: "DMA0_SKIP0", 0x34: "DMA0_SKIP1", 0x80: "IFM2_BASE0", 0x81: "IFM2_BASE1", 0x82: "IFM2_BASE2",
    0x83: "IFM2_BASE3", 0x84: "IFM2_STRIDE_X", 0x85: "IFM2_STRIDE_Y", 0x86: "IFM2_STRIDE_C", 0x90: "WEIGHT1_BASE",
    0x91: "WEIGHT1_LENGTH", 0x92: "SCALE1_BASE", 0x93: "SCALE1_LENGTH",
}  # fmt: skip
"""Registers of 32 bits and a parameter, set by two words."""

_TWO_WORDS = 1 << 14
_OPCODE = 0x3FF


@dataclass(frozen=True, slots=True)
class Word:
    """One decoded instruction. position: of its first word in the stream. payload: None for an instruction of one word."""

    position: int
    opcode: int
    parameter: int
    payload: int | None

    @property
    def name(self) -> str:
        """Name of the operation or register, or the number of an unknown one."""
        table = LONG if self.payload is not None else {**OPERATIONS, **SHORT}
        return table.get(self.opcode, f"0x{self.opcode:03x}")


def words(stream: tuple[int, ...]) -> Iterator[Word]:
    """The instructions of a stream of 32-bit words. Raises NpuFault when the last one is cut."""
    position = 0
    while position < len(stream):
        word = stream[position]
        payload = None
        if word & _TWO_WORDS:
            if position + 1 >= len(stream):
                raise fault("the command stream is cut", "its last instruction has two words", f"word {position}")
            payload = stream[position + 1]
        yield Word(position, word & _OPCODE, word >> 16, payload)
        position += 1 if payload is None else 2


def signed(value: int, bits: int) -> int:
    """The two's complement number in the low `bits` of `value`.

    >>> signed(0xFFFF, 16), signed(0x7FFF, 16)
    (-1, 32767)
    """
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


class Registers:
    """The register file, as far as the stream has set it. place: the command that reads it, for errors."""

    def __init__(self) -> None:
        self._values: dict[str, tuple[int, int]] = {}
        self.place = "payload"

    def set(self, name: str, word: Word) -> None:
        self._values[name] = (word.parameter, 0) if word.payload is None else (word.payload, word.parameter)

    def has(self, name: str) -> bool:
        return name in self._values

    def _pair(self, name: str) -> tuple[int, int]:
        if name not in self._values:
            what = f"the register {name} is used before it is set"
            raise fault(what, "its value after a reset is not defined", self.place)
        return self._values[name]

    def value(self, name: str) -> int:
        """The register's low 32 (or 16) bits, unsigned."""
        return self._pair(name)[0]

    def size(self, name: str) -> int:
        """A number of elements, of which the register `name`_M1 holds one less."""
        return self.value(f"{name}_M1") + 1

    def signed16(self, name: str) -> int:
        return signed(self.value(name), 16)

    def address(self, name: str) -> int:
        """A byte offset in a region, up to 40 bits."""
        low, high = self._pair(name)
        return low | (high & 0xFF) << 32

    def stride(self, name: str) -> int:
        """A signed distance in bytes, 40 bits like an address."""
        low, high = self._pair(name)
        return signed(low | high << 32, 40)

    def scale(self, name: str) -> Scale:
        """A multiplier of 32 bits unsigned and a right shift of 6 bits."""
        low, high = self._pair(name)
        return Scale(low, high & 63)

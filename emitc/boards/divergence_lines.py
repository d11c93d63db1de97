"""The lines of a search for the first layer that differs (templates/board/divergence.c.j2 lists them), heard over a bad line.

A board repeats itself. What one round has lost or damaged, a later one brings: lines with the right checksum add up.
"""

import re
import zlib
from dataclasses import dataclass, field

_HEX = r"[0-9a-f]{8}"
_LINE = re.compile(r"(?P<text>emitc-layer [ -~]*) \*(?P<crc>[0-9a-f]{8})", re.ASCII)
_BEGIN = re.compile(rf"emitc-layer begin ({_HEX})")
_CRC = re.compile(rf"emitc-layer crc ({_HEX}) ({_HEX}) ({_HEX}) ({_HEX}) ({_HEX})")
_TENSOR = re.compile(rf"emitc-layer tensor ({_HEX}) ({_HEX}) ({_HEX}) ((?:[0-9a-f]{{2}}){{1,32}})")
BYTES_PER_LINE = 32
_MOST_KEYS = 1 << 20


@dataclass(frozen=True, slots=True)
class LayerCrc:
    """What a call of the layer hook has shown: the layer's index, the bytes that it has written, and their CRC-32."""

    index: int
    size_bytes: int
    crc: int


@dataclass(slots=True)
class Heard:
    """What has arrived so far. Calls are pairs of a case and a number of the hook's call in it.

    unreadable: lines whose checksum is wrong, or that are cut. starts: how often the firmware has begun. interrupted: how often
    it did so without an end before. changed: calls that did not show the same in every round. last: the latest call of all.
    fault: the board's own line about one. refused: its line about a call that returned a status.
    """

    crcs: dict[tuple[int, int], LayerCrc] = field(default_factory=dict)
    pieces: dict[tuple[int, int], dict[int, bytes]] = field(default_factory=dict)
    identities: set[int] = field(default_factory=set)
    lines: int = 0
    unreadable: int = 0
    starts: int = 0
    interrupted: int = 0
    ends: int = 0
    changed: set[tuple[int, int]] = field(default_factory=set)
    last: tuple[int, int] | None = None
    fault: str = ""
    refused: str = ""
    _running: bool = False

    def add(self, line: str) -> bool:
        """Takes the next line; whether it ends a round."""
        if line.startswith("emitc begin"):
            self.starts += 1
            self.interrupted += self._running
            self._running = True
        elif line.startswith("emitc done"):
            self._running = False
            self.ends += 1
            return True
        elif line.startswith("emitc fault"):
            self.fault = line.strip()
        elif line.startswith("emitc status"):
            self.refused = line.strip()
        elif "emitc-layer" in line or " *" in line:
            self._add_checked(line)
        return False

    def tensor(self, call: tuple[int, int]) -> bytes | None:
        """All bytes that the call has shown; None while some are missing."""
        size, pieces = self.crcs[call].size_bytes, self.pieces.get(call, {})
        offsets = range(0, size, BYTES_PER_LINE)
        if len(pieces) < len(offsets) or any(
            len(pieces.get(at, b"")) != min(BYTES_PER_LINE, size - at) for at in offsets
        ):
            return None
        return b"".join(pieces[at] for at in offsets)

    def _add_checked(self, line: str) -> None:
        self.lines += 1
        match = _LINE.fullmatch(line.strip())
        if match is None or zlib.crc32(match["text"].encode("ascii")) != int(match["crc"], 16):
            self.unreadable += 1
            return
        text = match["text"]
        if begin := _BEGIN.fullmatch(text):
            self.identities.add(int(begin[1], 16))
        elif crc := _CRC.fullmatch(text):
            case, call, index, size, value = (int(group, 16) for group in crc.groups())
            self._add_crc((case, call), LayerCrc(index, size, value))
        elif tensor := _TENSOR.fullmatch(text):
            case, call, offset = (int(group, 16) for group in tensor.groups()[:3])
            pieces = self.pieces.setdefault((case, call), {}) if len(self.pieces) < _MOST_KEYS else {}
            piece = bytes.fromhex(tensor[4])
            if pieces.setdefault(offset, piece) != piece:
                self.changed.add((case, call))
        else:
            self.unreadable += 1

    def _add_crc(self, call: tuple[int, int], value: LayerCrc) -> None:
        self.last = call
        if len(self.crcs) < _MOST_KEYS and self.crcs.setdefault(call, value) != value:
            self.changed.add(call)

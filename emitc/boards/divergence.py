"""The first layer that a board computes otherwise than this machine, by checksums of all layers and the bytes of the first.

The expected values are those of the same generated C, built for this machine with the layer hook. `emitc verify` says whether
they are right; here only the board, its compiler and its flash are in question.

The board's lines (templates/board/divergence.c.j2 lists them) are heard over a bad line. A board repeats itself: what one round
has lost or damaged, a later one brings. Lines with the right checksum add up.
"""

import re
import zlib
from collections.abc import Sequence
from typing import Any

from emitc.errors import CannotCompile, Where, first_name, shown
from emitc.program.members import members
from emitc.records import dataclass, field
from emitc.verify.golden_run import HostLayer, differing_elements

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


_STATED = (
    "case index=layer.index op=layer.op tensor=layer.tensor elements=layer.elements differing element=first got expected "
    "channels pattern"
)


@dataclass(frozen=True, slots=True)
class BoardDivergence:
    """The first tensor that differs. equal: calls of the hook that were equal before it, of all cases.

    first: index of the first differing element; got and expected: its values. channels: those, along the last axis, in which
    elements differ.
    """

    case: int
    layer: HostLayer
    equal: int
    differing: int
    first: tuple[int, ...]
    got: str
    expected: str
    largest: float
    channels: tuple[int, ...]

    @property
    def pattern(self) -> str:
        """Where the differing elements lie, and what would do that."""
        shape = self.layer.shape
        count = shape[-1] if len(shape) > 1 else 1
        if count > 1 and len(self.channels) == 1:
            return f"all in channel {self.channels[0]} of {count}, as a damaged weight or bias of that channel gives"
        if self.differing == 1:
            return "a single element, as a damaged constant gives"
        share = f"{len(self.channels)} of {count} channels, " if count > 1 else ""
        return f"{share}as another kernel, compiler option or constant gives"


@dataclass(frozen=True, slots=True)
class Search:
    """What a search found on a board. divergence: None where all calls of the hook were equal. unreadable: damaged lines."""

    board: str
    cases: int
    calls: int
    divergence: BoardDivergence | None
    unreadable: int = 0

    def to_json(self) -> dict[str, Any]:
        first = self.divergence
        return {
            "board": self.board,
            "match": first is None,
            "cases": self.cases,
            "layers_compared": self.calls,
            "unreadable_lines": self.unreadable,
            "first_divergence": None if first is None else members(first, _STATED),
        }


def identity_of(expected: Sequence[Sequence[HostLayer]]) -> int:
    """A number that a firmware states, by which an older one is known: CRC-32 of all that is expected."""
    crc = 0
    for case in expected:
        for layer in case:
            crc = zlib.crc32(layer.data, zlib.crc32(f"{layer.index} {len(layer.data)} ".encode("ascii"), crc))
    return crc


def judged(board: str, expected: Sequence[Sequence[HostLayer]], heard: Heard, where: Where) -> Search | None:
    """The first difference in what has arrived, or that there is none; None while lines are missing.

    Raises CannotCompile for a firmware of another compilation, and for a board that contradicts itself.
    """
    if heard.identities - {identity_of(expected)}:
        why = "it states another identity than the project that was built"
        raise CannotCompile("the board runs another firmware", where, why, "upload again, and press its reset button")
    equal = 0
    for case, layers in enumerate(expected):
        for call, layer in enumerate(layers):
            key = case, call
            seen = heard.crcs.get(key)
            if seen is None:
                return None
            if key in heard.changed:
                raise _unsteady(layer, case, where)
            if (seen.index, seen.size_bytes) != (layer.index, len(layer.data)):
                why = f"case {case}: call {call} of the layer hook was of op {seen.index} with {seen.size_bytes} bytes"
                why += f", and {_name(layer)} writes {len(layer.data)} bytes"
                hint = "upload again: it is the firmware of another model, or of another version of emitc"
                raise CannotCompile("the layers that ran are not the model's", where, why, hint)
            if seen.crc == zlib.crc32(layer.data):
                equal += 1
                continue
            data = heard.tensor(key)
            if data is None:
                return None
            if zlib.crc32(data) != seen.crc:
                raise _unsteady(layer, case, where)
            wrong = differing_elements(layer, data)
            if wrong is not None:
                divergence = BoardDivergence(case, layer, equal, *wrong)
                return Search(board, len(expected), equal + 1, divergence, heard.unreadable)
            equal += 1
    return Search(board, len(expected), equal, None, heard.unreadable)


def _unsteady(layer: HostLayer, case: int, where: Where) -> CannotCompile:
    why = f"case {case}: {_name(layer)} did not give the same bytes each time that it was read"
    hint = "look for memory that something else writes to, an unstable supply or clock, and an overflow of the stack"
    return CannotCompile("the board's results change from one reading to the next", where, why, hint)


def _name(layer: HostLayer) -> str:
    return f'op {layer.index} {layer.op} "{shown(first_name(layer.tensor), 80)}"'


def unfinished(expected: Sequence[Sequence[HostLayer]], heard: Heard, seconds: float, where: Where) -> CannotCompile:
    """Why no result came: a fault, restarts, a call that stopped, a disturbed line, or nothing at all."""
    reached = _reached(expected, heard)
    if heard.fault:
        return CannotCompile("the firmware faulted on the board", where, f"{heard.fault}; {reached}", _STUCK)
    if heard.refused:
        hint = "emitc_status in emitc_runtime.h says what the number means"
        return CannotCompile("a call was refused on the board", where, heard.refused, hint)
    if heard.unreadable:
        why = f"{heard.unreadable} of {heard.lines} lines have a wrong checksum, or are cut; {reached}"
        hint = "check cable, ground and baud rate; another program may read the same port"
        return CannotCompile("the serial line is disturbed", where, why, hint)
    if heard.interrupted:
        why = f"it began {heard.starts} times, and did not reach its end {heard.interrupted} times; {reached}"
        return CannotCompile("the board starts again and again", where, why, f"look at its watchdog; {_STUCK}")
    if heard.starts or heard.last is not None:
        why = f"nothing more came within {seconds:g} s; {reached}"
        return CannotCompile("the firmware stopped on the board", where, why, _STUCK)
    why = f"no line of the firmware came within {seconds:g} s"
    hint = "name the board's serial port with --port, and press its reset button"
    return CannotCompile("the board is silent", where, why, hint)


_STUCK = "look for an overflow of its stack, and for an interrupt that writes to the model's memory"


def _reached(expected: Sequence[Sequence[HostLayer]], heard: Heard) -> str:
    if heard.last is None:
        return (
            f"no layer ended, and {_name(expected[0][0])} is the first"
            if expected and expected[0]
            else "no layer ended"
        )
    case, call = heard.last
    if case >= len(expected) or call >= len(expected[case]):
        return f"the last layer was call {call} of case {case}"
    ended = f"case {case}: {_name(expected[case][call])} was the last layer that ended"
    if call + 1 < len(expected[case]):
        return f"{ended}, and {_name(expected[case][call + 1])} follows"
    return ended

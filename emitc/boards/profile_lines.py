"""The text that emitc_profile.h writes, read into blocks of records. Noise, cut, repeated and forged lines are named.

A block counts only as a whole: every line with the right checksum, all records in their order, and the checksum of all of them.
"""

import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

FORMAT = 1
MOST_RECORDS = 1 << 20
"""Of one block; a microcontroller has no memory for more."""
_MOST_PROBLEMS = 1000
_RECORDS_PER_LINE = 6
_LINE = re.compile(r"emitc-profile (?P<words>[!-~ ]*?) \*(?P<crc>[0-9a-f]{8})(?![!-~])", re.ASCII)
_HEX = r"[0-9a-f]{8}"
_BEGIN = re.compile(
    rf"begin (?P<format>{_HEX}) (?P<name>[!-~]+) (?P<sha256>[!-~]+) (?P<rate>{_HEX}) (?P<count>{_HEX}) (?P<lost>{_HEX})"
)
_DATA = re.compile(rf"data (?P<first>{_HEX}) (?P<records>(?:{_HEX}{_HEX}){{1,{_RECORDS_PER_LINE}}})")
_END = re.compile(rf"end (?P<count>{_HEX}) (?P<crc>{_HEX})")


@dataclass(frozen=True, slots=True)
class Block:
    """What one call of emitc_profile_write has written, and the line on which it begins.

    rate: ticks a second, 0 where the application does not know. lost: records that a full ring has overwritten.
    records: pairs of a layer (or a mark) and the time in ticks, which starts again with 0 after 2^32 - 1.
    """

    line: int
    name: str
    sha256: str
    rate: int
    lost: int
    records: tuple[tuple[int, int], ...]


@dataclass(slots=True)
class _Open:
    """A block whose end has not come yet. digits: those of the records so far."""

    line: int
    begin: re.Match[str]
    count: int
    digits: list[str] = field(default_factory=list)
    records: list[tuple[int, int]] = field(default_factory=list)


class ProfileReader:
    """Takes lines one by one, and hands out each whole block. problems: what is wrong with the others, in words."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._open: _Open | None = None
        self._left_out = False
        self._number = 0

    def read(self, lines: Iterable[str]) -> Iterator[Block]:
        """The whole blocks of the lines, in their order; at the end an open block becomes a problem."""
        for line in lines:
            block = self.add(line)
            if block is not None:
                yield block
        self.finish()

    def add(self, line: str) -> Block | None:
        """Takes the next line; the block that it ends, where it ends one. Text before `emitc-profile` is of a log."""
        self._number += 1
        at = line.find("emitc-profile")
        if at < 0:
            return None
        match = _LINE.match(line, at)
        if match is None:
            return self._broken("it is cut, or no line of a profile")
        words = match["words"]
        crc = zlib.crc32(f"emitc-profile {words}".encode("ascii"))
        if crc != int(match["crc"], 16):
            return self._broken(f"its checksum is {match['crc']}, and that of its text is {crc:08x}")
        if begin := _BEGIN.fullmatch(words):
            return self._begin(begin)
        if data := _DATA.fullmatch(words):
            return self._data(data)
        if end := _END.fullmatch(words):
            return self._end(end)
        return self._broken("its checksum is right, and it is no line of a profile")

    def finish(self) -> None:
        """No line follows."""
        if self._open is not None:
            self._problem(f"the profile of line {self._open.line} has no end: {self._arrived()}")
            self._open = None

    def _arrived(self) -> str:
        assert self._open is not None
        return f"{len(self._open.records)} of {self._open.count} records arrived"

    def _problem(self, text: str) -> None:
        if len(self.problems) < _MOST_PROBLEMS:
            self.problems.append(text)

    def _broken(self, why: str) -> Block | None:
        """A line that cannot be used, which ends no block. With it the block that is open, if any, is of no use.

        The lines that follow up to the next beginning are left out too, without a word.
        """
        if self._left_out:
            return None
        block, self._open, self._left_out = self._open, None, True
        ending = "" if block is None else f"; the profile of line {block.line} is left out"
        self._problem(f"line {self._number}: {why}{ending}")
        return None

    def _begin(self, match: re.Match[str]) -> Block | None:
        if self._open is not None:
            why = f"the profile of line {self._open.line} has no end, and the next begins in line {self._number}"
            self._problem(f"{why}: {self._arrived()}; the board has started again, or lines are lost")
            self._open = None
        self._left_out = False
        count, version = int(match["count"], 16), int(match["format"], 16)
        if version != FORMAT:
            return self._broken(f"the profile has format {version}, and this emitc reads {FORMAT}")
        if count > MOST_RECORDS:
            return self._broken(f"it promises {count} records, and {MOST_RECORDS} are the most")
        self._open = _Open(self._number, match, count)
        return None

    def _data(self, match: re.Match[str]) -> Block | None:
        block = self._open
        if block is None:
            return self._broken("records without the beginning of their profile")
        first, digits = int(match["first"], 16), match["records"]
        if first != len(block.records):
            return self._broken(f"record {first} follows, and {len(block.records)} is the next")
        numbers = [int(digits[at : at + 8], 16) for at in range(0, len(digits), 8)]
        block.digits.append(digits)
        block.records += zip(numbers[::2], numbers[1::2], strict=True)
        if len(block.records) > block.count:
            return self._broken(f"more records than the {block.count} that were promised")
        return None

    def _end(self, match: re.Match[str]) -> Block | None:
        block = self._open
        if block is None:
            return self._broken("the end of a profile without its beginning")
        count, crc = int(match["count"], 16), zlib.crc32("".join(block.digits).encode("ascii"))
        if not count == block.count == len(block.records):
            return self._broken(f"the end counts {count} records, the beginning {block.count}, and {self._arrived()}")
        if crc != int(match["crc"], 16):
            return self._broken(f"the checksum of all records is {match['crc']}, and theirs is {crc:08x}")
        self._open = None
        begin = block.begin
        rate, lost = int(begin["rate"], 16), int(begin["lost"], 16)
        return Block(block.line, begin["name"], begin["sha256"], rate, lost, tuple(block.records))

"""One file that a command writes where the user says: never over the input, a device's name or somebody else's content."""

import contextlib
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from emitc.errors import EmitcError, Where, writing
from emitc.records import dataclass

_SEARCHED = 4096
"""Bytes at either end of a file in which its mark is looked for."""


@contextmanager
def staging(place: Path) -> Iterator[Path]:
    """A folder in the parent of a place, for what is to be there; the parent is made."""
    place.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".emitc-", dir=place.parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True, slots=True)
class OutputFile:
    """A file to be written. option: that named it. mark: bytes that every file of its kind has near its start or end.

    inputs: files that the command reads, which it never writes. force: an existing file may have any content.

    Character devices and pipes take the bytes as a stream. A regular file is replaced in one step, and a link to one
    stays a link. Nothing else that exists is touched.
    """

    path: Path
    option: str
    mark: bytes
    inputs: tuple[Path, ...] = ()
    force: bool = False

    def check(self) -> None:
        """Raises EmitcError where `write` would refuse the place as it is now."""
        with writing(f"{self.path} cannot be written", self.option):
            self._status()

    def write(self, data: bytes) -> None:
        """Writes the data; a failure or an interruption leaves a regular file as it was. Raises EmitcError."""
        with writing(f"{self.path} cannot be written", self.option):
            status = self._status()
            if status is not None and not stat.S_ISREG(status.st_mode):
                descriptor = os.open(self.path, os.O_WRONLY | os.O_NOCTTY)
                try:
                    write_all(descriptor, data)
                finally:
                    os.close(descriptor)
                return
            printing = _standard_stream(status)
            if printing is not None:
                sys.stdout.flush()
                write_all(printing, data)
                return
            place = Path(os.path.realpath(self.path))
            with staging(place) as folder:
                fresh = folder / "new"
                fresh.write_bytes(data)
                if status is not None:
                    fresh.chmod(stat.S_IMODE(status.st_mode))
                os.replace(fresh, place)

    def _status(self) -> os.stat_result | None:
        """What lies at the path, links followed; None for nothing. Raises EmitcError for what must not be written."""
        if "\0" in str(self.path):
            raise self._refused("no path has a zero byte", "choose another path")
        if str(self.path) == "-":
            why = "the result goes to standard output, and a file has a name"
            raise self._refused(why, "name a file, or /dev/stdout for both in one")
        try:
            status = self.path.stat()
        except FileNotFoundError:
            if self.path.is_symlink():
                why = f"it is a link to {os.readlink(self.path)}, which does not exist"
                raise self._refused(why, "remove the link, or name its target") from None
            return None
        if stat.S_ISCHR(status.st_mode) or stat.S_ISFIFO(status.st_mode):
            return status
        if not stat.S_ISREG(status.st_mode):
            raise self._refused(f"it exists and is {_kind(status.st_mode)}", "choose another path")
        for other in self.inputs:
            with contextlib.suppress(OSError):
                if os.path.samestat(status, other.stat()):
                    raise self._refused(f"it is {other}, which the command reads", "choose another path")
        if not self.force and _standard_stream(status) is None and status.st_size and not self._is_ours():
            hint = "choose another path, or replace it with --force"
            raise self._refused("it exists, and emitc did not write it", hint)
        return status

    def _is_ours(self) -> bool:
        with self.path.open("rb") as file:
            start = file.read(_SEARCHED)
            file.seek(max(0, os.fstat(file.fileno()).st_size - _SEARCHED))
            return self.mark in start or self.mark in file.read(_SEARCHED)

    def _refused(self, why: str, hint: str) -> EmitcError:
        return EmitcError(f"{self.path} cannot be written", Where(option=self.option), why, hint)


def option_of(place: Path, option: str) -> str:
    """What a place comes from: the environment for a temporary folder of emitc's own, the option for any other one.

    >>> option_of(Path(tempfile.gettempdir(), "emitc-run-1", "package"), "-o"), option_of(Path("out"), "-o")
    ('TMPDIR', '-o')
    """
    root = Path(tempfile.gettempdir())
    own = place.is_relative_to(root) and place.relative_to(root).parts[0].startswith("emitc-")
    return "TMPDIR" if own else option


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a directory"
    return "a block device" if stat.S_ISBLK(mode) else "no regular file"


def _standard_stream(status: os.stat_result | None) -> int | None:
    """The descriptor where the file is this process's own standard output or error, as /dev/stdout may be: it has no end yet."""
    for descriptor in (1, 2):
        with contextlib.suppress(OSError):
            if status is not None and os.path.samestat(status, os.fstat(descriptor)):
                return descriptor
    return None


def write_all(descriptor: int, data: bytes) -> None:
    """Writes all bytes, in as many calls as the system takes for them. Raises OSError."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]

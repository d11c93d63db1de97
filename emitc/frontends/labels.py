"""Names of classes: from a text file, or from the one that a TFLite file carries in an archive.

TFLite's model metadata keeps files that belong to a model in a ZIP archive at the end of the model file, and says which of them
have the labels of an output. Where they do not say it, a text file with as many lines as an output has classes holds their names.
A file has one name a line.
"""

import io
import lzma
import struct
import zipfile
import zlib
from pathlib import Path

from emitc.errors import EmitcError, Where, shown
from emitc.frontends.read import read_file
from emitc.frontends.tflite.metadata import label_files

OF_MODEL, NUMBERS = "model", "numbers"
"""Values of --labels that are no files: the names in the model file, and functions without names."""
_MOST_BYTES = 1 << 20
_MOST_FILES = 64
_LONGEST = 200
_WHERE = Where(option="--labels")
_FAULTS = (
    *(zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, ValueError, EOFError, RuntimeError, OSError),
    *(LookupError, OverflowError),
)
"""What a damaged or hostile archive makes of the standard library's reader."""


def read_labels(what: str, model: bytes, classes: tuple[int, ...]) -> tuple[tuple[str, ...], ...]:
    """The names for each output, () for an output without.

    what: `model`, `numbers` or the path of a text file. model: bytes of the model file. classes: how many each output has, 0 for
    an output that is no list of scores. Raises EmitcError for a file that cannot be read or is no UTF-8 text. Raises it for
    another number of lines than each of the outputs has classes.
    """
    if not any(classes):
        hint = "leave --labels out"
        raise EmitcError("no output has classes", _WHERE, "none is one row of at least two elements", hint)
    if what == NUMBERS:
        return tuple(() for _ in classes)
    if what == OF_MODEL:
        candidates = labels_of_model(model)
        if not candidates:
            hint = "--labels FILE names one, --labels numbers takes none"
            why = "its archive has no text file, or there is none"
            raise EmitcError("the model file has no labels", _WHERE, why, hint)
    else:
        candidates = {Path(what).name: _lines(read_file(Path(what)), Path(what).name)}
    stated = label_files(model) if what == OF_MODEL else ()
    own = [stated[i] if i < len(stated) and stated[i] else tuple(candidates) for i in range(len(classes))]
    fitting = tuple(
        next((candidates[name] for name in names if len(candidates.get(name, ())) == count), ())
        for names, count in zip(own, classes, strict=True)
    )
    if not any(fitting):
        known = {name: candidates.get(name, ()) for names in own for name in names}
        lines = ", ".join(f"{shown(name)}: {len(names)}" for name, names in known.items())
        wanted = " or ".join(str(count) for count in classes if count)
        why = f"the outputs have {wanted} classes, the lines are {lines}"
        raise EmitcError("the labels do not fit the model", _WHERE, why, "give one line for each class")
    return fitting


def labels_of_model(model: bytes) -> dict[str, tuple[str, ...]]:
    """The text files in a model file's archive, as their lines by name; none where it has no archive that can be read.

    They are those that the model's metadata state, and those whose names end in `.txt`.
    """
    stated = {name for names in label_files(model) for name in names}
    try:
        with zipfile.ZipFile(io.BytesIO(model)) as archive:
            entries = [
                entry for entry in archive.infolist() if entry.filename.endswith(".txt") or entry.filename in stated
            ]
            return dict(filter(None, (_named(archive, entry) for entry in entries[:_MOST_FILES])))
    except _FAULTS:
        return {}


def _named(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> tuple[str, tuple[str, ...]] | None:
    """A text file's name and lines, None where it is no text."""
    try:
        with archive.open(entry) as file:  # the size that the archive states may be wrong
            return entry.filename, _lines(file.read(_MOST_BYTES + 1), entry.filename)
    except EmitcError:
        return None


def _lines(data: bytes, name: str) -> tuple[str, ...]:
    """The lines of a text file, without white space at their ends; empty lines at the end are none."""
    if len(data) > _MOST_BYTES:
        raise _refused(name, f"it has more than {_MOST_BYTES} bytes")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _refused(name, f"it is no UTF-8 text: {error.reason} at byte {error.start}") from error
    lines = [line.strip() for line in text.replace("\r\n", "\n").split("\n")]
    while lines and not lines[-1]:
        lines.pop()
    for number, line in enumerate(lines, 1):
        if not line.isprintable() or len(line) > _LONGEST:
            why = f"line {number} is longer than {_LONGEST} characters, or has some that cannot be printed"
            raise _refused(name, why)
    return tuple(lines)


def _refused(name: str, why: str) -> EmitcError:
    return EmitcError(f"{shown(name)} cannot be used as labels", _WHERE, why, "one name a line, in UTF-8")

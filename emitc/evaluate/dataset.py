"""Data sets: samples for a model's inputs and their labels, from arrays, tables, images and sounds.

Every reader says what it found where it refuses. A value is taken as a code where it has the type of a quantized input and no
scale, mean or layout is given; otherwise it is a real number.
"""

import csv
import re
import wave
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from emitc.calibrate.npz import read_array, read_arrays
from emitc.errors import EmitcError, Where
from emitc.evaluate.session import TensorInfo
from emitc.ir import Array
from emitc.records import dataclass

LABELS = ("y", "Y", "labels", "label", "targets", "target", "classes", "class")
IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif")
LAYOUTS = ("as-is", "nhwc", "nchw")
MAX_PIXELS = 1 << 24
"""Pixels of an image that is opened."""
MAX_TEXT_BYTES = 256 << 20
Refused = Callable[[str], EmitcError]


@dataclass(frozen=True, slots=True)
class Preparation:
    """real = (value - mean) * scale. layout: of images in the data, where it is not that of the model: nhwc or nchw."""

    scale: float | None = None
    mean: float | None = None
    layout: str = "as-is"

    @property
    def changes(self) -> bool:
        """Whether values are not taken as they are."""
        return self.scale is not None or self.mean is not None

    def real(self, values: Array) -> Array:
        """The real numbers that values stand for, in float32."""
        centred = values.astype(np.float64) - (self.mean or 0.0)
        return (centred * (1.0 if self.scale is None else self.scale)).astype(np.float32)


@dataclass(frozen=True, slots=True)
class DataSet:
    """samples: one array of the model's type and shape for each input. labels: of each sample; None where there are none.

    classes: names of the classes, where folders name them. names: of the samples, for lists of the worst. outside: the share of
    real numbers that are farther than a step from what their codes stand for.
    """

    samples: tuple[tuple[Array, ...], ...]
    labels: Array | None
    classes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    outside: float = 0.0


def read_dataset(path: Path, inputs: Sequence[TensorInfo], preparation: Preparation | None = None) -> DataSet:
    """The samples of a file or folder for a model with these inputs.

    .npz: `X` and `y`, an array for each input by name, or `in{i}_{k}`; .npy: samples of the only input; .csv: a row for each
    sample, whose label is in a column of that name or in a further last column; a folder with a folder of images or of WAV
    files for each class. Raises EmitcError, with what was found, for data that do not fit.
    """
    prepare = preparation or Preparation()

    def refused(why: str) -> EmitcError:
        hint = (
            "an .npz with X and y, an .npy, a .csv, or a folder with one folder of images or WAV files for each class"
        )
        return EmitcError(f"{path.name} cannot be used as data", Where(option="--data"), why, hint)

    if path.is_dir():
        return _folder(path, inputs, prepare, refused)
    readers = {".npz": _npz, ".npy": _npy, ".csv": _csv}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise refused(
            f"files of type {path.suffix or 'without a suffix'!r} are not read; known are {', '.join(readers)}"
        )
    columns, labels = reader(path, inputs, refused)
    counts = {len(column) for column in columns}
    if len(counts) != 1 or 0 in counts:
        raise refused(f"the inputs have {sorted(counts)} samples")
    if labels is not None and len(labels) != len(columns[0]):
        raise refused(f"there are {len(columns[0])} samples and {len(labels)} labels")
    typing = _Typing(prepare, refused)
    typed = [[typing.typed(info, value) for value in column] for info, column in zip(inputs, columns, strict=True)]
    names = tuple(f"sample {number}" for number in range(len(columns[0])))
    return DataSet(tuple(zip(*typed, strict=True)), labels, (), names, typing.outside / max(1, typing.values))


@dataclass(slots=True)
class _Typing:
    """Samples in the type and shape of an input. values, outside: real numbers, and those of them that no code stands for."""

    prepare: Preparation
    refused: Refused
    values: int = 0
    outside: int = 0

    def typed(self, info: TensorInfo, value: Array) -> Array:
        if self.prepare.layout != "as-is" and value.ndim == 3:
            value = value.transpose((2, 0, 1) if self.prepare.layout == "nhwc" else (1, 2, 0))
        if value.size != int(np.prod(info.shape)):
            why = f"a sample has the shape {list(value.shape)}, and input {info.name!r} takes {list(info.shape)}"
            raise self.refused(why)
        value = value.reshape(info.shape)
        codes = info.scale is not None or value.dtype.kind != "f"
        if value.dtype.name == info.dtype and not self.prepare.changes and codes:
            return value
        real = self.prepare.real(value)
        if not bool(np.isfinite(real).all()):
            raise self.refused(f"a sample for input {info.name!r} has a value that is no finite number")
        made = info.quantized(real)
        if info.scale is not None:
            self.values += real.size
            self.outside += int((~np.isclose(info.real(made), real, rtol=0, atol=info.scale)).sum())
        return made


Columns = tuple[list[list[Array]], Array | None]
"""For each input its samples; and the labels."""


def _npz(path: Path, inputs: Sequence[TensorInfo], refused: Refused) -> Columns:
    arrays = read_arrays(path, refused)
    arrays_text = (
        "; ".join(f"{name} {array.dtype.name}{list(array.shape)}" for name, array in arrays.items()) or "nothing"
    )
    labels = next((arrays[name] for name in LABELS if name in arrays), None)
    numbered = [name for name in arrays if re.fullmatch(r"in\d+_\d+", name)]
    if all(info.name in arrays for info in inputs):
        return [list(arrays[info.name]) for info in inputs], labels
    if numbered:
        count = sum(f"in0_{k}" in arrays for k in range(len(numbered)))
        names = [[f"in{i}_{k}" for k in range(count)] for i in range(len(inputs))]
        missing = [name for column in names for name in column if name not in arrays]
        if missing or len(numbered) != count * len(inputs):
            raise refused(
                f"the model has {len(inputs)} inputs, and in{{i}}_{{k}} are not complete; found: {arrays_text}"
            )
        return [[arrays[name] for name in column] for column in names], labels
    if len(inputs) == 1:
        only = [name for name in arrays if name in ("X", "x", "data", "images", "samples")]
        only = only or [name for name in arrays if name not in LABELS]
        if len(only) == 1:
            return [_rows(arrays[only[0]], inputs[0])], labels
    raise refused(f"no array is the input {', '.join(repr(info.name) for info in inputs)}; found: {arrays_text}")


def _rows(array: Array, info: TensorInfo) -> list[Array]:
    """Samples along the first dimension; an array of one sample's own shape is one."""
    return [array] if array.shape == info.shape and array.shape[:1] != (1,) else list(array)


def _npy(path: Path, inputs: Sequence[TensorInfo], refused: Refused) -> Columns:
    array = read_array(path, refused)
    if len(inputs) != 1 or array.ndim == 0:
        raise refused(f"it is one array {array.dtype.name}{list(array.shape)}, and the model has {len(inputs)} inputs")
    return [_rows(array, inputs[0])], None


def _csv(path: Path, inputs: Sequence[TensorInfo], refused: Refused) -> Columns:
    if len(inputs) != 1:
        raise refused(f"a table has the samples of one input, and the model has {len(inputs)}")
    try:
        if path.stat().st_size > MAX_TEXT_BYTES:
            raise refused(f"it has more than {MAX_TEXT_BYTES} bytes")
        with path.open(encoding="utf-8-sig", newline="") as file:
            lines = [line for line in csv.reader(file) if line]
    except OSError as error:
        raise refused(error.strerror or str(error)) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise refused(f"it is no table of text: {error}") from error
    head = lines[0] if lines and not all(map(_is_number, lines[0])) else []
    rows = lines[1:] if head else lines
    size = int(np.prod(inputs[0].shape))
    shown = f"{len(rows)} rows of {len(rows[0]) if rows else 0} columns" + (f", named {head[:6]}" if head else "")
    if not rows or any(len(row) != len(rows[0]) or not all(map(_is_number, row)) for row in rows):
        raise refused(f"its rows are not equally many numbers; found: {shown}")
    table = np.array(rows, np.float64)
    label = next((i for i, name in enumerate(head) if name.strip() in LABELS), len(rows[0]) - 1)
    if table.shape[1] == size:
        return [list(table)], None
    if table.shape[1] != size + 1:
        raise refused(f"the input takes {size} numbers, and a label may be in one more column; found: {shown}")
    labels = table[:, label]
    whole = labels.astype(np.int64) if bool((labels == np.rint(labels)).all()) else labels
    return [list(np.delete(table, label, axis=1))], whole


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _folder(path: Path, inputs: Sequence[TensorInfo], prepare: Preparation, refused: Refused) -> DataSet:
    """A folder for each class, in the order of their names."""
    folders = sorted(entry for entry in path.iterdir() if entry.is_dir())
    files = [
        (label, file)
        for label, folder in enumerate(folders)
        for file in sorted(folder.iterdir())
        if file.suffix.lower() in (*IMAGES, ".wav")
    ]
    kinds = {".wav" if file.suffix.lower() == ".wav" else "image" for _, file in files}
    if len(kinds) != 1 or len(inputs) != 1:
        content = f"{len(folders)} folders, {len(files)} files ({' and '.join(sorted(kinds)) or 'no image, no WAV'})"
        raise refused(f"a model with one input and folders of images, or of WAV files, are expected; found: {content}")
    (info,) = inputs
    read = _wav if kinds == {".wav"} else _image
    typing = _Typing(prepare, refused)
    samples = tuple((typing.typed(info, read(file, info, refused)),) for _, file in files)
    labels = np.array([label for label, _ in files], np.int64)
    names = tuple(f"{file.parent.name}/{file.name}" for _, file in files)
    classes = tuple(folder.name for folder in folders)
    return DataSet(samples, labels, classes, names, typing.outside / max(1, typing.values))


def _image(path: Path, info: TensorInfo, refused: Refused) -> Array:
    """Pixels [H, W, C] from 0 to 255 in the size and channels of an input [1, H, W, C], or [C, H, W] for one [1, C, H, W]."""
    try:
        from PIL import Image
    except ImportError as error:
        hint = 'pip install "emitc[data]", or give the pixels as .npz or .npy'
        raise EmitcError("images cannot be read", Where(option="--data"), "Pillow is not installed", hint) from error
    if len(info.shape) != 4 or not {1, 3} & {info.shape[1], info.shape[3]}:
        raise refused(f"images fit an input of 1 or 3 channels, and {info.name!r} takes {list(info.shape)}")
    last = info.shape[3] in (1, 3)
    height, width, channels = info.shape[1:] if last else (info.shape[2], info.shape[3], info.shape[1])
    try:
        with Image.open(path) as opened:
            if opened.width * opened.height > MAX_PIXELS:
                raise refused(f"{path.name} has {opened.width} x {opened.height} pixels, the limit is {MAX_PIXELS}")
            image = opened.convert("L" if channels == 1 else "RGB").resize((width, height), Image.Resampling.BILINEAR)
            pixels = np.asarray(image, np.float32).reshape(height, width, channels)
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
        raise refused(f"{path.name} is no image that Pillow reads: {error}") from error
    return pixels if last else pixels.transpose(2, 0, 1)


def _wav(path: Path, info: TensorInfo, refused: Refused) -> Array:
    """The first channel, from -1 to 1, cut or filled with zeros to the number of values that an input takes."""
    size = int(np.prod(info.shape))
    try:
        with wave.open(str(path), "rb") as file:
            width, channels = file.getsampwidth(), file.getnchannels()
            data = file.readframes(min(file.getnframes(), size))
    except (OSError, EOFError, wave.Error) as error:
        raise refused(f"{path.name} is no WAV file of PCM samples: {error}") from error
    if width not in (1, 2, 4):
        raise refused(f"{path.name} has samples of {8 * width} bits; 8, 16 and 32 are read")
    whole = len(data) // (width * channels) * width * channels
    codes = np.frombuffer(data[:whole], f"<{'u' if width == 1 else 'i'}{width}").reshape(-1, channels)[:, 0]
    real = (codes.astype(np.float64) - 128) / 128 if width == 1 else codes / 2.0 ** (8 * width - 1)
    return np.pad(real, (0, size - len(real))).astype(np.float32)

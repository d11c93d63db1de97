"""The arrays of an .npz file that anyone may have made: plain numbers only, as many as it holds, and within a bound.

numpy's own reader allocates what the header of an array claims, and unpacks what an archive packs, however much that is.
"""

import io
import lzma
import math
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from emitc.errors import EmitcError
from emitc.ir import Array

MAX_ARRAYS_BYTES = 256 << 20
"""Bytes of all arrays that are read from one file."""


def _array(name: str, content: bytes) -> Array:
    """The array in a .npy file. Raises ValueError for another file."""
    file = io.BytesIO(content)
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"{name} has the format {version}")
    read_header = getattr(np.lib.format, f"read_array_header_{version[0]}_0")
    shape, columns_first, dtype = read_header(file)
    if dtype.kind not in "biuf":
        raise ValueError(f"{name} is of type {dtype}, which is no type of plain numbers")
    count, length = math.prod(shape), len(content) - file.tell()
    if min(shape, default=0) < 0 or count * dtype.itemsize != length:
        raise ValueError(f"{name} has {length} bytes for {dtype.name}{list(shape)}")
    array = np.frombuffer(content, dtype, count, file.tell())
    return array.reshape(shape, order="F" if columns_first else "C")


@contextmanager
def _refusing(refused: Callable[[str], EmitcError]) -> Iterator[None]:
    """Turns what a damaged file makes of the readers into the error that `refused` makes of the reason."""
    try:
        yield
    except zipfile.BadZipFile as error:
        raise refused(f"it is no .npz archive: {error}") from error
    except (EOFError, RuntimeError, zlib.error, lzma.LZMAError) as error:
        raise refused(str(error) or "it is encrypted, or packed in another way") from error
    except (tokenize.TokenError, SyntaxError) as error:  # from numpy, about a header without end
        raise refused("the header of an array cannot be read") from error
    except OSError as error:
        raise refused(error.strerror or str(error)) from error
    except ValueError as error:
        raise refused(str(error)) from error


def read_arrays(
    path: Path, refused: Callable[[str], EmitcError], wanted: Callable[[str], object] = lambda name: True
) -> dict[str, Array]:
    """The arrays whose names are wanted. Raises what `refused` makes of the reason for a file that is damaged or too large."""
    with _refusing(refused), path.open("rb") as file, zipfile.ZipFile(file) as archive:
        members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        members = {name: info for name, info in members.items() if wanted(name)}
        total = sum(info.file_size for info in members.values())
        if total > MAX_ARRAYS_BYTES:
            raise ValueError(f"its arrays have {total} bytes, the limit is {MAX_ARRAYS_BYTES}")
        return {name: _array(name, archive.read(info)) for name, info in members.items()}


def read_array(path: Path, refused: Callable[[str], EmitcError]) -> Array:
    """The array of an .npy file. Raises what `refused` makes of the reason for a file that is damaged or too large."""
    with _refusing(refused):
        if path.stat().st_size > MAX_ARRAYS_BYTES:
            raise ValueError(f"it has more than {MAX_ARRAYS_BYTES} bytes")
        return _array(path.name, path.read_bytes())

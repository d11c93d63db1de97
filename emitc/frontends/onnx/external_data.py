"""Constants of an ONNX model that lie in other files: read from the model's own folder, from nowhere else, and bounded.

They are read once. What is compiled, what an engine runs and what the checksum covers is then the same message.
"""

import hashlib
import math
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

from emitc.errors import EmitcError, Where
from emitc.frontends.onnx.file import dtype_name, messages, refused_as
from emitc.frontends.onnx.numbers import faulty
from emitc.frontends.onnx.storage_types import stored_bits
from emitc.source import MAX_TENSOR_BYTES, check_shape

MAX_EXTERNAL_BYTES = 2 * MAX_TENSOR_BYTES
"""Bytes of all of a model's external constants; a small model may name one large file any number of times."""


class ExternalData:
    """The files that hold a model's constants. folder: of the model; None where only its bytes are known."""

    def __init__(self, folder: Path | None) -> None:
        self.folder = folder
        self._left = MAX_EXTERNAL_BYTES

    def read(self, entries: Mapping[str, str], length: int, where: Where) -> bytes:
        """The `length` bytes that the entries of a constant (location, offset, length) name.

        Raises EmitcError for a place outside the folder, also through a link, and where the file has not as many bytes.
        """
        location = entries.get("location", "")
        path, missing = self._path(location)
        if missing:
            why = f'there is no "{location}" in the folder of the model'
            hint = "copy the model together with its data files, or save it as one file"
            raise EmitcError("a file with constants of the model is missing", where, why, hint)
        if path is None:
            hint = "save the model as one file, or keep its data files in its folder"
            raise EmitcError("a constant lies outside the model's folder", where, f'in "{location}"', hint)
        self._left -= length
        if self._left < 0:
            what, why = "the constants outside the file are too large", f"{MAX_EXTERNAL_BYTES} bytes together"
            raise EmitcError(what, where, f"the limit is {why}", "pass a model for a microcontroller")
        try:
            offset, stated = int(entries.get("offset", "0")), int(entries.get("length", str(length)))
            if stated == length and 0 <= offset <= path.stat().st_size - length:
                with path.open("rb") as file:
                    file.seek(offset)
                    return file.read(length)
        except (OSError, ValueError):
            pass
        why = f'{length} bytes are expected in "{location}", from {entries.get("offset", "0")} on'
        hint = "copy the model together with its data files, or export it again"
        raise EmitcError("a constant does not fit the file it lies in", where, why, hint)

    def _path(self, location: str) -> tuple[Path | None, bool]:
        """The file of that name, None where it is not an ordinary file in the folder; and whether nothing is there."""
        if self.folder is None or not location:
            return None, False
        try:
            base = self.folder.resolve()
            path = (base / location).resolve()
            inside = base in path.parents
            return path if inside and path.is_file() else None, inside and not path.exists()
        except (OSError, ValueError, RuntimeError):  # no name for a file, or links without end
            return None, False


def _bytes_of(proto: onnx.TensorProto, external: ExternalData) -> bytes:
    where = Where(tensor=proto.name)
    shape = tuple(proto.dims)
    if any(dim < 0 for dim in shape):
        raise faulty("a constant has a negative dimension", where, str(list(shape)))
    check_shape(shape, dtype_name(proto.data_type), where)
    with refused_as("a constant cannot be read", where):
        bits = stored_bits(dtype_name(proto.data_type))
        bits = bits or 8 * np.dtype(onnx.helper.tensor_dtype_to_np_dtype(proto.data_type)).itemsize
    entries = {entry.key: entry.value for entry in proto.external_data}
    return external.read(entries, -(-math.prod(shape) * bits // 8), where)


def brought_in(model: onnx.ModelProto, data: bytes, folder: Path | None) -> tuple[bytes, str]:
    """Replaces the places of constants in other files by their bytes.

    data: the file that the model was parsed from. folder: where the other files may lie. Returns the model as one message,
    empty where nothing was replaced. Returns also the SHA-256 of the file followed by the bytes of those constants, in the
    message's order. Raises EmitcError for a constant that is not there.
    """
    digest = hashlib.sha256(data)
    external = ExternalData(folder)
    constants = [message for message in messages(model) if isinstance(message, onnx.TensorProto)]
    outside = [proto for proto in constants if proto.data_location == onnx.TensorProto.EXTERNAL]
    for proto in outside:
        value = _bytes_of(proto, external)
        digest.update(value)
        proto.raw_data = value
        proto.ClearField("external_data")
        proto.data_location = onnx.TensorProto.DEFAULT
    whole: bytes = model.SerializeToString(deterministic=True) if outside else b""
    return whole, digest.hexdigest()

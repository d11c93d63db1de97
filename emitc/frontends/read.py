"""A model file of any format as a SourceModel."""

import stat
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from emitc.errors import EmitcError, Where, with_model
from emitc.frontends.empty_parts import without_empty_parts
from emitc.frontends.onnx.layout import channels_last
from emitc.frontends.onnx.quantization import quantization_on_tensors
from emitc.frontends.subgraphs import rewritten
from emitc.ir import Shape
from emitc.kernels.contract import KernelDef
from emitc.source import SourceModel

MAX_FILE_BYTES = 256 << 20


def read_file(path: Path) -> bytes:
    """A model file's bytes; refused when it is absent, empty or over 256 MiB."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # a device or a pipe may never end
            saved = (path / "saved_model.pb").exists() if path.is_dir() else False
            hint = "convert the SavedModel with tf.lite.TFLiteConverter.from_saved_model" if saved else "check the path"
            raise EmitcError(f"{path} is not a file", Where(model=str(path)), "a model is an ordinary file", hint)
        size = status.st_size
        if size > MAX_FILE_BYTES:
            why, hint = f"the limit is {MAX_FILE_BYTES}", "pass a model for a microcontroller"
            raise EmitcError(f"{path.name} has {size} bytes", Where(model=path.name), why, hint)
        return path.read_bytes()
    except OSError as error:
        why = error.strerror or str(error)
        raise EmitcError(f"{path} cannot be read", Where(model=path.name), why, "check the path") from error


def is_onnx(path: Path, data: bytes) -> bool:
    """Whether a file is taken for ONNX, which has no mark of its own: by its name, unless it has TFLite's mark."""
    return path.suffix.lower() == ".onnx" and data[4:8] != b"TFL3"


def read_source(
    path: Path, data: bytes, shapes: dict[str, Shape], custom: Mapping[str, KernelDef] = MappingProxyType({})
) -> SourceModel:
    """The source model of a file. Raises EmitcError for a format that has no frontend.

    custom: operators of ONNX that a user has added, by name; their own rules type them.
    """
    try:
        if is_onnx(path, data):
            # Imported here, as for TFLite: the packages take a third and a tenth of what a small model takes as a whole.
            from emitc.frontends.onnx.reader import read_onnx

            model = read_onnx(data, shapes, path.parent, custom)
            return rewritten(model, lambda part: channels_last(quantization_on_tensors(without_empty_parts(part))))
        from emitc.frontends.tflite.npu import with_npu_operands
        from emitc.frontends.tflite.reader import known_shapes, read_tflite

        source = with_npu_operands(read_tflite(data, shapes), data)
        known_shapes(shapes, source)
    except EmitcError as error:
        raise with_model(error, path.name) from error
    return source

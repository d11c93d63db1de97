"""Which files of a TFLite model's archive name the classes of which output, by the model's metadata.

The metadata are a FlatBuffer of their own, in the buffer that the model's entry TFLITE_METADATA names. Each output has a list of
files with a type; two types are lists of labels.

Source  `metadata_schema.fbs` of TensorFlow Lite Support, schema version 1.1.0; `schema.fbs` of TensorFlow for the model.
"""

import struct
from collections.abc import Iterator

from flatbuffers.number_types import Int8Flags, Uint32Flags

from emitc.frontends.tflite.flatbuffer import Budget, CheckedTable, Damaged, root_position

_MODEL, _METADATA = b"TFL3", b"M001"
_ENTRY = b"TFLITE_METADATA"
_LABELS = (2, 3)
"""Types of files: labels of an axis of the tensor, and labels of its values."""
_MOST = 1024
"""Entries of a list that are read."""


def _slot(number: int) -> int:
    """Where the vtable has the field of this number."""
    return 4 + 2 * number


_BUFFERS, _ENTRIES = _slot(4), _slot(6)  # of Model
_DATA = _slot(0)  # of Buffer
_NAME, _BUFFER = _slot(0), _slot(1)  # of Metadata
_SUBGRAPHS = _slot(3)  # of ModelMetadata
_OUTPUTS = _slot(3)  # of SubGraphMetadata
_FILES = _slot(6)  # of TensorMetadata
_FILE_NAME, _FILE_TYPE = _slot(0), _slot(2)  # of AssociatedFile


def label_files(model: bytes) -> tuple[tuple[str, ...], ...]:
    """For each output of the main graph the names of its files of labels, in their order.

    Nothing for a model without metadata, for metadata that are damaged, and for bytes of another format.
    """
    try:
        metadata = _metadata(model)
        if metadata is None or metadata[4:8] != _METADATA:
            return ()
        root = CheckedTable(metadata, root_position(metadata), Budget(len(metadata)))
        graph = next(_tables(root, _SUBGRAPHS), None)
        return () if graph is None else tuple(tuple(_names(output)) for output in _tables(graph, _OUTPUTS))
    except (Damaged, struct.error, UnicodeDecodeError):
        return ()


def _metadata(model: bytes) -> bytes | None:
    """The bytes of the metadata, None where the model has none."""
    if model[4:8] != _MODEL:
        return None
    root = CheckedTable(model, root_position(model), Budget(len(model)))
    for entry in _tables(root, _ENTRIES):
        if _text(entry, _NAME) == _ENTRY and (field := entry.Offset(_BUFFER)):
            buffer = _table(root, _BUFFERS, entry.Get(Uint32Flags, entry.Pos + field))
            if buffer is not None and buffer.Offset(_DATA):
                start, size = buffer.Vector(buffer.Offset(_DATA)), buffer.VectorLen(buffer.Offset(_DATA))
                return model[start : start + size]
    return None


def _names(output: CheckedTable) -> Iterator[str]:
    """The files of labels of an output."""
    for file in _tables(output, _FILES):
        kind = file.Offset(_FILE_TYPE)
        if kind and file.Get(Int8Flags, file.Pos + kind) in _LABELS:
            yield _text(file, _FILE_NAME).decode("utf-8")


def _text(table: CheckedTable, slot: int) -> bytes:
    """A text of a table, empty where it is absent."""
    field = table.Offset(slot)
    return table.String(table.Pos + field) if field else b""


def _table(table: CheckedTable, slot: int, index: int) -> CheckedTable | None:
    """An entry of a list of tables; None where the list is shorter."""
    field = table.Offset(slot)
    if not field or index >= table.VectorLen(field):
        return None
    return CheckedTable(table.Bytes, table.Indirect(table.Vector(field) + 4 * index), table._budget)


def _tables(table: CheckedTable, slot: int) -> Iterator[CheckedTable]:
    """A list of tables, up to a limit."""
    for index in range(_MOST):
        entry = _table(table, slot, index)
        if entry is None:
            return
        table._budget.spend(4)
        yield entry

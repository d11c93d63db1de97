"""The checked FlatBuffers table: nothing is read outside the bytes, and every lie is named."""

from __future__ import annotations

import struct

import flatbuffers
import pytest
import tflite
from flatbuffers import number_types

from emitc.frontends.tflite.flatbuffer import Budget, CheckedTable, Damaged, opened, root_position


def buffer_with(data: bytes) -> bytes:
    """A FlatBuffer whose root is a Buffer table that holds `data`."""
    builder = flatbuffers.Builder(64)
    vector = builder.CreateByteVector(data)
    tflite.BufferStart(builder)
    tflite.BufferAddData(builder, vector)
    builder.Finish(tflite.BufferEnd(builder), file_identifier=b"TFL3")
    return bytes(builder.Output())


def root(data: bytes) -> CheckedTable:
    """The root table, checked."""
    return CheckedTable(data, root_position(data), Budget(len(data)))


def patched(data: bytes, at: int, form: str, value: int) -> bytes:
    """The bytes with one number replaced."""
    changed = bytearray(data)
    struct.pack_into(form, changed, at, value)
    return bytes(changed)


INTACT = buffer_with(b"abcdefgh")
TABLE = root_position(INTACT)
VTABLE = TABLE - struct.unpack_from("<i", INTACT, TABLE)[0]
FIELD = TABLE + struct.unpack_from("<H", INTACT, VTABLE + 4)[0]
VECTOR = FIELD + struct.unpack_from("<I", INTACT, FIELD)[0]


def test_an_intact_table_reads_like_the_library_reads_it() -> None:
    table = opened(tflite.Buffer(), INTACT, TABLE, Budget(len(INTACT)))
    assert table.DataLength() == 8
    assert table.DataAsNumpy().tobytes() == b"abcdefgh"
    assert (table.Offset(), table.Size()) == (0, 0)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(patched(INTACT, 0, "<I", len(INTACT) + 4), "is said to lie", id="root_outside"),
        pytest.param(patched(INTACT, 0, "<I", TABLE + 1), "is said to lie", id="root_unaligned"),
        pytest.param(patched(INTACT, 0, "<I", 0), "is said to lie", id="root_at_itself"),
        pytest.param(
            patched(INTACT, TABLE, "<i", TABLE + 100), "has its field list outside", id="vtable_before_the_file"
        ),
        pytest.param(
            patched(INTACT, TABLE, "<i", -(1 << 30)), "has its field list outside", id="vtable_after_the_file"
        ),
        pytest.param(patched(INTACT, VTABLE, "<H", 2), "has a field list of 2 bytes", id="vtable_too_short"),
        pytest.param(patched(INTACT, VTABLE, "<H", 7), "has a field list of 7 bytes", id="vtable_odd"),
        pytest.param(patched(INTACT, VTABLE, "<H", 65534), "has a field list of 65534 bytes", id="vtable_over_the_end"),
        pytest.param(patched(INTACT, VTABLE + 2, "<H", 65535), "which the file does not hold", id="table_over_the_end"),
        pytest.param(patched(INTACT, VTABLE + 2, "<H", 0), "which the file does not hold", id="table_too_short"),
        pytest.param(patched(INTACT, VTABLE + 4, "<H", 2), "has a field outside itself", id="field_in_the_offset"),
        pytest.param(patched(INTACT, VTABLE + 4, "<H", 65535), "has a field outside itself", id="field_outside"),
    ],
)
def test_a_table_that_lies_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(Damaged, match=message):
        root(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param(patched(INTACT, FIELD, "<I", 1 << 31), "an offset points at byte", id="vector_outside"),
        pytest.param(patched(INTACT, FIELD, "<I", VECTOR - FIELD + 1), "a vector at byte", id="vector_unaligned"),
        pytest.param(patched(INTACT, VECTOR, "<I", 2**32 - 1), "claims 4294967295 elements", id="length_maximal"),
        pytest.param(patched(INTACT, VECTOR, "<I", len(INTACT)), "claims", id="length_over_the_end"),
    ],
)
def test_a_vector_that_lies_is_refused(data: bytes, message: str) -> None:
    table = opened(tflite.Buffer(), data, TABLE, Budget(len(data)))
    for read in (table.DataLength, table.DataAsNumpy):
        with pytest.raises(Damaged, match=message):
            read()
    with pytest.raises(Damaged, match=message):
        root(data).String(FIELD)


def test_every_truncation_is_refused_or_reads_what_is_there() -> None:
    for size in range(len(INTACT)):
        try:
            assert opened(tflite.Buffer(), INTACT[:size], TABLE, Budget(size)).DataAsNumpy().tobytes() == b"abcdefgh"
        except Damaged:
            continue


def test_every_bit_flip_is_refused_or_stays_inside() -> None:
    for bit in range(8 * len(INTACT)):
        data = bytearray(INTACT)
        data[bit // 8] ^= 1 << bit % 8
        try:
            table = opened(tflite.Buffer(), bytes(data), root_position(bytes(data)), Budget(len(data)))
            found = table.DataAsNumpy() if table.DataLength() else b""
            assert len(found) <= len(data)
        except Damaged:
            continue


def test_offsets_and_numbers_stay_inside_the_file() -> None:
    table = root(INTACT)
    for position in (-4, 0, len(INTACT) - 3, 1 << 40):
        with pytest.raises(Damaged):
            table.Indirect(position)
        with pytest.raises(Damaged):
            table.Get(number_types.Int64Flags, position)
    with pytest.raises(Damaged, match="an offset leads to byte"):
        root(patched(INTACT, FIELD, "<I", len(INTACT))).Indirect(FIELD)


def test_reading_one_vector_for_ever_is_refused() -> None:
    data = buffer_with(bytes(100_000))
    table = opened(tflite.Buffer(), data, root_position(data), Budget(len(data)))
    assert [len(table.DataAsNumpy()) for _ in range(4)] == [100_000] * 4
    with pytest.raises(Damaged, match="its parts overlap"):
        table.DataAsNumpy()


@pytest.mark.parametrize("data", [b"", b"1234567"])
def test_too_short_a_file_has_no_root(data: bytes) -> None:
    with pytest.raises(Damaged, match="too short"):
        root_position(data)

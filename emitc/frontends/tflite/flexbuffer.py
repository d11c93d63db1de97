"""Options of custom operators: a FlexBuffers map of numbers.

The bytes are untrusted. Only the map at the root is looked at, one level deep and up to a number of entries. So neither
lengths nor references in the file decide how much is read; whatever does not decode is damage.
"""

from flatbuffers import flexbuffers

from emitc.errors import DAMAGED, EmitcError, Where
from emitc.source import Attribute

_MAX_ENTRIES = 64
_MAX_BYTES = 1 << 12


def numbers(data: bytes, where: Where) -> dict[str, Attribute]:
    """The integers, reals and truth values of the map in `data`, by key; entries of other types are left out.

    No bytes are an empty map. Raises EmitcError where the bytes are no map, or lead outside of themselves.
    """
    if not data:
        return {}
    try:
        return _entries(data)
    except Exception as error:
        why = f"its {len(data)} bytes are no FlexBuffers map of at most {_MAX_ENTRIES} entries"
        raise EmitcError("the options of a custom operator are damaged", where, why, DAMAGED) from error


def any_options(data: bytes) -> dict[str, Attribute]:
    """What is known of the options of a custom operator that emitc does not know: its bytes under "custom_options", unless they
    are more than 4096, and the entries of the map that they may be.
    """
    if len(data) > _MAX_BYTES:
        return {}
    try:
        entries = _entries(data)
    except Exception:  # the bytes are the operator's own affair, and need not be a map
        entries = {}
    return entries | {"custom_options": tuple(data)}


def _entries(data: bytes) -> dict[str, Attribute]:
    """Raises whatever the package raises on damaged bytes: struct.error, AssertionError, ValueError and others."""
    if len(data) > _MAX_BYTES or len(data) < 3 or data[-1] not in (1, 2, 4, 8):
        raise ValueError(len(data))
    root = flexbuffers.GetRoot(data)
    if not root.IsMap:
        raise TypeError(root)
    table = root.AsMap
    keys, values = table.Keys, table.Values
    if not len(keys) == len(values) <= _MAX_ENTRIES:
        raise ValueError(len(values))
    options: dict[str, Attribute] = {}
    for i in range(len(values)):
        value = values[i]
        if value.IsBool:
            options[keys[i].AsKey] = bool(value.AsBool)
        elif value.IsInt:
            options[keys[i].AsKey] = int(value.AsInt)
        elif value.IsFloat:
            options[keys[i].AsKey] = float(value.AsFloat)
    return options

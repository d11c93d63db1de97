"""`ethosu_invoke_v3` of emitted C, as the host model takes it: addresses and sizes, with the checks that the driver makes."""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import cffi
import numpy as np

from emitc.ethosu.commands import Array, CommandStream, fault
from emitc.ethosu.simulator import HostModel

_ALIGNMENT = 16
_MAX_BASES = 8
_ffi = cffi.FFI()


def driver_call(
    payload: int, payload_bytes: int, bases: Sequence[int], sizes: Sequence[int], *, model: HostModel | None = None
) -> CommandStream:
    """Runs the call on the host model, on the memory of this process; what was run.

    payload, bases: addresses; the memory there must be the caller's, of the sizes given. The regions are written in place.
    Raises NpuFault where the driver would return -1: a payload of no whole words, an address that is no multiple of 16, more
    than 8 bases. Raises what `HostModel.invoke` raises.
    """
    if len(bases) > _MAX_BASES or len(bases) != len(sizes):
        why = f"{len(bases)} base addresses and {len(sizes)} sizes; 8 are the most"
        raise fault("the driver refuses the call", why)
    if payload_bytes < 4 or payload_bytes % 4:
        raise fault("the driver refuses the call", f"a payload of {payload_bytes} bytes is not made of words")
    for name, address in (("the payload", payload), *((f"base {i}", base) for i, base in enumerate(bases))):
        if address % _ALIGNMENT:
            raise fault("the driver refuses the call", f"{name} lies at 0x{address:x}, no multiple of {_ALIGNMENT}")
    regions = [_memory(base, size) for base, size in zip(bases, sizes, strict=True)]
    return (model or HostModel()).invoke(_memory(payload, payload_bytes).tobytes(), regions)


def _memory(address: int, size: int) -> Array:
    if size == 0:
        return np.zeros(0, np.uint8)
    memory: Array = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
    return memory


def host_callback() -> Callable[..., int]:
    """The hook for a host build of generated C: takes cffi's pointers and runs the call; 0.

    What it raises is printed by cffi, and the call returns -1: nothing can be raised through C.
    """
    called = HostModel()

    def invoke(payload: Any, payload_bytes: int, bases: Any, sizes: Any, count: int) -> int:
        address = int(_ffi.cast("uintptr_t", payload))
        places, lengths = ([int(values[i]) for i in range(count)] for values in (bases, sizes))
        driver_call(address, payload_bytes, places, lengths, model=called)
        return 0

    return invoke

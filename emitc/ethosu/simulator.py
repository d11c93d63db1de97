"""The host model of the NPU: a payload and its regions in, the regions written as the NPU would write them.

It says what the outputs are, not how long they take. It agrees with tflite_micro on what vela compiles; it was never compared
with a chip.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from emitc.ethosu.commands import (
    Array,
    Command,
    CommandStream,
    Convolution,
    Dma,
    Elementwise,
    Pooling,
    Wait,
    fault,
    unsupported,
)
from emitc.ethosu.decode import decode
from emitc.ethosu.execute import Overflow, run_convolution, run_elementwise, run_pooling
from emitc.ethosu.memory import AccessFault, Memory, Pending, Ranges
from emitc.ethosu.weights import StreamFault

Region = Array | memoryview | bytearray | bytes
"""A region's memory; `bytes` for one that is only read."""

_MAX_REGIONS = 8
_WORK_LIMIT = 1 << 34
_FAULTS = {
    AccessFault: "the NPU would make a wrong access",
    StreamFault: "the weights cannot be decoded",
    Overflow: "a result is not defined",
}

decoded = lru_cache(maxsize=64)(decode)
"""`decode`, once for each payload."""


def _work(command: Command) -> int:
    """Elements and products that a command touches, so that a hostile stream of few words cannot run for hours."""
    if isinstance(command, Dma):
        return command.source.size
    if isinstance(command, Wait):
        return 1
    outputs = command.output.feature_map.elements
    if isinstance(command, Elementwise):
        return outputs * 8
    products = command.ifm.depth if isinstance(command, Convolution) and not command.depthwise else 8
    return outputs * command.kernel.height * command.kernel.width * products + command.ifm.elements * 8


class HostModel:
    """An NPU that a driver call can be routed to. It keeps no state between calls."""

    def invoke(self, payload: bytes, regions: Sequence[Region], *, initialised: Ranges | None = None) -> CommandStream:
        """Runs the payload and writes into `regions`, in the order of the driver's base addresses; what was run.

        payload: driver format COP1. regions: constants, scratch, fast scratch, then what the stream asks for; two may share
        memory. initialised: bytes [first, end) by region that hold something; a read of any other byte that nothing has
        written is refused. None: every byte holds something. The constants always do.
        Raises NpuFault for a stream or access that is wrong, NpuUnsupported for an operation without a host model.
        """
        stream = decoded(bytes(payload))
        if len(regions) > _MAX_REGIONS:
            raise fault("too many regions", f"{len(regions)}; the driver takes {_MAX_REGIONS}")
        arrays = tuple(np.frombuffer(region, np.uint8) if len(region) else np.zeros(0, np.uint8) for region in regions)
        memory = Memory(arrays, stream.accelerator.shram_bytes, initialised)
        pending = Pending(stream.accelerator)
        left = _WORK_LIMIT
        for command in stream.commands:
            left -= _work(command)
            if left < 0:
                why = f"the limit is {_WORK_LIMIT} products and elements in one call"
                raise unsupported("the command stream asks for more work than the host model does", why, command.place)
            try:
                pending.check(command)
                _run(command, stream, memory)
            except (AccessFault, StreamFault, Overflow) as error:
                raise fault(_FAULTS[type(error)], str(error), command.place) from error
            except (ValueError, BufferError) as error:
                if "read-only" not in str(error):
                    raise
                raise fault(_FAULTS[AccessFault], f"a region is read-only: {error}", command.place) from error
        return stream


def _run(command: Command, stream: CommandStream, memory: Memory) -> None:
    if not isinstance(command, Dma | Wait):
        memory.check_output(command.output.feature_map)
    if isinstance(command, Convolution):
        run_convolution(command, memory, stream.accelerator)
    elif isinstance(command, Pooling):
        run_pooling(command, memory)
    elif isinstance(command, Elementwise):
        run_elementwise(command, memory)
    elif isinstance(command, Dma):
        memory.copy(command)

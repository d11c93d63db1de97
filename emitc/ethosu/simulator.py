"""The host model of the NPU: a payload and its regions in, the regions written as the NPU would write them.

It says what the outputs are, not how long they take. It agrees with tflite_micro on what vela compiles; it was never compared
with a chip.

What a stream does to the scratch memory, byte by byte, is found without running it: streams of one file share that memory. One
may read what an earlier one has left there, and may write parts of a tensor that another one has begun.
"""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from emitc.errors import CannotCompile, Where
from emitc.ethosu.commands import (
    Array,
    Command,
    CommandStream,
    Convolution,
    Dma,
    Elementwise,
    NpuUnsupported,
    Pooling,
    Wait,
    fault,
    unsupported,
)
from emitc.ethosu.decode import decode
from emitc.ethosu.execute import Overflow, run_convolution, run_elementwise, run_pooling
from emitc.ethosu.memory import AccessFault, Marks, Memory, Pending, Ranges
from emitc.ethosu.weights import StreamFault
from emitc.records import dataclass

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


Mask = NDArray[np.bool_]

_SCRATCH, _FAST = 1, 2
_MOST_BYTES = 1 << 32
"""Of all streams of a file together: several times what the largest networks for these NPUs touch."""
_MOST_RUNS = 1 << 18
"""Of one stream: pieces of memory that do not touch each other."""


class Allowance:
    """How many bytes the streams of one file may touch, so that a small file cannot ask for endless work."""

    def __init__(self) -> None:
        self._left = _MOST_BYTES

    def spend(self, count: int) -> None:
        """Raises CannotCompile when it is used up."""
        self._left -= count
        if self._left < 0:
            what = "the command streams touch more memory than emitc follows"
            why = f"the limit is {_MOST_BYTES} bytes for the streams of a file"
            hint = "the file is damaged, or the model is not meant for a microcontroller"
            raise CannotCompile(what, Where(op="payload"), why, hint)


@dataclass(frozen=True, slots=True)
class Effects:
    """reads, writes: of the scratch memory, before the stream has written it, and what it writes.

    First byte and the byte after the last of each run, in turn.

    uses_fast: whether the region of the fast scratch memory is used, where it is a memory of its own. carries_fast: whether
    bytes of it are read that the stream has not written.
    """

    reads: tuple[int, ...]
    writes: tuple[int, ...]
    uses_fast: bool
    carries_fast: bool

    @property
    def end(self) -> int:
        """The byte after the last one of the scratch memory that is used."""
        return max((*self.reads[-1:], *self.writes[-1:]), default=0)


def scratch_effects(
    payload: bytes, scratch_bytes: int, fast_bytes: int, allowance: Allowance | None = None
) -> Effects | None:
    """What a payload does to its scratch memories; None for a stream with operations that the decoder does not know.

    fast_bytes: 0 where the scratch memory serves as the fast one. Raises NpuFault for a damaged payload and for an access
    that leaves the memory, CannotCompile for streams that touch too much.
    """
    allowance = allowance or Allowance()
    allowance.spend(scratch_bytes + fast_bytes)
    try:
        stream = decoded(payload)
    except NpuUnsupported:
        return None
    scratch = Marks(scratch_bytes)
    fast = Marks(fast_bytes) if fast_bytes else scratch
    regions: dict[int | None, Marks] = {_SCRATCH: scratch, _FAST: fast}
    for command in stream.commands:
        if isinstance(command, Wait):
            continue
        allowance.spend(sum(part.size for part in (*command.reads, *command.writes)))
        try:
            # Reads come before writes: an operation may write over what it reads.
            for part in command.reads:
                if part.region in regions:
                    regions[part.region].read(part)
            for part in command.writes:
                if part.region in regions:
                    regions[part.region].write(part)
        except AccessFault as error:
            raise fault("the NPU would make a wrong access", str(error), command.place) from error
    own = fast is not scratch
    reads, writes = spans(scratch.reads), spans(scratch.writes)
    if len(reads) + len(writes) > 2 * _MOST_RUNS:
        raise fault("a command stream touches too many pieces of memory", f"the limit is {_MOST_RUNS}")
    carries_fast = own and bool(fast.reads.any())
    return Effects(reads, writes, carries_fast or (own and bool(fast.writes.any())), carries_fast)


def spans(mask: Mask) -> tuple[int, ...]:
    """The runs of a mask: first, end, first, end and so on."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], mask, [False])).astype(np.int8)))
    return tuple(int(edge) for edge in edges)


def mask(runs: Sequence[int], size: int) -> Mask:
    """The other way round, for a memory of so many bytes."""
    result = np.zeros(size, bool)
    for first, end in zip(runs[::2], runs[1::2], strict=True):
        result[first:end] = True
    return result

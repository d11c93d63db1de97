"""What the NPU may touch: addressing by tiles and bricks, bounds, alignment, bytes nothing has written, order, work."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from emitc.ethosu import registers as regs
from emitc.ethosu.commands import NpuFault, NpuUnsupported
from emitc.ethosu.simulator import HostModel
from emitc.ir import Array
from tests.support.npu.streams import Stream, result, scratch_with

SHAPE = (3, 4, 8)


def moved(stream: Stream | None = None, shape: tuple[int, int, int] = SHAPE, **output: object) -> Stream:
    """A pooling 1x1 that copies the tensor at 0 to 4096 in region 1."""
    stream = (stream or Stream().tensor("IFM", shape)).output(shape, **output)  # type: ignore[arg-type]
    return stream.window().run(regs.POOL, 0)


def values(shape: tuple[int, ...] = SHAPE, dtype: str = "int8") -> Array:
    """Different values."""
    return np.random.default_rng(5).integers(-100, 100, shape).astype(dtype)


def bricked(x: Array) -> Array:
    """NHCWB16: rows, groups of 16 channels, columns, channels of the group."""
    height, width, depth = x.shape
    groups = -(-depth // 16)
    memory = np.zeros((height, groups, width, 16), x.dtype)
    for y, c, o in itertools.product(range(height), range(width), range(depth)):
        memory[y, o // 16, c, o % 16] = x[y, c, o]
    return memory


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32"])
@pytest.mark.parametrize("depth", [5, 16, 37])
def test_bricks(depth: int, dtype: str) -> None:
    x = values((3, 4, depth), dtype)
    stream = Stream().tensor("IFM", x.shape, dtype, bricks=True)
    assert np.array_equal(result(moved(stream, x.shape, dtype=dtype), scratch_with((0, bricked(x))), x.shape, dtype), x)
    stream = Stream().tensor("IFM", x.shape, dtype)
    memory = scratch_with((0, x))
    written = result(moved(stream, x.shape, dtype=dtype, bricks=True), memory, bricked(x).shape, dtype)
    assert np.array_equal(written, bricked(x))


@pytest.mark.parametrize("bricks", [False, True])
def test_four_tiles_as_in_a_rolling_buffer(bricks: bool) -> None:
    """Rows and columns beyond the first tile come from the other bases, counted from there."""
    x = values((5, 6, 16))
    height0, height1, width0 = 2, 3, 4
    bases = (2048, 1024, 3072)
    parts = {
        0: x[:height0, :width0],
        2048: x[:height1, width0:],
        1024: x[height0:, :width0],
        3072: x[height1:, width0:],
    }
    stride = 6 * 16
    memory = np.zeros(8192, np.uint8)
    for base, part in parts.items():
        for row, column in itertools.product(range(part.shape[0]), range(part.shape[1])):
            start = base + row * stride + column * 16
            memory[start : start + 16] = part[row, column].view(np.uint8)
    stream = Stream().tensor("IFM", x.shape, tiles=(height0, height1, width0), bases=bases, bricks=bricks)
    assert np.array_equal(result(moved(stream, x.shape), memory, x.shape), x)
    # The same tiles as an output.
    stream = Stream().tensor("IFM", x.shape, base=4096)
    stream.output(x.shape, base=0).window()
    for name, number in {
        "HEIGHT0_M1": 1,
        "HEIGHT1_M1": 2,
        "WIDTH0_M1": 3,
        "BASE1": 2048,
        "BASE2": 1024,
        "BASE3": 3072,
    }.items():
        stream.set(f"OFM_{name}", number)
    target = scratch_with((4096, x))
    HostModel().invoke(stream.run(regs.POOL, 0).payload(), (b"", target, target))
    assert np.array_equal(target[:4096], memory[:4096])


def refused(stream: Stream, *regions: object, **options: object) -> str:
    """The message with which a stream is refused."""
    given = regions or (bytes(64), scratch_with(size=4608))
    with pytest.raises(NpuFault) as caught:
        HostModel().invoke(stream.payload(), given, **options)  # type: ignore[arg-type]
    assert caught.value.exit_code == 2
    return str(caught.value)


def test_bounds() -> None:
    """The last byte of a region may be touched, the next may not; the place of the command is named."""
    size = int(np.prod(SHAPE))
    HostModel().invoke(moved().payload(), (b"", np.zeros(4096 + size, np.uint8)))
    text = refused(moved(), b"", np.zeros(4096 + size - 1, np.uint8))
    assert f"bytes 4096 to {4096 + size - 1} of region 1 are used, which has {4096 + size - 1}" in text
    assert "command 0 POOL (word " in text
    assert "bytes 4514 to 4609 of region 1" in refused(moved(Stream().tensor("IFM", SHAPE, base=4514)))
    assert "region 3 is used, and 2 are given" in refused(moved(Stream().tensor("IFM", SHAPE, region=3)))
    negative = Stream().tensor("IFM", SHAPE).set("IFM_STRIDE_Y", -32 & 0xFFFFFFFF, 0xFFFF)
    assert "bytes -64 to 31 of region 1" in refused(moved(negative))


def test_strides_may_be_negative() -> None:
    """As vela writes for MIRROR_PAD: 40 bits in two's complement, the upper 8 in the parameter."""
    x = values()
    for high in (0xFF, 0xFFFF):
        stream = Stream().tensor("IFM", SHAPE, base=3 * 8).set("IFM_STRIDE_X", -8 & 0xFFFFFFFF, high)
        assert np.array_equal(result(moved(stream), scratch_with((0, x)), SHAPE), x[:, ::-1])


def test_copies_stay_inside_and_aligned() -> None:
    assert "a copy takes bytes 32 to 95 of region 0, which has 64" in refused(Stream().copy((0, 32), (1, 0), 64))
    assert "a copy writes bytes 4592 to 4623 of region 1" in refused(Stream().copy((0, 0), (1, 4592), 32))
    assert "8 of the internal memory is no multiple of 16" in refused(Stream().copy((0, 0), (0x100, 8), 16))
    assert "24 of the internal memory" in refused(Stream().copy((0, 0), (0x100, 0), 24))
    assert "which has 24576" in refused(Stream().copy((0, 0), (0x100, 24576), 16))
    HostModel().invoke(Stream().copy((0, 1), (1, 3), 5).payload(), (bytes(64), scratch_with()))


def test_constants_are_never_written() -> None:
    for regions in ((scratch_with(), scratch_with()), (bytes(8192), scratch_with())):
        stream = moved().set("OFM_REGION", 0).run(regs.POOL, 0)
        assert "region 0, which holds the constants, is written" in refused(stream, *regions)
        assert "region 0, which holds the constants, is written" in refused(Stream().copy((1, 0), (0, 0), 16), *regions)
    assert "a region is read-only" in refused(moved(), b"", bytes(8192))


@pytest.mark.parametrize(
    ("stream", "text"),
    [
        (moved(Stream().tensor("IFM", (1, 1, 2), "int16", base=3), (1, 1, 2)), "3 is no multiple of 2"),
        (moved(Stream().tensor("IFM", (1, 1, 2), "int32", base=2), (1, 1, 2)), "2 is no multiple of 4"),
        (moved(Stream().tensor("IFM", (1, 1, 2), base=8, bricks=True), (1, 1, 2)), "8 is no multiple of 16"),
        (moved(Stream().tensor("IFM", (2, 1, 2), "int16").set("IFM_STRIDE_Y", 5), (2, 1, 2)), "5 is no multiple of 2"),
    ],
    ids=["int16", "int32", "bricks", "stride"],
)
def test_alignment(stream: Stream, text: str) -> None:
    assert text in refused(stream)


def test_bytes_that_nothing_has_written() -> None:
    """Inputs are what the caller says; what a command writes may be read by the next."""
    size = int(np.prod(SHAPE))
    model, memory = HostModel(), scratch_with((0, values()))
    model.invoke(moved().payload(), (b"", memory), initialised={1: [(0, 50), (50, size)]})
    text = refused(moved(), b"", memory, initialised={1: [(0, size - 3)]})
    assert f"bytes of region 1 are read that nothing has written, from {size - 3} on" in text
    chain = moved().tensor("IFM", SHAPE, base=4096).set("OFM_BASE0", 6000).run(regs.POOL, 0)
    model.invoke(chain.payload(), (b"", memory), initialised={1: [(0, size)]})
    late = moved().set("IFM_BASE0", 8).run(regs.POOL, 0)
    assert "command 1 POOL" in refused(late, b"", memory, initialised={1: [(0, size)]})
    assert "a copy reads byte 100 of region 1" in refused(
        Stream().copy((1, 100), (1, 0), 16), initialised={1: [(0, 100)]}
    )


def test_regions_that_share_memory_share_what_is_known() -> None:
    """Region 2 is region 1 in most memory modes; a caller may also give overlapping parts of one arena."""
    memory, size = scratch_with((0, values())), int(np.prod(SHAPE))
    stream = moved(Stream().tensor("IFM", SHAPE, region=2))
    HostModel().invoke(stream.payload(), (b"", memory, memory), initialised={1: [(0, size)]})
    assert np.array_equal(memory[4096 : 4096 + size].view(np.int8).reshape(SHAPE), values())
    parts = (b"", memory, memory[4096:])
    stream = moved().tensor("IFM", SHAPE, region=2).set("OFM_BASE0", 1024).run(regs.POOL, 0)
    HostModel().invoke(stream.payload(), parts, initialised={1: [(0, size)]})
    assert "nothing has written" in refused(stream, b"", memory, memory[4200:].copy(), initialised={1: [(0, size)]})


def test_memories_of_other_kinds() -> None:
    """A bytearray and a memoryview are written in place, as a buffer of cffi is."""
    for memory in (bytearray(scratch_with((0, values()))), memoryview(bytearray(scratch_with((0, values()))))):
        HostModel().invoke(moved().payload(), (b"", memory))
        assert np.array_equal(np.frombuffer(memory, np.int8)[4096 : 4096 + values().size], values().reshape(-1))
    assert "9; the driver takes 8" in refused(moved(), *[b""] * 9)


def test_a_copy_and_an_operation_that_nothing_orders() -> None:
    def pair(*between: tuple[int, int], first: int = 0) -> Stream:
        stream = moved()
        for opcode, parameter in between:
            stream.run(opcode, parameter)
        stream.set("DMA0_SRC_REGION", 0).set("DMA0_SRC", 0).set("DMA0_DST_REGION", 1).set("DMA0_DST", first)
        return stream.set("DMA0_LEN", 16).run(regs.DMA_START)

    text = refused(pair())
    assert "bytes 0 to 15 of region 1 at the same time as command 0 POOL" in text and "command 1 DMA_START" in text
    regions = (bytes(64), scratch_with(size=4608))
    HostModel().invoke(pair((regs.KERNEL_WAIT, 0)).payload(), regions)
    HostModel().invoke(pair(first=96).payload(), regions)
    assert "at the same time" in refused(pair((regs.KERNEL_WAIT, 1)))
    # The NPU holds two operations: a third one starts after the first has ended.
    elsewhere = pair()
    head, tail = moved().words, elsewhere.words[len(moved().words) :]
    stream = Stream()
    stream.words = head + moved(Stream().tensor("IFM", SHAPE, base=1024)).run(regs.POOL, 0).words + tail
    HostModel().invoke(stream.payload(), regions)
    behind = Stream().copy((0, 0), (1, 0), 16)
    behind.words.pop()  # without its wait
    assert "command 1 POOL" in refused(
        Stream.set(behind, "BLOCKDEP", 0).tensor("IFM", SHAPE).output(SHAPE).window().run(regs.POOL)
    )


def test_a_table_that_nothing_waits_for() -> None:
    load = Stream().copy((0, 0), (0x100, 24 * 1024 - 2048 + 256), 256)
    load.words.pop()  # without its wait
    text = refused(moved(load.tensor("IFM", SHAPE), activation=17), bytes(256), scratch_with())
    assert "bytes 22784 to 23039 of the internal memory at the same time as command 0 DMA_START" in text
    HostModel().invoke(moved(Stream().copy((0, 0), (0x100, 22784), 256).tensor("IFM", SHAPE), activation=17).payload(),
                       (bytes(256), scratch_with()))  # fmt: skip


def test_work_is_bounded() -> None:
    """A few words cannot ask for hours: the sum over all commands has a limit, and so has a tensor."""

    def huge(width: int) -> Stream:
        stream = Stream().tensor("IFM", (1, 1, 1)).output((1, 1, 1)).window()
        for name in ("IFM_WIDTH0_M1", "IFM_HEIGHT0_M1", "OFM_WIDTH0_M1", "OFM_HEIGHT0_M1", "OFM_HEIGHT_M1"):
            stream.set(name, 0xFFFF)
        for name in ("IFM_STRIDE_X", "IFM_STRIDE_Y", "OFM_STRIDE_X", "OFM_STRIDE_Y"):
            stream.set(name, 0)
        return stream.set("OFM_WIDTH_M1", width - 1).run(regs.POOL, 0)

    with pytest.raises(NpuUnsupported, match="more work than the host model does"):
        HostModel().invoke(huge(65536).payload(), (b"", scratch_with()))
    assert "a tensor of 131072000 elements" in refused(huge(2000))
    HostModel().invoke(huge(2).payload(), (b"", scratch_with()))

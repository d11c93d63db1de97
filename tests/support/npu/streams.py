"""Payloads made by hand: registers by name, operations, and weight streams without compression."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from emitc.ethosu import registers as regs
from emitc.ethosu.simulator import HostModel
from emitc.ethosu.weights import WeightLayout, weight_order
from emitc.ir import Array

U55_128 = 0x00001807
"""Configuration word: product 0, 24 KB of internal memory, 2^7 MACs."""
_NUMBERS = {name: number for table in (regs.SHORT, regs.LONG) for number, name in table.items()}
_IFM_TYPES = {"uint8": 0, "int8": 1, "int16": 5, "int32": 9}
_OFM_TYPES = {"uint8": 0, "int8": 1, "int16": 3, "int32": 5}
ROUNDINGS = {"tfl": 0, "truncate": 1, "natural": 2}


class Stream:
    """A command stream under construction. `set` takes registers by name, `run` appends an operation."""

    def __init__(self) -> None:
        self.words: list[int] = []

    def set(self, name: str, value: int, high: int = 0) -> Stream:
        """One register; `high` is what a long one carries beside its 32 bits."""
        number = _NUMBERS[name]
        if regs.LONG.get(number) == name:
            self.words += [number | 1 << 14 | (high & 0xFFFF) << 16, value & 0xFFFFFFFF]
        else:
            self.words.append(number | (value & 0xFFFF) << 16)
        return self

    def run(self, opcode: int, parameter: int = 0) -> Stream:
        """One operation."""
        self.words.append(opcode | parameter << 16)
        return self

    def tensor(self, prefix: str, shape: tuple[int, int, int], dtype: str = "int8", *, base: int = 0, region: int = 1,
               zero_point: int = 0, bricks: bool = False, precision: int = 0, tiles: tuple[int, int, int] = (0, 0, 0),
               bases: tuple[int, int, int] = (0, 0, 0)) -> Stream:  # fmt: skip
        """A packed feature map. tiles: height0, height1, width0 (0: the whole); bases: of tiles 1 to 3."""
        height, width, depth = shape
        size = np.dtype(dtype).itemsize
        types = _OFM_TYPES if prefix == "OFM" else _IFM_TYPES
        self.set(f"{prefix}_REGION", region).set(f"{prefix}_ZERO_POINT", zero_point)
        self.set(f"{prefix}_PRECISION", types[dtype] | bricks << 6 | precision)
        height0, height1, width0 = (
            stated or whole for stated, whole in zip(tiles, (height, height, width), strict=True)
        )
        self.set(f"{prefix}_HEIGHT0_M1", height0 - 1).set(f"{prefix}_HEIGHT1_M1", height1 - 1)
        self.set(f"{prefix}_WIDTH0_M1", width0 - 1)
        for tile, offset in enumerate((base, *bases)):
            self.set(f"{prefix}_BASE{tile}", offset)
        if bricks:
            self.set(f"{prefix}_STRIDE_C", 16 * width * size).set(f"{prefix}_STRIDE_X", 16 * size)
            self.set(f"{prefix}_STRIDE_Y", -(-depth // 16) * 16 * width * size)
        else:
            self.set(f"{prefix}_STRIDE_C", size).set(f"{prefix}_STRIDE_X", depth * size)
            self.set(f"{prefix}_STRIDE_Y", width * depth * size)
        if prefix == "IFM":
            self.set("IFM_DEPTH_M1", depth - 1)
        if prefix == "OFM":
            self.set("OFM_HEIGHT_M1", height - 1).set("OFM_WIDTH_M1", width - 1).set("OFM_DEPTH_M1", depth - 1)
        return self

    def output(self, shape: tuple[int, int, int], dtype: str = "int8", *, base: int = 4096, rounding: str = "tfl",
               scale: tuple[int, int] | None = None, clamp: tuple[int, int] = (-128, 127), activation: int = 0,
               zero_point: int = 0, bricks: bool = False) -> Stream:  # fmt: skip
        """OFM with rounding, scale for all channels, clamp and activation."""
        precision = (scale is not None) << 8 | ROUNDINGS[rounding] << 14
        self.tensor("OFM", shape, dtype, base=base, zero_point=zero_point, bricks=bricks, precision=precision)
        if scale is not None:
            self.set("OFM_SCALE", *scale)
        return self.set("ACTIVATION", activation).set("ACTIVATION_MIN", clamp[0]).set("ACTIVATION_MAX", clamp[1])

    def window(
        self,
        kernel: tuple[int, int] = (1, 1),
        *,
        stride: tuple[int, int] = (1, 1),
        dilation: tuple[int, int] = (1, 1),
        padding: tuple[int, int, int, int] = (0, 0, 0, 0),
        upscale: int = 0,
        part_kernel: bool = False,
    ) -> Stream:
        """Kernel (height, width), padding (top, left, bottom, right)."""
        (height, width), (sy, sx), (dy, dx) = kernel, stride, dilation
        bits = (sx - 1 & 1) | (sy - 1 & 1) << 1 | part_kernel << 2 | (dx - 1) << 3 | (dy - 1) << 4
        bits |= (sx - 1 >> 1) << 6 | (sy - 1 >> 1) << 9
        self.set("KERNEL_STRIDE", bits).set("KERNEL_HEIGHT_M1", (height - 1) * dy).set(
            "KERNEL_WIDTH_M1", (width - 1) * dx
        )
        for name, amount in zip(("TOP", "LEFT", "BOTTOM", "RIGHT"), padding, strict=True):
            self.set(f"IFM_PAD_{name}", amount)
        return self.set("IFM_UPSCALE", upscale)

    def copy(self, source: tuple[int, int], destination: tuple[int, int], size: int) -> Stream:
        """A DMA and the wait for it; an end is (region register, offset), 0x100 the internal memory."""
        self.set("DMA0_SRC_REGION", source[0]).set("DMA0_SRC", source[1])
        self.set("DMA0_DST_REGION", destination[0]).set("DMA0_DST", destination[1]).set("DMA0_LEN", size)
        return self.run(regs.DMA_START).run(regs.DMA_WAIT)

    def payload(self, config: int = U55_128, *, stop: bool = True) -> bytes:
        """The driver payload; the stream starts at byte 32."""
        words = [*self.words, *([0xFFFF0000] if stop else [])]
        count = len(words)
        head = [0x31504F43, 0x01, config, 0x10066001, 5, 5, 5, 2 | (count >> 16 & 0xFF) << 8 | (count & 0xFFFF) << 16]
        return struct.pack(f"<{8 + count}I", *head, *words)


class _BitWriter:
    def __init__(self) -> None:
        self.bits: list[int] = []

    def put(self, value: int, count: int) -> None:
        self.bits += [value >> place & 1 for place in range(count)]

    def data(self) -> bytes:
        padded = [*self.bits, *[1] * (-len(self.bits) % 128)]  # ends of streams, up to 16 bytes
        return np.packbits(np.array(padded, np.uint8), bitorder="little").tobytes()


def uncompressed(values: Sequence[int]) -> bytes:
    """A weight stream in which each weight stands as a plain 9-bit number (magnitude above, sign in bit 0)."""
    writer = _BitWriter()
    for first in range(0, len(values), 1 << 15):
        part = values[first : first + (1 << 15)]
        writer.put(6, 3)  # no zero runs
        writer.put(len(part) - 1, 15)
        writer.put(7, 3)  # remainders only
        writer.put(0, 1)
        writer.put(1, 1)  # a new palette: empty, 9 bits
        for number, count in ((0, 5), (0, 5), (7, 3)):
            writer.put(number, count)
        for value in part:
            writer.put(abs(value) << 1 | (value < 0), 9)
    writer.put(7, 3)
    return writer.data()


def weight_stream(kernel: Array, layout: WeightLayout) -> bytes:
    """A kernel [O, H, W, I] in the order of the stream, uncompressed."""
    order = weight_order(layout)
    flat = kernel.reshape(-1).astype(int)
    return uncompressed([int(flat[place]) if place >= 0 else 0 for place in order])


def scale_table(channels: Sequence[tuple[int, int, int]]) -> bytes:
    """Bias, multiplier and shift of each channel; a multiple of 16 bytes."""
    data = b"".join(
        struct.pack("<Q", bias & (1 << 40) - 1)[:5] + struct.pack("<IB", multiplier, shift)
        for bias, multiplier, shift in channels
    )
    return data + bytes(-len(data) % 16)


def scratch_with(*tensors: tuple[int, Array], size: int = 8192) -> Array:
    """Scratch memory with tensors at offsets."""
    memory = np.zeros(size, np.uint8)
    for offset, values in tensors:
        data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        memory[offset : offset + len(data)] = data
    return memory


def result(stream: Stream, memory: Array, shape: tuple[int, ...], dtype: str = "int8", *, base: int = 4096,
           constants: bytes = b"") -> Array:  # fmt: skip
    """Runs the stream; the tensor at `base` of region 1 afterwards."""
    HostModel().invoke(stream.payload(), (constants, memory, memory))
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    values: Array = memory[base : base + size].view(dtype).reshape(shape)
    return values

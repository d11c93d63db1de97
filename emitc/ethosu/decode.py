"""A driver payload to the operations in it: containers, registers and their fields, all checked.

The payload is untrusted. Every loop is bounded by its length, every field by the number of its bits; a register that is
read before it is set, a value without a meaning and a stream without an end are faults.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import Enum
from typing import TypeVar

from emitc.ethosu import registers as regs
from emitc.ethosu.commands import (
    Accelerator,
    Command,
    CommandStream,
    Convolution,
    Dma,
    Elementwise,
    ElementwiseKind,
    FeatureMap,
    Kernel,
    OperandScaling,
    Output,
    Padding,
    Pooling,
    PoolKind,
    Rounding,
    Scale,
    Span,
    Upscale,
    Wait,
)
from emitc.ethosu.npu_faults import fault, unsupported
from emitc.ethosu.registers import Registers, Word

_MAGIC = b"COP1"
_CONFIG, _STREAM, _NOP = 0x01, 0x02, 0x05
_U55, _U65 = 0, 1
_FAMILIES = {_U55: "ethos-u55", _U65: "ethos-u65"}
_MACS = {_U55: (32, 64, 128, 256), _U65: (256,)}
_NARROW_MACS = 32
"""The configuration whose blocks of weights interleave 4 output channels, all others 8."""

_IFM_DTYPES = {0: "uint8", 1: "int8", 4: "uint16", 5: "int16", 8: "uint32", 9: "int32"}
_OFM_DTYPES = {0: "uint8", 1: "int8", 2: "uint16", 3: "int16", 4: "uint32", 5: "int32"}
_ELEMENT_BYTES = {"uint8": 1, "int8": 1, "uint16": 2, "int16": 2, "uint32": 4, "int32": 4}
_MAX_COMMANDS = 1 << 20
_REGIONS = 8
_FIRST_TABLE, _TABLES = 16, 8
_TANH, _SIGMOID = 3, 4
_BROADCAST_HEIGHT, _BROADCAST_WIDTH, _BROADCAST_DEPTH, _SWAPPED, _SCALAR = 1, 2, 4, 0x40, 0x80
_CLIP_BY_TYPE, _CLIP_UINT8, _CLIP_INT8, _CLIP_INT16 = 0, 2, 3, 5
_CLIPS = {_CLIP_UINT8: (0, 255), _CLIP_INT8: (-128, 127), _CLIP_INT16: (-32768, 32767)}
_RANGES = {"uint8": (0, 255), "int8": (-128, 127), "uint16": (0, 65535), "int16": (-32768, 32767)}
_ACCUMULATOR_BITS = {0: 32, 1: 40}

_Member = TypeVar("_Member", bound=Enum)


def decode(payload: bytes) -> CommandStream:
    """The operations of a payload in the driver's format COP1, as vela writes it.

    Raises NpuFault for a payload that contradicts itself, NpuUnsupported for a chip or an operation without a host model.
    """
    accelerator, stream = _containers(payload)
    return CommandStream(accelerator, _Decoder(accelerator).commands(stream))


def _containers(payload: bytes) -> tuple[Accelerator, tuple[int, ...]]:
    """The chip, and the one command stream."""
    if payload[:4] != _MAGIC or len(payload) % 4:
        raise fault(
            "this is no driver payload",
            f"{len(payload)} bytes, first {payload[:4]!r}; COP1 and whole words are expected",
        )
    words: tuple[int, ...] = struct.unpack(f"<{len(payload) // 4}I", payload)
    accelerator: Accelerator | None = None
    stream: tuple[int, ...] | None = None
    position = 1
    while position < len(words):
        action, high, low = words[position] & 0xFF, words[position] >> 8 & 0xFF, words[position] >> 16
        position += 1
        if action == _CONFIG:
            if position + 2 > len(words):
                raise fault("the payload is cut", "its configuration has two words", f"word {position}")
            accelerator = _accelerator(words[position])
            position += 2
        elif action == _STREAM:
            count = high << 16 | low
            if stream is not None or position + count > len(words):
                raise fault(
                    "the payload has a wrong command stream",
                    f"one of {count} words is announced, {len(words) - position} are left"
                    if stream is None
                    else "there are two",
                    f"word {position}",
                )
            stream = words[position : position + count]
            position += count
        elif action != _NOP:
            raise fault("the payload has an unknown part", f"driver action {action}", f"word {position - 1}")
    if accelerator is None or stream is None:
        raise fault("the payload is not complete", "a configuration and a command stream are expected")
    return accelerator, stream


def _accelerator(config: int) -> Accelerator:
    """The chip of a configuration word: product, log2 of the MACs, kilobytes of internal memory."""
    product, macs, kilobytes = config >> 28, 1 << (config & 0xF), config >> 8 & 0xFF
    if product not in _FAMILIES or macs not in _MACS[product]:
        raise unsupported(
            "there is no host model of this accelerator",
            f"configuration 0x{config:08x}: product {product} with {macs} MACs",
        )
    if kilobytes < 4:
        raise fault("the payload's configuration is wrong", f"0x{config:08x} says {kilobytes} KB of internal memory")
    return Accelerator(f"{_FAMILIES[product]}-{macs}", macs, kilobytes * 1024, 4 if macs == _NARROW_MACS else 8)


class _Decoder:
    """One pass over a stream. `_place` names the command at hand."""

    def __init__(self, accelerator: Accelerator) -> None:
        self._accelerator = accelerator
        self._registers = Registers()
        self._place = "payload"

    def commands(self, stream: Sequence[int]) -> tuple[Command, ...]:
        """All operations up to STOP."""
        found: list[Command] = []
        for word in regs.words(tuple(stream)):
            self._place = self._registers.place = f"command {len(found)} {word.name} (word {word.position})"
            table = regs.LONG if word.payload is not None else regs.SHORT
            if word.opcode in table:
                self._registers.set(table[word.opcode], word)
            elif word.payload is not None or word.opcode not in regs.OPERATIONS:
                raise unsupported(
                    f"the command stream has an unknown instruction {word.name}",
                    "Ethos-U55 and Ethos-U65 do not have it",
                    self._place,
                )
            elif word.opcode == regs.STOP:
                return tuple(found)
            else:
                command = self._command(word)
                if command is not None:
                    found.append(command)
            if len(found) > _MAX_COMMANDS:
                raise fault("the command stream is too long", f"more than {_MAX_COMMANDS} commands", self._place)
        raise fault("the command stream does not end", f"none of its {len(stream)} words is a STOP")

    def _command(self, word: Word) -> Command | None:
        if word.opcode in (regs.CONV, regs.DEPTHWISE):
            return self._convolution(word.opcode == regs.DEPTHWISE)
        if word.opcode == regs.POOL:
            return self._pooling(self._member(PoolKind, word.parameter, "kind of pooling"))
        if word.opcode == regs.ELEMENTWISE:
            return self._elementwise(self._member(ElementwiseKind, word.parameter, "elementwise operation"))
        if word.opcode == regs.DMA_START:
            return self._dma()
        if word.opcode in (regs.DMA_WAIT, regs.KERNEL_WAIT):
            return Wait(self._place, word.opcode == regs.DMA_WAIT, word.parameter & 0xF)
        return None  # IRQ and PMU_MASK compute nothing

    def _member(self, kind: type[_Member], number: int, what: str) -> _Member:
        """The enumeration's member of this number. Raises NpuUnsupported for a number without meaning."""
        try:
            return kind(number)
        except ValueError:
            raise unsupported(f"unknown {what}", f"its number is {number}", self._place) from None

    def _region(self, name: str) -> int:
        region = self._registers.value(name)
        if region >= _REGIONS:
            raise fault("a region does not exist", f"{name} is {region}; there are 0 to {_REGIONS - 1}", self._place)
        return region

    def _feature_map(self, prefix: str, shape: tuple[int, int, int], dtype: str, bricks: bool) -> FeatureMap:
        """The tensor that the registers with this prefix describe, of shape [H, W, C]."""
        registers = self._registers
        height, width, depth = shape
        width0 = registers.value(f"{prefix}_WIDTH0_M1") + 1
        height0 = registers.value(f"{prefix}_HEIGHT0_M1") + 1
        # What lies in tiles that the tensor does not reach need not be set.
        height1 = registers.value(f"{prefix}_HEIGHT1_M1") + 1 if width0 < width else height0
        used = (True, width0 < width, height0 < height, width0 < width and height1 < height)
        bases = [registers.address(f"{prefix}_BASE{tile}") if used[tile] else 0 for tile in range(4)]
        return FeatureMap(
            region=self._region(f"{prefix}_REGION"),
            height=height,
            width=width,
            depth=depth,
            dtype=dtype,
            bricks=bricks,
            bases=(bases[0], bases[1], bases[2], bases[3]),
            height0=height0,
            height1=height1,
            width0=width0,
            stride_y=registers.stride(f"{prefix}_STRIDE_Y"),
            stride_x=registers.stride(f"{prefix}_STRIDE_X"),
            stride_c=registers.stride(f"{prefix}_STRIDE_C") if bricks else 0,
            zero_point=registers.signed16(f"{prefix}_ZERO_POINT"),
        )

    def _input(self, prefix: str, shape: tuple[int, int, int]) -> FeatureMap:
        """IFM or IFM2. Precision: bit 0 signed, bits 2-3 width, bit 6 layout."""
        precision = self._registers.value(f"{prefix}_PRECISION")
        if precision & 0xF not in _IFM_DTYPES:
            raise unsupported("unknown element type", f"{prefix}_PRECISION is 0x{precision:x}", self._place)
        return self._feature_map(prefix, shape, _IFM_DTYPES[precision & 0xF], bool(precision >> 6 & 1))

    def _output_shape(self) -> tuple[int, int, int]:
        registers = self._registers
        return (
            registers.value("OFM_HEIGHT_M1") + 1,
            registers.value("OFM_WIDTH_M1") + 1,
            registers.value("OFM_DEPTH_M1") + 1,
        )

    def _output(self) -> Output:
        """OFM with rounding, clamp and table. Precision: bit 0 signed, 1-2 width, 6 layout, 8 global scale, 14-15 rounding."""
        registers = self._registers
        precision = registers.value("OFM_PRECISION")
        if precision & 7 not in _OFM_DTYPES:
            raise unsupported("unknown element type", f"OFM_PRECISION is 0x{precision:x}", self._place)
        dtype = _OFM_DTYPES[precision & 7]
        activation = registers.value("ACTIVATION")
        kind, clip = activation & 0xFFF, activation >> 12
        if kind in (_TANH, _SIGMOID):
            raise unsupported(
                "the NPU's own tanh and sigmoid have no host model",
                "vela's package has no table of them; it uses them for LSTM layers, and for LOGISTIC and TANH of int16",
                self._place,
            )
        table = kind - _FIRST_TABLE if _FIRST_TABLE <= kind < _FIRST_TABLE + _TABLES else None
        if (kind != 0 and table is None) or clip not in (_CLIP_BY_TYPE, *_CLIPS):
            raise unsupported("unknown activation", f"ACTIVATION is 0x{activation:x}", self._place)
        minimum, maximum = self._clamp(dtype, clip)
        scale = None
        if precision >> 8 & 1:
            multiplier, shift = registers.scale("OFM_SCALE")
            scale = Scale(multiplier, shift)
        return Output(
            feature_map=self._feature_map("OFM", self._output_shape(), dtype, bool(precision >> 6 & 1)),
            scale=scale,
            rounding=self._member(Rounding, precision >> 14, "rounding"),
            minimum=minimum,
            maximum=maximum,
            table=table,
            table_signed=dtype.startswith("i") if clip == _CLIP_BY_TYPE else clip != _CLIP_UINT8,
        )

    def _clamp(self, dtype: str, clip: int) -> tuple[int | None, int | None]:
        """The clamp in the unit of the result; none for 32-bit results, which the NPU does not clamp."""
        if clip == _CLIP_BY_TYPE and dtype not in _RANGES:
            return None, None
        least, most = _RANGES[dtype] if clip == _CLIP_BY_TYPE else _CLIPS[clip]
        registers = self._registers
        if least < 0:
            low, high = registers.signed16("ACTIVATION_MIN"), registers.signed16("ACTIVATION_MAX")
        else:
            low, high = registers.value("ACTIVATION_MIN"), registers.value("ACTIVATION_MAX")
        return max(low, least), min(high, most)

    def _kernel(self) -> Kernel:
        """Stride: bits 0 and 6-8 for x, 1 and 9-11 for y, less one; bits 3 and 4 dilation. The extent includes dilation."""
        registers = self._registers
        bits = registers.value("KERNEL_STRIDE")
        dilation_x, dilation_y = 1 + (bits >> 3 & 1), 1 + (bits >> 4 & 1)
        return Kernel(
            height=registers.value("KERNEL_HEIGHT_M1") // dilation_y + 1,
            width=registers.value("KERNEL_WIDTH_M1") // dilation_x + 1,
            stride_y=1 + (bits >> 1 & 1) + ((bits >> 9 & 7) << 1),
            stride_x=1 + (bits & 1) + ((bits >> 6 & 7) << 1),
            dilation_y=dilation_y,
            dilation_x=dilation_x,
        )

    def _window(self, kernel: Kernel) -> tuple[Padding, Upscale, FeatureMap]:
        """Padding, upscaling and the input, whose size follows from the output's."""
        registers = self._registers
        padding = Padding(
            registers.value("IFM_PAD_TOP"),
            registers.value("IFM_PAD_LEFT"),
            registers.value("IFM_PAD_BOTTOM"),
            registers.value("IFM_PAD_RIGHT"),
        )
        upscale = self._member(Upscale, registers.value("IFM_UPSCALE"), "upscaling")
        height, width, _ = self._output_shape()
        rows = (height - 1) * kernel.stride_y + kernel.extent_y - padding.top - padding.bottom
        columns = (width - 1) * kernel.stride_x + kernel.extent_x - padding.left - padding.right
        if (
            rows < 1
            or columns < 1
            or max(padding.top, padding.bottom) >= kernel.extent_y
            or max(padding.left, padding.right) >= kernel.extent_x
        ):
            raise fault(
                "the padding is larger than the kernel",
                f"{padding} with a kernel of {kernel.extent_y}x{kernel.extent_x}",
                self._place,
            )
        if upscale is not Upscale.NONE:
            rows, columns = -(-rows // 2), -(-columns // 2)
        return padding, upscale, self._input("IFM", (rows, columns, registers.value("IFM_DEPTH_M1") + 1))

    def _convolution(self, depthwise: bool) -> Convolution:
        registers = self._registers
        if registers.has("PARALLEL_MODE") and registers.value("PARALLEL_MODE"):
            raise unsupported(
                "two weight streams in parallel have no host model", "PARALLEL_MODE is set, as on 512 MACs", self._place
            )
        kernel = self._kernel()
        padding, upscale, ifm = self._window(kernel)
        output = self._output()
        bits = _ACCUMULATOR_BITS.get(registers.value("ACC_FORMAT"))
        if bits is None or ifm.dtype not in ("uint8", "int8", "int16"):
            raise unsupported(
                "a convolution of these types has no host model",
                f"input {ifm.dtype}, ACC_FORMAT {registers.value('ACC_FORMAT')}",
                self._place,
            )
        if depthwise and output.feature_map.depth != ifm.depth:
            raise fault(
                "a depthwise convolution changes the number of channels",
                f"{ifm.depth} in, {output.feature_map.depth} out",
                self._place,
            )
        return Convolution(
            place=self._place,
            depthwise=depthwise,
            ifm=ifm,
            output=output,
            kernel=kernel,
            padding=padding,
            upscale=upscale,
            weights=self._span("WEIGHT"),
            scales=self._span("SCALE"),
            block_depth=registers.value("OFM_BLK_DEPTH_M1") + 1,
            part_kernel_first=bool(registers.value("KERNEL_STRIDE") >> 2 & 1),
            accumulator_bits=bits,
        )

    def _span(self, prefix: str) -> Span:
        registers = self._registers
        return Span(
            self._region(f"{prefix}_REGION"), registers.address(f"{prefix}_BASE"), registers.value(f"{prefix}_LENGTH")
        )

    def _pooling(self, kind: PoolKind) -> Pooling:
        output = self._output()
        if kind is PoolKind.REDUCE_SUM:
            height, width, depth = self._output_shape()
            if depth != 1:
                raise fault("a sum over channels has several channels", f"output depth {depth}", self._place)
            ifm = self._input("IFM", (height, width, self._registers.value("IFM_DEPTH_M1") + 1))
            return Pooling(self._place, kind, ifm, output, Kernel(1, 1, 1, 1, 1, 1), Padding(0, 0, 0, 0), Upscale.NONE)
        kernel = self._kernel()
        padding, upscale, ifm = self._window(kernel)
        if ifm.depth < output.feature_map.depth:
            raise fault(
                "a pooling makes channels out of nothing",
                f"{ifm.depth} in, {output.feature_map.depth} out",
                self._place,
            )
        return Pooling(self._place, kind, ifm, output, kernel, padding, upscale)

    def _elementwise(self, kind: ElementwiseKind) -> Elementwise:
        registers = self._registers
        shape = self._output_shape()
        ifm = self._input("IFM", shape)
        ifm2: FeatureMap | int | None = None
        swapped, zero_point = False, 0
        if not kind.unary:
            broadcast = registers.value("IFM2_BROADCAST")
            swapped = bool(broadcast & _SWAPPED)
            zero_point = registers.signed16("IFM2_ZERO_POINT")
            if broadcast & _SCALAR:
                is_signed = registers.value("IFM2_PRECISION") & 1
                ifm2 = registers.signed16("IFM2_SCALAR") if is_signed else registers.value("IFM2_SCALAR")
            else:
                ifm2 = self._input(
                    "IFM2",
                    (
                        1 if broadcast & _BROADCAST_HEIGHT else shape[0],
                        1 if broadcast & _BROADCAST_WIDTH else shape[1],
                        1 if broadcast & _BROADCAST_DEPTH else shape[2],
                    ),
                )
        scaling, scale_a, scale_b = OperandScaling.BOTH, None, None
        if kind in (ElementwiseKind.ADD, ElementwiseKind.SUB) and _ELEMENT_BYTES[ifm.dtype] < 4:
            mode = registers.value("IFM_PRECISION") >> 8 & 3
            scaling = self._member(OperandScaling, mode, "operand scaling")
            scale_a = Scale(*registers.scale("OPA_SCALE"))
            if scaling is OperandScaling.BOTH:
                scale_b = Scale(*registers.scale("OPB_SCALE"))
        return Elementwise(self._place, kind, ifm, ifm2, zero_point, swapped, scaling, scale_a, scale_b, self._output())

    def _dma(self) -> Dma:
        registers = self._registers
        ends: list[tuple[int | None, int]] = []
        for side in ("SRC", "DST"):
            bits = registers.value(f"DMA0_{side}_REGION")
            if bits >> 9 & 3:
                raise unsupported("a strided copy has no host model", f"DMA0_{side}_REGION is 0x{bits:x}", self._place)
            internal = bool(bits >> 8 & 1)
            if not internal and bits & 0xFF >= _REGIONS:
                raise fault("a region does not exist", f"DMA0_{side}_REGION is 0x{bits:x}", self._place)
            ends.append((None if internal else bits & 0xFF, registers.address(f"DMA0_{side}")))
        size = registers.address("DMA0_LEN")
        return Dma(self._place, ends[0][0], ends[0][1], ends[1][0], ends[1][1], size)

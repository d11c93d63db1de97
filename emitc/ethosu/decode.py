"""A driver payload to the operations in it: containers, registers and their fields, all checked.

The payload is untrusted. Every loop is bounded by its length, every field by the number of its bits; a register that is
read before it is set, a value without a meaning and a stream without an end are faults.
"""

import struct
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Any, TypeVar

from emitc.ethosu import commands as npu
from emitc.ethosu import registers as regs
from emitc.ethosu.commands import NpuFault, NpuUnsupported, fault, unsupported
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
_MAX_COMMANDS = 1 << 20
_REGIONS = 8
_FIRST_TABLE, _TABLES = 16, 8
_TANH, _SIGMOID = 3, 4
_SWAPPED, _SCALAR = 0x40, 0x80
"""Bits of IFM2_BROADCAST; bits 0 to 2 say that height, width or depth is 1."""
_CLIP_BY_TYPE, _CLIP_UINT8, _CLIP_INT8, _CLIP_INT16 = 0, 2, 3, 5
_CLIPS = {_CLIP_UINT8: (0, 255), _CLIP_INT8: (-128, 127), _CLIP_INT16: (-32768, 32767)}
_RANGES = {"uint8": (0, 255), "int8": (-128, 127), "uint16": (0, 65535), "int16": (-32768, 32767)}
_ACCUMULATOR_BITS = {0: 32, 1: 40}

_Member = TypeVar("_Member", bound=Enum)


def decode(payload: bytes) -> npu.CommandStream:
    """The operations of a payload in the driver's format COP1, as vela writes it.

    Raises NpuFault for a payload that contradicts itself, NpuUnsupported for a chip or an operation without a host model.
    """
    accelerator, stream = _containers(payload)
    return npu.CommandStream(accelerator, _Decoder(accelerator).commands(stream))


def _containers(payload: bytes) -> tuple[npu.Accelerator, tuple[int, ...]]:
    """The chip, and the one command stream."""
    if payload[:4] != _MAGIC or len(payload) % 4:
        why = f"{len(payload)} bytes, first {payload[:4]!r}; COP1 and whole words are expected"
        raise fault("this is no driver payload", why)
    words: tuple[int, ...] = struct.unpack(f"<{len(payload) // 4}I", payload)
    accelerator: npu.Accelerator | None = None
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
                why = f"one of {count} words is announced, {len(words) - position} are left"
                why = why if stream is None else "there are two"
                raise fault("the payload has a wrong command stream", why, f"word {position}")
            stream = words[position : position + count]
            position += count
        elif action != _NOP:
            raise fault("the payload has an unknown part", f"driver action {action}", f"word {position - 1}")
    if accelerator is None or stream is None:
        raise fault("the payload is not complete", "a configuration and a command stream are expected")
    return accelerator, stream


def _accelerator(config: int) -> npu.Accelerator:
    """The chip of a configuration word: product, log2 of the MACs, kilobytes of internal memory."""
    product, macs, kilobytes = config >> 28, 1 << (config & 0xF), config >> 8 & 0xFF
    if product not in _FAMILIES or macs not in _MACS[product]:
        why = f"configuration 0x{config:08x}: product {product} with {macs} MACs"
        raise unsupported("there is no host model of this accelerator", why)
    if kilobytes < 4:
        raise fault("the payload's configuration is wrong", f"0x{config:08x} says {kilobytes} KB of internal memory")
    return npu.Accelerator(f"{_FAMILIES[product]}-{macs}", macs, kilobytes * 1024, 4 if macs == _NARROW_MACS else 8)


class _Decoder:
    """One pass over a stream. `_place` names the command at hand."""

    def __init__(self, accelerator: npu.Accelerator) -> None:
        self._accelerator = accelerator
        self._registers = Registers()
        self._place = "payload"

    def commands(self, stream: Sequence[int]) -> tuple[npu.Command, ...]:
        commands: list[npu.Command] = []
        for word in regs.words(tuple(stream)):
            self._place = self._registers.place = f"command {len(commands)} {word.name} (word {word.position})"
            table = regs.LONG if word.payload is not None else regs.SHORT
            if word.opcode in table:
                self._registers.set(table[word.opcode], word)
            elif word.payload is not None or word.opcode not in regs.OPERATIONS:
                what = f"the command stream has an unknown instruction {word.name}"
                raise self._unsupported(what, "Ethos-U55 and Ethos-U65 do not have it")
            elif word.opcode == regs.STOP:
                return tuple(commands)
            else:
                command = self._command(word)
                if command is not None:
                    commands.append(command)
            if len(commands) > _MAX_COMMANDS:
                raise self._fault("the command stream is too long", f"more than {_MAX_COMMANDS} commands")
        raise fault("the command stream does not end", f"none of its {len(stream)} words is a STOP")

    def _command(self, word: Word) -> npu.Command | None:
        if word.opcode in (regs.CONV, regs.DEPTHWISE):
            return self._convolution(word.opcode == regs.DEPTHWISE)
        if word.opcode == regs.POOL:
            return self._pooling(self._member(npu.PoolKind, word.parameter, "kind of pooling"))
        if word.opcode == regs.ELEMENTWISE:
            return self._elementwise(self._member(npu.ElementwiseKind, word.parameter, "elementwise operation"))
        if word.opcode == regs.DMA_START:
            return npu.Dma(self._place, self._end_of_copy("SRC"), self._end_of_copy("DST"))
        if word.opcode in (regs.DMA_WAIT, regs.KERNEL_WAIT):
            return npu.Wait(self._place, word.opcode == regs.DMA_WAIT, word.parameter & 0xF)
        return None  # IRQ and PMU_MASK compute nothing

    def _fault(self, what: str, why: str) -> NpuFault:
        return fault(what, why, self._place)

    def _unsupported(self, what: str, why: str) -> NpuUnsupported:
        return unsupported(what, why, self._place)

    def _member(self, kind: type[_Member], number: int, what: str) -> _Member:
        """The enumeration's member of this number. Raises NpuUnsupported for a number without meaning."""
        try:
            return kind(number)
        except ValueError:
            raise self._unsupported(f"unknown {what}", f"its number is {number}") from None

    def _region(self, name: str) -> int:
        region = self._registers.value(name)
        if region >= _REGIONS:
            raise self._fault("a region does not exist", f"{name} is {region}; there are 0 to {_REGIONS - 1}")
        return region

    def _feature_map(self, prefix: str, shape: tuple[int, int, int], dtype: str) -> npu.FeatureMap:
        """The tensor that the registers with this prefix describe, of shape [H, W, C]. Bit 6 of the precision is the layout."""
        registers = self._registers
        height, width, depth = shape
        bricks = bool(registers.value(f"{prefix}_PRECISION") >> 6 & 1)
        width0, height0 = registers.size(f"{prefix}_WIDTH0"), registers.size(f"{prefix}_HEIGHT0")
        # What lies in tiles that the tensor does not reach need not be set.
        height1 = registers.size(f"{prefix}_HEIGHT1") if width0 < width else height0
        used = (True, width0 < width, height0 < height, width0 < width and height1 < height)
        bases = [registers.address(f"{prefix}_BASE{tile}") if used[tile] else 0 for tile in range(4)]
        return npu.FeatureMap(
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

    def _dtype(self, prefix: str, dtypes: Mapping[int, str], bits: int) -> str:
        """The element type that the low bits of a precision register state: bit 0 signed, the others the width."""
        precision = self._registers.value(f"{prefix}_PRECISION")
        if precision & bits not in dtypes:
            raise self._unsupported("unknown element type", f"{prefix}_PRECISION is 0x{precision:x}")
        return dtypes[precision & bits]

    def _input(self, prefix: str, shape: tuple[int, int, int]) -> npu.FeatureMap:
        return self._feature_map(prefix, shape, self._dtype(prefix, _IFM_DTYPES, 0xF))

    def _output_shape(self) -> tuple[int, int, int]:
        size = self._registers.size
        return size("OFM_HEIGHT"), size("OFM_WIDTH"), size("OFM_DEPTH")

    def _output(self) -> npu.Output:
        """OFM with rounding, clamp and table. Bit 8 of the precision says that it has one scale, 14 and 15 the rounding."""
        registers = self._registers
        dtype, precision = self._dtype("OFM", _OFM_DTYPES, 7), registers.value("OFM_PRECISION")
        activation = registers.value("ACTIVATION")
        kind, clip = activation & 0xFFF, activation >> 12
        if kind in (_TANH, _SIGMOID):
            why = (
                "vela's package has no table of them; it uses them for LSTM layers, and for LOGISTIC and TANH of int16"
            )
            raise self._unsupported("the NPU's own tanh and sigmoid have no host model", why)
        table = kind - _FIRST_TABLE if _FIRST_TABLE <= kind < _FIRST_TABLE + _TABLES else None
        if (kind != 0 and table is None) or clip not in (_CLIP_BY_TYPE, *_CLIPS):
            raise self._unsupported("unknown activation", f"ACTIVATION is 0x{activation:x}")
        minimum, maximum = self._clamp(dtype, clip)
        return npu.Output(
            feature_map=self._feature_map("OFM", self._output_shape(), dtype),
            scale=registers.scale("OFM_SCALE") if precision >> 8 & 1 else None,
            rounding=self._member(npu.Rounding, precision >> 14, "rounding"),
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
        read = self._registers.signed16 if least < 0 else self._registers.value
        return max(read("ACTIVATION_MIN"), least), min(read("ACTIVATION_MAX"), most)

    def _kernel(self) -> npu.Kernel:
        """Stride: bits 0 and 6-8 for x, 1 and 9-11 for y, less one; bits 3 and 4 dilation. The extent includes dilation."""
        registers = self._registers
        bits = registers.value("KERNEL_STRIDE")
        dilation_x, dilation_y = 1 + (bits >> 3 & 1), 1 + (bits >> 4 & 1)
        return npu.Kernel(
            height=registers.value("KERNEL_HEIGHT_M1") // dilation_y + 1,
            width=registers.value("KERNEL_WIDTH_M1") // dilation_x + 1,
            stride_y=1 + (bits >> 1 & 1) + ((bits >> 9 & 7) << 1),
            stride_x=1 + (bits & 1) + ((bits >> 6 & 7) << 1),
            dilation_y=dilation_y,
            dilation_x=dilation_x,
        )

    def _window(self) -> dict[str, Any]:
        """Kernel, padding, upscaling and the input, whose size follows from the output's: the fields of Windowed."""
        registers, kernel = self._registers, self._kernel()
        padding = npu.Padding(*(registers.value(f"IFM_PAD_{side}") for side in ("TOP", "LEFT", "BOTTOM", "RIGHT")))
        upscale = self._member(npu.Upscale, registers.value("IFM_UPSCALE"), "upscaling")
        height, width, _ = self._output_shape()
        rows = (height - 1) * kernel.stride_y + kernel.extent_y - padding.top - padding.bottom
        columns = (width - 1) * kernel.stride_x + kernel.extent_x - padding.left - padding.right
        beyond_rows = max(padding.top, padding.bottom) >= kernel.extent_y
        if min(rows, columns) < 1 or beyond_rows or max(padding.left, padding.right) >= kernel.extent_x:
            why = f"{padding} with a kernel of {kernel.extent_y}x{kernel.extent_x}"
            raise self._fault("the padding is larger than the kernel", why)
        if upscale is not npu.Upscale.NONE:
            rows, columns = -(-rows // 2), -(-columns // 2)
        ifm = self._input("IFM", (rows, columns, registers.size("IFM_DEPTH")))
        return {"kernel": kernel, "padding": padding, "upscale": upscale, "ifm": ifm}

    def _convolution(self, depthwise: bool) -> npu.Convolution:
        registers = self._registers
        if registers.has("PARALLEL_MODE") and registers.value("PARALLEL_MODE"):
            why = "PARALLEL_MODE is set, as on 512 MACs"
            raise self._unsupported("two weight streams in parallel have no host model", why)
        window, output = self._window(), self._output()
        ifm: npu.FeatureMap = window["ifm"]
        bits = _ACCUMULATOR_BITS.get(registers.value("ACC_FORMAT"))
        if bits is None or ifm.dtype not in ("uint8", "int8", "int16"):
            why = f"input {ifm.dtype}, ACC_FORMAT {registers.value('ACC_FORMAT')}"
            raise self._unsupported("a convolution of these types has no host model", why)
        if depthwise and output.feature_map.depth != ifm.depth:
            channels = f"{ifm.depth} in, {output.feature_map.depth} out"
            raise self._fault("a depthwise convolution changes the number of channels", channels)
        return npu.Convolution(
            place=self._place,
            output=output,
            **window,
            depthwise=depthwise,
            weights=self._span("WEIGHT"),
            scales=self._span("SCALE"),
            block_depth=registers.size("OFM_BLK_DEPTH"),
            part_kernel_first=bool(registers.value("KERNEL_STRIDE") >> 2 & 1),
            accumulator_bits=bits,
        )

    def _span(self, prefix: str) -> npu.Span:
        first, size = self._registers.address(f"{prefix}_BASE"), self._registers.value(f"{prefix}_LENGTH")
        return npu.Span(self._region(f"{prefix}_REGION"), first, size)

    def _pooling(self, kind: npu.PoolKind) -> npu.Pooling:
        output = self._output()
        if kind is npu.PoolKind.REDUCE_SUM:
            height, width, depth = self._output_shape()
            if depth != 1:
                raise self._fault("a sum over channels has several channels", f"output depth {depth}")
            ifm = self._input("IFM", (height, width, self._registers.size("IFM_DEPTH")))
            return npu.Pooling(
                self._place, ifm, output, npu.Kernel(1, 1, 1, 1, 1, 1), npu.Padding(0, 0, 0, 0), npu.Upscale.NONE, kind
            )
        window = self._window()
        if window["ifm"].depth < output.feature_map.depth:
            channels = f"{window['ifm'].depth} in, {output.feature_map.depth} out"
            raise self._fault("a pooling makes channels out of nothing", channels)
        return npu.Pooling(place=self._place, output=output, **window, kind=kind)

    def _elementwise(self, kind: npu.ElementwiseKind) -> npu.Elementwise:
        registers = self._registers
        shape = self._output_shape()
        ifm = self._input("IFM", shape)
        ifm2: npu.FeatureMap | int | None = None
        swapped, zero_point = False, 0
        if kind not in npu.UNARY:
            broadcast = registers.value("IFM2_BROADCAST")
            swapped = bool(broadcast & _SWAPPED)
            zero_point = registers.signed16("IFM2_ZERO_POINT")
            if broadcast & _SCALAR:
                is_signed = registers.value("IFM2_PRECISION") & 1
                ifm2 = registers.signed16("IFM2_SCALAR") if is_signed else registers.value("IFM2_SCALAR")
            else:
                height, width, depth = (1 if broadcast >> axis & 1 else size for axis, size in enumerate(shape))
                ifm2 = self._input("IFM2", (height, width, depth))
        scaling, scale_a, scale_b = npu.OperandScaling.BOTH, None, None
        if kind in (npu.ElementwiseKind.ADD, npu.ElementwiseKind.SUB) and ifm.element_bytes < 4:
            mode = registers.value("IFM_PRECISION") >> 8 & 3
            scaling = self._member(npu.OperandScaling, mode, "operand scaling")
            scale_a = registers.scale("OPA_SCALE")
            scale_b = registers.scale("OPB_SCALE") if scaling is npu.OperandScaling.BOTH else None
        return npu.Elementwise(
            self._place, ifm, self._output(), kind, ifm2, zero_point, swapped, scaling, scale_a, scale_b
        )

    def _end_of_copy(self, side: str) -> npu.Span:
        """Bits 0 to 7 of the region's register are its number, bit 8 says internal memory, 9 and 10 strides."""
        registers = self._registers
        bits = registers.value(f"DMA0_{side}_REGION")
        if bits >> 9 & 3:
            raise self._unsupported("a strided copy has no host model", f"DMA0_{side}_REGION is 0x{bits:x}")
        internal = bool(bits >> 8 & 1)
        if not internal and bits & 0xFF >= _REGIONS:
            raise self._fault("a region does not exist", f"DMA0_{side}_REGION is 0x{bits:x}")
        return npu.Span(
            None if internal else bits & 0xFF, registers.address(f"DMA0_{side}"), registers.address("DMA0_LEN")
        )

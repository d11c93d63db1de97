"""Payloads to commands: fields, sticky registers, and everything that is refused."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable

import pytest

from emitc.errors import EmitcError
from emitc.ethosu import registers as regs
from emitc.ethosu.commands import (
    Convolution,
    Dma,
    Elementwise,
    ElementwiseKind,
    Kernel,
    NpuFault,
    NpuUnsupported,
    Padding,
    Pooling,
    PoolKind,
    Rounding,
    Scale,
    Span,
    Upscale,
    Wait,
)
from emitc.ethosu.decode import decode
from tests.support.npu.streams import U55_128, Stream


def convolution() -> Stream:
    """A convolution 3x3 with everything set but the operation itself."""
    stream = Stream().tensor("IFM", (6, 7, 4), zero_point=-3).output((3, 7, 8), zero_point=5)
    stream.window((3, 3), stride=(2, 1), padding=(1, 1, 0, 1)).set("ACC_FORMAT", 0).set("OFM_BLK_DEPTH_M1", 15)
    stream.set("WEIGHT_REGION", 0).set("WEIGHT_BASE", 0).set("WEIGHT_LENGTH", 32)
    return stream.set("SCALE_REGION", 0).set("SCALE_BASE", 32).set("SCALE_LENGTH", 80)


def pooling() -> Stream:
    """The registers of a pooling 2x2 of 4x4x8."""
    return Stream().tensor("IFM", (4, 4, 8)).output((2, 2, 8)).window((2, 2), stride=(2, 2))


def elementwise() -> Stream:
    """The registers of an addition."""
    stream = Stream().tensor("IFM", (2, 2, 8)).tensor("IFM2", (2, 2, 8), base=64).output((2, 2, 8), scale=(1, 0))
    return stream.set("IFM2_BROADCAST", 0).set("OPA_SCALE", 1).set("OPB_SCALE", 2)


def test_the_chip() -> None:
    """Product, MACs and kilobytes of internal memory; four interleaved channels on 32 MACs alone."""
    configs = {0x1005: ("ethos-u55-32", 4), 0x1006: ("ethos-u55-64", 8), U55_128: ("ethos-u55-128", 8),
               0x3008: ("ethos-u55-256", 8), 0x10003008: ("ethos-u65-256", 8)}  # fmt: skip
    for word, (name, channels) in configs.items():
        chip = decode(Stream().payload(word)).accelerator
        assert (chip.name, chip.block_channels, chip.shram_bytes) == (name, channels, (word >> 8 & 0xFF) * 1024)


def test_a_convolution() -> None:
    (command,) = decode(convolution().run(regs.CONV).payload()).commands
    assert isinstance(command, Convolution)
    assert command.kernel == Kernel(3, 3, 2, 1, 1, 1) and command.padding == Padding(1, 1, 0, 1)
    # The input's size follows from output, stride, kernel and padding.
    assert (command.ifm.height, command.ifm.width, command.ifm.depth) == (6, 7, 4)
    assert (command.ifm.dtype, command.ifm.zero_point, command.ifm.bricks, command.ifm.stride_y) == (
        "int8",
        -3,
        False,
        28,
    )
    assert command.weights == Span(0, 0, 32) and command.scales == Span(0, 32, 80)
    assert (command.block_depth, command.accumulator_bits, command.depthwise, command.part_kernel_first) == (
        16,
        32,
        False,
        False,
    )
    output = command.output
    assert (output.minimum, output.maximum, output.scale, output.rounding) == (-128, 127, None, Rounding.TFL)
    assert command.place.startswith("command 0 CONV (word ")


def test_strides_dilation_and_upscaling() -> None:
    for stride in ((1, 1), (2, 3), (3, 2), (4, 8)):
        stream = Stream().tensor("IFM", (16, 16, 8)).output((1, 1, 8)).window((2, 3), stride=stride, dilation=(2, 1))
        (command,) = decode(stream.run(regs.POOL, 1).payload()).commands
        assert isinstance(command, Pooling)
        assert command.kernel == Kernel(2, 3, *stride, 2, 1)
        assert (command.ifm.height, command.ifm.width) == (3, 3)
    (command,) = decode(pooling().set("IFM_UPSCALE", 2).run(regs.POOL, 0).payload()).commands
    assert isinstance(command, Pooling)
    assert (command.kind, command.upscale, command.ifm.height) == (PoolKind.MAX, Upscale.ZEROS, 2)


def test_registers_keep_their_value() -> None:
    first, second = decode(pooling().run(regs.POOL, 1).set("OFM_ZERO_POINT", 9).run(regs.POOL, 0).payload()).commands
    assert isinstance(first, Pooling) and isinstance(second, Pooling)
    assert first.ifm == second.ifm
    assert (first.output.feature_map.zero_point, second.output.feature_map.zero_point) == (0, 9)


def test_addresses_have_40_bits_and_scales_a_shift() -> None:
    stream = elementwise().set("IFM_BASE0", 16, 3).set("OPA_SCALE", 2**31, 17).set("IFM_PRECISION", 0x101)
    (command,) = decode(stream.run(regs.ELEMENTWISE, 1).payload()).commands
    assert isinstance(command, Elementwise)
    assert command.ifm.bases[0] == 3 << 32 | 16
    assert (command.kind, command.scale_a, command.scale_b) == (ElementwiseKind.ADD, Scale(2**31, 17), None)


def test_scalars_are_signed_by_their_type() -> None:
    for precision, expected in ((1, -5), (0, 0xFFFB)):
        stream = (
            elementwise().set("IFM2_BROADCAST", 0x80 | 0x40).set("IFM2_PRECISION", precision).set("IFM2_SCALAR", -5)
        )
        (command,) = decode(stream.run(regs.ELEMENTWISE, 0).payload()).commands
        assert isinstance(command, Elementwise)
        assert (command.ifm2, command.swapped) == (expected, True)


def test_copies_and_waits() -> None:
    stream = Stream().copy((0, 48), (0x100, 64), 256).run(regs.KERNEL_WAIT, 1).run(regs.IRQ)
    copy, dma_wait, kernel_wait = decode(stream.payload()).commands
    assert isinstance(copy, Dma) and isinstance(dma_wait, Wait) and isinstance(kernel_wait, Wait)
    assert (copy.source, copy.destination) == (Span(0, 48, 256), Span(None, 64, 256))
    assert (dma_wait.dma, dma_wait.outstanding, kernel_wait.dma, kernel_wait.outstanding) == (True, 0, False, 1)


def _words(payload: bytes, **changes: int) -> bytes:
    """The payload with words replaced: w3=... is word 3."""
    words = list(struct.unpack(f"<{len(payload) // 4}I", payload))
    for name, value in changes.items():
        words[int(name[1:])] = value
    return struct.pack(f"<{len(words)}I", *words)


EMPTY = Stream().payload()
DAMAGED: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "0 bytes, first b''"),
    "magic": (b"COP2" + EMPTY[4:], "COP1 and whole words are expected"),
    "bytes": (EMPTY + b"\0", "whole words"),
    "config_cut": (EMPTY[:8], "its configuration has two words"),
    "action": (_words(EMPTY, w4=0x77), "driver action 119"),
    "no_stream": (_words(EMPTY, w7=5, w8=5), "a configuration and a command stream are expected"),
    "stream_cut": (_words(EMPTY, w7=2 | 9 << 16), "one of 9 words is announced, 1 are left"),
    "two_streams": (_words(EMPTY, w6=2, w7=2 | 1 << 16), "there are two"),
    "no_memory": (Stream().payload(0x0007), "0 KB of internal memory"),
    "no_stop": (Stream().run(regs.IRQ).payload(stop=False), "none of its 1 words is a STOP"),
    "cut_instruction": (_words(EMPTY, w8=1 << 14), "its last instruction has two words"),
    "unset": (Stream().run(regs.POOL).payload(), "its value after a reset is not defined"),
    "region": (pooling().set("IFM_REGION", 8).run(regs.POOL).payload(), "IFM_REGION is 8"),
    "dma_region": (Stream().copy((9, 0), (1, 0), 16).payload(), "DMA0_SRC_REGION is 0x9"),
    "padding": (pooling().set("IFM_PAD_TOP", 2).run(regs.POOL).payload(), "with a kernel of 2x2"),
    "negative_input": (
        pooling().set("OFM_HEIGHT_M1", 0).window((2, 2), padding=(1, 0, 1, 0)).run(regs.POOL).payload(),
        "with a kernel of 2x2",
    ),
    "channels": (convolution().run(regs.DEPTHWISE).payload(), "4 in, 8 out"),
    "more_channels": (pooling().set("IFM_DEPTH_M1", 3).run(regs.POOL).payload(), "4 in, 8 out"),
    "sum_channels": (pooling().run(regs.POOL, 2).payload(), "output depth 8"),
}
UNSUPPORTED: dict[str, tuple[bytes, str]] = {
    "u85": (Stream().payload(0x20000007), "product 2 with 128 MACs"),
    "512_macs": (Stream().payload(0x10003009), "product 1 with 512 MACs"),
    "opcode": (Stream().run(0x3F).payload(), "unknown instruction 0x03f"),
    "long_opcode": (_words(Stream().run(0).run(0).payload(), w8=1 << 14 | 0x60), "unknown instruction 0x060"),
    "pool_kind": (pooling().run(regs.POOL, 3).payload(), "its number is 3"),
    "elementwise_kind": (elementwise().run(regs.ELEMENTWISE, 12).payload(), "its number is 12"),
    "tanh": (pooling().set("ACTIVATION", 3).run(regs.POOL).payload(), "vela's package has no table of them"),
    "activation": (pooling().set("ACTIVATION", 7).run(regs.POOL).payload(), "ACTIVATION is 0x7"),
    "clip": (pooling().set("ACTIVATION", 1 << 12).run(regs.POOL).payload(), "ACTIVATION is 0x1000"),
    "ifm_type": (pooling().set("IFM_PRECISION", 0xC).run(regs.POOL).payload(), "IFM_PRECISION is 0xc"),
    "ofm_type": (pooling().set("OFM_PRECISION", 6).run(regs.POOL).payload(), "OFM_PRECISION is 0x6"),
    "rounding": (pooling().set("OFM_PRECISION", 0xC001).run(regs.POOL).payload(), "its number is 3"),
    "upscale": (pooling().set("IFM_UPSCALE", 3).run(regs.POOL).payload(), "its number is 3"),
    "parallel": (convolution().set("PARALLEL_MODE", 1).run(regs.CONV).payload(), "as on 512 MACs"),
    "float16_sums": (convolution().set("ACC_FORMAT", 2).run(regs.CONV).payload(), "ACC_FORMAT 2"),
    "wide_convolution": (convolution().set("IFM_PRECISION", 9).run(regs.CONV).payload(), "input int32"),
    "strided_copy": (Stream().copy((0x200, 0), (1, 0), 16).payload(), "DMA0_SRC_REGION is 0x200"),
    "operand_scaling": (
        elementwise().set("IFM_PRECISION", 0x301).run(regs.ELEMENTWISE, 1).payload(),
        "its number is 3",
    ),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_what_contradicts_itself_is_a_fault(name: str) -> None:
    payload, why = DAMAGED[name]
    with pytest.raises(NpuFault) as caught:
        decode(payload)
    assert why in str(caught.value) and caught.value.exit_code == 2


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_has_no_host_model_is_named(name: str) -> None:
    payload, why = UNSUPPORTED[name]
    with pytest.raises(NpuUnsupported) as caught:
        decode(payload)
    assert why in str(caught.value) and caught.value.exit_code == 1


@pytest.mark.parametrize(
    ("make", "opcode", "parameter"),
    [(convolution, regs.CONV, 0), (pooling, regs.POOL, 1), (elementwise, regs.ELEMENTWISE, 1)],
    ids=["conv", "pool", "elementwise"],
)
def test_every_register_that_an_operation_needs_must_be_set(
    make: Callable[[], Stream], opcode: int, parameter: int
) -> None:
    """Without any one of the set instructions the stream is refused, or the register is one that the result does not use."""
    unused = {
        "IFM_BASE",
        "OFM_BASE",
        "IFM2_BASE",
        "HEIGHT1",
        "STRIDE_C",
        "SCALE_LENGTH",
        "IFM2_DEPTH",
        "IFM_DEPTH",
        "OPB",
    }
    whole = make()
    instructions = [w.position for w in regs.words(tuple(whole.words))] + [len(whole.words)]
    refused = 0
    for first, end in itertools.pairwise(instructions):
        stream = Stream()
        stream.words = whole.words[:first] + whole.words[end:]
        name = next(regs.words(tuple(whole.words[first:end]))).name
        text = ""
        try:
            decode(stream.run(opcode, parameter).payload())
        except EmitcError as error:
            text = str(error)
        assert name in text or (not text and any(part in name for part in unused)), f"{name}: {text}"
        refused += bool(text)
    assert refused > 15

"""Damaged and forged payloads: refused as errors of emitc, or run to the end; never anything else, never for long."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest

from emitc.errors import EmitcError
from emitc.ethosu import registers as regs
from emitc.ethosu.simulator import HostModel
from emitc.ethosu.weights import WeightLayout
from tests.support.npu.streams import Stream, scale_table, scratch_with, weight_stream

LAYOUT = WeightLayout(8, 3, 3, 4, False, False, False, 16, 8, 1, 1)
WEIGHTS = weight_stream(np.random.default_rng(0).integers(-50, 50, (8, 3, 3, 4)), LAYOUT)
CONSTANTS = WEIGHTS + scale_table([(10, 2**30, 38)] * 8) + bytes(range(256))


def network() -> Stream:
    """A little of everything: a copy, a convolution, a pooling, an addition, a table."""
    stream = Stream().copy((0, len(CONSTANTS) - 256), (0x100, 24 * 1024 - 2048), 256)
    stream.tensor("IFM", (6, 6, 4)).output((6, 6, 8)).window((3, 3), padding=(1, 1, 1, 1)).set("ACC_FORMAT", 0)
    stream.set("OFM_BLK_DEPTH_M1", 15).set("WEIGHT_REGION", 0).set("WEIGHT_BASE", 0).set("WEIGHT_LENGTH", len(WEIGHTS))
    stream.set("SCALE_REGION", 0).set("SCALE_BASE", len(WEIGHTS)).set("SCALE_LENGTH", 80).run(regs.CONV)
    stream.tensor("IFM", (6, 6, 8), base=4096).output((3, 3, 8), base=6000).window((2, 2), stride=(2, 2)).run(
        regs.POOL, 1
    )
    stream.tensor("IFM", (3, 3, 8), base=6000).tensor("IFM2", (3, 3, 8), base=6000).set("IFM2_BROADCAST", 0)
    stream.set("OPA_SCALE", 1).set("OPB_SCALE", 1).output((3, 3, 8), base=7000, scale=(1, 1), activation=16)
    return stream.run(regs.ELEMENTWISE, 1)


def attempt(payload: bytes, constants: bytes = CONSTANTS) -> bool:
    """Whether the payload ran; what it raises must be an error of emitc."""
    try:
        HostModel().invoke(payload, (constants, scratch_with()), initialised={1: [(0, 144)]})
    except EmitcError as error:
        refusal = error
    else:
        return True
    assert refusal.what and refusal.why and refusal.hint and str(refusal.where)
    return False


def test_the_network_itself_runs() -> None:
    assert attempt(network().payload())


@pytest.mark.sweep(keep=2)
@pytest.mark.parametrize("seed", range(40))
def test_flipped_bits_and_changed_words(seed: int) -> None:
    rng = random.Random(seed)
    good = network().payload()
    outcomes = []
    for _ in range(60):
        data = bytearray(good)
        for _ in range(rng.choice((1, 1, 2, 5))):
            if rng.random() < 0.5:
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            else:
                number = rng.choice((0, 1, 0xFFFF, 0x7FFF0000, 0xFFFFFFFF, rng.getrandbits(32)))
                struct.pack_into("<I", data, 4 * rng.randrange(len(data) // 4), number)
        outcomes.append(attempt(bytes(data)))
    assert not all(outcomes)


def test_every_truncation() -> None:
    good = network().payload()
    assert not any(attempt(good[:size]) for size in range(0, len(good) - 4, 4))
    assert not any(attempt(good[:size]) for size in range(1, 40))


def test_damaged_constants() -> None:
    rng = random.Random(1)
    outcomes = []
    for _ in range(150):
        data = bytearray(CONSTANTS)
        for _ in range(rng.choice((1, 3, 20))):
            data[rng.randrange(len(WEIGHTS) + 80)] = rng.getrandbits(8)
        outcomes.append(attempt(network().payload(), bytes(data)))
    assert True in outcomes and False in outcomes
    assert not attempt(network().payload(), CONSTANTS[: len(WEIGHTS)])


def test_random_words_with_a_right_header() -> None:
    rng = random.Random(2)
    numbers = [*regs.OPERATIONS, *regs.SHORT, *(n | 1 << 14 for n in regs.LONG)]
    for _ in range(150):
        stream = Stream()
        stream.words = [rng.choice(numbers) | rng.getrandbits(16) << 16 for _ in range(rng.randrange(1, 400))]
        assert not attempt(stream.payload()) or len(stream.words) < 400


def test_a_kernel_that_no_memory_holds() -> None:
    """Sizes of 16 bits multiply to kernels of 2^44 weights; they are refused before anything is allocated."""
    stream = network()
    stream.set("OFM_DEPTH_M1", 0xFFFF).set("IFM_DEPTH_M1", 0xFF).set("OFM_BLK_DEPTH_M1", 0).set("OFM_STRIDE_X", 0)
    stream.set("OFM_STRIDE_Y", 0).set("KERNEL_HEIGHT_M1", 63).set("KERNEL_WIDTH_M1", 63).set("OFM_HEIGHT_M1", 0)
    assert not attempt(stream.set("OFM_WIDTH_M1", 0).run(regs.CONV).payload())

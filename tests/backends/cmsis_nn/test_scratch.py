"""Buffer sizes in Python against the compiled functions of every tree and instruction set, and where more is needed."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import pytest

from emitc.backends.cmsis_nn.buffer_sizes import BUFFER_SIZES, Call, Dims, transpose_conv_second_bytes, workspace_bytes
from emitc.backends.cmsis_nn.versions import InstructionSet, Tree, named
from tests.support.cmsis.calls import Sized, corpus_calls, random_calls
from tests.support.cmsis.library import SKIPPED, Library, LibraryOf, Record, trees

TREES = trees()
RANDOM = 1000
PORTABLE, DSP, MVE = InstructionSet.PORTABLE, InstructionSet.DSP, InstructionSet.MVE

needs_tree = pytest.mark.skipif(not TREES, reason=SKIPPED)
each_tree = pytest.mark.parametrize("tree", TREES, ids=lambda tree: tree.version.name)
each_instruction_set = pytest.mark.parametrize("instructions", InstructionSet, ids=lambda i: i.value)


def _compare(library: Library, calls: Sequence[Sized]) -> int:
    """Asserts that Python and C agree on every call that the tree has a function for; returns their number."""
    known = [(name, call) for name, call in calls if name in library.available]
    results = library.run([Record(name, call, 4) for name, call in known])
    for (name, call), (status, output, _) in zip(known, results, strict=True):
        size = BUFFER_SIZES[name](library.tree.version, library.instructions, call)
        assert (status, struct.unpack("<i", output)[0]) == (0, size), f"{name} {call}"
    return len(known)


@needs_tree
@each_instruction_set
@each_tree
def test_random_layers(tree: Tree, instructions: InstructionSet, library_of: LibraryOf) -> None:
    # Not every tree has every function: so many are drawn that each is asked for RANDOM layers in all.
    share = sum(name in tree.functions for name in BUFFER_SIZES) / len(BUFFER_SIZES)
    calls = random_calls(round(2.6 * RANDOM / share))
    assert _compare(library_of(tree, instructions), calls) >= RANDOM


@needs_tree
@pytest.mark.corpus
@each_instruction_set
@each_tree
def test_layers_of_the_corpus(
    tree: Tree, instructions: InstructionSet, library_of: LibraryOf, shared_models: Path
) -> None:
    calls = corpus_calls(shared_models / "tflite")
    assert len(calls) > 500
    assert _compare(library_of(tree, instructions), calls) > 200


def image(width: int, channels: int, *, height: int = 1, batches: int = 1) -> Dims:
    """An activation."""
    return Dims(batches, height, width, channels)


CONV = Call(image(10, 3, height=8), Dims(4, 3, 3, 3), image(10, 4, height=8), pad_h=1, pad_w=1)
DEPTHWISE = Call(image(10, 6, height=8), Dims(1, 5, 5, 6), image(10, 6, height=8), pad_h=2, pad_w=2)
ONE_CHANNEL = Call(image(10, 1, height=8), Dims(1, 3, 3, 8), image(10, 8, height=8), pad_h=1, pad_w=1)
DENSE = Call(image(1, 64), Dims(64, 1, 1, 10), image(1, 10))
FOUR = Call(image(10, 4, height=8), Dims(4, 3, 3, 4), image(10, 4, height=8), pad_h=1, pad_w=1)
ROW = Call(image(16, 4), Dims(8, 1, 3, 4), image(8, 8), 1, 2)
SPREAD = Call(image(5, 20, height=4), Dims(6, 3, 3, 20), image(10, 6, height=8), 2, 2)
POOL = Call(image(10, 6, height=8), Dims(1, 2, 2, 1), image(5, 6, height=4), 2, 2)


@pytest.mark.parametrize(
    ("function", "call", "version", "sizes"),
    [
        ("arm_convolve_wrapper_s8", CONV, "4.1.0", (108, 108, 128)),
        ("arm_convolve_wrapper_s8", CONV, "5.0.0", (112, 112, 128)),
        ("arm_convolve_wrapper_s8", CONV, "7.0.0", (112, 112, 128)),
        ("arm_convolve_wrapper_s8", FOUR, "5.0.0", (144, 144, 160)),
        ("arm_convolve_wrapper_s8", FOUR, "6.0.0", (144, 144, 192)),
        ("arm_convolve_wrapper_s8", ROW, "5.0.0", (48, 48, 0)),
        ("arm_convolve_wrapper_s8", ROW, "6.0.0", (48, 48, 12)),
        ("arm_transpose_conv_s8", SPREAD, "5.0.0", (4320, 4320, 4320)),
        ("arm_transpose_conv_s8", SPREAD, "7.0.0", (720, 720, 768)),
        ("arm_depthwise_conv_wrapper_s16", DEPTHWISE, "6.0.0", (0, 300, 1208)),
        ("arm_convolve_wrapper_s4", FOUR, "5.0.0", (144, 144, 144)),
        ("arm_convolve_wrapper_s4", FOUR, "7.0.0", (144, 144, 192)),
        ("arm_depthwise_conv_wrapper_s4", DEPTHWISE, "5.0.0", (300, 300, 300)),
        ("arm_depthwise_conv_wrapper_s4", DEPTHWISE, "6.0.0", (300, 300, 12400)),
        ("arm_depthwise_conv_wrapper_s8", DEPTHWISE, "7.0.0", (0, 300, 12400)),
        ("arm_depthwise_conv_wrapper_s8", ONE_CHANNEL, "6.0.0", (0, 0, 0)),
        ("arm_depthwise_conv_wrapper_s8", ONE_CHANNEL, "7.0.0", (0, 0, 136)),
        ("arm_fully_connected_s8", DENSE, "4.1.0", (0, 0, 0)),
        ("arm_fully_connected_s8", DENSE, "5.0.0", (0, 0, 40)),
        ("arm_avgpool_s8", POOL, "6.0.0", (0, 24, 0)),
        ("arm_convolve_wrapper_s16", CONV, "5.0.0", (0, 108, 0)),
        ("arm_convolve_wrapper_s16", CONV, "6.0.0", (108, 108, 256)),
    ],
)
def test_sizes_by_hand(function: str, call: Call, version: str, sizes: tuple[int, int, int]) -> None:
    size = BUFFER_SIZES[f"{function}_get_buffer_size"]
    assert tuple(size(named(version), each, call) for each in (PORTABLE, DSP, MVE)) == sizes


def test_the_library_tells_too_little_for_groups_until_it_was_noticed() -> None:
    grouped = Call(image(6, 8, height=4), Dims(8, 1, 1, 4), image(6, 8, height=4))
    name = "arm_convolve_wrapper_s8_get_buffer_size"
    for version, told, needed in (("24.02", 0, 32), ("7.0.0", 0, 32), ("7.0.0+ (18.0.0, 22.8.1)", 32, 32)):
        assert BUFFER_SIZES[name](named(version), DSP, grouped) == told
        assert workspace_bytes(name, named(version), DSP, grouped) == needed


def test_the_library_tells_too_little_for_wide_steps_of_a_transposed_convolution() -> None:
    call = Call(image(4, 2, height=3), Dims(5, 2, 2, 2), image(12, 5, height=6), 2, 3)
    name = "arm_transpose_conv_s8_get_buffer_size"
    assert BUFFER_SIZES[name](named("7.0.0"), DSP, call) == (3 * 3 + 2) * 5 * 2 * 4
    assert workspace_bytes(name, named("7.0.0"), DSP, call) == (3 * 3 + 3) * 5 * 2 * 4
    assert transpose_conv_second_bytes(named("6.0.0"), DSP, call) == 12 * 6 * 5 * 4
    assert transpose_conv_second_bytes(named("7.0.0"), DSP, call) == 0

"""CMSIS-NN's kernels against emitc's references: random layers, on the host and on emulated Cortex-M4 and Cortex-M55.

A layer that the list of faults names is called as its remedy says; every output must then be right. And every fault must be
one: among the layers that a fault names some come out wrong or are refused.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from emitc.backends.cmsis_nn.buffer_sizes import Call, Dims
from emitc.backends.cmsis_nn.known_bugs import FAULTS, Remedy, Use, faults_of
from emitc.backends.cmsis_nn.versions import InstructionSet, Tree, named
from tests.support.cmsis.layers import MAKERS as INT8_MAKERS
from tests.support.cmsis.layers import Draws, Prepared
from tests.support.cmsis.library import OPERATORS, SKIPPED, Library, LibraryOf, complete, trees
from tests.support.cmsis.more_layers import MAKERS as MORE_MAKERS

MAKERS = INT8_MAKERS | MORE_MAKERS
TREES = trees()
COUNT = 60
PORTABLE, DSP, MVE = InstructionSet.PORTABLE, InstructionSet.DSP, InstructionSet.MVE

needs_tree = pytest.mark.skipif(not TREES, reason=SKIPPED)
each_tree = pytest.mark.parametrize("tree", TREES, ids=lambda tree: tree.version.name)
each_instruction_set = pytest.mark.parametrize("instructions", InstructionSet, ids=lambda i: i.value)


def prepared(kind: str, seed: int, count: int = COUNT) -> list[Prepared]:
    """Random layers of a kind."""
    draws = Draws(seed)
    return [MAKERS[kind](f"{kind}_{seed}_{i}", draws) for i in range(count)]


OPERATOR_OF = {kind: prepared(kind, 0, 1)[0].operator for kind in MAKERS}
IN_PLACE = {"add": (1, 2), "multiply": (1, 2), "soft_maximum": (1,), "add_16": (1, 2), "multiply_16": (1, 2)}
"""Kinds that may write their output over an input, and over which."""
CASES = [
    pytest.param(tree, instructions, kind, over, id=f"{tree.version.name}-{instructions.value}-{kind}-{over}")
    for tree in TREES
    for instructions in InstructionSet
    for kind, operator in OPERATOR_OF.items()
    for over in (0, *IN_PLACE.get(kind, ()))
    if OPERATORS[operator][1][0] in complete(tree, instructions)
]
"""Every kind of layer that a tree can run, 1 or 2 where over an input; parts of the library and older ones lack functions."""


def wrong(library: Library, layers: list[Prepared]) -> list[str]:
    """Every layer that was refused, overran its memory, or gave another output than the reference."""
    records = [layer.record(library.tree.version, library.instructions) for layer in layers]
    found = []
    for layer, (status, output, _) in zip(layers, library.run(records), strict=True):
        if status != 0:
            found.append(f"{layer.name}: status {status}, {layer.call}")
        elif not np.array_equal(np.frombuffer(output, layer.expected.dtype), layer.expected.reshape(-1)):
            found.append(f"{layer.name}: output differs, {layer.call}")
    return found


def without_faults(library: Library, layers: list[Prepared]) -> list[Prepared]:
    """The layers as they have to be called; those that the version cannot run are left out."""
    calls = []
    for layer in layers:
        parts = [layer]
        for fault in faults_of(library.tree, library.instructions, layer.use):
            parts = (
                [] if fault.remedy is Remedy.NONE else [new for part in parts for new in part.remedied(fault.remedy)]
            )
        calls += parts
    return calls


def check(library: Library, kind: str, seed: int, over: int = 0) -> None:
    """Asserts that the layers of a kind come out right, also over one of their inputs."""
    layers = [replace(layer, numbers=layer.numbers | {"IN_PLACE": over}) for layer in prepared(kind, seed)]
    assert wrong(library, without_faults(library, layers)) == []


@needs_tree
@pytest.mark.sweep(keep=7)
@pytest.mark.parametrize(("tree", "instructions", "kind", "over"), CASES)
def test_random_layers(tree: Tree, instructions: InstructionSet, kind: str, over: int, library_of: LibraryOf) -> None:
    check(library_of(tree, instructions), kind, 7, over)


MAIN = ("convolution", "depthwise_convolution", "dense", "average", "maximum")


@needs_tree
@pytest.mark.parametrize("kind", MAIN)
@each_instruction_set
def test_main_layers(instructions: InstructionSet, kind: str, library_of: LibraryOf) -> None:
    check(library_of(TREES[-1], instructions), kind, 8)


@needs_tree
@pytest.mark.parametrize("instructions", [DSP, MVE], ids=lambda i: i.value)
@each_tree
def test_each_fault_is_one(tree: Tree, instructions: InstructionSet, library_of: LibraryOf) -> None:
    library = library_of(tree, instructions)
    by_fault: dict[str, list[Prepared]] = {}
    for kind in (
        "convolution",
        "grouped",
        "depthwise_convolution",
        "average",
        "convolution_16",
        "transposed_convolution",
    ):
        for seed in range(4):
            for layer in prepared(kind, seed) if library.has(OPERATOR_OF[kind]) else []:
                for fault in faults_of(tree, instructions, layer.use):
                    by_fault.setdefault(fault.reason, []).append(layer)
    for reason, layers in by_fault.items():
        if len(layers) >= 10:
            assert wrong(library, layers) != [], reason


def row(width: int, kernel: int, stride: int, pad: int, out: int, channels: int = 4) -> Call:
    """A convolution over one row."""
    return Call(Dims(1, 1, width, channels), Dims(8, 1, kernel, channels), Dims(1, 1, out, 8), 1, stride, 0, pad)


@pytest.mark.parametrize(
    ("function", "version", "instructions", "call", "bias", "remedies"),
    [
        pytest.param("arm_convolve_wrapper_s8", "6.0.0", MVE, row(8, 3, 2, 0, 4), True, [], id="row_same"),
        pytest.param(
            "arm_convolve_wrapper_s8",
            "6.0.0",
            MVE,
            row(3, 2, 2, 0, 1),
            True,
            [Remedy.GENERAL_KERNEL],
            id="row_left_over",
        ),
        pytest.param(
            "arm_convolve_wrapper_s8",
            "6.0.0",
            MVE,
            row(9, 5, 4, 2, 3),
            True,
            [Remedy.GENERAL_KERNEL],
            id="row_overhang",
        ),
        pytest.param("arm_convolve_wrapper_s8", "5.0.0", MVE, row(9, 5, 4, 2, 3), True, [], id="row_overhang_before"),
        pytest.param("arm_convolve_wrapper_s8", "6.0.0", DSP, row(9, 5, 4, 2, 3), True, [], id="row_dsp"),
        pytest.param("arm_convolve_wrapper_s8", "4.0.0", MVE, row(9, 5, 4, 2, 4), True, [], id="row_oldest"),
    ],
)
def test_faults_by_hand(
    function: str, version: str, instructions: InstructionSet, call: Call, bias: bool, remedies: list[Remedy]
) -> None:
    use = Use(function, call, bias)
    found = [f.remedy for f in FAULTS if function in f.functions and f.applies(named(version), instructions, use)]
    assert found == remedies


GROUPED = Call(Dims(1, 4, 4, 8), Dims(8, 3, 3, 4), Dims(1, 2, 2, 8))
MANY = Call(Dims(1, 4, 4, 125), Dims(1, 3, 3, 125), Dims(1, 2, 2, 125))
TWO = Call(Dims(2, 4, 4, 8), Dims(1, 2, 2, 1), Dims(2, 2, 2, 8), 2, 2)


@pytest.mark.parametrize(
    ("function", "version", "call", "bias", "remedies"),
    [
        ("arm_convolve_wrapper_s8", "5.0.0", GROUPED, True, [Remedy.NONE]),
        ("arm_convolve_wrapper_s8", "24.02", GROUPED, True, []),
        ("arm_convolve_wrapper_s8", "24.02", GROUPED, False, [Remedy.ZERO_BIAS]),
        ("arm_depthwise_conv_wrapper_s8", "7.0.0", MANY, False, [Remedy.ZERO_BIAS]),
        ("arm_depthwise_conv_wrapper_s8", "7.0.0", MANY, True, []),
        ("arm_max_pool_s8", "5.0.0", TWO, True, [Remedy.EACH_BATCH]),
        ("arm_max_pool_s8", "24.02", TWO, True, []),
    ],
)
def test_more_faults_by_hand(function: str, version: str, call: Call, bias: bool, remedies: list[Remedy]) -> None:
    use = Use(function, call, bias)
    found = [f.remedy for f in FAULTS if function in f.functions and f.applies(named(version), MVE, use)]
    assert found == remedies


def test_every_fault_says_why() -> None:
    assert len({fault.reason for fault in FAULTS}) == len(FAULTS)
    assert all(fault.functions and fault.reason and not fault.reason.endswith(".") for fault in FAULTS)

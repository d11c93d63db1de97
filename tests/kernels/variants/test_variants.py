"""Kernels for cores with more than the common instructions: the same bits as the reference and the engine, on this machine.

Their headers have every instruction in plain C too. The tables are those of the portable kernels' tests, and random layers.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from emitc.backends.portable import backend
from emitc.boards.verify import on_emulator
from emitc.compiler import compile_model
from emitc.ir import BoundNode
from emitc.kernels.contract import Variant
from emitc.kernels.mac.accumulation import Requantization
from emitc.kernels.mac.problem import FoldedWeights
from emitc.kernels.mac.riscv_int8 import short_multipliers
from emitc.target import Target, load_board
from emitc.writers.tflite import write_tflite
from tests.kernels.convolution import test_conv_2d, test_depthwise_conv_2d, test_onnx_conv
from tests.kernels.matrix import test_fully_connected
from tests.kernels.movement.test_transpose import transpose
from tests.kernels.variants.test_random_layers import Draws, convolution, dense, depthwise_convolution
from tests.support.layer_cases import Scales, Slide, conv_2d, depthwise, fully_connected
from tests.support.onnx_op import OnnxCase, prove_onnx
from tests.support.single_op import Case, model_of, prove

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

TARGETS = {
    "dsp": "cortex-m4",
    "mve": "cortex-m55",
    "swar": "cortex-m3",
    "mul32": "cortex-m0",
    "xpulp": "cv32e40p",
}
RELU6 = Slide(padding="SAME", activation="RELU6")
MORE: list[Case] = [
    conv_2d("pointwise_of_five_rows", (1, 5, 1, 12), 6, (1, 1)),
    conv_2d("pointwise_of_odd_channels", (1, 3, 3, 7), 5, (1, 1)),
    conv_2d("pointwise_of_one_channel", (1, 4, 4, 8), 1, (1, 1)),
    conv_2d("pointwise_with_limits", (1, 4, 4, 8), 6, (1, 1), Slide(activation="RELU_N1_TO_1")),
    conv_2d("window_of_three_channels", (1, 9, 9, 3), 8, (3, 3), Slide((2, 2), "SAME", activation="RELU6")),
    conv_2d("window_of_six_channels", (1, 6, 5, 6), 3, (3, 3), RELU6),
    conv_2d("window_larger_than_the_input", (1, 2, 2, 4), 4, (5, 5), Slide(padding="SAME")),
    conv_2d("rectified", (1, 5, 6, 8), 8, (3, 3), RELU6, Scales(output_zero_point=-128, weights=(0.01,) * 7 + (0.02,))),
    depthwise("four_channels", (1, 6, 5, 4), 1, (3, 3), RELU6),
    depthwise("eight_channels_one_pixel", (1, 1, 1, 8), 1, (3, 3), Slide(padding="SAME")),
    depthwise("odd_pixels", (1, 5, 5, 8), 1, (3, 3), Slide(padding="SAME")),
    depthwise("many_images", (3, 3, 3, 8), 1, (3, 3), Slide(padding="SAME")),
    depthwise("rows_of_taps", (1, 20, 1, 8), 1, (9, 1)),
    depthwise("dilated", (1, 9, 8, 8), 1, (3, 3), Slide((1, 1), "SAME", (2, 2))),
    fully_connected("one_row_of_odd_depth", (1, 13), 9, 13),
    fully_connected("three_rows", (3, 18), 6, 18),
]

XPULP_MORE: list[Case] = [
    depthwise("wide_rows", (1, 6, 9, 8), 1, (3, 3), RELU6),
    depthwise("strided", (1, 9, 8, 12), 1, (3, 3), Slide((2, 2), "SAME")),
    depthwise("five_channels_in_bands", (1, 50, 5, 5), 1, (3, 3), Slide(padding="SAME")),
    depthwise("large_taps", (2, 9, 11, 6), 1, (5, 5), Slide((1, 2), "SAME")),
    depthwise(
        "rectified_channels", (1, 4, 6, 8), 1, (3, 3), RELU6, Scales(output_zero_point=-128, weights=(0.01,) * 8)
    ),
    depthwise(
        "rectified_and_strided",
        (1, 9, 7, 5),
        1,
        (3, 3),
        Slide((2, 2), "SAME", activation="RELU"),
        Scales(output_zero_point=-128, weights=(0.01, 0.011, 0.012, 0.013, 0.014)),
    ),
    depthwise(
        "rectified_and_odd",
        (1, 5, 7, 4),
        1,
        (3, 3),
        Slide(padding="SAME", activation="RELU"),
        Scales(output_zero_point=-128, weights=(0.01, 0.011, 0.012, 0.013)),
    ),
    depthwise(
        "rectified_and_shared",
        (1, 5, 7, 4),
        1,
        (3, 3),
        Slide(padding="SAME", activation="RELU"),
        Scales(output_zero_point=-128),
    ),
    conv_2d(
        "rectified_window",
        (1, 5, 6, 3),
        6,
        (3, 3),
        Slide(padding="SAME", activation="RELU"),
        scales=Scales(output_zero_point=-128, weights=(0.01, 0.011, 0.012, 0.013, 0.014, 0.015)),
    ),
    conv_2d(
        "rectified_pointwise",
        (1, 3, 5, 8),
        6,
        (1, 1),
        Slide(activation="RELU"),
        scales=Scales(output_zero_point=-128, weights=(0.01, 0.011, 0.012, 0.013, 0.014, 0.015)),
    ),
    conv_2d("pointwise_of_two_images", (2, 3, 3, 8), 6, (1, 1)),
    conv_2d("pointwise_with_stride", (1, 9, 8, 12), 5, (1, 1), Slide((2, 2))),
    fully_connected("nine_rows", (9, 16), 7, 16),
]

VECTORS: list[Case] = [
    *(case for case in MORE if case.id != "pointwise_of_one_channel"),
    *XPULP_MORE,
    conv_2d("window_of_many_channels", (1, 5, 5, 5), 37, (3, 3), RELU6),
    conv_2d("pointwise_of_many_channels", (1, 4, 5, 9), 21, (1, 1)),
    conv_2d("shifted_to_the_left", (1, 4, 4, 8), 18, (1, 1), scales=Scales(factor=1.5)),
    conv_2d("shifted_to_both_sides", (1, 4, 4, 8), 2, (3, 3), scales=Scales(weights=(0.01, 4.0))),
    depthwise("many_channels", (1, 5, 4, 35), 1, (3, 3), Slide((2, 2), "SAME")),
    depthwise("channels_shifted_to_the_left", (1, 4, 4, 17), 1, (3, 3), scales=Scales(factor=3.0)),
    fully_connected("row_of_many_channels", (1, 30), 34, 30),
]


@pytest.mark.sweep(keep=3)
@pytest.mark.parametrize("variant", ["dsp", "mve", "mul32", "swar", "gpr31", "xpulp"])
@pytest.mark.parametrize(
    "module", [test_conv_2d, test_depthwise_conv_2d, test_fully_connected], ids=lambda m: m.__name__
)
def test_tables_of_the_portable_kernels(module: object, variant: str) -> None:
    cases: list[Case] = module.CASES  # type: ignore[attr-defined]
    proven = prove(cases, target=TARGETS.get(variant, "rv32imac"))
    for outcome in proven.outcomes.values():
        outcome.check()
    assert proven.memory_errors == ()
    assert any(o.step is not None and o.step.variant == variant for o in proven.outcomes.values())


@pytest.mark.sweep(keep=3)
@pytest.mark.parametrize("variant", sorted(TARGETS))
def test_shapes_with_remainders(variant: str) -> None:
    proven = prove(MORE, target=TARGETS[variant])
    for outcome in proven.outcomes.values():
        outcome.check()
    assert proven.memory_errors == ()
    steps = [outcome.step for outcome in proven.outcomes.values()]
    ones = {variant, "dsp-stretch4", "dsp-stretch3", "dsp-planes"} if variant == "dsp" else {variant}
    assert sum(step is not None and step.variant in ones for step in steps) >= len(MORE) - 2
    assert sum(step is not None and step.variant == variant for step in steps) >= len(MORE) // 2


def _by_columns(name: str, shape: tuple[int, int, int, int], slide: Slide) -> Case:
    return depthwise(name, shape, 1, (3, 3), slide)


COLUMNS = {
    "bordered": (_by_columns("bordered", (1, 5, 5, 6), RELU6), "_step1"),
    "bordered_of_two_images": (_by_columns("bordered_of_two_images", (2, 4, 7, 3), Slide(padding="SAME")), "_step1"),
    "one_column": (_by_columns("one_column", (1, 4, 1, 5), Slide(padding="SAME")), "_step1"),
    "one_row": (_by_columns("one_row", (1, 1, 12, 4), Slide(padding="SAME")), "_step1"),
    "one_window": (_by_columns("one_window", (1, 3, 3, 7), Slide()), "_step1"),
    "inside": (_by_columns("inside", (1, 5, 10, 4), Slide()), "_step1"),
    "every_second_row": (_by_columns("every_second_row", (1, 7, 6, 4), Slide((2, 1), "SAME")), "_step1"),
    "every_second_of_even": (_by_columns("every_second_of_even", (1, 8, 10, 4), Slide((2, 2), "SAME")), "_step2"),
    "every_second_of_odd": (_by_columns("every_second_of_odd", (1, 7, 23, 4), Slide((2, 2), "SAME")), "_step2"),
    "every_second_inside": (_by_columns("every_second_inside", (1, 9, 13, 4), Slide((1, 2))), "_step2"),
    "a_column_is_left_over": (_by_columns("a_column_is_left_over", (1, 8, 8, 4), Slide((2, 2))), "_step2"),
    "every_third": (_by_columns("every_third", (1, 12, 12, 4), Slide((3, 3))), ""),
    "every_third_row": (_by_columns("every_third_row", (1, 11, 4, 4), Slide((3, 1), "SAME")), "_step1"),
}


def test_depthwise_windows_column_by_column() -> None:
    """By steps of one and two columns; windows that are farther apart get the kernel of all cores."""
    proven = prove([case for case, _ in COLUMNS.values()], target="rv32imac")
    for name, outcome in proven.outcomes.items():
        outcome.check()
        assert outcome.step is not None
        assert outcome.step.variant == ("gpr31" if COLUMNS[name][1] else "swar")
        assert outcome.step.kernel.endswith(COLUMNS[name][1])
    assert proven.memory_errors == ()


def _large(channels: int, depth: int, places: tuple[int, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.int8]]:
    """Weights of at most 40, and four of -128 or 127 from each of `places` on: more than 16 bits of products."""
    weights = np.random.default_rng(depth).integers(-40, 41, (channels, depth)).astype(np.int8)
    for channel in range(channels):
        for place in places:
            weights[channel, place : place + 4] = (-128, 127, 127, -128)[channel % 4]
    return weights


def _small(channels: int, depth: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int8]]:
    """Weights that eight products of int8 values need no more than 16 bits for; the last ones need all of them."""
    weights = np.random.default_rng(depth).integers(-31, 32, (channels, depth)).astype(np.int8)
    weights[:, -8:] = np.array([-128, 127, 0, 0, 0, 0, 0, 0])[(np.arange(8) + np.arange(channels)[:, None]) % 8]
    return weights


FOURS = [
    conv_2d("two_left_over", (1, 8, 8, 42), 6, (1, 1), w=_large(6, 42, (4,)).reshape(6, 1, 1, 42)),
    conv_2d("one_left_over", (1, 7, 7, 33), 7, (1, 1), RELU6, w=_large(7, 33, (29,)).reshape(7, 1, 1, 33)),
    conv_2d("few_large_ones", (2, 8, 6, 7), 5, (3, 3), RELU6, w=_large(5, 63, (20,)).reshape(5, 3, 3, 7)),
    conv_2d("far_between", (1, 6, 5, 45), 3, (3, 3), RELU6, w=_large(3, 405, (0, 396)).reshape(3, 3, 3, 45)),
    fully_connected("many_rows", (25, 50), 9, 50, w=_large(9, 50, (1, 40))),
    conv_2d(
        "rectified",
        (1, 4, 4, 24),
        3,
        (1, 1),
        Slide(activation="RELU"),
        Scales(output_zero_point=-128, weights=(0.01, 0.02, 0.03)),
        w=_small(3, 24).reshape(3, 1, 1, 24),
    ),
]


EIGHTS = [
    fully_connected("parts_and_filters_left_over", (1, 96), 19, 96, w=_large(19, 96, (4,))),
    fully_connected("parts_of_two_rows", (2, 200), 16, 200, w=_large(16, 200, (0, 196))),
    fully_connected("no_part", (3, 16), 9, 16, w=_small(9, 16), scales=Scales(weights=(0.01,) * 9)),
    fully_connected("one_eight", (1, 8), 8, 8, w=_small(8, 8)),
]


def test_eight_filters_of_a_row() -> None:
    """Weights that are too large for 16 bits of eight products are made of two parts."""
    proven = prove(EIGHTS, target="rv32imac")
    for name, outcome in proven.outcomes.items():
        outcome.check()
        assert outcome.step is not None and outcome.step.variant == "gpr31"
        assert "_eights" in outcome.step.kernel
        assert outcome.step.kernel.endswith("_parts") == name.startswith("parts")
    assert proven.memory_errors == ()


def test_four_products_at_a_time() -> None:
    """Weights that are too large for 16 bits of products are made of two parts; a part may be far from the one before."""
    proven = prove(FOURS, target="rv32imac")
    for outcome in proven.outcomes.values():
        outcome.check()
        assert outcome.step is not None and outcome.step.variant == "gpr31"
        assert outcome.step.kernel.endswith("_fours")
    assert proven.memory_errors == ()


def _trained_row(name: str, d: Draws) -> Case:
    """A FULLY_CONNECTED of few rows, with small weights mostly, as training leaves them."""
    depth, channels = 8 * d.integer(1, 12), d.integer(8, 20)
    w = np.clip(np.rint(d.rng.normal(0, d.integer(10, 45), (channels, depth))), -127, 127).astype(np.int8)
    scales = d.scales(channels, depth)
    return fully_connected(name, (d.integer(1, 3), depth), channels, depth, "NONE", scales, w=w, bias=d.bias())


def _trained_image(name: str, d: Draws) -> Case:
    """A CONV_2D of many pixels or a DEPTHWISE_CONV_2D of 3x3, with weights of that sort."""
    slide, channels, depth = Slide(padding="SAME"), d.integer(2, 9), d.integer(1, 8)
    if d.rng.random() < 0.5:
        return depthwise(name, (1, d.integer(3, 9), d.integer(3, 9), channels), 1, (3, 3), slide, d.scales(channels, 9))
    kernel = (1, 1) if d.rng.random() < 0.5 else (3, 3)
    w = np.clip(np.rint(d.rng.normal(0, 30, (channels, *kernel, depth))), -127, 127).astype(np.int8)
    scales = d.scales(channels, depth * kernel[0] * kernel[1])
    return conv_2d(name, (1, 7, 8, depth), channels, kernel, slide, scales, w=w, bias=d.bias())


def _trained(seed: int) -> list[Case]:
    makers = (_trained_row, _trained_image)
    return [makers[i % 2](f"{makers[i % 2].__name__}_{i}", Draws(7000 + 100 * seed + i)) for i in range(24)]


def _first(variant: str) -> Any:
    """Every layer has that variant where there is code for it, whatever it costs."""
    return patch.object(backend, "cost_of", lambda bound, target, row=None: 0.0 if row and row.name == variant else 1.0)


@pytest.mark.parametrize("target", ["generic32", *TARGETS.values(), "rv32imac", "rv32imac_zve32x"])
def test_sums_that_leave_their_type_when_they_are_shifted(target: str) -> None:
    """The lowest and the highest sum of a channel may give one output then, and sums between them another one."""
    scales = Scales(weights=(0.05, 0.04, 0.045, 0.055), factor=3e5)
    proven = prove([conv_2d("wrapping", (1, 4, 4, 10), 4, (1, 1), scales=scales)], target=target)
    proven.outcomes["wrapping"].check()


@pytest.mark.parametrize(("target", "board"), [("rv32imac", "qemu_rv32"), ("cortex-m3", "qemu_m3")])
def test_registers_of_an_emulated_core(target: str, board: str, tmp_path: Path) -> None:
    """RV32 has the loops over products and the limits of outputs in assembly, and nothing in C stands in for them.

    `--kernel` gives these kernels to a core of fewer registers as well, which computes one channel of other kernels at a time.
    """
    rectified = [case for case in XPULP_MORE if case.id in ("rectified_and_odd", "rectified_and_strided")]
    columns = [COLUMNS["bordered"][0], COLUMNS["every_second_of_odd"][0]]
    file = tmp_path / "fours.tflite"
    stated = [*FOURS, *EIGHTS, *columns, *rectified]
    file.write_bytes(write_tflite(model_of([*stated, *_trained(0)])))
    with _first("gpr31"):
        steps = compile_model(file, target="rv32imac").program.steps
    asked = tuple((step.index, "gpr31") for step in steps if step.variant == "gpr31")
    assert len(asked) >= len(stated) + 12
    compiled = compile_model(file, target=target, variants=asked, package="platformio")
    assert on_emulator(compiled, board, reference="auto", samples=2, seed=0, layers=False, workdir=tmp_path).match


def test_weights_that_are_mostly_large_keep_two_products_at_a_time() -> None:
    proven = prove(
        [conv_2d("large", (1, 8, 8, 8), 4, (1, 1), w=np.full((4, 1, 1, 8), 127, np.int8))], target="rv32imac"
    )
    (outcome,) = proven.outcomes.values()
    outcome.check()
    assert outcome.step is not None and outcome.step.variant == "swar"


def test_rows_and_bands_of_planes() -> None:
    """Depthwise convolutions that make some rows at a time, pixels of two images, and rows of whole words."""
    proven = prove(XPULP_MORE, target="cv32e40p")
    for outcome in proven.outcomes.values():
        outcome.check()
    assert proven.memory_errors == ()
    steps = [outcome.step for outcome in proven.outcomes.values()]
    assert all(step is not None and step.variant == "xpulp" for step in steps)
    kernels = {step.kernel for step in steps if step is not None}
    small = ("depthwise_conv_2d_xpulp_up_small_3x3", "conv_2d_xpulp_up_small", "matrix_xpulp_up_small")
    assert kernels >= {*small, f"{small[0]}_strided", "depthwise_conv_2d_xpulp_up_shared_3x3"}


def test_short_multipliers_keep_every_output() -> None:
    """All sums of layers whose sums have 15 to 20 bits: some have multipliers for products of 32 bits, the largest have none."""
    rng = np.random.default_rng(5)
    kept = []
    for scale in (500, 4000, 30000, 60000, 120000, 500000) * 4:
        filters, bias = rng.integers(-127, 128, (3, 9)), rng.integers(-scale, scale, 3)
        q31, right, offset = rng.integers(1 << 30, 1 << 31, 3), rng.integers(1, 11, 3), -255
        bound = SimpleNamespace(output=SimpleNamespace(zero_point=-128))
        requantization = Requantization(tuple(q31.tolist()), tuple((-right).tolist()))
        folded = FoldedWeights(SimpleNamespace(bound=bound), filters, bias, requantization)  # type: ignore[arg-type]
        short = short_multipliers(folded, 6)
        kept.append(short is not None)
        if short is None:
            continue
        for channel, (low, high) in enumerate(folded.ends.T.tolist()):
            sums = np.arange(low, high + 1)
            once = (sums * q31[channel] + (1 << 30)) >> 31
            long = (once + (offset << (right[channel] - 1))) >> right[channel]
            multiplier, shift = short.q31[channel], -short.shift[channel]
            first = sums * ((multiplier + 32768) % 65536 - 32768)
            last = sums * (multiplier >> 16) + (first >> 13) + (offset << (shift - 1)) + (1 << 11)
            assert max(np.abs(first).max(), np.abs(last).max()) < 1 << 31
            assert (np.clip(last >> shift, -128, 127) == np.clip(long, -128, 127)).all()
    assert set(kept) == {False, True}


def test_sixteen_lanes_and_more() -> None:
    """Every case by vectors, whatever it costs: few channels, several registers of them, and shifts to either side."""
    proven = prove(VECTORS, target="rv32imac_zve32x", variant="rvv")
    for outcome in proven.outcomes.values():
        outcome.check()
    assert proven.memory_errors == ()
    steps = [outcome.step for outcome in proven.outcomes.values() if outcome.step is not None]
    assert {step.variant for step in steps} == {"rvv"}
    kernels = ("conv_2d_rvv", "matrix_rvv", "depthwise_conv_2d_rvv")
    assert {step.kernel for step in steps} >= {f"{kernel}_{end}" for kernel in kernels for end in ("any", "away")}


def test_vectors_of_an_emulated_core(tmp_path: Path) -> None:
    """Where the instructions are the core's own: no C stands in for them.

    Clang 19 could not compile the loops of this TRANSPOSE, of which it made vectors of its own.
    """
    file = tmp_path / "vectors.tflite"
    unrolled = transpose("unrolled", (16, 5, 2), (2, 1, 0))
    file.write_bytes(write_tflite(model_of([*VECTORS, *_trained(0), unrolled])))
    with _first("rvv"):
        compiled = compile_model(file, target="rv32imac_zve32x", package="platformio")
    assert [step.variant for step in compiled.program.steps].count("rvv") >= len(VECTORS) + 20
    assert on_emulator(
        compiled, "qemu_rv32v", reference="auto", samples=2, seed=0, layers=False, workdir=tmp_path
    ).match


def _uneven() -> list[Case]:
    return [
        depthwise("three_channels", (1, 5, 6, 3), 1, (3, 3), RELU6),
        depthwise("six_channels", (1, 7, 6, 6), 1, (3, 3), Slide((2, 2), "SAME")),
        depthwise("thirteen_channels", (2, 6, 5, 13), 1, (5, 3), Slide(padding="SAME")),
    ]


def test_depthwise_channels_that_come_in_no_fours() -> None:
    with _first("dsp"):
        proven = prove(_uneven(), target="cortex-m4")
    for outcome in proven.outcomes.values():
        outcome.check()
    assert proven.memory_errors == ()
    steps = [outcome.step for outcome in proven.outcomes.values()]
    assert all(step is not None and "_uneven" in step.kernel for step in steps)


def _lean(bound: BoundNode, target: Target, row: Variant | None = None) -> float:
    return 0.0 if (row.name if row else "portable") == "dsp-noscratch" else 1.0


@pytest.mark.sweep(keep=0)
@pytest.mark.parametrize(
    "cases", [MORE, test_conv_2d.CASES, test_depthwise_conv_2d.CASES], ids=["more", "conv", "depthwise"]
)
def test_kernels_without_working_memory(cases: list[Case]) -> None:
    with patch.object(backend, "cost_of", _lean):
        proven = prove(cases, target="cortex-m4")
    for outcome in proven.outcomes.values():
        outcome.check()
    assert proven.memory_errors == ()
    lean = [step for o in proven.outcomes.values() if (step := o.step) is not None and step.variant == "dsp-noscratch"]
    assert len(lean) >= 5
    assert not any(step.scratch for step in lean)


@pytest.mark.sweep(keep=0)
@pytest.mark.parametrize("name", ["dsp-2px", "dsp-2px-rowwise", "dsp-1px"])
def test_convolutions_of_fewer_pixels(name: str) -> None:
    """Tables and remainders: of channels, of pixels, of values; windows that reach outside. Working memory is less."""

    def cost(bound: BoundNode, target: Target, row: Variant | None = None) -> float:
        return 0.0 if (row.name if row else "portable") == name else 1.0

    more = [
        conv_2d("five_channels_odd_run", (1, 5, 7, 3), 5, (3, 3), Slide((1, 2), "SAME")),
        conv_2d("seven_channels", (2, 4, 5, 4), 7, (2, 3)),
        depthwise("one_channel", (1, 9, 8, 1), 6, (4, 5), Slide((2, 2), "SAME")),
    ]
    cases = [*more, *MORE, *test_conv_2d.CASES]
    with patch.object(backend, "cost_of", cost):
        proven = prove(cases, target="cortex-m4")
    for outcome in proven.outcomes.values():
        outcome.check()
    assert proven.memory_errors == ()
    fewer = {k: step for k, o in proven.outcomes.items() if (step := o.step) is not None and step.variant == name}
    assert len(fewer) >= 6 and {case.id for case in more} <= set(fewer)
    with patch.object(backend, "cost_of", lambda bound, target, row=None: 0.0 if row and row.name == "dsp" else 1.0):
        four = prove(more, target="cortex-m4")
    for case in more:
        step = four.outcomes[case.id].step
        assert step is not None and step.variant == "dsp"
        assert fewer[case.id].scratch[0].size_bytes < step.scratch[0].size_bytes


def _stretches() -> list[Case]:
    """Pixels an odd and an even number of values apart, rows that end within a stretch, odd channels, windows that reach out."""
    limited = Slide((2, 2), "SAME", activation="RELU6")
    return [
        conv_2d("stretch_three_channels", (1, 6, 9, 3), 4, (3, 3), Slide(padding="SAME")),
        conv_2d("stretch_three_channels_strided", (2, 9, 13, 3), 5, (3, 3), Slide((2, 2), "SAME")),
        conv_2d("stretch_limited", (1, 8, 11, 3), 3, (3, 3), limited),
        conv_2d(
            "stretch_rectified",
            (1, 5, 6, 2),
            6,
            (3, 5),
            RELU6,
            Scales(output_zero_point=-128, weights=(0.01,) * 5 + (0.02,)),
        ),
        conv_2d("stretch_values_of_one_row", (1, 1, 11, 6), 7, (1, 4), Slide((1, 2), "SAME")),
        conv_2d("stretch_dilated_rows", (1, 9, 7, 1), 2, (3, 4), Slide((1, 1), "SAME", (2, 1))),
        conv_2d("stretch_last_value_of_an_odd_run", (1, 4, 9, 1), 2, (2, 3), Slide((1, 1))),
        conv_2d("stretch_window_wider_than_the_input", (1, 3, 5, 1), 4, (4, 9), Slide(padding="SAME")),
        depthwise("stretch_one_channel", (1, 9, 13, 1), 6, (4, 5), Slide((2, 2), "SAME")),
        depthwise("stretch_one_channel_of_eight", (2, 7, 11, 1), 8, (5, 8), Slide((1, 2), "SAME")),
    ]


@pytest.mark.sweep(keep=0)
@pytest.mark.parametrize("name", ["dsp-stretch4", "dsp-stretch3"])
def test_convolutions_of_pixels_that_read_one_stretch(name: str) -> None:
    def cost(bound: BoundNode, target: Target, row: Variant | None = None) -> float:
        return 0.0 if (row.name if row else "portable") == name else 1.0

    cases = [*_stretches(), *MORE, *test_conv_2d.CASES]
    with patch.object(backend, "cost_of", cost):
        proven = prove(cases, target="cortex-m4")
    for outcome in proven.outcomes.values():
        outcome.check()
    assert proven.memory_errors == ()
    found = {k: step for k, o in proven.outcomes.items() if (step := o.step) is not None and step.variant == name}
    assert len(found) >= 14 and {case.id for case in _stretches()} <= set(found)


def test_size_has_no_kernels_for_one_layer(tmp_path: Path) -> None:
    model = tmp_path / "first_layer.tflite"
    model.write_bytes(write_tflite(model_of([conv_2d("first", (1, 12, 12, 1), 8, (3, 3), Slide((2, 2), "SAME"))])))
    for optimize, fitted in (("speed", True), ("size", False)):
        compiled = compile_model(model, target="cortex-m4", optimize=optimize)
        assert [step.variant.startswith("dsp-stretch") for step in compiled.program.every_step] == [fitted]


def _of_onnx() -> list[OnnxCase]:
    return [
        *(test_onnx_conv.qlinear_conv(n, "int8", "int8", "int8", channels=True) for n in test_onnx_conv.WINDOWS),
        test_onnx_conv.qlinear_conv("pointwise", "int8", "int8", "int8", bias=False, x_zero=-128),
    ]


FACTORS = {"dsp": "_f32", "swar": "_exact", "mul32": "_exact", "xpulp": "_exact"}


@pytest.mark.sweep(keep=1)
@pytest.mark.parametrize("variant", sorted(FACTORS))
def test_float_factors(variant: str) -> None:
    proven = prove_onnx(_of_onnx(), target=TARGETS[variant])
    proven.check()
    steps = [step for compiled in proven.compiled.values() for step in compiled.program.steps]
    assert sum(step.variant == variant and FACTORS[variant] in step.kernel for step in steps) >= 3


@pytest.mark.board
@pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")), reason="needs the Arm tools and QEMU"
)
@pytest.mark.sweep(keep=1)
@pytest.mark.parametrize("board", ["qemu_m4", "qemu_m3"])
@pytest.mark.parametrize("optimize", ["speed", "size"])
def test_float_factors_on_emulated_cores(board: str, optimize: str, tmp_path: Path) -> None:
    """Where the instructions are the core's own, and no vector unit and no C stands in for them."""
    model = Path(__file__).resolve().parents[3] / "examples" / "models" / "digits_qdq.onnx"
    compiled = compile_model(model, target=load_board(board).target, package="platformio", optimize=optimize)
    assert any(step.variant in FACTORS for step in compiled.program.steps)
    assert on_emulator(compiled, board, reference="auto", samples=1, seed=0, layers=False, workdir=tmp_path).match


@pytest.mark.sweep(keep=3)
@pytest.mark.parametrize("variant", sorted(TARGETS))
@pytest.mark.parametrize("seed", range(6))
def test_random_layers(seed: int, variant: str) -> None:
    makers = (convolution, depthwise_convolution, dense)
    cases = [makers[i % 3](f"{makers[i % 3].__name__}_{i}", Draws(9000 + 100 * seed + i)) for i in range(48)]
    proven = prove(cases, target=TARGETS[variant])
    for outcome in proven.outcomes.values():
        outcome.check()
    assert proven.memory_errors == ()
    steps = [outcome.step for outcome in proven.outcomes.values()]
    assert np.mean([step is not None and step.variant == variant for step in steps]) > 0.3


RISCV = {
    "gpr31": ("rv32imac", {"row_eights", "matrix_halves", "conv_2d_halves", "depthwise_3x3_gpr31"}),
    "rvv": ("rv32imac_zve32x", {"matrix_rvv", "conv_2d_rvv", "depthwise_conv_2d_rvv"}),
    "xpulp": ("cv32e40p", {"row_xpulp", "conv_2d_xpulp", "depthwise_conv_2d_xpulp"}),
}
"""Targets of variants, and kernels that random layers must have."""


@pytest.mark.sweep(keep=2)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("variant", RISCV)
def test_random_layers_of_riscv(variant: str, seed: int) -> None:
    target, kernels = RISCV[variant]
    with _first(variant):
        proven = prove(_trained(seed), target=target, samples=2, sanitize=False)
    for outcome in proven.outcomes.values():
        outcome.check()
    found = {step.kernel for outcome in proven.outcomes.values() if (step := outcome.step) is not None}
    assert {kernel for kernel in kernels if any(name.startswith(kernel) for name in found)} == kernels

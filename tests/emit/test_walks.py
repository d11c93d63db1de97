"""Every kernel keeps the order that it declares: right at the derived distance, wrong one element closer.

Input and output of every layer that declares an overlap, of every template in every element type and of a table of windows,
are put into one array.
"""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from emitc.backends.portable import backend as portable_backend
from emitc.compiler import compile_model
from emitc.ir import BoundNode
from emitc.kernels.contract import Variant
from emitc.kernels.shared.windows import whole_window
from emitc.layer import ElementwiseOrder, WindowOrder, by_channel, first_inside
from emitc.target import Target
from emitc.writers.tflite import write_tflite
from tests.support.emit.shared_array import subjects
from tests.support.int16_cases import wide as shorts
from tests.support.layer_cases import Scales, Slide, conv_2d, depthwise, fully_connected, pool, softmax
from tests.support.moves import move, tensor
from tests.support.single_op import Case, integers, model_of, plain, quantized

SAME, STRIDED = Slide(padding="SAME"), Slide((2, 2), "SAME")
WINDOWS: list[Case] = [
    conv_2d("conv_same", (1, 7, 6, 8), 8, (3, 3), SAME),
    conv_2d("conv_growing", (1, 5, 7, 3), 10, (3, 3), SAME),
    conv_2d("conv_shrinking", (1, 6, 5, 16), 4, (3, 3), SAME),
    conv_2d("conv_valid", (1, 9, 8, 4), 5, (5, 3)),
    conv_2d("conv_strided", (1, 9, 10, 8), 12, (3, 3), STRIDED),
    conv_2d("conv_skipping", (1, 9, 9, 4), 8, (1, 1), Slide((3, 3), "VALID")),
    conv_2d("conv_tall_dilation", (1, 9, 6, 4), 8, (3, 3), Slide((1, 1), "SAME", (2, 1))),
    conv_2d("conv_wide_dilation", (1, 7, 9, 4), 6, (3, 3), Slide((1, 1), "SAME", (2, 3))),
    conv_2d("conv_batches", (3, 5, 4, 4), 6, (3, 3), SAME),
    conv_2d("conv_batches_strided", (3, 6, 6, 6), 4, (3, 3), STRIDED),
    conv_2d("conv_groups", (1, 6, 6, 8), 12, (3, 3), SAME, groups=4),
    conv_2d("conv_one_channel", (1, 12, 5, 1), 8, (10, 4), STRIDED),
    conv_2d("pointwise", (1, 5, 5, 8), 8, (1, 1)),
    conv_2d("pointwise_growing", (1, 4, 5, 6), 17, (1, 1)),
    conv_2d("pointwise_shrinking", (1, 4, 5, 24), 7, (1, 1)),
    conv_2d("pointwise_strided", (1, 8, 8, 8), 16, (1, 1), STRIDED),
    depthwise("depthwise", (1, 7, 6, 8), 1, (3, 3), SAME),
    depthwise("depthwise_odd", (1, 6, 7, 5), 1, (3, 3), SAME),
    depthwise("depthwise_three", (1, 6, 7, 3), 1, (3, 3), SAME),
    depthwise("depthwise_uneven", (1, 7, 6, 6), 1, (3, 3), SAME),
    depthwise("depthwise_uneven_large", (1, 6, 5, 7), 1, (5, 3), SAME),
    depthwise("depthwise_strided", (1, 8, 9, 12), 1, (3, 3), STRIDED),
    depthwise("depthwise_batches", (2, 6, 5, 4), 1, (5, 5), SAME),
    depthwise("depthwise_twice", (1, 6, 5, 6), 2, (3, 3), SAME),
    depthwise("depthwise_strided_twice", (1, 7, 8, 3), 4, (3, 3), STRIDED),
    depthwise("depthwise_dilated", (1, 9, 9, 4), 1, (3, 3), Slide((1, 1), "SAME", (2, 2))),
    fully_connected("rows", (6, 10), 9, 10),
    fully_connected("rows_growing", (5, 4), 16, 4),
    fully_connected("one_row", (1, 20), 13, 20),
    pool("average", "AVERAGE_POOL_2D", (1, 6, 6, 5), (2, 2), Slide((2, 2))),
    pool("average_same", "AVERAGE_POOL_2D", (1, 6, 7, 3), (3, 3), SAME),
    pool("largest", "MAX_POOL_2D", (1, 8, 6, 4), (2, 2), Slide((2, 2))),
    pool("largest_same", "MAX_POOL_2D", (1, 5, 6, 4), (3, 3), SAME),
    softmax("rows_of_shares", (3, 12), scale=0.01),
    Case("requantized", "QUANTIZE", (quantized((5, 7), 0.05, 3),), (quantized((5, 7), 0.07, -4),)),
    pool("largest_batches", "MAX_POOL_2D", (2, 6, 6, 3), (3, 3), STRIDED),
]


def test_windows_are_right_at_their_distance_and_wrong_one_element_closer(tmp_path: Path) -> None:
    file = tmp_path / "windows.tflite"
    file.write_bytes(write_tflite(model_of(WINDOWS)))
    found = list(subjects(compile_model(file), tmp_path))
    assert len(found) == len(WINDOWS)
    assert [s.id for s in found if not s.right()] == []
    assert [s.id for s in found if s.wrong_closer() is False] == []
    assert {s.node.layer.kernel_name for s in found} == {
        "conv_2d", "conv_2d_taps", "depthwise_conv_2d", "depthwise_conv_2d_multiplier", "fully_connected",
        "average_pool_2d", "max_pool_2d", "softmax", "requantized",
    }  # fmt: skip


VECTORS: list[Case] = [
    conv_2d("nine_rows", (1, 9, 3, 16), 20, (3, 3), SAME),
    conv_2d("one_pixel", (1, 1, 1, 40), 35, (1, 1)),
    depthwise("depthwise_register", (1, 7, 6, 16), 1, (3, 3), SAME),
    depthwise("depthwise_registers", (1, 6, 7, 48), 1, (3, 3), SAME),
    depthwise("depthwise_registers_strided", (1, 9, 8, 32), 1, (3, 3), STRIDED),
    depthwise("depthwise_four_pixels", (1, 6, 11, 4), 1, (3, 3), SAME),
    depthwise("depthwise_registers_wide", (1, 6, 7, 40), 1, (5, 3), SAME),
    fully_connected("two_outputs", (1, 70), 3, 70),
    fully_connected("row_of_many", (1, 30), 70, 30),
    pool("largest_of_many", "MAX_POOL_2D", (1, 6, 5, 37), (3, 3), SAME),
    pool("average_of_many", "AVERAGE_POOL_2D", (1, 6, 5, 18), (3, 2), SAME),
    pool("largest_of_four", "MAX_POOL_2D", (1, 8, 6, 10), (2, 2), Slide((2, 2))),
    pool("average_of_four", "AVERAGE_POOL_2D", (1, 8, 6, 12), (2, 2), Slide((2, 1))),
    *(
        Case(
            f"elements_{opcode}",
            opcode,
            (quantized((1, 39), 0.053117, 3), quantized((1, 39), 0.071379, -4)),
            (quantized((1, 39), 0.1234 if opcode == "ADD" else 0.01, -60),),
            {"fused_activation_function": "NONE"},
            2,
        )
        for opcode in ("ADD", "MUL")
    ),
    Case("table", "QUANTIZE", (quantized((300,), 0.05, 3),), (quantized((300,), 0.07, -4),)),
    Case("reals", "DEQUANTIZE", (quantized((37,), 0.05, 3),), (plain((37,)),)),
    Case(
        "sums_of_shorts",
        "ADD",
        (quantized((1, 39), 0.0013, 0, "int16"), quantized((1, 39), 0.0007, 0, "int16")),
        (quantized((1, 39), 0.0019, 0, "int16"),),
        {"fused_activation_function": "NONE"},
        2,
    ),
    Case(
        "shares_of_shorts",
        "SOFTMAX",
        (quantized((3, 13), 3e-4, 0, "int16"),),
        (quantized((3, 13), 2.0**-15, 0, "int16"),),
        {"beta": 1.0},
        2,
    ),
    depthwise("spread", (1, 6, 5, 6), 2, (3, 3), SAME),
    depthwise("spread_far", (1, 7, 4, 3), 5, (3, 3), STRIDED),
    *(
        shorts(case)
        for case in (
            conv_2d("shorts", (1, 7, 6, 5), 6, (3, 3), SAME, Scales(factor=2.0**-9)),
            conv_2d("shorts_of_many", (1, 6, 5, 3), 12, (3, 3), SAME, Scales(factor=2.0**-9)),
            conv_2d("shorts_nine_rows", (1, 9, 3, 16), 20, (3, 3), SAME, Scales(factor=2.0**-9)),
            conv_2d("shorts_in_step", (1, 7, 6, 8), 8, (3, 3), SAME, Scales(factor=2.0**-9)),
            fully_connected("row_of_shorts", (1, 30), 34, 30, scales=Scales(factor=2.0**-9)),
            fully_connected("rows_of_shorts", (6, 12), 18, 12, scales=Scales(factor=2.0**-9)),
            depthwise("depthwise_shorts", (1, 6, 5, 8), 1, (3, 3), SAME, Scales(factor=2.0**-9)),
        )
    ),
]


LEAN = {"conv_2d_lean_dsp", "row_dsp", "depthwise_conv_2d_dsp"}
SPAN = {"conv_2d_span_dsp"}
SCALAR = {
    "cortex-m3": {"conv_2d_halves", "matrix_halves", "row_scalar", "depthwise_conv_2d_scalar"},
    "cortex-m0": {"conv_2d_halves", "matrix_halves", "row_narrow", "depthwise_conv_2d_scalar"},
    "rv32imac": {"conv_2d_halves", "matrix_halves", "row_scalar", "depthwise_conv_2d_scalar", "depthwise_3x3_gpr31"},
    "cv32e40p": {
        "conv_2d_xpulp",
        "matrix_xpulp",
        "row_xpulp",
        "depthwise_conv_2d_xpulp",
        "depthwise_conv_2d_scalar",
        "depthwise_3x3_gpr31",
    },
}
WIDER = {
    "cortex-m4": {
        "conv_2d_dsp", "matrix_dsp", "row_dsp", "depthwise_conv_2d_dsp", "average_pool_2d_dsp", "max_pool_2d_dsp",
        "weighted_sum_dsp", "product_dsp", "conv_2d_s16_dsp", "row_s16_dsp", "depthwise_conv_2d_multiplier_dsp",
        "rescaled_sum_dsp",
    },
    "cortex-m55": {
        "conv_2d_mve", "depthwise_conv_2d_mve", "depthwise_3x3_mve", "row_mve", "dots_mve", "average_pool_2d_mve",
        "max_pool_2d_mve", "conv_2d_s16_mve", "depthwise_conv_2d_multiplier_mve", "product_mve", "lookup_mve",
        "rescaled_sum_mve", "dequantize_mve", "softmax_mve", "softmax_s16_mve",
    },
}  # fmt: skip
"""Templates of the variants, each wrong one element closer in some window below."""


def _leaner(bound: BoundNode, target: Target, row: Variant | None = None) -> float:
    return 0.0 if (row.name if row else "portable") == "dsp-noscratch" else 1.0


def test_kernels_without_working_memory_are_right_at_their_distance(tmp_path: Path) -> None:
    file = tmp_path / "windows.tflite"
    file.write_bytes(write_tflite(model_of(WINDOWS)))
    with patch.object(portable_backend, "cost_of", _leaner):
        found = list(subjects(compile_model(file, target="cortex-m4"), tmp_path))
    found = [subject for subject in found if subject.node.layer.variant == "dsp-noscratch"]
    templates = LEAN
    assert {subject.node.layer.kernel_name for subject in found} == templates
    assert [subject.id for subject in found if not subject.right()] == []
    closer = {(subject.node.layer.kernel_name, subject.wrong_closer()) for subject in found}
    assert all((template, True) in closer for template in templates)


@pytest.mark.parametrize("name", ["dsp-2px", "dsp-2px-rowwise", "dsp-1px"])
def test_convolutions_of_fewer_pixels_are_right_at_their_distance(tmp_path: Path, name: str) -> None:
    def cost(bound: BoundNode, target: Target, row: Variant | None = None) -> float:
        return 0.0 if (row.name if row else "portable") == name else 1.0

    file = tmp_path / "windows.tflite"
    file.write_bytes(write_tflite(model_of(WINDOWS)))
    with patch.object(portable_backend, "cost_of", cost):
        found = list(subjects(compile_model(file, target="cortex-m4", disabled=frozenset({"streaming"})), tmp_path))
    found = [subject for subject in found if subject.node.layer.variant == name]
    assert found and {subject.node.layer.kernel_name for subject in found} == {
        "conv_2d_part_dsp" if name == "dsp-2px-rowwise" else "conv_2d_few_dsp"
    }
    assert [subject.id for subject in found if not subject.right()] == []


@pytest.mark.parametrize("name", ["dsp-stretch4", "dsp-stretch3"])
def test_pixels_that_read_one_stretch_are_right_at_their_distance(tmp_path: Path, name: str) -> None:
    """And wrong one byte closer, in some window."""

    def cost(bound: BoundNode, target: Target, row: Variant | None = None) -> float:
        return 0.0 if (row.name if row else "portable") == name else 1.0

    cases = [
        conv_2d("one_stretch", (1, 7, 9, 3), 8, (3, 3), SAME),
        conv_2d("one_stretch_of_few", (1, 6, 10, 2), 2, (3, 3), SAME),
        conv_2d("one_stretch_strided", (1, 9, 11, 4), 3, (3, 3), STRIDED),
    ]
    file = tmp_path / "windows.tflite"
    file.write_bytes(write_tflite(model_of([*WINDOWS, *cases])))
    with patch.object(portable_backend, "cost_of", cost):
        found = list(subjects(compile_model(file, target="cortex-m4", disabled=frozenset({"streaming"})), tmp_path))
    found = [subject for subject in found if subject.node.layer.variant == name]
    assert len(found) > len(cases) and {subject.node.layer.kernel_name for subject in found} == SPAN
    assert [subject.id for subject in found if not subject.right()] == []
    assert any(subject.wrong_closer() is True for subject in found)


@pytest.mark.parametrize(("target", "templates"), SCALAR.items())
def test_scalar_variants_are_right_at_their_distance(tmp_path: Path, target: str, templates: set[str]) -> None:
    file = tmp_path / "windows.tflite"
    file.write_bytes(write_tflite(model_of(WINDOWS)))
    found = [s for s in subjects(compile_model(file, target=target), tmp_path) if s.node.layer.variant != "portable"]
    assert {s.node.layer.kernel_name for s in found} == templates
    assert [s.id for s in found if not s.right()] == []
    closer = {(s.node.layer.kernel_name, s.wrong_closer()) for s in found}
    assert {template for template in templates if (template, True) not in closer} == set()


def _dearer(bound: BoundNode, target: Target, row: Variant | None = None) -> float:
    return 1.0 if (row.name if row else "portable") == "portable" else 0.0


@pytest.mark.parametrize(("target", "templates"), WIDER.items())
def test_variants_are_right_at_their_distance(target: str, templates: set[str], tmp_path: Path) -> None:
    """And every template that declares one is wrong closer, in some window."""
    file = tmp_path / "windows.tflite"
    file.write_bytes(write_tflite(model_of([*WINDOWS, *VECTORS])))
    with patch.object(portable_backend, "cost_of", _dearer):
        found = list(subjects(compile_model(file, target=target), tmp_path))
    assert [s.id for s in found if not s.right()] == []
    sharp: dict[str, bool] = {}
    for subject in found:
        template = subject.node.layer.kernel_name
        sharp[template] = sharp.get(template, False) or subject.wrong_closer() is True
    assert templates <= set(sharp)
    assert {template for template in templates if not sharp[template]} == set()


def test_transpositions_are_right_wherever_they_lie(tmp_path: Path) -> None:
    """They move what does not lie there yet: at every distance, of the same place above all."""
    cases = [
        move(f"transposed_{dtype}", "TRANSPOSE", [tensor(shape, dtype), integers(*axes)], [tensor(made, dtype)])
        for shape, axes, made, dtype in (
            ((1, 3, 5, 6), (0, 2, 3, 1), (1, 5, 6, 3), "int8"),
            ((2, 5, 6, 3), (0, 3, 1, 2), (2, 3, 5, 6), "int16"),
            ((1, 3, 4, 13), (0, 2, 3, 1), (1, 4, 13, 3), "float32"),
        )
    ]
    file = tmp_path / "transpositions.tflite"
    file.write_bytes(write_tflite(model_of(cases)))
    found = list(subjects(compile_model(file), tmp_path))
    assert [subject.node.layer.kernel_name for subject in found] == ["transpose_in_place"] * len(cases)
    for subject in found:
        x = subject.node.bound.input(0)
        assert subject.overlap.distance_bytes == -x.size_bytes
        for elements in (0, 1, -1, 7, -7, x.elements - 1, 1 - x.elements):
            assert subject.agrees(elements * x.dtype.bytes, 0), (subject.id, elements)


def _traced(walk: WindowOrder, order: list[tuple[int, int]]) -> int:
    """The distance from a trace of all reads and stores. order: bytes stored before each reading, and where it starts."""
    events: list[tuple[int, int]] = []  # end of what is stored, first byte read then
    for n in range(walk.batches):
        for oy in range(walk.out_h):
            for ox in range(walk.out_w):
                pixel = (n * walk.out_h + oy) * walk.out_w + ox
                rows = [oy * walk.stride_h - walk.pad_top + ky * walk.dilation_h for ky in range(walk.kernel_h)]
                columns = [ox * walk.stride_w - walk.pad_left + kx * walk.dilation_w for kx in range(walk.kernel_w)]
                met = [(y, x) for y in rows for x in columns if 0 <= y < walk.in_h and 0 <= x < walk.in_w]
                if met:
                    low = min((n * walk.in_h + y) * walk.in_w + x for y, x in met) * walk.in_pixel
                    events += [(pixel * walk.out_pixel + stored, low + start) for stored, start in order]
    later = [(stored, min(read for _, read in events[i:])) for i, (stored, _) in enumerate(events) if stored]
    return max((stored - low for stored, low in later), default=-walk.batches * walk.in_h * walk.in_w * walk.in_pixel)


@pytest.mark.parametrize("seed", range(60))
def test_the_distance_is_that_of_a_trace(seed: int) -> None:
    rng = np.random.default_rng(seed)
    kernel_h, kernel_w, stride_h, stride_w, dilation_h, dilation_w = (int(v) for v in rng.integers(1, 4, 6))
    pad_top, pad_left = int(rng.integers(0, kernel_h)), int(rng.integers(0, kernel_w))
    in_h, in_w = (int(v) for v in rng.integers(7, 10, 2))
    in_c, each = (int(v) for v in rng.integers(1, 6, 2))
    out_h = (in_h + pad_top - (kernel_h - 1) * dilation_h - 1) // stride_h + 1
    out_w = (in_w + pad_left - (kernel_w - 1) * dilation_w - 1) // stride_w + 1
    geometry = {
        "batches": int(rng.integers(1, 3)), "in_h": in_h, "in_w": in_w, "out_h": out_h, "out_w": out_w,
        "kernel_h": kernel_h, "kernel_w": kernel_w, "stride_h": stride_h, "stride_w": stride_w, "dilation_h": dilation_h,
        "dilation_w": dilation_w, "pad_top": pad_top, "pad_left": pad_left, "in_pixel": in_c,
    }  # fmt: skip
    out = 4 * each + int(rng.integers(0, 2))
    together = WindowOrder(**geometry, out_pixel=out, ahead=whole_window(out, 4, 1))
    passes = [*range(0, out - out % 4, 4), *range(out - out % 4, out)]
    assert together.distance_bytes() == _traced(together, [(stored, 0) for stored in passes])
    alone = WindowOrder(**geometry, out_pixel=in_c * each, ahead=by_channel(in_c * each, in_c, 1, 1, 1))
    assert alone.distance_bytes() == _traced(alone, [(o, o // each) for o in range(in_c * each)])


@pytest.mark.parametrize(
    ("walk", "distance"),
    [
        (ElementwiseOrder(9), 0),
        (ElementwiseOrder(9, 1, 4), 24),
        (ElementwiseOrder(9, 4, 1), -3),
        (ElementwiseOrder(9, first=5), -5),
        (ElementwiseOrder(1, 4, 4), -4),
    ],
)
def test_elements(walk: ElementwiseOrder, distance: int) -> None:
    assert walk.distance_bytes() == distance


def test_a_window_beyond_the_input_reads_nothing() -> None:
    assert first_inside(4, 2, 1, 1, 0, 5).tolist() == [0, 2, 4, 5]

"""What layers row by row are estimated to cost: each part once, and nothing where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from emitc.backends.contract import PORTABLE
from emitc.compiler import compile_model
from emitc.layer import ByRows, Layer, Param
from emitc.schedule.row_streaming import (
    FITTED_ROW,
    FITTED_SHARE,
    OTHER_WINDOW_SHARE,
    PER_BYTE,
    PER_ROW,
    PORTABLE_WINDOW_SHARE,
    SOLE_USER_PER_RUN,
    layer_overhead,
    sole_users,
    tail_waste,
    window_runs,
)
from emitc.writers.tflite import write_tflite
from tests.support.models.image_nets import ImageNet


def _params(width: int, kernel: int = 3) -> tuple[Param, ...]:
    return Param("out_w", "int32_t", width, ""), Param("kernel_h", "int32_t", kernel, "")


FOURS, SINGLE, FITTED = ByRows(window=True, tile=4), ByRows(window=True), ByRows(window=True, fitted=True)


def _layer(by_rows: ByRows | None, params: tuple[Param, ...] = (), variant: str = "dsp") -> Layer:
    return Layer("convolution/conv_2d", variant, (0,), params=params, by_rows=by_rows)


@pytest.mark.parametrize(("width", "share"), [(4, 0), (5, 3 / 5), (6, 2 / 6), (7, 1 / 7), (1, 3), (8, 0)])
def test_pixels_left_over_from_fours_are_made_in_vain(width: int, share: float) -> None:
    assert tail_waste(_layer(FOURS, _params(width))) == pytest.approx(share)


@pytest.mark.parametrize("by_rows", [SINGLE, FITTED, None])
def test_other_kernels_make_none_in_vain(by_rows: ByRows | None) -> None:
    assert tail_waste(_layer(by_rows, _params(5))) == 0.0
    assert tail_waste(_layer(FOURS)) == 0.0


def _overhead(layer: Layer, cost: float = 80_000.0, *, window: bool = True, sole_user: bool = False) -> float:
    return layer_overhead(layer, cost, 8, 3, 100, window=window, sole_user=sole_user)


RUNS = 8 * 5 * 3
"""Rows of the windows of a layer of 8 rows of 5 pixels, with a window of 3 rows."""


def test_the_parts_add_up_once() -> None:
    """Rows, moved lines, the window's share, runs of a kernel that is alone, and pixels in vain."""
    bare = 8 * PER_ROW + PER_BYTE * (8 - 3) * (3 - 1) * 100
    layer, portable = _layer(SINGLE, _params(5)), _layer(SINGLE, _params(5), PORTABLE)
    assert _overhead(layer, window=False) == bare
    assert _overhead(layer) == bare + OTHER_WINDOW_SHARE * 80_000
    assert _overhead(_layer(FOURS, _params(12))) == _overhead(layer)
    assert _overhead(_layer(FOURS, _params(6))) == pytest.approx(bare + (OTHER_WINDOW_SHARE + 2 / 6) * 80_000)
    assert _overhead(layer, sole_user=True) == bare + OTHER_WINDOW_SHARE * 80_000 + RUNS * SOLE_USER_PER_RUN
    assert _overhead(portable, sole_user=True) == bare + PORTABLE_WINDOW_SHARE * 80_000
    assert _overhead(layer, window=False, sole_user=True) == bare


def test_a_fitted_kernel_of_long_rows_has_a_share_instead_of_runs() -> None:
    layer = _layer(FITTED, _params(5))
    bare = _overhead(layer, window=False)
    assert FITTED_ROW * 8 <= 80_000
    assert _overhead(layer, sole_user=True) == bare + FITTED_SHARE * 80_000
    assert _overhead(layer) == bare + OTHER_WINDOW_SHARE * 80_000
    short = _overhead(layer, 8.0 * FITTED_ROW - 8, sole_user=True)
    assert short == pytest.approx(bare + OTHER_WINDOW_SHARE * (8 * FITTED_ROW - 8) + RUNS * SOLE_USER_PER_RUN)


def test_a_whole_line_buffer_moves_nothing() -> None:
    layer = _layer(SINGLE)
    assert layer_overhead(layer, 0.0, 8, 8, 100, window=False, sole_user=False) == 8 * PER_ROW
    assert layer_overhead(layer, 0.0, 8, 0, 100, window=False, sole_user=False) == 8 * PER_ROW


def test_kernels_of_one_layer_and_the_rows_of_their_windows() -> None:
    assert sole_users({0: "a", 1: "b", 2: "a"}) == {1}
    assert window_runs(_params(5, 3), 4) == 4 * 5 * 3
    assert window_runs((), 4) == 0


def test_segment_and_program_are_estimated_alike(tmp_path: Path) -> None:
    """The estimate of a finished program counts a row's pixels in vain as the search for segments does, and only once."""
    net = ImageNet(3)
    x, shape = net.image(13, 13, 4)
    y, shape = net.window(x, shape, 12, 3, 1, "SAME", depthwise=False)
    z, _ = net.window(y, shape, 8, 3, 2, "SAME", depthwise=False)
    file = tmp_path / "net.tflite"
    file.write_bytes(write_tflite(net.spec((x,), (z,))))
    wanted = ((0, "dsp"), (1, "dsp"))
    made = compile_model(file, target="cortex-m4", ram_budget="min", variants=wanted)
    (segment,) = made.program.segments
    costs = {assignment.index: assignment.cost for assignment in made.partition.assignments}
    single = sole_users({step.index: step.kernel for step in made.program.steps})
    parts = []
    for call, vain in zip(segment.calls, (3 / 13, 1 / 7), strict=True):
        layer = made.partition.layers[call.step.index]
        assert tail_waste(layer) == pytest.approx(vain)
        parts.append(
            layer_overhead(
                layer,
                costs[call.step.index],
                call.makes.rows,
                call.makes.capacity,
                call.makes.row_bytes,
                window=call.step.window,
                sole_user=call.step.index in single,
            )
        )
    assert made.program.estimated_cycles == pytest.approx(sum(costs.values()) + sum(parts))

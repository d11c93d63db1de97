"""How much working memory kernels get: by default, under budgets, in the smallest arena."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

import pytest

from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.ir import BoundNode
from emitc.kernels.contract import KernelDef, Variant
from emitc.schedule import scratch_budget
from emitc.schedule.scratch_budget import (
    COST_RATIO_LIMIT,
    DEFAULT_BYTES,
    DEFAULT_COST_RATIO_LIMIT,
    DEFAULT_SHARE,
    LEAST_SHARES,
    ROWS_GAIN,
)
from emitc.verify.verification import verify
from emitc.writers.tflite import write_tflite
from tests.support.models.image_nets import ImageNet

KEYWORDS = Path(__file__).resolve().parents[2] / "examples" / "models" / "kws_ref_int8.tflite"


@pytest.fixture
def windows(tmp_path: Path) -> Path:
    """One convolution of a single channel whose working memory is a fifth of its tensors."""
    net = ImageNet(1)
    x, _ = net.image(30, 20, 1)
    y, _ = net.image(30, 20, 4)
    w, bias = net.weights("w", (1, 9, 8, 4), (0.02,)), net.bias("b", 4, (net.tensors[x].scales[0] * 0.02,))
    net.op(
        "DEPTHWISE_CONV_2D", (x, w, bias), (y,), depth_multiplier=4, padding="SAME", stride_w=1, stride_h=1,
        dilation_w_factor=1, dilation_h_factor=1, fused_activation_function="NONE",
    )  # fmt: skip
    file = tmp_path / "windows.tflite"
    file.write_bytes(write_tflite(net.spec((x,), (y,))))
    return file


def _scratch(compiled: Compiled) -> int:
    return sum(operand.size_bytes for step in compiled.program.steps for operand in step.scratch)


def test_the_default_spends_a_share_of_the_arena(windows: Path) -> None:
    lean = compile_model(windows, target="cortex-m4", optimize="size").program.plan.arena_bytes
    default = compile_model(windows, target="cortex-m4")
    asked = compile_model(windows, target="cortex-m4", variants=((0, "dsp"),))
    assert default.program.plan.arena_bytes <= lean + max(DEFAULT_SHARE * lean, DEFAULT_BYTES)
    assert asked.program.plan.arena_bytes > lean + max(DEFAULT_SHARE * lean, DEFAULT_BYTES)
    assert 0 < _scratch(default) < _scratch(asked)


def test_the_default_keeps_a_fast_kernel_where_others_are_dear(tmp_path: Path) -> None:
    net = ImageNet(1)
    x, shape = net.image(30, 20, 4)
    y, _ = net.window(x, shape, 8, 5, 1, "SAME", depthwise=False)
    file = tmp_path / "windows.tflite"
    file.write_bytes(write_tflite(net.spec((x,), (y,))))

    def four_or_lean(kernel: KernelDef, bound: BoundNode) -> tuple[Variant, ...]:
        return tuple(row for row in offered(kernel, bound) if row.name in ("dsp", "dsp-noscratch"))

    offered = KernelDef.offered
    with patch.object(KernelDef, "offered", four_or_lean):
        default = compile_model(file, target="cortex-m4")
        lean = compile_model(file, target="cortex-m4", optimize="size")
    assert default.program.steps[0].variant == "dsp"
    assert default.program.plan.arena_bytes > (1 + DEFAULT_SHARE) * lean.program.plan.arena_bytes + DEFAULT_BYTES
    dearer = lean.program.estimated_cycles / default.program.estimated_cycles
    assert dearer * lean.program.plan.arena_bytes > DEFAULT_COST_RATIO_LIMIT * default.program.plan.arena_bytes


def test_the_smallest_arena_gives_way_where_that_is_dear() -> None:
    exact = compile_model(KEYWORDS, target="cortex-m4", ram_budget="min", optimize="size")
    least = compile_model(KEYWORDS, target="cortex-m4", ram_budget="min")
    default = compile_model(KEYWORDS, target="cortex-m4")
    small, arena = exact.program.plan.arena_bytes, least.program.plan.arena_bytes
    assert small < arena <= small * (1 + LEAST_SHARES[-1])
    assert arena <= default.program.plan.arena_bytes
    costs = [each.program.estimated_cycles for each in (default, least, exact)]
    assert costs[1] <= COST_RATIO_LIMIT * costs[0] < costs[2]


def test_a_budget_between_is_met_and_spent() -> None:
    exact = compile_model(KEYWORDS, target="cortex-m4", ram_budget="min", optimize="size").program.plan.arena_bytes
    within = compile_model(KEYWORDS, target="cortex-m4", ram_budget=exact + 32)
    assert within.program.plan.arena_bytes <= exact + 32 and _scratch(within) > 0


@pytest.fixture
def narrow(tmp_path: Path) -> Path:
    """Small images of many channels: working memory is a large part of the arena, with the layers whole or row by row."""
    net = ImageNet(2)
    x, shape = net.image(28, 28, 1)
    first, shape = net.window(x, shape, 12, 3, 2, "SAME", depthwise=False)
    second, shape = net.window(first, shape, 24, 3, 2, "SAME", depthwise=False)
    third, _ = net.window(second, shape, 24, 3, 1, "SAME", depthwise=False)
    both, shape = net.add(second, third, shape)
    y, _ = net.window(both, shape, 48, 3, 2, "VALID", depthwise=False)
    file = tmp_path / "narrow.tflite"
    file.write_bytes(write_tflite(net.spec((x,), (y,))))
    return file


def test_the_default_takes_rows_beside_leaner_kernels(narrow: Path) -> None:
    """Where that costs less than leaner kernels alone and makes the arena smaller."""
    default = compile_model(narrow, target="cortex-m4")
    with patch.object(scratch_budget, "ROWS_LAYERS", 0):
        leaner = compile_model(narrow, target="cortex-m4")
    assert default.program.segments
    assert default.program.plan.arena_bytes <= ROWS_GAIN * leaner.program.plan.arena_bytes
    assert default.program.estimated_cycles <= leaner.program.estimated_cycles
    assert verify(default, samples=2).match


def test_rows_of_the_input_do_not_make_kernels_leaner(narrow: Path) -> None:
    """A little more memory is taken where the leanest kernels would cost much; cost times arena decides."""
    whole = compile_model(narrow, target="cortex-m4")
    pulled = compile_model(narrow, target="cortex-m4", input_rows=True)
    with patch.object(scratch_budget, "ROWS_LAYERS", 0):
        leaner = compile_model(narrow, target="cortex-m4", input_rows=True)
    costs = [each.program.estimated_cycles for each in (whole, pulled, leaner)]
    arenas = [each.program.plan.arena_bytes for each in (whole, pulled, leaner)]
    assert costs[1] <= 1.02 * costs[0] and arenas[1] <= arenas[0]
    assert costs[2] > DEFAULT_COST_RATIO_LIMIT * costs[1] and arenas[2] * costs[2] > arenas[1] * costs[1]


LAST_LEAN = ((0, "dsp-2px"), (1, "dsp-noscratch"), (2, "dsp-noscratch"), (4, "dsp-noscratch"))


def test_working_memory_lies_over_rows_that_are_begun_later(narrow: Path) -> None:
    """The first layer's, over the last rows of the segment's output."""
    found = compile_model(narrow, target="cortex-m4", ram_budget="min", variants=LAST_LEAN)
    placed = {p.name: p for p in found.program.plan.placements}
    scratch = [p for p in found.program.plan.placements if "scratch of rows" in p.name]
    assert found.program.segments and scratch
    overlapping = [
        (p, other)
        for p in scratch
        for other in placed.values()
        if other is not p
        and p.live.first == other.live.first
        and other.offset_bytes < p.offset_bytes + p.size_bytes
        and p.offset_bytes < other.offset_bytes + other.size_bytes
    ]
    assert overlapping
    assert verify(found, samples=2, sanitize=True).match

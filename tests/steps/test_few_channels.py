"""Layers of one to three channels in parts. The loop over four channels reads no number that is not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from emitc.compiler import compile_model
from emitc.planner.region_assignment import Region
from emitc.program import Program
from emitc.verify.verification import verify
from emitc.writers.tflite import write_tflite
from tests.support.layer_cases import Scales, Slide, conv_2d, depthwise, fully_connected
from tests.support.single_op import Case, model_of

TARGETS = ("generic32", "cortex-m0", "cortex-m3", "cortex-m4f", "cortex-m7", "cortex-m33", "cortex-m55", "rv32imac")
REGIONS = (Region("FAST", 20000, 1.0), Region("SLOW", 40000, 3.0), Region("FLASH", 0, 9.0))
STAGED = {"regions": REGIONS, "places": (("weights", "FLASH"),), "stage_weights": "FAST"}
KINDS = ("conv", "pointwise", "depthwise", "multiplier", "rows")


def layer(kind: str, channels: int, scales: Scales) -> Case:
    """A layer with so many outputs for each pixel or row."""
    same = Slide(padding="SAME")
    if kind == "conv":
        return conv_2d(kind, (1, 8, 8, 5), channels, (3, 3), same, scales)
    if kind == "pointwise":
        return conv_2d(kind, (1, 8, 8, 8), channels, (1, 1), same, scales)
    if kind == "depthwise":
        return depthwise(kind, (1, 8, 8, channels), 1, (3, 3), same, scales)
    if kind == "multiplier":
        return depthwise(kind, (1, 8, 8, 1), channels, (3, 3), same, scales)
    return fully_connected(kind, (16, 20), channels, 20, scales=scales)


def divided(folder: Path, case: Case, target: str, **options: Any) -> Any:
    """The layer alone, compiled in parts."""
    path = folder / "net.tflite"
    path.write_bytes(write_tflite(model_of([case])))
    return compile_model(path, target=target, max_step_cycles=400, **options)


def numbers(program: Program) -> dict[str, tuple[int | float, ...]]:
    """The values of each constant, by role."""
    return {constant.table.role: constant.table.values for step in program.steps for constant in step.constants}


@pytest.mark.sweep(keep=4)
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("channels", [1, 2, 3])
@pytest.mark.parametrize("target", TARGETS)
def test_parts_have_the_bits_of_the_layer(
    target: str, channels: int, kind: str, per_channel: bool, tmp_path: Path
) -> None:
    """The host compiler's warnings are errors here. per_channel: every channel has a scale of its own."""
    weights = tuple(0.02 * (1 + i) for i in range(channels if per_channel and kind != "rows" else 1))
    made = divided(tmp_path, layer(kind, channels, Scales(weights=weights)), target)
    assert made.program.stepping.stages[0].calls > 1
    proof = verify(made, samples=2, layers=True)
    assert proof.match and proof.memory_errors == ()


@pytest.mark.parametrize("target", ["cortex-m0", "cortex-m4f"])
def test_only_a_layer_in_parts_has_further_numbers(target: str, tmp_path: Path) -> None:
    """Its bias has four; the values of the channels are the first ones, and the others zero."""
    case = layer("depthwise", 3, Scales())
    made = divided(tmp_path, case, target)
    whole = compile_model(tmp_path / "net.tflite", target=target, steps=True)
    assert len(numbers(whole.program)["bias"]) == 3
    assert numbers(made.program)["bias"] == (*numbers(whole.program)["bias"], 0)


@pytest.mark.parametrize("options", [{"weights": "external"}, {"split_weights": True}, STAGED])
def test_weights_outside_of_the_code(options: dict[str, Any], tmp_path: Path) -> None:
    """Their files have the further numbers too."""
    made = divided(tmp_path, layer("depthwise", 2, Scales()), "cortex-m4f", **options)
    assert verify(made, samples=2, layers=True).match

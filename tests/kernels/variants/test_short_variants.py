"""Kernels of int16 activations on cores with DSP instructions or vectors: the bits of the reference and the engine.

On this machine the headers' functions are plain C; the emulators run the instructions.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from emitc.backends.portable import backend
from emitc.boards.verify import on_emulator
from emitc.compiler import compile_model
from emitc.ir import BoundNode
from emitc.kernels.contract import Variant
from emitc.target import Target
from emitc.writers.tflite import write_tflite
from tests.kernels.variants import test_int16_layers
from tests.support.int16_cases import wide
from tests.support.layer_cases import Scales, Slide, conv_2d, depthwise, fully_connected
from tests.support.single_op import Case, model_of, prove

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

SAME = Slide(padding="SAME")
SCALES = Scales(factor=2.0**-9)
CORES = {"dsp": ("cortex-m4", "qemu_m4"), "mve": ("cortex-m55", "qemu_m55")}
TEMPLATES = {
    "dsp": {"conv_2d_s16_dsp", "row_s16_dsp"},
    "mve": {"conv_2d_s16_mve"},
}


def short_cases() -> Iterator[Case]:
    for depth in (1, 2, 3, 8, 17):
        yield wide(conv_2d(f"depth_{depth}", (1, 5, 6, depth), 6, (3, 3), SAME, SCALES))
    for channels in (2, 3, 4, 9):
        yield wide(conv_2d(f"channels_{channels}", (1, 4, 5, 5), channels, (2, 3), Slide((2, 1), "SAME"), SCALES))
    yield wide(conv_2d("pixels_left_over", (2, 3, 3, 4), 5, (2, 2), scales=SCALES))
    yield wide(conv_2d("wider_than_the_image", (1, 3, 2, 3), 4, (5, 7), SAME, SCALES))
    yield wide(conv_2d("rows_apart", (1, 9, 6, 3), 5, (3, 2), Slide(dilation=(2, 1)), SCALES))
    yield wide(conv_2d("points", (1, 4, 5, 13), 7, (1, 1), scales=SCALES))
    yield wide(conv_2d("three_points", (1, 3, 1, 6), 5, (1, 1), scales=SCALES))
    yield wide(conv_2d("short_bias", (1, 5, 4, 4), 6, (3, 3), SAME, SCALES), "int32")
    yield wide(conv_2d("limits", (1, 5, 4, 4), 6, (3, 3), Slide(padding="SAME", activation="RELU6"), SCALES))
    w = np.full((5, 3, 3, 16), -128, np.int8)
    yield wide(conv_2d("largest_sums", (1, 4, 4, 16), 5, (3, 3), SAME, Scales(factor=2.0**-12), w=w))
    for rows, depth, out in ((1, 1, 1), (1, 33, 7), (1, 64, 8), (3, 18, 6), (4, 9, 5), (6, 20, 4)):
        yield wide(fully_connected(f"rows_{rows}_{depth}_{out}", (rows, depth), out, depth, scales=SCALES))


def spread_cases() -> list[Case]:
    """Depthwise, of several filters or of int16."""
    cases = [
        depthwise("twice", (1, 6, 5, 6), 2, (3, 3), SAME, Scales(input_zero_point=-128)),
        depthwise(
            "three_times",
            (2, 5, 4, 5),
            3,
            (2, 3),
            Slide((1, 2), "SAME", activation="RELU"),
            Scales(output_zero_point=7),
        ),
        depthwise("four_times", (1, 4, 6, 4), 4, (3, 3), Slide(dilation=(1, 2))),
        depthwise(
            "five_times", (1, 5, 5, 3), 5, (3, 3), SAME, Scales(weights=tuple(0.002 * (i + 1) for i in range(15)))
        ),
        depthwise("seven_pairs", (1, 3, 3, 2), 7, (3, 3), SAME),
    ]
    shorts = [
        depthwise("short_twice", (1, 5, 4, 6), 2, (3, 2), Slide((2, 1), "SAME"), SCALES),
        depthwise("short_three_times", (1, 4, 5, 3), 3, (3, 3), SAME, SCALES),
        depthwise("short_column", (1, 9, 1, 6), 1, (5, 1), Slide(activation="RELU6"), SCALES),
        *(depthwise(f"short_{channels}", (1, 5, 6, channels), 1, (3, 3), SAME, SCALES) for channels in (2, 4, 7, 8)),
    ]
    return [*cases, *(wide(case) for case in shorts)]


@pytest.mark.parametrize("variant", CORES)
def test_depthwise_layers(variant: str) -> None:
    def cost(bound: BoundNode, target: Target, row: Variant | None = None) -> float:
        return 0.0 if (row.name if row else "portable") == variant else 1.0

    with patch.object(backend, "cost_of", cost):
        proven = prove(spread_cases(), target=CORES[variant][0])
    for outcome in proven.outcomes.values():
        outcome.check()
    assert proven.memory_errors == ()
    templates = {name: o.step.kernel_name for name, o in proven.outcomes.items() if o.step}
    alone = {} if variant == "mve" else {"short_2": "depthwise_conv_2d"}  # less than four channels
    assert {name for name in templates if name not in alone} == {case.id for case in spread_cases()} - set(alone)
    assert {
        name: template for name, template in templates.items() if template != f"depthwise_conv_2d_multiplier_{variant}"
    } == alone


@pytest.mark.parametrize("variant", CORES)
def test_layers_of_shorts(variant: str) -> None:
    cases = list(short_cases())

    def cost(bound: BoundNode, target: Target, row: Variant | None = None) -> float:
        return 0.0 if (row.name if row else "portable") == variant else 1.0

    with patch.object(backend, "cost_of", cost):
        proven = prove([*cases, *test_int16_layers.CASES], target=CORES[variant][0])
    for outcome in proven.outcomes.values():
        outcome.check()
    assert proven.memory_errors == ()
    steps = {case.id: step for case in cases if (step := proven.outcomes[case.id].step)}
    assert {name for name, step in steps.items() if step.variant != variant} == set()
    assert {step.kernel_name for step in steps.values()} == TEMPLATES[variant]


@pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")), reason="needs the Arm tools and QEMU"
)
@pytest.mark.sweep(keep=1)
@pytest.mark.parametrize("variant", CORES)
def test_on_an_emulated_core(variant: str, tmp_path: Path) -> None:
    target, board = CORES[variant]
    model = tmp_path / "cases.tflite"
    model.write_bytes(write_tflite(model_of([*short_cases(), *spread_cases()])))

    def cost(bound: BoundNode, _: Target, row: Variant | None = None) -> float:
        return 0.0 if (row.name if row else "portable") == variant else 1.0

    with patch.object(backend, "cost_of", cost):
        compiled = compile_model(model, target=target, package="platformio")
    result = on_emulator(compiled, board, reference="numpy", samples=2, seed=1, layers=False, workdir=tmp_path)
    assert result.match


@pytest.mark.skipif(not shutil.which("arm-none-eabi-gcc"), reason="needs the Arm compiler")
def test_a_row_by_itself_is_compiled_without_a_warning(tmp_path: Path) -> None:
    """The compiler knows its number of channels then, and warned of a loop that has no end where there are no channels left."""
    (tmp_path / "row.tflite").write_bytes(
        write_tflite(model_of([wide(fully_connected("row", (1, 135), 16, 135, scales=SCALES))]))
    )
    compile_model(tmp_path / "row.tflite", target="cortex-m4").write(tmp_path / "package")
    core = ["-mcpu=cortex-m4", "-mthumb", "-std=c11", "-Wall", "-Wextra", "-Werror", "-O2"]
    command = ["arm-none-eabi-gcc", *core, "-c", "row.c", "-o", "row.o"]
    done = subprocess.run(command, cwd=tmp_path / "package", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

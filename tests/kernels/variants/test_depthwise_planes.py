"""Depthwise convolutions by planes on cores with the DSP extension: the bits of the reference and the engine, on this machine."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from emitc.backends.portable import backend
from emitc.boards.verify import on_emulator
from emitc.compiler import compile_model
from emitc.ir import BoundNode
from emitc.kernels.contract import Variant
from emitc.options import Options
from emitc.target import Target, load_board
from emitc.verify.verification import verify
from emitc.writers.tflite import write_tflite
from tests.support.emit.shared_array import subjects
from tests.support.layer_cases import Scales, Slide, depthwise
from tests.support.models.image_nets import ImageNet
from tests.support.onnx_op import OnnxCase, computed, prove_onnx
from tests.support.onnx_op import model_of as onnx_model_of
from tests.support.single_op import Case, model_of, prove

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

SAME, WINDOW = Slide(padding="SAME"), (3, 3)
UP = Scales(output_zero_point=-128, weights=(0.01,) * 3 + (0.02,) * 2)
"""Rectified outputs, which are rounded halves up."""


WINDOWS = ((5, 5), (7, 7), (1, 3), (3, 1), (2, 2), (4, 4), (5, 3), (6, 2), (1, 1), (3, 6), (2, 7))


def _case(name: str, shape: tuple[int, int, int, int], slide: Slide = SAME, scales: Scales | None = None) -> Case:
    return depthwise(name, shape, 1, WINDOW, slide, scales or Scales())


def _window(size: tuple[int, int], height: int, width: int, channels: int) -> Case:
    """SAME of every other channel count, and VALID where the window fits."""
    slide = SAME if channels % 2 or size[0] > height or size[1] > width else Slide(activation="RELU6")
    name = f"window_{size[0]}x{size[1]}_of_{height}x{width}"
    return depthwise(name, (1 + channels % 2, height, width, channels), 1, size, slide)


CASES: list[Case] = [
    *(
        _case(f"rows_{height}_columns_{width}", (1 + height % 2, height, width, 2 + (height + width) % 7))
        for height in (1, 2, 3, 6, 7, 12, 13, 14)
        for width in (1, 2, 3, 4, 5, 8)
        if height < 4 or width < 3 or (height + width) % 3 == 0
    ),
    *(_window(size, *image) for size in WINDOWS for image in ((9, 8, 4), (13, 5, 7), (5, 14, 6))),
    _case("wide", (1, 9, 31, 5)),
    _case("wide_odd", (2, 8, 34, 3)),
    _case("valid", (1, 9, 8, 6), Slide()),
    _case("valid_one_output", (1, 3, 3, 4), Slide()),
    _case("rectified", (1, 8, 7, 5), Slide(padding="SAME", activation="RELU"), UP),
    _case("rectified_wide", (1, 8, 35, 5), Slide(padding="SAME", activation="RELU"), UP),
    _case("six", (1, 8, 7, 6), Slide(padding="SAME", activation="RELU6")),
    _case("limits", (2, 7, 9, 4), Slide(activation="RELU_N1_TO_1")),
    replace(
        _case("extremes", (1, 9, 6, 4)),
        draw=lambda rng, _: [rng.choice(np.array([-128, 127], np.int8), (1, 9, 6, 4))],
    ),
]


def _planes(bound: BoundNode, target: Target, row: Variant | None = None) -> float:
    return 0.0 if (row.name if row else "portable") == "dsp-planes" else 1.0


def test_sizes_paddings_and_limits() -> None:
    with patch.object(backend, "cost_of", _planes):
        proven = prove(CASES, target="cortex-m4")
    for outcome in proven.outcomes.values():
        outcome.check()
    assert proven.memory_errors == ()
    kernels = {o.step.kernel for o in proven.outcomes.values() if o.step is not None and o.step.variant == "dsp-planes"}
    assert sum(o.step is not None and o.step.variant == "dsp-planes" for o in proven.outcomes.values()) == len(CASES)
    assert {name.rpartition("_")[2] for name in kernels} == {"3x3", "any"}
    assert {word for name in kernels for word in ("_up", "_away", "_clamped", "_shared") if word in name} == {
        "_up", "_away", "_clamped", "_shared"
    }  # fmt: skip


@pytest.mark.skipif(
    not shutil.which("arm-none-eabi-gcc") or not shutil.which("qemu-system-arm"), reason="the emulator is not installed"
)
def test_the_assembly_on_an_emulated_core(tmp_path: Path) -> None:
    file = tmp_path / "planes.tflite"
    file.write_bytes(write_tflite(model_of(CASES)))
    with patch.object(backend, "cost_of", _planes):
        compiled = compile_model(file, Options(target=load_board("qemu_m4").target, package="platformio"))
    assert {step.variant for step in compiled.program.steps} == {"dsp-planes"}
    assert on_emulator(compiled, "qemu_m4", reference="auto", samples=2, seed=3, layers=False, workdir=tmp_path).match


def _by_factors(height: int, width: int, channels: int, *, own: bool) -> OnnxCase:
    """ONNX requantizes by float32 factors. own: whether every channel has one."""
    rng = np.random.default_rng(100 * height + width)
    scales = rng.uniform(0.002, 0.01, channels).astype(np.float32) if own else np.array(0.004, np.float32)
    inputs = {
        "x": computed((1, channels, height, width), "int8"), "xs": np.array(0.05, np.float32), "xz": np.array(3, np.int8),
        "w": rng.integers(-127, 128, (channels, 1, 3, 3), np.int8), "ws": scales, "wz": np.zeros(scales.shape, np.int8),
        "ys": np.array(0.05, np.float32), "yz": np.array(-7, np.int8), "b": rng.integers(-3000, 3000, channels, np.int32),
    }  # fmt: skip
    attributes = {"group": channels, "pads": [1, 1, 1, 1]}
    return OnnxCase(f"factors_{height}x{width}x{channels}_{own}", "QLinearConv", inputs, attributes)


FACTORS = [
    _by_factors(height, width, channels, own=channels % 2 == 0)
    for height, width, channels in ((1, 1, 4), (2, 3, 5), (7, 4, 6), (13, 5, 4), (6, 8, 7), (5, 34, 2))
]


def test_float_factors() -> None:
    with patch.object(backend, "cost_of", _planes):
        proven = prove_onnx(FACTORS, target="cortex-m4f")
    proven.check()
    steps = [step for compiled in proven.compiled.values() for step in compiled.program.steps]
    kernels = {step.kernel for step in steps if step.variant == "dsp-planes"}
    assert len(kernels) == 2 and all("_f32" in name for name in kernels)


@pytest.mark.skipif(
    not shutil.which("arm-none-eabi-gcc") or not shutil.which("qemu-system-arm"), reason="the emulator is not installed"
)
def test_float_factors_on_an_emulated_core(tmp_path: Path) -> None:
    file = tmp_path / "factors.onnx"
    file.write_bytes(onnx_model_of(FACTORS).SerializeToString())
    with patch.object(backend, "cost_of", _planes):
        compiled = compile_model(file, target="cortex-m4f", package="platformio")
    assert on_emulator(compiled, "qemu_m4", reference="numpy", samples=2, seed=3, layers=False, workdir=tmp_path).match


def test_the_output_lies_over_the_input_at_a_distance_of_whole_pixels(tmp_path: Path) -> None:
    file = tmp_path / "planes.tflite"
    file.write_bytes(write_tflite(model_of([case for case in CASES if case.inputs[0].shape[3] > 4])))
    with patch.object(backend, "cost_of", _planes):
        found = list(subjects(compile_model(file, target="cortex-m4"), tmp_path))
    for subject in found:
        channels = subject.overlap.multiple
        assert all(subject.agrees(pixels * channels, 0) for pixels in (0, 1, 5)), subject.id
        assert subject.wrong_closer(), subject.id
    assert any(not subject.agrees(1, 0) for subject in found)


def test_the_planner_keeps_that_distance(tmp_path: Path) -> None:
    net = ImageNet(1)
    x, shape = net.image(12, 10, 12)
    inner, shape = net.window(x, shape, 20, 1, 1, "SAME", depthwise=False)
    planes, shape = net.window(inner, shape, 20, 3, 1, "SAME", depthwise=True)
    y, _ = net.window(planes, shape, 12, 1, 1, "SAME", depthwise=False)
    file = tmp_path / "net.tflite"
    file.write_bytes(write_tflite(net.spec((x,), (y,))))
    compiled = compile_model(file, target="cortex-m4", variants=((1, "dsp-planes"),))
    start = {p.name: p.offset_bytes for p in compiled.program.plan.placements}
    above = start[net.tensors[inner].name] - start[net.tensors[planes].name]
    assert 0 <= above < 12 * 10 * 20 and above % 20 == 0
    assert verify(compiled, samples=3, layers=True, sanitize=True).match


def test_what_has_other_kernels(tmp_path: Path) -> None:
    cases = {
        "it has a stride or a dilation": depthwise("strided", (1, 8, 8, 8), 1, WINDOW, Slide((2, 2), "SAME")),
        "its window has more than 7 rows": depthwise("tall", (1, 20, 1, 8), 1, (9, 1)),
        "it has fewer than four channels": depthwise("few", (1, 8, 8, 3), 1, (5, 5)),
    }
    for reason, case in cases.items():
        file = tmp_path / f"{case.id}.tflite"
        file.write_bytes(write_tflite(model_of([case])))
        (row,) = compile_model(file, target="cortex-m4").partition.assignments
        assert ("dsp-planes", reason) in row.refused


def test_small_images_have_the_other_kernel() -> None:
    small, large = _case("small", (1, 3, 3, 8)), _case("large", (1, 48, 48, 16))
    outcomes = prove([small, large], target="cortex-m4", samples=1, sanitize=False).outcomes
    variants = {name: outcome.step.variant for name, outcome in outcomes.items() if outcome.step is not None}
    assert variants == {"small": "dsp", "large": "dsp-planes"}

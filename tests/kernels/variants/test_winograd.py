"""Convolutions by Winograd's filtering: the bits of the reference and the engine; what has no such kernel; what it may cost.

On this machine the headers' functions are plain C; the emulator runs the instructions.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from emitc.boards.verify import on_emulator
from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.errors import CannotCompile, EmitcError
from emitc.kernels.mac import winograd
from emitc.options import Options
from emitc.planner.region_assignment import Region
from emitc.schedule import scratch_budget
from emitc.verify.verification import verify
from emitc.writers.tflite import write_tflite
from tests.support.layer_cases import Scales, Slide, conv_2d
from tests.support.models.image_nets import ImageNet
from tests.support.onnx_op import OnnxCase, computed
from tests.support.onnx_op import model_of as onnx_model_of
from tests.support.single_op import Case, model_of, prove

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

FLASH, SCRATCH, GPR31, LEAN = "dsp-winograd", "dsp-winograd-scratch", "gpr31-winograd", "gpr31-winograd-lean"
VARIANTS = {FLASH: "cortex-m4", SCRATCH: "cortex-m4", GPR31: "rv32imac", LEAN: "rv32imac"}
"""With a target that has it."""
OF_THREE_COLUMNS = (FLASH, SCRATCH, "dsp")
"""`dsp` widens what four neighbouring windows read at once, where they have three columns."""
SAME = Slide(padding="SAME")
LARGE = 1 << 30


def cases(variant: str) -> Iterator[Case]:
    few = 8 if variant == LEAN else 4
    odd_depths = (1, 3, 6, 70) if variant in (GPR31, LEAN) else ()
    for width in range(1, 10):
        yield conv_2d(f"width_{width}", (1, 5, width, 4), few, (3, 3), SAME)
    for width in range(3, 9):
        yield conv_2d(f"valid_{width}", (2, 4, width, 8), few + 1, (3, 3))
    for more in (0, 1, 2, 3, 5):
        yield conv_2d(f"channels_{few + more}", (1, 3, 7, 12), few + more, (3, 3), SAME)
    for depth in (4, 8, 16, 20, 36, *odd_depths):
        yield conv_2d(f"depth_{depth}", (1, 5, 11, depth), few + 2, (3, 3), SAME)
    for rows in (1, 2, 4, 5):
        yield conv_2d(f"rows_{rows}", (1, 7, 6, 8), few, (rows, 3), SAME)
    yield conv_2d("row_stride", (1, 9, 13, 8), few + 2, (3, 3), Slide((2, 1), "SAME"))
    yield conv_2d("row_dilation", (1, 9, 6, 8), few + 2, (3, 3), Slide(padding="SAME", dilation=(2, 1)))
    yield conv_2d("limits", (1, 5, 6, 8), few + 2, (3, 3), Slide(padding="SAME", activation="RELU6"))
    yield conv_2d("batches", (3, 3, 5, 4), few, (3, 3), SAME)
    each = tuple(0.004 * (1 + i) for i in range(few + 2))
    yield conv_2d("per_channel", (1, 5, 6, 8), few + 2, (3, 3), SAME, Scales(weights=each))
    yield conv_2d("left_shifts", (1, 5, 6, 8), few, (3, 3), SAME, Scales(factor=1.5))
    for zero in (-128, 127):
        scales = Scales(factor=2.0**-12, input_zero_point=zero, output_zero_point=zero)
        yield conv_2d(f"rectified_{zero}", (1, 5, 6, 8), few, (3, 3), Slide(padding="SAME", activation="RELU"), scales)
        for value in (-128, 127):
            w = np.full((few, 3, 3, 16), value, np.int8)
            yield conv_2d(f"largest_{zero}_{value}", (1, 6, 7, 16), few, (3, 3), SAME, scales, w=w)
        ends = np.where(np.arange(few * 3 * 3 * 16) % 2, -128, 127).astype(np.int8).reshape(few, 3, 3, 16)
        yield conv_2d(f"both_ends_{zero}", (1, 6, 7, 16), few, (3, 3), SAME, scales, w=ends)


SHARES = {GPR31: slice(0, None, 2), LEAN: slice(1, None, 2)}
"""The two of cores with 31 registers differ in their inner loops only, and share the cases."""


@pytest.mark.parametrize("variant", [*VARIANTS, "dsp"])
def test_every_bit_is_that_of_the_reference(variant: str) -> None:
    proven = prove(
        list(cases(variant))[SHARES.get(variant, slice(None))],
        target=VARIANTS.get(variant, "cortex-m4"),
        variant=variant,
    )
    for outcome in proven.outcomes.values():
        outcome.check()
    assert proven.memory_errors == ()
    assert {step.variant for step in proven.compiled.program.steps} == {variant}


@pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")), reason="needs the Arm tools and QEMU"
)
@pytest.mark.parametrize("variant", OF_THREE_COLUMNS)
def test_on_an_emulated_core(variant: str, tmp_path: Path) -> None:
    """The others have no instructions of their own."""
    model = tmp_path / "cases.tflite"
    model.write_bytes(write_tflite(model_of(list(cases(variant)))))
    asked = tuple((index, variant) for index in range(len(list(cases(variant)))))
    compiled = compile_model(model, target="cortex-m4", package="platformio", variants=asked)
    result = on_emulator(compiled, "qemu_m4", reference="numpy", samples=2, seed=1, layers=False, workdir=tmp_path)
    assert result.match


def _by_factors(height: int, width: int, depth: int, channels: int, *, scale: float = 0.05) -> OnnxCase:
    """ONNX requantizes by float32 factors; of an even number of channels each has its own. scale: of the output."""
    rng = np.random.default_rng(100 * height + width)
    scales = rng.uniform(0.002, 0.01, channels).astype(np.float32) if channels % 2 == 0 else np.array(0.004, np.float32)
    inputs: dict[str, Any] = {
        "x": computed((1, depth, height, width), "int8"), "xs": np.array(0.05, np.float32), "xz": np.array(3, np.int8),
        "w": rng.integers(-127, 128, (channels, depth, 3, 3), np.int8), "ws": scales, "wz": np.zeros(scales.shape, np.int8),
        "ys": np.array(scale, np.float32), "yz": np.array(-7, np.int8), "b": rng.integers(-3000, 3000, channels, np.int32),
    }  # fmt: skip
    name = f"factors_{height}x{width}x{depth}x{channels}_{scale}"
    return OnnxCase(name, "QLinearConv", inputs, {"pads": [1, 1, 1, 1]})


FACTORS = [
    *(_by_factors(*shape) for shape in ((1, 1, 4, 4), (2, 3, 8, 5), (5, 4, 12, 6), (6, 9, 4, 7), (3, 17, 16, 4))),
    _by_factors(4, 7, 8, 4, scale=1e-9),  # beyond int32 once they are scaled
    _by_factors(4, 6, 8, 4, scale=0.5),
]


@pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")), reason="needs the Arm tools and QEMU"
)
@pytest.mark.parametrize("variant", [FLASH, SCRATCH])
def test_float_factors(variant: str, tmp_path: Path) -> None:
    """The same on this machine and on the emulated core, where the float unit has part in it."""
    model = tmp_path / "factors.onnx"
    model.write_bytes(onnx_model_of(FACTORS).SerializeToString())
    asked = tuple((index, variant) for index in range(len(FACTORS)))
    compiled = compile_model(model, target="cortex-m4f", package="platformio", variants=asked)
    assert sum(step.variant == variant for step in compiled.program.steps) == len(FACTORS)
    assert all("_f32" in step.kernel for step in compiled.program.steps if step.variant == variant)
    assert verify(compiled, samples=2).match
    result = on_emulator(compiled, "qemu_m4", reference="numpy", samples=2, seed=1, layers=False, workdir=tmp_path)
    assert result.match


def test_transforms_are_those_of_the_convolution() -> None:
    """A of the kernel, times G and B, gives 24 times each of four outputs."""
    outputs = np.array([[6, -4, -4, 1, 1, 0], [0, -4, 4, 2, -2, 0], [0, -4, -4, 4, 4, 0], [0, -4, 4, 8, -8, 24]])
    found = np.einsum("op,pk,pd->okd", outputs, winograd.FILTERS, winograd.VALUES)
    expected = np.array([[[24 * (d == o + k) for d in range(6)] for k in range(3)] for o in range(4)])
    assert np.array_equal(found, expected)
    assert 128 * np.abs(winograd.VALUES).sum(axis=1).max() <= 32767
    assert 128 * np.abs(winograd.FILTERS).sum(axis=1).max() <= 32767


@pytest.mark.parametrize(
    ("case", "why"),
    [
        (conv_2d("columns", (1, 5, 6, 8), 4, (3, 5)), "its windows do not have three columns and a stride of one"),
        (conv_2d("stride", (1, 5, 7, 8), 4, (3, 3), Slide((1, 2))), "its windows do not have three columns"),
        (conv_2d("dilation", (1, 9, 9, 8), 4, (3, 3), Slide(dilation=(1, 2))), "it is dilated along the row"),
        (conv_2d("depth", (1, 5, 6, 6), 4, (3, 3)), "its input's channels are no multiple of four"),
        (conv_2d("groups", (1, 5, 6, 8), 4, (3, 3), groups=2), "its channels are in groups"),
        (conv_2d("channels", (1, 5, 6, 8), 1, (3, 3)), "it has one output channel"),
        (
            conv_2d("sums", (1, 3, 3, 2020), 4, (9, 3), SAME, Scales(factor=2.0**-18), w=np.full((4, 9, 3, 2020), 127, np.int8)),
            "sums of transformed products could overflow int32",
        ),
    ],
    ids=lambda value: value.id if isinstance(value, Case) else "",
)  # fmt: skip
@pytest.mark.parametrize("variant", [FLASH, SCRATCH])
def test_layers_without_such_a_kernel(variant: str, case: Case, why: str, tmp_path: Path) -> None:
    model = tmp_path / "case.tflite"
    model.write_bytes(write_tflite(model_of([case])))
    with pytest.raises(EmitcError) as refused:
        compile_model(model, target="cortex-m4", variants=((0, variant),))
    assert refused.value.why.startswith(why)


def test_cores_with_31_registers_need_more_channels_in_less_memory(tmp_path: Path) -> None:
    model = tmp_path / "case.tflite"
    model.write_bytes(write_tflite(model_of([conv_2d("channels", (1, 5, 6, 3), 7, (3, 3), SAME)])))
    full = compile_model(model, target="rv32imac", variants=((0, GPR31),))
    assert [step.variant for step in full.program.steps] == [GPR31]
    with pytest.raises(EmitcError) as refused:
        compile_model(model, target="rv32imac", variants=((0, LEAN),))
    assert refused.value.why == "it has less than 8 output channels"


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three convolutions of 3x3 between two of 1x1, whose images are the largest and the smallest ones."""
    made = ImageNet(7)
    first, shape = made.image(16, 16, 4)
    x, shape = made.window(first, shape, 16, 1, 1, "SAME", depthwise=False)
    for channels in (16, 32, 32):
        x, shape = made.window(x, shape, channels, 3, 1, "SAME", depthwise=False)
    x, shape = made.window(x, shape, 128, 1, 1, "SAME", depthwise=False)
    x, shape = made.window(x, shape, 4, 1, 1, "SAME", depthwise=False)
    file = tmp_path_factory.mktemp("winograd") / "net.tflite"
    file.write_bytes(write_tflite(made.spec((first,), (x,))))
    return file


def _variants(compiled: Compiled) -> list[str]:
    """Of the convolutions of 3x3."""
    return [step.variant for step in compiled.program.steps][1:4]


def _constants(compiled: Compiled) -> int:
    tables = {t.name: t.table.size_bytes for step in compiled.program.steps for t in step.constants}
    return sum(tables.values())


def test_the_default_takes_memory_that_is_free(net: Path) -> None:
    """The arena and the flash are those without such kernels."""
    options = Options(target="cortex-m4", disabled=frozenset({"streaming"}))
    compiled = compile_model(net, options)
    with patch.object(scratch_budget, "_with_spare", lambda _, best, *__: best):
        without = compile_model(net, options)
    assert _variants(without) == ["dsp", "dsp", "dsp"]
    assert _variants(compiled) == [SCRATCH, SCRATCH, SCRATCH]
    assert compiled.program.plan.arena_bytes <= without.program.plan.arena_bytes


def test_a_budget_of_ram_is_spent_on_it(net: Path) -> None:
    compiled = compile_model(net, target="cortex-m4", ram_budget=LARGE)
    assert _variants(compiled) == [SCRATCH, SCRATCH, SCRATCH]
    assert verify(compiled, samples=2).match


def test_a_budget_of_flash_is_spent_where_it_saves_most(net: Path) -> None:
    default = compile_model(net, target="cortex-m4", ram_budget=LARGE)
    weights = [16 * 9 * 16, 16 * 9 * 32, 32 * 9 * 32]
    found = []
    for more in (0, 3 * weights[0] - 1, 3 * weights[0], 3 * sum(weights)):
        budget = _constants(default) + more
        compiled = compile_model(net, target="cortex-m4", ram_budget=LARGE, flash_budget=budget)
        assert _constants(compiled) <= budget
        found.append([name == FLASH for name in _variants(compiled)])
    assert verify(compiled, samples=2).match
    assert found == [[False] * 3, [False] * 3, [True, False, False], [True] * 3]


@pytest.mark.parametrize(
    ("without", "expected"), [({"streaming"}, [GPR31] * 3), (set(), [LEAN, LEAN, "swar"])], ids=["whole", "rows"]
)
def test_cores_with_31_registers_spend_flash_and_no_memory(without: set[str], expected: list[str], net: Path) -> None:
    """Where the arena has no room for the faster of the two kernels, the leaner one is taken, or neither."""
    options = Options(target="rv32imac", disabled=frozenset(without))
    default = compile_model(net, options)
    extra = 3 * (16 * 9 * 16 + 16 * 9 * 32 + 32 * 9 * 32)
    compiled = compile_model(net, replace(options, flash_budget=_constants(default) + extra))
    assert _variants(default) == ["swar"] * 3
    assert _variants(compiled) == expected
    assert compiled.program.plan.arena_bytes <= default.program.plan.arena_bytes
    assert verify(compiled, samples=2).match


def test_constants_over_the_budget_are_refused(net: Path) -> None:
    least = _constants(compile_model(net, target="cortex-m4"))
    compile_model(net, target="cortex-m4", flash_budget=least)
    with pytest.raises(CannotCompile) as refused:
        compile_model(net, target="cortex-m4", flash_budget=least - 1)
    assert refused.value.what == f"the constants have {least} bytes, 1 over the budget"


@pytest.mark.parametrize(
    ("room", "cost", "flash", "variant", "copied"),
    [
        (LARGE, 1.625, None, SCRATCH, 2 * 2304),
        (LARGE, 1.625, LARGE, FLASH, 2 * 9216),
        (10_500, 1.625, None, SCRATCH, 0),  # the kernel saves more than the copies, which have no room then
        (10_500, 9.0, None, "dsp", 2 * 2304),
        (15_000, 9.0, LARGE, "dsp", 2 * 2304),
    ],
)
def test_copies_of_weights_leave_it_the_room_of_their_region(
    room: int, cost: float, flash: int | None, variant: str, copied: int, tmp_path: Path
) -> None:
    """What a byte of flash costs decides between kernels whose memory the copies could have instead."""
    made = ImageNet(7)
    first, shape = made.image(16, 16, 16)
    x, shape = made.window(first, shape, 16, 3, 1, "SAME", depthwise=False)
    x, shape = made.window(x, shape, 16, 3, 1, "SAME", depthwise=False)
    file = tmp_path / "net.tflite"
    file.write_bytes(write_tflite(made.spec((first,), (x,))))
    regions = (Region("SRAM", room, 1.0), Region("FLASH", 0, cost))
    compiled = compile_model(file, target="cortex-m4", regions=regions, stage_weights="SRAM", flash_budget=flash)
    assert [step.variant for step in compiled.program.steps] == [variant, variant]
    assert compiled.program.staged_bytes == copied
    assert compiled.program.plan.arena_bytes <= room


def test_small_code_does_without(net: Path) -> None:
    variants = _variants(compile_model(net, target="cortex-m4", optimize="size", ram_budget=LARGE))
    assert not set(variants) & set(VARIANTS)


@pytest.mark.parametrize("variant", [FLASH, SCRATCH, GPR31])
def test_rows_one_by_one(variant: str, net: Path) -> None:
    asked = tuple((index, variant) for index in (1, 2, 3))
    compiled = compile_model(net, target=VARIANTS[variant], ram_budget="min", variants=asked)
    assert compiled.program.segments
    assert verify(compiled, samples=2).match

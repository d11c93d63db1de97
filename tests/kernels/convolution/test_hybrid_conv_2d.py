"""Hybrid layers, float32 values with int8 weights: reference, LiteRT and C agree on every bit."""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from emitc.boards.verify import on_emulator
from emitc.compiler import compile_model
from emitc.writers.tflite import write_tflite
from tests.support.single_op import (
    Array,
    Case,
    OptionValue,
    TensorSpec,
    model_of,
    plain,
    preferring,
    prove,
    quantized,
    refusal,
)

pytest.importorskip("ai_edge_litert", reason="the extra emitc[verify] is not installed")

HALVES = np.array(
    [127, 0.5, 0.49999994, -0.49999994, 1.5, 2.5, -2.5, -0.5, 126.5, -126.5, -127, 3.4999998, -3.4999998], np.float32
)
"""Under a largest magnitude of 127 these are quantized as they are: ties, and what is just below them."""


def named_rng(name: str) -> np.random.Generator:
    """A generator that depends on the case's name alone."""
    return np.random.default_rng(zlib.crc32(name.encode()))


def floats(values: Array) -> TensorSpec:
    """A constant of float32."""
    return TensorSpec("", "float32", values.shape, values.astype(np.float32).tobytes())


def drawn(shape: tuple[int, ...]) -> Callable[[np.random.Generator, int], list[Array]]:
    """Halves, magnitudes far apart, zeros in a whole image, zeros throughout."""

    def draw(rng: np.random.Generator, sample: int) -> list[Array]:
        count = int(np.prod(shape))
        if sample == 0:
            return [np.resize(HALVES, count).reshape(shape)]
        values = (rng.standard_normal(count) * 10.0 ** rng.uniform(-3, 3)).astype(np.float32).reshape(shape)
        if sample == 2:
            values[0] = 0
        return [values * np.float32(sample != 3)]

    return draw


def layer(
    name: str,
    x: tuple[int, ...],
    w: tuple[int, ...],
    y: tuple[int, ...],
    scale: float = 0.013,
    *,
    opcode: str = "CONV_2D",
    bias: bool = True,
    **options: OptionValue,
) -> Case:
    """A layer with random weights of the whole range."""
    rng = named_rng(name)
    weights = rng.integers(-127, 127, w, endpoint=True)
    inputs = (
        plain(x),
        quantized(w, scale, 0, "int8", weights),
        *((floats(rng.standard_normal(w[0])),) if bias else ()),
    )
    return Case(name, opcode, inputs, (plain(y),), options, version=2 if opcode == "CONV_2D" else 3, draw=drawn(x))


def slide(
    stride: int = 1, padding: str = "SAME", activation: str = "NONE", dilation: int = 1
) -> dict[str, OptionValue]:
    """Options of a convolution."""
    return {
        "stride_h": stride,
        "stride_w": stride,
        "padding": padding,
        "fused_activation_function": activation,
        "dilation_h_factor": dilation,
        "dilation_w_factor": dilation,
    }


ROWS: dict[str, OptionValue] = {"fused_activation_function": "NONE"}
CASES: list[Case] = [
    layer("same", (1, 6, 5, 3), (5, 3, 3, 3), (1, 6, 5, 5), **slide()),
    layer("valid", (1, 6, 5, 3), (4, 3, 3, 3), (1, 4, 3, 4), **slide(1, "VALID")),
    layer("pointwise", (1, 6, 5, 7), (4, 1, 1, 7), (1, 6, 5, 4), **slide()),
    layer("one_value", (1, 13, 5, 1), (1, 1, 1, 1), (1, 13, 5, 1), 1.0, **slide()),
    layer("stride", (1, 7, 6, 2), (3, 3, 2, 2), (1, 4, 3, 3), **slide(2)),
    layer("images", (3, 4, 4, 2), (3, 2, 2, 2), (3, 4, 4, 3), **slide()),
    layer("relu", (1, 4, 4, 2), (3, 2, 2, 2), (1, 4, 4, 3), **slide(1, "SAME", "RELU")),
    layer("relu6", (2, 4, 4, 2), (3, 2, 2, 2), (2, 4, 4, 3), 0.5, **slide(1, "SAME", "RELU6")),
    layer("wide", (1, 9, 9, 40), (6, 5, 5, 40), (1, 9, 9, 6), **slide()),
    layer("rows", (3, 13), (6, 13), (3, 6), opcode="FULLY_CONNECTED", **ROWS),
    layer("long_rows", (2, 70), (9, 70), (2, 9), opcode="FULLY_CONNECTED", **ROWS),
    layer("rows_no_bias", (3, 13), (6, 13), (3, 6), opcode="FULLY_CONNECTED", bias=False, **ROWS),
    layer("rows_relu", (3, 13), (1, 13), (3, 1), opcode="FULLY_CONNECTED", fused_activation_function="RELU"),
    layer("keep", (2, 3, 8), (5, 8), (2, 3, 5), opcode="FULLY_CONNECTED", keep_num_dims=True, **ROWS),
]


def test_reference_litert_and_c_agree() -> None:
    proven = prove(CASES, engine="litert", samples=8)
    for outcome in proven.outcomes.values():
        outcome.check()
    assert proven.memory_errors == ()


MORE = [
    layer("dilated", (1, 9, 8, 2), (3, 3, 3, 2), (1, 9, 8, 3), **slide(dilation=2)),
    layer("wider_than_the_image", (1, 2, 3, 5), (4, 5, 7, 5), (1, 2, 3, 4), **slide()),
]


@pytest.mark.parametrize(("variant", "target"), [("dsp", "cortex-m4f"), ("mve", "cortex-m55")])
def test_rows_of_windows_at_a_time(variant: str, target: str) -> None:
    with preferring(variant):
        proven = prove([*CASES, *MORE], engine="litert", samples=4, target=target)
    for outcome in proven.outcomes.values():
        outcome.check()
    assert proven.memory_errors == ()
    portable = {
        name for name, outcome in proven.outcomes.items() if outcome.step and outcome.step.variant == "portable"
    }
    assert portable == {"dilated"}


@pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")), reason="needs the Arm tools and QEMU"
)
@pytest.mark.parametrize(
    ("variant", "target", "board"), [("dsp", "cortex-m4f", "qemu_m4"), ("mve", "cortex-m55", "qemu_m55")]
)
def test_rows_of_windows_on_emulated_cores(variant: str, target: str, board: str, tmp_path: Path) -> None:
    model = tmp_path / "cases.tflite"
    model.write_bytes(write_tflite(model_of(CASES)))
    with preferring(variant):
        compiled = compile_model(model, target=target, package="platformio")
        result = on_emulator(
            compiled, board, reference="numpy", samples=2, seed=1, layers=False, workdir=tmp_path / "run"
        )
    assert {step.variant for step in compiled.program.steps} == {variant}
    assert result.match


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ({"zero_points": (3,)}, 2, "weights with a zero point"),
        ({"scales": (), "zero_points": ()}, 2, "weights with 0 scales"),
        ({"data": None}, 1, "computed weights"),
        ({"shape": (3, 2, 2, 1), "data": bytes(12)}, 1, "in groups is not supported"),
        ({"shape": (3, 2, 2, 3), "data": bytes(36)}, 2, "in groups is not supported"),
        ({"shape": (3, 2, 4), "data": bytes(24)}, 2, "weights of the wrong rank"),
    ],
)
def test_refusals(change: dict[str, object], code: int, message: str) -> None:
    case = layer("layer", (1, 4, 4, 2), (3, 2, 2, 2), (1, 4, 4, 3), **slide())
    x, w, bias = case.inputs
    assert w is not None
    error = refusal(replace(case, inputs=(x, replace(w, **change), bias)))  # type: ignore[arg-type]
    assert message in str(error)
    assert error.exit_code == code

"""Layers of dynamic range quantization, float32 values that get a zero point: reference, LiteRT and C agree on every bit."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.kernels.convolution.test_hybrid_conv_2d import floats, named_rng, slide
from tests.support.single_op import Array, Case, OptionValue, TensorSpec, plain, prove, refusal

pytest.importorskip("ai_edge_litert", reason="the extra emitc[verify] is not installed")

ENDS = np.array([-128, 127, 0.5, 0.49999994, -0.49999994, 1.5, 2.5, -2.5, -0.5, 126.5, -127.5, 3.4999998], np.float32)
"""Between -128 and 127 the scale is 1 and the zero point 0: ties, and what is just below them."""


def drawn(shape: tuple[int, ...]) -> Callable[[np.random.Generator, int], list[Array]]:
    """Ties; values of one sign; values on both sides; an image of zeros; zeros throughout."""

    def draw(rng: np.random.Generator, sample: int) -> list[Array]:
        count = int(np.prod(shape))
        if sample == 0:
            return [np.resize(ENDS, count).reshape(shape)]
        values = (rng.standard_normal(count) * 10.0 ** rng.uniform(-3, 3)).astype(np.float32).reshape(shape)
        if sample in (1, 2):
            values = np.abs(values) * np.float32(3 - 2 * sample)
        if sample == 3:
            values[0] = 0
        return [values * np.float32(sample != 4)]

    return draw


def layer(
    name: str,
    x: tuple[int, ...],
    w: tuple[int, ...],
    y: tuple[int, ...],
    *,
    opcode: str = "CONV_2D",
    scales: int | None = None,
    bias: bool = True,
    **options: OptionValue,
) -> Case:
    """A layer with random weights of the whole range and, unless it is said, a scale per channel."""
    rng, axis = named_rng(name), 3 if opcode.startswith("DEPTH") else 0
    count = w[axis] if scales is None else scales
    data = rng.integers(-127, 127, w, endpoint=True).astype(np.int8).tobytes()
    steps = tuple(rng.uniform(0.001, 0.02, count).astype(np.float32).tolist())
    weights = TensorSpec("", "int8", w, data, steps, (0,) * count, quantized_dimension=axis)
    inputs = (plain(x), weights, *((floats(rng.standard_normal(w[axis])),) if bias else ()))
    version = {"CONV_2D": 5, "DEPTHWISE_CONV_2D": 6}.get(opcode, 9)
    return Case(name, opcode, inputs, (plain(y),), options, version=version, draw=drawn(x))


def depthwise(
    name: str, x: tuple[int, ...], w: tuple[int, ...], y: tuple[int, ...], stride: int = 1, **o: bool
) -> Case:
    """Of each channel by itself."""
    options = {**slide(stride), "depth_multiplier": w[3] // x[3]}
    return layer(name, x, w, y, opcode="DEPTHWISE_CONV_2D", bias=o.get("bias", True), **options)


ROWS: dict[str, OptionValue] = {"fused_activation_function": "NONE", "asymmetric_quantize_inputs": True}
CASES: list[Case] = [
    layer("same", (1, 6, 5, 3), (5, 3, 3, 3), (1, 6, 5, 5), **slide()),
    layer("valid", (1, 6, 5, 3), (4, 3, 3, 3), (1, 4, 3, 4), **slide(1, "VALID")),
    layer("pointwise", (1, 6, 5, 7), (4, 1, 1, 7), (1, 6, 5, 4), **slide()),
    layer("stride", (1, 7, 6, 2), (3, 3, 2, 2), (1, 4, 3, 3), **slide(2)),
    layer("images", (3, 4, 4, 2), (3, 2, 2, 2), (3, 4, 4, 3), **slide()),
    layer("relu6", (2, 4, 4, 2), (3, 2, 2, 2), (2, 4, 4, 3), **slide(1, "SAME", "RELU6")),
    layer("dilated", (1, 7, 6, 2), (3, 3, 3, 2), (1, 7, 6, 3), **slide(1, "SAME", "NONE", 2)),
    layer("wide", (1, 9, 9, 40), (6, 5, 5, 40), (1, 9, 9, 6), **slide()),
    layer("groups", (1, 4, 4, 6), (4, 3, 3, 3), (1, 4, 4, 4), **slide()),
    depthwise("depthwise", (1, 6, 5, 3), (1, 3, 3, 3), (1, 6, 5, 3)),
    depthwise("depthwise_multiplied", (2, 6, 5, 3), (1, 3, 2, 6), (2, 3, 3, 6), 2),
    layer("rows", (3, 13), (6, 13), (3, 6), opcode="FULLY_CONNECTED", **ROWS),
    layer("rows_one_scale", (3, 13), (6, 13), (3, 6), opcode="FULLY_CONNECTED", scales=1, **ROWS),
    layer("long_rows", (2, 70), (9, 70), (2, 9), opcode="FULLY_CONNECTED", bias=False, **ROWS),
    layer("keep", (2, 3, 8), (5, 8), (2, 3, 5), opcode="FULLY_CONNECTED", keep_num_dims=True, **ROWS),
]


def whole_ends(rng: np.random.Generator, sample: int) -> list[Array]:
    """Rows whose ends are whole numbers, so that zero points lie on halves and near them."""
    values = rng.uniform(-1, 1, (4000, 3)).astype(np.float32)
    values[:, 0], values[:, 1] = -rng.integers(1, 256, 4000), rng.integers(1, 256, 4000)
    return [values]


HALVES = replace(layer("halves", (4000, 3), (2, 3), (4000, 2), opcode="FULLY_CONNECTED", **ROWS), draw=whole_ends)


def test_zero_points_on_halves() -> None:
    prove([HALVES], engine="litert", samples=3, sanitize=False).outcomes["halves"].check()


def test_reference_litert_and_c_agree() -> None:
    proven = prove(CASES, engine="litert", samples=10)
    for outcome in proven.outcomes.values():
        outcome.check()
    assert proven.memory_errors == ()


@pytest.mark.parametrize(
    ("change", "code", "message"),
    [
        ({"zero_points": (0, 1, 0)}, 2, "weight scales for 3 channels"),
        ({"quantized_dimension": 3, "scales": (0.1, 0.2), "zero_points": (0, 0)}, 2, "2 weight scales for 3 channels"),
        ({"data": None}, 1, "computed weights"),
        ({"shape": (3, 2, 2, 3), "data": bytes(36)}, 2, "channels that do not fit"),
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

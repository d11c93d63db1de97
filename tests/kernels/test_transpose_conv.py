"""TRANSPOSE_CONV: reference, engine and C agree on every bit; refusals by name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from layer_cases import Scales, _operands, lowered, message, single, weights_of
from single_op import Case, Proven, integers, prove, quantized

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

Image = tuple[int, int, int, int]
DEFAULT = Scales()


def transposed(
    name: str,
    x: Image,
    channels: int,
    kernel: tuple[int, int],
    size: tuple[int, int],
    stride: tuple[int, int] = (2, 2),
    padding: str = "SAME",
    scales: Scales = DEFAULT,
    bias: str = "random",
    activation: str = "NONE",
) -> Case:
    """From an image to one of `size` rows and columns."""
    weights = weights_of(name, (channels, *kernel, x[3]))
    data = quantized(x, single(scales.input), scales.input_zero_point)
    operands = _operands(name, data, weights, 0, channels, scales, bias)
    output = (x[0], *size, channels)
    y = quantized(output, scales.output_scale(), scales.output_zero_point)
    options = {
        "stride_h": stride[0], "stride_w": stride[1], "padding": padding, "fused_activation_function": activation,
    }  # fmt: skip
    return Case(name, "TRANSPOSE_CONV", (integers(*output), operands[1], data, *operands[2:]), (y,), options, 3)


CHANNELS = Scales(weights=(0.01, 0.004, 0.02, 0.001, 0.013))
CASES = [
    transposed("twice", (1, 4, 5, 3), 4, (3, 3), (8, 10)),
    transposed("per_channel", (1, 4, 5, 3), 5, (3, 3), (8, 10), scales=CHANNELS),
    transposed("without_bias", (1, 4, 5, 3), 2, (2, 2), (8, 10), bias="none"),
    transposed("valid", (1, 3, 4, 2), 3, (3, 4), (7, 10), padding="VALID"),
    transposed("valid_wide_stride", (1, 3, 4, 2), 3, (2, 1), (8, 10), (3, 3), "VALID"),
    transposed("stride_one", (1, 5, 6, 4), 2, (3, 3), (5, 6), (1, 1)),
    transposed("uneven_stride", (1, 5, 3, 2), 3, (4, 3), (10, 3), (2, 1)),
    transposed("odd_size", (1, 4, 4, 2), 3, (3, 3), (7, 7)),
    transposed("one_pixel", (1, 1, 1, 6), 4, (3, 3), (2, 2)),
    transposed("two_images", (2, 3, 3, 2), 2, (3, 3), (6, 6)),
    transposed("one_channel", (1, 6, 5, 1), 1, (5, 5), (12, 10)),
    transposed("zero_points_at_the_ends", (1, 4, 4, 2), 2, (3, 3), (8, 8),
               scales=Scales(input_zero_point=-128, output_zero_point=127)),
    transposed("saturating", (1, 4, 4, 8), 2, (3, 3), (8, 8), scales=Scales(factor=0.5)),
    transposed("tiny_factor", (1, 4, 4, 2), 2, (3, 3), (8, 8), scales=Scales(factor=1e-5)),
]  # fmt: skip


def sweep() -> list[Case]:
    """Random geometry."""
    rng = np.random.default_rng(23)
    cases = []
    for i in range(40):
        height, width, depth, channels = (int(v) for v in rng.integers(1, 7, 4))
        kernel = int(rng.integers(1, 6)), int(rng.integers(1, 6))
        stride = int(rng.integers(1, 4)), int(rng.integers(1, 4))
        same = bool(rng.integers(0, 2))
        size = tuple(
            (n - 1) * s + (int(rng.integers(1, s + 1)) if same else max(k, 1))
            for n, s, k in zip((height, width), stride, kernel, strict=True)
        )
        x = (int(rng.integers(1, 3)), height, width, depth)
        scales = Scales(input_zero_point=int(rng.integers(-128, 128)), output_zero_point=int(rng.integers(-128, 128)))
        cases.append(
            transposed(f"random_{i}", x, channels, kernel, size, stride, "SAME" if same else "VALID", scales)  # type: ignore[arg-type]
        )
    return cases


SWEEP = sweep()


@pytest.fixture(scope="module")
def proven() -> Proven:
    return prove([*CASES, *SWEEP])


def test_no_memory_error(proven: Proven) -> None:
    assert not proven.memory_errors


@pytest.mark.parametrize("name", [case.id for case in CASES])
def test_case(proven: Proven, name: str) -> None:
    proven.outcomes[name].check()


def test_sweep(proven: Proven) -> None:
    for case in SWEEP:
        proven.outcomes[case.id].check()


def test_the_kernel_and_its_tables() -> None:
    layer = lowered(CASES[1])
    assert (layer.template, layer.flavour.suffix) == ("conv_transpose", "_q31")
    assert [table.role for table in layer.tables] == ["weights", "bias", "multiplier", "shift"]
    assert [len(table.values) for table in layer.tables] == [5 * 9 * 3, 5, 5, 5]
    assert layer.macs == 4 * 5 * 3 * 5 * 9


def refused(**changes: object) -> str:
    """The message for the first case with other inputs or options."""
    return message(replace(CASES[0], **changes))  # type: ignore[arg-type]


def test_weights_with_a_zero_point_are_refused() -> None:
    inputs = list(CASES[0].inputs)
    assert inputs[1] is not None
    inputs[1] = replace(inputs[1], zero_points=(3,))
    assert "has weights with a zero point" in refused(inputs=tuple(inputs))


def test_a_size_that_is_no_image_is_refused() -> None:
    inputs = (integers(1, 8, 10), *CASES[0].inputs[1:])
    assert "has the output shape [1, 8, 10]" in refused(inputs=inputs)
    inputs = (integers(1, 0, 10, 4), *CASES[0].inputs[1:])
    assert "has the output shape [1, 0, 10, 4]" in refused(inputs=inputs)


def test_channels_that_do_not_fit_are_refused() -> None:
    inputs = list(CASES[0].inputs)
    inputs[2] = quantized((1, 4, 5, 7), 0.05, 3)
    assert "has channels that do not fit" in refused(inputs=tuple(inputs))


def test_another_type_is_refused() -> None:
    inputs = list(CASES[0].inputs)
    inputs[2] = quantized((1, 4, 5, 3), 0.05, 3, "int16")
    text = refused(inputs=tuple(inputs))
    assert "there is code for (int8, int8, int32, int8) or (int16, int8, int64, int16)" in text

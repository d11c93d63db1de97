"""int16 activations with int8 weights: reference, engine and C agree on every bit; refusals by name."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from emitc.numerics.requantize import requantize_reduced
from tests.kernels.convolution.test_transpose_conv import transposed
from tests.support.int16_cases import wide
from tests.support.layer_cases import (
    Scales,
    Slide,
    conv_2d,
    depthwise,
    fully_connected,
    lowered,
    message,
    pool,
    scales_for,
    single,
    with_input,
    with_output,
)
from tests.support.single_op import Case, Proven, prove, quantized

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

SAME = Slide(padding="SAME")
SCALES = Scales(factor=2.0**-9)
CHANNELS = Scales(weights=(0.01, 0.004, 0.02, 0.001, 0.013), factor=2.0**-10)
X = (1, 6, 5, 3)
FACTORS = {
    "smallest": (2**30, -7),
    "next_to_smallest": (2**30 + 1, -7),
    "rounds_up_to_16_bits": (2**30 + 2**15, -8),
    "just_below_rounding_up": (2**30 + 2**15 - 1, -8),
    "largest": (2**31 - 1, -8),
    "saturates_16_bits": (0x7FFF0000, -8),
    "just_below_saturation": (0x7FFEFFFF, -8),
    "shift_minus_1": (1518500250, -1),
    "shift_minus_2": (1518500250, -2),
    "shift_minus_3": (1518500250, -3),
    "shift_0": (1518500250, 0),
    "shift_7": (1518500250, 7),
    "shift_minus_20": (1518500250, -20),
    "shift_minus_31": (2**31 - 1, -31),
}


def far(count: int, step: int = 1 << 33) -> np.ndarray:
    """A bias beyond 32 bits."""
    return np.arange(-(count // 2), count - count // 2, dtype=np.int64) * step


CASES: list[Case] = [
    wide(conv_2d("conv", X, 7, (3, 3), scales=SCALES)),
    wide(conv_2d("conv_same", X, 5, (3, 3), SAME, SCALES)),
    wide(conv_2d("conv_per_channel", X, 5, (3, 3), SAME, CHANNELS)),
    wide(conv_2d("conv_int32_bias", X, 6, (3, 3), SAME, SCALES), "int32"),
    wide(conv_2d("conv_no_bias", X, 5, (2, 3), scales=SCALES, bias="none")),
    wide(conv_2d("conv_absent_bias", X, 5, (2, 3), scales=SCALES, bias="absent")),
    wide(conv_2d("conv_int32_sums", X, 5, (2, 3), scales=SCALES, bias="none"), options={"quantized_bias_type": "INT32"}),
    wide(conv_2d("conv_int64_sums", X, 5, (2, 3), scales=SCALES, bias="none"), options={"quantized_bias_type": "INT64"}),
    wide(conv_2d("conv_far_bias", X, 5, (3, 3), SAME, Scales(factor=2.0**-20)), values=far(5)),
    wide(conv_2d("conv_stride_dilation", (1, 9, 10, 2), 3, (3, 2), Slide((2, 3), "SAME", (2, 2)), SCALES)),
    wide(conv_2d("conv_dilated_rows", (1, 9, 6, 3), 5, (3, 3), Slide(dilation=(2, 1)), SCALES)),
    wide(conv_2d("conv_groups", (1, 5, 5, 6), 4, (3, 3), SAME, SCALES, groups=2)),
    wide(conv_2d("conv_groups_wide", (1, 5, 5, 6), 4, (3, 3), SAME, Scales(factor=0.7), groups=2)),
    wide(conv_2d("conv_1x1", (1, 4, 5, 7), 6, (1, 1), scales=SCALES)),
    wide(conv_2d("conv_1x1_wide", (1, 4, 5, 7), 6, (1, 1), scales=Scales(factor=0.4))),
    wide(conv_2d("conv_two_images", (2, 4, 4, 5), 6, (3, 3), SAME, SCALES)),
    wide(conv_2d("conv_saturating", X, 5, (3, 3), SAME, Scales(factor=0.2))),
    wide(conv_2d("conv_deep", (1, 3, 3, 70), 9, (3, 3), SAME, Scales(factor=2.0**-12))),
    wide(conv_2d("conv_leaves_32_bits", (1, 3, 3, 130), 5, (3, 3), SAME, Scales(factor=2.0**-14),
                 w=np.full((5, 3, 3, 130), 127, np.int8))),
    *(wide(conv_2d(f"conv_{a}", X, 5, (3, 3), Slide(padding="SAME", activation=a), SCALES))
      for a in ("RELU", "RELU6", "RELU_N1_TO_1")),
    *(wide(conv_2d(f"conv_{name}", X, 5, (2, 2), scales=scales_for(*m))) for name, m in FACTORS.items()),
    *(wide(conv_2d(f"conv_int32_{name}", X, 5, (2, 2), scales=scales_for(*FACTORS[name])), "int32")
      for name in ("smallest", "largest", "shift_0", "shift_minus_20")),
    wide(conv_2d("conv_one_factor_is_zero", X, 3, (3, 3), scales=Scales(weights=(0.01, 1e-30, 0.02)))),
    # A result beyond 32 bits wraps before it is limited.
    wide(conv_2d("conv_wraps", (1, 1, 4, 1), 4, (1, 1), scales=scales_for(1518500250, 0)),
         values=np.array([2**31 - 1, 2**32 + 5, -(2**31) - 70000, 3 << 40], np.int64)),
    wide(depthwise("depthwise", X, 1, (3, 3), SAME, SCALES)),
    wide(depthwise("depthwise_wide", X, 1, (3, 3), SAME, Scales(factor=0.4))),
    wide(depthwise("depthwise_two", X, 2, (3, 3), SAME, SCALES)),
    wide(depthwise("depthwise_two_wide", X, 2, (3, 3), SAME, Scales(factor=0.3))),
    wide(depthwise("depthwise_eight_channels", (1, 6, 5, 8), 1, (3, 3), Slide((2, 2), "SAME"), SCALES)),
    wide(depthwise("depthwise_one_channel", (1, 6, 5, 1), 5, (3, 3), SAME, SCALES)),
    wide(depthwise("depthwise_per_channel", (1, 5, 5, 5), 1, (3, 3), SAME, CHANNELS)),
    wide(depthwise("depthwise_no_bias", X, 1, (3, 3), SAME, SCALES, bias="none")),
    wide(depthwise("depthwise_dilated", (1, 9, 9, 6), 1, (3, 3), Slide(dilation=(2, 2)), SCALES)),
    wide(fully_connected("connected", (2, 33), 7, 33, scales=SCALES)),
    wide(fully_connected("connected_per_channel", (2, 33), 5, 33, scales=CHANNELS)),
    wide(fully_connected("connected_int32_bias", (2, 33), 7, 33, scales=SCALES), "int32"),
    wide(fully_connected("connected_no_bias", (1, 8), 4, 8, scales=SCALES, bias="none")),
    wide(fully_connected("connected_int32_sums", (1, 8), 4, 8, scales=SCALES, bias="none"),
         options={"quantized_bias_type": "INT32"}),
    wide(fully_connected("connected_wide", (3, 17), 6, 17, scales=Scales(factor=0.3))),
    wide(fully_connected("connected_leaves_32_bits", (1, 700), 3, 700, scales=Scales(factor=2.0**-13),
                         w=np.full((3, 700), -127, np.int8))),
    # Partial sums of 32 bits take as many products of this size as fit.
    replace(wide(fully_connected("connected_lowest", (1, 1100), 5, 1100, scales=Scales(factor=2.0**-18),
                                 w=np.full((5, 1100), -128, np.int8))),
            draw=lambda rng, sample: [np.full((1, 1100), (-32768, 32767)[sample % 2], np.int16)]),
    wide(fully_connected("connected_far_bias", (1, 8), 4, 8, scales=Scales(factor=2.0**-20)), values=far(4)),
    wide(transposed("transposed", (1, 4, 5, 3), 4, (3, 3), (8, 10), scales=SCALES)),
    wide(transposed("transposed_per_channel", (1, 4, 5, 3), 5, (3, 3), (8, 10), scales=CHANNELS)),
    wide(transposed("transposed_no_bias", (1, 4, 5, 3), 2, (2, 2), (8, 10), scales=SCALES, bias="none")),
    wide(transposed("transposed_wide", (1, 4, 5, 3), 3, (3, 3), (8, 10), scales=Scales(factor=0.3))),
    wide(transposed("transposed_valid", (1, 3, 4, 2), 3, (3, 4), (7, 10), padding="VALID", scales=SCALES, activation="RELU")),
    *(wide(pool(f"{op}_{name}", op, (1, 7, 6, 5), kernel, slide, scale=single(1e-4), zero_point=0))
      for op in ("AVERAGE_POOL_2D", "MAX_POOL_2D")
      for name, kernel, slide in (
          ("valid", (2, 2), Slide((2, 2))), ("same", (3, 3), SAME), ("whole", (7, 6), Slide()),
          ("relu", (2, 3), Slide(activation="RELU")), ("relu6", (2, 2), Slide(activation="RELU_N1_TO_1")),
      )),
]  # fmt: skip


@pytest.fixture(scope="module")
def proven() -> Proven:
    return prove(CASES)


@pytest.mark.parametrize("name", [case.id for case in CASES])
def test_case(proven: Proven, name: str) -> None:
    proven.outcomes[name].check()


def test_memory(proven: Proven) -> None:
    assert proven.memory_errors == ()


NARROW = ("conv_same", "conv_1x1", "depthwise", "depthwise_two", "connected", "transposed", "conv_shift_minus_2")
WIDE = ("conv_far_bias", "conv_1x1_wide", "conv_leaves_32_bits", "connected_leaves_32_bits", "depthwise_wide",
        "transposed_wide", "conv_shift_minus_1", "conv_wraps")  # fmt: skip
SHORT = ("conv_int32_bias", "conv_int32_sums", "connected_int32_bias", "connected_int32_sums")


@pytest.mark.parametrize("name", NARROW + WIDE + SHORT)
def test_width_of_sums(name: str) -> None:
    """32 bits wherever no input takes a sum further and enough is shifted out."""
    (case,) = (case for case in CASES if case.id == name)
    spec = lowered(case).spec
    assert spec.acc == ("int64_t" if name in WIDE else "int32_t")
    assert spec.reduced == (name not in SHORT)


def test_random_sweep() -> None:
    rng = np.random.default_rng(16)
    found: list[Case] = []
    for i in range(12):
        c, o, k = (int(v) for v in rng.integers(1, 9, 3))
        h, w = (int(v) for v in rng.integers(4, 9, 2))
        kh, kw = (int(v) for v in rng.integers(1, 4, 2))
        slide = Slide((int(rng.integers(1, 3)), 1), ("SAME", "VALID")[i % 2])
        scales = Scales(
            weights=tuple(2.0**e for e in rng.uniform(-9, -5, o).tolist()), factor=2.0 ** rng.uniform(-14, 1)
        )
        found.append(
            wide(conv_2d(f"conv{i}", (1, h, w, c), o, (kh, kw), slide, scales), ("int64", "int32")[i % 3 == 2])
        )
        found.append(wide(fully_connected(f"connected{i}", (k, 11 * c), o, 11 * c, scales=scales)))
        each = replace(scales, weights=scales.weights[:1])
        found.append(wide(depthwise(f"depthwise{i}", (1, h, w, c), 1 + i % 2, (kh, kw), slide, each)))
        found.append(wide(transposed(f"transposed{i}", (1, h, w, c), o, (kh, kw), (2 * h, 2 * w), scales=scales)))
    for outcome in prove(found, samples=3, seed=3).outcomes.values():
        outcome.check()


@pytest.mark.parametrize("shift", [-31, -20, -8, -3, -2])
def test_high_half_is_enough(shift: int) -> None:
    """What the C computes of 32-bit sums, for sums at and round every tie that the shift has, and at the ends."""
    rng = np.random.default_rng(-shift)
    acc = np.concatenate([rng.integers(-(2**31), 2**31, 20000), np.arange(-2000, 2000), [2**31 - 1, -(2**31)]])
    for q15 in (0x4000, 0x4001, 0x7FFF, 0x5A82):
        right = -shift - 1
        found = ((acc * q15 >> 16) + (1 << (right - 1))) >> right
        assert np.array_equal(found, requantize_reduced(acc, q15 << 16, shift))


def _refused(case: Case, code: int, text: str) -> None:
    found = message(case)
    assert found.startswith(f"{code}\n"), found
    assert text in found, found


def test_refusals() -> None:
    plain = wide(conv_2d("c", X, 5, (3, 3), scales=SCALES))
    _refused(with_input(plain, 0, zero_points=(3,)), 2, "CONV_2D has an int16 tensor with the zero point 3")
    _refused(with_output(plain, zero_points=(-1,)), 2, "int16 activations are symmetric in TFLite")
    _refused(
        wide(conv_2d("c", X, 5, (3, 3), scales=Scales(factor=129.0))),
        2,
        "has an output scale that is out of proportion",
    )
    far_bias = wide(conv_2d("c", X, 2, (3, 3), scales=SCALES), values=np.array([1 << 47, 0], np.int64))
    _refused(far_bias, 2, "can overflow an accumulator of 48 bits")
    lowest = wide(conv_2d("c", X, 2, (3, 3), scales=SCALES), values=np.array([-(1 << 63), 0], np.int64))
    _refused(lowest, 2, "can overflow an accumulator of 48 bits")
    short = wide(fully_connected("f", (1, 700), 3, 700, scales=SCALES, w=np.full((3, 700), 127, np.int8)), "int32")
    _refused(short, 2, "can overflow an accumulator of 32 bits")
    _refused(
        wide(depthwise("d", X, 1, (3, 3), scales=SCALES), "int32"),
        1,
        "DEPTHWISE_CONV_2D with element types (int16, int8, int32, int16) is not supported",
    )
    _refused(
        wide(transposed("t", (1, 4, 5, 3), 4, (3, 3), (8, 10), scales=SCALES), "int32"),
        1,
        "TRANSPOSE_CONV of int16 with a bias of int32 is not supported",
    )
    _refused(
        wide(transposed("t", (1, 4, 5, 3), 4, (3, 3), (8, 10), scales=Scales(factor=200.0))),
        2,
        "TRANSPOSE_CONV has scales that are out of proportion",
    )
    mixed = with_output(plain, dtype="int8")
    _refused(
        mixed,
        2,
        "there is code for (int8, int8, int32, int8) or (int8, int4, int32, int8) or (int16, int8, int64, int16) or",
    )
    large = Case("p", "AVERAGE_POOL_2D", (quantized((1, 182, 182, 1), 0.1, 0, "int16"),),
                 (quantized((1, 1, 1, 1), 0.1, 0, "int16"),),
                 Slide().options(dilated=False) | {"filter_height": 182, "filter_width": 182}, 2)  # fmt: skip
    _refused(large, 2, "has a window that is too large")


def test_a_bias_without_a_positive_counterpart_is_refused() -> None:
    """Its magnitude has no place in 64 bits."""
    values = np.array([-(1 << 63), 0, 5, 1], np.int64)
    layer = wide(transposed("t", (1, 4, 5, 3), 4, (3, 3), (8, 10), scales=SCALES), values=values)
    _refused(layer, 1, "TRANSPOSE_CONV has sums that can leave 48 bits")
    _refused(
        wide(depthwise("d", (1, 6, 5, 4), 1, (3, 3), scales=SCALES), values=values),
        2,
        "can overflow an accumulator of 48 bits",
    )
    _refused(
        wide(fully_connected("f", (2, 9), 4, 9, scales=SCALES), values=values),
        2,
        "can overflow an accumulator of 48 bits",
    )


def test_largest_pool_is_exact() -> None:
    """2**15 values of -32768 just fit 32 bits."""
    shape = (1, 256, 128, 1)
    options = Slide().options(dilated=False) | {"filter_height": 256, "filter_width": 128}
    ends = Case("p", "AVERAGE_POOL_2D", (quantized(shape, 0.1, 0, "int16"),), (quantized((1, 1, 1, 1), 0.1, 0, "int16"),),
                options, 2, draw=lambda rng, sample: [np.full(shape, (-32768, 32767)[sample % 2], np.int16)])  # fmt: skip
    for outcome in prove([ends], samples=2).outcomes.values():
        outcome.check()

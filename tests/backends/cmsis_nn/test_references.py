"""The references of this folder's own against TFLite Micro: the requantization of int16 layers."""

from __future__ import annotations

import math

import numpy as np
import pytest

from emitc.numerics.requantize import multiplier_of
from emitc.verify.engines.run import engine_for
from emitc.writers.tflite import TensorSpec, write_tflite
from tests.support.cmsis.more_layers import requantize_wide
from tests.support.layer_cases import single
from tests.support.single_op import Case, model_of, quantized

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")


@pytest.mark.parametrize("seed", range(6))
def test_wide_requantization_is_the_engines(seed: int) -> None:
    rng = np.random.default_rng(seed)
    depth, channels, rows = 40, 8, 50
    x_scale, w_scale = single(2.0 ** rng.uniform(-16, -10)), single(2.0 ** rng.uniform(-9, -5))
    y_scale = single(x_scale * w_scale * 70 * math.sqrt(depth) * 2.0 ** rng.uniform(-2, 3))
    w = rng.integers(-127, 127, (channels, depth), endpoint=True).astype(np.int8)
    bias = rng.integers(-(1 << 22), 1 << 22, channels).astype(np.int64)
    tensors = (
        quantized((rows, depth), x_scale, 0, "int16"),
        TensorSpec("", "int8", w.shape, w.tobytes(), (w_scale,), (0,)),
        TensorSpec("", "int64", bias.shape, bias.tobytes(), (single(x_scale * w_scale),), (0,)),
    )
    y = quantized((rows, channels), y_scale, 0, "int16")
    case = Case("wide", "FULLY_CONNECTED", tensors, (y,), {"fused_activation_function": "NONE"}, 4)
    x = rng.integers(-32768, 32767, (rows, depth), endpoint=True).astype(np.int16)
    (found,) = engine_for(write_tflite(model_of([case])), "tflm").run([x])
    factor = multiplier_of(x_scale * w_scale / y_scale)
    acc = x.astype(np.int64) @ w.astype(np.int64).T + bias
    expected = np.clip(requantize_wide(acc, np.int64(factor.q31), np.int64(factor.shift)), -32768, 32767)
    assert len(np.unique(expected)) > 100
    assert np.array_equal(found.reshape(rows, channels), expected)

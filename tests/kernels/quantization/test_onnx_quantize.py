"""QuantizeLinear and DequantizeLinear: every type, ties, the ends of the range, one scale for each slice of an axis."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.support.onnx_op import OnnxCase, computed, prove_onnx

TYPES = ("int8", "uint8", "int16")
SCALES = np.array([0.5, 0.25, 3.0], np.float32)


def _ties(rng: np.random.Generator, sample: int) -> dict[str, np.ndarray]:
    """Multiples of a quarter step, the ends, infinities and a NaN."""
    values = rng.integers(-80_000, 80_000, (4, 3, 5)).astype(np.float32) / 8
    values[0, 0] = [np.inf, -np.inf, np.nan, 0.25, -0.25]
    values[1, :, 0] = [0.75, -0.75, -0.0]
    return {"x": values}


def _zero(dtype: str) -> int:
    return 128 if dtype == "uint8" else -3


def quantize_cases() -> list[OnnxCase]:
    """From float32, per tensor and along the middle axis."""
    cases = []
    for dtype in TYPES:
        x: dict[str, Any] = {"x": computed((4, 3, 5))}
        one = {"s": np.float32(0.5), "z": np.array(_zero(dtype), dtype)}
        many = {"s": SCALES, "z": np.array([_zero(dtype), 0, 5], dtype)}
        cases.append(OnnxCase(f"one_{dtype}", "QuantizeLinear", x | one, draw=_ties))
        cases.append(OnnxCase(f"slices_{dtype}", "QuantizeLinear", x | many, {"axis": 1}, draw=_ties))
    return cases


def dequantize_cases() -> list[OnnxCase]:
    """To float32, per tensor and along an axis counted from the end; int32 as a bias has it."""
    cases = []
    for dtype in (*TYPES, "int32"):
        x: dict[str, Any] = {"x": computed((7, 3), dtype)}
        zero = 0 if dtype == "int32" else _zero(dtype)
        one = {"s": np.float32(0.0123), "z": np.array(zero, dtype)}
        many = {"s": SCALES, "z": np.full(3, zero, dtype)}
        cases.append(OnnxCase(f"one_{dtype}", "DequantizeLinear", x | one))
        cases.append(OnnxCase(f"slices_{dtype}", "DequantizeLinear", x | many, {"axis": -1}))
    return cases


def test_quantize_has_the_bits_of_the_engine() -> None:
    prove_onnx(quantize_cases(), 4).check()


def test_dequantize_has_the_bits_of_the_engine() -> None:
    prove_onnx(dequantize_cases(), 4).check()

"""ABS, RSQRT and ELU of int8: reference, engine and C agree on every one of the 256 values."""

from __future__ import annotations

import numpy as np
import pytest
from single_op import Array, Case, Proven, prove, quantized, refusal

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")


def every_byte(name: str, opcode: str, x: tuple[float, int], y: tuple[float, int]) -> Case:
    """All values; those below the zero point, of which no root is, as the zero point."""

    def draw(rng: np.random.Generator, sample: int) -> list[Array]:
        values = rng.permutation(np.arange(-128, 128)).astype(np.int8).reshape(2, 128)
        return [np.maximum(values, np.int8(x[1])) if opcode == "RSQRT" else values]

    return Case(name, opcode, (quantized((2, 128), *x),), (quantized((2, 128), *y),), draw=draw)


SCALES = {
    "equal": ((0.05, -3), (0.05, -3)),
    "other_zero": ((0.05, -3), (0.05, 100)),
    "wider": ((0.05, 7), (0.11, -128)),
    "finer": ((0.0731, -128), (0.0142, 5)),
    "far": ((1.7, 126), (0.003, -60)),
}
CASES = [
    every_byte(f"{opcode}_{name}", opcode, x, y)
    for opcode in ("ABS", "RSQRT", "ELU")
    for name, (x, y) in SCALES.items()
]


@pytest.fixture(scope="module")
def proven() -> Proven:
    return prove(CASES, samples=3)


@pytest.mark.parametrize("name", [case.id for case in CASES])
def test_case(proven: Proven, name: str) -> None:
    proven.outcomes[name].check()
    assert proven.outcomes[name].step.kernel.startswith("lookup")


def test_memory(proven: Proven) -> None:
    assert proven.memory_errors == ()


@pytest.mark.parametrize(("opcode", "x", "y"), [("ABS", 1.0, 1e-12), ("RSQRT", 1e-30, 1e-30), ("RSQRT", 1e12, 1e12)])
def test_scales_out_of_proportion_are_refused(opcode: str, x: float, y: float) -> None:
    error = refusal(every_byte("far", opcode, (x, 0), (y, 0)))
    assert "scales that are out of proportion" in str(error) and error.exit_code == 2

"""ABS, RSQRT, ELU, EXP, GELU and LOG of int8, ABS and RSQRT of int16: reference, engine and C agree on every value."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.single_op import Array, Case, Proven, plain, prove, quantized, refusal

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")


def every_byte(name: str, opcode: str, x: tuple[float, int], y: tuple[float, int], **options: bool) -> Case:
    """All values; those below the zero point, of which no root is, as the zero point."""

    def draw(rng: np.random.Generator, sample: int) -> list[Array]:
        values = rng.permutation(np.arange(-128, 128)).astype(np.int8).reshape(2, 128)
        return [np.maximum(values, np.int8(x[1])) if opcode == "RSQRT" else values]

    return Case(name, opcode, (quantized((2, 128), *x),), (quantized((2, 128), *y),), options, draw=draw)


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
TABLES = {
    "EXP": {"small": ((0.01, -3), (0.02, -128)), "wide": ((0.1, 12), (0.9, -120)), "over": ((0.5, -128), (0.003, 7))},
    "LOG": {
        "unit": ((1 / 256, -128), (0.03, 100)),
        "both": ((0.05, -3), (0.03, -5)),
        "far": ((1.7, 126), (0.003, -60)),
    },
    "GELU": SCALES,
}
ONLY_LITERT = [
    *(every_byte(f"{op}_{name}", op, x, y) for op, pairs in TABLES.items() for name, (x, y) in pairs.items()),
    *(every_byte(f"GELU_tanh_{name}", "GELU", x, y, approximate=True) for name, (x, y) in SCALES.items()),
]
"""Operators that TFLite Micro has not of bytes, or not at all."""

DISPUTED = np.array([0, 1, 2, 372, 1069, 2340, 11254, 11255, 32767])
"""Among them are roots for which it matters that factors are computed in double."""


def of_shorts(name: str, opcode: str, x: float, y: float) -> Case:
    """All values of int16, of RSQRT some that have a root; x and y 0: without scale."""
    root = opcode == "RSQRT"
    shape = (32, 32) if root else (256, 256)

    def draw(rng: np.random.Generator, sample: int) -> list[Array]:
        if root:
            values = np.concatenate([DISPUTED, rng.integers(0, 1 << 15, 1024 - len(DISPUTED))])
            return [values.astype(np.int16).reshape(shape)]
        return [rng.permutation(np.arange(-(1 << 15), 1 << 15)).astype(np.int16).reshape(shape)]

    kinds = [quantized(shape, scale, 0, "int16") if scale else plain(shape, "int16") for scale in (x, y)]
    return Case(name, opcode, (kinds[0],), (kinds[1],), draw=draw)


WIDE_SCALES = {
    "equal": (0.0005, 0.0005), "wider": (0.0005, 0.0011), "finer": (0.0005, 0.00021), "far": (1.7, 0.003),
    "disputed": (0.0008621620945632458, 0.0014091990888118744),
}  # fmt: skip
WIDE = [
    *(of_shorts(f"{op}_wide_{name}", op, x, y) for op in ("ABS", "RSQRT") for name, (x, y) in WIDE_SCALES.items()),
    of_shorts("ABS_unscaled", "ABS", 0.0, 0.0),
]


@pytest.fixture(scope="module")
def proven() -> Proven:
    return prove([*CASES, *WIDE], samples=3)


@pytest.fixture(scope="module")
def proven_by_litert() -> Proven:
    return prove(ONLY_LITERT, samples=1, engine="litert")


@pytest.mark.parametrize("name", [case.id for case in ONLY_LITERT])
def test_case_of_litert(proven_by_litert: Proven, name: str) -> None:
    proven_by_litert.outcomes[name].check()
    assert proven_by_litert.outcomes[name].step.kernel.startswith("lookup")


@pytest.mark.parametrize("name", [case.id for case in CASES])
def test_case(proven: Proven, name: str) -> None:
    proven.outcomes[name].check()
    assert proven.outcomes[name].step.kernel.startswith("lookup")


@pytest.mark.parametrize("name", [case.id for case in WIDE])
def test_int16(proven: Proven, name: str) -> None:
    proven.outcomes[name].check()


def test_memory(proven: Proven) -> None:
    assert proven.memory_errors == ()


@pytest.mark.parametrize(("opcode", "x", "y"), [("ABS", 1.0, 1e-12), ("RSQRT", 1e-30, 1e-30), ("RSQRT", 1e12, 1e12)])
def test_scales_out_of_proportion_are_refused(opcode: str, x: float, y: float) -> None:
    error = refusal(every_byte("far", opcode, (x, 0), (y, 0)))
    assert "scales that are out of proportion" in str(error) and error.exit_code == 2


def test_int16_with_a_zero_point_and_elu_of_int16_are_refused() -> None:
    y = quantized((4,), 0.05, 0, "int16")
    error = refusal(Case("zero", "ABS", (quantized((4,), 0.05, 1, "int16"),), (y,)))
    assert "has an int16 tensor with the zero point 1" in str(error)
    assert "ELU with element types (int16, int16) is not supported" in str(refusal(Case("elu", "ELU", (y,), (y,))))

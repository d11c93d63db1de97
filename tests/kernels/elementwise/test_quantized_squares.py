"""SQUARED_DIFFERENCE of int8 and int16: reference, engine and C agree on every bit, in int8 for every pair of bytes."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.layer_cases import message, named_rng
from tests.support.single_op import Array, Case, Proven, plain, prove, quantized

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

Scale = tuple[float, int]
Shape = tuple[int, ...]
OPCODE = "SQUARED_DIFFERENCE"
BYTES = np.arange(-128, 128).astype(np.int8)


def every_pair(name: str, a: Scale, b: Scale, y: Scale) -> Case:
    """All bytes of a in a column with all of b in a row."""

    def draw(rng: np.random.Generator, sample: int) -> list[Array]:
        return [rng.permutation(BYTES).reshape(256, 1), rng.permutation(BYTES).reshape(1, 256)]

    inputs = (quantized((256, 1), *a), quantized((1, 256), *b))
    return Case(name, OPCODE, inputs, (quantized((256, 256), *y),), draw=draw)


def of(
    name: str, a: Shape, b: Shape, scales: tuple[Scale, Scale, Scale], dtype: str = "int8", *, constant: bool = False
) -> Case:
    """Two shapes that broadcast."""
    value = named_rng(name).integers(-100, 100, b) if constant else None
    inputs = (quantized(a, *scales[0], dtype), quantized(b, *scales[1], dtype, value))
    return Case(name, OPCODE, inputs, (quantized(np.broadcast_shapes(a, b), *scales[2], dtype),))


USUAL = ((0.05, 3), (0.04, -7), (0.6, -128))
WIDE = ((0.0005, 0), (0.0004, 0), (0.03, 0))
SHAPES = [
    of("same", (3, 5), (3, 5), USUAL),
    of("channels", (2, 3, 4), (4,), USUAL, constant=True),
    of("mean", (2, 6, 8), (2, 1, 8), USUAL),
    of("table", (2, 3, 64), (1,), USUAL, constant=True),
    of("wide", (40, 50), (40, 50), WIDE, "int16"),
    of("wide_mean", (20, 64), (20, 1), WIDE, "int16"),
    of("wide_constant", (20, 64), (64,), WIDE, "int16", constant=True),
    of("wide_fine", (40, 50), (40, 50), ((0.5, 0), (0.5, 0), (1.001, 0)), "int16"),
    of("wide_coarse", (40, 50), (40, 50), ((1e-3, 0), (1e-6, 0), (200.0, 0)), "int16"),
]
PAIRS = [
    every_pair("usual", *USUAL),
    every_pair("saturating", (0.05, 3), (0.04, -7), (0.001, 5)),
    every_pair("zero_points_at_the_ends", (0.05, -128), (0.05, 127), (12.0, 127)),
    every_pair("unlike", (1.3, 9), (0.0007, 100), (90.0, -100)),
    every_pair("nearly_too_fine", (0.9, -128), (0.9, -128), (2.0**-12 * 0.811, -128)),
]


@pytest.fixture(scope="module")
def proven() -> Proven:
    return prove([*SHAPES, *PAIRS], samples=4)


@pytest.mark.parametrize("name", [case.id for case in (*SHAPES, *PAIRS)])
def test_case(proven: Proven, name: str) -> None:
    proven.outcomes[name].check()


def test_no_memory_error(proven: Proven) -> None:
    assert proven.memory_errors == ()


def test_one_value_decides_by_table(proven: Proven) -> None:
    step = proven.outcomes["table"].step
    assert step is not None and step.kernel == "lookup"


def test_results_are_spread(proven: Proven) -> None:
    for name in ("wide", "wide_mean", "usual"):
        assert len(np.unique(proven.outcomes[name].golden[0][0])) > 100, name


@pytest.mark.parametrize(("dtype", "y"), [("int8", 1e-6), ("int16", 1e-6)])
def test_scales_out_of_proportion_are_refused(dtype: str, y: float) -> None:
    case = of("far", (4,), (4,), ((0.5, 0), (0.5, 0), (y, 0)), dtype)
    assert message(case).startswith(f"2\nerror: {OPCODE} has scales that are out of proportion\n")


def test_other_types_are_refused() -> None:
    case = Case("plain", OPCODE, (plain((4,), "int64"),) * 2, (plain((4,), "int64"),))
    assert message(case).startswith(f"1\nerror: {OPCODE} with element types (int64, int64, int64) is not supported\n")
    case = of("zero", (4,), (4,), ((0.5, 1), (0.5, 0), (0.5, 0)), "int16")
    assert message(case).startswith(f"2\nerror: {OPCODE} has an int16 tensor with the zero point 1\n")

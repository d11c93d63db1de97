"""DIV of int8: reference, engine and C agree on every pair of bytes for which the engine's result is defined."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.layer_cases import message
from tests.support.single_op import Array, Case, Proven, prove, quantized

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

Scale = tuple[float, int]
Shape = tuple[int, ...]


def divided(name: str, a: Shape, b: Shape, scales: tuple[Scale, Scale, Scale], activation: str = "NONE") -> Case:
    """Bytes of a, and those of b that are no zero: all of them where the shapes have as many elements."""

    def draw(rng: np.random.Generator, sample: int) -> list[Array]:
        over, under = (np.resize(rng.permutation(256), shape) - 128 for shape in (a, b))
        zero = scales[1][1]
        return [
            over.astype(np.int8),
            np.where(under == zero, zero - 1 if zero > 0 else zero + 1, under).astype(np.int8),
        ]

    inputs = (quantized(a, *scales[0]), quantized(b, *scales[1]))
    y = quantized(np.broadcast_shapes(a, b), *scales[2])
    return Case(name, "DIV", inputs, (y,), {"fused_activation_function": activation}, draw=draw)


USUAL = ((0.05, 3), (0.04, -7), (0.01, -5))
SCALES = {
    "usual": USUAL,
    "shares": ((0.05, 3), (0.05, -128), (1 / 128, -128)),
    "zero_points_at_the_ends": ((0.0123, -128), (0.0123, 127), (0.00777, 127)),
    "saturating": ((0.5, 3), (0.001, -3), (0.002, 0)),
    "nearly_too_fine": ((0.5, 3), (0.01, -3), (50 / 8388600, 9)),
    "least": ((0.05, 3), (0.05, 4), (0.0155, -30)),
}
CASES = [
    divided("same_shape", (16, 16), (16, 16), USUAL),
    *(divided(name, (256, 1), (1, 256), scales) for name, scales in SCALES.items()),
    *(divided(f"pairs_{a}", (256, 1), (1, 256), USUAL, a) for a in ("RELU", "RELU6", "RELU_N1_TO_1")),
    divided("channels", (3, 4, 5), (5,), USUAL),
]
BY_A_CONSTANT = [
    replace(
        divided("table", (4, 64), (1,), USUAL),
        inputs=(quantized((4, 64), *USUAL[0]), quantized((1,), *USUAL[1], data=np.array([9]))), draw=None,
    ),
]  # fmt: skip


@pytest.fixture(scope="module")
def proven() -> Proven:
    return prove([*CASES, *BY_A_CONSTANT], samples=2)


@pytest.mark.parametrize("name", [case.id for case in (*CASES, *BY_A_CONSTANT)])
def test_case(proven: Proven, name: str) -> None:
    proven.outcomes[name].check()


def test_no_memory_error(proven: Proven) -> None:
    assert proven.memory_errors == ()


def test_a_constant_divisor_makes_a_table(proven: Proven) -> None:
    step = proven.outcomes["table"].step
    assert step is not None and step.kernel == "lookup"


def of_numbers(over: list[int], under: list[int], scales: tuple[Scale, Scale, Scale]) -> list[int]:
    """What the C gives, where no engine defines it, and the reference too."""
    values = [np.array(each, np.int8) for each in (over, under)]
    case = replace(divided("numbers", (len(over),), (len(under),), scales), draw=lambda rng, sample: values)
    outcome = prove([case], engine=None, samples=1).outcomes["numbers"]
    outcome.check()
    return [int(value) for value in outcome.compiled[0][0]]


def test_a_divisor_of_zero_gives_the_end_of_the_type() -> None:
    scales = ((0.05, 0), (0.05, 2), (0.01, 7))
    assert of_numbers([5, -5, 0], [2, 2, 2], scales) == [127, -128, 7]


def test_quotients_whose_bits_are_all_shifted_out_are_zero() -> None:
    scales = ((0.05, 0), (0.05, 0), (0.5, 7))
    assert of_numbers([0, 1, -1, 90, -90, 127], [100, 100, 100, 100, 100, 1], scales) == [7, 7, 7, 9, 5, 127]


def test_scales_out_of_proportion_are_refused() -> None:
    case = divided("far", (4,), (4,), ((1.0, 0), (1e-6, 0), (0.1, 0)))
    assert message(case).startswith("2\nerror: DIV has scales that are out of proportion\n")

"""BATCH_MATMUL: reference, engine and C agree, with either operand transposed, repeated or constant."""

from __future__ import annotations

import numpy as np
import pytest

from emitc.verify.tolerances import TOLERANT
from emitc.writers.tflite import TensorSpec
from tests.support.elementwise_cases import message, single
from tests.support.float_cases import FINITE, check, with_values
from tests.support.single_op import Case, Proven, plain, prove, quantized

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

BATCHES: dict[str, tuple[tuple[int, ...], tuple[int, ...]]] = {
    "none": ((), ()),
    "same": ((3,), (3,)),
    "a_repeated": ((1,), (3,)),
    "b_repeated": ((3,), (1,)),
    "b_without": ((2, 3), ()),
    "both": ((2, 1), (1, 3)),
}
SIZES = {"matrices": (3, 7, 5), "row": (1, 9, 4), "column": (6, 5, 1), "deep": (2, 70, 6), "one": (1, 1, 1)}
Scaled = tuple[float, int]
SCALES: dict[str, tuple[Scaled, Scaled, Scaled]] = {
    "plain": ((0.02, -3), (0.03, 4), (0.05, 5)),
    "low_zeros": ((0.02, -128), (0.03, -128), (0.1, -128)),
    "high_zeros": ((0.02, 127), (0.03, 127), (0.1, 127)),
    "growing": ((1.0, 3), (1.5, -7), (0.5, 0)),
    "vanishing": ((single(1e-5), 3), (single(1e-6), 9), (1.0, 1)),
}


def case(
    name: str,
    size: str = "matrices",
    batch: str = "none",
    turned: tuple[bool, bool] = (False, False),
    dtype: str = "int8",
    scales: str = "plain",
    constant: str = "",
) -> Case:
    (rows, depth, columns), (a_batch, b_batch) = SIZES[size], BATCHES[batch]
    a = (*a_batch, *((depth, rows) if turned[0] else (rows, depth)))
    b = (*b_batch, *((columns, depth) if turned[1] else (depth, columns)))
    y = (*np.broadcast_shapes(a_batch, b_batch), rows, columns)
    given: list[TensorSpec] = []
    for role, shape, (scale, zero) in zip("ab", (a, b), SCALES[scales][:2], strict=True):
        numbers = np.arange(int(np.prod(shape))) * 37 % 256 - 128
        if dtype == "float32":
            data = (numbers / 64).astype(np.float32).reshape(shape).tobytes() if role in constant else None
            given.append(TensorSpec("", dtype, shape, data))
        else:
            data = (numbers if dtype == "int8" else numbers * 250).reshape(shape) if role in constant else None
            narrow = dtype == "int16"
            given.append(quantized(shape, scale / 256 if narrow else scale, 0 if narrow else zero, dtype, data))
    scale, zero = SCALES[scales][2]
    output = {
        "int8": quantized(y, scale, zero),
        "int16": quantized(y, scale / 64, 0, "int16"),
        "float32": plain(y),
    }[dtype]
    options = {"adj_x": turned[0], "adj_y": turned[1]}
    made = Case(f"{name}_{dtype}", "BATCH_MATMUL", tuple(given), (output,), options)
    return with_values(made, FINITE[np.abs(FINITE) < 1e3]) if dtype == "float32" else made


TYPES = ("int8", "int16", "float32")
TURNS = {"plain": (False, False), "a": (True, False), "b": (False, True), "ab": (True, True)}
CASES = [
    *(case(f"{size}_{turn}", size, turned=TURNS[turn], dtype=t) for size in SIZES for turn in TURNS for t in TYPES),
    *(
        case(f"{batch}_{turn}", batch=batch, turned=TURNS[turn], dtype=t)
        for batch in list(BATCHES)[1:]
        for turn in TURNS
        for t in TYPES
    ),
    *(case(f"constant_{role}", batch="b_without", dtype=t, constant=role) for role in "ab" for t in TYPES),
    *(case(f"constant_{role}_turned", turned=(True, True), dtype=t, constant=role) for role in "ab" for t in TYPES),
    *(case(scales, scales=scales, dtype=t) for scales in SCALES for t in TYPES[:2]),
]


@pytest.fixture(scope="module")
def proven() -> Proven:
    return prove(CASES)


@pytest.mark.parametrize("name", [case.id for case in CASES])
def test_case(proven: Proven, name: str) -> None:
    if name.endswith("float32"):
        check(proven.outcomes[name], TOLERANT)
    else:
        proven.outcomes[name].check()


def test_memory(proven: Proven) -> None:
    assert proven.memory_errors == ()


def test_random_sweep() -> None:
    rng = np.random.default_rng(8)
    cases = []
    for i in range(20):
        rows, depth, columns = (int(n) for n in rng.integers(1, 12, 3))
        batch = [int(n) for n in rng.integers(1, 4, int(rng.integers(0, 3)))]
        turned = (bool(rng.integers(0, 2)), bool(rng.integers(0, 2)))
        dtype = TYPES[i % 2]
        shapes = [
            tuple(1 if rng.random() < 0.4 else n for n in batch) + (matrix[::-1] if turn else matrix)
            for matrix, turn in zip(((rows, depth), (depth, columns)), turned, strict=True)
        ]
        y = (*np.broadcast_shapes(*(shape[:-2] for shape in shapes)), rows, columns)
        scales = [single(2.0 ** rng.uniform(-9, -2)) for _ in range(3)]
        zeros = [int(z) if dtype == "int8" else 0 for z in rng.integers(-128, 128, 3)]
        tensors = [
            quantized(shape, scale, zero, dtype) for shape, scale, zero in zip((*shapes, y), scales, zeros, strict=True)
        ]
        options = {"adj_x": turned[0], "adj_y": turned[1]}
        cases.append(Case(f"random{i}", "BATCH_MATMUL", tuple(tensors[:2]), (tensors[2],), options))
    for outcome in prove(cases, seed=9).outcomes.values():
        outcome.check()


def refused(a: TensorSpec, b: TensorSpec, y: TensorSpec) -> Case:
    return Case("refused", "BATCH_MATMUL", (a, b), (y,), {"adj_x": False, "adj_y": True})


def test_refusals() -> None:
    q = quantized
    assert message(refused(q((2, 3)), q((3, 4)), q((2, 4)))) == (
        2, "BATCH_MATMUL has matrices that do not fit each other", "[2, 3] and [3, 4] transposed",
    )  # fmt: skip
    assert message(refused(q((3,)), q((4, 3)), q((4,))))[1] == "BATCH_MATMUL has matrices that do not fit each other"
    assert message(refused(q((2, 40000)), q((2, 40000)), q((2, 2)))) == (
        1, "BATCH_MATMUL over 40000 elements", "their sum can leave 32 bits",
    )  # fmt: skip
    assert message(refused(q((2, 3)), q((2, 3)), q((2, 2), 1e-12)))[:2] == (
        2, "BATCH_MATMUL has scales that are out of proportion",
    )  # fmt: skip
    assert message(refused(q((2, 3)), q((2, 3)), plain((2, 2), "int32")))[:2] == (
        1, "BATCH_MATMUL with element types (int8, int8, int32) is not supported",
    )  # fmt: skip
    alternating = refused(q((2, 1, 2, 1, 2, 3)), q((1, 2, 1, 2, 2, 3)), q((2, 2, 2, 2, 2, 2)))
    assert message(alternating)[:2] == (1, "BATCH_MATMUL repeats its inputs along 4 alternating dimensions")

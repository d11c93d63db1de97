"""PAD and PADV2: reference, engine and C agree on every bit; what has no code is refused by name."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.moves import TFLM_TYPES, layer_of, message, move, tensor
from tests.support.single_op import Case, Proven, TensorSpec, integers, prove

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")


def pad(
    name: str,
    shape: tuple[int, ...],
    paddings: list[tuple[int, int]],
    dtype: str = "int8",
    zero_point: int | None = None,
    value: TensorSpec | None = None,
) -> Case:
    """A case of PAD, or of PADV2 where a value is given."""
    listed = TensorSpec("", "int32", (len(paddings), 2), np.array(paddings, "<i4").tobytes())
    padded = tuple(before + size + after for size, (before, after) in zip(shape, paddings, strict=True))
    inputs = [tensor(shape, dtype, zero_point=zero_point), listed] + ([value] if value else [])
    return move(name, "PADV2" if value else "PAD", inputs, [tensor(padded, dtype, zero_point=zero_point)])


def constant(number: float, dtype: str = "int8", zero_point: int | None = None) -> TensorSpec:
    """A padding value."""
    return tensor((1,), dtype, np.array([number]), zero_point)


IMAGE = [(0, 0), (1, 2), (2, 1), (0, 0)]
CASES = [
    pad("image", (1, 5, 4, 3), IMAGE),
    pad("zero_point_low", (1, 5, 4, 3), IMAGE, zero_point=-128),
    pad("zero_point_high", (1, 5, 4, 3), IMAGE, zero_point=127),
    pad("channels", (2, 3, 3, 3), [(0, 0), (0, 0), (0, 0), (0, 1)]),
    pad("everywhere", (2, 3, 4, 5), [(1, 0), (0, 2), (3, 1), (1, 2)]),
    pad("before_only", (2, 3, 4), [(1, 0), (2, 0), (3, 0)]),
    pad("after_only", (2, 3, 4), [(0, 1), (0, 2), (0, 3)]),
    pad("nothing", (2, 3, 4), [(0, 0)] * 3),
    pad("batch", (2, 3, 4), [(2, 1), (0, 0), (0, 0)]),
    pad("one_element", (1, 1), [(2, 3), (4, 5)]),
    pad("rank_1", (7,), [(3, 2)]),
    pad("rank_5", (2, 1, 3, 2, 2), [(1, 1), (0, 1), (1, 0), (2, 0), (1, 2)]),
    *(pad(f"type_{dtype}", (2, 3, 5), [(1, 0), (0, 2), (3, 1)], dtype) for dtype in TFLM_TYPES),
    pad("v2", (1, 3, 4, 2), IMAGE, value=constant(-128)),
    pad("v2_low_zero_point", (1, 3, 4, 2), IMAGE, zero_point=-128, value=constant(127, zero_point=-128)),
    pad("v2_nothing", (1, 3, 4, 2), [(0, 0)] * 4, value=constant(1)),
    pad("v2_int16", (2, 3), [(1, 2), (0, 1)], "int16", value=constant(-2, "int16")),
    pad("v2_int16_bytes_differ", (2, 3), [(1, 2), (0, 1)], "int16", value=constant(4660, "int16")),
    pad("v2_int32", (2, 3), [(1, 2), (0, 1)], "int32", value=constant(-(2**31), "int32")),
    pad("v2_float32", (2, 3), [(1, 2), (0, 1)], "float32", value=constant(-0.1, "float32")),
    pad("v2_minus_infinity", (2, 3), [(1, 2), (0, 1)], "float32", value=constant(-np.inf, "float32")),
    pad("v2_negative_zero", (2, 3), [(1, 2), (0, 1)], "float32", value=constant(-0.0, "float32")),
]


def sweep() -> list[Case]:
    """Random shapes, paddings and types."""
    rng = np.random.default_rng(11)
    cases = []
    for i in range(25):
        rank = int(rng.integers(1, 6))
        shape = tuple(int(d) for d in rng.integers(1, 6, rank))
        paddings = [(int(a), int(b)) for a, b in rng.integers(0, 4, (rank, 2)) * rng.integers(0, 2, (rank, 2))]
        cases.append(pad(f"random_{i}", shape, paddings, str(rng.choice(TFLM_TYPES))))
    return cases


SWEEP = sweep()


@pytest.fixture(scope="module")
def proven() -> Proven:
    """All cases, run three ways."""
    return prove([*CASES, *SWEEP])


@pytest.mark.parametrize("case_id", [case.id for case in CASES])
def test_case(proven: Proven, case_id: str) -> None:
    proven.outcomes[case_id].check()


def test_random_cases(proven: Proven) -> None:
    for case in SWEEP:
        proven.outcomes[case.id].check()


def test_memory(proven: Proven) -> None:
    assert proven.memory_errors == ()


@pytest.mark.parametrize("dtype", ["uint8", "int64"])
def test_types_of_litert(dtype: str) -> None:
    pytest.importorskip("ai_edge_litert", reason="the extra emitc[verify] is not installed")
    found = prove([pad(dtype, (2, 3, 4), [(1, 0), (2, 1), (0, 3)], dtype)], engine="litert", sanitize=False)
    found.outcomes[dtype].check()


def test_neighbouring_dimensions_become_one_run() -> None:
    layer = layer_of(pad("rows", (1, 5, 4, 3), [(0, 0), (1, 1), (0, 0), (0, 0)]))
    assert [(p.name, p.value) for p in layer.params] == [("run_bytes", 60), ("y_start", 12)]


def test_padding_by_nothing_is_one_copy() -> None:
    assert layer_of(pad("none", (2, 3), [(0, 0), (0, 0)])).kernel_name == "copy_run"


def computed_value() -> Case:
    return pad("value", (2, 3), [(1, 0), (0, 0)], value=tensor((1,)))


REFUSALS = [
    (
        pad("negative", (4, 3), [(1, -1), (0, 0)]),
        (2, "PAD has negative paddings", "[1, -1, 0, 0]"),
    ),
    (
        move("short", "PAD", [tensor((2, 3)), integers(1, 1)], [tensor((4, 3))]),
        (2, "PAD has 2 paddings", "two for each of 2 dimensions are expected"),
    ),
    (
        move("computed", "PAD", [tensor((2, 3)), TensorSpec("", "int32", (2, 2))], [tensor((4, 3))]),
        (1, "PAD takes its paddings from a computed tensor", "sizes and layouts must be known at compile time"),
    ),
    (
        computed_value(),
        (1, "PADV2 takes its padding value from a computed tensor", "the value must be known at compile time"),
    ),
    (
        pad("two_values", (2, 3), [(1, 0), (0, 0)], value=tensor((2,), data=np.zeros(2))),
        (2, "PADV2 has a padding value of the wrong type or size", "one element of int8 is expected"),
    ),
    (
        pad("other_type", (2, 3), [(1, 0), (0, 0)], value=constant(0, "int16")),
        (2, "PADV2 has a padding value of the wrong type or size", "one element of int8 is expected"),
    ),
    (
        pad("other_value_scale", (2, 3), [(1, 0), (0, 0)], value=constant(0, zero_point=5)),
        (
            2,
            "PADV2 has a padding value of another scale or zero point",
            "the value is copied into the output and must be quantized like it",
        ),
    ),
    (
        move("type", "PAD", [tensor((2,)), TensorSpec("", "int32", (1, 2), bytes(8))], [tensor((2,), "int16")]),
        (2, "PAD changes the element type", "int8 and int16, but the operator copies values"),
    ),
    (
        pad("deep", (2,) * 8, [(1, 0)] * 8),
        (
            1,
            "PAD needs 7 nested loops",
            "the kernel has 6; neighbouring dimensions that move together count as one",
        ),
    ),
]


@pytest.mark.parametrize(("case", "expected"), [pytest.param(*each, id=each[0].id) for each in REFUSALS])
def test_refusal(case: Case, expected: tuple[int, str, str]) -> None:
    assert message(case) == expected

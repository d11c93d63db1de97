"""PACK and UNPACK: reference, engine and C agree on every bit; what has no code is refused by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from emitc.compiler import compile_model
from emitc.verify.verification import verify
from emitc.writers.tflite import ModelSpec, write_tflite
from tests.support.moves import TFLM_TYPES, counted, layer_of, message, move, tensor
from tests.support.single_op import Case, OperatorSpec, Proven, TensorSpec, integers, prove

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")


def _stacked(shape: tuple[int, ...], count: int, axis: int) -> list[int]:
    stacked = list(shape)
    stacked.insert(axis % (len(shape) + 1), count)
    return stacked


def pack(name: str, inputs: Sequence[TensorSpec], axis: int, stated: int | None = None) -> Case:
    """A case of PACK."""
    output = tensor(_stacked(inputs[0].shape, len(inputs), axis), inputs[0].dtype)
    return move(name, "PACK", inputs, [output], {"axis": axis, "values_count": stated or len(inputs)})


def unpack(
    name: str, shape: tuple[int, ...], count: int, axis: int, dtype: str = "int8", stated: int | None = None
) -> Case:
    """A case of UNPACK; shape is that of each output."""
    outputs = [tensor(shape, dtype) for _ in range(count)]
    options = {"axis": axis, "num": stated or count}
    return move(name, "UNPACK", [tensor(_stacked(shape, count, axis), dtype)], outputs, options)


def of_shape(name: str, shape: tuple[int, ...], count: int, axis: int, dtype: str = "int8") -> Case:
    """A case of PACK of computed inputs."""
    return pack(name, [tensor(shape, dtype) for _ in range(count)], axis)


TWICE = tensor((2, 3))
CASES = [
    of_shape("first", (2, 3), 3, 0),
    of_shape("middle", (2, 3), 4, 1),
    of_shape("last", (2, 3), 2, 2),
    of_shape("last_from_behind", (2, 3), 2, -1),
    of_shape("first_from_behind", (2, 3), 2, -3),
    of_shape("one", (2, 3), 1, 1),
    of_shape("rank_4", (2, 1, 3, 2), 3, 2),
    pack("same_tensor", [TWICE, TWICE], 1),
    pack("constants", [counted((2, 3)), tensor((2, 3)), counted((2, 3)), counted((2, 3))], 1),
    *(of_shape(f"pack_{dtype}", (3, 2), 2, 1, dtype) for dtype in (*TFLM_TYPES, "int64")),
    unpack("un_first", (2, 3), 3, 0),
    unpack("un_middle", (2, 3), 4, 1),
    unpack("un_last", (2, 3), 2, 2),
    unpack("un_last_from_behind", (2, 3), 2, -1),
    unpack("un_one", (2, 3), 1, 1),
    unpack("un_rank_4", (2, 1, 3), 3, 2),
    *(unpack(f"unpack_{dtype}", (3, 2), 2, 1, dtype) for dtype in TFLM_TYPES),
]


def sweep() -> list[Case]:
    """Random shapes, axes and types."""
    rng = np.random.default_rng(16)
    cases: list[Case] = []
    for i in range(10):
        rank, count = int(rng.integers(1, 4)), int(rng.integers(1, 6))
        shape = tuple(int(d) for d in rng.integers(1, 5, rank))
        axis, dtype = int(rng.integers(-rank - 1, rank + 1)), str(rng.choice(TFLM_TYPES))
        cases.append(of_shape(f"random_pack_{i}", shape, count, axis, dtype))
        cases.append(unpack(f"random_unpack_{i}", shape, count, axis, dtype))
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


def test_scalars_become_a_vector(tmp_path: Path) -> None:
    """Two elements taken out of x by STRIDED_SLICE, then packed the other way round."""
    tensors = (
        tensor((4,), "int32"),
        *(integers(i) for i in (1, 2, 3, 4)),
        tensor((), "int32"),
        tensor((), "int32"),
        tensor((2,), "int32"),
    )
    shrink = {"shrink_axis_mask": 1}
    operators = (
        OperatorSpec("STRIDED_SLICE", (0, 1, 2, 1), (5,), shrink),
        OperatorSpec("STRIDED_SLICE", (0, 3, 4, 1), (6,), shrink),
        OperatorSpec("PACK", (6, 5), (7,), {"axis": 0, "values_count": 2}),
    )
    path = tmp_path / "scalars.tflite"
    path.write_bytes(write_tflite(ModelSpec(tensors, operators, (0,), (7,))))
    assert verify(compile_model(path), reference="tflm", samples=2, layers=True).match


def test_more_types_as_litert_has_them() -> None:
    pytest.importorskip("ai_edge_litert", reason="the extra emitc[verify] is not installed")
    cases = [
        of_shape("pack_uint8", (3, 2), 2, 1, "uint8"),
        unpack("unpack_uint8", (3, 2), 2, 1, "uint8"),
        unpack("unpack_bool", (3, 2), 2, 0, "bool"),
    ]
    found = prove(cases, engine="litert", sanitize=False)
    for outcome in found.outcomes.values():
        outcome.check()


@pytest.mark.parametrize("case", [of_shape("pack", (2, 3), 1, 0), unpack("unpack", (2, 3), 1, 0)], ids=lambda c: c.id)
def test_one_part_is_one_copy(case: Case) -> None:
    assert layer_of(case).kernel_name == "copy_run"


REFUSALS = [
    (pack("count", [tensor((2,)), tensor((2,))], 0, stated=3), (2, "PACK has 2 inputs", "values_count is 3")),
    (pack("shapes", [tensor((2,)), tensor((3,))], 0), (2, "PACK of [2] and [3]", "all shapes must be equal")),
    (of_shape("axis", (2,), 2, 2), (2, "PACK has axis 2", "the tensor has 2 dimensions")),
    (
        pack("types", [tensor((2,)), tensor((2,), "int16")], 0),
        (2, "PACK changes the element type", "int8 and int16, but the operator copies values"),
    ),
    (unpack("number", (2,), 3, 0, stated=2), (2, "UNPACK has 3 outputs", "num is 2")),
    (
        move("outputs", "UNPACK", [tensor((4, 2))], [tensor((2,))] * 3, {"axis": 0, "num": 3}),
        (2, "UNPACK has 4 slices along dimension 0", "num is 3"),
    ),
    (
        move("un_axis", "UNPACK", [tensor((2, 2))], [tensor((2,))] * 2, {"axis": -3, "num": 2}),
        (2, "UNPACK has axis -3", "the tensor has 2 dimensions"),
    ),
    (of_shape("many", (1,), 65, 0), (1, "PACK of 65 tensors is not supported", "64 is the limit")),
]


@pytest.mark.parametrize(("case", "expected"), [pytest.param(*each, id=each[0].id) for each in REFUSALS])
def test_refusal(case: Case, expected: tuple[int, str, str]) -> None:
    assert message(case) == expected

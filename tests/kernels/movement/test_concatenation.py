"""CONCATENATION: reference, engine and C agree on every bit; what has no code is refused by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from emitc.compiler import compile_model
from emitc.verify.verification import verify
from emitc.writers.tflite import write_tflite
from tests.support.moves import TFLM_TYPES, counted, layer_of, message, move, tensor
from tests.support.single_op import Case, Proven, TensorSpec, model_of, prove

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")


def concatenation(name: str, inputs: Sequence[TensorSpec], axis: int, activation: str = "NONE") -> Case:
    """A case; the output has the first input's shape with the sum at the axis."""
    shape = list(inputs[0].shape)
    if -len(shape) <= axis < len(shape):
        shape[axis] = sum(spec.shape[axis] for spec in inputs if len(spec.shape) == len(shape))
    output = tensor(shape, inputs[0].dtype)
    return move(name, "CONCATENATION", inputs, [output], {"axis": axis, "fused_activation_function": activation})


def of_shapes(name: str, shapes: Sequence[tuple[int, ...]], axis: int, dtype: str = "int8") -> Case:
    """A case of computed inputs."""
    return concatenation(name, [tensor(shape, dtype) for shape in shapes], axis)


TWICE = tensor((2, 3))
CASES = [
    of_shapes("channels", [(1, 4, 4, 3), (1, 4, 4, 5)], 3),
    of_shapes("channels_from_behind", [(1, 4, 4, 1), (1, 4, 4, 1)], -1),
    of_shapes("rows", [(1, 4, 1, 24), (1, 1, 1, 24)], 1),
    of_shapes("batch", [(2, 3, 4), (1, 3, 4), (3, 3, 4)], 0),
    of_shapes("first_from_behind", [(2, 3), (1, 3)], -2),
    of_shapes("rank_1", [(3,), (1,), (5,)], 0),
    of_shapes("rank_5", [(2, 1, 3, 2, 2), (2, 1, 4, 2, 2)], 2),
    of_shapes("ten", [(2, i + 1) for i in range(10)], 1),
    of_shapes("one", [(2, 3, 4)], 1),
    of_shapes("narrow", [(5, 7, 2), (5, 7, 3), (5, 7, 1)], 2),
    of_shapes("narrow_shorts", [(9, 1), (9, 1)], 1, "int16"),
    concatenation("narrow_constant", [tensor((6, 2)), counted((6, 3)), tensor((6, 1))], 1),
    concatenation("same_tensor", [TWICE, tensor((2, 1)), TWICE], 1),
    concatenation("constant_first", [counted((2, 3)), tensor((2, 4))], 1),
    concatenation("constant_last", [tensor((2, 4)), counted((2, 3))], 1),
    concatenation("constant_between", [tensor((2, 4)), counted((2, 3)), tensor((2, 1))], 1),
    concatenation(
        "constants_everywhere",
        [
            counted((2, 1)),
            counted((2, 2)),
            tensor((2, 4)),
            counted((2, 3)),
            counted((2, 2)),
            tensor((2, 1)),
            counted((2, 1)),
        ],
        1,
    ),
    *(of_shapes(f"type_{dtype}", [(2, 3, 5), (2, 2, 5)], 1, dtype) for dtype in (*TFLM_TYPES, "int64", "bool")),
    concatenation("constant_float", [tensor((2, 2), "float32"), counted((2, 2), "float32")], 1),
    concatenation(
        "constant_infinity", [tensor((2, 2), "float32"), tensor((2, 1), "float32", np.array([[np.inf], [np.nan]]))], 1
    ),
]


def sweep() -> list[Case]:
    """Random shapes, axes, types, and constants among the inputs."""
    rng = np.random.default_rng(12)
    cases = []
    for i in range(25):
        rank, dtype = int(rng.integers(1, 6)), str(rng.choice(TFLM_TYPES))
        shape, axis = [int(d) for d in rng.integers(1, 5, rank)], int(rng.integers(0, rank))
        inputs = []
        for part in range(int(rng.integers(1, 6))):
            shape[axis] = int(rng.integers(1, 5))
            inputs.append(counted(shape, dtype) if part and rng.integers(0, 3) == 0 else tensor(shape, dtype))
        cases.append(concatenation(f"random_{i}", inputs, axis - int(rng.integers(0, 2)) * rank))
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


def test_eleven_inputs_and_uint8_as_litert_has_them() -> None:
    pytest.importorskip("ai_edge_litert", reason="the extra emitc[verify] is not installed")
    cases = [of_shapes("eleven", [(2, i + 1) for i in range(11)], 1), of_shapes("uint8", [(2, 3), (2, 2)], 1, "uint8")]
    found = prove(cases, engine="litert", sanitize=False)
    for outcome in found.outcomes.values():
        outcome.check()


def test_constants_only_without_folding(tmp_path: Path) -> None:
    path = tmp_path / "constants.tflite"
    path.write_bytes(write_tflite(model_of([concatenation("c", [counted((2, 3)), counted((2, 1))], 1), CASES[0]])))
    compiled = compile_model(path, disabled=frozenset({"fold-constants"}))
    assert [step.kernel_name for step in compiled.program.steps] == ["join", "join"]
    assert verify(compiled, reference="tflm", samples=2, layers=True, sanitize=True).match


def test_one_input_is_one_copy() -> None:
    assert layer_of(of_shapes("one", [(2, 3)], 1)).kernel_name == "copy_run"


def test_neighbouring_constants_are_one_table() -> None:
    layer = layer_of(concatenation("c", [tensor((2, 1)), counted((2, 1)), counted((2, 2))], 1))
    assert [(t.role, t.values) for t in layer.tables] == [
        ("constant_1", (-50, -50, -49, -49, -48, -47)),
        ("row_bytes", (1, 3)),
    ]


REFUSALS = [
    (
        concatenation("activation", [tensor((2, 3)), tensor((2, 3))], 1, "RELU"),
        (2, "CONCATENATION with fused_activation_function RELU is not defined", "this operator fuses NONE"),
    ),
    (of_shapes("axis", [(2, 3), (2, 3)], 2), (2, "CONCATENATION has axis 2", "the tensor has 2 dimensions")),
    (of_shapes("scalars", [(), ()], 0), (2, "CONCATENATION has axis 0", "the tensor has 0 dimensions")),
    (
        of_shapes("shapes", [(2, 3), (4, 3)], 1),
        (2, "CONCATENATION of [2, 3] and [4, 3]", "all dimensions but 1 must be equal"),
    ),
    (
        of_shapes("ranks", [(2, 3), (2, 3, 1)], 1),
        (2, "CONCATENATION of [2, 3] and [2, 3, 1]", "all dimensions but 1 must be equal"),
    ),
    (
        concatenation("types", [tensor((2, 3)), tensor((2, 3), "int16")], 1),
        (2, "CONCATENATION changes the element type", "int8 and int16, but the operator copies values"),
    ),
    (
        concatenation("scales", [tensor((2, 3)), tensor((2, 3), zero_point=4)], 1),
        (
            2,
            "CONCATENATION changes scale or zero point",
            "(0.05000000074505806, -7) in and (0.05000000074505806, 4) out, but the operator copies values",
        ),
    ),
    (
        of_shapes("many", [(1, 1)] * 65, 1),
        (1, "CONCATENATION of 65 tensors is not supported", "64 is the limit"),
    ),
]


@pytest.mark.parametrize(("case", "expected"), [pytest.param(*each, id=each[0].id) for each in REFUSALS])
def test_refusal(case: Case, expected: tuple[int, str, str]) -> None:
    assert message(case) == expected


@pytest.mark.parametrize(
    ("case", "template"),
    [
        (of_shapes("three", [(2, 3), (2, 1)], 1), "join_narrow"),
        (of_shapes("four", [(2, 4), (2, 1)], 1), "join"),
        (of_shapes("two_shorts", [(2, 2), (2, 1)], 1, "int16"), "join"),
        (of_shapes("one_row", [(1, 3), (1, 1)], 1), "join"),
    ],
    ids=lambda value: getattr(value, "id", value),
)
def test_rows_of_up_to_three_bytes_are_moved_by_columns(case: Case, template: str) -> None:
    assert layer_of(case).kernel_name == template

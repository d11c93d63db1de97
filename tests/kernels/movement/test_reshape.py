"""RESHAPE, SQUEEZE and EXPAND_DIMS: the same bytes under another shape; reference, engine and C agree on every bit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.layer_cases import lowered, message, with_input, with_output
from tests.support.moves import TFLM_TYPES, move, tensor
from tests.support.single_op import Case, Proven, TensorSpec, integers, prove

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")


def reshape(
    name: str,
    shape: tuple[int, ...],
    result: tuple[int, ...],
    *,
    given: tuple[int, ...] | None = None,
    option: tuple[int, ...] | None = None,
    dtype: str = "int8",
) -> Case:
    """RESHAPE with its shape as second input (given), as option, or as neither."""
    inputs = [tensor(shape, dtype)] + ([] if given is None else [integers(*given)])
    return move(name, "RESHAPE", inputs, [tensor(result, dtype)], {} if option is None else {"new_shape": option})


def squeeze(name: str, shape: tuple[int, ...], result: tuple[int, ...], dims: tuple[int, ...] | None = None) -> Case:
    """SQUEEZE of the listed dimensions, or of all of size 1."""
    options = {} if dims is None else {"squeeze_dims": dims}
    return move(name, "SQUEEZE", [tensor(shape)], [tensor(result)], options)


def expand(name: str, shape: tuple[int, ...], axis: int, dtype: str = "int8") -> Case:
    """EXPAND_DIMS at an axis."""
    at = axis % (len(shape) + 1)
    return move(
        name, "EXPAND_DIMS", [tensor(shape, dtype), integers(axis)], [tensor((*shape[:at], 1, *shape[at:]), dtype)]
    )


CASES: list[Case] = [
    reshape("shape_as_input", (2, 3, 4), (4, 6), given=(4, 6)),
    reshape("shape_as_input_and_option", (2, 3, 4), (4, 6), given=(4, 6), option=(4, 6)),
    reshape("input_wins_over_option", (2, 3, 4), (4, 6), given=(4, 6), option=(6, 4)),
    reshape("shape_as_option", (2, 3, 4), (4, 6), option=(4, 6)),
    reshape("shape_of_the_output", (2, 3, 4), (4, 6)),
    reshape("minus_1_first", (2, 3, 4), (8, 3), given=(-1, 3)),
    reshape("minus_1_last", (2, 3, 4), (2, 12), given=(2, -1)),
    reshape("minus_1_is_1", (2, 3, 4), (1, 24), given=(-1, 24)),
    reshape("minus_1_as_option", (2, 3, 4), (24,), option=(-1,)),
    reshape("same_shape", (2, 3, 4), (2, 3, 4), given=(2, 3, 4)),
    reshape("to_rank_5", (24,), (1, 2, 3, 2, 2), given=(1, 2, 3, 2, 2)),
    reshape("one_element", (1, 1), (1, 1, 1), given=(1, 1, 1)),
    *(reshape(f"type_{t}", (2, 6), (3, 4), given=(3, 4), dtype=t) for t in TFLM_TYPES),
    squeeze("squeeze_all", (1, 3, 1, 2), (3, 2)),
    squeeze("squeeze_none_listed", (1, 3, 1, 2), (3, 2), ()),
    squeeze("squeeze_first", (1, 3, 1, 2), (3, 1, 2), (0,)),
    squeeze("squeeze_negative", (1, 3, 1, 2), (1, 3, 2), (-2,)),
    squeeze("squeeze_several", (1, 3, 1, 2, 1), (3, 2), (0, -1, 2)),
    squeeze("squeeze_nothing", (2, 3), (2, 3)),
    *(expand(f"expand_at_{a}", (2, 3, 4), a) for a in (-4, -1, 0, 1, 3)),
    expand("expand_float32", (2, 3), 1, "float32"),
]
IDS = [case.id for case in CASES]


@pytest.fixture(scope="module")
def proven() -> Proven:
    """Every case, run three ways."""
    return prove(CASES)


@pytest.mark.parametrize("name", IDS)
def test_reference_engine_and_c_agree(proven: Proven, name: str) -> None:
    proven.outcomes[name].check()


def test_no_memory_error(proven: Proven) -> None:
    assert proven.memory_errors == ()


def test_no_code_is_printed(proven: Proven) -> None:
    assert proven.compiled.program.steps == ()
    assert [outcome.step for outcome in proven.outcomes.values()] == [None] * len(CASES)


def test_output_is_the_input(proven: Proven) -> None:
    program = proven.compiled.program
    for x, y in zip(program.inputs, program.outputs, strict=True):
        assert x.address == y.address


def test_layer_without_the_view_pass_is_a_copy() -> None:
    assert lowered(reshape("layer", (2, 3), (6,), given=(6,))).kernel_name == "copy"


def test_a_computed_shape_is_taken_from_the_output() -> None:
    # Converters leave a shape that is computed while running (SHAPE, PACK) and state the result.
    case = reshape("layer", (2, 3), (3, 2))
    case = replace(case, inputs=(*case.inputs, TensorSpec("", "int32", (2,))))
    assert lowered(case).kernel_name == "copy"


BASE = reshape("layer", (2, 3, 4), (4, 6), given=(4, 6))
AGAIN = "export the model again"


def _refused(case: Case, code: int, what: str, tensor_text: str, why: str, hint: str) -> None:
    place = f'op 0 {case.opcode} "layer/out0"' + (f", tensor {tensor_text}" if tensor_text else "")
    assert message(case) == f"{code}\nerror: {what}\n  at:    {place}\n  why:   {why}\n  try:   {hint}"


@pytest.mark.parametrize("wanted", [(-1, -1), (0, 24), (-2, 12), (1,) * 8 + (24,)])
def test_refuses_an_impossible_shape(wanted: tuple[int, ...]) -> None:
    _refused(
        reshape("layer", (2, 3, 4), (4, 6), given=wanted), 2, f"RESHAPE asks for the shape {list(wanted)}", "",
        "positive sizes and at most one -1", "export again",
    )  # fmt: skip


@pytest.mark.parametrize("wanted", [(5, 5), (-1, 7), (23,), (2**31 - 1, 2**31 - 1)])
def test_refuses_another_number_of_elements(wanted: tuple[int, ...]) -> None:
    _refused(
        reshape("layer", (2, 3, 4), (4, 6), given=wanted), 2, "RESHAPE changes the number of elements", "",
        f"[2, 3, 4] to {list(wanted)}", AGAIN,
    )  # fmt: skip


def test_refuses_a_stated_output_of_another_shape() -> None:
    _refused(
        with_output(BASE, shape=(6, 4)), 2, "RESHAPE has an output of the wrong shape", '2 "layer/out0" int8[6,4]',
        "the file says [6, 4], the operator gives [4, 6]", "export the model again",
    )  # fmt: skip


def test_refuses_a_change_of_type() -> None:
    _refused(
        with_output(BASE, dtype="uint8", zero_points=(7,)), 2, "RESHAPE changes the element type",
        '"layer/out0" uint8[4,6]', "int8 to uint8", "export the model again",
    )  # fmt: skip


def test_refuses_a_shape_of_floats() -> None:
    case = with_input(BASE, 1, dtype="float32")
    _refused(
        case, 2, "RESHAPE has shape of type float32", '1 "layer/in1" float32[2]', "int32 or int64 is expected", AGAIN
    )


@pytest.mark.parametrize("dims", [(1,), (4,), (-5,), (0, 3)])
def test_refuses_to_squeeze_what_is_not_1(dims: tuple[int, ...]) -> None:
    _refused(
        squeeze("layer", (1, 3, 1, 2), (3, 2), dims), 2, f"SQUEEZE removes dimensions {list(dims)}", "",
        "of [1, 3, 1, 2] only those of size 1 can go", "export again",
    )  # fmt: skip


@pytest.mark.parametrize("axes", [(3,), (-4,), (0, 1)])
def test_refuses_an_axis_that_does_not_exist(axes: tuple[int, ...]) -> None:
    case = move("layer", "EXPAND_DIMS", [tensor((2, 3)), integers(*axes)], [tensor((2, 3, 1))])
    _refused(case, 2, f"EXPAND_DIMS has axis {list(axes)}", "", "the input has 2 dimensions", AGAIN)


def test_refuses_a_computed_axis() -> None:
    case = move("layer", "EXPAND_DIMS", [tensor((2, 3)), TensorSpec("", "int32", (1,))], [tensor((2, 3, 1))])
    _refused(
        case, 1, "EXPAND_DIMS takes its axis from a computed tensor", '1 "layer/in1" int32[1]',
        "sizes and layouts must be known at compile time", "export the model with a constant axis",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("opcode", "count", "expected"), [("RESHAPE", 3, "1 to 2"), ("SQUEEZE", 2, "1"), ("EXPAND_DIMS", 1, "2")]
)
def test_refuses_a_number_of_inputs(opcode: str, count: int, expected: str) -> None:
    inputs = [tensor((2, 3)), *(integers(6) for _ in range(count - 1))]
    _refused(
        move("layer", opcode, inputs, [tensor((6,))]), 2, f"{opcode} has {count} inputs", "", f"{expected} are expected",
        "the file is damaged: export the model again",
    )  # fmt: skip

"""Operators that read a slice or one part of a split: vela makes the slice a part of some of them, and computes those wrongly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from emitc.backends.ethos_u.driver import NAME
from emitc.writers.tflite import ModelSpec, OptionValue
from tests.backends.ethos_u.test_operators import joined, verified
from tests.support.layer_cases import Scales, Slide, conv_2d, depthwise, pool
from tests.support.moves import tensor
from tests.support.single_op import Case, integers, model_of, quantized

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")
pytestmark = pytest.mark.usefixtures("vela")

SCALE, ZERO = 0.05, -7
"""What `tensor` has."""
SAME = Scales(SCALE, factor=0.003, input_zero_point=ZERO)
PLAIN: dict[str, OptionValue] = {"fused_activation_function": "NONE"}


def rows(shape: tuple[int, ...], step: int) -> Case:
    """Every n-th row of an image, which gives one of this shape."""
    whole = (shape[0], (shape[1] - 1) * step + 1, *shape[2:])
    ends, steps = integers(shape[0], *whole[1:]), integers(1, step, 1, 1)
    return Case("slice", "STRIDED_SLICE", (tensor(whole), integers(0, 0, 0, 0), ends, steps), (tensor(shape),))


def columns(shape: tuple[int, ...], step: int) -> Case:
    """Every n-th column."""
    whole = (*shape[:2], (shape[2] - 1) * step + 1, shape[3])
    inputs = (tensor(whole), integers(0, 0, 0, 0), integers(*whole), integers(1, 1, step, 1))
    return Case("slice", "STRIDED_SLICE", inputs, (tensor(shape),))


def fed(first: Case, second: Case, position: int = 0) -> ModelSpec:
    """The second case reads the last result of the first one at this position."""
    spec = model_of([first, second])
    made, operator = spec.operators[0].outputs[-1], spec.operators[1]
    read = operator.inputs[position]
    inputs = tuple(made if i == read else i for i in operator.inputs)
    return replace(
        spec, operators=(spec.operators[0], replace(operator, inputs=inputs)),
        inputs=tuple(i for i in spec.inputs if i != read), outputs=tuple(i for i in spec.outputs if i != made),
    )  # fmt: skip


def transposed(image: tuple[int, ...], kernel: int) -> Case:
    """TRANSPOSE_CONV with stride 2 of an image, with so many rows and columns of weights."""
    case = conv_2d(f"transposed{kernel}", (1, kernel, kernel, image[3]), 4, (kernel, kernel), scales=SAME)
    _, weights, bias = case.inputs
    y = replace(case.outputs[0], shape=(1, image[1] * 2, image[2] * 2, 4))
    options: dict[str, OptionValue] = {"padding": "SAME", "stride_h": 2, "stride_w": 2}
    return Case(case.id, "TRANSPOSE_CONV", (integers(*y.shape), weights, tensor(image), bias), (y,), options, 3)


def binary(opcode: str, image: tuple[int, ...], other: tuple[int, ...]) -> Case:
    """Two operands, of which the first may be repeated along the batch."""
    shape = (max(image[0], other[0]), *image[1:])
    options = {} if opcode in ("MINIMUM", "MAXIMUM") else PLAIN
    return Case(opcode, opcode, (tensor(image), tensor(other)), (tensor(shape),), options)


@pytest.mark.parametrize("taken", [rows, columns])
@pytest.mark.parametrize("opcode", ["ADD", "SUB", "MUL", "MINIMUM", "MAXIMUM"])
def test_two_operands(opcode: str, taken: Callable[[tuple[int, ...], int], Case], tmp_path: Path) -> None:
    """One is every second or third row or column. It is repeated along the batch or not."""
    image = (1, 3, 3, 2)
    parts = [fed(taken(image, step), binary(opcode, image, (n, 3, 3, 2))) for step in (2, 3) for n in (1, 3)]
    made = verified(joined(parts), tmp_path)
    assert {row.backend for row in made.partition.assignments} == {NAME}


@pytest.mark.parametrize("taken", [rows, columns])
def test_windows(taken: Callable[[tuple[int, ...], int], Case], tmp_path: Path) -> None:
    """Convolutions and pools with several rows and columns in a window."""
    image = (1, 6, 6, 3)
    slide = Slide(padding="SAME")
    readers = [
        conv_2d("conv", image, 4, (3, 3), slide, SAME),
        conv_2d("strided", image, 4, (3, 3), replace(slide, stride=(2, 2)), SAME),
        depthwise("depthwise", image, 1, (3, 3), slide, SAME),
        pool("max", "MAX_POOL_2D", image, (2, 2), slide, SCALE, ZERO),
    ]
    made = verified(joined([fed(taken(image, 2), reader) for reader in readers]), tmp_path)
    assert {row.backend for row in made.partition.assignments} == {NAME}


def test_transposed_convolutions(tmp_path: Path) -> None:
    """Of a box, of every second row and of one part of a split."""
    image = (1, 4, 5, 3)
    box = Case("slice", "SLICE", (tensor((1, 6, 6, 3)), integers(0, 1, 0, 0), integers(*image)), (tensor(image),))
    axis = replace(integers(3), shape=())
    split = Case(
        "split", "SPLIT_V", (tensor((1, 4, 5, 5)), integers(2, 3), axis),
        (tensor((1, 4, 5, 2)), tensor(image)), {"num_splits": 2},
    )  # fmt: skip
    parts = [fed(first, transposed(image, kernel), 2) for kernel, first in enumerate((box, rows(image, 2), split), 2)]
    made = verified(joined(parts), tmp_path)
    assert {row.backend for row in made.partition.assignments} == {NAME}


@pytest.mark.parametrize(("scale", "zero_point"), [(SCALE, 3), (0.07, ZERO)])
def test_values_that_are_read_with_another_scale_stay_on_the_core(
    scale: float, zero_point: int, tmp_path: Path
) -> None:
    """The interpreter copies the bytes of a slice or a split, whatever scale and zero point its output states."""
    whole, part = quantized((1, 2, 4, 3), scale, zero_point), (1, 2, 2, 3)
    box = Case("slice", "SLICE", (whole, integers(0, 0, 1, 0), integers(*part)), (tensor(part),))
    axis = replace(integers(2), shape=())
    split = Case("split", "SPLIT_V", (whole, integers(2, 2), axis), (tensor(part), tensor(part)), {"num_splits": 2})
    relu = Case("relu", "RELU", (tensor(part),), (tensor(part),))
    parts = [fed(first, relu) for first in (box, split)]
    made = verified(joined(parts), tmp_path)
    kept = [row for row in made.partition.assignments if row.backend != NAME]
    assert len(kept) == 2
    assert all("another scale or zero point" in dict(row.refused)[NAME] for row in kept)

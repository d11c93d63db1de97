"""Operands that are repeated along more dimensions than there is code for: reference, TFLite Micro and C agree on every bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from emitc.frontends.tflite.broadcasts import MAX_LOOPS, few_loops
from emitc.ir import Array, Shape
from emitc.kernels.shared import broadcast
from tests.support.elementwise_cases import message
from tests.support.float_cases import check
from tests.support.single_op import Case, TensorSpec, graph_of, plain, prove, quantized

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

SIX = (2, 1, 3, 1, 2, 1), (1, 2, 1, 2, 1, 3)
OTHER = (1, 4, 1, 2, 1, 5), (3, 1, 2, 1, 2, 1)
SEVEN = (2, 1, 3, 1, 2, 1, 2), (1, 2, 1, 2, 1, 3, 1)
NONE = {"fused_activation_function": "NONE"}


def binary(name: str, op: str, shapes: tuple[Shape, Shape], dtype: str = "float32", output: str = "") -> Case:
    """Two computed operands, of which the second one is a divisor apart from 0, the first one a dividend apart from it."""
    options = NONE if op in ("ADD", "SUB", "MUL", "DIV") else {}
    a, b, y = *shapes, np.broadcast_shapes(*shapes)

    def draw(rng: np.random.Generator, _sample: int) -> list[Array]:
        if dtype == "float32":
            return [rng.normal(0, 3, a).astype(np.float32), rng.uniform(1, 3, b).astype(np.float32)]
        return [rng.choice([-128, -70, -20, 33, 90, 127], a).astype(dtype), rng.integers(20, 128, b).astype(dtype)]

    def tensor(shape: Shape, scale: float) -> TensorSpec:
        return quantized(shape, scale, 3) if dtype == "int8" else plain(shape, dtype)

    last = plain(y, output) if output else tensor(y, 0.07)
    return Case(name, op, (tensor(a, 0.05), tensor(b, 0.06)), (last,), options, draw=draw)


def chosen(rng: np.random.Generator, _sample: int) -> list[Array]:
    return [rng.random(SIX[0]) < 0.5, *rng.normal(size=(2, *SIX[1])).astype(np.float32)]


CASES = [
    *(binary(f"{op}_{t}", op, SIX, t) for op in ("ADD", "SUB", "MUL", "DIV") for t in ("float32", "int8", "int32")),
    binary("ADD_other", "ADD", OTHER, "int8"),
    *(binary(f"MAXIMUM_{t}", "MAXIMUM", SIX, t) for t in ("float32", "int32")),
    binary("SQUARED_DIFFERENCE", "SQUARED_DIFFERENCE", OTHER),
    binary("FLOOR_MOD", "FLOOR_MOD", SIX),
    *(binary(f"LESS_{t}", "LESS", SIX, t, "bool") for t in ("float32", "int8")),
    Case("SELECT_V2", "SELECT_V2", (plain(SIX[0], "bool"), plain(SIX[1]), plain(SIX[1])),
         (plain((2, 2, 3, 2, 2, 3)),), draw=chosen),
    replace(binary("constant", "MUL", SIX, "int8"),
            inputs=(quantized(SIX[0], 0.05, 3), quantized(SIX[1], 0.06, 3, data=np.arange(-60, 60, 10))), draw=None),
]  # fmt: skip


def test_operands_that_alternate_over_six_dimensions() -> None:
    proven = prove(CASES, samples=3)
    for case in CASES:
        check(proven.outcomes[case.id])
    assert proven.memory_errors == ()


def test_a_note_says_what_is_repeated() -> None:
    assert graph_of(CASES[0]).notes == (
        'op 0 ADD "ADD_float32/out0": input 0 is repeated to [2, 2, 3, 1, 2, 1] before',
        'op 0 ADD "ADD_float32/out0": input 1 is repeated to [2, 2, 1, 2, 1, 3] before',
    )


@pytest.mark.parametrize("shapes", [SIX, OTHER, (*SIX, ())])
def test_the_kernels_have_loops_for_what_is_left(shapes: tuple[Shape, ...]) -> None:
    output = np.broadcast_shapes(*shapes)
    found = few_loops(shapes, output)
    assert np.broadcast_shapes(*found) == output
    assert len(broadcast.walks_of(found, output)) == MAX_LOOPS == broadcast.OUTER_LOOPS + 1


def test_more_dimensions_than_the_engine_has_are_refused() -> None:
    assert message(binary("seven", "ADD", SEVEN, "int8")) == (
        1,
        "ADD repeats its inputs along 7 alternating dimensions",
        f"{list(SEVEN[0])} and {list(SEVEN[1])} need as many nested loops, there is code for 5",
    )


def test_five_loops_are_left_alone() -> None:
    """Upsampling by a product with ones."""
    shapes = (1, 4, 1, 5, 1, 3), (1, 1, 2, 1, 2, 1)
    assert few_loops(shapes, np.broadcast_shapes(*shapes)) == list(shapes)
    assert graph_of(binary("upsampled", "MUL", shapes)).notes == ()

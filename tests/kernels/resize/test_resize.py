"""RESIZE_NEAREST_NEIGHBOR and RESIZE_BILINEAR: reference, engine and C agree on every bit; refusals by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from emitc.compiler import compile_model
from emitc.verify.verification import verify
from emitc.writers.tflite import write_tflite
from tests.support.moves import counted, layer_of, message, move, tensor
from tests.support.single_op import Case, Proven, TensorSpec, integers, model_of, prove

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

NEAREST, BILINEAR = "RESIZE_NEAREST_NEIGHBOR", "RESIZE_BILINEAR"
ALIGNED = {"align_corners": True}
HALF = {"half_pixel_centers": True}


def resize(
    name: str,
    opcode: str,
    shape: tuple[int, int, int, int],
    size: tuple[int, int],
    options: dict[str, bool] | None = None,
    dtype: str = "int8",
) -> Case:
    """A case from [N, H, W, C] to `size` rows and columns."""
    output = tensor((shape[0], *size, shape[3]), dtype)
    return move(name, opcode, [tensor(shape, dtype), integers(*size)], [output], options)


SIZES = [
    ("twice", (1, 4, 5, 3), (8, 10)),
    ("half", (1, 8, 6, 3), (4, 3)),
    ("same", (2, 4, 5, 2), (4, 5)),
    ("odd_up", (2, 3, 4, 5), (7, 11)),
    ("odd_down", (1, 11, 13, 2), (4, 5)),
    ("to_one", (1, 5, 6, 4), (1, 1)),
    ("from_one", (2, 1, 1, 3), (4, 5)),
    ("mixed", (1, 9, 3, 1), (4, 10)),
    ("one_row", (1, 1, 7, 2), (3, 5)),
    ("thirds", (1, 3, 9, 1), (10, 30)),
]
CASES = [
    *(
        resize(f"{opcode}_{name}_{kind}", opcode, shape, size, options)
        for opcode in (NEAREST, BILINEAR)
        for name, shape, size in SIZES
        for kind, options in (("plain", None), ("aligned", ALIGNED), ("half", HALF))
    ),
    *(resize(f"nearest_{name}_both", NEAREST, shape, size, ALIGNED | HALF) for name, shape, size in SIZES),
    *(resize(f"nearest_{dtype}", NEAREST, (2, 3, 4, 2), (5, 6), HALF, dtype) for dtype in ("int16", "float32")),
]


def sweep() -> list[Case]:
    """Random sizes and options."""
    rng = np.random.default_rng(17)
    cases = []
    for i in range(40):
        opcode = (NEAREST, BILINEAR)[i % 2]
        height, width, rows, columns = (int(v) for v in rng.integers(1, 34, 4))
        shape = (int(rng.integers(1, 3)), height, width, int(rng.integers(1, 4)))
        options = [{}, ALIGNED, HALF][int(rng.integers(0, 3))]
        cases.append(resize(f"random_{i}", opcode, shape, (rows, columns), options))
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


@pytest.mark.parametrize("options", [{}, ALIGNED, HALF], ids=["plain", "aligned", "half"])
def test_float32_positions_of_every_small_size(options: dict[str, bool]) -> None:
    """Nearest: widths for which the product with the float32 factor may fall to either side of an integer."""
    widths = (1, 3, 5, 7, 11, 24)
    cases = [
        resize(f"{w}_to_{out}", NEAREST, (1, 1, w, 1), (1, out), options) for w in widths for out in range(1, 40, 3)
    ]
    found = prove(cases, samples=1, sanitize=False)
    for outcome in found.outcomes.values():
        outcome.check()


def test_more_types_as_litert_has_them() -> None:
    pytest.importorskip("ai_edge_litert", reason="the extra emitc[verify] is not installed")
    found = prove([resize("uint8", NEAREST, (1, 3, 4, 2), (5, 7), HALF, "uint8")], engine="litert", sanitize=False)
    found.outcomes["uint8"].check()


def test_constant_images_without_folding(tmp_path: Path) -> None:
    image, output = counted((1, 3, 4, 2)), tensor((1, 5, 7, 2))
    cases = [move(opcode, opcode, [image, integers(5, 7)], [output]) for opcode in (NEAREST, BILINEAR)]
    path = tmp_path / "constants.tflite"
    path.write_bytes(write_tflite(model_of([*cases, CASES[0]])))
    compiled = compile_model(path, disabled=frozenset({"fold-constants"}))
    assert len(compiled.program.steps) == 3
    assert verify(compiled, reference="tflm", samples=2, layers=True, sanitize=True).match


def test_positions_are_integers_in_the_layer() -> None:
    params = {p.name: p.value for p in layer_of(resize("r", BILINEAR, (1, 6, 4, 3), (11, 9), HALF)).params}
    assert (params["factor_h"], params["factor_w"]) == (559, 455)
    assert (params["offset_h"], params["offset_w"]) == (-233, -285)


def rank_3() -> Case:
    return move("rank", NEAREST, [tensor((4, 4, 2)), integers(2, 2)], [tensor((2, 2, 2))])


REFUSALS = [
    (rank_3(), (2, "RESIZE_NEAREST_NEIGHBOR has a tensor of rank 3", "rank 4 is expected")),
    (
        move("three", NEAREST, [tensor((1, 4, 4, 2)), integers(2, 2, 2)], [tensor((1, 2, 2, 2))]),
        (2, "RESIZE_NEAREST_NEIGHBOR asks for the size [2, 2, 2]", "two numbers, 1 to 65535"),
    ),
    (
        move("zero", BILINEAR, [tensor((1, 4, 4, 2)), integers(0, 2)], [tensor((1, 1, 2, 2))]),
        (2, "RESIZE_BILINEAR asks for the size [0, 2]", "two numbers, 1 to 65535"),
    ),
    (
        resize("huge", NEAREST, (1, 65536, 1, 1), (2, 2)),
        (1, "RESIZE_NEAREST_NEIGHBOR of an image of 65536x1", "65535 is the limit"),
    ),
    (
        resize("both", BILINEAR, (1, 4, 4, 2), (2, 2), ALIGNED | HALF),
        (2, "RESIZE_BILINEAR has align_corners and half_pixel_centers", "only one of them can hold"),
    ),
    (
        resize("beyond", BILINEAR, (1, 7, 4, 1), (129, 8)),
        (
            1,
            "RESIZE_BILINEAR from 7 to 129 rows reads outside its input",
            "positions are kept to 10 bits, and the rounding of the factor adds up to more than a pixel",
        ),
    ),
    (
        move("computed", NEAREST, [tensor((1, 4, 4, 2)), TensorSpec("", "int32", (2,))], [tensor((1, 2, 2, 2))]),
        (
            1,
            "RESIZE_NEAREST_NEIGHBOR takes its size from a computed tensor",
            "sizes and layouts must be known at compile time",
        ),
    ),
]


@pytest.mark.parametrize(("case", "expected"), [pytest.param(*each, id=each[0].id) for each in REFUSALS])
def test_refusal(case: Case, expected: tuple[int, str, str]) -> None:
    assert message(case) == expected

"""SHAPE, ZEROS_LIKE, FILL and BROADCAST_ARGS, and chains of them that sizes of later operators follow from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from emitc.compiler import compile_model
from emitc.ir import Array
from emitc.verify.tolerances import TOLERANT
from emitc.verify.verification import verify
from emitc.writers.tflite import ModelSpec, OperatorSpec, TensorSpec, write_tflite
from tests.support.elementwise_cases import message
from tests.support.float_cases import check
from tests.support.single_op import Case, Proven, integers, plain, prove, quantized

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")


def scalar(value: float, dtype: str) -> TensorSpec:
    return TensorSpec("", dtype, (), np.array(value, dtype).tobytes())


def shape_of(name: str, x: TensorSpec, dtype: str = "int32") -> Case:
    return Case(name, "SHAPE", (x,), (plain((len(x.shape),), dtype),), {"out_type": dtype.upper()})


CASES = [
    shape_of("shape", quantized((2, 1, 5))),
    shape_of("shape_of_floats", plain((7,))),
    Case("zeros", "ZEROS_LIKE", (plain((3, 4)),), (plain((3, 4)),)),
    Case("zeros_int32", "ZEROS_LIKE", (plain((5,), "int32"),), (plain((5,), "int32"),)),
    Case("fill", "FILL", (integers(2, 3), scalar(-1.5, "float32")), (plain((2, 3)),)),
    Case("fill_computed", "FILL", (integers(2, 3), plain((), "int8")), (plain((2, 3), "int8"),)),
    Case("fill_computed_int32", "FILL", (integers(4, 1, 2), plain((), "int32")), (plain((4, 1, 2), "int32"),)),
    Case("fill_int32", "FILL", (integers(70), scalar(-9, "int32")), (plain((70,), "int32"),)),
    Case("broadcast_args", "BROADCAST_ARGS", (integers(2, 1, 4), integers(3, 1)), (plain((3,), "int32"),)),
    Case("broadcast_args_short", "BROADCAST_ARGS", (integers(6), integers(1, 1, 1)), (plain((3,), "int32"),)),
]
REVERSED = [
    Case("reverse", "REVERSE_V2", (quantized((2, 5)), integers(1)), (quantized((2, 5)),)),
    Case("reverse_first", "REVERSE_V2", (plain((4, 3)), integers(0)), (plain((4, 3)),)),
    Case("reverse_last", "REVERSE_V2", (plain((2, 3, 4), "int32"), integers(-1)), (plain((2, 3, 4), "int32"),)),
    Case("reverse_all", "REVERSE_V2", (plain((2, 3), "int16"), integers(0, 1)), (plain((2, 3), "int16"),)),
    Case("reverse_one", "REVERSE_V2", (quantized((1, 1)), integers(0)), (quantized((1, 1)),)),
]
BROADCAST = [
    Case("broadcast", "BROADCAST_TO", (plain((1, 3)), integers(4, 3)), (plain((4, 3)),)),
    Case("broadcast_front", "BROADCAST_TO", (quantized((3, 1)), integers(2, 3, 2)), (quantized((2, 3, 2)),)),
    Case("broadcast_same", "BROADCAST_TO", (plain((2, 2), "int32"), integers(2, 2)), (plain((2, 2), "int32"),)),
]


def mirrored(name: str, shape: tuple[int, ...], pads: list[tuple[int, int]], mode: int, *, real: bool = False) -> Case:
    y = tuple(a + n + b for n, (a, b) in zip(shape, pads, strict=True))
    table = TensorSpec("", "int32", (len(shape), 2), np.array(pads, np.int32).tobytes())
    made = (plain(shape), plain(y)) if real else (quantized(shape), quantized(y))
    return Case(name, "MIRROR_PAD", (made[0], table), (made[1],), {"mode": mode})


MIRRORED = [
    mirrored("reflect", (1, 4, 5), [(0, 0), (3, 1), (2, 4)], 0),
    mirrored("symmetric", (1, 4, 5), [(0, 1), (4, 1), (2, 5)], 1),
    mirrored("reflect_real", (3, 3), [(2, 0), (0, 2)], 0, real=True),
    mirrored("symmetric_real", (3,), [(3, 3)], 1, real=True),
    mirrored("nothing", (2, 2), [(0, 0), (0, 0)], 1),
]


def reduced(opcode: str, name: str, shape: tuple[int, ...], axes: tuple[int, ...], *, keep: bool, real: bool) -> Case:
    named = {axis % len(shape) for axis in axes}
    y = tuple(1 if i in named else n for i, n in enumerate(shape) if keep or i not in named)
    made = (plain(shape), plain(y)) if real else (quantized(shape, 0.05, -7), quantized(y, 0.05, -7))
    return Case(f"{opcode}_{name}", opcode, (made[0], integers(*axes)), (made[1],), {"keep_dims": keep})


REDUCED = [
    reduced(opcode, f"{name}{'_real' * real}", shape, axes, keep=keep, real=real)
    for opcode in ("REDUCE_MAX", "REDUCE_MIN")
    for real in (False, True)
    for name, shape, axes, keep in (
        ("last", (3, 7), (1,), False),
        ("image", (1, 4, 5, 3), (1, 2), True),
        ("first", (4, 3), (0,), False),
        ("negative", (2, 3, 4), (-2,), True),
        ("all", (2, 5), (0, 1), False),
    )
]


def of_integers(opcode: str, dtype: str) -> Case:
    """The middle dimension of numbers of any size."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max

    def draw(rng: np.random.Generator, sample: int) -> list[Array]:
        return [rng.integers(low, high, (2, 3, 4), dtype, endpoint=True)]

    made = (plain((2, 3, 4), dtype), integers(1)), (plain((2, 4), dtype),)
    return Case(f"{opcode}_{dtype}", opcode, *made, {"keep_dims": False}, draw=draw)


OF_LITERT = [
    *(of_integers(opcode, dtype) for opcode in ("REDUCE_MAX", "REDUCE_MIN") for dtype in ("int16", "int32", "int64")),
    *(of_integers("REDUCE_PROD", dtype) for dtype in ("int32", "int64")),
    *(
        Case(f"tile_{kind}", "TILE", (make((2, 3)), integers(2, 3)), (make((4, 9)),))
        for kind, make in (("int8", quantized), ("float32", plain))
    ),
    Case("tile_int32", "TILE", (plain((1, 2, 1), "int32"), integers(3, 1, 2)), (plain((3, 2, 2), "int32"),)),
    Case("tile_once", "TILE", (quantized((2, 3)), integers(1, 1)), (quantized((2, 3)),)),
    *(
        Case(
            f"{opcode}_scaled", opcode, (quantized((2, 3, 4), 0.01, 0, "int16"), integers(1, 2)),
            (quantized((2, 1, 1), 0.01, 0, "int16"),), {"keep_dims": True},
        )
        for opcode in ("REDUCE_MAX", "REDUCE_MIN")
    ),
    Case("fill_computed_int16", "FILL", (integers(2, 3), plain((), "int16")), (plain((2, 3), "int16"),)),
    Case("fill_int8", "FILL", (integers(2, 3), scalar(-7, "int8")), (plain((2, 3), "int8"),)),
    Case("fill_int16", "FILL", (integers(2, 3), scalar(-300, "int16")), (plain((2, 3), "int16"),)),
    Case("fill_int64", "FILL", (integers(2, 3), scalar(-(2**40), "int64")), (plain((2, 3), "int64"),)),
    Case("fill_bool", "FILL", (integers(2, 3), scalar(True, "bool")), (plain((2, 3), "bool"),)),
]  # fmt: skip


PRODUCTS = [
    reduced("REDUCE_PROD", "real", (2, 3, 4), (-1,), keep=False, real=True),
    reduced("REDUCE_PROD", "real_all", (2, 5), (0, 1), keep=True, real=True),
]


def test_types_that_litert_alone_runs() -> None:
    proven = prove([with_reals(case) for case in (*OF_LITERT, *PRODUCTS)], engine="litert")
    for case in OF_LITERT:
        proven.outcomes[case.id].check()
    for case in PRODUCTS:
        check(proven.outcomes[case.id], TOLERANT)
    assert proven.memory_errors == ()


def with_reals(case: Case) -> Case:
    """The case, whose input may be float32, which needs values of its own; infinities among them."""
    x = case.inputs[0]
    if x is None or x.dtype != "float32" or x.data is not None:
        return case

    def draw(rng: np.random.Generator, sample: int) -> list[Array]:
        values = rng.normal(0, 10, x.shape).astype(np.float32)
        return [np.where(rng.random(x.shape) < 0.05 * sample, np.float32(np.inf), values).astype(np.float32)]

    return replace(case, draw=draw)


ALL = [with_reals(case) for case in (*CASES, *REVERSED, *BROADCAST, *MIRRORED, *REDUCED)]


@pytest.fixture(scope="module")
def proven() -> Proven:
    return prove(ALL)


@pytest.mark.parametrize("name", [case.id for case in ALL])
def test_case(proven: Proven, name: str) -> None:
    proven.outcomes[name].check()


def test_memory(proven: Proven) -> None:
    assert proven.memory_errors == ()


def chain() -> ModelSpec:
    """x reshaped by sizes that are taken from its own shape: SHAPE, STRIDED_SLICE, MUL, PACK, RESHAPE."""
    ints = [np.array(v, np.int32).tobytes() for v in ([0], [1], [2])]
    tensors = (
        TensorSpec("x", "float32", (2, 3, 4)),
        TensorSpec("shape", "int32", (3,)),
        TensorSpec("c0", "int32", (1,), ints[0]),
        TensorSpec("c1", "int32", (1,), ints[1]),
        TensorSpec("c2", "int32", (1,), ints[2]),
        TensorSpec("first", "int32", ()),
        TensorSpec("second", "int32", ()),
        TensorSpec("product", "int32", ()),
        TensorSpec("rest", "int32", (), np.array(4, np.int32).tobytes()),
        TensorSpec("sizes", "int32", (2,)),
        TensorSpec("flat", "float32", (6, 4)),
        TensorSpec("y", "float32", (6, 4)),
    )
    operators = (
        OperatorSpec("SHAPE", (0,), (1,), {"out_type": "INT32"}),
        OperatorSpec("STRIDED_SLICE", (1, 2, 3, 3), (5,), {"shrink_axis_mask": 1}),
        OperatorSpec("STRIDED_SLICE", (1, 3, 4, 3), (6,), {"shrink_axis_mask": 1}),
        OperatorSpec("MUL", (5, 6), (7,), {"fused_activation_function": "NONE"}),
        OperatorSpec("PACK", (7, 8), (9,), {"values_count": 2, "axis": 0}),
        OperatorSpec("RESHAPE", (0, 9), (10,)),
        OperatorSpec("RELU", (10,), (11,)),
    )
    return ModelSpec(tensors, operators, (0,), (11,))


def test_sizes_that_are_computed_are_known_while_compiling(tmp_path: Path) -> None:
    path = tmp_path / "chain.tflite"
    path.write_bytes(write_tflite(chain()))
    compiled = compile_model(path)
    assert [step.op_type for step in compiled.program.steps] == ["RELU"]
    assert verify(compiled, reference="litert", layers=True).match


def test_without_folding_the_value_is_a_table(tmp_path: Path) -> None:
    path = tmp_path / "fill.tflite"
    tensors = (
        TensorSpec("x", "float32", (2, 3)),
        TensorSpec("dims", "int32", (2,), np.array([2, 3], np.int32).tobytes()),
        scalar(2.5, "float32"),
        TensorSpec("half", "float32", (2, 3)),
        TensorSpec("y", "float32", (2, 3)),
    )
    operators = (
        OperatorSpec("FILL", (1, 2), (3,)),
        OperatorSpec("ADD", (0, 3), (4,), {"fused_activation_function": "NONE"}),
    )
    path.write_bytes(write_tflite(ModelSpec(tensors, operators, (0,), (4,))))
    whole = compile_model(path, disabled=frozenset({"fold-constants"}))
    assert next(step.kernel_name for step in whole.program.steps) == "copy_run"
    assert verify(whole).match
    assert len(compile_model(path).program.steps) == 1


REFUSED = [
    (Case("a", "FILL", (integers(2, 0), scalar(1, "float32")), (plain((2, 0)),)), "FILL makes [2, 0] of 1 values"),
    (
        Case("b", "BROADCAST_ARGS", (integers(2, 3), integers(4)), (plain((2,), "int32"),)),
        "BROADCAST_ARGS of [2, 3] and [4]",
    ),
    (Case("c", "BROADCAST_TO", (plain((2, 3)), integers(2, 1)), (plain((2, 1)),)), "BROADCAST_TO of [2, 3] to [2, 1]"),
    (Case("d", "REVERSE_V2", (plain((2, 3)), integers(2)), (plain((2, 3)),)), "REVERSE_V2 has the axes [2]"),
    (mirrored("e", (2, 3), [(0, 0), (3, 0)], 0), "MIRROR_PAD has the paddings [0, 0, 3, 0]"),
    (
        Case("f", "REDUCE_MAX", (plain((2, 3), "uint8"), integers(1)), (plain((2,), "uint8"),), {"keep_dims": False}),
        "REDUCE_MAX with element types (uint8, uint8) is not supported",
    ),
    (Case("h", "TILE", (plain((2, 3)), integers(2)), (plain((2, 6)),)), "TILE has the multiples [2]"),
    (
        Case("i", "REDUCE_PROD", (quantized((2, 3)), integers(1)), (quantized((2,)),), {"keep_dims": False}),
        "REDUCE_PROD with element types (int8, int8) is not supported",
    ),
    (
        Case("g", "FILL", (plain((2,), "int32"), scalar(1, "float32")), (plain((2, 2)),)),
        "FILL takes its shape from a computed tensor",
    ),
]


@pytest.mark.parametrize(("case", "what"), REFUSED, ids=[case.id for case, _ in REFUSED])
def test_refusals(case: Case, what: str) -> None:
    assert what in message(case)

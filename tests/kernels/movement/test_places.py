"""What is read or written at computed places: GATHER with batch_dims, EMBEDDING_LOOKUP and DYNAMIC_UPDATE_SLICE."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from emitc.ir import DType
from emitc.writers.tflite import TensorSpec
from tests.support.elementwise_cases import message
from tests.support.float_cases import constant
from tests.support.single_op import Array, Case, Proven, plain, prove, quantized

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")


def values(rng: np.random.Generator, tensor: TensorSpec) -> Array:
    if tensor.dtype == "float32":
        return rng.normal(0, 3, tensor.shape).astype(np.float32)
    return rng.integers(*DType(tensor.dtype).range, tensor.shape, endpoint=True).astype(tensor.dtype)


def tensor(shape: tuple[int, ...], dtype: str) -> TensorSpec:
    return quantized(shape, 0.1, 3) if dtype == "int8" else plain(shape, dtype)


def gather(
    name: str,
    x: tuple[int, ...],
    chosen: tuple[int, ...],
    axis: int,
    batch: int,
    dtype: str = "int8",
    *,
    known: bool = False,
) -> Case:
    """known: the indices are a constant."""
    place, shared = axis % len(x), batch % len(chosen) if batch < 0 else batch
    y = (*x[:place], *chosen[shared:], *x[place + 1 :])
    fixed = (np.arange(int(np.prod(chosen))) * 7 % x[place]).reshape(chosen)
    index = constant(fixed, "int32") if known else plain(chosen, "int32")
    data = tensor(x, dtype)

    def draw(rng: np.random.Generator, sample: int) -> list[Array]:
        given = [values(rng, data)]
        return given if known else [*given, rng.integers(0, x[place], chosen).astype(np.int32)]

    options = {"axis": axis, "batch_dims": batch}
    return Case(name, "GATHER", (data, index), (tensor(y, dtype),), options, draw=draw)


def lookup(
    name: str, count: int, table: tuple[int, ...], dtype: str = "int8", output: str = "", *, known: bool = True
) -> Case:
    """known: the table is a constant."""
    rng = np.random.default_rng(len(name))
    output = output or dtype
    rows = tensor(table, dtype) if output == dtype else quantized(table, 0.013, 0)
    fixed = replace(rows, data=values(rng, rows).tobytes())

    def draw(rng: np.random.Generator, sample: int) -> list[Array]:
        index = rng.integers(0, table[0], (count,)).astype(np.int32)
        return [index] if known else [index, values(rng, rows)]

    made = (plain((count,), "int32"), fixed if known else rows)
    return Case(name, "EMBEDDING_LOOKUP", made, (tensor((count, *table[1:]), output),), draw=draw)


def update(
    name: str,
    x: tuple[int, ...],
    part: tuple[int, ...],
    dtype: str = "int8",
    index: str = "int32",
    start: tuple[int, ...] | None = None,
) -> Case:
    """start: a constant one; computed ones leave the tensor on both sides."""
    data, piece = tensor(x, dtype), tensor(part, dtype)
    at = plain((len(x),), index) if start is None else constant(np.array(start), index)

    def draw(rng: np.random.Generator, sample: int) -> list[Array]:
        given = [values(rng, data), values(rng, piece)]
        place = rng.integers(-3, np.array(x) + 3) if sample else np.full(len(x), np.iinfo(index).max)
        return given if start is not None else [*given, place.astype(index)]

    return Case(name, "DYNAMIC_UPDATE_SLICE", (data, piece, at), (data,), draw=draw)


CASES = [
    gather("gather", (3, 5), (3, 2), 1, 1),
    gather("gather_floats", (3, 5, 2), (3, 4), 1, 1, "float32"),
    gather("gather_behind", (2, 3, 5, 2), (2, 4), 2, 1),
    gather("gather_two", (2, 3, 6, 2), (2, 3, 4), 2, 2, "float32"),
    gather("gather_one_each", (4, 7), (4,), 1, 1),
    gather("gather_negative", (2, 3, 5), (2, 3, 4), -1, -1),
    gather("gather_known", (3, 5, 2), (3, 4), 1, 1, known=True),
    gather("gather_all_shared", (2, 3, 5), (2, 3), 2, 2, known=True),
    lookup("lookup", 4, (10, 6)),
    lookup("lookup_floats", 3, (5, 2, 3), "float32"),
    lookup("lookup_computed", 5, (4, 3), known=False),
    lookup("lookup_one", 1, (1, 1), "float32", known=False),
    lookup("lookup_real", 7, (9, 5), "int8", "float32"),
    lookup("lookup_real_computed", 2, (3, 4, 2), "int8", "float32", known=False),
    update("update", (4, 6), (2, 3)),
    update("update_row", (1, 16, 8), (1, 1, 8)),
    update("update_middle", (2, 5, 3, 4), (1, 2, 3, 4), "float32"),
    update("update_every", (3, 4, 5, 6), (2, 3, 4, 5), "int16", "int64"),
    update("update_deep", (3, 2, 4, 3, 2), (2, 1, 3, 2, 1), "int32", "int64"),
    update("update_whole", (3, 4), (3, 4), "float32"),
    update("update_one", (9,), (1,), "int32"),
    update("update_known", (5, 5), (2, 2), start=(3, -1)),
]  # fmt: skip


@pytest.fixture(scope="module")
def proven() -> Proven:
    return prove(CASES, samples=6)


@pytest.mark.parametrize("name", [case.id for case in CASES])
def test_case(proven: Proven, name: str) -> None:
    proven.outcomes[name].check()


def test_memory(proven: Proven) -> None:
    assert proven.memory_errors == ()


def test_a_row_outside_of_the_table_is_limited() -> None:
    case = replace(
        lookup("outside", 4, (3, 2), "int8", "float32"), draw=lambda rng, sample: [np.array([0, 3, -1, -9], np.int32)]
    )
    outcome = prove([case], engine=None, samples=1).outcomes["outside"]
    outcome.check()
    rows = outcome.compiled[0][0]
    assert rows[1].tolist() == rows[2].tolist() and rows[3].tolist() == rows[0].tolist()


Q = quantized((2, 3), 0.1, 3)
REFUSED = [
    (gather("a", (2, 3, 4), (3, 2), 1, 1), 2, "GATHER has batch_dims 1"),
    (gather("b", (2, 3, 4), (2, 3), 0, 1), 2, "GATHER has batch_dims 1"),
    (replace(lookup("c", 4, (10, 6)), inputs=(plain((4,), "int64"), Q)), 2,
     "EMBEDDING_LOOKUP with element types (int64, int8, int8) is not supported"),
    (lookup("d", 4, (10,)), 2, "EMBEDDING_LOOKUP has a table or indices of another rank"),
    (replace(lookup("e", 2, (2, 3), "int8", "float32"), inputs=(plain((2,), "int32"), Q)), 2,
     "EMBEDDING_LOOKUP has a table with a zero point"),
    (update("g", (2, 3), (3, 3)), 2, "DYNAMIC_UPDATE_SLICE has an update that does not fit"),
    (update("h", (2, 3), (3,)), 2, "DYNAMIC_UPDATE_SLICE has an update that does not fit"),
    (replace(update("i", (2, 3), (1, 3)), inputs=(Q, quantized((1, 3), 0.1, 3), plain((2,)))), 2,
     "DYNAMIC_UPDATE_SLICE has a start of type float32"),
    (update("j", (3,) * 6, (2,) * 6), 1, "DYNAMIC_UPDATE_SLICE needs 5 nested loops"),
]  # fmt: skip


@pytest.mark.parametrize(("wrong", "code", "what"), REFUSED, ids=[case.id for case, *_ in REFUSED])
def test_refusals(wrong: Case, code: int, what: str) -> None:
    assert message(wrong)[:2] == (code, what)

"""Sparse constants: DENSIFY gives what LiteRT gives, and hostile descriptions are refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emitc.compiler import compile_model
from emitc.errors import EmitcError
from emitc.frontends.tflite import reader
from emitc.report.inspection import inspect_model
from emitc.verify.verification import verify
from emitc.writers.tflite import ModelSpec, OperatorSpec, SparsitySpec, TensorSpec, sparse, write_tflite


def weights(dtype: str, shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """Numbers three of four of which are zero, with a row of zeros."""
    rng = np.random.default_rng(5)
    values = rng.integers(-127, 128, shape) * (rng.random(shape) < 0.25)
    values[1] = 0
    return values.astype(dtype)


def product(dtype: str, stored: TensorSpec, shape: tuple[int, ...]) -> ModelSpec:
    """A fully connected layer whose weights a DENSIFY makes; of float16 they are widened as well."""
    values, half = ("float32", True) if dtype == "float16" else (dtype, False)
    scale: dict[str, Any] = {"scales": (0.02,), "zero_points": (0,)} if values == "int8" else {}
    tensors = [
        TensorSpec("x", values, (1, shape[1]), None, **scale),
        stored,
        TensorSpec("dense", dtype, shape, None, **scale),
        TensorSpec("w", values, shape, None, **scale),
        TensorSpec("y", values, (1, shape[0]), None, **scale),
    ]
    operators = [OperatorSpec("DENSIFY", (1,), (2,))]
    operators += [OperatorSpec("DEQUANTIZE", (2,), (3,))] if half else []
    operators += [OperatorSpec("FULLY_CONNECTED", (0, 3 if half else 2, -1), (4,), {"keep_num_dims": False})]
    return ModelSpec(tuple(tensors), tuple(operators), (0,), (4,))


def stored(dtype: str, array: np.ndarray[Any, Any], **layout: Any) -> TensorSpec:
    """The tensor of an array that is sparse by the layout."""
    sparsity, data = sparse(array, **layout)
    scale: dict[str, Any] = {"scales": (0.02,), "zero_points": (0,)} if dtype == "int8" else {}
    return TensorSpec("sparse", dtype, array.shape, data, sparsity=sparsity, **scale)


def saved(spec: ModelSpec, folder: Path) -> Path:
    """The file of a model."""
    path = folder / "m.tflite"
    path.write_bytes(write_tflite(spec))
    return path


LAYOUTS: dict[str, dict[str, Any]] = {
    "rows": {"order": (0, 1), "sparse_levels": (1,)},
    "both": {"order": (0, 1), "sparse_levels": (0, 1), "index_bits": 16},
    "columns": {"order": (1, 0), "sparse_levels": (1,), "index_bits": 8},
    "blocks": {"order": (0, 1, 2), "sparse_levels": (1,), "blocks": ((1, 4),)},
    "tiles": {"order": (0, 1, 2, 3), "sparse_levels": (0, 1), "blocks": ((0, 2), (1, 4)), "index_bits": 8},
}


@pytest.mark.parametrize("dtype", ["int8", "float32", "float16"])
@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_densify_gives_the_weights(layout: str, dtype: str, tmp_path: Path) -> None:
    array = weights(dtype, (6, 16))
    kept = stored(dtype, array, **LAYOUTS[layout])
    assert kept.data is not None and len(kept.data) < array.nbytes
    made = compile_model(saved(product(dtype, kept, array.shape), tmp_path))
    constants = [tensor.array() for tensor in made.graph.tensors if tensor.is_constant and tensor.shape == array.shape]
    assert [np.array_equal(constant, array) for constant in constants] == [True]
    assert [step.op_type for step in made.program.steps] == ["FULLY_CONNECTED"]


@pytest.mark.parametrize(
    ("layout", "dtype"), [("rows", "int8"), ("both", "float32"), ("tiles", "int8"), ("rows", "float16")]
)
def test_litert_gives_the_same(layout: str, dtype: str, tmp_path: Path) -> None:
    pytest.importorskip("ai_edge_litert", reason="the extra emitc[verify] is not installed")
    array = weights(dtype, (6, 16))
    kept = stored(dtype, array, **LAYOUTS[layout])
    proof = verify(compile_model(saved(product(dtype, kept, array.shape), tmp_path)), samples=3, reference="litert")
    assert proof.match and proof.differing == 0


def test_inspect_lists_the_operator_as_done(tmp_path: Path) -> None:
    array = weights("int8", (6, 16))
    path = saved(product("int8", stored("int8", array, **LAYOUTS["rows"]), array.shape), tmp_path)
    rows = inspect_model(path, {})["operators"]
    assert [(row["op"], row["supported"]) for row in rows] == [("DENSIFY", True), ("FULLY_CONNECTED", True)]


ROWS = ((0, 1, 1, 2), (0, 2))
"""Of three rows, segments and columns."""


@pytest.mark.parametrize(
    ("order", "blocks", "levels", "why"),
    [
        ((0, 1), (), (3, ((0, 2, 1, 2), (0, 2))), "4 segments for 3 nodes, or out of order"),
        ((0, 1), (), (3, ((1, 1, 1, 2), (0, 2))), "4 segments for 3 nodes, or out of order"),
        ((0, 1), (), (3, ((0, 1, 2), (0, 2))), "3 segments for 3 nodes, or out of order"),
        ((0, 1), (), (3, ((0, 1, 1, 3), (0, 2))), "the segments end at 3 of 2 indices"),
        ((0, 1), (), (3, ((0, 1, 1, 2), (0, 4))), "dimension 1 leaves its 4 coordinates"),
        ((0, 1), (), (3, ((0, 1, 1, 2), (0, -1))), "dimension 1 leaves its 4 coordinates"),
        ((0, 1), (), (2, ROWS), "dimension 0 leaves its 3 coordinates"),
        ((0, 1), (), (3, ((0, 0, 0, 1), (0,))), "2 values for 1 elements"),
        ((0, 1), (), (3, ((0, 6, 12, 18), (0, 1, 2, 3, 0, 1) * 3)), "more than 12 elements are listed"),
        ((0, 1, 2), (1,), (3, ROWS, 3), "blocks of 3 do not divide dimension 1"),
        ((0, 1, 2), (7,), (3, ROWS, 2), "blocks of 2 do not divide dimension 7"),
        ((0, 1, 2), (1,), (3, ROWS, ROWS), "blocks of -1 do not divide dimension 1"),
        ((0, 0), (), (3, ROWS), "its order is [0, 0]"),
        ((0, 1), (), (3,), "it has 2 dimensions"),
    ],
)
def test_a_description_that_fits_nothing_is_refused(
    order: tuple[int, ...], blocks: tuple[int, ...], levels: Sequence[Any], why: str, tmp_path: Path
) -> None:
    kept = TensorSpec("s", "float32", (3, 4), bytes(8), sparsity=SparsitySpec(order, blocks, tuple(levels)))
    with pytest.raises(EmitcError, match="a sparse tensor is described wrongly") as caught:
        compile_model(saved(product("float32", kept, (3, 4)), tmp_path))
    assert (caught.value.why, caught.value.exit_code) == (why, 2)


def test_a_small_file_does_not_describe_large_constants(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    array = weights("int8", (6, 16))
    path = saved(product("int8", stored("int8", array, **LAYOUTS["rows"]), array.shape), tmp_path)
    monkeypatch.setattr(reader, "MAX_DENSE_BYTES", 96)
    compile_model(path)
    monkeypatch.setattr(reader, "MAX_DENSE_BYTES", 95)
    with pytest.raises(EmitcError, match="sparse constants are too large"):
        compile_model(path)


@pytest.mark.parametrize("change", [{"shape": (16, 6)}, {"dtype": "float32"}])
def test_densify_changes_neither_type_nor_shape(change: dict[str, Any], tmp_path: Path) -> None:
    array = weights("int8", (6, 16))
    spec = product("int8", stored("int8", array, **LAYOUTS["rows"]), array.shape)
    tensors = list(spec.tensors)
    tensors[2] = replace(tensors[2], **change)
    with pytest.raises(EmitcError, match="DENSIFY changes type or shape"):
        compile_model(saved(replace(spec, tensors=tuple(tensors)), tmp_path))


def test_every_cut_of_the_file_is_refused(tmp_path: Path) -> None:
    array = weights("int8", (6, 16))
    path = saved(product("int8", stored("int8", array, **LAYOUTS["tiles"]), array.shape), tmp_path)
    data, cut = path.read_bytes(), tmp_path / "cut.tflite"
    for end in range(8, len(data) - 16, 7):
        cut.write_bytes(data[:end])
        with pytest.raises(EmitcError):
            compile_model(cut)

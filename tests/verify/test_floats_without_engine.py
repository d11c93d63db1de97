"""Floats of a TFLite model whose numpy references round otherwise: operators decide where the model magnifies a rounding."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from emitc.compiler import compile_model
from emitc.kernels.reduction import reduce
from emitc.verify.verification import verify
from emitc.writers.tflite import ModelSpec, OperatorSpec, TensorSpec, write_tflite


def remainder_of_a_product(folder: Path) -> tuple[Path, Path]:
    """A model of REDUCE_PROD and FLOOR_MOD, and inputs whose products are large."""
    axis, divisor = np.array([1], np.int32), np.full((1, 6), 1.7, np.float32)
    tensors = (
        TensorSpec("x", "float32", (6, 9)),
        TensorSpec("axis", "int32", (1,), axis.tobytes()),
        TensorSpec("product", "float32", (6,)),
        TensorSpec("divisor", "float32", (1, 6), divisor.tobytes()),
        TensorSpec("y", "float32", (1, 6)),
    )
    operators = (
        OperatorSpec("REDUCE_PROD", (0, 1), (2,), {"keep_dims": False}),
        OperatorSpec("FLOOR_MOD", (2, 3), (4,)),
    )
    path, vectors = folder / "m.tflite", folder / "vectors.npz"
    path.write_bytes(write_tflite(ModelSpec(tensors, operators, (0,), (4,))))
    np.savez(vectors, allow_pickle=False, in0_0=np.random.default_rng(1).uniform(2, 5, (6, 9)).astype(np.float32))
    return path, vectors


def test_a_rounding_that_a_remainder_magnifies_is_judged_by_operator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, vectors = remainder_of_a_product(tmp_path)
    made = compile_model(path)
    proof = verify(made, reference="numpy", vectors=vectors, samples=0)
    assert (proof.match, proof.rule) == (True, "groups")
    assert proof.differing > 0

    kind = reduce._KINDS[reduce.ReduceProd]
    monkeypatch.setitem(reduce._KINDS, reduce.ReduceProd, replace(kind, rule=lambda x, axes: 1.001 * x.prod(axis=axes)))
    assert not verify(made, reference="numpy", vectors=vectors, samples=0).match


def test_a_difference_that_cancels_is_judged_by_operator(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """LiteRT and the C agree. The numpy reference rounds the product once, and the subtraction leaves the roundings alone."""
    pytest.importorskip("ai_edge_litert", reason="the extra emitc[verify] is not installed")
    values = np.random.default_rng(1).uniform(2, 5, (6, 9)).astype(np.float32)
    near = values.astype(np.float64).prod(axis=1).astype(np.float32)
    tensors = (
        TensorSpec("x", "float32", (6, 9)),
        TensorSpec("axis", "int32", (1,), np.array([1], np.int32).tobytes()),
        TensorSpec("product", "float32", (6,)),
        TensorSpec("near", "float32", (6,), near.tobytes()),
        TensorSpec("y", "float32", (6,)),
    )
    operators = (
        OperatorSpec("REDUCE_PROD", (0, 1), (2,), {"keep_dims": False}),
        OperatorSpec("SUB", (2, 3), (4,)),
    )
    path, vectors = tmp_path / "m.tflite", tmp_path / "vectors.npz"
    path.write_bytes(write_tflite(ModelSpec(tensors, operators, (0,), (4,))))
    np.savez(vectors, allow_pickle=False, in0_0=values)
    made = compile_model(path)
    proof = verify(made, vectors=vectors, samples=0)
    assert (proof.match, proof.rule, proof.differing) == (True, "groups", 0)
    assert "the numpy references round floats otherwise than the C" in proof.rounding

    kind = reduce._KINDS[reduce.ReduceProd]
    monkeypatch.setitem(reduce._KINDS, reduce.ReduceProd, replace(kind, rule=lambda x, axes: 1.001 * x.prod(axis=axes)))
    assert not verify(made, vectors=vectors, samples=0).match

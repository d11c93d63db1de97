"""Reductions of floats meet their values in the order of the model, wherever a Transpose around them is moved to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from emitc.compiler import compile_model
from emitc.verify.verification import verify
from emitc.writers.tflite import ModelSpec, OperatorSpec, TensorSpec, write_tflite

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")


@pytest.mark.parametrize(("axes", "gone"), [((0, 2, 1, 3), 0), ((0, 3, 1, 2), 2)], ids=["order changes", "order stays"])
@pytest.mark.parametrize("op_type", ["REDUCE_MAX", "REDUCE_MIN", "SUM"])
def test_floats_are_reduced_in_the_order_of_the_model(
    op_type: str, axes: tuple[int, ...], gone: int, tmp_path: Path
) -> None:
    """Which of 0 and -0 is the extremum depends on the order, and so does the rounding of a sum."""
    shape = (1, 4, 5, 3)
    turned = tuple(shape[axis] for axis in axes)
    tensors = (
        TensorSpec("x", "float32", shape),
        TensorSpec("axes", "int32", (4,), np.array(axes, np.int32).tobytes()),
        TensorSpec("turned", "float32", turned),
        TensorSpec(
            "reduced", "int32", (2,), np.array([i for i, axis in enumerate(axes) if axis in (1, 2)], np.int32).tobytes()
        ),
        TensorSpec("y", "float32", tuple(1 if axis in (1, 2) else shape[axis] for axis in axes)),
        TensorSpec("back", "int32", (4,), np.argsort(axes).astype(np.int32).tobytes()),
        TensorSpec("z", "float32", (1, 1, 1, 3)),
    )
    operators = (
        OperatorSpec("TRANSPOSE", (0, 1), (2,), {}),
        OperatorSpec(op_type, (2, 3), (4,), {"keep_dims": True}),
        OperatorSpec("TRANSPOSE", (4, 5), (6,), {}),
    )
    path = tmp_path / "m.tflite"
    path.write_bytes(write_tflite(ModelSpec(tensors, operators, (0,), (6,))))
    made = compile_model(path)
    kept = sum(node.op_type.lower() == "transpose" for node in made.partition.graph.nodes)
    assert kept == (0 if gone else 1), "the one after the reduction only moves dimensions of size 1"
    rng = np.random.default_rng(5)
    zeros = np.where(rng.random((20, *shape)) < 0.5, np.float32(-0.0), np.float32(0.0))
    np.savez(tmp_path / "zeros.npz", **{f"in0_{i}": case for i, case in enumerate(zeros)})
    proof = verify(made, reference="tflm", vectors=tmp_path / "zeros.npz", samples=3)
    assert proof.match and proof.differing == 0

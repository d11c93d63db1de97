"""An engine's fault is only one where exact arithmetic shows it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx_net import OnnxNet

from bench.random_graphs.onnx import engine_faults
from bench.random_graphs.onnx.engine_faults import limited_reduction
from emitc.compiler import compile_model

pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")

BEYOND = [
    ("ReduceProd", "int32", [65536, 65535]),
    ("ReduceProd", "int64", [2**53 + 1, 1]),
    ("ReduceSum", "int32", [2**31 - 1, 5]),
    ("ReduceSumSquare", "int64", [2**40, 2**40]),
]


@pytest.mark.parametrize(("kind", "dtype", "values"), BEYOND, ids=[f"{kind}-{dtype}" for kind, dtype, _ in BEYOND])
def test_integer_reductions_in_float64(
    kind: str, dtype: str, values: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = OnnxNet(opset=18)
    net.output(net.op(kind, net.input((1, 2), dtype), net.ints(1)), dtype, (1, 1))
    path = tmp_path / "m.onnx"
    path.write_bytes(net.serialized())
    made = compile_model(path)
    assert f"{kind} of {dtype}" in limited_reduction(made, [(np.array([values], dtype),)], 0)
    assert limited_reduction(made, [(np.array([[3, 4]], dtype),)], 0) == ""
    # An engine that computes something else is not explained by it.
    monkeypatch.setitem(engine_faults._EXACT, kind, lambda row: sum(row) + 7)  # type: ignore[arg-type]
    assert limited_reduction(made, [(np.array([values], dtype),)], 0) == ""

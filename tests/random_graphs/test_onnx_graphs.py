"""Random ONNX graphs are what they say: ONNX Runtime takes them, and every operator that has code is among them."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from bench.random_graphs import Case, generate
from bench.random_graphs.onnx import draw
from emitc.host.golden import EngineRefused, OnnxRuntimeEngine
from emitc.ir import Array
from emitc.kernels import onnx_registry

ABSENT = {"Swish", "Upsample"}
"""Operators of the last and of an old opset, which are drawn too seldom to be expected in a sample."""


def given(case: Case) -> list[Array]:
    """Numbers for every input, within its bounds."""
    rng = np.random.default_rng(case.index)
    found: list[Array] = []
    for name in case.description.inputs:
        value = case.description.value(name)
        if value.dtype == "bool":
            found.append(rng.integers(0, 2, value.shape).astype(bool))
        elif np.dtype(value.dtype).kind == "f":
            found.append(rng.uniform(-4, 4, value.shape).astype(value.dtype))
        else:
            low, high = value.bounds or (np.iinfo(value.dtype).min, np.iinfo(value.dtype).max)
            found.append(rng.integers(int(low), int(high), value.shape, value.dtype, endpoint=True))
    return found


def test_the_engine_takes_them_and_gives_the_described_shapes() -> None:
    pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")
    refused = []
    for index in range(150):
        case = generate("onnx", 5, index)
        try:
            outputs = OnnxRuntimeEngine(case.model).run(given(case))
        except EngineRefused as error:
            refused.append(error.why)
            continue
        described = [case.description.value(name) for name in case.description.outputs]
        assert [(o.dtype.name, o.shape) for o in outputs] == [(v.dtype, v.shape) for v in described], case.name
    assert len(refused) <= 1, refused


def test_every_operator_that_has_code_is_drawn() -> None:
    pytest.importorskip("onnx", reason="the extra emitc[onnx] is not installed")
    found: Counter[str] = Counter()
    for index in range(1500):
        found.update(node.op.split(".")[-1] for _, node in draw(np.random.default_rng([6, index])).every_node())
    made_by_the_frontend = {name for name in onnx_registry() if name not in _standard()}
    assert set(onnx_registry()) - made_by_the_frontend - ABSENT <= set(found)
    assert {"QGemm", "QLinearConv", "QLinearConcat", "QLinearSoftmax", "DynamicQuantizeLSTM"} <= set(found)


def _standard() -> set[str]:
    import onnx.defs

    return {schema.name for schema in onnx.defs.get_all_schemas_with_history()} | {"DynamicQuantizeLSTM"}


def test_equal_arguments_give_equal_bytes() -> None:
    assert generate("onnx", 3, 5).model == generate("onnx", 3, 5).model
    assert generate("onnx", 3, 5).model != generate("onnx", 3, 6).model

"""Random ONNX graphs are what they say: ONNX Runtime takes them, and every operator that has code is among them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np
import pytest

from bench.random_graphs import Case, Description, Node, generate
from bench.random_graphs.onnx import draw
from bench.random_graphs.onnx.draw import OPSETS
from emitc.ir import Array
from emitc.kernels import onnx_registry
from emitc.verify.engines.run import EngineRefused, OnnxRuntimeEngine

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


FORMS = {
    *(f"LSTM.{name}" for name in ("activations", "activation_alpha", "activation_beta", "direction", "layout", "input_forget")),
    *(f"{kind} input {position}" for kind in ("LSTM", "GRU") for position in (3, 4, 5)), "LSTM input 6", "LSTM input 7",
    *(f"{kind} by computed weights" for kind in ("Conv", "Gemm", "MatMul")), "GRU.linear_before_reset", "GRU.activations",
    "Mod.fmod of integers", "a function", "int4", "uint4", "more than 10000 elements",
    *(f"opset {version}" for version in set(OPSETS)),
}  # fmt: skip
"""What a graph may have, as `forms` names it."""


def forms(described: Description) -> Iterator[str]:
    """Attributes, optional operands and kinds of operands of a graph, those of graphs inside included."""
    yield f"opset {described.opset}"
    if any(value.elements > 10_000 and not value.constant for value in described.values):
        yield "more than 10000 elements"
    for owner, node in described.every_node():
        values = {value.name: value for value in owner.values}
        yield from (f"{node.op}.{name}" for name in node.attributes)
        yield from (f"{node.op} input {i}" for i, name in enumerate(node.inputs) if name)
        yield from (values[name].dtype for name in node.inputs if name in values)
        if node.op.startswith("local."):
            yield "a function"
        if node.op == "Mod" and "fmod" in node.attributes and values[node.outputs[0]].dtype != "float32":
            yield "Mod.fmod of integers"
        writers = {output: each for each in owner.nodes for output in each.outputs}
        if node.op in ("Conv", "Gemm", "MatMul") and _is_computed(owner, writers, node.inputs[1]):
            yield f"{node.op} by computed weights"


def _is_computed(owner: Description, writers: Mapping[str, Node], name: str) -> bool:
    """Whether a value of this graph depends on one of its inputs."""
    if name in owner.inputs or name not in writers:
        return name in owner.inputs
    return any(_is_computed(owner, writers, each) for each in writers[name].inputs if each)


def test_every_form_is_drawn() -> None:
    pytest.importorskip("onnx", reason="the extra emitc[onnx] is not installed")
    missing = set(FORMS)
    for index in range(3000):
        missing -= set(forms(draw(np.random.default_rng([8, index]))))
        if not missing:
            break
    assert not missing


def _standard() -> set[str]:
    import onnx.defs

    return {schema.name for schema in onnx.defs.get_all_schemas_with_history()} | {"DynamicQuantizeLSTM"}


def test_equal_arguments_give_equal_bytes() -> None:
    assert generate("onnx", 3, 5).model == generate("onnx", 3, 5).model
    assert generate("onnx", 3, 5).model != generate("onnx", 3, 6).model

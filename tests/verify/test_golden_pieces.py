"""A TFLite model run operator by operator, where TFLite Micro cannot run it and LiteRT computes an operator otherwise."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from bench.random_graphs.engines import EngineProcess, preload
from bench.random_graphs.inputs import draw_inputs
from bench.random_graphs.tflite import write
from bench.random_graphs.tflite.graph_builder import OFFERS, GraphBuilder, Unfit
from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.verify.engines.run import CRASHED, EngineRefused, engines_in, run_isolated
from emitc.verify.verification import verify
from emitc.writers.tflite import ModelSpec, OperatorSpec, TensorSpec, write_tflite

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")
pytest.importorskip("ai_edge_litert", reason="the extra emitc[verify] is not installed")


@pytest.fixture(scope="module", autouse=True)
def engines() -> Iterator[None]:
    """One process for all requests."""
    preload("tflite")
    process = EngineProcess()
    with engines_in(process):
        yield
    process.close()


FINE, COARSE = ((0.05,), (3,)), ((0.2,), (-10,))


def relu6_and_gelu(path: Path) -> Compiled:
    """RELU6 to another scale, which LiteRT follows and TFLite Micro ignores, and GELU, which TFLite Micro lacks."""
    tensors = (
        TensorSpec("x", "int8", (2, 5), None, *FINE),
        TensorSpec("clamped", "int8", (2, 5), None, *COARSE),
        TensorSpec("y", "int8", (2, 5), None, *COARSE),
    )
    nodes = (OperatorSpec("RELU6", (0,), (1,)), OperatorSpec("GELU", (1,), (2,), {"approximate": False}))
    path.write_bytes(write_tflite(ModelSpec(tensors, nodes, (0,), (1, 2))))
    return compile_model(path)


def test_tflite_micro_decides_about_an_operator_that_it_has(tmp_path: Path) -> None:
    compiled = relu6_and_gelu(tmp_path / "m.tflite")
    with pytest.raises(EngineRefused, match="GELU"):
        run_isolated(compiled.model_bytes, [], engine="tflm")
    assert verify(compiled, samples=4, reference="litert").differing > 0
    proof = verify(compiled, samples=4)
    assert (proof.match, proof.reference, proof.differing) == (True, "mixed", 0)
    assert [each.split(":")[0] for each in proof.disputes] == ['op 0 RELU6 "clamped"']
    assert proof.to_json()["disputes"] == list(proof.disputes)


def test_a_wrong_number_is_found(tmp_path: Path) -> None:
    compiled = relu6_and_gelu(tmp_path / "m.tflite")
    name = f"{compiled.program.name}.c"
    text = compiled.files[name].decode("ascii")
    tables = re.findall(r"static const int8_t (\w+_table)\[256\]", text)
    assert len(tables) == 2
    for table in tables[1:]:
        wrong = re.sub(
            rf"(const int8_t {table}\[256\] = \{{)([^}}]*)", lambda m: m[1] + re.sub(r"\d+", "77", m[2]), text
        )
        broken = replace(compiled, files=compiled.files | {name: wrong.encode("ascii")})
        proof = verify(broken, samples=4, layers=True)
        assert not proof.match
        assert proof.differing > 0


@pytest.mark.parametrize(
    "op", ["READ_VARIABLE", "ASSIGN_VARIABLE", "IF", "WHILE", "SVDF", "UNIDIRECTIONAL_SEQUENCE_LSTM"]
)
def test_the_operators_give_together_what_the_whole_model_gives(op: str) -> None:
    """Random graphs with state, branches and loops, as sequences with a reset."""
    compared = 0
    for number in range(60):
        if compared == 2:
            break
        d = GraphBuilder(np.random.default_rng(number), "int8")
        x = d.model_input("int8", (1, 4, 3, 2))
        try:
            OFFERS["MEAN"].make(d, OFFERS[op].make(d, OFFERS["CONV_2D"].make(d, x)[0])[0])
        except Unfit:
            continue
        graph = d.description([n for node in d.nodes for n in node.outputs if d.values[n].dtype != "resource"])
        model = write(graph)
        inputs = draw_inputs(graph, np.random.default_rng(number), 3)
        try:
            whole = run_isolated(model, [*inputs, inputs[0]], engine="tflm", resets=[3])
        except EngineRefused:
            continue
        parts = run_isolated(model, [*inputs, inputs[0]], engine="mixed", resets=[3])
        compared += 1
        for a, b in zip(whole.outputs, parts.outputs, strict=True):
            assert [x.tobytes() for x in a] == [y.tobytes() for y in b], number
    assert compared == 2


def test_what_neither_engine_runs_by_itself_is_named() -> None:
    tensors = (TensorSpec("x", "int16", (2,), None, (0.5,), (0,)), TensorSpec("y", "int16", (2,), None, (0.5,), (0,)))
    model = write_tflite(ModelSpec(tensors, (OperatorSpec("ELU", (0,), (1,)),), (0,), (1,)))
    with pytest.raises(EngineRefused, match=r'op 0 ELU "y": tflm: .*; litert: '):
        run_isolated(model, [(np.zeros(2, np.int16),)], engine="mixed")


def test_litert_runs_a_filter_without_bias_that_ends_the_process_of_tflite_micro(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).normal(size=20).astype(np.float32).tobytes()
    tensors = (
        TensorSpec("x", "float32", (2, 3)),
        TensorSpec("feature", "float32", (4, 3), numbers[:48]),
        TensorSpec("time", "float32", (4, 2), numbers[48:]),
        TensorSpec("memory", "float32", (2, 8), None, is_variable=True),
        TensorSpec("y", "float32", (2, 2)),
    )
    svdf = OperatorSpec("SVDF", (0, 1, 2, -1, 3), (4,), {"rank": 2, "fused_activation_function": "NONE"})
    path = tmp_path / "m.tflite"
    path.write_bytes(write_tflite(ModelSpec(tensors, (svdf,), (0,), (4,))))
    with pytest.raises(EngineRefused, match=CRASHED):
        run_isolated(path.read_bytes(), [(np.ones((2, 3), np.float32),)], engine="tflm")
    proof = verify(compile_model(path), samples=4)
    assert (proof.match, proof.reference, proof.elements) == (True, "litert", 16)

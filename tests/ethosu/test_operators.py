"""Random operators of every kind: host model on vela's streams = tflite_micro = emitc's own reference, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from emitc.errors import EmitcError
from emitc.verify.engines.run import engine_for
from emitc.verify.npu_check import VelaNetwork, read_vela
from emitc.verify.reference import run_reference
from emitc.writers.tflite import write_tflite
from tests.support.npu.cases import KINDS, case
from tests.support.npu.vela import ALL, CONFIGS, VelaOptions, compiled
from tests.support.single_op import Array, Case, drawn, graph_of, model_of

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

SHAPES = 25
SAMPLES = 3
NO_REFERENCE = frozenset(
    {"conv_int16", "add_int16", "mul_int16", "transpose_conv", "mirror_pad", "abs", "prelu", "reduce_max", "arg_max",
     "batch_matmul", "softmax_int16"}
)  # fmt: skip
"""Kinds that emitc's own kernels need not compute; the engine alone is the judge then."""
OWN_TABLES = frozenset({"softmax_int16"})
"""Kinds whose tables vela rounds in its own way: single elements may be 1 off the engine (7 of 18 772 in one case)."""
CASES = [(kind, number) for kind in KINDS for number in range(1, SHAPES)]


def agree(cases: list[tuple[str, int]], options: VelaOptions) -> None:
    """Cases side by side in one model."""
    made = [case(kind, number) for kind, number in cases]
    model = write_tflite(model_of(made))
    file = read_vela(compiled(model, options).read_bytes())
    assert [node.op_type for node in file.cpu_operators] == []
    network, engine = VelaNetwork(file), engine_for(model, "tflm")
    rng = np.random.default_rng(cases[0][1])
    for sample in range(SAMPLES):
        inputs = [
            [drawn(tensor, rng, sample) for tensor in each.inputs if tensor is not None and tensor.data is None]
            for each in made
        ]
        together = [array for arrays in inputs for array in arrays]
        results = zip(made, cases, inputs, network.run(together), engine.run(together), strict=True)
        for each, (kind, _), own_inputs, found, expected in results:
            apart = np.abs(found.reshape(expected.shape).astype(int) - expected.astype(int)).max()
            allowed = 1 if kind in OWN_TABLES else 0
            assert apart <= allowed, f"{each.id} for {options.id}, sample {sample}: {apart} off"
            agree_with_reference(each, kind, own_inputs, expected)


def agree_with_reference(made: Case, kind: str, inputs: list[Array], expected: Array) -> None:
    """emitc's own numpy kernel, where there is one, gives what the engine gives."""
    try:
        graph = graph_of(made)
    except EmitcError:
        assert kind in NO_REFERENCE
    else:
        own = run_reference(graph, inputs)[graph.outputs[0]]
        assert np.array_equal(own.reshape(expected.shape), expected)


@pytest.mark.parametrize("config", CONFIGS)
def test_one_of_each_kind(config: str) -> None:
    agree([(kind, 0) for kind in KINDS], VelaOptions(config, "Shared_Sram", "Performance"))


@pytest.mark.sweep(keep=3)
@pytest.mark.parametrize(("kind", "number"), CASES, ids=[f"{kind}-{number}" for kind, number in CASES])
def test_host_model_reference_and_engine_agree(kind: str, number: int) -> None:
    """Combinations of configuration, memory and goal take turns."""
    agree([(kind, number)], ALL[(list(KINDS).index(kind) + number) % len(ALL)])

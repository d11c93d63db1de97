"""The corpus' streaming wake words: every bit over a thousand frames, in less memory than the interpreter's."""

from __future__ import annotations

from pathlib import Path

import pytest

from emitc.compiler import Compiled, compile_model
from emitc.host.parity import verify
from emitc.kernels.variables import Append

CORPUS = Path(__file__).resolve().parents[3] / "shared" / "models"
MEMORY = {"mww_hey_jarvis_v2": 3600, "mww_okay_nabu_v2": 5100, "mww_vad_v2": 1700, "mww_alexa_v1": 22448}
"""Bytes that state and arena may take together."""


def compiled(name: str, **options: object) -> Compiled:
    path = CORPUS / "tflite" / f"{name}.tflite"
    if not path.is_file():
        pytest.skip("the model corpus ../shared/models is not beside the checkout")
    return compile_model(path, **options)


@pytest.mark.parametrize("name", MEMORY)
def test_a_thousand_frames_are_bit_exact(name: str) -> None:
    made = compiled(name)
    proof = verify(made, samples=1000, vectors=CORPUS / "vectors" / "tflite" / f"{name}.npz")
    assert proof.match, proof
    assert proof.reference == "tflm" and proof.samples > 1000 and proof.differing == 0


@pytest.mark.parametrize("name", MEMORY)
def test_layers_and_memory_accesses_are_right(name: str) -> None:
    proof = verify(compiled(name), samples=25, layers=True, sanitize=True)
    assert proof.match, proof
    assert proof.layers_checked >= 25 * 10


@pytest.mark.parametrize("name", MEMORY)
def test_state_lies_in_its_concatenations_and_memory_stays_small(name: str) -> None:
    made = compiled(name)
    assert made.program.state_bytes + made.program.plan.arena_bytes <= MEMORY[name]
    types = {node.op_type for node in made.partition.graph.nodes}
    assert not types & {"READ_VARIABLE", "ASSIGN_VARIABLE"}
    appends = sum(isinstance(node.op, Append) for node in made.partition.graph.nodes)
    assert appends == len(made.program.states)

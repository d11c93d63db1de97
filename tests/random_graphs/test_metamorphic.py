"""No option changes a bit, and neither do operators that change nothing: on random graphs and on the shipped models."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from bench.random_graphs import Case, Description, Node, Value, generate
from bench.random_graphs.formats import rebuilt
from bench.random_graphs.identities import places, with_identities
from bench.random_graphs.metamorphic import Change, Experiment, changes, experiment, run
from bench.random_graphs.native import Builds
from emitc.options import Options
from emitc.verify.reference import random_samples

MODELS = Path(__file__).resolve().parents[2] / "examples" / "models"
SHIPPED = (
    "digits_int8.tflite", "digits_qdq.onnx", "digits_qoperator.onnx", "kws_ref_int8.tflite", "mww_hey_jarvis_v2.tflite",
    "audio_preprocessor_int8.tflite", "person_detect_int8.tflite",
)  # fmt: skip
FAMILIES = ("without", "kernel", "ram-budget", "target", "regions", "optimize")
GRAPHS = 4
MOST = 9
"""Changed options of a shipped model that one test compiles."""


def faults(experiments: list[Experiment], folder: Path) -> list[str]:
    """What gave other bits."""
    found = run(experiments, Builds(folder))
    return [f"{each.name}: {variation.kind}: {variation.fault}" for each, variation in found]


@pytest.mark.sweep(keep=2)
@pytest.mark.parametrize("start", range(0, 40 * GRAPHS, GRAPHS))
def test_random_graphs(start: int, tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="the extra emitc[onnx] is not installed")
    for source_format in ("tflite", "onnx"):
        folder = tmp_path / source_format
        folder.mkdir()
        cases = [generate(source_format, 21, index) for index in range(start, start + GRAPHS)]
        made = [each for case in cases if (each := experiment(case, folder, 3)) is not None]
        assert made and sum(len(each.variations) for each in made) > len(made)
        assert faults(made, folder) == []


@pytest.mark.sweep(keep=3)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_models(name: str, family: str, tmp_path: Path) -> None:
    if name.endswith(".onnx"):
        pytest.importorskip("onnx", reason="the extra emitc[onnx] is not installed")
    made = Experiment(Path(name).stem, [])
    compiled = made.add("default", MODELS / name, Options())
    assert compiled is not None
    made.inputs.extend(random_samples(compiled.graph, 2, 1))
    found = [change for change in changes(compiled) if change.kind.startswith(family)]
    for change in sampled(found, f"{name} {family}"):
        made.add(change.kind, MODELS / name, change.options)
    assert faults([made], tmp_path) == []


def sampled(found: list[Change], seed: str) -> list[Change]:
    """Some of the changes."""
    rng = np.random.default_rng(list(seed.encode()))
    return [found[i] for i in rng.permutation(len(found))[:MOST]]


def test_identities_are_inserted_where_they_are_legal() -> None:
    kinds: set[str] = set()
    for source_format in ("tflite", "onnx"):
        for index in range(60):
            case = generate(source_format, 22, index)
            rng = np.random.default_rng(index)
            changed = with_identities(case.description, rng, source_format)
            assert bool(places(case.description, source_format == "tflite")) == (changed != case.description)
            assert changed.inputs == case.description.inputs and changed.outputs == case.description.outputs
            old = {node.outputs for node in case.description.nodes}
            kinds |= {node.op for node in changed.nodes if node.outputs not in old}
    assert {"TRANSPOSE", "RESHAPE", "SPLIT", "CONCATENATION", "SLICE", "PAD", "QUANTIZE"} <= kinds
    assert {"Transpose", "Reshape", "Split", "Concat", "Slice", "Pad", "Identity", "DequantizeLinear"} <= kinds


def test_other_bits_are_found(tmp_path: Path) -> None:
    made = Experiment("g", [])
    values = (Value("x", "float32", (2, 3)), Value("y", "float32", (2, 3)))
    for op in ("RELU", "RELU6"):
        path = tmp_path / f"{op}.tflite"
        described = Description(values, (Node(op, ("x",), ("y",)),), ("x",), ("y",))
        path.write_bytes(rebuilt("tflite", 0, 0, described).model)
        assert made.add(op, path, Options()) is not None
    made.inputs.append((np.full((2, 3), 5, np.float32),))
    assert faults([made], tmp_path) == []
    made.inputs.append((np.full((2, 3), 7, np.float32),))
    assert faults([made], tmp_path) == ["g: RELU6: run 1, output 0: 6 of 24 bytes differ"]


def test_a_case_that_cannot_be_compiled_has_no_experiment(tmp_path: Path) -> None:
    case = generate("tflite", 24, 0)
    assert experiment(Case(case.format, 24, 0, case.description, b"\0" * 64), tmp_path) is None

"""examples/models: the files are what the README says, and the golden engine agrees with the shipped vectors."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import tflite

from emitc.verify.engines.run import run_isolated

MODELS = Path(__file__).resolve().parents[2] / "examples" / "models"
NAMES = ["audio_preprocessor_int8", "digits_int8", "kws_ref_int8", "mww_hey_jarvis_v2", "person_detect_int8"]
FOREIGN = [name for name in NAMES if name != "digits_int8"]


def section(name: str) -> str:
    """The README's section on the model."""
    text = (MODELS / "README.md").read_text(encoding="utf-8")
    return text.split(f"## {name}.tflite\n")[1].split("\n## ")[0]


def vectors(name: str) -> list[tuple[np.ndarray, np.ndarray]]:
    """(input, output) of every case."""
    with np.load(MODELS / f"{name}.npz", allow_pickle=False) as file:
        count = len(file.files) // 2
        assert sorted(file.files) == sorted(f"{kind}0_{k}" for kind in ("in", "out") for k in range(count))
        return [(file[f"in0_{k}"], file[f"out0_{k}"]) for k in range(count)]


def test_every_model_is_listed() -> None:
    assert sorted(path.stem for path in MODELS.glob("*.tflite")) == NAMES
    twins = [path.stem for path in MODELS.glob("*.onnx")]
    assert sorted(path.stem for path in MODELS.glob("*.npz")) == sorted([*NAMES, *twins, "digits_test"])


def test_every_float_model_is_listed_with_its_size_and_hash() -> None:
    rows = re.findall(
        r"^\| `(\w+\.onnx)` \| .* \| (\d+) \| `(\w+)` \|$", (MODELS / "README.md").read_text("utf-8"), re.M
    )
    files = {path.name: path.read_bytes() for path in (MODELS / "float").glob("*.onnx")}
    assert len(files) == 4
    found = {name: (int(size), digest) for name, size, digest in rows}
    assert found == {name: (len(data), hashlib.sha256(data).hexdigest()) for name, data in files.items()}


@pytest.mark.parametrize("name", NAMES)
def test_readme_states_the_hash(name: str) -> None:
    digest = hashlib.sha256((MODELS / f"{name}.tflite").read_bytes()).hexdigest()
    assert re.findall(r"SHA-256: `(\w+)`", section(name)) == [digest]


@pytest.mark.parametrize("name", NAMES)
def test_readme_states_size_shapes_and_operators(name: str) -> None:
    data = (MODELS / f"{name}.tflite").read_bytes()
    model = tflite.Model.GetRootAs(data, 0)
    graph = model.Subgraphs(0)
    codes = [model.OperatorCodes(graph.Operators(i).OpcodeIndex()) for i in range(graph.OperatorsLength())]
    counts = Counter(tflite.opcode2name(max(c.BuiltinCode(), c.DeprecatedBuiltinCode())) for c in codes)
    (row,) = re.findall(rf"^\| `{name}\.tflite` \|.*$", (MODELS / "README.md").read_text(encoding="utf-8"), re.M)
    _, _, size, given, result, operators, _ = (cell.strip() for cell in row.split("|"))
    assert int(size) == len(data)
    types = {tflite.TensorType.INT8: "int8", tflite.TensorType.UINT8: "uint8", tflite.TensorType.INT16: "int16"}
    ends = [graph.Tensors(i) for i in (graph.Inputs(0), graph.Outputs(0))]
    assert [given, result] == [f"{types[end.Type()]} {end.ShapeAsNumpy().tolist()}" for end in ends]
    assert {op.split()[0]: int(op.split()[1]) for op in operators.split(", ")} == dict(counts)


@pytest.mark.parametrize("name", FOREIGN)
def test_licence_text_is_beside_the_model(name: str) -> None:
    text = (MODELS / f"{name}.LICENSE.txt").read_text(encoding="utf-8")
    assert "Apache License" in text
    assert "Version 2.0, January 2004" in text
    assert f"`{name}.LICENSE.txt`" in section(name)
    assert re.search(r"Commit: `[0-9a-f]{40}`", section(name))


def test_vectors_stay_small() -> None:
    assert sum((MODELS / f"{name}.npz").stat().st_size for name in NAMES) <= 60_000


COUNTS = {
    "audio_preprocessor_int8": 13, "digits_int8": 10, "kws_ref_int8": 4, "mww_hey_jarvis_v2": 28, "person_detect_int8": 2,
}  # fmt: skip


@pytest.mark.parametrize(("name", "count"), COUNTS.items())
def test_engine_equals_the_vectors(name: str, count: int) -> None:
    pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")
    cases = vectors(name)
    assert len(cases) == count
    run = run_isolated((MODELS / f"{name}.tflite").read_bytes(), [[case] for case, _ in cases])
    assert run.engine == "tflm"
    for (actual,), (_, expected) in zip(run.outputs, cases, strict=True):
        assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
        assert actual.tobytes() == expected.tobytes()


def test_vectors_show_what_the_readme_says() -> None:
    assert [int(output.argmax()) for _, output in vectors("digits_int8")] == list(range(10))
    assert [int(output.argmax()) for _, output in vectors("person_detect_int8")] == [1, 0]
    assert int(vectors("kws_ref_int8")[0][1].argmax()) == 5  # "on"

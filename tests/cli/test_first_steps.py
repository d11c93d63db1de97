"""What somebody meets who does not know emitc yet: other files, words that are nearly right, lists that are too long."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from emitc.writers.tflite import ModelSpec, OperatorSpec, TensorSpec, write_tflite
from tests.support.cli_call import Emitc


def archive(name: str) -> bytes:
    """A zip file with one empty member."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as file:
        file.writestr(name, b"")
    return stream.getvalue()


def onnx_model() -> onnx.ModelProto:
    """A float MatMul."""
    weights = numpy_helper.from_array(np.ones((4, 3), np.float32), "w")
    ports = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [1, d]) for n, d in (("x", 4), ("y", 3))]
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", ports[:1], ports[1:], [weights])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


FOREIGN = {
    "nothing": (b"", "it is empty", "copy or export the model again"),
    "keras_old": (b"\x89HDF\r\n\x1a\n" + bytes(64), "it is an HDF5 file", "TFLiteConverter.from_keras_model"),
    "keras": (archive("model.weights.h5"), "it is a Keras file", "TFLiteConverter.from_keras_model"),
    "torch": (
        archive("archive/data.pkl"),
        "it is a PyTorch file, of a network or its weights",
        "torch.onnx.export(net.eval(), (example,), 'model.onnx', external_data=False)",
    ),
    "torch_script": (
        archive("m/code/__torch__.py"),
        "it is a TorchScript program of PyTorch",
        "torch.onnx.export(torch.jit.load('model.pt'), (example,), 'model.onnx', dynamo=False)",
    ),
    "torch_export": (
        archive("m/archive_format"),
        "it is a program of torch.export (.pt2)",
        "torch.onnx.export(torch.export.load('model.pt2'), f='model.onnx', external_data=False)",
    ),
    "torch_export_old": (
        archive("serialized_exported_program.json"),
        "it is a program of torch.export",
        "torch.onnx.export",
    ),
    "torch_old": (
        pickle.dumps(0x1950A86A20F9469CFC6C, 2) + pickle.dumps(1001, 2),
        "it is a PyTorch file of the old kind",
        "torch.onnx.export",
    ),
    "pickle": (pickle.dumps({"state_dict": {}}), "it is a pickled Python object", "torch.onnx.export"),
    "executorch": (b"\x30\0\0\0ET12" + bytes(64), "it is a program of ExecuTorch (.pte)", "torch.onnx.export"),
    "arrays": (archive("x.npy"), "it is an archive of arrays", "--vectors or --calibration"),
    "zip": (archive("x"), "it is an archive", "unpack it"),
    "saved_model": (b"\x08\x01\x12\x90\x01" + bytes(64), "it is the graph of a SavedModel", "from_saved_model"),
    "onnx": (onnx_model().SerializeToString(), "it looks like an ONNX model", "a name that ends in .onnx"),
    "c": (b"alignas(16) const unsigned char g_model[] = {", "it is C source", "the .tflite file that it was made of"),
    "pointer": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
        "it is the pointer",
        "git lfs pull",
    ),
    "page": (b"\n\n<!DOCTYPE html>\n<html lang=en>", "it is a web page", "download the file itself"),
    "noise": (bytes(range(1, 64)), "the identifier TFL3 is missing at byte 4", "pass a TFLite FlatBuffers file"),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_other_files_are_called_what_they_are(kind: str, emitc: Emitc, tmp_path: Path) -> None:
    data, why, hint = FOREIGN[kind]
    (tmp_path / "model.bin").write_bytes(data)
    called = emitc("inspect", "model.bin")
    assert called.code == 2 and "error: this is not a .tflite file\n" in called.err
    assert f"  why:   {why}" in called.err and hint in called.err


@pytest.mark.parametrize("kind", [kind for kind in FOREIGN if kind not in ("onnx", "noise")])
def test_other_files_are_called_what_they_are_under_the_name_of_an_onnx_model(
    kind: str, emitc: Emitc, tmp_path: Path
) -> None:
    data, why, hint = FOREIGN[kind]
    (tmp_path / "model.onnx").write_bytes(data)
    called = emitc("inspect", "model.onnx")
    assert called.code == 2 and "error: this is not a .onnx file\n" in called.err
    assert f"  why:   {why}" in called.err and hint in called.err


def test_the_recipes_of_the_errors_are_those_of_the_page() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "task-float-model.md").read_text(encoding="utf-8")
    hints = [hint for kind, (_, _, hint) in FOREIGN.items() if kind in ("torch", "torch_script", "torch_export")]
    assert all(hint in page for hint in hints)


def test_a_directory(emitc: Emitc, tmp_path: Path) -> None:
    assert emitc("inspect", ".").err.startswith("error: . is not a file\n  at:    .\n")
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "saved_model.pb").write_bytes(b"")
    called = emitc("inspect", "saved")
    assert called.code == 2 and "from_saved_model" in called.err


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("--without", "fold-constant"), "did you mean fold-constants?"),
        (("--package", "platform-io"), "did you mean platformio?"),
        (("--kernels", "CMSIS-NN"), "did you mean cmsis-nn?"),
        (("--npu", "ethos-u55-512"), "did you mean ethos-u55-"),
        (("--package", "bazel"), "choose one of these"),
        (("--regions", "nucleo_h743z"), "did you mean nucleo_h743zi?"),
    ],
)
def test_words_that_are_nearly_right(arguments: tuple[str, ...], hint: str, emitc: Emitc, tiny: Path) -> None:
    called = emitc("compile", tiny / "wires.tflite", "-o", "out", *arguments)
    assert called.code == 2
    assert f"error: {' '.join(arguments)} is unknown\n  at:    {arguments[0]}\n" in called.err and hint in called.err


def test_an_engine_that_is_nearly_right(emitc: Emitc, tiny: Path) -> None:
    called = emitc("verify", tiny / "wires.tflite", "--reference", "onnx-runtime")
    assert called.code == 2 and "did you mean onnxruntime?" in called.err


def test_a_budget_in_kilobytes(emitc: Emitc, tiny: Path) -> None:
    assert emitc("plan", tiny / "spotter.tflite", "--ram-budget", "1K", "--json").json["arena_bytes"] <= 1024
    assert emitc("plan", tiny / "spotter.tflite", "--ram-budget", "0K").code == 1
    assert emitc("plan", tiny / "spotter.tflite", "--ram-budget", "1G").code == 2


def test_refusals_that_are_alike_are_counted(emitc: Emitc, tmp_path: Path) -> None:
    tensors = tuple(TensorSpec(f"t{i}", "float32", (1, 4)) for i in range(11))
    operators = tuple(OperatorSpec("DENSIFY", (i,), (i + 1,)) for i in range(10))
    (tmp_path / "m.tflite").write_bytes(write_tflite(ModelSpec(tensors, operators, (0,), (10,))))
    called = emitc("compile", "m.tflite", "-o", "out", "--json")
    assert called.err.count("error: ") == 5
    assert called.err.endswith("and 5 more errors of this model; `emitc inspect` shows them\n")
    assert len(called.json["error"]) == 10


def test_constants_whose_file_was_not_copied(emitc: Emitc, tmp_path: Path) -> None:
    onnx.save(onnx_model(), tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    np.savez(tmp_path / "inputs.npz", x=np.ones((2, 1, 4), np.float32))
    assert emitc("quantize", "m.onnx", "--data", "inputs.npz").code == 0
    again = emitc("quantize", "m_int8.onnx", "--calibration", "inputs.npz")
    assert again.code == 2 and "error: m_int8.onnx is quantized already\n" in again.err
    (tmp_path / "m.data").unlink()
    called = emitc("inspect", "m.onnx")
    assert called.code == 2 and 'why:   there is no "m.data" in the folder of the model' in called.err


def test_names_that_a_converter_has_joined_are_cut(emitc: Emitc, tmp_path: Path) -> None:
    tensors = tuple(TensorSpec(name, "int8", (1, 4), None, (0.1,), (0,)) for name in ("x", "relu/Relu;dense/BiasAdd"))
    (tmp_path / "m.tflite").write_bytes(
        write_tflite(ModelSpec(tensors, (OperatorSpec("RELU", (0,), (1,)),), (0,), (1,)))
    )
    for command in ("inspect", "plan"):
        said = emitc(command, "m.tflite").out
        assert "relu/Relu;..." in said and "relu/Relu;dense" not in said.split("\n\n", 1)[1]
    assert emitc("inspect", "m.tflite", "--json").json["operators"][0]["name"] == "relu/Relu;dense/BiasAdd"


def test_a_shape_for_dimensions_that_are_not_open(emitc: Emitc, tiny: Path) -> None:
    called = emitc("compile", tiny / "spotter.tflite", "-o", "out", "--shape", "spectrogram=1,9,6,2")
    assert called.code == 2 and "error: the shape [1, 9, 6, 2] does not fit\n" in called.err
    assert "the model says [1, 8, 6, 2]" in called.err and "change only open dimensions" in called.err
    assert emitc("inspect", tiny / "spotter.tflite", "--shape", "spectrogram=1,8,6,2").code == 0

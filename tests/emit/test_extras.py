"""`--labels`, `--cpp` and `--model-licence`: names and best classes, the C++ class, and what a package says of licences."""

from __future__ import annotations

import io
import json
import random
import shutil
import zipfile
from dataclasses import replace
from pathlib import Path

import flatbuffers
import numpy as np
import pytest

from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.emit.licence import LICENSE, is_expression
from emitc.errors import EmitcError
from emitc.frontends.labels import labels_of_model, read_labels
from emitc.frontends.tflite.metadata import label_files
from emitc.options import Options
from emitc.planner.region_assignment import Region
from emitc.program.extras import Extras
from emitc.report.catalogue import inspect_text
from emitc.report.inspection import inspect_model
from emitc.writers.tflite import write_tflite
from tests.support.firmware import run
from tests.support.models import streaming, tiny

MODELS = Path(__file__).resolve().parents[2] / "examples" / "models"
KWS = MODELS / "kws_ref_int8.tflite"
HOSTILE = ['a"; #error', "*/ int x; /*", "??/", "\\", "wörd", "%s%n", "x" * 200, "日本", "", "-", "0", "é?"]
STRICT = ("-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror")
COMPILERS = [name for name in ("g++", "clang++") if shutil.which(name)]


def with_archive(model: bytes, files: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A model file with an archive at its end, as TFLite's metadata tools write it."""
    memory = io.BytesIO(model)
    with zipfile.ZipFile(memory, "a", method) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return memory.getvalue()


def labelled(folder: Path, labels: list[str], **files: bytes) -> Path:
    path = folder / "labelled.tflite"
    text = "\r\n".join(labels).encode("utf-8") + b"\n"
    path.write_bytes(with_archive(KWS.read_bytes(), {"other.txt": b"a\nb\n", "labels.txt": text, **files}))
    return path


def ran(compiled: Compiled, main: str, folder: Path, compiler: str) -> str:
    """What a C++ program prints that uses the package."""
    package = folder / "package"
    compiled.write(package)
    (package / "main.cpp").write_text(main.replace("@", compiled.program.name), encoding="utf-8")
    names = [path.name for path in sorted(package.glob("*.c"))]
    run(["gcc", "-std=c11", "-O1", *STRICT, "-c", *names], package)
    objects = [f"{name[:-2]}.o" for name in names]
    run([compiler, "-std=c++11", *STRICT, "main.cpp", *objects, "-lm", "-o", "main"], package)
    return run([str(package / "main")], package)


CLASSES = """
#include <cstdio>
#include <cstring>
#include "@.hpp"
static emitc::@ net;
int main()
{
    if (!net || net.status() != EMITC_OK) {
        return 1;
    }
    std::memset(net.input_0(), 3, net.input_0_elements());
    if (net.run() != EMITC_OK || net.reset() != EMITC_OK) {
        return 2;
    }
    uint32_t best[20];
    const uint32_t count = @_output_0_top(net.get(), best, 20);
    for (uint32_t i = 0; i < count; i++) {
        std::printf("%u %d\\n", best[i], net.output_0()[best[i]]);
    }
    std::printf("%u\\n", @_output_0_argmax(net.get()));
    for (uint32_t i = 0; i < 13; i++) {
        std::printf("[%s]\\n", @_output_0_label(i));
    }
}
"""


WEIGHTS = """
#include <cstdio>
#include "@.hpp"
alignas(16) static unsigned char weights[] = {%s};
static emitc::@ model(weights, sizeof weights);
int main()
{
    const bool first = model && model.run() == EMITC_OK && model.exchange_weights(weights, sizeof weights) == EMITC_OK;
    weights[100] ^= 1;
    const emitc_status second = model.exchange_weights(weights, sizeof weights);
    static emitc::@ none(weights, sizeof weights);
    std::printf("%%d %%d %%s", first, second == EMITC_WEIGHTS_DAMAGED, emitc_weights_status_string(none.status()));
    return 0;
}
"""


@pytest.mark.parametrize("compiler", COMPILERS)
def test_external_weights_in_cpp(compiler: str, tmp_path: Path) -> None:
    compiled = compile_model(MODELS / "digits_int8.tflite", weights="external", cpp=True)
    main = WEIGHTS % ",".join(map(str, compiled.files["digits_int8.weights.bin"]))
    assert ran(compiled, main, tmp_path, compiler) == "1 1 the file of weights is damaged"


@pytest.mark.parametrize("compiler", COMPILERS)
def test_names_and_best_classes_in_cpp(compiler: str, tmp_path: Path) -> None:
    compiled = compile_model(labelled(tmp_path, HOSTILE), labels="model", cpp=True)
    lines = ran(compiled, CLASSES, tmp_path, compiler).split("\n")
    assert lines[13:26] == [f"[{label}]" for label in [*HOSTILE, ""]]
    rows = [tuple(map(int, line.split())) for line in lines[:12]]
    scores = dict(rows)
    assert sorted(scores) == list(range(12)) and len(set(scores.values())) < 12, "some scores are equal"
    assert rows == sorted(rows, key=lambda row: (-row[1], row[0]))
    assert int(lines[12]) == int(np.argmax([scores[i] for i in range(12)]))


def test_a_file_of_labels_is_the_same_as_those_of_the_model(tmp_path: Path) -> None:
    text = tmp_path / "names.txt"
    text.write_text("\n".join(HOSTILE), encoding="utf-8")
    own = compile_model(KWS, labels=str(text)).program.extras
    assert own == compile_model(labelled(tmp_path, HOSTILE), labels="model").program.extras
    assert own.classes[0].labels == tuple(HOSTILE)
    numbers = compile_model(KWS, labels="numbers")
    assert "_output_0_top(" in numbers.files["kws_ref_int8.h"].decode()
    assert "_label(" not in numbers.files["kws_ref_int8.h"].decode()


FLOATS = """
#include <cmath>
#include <cstdio>
#include "@.hpp"
static emitc::@ net;
int main()
{
    float *const scores = const_cast<float *>(net.output_0());
    for (uint32_t i = 0; i < 10; i++) {
        scores[i] = NAN;
    }
    uint32_t best[3];
    std::printf("%u %u,", @_output_0_top(net.get(), best, 3), @_output_0_argmax(net.get()));
    scores[2] = -1.0f;
    scores[1] = -INFINITY;
    const uint32_t count = @_output_0_top(net.get(), best, 3);
    std::printf("%u %u %u %u", count, best[0], best[1], @_output_0_argmax(net.get()));
}
"""


def test_a_nan_is_no_score(tmp_path: Path) -> None:
    compiled = compile_model(MODELS / "digits_qoperator.onnx", labels="numbers", cpp=True)
    assert compiled.program.outputs[0].dtype == "float32"
    assert ran(compiled, FLOATS, tmp_path, COMPILERS[0]) == "0 0,2 2 1 2"


ANY = """
#include "@.hpp"
int main()
{
    MAKE
    return model ? 0 : 1;
}
"""


@pytest.mark.parametrize("compiler", COMPILERS)
@pytest.mark.parametrize("kind", ["state", "regions", "rows", "no arena"])
def test_the_class_of_other_models(kind: str, compiler: str, tiny: Path, tmp_path: Path) -> None:
    make = "static emitc::@ model;"
    options = {}
    path = tiny / "camera.tflite"
    if kind == "state":
        path = tmp_path / "kept.tflite"
        path.write_bytes(write_tflite(streaming.rows()))
    elif kind == "regions":
        options = {"regions": (Region("DTCM", 10000, 1.0), Region("SRAM", 200000, 4.0))}
        make = "alignas(16) static unsigned char a[300000], b[300000];\n    @_arenas_t arenas;\n"
        make += "    arenas.dtcm = a; arenas.dtcm_bytes = sizeof a; arenas.sram = b; arenas.sram_bytes = sizeof b;\n"
        make += "    emitc::@ model(arenas);"
    elif kind == "rows":
        options = {"input_rows": True}
    else:
        path = tiny / "wires.tflite"
    compiled = compile_model(path, cpp=True, **options)  # type: ignore[arg-type]
    ran(compiled, ANY.replace("MAKE", make), tmp_path, compiler)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (b"one\ntwo\n", "do not fit"),
        (b"\xff\xfe\n" * 12, "no UTF-8"),
        (b"a\0b\n" * 12, "cannot be printed"),
        (b"x" * 201 + b"\n" + b"y\n" * 11, "longer than 200"),
        (b"z\n" * (1 << 20), "more than"),
    ],
)
def test_labels_that_do_not_fit_are_refused(lines: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "names.txt"
    path.write_bytes(lines)
    with pytest.raises(EmitcError) as error:
        compile_model(KWS, labels=str(path))
    assert message in error.value.message()
    with pytest.raises(EmitcError, match="has no labels"):
        compile_model(KWS, labels="model")


def test_a_model_without_classes_has_no_labels(tmp_path: Path) -> None:
    path = tmp_path / "rows.tflite"
    path.write_bytes(write_tflite(streaming.channels()))
    with pytest.raises(EmitcError, match="no output has classes"):
        compile_model(path, labels="numbers")


def metadata_of(*outputs: tuple[tuple[str, int], ...], identifier: bytes = b"M001") -> bytes:
    """Metadata of a model: for each output its files with their types, by the numbers of the fields in metadata_schema.fbs."""
    builder = flatbuffers.Builder(256)

    def tables(entries: list[int]) -> int:
        builder.StartVector(4, len(entries), 4)
        for entry in reversed(entries):
            builder.PrependUOffsetTRelative(entry)
        return int(builder.EndVector())

    def table(fields: int, slot: int, entry: int) -> int:
        builder.StartObject(fields)
        builder.PrependUOffsetTRelativeSlot(slot, entry, 0)
        return int(builder.EndObject())

    def file(name: str, kind: int) -> int:
        text = builder.CreateString(name)
        builder.StartObject(4)
        builder.PrependUOffsetTRelativeSlot(0, text, 0)
        builder.PrependInt8Slot(2, kind, 0)
        return int(builder.EndObject())

    described = [table(7, 6, tables([file(*entry) for entry in files])) for files in outputs]
    builder.Finish(table(8, 3, tables([table(7, 3, tables(described))])), file_identifier=identifier)
    return bytes(builder.Output())


def described(metadata: bytes, **files: str) -> bytes:
    """A classifier of 7 classes with metadata, and an archive with files of these lines."""
    model = write_tflite(replace(tiny.spotter(), metadata={"min_runtime_version": b"1", "TFLITE_METADATA": metadata}))
    return with_archive(model, {name.replace("_", "."): text.encode() for name, text in files.items()})


SEVEN = {name: "".join(f"{name}{i}\n" for i in range(7)) for name in ("a_txt", "b_txt", "c_names")}


@pytest.mark.parametrize(
    ("metadata", "taken"),
    [
        (metadata_of((("b.txt", 2),)), "b_txt"),
        (metadata_of((("readme.txt", 1), ("c.names", 3), ("b.txt", 2))), "c_names"),
        (metadata_of((("away.txt", 2), ("b.txt", 2))), "b_txt"),
        (metadata_of((("b.txt", 5),)), "a_txt"),  # a vocabulary: the metadata name no labels
        (metadata_of(()), "a_txt"),
        (metadata_of(), "a_txt"),
        (metadata_of((("b.txt", 2),), identifier=b"M002"), "a_txt"),
        (b"", "a_txt"),
        (b"\0" * 40, "a_txt"),
    ],
)
def test_the_metadata_say_which_file_has_the_labels(metadata: bytes, taken: str) -> None:
    (labels,) = read_labels("model", described(metadata, **SEVEN), (7,))
    assert labels == tuple(SEVEN[taken].split())


def test_each_output_has_its_own_labels_by_the_metadata() -> None:
    model = described(metadata_of((("b.txt", 2),), (("c.names", 2),)), **SEVEN)
    assert label_files(model) == (("b.txt",), ("c.names",))
    assert [names[0] for names in read_labels("model", model, (7, 7))] == ["b_txt0", "c_names0"]


@pytest.mark.parametrize("name", ["more.txt", "*/ int x; /*", "../../etc/passwd", "\\0\x1b[2J", "x" * 5000])
def test_stated_labels_that_do_not_fit_are_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(with_archive(described(metadata_of(((name, 2),)), **SEVEN), {name: b"one\n"}))
    with pytest.raises(EmitcError, match="the labels do not fit the model") as refused:
        compile_model(path, labels="model")
    assert refused.value.why.isprintable() and len(refused.value.why) < 500


def test_damaged_metadata_say_nothing() -> None:
    """Every byte changed: either names come out, or nothing, and it ends in time."""
    model = described(metadata_of((("b.txt", 2), ("a.txt", 2))))
    at = model.index(b"M001") - 4
    assert label_files(model) == (("b.txt", "a.txt"),)
    seen = set()
    for place in range(at, at + 160):
        for value in (0, 1, 0x7F, 0x80, 0xFF):
            seen.add(label_files(model[:place] + bytes((value,)) + model[place + 1 :]))
    assert {(), (("b.txt", "a.txt"),)} < seen
    assert label_files(model[: at + 60]) == () == label_files(b"") == label_files(model[:20])


def test_damaged_archives_are_no_labels(tmp_path: Path) -> None:
    """A thousand archives with bytes changed or cut off; a text that says it is small and is not."""
    whole = with_archive(b"TFL3" * 8, {"labels.txt": b"a\nb\n", "more.txt": b"c" * 300})
    assert set(labels_of_model(whole)) == {"labels.txt"}, "a line of 300 characters is no name"
    draw = random.Random(7)
    for _ in range(1000):
        data = bytearray(whole)
        for _ in range(draw.randint(1, 4)):
            data[draw.randrange(len(data))] = draw.randrange(256)
        for name, lines in labels_of_model(bytes(data[: draw.choice([len(data), draw.randrange(len(data))])])).items():
            assert isinstance(name, str) and all(line.isprintable() for line in lines)
    bomb = with_archive(b"", {"labels.txt": b"a\n" * (4 << 20)})
    assert labels_of_model(bomb) == {}


def test_inspect_names_the_files_of_a_model(tmp_path: Path) -> None:
    inspection = inspect_model(labelled(tmp_path, HOSTILE), {})
    assert inspection["labels"] == {"other.txt": 2, "labels.txt": 12}
    assert "  labels  labels.txt: 12 lines\n" in inspect_text(inspection)
    assert inspect_model(KWS, {})["labels"] == {}


@pytest.mark.parametrize("text", ["MIT", "CC-BY-4.0", "LicenseRef-Ours", "(MIT OR 0BSD) AND GPL-2.0+", "A WITH B"])
def test_expressions(text: str) -> None:
    assert is_expression(text)


@pytest.mark.parametrize(
    "text", ["MIT */", "MIT\n", "(MIT", "MIT)", "MIT AND", "", " ", "A B", 'X"', "A OR OR B", "é", "M" * 201]
)
def test_no_expressions(text: str) -> None:
    assert not is_expression(text)
    if text:
        with pytest.raises(EmitcError, match="is no licence"):
            compile_model(KWS, model_licence=text)


def test_the_licence_of_the_model_is_stated(tmp_path: Path) -> None:
    compiled = compile_model(KWS, model_licence="CC-BY-4.0", package="platformio", split_weights=True)
    files = {name: data.decode() for name, data in compiled.files.items()}
    both = f"({LICENSE}) AND (CC-BY-4.0)"
    own = {"src/kws_ref_int8.c", "src/kws_ref_int8_weights.c"}
    for name, text in files.items():
        if name.endswith((".c", ".h")):
            assert text.startswith(f"/* SPDX-License-Identifier: {both if name in own else LICENSE} */\n"), name
    assert '#define KWS_REF_INT8_MODEL_LICENSE "CC-BY-4.0"' in files["include/kws_ref_int8.h"]
    assert json.loads(files["library.json"])["license"] == both
    manifest = json.loads(files["manifest.json"])
    assert (manifest["license"], manifest["model"]["license"]) == (LICENSE, "CC-BY-4.0")
    assert manifest["third_party"] == [{"kind": "model", "name": "kws_ref_int8.tflite", "license": "CC-BY-4.0"}]
    assert compiled.summary()["model_licence"] == "CC-BY-4.0"
    assert compile_model(KWS).program.extras == Extras() and "third_party" not in compile_model(KWS).files


def test_the_command_line_gives_the_same_package(tmp_path: Path) -> None:
    options = Options(labels="/x/names.txt", cpp=True, model_licence="MIT OR 0BSD")
    assert options.arguments() == ' --labels names.txt --cpp --model-licence "MIT OR 0BSD"'
    assert options.to_json()["labels"] == "names.txt"

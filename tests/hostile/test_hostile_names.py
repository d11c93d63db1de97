"""Text of the model and of its path: whatever it is, it stays inside comments, JSON strings and harmless messages."""

from __future__ import annotations

import json
import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from emitc.cli.main import cli
from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.errors import first_name
from emitc.frontends.tflite.reader import read_tflite
from emitc.options import Options
from emitc.program.c_names import comment_text, identifier, is_model_name, string_text
from emitc.verify.build import WARNINGS, compiler_command
from emitc.verify.verification import verify
from emitc.writers.tflite import ModelSpec, TensorSpec, write_tflite
from tests.support.hostile.models import arithmetic, int8, model, network

MARK = "InJected"
NAMES: dict[str, str | bytes] = {
    "comment_end": f"*/ {MARK} /*",
    "comment_nested": f"/*/ {MARK} //*/*/ */* **//",
    "quote": f'"; {MARK}; "',
    "error": f"\n#error {MARK}\n",
    "carriage_return": f"a\r#error {MARK}",
    "line_separators": f"a\u2028#error {MARK}\u2029\x85\x0b\x0c{MARK}",
    "trigraph": f"??/\n{MARK} ??/ ???/",
    "backslash": f"{MARK}\\",
    "format": f"%s %n %1$s {MARK}",
    "jinja": "{{ p.name }} {% raw %} {# " + MARK,
    "long": MARK + "x" * 10_000,
    "utf8": f"вход {MARK} \U0001f600 \u202e",
    "not_utf8": b"\xff\xfe\xc3( " + MARK.encode(),
    "nul": f"a\x00{MARK}",
    "escape": f"\x1b[31m\x1b]0;{MARK}\x07",
    "keyword": "while",
    "empty": "",
    "port": "input_0",
    "port_number": "0",
    "file_macro": "__FILE__",
    "reserved": "_Generic",
    "folded_bias": "logits:folded bias",
    "digits": "3d",
    "only_marks": "*/",
}
DUPLICATES = ("same", "same", "same#1", "Same!", "same?", "SAME", "same_2", "", "", "#1", "same_2_2", "same")


def stripped(text: str) -> str:
    """C text without comments and string literals."""
    return re.sub(r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"', " ", text, flags=re.S)


def build(compiled: Compiled, folder: Path) -> None:
    """Compiles the package with every warning as an error: C11, GNU C17, and the header as C++11."""
    package = folder / "package"
    compiled.write(package)
    name = compiled.program.name
    (folder / "user.cpp").write_text(f'#include "{name}.h"\nint main() {{ return sizeof({name}_t) == 0; }}\n')
    for command in (
        [*compiler_command(), *WARNINGS, "-fsyntax-only", str(package / f"{name}.c")],
        [*compiler_command(), *WARNINGS, "-std=gnu17", "-fsyntax-only", str(package / f"{name}.c")],
        [
            "g++",
            "-std=c++11",
            "-Wall",
            "-Wextra",
            "-Wpedantic",
            "-Wshadow",
            "-Werror",
            "-fsyntax-only",
            str(folder / "user.cpp"),
        ],
    ):
        done = subprocess.run([*command, f"-I{package}"], capture_output=True, text=True, cwd=folder)
        assert done.returncode == 0, f"{' '.join(command)}\n{done.stderr}"


def check_text(compiled: Compiled) -> None:
    """Generated files are ASCII, valid JSON where they are JSON, and hold the mark in comments only."""
    for path, data in compiled.files.items():
        text = data.decode("ascii")
        if path.endswith((".c", ".h")):
            assert MARK not in stripped(text), f"text of the model stands outside a comment of {path}"
            assert all(" " <= c <= "~" or c == "\n" for c in text), f"{path} has control characters"
            assert "??" not in text, f"{path} has a trigraph"
        if path.endswith(".json"):
            assert isinstance(json.loads(text), dict)


def renamed(spec: ModelSpec, name: str | bytes) -> ModelSpec:
    """Every tensor and the description under one name."""
    return replace(spec, tensors=tuple(replace(t, name=name) for t in spec.tensors), description=name)


def prove(spec: ModelSpec, path: Path, folder: Path) -> Compiled:
    """Compiles, builds and verifies the model under `path`; the C must equal the reference."""
    path.write_bytes(write_tflite(spec))
    compiled = compile_model(path)
    check_text(compiled)
    build(compiled, folder)
    assert verify(compiled, reference="numpy", samples=2).match
    return compiled


@pytest.mark.parametrize("first", range(0, len(NAMES), 4))
def test_names_of_tensors(first: int, tmp_path: Path) -> None:
    """Every name on every kind of tensor: four inputs, outputs, weights, operators."""
    texts = list(NAMES.values())
    spec = arithmetic()
    tensors = tuple(replace(t, name=texts[(first + i) % len(texts)]) for i, t in enumerate(spec.tensors))
    compiled = prove(replace(spec, tensors=tensors, description=texts[first]), tmp_path / "m.tflite", tmp_path)
    ports = json.loads(compiled.files["manifest.json"])["inputs"]
    for i, port in enumerate(ports):
        text = tensors[i].name
        assert port["name"] == (text if isinstance(text, str) else text.decode(errors="backslashreplace"))


def test_names_that_are_equal_after_all(tmp_path: Path) -> None:
    inputs = tuple(replace(int8(1, 4), name=name) for name in DUPLICATES)
    made = model(inputs, [("ADD", (i, i + 1), (int8(1, 4),), {}) for i in range(len(inputs) - 1)])
    outputs = iter(DUPLICATES)
    tensors = tuple(
        replace(t, name=DUPLICATES[i] if i < len(inputs) else next(outputs)) for i, t in enumerate(made.tensors)
    )
    compiled = prove(replace(made, tensors=tensors), tmp_path / "m.tflite", tmp_path)
    aliases = [port.alias for port in compiled.program.inputs if port.alias]
    assert len(set(aliases)) == len(aliases)


STEMS = (
    "a b", "string", "stdint", "main", "3d", "x" * 200, "модель", "*", '"', "a\n#error InJected", "size", "int8", "linux",
    "emitc_softmax", "emitc_runtime", "op0", "arena", "self", "errno", "features", "mtx", "template", "InJected ??", "x_t",
    "model", "%s", "-o", "a;b", "$(id)", "\x1b[31m", "layer", "scratch",
)  # fmt: skip


@pytest.mark.parametrize("stem", STEMS)
def test_a_name_of_the_file(stem: str, tmp_path: Path) -> None:
    path = tmp_path / f"{stem}.tflite"
    path.write_bytes(write_tflite(network()))
    compiled = compile_model(path)
    check_text(compiled)
    build(compiled, tmp_path)
    assert re.fullmatch(r"[a-z][a-z0-9_]{0,62}", compiled.program.name)
    for package in ("cmake", "platformio"):
        files = compile_model(path, Options(package=package)).files
        assert all(MARK not in re.sub(r"#.*", "", data.decode()) for name, data in files.items() if "CMake" in name)
        assert all(json.loads(data) for name, data in files.items() if name.endswith(".json"))


@pytest.mark.parametrize("stem", ["a b", "string", "3d", "модель", "size", "emitc_softmax"])
def test_a_file_of_that_name_is_proven(stem: str, tmp_path: Path) -> None:
    path = tmp_path / f"{stem}.tflite"
    path.write_bytes(write_tflite(network()))
    assert verify(compile_model(path), reference="numpy", samples=1).match


def test_shape_options_are_text_too(tmp_path: Path) -> None:
    name = f"*/ {MARK} \n#error"
    spec = replace(
        network(),
        tensors=(
            TensorSpec(name, "int8", (1, 12, 12, 4), None, (0.05,), (3,), shape_signature=(-1, 12, 12, 4)),
            *network().tensors[1:],
        ),
    )
    (tmp_path / "m.tflite").write_bytes(write_tflite(spec))
    compiled = compile_model(tmp_path / "m.tflite", shapes={name: (1, 12, 12, 4)})
    check_text(compiled)
    build(compiled, tmp_path)


def check_terminal(command: str, model_path: Path, out: Path) -> None:
    """Runs a command for people and for programs; neither may print a control character."""
    arguments = [command, str(model_path), *(["-o", str(out)] if command == "compile" else [])]
    for options in ([], ["--json"]):
        done = CliRunner().invoke(cli, [*arguments, *options])
        assert done.exit_code in (0, 2)
        for text in (done.stdout, done.stderr):
            assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text), f"{command} {options}: {text!r}"


@pytest.mark.parametrize("command", ["inspect", "compile", "plan"])
def test_no_escape_sequence_of_a_model_reaches_the_terminal(command: str, tmp_path: Path) -> None:
    spec = renamed(network(), "\x1b[2J\x1b]0;title\x07\r\x08\x7f\x9b31m")
    for name, changed in (("whole", spec), ("broken", replace(spec, operators=spec.operators[1:]))):
        path = tmp_path / f"{name}.tflite"
        path.write_bytes(write_tflite(changed))
        check_terminal(command, path, tmp_path / "out")


@pytest.mark.parametrize("command", ["inspect", "compile", "plan"])
def test_no_escape_sequence_of_a_path_reaches_the_terminal(command: str, tmp_path: Path) -> None:
    for name, data in (("whole", write_tflite(network())), ("broken", b"TFL3")):
        path = tmp_path / f"\x1b[31m{name}\x1b]0;title\x07.tflite"
        path.write_bytes(data)
        check_terminal(command, path, tmp_path / "\x1b[31mout")
    check_terminal(command, tmp_path / "\x1b[31mabsent.tflite", tmp_path / "out")


def test_messages_name_hostile_text_harmlessly() -> None:
    spec = renamed(network(), NAMES["escape"])
    data = write_tflite(replace(spec, tensors=(*spec.tensors[:-1], replace(spec.tensors[-1], scales=(0.0,)))))
    with pytest.raises(Exception, match="a quantization scale is not a positive number") as caught:
        read_tflite(data)
    assert "\x1b" not in str(caught.value)
    assert "\\u001b" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("*/", "_/"),
        ("**//", "*_/_"),
        ("/*/", "/_/"),
        ("*//*/", "_/__/"),
        ("???", "?_?"),
        ("a\\", "a_"),
        ("a\nb", "a_b"),
        ("é", "_"),
    ],
)
def test_comment_text(text: str, expected: str) -> None:
    found = comment_text(text)
    assert all(mark not in found for mark in ("*/", "/*", "//", "??", "\\"))
    assert found == expected


@pytest.mark.parametrize(
    ("label", "expected"),
    [("a/Relu;a/Conv2D;b", "a/Relu;..."), ("a", "a"), ("a;", "a;"), (";a", ";a"), (";;", ";;"), ("", "")],
)
def test_of_joined_names_the_first_is_shown(label: str, expected: str) -> None:
    assert first_name(label) == expected


def test_comment_text_of_every_short_combination() -> None:
    alphabet = "*/?\\\na"
    texts = [""]
    for _ in range(5):
        texts = [text + c for text in texts for c in alphabet]
        for text in texts:
            found = comment_text(text)
            assert all(mark not in found for mark in ("*/", "/*", "//", "??", "\\", "\n")), repr(text)
            assert '"' not in string_text(text + '"')


@pytest.mark.parametrize("name", ["size", "int8", "clock", "linux", "emitc_softmax", "main", "time", "mtx", "features"])
def test_names_with_another_meaning_are_no_model_names(name: str) -> None:
    assert not is_model_name(name)
    assert identifier(name, "model") == f"{name}_model"

"""The example of each kind of package, as its users' tool builds and runs it, or a stand-in that docs/integration.md names."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from emitc.boards import build
from emitc.compiler import compile_model
from emitc.emit.package_kinds import KINDS
from emitc.emit.package_kinds.build_systems import library_name
from emitc.planner.region_assignment import Region
from emitc.target import boards_dir
from tests.support.emit.sketch import run_sketch

EXAMPLES = Path(__file__).resolve().parents[3] / "examples" / "models"
WITH_EXAMPLE = [name for name, kind in KINDS.items() if kind.has_example]
CATEGORIES = ["Display", "Communication", "Signal Input/Output", "Sensors", "Device Control", "Timing", "Data Storage",
              "Data Processing", "Other"]  # fmt: skip
"""Of Arduino's library specification."""


def ran(command: list[str], folder: Path, env: dict[str, str] | None = None) -> str:
    """What a command prints, which has to end well."""
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def package(model: Path, kind: str, folder: Path, **options: Any) -> Path:
    """A model as a package in a folder of its own."""
    compile_model(model, package=kind, **options).write(folder / kind)
    return folder / kind


def with_one_byte_changed(path: Path, array: str) -> None:
    """Changes the first number of an array of bytes in a C file by at least 64."""
    text = path.read_text(encoding="ascii")
    number = re.compile(rf"{array}\[\d+\] = \{{\s*(-?\d+)")
    found = number.search(text)
    assert found is not None
    start, end = found.span(1)
    path.write_text(f"{text[:start]}{127 if int(found[1]) < 64 else 0}{text[end:]}", encoding="ascii")


def test_the_example_of_a_cmake_package_prints_match(tiny: Path, tmp_path: Path) -> None:
    folder = package(tiny / "spotter.tflite", "cmake", tmp_path) / "examples" / "check"
    ran(["cmake", "-S", str(folder), "-B", "build"], tmp_path)
    ran(["cmake", "--build", "build"], tmp_path)
    assert ran(["build/spotter_check"], tmp_path) == "MATCH\n"


def save_float_net(path: Path) -> None:
    """tanh(x * w): real numbers, whose last bits a compiler may change."""
    weights = numpy_helper.from_array(np.linspace(-1, 1, 12, dtype=np.float32).reshape(4, 3), "w")
    nodes = [helper.make_node("MatMul", ["x", "w"], ["s"]), helper.make_node("Tanh", ["s"], ["y"])]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, n]) for name, n in (("x", 4), ("y", 3))]
    graph = helper.make_graph(nodes, "floats", ports[:1], ports[1:], [weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "rows_of_the_input": ("camera", {"input_rows": True}),
    "two_regions": ("spotter", {"regions": (Region("DTCM", 112, 1.0), Region("SRAM", 4096, 2.0))}),
    "state": ("streaming", {}),
    "floats": ("floats", {}),
}
"""Models whose example differs in what it declares or calls, and options for each."""


@pytest.fixture(scope="module")
def models(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the tiny models, with one that keeps state and one that computes with floats."""
    folder = tmp_path_factory.mktemp("models")
    for path in tiny.glob("*.tflite"):
        shutil.copyfile(path, folder / path.name)
    shutil.copyfile(EXAMPLES / "mww_hey_jarvis_v2.tflite", folder / "streaming.tflite")
    save_float_net(folder / "floats.onnx")
    return folder


@pytest.mark.parametrize("shape", SHAPES)
def test_the_example_prints_match_whatever_the_model_declares(shape: str, models: Path, tmp_path: Path) -> None:
    name, options = SHAPES[shape]
    (model,) = models.glob(f"{name}.*")
    folder = package(model, "arduino", tmp_path, name=shape, **options)
    assert run_sketch(folder, tmp_path) == "MATCH\n"


@pytest.mark.parametrize(
    ("file", "array"),
    [
        ("examples/check/spotter_check.h", "spotter_check_output_0"),
        ("examples/check/spotter_check.h", "spotter_check_input_0"),
        ("src/spotter.c", r"static const int8_t \w+"),
    ],
)
def test_one_wrong_byte_is_a_mismatch(file: str, array: str, tiny: Path, tmp_path: Path) -> None:
    folder = package(tiny / "spotter.tflite", "arduino", tmp_path)
    with_one_byte_changed(folder / file, array)
    assert run_sketch(folder, tmp_path) == "MISMATCH in output 0\n"


@pytest.mark.parametrize("kind", WITH_EXAMPLE)
def test_the_stored_run_is_the_same_in_every_kind(kind: str, tiny: Path) -> None:
    files = compile_model(tiny / "spotter.tflite", package=kind).files
    expected = compile_model(tiny / "spotter.tflite", package="cmake").files["examples/check/spotter_check.h"]
    stored = [data for path, data in files.items() if PurePosixPath(path).stem == "spotter_check"]
    assert len(stored) == 1 and stored[0].startswith(expected)


@pytest.mark.parametrize("kind", KINDS)
def test_the_name_of_the_models_file_reaches_no_build_system(kind: str, tiny: Path, tmp_path: Path) -> None:
    """XML, YAML, Python, CMake, Kconfig and properties hold the C name alone; sources have the other in comments and quotes."""
    model = tmp_path / "\"]]>--><x y='&quux;'>${Z}\\n#: !!.tflite"
    shutil.copyfile(tiny / "wires.tflite", model)
    for path, data in compile_model(model, package=kind, name="tame").files.items():
        if PurePosixPath(path).suffix not in (".c", ".h", ".rs", ".zig", ".json"):
            assert not re.search(rb"quux|<x|!!|Z}", data), path


def properties(folder: Path) -> dict[str, str]:
    """The fields of library.properties. Every line is one, or a comment."""
    lines = (folder / "library.properties").read_text(encoding="ascii").splitlines()
    assert all("=" in line or line.startswith("#") for line in lines)
    return dict(line.split("=", 1) for line in lines if not line.startswith("#"))


def test_library_properties_follow_arduinos_specification(tiny: Path, tmp_path: Path) -> None:
    folder = package(tiny / "spotter.tflite", "arduino", tmp_path)
    fields = properties(folder)
    required = {"name", "version", "author", "maintainer", "sentence", "paragraph", "category", "url", "architectures"}
    assert required <= set(fields) and all(fields[name] for name in required)
    assert set(fields) - required == {"includes", "dot_a_linkage"}
    assert re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.\- ]{0,62}", fields["name"])
    assert re.fullmatch(r"\d+\.\d+\.\d+", fields["version"])
    assert fields["category"] in CATEGORIES and fields["architectures"] == "*"
    assert (folder / "src" / fields["includes"]).is_file()
    assert {path.name for path in folder.iterdir()} == {
        "examples",
        "keywords.txt",
        "library.properties",
        "manifest.json",
        "src",
    }
    for line in (folder / "keywords.txt").read_text(encoding="ascii").splitlines()[1:]:
        assert re.fullmatch(r"\w+\t(KEYWORD1|KEYWORD2|LITERAL1)", line)


@pytest.mark.parametrize("name", ["arduino_net", "Arduino" + "x" * 56])
def test_a_library_does_not_pose_as_arduinos_own(name: str, tiny: Path, tmp_path: Path) -> None:
    folder = package(tiny / "wires.tflite", "arduino", tmp_path, name=name)
    fields = properties(folder)
    assert fields["name"] == library_name(name) and not fields["name"].lower().startswith("arduino")
    assert len(fields["name"]) <= 63 and (folder / "src" / fields["includes"]).is_file()


def test_platformio_reads_the_arduino_library(tiny: Path, tmp_path: Path) -> None:
    """PlatformIO's parser of library.properties, which is another one than Arduino's own."""
    parser = pytest.importorskip("platformio.package.manifest.parser", reason="PlatformIO is not installed")
    folder = package(tiny / "spotter.tflite", "arduino", tmp_path)
    content = parser.ManifestParserFactory.new_from_dir(str(folder)).as_dict()
    assert content["name"] == "spotter" and content["version"] == "0.1.0"
    assert content["platforms"] == ["*"] and content["frameworks"] == ["arduino"]


def test_sketches_with_two_libraries_compile_without_a_warning(tiny: Path, tmp_path: Path) -> None:
    """Each library brings the runtime. The core of Arduino is a stand-in."""
    folders = [package(tiny / "spotter.tflite", "arduino", tmp_path / "one")]
    folders.append(package(tiny / "wires.tflite", "platformio", tmp_path / "two"))
    for folder, standard in zip(folders, ("gnu++11", "gnu++20"), strict=True):
        assert run_sketch(folder, tmp_path, others=folders, standard=standard) == "MATCH\n"


PACK = """\
import sys
from platformio.package.manifest.schema import ManifestSchema
licences = {"licenses": [{"licenseId": "0BSD"}, {"licenseId": "Apache-2.0"}]}
ManifestSchema.load_spdx_licenses = staticmethod(lambda: licences)
from platformio.__main__ import main
sys.exit(main(["platformio", "pkg", "pack", *sys.argv[1:]]))
"""
"""`pio pkg pack`, with the list of licences that it would download."""


@pytest.mark.board
@pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")), reason="needs the Arm tools and QEMU"
)
def test_an_archive_of_pio_pkg_pack_builds_and_its_example_boots(tiny: Path, tmp_path: Path) -> None:
    pytest.importorskip("platformio", reason="PlatformIO is not installed")
    folder = package(tiny / "spotter.tflite", "platformio", tmp_path, target="cortex-m4")
    env = build.environment(tmp_path / "core")
    ran([sys.executable, "-c", PACK, str(folder), "-o", "spotter.tar.gz"], tmp_path, env)
    with tarfile.open(tmp_path / "spotter.tar.gz") as archive:
        packed = {member.name for member in archive if member.isfile()}
        archive.extractall(tmp_path / "unpacked", filter="data")
    assert packed - {".piopm"} == {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
    project = tmp_path / "project"
    shutil.copytree(boards_dir() / "platform", project / "platform", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(tmp_path / "unpacked" / "examples" / "check", project / "src")
    (project / "platformio.ini").write_text(
        "[platformio]\nplatforms_dir = .pio/platforms\n[env:qemu_m4]\n"
        f"lib_deps = file://{tmp_path}/spotter.tar.gz\n"
        "platform = symlink://${PROJECT_DIR}/platform\nboard = qemu_m4\nbuild_src_flags = -Wall -Wextra -Werror\n",
        encoding="ascii",
    )
    printed = ran([*build.pio_command(), "run", "-d", str(project), "-t", "upload"], tmp_path, env)
    assert "\nMATCH\n" in printed

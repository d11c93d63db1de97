"""The component of ESPHome: C++ with a stand-in for ESPHome's core, and `esphome` itself where it is installed."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from emitc.compiler import compile_model

ESPHOME = os.environ.get("EMITC_ESPHOME", "") or shutil.which("esphome") or ""
CORE = {
    "component.h": "#pragma once\nnamespace esphome {\nclass Component {\npublic:\n    virtual ~Component() = default;\n"
    "    virtual void setup() {}\n    virtual void dump_config() {}\n    void mark_failed() { failed = true; }\n"
    "    bool failed = false;\n};\n}\n",
    "log.h": "#pragma once\n#include <cstdio>\n#define ESP_LOGI(tag, ...) std::printf(__VA_ARGS__)\n"
    "#define ESP_LOGE(tag, ...) std::printf(__VA_ARGS__)\n#define ESP_LOGCONFIG(tag, ...) std::printf(__VA_ARGS__)\n",
}
"""What a component uses of ESPHome's core."""
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-Wconversion", "-Wcast-qual", "-Wformat"]


@pytest.fixture(scope="module")
def package(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two models, whose components lie in one folder as a user puts them; the second one has state."""
    folder = tmp_path_factory.mktemp("esphome")
    examples = Path(__file__).resolve().parents[3] / "examples" / "models"
    for name, model in (("spotter", tiny / "spotter.tflite"), ("jarvis", examples / "mww_hey_jarvis_v2.tflite")):
        compile_model(model, package="esphome", name=name).write(folder / name)
        shutil.copytree(folder / name, folder / "both", dirs_exist_ok=True)
    return folder / "both"


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", ["spotter", "jarvis"])
def test_the_component_compiles_without_a_warning_and_logs_match(name: str, package: Path, tmp_path: Path) -> None:
    (tmp_path / "esphome" / "core").mkdir(parents=True)
    for file, text in CORE.items():
        (tmp_path / "esphome" / "core" / file).write_text(text, encoding="ascii")
    component = package / "components" / f"emitc_{name}"
    (tmp_path / "main.cpp").write_text(
        f'#include "{name}_component.h"\nint main()\n{{\n    esphome::emitc_{name}::Network network;\n    network.setup();\n'
        "    return network.failed || network.run() != EMITC_OK;\n}\n",
        encoding="ascii",
    )
    options = [*WARNINGS, f"-DEMITC_CHECK_OF_{name.upper()}", "-I.", f"-I{component}"]
    for source in sorted(component.glob("*.c")):
        run(["gcc", "-std=gnu11", "-c", str(source)], tmp_path)
    for source in (*sorted(component.glob("*.cpp")), tmp_path / "main.cpp"):
        run(["g++", "-std=gnu++20", *options, "-c", str(source)], tmp_path)
    run(["g++", *sorted(path.name for path in tmp_path.glob("*.o")), "-o", "firmware"], tmp_path)
    assert run(["./firmware"], tmp_path) == "MATCH"


def test_the_python_half_is_python(package: Path) -> None:
    for path in package.rglob("__init__.py"):
        tree = ast.parse(path.read_text(encoding="ascii"))
        names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert names == {"FILTER_SOURCE_FILES", "to_code"}


@pytest.mark.skipif(not ESPHOME, reason="esphome is not installed, and EMITC_ESPHOME does not name it")
def test_esphome_accepts_the_configuration_and_takes_the_runtime_once(package: Path) -> None:
    both = (package / "example.yaml").read_text(encoding="ascii") + "\nemitc_spotter:\n  check: true\n"
    if "emitc_spotter:\n  id" in both:
        both = both.replace("\nemitc_spotter:\n  check: true\n", "\nemitc_jarvis:\n  check: true\n")
    (package / "both.yaml").write_text(both, encoding="ascii")
    run([ESPHOME, "config", "both.yaml"], package)
    run([ESPHOME, "compile", "--only-generate", "both.yaml"], package)
    generated = package / ".esphome" / "build" / "emitc-check" / "src"
    assert len(list(generated.rglob("emitc_runtime.c"))) == 1
    assert "emitc_jarvis::Network()" in (generated / "main.cpp").read_text(encoding="utf-8")


@pytest.mark.skipif(not ESPHOME, reason="esphome is not installed, and EMITC_ESPHOME does not name it")
def test_esphome_refuses_an_unknown_option(package: Path) -> None:
    text = (package / "example.yaml").read_text(encoding="ascii").replace("check: true", "chek: true")
    (package / "wrong.yaml").write_text(text, encoding="ascii")
    done = subprocess.run([ESPHOME, "config", "wrong.yaml"], cwd=package, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "chek" in done.stdout

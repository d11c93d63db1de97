"""The sample of a Zephyr module: built with a stand-in for Zephyr's CMake package, and by twister where Zephyr is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from emitc.compiler import compile_model

yaml = pytest.importorskip("yaml", reason="PyYAML is not installed")

ZEPHYR_CONFIG = """\
macro(zephyr_library_named name)
  set(ZEPHYR_CURRENT_LIBRARY ${name})
  add_library(${name} STATIC)
  target_link_libraries(app PRIVATE ${name})
endmacro()
function(zephyr_library_sources)
  target_sources(${ZEPHYR_CURRENT_LIBRARY} PRIVATE ${ARGN})
endfunction()
function(zephyr_library_compile_options)
  target_compile_options(${ZEPHYR_CURRENT_LIBRARY} PRIVATE ${ARGN})
endfunction()
function(zephyr_include_directories)
  include_directories(${ARGN})
  target_include_directories(app PRIVATE ${ARGN})
endfunction()
enable_language(C)
file(WRITE ${CMAKE_BINARY_DIR}/empty.c "")
add_executable(app empty.c)
file(STRINGS ${CMAKE_CURRENT_SOURCE_DIR}/prj.conf options REGEX "^CONFIG_[A-Z0-9_]+=y$")
foreach(option ${options})
  string(REGEX REPLACE "=y$" "" option ${option})
  set(${option} y)
endforeach()
foreach(module ${ZEPHYR_EXTRA_MODULES})
  file(STRINGS ${module}/zephyr/module.yml folder REGEX "^  cmake: ")
  string(REGEX REPLACE "^  cmake: " "" folder ${folder})
  add_subdirectory(${module}/${folder} module)
endforeach()
"""
"""What `find_package(Zephyr)` does for an application, as far as the sample uses it."""

KEYS = {
    "tags": str,
    "min_ram": int,
    "min_flash": int,
    "integration_platforms": list,
    "harness": str,
    "harness_config": dict,
}
"""Keys of a test in twister's schema, with their types, as far as the sample uses them."""


@pytest.fixture(scope="module")
def package(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("zephyr") / "spotter"
    compile_model(tiny / "spotter.tflite", package="zephyr").write(folder)
    return folder


def test_the_sample_prints_match_with_a_stand_in_for_zephyr(package: Path, tmp_path: Path) -> None:
    (tmp_path / "zephyr").mkdir()
    (tmp_path / "zephyr" / "ZephyrConfig.cmake").write_text(ZEPHYR_CONFIG, encoding="ascii")
    env = os.environ | {"ZEPHYR_BASE": str(tmp_path / "zephyr")}
    configure = ["cmake", "-S", str(package / "samples" / "check"), "-B", "build", "-Wno-dev"]
    for command in (configure, ["cmake", "--build", "build"], ["build/app"]):
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "MATCH\n"


def test_twister_can_read_the_samples_file(package: Path) -> None:
    content = yaml.safe_load((package / "samples" / "check" / "sample.yaml").read_text(encoding="ascii"))
    assert set(content) == {"sample", "tests"}
    assert content["sample"]["name"] == "spotter_check"
    ((name, test),) = content["tests"].items()
    assert name == "emitc.spotter.check"
    assert {key: type(value) for key, value in test.items()} == KEYS
    assert test["harness"] == "console"
    assert test["harness_config"] == {"type": "one_line", "regex": ["^MATCH"]}
    assert 16 < test["min_ram"] < 32 and 48 < test["min_flash"] < 80
    module = yaml.safe_load((package / "zephyr" / "module.yml").read_text(encoding="ascii"))
    assert module == {
        "name": "emitc_spotter",
        "build": {"cmake": "zephyr", "kconfig": "zephyr/Kconfig"},
        "samples": ["samples"],
    }


@pytest.mark.skipif("ZEPHYR_BASE" not in os.environ, reason="ZEPHYR_BASE names no tree of Zephyr")
def test_twister_builds_and_runs_the_sample(package: Path, tmp_path: Path) -> None:
    twister = Path(os.environ["ZEPHYR_BASE"]) / "scripts" / "twister"
    options = ["-T", str(package / "samples"), "-p", "qemu_cortex_m3", "-O", str(tmp_path / "out"), "--inline-logs"]
    done = subprocess.run([sys.executable, str(twister), *options], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

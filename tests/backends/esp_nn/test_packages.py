"""What a package that calls ESP-NN needs, and that it says so where it is built for something else."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from emitc.backends.esp_nn.definition import NAME
from emitc.compiled import Compiled
from emitc.compiler import compile_model

MODEL = Path(__file__).resolve().parents[3] / "examples" / "models" / "digits_int8.tflite"
OPTIMIZED, S3, P4 = "-DCONFIG_NN_OPTIMIZED=1", "-DCONFIG_IDF_TARGET_ESP32S3=1", "-DCONFIG_IDF_TARGET_ESP32P4=1"


def compiled(library: Path, package: str = "plain", target: str = "generic32") -> Compiled:
    return compile_model(MODEL, kernels=NAME, backends={NAME: str(library)}, package=package, target=target)


@pytest.mark.parametrize(
    ("target", "defines", "message"),
    [
        ("esp32c3", [OPTIMIZED], ""),
        ("esp32c3", [OPTIMIZED, S3], "the scratch is that of ESP-NN for C: compile for esp32c3"),
        ("esp32c3", [OPTIMIZED, P4], "the scratch is that of ESP-NN for C: compile for esp32c3"),
        ("esp32s3", [OPTIMIZED, S3], ""),
        ("esp32s3", [], ""),
        ("esp32s3", [OPTIMIZED], "the scratch is that of ESP-NN for ESP32-S3: compile for esp32s3"),
        ("esp32s3", [OPTIMIZED, P4], "the scratch is that of ESP-NN for ESP32-S3: compile for esp32s3"),
        ("esp32p4", [OPTIMIZED, P4], ""),
        ("esp32p4", [OPTIMIZED, S3], "the scratch is that of ESP-NN for ESP32-P4: compile for esp32p4"),
        ("esp32c3", [OPTIMIZED, "-DCONFIG_NN_SKIP_NUDGE=1"], "bits without CONFIG_NN_SKIP_NUDGE only"),
        ("esp32s3", [S3, OPTIMIZED, "-DSKIP_NUDGE"], "bits without CONFIG_NN_SKIP_NUDGE only"),
    ],
)
def test_another_chip_or_rounding_is_an_error_of_the_compiler(
    target: str, defines: list[str], message: str, own: Path, tmp_path: Path
) -> None:
    compiled(own, target=target).write(tmp_path / "package")
    command = ["gcc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-DEMITC_NO_TARGET_WARNING", *defines]
    command += [f"-I{own / 'include'}", "-c", "digits_int8.c", "-o", str(tmp_path / "net.o")]
    done = subprocess.run(command, cwd=tmp_path / "package", capture_output=True, text=True, check=False)
    assert (done.returncode == 0) is (not message), done.stderr
    assert message in done.stderr


def test_the_scratch_of_a_chip_is_in_its_arena(own: Path) -> None:
    arenas = {
        target: compiled(own, target=target).program.plan.arena_bytes for target in ("esp32c3", "esp32s3", "esp32p4")
    }
    assert arenas["esp32c3"] < arenas["esp32p4"] < arenas["esp32s3"]


def test_the_component_asks_for_the_library(own: Path) -> None:
    files = compiled(own, "esp-idf", "esp32s3").files
    assert '  espressif/esp-nn: "==1.2.3"\n' in files["idf_component.yml"].decode()
    assert "  PRIV_REQUIRES esp-nn\n" in files["CMakeLists.txt"].decode()
    header = files["include/emitc_esp_nn.h"].decode()
    assert header.index('#include "sdkconfig.h"') < header.index('#include "esp_nn.h"')
    without = compile_model(MODEL, package="esp-idf", target="esp32s3").files
    assert "esp-nn" not in without["idf_component.yml"].decode() + without["CMakeLists.txt"].decode()


@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")
def test_a_cmake_package_builds_with_the_library_and_prints_match(library: Path, tmp_path: Path) -> None:
    compiled(library, "cmake").write(tmp_path / "package")
    configure = ["cmake", "-S", "package/examples/check", "-B", "build", f"-DESP_NN_PATH={library}"]
    environment = {key: value for key, value in os.environ.items() if key != "ESP_NN_PATH"}
    for command in (configure, ["cmake", "--build", "build"], ["build/digits_int8_check"]):
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == "MATCH\n"

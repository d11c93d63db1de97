"""A package says so where it is compiled for a core without the instructions that its kernels use; a host is quiet."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from emitc.compiler import compile_model
from tests.support.models.onnx_net import OnnxNet

KWS = Path(__file__).resolve().parents[2] / "examples" / "models" / "kws_ref_int8.tflite"
ARM = ["arm-none-eabi-gcc", "-mthumb"]
M0 = [*ARM, "-mcpu=cortex-m0"]
M4 = [*ARM, "-mcpu=cortex-m4"]
M4F = [*M4, "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard"]
M33_WITHOUT = [*ARM, "-mcpu=cortex-m33+nodsp"]
M55 = [*ARM, "-mcpu=cortex-m55", "-mfloat-abi=hard"]
M55_WITHOUT = [*ARM, "-mcpu=cortex-m55+nomve", "-mfloat-abi=hard"]
RISCV = ["riscv64-unknown-elf-gcc", "-march=rv32imac", "-mabi=ilp32", "--specs=picolibc.specs"]
HOST = ["gcc"]
CLANG = ["clang", "--target=thumbv6m-none-eabi", "-ffreestanding"]
STRICT = ["-std=gnu11", "-Wall", "-Wextra", "-Wpedantic", "-O2"]
MESSAGE = re.compile(
    r"#warning \"?(?:net\.c was made for (\S+), and this build has no ([^:]+): results are the same, but slower\.)"
)


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The keyword spotter for four targets, and one of floats for a core with a float unit; folders by target."""
    folder = tmp_path_factory.mktemp("packages")
    for target in ("cortex-m4", "cortex-m55", "cortex-m0", "generic32"):
        compile_model(KWS, name="net", target=target).write(folder / target)
    net = OnnxNet()
    net.output(net.op("Add", net.input((1, 64)), net.input((1, 64))))
    (folder / "sum.onnx").write_bytes(net.serialized())
    compile_model(folder / "sum.onnx", name="net", target="cortex-m4f").write(folder / "cortex-m4f")
    return folder


def said(command: list[str], package: Path, tmp_path: Path, *more: str) -> list[tuple[str, str]]:
    """Target and extension of every warning of the model's source; there is none of another kind."""
    if shutil.which(command[0]) is None:
        pytest.skip(f"{command[0]} is not installed")
    build = [*command, *STRICT, *more, "-c", str(package / "net.c"), "-o", str(tmp_path / "net.o")]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    warnings = re.findall(r"warning: .*", done.stderr)
    assert all("#warning" in line for line in warnings), done.stderr
    return [found.groups() for found in map(MESSAGE.search, warnings) if found]  # type: ignore[misc]


@pytest.mark.parametrize(
    ("command", "target", "lacking"),
    [
        pytest.param(M0, "cortex-m4", ["DSP extension"], id="m4_on_m0"),
        pytest.param(M33_WITHOUT, "cortex-m4", ["DSP extension"], id="m4_on_m33_without"),
        pytest.param(RISCV, "cortex-m4", ["DSP extension"], id="m4_on_riscv"),
        pytest.param(M4, "cortex-m4f", ["float unit"], id="m4f_on_m4"),
        pytest.param(RISCV, "cortex-m4f", ["float unit"], id="m4f_on_riscv"),
        pytest.param(M4F, "cortex-m55", ["vector extension (MVE)"], id="m55_on_m4"),
        pytest.param(M55_WITHOUT, "cortex-m55", ["vector extension (MVE)"], id="m55_on_m55_without"),
        pytest.param(M4, "cortex-m4", [], id="m4"),
        pytest.param(M4F, "cortex-m4f", [], id="m4f"),
        pytest.param(M55, "cortex-m55", [], id="m55"),
        pytest.param(M55, "cortex-m4", [], id="m4_on_m55"),
        pytest.param(M0, "cortex-m0", [], id="m0"),
        pytest.param(M0, "generic32", [], id="any_on_m0"),
        pytest.param(HOST, "cortex-m4", [], id="m4_on_the_host"),
        pytest.param(HOST, "cortex-m55", [], id="m55_on_the_host"),
        pytest.param(HOST, "cortex-m4f", [], id="m4f_on_the_host"),
    ],
)
def test_each_extension_that_is_missing_is_named(
    command: list[str], target: str, lacking: list[str], packages: Path, tmp_path: Path
) -> None:
    found = said(command, packages / target, tmp_path)
    assert set(found) == {(target, each) for each in lacking}


def test_the_switch_makes_it_quiet(packages: Path, tmp_path: Path) -> None:
    assert said(M0, packages / "cortex-m4", tmp_path, "-Werror", "-DEMITC_NO_TARGET_WARNING") == []


def test_clang_says_it_too(packages: Path, tmp_path: Path) -> None:
    library = shutil.which("arm-none-eabi-gcc")
    if library is None or shutil.which("clang") is None:
        pytest.skip("clang and the C library of arm-none-eabi-gcc are not installed")
    asked = subprocess.run([library, "-print-file-name=libc.a"], capture_output=True, text=True, check=True)
    headers = Path(asked.stdout.strip()).resolve().parents[1] / "include"
    build = [*CLANG, "-isystem", str(headers), "-std=c11", "-c", "net.c", "-o", str(tmp_path / "net.o")]
    done = subprocess.run(build, cwd=packages / "cortex-m4", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "net.c was made for cortex-m4, and this build has no DSP extension" in done.stderr

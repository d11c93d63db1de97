"""What the objects of a package need of the C library on each core: memory functions, and math.h for float operators alone."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from emitc.compiler import compile_model
from emitc.target import load_target
from tests.support.models.onnx_net import OnnxNet

MODELS = Path(__file__).resolve().parents[2] / "examples" / "models"
MEMORY = {"memcpy", "memmove", "memset", "memcmp"}
# Arithmetic that the core lacks, which the compiler's own library has: libgcc's names start so.
ARITHMETIC = re.compile(r"__\w+")
CORES = {"cortex-m0": [], "cortex-m4f": [], "cortex-m55": [], "rv32imac": ["--specs=picolibc.specs"]}


def needed(model: Path, core: str, folder: Path) -> tuple[set[str], str]:
    """Symbols that the model's object needs from outside of the package and of libgcc, and its source."""
    target = load_target(core)
    if shutil.which(f"{target.compiler_prefix}gcc") is None:
        pytest.skip(f"{target.compiler_prefix}gcc is not installed")
    compiled = compile_model(model, name="net", target=core)
    compiled.write(folder / "net")
    build = [f"{target.compiler_prefix}gcc", *target.compiler_flags, *CORES[core], "-std=c11", "-O2", "-c", "net.c"]
    subprocess.run(build, cwd=folder / "net", check=True)
    listing = subprocess.run(
        [f"{target.compiler_prefix}nm", "-u", "net.o"], cwd=folder / "net", capture_output=True, text=True, check=True
    ).stdout
    symbols = set(re.findall(r"\bU (\w+)$", listing, re.MULTILINE)) - {"emitc_runtime_version"}
    source = (folder / "net" / "net.c").read_text(encoding="ascii")
    return {symbol for symbol in symbols if not ARITHMETIC.fullmatch(symbol)}, source


@pytest.mark.parametrize("core", CORES)
def test_an_integer_model_needs_memory_functions_alone(core: str, tmp_path: Path) -> None:
    symbols, source = needed(MODELS / "kws_ref_int8.tflite", core, tmp_path)
    assert symbols <= MEMORY
    assert "#include <math.h>" not in source


@pytest.mark.parametrize("core", CORES)
def test_a_source_that_calls_the_math_library_says_so(core: str, tmp_path: Path) -> None:
    net = OnnxNet()
    net.output(net.op("Sqrt", net.input((1, 64))))
    (tmp_path / "root.onnx").write_bytes(net.serialized())
    symbols, source = needed(tmp_path / "root.onnx", core, tmp_path)
    assert "sqrtf" in symbols
    assert symbols <= MEMORY | {"sqrtf"}
    assert "#include <math.h>" in source

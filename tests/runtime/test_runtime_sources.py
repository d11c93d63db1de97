"""c_runtime as a library: small, alone, without heap and globals, and must-check calls."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from emitc.emit.package import runtime_files
from emitc.target import load_target
from tests.support.runtime import INCLUDES
from tests.support.runtime import SOURCE as RUNTIME_SOURCE

SOURCES = sorted(runtime_files().values())


def test_it_is_two_files_of_under_500_lines_and_a_header_for_each_instruction_set() -> None:
    common = [p for p in SOURCES if p.stem == "emitc_runtime"]
    assert [p.suffix for p in common] == [".c", ".h"]
    assert sum(len(p.read_text(encoding="ascii").splitlines()) for p in common) < 500
    others = {p.name: len(p.read_text(encoding="ascii").splitlines()) for p in SOURCES if p not in common}
    assert set(others) == {
        "emitc_bits.h",
        "emitc_dsp.h",
        "emitc_dsp_pool.h",
        "emitc_dsp_int16.h",
        "emitc_dsp_depthwise.h",
        "emitc_dsp_dual.h",
        "emitc_dsp_pixels.h",
        "emitc_dsp_planes.h",
        "emitc_dsp_signal.h",
        "emitc_dsp_span.h",
        "emitc_dsp_tile.h",
        "emitc_dsp_winograd.h",
        "emitc_erf.h",
        "emitc_exp.h",
        "emitc_fpu.h",
        "emitc_fpu_elementwise.h",
        "emitc_fpu_erf.h",
        "emitc_fpu_exp.h",
        "emitc_fpu_dot.h",
        "emitc_fpu_tanh.h",
        "emitc_fpu_isqrt.h",
        "emitc_fpu_norm.h",
        "emitc_fpu_pool.h",
        "emitc_mve.h",
        "emitc_mve_copy.h",
        "emitc_mve_depthwise.h",
        "emitc_mve_erf.h",
        "emitc_mve_exp.h",
        "emitc_mve_uint32.h",
        "emitc_mve_float_compare.h",
        "emitc_mve_dot_float.h",
        "emitc_mve_tanh.h",
        "emitc_mve_float32.h",
        "emitc_mve_norm.h",
        "emitc_mve_outputs.h",
        "emitc_weights.h",
        "emitc_weights_fours.h",
        "emitc_mve_pairs.h",
        "emitc_mve_row.h",
        "emitc_mve_softmax.h",
        "emitc_mve_sums.h",
        "emitc_mve_int16.h",
        "emitc_mve_signal.h",
        "emitc_mve_dot_int8.h",
        "emitc_isqrt.h",
        "emitc_profile.h",
        "emitc_tanh.h",
        "emitc_scalar.h",
        "emitc_self_test.h",
        "emitc_transfers.h",
        "emitc_xpulp.h",
        "emitc_xpulp_windows.h",
        "emitc_rvv.h",
        "emitc_scalar_eights.h",
        "emitc_scalar_fours.h",
        "emitc_scalar_winograd.h",
    }
    assert max(others.values()) < 600


def test_it_includes_and_calls_nothing_of_the_library() -> None:
    for path in SOURCES:
        text = path.read_text(encoding="ascii")
        allowed = {"stdbool.h", "stddef.h", "stdint.h", "string.h"} | (
            {"emitc_mve.h": {"arm_mve.h"}, "emitc_rvv.h": {"riscv_vector.h"}}.get(path.name, set())
        )
        assert set(re.findall(r"#include <(\S+)>", text)) <= allowed
        assert not re.search(r"\b(malloc|calloc|realloc|free|printf|alloca|abort|assert)\s*\(", text)


@pytest.mark.parametrize("core", ["", "cortex-m0", "cortex-m3", "cortex-m4f", "cortex-m55", "rv32imac"])
def test_a_package_may_need_all_headers(core: str, tmp_path: Path) -> None:
    """No two have a name in common, on this machine and on any core."""
    lines = [f'#include "{path.name}"' for path in SOURCES if path.suffix == ".h"]
    (tmp_path / "all.c").write_text("\n".join(lines) + "\n", encoding="ascii")
    compiler = ["gcc"]
    if core:
        described = load_target(core)
        compiler = [f"{described.compiler_prefix}gcc", *described.compiler_flags]
        compiler += ["--specs=picolibc.specs"] if core == "rv32imac" else []
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"{compiler[0]} is not installed")
    command = [*compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", *INCLUDES, "-c", "all.c"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


def test_its_object_has_no_data_and_needs_no_symbol(tmp_path: Path) -> None:
    source = str(RUNTIME_SOURCE)
    subprocess.run(["gcc", "-std=c11", "-Os", "-c", source], check=True, cwd=tmp_path)
    listing = subprocess.run(["nm", "emitc_runtime.o"], capture_output=True, text=True, check=True, cwd=tmp_path).stdout
    assert re.findall(r"[bBdDCU] \w+$", listing, re.M) == []
    assert set(re.findall(r" T (\w+)$", listing, re.M)) == {"emitc_status_string", "emitc_runtime_version"}
    sections = subprocess.run(
        ["size", "-A", "emitc_runtime.o"], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    sizes = {name: int(size) for name, size in re.findall(r"^(\.data|\.bss)\s+(\d+)", sections.stdout, re.M)}
    assert sizes == {".data": 0, ".bss": 0}


@pytest.mark.parametrize("name", ["init", "run", "reset"])
def test_an_ignored_status_is_a_warning(name: str, tiny: Path, tmp_path: Path) -> None:
    from emitc.compiler import compile_model

    compile_model(tiny / "wires.tflite").write(tmp_path / "package")
    arguments = "m, a, WIRES_ARENA_BYTES, NULL, 0" if name == "init" else "m"
    function = f"void f(wires_t *m, void *a)\n{{\n    (void)a;\n    wires_{name}({arguments});\n}}\n"
    text = f'#include "wires.h"\nvoid f(wires_t *m, void *a);\n{function}'
    (tmp_path / "ignore.c").write_text(text, encoding="ascii")
    command = ["gcc", "-std=c11", "-Wall", "-Werror", "-I", "package", "-c", "ignore.c"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode != 0
    assert "unused-result" in done.stderr

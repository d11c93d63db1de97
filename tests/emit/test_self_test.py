"""`--self-test`: every flipped bit of a constant and every wrong layer is named, and what cannot be tested is refused."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.emit.package import runtime_files
from emitc.errors import CannotCompile, EmitcError
from emitc.planner.region_assignment import Region
from emitc.verify.build import run_compiler, sources
from emitc.verify.reference import random_samples
from emitc.verify.verification import verify
from emitc.writers.tflite import write_tflite
from tests.support.cmsis.library import SKIPPED, trees
from tests.support.emit.self_test_host import Outcome, self_tested
from tests.support.firmware import run
from tests.support.models import control_flow, streaming

MODELS = Path(__file__).resolve().parents[2] / "examples" / "models"
KWS = MODELS / "kws_ref_int8.tflite"
STATUS = int(
    re.findall(r"EMITC_SELF_TEST_FAILED = (\d+)", runtime_files()["emitc_runtime.h"].read_text(encoding="ascii"))[0]
)
CONSTANTS, RESULT = 1, 2
ARRAY = re.compile(r"^(?:_Alignas\(\d+\) )?(?:static )?const (?:struct )?\w+ (\w+)(?:\[\d+\])? = \{$", re.MULTILINE)
SRAM = Region("SRAM", 200000, 4.0)
VARIANTS: dict[str, dict[str, Any]] = {
    "generic": {},
    "dsp": {"target": "cortex-m4f"},
    "mve": {"target": "cortex-m55"},
    "split": {"split_weights": True},
    "rows": {"input_rows": True},
    "regions": {"regions": (Region("DTCM", 10000, 1.0), SRAM), "places": (("weights", "SRAM"),)},
    "external": {"weights": "external", "target": "cortex-m55"},
    "staged": {"regions": (Region("DTCM", 20000, 1.0), SRAM), "stage_weights": "DTCM"},
}


def require_right(tested: Outcome, checks: int) -> None:
    """Without a fault it passes, and each wrong layer is named, at the first stored input."""
    assert [(line.status, line.part, line.layer) for line in tested.plain] == [(0, 0, "")] * 2
    assert len(tested.layers) == checks > 0
    for line in tested.layers:
        assert (line.status, line.part, line.input) == (STATUS, RESULT, 0)
        assert line.index == line.number and line.layer.startswith(f"op{line.number}_")


def checks(compiled: Compiled) -> int:
    assert compiled.program.self_test is not None
    return len(compiled.program.self_test.checks)


def test_each_bit_of_a_small_net_is_seen(tiny: Path, tmp_path: Path) -> None:
    compiled = compile_model(tiny / "spotter.tflite", self_test=2)
    tested = self_tested(compiled, tmp_path, every=1)
    require_right(tested, checks(compiled))
    assert tested.missed == 0
    assert tested.flips >= 8 * compiled.program.constant_bytes


@pytest.mark.parametrize("name", ["person_detect_int8.tflite", "digits_qdq.onnx", "mww_hey_jarvis_v2.tflite"])
def test_bits_of_larger_nets_are_seen(name: str, tmp_path: Path) -> None:
    compiled = compile_model(MODELS / name, self_test=1, target="cortex-m4f")
    tested = self_tested(compiled, tmp_path, every=8 * compiled.program.constant_bytes // 60)
    require_right(tested, checks(compiled))
    assert tested.missed == 0 and tested.flips >= 60


@pytest.mark.parametrize("variant", VARIANTS)
def test_each_wrong_layer_is_named(variant: str, tmp_path: Path) -> None:
    compiled = compile_model(KWS, self_test=1, **VARIANTS[variant])
    tested = self_tested(compiled, tmp_path, every=20011)
    require_right(tested, checks(compiled))
    assert tested.missed == 0 < tested.flips


@pytest.mark.skipif(not trees(), reason=SKIPPED)
def test_layers_of_a_kernel_library(tmp_path: Path) -> None:
    library = {"cmsis-nn": str(trees()[0].root)}
    compiled = compile_model(KWS, self_test=1, kernels="cmsis-nn", target="cortex-m4f", backends=library)
    assert sum(step.fallible for step in compiled.program.steps) > 5
    tested = self_tested(compiled, tmp_path, every=20011)
    require_right(tested, checks(compiled))
    assert tested.missed == 0 < tested.flips


def test_layers_that_run_row_by_row_are_checked_by_their_last_one(tiny: Path, tmp_path: Path) -> None:
    compiled = compile_model(tiny / "camera.tflite", self_test=2, input_rows=True)
    assert compiled.program.segments
    require_right(self_tested(compiled, tmp_path), checks(compiled))


@pytest.mark.parametrize("name", ["rows", "channels", "words", "accumulator"])
def test_models_with_state(name: str, tmp_path: Path) -> None:
    path = tmp_path / "model.tflite"
    path.write_bytes(write_tflite(getattr(streaming, name)()))
    compiled = compile_model(path, self_test=3)
    tested = self_tested(compiled, tmp_path, every=5)
    assert [line.status for line in tested.plain] == [0, 0]
    assert tested.missed == 0 < tested.flips


@pytest.mark.parametrize("name", ["choice", "nested", "state_deep"])
def test_graphs_inside_of_operators(name: str, tmp_path: Path) -> None:
    compiled = control_flow.compiled(getattr(control_flow, name)(), tmp_path, self_test=2)
    tested = self_tested(compiled, tmp_path, every=3)
    require_right(tested, checks(compiled))
    assert tested.missed == 0 < tested.flips


@pytest.mark.parametrize("variant", ["generic", "dsp", "staged"])
def test_all_constants_are_read(variant: str) -> None:
    made = compile_model(KWS, self_test=1, **VARIANTS[variant])
    text = made.files["kws_ref_int8.c"].decode()
    listed = re.findall(r"^    \{&?(\w+), sizeof \w+\},$", text, re.MULTILINE)
    assert set(listed) == {name for name in ARRAY.findall(text) if name not in OWN} and len(listed) > 40


OWN = {"self_test_remainders"}
"""Constants of the test itself, whose wrong bits are wrong CRCs."""


def test_the_proof_holds_and_other_packages_have_nothing_of_it(tiny: Path) -> None:
    made = compile_model(tiny / "spotter.tflite", self_test=2)
    assert verify(made, samples=3, layers=True, sanitize=True).match
    plain = compile_model(tiny / "spotter.tflite")
    assert not any("self_test" in data.decode() for data in plain.files.values())
    assert "emitc_self_test.h" in made.files


SEQUENCE = """
#include <stdio.h>
#include <string.h>
#include "@name@.h"
static _Alignas(16) unsigned char arena[@M@_ARENA_BYTES], state[@M@_STATE_BYTES], other[@M@_STATE_BYTES];
static signed char inputs[4][@M@_INPUT_0_BYTES];
int main(void)
{
    static unsigned char first[4][@M@_OUTPUT_0_BYTES];
    emitc_test_fault fault;
    for (int round = 0; round < 2; round++) {
        @name@_t model;
        int status = @name@_init(&model, arena, sizeof arena, state, sizeof state);
        for (int i = 0; i < 4; i++) {
            memset(inputs[i], 40 * i - 60, sizeof inputs[i]);
            if (round == 1 && i == 2) {
                status |= @name@_self_test(arena, sizeof arena, other, sizeof other, &fault);
            }
            memcpy(@name@_input_0(&model), inputs[i], sizeof inputs[i]);
            status |= @name@_run(&model);
            if (round == 0) {
                memcpy(first[i], @name@_output_0(&model), sizeof first[i]);
            } else if (memcmp(first[i], @name@_output_0(&model), sizeof first[i]) != 0) {
                return 10 + i;
            }
        }
        if (status != 0) {
            return 2;
        }
    }
    if (@name@_self_test(arena, sizeof arena, other, 0, &fault) != EMITC_STATE_TOO_SMALL) {
        return 3;
    }
    if (@name@_self_test(arena, sizeof arena, other, sizeof other, NULL) != EMITC_INVALID_ARGUMENT) {
        return 4;
    }
    return memcmp(first[1], first[2], sizeof first[1]) == 0 ? 5 : 0;
}
"""


def test_a_sequence_goes_on_after_a_test_in_another_state_block(tmp_path: Path) -> None:
    path = tmp_path / "kept.tflite"
    path.write_bytes(write_tflite(streaming.rows()))
    compiled = compile_model(path, self_test=2)
    compiled.write(tmp_path / "package")
    files, includes = sources(tmp_path / "package")
    main = tmp_path / "main.c"
    main.write_text(SEQUENCE.replace("@name@", "kept").replace("@M@", "KEPT"), encoding="ascii")
    run_compiler(["-O1", "-I", str(includes[0]), str(main), *map(str, files), "-o", str(tmp_path / "main"), "-lm"])
    assert subprocess.run([tmp_path / "main"], check=False).returncode == 0


def test_inputs_of_a_file(tmp_path: Path) -> None:
    graph = compile_model(KWS).graph
    cases = random_samples(graph, 3, 7)
    right = tmp_path / "right.npz"
    np.savez(right, **{f"in0_{k}": case[0] for k, case in enumerate(cases)})
    compiled = compile_model(KWS, self_test=2, self_test_vectors=right)
    assert compiled.program.self_test is not None
    stored = compiled.program.self_test.inputs[0].table.values
    assert stored == tuple(np.concatenate([cases[0][0].reshape(-1), cases[1][0].reshape(-1)]).tolist())
    require_right(self_tested(compiled, tmp_path), checks(compiled))
    assert "--self-test 2 --self-test-vectors right.npz" in compiled.program.origin.options


def test_vectors_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    values = np.load(MODELS / "kws_ref_int8.npz")
    wrong = tmp_path / "wrong.npz"
    np.savez(wrong, in0_0=values["in0_0"], out0_0=values["out0_0"] ^ 1)
    with pytest.raises(EmitcError, match="not of this model"):
        compile_model(KWS, self_test=1, self_test_vectors=wrong)
    with pytest.raises(EmitcError, match="there are no 64 cases"):
        compile_model(KWS, self_test=64, self_test_vectors=MODELS / "kws_ref_int8.npz")
    with pytest.raises(EmitcError, match="has no effect"):
        compile_model(KWS, self_test_vectors=wrong)
    for count in (-1, 65):
        with pytest.raises(EmitcError, match="no number of stored inputs"):
            compile_model(KWS, self_test=count)
    noise = tmp_path / "noise.npz"
    noise.write_bytes(b"PK\3\4" + bytes(range(200)))
    with pytest.raises(EmitcError, match="cannot be used as vectors"):
        compile_model(KWS, self_test=1, self_test_vectors=noise)


def test_what_cannot_be_tested_is_refused(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(CannotCompile, match="cannot test itself"):
        compile_model(tiny / "wires.tflite", self_test=1)
    with pytest.raises(CannotCompile, match="cannot test itself"):
        control_flow.compiled(control_flow.count(), tmp_path, self_test=1)


MAIN = """
#include "kws_ref_int8.h"
static _Alignas(16) unsigned char arena[KWS_REF_INT8_ARENA_BYTES];
kws_ref_int8_t model;
volatile int result;
void _start(void);
void _start(void)
{
    result = kws_ref_int8_init(&model, arena, sizeof arena, NULL, 0) | kws_ref_int8_run(&model);
#if defined(TESTED)
    emitc_test_fault fault;
    result |= kws_ref_int8_self_test(arena, sizeof arena, NULL, 0, &fault);
#endif
}
"""


def test_it_takes_less_than_three_kilobytes_of_flash(tmp_path: Path) -> None:
    sizes = []
    for count in (0, 1):
        folder = tmp_path / str(count)
        compiled = compile_model(KWS, target="cortex-m4f", self_test=count)
        compiled.write(folder)
        (folder / "main.c").write_text(MAIN, encoding="ascii")
        flags = ["-mcpu=cortex-m4", "-mthumb", "-mfloat-abi=hard", "-mfpu=fpv4-sp-d16", "-O2", "-ffunction-sections"]
        flags += ["-fdata-sections", "-nostartfiles", "--specs=nano.specs", "-Wl,--gc-sections", "-Wno-unused-result"]
        flags += ["-DTESTED"] if count else []
        names = [path.name for path in sorted(folder.glob("*.c"))]
        run(["arm-none-eabi-gcc", *flags, *names, "-o", "firmware.elf"], folder)
        printed = run(["arm-none-eabi-size", "firmware.elf"], folder)
        text, data, *_ = printed.splitlines()[1].split()
        sizes.append(int(text) + int(data))
    test = compiled.program.self_test
    assert test is not None
    taken = sizes[1] - sizes[0] - test.input_bytes
    assert 0 < taken < 3072
    estimate = test.cost(compiled.program)["flash_bytes_estimated"]
    assert abs(estimate - taken) < 0.25 * taken


def test_it_compiles_with_clang_and_as_a_header_of_cpp(tmp_path: Path) -> None:
    if shutil.which("clang") is None or shutil.which("g++") is None:
        pytest.skip("clang or g++ is not installed")
    compile_model(KWS, self_test=1).write(tmp_path / "package")
    strict = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]
    package = tmp_path / "package"
    run(["clang", "-std=c11", *strict, "-O2", "-c", "kws_ref_int8.c", "-o", "a.o"], package)
    (package / "user.cpp").write_text(
        '#include "kws_ref_int8.h"\nint use(void *a, emitc_test_fault *f)\n{\n'
        "    return kws_ref_int8_self_test(a, KWS_REF_INT8_ARENA_BYTES, nullptr, 0, f);\n}\n",
        encoding="ascii",
    )
    run(["g++", "-std=c++11", *strict, "-c", "user.cpp", "-o", "b.o"], package)

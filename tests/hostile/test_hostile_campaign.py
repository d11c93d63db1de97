"""Damaged model files end in success or in exit code 2 with a message: no traceback, no hang, no gigabytes."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from emitc.compiler import compile_model
from emitc.verify.build import WARNINGS, compiler_command
from emitc.verify.verification import verify
from tests.support.hostile import onnx_models
from tests.support.hostile.campaign import Case, failures, onnx_jobs, quantizer_jobs, run, table, tflite_jobs
from tests.support.hostile.child import damagers
from tests.support.hostile.models import corpus, made

FAST = 10
SWEEP = 2000
TFLITE_PARTS = 40
ONNX_PARTS = 30
QUANTIZED = 480
QUANTIZER_PARTS = 40
BUILT = 60
SMALL = 1 << 22
"""Bytes of arena, and multiplications, of a program that is run."""


def test_the_intact_models_compile(tmp_path: Path) -> None:
    for name, data in corpus().items():
        (tmp_path / f"{name}.tflite").write_bytes(data)
        assert compile_model(tmp_path / f"{name}.tflite").files


def test_the_intact_onnx_models_compile(tmp_path: Path) -> None:
    (tmp_path / onnx_models.DATA_FILE).write_bytes(onnx_models.DATA)
    for name, data in onnx_models.corpus().items():
        (tmp_path / f"{name}.onnx").write_bytes(data)
        assert compile_model(tmp_path / f"{name}.onnx").files


def test_damaged_files_are_refused_or_compiled() -> None:
    cases = run([(name, 10_000, 10_000 + FAST) for name in corpus()], processes=2, seconds=300)
    assert len(cases) == FAST * len(corpus()), table(cases)
    assert failures(cases, honest=False) == []
    assert {case.outcome for case in cases} == {"ok", "refused"}


def test_wrong_descriptions_are_refused_or_compiled() -> None:
    cases = run([(f"{name} described wrongly", 10_000, 10_000 + 2 * FAST) for name in made()], processes=2, seconds=300)
    assert len(cases) == 2 * FAST * len(made()), table(cases)
    assert failures(cases, honest=True) == []


def build_successes(cases: list[Case], count: int, folder: Path) -> None:
    """Compiles the C of some of the damaged files that were accepted."""
    known = damagers()
    successes = [case for case in cases if case.outcome == "ok"]
    (folder / onnx_models.DATA_FILE).write_bytes(onnx_models.DATA)
    for case in random.Random(0).sample(successes, min(count, len(successes))):
        damager = known[case.model]
        path = folder / f"model{damager.suffix}"
        path.write_bytes(damager.damaged(case.number)[1])
        compile_model(path, name="model").write(folder / "package")
        source = folder / "package" / "model.c"
        command = [*compiler_command(), *WARNINGS, "-c", "-O1", str(source), "-o", str(folder / "o")]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, f"{case.model} {case.number} ({case.kind})\n{done.stderr}"


@pytest.mark.sweep(keep=1)
@pytest.mark.parametrize("part", range(TFLITE_PARTS))
def test_sweep_of_damaged_files(part: int, tmp_path: Path) -> None:
    each = -(-SWEEP // TFLITE_PARTS)
    files, specs = tflite_jobs(each, part * each)
    cases, wrong = run(files, processes=1), run(specs, processes=1)
    print(table(cases + wrong))
    assert len(cases) == sum(last - first for _, first, last in files) >= each
    assert failures(cases, honest=False) + failures(wrong, honest=True) == []
    build_successes(cases + wrong, BUILT // TFLITE_PARTS, tmp_path)


def prove_successes(cases: list[Case], count: int, folder: Path) -> None:
    """Runs the C of some of the damaged files that were accepted, under sanitizers, against the numpy reference."""
    known = damagers()
    successes = [case for case in cases if case.outcome == "ok"]
    (folder / onnx_models.DATA_FILE).write_bytes(onnx_models.DATA)
    for case in random.Random(1).sample(successes, len(successes)):
        path = folder / f"model{known[case.model].suffix}"
        path.write_bytes(known[case.model].damaged(case.number)[1])
        compiled = compile_model(path, name="model")
        if compiled.program.macs > SMALL or compiled.program.plan.arena_bytes > SMALL:
            continue
        proof = verify(compiled, reference="numpy", samples=1, sanitize=True)
        assert proof.match, f"{case.model} {case.number} ({case.kind})\n{proof}"
        count -= 1
        if count == 0:
            return


@pytest.mark.sweep(keep=1)
@pytest.mark.parametrize("part", range(ONNX_PARTS))
def test_damaged_onnx_files_are_refused_or_compiled(part: int, tmp_path: Path) -> None:
    """A file with a name changed in it may be a right model of an operator that has no code; one cut short never is."""
    each = -(-SWEEP // ONNX_PARTS)
    jobs = onnx_jobs(each, part * each)
    cases = run(jobs, processes=1)
    print(table(cases))
    assert len(cases) == sum(last - first for _, first, last in jobs) >= each
    assert failures(cases, honest=True) == []
    assert {case.outcome for case in cases} >= {"ok", "refused"}
    assert {case.outcome for case in cases if case.kind == "truncate"} <= {"refused"}
    build_successes(cases, 2, tmp_path)
    prove_successes(cases, 1, tmp_path)


@pytest.mark.sweep(keep=1)
@pytest.mark.parametrize("part", range(QUANTIZER_PARTS))
def test_damaged_float_models_are_refused_or_quantized(part: int) -> None:
    pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")
    each = -(-QUANTIZED // QUANTIZER_PARTS)
    cases = run(quantizer_jobs(each, part * each), processes=1)
    print(table(cases))
    assert len(cases) >= each
    assert failures(cases, honest=True) == []
    assert {case.commands["quantize"] for case in cases} >= {"ok", "refused"}

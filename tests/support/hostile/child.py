"""Runs emitc's commands on many damaged files, each in a process of its own under hard limits, and prints one JSON line for each.

Run as `python hostile_child.py MODEL:FIRST:LAST ...`. Limits of a command: 1 GiB of address space, 10 seconds of processor
time. Every file goes through `emitc compile` and `emitc inspect`, one in five through `emitc plan` too; a float model
through `emitc quantize` as well, under limits of the engine's own size. Outcome of a case: what compiling ended in: `ok`,
`refused` (exit code 2) or `cannot` (exit code 1), both with a message of the right form; or, from any of the commands,
`bug` (a traceback, another exit code, or a message of the wrong form), `hang` or `died` (a signal ended it).
"""

from __future__ import annotations

import json
import math
import os
import resource
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import onnx

import emitc.compiler
import emitc.emit.manifest
import emitc.report.compile
import emitc.report.inspection
import emitc.report.verify
from emitc.cli.main import main as emitc_command
from tests.support.hostile import onnx_models
from tests.support.hostile.models import SpecDamager, corpus, made
from tests.support.hostile.mutations import Damager
from tests.support.hostile.onnx_bytes import OnnxByteDamager
from tests.support.hostile.onnx_mutations import OnnxDamager

MEMORY_BYTES = 1 << 30
SECONDS = 10
QUANTIZER_LIMITS = 4 << 30, 120
"""ONNX Runtime reserves more address space than it uses, and its quantizer takes a minute for three thousand operators."""
PLAN_EVERY = 5
PARTS = ("what", "where", "why", "hint")
ENDS = {0: "ok", 1: "cannot", 2: "refused"}


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended. code: its exit code, negative for a signal. seconds: of processor time."""

    code: int
    out: str
    errors: str
    seconds: float
    peak_kib: int


def _become(arguments: list[str], out: Path, errors: Path, address_bytes: int, seconds: int) -> None:
    """Makes this process the command; does not come back."""
    code = 70
    try:
        for stream, path in ((1, out), (2, errors)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), stream)
        sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
        resource.setrlimit(resource.RLIMIT_AS, (address_bytes, address_bytes))
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        sys.argv = ["emitc", *arguments]
        emitc_command()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 71
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def run_command(arguments: list[str], folder: Path) -> Ended:
    """`emitc ARGUMENTS` in a process of its own, forked from this one, which has everything imported."""
    out, errors = folder / "stdout", folder / "stderr"
    limits = QUANTIZER_LIMITS if arguments[0] == "quantize" else (MEMORY_BYTES, SECONDS)
    sys.stdout.flush()
    process = os.fork()
    if process == 0:
        _become(arguments, out, errors, *limits)
    _, status, usage = os.wait4(process, 0)
    texts = [path.read_text(encoding="utf-8", errors="surrogateescape") for path in (out, errors)]
    code = os.waitstatus_to_exitcode(status)
    return Ended(code, texts[0], texts[1], round(usage.ru_utime + usage.ru_stime, 3), usage.ru_maxrss)


def harmless(text: str) -> bool:
    """Whether a message can be printed: ASCII without control characters but line ends."""
    return all(" " <= c <= "~" or c == "\n" for c in text)


def _flaw(content: Mapping[str, Any], ended: Ended) -> str:
    """What is wrong with the form of a refusal, "" when nothing is."""
    if not harmless(ended.errors):
        return "the message has characters that do not belong on a terminal"
    if not ended.errors.startswith("error: "):
        return "the message does not say that it is an error"
    reported = content.get("error")
    if not isinstance(reported, list) or not reported:
        return "the object on stdout does not have the errors"
    full = all(report[part] for report in reported for part in PARTS)
    return "" if full else "the message has an empty part"


def verdict(ended: Ended, *, as_json: bool = True) -> tuple[str, str]:
    """(outcome, message) of a command that ran with --json, or for a person."""
    if ended.code in (-signal.SIGXCPU, -signal.SIGKILL):
        return "hang", ended.errors[-2000:]
    if ended.code < 0:
        return "died", f"signal {-ended.code}: {ended.errors[-2000:]}"
    if ended.code not in ENDS or "Traceback (most recent call last)" in ended.errors:
        return "bug", f"exit code {ended.code}\n{ended.errors[-4000:]}"
    try:
        content = json.loads(ended.out) if as_json else {"error": [dict.fromkeys(PARTS, "said")]}
    except ValueError:
        return "bug", f"stdout is not one JSON object: {ended.out[:500]!r}\n{ended.errors[-1000:]}"
    if ended.code == 0:
        if not harmless(ended.out):
            return "bug", f"the text has characters that do not belong on a terminal: {ended.out[:4000]!r}"
        return ("bug", f"a word on stderr: {ended.errors[-1000:]}") if ended.errors else ("ok", "")
    flaw = _flaw(content, ended)
    return ("bug", f"{flaw}: {ended.errors[-2000:]!r}") if flaw else (ENDS[ended.code], ended.errors)


def outcome_of(
    path: Path, folder: Path, *, as_json: bool = True, plan: bool = False, quantize: bool = False
) -> dict[str, Any]:
    """What the commands on the file end in: the outcome of compiling, or the first that must not be, with its message.

    as_json: whether inspect and plan speak JSON; compile and quantize always do.
    """
    package, made_by = folder / "package", folder / "quantized.onnx"
    compiled = run_command(["compile", str(path), "--name", "model", "-o", str(package), "--json"], folder)
    shutil.rmtree(package, ignore_errors=True)
    results = {"compile": (compiled, verdict(compiled))}
    form = ["--json"] if as_json else []
    commands = {"inspect": ["inspect", str(path), *form]}
    if plan:
        commands["plan"] = ["plan", str(path), *form]
    if quantize:
        calibration = str(folder / "calibration.npz")
        commands["quantize"] = ["quantize", str(path), "--calibration", calibration, "-o", str(made_by), "--json"]
    for name, arguments in commands.items():
        ended = run_command(arguments, folder)
        results[name] = ended, verdict(ended, as_json="--json" in arguments)
    made_by.unlink(missing_ok=True)
    outcome, message = results["compile"][1]
    for name, (_, (ending, text)) in results.items():
        if ending not in ENDS.values():
            outcome, message = ending, f"{name}: {text}"
            break
        contradicts = (name == "inspect" and (ending == "cannot" or outcome == "ok" != ending)) or (
            name == "plan" and ending != outcome
        )
        if contradicts:
            outcome, message = "bug", f"{name} ends in {ending}, compile in {outcome}: {text or message}"
            break
    return {
        "outcome": outcome,
        "message": message,
        "seconds": max(ended.seconds for ended, _ in results.values()),
        "peak_kib": max(ended.peak_kib for ended, _ in results.values()),
        "commands": {name: ending for name, (_, (ending, _)) in results.items()},
    }


AnyDamager = Damager | SpecDamager | OnnxByteDamager | OnnxDamager


def damagers() -> dict[str, AnyDamager]:
    """Every way to damage every model, by name."""
    files = [Damager(name, data) for name, data in corpus().items()]
    specs = [SpecDamager(name, spec) for name, spec in made().items()]
    onnx_files = (onnx_models.corpus() | onnx_models.floats()).items()
    onnx_damagers = [kind(name, data) for name, data in onnx_files for kind in (OnnxByteDamager, OnnxDamager)]
    return {damager.name: damager for damager in (*files, *specs, *onnx_damagers)}


def write_calibration(path: Path, data: bytes) -> None:
    """Two samples for a float model of one input."""
    dims = onnx.ModelProto.FromString(data).graph.input[0].type.tensor_type.shape.dim
    values = np.linspace(-1, 1, 2 * math.prod(d.dim_value for d in dims), dtype=np.float32)
    samples = values.reshape(2, *(d.dim_value for d in dims))
    with path.open("wb") as file:
        np.savez(file, in0_0=samples[0], in0_1=samples[1])


def warm_up(folder: Path) -> None:
    """Compiles one model of either format, so that a command's process starts with everything imported."""
    for name, data in (
        ("w.tflite", next(iter(corpus().values()))),
        ("w.onnx", onnx_models.real().SerializeToString()),
    ):
        (folder / name).write_bytes(data)
        emitc.compiler.compile_model(folder / name, name="model")


def main(arguments: list[str]) -> None:
    """Runs the cases that the arguments name."""
    known = damagers()
    quantized = onnx_models.floats()
    if any(argument.startswith(f"{name} ") for argument in arguments for name in quantized):
        import onnxruntime.quantization  # noqa: F401
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / onnx_models.DATA_FILE).write_bytes(onnx_models.DATA)
        warm_up(folder)
        for argument in arguments:
            model, first, last = argument.rsplit(":", 2)
            path = folder / f"model{known[model].suffix}"
            quantize = next((data for prefix, data in quantized.items() if model.startswith(f"{prefix} ")), None)
            if quantize is not None:
                write_calibration(folder / "calibration.npz", quantize)
            for number in range(int(first), int(last)):
                kind, data = known[model].damaged(number)
                path.write_bytes(data)
                result = outcome_of(
                    path, folder, as_json=number % 2 == 0, plan=number % PLAN_EVERY == 0, quantize=quantize is not None
                )
                print(json.dumps({"model": model, "number": number, "kind": kind, **result}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

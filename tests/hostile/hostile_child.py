"""Compiles many damaged files in one process under hard limits, and prints one JSON line for each.

Run as `python hostile_child.py MODEL:FIRST:LAST ...`. Limits: 1 GiB of address space, 10 seconds of
processor time a case (a signal ends it; where code outside Python does not listen, the process ends after three times as many).
Outcome of a case: `ok`, `refused` (EmitcError, exit code 2), `cannot` (exit code 1), or `bug` with its traceback.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import hostile_onnx_models
from hostile_models import SpecDamager, corpus, made
from hostile_mutations import Damager
from hostile_onnx_bytes import OnnxByteDamager
from hostile_onnx_mutations import OnnxDamager

from emitc import report
from emitc.compiler import compile_model
from emitc.errors import EmitcError
from emitc.inspection import inspect_model

MEMORY_BYTES = 1 << 30
SECONDS = 10


class OutOfTime(BaseException):
    """The case has used up its seconds; nothing in emitc catches it."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises OutOfTime after `seconds` of processor time: the machine may be busy."""

    def stop(*_: object) -> None:
        raise OutOfTime

    signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def end_when_stuck() -> None:
    """Has the system end this process when one case takes far too long, which code outside Python can bring about."""
    used = sum(resource.getrusage(resource.RUSAGE_SELF)[:2])
    resource.setrlimit(resource.RLIMIT_CPU, (int(used) + 3 * SECONDS, resource.RLIM_INFINITY))


def harmless(text: str) -> bool:
    """Whether a message can be printed: ASCII without control characters but line ends."""
    return all(" " <= c <= "~" or c == "\n" for c in text)


def _flaw(error: EmitcError) -> str:
    """What is wrong with the form of a message, "" when nothing is."""
    if not harmless(str(error)):
        return "the message has characters that do not belong on a terminal"
    return "" if error.what and error.why and error.hint else "the message has an empty part"


def _compile(path: Path) -> tuple[str, str]:
    """(outcome, message) of compiling the file."""
    refused: EmitcError | None = None
    try:
        compile_model(path, name="model")
    except EmitcError as error:
        refused = error
    if refused is None:
        return "ok", ""
    flaw = _flaw(refused)
    return ("bug", f"{flaw}: {refused!r}") if flaw else ({1: "cannot", 2: "refused"}[refused.exit_code], str(refused))


def _inspect(path: Path) -> None:
    """Raises unless inspecting the file ends in a report or a refusal with exit code 2."""
    try:
        found = inspect_model(path, {})
    except EmitcError as error:
        if error.exit_code != 2:
            raise RuntimeError(f"inspect ends in exit code {error.exit_code}") from error
        return
    json.dumps(found)
    report.inspect_text(found)


def outcome_of(path: Path) -> dict[str, Any]:
    """What compiling and inspecting the file ended in."""
    start = time.process_time()
    try:
        with time_limit(SECONDS):
            outcome, message = _compile(path)
            _inspect(path)
    except OutOfTime:
        outcome, message = "hang", "".join(traceback.format_stack(limit=3))
    except Exception:  # the campaign reports whatever escapes, that is its purpose
        outcome, message = "bug", traceback.format_exc()
    seconds = round(time.process_time() - start, 3)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"outcome": outcome, "message": message, "seconds": seconds, "peak_kib": peak}


AnyDamager = Damager | SpecDamager | OnnxByteDamager | OnnxDamager


def damagers() -> dict[str, AnyDamager]:
    """Every way to damage every model, by name."""
    files = [Damager(name, data) for name, data in corpus().items()]
    specs = [SpecDamager(name, spec) for name, spec in made().items()]
    onnx_files = hostile_onnx_models.corpus().items()
    onnx_damagers = [kind(name, data) for name, data in onnx_files for kind in (OnnxByteDamager, OnnxDamager)]
    return {damager.name: damager for damager in (*files, *specs, *onnx_damagers)}


def main(arguments: list[str]) -> None:
    """Runs the cases that the arguments name."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    known = damagers()
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / hostile_onnx_models.DATA_FILE).write_bytes(hostile_onnx_models.DATA)
        for argument in arguments:
            name, first, last = argument.rsplit(":", 2)
            path = Path(folder) / f"model{known[name].suffix}"
            for number in range(int(first), int(last)):
                kind, data = known[name].damaged(number)
                path.write_bytes(data)
                end_when_stuck()
                line = {"model": name, "number": number, "kind": kind, **outcome_of(path)}
                print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])

"""One job of a sweep to its row: compile, prove, measure, evaluate."""

import time
import traceback
from typing import Any

from emitc.boards import verify as prove
from emitc.boards.stack import measured
from emitc.compiled import Compiled
from emitc.compiler import compile_model, for_host
from emitc.errors import EmitcError, shown
from emitc.evaluate.dataset import Preparation
from emitc.evaluate.evaluation import EvaluationOptions, evaluate
from emitc.program.members import members
from emitc.sweep.jobs import Job, data_sha256, emitc_identity, model_sha256
from emitc.target import load_board
from emitc.verify import verification

OK, MISMATCH, REFUSED, NOT_COMPILED, CRASHED = "ok", "mismatch", "refused", "cannot-compile", "crashed"
STATUSES = (OK, MISMATCH, REFUSED, NOT_COMPILED, CRASHED)
"""How a job ends. refused: the file or an option is. cannot-compile: there is no code, or it does not fit. crashed: a bug."""
MEASURED = (
    "arena_bytes", "bound_bytes", "proven", "constant_bytes", "flash_bytes", "stack_bytes", "macs", "instructions",
    "cycles", "estimated_cycles", "estimated_ms", "match", "accuracy",
)  # fmt: skip
"""Columns of what was found; None for what was not asked, or not reached."""
_TRACE = 2000


class OtherEmitc(Exception):
    """A worker has other files or another emitc than the one that made the job."""


def run_job(job: Job) -> dict[str, Any]:
    """The row of a job. It never raises for what the job is about: a refusal and a bug are rows too.

    Raises OtherEmitc on a worker whose emitc or files are not those that the job was made of.
    """
    if emitc_identity() != job.emitc:
        raise OtherEmitc(f"this worker has emitc {emitc_identity()}, and the sweep was made by {job.emitc}")
    _same_files(job)
    start = time.monotonic()
    measurements: dict[str, Any] = dict.fromkeys(MEASURED)
    status, error = OK, None
    try:
        _measure(job, measurements)
        if measurements["match"] is False:
            status = MISMATCH
    except EmitcError as refusal:
        status = NOT_COMPILED if refusal.exit_code == 1 else REFUSED
        error = error_of(refusal)
    except Exception as bug:
        status = CRASHED
        why = "".join(traceback.format_exception(bug))[-_TRACE:]
        error = {
            "code": None,
            "what": shown(f"{type(bug).__name__}: {bug}"),
            "where": job.label,
            "why": shown(why, _TRACE),
            "hint": "please report it with the model",
        }
    return row_of(job, status, measurements, time.monotonic() - start, error)


def _same_files(job: Job) -> None:
    try:
        same = model_sha256(job.model) == job.sha256
        same = same and (job.data is None or data_sha256(job.data.path) == job.data_sha256)
    except EmitcError as error:
        raise OtherEmitc(f"this worker cannot read {error.where}: {error.why}") from error
    if not same:
        raise OtherEmitc(f"{job.model}, or its data, has another content here than the sweep was made of")


def row_of(
    job: Job, status: str, measurements: dict[str, Any], seconds: float, error: dict[str, Any] | None
) -> dict[str, Any]:
    return job.described() | {"status": status} | measurements | {"seconds": round(seconds, 3), "error": error}


def crashed_row(job: Job, why: str) -> dict[str, Any]:
    """The row of a job whose worker died each time."""
    what, hint = "the worker died", "run the job alone, with emitc compile and emitc verify"
    error = {"code": None, "what": what, "where": job.label, "why": why, "hint": hint}
    return row_of(job, CRASHED, dict.fromkeys(MEASURED), 0.0, error)


def error_of(error: EmitcError) -> dict[str, Any]:
    """The first refusal of a model, and how many there are."""
    first = error.parts()[0]
    stated = {name: shown(str(getattr(first, name)), 500) for name in ("what", "where", "why", "hint")}
    return {"code": first.code.number, **stated, "refusals": len(error.parts())}


def _measure(job: Job, measurements: dict[str, Any]) -> None:
    """Fills `measurements` step by step, so that what was known before a refusal stays."""
    compiled = compile_model(job.model, job.options)
    program = compiled.program
    measurements |= members(program.plan, "arena_bytes bound_bytes=lower_bound_bytes proven")
    measurements |= members(program, "constant_bytes macs")
    measurements["estimated_cycles"] = round(program.estimated_cycles)
    if job.board:
        board = load_board(job.board)
        measurements["estimated_ms"] = round(program.estimated_cycles / board.clock_hz * 1e3, 3)
        prove.require_fit(compiled, job.board)
    if job.stack:
        bound = measured(compiled).stack
        measurements["stack_bytes"] = bound.size_bytes if bound else None
    if job.measure:
        _on_board(job, compiled, measurements)
    if job.verify:
        proof = verification.verify(for_host(job.model, compiled), samples=job.samples)
        measurements["match"] = proof.match and measurements["match"] is not False
    if job.data is not None:
        data = job.data
        preparation = Preparation(data.scale, data.mean, data.layout)
        options = EvaluationOptions(data.metric, preparation, output=data.output)
        measurements["accuracy"] = evaluate(for_host(job.model, compiled), data.path, options).value


def _on_board(job: Job, compiled: Compiled, measurements: dict[str, Any]) -> None:
    result = prove.on_emulator(
        compiled, job.board, reference="auto", samples=job.samples, seed=0, layers=False, workdir=None
    )
    measurements["instructions"], measurements["match"] = result.instructions, result.match
    measurements["flash_bytes"], measurements["stack_bytes"] = result.model_flash_bytes, result.stack_bytes
    if result.simulation is not None:
        measurements["cycles"] = result.count
    if result.estimate is not None:
        measurements["estimated_cycles"] = round(result.estimate.cycles)
        measurements["estimated_ms"] = round(result.estimate.milliseconds, 3)

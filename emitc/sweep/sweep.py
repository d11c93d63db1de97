"""A sweep from its specification to its tables: what is known already is not computed again."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from emitc.errors import EmitcError, Where
from emitc.sweep.cluster import run_on_cluster
from emitc.sweep.jobs import Job, jobs_of, shard_of
from emitc.sweep.journal import Journal, Row, write_tables
from emitc.sweep.local import run_local
from emitc.sweep.run_job import CRASHED, MISMATCH, OK, OtherEmitc
from emitc.sweep.spec import Spec

Progress = Callable[[int, int], None]
"""Called with the number of finished jobs and of all jobs."""


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """Where the jobs run. workers: processes of this machine. scheduler: address of a Dask scheduler instead, "" for none.

    shard: (part, parts), part from 1; the tables are those of these jobs. page: makes the HTML of the rows.
    """

    output: Path
    workers: int = 1
    scheduler: str = ""
    shard: tuple[int, int] = (1, 1)
    progress: Progress | None = None
    page: Callable[[Sequence[Row]], str] = field(default=lambda rows: "")


@dataclass(frozen=True, slots=True)
class Result:
    """rows: of all jobs, in the order of the specification. computed: how many of them this run has computed."""

    rows: tuple[Row, ...]
    computed: int
    seconds: float

    @property
    def good(self) -> bool:
        """Whether no job has given other bits than its engine, and none has crashed. A refusal is an answer."""
        return all(row["status"] not in (MISMATCH, CRASHED) for row in self.rows)

    def summary(self) -> dict[str, Any]:
        statuses = [row["status"] for row in self.rows]
        counts = {status: statuses.count(status) for status in dict.fromkeys((OK, *statuses))}
        return {"jobs": len(self.rows), "computed": self.computed, "seconds": round(self.seconds, 3), "status": counts}


def run_sweep(spec: Spec, options: SweepOptions) -> Result:
    """Runs what is missing of a sweep and writes its tables.

    Raises EmitcError where the output cannot be written, and where the workers or the files are not the same from start to end.
    """
    start = time.monotonic()
    part, parts = options.shard
    jobs = shard_of(jobs_of(spec), part, parts)
    journal = Journal(options.output, f"-{part}-of-{parts}" if parts > 1 else "")
    known = journal.rows()
    missing = list({job.key: job for job in jobs if job.key not in known}.values())
    _told(options.progress, len(jobs) - len(missing), len(jobs))
    try:
        for done, row in enumerate(_rows(missing, options), 1):
            known[row["key"]] = row
            journal.add(row)
            _told(options.progress, len(jobs) - len(missing) + done, len(jobs))
    except OtherEmitc as error:
        where, hint = Where(option="sweep"), "run the sweep again: what is known stays"
        raise EmitcError("a file changed while the sweep ran", where, str(error), hint) from error
    finally:
        journal.close()
    rows = tuple(known[job.key] | job.described() for job in jobs)
    write_tables(options.output, rows, options.page(rows))
    return Result(rows, len(missing), time.monotonic() - start)


def _rows(jobs: Sequence[Job], options: SweepOptions) -> Iterator[Row]:
    if not jobs:
        return iter(())
    if options.scheduler:
        return run_on_cluster(jobs, options.scheduler)
    return run_local(jobs, min(options.workers, len(jobs)))


def _told(progress: Progress | None, done: int, total: int) -> None:
    if progress is not None:
        progress(done, total)

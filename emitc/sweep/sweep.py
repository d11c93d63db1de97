"""A sweep from its specification to its tables: what is known already is not computed again.

Every row is appended to a file as soon as it is known, and the tables are made of that. A process may be killed at any time. A
line that was cut off is no row, and its job runs again. So does that of a process of this machine that dies.
"""

import contextlib
import csv
import io
import json
import multiprocessing
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from emitc.emit.output_file import staging, write_all
from emitc.errors import EmitcError, Where, writing
from emitc.records import dataclass, field
from emitc.sweep.cluster import run_on_cluster
from emitc.sweep.jobs import Job, jobs_of, shard_of
from emitc.sweep.run_job import CRASHED, MISMATCH, OK, STATUSES, OtherEmitc, crashed_row, run_job
from emitc.sweep.spec import Spec

JOURNAL = "journal"
_MOST_LINE = 1 << 20
MOST_BYTES = 1 << 30
"""Of a file of rows that is read: 100 000 rows have a tenth of it."""
TABLE, CSV, PAGE = "results.jsonl", "results.csv", "index.html"
_REQUIRED = ("key", "model", "status", "seconds")
Row = dict[str, Any]


class Journal:
    """The journals in one folder. shard: "" or the part that this process computes, whose rows go to a file of their own."""

    def __init__(self, folder: Path, shard: str = "") -> None:
        self.folder = folder
        self._path = folder / f"{JOURNAL}{shard}.jsonl"
        self._descriptor = -1
        with writing(f"{folder} cannot be made", "-o"):
            folder.mkdir(parents=True, exist_ok=True)

    def rows(self) -> dict[str, Row]:
        """All finished rows of all journals in the folder, by their keys. Lines that are no rows are left out."""
        rows: dict[str, Row] = {}
        for path in sorted(self.folder.glob(f"{JOURNAL}*.jsonl")):
            if path.is_file():
                rows |= {row["key"]: row for row in read_rows(path)}
        return rows

    def add(self, row: Row) -> None:
        """Appends a row, in one write. Raises EmitcError where that fails."""
        with writing(f"{self._path} cannot be written", "-o"):
            if self._descriptor < 0:
                self._descriptor = self._opened()
            write_all(self._descriptor, _line(row).encode("ascii"))

    def _opened(self) -> int:
        descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666)
        size = os.fstat(descriptor).st_size
        if size:
            os.lseek(descriptor, size - 1, os.SEEK_SET)
            if os.read(descriptor, 1) != b"\n":  # the end of a line is missing: the process was killed
                os.write(descriptor, b"\n")
        return descriptor

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _line(row: Row) -> str:
    return json.dumps(row, ensure_ascii=True, allow_nan=False) + "\n"


def read_rows(path: Path) -> Iterator[Row]:
    """The rows of a file of JSON lines. Lines that are no rows of a sweep are left out. Raises EmitcError for no file."""
    try:
        if (size := path.stat().st_size) > MOST_BYTES:
            where, why = Where(option=str(path)), f"it has {size} bytes, and at most {MOST_BYTES} are read"
            raise EmitcError("the rows of a sweep are too many", where, why, "use another folder")
        with path.open("rb") as file:
            while line := file.readline(_MOST_LINE):
                row: object = None
                with contextlib.suppress(ValueError, RecursionError):
                    row = json.loads(line, parse_constant=_no_number)
                if _is_row(row):
                    assert isinstance(row, dict)
                    yield row
    except OSError as error:
        why = error.strerror or str(error)
        what = "the rows of a sweep cannot be read"
        raise EmitcError(what, Where(option=str(path)), why, "check the path") from error


def _no_number(name: str) -> None:
    """NaN and the infinities are no JSON, and no row has them."""
    raise ValueError(f"{name} is no number")


def _is_row(row: object) -> bool:
    if not isinstance(row, dict) or any(name not in row for name in _REQUIRED):
        return False
    return isinstance(row["key"], str) and isinstance(row["model"], str) and row["status"] in STATUSES


def write_tables(folder: Path, rows: Sequence[Row], page: str) -> None:
    """Writes the rows as JSON lines and as CSV, and the page; each file is replaced in one step. Raises EmitcError."""
    files = {TABLE: "".join(map(_line, rows)), CSV: csv_text(rows), PAGE: page}
    with writing(f"the tables cannot be written to {folder}", "-o"), staging(folder / TABLE) as stage:
        for name, text in files.items():
            (stage / name).write_bytes(text.encode("utf-8"))
        for name in files:
            os.replace(stage / name, folder / name)


def csv_text(rows: Sequence[Row]) -> str:
    """The rows as CSV, with the error in four columns. A cell that a spreadsheet would execute begins with an apostrophe.

    >>> csv_text([{"model": "=1+1", "arena_bytes": None, "error": {"what": "no"}}]).splitlines()
    ['model,arena_bytes,error_code,error', "'=1+1,,,no"]
    """
    if not rows:
        return ""
    names = [name for name in rows[0] if name != "error"]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([*names, "error_code", "error"])
    for row in rows:
        error = row.get("error") or {}
        writer.writerow(_safe(value) for value in (*(row.get(n) for n in names), error.get("code"), error.get("what")))
    return out.getvalue()


def _safe(value: object) -> object:
    if isinstance(value, str) and value[:1] in "=+-@\t\r" and value:
        return f"'{value}"
    return "" if value is None else value


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


MOST_DEATHS = 2
"""Of a worker that has nothing else to do: after these its job has the status `crashed`."""
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")


def run_local(jobs: Sequence[Job], workers: int) -> Iterator[dict[str, Any]]:
    """The rows of the jobs as they are finished. workers: processes, at least 1.

    Raises OtherEmitc where the files of the sweep change meanwhile.
    """
    queue = _Queue(deque(jobs))
    with _one_thread_each():
        while queue.waiting or queue.suspects:
            yield from _in_one_pool(queue, workers)


@dataclass(slots=True)
class _Queue:
    """What is still to be done. suspects: jobs that ran while a process died. deaths: of jobs that ran alone, by key."""

    waiting: deque[Job]
    suspects: deque[Job] = field(default_factory=deque)
    deaths: dict[str, int] = field(default_factory=dict)

    def next_job(self, running: Collection[Job], workers: int) -> Job | None:
        """The job to start now; None for none. A suspect runs alone: so it is known which job ends its process."""
        if self.suspects:
            return None if running else self.suspects.popleft()
        if not self.waiting or len(running) >= workers or any(job.key in self.deaths for job in running):
            return None
        return self.waiting.popleft()

    def died(self, running: Sequence[Job]) -> Iterator[dict[str, Any]]:
        """Puts the jobs that ran back; rows of those that have ended their process too often."""
        for job in running:
            self.deaths[job.key] = self.deaths.get(job.key, 0) + (len(running) == 1)
            if self.deaths[job.key] >= MOST_DEATHS:
                yield crashed_row(job, f"its process ended {MOST_DEATHS} times while nothing else ran")
            else:
                self.suspects.append(job)


def _in_one_pool(queue: _Queue, workers: int) -> Iterator[dict[str, Any]]:
    """Rows until everything is done, or until one of the processes dies."""
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(workers, mp_context=context, initializer=_end_with_parent)
    running: dict[Future[dict[str, Any]], Job] = {}
    try:
        while True:
            while (job := queue.next_job(running.values(), workers)) is not None:
                try:
                    running[pool.submit(run_job, job)] = job
                except BrokenProcessPool:
                    queue.waiting.appendleft(job)
                    yield from queue.died(list(running.values()))
                    return
            if not running:
                return
            broken = False
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                if isinstance(future.exception(), BrokenProcessPool):
                    broken = True
                    continue
                del running[future]
                yield future.result()
            if broken:
                yield from queue.died(list(running.values()))
                return
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def _end_with_parent() -> None:
    """Ends this process as soon as the one that started it is gone, even where that one was killed."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Workers take a core each: the libraries in them are told so, through the environment that they inherit."""
    before = {name: os.environ.get(name) for name in _ONE_THREAD}
    os.environ.update({name: "1" for name in _ONE_THREAD if not before[name]})
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)

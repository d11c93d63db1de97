"""The jobs of a sweep on the workers of a Dask scheduler. Dask runs the jobs of a worker that dies on another one."""

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

from emitc.errors import EmitcError, Where, install_hint, shown
from emitc.sweep.jobs import Job, whole_identity
from emitc.sweep.run_job import OtherEmitc, crashed_row, run_job

_SECONDS = 20
"""Until a scheduler has to answer, and to have a worker."""
_AHEAD = 4
"""Jobs that are sent for each thread of a worker: it never waits, and the list of a large sweep stays here."""


def run_on_cluster(jobs: Sequence[Job], address: str) -> Iterator[dict[str, Any]]:
    """The rows of the jobs as they are finished. address: of the scheduler, such as tcp://host:8786.

    Every worker reads the files at the same paths. Raises EmitcError where Dask is not installed, nothing answers, no worker is
    there, or a worker has another emitc, other tools or other files.
    """
    try:
        import distributed
    except ImportError as error:
        why = "the package distributed is not installed"
        raise EmitcError("there is no Dask", Where(option="--scheduler"), why, install_hint("sweep")) from error
    dask: Any = distributed
    where = Where(option=f"--scheduler {address}")
    try:
        client = dask.Client(address, timeout=_SECONDS, set_as_default=False)
    except (OSError, ValueError, TimeoutError) as error:
        why = shown(str(error) or "nothing answers", 300)
        hint = "start one with `dask scheduler`, and workers with `dask worker ADDRESS`"
        raise EmitcError("the scheduler cannot be reached", where, why, hint) from error
    try:
        threads = _checked(client, where)
        yield from _rows(client, jobs, max(1, _AHEAD * threads), where)
    finally:
        with contextlib.suppress(Exception):
            client.close(timeout=_SECONDS)


def _checked(client: Any, where: Where) -> int:
    """The threads of all workers. Raises EmitcError where there is none, and where one of them differs from this machine."""
    try:
        client.wait_for_workers(1, timeout=_SECONDS)
    except TimeoutError as error:
        raise EmitcError("the scheduler has no worker", where, f"none came in {_SECONDS} s", "start one") from error
    here = whole_identity()
    try:
        identities: dict[str, dict[str, str]] = client.run(whole_identity)
    except Exception as error:  # the worker cannot import emitc, mostly
        why = shown(f"{type(error).__name__}: {error}", 300)
        raise EmitcError("a worker has no emitc that fits", where, why, "install this emitc on every worker") from error
    for worker, there in sorted(identities.items()):
        names = sorted(name for name in {*here, *there} if here.get(name) != there.get(name))
        if names:
            first = names[0]
            why = f"{worker} has {first} {there.get(first) or 'missing'!r}, and this machine {here.get(first) or 'missing'!r}"
            more = f"; {len(names) - 1} more differ" if names[1:] else ""
            hint = "install the same versions on every worker"
            raise EmitcError("a worker has other versions", where, shown(why + more, 400), hint)
    return sum(int(count) for count in client.nthreads().values())


def _rows(client: Any, jobs: Sequence[Job], ahead: int, where: Where) -> Iterator[dict[str, Any]]:
    import distributed

    dask: Any = distributed
    waiting = iter(jobs)
    sent: dict[str, Job] = {}
    running = dask.as_completed(loop=client.loop)

    def send() -> None:
        job = next(waiting, None)
        if job is not None:
            future = client.submit(run_job, job, key=f"emitc-{job.key}", pure=False)
            sent[future.key] = job
            running.add(future)

    for _ in range(ahead):
        send()
    for future in running:
        job = sent.pop(future.key)
        error = future.exception() if future.status == "error" else None
        if error is None and future.status == "finished":
            row: dict[str, Any] = future.result()
        elif isinstance(error, dask.KilledWorker):
            row = crashed_row(job, shown(str(error), 300))
        elif isinstance(error, OtherEmitc):
            raise EmitcError("a worker has other versions", where, str(error), "let all workers have the same")
        else:
            why = shown(f"{type(error).__name__}: {error}" if error else f"the job is {future.status}", 300)
            raise EmitcError("the scheduler has lost a job", where, why, "run the sweep again: it goes on from here")
        future.release()
        yield row
        send()

"""A sweep gives what single compilations give, computes nothing twice, and loses nothing when a process is killed."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from emitc.cli.main import cli
from emitc.compiler import compile_model
from emitc.errors import EmitcError
from emitc.sweep import cluster, sweep
from emitc.sweep.jobs import Job, jobs_of
from emitc.sweep.run_job import OtherEmitc, run_job
from emitc.sweep.spec import Spec, read_spec
from emitc.sweep.sweep import SweepOptions, run_local, run_sweep

ROOT = Path(__file__).resolve().parents[2]
MODELS = ROOT / "examples" / "models"
Rows = Sequence[dict[str, Any]]


def here(jobs: Sequence[Job], workers: int = 1) -> Iterator[dict[str, Any]]:
    """The rows, computed in this process."""
    return map(run_job, jobs)


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs run in the process of the test."""
    monkeypatch.setattr(sweep, "run_local", here)


def timeless(rows: Rows) -> list[dict[str, Any]]:
    """Rows without the seconds that they took."""
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


@pytest.mark.usefixtures("inline")
def test_rows_are_what_single_compilations_give(small: Spec, tmp_path: Path) -> None:
    result = run_sweep(small, SweepOptions(tmp_path / "out"))
    assert result.good and (len(result.rows), result.computed) == (18, 18)
    for row in result.rows:
        options = {"target": row["target"], "ram_budget": row["ram_budget"]}
        plan = compile_model(small.root / row["model"], **options).program.plan
        assert (row["arena_bytes"], row["bound_bytes"]) == (plan.arena_bytes, plan.lower_bound_bytes)
    assert len({row["arena_bytes"] for row in result.rows}) > 1
    lines = (tmp_path / "out" / "results.jsonl").read_text(encoding="ascii").splitlines()
    assert [json.loads(line) for line in lines] == list(result.rows)
    with (tmp_path / "out" / "results.csv").open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    assert [line["arena_bytes"] for line in table] == [str(row["arena_bytes"]) for row in result.rows]


@pytest.mark.usefixtures("inline")
def test_what_is_known_is_not_computed_again(small: Spec, tmp_path: Path) -> None:
    options = SweepOptions(tmp_path / "out")
    first = run_sweep(small, options)
    again = run_sweep(small, options)
    assert again.computed == 0 and again.rows == first.rows
    model = small.models[0]
    model.write_bytes(model.read_bytes() + b"\0")  # other content, the same network
    assert run_sweep(small, options).computed == 6
    assert run_sweep(replace(small, samples=5), options).computed == 18


@pytest.mark.usefixtures("inline")
def test_shards_make_the_table_of_the_whole(small: Spec, tmp_path: Path) -> None:
    whole = run_sweep(small, SweepOptions(tmp_path / "whole"))
    counts = [run_sweep(small, SweepOptions(tmp_path / "out", shard=(part, 4))).computed for part in (1, 2, 3, 4)]
    assert counts == [5, 5, 4, 4]
    merged = run_sweep(small, SweepOptions(tmp_path / "out"))
    assert merged.computed == 0 and timeless(merged.rows) == timeless(whole.rows)


@pytest.mark.usefixtures("inline")
def test_lines_that_are_no_rows_are_left_out(small: Spec, tmp_path: Path) -> None:
    options = SweepOptions(tmp_path / "out")
    whole = run_sweep(small, options)
    journal = tmp_path / "out" / "journal.jsonl"
    lines = journal.read_bytes().splitlines(keepends=True)
    hostile = lines[9].replace(b'"error": null', b'"error": NaN') + b'[1]\nnull\n{"key": 1}\n' + b"[" * 5000
    hostile += b'\n{"key": "x", "model": "m", "status": "?", "seconds": 1}\n'
    journal.write_bytes(b"".join(lines[:7]) + hostile + lines[8][:40])  # the last line is cut off
    resumed = run_sweep(small, options)
    assert resumed.computed == 11 and timeless(resumed.rows) == timeless(whole.rows)
    assert run_sweep(small, options).computed == 0


@pytest.mark.usefixtures("inline")
def test_a_refusal_is_a_row(tmp_path: Path) -> None:
    (tmp_path / "bad.tflite").write_bytes(b"this is no model")
    (tmp_path / "digits.tflite").write_bytes((MODELS / "digits_int8.tflite").read_bytes())
    (tmp_path / "s.toml").write_text('models = ["*"]\nram_budgets = ["16"]\nverify = false\n', encoding="utf-8")
    spec = read_spec(tmp_path / "s.toml")
    result = run_sweep(replace(spec, models=spec.models[:2]), SweepOptions(tmp_path / "out"))
    assert [row["status"] for row in result.rows] == ["refused", "cannot-compile"] and result.good
    assert result.rows[0]["error"]["why"] == "the identifier TFL3 is missing at byte 4"


@pytest.mark.usefixtures("inline")
def test_match_and_accuracy_are_those_of_the_commands(tmp_path: Path) -> None:
    pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")
    text = (
        'models = ["digits_int8.tflite"]\nsamples = 1\n[[options]]\nname = "small"\noptimize = "size"\n'
        '[[data]]\npath = "digits_test.npz"\nscale = "1/255"\n'
    )
    (tmp_path / "s.toml").write_text(text, encoding="utf-8")
    result = run_sweep(read_spec(tmp_path / "s.toml", MODELS), SweepOptions(tmp_path / "out"))
    (row,) = result.rows
    assert (row["status"], row["match"], row["options"]) == ("ok", True, "small")
    assert row["accuracy"] == pytest.approx(299 / 300)


@pytest.mark.usefixtures("inline")
def test_the_command_writes_tables_and_says_so(small: Spec, tmp_path: Path) -> None:
    command = ["sweep", str(small.root / "small.toml"), "-o", str(tmp_path / "out")]
    done = CliRunner().invoke(cli, [*command, "--shard", "2/3", "--json"])
    said = json.loads(done.stdout)
    assert (done.exit_code, said["jobs"], said["computed"], said["status"]) == (0, 6, 6, {"ok": 6})
    text = CliRunner().invoke(cli, command).stdout
    assert text.startswith("18 jobs, 12 of them computed now in ") and "  ok             18\n" in text
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "index.html", "journal-2-of-3.jsonl", "journal.jsonl", "results.csv", "results.jsonl",
    ]  # fmt: skip


@pytest.mark.parametrize("shard", ["0/3", "4/3", "1/0", "x", "1/99999", "-1/3"])
def test_a_shard_that_is_none_is_refused(small: Spec, tmp_path: Path, shard: str) -> None:
    command = ["sweep", str(small.root / "small.toml"), "-o", str(tmp_path / "out"), "--shard", shard]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 2 and "is not PART/PARTS, for example 3/16" in done.output


def test_a_mismatch_is_no_good_result(small: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(jobs: Sequence[Job], workers: int) -> Iterator[dict[str, Any]]:
        return (row | {"status": "mismatch", "match": False} for row in here(jobs))

    monkeypatch.setattr(sweep, "run_local", wrong)
    assert not run_sweep(small, SweepOptions(tmp_path / "out")).good


def test_a_file_that_changes_meanwhile_is_not_measured(small: Spec) -> None:
    job = jobs_of(small)[0]
    with pytest.raises(OtherEmitc, match="another content"):
        run_job(replace(job, sha256="0" * 64))
    with pytest.raises(OtherEmitc, match=r"the sweep was made by 0\.0\.0"):
        run_job(replace(job, emitc="0.0.0"))


def journal_lines(folder: Path) -> int:
    journal = folder / "journal.jsonl"
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


def test_a_sweep_that_is_killed_goes_on_where_it_was(
    small: Spec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-m", "emitc", "sweep", str(small.root / "small.toml"), "-o", str(out), "--workers", "2"]
    process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while journal_lines(out) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    known = journal_lines(out)
    assert 3 <= known < 18, "the sweep was not stopped in the middle"
    monkeypatch.setattr(sweep, "run_local", here)
    resumed = run_sweep(small, SweepOptions(out))
    assert resumed.computed == 18 - known
    assert timeless(resumed.rows) == timeless(run_sweep(small, SweepOptions(tmp_path / "other")).rows)


DEADLY = "deadly"


def dies_of_one(job: Job) -> dict[str, Any]:
    """Ends its process for the job of one model; the row of all others."""
    if job.variant == DEADLY:
        os._exit(1)
    return run_job(job)


def dies_once(job: Job) -> dict[str, Any]:
    """Ends its process for the first job that comes, once."""
    mark = job.model.parent / "died"
    if not mark.exists():
        mark.touch()
        os._exit(1)
    return run_job(job)


def worked(function: Callable[[Job], dict[str, Any]], jobs: Sequence[Job], monkeypatch: pytest.MonkeyPatch) -> Rows:
    monkeypatch.setattr(sweep, "run_job", function)
    return list(run_local(jobs, 2))


def test_a_worker_that_dies_loses_nothing(small: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = jobs_of(small)[:6]
    rows = worked(dies_once, jobs, monkeypatch)
    assert sorted(row["key"] for row in rows) == sorted(job.key for job in jobs)
    assert {row["status"] for row in rows} == {"ok"} and (small.root / "died").exists()


def test_a_job_that_ends_its_process_is_named_and_no_other(small: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    first, *rest = jobs_of(small)[:4]
    rows = worked(dies_of_one, [rest[0], replace(first, variant=DEADLY), *rest[1:]], monkeypatch)
    statuses = {row["key"]: row["status"] for row in rows}
    assert statuses == {first.key: "crashed", **{job.key: "ok" for job in rest}}


@pytest.fixture
def dask() -> Iterator[Any]:
    """A cluster of two processes on this machine."""
    distributed = pytest.importorskip("distributed", reason="the extra emitc[sweep] is not installed")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, host="127.0.0.1", silence_logs=50
    ) as made:
        yield made


@pytest.mark.filterwarnings("ignore")
def test_a_cluster_with_a_worker_killed_gives_the_same_table(dask: Any, small: Spec, tmp_path: Path) -> None:
    pids = [worker.pid for worker in dask.workers.values()]
    seen: list[int] = []

    def kill(done: int, total: int) -> None:
        if done >= 4 and not seen:
            os.kill(pids[0], signal.SIGKILL)
            seen.append(done)

    out = tmp_path / "out"
    result = run_sweep(small, SweepOptions(out, scheduler=dask.scheduler_address, progress=kill))
    assert seen and (result.computed, len(result.rows)) == (18, 18)
    assert timeless(result.rows) == timeless([run_job(job) for job in jobs_of(small)])


@pytest.mark.filterwarnings("ignore")
def test_a_worker_with_other_versions_is_refused(dask: Any, small: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    there = cluster.whole_identity()
    monkeypatch.setattr(cluster, "whole_identity", Here(there | {"emitc": "0.0.1+0"}))
    with pytest.raises(EmitcError) as error:
        list(cluster.run_on_cluster(jobs_of(small), dask.scheduler_address))
    assert error.value.what == "a worker has other versions"
    assert f"has emitc '{there['emitc']}', and this machine '0.0.1+0'" in error.value.why


class Here:
    """What this machine says it has; on a worker it is the worker's own identity again."""

    def __init__(self, content: dict[str, str]) -> None:
        self.content = content

    def __call__(self) -> dict[str, str]:
        return self.content

    def __reduce__(self) -> tuple[Callable[[str, str], Any], tuple[Any, str]]:
        from emitc.sweep import jobs

        return getattr, (jobs, "whole_identity")


def test_no_scheduler_is_said(small: Spec, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="the extra emitc[sweep] is not installed")
    monkeypatch.setattr(cluster, "_SECONDS", 1)
    with pytest.raises(EmitcError, match="the scheduler cannot be reached"):
        list(cluster.run_on_cluster(jobs_of(small), "tcp://127.0.0.1:1"))

"""Chunks of graphs, each in a process of its own that may crash, and their records in a folder.

chunks.jsonl has a line for each chunk that is done, failures.jsonl one for each failure. A campaign with the same folder goes on
with the chunks that are missing.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from bench.random_graphs.case import Case
from bench.random_graphs.engines import EngineProcess, preload
from bench.random_graphs.formats import generate
from bench.random_graphs.judge import FAILURES, Trial, calls_hardware, conclude, prepared, proven, tried
from bench.random_graphs.modes import Mode, draw_mode, simpler
from bench.random_graphs.native import Builds, Item
from bench.random_graphs.records import Tally
from bench.random_graphs.regressions import kept
from bench.random_graphs.shrink import shrink
from emitc.verify.engines.run import engines_in

CHUNK = 64
CHUNK_SECONDS = 4 * 3600
ADDRESS_SPACE = 12 << 30
SHRUNK_PER_CHUNK = 4
SHRINK_ATTEMPTS = 80


@dataclass(frozen=True, slots=True)
class Campaign:
    """What is asked for. count: graphs in all; formats take turns. regressions: where shrunk failures go, None for nowhere.

    earlier: what another folder's campaign counted of its first graphs, which are not judged again.
    """

    seed: int
    count: int
    formats: tuple[str, ...]
    jobs: int
    folder: Path
    regressions: Path | None
    libraries: Mapping[str, str] = field(default_factory=dict)
    earlier: Tally = field(default_factory=Tally)

    def chunks(self) -> Iterator[tuple[str, int, int]]:
        """Format, first index and number of graphs of each chunk that `earlier` does not count.

        Raises ValueError where `earlier` ends within a chunk.
        """
        share = -(-self.count // len(self.formats))
        counted = self.earlier.graphs
        for start in range(0, share, CHUNK):
            for name in self.formats:
                count = min(CHUNK, share - start)
                if counted <= 0:
                    yield name, start, count
                elif counted < count:
                    raise ValueError(f"the earlier campaign ends after {counted} of the {count} graphs of a chunk")
                counted -= count


def run(campaign: Campaign, progress: bool = True) -> Tally:
    """Everything that the folder does not have yet; the sum of all that it has."""
    campaign.folder.mkdir(parents=True, exist_ok=True)
    done = _done(campaign)
    waiting = [chunk for chunk in campaign.chunks() if chunk not in done]
    for name in campaign.formats:
        preload(name)
    running: dict[int, tuple[tuple[str, int, int], Path, float, list[int]]] = {}
    began = time.monotonic()
    retries: list[tuple[tuple[str, int, int], list[int]]] = []
    graphs = 0
    while waiting or retries or running:
        while (waiting or retries) and len(running) < campaign.jobs:
            chunk, skipped = retries.pop() if retries else (waiting.pop(0), [])
            scratch = Path(tempfile.mkdtemp(prefix="random-graphs-"))
            running[_forked(campaign, chunk, scratch, skipped)] = (chunk, scratch, time.monotonic(), skipped)
        pid, status = _waited(running)
        chunk, scratch, _, skipped = running.pop(pid)
        report = _result(scratch)
        if report is None:
            guilty = _guilty(scratch, chunk)
            _append(campaign.folder / "failures.jsonl", _lost(campaign, chunk[0], guilty, status, scratch))
            retries.append((chunk, [*skipped, guilty]))
        else:
            for record in report.pop("failures"):
                _append(campaign.folder / "failures.jsonl", record)
            report["lost"] = skipped
            _append(campaign.folder / "chunks.jsonl", report)
            graphs += chunk[2]
            if progress:
                rate = graphs / (time.monotonic() - began)
                print(f"{len(_done(campaign)) * CHUNK} graphs, {rate:.1f} per second", file=sys.stderr, flush=True)
        shutil.rmtree(scratch, ignore_errors=True)
    return total(campaign)


def total(campaign: Campaign) -> Tally:
    """The sum of the chunks that are done, and of the earlier campaign."""
    tally = Tally()
    tally.merge(campaign.earlier)
    for line in _lines(campaign.folder / "chunks.jsonl"):
        if (line["seed"], line["format"]) in {(campaign.seed, name) for name in campaign.formats}:
            tally.merge(Tally.from_json(line["tally"]))
            tally.verdicts[f"{line['format']} crash"] += len(line["lost"])
            tally.graphs += len(line["lost"])
    return tally


def _done(campaign: Campaign) -> set[tuple[str, int, int]]:
    lines = _lines(campaign.folder / "chunks.jsonl")
    return {(line["format"], line["start"], line["count"]) for line in lines if line["seed"] == campaign.seed}


def _lines(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.endswith("}")]


def _append(path: Path, record: dict[str, Any]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(record, sort_keys=True) + "\n")


def _forked(campaign: Campaign, chunk: tuple[str, int, int], scratch: Path, skipped: Sequence[int]) -> int:
    """The process of a chunk."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        soft = min(ADDRESS_SPACE, resource.getrlimit(resource.RLIMIT_AS)[1] % (1 << 63) or ADDRESS_SPACE)
        resource.setrlimit(resource.RLIMIT_AS, (soft, resource.getrlimit(resource.RLIMIT_AS)[1]))
        _work(campaign, chunk, scratch, skipped)
        code = 0
    except BaseException:
        (scratch / "traceback").write_text(traceback.format_exc())
    finally:
        os._exit(code)


def _waited(running: dict[int, tuple[tuple[str, int, int], Path, float, list[int]]]) -> tuple[int, int]:
    """The next process that ends; one that takes too long is ended."""
    while True:
        for pid, (_, _, began, _) in running.items():
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                return pid, status
            if time.monotonic() - began > CHUNK_SECONDS:
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def _result(scratch: Path) -> dict[str, Any] | None:
    path = scratch / "result.json"
    if not path.exists():
        return None
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def _guilty(scratch: Path, chunk: tuple[str, int, int]) -> int:
    """The graph that the process was at when it ended."""
    path = scratch / "at"
    return int(path.read_text()) if path.exists() and path.read_text() else chunk[1]


def _lost(campaign: Campaign, name: str, index: int, status: int, scratch: Path) -> dict[str, Any]:
    words = scratch / "traceback"
    said = f": {words.read_text()[-1500:]}" if words.exists() else ""
    return {
        "case": f"{name}:{campaign.seed}:{index}",
        "verdict": "crash",
        "detail": f"the process ended with {os.waitstatus_to_exitcode(status)}{said}",
    }


def _work(campaign: Campaign, chunk: tuple[str, int, int], scratch: Path, skipped: Sequence[int]) -> None:
    name, start, count = chunk
    engine, builds, tally, began = (
        EngineProcess(),
        Builds(scratch, campaign.folder / "objects"),
        Tally(),
        time.monotonic(),
    )
    trials = []
    with engines_in(engine):
        for index in range(start, start + count):
            if index not in skipped:
                (scratch / "at").write_text(str(index))
                case = generate(name, campaign.seed, index)
                trials.append(prepared(case, mode_of(case, campaign.libraries), scratch))
        judged(trials, builds)
        failures: list[dict[str, Any]] = []
        for trial in trials:
            tally.add(trial)
            if trial.verdict in FAILURES:
                (scratch / "at").write_text(str(trial.case.index))
                failures.append(_failure(trial, builds, campaign, len(failures) < SHRUNK_PER_CHUNK))
    engine.close()
    tally.seconds = time.monotonic() - began
    result = {"format": name, "seed": campaign.seed, "start": start, "count": count, "tally": tally.to_json()}
    (scratch / "writing").write_text(json.dumps(result | {"failures": failures}))
    (scratch / "writing").rename(scratch / "result.json")


def mode_of(case: Case, libraries: Mapping[str, str]) -> dict[str, Any]:
    """The mode that a case is drawn with."""
    return draw_mode(np.random.default_rng([case.seed, case.index, 7]), case.description, libraries)


def judged(trials: Sequence[Trial], builds: Builds) -> None:
    """Builds and runs the open trials, those with the same support together, and gives each its verdict."""
    groups: dict[tuple[Any, ...], list[Trial]] = {}
    for trial in trials:
        if not trial.verdict and calls_hardware(trial):
            proven(trial, builds.folder)
        if not trial.verdict and trial.compiled is not None:
            support = trial.compiled.support("host")
            key = (support.defines, support.includes, support.headers)
            trial.item = Item(trial.compiled, trial.inputs)
            groups.setdefault(key, []).append(trial)
    for group in groups.values():
        builds.run([trial.item for trial in group if trial.item is not None])
        for trial in group:
            conclude(trial, builds.folder)


def _failure(trial: Trial, builds: Builds, campaign: Campaign, cut: bool) -> dict[str, Any]:
    """The record of a failure; its model, and the model cut down, are kept."""
    small, mode = trial.case, dict(trial.mode)
    if cut and trial.verdict != "slow":
        small, mode = shrunk(trial, builds)
    record = {
        "case": trial.case.name,
        "verdict": trial.verdict,
        "detail": trial.detail,
        "mode": trial.mode,
        "engine": trial.engine,
        "ops": [node.op for node in trial.case.description.nodes],
        "small": {"ops": [node.op for node in small.description.nodes], "mode": mode},
    }
    folder = campaign.folder / "failures"
    folder.mkdir(exist_ok=True)
    base = trial.case.name.replace(":", "-")
    (folder / f"{base}.{trial.case.format}").write_bytes(trial.case.model)
    if small is not trial.case:
        (folder / f"{base}-small.{trial.case.format}").write_bytes(small.model)
        if campaign.regressions is not None:
            kept(campaign.regressions, trial.verdict, trial.case.name, small, mode)
    return record


def shrunk(trial: Trial, builds: Builds) -> tuple[Case, dict[str, Any]]:
    """The failing case cut down, and the fewest options with which it fails."""

    def fails(candidate: Case, mode: Mode) -> bool:
        return tried(candidate, mode, builds).verdict == trial.verdict

    mode: dict[str, Any] = dict(trial.mode)
    case = shrink(trial.case, lambda candidate: fails(candidate, mode), SHRINK_ATTEMPTS)
    for _ in range(len(mode)):
        easier = next((simple for simple in simpler(mode) if fails(case, simple)), None)
        if easier is None:
            break
        mode = easier
    return case, mode

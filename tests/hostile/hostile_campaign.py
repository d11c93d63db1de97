"""The campaign: thousands of damaged files, compiled in a few processes under hard limits, and what became of each.

`python tests/hostile/hostile_campaign.py [CASES]` runs it alone and prints the table; exit code 1 when a case failed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHILD = HERE / "hostile_child.py"
GOOD = ("ok", "refused")
OUTCOMES = ("ok", "refused", "cannot", "bug", "hang", "died")


@dataclass(frozen=True, slots=True)
class Case:
    """What became of one damaged file. outcome: one of OUTCOMES. seconds: compiling and inspecting. peak_kib: resident
    memory of the process so far."""

    model: str
    number: int
    kind: str
    outcome: str
    message: str
    seconds: float
    peak_kib: int


def _start(jobs: Sequence[tuple[str, int, int]]) -> subprocess.Popen[str]:
    import emitc

    root = Path(emitc.__file__).resolve().parents[1]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(root), str(HERE)]), "OPENBLAS_NUM_THREADS": "1"}
    arguments = [f"{name}:{first}:{last}" for name, first, last in jobs]
    return subprocess.Popen(
        [sys.executable, str(CHILD), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def _finished(process: subprocess.Popen[str], jobs: Sequence[tuple[str, int, int]], seconds: float) -> list[Case]:
    """The cases of a process; one that it did not answer is the one that ended it."""
    try:
        out, errors = process.communicate(timeout=seconds)
        ending = f"the process ended with {process.returncode}: {errors[-2000:]}"
    except subprocess.TimeoutExpired:
        process.kill()
        out, _ = process.communicate()
        ending = "the process did not come back"
    cases = [Case(**json.loads(line)) for line in out.splitlines()]
    expected = [(name, number) for name, first, last in jobs for number in range(first, last)]
    if len(cases) < len(expected):
        name, number = expected[len(cases)]
        cases.append(Case(name, number, "?", "died", ending, 0.0, 0))
    return cases


def run(jobs: Iterable[tuple[str, int, int]], processes: int = 2, seconds: float = 900.0) -> list[Case]:
    """Runs (model, first, last) jobs, spread over a few processes."""
    shares: list[list[tuple[str, int, int]]] = [[] for _ in range(processes)]
    for name, first, last in jobs:
        step = -(-(last - first) // processes)
        for share, start in zip(shares, range(first, last, step), strict=False):
            share.append((name, start, min(start + step, last)))
    started = [(_start(share), share) for share in shares if share]
    return [case for process, share in started for case in _finished(process, share, seconds)]


def table(cases: Sequence[Case]) -> str:
    """Outcomes by model, with the longest time and the largest memory."""
    lines = [f"{'model':<36}{'cases':>7}" + "".join(f"{outcome:>9}" for outcome in OUTCOMES) + f"{'max s':>8}"]
    for name in (*dict.fromkeys(case.model for case in cases), "all"):
        found = [case for case in cases if name in (case.model, "all")]
        count = Counter(case.outcome for case in found)
        lines.append(
            f"{name:<36}{len(found):>7}"
            + "".join(f"{count[outcome]:>9}" for outcome in OUTCOMES)
            + f"{max(case.seconds for case in found):>8.2f}"
        )
    lines.append(f"largest resident memory of a process: {max(case.peak_kib for case in cases) / 1024:.0f} MiB")
    return "\n".join(lines)


def failures(cases: Sequence[Case], *, honest: bool) -> list[str]:
    """The cases that must not be. honest: whether a well-formed file may end in exit code 1."""
    good = (*GOOD, "cannot") if honest else GOOD
    return [
        f"{case.model} {case.number} ({case.kind}): {case.outcome}\n{case.message}"
        for case in cases
        if case.outcome not in good
    ]


def main(count: int) -> int:
    """The whole campaign: `count` damaged files, and a third as many that are well formed but wrong."""
    sys.path.insert(0, str(HERE))
    from hostile_models import corpus, made

    files = run([(name, 0, -(-count // len(corpus()))) for name in corpus()])
    specs = run([(f"{name} described wrongly", 0, -(-count // 3 // len(made()))) for name in made()])
    print(table(files + specs))
    failed = failures(files, honest=False) + failures(specs, honest=True)
    print("\n\n".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000))

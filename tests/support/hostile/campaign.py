"""The campaign: thousands of damaged files, compiled in a few processes under hard limits, and what became of each.

`python tests/support/hostile/campaign.py [CASES]` runs it alone and prints the table; exit code 1 when a case failed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
CHILD = HERE / "child.py"
GOOD = ("ok", "refused")
OUTCOMES = ("ok", "refused", "cannot", "bug", "hang", "died")


@dataclass(frozen=True, slots=True)
class Case:
    """What became of one damaged file. outcome: one of OUTCOMES. seconds: of processor time, of the command that took
    longest. peak_kib: resident memory of the largest one. commands: the outcome of each command by its name."""

    model: str
    number: int
    kind: str
    outcome: str
    message: str
    seconds: float
    peak_kib: int
    commands: dict[str, str] = field(default_factory=dict)


Job = tuple[str, int, int]
"""A damager's name, the first of its cases, and the one after the last."""


def _start(jobs: Sequence[Job]) -> subprocess.Popen[str]:
    import emitc

    root = Path(emitc.__file__).resolve().parents[1]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(root), str(HERE.parents[2])]),
        "OPENBLAS_NUM_THREADS": "1",
    }
    arguments = [f"{name}:{first}:{last}" for name, first, last in jobs]
    return subprocess.Popen(
        [sys.executable, str(CHILD), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def _behind(jobs: Sequence[Job], count: int) -> list[Job]:
    """The jobs without their first `count` cases."""
    left = []
    for name, first, last in jobs:
        skipped = min(count, last - first)
        count -= skipped
        if first + skipped < last:
            left.append((name, first + skipped, last))
    return left


def _finished(process: subprocess.Popen[str], jobs: Sequence[Job], seconds: float) -> list[Case]:
    """The cases of a process; one that it did not answer is the one that ended it, and another process does the rest."""
    try:
        out, errors = process.communicate(timeout=seconds)
        ending = f"the process ended with {process.returncode}: {errors[-2000:]}"
    except subprocess.TimeoutExpired:
        process.kill()
        out, _ = process.communicate()
        ending = "the process did not come back"
    cases = [Case(**json.loads(line)) for line in out.splitlines()]
    left = _behind(jobs, len(cases))
    if not left:
        return cases
    name, number, _ = left[0]
    cases.append(Case(name, number, "?", "died", ending, 0.0, 0))
    left = _behind(left, 1)
    return cases + _finished(_start(left), left, seconds) if left and process.returncode != 1 else cases


def run(jobs: Iterable[Job], processes: int = 2, seconds: float = 900.0) -> list[Case]:
    """Runs jobs, spread over a few processes."""
    shares: list[list[Job]] = [[] for _ in range(processes)]
    for name, first, last in jobs:
        step = -(-(last - first) // processes)
        for share, start in zip(shares, range(first, last, step), strict=False):
            share.append((name, start, min(start + step, last)))
    started = [(_start(share), share) for share in shares if share]
    return [case for process, share in started for case in _finished(process, share, seconds)]


def table(cases: Sequence[Case]) -> str:
    """Outcomes by model with the longest time and the largest memory, then by command."""
    lines = [
        f"{'model':<50}{'cases':>7}" + "".join(f"{outcome:>9}" for outcome in OUTCOMES) + f"{'max s':>8}{'MiB':>8}"
    ]
    for name in (*dict.fromkeys(case.model for case in cases), "all"):
        matching = [case for case in cases if name in (case.model, "all")]
        count = Counter(case.outcome for case in matching)
        lines.append(
            f"{name:<50}{len(matching):>7}"
            + "".join(f"{count[outcome]:>9}" for outcome in OUTCOMES)
            + f"{max(case.seconds for case in matching):>8.2f}"
            + f"{max(case.peak_kib for case in matching) / 1024:>8.0f}"
        )
    for command in ("compile", "inspect", "plan", "quantize"):
        count = Counter(case.commands[command] for case in cases if command in case.commands)
        lines.append(f"emitc {command:<44}{count.total():>7}" + "".join(f"{count[o]:>9}" for o in OUTCOMES))
    return "\n".join(lines)


NAMES_ITS_OPERATORS = frozenset({"audio_preprocessor_int8"})
"""Models in which a changed byte may leave a right file: of a custom operator, or a CAST to a type, that has no code."""


def failures(cases: Sequence[Case], *, honest: bool) -> list[str]:
    """The cases that must not be. honest: whether a well-formed file may end in exit code 1."""
    return [
        f"{case.model} {case.number} ({case.kind}): {case.outcome}\n{case.message}"
        for case in cases
        if case.outcome not in GOOD and not (case.outcome == "cannot" and (honest or case.model in NAMES_ITS_OPERATORS))
    ]


def tflite_jobs(count: int, first: int = 0) -> tuple[list[Job], list[Job]]:
    """`count` damaged files, spread over the models, and a third as many that are well formed but wrong."""
    from tests.support.hostile.models import corpus, made

    files = [(name, first, first - (-count // len(corpus()))) for name in corpus()]
    specs = [(f"{name} described wrongly", first, first - (-count // 3 // len(made()))) for name in made()]
    return files, specs


def onnx_jobs(count: int, first: int = 0) -> list[Job]:
    """`count` damaged ONNX files, spread over the models: a third of them by bytes, the others well-formed protobuf."""
    from tests.support.hostile.onnx_models import corpus

    share = -(-count // 3 // len(corpus()))
    files = [(f"{name} bytes", first, first + share) for name in corpus()]
    return files + [(f"{name} described wrongly", first, first + 2 * share) for name in corpus()]


def quantizer_jobs(count: int, first: int = 0) -> list[Job]:
    """`count` damaged float models, which go through `emitc quantize` too: one in four by bytes."""
    from tests.support.hostile.onnx_models import floats

    share = -(-count // 4 // len(floats()))
    files = [(f"{name} bytes", first, first + share) for name in floats()]
    return files + [(f"{name} described wrongly", first, first + 3 * share) for name in floats()]


def main(count: int) -> int:
    """The whole campaign: `count` damaged files of either format, and of TFLite a third as many well formed but wrong."""
    sys.path[:0] = [str(HERE.parents[2])]
    tflite_files, tflite_specs = tflite_jobs(count)
    files, specs, onnx_files = run(tflite_files), run(tflite_specs), run(onnx_jobs(count))
    print(table(files + specs + onnx_files))
    failed = failures(files, honest=False) + failures(specs + onnx_files, honest=True)
    print("\n\n".join(failed))
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 2000))

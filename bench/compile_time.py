"""How long `emitc compile` takes as a whole process: seconds of CPU time, of which imports.

    python -m bench.compile_time [--models DIR] [--runs 7] [--ram-budget min] [--json bench/results_compile_time.json]
    python -m bench.compile_time --residual 200
    python -m bench.compile_time --corpus DIR [--match REGEX] [--json FILE]

Each model is compiled with the options and checks that are the default, by a process of its own on one thread. The time is what
the system counts for the process, user and system together. Other processes slow it down a little all the same; the least of the
runs is the one that they changed least. Imports are timed as a process that loads the same modules in the same order and does
nothing else. `--residual` measures a network of so many convolutions that it makes, with an addition after every third one.
It is no `emitc sweep`, which does not time a process.
`--corpus` measures every model below a folder once, by default and with `--ram-budget min`. A time near its limit is measured
`--runs` times. The slowest models are printed, and every one above its limit is named.
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np

from bench.boards import NETS as NETS
from bench.output import write_json
from emitc.report.tables import table
from emitc.writers.tflite import ModelSpec, OperatorSpec, OptionValue, TensorSpec, write_tflite

HERE = Path(__file__).resolve().parent
TARGETS = ("generic32", "cortex-m4f")
LIMIT, LIMIT_WITH_BUDGET = 1.0, 2.0
"""Seconds that the least of the runs may take, by default and with `--ram-budget`."""
SECONDS_PER_CONVOLUTION = 0.0125
"""Of a residual network: what the least of the runs may take where that is more than LIMIT."""
_NEAR = 0.85
"""Share of a limit from which a time is measured again."""
_LOADED = "import sys, emitc.cli.main as c\ntry:\n    c.main()\nfinally:\n    print(*sys.modules, file=sys.stderr)"
"""Runs emitc, and lists the modules that it has loaded in the order of their loading."""
_LOADING = (
    "import gc, importlib, sys\ngc.disable()\nfor name in sys.argv[1:]:\n    try:\n        importlib.import_module(name)\n"
    "    except ImportError:\n        pass\ngc.freeze()"
)
"""Imports what it is told; some names are of modules that others make, and of `python -c` itself. As in a run of emitc, no time
goes into garbage."""


@dataclass(frozen=True, slots=True)
class Row:
    """One model for one target: seconds of CPU time, the least and the median of the runs, and how many modules are loaded."""

    model: str
    target: str
    runs: int
    seconds: float
    median_seconds: float
    import_seconds: float
    modules: int


def environment() -> dict[str, str]:
    """That of a user's shell: compiled modules are kept; numpy's linear algebra has one thread."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return kept | dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def cpu_seconds(command: Sequence[str]) -> float:
    """User and system time of a process and of those that it has waited for. Raises CalledProcessError where it fails."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment())
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, list(command))
    return usage.ru_utime + usage.ru_stime


def loaded_modules(arguments: Sequence[str]) -> tuple[str, ...]:
    """The modules that `emitc` with these arguments loads, in the order of their loading."""
    command = [sys.executable, "-c", _LOADED, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment())
    return tuple(done.stderr.splitlines()[-1].split())


def measure(model: Path, target: str, runs: int, budget: str = "") -> Row:
    """One model for one target. budget: the value of `--ram-budget`, "" for none.

    The first run compiles modules that have changed, and is not counted.
    """
    with tempfile.TemporaryDirectory(prefix="emitc_time_") as folder:
        arguments = ["compile", str(model), "--target", target, "-o", f"{folder}/out"]
        arguments += ["--ram-budget", budget] if budget else []
        modules = loaded_modules(arguments)
        times = [cpu_seconds([sys.executable, "-m", "emitc", *arguments]) for _ in range(runs)]
        loading = [cpu_seconds([sys.executable, "-c", _LOADING, *modules]) for _ in range(runs)]
    least, median = round(min(times), 2), round(statistics.median(times), 2)
    return Row(model.stem, target, runs, least, median, round(min(loading), 2), len(modules))


@dataclass(frozen=True, slots=True)
class CorpusRow:
    """One model for one target and one budget: the least seconds of CPU time of the runs. model: its path in the corpus."""

    model: str
    target: str
    budget: str
    runs: int
    seconds: float

    @property
    def limit(self) -> float:
        """Seconds that it may take."""
        return LIMIT_WITH_BUDGET if self.budget else LIMIT


def corpus_row(corpus: Path, model: str, target: str, budget: str, runs: int) -> CorpusRow:
    """One run, and up to `runs` of them as long as the least is near the limit or above it."""
    row = CorpusRow(model, target, budget, 0, math.inf)
    while row.runs < runs and (not row.runs or row.seconds >= _NEAR * row.limit):
        with tempfile.TemporaryDirectory(prefix="emitc_time_") as folder:
            command = [sys.executable, "-m", "emitc", "compile", str(corpus / model), "--target", target]
            command += ["--ram-budget", budget] if budget else []
            seconds = cpu_seconds([*command, "-o", f"{folder}/out"])
        row = replace(row, runs=row.runs + 1, seconds=round(min(row.seconds, seconds), 2))
    return row


def corpus_text(rows: Sequence[CorpusRow], most: int = 20) -> str:
    """A table of the slowest rows against their limits, and a line for the rows above them."""
    slowest = sorted(rows, key=lambda row: -row.seconds / row.limit)[:most]
    columns = ("model", "target", "ram budget", "runs>", "least s>", "below")
    lines = [
        (r.model, r.target, r.budget or "none", r.runs, f"{r.seconds:.2f}", f"{r.limit:g} s: {_verdict(r)}")
        for r in slowest
    ]
    above = [f"{r.model} {r.target} {r.budget}".strip() for r in rows if r.seconds >= r.limit]
    return (
        f"{table(columns, lines, width=120)}\n{len(above)} of {len(rows)} above the limit: {', '.join(above) or 'none'}"
    )


def _verdict(row: CorpusRow) -> str:
    return "yes" if row.seconds < row.limit else "NO"


def residual(convolutions: int) -> bytes:
    """A TFLite file: 1x1 convolutions of 16 channels, each third one added to what the two before it started from."""
    rng, channels = np.random.default_rng(0), 16
    image = (1, 16, 16, channels)
    slide: dict[str, OptionValue] = {
        "padding": "VALID",
        "stride_w": 1,
        "stride_h": 1,
        "dilation_w_factor": 1,
        "dilation_h_factor": 1,
    }
    tensors, operators = [TensorSpec("x", "int8", image, None, (0.05,), (0,))], []
    start = last = 0
    for i in range(convolutions):
        weights = rng.integers(-127, 128, (channels, 1, 1, channels)).astype(np.int8)
        scales = tuple(rng.uniform(0.002, 0.004, channels).tolist())
        tensors += [
            TensorSpec(f"w{i}", "int8", weights.shape, weights.tobytes(), scales, (0,) * channels),
            TensorSpec(f"y{i}", "int8", image, None, (0.05 + 0.001 * (i % 7),), (i % 5 - 2,)),
        ]
        operators.append(OperatorSpec("CONV_2D", (last, len(tensors) - 2, -1), (len(tensors) - 1,), slide))
        last = len(tensors) - 1
        if i % 3 == 2:
            tensors.append(TensorSpec(f"s{i}", "int8", image, None, (0.06 + 0.001 * (i % 11),), (i % 3 - 1,)))
            operators.append(OperatorSpec("ADD", (last, start), (len(tensors) - 1,)))
            start = last = len(tensors) - 1
    return write_tflite(ModelSpec(tuple(tensors), tuple(operators), (0,), (last,)))


def text(rows: Sequence[Row], limit: float = LIMIT) -> str:
    """The table. limit: seconds that a row may take."""
    lines = [
        (
            row.model,
            row.target,
            f"{row.seconds:.2f}",
            f"{row.median_seconds:.2f}",
            f"{row.import_seconds:.2f}",
            f"{row.seconds - row.import_seconds:.2f}",
            row.modules,
            "yes" if row.seconds < limit else "NO",
        )
        for row in rows
    ]
    columns = ("model", "target", "least s>", "median s>", "imports s>", "work s>", "modules>", f"below {limit:g} s")
    return table(columns, lines, width=120)


def _corpus(arguments: argparse.Namespace) -> int:
    """Measures the corpus; 1 where a model is above its limit."""
    files = (path for path in arguments.corpus.rglob("*") if path.suffix in (".tflite", ".onnx"))
    models = sorted(path.relative_to(arguments.corpus).as_posix() for path in files)
    rows = [
        corpus_row(arguments.corpus, model, target, budget, arguments.runs)
        for model in models
        if re.search(arguments.match, model)
        for target in arguments.targets
        for budget in ("", "min")
    ]
    print(corpus_text(rows))
    what = "seconds of CPU time of `emitc compile MODEL --target TARGET --ram-budget BUDGET` as a process, the least of the runs"
    write_json(arguments.json, _with_versions(what, rows))
    return int(any(row.seconds >= row.limit for row in rows))


def _with_versions(what: str, rows: Sequence[Row] | Sequence[CorpusRow]) -> dict[str, object]:
    """The content of a file of figures."""
    versions = {"python": platform.python_version(), "numpy": np.__version__}
    return {"what": what, **versions, "rows": [asdict(row) for row in rows]}


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.compile_time", description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, default=HERE.parent.parent / "shared" / "models" / "tflite")
    parser.add_argument("--nets", nargs="*", default=list(NETS))
    parser.add_argument("--targets", nargs="*", default=list(TARGETS))
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument(
        "--residual", type=int, default=0, metavar="CONVOLUTIONS", help="that network instead of the nets"
    )
    parser.add_argument("--ram-budget", default="", help="that of emitc, such as min")
    parser.add_argument(
        "--corpus", type=Path, metavar="DIR", help="all models below this folder, with and without `min`"
    )
    parser.add_argument(
        "--match", default="", metavar="REGEX", help="with --corpus: only models with it in their paths"
    )
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    if arguments.corpus:
        sys.exit(_corpus(arguments))
    budget, limit = arguments.ram_budget, LIMIT_WITH_BUDGET if arguments.ram_budget else LIMIT
    if arguments.residual:
        limit = max(limit, SECONDS_PER_CONVOLUTION * arguments.residual)
        with tempfile.TemporaryDirectory(prefix="emitc_time_") as folder:
            model = Path(folder) / f"residual_{arguments.residual}.tflite"
            model.write_bytes(residual(arguments.residual))
            rows = [measure(model, target, arguments.runs, budget) for target in arguments.targets]
        print(text(rows, limit))
        sys.exit(any(row.seconds >= limit for row in rows))
    if not arguments.models.is_dir():
        parser.error(f"{arguments.models} is not there: pass --models DIR with the .tflite files")
    models = [arguments.models / f"{net}.tflite" for net in arguments.nets]
    rows = [measure(model, target, arguments.runs, budget) for model in models for target in arguments.targets]
    print(text(rows, limit))
    what = "seconds of CPU time of `emitc compile MODEL --target TARGET` as a process, the least of the runs"
    write_json(arguments.json, _with_versions(what, rows))
    if any(row.seconds >= limit for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()

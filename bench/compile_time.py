"""How long `emitc compile` takes as a whole process: seconds of CPU time, of which imports.

    python -m bench.compile_time [--models DIR] [--runs 7] [--json bench/results_compile_time.json]

Each model is compiled with the options and checks that are the default, by a process of its own on one thread. The time is what
the system counts for the process, user and system together. Other processes slow it down a little all the same; the least of the
runs is the one that they changed least. Imports are timed as a process that loads the same modules in the same order and does
nothing else.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from bench.boards import NETS as NETS
from emitc.report.tables import table

HERE = Path(__file__).resolve().parent
TARGETS = ("generic32", "cortex-m4f")
LIMIT = 1.0
"""Seconds that the least of the runs may take."""
_LOADED = "import sys, emitc.cli.main as c\ntry:\n    c.main()\nfinally:\n    print(*sys.modules, file=sys.stderr)"
"""Runs emitc, and lists the modules that it has loaded in the order of their loading."""
_LOADING = (
    "import importlib, sys\nfor name in sys.argv[1:]:\n    try:\n        importlib.import_module(name)\n"
    "    except ImportError:\n        pass"
)
"""Imports what it is told; some names are of modules that others make, and of `python -c` itself."""


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


def measure(model: Path, target: str, runs: int) -> Row:
    """One model for one target. The first run compiles modules that have changed, and is not counted."""
    with tempfile.TemporaryDirectory(prefix="emitc_time_") as folder:
        arguments = ["compile", str(model), "--target", target, "-o", f"{folder}/out"]
        modules = loaded_modules(arguments)
        times = [cpu_seconds([sys.executable, "-m", "emitc", *arguments]) for _ in range(runs)]
        loading = [cpu_seconds([sys.executable, "-c", _LOADING, *modules]) for _ in range(runs)]
    least, median = round(min(times), 2), round(statistics.median(times), 2)
    return Row(model.stem, target, runs, least, median, round(min(loading), 2), len(modules))


def text(rows: Sequence[Row]) -> str:
    """The table."""
    lines = [
        (
            row.model,
            row.target,
            f"{row.seconds:.2f}",
            f"{row.median_seconds:.2f}",
            f"{row.import_seconds:.2f}",
            f"{row.seconds - row.import_seconds:.2f}",
            row.modules,
            "yes" if row.seconds < LIMIT else "NO",
        )
        for row in rows
    ]
    columns = ("model", "target", "least s>", "median s>", "imports s>", "work s>", "modules>", f"below {LIMIT:.0f} s")
    return table(columns, lines, width=120)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.compile_time", description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=Path, default=HERE.parent.parent / "shared" / "models" / "tflite")
    parser.add_argument("--nets", nargs="*", default=list(NETS))
    parser.add_argument("--targets", nargs="*", default=list(TARGETS))
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--json", type=Path, help="write the figures here")
    arguments = parser.parse_args()
    if not arguments.models.is_dir():
        parser.error(f"{arguments.models} is not there: pass --models DIR with the .tflite files")
    models = [arguments.models / f"{net}.tflite" for net in arguments.nets]
    rows = [measure(model, target, arguments.runs) for model in models for target in arguments.targets]
    print(text(rows))
    if arguments.json:
        content = {
            "what": "seconds of CPU time of `emitc compile MODEL --target TARGET` as a process, the least of the runs",
            "python": platform.python_version(),
            "numpy": np.__version__,
            "rows": [asdict(row) for row in rows],
        }
        arguments.json.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    if any(row.seconds >= LIMIT for row in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()

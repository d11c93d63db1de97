"""What of the corpus runs on an Ethos-U, and whether it computes what the interpreter does, with vela's own figures.

    python -m bench.npu [MODEL ...] [--models DIRECTORY] [--npu NAME] [--memory MODE] [--optimise speed|size] [--update]

Every region that vela takes is taken (`--npu-always`), so that the table shows what can run there, not what pays. The
arena is emitc's plan for the whole net; the next column is the SRAM that vela's own command states for the whole net.
With Dedicated_Sram that is without the scratch that it keeps in DRAM, which the arena has. Cycles are vela's estimates.
Proven means: the C with the host model that the driver's call runs equals the interpreter, every layer compared. With
--update the rows of this configuration go into bench/results_npu.json. Exit code 1 when a net that compiles does not
match.
It is no `emitc sweep`, which records nothing of what vela states.
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import asdict, dataclass, field
from pathlib import Path

from emitc.backends.ethos_u import vela
from emitc.backends.ethos_u.definition import NAME
from emitc.backends.ethos_u.options import ACCELERATORS
from emitc.backends.partition import Partition
from emitc.compiler import compile_model
from emitc.errors import EmitcError, Refusals
from emitc.report.tables import table
from emitc.verify import verification

ROOT = Path(__file__).resolve().parents[1]
CORPUS = ROOT.parent / "shared" / "models" / "tflite"
RESULTS = Path(__file__).with_name("results_npu.json")
_START = "import sys; from ethosu.vela.vela import main; sys.exit(main())"


@dataclass(frozen=True, slots=True)
class Figures:
    """One net. core: operators there as `TYPE: reason`, with their number. vela_sram_bytes, vela_cycles: for the whole net, 0
    where vela fails. layers: outputs of layers compared. refused: why there is no C, "" where there is.
    """

    model: str
    npu: str
    memory: str
    optimise: str
    operators: int = 0
    on_npu: int = 0
    regions: int = 0
    core: dict[str, int] = field(default_factory=dict)
    arena_bytes: int = 0
    vela_sram_bytes: int = 0
    cycles: int = 0
    vela_cycles: int = 0
    samples: int = 0
    elements: int = 0
    differing: int = 0
    layers: int = 0
    match: bool | None = None
    refused: str = ""


def vela_summary(model: Path, npu: str, memory: str, optimise: str) -> tuple[int, int]:
    """Bytes of SRAM and cycles by vela's own command for the whole net; zeros where it fails."""
    accelerator = ACCELERATORS[npu]
    with tempfile.TemporaryDirectory(prefix="emitc-") as folder:
        options = {
            "--accelerator-config": npu,
            "--config": "Arm/vela.ini",
            "--system-config": accelerator.system,
            "--memory-mode": memory,
            "--optimise": "Size" if optimise == "size" else "Performance",
            "--output-dir": folder,
        }
        command = [sys.executable, "-c", _START, str(model), *(part for pair in options.items() for part in pair)]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, timeout=600)
        summaries = sorted(Path(folder).glob("*_summary_*.csv"))
        if done.returncode or not summaries:
            return 0, 0
        with summaries[0].open(encoding="utf-8", newline="") as file:
            row = next(csv.DictReader(file))
    return round(float(row["sram_memory_used"]) * 1024), round(float(row["cycles_total"]))


def on_core(partition: Partition) -> dict[str, int]:
    """Operators that stay on the core, by type and reason."""
    rows = [row for row in partition.assignments if row.backend != NAME]
    return dict(sorted(Counter(f"{row.op_type}: {dict(row.refused).get(NAME, '')}" for row in rows).items()))


def measure(model: Path, npu: str, memory: str, optimise: str, samples: int) -> Figures:
    """One net under one configuration."""
    backends = {"npu": npu, "npu-always": "yes", "npu-memory": memory, "npu-optimise": optimise}
    sram, cycles = vela_summary(model, npu, memory, optimise)
    about = Figures(model.stem, npu, memory, optimise, vela_sram_bytes=sram, vela_cycles=cycles)
    known = asdict(about)
    try:
        made = compile_model(model, backends=backends)
    except EmitcError as error:
        errors = error.errors if isinstance(error, Refusals) else (error,)
        return Figures(**known | {"refused": "; ".join(dict.fromkeys(problem.what for problem in errors))})
    partition = made.partition
    known |= {
        "operators": len(partition.assignments),
        "on_npu": sum(row.backend == NAME for row in partition.assignments),
        "regions": len(partition.regions),
        "core": on_core(partition),
        "arena_bytes": made.program.plan.arena_bytes,
        "cycles": sum(region.cycles for _, region in partition.regions),
    }
    proof = verification.verify(made, samples=samples, layers=True)
    return Figures(
        **known
        | {
            "samples": proof.samples,
            "elements": proof.elements,
            "differing": proof.differing,
            "layers": proof.layers_checked,
            "match": proof.match,
        }
    )


def text(rows: list[Figures]) -> str:
    """The table, and below it what stays on the core and why."""
    lines = []
    for r in rows:
        verdict = "refused" if r.refused else "yes" if r.match else "NO"
        against = f"{r.arena_bytes - r.vela_sram_bytes:+d}" if r.vela_sram_bytes and not r.refused else ""
        lines.append((
            r.model, f"{r.on_npu} of {r.operators}", str(r.regions), str(r.arena_bytes), str(r.vela_sram_bytes), against,
            str(r.cycles), str(r.vela_cycles), verdict,
        ))  # fmt: skip
    titles = ("model", "on the NPU", "regions>", "arena>", "vela SRAM>", "apart>", "cycles>", "vela>", "proven")
    parts = [table(titles, lines), ""]
    parts += [f"{r.model}: {count} x {what}" for r in rows for what, count in r.core.items()]
    parts += [f"{r.model}: refused: {r.refused}" for r in rows if r.refused]
    return "\n".join(parts)


def updated(rows: list[Figures]) -> str:
    """results_npu.json with these rows in it."""
    stored = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {"rows": []}
    key = ("model", "npu", "memory", "optimise")
    kept = {tuple(row[name] for name in key): row for row in stored["rows"]}
    kept |= {tuple(asdict(row)[name] for name in key): asdict(row) for row in rows}
    return json.dumps({"vela": vela.version(), "rows": [kept[row_key] for row_key in sorted(kept)]}, indent=1) + "\n"


def main() -> int:
    """Measures the nets that are named, or all of the folder."""
    parser = argparse.ArgumentParser(description="What of the corpus runs on an Ethos-U, proven by the host model.")
    parser.add_argument("names", nargs="*", metavar="MODEL", help="stems of the files; all of them by default")
    parser.add_argument("--models", type=Path, default=CORPUS, help="directory of the .tflite files")
    parser.add_argument("--npu", default="ethos-u55-128", choices=tuple(ACCELERATORS))
    parser.add_argument("--memory", default="", help="vela's memory mode; the accelerator's first one by default")
    parser.add_argument("--optimise", default="speed", choices=("speed", "size"))
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--update", action="store_true", help="write results_npu.json")
    arguments = parser.parse_args()
    paths = [p for p in sorted(arguments.models.glob("*.tflite")) if not arguments.names or p.stem in arguments.names]
    if not paths:
        parser.error(f"{arguments.models} has no such models")
    memory = arguments.memory or ACCELERATORS[arguments.npu].memories[0]
    rows = []
    for path in paths:
        rows.append(measure(path, arguments.npu, memory, arguments.optimise, arguments.samples))
        print(text(rows[-1:]).splitlines()[-1], file=sys.stderr)
    print(text(rows))
    if arguments.update:
        RESULTS.write_text(updated(rows), encoding="utf-8")
    return 0 if all(r.match is not False for r in rows) else 1


if __name__ == "__main__":
    raise SystemExit(main())

"""Files of vela with operators on the core between their command streams: what the C computes, and how large its arena is.

    python -m bench.vela_files [SEED ...] [--all-ways] [--npu-path] [--samples N] [--update]

Each net of `bench.networks.vela` is compiled by vela in a way of its own: chip, memory mode, goal, and some by vela's older
compiler. Those that have at least two command streams and an operator on the core between them count. Of each the table
has the elements of the C that differ from three others: the numpy references with the host model for the streams; the
host model on one memory laid out as the file says; TFLite Micro for the net before vela. The arena is planned and
observed; next to it are the bytes that the file states for the scratch memory. --all-ways compiles every net in every
way. --npu-path: the same nets by emitc's own `--npu` instead. With --update the rows go into results_vela_files.json.
Exit code 1 where anything differs, or where an arena has bytes that nothing touches.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from bench.networks.vela import vela_net
from bench.output import write_json
from emitc.backends.ethos_u import vela
from emitc.backends.ethos_u.definition import NAME
from emitc.backends.ethos_u.options import ACCELERATORS
from emitc.compiler import compile_model
from emitc.frontends.tflite.npu import OPERATOR
from emitc.frontends.tflite.reader import read_tflite
from emitc.report.tables import table
from emitc.verify import golden_run, verification
from emitc.verify.engines.contract import Array
from emitc.verify.engines.run import run_isolated
from emitc.verify.npu_check import VelaNetwork, read_vela
from emitc.verify.reference import random_samples
from emitc.verify.tolerances import difference

RESULTS = Path(__file__).with_name("results_vela_files.json")
SEEDS = range(72)
_START = "import sys; from ethosu.vela.vela import main; sys.exit(main())"


@dataclass(frozen=True, slots=True)
class Way:
    """How vela compiles: chip, memory mode, goal, bytes of arena to aim at (0: none stated), and which of its two compilers."""

    npu: str
    memory: str
    optimise: str = "Performance"
    arena_bytes: int = 0
    legacy: bool = False

    @property
    def name(self) -> str:
        """For tables and tests."""
        arena = f" {self.arena_bytes}" if self.arena_bytes else ""
        return f"{self.npu} {self.memory} {self.optimise}{arena}{' legacy' if self.legacy else ''}"

    def options(self) -> list[str]:
        """Of vela's command."""
        chosen = {
            "--accelerator-config": self.npu,
            "--config": "Arm/vela.ini",
            "--system-config": ACCELERATORS[self.npu].system,
            "--memory-mode": self.memory,
            "--optimise": self.optimise,
        }
        if self.arena_bytes:
            chosen["--arena-cache-size"] = str(self.arena_bytes)
        arguments = [part for pair in chosen.items() for part in pair]
        return [*arguments, "--debug-force-legacy-core"] if self.legacy else arguments


WAYS = (
    *(Way(npu, memory) for npu, chip in ACCELERATORS.items() for memory in chip.memories),
    *(Way(npu, memory, "Size") for npu in ("ethos-u55-128", "ethos-u65-256") for memory in ACCELERATORS[npu].memories),
    *(Way(npu, ACCELERATORS[npu].memories[0], arena_bytes=4096) for npu in ("ethos-u55-256", "ethos-u65-256")),
    *(Way(npu, m, legacy=True) for npu in ("ethos-u55-128", "ethos-u65-256") for m in ACCELERATORS[npu].memories),
)
"""Every chip in every memory mode; further goals and the older compiler for one chip of each family."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One file. streams: NPU operators; core: types of the others, in order. elements: of the outputs of all samples.

    differing: of these against the numpy references with the host model for streams; layers: outputs of layers compared with
    them. from_memory: elements of the host model on one memory against them. from_original: of the C against TFLite Micro on the
    net before vela. arena_planned, arena_observed: bytes; fast_bytes: of the former, for fast scratch memory; file_bytes:
    what the file states for the scratch memory, and for the fast one where it is used.
    """

    seed: int
    way: str
    streams: int = 0
    core: tuple[str, ...] = ()
    elements: int = 0
    differing: int = 0
    layers: int = 0
    from_memory: int = 0
    from_original: int = 0
    arena_planned: int = 0
    arena_observed: int = 0
    fast_bytes: int = 0
    file_bytes: int = 0
    errors: tuple[str, ...] = ()

    @property
    def right(self) -> bool:
        """Whether nothing differs and nothing is planned in vain."""
        same = not (self.differing or self.from_memory or self.from_original or self.errors)
        return same and self.arena_planned == self.arena_observed


def vela_file(folder: Path, model: Path, way: Way) -> Path:
    """What vela's command makes of a model. Raises RuntimeError where it fails."""
    command = [sys.executable, "-c", _START, str(model), *way.options(), "--output-dir", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, timeout=600)
    compiled = folder / f"{model.stem}_vela.tflite"
    if done.returncode or not compiled.is_file():
        raise RuntimeError(f"vela fails: {done.stdout[-500:]} {done.stderr[-500:]}")
    return compiled


def interleaved(types: Sequence[str]) -> bool:
    """Whether a file has a stream, then an operator of the core, then a stream."""
    streams = [i for i, kind in enumerate(types) if kind == OPERATOR]
    return bool(streams) and streams[-1] - streams[0] + 1 > len(streams)


def differing(actual: Sequence[Array], expected: Sequence[Array]) -> int:
    """Elements whose bits differ; shapes may have further ones in them."""
    return sum(difference(a, b.reshape(a.shape))[0] for a, b in zip(actual, expected, strict=True))


def measure(seed: int, way: Way, samples: int = 3, *, sanitize: bool = False) -> Figures | None:
    """One net in one way; None where vela leaves nothing between two streams."""
    with tempfile.TemporaryDirectory(prefix="emitc-") as name:
        folder = Path(name)
        model = folder / "net.tflite"
        model.write_bytes(vela_net(seed))
        path = vela_file(folder, model, way)
        types = [node.op_type for node in read_tflite(path.read_bytes()).nodes]
        if not interleaved(types):
            return None
        made = compile_model(path)
        cases = random_samples(made.graph, samples, seed)
        golden = run_isolated(model.read_bytes(), cases, engine="tflm")
        vectors = {f"in{i}_{k}": v for k, case in enumerate(cases) for i, v in enumerate(case)}
        np.savez(folder / "vectors.npz", **vectors)  # type: ignore[arg-type]
        proof = verification.verify(made, samples=0, vectors=folder / "vectors.npz", layers=True, sanitize=sanitize)
        network = VelaNetwork(read_vela(path.read_bytes()))
        memory = [network.run(case) for case in cases]
        values = golden_run.layer_values(made, cases)
        outputs = [[run[made.graph.root(n).name] for n in made.graph.outputs] for run in values]
        fast = [s.size_bytes for step in made.program.steps for s in step.scratch if s.tensor == "npu_fast"]
        return Figures(
            seed,
            way.name,
            types.count(OPERATOR),
            tuple(kind for kind in types if kind != OPERATOR),
            proof.elements,
            proof.differing + proof.numpy_differing,
            proof.layers_checked,
            sum(differing(a, b) for a, b in zip(memory, outputs, strict=True)),
            sum(differing(a, b) for a, b in zip(outputs, golden.outputs, strict=True)),
            proof.arena_planned,
            proof.arena_observed,
            max(fast, default=0),
            max(o.scratch_bytes for o in network.file.npu_operators) + max(fast, default=0),
            (*proof.memory_errors, *((str(proof.first_divergence),) if proof.first_divergence else ())),
        )


def measure_own(seed: int, way: Way, samples: int = 3) -> Figures:
    """The same net by emitc's own `--npu`, with the operators that it leaves to the core."""
    with tempfile.TemporaryDirectory(prefix="emitc-") as name:
        model = Path(name) / "net.tflite"
        model.write_bytes(vela_net(seed))
        goal = "size" if way.optimise == "Size" else "speed"
        backends = {"npu": way.npu, "npu-always": "yes", "npu-memory": way.memory, "npu-optimise": goal}
        made = compile_model(model, backends=backends)
        proof = verification.verify(made, samples=samples, seed=seed, layers=True)
        partition = made.partition
        core = tuple(row.op_type for row in partition.assignments if row.backend != NAME)
        return Figures(
            seed, f"{way.name} --npu", len(partition.regions), core, proof.elements, proof.numpy_differing,
            proof.layers_checked, 0, proof.differing, proof.arena_planned, proof.arena_observed,
            errors=(*proof.memory_errors, *((str(proof.first_divergence),) if proof.first_divergence else ())),
        )  # fmt: skip


def text(rows: Sequence[Figures]) -> str:
    """The table, and sums below it."""
    lines = [
        (
            str(r.seed), r.way, str(r.streams), str(len(r.core)), str(r.elements), str(r.differing), str(r.from_memory),
            str(r.from_original), str(r.arena_planned), str(r.arena_observed), str(r.file_bytes), "yes" if r.right else "NO",
        )
        for r in rows
    ]  # fmt: skip
    titles = (
        "net>", "way", "streams>", "core>", "elements>", "differ>", "memory>", "original>", "planned>", "observed>", "file>",
        "right",
    )  # fmt: skip
    total = sum(r.elements for r in rows)
    differing = [sum(getattr(r, name) for r in rows) for name in ("differing", "from_memory", "from_original")]
    lower = sum(r.arena_planned <= -(-r.file_bytes // 32) * 32 + 32 for r in rows)
    return "\n".join([
        table(titles, lines),
        "",
        f"{len(rows)} files, {len({r.way for r in rows})} ways, {total} elements",
        f"differing: {differing[0]} from the references, {differing[1]} from the memory model, {differing[2]} from the original",
        f"{sum(r.arena_planned != r.arena_observed for r in rows)} arenas with untouched bytes at the end;"
        f" {lower} of {len(rows)} arenas no larger than the file states",
        *(f"net {r.seed}, {r.way}: {error}" for r in rows for error in r.errors),
    ])  # fmt: skip


def main() -> int:
    """Measures the nets that are named, or all."""
    parser = argparse.ArgumentParser(description="Files of vela with operators on the core between their streams.")
    parser.add_argument("seeds", nargs="*", type=int, metavar="SEED", help="numbers of nets; all of them by default")
    parser.add_argument("--all-ways", action="store_true", help="every net in every way")
    parser.add_argument("--npu-path", action="store_true", help="by emitc's own --npu instead of by vela's command")
    parser.add_argument("--samples", type=int, default=3)
    parser.add_argument("--update", action="store_true", help=f"write {RESULTS.name}")
    arguments = parser.parse_args()
    rows: list[Figures] = []
    for seed in arguments.seeds or SEEDS:
        for way in WAYS if arguments.all_ways else (way_of(seed),):
            if arguments.npu_path and (way.legacy or way.arena_bytes):
                continue
            measured = measure_own if arguments.npu_path else measure
            row = measured(seed, way, arguments.samples)
            if row is not None:
                rows.append(row)
                print(text([row]).splitlines()[2], file=sys.stderr, flush=True)
    print(text(rows))
    if arguments.update:
        key = "own" if arguments.npu_path else "files"
        stored = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.is_file() else {}
        stored |= {"vela": vela.version(), key: [asdict(row) for row in rows]}
        write_json(RESULTS, stored)
    return 0 if all(row.right for row in rows) else 1


def way_of(seed: int) -> Way:
    """The way in which a net is compiled where it is compiled in one only."""
    return WAYS[seed % len(WAYS)]


if __name__ == "__main__":
    raise SystemExit(main())

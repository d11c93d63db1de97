"""Whether the verdict of `emitc verify` depends on the seed of the random inputs: every ONNX network, proven with many seeds.

    python -m bench.seeds [--seeds 20] [--models digits_mlp_qdq_u8u8.onnx ...] [--json bench/results_seeds.json]
    python -m bench.seeds --table

The networks are those of the corpus next to the checkout (../shared/models), and the two of `bench.networks.unet`. Each is
compiled and built once; each seed is a whole proof on 20 random inputs. A pair of a network and a seed that the file has for the
same code is not run again without --again. So a run that was stopped goes on where it was. The engine runs in this
process: these networks do not crash it.
It is no `emitc sweep`, which compiles a package again for each proof.

Each seed also has, of the operators whose rule is a rate, the type whose count of differences is the rarest: the count, the
elements, and the chance of as many differences at a rate of 1 in 10^5.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from bench.corpus import CORPUS, models
from bench.modes import code_digest
from bench.networks import unet
from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.errors import EmitcError
from emitc.report.tables import table
from emitc.target import BuildSupport
from emitc.verify.build import build_shared
from emitc.verify.engines.contract import EngineRefused
from emitc.verify.engines.run import IsolatedRun, engine_for
from emitc.verify.proof import Proof
from emitc.verify.verification import verify

RESULTS = Path(__file__).resolve().parent / "results_seeds.json"
SAMPLES = 20


class _Libraries:
    """Builds each of a model's two libraries once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._built: dict[bool, Path] = {}

    def __call__(self, package: Path, workdir: Path, *, trace: bool, support: BuildSupport | None = None) -> Path:
        """As `build_shared`."""
        if trace not in self._built:
            library = build_shared(package, workdir, trace=trace, support=support)
            self._built[trace] = Path(shutil.copy(library, self._folder / f"kept_{library.name}"))
            return library
        kept = self._built[trace]
        return Path(shutil.copy(kept, workdir / kept.name.removeprefix("kept_")))


def _run_here(
    model_bytes: bytes, cases: Sequence[Sequence[Any]], *, engine: Any = "auto", source_format: str = "tflite",
    preserve: bool = False, resets: Sequence[int] = (),
) -> IsolatedRun:  # fmt: skip
    """As `run_isolated`, in this process."""
    runner = engine_for(model_bytes, engine, preserve=preserve, source_format=source_format)
    outputs, tensors = [], []
    for number, case in enumerate(cases):
        if number in resets:
            runner.reset()
        outputs.append(tuple(runner.run(case)))
        tensors.append(runner.tensors())
    return IsolatedRun(runner.name, tuple(outputs), tuple(tensors))


@contextmanager
def _quick() -> Iterator[None]:
    """Proofs of one model, with its libraries built once and the engine in this process."""
    with (
        tempfile.TemporaryDirectory(prefix="emitc-") as folder,
        mock.patch("emitc.verify.verification.build_shared", _Libraries(Path(folder))),
        mock.patch("emitc.verify.golden_run.run_isolated", _run_here),
        mock.patch("emitc.verify.subgraph_checks.run_isolated", _run_here),
    ):
        yield


def _of_seed(compiled: Compiled, seed: int, reference: str) -> dict[str, Any]:
    """What one seed gives."""
    proof: Proof = verify(compiled, reference=reference, samples=SAMPLES, seed=seed)
    rates = [group for group in proof.groups if group.at_most is not None]
    worst = min(rates, key=lambda group: group.chance, default=None)
    return {
        "seed": seed,
        "match": proof.match,
        "rule": proof.rule,
        "differing": proof.differing,
        "unjudged": proof.unjudged,
        **({"worst": [worst.op_type, worst.differing, worst.elements, worst.chance]} if worst is not None else {}),
    }


def proven(path: Path, seeds: Sequence[int], known: dict[str, Any] | None = None) -> dict[str, Any]:
    """The row of one network: its code, and what each seed gives. known: its row so far; for the same code its seeds are kept."""
    row: dict[str, Any] = {"model": path.name, "code": "", "seeds": []}
    try:
        compiled = compile_model(path)
    except EmitcError as error:
        return row | {"refused": error.what}
    row["code"] = code_digest(compiled.files)
    if known is not None and known["code"] == row["code"]:
        row["seeds"] = list(known["seeds"])
    done = {trial["seed"] for trial in row["seeds"]}
    with _quick():
        for seed in seeds:
            if seed in done:
                continue
            try:
                row["seeds"].append(_of_seed(compiled, seed, "auto"))
            except EngineRefused as error:
                return row | {"no_engine": f"{error.what}: {error.why}"[:200]}
    return row


def verdict(row: dict[str, Any]) -> str:
    """`MATCH` or `MISMATCH` where all seeds agree, else how many of them match; why there is none."""
    if "refused" in row or "no_engine" in row:
        return "refused" if "refused" in row else "no engine"
    matches = sum(trial["match"] for trial in row["seeds"])
    if matches in (0, len(row["seeds"])):
        return "MATCH" if matches else "MISMATCH"
    return f"{matches} of {len(row['seeds'])} match"


def text(rows: Sequence[dict[str, Any]]) -> str:
    """The table, and what it comes to."""
    lines = []
    for row in rows:
        worst = min((trial["worst"] for trial in row["seeds"] if "worst" in trial), key=lambda w: w[3], default=None)
        rule = ", ".join(sorted({trial["rule"] for trial in row["seeds"]}))
        share = "" if worst is None else f"{worst[0]} {worst[1]} of {worst[2]} ({worst[3]:.2g})"
        lines.append((row["model"], verdict(row), str(len(row["seeds"])), rule, share))
    ran = [row for row in rows if row["seeds"]]
    one = sum(verdict(row) in ("MATCH", "MISMATCH") for row in ran)
    printed = table(("network", "verdict", "seeds", "rule", "rarest count (chance)"), lines)
    proofs = sum(len(row["seeds"]) for row in ran)
    return f"{printed}\n{one} of {len(ran)} networks have one verdict, in {proofs} proofs; {len(rows) - len(ran)} have none"


def read_rows(path: Path) -> dict[str, dict[str, Any]]:
    """The rows of a file by network; none where there is no file."""
    if not path.is_file():
        return {}
    return {row["model"]: row for row in json.loads(path.read_text(encoding="utf-8"))["models"]}


def write_rows(path: Path, rows: dict[str, dict[str, Any]]) -> None:
    """The file: one network a line."""
    lines = ",\n".join("  " + json.dumps(rows[name]) for name in sorted(rows))
    path.write_text(f'{{"samples": {SAMPLES}, "models": [\n{lines}\n]}}\n', encoding="ascii")


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--models", nargs="*", default=None)
    parser.add_argument("--json", type=Path, default=RESULTS)
    parser.add_argument("--again", action="store_true", help="run what the file has, too")
    parser.add_argument("--table", action="store_true", help="print the file and run nothing")
    options = parser.parse_args()
    rows = read_rows(options.json)
    if not options.table:
        with tempfile.TemporaryDirectory(prefix="emitc-") as folder:
            paths = {path.name: path for path in unet.write(Path(folder))}
            paths |= {Path(name).name: CORPUS / "onnx" / name for name in models(CORPUS) if name.endswith(".onnx")}
            for name in options.models if options.models is not None else sorted(paths):
                start = time.monotonic()
                row = proven(paths[name], range(options.seeds), None if options.again else rows.get(name))
                rows = read_rows(options.json) | {name: row}  # another process may have added some
                write_rows(options.json, rows)
                print(f"{name}: {verdict(row)} ({time.monotonic() - start:.0f} s)", flush=True)
    print(text([rows[name] for name in sorted(rows)]))
    return 0 if all(verdict(row) in ("MATCH", "refused", "no engine") for row in rows.values()) else 1


if __name__ == "__main__":
    sys.exit(main())

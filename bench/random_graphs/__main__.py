"""Command line of the campaign; see the package."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import tempfile
import time
from pathlib import Path

from bench.random_graphs import campaign as running
from bench.random_graphs import emulated
from bench.random_graphs.engines import EngineProcess, preload
from bench.random_graphs.formats import FORMATS, generate
from bench.random_graphs.judge import prepared
from bench.random_graphs.native import Builds
from bench.random_graphs.records import Tally
from bench.random_graphs.report import text
from emitc.verify.engines.run import engines_in

REGRESSIONS = Path(__file__).resolve().parents[2] / "tests" / "regression" / "random_graphs"


def main(arguments: list[str] | None = None) -> int:
    """Runs the campaign; 1 where a graph failed."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.random_graphs", description="Random graphs against their engines."
    )
    parser.add_argument("--count", type=int, default=1000, help="graphs in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--format", choices=(*FORMATS, "both"), default="tflite")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--out", type=Path, help="folder for the records; the campaign goes on with what it has")
    parser.add_argument("--regressions", type=Path, default=REGRESSIONS, help="folder for failures that were cut down")
    parser.add_argument("--json", type=Path, help="where to write the sum")
    parser.add_argument(
        "--after", type=Path, help="a sum of this campaign: its graphs are counted and not judged again"
    )
    parser.add_argument("--board", help="run the graphs on this emulated board, many in one image")
    parser.add_argument("--level", default="-O2", help="optimization of the board's compiler, such as --level=-Os")
    parser.add_argument("--only", metavar="FORMAT:SEED:INDEX", help="run one case and say everything about it")
    options = parser.parse_args(arguments)
    if options.only:
        return _one(options.only)
    if options.board:
        return _emulated(options)
    names = tuple(sorted(FORMATS, reverse=True)) if options.format == "both" else (options.format,)
    with tempfile.TemporaryDirectory(prefix="random-graphs-") as scratch:
        folder = options.out or Path(scratch)
        earlier = Tally.from_json(json.loads(options.after.read_text(encoding="utf-8"))) if options.after else Tally()
        asked = running.Campaign(
            options.seed, options.count, names, options.jobs, folder, options.regressions, libraries(), earlier
        )
        began = time.monotonic()
        tally = running.run(asked)
        seconds = time.monotonic() - began
        print(text(tally))
        print(f"this run took {seconds:.0f} s")
        if options.json:
            ran = (
                f"python -m bench.random_graphs --count {options.count} --seed {options.seed} --format {options.format}"
            )
            report = {"command": ran, **tally.to_json()}
            options.json.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return 1 if tally.failures() else 0


def libraries() -> dict[str, str]:
    """Folders of kernel libraries that are there: CMSIS-NN in the wheel of bakenn, ESP-NN where ESP_NN_PATH names it."""
    spec = importlib.util.find_spec("bakenn")
    wheel = Path(spec.origin).parent if spec is not None and spec.origin is not None else None
    folders = [path.parent.parent for path in wheel.rglob("Include/arm_nnfunctions.h")] if wheel else []
    of_wheel = str(folders[0]) if folders else ""
    places = {"cmsis-nn": of_wheel, "esp-nn": os.environ.get("ESP_NN_PATH", "")}
    return {name: place for name, place in places.items() if place}


def _emulated(options: argparse.Namespace) -> int:
    """The graphs on an emulated board; 1 where one of them failed there."""
    names = sorted(FORMATS, reverse=True) if options.format == "both" else [options.format]
    failures = 0
    for name in names:
        done = emulated.campaign(name, options.seed, -(-options.count // len(names)), options.board, options.level)
        said, failed = emulated.report(done)
        print(f"{name} on {options.board} with {options.level}: {said}")
        failures += failed
    return 1 if failures else 0


def _one(name: str) -> int:
    """One case, in full."""
    source_format, seed, index = name.split(":")
    preload(source_format)
    case = generate(source_format, int(seed), int(index))
    mode = running.mode_of(case, libraries())
    for node in case.description.nodes:
        print(node.op, node.inputs, node.outputs, dict(node.attributes))
    for value in case.description.values:
        what = "constant" if value.constant else "input" if value.name in case.description.inputs else "computed"
        print(value.name, value.dtype, list(value.shape), what, value.scales[:2], value.zero_points[:2])
    engine = EngineProcess()
    with tempfile.TemporaryDirectory() as scratch, engines_in(engine):
        trial = prepared(case, mode, Path(scratch))
        running.judged([trial], Builds(Path(scratch)))
    engine.close()
    print(mode, trial.verdict, trial.engine, trial.detail, trial.refused_by_engine, sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())

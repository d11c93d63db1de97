"""Inferences in steps on emulated boards: are the bits those of run, and how long is the longest step?

    python -m bench.steps [--nets NAME ...] [--boards NAME ...] [--max-step-cycles N] [--json FILE]

Each net is compiled with `--max-step-cycles`. The function that the board's program calls runs all steps, so that the board
proves their bits and counts their instructions together. A second program tells the layer hook after every step, so that each
one is counted alone. Instructions of `run` are those of bench/results_boards.json. The models are those of ../shared/models.
It is no `emitc sweep`, which boots programs as they are compiled and counts no steps.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench.boards import HERE, NETS
from bench.output import write_json
from emitc.boards.project import Firmware, RunLayer
from emitc.boards.run import run_on_board
from emitc.boards.verify import expected, require_fit, run_model
from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.errors import CannotCompile
from emitc.report.tables import table
from emitc.target import load_board

BOARDS = ("qemu_m0", "qemu_m4", "qemu_m55", "qemu_rv32")
MODELS = HERE.parent.parent / "shared" / "models" / "tflite"
LARGER = {"qemu_m0": "qemu_m0_big"}
"""Boards with more memory and the same core, for nets that are too large."""

_RUN = """
emitc_status {name}_run({name}_t *self)
{{
    emitc_status status = {name}_begin(self);
    for (uint32_t number = 0; status == EMITC_OK || status == EMITC_MORE; number++) {{
        status = {name}_step(self);
#if defined(EMITC_TRACE)
        emitc_layer_hook("{name}", number, self, sizeof self->step);
#endif
        if (status == EMITC_OK) {{
            break;
        }}
    }}
    return status;
}}
"""


def source_in_steps(name: str, source: str) -> str:
    """The model's source with another run, which runs the steps; the layer hook is told of steps and not of layers."""
    head = f"emitc_status {name}_run({name}_t *self)\n{{"
    assert source.count(head) == 1, f"{name} has one function run"
    renamed = source.replace(head, f"emitc_status {name}_whole({name}_t *self);\n{head.replace('_run(', '_whole(')}")
    return renamed.replace("defined(EMITC_TRACE)", "defined(BENCH_TRACES_LAYERS)") + _RUN.format(name=name)


def measured(compiled: Compiled, board: str, samples: int = 1) -> dict[str, Any]:
    """The inference in steps on a board. Raises CannotCompile where it does not fit."""
    require_fit(compiled, board)
    program, target = compiled.program, load_board(board)
    stepping = program.stepping
    assert stepping is not None
    model = run_model(compiled)
    labels = [stage.label for stage in stepping.stages for _ in range(stage.calls)]
    layers = tuple(RunLayer(i, label, str(i), 0) for i, label in enumerate(labels))
    files = dict(compiled.files)
    source = f"src/{program.name}.c"
    files[source] = source_in_steps(program.name, files[source].decode()).encode()
    _, cases = expected(compiled, "auto", samples, 0)
    with tempfile.TemporaryDirectory(prefix="emitc-steps-") as folder:
        package = Path(folder) / "package"
        for path, data in files.items():
            (package / path).parent.mkdir(parents=True, exist_ok=True)
            (package / path).write_bytes(data)
        firmware = Firmware(package, replace(model, layers=layers), cases, compiled.support(target.target))
        result = run_on_board(firmware, target, layers=True, workdir=Path(folder) / "board")
    counts = [layer.count for layer in result.layers or ()]
    longest = max(range(len(counts)), key=counts.__getitem__)
    return {
        "match": result.match,
        "steps": len(counts),
        "instructions": result.count,
        "longest": counts[longest],
        "longest_of": labels[longest],
        "estimated_cycles": stepping.longest.cycles if stepping.longest else 0,
    }


def rows(nets: list[str], boards: list[str], cycles: int) -> Iterator[dict[str, Any]]:
    """One row for each net and board."""
    stored = json.loads((HERE / "results_boards.json").read_text(encoding="utf-8"))["rows"]
    whole = {(row["model"], row["board"]): row.get("instructions") for row in stored if row["kernels"] == "portable"}
    for net in nets:
        for wanted in boards:
            board, target = wanted, load_board(wanted).target
            compiled = compile_model(
                MODELS / f"{net}.tflite", target=target, package="platformio", max_step_cycles=cycles
            )
            try:
                counts = measured(compiled, board)
            except CannotCompile:
                board = LARGER.get(wanted, wanted)
                counts = measured(compiled, board)
            run = whole.get((net, board), whole.get((net, LARGER.get(board, ""))))
            yield {"model": net, "board": board, "max_step_cycles": cycles, "run": run} | counts


def main(arguments: list[str] | None = None) -> int:
    """The command; 1 where a board found other bits."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.steps", description="Inferences in steps on emulated boards."
    )
    parser.add_argument("--nets", nargs="*", default=list(NETS))
    parser.add_argument("--boards", nargs="*", default=list(BOARDS))
    parser.add_argument("--max-step-cycles", type=int, default=100_000)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    measurements = []
    for row in rows(options.nets, options.boards, options.max_step_cycles):
        measurements.append(row)
        print(json.dumps(row), flush=True)
        write_json(options.json, {"rows": measurements})
    columns = ("model", "board", "match", "steps", "run", "instructions", "longest", "longest_of", "estimated_cycles")
    print(table(columns, [[row[name] for name in columns] for row in measurements]))
    return 0 if all(row["match"] for row in measurements) else 1


if __name__ == "__main__":
    sys.exit(main())

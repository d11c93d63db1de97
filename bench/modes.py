"""Models of the corpus in every mode of memory and kernels, on an emulated board, between guard bytes.

    python -m bench.modes --sample 60 [--seed 0] [--board qemu_m4] [--json bench/results_modes.json]
    python -m bench.modes --models kws_ref_int8.tflite --modes min default
    python -m bench.modes --changed

Each pair of a model and a mode is compiled, built and booted twice: as it is, and with the layer hook, where guard bytes lie
round every arena and the state. Arenas are full of junk before each case; outputs are compared with the golden engine's bits.
Pairs that the file has are not run again without --again, so that a run that was stopped goes on where it was; --changed compiles
them and runs those again whose code is not what it was. A mode that gives a model the code of another mode, except for comments,
is not booted a second time: its row names that mode (`same_as`) and has its figures.

`match`: every bit, and no guard byte touched. `floats`: a float output has other bits, within the tolerance of the host's proof.
`differs`: other outputs. `failed`: the firmware wrote outside of its memory, or did not come to its end. `too large`: for the
board. `unsupported`: no code for it in this mode.
It is no `emitc sweep`, which boots without guard bytes and does not compare code.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.corpus import CORPUS, JSON_FILE, format_of, models, read_verdicts
from emitc.boards.verify import on_emulator, require_fit
from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.errors import CannotCompile, EmitcError
from emitc.options import Options
from emitc.planner.region_assignment import Region
from emitc.report.tables import table
from emitc.target import load_board
from emitc.verify.engines.contract import EngineRefused

RESULTS = Path(__file__).resolve().parent / "results_modes.json"
TECHNIQUES = ("order", "views", "overlap", "moves")
_TWO = (Region("FAST", 6 << 10, 1.0), Region("SLOW", 3 << 20, 4.0))
MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "min": {"ram_budget": "min"},
    "size": {"optimize": "size"},
    "size-min": {"optimize": "size", "ram_budget": "min"},
    **{f"no-{name}": {"disabled": frozenset({name})} for name in TECHNIQUES},
    "plain": {"disabled": frozenset(TECHNIQUES)},
    "min-plain": {"ram_budget": "min", "disabled": frozenset({"order", "moves"})},
    "generic": {"target": "generic32"},
    "regions": {"regions": _TWO},
    "staged": {"regions": _TWO, "stage_weights": "FAST"},
}
"""Options by the name of the mode."""
BAD = ("differs", "failed")
_KEPT = ("verdict", "differing_bytes", "arena_bytes", "segments", "instructions")
"""What a row has that takes its figures from another mode's."""
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)


def code_digest(files: Mapping[str, bytes]) -> str:
    """SHA-256, 16 digits of it, of what a compiler sees of a package: its C without comments, and the build's flags."""
    digest = hashlib.sha256()
    for name in sorted(files):
        if name.endswith((".c", ".h", "library.json")):
            text = files[name].decode("utf-8")
            digest.update(f"{name}\0{_COMMENT.sub('', text)}\0".encode())
    return digest.hexdigest()[:16]


def _run(compiled: Compiled, board: str, reference: str) -> dict[str, Any]:
    result = on_emulator(compiled, board, reference=reference, samples=2, seed=0, layers=True, workdir=None)
    return {
        "verdict": "differs" if not result.match else "floats" if result.differing_bytes else "match",
        "differing_bytes": result.differing_bytes,
        "instructions": result.count,
        "flash_bytes": result.model_flash_bytes,
        "stack_bytes": result.stack_bytes,
    }


def compiled_for(model: Path, board: str, mode: str) -> Compiled:
    """The model compiled for the board in the mode; raises EmitcError."""
    target = {"target": load_board(board).target}
    return compile_model(model, Options(package="platformio", **(target | MODES[mode])))


def measure(compiled: Compiled, board: str) -> dict[str, Any]:
    """One model in one mode on the board."""
    program = compiled.program
    row: dict[str, Any] = {
        "code": code_digest(compiled.files),
        "arena_bytes": program.plan.arena_bytes,
        "lower_bound_bytes": program.plan.lower_bound_bytes,
        "segments": len(program.segments),
    }
    try:
        require_fit(compiled, board)
    except CannotCompile as error:
        return row | {"verdict": "too large", "why": error.why}
    try:
        try:
            outcome = _run(compiled, board, "auto")
        except EngineRefused:
            outcome = _run(compiled, board, "numpy")
    except EmitcError as error:
        verdict = "too large" if "does not fit" in error.what else "failed"
        return row | {"verdict": verdict, "why": f"{error.what}: {error.why}"}
    return row | outcome


def same_code(
    rows: Mapping[tuple[str, str], Mapping[str, Any]], name: str, mode: str, code: str
) -> dict[str, Any] | None:
    """The row of a mode that gave the model this code and that was booted for it; None where there is none."""
    for other in MODES:
        row = rows.get((name, other), {})
        if other != mode and row.get("code") == code and "same_as" not in row:
            return {key: row[key] for key in _KEPT if key in row} | {"same_as": other}
    return None


def pairs(names: Sequence[str], modes: Sequence[str], count: int | None, seed: int) -> list[tuple[str, str]]:
    """`count` of all pairs, the same ones for the same seed, in the order of the corpus; all of them for None."""
    every = [(name, mode) for name in names for mode in modes]
    if count is None or count >= len(every):
        return every
    return [every[i] for i in sorted(random.Random(seed).sample(range(len(every)), count))]


def read_rows(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """The rows of a file by model and mode; none where there is no file."""
    if not path.is_file():
        return {}
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return {(row["model"], row["mode"]): row for row in rows}


def json_text(rows: Mapping[tuple[str, str], Mapping[str, Any]], board: str) -> str:
    """The file: one pair a line, sorted."""
    lines = ",\n".join("  " + json.dumps(rows[key]) for key in sorted(rows))
    return f'{{"what": "corpus models by mode on an emulated board", "board": "{board}", "rows": [\n{lines}\n]}}\n'


def text(rows: Sequence[Mapping[str, Any]]) -> str:
    """The table and the number of each verdict."""
    cells = [
        (
            row["model"],
            row["mode"],
            row["verdict"],
            row.get("arena_bytes", "-"),
            row.get("segments", "-") or "-",
            row.get("instructions", "-"),
            row.get("stack_bytes", "-"),
            row.get("why", ""),
        )
        for row in rows
    ]
    counts = Counter(str(row["verdict"]) for row in rows)
    shared = sum("same_as" in row for row in rows)
    printed = table(("model", "mode", "verdict", "arena>", "segments>", "instr>", "stack>", "why"), cells, width=165)
    verdicts = ", ".join(f"{count} {name}" for name, count in counts.most_common())
    return f"{printed}\n\n{len(rows)} pairs: {verdicts}; {shared} have the code of another mode that was booted"


def main(arguments: Sequence[str] | None = None) -> int:
    """The command; 1 where a pair differs or fails."""
    parser = argparse.ArgumentParser(prog="python -m bench.modes", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--corpus", type=Path, default=CORPUS, help="folder with tflite/ and onnx/")
    parser.add_argument("--models", nargs="*", help="files below these folders instead of all verified models")
    parser.add_argument("--modes", nargs="*", choices=tuple(MODES), default=list(MODES))
    parser.add_argument("--board", default="qemu_m4")
    parser.add_argument("--sample", type=int, default=None, metavar="N", help="only N pairs")
    parser.add_argument("--seed", type=int, default=0, help="which sample")
    parser.add_argument("--again", action="store_true", help="also pairs that the file has")
    parser.add_argument(
        "--changed", action="store_true", help="also pairs that the file has, where their code has changed"
    )
    parser.add_argument("--json", type=Path, default=RESULTS, help="where the rows are kept")
    options = parser.parse_args(arguments)
    present = set(models(options.corpus))
    if not present:
        print(f"skipped: there is no corpus of models in {options.corpus}", file=sys.stderr)
        return 0
    verdicts = {v.model: v for v in read_verdicts(JSON_FILE)}
    names = options.models or [name for name, v in verdicts.items() if v.verdict == "verified" and name in present]
    rows, wanted = read_rows(options.json), pairs(names, options.modes, options.sample, options.seed)
    fresh: dict[tuple[str, str], dict[str, Any]] = {} if options.again or options.changed else rows
    for number, (name, mode) in enumerate(wanted, 1):
        if (name, mode) in rows and not (options.again or options.changed):
            continue
        start = time.monotonic()
        row: dict[str, Any] | None
        try:
            compiled = compiled_for(options.corpus / format_of(name) / name, options.board, mode)
        except EmitcError as error:
            row = {"verdict": "unsupported", "why": error.what}
        else:
            code = code_digest(compiled.files)
            row = same_code(fresh, name, mode, code)
            before = rows.get((name, mode), {})
            if row is None and options.changed and before.get("code") == code and "same_as" not in before:
                row = before
            if row is None:
                row = measure(compiled, options.board)
        fresh[name, mode] = rows[name, mode] = {"model": name, "mode": mode} | row
        options.json.write_text(json_text(rows, options.board), encoding="utf-8", newline="\n")
        seconds = time.monotonic() - start
        print(f"{number}/{len(wanted)} {name} {mode}: {row['verdict']} in {seconds:.0f} s", file=sys.stderr)
    judged = [rows[pair] for pair in wanted]
    print(text(judged))
    return 1 if any(row["verdict"] in BAD for row in judged) else 0


if __name__ == "__main__":
    raise SystemExit(main())

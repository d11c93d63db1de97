"""External weights: what they cost on emulated boards, and whether a package accepts changed files of them.

    python -m bench.weights --models ../shared/models/tflite --boards qemu_m4 qemu_rv32
    python -m bench.weights --models ../shared/models/tflite --mutants 10000 --hostile 100

Both are deterministic: instructions are counted exactly, and the files follow from a seed.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.boards import NETS
from bench.output import add_sweep_options, swept, write_json
from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.emit.render import environment
from emitc.options import Options
from emitc.report.tables import table
from emitc.verify.build import captured, run_compiler, sources

_SANITIZE = ("-g1", "-O1", "-fsanitize=address,bounds", "-fno-sanitize-recover=all")
"""Shifts by numbers of a hostile file are no accesses."""
_FLAGS = ("-std=c11", "-D_POSIX_C_SOURCE=200809L", "-ffp-contract=off")


@dataclass(frozen=True, slots=True)
class Attack:
    """What became of the files. accepted: mutants, of which there must be none. refused: hostile files with right sums.

    ran: hostile files with which the model ran. slowest_us: microseconds of the slowest init with a mutant.
    """

    accepted: int
    refused: int
    ran: int
    slowest_us: int


def attack(compiled: Compiled, mutants: int, hostile: int, seed: int = 0) -> Attack:
    """Offers `mutants` changed files of weights and `hostile` ones with any content to a package, under AddressSanitizer.

    The package has one arena, external weights, and inputs that lie in it; raises ValueError for another one. A package accepts
    no changed file, and no content leads to an access outside of the file, the arena and the state: raises RuntimeError where the
    sanitizer has seen one, or the program did not end.
    """
    program = compiled.program
    if program.external is None or program.regions or program.streamed_input is not None:
        raise ValueError("the driver gives one arena and writes every input there")
    with tempfile.TemporaryDirectory(prefix="emitc-") as name:
        folder = Path(name)
        compiled.write(folder / "package")
        described = {"name": program.name, "upper": program.upper, "inputs": len(program.inputs)}
        main = folder / "weights_main.c"
        template = Path(__file__).with_name("weights_main.c.j2").read_text(encoding="ascii")
        main.write_text(environment().from_string(template).render(m=described), encoding="ascii")
        files, includes = sources(folder / "package")
        options = [*_FLAGS, *_SANITIZE, *(f"-I{include}" for include in includes)]
        run_compiler([*options, str(main), *map(str, files), "-o", str(folder / "attack"), "-lm"])
        weights = folder / "weights.bin"
        weights.write_bytes(program.external.file())
        done = captured([str(folder / "attack"), str(weights), str(mutants), str(hostile), str(seed)])
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "ERROR" in line or "runtime error" in line]
        raise RuntimeError(f"a file of weights led outside of {program.name}: {lines[0] if lines else done.returncode}")
    return Attack(*map(int, done.stdout.split()))


def costs(models: list[Path], arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Instructions of one inference with weights in the C and in a file."""
    variants = {weights: Options(weights=weights) for weights in ("built-in", "external")}
    rows = swept(models, arguments.boards, variants, arguments)
    made = []
    for row, other in zip(rows[::2], rows[1::2], strict=True):
        assert row["match"] and other["match"], f"{row['model']} on {row['board']}"
        counts = {one["options"]: one["instructions"] for one in (row, other)}
        more = round(100 * (counts["external"] / counts["built-in"] - 1), 2)
        made.append({"model": Path(row["model"]).stem, "board": row["board"], **counts, "more": more})
    return sorted(made, key=lambda row: arguments.boards.index(row["board"]))


def offered(model: Path, target: str, mutants: int, hostile: int) -> dict[str, Any]:
    """What became of changed and of hostile files."""
    made = compile_model(model, target=target, weights="external")
    return {"model": model.stem, "target": target, "mutants": mutants, **asdict(attack(made, mutants, hostile))}


def main() -> None:
    """Prints a table, and writes it with --json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, required=True)
    parser.add_argument("--nets", nargs="*", default=list(NETS))
    parser.add_argument("--boards", nargs="*", default=[])
    parser.add_argument("--targets", nargs="*", default=["generic32"])
    parser.add_argument("--mutants", type=int, default=0)
    parser.add_argument("--hostile", type=int, default=0)
    parser.add_argument("--json", type=Path)
    add_sweep_options(parser)
    values = parser.parse_args()
    paths = [values.models / f"{net}.tflite" for net in values.nets]
    rows = costs(paths, values) if values.boards else []
    if values.mutants or values.hostile:
        rows += [offered(path, target, values.mutants, values.hostile) for target in values.targets for path in paths]
    for group in ([row for row in rows if "more" in row], [row for row in rows if "more" not in row]):
        if group:
            print(table(tuple(group[0]), [tuple(str(value) for value in row.values()) for row in group]))
    write_json(values.json, {"rows": rows})


if __name__ == "__main__":
    main()

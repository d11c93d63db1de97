"""Damaged and hostile files of weights, offered to a package on this machine under AddressSanitizer.

What is shown: a package accepts no changed file, a check takes a bounded time, and no content of a file leads to an access
outside of the file, the arena and the state.
"""

import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from emitc.compiled import Compiled
from emitc.emit.render import environment
from emitc.errors import CannotCompile, EmitcError, Where
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

    def to_json(self) -> dict[str, Any]:
        """For results of a bench."""
        return asdict(self)


def attack(compiled: Compiled, mutants: int, hostile: int, seed: int = 0) -> Attack:
    """Offers `mutants` changed files and `hostile` ones with any content to a package.

    The package has one arena, external weights, and inputs that lie in it. Raises EmitcError for another one, CannotCompile where
    a sanitizer found a stray access or the program did not end.
    """
    program = compiled.program
    if program.external is None or program.regions or program.streamed_input is not None:
        why = "the driver gives one arena and writes every input there"
        raise EmitcError("this package cannot be attacked", Where(model=program.name), why, "compile it otherwise")
    with tempfile.TemporaryDirectory(prefix="emitc-") as name:
        folder = Path(name)
        compiled.write(folder / "package")
        described = {"name": program.name, "upper": program.upper, "inputs": len(program.inputs)}
        main = folder / "weights_main.c"
        text = environment().get_template("verify/weights_main.c.j2").render(m=described)
        main.write_text(text, encoding="ascii")
        files, includes = sources(folder / "package")
        options = [*_FLAGS, *_SANITIZE, *(f"-I{include}" for include in includes)]
        run_compiler([*options, str(main), *map(str, files), "-o", str(folder / "attack"), "-lm"])
        weights = folder / "weights.bin"
        weights.write_bytes(program.external.file())
        done = captured([str(folder / "attack"), str(weights), str(mutants), str(hostile), str(seed)])
    if done.returncode:
        why = next((line for line in done.stderr.splitlines() if "ERROR" in line or "runtime error" in line), "")
        hint = "this is a bug of emitc: please report it with the model"
        raise CannotCompile(
            "a file of weights led outside", Where(model=program.name), why or str(done.returncode), hint
        )
    return Attack(*map(int, done.stdout.split()))

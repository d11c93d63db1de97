"""Exact instruction counts: a QEMU plugin (boards/counter/insncount.c), built on first use by the host's C compiler."""

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from emitc.boards.cycle_model import Ran
from emitc.boards.elf import addresses
from emitc.records import dataclass
from emitc.target import boards_dir
from emitc.verify.build import COMPILERS

BEGIN, END, HOOK, RESUME = "emitc_count_begin", "emitc_count_end", "emitc_layer_hook", "emitc_hook_end"
CALL_INSTRUCTIONS = 1
"""The call of the measured function stands between the markers and is not the function's."""
KNOWN_LOOP = 200_003
"""Instructions of emitc_known_loop (boards/proof/emitc_measure.c): two, 100 000 turns of two, the return."""

NOT_COUNTED = Ran({})


@dataclass(frozen=True, slots=True)
class Window:
    """Instructions of one measured call: up to each cut at the layer hook, and after the last (or only) cut.

    ran: what ran, where the plugin counts by address.
    """

    cuts: tuple[int, ...]
    rest: int
    ran: Ran = NOT_COUNTED

    @property
    def total(self) -> int:
        """All of them, what the hook itself executed excepted."""
        return sum(self.cuts) + self.rest


def plugin(emulator: str, cache: Path) -> Path | None:
    """The plugin, built into `cache` and tried; None where there is no compiler, or no such plugin for `emulator`."""
    source = boards_dir() / "counter" / "insncount.c"
    tag = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    library = cache / f"libinsncount-{tag}.so"
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if shutil.which(emulator) is None or (compiler is None and not library.is_file()):
        return None
    if not library.is_file() and compiler is not None:
        cache.mkdir(parents=True, exist_ok=True)
        partial = library.with_suffix(f".{os.getpid()}.tmp")
        undefined = ["-undefined", "dynamic_lookup"] if sys.platform == "darwin" else []
        command = [compiler, "-O2", "-shared", "-fPIC", *undefined, "-o", str(partial), str(source)]
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            return None
        partial.replace(library)
    return library if _loads(emulator, library) else None


def arguments(library: Path, elf: Path, counts: Path, constants: tuple[int, int] | None = None) -> list[str]:
    """QEMU's arguments that make it write the windows of `elf` to `counts`.

    constants: addresses of which the bytes that loads read are counted, and with them the count of each instruction.
    """
    at = addresses(elf, (BEGIN, END, HOOK, RESUME))
    options = [f"begin={at[BEGIN]:#x}", f"end={at[END]:#x}", f"out={_escaped(counts)}"]
    if HOOK in at and RESUME in at:
        options += [f"hook={at[HOOK]:#x}", f"resume={at[RESUME]:#x}"]
    if constants is not None:
        options += ["places=1", f"constants={constants[0]:#x}", f"constants_end={constants[1]:#x}"]
    return ["-plugin", ",".join([_escaped(library), *options])]


def windows(counts: Path) -> tuple[Window, ...]:
    result: list[Window] = []
    cuts: list[int] = []
    places: dict[int, int] = {}
    constants = 0
    for line in counts.read_text(encoding="ascii").splitlines():
        word, *numbers = line.split()
        if word == "begin":
            cuts, places, constants = [], {}, 0
        elif word == "cut":
            cuts.append(int(numbers[0]))
        elif word == "at":
            places[int(numbers[0])] = int(numbers[1])
        elif word == "constants":
            constants = int(numbers[0])
        elif word == "end":
            first, *others = *cuts, int(numbers[0])
            *before, rest = first - CALL_INSTRUCTIONS, *others
            result.append(Window(tuple(before), rest, Ran(places, constants)))
    return tuple(result)


def _escaped(path: Path) -> str:
    return str(path).replace(",", ",,")


def _loads(emulator: str, library: Path) -> bool:
    # A QEMU without plugins, or one that dropped this version of their interface, says so at start.
    command = [emulator, "-M", "none", "-display", "none", "-serial", "none", "-monitor", "stdio"]
    command += ["-plugin", f"{_escaped(library)},begin=1,end=2,out={os.devnull}"]
    try:
        done = subprocess.run(command, input=b"quit\n", capture_output=True, timeout=30, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0

"""Boards of kind "rtl": the register-transfer description of a core, simulated by Verilator, whose cycles are exact.

The simulated core runs the image that the emulated board `qemu_rv32` runs. Its semihosting calls become stores to
addresses that the simulation serves (boards/rtl/machine.h). Cycles count from the marker before the call of
<model>_run to the marker after it, as the core retires them; they depend on the memory's timing, which is data
(boards/rtl/memories.toml).
"""

import hashlib
import importlib.metadata
import importlib.util
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import tomllib
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from emitc.boards import counter, protocol
from emitc.boards.elf import addresses, functions, loaded
from emitc.errors import CannotCompile, EmitcError, Where, install_hint
from emitc.records import dataclass
from emitc.target import Board, boards_dir
from emitc.verify.build import captured

BUILD_SECONDS = 1200.0
CYCLES = 20_000_000_000
"""After so many cycles a simulation gives up; the time limit ends it earlier."""
MEMORY_BYTES = 8 << 20
_SEMIHOSTING = struct.pack("<III", 0x01F01013, 0x00100073, 0x40705013)
"""slli x0, x0, 31; ebreak; srai x0, x0, 7: the call as the RISC-V semihosting specification states it."""
_STORES = struct.pack("<III", 0xF0A02023, 0xF0B02223, 0xF0002503)
"""sw a0, -256(x0); sw a1, -252(x0); lw a0, -256(x0)."""


_UNUSED = ("COVERAGE", "SC", "TIMING", "TRACE", "TRACE_FST", "TRACE_VCD", "TRACE_SAIF")
"""Features of Verilator's library that a simulation does not have."""


@dataclass(frozen=True, slots=True)
class Core:
    """A core as boards/rtl/<name>.toml describes it.

    bus: the simulation's main file. package: the distribution that brings the sources; "" where a folder has to be
    given. folder: of the sources in the package. sources, without: file patterns, and files that they do not mean.
    stalls: what the core's stall signals say, in the order of their bits. events: what the bits after these say, which are
    set once for each event. starts_before: bytes before the image's first
    byte at which the core starts.
    """

    name: str
    title: str
    bus: str
    top: str
    package: str
    folder: str
    sources: tuple[str, ...]
    without: tuple[str, ...]
    includes: tuple[str, ...]
    stalls: tuple[str, ...]
    events: tuple[str, ...]
    starts_before: int


@dataclass(frozen=True, slots=True)
class MemoryTiming:
    """When the memory of code and constants answers (boards/rtl/memories.toml). wait_cycles: 0 for always at once."""

    name: str
    title: str
    wait_cycles: int = 0
    line_bytes: int = 4
    lines: int = 1
    ways: int = 1


@dataclass(frozen=True, slots=True)
class Function:
    """Cycles and instructions of a C function during one call of the model, without the functions that it calls."""

    name: str
    cycles: int
    instructions: int


@dataclass(frozen=True, slots=True)
class Simulated:
    """One measured call: its cycles and instructions, cut at the layer hook.

    stalls: cycles during which a stall signal was set, by its meaning. events: how often. misses: lines that the slow
    memory read.
    """

    cycles: counter.Window
    instructions: counter.Window
    stalls: tuple[tuple[str, int], ...]
    events: tuple[tuple[str, int], ...]
    misses: int
    functions: tuple[Function, ...]


def core_of(board: Board) -> Core:
    path = boards_dir() / "rtl" / f"{board.core}.toml"
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    values: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in content.items()}
    return Core(name=board.core, **values)


def memory_timing(name: str) -> MemoryTiming:
    """The memory timing of that name; EmitcError where there is none."""
    content = tomllib.loads((boards_dir() / "rtl" / "memories.toml").read_text(encoding="utf-8"))
    if name not in content:
        what, why = f"there is no memory timing {name!r}", f"the memory timings are {', '.join(content)}"
        raise EmitcError(what, Where(option="--memory"), why, "docs/boards.md describes them")
    return MemoryTiming(name=name, **content[name])


def simulator(board: Board, rtl: Path | None) -> Path:
    """The program that simulates the board's core; it is built once for the same sources and tools.

    rtl: folder of the core's sources, where no package carries them. Raises CannotCompile where a tool or the sources
    are missing, or the build fails.
    """
    core, where = core_of(board), Where(option=f"--board {board.name}")
    folder = _sources(core, rtl, where)
    tools = _tools(where)
    files = _files(core, folder, where)
    reset = image_base(board)
    digest = hashlib.sha256(f"{reset} {importlib.metadata.version('verilator')} {sys.platform}".encode())
    own = [boards_dir() / "rtl" / name for name in ("machine.h", f"{core.bus}.cpp", core.top, f"{core.name}.toml")]
    for path in [*own, *files]:
        digest.update(path.name.encode() + path.read_bytes())
    program = _cache() / f"{core.name}-{digest.hexdigest()[:16]}" / "simulate"
    if not program.is_file():
        program.parent.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="rtl-", dir=program.parent.parent) as scratch:
            options = (f"+define+RESET_ADDRESS=32'h{reset:x}", *(f"-I{folder / path}" for path in core.includes))
            made = _built(core, files, Path(scratch), tools, options, where)
            program.parent.mkdir(exist_ok=True)
            made.replace(program)
    return program


def image_base(board: Board) -> int:
    """Address of the image's first byte, at which the core starts."""
    return next(region.start for region in board.memory if region.kind == "flash")


def simulate(
    board: Board, program: Path, image: Path, timing: MemoryTiming, workdir: Path, timeout: float
) -> tuple[str, tuple[Simulated, ...]]:
    """What the firmware printed, and its measured calls in their order. timeout: seconds.

    Raises CannotCompile where the firmware does not stop in time or leaves with another code than 0.
    """
    core = core_of(board)
    flat, settings, counts = (workdir / f"{image.parent.name}.{kind}" for kind in ("bin", "settings", "counts"))
    flat.write_bytes(_flat(image, image_base(board), core.starts_before))
    settings.write_text(_settings(board, core, image, timing), encoding="ascii")
    where = Where(option=f"--board {board.name}")
    command = [str(program), str(flat), str(settings), str(counts)]
    try:
        done = captured(command, stdin=subprocess.DEVNULL, encoding="ascii", timeout=timeout)
    except subprocess.TimeoutExpired as late:
        said = (late.stdout or b"").decode("ascii", errors="replace")
        what = f"the simulated core did not stop within {timeout:g} s"
        hint = "allow more time with --timeout, or fewer cases with --samples"
        raise CannotCompile(what, where, f"its last line was: {protocol.last_line(said)}", hint) from None
    if done.returncode != 0:
        what = f"the firmware did not end as it should on {board.title}"
        why = f"exit code {done.returncode}: {done.stderr.strip() or protocol.last_line(done.stdout)}"
        raise CannotCompile(what, where, why, f"look at it by hand: {' '.join(command)}")
    return done.stdout, _measured(counts, image, core)


def _sources(core: Core, rtl: Path | None, where: Where) -> Path:
    if core.package == "":
        if rtl is None:
            what = f"the sources of {core.title} are not given"
            hint = "clone them, and name their folder with --rtl PATH"
            raise CannotCompile(what, where, "no Python package carries them", hint)
        return rtl.resolve()
    return _package_folder(core.package, f"it brings the sources of {core.title}", where) / core.folder


def _package_folder(package: str, why: str, where: Where) -> Path:
    """The folder of an installed package. why: it is needed. Raises CannotCompile where it is not there."""
    module = importlib.util.find_spec(package.replace("-", "_"))
    if module is None or not module.submodule_search_locations:
        raise CannotCompile(f"{package} is not installed", where, why, install_hint("rtl"))
    return Path(next(iter(module.submodule_search_locations)))


def _tools(where: Where) -> tuple[Path, str]:
    """What builds a simulator: Verilator's folder, and a C++ compiler."""
    root = _package_folder("verilator", "it turns the core's sources into a program", where)
    compiler = next((path for name in ("g++", "clang++") if (path := shutil.which(name))), None)
    if compiler is None:
        hint = "on Debian and Ubuntu: apt-get install g++"
        raise CannotCompile("there is no C++ compiler", where, "g++ or clang++ builds the simulated core", hint)
    return root, compiler


def _files(core: Core, folder: Path, where: Where) -> list[Path]:
    """The sources in the order in which they are read: packages first, as the description lists them."""
    without = {folder / name for name in core.without}
    paths: dict[Path, None] = {}
    for pattern in core.sources:
        matches = sorted(folder.glob(pattern))
        if not matches:
            what, hint = f"the sources of {core.title} are incomplete", "--rtl names the folder that holds these files"
            raise CannotCompile(what, where, f"{folder} has no {pattern}", hint)
        paths |= dict.fromkeys(path for path in matches if path not in without)
    return list(paths)


def _cache() -> Path:
    import platformdirs

    return Path(platformdirs.user_cache_dir("emitc")) / "rtl"


def _built(
    core: Core, files: Sequence[Path], scratch: Path, tools: tuple[Path, str], options: Sequence[str], where: Where
) -> Path:
    (verilator, compiler), own, model = tools, boards_dir() / "rtl", scratch / "model"
    files = [_verilatable(path, scratch) for path in files]
    command = [
        str(verilator / "bin" / "verilator_bin"), "--cc", "-O3", "--x-assign", "0", "--x-initial", "0", "--noassert",
        "--output-split", "5000",
        "-Wno-fatal", "-Wno-lint", "-Wno-style", "--top-module", "core_top", "--prefix", "Vcore_top",
        *options,
        "--Mdir", str(model), *map(str, files), str(own / core.top),
    ]  # fmt: skip
    _run(command, core, where, VERILATOR_ROOT=str(verilator))
    include = verilator / "include"
    sources = [*model.glob("*.cpp"), own / f"{core.bus}.cpp"]
    sources += [include / name for name in ("verilated.cpp", "verilated_threads.cpp")]
    flags = ["-std=c++17", "-DNDEBUG", "-DVERILATOR=1", *(f"-DVM_{warning}=0" for warning in _UNUSED)]
    folders = [f"-I{folder}" for folder in (model, own, include, include / "vltstd")]

    def compiled(source: Path) -> str:
        target = model / f"{source.stem}.o"
        # Verilator puts what runs once into files of their own, so that no time is spent on making it fast.
        level = "-O0" if source.stem.endswith("__Slow") else "-O2"
        _run([compiler, level, *flags, *folders, "-c", str(source), "-o", str(target)], core, where)
        return str(target)

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compiled, sources))
    program = scratch / "simulate"
    _run([compiler, *objects, "-o", str(program), "-pthread"], core, where)
    return program


def _verilatable(path: Path, scratch: Path) -> Path:
    """The file, or a copy of it with the same meaning that Verilator simulates rightly.

    Hazard3's fetch queue drives arrays from two processes; Verilator 5 loses fetched words there without a warning. In
    the copy the two arrays of valid bits are vectors, which one assignment for each bit drives.
    """
    if path.name != "hazard3_frontend.v":
        return path
    text = path.read_text(encoding="utf-8")
    text, arrays = re.subn(r"\breg\s+(fifo_valid(?:_m1)?)\s*\[0:FIFO_DEPTH\];", r"wire [FIFO_DEPTH:0] \1;", text)
    vectors = (
        "generate\n\tgenvar bit_of;\n\tfor (bit_of = 0; bit_of < FIFO_DEPTH; bit_of = bit_of + 1) begin: g_valid\n"
        "\t\tassign fifo_valid[bit_of] = |EXTENSION_C ? |fifo_valid_hw[bit_of] : fifo_valid_hw[bit_of][0];\n"
        "\t\tif (bit_of == 0) begin: g_first\n\t\t\tassign fifo_valid_m1[bit_of] = 1'b1;\n"
        "\t\tend else begin: g_next\n\t\t\tassign fifo_valid_m1[bit_of] = fifo_valid[bit_of - 1];\n\t\tend\n\tend\nendgenerate\n"
        "assign fifo_valid[FIFO_DEPTH] = 1'b0;\nassign fifo_valid_m1[FIFO_DEPTH] = 1'b0;\n"
    )
    process = r"always @ \(\*\) begin: boundary_conditions\n.*?\n\tfor \(.*?\n\tend\nend\n"
    text, processes = re.subn(process, lambda _: vectors, text, flags=re.DOTALL)
    if (arrays, processes) != (2, 1):
        return path  # another version, which may not have the fault: the known loop is checked in every run
    copy = scratch / path.name
    copy.write_text(text, encoding="utf-8")
    return copy


def _run(command: Sequence[str], core: Core, where: Where, **environment: str) -> None:
    done = captured(command, stdin=subprocess.DEVNULL, timeout=BUILD_SECONDS, env={**os.environ, **environment})
    if done.returncode != 0:
        lines = [line for line in (done.stderr + done.stdout).splitlines() if "rror" in line]
        why = " | ".join(lines[:4]) or "no reason was printed"
        hint = "check the versions of verilator and of the core's sources"
        raise CannotCompile(f"the simulation of {core.title} cannot be built", where, why, hint)


def _flat(image: Path, base: int, starts_before: int) -> bytes:
    """The image's bytes from where the core starts, with semihosting calls as stores, and a jump to the first byte."""
    patched = loaded(image, base, MEMORY_BYTES).replace(_SEMIHOSTING, _STORES)
    if starts_before == 0:
        return patched
    # jal x0, starts_before: bits 10:1 of the distance stand in bits 30:21 of the instruction.
    jump = struct.pack("<I", 0x6F | (starts_before >> 1 & 0x3FF) << 21)
    return jump + bytes(starts_before - len(jump)) + patched


def _settings(board: Board, core: Core, image: Path, timing: MemoryTiming) -> str:
    markers = addresses(image, (counter.BEGIN, counter.END, counter.HOOK, counter.RESUME))
    base = image_base(board)
    names = {"begin": counter.BEGIN, "end": counter.END, "hook": counter.HOOK, "resume": counter.RESUME}
    lines = [f"base {base - core.starts_before}", f"bytes {MEMORY_BYTES + core.starts_before}", f"cycles {CYCLES}"]
    lines += [f"{name} {markers.get(symbol, 0)}" for name, symbol in names.items()]
    if timing.wait_cycles:
        flash = next(region for region in board.memory if region.kind == "flash")
        lines.append(
            f"slow {flash.start} {flash.end} {timing.wait_cycles} {timing.line_bytes} {timing.lines} {timing.ways}"
        )
    return "\n".join(lines) + "\n"


def _measured(counts: Path, image: Path, core: Core) -> tuple[Simulated, ...]:
    named = functions(image)
    starts = sorted(named)
    runs: list[Simulated] = []
    cuts: list[tuple[int, int]] = []
    stalls: list[int] = []
    misses = 0
    cycles: Counter[str] = Counter()
    instructions: Counter[str] = Counter()
    for line in counts.read_text(encoding="ascii").splitlines():
        word, *texts = line.split()
        numbers = [int(text) for text in texts]
        if word == "begin":
            cuts, cycles, instructions = [], Counter(), Counter()
        elif word == "cut":
            cuts.append((numbers[0], numbers[1]))
        elif word == "at":
            name = named[starts[bisect_right(starts, numbers[0]) - 1]]
            cycles[name] += numbers[1]
            instructions[name] += numbers[2]
        elif word == "events":
            stalls = numbers
        elif word == "misses":
            misses = numbers[0]
        elif word == "end":
            (*spent, rest), (first, *ran) = zip(*cuts, (numbers[0], numbers[1]), strict=True)
            # The call itself stands between the markers; its cycles are the price of calling a function.
            *ran, last = first - counter.CALL_INSTRUCTIONS, *ran
            windows = counter.Window(tuple(spent), rest), counter.Window(tuple(ran), last)
            functions_of = (Function(name, count, instructions[name]) for name, count in cycles.most_common())
            signals = tuple(zip((*core.stalls, *core.events), stalls, strict=False))
            parts = signals[: len(core.stalls)], signals[len(core.stalls) :]
            runs.append(Simulated(*windows, *parts, misses, tuple(functions_of)))
    return tuple(runs)

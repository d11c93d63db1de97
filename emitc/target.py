"""Targets (instruction sets) and boards, as `boards/targets/*.toml` and `boards/*.toml` describe them.

Files are validated when they are read: an unknown key, a wrong type or an overlap of memory regions is an EmitcError
that names the file. Inside emitc the frozen values below are trusted.
"""

from __future__ import annotations

import difflib
import itertools
import tomllib
from pathlib import Path
from typing import Any, TypeVar

from emitc.errors import EmitcError, Where
from emitc.records import MISSING, dataclass, fields, replace
from emitc.toml_table import TomlTable

DSP, FPU, MVE, DUAL = "dsp", "fpu", "mve", "dual"
FEATURES = (DSP, FPU, MVE, DUAL, "gpr31", "swar", "mul32", "xpulp", "rvv")
REGION_KINDS = ("flash", "ram")
BOARD_KINDS = ("qemu", "rtl", "silicon")
MEASURES = ("match", "instructions", "cycles", "microseconds", "layers", "stack", "sizes")


@dataclass(frozen=True, slots=True)
class Timing:
    """Core cycles by kind of instruction, for code and data in memory without wait states (emitc/boards/cycle_model.py).

    load, load_after_load: a load, and one that directly follows another one and does not need its result. each_register:
    of a load or store of several, in addition to 1. taken_branch: more than a branch that is not taken. loop_end: the end
    of a low-overhead loop. vector: a vector instruction; vector_overlap: less, where the one before it uses another unit.
    issues: instructions that begin in one cycle, 1 or 2 (emitc/boards/dual_issue.py).
    error_percent: the largest error against published measurements; 0 where none was compared. source: of the figures.
    """

    source: str
    error_percent: int
    load: float
    load_after_load: float
    store: float
    each_register: float
    taken_branch: float
    multiply: float
    multiply_accumulate: float
    multiply_long: float
    divide: float
    float_divide: float = 14.0
    loop_end: float = 1.0
    vector: float = 1.0
    vector_overlap: float = 0.0
    issues: float = 1.0


@dataclass(frozen=True, slots=True)
class FlashTiming:
    """What a board's flash adds to the cycles that the same code takes without wait states.

    code_percent: of those cycles, for instructions that no cache has. cycles_per_constant_byte: of a byte that a load reads
    from flash. error_percent: the largest error against published measurements. source: of the figures.
    """

    source: str
    error_percent: int
    code_percent: float
    cycles_per_constant_byte: float

    def cycles(self, without_waits: float, constant_bytes: int) -> float:
        """Cycles of code that takes `without_waits` in a memory without wait states.

        >>> FlashTiming("", 4, 10.0, 0.5).cycles(1000.0, 200)
        1200.0
        """
        return without_waits * (1 + self.code_percent / 100) + self.cycles_per_constant_byte * constant_bytes


@dataclass(frozen=True, slots=True)
class DmaTiming:
    """What a copy from flash to RAM by a board's DMA takes while the core runs.

    cycles_per_byte: of a copy that nobody disturbs. cycles_per_transfer: of the core, to start it and to note its end.
    line_bytes, line_cycles: what one read of the flash brings, and for how long it keeps others out. source: of the figures.
    """

    source: str
    cycles_per_byte: float
    cycles_per_transfer: float
    line_bytes: float
    line_cycles: float


@dataclass(frozen=True, slots=True)
class Target:
    """One instruction set with the compiler that serves it.

    features: a subset of FEATURES. compiler_prefix: of a GCC's tools, which link; empty for the machine's own compiler.
    compiler_command: of another C compiler, whose flags compiler_flags are; empty for that GCC. `generic32` and `host` have
    no flags.
    """

    name: str
    title: str
    isa: str
    features: tuple[str, ...]
    compiler_prefix: str
    compiler_flags: tuple[str, ...]
    note: str = ""
    timing: Timing | None = None
    compiler_command: str = ""

    @property
    def c_compiler(self) -> str:
        """The command that compiles C for the target."""
        return self.compiler_command or f"{self.compiler_prefix}gcc"


@dataclass(frozen=True, slots=True)
class BuildSupport:
    """What has to be compiled with a package that uses a backend: paths on this machine.

    sources: C files. includes: folders. defines: without -D. headers: included before each of the sources.
    """

    sources: tuple[Path, ...] = ()
    includes: tuple[Path, ...] = ()
    defines: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MemoryRegion:
    """Addresses [start, start + size_bytes) of one kind of memory: "flash" holds code and constants, "ram" the rest.

    cost: of a byte read or written, relative to the board's fastest RAM; an estimate, for ranking only. cache_bytes: of the
    cache through which a flash is read, 0 for none.
    """

    name: str
    start: int
    size_bytes: int
    kind: str
    cost: float = 1.0
    cache_bytes: int = 0

    @property
    def end(self) -> int:
        return self.start + self.size_bytes


@dataclass(frozen=True, slots=True)
class PlatformIO:
    """What PlatformIO calls the board. `framework` is empty for none; `options`: more lines of its environment."""

    platform: str
    board: str
    framework: str
    upload_protocol: str
    upload_protocols: tuple[str, ...]
    options: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Board:
    """A board: emulated (`kind` "qemu"), a core's simulated RTL ("rtl"), or real ("silicon").

    target: name of its Target. clock_hz: of the core. measures: what a run on it reports, a subset of MEASURES.
    core: of a board of kind "rtl", the name of its file in boards/rtl.
    free_stack_bytes: bytes below the application's stack pointer that are surely stack, 0 where that is not known.
    flash_timing, dma_timing: None where they are not known. energy_nj_per_cycle: published, of the whole chip; 0 where it is not
    known.
    """

    name: str
    title: str
    kind: str
    target: str
    clock_hz: int
    measures: tuple[str, ...]
    memory: tuple[MemoryRegion, ...]
    platformio: PlatformIO
    free_stack_bytes: int = 0
    note: str = ""
    core: str = ""
    flash_timing: FlashTiming | None = None
    dma_timing: DmaTiming | None = None
    energy_nj_per_cycle: float = 0.0

    @property
    def flash_bytes(self) -> int:
        """Bytes of the largest contiguous flash."""
        return _largest_run(self.memory, "flash")

    @property
    def arena_regions(self) -> tuple[MemoryRegion, ...]:
        """The RAM that arenas can lie in, fastest first: regions that touch and cost the same are one, under the first's name."""
        regions: list[MemoryRegion] = []
        for region in sorted((r for r in self.memory if r.kind == "ram"), key=lambda region: region.start):
            if regions and (regions[-1].end, regions[-1].cost) == (region.start, region.cost):
                regions[-1] = replace(regions[-1], size_bytes=regions[-1].size_bytes + region.size_bytes)
            else:
                regions.append(region)
        return tuple(sorted(regions, key=lambda candidate: (candidate.cost, -candidate.size_bytes, candidate.start)))

    @property
    def ram_bytes(self) -> int:
        """Bytes of the largest contiguous RAM: regions that touch count as one."""
        return _largest_run(self.memory, "ram")


def boards_dir() -> Path:
    """The folder with the board and target files: inside an installed package, else that of the checkout."""
    package = Path(__file__).resolve().parent
    installed = package / "_data" / "boards"
    return installed if installed.is_dir() else package.parent / "boards"


def targets() -> tuple[str, ...]:
    """Names of all targets, sorted."""
    return _names(boards_dir() / "targets")


def boards() -> tuple[str, ...]:
    """Names of all boards, sorted."""
    return _names(boards_dir())


def load_target(name: str) -> Target:
    """The target of that name; EmitcError for an unknown name (with the nearest one) or a file that is not valid."""
    return read_target(_file(boards_dir() / "targets", name, "target", "--target"))


def load_board(name: str) -> Board:
    """The board of that name; EmitcError for an unknown name (with the nearest one) or a file that is not valid."""
    return read_board(_file(boards_dir(), name, "board", "--board"))


def read_target(path: Path) -> Target:
    """The target that a TOML file describes; EmitcError where it is not valid."""
    table = _read(path)
    compiler = table.table("compiler")
    target = Target(
        name=path.stem,
        title=table.text("title"),
        isa=table.text("isa"),
        features=table.texts("features", None, FEATURES),
        compiler_prefix=compiler.text("prefix", empty=True),
        compiler_flags=compiler.texts("flags", None),
        note=table.text("note", default=""),
        timing=_cycles(Timing, table, "timing"),
        compiler_command=compiler.text("command", default=""),
    )
    for section in (table, compiler):
        section.close()
    return target


_Cycles = TypeVar("_Cycles", Timing, FlashTiming, DmaTiming)


def _cycles(
    kind: type[_Cycles], owner: TomlTable, name: str, least_error: int = 0, *, zero: bool = True
) -> _Cycles | None:
    """A table of a target or board with cycles, a source and maybe an error; None where there is none. zero: a cycle may be 0."""
    if not owner.has(name):
        return None
    table, values = owner.table(name), dict[str, Any]()
    for field in fields(kind):
        if field.name == "source":
            values[field.name] = table.text(field.name)
        elif field.name == "error_percent":
            values[field.name] = table.whole(field.name, least_error)
        else:
            default = None if field.default is MISSING else float(field.default)
            values[field.name] = table.cycles(field.name, default, zero=zero)
    table.close()
    return kind(**values)


def read_board(path: Path) -> Board:
    """The board that a TOML file describes; EmitcError where it is not valid."""
    table = _read(path)
    pio = table.table("platformio")
    platformio = PlatformIO(
        platform=pio.text("platform"),
        board=pio.text("board"),
        framework=pio.text("framework", empty=True),
        upload_protocol=pio.text("upload_protocol"),
        upload_protocols=pio.texts("upload_protocols", None),
        options=pio.texts("options"),
    )
    if platformio.upload_protocol not in platformio.upload_protocols:
        raise pio.refusal("upload_protocol", f"{platformio.upload_protocol!r} is not among upload_protocols")
    board = Board(
        name=path.stem,
        title=table.text("title"),
        kind=table.text("kind", known=BOARD_KINDS),
        target=table.text("target", known=targets()),
        clock_hz=table.whole("clock_hz", 1),
        measures=table.texts("measures", None, MEASURES),
        memory=_regions(table),
        platformio=platformio,
        free_stack_bytes=table.whole("free_stack_bytes", default=0),
        note=table.text("note", default=""),
        core=table.text("core", default=""),
        flash_timing=_cycles(FlashTiming, table, "flash_timing", 1),
        dma_timing=_cycles(DmaTiming, table, "dma_timing", zero=False),
        energy_nj_per_cycle=table.cycles("energy_nj_per_cycle", 0.0, zero=True),
    )
    if (board.kind == "rtl") != (board.core in _names(boards_dir() / "rtl")):
        raise table.refusal("core", f'a board of kind "rtl" names one of {", ".join(_names(boards_dir() / "rtl"))}')
    for section in (table, pio):
        section.close()
    return board


def _regions(table: TomlTable) -> tuple[MemoryRegion, ...]:
    regions = []
    for entry in table.tables("memory"):
        regions.append(
            MemoryRegion(
                name=entry.text("name"),
                start=entry.whole("start"),
                size_bytes=entry.whole("bytes", 1),
                kind=entry.text("kind", known=REGION_KINDS),
                cost=entry.cycles("cost", 1.0),
                cache_bytes=entry.whole("cache_bytes", default=0),
            )
        )
        entry.close()
    if {region.kind for region in regions} != set(REGION_KINDS):
        raise table.refusal("memory", "a board needs at least one flash and one ram region")
    for below, above in itertools.pairwise(sorted(regions, key=lambda region: region.start)):
        if below.end > above.start:
            raise table.refusal("memory", f"{below.name} and {above.name} overlap")
    if any(region.end > 1 << 32 for region in regions):
        raise table.refusal("memory", "a region ends beyond 32 bits of address")
    return tuple(regions)


def _largest_run(regions: tuple[MemoryRegion, ...], kind: str) -> int:
    largest = run = end = 0
    for region in sorted((r for r in regions if r.kind == kind), key=lambda region: region.start):
        run = run + region.size_bytes if region.start == end else region.size_bytes
        end = region.end
        largest = max(largest, run)
    return largest


def _names(folder: Path) -> tuple[str, ...]:
    return tuple(sorted(path.stem for path in folder.glob("*.toml")))


def _file(folder: Path, name: str, what: str, option: str) -> Path:
    known = _names(folder)
    if name in known:
        return folder / f"{name}.toml"
    near = difflib.get_close_matches(name.lower().replace("-", "_"), [other.replace("-", "_") for other in known], n=1)
    meant = [target for target in known if near and target.replace("-", "_") == near[0]]
    hint = f"did you mean {meant[0]}? " if meant else ""
    where, why = Where(option=f"{option} {name}"), f"the {what}s are {', '.join(known)}"
    raise EmitcError(f"there is no {what} {name!r}", where, why, f"{hint}`emitc {what}s` lists them")


def _read(path: Path) -> TomlTable:
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        hint = "restore the file, or reinstall emitc"
        raise EmitcError(f"{path.name} cannot be read", Where(option=path.name), str(error), hint) from error
    return TomlTable(path.name, "", content, None, path.name, "correct the file; boards/README.md")

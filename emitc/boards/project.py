"""PlatformIO projects that run a model's proof, for an emulated board and for a real one, and what they need to know of it."""

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from emitc.emit.render import environment
from emitc.errors import EmitcError, Where
from emitc.records import dataclass, field
from emitc.target import Board, BuildSupport, boards_dir, load_target
from emitc.verify.tolerances import EXACT, Tolerance

Case = tuple[Sequence[bytes], Sequence[bytes]]
"""Inputs and expected outputs of one run: raw little-endian bytes, in the order of the model's inputs and outputs."""


@dataclass(frozen=True, slots=True)
class RunTensor:
    """One input or output: its bytes and the C type that the generated header gives it. rule: how close an output must be."""

    size_bytes: int
    c_type: str
    rule: Tolerance = EXACT


@dataclass(frozen=True, slots=True)
class RunLayer:
    """One layer as the trace hook numbers it. `op` is the operator, `name` the model's name for the layer."""

    index: int
    op: str
    name: str
    macs: int


@dataclass(frozen=True, slots=True)
class RunModel:
    """A compiled model: `name` is its C name, `layers` in the order in which they run.

    The cases of a model with state are the runs of one sequence. regions: their names where the model has an arena in each of
    several; arena_bytes is then the sum. reads_rows: the model reads its only input row by row. self_test: bytes of the names
    of its parts where the model can test itself, 0 where it cannot. weights: the file that its init takes, empty where it
    takes none. constants_in_ram: `--place weights` names a region with room for an arena, so that its constants lie in RAM.
    """

    name: str
    inputs: tuple[RunTensor, ...]
    outputs: tuple[RunTensor, ...]
    arena_bytes: int
    layers: tuple[RunLayer, ...] = ()
    state_bytes: int = 0
    regions: tuple[str, ...] = ()
    reads_rows: bool = False
    self_test: int = 0
    weights: bytes = b""
    constants_in_ram: bool = False

    @property
    def init_weights(self) -> str:
        """The last arguments of its init."""
        return ", emitc_weights_file, sizeof emitc_weights_file" if self.weights else ""

    @property
    def macro(self) -> str:
        """The prefix of the header's macros."""
        return self.name.upper()

    @property
    def arenas(self) -> dict[str, str]:
        """The variable of every arena in the proof's program, and the part of its macros' names that says which it is."""
        return {f"arena_{name.lower()}": f"_{name.upper()}" for name in self.regions} or {"arena": ""}


@dataclass(frozen=True, slots=True)
class Firmware:
    """What is built for a board. package: folder of `emitc compile --package platformio`; model: what it holds.

    cases: the runs to prove, as raw bytes. support: what the package's backends need.
    """

    package: Path
    model: RunModel
    cases: Sequence[Case]
    support: BuildSupport = field(default_factory=BuildSupport)


def check_cases(model: RunModel, cases: Sequence[Case]) -> None:
    """Raises EmitcError where there is no case, or one whose number or sizes of tensors are not the model's."""
    where = Where(model=model.name, option="--vectors")
    if not cases:
        why = "a proof without a case proves nothing"
        raise EmitcError("no test case for the board", where, why, "give at least one")
    for number, (inputs, outputs) in enumerate(cases):
        for what, arrays, tensors in (("input", inputs, model.inputs), ("output", outputs, model.outputs)):
            got = [len(array) for array in arrays]
            expected = [tensor.size_bytes for tensor in tensors]
            if got != expected:
                why = f"expected {what}s of {expected} bytes, got {got}"
                hint = "give every tensor of the model in its order, with its own type"
                raise EmitcError(f"case {number} does not fit the model's {what}s", where, why, hint)


PLAIN, TRACED = "plain", "traced"
"""Environments of an emulated board's project; `traced` has the layer hook."""
BAUD = 115_200
PERIOD_MS = 4000
"""A real board repeats its proof after this time, so that a reader may attach late."""

_MARK = "; Written by emitc"
_BYTES_PER_ROW = 24
_PLATFORM_DIR = "emitc_platform"
_OPTIMIZATION = "-O2"
"""Of the proof's own code, and of a package whose library.json names no level."""
# Loops over bytes must stay loops: as memcpy and memset they would be counted as the model's.
_PROOF_FLAGS = "-fno-tree-loop-distribute-patterns"
_PROOF_FLAGS_OF_CLANG = "-fno-builtin"
_TRACE = "-DEMITC_TRACE"

_RAM_CONSTANTS = ".ram_constants"
"""The section of constants that the startup code copies to RAM (boards/platform/ldscripts)."""

_MAINS = {"arduino": "main.cpp", "espidf": "main.c", "zephyr": "main.c", "freedom-e-sdk": "main.c"}
"""By framework: the name of its main file."""
_FURTHER = {"espidf": "sdkconfig.defaults", "zephyr": "zephyr/prj.conf"}
"""A further file that a framework needs, whose template has its name."""


def write_qemu_project(firmware: Firmware, board: Board, out: Path, *, with_timer: bool) -> None:
    """Writes the project for an emulated board to `out`, which is replaced.

    with_timer: count with the board's timer, because no plugin does. The sources of backends are compiled as a library of their
    own, and nothing is fetched for them.
    """
    check_cases(firmware.model, firmware.cases)
    _require_own(out, "--workdir")
    shutil.rmtree(out, ignore_errors=True)
    support = firmware.support
    flags = [_OPTIMIZATION, *(["-DEMITC_COUNT_WITH_TIMER"] if with_timer else [])]
    flags += [*(f"-D{define}" for define in support.defines), *(f'-isystem "{path}"' for path in support.includes)]
    flags += ["-include $PROJECT_DIR/src/emitc_sections.h"] if firmware.model.constants_in_ram else []
    proof_flags = _PROOF_FLAGS_OF_CLANG if load_target(board.target).compiler_command else _PROOF_FLAGS
    environments = [
        {
            "name": name,
            "lines": [
                f"platform = symlink://${{PROJECT_DIR}}/{_PLATFORM_DIR}",
                f"board = {board.platformio.board}",
                f"build_flags = {' '.join([*flags, *more])}",
                f"build_src_flags = {proof_flags}",
            ],
        }
        for name, more in ((PLAIN, []), (TRACED, [_TRACE]))
    ]
    shared = [f"default_envs = {PLAIN}", "platforms_dir = .pio/platforms"]
    _write_ini(out, firmware.model.name, board, shared, environments)  # first: an interrupted project is known by it
    shutil.copytree(boards_dir() / "platform", out / _PLATFORM_DIR, ignore=shutil.ignore_patterns("__pycache__"))
    _write_sources(firmware.package, firmware.model, board, firmware.cases, out)
    _write_support(support, out)
    _write(out / "src" / "main.c", _render("main_qemu.c.j2"))
    if firmware.model.constants_in_ram:
        section = f'{firmware.model.macro}_SECTION_WEIGHTS __attribute__((section("{_RAM_CONSTANTS}")))'
        _write(out / "src" / "emitc_sections.h", f"#define {section}\n")


def write_flash_project(
    package: Path, model: RunModel, board: Board, cases: Sequence[Case], out: Path, *, layers: bool = False
) -> None:
    """Writes the project for a real board to `out`: the same proof, printed over its serial port.

    layers: with the layer hook, so that the board counts each layer too. The board's official PlatformIO platform is fetched
    by `pio` at its first build. Raises EmitcError where `board` is emulated, or where `out` holds something that emitc did
    not write.
    """
    check_cases(model, cases)
    begin_flash_project(model.name, board, out, layers=layers)
    _write_sources(package, model, board, cases, out)


def begin_flash_project(model: str, board: Board, out: Path, *, layers: bool = False, mlperf: bool = False) -> None:
    """Writes the parts of a real board's project that do not depend on the model's code: settings, main file, timer.

    layers: the proof has the layer hook. mlperf: the main file answers MLPerf Tiny's runner instead of proving the model.
    Raises EmitcError as `write_flash_project` does.
    """
    pio = board.platformio
    where = Where(option=f"--board {board.name}")
    if board.kind != "silicon":
        hint = f"emitc run --board {board.name}"
        raise EmitcError(f"{board.title} is emulated", where, "there is nothing to flash", hint)
    _make_room(out)
    flags = [_OPTIMIZATION, "-DEMITC_COUNT_WITH_TIMER"]
    if board.free_stack_bytes:
        flags.append(f"-DEMITC_FREE_STACK_BYTES={board.free_stack_bytes}")
    if layers:
        flags.append(_TRACE)
    lines = [
        f"platform = {pio.platform}",
        f"board = {pio.board}",
        f"framework = {pio.framework}",
        f"upload_protocol = {pio.upload_protocol}",
        *pio.options,
        f"monitor_speed = {BAUD}",
        "build_unflags = -Os",
        f"build_flags = {' '.join(flags)}",
        f"build_src_flags = {_PROOF_FLAGS}",
    ]
    _write_ini(out, model, board, [f"default_envs = {board.name}"], [{"name": board.name, "lines": lines}])
    root = boards_dir()
    (out / "src").mkdir(parents=True, exist_ok=True)
    for path in ("platform/runtime/emitc_board.h", "platform/runtime/print.c", "silicon/cycles.c", "silicon/stack.c"):
        shutil.copyfile(root / path, out / "src" / Path(path).name)
    values = {"baud": BAUD, "period_ms": PERIOD_MS, "cycles_per_ms": board.clock_hz // 1000, "mlperf": mlperf}
    main = Path(_MAINS[pio.framework])
    _write(out / "src" / main, _render(f"main_{pio.framework}{main.suffix}.j2", **values))
    if (further := _FURTHER.get(pio.framework)) is not None:
        _write(out / further, _render(f"{Path(further).name}.j2", flash_mb=board.flash_bytes >> 20))


def _write_support(support: BuildSupport, out: Path) -> None:
    """The backends' sources as the library `support`, instead of what the package would look for in a project."""
    described = out / "lib" / "model" / "library.json"
    content = json.loads(described.read_text(encoding="utf-8"))
    if content["build"].pop("extraScript", None) is not None:
        _write(described, json.dumps(content, indent=2) + "\n")
    if not support.sources:
        return
    folder = out / "lib" / "support"
    for number, source in enumerate(support.sources):
        (folder / "src").mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, folder / "src" / f"{number}_{source.name}")
    first = [f"-include {header}" for header in support.headers]
    build = {"srcDir": "src", "flags": [_OPTIMIZATION, "-w", *first], "libArchive": True, "libLDFMode": "off"}
    library = {"name": "support", "version": "0.1.0", "frameworks": "*", "platforms": "*", "build": build}
    _write(folder / "library.json", json.dumps(library, indent=2) + "\n")
    ini = out / "platformio.ini"
    text = ini.read_text(encoding="utf-8")
    _write(ini, text.replace("build_src_flags", "lib_deps = support\nbuild_src_flags"))


def _require_own(out: Path, option: str) -> None:
    """Raises EmitcError for a folder with something in it that emitc did not write; `option` named it."""
    ini = out / "platformio.ini"
    if not out.exists() or not any(out.iterdir()):
        return
    if not ini.is_file() or not ini.read_text(encoding="utf-8", errors="replace").startswith(_MARK):
        why = "it holds files that emitc did not write, and a project takes a folder of its own"
        raise EmitcError(f"{out} is not empty", Where(option=option), why, "choose another folder")


def _make_room(out: Path) -> None:
    _require_own(out, "-o")
    for name in ("src", "lib"):
        if (out / name).is_symlink():
            why, hint = "its files are replaced, and they are elsewhere", "remove the link, or choose another folder"
            raise EmitcError(f"{out / name} is a link", Where(option="-o"), why, hint)
        shutil.rmtree(out / name, ignore_errors=True)


def _write_ini(out: Path, model: str, board: Board, shared: list[str], environments: list[dict[str, Any]]) -> None:
    text = _render("platformio.ini.j2", model=model, board=board.name, shared=shared, environments=environments)
    _write(out / "platformio.ini", text)


def _write_sources(package: Path, model: RunModel, board: Board, cases: Sequence[Case], out: Path) -> None:
    copy_package(package, out)
    _write(out / "src" / "proof.c", _render("proof.c.j2", board=board.name, model=model))
    tables = list(_tables(cases))
    vectors = _render("vectors.h.j2", cases=len(cases), tables=tables, per_row=_BYTES_PER_ROW, weights=model.weights)
    _write(out / "src" / "emitc_vectors.h", vectors)
    for name in ("emitc_measure.h", "emitc_measure.c"):
        shutil.copyfile(boards_dir() / "proof" / name, out / "src" / name)


def copy_package(package: Path, out: Path) -> None:
    """Puts a package of `--package platformio` among the project's libraries."""
    # A fixed folder name: the model's may be one that PlatformIO or the file system reads otherwise.
    shutil.copytree(package, out / "lib" / "model", ignore=shutil.ignore_patterns(".pio", "__pycache__"))


def _tables(cases: Sequence[Case]) -> Iterator[dict[str, Any]]:
    for side, what in ((0, "in"), (1, "out")):
        for i in range(len(cases[0][side])):
            arrays = {f"emitc_case_{number}_{what}_{i}": case[side][i] for number, case in enumerate(cases)}
            yield {"name": f"emitc_{what}_{i}", "arrays": arrays}


def _render(template: str, **values: object) -> str:
    return environment().get_template(f"board/{template}").render(**values)


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8", newline="\n")

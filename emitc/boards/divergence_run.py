"""Searches for the first layer that differs: the project, the board, and what it says."""

import tempfile
import zlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from emitc.boards.build import build, check_tools
from emitc.boards.divergence import Heard, Search, identity_of, judged, unfinished
from emitc.boards.flash import upload
from emitc.boards.project import BAUD, PERIOD_MS, TRACED, Firmware, write_qemu_project
from emitc.boards.run import booted, emulator
from emitc.boards.serial_port import find_port, read_lines
from emitc.boards.verify import expected as cases_of
from emitc.boards.verify import require_fit, run_model, write_silicon_project
from emitc.compiled import Compiled
from emitc.emit.render import environment
from emitc.errors import EmitcError, Where, writing
from emitc.target import load_board, load_target
from emitc.verify.golden_run import HostLayer, host_layers
from emitc.verify.reference import random_samples

_BOOT_SECONDS = 120.0
_SERIAL_SECONDS = 60.0
Expected = Sequence[Sequence[HostLayer]]


def expected_layers(compiled: Compiled, samples: int, seed: int) -> Expected:
    """What the layers write on this machine, for the samples of `emitc run`. Raises EmitcError for an accelerator's model."""
    if compiled.host_hooks():
        where, why = Where(option="--find-divergence"), "an accelerator runs some of its layers, and has no layer hook"
        raise EmitcError("the layers of this model cannot be compared", where, why, "compile it without --npu")
    return host_layers(compiled, random_samples(compiled.graph, samples, seed))


def add_search(project: Path, expected: Expected) -> None:
    """Adds the search to a written project of a proof; its flags have EMITC_TRACE and EMITC_DIVERGENCE."""
    rows = [[(zlib.crc32(layer.data), int(layer.any_difference_counts)) for layer in layers] for layers in expected]
    template = environment().get_template("board/divergence.c.j2")
    text = template.render(cases=rows, calls=max(map(len, rows)), identity=identity_of(expected))
    (project / "src" / "divergence.c").write_text(text, encoding="utf-8", newline="\n")
    ini = project / "platformio.ini"
    flags = ini.read_text(encoding="utf-8").replace("-DEMITC_TRACE", "-DEMITC_TRACE -DEMITC_DIVERGENCE")
    ini.write_text(flags, encoding="utf-8", newline="\n")


def heard_of(lines: Iterable[str], board: str, expected: Expected, where: Where) -> tuple[Heard, Search | None]:
    """What a board has said up to the first result, which is looked for at the end of each round and of all lines."""
    heard = Heard()
    for line in lines:
        if heard.add(line) and (search := judged(board, expected, heard, where)) is not None:
            return heard, search
    return heard, judged(board, expected, heard, where)


def search_on_emulator(
    compiled: Compiled,
    board: str,
    *,
    samples: int,
    seed: int,
    timeout: float = _BOOT_SECONDS,
    workdir: Path | None = None,
) -> Search:
    """Boots the model on an emulated board and compares each layer with this machine's. workdir: None for a temporary one.

    Raises EmitcError for a board that QEMU does not emulate, and CannotCompile where the firmware hangs, faults or does not fit.
    """
    described = load_board(board)
    where = Where(model=compiled.program.name, option=f"--board {board} --find-divergence")
    if described.kind != "qemu":
        why = "only a board that QEMU emulates, or a real one, searches for differences"
        raise EmitcError(f"{described.title} compares no layers", where, why, "emitc flash for a real board")
    require_fit(compiled, board)
    if workdir is None:
        with tempfile.TemporaryDirectory(prefix="emitc-search-") as temporary:
            folder = Path(temporary)
            return search_on_emulator(compiled, board, samples=samples, seed=seed, timeout=timeout, workdir=folder)
    check_tools(described, load_target(described.target), emulator(described))
    expected = expected_layers(compiled, samples, seed)
    image = search_image(compiled, board, workdir.resolve(), expected, samples, seed)
    printed, error = booted(described, image, (), timeout=timeout)
    heard, search = heard_of(printed.splitlines(), board, expected, where)
    if search is None or (error is not None and search.divergence is None):
        raise unfinished(expected, heard, timeout, where) from error
    return search


def search_image(compiled: Compiled, board: str, workdir: Path, expected: Expected, samples: int, seed: int) -> Path:
    """The image for an emulated board. workdir: a folder of its own."""
    described = load_board(board)
    with writing(f"the project cannot be written to {workdir}", "--workdir"):
        package, project = workdir / "package", workdir / "project"
        compiled.write(package)
        cases = cases_of(compiled, "numpy", samples, seed)[1]
        firmware = Firmware(package, run_model(compiled), cases, compiled.support(described.target))
        write_qemu_project(firmware, described, project, with_timer=False)
        add_search(project, expected)
    return build(project, (TRACED,), described, core_dir=workdir / "pio-core", log=workdir / "build.log")[0]


def write_search_project(compiled: Compiled, board: str, project: Path, *, samples: int, seed: int) -> Expected:
    """Writes the project for a real board. Returns what its layers have to write."""
    require_fit(compiled, board)
    expected = expected_layers(compiled, samples, seed)
    write_silicon_project(compiled, board, project, reference="numpy", samples=samples, seed=seed, layers=True)
    with writing(f"the project cannot be written to {project}", "-o"):
        add_search(project, expected)
    return expected


def search_on_silicon(
    model: str,
    board: str,
    project: Path,
    expected: Expected,
    *,
    port: str | None,
    say: Callable[[str], None] = lambda line: None,
    timeout: float | None = None,
) -> Search:
    """Uploads a project of `write_search_project`, and listens until the board has said enough.

    model: its C name. port: None takes the only one. timeout: seconds to listen; None for as long as two rounds take, and a
    minute more. Raises CannotCompile as `flash` does, and where no result came: for a fault, a restart, a stop or a disturbed
    line.
    """
    described = load_board(board)
    where = Where(model=model, option=f"--board {board} --find-divergence")
    upload(project, described, where, port=port, say=say)
    seconds = timeout if timeout is not None else _SERIAL_SECONDS + 2 * _round_seconds(expected)
    lines = read_lines(port or find_port(where), BAUD, seconds, where)
    heard, search = heard_of(lines, board, expected, where)
    if search is None:
        raise unfinished(expected, heard, seconds, where)
    return search


def _round_seconds(expected: Expected) -> float:
    """That a board takes at most to say the bytes of the largest layer, a line for each layer, and its pause."""
    largest = max((len(layer.data) for layers in expected for layer in layers), default=0)
    calls = sum(map(len, expected))
    characters = largest / 32 * 120 + 150 * calls + 3000 * len(expected)
    return characters * 10 / BAUD + PERIOD_MS / 1000

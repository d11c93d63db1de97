"""A compiled model on an emulated board: built, booted, its outputs judged, counted."""

import importlib.util
import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from emitc.boards import counter, cycle_model, protocol, rtl
from emitc.boards.build import build, check_tools
from emitc.boards.elf import image_sizes
from emitc.boards.project import PLAIN, TRACED, Firmware, RunModel, check_cases, write_qemu_project
from emitc.boards.result import (
    CycleEstimate,
    LayerCount,
    RunResult,
    judged,
    layer_counts,
    result_of,
    self_test_of,
    with_simulation,
)
from emitc.emit.output_file import option_of
from emitc.errors import CannotCompile, EmitcError, Where, writing
from emitc.records import dataclass, replace
from emitc.target import Board, boards_dir, load_target

TIMER_TOLERANCE = 64
"""Instructions by which the timer may differ on the known loop: its own reading, and the step of a tick."""


@dataclass(frozen=True, slots=True)
class Simulation:
    """How a core's RTL runs. memory: timing of code and constants. sources: folder of a core that no package carries."""

    memory: str = "zero-wait"
    sources: Path | None = None


ZERO_WAIT = Simulation()


@dataclass(frozen=True, slots=True)
class _Boot:
    """One boot: what the firmware said, and what was counted (None: its own timer counted).

    simulated: of a core's RTL, everything that was measured in each window. tested: the count of the self test, whose window is
    the last one and none of these.
    """

    transcript: protocol.Transcript
    windows: tuple[counter.Window, ...] | None
    simulated: tuple[rtl.Simulated, ...] = ()
    tested: int | None = None

    def counts(self) -> tuple[int, ...]:
        """Instructions of each case."""
        if self.windows is not None:
            return tuple(window.total for window in self.windows[1:])
        return tuple(case.ticks or 0 for case in self.transcript.cases)


def run_on_board(
    firmware: Firmware,
    board: Board,
    *,
    layers: bool,
    workdir: Path,
    timeout: float = 0.0,
    simulation: Simulation = ZERO_WAIT,
) -> RunResult:
    """Builds a package for an emulated or simulated board with PlatformIO, boots it, and proves and measures every case.

    layers: a second build with the trace hook counts each layer. workdir: this function's own folder; its `project` is
    replaced, its caches are reused. timeout: seconds for one boot; 0 for 120, or 1200 of a simulated core. simulation: how
    a core's RTL runs. A difference is not an error: `match` is false then.

    Raises EmitcError where cases and model disagree or the board is a real one. Raises CannotCompile where a tool is
    missing, the image does not fit or the build fails. It also raises that where the firmware hangs, faults or refuses a call.
    """
    if board.kind == "silicon":
        why = "only an emulated board can be booted here"
        hint = f"emitc flash --board {board.name}, or an emulated board (`emitc boards`)"
        raise EmitcError(f"{board.title} is not emulated", Where(option=f"--board {board.name}"), why, hint)
    check_cases(firmware.model, firmware.cases)
    simulated = board.kind == "rtl"
    machine = emulator(board)
    check_tools(board, load_target(board.target), None if simulated else machine)
    workdir = workdir.resolve()
    with writing(f"{workdir} cannot be made", option_of(workdir, "--workdir")):
        workdir.mkdir(parents=True, exist_ok=True)
    program = rtl.simulator(board, simulation.sources) if simulated else None
    library = None if simulated else counter.plugin(machine, workdir / "cache")
    project = workdir / "project"
    with writing(f"the project cannot be written to {project}", option_of(project, "--workdir")):
        write_qemu_project(firmware, board, project, with_timer=library is None and not simulated)
    names = (PLAIN, TRACED) if layers else (PLAIN,)
    images = build(project, names, board, core_dir=workdir / "pio-core", log=workdir / "build.log")
    if program is not None:
        timing = rtl.memory_timing(simulation.memory)
        boots = [
            _simulated(firmware.model, board, program, image, timing, workdir, timeout or 1200.0) for image in images
        ]
    else:
        boots = [_booted(firmware.model, board, image, library, workdir, timeout or 120.0) for image in images]
    result = _result(firmware, board, images[0], boots)
    if program is not None:
        return with_simulation(result, boots[0].simulated[1:], simulation.memory)
    return replace(result, estimate=_estimated(board, images[0], boots[0]))


def _estimated(board: Board, image: Path, plain: _Boot) -> CycleEstimate | None:
    """Cycles of the case with the most instructions; None where the core's timing or the counts are not known."""
    target = load_target(board.target)
    if target.timing is None or plain.windows is None:
        return None
    ran = max((window.ran for window in plain.windows[1:]), key=lambda run: sum(run.places.values()))
    instructions = cycle_model.listing(target, image)
    estimate = cycle_model.estimate(ran, instructions, target.timing)
    return CycleEstimate(estimate, target.title, board.name, board.clock_hz, target.timing.error_percent)


def _result(firmware: Firmware, board: Board, image: Path, boots: Sequence[_Boot]) -> RunResult:
    """The verdict and the measurements. image: of the first boot; a second boot has counted the layers."""
    model = firmware.model
    verdicts = [judged(model, board, boot_result.transcript, firmware.cases) for boot_result in boots]
    verdict = max(verdicts, key=lambda one: (one.differing, one.differing_bytes))
    plain, sizes = boots[0], image_sizes(image)
    counts = plain.counts()
    return result_of(
        model,
        board,
        verdict,
        plain.transcript.cases,
        sizes,
        unit="cycles" if plain.simulated else "instructions",
        count=max(counts),
        counter="rtl" if plain.simulated else "timer" if plain.windows is None else "plugin",
        code_bytes=sizes.code_bytes,
        constant_bytes=sizes.constant_bytes,
        model_flash_bytes=sizes.model_flash_bytes,
        cases_bytes=sizes.cases_bytes,
        layers=_layers(model, board, boots[1], counts.index(max(counts))) if len(boots) > 1 else None,
        self_test=self_test_of(model, plain.transcript, plain.tested, image),
    )


def _booted(model: RunModel, board: Board, image: Path, library: Path | None, workdir: Path, timeout: float) -> _Boot:
    counts = workdir / "counts.txt"
    counts.unlink(missing_ok=True)
    timed = library is not None and load_target(board.target).timing is not None and image.parent.name == PLAIN
    flash = next((region.start, region.end) for region in board.memory if region.kind == "flash")
    extra = [] if library is None else counter.arguments(library, image, counts, flash if timed else None)
    printed = boot(board, image, extra, timeout=timeout)
    where = Where(model=model.name, option=f"--board {board.name}")
    transcript = _transcript(printed, image, where)
    windows = None if library is None else counter.windows(counts)
    ticks = transcript.self_test.ticks if transcript.self_test else None
    tested = windows[-1].total if windows and model.self_test else ticks
    if model.self_test:
        windows = windows and windows[:-1]
    _check_counter(transcript, windows, where)
    return _Boot(transcript, windows, tested=tested)


def _simulated(
    model: RunModel, board: Board, program: Path, image: Path, timing: rtl.MemoryTiming, workdir: Path, timeout: float
) -> _Boot:
    printed, windows = rtl.simulate(board, program, image, timing, workdir, timeout)
    where = Where(model=model.name, option=f"--board {board.name}")
    transcript = _transcript(printed, image, where)
    tested = windows[-1].cycles.total if model.self_test else None
    windows = windows[:-1] if model.self_test else windows
    _check_counter(transcript, tuple(window.instructions for window in windows), where)
    return _Boot(transcript, tuple(one.cycles for one in windows), windows, tested=tested)


def _transcript(printed: str, image: Path, where: Where) -> protocol.Transcript:
    try:
        return protocol.parse(printed)
    except protocol.BadTranscript as error:
        hint = f"boot {image} by hand to see what it prints"
        raise CannotCompile("the firmware's report cannot be read", where, str(error), hint) from error


def _check_counter(transcript: protocol.Transcript, windows: tuple[counter.Window, ...] | None, where: Where) -> None:
    """Raises CannotCompile where the loop of known length was counted wrong: every other count would be as well."""
    refused = any(case.refused is not None for case in transcript.cases)
    if windows is None:
        counted = transcript.check_ticks or 0
        correct = abs(counted - counter.KNOWN_LOOP) <= TIMER_TOLERANCE
    else:
        counted = windows[0].total if windows else 0
        correct = counted == counter.KNOWN_LOOP and (refused or len(windows) == 1 + len(transcript.cases))
    if not correct:
        why = f"a loop of {counter.KNOWN_LOOP} instructions was counted as {counted}"
        hint = "another version of QEMU may count correctly; 7.2 does"
        raise CannotCompile("the instruction counter is wrong on this machine", where, why, hint)


def _layers(model: RunModel, board: Board, traced: _Boot, case: int) -> tuple[LayerCount, ...]:
    lines = traced.transcript.cases[case].layers
    counts = [line.ticks or 0 for line in lines] if traced.windows is None else traced.windows[1 + case].cuts
    # One line and one cut a call of the hook: another number would be a bug in the plugin or in the proof.
    return layer_counts(model, board, list(zip([line.index for line in lines], counts, strict=True)))


def emulator(board: Board) -> str:
    """The program that emulates a board of kind "qemu"."""
    return f"qemu-system-{_manifest(board)['qemu']['system']}"


def _manifest(board: Board) -> dict[str, Any]:
    path = boards_dir() / "platform" / "boards" / f"{board.platformio.board}.json"
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def boot(board: Board, elf: Path, extra: Sequence[str], *, timeout: float) -> str:
    """What the firmware printed until it stopped. `extra`: further arguments of QEMU. `timeout`: seconds.

    Raises CannotCompile where it does not stop in time, faults, or leaves with another code than 0.
    """
    printed, error = booted(board, elf, extra, timeout=timeout)
    if error is not None:
        raise error
    return printed


def booted(board: Board, elf: Path, extra: Sequence[str], *, timeout: float) -> tuple[str, CannotCompile | None]:
    """What the firmware printed, and why it did not end well, as `boot` raises it; None where it did."""
    command = _qemu_command(_manifest(board), elf, extra)
    where = Where(option=f"--board {board.name}")
    # QEMU writes without waiting: what does not fit into a pipe whose reader is slow would be lost. A file takes everything.
    with tempfile.TemporaryFile() as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE, encoding="ascii", errors="replace"
        )
        with process:
            try:
                _, complaints = process.communicate(timeout=timeout)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                why = f"its last line was: {protocol.last_line(_printed(out))}"
                hint = "allow more time with --timeout, or fewer test cases"
                late = CannotCompile(f"the firmware did not stop within {timeout:g} s", where, why, hint)
                return _printed(out), late
            except BaseException:
                process.kill()
                raise
        printed = _printed(out)
    if process.returncode == 0:
        return printed, None
    why = protocol.fault(printed) or complaints.strip() or protocol.last_line(printed)
    what = "the firmware faulted" if protocol.fault(printed) else "the firmware did not end as it should"
    hint = f"look at it by hand: {' '.join(command)}"
    return printed, CannotCompile(f"{what} on {board.title}", where, f"exit code {process.returncode}: {why}", hint)


def _printed(out: IO[bytes]) -> str:
    out.seek(0)
    return out.read().decode("ascii", errors="replace").replace("\r\n", "\n")


def _qemu_command(manifest: dict[str, Any], elf: Path, extra: Sequence[str]) -> list[str]:
    # The platform's own module, so that `pio run -t upload` and this function start QEMU alike.
    path = boards_dir() / "platform" / "qemu.py"
    spec = importlib.util.spec_from_file_location("emitc_platform_qemu", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    command: list[str] = module.command(manifest, elf, extra)
    return command

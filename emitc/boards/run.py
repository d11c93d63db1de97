"""A compiled model on an emulated board: built, booted, its outputs judged, counted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from emitc.boards import counter, protocol
from emitc.boards.boot import boot, emulator
from emitc.boards.build import build, check_tools
from emitc.boards.elf import image_sizes
from emitc.boards.project import PLAIN, TRACED, write_qemu_project
from emitc.boards.result import LayerCount, RunResult, judged, layer_counts, result_of
from emitc.boards.run_model import Firmware, RunModel, check_cases
from emitc.errors import CannotCompile, EmitcError, Where, writing
from emitc.target import Board, load_target

TIMER_TOLERANCE = 64
"""Instructions by which the timer may differ on the known loop: its own reading, and the step of a tick."""


@dataclass(frozen=True, slots=True)
class _Boot:
    """One boot: what the firmware said, and what was counted (None: its own timer counted)."""

    transcript: protocol.Transcript
    windows: tuple[counter.Window, ...] | None

    def counts(self) -> tuple[int, ...]:
        """Instructions of each case."""
        if self.windows is not None:
            return tuple(window.total for window in self.windows[1:])
        return tuple(case.ticks or 0 for case in self.transcript.cases)


def run_on_board(firmware: Firmware, board: Board, *, layers: bool, workdir: Path, timeout: float = 120.0) -> RunResult:
    """Builds a package for an emulated board with PlatformIO, boots it, and proves and measures every case.

    layers: a second build with the trace hook counts each layer. workdir: this function's own folder; its `project` is
    replaced, its caches are reused. timeout: seconds for one boot. A difference is not an error: `match` is false then.

    Raises EmitcError where cases and model disagree or the board is not emulated, CannotCompile where a tool is
    missing, the image does not fit, the build fails, or the firmware hangs, faults or refuses a call.
    """
    if board.kind != "qemu":
        why = "only an emulated board can be booted here"
        hint = f"emitc flash --board {board.name}, or an emulated board (`emitc boards`)"
        raise EmitcError(f"{board.title} is not emulated", Where(option=f"--board {board.name}"), why, hint)
    check_cases(firmware.model, firmware.cases)
    machine = emulator(board)
    check_tools(board, load_target(board.target), machine)
    workdir = workdir.resolve()
    with writing(f"{workdir} cannot be made", "--workdir"):
        workdir.mkdir(parents=True, exist_ok=True)
    library = counter.plugin(machine, workdir / "cache")
    project = workdir / "project"
    with writing(f"the project cannot be written to {project}", "--workdir"):
        write_qemu_project(firmware, board, project, with_timer=library is None)
    names = (PLAIN, TRACED) if layers else (PLAIN,)
    images = build(project, names, board, core_dir=workdir / "pio-core", log=workdir / "build.log")
    boots = [_booted(firmware.model, board, image, library, workdir, timeout) for image in images]
    return _result(firmware, board, images[0], boots)


def _result(firmware: Firmware, board: Board, image: Path, boots: Sequence[_Boot]) -> RunResult:
    """The verdict and the measurements. image: of the first boot; a second boot has counted the layers."""
    model = firmware.model
    verdicts = [judged(model, board, each.transcript, firmware.cases) for each in boots]
    verdict = max(verdicts, key=lambda each: (each.differing, each.differing_bytes))
    plain, sizes = boots[0], image_sizes(image)
    counts = plain.counts()
    return result_of(
        model,
        board,
        verdict,
        plain.transcript.cases,
        sizes,
        unit="instructions",
        count=max(counts),
        counter="timer" if plain.windows is None else "plugin",
        code_bytes=sizes.code_bytes,
        constant_bytes=sizes.constant_bytes,
        model_flash_bytes=sizes.model_flash_bytes,
        cases_bytes=sizes.cases_bytes,
        layers=_layers(model, board, boots[1], counts.index(max(counts))) if len(boots) > 1 else None,
    )


def _booted(model: RunModel, board: Board, image: Path, library: Path | None, workdir: Path, timeout: float) -> _Boot:
    counts = workdir / "counts.txt"
    counts.unlink(missing_ok=True)
    extra = [] if library is None else counter.arguments(library, image, counts)
    printed = boot(board, image, extra, timeout=timeout)
    where = Where(model=model.name, option=f"--board {board.name}")
    try:
        transcript = protocol.parse(printed)
    except protocol.BadTranscript as error:
        raise CannotCompile(
            "the firmware's report cannot be read", where, str(error), f"boot {image} by hand to see what it prints"
        ) from error
    windows = None if library is None else counter.windows(counts)
    _check_counter(transcript, windows, where)
    return _Boot(transcript, windows)


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

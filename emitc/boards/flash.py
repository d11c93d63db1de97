"""A compiled model on a real, attached board: uploaded with PlatformIO, its proof read from the serial port."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

from emitc.boards import protocol
from emitc.boards.build import BUILD_SECONDS, environment, pio_command
from emitc.boards.elf import image_sizes
from emitc.boards.model import Case, RunModel
from emitc.boards.project import BAUD
from emitc.boards.result import RunResult, judged, layer_counts
from emitc.errors import CannotCompile, Where
from emitc.target import Board


def flash(
    project: Path,
    model: RunModel,
    board: Board,
    vectors: Sequence[Case],
    *,
    port: str | None = None,
    timeout: float = 60.0,
) -> RunResult:
    """Builds and uploads a project of `write_flash_project`, and reads the proof that the board prints.

    port: the serial port, None lets PlatformIO find it. timeout: seconds to wait for a complete proof. The user's own
    PlatformIO folder is used: the first build for a board fetches its platform and toolchain from the network.

    Raises CannotCompile where PlatformIO is missing, build or upload fails, or no complete proof arrives in time.
    """
    where = Where(model=model.name, option=f"--board {board.name}")
    command = [*pio_command(), "run", "-d", str(project), "-e", board.name, "-t", "upload"]
    if port is not None:
        command += ["--upload-port", port]
    done = subprocess.run(
        command,
        env=environment(None),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=BUILD_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        raise CannotCompile(
            f"building or uploading for {board.title} failed",
            where,
            " | ".join(lines[-6:]) or "PlatformIO printed nothing",
            f"attach the board, or run by hand: pio run -d {project} -t upload",
        )
    try:
        transcript = protocol.parse(_read_proof(project, port, timeout, where))
    except protocol.BadTranscript as error:
        raise CannotCompile(
            "the board's report cannot be read", where, str(error), "run it again; check the serial line"
        ) from error
    image = project / ".pio" / "build" / board.name / "firmware.elf"
    return _result(model, board, transcript, vectors, image)


def _read_proof(project: Path, port: str | None, timeout: float, where: Where) -> str:
    command = [*pio_command(), "device", "monitor", "-d", str(project), "-b", str(BAUD), "--raw", "--quiet"]
    if port is not None:
        command += ["-p", port]
    lines: list[str] = []
    process = subprocess.Popen(
        command,
        env=environment(None),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="ascii",
        errors="replace",
    )
    # A silent board would block the reading for ever: the clock ends the monitor, and so the reading.
    clock = threading.Timer(timeout, process.kill)
    clock.start()
    try:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if line.startswith("emitc done") and protocol.is_complete("".join(lines)):
                return "".join(lines)
    finally:
        clock.cancel()
        process.kill()
        process.communicate()
    raise CannotCompile(
        f"no complete proof arrived within {timeout:g} s",
        where,
        f"the last line was: {protocol.last_line(''.join(lines))}",
        "name the board's serial port with --port, and press its reset button",
    )


def _result(
    model: RunModel, board: Board, transcript: protocol.Transcript, vectors: Sequence[Case], image: Path
) -> RunResult:
    verdict = judged(model, board, transcript, vectors)
    counts = [case.ticks or 0 for case in transcript.cases]
    dearest = transcript.cases[counts.index(max(counts))]
    stacks = [case.stack_bytes for case in transcript.cases if case.stack_bytes is not None]
    sizes = image_sizes(image)
    layers = [(line.index, line.ticks or 0) for line in dearest.layers]
    return RunResult(
        board=board.name,
        match=verdict.differing == 0,
        cases=len(vectors),
        differing_bytes=verdict.differing_bytes,
        differing=verdict.differing,
        tolerated=verdict.tolerated,
        max_abs_diff=verdict.max_abs_diff,
        bound=verdict.bound,
        unit=transcript.unit,
        count=max(counts),
        counter="timer",
        stack_bytes=max(stacks, default=None),
        flash_bytes=sizes.flash_bytes,
        code_bytes=None,
        constant_bytes=None,
        model_flash_bytes=None,
        cases_bytes=None,
        ram_bytes=sizes.ram_bytes,
        arena_bytes=model.arena_bytes,
        state_bytes=model.state_bytes,
        layers=layer_counts(model, board, layers) if layers else None,
    )

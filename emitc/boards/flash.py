"""A compiled model on a real, attached board: uploaded with PlatformIO, its proof read from the serial port."""

import contextlib
import os
import re
import shlex
import signal
import ssl
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from emitc.boards import protocol
from emitc.boards.build import BUILD_SECONDS, build_failure, environment, pio_command
from emitc.boards.elf import image_sizes
from emitc.boards.project import BAUD, Case, RunModel
from emitc.boards.result import RunResult, judged, layer_counts, result_of
from emitc.boards.serial_port import find_port, read_lines, require_serial
from emitc.errors import CannotCompile, Where, shown, writing
from emitc.target import Board

_LAST_LINES = 6
"""Of PlatformIO's output, in a message."""
_UPLOADING = ("Uploading ", "Configuring upload protocol")
"""What PlatformIO prints when the build is done."""


def flash(
    project: Path,
    model: RunModel,
    board: Board,
    vectors: Sequence[Case],
    *,
    port: str | None = None,
    timeout: float = 60.0,
    say: Callable[[str], None] = lambda line: None,
) -> RunResult:
    """Builds and uploads a project of `write_flash_project`, and reads the proof that the board prints.

    port: the serial port, None takes the only one. timeout: seconds to wait for a complete proof. say: called with every
    line that PlatformIO prints while it builds and uploads. The user's own
    PlatformIO folder is used: the first build for a board fetches its platform and toolchain from the network.

    Raises CannotCompile where PlatformIO is missing or cannot fetch the platform, build or upload fails, or no complete
    proof arrives in time.
    """
    where = Where(model=model.name, option=f"--board {board.name}")
    upload(project, board, where, port=port, say=say)
    try:
        transcript = protocol.parse(_read_proof(port or find_port(where), timeout, where))
    except protocol.BadTranscript as error:
        hint = "run it again; check the serial line"
        raise CannotCompile("the board's report cannot be read", where, str(error), hint) from error
    image = project / ".pio" / "build" / board.name / "firmware.elf"
    return _result(model, board, transcript, vectors, image)


def upload(project: Path, board: Board, where: Where, *, port: str | None, say: Callable[[str], None]) -> None:
    """Builds a project and uploads it. Raises CannotCompile as `flash` does."""
    command = [*pio_command(), "run", "-d", str(project), "-e", board.name, "-t", "upload"]
    if port is not None:
        command += ["--upload-port", port]
    env = environment(None)
    require_serial(where)
    require_platform(board, where, core_folder(env))
    say(f"building for {board.title}: {shlex.join(['pio', *command[len(pio_command()) :]])}")
    ended, output = _said(command, env, say)
    if ended != 0:
        raise _failure(ended, output, board, project, where)


def _said(command: Sequence[str], env: dict[str, str], say: Callable[[str], None]) -> tuple[int | None, str]:
    """Exit code and output of a command, whose lines are passed on as they come; None where it was ended for its time."""
    process = subprocess.Popen(
        command,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    late = threading.Event()

    def end() -> None:
        late.set()
        _end_group(process)

    # Without an end of the process, reading what a silent one prints would block for ever.
    clock = threading.Timer(BUILD_SECONDS, end)
    clock.start()
    lines: list[str] = []
    try:
        for line in process.stdout or ():
            lines.append(line)
            if line.strip():
                say(shown(line.rstrip()))
        process.wait()
    finally:
        clock.cancel()
        _end_group(process)  # an interruption reaches this process alone
        process.communicate()
    return None if late.is_set() else process.returncode, "".join(lines)


def _end_group(process: subprocess.Popen[str]) -> None:
    """Ends a process that leads a session, with all that it has started."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _failure(ended: int | None, output: str, board: Board, project: Path, where: Where) -> CannotCompile:
    """Why PlatformIO failed: without an end, without a network, while building or while uploading."""
    by_hand = f"run it by hand: pio run -d {shlex.quote(str(project))} -t upload"
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    words = " | ".join(lines[-_LAST_LINES:]) or "PlatformIO printed nothing"
    if ended is None:
        why = f"PlatformIO was still running after {BUILD_SECONDS:g} s; it printed: {words}"
        return CannotCompile(f"the build for {board.title} did not end", where, why, by_hand)
    if unreached(output):
        return not_downloaded(board, where, unreached(output))
    if any(line.startswith(_UPLOADING) for line in lines):
        what = f"uploading to {board.title} failed"
        return CannotCompile(what, where, words, f"attach the board and name its port with --port, or {by_hand}")
    log = project / "build.log"
    with writing(f"{log} cannot be written", "-o"):
        log.write_text(output, encoding="utf-8")
    return build_failure(output, board, where, log)


def _read_proof(port: str, timeout: float, where: Where) -> str:
    lines: list[str] = []
    for line in read_lines(port, BAUD, timeout, where):
        lines.append(line)
        if line.startswith("emitc done") and protocol.is_complete(text := "\n".join(lines)):
            return text
    why = f"the last line was: {protocol.last_line(chr(10).join(lines))}"
    hint = "name the board's serial port with --port, and press its reset button"
    raise CannotCompile(f"no complete proof arrived within {timeout:g} s", where, why, hint)


def _result(
    model: RunModel, board: Board, transcript: protocol.Transcript, vectors: Sequence[Case], image: Path
) -> RunResult:
    verdict = judged(model, board, transcript, vectors)
    counts = [case.ticks or 0 for case in transcript.cases]
    layers = [(line.index, line.ticks or 0) for line in transcript.cases[counts.index(max(counts))].layers]
    return result_of(
        model,
        board,
        verdict,
        transcript.cases,
        image_sizes(image),
        unit=transcript.unit,
        count=max(counts),
        counter="timer",
        layers=layer_counts(model, board, layers) if layers else None,
    )


REGISTRY = "https://api.registry.platformio.org"
ANSWER_SECONDS = 5.0
_UNREACHED = re.compile(
    r"HTTPClientError|InternetConnectionError|not connected to the Internet|Could not resolve host|Failed to establish a new"
    r" connection|Max retries exceeded|unable to access 'http"
)


def require_platform(board: Board, where: Where, core_dir: Path) -> None:
    """Raises CannotCompile where the board's platform is neither below `core_dir` nor in reach.

    PlatformIO itself would try for a minute.
    """
    spec = board.platformio.platform
    if not _is_installed(spec, core_dir) and not answers(_source(spec)):
        raise not_downloaded(board, where, f"it is not installed, and {_source(spec)} does not answer")


def not_downloaded(board: Board, where: Where, why: str) -> CannotCompile:
    """The error for a board whose platform, or a package of it, PlatformIO cannot fetch."""
    spec = board.platformio.platform.replace(" ", "")
    return CannotCompile(
        f"PlatformIO cannot download what {board.title} needs ({spec})",
        where,
        why,
        "set HTTPS_PROXY where the network has a proxy; without a network run"
        f' `pio pkg install -g -p "{spec}"` elsewhere and copy its folder ~/.platformio',
    )


def unreached(output: str) -> str:
    """The line of PlatformIO's output that says it got no answer from the network; "" where no line does."""
    return next((line.strip() for line in output.splitlines() if _UNREACHED.search(line)), "")


def core_folder(env: dict[str, str]) -> Path:
    """Where PlatformIO keeps its packages under an environment."""
    named = env.get("PLATFORMIO_CORE_DIR")
    return Path(named) if named else Path.home() / ".platformio"


def answers(url: str) -> bool:
    """Whether a server answers at all, through the proxy that the environment names. An error page is an answer too."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=ANSWER_SECONDS):
            return True
    except urllib.error.HTTPError:
        return True
    except urllib.error.URLError as error:
        # PlatformIO has certificates of its own.
        return isinstance(error.reason, ssl.SSLError)
    except OSError:
        return False


def _source(spec: str) -> str:
    parts = urlsplit(spec)
    return f"{parts.scheme}://{parts.netloc}" if parts.scheme in ("http", "https") else REGISTRY


def _is_installed(spec: str, core_dir: Path) -> bool:
    """Whether some version of the platform is there; PlatformIO itself decides which one the project takes."""
    name = spec.partition("@")[0].strip().rstrip("/").rpartition("/")[2].removesuffix(".git").removeprefix("platform-")
    folder = core_dir / "platforms"
    return folder.is_dir() and any(
        entry == name or entry.startswith((f"{name}@", f"{name}.")) for entry in os.listdir(folder)
    )

"""Whether PlatformIO can get what a real board's build needs: its platform, from this machine or from the network."""

import os
import re
import ssl
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

from emitc.errors import CannotCompile, Where
from emitc.target import Board

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

"""What a board says over its serial port, line by line, with an end in time and a bound on what is kept.

PlatformIO's monitor asks for a person at a terminal, so the port is read here.
"""

import importlib.util
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from emitc.errors import CannotCompile, Where, install_hint, shown

LONGEST_LINE = 4096
"""Characters after which a line is cut; the longest that emitc's programs print has about 200."""
MOST_BYTES = 1 << 26
"""That one reading takes."""
_OPEN_SECONDS = 5.0
"""A board that restarts with its upload takes its USB port along for a moment."""
_HINT = "name the board's serial port with --port, and end other programs that read it"


def require_serial(where: Where) -> None:
    """Raises CannotCompile where the package that opens serial ports is not installed."""
    if importlib.util.find_spec("serial") is None:
        what, why = "pyserial is not installed", "it opens the board's serial port"
        raise CannotCompile(what, where, why, install_hint("boards"))


def find_port(where: Where) -> str:
    """The only USB serial port of this machine. Raises CannotCompile where there is none, or several."""
    from serial.tools.list_ports import comports

    ports = sorted(port.device for port in comports() if port.vid is not None)
    if len(ports) == 1:
        return str(ports[0])
    why = f"several are attached: {', '.join(ports)}" if ports else "no USB serial port is attached"
    raise CannotCompile("the board's serial port is not known", where, why, "name it with --port")


def read_lines(port: str, baud: int, seconds: float, where: Where) -> Iterator[str]:
    """The lines as they arrive, for at most so many seconds; bytes that are no ASCII are replaced.

    port: a device, or a URL that pyserial takes, such as socket://host:2000. A line without an end is cut at `LONGEST_LINE`.
    What has arrived when the time is over is the last line. Raises CannotCompile where the port cannot be opened, or is lost.
    """
    import serial

    end = time.monotonic() + seconds
    rest, taken = bytearray(), 0
    try:
        with _opened(port, baud, min(end, time.monotonic() + _OPEN_SECONDS)) as line:
            while time.monotonic() < end and taken < MOST_BYTES:
                data = line.read(line.in_waiting or 1)
                taken += len(data)
                rest += data
                *whole, last = rest.split(b"\n")
                rest = bytearray(last)
                if len(rest) > LONGEST_LINE:
                    whole.append(rest)
                    rest = bytearray()
                yield from (_text(line_bytes) for line_bytes in whole)
    except (serial.SerialException, OSError, ValueError) as error:
        why = (str(error) or type(error).__name__)[:200]
        raise CannotCompile(f"the serial port {shown(port)} cannot be read", where, why, _HINT) from error
    if rest:
        yield _text(rest)


def _opened(port: str, baud: int, until: float) -> Any:
    """The open port; tried again for a while."""
    import serial

    while True:
        with suppress(serial.SerialException):
            return serial.serial_for_url(port, baudrate=baud, timeout=0.05)
        if time.monotonic() >= until:
            return serial.serial_for_url(port, baudrate=baud, timeout=0.05)
        time.sleep(0.1)


def _text(line: bytes | bytearray) -> str:
    return line[:LONGEST_LINE].decode("ascii", errors="replace").rstrip("\r")

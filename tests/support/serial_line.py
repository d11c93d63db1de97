"""A pseudo terminal that stands for a board's serial port: what the board says arrives there, again and again."""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

ROUNDS = 60
_SETTLING = 0.1
"""Seconds after which a port that was opened has dropped what was there before."""


@contextmanager
def serial_line(said: Callable[[int], bytes], pause: float = 0.05) -> Iterator[str]:
    """The name of a port on which a board says `said(0)`, `said(1)` and so on, with a pause of seconds in between.

    The board begins when the port is opened. It never waits for a reader that is gone.
    """
    board, port = os.openpty()
    name = os.ttyname(port)
    os.close(port)
    stop = threading.Event()

    def opened() -> bool:
        poll = select.poll()
        poll.register(board, 0)
        return not any(event & select.POLLHUP for _, event in poll.poll(0))

    def talk() -> None:
        while not opened():
            if stop.wait(0.01):
                return
        time.sleep(_SETTLING)
        for turn in range(ROUNDS):
            rest = memoryview(said(turn))
            while rest:
                if stop.is_set() or not opened():
                    return
                if select.select([], [board], [], 0.05)[1]:
                    rest = rest[os.write(board, rest[:256]) :]
            if stop.wait(pause):
                return

    talking = threading.Thread(target=talk)
    talking.start()
    try:
        yield name
    finally:
        stop.set()
        talking.join()
        os.close(board)

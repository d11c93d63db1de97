"""The engines in a process that lasts, since starting one for each graph would take most of the time.

The process is forked from this one, with the engines' packages loaded. An engine that ends it costs one graph: the next request
forks another. So does one that takes too long.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import select
import signal
import struct
import subprocess
import tempfile
import time
from typing import IO

from emitc.emit.render import environment
from emitc.kernels import registry
from emitc.verify.engines.run import answer

REQUESTS = 400
"""Requests that one process answers: interpreters may leak."""
_BUG = 1


def preload(source_format: str) -> None:
    """Imports the packages of a format's engines, all operators and all templates, so that forked processes have them."""
    registry()
    templates = environment()
    for template in templates.list_templates(filter_func=lambda name: name.endswith(".j2") and ".html" not in name):
        templates.get_template(template)
    for name in {"tflite": ("tflite_micro", "ai_edge_litert.interpreter")}.get(source_format, ("onnx", "onnxruntime")):
        importlib.import_module(name)


class EngineProcess:
    """Calling it is a `ChildProcess`. `ends` counts the processes that an engine or the clock ended."""

    def __init__(self) -> None:
        self._pid = 0
        self._left = 0
        self.ends = 0
        self._words: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - as long as this object

    def __call__(self, message: bytes, timeout_seconds: float) -> subprocess.CompletedProcess[bytes]:
        """The reply to one request. Raises subprocess.TimeoutExpired."""
        if self._pid == 0 or self._left == 0:
            if self._pid:
                self._end()
            self._start()
        self._left -= 1
        self._words.seek(0)
        self._words.truncate(0)
        deadline = time.monotonic() + timeout_seconds
        reply = None
        with contextlib.suppress(BrokenPipeError):
            _write(self._to, message)
            reply = _read(self._from, deadline)
        if reply is not None:
            return subprocess.CompletedProcess([], reply[0], reply[1:], b"")
        self.ends += 1
        late = time.monotonic() >= deadline
        code = self._end()
        if late:
            raise subprocess.TimeoutExpired("the engine", timeout_seconds)
        self._words.seek(0)
        return subprocess.CompletedProcess([], code, b"", self._words.read()[-4000:])

    def close(self) -> None:
        """Ends the process; there is no other one afterwards."""
        if self._pid:
            self._end()
        self._words.close()

    def _start(self) -> None:
        self._left = REQUESTS
        there, self._to = os.pipe()
        self._from, back = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._to)
            os.close(self._from)
            _serve(there, back, self._words.fileno())
        os.close(there)
        os.close(back)

    def _end(self) -> int:
        os.close(self._to)
        os.close(self._from)
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, signal.SIGKILL)
        _, status = os.waitpid(self._pid, 0)
        self._pid = 0
        return os.waitstatus_to_exitcode(status)


def _serve(requests: int, replies: int, words: int) -> None:
    """The forked process; does not return."""
    signal.alarm(0)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    os.dup2(words, 1)
    os.dup2(words, 2)
    while True:
        message = _read(requests, None)
        if message is None:
            os._exit(0)
        try:
            reply = b"\0" + answer(message)
        except MemoryError:
            os._exit(_BUG)
        _write(replies, reply)


def _write(to: int, message: bytes) -> None:
    data = memoryview(struct.pack("<Q", len(message)) + message)
    while data:
        data = data[os.write(to, data) :]


def _read(source: int, deadline: float | None) -> bytes | None:
    """One message; None at the end of the stream or of the time."""
    head = _bytes(source, 8, deadline)
    return None if head is None else _bytes(source, struct.unpack("<Q", head)[0], deadline)


def _bytes(source: int, count: int, deadline: float | None) -> bytes | None:
    parts: list[bytes] = []
    while count:
        if deadline is not None:
            ready, _, _ = select.select([source], [], [], max(deadline - time.monotonic(), 0))
            if not ready:
                return None
        part = os.read(source, min(count, 1 << 20))
        if not part:
            return None
        parts.append(part)
        count -= len(part)
    return b"".join(parts)

"""MLPerf Tiny's side of the serial line, and an application of it as a program of this machine on a pseudo terminal."""

from __future__ import annotations

import os
import re
import select
import subprocess
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from emitc.target import boards_dir

HOST_MAIN = """\
#include <stdint.h>
#include <time.h>
#include <unistd.h>

#include "emitc_board.h"
#include "mlperf_tiny.h"

void emitc_write(const char *text, uint32_t length)
{
    while (length > 0) {
        const ssize_t written = write(1, text, length);
        if (written <= 0) {
            _exit(1);
        }
        text += written;
        length -= (uint32_t)written;
    }
}

uint32_t emitc_microseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint32_t)(now.tv_sec * 1000000 + now.tv_nsec / 1000);
}

int main(void)
{
    char c;
    emitc_mlperf_start();
    while (read(0, &c, 1) == 1) {
        emitc_mlperf_receive(c);
    }
    return 0;
}
"""
BYTES_A_COMMAND = 31
"""That the runner puts into one command."""


def built(project: Path, work: Path, flags: tuple[str, ...] = ()) -> Path:
    """The application of a project, built for this machine with the main program of this module."""
    main = work / "host_main.c"
    main.write_text(HOST_MAIN, encoding="ascii")
    program = work / "application"
    package = project / "lib" / "model"
    files = [
        main,
        project / "src" / "mlperf_tiny.c",
        project / "src" / "print.c",
        *sorted((package / "src").glob("*.c")),
    ]
    folders = [
        f"-I{folder}" for folder in (project / "src", package / "include", boards_dir() / "platform" / "runtime")
    ]
    command = ["gcc", "-O2", "-D_POSIX_C_SOURCE=200809L", "-std=c11", *flags, *folders, *map(str, files), "-o"]
    subprocess.run([*command, str(program)], check=True)
    return program


class Runner:
    """Sends commands as the benchmark's runner does, and reads the lines up to `m-ready`."""

    def __init__(self, line: int) -> None:
        self.line = line
        self.rest = b""

    def answer(self, seconds: float = 20.0) -> list[str]:
        """The lines of one answer, `m-ready` not included."""
        lines: list[str] = []
        end = time.monotonic() + seconds
        while True:
            while b"\n" in self.rest:
                first, self.rest = self.rest.split(b"\n", 1)
                text = first.decode("ascii").strip("\r\n\0")
                if "m-ready" in text:
                    return lines
                lines.append(text)
            if not select.select([self.line], [], [], max(0.0, end - time.monotonic()))[0]:
                raise TimeoutError(f"no answer within {seconds} s; so far: {lines}, {self.rest!r}")
            self.rest += os.read(self.line, 4096)

    def command(self, text: str) -> list[str]:
        """The lines of the answer to a command."""
        os.write(self.line, f"{text}%".encode("ascii"))
        return self.answer()

    def load(self, data: bytes) -> list[str]:
        """Sends an input; the lines of the last answer."""
        said = self.command(f"db load {len(data)}")
        for start in range(0, len(data), BYTES_A_COMMAND):
            said = self.command(f"db {data[start : start + BYTES_A_COMMAND].hex()}")
        return said

    def infer(self, runs: int, warm_up: int) -> tuple[list[float], int]:
        """The results of an inference, and the microseconds between its two time stamps."""
        lines = self.command(f"infer {runs} {warm_up}")
        times = [int(found[1]) for line in lines if (found := re.fullmatch(r"m-lap-us-([0-9]+)", line))]
        results = [found[1] for line in lines if (found := re.fullmatch(r"m-results-\[([^]]+)\]", line))]
        assert len(times) == 2, lines
        assert len(results) == 1, lines
        return [float(text) for text in results[0].split(",")], times[1] - times[0]


@contextmanager
def on_terminal(program: Path) -> Iterator[tuple[Runner, str]]:
    """The program at one end of a pseudo terminal: the runner at the other end, and the name of that end's device."""
    own, its = os.openpty()
    tty.setraw(own)
    tty.setraw(its)
    process = subprocess.Popen([str(program)], stdin=own, stdout=own)
    try:
        yield Runner(its), os.ttyname(its)
    finally:
        process.kill()
        process.wait()
        os.close(own)
        os.close(its)

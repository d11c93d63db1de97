"""A sketch compiled for this machine as the IDE of Arduino does it, with a stand-in for the functions of a core."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

_CORE = """\
#ifndef ARDUINO_H
#define ARDUINO_H
struct SerialPort {
    void begin(unsigned long baud);
    void println(const char *text);
};
extern SerialPort Serial;
void delay(unsigned long milliseconds);
void setup();
void loop();
#endif
"""
_MAIN = """\
#include <Arduino.h>

#include <stdio.h>
#include <stdlib.h>

SerialPort Serial;
void SerialPort::begin(unsigned long) {}
void SerialPort::println(const char *text) { puts(text); }
void delay(unsigned long) { exit(0); } /* what the sketch prints first is enough */

int main()
{
    setup();
    for (;;) {
        loop();
    }
}
"""
_WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wcast-qual", "-Wconversion", "-Werror")


def _run(command: Sequence[str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _archive(library: Path, folder: Path, number: int) -> tuple[list[str], str]:
    """Options to include a library, and the archive of its sources."""
    headers = library / "include" if (library / "include").is_dir() else library / "src"
    objects = []
    for source in sorted((library / "src").glob("*.c")):
        objects.append(f"{number}_{source.stem}.o")
        options = ["-std=gnu11", "-O1", f"-I{headers}", "-c", str(source), "-o", objects[-1]]
        _run(["gcc", *options], folder)
    _run(["ar", "rcs", f"{number}.a", *objects], folder)
    return [f"-I{headers}"], f"{number}.a"


def run_sketch(library: Path, folder: Path, others: Sequence[Path] = (), standard: str = "gnu++11") -> str:
    """What the example of a library prints once. others: further libraries in the program. Archives are made as the IDE does."""
    build = folder / f"sketch_{library.parent.name}_{library.name}"
    (build / "core").mkdir(parents=True)
    (build / "core" / "Arduino.h").write_text(_CORE, encoding="ascii")
    (build / "core" / "main.cpp").write_text(_MAIN, encoding="ascii")
    (sketch,) = (path for path in (library / "examples" / "check").iterdir() if path.suffix in (".ino", ".cpp"))
    linked = [_archive(other, build, i) for i, other in enumerate(dict.fromkeys([library, *others]))]
    includes = [option for options, _ in linked for option in options]
    options = [
        f"-std={standard}",
        *_WARNINGS,
        "-DARDUINO=10819",
        "-Icore",
        *includes,
        "-x",
        "c++",
        "-include",
        "Arduino.h",
    ]
    _run(["g++", *options, "-c", str(sketch), "-o", "sketch.o"], build)
    _run(["g++", "-Icore", "-c", "core/main.cpp", "-o", "main.o"], build)
    _run(["g++", "main.o", "sketch.o", *(archive for _, archive in linked), "-lm", "-o", "sketch"], build)
    return _run(["./sketch"], build)

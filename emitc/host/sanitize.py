"""The same cases once more in a program of their own, built with AddressSanitizer and UndefinedBehaviorSanitizer."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from emitc.emit.render import environment
from emitc.host.build import SANITIZE, Interface, run_compiler, sources
from emitc.host.samples import Sample
from emitc.ir import Array


def run_sanitized(
    package: Path, workdir: Path, interface: Interface, cases: Sequence[Sample], expected: Sequence[Sequence[Array]]
) -> list[str]:
    """What the sanitizers found, one line each; empty when they are silent and the outputs are the expected ones."""
    main = workdir / "sanitize_main.c"
    description = {
        "name": interface.name,
        "upper": interface.name.upper(),
        "alignment": max(interface.alignment, 16),
        "inputs": len(interface.inputs),
        "outputs": len(interface.outputs),
    }
    main.write_text(environment().get_template("host/sanitize_main.c.j2").render(m=description), encoding="ascii")
    files, includes = sources(package)
    program = workdir / "sanitized"
    flags = ["-std=c11", "-D_POSIX_C_SOURCE=200809L", "-ffp-contract=off", *SANITIZE]
    run_compiler([*flags, *(f"-I{f}" for f in includes), str(main), *map(str, files), "-o", str(program)])
    data, result = workdir / "cases.bin", workdir / "outputs.bin"
    with data.open("wb") as file:
        for case in cases:
            for (dtype, _), value in zip(interface.inputs, case, strict=True):
                file.write(np.ascontiguousarray(value, dtype).tobytes())
    done = subprocess.run(
        [str(program), str(len(cases)), str(data), str(result)],
        capture_output=True,
        text=True,
        check=False,
        errors="replace",
    )
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "ERROR" in line or "runtime error" in line]
        return lines[:5] or [f"the sanitized program ended with {done.returncode}"]
    written = b"".join(value.tobytes() for outputs in expected for value in outputs)
    return [] if result.read_bytes() == written else ["the sanitized program computed other outputs"]

"""The same cases once more in a program of their own, built with AddressSanitizer and UndefinedBehaviorSanitizer.

Before each layer everything in the arena that the package's plan does not have alive is poisoned. So a read of a dead
or of a foreign buffer is found too. The plan is the one in the package's manifest.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from emitc.emit.render import environment
from emitc.ir import Array
from emitc.target import BuildSupport
from emitc.verify import host_dma
from emitc.verify.build import SANITIZE, Interface, build_support, captured, run_compiler, sources
from emitc.verify.reference import Sample

FOREIGN = ("-fno-sanitize=undefined",)
"""For other people's sources: their memory accesses are checked, their use of the language is their own."""
DRIVER_FLAGS = ("-std=c11", "-D_POSIX_C_SOURCE=200809L", "-DEMITC_TRACE", "-ffp-contract=off")


def alive_spans(manifest: Mapping[str, Any], interface: Interface) -> list[dict[str, int]]:
    """The buffers that are alive during each layer, from a package's manifest: layer, arena, offset and bytes."""
    numbers = {region: number for number, (region, _) in enumerate(interface.arenas)}
    return [
        {
            "layer": number,
            "arena": numbers[buffer.get("region", "")],
            "offset": buffer["offset"],
            "bytes": buffer["bytes"],
        }
        for number, layer in enumerate(manifest["trace"])
        for buffer in manifest["memory"]["buffers"]
        if buffer["first"] < layer["end"] and layer["first"] < buffer["end"]
    ]


def driver(package: Path, interface: Interface, resets: Sequence[int] = ()) -> str:
    """The C program: `PROGRAM cases inputs-file outputs-file` runs every case in exactly sized memory.

    resets: the cases before which the model's state goes back to its start.
    It ends with 0, or with another code when a call or a file fails. A sanitizer ends it with a report.
    """
    plan: dict[str, Any] = json.loads((package / "manifest.json").read_text(encoding="utf-8"))
    description = {
        "name": interface.name,
        "upper": interface.name.upper(),
        "alignment": max(interface.alignment, 16),
        "inputs": len(interface.inputs),
        "reads_rows": interface.reads_rows,
        "steps": interface.steps,
        "outputs": len(interface.outputs),
        "resets": list(resets),
        "external": bool(interface.weights),
        "weights_arguments": f", weights, {interface.name.upper()}_WEIGHTS_BYTES" if interface.weights else "",
        "arenas": [size for _, size in interface.arenas],
        "regions": [{"name": region.lower(), "bytes": size} for region, size in interface.regions],
        "layers": [layer["outputs"] for layer in plan["trace"]],
        "alive": alive_spans(plan, interface),
        "dma": host_dma.SOURCE if interface.loads_ahead else "",
    }
    return environment().get_template("verify/sanitize_main.c.j2").render(m=description)


def build_driver(
    package: Path,
    workdir: Path,
    interface: Interface,
    flags: Sequence[str],
    support: BuildSupport | None = None,
    resets: Sequence[int] = (),
) -> Path:
    """The driver and the package as a program in `workdir`, compiled with `flags` in addition to its own."""
    main = workdir / "sanitize_main.c"
    main.write_text(driver(package, interface, resets), encoding="ascii")
    files, includes = sources(package)
    program = workdir / "sanitized"
    more: list[str] = []
    if support is not None:
        (workdir / "sanitized-support").mkdir(exist_ok=True)
        more = ["-DEMITC_NO_TARGET_CHECK", *build_support(support, workdir / "sanitized-support", (*flags, *FOREIGN))]
    options = [*DRIVER_FLAGS, *flags, *(f"-I{folder}" for folder in includes), *more]
    run_compiler([*options, str(main), *map(str, files), "-o", str(program), "-lm"])
    return program


def write_cases(path: Path, interface: Interface, cases: Sequence[Sample]) -> None:
    """The inputs of all cases, one after the other, as the driver reads them."""
    with path.open("wb") as file:
        for case in cases:
            for (dtype, _), value in zip(interface.inputs, case, strict=True):
                file.write(np.ascontiguousarray(value, dtype).tobytes())


def run_sanitized(
    package: Path,
    workdir: Path,
    interface: Interface,
    cases: Sequence[Sample],
    expected: Sequence[Sequence[Array]],
    support: BuildSupport | None = None,
    resets: Sequence[int] = (),
) -> list[str]:
    """What the sanitizers found, one line each; empty when they are silent and the outputs are the expected ones."""
    program = build_driver(package, workdir, interface, SANITIZE, support, resets)
    data, result = workdir / "cases.bin", workdir / "outputs.bin"
    write_cases(data, interface, cases)
    weights = workdir / "weights.bin"
    weights.write_bytes(interface.weights)
    more = [str(weights)] if interface.weights else []
    done = captured([str(program), str(len(cases)), str(data), str(result), *more])
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if "ERROR" in line or "runtime error" in line]
        return lines[:5] or [f"the sanitized program ended with {done.returncode}"]
    written = b"".join(value.tobytes() for outputs in expected for value in outputs)
    return [] if result.read_bytes() == written else ["the sanitized program computed other outputs"]

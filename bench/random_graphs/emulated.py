"""Random graphs on an emulated board, many in one image: what compilers make of assembly, of alignment and of other word sizes.

The host compiles plain C instead of assembly. Here the compiler of the board's core builds the packages, with constants
where they fall, and QEMU runs them. Expected are the outputs of the numpy references or those of the host, by the rules of
`emitc verify`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from bench.random_graphs.case import Case
from bench.random_graphs.formats import generate
from bench.random_graphs.inputs import draw_inputs
from bench.random_graphs.judge import CASES, broken_rule
from bench.random_graphs.modes import draw_mode, options_of, with_variants
from bench.random_graphs.native import HARNESS, Builds, Item, joined_inputs, rows_of, unit_of
from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.errors import EmitcError
from emitc.ir import Array
from emitc.target import boards_dir, load_board
from emitc.verify.reference import run_reference

IMAGE = 16
"""Graphs of one image."""
SECONDS = 300
PROGRAM = Path(__file__).resolve().with_name("emulated.c")
_FLAGS = ("-std=c11", "-ffp-contract=off", "-ffunction-sections", "-fdata-sections", "-w", "-I.")
_DEFINES = ("-DEMITC_ICOUNT_SHIFT=0", '-DEMITC_BOARD_NAME="board"', "-DF_CPU=1000000")
_LEFT = ("board", "backends", "kernels", "load_ahead", "io")
"""Options of a mode that are not for these images."""


@dataclass
class Emulation:
    """A graph on its way. verdict: match, wrong, status (a call failed), lost (the board stopped), build, memory or refused."""

    case: Case
    mode: dict[str, Any]
    item: Item | None = None
    expected: list[tuple[Array, ...]] = field(default_factory=list)
    verdict: str = ""
    detail: str = ""

    def close(self, verdict: str, detail: str = "") -> None:
        self.verdict, self.detail = verdict, " ".join(detail.split())[:400]


@dataclass(frozen=True)
class Board:
    """An emulated board, and a folder to build in. level: of the compiler's optimization."""

    name: str
    level: str
    folder: Path

    @cached_property
    def described(self) -> dict[str, Any]:
        """Its JSON in the platform for PlatformIO."""
        path = boards_dir() / "platform" / "boards" / f"{self.name}.json"
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return content

    @cached_property
    def compiler(self) -> list[str]:
        """The command that compiles C for it."""
        build = self.described["build"]
        own = f"{build['toolchain']}gcc"
        command = build.get("compiler", own)
        library = self._library
        if command != own:
            asked = subprocess.run(
                [own, *library, "-M", "-x", "c", "-"], input="#include <stdlib.h>", capture_output=True, text=True, check=True
            )  # fmt: skip
            header = next(word for word in asked.stdout.split() if os.path.basename(word) == "stdlib.h")
            library = ["-isystem", os.path.dirname(header)]
        runtime = boards_dir() / "platform" / "runtime"
        folders = [f"-I{HARNESS.parent}", f"-I{runtime}"]
        return [command, *build["arch_flags"], *library, self.level, *_FLAGS, *_DEFINES, *folders]

    @property
    def _library(self) -> list[str]:
        return ["--specs=nano.specs" if self.described["build"]["isa"] == "cortex_m" else "--specs=picolibc.specs"]

    @cached_property
    def start_up(self) -> list[str]:
        """Objects of the platform's runtime."""
        objects = []
        for source in sorted((boards_dir() / "platform" / "runtime").glob("*.c")):
            target = self.folder / f"board_{source.stem}.o"
            subprocess.run([*self.compiler, "-fno-builtin", "-c", str(source), "-o", str(target)], check=True)
            objects.append(str(target))
        return objects

    def link(self, objects: Sequence[str]) -> str:
        """Links an image; what the linker said where it failed."""
        build = self.described["build"]
        scripts = boards_dir() / "platform" / "ldscripts"
        bounds = [
            f"-Wl,--defsym=__{region}_{what}={value}"
            for region, pair in build["memory"].items()
            for what, value in zip(("org", "len"), pair, strict=True)
        ]
        script = ["-nostartfiles", "-Wl,--gc-sections", "-L", str(scripts), "-T", str(scripts / f"{build['isa']}.ld")]
        command = [f"{build['toolchain']}gcc", *build.get("link_flags", build["arch_flags"]), *self._library, *bounds]
        done = subprocess.run(
            [*command, *script, *objects, *self.start_up, "-lm", "-o", "image.elf"],
            cwd=self.folder, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.stderr if done.returncode else ""

    def run(self) -> bytes:
        """What the image prints. A file takes it: QEMU drops bytes that a pipe does not take at once."""
        command = [sys.executable, str(boards_dir() / "platform" / "qemu.py"), self.name, "image.elf"]
        with (self.folder / "printed").open("wb") as printed:
            subprocess.run(
                [*command, "--timeout", str(SECONDS)],
                cwd=self.folder, stdout=printed, stderr=subprocess.DEVNULL, check=False,
            )  # fmt: skip
        return (self.folder / "printed").read_bytes()


def campaign(source_format: str, seed: int, count: int, board: str, level: str = "-O2") -> list[Emulation]:
    """Judges the first `count` graphs of a seed on a board."""
    done: list[Emulation] = []
    with tempfile.TemporaryDirectory(prefix="emulated-") as scratch:
        emulated = Board(board, level, Path(scratch))
        for start in range(0, count, IMAGE):
            chunk = [
                prepared(generate(source_format, seed, index), board, emulated.folder)
                for index in range(start, min(start + IMAGE, count))
            ]
            judged([one for one in chunk if not one.verdict], emulated)
            done += chunk
    return done


def mode_on(case: Case, board: str) -> dict[str, Any]:
    """The mode that a graph is drawn with: often with a kernel for another core, or with its weights in a file."""
    rng = np.random.default_rng([case.seed, case.index, 7])
    mode = {name: value for name, value in draw_mode(rng, case.description).items() if name not in _LEFT}
    mode["target"] = load_board(board).target
    if rng.random() < 0.4:
        mode["variant"] = int(rng.integers(1 << 30))
    if rng.random() < 0.3:
        mode["weights"] = "external"
        mode.pop("split_weights", None)
    return mode


def prepared(case: Case, board: str, folder: Path) -> Emulation:
    """The graph compiled, with the outputs of the numpy references; closed where emitc refuses it."""
    one = Emulation(case, mode_on(case, board))
    name = f"g{case.index}"
    path = folder / f"{name}.{case.format}"
    path.write_bytes(case.model)
    compiled = _compiled(path, one.mode, name)
    if compiled is None or compiled.host_hooks():
        one.close("refused")
        return one
    inputs = draw_inputs(case.description, np.random.default_rng([case.seed, case.index, 17]), CASES)
    state: dict[str, Array] = {}
    for sample in inputs:
        values = run_reference(compiled.partition.graph, sample, state if compiled.program.states else None)
        one.expected.append(tuple(values[output] for output in compiled.graph.outputs))
    one.item = Item(compiled, inputs)
    return one


def _compiled(path: Path, mode: dict[str, Any], name: str) -> Compiled | None:
    """Compiled with as much of the mode as the graph can have, None where emitc refuses it."""
    for left in ((), ("places", "ram_budget", "flash_budget", "input_rows"), ("regions", "stage_weights", "weights")):
        for option in left:
            mode.pop(option, None)
        try:
            compiled = compile_model(path, options_of(mode, name))
        except EmitcError:
            continue
        if "variant" in mode:
            try:
                return compile_model(path, with_variants(options_of(mode, name), compiled, mode))
            except EmitcError:
                return compiled
        return compiled
    return None


def judged(graphs: Sequence[Emulation], board: Board) -> None:
    """Builds an image of the graphs and runs it; halves of them where it cannot be built, the rest where it stops."""
    if not graphs:
        return
    problem = _built([one.item for one in graphs if one.item], board)
    if problem and len(graphs) > 1:
        judged(graphs[: len(graphs) // 2], board)
        judged(graphs[len(graphs) // 2 :], board)
    elif problem:
        graphs[0].close("memory" if "overflowed" in problem or "left for the stack" in problem else "build", problem)
    else:
        stopped = _read(graphs, board.run().split(b"\nmodel")[1:], board)
        judged(graphs[stopped:], board)


def _built(items: Sequence[Item], board: Board) -> str:
    """What the compiler or the linker said where the image cannot be built."""
    unit, runtime = unit_of(items)
    for file, data in runtime.items():
        (board.folder / file).write_bytes(data)
    adapters, table = rows_of(items)
    declared = "extern const unsigned char all_inputs[];\n"
    text = [unit, '#include "harness.h"', *adapters, declared + table, PROGRAM.read_text(encoding="ascii")]
    (board.folder / "image.c").write_text("\n".join(text), encoding="ascii")
    (board.folder / "inputs").write_bytes(joined_inputs(items) + b"\0")
    section = '.section .rodata.cases,"a"\n.balign 16\n.global all_inputs\nall_inputs:\n.incbin "inputs"\n'
    (board.folder / "inputs.S").write_text(section, encoding="ascii")
    assembler = [f"{board.described['build']['toolchain']}gcc", *board.described["build"]["arch_flags"]]
    if board.compiler[0] != assembler[0]:
        assembler = [assembler[0], *board.described["build"]["link_flags"]]
    for command, source in ((board.compiler, "image.c"), (board.compiler, "emitc_runtime.c"), (assembler, "inputs.S")):
        done = subprocess.run(
            [*command, "-c", source, "-o", f"{source}.o"], cwd=board.folder, capture_output=True, text=True, check=False
        )
        if done.returncode:
            return done.stderr.strip() or f"the compiler ended with {done.returncode}"
    return board.link(["image.c.o", "emitc_runtime.c.o", "inputs.S.o"])


def _read(graphs: Sequence[Emulation], printed: Sequence[bytes], board: Board) -> int:
    """Gives the graphs whose output was printed their verdicts; returns how many of them have one now."""
    if not printed:
        graphs[0].close("lost", "the board printed nothing")
    for position, (one, text) in enumerate(zip(graphs, printed, strict=False)):
        assert one.item is not None
        ports = one.item.interface.outputs
        sizes = [2 * int(np.prod(shape)) * np.dtype(dtype).itemsize for dtype, shape in ports]
        outputs = []
        whole = text.strip(b"\n")
        for start in range(0, (CASES + 1) * (1 + sum(sizes)), 1 + sum(sizes)):
            case = whole[start : start + 1 + sum(sizes)]
            if case[:1] != b"0" or len(case) <= sum(sizes) or b"\n" in case:
                stopped = len(printed) == position + 1 and case[:1] != b"m"
                one.close("memory" if case == b"m" else "lost" if stopped else "status", text[-60:].decode("latin1"))
                break
            ends = np.cumsum([1, *sizes])
            pieces = [bytes.fromhex(case[a:b].decode()) for a, b in pairwise(ends)]
            outputs.append(tuple(
                np.frombuffer(piece, dtype).reshape(shape) for piece, (dtype, shape) in zip(pieces, ports, strict=True)
            ))  # fmt: skip
        else:
            _compare(one, outputs, board)
    return max(1, len(printed))


def _compare(one: Emulation, outputs: list[tuple[Array, ...]], board: Board) -> None:
    """By the rules, against the references, or against the host where those differ by what the engine's roundings decide."""
    assert one.item is not None
    *answers, again = outputs
    wrong = broken_rule(one.item.compiled, answers, one.expected)
    if wrong:
        host = Item(one.item.compiled, one.item.cases)
        Builds(board.folder).run([host])
        wrong = broken_rule(one.item.compiled, answers, host.outputs[:-1]) if host.outputs else wrong
    if any(a.tobytes() != b.tobytes() for a, b in zip(again, answers[0], strict=True)):
        wrong = wrong or "after a reset the first answer is another one"
    one.close("wrong" if wrong else "match", wrong)


def report(done: Sequence[Emulation]) -> tuple[str, int]:
    """The counts and each failure as text, and the number of failures."""
    failures = [one for one in done if one.verdict not in ("match", "refused", "memory")]
    counts = Counter(one.verdict for one in done)
    lines = [", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))]
    lines += [f"{one.case.name} {one.verdict}: {one.detail} {json.dumps(one.mode)}" for one in failures]
    return "\n".join(lines), len(failures)

"""The C of many graphs built at once with the sanitizers, and run."""

from __future__ import annotations

import hashlib
import json
import math
import os
import resource
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from bench.random_graphs.combine import Unit
from emitc.compiled import Compiled
from emitc.ir import Array
from emitc.target import BuildSupport
from emitc.verify import host_dma
from emitc.verify.build import WARNINGS, Interface
from emitc.verify.golden_run import interface_of
from emitc.verify.sanitize import alive_spans

HARNESS = Path(__file__).resolve().with_name("harness.c")
COMPILER = ("gcc", "-O0", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
TRAPS = ("-fsanitize-undefined-trap-on-error",)
"""The undefined behaviour sanitizer stops the program without a word, which compiles in two thirds of the time."""
DEFINES = ("-D_GNU_SOURCE", "-DEMITC_TRACE", "-DEMITC_NO_TARGET_CHECK")
BUILD_SECONDS = 3000
RUN_SECONDS = 1200
"""By the clock, for 64 graphs: a campaign may get a small part of the processor."""
_LETTERS = {
    "i": "an input could not be read", "r": "run returned an error", "l": "layers did not report as the manifest says",
    "w": "an output could not be written", "m": "no memory", "n": "init returned an error", "p": "set_reader failed",
    "t": "reset returned an error",
}  # fmt: skip


@dataclass
class Item:
    """One compiled graph with its cases. outputs: what the C gave for each, and once more for the first after a reset.

    fault: why there are none, with its kind: "build", "sanitizer" or "run".
    """

    compiled: Compiled
    cases: Sequence[Sequence[Array]]
    outputs: list[tuple[Array, ...]] = field(default_factory=list)
    fault: tuple[str, str] | None = None

    @property
    def interface(self) -> Interface:
        """Of the package."""
        return interface_of(self.compiled)


class Builds:
    """Where batches are built. Objects of sources that batches share are kept, in `kept` if that is given."""

    def __init__(self, folder: Path, kept: Path | None = None) -> None:
        self.folder = folder
        self._traps: tuple[str, ...] = TRAPS
        self._kept = (kept or folder / "objects").resolve()
        self._kept.mkdir(parents=True, exist_ok=True)

    def run(self, items: Sequence[Item]) -> None:
        """Builds the items in one program and runs them; each gets its outputs or its fault. All have the same support."""
        if not items:
            return
        problem = self._build(items)
        if problem is not None:
            if len(items) == 1:
                items[0].fault = ("build", problem)
                return
            half = len(items) // 2
            self.run(items[:half])
            self.run(items[half:])
            return
        self._execute(items)

    def _build(self, items: Sequence[Item]) -> str | None:
        """What the compiler said where it failed."""
        unit, runtime = unit_of(items)
        for file, data in runtime.items():
            (self.folder / file).write_bytes(data)
        shared = self._shared(runtime)
        (self.folder / "batch.c").write_text(unit + _program(items))
        support = items[0].compiled.support("host")
        command = [
            *COMPILER,
            *self._traps,
            *WARNINGS,
            "-Wno-unused-function",
            "-Wno-cast-align",
            *DEFINES,
            "-I.",
            *self._objects(support),
        ]
        done = _called(
            [*command, f"-I{HARNESS.parent}", "batch.c", *shared, "-o", "batch", "-lm"], self.folder, BUILD_SECONDS
        )
        return (
            None if done.returncode == 0 else done.stderr.strip()[:3000] or f"the compiler ended with {done.returncode}"
        )

    def _shared(self, runtime: Mapping[str, bytes]) -> list[str]:
        """The harness and the runtime as objects."""
        key = hashlib.sha256(
            runtime["emitc_runtime.c"] + runtime["emitc_runtime.h"] + " ".join(self._traps).encode()
        ).hexdigest()[:12]
        objects = []
        for source in (HARNESS, self.folder / "emitc_runtime.c"):
            target = self._kept / f"{key}_{source.stem}.o"
            objects.append(str(target))
            if not target.exists():
                self._object(["-std=c11", *DEFINES, "-I.", str(source)], target)
        return objects

    def _objects(self, support: BuildSupport) -> list[str]:
        """Options of the backends, and their sources as objects, compiled once."""
        options = [*(f"-D{define}" for define in support.defines), *(f"-isystem{path}" for path in support.includes)]
        key = hashlib.sha256("\0".join([*self._traps, *options, *support.headers]).encode()).hexdigest()[:12]
        objects = []
        for source in support.sources:
            target = self._kept / f"{key}_{source.stem}.o"
            objects.append(str(target))
            if not target.exists():
                first = [text for header in support.headers for text in ("-include", header)]
                flags = ["-fno-sanitize=undefined", "-std=c11", "-w", "-ffp-contract=off", *options, *first]
                self._object([*flags, str(source)], target)
        return [*options, *objects]

    def _object(self, arguments: Sequence[str], target: Path) -> None:
        """Compiles one object, which other processes may want at the same time."""
        partial = target.with_suffix(f".{os.getpid()}")
        done = _called([*COMPILER, *self._traps, *arguments, "-c", "-o", str(partial)], self.folder, BUILD_SECONDS)
        if done.returncode:
            raise RuntimeError(done.stderr[:2000])
        partial.rename(target)

    def _execute(self, items: Sequence[Item]) -> None:
        places = _places(items)
        (self.folder / "inputs").write_bytes(joined_inputs(items))
        (self.folder / "outputs").write_bytes(bytes(places[-1][1]))
        (self.folder / "status").write_bytes(bytes(len(items)))
        first = 0
        while first < len(items):
            environment = {"ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1", "PATH": "/usr/bin:/bin"}
            done = _called(
                ["./batch", "inputs", "outputs", "status", str(first)], self.folder, RUN_SECONDS, environment
            )
            status = (self.folder / "status").read_bytes()
            stopped = next((i for i in range(first, len(items)) if status[i] == 0), len(items))
            if stopped < len(items):
                silent = self._traps and done.returncode == -signal.SIGILL
                items[stopped].fault = ("sanitizer", self._words(items[stopped]) if silent else _report(done))
            first = stopped + 1
        results = (self.folder / "outputs").read_bytes()
        for item, letter, (_, start) in zip(items, status.decode("latin1"), places, strict=False):
            if letter == "0":
                item.outputs = list(_read(item, results, start))
            elif item.fault is None:
                item.fault = ("run", _LETTERS.get(letter, letter))

    def _words(self, item: Item) -> str:
        """What the sanitizer says of a graph that stopped the program without a word."""
        alone = Item(item.compiled, item.cases)
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            speaking = Builds(Path(folder), self._kept)
            speaking._traps = ()
            speaking.run([alone])
        return alone.fault[1] if alone.fault else "undefined behaviour in the program of many graphs, not in its own"


def unit_of(items: Sequence[Item]) -> tuple[str, dict[str, bytes]]:
    """The C of all items as one translation unit, and the files that they share."""
    unit = Unit()
    runtime: dict[str, bytes] = {}
    for item in items:
        files = {n: data for n, data in item.compiled.files.items() if n.endswith((".h", ".c"))}
        name = item.compiled.program.name
        own = [file for file in files if not file.startswith("emitc_")]
        runtime |= {file: data for file, data in files.items() if file.startswith("emitc_")}
        ordered = sorted(own, key=lambda file: (file != f"{name}.h", not file.endswith(".h"), file))
        unit.add([files[file].decode() for file in ordered], frozenset(own))
    return unit.text(), runtime


def joined_inputs(items: Sequence[Item]) -> bytes:
    """The inputs of all cases of all items, as their models take them."""
    return b"".join(
        np.ascontiguousarray(value, dtype).tobytes()
        for item in items
        for case in item.cases
        for (dtype, _), value in zip(item.interface.inputs, case, strict=True)
    )


def rows_of(items: Sequence[Item]) -> tuple[list[str], str]:
    """The adapters of each model, and the table of the models, as harness.h has them."""
    rows = [_model(i, item, *place) for i, (item, place) in enumerate(zip(items, _places(items), strict=False))]
    table = "static const struct harness_model models[] = {\n" + ",\n".join(row for _, row in rows) + "\n};"
    return [adapters for adapters, _ in rows], table


def _called(
    command: Sequence[str], folder: Path, seconds: int, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command, cwd=folder, capture_output=True, text=True, errors="replace", timeout=seconds, check=False,
            env=environment, stdin=subprocess.DEVNULL, preexec_fn=_unlimited,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return subprocess.CompletedProcess(command, 124, "", f"stopped after {seconds} s")


def _unlimited() -> None:
    """The sanitizers reserve more addresses than a graph may have in this process."""
    resource.setrlimit(resource.RLIMIT_AS, (resource.getrlimit(resource.RLIMIT_AS)[1],) * 2)


def _report(done: subprocess.CompletedProcess[str]) -> str:
    """What a sanitizer said, in a few lines."""
    lines = [
        line.strip()
        for line in done.stderr.splitlines()
        if "ERROR" in line or "runtime error" in line or " in " in line
    ]
    return " / ".join(lines[:6]) or f"the program ended with {done.returncode}"


def _bytes(dtype: str, shape: tuple[int, ...]) -> int:
    return math.prod(shape) * np.dtype(dtype).itemsize


def _places(items: Sequence[Item]) -> list[tuple[int, int]]:
    """Where the cases of each item start in the inputs, and its outputs in the outputs; the ends of both files last."""
    read = written = 0
    places = []
    for item in items:
        places.append((read, written))
        read += sum(_bytes(*port) for port in item.interface.inputs) * len(item.cases)
        written += sum(_bytes(*port) for port in item.interface.outputs) * (len(item.cases) + 1)
    return [*places, (read, written)]


def _read(item: Item, data: bytes, start: int) -> Iterator[tuple[Array, ...]]:
    for _ in range(len(item.cases) + 1):
        arrays = []
        for dtype, shape in item.interface.outputs:
            size = _bytes(dtype, shape)
            arrays.append(np.frombuffer(data[start : start + size], dtype).reshape(shape))
            start += size
        yield tuple(arrays)


def _program(items: Sequence[Item]) -> str:
    """The harness, what it calls for each model, and the table of the models."""
    parts = ['#include "harness.h"']
    parts += [host_dma.SOURCE] if any(item.interface.loads_ahead for item in items) else []
    adapters, table = rows_of(items)
    parts += [*adapters, table]
    parts.append(
        f"int main(int argc, char **argv)\n{{\n    return harness_run(models, {len(items)}, argc, argv);\n}}\n"
    )
    return "\n".join(parts)


def _model(i: int, item: Item, read_at: int, write_at: int) -> tuple[str, str]:
    """Adapters of one model, and its row of the table."""
    face, name = item.interface, item.compiled.program.name
    manifest = json.loads(item.compiled.files["manifest.json"])
    spans = alive_spans(manifest, face)
    counts = [layer["outputs"] for layer in manifest["trace"]]
    kind = f"{name}_t"
    file = f", weights{i}, sizeof weights{i}" if face.weights else ""
    if face.regions:
        fields = " ".join(
            f"given.{r.lower()} = arenas[{k}]; given.{r.lower()}_bytes = {size};"
            for k, (r, size) in enumerate(face.regions)
        )
        init = f"{name}_arenas_t given; {fields} return {name}_init(({kind} *)self, &given, state, {face.state_bytes}{file});"
    else:
        init = f"return {name}_init(({kind} *)self, arenas[0], {face.arena_bytes}, state, {face.state_bytes}{file});"
    if face.loads_ahead:
        functions = f"({kind} *)self, host_dma_load, host_dma_wait, NULL"
        init = init.replace("return ", "const emitc_status ready = ")
        init += f" return ready == EMITC_OK ? {name}_set_weights_loader({functions}) : ready;"
    ins = "".join(
        f"case {k}: return {name}_input_{k}(({kind} *)self); "
        for k in range(0 if face.reads_rows else len(face.inputs))
    )
    outs = "".join(f"case {k}: return {name}_output_{k}((const {kind} *)self); " for k in range(len(face.outputs)))
    sizes = {"in": [_bytes(*p) for p in face.inputs], "out": [_bytes(*p) for p in face.outputs]}
    weights = [f"static _Alignas(16) const unsigned char weights{i}[] = {{ {_list(face.weights)} }};"] if file else []
    adapters = [
        *weights,
        f"static emitc_status init{i}(void *self, void **arenas, void *state) {{ {init} }}",
        f"static emitc_status run{i}(void *self) {{ {_inference(face, kind)} }}",
        f"static emitc_status reset{i}(void *self) {{ return {name}_reset(({kind} *)self); }}",
        f"static void *in{i}(void *self, unsigned k) {{ (void)self; switch (k) {{ {ins}default: return NULL; }} }}",
        f"static const void *out{i}(void *self, unsigned k) {{ (void)self; switch (k) {{ {outs}default: return NULL; }} }}",
        f"static const size_t in_bytes{i}[] = {{ {_list([*sizes['in'], 0])} }};",
        f"static const size_t out_bytes{i}[] = {{ {_list([*sizes['out'], 0])} }};",
        f"static const unsigned layers{i}[] = {{ {_list([*counts, 0])} }};",
        f"static const struct harness_span alive{i}[] = {{ "
        + ", ".join(f"{{ {s['layer']}, {s['arena']}, {s['offset']}, {s['bytes']} }}" for s in [*spans, _NOTHING])
        + " };",
    ]
    reader, row_bytes = "NULL", "0"
    if face.reads_rows:
        adapters.append(
            f"static emitc_status reader{i}(void *self, emitc_status (*read)(void *, uint32_t, void *, size_t), void *context) "
            f"{{ return {name}_set_reader(({kind} *)self, read, context); }}"
        )
        reader, row_bytes = f"reader{i}", f"{name.upper()}_INPUT_0_ROW_BYTES"
    arenas = _list([size for _, size in face.arenas])
    row = (
        f"    {{ sizeof({kind}), {max(face.alignment, 16)}, {len(face.arenas)}, {{ {arenas} }}, {face.state_bytes}, "
        f"{len(counts)}, layers{i}, alive{i}, {len(spans)}, {len(face.inputs)}, in_bytes{i}, {len(face.outputs)}, out_bytes{i}, "
        f"init{i}, run{i}, reset{i}, in{i}, out{i}, {reader}, {row_bytes}, {len(item.cases)}, {read_at}, {write_at} }}"
    )
    return "\n".join(adapters), row


def _inference(face: Interface, kind: str) -> str:
    """The statements of one inference: in steps where the model has functions for that.

    One that ends while a copy of weights is under way gives another status.
    """
    name = face.name
    if face.loads_ahead:
        inner = _inference(replace(face, loads_ahead=False), kind).replace("return ", "end = ")
        return f"emitc_status end; {inner} return host_dma_left() == 0u ? end : EMITC_BACKEND_FAILED;"
    if not face.steps:
        return f"return {name}_run(({kind} *)self);"
    return (
        f"emitc_status status = {name}_begin(({kind} *)self); "
        f"if (status == EMITC_OK) {{ do {{ status = {name}_step(({kind} *)self); }} while (status == EMITC_MORE); }} "
        "return status;"
    )


_NOTHING = {"layer": 0, "arena": 0, "offset": 0, "bytes": 0}


def _list(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers))

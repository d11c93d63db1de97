"""An emitted package, exactly as written, to a shared library on the host, driven through cffi and its public header.

The arena lies between guard bytes and is filled with a pattern before use, so that the bytes a run touches can be told. So
does the state block.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import cffi
import numpy as np

from emitc.backends.contract import HostHook
from emitc.emit.package_kinds.languages import FOLDER
from emitc.errors import CannotCompile, EmitcError, Where
from emitc.ir import Array
from emitc.program import arena_variable
from emitc.program.weights import ALIGNMENT as WEIGHTS_ALIGN
from emitc.records import dataclass
from emitc.target import BuildSupport
from emitc.verify import host_dma

WARNINGS = (
    *("-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wsign-conversion", "-Wshadow", "-Wcast-qual"),
    *("-Wundef", "-Wmissing-prototypes", "-Wdouble-promotion", "-Wvla", "-Werror", "-ffp-contract=off"),
)
SANITIZE = ("-g1", "-Og", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer")
GUARD_BYTES = 256
MORE = 9
"""EMITC_MORE of the runtime."""
COMPILERS = ("cc", "gcc", "clang")
"""Programs that are looked for where CC names none."""
_NO_ROOM = re.compile(r"No space left on device|Disk quota exceeded")

_HOOK = """
#include "emitc_runtime.h"
typedef void (*hook_function)(uint32_t index, const void *output, size_t output_bytes);
void host_set_hook(hook_function function);
static hook_function current;
void host_set_hook(hook_function function)
{
    current = function;
}
void emitc_layer_hook(const char *model, uint32_t index, const void *output, size_t output_bytes)
{
    (void)model;
    if (current != NULL) {
        current(index, output, output_bytes);
    }
}
"""


@dataclass(frozen=True, slots=True)
class Interface:
    """What the caller must know of a package: its C name, its memory, and dtype and shape of inputs and outputs.

    regions: where the package has an arena in each of several, their names and the bytes of the arenas; arena_bytes is the sum.
    reads_rows: the model reads its only input row by row. self_test: it can test itself. steps: it has functions that run one
    inference in steps, and the instance then keeps `kept` numbers. weights: the file that its init takes, empty where it takes
    none. loads_ahead: the application copies weights while layers run.
    """

    name: str
    arena_bytes: int
    alignment: int
    inputs: tuple[tuple[str, tuple[int, ...]], ...]
    outputs: tuple[tuple[str, tuple[int, ...]], ...]
    state_bytes: int = 0
    regions: tuple[tuple[str, int], ...] = ()
    reads_rows: bool = False
    self_test: bool = False
    steps: bool = False
    kept: int = 0
    weights: bytes = b""
    loads_ahead: bool = False

    @property
    def arenas(self) -> tuple[tuple[str, int], ...]:
        """Region, "" where there is only one arena, and bytes of every arena."""
        return self.regions or (("", self.arena_bytes),)


def _wrong_cc(what: str, why: str, hint: str = "set CC to a compiler, or unset it") -> EmitcError:
    return EmitcError(what, Where(option="CC"), why, hint)


def compiler_command() -> list[str]:
    """The host's C compiler as program and arguments: $CC, read as a shell reads it, or the first of cc, gcc and clang.

    Raises EmitcError for a CC that names no program, CannotCompile when there is none at all.
    """
    chosen = os.environ.get("CC", "").strip()
    if chosen:
        try:
            command = shlex.split(chosen)
        except ValueError as error:
            raise _wrong_cc(f"CC={chosen} names no C compiler", str(error)) from error
        if not command or shutil.which(command[0]) is None:
            raise _wrong_cc(f"CC={chosen} names no C compiler", f"there is no program {(command or [chosen])[0]}")
        return command
    for name in COMPILERS:
        if shutil.which(name):
            return [name]
    why = "the host proof compiles the package"
    raise CannotCompile("there is no C compiler on this machine", Where(option="CC"), why, "install gcc or clang")


def captured(command: Sequence[str], **settings: Any) -> subprocess.CompletedProcess[str]:
    """A command that has run, with what it printed as text. settings: further arguments of subprocess.run."""
    return subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, **settings)


def _first_error(printed: str) -> str:
    """What a compiler or linker printed, from its first error on and at most 1500 characters."""
    at = re.search(r"(?m)^.*\berror: ", printed)
    return printed.strip()[-1500:] if at is None else printed[at.start() :].strip()[:1500]


def run_compiler(arguments: Sequence[str]) -> None:
    """Runs the host compiler. Raises CannotCompile when it fails or does not write its output, EmitcError for a full disk."""
    command = compiler_command()
    done = captured([*command, *arguments], env=os.environ | {"LC_ALL": "C"})
    if done.returncode and _NO_ROOM.search(done.stderr):
        why = next(line.strip() for line in done.stderr.splitlines() if _NO_ROOM.search(line))
        hint = f"make room; temporary files are in {tempfile.gettempdir()}, or where TMPDIR says"
        raise EmitcError("there is no room for the host build", Where(option=tempfile.gettempdir()), why, hint)
    if done.returncode:
        raise CannotCompile(
            "the host compiler refused the package",
            Where(option=command[0]),
            _first_error(done.stderr) or f"it ended with exit code {done.returncode} and printed nothing",
            "this is a bug of emitc if CC is a C compiler and the package is unchanged: please report it with the model",
        )
    output = arguments[arguments.index("-o") + 1] if "-o" in arguments else ""
    if output and not Path(output).exists():
        raise _wrong_cc(f"CC={shlex.join(command)} is no C compiler", "it ended without an error and wrote no file")


def sources(package: Path) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """The C files of a package and its include directories, whatever its layout.

    Where the model is wrapped for another language, its C has a folder of its own, and other C is for that language.
    """
    inner = package / FOLDER
    places = (inner,) if inner.is_dir() else (package, package / "src", package / "include")
    folders = [folder for folder in places if folder.is_dir()]
    files = sorted(path for folder in folders for path in folder.glob("*.c"))
    return tuple(files), tuple(folders)


def build_support(support: BuildSupport, workdir: Path, flags: Sequence[str] = ("-O2",)) -> list[str]:
    """What a package is compiled with for its backends' sake: options, and the backends' own files as objects in `workdir`.

    Other people's sources are compiled without emitc's warnings. flags: further options for them.
    """
    folder = workdir / "support"
    options = [*(f"-D{define}" for define in support.defines), *(f"-isystem{path}" for path in support.includes)]
    if not support.sources:
        return options
    folder.mkdir(exist_ok=True)
    objects = []
    for number, source in enumerate(support.sources):
        target = folder / f"{number}_{source.stem}.o"
        objects.append(str(target))
        if not target.exists():
            first = [text for header in support.headers for text in ("-include", header)]
            arguments = ["-std=c11", "-w", "-fPIC", "-ffp-contract=off", *flags, *options, *first]
            run_compiler([*arguments, "-c", str(source), "-o", str(target)])
    return [*options, *objects]


def build_shared(package: Path, workdir: Path, *, trace: bool, support: BuildSupport | None = None) -> Path:
    """The package as a shared library in `workdir`, compiled with emitc's warning flags; with the layer hook, also for
    every row of layers that run row by row, if `trace`.

    support: what the package's backends need.
    """
    files, includes = sources(package)
    library = workdir / ("traced.so" if trace else "plain.so")
    arguments = [*WARNINGS, "-O2", "-shared", "-fPIC", *(f"-I{folder}" for folder in includes)]
    if support is not None:
        arguments += ["-DEMITC_NO_TARGET_CHECK", *build_support(support, workdir)]
    if trace:
        hook = workdir / "host_hook.c"
        hook.write_text(_HOOK, encoding="ascii")
        arguments += ["-DEMITC_TRACE", "-DEMITC_TRACE_ROWS", str(hook)]
    if any((folder / host_dma.HEADER).exists() for folder in includes):
        dma = workdir / "host_dma.c"
        dma.write_text(host_dma.SOURCE, encoding="ascii")
        arguments.append(str(dma))
    run_compiler([*arguments, *map(str, files), "-o", str(library), "-lm"])
    return library


_READ = "void *, uint32_t, void *, size_t"
_READER = f"int (*read)({_READ}); void *context; "


def _declarations(interface: Interface) -> str:
    c_types = {"float32": "float", "float64": "double", "bool": "uint8_t"}
    name = interface.name
    arenas = "".join(f"unsigned char *{arena_variable(region)}; " for region, _ in interface.arenas)
    regions = "".join(f"void *{region.lower()}; size_t {region.lower()}_bytes; " for region, _ in interface.regions)
    taken = f"const {name}_arenas_t *arenas" if interface.regions else "void *arena, size_t arena_bytes"
    test = "void *test; " if interface.self_test else ""
    more = ", const void *weights, size_t weights_bytes" if interface.weights else ""
    # The last two are there where weights are copied; an instance may be larger than the package's.
    weights = "const void *weights, *load, *load_context; " if interface.weights else ""
    weights += "const void *start, *wait, *loader; " if interface.loads_ahead else ""
    lines = [
        *([f"typedef struct {{ {regions}}} {name}_arenas_t;"] if interface.regions else []),
        f"typedef struct {{ {arenas}void *state; {_READER if interface.reads_rows else ''}{test}{weights}uint32_t ready;"
        f"{' uint32_t step; int32_t row;' if interface.steps else ''}"
        f"{f' int32_t kept[{interface.kept}];' if interface.kept else ''} }} {name}_t;",
        f"int {name}_init({name}_t *self, {taken}, void *state, size_t state_bytes{more});",
        f"int {name}_run({name}_t *self);",
        f"int {name}_reset({name}_t *self);",
    ]
    if interface.steps:
        lines += [f"int {name}_{what}({name}_t *self);" for what in ("begin", "step", "cancel")]
    if interface.loads_ahead:
        lines.append(host_dma.declarations(name))
    if interface.reads_rows:
        lines.append(f"int {name}_set_reader({name}_t *self, int (*read)({_READ}), void *context);")
    for side, const, ports in (("input", "", interface.inputs), ("output", "const ", interface.outputs)):
        for i, (dtype, _) in enumerate(() if side == "input" and interface.reads_rows else ports):
            lines.append(f"{const}{c_types.get(dtype, f'{dtype}_t')} *{name}_{side}_{i}({const}{name}_t *self);")
    return "\n".join(lines)


class MemoryFault(RuntimeError):
    """The generated code wrote outside its arena or its state block."""


LayerHook = Callable[[int, int, bytes], None]
"""Called with the operator's index, the output's offset in the arena (bytes; outside of it for what lies elsewhere) and its
bytes. Several arenas count one after another.
"""


class _Block:
    """Memory for the model between guard bytes; `what` names it in a fault."""

    def __init__(self, what: str, size_bytes: int, alignment: int) -> None:
        self.what = what
        self._memory = np.zeros(size_bytes + 2 * GUARD_BYTES + alignment, np.uint8)
        base = self._memory.ctypes.data
        self._start = GUARD_BYTES + (-(base + GUARD_BYTES)) % alignment
        self.address = base + self._start
        self.bytes: Array = self._memory[self._start : self._start + size_bytes]
        self.fill(0xA5)

    def fill(self, pattern: int) -> None:
        """Sets every byte to `pattern` and every guard byte to its complement."""
        self.pattern = pattern
        self._memory[:] = pattern ^ 0xFF
        self.bytes[:] = pattern

    def check_guards(self, name: str) -> None:
        """Raises MemoryFault when a byte outside was written."""
        end = self._start + len(self.bytes)
        outside = np.concatenate([self._memory[: self._start], self._memory[end:]])
        stray = np.flatnonzero(outside != self.pattern ^ 0xFF)
        if stray.size:
            position = int(stray[0]) if stray[0] < self._start else int(stray[0]) - self._start + end
            place = f"{position - self._start} of {self.what} of {len(self.bytes)} bytes"
            raise MemoryFault(f"{name}_run wrote byte {place}")

    def touched_bytes(self) -> int:
        """Bytes from the start to the last one that differs from what `fill` wrote, guard bytes included."""
        after = np.flatnonzero(self._memory[self._start + len(self.bytes) :] != self.pattern ^ 0xFF)
        if after.size:
            return len(self.bytes) + int(after[-1]) + 1
        changed = np.flatnonzero(self.bytes != self.pattern)
        return int(changed[-1]) + 1 if changed.size else 0


class HostModel:
    """One instance of a compiled model on the host. hooks: functions of this process that the library calls.

    sharing: another instance of the model, whose arena this one uses too, with a state block of its own.
    Raises RuntimeError when the generated code returns an error, MemoryFault when it writes outside its memory.
    """

    def __init__(
        self, library: Path, interface: Interface, hooks: Sequence[HostHook] = (), sharing: HostModel | None = None
    ) -> None:
        self.interface = interface
        self._ffi = cffi.FFI()
        declared = [_declarations(interface), "void host_set_hook(void (*function)(uint32_t, const void *, size_t));"]
        self._ffi.cdef("\n".join([*declared, *(hook.declaration for hook in hooks)]))
        try:
            self._lib: Any = self._ffi.dlopen(str(library))
        except OSError as error:
            hint = "set CC to a compiler for this machine, or unset it"
            raise _wrong_cc("this machine cannot load what the host compiler built", str(error), hint) from error
        self._hooks = [self._ffi.callback(hook.signature, hook.function, error=-1) for hook in hooks]
        for hook, callback in zip(hooks, self._hooks, strict=True):
            getattr(self._lib, hook.register)(callback)
        own = (
            _Block(f"the arena in {region}" if region else "an arena", size, interface.alignment)
            for region, size in interface.arenas
        )
        self._arenas: tuple[_Block, ...] = sharing._arenas if sharing else tuple(own)
        self._state = _Block("a state block", interface.state_bytes, interface.alignment)
        self._self = self._ffi.new(f"{interface.name}_t *")
        self._callback: Any = None
        state = self._ffi.cast("void *", self._state.address) if interface.state_bytes else self._ffi.NULL
        memory: list[Any] = [self._ffi.cast("void *", self._arenas[0].address), interface.arena_bytes]
        if interface.regions:
            memory = [self._ffi.new(f"{interface.name}_arenas_t *")]
            for (region, size), block in zip(interface.regions, self._arenas, strict=True):
                address = self._ffi.cast("void *", block.address) if size else self._ffi.NULL
                setattr(memory[0], region.lower(), address)
                setattr(memory[0], f"{region.lower()}_bytes", size)
        self._weights = _Block("the weights", len(interface.weights), WEIGHTS_ALIGN)
        self._weights.bytes[:] = np.frombuffer(interface.weights, np.uint8)
        weights = self._ffi.cast("void *", self._weights.address)
        more = (weights, len(interface.weights)) if interface.weights else ()
        self._call("init", *memory, state, interface.state_bytes, *more)
        if interface.loads_ahead:
            self._call("set_weights_loader", self._lib.host_dma_load, self._lib.host_dma_wait, self._ffi.NULL)
        if interface.reads_rows:
            self._pulled, self.rows_asked = b"", 0
            self._reader = self._ffi.callback(f"int({_READ})", self._give_row, error=-1)
            self._call("set_reader", self._reader, self._ffi.NULL)

    def _give_row(self, _: Any, row: int, to: Any, row_bytes: int) -> int:
        """One row of the input; refused unless it is the next one, and there."""
        data = self._pulled[row * row_bytes : (row + 1) * row_bytes]
        if row != self.rows_asked or len(data) != row_bytes:
            return -1
        self._ffi.memmove(to, data, row_bytes)
        self.rows_asked += 1
        return 0

    def _function(self, what: str) -> Any:
        return getattr(self._lib, f"{self.interface.name}_{what}")

    def _call(self, what: str, *arguments: Any, also: int = 0) -> int:
        """One of the public functions on this instance. Raises RuntimeError for a status that is neither OK nor `also`."""
        status: int = self._function(what)(self._self, *arguments)
        if status not in (0, also):
            raise RuntimeError(f"{self.interface.name}_{what} returned status {status}")
        return status

    @property
    def arena(self) -> Array:
        """The arena's bytes, as a view; a copy for several arenas, one after another."""
        if len(self._arenas) == 1:
            return self._arenas[0].bytes
        return np.concatenate([block.bytes for block in self._arenas])

    @property
    def state(self) -> Array:
        return self._state.bytes

    def reset(self) -> None:
        self._call("reset")

    def fill(self, pattern: int) -> None:
        """Sets every byte of the arena to `pattern` and every guard byte to its complement; the state stays."""
        for block in self._arenas:
            block.fill(pattern)

    def check_guards(self) -> None:
        """Raises MemoryFault when a byte outside the arena and the state block was written."""
        for block in (*self._arenas, self._state):
            block.check_guards(self.interface.name)

    def touched_bytes(self) -> tuple[int, ...]:
        """For each arena, bytes from its start to the last one that differs from what `fill` wrote, guard bytes included."""
        return tuple(block.touched_bytes() for block in self._arenas)

    def _offset(self, address: int) -> int:
        """The offset of an address, the arenas counted one after another; -1 for an address in none of them."""
        start = 0
        for block in self._arenas:
            if 0 <= address - block.address < len(block.bytes):
                return start + address - block.address
            start += len(block.bytes)
        return -1

    def set_hook(self, hook: LayerHook) -> None:
        """Has `hook` called after each layer; only in a library that was built with trace."""

        def call(index: int, output: Any, size: int) -> None:
            offset = self._offset(int(self._ffi.cast("uintptr_t", output)))
            hook(index, offset, bytes(self._ffi.buffer(output, size)))

        self._callback = self._ffi.callback("void(uint32_t, const void *, size_t)", call)
        self._lib.host_set_hook(self._callback)

    def write_inputs(self, inputs: Sequence[Array]) -> None:
        """Writes the inputs into the arena; has one ready whose rows the model reads one by one.

        Raises ValueError for a shape that does not fit.
        """
        for i, ((dtype, shape), value) in enumerate(zip(self.interface.inputs, inputs, strict=True)):
            data = np.array(value, dtype=dtype, order="C")
            if data.shape != shape:
                raise ValueError(f"input {i} has shape {data.shape}, {shape} is expected")
            if self.interface.reads_rows:
                self._pulled = data.tobytes()
                continue
            self._ffi.memmove(self._function(f"input_{i}")(self._self), data.tobytes(), data.nbytes)

    def invoke(self) -> list[Array]:
        """One inference on the inputs that are there; copies of the outputs. The guards are not checked.

        Where the model runs in steps too, it does so first, unless there is a hook, which is to see each layer once. Raises
        MemoryFault for outputs or state of other bits.
        """
        stepped = self._stepped() if self.interface.steps and self._callback is None else None
        self.rows_asked = 0
        self._call("run")
        if self.interface.loads_ahead and self._lib.host_dma_left():
            raise MemoryFault(f"{self.interface.name}_run ended before the last copy of weights was made")
        outputs = self._outputs()
        if stepped is not None and stepped != [*(output.tobytes() for output in outputs), self.state.tobytes()]:
            raise MemoryFault(f"{self.interface.name}_step gave other bits than {self.interface.name}_run")
        return outputs

    def _stepped(self) -> list[bytes]:
        """The outputs and the state of the inference in steps. Leaves the inputs and the state as they were before."""
        blocks = (*self._arenas, self._state)
        before = [block.bytes.copy() for block in blocks]
        self.rows_asked = 0
        self.begin()
        while self.step():
            pass
        results = [*(output.tobytes() for output in self._outputs()), self.state.tobytes()]
        for block, content in zip(blocks, before, strict=True):
            block.bytes[:] = content
        return results

    def begin(self) -> None:
        self._call("begin")

    def step(self) -> bool:
        """The next step; whether there are further ones."""
        return self._call("step", also=MORE) == MORE

    def cancel(self) -> None:
        self._call("cancel")

    def _outputs(self) -> list[Array]:
        outputs = []
        for i, (dtype, shape) in enumerate(self.interface.outputs):
            size = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
            raw = bytes(self._ffi.buffer(self._function(f"output_{i}")(self._self), size))
            outputs.append(np.frombuffer(raw, dtype).reshape(shape).copy())
        return outputs

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        """One inference: writes the inputs, runs, checks the guards, returns copies of the outputs. State lasts."""
        self.write_inputs(inputs)
        outputs = self.invoke()
        self.check_guards()
        return outputs

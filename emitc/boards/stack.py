"""The stack that a package needs, from the call graph that gcc writes while it compiles the package for its target."""

import re
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from emitc.boards.library_stack import library_frames
from emitc.compiled import Compiled, with_stack
from emitc.emit.stack import StackBound
from emitc.errors import CannotCompile, EmitcError, Where
from emitc.target import BuildSupport, load_target
from emitc.verify.build import captured, sources

_NODE = re.compile(r'^node: \{ title: "([^"]+)" label: "([^"]+)"', re.MULTILINE)
_EDGE = re.compile(r'^edge: \{ sourcename: "([^"]+)" targetname: "([^"]+)"', re.MULTILINE)
_FRAME = re.compile(r"(\d+) bytes \((\w+(?:,\w+)?)\)")
_SECTIONS = ("-ffunction-sections", "-fdata-sections")
"""What builds of firmware usually have, and what changes some frames."""
_POINTER = "__indirect_call"
_WHERE = Where(option="--stack")
_LIBRARY = {"riscv64-unknown-elf-": ("--specs=picolibc.specs",)}
"""Options that have a compiler find its C library's headers."""


@dataclass(frozen=True, slots=True)
class CallGraph:
    """Functions with the bytes of their frames, and the functions that each calls. Those without a frame are of libraries."""

    frames: dict[str, int] = field(default_factory=dict)
    calls: dict[str, set[str]] = field(default_factory=dict)

    def add(self, text: str) -> None:
        """Adds what gcc has written for one source. Raises CannotCompile for a frame whose size is not constant."""
        for name, label in _NODE.findall(text):
            frame = _FRAME.search(label)
            if frame is None:
                continue
            if frame[2] != "static":
                hint = "please report it with the model"
                raise CannotCompile(f"the stack of {name} has no bound", _WHERE, f"its frame is {frame[2]}", hint)
            self.frames[name] = int(frame[1])
        for caller, called in _EDGE.findall(text):
            self.calls.setdefault(caller, set()).add(called)

    def deepest(self, roots: Iterable[str]) -> int:
        """The most bytes that frames take at once from one of the roots on. Raises CannotCompile for one that calls itself."""
        depths: dict[str, int] = {}
        under_way: list[str] = []

        def below(name: str) -> int:
            if name in under_way:
                round_trip = " -> ".join([*under_way[under_way.index(name) :], name])
                raise CannotCompile("the stack has no bound", _WHERE, round_trip, "please report it with the model")
            if name not in depths:
                under_way.append(name)
                deepest = max((below(called) for called in sorted(self.calls.get(name, ()))), default=0)
                depths[name] = self.frames.get(name, 0) + deepest
                under_way.pop()
            return depths[name]

        return max((below(root) for root in roots), default=0)

    def understood(self, name: str, above: tuple[str, ...] = ()) -> bool:
        """Whether the frames of a function, and of all below it, are known, and none of them calls itself."""
        inner = (self.understood(callee, (*above, name)) for callee in self.calls.get(name, ()))
        return name in self.frames and name not in above and all(inner)


def measured(compiled: Compiled) -> Compiled:
    """The same package with its stack in header and manifest, as the target's own compiler finds it.

    Raises EmitcError where the target is no core, CannotCompile where its compiler is missing or finds no bound.
    """
    target = load_target(compiled.program.origin.target)
    if not target.compiler_prefix:
        why = "how much stack a function takes depends on the core"
        hint = "add --target or --board, such as --target cortex-m4f (`emitc targets`)"
        raise EmitcError(f"{target.name} is no core whose stack is known", _WHERE, why, hint)
    if target.compiler_command:
        why = f"{target.compiler_command} compiles for {target.title}, and only GCC writes the calls and frames of a package"
        hint = "leave --stack out; `emitc run` measures the stack"
        raise EmitcError(f"the stack on {target.name} is not known", _WHERE, why, hint)
    gcc = f"{target.compiler_prefix}gcc"
    if shutil.which(gcc) is None:
        raise CannotCompile(
            f"{gcc} is not installed", _WHERE, f"it compiles for {target.title}", "install it, or leave --stack out"
        )
    level = {"speed": "-O2", "size": "-Os"}[compiled.options.optimize]
    flags = (*target.compiler_flags, "-std=c11", level, *_SECTIONS)
    with tempfile.TemporaryDirectory(prefix="emitc-stack-") as work:
        compiled.write(Path(work) / "package")
        build = _Build(target.compiler_prefix, flags, Path(work), compiled.support(target.name))
        own, called = build.call_graph(), build.needed()
        library, unknown = build.library_depth(called)
        version = build.output("gcc", "-dumpfullversion").strip()
    if any(_POINTER in call for call in own.calls.values()):
        unknown.append("what is called by its address")
    public = [name for name in own.frames if name.startswith(f"{compiled.program.name}_")]
    bound = StackBound(own.deepest(public) + library, library, f"{gcc} {version}", flags, tuple(unknown))
    return with_stack(compiled, bound)


@dataclass(frozen=True, slots=True)
class _Build:
    """A package below `work`, compiled for a target. prefix: of its tools. support: what the package's backends need."""

    prefix: str
    flags: tuple[str, ...]
    work: Path
    support: BuildSupport

    def call_graph(self) -> CallGraph:
        """Compiles all sources; what gcc says of their functions."""
        files, folders = sources(self.work / "package")
        options = [
            *self._own(),
            *(f"-D{define}" for define in self.support.defines),
            *(f"-I{folder}" for folder in folders),
        ]
        options += [f"-isystem{path}" for path in self.support.includes]
        for number, source in enumerate((*files, *self.support.sources)):
            first = [] if source in files else [text for name in self.support.headers for text in ("-include", name)]
            written = ["-w", "-fcallgraph-info=su", "-c", str(source), "-o", f"{number}_{source.stem}.o"]
            self.output("gcc", *options, *first, *written)
        graph = CallGraph()
        for path in sorted(self.work.glob("*.ci")):
            graph.add(path.read_text(encoding="utf-8", errors="replace"))
        return graph

    def needed(self) -> list[str]:
        """Symbols that the objects need from libraries, sorted."""
        listing = self.output("nm", *self._objects())
        defined = set(re.findall(r"^[0-9a-f]+ [A-TV-Z] (\S+)$", listing, re.MULTILINE))
        return sorted(set(re.findall(r"^ +U (\S+)$", listing, re.MULTILINE)) - defined)

    def library_depth(self, names: list[str]) -> tuple[int, list[str]]:
        """The most bytes below any of these functions of the C library and the compiler's; the names of those not understood."""
        link = ["-nostdlib", "-Wl,-e,0", "-Wl,--no-gc-sections", "-Wl,--unresolved-symbols=ignore-all", "-o", "linked"]
        memory_sizes = [
            "-Wl,--defsym=__flash_size=0x8000000",
            "-Wl,--defsym=__ram_size=0x8000000",
        ]  # of picolibc's linker script
        libraries = ["-Wl,--start-group", "-lc", "-lm", "-lgcc", "-Wl,--end-group"]
        self.output("gcc", *self._own(), *link, *memory_sizes, *self._objects(), *libraries)
        frames, calls = library_frames(self.output("objdump", "-d", "--no-show-raw-insn", "linked"))
        symbols = re.findall(r"^([0-9a-f]+) [TtWw] (\S+)$", self.output("nm", "linked"), re.MULTILINE)
        # A function of several names is listed under one of them.
        listed = {address: name for address, name in symbols if name in frames}
        at = {name: listed[address] for address, name in symbols if address in listed}
        graph, deepest, unknown = CallGraph(frames, calls), 0, []
        for name in names:
            if graph.understood(at.get(name, name)):
                deepest = max(deepest, graph.deepest([at.get(name, name)]))
            else:
                unknown.append(name)
        return deepest, unknown

    def _own(self) -> list[str]:
        return [*self.flags, *_LIBRARY.get(self.prefix, ())]

    def _objects(self) -> list[str]:
        return sorted(path.name for path in self.work.glob("*.o"))

    def output(self, tool: str, *arguments: str) -> str:
        """What a tool prints. Raises CannotCompile with its messages where it fails."""
        command = [self.prefix + tool, *arguments]
        done = captured(command, cwd=self.work)
        if done.returncode:
            hint = "install the core's compiler, gcc 10 or later, with its C library"
            raise CannotCompile(f"{command[0]} refused the package", _WHERE, done.stderr.strip()[-1500:], hint)
        return done.stdout

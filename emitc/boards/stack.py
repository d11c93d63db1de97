"""The stack that a package needs, from the call graph that gcc writes while it compiles the package for its target."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from emitc.boards.library_stack import library_frames
from emitc.boards.target_build import TargetBuild, target_build
from emitc.compiled import Compiled, with_stack
from emitc.emit.stack import StackBound
from emitc.errors import CannotCompile, Where

_NODE = re.compile(r'^node: \{ title: "([^"]+)" label: "([^"]+)"', re.MULTILINE)
_EDGE = re.compile(r'^edge: \{ sourcename: "([^"]+)" targetname: "([^"]+)"', re.MULTILINE)
_FRAME = re.compile(r"(\d+) bytes \((\w+(?:,\w+)?)\)")
_POINTER = "__indirect_call"
_WHERE = Where(option="--stack")


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
    with target_build(compiled, "--stack", "stack") as build:
        own = CallGraph()
        for path in sorted(build.work.glob("*.ci")):
            own.add(path.read_text(encoding="utf-8", errors="replace"))
        library, unknown = _library_depth(build)
        version = build.version()
    if any(_POINTER in call for call in own.calls.values()):
        unknown.append("what is called by its address")
    public = [name for name in own.frames if name.startswith(f"{compiled.program.name}_")]
    bound = StackBound(own.deepest(public) + library, library, version, build.flags, tuple(unknown))
    return with_stack(compiled, bound)


def _library_depth(build: TargetBuild) -> tuple[int, list[str]]:
    """The most bytes below any function that the package needs of the C library and the compiler's; names not understood."""
    build.link_whole()
    frames, calls = library_frames(build.output("objdump", "-d", "--no-show-raw-insn", "linked"))
    symbols = re.findall(r"^([0-9a-f]+) [TtWw] (\S+)$", build.output("nm", "linked"), re.MULTILINE)
    # A function of several names is listed under one of them.
    listed = {address: name for address, name in symbols if name in frames}
    at = {name: listed[address] for address, name in symbols if address in listed}
    graph, deepest, unknown = CallGraph(frames, calls), 0, []
    for name in build.needed():
        if graph.understood(at.get(name, name)):
            deepest = max(deepest, graph.deepest([at.get(name, name)]))
        else:
            unknown.append(name)
    return deepest, unknown

"""The stack that a package needs, from the call graph that gcc writes while it compiles the package for its target.

That of functions of the C library and of the compiler's is read from their instructions: Arm Thumb and RISC-V.
"""

import re
from collections.abc import Iterable

from emitc.boards.cycle_model import registers
from emitc.boards.target_build import TargetBuild, target_build
from emitc.compiled import Compiled, with_stack
from emitc.emit.facts import StackBound
from emitc.errors import CannotCompile, Where
from emitc.records import dataclass, field

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


_FUNCTION = re.compile(r"^[0-9a-f]+ <([^>]+)>:$")
_LINE = re.compile(r"^ *[0-9a-f]+:\t(\S+)(?:\t(.*))?$")
_TAKEN = {
    "sub": re.compile(r"^sp, (?:sp, )?#(\d+)"),
    "subw": re.compile(r"^sp, (?:sp, )?#(\d+)"),
    "str": re.compile(r"\[sp, #-(\d+)\]!$"),
    "strd": re.compile(r"\[sp, #-(\d+)\]!$"),
    "addi": re.compile(r"^sp,sp,-(\d+)$"),
    "add": re.compile(r"^sp,sp,-(\d+)$"),
}
"""By mnemonic: the bytes in an instruction's operands."""
_TARGET = re.compile(r"<([^>+]+)(?:\+0x[0-9a-f]+)?>")
_JUMPS = re.compile(
    r"^(?:b|bl|blx|b(?:eq|ne|cs|cc|mi|pl|vs|vc|hi|ls|ge|lt|gt|le|eqz|nez|ltu|geu)|cbn?z|j|jal|jalr)(?:\.[nw])?$"
)

_ARITHMETIC = re.compile(r"^__(?:[a-z]*[sd][fi][a-z0-9]*)$")
"""Functions of libgcc for numbers, such as __divsf3. None of them calls by an address: a jump to one is a switch."""


_SAVING = re.compile(r"^__riscv_save_(\d+)$")
"""Functions of libgcc that a function calls first of all, and that leave its registers on the stack."""


def _taken(mnemonic: str, operands: str) -> int:
    """Bytes by which an instruction moves the stack pointer down.

    >>> _taken("push", "{r4, lr}"), _taken("stmdb", "sp!, {r4, r5}"), _taken("stmdb", "r0!, {r4, r5}")
    (8, 8, 0)
    >>> _taken("push", "{r4-r7}"), _taken("vpush", "{d8-d9}"), _taken("vpush", "{s16-s19}")
    (16, 16, 16)
    >>> _taken("sub", "sp, #16"), _taken("sub.w", "sp, sp, #256"), _taken("str.w", "lr, [sp, #-4]!"), _taken("sub", "r0, #16")
    (16, 256, 4, 0)
    >>> _taken("addi", "sp,sp,-32"), _taken("addi", "sp,sp,32"), _taken("addi", "a0,sp,-4")
    (32, 0, 0)
    """
    if mnemonic.startswith(("push", "vpush")) or (mnemonic.startswith(("stm", "vstm")) and operands.startswith("sp!")):
        return registers(operands) * (8 if "{d" in operands else 4)
    pattern = _TAKEN.get(mnemonic.partition(".")[0])
    match = pattern.search(operands) if pattern is not None else None
    return int(match[1]) if match else 0


def library_frames(disassembly: str) -> tuple[dict[str, int], dict[str, set[str]]]:
    """Bytes that each function pushes at most, and the functions that it calls or jumps to, of a listing by objdump.

    All pushes of a function count, though not all of its paths may take each. What a function of libgcc has pushed for its caller
    is part of the caller's frame. Functions that call others by an address in a register are left out.
    """
    frames: dict[str, int] = {}
    calls: dict[str, set[str]] = {}
    unknown: set[str] = set()
    name = ""
    for line in disassembly.splitlines():
        if (started := _FUNCTION.match(line)) is not None:
            name = started[1]
            frames[name], calls[name] = 0, set()
        elif name and (match := _LINE.match(line)) is not None:
            mnemonic, operands = match[1], match[2] or ""
            frames[name] += _taken(mnemonic, operands)
            target = _TARGET.search(operands)
            if target is not None and target[1] != name and _JUMPS.match(mnemonic):
                calls[name].add(target[1])
                if _SAVING.match(target[1]) and not _SAVING.match(name):
                    frames[name] += _saved(target[1])
            elif target is None and (mnemonic in ("blx", "jalr") or (mnemonic == "jr" and not _ARITHMETIC.match(name))):
                unknown.add(name)
    for function in filter(_SAVING.match, frames):  # what they push and take back before they return
        frames[function], calls[function] = max(0, frames[function] - _saved(function)), set()
        unknown.discard(function)
    return {function: size for function, size in frames.items() if function not in unknown}, calls


def _saved(name: str) -> int:
    """Bytes that such a function leaves on the stack: ra and so many registers s0 to s11, in steps of 16 bytes.

    >>> _saved("__riscv_save_0"), _saved("__riscv_save_3"), _saved("__riscv_save_4"), _saved("__riscv_save_12")
    (16, 16, 32, 64)

    Source: the RISC-V calling convention's save and restore routines of 32-bit cores, as libgcc has them.
    """
    match = _SAVING.match(name)
    assert match is not None
    return 16 * (int(match[1]) // 4 + 1)

"""A package compiled and linked with the compiler of its target, without a board: for its stack and its sizes."""

import re
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from emitc.boards.elf import ImageSizes, image_sizes
from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.errors import CannotCompile, EmitcError, Where
from emitc.explore.cost import Cost, cost_of
from emitc.options import Options
from emitc.records import dataclass, replace
from emitc.target import BuildSupport, boards_dir, load_target
from emitc.verify.build import captured, sources

_SECTIONS = ("-ffunction-sections", "-fdata-sections")
"""What builds of firmware usually have, and what changes some frames."""
_LIBRARY = {"arm-none-eabi-": ("--specs=nano.specs",), "riscv64-unknown-elf-": ("--specs=picolibc.specs",)}
"""The C library of the emulated boards, by prefix."""
_ADDRESSES = {"riscv64-unknown-elf-": ("-mcmodel=medany",)}
"""Options by which code finds its constants, as in builds for the emulated boards, whose flash lies high."""
_LIBRARIES = ("-Wl,--start-group", "-lc", "-lm", "-lgcc", "-Wl,--end-group")
_MEMORY = {"flash_org": 1 << 31, "flash_len": 1 << 28, "ram_org": 9 << 28, "ram_len": 1 << 28}
"""Room for any package, by the names that the linker scripts of the emulated boards have."""


@dataclass(frozen=True, slots=True)
class TargetBuild:
    """A package below `work`, compiled for a target. prefix: of its tools. support: what the package's backends need.

    where: the option that asks for it, which errors name.
    """

    prefix: str
    flags: tuple[str, ...]
    work: Path
    support: BuildSupport
    where: Where

    def compile(self) -> None:
        """Compiles all sources, and has gcc write what functions they have and call."""
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

    def needed(self) -> list[str]:
        """Symbols that the objects need from libraries, sorted."""
        listing = self.output("nm", *self._objects())
        defined = set(re.findall(r"^[0-9a-f]+ [A-TV-Z] (\S+)$", listing, re.MULTILINE))
        return sorted(set(re.findall(r"^ +U (\S+)$", listing, re.MULTILINE)) - defined)

    def link_whole(self) -> None:
        """Links everything into the file `linked`, whether it is called or not."""
        link = ["-nostdlib", "-Wl,-e,0", "-Wl,--no-gc-sections", "-Wl,--unresolved-symbols=ignore-all", "-o", "linked"]
        # The last two are of picolibc's linker script.
        memory = ["-Wl,--defsym=__flash_size=0x8000000", "-Wl,--defsym=__ram_size=0x8000000"]
        self.output("gcc", *self._own(), *link, *memory, *self._objects(), *_LIBRARIES)

    def sizes(self, roots: Sequence[str]) -> ImageSizes:
        """Sizes of what these functions need, linked as for the emulated boards."""
        script = "riscv.ld" if self.prefix.startswith("riscv") else "cortex_m.ld"
        memory = [f"-Wl,--defsym=__{name}={value}" for name, value in _MEMORY.items()]
        kept = [f"-Wl,-u,{root}" for root in roots]
        link = ["-nostartfiles", f"-Wl,-e,{roots[0]}", "-Wl,--gc-sections", *kept, *memory, "-o", "linked"]
        scripts = boards_dir() / "platform" / "ldscripts"
        self.output("gcc", *self._own(), *link, f"-L{scripts}", f"-T{script}", *self._objects(), "-lm")
        return image_sizes(self.work / "linked")

    def version(self) -> str:
        return f"{self.prefix}gcc {self.output('gcc', '-dumpfullversion').strip()}"

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
            raise CannotCompile(f"{command[0]} refused the package", self.where, done.stderr.strip()[-1500:], hint)
        return done.stdout


@contextmanager
def target_build(compiled: Compiled, option: str, what: str) -> Iterator[TargetBuild]:
    """The package, compiled for its target in a folder that lasts as long as the context.

    option, what: the option that asks for it, and what of the target it is to tell, for messages. Raises EmitcError where the
    target is no core, CannotCompile where its compiler is missing or refuses the package.
    """
    where = Where(option=option)
    target = load_target(compiled.program.origin.target)
    if not target.compiler_prefix:
        why = f"how much {what} a function takes depends on the core"
        hint = "add --target or --board, such as --target cortex-m4f (`emitc targets`)"
        raise EmitcError(f"{target.name} is no core whose {what} is known", where, why, hint)
    if target.compiler_command:
        why = f"{target.compiler_command} compiles for {target.title}, and {option} asks GCC"
        hint = f"leave {option} out; `emitc run` measures the {what}"
        raise EmitcError(f"the {what} on {target.name} is not known", where, why, hint)
    gcc = f"{target.compiler_prefix}gcc"
    if shutil.which(gcc) is None:
        why, hint = f"it compiles for {target.title}", f"install it, or leave {option} out"
        raise CannotCompile(f"{gcc} is not installed", where, why, hint)
    level = {"speed": "-O2", "size": "-Os"}[compiled.options.optimize]
    addresses = _ADDRESSES.get(target.compiler_prefix, ())
    flags = (*target.compiler_flags, *addresses, "-std=c11", level, *_SECTIONS)
    with tempfile.TemporaryDirectory(prefix="emitc-target-") as work:
        compiled.write(Path(work) / "package")
        build = TargetBuild(target.compiler_prefix, flags, Path(work), compiled.support(target.name), where)
        build.compile()
        yield build


OPTION = "--link"


def linked_cost(path: str | Path, options: Options) -> Cost:
    """The cost of the model file at `path`. Code and constants are the bytes of the model, the runtime and their library
    routines in an image of the emulated boards, which calls init, run and the functions of inputs and outputs.

    Raises what `compile_model` raises, EmitcError where the target is no core, CannotCompile where its compiler is missing.
    """
    start = time.perf_counter()
    compiled = compile_model(path, options)
    program = compiled.program
    ports = [f"input_{i}" for i in range(len(program.inputs))] + [f"output_{i}" for i in range(len(program.outputs))]
    with target_build(compiled, OPTION, "flash") as build:
        sizes = build.sizes([f"{program.name}_{what}" for what in ("run", "init", *ports)])
        compiler = build.version()
    return replace(
        cost_of(compiled.partition, program, options.optimize),
        constant_bytes=sizes.constant_bytes + sizes.data_bytes,
        code_bytes=sizes.code_bytes,
        linked_by=compiler,
        seconds=time.perf_counter() - start,
    )

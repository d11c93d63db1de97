"""A compiled model as a value: the graph, the partition, the program and the files of the package."""

import json
from pathlib import Path
from typing import Any

from emitc.backends.contract import PORTABLE, Backend, HostHook
from emitc.backends.partition import Partition
from emitc.backends.portable.backend import FasterTarget, Portable, faster_targets
from emitc.emit.facts import StackBound
from emitc.emit.licence import LICENSE
from emitc.emit.manifest import partitions
from emitc.emit.package import package_files, profile_files, write_package
from emitc.ir import Graph, GraphStep
from emitc.options import Options
from emitc.program import PassReport, Program
from emitc.program.extras import ExampleRun
from emitc.program.members import members
from emitc.program.rows import loads_of
from emitc.records import dataclass, fields, replace
from emitc.source import SourceModel
from emitc.target import BuildSupport, load_target


@dataclass(frozen=True, slots=True, repr=False)
class Compiled:
    """A model compiled: the graph that was partitioned, the program, and every file of the package.

    model_bytes: what was compiled as one file, with the constants of other files in it. plugin_ops: operators of the model that
    plugins have brought along. history: the graph as it was built, and after each step of the way to the graph that was lowered.
    stack: what the target's compiler found, where it was asked. example: the runs that the package's example repeats.
    """

    source: SourceModel
    graph: Graph
    partition: Partition
    program: Program
    passes: tuple[PassReport, ...]
    options: Options
    files: dict[str, bytes]
    seconds: float
    model_bytes: bytes
    plugin_ops: tuple[str, ...] = ()
    history: tuple[GraphStep, ...] = ()
    stack: StackBound | None = None
    example: tuple[ExampleRun, ...] = ()

    def weight_loads(self, index: int) -> int:
        """Bytes of its weights that the layer of an operator loads in one run, about; 0 where no copy could replace them."""
        return loads_of(self.partition.layers[index])

    def __repr__(self) -> str:
        program = self.program
        return (
            f"<{type(self).__name__} {program.name} for {program.origin.target}: {len(program.steps)} layers, {program.macs}"
            f" multiply-accumulates, {program.constant_bytes} bytes of constants, arena of {program.plan.arena_bytes} bytes>"
        )

    def write(self, directory: str | Path) -> tuple[str, ...]:
        """Writes the package as `directory`, atomically; returns the paths of its files."""
        return write_package(self.files, Path(directory))

    def used_backends(self) -> tuple[Backend, ...]:
        return tuple(self.partition.backends[name] for name, _, _ in self.program.backends)

    def support(self, target: str) -> BuildSupport:
        """What a build for a target on this machine needs in addition to the package, of all backends in use."""
        parts = [backend.support(self.program, load_target(target)) for backend in self.used_backends()]
        names = [field.name for field in fields(BuildSupport)]
        return BuildSupport(*(tuple(dict.fromkeys(v for part in parts for v in getattr(part, n))) for n in names))

    def host_hooks(self) -> tuple[HostHook, ...]:
        """Functions of this process that a host build calls, of all backends in use."""
        return tuple(hook for backend in self.used_backends() for hook in backend.host_hooks())

    def faster_targets(self) -> tuple[FasterTarget, ...]:
        """What the kernels of other cores would bring a model that runs on the portable ones alone; nothing for others."""
        (backend, *others) = self.partition.backends.values()
        if self.options.target != Options().target or others or not isinstance(backend, Portable):
            return ()
        return faster_targets(self.partition.graph.bound(), backend.known, small=self.options.optimize == "size")

    def summary(self) -> dict[str, Any]:
        """What `emitc compile --json` prints."""
        program = self.program
        arenas = {"arenas": {name: plan.arena_bytes for name, plan in program.arenas}} if program.regions else {}
        names = "name target=origin.target emitc_version=origin.version model_sha256=origin.sha256"
        names += " arena_bytes=plan.arena_bytes lower_bound_bytes=plan.lower_bound_bytes proven=plan.proven"
        return members(program, f"{names} state_bytes constant_bytes macs") | {
            "nodes": len(program.steps),
            "partitions": partitions(program),
            "files": sorted(self.files),
            "seconds": round(self.seconds, 3),
            "faster_targets": [target.to_json() for target in self.faster_targets()],
            **arenas,
            **({"steps": program.stepping.to_json()} if program.stepping else {}),
            **({"stack_bytes": self.stack.size_bytes} if self.stack else {}),
            **program.extras.to_json(),
            **({"self_test": program.self_test.cost(program)} if program.self_test else {}),
        }


def package_of(
    partition: Partition,
    program: Program,
    passes: tuple[PassReport, ...],
    options: Options,
    stated: dict[str, Any],
    stack: StackBound | None = None,
    example: tuple[ExampleRun, ...] = (),
) -> dict[str, bytes]:
    """Every file of the package. stated: the options as the manifest shows them. example: for kinds that have one."""
    more = _added_files(partition, program) | profile_files(options.profile)
    return package_files(program, options.package, passes, stated, more=more, stack=stack, example=example)


def with_stack(compiled: Compiled, stack: StackBound) -> Compiled:
    """The same model with the stack that a compiler has found in its header and manifest."""
    origin = compiled.program.origin
    program = replace(compiled.program, origin=replace(origin, options=f"{origin.options} --stack"))
    stated = json.loads(compiled.files["manifest.json"])["options"]
    files = package_of(compiled.partition, program, compiled.passes, compiled.options, stated, stack, compiled.example)
    return replace(compiled, program=program, files=files, stack=stack)


def _added_files(partition: Partition, program: Program) -> dict[str, str]:
    """Files of the package that backends add; with the partition map where more than the portable kernels are asked for."""
    if set(partition.backends) == {PORTABLE}:
        return {}
    files = {"partition.json": json.dumps({**partition.to_json(), "license": LICENSE}, indent=2) + "\n"}
    for name, _, _ in program.backends:
        files |= partition.backends[name].files(program)
    return files

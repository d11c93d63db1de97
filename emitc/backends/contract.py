"""What a backend must state, in its own folder: what it takes and at what cost, how it is lowered, and what it needs.

A backend serves single nodes (a kernel library) or whole regions of the graph (an accelerator), never both. It answers
questions about frozen values and writes nothing; `partition` asks and records every answer.
"""

from __future__ import annotations

import importlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from emitc.errors import EmitcError, Note, Reason, RefusalKind, Where
from emitc.ir import BoundNode, DType, Graph, Op
from emitc.layer import Layer
from emitc.program import Program, Requirement
from emitc.records import dataclass, field
from emitc.target import BuildSupport, Target

PORTABLE = "portable"


@dataclass(frozen=True, slots=True)
class Settings:
    """What a backend is opened with. kernels: the value of `--kernels`. values: its own options by name, "" if not given.

    operators: those of the model: some come compiled for one backend, which must be there then. variants: asked for, of
    emitc's own kernels, by the index of the node. small: code is to be small rather than fast, so that no kernel is printed for
    one layer. external: weights lie outside of the C, in a file that is checked. loaded: the application brings some of them
    before a layer runs, when nothing checks them.
    """

    target: Target
    kernels: str = PORTABLE
    values: Mapping[str, str] = field(default_factory=dict)
    operators: frozenset[type[Op]] = frozenset()
    variants: Mapping[int, str] = field(default_factory=dict)
    small: bool = False
    external: bool = False
    loaded: bool = False

    def value(self, name: str) -> str:
        return self.values.get(name, "")

    def library(self, name: str, title: str, why: str, folders: str) -> Path | None:
        """The path of a kernel library of the user's, None where it is not asked for. name: of the backend and its option.

        Raises EmitcError where the path is not given. why: it is needed. folders: that it has.
        """
        path = self.value(name)
        if self.kernels not in (name, "auto") or (self.kernels == "auto" and not path):
            return None
        if not path:
            hint = f"--{name} PATH, the folder that has its {folders}"
            raise EmitcError(f"the path of {title} is not given", Where(option=f"--kernels {name}"), why, hint)
        return Path(path)


@dataclass(frozen=True, slots=True)
class HostHook:
    """A function of this process that the code of a backend calls in a host build.

    declaration: in C, of the function of the library that registers it. register: that function's name. signature: of
    the hook, as cffi takes it. function: the hook, with cffi's pointers as arguments.
    """

    declaration: str
    register: str
    signature: str
    function: Callable[..., int]


@dataclass(frozen=True, slots=True)
class Region:
    """Nodes that an accelerator runs as one.

    index: of the node that stands for them in the graph. nodes: their indices. edge_bytes: bytes of all tensors that
    cross the region's border. cycles: estimated, of the accelerator. waits: times that the core waits for it in one run.
    cache_operations: ranges that are cleaned or invalidated in one run.
    """

    index: int
    nodes: tuple[int, ...]
    macs: int
    edge_bytes: int
    cycles: int
    waits: int = 1
    cache_operations: int = 0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A kernel that can run one node.

    variant: its name among the backend's kernels for the operator. cost: estimated core cycles of one run. make: its layer.
    scratch_bytes, flash_bytes: what limits of scratch and of further constants count; 0 for the leanest kernel, which no limit
    excludes. slower_than: the variant that is faster by measurement, whatever the estimates say; "" for none. spare: it is
    only for nodes with a limit of scratch, which then is memory that nothing else needs.
    """

    variant: str
    cost: float
    make: Callable[[], Layer]
    scratch_bytes: int = 0
    flash_bytes: int = 0
    slower_than: str = ""
    spare: bool = False


@dataclass(frozen=True, slots=True)
class Offer:
    """The kernels of one backend that can run a node, none where it does not take the node; and the others, by name, with why."""

    candidates: tuple[Candidate, ...]
    refused: tuple[tuple[str, Reason], ...] = ()

    def within(self, limit: int | None, flash: int = 0) -> Offer:
        """The offer with at most `limit` bytes of scratch for the node, None for no limit, and `flash` of further constants."""
        refused = []
        for row in self.candidates:
            if row.flash_bytes > flash:
                text = f"takes {row.flash_bytes} bytes of flash more than the model's weights"
                refused.append((row.variant, Reason(text, "a larger --flash-budget", RefusalKind.FLASH)))
            elif row.spare if limit is None else row.scratch_bytes > limit:
                text = f"needs {row.scratch_bytes} bytes of scratch"
                refused.append((row.variant, Reason(text, "", RefusalKind.SCRATCH)))
        names = {name for name, _ in refused}
        left = tuple(candidate for candidate in self.candidates if candidate.variant not in names)
        return Offer(left, (*self.refused, *refused))

    def cheapest(self) -> Candidate:
        """The candidate to take. Raises ValueError where there is none."""
        names = {candidate.variant for candidate in self.candidates}
        able = [candidate for candidate in self.candidates if candidate.slower_than not in names]
        return min(able, key=lambda candidate: candidate.cost)


def costs_more(cycles: float) -> Reason:
    """The reason against a kernel that another one beats by the estimate."""
    return Reason(f"costs {cycles:.0f} cycles", "", RefusalKind.COST)


@dataclass(frozen=True, slots=True)
class Offload:
    """The graph with regions instead of the nodes that an accelerator takes, and why it does not take the others, by index."""

    graph: Graph
    regions: tuple[Region, ...] = ()
    refusals: Mapping[int, str] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()


class Backend(ABC):
    """A backend, opened for one compilation.

    A kernel library overrides `supports`, `cost` and `lower`, or `offer` where it has several kernels for a node; an accelerator
    overrides `offload` and `lower`.
    """

    name: str = ""
    alignment: int = 16
    """Bytes to which the backend needs the arena and its buffers aligned."""

    def supports(self, bound: BoundNode) -> str:
        """Why the node cannot be taken; "" when it can."""
        return f"{self.name} takes no single operators"

    def cost(self, bound: BoundNode) -> float:
        """Core cycles of one run of a node that is taken: an estimate, for ranking only."""
        return math.inf

    def offer(self, bound: BoundNode) -> Offer:
        """The kernels that can run a node: here one, which is called as the backend itself."""
        if reason := self.supports(bound):
            return Offer((), ((self.name, Reason(reason)),))
        return Offer((Candidate(self.name, self.cost(bound), lambda: self.lower(bound)),))

    @abstractmethod
    def lower(self, bound: BoundNode) -> Layer:
        """The layer of a node that is taken. Its template is `FOLDER/NAME` for templates/NAME.c.j2 in the backend's folder."""

    def offload(self, graph: Graph, keep: frozenset[int]) -> Offload:
        """Cuts regions out of the graph. keep: indices of nodes that must stay."""
        return Offload(graph)

    def requirement(self, program: Program) -> Requirement | None:
        """What a build of the program needs in addition to its own files; None for nothing."""
        return None

    def files(self, program: Program) -> Mapping[str, str]:
        """Further files of the package, by path: text."""
        return {}

    def runs_on(self, target: Target) -> bool:
        """Whether code that was lowered for the settings' target computes on another one, with `support` for it."""
        return True

    def host_hooks(self) -> tuple[HostHook, ...]:
        """What a host build's library has to be given before it can run."""
        return ()

    def recorded(self, program: Program, runs: Sequence[Mapping[str, bytes]]) -> Mapping[str, str]:
        """For an emulated board that lacks the hardware: files of the package that play back what the host had computed.

        runs: for each run every tensor's bytes by name. Empty for a backend that runs on the board itself.
        """
        return {}

    def support(self, program: Program, target: Target) -> BuildSupport:
        """What a build of the program for a target on this machine needs, where that is known. `host` is a target too.

        Raises EmitcError where it is not: the user has to say where the library is.
        """
        return BuildSupport()


@dataclass(frozen=True, slots=True)
class Coverage:
    """An operator that a backend runs in some case at least: its class, its types, and the formats of such models."""

    op: type[Op]
    dtypes: tuple[DType, ...]
    formats: tuple[str, ...] = ("tflite",)


def covers_of(module: str) -> Callable[[], tuple[Coverage, ...]]:
    """The function `covers` of a module, which is loaded when it is called."""
    return lambda: tuple(importlib.import_module(module).covers())


@dataclass(frozen=True, slots=True)
class BackendDef:
    """A backend as its folder exports it under the name BACKEND.

    open: the backend for one compilation, or None where the settings do not ask for it; raises EmitcError for settings that
    are wrong. kernels: whether `--kernels NAME` names it. covers: the operators that it may take, for the operator table; the
    kernels of emitc themselves say so in their definitions.
    """

    name: str
    summary: str
    open: Callable[[Settings], Backend | None]
    kernels: bool
    covers: Callable[[], tuple[Coverage, ...]] = tuple

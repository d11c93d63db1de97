"""Program: the frozen description of the C to print. After lowering nothing else is needed, and nothing is decided any more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from emitc.kernels.contract import PLAIN, Flavour, LibraryCall, Param, Table
from emitc.planner import Plan


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant array under its C name. text: the elements' comment."""

    name: str
    table: Table


@dataclass(frozen=True, slots=True)
class Operand:
    """What a layer function is called with. text: `int8[1,49,10,1]`. pointer: the C expression in run()."""

    c_type: str
    text: str
    pointer: str
    size_bytes: int
    tensor: str
    source: int


@dataclass(frozen=True, slots=True)
class Step:
    """One layer function and its call.

    index: of the operator in the source model; name: of the function. tables: role to C name. constants: the arrays that
    this step prints (another step may have printed an identical one). fused: labels of operators merged into it.
    backend: who runs it. fallible: the function returns a status, which ends the run where it is not EMITC_OK.
    """

    index: int
    name: str
    op_type: str
    label: str
    template: str
    variant: str
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    scratch: tuple[Operand, ...]
    tables: Mapping[str, str]
    constants: tuple[Constant, ...]
    params: tuple[Param, ...]
    macs: int
    flavour: Flavour = PLAIN
    backend: str = "portable"
    fallible: bool = False
    call: LibraryCall | None = None

    @property
    def kernel(self) -> str:
        """The kernel's C name without its prefix, which is also that of its parameter struct."""
        return self.template + self.flavour.suffix


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of the model. alias: C name made from the model's name for it, "" where there is none."""

    index: int
    label: str
    alias: str
    c_type: str
    text: str
    shape: tuple[int, ...]
    dtype: str
    size_bytes: int
    elements: int
    scale: float | None
    zero_point: int | None
    pointer: str
    tensor: str
    source: int


@dataclass(frozen=True, slots=True)
class Slot:
    """A named offset in the arena."""

    name: str
    offset_bytes: int
    size_bytes: int
    first: int
    end: int
    what: str


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the program comes from: what banners and the manifest say."""

    version: str
    model_file: str
    sha256: str
    format: str
    producer: str
    options: str
    target: str


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition of the preprocessor that must hold where the source is compiled, and what to say where it does not."""

    condition: str
    message: str


@dataclass(frozen=True, slots=True)
class Requirement:
    """What a build of the program needs from elsewhere, for one backend.

    includes: headers, without the angle brackets or quotes. guards: checked when the source is compiled, unless
    EMITC_NO_TARGET_CHECK is defined. library, version: what is needed, for banners. cmake: the library's own CMake target.
    zephyr: symbols of Kconfig that have to be y. sources, folders: C files to compile and folders of headers, relative to
    the library's folder, which a project names by `variable` (CMake, environment, and in lower case of platformio.ini).
    """

    backend: str
    library: str
    version: str
    includes: tuple[str, ...] = ()
    guards: tuple[Guard, ...] = ()
    cmake: str = ""
    zephyr: tuple[str, ...] = ()
    variable: str = ""
    sources: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Program:
    """A model as C: name is its C name, upper that name in capitals for macros. pins: tensors inside the buffers of others."""

    name: str
    upper: str
    origin: Origin
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    slots: tuple[Slot, ...]
    steps: tuple[Step, ...]
    output_constants: tuple[Constant, ...]
    plan: Plan
    proof: str
    peak_op: str
    state_bytes: int = 0
    notes: tuple[str, ...] = ()
    requirements: tuple[Requirement, ...] = ()
    pins: tuple[Slot, ...] = ()

    @property
    def backends(self) -> tuple[tuple[str, int, int], ...]:
        """Name, layers and multiply-accumulates of each backend in use, in order of first use."""
        names = dict.fromkeys(step.backend for step in self.steps)
        by_name = {name: [step for step in self.steps if step.backend == name] for name in names}
        return tuple((name, len(steps), sum(step.macs for step in steps)) for name, steps in by_name.items())

    @property
    def kernels(self) -> tuple[tuple[str, Flavour], ...]:
        """Kernel templates in use with their flavours, each pair once, in order of first use."""
        return tuple(dict.fromkeys((step.template, step.flavour) for step in self.steps))

    @property
    def macs(self) -> int:
        """Multiply-accumulates of one run."""
        return sum(step.macs for step in self.steps)

    @property
    def constant_bytes(self) -> int:
        """Bytes of all constant arrays."""
        steps = sum(c.table.size_bytes for step in self.steps for c in step.constants)
        return steps + sum(c.table.size_bytes for c in self.output_constants)

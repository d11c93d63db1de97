"""Program: the frozen description of the C to print. After lowering nothing else is needed, and nothing is decided any more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from emitc.errors import Note
from emitc.layer import PLAIN, Formula, KernelSpec, LibraryCall, Param, Table, kernel_name
from emitc.planner import Plan
from emitc.program.extras import NOTHING_MORE, Extras
from emitc.program.memory import Address, ArenaRegion, Block, Slot, SlotKind, arena_variable, pointer, state_argument
from emitc.program.rows import Move, RowCall, RowSegment, RowTensor, RowUse, Transfers, layers_of, transfers_of
from emitc.program.self_test import SelfTest
from emitc.program.stepping import Stepping
from emitc.program.weights import ARGUMENT, ExternalWeights
from emitc.records import dataclass, field

__all__ = [
    "Address",
    "ArenaRegion",
    "Block",
    "Constant",
    "ExternalWeights",
    "Guard",
    "Move",
    "Operand",
    "Origin",
    "PassReport",
    "Port",
    "Program",
    "Requirement",
    "RowCall",
    "RowSegment",
    "RowTensor",
    "RowUse",
    "SelfTest",
    "Slot",
    "SlotKind",
    "Staged",
    "StateSlot",
    "Step",
    "Stepping",
    "Traced",
    "arena_variable",
    "state_argument",
]


@dataclass(frozen=True, slots=True)
class PassReport:
    """What one pass did. changed: whether it rewrote anything."""

    name: str
    enabled: bool
    nodes_before: int
    nodes_after: int
    changes: int


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant array under its C name. section: the macro that places it, "" for none.

    external: it is defined in the file of the weights, with external linkage.
    """

    name: str
    table: Table
    section: str = ""
    external: bool = False


@dataclass(frozen=True, slots=True)
class Operand:
    """What a layer function is called with. text: `int8[1,49,10,1]`. const: the function only reads it."""

    c_type: str
    text: str
    address: Address
    const: bool
    size_bytes: int
    tensor: str
    source: int

    @property
    def pointer(self) -> str:
        """The C expression in run()."""
        return pointer(self.c_type, self.address, const=self.const)


@dataclass(frozen=True, slots=True)
class Staged:
    """A table that is copied before its layer runs. name: of the layer function's parameter. constant: C name of the table.
    address: of the copy, in the arena of `region`. start: the stage at whose start its transfer starts, -1 where the core copies.
    """

    name: str
    c_type: str
    constant: str
    address: Address
    size_bytes: int
    region: str
    start: int = -1

    @property
    def pointer(self) -> str:
        """The C expression of the copy in run()."""
        return pointer(self.c_type, self.address, const=True)


FIRST_OUTPUT = "int32_t first, "
"""What the function of a product takes that makes some outputs of its row: the first of them."""


@dataclass(frozen=True, slots=True)
class Step:
    """One layer function and its call.

    index: of the operator in the source model; name: of the function. table_names: role to C name. constants: the arrays that
    this step prints (another step may have printed an identical one). fused: labels of operators merged into it.
    backend: who runs it. fallible: the function returns a status, which ends the run where it is not EMITC_OK. by_rows: the
    function makes one row; window: it takes its parameters from the caller, who sets those of the rows in sight. parts: programs
    that it runs in its scratch. headers: of the runtime, that its kernel needs. staged: its tables that are
    parameters, which come first. reads_rows: it asks the application for its rows. stored: the parameters that are numbers of
    the external weights. numbers: the structure in the weights that has them, "" where each is by itself. separate: its kernel
    takes them by a pointer of their own. leading: what its function takes before all else: the pointer to these weights and
    FIRST_OUTPUT, one of the two, or "". per_output: with FIRST_OUTPUT, the elements for each output of tables that begin there.
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
    table_names: Mapping[str, str]
    constants: tuple[Constant, ...]
    params: tuple[Param, ...]
    macs: int
    spec: KernelSpec = PLAIN
    backend: str = "portable"
    fallible: bool = False
    call: LibraryCall | None = None
    by_rows: bool = False
    window: bool = False
    parts: tuple[Program, ...] = ()
    headers: tuple[str, ...] = ()
    staged: tuple[Staged, ...] = ()
    reads_rows: bool = False
    formula: Formula | None = None
    stored: tuple[str, ...] = ()
    numbers: str = ""
    separate: bool = False
    leading: str = ""
    per_output: Mapping[str, int] = field(default_factory=dict)

    @property
    def tables(self) -> dict[str, str]:
        return {
            role: f"({name} + first * {self.per_output[role]})" if role in self.per_output else name
            for role, name in self.table_names.items()
        }

    @property
    def passed(self) -> str:
        """The arguments that `leading` declares."""
        return self.weights_passed + ("0, " if self.leading.endswith(FIRST_OUTPUT) else "")

    @property
    def weights_leading(self) -> str:
        """The part of `leading` that declares the pointer to the weights."""
        return self.leading.removesuffix(FIRST_OUTPUT)

    @property
    def weights_passed(self) -> str:
        """The argument that `weights_leading` declares."""
        return f"{ARGUMENT}, " if self.weights_leading else ""

    @property
    def addresses(self) -> tuple[Address, ...]:
        """Where everything lies that the layer function is called with."""
        operands = (*self.inputs, *self.outputs, *self.scratch)
        return (*(staged.address for staged in self.staged), *(operand.address for operand in operands))

    @property
    def kernel(self) -> str:
        """The kernel's C name without its prefix, which is also that of its parameter struct."""
        return self.kernel_name + self.spec.suffix

    @property
    def kernel_name(self) -> str:
        return kernel_name(self.template, self.call, self.formula)


@dataclass(frozen=True, slots=True)
class Traced:
    """What one sequence of calls of the layer hook stands for: the layer, or the last one of a segment. first, end: stages of
    the memory plan since the previous one.
    """

    step: Step
    macs: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of the model. alias: C name made from the model's name for it, "" where there is none. address: of its
    first element, None where the model has no memory for it. const: the application only reads it. rows: of an input that is
    streamed row by row, 0 for every other one.
    """

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
    address: Address | None
    const: bool
    tensor: str
    source: int
    rows: int = 0

    @property
    def pointer(self) -> str:
        """The C expression of its first element, "" where the model has no memory for it."""
        return pointer(self.c_type, self.address, const=self.const) if self.address is not None else ""

    @property
    def row_bytes(self) -> int:
        return self.size_bytes // self.rows

    @property
    def arena(self) -> str:
        """The C variable of the arena that holds it, "" for what lies elsewhere."""
        return self.address.variable if self.address is not None and self.address.block is Block.ARENA else ""

    @property
    def in_state(self) -> bool:
        return self.address is not None and self.address.block is Block.STATE


@dataclass(frozen=True, slots=True)
class StateSlot:
    """A state variable's place in the state block. name: of the constant that is its offset.

    fill: the byte that it is filled with before the first run, where all its bytes are the same; otherwise `initial` is
    what is copied there. fill_text: the C expression of that byte, "" for the number itself.
    """

    name: str
    offset_bytes: int
    size_bytes: int
    what: str
    tensor: str
    fill: int = 0
    initial: Constant | None = None
    fill_text: str = ""


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

    library, version: what is needed, for banners. license: its own, as an SPDX expression. includes: headers, without the
    angle brackets or quotes. guards: checked when the source is compiled, unless EMITC_NO_TARGET_CHECK is defined. cmake:
    the library's own CMake target. zephyr: symbols of Kconfig that have to be y. sources, folders: C files to compile and
    folders of headers, relative to the library's folder. A project names that folder by `variable` (CMake, environment, and in
    lower case of platformio.ini). idf: name and version of the component that ESP-IDF's component manager gets, "" for none.
    """

    backend: str
    library: str
    version: str
    license: str
    includes: tuple[str, ...] = ()
    guards: tuple[Guard, ...] = ()
    cmake: str = ""
    zephyr: tuple[str, ...] = ()
    variable: str = ""
    sources: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()
    idf: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class Program:
    """A model as C: name is its C name, upper that name in capitals for macros. pins: tensors inside the buffers of others.

    steps: every layer in order. schedule: what run() does, one entry for each stage of the memory plan. regions: the
    arenas where there are several; slots then have offsets in the arena of their region, and plan has all of them one
    after the other. weights: the region that constants are to lie in, "" where the linker decides. templates: name and
    text of those of kernels that plugins bring along. state_args: of a graph inside an operator, the variables that its
    function gets pointers to, each as the number of the operator's output that it is. estimated_cycles: of one
    inference. self_test: what the package tests itself with. extras: what it says and offers in addition.
    stepping: the inference in steps, None where the model has no functions for that. external: the structure of weights
    that are not in the C. leading: what a function that calls every layer takes first, as in `Step`.
    """

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
    states: tuple[StateSlot, ...] = ()
    schedule: tuple[Step | Move | RowSegment, ...] = ()
    state_bytes: int = 0
    notes: tuple[Note, ...] = ()
    requirements: tuple[Requirement, ...] = ()
    pins: tuple[Slot, ...] = ()
    regions: tuple[ArenaRegion, ...] = ()
    weights: str = ""
    templates: tuple[tuple[str, str], ...] = ()
    state_args: tuple[int, ...] = ()
    estimated_cycles: float = 0.0
    self_test: SelfTest | None = None
    extras: Extras = NOTHING_MORE
    stepping: Stepping | None = None
    external: ExternalWeights | None = None
    leading: str = ""

    @property
    def takes_weights(self) -> bool:
        """Whether some layer reads external weights."""
        return self.leading != ""

    @property
    def passed(self) -> str:
        """The argument that `leading` declares."""
        return f"{ARGUMENT}, " if self.leading else ""

    @property
    def fills_from_weights(self) -> bool:
        """Whether a state variable is filled with a number of the external weights."""
        return any(slot.fill_text for slot in self.states)

    @property
    def split_constants(self) -> tuple[Constant, ...]:
        """The constants that have a file of their own, in order of first use."""
        return tuple(constant for step in self.every_step for constant in step.constants if constant.external)

    @property
    def proofs(self) -> tuple[str, ...]:
        """The line of proof of every arena."""
        return tuple(region.proof for region in self.regions) or (self.proof,)

    @property
    def arenas(self) -> tuple[tuple[str, Plan], ...]:
        """Every arena: its region, "" where there is only one, and its plan."""
        return tuple((region.name, region.plan) for region in self.regions) or (("", self.plan),)

    def start_of(self, slot: Slot) -> int:
        """Where a buffer lies when all arenas are counted one after another."""
        return slot.offset_bytes + next((r.start_bytes for r in self.regions if r.name == slot.region), 0)

    @property
    def backends(self) -> tuple[tuple[str, int, int], ...]:
        """Name, layers and multiply-accumulates of each backend in use, in order of first use."""
        names = dict.fromkeys(step.backend for step in self.steps)
        by_name = {name: [step for step in self.steps if step.backend == name] for name in names}
        return tuple((name, len(steps), sum(step.macs for step in steps)) for name, steps in by_name.items())

    @property
    def runs_on_state(self) -> bool:
        operands = [operand for step in self.steps for operand in (*step.inputs, *step.outputs)]
        return any(operand.address.block is Block.STATE for operand in operands)

    @property
    def runs_on_arena(self) -> bool:
        """Whether a run touches the arena: all do but those of layers that only fill the state block from constants."""
        plain = len(self.schedule) == len(self.steps) and all(isinstance(stage, Step) for stage in self.schedule)
        return bool(self.steps) and (
            not plain or any(place.block is Block.ARENA for step in self.steps for place in step.addresses)
        )

    @property
    def kernels(self) -> tuple[Step, ...]:
        """The first step of each kernel, in order of first use. A kernel is a template with its spec and formula."""
        first: dict[tuple[str, KernelSpec, Formula | None], Step] = {}
        for step in self.every_step:
            first.setdefault((step.template, step.spec, step.formula), step)
        return tuple(first.values())

    @property
    def every_step(self) -> Iterator[Step]:
        """The layers, each after those of the programs that it runs."""
        for step in self.steps:
            for part in step.parts:
                yield from part.every_step
            yield step

    @property
    def headers(self) -> tuple[str, ...]:
        """Headers of the runtime that the kernels need in addition to the common one."""
        own = {header for step in self.steps for header in step.headers}
        inner = {header for step in self.steps for part in step.parts for header in part.headers}
        tests = {"emitc_self_test.h"} if self.self_test else set()
        weights = {"emitc_weights.h"} if self.external else set()
        weights |= {"emitc_transfers.h"} if any(staged.start >= 0 for staged in self.staged) else set()
        weights |= {
            f"emitc_weights_{m.stream.check}.h" for m in (self.external.streams if self.external else ()) if m.stream
        }
        return tuple(sorted(own | inner | tests | weights))

    @property
    def streamed_input(self) -> Port | None:
        return next((port for port in self.inputs if port.rows), None)

    @property
    def segments(self) -> tuple[RowSegment, ...]:
        return tuple(stage for stage in self.schedule if isinstance(stage, RowSegment))

    @property
    def rows_roll(self) -> bool:
        return any(segment.rolls for segment in self.segments)

    @property
    def moves(self) -> tuple[Move, ...]:
        return tuple(stage for stage in self.schedule if isinstance(stage, Move))

    @property
    def staged(self) -> tuple[Staged, ...]:
        return tuple(staged for step in self.steps for staged in step.staged)

    @property
    def staged_bytes(self) -> int:
        """Bytes of constants that a run copies."""
        return sum(staged.size_bytes for staged in self.staged)

    @property
    def transfers(self) -> Transfers | None:
        return transfers_of(self.schedule)

    @property
    def traced(self) -> tuple[Traced, ...]:
        """What the layer hook reports, in order; a segment is reported as its last layer."""
        traced: list[Traced] = []
        since = 0
        for position, stage in enumerate(self.schedule):
            if layers := layers_of(stage):
                traced.append(Traced(layers[-1], sum(step.macs for step in layers), since, position + 1))
                since = position + 1
        return tuple(traced)

    @property
    def macs(self) -> int:
        return sum(step.macs for step in self.steps)

    @property
    def constant_bytes(self) -> int:
        constants = [*self.output_constants, *(self.self_test.constants if self.self_test else ())]
        constants += [slot.initial for slot in self.states if slot.initial]
        for step in self.every_step:
            constants += [*step.constants, *(constant for part in step.parts for constant in part.output_constants)]
        return sum(constant.table.size_bytes for constant in constants)

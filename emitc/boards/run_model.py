"""What the board side needs to know of a model, and the cases that it is to prove."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from emitc.errors import EmitcError, Where
from emitc.target import BuildSupport
from emitc.verify.tolerances import EXACT, Tolerance

Case = tuple[Sequence[bytes], Sequence[bytes]]
"""Inputs and expected outputs of one run: raw little-endian bytes, in the order of the model's inputs and outputs."""


@dataclass(frozen=True, slots=True)
class RunTensor:
    """One input or output: its bytes and the C type that the generated header gives it. rule: how close an output must be."""

    size_bytes: int
    c_type: str
    rule: Tolerance = EXACT


@dataclass(frozen=True, slots=True)
class RunLayer:
    """One layer as the trace hook numbers it. `op` is the operator, `name` the model's name for the layer."""

    index: int
    op: str
    name: str
    macs: int


@dataclass(frozen=True, slots=True)
class RunModel:
    """A compiled model: `name` is its C name, `layers` in the order in which they run.

    The cases of a model with state are the runs of one sequence. regions: their names where the model has an arena in each of
    several; arena_bytes is then the sum. reads_rows: the model reads its only input row by row. self_test: bytes of the names
    of its parts where the model can test itself, 0 where it cannot. weights: the file that its init takes, empty where it
    takes none. constants_in_ram: `--place weights` names a region with room for an arena, so that its constants lie in RAM.
    """

    name: str
    inputs: tuple[RunTensor, ...]
    outputs: tuple[RunTensor, ...]
    arena_bytes: int
    layers: tuple[RunLayer, ...] = ()
    state_bytes: int = 0
    regions: tuple[str, ...] = ()
    reads_rows: bool = False
    self_test: int = 0
    weights: bytes = b""
    constants_in_ram: bool = False

    @property
    def init_weights(self) -> str:
        """The last arguments of its init."""
        return ", emitc_weights_file, sizeof emitc_weights_file" if self.weights else ""

    @property
    def macro(self) -> str:
        """The prefix of the header's macros."""
        return self.name.upper()

    @property
    def arenas(self) -> dict[str, str]:
        """The variable of every arena in the proof's program, and the part of its macros' names that says which it is."""
        return {f"arena_{name.lower()}": f"_{name.upper()}" for name in self.regions} or {"arena": ""}


@dataclass(frozen=True, slots=True)
class Firmware:
    """What is built for a board. package: folder of `emitc compile --package platformio`; model: what it holds.

    cases: the runs to prove, as raw bytes. support: what the package's backends need.
    """

    package: Path
    model: RunModel
    cases: Sequence[Case]
    support: BuildSupport | None = None


def check_cases(model: RunModel, cases: Sequence[Case]) -> None:
    """Raises EmitcError where there is no case, or one whose number or sizes of tensors are not the model's."""
    where = Where(model=model.name, option="--vectors")
    if not cases:
        why = "a proof without a case proves nothing"
        raise EmitcError("no test case for the board", where, why, "give at least one")
    for number, (inputs, outputs) in enumerate(cases):
        for what, arrays, tensors in (("input", inputs, model.inputs), ("output", outputs, model.outputs)):
            got = [len(array) for array in arrays]
            expected = [tensor.size_bytes for tensor in tensors]
            if got != expected:
                why = f"expected {what}s of {expected} bytes, got {got}"
                hint = "give every tensor of the model in its order, with its own type"
                raise EmitcError(f"case {number} does not fit the model's {what}s", where, why, hint)

"""Where the values of a program lie: blocks of memory, addresses in them, and the arenas."""

from enum import Enum

from emitc.planner import Plan
from emitc.records import dataclass


class Block(Enum):
    """A kind of memory. STATE_ARGUMENT: a state variable that the function of a graph inside an operator gets a pointer to."""

    ARENA = "arena"
    STATE = "state"
    STATE_ARGUMENT = "state argument"
    CONSTANT = "constant"


@dataclass(frozen=True, slots=True)
class Address:
    """Where something lies. variable: the C name of the block, or of the array of a constant. slot: the name of the offset in
    an arena or in the state block, "" for what starts where its block does.
    """

    block: Block
    variable: str
    slot: str = ""

    @property
    def text(self) -> str:
        """The C expression, of type `unsigned char *` outside of constants: `arena + AT_OP3`."""
        return f"{self.variable} + {self.slot}" if self.slot else self.variable


def state_argument(number: int) -> str:
    """The C name of the pointer to a state variable that is output `number` of the operator around the graph."""
    return f"held_{number}"


def cast(c_type: str, *, const: bool) -> str:
    """The C text before a pointer to bytes that makes it one to elements: through void where they are wider than a byte."""
    qualifier = "const " if const else ""
    through = "" if c_type in ("int8_t", "uint8_t") else f"({qualifier}void *)"
    return f"({qualifier}{c_type} *){through}"


def pointer(c_type: str, address: Address, *, const: bool) -> str:
    """The C expression of a pointer to the elements that lie at an address. const: they are only read."""
    return address.text if address.block is Block.CONSTANT else f"{cast(c_type, const=const)}({address.text})"


class SlotKind(Enum):
    """What lies in a buffer of an arena. ROWS: some rows of a tensor. STAGED: the copy of a table."""

    INPUT = "input"
    TENSOR = "tensor"
    ROWS = "rows"
    SCRATCH = "scratch"
    STAGED = "staged"


@dataclass(frozen=True, slots=True)
class Slot:
    """A named offset in the arena, or in that of a region.

    what: its content, for people. first, end: the stages of the memory plan from and up to which it is in use. op: index of the
    operator that it belongs to, -1 for an input. moved_from: name of the slot where the tensor lay before it was moved for the
    first time, "" for what is not a moved tensor.
    """

    name: str
    what: str
    kind: SlotKind = SlotKind.TENSOR
    op: int = -1
    moved_from: str = ""
    offset_bytes: int = 0
    size_bytes: int = 0
    first: int = 0
    end: int = 0
    region: str = ""


@dataclass(frozen=True, slots=True)
class ArenaRegion:
    """The arena of one region of memory, where there are several.

    name: as the user gave it; upper, lower: in macros and members. variable: the C variable that points to the arena;
    used: run() needs it. claim: the line of proof without the name. start_bytes: where the arena starts when all of
    them are counted one after another, as in `Program.plan`. limit_bytes: what the region has for it. traffic_bytes:
    read and written there in one run, an estimate.
    """

    name: str
    plan: Plan
    claim: str
    peak_op: str
    start_bytes: int
    limit_bytes: int
    traffic_bytes: int
    used: bool

    @property
    def proof(self) -> str:
        return f"{self.name} {self.claim}"

    @property
    def upper(self) -> str:
        return self.name.upper()

    @property
    def lower(self) -> str:
        """The name of the member that points to it."""
        return self.name.lower()

    @property
    def variable(self) -> str:
        return arena_variable(self.name)


def arena_variable(region: str) -> str:
    """The C variable of a region's arena; of the only one where `region` is ""."""
    return f"arena_{region.lower()}" if region else "arena"

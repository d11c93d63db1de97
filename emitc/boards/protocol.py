"""The lines that a proof prints (templates/board/proof.c.j2 lists them), read into a Transcript."""

from collections import defaultdict
from collections.abc import Iterable

from emitc.records import dataclass, field

PROTOCOL = 1
OVERFLOW = "overflow"


class BadTranscript(ValueError):
    """The lines are not a complete proof; the text says what is wrong, for an error message."""


@dataclass(frozen=True, slots=True)
class LayerLine:
    """A layer wrote `output_bytes` bytes; `ticks` since the layer before, None where an emulator counts."""

    index: int
    output_bytes: int
    ticks: int | None


@dataclass(slots=True)
class CaseLines:
    """What the board said of one case.

    refused: ("init" or "run", status) where a call did not return OK. stack_bytes: None where not measured. outputs:
    the bytes of each output. differing: per output, as the board counted them. overwritten: guard bytes round arenas and
    state, in a traced build.
    """

    refused: tuple[str, int] | None = None
    stack_bytes: int | None = None
    stack_overflow: bool = False
    ticks: int | None = None
    outputs: list[bytes] = field(default_factory=list)
    differing: list[int] = field(default_factory=list)
    layers: list[LayerLine] = field(default_factory=list)
    overwritten: int = 0


@dataclass(frozen=True, slots=True)
class SelfTestLine:
    """What the model's self test said: its status, and of its first fault the part and the operator's index."""

    status: int
    part: int
    index: int
    stack_bytes: int | None
    ticks: int | None


@dataclass(frozen=True, slots=True)
class Transcript:
    """One complete proof. unit: what a tick is, empty where an emulator counts. check_*: of the known loop. self_test: None of
    a model without one.
    """

    board: str
    unit: str
    check_stack_bytes: int | None
    check_ticks: int | None
    cases: tuple[CaseLines, ...]
    self_test: SelfTestLine | None = None


def is_complete(text: str) -> bool:
    """True when the text holds a whole proof, from its first line to its last."""
    return _last_proof(text.splitlines()) is not None


def fault(text: str) -> str:
    """The board's line about a fault, empty where there was none."""
    return next((line.strip() for line in text.splitlines() if line.startswith("emitc fault")), "")


def last_line(text: str) -> str:
    """The last thing that the firmware said, for an error message."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "nothing was printed"


def parse(text: str) -> Transcript:
    """The last complete proof in `text`; other lines are ignored. Raises BadTranscript."""
    lines = _last_proof(text.splitlines())
    if lines is None:
        raise BadTranscript(f"the firmware stopped before its last line; it ended with: {last_line(text)}")
    unit = ""
    check: tuple[int | None, int | None] = (None, None)
    cases: defaultdict[int, CaseLines] = defaultdict(CaseLines)
    board = ""
    tested: SelfTestLine | None = None
    for line in lines:
        words = line.split()
        try:
            match words[1:]:
                case ["begin", protocol, name]:
                    if int(protocol) != PROTOCOL:
                        raise BadTranscript(f"the firmware speaks protocol {protocol}, this emitc {PROTOCOL}")
                    board = name
                case ["counter", name]:
                    unit = name
                case ["check", stack, ticks]:
                    check = (_optional(stack), _optional(ticks))
                case ["status", number, ("init" | "run") as call, status]:
                    cases[int(number)].refused = (call, int(status))
                case ["layer", number, index, size, ticks]:
                    cases[int(number)].layers.append(LayerLine(int(index), int(size), _optional(ticks)))
                case ["guard", number, count]:
                    cases[int(number)].overwritten = int(count)
                case ["run", number, stack, ticks]:
                    case = cases[int(number)]
                    case.stack_overflow, case.stack_bytes = stack == OVERFLOW, _stack(stack)
                    case.ticks = _optional(ticks)
                case ["output", number, output, offset, digits]:
                    outputs = cases[int(number)].outputs
                    outputs += [b""] if int(output) == len(outputs) else []
                    if int(output) != len(outputs) - 1 or int(offset) != len(outputs[-1]):
                        raise BadTranscript(f"bytes are missing before: {line}")
                    outputs[-1] += bytes.fromhex(digits)
                case ["differ", number, output, count]:
                    cases[int(number)].differing.insert(int(output), int(count))
                case ["selftest", status, part, index, stack, ticks]:
                    tested = SelfTestLine(int(status), int(part), int(index), _stack(stack), _optional(ticks))
                case ["done"]:
                    pass
                case _:
                    raise BadTranscript(f"not a line of the protocol: {line}")
        except ValueError as error:
            raise error if isinstance(error, BadTranscript) else BadTranscript(f"a garbled line: {line}") from error
    if sorted(cases) != list(range(len(cases))):
        raise BadTranscript(f"cases {sorted(cases)} are not numbered from 0")
    return Transcript(board, unit, *check, tuple(cases[number] for number in range(len(cases))), tested)


def _last_proof(lines: Iterable[str]) -> list[str] | None:
    last: list[str] | None = None
    current: list[str] | None = None
    for line in lines:
        if line.startswith("emitc begin"):
            current = []
        if current is not None and line.startswith("emitc "):
            current.append(line)
            if line.startswith("emitc done"):
                last, current = current, None
    return last


def _stack(word: str) -> int | None:
    return None if word == OVERFLOW else _optional(word)


def _optional(word: str) -> int | None:
    return None if word == "-" else int(word)

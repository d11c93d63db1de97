"""Estimated core cycles of code that an emulator has run: the core's published timing, applied address by address.

The counting plugin says how often the instruction at each address ran, the disassembly which one it is and which stand
around it. So a load after another one, or a vector instruction that overlaps with the one before it, costs what it costs
there. Nothing is fitted: `Timing` (boards/targets/*.toml) has the manual's figures, with its source and the largest error
that was found against published measurements. Code and data are in memory without wait states.
"""

import math
import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from emitc.boards.dual_issue import Pipeline
from emitc.records import dataclass
from emitc.target import MVE, DmaTiming, FlashTiming, Target, Timing

_CONDITION = r"(?:eq|ne|cs|cc|hs|lo|mi|pl|vs|vc|hi|ls|ge|lt|gt|le)?"
_KINDS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (kind, re.compile(f"(?:{pattern}){_CONDITION}$"))
    for kind, pattern in (
        ("load several", r"ldm(?:ia|db)?|pop|vldm(?:ia|db)?|vpop"),
        ("store several", r"stm(?:ia|db)?|push|vstm(?:ia|db)?|vpush"),
        ("load two", r"ldrd"),
        ("store two", r"strd"),
        ("vector load", r"vld(?:r[bhwd]|[24]\d)[te]?"),
        ("vector store", r"vst(?:r[bhwd]|[24]\d)[te]?"),
        ("load", r"v?ldr(?:b|h|sb|sh|ex|exb|exh)?t?"),
        ("store", r"v?str(?:b|h|ex|exb|exh)?t?"),
        ("loop", r"le|letp|wls|wlstp|dls|dlstp|lctp"),
        ("branch always", r"b|bl|blx|bx|tbb|tbh"),
        ("compare and branch", r"cbz|cbnz"),
        ("divide", r"[su]div"),
        ("long multiply", r"[su]ml?al|[su]mull|umaal|smlald?x?"),
        ("multiply accumulate", r"mla|mls"),
        ("multiply", r"muls?|smul\w+|smla\w+|smua?d?x?|smml?a?r?|smuad|smusd\w*|smlsd\w*|smmulr?|smmlar?|smmlsr?"),
        ("float divide", r"vdiv|vsqrt"),
    )
)
_VECTOR_MULTIPLY = re.compile(r"v(?:ml|mul|qdmul|qrdmul|qdml|rmul|fma|fms|mmul)")
_VECTOR = re.compile(r"\bq\d")
_LOOP = 1024
"""Instructions among which the end of a loop is looked for."""
_LINE = re.compile(r"^\s*([0-9a-f]+):\t(\S+)[ \t]*(.*)")
_FUNCTION = re.compile(r"^[0-9a-f]+ <(.+)>:")
_RANGE = re.compile(r"([rsdq])(\d+)(?:-[rsdq](\d+))?")

COPY = "memcpy"
"""The function that makes the copies in the emulator."""
_WORD_BYTES = 4
_DATA = ("load", "load two", "load several", "store", "store two", "store several")
"""Kinds of instructions that use the RAM, by `cycle_model.kind_of`."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction of a listing. mnemonic: without its width; operands: without comments."""

    address: int
    mnemonic: str
    operands: str
    function: str


@dataclass(frozen=True, slots=True)
class Ran:
    """What ran in one window: how often the instruction at each address, and the bytes that loads read from flash."""

    places: Mapping[int, int]
    constant_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Estimate:
    """Cycles of a run. functions: by C function, the most first; kinds: by kind of instruction.

    constant_bytes: that loads read from flash, every time that they do.
    """

    cycles: float
    instructions: int
    constant_bytes: int
    functions: tuple[tuple[str, float], ...]
    kinds: tuple[tuple[str, float], ...]


def listing(target: Target, image: Path) -> list[Instruction]:
    """The instructions of an image. Raises CalledProcessError and OSError.

    GNU objdump 2.40 prints half of the instructions of MVE as those of a coprocessor, unless it is told the architecture.
    """
    architecture = ["-m", target.isa] if MVE in target.features else []
    command = [f"{target.compiler_prefix}objdump", "-d", "--no-show-raw-insn", *architecture, str(image)]
    return parsed(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def parsed(text: str) -> list[Instruction]:
    """The instructions that objdump printed.

    >>> parsed("08000000 <f>:\\n 8000000:\\tldr.w\\tr2, [r3, #4]\\t; 0x4\\n")
    [Instruction(address=134217728, mnemonic='ldr', operands='r2, [r3, #4]', function='f')]
    """
    instructions, function = [], ""
    for line in text.splitlines():
        if match := _FUNCTION.match(line):
            function = match[1]
        elif match := _LINE.match(line):
            operands = re.split(r"[;@]", match[3])[0].strip()
            instructions.append(Instruction(int(match[1], 16), match[2].split(".")[0], operands, function))
    return instructions


def kind_of(instruction: Instruction) -> str:
    """The kind of an instruction, as `Timing` prices it.

    >>> [kind_of(Instruction(0, name, "", "")) for name in ("ldrsb", "smlad", "bne", "pop", "smull", "ssat", "vldrb")]
    ['load', 'multiply', 'branch', 'load several', 'long multiply', 'other', 'vector load']
    """
    name = instruction.mnemonic
    matching = next((kind for kind, pattern in _KINDS if pattern.match(name)), "")
    if matching in ("vector load", "vector store"):
        return matching
    if _VECTOR.search(instruction.operands):
        return "vector multiply" if _VECTOR_MULTIPLY.match(name) else "vector"
    if matching == "branch always" and name not in ("b", "bl", "bx", "blx", "tbb", "tbh"):
        return "branch"
    return matching or ("branch" if re.fullmatch(rf"b{_CONDITION}", name) else "other")


def registers(operands: str) -> int:
    """Registers in the braces of a load or store of several.

    >>> registers("sp!, {r4, r5-r7, lr}"), registers("r0, r1, [r2]")
    (5, 1)
    """
    if "{" not in operands:
        return 1
    count = 0
    for word in operands[operands.index("{") + 1 : operands.index("}")].split(","):
        match = _RANGE.fullmatch(word.strip())
        count += 1 if match is None or match[3] is None else int(match[3]) - int(match[2]) + 1
    return count


def estimate(ran: Ran, instructions: Sequence[Instruction], timing: Timing) -> Estimate:
    total, places = 0.0, ran.places
    functions: dict[str, float] = {}
    kinds: dict[str, float] = {}
    by_kind = [kind_of(one) for one in instructions]
    pipeline = Pipeline() if timing.issues == 2 else None
    for i, instruction in enumerate(instructions):
        count = places.get(instruction.address, 0)
        if count == 0:
            continue
        before = i - 1 if i and 2 * places.get(instructions[i - 1].address, 0) >= count else None
        after = places.get(instructions[i + 1].address, 0) if i + 1 < len(instructions) else 0
        cost = _cost(instructions, by_kind, i, before, timing)
        if pipeline is not None:
            if before is None:
                _enter(pipeline, instructions, by_kind, i, places)
            cost = _issued(pipeline, instruction, by_kind[i], timing)
        if by_kind[i] in ("branch", "compare and branch"):
            cost += timing.taken_branch * max(0, count - after) / count
        total += cost * count
        functions[instruction.function] = functions.get(instruction.function, 0.0) + cost * count
        kinds[by_kind[i]] = kinds.get(by_kind[i], 0.0) + cost * count
    executed = sum(places.values())
    return Estimate(total, executed, ran.constant_bytes, _most_first(functions), _most_first(kinds))


def _issued(pipeline: Pipeline, instruction: Instruction, kind: str, timing: Timing) -> int:
    """Cycles that an instruction adds on a core that begins two in a cycle. Two registers are loaded or stored in a cycle."""
    occupied = {"divide": timing.divide, "float divide": timing.float_divide}.get(kind, 1.0)
    if kind in ("load several", "store several"):
        occupied = registers(instruction.operands) / 2
    return pipeline.issue(instruction.mnemonic, instruction.operands, kind, max(1, math.ceil(occupied)))


def _enter(
    pipeline: Pipeline, instructions: Sequence[Instruction], kinds: Sequence[str], i: int, places: Mapping[int, int]
) -> None:
    """Begins a stretch with instruction i. Where a loop begins with it, the turn before it has run: results may not be ready."""
    pipeline.start()
    address, count = instructions[i].address, places[instructions[i].address]
    back = re.compile(rf"\b{address:x}\b")
    for j in range(i, min(i + _LOOP, len(instructions))):
        if 2 * places.get(instructions[j].address, 0) < count:
            return
        if kinds[j] in ("branch", "compare and branch") and back.search(instructions[j].operands):
            break
    else:
        return
    for k in range(i, j + 1):
        pipeline.issue(instructions[k].mnemonic, instructions[k].operands, kinds[k], 1)
    pipeline.jump()


_PRICES = {
    **{kind: kind.replace(" ", "_") for kind in ("store", "divide", "multiply", "multiply accumulate", "float divide")},
    "loop": "loop_end",
    "long multiply": "multiply_long",
}
"""Kinds that cost what a member of `Timing` says."""


def _most_first(cycles: Mapping[str, float]) -> tuple[tuple[str, float], ...]:
    return tuple(sorted(cycles.items(), key=lambda item: -item[1]))


def _cost(
    instructions: Sequence[Instruction], kinds: Sequence[str], i: int, before: int | None, timing: Timing
) -> float:
    """Cycles of one execution, without those of a branch that is taken. before: the instruction that ran before it."""
    instruction, kind = instructions[i], kinds[i]
    to_pc = timing.taken_branch if re.search(r"^pc\b|[{ ]pc}", instruction.operands) else 0.0
    vectors = ("vector", "vector multiply", "vector load", "vector store")
    match kind:
        case "load several" | "store several":
            return 1 + registers(instruction.operands) * timing.each_register + to_pc
        case "load two" | "store two":
            return 1 + 2 * timing.each_register if kind == "load two" else timing.store + 1.5 * timing.each_register
        case "load":
            pipelined = before is not None and kinds[before] == "load" and not _feeds(instructions[before], instruction)
            cost = timing.load_after_load if pipelined else timing.load
            return cost + to_pc + bool(to_pc)
        case "branch always":
            return 1 + timing.taken_branch
        case _ if kind in vectors:
            overlaps = before is not None and kinds[before] in vectors and kinds[before] != kind
            return timing.vector - timing.vector_overlap * overlaps
    return float(getattr(timing, _PRICES[kind])) if kind in _PRICES else 1.0


def _feeds(load: Instruction, then: Instruction) -> bool:
    """Whether the register that a load fills is part of the other instruction's address."""
    target = re.match(r"\w+", load.operands)
    return target is not None and re.search(rf"\[.*\b{target[0]}\b", then.operands) is not None


@dataclass(frozen=True, slots=True)
class StageWork:
    """One stage of a run: its share of the cycles, and of the constant bytes that are read without copies.

    late, early: bytes of the transfers that start before it waits, and after that. waits: whether it waits for transfers, until
    at most `left` are under way.
    """

    cycles: float
    constants: float
    late: tuple[int, ...] = ()
    waits: bool = False
    left: int = 0
    early: tuple[int, ...] = ()


@dataclass(slots=True)
class _Queue:
    """Copies that are under way, first the bytes that are left of the one that is made now."""

    bytes_left: list[float]

    def total(self) -> float:
        return sum(self.bytes_left)

    def make(self, count: float) -> None:
        while count > 0 and self.bytes_left:
            first = min(count, self.bytes_left[0])
            count -= first
            self.bytes_left[0] -= first
            if self.bytes_left[0] <= 0:
                self.bytes_left.pop(0)


def overlapped(run: Estimate, stages: Sequence[StageWork], flash: FlashTiming, dma: DmaTiming) -> float:
    """Cycles of a run whose weights a DMA copies while layers run. run: of the emulator, where the core has copied them.

    The cycles of the emulator's `memcpy`, and what it read of the flash, are taken out. The rest is divided among the stages. One
    copy at a time then runs with them, and both slow each other down. A read of the flash waits for half a read of the other, as
    often as the other keeps the flash. A word that the DMA writes takes a cycle of the core as often as the core uses the RAM: it
    does so in all cycles of loads and stores but one for each word that it reads of the flash.
    """
    copied = sum(sum(work.late) + sum(work.early) for work in stages)
    functions: Mapping[str, float] = dict(run.functions)
    core = run.cycles - functions.get(COPY, 0.0)
    constants = max(0, run.constant_bytes - copied)
    # memcpy consists of loads and stores, nearly.
    data = sum(cycles for kind, cycles in run.kinds if kind in _DATA) - functions.get(COPY, 0.0)
    uses_ram = max(0.0, data) / (core or 1.0)
    queue, total = _Queue([]), 0.0
    for work in stages:
        queue.bytes_left += map(float, work.late)
        total += dma.cycles_per_transfer * (len(work.late) + len(work.early))
        if work.waits:
            needed = sum(queue.bytes_left[: len(queue.bytes_left) - work.left])
            total += needed * dma.cycles_per_byte
            queue.make(needed)
        queue.bytes_left += map(float, work.early)
        here, read = core * work.cycles, constants * work.constants
        alone = flash.cycles(here, round(read))
        of_ram = max(0.0, uses_ram * here - read / _WORD_BYTES) / (here or 1.0)
        total += _together(alone, alone - here, queue, dma, of_ram)
    return total


def _together(alone: float, waits: float, queue: _Queue, dma: DmaTiming, uses_ram: float) -> float:
    """Cycles of a stage with the copies that are under way, of which it makes some.

    alone: its cycles without copies; waits: those of them in which the core waits for the flash.
    """
    if not queue.total() or not alone:
        return alone
    reads = waits / max(1.0, dma.line_cycles - 1)
    kept_by_core = reads * dma.line_cycles / alone
    per_byte = dma.cycles_per_byte + kept_by_core * dma.line_cycles / 2 / dma.line_bytes
    kept_by_dma = dma.line_cycles / (per_byte * dma.line_bytes)
    slower = 1 + reads * kept_by_dma * dma.line_cycles / 2 / alone + uses_ram / (per_byte * _WORD_BYTES)
    busy = min(queue.total() * per_byte, alone * slower)
    queue.make(busy / per_byte)
    return busy + max(0.0, alone - busy / slower)

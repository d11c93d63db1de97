"""Issue cycles of a core that starts two instructions in a cycle, in order, as the Cortex-M7 does.

Instructions are taken in the order of their addresses, within stretches that run together. The second one of a pair has to be
independent of the first, and to use other units. A result is ready after a latency that depends on what made it and on what
reads it. Branches are predicted, and cost what `Timing` says.

Sources, as Arm publishes no table of cycles: the Cortex-M7 Technical Reference Manual (DDI 0489), section 1.2, for the units;
the scheduling model of LLVM (ARMScheduleM7.td), which Arm's engineers wrote; and two published series of measurements with the
cycle counter of an STM32H7, https://github.com/jnk0le/random (pipeline cycle test) and
https://www.quinapalus.com/cm7cycles.html. Where they differ, the slower rule is taken.

What no rule covers: bytes that are stored faster than the store buffer takes them, words at addresses that are no multiple of
four, the alignment of code, branches that are predicted wrongly, caches and wait states.
"""

import re

from emitc.records import dataclass, field

_REGISTER = re.compile(r"\b(?:r1[0-2]|r[0-9]|sp|lr|s[0-9]+|d[0-9]+|ip|fp|sl|sb)\b")
_SHIFTED = re.compile(r"(\w+), (?:lsl|lsr|asr|ror|rrx)\b")
_ADDRESS = re.compile(r"\[(\w+)(?:, #(-?\d+))?(\])?")
_NO_RESULT = ("store", "store two", "store several", "branch", "branch always", "compare and branch")
_STORES = ("store", "store two", "store several")
_LOADS = ("load", "load two", "load several")
_MULTIPLIES = ("multiply", "multiply accumulate", "long multiply")
_ALONE = ("load two", "store two", "load several", "store several", "divide", "float divide", "branch always")
_ACCUMULATES = re.compile(r"smla|smml|mla|mls|umaal|umlal")
_OF_FLOATS = re.compile(r"v(?!ldr|str|ldm|stm)")
_SATURATES = re.compile(r"[su]sat|u?q(?:d?add|d?sub|asx|sax)")
_FIELDS = re.compile(r"bf[ic]|[su]bfx|rbit|rev|pkh|[su]xta")
_SIMD = re.compile(r"[su]xt|[us]h?(?:add|sub)(?:8|16)|[us]h?(?:asx|sax)|sel$|usad|clz")
_MOVES = re.compile(r"mov|lsl|lsr|asr|ror")
_EARLY = re.compile(r"(?:add|sub)[sw]?$|mov[swt]?$|(?:lsl|lsr|asr|ror)s?$")


@dataclass(frozen=True, slots=True)
class Latencies:
    """Cycles from the issue of what makes a result to that of what reads it, by the stage that reads: the ALU (plain), the
    factors of a product (factor), an accumulator (sum), a shifted operand (shifted), an address (address), a store (stored).
    """

    plain: int
    factor: int
    sum: int
    shifted: int
    address: int
    stored: int = 0


_WORD = Latencies(1, 2, 1, 2, 3)
_BYTE = Latencies(2, 2, 1, 3, 3)
_PRODUCT = Latencies(2, 2, 1, 3, 3, 1)
_EARLY_RESULT = Latencies(1, 1, 1, 1, 1)
_RESULT = Latencies(1, 1, 1, 2, 2)
_SATURATED = Latencies(2, 2, 2, 3, 3, 1)
_FLOAT = Latencies(3, 3, 3, 3, 3, 2)


@dataclass(frozen=True, slots=True)
class _Issued:
    """An instruction that began: the cycle, and how long its results take."""

    cycle: int
    latencies: Latencies


@dataclass(slots=True)
class Pipeline:
    """The state between two instructions. now: the cycle of the last issue; older: the first instruction that began in it,
    with its mnemonic, operands and kind, or None where no other one may begin in it; results: by register."""

    now: int = 0
    older: tuple[str, str, str] | None = None
    results: dict[str, _Issued] = field(default_factory=dict)

    def start(self) -> None:
        """A stretch of instructions that nothing known ran before."""
        self.older, self.results = None, {}

    def jump(self) -> None:
        """A branch was taken: the next instruction begins in another cycle."""
        self.older = None

    def issue(self, mnemonic: str, operands: str, kind: str, cycles: int) -> int:
        """Cycles that an instruction adds: 0 where it begins with the one before it. cycles: for which it occupies its unit.

        >>> pipeline = Pipeline()
        >>> [pipeline.issue(*each, 1) for each in (("ldr", "r1, [r0]", "load"), ("add", "r2, r3, r4", "other"))]
        [1, 0]
        >>> pipeline.issue("smlad", "r2, r1, r3, r2", "multiply", 1)
        2
        """
        made, reads = _results(mnemonic, operands, kind)
        waits = [
            self.results[name].cycle + getattr(self.results[name].latencies, stage)
            for name, stage in reads
            if name in self.results
        ]
        earliest, before = max(waits, default=0), self.now
        pairs = self.older is not None and earliest <= self.now and _pair(self.older, (mnemonic, operands, kind))
        if not pairs:
            self.now = max(self.now + 1, earliest)
        for name, latencies in made.items():
            self.results[name] = _Issued(self.now + cycles - 1, latencies)
        self.now += cycles - 1
        self.older = None if pairs or cycles > 1 or kind in _ALONE else (mnemonic, operands, kind)
        return self.now - before


def _units(mnemonic: str, operands: str, kind: str) -> set[str]:
    """What an instruction has to itself in its cycle. A store occupies the port through which products read."""
    if kind in _MULTIPLIES:
        return {"products"}
    if kind in _STORES:
        return {"products", "store"}
    if kind in _LOADS:
        return {"load"}
    if _OF_FLOATS.match(mnemonic):
        return {"floats"}
    if _FIELDS.match(mnemonic):
        return {"simd", "shifter"}
    if _is_simd(mnemonic):
        return {"simd"}
    return {"shifter"} if _SHIFTED.search(operands) and not _MOVES.match(mnemonic) else set()


def _is_simd(mnemonic: str) -> bool:
    return any(pattern.match(mnemonic) for pattern in (_SIMD, _SATURATES, _FIELDS))


def _pair(older: tuple[str, str, str], younger: tuple[str, str, str]) -> bool:
    """Whether two instructions, of which the second one waits for nothing, begin in one cycle."""
    if younger[2] in _ALONE or (_is_simd(younger[0]) and younger[2] == "other"):
        return False  # what the SIMD unit does comes first in a pair
    shared = _units(*older) & _units(*younger)
    return not shared or (shared == {"load"} and _other_banks(older[1], younger[1]))


def _other_banks(one: str, other: str) -> bool:
    """Whether two loads read words with an even and an odd number: at a constant distance from one register."""
    first, second = _ADDRESS.search(one), _ADDRESS.search(other)
    if first is None or second is None or first[1] != second[1] or not first[3] or not second[3]:
        return False
    moves = one.rstrip()[-1] != "]"
    return not moves and (int(first[2] or 0) ^ int(second[2] or 0)) & 4 != 0


def _results(mnemonic: str, operands: str, kind: str) -> tuple[dict[str, Latencies], list[tuple[str, str]]]:
    """Registers that an instruction writes, and those that it reads with the stage that does."""
    names = _REGISTER.findall(operands)
    inside = operands[operands.index("[") :].split("]")[0] if "[" in operands else ""
    address = _REGISTER.findall(inside)
    updated = address[:1] if "!" in operands or re.search(r"\], ", operands) else []
    base = dict.fromkeys(updated, _EARLY_RESULT)
    at = [(name, "address") for name in address]
    if kind in ("load several", "store several"):
        listed, pointer = _REGISTER.findall(operands.partition("{")[2]), names[:1] if "{" in operands[4:] else ["sp"]
        at = [(name, "address") for name in pointer]
        if kind == "load several":
            return dict.fromkeys(listed, _WORD), at
        return {}, at + [(name, "stored") for name in listed]
    if kind in _LOADS:
        latencies = _WORD if kind == "load two" or mnemonic in ("ldr", "vldr") else _BYTE
        return dict.fromkeys(names[: 2 if kind == "load two" else 1], latencies) | base, at
    if kind in _STORES:
        values = names[: 2 if kind == "store two" else 1]
        return base, at + [(name, "stored") for name in values]
    if kind in _NO_RESULT or mnemonic in ("cmp", "cmn", "tst", "teq"):
        return {}, [(name, "plain") for name in names]
    count = 2 if kind == "long multiply" else 1
    keeps = mnemonic in ("movt", "bfi") or mnemonic.startswith(("smlal", "umlal", "umaal"))
    read = names if keeps or len(names) == count else names[count:]
    return _calculated(mnemonic, operands, kind, names[:count], read)


def _calculated(
    mnemonic: str, operands: str, kind: str, made: list[str], read: list[str]
) -> tuple[dict[str, Latencies], list[tuple[str, str]]]:
    """The same of what is neither a load nor a store nor a branch."""
    if kind in _MULTIPLIES:
        sums = read[2:] if _ACCUMULATES.match(mnemonic) and kind != "long multiply" else []
        sums = made if mnemonic.startswith(("smlal", "umlal", "umaal")) else sums
        return dict.fromkeys(made, _PRODUCT), [(name, "sum" if name in sums else "factor") for name in read]
    shifted = {match[1] for match in [_SHIFTED.search(operands)] if match}
    if _OF_FLOATS.match(mnemonic):
        return dict.fromkeys(made, _FLOAT), [(name, "plain") for name in read]
    if _SATURATES.match(mnemonic):
        return dict.fromkeys(made, _SATURATED), [(name, "shifted") for name in read]
    if _FIELDS.match(mnemonic):
        shifted |= {read[-1]} if read else set()
    elif _is_simd(mnemonic) or _MOVES.match(mnemonic):
        shifted = set()
    early = _EARLY.match(mnemonic) and not shifted
    latencies = _EARLY_RESULT if early else _RESULT
    return dict.fromkeys(made, latencies), [(name, "shifted" if name in shifted else "plain") for name in read]

"""Issue cycles of a core that starts two instructions in a cycle, in order, as the Cortex-M7 does.

Instructions are taken in the order of their addresses, within stretches that run together. The second one of a pair has to be
independent of the first, and to use another unit: one multiplier, one divider and one path to memory serve both. A result is
ready after its latency, and what reads it earlier waits. An accumulator is forwarded: a multiply-accumulate may follow another
one at once. Branches are predicted, and cost what `Timing` says.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_REGISTER = re.compile(r"\b(?:r1[0-2]|r[0-9]|sp|lr|s[0-9]+|d[0-9]+|ip|fp|sl|sb)\b")
_NO_RESULT = ("store", "store two", "store several", "branch", "branch always", "compare and branch")
_MEMORY = ("load", "load two", "load several", "store", "store two", "store several")
_MULTIPLIES = ("multiply", "multiply accumulate", "long multiply")
_ALONE = ("load several", "store several", "divide", "float divide", "branch always")
_ACCUMULATES = re.compile(r"smla|smml|mla|mls|umaal|umlal")


@dataclass(frozen=True, slots=True)
class Latencies:
    """Cycles until a result can be read: of a load, of a multiply by others than an accumulator, of everything else."""

    load: int = 2
    multiply: int = 2
    other: int = 1

    def of(self, kind: str) -> int:
        """Of one kind of instruction."""
        return self.load if kind in _MEMORY else self.multiply if kind in _MULTIPLIES else self.other


@dataclass(slots=True)
class Pipeline:
    """The state between two instructions. now: the cycle of the last issue; in_cycle: kinds that began in it.

    ready: the first cycle in which a register can be read. summed: the same for an accumulator.
    """

    latencies: Latencies = Latencies()
    now: int = 0
    in_cycle: list[str] = field(default_factory=list)
    ready: dict[str, int] = field(default_factory=dict)
    summed: dict[str, int] = field(default_factory=dict)

    def start(self) -> None:
        """A stretch of instructions that nothing known ran before."""
        self.in_cycle, self.ready, self.summed = [], {}, {}

    def issue(self, mnemonic: str, operands: str, kind: str, cycles: int) -> int:
        """Cycles that an instruction adds: 0 where it begins with the one before it. cycles: for which it occupies its unit.

        >>> pipeline = Pipeline()
        >>> [pipeline.issue(*each, 1) for each in (("ldr", "r1, [r0]", "load"), ("add", "r2, r3, r4", "other"))]
        [1, 0]
        >>> pipeline.issue("add", "r2, r1, r2", "other", 1)
        2
        """
        registers = _REGISTER.findall(operands)
        made, read = _results(registers, kind, mnemonic, operands)
        accumulator = registers[-1] if _ACCUMULATES.match(mnemonic) and len(registers) > 3 else ""
        waits = [self.ready.get(name, 0) for name in read if name != accumulator]
        earliest = max((*waits, self.summed.get(accumulator, 0)), default=0)
        paired = bool(self.in_cycle) and earliest <= self.now and self._fits(kind)
        before = self.now
        if not paired:
            self.now = max(self.now + 1, earliest)
            self.in_cycle = []
        self.in_cycle.append(kind)
        for name in made:
            self.ready[name] = self.now + self.latencies.of(kind)
            self.summed[name] = self.now + 1 if kind in _MULTIPLIES else self.ready[name]
        self.now += cycles - 1
        if cycles > 1:
            self.in_cycle = [kind, kind]
        return self.now - before

    def _fits(self, kind: str) -> bool:
        first = self.in_cycle[0]
        shared = (_MEMORY, _MULTIPLIES, _ALONE)
        alone = first in _ALONE or kind in _ALONE
        return len(self.in_cycle) < 2 and not alone and not any(first in unit and kind in unit for unit in shared)


def _results(registers: list[str], kind: str, mnemonic: str, operands: str) -> tuple[list[str], list[str]]:
    """Registers that an instruction writes, and those that it reads."""
    if kind in _NO_RESULT or mnemonic in ("cmp", "cmn", "tst", "teq"):
        return [], registers
    if kind == "load several":
        return _REGISTER.findall(operands.partition("{")[2]), registers[:1]
    count = 2 if kind in ("load two", "long multiply") else 1
    keeps = mnemonic in ("movt", "bfi") or mnemonic.startswith(("smlal", "umlal", "umaal"))
    return registers[:count], registers if keeps or len(registers) == count else registers[count:]

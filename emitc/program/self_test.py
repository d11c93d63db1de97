"""What a package tests itself with: stored inputs, and the CRC32 of what layers make of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from emitc.records import dataclass

if TYPE_CHECKING:
    from emitc.program import Constant, Program


@dataclass(frozen=True, slots=True)
class Check:
    """One output of a stage of run(), and the CRC32 of its bytes after each stored input.

    stage: position in the schedule. output: number of the stage's output, 0 of a segment. layer: position among the steps.
    size_bytes: of the output that run() makes.
    """

    stage: int
    output: int
    layer: int
    size_bytes: int
    crcs: tuple[int, ...]


_WORD, _ARRAY, _PART, _CALL = 4, 8, 16, 20
"""Bytes of a CRC, of an entry for an array, of one for a layer, and of the call after a layer."""
_CODE = 480
"""Bytes of the test's functions and of the table of its CRC, as GCC makes them for a Cortex-M4 with -O2: 476."""
_PER_BYTE = 10
"""Instructions for each byte that gets into a CRC there; 16 on RV32IMAC."""
OTHER_PARTS = ("initial state", "constant outputs", "inputs of the self test")
"""Constants that belong to no layer, in their order."""


@dataclass(frozen=True, slots=True)
class SelfTest:
    """The stored inputs, one array for each input with all cases one after another, and the checks in the order of run().

    unchecked: functions of the layers without a check. Their outputs are floats, or depend on such, so that their bits are not
    known, or are variables that a later layer writes again. external: inputs and CRCs are members of the external weights.
    """

    cases: int
    inputs: tuple[Constant, ...]
    checks: tuple[Check, ...]
    unchecked: tuple[str, ...] = ()
    external: bool = False

    @property
    def constants(self) -> tuple[Constant, ...]:
        """The stored inputs that are in the C."""
        return () if self.external else self.inputs

    def outputs_of(self, stage: int) -> tuple[int, ...]:
        return tuple(check.output for check in self.checks if check.stage == stage)

    @property
    def input_bytes(self) -> int:
        return sum(constant.table.size_bytes for constant in self.inputs)

    def name_bytes(self, program: Program) -> int:
        """Bytes of the names that a fault can have."""
        return sum(len(name) + 1 for name in (*(step.name for step in program.steps), *OTHER_PARTS))

    def cost(self, program: Program) -> dict[str, int]:
        """What the test takes, for reports: its inputs and checks exactly; flash and instructions of what reads and compares
        them, without the inputs and the inferences themselves, as estimates for a core of 32 bits.
        """
        constants = [constant for step in program.every_step for constant in step.constants]
        steps = sum(1 for step in program.every_step if step.params)
        tables = _ARRAY * (len(constants) + steps + len(self.constants)) + _PART * (
            len(program.steps) + len(OTHER_PARTS)
        )
        results = len(self.checks) * (_CALL + _WORD * (1 if self.external else self.cases + 1))
        weights = program.external.size_bytes if program.external else 0
        checked = sum(check.size_bytes for check in self.checks) * self.cases
        return {
            "inputs": self.cases,
            "input_bytes": self.input_bytes,
            "checks": len(self.checks),
            "unchecked_layers": len(self.unchecked),
            "flash_bytes_estimated": _CODE + tables + results + self.name_bytes(program),
            "instructions_estimated": _PER_BYTE * (program.constant_bytes + weights + checked),
        }

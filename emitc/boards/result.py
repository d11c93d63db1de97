"""What a run on a board found."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from emitc.boards.cycle_model import Estimate, StageWork, overlapped
from emitc.boards.elf import ImageSizes, symbol_bytes
from emitc.boards.project import Case, RunModel
from emitc.boards.protocol import CaseLines, Transcript
from emitc.boards.rtl import Function, Simulated
from emitc.errors import CannotCompile, EmitcError, Where
from emitc.program.members import members
from emitc.records import asdict, dataclass, fields, replace
from emitc.target import Board, DmaTiming, FlashTiming, load_board, load_target
from emitc.verify.tolerances import EXACT, Difference, Tolerance, compared_bytes, finite


@dataclass(frozen=True, slots=True)
class LayerCount:
    """Cost of one layer, in the unit of the result that holds it."""

    index: int
    op: str
    name: str
    count: int
    macs: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """The outputs of all cases against the expected ones.

    differing_bytes: of all outputs. differing: elements that break their output's rule (`RunTensor.rule`). tolerated: others
    whose bits differ. max_abs_diff: of all elements. bound: the widest of the rules.
    """

    differing_bytes: int
    differing: int = 0
    tolerated: int = 0
    max_abs_diff: float = 0.0
    bound: Tolerance = EXACT


@dataclass(frozen=True, slots=True)
class CycleEstimate:
    """Cycles of one call by the model of a core: never a measurement.

    zero_wait: cycles where no memory makes the core wait. core: whose timing it is. board: whose clock and flash they are.
    error_percent: the largest error against published measurements; 0 where none was compared. Without `flash`, code and
    data are in memory without wait states. energy_nj_per_cycle: published for the board; 0 where it is not known. stages: of a
    run whose weights a DMA copies while layers run, which is what the cycles are of where `dma` has its timing.
    """

    zero_wait: Estimate
    core: str
    board: str
    clock_hz: int
    error_percent: int
    flash: FlashTiming | None = None
    energy_nj_per_cycle: float = 0.0
    dma: DmaTiming | None = None
    stages: tuple[StageWork, ...] = ()

    @property
    def cycles(self) -> float:
        """With the wait states of the flash and the copies of its DMA, where they are known."""
        if self.flash is None:
            return self.zero_wait.cycles
        if self.dma is not None and self.stages:
            return overlapped(self.zero_wait, self.stages, self.flash, self.dma)
        return self.flash.cycles(self.zero_wait.cycles, self.zero_wait.constant_bytes)

    @property
    def milliseconds(self) -> float:
        """At the board's clock."""
        return self.cycles / self.clock_hz * 1e3

    @property
    def microjoules(self) -> float:
        """By the published energy of a cycle; 0 where it is not known."""
        return self.cycles * self.energy_nj_per_cycle / 1e3

    @property
    def error_band(self) -> str:
        """How far off the estimate may be, in words."""
        return f"+-{self.error_percent} %" if self.error_percent else "not compared with a measurement"

    @property
    def memory(self) -> str:
        """What the memory of code and constants does, in words."""
        if self.flash is None:
            return "memory without wait states"
        copies = " and weights that its DMA copies" if self.dma is not None and self.stages else ""
        return f"with the wait states of its flash{copies}"

    def on(self, board: Board) -> CycleEstimate:
        """The same run on another board with the same core."""
        flash = board.flash_timing
        return replace(
            self,
            board=board.name,
            clock_hz=board.clock_hz,
            error_percent=self.error_percent if flash is None else flash.error_percent,
            flash=flash,
            energy_nj_per_cycle=board.energy_nj_per_cycle,
            dma=board.dma_timing,
        )

    def as_json(self) -> dict[str, Any]:
        """What `emitc run --json` adds for an emulated core whose timing is known."""
        json: dict[str, Any] = {
            "cycles_estimated": round(self.cycles),
            "ms_estimated": round(self.milliseconds, 3),
            "clock_hz": self.clock_hz,
            "error_band": self.error_band,
            "constant_bytes_read": self.zero_wait.constant_bytes,
            "estimate_of": f"{self.core} of {self.board}, {self.memory}",
        }
        if self.energy_nj_per_cycle:
            json["uj_estimated"] = round(self.microjoules, 1)
        return json


@dataclass(frozen=True, slots=True)
class SimulatedCost:
    """One call of the model on a core's RTL: instructions, cycles, and where the cycles went.

    memory: name of the memory's timing. stalls: cycles by reason, as far as the core says; a cycle may have several
    reasons. events: how often. misses: lines that the slow memory read.
    """

    memory: str
    instructions: int
    cycles: int
    stalls: tuple[tuple[str, int], ...]
    events: tuple[tuple[str, int], ...]
    misses: int
    functions: tuple[Function, ...]

    @property
    def cycles_per_instruction(self) -> float:
        return self.cycles / self.instructions

    def as_json(self) -> dict[str, Any]:
        """What `emitc run --json` adds for a core's RTL."""
        return {
            "memory": self.memory,
            "instructions": self.instructions,
            "cycles_per_instruction": round(self.cycles_per_instruction, 4),
            "stalls": dict(self.stalls),
            "events": dict(self.events),
            "misses": self.misses,
            "functions": [asdict(function) for function in self.functions],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult(Verdict):
    """A proof on a board and its numbers.

    match: no element of the outputs breaks its rule: exact, except for what operators on floats compute.
    unit: "instructions" (emulated), "cycles" or "microseconds" (silicon) of `count`, the largest of the cases, from the first
    instruction of <model>_run to its return. counter: "plugin" (exact) or "timer". stack_bytes: the deepest of the cases, below
    <model>_run's caller, None where it is not measured. flash_bytes: the whole image, of which cases_bytes are test cases;
    model_flash_bytes, and in it code_bytes and constant_bytes: the model, the emitc runtime and their library routines, None
    where the image does not tell. ram_bytes: static data, arena and state included, without stack; where a timer counts, every
    case runs twice, and a second copy of the state is part of it. layers: of the case with the largest count; the few
    instructions that pass the hook its arguments are part of each. reference: the engine that the expected outputs are from.
    simulation: what a core's RTL says in addition to its cycles. estimate: cycles by the model of an emulated core.
    estimate_for: those of a real board with that core. self_test: what the model's own test said and costs.
    """

    board: str
    match: bool
    cases: int
    unit: str
    count: int
    counter: str
    stack_bytes: int | None
    flash_bytes: int
    code_bytes: int | None = None
    constant_bytes: int | None = None
    model_flash_bytes: int | None = None
    cases_bytes: int | None = None
    ram_bytes: int
    arena_bytes: int
    layers: tuple[LayerCount, ...] | None = None
    state_bytes: int = 0
    reference: str = ""
    simulation: SimulatedCost | None = None
    estimate: CycleEstimate | None = None
    estimate_for: CycleEstimate | None = None
    self_test: SelfTestResult | None = None

    @property
    def instructions(self) -> int | None:
        """Instructions of the largest case on an emulated board or a core's RTL, else None."""
        if self.simulation is not None:
            return self.simulation.instructions
        return self.count if self.unit == "instructions" else None

    @property
    def cycles(self) -> int | None:
        """`count` where it is core cycles (silicon), else None."""
        return self.count if self.unit == "cycles" else None

    def as_json(self) -> dict[str, Any]:
        """The object that `emitc run --json` prints."""
        json: dict[str, Any] = {"board": self.board, "match": self.match, self.unit: self.count}
        json |= members(self, _STATED)
        json["rule"] = "exact" if self.bound.exact else "tolerance"
        json["tolerance"] = self.bound.absolute
        json["max_abs_diff"] = finite(self.max_abs_diff)
        for more in (self.simulation, self.estimate_for or self.estimate):
            json |= more.as_json() if more is not None else {}
        if self.self_test is not None:
            json["self_test"] = self.self_test.as_json(self.unit)
        if self.layers is not None:
            json["layers"] = [members(layer, f"index op name {self.unit}=count macs") for layer in self.layers]
        return json


_STATED = (
    "stack_bytes flash_bytes code_bytes constant_bytes ram_bytes arena_bytes state_bytes model_flash_bytes cases_bytes cases "
    "differing_bytes differing tolerated counter reference"
)
"""Fields of RunResult that its JSON has under their own names."""


def result_of(
    model: RunModel, board: Board, verdict: Verdict, cases: Sequence[CaseLines], sizes: ImageSizes, **measured: Any
) -> RunResult:
    """The result of a run from its parts. cases: as the board reported them. measured: further fields of RunResult."""
    return RunResult(
        **{field.name: getattr(verdict, field.name) for field in fields(Verdict)},
        board=board.name,
        match=verdict.differing == 0 and (measured.get("self_test") is None or measured["self_test"].passed),
        cases=len(cases),
        stack_bytes=max((case.stack_bytes for case in cases if case.stack_bytes is not None), default=None),
        flash_bytes=sizes.flash_bytes,
        ram_bytes=sizes.ram_bytes,
        arena_bytes=model.arena_bytes,
        state_bytes=model.state_bytes,
        **measured,
    )


def with_simulation(result: RunResult, windows: Sequence[Simulated], memory: str) -> RunResult:
    """The result with what the RTL says of the case that took the most cycles. windows: of the cases in their order."""
    most = max(windows, key=lambda one: one.cycles.total)
    totals = most.instructions.total, most.cycles.total
    return replace(
        result, simulation=SimulatedCost(memory, *totals, most.stalls, most.events, most.misses, most.functions)
    )


def check_estimate_for(real: str, board: str) -> None:
    """Refuses to estimate the cycles of a real board from a run on `board`, where they differ in their core."""
    wanted, runs_on = load_board(real), load_board(board)
    target = load_target(wanted.target)
    if wanted.target == runs_on.target and target.timing is not None and runs_on.kind == "qemu":
        return
    if target.timing is None:
        why = f"the cycles of its {target.title} are not known"
        hint = "run it without --estimate-for"
    else:
        why = f"its target is {wanted.target}, and {board} is of kind {runs_on.kind} with {runs_on.target}"
        hint = "choose an emulated board with the same target (`emitc boards`)"
    raise EmitcError(f"{board} does not stand for {real}", Where(option=f"--estimate-for {real}"), why, hint)


_Result = TypeVar("_Result", bound="RunResult")


def with_estimate_for(result: _Result, real: str) -> _Result:
    """The result with the estimated cycles of a real board. Raises CannotCompile where no plugin has counted."""
    if result.estimate is None:
        why = "the instructions were counted by the board's timer, not one address at a time"
        hint = "install a C compiler for the host, and a QEMU that takes plugins"
        raise CannotCompile("there is no estimate of cycles", Where(option=f"--estimate-for {real}"), why, hint)
    return replace(result, estimate_for=result.estimate.on(load_board(real)))


def layer_counts(model: RunModel, board: Board, seen: Sequence[tuple[int, int]]) -> tuple[LayerCount, ...]:
    """The model's layers with the counts that the hook saw, given as (index, count) in the order of the calls.

    A layer with several outputs calls the hook once for each: their counts are added. Raises CannotCompile where the
    layers that ran are not the model's.
    """
    counts: list[tuple[int, int]] = []
    for index, count in seen:
        if counts and counts[-1][0] == index:
            count += counts.pop()[1]
        counts.append((index, count))
    expected = [layer.index for layer in model.layers]
    if [index for index, _ in counts] != expected:
        what = "the layers that ran are not the model's"
        why = f"expected {expected}, the hook saw {[index for index, _ in counts]}"
        hint = "compile the model again with the same version of emitc"
        raise CannotCompile(what, Where(model=model.name, option=f"--board {board.name} --layers"), why, hint)
    return tuple(
        LayerCount(layer.index, layer.op, layer.name, count, layer.macs)
        for layer, (_, count) in zip(model.layers, counts, strict=True)
    )


def judged(model: RunModel, board: Board, transcript: Transcript, cases: Sequence[Case]) -> Verdict:
    """The outputs of all cases, judged here by the bytes that the board printed; its own count of bytes must agree.

    Raises CannotCompile where a call was refused, guard bytes were overwritten, the stack ran into the static data, or the board
    contradicts itself.
    """
    where = Where(model=model.name, option=f"--board {board.name}")
    if len(transcript.cases) != len(cases):
        why = f"{len(transcript.cases)} of {len(cases)} cases were reported"
        hint = "run it again; if it stays, look at the build folder"
        raise CannotCompile("the board's report is incomplete", where, why, hint)
    total = 0
    differences: list[Difference] = []
    for number, (seen, (_, expected)) in enumerate(zip(transcript.cases, cases, strict=True)):
        _check_called(model, seen, number, where)
        counts = [_differing(got, wanted) for got, wanted in zip(seen.outputs, expected, strict=False)]
        sizes = [len(output) for output in seen.outputs]
        if sizes != [len(array) for array in expected] or counts != seen.differing:
            why = f"case {number}: outputs of {sizes} bytes with {counts} differing were printed, and "
            why += f"{seen.differing} differing were reported"
            hint = "run it again; on a real board check the serial line"
            raise CannotCompile("the board's report contradicts itself", where, why, hint)
        total += sum(counts)
        differences += [
            compared_bytes(got, wanted, tensor.c_type, tensor.rule, any_nan=True)
            for got, wanted, tensor in zip(seen.outputs, expected, model.outputs, strict=True)
        ]
    return Verdict(
        total,
        sum(difference.differing for difference in differences),
        sum(case.tolerated for case in differences),
        max((one.largest for one in differences), default=0.0),
        max((tensor.rule for tensor in model.outputs), key=lambda rule: (rule.absolute, rule.relative), default=EXACT),
    )


def _check_called(model: RunModel, seen: CaseLines, number: int, where: Where) -> None:
    if seen.refused is not None:
        call, status = seen.refused
        why = f"case {number}: it returned status {status}"
        hint = "emitc_status in emitc_runtime.h says what the number means"
        raise CannotCompile(f"{model.name}_{call} refused on the board", where, why, hint)
    if seen.overwritten:
        why = f"case {number}: {seen.overwritten} guard bytes round its arena or state are overwritten"
        hint = "this is a bug of emitc; the proof on the host (`emitc verify --sanitize`) may name the layer"
        raise CannotCompile("the model wrote outside of its memory on the board", where, why, hint)
    if seen.stack_overflow:
        why = f"case {number}: {model.name}_run used all of the free stack and may have written beyond it"
        hint = "choose a larger board (`emitc boards`)"
        raise CannotCompile("the stack is too small on this board", where, why, hint)


def _differing(got: bytes, expected: bytes) -> int:
    return sum(a != b for a, b in zip(got, expected, strict=False)) + abs(len(got) - len(expected))


_PREFIX = "self_test_"
_INPUTS = "self_test_input_"


@dataclass(frozen=True, slots=True)
class SelfTestResult:
    """status: an emitc_status. part, index: of the first fault. count: of one call, in the unit of the run. flash_bytes: its
    functions, tables and names, without the calls in run() and without its stored inputs, which are input_bytes.
    """

    status: int
    part: int
    index: int
    count: int | None
    stack_bytes: int | None
    flash_bytes: int
    input_bytes: int

    @property
    def passed(self) -> bool:
        return self.status == 0

    def as_json(self, unit: str) -> dict[str, Any]:
        """What `emitc run --json` adds. unit: of the count."""
        stated = members(self, f"passed status layer=index {unit}=count stack_bytes flash_bytes input_bytes")
        return stated | ({"layer": None} if self.passed else {})


def self_test_of(model: RunModel, transcript: Transcript, count: int | None, image: Path) -> SelfTestResult | None:
    """The result of the model's own test, None where it has none. count: of one call. image: whose symbols tell its flash."""
    line = transcript.self_test
    if line is None:
        return None
    own = f"{model.name}_self_test"
    sizes = symbol_bytes(image, lambda name: name == own or name.startswith(_PREFIX))
    inputs = sum(size for name, size in sizes.items() if name.startswith(_INPUTS))
    flash = sum(sizes.values()) - inputs + model.self_test
    return SelfTestResult(line.status, line.part, line.index, count, line.stack_bytes, flash, inputs)

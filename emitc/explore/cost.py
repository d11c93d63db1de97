"""What a model costs on a target, without a C compiler: the exact arena, and estimates of flash, instructions and
cycles.

It is meant for searches over architectures, which ask for thousands of models. The arena and the constants are those of
`emitc compile`. Instructions and code come from counts of emitc's kernels on emulated boards (`kernel_counts`).
"""

import time
from collections import Counter
from html import escape
from pathlib import Path
from typing import Any

from emitc.backends.partition import Partition
from emitc.compiler import plan_model
from emitc.errors import Warned, WarningCode
from emitc.explore.kernel_counts import CONSTANT_ALIGNMENT, PARAMETER_BYTES, KernelCounts
from emitc.explore.layer_cycles import LayerCost, counts_of, cycles_per_instruction, layer_costs
from emitc.options import Options
from emitc.planner.buffers import round_up
from emitc.program import Program
from emitc.records import asdict, dataclass, replace
from emitc.target import load_target

_ALMOST_ALL = 0.95
"""The share of counted instructions from which nothing is said of the others."""


@dataclass(frozen=True, slots=True, repr=False)
class Cost:
    """What a model costs on a target.

    arena_bytes, lower_bound_bytes, state_bytes: exact. constant_bytes: with the parameters of the layers. code_bytes:
    with the runtime and library routines; 0 where no code of the target was measured. linked_by: the compiler that has told
    both exactly; "" where they are estimates. instructions, cycles: of one inference. overhead: the instructions in it of
    layers that run by rows, and of tensors that are relocated. source: the board that was counted on; "" where the figures
    are the kernels' own rough costs. counted: the share of the instructions whose kernels were counted. seconds: that it took.
    """

    model: str
    target: str
    arena_bytes: int
    lower_bound_bytes: int
    state_bytes: int
    constant_bytes: int
    code_bytes: int
    instructions: int
    cycles: int
    overhead: int
    macs: int
    source: str
    counted: float
    layers: tuple[LayerCost, ...]
    seconds: float
    linked_by: str = ""

    @property
    def flash_bytes(self) -> int:
        """Constants and code."""
        return self.constant_bytes + self.code_bytes

    def milliseconds(self, clock_hz: float) -> float:
        """Of one inference at a clock, from memory without wait states."""
        return self.cycles / clock_hz * 1e3

    @property
    def warnings(self) -> tuple[Warned, ...]:
        if not self.source or self.counted >= _ALMOST_ALL:
            return ()
        share = f"{1 - self.counted:.0%} of the instructions are of kernels that were not counted"
        return (Warned(WarningCode.UNCOUNTED, f"{share}, so that the estimate may be far off"),)

    def to_json(self) -> dict[str, Any]:
        content = asdict(self) | {"flash_bytes": self.flash_bytes, "counted": round(self.counted, 4)}
        content["warnings"] = [warning.as_json() for warning in self.warnings]
        return content | {"seconds": round(self.seconds, 3), "layers": [asdict(layer) for layer in self.layers]}

    def __repr__(self) -> str:
        return (
            f"<Cost of {self.model} on {self.target}: arena {self.arena_bytes} bytes, flash {self.flash_bytes} bytes,"
            f" {self.instructions} instructions, {self.cycles} cycles>"
        )

    def _repr_html_(self) -> str:
        columns = ("index", "op", "kernel", "macs", "instructions", "constant_bytes")
        head = "".join(f"<th>{column}</th>" for column in columns)
        rows = "".join(
            "<tr>" + "".join(f"<td>{escape(str(getattr(layer, column)))}</td>" for column in columns) + "</tr>"
            for layer in self.layers
        )
        return f"<table><caption>{escape(repr(self)[1:-1])}</caption><thead><tr>{head}</tr></thead>{rows}</table>"


def cost(path: str | Path, target: str = "", options: Options | None = None, **changes: Any) -> Cost:
    """What the model file at `path` costs on a target; further keyword arguments are those of `Options`.

    Raises what `compile_model` raises.
    """
    start = time.perf_counter()
    chosen = replace(options or Options(), **changes)
    chosen = replace(chosen, target=target) if target else chosen
    partition, program = plan_model(path, chosen)
    return replace(cost_of(partition, program, chosen.optimize), seconds=time.perf_counter() - start)


def cost_of(partition: Partition, program: Program, optimize: str = "speed") -> Cost:
    """What a program costs on its target. optimize: as in `Options`; what was counted is code for speed."""
    target = load_target(program.origin.target)
    counts = counts_of(program, optimize)
    layers = layer_costs(partition, program, counts)
    overhead = overhead_of(partition, program)
    instructions = sum(layer.instructions for layer in layers) + round(overhead)
    kernels = [step.kernel for step in program.every_step]
    row_calls = sum(len(segment.calls) for segment in program.segments)
    known = sum(layer.instructions for layer in layers if layer.counted)
    return Cost(
        program.name,
        target.name,
        program.plan.arena_bytes,
        program.plan.lower_bound_bytes,
        program.state_bytes,
        _constant_bytes(program, kernels, counts),
        round(counts.code_bytes(kernels, row_calls)) if counts else 0,
        instructions,
        round(_cycles(partition, layers, overhead, counts)),
        round(overhead),
        program.macs,
        counts.board if counts else "",
        known / instructions if instructions else 1.0,
        layers,
        0.0,
    )


def overhead_of(partition: Partition, program: Program) -> float:
    """Instructions that the schedule adds to layers that run whole, by the rough costs that it was chosen with."""
    return max(0.0, program.estimated_cycles - sum(assignment.cost for assignment in partition.assignments))


def _cycles(partition: Partition, layers: tuple[LayerCost, ...], overhead: float, counts: KernelCounts | None) -> float:
    """Of one inference: the layers' instructions, each with the cycles of its kernel; as many where nothing is known."""
    if counts is None or not counts.cycles_per_instruction:
        return sum(layer.instructions for layer in layers) + overhead
    own = sum(layer.instructions * cycles_per_instruction(partition, layer.index, counts) for layer in layers)
    return own + overhead * counts.cycles_per_instruction


def _constant_bytes(program: Program, kernels: list[str], counts: KernelCounts | None) -> int:
    """Constants as the linker lays them out: the tables, and of the parameters what the compiler keeps."""
    params = [len(step.params) for step in program.every_step]
    if counts is not None:
        return program.constant_bytes + round(counts.constant_bytes(kernels, params))
    shared = Counter(kernels)
    kept = sum(count for kernel, count in zip(kernels, params, strict=True) if shared[kernel] > 1)
    total = program.constant_bytes + PARAMETER_BYTES * kept
    return round_up(total, CONSTANT_ALIGNMENT)

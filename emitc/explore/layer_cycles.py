"""Instructions and cycles of each layer on a target: counts of kernels on emulated boards, or the kernels' own rough costs."""

from __future__ import annotations

from dataclasses import dataclass

from emitc.backends.contract import PORTABLE
from emitc.backends.partition import Partition
from emitc.explore.kernel_counts import KernelCounts, counts_for, kernel_name
from emitc.explore.layer_work import work_of
from emitc.program import Program
from emitc.target import load_target


@dataclass(frozen=True, slots=True)
class LayerCost:
    """One layer. instructions: of one inference. counted: whether they come from counts of its kernel or of one like
    it."""

    index: int
    op: str
    name: str
    kernel: str
    macs: int
    instructions: int
    constant_bytes: int
    counted: bool


def counts_of(program: Program, optimize: str) -> KernelCounts | None:
    """What was counted for the program's target; what was counted is code for speed. optimize: as in `Options`."""
    return counts_for(load_target(program.origin.target)) if optimize == "speed" else None


def layer_costs(partition: Partition, program: Program, counts: KernelCounts | None) -> tuple[LayerCost, ...]:
    """The layers in their order."""
    rough = {assignment.index: assignment.cost for assignment in partition.assignments}
    nodes = {bound.node.index: bound for bound in partition.graph.bound()}
    rows = []
    for step in program.steps:
        layer, bound = partition.layers.get(step.index), nodes.get(step.index)
        from_counts = None
        if counts is not None and layer is not None and bound is not None and step.backend == PORTABLE:
            from_counts = counts.instructions(kernel_name(layer), work_of(bound, layer))
        instructions = rough.get(step.index, 0.0) if from_counts is None else from_counts
        constants = sum(constant.table.size_bytes for constant in step.constants)
        counted = from_counts is not None
        rows.append(
            LayerCost(
                step.index, step.op_type, step.label, step.kernel, step.macs, round(instructions), constants, counted
            )
        )
    return tuple(rows)


def cycles_per_instruction(partition: Partition, index: int, counts: KernelCounts | None) -> float:
    """Of a layer, by its index; 1 where nothing is known."""
    if counts is None or not counts.cycles_per_instruction:
        return 1.0
    layer = partition.layers.get(index)
    return counts.cycles_of(kernel_name(layer) if layer is not None else "")


def layer_cycles(partition: Partition, program: Program, optimize: str = "speed") -> dict[int, float]:
    """The estimated cycles of each layer in one inference, by its index."""
    counts = counts_of(program, optimize)
    return {
        cost.index: cost.instructions * cycles_per_instruction(partition, cost.index, counts)
        for cost in layer_costs(partition, program, counts)
    }

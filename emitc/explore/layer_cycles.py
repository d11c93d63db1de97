"""Instructions and cycles of each layer on a target: counts of kernels on emulated boards, or the kernels' own rough costs."""

from collections import Counter

from emitc.backends.contract import PORTABLE
from emitc.backends.partition import Partition
from emitc.explore.kernel_counts import KernelCounts, counts_for, kernel_name
from emitc.explore.layer_work import work_of
from emitc.explore.zero_share import zero_shares
from emitc.program import Program
from emitc.records import dataclass, replace
from emitc.target import load_target

Work = tuple[str, dict[str, float]]
"""A layer's kernel, and its work as of `work_of`."""


@dataclass(frozen=True, slots=True)
class LayerCost:
    """One layer. instructions: of one inference. counted: whether they come from counts of its kernel or of one like
    it on the target's board."""

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


def layer_works(partition: Partition, program: Program) -> dict[int, Work]:
    """Kernel and work of each layer of emitc's own kernels, by its index.

    A layer that runs by rows has the parameters of one row in the program, and does that for each row that it makes.
    """
    nodes = {bound.node.index: bound for bound in partition.graph.bound()}
    layers_of = Counter(map(kernel_name, partition.layers.values()))
    rows = {call.step.index: call.makes.rows for segment in program.segments for call in segment.calls}
    zeros = zero_shares(partition)
    works = {}
    for step in program.steps:
        layer, bound = partition.layers.get(step.index), nodes.get(step.index)
        if layer is not None and bound is not None and step.backend == PORTABLE:
            name = kernel_name(layer)
            part = replace(layer, params=step.params) if step.index in rows else layer
            share = max((zeros.get(tensor, 0.0) for tensor in bound.node.inputs), default=0.0)
            works[step.index] = name, work_of(bound, part, layers_of[name] > 1, rows.get(step.index, 1), share)
    return works


def layer_costs(partition: Partition, program: Program, counts: KernelCounts | None) -> tuple[LayerCost, ...]:
    rough = {assignment.index: assignment.cost for assignment in partition.assignments}
    works = layer_works(partition, program) if counts is not None else {}
    rows = []
    for step in program.steps:
        from_counts = None
        if counts is not None and step.index in works:
            from_counts = counts.instructions(*works[step.index])
        instructions = rough.get(step.index, 0.0) if from_counts is None else from_counts
        constants = sum(constant.table.size_bytes for constant in step.constants)
        counted = from_counts is not None and counts is not None and counts.has(works[step.index][0])
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

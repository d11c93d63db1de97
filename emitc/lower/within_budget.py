"""The graph partitioned, scheduled and lowered, with as much scratch for its kernels as the options allow.

The kernels depend on the scratch that they may have, and the arena depends on the kernels. So the search of
`schedule.scratch_budget` asks for the schedule under several limits. What it takes is lowered once.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from emitc.backends.contract import Settings
from emitc.backends.partition import Partition, Policy, open_backends, partition, require_expected, spend_flash
from emitc.errors import CannotCompile, Code, EmitcError, Where
from emitc.frontends.read import read_file
from emitc.ir import Graph, GraphStep
from emitc.lower import lower
from emitc.lower.layers import ConstantPlacement, lower_nodes
from emitc.lower.subgraphs import lower_subgraphs
from emitc.options import EXTERNAL, Options
from emitc.passes import CUT, LATE_PASSES, run_passes
from emitc.program import Origin, PassReport, Program
from emitc.schedule.arenas import ArenaOptions, Arenas, arenas_of
from emitc.schedule.memory_regions import Regions
from emitc.schedule.scratch_budget import fit_scratch
from emitc.schedule.stages import constant_bytes, in_parts
from emitc.target import load_target


def partition_graph(graph: Graph, options: Options) -> Partition:
    """The graph's nodes to backends, as the options ask. Raises EmitcError and CannotCompile as `partition` does."""
    _require_nodes(graph, options)

    def rewrite(cut: Graph) -> tuple[Graph, tuple[PassReport, ...], tuple[GraphStep, ...]]:
        steps = [GraphStep(CUT, cut)]
        rewritten, reports = run_passes(cut, options.disabled, LATE_PASSES, steps)
        return rewritten, reports, tuple(steps)

    settings = Settings(
        load_target(options.target),
        options.kernels,
        options.backends,
        frozenset(type(node.op) for node in graph.nodes),
        dict(options.variants),
        small=options.optimize == "size",
        external=options.weights == EXTERNAL,
        loaded=bool(options.stage_weights),
    )
    policy = Policy(options.kernels, options.fallback, options.cpu_only)
    return partition(graph, open_backends(settings), policy, rewrite)


def _require_nodes(graph: Graph, options: Options) -> None:
    """Raises EmitcError where `--kernel` names an operator that the graph does not have."""
    indices = [node.index for node in graph.nodes]
    for index, variant in sorted(options.variants):
        if index not in indices:
            what = f"the model has no operator {index} to choose a kernel for"
            why = f"its operators are {', '.join(map(str, indices))}"
            raise EmitcError(what, Where(option=f"--kernel op{index}={variant}"), why, "`emitc partition` lists them")


def lower_within_budget(
    graph: Graph, name: str, origin: Origin, options: Options, parted: Collection[int] = ()
) -> tuple[Partition, Program]:
    """The graph partitioned and lowered. Raises what `partition_graph` and `lower` raise.

    parted: layers, by index, whose input and output may share bytes only as far as they can run in parts.
    """
    regions = (
        Regions(options.regions, options.places, options.stage_weights, options.load_ahead) if options.regions else None
    )
    # Rows take code: where that is to be small, only a budget makes them, or an input that comes in rows anyway.
    few = options.optimize == "size" and not options.input_rows
    without = options.disabled | ({"streaming"} if few else set())
    prefix, external = f"{name}_" if options.split_weights else "", options.weights == EXTERNAL
    whole, parts = lower_subgraphs(
        partition_graph(graph, options), origin, without, ConstantPlacement("", "", prefix, external)
    )
    constants = constant_bytes(lower_nodes(whole))
    whole = spend_flash(whole, constants, options.flash_budget, small=options.optimize == "size")
    known: list[tuple[int | None, bool, Arenas]] = []

    def scheduled(
        limits: Mapping[int, int], budget: int | None = options.arena_budget, accept_first_fit: bool = False
    ) -> Arenas:
        partition = whole.within(limits)
        # Most limits of scratch lead to the kernels of limits before.
        for *request, arenas in known:
            if request == [budget, accept_first_fit] and arenas.partition.lowers_as(partition):
                return replace(arenas, partition=partition)
        arena_options = ArenaOptions(budget, without, regions, accept_first_fit)
        known.append(
            (budget, accept_first_fit, arenas_of(partition, in_parts(lower_nodes(partition), parted), arena_options))
        )
        return known[-1][2]

    by_rows = None if regions or "streaming" in without else scheduled
    nodes = [node.index for node in graph.nodes]
    arenas = fit_scratch(scheduled, nodes, options.ram_budget, options.optimize, by_rows)
    if options.expect_partition is not None:
        text = read_file(options.expect_partition).decode("utf-8", "replace")
        require_expected(arenas.partition.to_json(), text, options.expect_partition.name)
    placement = ConstantPlacement(
        regions.weights if regions else "", regions.staged if regions else "", prefix, external
    )
    _require_flash(constant_bytes(tuple(arenas.nodes())), options.flash_budget, origin)
    # The candidates keep the tables of every variant alive.
    return replace(arenas.partition, choices={}), lower(arenas, name, origin, placement, parts)


def _require_flash(constants: int, budget: int | None, origin: Origin) -> None:
    if budget is not None and constants > budget:
        what = f"the constants have {constants} bytes, {constants - budget} over the budget"
        where = Where(model=origin.model_file, option=f"--flash-budget {budget}")
        why = "these are the weights, biases and tables of all layers, without their code"
        raise CannotCompile(what, where, why, "a smaller model, or weights of four bits", Code.FLASH)


def require_budget(program: Program, budget: int | str | None, io: str) -> None:
    """Refuses an arena over --ram-budget, naming what sets its size. budget, io: the values of the options."""
    arena = program.plan.arena_bytes
    if budget is None or isinstance(budget, str) or arena <= budget:
        return
    float_ends = io == "keep" and any(p.dtype == "float32" for p in (*program.inputs, *program.outputs))
    slots = {p.name: s for p, s in zip(program.plan.placements, program.slots, strict=True)}
    peak = "; ".join(f"{slots[n].what}: {slots[n].size_bytes} bytes" for n in program.plan.peak_buffers)
    what = f"the smallest arena found has {arena} bytes, {arena - budget} over the budget"
    where = Where(model=program.origin.model_file, op=program.peak_op, option=f"--ram-budget {budget}")
    hint = "--io int8, since the interface is float" if float_ends else "a smaller input, or fewer channels at the peak"
    raise CannotCompile(what, where, f"alive at once at {program.peak_op}: {peak}", hint)

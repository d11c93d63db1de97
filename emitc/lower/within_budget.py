"""The graph partitioned and lowered, with as much working memory for its kernels as the options allow.

The kernels of a partition depend on the working memory that they may have, and the arena depends on the kernels. So the search
of `schedule.scratch_budget` asks for the graph partitioned and lowered under several limits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from emitc.backends.contract import Settings
from emitc.backends.partition import Partition, Policy, open_backends, partition, require_expected
from emitc.errors import EmitcError, Where
from emitc.frontends.read import read_file
from emitc.ir import Graph, GraphStep
from emitc.lower import ArenaOptions, lower
from emitc.lower.subgraphs import lower_subgraphs
from emitc.options import Options
from emitc.passes import CUT, LATE_PASSES, run_passes
from emitc.program import Origin, PassReport, Program
from emitc.schedule.memory_regions import Regions
from emitc.schedule.scratch_budget import fit_scratch
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
    )
    policy = Policy(options.kernels, options.fallback, options.cpu_only)
    return partition(graph, open_backends(settings), policy, rewrite)


def _require_nodes(graph: Graph, options: Options) -> None:
    """Raises EmitcError where `--kernel` names an operator that the graph does not have."""
    indices = [node.index for node in graph.nodes]
    for index, variant in sorted(options.variants):
        if index not in indices:
            raise EmitcError(
                f"the model has no operator {index} to choose a kernel for",
                Where(option=f"--kernel op{index}={variant}"),
                f"its operators are {', '.join(map(str, indices))}",
                "`emitc partition` lists them",
            )


def lower_within_budget(graph: Graph, name: str, origin: Origin, options: Options) -> tuple[Partition, Program]:
    """The graph partitioned and lowered. Raises what `partition_graph` and `lower` raise."""
    regions = Regions(options.regions, options.places) if options.regions else None
    # Rows take code: where that is to be small, only a budget makes them, or an input that comes in rows anyway.
    few = options.optimize == "size" and not options.input_rows
    without = options.disabled | ({"streaming"} if few else set())
    whole = partition_graph(graph, options)
    programs: list[tuple[int | None, bool, Partition, Program]] = []

    def lowered(
        working: Mapping[int, int], budget: int | None = options.arena_budget, rough: bool = False
    ) -> tuple[Partition, Program]:
        found, parts = lower_subgraphs(whole.within(working), origin, without)
        # Limits of working memory that lead to the same kernels are the rule.
        for asked, roughly, known, program in programs:
            if (asked, roughly) == (budget, rough) and not parts and known.lowers_as(found):
                return found, program
        program = lower(found, name, origin, ArenaOptions(budget, without, regions, rough=rough), parts)
        programs.append((budget, rough, found, program))
        return found, program

    by_rows = None if regions or "streaming" in without else lowered
    nodes = [node.index for node in graph.nodes]
    found, program = fit_scratch(lowered, nodes, options.ram_budget, options.optimize, by_rows)
    if options.expect_partition is not None:
        text = read_file(options.expect_partition).decode("utf-8", "replace")
        require_expected(found.to_json(), text, options.expect_partition.name)
    return replace(found, choices={}), program  # The candidates keep the tables of every variant alive.

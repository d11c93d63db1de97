"""The graphs inside IF and WHILE as parts of the program: each planned in an arena of its own, which is the operator's scratch.

Only one of an operator's graphs runs at a time, so that its scratch is as large as the largest arena among them. Their operators
run on emitc's own kernels.
"""

from collections.abc import Mapping
from dataclasses import replace

from emitc.backends.contract import PORTABLE
from emitc.backends.partition import Partition, Policy, partition
from emitc.ir import Graph, Node
from emitc.kernels.control_flow.control_flow import ControlFlow
from emitc.layer import Scratch
from emitc.lower import lower
from emitc.lower.layers import ConstantPlacement, lower_nodes
from emitc.program import Origin, Program
from emitc.schedule.arenas import ArenaOptions, arenas_of

Parts = Mapping[int, tuple[Program, ...]]


def lower_subgraphs(
    whole: Partition, origin: Origin, without: frozenset[str], placement: ConstantPlacement
) -> tuple[Partition, Parts]:
    """The partition with the scratch of every operator that runs graphs, and these as programs by the operator's index.

    placement: how the constants are named and whether they are to be external.
    """
    parts: dict[int, tuple[Program, ...]] = {}
    layers = dict(whole.layers)
    for node in whole.graph.nodes:
        if not isinstance(node.op, ControlFlow):
            continue
        parts[node.index] = tuple(
            _part(whole, (node, graph, name), origin, without, placement)
            for graph, name in zip(node.op.graphs, node.op.parts, strict=True)
        )
        arena_bytes = max(part.plan.arena_bytes for part in parts[node.index])
        layers[node.index] = replace(layers[node.index], scratch=(Scratch("scratch", max(arena_bytes, 1)),))
    return (replace(whole, layers=layers), parts) if parts else (whole, {})


def state_args_of(graph: Graph, node: Node) -> dict[str, int]:
    """The variables that a node hands to a graph, each as the number of the node's output that it is."""
    own = [name for name in graph.inputs if graph.tensor(name).is_state]
    first = len(node.outputs) - len(own)
    return {name: number for number, name in enumerate(own, first)}


def _part(
    whole: Partition,
    part: tuple[Node, Graph, str],
    origin: Origin,
    without: frozenset[str],
    placement: ConstantPlacement,
) -> Program:
    """The program of one graph. part: the operator that runs it, the graph, and what it is to the operator."""
    node, graph, name = part
    inner = partition(graph, {PORTABLE: whole.backends[PORTABLE]}, Policy())
    inner, parts = lower_subgraphs(inner, origin, without, placement)
    options = ArenaOptions(without=without | {"moves", "streaming"})
    return lower(
        arenas_of(inner, lower_nodes(inner), options),
        f"op{node.index}_{name}",
        origin,
        replace(placement, weights="", staged=""),
        parts,
        state_args=state_args_of(graph, node),
        prefix=f"OP{node.index}_{name.upper()}_",
    )

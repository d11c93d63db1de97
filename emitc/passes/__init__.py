"""Graph to Graph rewrites, in order. Each is one function, can be switched off by name, and is counted in the manifest."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from emitc.ir import Graph, GraphStep, Node
from emitc.kernels.control_flow.control_flow import ControlFlow
from emitc.passes.drop_constant_channels import drop_constant_channels
from emitc.passes.fold import fold_bias, fold_pad, fold_zero_point, fuse_activation
from emitc.passes.recognise_qdq import recognise_qdq
from emitc.passes.simplify import alias_views, drop_dead, fold_constants, inline_branches
from emitc.passes.state_in_place import state_in_place
from emitc.passes.tabulate_functions import tabulate_functions
from emitc.passes.transposes import absorb_transposes, cancel_transposes
from emitc.passes.verify_graph import verify_graph
from emitc.program import PassReport

Pass = Callable[[Graph], Graph]

PASSES: tuple[tuple[str, Pass], ...] = (
    ("cancel-transposes", cancel_transposes),
    ("recognise-qdq", recognise_qdq),
    ("absorb-transposes", absorb_transposes),
    ("fold-constants", fold_constants),
    ("inline-branches", inline_branches),
    ("tabulate-functions", tabulate_functions),
    ("drop-dead", drop_dead),
    ("alias-views", alias_views),
    ("fold-bias", fold_bias),
    ("fuse-activation", fuse_activation),
    ("fold-pad", fold_pad),
    ("drop-constant-channels", drop_constant_channels),
    ("fold-zero-point", fold_zero_point),
)
"""Name and function. The order matters: Transposes must be out of the way of QDQ groups, these be recognised before constants
are folded, which would dequantize the weights, and padding folded before the zero point, which folds only without."""


BUILT, INTERFACE, INNER, ROWS, CUT = "graph", "--io", "inner graphs", "--input-rows", "partition"
"""Names of steps that are no passes: the graph as it was built, the interface that was asked for, the rewritten graphs inside of
operators, an input that is asked for by rows, and the regions of accelerators."""

LATE_PASSES: tuple[tuple[str, Pass], ...] = (("state-in-place", state_in_place),)
"""Done when accelerators have cut their regions out of the graph: they take operators that these passes do away with."""


def _changes(before: Graph, after: Graph) -> int:
    """Nodes that are gone, new or different."""
    old, new = set(before.nodes), set(after.nodes)
    return max(len(old - new), len(new - old))


def run_passes(
    graph: Graph,
    disabled: frozenset[str] = frozenset(),
    passes: Sequence[tuple[str, Pass]] = PASSES,
    history: list[GraphStep] | None = None,
    inside: tuple[str, ...] = (),
) -> tuple[Graph, tuple[PassReport, ...]]:
    """The rewritten graph and a report of each pass; the graph is verified before and after each.

    The graphs inside of operators are rewritten in the same way, which the reports do not count. history: gets the graph after
    each enabled pass; an inner graph, which `inside` names, is listed before its first pass too.
    """
    history = [] if history is None else history
    verify_graph(graph)
    reports: list[PassReport] = []
    for name, function in passes:
        before = graph
        if name not in disabled:
            graph = function(graph)
            if graph is not before:
                verify_graph(graph)
            history.append(GraphStep(name, graph, inside))
        reports.append(
            PassReport(name, name not in disabled, len(before.nodes), len(graph.nodes), _changes(before, graph))
        )
    if not any(isinstance(node.op, ControlFlow) for node in graph.nodes):
        return graph, tuple(reports)

    def rewritten(node: Node, name: str, subgraph: Graph) -> Graph:
        place = (*inside, f"{node.describe()} {name}")
        history.append(GraphStep(BUILT, subgraph, place))
        return run_passes(subgraph, disabled, passes, history, place)[0]

    def with_inner(node: Node) -> Node:
        if not isinstance(node.op, ControlFlow):
            return node
        names = node.op.parts or tuple(f"graph {number}" for number in range(len(node.op.graphs)))
        graphs = tuple(rewritten(node, name, subgraph) for name, subgraph in zip(names, node.op.graphs, strict=True))
        return replace(node, op=replace(node.op, graphs=graphs))

    graph = _numbered(replace(graph, nodes=tuple(map(with_inner, graph.nodes))))
    history.append(GraphStep(INNER, graph, inside))
    return graph, tuple(reports)


def _numbered(graph: Graph) -> Graph:
    """The graph with a unique number for every operator inside: passes number new ones by their own graph alone."""
    taken = {node.index for node in graph.nodes}
    last = max(_numbers(graph), default=0)

    def inside(numbered: Graph) -> Graph:
        nonlocal last
        nodes = []
        for node in numbered.nodes:
            if node.index in taken:
                last += 1
                node = replace(node, index=last)
            taken.add(node.index)
            nodes.append(with_graphs(node))
        return replace(numbered, nodes=tuple(nodes))

    def with_graphs(node: Node) -> Node:
        if not isinstance(node.op, ControlFlow):
            return node
        return replace(node, op=replace(node.op, graphs=tuple(map(inside, node.op.graphs))))

    return replace(graph, nodes=tuple(map(with_graphs, graph.nodes)))


def _numbers(graph: Graph) -> Iterator[int]:
    for node in graph.nodes:
        yield node.index
        for inner in node.op.graphs if isinstance(node.op, ControlFlow) else ():
            yield from _numbers(inner)

"""The proof of QDQ layers inside of If, Loop and Scan: operator by operator, like those outside (`operator_checks`).

The numpy references run the model, and say with which inputs the graphs inside were run. The engine runs each such
graph as a model of its own on these. Every operator is compared on the engine's own inputs to it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from emitc.compiled import Compiled
from emitc.errors import EmitcError
from emitc.ir import Array, Graph, Numerics
from emitc.kernels.control_flow.control_flow import ControlFlow
from emitc.kernels.shared.subgraph_reference import watched
from emitc.verify.engines.onnx import inner_model
from emitc.verify.engines.run import run_isolated
from emitc.verify.engines.tensor_names import by_tensor
from emitc.verify.operator_checks import Group, OperatorCheck, has_operator_checks
from emitc.verify.reference import Sample, random_samples, run_reference
from emitc.verify.tolerances import rules

_MOST_RUNS = 200
"""Of a graph at a time, whose tensors are all in memory."""
_MORE_SAMPLES = 100
"""Runs of the engine at a time, whose tensors are all in memory; and in all where only elements are few."""
_MOST_SAMPLES = 2000
"""Runs that are drawn in all where a rate is in doubt."""


def running_groups(graph: Graph, floats: bool = False) -> frozenset[int]:
    """The operators with QDQ layers inside, by index: they may be off as far as these may be. floats: all that run graphs."""
    return frozenset(
        node.index
        for node in graph.nodes
        if isinstance(node.op, ControlFlow)
        and (floats or any(has_operator_checks(g) or running_groups(g) for g in node.op.graphs))
    )


def _graphs_inside(graph: Graph) -> Iterator[Graph]:
    for node in graph.nodes:
        if isinstance(node.op, ControlFlow):
            for inner in node.op.graphs:
                yield inner
                yield from _graphs_inside(inner)


class InnerCheck:
    """Compares the operators of graphs inside that have QDQ layers, and counts them by type. floats: of all graphs inside.

    judged: whether there are such graphs among those that ran, and every operator in them that has to be was compared.
    """

    def __init__(self, compiled: Compiled, reference: str, *, floats: bool = False) -> None:
        self._compiled = compiled
        self._floats = floats
        engine = compiled.source.format == "onnx" and reference in ("auto", "onnxruntime")
        inside = _graphs_inside(compiled.graph) if engine else ()
        self._graphs = {id(graph): graph for graph in inside if floats or has_operator_checks(graph)}
        self._checks: dict[int, OperatorCheck] = {}
        self._left: set[int] = set()
        self._runs = 0

    @property
    def judged(self) -> bool:
        """See the class."""
        return bool(self._checks) and not self._left

    def add(self, samples: Sequence[Sample]) -> None:
        seen: dict[int, list[tuple[Array, ...]]] = {}
        self._runs = 0

        def watch(graph: Graph, inputs: Sequence[Array | None]) -> None:
            runs = seen.setdefault(id(graph), [])
            if id(graph) in self._graphs and len(runs) < _MOST_RUNS:
                runs.append(tuple(value for value in inputs if value is not None))

        if self._graphs:
            with watched(watch):
                for inputs in samples:
                    run_reference(self._compiled.graph, inputs)
        for key, graph in self._graphs.items():
            if seen.get(key) and not self._compared(graph, seen[key]):
                self._left.add(key)

    def _compared(self, graph: Graph, cases: Sequence[tuple[Array, ...]]) -> bool:
        """Whether the engine has run a graph, and every QDQ layer in it has been compared."""
        data = inner_model(self._compiled.model_bytes, graph, cases[0])
        if data is None:
            return False
        try:
            run = run_isolated(data, cases, source_format="onnx", preserve=True)
        except EmitcError:  # the graph reads what the file gives it in another way
            return False
        running = running_groups(graph, self._floats)
        check = self._checks.setdefault(
            id(graph), OperatorCheck(graph, rules(graph, "onnx"), running, floats=self._floats)
        )
        self._runs += len(cases)
        for inputs, tensors in zip(cases, run.tensors, strict=True):
            values = {**by_tensor(graph, "onnx", tensors), **dict(zip(graph.inputs, inputs, strict=True))}
            check.add(values)
        if self._floats:
            return check.unjudged == 0
        return check.counted >= {node.index for node in graph.nodes if node.op.numerics is Numerics.QDQ}

    def wanted(self) -> int:
        """As that of OperatorCheck, in runs of the graph that needs most; 0 where the last runs of the model have led to none."""
        return max((check.wanted() for check in self._checks.values()), default=0) if self._runs else 0

    @property
    def in_doubt(self) -> bool:
        return any(check.in_doubt for check in self._checks.values())

    def groups(self) -> tuple[Group, ...]:
        return tuple(group for check in self._checks.values() for group in check.groups())


def merged(groups: Sequence[Group]) -> tuple[Group, ...]:
    """One group for each type of operator and rule."""
    merged_groups: dict[tuple[str, str], Group] = {}
    for group in groups:
        merged_groups.setdefault((group.op_type, group.kind), Group(group.op_type, group.kind)).add(group)
    return tuple(merged_groups[key] for key in sorted(merged_groups))


def judged(
    compiled: Compiled, cases: Sequence[Mapping[str, Array]], inner: InnerCheck, seed: int,
    run: Callable[[Sequence[Sample]], Sequence[Mapping[str, Array]]], resets: Sequence[int] = (), *, floats: bool = False,
) -> tuple[tuple[Group, ...], int]:  # fmt: skip
    """Every operator by itself; on more random inputs where a rate is not known well enough.

    cases: the engine's values by tensor name for each sample. inner: has seen the same samples. run: gives the engine's
    values for further ones. resets: the samples before which the state is reset. floats: as OperatorCheck has it. Returns the
    groups, and how many operators could not be compared.
    """
    without = running_groups(compiled.graph, floats) if inner.judged else frozenset()
    check = OperatorCheck(compiled.graph, rules(compiled.graph, compiled.source.format), without, floats=floats)
    for number, values in enumerate(cases):
        if number in resets:
            check.reset()
        check.add(values)
    runs = 0
    while True:
        left = (_MOST_SAMPLES if check.in_doubt or inner.in_doubt else _MORE_SAMPLES) - runs
        more = min(max(check.wanted(), inner.wanted()), _MORE_SAMPLES, left)
        if more <= 0:
            break
        seed, runs = seed + 1, runs + more
        drawn = random_samples(compiled.graph, more, seed)
        check.reset()
        for values in run(drawn):
            check.add(values, sums=True)
        inner.add(drawn)
    return merged((*check.groups(), *inner.groups())), check.unjudged

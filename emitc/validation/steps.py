"""Every step from the graph as it was built to the graph that is lowered, validated on the same inputs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from emitc.ir import Array, DType, Graph, GraphStep, Tensor
from emitc.passes import BUILT, INTERFACE
from emitc.validation.tolerance import Judge
from emitc.validation.values import Comparison, Executed, executed
from emitc.verify.samples import Sample


@dataclass(slots=True)
class Chain:
    """Steps of one graph, the first of which is the graph as it was built. states: of each step, the variables' values."""

    steps: tuple[GraphStep, ...]
    states: list[dict[str, Array]] = field(default_factory=list)
    judges: dict[int, Judge] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.states = [{} for _ in self.steps]

    @property
    def built(self) -> Graph:
        return self.steps[0].graph

    def run(self, inputs: Sample, source_format: str) -> list[Executed]:
        """One run of every graph of the chain, the next one of a sequence where there is state. Raises Faulty."""
        runs = [executed(self.built, inputs, self.states[0])]
        for place in range(1, len(self.steps)):
            before, step = self.steps[place - 1], self.steps[place]
            if step.graph is before.graph or step.graph == before.graph:
                self.states[place] = self.states[place - 1]
                runs.append(runs[-1])
                continue
            if place not in self.judges:
                self.judges[place] = Judge(step.name, before.graph, source_format)
            comparing = _Interface if step.name == INTERFACE else Comparison
            comparison = comparing(step.name, runs[-1], step.graph, self.states[place], self.judges[place])
            runs.append(comparison.compare())
        return runs


class _Interface(Comparison):
    """`--io`: an input or output may be the quantized tensor instead of the float one, if it has the same real values."""

    def ends(self) -> None:
        """Compares real values where the interface has another tensor than before."""
        pairs = list(zip(self.graph.inputs, self.old.graph.inputs, strict=True))
        pairs += list(zip(self.graph.outputs, self.old.graph.outputs, strict=True))
        for name, old in pairs:
            tensor, before = self.graph.tensor(name), self.old.graph.tensor(old)
            if name == old:
                continue
            if before.dtype is not DType.FLOAT32 or tensor.quantization is None or name not in self.known:
                self.fault(self._behind(name), tensor, -1, f"it is instead of {before.describe()}")
            count = tensor.elements - int(_stands_for(tensor, self.known[name], self.old.values[old]).sum())
            if count:
                self.fault(self._behind(name), tensor, count, f"it has other values than {before.describe()}")


def _stands_for(tensor: Tensor, stored_values: Array, real: Array) -> Array:
    """Which quantized elements are the nearest ones to real values."""
    q, (least, most) = tensor.quantization, tensor.dtype.range
    assert q is not None
    shape = [-1 if i == q.axis else 1 for i in range(len(tensor.shape))] if not q.per_tensor else []
    scales, zeros = (np.array(v, np.float64).reshape(shape) for v in (q.scales, q.zero_points))
    stored = stored_values.astype(np.float64).reshape(tensor.shape)
    exact = real.astype(np.float64).reshape(tensor.shape) / scales + zeros
    near = np.abs(stored - np.clip(exact, least, most)) <= 0.5 + 1e-3
    return np.asarray(near | ~np.isfinite(exact))


def chains(history: Sequence[GraphStep]) -> tuple[Chain, ...]:
    """The main graph's steps, and those of every graph inside of an operator, each under its own first graph."""
    main = tuple(step for step in history if not step.inside)
    parts: list[list[GraphStep]] = []
    latest: dict[
        tuple[str, ...], list[GraphStep]
    ] = {}  # of an inner graph; others are inside of it and come in between
    for step in (step for step in history if step.inside):
        if step.name == BUILT:
            latest[step.inside] = []
            parts.append(latest[step.inside])
        latest[step.inside].append(step)
    return (Chain(main), *(Chain(tuple(part)) for part in parts))


def compared_steps(chain: Chain) -> Iterator[GraphStep]:
    for before, step in zip(chain.steps, chain.steps[1:], strict=False):
        if step.graph is not before.graph and step.graph != before.graph:
            yield step

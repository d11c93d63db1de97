"""A graph inside an operator, executed by its operators' references."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from emitc.ir import Array, Graph

Watch = Callable[[Graph, Sequence[Array | None]], None]
_WATCH: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """A context that calls the function with every graph that runs inside of an operator, and with its inputs."""
    token = _WATCH.set(watch)
    try:
        yield
    finally:
        _WATCH.reset(token)


def executed(graph: Graph, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The values that are given, and what the operators' references make of them and of the constants, by tensor name."""
    from emitc.kernels import kernel_of

    values = {t.name: t.array() for t in graph.tensors if t.is_constant} | dict(inputs)

    def known(name: str) -> Array:
        tensor = graph.tensor(name)
        if name not in values:
            values[name] = known(tensor.alias_of).reshape(tensor.shape)
        return values[name]

    for bound in graph.bound():
        operands = [None if t is None else known(t.name) for t in bound.inputs]
        for tensor, result in zip(bound.outputs, kernel_of(bound).reference(bound, operands), strict=True):
            assert result.shape == tensor.shape and result.dtype.name == tensor.dtype.value, tensor.describe()
            values[tensor.name] = result
    for name in graph.outputs:
        known(name)
    return values


def run_nested(graph: Graph, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """The graph's outputs for its inputs, in their order. State variables are among both."""
    watch = _WATCH.get()
    if watch is not None:
        watch(graph, inputs)
    operands = {name: value for name, value in zip(graph.inputs, inputs, strict=True) if value is not None}
    values = executed(graph, operands)
    return tuple(values[name] for name in graph.outputs)


def nested_work(graph: Graph) -> int:
    from emitc.kernels import kernel_of

    return sum(kernel_of(inner).work(inner) for inner in graph.bound())


def nested_macs(graph: Graph) -> int:
    from emitc.kernels import kernel_of

    return sum(kernel_of(inner).lower(inner).macs for inner in graph.bound())

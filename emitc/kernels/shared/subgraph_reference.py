"""A graph inside an operator, executed by its operators' references."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

from emitc.ir import Array, Graph

Watch = Callable[[Graph, Sequence[Array | None]], None]
_WATCH: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextmanager
def watched(watch: Watch) -> Iterator[None]:
    """While it lasts, the function is told of every graph that runs inside of an operator, and of its inputs."""
    token = _WATCH.set(watch)
    try:
        yield
    finally:
        _WATCH.reset(token)


def run_nested(graph: Graph, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """The graph's outputs for its inputs, in their order. State variables are among both."""
    from emitc.kernels import kernel_of

    watch = _WATCH.get()
    if watch is not None:
        watch(graph, inputs)
    values: dict[str, Array] = {t.name: t.array() for t in graph.tensors if t.is_constant}
    for name, value in zip(graph.inputs, inputs, strict=True):
        assert value is not None
        values[name] = value

    def known(name: str) -> Array:
        tensor = graph.tensor(name)
        if name not in values:
            values[name] = known(tensor.alias_of).reshape(tensor.shape)
        return values[name]

    for inner in graph.bound():
        operands = [None if t is None else known(t.name) for t in inner.inputs]
        for tensor, result in zip(inner.outputs, kernel_of(inner).reference(inner, operands), strict=True):
            values[tensor.name] = result
    return tuple(known(name) for name in graph.outputs)


def nested_work(graph: Graph) -> int:
    """Steps of all operators inside."""
    from emitc.kernels import kernel_of

    return sum(kernel_of(inner).work(inner) for inner in graph.bound())


def nested_macs(graph: Graph) -> int:
    """Multiply-accumulates of all operators inside."""
    from emitc.kernels import kernel_of

    return sum(kernel_of(inner).lower(inner).macs for inner in graph.bound())

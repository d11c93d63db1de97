"""Deliberate faults of a pass: its graph with one thing wrong where it has rewritten something, legal all the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import numpy as np

from emitc.errors import EmitcError
from emitc.ir import Array, BoundNode, DType, Graph, Node, Tensor
from emitc.kernels.control_flow.control_flow import ControlFlow
from emitc.kernels.npu.npu_command import Offloaded
from emitc.passes.verify_graph import verify_graph

_ACTIVATIONS = ("NONE", "RELU", "RELU6", "RELU_N1_TO_1")


@dataclass(frozen=True, slots=True)
class GraphMutant:
    """A graph with a fault. kind: of fault; what: where and how."""

    kind: str
    what: str
    graph: Graph


def _with_node(graph: Graph, old: Node, new: Node) -> Graph:
    return replace(graph, nodes=tuple(new if node is old else node for node in graph.nodes))


def _with_tensor(graph: Graph, old: Tensor, new: Tensor) -> Graph:
    return replace(graph, tensors=tuple(new if tensor is old else tensor for tensor in graph.tensors))


def _others(value: Any) -> Iterator[tuple[str, Any]]:
    """Values of an attribute that differ a little."""
    if isinstance(value, bool):
        yield "negated", not value
    elif isinstance(value, int):
        yield "one more", value + 1
        yield "one less", value - 1
    elif isinstance(value, float):
        yield "half", value / 2
    elif isinstance(value, str) and value in _ACTIVATIONS:
        yield from ((f"activation {other}", other) for other in _ACTIVATIONS if other != value)
    elif isinstance(value, tuple) and len(value) > 1 and all(isinstance(v, int) for v in value):
        if value[0] != value[-1]:
            yield "ends swapped", (value[-1], *value[1:-1], value[0])
        yield "rolled", (*value[1:], value[0])
        yield "first one more", (value[0] + 1, *value[1:])
    elif is_dataclass(value) and not isinstance(value, type | Graph):
        yield from _members(value)


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    names = {f.name for f in fields(value)}
    for first, second in (("top", "bottom"), ("left", "right"), ("stride_h", "stride_w")):
        if {first, second} <= names and getattr(value, first) != getattr(value, second):
            swapped = {first: getattr(value, second), second: getattr(value, first)}
            yield f"{first} and {second} swapped", replace(value, **swapped)
    for name in sorted(names - {"numerics", "graphs", "region", "layer"}):
        for what, other in _others(getattr(value, name)):
            yield f"{name} {what}", replace(value, **{name: other})


def _attributes(graph: Graph, node: Node) -> Iterator[GraphMutant]:
    for what, op in _members(node.op):
        yield GraphMutant("attribute", f"{node.describe()}: {what}", _with_node(graph, node, replace(node, op=op)))


def _perturbed(values: Array) -> Iterator[tuple[str, Array]]:
    flat = values.reshape(-1)
    for place, what in ((0, "first"), (flat.size // 2, "middle"), (flat.size - 1, "last")):
        other = flat.copy()
        if flat.dtype.kind == "f":
            other[place] += np.asarray(0.5, flat.dtype)
        elif flat.dtype.itemsize == 1:
            other[place] = (int(other[place]) ^ 0x40) if flat.dtype != bool else not other[place]
        else:
            other[place] = int(other[place]) + 997
        yield f"{what} element changed", other
    yield "rolled", np.roll(flat, 1)
    yield "negated", _negated(flat)
    if values.ndim > 1 and values.shape[0] > 1:
        yield "first slices swapped", values[[1, 0, *range(2, values.shape[0])]].reshape(-1)


def _negated(flat: Array) -> Array:
    if flat.dtype.kind not in "iu":
        return (-flat.astype(np.float64)).astype(flat.dtype)
    info = np.iinfo(flat.dtype.name)
    return (-flat.astype(np.int64)).clip(int(info.min), int(info.max)).astype(flat.dtype)


def _constants(graph: Graph, tensors: Sequence[Tensor]) -> Iterator[GraphMutant]:
    for tensor in tensors:
        if not tensor.is_constant or tensor.dtype in (DType.INT4, DType.BOOL):
            continue
        for what, values in _perturbed(tensor.array()):
            made = replace(tensor, data=np.ascontiguousarray(values).tobytes())
            yield GraphMutant("constant", f"{tensor.describe()}: {what}", _with_tensor(graph, tensor, made))


def _rewired(graph: Graph, bound: BoundNode) -> Iterator[GraphMutant]:
    node = bound.node
    for position, tensor in enumerate(bound.inputs):
        if tensor is None:
            continue
        alike = (t for t in graph.tensors if (t.dtype, t.shape) == (tensor.dtype, tensor.shape) and t is not tensor)
        for other in alike:
            inputs = (*node.inputs[:position], other.name, *node.inputs[position + 1 :])
            made = _with_node(graph, node, replace(node, inputs=inputs))
            yield GraphMutant("reader", f"{node.describe()} reads {other.describe()}", made)
    if len(node.inputs) > 1:
        inputs = (node.inputs[1], node.inputs[0], *node.inputs[2:])
        yield GraphMutant(
            "operands", f"{node.describe()}: operands swapped", _with_node(graph, node, replace(node, inputs=inputs))
        )
    if len(node.inputs) > 2:
        fewer = _with_node(graph, node, replace(node, inputs=node.inputs[:-1]))
        yield GraphMutant("bias", f"{node.describe()}: last operand dropped", fewer)
    if len(node.outputs) > 1:
        other_way = _with_node(graph, node, replace(node, outputs=node.outputs[::-1]))
        yield GraphMutant("outputs", f"{node.describe()}: outputs reversed", other_way)


def _scales(graph: Graph, tensors: Sequence[Tensor]) -> Iterator[GraphMutant]:
    for tensor in tensors:
        q = tensor.quantization
        if q is None or tensor.is_constant:
            continue
        zero = replace(q, zero_points=tuple(z + 1 for z in q.zero_points))
        twice = replace(q, scales=tuple(2 * s for s in q.scales))
        for what, other in (("zero point one more", zero), ("scale doubled", twice)):
            made = _with_tensor(graph, tensor, replace(tensor, quantization=other))
            yield GraphMutant("scale", f"{tensor.describe()}: {what}", made)


def _aliases(graph: Graph) -> Iterator[GraphMutant]:
    for tensor in graph.tensors:
        if not tensor.alias_of:
            continue
        for other in graph.tensors:
            alike = other.dtype is tensor.dtype and other.size_bytes == tensor.size_bytes
            if alike and other.name not in (tensor.name, tensor.alias_of) and not other.alias_of:
                made = _with_tensor(graph, tensor, replace(tensor, alias_of=other.name))
                yield GraphMutant("alias", f"{tensor.describe()} shares bytes with {other.describe()}", made)


def _ends(graph: Graph) -> Iterator[GraphMutant]:
    for position, name in enumerate(graph.outputs):
        tensor = graph.tensor(name)
        for other in graph.tensors:
            if other.name != name and (other.dtype, other.elements) == (tensor.dtype, tensor.elements):
                outputs = (*graph.outputs[:position], other.name, *graph.outputs[position + 1 :])
                yield GraphMutant("output", f"output {position} is {other.describe()}", replace(graph, outputs=outputs))
    if len(graph.outputs) > 1:
        yield GraphMutant("output", "outputs reversed", replace(graph, outputs=graph.outputs[::-1]))


def _operators(graph: Graph, near: Sequence[BoundNode]) -> Iterator[GraphMutant]:
    """The operator of another node."""
    for bound in near:
        for other in near:
            if type(bound.node.op) is not type(other.node.op) and len(bound.node.inputs) == len(other.node.inputs):
                made = _with_node(graph, bound.node, replace(bound.node, op=other.node.op))
                yield GraphMutant("operator", f"{bound.node.describe()} as {other.node.describe()}", made)


def _dropped(graph: Graph, bound: BoundNode) -> Iterator[GraphMutant]:
    """The node gone, its readers on its first input."""
    node = bound.node
    if len(node.outputs) != 1 or not node.inputs or not node.inputs[0]:
        if bound.outputs and all(tensor.is_state for tensor in bound.outputs):
            nodes = tuple(other for other in graph.nodes if other is not node)
            yield GraphMutant("node", f"{node.describe()} dropped", replace(graph, nodes=nodes))
        return
    old, new = node.outputs[0], node.inputs[0]
    if graph.tensor(old).is_state:
        nodes = tuple(other for other in graph.nodes if other is not node)
        yield GraphMutant("node", f"{node.describe()} dropped", replace(graph, nodes=nodes))
        return
    if old in graph.outputs or (graph.tensor(old).dtype, graph.tensor(old).shape) != (
        graph.tensor(new).dtype,
        graph.tensor(new).shape,
    ):
        return
    nodes = tuple(
        replace(other, inputs=tuple(new if name == old else name for name in other.inputs))
        for other in graph.nodes
        if other is not node
    )
    yield GraphMutant("node", f"{node.describe()} dropped", replace(graph, nodes=nodes))


def _states(graph: Graph) -> Iterator[GraphMutant]:
    for tensor in graph.states:
        first = tensor.initial_array().astype(np.int64) + 5
        made = replace(tensor, initial=first.astype(tensor.dtype.value).tobytes())
        yield GraphMutant("state", f"{tensor.describe()}: other first values", _with_tensor(graph, tensor, made))


def _order(graph: Graph) -> Iterator[GraphMutant]:
    for place in range(len(graph.nodes) - 1):
        nodes = list(graph.nodes)
        nodes[place : place + 2] = nodes[place + 1], nodes[place]
        what = f"{nodes[place].describe()} before {nodes[place + 1].describe()}"
        yield GraphMutant("order", what, replace(graph, nodes=tuple(nodes)))


def _regions(graph: Graph, bound: BoundNode) -> Iterator[GraphMutant]:
    """Faults inside of what an accelerator is to run."""
    op = bound.node.op
    if not isinstance(op, Offloaded):
        return
    for mutant in mutants_of(replace(op.region, nodes=(), tensors=()), op.region):
        try:
            verify_graph(mutant.graph)
        except (AssertionError, EmitcError, ArithmeticError, ValueError, LookupError, TypeError):
            continue
        made = _with_node(graph, bound.node, replace(bound.node, op=replace(op, region=mutant.graph)))
        yield GraphMutant(f"region's {mutant.kind}", mutant.what, made)


def mutants_of(before: Graph, after: Graph) -> Iterator[GraphMutant]:
    """The graph after a step with one fault each: first where the step has changed something, then next to that."""
    old_nodes, old_tensors = set(before.nodes), set(before.tensors)
    gone = {name for node in before.nodes if node not in set(after.nodes) for name in (*node.inputs, *node.outputs)}
    near = [b for b in after.bound() if b.node not in old_nodes]
    near += [b for b in after.bound() if b.node in old_nodes and gone & {*b.node.inputs, *b.node.outputs}]
    near = near or list(after.bound())
    fresh = [t for t in after.tensors if t not in old_tensors]
    read = {t.name: t for b in near for t in b.inputs if t is not None}
    constants = [t for t in fresh if t.is_constant] or [t for t in read.values() if t.is_constant]
    touched = fresh or [t for b in near for t in b.outputs]
    yield from _constants(after, constants)
    yield from _scales(after, [*touched, *(t for t in read.values() if t not in touched)])
    yield from _operators(after, near)
    yield from _aliases(after)
    yield from _ends(after)
    yield from _states(after)
    if after.states:
        yield from _order(after)
    for bound in near:
        if not isinstance(bound.node.op, ControlFlow):
            yield from _attributes(after, bound.node)
        yield from _rewired(after, bound)
        yield from _dropped(after, bound)
        yield from _regions(after, bound)

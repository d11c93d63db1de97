"""Transposes move down past operators that do not mind the order of dimensions, until they meet their inverse and vanish.

One sweep: a Transpose is not emitted where it stands but remembered, `name = transpose(source, permutation)`. An operator
all of whose computed operands are remembered with one permutation works on the sources instead, and its result is
remembered. What cannot do so gets the Transpose emitted in front of it. A Transpose that only moves dimensions of size 1
is a Reshape.

A Transpose that is left in front of a fully connected layer moves into its weights: the columns take the order of what comes in.
Between the two there may be operators that only change the shape. Legal where nobody else reads the Transpose, and it leaves the
rows alone. The rows are the dimensions in front of those that a row is made of.
"""

import math

import numpy as np

from emitc.errors import EmitcError
from emitc.ir import Array, Graph, Node, Op, Shape, Tensor, stored
from emitc.kernels import definition_of
from emitc.kernels.mac.accumulation import WEIGHTS
from emitc.kernels.matrix.fully_connected import FullyConnected
from emitc.kernels.movement.reshape import Reshape
from emitc.kernels.movement.transpose import Transpose
from emitc.kernels.quantization.quantize import Dequantize, Quantize
from emitc.kernels.reduction.mean import Reduction
from emitc.passes.rewriter import GraphRewriter, free_name, only_reader, with_nodes
from emitc.records import dataclass, replace

Permutation = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Turned:
    """A tensor that is `transpose(source, permutation)`."""

    source: str
    permutation: Permutation


def _shape_before(shape: Shape, permutation: Permutation) -> Shape:
    """The shape u of v = transpose(u, permutation)."""
    result = [0] * len(shape)
    for i, axis in enumerate(permutation):
        result[axis] = shape[i]
    return tuple(result)


def _inverse(permutation: Permutation) -> Permutation:
    return tuple(int(i) for i in np.argsort(permutation))


def _keeps_order(shape: Shape, permutation: Permutation) -> bool:
    """Whether the elements of u stay where they are in transpose(u, permutation): only dimensions of size 1 move."""
    moved = [axis for axis in permutation if shape[axis] != 1]
    return moved == sorted(moved)


class _Sweep:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.work = GraphRewriter.of(graph)
        self.turned: dict[str, _Turned] = {}

    def transpose(self, node: Node) -> None:
        """Remembers a Transpose, together with one that comes before it."""
        assert isinstance(node.op, Transpose)
        name = self.work.current(node.inputs[0])
        permutation = node.op.permutation
        before = self.turned.get(name)
        if before is not None:
            name, permutation = before.source, tuple(before.permutation[axis] for axis in permutation)
        output = node.outputs[0]
        if permutation == tuple(range(len(permutation))) and output not in self.graph.outputs:
            self.work.same[output] = name
        else:
            self.turned[output] = _Turned(name, permutation)

    def emit_remembered(self, name: str) -> None:
        """Emits the Transpose of a remembered tensor, or a Reshape where no element moves."""
        remembered = self.turned.pop(self.work.current(name), None)
        if remembered is None:
            return
        output = self.work.tensors[self.work.current(name)]
        source = self.work.tensors[remembered.source]
        if _keeps_order(source.shape, remembered.permutation):
            self.work.emit(Reshape(output.shape), "Reshape", (source.name,), (output.name,), output.label)
        else:
            self.work.emit(Transpose(remembered.permutation), "Transpose", (source.name,), (output.name,), output.label)

    def moved(self, node: Node) -> bool:
        """Emits the operator on the sources of its operands, if they are remembered alike and it does not mind."""
        operands = [self.work.current(name) for name in node.inputs if name]
        computed = [name for name in operands if not self.work.tensors[name].is_constant]
        turned = {self.turned.get(name) for name in computed}
        permutations = {t.permutation for t in turned if t is not None}
        if None in turned or len(permutations) != 1 or "" in node.inputs:
            return False
        (permutation,) = permutations
        op = self.operator(node, permutation)
        if op is None:
            return False
        rank, kernel = len(permutation), definition_of(node.op)
        inputs: list[str] = []
        for position, name in enumerate(operands):
            tensor = self.work.tensors[name]
            if name in self.turned:
                inputs.append(self.turned[name].source)
            elif position > 0 and not (kernel.elementwise or kernel.all_data):
                inputs.append(name)  # indices, statistics: what the rule for `transposed` leaves as it is
            elif (constant := self.constant(tensor, permutation)) is not None:
                inputs.append(constant)
            else:
                return False
        outputs = [self.work.tensors[name] for name in node.outputs]
        if any(len(tensor.shape) != rank for tensor in outputs):
            return False
        made = []
        for tensor in outputs:
            shape = _shape_before(tensor.shape, permutation)
            q = tensor.quantization
            if q is not None and not q.per_tensor:
                q = replace(q, axis=permutation[q.axis])
            made.append(self.work.tensor(tensor, "_turned", shape, quantization=q, order=_inverse(permutation)).name)
        if not self.emitted(replace(node, op=op, inputs=tuple(inputs), outputs=tuple(made))):
            return False
        self.turned.update(
            (tensor.name, _Turned(name, permutation)) for tensor, name in zip(outputs, made, strict=True)
        )
        return True

    def emitted(self, node: Node) -> bool:
        """Emits a node in its new place, unless its own check has no code for it there."""
        try:
            definition_of(node.op).check(self.work.bind(node))
        except EmitcError:
            return False
        self.work.nodes.append(node)
        return True

    def operator(self, node: Node, permutation: Permutation) -> Op | None:
        """The operator for operands in the order before the permutation; None where no operator does that."""
        kernel = definition_of(node.op)
        if isinstance(node.op, Quantize | Dequantize):
            source = self.work.tensors[
                node.outputs[0] if isinstance(node.op, Quantize) else self.work.current(node.inputs[0])
            ]
            return node.op if source.quantization is None or source.quantization.per_tensor else None
        if kernel.elementwise:
            return node.op
        return kernel.transposed(self.work.bind(node), permutation) if kernel.transposed else None

    def constant(self, tensor: Tensor, permutation: Permutation) -> str | None:
        """A constant operand in the order before the permutation."""
        rank = len(permutation)
        if len(tensor.shape) > rank or (tensor.quantization and not tensor.quantization.per_tensor):
            return None
        wide = tensor.array().reshape((1,) * (rank - len(tensor.shape)) + tensor.shape)
        data = np.ascontiguousarray(np.transpose(wide, _inverse(permutation)))
        if data.size == 1:
            return tensor.name
        made = self.work.tensor(
            tensor, "_turned", data.shape, quantization=tensor.quantization, data=stored(data, tensor.dtype)
        )
        return made.name

    def reduced(self, node: Node) -> bool:
        """A reduction whose dimensions are left out: those that remain come out in their old order, or are turned."""
        op = node.op
        if not isinstance(op, Reduction) or op.keep_dims:
            return False
        remembered = self.turned.get(self.work.current(node.inputs[0]))
        if remembered is None:
            return False
        rank = len(remembered.permutation)
        axes = tuple(sorted(remembered.permutation[axis % rank] for axis in op.axes))
        left = [remembered.permutation[i] for i in range(rank) if i not in {a % rank for a in op.axes}]
        output = self.work.tensors[node.outputs[0]]
        permutation = tuple(sorted(left).index(axis) for axis in left)
        new = replace(op, axes=axes)
        if permutation == tuple(range(len(left))):
            return self.emitted(replace(node, op=new, inputs=(remembered.source,)))
        shape = _shape_before(output.shape, permutation)
        made = self.work.tensor(output, "_turned", shape, quantization=output.quantization, order=_inverse(permutation))
        if not self.emitted(replace(node, op=new, inputs=(remembered.source,), outputs=(made.name,))):
            return False
        self.turned[output.name] = _Turned(made.name, permutation)
        return True

    def run(self) -> Graph:
        for node in self.graph.nodes:
            if isinstance(node.op, Transpose):
                self.transpose(node)
            elif not self.moved(node) and not self.reduced(node):
                for name in node.inputs:
                    if name:
                        self.emit_remembered(name)
                self.work.keep(node)
        for name in self.graph.outputs:
            self.emit_remembered(name)
        return self.work.finish()


def cancel_transposes(graph: Graph) -> Graph:
    """The graph with Transposes moved down and cancelled. Graphs without a Transpose stay as they are."""
    if not any(isinstance(node.op, Transpose) for node in graph.nodes):
        return graph
    after = _Sweep(graph).run()
    # A net whose Transposes are at its ends already gets nothing from moving them about.
    count = [sum(isinstance(n.op, Transpose) for n in g.nodes) for g in (graph, after)]
    return after if count[1] < count[0] else graph


# ---- into the weights of fully connected layers ----


def _transpose_before(graph: Graph, node: Node) -> tuple[list[Node], Node] | None:
    """The views in front of a node's first input, nearest first, and the Transpose that feeds them."""
    views: list[Node] = []
    name = node.inputs[0]
    while True:
        producer = graph.producer(name)
        if producer is None or only_reader(graph, name) is None:
            return None
        if isinstance(producer.op, Transpose):
            return views, producer
        if not definition_of(producer.op).view:
            return None
        views.append(producer)
        name = producer.inputs[0]


def _reordered(weights: Tensor, shape: tuple[int, ...], permutation: tuple[int, ...]) -> Array | None:
    """Weights [O, I] for rows in the order before `transpose(u, permutation)` of that shape; None where rows are cut."""
    depth = weights.shape[1]
    for first in range(len(shape)):
        if math.prod(shape[first:]) == depth and permutation[:first] == tuple(range(first)):
            inner = tuple(axis - first for axis in permutation[first:])
            blocks = weights.array().reshape(weights.shape[0], *shape[first:])
            order = (0, *(1 + int(i) for i in np.argsort(inner)))
            return np.ascontiguousarray(blocks.transpose(order)).reshape(weights.shape)
    return None


def _one_less(graph: Graph) -> Graph | None:
    """The graph without the first such Transpose; None where no Transpose is like that."""
    for node in graph.nodes:
        if not isinstance(node.op, FullyConnected) or not graph.tensor(node.inputs[WEIGHTS]).is_constant:
            continue
        weights = graph.tensor(node.inputs[WEIGHTS])
        before = _transpose_before(graph, node)
        if before is None or (weights.quantization and weights.quantization.axis != 0):
            continue
        views, transpose = before
        assert isinstance(transpose.op, Transpose)
        if not views and graph.tensor(transpose.inputs[0]).shape[-1] != weights.shape[1]:
            continue  # a column: only a view would make a row of it
        data = _reordered(weights, graph.tensor(transpose.outputs[0]).shape, transpose.op.permutation)
        if data is None:
            continue
        name = free_name(f"{weights.name}:{node.index}", {tensor.name for tensor in graph.tensors})
        turned = replace(weights, name=name, data=stored(data, weights.dtype))
        source = transpose.inputs[0]
        made = replace(node, inputs=(node.inputs[0] if views else source, name, *node.inputs[2:]))
        changed: dict[int, Node | None] = {node.index: made}
        if views:
            changed[views[-1].index] = replace(views[-1], inputs=(source, *views[-1].inputs[1:]))
        changed[transpose.index] = None
        return _renamed(with_nodes(graph, changed, (turned,)), [view.outputs[0] for view in views])
    return None


def _renamed(graph: Graph, names: list[str]) -> Graph:
    """The graph with other names for views whose elements now come in another order than the model's value of that name."""
    taken = {tensor.name for tensor in graph.tensors}
    fresh: dict[str, str] = {}
    for name in names:
        fresh[name] = free_name(f"{name}_unturned", taken)
        taken.add(fresh[name])
    nodes = tuple(
        replace(
            node,
            inputs=tuple(fresh.get(name, name) for name in node.inputs),
            outputs=tuple(fresh.get(name, name) for name in node.outputs),
        )
        for node in graph.nodes
    )
    tensors = tuple(
        replace(t, name=fresh[t.name], label=f"{t.label}_unturned" if t.label else "", source=-1)
        if t.name in fresh
        else t
        for t in graph.tensors
    )
    return replace(graph, tensors=tensors, nodes=nodes)


def absorb_transposes(graph: Graph) -> Graph:
    """The graph without Transposes in front of fully connected layers."""
    while (less := _one_less(graph)) is not None:
        graph = less
    return graph

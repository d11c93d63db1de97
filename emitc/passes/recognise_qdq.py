"""DequantizeLinear -> float operator -> QuantizeLinear becomes the operator on the quantized tensors.

One sweep from front to back. A DequantizeLinear is not emitted but remembered; operators that only move values move the
quantized ones. A float operator all of whose computed operands are dequantized, and whose result is only quantized (after
moves and a ReLU), becomes
- a table of 256 bytes, where it and those after it compute one byte from one byte, except for a ReLU between equal scales;
- the same operator with `numerics=QDQ` on the quantized tensors, where its own `check` accepts them.
Anything else stays in float32 between a DequantizeLinear and a QuantizeLinear, which is what ONNX Runtime computes; it is
named in the graph's notes with the reason.
"""

from collections.abc import Iterator
from itertools import chain

import numpy as np

from emitc.errors import EmitcError, Note, NoteCode
from emitc.ir import Array, BoundNode, DType, Graph, Node, Numerics, Op, Quantization, Tensor
from emitc.kernels import definition_of, registry
from emitc.kernels.activation.activations import Relu, Relu6
from emitc.kernels.activation.unary_functions import ByteTable, Clip
from emitc.kernels.convolution.conv_2d import Conv2D
from emitc.kernels.convolution.depthwise_conv_2d import DepthwiseConv2D
from emitc.kernels.elementwise.arithmetic import Add
from emitc.kernels.mac.accumulation import BIAS, WEIGHTS
from emitc.kernels.matrix.fully_connected import FullyConnected
from emitc.kernels.quantization.quantize import Dequantize, Quantize
from emitc.numerics.requantize import activation_clamp
from emitc.passes.qdq_bias import Sum, finer_weights, fitted
from emitc.passes.rewriter import GraphRewriter
from emitc.records import dataclass, fields, replace

_Accumulating = Conv2D | DepthwiseConv2D | FullyConnected
_BIAS_TOLERANCE = 2.0**-20
"""A bias scale is the product of two float32 scales, rounded once or twice on its way into the file."""


def _channels(op: Op, weights: Tensor) -> int:
    """The dimension of the weights that counts output channels."""
    return len(weights.shape) - 1 if isinstance(op, DepthwiseConv2D) else 0


@dataclass(frozen=True, slots=True)
class _Result:
    """Where a float value ends: the QuantizeLinear, and what lies between, in order."""

    activation: str
    moves: tuple[Node, ...]
    quantize: Node
    passed: tuple[Node, ...]


def _bounds(op: Op) -> tuple[float, float] | None:
    """Between what an operator cuts its values off; None for one that does something else."""
    if isinstance(op, Clip):
        return (-np.inf if op.low is None else op.low), (np.inf if op.high is None else op.high)
    return {Relu: (0.0, np.inf), Relu6: (0.0, 6.0)}.get(type(op))


def _activation(low: float, high: float, output: Tensor) -> str | None:
    """The fused activation that cuts off at real bounds, before a quantization; None where no activation is.

    Quantization keeps order, so that quantized bounds cut off the same values; one beyond the type's range cuts off nothing.
    """
    q = output
    least, most = output.dtype.range
    with np.errstate(all="ignore"):
        ends = [float(np.rint(np.float32(v) / np.float32(q.scale))) + q.zero_point for v in (low, high)]
    above, below = ends[0] <= least, ends[1] >= most
    if above and below:
        return "NONE"
    if below and (low == 0 or ends[0] == q.zero_point):
        return "RELU"
    clamp = activation_clamp("RELU6", output)
    return "RELU6" if (max(ends[0], least), min(ends[1], most)) == (clamp.low, clamp.high) else None


class _StaysFloat(Exception):
    """Why an operator has no integer form; never leaves this file."""


class _Sweep:
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.work = GraphRewriter.of(graph)
        self.dequantized: dict[str, Node] = {}
        self.emitted: dict[str, str] = {}
        self.done: set[int] = set()
        self.integer = 0
        self.left: list[Note] = []

    # ---- what a value is ----

    def quantized(self, name: str) -> Tensor | None:
        """The quantized tensor that a float tensor dequantizes; None where no such tensor exists."""
        node = self.dequantized.get(self.work.current(name))
        return None if node is None else self.work.tensors[self.work.current(node.inputs[0])]

    def constant(self, name: str) -> Array | None:
        """A float constant's value, also of one that is dequantized."""
        name = self.work.current(name)
        tensor = self.work.tensors[name]
        if tensor.is_constant:
            return tensor.array()
        stored = self.quantized(name)
        if stored is None or not stored.is_constant:
            return None
        bound = self.work.bind(self.dequantized[name])
        (value,) = registry()[Dequantize].reference(bound, [stored.array()])
        return value

    def emit_remembered(self, name: str) -> None:
        """Emits the DequantizeLinear of a remembered tensor, once."""
        name = self.work.current(name)
        node = self.dequantized.get(name)
        if node is not None and name not in self.emitted:
            self.emitted[name] = name
            self.work.keep(node)

    # ---- where a value goes ----

    def only_reader(self, name: str) -> Node | None:
        """The one node that reads a tensor of the old graph, None for an output or several."""
        readers = self.graph.consumers(name)
        return readers[0] if len(readers) == 1 and name not in self.graph.outputs else None

    def chain(self, node: Node) -> Iterator[Node]:
        """The nodes after a node's only output, as long as each is the only reader."""
        while len(node.outputs) == 1:
            reader = self.only_reader(node.outputs[0])
            if reader is None or reader.index in self.done:
                return
            yield reader
            node = reader

    def result(self, node: Node, *, after: Node | None = None) -> _Result | None:
        """The quantization that the node's result meets, past moves and one activation.

        after: a later node that belongs to the group already.
        """
        start = after or node
        if len(start.outputs) != 1:
            return None
        moves: list[Node] = []
        passed: list[Node] = []
        low, high = -np.inf, np.inf
        takes = any(f.name == "activation" for f in fields(node.op))
        for reader in self.chain(start):
            if isinstance(reader.op, Quantize):
                output = self.graph.tensor(reader.outputs[0])
                if output.quantization is None or not output.quantization.per_tensor:
                    return None
                activation = _activation(low, high, output)
                if activation is None or (activation != "NONE" and not takes):
                    return None
                return _Result(activation, tuple(moves), reader, tuple(passed))
            bounds = _bounds(reader.op)
            if bounds is not None:
                low, high = min(max(low, bounds[0]), bounds[1]), max(min(high, bounds[1]), bounds[0])
            elif self.moves(reader) and len(reader.outputs) == 1:
                moves.append(reader)
            else:
                return None
            passed.append(reader)
        return None

    def moves(self, node: Node) -> bool:
        """Whether every output value is a value of the first input, which alone is computed."""
        kernel = definition_of(node.op)
        return kernel.moves and all(self.constant(name) is not None for name in node.inputs[1:] if name)

    # ---- the rewriting ----

    def move(self, node: Node) -> bool:
        """A move of a dequantized tensor becomes a move of the quantized one, whose results are remembered."""
        source = self.quantized(node.inputs[0]) if node.inputs else None
        if source is None or not self.moves(node) or source.quantization is None or not source.quantization.per_tensor:
            return False
        outputs = []
        for name in node.outputs:
            tensor = self.work.tensors[name]
            if tensor.dtype is not DType.FLOAT32:
                return False
            outputs.append(self.work.tensor(tensor, "_q", tensor.shape, source.dtype, source.quantization))
        dequantize = self.dequantized[self.work.current(node.inputs[0])]
        moved = replace(node, inputs=(source.name, *node.inputs[1:]), outputs=tuple(t.name for t in outputs))
        try:
            definition_of(node.op).check(self.work.bind(moved))
        except EmitcError:
            return False
        self.work.keep(moved)
        for name, tensor in zip(node.outputs, outputs, strict=True):
            self.dequantized[name] = replace(
                dequantize, inputs=(tensor.name,), outputs=(name,), index=self.work.next_index
            )
            self.work.next_index += 1
        return True

    def requantize(self, node: Node) -> bool:
        """A QuantizeLinear of a dequantized tensor: nothing, or a table."""
        source = self.quantized(node.inputs[0])
        output = self.work.tensors[node.outputs[0]]
        if source is None or source.dtype is not output.dtype or source.is_constant:
            return False
        if source.quantization == output.quantization:
            if output.name in self.graph.outputs:
                return False
            self.work.same[output.name] = source.name
            return True
        return self.table(node)

    def table(self, node: Node) -> bool:
        """A run of operators, from this one to a QuantizeLinear, that computes one byte from one byte."""
        run: list[Node] = []
        made: set[str] = set()
        source: Tensor | None = None
        for step in chain((node,), self.chain(node)):  # no further than needed: thousands of them may stand in a row
            run.append(step)
            if not (isinstance(step.op, Quantize) or definition_of(step.op).elementwise):
                return False
            for name in step.inputs:
                if not name or self.work.current(name) in made:
                    continue
                if (constant := self.constant(name)) is not None:
                    if constant.size != 1:
                        return False
                    continue
                stored = self.quantized(name)
                if stored is None or (source is not None and stored.name != source.name):
                    return False
                source = stored
                made.add(self.work.current(name))
            made.add(step.outputs[0])
            if isinstance(step.op, Quantize):
                break
        output = self.work.tensors[run[-1].outputs[0]]
        if source is None or not isinstance(run[-1].op, Quantize) or {source.dtype, output.dtype} != {DType.INT8}:
            return False
        if source.shape != output.shape or not all(
            q and q.per_tensor for q in (source.quantization, output.quantization)
        ):
            return False
        self.work.nodes.append(
            replace(run[0], op=ByteTable(self.results(run, source)), inputs=(source.name,), outputs=(output.name,))
        )
        self.done |= {step.index for step in run[1:]}
        self.integer += sum(not isinstance(step.op, Quantize) for step in run)
        return True

    def results(self, run: list[Node], source: Tensor) -> tuple[int, ...]:
        """The run's bytes for all 256 bytes, by the operators' float references."""
        shape, every = (256,), np.arange(-128, 128, dtype=np.int8)
        known: dict[str, tuple[Tensor | None, Array | None]] = {"": (None, None)}

        def operand(name: str) -> tuple[Tensor | None, Array | None]:
            current = self.work.current(name)
            if current not in known and (constant := self.constant(name)) is not None:
                data = np.asarray(constant.reshape(()), np.float32)
                return Tensor(name, DType.FLOAT32, (), data=data.tobytes()), data
            if current not in known:
                x, real = replace(source, shape=shape), Tensor(current, DType.FLOAT32, shape)
                bound = BoundNode(self.dequantized[current], (x,), (real,))
                known[current] = real, registry()[Dequantize].reference(bound, [every])[0]
            return known[current]

        for step in run:
            operands = [operand(name) for name in step.inputs]
            output = replace(self.work.tensors[step.outputs[0]], shape=shape, data=None)
            bound = BoundNode(step, tuple(tensor for tensor, _ in operands), (output,))
            with np.errstate(all="ignore"):
                (value,) = definition_of(step.op).reference(bound, [array for _, array in operands])
            known[step.outputs[0]] = output, value
        return tuple(int(v) for v in value.tolist())

    def group(self, node: Node) -> bool:
        """The operator on quantized tensors, where its own check takes them. What a plugin brings is no part of this."""
        if type(node.op).definition is not None:
            return False
        tensors = [None if not name else self.quantized(name) for name in node.inputs]
        computed = [t for t in tensors if t is not None and not t.is_constant]
        if not computed or not all(
            t is not None or not name or self.constant(name) is not None
            for name, t in zip(node.inputs, tensors, strict=True)
        ):
            return False
        extra: Node | None = None
        if isinstance(node.op, _Accumulating) and (len(node.inputs) <= BIAS or not node.inputs[BIAS]):
            reader = next(self.chain(node), None)
            if reader is not None and isinstance(reader.op, Add) and self.bias_of(node, reader) is not None:
                extra = reader
        result = self.result(node, after=extra)
        if result is None:
            self.refused(node, "its result is not quantized")
            return False
        final = self.work.tensors[result.quantize.outputs[0]]
        first = self.work.tensors[node.outputs[0]]
        output = (
            final if not result.moves else self.work.tensor(first, "_q", first.shape, final.dtype, final.quantization)
        )
        op = replace(node.op, numerics=Numerics.QDQ)
        if result.activation != "NONE":
            op = replace(op, activation=result.activation)  # type: ignore[call-arg]
        try:
            inputs = self.operands(node, extra, output)
            made = replace(node, op=op, inputs=inputs, outputs=(output.name,))
            bound = self.work.bind(made)
            kernel = definition_of(op)
            kernel.check(bound)
        except _StaysFloat as reason:
            self.refused(node, str(reason))
            return False
        except EmitcError as error:
            self.refused(node, f"{error.what}: {error.why}")
            return False
        self.work.nodes.append(made)
        self.integer += 1 + (extra is not None) + (result.activation != "NONE")
        name = output.name
        for position, step in enumerate(result.moves):
            last = position == len(result.moves) - 1
            inner = self.work.tensors[step.outputs[0]]
            target = final if last else self.work.tensor(inner, "_q", inner.shape, final.dtype, final.quantization)
            self.work.keep(replace(step, inputs=(name, *step.inputs[1:]), outputs=(target.name,)))
            name = target.name
        self.done |= {step.index for step in (*result.passed, result.quantize)}
        if extra is not None:
            self.done.add(extra.index)
        return True

    def operands(self, node: Node, extra: Node | None, output: Tensor) -> tuple[str, ...]:
        """The quantized operands; the bias of an accumulating operator as integers at the accumulator's scale.

        Raises _StaysFloat where an operand has no quantized form.
        """
        names = []
        for position, name in enumerate(node.inputs):
            stored = self.quantized(name) if name else None
            if position == BIAS and isinstance(node.op, _Accumulating):
                continue
            if name and stored is None:
                raise _StaysFloat("an operand is a constant in float32")
            names.append(stored.name if stored else "")
        if isinstance(node.op, _Accumulating):
            weights = self.work.tensors[names[WEIGHTS]]
            if weights.dtype is not DType.INT8:
                raise _StaysFloat("its weights are not of 8 bits")
            scales, channels = weights.quantization, _channels(node.op, weights)
            if scales is not None and not scales.per_tensor and scales.axis != channels:
                raise _StaysFloat(
                    f"its weights have scales along dimension {scales.axis}, and outputs along {channels}"
                )
            bias = self.integer_bias(node, extra, output, names)
            if bias:
                names.append(bias)
        return tuple(names)

    def bias_of(self, node: Node, add: Node) -> Array | None:
        """The constant of an Add after an operator, where it is one value per output channel and leaves the shape as it is."""
        own = self.work.current(node.outputs[0])
        others = [name for name in add.inputs if self.work.current(name) != own]
        value = self.constant(others[0]) if len(others) == 1 else None
        shape = self.work.tensors[own].shape
        if value is None or self.work.tensors[add.outputs[0]].shape != shape:
            return None
        channels = shape[-1]
        if value.size not in (1, channels) or (value.size > 1 and value.shape[-1] != channels):
            return None
        return np.broadcast_to(value.reshape(-1), (channels,))

    def integer_bias(self, node: Node, extra: Node | None, output: Tensor, names: list[str]) -> str:
        """The name of an int32 bias at scale x_scale * w_scale; "" where there is none.

        Where that is too coarse, the weights among the operands become finer ones.
        """
        if extra is not None:
            other = next(n for n in extra.inputs if self.work.current(n) != self.work.current(node.outputs[0]))
            value = self.bias_of(node, extra)
        elif len(node.inputs) > BIAS and node.inputs[BIAS]:
            other = node.inputs[BIAS]
            value = self.constant(other)
        else:
            return ""
        if value is None:
            raise _StaysFloat("its bias is computed")
        x, w = self.work.tensors[names[0]], self.work.tensors[names[WEIGHTS]]
        assert w.quantization
        scale = x.scale * np.array(w.quantization.scales, np.float64)
        stored = self.quantized(other)
        exact = (
            stored is not None
            and stored.dtype is DType.INT32
            and stored.quantization is not None
            and not any(stored.quantization.zero_points)
            and stored.elements == value.size
            and bool(np.all(np.abs(np.array(stored.quantization.scales) / scale - 1) < _BIAS_TOLERANCE))
        )
        if exact and stored is not None:
            integers: Array = stored.array().reshape(-1).astype(np.int64)
        else:
            integers, finer = self.rounded_bias(node, value, x, w, output)
            if finer:
                dtype, quantization, data = finer_weights(w, finer)
                names[WEIGHTS] = self.work.tensor(w, "_finer", w.shape, dtype, quantization, data).name
                scale = scale / 2.0**finer
        like = self.work.tensors[self.work.current(other)]
        quantization = Quantization(tuple(float(s) for s in np.atleast_1d(scale)), (0,) * scale.size)
        data = integers.astype(np.int32).tobytes()
        return self.work.tensor(like, "_bias", (integers.size,), DType.INT32, quantization, data).name

    def rounded_bias(self, node: Node, value: Array, x: Tensor, w: Tensor, output: Tensor) -> tuple[Array, int]:
        """A bias that is stated in other units than the sum's, in these or finer ones by a power of two.

        Raises _StaysFloat where outputs would show the rounding.
        """
        assert isinstance(node.op, _Accumulating)
        if not w.is_constant or w.shape[_channels(node.op, w)] != value.size:
            raise _StaysFloat("its bias does not fit its weights")
        bias, lost = fitted(value.reshape(-1).astype(np.float64), Sum.of(node.op, x, w, output))
        if bias is None and not np.isfinite(lost):
            raise _StaysFloat("its bias is beyond 32 bits at the accumulator's scale")
        if bias is None:
            raise _StaysFloat(
                f"rounded to a multiple of input scale times weight scale, its bias moves outputs by up to {lost:.2g} steps"
            )
        if bias.finer:
            what = (
                f"its weights have 16 bits, in units {2**bias.finer} times finer than their scale; "
                f"in multiples of the scale, rounding the bias would move outputs by up to {lost:.2g} steps"
            )
            self.left.append(Note(NoteCode.BIAS, what).of(node.describe()))
        elif bias.rounded:
            what = f"its bias is rounded to input scale times weight scale (up to {lost:.2g} output steps)"
            self.left.append(Note(NoteCode.BIAS, what).of(node.describe()))
        return bias.integers, bias.finer

    def refused(self, node: Node, why: str) -> None:
        """Notes why an operator between quantized tensors stays in float."""
        self.left.append(Note(NoteCode.FLOATS, f"{node.describe()} stays in float32: {why}"))

    def run(self) -> Graph:
        """The graph with integer operators wherever there are any."""
        # A bias may be dequantized after the operator that it will be found to belong to.
        for node in sorted(
            self.graph.nodes,
            key=lambda node: not self.dequantizes_constant(node),
        ):
            if node.index in self.done:
                continue
            if isinstance(node.op, Dequantize) and node.op.numerics.float_scale:
                tensor = self.work.tensors[self.work.current(node.inputs[0])]
                if tensor.name in self.dequantized:
                    self.emit_remembered(tensor.name)
                self.dequantized[node.outputs[0]] = node
                continue
            reads = any(self.work.current(name) in self.dequantized for name in node.inputs if name)
            if reads and self.rewritten(node):
                continue
            for name in node.inputs:
                if name:
                    self.emit_remembered(name)
            self.work.keep(node)
        for name in self.graph.outputs:
            self.emit_remembered(name)
        what = "float operator" if self.integer == 1 else "float operators"
        whole = Note(NoteCode.INTEGERS, f"QDQ: {self.integer} {what} became integer")
        return self.work.finish((whole, *self.left) if self.integer or self.left else ())

    def dequantizes_constant(self, node: Node) -> bool:
        return isinstance(node.op, Dequantize) and self.graph.tensor(node.inputs[0]).is_constant

    def rewritten(self, node: Node) -> bool:
        """Tries every form, the cheapest first."""
        if isinstance(node.op, Quantize):
            return self.requantize(node)
        if self.move(node):
            return True
        return (self.rectifies(node) and self.group(node)) or self.table(node) or self.group(node)

    def rectifies(self, node: Node) -> bool:
        """Whether the node is a Relu between equal scales, which stays one, so that it can merge into the operator before it."""
        if not isinstance(node.op, Relu):
            return False
        source, reader = self.quantized(node.inputs[0]), next(self.chain(node), None)
        if source is None or reader is None or not isinstance(reader.op, Quantize):
            return False
        output = self.work.tensors[reader.outputs[0]]
        return (source.dtype, source.quantization) == (output.dtype, output.quantization)


def recognise_qdq(graph: Graph) -> Graph:
    """The graph with integer operators in place of dequantized, computed, quantized ones. TFLite graphs stay as they are."""
    if not any(isinstance(n.op, Dequantize) and n.op.numerics.float_scale for n in graph.nodes):
        return graph
    return _Sweep(graph).run()

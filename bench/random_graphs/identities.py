"""Graphs with operators inserted that change nothing: whatever a compiler makes of them, the outputs are the same bits.

Inserted on what an operator or an input gives, for all operators that read it: a Transpose and its inverse, a Reshape there and
back, a Split and a Concat of its parts, a Slice of everything, a Pad by nothing, and a step from a scale to the same scale.

Legal is what keeps the rounding of every operator. Between a DequantizeLinear and a QuantizeLinear of ONNX, operators are one
operator on integers; something in between makes them float32 again, whose last bits may differ. So in such a graph only the
quantized values themselves get insertions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from bench.random_graphs.case import Attribute, Description, Node, Value, captured
from emitc.ir import Array

_TFLITE = ("int8", "int16", "float32", "int32")
_ONNX = ("int8", "uint8", "float32", "int32", "int64")


@dataclass
class _Edit:
    """A description being rewritten. tflite: of which of the two formats it is."""

    described: Description
    rng: np.random.Generator
    tflite: bool
    values: list[Value] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)

    def constant(self, numbers: Sequence[int] | Array) -> str:
        """A vector of indices in the format's type."""
        array = np.asarray(numbers, np.int32 if self.tflite else np.int64)
        return self.value(array.dtype.name, array.shape, array.tobytes())

    def value(self, dtype: str, shape: tuple[int, ...], data: bytes | None = None) -> str:
        """A further value."""
        name = f"identity{len(self.values)}"
        self.values.append(Value(name, dtype, shape, data))
        return name

    def like(self, source: Value, shape: Sequence[int]) -> str:
        """A further computed value of another shape."""
        name = f"identity{len(self.values)}"
        self.values.append(replace(source, name=name, shape=tuple(shape)))
        return name

    def node(self, op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Attribute) -> None:
        """A further operator."""
        self.nodes.append(Node(op, tuple(inputs), tuple(outputs), attributes))

    # ---- what changes nothing ----

    def transposes(self, x: Value) -> str:
        """Two Transposes."""
        order = self.rng.permutation(len(x.shape))
        turned = self.like(x, [x.shape[i] for i in order])
        back = self.like(x, x.shape)
        for source, target, permutation in ((x.name, turned, order), (turned, back, np.argsort(order))):
            if self.tflite:
                self.node("TRANSPOSE", (source, self.constant(permutation)), (target,))
            else:
                self.node("Transpose", (source,), (target,), perm=tuple(int(i) for i in permutation))
        return back

    def reshapes(self, x: Value) -> str:
        """Two Reshapes."""
        cut = int(self.rng.integers(len(x.shape)))
        flat = (*x.shape[:cut], int(np.prod(x.shape[cut:])))
        other, back = self.like(x, flat), self.like(x, x.shape)
        for source, target, shape in ((x.name, other, flat), (other, back, x.shape)):
            attributes: dict[str, Attribute] = {"new_shape": tuple(shape)} if self.tflite else {}
            self.node("RESHAPE" if self.tflite else "Reshape", (source, self.constant(shape)), (target,), **attributes)
        return back

    def parts(self, x: Value) -> str:
        """A Split and a Concat."""
        axis = int(np.argmax(x.shape))
        size = x.shape[axis]
        count = next((k for k in (2, 3, 5, 7) if size % k == 0), 1)
        shape = (*x.shape[:axis], size // count, *x.shape[axis + 1 :])
        pieces = [self.like(x, shape) for _ in range(count)]
        if self.tflite:
            stated = self.value("int32", (), np.int32(axis).tobytes())
            self.node("SPLIT", (stated, x.name), pieces, num_splits=count)
        elif self.described.opset >= 13:
            self.node("Split", (x.name, self.constant([size // count] * count)), pieces, axis=axis)
        else:
            self.node("Split", (x.name,), pieces, axis=axis, split=(size // count,) * count)
        back = self.like(x, x.shape)
        self.node("CONCATENATION" if self.tflite else "Concat", pieces, (back,), axis=axis)
        return back

    def slice(self, x: Value) -> str:
        """A Slice of everything."""
        back, zeros = self.like(x, x.shape), [0] * len(x.shape)
        operands = (x.name, self.constant(zeros), self.constant(x.shape))
        self.node("SLICE" if self.tflite else "Slice", operands, (back,))
        return back

    def pad(self, x: Value) -> str:
        """A Pad by nothing."""
        back, rank = self.like(x, x.shape), len(x.shape)
        if self.tflite:
            self.node("PAD", (x.name, self.constant(np.zeros((rank, 2), np.int32))), (back,))
        else:
            self.node("Pad", (x.name, self.constant([0] * (2 * rank))), (back,))
        return back

    def identity(self, x: Value) -> str:
        """An Identity, of ONNX."""
        back = self.like(x, x.shape)
        self.node("Identity", (x.name,), (back,))
        return back

    def rescaled(self, x: Value) -> str:
        """A step to the same scale."""
        back = self.like(x, x.shape)
        if self.tflite:
            self.node("QUANTIZE", (x.name,), (back,))
            return back
        quantizer = _quantizer(self.described, x.name)
        assert quantizer is not None
        real = self.value("float32", x.shape)
        self.node(quantizer.op.replace("Quantize", "Dequantize"), (x.name, *quantizer.inputs[1:]), (real,))
        self.node(quantizer.op, (real, *quantizer.inputs[1:]), (back,))
        return back

    def kinds(self, x: Value) -> list[Callable[[Value], str]]:
        """What may be inserted after a value."""
        kinds: list[Callable[[Value], str]] = [self.transposes, self.reshapes, self.parts, self.slice]
        if len(x.shape) <= 4 and x.dtype != "bool":
            kinds.append(self.pad)
        if not self.tflite:
            kinds.append(self.identity)
        quantized = x.dtype in ("int8", "int16") and len(x.scales) == 1
        if quantized if self.tflite else _quantizer(self.described, x.name) is not None:
            kinds.append(self.rescaled)
        return kinds


def _quantizer(described: Description, name: str) -> Node | None:
    """The per-tensor QuantizeLinear with a constant scale that gives a value."""
    constants = {value.name for value in described.values if value.constant}
    for node in described.nodes:
        if name in node.outputs and node.op.endswith("QuantizeLinear") and not node.op.startswith("Dynamic"):
            scale = next(value for value in described.values if value.name == node.inputs[1])
            whole = len(node.inputs) == 3 and set(node.inputs[1:]) <= constants and scale.elements == 1
            return node if whole and not node.attributes else None
    return None


def _computed(described: Description) -> set[str]:
    """Values that depend on what the graph is given."""
    computed = set(described.inputs)
    for node in described.nodes:
        if computed & {*node.inputs, *captured(node)}:
            computed |= set(node.outputs)
    return computed


def places(described: Description, tflite: bool) -> list[Value]:
    """Values after which something can be inserted."""
    exact = tflite or not any(node.op.endswith("QuantizeLinear") for node in described.nodes)
    computed, read = _computed(described), {name for node in described.nodes for name in node.inputs}
    return [
        value
        for value in described.values
        if value.name in computed & read
        and 1 <= len(value.shape) <= 5
        and value.dtype in (_TFLITE if tflite else _ONNX)
        and not value.variable
        and value.bounds is None
        and (exact or value.dtype != "float32")
    ]


def with_identities(described: Description, rng: np.random.Generator, source_format: str, most: int = 3) -> Description:
    """The graph with up to `most` such insertions; the graph itself where there is no place for one."""
    tflite = source_format == "tflite"
    values = places(described, tflite)
    edit = _Edit(described, rng, tflite)
    chosen = {values[i].name: values[i] for i in rng.permutation(len(values))[: int(rng.integers(1, most + 1))]}
    instead: dict[str, str] = {}
    order: list[Node] = []

    def insert(names: Sequence[str]) -> None:
        for name in names:
            if name in chosen:
                kinds = edit.kinds(chosen[name])
                instead[name] = kinds[int(rng.integers(len(kinds)))](chosen[name])
        order.extend(edit.nodes)
        edit.nodes.clear()

    insert(described.inputs)
    for node in described.nodes:
        order.append(replace(node, inputs=tuple(instead.get(name, name) for name in node.inputs)))
        insert(node.outputs)
    return replace(described, values=(*described.values, *edit.values), nodes=tuple(order))

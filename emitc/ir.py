"""The graph that every stage between a frontend and the lowering works on: typed, frozen, without any target.

Inside, activations are NHWC and convolution weights OHWI. Nodes refer to tensors by name; a change is a
`dataclasses.replace`. Constants are `bytes`, row-major and little-endian, so that graphs compare and hash.
"""

import math
from collections.abc import Iterator, Mapping
from enum import Enum
from functools import cached_property
from typing import ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from emitc.errors import Note
from emitc.records import dataclass, field

Array = NDArray[np.generic]
Shape = tuple[int, ...]


class DType(Enum):
    """Element type: the value is numpy's name for it.

    INT4 is of constant weights only: two values in a byte, the first one in the low half.
    """

    INT4 = "int4"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    UINT8 = "uint8"
    UINT16 = "uint16"
    UINT32 = "uint32"
    UINT64 = "uint64"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    BOOL = "bool"

    # Each is computed once for each member, since they are asked for very often.

    @cached_property
    def packed(self) -> bool:
        """Whether several elements share a byte."""
        return self is DType.INT4

    @cached_property
    def bytes(self) -> int:
        """Bytes of one element; of one that is taken out of its byte."""
        return 1 if self.packed else np.dtype(self.value).itemsize

    @cached_property
    def c_type(self) -> str:
        """The C type of one element; of the bytes that hold packed ones."""
        names = {"int4": "int8_t", "float32": "float", "float64": "double", "bool": "uint8_t"}
        return names.get(self.value, f"{self.value}_t")

    @cached_property
    def range(self) -> tuple[int, int]:
        """Smallest and largest value of an integer type."""
        if self.packed:
            return -8, 7
        info = np.iinfo(self.value)
        return int(info.min), int(info.max)


def unpacked(data: bytes, count: int) -> NDArray[np.int8]:
    """The first `count` values of four bits, two to a byte, the first one in the low half; read-only.

    >>> unpacked(bytes([0x8F, 0x07]), 3).tolist()
    [-1, -8, 7]
    """
    pairs = np.frombuffer(data, np.int8)
    values = np.stack([(pairs << 4) >> 4, pairs >> 4], axis=-1).reshape(-1)[:count]
    values.flags.writeable = False
    return values


def packed(values: NDArray[np.int8]) -> bytes:
    """Values of four bits, two to a byte; where their number is odd, the last high half is 0.

    >>> packed(np.array([-1, -8, 7], np.int8)).hex()
    '8f07'
    """
    nibbles = np.append(values.reshape(-1), np.zeros(values.size % 2, np.int8)).view(np.uint8) & 0xF
    return bytes((nibbles[0::2] | (nibbles[1::2] << 4)).astype(np.uint8))


def stored(values: Array, dtype: DType) -> bytes:
    """The bytes in which a constant of the type keeps the values: those of four bits are packed."""
    return packed(values.astype(np.int8)) if dtype.packed else values.tobytes()


class Numerics(Enum):
    """Whose arithmetic an operator obeys; the source format decides it, and the op carries it."""

    TFLITE = "tflite"
    """Q31 multiplier from double scales, two roundings; QUANTIZE half away from zero (TFLite Micro's kernels)."""
    UNSIGNED = "tflite-uint8"
    """As TFLITE, but of a legacy model whose tensors are uint8: weights have zero points, the product of two scales is rounded
    to float32, and means round in the range of uint8 (LiteRT's reference kernels)."""
    QOPERATOR = "onnx-qoperator"
    """float32 multiplier and product, rounded half to even (ONNX Runtime's integer kernels)."""
    QDQ = "onnx-qdq"
    """As if every value were float32: dequantized, computed, quantized half to even (ONNX Runtime, not optimized)."""
    PLAIN = "tflite-plain"
    """Numbers that stand for themselves in a TFLite model: float32, and integers that have no scale (TFLite Micro's kernels)."""

    @property
    def float_scale(self) -> bool:
        """Whether accumulators are requantized by a float32 product; of plain numbers nothing is requantized."""
        return self in (Numerics.QOPERATOR, Numerics.QDQ, Numerics.PLAIN)

    @property
    def of_tflite(self) -> bool:
        return self not in (Numerics.QOPERATOR, Numerics.QDQ)

    @property
    def engine(self) -> str:
        """Whose arithmetic it is, for messages."""
        names = {Numerics.UNSIGNED: "TensorFlow Lite's uint8 kernels"}
        return names.get(self, "TensorFlow Lite" if self.of_tflite else "ONNX Runtime")


@dataclass(frozen=True, slots=True)
class Quantization:
    """real = scale * (q - zero_point), per tensor (one scale) or per slice of `axis` (one scale per slice).

    Scales are float32 values, held as the double that equals them.
    """

    scales: tuple[float, ...]
    zero_points: tuple[int, ...]
    axis: int = 0

    @property
    def scale(self) -> float:
        return self.scales[0]

    @property
    def zero_point(self) -> int:
        return self.zero_points[0]

    @property
    def per_tensor(self) -> bool:
        """Whether one scale serves the whole tensor."""
        return len(self.scales) == 1

    def spread(self, rank: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Scales and zero points in a shape that broadcasts against a tensor of `rank` dimensions."""
        shape = () if self.per_tensor else tuple(-1 if i == self.axis else 1 for i in range(rank))
        return np.array(self.scales, np.float32).reshape(shape), np.array(self.zero_points, np.int64).reshape(shape)


@dataclass(frozen=True, slots=True)
class Tensor:
    """One value of the graph; a constant when `data` is set, a state variable when `initial` is.

    A state variable keeps its value from one run to the next, outside of the arena; `initial` is what it holds before the
    first. A node that has it among its inputs reads what it holds then; one that has it among its outputs writes it. Any number
    of nodes may do either. So the order of the nodes that touch one variable, themselves or through an alias of it, is part of
    the graph's meaning.

    name: unique within the graph. label: what the model calls it, possibly hostile text. source: its index in the model
    file, -1 for one that emitc made. alias_of: name of the tensor whose bytes it shares under another shape. order: where
    its dimensions come in another order than those of what the label names: for each the dimension that it is. channels: of the
    last dimension of what the label names, where only these are left.
    """

    name: str
    dtype: DType
    shape: Shape
    quantization: Quantization | None = None
    data: bytes | None = None
    label: str = ""
    source: int = -1
    alias_of: str = ""
    order: Shape = ()
    initial: bytes | None = None
    channels: Shape = ()

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def size_bytes(self) -> int:
        return (self.elements + 1) // 2 if self.dtype.packed else self.elements * self.dtype.bytes

    @property
    def scale(self) -> float:
        """The scale of a tensor that is quantized per tensor, which `check` has shown it to be."""
        assert self.quantization is not None, f"{self.name} is not quantized"
        return self.quantization.scale

    @property
    def zero_point(self) -> int:
        """The zero point of a tensor that is quantized per tensor, which `check` has shown it to be."""
        assert self.quantization is not None, f"{self.name} is not quantized"
        return self.quantization.zero_point

    @property
    def is_constant(self) -> bool:
        """Whether the value is known at compile time."""
        return self.data is not None

    @property
    def is_state(self) -> bool:
        """Whether the tensor is a variable that holds its value between runs."""
        return self.initial is not None

    def initial_array(self) -> Array:
        """What a state variable holds before the first run, read-only, in the tensor's shape."""
        assert self.initial is not None, f"{self.name} is not a state variable"
        return np.frombuffer(self.initial, dtype=self.dtype.value).reshape(self.shape)

    def array(self) -> Array:
        """The constant's value, read-only, in the tensor's shape; int8 where it is packed."""
        assert self.data is not None, f"{self.name} is not a constant"
        if self.dtype.packed:
            return unpacked(self.data, self.elements).reshape(self.shape)
        return np.frombuffer(self.data, dtype=self.dtype.value).reshape(self.shape)

    def describe(self) -> str:
        """For messages: `tensor "stem/relu" int8[1,48,48,16]`."""
        return f'tensor "{self.label or self.name}" {self.dtype.value}[{",".join(map(str, self.shape))}]'


@dataclass(frozen=True, slots=True, kw_only=True)
class Op:
    """An operator with its attributes; one subclass per operator, in the operator's file.

    definition: of the class of an operator that a plugin brings, its definition; None for emitc's own, which the registry has.
    """

    definition: ClassVar[object | None] = None
    numerics: Numerics = Numerics.TFLITE


OpKind = TypeVar("OpKind", bound=Op)


@dataclass(frozen=True, slots=True)
class Node:
    """One operator applied to tensors. An absent optional input is the empty name.

    op_type: what the source format calls the operator. index: its position in the source model.
    """

    op: Op
    op_type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    index: int
    label: str = ""

    def describe(self) -> str:
        """For messages: `op 3 CONV_2D "stem/conv"`."""
        return f'op {self.index} {self.op_type} "{self.label}"'


@dataclass(frozen=True, slots=True)
class BoundNode:
    """A node with its tensors looked up: what an operator's check, reference and lowering see."""

    node: Node
    inputs: tuple[Tensor | None, ...]
    outputs: tuple[Tensor, ...]

    def input(self, position: int) -> Tensor:
        """Input `position`, which `check` has shown to be there."""
        tensor = self.inputs[position]
        assert tensor is not None, f"{self.node.describe()} has no input {position}"
        return tensor

    def optional(self, position: int) -> Tensor | None:
        """Input `position`, or None where the model leaves it out."""
        return self.inputs[position] if position < len(self.inputs) else None

    def op(self, kind: type[OpKind]) -> OpKind:
        """The node's operator, which the registry has shown to be of this class."""
        assert isinstance(self.node.op, kind)
        return self.node.op

    @property
    def output(self) -> Tensor:
        """The only (or first) output."""
        return self.outputs[0]


@dataclass(frozen=True)
class Graph:
    """Tensors and the nodes over them, in execution order.

    inputs, outputs: names of the interface's tensors. notes: what a reader of the report should know (batch made 1).
    streamed_inputs: inputs without memory, for whose rows a node asks the application.
    """

    name: str
    tensors: tuple[Tensor, ...]
    nodes: tuple[Node, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    notes: tuple[Note, ...] = ()
    streamed_inputs: tuple[str, ...] = ()
    _by_name: dict[str, Tensor] = field(init=False, repr=False, compare=False, default_factory=dict)
    _readers: dict[str, list[Node]] = field(init=False, repr=False, compare=False, default_factory=dict)
    _writers: dict[str, Node] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        self._by_name.update((tensor.name, tensor) for tensor in self.tensors)
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                if name:
                    self._readers.setdefault(name, []).append(node)
            for name in node.outputs:
                if name not in self._by_name or not self._by_name[name].is_state:
                    self._writers[name] = node

    def tensor(self, name: str) -> Tensor:
        return self._by_name[name]

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        return {tensor.name: tensor.size_bytes for tensor in self.tensors}

    def has_tensor(self, name: str) -> bool:
        return name in self._by_name

    def producer(self, name: str) -> Node | None:
        """The node that writes the tensor, None for inputs, constants, state variables and aliases."""
        return self._writers.get(name)

    @property
    def written_inputs(self) -> tuple[str, ...]:
        """The inputs that the caller writes before a run."""
        return tuple(
            name for name in self.inputs if name not in self.streamed_inputs and not self._by_name[name].is_state
        )

    @property
    def states(self) -> tuple[Tensor, ...]:
        return tuple(tensor for tensor in self.tensors if tensor.is_state)

    def writes_state(self, node: Node) -> bool:
        """Whether a run of the node changes a state variable: its effect is more than its outputs."""
        return any(self._by_name[name].is_state for name in node.outputs)

    def state_order(self) -> tuple[tuple[int, int], ...]:
        """Positions (earlier, later) of nodes that must stay in this order: one writes a state variable, both touch it.

        Of the pairs that follow from others only some are there.
        """
        pairs: list[tuple[int, int]] = []
        last_write: dict[str, int] = {}
        reads: dict[str, list[int]] = {}
        for place, node in enumerate(self.nodes):
            read = {root for name in node.inputs if name and (root := self.root(name)).is_state}
            written = {tensor for name in node.outputs if (tensor := self._by_name[name]).is_state}
            for tensor in sorted(read | written, key=lambda tensor: tensor.name):
                if tensor.name in last_write:
                    pairs.append((last_write[tensor.name], place))
                if tensor in written:
                    pairs += [(earlier, place) for earlier in reads.pop(tensor.name, [])]
                    last_write[tensor.name] = place
                else:
                    reads.setdefault(tensor.name, []).append(place)
        return tuple(dict.fromkeys(pairs))

    def consumers(self, name: str) -> tuple[Node, ...]:
        """The nodes that read the tensor itself, in execution order (not through an alias)."""
        return tuple(self._readers.get(name, ()))

    def aliases(self, name: str) -> tuple[str, ...]:
        """The tensors that share this tensor's bytes through `alias_of`, directly."""
        return tuple(tensor.name for tensor in self.tensors if tensor.alias_of == name)

    def root(self, name: str) -> Tensor:
        """The tensor that owns the bytes of `name`, at the end of its chain of aliases."""
        tensor = self._by_name[name]
        while tensor.alias_of:
            tensor = self._by_name[tensor.alias_of]
        return tensor

    def bind(self, node: Node) -> BoundNode:
        return BoundNode(
            node,
            tuple(self._by_name[name] if name else None for name in node.inputs),
            tuple(self._by_name[name] for name in node.outputs),
        )

    def bound(self) -> Iterator[BoundNode]:
        """Every node with its tensors, in execution order."""
        return iter(self._bound)

    @cached_property
    def _bound(self) -> tuple[BoundNode, ...]:
        return tuple(map(self.bind, self.nodes))


@dataclass(frozen=True, slots=True)
class GraphStep:
    """The graph as a pass has left it. inside: the operators whose inner graph it is, from the outermost one on."""

    name: str
    graph: Graph
    inside: tuple[str, ...] = ()

"""A TFLite graph while it is drawn, and the registry of what can be appended to it."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from bench.random_graphs.case import Attribute, Description, Node, Value

T = TypeVar("T")
Quantization = tuple[tuple[float, ...], tuple[int, ...]]
PLAIN: Quantization = ((), ())
QUANTIZED = ("int8", "int16", "uint8")
ANY = ("int8", "int16", "uint8", "float32", "int32", "int64", "bool", "uint16", "uint32", "uint64", "float64")
"""Types that operators move as they are."""
ELEMENTS = 3000
"""Elements that a tensor usually has at most."""
ACTIVATIONS = ("NONE", "NONE", "RELU", "RELU6", "RELU_N1_TO_1")


class Unfit(Exception):
    """The operator cannot be appended to the value that was drawn for it."""


def scale_of(x: Value) -> float:
    """The scale of a value. Raises Unfit where it has none, as a result of CAST or of a comparison has none."""
    if not x.scales:
        raise Unfit
    return x.scales[0]


@dataclass
class GraphBuilder:
    """Values and nodes so far. `pool` has what further operators may read; `limit` the most elements of a tensor.

    engine: the one that the graph is meant for, since a graph of operators that only one engine has each has no engine.
    """

    rng: np.random.Generator
    dtype: str
    limit: int = ELEMENTS
    prefix: str = ""
    depth: int = 0
    engine: str = "tflm"
    values: dict[str, Value] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    inputs: list[str] = field(default_factory=list)
    pool: list[Value] = field(default_factory=list)

    # ---- dice ----

    def chance(self, probability: float) -> bool:
        """True with that probability."""
        return bool(self.rng.random() < probability)

    def odd(self, probability: float) -> bool:
        """True with that probability, for a form at a limit of its operator; whoever looks for these makes them likely."""
        return self.chance(probability)

    def pick(self, choices: Sequence[T]) -> T:
        """One of them."""
        return choices[int(self.rng.integers(len(choices)))]

    def between(self, low: int, high: int) -> int:
        """low..high, both included."""
        return int(self.rng.integers(low, high + 1))

    def power(self, low: float, high: float) -> float:
        """Ten to a power between the two, as a float32 can hold it."""
        return float(np.float32(10 ** self.rng.uniform(low, high)))

    # ---- values ----

    def add(self, value: Value) -> Value:
        """Any value, as it is."""
        self.values[value.name] = value
        return value

    def name(self) -> str:
        """A name that is not taken."""
        return f"{self.prefix}v{len(self.values)}"

    def quantization(self, dtype: str) -> Quantization:
        """A scale and a zero point; sometimes extreme ones. Types that are not quantized get none."""
        if dtype not in QUANTIZED:
            return PLAIN
        scale = self.power(-6, 3) if self.chance(0.03) else self.power(-2.5, 0)
        if dtype == "int16":
            return (scale,), (0,)
        least, most = (0, 255) if dtype == "uint8" else (-128, 127)
        point = self.pick((least, most, (least + most + 1) // 2)) if self.chance(0.4) else self.between(least, most)
        return (scale,), (point,)

    def near(self, x: Value, low: float = 0.3, high: float = 3.0) -> Quantization:
        """One whose scale is about that of x, or that of x itself. Raises Unfit where x is not quantized."""
        if x.dtype not in QUANTIZED or self.chance(0.25):
            return x.scales, x.zero_points
        before = scale_of(x)
        _, points = self.quantization(x.dtype)
        return (float(np.float32(before * self.rng.uniform(low, high))),), points

    def far(self, x: Value) -> Quantization:
        """One whose scale is up to 10^5 times as small or as large as that of x."""
        _, points = self.quantization(x.dtype)
        return (float(np.float32(scale_of(x) * 10 ** self.rng.uniform(-5, 5))),), points

    def computed(self, dtype: str, shape: Sequence[int], quantization: Quantization = PLAIN) -> Value:
        """A tensor that a node will write. Raises Unfit for one that is too large."""
        shape = tuple(int(extent) for extent in shape)
        if math.prod(shape) > self.limit or any(extent < 1 for extent in shape) or len(shape) > 6:
            raise Unfit
        return self.add(Value(self.name(), dtype, shape, None, *quantization))

    def constant(self, array: Any, quantization: Quantization = PLAIN, axis: int = 0) -> Value:
        """A constant of the array's type."""
        array = np.asarray(array)
        little = array.astype(array.dtype.newbyteorder("<"))
        return self.add(Value(self.name(), array.dtype.name, array.shape, little.tobytes(), *quantization, axis))

    def integers(self, numbers: Sequence[int], dtype: str = "int32") -> Value:
        """A constant list of integers: axes, sizes, paddings."""
        return self.constant(np.array(list(numbers), dtype))

    def numbers(self, dtype: str, shape: Sequence[int], quantization: Quantization | None = None) -> Value:
        """A constant with random contents."""
        chosen = self.quantization(dtype) if quantization is None else quantization
        return self.constant(self.contents(dtype, shape), chosen)

    def contents(self, dtype: str, shape: Sequence[int]) -> np.ndarray:
        """Random numbers of a type; the ends of a range of integers occur."""
        shape = tuple(shape)
        if dtype == "bool":
            return self.rng.integers(0, 2, shape).astype(bool)
        if dtype in ("float32", "float64"):
            return self.rng.uniform(-2, 2, shape).astype(dtype)
        if dtype in ("int32", "int64") and not self.chance(0.06):  # sums and products of others leave their type
            return self.rng.integers(-100, 101, shape).astype(dtype)
        info = np.iinfo(dtype)
        return self.rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)

    def model_input(self, dtype: str, shape: Sequence[int], bounds: tuple[float, float] | None = None) -> Value:
        """An input of the graph."""
        value = Value(self.name(), dtype, tuple(shape), None, *self.quantization(dtype), bounds=bounds)
        self.inputs.append(self.add(value).name)
        self.pool.append(value)
        return value

    # ---- nodes ----

    def node(self, op: str, inputs: Sequence[Value | None], outputs: Sequence[Value], **attributes: Attribute) -> None:
        """One operator."""
        names = tuple(value.name if value is not None else "" for value in inputs)
        while names and not names[-1] and op != "UNIDIRECTIONAL_SEQUENCE_LSTM":  # TFLite Micro wants all 24 of it
            names = names[:-1]  # LiteRT takes -1 instead of a bias for a tensor
        self.nodes.append(Node(op, names, tuple(value.name for value in outputs), attributes))

    def unary(self, op: str, inputs: Sequence[Value | None], shape: Sequence[int], dtype: str,
              quantization: Quantization = PLAIN, **attributes: Attribute) -> Value:  # fmt: skip
        """One operator with one output, which is returned."""
        y = self.computed(dtype, shape, quantization)
        self.node(op, inputs, (y,), **attributes)
        return y

    def moved(self, op: str, inputs: Sequence[Value | None], shape: Sequence[int], **attributes: Attribute) -> Value:
        """One operator that moves elements of its first operand: same type and quantization."""
        x = inputs[0]
        assert x is not None
        return self.unary(op, inputs, shape, x.dtype, (x.scales, x.zero_points), **attributes)

    # ---- fitting ----

    def draw_shape(self, rank: int, elements: int | None = None) -> tuple[int, ...]:
        """Dimensions with about that many elements at most; ones occur often."""
        left = elements or self.limit
        shape = []
        for _ in range(rank):
            extent = 1 if self.chance(0.15) else self.between(1, 9) if self.chance(0.85) else self.between(8, 64)
            extent = max(1, min(extent, left))
            shape.append(extent)
            left //= extent
        return tuple(shape)

    def other(self, dtype: str, shape: Sequence[int] | None = None, rank: int | None = None) -> Value | None:
        """A value of the pool that fits; None where there is none."""
        fitting = [
            v
            for v in self.pool
            if v.dtype == dtype
            and (shape is None or v.shape == tuple(shape))
            and (rank is None or len(v.shape) == rank)
        ]
        return self.pick(fitting) if fitting else None

    def ranked(self, x: Value, rank: int) -> Value:
        """x with `rank` dimensions, by a RESHAPE where it has others."""
        if len(x.shape) == rank:
            return x
        return self.reshaped(x, self.factors(x.elements, rank))

    def reshaped(self, x: Value, shape: Sequence[int]) -> Value:
        """x under another shape of as many elements."""
        y = self.computed(x.dtype, shape, (x.scales, x.zero_points))
        self.node("RESHAPE", (x, self.integers(shape)), (y,), new_shape=tuple(shape))
        return y

    def factors(self, elements: int, rank: int) -> tuple[int, ...]:
        """Dimensions whose product is `elements`."""
        shape, left = [], elements
        for _ in range(rank - 1):
            divisors = [k for k in range(1, min(left, 64) + 1) if left % k == 0]
            chosen = self.pick(divisors) if self.chance(0.7) else 1
            shape.append(chosen)
            left //= chosen
        shape.append(left)
        order = self.rng.permutation(rank)
        return tuple(shape[i] for i in order)

    def description(self, outputs: Sequence[str]) -> Description:
        """The graph so far; values that nothing names are left out."""
        named = {n for node in self.nodes for n in (*node.inputs, *node.outputs)} | set(self.inputs) | set(outputs)
        values = tuple(value for value in self.values.values() if value.name in named)
        return Description(values, tuple(self.nodes), tuple(self.inputs), tuple(outputs))


Maker = Callable[[GraphBuilder, Value], Sequence[Value]]


@dataclass(frozen=True, slots=True)
class Offer:
    """One operator that can be appended: its maker, the types of its first operand, and how often it is drawn."""

    op: str
    make: Maker
    dtypes: tuple[str, ...]
    weight: float


OFFERS: dict[str, Offer] = {}


def offers(dtypes: Sequence[str], *ops: str, weight: float = 1.0) -> Callable[[Callable[..., Sequence[Value]]], Any]:
    """Registers a maker for each of the operators; it gets (builder, value), or (builder, value, op) if it takes three."""

    def register(function: Callable[..., Sequence[Value]]) -> Callable[..., Sequence[Value]]:
        named = len(inspect.signature(function).parameters) > 2
        for op in ops:

            def make(builder: GraphBuilder, value: Value, op: str = op) -> Sequence[Value]:
                return function(builder, value, op) if named else function(builder, value)

            OFFERS[op] = Offer(op, make, tuple(dtypes), weight)
        return function

    return register


def table() -> Mapping[str, Offer]:
    """All offers by operator."""
    return OFFERS

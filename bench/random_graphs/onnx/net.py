"""A random ONNX graph under construction: its values with what is known of them, and the operators so far.

Every operator that the modules of this package add goes through `Net`, which keeps the type, the shape and the
magnitude of every value. So the next operator can be chosen validly without evaluating anything.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes  # noqa: F401 - numpy gets its types of 4 bits from it
import numpy as np
import onnx.helper

from bench.random_graphs.case import Description, Node, Value
from emitc.ir import Array, Shape

MICROSOFT = "com.microsoft"
LOCAL = "local"
"""Domain of the functions that a model defines."""
FLOAT = "float32"
BYTES = ("int8", "uint8")
LARGEST = 1 << 14
"""Elements of a tensor, where a graph is not meant to be large."""


class Unfit(Exception):
    """The graph so far has no place for an operator."""


@dataclass(frozen=True, slots=True)
class Known:
    """A tensor. scale and zero: of a quantized one, per tensor; scale 0 where it is not quantized.

    top: about the largest magnitude. exact: every element is the same in any order of summation. constant: it is in the model.
    codes: the type that a dequantized value had before; scale and zero are those from before then.
    """

    name: str
    dtype: str
    shape: Shape
    scale: float = 0.0
    zero: int = 0
    top: float = 4.0
    exact: bool = True
    constant: bool = False
    codes: str = ""

    @property
    def rank(self) -> int:
        """Dimensions."""
        return len(self.shape)

    @property
    def elements(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def quantized(self) -> bool:
        """Whether it stands for reals by scale and zero point."""
        return self.scale > 0 and not self.codes


def top_of(value: Known) -> float:
    """The largest magnitude that a quantized value can stand for."""
    info = np.iinfo(value.dtype)
    return float(max(info.max - value.zero, value.zero - info.min)) * value.scale


class Net:
    """A graph under construction. rng: every choice. style: qdq, qoperator, float, dynamic or mixed.

    parent: for a graph inside of an operator, the one round it, whose values it may read. repeated: what it computes goes
    round a loop, so that it must not magnify rounding errors.
    """

    def __init__(self, rng: random.Random, style: str, opset: int, parent: Net | None = None) -> None:
        self.rng = rng
        self.data = np.random.default_rng(rng.getrandbits(64))
        self.style = style
        self.opset = opset
        self.parent = parent
        self.repeated: bool = parent is not None and parent.repeated
        self.nodes: list[Node] = []
        self.values: list[Value] = []
        self.inputs: list[Known] = []
        self.pool: list[Known] = []
        self.known: dict[str, Known] = {}
        self.read: set[str] = set()
        self.most_inputs = rng.choice((1, 1, 2, 2, 3, 4))
        self.most_elements = LARGEST if rng.random() < 0.9 else 8 * LARGEST
        self._again: dict[tuple[str, Shape, bytes], str] = {}
        self._arrays: dict[str, Array] = {}
        self._counter: list[int] = parent._counter if parent else [0]

    # ---- names and constants ----

    def name(self, prefix: str) -> str:
        """A name that no other value or node of the model has."""
        self._counter[0] += 1
        return f"{prefix}{self._counter[0]}"

    def odd(self, probability: float) -> bool:
        """True with that probability, for a form at a limit of its operator; whoever looks for these makes them likely."""
        return self.rng.random() < probability

    def spread(self, scales: Array) -> Array:
        """The scales of channels, sometimes some of them far smaller or larger, as those of channels that training cut off."""
        if not self.odd(0.05):
            return scales
        powers = self.data.uniform(-7, 3, len(scales)) * (self.data.random(len(scales)) < 0.5)
        return np.asarray(scales.astype(np.float64) * 10**powers, np.float32)

    def constant(self, value: Array) -> str:
        """The name of a constant: an initializer, which several operators may read, or the output of a Constant."""
        key = (value.dtype.name, value.shape, value.tobytes())
        if key in self._again and self.rng.random() < 0.7:
            return self._again[key]
        name = self.name("c")
        self.values.append(Value(name, value.dtype.name, value.shape, value.tobytes()))
        if self.rng.random() < 0.08:
            stored, name = name, self.name("c")
            self.values.append(Value(name, value.dtype.name, value.shape))
            self.nodes.append(Node("Constant", (stored,), (name,)))
        self._again[key] = name
        self._arrays[name] = value
        return name

    def array_of(self, name: str) -> Array | None:
        """The value of a constant; None for any other."""
        return self._arrays.get(name, None if self.parent is None else self.parent.array_of(name))

    def constant_value(self, value: Array, top: float = 1.0) -> Known:
        """A constant as a value."""
        return self._keep(Known(self.constant(value), value.dtype.name, value.shape, top=top, constant=True))

    def ints(self, values: Sequence[int]) -> str:
        """A vector of int64."""
        return self.constant(np.array(values, np.int64))

    def scalar(self, value: float, dtype: str = FLOAT) -> str:
        """A constant of rank 0."""
        return self.constant(np.array(value, dtype))

    def reals(self, shape: Sequence[int], top: float = 1.0) -> Array:
        """Random float32 of about this magnitude, a few of them 0."""
        values = self.data.uniform(-top, top, tuple(shape)).astype(np.float32)
        if self.rng.random() < 0.2:
            values = np.where(self.data.random(tuple(shape)) < 0.3, np.float32(0), values)
        return np.asarray(values, np.float32)

    # ---- values ----

    def _keep(self, value: Known) -> Known:
        self.known[value.name] = value
        return value

    def size(self) -> int:
        """A random dimension."""
        return self.rng.choice((1, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 20, 32))

    def shape(self, rank: int) -> Shape:
        """A random shape, not too large."""
        while True:
            shape = tuple(self.size() for _ in range(rank))
            if rank >= 3 and self.rng.random() < 0.7:
                shape = (1, *shape[1:])
            if math.prod(shape) <= self.most_elements:
                return shape

    def input(
        self, dtype: str, shape: Shape, scale: float = 0.0, zero: int = 0, bounds: tuple[float, float] | None = None
    ) -> Known:
        """A graph input. bounds: least and largest number that it may get."""
        if self.parent is not None or len(self.inputs) >= self.most_inputs + 2:
            raise Unfit
        top = 4.0 if np.dtype(dtype).kind == "f" else 1.0 if dtype == "bool" else float(np.iinfo(dtype).max)
        top = top if bounds is None else max(abs(bounds[0]), abs(bounds[1]))
        value = self._keep(Known(self.name("x"), dtype, shape, scale, zero, top))
        self.inputs.append(value)
        self.values.append(Value(value.name, dtype, shape, bounds=bounds))
        self.pool.append(value)
        return value

    def add(
        self, op_type: str, inputs: Sequence[Known | str], *outputs: tuple[str, Shape], top: float = 4.0,
        exact: bool = False, quantized: tuple[float, int] = (0.0, 0), codes: str = "", pool: bool = True, **attributes: Any,
    ) -> tuple[Known, ...]:  # fmt: skip
        """An operator, by its domain and type. outputs: element type and shape of each; they join the pool if `pool` says so.

        quantized: scale and zero point of the outputs.
        """
        names = [operand.name if isinstance(operand, Known) else operand for operand in inputs]
        made = []
        for dtype, shape in outputs:
            if math.prod(shape) > 2 * self.most_elements or 0 in shape:
                raise Unfit
            clean = exact and all(self.find(n).exact for n in names if self.has(n))
            made.append(
                Known(self.name("v"), dtype, tuple(shape), *quantized, min(max(top, 1e-6), 1e30), clean, codes=codes)
            )
        while names and not names[-1]:
            names.pop()
        stated = {key: value for key, value in attributes.items() if value is not None}
        self.nodes.append(Node(op_type, tuple(names), tuple(v.name for v in made), stated))
        self.read.update(names)
        for value in made:
            self._keep(value)
            self.values.append(Value(value.name, value.dtype, value.shape))
            if pool:
                self.pool.append(value)
        return tuple(made)

    def has(self, name: str) -> bool:
        """Whether a value of this name is known here or round it."""
        return name in self.known or (self.parent is not None and self.parent.has(name))

    def find(self, name: str) -> Known:
        """A value by its name."""
        return self.known[name] if name in self.known or self.parent is None else self.parent.find(name)

    def candidates(self, wanted: Callable[[Known], bool]) -> list[Known]:
        """Values that fit, those round this graph included."""
        matching = [value for value in self.pool if wanted(value)]
        if self.parent is not None and (not matching or self.rng.random() < 0.3):
            matching += self.parent.candidates(wanted)
        return matching

    def pick(self, wanted: Callable[[Known], bool]) -> Known:
        """A value that fits, recent ones and unread ones more often. Raises Unfit when there is none."""
        candidates = self.candidates(wanted)
        if not candidates:
            raise Unfit
        unread = [value for value in candidates if value.name not in self.read]
        if unread and self.rng.random() < 0.6:
            return self.rng.choice(unread)
        return self.rng.choice(candidates[-4:] if self.rng.random() < 0.5 else candidates)

    def undo(self, nodes: int, values: int, pool: int, inputs: int) -> None:
        """Takes back what an operator has added that turned out not to fit."""
        gone = {value.name for value in self.values[values:]}
        del self.nodes[nodes:], self.values[values:], self.pool[pool:], self.inputs[inputs:]
        for name in gone:
            self.known.pop(name, None)
            self._arrays.pop(name, None)
        self._again = {key: name for key, name in self._again.items() if name not in gone}

    # ---- quantization ----

    def byte_type(self) -> str:
        """A type of quantized values."""
        return self.rng.choice(("int8", "int8", "int8", "uint8", "uint8"))

    def scales_for(self, top: float, dtype: str) -> tuple[float, int]:
        """Scale and zero point for values of about this magnitude."""
        info = np.iinfo(dtype)
        steps = (info.max - info.min) / 2
        # Scales whose ratios are simple put many sums between two steps, where the engine's rounding of floats decides.
        wide = self.rng.choice((0.3, 0.7, 1.0, 1.0, 1.0, 1.5, 4.0)) * self.rng.uniform(0.85, 1.2)
        scale = float(np.float32(max(top, 1e-9) / steps * wide))
        chance = self.rng.random()
        if chance < 0.03 and self.style not in ("qdq", "qdq16", "mixed"):
            scale = 2.0 ** round(math.log2(scale))
        elif chance < 0.06:
            scale = float(np.float32(scale * self.rng.choice((1e-4, 1e-2, 1e2, 1e4))))
        elif self.odd(0.02):
            scale = float(np.float32(scale * 10 ** self.rng.uniform(-8, 8)))
        middle = 0 if info.min < 0 else (info.max + 1) // 2
        chance = self.rng.random()
        zero = middle if chance < 0.4 else self.rng.choice((info.min, info.max)) if chance < 0.5 else 0
        if chance >= 0.5:
            zero = self.rng.randint(info.min, info.max) if dtype in BYTES else middle + self.rng.randint(-99, 99)
        return max(scale, 1e-30), max(zero, info.min)

    def scale_names(self, scale: float | Array, zero: int | Array, dtype: str, *, may_omit: bool = True) -> list[str]:
        """Scale and zero point as constants; a zero point of 0 of uint8 may be left out."""
        omit = may_omit and dtype == "uint8" and np.ndim(zero) == 0 and zero == 0 and self.rng.random() < 0.5
        names = [self.constant(np.asarray(scale, np.float32))]
        return names if omit else [*names, self.constant(np.asarray(zero, dtype))]

    def _converter(self, op_type: str, dtype: str) -> str:
        """QuantizeLinear or DequantizeLinear, at times as the operator of ONNX Runtime."""
        wide = dtype in ("int16", "uint16") and self.opset < 21
        return f"{MICROSOFT}.{op_type}" if wide or self.rng.random() < 0.05 else op_type

    def quantize(self, value: Known, dtype: str = "", pool: bool = True) -> Known:
        """A QuantizeLinear of float32."""
        scale, zero = value.scale, value.zero
        if value.codes and not dtype and self.rng.random() < 0.6:
            dtype = value.codes
        else:
            dtype = dtype or ("int16" if self.style == "qdq16" and self.rng.random() < 0.8 else self.byte_type())
            scale, zero = self.scales_for(value.top, dtype)
        names = self.scale_names(scale, zero, dtype)
        (made,) = self.add(
            self._converter("QuantizeLinear", dtype), [value, *names], (dtype, value.shape), exact=True,
            quantized=(scale, zero), pool=pool, top=value.top,
        )  # fmt: skip
        return made

    def dequantize(self, value: Known) -> Known:
        """A DequantizeLinear of a quantized value; sometimes the one that is there already."""
        if self.rng.random() < 0.5:
            for node in reversed(self.nodes):
                if node.op.endswith("DequantizeLinear") and node.inputs[0] == value.name:
                    return self.known[node.outputs[0]]
        names = self.scale_names(value.scale, value.zero, value.dtype)
        (made,) = self.add(
            self._converter("DequantizeLinear", value.dtype), [value, *names], (FLOAT, value.shape), exact=True,
            top=min(top_of(value), 4 * value.top), quantized=(value.scale, value.zero), codes=value.dtype, pool=False,
        )  # fmt: skip
        return made

    def integers(self, shape: Sequence[int], dtype: str) -> Array:
        """Random constants of an integer type."""
        low, high = (-1000, 1000) if np.dtype(dtype).itemsize > 2 else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        if self.rng.random() < 0.3:
            low, high = max(low, -5), min(high, 5)
        return self.data.integers(low, high, tuple(shape), endpoint=True).astype(dtype)

    def output_of(self, value: Known, **changes: Any) -> Known:
        """What is known of a value, corrected."""
        corrected = self._keep(replace(value, **changes))
        self.pool = [corrected if member.name == value.name else member for member in self.pool]
        return corrected

    def described(self, outputs: Sequence[Known], inputs: Sequence[Known] | None = None) -> Description:
        """The graph with these outputs."""
        sources = self.inputs if inputs is None else inputs
        ends = tuple(v.name for v in sources), tuple(v.name for v in outputs)
        return Description(tuple(self.values), tuple(self.nodes), *ends, opset=self.opset)


_ELEMENT_TYPES: dict[str, int] = {}


def element_type(dtype: str) -> int:
    """ONNX's number of an element type."""
    if dtype not in _ELEMENT_TYPES:
        _ELEMENT_TYPES[dtype] = int(onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))
    return _ELEMENT_TYPES[dtype]

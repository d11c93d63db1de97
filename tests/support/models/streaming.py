"""Small models that keep state between runs, one for each way of reading and writing it.

`rows`: two streaming layers, whose variables hold the rows without the new ones. `window`: one whose variable holds them too.
`blocks`: rows of whole words, of more than a block. `channels`: rows that do not lie in one piece. `delay`: the output is
what was assigned before the last run, the variable is written before the output is used. `swap`: two variables change places.
`twice`: a variable is read, written, read and written in one run. `sum`: an accumulator. `words`: variables of int16 and
int32. `plain`: a variable without an initial value. `constants`: what is assigned, and what is put after the old rows, is a
constant.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from emitc.writers.tflite import ModelSpec, OperatorSpec, SubgraphSpec, TensorSpec
from tests.support.models.tiny import Net

SCALE = (0.05,)


@dataclass
class Stream(Net):
    """A net with variables. initial: tensors that the initialisation assigns, by variable."""

    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(5))
    tensors: list[TensorSpec] = field(default_factory=list)
    operators: list[OperatorSpec] = field(default_factory=list)
    initial: dict[str, TensorSpec] = field(default_factory=dict)

    def variable(self, name: str, like: TensorSpec, *, initial: bool = True) -> int:
        """A handle. initial: whether the variable starts from random values."""
        if initial:
            info = np.iinfo(like.dtype)
            values = self.rng.integers(info.min, info.max, like.shape, dtype=like.dtype, endpoint=True)
            self.initial[name] = replace(like, name=f"{name}/start", data=values.tobytes())
        handle = self.tensor(TensorSpec(f"{name}/handle", "resource", ()))
        self.op("VAR_HANDLE", (), (handle,), container="", shared_name=name)
        return handle

    def read(self, handle: int, like: TensorSpec, name: str) -> int:
        """The value of a variable."""
        value = self.tensor(replace(like, name=name, data=None))
        self.op("READ_VARIABLE", (handle,), (value,))
        return value

    def assign(self, handle: int, value: int) -> None:
        """The next value of a variable."""
        self.op("ASSIGN_VARIABLE", (handle, value), ())

    def cut(self, x: int, like: TensorSpec, begin: Sequence[int], end: Sequence[int], name: str) -> int:
        """Part of a tensor."""
        y = self.tensor(replace(like, name=name, data=None))
        bounds = [self.integers(f"{name}/{what}", values) for what, values in (("begin", begin), ("end", end))]
        self.op("STRIDED_SLICE", (x, *bounds, self.integers(f"{name}/strides", (1,) * len(begin))), (y,))
        return y

    def stream(self, inputs: Sequence[int], outputs: Sequence[int]) -> ModelSpec:
        """The model, whose first operator initialises the variables."""
        spec = self.spec(inputs, outputs)
        if not self.initial:
            return spec
        tensors: list[TensorSpec] = []
        operators: list[OperatorSpec] = []
        for name, value in self.initial.items():
            handle = len(tensors)
            tensors += [TensorSpec(f"{name}/handle", "resource", ()), value]
            operators += [
                OperatorSpec("VAR_HANDLE", (), (handle,), {"container": "", "shared_name": name}),
                OperatorSpec("ASSIGN_VARIABLE", (handle, handle + 1), ()),
            ]
        once = OperatorSpec("CALL_ONCE", (), (), {"init_subgraph_index": 1})
        start = SubgraphSpec(tuple(tensors), tuple(operators), (), (), "start")
        return replace(spec, operators=(once, *spec.operators), subgraphs=(start,))


def _int8(name: str, shape: Sequence[int], zero_point: int = 3) -> TensorSpec:
    return TensorSpec(name, "int8", tuple(shape), None, SCALE, (zero_point,))


def _layer(net: Stream, name: str, x: int, like: TensorSpec, kept: int, filters: int) -> tuple[int, TensorSpec]:
    """READ, CONCATENATION with x, SLICE of the last `kept` rows, ASSIGN, and a convolution over all of the rows."""
    _, new, _, depth = like.shape
    state = replace(like, shape=(1, kept, 1, depth))
    handle = net.variable(name, state)
    old = net.read(handle, state, f"{name}/old")
    joined = net.tensor(replace(like, name=f"{name}/joined", shape=(1, kept + new, 1, depth)))
    net.op("CONCATENATION", (old, x), (joined,), axis=1, fused_activation_function="NONE")
    last = net.cut(joined, state, (0, new, 0, 0), (1, kept + new, 1, depth), f"{name}/last")
    net.assign(handle, last)
    weights = net.weights(f"{name}/w", (filters, kept + new, 1, depth), (0.01,) * filters)
    bias = net.bias(f"{name}/b", filters, (0.0005,) * filters)
    y = _int8(f"{name}/y", (1, 1, 1, filters), -4)
    out = net.tensor(y)
    net.op("CONV_2D", (joined, weights, bias), (out,), padding="VALID", stride_w=1, stride_h=1,
           dilation_w_factor=1, dilation_h_factor=1, fused_activation_function="RELU")  # fmt: skip
    return out, y


def rows() -> ModelSpec:
    """Frames of two rows, then one at a time."""
    net = Stream()
    frame = _int8("frame", (1, 2, 1, 5))
    x = net.tensor(frame)
    hidden, like = _layer(net, "first", x, frame, 3, 6)
    y, _ = _layer(net, "second", hidden, like, 4, 3)
    return net.stream((x,), (y,))


def blocks() -> ModelSpec:
    """Seven old rows, of twenty bytes each."""
    net = Stream()
    frame = _int8("frame", (1, 1, 1, 20))
    x = net.tensor(frame)
    y, _ = _layer(net, "layer", x, frame, 7, 2)
    return net.stream((x,), (y,))


def window() -> ModelSpec:
    """READ, SLICE without the oldest row, CONCATENATION with the new one, ASSIGN."""
    net = Stream()
    frame, all_rows = _int8("frame", (1, 1, 4)), _int8("rows", (1, 5, 4))
    x = net.tensor(frame)
    handle = net.variable("rows", all_rows)
    old = net.read(handle, all_rows, "old")
    rest = net.cut(old, replace(frame, shape=(1, 4, 4)), (0, 1, 0), (1, 5, 4), "rest")
    joined = net.tensor(replace(all_rows, name="joined"))
    net.op("CONCATENATION", (rest, x), (joined,), axis=1, fused_activation_function="NONE")
    net.assign(handle, joined)
    weights = net.weights("w", (2, 20), (0.01,))
    y = net.tensor(_int8("y", (1, 2)))
    flat = net.tensor(_int8("flat", (1, 20)))
    net.op("RESHAPE", (joined, net.integers("shape", (1, 20))), (flat,), new_shape=(1, 20))
    bias = net.bias("b", 2, (0.0005,))
    net.op("FULLY_CONNECTED", (flat, weights, bias), (y,), fused_activation_function="NONE")
    return net.stream((x,), (y,))


def channels() -> ModelSpec:
    """Joined along the last of two dimensions: the new values lie between the old ones."""
    net = Stream()
    frame, state = _int8("frame", (2, 1)), _int8("state", (2, 3))
    x = net.tensor(frame)
    handle = net.variable("state", state)
    old = net.read(handle, state, "old")
    joined = net.tensor(_int8("joined", (2, 4)))
    net.op("CONCATENATION", (old, x), (joined,), axis=1, fused_activation_function="NONE")
    net.assign(handle, net.cut(joined, state, (0, 1), (2, 4), "last"))
    return net.stream((x,), (joined,))


def delay() -> ModelSpec:
    """y = what x was in the run before."""
    net = Stream()
    like = _int8("x", (1, 7))
    x = net.tensor(like)
    handle = net.variable("last", like)
    y = net.read(handle, like, "y")
    net.assign(handle, x)
    return net.stream((x,), (y,))


def swap() -> ModelSpec:
    """a, b = b, a + x. Outputs: both as they were before."""
    net = Stream()
    like = _int8("x", (1, 6))
    x = net.tensor(like)
    first, second = net.variable("a", like), net.variable("b", like)
    a, b = net.read(first, like, "a"), net.read(second, like, "b")
    added = net.tensor(_int8("added", (1, 6), -9))
    net.op("ADD", (a, x), (added,), fused_activation_function="NONE")
    net.assign(first, b)
    net.assign(second, added)
    return net.stream((x,), (a, b))


def twice() -> ModelSpec:
    """s1 = s + x; s2 = s1 + s, where s is read once before and once after the first assignment."""
    net = Stream()
    like = _int8("x", (1, 6))
    x = net.tensor(like)
    handle = net.variable("s", like)
    before = net.read(handle, like, "before")
    once = net.tensor(_int8("once", (1, 6)))
    net.op("ADD", (before, x), (once,), fused_activation_function="NONE")
    net.assign(handle, once)
    after = net.read(handle, like, "after")
    again = net.tensor(_int8("again", (1, 6)))
    net.op("SUB", (after, before), (again,), fused_activation_function="NONE")
    net.assign(handle, again)
    final = net.read(handle, like, "final")
    y = net.tensor(_int8("y", (1, 6)))
    net.op("ADD", (final, once), (y,), fused_activation_function="NONE")
    return net.stream((x,), (y,))


def accumulator() -> ModelSpec:
    """s = s + x, limited to int8; the sum is the output."""
    net = Stream()
    like = _int8("x", (3, 5))
    x = net.tensor(like)
    handle = net.variable("s", like)
    old = net.read(handle, like, "old")
    y = net.tensor(_int8("y", (3, 5)))
    net.op("ADD", (old, x), (y,), fused_activation_function="NONE")
    net.assign(handle, y)
    return net.stream((x,), (y,))


def words() -> ModelSpec:
    """int16 and int32 variables that are passed on for one run."""
    net = Stream()
    inputs, outputs = [], []
    for dtype, scales in (("int16", (0.001,)), ("int32", ())):
        like = TensorSpec(f"x_{dtype}", dtype, (1, 3), None, scales)
        inputs.append(net.tensor(like))
        handle = net.variable(f"s_{dtype}", like)
        outputs.append(net.read(handle, like, f"y_{dtype}"))
        net.assign(handle, inputs[-1])
    return net.stream(inputs, outputs)


def plain() -> ModelSpec:
    """A delay without an initialisation."""
    net = Stream()
    like = _int8("x", (1, 7), -5)
    x = net.tensor(like)
    handle = net.variable("last", like, initial=False)
    y = net.read(handle, like, "y")
    net.assign(handle, x)
    return net.stream((x,), (y,))


def constants() -> ModelSpec:
    """Outputs: what a variable holds, which is a constant from the second run on; rows that a constant one follows, and x."""
    net = Stream()
    like, rows_like = _int8("x", (1, 1, 4)), _int8("rows", (1, 3, 4))
    x = net.tensor(like)
    fixed = net.tensor(replace(like, name="fixed", data=bytes((1, 2, 253, 4))))
    handle = net.variable("s", like)
    old = net.read(handle, like, "old")
    y = net.tensor(_int8("y", (1, 1, 4)))
    net.op("ADD", (old, x), (y,), fused_activation_function="NONE")
    net.assign(handle, fixed)
    kept = net.variable("rows", rows_like)
    before = net.read(kept, rows_like, "before")
    joined = net.tensor(replace(rows_like, name="joined", shape=(1, 4, 4)))
    net.op("CONCATENATION", (before, fixed), (joined,), axis=1, fused_activation_function="NONE")
    net.assign(kept, net.cut(joined, rows_like, (0, 1, 0), (1, 4, 4), "last"))
    z = net.tensor(_int8("z", (1, 4, 4)))
    net.op("ADD", (joined, x), (z,), fused_activation_function="NONE")
    return net.stream((x,), (y, z))


MODELS: dict[str, Callable[[], ModelSpec]] = {
    "rows": rows, "blocks": blocks, "window": window, "channels": channels, "delay": delay, "swap": swap, "twice": twice,
    "sum": accumulator, "words": words, "plain": plain, "constants": constants,
}  # fmt: skip

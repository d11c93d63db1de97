"""Small TFLite models with IF and WHILE, one for each way of using them.

`choice`: two branches of different operators. `known`, `derived`: a condition that is a constant, or computed from constants.
`passed`: a branch that hands its operands on, crosswise, and one that gives a constant. `nested`: an IF in a branch of an IF.
`count`: a loop over a counter and a sum. `swap`: a loop whose values change places. `layers`: a convolution in a loop.
`never`: a loop whose condition is false at first. `loop_if`: an IF in the body of a loop. `twice`: one subgraph for two
operators.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.writers.tflite import ModelSpec, OperatorSpec, OptionValue, SubgraphSpec, TensorSpec, write_tflite

SCALE, ZERO = (0.1,), (3,)
SHAPE = (1, 6)


def compiled(spec: ModelSpec, folder: Path, **options: object) -> Compiled:
    """The model, written to a file in `folder` and compiled."""
    path = folder / "model.tflite"
    path.write_bytes(write_tflite(spec))
    return compile_model(path, **options)


@dataclass
class Sub:
    """A subgraph under construction; tensors are numbers."""

    tensors: list[TensorSpec] = field(default_factory=list)
    operators: list[OperatorSpec] = field(default_factory=list)

    def tensor(self, dtype: str, shape: tuple[int, ...], data: bytes | None = None) -> int:
        quantized = dtype == "int8"
        scales, zeros = (SCALE, ZERO) if quantized else ((), ())
        self.tensors.append(TensorSpec(f"t{len(self.tensors)}", dtype, shape, data, scales, zeros))
        return len(self.tensors) - 1

    def bytes(self, shape: tuple[int, ...] = SHAPE) -> int:
        return self.tensor("int8", shape)

    def constant(self, values: object, dtype: str) -> int:
        array = np.array(values, dtype)
        return self.tensor(dtype, array.shape, array.tobytes())

    def op(self, opcode: str, inputs: tuple[int, ...], output: int, **options: OptionValue) -> int:
        self.operators.append(OperatorSpec(opcode, inputs, (output,), options))
        return output

    def ops(self, opcode: str, inputs: tuple[int, ...], outputs: tuple[int, ...], **options: OptionValue) -> None:
        self.operators.append(OperatorSpec(opcode, inputs, outputs, options))

    def sub(self, inputs: tuple[int, ...], outputs: tuple[int, ...]) -> SubgraphSpec:
        return SubgraphSpec(tuple(self.tensors), tuple(self.operators), inputs, outputs)

    def model(self, inputs: tuple[int, ...], outputs: tuple[int, ...], *subgraphs: SubgraphSpec) -> ModelSpec:
        return ModelSpec(tuple(self.tensors), tuple(self.operators), inputs, outputs, subgraphs=subgraphs)


def add(factor: int = 1) -> SubgraphSpec:
    """x -> x + x, `factor` times."""
    net = Sub()
    x = y = net.bytes()
    for _ in range(factor):
        y = net.op("ADD", (y, x), net.bytes(), fused_activation_function="NONE")
    return net.sub((x,), (y,))


def product() -> SubgraphSpec:
    """x -> x * x, with room for something to be left behind."""
    net = Sub()
    x = net.bytes()
    y = net.op("MUL", (x, x), net.bytes(), fused_activation_function="NONE")
    return net.sub((x,), (net.op("RELU", (y,), net.bytes()),))


def _greater(net: Sub, x: int) -> int:
    """Whether the first of x is over a threshold."""
    begin, end, strides = (net.constant([value, value], "int32") for value in (0, 1, 1))
    first = net.op("STRIDED_SLICE", (x, begin, end, strides), net.bytes((1, 1)))
    real = net.op("DEQUANTIZE", (first,), net.tensor("float32", (1, 1)))
    scalar = net.op("RESHAPE", (real, net.constant(np.zeros(0), "int32")), net.tensor("float32", ()), new_shape=())
    return net.op("GREATER", (scalar, net.constant(0.0, "float32")), net.tensor("bool", ()))


def choice() -> ModelSpec:
    net = Sub()
    x = net.bytes()
    y = net.op("IF", (_greater(net, x), x), net.bytes(), then_subgraph_index=1, else_subgraph_index=2)
    return net.model((x,), (net.op("RELU", (y,), net.bytes()),), add(3), product())


def known() -> ModelSpec:
    net = Sub()
    x = net.bytes()
    y = net.op("IF", (net.constant(False, "bool"), x), net.bytes(), then_subgraph_index=1, else_subgraph_index=2)
    return net.model((x,), (net.op("RELU", (y,), net.bytes()),), add(), product())


def derived() -> ModelSpec:
    net = Sub()
    x = net.bytes()
    sizes = net.constant(3, "int32"), net.constant(4, "int32")
    less = net.op("LESS", sizes, net.tensor("bool", ()))
    y = net.op("IF", (less, x), net.bytes(), then_subgraph_index=1, else_subgraph_index=2)
    return net.model((x,), (y,), add(), product())


def passed(known: bool = False) -> ModelSpec:
    crossed = Sub()
    a, b = crossed.bytes(), crossed.bytes()
    outer = Sub()
    c, d = outer.bytes(), outer.bytes()
    fixed = outer.constant([[1, -2, 3, -4, 5, 127]], "int8")
    net = Sub()
    x, y = net.bytes(), net.bytes()
    outputs = net.bytes(), net.bytes()
    condition = net.constant(True, "bool") if known else _greater(net, x)
    net.ops("IF", (condition, x, y), outputs, then_subgraph_index=1, else_subgraph_index=2)
    total = net.op("ADD", outputs, net.bytes(), fused_activation_function="NONE")
    return net.model((x, y), (*outputs, total), crossed.sub((a, b), (b, a)), outer.sub((c, d), (fixed, d)))


def passed_known() -> ModelSpec:
    return passed(known=True)


def nested() -> ModelSpec:
    outer = Sub()
    x = outer.bytes()
    doubled = outer.op("ADD", (x, x), outer.bytes(), fused_activation_function="NONE")
    inner = outer.op(
        "IF", (_greater(outer, doubled), doubled), outer.bytes(), then_subgraph_index=2, else_subgraph_index=3
    )
    last = outer.op("MUL", (inner, x), outer.bytes(), fused_activation_function="NONE")
    net = Sub()
    x0 = net.bytes()
    turned = net.op("RELU", (x0,), net.bytes())
    y = net.op("IF", (_greater(net, x0), turned), net.bytes(), then_subgraph_index=1, else_subgraph_index=3)
    return net.model((x0,), (y,), outer.sub((x,), (last,)), add(2), product())


def _below(limit: int, *others: tuple[str, tuple[int, ...]]) -> SubgraphSpec:
    """counter, ... -> counter < limit."""
    net = Sub()
    counter = net.tensor("int32", (1,))
    rest = tuple(net.tensor(dtype, shape) for dtype, shape in others)
    less = net.op("LESS", (counter, net.constant([limit], "int32")), net.tensor("bool", (1,)))
    return net.sub((counter, *rest), (less,))


def _next(net: Sub, counter: int) -> int:
    one = net.constant([1], "int32")
    return net.op("ADD", (counter, one), net.tensor("int32", (1,)), fused_activation_function="NONE")


def count(start: int = 0, limit: int = 5) -> ModelSpec:
    body = Sub()
    counter, x = body.tensor("int32", (1,)), body.bytes()
    more = body.constant([[1, 2, 3, 4, 5, 6]], "int8")
    y = body.op("ADD", (x, more), body.bytes(), fused_activation_function="NONE")
    loop = body.sub((counter, x), (_next(body, counter), y))
    net = Sub()
    x0 = net.bytes()
    outputs = net.tensor("int32", (1,)), net.bytes()
    first = net.constant([start], "int32")
    net.ops("WHILE", (first, x0), outputs, cond_subgraph_index=1, body_subgraph_index=2)
    return net.model((x0,), (*outputs,), _below(limit, ("int8", SHAPE)), loop)


def never() -> ModelSpec:
    return count(9, 5)


def swap() -> ModelSpec:
    body = Sub()
    counter, a, b = body.tensor("int32", (1,)), body.bytes(), body.bytes()
    loop = body.sub((counter, a, b), (_next(body, counter), b, a))
    net = Sub()
    x, y, start = net.bytes(), net.bytes(), net.constant([0], "int32")
    outputs = net.tensor("int32", (1,)), net.bytes(), net.bytes()
    net.ops("WHILE", (start, x, y), outputs, cond_subgraph_index=1, body_subgraph_index=2)
    last = net.op("MUL", outputs[1:], net.bytes(), fused_activation_function="NONE")
    below = _below(3, ("int8", SHAPE), ("int8", SHAPE))
    return net.model((x, y), (*outputs, last), below, loop)


def layers() -> ModelSpec:
    rng = np.random.default_rng(4)
    shape = (1, 4, 4, 2)
    body = Sub()
    counter, x = body.tensor("int32", (1,)), body.bytes(shape)
    body.tensors.append(
        TensorSpec("w", "int8", (2, 3, 3, 2), rng.integers(-127, 128, 36, np.int8).tobytes(), (0.01, 0.02), (0, 0), 0)
    )
    body.tensors.append(
        TensorSpec("b", "int32", (2,), np.array([9, -9], np.int32).tobytes(), (0.001, 0.002), (0, 0), 0)
    )
    y = body.op(
        "CONV_2D", (x, 2, 3), body.bytes(shape), stride_h=1, stride_w=1, padding="SAME", fused_activation_function="RELU",
        dilation_h_factor=1, dilation_w_factor=1,
    )  # fmt: skip
    z = body.op("ADD", (y, x), body.bytes(shape), fused_activation_function="NONE")
    loop = body.sub((counter, x), (_next(body, counter), z))
    net = Sub()
    x0 = net.bytes(shape)
    outputs = net.tensor("int32", (1,)), net.bytes(shape)
    net.ops(
        "WHILE", (net.constant([0], "int32"), x0), outputs, cond_subgraph_index=1, body_subgraph_index=2
    )  # fmt: skip
    return net.model((x0,), (outputs[1],), _below(3, ("int8", shape)), loop)


def loop_if() -> ModelSpec:
    body = Sub()
    counter, x = body.tensor("int32", (1,)), body.bytes()
    y = body.op("IF", (_greater(body, x), x), body.bytes(), then_subgraph_index=3, else_subgraph_index=4)
    loop = body.sub((counter, x), (_next(body, counter), y))
    net = Sub()
    x0, start = net.bytes(), net.constant([0], "int32")
    outputs = net.tensor("int32", (1,)), net.bytes()
    net.ops("WHILE", (start, x0), outputs, cond_subgraph_index=1, body_subgraph_index=2)
    return net.model((x0,), (*outputs,), _below(4, ("int8", SHAPE)), loop, product(), add())


def twice() -> ModelSpec:
    net = Sub()
    x = net.bytes()
    y = net.op("IF", (_greater(net, x), x), net.bytes(), then_subgraph_index=1, else_subgraph_index=2)
    z = net.op("IF", (_greater(net, y), y), net.bytes(), then_subgraph_index=2, else_subgraph_index=1)
    return net.model((x,), (z,), add(), product())


def _variable(net: Sub, name: str = "s") -> int:
    handle = net.tensor("resource", ())
    net.operators.append(OperatorSpec("VAR_HANDLE", (), (handle,), {"container": "", "shared_name": name}))
    return handle


def _read(net: Sub, handle: int) -> int:
    return net.op("READ_VARIABLE", (handle,), net.bytes())


def _assign(net: Sub, handle: int, value: int) -> None:
    net.operators.append(OperatorSpec("ASSIGN_VARIABLE", (handle, value), ()))


def _keeping() -> SubgraphSpec:
    """x -> x + s, which s becomes."""
    net = Sub()
    x = net.bytes()
    handle = _variable(net)
    y = net.op("ADD", (x, _read(net, handle)), net.bytes(), fused_activation_function="NONE")
    _assign(net, handle, y)
    return net.sub((x,), (y,))


def state_choice() -> ModelSpec:
    net = Sub()
    x = net.bytes()
    handle = _variable(net)
    y = net.op("IF", (_greater(net, x), x), net.bytes(), then_subgraph_index=1, else_subgraph_index=2)
    z = net.op("MUL", (y, _read(net, handle)), net.bytes(), fused_activation_function="NONE")
    return net.model((x,), (z,), _keeping(), product())


def state_loop() -> ModelSpec:
    body = Sub()
    counter, x = body.tensor("int32", (1,)), body.bytes()
    first, second = _variable(body, "a"), _variable(body, "b")
    was, other = _read(body, first), _read(body, second)
    y = body.op("ADD", (x, was), body.bytes(), fused_activation_function="NONE")
    _assign(body, second, was)
    _assign(body, first, body.op("MAXIMUM", (y, other), body.bytes()))
    loop = body.sub((counter, x), (_next(body, counter), y))
    net = Sub()
    x0, start = net.bytes(), net.constant([0], "int32")
    outputs = net.tensor("int32", (1,)), net.bytes()
    net.ops("WHILE", (start, x0), outputs, cond_subgraph_index=1, body_subgraph_index=2)
    return net.model((x0,), outputs, _below(3, ("int8", SHAPE)), loop)


def state_deep() -> ModelSpec:
    outer = Sub()
    x = outer.bytes()
    handle = _variable(outer, "t")
    y = outer.op("IF", (_greater(outer, x), x), outer.bytes(), then_subgraph_index=2, else_subgraph_index=3)
    z = outer.op("ADD", (y, _read(outer, handle)), outer.bytes(), fused_activation_function="NONE")
    _assign(outer, handle, x)
    net = Sub()
    x0 = net.bytes()
    again = net.op("IF", (_greater(net, x0), x0), net.bytes(), then_subgraph_index=2, else_subgraph_index=1)
    last = net.op("IF", (_greater(net, again), again), net.bytes(), then_subgraph_index=1, else_subgraph_index=3)
    return net.model((x0,), (last,), outer.sub((x,), (z,)), _keeping(), product())


STATEFUL: dict[str, Callable[[], ModelSpec]] = {made.__name__: made for made in (state_choice, state_loop, state_deep)}
"""Variables inside of control flow: a branch that has one, a loop whose variables change places, branches in branches."""

MODELS: dict[str, Callable[[], ModelSpec]] = {
    made.__name__: made
    for made in (choice, known, derived, passed, passed_known, nested, count, never, swap, layers, loop_if, twice)
}

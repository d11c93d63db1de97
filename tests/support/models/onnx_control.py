"""Small ONNX models with If, Loop and Scan, one for each way of using them. Values are float32[1, 4] unless stated.

`choice`: two branches that read values and constants of the model. `handed`: a branch that gives an operand and a constant.
`quantized`: integer layers in a branch, of uint8 that the model quantizes. `nested`: an If in a branch, which reads values two
graphs out. `rounds`: a number of rounds that is known, with one slice each. `until`: a condition, computed from the data.
`at_most`: a condition and a limit. `obeyed`: a limit, and a condition that only the body has. `counted`: a number of rounds
that is computed. `swapped`: values that change places. `loop_if`: an If in a loop. `if_loop`: a loop in a branch. `scan`,
`backward`: slices read and written. `sliced`, `growing`: loops whose shapes need the number of the round. `descending`: a loop
whose condition is known round by round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

FLOAT, INT64, BOOL, UINT8 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.UINT8
SHAPE = (1, 4)
node = helper.make_node
Value = tuple[str, int, Sequence[int] | None]


def constant(name: str, value: object, dtype: str = "float32") -> TensorProto:
    return numpy_helper.from_array(np.asarray(value, dtype), name)


def floats(*names: str) -> list[Value]:
    return [(name, FLOAT, SHAPE) for name in names]


def graph(
    nodes: Sequence[NodeProto],
    inputs: Sequence[Value] = (),
    outputs: Sequence[Value] = (),
    constants: Sequence[TensorProto] = (),
) -> GraphProto:
    infos = [[helper.make_tensor_value_info(*value) for value in values] for values in (inputs, outputs)]
    return helper.make_graph(nodes, "graph", *infos, constants)


def model(
    nodes: Sequence[NodeProto],
    inputs: Sequence[Value],
    outputs: Sequence[Value],
    constants: Sequence[TensorProto] = (),
    opset: int = 17,
) -> ModelProto:
    made = graph(nodes, inputs, outputs, constants)
    return helper.make_model(made, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


POSITIVE = [node("ReduceSum", ["x"], ["sum"], keepdims=0), node("Greater", ["sum", "zero"], ["positive"])]
ZERO = constant("zero", 0)
LESS = [node("ReduceMax", ["x"], ["most"], keepdims=0), node("Less", ["most", "limit"], ["less"])]
LIMIT = constant("limit", 100)
GO_ON = node("Identity", ["going"], ["go_on"])


def body(
    nodes: Sequence[NodeProto], outputs: Sequence[Value], *more: Value, constants: Sequence[TensorProto] = ()
) -> GraphProto:
    """Of a loop over one value v: the number of the round i, its condition, and v go in; a condition and v2 come out."""
    inputs: list[Value] = [("i", INT64, ()), ("going", BOOL, ()), *floats("v"), *more]
    return graph(nodes, inputs, [("go_on", BOOL, ()), *outputs], constants)


ROUND = [node("Cast", ["i"], ["fi"], to=FLOAT), node("Add", ["v", "fi"], ["w"]), node("Mul", ["w", "x"], ["v2"])]
BELOW = [node("ReduceMax", ["v2"], ["top"], keepdims=0), node("Less", ["top", "limit"], ["go_on"])]


def choice() -> ModelProto:
    doubled = graph([node("Mul", ["x", "two"], ["a"]), node("Tanh", ["a"], ["b"])], (), floats("b"))
    more = graph([node("Add", ["x", "one"], ["c"])], (), floats("c"), [constant("one", np.ones(SHAPE))])
    nodes = [*POSITIVE, node("If", ["positive"], ["y"], then_branch=doubled, else_branch=more)]
    return model(nodes, floats("x"), floats("y"), [ZERO, constant("two", np.full(SHAPE, 2))])


def handed() -> ModelProto:
    crossed = graph([node("Identity", ["z"], ["l"]), node("Neg", ["x"], ["n"])], (), floats("l", "n"))
    inner = graph([node("Identity", ["x"], ["m"])], (), floats("k", "m"), [constant("k", [[1, 2, 3, 4]])])
    nodes = [*POSITIVE, node("If", ["positive"], ["y", "y2"], then_branch=crossed, else_branch=inner)]
    return model([*nodes, node("Add", ["y", "y2"], ["total"])], floats("x", "z"), floats("y", "y2", "total"), [ZERO])


def quantized() -> ModelProto:
    rng = np.random.default_rng(5)
    dequantized = [
        node("DequantizeLinear", ["q", "s", "p"], ["r"]), node("DequantizeLinear", ["w", "ws", "wp"], ["rw"]),
        node("MatMul", ["r", "rw"], ["product"]), node("QuantizeLinear", ["product", "s2", "p"], ["inner"]),
    ]  # fmt: skip
    constants = [
        constant("s", 0.02), constant("p", 120, "uint8"), constant("s2", 0.05), constant("ws", 0.01),
        constant("w", rng.integers(-127, 128, (4, 4)), "int8"), constant("wp", 0, "int8"),
    ]  # fmt: skip
    product = graph(dequantized, (), [("inner", UINT8, SHAPE)])
    kept = graph([node("Identity", ["q"], ["same"])], (), [("same", UINT8, SHAPE)])
    nodes = [
        node("QuantizeLinear", ["x", "s", "p"], ["q"]), *POSITIVE,
        node("If", ["positive"], ["c"], then_branch=product, else_branch=kept),
        node("DequantizeLinear", ["c", "s2", "p"], ["y"]),
    ]  # fmt: skip
    return model(nodes, floats("x"), [*floats("y"), ("c", UINT8, SHAPE)], [*constants, ZERO])


def nested() -> ModelProto:
    deep = graph([node("Add", ["x", "two"], ["deep"])], (), floats("deep"))
    deeper = graph([node("Mul", ["z", "e"], ["deeper"])], (), floats("deeper"))
    inner = [
        node("Exp", ["z"], ["e"]), node("ReduceMax", ["e"], ["most"], keepdims=0), node("Less", ["most", "two0"], ["small"]),
        node("If", ["small"], ["i1"], then_branch=deep, else_branch=deeper),
    ]  # fmt: skip
    branches = graph(inner, (), floats("i1")), graph([node("Neg", ["x"], ["n"])], (), floats("n"))
    nodes = [*POSITIVE, node("If", ["positive"], ["y"], then_branch=branches[0], else_branch=branches[1])]
    return model(nodes, floats("x", "z"), floats("y"), [ZERO, constant("two", np.full(SHAPE, 2)), constant("two0", 2)])


def _loop(
    nodes: Sequence[NodeProto],
    limit: str,
    condition: str,
    constants: Sequence[TensorProto] = (),
    before: Sequence[NodeProto] = (),
    slices: bool = False,
) -> ModelProto:
    made = body([*nodes, *([node("Neg", ["w"], ["s"])] if slices else [])], floats("v2", *(["s"] if slices else [])))
    outputs = ["y", "ys"] if slices else ["y"]
    loop = node("Loop", [limit, condition, "x"], outputs, name="loop", body=made)
    return model([*before, loop], floats("x"), [(name, FLOAT, None) for name in outputs], constants)


def rounds() -> ModelProto:
    return _loop([GO_ON, *ROUND], "m", "", [constant("m", 5, "int64")], slices=True)


def until() -> ModelProto:
    return _loop([*ROUND, *BELOW], "", "less", [LIMIT], LESS)


def at_most() -> ModelProto:
    return _loop([*ROUND, *BELOW], "m", "less", [constant("limit", 5), constant("m", 3, "int64")], LESS)


def obeyed() -> ModelProto:
    return _loop([*ROUND, *BELOW], "m", "", [constant("limit", 0.5), constant("m", 4, "int64")])


def counted() -> ModelProto:
    before = [node("ReduceMax", ["x"], ["most"], keepdims=0), node("Cast", ["most"], ["m"], to=INT64)]
    return _loop([GO_ON, *ROUND], "m", "", (), before)


def swapped() -> ModelProto:
    made = body(
        [GO_ON, node("Identity", ["w"], ["v2"]), node("Add", ["v", "x"], ["w2"])], floats("v2", "w2"), *floats("w")
    )
    loop = node("Loop", ["m", "yes", "x", "z"], ["y", "y2"], body=made)
    constants = [constant("m", 3, "int64"), constant("yes", True, "bool")]
    return model([loop], floats("x", "z"), floats("y"), constants)


def loop_if() -> ModelProto:
    up = graph([node("Mul", ["v", "x"], ["up"])], (), floats("up"))
    down = graph([node("Sub", ["v", "fi"], ["down"])], (), floats("down"))
    inner = [
        GO_ON, node("Cast", ["i"], ["fi"], to=FLOAT), node("ReduceSum", ["v"], ["sum"], keepdims=0),
        node("Less", ["sum", "limit"], ["small"]), node("If", ["small"], ["v2"], then_branch=up, else_branch=down),
    ]  # fmt: skip
    loop = node("Loop", ["m", "", "x"], ["y"], body=body(inner, floats("v2")))
    return model([loop], floats("x"), floats("y"), [LIMIT, constant("m", 4, "int64")])


def if_loop() -> ModelProto:
    loop = node("Loop", ["m", "", "x"], ["l"], body=body([GO_ON, *ROUND], floats("v2")))
    branches = graph([loop], (), floats("l")), graph([node("Neg", ["x"], ["n"])], (), floats("n"))
    nodes = [*POSITIVE, node("If", ["positive"], ["y"], then_branch=branches[0], else_branch=branches[1])]
    return model(nodes, floats("x"), floats("y"), [ZERO, constant("m", 3, "int64")])


def scan(backward: bool = False) -> ModelProto:
    inner = graph(
        [node("Add", ["h", "xi"], ["h2"]), node("Mul", ["h2", "w"], ["yi"])],
        [("h", FLOAT, (3,)), ("xi", FLOAT, (3,))],
        [("h2", FLOAT, (3,)), ("yi", FLOAT, (3,))],
    )
    turned = {"scan_input_directions": [1], "scan_output_directions": [1]} if backward else {}
    made = node("Scan", ["h0", "x"], ["h5", "ys"], body=inner, num_scan_inputs=1, **turned)
    constants = [constant("h0", np.zeros(3)), constant("w", [1, 2, 3])]
    return model([made], [("x", FLOAT, (5, 3))], [("h5", FLOAT, (3,)), ("ys", FLOAT, (5, 3))], constants)


def backward() -> ModelProto:
    return scan(backward=True)


def sliced() -> ModelProto:
    inner = [
        GO_ON, node("Add", ["i", "one"], ["i1"]), node("Unsqueeze", ["i", "axis"], ["from"]),
        node("Unsqueeze", ["i1", "axis"], ["to"]), node("Slice", ["x", "from", "to", "last"], ["piece"]),
        node("Add", ["v", "piece"], ["w"]), node("Identity", ["w"], ["v2"]),
    ]  # fmt: skip
    constants = [constant("one", 1, "int64"), constant("axis", [0], "int64"), constant("last", [1], "int64")]
    return _loop(inner, "m", "", [*constants, constant("m", 4, "int64")], slices=True)


def growing() -> ModelProto:
    return _loop([GO_ON, node("Concat", ["v", "x"], ["v2"], axis=1)], "m", "", [constant("m", 3, "int64")])


def descending() -> ModelProto:
    inner = [
        node("Add", ["i", "two"], ["i2"]), node("Less", ["i2", "five"], ["go_on"]),
        node("Concat", ["v", "x"], ["v2"], axis=1),
    ]  # fmt: skip
    constants = [constant("two", 2, "int64"), constant("five", 5, "int64"), constant("yes", True, "bool")]
    return _loop(inner, "", "yes", constants)


MODELS: dict[str, Callable[[], ModelProto]] = {
    made.__name__: made
    for made in (
        choice, handed, quantized, nested, rounds, until, at_most, obeyed, counted, swapped, loop_if, if_loop, scan, backward,
        sliced, growing, descending,
    )
}  # fmt: skip

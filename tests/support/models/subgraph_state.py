"""Small TFLite models whose branches and loops have operators that keep something, one for each way of keeping it.

Each model is a sequence in itself: what comes out depends on how often, and in which order, its branches have run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from flatbuffers import flexbuffers

from emitc.writers.tflite import ModelSpec, OperatorSpec, SubgraphSpec
from tests.support.models.control_flow import (
    SHAPE,
    Sub,
    _assign,
    _below,
    _greater,
    _next,
    _read,
    _variable,
    add,
    product,
)
from tests.support.recurrent_cases import lstm, svdf
from tests.support.single_op import Case, plain, quantized

NONE = {"fused_activation_function": "NONE"}
BOTH = {"then_subgraph_index": 1, "else_subgraph_index": 2}
START = [[10, -20, 30, -40, 50, -60]]


def placed(net: Sub, case: Case, x: int) -> int:
    """The case's operator on x: its output."""
    inputs = []
    for position, tensor in enumerate(case.inputs):
        if tensor is None:
            inputs.append(-1)
        elif position == 0:
            inputs.append(x)
        else:
            net.tensors.append(replace(tensor, name=f"t{len(net.tensors)}"))
            inputs.append(len(net.tensors) - 1)
    outputs = []
    for tensor in case.outputs:
        net.tensors.append(replace(tensor, name=f"t{len(net.tensors)}"))
        outputs.append(len(net.tensors) - 1)
    custom = (case.custom_code, case.custom_options)
    net.operators.append(OperatorSpec(case.opcode, tuple(inputs), tuple(outputs), case.options, case.version, *custom))
    return outputs[0]


def remembering(name: str = "filters") -> SubgraphSpec:
    """x -> SVDF of the last three x."""
    net = Sub()
    x = net.bytes()
    return net.sub((x,), (placed(net, svdf(name, 1, 6, 6, 1, 3), x),))


def branches(then: SubgraphSpec, other: SubgraphSpec, *more: SubgraphSpec) -> ModelSpec:
    """One of two by the sign of the first value."""
    net = Sub()
    x = net.bytes()
    y = net.op("IF", (_greater(net, x), x), net.bytes(), **BOTH)
    return net.model((x,), (net.op("RELU", (y,), net.bytes()),), then, other, *more)


def loop(body: SubgraphSpec, condition: SubgraphSpec | None = None, *more: SubgraphSpec) -> ModelSpec:
    """Three rounds, where the condition does not say otherwise."""
    net = Sub()
    x, start = net.bytes(), net.constant([0], "int32")
    outputs = net.tensor("int32", (1,)), net.bytes()
    net.ops("WHILE", (start, x), outputs, cond_subgraph_index=1, body_subgraph_index=2)
    return net.model((x,), outputs, condition or _below(3, ("int8", SHAPE)), body, *more)


def filters() -> ModelSpec:
    return branches(remembering(), product())


def filters_shared() -> ModelSpec:
    """Two operators run the subgraph, which has one memory."""
    net = Sub()
    x = net.bytes()
    y = net.op("IF", (_greater(net, x), x), net.bytes(), **BOTH)
    z = net.op("IF", (_greater(net, y), x), net.bytes(), then_subgraph_index=2, else_subgraph_index=1)
    return net.model((x,), (y, z), remembering(), product())


def filters_both() -> ModelSpec:
    """Two branches of one sort, each with a memory of its own."""
    return branches(remembering(), remembering())


def filters_round() -> ModelSpec:
    body = Sub()
    counter, x = body.tensor("int32", (1,)), body.bytes()
    y = placed(body, svdf("round", 1, 6, 6, 1, 4), x)
    return loop(body.sub((counter, x), (_next(body, counter), y)))


def filters_deep() -> ModelSpec:
    """A branch in the body of a loop, which runs a subgraph that a branch of the model runs, too."""
    body = Sub()
    counter, x = body.tensor("int32", (1,)), body.bytes()
    y = body.op("IF", (_greater(body, x), x), body.bytes(), then_subgraph_index=3, else_subgraph_index=4)
    net = Sub()
    x0, start = net.bytes(), net.constant([0], "int32")
    first = net.op("IF", (_greater(net, x0), x0), net.bytes(), then_subgraph_index=4, else_subgraph_index=3)
    outputs = net.tensor("int32", (1,)), net.bytes()
    net.ops("WHILE", (start, first), outputs, cond_subgraph_index=1, body_subgraph_index=2)
    below, inside = _below(3, ("int8", SHAPE)), body.sub((counter, x), (_next(body, counter), y))
    return net.model((x0,), outputs, below, inside, remembering(), product())


def cells() -> ModelSpec:
    """A layer of cells, which keeps two variables."""
    steps = Sub()
    x = steps.bytes()
    y = steps.op("RESHAPE", (x, steps.constant([1, 2, 3], "int32")), steps.bytes((1, 2, 3)), new_shape=(1, 2, 3))
    z = placed(steps, lstm("cells", 1, 2, 3, 3), y)
    same = steps.op("QUANTIZE", (z,), steps.bytes((1, 2, 3)))
    end = steps.op("RESHAPE", (same, steps.constant([1, 6], "int32")), steps.bytes(), new_shape=(1, 6))
    return branches(steps.sub((x,), (end,)), product())


def buffer(cycles: int = 1) -> ModelSpec:
    """The last three slots, the two older of which are added."""
    net = Sub()
    x = net.bytes()
    slot = net.op("RESHAPE", (x, net.constant([1, 1, 1, 6], "int32")), net.bytes((1, 1, 1, 6)), new_shape=(1, 1, 1, 6))
    scale, zero = 0.1, 3
    kept = replace(quantized((1, 3, 1, 6), scale, zero), is_variable=True)
    case = Case(
        "buffer", "CUSTOM", (quantized((1, 1, 1, 6), scale, zero),), (kept,), custom_code="CIRCULAR_BUFFER",
        custom_options=flexbuffers.Dumps({"cycles_max": cycles}),
    )  # fmt: skip
    all_three = placed(net, case, slot)
    sizes = tuple(net.constant(values, "int32") for values in ([0, 0, 0, 0], [1, 2, 1, 6], [1, 1, 1, 1]))
    older = net.op("STRIDED_SLICE", (all_three, *sizes), net.bytes((1, 2, 1, 6)))
    total = net.op("SUM", (older, net.constant([1], "int32")), net.bytes((1, 1, 6)), keep_dims=False)
    end = net.op("RESHAPE", (total, net.constant([1, 6], "int32")), net.bytes(), new_shape=(1, 6))
    return branches(net.sub((x,), (end,)), product())


def delay() -> ModelSpec:
    """An operator of the signal library, whose memory the file does not show."""
    graphs = []
    for case in (delayed(2), delayed(5)):
        net = Sub()
        x = net.tensor("int16", (8,))
        graphs.append(net.sub((x,), (placed(net, case, x),)))
    net = Sub()
    asked, x = net.bytes((1, 1)), net.tensor("int16", (8,))
    y = net.op("IF", (_greater(net, asked), x), net.tensor("int16", (8,)), **BOTH)
    return net.model((asked, x), (y,), *graphs)


def delayed(length: int) -> Case:
    options = flexbuffers.Dumps({"delay_length": length})
    x = plain((8,), "int16")
    return Case("delay", "CUSTOM", (x,), (x,), custom_code="SignalDelay", custom_options=options)


def once(net: Sub, subgraph: int) -> None:
    net.operators.append(OperatorSpec("CALL_ONCE", (), (), {"init_subgraph_index": subgraph}))


def start(name: str = "s", computed: bool = False) -> SubgraphSpec:
    """An initialisation: what the variable holds at first, or the sum of that and what it holds."""
    net = Sub()
    value, handle = net.constant(START, "int8"), _variable(net, name)
    _assign(net, handle, net.op("ADD", (value, _read(net, handle)), net.bytes(), **NONE) if computed else value)
    return net.sub((), ())


def summing(net: Sub, x: int, name: str = "s") -> int:
    """x + s, which s becomes."""
    handle = _variable(net, name)
    y = net.op("ADD", (x, _read(net, handle)), net.bytes(), **NONE)
    _assign(net, handle, y)
    return y


def started(subgraph: int) -> SubgraphSpec:
    """x -> x + s, which s becomes; the first of all runs of it initialises s."""
    net = Sub()
    x = net.bytes()
    once(net, subgraph)
    return net.sub((x,), (summing(net, x),))


def first_time() -> ModelSpec:
    return branches(started(3), product(), start())


def first_time_late() -> ModelSpec:
    """The other branch sums into the variable, too, which the first run of this one overwrites."""
    net = Sub()
    x = net.bytes()
    return branches(started(3), net.sub((x,), (summing(net, x),)), start())


def first_time_shared() -> ModelSpec:
    """Two operators run the branch, which is initialised once, by which comes first."""
    net = Sub()
    x = net.bytes()
    y = net.op("IF", (_greater(net, x), x), net.bytes(), **BOTH)
    z = net.op("IF", (_greater(net, y), x), net.bytes(), then_subgraph_index=2, else_subgraph_index=1)
    return net.model((x,), (y, z), started(3), product(), start())


def first_time_of_two() -> ModelSpec:
    """Two operators CALL_ONCE of one subgraph: each of them calls it once."""
    return branches(started(3), started(3), start())


def first_round() -> ModelSpec:
    body = Sub()
    counter, x = body.tensor("int32", (1,)), body.bytes()
    once(body, 3)
    y = summing(body, x)
    return loop(body.sub((counter, x), (_next(body, counter), y)), None, start())


def computed_first() -> ModelSpec:
    """The initialisation is more than constants."""
    return branches(started(3), product(), start(computed=True))


def asking() -> ModelSpec:
    """A condition whose limit changes with every time that it is asked, over all runs, and is initialised by the first."""
    asked = Sub()
    counter, x = asked.tensor("int32", (1,)), asked.bytes()
    once(asked, 3)
    handle = _variable(asked, "asked")
    was = asked.op("READ_VARIABLE", (handle,), asked.tensor("int32", (1,)))
    turned = asked.op("SUB", (asked.constant([0], "int32"), was), asked.tensor("int32", (1,)), **NONE)
    _assign(asked, handle, turned)
    limit = asked.op("ADD", (turned, asked.constant([3], "int32")), asked.tensor("int32", (1,)), **NONE)
    going = asked.op("LESS", (counter, limit), asked.tensor("bool", (1,)))
    condition = asked.sub((counter, x), (going,))
    first = Sub()
    handle = _variable(first, "asked")
    _assign(first, handle, first.constant([2], "int32"))
    body = Sub()
    counter, x = body.tensor("int32", (1,)), body.bytes()
    y = placed(body, svdf("asking", 1, 6, 6, 1, 4), x)
    return loop(body.sub((counter, x), (_next(body, counter), y)), condition, first.sub((), ()))


def silent() -> ModelSpec:
    """A branch that gives nothing, and is there for what it leaves behind."""
    graphs = []
    for opcode in ("ADD", "SUB"):
        inside = Sub()
        x = inside.bytes()
        handle = _variable(inside)
        _assign(inside, handle, inside.op(opcode, (_read(inside, handle), x), inside.bytes(), **NONE))
        graphs.append(inside.sub((x,), ()))
    net = Sub()
    x = net.bytes()
    net.operators.append(OperatorSpec("IF", (_greater(net, x), x), (), BOTH))
    return net.model((x,), (_read(net, _variable(net)),), *graphs)


def assigned_again() -> ModelSpec:
    """Reads on both sides of an assignment, one of which is the branch's output."""
    net = Sub()
    x = net.bytes()
    handle = _variable(net)
    before = _read(net, handle)
    _assign(net, handle, net.op("MAXIMUM", (x, before), net.bytes()))
    after = _read(net, handle)
    total = net.op("ADD", (before, after), net.bytes(), **NONE)
    _assign(net, handle, total)
    return branches(net.sub((x,), (before,)), add())


def rolling() -> ModelSpec:
    """The last rows of a streaming layer in a branch: read, joined with new ones, cut and assigned."""
    net = Sub()
    x = net.bytes()
    handle = _variable(net)
    old = net.op("READ_VARIABLE", (handle,), net.bytes((2, 6)))
    joined = net.op("CONCATENATION", (old, x), net.bytes((3, 6)), axis=0, **NONE)
    sizes = tuple(net.constant(values, "int32") for values in ([1, 0], [3, 6], [1, 1]))
    _assign(net, handle, net.op("STRIDED_SLICE", (joined, *sizes), net.bytes((2, 6))))
    total = net.op("SUM", (joined, net.constant([0], "int32")), net.bytes((1, 6)), keep_dims=True)
    return branches(net.sub((x,), (total,)), product())


MODELS: dict[str, Callable[[], ModelSpec]] = {
    made.__name__: made
    for made in (
        filters, filters_shared, filters_both, filters_round, filters_deep, cells, buffer, delay, first_time, first_time_late,
        first_time_shared, first_time_of_two, first_round, computed_first, asking, silent, assigned_again, rolling,
    )
}  # fmt: skip

"""Random TFLite graphs: operators appended to values that are there, until there are enough."""

from __future__ import annotations

import importlib

import numpy as np

from bench.random_graphs.case import Description, Value
from bench.random_graphs.tflite.graph_builder import ANY, OFFERS, GraphBuilder, Offer, Unfit

for _module in ("moves", "elementwise", "reductions", "layers", "recurrent", "control", "signal", "frames", "lookups"):
    importlib.import_module(f"bench.random_graphs.tflite.{_module}")

_INTEGERS = ("int16", "int32", "int64", "uint8", "bool")
_NOT_IN_TFLM: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("FLOOR_DIV", "FLOOR_MOD", "REDUCE_PROD", "EXPAND_DIMS", "GATHER"), _INTEGERS),
    **dict.fromkeys(("REDUCE_MAX", "REDUCE_MIN", "MIRROR_PAD", "RESIZE_NEAREST_NEIGHBOR", "CAST"), _INTEGERS),
    **dict.fromkeys(("EXP", "GELU", "POW", "RELU_N1_TO_1", "REDUCE_PROD", "SHAPE", "TILE"), ()),
    **dict.fromkeys(("ADD", "SUB", "MUL", "REDUCE_ALL"), ("int64", "bool")),
}
_NOT_IN_LITERT: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("CUMSUM", "ADD_N", "SVDF"), ("int8",)),
    **dict.fromkeys(("CEIL", "ELU", "ROUND"), ()),
    **dict.fromkeys((op for op in OFFERS if op.startswith("CUSTOM:")), ()),
}
_MISSING = {"tflm": _NOT_IN_TFLM, "litert": _NOT_IN_LITERT}
"""Operators that an engine does not have: for which types of their first operand, none for all."""
_DTYPES = ("int8",) * 11 + ("int16",) * 3 + ("uint8",) * 2 + ("float32",) * 4
_RARE = ("int32", "int64", "bool", "uint16", "uint32", "uint64", "float64")
"""Types of the inputs of few graphs."""
_TRIES = 30


def draw(rng: np.random.Generator) -> Description:
    """A valid graph of 1 to about 14 operators."""
    dtype = _DTYPES[int(rng.integers(len(_DTYPES)))]
    if rng.random() < 0.06:
        dtype = _RARE[int(rng.integers(len(_RARE)))]
    d = GraphBuilder(rng, dtype, engine="litert" if dtype == "uint8" or rng.random() < 0.25 else "tflm")
    if d.chance(0.03):
        d.limit = 120_000
    if d.limit > 10_000:
        d.model_input(
            dtype, d.pick(((1, d.between(40, 90), d.between(40, 90), d.between(3, 6)), (d.between(10_001, 40_000),)))
        )
    for _ in range(d.pick((1, 1, 1, 2, 3)) if d.limit < 10_000 else 0):
        d.model_input(dtype, d.draw_shape(d.pick((1, 2, 3, 3, 4, 4, 4, 4, 5)), 600))
    for _ in range(d.pick((1, 2, 3, 4, 5, 6, 7, 8, 10, 12))):
        append(d)
    return finished(d)


def append(d: GraphBuilder) -> None:
    """One more operator, with the views and casts that it needs; nothing where none was found to fit."""
    for _ in range(_TRIES):
        recent = d.pool[-4:] if d.chance(0.7) else d.pool
        x = d.pick(recent)
        offered = [offer for offer in OFFERS.values() if x.dtype in offer.dtypes and _has(d.engine, offer.op, x.dtype)]
        weights = np.array([offer.weight for offer in offered])
        chosen = offered[int(d.rng.choice(len(offered), p=weights / weights.sum()))]
        before = (dict(d.values), list(d.nodes), list(d.inputs), list(d.pool))
        try:
            made = turned(d, x, chosen) if d.chance(0.25) else chosen.make(d, x)
        except Unfit:
            d.values, d.nodes, d.inputs, d.pool = before
            continue
        d.pool += made
        return


_TURNED = ANY


def turned(d: GraphBuilder, x: Value, offer: Offer) -> list[Value]:
    """The operator on x with its dimensions in another order, which what it makes leaves again, as converters write it."""
    rank = len(x.shape)
    if x.dtype not in _TURNED or not 2 <= rank <= 5:
        raise Unfit
    order = [int(i) for i in d.rng.permutation(rank)]
    if rank == 4 and d.chance(0.5):
        order = d.pick(([0, 2, 3, 1], [0, 3, 1, 2]))
    made = offer.make(d, d.moved("TRANSPOSE", (x, d.integers(order)), [x.shape[i] for i in order]))
    back = [order.index(i) for i in range(rank)]
    turned_values = []
    for y in made:
        turned_values.append(y)
        if y.dtype in _TURNED and len(y.shape) == rank:
            turned_values.append(d.moved("TRANSPOSE", (y, d.integers(back)), [y.shape[i] for i in back]))
    return turned_values


def _has(engine: str, op: str, dtype: str) -> bool:
    """Whether an engine has the operator for the type."""
    missing = _MISSING[engine]
    return op not in missing or bool(missing[op] and dtype not in missing[op])


def finished(d: GraphBuilder) -> Description:
    """The graph with its outputs: what nothing reads, sometimes more, and sometimes an input."""
    read = {name for node in d.nodes for name in node.inputs}
    made = [name for node in d.nodes for name in node.outputs]
    outputs = [name for name in made if name not in read and d.values[name].dtype != "resource"]
    if len(outputs) > 4:
        outputs = [name for name in outputs if d.chance(3 / len(outputs))] or outputs[-1:]
    outputs += [name for name in made if name in read and d.values[name].dtype != "resource" and d.chance(0.06)]
    if d.chance(0.02):
        outputs.append(d.pick(d.inputs))
    return d.description(outputs or _read_back(d))


def _read_back(d: GraphBuilder) -> list[str]:
    """An output for a graph whose every value is read, as a loop of state is."""
    readable = [value for value in d.pool if value.name not in d.inputs and not value.constant]
    chosen: Value = readable[-1] if readable else d.values[d.inputs[0]]
    return [chosen.name]

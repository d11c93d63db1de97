"""What the generator of TFLite graphs can draw: every operator that emitc lowers, with every type."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import numpy as np
import pytest

from bench.random_graphs.case import Description, Value
from bench.random_graphs.records import type_of
from bench.random_graphs.tflite import draw, write
from bench.random_graphs.tflite.graph_builder import OFFERS, GraphBuilder, Unfit
from emitc.report.inspection import operator_list

TRIES = 40
NEVER = {
    ("CUSTOM:TFLM_DECODE", ""): "compressed constants, which the frontend unpacks; no tool here writes them at random",
    **{(op, "bool"): "the list states what EQUAL takes; no engine orders truth values"
       for op in ("LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")},
}  # fmt: skip
"""Operators and types that are never drawn, with the reason."""


def made(op: str, dtype: str) -> Iterator[Description]:
    """Graphs for an offer and a type of its operand."""
    for number in range(TRIES):
        rng = np.random.default_rng([number, len(op)])
        d = GraphBuilder(rng, dtype, engine=("tflm", "litert")[number % 2])
        x = d.model_input(dtype, d.draw_shape(d.pick((1, 2, 3, 4, 4)), 200))
        try:
            OFFERS[op].make(d, x)
        except Unfit:
            continue
        yield d.description([name for node in d.nodes for name in node.outputs])


def wanted() -> set[tuple[str, str]]:
    """Operators and types of `emitc ops`; the empty type for those without one."""
    listed = [each for each in operator_list()["operators"] if each["format"] == "tflite"]
    return {(each["op"], dtype) for each in listed for dtype in each["dtypes"] or [""]}


def test_every_operator_is_drawn_with_every_type_that_emitc_lowers() -> None:
    left = {pair for pair in wanted() if pair not in NEVER}
    assert len(left) > 500
    for op, offer in OFFERS.items():
        for dtype in offer.dtypes:
            for graph in made(op, dtype):
                for owner, node in graph.every_node():
                    left -= {(node.op, type_of(owner, node)), (node.op, "")}
                if not any(name in (op, "") for name, _ in left):
                    break
    assert left == set()


def test_an_exception_is_an_operator_that_emitc_lowers() -> None:
    assert set(NEVER) <= wanted()


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16"])
def test_every_operator_takes_or_leaves_integers_without_a_scale(dtype: str) -> None:
    """CAST makes such values. No maker may fail on one in another way than by Unfit."""
    for op, offer in OFFERS.items():
        for number in range(TRIES if dtype in offer.dtypes else 0):
            d = GraphBuilder(np.random.default_rng([number, len(op)]), dtype, engine=("tflm", "litert")[number % 2])
            x = d.add(Value("plain", dtype, d.draw_shape(d.pick((1, 2, 3, 4, 4)), 200)))
            with contextlib.suppress(Unfit):
                offer.make(d, x)


def test_graphs_are_equal_for_equal_seeds_and_some_are_large() -> None:
    graphs = [draw(np.random.default_rng([8, number])) for number in range(200)]
    assert graphs[3] == draw(np.random.default_rng([8, 3]))
    assert all(write(graph)[4:8] == b"TFL3" for graph in graphs[:20])
    large = [graph for graph in graphs if any(each.elements > 10_000 for each in graph.values if not each.constant)]
    assert 2 <= len(large) <= 20

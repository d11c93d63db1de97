"""The node tests of the package `onnx` as cases: one operator, its inputs computed, with the outputs that it must give."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

from emitc.ir import Array
from tests.support.onnx_op import Computed, Draw, OnnxCase, Outcome, prove_onnx


@dataclass(frozen=True, slots=True)
class NodeTest:
    """A case with the values of its inputs in `draw`, and the outputs that it asks for."""

    case: OnnxCase
    expected: tuple[Array, ...]
    rtol: float
    atol: float


@cache
def _all() -> tuple[Any, ...]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package computes its cases, some of them on infinities
        return tuple(load_model_tests(kind="node"))


def node_tests(*op_types: str, without: tuple[str, ...] = ()) -> list[NodeTest]:
    """The node tests that consist of one node of these operators; without: substrings of names to leave out."""
    tests = []
    for test in _all():
        graph = test.model.graph
        name = test.name.removeprefix("test_")
        if len(graph.node) != 1 or graph.node[0].op_type not in op_types or any(part in name for part in without):
            continue
        (opset,) = (o.version for o in test.model.opset_import if not o.domain)
        inputs, outputs = test.data_sets[0]
        arrays = [numpy_helper.to_array(v) if hasattr(v, "data_type") else np.asarray(v) for v in inputs]
        values = dict(zip((i.name for i in graph.input), arrays, strict=True))
        expected = tuple(numpy_helper.to_array(v) if hasattr(v, "data_type") else np.asarray(v) for v in outputs)
        tests.append(
            NodeTest(
                OnnxCase(
                    name,
                    graph.node[0].op_type,
                    {n: Computed(v.shape, v.dtype.name) for n, v in values.items()},
                    opset=opset,
                    draw=_drawing(values),
                    outputs=tuple(o.name for o in graph.output),
                    nodes=tuple(graph.node),
                ),
                expected,
                test.rtol,
                test.atol,
            )
        )
    return tests


def _drawing(values: Mapping[str, Array]) -> Draw:
    return lambda rng, sample: values


def check_node_tests(tests: list[NodeTest]) -> None:
    """Asserts that C and reference give every test's outputs: integers exactly, floats within the test's tolerance."""
    outcomes: dict[str, Outcome] = {}
    for opset in sorted({test.case.opset for test in tests}):
        group = [test.case for test in tests if test.case.opset == opset]
        outcomes |= prove_onnx(group, samples=1, engine=False, sanitize=False).outcomes
    for test in tests:
        outcome = outcomes[test.case.id]
        for what, results in (("C", outcome.compiled[0]), ("reference", outcome.reference[0])):
            for value, expected in zip(results, test.expected, strict=True):
                assert (value.dtype, value.shape) == (expected.dtype, expected.shape), f"{test.case.id}: {what}"
                exact = expected.dtype.kind != "f"
                close = np.isclose(value, expected, rtol=0 if exact else test.rtol, atol=0 if exact else test.atol)
                assert close.all(), f"{test.case.id}: {what} gives {value}, {expected} is expected"

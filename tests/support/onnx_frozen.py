"""Node tests with all inputs but some made constants: they have weights, scales and axes as inputs of the graph."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from tests.support.onnx_node_cases import NodeTest


def frozen(tests: Iterable[NodeTest], *computed: int) -> list[NodeTest]:
    """The tests with the inputs at these positions computed, by default the first alone, and the others constant."""
    frozen_tests = []
    for test in tests:
        assert test.case.draw is not None
        values = test.case.draw(np.random.default_rng(0), 0)
        inputs = {
            name: spec if position in (computed or (0,)) else values[name]
            for position, (name, spec) in enumerate(test.case.inputs.items())
        }
        frozen_tests.append(replace(test, case=replace(test.case, inputs=inputs)))
    return frozen_tests

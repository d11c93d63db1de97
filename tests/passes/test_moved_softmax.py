"""SOFTMAX and LOG_SOFTMAX of TFLite run over the last dimension, wherever a Transpose around them is moved to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from emitc.errors import CannotCompile
from emitc.ir import Graph
from emitc.passes.transposes import cancel_transposes
from emitc.passes.verify_graph import verify_graph
from emitc.verify.reference import run_reference
from emitc.writers.tflite import TensorSpec
from tests.support.passes.pass_graphs import Net, PassCase, check_numbers, check_structure, graph_of

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

QUANTIZATIONS = {
    ("SOFTMAX", "int8", "int8"): (2.0**-8, -128),
    ("SOFTMAX", "int8", "int16"): (2.0**-16, -32768),
    ("SOFTMAX", "int16", "int16"): (2.0**-15, 0),
    ("LOG_SOFTMAX", "int8", "int8"): (2.0**-4, 127),
}
"""What TFLite fixes for the output, by operator and types."""


def between(
    opcode: str, x: str, y: str, shape: tuple[int, ...], there: tuple[int, ...], back: tuple[int, ...]
) -> Callable[[Net], None]:
    """Builds TRANSPOSE, the operator, and the TRANSPOSE that undoes the first one."""

    def turned(sizes: tuple[int, ...], permutation: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(sizes[axis] for axis in permutation)

    def build(net: Net) -> None:
        scales: tuple[float, ...] = () if x == "float32" else (0.1,)
        spec = TensorSpec("", x, shape, None, scales, (0,) * len(scales))
        given = net.tensor(spec)
        net.inputs.append(given)
        a = net.op("TRANSPOSE", (given, net.integers(there)), net.like(given, shape=turned(shape, there)))
        found = QUANTIZATIONS.get((opcode, x, y))
        changes = {"dtype": y} | ({"scales": (found[0],), "zero_points": (found[1],)} if found else {})
        options = {"beta": 1.5} if opcode == "SOFTMAX" else {}
        b = net.op(opcode, (a,), net.like(a, **changes), **options)
        net.output(net.op("TRANSPOSE", (b, net.integers(back)), net.like(b, shape=turned(turned(shape, there), back))))

    return build


KINDS = [*QUANTIZATIONS, ("SOFTMAX", "float32", "float32"), ("LOG_SOFTMAX", "float32", "float32")]
CASES = tuple(
    PassCase(
        f"{opcode}_{x}_{y}".lower(),
        between(opcode, x, y, (2, 3, 4), (0, 2, 1), (0, 2, 1)),
        (opcode, "Reshape") if x == "float32" else ("TRANSPOSE", opcode, "TRANSPOSE"),
    )
    for opcode, x, y in KINDS
)
KEPT = PassCase(
    "row_kept_last", between("SOFTMAX", "int8", "int8", (2, 3, 4), (1, 0, 2), (1, 0, 2)), ("SOFTMAX", "Reshape")
)


@pytest.mark.parametrize("case", [*(c for c in CASES if "float32" not in c.id), KEPT], ids=lambda case: case.id)
def test_the_pass_changes_no_value(case: PassCase) -> None:
    check_structure("cancel-transposes", case)


@pytest.mark.parametrize("disabled", [(), ("cancel-transposes",)], ids=["pass", "without"])
def test_the_c_equals_the_engine(tmp_path: Path, disabled: tuple[str, ...]) -> None:
    check_numbers((*(c for c in CASES if "float32" not in c.id), KEPT), tmp_path, *disabled)


@pytest.mark.parametrize("case", [c for c in CASES if "float32" in c.id], ids=lambda case: case.id)
def test_floats_run_along_any_dimension(case: PassCase, tmp_path: Path) -> None:
    graph = cancel_transposes(graph_of(case.build))
    assert tuple(node.op_type for node in graph.nodes) == case.after
    check_numbers((case,), tmp_path)


@pytest.mark.parametrize("kind", list(QUANTIZATIONS), ids="_".join)
def test_another_dimension_is_refused(kind: tuple[str, str, str]) -> None:
    """The check stands for every pass: one that gives the operator a dimension that no kernel reads is stopped."""
    graph = graph_of(between(*kind, (2, 3, 4), (0, 2, 1), (0, 2, 1)))

    def moved(found: Graph) -> Graph:
        nodes = tuple(
            replace(n, op=replace(n.op, axis=1)) if "SOFTMAX" in n.op_type else n  # type: ignore[call-arg]
            for n in found.nodes
        )
        return replace(found, nodes=nodes)

    with pytest.raises(CannotCompile, match="runs over dimension 1 of 3"):
        verify_graph(moved(graph))


# ---- heads of object detectors: the expected distance to each side of a box, from a distribution over few bins ----

SIDES, BINS, PLACES = 4, 4, 12
"""Of a box, of a distance, and of the 4 x 3 image at which boxes may be."""


def transpose(net: Net, x: int, *order: int) -> int:
    """A TRANSPOSE."""
    return net.op(
        "TRANSPOSE", (x, net.integers(order)), net.like(x, shape=tuple(net.tensors[x].shape[i] for i in order))
    )


def shares(net: Net, x: int) -> int:
    """A SOFTMAX."""
    return net.op("SOFTMAX", (x,), net.like(x, scales=(2.0**-8,), zero_points=(-128,)), beta=1.0)


def expected(net: Net, x: int) -> int:
    """The mean of the bins by their shares, as a CONV_2D from bins to one channel; its bias is at the product of the scales."""
    y = net.conv(x, 1, kernel=1, zero_point=0, scale=0.02)
    bias = net.operators[-1].inputs[2]
    net.tensors[bias] = replace(net.tensors[bias], scales=(2.0**-8 * 0.01,))
    return y


def head_over_the_last_dimension(net: Net) -> None:
    """Sides and bins first, as ONNX has them; then bins last for SOFTMAX and CONV_2D."""
    x = net.conv(net.input((1, 4, 3, 2)), SIDES * BINS, kernel=1, scale=0.05)
    x = transpose(net, net.reshape(x, (1, PLACES, SIDES * BINS)), 0, 2, 1)
    x = transpose(net, net.reshape(x, (1, SIDES, BINS, PLACES)), 0, 3, 1, 2)
    x = expected(net, shares(net, x))
    net.output(transpose(net, net.reshape(x, (1, PLACES, SIDES)), 0, 2, 1))


def head_over_the_second_dimension(net: Net) -> None:
    """SOFTMAX over the second of four dimensions, as converters write it: between two TRANSPOSEs of all of them."""
    x = net.conv(net.input((1, 4, 3, 2)), SIDES * BINS, kernel=1, scale=0.05)
    x = transpose(net, net.reshape(x, (1, PLACES, SIDES, BINS)), 0, 3, 2, 1)
    x = transpose(net, shares(net, transpose(net, x, 0, 2, 3, 1)), 0, 3, 1, 2)
    net.output(net.reshape(expected(net, transpose(net, x, 0, 2, 3, 1)), (1, SIDES, PLACES)))


def head_of_several_scales(net: Net) -> None:
    """Two images of places joined after each other, as heads have them; boxes are what remains."""
    parts = []
    for shape in ((1, 4, 3, 2), (1, 2, 1, 2)):
        x = net.conv(net.input(shape), SIDES * BINS, kernel=1, scale=0.05)
        places = shape[1] * shape[2]
        parts.append(transpose(net, net.reshape(x, (1, places, SIDES * BINS)), 0, 2, 1))
    places = sum(net.tensors[part].shape[2] for part in parts)
    both = net.op("CONCATENATION", parts, net.like(parts[0], shape=(1, SIDES * BINS, places)), axis=2)
    x = transpose(net, net.reshape(both, (1, SIDES, BINS, places)), 0, 1, 3, 2)
    x = transpose(net, shares(net, x), 0, 3, 1, 2)
    net.output(expected(net, transpose(net, x, 0, 2, 3, 1)))


HEADS = (head_over_the_last_dimension, head_over_the_second_dimension, head_of_several_scales)


@pytest.mark.parametrize("head", HEADS, ids=lambda head: head.__name__)
def test_heads_keep_their_values(head: Callable[[Net], None]) -> None:
    before = graph_of(head)
    after = cancel_transposes(before)
    verify_graph(after)
    rng = np.random.default_rng(2)
    for _ in range(3):
        inputs = [rng.integers(-128, 128, before.tensor(name).shape).astype(np.int8) for name in before.inputs]
        old, new = run_reference(before, inputs), run_reference(after, inputs)
        for first, second in zip(before.outputs, after.outputs, strict=True):
            assert np.array_equal(old[first], new[second])


@pytest.mark.parametrize("disabled", [(), ("cancel-transposes",)], ids=["pass", "without"])
def test_heads_equal_the_engine(tmp_path: Path, disabled: tuple[str, ...]) -> None:
    check_numbers([PassCase(head.__name__, head, ()) for head in HEADS], tmp_path, *disabled)

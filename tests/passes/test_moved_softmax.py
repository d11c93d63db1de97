"""SOFTMAX and LOG_SOFTMAX of TFLite run over the last dimension, wherever a Transpose around them is moved to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pass_graphs import Net, PassCase, check_numbers, check_structure, graph_of

from emitc.errors import CannotCompile
from emitc.ir import Graph
from emitc.passes.cancel_transposes import cancel_transposes
from emitc.verify_graph import verify_graph
from emitc.writers.tflite import TensorSpec

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

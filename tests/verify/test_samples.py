"""The inputs of the proof: random ones that cover their range, and given ones that must fit and are all used."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emitc.compiler import compile_model
from emitc.errors import EmitcError
from emitc.ir import DType, Graph, Node, Op, Quantization, Tensor
from emitc.kernels.movement.gather import EmbeddingLookup, Gather
from emitc.kernels.movement.reshape import Reshape
from emitc.kernels.movement.transpose import Transpose
from emitc.kernels.quantization.quantize import Cast, Quantize
from emitc.verify.reference import random_samples, read_vectors


@pytest.fixture(scope="module")
def branches(tiny: Path) -> Graph:
    return compile_model(tiny / "branches.tflite").graph


def test_random_samples_are_the_same_for_a_seed_and_differ_between_seeds(branches: Graph) -> None:
    first, again, other = (random_samples(branches, 3, seed) for seed in (1, 1, 2))
    assert all(np.array_equal(a, b) for x, y in zip(first, again, strict=True) for a, b in zip(x, y, strict=True))
    assert not np.array_equal(first[0][0], other[0][0])


def test_random_samples_cover_the_range_and_have_the_inputs_shapes(branches: Graph) -> None:
    samples = random_samples(branches, 20, 0)
    for i, name in enumerate(branches.inputs):
        tensor = branches.tensor(name)
        assert all(s[i].shape == tensor.shape and s[i].dtype == np.int8 for s in samples)
        values = np.concatenate([s[i].reshape(-1) for s in samples])
        assert (values.min(), values.max()) == (-128, 127)
        assert len(np.unique(values)) > 200


def test_a_float_input_spans_what_its_quantization_tells_apart(tiny: Path) -> None:
    graph = compile_model(tiny / "edges.tflite").graph
    values = np.concatenate([s[0].reshape(-1) for s in random_samples(graph, 20, 0)])
    assert values.dtype == np.float32
    steps = np.rint(values / 0.04 - 9)
    assert steps.min() < -128
    assert steps.max() > 127


def quantized_later(steps: list[tuple[Op, str, str]], quantization: dict[str, Quantization]) -> Graph:
    """x float [4, 50] over operators; the tensors with a quantization are uint8. v is a view of x."""
    names = dict.fromkeys(["x", "v", *(name for _, source, target in steps for name in (source, target))])
    tensors = tuple(
        Tensor(
            name, DType.UINT8 if name in quantization else DType.FLOAT32, (4, 50), quantization.get(name),
            alias_of="x" if name == "v" else "",
        )
        for name in names
    )  # fmt: skip
    nodes = tuple(Node(op, type(op).__name__, (source,), (target,), i) for i, (op, source, target) in enumerate(steps))
    return Graph("g", tensors, nodes, ("x",), ())


Q1, Q2 = Quantization((0.5,), (100,)), Quantization((0.01, 2.0), (0, 200), 0)


@pytest.mark.parametrize(
    ("steps", "low", "high"),
    [
        pytest.param([(Quantize(), "x", "q1")], -52, 79.5, id="directly"),
        pytest.param([(Transpose((1, 0)), "x", "t"), (Quantize(), "t", "q1")], -52, 79.5, id="turned"),
        pytest.param(
            [(Transpose((1, 0)), "x", "t"), (Reshape((4, 50)), "t", "u"), (Quantize(), "u", "q1")],
            -52,
            79.5,
            id="moved twice",
        ),
        pytest.param([(Quantize(), "v", "q1")], -52, 79.5, id="through a view"),
        pytest.param([(Quantize(), "x", "q2")], -408, 118, id="per channel"),
        pytest.param([(Quantize(), "x", "q1"), (Quantize(), "x", "q2")], -408, 118, id="two readers"),
        pytest.param([(Op(), "x", "f"), (Quantize(), "f", "q1")], -4, 4, id="computed before"),
        pytest.param([], -4, 4, id="never"),
    ],
)
def test_a_float_input_spans_every_quantization_that_it_gets(
    steps: list[tuple[Op, str, str]], low: float, high: float
) -> None:
    """From 4 steps below the range to 4 above."""
    graph = quantized_later(steps, {"q1": Q1, "q2": Q2})
    values = np.concatenate([sample[0].reshape(-1) for sample in random_samples(graph, 20, 0)])
    margin = (high - low) / 100
    assert low <= values.min() < low + margin
    assert high - margin < values.max() <= high


def chosen(*steps: tuple[Op, tuple[str, ...], str]) -> Graph:
    """An input x int64 [4], a table float [10, 6], and operators of which each makes int32 [4] or rows."""
    names = {"x": DType.INT64} | {target: DType.INT32 for _, _, target in steps[:-1]} | {steps[-1][2]: DType.FLOAT32}
    table = Tensor("table", DType.FLOAT32, (10, 6), data=bytes(240))
    tensors = (table, *(Tensor(name, dtype, (4,)) for name, dtype in names.items()))
    nodes = tuple(Node(op, type(op).__name__, sources, (target,), i) for i, (op, sources, target) in enumerate(steps))
    return Graph("g", tensors, nodes, ("x",), (steps[-1][2],))


GATHER = Gather(0, (4,), None)


@pytest.mark.parametrize(
    ("steps", "last"),
    [
        pytest.param([(GATHER, ("table", "x"), "y")], 9, id="directly"),
        pytest.param([(Cast(), ("x",), "i"), (GATHER, ("table", "i"), "y")], 9, id="cast"),
        pytest.param(
            [(Reshape((4,)), ("x",), "r"), (Cast(), ("r",), "i"), (replace(GATHER, axis=1), ("table", "i"), "y")],
            5,
            id="moved and cast",
        ),
        pytest.param([(EmbeddingLookup(), ("x", "table"), "y")], 9, id="lookup"),
    ],
)
def test_indices_name_elements_that_are_there(steps: list[tuple[Op, tuple[str, ...], str]], last: int) -> None:
    values = np.concatenate([s[0] for s in random_samples(chosen(*steps), 60, 0)])
    assert (values.min(), values.max()) == (0, last)


X, Y = np.zeros((1, 4, 4, 3), np.int8), np.ones((1, 4, 4, 3), np.int8)
POOLED, FLAT = np.zeros((1, 2, 2, 6), np.int8), np.zeros((1, 48), np.int8)
GOOD: dict[str, Any] = {"in0_0": X, "in1_0": Y, "out0_0": POOLED, "out1_0": FLAT, "in0_1": Y, "in1_1": X}


def test_vectors_are_read_in_order(branches: Graph, tmp_path: Path) -> None:
    np.savez(tmp_path / "v.npz", **GOOD, case_kind=np.array(["random", "zeros"]))
    cases = read_vectors(tmp_path / "v.npz", branches)
    assert [(len(inputs), len(outputs)) for inputs, outputs in cases] == [(2, 2), (2, 0)]
    assert np.array_equal(cases[1][0][0], Y)


BAD = {
    "nothing in it": ({}, "it has no case"),
    "outputs only": ({"out0_0": POOLED}, "it has no case"),
    "an input too few": ({"in0_0": X}, "case 0 has no in1_0"),
    "an output too few": ({"in0_0": X, "in1_0": Y, "out0_0": POOLED}, "case 0 has no out1_0"),
    "an input too many": (GOOD | {"in2_0": X}, "in2_0 belongs to no case"),
    "a case left out": (GOOD | {"in0_3": X, "in1_3": Y}, "in0_3 belongs to no case"),
    "another shape": (GOOD | {"in1_0": X[0]}, "int8[4, 4, 3] found for"),
    "another type": (GOOD | {"in0_1": X.astype(np.uint8)}, "uint8[1, 4, 4, 3] found for"),
    "another output": (GOOD | {"out1_0": FLAT.astype(np.int32)}, "int32[1, 48] found for"),
    "objects": (GOOD | {"in0_0": np.array([{}])}, "no type of plain numbers"),
}


@pytest.mark.parametrize("what", BAD)
def test_vectors_that_do_not_fit_are_refused(what: str, branches: Graph, tmp_path: Path) -> None:
    content, why = BAD[what]
    np.savez(tmp_path / "v.npz", allow_pickle=True, **content)
    with pytest.raises(EmitcError, match=r"v\.npz cannot be used as vectors") as refused:
        read_vectors(tmp_path / "v.npz", branches)
    assert why in refused.value.why
    assert (refused.value.exit_code, refused.value.where.option) == (2, "--vectors")


def _truncated(path: Path) -> None:
    np.savez(path, **GOOD)
    path.write_bytes(path.read_bytes()[:-60])


def _damaged(path: Path) -> None:
    np.savez_compressed(path, **GOOD)
    data = bytearray(path.read_bytes())
    data[60:90] = b"\xff" * 30
    path.write_bytes(bytes(data))


def _array(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, X)


@pytest.mark.parametrize(
    "write",
    [
        _truncated,
        _damaged,
        _array,
        lambda p: p.write_bytes(b""),
        lambda p: p.write_text("in0_0"),
        lambda p: p.mkdir(),
        lambda p: None,
    ],
    ids=["truncated", "damaged", "npy", "empty", "text", "directory", "absent"],
)
def test_files_that_are_no_vectors_are_refused(write: Any, branches: Graph, tmp_path: Path) -> None:
    write(tmp_path / "v.npz")
    with pytest.raises(EmitcError, match=r"v\.npz cannot be used as vectors"):
        read_vectors(tmp_path / "v.npz", branches)

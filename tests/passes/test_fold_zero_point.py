"""fold-zero-point: the input's zero point moves into the bias exactly where every window is whole and int32 holds it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from emitc.ir import Graph
from emitc.kernels.convolution.conv_2d import Conv2D
from emitc.kernels.mac.accumulation import BIAS, WEIGHTS
from emitc.passes.fold import fold_zero_point
from emitc.writers.tflite import TensorSpec
from tests.support.passes.pass_graphs import Net, PassCase, check_numbers, check_structure, graph_of

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

X = (1, 5, 5, 3)
CONV, DEPTH, DENSE = "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"


def layer(net: Net, kind: str, zero_point: int = 3, same: int = 0, kernel: int = 3) -> None:
    if kind == DENSE:
        net.output(net.dense(net.input((2, 12), zero_point)))
    elif kind == CONV:
        net.output(net.conv(net.input(X, zero_point), same=same, kernel=kernel))
    else:
        net.output(net.depthwise(net.input(X, zero_point), same=same, kernel=kernel))


def shared_weights(net: Net) -> None:
    """Two layers of different zero points on the same weights and bias."""
    w, b = net.filters((5, 12), 5)
    for zero_point in (9, -100):
        y = net.activation((2, 5), -5, 0.3)
        net.output(net.op(DENSE, (net.input((2, 12), zero_point), w, b), y, fused_activation_function="NONE"))


def without_bias(net: Net) -> None:
    w, _ = net.filters((5, 12), 5)
    net.output(
        net.op(DENSE, (net.input((2, 12)), w), net.activation((2, 5), -5, 0.3), fused_activation_function="NONE")
    )


def too_large(net: Net) -> None:
    """A bias with which the accumulator fits int32, but not with the zero point's share of the whole range."""
    w = net.tensor(TensorSpec("", "int8", (5, 4), bytes([127] * 20), (0.01,), (0,)))
    bias = np.full(5, 2**31 - 1 - 4 * 127 * 255, "<i4")
    b = net.tensor(TensorSpec("", "int32", (5,), bias.tobytes(), (float(np.float32(0.05) * np.float32(0.01)),), (0,)))
    y = net.activation((2, 5), -5, 0.0005 * 2.0**25)
    net.output(net.op(DENSE, (net.input((2, 4), -128), w, b), y, fused_activation_function="NONE"))


def taken_name(net: Net) -> None:
    """A model that uses the name of the folded bias already."""
    x = net.input((2, 12))
    y = net.dense(x)
    name = f"{net.tensors[y].name}:folded bias"
    net.output(net.op("TANH", (y,), net.activation((2, 5), 0, 1 / 128, name)))


CASES = [
    *(
        PassCase(f"{k}_{z}", lambda n, k=k, z=z: layer(n, k, z), (k,))
        for k in (CONV, DEPTH, DENSE)
        for z in (-128, -1, 0, 3, 127)
    ),
    *(PassCase(f"{k}_padded", lambda n, k=k: layer(n, k, same=1), (k,)) for k in (CONV, DEPTH)),
    *(PassCase(f"{k}_same_without_padding", lambda n, k=k: layer(n, k, same=1, kernel=1), (k,)) for k in (CONV, DEPTH)),
    PassCase("shared_weights", shared_weights, (DENSE, DENSE)),
    PassCase("without_bias", without_bias, (DENSE,)),
    PassCase("too_large", too_large, (DENSE,)),
    PassCase("taken_name", taken_name, (DENSE, "TANH")),
]
UNCHANGED = {f"{k}_0" for k in (CONV, DEPTH, DENSE)} | {f"{CONV}_padded", f"{DEPTH}_padded", "too_large"}


def folded(graph: Graph) -> list[bool]:
    """Which of the accumulating layers have their zero point in the bias."""
    return [node.op.zero_point_folded for node in graph.nodes if hasattr(node.op, "zero_point_folded")]


@pytest.mark.parametrize("case", [c for c in CASES if c.id in UNCHANGED], ids=lambda case: case.id)
def test_stays(case: PassCase) -> None:
    check_structure("fold-zero-point", case)
    assert fold_zero_point(before := graph_of(case.build)) is before


@pytest.mark.parametrize("case", [c for c in CASES if c.id not in UNCHANGED], ids=lambda case: case.id)
def test_folds(case: PassCase) -> None:
    before = graph_of(case.build)
    after = fold_zero_point(before)
    assert all(folded(after)) and not any(folded(before))
    assert fold_zero_point(after) == after
    for old, new in zip(before.bound(), after.bound(), strict=True):
        if new.node.op == old.node.op:
            continue
        x, w, b = new.input(0), new.input(WEIGHTS), new.input(BIAS)
        assert x.quantization and w == old.input(WEIGHTS)
        weights = w.array().astype(np.int64)
        axes = (0, 1, 2) if case.id.startswith(DEPTH) else tuple(range(1, weights.ndim))
        given = old.optional(BIAS)
        start = np.zeros(b.shape, np.int64) if given is None else given.array().astype(np.int64)
        assert np.array_equal(b.array(), start - x.quantization.zero_point * weights.sum(axis=axes))


@pytest.mark.parametrize("disabled", [(), ("fold-zero-point",)], ids=["on", "off"])
def test_numbers(tmp_path: Path, disabled: tuple[str, ...]) -> None:
    reports = check_numbers(CASES, tmp_path, *disabled)
    report = next(r for r in reports if r.name == "fold-zero-point")
    assert (report.enabled, report.changes > 0) == (not disabled,) * 2


def test_each_reader_of_shared_constants_gets_its_own_bias() -> None:
    after = fold_zero_point(graph_of(shared_weights))
    first, second = (after.tensor(node.inputs[BIAS]) for node in after.nodes)
    assert first.name != second.name and first.data != second.data


def test_a_padding_that_is_none_does_not_hinder() -> None:
    (node,) = fold_zero_point(graph_of(lambda n: layer(n, CONV, same=1, kernel=1))).nodes
    assert isinstance(node.op, Conv2D) and node.op.zero_point_folded

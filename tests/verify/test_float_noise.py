"""Sums of floats may come out in any order's bits: how far, and that nothing farther off is let through."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.ir import Array, BoundNode
from emitc.kernels import kernel_of
from emitc.verify import operator_checks
from emitc.verify.float_noise import gamma, noise
from emitc.verify.golden_run import golden_run
from emitc.verify.verification import verify
from tests.support.models.onnx_control import FLOAT, POSITIVE, ZERO, constant, graph, model, node
from tests.support.models.onnx_net import OnnxNet

pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")


def real(net: OnnxNet, *shape: int) -> str:
    return net.constant(net.rng.normal(size=shape).astype(np.float32))


def conv(net: OnnxNet) -> None:
    y = net.op("Conv", net.input((1, 16, 8, 8)), real(net, 4, 16, 3, 3), real(net, 4))
    net.output(net.op("Relu", y), shape=(1, 4, 6, 6))


def depthwise(net: OnnxNet) -> None:
    net.output(net.op("Conv", net.input((1, 8, 9, 9)), real(net, 8, 1, 5, 5), group=8), shape=(1, 8, 5, 5))


def spread(net: OnnxNet) -> None:
    net.output(net.op("ConvTranspose", net.input((1, 24, 4, 4)), real(net, 24, 3, 2, 2)), shape=(1, 3, 5, 5))


def gemm(net: OnnxNet) -> None:
    y = net.op("Gemm", net.input((3, 200)), real(net, 200, 5), real(net, 5), alpha=-0.5, beta=2.0)
    net.output(y, shape=(3, 5))


def matmul(net: OnnxNet) -> None:
    net.output(net.op("MatMul", net.input((2, 3, 150)), real(net, 150, 4)), shape=(2, 3, 4))


def average(net: OnnxNet) -> None:
    net.output(net.op("GlobalAveragePool", net.input((1, 3, 20, 20))), shape=(1, 3, 1, 1))


def batch(net: OnnxNet) -> None:
    variance = net.constant(np.abs(net.rng.normal(size=3)).astype(np.float32))
    net.output(net.op("BatchNormalization", net.input((1, 3, 20, 20)), *(real(net, 3) for _ in range(3)), variance))


def layer(net: OnnxNet) -> None:
    net.output(net.op("LayerNormalization", net.input((3, 64)), real(net, 64), real(net, 64)), shape=(3, 64))


def softmax(net: OnnxNet) -> None:
    net.output(net.op("Softmax", net.input((3, 5000)), axis=1), shape=(3, 5000))


def log_softmax(net: OnnxNet) -> None:
    net.output(net.op("LogSoftmax", net.input((3, 5000)), axis=1), shape=(3, 5000))


def reduction(kind: str) -> Callable[[OnnxNet], None]:
    def build(net: OnnxNet) -> None:
        net.output(net.op(kind, net.input((2, 40, 30)), net.ints(1, 2), keepdims=0), shape=(2,))

    build.__name__ = kind
    return build


REDUCTIONS = [reduction(f"Reduce{kind}") for kind in ("Sum", "Mean", "L1", "L2", "SumSquare", "LogSum")]
NETS = (conv, depthwise, spread, gemm, matmul, average, batch, layer, softmax, log_softmax, *REDUCTIONS)


def compiled(build: Callable[[OnnxNet], None], folder: Path) -> Compiled:
    net = OnnxNet(opset=18)
    build(net)
    path = folder / "m.onnx"
    path.write_bytes(net.serialized())
    return compile_model(path)


def samples(made: Compiled) -> list[tuple[Array, ...]]:
    """Random numbers, one number throughout, and numbers that lie far from 0 and close together."""
    shape = made.graph.tensor(made.graph.inputs[0]).shape
    rng = np.random.default_rng(3)
    drawn = (rng.normal(size=shape), np.full(shape, 1.1), 10 + rng.normal(size=shape))
    return [(value.astype(np.float32),) for value in drawn]


def summing(made: Compiled) -> BoundNode:
    """The operator that is not a move of elements."""
    (bound,) = (b for b in made.graph.bound() if b.node.op_type not in ("Transpose", "Relu", "Reshape"))
    return bound


@pytest.mark.parametrize("build", NETS, ids=lambda build: build.__name__)
def test_the_engine_stays_within_it_and_it_is_no_free_pass(build: Callable[[OnnxNet], None], tmp_path: Path) -> None:
    made = compiled(build, tmp_path)
    cases = samples(made)
    run = golden_run(made, "auto", cases, preserve=True)
    bound = summing(made)
    for tensors in run.tensors:
        values = operator_checks.completed(made.graph, tensors)
        operands = [
            None if t is None else operator_checks.known_value(made.graph, values, t.name) for t in bound.inputs
        ]
        (result, *_), limits = kernel_of(bound).reference(bound, operands), noise(bound, operands)[0]
        expected = operator_checks.known_value(made.graph, values, bound.output.name)
        assert limits is not None and expected is not None
        assert (np.abs(result.astype(np.float64) - expected) <= limits).all()
        # A thousandth of what is summed, a term left out or doubled, is far beyond it.
        reach = limits / gamma(1)
        assert (limits < 1e-3 * reach.max()).all() and float(limits.max()) < 0.05 * max(
            1.0, float(np.abs(result).max())
        )


def test_the_bound_of_an_if_is_that_of_the_operator_in_the_branch_that_runs(tmp_path: Path) -> None:
    shape = (3, 64)
    then = graph([node("LayerNormalization", ["x", "scale"], ["inner"])], (), [("inner", FLOAT, shape)])
    other = graph([node("Abs", ["x"], ["same"])], (), [("same", FLOAT, shape)])
    choice = node("If", ["positive"], ["y"], then_branch=then, else_branch=other)
    factors = constant("scale", np.random.default_rng(5).normal(size=64), "float32")
    path = tmp_path / "m.onnx"
    made = model([*POSITIVE, choice], [("x", FLOAT, shape)], [("y", FLOAT, shape)], [ZERO, factors], opset=18)
    path.write_bytes(made.SerializeToString())
    (bound,) = (b for b in compile_model(path).graph.bound() if b.node.op_type == "If")
    x = np.random.default_rng(6).normal(size=shape).astype(np.float32)
    operands: list[Array | None] = [None if t is None or t.is_constant else x for t in bound.inputs]
    operands[0] = np.array(True).reshape(bound.input(0).shape)
    (inner,) = bound.node.op.graphs[0].bound()  # type: ignore[attr-defined]
    (expected,) = noise(inner, [x, *(t and t.array() for t in inner.inputs[1:])])
    (limits,) = noise(bound, operands)
    assert limits is not None and expected is not None and limits.max() > 0
    assert (limits == expected.reshape(shape)).all()
    operands[0] = ~operands[0]
    assert noise(bound, operands) == [None]


def test_a_limit_does_not_cover_what_is_farther_off_or_not_finite() -> None:
    expected = np.array([1.0, 2.0, 3.0, np.inf, 5.0], np.float32)
    found = np.array([1.0005, 2.002, np.nan, 4.0, 5.0], np.float32)
    limits = np.full(5, 1e-3, np.float32)
    rule = operator_checks.Tolerance(1e-5, 1e-5)
    assert operator_checks._beyond_noise(found, expected, rule, limits) == 3
    assert operator_checks._beyond_noise(found, expected, rule, np.full(5, np.inf, np.float32)) == 4


@pytest.mark.parametrize("build", [layer, REDUCTIONS[4]], ids=["layer", "squares"])
def test_outputs_outside_of_the_tolerance_are_judged_by_operator(
    build: Callable[[OnnxNet], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = compiled(build, tmp_path)
    shape = made.graph.tensor(made.graph.inputs[0]).shape
    vectors = tmp_path / "vectors.npz"
    value = np.full(shape, 123.4567, np.float32)
    np.savez(vectors, in0_0=value)
    proof = verify(made, vectors=vectors, samples=0)
    assert (proof.match, proof.rule, proof.unjudged) == (True, "groups", 0), proof.to_json()
    monkeypatch.setattr(operator_checks, "noise", lambda bound, operands, own: [None] * len(bound.outputs))
    assert not verify(made, vectors=vectors, samples=0).match

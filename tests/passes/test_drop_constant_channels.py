"""drop-constant-channels: channels of one value vanish exactly where all their readers can do without, and no output changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from emitc.compiler import compile_model
from emitc.ir import Graph
from emitc.passes.drop_constant_channels import drop_constant_channels
from emitc.passes.verify_graph import verify_graph
from emitc.verify.reference import run_reference
from emitc.verify.verification import verify
from emitc.writers.tflite import write_tflite
from tests.support.passes.pass_graphs import Net, PassCase, check_numbers, graph_of

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

X = (1, 6, 6, 5)
CONV, DEPTH, DENSE, POOL, SHAPE = "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "MAX_POOL_2D", "RESHAPE"
LOWEST, HIGHEST = -(10**7), 10**7
"""Biases that no input can make up for."""


def settle(net: Net, channels: range, bias: int) -> None:
    """Gives channels of the last layer a bias that makes them constant: at the zero point after a rectifier, or at 127."""
    b = net.operators[-1].inputs[2]
    values = np.frombuffer(net.tensors[b].data or b"", "<i4").copy()
    values[list(channels)] = bias
    net.tensors[b] = replace(net.tensors[b], data=values.tobytes())


def rectified(net: Net, x: int, channels: int, dead: range, bias: int = LOWEST, **more: int) -> int:
    y = net.conv(x, channels, activation="RELU", zero_point=-128, **more)
    settle(net, dead, bias)
    return y


def to_conv(net: Net) -> None:
    net.output(net.conv(rectified(net, net.input(X), 12, range(3, 9)), 4))


def to_padded_conv(net: Net) -> None:
    net.output(net.conv(rectified(net, net.input(X), 12, range(3, 9)), 4, same=1))


def largest_to_conv(net: Net) -> None:
    net.output(net.conv(rectified(net, net.input(X), 12, range(3, 9), HIGHEST), 4))


def largest_to_padded_conv(net: Net) -> None:
    net.output(net.conv(rectified(net, net.input(X), 12, range(3, 9), HIGHEST), 4, same=1))


def through_depthwise(net: Net) -> None:
    y = net.depthwise(rectified(net, net.input(X), 16, range(4, 16)), same=1, activation="RELU", zero_point=-128)
    settle(net, range(4, 12), LOWEST)
    net.output(net.conv(y, 8, kernel=1))


def only_behind_depthwise(net: Net) -> None:
    """Channels of the convolution that vary, but that nothing needs."""
    y = net.depthwise(net.conv(net.input(X), 16), same=1, activation="RELU", zero_point=-128)
    settle(net, range(8), LOWEST)
    net.output(net.conv(y, 4, kernel=1))


def through_pool_to_dense(net: Net) -> None:
    y = net.pool(POOL, rectified(net, net.input(X), 16, range(2, 14)), kernel=4)
    net.output(net.dense(net.reshape(y, (1, 16)), 6))


def chain(net: Net) -> None:
    """What is constant after constant channels."""
    y = rectified(net, net.input(X), 8, range(4))
    y = rectified(net, y, 8, range(4, 8), kernel=1)
    net.output(net.conv(y, 8, kernel=1))


def all_dead(net: Net) -> None:
    net.output(net.conv(rectified(net, net.input(X), 8, range(8)), 4))


def output_too(net: Net) -> None:
    y = rectified(net, net.input(X), 8, range(4))
    net.output(y, net.conv(y, 4))


def added(net: Net) -> None:
    y = rectified(net, net.input(X), 8, range(4))
    net.output(net.binary("ADD", y, y), net.conv(y, 4))


def too_few(net: Net) -> None:
    net.output(net.conv(rectified(net, net.input(X), 8, range(3)), 4))


def alive(net: Net) -> None:
    net.output(net.conv(net.conv(net.input(X), 8, activation="RELU", zero_point=-128), 4))


def flattened(net: Net) -> None:
    y = rectified(net, net.input(X), 8, range(4))
    net.output(net.dense(net.reshape(y, (1, 128)), 6))


DROPPED = {
    "to_conv": (to_conv, (8,)),
    "to_padded_conv": (to_padded_conv, (8,)),
    "largest_to_conv": (largest_to_conv, (8,)),
    "through_depthwise": (through_depthwise, (4, 4)),
    "only_behind_depthwise": (only_behind_depthwise, (8, 8)),
    "through_pool_to_dense": (through_pool_to_dense, (4, 4, 4)),
    "chain": (chain, (4, 4)),
    "all_dead": (all_dead, (4,)),
}
STAYING = (largest_to_padded_conv, output_too, added, too_few, alive, flattened)


def channels(graph: Graph) -> tuple[int, ...]:
    """Channels of the tensors that have lost some."""
    return tuple(tensor.shape[-1] for tensor in graph.tensors if tensor.channels)


@pytest.mark.parametrize("name", DROPPED)
def test_drops(name: str) -> None:
    build, expected = DROPPED[name]
    before = graph_of(build)
    after = drop_constant_channels(_with_views(before))
    verify_graph(after)
    assert channels(after) == expected
    rng = np.random.default_rng(2)
    for _ in range(5):
        x = rng.integers(-128, 128, X).astype(np.int8)
        assert all(
            np.array_equal(run_reference(before, [x])[name], run_reference(after, [x])[name]) for name in before.outputs
        )
    again = drop_constant_channels(after)
    assert len(again.tensors) == len(after.tensors)


def _with_views(graph: Graph) -> Graph:
    """As the pass gets it: reshapes are aliases."""
    from emitc.passes.simplify import alias_views

    return alias_views(graph)


@pytest.mark.parametrize("build", STAYING, ids=lambda build: build.__name__)
def test_stays(build: object) -> None:
    before = _with_views(graph_of(build))  # type: ignore[arg-type]
    assert drop_constant_channels(before) is before


@pytest.mark.sweep(keep=1)
@pytest.mark.parametrize("disabled", [(), ("drop-constant-channels",)], ids=["on", "off"])
def test_numbers(tmp_path: Path, disabled: tuple[str, ...]) -> None:
    cases = [PassCase(name, build, ()) for name, (build, _) in DROPPED.items()]
    cases += [PassCase(build.__name__, build, ()) for build in STAYING]
    reports = check_numbers(cases, tmp_path, *disabled)
    report = next(r for r in reports if r.name == "drop-constant-channels")
    assert (report.enabled, report.changes > 0) == (not disabled,) * 2


def test_layers_are_compared_in_the_channels_that_are_left(tmp_path: Path) -> None:
    net = Net()
    through_depthwise(net)
    path = tmp_path / "net.tflite"
    path.write_bytes(write_tflite(net.spec()))
    proof = verify(compile_model(path), reference="tflm", samples=4, layers=True)
    assert proof.match
    assert proof.layers_checked == 3 * 4


def _random(net: Net, seed: int) -> None:
    rng = np.random.default_rng(seed)
    y = net.input((1, int(rng.integers(4, 8)), int(rng.integers(4, 8)), int(rng.integers(1, 6))))
    for _ in range(int(rng.integers(2, 5))):
        kind, same = int(rng.integers(0, 3)), int(rng.integers(0, 2))
        kernel = int(rng.integers(1, 3))
        count = int(rng.integers(4, 24)) if kind else net.tensors[y].shape[3]
        make = net.depthwise if kind == 0 else lambda x, **more: net.conv(x, count, **more)  # noqa: B023
        y = make(y, kernel=kernel, activation=("NONE", "RELU")[int(rng.integers(0, 2))], same=same, zero_point=-128)
        b = net.operators[-1].inputs[2]
        values = np.frombuffer(net.tensors[b].data or b"", "<i4").copy()
        chosen = rng.random(count)
        values[chosen < 0.5] = LOWEST
        values[chosen > 0.9] = HIGHEST
        net.tensors[b] = replace(net.tensors[b], data=values.tobytes())
    net.output(net.conv(y, 5, kernel=1, same=1))


@pytest.mark.parametrize("seed", range(40))
def test_random_chains_keep_their_outputs(seed: int) -> None:
    before = graph_of(lambda net: _random(net, seed))
    after = drop_constant_channels(before)
    verify_graph(after)
    rng = np.random.default_rng(seed)
    for _ in range(4):
        x = rng.integers(-128, 128, before.tensor(before.inputs[0]).shape).astype(np.int8)
        expected, found = run_reference(before, [x]), run_reference(after, [x])
        assert all(np.array_equal(expected[name], found[name]) for name in before.outputs)
        for tensor in after.tensors:
            if tensor.channels and tensor.name in found:
                assert np.array_equal(found[tensor.name], expected[tensor.name][..., list(tensor.channels)])


def test_random_chains_do_lose_channels() -> None:
    lost = [drop_constant_channels(g := graph_of(lambda net, s=s: _random(net, s))) is not g for s in range(40)]  # type: ignore[misc]
    assert sum(lost) > 20

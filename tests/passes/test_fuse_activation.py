"""fuse-activation: a clamp merges into the operator before it exactly where nothing is rounded again."""

from __future__ import annotations

from pathlib import Path

import pytest

from emitc.kernels.convolution.conv_2d import Conv2D
from emitc.passes.fold import fuse_activation
from tests.support.passes.pass_graphs import Net, PassCase, check_numbers, check_structure, graph_of

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

X = (1, 5, 5, 3)
CONV, DEPTH, DENSE, AVERAGE, MAX = "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "AVERAGE_POOL_2D", "MAX_POOL_2D"


def produced(net: Net, kind: str, activation: str = "NONE", scale: float = 0.3, zero_point: int = -5) -> int:
    """The output of one operator of each fusable kind."""
    if kind == CONV:
        return net.conv(net.input(X), activation=activation, scale=scale, zero_point=zero_point)
    if kind == DEPTH:
        return net.depthwise(net.input(X), activation=activation, scale=scale, zero_point=zero_point)
    if kind == DENSE:
        return net.dense(net.input((2, 12)), 5, activation, zero_point, scale)
    if kind in (AVERAGE, MAX):
        return net.pool(kind, net.input(X, zero_point, scale), activation=activation)
    return net.binary(kind, net.input(X, zero_point), net.input(X, 7), activation)


def followed(net: Net, kind: str, *clamps: str, **how: float) -> None:
    x = produced(net, kind, **how)  # type: ignore[arg-type]
    for clamp in clamps:
        x = net.unary(clamp, x)
    net.output(x)


def requantized(net: Net, **changes: object) -> None:
    net.output(net.unary("RELU", produced(net, CONV), **changes))


def two_readers(net: Net) -> None:
    x = produced(net, CONV)
    net.output(net.unary("RELU", x), net.unary("RELU6", x))


def also_an_output(net: Net) -> None:
    x = produced(net, CONV)
    net.output(net.unary("RELU", x), x)


def under_another_shape(net: Net) -> None:
    x = produced(net, CONV)
    net.output(net.unary("RELU", x), net.reshape(x, (36,)))


def behind_a_view(net: Net) -> None:
    net.output(net.unary("RELU", net.reshape(produced(net, CONV), (36,))))


def of_an_input(net: Net) -> None:
    net.output(net.unary("RELU", net.input(X)))


def after_another_kind(net: Net) -> None:
    net.output(net.unary("RELU", net.unary("TANH", net.input(X), scales=(1 / 128,), zero_points=(0,))))


def feeds_more(net: Net) -> None:
    x = net.unary("RELU", produced(net, CONV))
    net.output(net.depthwise(x), net.unary("RELU6", x))


KINDS = (CONV, DEPTH, DENSE, AVERAGE, MAX, "ADD", "SUB", "MUL")
CASES = [
    *(PassCase(f"{k}_{a}", lambda n, k=k, a=a: followed(n, k, a), (k,)) for k in KINDS for a in ("RELU", "RELU6")),
    *(PassCase(f"{k}_RELU_N1_TO_1", lambda n, k=k: followed(n, k, "RELU_N1_TO_1"), (k,), engine=False) for k in KINDS),
    *(
        PassCase(f"{CONV}_{a}_{z}_{s}", lambda n, a=a, z=z, s=s: followed(n, CONV, a, scale=s, zero_point=z), (CONV,))
        for a in ("RELU", "RELU6")
        for z in (-128, 127, 0)
        for s in (0.05, 4.0)
    ),
    PassCase("fused_already", lambda n: followed(n, CONV, "RELU6", activation="RELU"), (CONV, "RELU6")),
    PassCase("two_clamps", lambda n: followed(n, CONV, "RELU", "RELU6"), (CONV, "RELU6")),
    PassCase("another_scale", lambda n: requantized(n, scales=(0.25,)), (CONV, "RELU")),
    PassCase("scale_a_rounding_off", lambda n: requantized(n, scales=(0.30000004,)), (CONV, "RELU")),
    PassCase("another_zero_point", lambda n: requantized(n, zero_points=(-6,)), (CONV, "RELU")),
    PassCase("two_readers", two_readers, (CONV, "RELU", "RELU6")),
    PassCase("also_an_output", also_an_output, (CONV, "RELU")),
    PassCase("under_another_shape", under_another_shape, (CONV, "RELU", "RESHAPE")),
    PassCase("behind_a_view", behind_a_view, (CONV, "RESHAPE", "RELU")),
    PassCase("of_an_input", of_an_input, ("RELU",)),
    PassCase("after_another_kind", after_another_kind, ("TANH", "RELU")),
    PassCase("feeds_more", feeds_more, (CONV, DEPTH, "RELU6")),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_structure(case: PassCase) -> None:
    check_structure("fuse-activation", case)


@pytest.mark.sweep(keep=1)
@pytest.mark.parametrize("disabled", [(), ("fuse-activation",)], ids=["on", "off"])
def test_numbers(tmp_path: Path, disabled: tuple[str, ...]) -> None:
    reports = check_numbers(CASES, tmp_path, *disabled)
    report = next(r for r in reports if r.name == "fuse-activation")
    assert (report.enabled, report.changes > 0) == (not disabled,) * 2


def test_the_operator_writes_the_activations_tensor() -> None:
    before = graph_of(lambda n: followed(n, CONV, "RELU6"))
    after = fuse_activation(before)
    (node,) = after.nodes
    assert isinstance(node.op, Conv2D) and node.op.activation == "RELU6"
    assert node.outputs == before.nodes[1].outputs == after.outputs
    assert not after.has_tensor(before.nodes[0].outputs[0])

"""fold-pad: PAD merges into the window after it exactly where that is the same computation."""

from __future__ import annotations

from pathlib import Path

import pytest

from emitc.kernels.convolution.conv_2d import Conv2D
from emitc.kernels.pooling.pool_ops import AveragePool2D
from emitc.kernels.shared.windows import Padding
from emitc.passes.fold import fold_pad
from tests.support.passes.pass_graphs import Net, PassCase, check_numbers, check_structure, graph_of

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")

AROUND = ((0, 0), (1, 2), (2, 1), (0, 0))
ONE = ((0, 0), (1, 1), (1, 1), (0, 0))
X = (1, 5, 6, 3)


def conv(
    net: Net, paddings: tuple[tuple[int, int], ...] = AROUND, zero_point: int = 3, value: int | None = None, **how: int
) -> None:
    net.output(net.conv(net.pad(net.input(X, zero_point), paddings, value), **how))


def depthwise(
    net: Net, paddings: tuple[tuple[int, int], ...] = AROUND, zero_point: int = 3, value: int | None = None, **how: int
) -> None:
    net.output(net.depthwise(net.pad(net.input(X, zero_point), paddings, value), **how))


def pool(
    net: Net,
    opcode: str,
    paddings: tuple[tuple[int, int], ...] = ONE,
    zero_point: int = 3,
    value: int | None = None,
    kernel: int = 2,
    same: bool = False,
    stride: int = 1,
    activation: str = "NONE",
) -> None:
    padded = net.pad(net.input(X, zero_point), paddings, value)
    net.output(net.pool(opcode, padded, kernel, same=same, stride=stride, activation=activation))


def two_readers(net: Net) -> None:
    padded = net.pad(net.input(X), AROUND)
    net.output(net.conv(padded), net.depthwise(padded))


def also_an_output(net: Net) -> None:
    padded = net.pad(net.input(X), AROUND)
    net.output(net.conv(padded), padded)


def under_another_shape(net: Net) -> None:
    padded = net.pad(net.input(X), AROUND)
    net.output(net.conv(padded), net.reshape(padded, (8 * 9 * 3,)))


def behind_another_operator(net: Net) -> None:
    net.output(net.conv(net.pad(net.depthwise(net.input(X)), ONE), kernel=2))


def two_pads(net: Net) -> None:
    net.output(net.conv(net.pad(net.pad(net.input(X), ONE), ((0, 0), (0, 1), (1, 0), (0, 0))), kernel=4))


def wide(net: Net, kind: str, value: int | None, zero_point: int, kernel: int = 2) -> None:
    """A padding in which whole windows lie."""
    padded = net.pad(net.input((1, 3, 3, 3), zero_point), ((0, 0), (5, 4), (4, 5), (0, 0)), value)
    if kind == "CONV_2D":
        net.output(net.conv(padded, kernel=kernel))
    elif kind == "DEPTHWISE_CONV_2D":
        net.output(net.depthwise(padded, kernel=kernel))
    else:
        net.output(net.pool(kind, padded, kernel))


def just_meets(net: Net, kind: str, value: int | None = None, zero_point: int = 3) -> None:
    """The widest padding in which every window still meets the input."""
    padded = net.pad(net.input((1, 3, 3, 3), zero_point), ((0, 0), (2, 2), (2, 2), (0, 0)), value)
    if kind == "CONV_2D":
        net.output(net.conv(padded))
    elif kind == "DEPTHWISE_CONV_2D":
        net.output(net.depthwise(padded))
    else:
        net.output(net.pool(kind, padded, 3))


CONV, DEPTH, AVERAGE, MAX = "CONV_2D", "DEPTHWISE_CONV_2D", "AVERAGE_POOL_2D", "MAX_POOL_2D"
CASES = [
    PassCase("conv", conv, (CONV,)),
    PassCase("conv_same", lambda n: conv(n, ONE, same=1), (CONV,)),
    PassCase("conv_same_stride_2", lambda n: conv(n, ONE, same=1, stride=2), (CONV,)),
    PassCase("conv_same_over_the_window", lambda n: conv(n, AROUND, same=1), ("PAD", CONV)),
    PassCase("conv_stride_2", lambda n: conv(n, stride=2), (CONV,)),
    PassCase("conv_zero_point_low", lambda n: conv(n, zero_point=-128), (CONV,)),
    PassCase("conv_zero_point_0", lambda n: conv(n, zero_point=0), (CONV,)),
    PassCase("conv_v2_of_the_zero_point", lambda n: conv(n, value=3), (CONV,)),
    PassCase("conv_v2_of_another_value", lambda n: conv(n, value=4), ("PADV2", CONV)),
    PassCase("conv_padded_channels", lambda n: conv(n, ((0, 0), (1, 1), (1, 1), (0, 1))), ("PAD", CONV)),
    PassCase("conv_padded_batch", lambda n: conv(n, ((1, 0), (1, 1), (1, 1), (0, 0))), ("PAD", CONV)),
    PassCase("conv_padded_by_nothing", lambda n: conv(n, ((0, 0),) * 4), (CONV,)),
    PassCase("depthwise", depthwise, (DEPTH,)),
    PassCase("depthwise_same", lambda n: depthwise(n, ONE, same=1), (DEPTH,)),
    PassCase("depthwise_v2_of_another_value", lambda n: depthwise(n, value=-128), ("PADV2", DEPTH)),
    PassCase("average", lambda n: pool(n, AVERAGE), (AVERAGE,)),
    PassCase("average_zero_point_low", lambda n: pool(n, AVERAGE, zero_point=-128), (AVERAGE,)),
    PassCase("average_zero_point_high", lambda n: pool(n, AVERAGE, zero_point=127, kernel=3), (AVERAGE,)),
    PassCase("average_stride_2", lambda n: pool(n, AVERAGE, AROUND, kernel=3, stride=2, activation="RELU"), (AVERAGE,)),
    PassCase("average_v2_of_another_value", lambda n: pool(n, AVERAGE, value=-128), ("PADV2", AVERAGE)),
    PassCase("average_same_does_not_count", lambda n: pool(n, AVERAGE, same=True), ("PAD", AVERAGE)),
    PassCase("max_of_the_lowest", lambda n: pool(n, MAX, value=-128), (MAX,)),
    PassCase("max_of_the_lowest_zero_point", lambda n: pool(n, MAX, zero_point=-128), (MAX,)),
    PassCase("max_of_the_zero_point", lambda n: pool(n, MAX), ("PAD", MAX)),
    PassCase("max_same", lambda n: pool(n, MAX, value=-128, same=True), ("PADV2", MAX)),
    PassCase("two_readers", two_readers, ("PAD", CONV, DEPTH)),
    PassCase("also_an_output", also_an_output, ("PAD", CONV)),
    PassCase("under_another_shape", under_another_shape, ("PAD", CONV, "RESHAPE")),
    PassCase("behind_another_operator", behind_another_operator, (DEPTH, CONV)),
    PassCase("two_pads", two_pads, (CONV,)),
    *(
        PassCase(f"wide_{k}_{z}", lambda n, k=k, z=z: wide(n, k, None, z), ("PAD", k))
        for k in (CONV, DEPTH, AVERAGE)
        for z in (0, 3)
    ),
    PassCase("wide_max", lambda n: wide(n, MAX, -128, 3), ("PADV2", MAX)),
    *(
        PassCase(f"just_meets_{k}_{z}", lambda n, k=k, z=z: just_meets(n, k, None, z), (k,))
        for k in (CONV, DEPTH, AVERAGE)
        for z in (0, 3)
    ),
    PassCase("just_meets_max", lambda n: just_meets(n, MAX, -128), (MAX,)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_structure(case: PassCase) -> None:
    check_structure("fold-pad", case)


@pytest.mark.sweep(keep=1)
@pytest.mark.parametrize("disabled", [(), ("fold-pad",), ("fold-zero-point",)], ids=["on", "off", "without_zero_point"])
def test_numbers(tmp_path: Path, disabled: tuple[str, ...]) -> None:
    reports = check_numbers(CASES, tmp_path, *disabled)
    report = next(r for r in reports if r.name == "fold-pad")
    assert (report.enabled, report.changes > 0) == ("fold-pad" not in disabled,) * 2


def test_paddings_add_up() -> None:
    (node,) = fold_pad(graph_of(lambda n: conv(n, ((0, 0), (1, 0), (0, 1), (0, 0)), same=1))).nodes
    assert isinstance(node.op, Conv2D)
    assert node.op.window.padding == Padding(2, 1, 1, 2)


def test_average_counts_what_was_padded() -> None:
    (node,) = fold_pad(graph_of(lambda n: pool(n, AVERAGE))).nodes
    assert isinstance(node.op, AveragePool2D)
    assert node.op.count_padding and node.op.window.padding == Padding(1, 1, 1, 1)

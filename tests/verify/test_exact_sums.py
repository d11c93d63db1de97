"""Steps of QDQ sums: those of the integer reference, and a difference only where float32 sums may round that way."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.ir import Array
from emitc.kernels import kernel_of
from emitc.verify import operator_checks
from emitc.verify.exact_sums import steps_of_sums
from emitc.verify.golden_run import golden_run
from emitc.verify.operator_checks import Group, OperatorCheck
from emitc.verify.reference import random_samples
from emitc.verify.tolerances import rules
from tests.support.models.onnx_net import OnnxNet

pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")

Y_SCALE = 0.75


def conv(net: OnnxNet, x_scale: float, w_scale: float, **options: object) -> None:
    x = net.dequantize(net.input((1, 8, 9, 9), "int8"), x_scale, 3, "int8")
    group = int(options.get("group", 1))  # type: ignore[call-overload]
    w = net.dequantize(net.integers((8, 8 // group, 3, 3)), w_scale, 0, "int8")
    net.output(net.op("QuantizeLinear", net.op("Conv", x, w, **options), *net.scales(Y_SCALE, -4, "int8")), "int8")


def padded(net: OnnxNet, x_scale: float, w_scale: float) -> None:
    conv(net, x_scale, w_scale, pads=[1, 1, 1, 1])


def depthwise(net: OnnxNet, x_scale: float, w_scale: float) -> None:
    conv(net, x_scale, w_scale, group=8)


def one_dimension(net: OnnxNet, x_scale: float, w_scale: float) -> None:
    """The engine shows the sum only after a Transpose and a Reshape of what the C computes."""
    x = net.dequantize(net.input((4, 12, 200), "int8"), x_scale, 3, "int8")
    w = net.dequantize(net.integers((8, 12, 3)), w_scale, 0, "int8")
    net.output(net.op("QuantizeLinear", net.op("Conv", x, w, pads=[2, 0]), *net.scales(Y_SCALE, -4, "int8")), "int8")


def pooled(net: OnnxNet, x_scale: float, w_scale: float) -> None:
    """A MaxPool selects by value, so that the sums are not found again."""
    x = net.dequantize(net.input((1, 8, 9, 9), "int8"), x_scale, 3, "int8")
    w = net.dequantize(net.integers((8, 8, 3, 3)), w_scale, 0, "int8")
    y = net.op("MaxPool", net.op("Conv", x, w, pads=[1, 1, 1, 1]), kernel_shape=[2, 2])
    net.output(net.op("QuantizeLinear", y, *net.scales(Y_SCALE, -4, "int8")), "int8")


def matmul(net: OnnxNet, x_scale: float, w_scale: float) -> None:
    a, b = (net.dequantize(net.input(shape, "int8"), x_scale, 3, "int8") for shape in ((6, 40), (40, 12)))
    y = net.op("MatMul", a, b)
    net.output(net.op("QuantizeLinear", y, *net.scales(Y_SCALE, -4, "int8")), "int8")


def gemm(net: OnnxNet, x_scale: float, w_scale: float) -> None:
    x = net.dequantize(net.input((6, 40), "int8"), x_scale, 3, "int8")
    w = net.dequantize(net.integers((40, 12)), [w_scale * (1 + i % 2) for i in range(12)], 0, "int8", axis=1)
    bias = net.constant((net.rng.integers(-500, 500, 12) * x_scale * w_scale).astype(np.float32))
    net.output(net.op("QuantizeLinear", net.op("Gemm", x, w, bias), *net.scales(Y_SCALE, -4, "int8")), "int8")


NETS = (conv, padded, depthwise, one_dimension, matmul, gemm)


def compiled(build: Callable[[OnnxNet, float, float], None], folder: Path, x_scale: float, w_scale: float) -> Compiled:
    net = OnnxNet()
    build(net, x_scale, w_scale)
    path = folder / "m.onnx"
    path.write_bytes(net.serialized())
    return compile_model(path)


def sums(found: tuple[Group, ...]) -> Group:
    (group,) = (group for group in found if group.kind == "sum")
    return group


@pytest.mark.parametrize("build", NETS, ids=lambda build: build.__name__)
def test_exact_steps_round_to_the_reference(build: Callable[..., None], tmp_path: Path) -> None:
    made = compiled(build, tmp_path, 0.031, 0.0173)
    (bound,) = (b for b in made.graph.bound() if operator_checks.kind_of(b) == "sum")
    rng = np.random.default_rng(5)
    operands: list[Array | None] = [
        None if t is None else t.array() if t.is_constant else rng.integers(-128, 128, t.shape).astype(np.int8)
        for t in bound.inputs
    ]
    found = steps_of_sums(bound, operands)
    (result,) = kernel_of(bound).reference(bound, operands)
    assert found is not None
    steps, noise, last = found
    assert (np.clip(np.rint(steps) - 4, -128, 127) == result).all()
    assert noise.max() < 0.01 and (last < noise).all()


@pytest.mark.parametrize("build", NETS, ids=lambda build: build.__name__)
def test_ties_are_told_from_differences(build: Callable[..., None], tmp_path: Path) -> None:
    """Scales in the ratio 1 / 16: every sixteenth sum is a tie in real numbers, but the float32 scales are no such numbers."""
    made = compiled(build, tmp_path, 0.3, Y_SCALE / 16 / 0.3)
    samples = random_samples(made.graph, 6, 0)
    runs = golden_run(made, "auto", samples, preserve=True).tensors
    check = OperatorCheck(made.graph, rules(made.graph, "onnx"))
    for tensors in runs:
        check.add(tensors)
    group = sums(check.groups())
    assert group.holds and group.broken == 0 and group.largest <= 1
    assert group.ties == group.differing
    if build in (conv, padded, depthwise, one_dimension):
        assert group.ties > 0
    if build in (padded, one_dimension):  # so many that the rate alone would call the layer wrong
        assert not Group("Conv", "sum", 1, group.elements, group.differing, 1.0).holds


@pytest.mark.parametrize("build", [conv, one_dimension], ids=lambda build: build.__name__)
def test_one_step_off_a_value_that_is_no_tie_is_wrong(build: Callable[..., None], tmp_path: Path) -> None:
    made = compiled(build, tmp_path, 0.031, 0.0173)
    (sample,) = random_samples(made.graph, 1, 0)
    (tensors,) = golden_run(made, "auto", [sample], preserve=True).tensors
    (bound,) = (b for b in made.graph.bound() if operator_checks.kind_of(b) == "sum")
    shown = next(name for name in (bound.output.name, *made.graph.outputs) if name in tensors)
    changed = tensors[shown].copy()
    inner = np.argmin(np.abs(changed.astype(int)))
    changed.reshape(-1)[inner] += 1
    for values, broken in ((tensors, 0), ({**tensors, shown: changed}, 1)):
        check = OperatorCheck(made.graph, rules(made.graph, "onnx"))
        check.add(values)
        group = sums(check.groups())
        assert (group.broken, group.holds) == (broken, not broken)


def test_sums_after_a_maxpool_are_judged_by_their_rate_alone(tmp_path: Path) -> None:
    made = compiled(pooled, tmp_path, 0.3, Y_SCALE / 16 / 0.3)
    check = OperatorCheck(made.graph, rules(made.graph, "onnx"))
    for tensors in golden_run(made, "auto", random_samples(made.graph, 40, 0), preserve=True).tensors:
        check.add(tensors)
    group = sums(check.groups())
    assert group.differing > 0 and (group.broken, group.ties) == (0, 0)

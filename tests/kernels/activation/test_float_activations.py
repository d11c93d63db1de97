"""Activations of float32 in ONNX that convolutions and matrix products take over: portable, by a float unit and by vectors."""

from __future__ import annotations

import shutil
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from emitc.boards import verify as prove
from emitc.boards.verify import on_emulator
from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.ir import Array
from emitc.options import Options
from emitc.verify.build import HostModel, build_shared
from emitc.verify.golden_run import interface_of
from emitc.verify.verification import verify
from tests.support.models.onnx_net import OnnxNet
from tests.support.single_op import preferring

CORES = {"portable": "generic32", "fpu": "cortex-m4f", "mve": "cortex-m55"}
ACTIVATIONS = ("none", "relu", "relu6", "between_ones")


def activated(net: OnnxNet, x: str, activation: str) -> str:
    """The activation after a value."""
    if activation == "none":
        return x
    if activation == "relu":
        return net.op("Relu", x)
    low, high = (0.0, 6.0) if activation == "relu6" else (-1.0, 1.0)
    return net.op("Clip", x, net.constant(low, "float32"), net.constant(high, "float32"))


def pooled(net: OnnxNet, x: str) -> str:
    """The same values from one more operator on images, so that no Transpose stays in between."""
    return net.op("MaxPool", x, kernel_shape=[1, 1])


def every_activation(*, odd: bool = False) -> OnnxNet:
    """Each after a convolution, one with a filter for each channel, and a matrix product; whole and left-over fours; with a
    bias that is added last, too.

    Weights are small whole numbers, so that sums of whole numbers are exact in any order, and often 0. odd: some are infinite
    or no number, by their bias.
    """
    net = OnnxNet()
    for activation in ACTIVATIONS:
        for channels in (8, 5):
            weights = net.rng.integers(-2, 3, (channels, 4, 3, 2)).astype(np.float32)
            bias = net.rng.integers(-2, 3, channels).astype(np.float32)
            if odd:
                bias[[1, 2, 3, 4]] = (np.nan, np.inf, -np.inf, np.nan)
            x = net.input((1, 4, 5, 6))
            y = net.op("Conv", x, net.constant(weights), net.constant(bias), pads=[1, 1, 1, 0])
            net.output(pooled(net, activated(net, y, activation)))
        weights = net.rng.integers(-2, 3, (8, 1, 3, 3)).astype(np.float32)
        y = net.op("Conv", net.input((1, 8, 5, 4)), net.constant(weights), group=8)
        net.output(pooled(net, activated(net, y, activation)))
        weights = net.rng.integers(-2, 3, (9, 7)).astype(np.float32)
        y = net.op("Gemm", net.input((3, 9)), net.constant(weights), net.constant(weights[0]))
        net.output(activated(net, y, activation))
        y = net.op("Add", net.constant(weights[1]), net.op("MatMul", net.input((2, 3, 9)), net.constant(weights)))
        net.output(activated(net, y, activation))
        late = net.rng.integers(-2, 3, (8, 1, 1)).astype(np.float32)
        for group in (1, 8):
            weights = net.rng.integers(-2, 3, (8, 8 // group, 3, 2)).astype(np.float32)
            y = net.op("Conv", net.input((1, 8, 5, 4)), net.constant(weights), group=group)
            net.output(pooled(net, activated(net, net.op("Add", y, net.constant(late)), activation)))
    return net


def compiled_for(variant: str, folder: Path, *, odd: bool = False, package: str = "plain") -> Compiled:
    """The model with that variant wherever there is one."""
    file = folder / f"activations_{variant}.onnx"
    file.write_bytes(every_activation(odd=odd).serialized())
    with preferring(variant):
        return compile_model(file, target=CORES[variant], package=package)


def whole_numbers(compiled: Compiled, samples: int) -> list[tuple[Array, ...]]:
    """Inputs, by sample."""
    rng = np.random.default_rng(9)
    shapes = [compiled.graph.tensor(name).shape for name in compiled.graph.inputs]
    return [tuple(rng.integers(-3, 4, shape).astype(np.float32) for shape in shapes) for _ in range(samples)]


@pytest.mark.sweep(keep=1)
@pytest.mark.parametrize("variant", CORES)
def test_sums_are_limited_as_the_engine_limits_them(variant: str, tmp_path: Path) -> None:
    compiled = compiled_for(variant, tmp_path)
    steps = compiled.program.steps
    assert not any(step.op_type in ("Relu", "Clip", "Add") for step in steps)
    assert {step.variant for step in steps if step.op_type in ("Conv", "Gemm", "MatMul")} == {variant}
    assert verify(compiled, samples=4, reference="onnxruntime", sanitize=True).match


@pytest.mark.skipif(
    not (shutil.which("arm-none-eabi-gcc") and shutil.which("qemu-system-arm")), reason="needs the Arm tools and QEMU"
)
@pytest.mark.sweep(keep=1)
@pytest.mark.parametrize(("variant", "board"), [("fpu", "qemu_m4"), ("mve", "qemu_m55")])
def test_on_emulated_cores(variant: str, board: str, tmp_path: Path) -> None:
    compiled = compiled_for(variant, tmp_path, odd=True, package="platformio")
    given = whole_numbers(compiled, 4)
    with patch.object(prove, "random_samples", lambda *_: given):
        result = on_emulator(
            compiled, board, reference="numpy", samples=len(given), seed=1, layers=False, workdir=tmp_path / "run"
        )
    assert (result.match, result.differing_bytes) == (True, 0)


def test_a_bias_that_is_folded_is_added_to_the_whole_sum(tmp_path: Path) -> None:
    """Not bit by bit what a sum that starts with it would be: the numbers are those of the two operators."""
    net = OnnxNet()
    y = net.op("MatMul", net.input((5, 9)), net.constant(net.rng.normal(0.0, 1.0, (9, 13)).astype(np.float32)))
    net.output(net.op("Add", y, net.constant(net.rng.normal(0.0, 1.0, 13).astype(np.float32))))
    file = tmp_path / "net.onnx"
    file.write_bytes(net.serialized())
    given = [np.random.default_rng(5).normal(0.0, 1.0, (5, 9)).astype(np.float32)]
    found = []
    for name, disabled in (("folded", frozenset[str]()), ("apart", frozenset({"fold-bias"}))):
        compiled = compile_model(file, Options(disabled=disabled))
        assert len(compiled.program.steps) == 1 + len(disabled)
        compiled.write(tmp_path / name)
        (tmp_path / f"{name}_built").mkdir()
        library = build_shared(tmp_path / name, tmp_path / f"{name}_built", trace=False)
        found.append(HostModel(library, interface_of(compiled)).run(given)[0])
    assert found[0].tobytes() == found[1].tobytes()

"""The rule for ConvTranspose between 8-bit tensors: a step is granted where float32 sums may round that way, and nowhere else."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.ir import BoundNode
from emitc.kernels.convolution.conv_transpose import ConvTranspose, reference
from emitc.verify.exact_sums import steps_and_noise
from emitc.verify.golden_run import golden_run
from emitc.verify.operator_checks import OperatorCheck
from emitc.verify.reference import random_samples
from emitc.verify.tolerances import rules
from emitc.verify.verification import verify
from tests.support.models.onnx_net import OnnxNet

pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")

X_SCALE, W_SCALE = 0.0195, 0.003007


def layer(folder: Path, y_scale: float = 0.00513, groups: int = 1) -> Compiled:
    """[1, 24, 10, 10] to [1, 16, 20, 20] with a scale so small that sums are thousands of steps."""
    net = OnnxNet()
    x = net.dequantize(net.input((1, 24, 10, 10), "uint8"), X_SCALE, 0, "uint8")
    weights = net.dequantize(net.integers((24, 16 // groups, 2, 2), "uint8"), W_SCALE, 141, "uint8")
    bias = net.dequantize(net.integers((16,), "int32"), float(np.float32(X_SCALE) * np.float32(W_SCALE)), 0, "int32")
    y = net.op("ConvTranspose", x, weights, bias, strides=[2, 2], group=groups)
    net.output(net.op("QuantizeLinear", y, *net.scales(y_scale, 128, "uint8")), "uint8")
    path = folder / "m.onnx"
    path.write_bytes(net.serialized())
    return compile_model(path)


def bound_of(made: Compiled) -> BoundNode:
    (bound,) = (bound for bound in made.graph.bound() if isinstance(bound.node.op, ConvTranspose))
    assert bound.output.dtype.value == "int8"
    return bound


@pytest.mark.parametrize("groups", [1, 2])
def test_fine_steps_round_to_the_outputs_and_the_engine_is_within_the_noise(groups: int, tmp_path: Path) -> None:
    made = layer(tmp_path, groups=groups)
    bound = bound_of(made)
    assert bound.output.quantization
    zero = bound.output.quantization.zero_point
    (sample,) = random_samples(made.graph, 1, 0)
    (run,) = golden_run(made, "auto", [sample], preserve=True).tensors
    check = OperatorCheck(made.graph, rules(made.graph, "onnx"))
    check.add(run)
    (group,) = (g for g in check.groups() if g.op_type == "ConvTranspose")
    assert (group.kind, group.elements, group.broken) == ("scatter", 16 * 20 * 20, 0)
    x = (sample[0].transpose(0, 2, 3, 1).astype(np.int16) - 128).astype(np.int8)
    operands = [x, *(t.array() if t is not None else None for t in bound.inputs[1:])]
    steps, noise = steps_and_noise(bound, operands)
    (rounded,) = reference(bound, operands)
    near = np.clip(np.rint(steps) + zero, -128, 127)
    assert (near != rounded).sum() == 0
    assert steps.shape == rounded.shape and noise.shape == (16,)
    assert 0 < noise.min() <= noise.max() < 0.1


def test_a_step_far_from_the_middle_is_not_explained(tmp_path: Path) -> None:
    """Nor is one that is near to it for another reason than the sum of its own channel."""
    made = layer(tmp_path)
    bound = bound_of(made)
    (sample,) = random_samples(made.graph, 1, 0)
    (run,) = golden_run(made, "auto", [sample], preserve=True).tensors
    x = (sample[0].transpose(0, 2, 3, 1).astype(np.int16) - 128).astype(np.int8)
    operands = [x, *(t.array() if t is not None else None for t in bound.inputs[1:])]
    steps, noise = steps_and_noise(bound, operands)
    (rounded,) = reference(bound, operands)
    distance = np.abs(steps - np.floor(steps) - 0.5)
    inside = (rounded > -128) & (rounded < 127)

    def found(changed: np.ndarray) -> tuple[int, int, bool]:
        check = OperatorCheck(made.graph, rules(made.graph, "onnx"))
        values = {name: value for name, value in run.items() if value.shape != (1, 16, 20, 20)}
        check.add(values | {bound.output.name: changed})
        (group,) = (g for g in check.groups() if g.op_type == "ConvTranspose")
        return group.differing, group.broken, group.holds

    assert found(rounded) == (0, 0, True)
    order = np.argsort(np.where(inside, distance, np.inf).reshape(-1))
    nearest, other = order[0], order[inside.sum() // 2]
    assert distance.reshape(-1)[nearest] < noise.min() and distance.reshape(-1)[other] > 10 * noise.max()
    for place, broken in ((nearest, 0), (other, 1)):
        changed = rounded.copy()
        changed.reshape(-1)[place] += 1 if steps.reshape(-1)[place] % 1 < 0.5 else -1
        assert found(changed) == (1, broken, broken == 0)


def test_ties_are_told_from_differences(tmp_path: Path) -> None:
    """Scales in the ratio 1 / 128: so many of the sums are ties that their rate alone would call the layer wrong."""
    made = layer(tmp_path, 128 * X_SCALE * W_SCALE)
    check = OperatorCheck(made.graph, rules(made.graph, "onnx"))
    for run in golden_run(made, "auto", random_samples(made.graph, 4, 0), preserve=True).tensors:
        check.add(run)
    (group,) = (g for g in check.groups() if g.op_type == "ConvTranspose")
    assert group.holds and group.broken == 0 and group.differing > 0
    assert group.ties == group.differing
    assert not replace(group, ties=0).holds


def test_a_network_with_a_small_output_scale_has_one_verdict(tmp_path: Path) -> None:
    made = layer(tmp_path)
    for seed in range(3):
        proof = verify(made, samples=4, seed=seed)
        assert proof.match, [group.to_json() for group in proof.groups]
        (group,) = (g for g in proof.groups if g.op_type == "ConvTranspose")
        assert group.elements >= 100_000 and group.at_most is not None


def test_another_zero_point_of_the_weights_is_found(tmp_path: Path) -> None:
    made = layer(tmp_path)
    bound = bound_of(made)
    weights = bound.input(1)
    assert weights.quantization
    off = replace(
        weights, quantization=replace(weights.quantization, zero_points=(weights.quantization.zero_point + 1,))
    )
    graph = replace(made.graph, tensors=tuple(off if t.name == weights.name else t for t in made.graph.tensors))
    (run,) = golden_run(made, "auto", random_samples(made.graph, 1, 0), preserve=True).tensors
    check = OperatorCheck(graph, rules(graph, "onnx"))
    check.add(run)
    assert not next(g for g in check.groups() if g.op_type == "ConvTranspose").holds

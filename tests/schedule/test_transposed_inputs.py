"""A model in NCHW has one copy of its input: its planes become pixels where they lie."""

from __future__ import annotations

from pathlib import Path

import pytest

from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.options import Options
from emitc.verify.verification import verify
from emitc.writers.tflite import ModelSpec, write_tflite
from tests.support.models.image_nets import ImageNet
from tests.support.models.onnx_net import OnnxNet

HEIGHT, WIDTH, PLANES = 12, 10, 3
INPUT_BYTES = HEIGHT * WIDTH * PLANES


def _planes(seed: int) -> ModelSpec:
    """A TRANSPOSE of the input in front of two convolutions."""
    net = ImageNet(seed)
    first = net.activation("planes", (1, PLANES, HEIGHT, WIDTH), 0.06, -2)
    x = net.activation("pixels", (1, HEIGHT, WIDTH, PLANES), 0.06, -2)
    net.op("TRANSPOSE", (first, net.integers("order", (0, 2, 3, 1))), (x,))
    y, shape = net.window(x, (1, HEIGHT, WIDTH, PLANES), 4, 3, 2, "SAME", depthwise=False)
    y, _ = net.window(y, shape, 6, 3, 2, "SAME", depthwise=False)
    return net.spec((first,), (y,))


def _proven(compiled: Compiled, reference: str = "auto") -> None:
    proof = verify(compiled, reference=reference, samples=6, layers=True, sanitize=True)
    assert proof.match and proof.differing == 0 and proof.memory_errors == ()
    assert proof.arena_observed == proof.arena_planned


@pytest.mark.parametrize(("target", "budget"), [("generic32", None), ("generic32", "min"), ("cortex-m4", None)])
def test_planes_become_pixels_where_they_lie(target: str, budget: str | None, tmp_path: Path) -> None:
    file = tmp_path / "planes.tflite"
    file.write_bytes(write_tflite(_planes(2)))
    apart = compile_model(file, Options(target=target, disabled=frozenset({"overlap"})))
    made = compile_model(file, Options(target=target, ram_budget=budget))
    assert apart.program.plan.arena_bytes >= 2 * INPUT_BYTES
    assert made.program.plan.arena_bytes < 1.8 * INPUT_BYTES
    _proven(made)
    _proven(apart)


def test_the_planes_of_an_onnx_model_too(tmp_path: Path) -> None:
    net = OnnxNet()
    x = net.qdq(net.input((1, PLANES, HEIGHT, WIDTH)), 0.05, 3)
    y = net.qdq(net.conv(x, (4, PLANES, 3, 3), strides=[2, 2], pads=[1, 1, 1, 1]), 0.06, -1)
    net.output(y)
    file = tmp_path / "planes.onnx"
    file.write_bytes(net.serialized())
    _proven(compile_model(file))
    made = compile_model(file, Options(io="int8"))
    assert made.program.steps[0].kernel_name == "transpose_in_place"
    assert made.program.plan.arena_bytes < 1.8 * INPUT_BYTES
    _proven(made, "numpy")

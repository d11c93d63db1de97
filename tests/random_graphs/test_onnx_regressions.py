"""Faults that random ONNX graphs have found, each as the smallest graph that shows it, proven against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from onnx_net import MICROSOFT, OnnxNet

from emitc.compiler import compile_model
from emitc.host.parity import Proof, verify


def proven(net: OnnxNet, folder: Path, samples: int = 6) -> Proof:
    """The proof of a net."""
    path = folder / "net.onnx"
    path.write_bytes(net.serialized())
    return verify(compile_model(path), samples=samples)


def softmax_over_all_behind() -> OnnxNet:
    """QLinearSoftmax stands for the Softmax of opset 12, whose axis means it and all dimensions behind it."""
    net = OnnxNet()
    x = net.input((2, 3, 5), "int8")
    scales = (*net.scales(0.25, -7, "int8"), *net.scales(1 / 64, -128, "int8"))
    net.output(net.op("QLinearSoftmax", x, *scales, axis=1, opset=12, domain=MICROSOFT), "int8", (2, 3, 5))
    return net


def quantized_without_zero_point() -> OnnxNet:
    """Without a zero point ONNX Runtime's own QuantizeLinear gives uint8, as the standard one does."""
    net = OnnxNet()
    scale = net.constant(0.03, "float32")
    codes = net.op("QuantizeLinear", net.input((4, 3)), scale, domain=MICROSOFT)
    net.output(net.op("DequantizeLinear", codes, scale))
    return net


NETS: tuple[Callable[[], OnnxNet], ...] = (softmax_over_all_behind, quantized_without_zero_point)


@pytest.mark.parametrize("build", NETS, ids=lambda build: build.__name__)
def test_it_matches(build: Callable[[], OnnxNet], tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")
    proof = proven(build(), tmp_path)
    assert proof.match and proof.elements > 0, proof.to_json()
    assert np.isfinite(proof.max_abs_diff)

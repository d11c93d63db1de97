"""Faults that random ONNX graphs have found, each as the smallest graph that shows it, proven against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

from emitc.compiler import compile_model
from emitc.errors import CannotCompile, EmitcError
from emitc.kernels import kernel_of
from emitc.verify.engines.run import EngineRefused
from emitc.verify.exact_sums import steps_of_sums
from emitc.verify.proof import Proof
from emitc.verify.reference import run_reference
from emitc.verify.verification import verify
from tests.support.models.onnx_net import MICROSOFT, OnnxNet


def proven(net: OnnxNet, folder: Path, samples: int = 6) -> Proof:
    """The proof of a net."""
    path = folder / "net.onnx"
    path.write_bytes(net.serialized())
    return verify(compile_model(path), samples=samples)


def softmax_over_all_behind() -> OnnxNet:
    """QLinearSoftmax stands for the Softmax of opset 12, whose axis means it and all dimensions after it."""
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


def addend_in_a_column() -> OnnxNet:
    """A Gemm with as many rows as columns, whose addend [3, 1] is one number for each row and not for each column."""
    net = OnnxNet()
    addend = net.constant(np.array([[1], [20], [300]], np.float32))
    net.output(net.op("Gemm", net.input((3, 2)), net.constant(net.rng.normal(size=(2, 3)).astype(np.float32)), addend))
    return net


def column_of_codes() -> OnnxNet:
    """The same in a quantized model."""
    net = OnnxNet()
    addend = net.dequantize(net.constant(np.array([[-90], [0], [100]], np.int8)), 0.05, 0, "int8")
    y = net.op("Gemm", net.qdq(net.input((3, 2)), 0.03, 5), net.weights((2, 3)), addend)
    net.output(net.qdq(y, 0.05, -4))
    return net


def stride_over_the_end() -> OnnxNet:
    """A MaxPool that is rounded up: a window that would start after the image is left out, as by ONNX Runtime."""
    net = OnnxNet()
    net.output(
        net.op("MaxPool", net.input((1, 2, 3, 2)), kernel_shape=[1, 1], strides=[1, 2], ceil_mode=1), shape=(1, 2, 3, 1)
    )
    return net


def at_least_of_opset_15() -> OnnxNet:
    """GreaterOrEqual of an opset in which onnx infers no shape of it."""
    net = OnnxNet(opset=15)
    x = net.input((2, 3))
    net.output(net.op("GreaterOrEqual", x, net.constant(0.25, "float32")), "bool", (2, 3))
    net.output(net.op("LessOrEqual", x, net.constant(0.25, "float32")), "bool", (2, 3))
    return net


def counted_from_the_end_before_opset_11() -> OnnxNet:
    """Concat and Unsqueeze with an axis of -1 in an opset that does not define it; ONNX Runtime takes it."""
    net = OnnxNet(opset=9)
    x = net.input((2, 3))
    net.output(net.op("Unsqueeze", net.op("Concat", x, x, axis=-1), axes=[-1]), shape=(2, 6, 1))
    return net


def layer_normalization_before_opset_17() -> OnnxNet:
    """The optimizer of ONNX Runtime writes LayerNormalization into models of opsets that do not have it."""
    net = OnnxNet(opset=12)
    scale, bias = (net.constant(np.array(values, np.float32)) for values in ([1.5, -0.5, 2], [0, 0.25, -1]))
    net.output(net.op("LayerNormalization", net.input((4, 3)), scale, bias, axis=-1), shape=(4, 3))
    return net


def rows_of_codes() -> OnnxNet:
    """Codes of an image become rows of a Gemm, whose weights take the order in which the image lies in the C."""
    net = OnnxNet()
    x = net.op("MaxPool", net.qdq(net.input((3, 4, 3, 3)), 0.03, 5), kernel_shape=[2, 2])
    codes = net.op("Reshape", net.quantize(x, 0.03, 5), net.ints(3, 16))
    y = net.op("Gemm", net.dequantize(codes, 0.03, 5), net.weights((16, 5)))
    net.output(net.qdq(y, 0.05, -4))
    return net


def product(**changes: Any) -> OnnxNet:
    """A QGemm. changes: its factor or a computed matrix."""
    net = OnnxNet()
    x, w = net.input((2, 3), "int8"), net.input((3, 4), "int8") if "computed" in changes else net.integers((3, 4))
    given = [x, *net.scales(0.1, 0, "int8"), w, *net.scales(0.01, 0, "int8"), ""]
    given += net.scales(0.2, 1, "int8")
    factor = {"alpha": -0.5} if "factor" in changes else {}
    y = net.op("QGemm", *given, domain=MICROSOFT, **factor)
    net.output(y, "int8", (2, 4))
    return net


def turned_column() -> OnnxNet:
    """A QGemm of a column that is turned to a row; the Transpose of sizes 1 stays where no view takes its place."""
    net = OnnxNet()
    given = [
        net.input((3, 1), "int8"),
        *net.scales(0.1, 0, "int8"),
        net.integers((4, 3)),
        *net.scales(0.01, 0, "int8"),
        "",
    ]
    y = net.op("QGemm", *given, *net.scales(0.2, 1, "int8"), domain=MICROSOFT, transA=1, transB=1)
    net.output(y, "int8", (1, 4))
    return net


def product_with_a_factor() -> OnnxNet:
    """A QGemm whose factor ONNX Runtime multiplies into the scale of the matrix A; another operator reads A too."""
    net = OnnxNet()
    x = net.quantize(net.input((5, 6)), 0.031, -3)
    given = [
        x,
        *net.scales(0.031, -3, "int8"),
        net.integers((6, 7)),
        *net.scales([0.011 + 0.001 * i for i in range(7)], 0, "int8"),
    ]
    y = net.op("QGemm", *given, net.integers((7,), "int32"), *net.scales(0.17, 4, "int8"), domain=MICROSOFT, alpha=0.3)
    net.output(y, "int8", (5, 7))
    net.output(net.dequantize(x, 0.031, -3), shape=(5, 6))
    return net


def real_product(**changes: Any) -> OnnxNet:
    """A QGemm without a scale of its output. changes: matrices that are turned, one that is computed, or no addend."""
    net = OnnxNet()
    x = net.input((6, 5) if "turned" in changes else (5, 6), "uint8")
    shape = (7, 6) if "turned" in changes else (6, 7)
    w = net.input(shape, "int8") if "computed" in changes else net.integers(shape)
    scale = net.constant(np.linspace(0.01, 0.02, 7).astype(np.float32))
    given = [x, net.constant(0.031, "float32"), net.constant(119, "uint8"), w, scale]
    given += [net.constant(np.arange(-3, 4, dtype=np.int8)), "" if "bare" in changes else net.integers((7,), "int32")]
    turns = {"transA": 1, "transB": 1} if "turned" in changes else {}
    y = net.op("QGemm", *given, domain=MICROSOFT, alpha=-0.3, **turns)
    net.output(y, shape=(5, 7))
    return net


def real_product_turned() -> OnnxNet:
    """Constant weights are turned while compiling."""
    return real_product(turned=True)


def real_product_of_inputs() -> OnnxNet:
    """Both matrices are computed, and turned."""
    return real_product(turned=True, computed=True)


def real_product_alone() -> OnnxNet:
    """Without an addend."""
    return real_product(bare=True)


def rotated_as_a_whole() -> OnnxNet:
    """RotaryEmbedding rotates every value, and its definition splits off a part without elements."""
    net = OnnxNet(opset=23)
    caches = [net.constant(net.rng.normal(size=(2, 4, 3)).astype(np.float32)) for _ in range(2)]
    net.output(net.op("RotaryEmbedding", net.input((2, 5, 4, 6)), *caches), shape=(2, 5, 4, 6))
    return net


def empty_parts() -> OnnxNet:
    """Two of four parts have no elements; one is put back, nothing reads the other."""
    net = OnnxNet()
    a, b, c, _ = net.ops("Split", net.input((3, 5)), net.ints(2, 0, 3, 0), axis=1, outputs=4)
    net.output(net.op("Concat", c, b, a, b, axis=1), shape=(3, 5))
    return net


def rotated_behind_another_domain() -> OnnxNet:
    """The package onnx infers no type after ONNX Runtime's own DequantizeLinear."""
    net = OnnxNet(opset=23)
    caches = [net.constant(net.rng.normal(size=(2, 4, 3)).astype(np.float32)) for _ in range(2)]
    x = net.op("DequantizeLinear", net.input((2, 5, 4, 6), "int8"), *net.scales(0.1, 3, "int8"), domain=MICROSOFT)
    net.output(net.op("RotaryEmbedding", x, *caches), shape=(2, 5, 4, 6))
    return net


NETS: tuple[Callable[[], OnnxNet], ...] = (
    softmax_over_all_behind, quantized_without_zero_point, addend_in_a_column, column_of_codes, stride_over_the_end,
    at_least_of_opset_15, counted_from_the_end_before_opset_11, layer_normalization_before_opset_17,
    rows_of_codes, product_with_a_factor,
    real_product, real_product_turned, real_product_of_inputs, real_product_alone,
    rotated_as_a_whole, rotated_behind_another_domain, empty_parts,
)  # fmt: skip


@pytest.mark.parametrize("build", NETS, ids=lambda build: build.__name__)
def test_it_matches(build: Callable[[], OnnxNet], tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")
    proof = proven(build(), tmp_path)
    assert proof.match and proof.elements > 0, proof.to_json()
    assert np.isfinite(proof.max_abs_diff)


def test_a_turned_column_needs_no_pass(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(turned_column().serialized())
    every = [compile_model(path, disabled=frozenset(passes)) for passes in ((), ("cancel-transposes",))]
    inputs = [np.array([[90], [-7], [55]], np.int8)]
    found = [run_reference(c.graph, inputs)[c.graph.outputs[0]] for c in every]
    assert found[0].any() and (found[0] == found[1]).all()


@pytest.mark.parametrize(("what", "named"), [("factor", "alpha -0.5"), ("computed", "computed matrix")])
def test_what_a_product_has_no_code_for_is_named(what: str, named: str, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(product(**{what: True}).serialized())
    with pytest.raises(EmitcError) as caught:
        compile_model(path)
    assert named in str(caught.value) and caught.value.exit_code == CannotCompile.exit_code


def test_the_engine_says_why_it_runs_no_model_with_such_scales(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")
    net = OnnxNet()
    scales = (*net.scales(1e4, 0, "int8"), *net.scales(1e-4, 0, "int8"))
    y = net.op("QLinearGlobalAveragePool", net.input((1, 2, 3, 3), "int8"), *scales, domain=MICROSOFT)
    net.output(y, "int8", (1, 2, 1, 1))
    with pytest.raises(EngineRefused, match="out of computation range"):
        proven(net, tmp_path)


def test_quantized_layers_inside_of_a_function_are_judged(tmp_path: Path) -> None:
    """The engine shows the values of a function where its operators stand instead of the call."""
    pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")
    net = OnnxNet()
    net.output(net.qdq(net.conv(net.qdq(net.input((1, 3, 6, 6)), 0.05, 5), (4, 3, 3, 3)), 0.05, -4))
    model = net.model()
    constants = [helper.make_node("Constant", (), (tensor.name,), value=tensor) for tensor in model.graph.initializer]
    names = [value.name for value in model.graph.input], [value.name for value in model.graph.output]
    body = [*constants, *model.graph.node]
    model.functions.append(helper.make_function("local", "Part", *names, body, model.opset_import))
    del model.graph.initializer[:], model.graph.node[:]
    model.graph.node.append(helper.make_node("Part", *names, domain="local"))
    model.opset_import.append(helper.make_opsetid("local", 1))
    path = tmp_path / "net.onnx"
    path.write_bytes(model.SerializeToString())
    proof = verify(compile_model(path), samples=3)
    assert (proof.match, proof.rule, proof.unjudged) == (True, "groups", 0), proof.to_json()


def test_small_sums_of_an_accumulator_of_64_bits_keep_their_bits(tmp_path: Path) -> None:
    """Products of int16 can leave 32 bits; sums that do not are requantized whole, those that do as float32 would round them."""
    pytest.importorskip("onnxruntime", reason="the extra emitc[verify] is not installed")
    net = OnnxNet(opset=21)
    a = net.dequantize(net.input((24, 16), "int16"), 0.276, -32768, "int16")
    b = net.dequantize(net.input((16, 90), "int16"), 2.24e-5, -60, "int16")
    net.output(net.op("QuantizeLinear", net.op("MatMul", a, b), *net.scales(0.0573, 48, "int8")), "int8")
    path = tmp_path / "net.onnx"
    path.write_bytes(net.serialized())
    made = compile_model(path)
    vectors = tmp_path / "vectors.npz"
    near = net.rng.integers(-32768, -32000, (24, 16)).astype(np.int16)
    small = net.rng.integers(-200, 200, (16, 90)).astype(np.int16)
    far, large = np.full((24, 16), 32767, np.int16), net.rng.integers(-32768, 32768, (16, 90)).astype(np.int16)
    np.savez(vectors, in0_0=near, in1_0=small, in0_1=far, in1_1=large)
    proof = verify(made, vectors=vectors, samples=0)
    assert proof.match and proof.rule == "groups", proof.to_json()
    (group,) = (group for group in proof.groups if group.kind == "sum")
    assert group.elements >= 2 * 24 * 90 and group.broken == 0
    (bound,) = (bound for bound in made.graph.bound() if bound.node.op_type == "MatMul")
    (result,) = kernel_of(bound).reference(bound, [near, small])
    found = steps_of_sums(bound, [near, small])
    assert found is not None and (result == np.clip(np.rint(found[0]) + 48, -128, 127)).all()

"""Random ONNX matrix products and recurrent layers: float32, QDQ, QOperator and dynamic."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bench.random_graphs.onnx.net import FLOAT, MICROSOFT, Known, Net, Unfit, top_of
from bench.random_graphs.onnx.operands import (
    anything,
    bias,
    codes_operand,
    is_bytes,
    operand,
    ranked,
    reshaped,
    result,
    weights,
)  # fmt: skip
from bench.random_graphs.onnx.windows import channel_scales, is_computed_zero, sums_as_reals


def _width(net: Net) -> int:
    return net.rng.choice((1, 2, 3, 4, 5, 8, 10, 12, 16, 17, 31))


def gemm(net: Net) -> None:
    """Gemm with either operand turned, factors, and addends of each shape."""
    a = ranked(net, (2,))
    turned_a = net.rng.random() < 0.2
    rows, depth = a.shape[::-1] if turned_a else a.shape
    turned_b = net.rng.random() < 0.5
    columns = _width(net)
    shape = (columns, depth) if turned_b else (depth, columns)
    if math.prod(shape) > 20000:
        raise Unfit
    b = weights(net, shape, 0 if turned_b else 1)
    names: list[Known | str] = [a, b]
    chance = net.rng.random()
    if chance < 0.6:
        addend = bias(net, columns, a, b)
        names += [addend] if addend else []
    elif chance < 0.8:
        other = net.rng.choice(((1, columns), (rows, 1), (rows, columns), (1,), ()))
        names.append(net.constant_value(net.reals(other, a.top), a.top))
    factors = net.rng.random() < 0.15
    result(
        net, "Gemm", names, (rows, columns), a.top * b.top * math.sqrt(depth) * 0.6,
        transA=1 if turned_a else None, transB=1 if turned_b else None,
        alpha=net.rng.choice((0.5, 2.0, 0.3)) if factors else None, beta=net.rng.choice((0.5, 2.0)) if factors else None,
    )  # fmt: skip


def matmul(net: Net) -> None:
    """MatMul of any ranks, by weights or by a computed matrix, sometimes with a bias, which may have more dimensions."""
    a = ranked(net, (1, 2, 2, 3, 3, 4))
    depth = a.shape[-1]
    if net.rng.random() < 0.35:
        candidates = net.candidates(
            lambda v: (v.dtype == FLOAT or v.quantized) and v.rank >= 1 and v.elements % depth == 0
        )
        if not candidates:
            raise Unfit
        value = net.rng.choice(candidates)
        value = net.dequantize(value) if value.quantized else value
        batch = a.shape[:-2] if a.rank > 2 and value.elements % (depth * math.prod(a.shape[:-2])) == 0 else ()
        b = reshaped(net, value, (*batch, depth, value.elements // depth // math.prod(batch)))
    else:
        columns = _width(net)
        batch = tuple(net.rng.choice((1, size)) for size in a.shape[:-2]) if net.rng.random() < 0.3 else ()
        shape = (*batch, depth, columns) if net.rng.random() < 0.95 else (depth,)
        if math.prod(shape) > 20000:
            raise Unfit
        b = weights(net, shape, len(shape) - 1)
    rows = a.shape[-2:-1]
    columns_of = b.shape[-1:] if b.rank > 1 else ()
    outer = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    shape = (*outer, *rows, *columns_of)
    if math.prod(shape) * depth > 2_000_000:
        raise Unfit
    top = a.top * b.top * math.sqrt(depth) * 0.6
    if not columns_of or net.rng.random() < 0.7:
        result(net, "MatMul", [a, b], shape, top)
        return
    (product,) = net.add("MatMul", [a, b], (FLOAT, shape), top=top, pool=False)
    dimensions = (*(1,) * net.rng.choice((0, 0, len(shape) - 1, len(shape))), *columns_of)
    addend = net.constant_value(net.reals(dimensions), 1.0)
    result(net, "Add", [product, addend], np.broadcast_shapes(shape, dimensions), top + 1)


def q_linear_matmul(net: Net) -> None:
    """QLinearMatMul by weights or by a computed matrix."""
    a = codes_operand(net, lambda v: v.rank in (2, 3, 4), net.shape(net.rng.choice((2, 3))))
    depth = a.shape[-1]
    computed = [v for v in net.candidates(is_bytes) if v.dtype == a.dtype and v.rank == 2 and v.shape[0] == depth]
    if computed and net.rng.random() < 0.5:
        b = net.rng.choice(computed)
        names_b: list[Known | str] = [b, *net.scale_names(b.scale, b.zero, b.dtype, may_omit=False)]
        columns, top = b.shape[1], top_of(b)
    else:
        columns, top = _width(net), 1.0
        if depth * columns > 20000:
            raise Unfit
        dtype = "int8" if a.dtype == "int8" or net.rng.random() < 0.5 else "uint8"
        scales, zeros = channel_scales(net, columns, dtype, 1.0, net.rng.random() < 0.5)
        names_b = [
            net.constant(net.integers((depth, columns), dtype)),
            *net.scale_names(scales, zeros, dtype, may_omit=False),
        ]
    top = min(top_of(a), 4 * a.top) * top * math.sqrt(depth) * 0.5
    scale, zero = net.scales_for(top, a.dtype)
    names = [a, *net.scale_names(a.scale, a.zero, a.dtype, may_omit=False), *names_b]
    names += net.scale_names(scale, zero, a.dtype, may_omit=False)
    net.add("QLinearMatMul", names, (a.dtype, (*a.shape[:-1], columns)), exact=True, quantized=(scale, zero), top=top)


def q_gemm(net: Net) -> None:
    """QGemm."""
    a = codes_operand(net, lambda v: v.rank == 2, net.shape(2))
    turned_a, turned_b = net.rng.random() < 0.15, net.rng.random() < 0.5
    rows, depth = a.shape[::-1] if turned_a else a.shape
    columns = _width(net)
    if depth * columns > 20000:
        raise Unfit
    dtype = "int8" if a.dtype == "int8" else net.rng.choice(("int8", "uint8"))
    scales, zeros = channel_scales(net, columns, dtype, 1.0, net.rng.random() < 0.5)
    shape = (columns, depth) if turned_b else (depth, columns)
    top = min(top_of(a), 4 * a.top) * math.sqrt(depth) * 0.5
    names: list[Known | str] = [a, *net.scale_names(a.scale, a.zero, a.dtype, may_omit=False)]
    names += [net.constant(net.integers(shape, dtype)), *net.scale_names(scales, zeros, dtype, may_omit=False)]
    names.append(
        net.constant(net.data.integers(-3000, 3000, columns).astype(np.int32)) if net.rng.random() < 0.7 else ""
    )
    scale, zero = net.scales_for(top, a.dtype)
    real = net.rng.random() < 0.15
    names += [] if real else net.scale_names(scale, zero, a.dtype, may_omit=False)
    net.add(
        f"{MICROSOFT}.QGemm", names, (FLOAT if real else a.dtype, (rows, columns)), exact=True, top=top,
        quantized=(0.0 if real else scale, zero), transA=1 if turned_a else None, transB=1 if turned_b else None,
        alpha=net.rng.choice((0.5, 2.0)) if net.rng.random() < 0.1 else None,
    )  # fmt: skip


def dynamic_quantize(net: Net) -> None:
    """DynamicQuantizeLinear; the scale and the zero point go to the integer product that follows."""
    x = operand(net, lambda v: v.rank in (2, 3, 4) and v.exact, net.shape(net.rng.choice((2, 3, 4))))
    outputs = net.add(
        "DynamicQuantizeLinear", [x], ("uint8", x.shape), (FLOAT, ()), ("uint8", ()), exact=True, top=x.top, pool=False
    )
    net.pool.append(outputs[0])
    if net.rng.random() < 0.2:
        net.pool.append(outputs[1])


def matmul_integer(net: Net) -> None:
    """MatMulInteger with zero points of each kind, by weights or by a computed matrix."""
    a = net.pick(lambda v: v.dtype in ("uint8", "int8") and v.rank >= 2)
    depth, columns = a.shape[-1], _width(net)
    if depth * columns > 20000:
        raise Unfit
    dtype = net.rng.choice(("int8", "uint8")) if a.dtype == "uint8" else "int8"
    names: list[Known | str] = [a, net.constant(net.integers((depth, columns), dtype))]
    if net.rng.random() < 0.75:
        names.append(
            is_computed_zero(net, a)
            or net.constant(np.asarray(max(a.zero, 0) if a.dtype == "uint8" else a.zero, a.dtype))
        )
        if net.rng.random() < 0.6:
            per_channel = net.rng.random() < 0.3
            names.append(net.constant(net.integers((columns,) if per_channel else (), dtype)))
    (made,) = net.add("MatMulInteger", names, ("int32", (*a.shape[:-1], columns)), exact=True, top=3e4)
    sums_as_reals(net, made)


_MODERATE = 32.0


def _sequence(net: Net) -> Known:
    """Steps of moderate magnitude: gates are 0 or 1 of large sums, and the last bit of one in between changes everything."""
    x = ranked(net, (3,))
    if x.shape[2] > 64 or x.shape[0] > 24 or x.elements > 4096 or x.top > _MODERATE:
        raise Unfit
    return x


def recurrent(net: Net) -> None:
    """LSTM and GRU: directions, states that are given or computed, peepholes, any of the outputs, each of the attributes."""
    kind, x = net.rng.choice(("LSTM", "GRU") if net.rng.random() < 0.99 else ("RNN",)), _sequence(net)
    steps, batch, width = x.shape
    hidden, direction = net.rng.choice((1, 2, 3, 4, 8)), net.rng.choice((None, "forward", "reverse", "bidirectional"))
    both = 2 if direction == "bidirectional" else 1
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind]

    def real(*shape: int) -> Known:
        return net.constant_value(net.reals(shape, 0.5), 0.5)

    names: list[Known | str] = [
        x,
        weights(net, (both, gates * hidden, width), 1, 0.5),
        real(both, gates * hidden, hidden),
    ]
    names.append(real(both, 2 * gates * hidden) if net.rng.random() < 0.7 else "")
    chance = net.rng.random()
    lengths = net.data.integers(1, steps, batch, endpoint=True) if chance < 0.01 else np.full(batch, steps)
    names.append(net.constant(lengths.astype(np.int32)) if chance < 0.15 else "")
    for _ in range(2 if kind == "LSTM" else 1):
        chance = net.rng.random()
        if chance < 0.4:
            names.append("")
        elif chance < 0.7:
            names.append(real(both, batch, hidden))
        else:
            shape = (both, batch, hidden)
            state = operand(net, lambda v: v.shape == (both, batch, hidden) and v.top <= _MODERATE, shape)
            if state.top > _MODERATE:
                raise Unfit
            names.append(state)
    if kind == "LSTM" and net.rng.random() < 0.15:
        names.append(real(both, 3 * hidden))
    attributes: dict[str, Any] = {"hidden_size": hidden, "direction": direction}
    attributes |= _gates(net, kind, both)
    outputs = [(FLOAT, (steps, both, batch, hidden))] + [(FLOAT, (both, batch, hidden))] * (2 if kind == "LSTM" else 1)
    net.add(kind, names, *outputs[: net.rng.randint(1, len(outputs))], top=1.0, **attributes)


def _gates(net: Net, kind: str, directions: int) -> dict[str, Any]:
    """How a recurrent layer computes its gates, mostly as it does without these attributes."""
    attributes: dict[str, Any] = {}
    usual = {"LSTM": ("Sigmoid", "Tanh", "Tanh"), "GRU": ("Sigmoid", "Tanh"), "RNN": ("Tanh",)}[kind]
    if kind == "GRU":
        attributes["linear_before_reset"] = net.rng.choice((None, 0, 1))
    if kind == "LSTM":
        attributes["input_forget"] = net.rng.choice((None, None, 0)) if net.rng.random() < 0.98 else 1
    chance = net.rng.random()
    if chance < 0.2:
        names = usual if chance < 0.18 else tuple(net.rng.choice(("Relu", "HardSigmoid", "Tanh")) for _ in usual)
        attributes["activations"] = names * directions
        if "HardSigmoid" in names or net.rng.random() < 0.1:
            attributes["activation_alpha"] = (0.25,) * (len(names) * directions)
            attributes["activation_beta"] = (0.4,) * (len(names) * directions)
    if net.rng.random() < 0.02:
        attributes["clip"] = net.rng.choice((0.5, 3.0))
    if net.opset >= 14 and net.rng.random() < 0.3:
        attributes["layout"] = 0
    return attributes


def dynamic_lstm(net: Net) -> None:
    """DynamicQuantizeLSTM."""
    x = ranked(net, (3,))
    if not x.exact or x.shape[2] > 64 or x.shape[0] > 12 or x.elements > 4096:
        raise Unfit
    steps, batch, width = x.shape
    hidden = net.rng.choice((2, 3, 4, 8))
    dtype = net.rng.choice(("int8", "uint8"))
    names: list[Known | str] = [x, net.constant(net.integers((1, width, 4 * hidden), dtype))]
    names.append(net.constant(net.integers((1, hidden, 4 * hidden), dtype)))
    names.append(net.constant(net.reals((1, 8 * hidden), 0.5)) if net.rng.random() < 0.7 else "")
    names += ["", "", "", ""]
    per_channel = net.rng.random() < 0.3
    for _ in range(2):
        scales = net.data.uniform(0.002, 0.01, (1, 4 * hidden) if per_channel else (1,)).astype(np.float32)
        zeros = np.full(scales.shape, 0 if dtype == "int8" else 128, dtype)
        names += [net.constant(scales), net.constant(zeros)]
    outputs = [(FLOAT, (steps, 1, batch, hidden)), (FLOAT, (1, batch, hidden)), (FLOAT, (1, batch, hidden))]
    net.add(
        f"{MICROSOFT}.DynamicQuantizeLSTM", names, *outputs[: net.rng.randint(1, 3)], top=1.0, hidden_size=hidden
    )  # fmt: skip


def q_linear_softmax(net: Net) -> None:
    """QLinearSoftmax."""
    x = codes_operand(net, anything, net.shape(2))
    if x.rank == 0:
        raise Unfit
    scale = net.rng.choice((1 / 256, 1 / 255, 1 / 127, 1 / 64))
    zero = 0 if x.dtype == "uint8" else -128
    names: list[Known | str] = [x, *net.scale_names(x.scale, x.zero, x.dtype, may_omit=False)]
    names += net.scale_names(scale, zero, x.dtype, may_omit=False)
    net.add(
        f"{MICROSOFT}.QLinearSoftmax", names, (x.dtype, x.shape), exact=True, quantized=(scale, zero), top=1.0,
        axis=net.rng.randrange(-x.rank, x.rank), opset=net.rng.choice((12, 13, 13)),
    )  # fmt: skip

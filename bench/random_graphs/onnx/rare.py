"""Random ONNX operators in forms that exporters seldom write: other types, computed shapes and scales, packed weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from bench.random_graphs.case import Value
from bench.random_graphs.onnx.net import FLOAT, Known, Net, Unfit, element_type
from bench.random_graphs.onnx.operands import bias, factored, operand, ranked, result, same
from emitc.ir import Shape

_OLD = 9
_TYPES = ("float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def other_type(net: Net) -> None:
    """A Cast of truth values to any type, or of reals to float64; moving operators take it from there."""
    source = net.pick(lambda v: v.dtype in ("bool", FLOAT) and v.exact and not v.constant and v.elements <= 2048)
    dtype = net.rng.choice(_TYPES) if source.dtype == "bool" else "float64"
    net.add("Cast", [source], (dtype, source.shape), top=source.top, exact=True, to=element_type(dtype))


def wide_arithmetic(net: Net) -> None:
    """Arithmetic of float64."""
    a = net.pick(lambda v: v.dtype == "float64")
    kind = net.rng.choice(("Add", "Sub", "Mul", "Div", "Min", "Max"))
    b = net.constant(net.data.uniform(0.5, 2, net.rng.choice(((), a.shape, a.shape[-1:]))))
    (made,) = net.add(kind, [a, b], ("float64", a.shape), top=2 * a.top + 2, exact=True)
    if net.rng.random() < 0.6:
        net.add("Cast", [made], (FLOAT, a.shape), top=made.top, exact=True, to=1)


def computed_shape(net: Net) -> None:
    """A Reshape or an Expand to a shape that is put together from that of a tensor."""
    x = operand(net, lambda v: 1 <= v.rank <= 4)
    (shape,) = net.add("Shape", [x], ("int64", (x.rank,)), exact=True, pool=False)
    axis = net.rng.randrange(x.rank)
    index = net.constant(np.array([axis], np.int64))
    (size,) = net.add("Gather", [shape, index], ("int64", (1,)), exact=True, pool=False, axis=0)
    rest = factored(net, x.elements // x.shape[axis], net.rng.randint(1, 3))
    parts: list[Known | str] = [size, net.ints((*rest[:-1], -1) if net.rng.random() < 0.5 else rest)]
    (target,) = net.add("Concat", parts, ("int64", (1 + len(rest),)), exact=True, pool=False, axis=0)
    same(net, "Reshape", [x, target], x, (x.shape[axis], *rest))


def computed_scale(net: Net) -> None:
    """QuantizeLinear by a scale that follows from the values, and DequantizeLinear by the same."""
    x = operand(net, lambda v: v.exact and v.rank >= 1, net.shape(2))
    (size,) = net.add("Abs", [x], (FLOAT, x.shape), top=x.top, exact=True, pool=False)
    keep: dict[str, Any] = {"keepdims": 0}
    (most,) = net.add("ReduceMax", [size], (FLOAT, ()), top=x.top, exact=True, pool=False, **keep)
    (safe,) = net.add("Add", [most, net.scalar(0.125)], (FLOAT, ()), top=x.top, exact=True, pool=False)
    (scale,) = net.add("Mul", [safe, net.scalar(1 / 127)], (FLOAT, ()), top=x.top, exact=True, pool=False)
    dtype = net.rng.choice(("int8", "uint8"))
    zero = net.constant(np.array(0 if dtype == "int8" else 128, dtype))
    (codes,) = net.add("QuantizeLinear", [x, scale, zero], (dtype, x.shape), exact=True, top=128)
    net.add("DequantizeLinear", [codes, scale, zero], (FLOAT, x.shape), exact=True, top=x.top)


def _packed(net: Net, shape: Shape, dtype: str) -> str:
    """Constant codes, those of 4 bits in pairs."""
    low, high = {"int4": (-8, 7), "uint4": (0, 15), "int8": (-127, 127)}[dtype]
    numbers = net.data.integers(low, high, shape, endpoint=True).astype(np.int8)
    name = net.name("c")
    pairs = numbers.reshape(-1, 2).astype(np.uint8) & 15 if dtype != "int8" else None
    data = numbers.tobytes() if pairs is None else (pairs[:, 0] | (pairs[:, 1] << 4)).tobytes()
    net.values.append(Value(name, dtype, shape, data))
    return name


def packed_weights(net: Net) -> None:
    """A MatMul by weights of 4 bits, or by blocks that have a scale each."""
    x = ranked(net, (2, 3))
    depth, columns = x.shape[-1], net.rng.choice((1, 2, 4, 6, 16))
    if net.opset < 21 or depth * columns > 8192 or depth * columns % 2:
        raise Unfit
    name = _packed(net, (depth, columns), net.rng.choice(("int4", "uint4", "int8")))
    block = net.rng.choice([b for b in range(1, depth + 1) if depth % b == 0])
    chance = net.rng.random()
    shape: Shape = (depth // block, columns) if chance < 0.5 else (columns,) if chance < 0.8 else ()
    scales = net.data.uniform(0.01, 0.1, shape).astype(np.float32)
    attributes: dict[str, Any] = (
        {"axis": 0, "block_size": block} if chance < 0.5 else {"axis": 1} if chance < 0.8 else {}
    )
    names = [name, net.constant(np.asarray(scales, np.float32))]
    (w,) = net.add("DequantizeLinear", names, (FLOAT, (depth, columns)), top=1.0, exact=True, pool=False, **attributes)
    result(net, "MatMul", [x, w], (*x.shape[:-1], columns), x.top * math.sqrt(depth) * 0.6)


def packed_filters(net: Net) -> None:
    """A Conv or a Gemm by weights of 4 bits, with one scale or one per filter, with and without zero points."""
    x = ranked(net, (2, 4, 4))
    filters = net.rng.choice((1, 2, 4, 6))
    kernel = () if x.rank == 2 else tuple(net.rng.choice((1, 2, 3)) for _ in range(2))
    shape: Shape = (filters, x.shape[1], *kernel)
    sizes = tuple(size - k + 1 for size, k in zip(x.shape[2:], kernel, strict=True))
    work = math.prod(shape) * math.prod(sizes)
    if net.opset < 21 or math.prod(shape) % 2 or min(sizes, default=1) < 1 or work > 1_000_000:
        raise Unfit
    dtype = net.rng.choice(("int4", "uint4"))
    per_channel = net.rng.random() < 0.6
    count: Shape = (filters,) if per_channel else ()
    names = [_packed(net, shape, dtype), net.constant(net.data.uniform(0.02, 0.2, count).astype(np.float32))]
    if per_channel and filters % 2 == 0 and net.rng.random() < 0.5:
        names.append(_packed(net, count, dtype))
    axis = 0 if per_channel else None
    (w,) = net.add("DequantizeLinear", names, (FLOAT, shape), top=1.0, exact=True, pool=False, axis=axis)
    b = bias(net, filters, x, w)
    operands: list[Known | str] = [x, w, *([b] if b else [])]
    top = x.top * math.sqrt(math.prod(shape[1:])) * 0.6
    if x.rank == 2:
        result(net, "Gemm", operands, (x.shape[0], filters), top, transB=1)
    else:
        result(net, "Conv", operands, (x.shape[0], filters, *sizes), top)


def normalization_with_statistics(net: Net) -> None:
    """LayerNormalization with its mean, and the deviation's inverse."""
    x = ranked(net, (2, 3))
    count = x.shape[-1]
    if net.opset < 17 or count < 3 or net.repeated:
        raise Unfit
    noise = net.constant_value(net.data.uniform(-x.top, x.top, x.shape).astype(np.float32), x.top)
    (x,) = net.add("Add", [x, noise], (FLOAT, x.shape), top=2 * x.top, exact=True, pool=False)
    names: list[Known | str] = [
        x,
        net.constant_value(net.reals((count,), 2.0)),
        net.constant_value(net.reals((count,))),
    ]
    reduced = (*x.shape[:-1], 1)
    outputs = [(FLOAT, x.shape), (FLOAT, reduced), (FLOAT, reduced)][: net.rng.choice((2, 3))]
    net.add("LayerNormalization", names, *outputs, top=6.0)


def resize_of_axes(net: Net) -> None:
    """Resize of named axes, as newer opsets have it."""
    x = ranked(net, (4,))
    if net.opset < 18:
        raise Unfit
    mode = net.rng.choice(("nearest", "linear", "cubic"))
    coordinates = ["half_pixel", "asymmetric", "align_corners"] + ["half_pixel_symmetric"] * (net.opset >= 19)
    attributes: dict[str, Any] = {
        "mode": mode,
        "coordinate_transformation_mode": net.rng.choice(coordinates),
        "axes": (2, 3),
    }
    if mode != "nearest" and net.rng.random() < 0.3:
        attributes["antialias"] = 1
    if net.rng.random() < 0.5:
        sizes = tuple(max(1, round(size * net.rng.choice((0.5, 1, 2, 3)))) for size in x.shape[2:])
        names = ["", "", net.ints(sizes)]
        attributes["keep_aspect_ratio_policy"] = net.rng.choice((None, "stretch"))
    else:
        factors = [net.rng.choice((1.0, 2.0, 3.0)) for _ in range(2)]
        sizes = tuple(int(size * factor) for size, factor in zip(x.shape[2:], factors, strict=True))
        names = ["", net.constant(np.array(factors, np.float32))]
    result(net, "Resize", [x, *names], (*x.shape[:2], *sizes), x.top, exact=mode == "nearest", **attributes)


def all_dimensions(net: Net) -> None:
    """A reduction whose empty list of axes means none or all."""
    x = operand(net, lambda v: v.rank >= 1)
    kind = net.rng.choice(("ReduceSum", "ReduceMax", "ReduceMean"))
    if net.opset < 18:
        raise Unfit
    none = net.rng.random() < 0.5
    shape = x.shape if none else (1,) * x.rank
    axes: list[Known | str] = [net.ints(())] if net.rng.random() < 0.5 else []
    result(net, kind, [x, *axes], shape, x.top * 4, noop_with_empty_axes=1 if none else 0)


def defined_by_others(net: Net) -> None:
    """RMSNormalization, Attention and RotaryEmbedding: operators that the format defines by others."""
    kind = net.rng.choice(("RMSNormalization", "Attention", "RotaryEmbedding"))
    if net.opset < 23:
        raise Unfit
    if kind == "RMSNormalization":
        x = ranked(net, (2, 3))
        if x.shape[-1] < 3 or net.repeated:
            raise Unfit
        noise = net.constant_value(net.data.uniform(-x.top, x.top, x.shape).astype(np.float32), x.top)
        (x,) = net.add("Add", [x, noise], (FLOAT, x.shape), top=2 * x.top, exact=True, pool=False)
        scale = net.constant_value(net.reals(x.shape[-1:], 2.0))
        result(net, kind, [x, scale], x.shape, 6.0, axis=-1)
        return
    x = ranked(net, (4,))
    n, heads, steps, width = x.shape
    if kind == "RotaryEmbedding":
        if width % 2:
            raise Unfit
        angles = net.data.uniform(-3, 3, (n, steps, width // 2)).astype(np.float32)
        result(net, kind, [x, net.constant(np.cos(angles)), net.constant(np.sin(angles))], x.shape, 2 * x.top)
        return
    if steps > 32 or x.top > 100:
        raise Unfit
    keys = net.constant_value(net.reals((n, heads, net.rng.randint(1, 6), width), 1.0))
    keys = x if net.rng.random() < 0.4 else keys
    result(net, kind, [x, keys, keys], x.shape, keys.top, is_causal=net.rng.choice((None, None, 1)))


def upsample(net: Net) -> None:
    """Upsample, which opset 9 is the last to have."""
    if net.opset != _OLD:
        raise Unfit
    x = ranked(net, (4,))
    scales = (1.0, 1.0, *(float(net.rng.choice((1, 2, 3))) for _ in range(2)))
    shape = tuple(int(size * scale) for size, scale in zip(x.shape, scales, strict=True))
    mode = net.rng.choice(("nearest", "linear"))
    names: list[Known | str] = [x, net.constant(np.array(scales, np.float32))]
    result(net, "Upsample", names, shape, x.top, exact=mode == "nearest", mode=mode)


def twice_quantized(net: Net) -> None:
    """A value that is dequantized and quantized again, twice, by other scales."""
    x = net.pick(lambda v: v.quantized)
    for _ in range(2):
        x = net.quantize(net.dequantize(x), net.byte_type())


def wide_codes(net: Net) -> None:
    """uint16 and int32 as codes."""
    x = operand(net, lambda v: v.exact and v.rank >= 1)
    if net.opset < 21:
        raise Unfit
    y = net.quantize(x, "uint16", pool=False)
    net.pool.append(net.dequantize(y))

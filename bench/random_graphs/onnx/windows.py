"""Random ONNX operators with windows: convolutions, pools and Resize, in one and two dimensions, float32, QDQ and QOperator."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.random_graphs.onnx.net import FLOAT, MICROSOFT, Known, Net, Unfit, top_of
from bench.random_graphs.onnx.operands import bias, codes_operand, ranked, result, weights
from emitc.ir import Array, Shape


@dataclass(frozen=True, slots=True)
class Window:
    """A window, and the sizes that it makes of an image's. attributes: as the operator has them."""

    kernel: Shape
    sizes: Shape
    attributes: dict[str, Any]


def _explicit(net: Net, spread: Shape, size: Shape, most: Callable[[int], int]) -> tuple[list[int], list[int]]:
    """Padding before and after, so that every window meets the image."""
    before, after = [], []
    for i, extent in enumerate(spread):
        limit = most(i)
        a, b = net.rng.randint(0, limit), net.rng.randint(0, limit)
        if net.rng.random() < 0.4:
            b = a
        while size[i] + a + b < extent and (a < limit or b < limit):
            a, b = min(a + 1, limit), min(b + 1, limit)
        if size[i] + a + b < extent:
            raise Unfit
        before.append(a)
        after.append(b)
    return before, after


def window(net: Net, image: Shape, *, pooled: bool = False, ceil: bool = False, dilated: bool = True) -> Window:
    """A window over an image of these sizes. pooled: padding is less than the window. ceil: the last window may lie outside."""
    kernel = tuple(net.rng.choice((1, 2, 3, 3, 3, 4, 5, 7)) for _ in image)
    if net.rng.random() < 0.25:
        kernel = (1,) * len(image)
    if net.rng.random() < 0.1:
        kernel = image if math.prod(image) <= 256 else kernel
    strides = tuple(net.rng.choice((1, 1, 1, 2, 2, 3)) for _ in image)
    dilations = tuple(net.rng.choice((1, 1, 1, 2, 3)) if dilated else 1 for _ in image)
    spread = tuple((k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True))
    attributes: dict[str, Any] = {}
    auto = net.rng.choice(("NOTSET", "", "", "SAME_UPPER", "SAME_LOWER", "VALID"))
    if auto.startswith("SAME") and max(dilations) == 1:
        sizes = tuple(-(-size // s) for size, s in zip(image, strides, strict=True))
        covered = [(n - 1) * s + k for n, s, k in zip(sizes, strides, kernel, strict=True)]
        if pooled and any(c < size or k > size + 1 for c, k, size in zip(covered, kernel, image, strict=True)):
            raise Unfit  # the engine takes no padding below 0, nor a window that only meets padding
    else:
        auto = "" if auto.startswith("SAME") else auto
        before, after = [0] * len(image), [0] * len(image)
        if auto != "VALID":
            before, after = _explicit(net, spread, image, lambda i: kernel[i] - 1 if pooled else spread[i] - 1)
        if any(size + a + b < s for size, a, b, s in zip(image, before, after, spread, strict=True)):
            raise Unfit
        if auto != "VALID" and (any(before + after) or net.rng.random() < 0.3):
            attributes["pads"] = (*before, *after)
        span = [size + a + b - s for size, a, b, s in zip(image, before, after, spread, strict=True)]
        sizes = tuple(r // s + 1 for r, s in zip(span, strides, strict=True))
        if ceil:
            sizes = tuple(_ceiled(r, s, size + a) for r, s, size, a in zip(span, strides, image, before, strict=True))
    attributes["auto_pad"] = auto or None
    attributes["strides"] = strides if max(strides) > 1 or net.rng.random() < 0.5 else None
    if dilated:
        attributes["dilations"] = dilations if max(dilations) > 1 or net.rng.random() < 0.3 else None
    return Window(kernel, sizes, attributes)


def _ceiled(span: int, stride: int, start: int) -> int:
    """Windows where the last one may lie partly outside, but does not begin after the image."""
    count = -(-span // stride) + 1
    return count - 1 if (count - 1) * stride >= start else count


def _groups(net: Net, channels: int) -> tuple[int, int]:
    """Groups, and output channels of all of them."""
    chance = net.rng.random()
    fitting = [g for g in range(1, channels + 1) if channels % g == 0]
    groups = channels if chance < 0.2 else net.rng.choice(fitting) if chance < 0.35 else 1
    return groups, groups * net.rng.choice((1, 1, 2, 3) if groups > 1 else (1, 2, 3, 4, 5, 8, 11, 16))


def conv(net: Net) -> None:
    """Conv of an image or of a sequence."""
    x = ranked(net, (3, 4, 4, 4))
    n, channels, *image = x.shape
    groups, filters = _groups(net, channels)
    w = window(net, tuple(image))
    shape = (filters, channels // groups, *w.kernel)
    if math.prod(shape) > 20000 or math.prod((*w.sizes, *shape)) > 2_000_000:
        raise Unfit
    kernel = weights(net, shape, 0)
    b = bias(net, filters, x, kernel)
    named = w.kernel if net.rng.random() < 0.7 else None
    top = x.top * kernel.top * math.sqrt(math.prod(shape[1:])) * 0.6
    result(
        net, "Conv", [x, kernel, *([b] if b else [])], (n, filters, *w.sizes), top,
        group=groups if groups > 1 or net.rng.random() < 0.3 else None, kernel_shape=named, **w.attributes,
    )  # fmt: skip


def conv_transpose(net: Net) -> None:
    """ConvTranspose with pads, output_padding, dilations and groups."""
    x = ranked(net, (3, 4, 4))
    n, channels, *image = x.shape
    groups, filters = _groups(net, channels)
    kernel = tuple(net.rng.choice((1, 2, 3, 4)) for _ in image)
    strides = tuple(net.rng.choice((1, 2, 2, 3)) for _ in image)
    dilations = tuple(net.rng.choice((1, 1, 1, 2)) for _ in image)
    more = tuple(net.rng.randint(0, s - 1) if net.rng.random() < 0.3 else 0 for s in strides)
    spread = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    pads = [net.rng.randint(0, s - 1) if net.rng.random() < 0.5 else 0 for s in (*spread, *spread)]
    full = [(size - 1) * s + k + o for size, s, k, o in zip(image, strides, spread, more, strict=True)]
    rank = len(image)
    sizes = tuple(full[i] - pads[i] - pads[i + rank] for i in range(rank))
    shape = (channels, filters // groups, *kernel)
    if min(sizes) < 1 or math.prod(shape) > 20000 or math.prod((*image, *shape)) > 2_000_000:
        raise Unfit
    w = weights(net, shape, 1)
    b = bias(net, filters, x, w)
    attributes: dict[str, Any] = {
        "strides": strides, "dilations": dilations if max(dilations) > 1 else None, "group": groups if groups > 1 else None,
        "pads": tuple(pads) if any(pads) else None, "output_padding": more if any(more) else None,
    }  # fmt: skip
    top = x.top * w.top * math.sqrt(max(1, math.prod(shape[2:]) * channels / groups / math.prod(strides)))
    result(net, "ConvTranspose", [x, w, *([b] if b else [])], (n, filters, *sizes), top, **attributes)


def pool(net: Net) -> None:
    """MaxPool, AveragePool, and pools over the whole image."""
    x = ranked(net, (3, 4, 4, 4))
    kind = net.rng.choice(("MaxPool", "MaxPool", "AveragePool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"))
    exact = "Max" in kind
    if kind.startswith("Global"):
        result(net, kind, [x], (*x.shape[:2], *(1 for _ in x.shape[2:])), x.top, exact=exact)
        return
    ceil = net.rng.random() < 0.25
    w = window(net, x.shape[2:], pooled=True, ceil=ceil, dilated=exact or net.opset >= 19)
    attributes = dict(w.attributes) | {"ceil_mode": 1 if ceil else None}
    if kind == "AveragePool":
        attributes["count_include_pad"] = net.rng.choice((None, 0, 1))
    result(net, kind, [x], (*x.shape[:2], *w.sizes), x.top, exact=exact, kernel_shape=w.kernel, **attributes)


def max_pool_of_codes(net: Net) -> None:
    """MaxPool of bytes."""
    x = codes_operand(net, lambda v: v.rank == 4, net.shape(4))
    if net.opset < 12:
        raise Unfit
    w = window(net, x.shape[2:], pooled=True)
    net.add(
        "MaxPool", [x], (x.dtype, (*x.shape[:2], *w.sizes)), exact=True, quantized=(x.scale, x.zero), top=x.top,
        kernel_shape=w.kernel, **w.attributes,
    )  # fmt: skip


_COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")


def resize(net: Net) -> None:
    """Resize by scales or to sizes, in each mode."""
    x = ranked(net, (3, 4, 4, 4, 2))
    mode = net.rng.choice(("nearest", "nearest", "linear", "linear", "cubic"))
    if mode == "cubic" and x.rank != 4:
        mode = "linear"
    attributes: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": net.rng.choice(_COORDINATES)}
    if mode == "nearest":
        attributes["nearest_mode"] = net.rng.choice((None, "round_prefer_floor", "round_prefer_ceil", "floor", "ceil"))
    if mode == "cubic":
        attributes["cubic_coeff_a"] = net.rng.choice((None, -0.5, -0.75))
        attributes["exclude_outside"] = net.rng.choice((None, 0, 1))
    first = min(2, x.rank - 1)
    sizes, scales = list(x.shape), [1.0] * x.rank
    for i in range(first, x.rank):
        scales[i] = net.rng.choice((1.0, 2.0, 2.0, 3.0, 0.5, 1.5))
        sizes[i] = max(1, math.floor(x.shape[i] * scales[i]))
        scales[i] = scales[i] if x.shape[i] * scales[i] >= 1 else 1.0
    region = "" if net.opset >= 13 else net.constant(np.zeros(0, np.float32))
    if net.rng.random() < 0.5:
        names = [region, net.constant(np.array(scales, np.float32))]
        sizes = [math.floor(size * scale) for size, scale in zip(x.shape, scales, strict=True)]
    else:
        names = [region, "" if net.opset >= 13 else net.constant(np.zeros(0, np.float32)), net.ints(sizes)]
    result(net, "Resize", [x, *names], tuple(sizes), x.top, exact=mode == "nearest", **attributes)


# ---- QOperator ----


def _codes_constant(net: Net, shape: Shape, dtype: str) -> str:
    return net.constant(net.integers(shape, dtype))


def channel_scales(net: Net, count: int, dtype: str, top: float, per_channel: bool) -> tuple[Array, Array]:
    """Scales and zero points of weights; zero points that are not in the middle are the same for all."""
    number = count if per_channel else 1
    scales = net.spread(np.float32(top / 127) * net.data.uniform(0.3, 1.2, number).astype(np.float32))
    zero = (0 if dtype == "int8" else 128) if net.rng.random() < 0.75 else int(net.integers((), dtype))
    zeros = np.full(number, zero, dtype)
    return (scales, zeros) if per_channel else (scales[0], zeros[0])


def q_linear_conv(net: Net) -> None:
    """QLinearConv."""
    x = codes_operand(net, lambda v: v.rank in (3, 4), net.shape(net.rng.choice((3, 4))))
    n, channels, *image = x.shape
    groups, filters = _groups(net, channels)
    w = window(net, tuple(image))
    shape = (filters, channels // groups, *w.kernel)
    if math.prod(shape) > 20000 or math.prod((*w.sizes, *shape)) > 2_000_000:
        raise Unfit
    dtype = "int8" if x.dtype == "int8" or net.rng.random() < 0.5 else "uint8"
    scales, zeros = channel_scales(net, filters, dtype, 1.0, net.rng.random() < 0.5)
    top = min(top_of(x), 4 * x.top) * math.sqrt(math.prod(shape[1:])) * 0.5
    scale, zero = net.scales_for(top, x.dtype)
    names: list[Known | str] = [
        x, *net.scale_names(x.scale, x.zero, x.dtype, may_omit=False), _codes_constant(net, shape, dtype),
        *net.scale_names(scales, zeros, dtype, may_omit=False), *net.scale_names(scale, zero, x.dtype, may_omit=False),
    ]  # fmt: skip
    if net.rng.random() < 0.7:
        names.append(net.constant(net.data.integers(-3000, 3000, filters).astype(np.int32)))
    net.add(
        "QLinearConv", names, (x.dtype, (n, filters, *w.sizes)), exact=True, quantized=(scale, zero), top=top,
        group=groups if groups > 1 else None, kernel_shape=w.kernel if net.rng.random() < 0.7 else None, **w.attributes,
    )  # fmt: skip


def q_linear_pool(net: Net) -> None:
    """QLinearAveragePool and QLinearGlobalAveragePool."""
    x = codes_operand(net, lambda v: v.rank == 4, net.shape(4))
    scale, zero = (x.scale, x.zero) if net.rng.random() < 0.3 else net.scales_for(min(top_of(x), x.top), x.dtype)
    names: list[Known | str] = [x, *net.scale_names(x.scale, x.zero, x.dtype, may_omit=False)]
    names += net.scale_names(scale, zero, x.dtype, may_omit=False)
    if net.rng.random() < 0.4:
        shape: Shape = (*x.shape[:2], 1, 1)
        net.add(
            f"{MICROSOFT}.QLinearGlobalAveragePool", names, (x.dtype, shape), exact=True, quantized=(scale, zero),
            top=x.top, channels_last=0 if net.rng.random() < 0.5 else None,
        )  # fmt: skip
        return
    w = window(net, x.shape[2:], pooled=True, dilated=False)
    net.add(
        f"{MICROSOFT}.QLinearAveragePool", names, (x.dtype, (*x.shape[:2], *w.sizes)), exact=True,
        quantized=(scale, zero), top=x.top, kernel_shape=w.kernel, count_include_pad=net.rng.choice((None, 0, 1)),
        **w.attributes,
    )  # fmt: skip


def conv_integer(net: Net) -> None:
    """ConvInteger, and often what makes reals of its sums."""
    x = net.pick(lambda v: v.dtype in ("uint8", "int8") and v.rank == 4)
    n, channels, *image = x.shape
    groups, filters = _groups(net, channels)
    w = window(net, tuple(image))
    shape = (filters, channels // groups, *w.kernel)
    if math.prod(shape) > 20000 or math.prod((*w.sizes, *shape)) > 2_000_000:
        raise Unfit
    dtype = net.rng.choice(("int8", "uint8")) if x.dtype == "uint8" else "int8"
    names: list[Known | str] = [x, _codes_constant(net, shape, dtype)]
    if net.rng.random() < 0.7:
        zero: str = (
            net.constant(np.asarray(x.zero, x.dtype)) if not is_computed_zero(net, x) else is_computed_zero(net, x)
        )
        names.append(zero)
        if net.rng.random() < 0.6:
            names.append(net.constant(net.integers((), dtype)))
    (made,) = net.add(
        "ConvInteger", names, ("int32", (n, filters, *w.sizes)), exact=True, top=3e4, group=groups if groups > 1 else None,
        kernel_shape=w.kernel if net.rng.random() < 0.7 else None, **w.attributes,
    )  # fmt: skip
    sums_as_reals(net, made)


def is_computed_zero(net: Net, x: Known) -> str:
    """The zero point that DynamicQuantizeLinear gives with a value; "" for any other."""
    for node in net.nodes:
        if node.op == "DynamicQuantizeLinear" and node.outputs[0] == x.name:
            return node.outputs[2]
    return ""


def sums_as_reals(net: Net, sums: Known) -> None:
    """Cast and Mul by a scale after an integer sum, as dynamic quantization has them."""
    if net.rng.random() < 0.25:
        return
    (real,) = net.add("Cast", [sums], (FLOAT, sums.shape), top=sums.top, exact=True, pool=False, to=1)
    factor = net.scalar(float(np.float32(net.rng.uniform(1e-4, 1e-3))))
    net.add("Mul", [real, factor], (FLOAT, sums.shape), top=sums.top * 5e-4, exact=True)

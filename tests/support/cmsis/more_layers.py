"""Random layers of operators that emitc has no reference of its own for yet: int16 with int8 weights, TRANSPOSE_CONV, SVDF.

The references here follow TFLite Micro's integer kernels, and a test holds the wide requantization against the engine.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from emitc.backends.cmsis_nn.buffer_sizes import Call, Dims
from emitc.kernels.shared.windows import Padding, Window
from emitc.numerics.requantize import Int64, multiplier_of, requantize
from tests.support.cmsis.layers import Draws, Prepared

Arrays = dict[str, NDArray[np.generic]]


def requantize_wide(acc: Int64, q31: Int64, shift: Int64) -> Int64:
    """acc * q31 * 2**(shift - 31) for int64 accumulators: a multiplier of 16 bits, rounded half up."""
    reduced = np.where(q31 < 0x7FFF0000, (q31 + (1 << 15)) >> 16, 0x7FFF)
    right = 15 - shift
    return np.asarray((acc * reduced + (np.int64(1) << (right - 1))) >> right, np.int64)


def _factors(d: Draws, channels: int, depth: int, bits: int) -> tuple[Int64, Int64]:
    """Multipliers and shifts whose outputs mostly spread over the type."""
    base = 2.0 ** d.rng.uniform(-2, 3) / (70.0 * depth**0.5) / (1 if bits == 8 else 1.0)
    pairs = [multiplier_of(base * 2.0 ** d.rng.uniform(-1, 1)) for _ in range(channels)]
    return np.array([p.q31 for p in pairs], np.int64), np.array([p.shift for p in pairs], np.int64)


def _clamp16(d: Draws) -> tuple[int, int]:
    return (-32768, 32767) if d.rng.random() < 0.6 else (0, d.integer(100, 32767))


def _int16(d: Draws, shape: tuple[int, ...]) -> NDArray[np.int16]:
    if d.rng.random() < 0.2:
        return d.rng.choice(np.array([-32768, 32767], np.int16), shape)
    return d.rng.integers(-32768, 32767, shape, endpoint=True).astype(np.int16)


def _window(d: Draws, *, dilated: bool, kernel: tuple[int, int]) -> tuple[Window, tuple[int, int]]:
    """A window with SAME or no padding, and an image that it fits."""
    slide = d.slide(dilated=dilated)
    image = d.image(slide, kernel, 1)[1:3]
    pads = []
    for size, extent, stride, dilation in zip(image, kernel, slide.stride, slide.dilation, strict=True):
        total = max(0, (-(-size // stride) - 1) * stride + (extent - 1) * dilation + 1 - size)
        pads.append((total // 2, total - total // 2) if slide.padding == "SAME" else (0, 0))
    padding = Padding(pads[0][0], pads[0][1], pads[1][0], pads[1][1])
    return Window(*slide.stride, padding, *slide.dilation), image


def _call(image: tuple[int, ...], filter_: Dims, out: tuple[int, ...], window: Window) -> Call:
    return Call(
        Dims(*image), filter_, Dims(*out), window.stride_h, window.stride_w, window.padding.top, window.padding.left,
        window.dilation_h, window.dilation_w,
    )  # fmt: skip


def _wide_result(
    d: Draws, acc: Int64, channels: int, depth: int, arrays: Arrays, tensor: bool
) -> tuple[NDArray[np.int16], dict[str, int]]:
    """Outputs for accumulators without bias; adds what the call needs."""
    q31, shift = _factors(d, 1 if tensor else channels, depth, 16)
    if d.rng.random() < 0.8:
        bias = d.rng.integers(-(1 << 22), 1 << 22, channels).astype(np.int64)
        arrays["B"] = bias
        acc = acc + bias
    arrays["MULTIPLIERS"], arrays["SHIFTS"] = q31.astype(np.int32), shift.astype(np.int32)
    low, high = _clamp16(d)
    y = np.clip(requantize_wide(acc, q31, shift), low, high).astype(np.int16)
    return y, {"LOW": low, "HIGH": high, "MULTIPLIER": int(q31[0]), "SHIFT": int(shift[0])}


def convolution_16(name: str, d: Draws) -> Prepared:
    """CONV_2D int16x8."""
    kernel = d.kernel()
    window, size = _window(d, dilated=True, kernel=kernel)
    in_c, channels = d.integer(1, 40 if d.rng.random() < 0.3 else 12), d.integer(1, 9)
    x = _int16(d, (1 if d.rng.random() < 0.8 else 2, *size, in_c))
    w = d.rng.integers(-127, 127, (channels, *kernel, in_c), endpoint=True).astype(np.int8)
    rows, columns = window.output(*size, *kernel)
    acc = np.zeros((x.shape[0], rows, columns, channels), np.int64)
    for ky, kx, values in window.taps(x.astype(np.int64), 0, *kernel):
        acc += values @ w[:, ky, kx].astype(np.int64).T
    arrays: Arrays = {"X": x, "W": w}
    y, numbers = _wide_result(d, acc, channels, kernel[0] * kernel[1] * in_c, arrays, tensor=False)
    call = _call(x.shape, Dims(*w.shape), y.shape, window)
    return Prepared(name, "conv_s16", call, numbers, arrays, "arm_convolve_wrapper_s16_get_buffer_size", y)


def depthwise_16(name: str, d: Draws) -> Prepared:
    """DEPTHWISE_CONV_2D int16x8."""
    kernel = d.kernel()
    window, size = _window(d, dilated=True, kernel=kernel)
    multiplier = 1 if d.rng.random() < 0.6 else d.integer(2, 5)
    in_c = d.integer(1, 20)
    channels = in_c * multiplier
    x = _int16(d, (1 if d.rng.random() < 0.8 else 2, *size, in_c))
    w = d.rng.integers(-127, 127, (1, *kernel, channels), endpoint=True).astype(np.int8)
    rows, columns = window.output(*size, *kernel)
    acc = np.zeros((x.shape[0], rows, columns, channels), np.int64)
    for ky, kx, values in window.taps(x.astype(np.int64), 0, *kernel):
        acc += np.repeat(values, multiplier, axis=3) * w[0, ky, kx].astype(np.int64)
    arrays: Arrays = {"X": x, "W": w}
    y, numbers = _wide_result(d, acc, channels, kernel[0] * kernel[1], arrays, tensor=False)
    call = _call(x.shape, Dims(*w.shape), y.shape, window)
    return Prepared(name, "depthwise_s16", call, numbers, arrays, "arm_depthwise_conv_wrapper_s16_get_buffer_size", y)


def dense_16(name: str, d: Draws) -> Prepared:
    """FULLY_CONNECTED int16x8."""
    depth, channels, rows = d.integer(1, 70), d.integer(1, 18), d.integer(1, 3)
    x, w = _int16(d, (rows, depth)), d.rng.integers(-127, 127, (channels, depth), endpoint=True).astype(np.int8)
    arrays: Arrays = {"X": x, "W": w}
    acc = x.astype(np.int64) @ w.astype(np.int64).T
    y, numbers = _wide_result(d, acc, channels, depth, arrays, tensor=True)
    call = Call(Dims(rows, 1, 1, depth), Dims(depth, 1, 1, channels), Dims(rows, 1, 1, channels))
    return Prepared(name, "fully_connected_s16", call, numbers, arrays, "", y)


def _pool_16(name: str, d: Draws, *, average: bool) -> Prepared:
    kernel = d.kernel()
    window, size = _window(d, dilated=False, kernel=kernel)
    x = _int16(d, (1 if d.rng.random() < 0.8 else 2, *size, d.integer(1, 20)))
    low, high = _clamp16(d)
    if average:
        total = sum(v for _, _, v in window.taps(x.astype(np.int64), 0, *kernel))
        count = sum(v for _, _, v in window.taps(np.ones_like(x, np.int64), 0, *kernel))
        values = np.where(total > 0, (total + count // 2) // count, -((-total + count // 2) // count))
    else:
        values = np.max([v for _, _, v in window.taps(x.astype(np.int64), -(1 << 40), *kernel)], axis=0)
    y = np.clip(values, low, high).astype(np.int16)
    call = _call(x.shape, Dims(1, *kernel, 1), y.shape, window)
    size_function = "arm_avgpool_s16_get_buffer_size" if average else ""
    return Prepared(
        name, "average_s16" if average else "max_s16", call, {"LOW": low, "HIGH": high}, {"X": x}, size_function, y
    )


def average_16(name: str, d: Draws) -> Prepared:
    """AVERAGE_POOL_2D int16."""
    return _pool_16(name, d, average=True)


def maximum_16(name: str, d: Draws) -> Prepared:
    """MAX_POOL_2D int16."""
    return _pool_16(name, d, average=False)


def add_16(name: str, d: Draws) -> Prepared:
    """ADD int16: zero points 0, 15 bits to the left."""
    count, bits = d.integer(1, 90), 15
    a, b = _int16(d, (count,)), _int16(d, (count,))
    a_scale, b_scale = 2.0 ** d.rng.uniform(-3, 3), 2.0 ** d.rng.uniform(-3, 3)
    reach = 2 * max(a_scale, b_scale)
    first, second = multiplier_of(a_scale / reach), multiplier_of(b_scale / reach)
    last = multiplier_of(reach / ((1 << bits) * max(a_scale, b_scale) * 2.0 ** d.rng.uniform(-0.5, 1.5)))
    acc = requantize(a.astype(np.int64) << bits, first.q31, first.shift)
    acc = acc + requantize(b.astype(np.int64) << bits, second.q31, second.shift)
    low, high = _clamp16(d)
    y = np.clip(requantize(acc, last.q31, last.shift), low, high).astype(np.int16)
    numbers = {
        "P1": first.q31,
        "P2": first.shift,
        "P4": second.q31,
        "P5": second.shift,
        "P6": bits,
        "LOW": low,
        "HIGH": high,
    }
    numbers |= {"MULTIPLIER": last.q31, "SHIFT": last.shift}
    call = Call(Dims(1, 1, 1, count), Dims(1, 1, 1, 1), Dims(1, 1, 1, count))
    return Prepared(name, "add_s16", call, numbers, {"X": a, "A": b}, "", y)


def multiply_16(name: str, d: Draws) -> Prepared:
    """MUL int16: zero points 0."""
    count = d.integer(1, 90)
    a, b = _int16(d, (count,)), _int16(d, (count,))
    factor = multiplier_of(2.0 ** d.rng.uniform(-17, -13))
    low, high = _clamp16(d)
    acc = a.astype(np.int64) * b.astype(np.int64)
    y = np.clip(requantize(acc, factor.q31, factor.shift), low, high).astype(np.int16)
    call = Call(Dims(1, 1, 1, count), Dims(1, 1, 1, 1), Dims(1, 1, 1, count))
    numbers = {"MULTIPLIER": factor.q31, "SHIFT": factor.shift, "LOW": low, "HIGH": high}
    return Prepared(name, "mul_s16", call, numbers, {"X": a, "A": b}, "", y)


def transposed_convolution(name: str, d: Draws) -> Prepared:
    """TRANSPOSE_CONV with SAME or no padding."""
    kernel, stride = (d.integer(1, 5), d.integer(1, 5)), (d.integer(1, 3), d.integer(1, 3))
    height, width = d.integer(1, 6), d.integer(1, 6)
    in_c = d.integer(17, 24) if d.rng.random() < 0.4 else d.integer(1, 16)
    channels, batches = d.integer(1, 9), 1 if d.rng.random() < 0.8 else 2
    same = d.rng.random() < 0.5
    out, pad, odd = [], [], []
    for size, extent, step in zip((height, width), kernel, stride, strict=True):
        out.append(size * step if same else (size - 1) * step + max(extent, step))
        pad.append(max(0, (size - 1) * step + extent - out[-1]) // 2)
        odd.append(max(0, (size - 1) * step + extent - out[-1]) % 2)
    zero_x, zero_y = d.zero_point(), d.zero_point()
    x = d.values((batches, height, width, in_c))
    w = d.rng.integers(-127, 127, (channels, *kernel, in_c), endpoint=True).astype(np.int8)
    wide = np.zeros(
        (batches, (height - 1) * stride[0] + kernel[0], (width - 1) * stride[1] + kernel[1], channels), np.int64
    )
    for ky in range(kernel[0]):
        for kx in range(kernel[1]):
            spread = wide[
                :, ky : ky + (height - 1) * stride[0] + 1 : stride[0], kx : kx + (width - 1) * stride[1] + 1 : stride[1]
            ]
            spread += (x.astype(np.int64) - zero_x) @ w[:, ky, kx].astype(np.int64).T
    acc = np.zeros((batches, *out, channels), np.int64)
    part = wide[:, pad[0] : pad[0] + out[0], pad[1] : pad[1] + out[1]]
    acc[:, : part.shape[1], : part.shape[2]] = part
    q31, shift = _factors(d, channels, kernel[0] * kernel[1] * in_c, 8)
    arrays: Arrays = {"X": x, "W": w, "MULTIPLIERS": q31.astype(np.int32), "SHIFTS": shift.astype(np.int32)}
    if d.rng.random() < 0.8:
        bias = d.rng.integers(-4000, 4000, channels).astype(np.int32)
        arrays["B"] = bias
        acc = acc + bias
    low = -128 if d.rng.random() < 0.7 else zero_y
    y = np.clip(requantize(acc, q31, shift) + zero_y, low, 127).astype(np.int8)
    numbers = {"INPUT_OFFSET": -zero_x, "OUTPUT_OFFSET": zero_y, "LOW": low, "HIGH": 127}
    numbers |= {"P0": pad[1] + odd[1], "P1": pad[0] + odd[0]}
    call = Call(Dims(*x.shape), Dims(*w.shape), Dims(*y.shape), *stride, *pad)
    return Prepared(name, "transpose_conv_s8", call, numbers, arrays, "arm_transpose_conv_s8_get_buffer_size", y)


def svdf(name: str, d: Draws) -> Prepared:
    """SVDF with int16 state; its input offset is the zero point itself, not its negative."""
    batches, inputs, rank, units, steps = (
        d.integer(1, 2),
        d.integer(1, 40),
        d.integer(1, 3),
        d.integer(1, 9),
        d.integer(1, 12),
    )
    filters, zero_x, zero_y = rank * units, d.zero_point(), d.zero_point()
    x = d.values((batches, inputs))
    feature = d.rng.integers(-127, 127, (filters, inputs), endpoint=True).astype(np.int8)
    # Their products must sum up within int32, as a model's do: the accumulator has no more.
    time = d.rng.integers(-1500, 1500, (filters, steps), endpoint=True).astype(np.int16)
    state = d.rng.integers(-20000, 20000, (batches, filters, steps), endpoint=True).astype(np.int16)
    first = multiplier_of(2.0 ** d.rng.uniform(-4, 1) / inputs**0.5)
    second = multiplier_of(2.0 ** d.rng.uniform(-2, 2) * 2.0**-18 / (steps * rank) ** 0.5)
    new = requantize((x.astype(np.int64) - zero_x) @ feature.astype(np.int64).T, first.q31, first.shift)
    after = np.roll(state, -1, axis=2)
    after[:, :, -1] = np.clip(new, -32768, 32767)
    acc = (after.astype(np.int64) * time).sum(axis=2).reshape(batches, units, rank).sum(axis=2)
    acc = acc.astype(np.int32).astype(np.int64)
    arrays: Arrays = {"X": x, "A": state}
    if d.rng.random() < 0.8:
        bias = d.rng.integers(-(1 << 20), 1 << 20, units).astype(np.int32)
        arrays["B"] = bias
        acc = (acc + bias).astype(np.int32).astype(np.int64)
    y = np.clip(requantize(acc, second.q31, second.shift) + zero_y, -128, 127).astype(np.int8)
    packed = feature.tobytes() + bytes(-feature.nbytes % 16)
    arrays["W"] = np.frombuffer(packed + time.tobytes(), np.int8)
    numbers = {
        "INPUT_OFFSET": zero_x,
        "OUTPUT_OFFSET": zero_y,
        "MULTIPLIER": second.q31,
        "SHIFT": second.shift,
        "P0": rank,
    }
    numbers |= {
        "P1": first.q31,
        "P2": first.shift,
        "P3": batches,
        "P4": inputs,
        "P5": filters,
        "P6": steps,
        "P7": len(packed),
    }
    numbers |= {
        "SCRATCH_BYTES": 4 * batches * filters,
        "SCRATCH_2_BYTES": 4 * batches * units,
        "STATE_BYTES": state.nbytes,
    }
    call = Call(Dims(batches, inputs, 1, 1), Dims(filters, inputs, 1, 1), Dims(batches, units, 1, 1))
    return Prepared(name, "svdf_s8", call, numbers, arrays, "", y)


def packed_4(values: NDArray[np.generic]) -> NDArray[np.int8]:
    """Two 4-bit values a byte, the first in the low bits, over the whole tensor."""
    flat = np.append(values.reshape(-1), np.zeros(values.size % 2, np.int8)).astype(np.int64) & 15
    return (flat[::2] | flat[1::2] << 4).astype(np.uint8).view(np.int8)


def _nibbles(d: Draws, shape: tuple[int, ...]) -> NDArray[np.int8]:
    return d.rng.integers(-8, 7, shape, endpoint=True).astype(np.int8)


def _narrow_result(
    d: Draws, acc: Int64, channels: int, depth: int, arrays: Arrays, zero_x: int, tensor: bool
) -> tuple[NDArray[np.int8], dict[str, int]]:
    """int8 outputs for accumulators of 4-bit weights, without bias; adds what the call needs."""
    q31, shift = _factors(d, 1 if tensor else channels, depth, 8)
    shift = shift + 3
    if d.rng.random() < 0.8:
        arrays["B"] = d.rng.integers(-2000, 2000, channels).astype(np.int32)
        acc = acc + arrays["B"].astype(np.int64)
    arrays["MULTIPLIERS"], arrays["SHIFTS"] = q31.astype(np.int32), shift.astype(np.int32)
    zero_y = d.zero_point()
    low = -128 if d.rng.random() < 0.7 else zero_y
    y = np.clip(requantize(acc, q31, shift) + zero_y, low, 127).astype(np.int8)
    numbers = {"INPUT_OFFSET": -zero_x, "OUTPUT_OFFSET": zero_y, "LOW": low, "HIGH": 127}
    return y, numbers | {"MULTIPLIER": int(q31[0]), "SHIFT": int(shift[0])}


def convolution_4(name: str, d: Draws) -> Prepared:
    """CONV_2D with 4-bit weights."""
    kernel = d.kernel()
    window, size = _window(d, dilated=True, kernel=kernel)
    in_c, channels, zero_x = d.integer(1, 24), d.integer(1, 9), d.zero_point()
    x = d.values((1 if d.rng.random() < 0.8 else 2, *size, in_c))
    w = _nibbles(d, (channels, *kernel, in_c))
    acc = np.zeros((x.shape[0], *window.output(*size, *kernel), channels), np.int64)
    for ky, kx, values in window.taps(x.astype(np.int64) - zero_x, 0, *kernel):
        acc += values @ w[:, ky, kx].astype(np.int64).T
    arrays: Arrays = {"X": x, "W": packed_4(w)}
    y, numbers = _narrow_result(d, acc, channels, kernel[0] * kernel[1] * in_c, arrays, zero_x, tensor=False)
    call = _call(x.shape, Dims(*w.shape), y.shape, window)
    return Prepared(name, "conv_s4", call, numbers, arrays, "arm_convolve_wrapper_s4_get_buffer_size", y)


def depthwise_4(name: str, d: Draws) -> Prepared:
    """DEPTHWISE_CONV_2D with 4-bit weights."""
    kernel = d.kernel()
    window, size = _window(d, dilated=True, kernel=kernel)
    multiplier = 1 if d.rng.random() < 0.6 else d.integer(2, 5)
    in_c, zero_x = d.integer(1, 20), d.zero_point()
    channels = in_c * multiplier
    x = d.values((1 if d.rng.random() < 0.8 else 2, *size, in_c))
    w = _nibbles(d, (1, *kernel, channels))
    acc = np.zeros((x.shape[0], *window.output(*size, *kernel), channels), np.int64)
    for ky, kx, values in window.taps(x.astype(np.int64) - zero_x, 0, *kernel):
        acc += np.repeat(values, multiplier, axis=3) * w[0, ky, kx].astype(np.int64)
    arrays: Arrays = {"X": x, "W": packed_4(w)}
    y, numbers = _narrow_result(d, acc, channels, kernel[0] * kernel[1], arrays, zero_x, tensor=False)
    call = _call(x.shape, Dims(*w.shape), y.shape, window)
    return Prepared(name, "depthwise_s4", call, numbers, arrays, "arm_depthwise_conv_wrapper_s4_get_buffer_size", y)


def dense_4(name: str, d: Draws) -> Prepared:
    """FULLY_CONNECTED with 4-bit weights."""
    depth, channels, rows, zero_x = d.integer(1, 70), d.integer(1, 18), d.integer(1, 3), d.zero_point()
    x, w = d.values((rows, depth)), _nibbles(d, (channels, depth))
    arrays: Arrays = {"X": x, "W": packed_4(w)}
    acc = (x.astype(np.int64) - zero_x) @ w.astype(np.int64).T
    y, numbers = _narrow_result(d, acc, channels, depth, arrays, zero_x, tensor=True)
    call = Call(Dims(rows, 1, 1, depth), Dims(depth, 1, 1, channels), Dims(rows, 1, 1, channels))
    return Prepared(name, "fully_connected_s4", call, numbers, arrays, "", y)


MAKERS: dict[str, Callable[[str, Draws], Prepared]] = {
    "convolution_16": convolution_16,
    "depthwise_16": depthwise_16,
    "dense_16": dense_16,
    "average_16": average_16,
    "maximum_16": maximum_16,
    "add_16": add_16,
    "multiply_16": multiply_16,
    "transposed_convolution": transposed_convolution,
    "svdf": svdf,
    "convolution_4": convolution_4,
    "depthwise_4": depthwise_4,
    "dense_4": dense_4,
}

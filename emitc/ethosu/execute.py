"""The operations of the NPU in numpy integers: from feature maps in memory to a feature map in memory.

Source  the arithmetic of the streams that vela writes for Ethos-U55 and Ethos-U65, fitted to tflite_micro bit for bit.
Values are int64 between reading and writing; matrix products are float64, which holds every sum of them exactly.
"""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from emitc.ethosu import commands as npu
from emitc.ethosu.commands import Array, Rounding
from emitc.ethosu.memory import Memory
from emitc.ethosu.weights import WeightLayout, channel_scales, kernel_weights

_LOWEST = -(1 << 40)
"""Below every input: what padding is for a maximum."""
_PATCH_ELEMENTS = 1 << 22
_OPERAND_SHIFT = {1: 19, 2: 14}
"""By element bytes: how far the operand of ADD or SUB that has no multiplier is shifted left."""
_RECIPROCAL_SHIFT = 31


def padded_input(memory: Memory, command: npu.Windowed, *, fill: int) -> tuple[Array, Array]:
    """(values [H, W, C] with padding around, mask [H, W] of what is no padding), upscaled, less the zero point.

    H and W are what the windows of all outputs cover. fill: the value of the padding.
    """
    ifm, padding, kernel, ofm = command.ifm, command.padding, command.kernel, command.output.feature_map
    values = memory.read(ifm).astype(np.int64) - ifm.zero_point
    height = (ofm.height - 1) * kernel.stride_y + kernel.extent_y - padding.top - padding.bottom
    width = (ofm.width - 1) * kernel.stride_x + kernel.extent_x - padding.left - padding.right
    if command.upscale is npu.Upscale.NEAREST:
        values = values.repeat(2, 0).repeat(2, 1)
    elif command.upscale is npu.Upscale.ZEROS:
        wide = np.zeros((2 * ifm.height, 2 * ifm.width, ifm.depth), np.int64)
        wide[::2, ::2] = values
        values = wide
    rows = slice(padding.top, padding.top + height)
    columns = slice(padding.left, padding.left + width)
    around = np.full((height + padding.top + padding.bottom, width + padding.left + padding.right, ifm.depth), fill)
    around[rows, columns] = values[:height, :width]
    inside = np.zeros(around.shape[:2], bool)
    inside[rows, columns] = True
    return around, inside


def tap(values: Array, kernel: npu.Kernel, y: int, x: int, oh: int, ow: int) -> Array:
    """What tap (y, x) of the kernel sees at every output: a view [oh, ow, ...]."""
    top, left = y * kernel.dilation_y, x * kernel.dilation_x
    view: Array = values[
        top : top + (oh - 1) * kernel.stride_y + 1 : kernel.stride_y,
        left : left + (ow - 1) * kernel.stride_x + 1 : kernel.stride_x,
    ]
    return view


def convolve(values: Array, weights: Array, kernel: npu.Kernel, oh: int, ow: int) -> Array:
    """Sums [oh, ow, O] of a convolution with weights [O, kh, kw, I]; values [H, W, I] with padding, less the zero point."""
    outputs = weights.shape[0]
    matrix = weights.transpose(3, 1, 2, 0).reshape(-1, outputs).astype(np.float64)
    windows = sliding_window_view(values.astype(np.float64), (kernel.extent_y, kernel.extent_x), axis=(0, 1))
    windows = windows[:: kernel.stride_y, :: kernel.stride_x, :, :: kernel.dilation_y, :: kernel.dilation_x]
    sums = np.empty((oh, ow, outputs), np.int64)
    rows = max(1, _PATCH_ELEMENTS // (ow * matrix.shape[0]))
    columns = min(ow, max(1, _PATCH_ELEMENTS // matrix.shape[0]))
    for row in range(0, oh, rows):
        for column in range(0, ow, columns):
            patches = windows[row : row + rows, column : column + columns]
            flat = patches.reshape(-1, matrix.shape[0]) @ matrix
            sums[row : row + rows, column : column + columns] = flat.reshape(*patches.shape[:2], outputs)
    return sums


def convolve_depthwise(values: Array, weights: Array, kernel: npu.Kernel, oh: int, ow: int) -> Array:
    """Sums [oh, ow, C] of a depthwise convolution with weights [C, kh, kw, 1]."""
    sums = np.zeros((oh, ow, weights.shape[0]), np.int64)
    for y in range(kernel.height):
        for x in range(kernel.width):
            sums += tap(values, kernel, y, x, oh, ow) * weights[:, y, x, 0]
    return sums


def run_convolution(command: npu.Convolution, memory: Memory, accelerator: npu.Accelerator) -> None:
    """(sum of products + bias), scaled per channel, then `finish`."""
    ifm, kernel, ofm = command.ifm, command.kernel, command.output.feature_map
    values, _ = padded_input(memory, command, fill=0)
    layout = WeightLayout(
        outputs=ofm.depth,
        height=kernel.height,
        width=kernel.width,
        inputs=ifm.depth,
        depthwise=command.depthwise,
        part_kernel_first=command.part_kernel_first,
        wide=ifm.dtype == "int16",
        block_depth=command.block_depth,
        block_channels=accelerator.block_channels,
        dilation_y=kernel.dilation_y,
        dilation_x=kernel.dilation_x,
    )
    weights = kernel_weights(memory.bytes_of(command.weights, "weights"), layout)
    summed = convolve_depthwise if command.depthwise else convolve
    sums = summed(values, weights, kernel, ofm.height, ofm.width)
    scales = channel_scales(memory.bytes_of(command.scales, "scales"), ofm.depth)
    sums += scales.bias
    bound = 1 << (command.accumulator_bits - 1)
    if int(sums.max(initial=0)) >= bound or int(sums.min(initial=0)) < -bound:
        raise Overflow(f"a sum does not fit the accumulator of {command.accumulator_bits} bits")
    if command.output.scale is None:
        sums = scaled(sums, scales.multiplier, scales.shift, command.output.rounding)
    finish(_scaled_output(sums, command.output), command.output, memory)


def _scaled_output(values: Array, output: npu.Output) -> Array:
    if output.scale is None:
        return values
    return scaled(values, output.scale.multiplier, output.scale.shift, output.rounding)


def run_pooling(command: npu.Pooling, memory: Memory) -> None:
    """Maximum, average or sum over channels, then `finish`."""
    ofm, output = command.output.feature_map, command.output
    if command.kind is npu.PoolKind.REDUCE_SUM:
        values = memory.read(command.ifm).astype(np.int64) - command.ifm.zero_point
        finish(_scaled_output(values.sum(2, keepdims=True), output), output, memory)
        return
    kernel, maximum = command.kernel, command.kind is npu.PoolKind.MAX
    values, inside = padded_input(memory, command, fill=_LOWEST if maximum else 0)
    values = values[..., : ofm.depth]
    taps = [(y, x) for y in range(kernel.height) for x in range(kernel.width)]
    if maximum:
        best = np.full((ofm.height, ofm.width, ofm.depth), _LOWEST)
        for y, x in taps:
            np.maximum(best, tap(values, kernel, y, x, ofm.height, ofm.width), out=best)
        finish(_scaled_output(best, output), output, memory)
        return
    sums = np.zeros((ofm.height, ofm.width, ofm.depth), np.int64)
    counts = np.zeros((ofm.height, ofm.width, 1), np.int64)
    for y, x in taps:
        sums += tap(values, kernel, y, x, ofm.height, ofm.width)
        counts[..., 0] += tap(inside, kernel, y, x, ofm.height, ofm.width)
    if command.padding.any or output.scale is None:
        sums = _averages(sums, counts, output.rounding)
    finish(_scaled_output(sums, output), output, memory)


def _averages(sums: Array, counts: Array, rounding: npu.Rounding) -> Array:
    """sums / counts by a reciprocal of 31 bits and as many as the count has; counts [h, w, 1] are positive."""
    bits = np.frexp(counts - 1)[1].astype(np.int64)  # of count - 1
    reciprocal = ((np.int64(1) << (_RECIPROCAL_SHIFT + bits)) + (np.int64(1) << bits)) // counts
    return shifted(product(sums, reciprocal), _RECIPROCAL_SHIFT + bits, rounding)


def run_elementwise(command: npu.Elementwise, memory: Memory) -> None:
    """One operation on two tensors, a tensor and a scalar, or one tensor; then `finish`."""
    kind, output = command.kind, command.output
    first = memory.read(command.ifm).astype(np.int64) - command.ifm.zero_point
    wide = command.ifm.element_bytes == 4
    if kind in npu.UNARY:
        finish(_unary(kind, first, output), output, memory)
        return
    if isinstance(command.ifm2, npu.FeatureMap):
        second = memory.read(command.ifm2).astype(np.int64) - command.ifm2.zero_point
    else:
        second = np.full((1, 1, 1), (command.ifm2 or 0) - command.ifm2_zero_point, np.int64)
    a, b = (second, first) if command.swapped else (first, second)
    a, b = np.broadcast_arrays(a, b)
    finish(_binary(command, a, b, wide), output, memory)


def _unary(kind: npu.ElementwiseKind, values: Array, output: npu.Output) -> Array:
    if kind is npu.ElementwiseKind.ABS:
        return _scaled_output(np.abs(values), output)
    if kind is npu.ElementwiseKind.LRELU:
        return np.where(values >= 0, values, _scaled_output(values, output))
    # Zeros above the highest one of 32 bits; float64 has the exponent of every such number exactly.
    bits = np.frexp((values & 0xFFFFFFFF).astype(np.float64))[1]
    return 32 - bits.astype(np.int64)


def _binary(command: npu.Elementwise, a: Array, b: Array, wide: bool) -> Array:
    """The result before `finish`. wide: 32-bit operands, which have no scale of their own."""
    kind, output = command.kind, command.output
    if kind in (npu.ElementwiseKind.ADD, npu.ElementwiseKind.SUB):
        if not wide:
            a, b = scaled_operands(command, a, b)
        return _scaled_output(a + b if kind is npu.ElementwiseKind.ADD else a - b, output)
    if kind is npu.ElementwiseKind.MUL:
        values = a * b
        if wide and output.scale is not None:  # 32-bit products are only shifted
            return shifted(values, output.scale.shift, output.rounding)
        return _scaled_output(values, output)
    if kind is npu.ElementwiseKind.MIN:
        return np.minimum(a, b)
    if kind is npu.ElementwiseKind.MAX:
        return np.maximum(a, b)
    if bool(((b < 0) | (b > 63)).any()):
        raise Overflow(f"a shift by {int(b.min())} to {int(b.max())}")
    if kind is npu.ElementwiseKind.SHR:
        return shifted(a, b, output.rounding)
    return ((a << b & 0xFFFFFFFF) ^ 0x80000000) - 0x80000000


def scaled_operands(command: npu.Elementwise, a: Array, b: Array) -> tuple[Array, Array]:
    """The operands of ADD and SUB on a common scale: both times 16 bits, or one by multiplier and shift, the other shifted.

    A multiplier of 32 bits stands for TFLite's: the operand shifted left, a doubling high multiplication, a rounding
    shift. The left shift is contained in the smaller right shift here, which moves the place of the first rounding.
    """
    assert command.scale_a is not None
    if command.scaling is npu.OperandScaling.BOTH:
        assert command.scale_b is not None
        return product(a, command.scale_a.multiplier), product(b, command.scale_b.multiplier)
    left = _OPERAND_SHIFT[command.ifm.element_bytes]
    rescaled = a if command.scaling is npu.OperandScaling.FIRST else b
    multiplied = product(rescaled, command.scale_a.multiplier)
    rescaled = shifted(multiplied, command.scale_a.shift, npu.Rounding.TFL, high_bit=30 - left)
    return (rescaled, b << left) if command.scaling is npu.OperandScaling.FIRST else (a << left, rescaled)


def finish(values: Array, output: npu.Output, memory: Memory) -> None:
    """Zero point, clamp, lookup table, store. Results of 32 bits without a clamp have no zero point either."""
    ofm = output.feature_map
    if output.minimum is None or output.maximum is None:
        low, high = (0, 2**32 - 1) if ofm.dtype == "uint32" else (-(2**31), 2**31 - 1)
        values = np.clip(values, low, high)
    else:
        values = np.clip(values + ofm.zero_point, output.minimum, output.maximum)
    if output.table is not None:
        values = looked_up(values, output.table, output.table_signed, ofm.dtype, memory)
    memory.write(ofm, values)


def looked_up(values: Array, table: int, table_signed: bool, dtype: str, memory: Memory) -> Array:
    """Values through a table: 256 entries of the output's type, or for 16 bits 512 pairs (base, slope) to interpolate."""
    element = np.dtype(dtype).itemsize
    if element == 2:
        pairs = np.frombuffer(memory.table(table, element), "<i2").astype(np.int64).reshape(-1, 2)
        index = (values >> 7) + 256
        if int(index.min()) < 0 or int(index.max()) > 511:
            raise Overflow("a value is outside the table")
        interpolated: Array = pairs[index, 0] + ((pairs[index, 1] * (values & 127) + 64) >> 7)
        return interpolated
    entries = np.frombuffer(memory.table(table, element), dtype).astype(np.int64)
    index = values + 128 if table_signed else values
    if int(index.min()) < 0 or int(index.max()) > 255:
        raise Overflow("a value is outside the table")
    result: Array = entries[index]
    return result


_PRODUCT_BITS = 62
_HIGH_BIT = 31


class Overflow(Exception):
    """A product or an accumulator has more bits than the NPU has: its result is not defined."""


def product(values: Array, multiplier: Array | int) -> Array:
    """values * multiplier in int64. Raises Overflow above 62 bits."""
    largest = max(int(values.max(initial=0)), -int(values.min(initial=0)))
    factor = int(np.max(multiplier, initial=0)) if isinstance(multiplier, np.ndarray) else multiplier
    if largest * factor >> _PRODUCT_BITS:
        raise Overflow(f"{largest} times {factor} has more than {_PRODUCT_BITS} bits")
    return values * multiplier


def shifted(values: Array, shift: Array | int, rounding: Rounding, high_bit: int = _HIGH_BIT) -> Array:
    """values >> shift, rounded; `shift` is 0 to 63, a number or one per channel (the last axis).

    TFL adds half, and above a shift of `high_bit` also 2^(high_bit - 1) with the sign of the value. That is TFLite's
    doubling high multiplication (rounded at bit 31) and the rounding shift after it (half away from zero) in one sum.
    NATURAL rounds half up, TRUNCATE towards zero.

    >>> shifted(np.array([-3, -1, 1, 3]), 1, Rounding.NATURAL), shifted(np.array([-3, -1, 1, 3]), 1, Rounding.TRUNCATE)
    (array([-1,  0,  1,  2]), array([-1,  0,  0,  1]))
    """
    amount = np.asarray(shift, np.int64)
    if rounding is Rounding.TRUNCATE:
        return np.where(values < 0, -(-values >> amount), values >> amount)
    half = np.where(amount > 0, np.left_shift(np.int64(1), np.maximum(amount - 1, 0)), 0)
    if rounding is Rounding.TFL and bool((amount > high_bit).any()):
        nudge = np.where(amount > high_bit, np.int64(1) << np.int64(high_bit - 1), 0)
        return (values + half + np.where(values < 0, -nudge, nudge)) >> amount
    return (values + half) >> amount


def scaled(values: Array, multiplier: Array | int, shift: Array | int, rounding: Rounding) -> Array:
    """values * multiplier >> shift, rounded. Raises Overflow."""
    return shifted(product(values, multiplier), shift, rounding)

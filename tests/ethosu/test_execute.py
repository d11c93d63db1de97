"""The executor on streams made by hand, against loops over single elements with exact arithmetic."""

from __future__ import annotations

import itertools
from fractions import Fraction
from math import floor

import numpy as np
import pytest

from emitc.ethosu import registers as regs
from emitc.ethosu.commands import NpuFault
from emitc.ethosu.simulator import HostModel
from emitc.ethosu.weights import WeightLayout
from emitc.ir import Array
from tests.support.npu.streams import Stream, result, scale_table, scratch_with, weight_stream

MUL, ADD, SUB, MIN, MAX, LRELU, ABS, CLZ, SHR, SHL = range(10)


def numbers(shape: tuple[int, ...], dtype: str = "int8", seed: int = 0) -> Array:
    """Values over the whole range of the type."""
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max, shape, dtype=dtype, endpoint=True)


def half_away(value: Fraction) -> int:
    """Nearest integer, ties away from zero."""
    return floor(value + Fraction(1, 2)) if value >= 0 else -floor(-value + Fraction(1, 2))


def half_up(value: Fraction) -> int:
    """Nearest integer, ties up."""
    return floor(value + Fraction(1, 2))


@pytest.mark.parametrize("depthwise", [False, True], ids=["conv", "depthwise"])
@pytest.mark.parametrize(
    ("kernel", "stride", "dilation", "padding", "upscale"),
    [
        ((1, 1), (1, 1), (1, 1), (0, 0, 0, 0), 0),
        ((3, 2), (2, 1), (1, 1), (1, 0, 1, 1), 0),
        ((2, 3), (1, 3), (2, 1), (0, 2, 1, 0), 0),
        ((3, 3), (1, 1), (1, 2), (2, 2, 2, 3), 0),
        ((3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 1),
        ((2, 2), (1, 1), (1, 1), (1, 1, 1, 1), 2),
    ],
    ids=["point", "stride", "dilation", "wide", "nearest", "zeros"],
)
def test_convolutions(
    depthwise: bool, kernel: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int],
    padding: tuple[int, int, int, int], upscale: int
) -> None:  # fmt: skip
    """Bias, scale per channel, zero points and clamp, one element at a time; the result is rounded once, without ties."""
    oh, ow, inputs, outputs, zero_in, zero_out = 4, 3, 5, 5, -7, 11
    extent = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    height = (oh - 1) * stride[0] + extent[0] - padding[0] - padding[2]
    width = (ow - 1) * stride[1] + extent[1] - padding[1] - padding[3]
    small = (-(-height // 2), -(-width // 2)) if upscale else (height, width)
    x = numbers((*small, inputs))
    weights = numbers((outputs, *kernel, 1 if depthwise else inputs), seed=1)
    scales = [(1000 * o - 2000, 2**30 + 12345 * o, 36 + o) for o in range(outputs)]
    layout = WeightLayout(outputs, *kernel, 1 if depthwise else inputs, depthwise, False, False, 16, 8, *dilation)
    stream_bytes = weight_stream(weights, layout)
    constants = stream_bytes + scale_table(scales)
    stream = Stream().tensor("IFM", (*small, inputs), zero_point=zero_in)
    stream.output((oh, ow, outputs), zero_point=zero_out, clamp=(-120, 100))
    stream.window(kernel, stride=stride, dilation=dilation, padding=padding, upscale=upscale)
    stream.set("ACC_FORMAT", 0).set("OFM_BLK_DEPTH_M1", 15).set("WEIGHT_REGION", 0).set("WEIGHT_BASE", 0)
    stream.set("WEIGHT_LENGTH", len(stream_bytes)).set("SCALE_REGION", 0).set("SCALE_BASE", len(stream_bytes))
    stream.set("SCALE_LENGTH", 64).run(regs.DEPTHWISE if depthwise else regs.CONV)
    found = result(stream, scratch_with((0, x)), (oh, ow, outputs), constants=constants)

    def value(row: int, column: int, channel: int) -> int:
        """The input less its zero point, where the window sees it; 0 in the padding and between upscaled elements."""
        row, column = row - padding[0], column - padding[1]
        if not (0 <= row < height and 0 <= column < width) or (upscale == 2 and (row % 2 or column % 2)):
            return 0
        return int(x[row // 2, column // 2, channel] if upscale else x[row, column, channel]) - zero_in

    for y, c, o in itertools.product(range(oh), range(ow), range(outputs)):
        total = scales[o][0]
        for ky, kx in itertools.product(range(kernel[0]), range(kernel[1])):
            row, column = y * stride[0] + ky * dilation[0], c * stride[1] + kx * dilation[1]
            for i in [o] if depthwise else range(inputs):
                total += value(row, column, i) * int(weights[o, ky, kx, 0 if depthwise else i])
        exact = half_away(Fraction(half_away(Fraction(total * scales[o][1], 2**31)), 2 ** (scales[o][2] - 31)))
        assert found[y, c, o] == min(max(exact + zero_out, -120), 100), (y, c, o)


def pooled(
    kind: int, x: Array, padding: tuple[int, int, int, int], shape: tuple[int, int, int], **output: object
) -> Array:
    """A pooling 3x3 with stride 2."""
    stream = Stream().tensor("IFM", x.shape, zero_point=4).output(shape, zero_point=-6, **output)  # type: ignore[arg-type]
    stream.window((3, 3), stride=(2, 2), padding=padding).run(regs.POOL, kind)
    return result(stream, scratch_with((0, x)), shape)


def test_maximum_and_averages_with_padding() -> None:
    """Padding never wins a maximum, and an average divides by the elements that are there."""
    x = numbers((5, 5, 3))
    largest = pooled(0, x, (1, 1, 1, 1), (3, 3, 3))
    average = pooled(1, x, (1, 1, 1, 1), (3, 3, 3), rounding="natural")
    for y, c, o in itertools.product(range(3), repeat=3):
        seen = x[max(2 * y - 1, 0) : 2 * y + 2, max(2 * c - 1, 0) : 2 * c + 2, o].astype(int)
        assert largest[y, c, o] == min(int(seen.max()) - 4 - 6, 127) if seen.max() - 10 > -128 else -128
        exact = half_up(Fraction(int((seen - 4).sum()), seen.size)) - 6
        assert average[y, c, o] == max(exact, -128), (y, c, o)


@pytest.mark.parametrize("rounding", ["tfl", "natural", "truncate"])
def test_an_average_without_padding_takes_the_given_scale(rounding: str) -> None:
    """Ties tell the roundings apart: sums of an even number of elements times a power of two."""
    x = numbers((3, 3, 8))
    found = pooled(1, x, (0, 0, 0, 0), (1, 1, 8), rounding=rounding, scale=(1, 4))
    sums = (x.astype(int) - 4).sum((0, 1))
    expected = {
        "tfl": [floor(Fraction(int(s), 16) + Fraction(1, 2)) for s in sums],
        "natural": [half_up(Fraction(int(s), 16)) for s in sums],
        "truncate": [int(Fraction(int(s), 16)) for s in sums],
    }[rounding]
    assert found.reshape(-1).tolist() == [min(max(e - 6, -128), 127) for e in expected]


def test_sum_over_channels() -> None:
    x = numbers((2, 2, 7), "int32", seed=3) // 64
    stream = (
        Stream()
        .tensor("IFM", x.shape, "int32")
        .output((2, 2, 1), "int32", zero_point=99, scale=(3, 2), rounding="natural")
    )
    found = result(stream.run(regs.POOL, 2), scratch_with((0, x)), (2, 2, 1), "int32")
    # A 32-bit result has no zero point and no clamp.
    assert found.reshape(-1).tolist() == [half_up(Fraction(int(row.sum()) * 3, 4)) for row in x.reshape(4, 7)]


def elementwise(kind: int, a: Array, b: Array | int | None, dtype: str, *, broadcast: int = 0, mode: int = 0,
                scales: tuple[tuple[int, int], tuple[int, int]] = ((1, 0), (1, 0)), zero: tuple[int, int] = (0, 0),
                **output: object) -> Array:  # fmt: skip
    """One elementwise operation; b is a tensor, a scalar, or None."""
    shape = (a.shape[0], a.shape[1], a.shape[2])
    name = a.dtype.name
    stream = Stream().tensor("IFM", shape, name, zero_point=zero[0], precision=mode << 8)
    memory = [(0, a)]
    if isinstance(b, np.ndarray):
        stream.tensor("IFM2", b.shape, name, base=2048, zero_point=zero[1])  # type: ignore[arg-type]
        memory.append((2048, b))
    elif b is not None:
        stream.set("IFM2_PRECISION", 1).set("IFM2_SCALAR", b).set("IFM2_ZERO_POINT", zero[1])
        broadcast |= 0x80
    stream.set("IFM2_BROADCAST", broadcast).set("OPA_SCALE", *scales[0]).set("OPB_SCALE", *scales[1])
    stream.output(shape, dtype, **output)  # type: ignore[arg-type]
    return result(stream.run(regs.ELEMENTWISE, kind), scratch_with(*memory), shape, dtype)


def test_additions_with_both_operands_scaled() -> None:
    a, b = numbers((4, 4, 8)), numbers((4, 4, 8), seed=1)
    found = elementwise(ADD, a, b, "int8", scales=((3, 0), (5, 0)), zero=(2, -9), scale=(2**29 + 7, 33), zero_point=1)
    total = (a.astype(int) - 2) * 3 + (b.astype(int) + 9) * 5
    high = [half_away(Fraction(int(t) * (2**29 + 7), 2**31)) for t in total.reshape(-1)]
    expected = [half_away(Fraction(h, 4)) + 1 for h in high]
    assert found.reshape(-1).tolist() == np.clip(expected, -128, 127).tolist()


@pytest.mark.parametrize("mode", [1, 2], ids=["first", "second"])
@pytest.mark.parametrize(("dtype", "left"), [("int8", 20), ("int16", 15)])
def test_additions_with_one_operand_scaled_as_tflite_does(mode: int, dtype: str, left: int) -> None:
    """TFLite shifts both operands left, multiplies each (the larger by 2^30), and shifts: here as one product less wide."""
    a, b = numbers((4, 4, 8), dtype), numbers((4, 4, 8), dtype, seed=1)
    multiplier, shift = 1518500250, 31 - left + 1
    total = []
    for p, q in zip(a.reshape(-1).astype(int).tolist(), b.reshape(-1).astype(int).tolist(), strict=True):
        scaled, plain = (p, q) if mode == 1 else (q, p)
        high = half_away(Fraction((scaled << left) * multiplier, 2**31))
        moved = half_away(Fraction(high, 2)), (plain << left) >> 1
        total.append((moved[0] + moved[1]) if mode == 1 else (moved[1] - moved[0]))
    kind = ADD if mode == 1 else SUB
    low, high_end = np.iinfo(dtype).min, np.iinfo(dtype).max
    found = elementwise(
        kind, a, b, dtype, mode=mode, scales=((multiplier, shift), (0, 0)), scale=(2**30, 31 + left - 1),
        clamp=(low, high_end),
    )  # fmt: skip
    expected = [half_away(Fraction(half_away(Fraction(t, 2)), 2 ** (left - 1))) for t in total]
    assert found.reshape(-1).tolist() == np.clip(expected, low, high_end).tolist()


def test_products_and_their_scale() -> None:
    a, b = numbers((3, 3, 8)), numbers((3, 3, 8), seed=1)
    found = elementwise(MUL, a, b, "int8", zero=(5, -5), scale=(2**30 + 1, 37))
    exact = (a.astype(int) - 5) * (b.astype(int) + 5)
    tfl = [half_away(Fraction(half_away(Fraction(int(p) * (2**30 + 1), 2**31)), 2**6)) for p in exact.reshape(-1)]
    assert found.reshape(-1).tolist() == np.clip(tfl, -128, 127).tolist()
    wide = numbers((2, 2, 4), "int32") // 2**12
    found = elementwise(MUL, wide, wide, "int32", scale=(12345, 20), rounding="natural")
    shifted = [half_up(Fraction(int(p) ** 2, 2**20)) for p in wide.reshape(-1)]
    assert found.reshape(-1).tolist() == np.clip(shifted, -(2**31), 2**31 - 1).tolist()


def test_extrema_scalars_and_order() -> None:
    a, b = numbers((3, 3, 4)), numbers((3, 3, 4), seed=1)
    assert np.array_equal(elementwise(MIN, a, b, "int8"), np.minimum(a, b))
    assert np.array_equal(elementwise(MAX, a, b, "int8"), np.maximum(a, b))
    assert np.array_equal(elementwise(MAX, a, -7, "int8"), np.maximum(a, -7))
    low, high = -128, 127
    plain, turned = elementwise(SUB, a, b, "int8"), elementwise(SUB, a, b, "int8", broadcast=0x40)
    assert np.array_equal(plain, np.clip(a.astype(int) - b, low, high))
    assert np.array_equal(turned, np.clip(b.astype(int) - a, low, high))


@pytest.mark.parametrize("bits", range(1, 8))
def test_broadcasts(bits: int) -> None:
    a = numbers((3, 4, 5))
    b = numbers((1 if bits & 1 else 3, 1 if bits & 2 else 4, 1 if bits & 4 else 5), seed=bits)
    assert np.array_equal(elementwise(MIN, a, b, "int8", broadcast=bits), np.minimum(a, b))


def test_one_operand() -> None:
    a = numbers((4, 4, 8))
    assert np.array_equal(elementwise(ABS, a, None, "int8"), np.minimum(np.abs(a.astype(int)), 127))
    leaky = elementwise(LRELU, a, None, "int8", scale=(2**29, 31))
    assert leaky.reshape(-1).tolist() == [
        v if v >= 0 else floor(Fraction(v, 4) + Fraction(1, 2)) for v in a.reshape(-1).tolist()
    ]
    wide = np.array([0, 1, 2, 3, 255, 256, 2**30, 2**31 - 1, -1, -(2**31)], "int32").reshape(1, 2, 5)
    zeros = [32, 31, 30, 30, 24, 23, 1, 1, 0, 0]
    assert elementwise(CLZ, wide, None, "int32").reshape(-1).tolist() == zeros


def test_shifts() -> None:
    a = np.array([5, -5, 6, -6, 7, -7, 1 << 20, -(1 << 20)], "int32").reshape(1, 1, 8)
    b = np.array([1, 1, 2, 2, 0, 3, 19, 20], "int32").reshape(1, 1, 8)
    exact = [Fraction(int(p), 2 ** int(q)) for p, q in zip(a.reshape(-1), b.reshape(-1), strict=True)]
    assert elementwise(SHR, a, b, "int32", rounding="natural").reshape(-1).tolist() == [half_up(e) for e in exact]
    assert elementwise(SHR, a, b, "int32", rounding="truncate").reshape(-1).tolist() == [int(e) for e in exact]
    found = elementwise(SHL, a, b, "int32").reshape(-1)
    assert np.array_equal(found, np.left_shift(a, b).reshape(-1))
    with pytest.raises(NpuFault, match="a shift by -1 to -1"):
        elementwise(SHR, a, -1, "int32")


@pytest.mark.parametrize("table", [0, 5])
@pytest.mark.parametrize("wide", [False, True], ids=["int8", "int32"])
def test_tables(table: int, wide: bool) -> None:
    """The table's first entry stands for -128; the index is clamped as the activation says, the entry is not."""
    entries = numbers((256,), "int32" if wide else "int8", seed=9)
    if wide and table:
        table = 4
    x = numbers((2, 4, 16))
    internal = 24 * 1024 - 2048 + 256 * table
    stream = Stream().copy((0, 0), (0x100, internal), entries.nbytes).tensor("IFM", x.shape, zero_point=3)
    clip = 3 if wide else 0
    stream.output(x.shape, entries.dtype.name, clamp=(-100, 90), zero_point=7, activation=16 + table | clip << 12)
    stream.window().run(regs.POOL, 0)
    found = result(stream, scratch_with((0, x)), x.shape, entries.dtype.name, constants=entries.tobytes())
    assert np.array_equal(found, entries[np.clip(x.astype(int) - 3 + 7, -100, 90) + 128])


def test_tables_of_16_bits_interpolate() -> None:
    rng = np.random.default_rng(4)
    pairs = np.stack([rng.integers(-30000, 30000, 512), rng.integers(-500, 500, 512)], 1).astype("<i2")
    x = numbers((2, 4, 16), "int16")
    stream = Stream().copy((0, 0), (0x100, 24 * 1024 - 2048), 2048).tensor("IFM", x.shape, "int16")
    stream.output(x.shape, "int16", clamp=(-32768, 32767), activation=16).window().run(regs.POOL, 0)
    found = result(stream, scratch_with((0, x)), x.shape, "int16", constants=pairs.tobytes())
    for value, got in zip(x.reshape(-1).tolist(), found.reshape(-1).tolist(), strict=True):
        base, slope = pairs[(value >> 7) + 256].tolist()
        assert got == base + floor(Fraction(slope * (value & 127), 128) + Fraction(1, 2))


def test_sums_that_do_not_fit_the_accumulator_are_refused() -> None:
    layout = WeightLayout(1, 1, 1, 1, False, False, False, 8, 8, 1, 1)
    data = weight_stream(np.array([[[[1]]]]), layout)
    constants = data + scale_table([(2**31 - 1, 2**30, 31)])
    stream = Stream().tensor("IFM", (1, 1, 1)).output((1, 1, 1)).window().set("ACC_FORMAT", 0)
    stream.set("OFM_BLK_DEPTH_M1", 7).set("WEIGHT_REGION", 0).set("WEIGHT_BASE", 0).set("WEIGHT_LENGTH", len(data))
    stream.set("SCALE_REGION", 0).set("SCALE_BASE", len(data)).set("SCALE_LENGTH", 16).run(regs.CONV)
    memory = scratch_with((0, np.array([0], np.int8)))
    assert result(stream, memory, (1,), constants=constants).tolist() == [127]
    with pytest.raises(NpuFault, match="does not fit the accumulator of 32 bits"):
        result(stream, scratch_with((0, np.array([1], np.int8))), (1,), constants=constants)


def test_nothing_is_kept_between_calls() -> None:
    """Tables of one call are not there in the next."""
    table = numbers((256,))
    load = Stream().copy((0, 0), (0x100, 24 * 1024 - 2048), 256)
    use = Stream().tensor("IFM", (1, 1, 1)).output((1, 1, 1), activation=16).window().run(regs.POOL, 0)
    model, memory = HostModel(), scratch_with()
    model.invoke(load.payload(), (table.tobytes(), memory, memory))
    with pytest.raises(NpuFault, match="a table reads byte 22528 of the internal memory, which nothing has written"):
        model.invoke(use.payload(), (table.tobytes(), memory, memory))

"""Weight streams: the order of every layout, own streams, streams of vela's encoder, damaged streams."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from emitc.ethosu.weights import StreamFault, WeightLayout, channel_scales, decode_weights, kernel_weights, weight_order
from tests.support.npu.streams import scale_table, uncompressed, weight_stream

LAYOUT = WeightLayout(
    outputs=3, height=2, width=2, inputs=5, depthwise=False, part_kernel_first=False, wide=False, block_depth=8,
    block_channels=8, dilation_y=1, dilation_x=1,
)  # fmt: skip


def layouts(count: int) -> list[WeightLayout]:
    """Random layouts of every sort."""
    rng = np.random.default_rng(7)
    found = []
    for _ in range(count):
        depthwise = bool(rng.random() < 0.33)
        found.append(
            WeightLayout(
                outputs=int(rng.integers(1, 70)),
                height=int(rng.integers(1, 12)),
                width=int(rng.integers(1, 12)),
                inputs=1 if depthwise else int(rng.integers(1, 70)),
                depthwise=depthwise,
                part_kernel_first=not depthwise and bool(rng.random() < 0.5),
                wide=bool(rng.random() < 0.3),
                block_depth=int(rng.choice([8, 16, 24, 64])),
                block_channels=int(rng.choice([4, 8])),
                dilation_y=int(rng.integers(1, 3)),
                dilation_x=int(rng.integers(1, 3)),
            )
        )
    return found


def test_every_weight_has_one_place() -> None:
    for layout in layouts(60):
        order = weight_order(layout)
        assert np.array_equal(
            np.sort(order[order >= 0]), np.arange(layout.outputs * layout.height * layout.width * layout.inputs)
        )


def test_depth_first_order_by_hand() -> None:
    """1x1 kernel, 10 inputs, 2 outputs, 4 interleaved: 8 inputs of each output, then the rest, padded to 32 inputs."""
    layout = WeightLayout(2, 1, 1, 10, False, False, False, 8, 4, 1, 1)
    order = weight_order(layout).reshape(4, 4, 8)
    assert order[0, 0].tolist() == list(range(8)) and order[0, 1].tolist() == list(range(10, 18))
    assert order[1, 0].tolist() == [8, 9, *[-1] * 6] and order[1, 1].tolist() == [18, 19, *[-1] * 6]
    assert (order[2:] == -1).all() and (order[:, 2:] == -1).all()


def test_depthwise_order_by_hand() -> None:
    """3x1 kernel of 5 channels, 8 interleaved: elements outside channels, padded to 4."""
    order = weight_order(WeightLayout(5, 3, 1, 1, True, False, False, 8, 8, 1, 1)).reshape(4, 8)
    assert order[0].tolist() == [0, 3, 6, 9, 12, -1, -1, -1] and order[2].tolist() == [2, 5, 8, 11, 14, -1, -1, -1]
    assert (order[3] == -1).all()


def test_a_kernel_comes_back_from_its_stream() -> None:
    rng = np.random.default_rng(1)
    for layout in layouts(12):
        kernel = rng.integers(-255, 256, (layout.outputs, layout.height, layout.width, layout.inputs))
        assert np.array_equal(kernel_weights(weight_stream(kernel, layout), layout), kernel)


def test_weights_of_the_whole_range_without_compression() -> None:
    values = [*range(-255, 256)] * 70  # several slices
    assert decode_weights(uncompressed(values), len(values)).tolist() == values


def codec() -> object:
    """vela's encoder; the test is skipped without it."""
    if importlib.util.find_spec("ethosu") is None:
        pytest.skip("vela (the extra emitc[npu]) is not installed")
    from ethosu import mlw_codec  # type: ignore[import-untyped]

    return mlw_codec


@pytest.mark.parametrize("kind", ["uniform", "gaussian", "sparse", "few", "zeros", "rare"])
def test_streams_of_the_encoder_of_vela(kind: str) -> None:
    """Palettes, zero runs, truncated and long quotients: whatever the encoder chooses."""
    mlw = codec()
    rng = np.random.default_rng(len(kind))
    for _ in range(60):
        n = int(rng.integers(1, 3000))
        values = {
            "uniform": lambda n=n: rng.integers(-255, 256, n),
            "gaussian": lambda n=n: np.clip(np.rint(rng.normal(0, 2.0 ** rng.uniform(0, 6), n)), -255, 255),
            "sparse": lambda n=n: np.where(rng.random(n) < 0.8, 0, rng.integers(-128, 128, n)),
            "few": lambda n=n: rng.choice([-7, 3, 100], n),
            "zeros": lambda n=n: np.zeros(n),
            "rare": lambda n=n: np.where(rng.random(n) < 0.98, 0, 5),
        }[kind]().astype(int)
        stream = bytes(mlw.encode(values.tolist()))  # type: ignore[attr-defined]
        assert decode_weights(stream, n).tolist() == values.tolist()


def test_kernels_reordered_and_encoded_by_vela() -> None:
    mlw = codec()
    rng = np.random.default_rng(3)
    for layout in layouts(60):
        kernel = rng.integers(-128, 128, (layout.outputs, layout.height, layout.width, layout.inputs)).astype(np.int16)
        encoded = mlw.reorder_encode(  # type: ignore[attr-defined]
            8, layout.block_channels, kernel, layout.block_depth, layout.depthwise, layout.part_kernel_first,
            16 if layout.wide else 8, 8 // layout.dilation_y, 8 // layout.dilation_x,
        )  # fmt: skip
        stream = bytes(encoded[0] if isinstance(encoded, tuple) else encoded)
        assert np.array_equal(kernel_weights(stream, layout), kernel), layout


def test_damaged_streams_are_faults_or_other_weights() -> None:
    rng = np.random.default_rng(2)
    kernel = rng.integers(-9, 9, (3, 2, 2, 5))
    good = weight_stream(kernel, LAYOUT)
    faults = 0
    for number in range(400):
        data = bytearray(good)
        if number % 2:
            del data[int(rng.integers(1, len(data))) :]
        else:
            data[int(rng.integers(0, len(data)))] ^= 1 << int(rng.integers(0, 8))
        try:
            kernel_weights(bytes(data), LAYOUT)
        except StreamFault:
            faults += 1
    assert faults > 150
    for _ in range(400):
        try:
            decode_weights(rng.bytes(int(rng.integers(1, 400))), 10_000)
        except StreamFault:
            faults += 1
    assert faults > 400


def test_a_stream_that_swells_is_stopped() -> None:
    """Zero runs may hold far more weights than bits: the limit ends it."""
    with pytest.raises(StreamFault, match="more than 10 weights"):
        decode_weights(uncompressed([1] * 11), 10)


def test_padding_that_is_not_zero_and_short_streams_are_faults() -> None:
    order = weight_order(LAYOUT)
    values = [1 if place >= 0 else 0 for place in order]
    values[int(np.flatnonzero(order < 0)[0])] = 4
    with pytest.raises(StreamFault, match="belongs to no channel"):
        kernel_weights(uncompressed(values), LAYOUT)
    with pytest.raises(StreamFault, match=f"holds 7 weights, {len(order)} are expected"):
        kernel_weights(uncompressed([1] * 7), LAYOUT)


def test_scales() -> None:
    rows = [(-(2**39), 2**32 - 1, 63), (2**39 - 1, 0, 0), (-1, 2**31, 31)]
    found = channel_scales(scale_table(rows), 3)
    assert list(zip(found.bias.tolist(), found.multiplier.tolist(), found.shift.tolist(), strict=True)) == rows
    with pytest.raises(StreamFault, match="16 bytes of scales for 2 channels"):
        channel_scales(scale_table(rows[:1]), 2)

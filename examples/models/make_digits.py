"""Trains and quantizes `digits_int8.tflite`, a small int8 classifier of drawn digits, from this file alone.

    python examples/models/make_digits.py [--output DIRECTORY]

Data       digits 0 to 9 as polylines, drawn on 16x16 pixels with random rotation, scale, shift, pen width and noise.
Network    conv 3x3/2 relu - depthwise 3x3 relu6 - conv 1x1 - add relu - average pool 2x2 - fully connected - softmax.
Training   softmax cross entropy, stochastic gradient descent with momentum, float64.
Quantized  after training, as TFLite's 8-bit quantization specification says: weights symmetric in [-127, 127], per
           output channel in convolutions and per tensor in the fully connected layer; activations asymmetric int8 with
           ranges seen on training images; bias int32 with scale = input scale * weight scale, zero point 0.

The same file comes out on every machine. Float results that depend on the processor are avoided: elementwise steps are
+ - * / sqrt, which IEEE 754 fixes to the last bit; matrix products and sums first round their operands to so few bits
that every partial sum is exact, hence the same in any order (BLAS, SIMD width, FMA); exp is our own polynomial; random
numbers are raw words of PCG64, whose stream numpy keeps stable.
"""

from __future__ import annotations

import argparse
import itertools
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from emitc.verify.engines.run import TflmEngine
from emitc.writers.tflite import ModelSpec, OperatorSpec, OptionValue, TensorSpec, write_tflite

Floats: TypeAlias = NDArray[np.float64]

SEED = 20
SIZE = 16
CHANNELS = 24
TRAIN_IMAGES = 4000
TEST_IMAGES = 1000
CALIBRATION_IMAGES = 500
VECTORS = 10
LABELLED = 300
EPOCHS = 8
BATCH = 50
RATE = 0.05
MOMENTUM = 0.9
# A matrix product of operands of 20 bits over 2**13 terms stays within the 53 bits of a float64.
PRODUCT_BITS = 20
SUM_BITS = 36

# Polylines of each digit; x to the right, y down, both in 0..1.
GLYPHS: tuple[tuple[tuple[tuple[float, float], ...], ...], ...] = (
    (
        (
            (0.5, 0.1),
            (0.25, 0.25),
            (0.2, 0.5),
            (0.25, 0.75),
            (0.5, 0.9),
            (0.75, 0.75),
            (0.8, 0.5),
            (0.75, 0.25),
            (0.5, 0.1),
        ),
    ),
    (((0.3, 0.3), (0.55, 0.1), (0.55, 0.9)),),
    (((0.25, 0.3), (0.35, 0.12), (0.65, 0.12), (0.75, 0.3), (0.65, 0.5), (0.25, 0.9), (0.8, 0.9)),),
    (((0.25, 0.15), (0.7, 0.15), (0.45, 0.42), (0.7, 0.5), (0.75, 0.7), (0.6, 0.88), (0.25, 0.85)),),
    (((0.65, 0.9), (0.65, 0.1), (0.2, 0.65), (0.85, 0.65)),),
    (((0.75, 0.1), (0.3, 0.1), (0.27, 0.45), (0.6, 0.42), (0.77, 0.62), (0.65, 0.85), (0.25, 0.88)),),
    (((0.7, 0.1), (0.4, 0.3), (0.25, 0.6), (0.35, 0.87), (0.62, 0.88), (0.75, 0.68), (0.6, 0.5), (0.28, 0.6)),),
    (((0.2, 0.1), (0.8, 0.1), (0.45, 0.9)),),
    (
        ((0.5, 0.1), (0.3, 0.2), (0.32, 0.4), (0.5, 0.48), (0.68, 0.4), (0.7, 0.2), (0.5, 0.1)),
        ((0.5, 0.48), (0.26, 0.6), (0.26, 0.8), (0.5, 0.9), (0.74, 0.8), (0.74, 0.6), (0.5, 0.48)),
    ),
    (((0.72, 0.4), (0.4, 0.5), (0.25, 0.32), (0.38, 0.12), (0.65, 0.12), (0.74, 0.35), (0.6, 0.7), (0.3, 0.9)),),
)


class Uniform:
    """Uniform numbers from raw 64-bit words of PCG64."""

    def __init__(self, seed: int) -> None:
        self._bits = np.random.PCG64(seed)

    def between(self, low: float, high: float, shape: tuple[int, ...]) -> Floats:
        words = self._bits.random_raw(int(np.prod(shape))) >> np.uint64(11)
        values: Floats = low + (high - low) * (words.astype(np.float64) * 2.0**-53)
        return values.reshape(shape)

    def order(self, count: int) -> NDArray[np.int64]:
        """A permutation of range(count)."""
        return np.argsort(self._bits.random_raw(count), kind="stable").astype(np.int64)


def digits(count: int, uniform: Uniform) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """`count` drawn digits: pixels uint8 [count, 16, 16, 1], bright on dark, and labels [count], 0 to 9 in turn."""
    labels = np.arange(count) % 10
    # Rotation by the half-angle tangent t needs no sine: cos = (1 - t^2) / (1 + t^2), sin = 2t / (1 + t^2).
    half = uniform.between(-0.13, 0.13, (count,))
    cos, sin = (1 - half * half) / (1 + half * half), 2 * half / (1 + half * half)
    width, height = (uniform.between(0.75, 1.05, (count,)) * SIZE * 0.85 for _ in range(2))
    shift_x, shift_y = (uniform.between(-1.5, 1.5, (count,)) + (SIZE - 1) / 2 for _ in range(2))
    pen = uniform.between(0.45, 1.0, (count,))
    ink = uniform.between(0.6, 1.0, (count,))
    noise = uniform.between(-0.12, 0.12, (count, SIZE, SIZE))

    rows, columns = np.mgrid[0:SIZE, 0:SIZE].astype(np.float64)
    pixels = np.zeros((count, SIZE, SIZE, 1), np.uint8)
    for i in range(count):
        distance = np.full((SIZE, SIZE), np.inf)
        for line in GLYPHS[labels[i]]:
            points = []
            for x, y in line:
                u, v = (x - 0.5) * width[i], (y - 0.5) * height[i]
                points.append((cos[i] * u - sin[i] * v + shift_x[i], sin[i] * u + cos[i] * v + shift_y[i]))
            for (x0, y0), (x1, y1) in itertools.pairwise(points):
                dx, dy = x1 - x0, y1 - y0
                along = np.clip(((columns - x0) * dx + (rows - y0) * dy) / (dx * dx + dy * dy), 0.0, 1.0)
                off_x, off_y = columns - x0 - along * dx, rows - y0 - along * dy
                distance = np.minimum(distance, np.sqrt(off_x * off_x + off_y * off_y))
        value = ink[i] * np.clip(1.0 + pen[i] - distance, 0.0, 1.0) + noise[i]
        pixels[i, :, :, 0] = np.rint(255 * np.clip(value, 0.0, 1.0)).astype(np.uint8)
    return pixels, labels


def rounded(values: Floats, bits: int) -> Floats:
    """`values` rounded to multiples of 2**(e - bits), where 2**e is the power of two above the largest magnitude."""
    exponent = int(np.frexp(np.max(np.abs(values)))[1])
    step = 2.0 ** (exponent - bits)
    return np.rint(values / step) * step


def product(a: Floats, b: Floats) -> Floats:
    """a [M, K] @ b [K, N], exact for the operands rounded to PRODUCT_BITS, whatever the order of summation."""
    assert a.shape[1] <= 2 ** (53 - 2 * PRODUCT_BITS)
    return rounded(a, PRODUCT_BITS) @ rounded(b, PRODUCT_BITS)


def column_sum(values: Floats) -> Floats:
    """Sum of [..., N] over all but the last axis, exact for the values rounded to SUM_BITS."""
    flat = values.reshape(-1, values.shape[-1])
    assert flat.shape[0] <= 2 ** (53 - SUM_BITS)
    total: Floats = rounded(flat, SUM_BITS).sum(axis=0)
    return total


def exponential(x: Floats) -> Floats:
    """exp(max(x, -100)) for x <= 0, relative error below 1e-9: Taylor's polynomial of x / 1024, squared ten times."""
    y = np.maximum(x, -100.0) / 1024
    value = 1 + y * (1 + y / 2 * (1 + y / 3 * (1 + y / 4 * (1 + y / 5 * (1 + y / 6 * (1 + y / 7))))))
    for _ in range(10):
        value = value * value
    return value


@dataclass(slots=True)
class Parameters:
    """Weights, input channels first; `taps` run over the 3x3 kernel, row by row."""

    stem: Floats  # [9 taps, CHANNELS]
    stem_bias: Floats
    depthwise: Floats  # [9 taps, CHANNELS]
    depthwise_bias: Floats
    pointwise: Floats  # [CHANNELS, CHANNELS]
    pointwise_bias: Floats
    dense: Floats  # [4 * 4 * CHANNELS, 10]
    dense_bias: Floats


@dataclass(frozen=True, slots=True)
class Activations:
    """Every value of one forward pass over N images."""

    patches: Floats  # [N, 8, 8, 9 taps]
    stem: Floats  # [N, 8, 8, CHANNELS], after relu
    depthwise: Floats  # after relu6
    pointwise: Floats
    residual: Floats  # after relu
    pooled: Floats  # [N, 4 * 4 * CHANNELS]
    logits: Floats  # [N, 10]


def initial(uniform: Uniform) -> Parameters:
    def weights(fan_in: int, shape: tuple[int, ...]) -> Floats:
        bound = float(np.sqrt(6 / fan_in))
        return uniform.between(-bound, bound, shape)

    return Parameters(
        weights(9, (9, CHANNELS)),
        np.zeros(CHANNELS),
        weights(9, (9, CHANNELS)),
        np.zeros(CHANNELS),
        weights(4 * CHANNELS, (CHANNELS, CHANNELS)),
        np.zeros(CHANNELS),
        weights(32 * CHANNELS, (16 * CHANNELS, 10)),
        np.zeros(10),
    )


def padded(values: Floats, before: int) -> Floats:
    return np.pad(values, ((0, 0), (before, 1), (before, 1), (0, 0)))


def taps(values: Floats, stride: int) -> list[Floats]:
    """The nine 8x8 views of padded values that a 3x3 kernel multiplies, row by row."""
    return [values[:, r : r + 8 * stride : stride, c : c + 8 * stride : stride] for r in range(3) for c in range(3)]


def forward(p: Parameters, images: Floats) -> Activations:
    """The network on images [N, 16, 16, 1] in 0..1. SAME padding: 0 before and 1 after at stride 2, 1 and 1 at 1."""
    n = images.shape[0]
    patches = np.concatenate(taps(np.pad(images, ((0, 0), (0, 1), (0, 1), (0, 0))), 2), axis=3)
    stem = np.maximum(product(patches.reshape(-1, 9), p.stem) + p.stem_bias, 0.0).reshape(n, 8, 8, CHANNELS)
    depthwise = np.zeros_like(stem) + p.depthwise_bias
    for tap, weight in zip(taps(padded(stem, 1), 1), p.depthwise, strict=True):
        depthwise = depthwise + tap * weight
    depthwise = np.clip(depthwise, 0.0, 6.0)
    pointwise = product(depthwise.reshape(-1, CHANNELS), p.pointwise).reshape(stem.shape) + p.pointwise_bias
    residual = np.maximum(stem + pointwise, 0.0)
    quarters = residual.reshape(n, 4, 2, 4, 2, CHANNELS)
    pooled = (quarters[:, :, 0, :, 0] + quarters[:, :, 0, :, 1] + quarters[:, :, 1, :, 0] + quarters[:, :, 1, :, 1]) / 4
    pooled = pooled.reshape(n, -1)
    return Activations(patches, stem, depthwise, pointwise, residual, pooled, product(pooled, p.dense) + p.dense_bias)


def gradients(p: Parameters, images: Floats, labels: NDArray[np.int64]) -> Parameters:
    """Gradients of the mean cross entropy of softmax(logits)."""
    n = images.shape[0]
    a = forward(p, images)
    odds = exponential(a.logits - a.logits.max(axis=1, keepdims=True))
    d_logits = odds / column_sum(odds.T)[:, None]
    d_logits[np.arange(n), labels] -= 1.0
    d_logits = d_logits / n

    d_pooled = product(d_logits, p.dense.T).reshape(n, 4, 1, 4, 1, CHANNELS) / 4
    d_residual = np.broadcast_to(d_pooled, (n, 4, 2, 4, 2, CHANNELS)).reshape(a.residual.shape) * (a.residual > 0)
    flat_residual = d_residual.reshape(-1, CHANNELS)
    d_depthwise = product(flat_residual, p.pointwise.T).reshape(a.stem.shape)
    d_depthwise = d_depthwise * ((a.depthwise > 0) & (a.depthwise < 6))
    d_stem = padded(np.zeros_like(a.stem), 1)
    stem_taps = taps(padded(a.stem, 1), 1)
    d_depthwise_weights = np.stack([column_sum(tap * d_depthwise) for tap in stem_taps])
    for view, weight in zip(taps(d_stem, 1), p.depthwise, strict=True):
        view += d_depthwise * weight
    d_stem = (d_stem[:, 1:-1, 1:-1] + d_residual) * (a.stem > 0)
    flat_stem = d_stem.reshape(-1, CHANNELS)
    return Parameters(
        product(a.patches.reshape(-1, 9).T, flat_stem),
        column_sum(flat_stem),
        d_depthwise_weights,
        column_sum(d_depthwise),
        product(a.depthwise.reshape(-1, CHANNELS).T, flat_residual),
        column_sum(flat_residual),
        product(a.pooled.T, d_logits),
        column_sum(d_logits),
    )


def trained(images: Floats, labels: NDArray[np.int64], uniform: Uniform) -> Parameters:
    p = initial(uniform)
    names = [field.name for field in fields(p)]
    speed = {name: np.zeros_like(getattr(p, name)) for name in names}
    for epoch in range(EPOCHS):
        rate = RATE * (1 - epoch / EPOCHS)
        order = uniform.order(len(labels))
        for start in range(0, len(order), BATCH):
            chosen = order[start : start + BATCH]
            gradient = gradients(p, images[chosen], labels[chosen])
            for name in names:
                speed[name] = MOMENTUM * speed[name] - rate * getattr(gradient, name)
                setattr(p, name, getattr(p, name) + speed[name])
    return p


@dataclass(frozen=True, slots=True)
class Range:
    """An asymmetric int8 quantization: real = scale * (q - zero_point), scale as the float32 that the file holds."""

    scale: float
    zero_point: int


def activation_range(values: Floats) -> Range:
    """int8 range over all values seen, widened to hold 0 exactly."""
    low, high = min(float(values.min()), 0.0), max(float(values.max()), 0.0)
    scale = float(np.float32((high - low) / 255))
    return Range(scale, int(np.rint(-128 - low / scale)))


def quantized_layer(
    name: str, weights: Floats, bias: Floats, input_scale: float, shape: tuple[int, ...], axis: int | None
) -> tuple[TensorSpec, TensorSpec]:
    """int8 weights and int32 bias of a layer.

    weights: [..., output channels]; shape: of the stored tensor, whose `axis` is the output channel of a per-channel
    quantization (None: per tensor).
    """
    flat = weights.reshape(-1, weights.shape[-1])
    peaks = np.abs(flat).max(axis=0)
    peaks = peaks if axis is not None else np.full_like(peaks, peaks.max())
    scales = (peaks / 127).astype(np.float32).astype(np.float64)
    q = np.clip(np.rint(flat / scales), -127, 127).astype(np.int8)
    # The stored tensor has the output channel last in a depthwise kernel, first everywhere else.
    stored = q if axis == len(shape) - 1 else q.T
    bias_scales = input_scale * scales
    q_bias = np.rint(bias / bias_scales).astype("<i4")
    kept = slice(None) if axis is not None else slice(0, 1)
    weight_scales = tuple(float(scale) for scale in scales[kept])
    return (
        TensorSpec(f"{name}/weights", "int8", shape, stored.tobytes(), weight_scales, quantized_dimension=axis or 0),
        TensorSpec(f"{name}/bias", "int32", bias.shape, q_bias.tobytes(), tuple(float(s) for s in bias_scales[kept])),
    )


def quantized(p: Parameters, images: Floats) -> bytes:
    """The .tflite file of the network, with activation ranges from `images`."""
    a = forward(p, images)
    pixel = Range(float(np.float32(1 / 255)), -128)
    stem, depthwise, pointwise = (activation_range(v) for v in (a.stem, a.depthwise, a.pointwise))
    # Average pooling and reshape keep their input's quantization.
    residual, logits = activation_range(a.residual), activation_range(a.logits)
    probability = Range(1 / 256, -128)

    tensors: list[TensorSpec] = []
    operators: list[OperatorSpec] = []

    def add(*specs: TensorSpec) -> tuple[int, ...]:
        tensors.extend(specs)
        return tuple(range(len(tensors) - len(specs), len(tensors)))

    def value(name: str, shape: tuple[int, ...], quantization: Range) -> int:
        spec = TensorSpec(name, "int8", shape, None, (quantization.scale,), (quantization.zero_point,))
        return add(spec)[0]

    grid = (1, 8, 8, CHANNELS)
    x = value("image", (1, SIZE, SIZE, 1), pixel)
    step: dict[str, OptionValue] = {"padding": "SAME", "stride_w": 1, "stride_h": 1}
    constants = add(*quantized_layer("stem", p.stem, p.stem_bias, pixel.scale, (CHANNELS, 3, 3, 1), 0))
    stem_out = value("stem/relu", grid, stem)
    options: dict[str, OptionValue] = {
        "padding": "SAME",
        "stride_w": 2,
        "stride_h": 2,
        "fused_activation_function": "RELU",
    }
    operators.append(OperatorSpec("CONV_2D", (x, *constants), (stem_out,), options, version=3))

    constants = add(*quantized_layer("depthwise", p.depthwise, p.depthwise_bias, stem.scale, (1, 3, 3, CHANNELS), 3))
    depthwise_out = value("depthwise/relu6", grid, depthwise)
    operators.append(
        OperatorSpec(
            "DEPTHWISE_CONV_2D",
            (stem_out, *constants),
            (depthwise_out,),
            {**step, "depth_multiplier": 1, "fused_activation_function": "RELU6"},
            version=3,
        )
    )

    constants = add(
        *quantized_layer("pointwise", p.pointwise, p.pointwise_bias, depthwise.scale, (CHANNELS, 1, 1, CHANNELS), 0)
    )
    pointwise_out = value("pointwise", grid, pointwise)
    operators.append(OperatorSpec("CONV_2D", (depthwise_out, *constants), (pointwise_out,), step, version=3))

    residual_out = value("residual/relu", grid, residual)
    options = {"fused_activation_function": "RELU"}
    operators.append(OperatorSpec("ADD", (stem_out, pointwise_out), (residual_out,), options, version=2))

    pooled = value("pool", (1, 4, 4, CHANNELS), residual)
    options = {"padding": "VALID", "stride_w": 2, "stride_h": 2, "filter_width": 2, "filter_height": 2}
    operators.append(OperatorSpec("AVERAGE_POOL_2D", (residual_out,), (pooled,), options, version=2))

    flat_shape = np.array([1, 16 * CHANNELS], "<i4")
    (shape,) = add(TensorSpec("flatten/shape", "int32", (2,), flat_shape.tobytes()))
    flat = value("flatten", (1, 16 * CHANNELS), residual)
    operators.append(OperatorSpec("RESHAPE", (pooled, shape), (flat,), {"new_shape": (1, 16 * CHANNELS)}))

    constants = add(*quantized_layer("dense", p.dense, p.dense_bias, residual.scale, (10, 16 * CHANNELS), None))
    dense_out = value("dense", (1, 10), logits)
    operators.append(OperatorSpec("FULLY_CONNECTED", (flat, *constants), (dense_out,), version=4))
    y = value("probability", (1, 10), probability)
    operators.append(OperatorSpec("SOFTMAX", (dense_out,), (y,), {"beta": 1.0}, version=2))
    return write_tflite(ModelSpec(tuple(tensors), tuple(operators), (x,), (y,), "emitc example: drawn digits"))


def real(pixels: NDArray[np.uint8]) -> Floats:
    return pixels.astype(np.float64) / 255


def build() -> tuple[bytes, Parameters]:
    """The model file and the float parameters it was made of."""
    pixels, labels = digits(TRAIN_IMAGES, Uniform(SEED))
    p = trained(real(pixels), labels, Uniform(SEED + 1))
    return quantized(p, real(pixels[:CALIBRATION_IMAGES])), p


def test_set() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Digits that training did not see."""
    return digits(TEST_IMAGES, Uniform(SEED + 2))


def model_input(pixels: NDArray[np.uint8]) -> NDArray[np.int8]:
    """Pixels as the model takes them: int8 with zero point -128."""
    return (pixels.astype(np.int16) - 128).astype(np.int8)


def main() -> None:
    parser = argparse.ArgumentParser(description="Trains and quantizes digits_int8.tflite.")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent, help="directory of the three files")
    directory: Path = parser.parse_args().output
    directory.mkdir(parents=True, exist_ok=True)
    model, p = build()
    pixels, labels = test_set()
    engine = TflmEngine(model)
    inputs = [model_input(image[None]) for image in pixels]
    outputs = [engine.run([image])[0] for image in inputs]
    float_accuracy = float(np.mean(forward(p, real(pixels)).logits.argmax(axis=1) == labels))
    int8_accuracy = float(np.mean(np.array([output[0].argmax() for output in outputs]) == labels))
    print(f"accuracy on {TEST_IMAGES} unseen digits: float {float_accuracy:.1%}, int8 {int8_accuracy:.1%}")

    (directory / "digits_int8.tflite").write_bytes(model)
    vectors = {f"in0_{k}": inputs[k] for k in range(VECTORS)} | {f"out0_{k}": outputs[k] for k in range(VECTORS)}
    np.savez_compressed(directory / "digits_int8.npz", allow_pickle=False, **vectors)
    np.savez_compressed(directory / "digits_test.npz", allow_pickle=False, X=pixels[:LABELLED], y=labels[:LABELLED])
    print(f"digits_int8.tflite: {len(model)} bytes")


if __name__ == "__main__":
    main()

"""Legacy uint8 models: reference, LiteRT's uint8 kernels and C, which works on int8, agree on every bit."""

from __future__ import annotations

import zlib
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from emitc.errors import CannotCompile
from emitc.frontends.build import build_graph
from emitc.frontends.tflite.reader import read_tflite
from emitc.ir import Numerics
from emitc.kernels import tflite_registry
from emitc.kernels.quantization.quantize import ShiftSign
from emitc.numerics.requantize import double_shows, multiplier_of, requantize
from emitc.writers.tflite import ModelSpec, OperatorSpec, write_tflite
from tests.support.single_op import (
    Array,
    Case,
    OptionValue,
    TensorSpec,
    graph_of,
    integers,
    plain,
    prove,
    quantized,
    refusal,
)

pytest.importorskip("ai_edge_litert", reason="the extra emitc[verify] is not installed")

X_SCALE, W_SCALE = 0.0235, 0.0161


def drawn_weights(name: str, shape: tuple[int, ...]) -> Array:
    """Values over the whole range of uint8, its ends among them."""
    values = np.random.default_rng(zlib.crc32(name.encode())).integers(0, 255, shape, endpoint=True).astype(np.uint8)
    values.reshape(-1)[:2] = (0, 255)
    return values


def bias_of(name: str, channels: int, x_scale: float = X_SCALE) -> TensorSpec:
    """int32 with the scale that TFLite asks for."""
    values = np.random.default_rng(zlib.crc32(name.encode())).integers(-9000, 9000, channels)
    scale = float(np.float32(x_scale) * np.float32(W_SCALE))
    return quantized((channels,), scale, 0, "int32", values)


def weighted(
    name: str,
    opcode: str,
    x: tuple[int, ...],
    w: tuple[int, ...],
    y: tuple[int, ...],
    zeros: tuple[int, int, int] = (128, 120, 0),
    factor: float = 0.01,
    *,
    bias: bool = True,
    **options: OptionValue,
) -> Case:
    """A layer with weights. zeros: zero points of input, weights and output. factor: x_scale * w_scale / y_scale, about."""
    channels = w[3] if opcode == "DEPTHWISE_CONV_2D" else w[0]
    inputs = [
        quantized(x, X_SCALE, zeros[0], "uint8"),
        quantized(w, W_SCALE, zeros[1], "uint8", drawn_weights(name, w)),
        *([bias_of(name, channels)] if bias else []),
    ]
    scale = float(np.float32(X_SCALE * W_SCALE / factor))
    return Case(name, opcode, tuple(inputs), (quantized(y, scale, zeros[2], "uint8"),), options)


def slide(
    stride: int = 1, padding: str = "SAME", activation: str = "NONE", dilation: int = 1
) -> dict[str, OptionValue]:
    """Options of a convolution."""
    return {
        "stride_h": stride,
        "stride_w": stride,
        "padding": padding,
        "fused_activation_function": activation,
        "dilation_h_factor": dilation,
        "dilation_w_factor": dilation,
    }


ENDS = ((0, 0, 0), (255, 255, 255), (0, 255, 128), (255, 0, 0), (128, 128, 255), (128, 128, 128))
CONVOLUTIONS: list[Case] = [
    *(
        weighted(
            f"conv_{'_'.join(map(str, z))}_{p}",
            "CONV_2D",
            (1, 6, 5, 3),
            (5, 3, 3, 3),
            (1, 6, 5, 5) if p == "SAME" else (1, 4, 3, 5),
            z,
            0.002,
            **slide(1, p),
        )
        for z in ENDS
        for p in ("SAME", "VALID")
    ),
    weighted("conv_1x1", "CONV_2D", (1, 4, 5, 7), (6, 1, 1, 7), (1, 4, 5, 6), (3, 77, 9), 0.004, **slide()),
    weighted("conv_stride_2", "CONV_2D", (1, 7, 6, 3), (4, 3, 3, 3), (1, 4, 3, 4), (3, 157, 0), 0.003, **slide(2)),
    weighted(
        "conv_dilated", "CONV_2D", (1, 7, 6, 2), (4, 3, 3, 2), (1, 7, 6, 4), (3, 157, 0), 0.003, **slide(dilation=2)
    ),
    *(
        weighted(
            f"conv_{a}", "CONV_2D", (1, 4, 4, 3), (3, 2, 2, 3), (1, 4, 4, 3), (128, 99, 40), 0.02, **slide(1, "SAME", a)
        )
        for a in ("RELU", "RELU6", "RELU_N1_TO_1")
    ),
    weighted("conv_factor_over_1", "CONV_2D", (1, 4, 4, 1), (3, 1, 1, 1), (1, 4, 4, 3), (128, 99, 40), 1.7, **slide()),
]
DEPTHWISE: list[Case] = [
    *(
        weighted(
            f"depthwise_{'_'.join(map(str, z))}",
            "DEPTHWISE_CONV_2D",
            (1, 6, 5, 6),
            (1, 3, 3, 6),
            (1, 6, 5, 6),
            z,
            0.008,
            depth_multiplier=1,
            **slide(),
        )
        for z in ENDS
    ),
    weighted(
        "depthwise_multiplier",
        "DEPTHWISE_CONV_2D",
        (1, 6, 5, 3),
        (1, 3, 3, 6),
        (1, 3, 3, 6),
        (4, 200, 0),
        0.008,
        depth_multiplier=2,
        **slide(2),
    ),
    weighted(
        "depthwise_one_channel",
        "DEPTHWISE_CONV_2D",
        (1, 6, 5, 1),
        (1, 3, 3, 5),
        (1, 6, 5, 5),
        (4, 200, 0),
        0.008,
        depth_multiplier=5,
        **slide(),
    ),
    weighted(
        "depthwise_symmetric",
        "DEPTHWISE_CONV_2D",
        (1, 6, 5, 1),
        (1, 3, 3, 5),
        (1, 6, 5, 5),
        (4, 128, 0),
        0.008,
        depth_multiplier=5,
        **slide(),
    ),
]


def between_multipliers(opcode: str) -> Case:
    """A layer whose accumulators are its biases, where multipliers of the double and of the float32 product part."""
    x, w = np.float32(0.0061), np.float32(0.0047)
    y = np.float32(float(x) * float(w) / 7e-8)
    exact, rounded = (multiplier_of(product / float(y)) for product in (float(x) * float(w), float(x * w)))
    near = ((np.arange(-120, 120) + 0.5) / 7e-8)[:, np.newaxis] + np.arange(-60, 60)
    acc = near.reshape(-1).astype(np.int64)
    acc = acc[np.abs(acc) < 2**31 - 1000]
    acc = acc[requantize(acc, exact.q31, exact.shift) != requantize(acc, rounded.q31, rounded.shift)][:300]
    assert len(acc) > 100
    channels = len(acc)
    shape = (channels, 1, 1, 1) if opcode == "CONV_2D" else (1, 1, 1, channels)
    inputs = (
        quantized((1, 1, 1, 1), float(x), 128, "uint8"),
        quantized(shape, float(w), 100, "uint8", np.full(shape, 101)),
        quantized((channels,), float(x * w), 0, "int32", acc),
    )
    options = slide() | ({} if opcode == "CONV_2D" else {"depth_multiplier": channels})
    output = quantized((1, 1, 1, channels), float(y), 128, "uint8")
    return Case(
        f"{opcode.lower()}_between",
        opcode,
        inputs,
        (output,),
        options,
        draw=lambda rng, sample: [np.full((1, 1, 1, 1), 128, np.uint8)],
    )


BETWEEN = [between_multipliers(opcode) for opcode in ("CONV_2D", "DEPTHWISE_CONV_2D")]


def pool(
    name: str,
    opcode: str,
    x: tuple[int, ...],
    y: tuple[int, ...],
    size: int,
    options: dict[str, OptionValue],
    zero: int = 0,
) -> Case:
    """A pool with a square window."""
    options = {k: v for k, v in options.items() if not k.startswith("dilation")} | {
        "filter_height": size,
        "filter_width": size,
    }
    return Case(name, opcode, (quantized(x, 0.05, zero, "uint8"),), (quantized(y, 0.05, zero, "uint8"),), options)


def binary(opcode: str, name: str, zeros: tuple[int, int, int], constant: Array | None = None) -> Case:
    """ADD, SUB or MUL."""
    a = quantized((1, 3, 4, 5), 0.05, zeros[0], "uint8")
    b = quantized((1, 3, 4, 5) if constant is None else constant.shape, 0.031, zeros[1], "uint8", constant)
    y = quantized((1, 3, 4, 5), 0.07, zeros[2], "uint8")
    return Case(f"{opcode.lower()}_{name}", opcode, (a, b), (y,), {"fused_activation_function": "NONE"})


OTHERS: list[Case] = [
    # Every sum of two or four values is among the results: half of them are ties.
    pool("average_ties", "AVERAGE_POOL_2D", (1, 30, 30, 2), (1, 15, 15, 2), 2, slide(2)),
    pool("average_of_two", "AVERAGE_POOL_2D", (1, 1, 64, 1), (1, 1, 64, 1), 2, slide(1), 128),
    pool("average_relu6", "AVERAGE_POOL_2D", (1, 8, 8, 3), (1, 6, 6, 3), 3, slide(1, "VALID", "RELU6"), 20),
    pool("average_edges", "AVERAGE_POOL_2D", (1, 7, 7, 3), (1, 7, 7, 3), 4, slide(1), 255),
    pool("max", "MAX_POOL_2D", (1, 7, 7, 3), (1, 4, 4, 3), 3, slide(2), 9),
    pool("max_relu", "MAX_POOL_2D", (1, 7, 7, 3), (1, 4, 4, 3), 3, slide(2, "SAME", "RELU"), 99),
    *(
        Case(
            f"softmax_{s}_{b}",
            "SOFTMAX",
            (quantized((3, 40), s, 77, "uint8"),),
            (quantized((3, 40), 2.0**-8, 0, "uint8"),),
            {"beta": b},
        )
        for s, b in ((0.1, 1.0), (0.02, 1.0), (1.5, 1.0), (0.1, 0.3))
    ),
    *(
        binary(op, f"zeros_{'_'.join(map(str, z))}", z)
        for op in ("ADD", "SUB", "MUL")
        for z in ((0, 255, 128), (128, 128, 0), (255, 0, 255))
    ),
    *(binary(op, "constant", (3, 200, 100), drawn_weights(op, (5,))) for op in ("ADD", "SUB", "MUL")),
]


def every_byte(rng: np.random.Generator, sample: int) -> list[Array]:
    """All values of uint8."""
    return [np.arange(256, dtype=np.uint8).reshape(1, 256)]


def function(opcode: str, x: tuple[float, int], y: tuple[float, int], number: int = 0, **options: OptionValue) -> Case:
    """An operator of one value. x, y: scale and zero point."""
    inputs, outputs = (quantized((1, 256), *x, "uint8"),), (quantized((1, 256), *y, "uint8"),)
    return Case(f"{opcode.lower()}_{number}", opcode, inputs, outputs, options, draw=every_byte)


BETWEEN_SCALES = (
    ((0.05, 128), (0.05, 128)),
    ((0.031, 3), (0.0171, 40)),
    ((0.0083, 255), (0.093, 0)),
    ((0.4, 0), (0.021, 7)),
)
FUNCTIONS: list[Case] = [
    *(function("LOGISTIC", x, (1 / 256, 0), i) for i, (x, _) in enumerate(BETWEEN_SCALES)),
    # One step from the zero point, the exact function is 128.4999975 / 256, and one rounding to float32 makes it a tie.
    function("LOGISTIC", (1 / 128, 128), (1 / 256, 0), len(BETWEEN_SCALES)),
    *(function("TANH", x, (1 / 128, 128), i) for i, (x, _) in enumerate(BETWEEN_SCALES)),
    *(
        function(op, x, y, i)
        for op in ("RELU", "RELU6", "RELU_N1_TO_1", "QUANTIZE", "HARD_SWISH")
        for i, (x, y) in enumerate(BETWEEN_SCALES)
    ),
    *(function("LEAKY_RELU", x, y, i, alpha=(0.1, -0.3, 1.7, 0.0)[i]) for i, (x, y) in enumerate(BETWEEN_SCALES)),
]


def resized(name: str, opcode: str, rows: int, columns: int, to: tuple[int, int], *, corners: bool, half: bool) -> Case:
    """An image of three channels with other numbers of rows and columns."""
    x, y = (quantized((2, *size, 3), 0.05, 90, "uint8") for size in ((rows, columns), to))
    options = {"align_corners": corners, "half_pixel_centers": half}
    return Case(name, opcode, (x, integers(*to)), (y,), options)


def moved(opcode: str, y: tuple[int, ...], numbers: Array | None = None, **options: OptionValue) -> Case:
    """An operator that moves the values of [1, 4, 4, 4]."""
    more = () if numbers is None else (TensorSpec("", "int32", numbers.shape, numbers.astype("<i4").tobytes()),)
    x, out = (quantized(shape, 0.05, 77, "uint8") for shape in ((1, 4, 4, 4), y))
    return Case(opcode.lower(), opcode, (x, *more), (out,), options)


def joined(name: str, *scales: tuple[float, int]) -> Case:
    """All values of uint8, once for each input's scale and zero point, one after the other; the first are the output's."""
    inputs = tuple(quantized((1, 256), *each, "uint8") for each in scales[1:])
    y = quantized((1, 256 * len(inputs)), *scales[0], "uint8")

    def draw(rng: np.random.Generator, sample: int) -> list[Array]:
        return every_byte(rng, sample) * len(inputs)

    return Case(name, "CONCATENATION", inputs, (y,), {"axis": 1}, draw=draw)


def reduced(
    opcode: str, shape: tuple[int, ...], axes: tuple[int, ...], x: tuple[float, int], y: tuple[float, int]
) -> Case:
    """A reduction without the reduced dimensions."""
    kept = tuple(size for axis, size in enumerate(shape) if axis not in axes)
    inputs = (quantized(shape, *x, "uint8"), integers(*axes))
    name = f"{opcode.lower()}_{len(shape)}_{'_'.join(map(str, axes))}_{x[1]}"
    return Case(name, opcode, inputs, (quantized(kept, *y, "uint8"),), {"keep_dims": False})


JOINED = [
    joined("other_zero_point", (0.05, 128), (0.05, 127), (0.05, 128)),
    joined("other_scales", (0.05, 3), (0.1, 3), (0.025, 250), (0.0499, 0), (0.0501, 255)),
    joined("far_scales", (1.7, 77), (0.003, 128), (1.7, 77)),
    joined("one_scale", (0.05, 77), (0.05, 77), (0.05, 77)),
]
REDUCED = [
    *(
        reduced(op, shape, axes, x, y)
        for op in ("MEAN", "SUM")
        for shape, axes in (((1, 6, 5, 3), (1, 2)), ((2, 9), (1,)), ((3, 4, 5), (0, 2)))
        for x, y in BETWEEN_SCALES[:3]
    ),
    *(
        Case(op.lower(), op, (quantized((2, 9), 0.05, 9, "uint8"),) * 2, (quantized((2, 9), 0.05, 9, "uint8"),))
        for op in ("MAXIMUM", "MINIMUM")
    ),
    *(
        Case(
            f"prelu_{slope[1]}",
            "PRELU",
            (
                quantized((1, 4, 4, 5), *x, "uint8"),
                quantized((1, 1, 5), *slope, "uint8", drawn_weights("slope", (1, 1, 5))),
            ),
            (quantized((1, 4, 4, 5), *y, "uint8"),),
        )
        for (x, y), slope in zip(BETWEEN_SCALES, ((0.02, 100), (0.011, 0), (0.004, 255), (0.01, 128)), strict=True)
    ),
]


IMAGES: list[Case] = [
    *(
        resized(f"resize_{to[0]}x{to[1]}_{corners:d}{half:d}", "RESIZE_BILINEAR", 5, 4, to, corners=corners, half=half)
        for to in ((10, 8), (7, 9), (3, 2), (1, 1), (5, 4), (13, 4))
        for corners, half in ((False, False), (True, False), (False, True))
    ),
    resized("nearest", "RESIZE_NEAREST_NEIGHBOR", 5, 4, (8, 9), corners=False, half=False),
    moved("PAD", (1, 6, 7, 4), np.array([[0, 0], [1, 1], [2, 1], [0, 0]])),
    moved("MIRROR_PAD", (1, 6, 7, 4), np.array([[0, 0], [1, 1], [2, 1], [0, 0]]), mode="REFLECT"),
    moved("SPACE_TO_DEPTH", (1, 2, 2, 16), block_size=2),
    moved("DEPTH_TO_SPACE", (1, 8, 8, 1), block_size=2),
    moved("REVERSE_V2", (1, 4, 4, 4), np.array([2])),
    moved("GATHER", (1, 2, 4, 4), np.array([3, 1]), axis=1),
    *(
        Case(
            f"{op.lower()}_{axis}", op, (quantized((2, 5, 7), 0.05, 3, "uint8"), integers(axis)),
            (plain(tuple(n for i, n in enumerate((2, 5, 7)) if i != axis), "int32"),), {"output_type": "INT32"},
        )
        for op in ("ARG_MAX", "ARG_MIN")
        for axis in (1, 2)
    ),
]  # fmt: skip


@pytest.mark.sweep(keep=4)
@pytest.mark.parametrize(
    "table",
    [CONVOLUTIONS, DEPTHWISE, BETWEEN, OTHERS, FUNCTIONS, IMAGES, JOINED, REDUCED],
    ids=["conv", "depthwise", "between", "others", "functions", "images", "joined", "reduced"],
)
def test_reference_litert_and_c_agree(table: list[Case]) -> None:
    proven = prove(table, engine="litert", samples=6)
    for outcome in proven.outcomes.values():
        outcome.check()
    assert proven.memory_errors == ()


def test_random_layers() -> None:
    rng = np.random.default_rng(11)
    cases = []
    for i in range(24):
        zeros = tuple(int(v) for v in rng.integers(0, 255, 3, endpoint=True))
        height, width, depth, out = (int(v) for v in rng.integers(1, 7, 4))
        factor = float(rng.uniform(0.0005, 0.02))
        opcode = ("CONV_2D", "DEPTHWISE_CONV_2D")[i % 2]
        name, more = f"random_{i}", slide(1, "SAME", str(rng.choice(["NONE", "RELU6"])), int(rng.integers(1, 3)))
        if opcode == "CONV_2D":
            cases.append(
                weighted(
                    name,
                    opcode,
                    (1, height, width, depth),
                    (out, 2, 3, depth),
                    (1, height, width, out),
                    zeros,
                    factor,
                    **more,
                )
            )
        else:
            more |= {"depth_multiplier": out}
            cases.append(
                weighted(
                    name,
                    opcode,
                    (1, height, width, depth),
                    (1, 2, 3, depth * out),
                    (1, height, width, depth * out),
                    zeros,
                    factor,
                    **more,
                )
            )
    for outcome in prove(cases, engine="litert", samples=4, sanitize=False).outcomes.values():
        outcome.check()


def chained(*operators: OperatorSpec, tensors: tuple[TensorSpec, ...], outputs: tuple[int, ...]) -> bytes:
    """A model whose input is tensor 0."""
    named = tuple(TensorSpec(f"t{i}", t.dtype, t.shape, t.data, t.scales, t.zero_points) for i, t in enumerate(tensors))
    return write_tflite(ModelSpec(named, operators, (0,), outputs))


def test_only_the_interface_is_turned() -> None:
    """Between operators that compute, move or convert from float there is no ShiftSign; the interface keeps names and types."""
    u8 = quantized((1, 4, 4, 2), 0.05, 100, "uint8")
    flat = quantized((1, 32), 0.05, 100, "uint8")
    pooling: dict[str, OptionValue] = {
        "filter_height": 2,
        "filter_width": 2,
        "stride_h": 1,
        "stride_w": 1,
        "padding": "SAME",
    }
    data = chained(
        OperatorSpec("AVERAGE_POOL_2D", (0,), (1,), pooling),
        OperatorSpec("RESHAPE", (1, 2), (3,)),
        OperatorSpec("DEQUANTIZE", (3,), (4,)),
        tensors=(u8, u8, integers(1, 32), flat, plain((1, 32))),
        outputs=(3, 4),
    )
    graph = build_graph(read_tflite(data), tflite_registry(), "chain")
    assert [node.op_type for node in graph.nodes] == ["REBIAS", "AVERAGE_POOL_2D", "RESHAPE", "DEQUANTIZE", "REBIAS"]
    assert graph.inputs == ("t0",) and graph.outputs == ("t3", "t4")
    assert [graph.tensor(name).dtype.value for name in ("t0", "t1", "t3", "t3_s8")] == [
        "uint8",
        "int8",
        "uint8",
        "int8",
    ]
    assert graph.nodes[1].op.numerics is Numerics.UNSIGNED


def test_a_model_that_computes_nothing_on_uint8_stays() -> None:
    u8 = quantized((1, 4), 0.05, 100, "uint8")
    graph = graph_of(
        Case(
            "cat",
            "CONCATENATION",
            (u8, quantized((1, 4), 0.05, 100, "uint8")),
            (quantized((1, 8), 0.05, 100, "uint8"),),
            {"axis": 1},
        )
    )
    assert not any(isinstance(node.op, ShiftSign) for node in graph.nodes)


def test_an_operator_that_needs_uint8_gets_it() -> None:
    """TILE is none of those that the new type spreads through."""
    u8, wide = quantized((1, 4), 0.05, 100, "uint8"), quantized((1, 8), 0.05, 100, "uint8")
    data = chained(
        OperatorSpec("ADD", (0, 0), (1,), {"fused_activation_function": "NONE"}),
        OperatorSpec("TILE", (1, 2), (3,)),
        OperatorSpec("CONCATENATION", (1, 1), (4,), {"axis": 1}),
        OperatorSpec("ADD", (3, 3), (5,), {"fused_activation_function": "NONE"}),
        tensors=(u8, u8, integers(1, 2), wide, wide, wide),
        outputs=(4, 5),
    )
    source = read_tflite(data)
    assert [node.op_type for node in source.nodes] == [
        "REBIAS",
        "ADD",
        "REBIAS",
        "TILE",
        "REBIAS",
        "CONCATENATION",
        "ADD",
        "REBIAS",
        "REBIAS",
    ]
    tile = source.nodes[3]
    assert [tensor.dtype for tensor in (tile.input(0), *tile.outputs)] == ["uint8", "uint8"]
    assert [source.tensors[i].name for i in source.outputs] == ["t4", "t5"]


def test_every_pair_of_values() -> None:
    """ADD, SUB and MUL of all pairs of uint8 values, with scales far apart too."""
    rng = np.random.default_rng(5)
    cases = []
    for i in range(12):
        opcode = ("ADD", "SUB", "MUL")[i % 3]
        scales = 2.0 ** rng.uniform(-7, -3, 3)
        zeros = rng.integers(0, 255, 3, endpoint=True).tolist()
        shapes = ((256, 1), (1, 256), (256, 256))
        a, b, y = (
            quantized(*spec, "uint8") for spec in zip(shapes, scales.astype(np.float32).tolist(), zeros, strict=True)
        )
        cases.append(Case(f"pairs_{i}", opcode, (a, b), (y,), {"fused_activation_function": "NONE"}))
    for outcome in prove(cases, engine="litert", samples=1, sanitize=False).outcomes.values():
        outcome.check()


def connected(name: str, factor: float = 0.004, activation: str = "NONE", **changes: Any) -> Case:
    """FULLY_CONNECTED of three rows of 9 values."""
    options = {"fused_activation_function": activation}
    return weighted(name, "FULLY_CONNECTED", (3, 9), (6, 9), (3, 6), factor=factor, **changes, **options)


def biased(name: str, scales: tuple[float, float, float], acc: Array) -> Case:
    """FULLY_CONNECTED whose sums are its biases: the weights are their zero point."""
    x, w, y = scales
    inputs = (
        quantized((1, 1), x, 7, "uint8"),
        quantized((len(acc), 1), w, 9, "uint8", np.full((len(acc), 1), 9)),
        quantized((len(acc),), float(np.float32(x * w)), 0, "int32", acc),
    )
    return Case(
        name,
        "FULLY_CONNECTED",
        inputs,
        (quantized((1, len(acc)), y, 128, "uint8"),),
        {"fused_activation_function": "NONE"},
    )


def beside_ties() -> list[Case]:
    """Sums next to every tie, with factors of which a Q31 multiplier, or the float32 product of the scales, shows there."""
    rng, cases = np.random.default_rng(11), []
    for i, step in enumerate((2.0**15, 2.0**21, 2.0**21, 2.0**22)):
        x, w, y = (float(v) for v in np.float32([rng.uniform(0.5, 1), rng.uniform(0.5, 1), rng.uniform(1, 2) * step]))
        ties = ((np.arange(-129, 129) + 0.5) / (x * w / y)).round()
        cases.append(biased(f"beside_{i}", (x, w, y), (ties[:, None] + np.arange(-4, 5)).reshape(-1).astype(np.int64)))
    return cases


CONNECTED: list[Case] = [
    *(connected(f"fc_{'_'.join(map(str, z))}", zeros=z) for z in ENDS),
    *(connected(f"fc_{a}", activation=a, zeros=(128, 99, 40)) for a in ("RELU", "RELU6", "RELU_N1_TO_1")),
    connected("fc_no_bias", bias=False), connected("fc_over_1", 1.7), connected("fc_small", 1e-7),
    biased("ties", (0.5, 0.5, 32.0), np.arange(-200, 201) * 64),
    biased("tiny", (2.0**-20, 2.0**-20, 2.0**10), np.array([-(2**31) + 1, -1, 0, 1, 2**31 - 1])),
    *beside_ties(),
]  # fmt: skip


def test_fully_connected_rounds_once() -> None:
    proven = prove(CONNECTED, engine="litert", samples=3)
    for outcome in proven.outcomes.values():
        outcome.check()
        assert outcome.step is None or outcome.step.kernel_name == "fully_connected_once"
    assert proven.memory_errors == ()


@pytest.mark.parametrize("target", ["cortex-m4", "cortex-m55", "cortex-m0"])
def test_fully_connected_has_one_kernel(target: str) -> None:
    outcomes = prove(CONNECTED[:1], engine="litert", samples=1, sanitize=False, target=target).outcomes
    assert [outcome.step.kernel_name for outcome in outcomes.values() if outcome.step] == ["fully_connected_once"]


def test_factors_that_leave_int32_are_refused() -> None:
    acc = np.array([2**31 - 1, -5])
    error = refusal(biased("large", (1.0, 1.0, 0.5), acc))
    assert "which leaves int32" in str(error) and error.exit_code == 1


def test_a_factor_whose_product_in_double_makes_a_tie_is_refused() -> None:
    factor = float(np.nextafter(0.5, 1)) / 3
    assert double_shows(factor, -128, 127) == any(
        float(a) * factor == t and Fraction(a) * Fraction(factor) != Fraction(t)
        for t in np.arange(-127.5, 127)
        for a in range(round(t / factor) - 2, round(t / factor) + 3)
    )
    assert double_shows(1 / 6, -2, 2) and not double_shows(0.25, -128, 127)


def test_int8_weights_with_a_zero_point_stay_illegal() -> None:
    """Of convolutions: TFLite Micro leaves the zero point out of account there."""
    case = weighted("int8", "CONV_2D", (1, 1, 3, 8), (3, 1, 1, 8), (1, 1, 3, 3), **slide())
    _, _, bias = (tensor for tensor in case.inputs if tensor)
    weights = quantized((3, 1, 1, 8), W_SCALE, 3, "int8", np.ones((3, 1, 1, 8), np.int8))
    signed = Case(
        "int8",
        "CONV_2D",
        (quantized((1, 1, 3, 8), X_SCALE, 0), weights, bias),
        (quantized((1, 1, 3, 3), 0.1, 0),),
        case.options,
    )
    error = refusal(signed)
    assert type(error) is not CannotCompile and "zero point" in str(error)


@pytest.mark.parametrize(("opcode", "fixed"), [("LOGISTIC", "(0.00390625, 0)"), ("TANH", "(0.0078125, 128)")])
def test_the_output_scale_of_a_sigmoid_is_fixed(opcode: str, fixed: str) -> None:
    """As LiteRT insists."""
    error = refusal(function(opcode, (0.05, 3), (0.004, 0)))
    assert error.exit_code == 2 and fixed in str(error)

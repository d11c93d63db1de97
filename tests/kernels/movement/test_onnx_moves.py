"""ONNX's operators that move values: reference, onnxruntime and compiled C agree on every bit, for every element type."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from onnx import helper

from emitc.ir import BoundNode, DType, Node, Tensor
from emitc.kernels import kernel_of, onnx_registry, registry
from tests.support.onnx_node import source, turned_alike
from tests.support.onnx_op import MICROSOFT, Array, Computed, OnnxCase, computed, graph_of, prove_onnx

TYPES = [dtype.value for dtype in DType if not dtype.packed]
_ENDS = (np.iinfo(np.int64).min, np.iinfo(np.int64).max)


def numbers(*values: int, dtype: str = "int64") -> Array:
    """A constant vector."""
    return np.array(values, dtype)


def case(
    name: str, op_type: str, x: Sequence[int] | Computed, *constants: Array | None, opset: int = 21, **attributes: Any
) -> OnnxCase:
    """An operator on one computed tensor (int16 unless it is given) and constants."""
    data = x if isinstance(x, Computed) else computed(tuple(x), "int16")
    given = {f"c{i}": constant for i, constant in enumerate(constants)}
    return OnnxCase(name, op_type, {"x": data, **given}, attributes, opset)


def every_type(name: str, op_type: str, shape: tuple[int, ...], *constants: Array, **attributes: Any) -> list[OnnxCase]:
    return [case(f"{name}_{dtype}", op_type, computed(shape, dtype), *constants, **attributes) for dtype in TYPES]


def parts(name: str, op_type: str, x: Sequence[int], count: int, *constants: Array, **keywords: Any) -> OnnxCase:
    """An operator of several outputs."""
    made = case(name, op_type, x, *constants, **keywords)
    outputs = tuple(f"y{i}" for i in range(count))
    return OnnxCase(name, op_type, made.inputs, made.attributes, made.opset, outputs=outputs)


VIEWS = [
    *every_type("flatten", "Flatten", (2, 3, 4)),
    *every_type("identity", "Identity", (3, 4)),
    *every_type("reshape", "Reshape", (2, 6), numbers(3, 4)),
    case("reshape_zero_copies", "Reshape", (2, 3, 4), numbers(0, -1)),
    case("reshape_zeros", "Reshape", (2, 3, 4), numbers(0, 0, 2, 2)),
    case("reshape_to_scalar", "Reshape", (1, 1), numbers()),
    case("reshape_allowzero", "Reshape", (2, 6), numbers(4, 3), allowzero=1),
    case("flatten_axis0", "Flatten", (2, 3), axis=0),
    case("flatten_axis_end", "Flatten", (2, 3), axis=2),
    case("flatten_negative", "Flatten", (2, 3, 4), axis=-1),
    case("flatten_opset9", "Flatten", (2, 3, 4), axis=2, opset=9),
    case("squeeze_all", "Squeeze", (1, 3, 1, 2)),
    case("squeeze_axes", "Squeeze", (1, 3, 1, 2), numbers(-2)),
    case("squeeze_attribute", "Squeeze", (1, 3, 1, 2), axes=[0, 2], opset=11),
    case("unsqueeze_axes", "Unsqueeze", (3, 2), numbers(0, -1, 2)),
    case("unsqueeze_attribute", "Unsqueeze", (3, 2), axes=[1, 3], opset=11),
    case("dropout", "Dropout", computed((3, 4))),
    case("dropout_ratio", "Dropout", computed((3, 4)), np.float32(0.3)),
    case("dropout_not_training", "Dropout", computed((3, 4)), np.float32(0.3), np.array(False)),
    case("dropout_of_nothing", "Dropout", computed((3, 4)), np.float32(0.0), np.array(True)),
    parts("dropout_mask", "Dropout", computed((3, 5)), 2),
    parts("dropout_mask_opset10", "Dropout", computed((3, 5)), 2, opset=10),
]

TRANSPOSES = [
    *every_type("nhwc", "Transpose", (2, 3, 4, 5), perm=[0, 2, 3, 1]),
    case("reversed", "Transpose", (2, 3, 4)),
    case("matrix", "Transpose", (5, 7), perm=[1, 0]),
    case("rank6", "Transpose", (2, 3, 2, 3, 2, 3), perm=[5, 3, 1, 4, 2, 0]),
    case("nothing", "Transpose", (3, 4), perm=[0, 1]),
    case("vector", "Transpose", (6,)),
]


def joined(name: str, *inputs: Any, axis: int = 1, opset: int = 21) -> OnnxCase:
    given = {
        f"x{i}": value if not isinstance(value, tuple) else computed(value, "int16") for i, value in enumerate(inputs)
    }
    return OnnxCase(name, "Concat", given, {"axis": axis}, opset)


CONCATENATIONS = [
    *[
        OnnxCase(f"concat_{t}", "Concat", {"a": computed((2, 3), t), "b": computed((2, 5), t)}, {"axis": 1})
        for t in TYPES
    ],
    joined("concat_three", (2, 3, 4), (2, 1, 4), (2, 2, 4)),
    joined("concat_rows", (2, 3), (4, 3), axis=0),
    joined("concat_last", (2, 2, 3), (2, 2, 1), axis=-1),
    joined("concat_one", (2, 3)),
    joined("concat_constant", (2, 3), np.arange(4, dtype=np.int16).reshape(2, 2), (2, 1)),
    joined("concat_constants_round", np.ones((2, 1), np.int16), (2, 3), np.full((2, 2), -7, np.int16)),
    joined("concat_empty_constant", (2, 3), np.zeros((2, 0), np.int16), (2, 1)),
]

SPLITS = [
    *[
        OnnxCase(f"split_{t}", "Split", {"x": computed((2, 6), t)}, {"axis": 1, "num_outputs": 2}, outputs=("y0", "y1"))
        for t in TYPES
    ],
    parts("split_equal", "Split", (6, 2), 3, opset=13),
    parts("split_sizes", "Split", (2, 7), 3, numbers(2, 4, 1), axis=-1),
    parts("split_attribute", "Split", (2, 7, 2), 2, axis=1, split=[5, 2], opset=11),
    parts("split_attribute_opset2", "Split", (7, 2), 2, split=[5, 2], opset=7),
    parts("split_uneven", "Split", (7, 2), 3, num_outputs=3),
    parts("split_one", "Split", (4, 2), 1, num_outputs=1),
]

SLICES = [
    *every_type("slice", "Slice", (4, 5), numbers(1, 1), numbers(3, 5)),
    case("slice_attributes", "Slice", (4, 5, 6), starts=[1, -3], ends=[3, 100], axes=[0, 2], opset=9),
    case("slice_attributes_no_axes", "Slice", (4, 5), starts=[1, 0], ends=[3, -1], opset=9),
    case("slice_axes", "Slice", (4, 5, 6), numbers(1), numbers(-1), numbers(-2)),
    case("slice_steps", "Slice", (9, 7), numbers(1, 0), numbers(8, 7), numbers(0, 1), numbers(3, 2)),
    case("slice_backwards", "Slice", (9,), numbers(7), numbers(1), numbers(0), numbers(-2)),
    case("slice_reversed", "Slice", (3, 5), numbers(-1), numbers(_ENDS[0]), numbers(1), numbers(-1)),
    case("slice_far_ends", "Slice", (3, 5), numbers(_ENDS[0]), numbers(_ENDS[1]), numbers(1)),
    case("slice_far_start_backwards", "Slice", (5,), numbers(_ENDS[1]), numbers(_ENDS[0]), numbers(0), numbers(-1)),
    case("slice_before_the_front_backwards", "Slice", (5,), numbers(-100), numbers(-100), numbers(0), numbers(-1)),
    case("slice_huge_step", "Slice", (5,), numbers(1), numbers(5), numbers(0), numbers(_ENDS[1])),
    case("slice_huge_step_backwards", "Slice", (5,), numbers(3), numbers(_ENDS[0]), numbers(0), numbers(-(2**62))),
    case("slice_by_int32", "Slice", (5, 4), *(numbers(v, dtype="int32") for v in (1, 4, 0, 2))),
    case("slice_image", "Slice", (1, 6, 6, 3), numbers(0, 1), numbers(6, 6), numbers(1, 2), numbers(2, 2)),
]

GATHERS = [
    *every_type("gather", "Gather", (4, 3), numbers(2, 0, 3)),
    case("gather_one", "Gather", (4, 5, 3), np.array(2), axis=1),
    case("gather_last_of_time", "Gather", (1, 7, 5), np.array(-1), axis=1),
    case("gather_negative", "Gather", (4, 5), numbers(-1, -4, 1), axis=-1),
    case("gather_grid", "Gather", (3, 4, 2), np.array([[0, 3, 1], [2, 2, 0]]), axis=1),
    case("gather_run", "Gather", (6, 4), numbers(1, 3, 5), axis=0),
    case("gather_backwards", "Gather", (6, 4), numbers(5, 4, 3), axis=0),
    case("gather_by_int32", "Gather", (6, 4), numbers(3, 0, dtype="int32"), axis=1),
    *[
        OnnxCase(
            f"gather_computed_{dtype}_{index}",
            "Gather",
            {"x": computed((2, 5, 3), dtype), "i": computed((2, 2), index, -5, 4)},
            {"axis": 1},
        )
        for dtype, index in (("int8", "int32"), ("float32", "int64"), ("int64", "int32"))
    ],
    OnnxCase(
        "gather_embedding",
        "Gather",
        {"x": np.arange(40, dtype=np.float32).reshape(8, 5), "i": computed((6,), "int64", 0, 7)},
    ),
]

REPEATS = [
    *every_type("tile", "Tile", (2, 3), numbers(2, 2)),
    *every_type("expand", "Expand", (3, 1), numbers(2, 1, 4)),
    case("tile_rank4", "Tile", (2, 3, 2, 3), numbers(2, 3, 2, 2)),
    case("tile_columns", "Tile", (2, 3, 4), numbers(1, 1, 3)),
    case("tile_nothing", "Tile", (2, 3), numbers(1, 1)),
    case("expand_both_ways", "Expand", (3, 1, 4), numbers(2, 1, 5, 1)),
    case("expand_nothing", "Expand", (3, 4), numbers(1)),
    case("expand_vector", "Expand", (4,), numbers(3, 4)),
    case("expand_alternating", "Expand", (1, 2, 1, 2, 1, 2, 1, 2), numbers(2, 1, 2, 1, 2, 1, 2, 1)),
]

BLOCKS = [
    *[
        case(f"depth_to_space_{mode}_{b}", "DepthToSpace", computed((1, 2 * b * b, 2, 3)), blocksize=b, mode=mode)
        for mode in ("DCR", "CRD")
        for b in (1, 2, 3)
    ],
    case("depth_to_space_default", "DepthToSpace", computed((2, 12, 2, 3)), blocksize=2, opset=9),
    *[case(f"space_to_depth_{b}", "SpaceToDepth", computed((1, 2, 2 * b, 3 * b)), blocksize=b) for b in (1, 2, 3)],
]

PADS = [
    *[
        case(f"pad_{t}", "Pad", computed((2, 3), t), numbers(0, 1, 1, 2), np.array(1, t))
        for t in ("int8", "uint8", "int32", "int64", "float32", "bool")
    ],
    case("pad_attribute", "Pad", computed((2, 3)), pads=[1, 0, 0, 2], value=1.5, opset=10),
    case("pad_default_value", "Pad", computed((2, 3)), numbers(1, 1, 1, 1)),
    case("pad_infinity", "Pad", computed((2, 3)), numbers(1, 1, 1, 1), np.float32(-np.inf)),
    case("pad_axes", "Pad", computed((2, 3, 4)), numbers(1, 0, 2, 1), np.float32(2.5), numbers(-1, 0)),
    case("pad_nothing", "Pad", computed((2, 3)), numbers(0, 0, 0, 0)),
    case("pad_crop", "Pad", computed((4, 6)), numbers(-1, -2, -1, -1)),
    case("pad_crop_and_pad", "Pad", computed((4, 6)), numbers(-1, 2, 1, -1), np.float32(9)),
    *[
        case(f"pad_{mode}", "Pad", computed((2, 4, 5)), numbers(0, 2, 3, 0, 1, 4), None, opset=19, mode=mode)
        for mode in ("reflect", "edge", "wrap")
    ],
    case(
        "pad_reflect_attribute", "Pad", computed((1, 2, 4, 5)), pads=[0, 0, 2, 3, 0, 0, 1, 2], mode="reflect", opset=10
    ),
    case("pad_edge_int8", "Pad", computed((2, 3), "int8"), numbers(3, 0, 0, 3), None, mode="edge"),
    case("pad_edge_cropped", "Pad", computed((4, 5)), numbers(-1, 2, 2, -2), None, mode="edge"),
    OnnxCase(
        "pad_computed_value", "Pad", {"x": computed((2, 3)), "p": numbers(1, 0, 0, 2), "v": computed((), "float32")}
    ),
]


@pytest.mark.sweep(keep=5)
@pytest.mark.parametrize(
    "table",
    [VIEWS, TRANSPOSES, CONCATENATIONS, SPLITS, SLICES, GATHERS, REPEATS, BLOCKS, PADS],
    ids=["views", "transposes", "concatenations", "splits", "slices", "gathers", "repeats", "blocks", "pads"],
)
def test_moves(table: list[OnnxCase]) -> None:
    prove_onnx(table, samples=3).check()


def qlinear(name: str, dtype: str, y: tuple[float, int], *inputs: tuple[float, int], axis: int = 1) -> OnnxCase:
    """QLinearConcat of (scale, zero point) pairs, every byte in each input."""
    given: dict[str, Any] = {"ys": np.float32(y[0]), "yz": np.array(y[1], dtype)}
    for i, (scale, zero_point) in enumerate(inputs):
        given |= {
            f"x{i}": computed((1, 256, 2), dtype),
            f"s{i}": np.float32(scale),
            f"z{i}": np.array(zero_point, dtype),
        }
    return OnnxCase(name, "QLinearConcat", given, {"axis": axis}, domain=MICROSOFT)


QLINEAR = [
    qlinear("same", "int8", (0.05, 3), (0.05, 3), (0.05, 3)),
    qlinear("ties", "int8", (0.5, 0), (0.25, 0), (0.75, 1)),
    qlinear("saturates", "int8", (0.01, 100), (0.5, -100), (0.01, 100), axis=2),
    qlinear("one", "int8", (0.03, -5), (0.02, 4)),
    qlinear("unsigned", "uint8", (0.05, 128), (0.05, 128), (0.1, 0), (0.015, 255)),
    qlinear("unsigned_ties", "uint8", (2.0, 3), (1.0, 200), (3.0, 7)),
    qlinear("products_that_round", "int8", (0.1, 0), (0.3, 0), (0.7, 0)),
]
_HALVES = np.arange(-8, 8, dtype=np.int8).reshape(1, 2, 8)


def test_qlinear_concat() -> None:
    with_constant = OnnxCase(
        "constant",
        "QLinearConcat",
        {
            "ys": np.float32(0.5), "yz": np.int8(1),
            "x": computed((1, 3, 8), "int8"), "s0": np.float32(0.25), "z0": np.int8(2),
            "c": _HALVES, "s1": np.float32(0.75), "z1": np.int8(0),
        },
        {"axis": 1},
        domain=MICROSOFT,
    )  # fmt: skip
    prove_onnx([*QLINEAR, with_constant], samples=2).check()


def qdq(
    name: str, operator: Any, inputs: Sequence[tuple[float, int]], y: tuple[float, int], dtype: str, shape: Any
) -> OnnxCase:
    """DequantizeLinear of each input, an operator on their results d0, d1, ... that gives r, and a QuantizeLinear."""
    given: dict[str, Any] = {}
    nodes = []
    for i, (scale, zero_point) in enumerate(inputs):
        given |= {f"x{i}": computed(shape, dtype), f"s{i}": np.float32(scale), f"z{i}": np.array(zero_point, dtype)}
        nodes.append(helper.make_node("DequantizeLinear", [f"x{i}", f"s{i}", f"z{i}"], [f"d{i}"]))
    given |= {"ys": np.float32(y[0]), "yz": np.array(y[1], dtype)}
    nodes += [operator, helper.make_node("QuantizeLinear", ["r", "ys", "yz"], ["y"])]
    return OnnxCase(name, "", given, nodes=tuple(nodes))


def _constant(value: Array, name: str) -> Any:
    return helper.make_node("Constant", [], [name], value=helper.make_tensor(name, 1, value.shape, value.reshape(-1)))


def test_concat_of_dequantized_values_is_integer() -> None:
    concat = helper.make_node("Concat", ["d0", "d1"], ["r"], axis=1)
    cases = [
        qdq("differing", concat, [(0.25, 3), (0.75, -9)], (0.5, 1), "int8", (1, 256, 2)),
        qdq("unsigned", concat, [(0.02, 128), (0.3, 0)], (0.05, 7), "uint8", (1, 256, 2)),
        qdq("same", concat, [(0.05, 3), (0.05, 3)], (0.05, 3), "int8", (2, 5, 3)),
    ]
    proven = prove_onnx(cases, samples=2)
    proven.check()
    steps = {step.op_type for compiled in proven.compiled.values() for step in compiled.program.steps}
    assert steps <= {"Concat", "ShiftSign"}


def test_padding_of_dequantized_values_is_integer() -> None:
    """No floating point is left, and the real value of the padding is quantized as the engine does it."""
    nodes = (
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["d"]),
        helper.make_node("Pad", ["d", "pads"], ["e"], mode="edge"),
        helper.make_node("Pad", ["e", "pads", "value"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "s", "z"], ["y"]),
    )
    given = {"x": computed((3, 4), "int8"), "s": np.float32(0.1), "z": np.int8(3), "pads": numbers(0, 1, 0, 2)}
    cases = [
        OnnxCase(f"value_{value}", "", {**given, "value": np.float32(value)}, nodes=nodes)
        for value in (0.0, 0.77, 0.25, -0.35, 1e9)
    ]
    dequantized_value = OnnxCase(
        "dequantized_value",
        "",
        {**given, "q": np.int8(9), "qs": np.float32(0.5), "qz": np.int8(2)},
        nodes=(nodes[0], helper.make_node("DequantizeLinear", ["q", "qs", "qz"], ["value"]), *nodes[1:]),
    )
    proven = prove_onnx([*cases, dequantized_value], samples=2)
    proven.check()
    steps = proven.compiled[21].program.steps
    assert {step.op_type for step in steps} == {"Pad"}
    assert {step.inputs[0].c_type for step in steps} == {"int8_t"}


def test_padding_by_the_number_of_the_zero_point_is_not_the_zero_point() -> None:
    """3.0 is no 3: such a Pad must not become the padding of the convolution after it."""

    def quantized(name: str, operator: Any, x: str) -> list[Any]:
        dequantize = helper.make_node("DequantizeLinear", [x, "s", "z"], [f"{name}_d"])
        return [dequantize, operator, helper.make_node("QuantizeLinear", [f"{name}_r", "s", "z"], [name])]

    convolution = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["wd"]),
        *quantized("a", helper.make_node("Conv", ["a_d", "wd"], ["a_r"], **convolution), "x"),
        *quantized("b", helper.make_node("Pad", ["b_d", "pads", "value"], ["b_r"]), "a"),
        *quantized("y", helper.make_node("Conv", ["y_d", "wd"], ["y_r"], kernel_shape=[3, 3]), "b"),
    ]
    given = {
        "x": computed((1, 2, 5, 5), "int8"), "s": np.float32(0.5), "z": np.int8(3), "ws": np.float32(0.01), "wz": np.int8(0),
        "w": np.random.default_rng(0).integers(-99, 99, (2, 2, 3, 3)).astype(np.int8),
        "pads": numbers(0, 0, 1, 1, 0, 0, 1, 1), "value": np.float32(3.0),
    }  # fmt: skip
    outcome = prove_onnx([OnnxCase("net", "", given, nodes=tuple(nodes))], samples=3).outcomes["net"]
    for golden, found in zip(outcome.golden, outcome.compiled, strict=True):
        # A step at ties: the engine adds up in float32.
        assert np.abs(golden[0].astype(int) - found[0].astype(int)).max() <= 1


def test_padding_of_quantized_integers_fills_with_the_number() -> None:
    """The default is the number 0 in the tensor's own type, be it uint8 or int8."""
    nodes = (
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        helper.make_node("Pad", ["q", "pads"], ["r"]),
        helper.make_node("DequantizeLinear", ["r", "s", "z"], ["y"]),
    )
    given = {"x": computed((2, 3)), "s": np.float32(0.1), "z": np.uint8(7), "pads": numbers(0, 1, 0, 1)}
    unsigned = OnnxCase("unsigned", "", given, nodes=nodes)
    signed = OnnxCase("signed", "", {**given, "z": np.int8(7)}, nodes=nodes)
    edge = OnnxCase(
        "edge", "", given, nodes=(nodes[0], helper.make_node("Pad", ["q", "pads"], ["r"], mode="edge"), nodes[2])
    )
    valued = OnnxCase(
        "valued",
        "",
        {**given, "value": np.uint8(30)},
        nodes=(nodes[0], helper.make_node("Pad", ["q", "pads", "value"], ["r"]), nodes[2]),
    )
    prove_onnx([unsigned, signed, edge, valued], samples=2).check()


def test_rebias_both_ways_and_in_place() -> None:
    """A uint8 model is int8 inside: one ShiftSign at each end, in place, and nothing else of it can be seen."""
    nodes = (
        helper.make_node("DequantizeLinear", ["x", "s", "z"], ["d"]),
        helper.make_node("Transpose", ["d"], ["r"], perm=[1, 0]),
        helper.make_node("QuantizeLinear", ["r", "s", "z"], ["y"]),
    )
    given = {"x": computed((16, 17), "uint8"), "s": np.float32(0.1), "z": np.uint8(7)}
    proven = prove_onnx([OnnxCase("turn", "", given, nodes=nodes)], samples=3)
    proven.check()
    program = proven.compiled[21].program
    assert [step.op_type for step in program.steps].count("ShiftSign") == 2
    # The input and the turned tensor, 272 bytes each (a multiple of the alignment): both ShiftSign work in place.
    assert program.plan.arena_bytes == 2 * 272


@pytest.mark.parametrize("mode", ["DCR", "CRD"])
@pytest.mark.parametrize("kind", ["DepthToSpace", "SpaceToDepth"])
def test_blocks_channel_by_channel(kind: str, mode: str) -> None:
    """The specification's formula, which is the only witness of SpaceToDepth by CRD: onnxruntime does not have it."""
    b, c = 2, 3
    image = np.arange(2 * 6 * 4 * c, dtype=np.int16).reshape(2, 6, 4, c)
    deep = np.empty((2, 3, 2, b * b * c), np.int16)
    for i in range(b):
        for j in range(b):
            for k in range(c):
                channel = (i * b + j) * c + k if mode == "DCR" else (k * b + i) * b + j
                deep[..., channel] = image[:, i::b, j::b, k]
    x, y = (deep, image) if kind == "DepthToSpace" else (image, deep)
    parsed = onnx_registry()[kind].parse(source(kind, x.shape, blocksize=b, mode=mode))
    written = Node(parsed.op, kind, ("x",), ("y",), 0)
    bound = BoundNode(written, (Tensor("x", DType.INT16, x.shape),), (Tensor("y", DType.INT16, y.shape),))
    kernel = registry()[type(parsed.op)]
    kernel.check(bound)
    assert kernel.output_shapes(bound) == (y.shape,)
    np.testing.assert_array_equal(kernel.reference(bound, [x])[0], y)


TURNED = [
    *CONCATENATIONS[-6:-2], *SPLITS[-6:], *SLICES[-11:], *GATHERS, *REPEATS, *PADS,
    joined("rank4", (1, 2, 3, 4), (1, 2, 5, 4), axis=2),
]  # fmt: skip


@pytest.mark.parametrize("made", TURNED, ids=lambda made: made.id)
def test_transposed(made: OnnxCase) -> None:
    """The op for turned inputs computes the turned outputs, for every order of the dimensions."""
    (bound,) = graph_of(made).bound()
    rank = len(bound.input(0).shape)
    orders = list(permutations(range(rank))) if rank <= 4 else [tuple(reversed(range(rank)))]
    found = [turned_alike(made, order) for order in orders]
    has_form = len(bound.output.shape) == rank and not (made.op_type == "Gather" and len(bound.inputs) == 2)
    assert all(found) if has_form else not any(found)


def test_views_print_no_code() -> None:
    proven = prove_onnx([case for case in VIEWS if "mask" not in case.id], samples=1, sanitize=False)
    assert not any(compiled.program.steps for compiled in proven.compiled.values())


def test_forms_of_the_layers() -> None:
    """Moves at equal distances need no tables; one run is one copy."""
    templates = {}
    for made in (*SLICES, *GATHERS, *REPEATS, *BLOCKS, *PADS, *TRANSPOSES):
        bound = next(bound for bound in graph_of(made).bound() if bound.node.op_type == made.op_type)
        templates[made.id] = kernel_of(bound).lower(bound).kernel_name
    expected = {
        "slice_axes": "strided_copy", "gather_one": "strided_copy", "gather_last_of_time": "copy_run",
        "gather_run": "strided_copy",
        "gather_backwards": "strided_copy", "gather_negative": "pick", "gather_embedding": "gather",
        "gather_computed_int8_int32": "gather", "tile_rank4": "pick", "tile_columns": "strided_copy",
        "expand_nothing": "copy_run", "expand_alternating": "pick", "depth_to_space_DCR_2": "strided_copy",
        "pad_crop": "strided_copy", "pad_crop_and_pad": "pick", "pad_reflect": "pick", "nothing": "copy_run",
    }  # fmt: skip
    assert {name: templates[name] for name in expected} == expected

"""Random operators on the NPU: the C with the host model as its NPU, the numpy reference and TFLite Micro agree on every bit.

Each model holds operators of one kind side by side, so each becomes a region of its own. What may stay on the core is listed
with the reason that the partition map gives; anything else has to be on the NPU.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emitc.backends.ethos_u.driver import NAME
from emitc.compiled import Compiled
from emitc.compiler import compile_model
from emitc.verify import verification
from emitc.writers.tflite import ModelSpec, OperatorSpec, OptionValue, TensorSpec, write_tflite
from tests.kernels.variants.test_random_layers import ACTIVATIONS, Draws
from tests.support.layer_cases import conv_2d, depthwise, fully_connected, pool, single, softmax
from tests.support.moves import tensor
from tests.support.single_op import Case, integers, model_of, prove, quantized

pytest.importorskip("tflite_micro", reason="the extra emitc[verify] is not installed")
pytestmark = pytest.mark.usefixtures("vela")

COUNT = 25
"""Operators of each kind for the accelerator in most use."""
FEW = 6
"""Of each kind for the others."""

VELA = "vela leaves it on the core"

Maker = Callable[[str, Draws], Case]


def shape_of(d: Draws, ranks: tuple[int, int] = (1, 4), largest: int = 9) -> tuple[int, ...]:
    """A random shape; the leading dimension of a shape of four is mostly 1."""
    shape = [d.integer(1, largest) for _ in range(d.integer(*ranks))]
    if len(shape) == 4 and d.rng.random() < 0.7:
        shape[0] = 1
    return tuple(shape)


def operand(d: Draws) -> tuple[float, int]:
    """Scale and zero point."""
    return d.scale(-8, 1), d.zero_point()


def activation(d: Draws) -> dict[str, OptionValue]:
    """A fused activation, mostly none."""
    return {"fused_activation_function": ACTIVATIONS[d.integer(0, 4)]}


def convolution(name: str, d: Draws) -> Case:
    """CONV_2D with stride, dilation, padding."""
    kernel, slide = d.kernel(), d.slide(dilated=True)
    in_c, channels = d.integer(1, 24), d.integer(1, 24)
    scales = d.scales(channels, kernel[0] * kernel[1] * in_c)
    w = d.weights(name, (channels, *kernel, in_c))
    return conv_2d(name, d.image(slide, kernel, in_c), channels, kernel, slide, scales, w=w, bias=d.bias())


def depthwise_convolution(name: str, d: Draws) -> Case:
    """DEPTHWISE_CONV_2D, half of them with several filters for a channel."""
    kernel, slide = d.kernel(), d.slide(dilated=True)
    multiplier = 1 if d.rng.random() < 0.5 else d.integer(2, 8)
    in_c = d.integer(1, 20) if multiplier == 1 or d.rng.random() < 0.5 else 1
    scales = d.scales(in_c * multiplier, kernel[0] * kernel[1])
    w = d.weights(name, (1, *kernel, in_c * multiplier))
    return depthwise(name, d.image(slide, kernel, in_c), multiplier, kernel, slide, scales, w=w, bias=d.bias())


def transposed_convolution(name: str, d: Draws) -> Case:
    """TRANSPOSE_CONV; its output is what the stride makes of the input, with SAME or VALID padding."""
    kernel, slide = (d.integer(1, 5), d.integer(1, 5)), d.slide(dilated=False)
    slide = replace(slide, stride=(2, 2) if d.rng.random() < 0.7 else (1, 1), activation="NONE")
    in_c, channels = d.integer(1, 12), d.integer(1, 12)
    scales = d.scales(channels, kernel[0] * kernel[1] * in_c)
    case = conv_2d(
        name, (1, d.integer(5, 9), d.integer(5, 9), in_c), channels, kernel, slide, scales,
        w=d.weights(name, (channels, *kernel, in_c)), bias=d.bias(),
    )  # fmt: skip
    x, *constants = case.inputs
    assert x is not None
    rows, columns = (
        size * stride if slide.padding == "SAME" else (size - 1) * stride + side
        for size, stride, side in zip(x.shape[1:3], slide.stride, kernel, strict=True)
    )
    shape = (1, rows, columns, channels)
    inputs = (integers(*shape), constants[0], x, *constants[1:])
    options = {key: slide.options()[key] for key in ("padding", "stride_h", "stride_w")}
    return Case(name, "TRANSPOSE_CONV", inputs, (replace(case.outputs[0], shape=shape),), options, 3)


def dense(name: str, d: Draws) -> Case:
    """FULLY_CONNECTED of one row or several."""
    depth, channels = d.integer(1, 70), d.integer(1, 40)
    leading = (1,) if d.rng.random() < 0.4 else shape_of(d, (1, 3), 4)
    scales, w = d.scales(channels, depth), d.weights(name, (channels, depth))
    keep = d.rng.random() < 0.3
    return fully_connected(
        name, (*leading, depth), channels, depth, ACTIVATIONS[d.integer(0, 4)], scales, keep=keep, w=w, bias=d.bias()
    )


def pooling(opcode: str) -> Maker:
    """Pools with every padding and stride."""

    def make(name: str, d: Draws) -> Case:
        kernel, slide = d.kernel(), d.slide(dilated=False)
        return pool(name, opcode, d.image(slide, kernel, d.integer(1, 20)), kernel, slide, *operand(d))

    return make


def binary(opcode: str) -> Maker:
    """Two operands of one shape, or repeated along dimensions, or one of them constant."""

    def make(name: str, d: Draws) -> Case:
        full = shape_of(d)
        sides = [full, full]
        if d.rng.random() < 0.5:
            sides = [tuple(1 if d.rng.random() < 0.3 else size for size in full) for _ in range(2)]
        same = opcode in ("MINIMUM", "MAXIMUM")
        first, second = operand(d), operand(d)
        if same:
            second = first
        elif d.rng.random() < 0.5:
            second = first[0], second[1]
        specs = [quantized(side, *each) for side, each in zip(sides, (first, second), strict=True)]
        if d.rng.random() < 0.3:
            which = d.integer(0, 1)
            data = d.rng.integers(-128, 128, sides[which])
            specs[which] = quantized(sides[which], *(first, second)[which], data=data)
        real = first[0] * second[0] * 80 if opcode == "MUL" else max(first[0], second[0])
        result = first if same else (single(real * 2.0 ** d.rng.uniform(-1.5, 2.5)), d.zero_point())
        shape = np.broadcast_shapes(*sides)
        return Case(name, opcode, tuple(specs), (quantized(shape, *result),), {} if same else activation(d))

    return make


def unary(
    opcode: str,
    fixed: tuple[float, int] | None = None,
    *,
    same: bool = False,
    options: Mapping[str, float] | None = None,
) -> Maker:
    """A function of one value. fixed: quantization of the output. same: it is the input's."""

    def make(name: str, d: Draws) -> Case:
        shape, x = shape_of(d, largest=14), operand(d)
        y = fixed or (x if same else (single(x[0] * 2.0 ** d.rng.uniform(-3, 3)), d.zero_point()))
        chosen = {key: single(d.rng.uniform(-0.2, limit)) for key, limit in (options or {}).items()}
        return Case(name, opcode, (quantized(shape, *x),), (quantized(shape, *y),), chosen)

    return make


def soft_maximum(name: str, d: Draws) -> Case:
    """SOFTMAX over the last dimension."""
    shape = (*shape_of(d, (1, 3), 4), d.integer(1, 64))
    return softmax(name, shape, d.scale(-9, 1), d.scale(-1, 1), d.zero_point())


def mean(name: str, d: Draws) -> Case:
    """MEAN over one or more dimensions."""
    shape = shape_of(d, (2, 4))
    axes = tuple(int(a) for a in d.rng.permutation(len(shape))[: d.integer(1, len(shape))])
    if len(shape) == 4 and d.rng.random() < 0.5:
        axes = (1, 2)
    keep = bool(d.rng.random() < 0.5)
    left = tuple(1 if i in axes else size for i, size in enumerate(shape) if keep or i not in axes)
    x = operand(d)
    y = x if d.rng.random() < 0.4 else (single(x[0] * 2.0 ** d.rng.uniform(-2, 1)), d.zero_point())
    return Case(name, "MEAN", (quantized(shape, *x), integers(*axes)), (quantized(left, *y),), {"keep_dims": keep})


def concatenation(name: str, d: Draws) -> Case:
    """CONCATENATION of up to five tensors, constants among them."""
    shape = list(shape_of(d))
    axis, total, inputs = d.integer(0, len(shape) - 1), 0, []
    for part in range(d.integer(1, 5)):
        shape[axis] = d.integer(1, 6)
        total += shape[axis]
        data = d.rng.integers(-128, 128, shape) if part and d.rng.random() < 0.2 else None
        inputs.append(tensor(shape, "int8", data))
    shape[axis] = total
    options: dict[str, OptionValue] = {"axis": axis - d.integer(0, 1) * len(shape), "fused_activation_function": "NONE"}
    return Case(name, "CONCATENATION", tuple(inputs), (tensor(shape),), options)


def pad(name: str, d: Draws) -> Case:
    """PAD in any dimensions."""
    shape, x = shape_of(d), operand(d)
    amounts = np.array([[d.integer(0, 3) * d.integer(0, 1) for _ in range(2)] for _ in shape], "<i4")
    listed = TensorSpec("", "int32", amounts.shape, amounts.tobytes())
    padded = tuple(int(size + amounts[i].sum()) for i, size in enumerate(shape))
    return Case(name, "PAD", (quantized(shape, *x), listed), (quantized(padded, *x),))


def resize(opcode: str) -> Maker:
    """Sizes at random, and those that vela takes: once, twice, four or eight times, aligned or not."""

    def make(name: str, d: Draws) -> Case:
        height, width = d.integer(1, 9), d.integer(1, 9)
        choices: list[dict[str, OptionValue]] = [{}, {"align_corners": True}, {"half_pixel_centers": True}]
        options = choices[d.integer(0, 2)]
        factor, less = (1, 2, 2, 4, 8)[d.integer(0, 4)], int("align_corners" in options)
        rows, columns = ((size - less) * factor + less for size in (height, width))
        if d.rng.random() < 0.2:
            rows, columns = d.integer(1, 20), d.integer(1, 20)
        x = tensor((1, height, width, d.integer(1, 17)))
        return Case(name, opcode, (x, integers(rows, columns)), (tensor((1, rows, columns, x.shape[3])),), options)

    return make


def box(name: str, d: Draws) -> Case:
    """SLICE."""
    shape = shape_of(d)
    begin = [d.integer(0, size - 1) for size in shape]
    size = [d.integer(1, dim - first) for dim, first in zip(shape, begin, strict=True)]
    return Case(name, "SLICE", (tensor(shape), integers(*begin), integers(*size)), (tensor(size),))


def strided(name: str, d: Draws) -> Case:
    """STRIDED_SLICE forwards; some dimensions shrink."""
    shape = shape_of(d)
    begin, end, steps, left, shrunk = [], [], [], [], 0
    for axis, size in enumerate(shape):
        first = d.integer(0, size - 1)
        last, step = d.integer(first + 1, size), (1, 1, 2, 3)[d.integer(0, 3)]
        if d.rng.random() < 0.2 and axis + 1 < len(shape):
            shrunk, last, step = shrunk | 1 << axis, first + 1, 1
        else:
            left.append(len(range(first, last, step)))
        begin.append(first), end.append(last), steps.append(step)
    inputs = (tensor(shape), integers(*begin), integers(*end), integers(*steps))
    return Case(name, "STRIDED_SLICE", inputs, (tensor(left),), {"shrink_axis_mask": shrunk})


def split(name: str, d: Draws) -> Case:
    """SPLIT_V into parts of their own sizes, SPLIT into equal ones."""
    shape = list(shape_of(d))
    axis, equal = d.integer(0, len(shape) - 1), d.rng.random() < 0.5
    sizes = [d.integer(1, 5)] * d.integer(1, 4) if equal else [d.integer(1, 5) for _ in range(d.integer(1, 4))]
    shape[axis] = sum(sizes)
    outputs = tuple(tensor((*shape[:axis], size, *shape[axis + 1 :])) for size in sizes)
    position = TensorSpec("", "int32", (), np.array(axis, "<i4").tobytes())
    x, options = tensor(shape), {"num_splits": len(sizes)}
    if equal:
        return Case(name, "SPLIT", (position, x), outputs, options)
    return Case(name, "SPLIT_V", (x, integers(*sizes), position), outputs, options)


KINDS: Mapping[str, Maker] = {
    "conv_2d": convolution,
    "depthwise_conv_2d": depthwise_convolution,
    "transpose_conv": transposed_convolution,
    "fully_connected": dense,
    "max_pool_2d": pooling("MAX_POOL_2D"),
    "average_pool_2d": pooling("AVERAGE_POOL_2D"),
    "add": binary("ADD"),
    "sub": binary("SUB"),
    "mul": binary("MUL"),
    "minimum": binary("MINIMUM"),
    "maximum": binary("MAXIMUM"),
    "logistic": unary("LOGISTIC", (1 / 256, -128)),
    "tanh": unary("TANH", (1 / 128, 0)),
    "hard_swish": unary("HARD_SWISH"),
    "leaky_relu": unary("LEAKY_RELU", options={"alpha": 0.9}),
    "relu": unary("RELU"),
    "relu6": unary("RELU6", same=True),
    "softmax": soft_maximum,
    "mean": mean,
    "concatenation": concatenation,
    "pad": pad,
    "resize_nearest_neighbor": resize("RESIZE_NEAREST_NEIGHBOR"),
    "resize_bilinear": resize("RESIZE_BILINEAR"),
    "slice": box,
    "strided_slice": strided,
    "split": split,
    "quantize": unary("QUANTIZE"),
}
ON_THE_CORE: Mapping[str, tuple[str, ...]] = {
    # VALID with a kernel smaller than the stride.
    "transpose_conv": (VELA,),
    # Reductions that no pool expresses, and results of rank 0.
    "mean": (VELA,),
    # Other factors than 2, 4 and 8, the same for both directions; with half pixel centers other than 2.
    "resize_nearest_neighbor": (VELA,),
    "resize_bilinear": (VELA,),
    # Steps along the channels or the batch.
    "strided_slice": (VELA,),
}
"""By kind: reasons for which single operators of it may stay there."""


def cases_of(kind: str, npu: str, count: int) -> list[Case]:
    """Random operators, the same ones for the same names."""
    draws = Draws(zlib.crc32(f"{kind} {npu}".encode()))
    return [KINDS[kind](f"{kind}_{i}", draws) for i in range(count)]


def agree(cases: list[Case], npu: str, allowed: Mapping[str, tuple[str, ...]]) -> None:
    """Asserts that all bits are equal, and that every operator is on the NPU except for those with an allowed reason."""
    proven = prove(cases, samples=3, sanitize=False, backends={"npu": npu, "npu-always": "yes"})
    failures = []
    for outcome in proven.outcomes.values():
        try:
            outcome.check()
        except AssertionError as error:
            failures.append(str(error).splitlines()[0])
    for row in proven.compiled.partition.assignments:
        why = dict(row.refused).get(NAME, "")
        if row.backend != NAME and why not in allowed.get(row.op_type.lower(), ()):
            failures.append(f"{cases[row.index].id} is on the core: {why}")
    assert failures == []
    taken = [row for row in proven.compiled.partition.assignments if row.backend == NAME]
    assert len(taken) >= len(cases) / 4


def test_two_of_each_kind() -> None:
    cases = [case for kind in KINDS for case in cases_of(kind, "few", 2)]
    agree(cases, "ethos-u55-128", ON_THE_CORE)


SWEEP = [("ethos-u55-128", kind, COUNT) for kind in KINDS] + [
    (npu, kind, FEW) for npu in ("ethos-u55-32", "ethos-u55-256", "ethos-u65-256") for kind in KINDS
]


@pytest.mark.sweep(keep=2)
@pytest.mark.parametrize(("npu", "kind", "count"), SWEEP)
def test_random_operators(npu: str, kind: str, count: int) -> None:
    agree(cases_of(kind, npu, count), npu, ON_THE_CORE)


def padded(name: str, d: Draws) -> tuple[Case, Case]:
    """PAD with any amounts, and a convolution or a depthwise one of what it gives."""
    while True:
        case = (convolution, depthwise_convolution)[d.integer(0, 1)](name, d)
        x = case.inputs[0]
        assert x is not None
        if case.options["padding"] == "VALID" and min(x.shape[1:3]) > 1:
            break
    before = [
        (0, 0),
        *((d.integer(0, (size - 1) // 2), d.integer(0, (size - 1) // 2)) for size in x.shape[1:3]),
        (0, 0),
    ]
    shape = tuple(size - sum(pads) for size, pads in zip(x.shape, before, strict=True))
    amounts = TensorSpec("", "int32", (4, 2), np.array(before, "<i4").tobytes())
    return Case(f"{name}/pad", "PAD", (replace(x, shape=shape), amounts), (x,)), case


def joined(parts: Sequence[ModelSpec]) -> ModelSpec:
    """Models side by side."""
    tensors, operators, inputs, outputs = [], [], [], []
    for number, part in enumerate(parts):
        first = len(tensors)
        tensors += [replace(tensor, name=f"{number}/{tensor.name}") for tensor in part.tensors]
        inputs += [first + i for i in part.inputs]
        outputs += [first + i for i in part.outputs]
        for operator in part.operators:
            moved = [tuple(first + i if i >= 0 else i for i in side) for side in (operator.inputs, operator.outputs)]
            operators.append(replace(operator, inputs=moved[0], outputs=moved[1]))
    return ModelSpec(tuple(tensors), tuple(operators), tuple(inputs), tuple(outputs))


def chained(first: Case, second: Case) -> ModelSpec:
    """The second case reads what the first one writes."""
    spec = model_of([first, second])
    made, read = spec.outputs[0], spec.operators[1].inputs[0]
    after = replace(spec.operators[1], inputs=(made, *spec.operators[1].inputs[1:]))
    return replace(
        spec, operators=(spec.operators[0], after), inputs=tuple(i for i in spec.inputs if i != read),
        outputs=spec.outputs[1:],
    )  # fmt: skip


def surrounded(spec: ModelSpec) -> ModelSpec:
    """The model with a QUANTIZE to another scale at each input and output."""
    tensors, operators = list(spec.tensors), list(spec.operators)
    inputs, outputs = [], []
    for i in spec.inputs:
        inputs.append(len(tensors))
        operators.insert(0, OperatorSpec("QUANTIZE", (len(tensors),), (i,)))
        tensors.append(replace(tensors[i], name=f"given{i}", scales=(tensors[i].scales[0] * 0.75,)))
    for i in spec.outputs:
        outputs.append(len(tensors))
        operators.append(OperatorSpec("QUANTIZE", (i,), (len(tensors),)))
        tensors.append(replace(tensors[i], name=f"taken{i}", scales=(tensors[i].scales[0] * 0.75,)))
    return ModelSpec(tuple(tensors), tuple(operators), tuple(inputs), tuple(outputs))


def verified(
    spec: ModelSpec, folder: Path, *, keep: tuple[str, ...] = (), disabled: frozenset[str] = frozenset()
) -> Compiled:
    """The model compiled for the NPU, with every tensor between its layers proven."""
    (folder / "model.tflite").write_bytes(write_tflite(spec))
    options = {"npu": "ethos-u55-128", "npu-always": "yes"}
    made = compile_model(folder / "model.tflite", backends=options, cpu_only=keep, disabled=disabled)
    proof = verification.verify(made, samples=4, layers=True)
    assert proof.match, proof
    assert proof.reference == "tflm"
    return made


def test_convolutions_of_padded_images(tmp_path: Path) -> None:
    """The PAD is folded into the convolution; where neither SAME nor VALID means it, vela gets it back."""
    draws = Draws(77)
    made = verified(joined([chained(*padded(f"padded_{i}", draws)) for i in range(COUNT)]), tmp_path)
    assert {row.backend for row in made.partition.assignments} == {NAME}


def test_regions_between_operators_of_the_core(tmp_path: Path) -> None:
    """Several inputs and outputs are gathered in buffers of the driver's regions; a single one is passed as it lies."""
    draws = Draws(78)
    cases = [KINDS[k](f"{k}_{i}", draws) for i in range(3) for k in ("add", "mul", "concatenation", "split", "conv_2d")]
    made = verified(surrounded(model_of(cases)), tmp_path, keep=("QUANTIZE",))
    rows = [row for row in made.partition.assignments if row.op_type != "QUANTIZE"]
    assert len(rows) == 15
    assert {row.backend for row in rows} == {NAME}
    assert any(step.call is not None and step.call.copies for step in made.program.steps)


@pytest.mark.parametrize("opcode", ["MINIMUM", "MUL", "ADD"])
@pytest.mark.parametrize("first", [(24,), (4, 1, 6)])
def test_two_operands_that_are_both_repeated(opcode: str, first: tuple[int, ...], tmp_path: Path) -> None:
    """vela writes wrong commands for most of these operators where one of the operands was reshaped."""
    scale: dict[str, Any] = {"scales": (0.5,), "zero_points": (0,)}
    shapes = {"x": first, "z": (1, 4, 6), "a": first, "b": (1, 4, 6), "r": (4, 1, 6), "y": (4, 4, 6)}
    tensors = [TensorSpec(name, "int8", shape, None, **scale) for name, shape in shapes.items()]
    tensors.append(TensorSpec("shape", "int32", (3,), np.array((4, 1, 6), "<i4").tobytes()))
    operators = [OperatorSpec("QUANTIZE", (0,), (2,)), OperatorSpec("QUANTIZE", (1,), (3,))]
    operators += [OperatorSpec("RESHAPE", (2, 6), (4,))] if first == (24,) else []
    operators.append(OperatorSpec(opcode, (4 if first == (24,) else 2, 3), (5,)))
    made = verified(ModelSpec(tuple(tensors), tuple(operators), (0, 1), (5,)), tmp_path)
    assert {row.op_type for row in made.partition.assignments if row.backend != NAME} == (
        {opcode} if first == (24,) else set()
    )


def test_two_regions_of_the_same_commands_are_played_back(tmp_path: Path) -> None:
    """Their command stream is one table."""
    make = unary("TANH", (1 / 128, 0))
    made = verified(model_of([make(name, Draws(5)) for name in ("first", "second")]), tmp_path)
    assert sorted(len(step.constants) for step in made.program.steps)[0] == 0
    assert verification.verify(made, samples=2, sanitize=True).match


def test_operators_on_constants_alone_stay_on_the_core(tmp_path: Path) -> None:
    """Folding has computed them, unless it is switched off."""
    values = np.arange(8).reshape(1, 8)
    first, second = (quantized((1, 8), scale, 0, data=values) for scale in (0.05, 0.06))
    add: dict[str, OptionValue] = {"fused_activation_function": "NONE"}
    cases = [
        Case("constants", "ADD", (first, second), (quantized((1, 8), 0.1, 0),), add),
        Case("computed", "MUL", (quantized((1, 8)), first), (quantized((1, 8), 0.1, 0),), add),
    ]
    made = verified(model_of(cases), tmp_path, disabled=frozenset(["fold-constants"]))
    assert [row.backend for row in made.partition.assignments] == ["portable", NAME]


@pytest.mark.parametrize("keep", [(), ("RELU",)])
def test_an_input_that_others_read_too(keep: tuple[str, ...], tmp_path: Path) -> None:
    """It cannot lie inside a region's scratch: the NPU would write over it, or two would claim it."""
    first, second = unary("TANH", (1 / 128, 0))("tanh", Draws(5)), unary("RELU")("relu", Draws(5))
    model = model_of([first, second])
    one, two = model.operators
    shared = replace(model, operators=(one, replace(two, inputs=one.inputs)), inputs=one.inputs)
    made = verified(shared, tmp_path, keep=keep)
    assert len(made.partition.regions) == 2 - len(keep)


def test_the_sweep_is_large_enough() -> None:
    assert len(KINDS) >= 20
    assert math.prod((len(KINDS), COUNT)) >= 500

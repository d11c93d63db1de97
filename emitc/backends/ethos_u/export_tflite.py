"""A region of the graph as a TFLite model for vela: the same operators, written out with explicit shapes.

Tensors are called t0, t1, ...: the names come back in vela's answer. A fully connected layer is written as a 1x1 convolution,
because vela takes the product of scales in float32 for the former and in double, as the interpreter does, for the latter.
Zero points that a pass has folded into biases are taken out again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from emitc.backends.contract import Coverage
from emitc.backends.ethos_u.rounded_tables import rounds_otherwise
from emitc.ir import Array, BoundNode, DType, Graph, Op, Shape, Tensor
from emitc.kernels.activation.activations import HardSwish, LeakyRelu, Logistic, Relu, Relu6, ReluN1To1, Tanh
from emitc.kernels.convolution.conv_2d import Conv2D
from emitc.kernels.convolution.conv_transpose import ConvTranspose, tflite_padding
from emitc.kernels.convolution.depthwise_conv_2d import DepthwiseConv2D
from emitc.kernels.elementwise.arithmetic import Add, Arithmetic, Mul, Sub
from emitc.kernels.elementwise.extremum import Maximum, Minimum
from emitc.kernels.mac.accumulation import model_bias, weights_of
from emitc.kernels.mac.requantization import BIAS, WEIGHTS
from emitc.kernels.matrix.fully_connected import FullyConnected
from emitc.kernels.movement.concatenation import Concatenation
from emitc.kernels.movement.pad import Pad
from emitc.kernels.movement.slice import Slice, StridedSlice
from emitc.kernels.movement.split import Split, SplitV
from emitc.kernels.normalization.softmax import Softmax
from emitc.kernels.pooling.pool_ops import AveragePool2D, MaxPool2D
from emitc.kernels.quantization.quantize import Quantize
from emitc.kernels.reduction.mean import Mean
from emitc.kernels.resize.resize import ResizeBilinear, ResizeNearestNeighbor
from emitc.kernels.shared.windows import Padding, Window
from emitc.writers.tflite import ModelSpec, OperatorSpec, OptionValue, TensorSpec, write_tflite


@dataclass(slots=True)
class _Model:
    """A model that is being written. places: index of what holds the value of each tensor of the graph."""

    graph: Graph
    tensors: list[TensorSpec] = field(default_factory=list)
    operators: list[OperatorSpec] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    owners: dict[str, int] = field(default_factory=dict)
    node: int = -1

    def add(self, tensor: Tensor, shape: Shape | None = None, data: Array | None = None) -> int:
        """A tensor with the quantization of one of the graph's; its index."""
        quantization, index = tensor.quantization, len(self.tensors)
        self.tensors.append(
            TensorSpec(
                f"t{index}",
                tensor.dtype.value if data is None else str(data.dtype),
                tensor.shape if shape is None else shape,
                None if data is None else np.ascontiguousarray(data).tobytes(),
                () if quantization is None else quantization.scales,
                () if quantization is None else quantization.zero_points,
                0 if quantization is None else quantization.axis,
            )
        )
        self.owners[f"t{index}"] = self.node
        return index

    def constant(self, values: Array, scales: tuple[float, ...] = (), axis: int = 0) -> int:
        """A constant tensor."""
        index = len(self.tensors)
        zeros = (0,) * len(scales)
        data = np.ascontiguousarray(values)
        self.tensors.append(TensorSpec(f"t{index}", str(data.dtype), data.shape, data.tobytes(), scales, zeros, axis))
        return index

    def emit(
        self, opcode: str, inputs: tuple[int, ...], outputs: tuple[int, ...], options: Mapping[str, OptionValue]
    ) -> None:
        """An operator."""
        self.operators.append(OperatorSpec(opcode, inputs, outputs, options))

    def reshaped(self, index: int, like: Tensor, shape: Shape) -> int:
        """The tensor under another shape."""
        if self.tensors[index].shape == shape:
            return index
        made = self.add(like, shape)
        target = self.constant(np.array(shape, np.int32))
        self.emit("RESHAPE", (index, target), (made,), {"new_shape": shape})
        return made

    def value(self, name: str) -> int:
        """The tensor that holds a value of the graph; through a RESHAPE where it shares the bytes of another."""
        if name not in self.places:
            tensor = self.graph.tensor(name)
            if tensor.is_constant:
                self.places[name] = self.add(tensor, data=tensor.array())
            else:
                self.places[name] = self.reshaped(self.value(tensor.alias_of), tensor, tensor.shape)
        return self.places[name]

    def result(self, tensor: Tensor) -> int:
        """The tensor that an operator of the graph writes."""
        self.places[tensor.name] = self.add(tensor)
        return self.places[tensor.name]


def _padding(window: Window, height: int, width: int, kernel_h: int, kernel_w: int) -> str:
    """SAME or VALID where one of them means this padding, else ""."""
    if not window.padding.any:
        return "VALID"
    found = []
    for size, kernel, stride, dilation in (
        (height, kernel_h, window.stride_h, window.dilation_h),
        (width, kernel_w, window.stride_w, window.dilation_w),
    ):
        total = max(0, (-(-size // stride) - 1) * stride + (kernel - 1) * dilation + 1 - size)
        found.append((total // 2, total - total // 2))
    pad = window.padding
    return "SAME" if found == [(pad.top, pad.bottom), (pad.left, pad.right)] else ""


def _windowed(model: _Model, bound: BoundNode, window: Window, kernel_h: int, kernel_w: int) -> tuple[int, str]:
    """The input, inside a PAD where neither SAME nor VALID says what is meant, and the padding."""
    x = bound.input(0)
    source = model.value(x.name)
    padding = _padding(window, x.shape[1], x.shape[2], kernel_h, kernel_w)
    if padding:
        return source, padding
    pad = window.padding
    n, height, width, channels = x.shape
    padded = model.add(x, (n, height + pad.top + pad.bottom, width + pad.left + pad.right, channels))
    amounts = np.array([[0, 0], [pad.top, pad.bottom], [pad.left, pad.right], [0, 0]], np.int32)
    model.emit("PAD", (source, model.constant(amounts)), (padded,), {})
    return padded, "VALID"


def _filters(model: _Model, bound: BoundNode, weights: Array, axis: int) -> int:
    quantization = bound.input(WEIGHTS).quantization
    assert quantization
    return model.constant(weights.astype(np.int8), quantization.scales, axis)


def _biases(model: _Model, bound: BoundNode, bias: Array) -> int:
    x, w = bound.input(0), bound.input(WEIGHTS).quantization
    assert w
    scales = tuple(float(np.float32(np.float32(x.scale) * np.float32(scale))) for scale in w.scales)
    return model.constant(bias.astype(np.int32), scales)


def _steps(window: Window, padding: str, *, dilated: bool) -> dict[str, OptionValue]:
    options: dict[str, OptionValue] = {
        "padding": padding, "stride_h": window.stride_h, "stride_w": window.stride_w,
    }  # fmt: skip
    if dilated:
        options |= {"dilation_h_factor": window.dilation_h, "dilation_w_factor": window.dilation_w}
    return options


def _conv_2d(model: _Model, bound: BoundNode) -> None:
    op, w = bound.node.op, bound.input(WEIGHTS)
    assert isinstance(op, Conv2D)
    weights = weights_of(bound)
    x, padding = _windowed(model, bound, op.window, w.shape[1], w.shape[2])
    bias = model_bias(bound, weights.astype(np.int64).sum(axis=(1, 2, 3)), folded=op.zero_point_folded)
    inputs = (x, _filters(model, bound, weights, 0), _biases(model, bound, bias))
    options = _steps(op.window, padding, dilated=True) | {"fused_activation_function": op.activation}
    model.emit("CONV_2D", inputs, (model.result(bound.output),), options)


def _depthwise(model: _Model, bound: BoundNode) -> None:
    op, w = bound.node.op, bound.input(WEIGHTS)
    assert isinstance(op, DepthwiseConv2D)
    weights = weights_of(bound)
    x, padding = _windowed(model, bound, op.window, w.shape[1], w.shape[2])
    bias = model_bias(bound, weights.astype(np.int64).sum(axis=(0, 1, 2)), folded=op.zero_point_folded)
    inputs = (x, _filters(model, bound, weights, 3), _biases(model, bound, bias))
    options = _steps(op.window, padding, dilated=True) | {
        "fused_activation_function": op.activation, "depth_multiplier": w.shape[3] // bound.input(0).shape[3],
    }  # fmt: skip
    model.emit("DEPTHWISE_CONV_2D", inputs, (model.result(bound.output),), options)


def _transpose_conv(model: _Model, bound: BoundNode) -> None:
    op, y, bias = bound.node.op, bound.output, bound.optional(BIAS)
    assert isinstance(op, ConvTranspose)
    weights = weights_of(bound)
    values = np.zeros(weights.shape[0], np.int64) if bias is None else bias.array()
    shape = model.constant(np.array(y.shape, np.int32))
    x = model.value(bound.input(0).name)
    inputs = (shape, _filters(model, bound, weights, 0), x, _biases(model, bound, values))
    options: dict[str, OptionValue] = {
        "padding": tflite_padding(bound), "stride_h": op.window.stride_h, "stride_w": op.window.stride_w,
        "fused_activation_function": op.activation,
    }  # fmt: skip
    model.emit("TRANSPOSE_CONV", inputs, (model.result(y),), options)


def _fully_connected(model: _Model, bound: BoundNode) -> None:
    op, x, y = bound.node.op, bound.input(0), bound.output
    assert isinstance(op, FullyConnected)
    weights = weights_of(bound)
    out, depth = weights.shape
    rows = x.elements // depth
    source = model.reshaped(model.value(x.name), x, (1, 1, rows, depth))
    bias = model_bias(bound, weights.astype(np.int64).sum(axis=1), folded=op.zero_point_folded)
    inputs = (source, _filters(model, bound, weights.reshape(out, 1, 1, depth), 0), _biases(model, bound, bias))
    made = model.add(y, (1, 1, rows, out))
    options = _steps(Window(1, 1, Padding()), "VALID", dilated=True) | {"fused_activation_function": op.activation}
    model.emit("CONV_2D", inputs, (made,), options)
    model.places[y.name] = model.reshaped(made, y, y.shape)


def _pool(model: _Model, bound: BoundNode) -> None:
    op = bound.node.op
    assert isinstance(op, AveragePool2D | MaxPool2D)
    padding = _padding(op.window, bound.input(0).shape[1], bound.input(0).shape[2], op.kernel_h, op.kernel_w)
    options = _steps(op.window, padding, dilated=False) | {
        "filter_height": op.kernel_h, "filter_width": op.kernel_w, "fused_activation_function": op.activation,
    }  # fmt: skip
    opcode = "AVERAGE_POOL_2D" if isinstance(op, AveragePool2D) else "MAX_POOL_2D"
    model.emit(opcode, (model.value(bound.input(0).name),), (model.result(bound.output),), options)


def _arithmetic(model: _Model, bound: BoundNode) -> None:
    op = bound.op(Arithmetic)
    inputs = (model.value(bound.input(0).name), model.value(bound.input(1).name))
    opcode = {Add: "ADD", Sub: "SUB", Mul: "MUL"}[type(op)]
    model.emit(opcode, inputs, (model.result(bound.output),), {"fused_activation_function": op.activation})


def _plain(opcode: str, **options: OptionValue) -> Callable[[_Model, BoundNode], None]:
    """An operator whose inputs are all tensors, with these options."""

    def export(model: _Model, bound: BoundNode) -> None:
        inputs = tuple(model.value(t.name) for t in bound.inputs if t is not None)
        model.emit(opcode, inputs, tuple(model.result(t) for t in bound.outputs), options)

    return export


def _softmax(model: _Model, bound: BoundNode) -> None:
    op = bound.op(Softmax)
    model.emit("SOFTMAX", (model.value(bound.input(0).name),), (model.result(bound.output),), {"beta": op.beta})


def _leaky_relu(model: _Model, bound: BoundNode) -> None:
    op = bound.op(LeakyRelu)
    model.emit("LEAKY_RELU", (model.value(bound.input(0).name),), (model.result(bound.output),), {"alpha": op.alpha})


def _mean(model: _Model, bound: BoundNode) -> None:
    op = bound.op(Mean)
    axes = model.constant(np.array(op.axes, np.int32))
    inputs = (model.value(bound.input(0).name), axes)
    model.emit("MEAN", inputs, (model.result(bound.output),), {"keep_dims": op.keep_dims})


def _concatenation(model: _Model, bound: BoundNode) -> None:
    op = bound.op(Concatenation)
    inputs = tuple(model.value(t.name) for t in bound.inputs if t is not None)
    options: dict[str, OptionValue] = {"axis": op.axis, "fused_activation_function": "NONE"}
    model.emit("CONCATENATION", inputs, (model.result(bound.output),), options)


def _pad(model: _Model, bound: BoundNode) -> None:
    op = bound.op(Pad)
    amounts = model.constant(np.array(op.paddings, np.int32))
    model.emit("PAD", (model.value(bound.input(0).name), amounts), (model.result(bound.output),), {})


def _resize(opcode: str) -> Callable[[_Model, BoundNode], None]:
    def export(model: _Model, bound: BoundNode) -> None:
        op = bound.node.op
        assert isinstance(op, ResizeBilinear | ResizeNearestNeighbor)
        size = model.constant(np.array([op.height, op.width], np.int32))
        options: dict[str, OptionValue] = {
            "align_corners": op.align_corners, "half_pixel_centers": op.half_pixel_centers,
        }  # fmt: skip
        model.emit(opcode, (model.value(bound.input(0).name), size), (model.result(bound.output),), options)

    return export


def _slice(model: _Model, bound: BoundNode) -> None:
    """A box of the tensor; every n-th element as a STRIDED_SLICE whose end is what the count makes it."""
    op, y = bound.node.op, bound.output
    assert isinstance(op, Slice)
    x = model.value(bound.input(0).name)
    begin = model.constant(np.array(op.starts, np.int32))
    made = model.add(y, op.counts)
    if all(step == 1 or count == 1 for step, count in zip(op.steps, op.counts, strict=True)):
        model.emit("SLICE", (x, begin, model.constant(np.array(op.counts, np.int32))), (made,), {})
    else:
        ends = [
            start + (count - 1) * step + 1 for start, step, count in zip(op.starts, op.steps, op.counts, strict=True)
        ]
        inputs = (x, begin, model.constant(np.array(ends, np.int32)), model.constant(np.array(op.steps, np.int32)))
        model.emit("STRIDED_SLICE", inputs, (made,), {})
    model.places[y.name] = model.reshaped(made, y, y.shape)


def _split(model: _Model, bound: BoundNode) -> None:
    op = bound.op(Split)
    x = model.value(bound.input(0).name)
    sizes, axis = model.constant(np.array(op.sizes, np.int32)), model.constant(np.array(op.axis, np.int32))
    outputs = tuple(model.result(tensor) for tensor in bound.outputs)
    model.emit("SPLIT_V", (x, sizes, axis), outputs, {"num_splits": len(op.sizes)})


EXPORTERS: Mapping[type[Op], Callable[[_Model, BoundNode], None]] = {
    Conv2D: _conv_2d,
    DepthwiseConv2D: _depthwise,
    ConvTranspose: _transpose_conv,
    FullyConnected: _fully_connected,
    AveragePool2D: _pool,
    MaxPool2D: _pool,
    Add: _arithmetic,
    Sub: _arithmetic,
    Mul: _arithmetic,
    Minimum: _plain("MINIMUM"),
    Maximum: _plain("MAXIMUM"),
    Logistic: _plain("LOGISTIC"),
    Tanh: _plain("TANH"),
    HardSwish: _plain("HARD_SWISH"),
    Relu: _plain("RELU"),
    Relu6: _plain("RELU6"),
    ReluN1To1: _plain("RELU_N1_TO_1"),
    LeakyRelu: _leaky_relu,
    Quantize: _plain("QUANTIZE"),
    Softmax: _softmax,
    Mean: _mean,
    Concatenation: _concatenation,
    Pad: _pad,
    ResizeNearestNeighbor: _resize("RESIZE_NEAREST_NEIGHBOR"),
    ResizeBilinear: _resize("RESIZE_BILINEAR"),
    Slice: _slice,
    StridedSlice: _slice,
    Split: _split,
    SplitV: _split,
}
"""How each operator is written that the NPU may run. What is not here stays on the core."""


def covers() -> tuple[Coverage, ...]:
    """The operators with an exporter: int8, of TFLite, and of ONNX where the NPU's rounding is allowed."""
    return tuple(Coverage(op, (DType.INT8,), ("tflite", "onnx")) for op in EXPORTERS)


def refusal(bound: BoundNode) -> str:
    """Why a node cannot be part of a region; "" where vela may be asked."""
    op = bound.node.op
    if type(op) not in EXPORTERS:
        return "emitc does not hand this operator to the NPU"
    tensors = [t for t in (*bound.inputs, *bound.outputs) if t is not None and not t.is_constant]
    other = next((t for t in tensors if t.dtype is not DType.INT8 or t.quantization is None), None)
    if other is not None:
        return f"{other.dtype.value} without the NPU's int8 quantization"
    if any(t.elements == 0 or len(t.shape) > _MAX_RANK for t in tensors):
        return f"a tensor is empty or has more than {_MAX_RANK} dimensions"
    if isinstance(op, AveragePool2D | MaxPool2D):
        dilated = (op.window.dilation_h, op.window.dilation_w) != (1, 1)
        counted = isinstance(op, AveragePool2D) and op.count_padding and op.window.padding.any
        if (
            dilated
            or counted
            or not _padding(op.window, bound.input(0).shape[1], bound.input(0).shape[2], op.kernel_h, op.kernel_w)
        ):
            return "a pool with padding or dilation that TFLite cannot express"
    if isinstance(op, Pad):
        quantization = bound.output
        if op.value != quantization.zero_point:
            return "the padding is not zero"
    if isinstance(op, Conv2D) and bound.input(WEIGHTS).shape[3] != bound.input(0).shape[3]:
        return "a convolution in groups"
    if isinstance(op, ConvTranspose) and not bound.input(WEIGHTS).is_constant:
        return "computed weights"
    if isinstance(op, ConvTranspose) and (not op.filters_first or op.groups != 1 or not tflite_padding(bound)):
        return "a transposed convolution that TFLite cannot express"
    if isinstance(op, FullyConnected) and weights_of(bound).dtype != np.int8:
        return "weights with a zero point"
    if isinstance(op, Relu6) and bound.input(0).quantization != bound.output.quantization:
        return "the NPU goes over to the output's scale, TFLite Micro does not"
    if rounds_otherwise(bound):
        return "vela's table rounds a value otherwise than TFLite Micro"
    if isinstance(op, Slice) and min(op.steps, default=1) < 1:
        return "a slice that runs backwards"
    return ""


_MAX_RANK = 4


@dataclass(frozen=True, slots=True)
class Exported:
    """data: the TFLite file. inputs, outputs: names in it, in the region's order. owners: operator index by tensor name."""

    data: bytes
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    owners: Mapping[str, int]


def export(region: Graph) -> Exported:
    """The region as a TFLite file."""
    model = _Model(region)
    inputs = []
    for name in region.inputs:
        model.places[name] = model.add(region.tensor(name))
        inputs.append(model.places[name])
    for bound in region.bound():
        model.node = bound.node.index
        EXPORTERS[type(bound.node.op)](model, bound)
    outputs = [model.value(name) for name in region.outputs]
    spec = ModelSpec(tuple(model.tensors), tuple(model.operators), tuple(inputs), tuple(outputs))
    names = [tensor.name for tensor in model.tensors]
    return Exported(
        write_tflite(spec),
        tuple(str(names[i]) for i in inputs),
        tuple(str(names[i]) for i in outputs),
        dict(model.owners),
    )

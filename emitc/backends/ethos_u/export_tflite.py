"""A region of the graph as a TFLite model for vela: the same operators, written out with explicit shapes.

Tensors are called t0, t1, ...: the names come back in vela's answer. A fully connected layer is written as a 1x1
convolution. Vela takes the product of scales in float32 for the former, and in double for the latter, as the
interpreter does. Zero points that a pass has folded into biases are taken out again.
"""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter

import numpy as np

from emitc.backends.contract import Coverage
from emitc.backends.ethos_u.rounded_tables import rounds_otherwise
from emitc.backends.kernel_library import plain_pool_refusal
from emitc.ir import Array, BoundNode, DType, Graph, Op, Shape, Tensor
from emitc.kernels.activation.activations import HardSwish, LeakyRelu, Logistic, Relu, Relu6, ReluN1To1, Tanh
from emitc.kernels.convolution.conv_2d import Conv2D
from emitc.kernels.convolution.conv_transpose import ConvTranspose, tflite_padding
from emitc.kernels.convolution.depthwise_conv_2d import DepthwiseConv2D
from emitc.kernels.elementwise.arithmetic import Add, Arithmetic, Mul, Sub
from emitc.kernels.elementwise.compare import Maximum, Minimum
from emitc.kernels.mac.accumulation import BIAS, WEIGHTS, model_bias, weights_of
from emitc.kernels.matrix.fully_connected import FullyConnected
from emitc.kernels.movement.joins import Concatenation, Split, SplitV
from emitc.kernels.movement.pad import Pad
from emitc.kernels.movement.slice import Slice, StridedSlice
from emitc.kernels.normalization.softmax import Softmax
from emitc.kernels.pooling.pool_ops import AveragePool2D, MaxPool2D
from emitc.kernels.quantization.quantize import Quantize
from emitc.kernels.reduction.mean import Mean
from emitc.kernels.resize.resize import ResizeBilinear, ResizeNearestNeighbor
from emitc.kernels.shared.windows import Padding, Window
from emitc.records import dataclass, field
from emitc.writers.tflite import ModelSpec, OperatorSpec, OptionValue, TensorSpec, write_tflite


@dataclass(slots=True)
class _Model:
    """A model that is being written. places: index of what holds the value of each tensor of the graph.

    parts: the tensors that a slice or a split made, reshaped or not.
    """

    graph: Graph
    tensors: list[TensorSpec] = field(default_factory=list)
    operators: list[OperatorSpec] = field(default_factory=list)
    places: dict[str, int] = field(default_factory=dict)
    owners: dict[str, int] = field(default_factory=dict)
    parts: set[int] = field(default_factory=set)
    node: int = -1

    def add(self, tensor: Tensor, shape: Shape | None = None, data: Array | None = None) -> int:
        """A tensor with the quantization of one of the graph's; its index."""
        q = tensor.quantization
        stated = () if q is None else (q.scales, q.zero_points, q.axis)
        dtype = tensor.dtype.value if data is None else str(data.dtype)
        self.owners[f"t{len(self.tensors)}"] = self.node
        return self._added(dtype, tensor.shape if shape is None else shape, data, *stated)

    def constant(self, values: Array, scales: tuple[float, ...] = (), axis: int = 0) -> int:
        return self._added(str(values.dtype), values.shape, values, scales, (0,) * len(scales), axis)

    def integers(self, values: Sequence[int] | Sequence[Sequence[int]] | int) -> int:
        """A constant of int32: a shape, axes or sizes."""
        return self.constant(np.array(values, np.int32))

    def _added(
        self,
        dtype: str,
        shape: Shape,
        data: Array | None,
        scales: tuple[float, ...] = (),
        zero_points: tuple[int, ...] = (),
        axis: int = 0,
    ) -> int:
        index = len(self.tensors)
        raw = None if data is None else np.ascontiguousarray(data).tobytes()
        self.tensors.append(TensorSpec(f"t{index}", dtype, shape, raw, scales, zero_points, axis))
        return index

    def emit(
        self, opcode: str, inputs: tuple[int, ...], outputs: tuple[int, ...], options: Mapping[str, OptionValue]
    ) -> None:
        self.operators.append(OperatorSpec(opcode, inputs, outputs, options))

    def reshaped(self, index: int, like: Tensor, shape: Shape) -> int:
        if self.tensors[index].shape == shape:
            return index
        made = self.add(like, shape)
        self.emit("RESHAPE", (index, self.integers(shape)), (made,), {"new_shape": shape})
        if index in self.parts:
            self.parts.add(made)
        return made

    def copied(self, index: int, like: Tensor) -> int:
        """The same values in memory of their own: vela makes no slice a part of the operator that reads the copy."""
        made = self.add(like, self.tensors[index].shape)
        one = _steps(Window(1, 1, Padding()), "VALID", "NONE", dilated=False)
        self.emit("MAX_POOL_2D", (index,), (made,), one | {"filter_height": 1, "filter_width": 1})
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
        self.places[tensor.name] = self.add(tensor)
        return self.places[tensor.name]


def _padding(window: Window, image: Shape, kernel: tuple[int, int]) -> str:
    """SAME or VALID where one of them means this padding, else "". image: the input's shape. kernel: height and width."""
    if not window.padding.any:
        return "VALID"
    same_padding: list[int] = []
    strides, dilations = (window.stride_h, window.stride_w), (window.dilation_h, window.dilation_w)
    for size, taps, stride, dilation in zip(image[1:3], kernel, strides, dilations, strict=True):
        total = max(0, (-(-size // stride) - 1) * stride + (taps - 1) * dilation + 1 - size)
        same_padding += (total // 2, total - total // 2)
    pad = window.padding
    return "SAME" if same_padding == [pad.top, pad.bottom, pad.left, pad.right] else ""


def _windowed(model: _Model, bound: BoundNode, window: Window) -> tuple[int, str]:
    """The input, inside a PAD where neither SAME nor VALID says what is meant, and the padding."""
    x, (_, kernel_h, kernel_w, _) = bound.input(0), bound.input(WEIGHTS).shape
    source = model.value(x.name)
    padding = _padding(window, x.shape, (kernel_h, kernel_w))
    if padding:
        return source, padding
    pad = window.padding
    n, height, width, channels = x.shape
    padded = model.add(x, (n, height + pad.top + pad.bottom, width + pad.left + pad.right, channels))
    amounts = model.integers([[0, 0], [pad.top, pad.bottom], [pad.left, pad.right], [0, 0]])
    model.emit("PAD", (source, amounts), (padded,), {})
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


def _steps(window: Window, padding: str, activation: str, *, dilated: bool = True) -> dict[str, OptionValue]:
    options: dict[str, OptionValue] = {
        "padding": padding, "stride_h": window.stride_h, "stride_w": window.stride_w,
        "fused_activation_function": activation,
    }  # fmt: skip
    if dilated:
        options |= {"dilation_h_factor": window.dilation_h, "dilation_w_factor": window.dilation_w}
    return options


def _convolution(model: _Model, bound: BoundNode) -> None:
    """CONV_2D, or DEPTHWISE_CONV_2D, whose output channels are the last dimension of the weights."""
    op = bound.node.op
    assert isinstance(op, Conv2D | DepthwiseConv2D)
    depthwise, weights = isinstance(op, DepthwiseConv2D), weights_of(bound)
    axis = 3 if depthwise else 0
    x, padding = _windowed(model, bound, op.window)
    sums = weights.astype(np.int64).sum(axis=tuple({0, 1, 2, 3} - {axis}))
    bias = model_bias(bound, sums, folded=op.zero_point_folded)
    inputs = (x, _filters(model, bound, weights, axis), _biases(model, bound, bias))
    options = _steps(op.window, padding, op.activation)
    if depthwise:
        options["depth_multiplier"] = weights.shape[3] // bound.input(0).shape[3]
    model.emit("DEPTHWISE_CONV_2D" if depthwise else "CONV_2D", inputs, (model.result(bound.output),), options)


def _transpose_conv(model: _Model, bound: BoundNode) -> None:
    op, y, bias = bound.op(ConvTranspose), bound.output, bound.optional(BIAS)
    weights = weights_of(bound)
    values = np.zeros(weights.shape[0], np.int64) if bias is None else bias.array()
    shape = model.integers(y.shape)
    x = model.value(bound.input(0).name)
    if x in model.parts:  # vela would lose the rows and columns before the first one
        x = model.copied(x, bound.input(0))
    inputs = (shape, _filters(model, bound, weights, 0), x, _biases(model, bound, values))
    options = _steps(op.window, tflite_padding(bound), op.activation, dilated=False)
    model.emit("TRANSPOSE_CONV", inputs, (model.result(y),), options)


def _fully_connected(model: _Model, bound: BoundNode) -> None:
    op, x, y = bound.op(FullyConnected), bound.input(0), bound.output
    weights = weights_of(bound)
    out, depth = weights.shape
    rows = x.elements // depth
    source = model.reshaped(model.value(x.name), x, (1, 1, rows, depth))
    bias = model_bias(bound, weights.astype(np.int64).sum(axis=1), folded=op.zero_point_folded)
    inputs = (source, _filters(model, bound, weights.reshape(out, 1, 1, depth), 0), _biases(model, bound, bias))
    made = model.add(y, (1, 1, rows, out))
    model.emit("CONV_2D", inputs, (made,), _steps(Window(1, 1, Padding()), "VALID", op.activation))
    model.places[y.name] = model.reshaped(made, y, y.shape)


def _pool(model: _Model, bound: BoundNode) -> None:
    op = bound.node.op
    assert isinstance(op, AveragePool2D | MaxPool2D)
    padding = _padding(op.window, bound.input(0).shape, (op.kernel_h, op.kernel_w))
    options = _steps(op.window, padding, op.activation, dilated=False)
    options |= {"filter_height": op.kernel_h, "filter_width": op.kernel_w}
    opcode = "AVERAGE_POOL_2D" if isinstance(op, AveragePool2D) else "MAX_POOL_2D"
    model.emit(opcode, (model.value(bound.input(0).name),), (model.result(bound.output),), options)


Options = Callable[[Op], Mapping[str, OptionValue]]


def _plain(
    opcode: str, options: Options = lambda op: {}, integers: Callable[[Op], Sequence[int]] | None = None
) -> Callable[[_Model, BoundNode], None]:
    """An operator whose inputs are all tensors, with these options. integers: of a further input, a constant."""

    def export(model: _Model, bound: BoundNode) -> None:
        op = bound.node.op
        inputs = tuple(model.value(t.name) for t in bound.inputs if t is not None)
        if integers is not None:
            inputs = (inputs[0], model.integers(integers(op)))
        model.emit(opcode, inputs, tuple(model.result(t) for t in bound.outputs), options(op))

    return export


def _named(*names: str, **fixed: OptionValue) -> Options:
    """The options that are attributes of the operator under these names, and those with fixed values."""
    return lambda op: {**{name: getattr(op, name) for name in names}, **fixed}


def _activation(op: Op) -> Mapping[str, OptionValue]:
    assert isinstance(op, Arithmetic)
    return {"fused_activation_function": op.activation}


_RESIZED = _named("align_corners", "half_pixel_centers")


def _slice(model: _Model, bound: BoundNode) -> None:
    """A box of the tensor; every n-th element as a STRIDED_SLICE whose end is what the count makes it.

    Every n-th row or column is copied. Otherwise vela divides the rows and columns by n once more, where an operator of two
    operands or with a window of several rows or columns reads them.
    """
    op, y = bound.op(Slice), bound.output
    x = model.value(bound.input(0).name)
    begin = model.integers(op.starts)
    made = model.add(y, op.counts)
    if all(step == 1 or count == 1 for step, count in zip(op.steps, op.counts, strict=True)):
        model.emit("SLICE", (x, begin, model.integers(op.counts)), (made,), {})
    else:
        ends = [
            start + (count - 1) * step + 1 for start, step, count in zip(op.starts, op.steps, op.counts, strict=True)
        ]
        inputs = (x, begin, model.integers(ends), model.integers(op.steps))
        model.emit("STRIDED_SLICE", inputs, (made,), {})
        made = model.copied(made, y)
    model.parts.add(made)
    model.places[y.name] = model.reshaped(made, y, y.shape)


def _split(model: _Model, bound: BoundNode) -> None:
    op = bound.op(Split)
    inputs = (model.value(bound.input(0).name), model.integers(op.sizes), model.integers(op.axis))
    outputs = tuple(model.result(tensor) for tensor in bound.outputs)
    model.parts.update(outputs)
    model.emit("SPLIT_V", inputs, outputs, {"num_splits": len(op.sizes)})


EXPORTERS: Mapping[type[Op], Callable[[_Model, BoundNode], None]] = {
    Conv2D: _convolution,
    DepthwiseConv2D: _convolution,
    ConvTranspose: _transpose_conv,
    FullyConnected: _fully_connected,
    AveragePool2D: _pool,
    MaxPool2D: _pool,
    Add: _plain("ADD", _activation),
    Sub: _plain("SUB", _activation),
    Mul: _plain("MUL", _activation),
    Minimum: _plain("MINIMUM"),
    Maximum: _plain("MAXIMUM"),
    Logistic: _plain("LOGISTIC"),
    Tanh: _plain("TANH"),
    HardSwish: _plain("HARD_SWISH"),
    Relu: _plain("RELU"),
    Relu6: _plain("RELU6"),
    ReluN1To1: _plain("RELU_N1_TO_1"),
    LeakyRelu: _plain("LEAKY_RELU", _named("alpha")),
    Quantize: _plain("QUANTIZE"),
    Softmax: _plain("SOFTMAX", _named("beta")),
    Mean: _plain("MEAN", _named("keep_dims"), attrgetter("axes")),
    Concatenation: _plain("CONCATENATION", _named("axis", fused_activation_function="NONE")),
    Pad: _plain("PAD", integers=attrgetter("paddings")),
    ResizeNearestNeighbor: _plain("RESIZE_NEAREST_NEIGHBOR", _RESIZED, attrgetter("height", "width")),
    ResizeBilinear: _plain("RESIZE_BILINEAR", _RESIZED, attrgetter("height", "width")),
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
        padding = _padding(op.window, bound.input(0).shape, (op.kernel_h, op.kernel_w))
        if plain_pool_refusal(bound) or not padding:
            return "a pool with padding or dilation that TFLite cannot express"
    if isinstance(op, Pad) and op.value != bound.output.zero_point:
        return "the padding is not zero"
    if isinstance(op, Conv2D) and bound.input(WEIGHTS).shape[3] != bound.input(0).shape[3]:
        return "a convolution in groups"
    if isinstance(op, ConvTranspose) and not bound.input(WEIGHTS).is_constant:
        return "computed weights"
    if isinstance(op, ConvTranspose) and (not op.filters_first or op.groups != 1 or not tflite_padding(bound)):
        return "a transposed convolution that TFLite cannot express"
    if isinstance(op, FullyConnected) and weights_of(bound).dtype != np.int8:
        return "weights with a zero point"
    if isinstance(op, Arithmetic | Minimum | Maximum):
        operands = [bound.input(position) for position in (0, 1)]
        if all(t.elements < bound.output.elements for t in operands) and any(t.alias_of for t in operands):
            return "vela computes otherwise where both operands are repeated and one was reshaped"
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
    sides, made = (tuple(f"t{index}" for index in side) for side in (inputs, outputs))
    return Exported(write_tflite(spec), sides, made, dict(model.owners))

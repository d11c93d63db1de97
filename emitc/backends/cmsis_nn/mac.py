"""Convolutions and fully connected layers as calls of CMSIS-NN.

Weights are the model's own: OHWI, or [1, H, W, C] of a depthwise convolution. A bias is that of the model, with the zero
point taken out again where a pass has folded it in.

With int16 activations sums are of 64 bits, but kernels add up to 512 products in 32; the requantization drops all but 31 bits of
a result before it rounds. Both are exact but at extremes, which are refused.
"""

import numpy as np

from emitc.backends.cmsis_nn.buffer_sizes import Call, Dims, transpose_conv_second_bytes
from emitc.backends.cmsis_nn.calls import GENERAL, NULL, Arguments, Library, call_of, members_of, tile
from emitc.backends.cmsis_nn.known_bugs import Remedy
from emitc.backends.cmsis_nn.versions import KernelSums
from emitc.backends.kernel_library import POINTER, number
from emitc.ir import BoundNode, DType
from emitc.kernels.convolution.conv_2d import Conv2D
from emitc.kernels.convolution.conv_transpose import ConvTranspose, tflite_padding
from emitc.kernels.convolution.depthwise_conv_2d import DepthwiseConv2D
from emitc.kernels.mac.accumulation import BIAS, WEIGHTS, bias_of, model_bias, requantization, weights_of
from emitc.kernels.matrix.fully_connected import FullyConnected
from emitc.kernels.shared.int16x8 import worst_sum
from emitc.kernels.shared.windows import Padding, Window
from emitc.layer import Expression, Layer, Scratch, Structure, Table
from emitc.numerics.requantize import INT32_MAX, Int64, Multiplier

_PIXELS = 2
"""That share what is loaded of the weights: two in convolutions, more with MVE; one figure gives a copy rather less often."""


def _tables(bound: BoundNode, weights: Int64, bias: Int64, bias_type: str = "int32_t") -> tuple[Table, ...]:
    w, scale = bound.input(WEIGHTS), requantization(bound)
    repeat = 1 if scale.per_channel else bias.size
    shape = "x".join(map(str, w.shape))
    if w.dtype.packed:
        assert w.data is not None
        shape, weights = f"{shape}, two of four bits in a byte", np.frombuffer(w.data, np.int8).astype(np.int64)
    return (
        Table("weights", "int8_t", tuple(weights.reshape(-1).tolist()), f"weights {shape}", pixels_per_load=_PIXELS),
        Table("bias", bias_type, tuple(bias.reshape(-1).tolist()), "bias per output channel"),
        Table("multiplier", "int32_t", scale.q31 * repeat, "Q31 per output channel"),
        Table("shift", "int32_t", scale.shift * repeat, "positive left"),
    )


def _shapes(library: Library, call: Call, channels: int) -> tuple[Structure, ...]:
    bias = Dims(1, 1, 1, channels)
    return library.dims(
        {"input_dims": call.input, "filter_dims": call.filter, "bias_dims": bias, "output_dims": call.output}
    )


def _quantization(library: Library) -> Structure:
    members = {"multiplier": Expression(POINTER, "multiplier"), "shift": Expression(POINTER, "shift")}
    return library.structure("quantization", "cmsis_nn_per_channel_quant_params", members, constant=False)


def _convolution(library: Library, function: str, bound: BoundNode, call: Call, window: Window) -> Layer:
    """arm_convolve_wrapper_s8, arm_depthwise_conv_wrapper_s8 and those for 4-bit weights and int16 activations.

    call: shapes as the function sees them; a fully connected layer is a convolution of 1x1.
    """
    op = bound.node.op
    assert isinstance(op, Conv2D | DepthwiseConv2D | FullyConnected)
    depthwise, channels = isinstance(op, DepthwiseConv2D), call.output.c
    weights = weights_of(bound).astype(np.int64)
    sums = weights.reshape(-1, channels).sum(axis=0) if depthwise else weights.reshape(channels, -1).sum(axis=1)
    bias_type, typed_bias = bias_of_call(library, function, bound)
    tables = _tables(bound, weights, model_bias(bound, sums, folded=op.zero_point_folded), bias_type)
    members = members_of(bound, op.activation, window) | {"ch_mult": number(channels // call.input.c)}
    c_type = "cmsis_nn_dw_conv_params" if depthwise else "cmsis_nn_conv_params"
    structures = (
        library.structure("params", c_type, members),
        *_shapes(library, call, channels),
        _quantization(library),
        *((typed_bias,) if typed_bias else ()),
    )
    if library.remedies(function, call) & {Remedy.GENERAL_KERNEL}:
        function = GENERAL[function]
    macs = call.output.n * call.output.h * call.output.w * weights.size
    arguments = Arguments(structures, {"upscale_dims": NULL})
    return library.called_with_buffer(function, arguments, tables, library.bytes_of(function, call), macs)


def _windowed_call(bound: BoundNode) -> tuple[Call, Window]:
    op = bound.node.op
    assert isinstance(op, Conv2D | DepthwiseConv2D)
    return call_of(bound, op.window, Dims(*bound.input(WEIGHTS).shape)), op.window


def _suffix(bound: BoundNode) -> str:
    """The suffix of the function's name: the bits of activations and weights."""
    if is_wide(bound):
        return "s16"
    return "s4" if bound.input(WEIGHTS).dtype.packed else "s8"


def _wrapper(bound: BoundNode) -> str:
    kind = "depthwise_conv" if isinstance(bound.node.op, DepthwiseConv2D) else "convolve"
    return f"arm_{kind}_wrapper_{_suffix(bound)}"


def windowed_refusal(library: Library, bound: BoundNode) -> str:
    (call, _), suffix = _windowed_call(bound), _suffix(bound)
    depthwise = isinstance(bound.node.op, DepthwiseConv2D)
    if suffix != "s8" and not depthwise and call.input.c != call.filter.c:
        return f"its functions for {'4-bit weights' if suffix == 's4' else 'int16 activations'} have no groups"
    refused = sums_refusal(library, _wrapper(bound), bound, 3 if depthwise else 0) if is_wide(bound) else ""
    return refused or library.fault(_wrapper(bound), call)


def windowed(library: Library, bound: BoundNode) -> Layer:
    return _convolution(library, _wrapper(bound), bound, *_windowed_call(bound))


def fully_connected_refusal(library: Library, bound: BoundNode) -> str:
    """Weights with a zero point; of int16 activations sums that leave the function's."""
    if weights_of(bound).dtype != np.int8:
        return "weights with a zero point"
    if not is_wide(bound):
        return ""
    function = "arm_convolve_wrapper_s16" if requantization(bound).per_channel else "arm_fully_connected_s16"
    return sums_refusal(library, function, bound, 0)


def fully_connected(library: Library, bound: BoundNode) -> Layer:
    """As a matrix; with one multiplier per output as a 1x1 convolution of one row, which is the same sum."""
    op = bound.op(FullyConnected)
    out, depth = bound.input(WEIGHTS).shape
    rows = bound.input(0).elements // depth
    scale = requantization(bound)
    if scale.per_channel:
        call = Call(Dims(1, 1, rows, depth), Dims(out, 1, 1, depth), Dims(1, 1, rows, out))
        function = f"arm_convolve_wrapper_{'s16' if is_wide(bound) else 's8'}"
        return _convolution(library, function, bound, call, Window(1, 1, Padding()))
    weights = weights_of(bound).astype(np.int64)
    sums = weights.sum(axis=1)
    bias = model_bias(bound, sums, folded=op.zero_point_folded)
    function = f"arm_fully_connected_{_suffix(bound)}"
    tables = _tables(bound, weights, bias, bias_of_call(library, function, bound)[0])[:2]
    call = Call(Dims(rows, 1, 1, depth), Dims(depth, 1, 1, out), Dims(rows, 1, 1, out))
    size = library.bytes_of(function, call)
    if size:
        tables = (*tables, kernel_sums(library, sums, bias, -bound.input(0).zero_point))
    members = members_of(bound, op.activation) | {"filter_offset": number(0)}
    structures = (
        library.structure("params", "cmsis_nn_fc_params", members),
        library.quantization(Multiplier(scale.q31[0], scale.shift[0])),
        *_shapes(library, call, out),
        library.context(size, Expression(POINTER, "sums")),
    )
    return library.called(function, Arguments(structures), tables, macs=rows * depth * out)


def kernel_sums(library: Library, sums: Int64, bias: Int64, offset: int) -> Table:
    """What the kernel of this version reads for MVE; it is a constant of the model."""
    values, what = sums, "sum of the weights per output"
    if library.tree.version.sums is KernelSums.BIAS_AND_OFFSET:
        values, what = sums * offset + bias, f"{what} times the input's offset, and the bias"
    return Table("sums", "int32_t", tuple(values.astype(np.int32).tolist()), what)


def _transposed_function(library: Library) -> str:
    wrapper = "arm_transpose_conv_wrapper_s8"
    return wrapper if wrapper in library.tree.functions else "arm_transpose_conv_s8"


def _transposed_call(bound: BoundNode) -> Call:
    return call_of(bound, bound.op(ConvTranspose).window, Dims(*bound.input(WEIGHTS).shape))


_ROWS_BY_STRIDE = (18, 0, 0)
"""From this revision on the library writes a stride's rows and columns for each of the input's, whatever the output has.
Measured: with other output sizes it wrote beyond the output in 7 of 32 random layers, in 7.0.0 and later.
"""


def _whole_strides(bound: BoundNode) -> bool:
    """Whether the output is the input times the stride, or without padding what stride and filter reach."""
    op, x, w, y = bound.op(ConvTranspose), bound.input(0), bound.input(WEIGHTS), bound.output
    same = tflite_padding(bound) == "SAME"
    steps = op.window.stride_h, op.window.stride_w
    return all(
        out == (size * step if same else (size - 1) * step + max(kernel, step))
        for out, size, step, kernel in zip(y.shape[1:3], x.shape[1:3], steps, w.shape[1:3], strict=True)
    )


def transposed_refusal(library: Library, bound: BoundNode) -> str:
    """A computed operand, faults of the version, and what TFLite cannot say."""
    op = bound.op(ConvTranspose)
    if not all(tensor is None or tensor.is_constant for tensor in bound.inputs[WEIGHTS:]):
        return "computed weights or bias"
    if not tflite_padding(bound) or op.groups != 1:
        return "a padding or groups that TFLite does not have"
    if library.tree.version.functions >= _ROWS_BY_STRIDE and not _whole_strides(bound):
        return f"CMSIS-NN {library.tree.version}: it writes outside outputs that are no whole number of strides"
    return library.fault(_transposed_function(library), _transposed_call(bound))


def transposed(library: Library, bound: BoundNode) -> Layer:
    """arm_transpose_conv_s8, which has two buffers; padding_offsets is what is cut off at the end of the output."""
    op, w = bound.op(ConvTranspose), bound.input(WEIGHTS)
    function, call, channels = _transposed_function(library), _transposed_call(bound), w.shape[0]
    bias = bound.optional(BIAS)
    biases = np.zeros(channels, np.int64) if bias is None else bias.array().astype(np.int64)
    pad = op.window.padding
    members = members_of(bound, op.activation, op.window) | {"padding_offsets": tile(pad.bottom, pad.right)}
    scratch = (
        Scratch("scratch", library.bytes_of("arm_transpose_conv_s8", call)),
        Scratch("second", transpose_conv_second_bytes(library.tree.version, library.instructions, call)),
    )
    structures = (
        library.structure("params", "cmsis_nn_transpose_conv_params", members),
        *_shapes(library, call, channels),
        _quantization(library),
        *(
            library.context(buffer.size_bytes, Expression(buffer.role), role)
            for buffer, role in zip(scratch, ("context", "second_context"), strict=True)
        ),
    )
    tables = _tables(bound, w.array().astype(np.int64), biases)
    macs = bound.input(0).elements * w.elements // w.shape[3]
    return library.called(function, Arguments(structures), tables, scratch, macs)


_RESULT_LIMIT = 1 << 30
_BIAS_STRUCTURE = "cmsis_nn_bias_data"
"""What convolutions take since a bias may have 32 bits."""


def is_wide(bound: BoundNode) -> bool:
    return bound.input(0).dtype is DType.INT16


def has_short_sums(bound: BoundNode) -> bool:
    """Whether sums are of 32 bits: those of int8 activations, or with an int32 bias."""
    return not requantization(bound).reduced


def _takes_structure(library: Library, function: str) -> bool:
    parameters = library.tree.functions.get(function, ())
    return any(_BIAS_STRUCTURE in parameter.c_type for parameter in parameters)


def sums_refusal(library: Library, function: str, bound: BoundNode, channel_axis: int) -> str:
    """Why the function's sums are not the interpreter's. channel_axis: dimension of the weights with output channels."""
    if has_short_sums(bound):
        taken = _takes_structure(library, function)
        return "" if taken else f"{function} of CMSIS-NN {library.tree.version} takes no bias of 32 bits"
    weights = weights_of(bound)
    filters = np.moveaxis(weights, channel_axis, 0).astype(np.int64).reshape(weights.shape[channel_axis], -1)
    none = np.zeros(len(filters), np.int64)
    if int(filters.min()) == -128 and worst_sum(filters, none) > INT32_MAX:
        return "with weights of -128 its sums of 512 products can leave 32 bits"
    scale = requantization(bound)
    shift = np.array(scale.shift, np.float64)
    largest = worst_sum(filters, bias_of(bound, len(filters))) * float(np.exp2(shift).max())
    return "" if largest < _RESULT_LIMIT else "its requantization loses results beyond 30 bits"


def bias_of_call(library: Library, function: str, bound: BoundNode) -> tuple[str, Structure | None]:
    """The type of the constant that holds the bias, and the structure around it where the function takes one."""
    c_type = "int32_t" if has_short_sums(bound) else "int64_t"
    if not is_wide(bound) or not _takes_structure(library, function):
        return c_type, None
    members = {"data": Expression(table="bias"), "is_int32_bias": number(int(has_short_sums(bound)))}
    return c_type, library.structure("typed_bias", _BIAS_STRUCTURE, members, constant=False)

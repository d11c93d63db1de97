"""Convolutions and fully connected layers as calls of CMSIS-NN.

Weights are the model's own: OHWI, or [1, H, W, C] of a depthwise convolution. A bias is that of the model, with the zero
point taken out again where a pass has folded it in.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from emitc.backends.cmsis_nn import int16
from emitc.backends.cmsis_nn.buffer_sizes import BUFFER_SIZES, Call, Dims, transpose_conv_second_bytes, workspace_bytes
from emitc.backends.cmsis_nn.calls import (
    GENERAL,
    POINTER,
    VARIANT,
    Arguments,
    Library,
    called,
    context_of,
    dims,
    fault,
    limits,
    number,
    ordered,
    reference,
    remedies,
    structure,
    tile,
    window_members,
    zero_points,
)
from emitc.backends.cmsis_nn.known_bugs import Remedy
from emitc.backends.cmsis_nn.versions import KernelSums
from emitc.ir import BoundNode
from emitc.kernels.convolution.conv_2d import Conv2D
from emitc.kernels.convolution.conv_transpose import ConvTranspose, tflite_padding
from emitc.kernels.convolution.depthwise_conv_2d import DepthwiseConv2D
from emitc.kernels.mac.accumulation import model_bias, weights_of
from emitc.kernels.mac.requantization import BIAS, WEIGHTS, requantization
from emitc.kernels.matrix.fully_connected import FullyConnected
from emitc.kernels.shared.windows import Padding, Window
from emitc.layer import Expression, Layer, LibraryCall, Scratch, Structure, Table
from emitc.numerics.requantize import Int64, activation_clamp

_PIXELS = 2
"""That share what is loaded of the weights: two in convolutions, more with MVE; one figure gives a copy rather less often."""


def _tables(
    bound: BoundNode, weights: Int64, bias: Int64, multiplier: list[int], shift: list[int], bias_type: str = "int32_t"
) -> tuple[Table, ...]:
    w = bound.input(WEIGHTS)
    shape = "x".join(map(str, w.shape))
    if w.dtype.packed:
        assert w.data is not None
        shape, weights = f"{shape}, two of four bits in a byte", np.frombuffer(w.data, np.int8).astype(np.int64)
    return (
        Table("weights", "int8_t", tuple(weights.reshape(-1).tolist()), f"weights {shape}", pixels_per_load=_PIXELS),
        Table("bias", bias_type, tuple(bias.reshape(-1).tolist()), "bias per output channel"),
        Table("multiplier", "int32_t", tuple(multiplier), "Q31 per output channel"),
        Table("shift", "int32_t", tuple(shift), "positive left"),
    )


def _per_channel(bound: BoundNode, channels: int) -> tuple[list[int], list[int]]:
    found = requantization(bound)
    repeat = 1 if found.per_channel else channels
    return list(found.q31) * repeat, list(found.shift) * repeat


def _quantization(library: Library) -> Structure:
    members = {"multiplier": Expression(POINTER, "multiplier"), "shift": Expression(POINTER, "shift")}
    return structure(library, "quantization", "cmsis_nn_per_channel_quant_params", members, constant=False)


def _convolution(
    library: Library, function: str, bound: BoundNode, call: Call, window: Window, activation: str, weights: Int64,
    sums: Int64, *, folded: bool, macs: int,
) -> Layer:  # fmt: skip
    """arm_convolve_wrapper_s8, arm_depthwise_conv_wrapper_s8 and those for 4-bit weights and int16 activations."""
    zero_x, zero_y = zero_points(bound)
    depthwise = "depthwise" in function
    channels = call.output.c
    multiplier, shift = _per_channel(bound, channels)
    bias_type, typed_bias = int16.bias_of_call(library, function, bound)
    tables = _tables(bound, weights, model_bias(bound, sums, folded=folded), multiplier, shift, bias_type)
    members = {
        "input_offset": number(-zero_x),
        "output_offset": number(zero_y),
        "ch_mult": number(channels // call.input.c),
        "activation": limits(activation_clamp(activation, bound.output)),
        **window_members(window),
    }
    c_type = "cmsis_nn_dw_conv_params" if depthwise else "cmsis_nn_conv_params"
    structures = (
        structure(library, "params", c_type, members),
        dims(library, "input_dims", call.input),
        dims(library, "filter_dims", call.filter),
        dims(library, "bias_dims", Dims(1, 1, 1, channels)),
        dims(library, "output_dims", call.output),
        _quantization(library),
        *((typed_bias,) if typed_bias else ()),
    )
    by_role = {each.role: reference(each) for each in structures}
    bias = by_role["typed_bias"] if typed_bias else Expression(table="bias")
    values = {
        **dict.fromkeys(("conv_params", "dw_conv_params"), by_role["params"]),
        "quant_params": by_role["quantization"],
        **{name: by_role[name] for name in ("input_dims", "filter_dims", "bias_dims", "output_dims")},
        **{name: Expression("x0") for name in ("input", "input_data")},
        **{name: Expression(table="weights") for name in ("filter", "filter_data", "kernel")},
        **dict.fromkeys(("bias", "bias_data"), bias),
        **{name: Expression("y") for name in ("output", "output_data")},
        "upscale_dims": Expression("NULL"),
    }
    if remedies(library, function, call) & {Remedy.GENERAL_KERNEL}:
        function = GENERAL[function]
    size_function = f"{function}_get_buffer_size"
    sized = size_function in BUFFER_SIZES
    size = workspace_bytes(size_function, library.tree.version, library.instructions, call) if sized else 0
    return called(library, function, bound, Arguments(values, structures), tables, size, macs)


def _conv_2d_call(bound: BoundNode) -> Call:
    op, x, w, y = bound.node.op, bound.input(0), bound.input(WEIGHTS), bound.output
    assert isinstance(op, Conv2D | DepthwiseConv2D)
    pad = op.window.padding
    return Call(
        Dims(*x.shape), Dims(*w.shape), Dims(*y.shape), op.window.stride_h, op.window.stride_w, pad.top, pad.left,
        op.window.dilation_h, op.window.dilation_w,
    )  # fmt: skip


def _suffix(bound: BoundNode) -> str:
    """Of functions: by the bits of activations and weights."""
    if int16.is_wide(bound):
        return "s16"
    return "s4" if bound.input(WEIGHTS).dtype.packed else "s8"


def conv_2d_refusal(library: Library, bound: BoundNode) -> str:
    call = _conv_2d_call(bound)
    if bound.input(WEIGHTS).dtype.packed and call.input.c != call.filter.c:
        return "its functions for 4-bit weights have no groups"
    function = f"arm_convolve_wrapper_{_suffix(bound)}"
    if int16.is_wide(bound):
        if call.input.c != call.filter.c:
            return "its functions for int16 activations have no groups"
        return int16.sums_refusal(library, function, bound, 0) or fault(library, function, call)
    return fault(library, function, call)


def conv_2d(library: Library, bound: BoundNode) -> Layer:
    op, w = bound.node.op, bound.input(WEIGHTS)
    assert isinstance(op, Conv2D)
    weights = weights_of(bound).astype(np.int64)
    return _convolution(
        library, f"arm_convolve_wrapper_{_suffix(bound)}", bound, _conv_2d_call(bound), op.window, op.activation, weights,
        weights.sum(axis=(1, 2, 3)), folded=op.zero_point_folded,
        macs=bound.output.elements * w.shape[1] * w.shape[2] * w.shape[3],
    )  # fmt: skip


def depthwise_refusal(library: Library, bound: BoundNode) -> str:
    function = f"arm_depthwise_conv_wrapper_{_suffix(bound)}"
    refused = int16.sums_refusal(library, function, bound, 3) if int16.is_wide(bound) else ""
    return refused or fault(library, function, _conv_2d_call(bound))


def depthwise(library: Library, bound: BoundNode) -> Layer:
    op, w, y = bound.node.op, bound.input(WEIGHTS), bound.output
    assert isinstance(op, DepthwiseConv2D)
    call = _conv_2d_call(bound)
    weights = weights_of(bound).astype(np.int64)
    return _convolution(
        library, f"arm_depthwise_conv_wrapper_{_suffix(bound)}", bound, call, op.window, op.activation, weights,
        weights.sum(axis=(0, 1, 2)), folded=op.zero_point_folded, macs=y.elements * w.shape[1] * w.shape[2],
    )  # fmt: skip


def fully_connected_refusal(library: Library, bound: BoundNode) -> str:
    """Weights with a zero point; of int16 activations sums that leave the function's."""
    if weights_of(bound).dtype != np.int8:
        return "weights with a zero point"
    if not int16.is_wide(bound):
        return ""
    function = "arm_convolve_wrapper_s16" if requantization(bound).per_channel else "arm_fully_connected_s16"
    return int16.sums_refusal(library, function, bound, 0)


def _matrix_arguments(structures: Sequence[Structure]) -> dict[str, Expression]:
    """What a fully connected function is called with, by the names of its parameters in all versions."""
    by_role = {each.role: reference(each) for each in structures}
    return {
        "ctx": by_role["context"],
        "fc_params": by_role["params"],
        "quant_params": by_role["quantization"],
        **{name: by_role[name] for name in ("input_dims", "filter_dims", "bias_dims", "output_dims")},
        **{name: Expression("x0") for name in ("input", "input_data")},
        **{name: Expression(table="weights") for name in ("kernel", "filter_data")},
        **{name: Expression(table="bias") for name in ("bias", "bias_data")},
        **{name: Expression("y") for name in ("output", "output_data")},
    }


def fully_connected(library: Library, bound: BoundNode) -> Layer:
    """As a matrix; with one multiplier per output as a 1x1 convolution of one row, which is the same sum."""
    op, w = bound.node.op, bound.input(WEIGHTS)
    assert isinstance(op, FullyConnected)
    out, depth = w.shape
    rows = bound.input(0).elements // depth
    weights = weights_of(bound).astype(np.int64)
    sums, macs = weights.sum(axis=1), rows * depth * out
    found = requantization(bound)
    if found.per_channel:
        call = Call(Dims(1, 1, rows, depth), Dims(out, 1, 1, depth), Dims(1, 1, rows, out))
        window = Window(1, 1, Padding())
        return _convolution(
            library, f"arm_convolve_wrapper_{'s16' if int16.is_wide(bound) else 's8'}", bound, call, window, op.activation,
            weights, sums,
            folded=op.zero_point_folded, macs=macs,
        )  # fmt: skip
    zero_x, zero_y = zero_points(bound)
    bias = model_bias(bound, sums, folded=op.zero_point_folded)
    function = f"arm_fully_connected_{_suffix(bound)}"
    bias_type, _ = int16.bias_of_call(library, function, bound)
    tables: tuple[Table, ...] = _tables(bound, weights, bias, [], [], bias_type)[:2]
    call = Call(Dims(rows, 1, 1, depth), Dims(depth, 1, 1, out), Dims(rows, 1, 1, out))
    unsized = _suffix(bound) != "s8"
    sized = BUFFER_SIZES["arm_fully_connected_s8_get_buffer_size"](library.tree.version, library.instructions, call)
    size = 0 if unsized else sized
    buffer = Expression("NULL")
    if size:
        tables = (*tables, kernel_sums(library, sums, bias, -zero_x))
        buffer = Expression(POINTER, "sums")
    structures = (
        structure(
            library,
            "params",
            "cmsis_nn_fc_params",
            {
                "input_offset": number(-zero_x),
                "filter_offset": number(0),
                "output_offset": number(zero_y),
                "activation": limits(activation_clamp(op.activation, bound.output)),
            },
        ),
        structure(
            library,
            "quantization",
            "cmsis_nn_per_tensor_quant_params",
            {"multiplier": number(found.q31[0]), "shift": number(found.shift[0])},
        ),
        dims(library, "input_dims", call.input),
        dims(library, "filter_dims", call.filter),
        dims(library, "bias_dims", Dims(1, 1, 1, out)),
        dims(library, "output_dims", call.output),
        context_of(library, size, buffer),
    )
    values = _matrix_arguments(structures)
    lib_call = LibraryCall(function, ordered(library, function, values), structures)
    return Layer("cmsis_nn/call", VARIANT, (0,), tables, macs=macs, fallible=True, call=lib_call)


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
    op, x, w, y = bound.node.op, bound.input(0), bound.input(WEIGHTS), bound.output
    assert isinstance(op, ConvTranspose)
    pad = op.window.padding
    return Call(
        Dims(*x.shape), Dims(*w.shape), Dims(*y.shape), op.window.stride_h, op.window.stride_w, pad.top, pad.left
    )


_ROWS_BY_STRIDE = (18, 0, 0)
"""From this revision on the library writes a stride's rows and columns for each of the input's, whatever the output has.
Measured: with other output sizes it wrote behind the output in 7 of 32 random layers, in 7.0.0 and later."""


def _whole_strides(bound: BoundNode) -> bool:
    """Whether the output is the input times the stride, or without padding what stride and filter reach."""
    op, x, w, y = bound.node.op, bound.input(0), bound.input(WEIGHTS), bound.output
    assert isinstance(op, ConvTranspose)
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
    return fault(library, _transposed_function(library), _transposed_call(bound))


def transposed(library: Library, bound: BoundNode) -> Layer:
    """arm_transpose_conv_s8, which has two buffers; padding_offsets is what is cut off behind the output."""
    op, w, y = bound.node.op, bound.input(WEIGHTS), bound.output
    assert isinstance(op, ConvTranspose)
    function, call, channels = _transposed_function(library), _transposed_call(bound), w.shape[0]
    zero_x, zero_y = zero_points(bound)
    multiplier, shift = _per_channel(bound, channels)
    bias = bound.optional(BIAS)
    values = np.zeros(channels, np.int64) if bias is None else bias.array().astype(np.int64)
    tables = _tables(bound, w.array().astype(np.int64), values, multiplier, shift)
    pad = op.window.padding
    members = {
        "input_offset": number(-zero_x),
        "output_offset": number(zero_y),
        "activation": limits(activation_clamp(op.activation, y)),
        **window_members(op.window),
        "padding_offsets": tile(pad.bottom, pad.right),
    }
    version, instructions = library.tree.version, library.instructions
    sizes = (
        workspace_bytes("arm_transpose_conv_s8_get_buffer_size", version, instructions, call),
        transpose_conv_second_bytes(version, instructions, call),
    )
    roles = ("scratch", "second")
    contexts = [
        context_of(library, size, Expression(role if size else "NULL"), name)
        for size, role, name in zip(sizes, roles, ("context", "second_context"), strict=True)
    ]
    structures = (
        structure(library, "params", "cmsis_nn_transpose_conv_params", members),
        dims(library, "input_dims", call.input),
        dims(library, "filter_dims", call.filter),
        dims(library, "bias_dims", Dims(1, 1, 1, channels)),
        dims(library, "output_dims", call.output),
        _quantization(library),
        *contexts,
    )
    by_role = {each.role: reference(each) for each in structures}
    arguments = {
        "ctx": by_role["context"],
        **dict.fromkeys(("output_ctx", "reverse_conv_ctx"), by_role["second_context"]),
        "transpose_conv_params": by_role["params"],
        "quant_params": by_role["quantization"],
        **{name: by_role[name] for name in ("input_dims", "filter_dims", "bias_dims", "output_dims")},
        **{name: Expression("x0") for name in ("input", "input_data")},
        **{name: Expression(table="weights") for name in ("filter", "filter_data", "kernel")},
        **{name: Expression(table="bias") for name in ("bias", "bias_data")},
        **{name: Expression("y") for name in ("output", "output_data")},
    }
    made = LibraryCall(function, ordered(library, function, arguments), structures)
    scratch = tuple(Scratch(role, size) for role, size in zip(roles, sizes, strict=True) if size)
    macs = bound.input(0).elements * w.elements // w.shape[3]
    return Layer("cmsis_nn/call", VARIANT, (0,), tables, scratch=scratch, macs=macs, fallible=True, call=made)

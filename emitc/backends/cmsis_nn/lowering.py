"""Operators as calls of CMSIS-NN: which function, what it takes, and why some are not taken.

The order of a function's arguments and the members of its structures come from the tree's own headers; here they are
given by name. Weights are the model's own: OHWI, or [1, H, W, C] of a depthwise convolution. Offsets are zero points,
negative at inputs; a shift is positive to the left; a bias is that of the model, with the zero point taken out again where
a pass has folded it in.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from emitc.backends.cmsis_nn.faults import Remedy, Use, faults_of
from emitc.backends.cmsis_nn.headers import InstructionSet
from emitc.backends.cmsis_nn.scratch import BUFFER_SIZES, Call, Dims, workspace_bytes
from emitc.backends.cmsis_nn.versions import KernelSums, Tree
from emitc.ir import BoundNode, DType, Numerics, Op
from emitc.kernels.accumulate import WEIGHTS, model_bias, requantization, weights_of
from emitc.kernels.arithmetic import Add, Arithmetic, Mul
from emitc.kernels.contract import Expression, Layer, LibraryCall, Scratch, Structure, Table
from emitc.kernels.conv_2d import Conv2D
from emitc.kernels.depthwise_conv_2d import DepthwiseConv2D
from emitc.kernels.fully_connected import FullyConnected
from emitc.kernels.pooling import AveragePool2D, MaxPool2D
from emitc.kernels.softmax import Softmax
from emitc.kernels.spatial import Padding, Window
from emitc.quantize import Clamp, Int64, activation_clamp, multiplier_of

VARIANT = "cmsis-nn"
_LEFT_SHIFT = 20
_DIFFERENCE_BITS = 5
_POINTER = "(void *)(uintptr_t)"
"""The library's structures point to constants through pointers that could write; they never do."""


@dataclass(frozen=True, slots=True)
class Library:
    """The tree, the instruction set that it is compiled for, and what its sources define for that."""

    tree: Tree
    instructions: InstructionSet
    defined: frozenset[str]


@dataclass(frozen=True, slots=True)
class _Arguments:
    """What a function is called with, by the names of its parameters, and the structures among it."""

    values: Mapping[str, Expression]
    structures: tuple[Structure, ...]


def _number(value: int) -> Expression:
    return Expression(f"({value})" if value < 0 else str(value))


def _braced(*values: int) -> Expression:
    return Expression("{" + ", ".join(map(str, values)) + "}")


def _structure(
    library: Library, role: str, c_type: str, members: Mapping[str, Expression], *, constant: bool = True
) -> Structure:
    """The members that this version of the structure has."""
    known = [member.name for member in library.tree.structures[c_type]]
    return Structure(role, c_type, tuple((name, members[name]) for name in known if name in members), constant)


def _dims(library: Library, role: str, dims: Dims) -> Structure:
    parts = {"n": dims.n, "h": dims.h, "w": dims.w, "c": dims.c}
    return _structure(library, role, "cmsis_nn_dims", {name: _number(value) for name, value in parts.items()})


def _reference(structure: Structure) -> Expression:
    """Its address: of a constant of the file, whose name begins with the layer's, or of a local variable."""
    return Expression("&", structure=structure.role) if structure.constant else Expression(f"&{structure.role}")


def _context(library: Library, size: int, buffer: Expression) -> Structure:
    return _structure(library, "context", "cmsis_nn_context", {"buf": buffer, "size": _number(size)}, constant=False)


def _ordered(library: Library, function: str, values: Mapping[str, Expression]) -> tuple[Expression, ...]:
    return tuple(values[parameter.name] for parameter in library.tree.functions[function])


def _missing(library: Library, function: str, values: Mapping[str, Expression]) -> str:
    """Why the function cannot be called with these values; "" when it can."""
    parameters = library.tree.functions.get(function)
    if parameters is None:
        return f"CMSIS-NN {library.tree.version} has no {function}"
    unknown = [parameter.name for parameter in parameters if parameter.name not in values]
    return f"{function} of CMSIS-NN {library.tree.version} takes {', '.join(unknown)}" if unknown else ""


def _activation(clamp: Clamp) -> Expression:
    return _braced(clamp.low, clamp.high)


def _tile(vertical: int, horizontal: int) -> Expression:
    return Expression(f"{{.w = {horizontal}, .h = {vertical}}}")


# ---- what stands against an operator ----

_GENERAL = {
    "arm_convolve_wrapper_s8": "arm_convolve_s8",
    "arm_depthwise_conv_wrapper_s8": "arm_depthwise_conv_s8",
}
"""What to call where a wrapper's special kernel is wrong."""


def _remedies(library: Library, function: str, call: Call) -> set[Remedy]:
    """What the known faults of a call ask for."""
    return {fault.remedy for fault in faults_of(library.tree, library.instructions, Use(function, call))}


def _fault(library: Library, function: str, call: Call) -> str:
    """Why a call cannot be made, since the version computes it wrongly; "" where it can, be it by another function."""
    for fault in faults_of(library.tree, library.instructions, Use(function, call)):
        if fault.remedy is Remedy.GENERAL_KERNEL and _GENERAL[function] in library.defined:
            continue
        if fault.remedy is not Remedy.ZERO_BIAS:  # there always is a bias
            return f"CMSIS-NN {library.tree.version}: {fault.reason}"
    return ""


def _plain_int8(bound: BoundNode) -> str:
    """Refuses other arithmetic than TFLite's and other types than int8."""
    if bound.node.op.numerics is not Numerics.TFLITE:
        return "CMSIS-NN rounds as TensorFlow Lite does, this model is rounded as ONNX Runtime does"
    tensors = [bound.input(0), bound.output]
    if any(tensor.dtype is not DType.INT8 for tensor in tensors):
        return f"emitc calls CMSIS-NN for int8; {tensors[0].dtype.value} to {tensors[1].dtype.value} is asked for"
    return ""


def _one_image(bound: BoundNode) -> str:
    return "" if bound.input(0).shape[0] == 1 else "the function takes one image at a time"


# ---- convolutions ----


def _tables(
    bound: BoundNode, weights: Int64, bias: Int64, multiplier: list[int], shift: list[int]
) -> tuple[Table, ...]:
    shape = "x".join(map(str, bound.input(WEIGHTS).shape))
    return (
        Table("weights", "int8_t", tuple(weights.reshape(-1).tolist()), f"weights {shape}"),
        Table("bias", "int32_t", tuple(bias.reshape(-1).tolist()), "bias per output channel"),
        Table("multiplier", "int32_t", tuple(multiplier), "Q31 per output channel"),
        Table("shift", "int32_t", tuple(shift), "positive left"),
    )


def _per_channel(bound: BoundNode, channels: int) -> tuple[list[int], list[int]]:
    found = requantization(bound)
    repeat = 1 if found.per_channel else channels
    return list(found.q31) * repeat, list(found.shift) * repeat


def _quantization(library: Library) -> Structure:
    members = {"multiplier": Expression(_POINTER, "multiplier"), "shift": Expression(_POINTER, "shift")}
    return _structure(library, "quantization", "cmsis_nn_per_channel_quant_params", members, constant=False)


def _zero_points(bound: BoundNode) -> tuple[int, int]:
    x, y = bound.input(0).quantization, bound.output.quantization
    assert x and y
    return x.zero_point, y.zero_point


def _window(window: Window) -> dict[str, Expression]:
    return {
        "stride": _tile(window.stride_h, window.stride_w),
        "padding": _tile(window.padding.top, window.padding.left),
        "dilation": _tile(window.dilation_h, window.dilation_w),
    }


def _called(
    library: Library,
    function: str,
    bound: BoundNode,
    arguments: _Arguments,
    tables: tuple[Table, ...],
    size: int,
    macs: int,
) -> Layer:
    """The layer of a function with a context, whose buffer is the step's scratch."""
    context = _context(library, size, Expression("scratch" if size else "NULL"))
    values = {**arguments.values, "ctx": _reference(context)}
    check = f"{function}_get_buffer_size"
    checked = None
    if check in library.tree.functions and not _missing(library, check, values):
        checked = (check, _ordered(library, check, values), size)
    call = LibraryCall(function, _ordered(library, function, values), (*arguments.structures, context), checked)
    scratch = (Scratch("scratch", size),) if size else ()
    return Layer("cmsis_nn/call", VARIANT, (0,), tables, scratch=scratch, macs=macs, fallible=True, call=call)


def _convolution(
    library: Library, function: str, bound: BoundNode, call: Call, window: Window, activation: str, weights: Int64,
    sums: Int64, *, folded: bool, macs: int,
) -> Layer:  # fmt: skip
    """arm_convolve_wrapper_s8, arm_depthwise_conv_wrapper_s8, by the parameters they share."""
    zero_x, zero_y = _zero_points(bound)
    depthwise = "depthwise" in function
    channels = call.output.c
    multiplier, shift = _per_channel(bound, channels)
    tables = _tables(bound, weights, model_bias(bound, sums, folded=folded), multiplier, shift)
    members = {
        "input_offset": _number(-zero_x),
        "output_offset": _number(zero_y),
        "ch_mult": _number(channels // call.input.c),
        "activation": _activation(activation_clamp(activation, bound.output)),
        **_window(window),
    }
    c_type = "cmsis_nn_dw_conv_params" if depthwise else "cmsis_nn_conv_params"
    structures = (
        _structure(library, "params", c_type, members),
        _dims(library, "input_dims", call.input),
        _dims(library, "filter_dims", call.filter),
        _dims(library, "bias_dims", Dims(1, 1, 1, channels)),
        _dims(library, "output_dims", call.output),
        _quantization(library),
    )
    by_role = {each.role: _reference(each) for each in structures}
    values = {
        **dict.fromkeys(("conv_params", "dw_conv_params"), by_role["params"]),
        "quant_params": by_role["quantization"],
        **{name: by_role[name] for name in ("input_dims", "filter_dims", "bias_dims", "output_dims")},
        **{name: Expression("x0") for name in ("input", "input_data")},
        **{name: Expression(table="weights") for name in ("filter", "filter_data", "kernel")},
        **{name: Expression(table="bias") for name in ("bias", "bias_data")},
        **{name: Expression("y") for name in ("output", "output_data")},
        "upscale_dims": Expression("NULL"),
    }
    if _remedies(library, function, call) & {Remedy.GENERAL_KERNEL}:
        function = _GENERAL[function]
    size_function = f"{function}_get_buffer_size"
    sized = size_function in BUFFER_SIZES
    size = workspace_bytes(size_function, library.tree.version, library.instructions, call) if sized else 0
    return _called(library, function, bound, _Arguments(values, structures), tables, size, macs)


def _conv_2d_call(bound: BoundNode) -> Call:
    op, x, w, y = bound.node.op, bound.input(0), bound.input(WEIGHTS), bound.output
    assert isinstance(op, Conv2D | DepthwiseConv2D)
    pad = op.window.padding
    return Call(
        Dims(*x.shape), Dims(*w.shape), Dims(*y.shape), op.window.stride_h, op.window.stride_w, pad.top, pad.left,
        op.window.dilation_h, op.window.dilation_w,
    )  # fmt: skip


def _conv_2d_refusal(library: Library, bound: BoundNode) -> str:
    return _fault(library, "arm_convolve_wrapper_s8", _conv_2d_call(bound))


def _conv_2d(library: Library, bound: BoundNode) -> Layer:
    op, w = bound.node.op, bound.input(WEIGHTS)
    assert isinstance(op, Conv2D)
    weights = weights_of(bound).astype(np.int64)
    return _convolution(
        library, "arm_convolve_wrapper_s8", bound, _conv_2d_call(bound), op.window, op.activation, weights,
        weights.sum(axis=(1, 2, 3)), folded=op.zero_point_folded,
        macs=bound.output.elements * w.shape[1] * w.shape[2] * w.shape[3],
    )  # fmt: skip


def _depthwise_refusal(library: Library, bound: BoundNode) -> str:
    return _fault(library, "arm_depthwise_conv_wrapper_s8", _conv_2d_call(bound))


def _depthwise(library: Library, bound: BoundNode) -> Layer:
    op, w, y = bound.node.op, bound.input(WEIGHTS), bound.output
    assert isinstance(op, DepthwiseConv2D)
    call = _conv_2d_call(bound)
    weights = weights_of(bound).astype(np.int64)
    return _convolution(
        library, "arm_depthwise_conv_wrapper_s8", bound, call, op.window, op.activation, weights,
        weights.sum(axis=(0, 1, 2)), folded=op.zero_point_folded, macs=y.elements * w.shape[1] * w.shape[2],
    )  # fmt: skip


# ---- fully connected ----


def _fully_connected(library: Library, bound: BoundNode) -> Layer:
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
            library, "arm_convolve_wrapper_s8", bound, call, window, op.activation, weights, sums,
            folded=op.zero_point_folded, macs=macs,
        )  # fmt: skip
    zero_x, zero_y = _zero_points(bound)
    bias = model_bias(bound, sums, folded=op.zero_point_folded)
    tables: tuple[Table, ...] = _tables(bound, weights, bias, [], [])[:2]
    call = Call(Dims(rows, 1, 1, depth), Dims(depth, 1, 1, out), Dims(rows, 1, 1, out))
    size = BUFFER_SIZES["arm_fully_connected_s8_get_buffer_size"](library.tree.version, library.instructions, call)
    buffer = Expression("NULL")
    if size:
        tables = (*tables, _kernel_sums(library, sums, bias, -zero_x))
        buffer = Expression(_POINTER, "sums")
    structures = (
        _structure(
            library,
            "params",
            "cmsis_nn_fc_params",
            {
                "input_offset": _number(-zero_x),
                "filter_offset": _number(0),
                "output_offset": _number(zero_y),
                "activation": _activation(activation_clamp(op.activation, bound.output)),
            },
        ),
        _structure(
            library,
            "quantization",
            "cmsis_nn_per_tensor_quant_params",
            {"multiplier": _number(found.q31[0]), "shift": _number(found.shift[0])},
        ),
        _dims(library, "input_dims", call.input),
        _dims(library, "filter_dims", call.filter),
        _dims(library, "bias_dims", Dims(1, 1, 1, out)),
        _dims(library, "output_dims", call.output),
        _context(library, size, buffer),
    )
    by_role = {each.role: _reference(each) for each in structures}
    values = {
        "ctx": by_role["context"],
        "fc_params": by_role["params"],
        "quant_params": by_role["quantization"],
        **{name: by_role[name] for name in ("input_dims", "filter_dims", "bias_dims", "output_dims")},
        **{name: Expression("x0") for name in ("input", "input_data")},
        **{name: Expression(table="weights") for name in ("kernel", "filter_data")},
        **{name: Expression(table="bias") for name in ("bias", "bias_data")},
        **{name: Expression("y") for name in ("output", "output_data")},
    }
    function = "arm_fully_connected_s8"
    lib_call = LibraryCall(function, _ordered(library, function, values), structures)
    return Layer("cmsis_nn/call", VARIANT, (0,), tables, macs=macs, fallible=True, call=lib_call)


def _kernel_sums(library: Library, sums: Int64, bias: Int64, offset: int) -> Table:
    """What the kernel of this version reads for MVE; it is a constant of the model."""
    values, what = sums, "sum of the weights per output"
    if library.tree.version.sums is KernelSums.BIAS_AND_OFFSET:
        values, what = sums * offset + bias, f"{what} times the input's offset, and the bias"
    return Table("sums", "int32_t", tuple(values.astype(np.int32).tolist()), what)


# ---- pools ----


def _pool_refusal(library: Library, bound: BoundNode) -> str:
    op = bound.node.op
    assert isinstance(op, AveragePool2D | MaxPool2D)
    if (op.window.dilation_h, op.window.dilation_w) != (1, 1):
        return "its pools have no dilation"
    if isinstance(op, AveragePool2D) and op.count_padding and op.window.padding.any:
        return "its average leaves out what lies outside the input"
    return ""


def _pool(library: Library, bound: BoundNode) -> Layer:
    op, x, y = bound.node.op, bound.input(0), bound.output
    assert isinstance(op, AveragePool2D | MaxPool2D)
    average = isinstance(op, AveragePool2D)
    function = "arm_avgpool_s8" if average else "arm_max_pool_s8"
    pad = op.window.padding
    call = Call(
        Dims(*x.shape), Dims(1, op.kernel_h, op.kernel_w, 1), Dims(*y.shape), op.window.stride_h, op.window.stride_w,
        pad.top, pad.left,
    )  # fmt: skip
    window = _window(op.window)
    structures = (
        _structure(
            library,
            "params",
            "cmsis_nn_pool_params",
            {
                "stride": window["stride"],
                "padding": window["padding"],
                "activation": _activation(activation_clamp(op.activation, y)),
            },
        ),
        _dims(library, "input_dims", call.input),
        _dims(library, "filter_dims", call.filter),
        _dims(library, "output_dims", call.output),
    )
    by_role = {each.role: _reference(each) for each in structures}
    values = {
        "pool_params": by_role["params"],
        **{name: by_role[name] for name in ("input_dims", "filter_dims", "output_dims")},
        **{name: Expression("x0") for name in ("src", "input_data", "input")},
        **{name: Expression("y") for name in ("dst", "output_data", "output")},
        "dim_dst_width": _number(call.output.w),
        "output_x": _number(call.output.w),
        "ch_src": _number(call.input.c),
    }
    sizes = BUFFER_SIZES["arm_avgpool_s8_get_buffer_size"]
    size = sizes(library.tree.version, library.instructions, call) if average else 0
    return _called(library, function, bound, _Arguments(values, structures), (), size, 0)


# ---- elementwise ----


def _arithmetic_refusal(library: Library, bound: BoundNode) -> str:
    a, b = bound.input(0), bound.input(1)
    if a.dtype is not DType.INT8 or b.dtype is not DType.INT8:
        return "emitc calls CMSIS-NN for int8"
    if a.shape != bound.output.shape or b.shape != bound.output.shape:
        return "the function takes two tensors of one shape"
    return ""


def _arithmetic(library: Library, bound: BoundNode) -> Layer:
    op, y = bound.node.op, bound.output
    assert isinstance(op, Arithmetic)
    a, b = bound.input(0).quantization, bound.input(1).quantization
    assert a and b and y.quantization
    clamp = activation_clamp(op.activation, y)
    values = {
        "input_1_vect": Expression("x0"),
        "input_2_vect": Expression("x1"),
        "input_1_offset": _number(-a.zero_point),
        "input_2_offset": _number(-b.zero_point),
        "output": Expression("y"),
        "out_offset": _number(y.quantization.zero_point),
        "out_activation_min": _number(clamp.low),
        "out_activation_max": _number(clamp.high),
        "block_size": _number(y.elements),
    }
    if isinstance(op, Mul):
        function = "arm_elementwise_mul_s8"
        factors = {"out": a.scale * b.scale / y.quantization.scale}
    else:
        function = "arm_elementwise_add_s8"
        reach = 2 * max(a.scale, b.scale)
        last = reach / ((1 << _LEFT_SHIFT) * y.quantization.scale)
        factors = {"input_1": a.scale / reach, "input_2": b.scale / reach, "out": last}
        values["left_shift"] = _number(_LEFT_SHIFT)
    for name, factor in factors.items():
        found = multiplier_of(factor)
        values[f"{name}_mult"], values[f"{name}_shift"] = _number(found.q31), _number(found.shift)
    call = LibraryCall(function, _ordered(library, function, values))
    return Layer("cmsis_nn/call", VARIANT, (0, 1), fallible=True, call=call)


# ---- softmax ----


def _softmax_refusal(library: Library, bound: BoundNode) -> str:
    scale = _softmax_factor(bound)
    return "" if 1.0 < scale < 2.0**31 - 1 else "the scale of its input leaves the range of the function"


def _softmax_factor(bound: BoundNode) -> float:
    """Input scale times beta, with 26 fractional bits."""
    op, quantization = bound.node.op, bound.input(0).quantization
    assert isinstance(op, Softmax) and quantization
    return op.beta * quantization.scale * (1 << (31 - _DIFFERENCE_BITS))


def _softmax(library: Library, bound: BoundNode) -> Layer:
    found = multiplier_of(_softmax_factor(bound))
    depth = bound.output.shape[-1]
    radius = ((1 << _DIFFERENCE_BITS) - 1) * (1 << (31 - _DIFFERENCE_BITS)) >> found.shift
    values = {
        "input": Expression("x0"),
        "num_rows": _number(bound.output.elements // depth),
        "row_size": _number(depth),
        "mult": _number(found.q31),
        "shift": _number(found.shift),
        "diff_min": _number(-radius),
        "output": Expression("y"),
    }
    call = LibraryCall("arm_softmax_s8", _ordered(library, "arm_softmax_s8", values))
    return Layer("cmsis_nn/call_void", VARIANT, (0,), call=call)


# ---- the table ----


@dataclass(frozen=True, slots=True)
class Rule:
    """How one operator becomes a call. functions: what it may call. refusal: "" where the node can be taken."""

    functions: tuple[str, ...]
    lower: Callable[[Library, BoundNode], Layer]
    refusal: Callable[[Library, BoundNode], str] = lambda library, bound: ""
    images: bool = True


RULES: Mapping[type[Op], Rule] = {
    Conv2D: Rule(("arm_convolve_wrapper_s8",), _conv_2d, _conv_2d_refusal),
    DepthwiseConv2D: Rule(("arm_depthwise_conv_wrapper_s8",), _depthwise, _depthwise_refusal),
    FullyConnected: Rule(("arm_fully_connected_s8", "arm_convolve_wrapper_s8"), _fully_connected, images=False),
    AveragePool2D: Rule(("arm_avgpool_s8",), _pool, _pool_refusal),
    MaxPool2D: Rule(("arm_max_pool_s8",), _pool, _pool_refusal),
    Add: Rule(("arm_elementwise_add_s8",), _arithmetic, _arithmetic_refusal, images=False),
    Mul: Rule(("arm_elementwise_mul_s8",), _arithmetic, _arithmetic_refusal, images=False),
    Softmax: Rule(("arm_softmax_s8",), _softmax, _softmax_refusal, images=False),
}


def refusal(library: Library, bound: BoundNode) -> str:
    """Why CMSIS-NN cannot run the node with the interpreter's bits; "" when it can."""
    rule = RULES.get(type(bound.node.op))
    if rule is None:
        return "CMSIS-NN has no function for this operator that emitc calls"
    absent = [name for name in rule.functions if name not in library.tree.functions]
    if absent:
        return f"CMSIS-NN {library.tree.version} has no {absent[0]}"
    undefined = [name for name in rule.functions if name not in library.defined]
    if undefined:
        return f"this copy of CMSIS-NN {library.tree.version} lacks the source of {undefined[0]}"
    return _plain_int8(bound) or (_one_image(bound) if rule.images else "") or rule.refusal(library, bound)


def layer_of(library: Library, bound: BoundNode) -> Layer:
    """The call of a node that is not refused."""
    return RULES[type(bound.node.op)].lower(library, bound)

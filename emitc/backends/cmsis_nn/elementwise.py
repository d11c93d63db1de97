"""Pools, sums, products and softmax as calls of CMSIS-NN."""

from __future__ import annotations

from emitc.backends.cmsis_nn.buffer_sizes import BUFFER_SIZES, Call, Dims
from emitc.backends.cmsis_nn.calls import (
    VARIANT,
    Arguments,
    Library,
    called,
    dims,
    limits,
    number,
    ordered,
    reference,
    structure,
    window_members,
)
from emitc.ir import BoundNode, DType
from emitc.kernels.elementwise.arithmetic import Arithmetic, Mul
from emitc.kernels.normalization.softmax import Softmax
from emitc.kernels.pooling.pool_ops import AveragePool2D, MaxPool2D
from emitc.layer import Expression, Layer, LibraryCall
from emitc.numerics.requantize import activation_clamp, multiplier_of

_LEFT_SHIFTS = {DType.INT8: 20, DType.INT16: 15}
_DIFFERENCE_BITS = 5


def pool_refusal(library: Library, bound: BoundNode) -> str:
    op = bound.node.op
    assert isinstance(op, AveragePool2D | MaxPool2D)
    if (op.window.dilation_h, op.window.dilation_w) != (1, 1):
        return "its pools have no dilation"
    if isinstance(op, AveragePool2D) and op.count_padding and op.window.padding.any:
        return "its average leaves out what lies outside the input"
    return ""


def pool(library: Library, bound: BoundNode) -> Layer:
    op, x, y = bound.node.op, bound.input(0), bound.output
    assert isinstance(op, AveragePool2D | MaxPool2D)
    average = isinstance(op, AveragePool2D)
    bits = "s16" if x.dtype is DType.INT16 else "s8"
    function = f"arm_avgpool_{bits}" if average else f"arm_max_pool_{bits}"
    pad = op.window.padding
    call = Call(
        Dims(*x.shape), Dims(1, op.kernel_h, op.kernel_w, 1), Dims(*y.shape), op.window.stride_h, op.window.stride_w,
        pad.top, pad.left,
    )  # fmt: skip
    window = window_members(op.window)
    structures = (
        structure(
            library,
            "params",
            "cmsis_nn_pool_params",
            {
                "stride": window["stride"],
                "padding": window["padding"],
                "activation": limits(activation_clamp(op.activation, y)),
            },
        ),
        dims(library, "input_dims", call.input),
        dims(library, "filter_dims", call.filter),
        dims(library, "output_dims", call.output),
    )
    by_role = {each.role: reference(each) for each in structures}
    values = {
        "pool_params": by_role["params"],
        **{name: by_role[name] for name in ("input_dims", "filter_dims", "output_dims")},
        **{name: Expression("x0") for name in ("src", "input_data", "input")},
        **{name: Expression("y") for name in ("dst", "output_data", "output")},
        "dim_dst_width": number(call.output.w),
        "output_x": number(call.output.w),
        "ch_src": number(call.input.c),
    }
    sizes = BUFFER_SIZES["arm_avgpool_s8_get_buffer_size"]
    size = sizes(library.tree.version, library.instructions, call) if average else 0
    return called(library, function, bound, Arguments(values, structures), (), size, 0)


def arithmetic_refusal(library: Library, bound: BoundNode) -> str:
    a, b = bound.input(0), bound.input(1)
    if a.shape != bound.output.shape or b.shape != bound.output.shape:
        return "the function takes two tensors of one shape"
    return ""


def arithmetic(library: Library, bound: BoundNode) -> Layer:
    op, y = bound.node.op, bound.output
    assert isinstance(op, Arithmetic)
    a, b = bound.input(0), bound.input(1)
    clamp = activation_clamp(op.activation, y)
    bits = "s16" if y.dtype is DType.INT16 else "s8"
    values = {
        "input_1_vect": Expression("x0"),
        "input_2_vect": Expression("x1"),
        "input_1_offset": number(-a.zero_point),
        "input_2_offset": number(-b.zero_point),
        "output": Expression("y"),
        "out_offset": number(y.zero_point),
        "out_activation_min": number(clamp.low),
        "out_activation_max": number(clamp.high),
        "block_size": number(y.elements),
    }
    if isinstance(op, Mul):
        function = f"arm_elementwise_mul_{bits}"
        factors = {"out": a.scale * b.scale / y.scale}
    else:
        function = f"arm_elementwise_add_{bits}"
        left_shift = _LEFT_SHIFTS[y.dtype]
        reach = 2 * max(a.scale, b.scale)
        last = reach / ((1 << left_shift) * y.scale)
        factors = {"input_1": a.scale / reach, "input_2": b.scale / reach, "out": last}
        values["left_shift"] = number(left_shift)
    for name, factor in factors.items():
        found = multiplier_of(factor)
        values[f"{name}_mult"], values[f"{name}_shift"] = number(found.q31), number(found.shift)
    call = LibraryCall(function, ordered(library, function, values))
    return Layer("cmsis_nn/call", VARIANT, (0, 1), fallible=True, call=call)


def softmax_refusal(library: Library, bound: BoundNode) -> str:
    scale = _softmax_factor(bound)
    return "" if 1.0 < scale < 2.0**31 - 1 else "the scale of its input leaves the range of the function"


def _softmax_factor(bound: BoundNode) -> float:
    """Input scale times beta, with 26 fractional bits."""
    op, quantization = bound.node.op, bound.input(0).quantization
    assert isinstance(op, Softmax) and quantization
    return op.beta * quantization.scale * (1 << (31 - _DIFFERENCE_BITS))


def softmax(library: Library, bound: BoundNode) -> Layer:
    found = multiplier_of(_softmax_factor(bound))
    depth = bound.output.shape[-1]
    radius = ((1 << _DIFFERENCE_BITS) - 1) * (1 << (31 - _DIFFERENCE_BITS)) >> found.shift
    values = {
        "input": Expression("x0"),
        "num_rows": number(bound.output.elements // depth),
        "row_size": number(depth),
        "mult": number(found.q31),
        "shift": number(found.shift),
        "diff_min": number(-radius),
        "output": Expression("y"),
    }
    function = "arm_softmax_s8_s16" if bound.output.dtype is DType.INT16 else "arm_softmax_s8"
    call = LibraryCall(function, ordered(library, function, values))
    return Layer("cmsis_nn/call_void", VARIANT, (0,), call=call)

"""Pools, sums, products and softmax as calls of CMSIS-NN."""

from dataclasses import replace

from emitc.backends.cmsis_nn.buffer_sizes import Call, Dims
from emitc.backends.cmsis_nn.calls import Arguments, Library, call_of, members_of, scaled
from emitc.backends.kernel_library import number, same_shapes, softmax_factor, sum_factors
from emitc.ir import BoundNode, DType
from emitc.kernels.elementwise.arithmetic import Arithmetic, Mul
from emitc.kernels.normalization.softmax import Softmax
from emitc.kernels.normalization.softmax_tables import EXPONENTIAL, RECIPROCAL, factor_of
from emitc.kernels.pooling.pool_ops import AveragePool2D, MaxPool2D
from emitc.layer import Expression, Layer, Table
from emitc.numerics.requantize import Multiplier, activation_clamp, multiplier_of

_LEFT_SHIFTS = {DType.INT8: 20, DType.INT16: 15}


def _bits(bound: BoundNode) -> str:
    return "s16" if bound.output.dtype is DType.INT16 else "s8"


def pool(library: Library, bound: BoundNode) -> Layer:
    op = bound.node.op
    assert isinstance(op, AveragePool2D | MaxPool2D)
    function = f"arm_{'avgpool' if isinstance(op, AveragePool2D) else 'max_pool'}_{_bits(bound)}"
    call = call_of(bound, op.window, Dims(1, op.kernel_h, op.kernel_w, 1))
    members = members_of(bound, op.activation, op.window)
    structures = (
        library.structure("params", "cmsis_nn_pool_params", members),
        *library.dims({"input_dims": call.input, "filter_dims": call.filter, "output_dims": call.output}),
    )
    width = number(call.output.w)
    sizes = {"dim_dst_width": width, "output_x": width, "ch_src": number(call.input.c)}
    return library.called_with_buffer(function, Arguments(structures, sizes), (), library.bytes_of(function, call))


def arithmetic_refusal(library: Library, bound: BoundNode) -> str:
    return "" if same_shapes(bound) else "the function takes two tensors of one shape"


def arithmetic(library: Library, bound: BoundNode) -> Layer:
    op, a, b, y = bound.op(Arithmetic), bound.input(0), bound.input(1), bound.output
    clamp = activation_clamp(op.activation, y)
    values = {
        "input_1_vect": Expression("x0"),
        "input_2_vect": Expression("x1"),
        "input_1_offset": number(-a.zero_point),
        "input_2_offset": number(-b.zero_point),
        "out_offset": number(y.zero_point),
        "out_activation_min": number(clamp.low),
        "out_activation_max": number(clamp.high),
        "block_size": number(y.elements),
    }
    if isinstance(op, Mul):
        factors = {"out": a.scale * b.scale / y.scale}
    else:
        left_shift = _LEFT_SHIFTS[y.dtype]
        factors = dict(zip(("input_1", "input_2", "out"), sum_factors(bound, left_shift), strict=True))
        values["left_shift"] = number(left_shift)
    for name, factor in factors.items():
        values |= scaled(f"{name}_mult", f"{name}_shift", multiplier_of(factor))
    function = f"arm_elementwise_{'mul' if isinstance(op, Mul) else 'add'}_{_bits(bound)}"
    return library.called(function, Arguments((), values), operands=(0, 1))


def _rows(bound: BoundNode) -> Dims:
    """The rows that a softmax works on, each as a pixel."""
    depth = bound.output.shape[-1]
    return Dims(1, 1, bound.output.elements // depth, depth)


def _softmax_values(bound: BoundNode, factor: Multiplier) -> dict[str, Expression]:
    rows = _rows(bound)
    return {"num_rows": number(rows.w), "row_size": number(rows.c), **scaled("mult", "shift", factor)}


def softmax(library: Library, bound: BoundNode) -> Layer:
    """arm_softmax_s8 and arm_softmax_s8_s16, which return nothing."""
    factor, least = softmax_factor(bound)
    values = _softmax_values(bound, factor) | {"diff_min": number(least)}
    function = "arm_softmax_s8_s16" if bound.output.dtype is DType.INT16 else "arm_softmax_s8"
    layer = library.called(function, Arguments((), values))
    return replace(layer, template="cmsis_nn/call_void", fallible=False)


def softmax_16_refusal(library: Library, bound: BoundNode) -> str:
    """Why this version computes arm_softmax_s16 wrongly for the node; "" where it does not."""
    rows = _rows(bound)
    return library.fault("arm_softmax_s16", Call(rows, Dims(1, 1, 1, 1), rows))


def softmax_16(library: Library, bound: BoundNode) -> Layer:
    """arm_softmax_s16, with its two tables."""
    tables = (
        Table("exponential", "int16_t", EXPONENTIAL, "exp(x) for x from -10 to 0, Q15"),
        Table("reciprocal", "int16_t", RECIPROCAL, "1 / (1 + x) for x from 0 to 1, Q15"),
    )
    members = {"exp_lut": Expression(table="exponential"), "one_by_one_lut": Expression(table="reciprocal")}
    lookups = library.structure("lookups", "cmsis_nn_softmax_lut_s16", members, constant=False)
    values = _softmax_values(bound, multiplier_of(factor_of(bound, bound.op(Softmax).beta)))
    return library.called("arm_softmax_s16", Arguments((lookups,), values), tables)

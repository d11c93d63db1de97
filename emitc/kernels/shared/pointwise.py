"""Operators that work element by element: tables over one byte, fused activations, and ONNX's functions of one tensor.

Fused activations on plain numbers: y = min(max(x, low), high). Without an activation the bounds are the ends of the type, so that
what overflows float32 becomes its largest finite value and not infinite. A NaN stays one, and so does -0 at a bound of 0.
Source  TFLite Micro's kernels.

ONNX's operators of one tensor, given the function of one element: x any shape, y the same.
Types   float32: the function in C. int8 with scales: a table of 256 results, each dequantized in float32 and computed; where y
        is int8 too, divided by y_scale and rounded half to even. ONNX Runtime's QLinearSigmoid and QLinearLeakyRelu do the
        same, and a float operator between DequantizeLinear and QuantizeLinear amounts to it. Other types: see the operator.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emitc.ir import Array, BoundNode, DType, Numerics, Op, Quantization, Tensor
from emitc.kernels.contract import Parsed, Variant, illegal, out_of_proportion, require_quantization, unsupported
from emitc.kernels.costs import UNKNOWN_VECTORS
from emitc.layer import PLAIN, ByRows, Formula, KernelSpec, Layer, Overlap, Param, Table, in_step
from emitc.numerics import engine_functions
from emitc.numerics.float_functions import RealFunction
from emitc.numerics.requantize import BYTES, Float32, Int64, multiplier_of
from emitc.source import SourceNode

ACTIVATION_BOUNDS: dict[str, tuple[float | None, float | None]] = {
    "NONE": (None, None),
    "RELU": (0.0, None),
    "RELU6": (0.0, 6.0),
    "RELU_N1_TO_1": (-1.0, 1.0),
}
"""Least and greatest value of each activation, None where it has none."""


def bounds(activation: str, dtype: DType) -> tuple[float, float]:
    """The least and the greatest value that an activation leaves, as numbers of the type."""
    largest = float(np.finfo(np.float32).max)
    return _or_ends(activation, (-largest, largest) if dtype is DType.FLOAT32 else dtype.range)


def _or_ends(activation: str, ends: tuple[float, float]) -> tuple[float, float]:
    """The activation's bounds, as numbers of the ends' type; one that it does not have is the end."""
    low, high = (
        end if bound is None else type(end)(bound)
        for bound, end in zip(ACTIVATION_BOUNDS[activation], ends, strict=True)
    )
    return low, high


def _within(values: NDArray[Any], ends: tuple[float, float], dtype: DType) -> NDArray[Any]:
    low, high = (np.array(end, dtype.value) for end in ends)
    with np.errstate(invalid="ignore"):
        return np.asarray(np.where(values < low, low, np.where(values > high, high, values)), dtype.value)


def bounded(values: NDArray[Any], activation: str, dtype: DType) -> NDArray[Any]:
    return _within(values, bounds(activation, dtype), dtype)


def limited(values: NDArray[Any], activation: str, dtype: DType) -> NDArray[Any]:
    """The values within what bounds the activation itself has, in the type: an infinity that none cuts off stays (ONNX)."""
    return _within(values, _or_ends(activation, (-np.inf, np.inf)), dtype)


def onnx_activation(activation: str) -> tuple[tuple[Param, ...], KernelSpec]:
    if activation == "RELU":
        return (), KernelSpec("_rectified", rectified=True)
    low, high = ACTIVATION_BOUNDS[activation]
    if low is None or high is None:
        return (), PLAIN
    limits = Param("low", "float", low, "the activation's bounds"), Param("high", "float", high)
    return limits, KernelSpec("_limited", clamped=True)


def bound_params(activation: str, dtype: DType) -> tuple[Param, Param]:
    low, high = bounds(activation, dtype)
    return Param("low", dtype.c_type, low, "the activation's bounds"), Param("high", dtype.c_type, high)


TABLE_ENTRIES = 256
_INT32 = 2**31


def values_of(bound: BoundNode, inputs: Sequence[Array | None], position: int) -> Int64:
    """The operand's quantized values as integers; a constant needs no value in `inputs`."""
    value = inputs[position]
    return (bound.input(position).array() if value is None else value).astype(np.int64)


def require_activation(bound: BoundNode, activation: str, tensor: Tensor) -> None:
    """Refuses an activation whose bounds leave int32 when quantized to `tensor`: the output, or the input of RELU6."""
    side = "output" if tensor == bound.output else "input"
    reach = {"RELU6": 6.0, "RELU_N1_TO_1": 1.0}.get(activation, 0.0)
    if reach / tensor.scale > _INT32 - 512:
        why = f"{activation} ends at {reach:g}, which is {reach / tensor.scale:.3g} quantization steps"
        raise illegal(bound, f"has an {side} scale that is out of proportion", why, "quantize the model again", tensor)


def require_factor(bound: BoundNode, factor: float, reach: int) -> None:
    """Refuses a requantization by `factor` that can take a value of at most `reach` out of int32 by its left shift."""
    if not (factor < 1 << 30 and reach << max(multiplier_of(factor).shift, 0) < _INT32):
        why = f"values are multiplied by {factor!r}, which the fixed-point arithmetic cannot hold"
        raise out_of_proportion(bound, why)


def single_source(bound: BoundNode) -> int | None:
    """The input that alone decides every output value, element by element; None where two computed inputs do.

    The other input is the same tensor, or a constant of one value that does not widen the output.
    """
    a, b = bound.input(0), bound.input(1)
    if bound.node.inputs[0] == bound.node.inputs[1] and not a.is_constant:
        return 0
    for position, constant in ((0, b), (1, a)):
        operand = bound.input(position)
        if constant.is_constant and not operand.is_constant and operand.elements == bound.output.elements:
            array = constant.array()
            if bool((array == array.reshape(-1)[0]).all()):
                return position
    return None


def binary_table(bound: BoundNode, source: int, pairs: Int64) -> Layer:
    """The table of an operator that `single_source` says has one: pairs [256, 256] are the results of a and b."""
    if bound.node.inputs[0] == bound.node.inputs[1]:
        return byte_table(bound, 0, np.diagonal(pairs))
    constant = int(bound.input(1 - source).array().reshape(-1)[0]) + 128
    return byte_table(bound, source, pairs[:, constant] if source == 0 else pairs[constant, :])


def byte_table(bound: BoundNode, source: int, results: Int64 | Float32) -> Layer:
    """A layer that looks every byte up. results: bytes or real values of -128..127, or of 0..255 for a uint8 input."""
    unsigned, real = bound.input(source).dtype is DType.UINT8, results.dtype.kind == "f"
    by_byte = results if unsigned else np.roll(results, TABLE_ENTRIES // 2)
    values = tuple((by_byte if real else by_byte.astype(np.uint8).view(np.int8)).tolist())
    comment = f"{bound.node.op_type} of {'0 to 255' if unsigned else '0 to 127, then -128 to -1'}"
    return Layer(
        "activation/lookup_real" if real else "activation/lookup",
        operands=(source,),
        tables=(Table("table", "float" if real else "int8_t", values, comment),),
        params=(Param("count", "int32_t", bound.output.elements),),
        overlaps=(in_step(bound, source),),
        by_rows=ByRows(counted="count"),
    )


def by_vectors(layer: Layer) -> Layer | str:
    """A layer of `byte_table` for cores with MVE, which look sixteen bytes up at a time; or why there is none."""
    if layer.template != "activation/lookup":
        return f"{layer.kernel_name} has a portable version only"
    return replace(layer, template="activation/lookup_mve", headers=("emitc_mve.h",))


def lookup_row(lower: Callable[[BoundNode], Layer]) -> Variant:
    """The variant that `by_vectors` makes of the portable layer, which `lower` gives: of every operator on elements that has none
    of this name.
    """
    return Variant("mve", "mve", lambda bound: by_vectors(lower(bound)), UNKNOWN_VECTORS, ())


FLOATS = (DType.FLOAT32, DType.FLOAT64)
SIGNED = (DType.INT8, DType.INT16, DType.INT32, DType.INT64)
UNSIGNED = (DType.UINT8, DType.UINT16, DType.UINT32, DType.UINT64)
_UNSCALED = ("float32", "int32", "int64", "uint32", "bool")
"""Types that TFLite's operators on numbers take; int8, uint8 and int16 are quantized there."""
_SHORT = {"float": "f32", "double": "f64"}


def plain_numerics(node: SourceNode) -> Numerics:
    """The arithmetic of a TFLite operator, by its first input: plain numbers, or quantized values."""
    return Numerics.PLAIN if node.input(0).dtype in _UNSCALED else Numerics.TFLITE


def parser_of(
    op: Callable[..., Op], operands: int = 1, tflite: Numerics | None = None
) -> Callable[[SourceNode], Parsed]:
    """The parser, for both formats, of an operator without attributes that takes so many operands.

    tflite: the arithmetic in TFLite models; by default that of the first input's type (`plain_numerics`).
    """

    def parse(node: SourceNode) -> Parsed:
        node.counts((operands, operands))
        of_onnx = node.format == "onnx"
        numerics = Numerics.QOPERATOR if of_onnx else plain_numerics(node) if tflite is None else tflite
        return Parsed(op(numerics=numerics), tuple(range(operands)))

    return parse


def typed(x: DType, y: DType, w: DType | None = None) -> KernelSpec:
    """A kernel for these element types, each named in its suffix: of x and y, and of a second operand w."""
    types = [x.c_type, (w or x).c_type, y.c_type]
    short = [_SHORT.get(t, t.replace("uint", "u").replace("int", "s").removesuffix("_t")) for t in types]
    named = short[:1] if len(set(short)) == 1 else short if w else [short[0], short[2]]
    return KernelSpec("".join(f"_{name}" for name in named), x=types[0], w=types[1], y=types[2])


def require_types(bound: BoundNode, supported: Collection[tuple[DType, ...]], code_for: str) -> None:
    """Refuses element types (inputs, then the output) that have no code. The format itself was checked by the frontend."""
    dtypes = (*(t.dtype for t in bound.inputs if t is not None), bound.output.dtype)
    if dtypes not in supported:
        what = f"with element types ({', '.join(d.value for d in dtypes)}) is not supported"
        hint = "put a Cast around the operator, or replace it"
        raise unsupported(bound, what, f"there is code for {code_for}", hint, bound.output)


def in_place(bound: BoundNode, operands: Collection[int] = (0,)) -> tuple[Overlap, ...]:
    """y over an operand that has its elements, front to back: each is read before it is overwritten.

    The types must be the same, or y's be bytes: C lets nothing else alias another type.
    """
    y = bound.output
    return tuple(
        in_step(bound, i)
        for i in operands
        if bound.input(i).elements == y.elements and (y.dtype is bound.input(i).dtype or y.dtype.bytes == 1)
    )


TRUTH = Formula("truth", "({y})(v != 0)", "1 where x is not 0")


def formula_of(function: RealFunction) -> Formula | str:
    """What prints a function: its formula, or the template of a function that is no single expression."""
    if not function.c:
        return f"activation/{function.name}"
    return Formula(function.name, function.c, function.comment, function.math)


def printed(kernel: Formula | str, template: str) -> tuple[str, Formula | None]:
    """What prints a kernel: `template` with the formula, or the kernel's own template."""
    return (kernel, None) if isinstance(kernel, str) else (template, kernel)


def pointwise_layer(bound: BoundNode, kernel: Formula | str, parameters: tuple[Param, ...] = ()) -> Layer:
    """A formula of `v`, the element, or a template, printed for the types of x and y. parameters: members of the struct."""
    template, formula = printed(kernel, "activation/unary")
    count = Param("count", "int32_t", bound.output.elements)
    spec = typed(bound.input(0).dtype, bound.output.dtype)
    return Layer(
        template,
        params=(count, *parameters),
        overlaps=in_place(bound),
        spec=spec,
        by_rows=ByRows(counted="count"),
        formula=formula,
    )


def copied(bound: BoundNode) -> Layer:
    """A copy of x to y. Where the output can be a view of x, it is printed only without the pass that makes views."""
    return Layer("movement/copy", overlaps=(in_step(bound),))


def operand(bound: BoundNode, inputs: Collection[Array | None], position: int) -> Array:
    """An operand's value; a constant needs none in `inputs`."""
    value = tuple(inputs)[position]
    return bound.input(position).array() if value is None else value


def dequantized(q: Array | Int64, quantization: Quantization) -> Float32:
    """(q - zero_point) * scale in float32."""
    return (q.astype(np.int64) - quantization.zero_point).astype(np.float32) * np.float32(quantization.scale)


def quantized(values: Float32, quantization: Quantization, dtype: DType) -> Int64:
    """rint(x / scale) + zero_point, half to even, limited to the type; a NaN gives the type's smallest (ONNX Runtime)."""
    low, high = dtype.range
    with np.errstate(all="ignore"):
        steps = np.rint(values / np.float32(quantization.scale)).astype(np.float64) + quantization.zero_point
    return np.clip(np.where(np.isnan(steps), low, steps), low, high).astype(np.int64)


def half_away(values: Float32) -> Float32:
    """Rounded to whole numbers, halves away from zero."""
    return np.copysign(np.floor(np.abs(values).astype(np.float64) + 0.5), values).astype(np.float32)


def filling(bound: BoundNode, value: int | float) -> int | float:
    """The value of constant padding in the output's type: quantized where the operator works on real values."""
    y = bound.output
    if bound.node.op.numerics is not Numerics.QDQ or y.quantization is None or y.dtype is DType.FLOAT32:
        return value
    return int(quantized(np.array([value], np.float32), y.quantization, y.dtype)[0])


def check_real(bound: BoundNode) -> None:
    """Refuses types other than float32 and int8 with scales. A pass makes operators from int8 to float32."""
    types = [(DType.FLOAT32,) * 2, (DType.INT8,) * 2, (DType.INT8, DType.FLOAT32)]
    require_types(bound, types, "float32, and int8 with scales")
    require_quantization(bound, *(t for t in (bound.input(0), bound.output) if t.dtype is DType.INT8))


def _real(bound: BoundNode, x: Array | Int64) -> Float32:
    quantization = bound.input(0).quantization
    if bound.input(0).dtype is DType.FLOAT32:
        return np.asarray(x, np.float32)
    assert quantization
    return dequantized(x, quantization)


def _by_scales(bound: BoundNode, function: RealFunction, parameters: tuple[float, ...], q: Array | Int64) -> Int64:
    y = bound.output.quantization
    assert y
    return quantized(function.apply(_real(bound, q), parameters), y, bound.output.dtype)


def real_reference(bound: BoundNode, function: RealFunction, parameters: tuple[float, ...], x: Array) -> Array:
    """The function of every element, of float32 or of int8 with scales."""
    y = bound.output
    if y.dtype is DType.FLOAT32:
        return function.apply(_real(bound, x), parameters)
    return _by_scales(bound, function, parameters, x).astype(y.dtype.value)


def real_layer(bound: BoundNode, function: RealFunction, parameters: tuple[float, ...]) -> Layer:
    """The function in C, or the table of its results."""
    if bound.output.dtype is DType.INT8:
        return byte_table(bound, 0, _by_scales(bound, function, parameters, BYTES))
    if bound.input(0).dtype is DType.INT8:
        return byte_table(bound, 0, function.apply(_real(bound, BYTES), parameters))
    members = tuple(Param(n, "float", p) for n, p in zip(function.parameters, parameters, strict=True))
    return replace(pointwise_layer(bound, formula_of(function), members), headers=function.headers)


_REALS = ("emitc_mve.h", "emitc_mve_float32.h")
_RATIONAL = (*_REALS, *engine_functions.HEADERS, "emitc_mve_tanh.h")
_BY_FOURS = {
    "relu": ("emitc_float32x4_positive(v)", _REALS),
    "leaky_relu": ("emitc_float32x4_sloped(v, emitc_float32x4_all(p->alpha))", _REALS),
    "tanh_rational": ("emitc_float32x4_tanh(v)", _RATIONAL),
    "logistic_rational": ("emitc_float32x4_logistic(v)", _RATIONAL),
    "erf": ("emitc_float32x4_erf(v)", (*_RATIONAL, "emitc_erf.h", "emitc_mve_erf.h")),
}
"""Formulas of float32 that have a twin for vectors, by name: its C, and the headers which that needs."""


def vector_layer(layer: Layer) -> Layer | str:
    """The layer for cores with vectors: four floats at a time, or sixteen bytes by table; or why there is none."""
    if layer.formula is None or layer.formula.name not in _BY_FOURS or layer.spec.x != DType.FLOAT32.c_type:
        return by_vectors(layer)
    c, headers = _BY_FOURS[layer.formula.name]
    formula = replace(layer.formula, name=f"{layer.formula.name}_mve", c=c)
    return replace(layer, template="activation/unary_mve", variant="mve", headers=headers, formula=formula)


_FUSED = {
    "tanh_rational": ("emitc_fpu_tanh(v)", "emitc_fpu_tanh.h"),
    "logistic_rational": ("emitc_fpu_logistic(v)", "emitc_fpu_tanh.h"),
    "erf": ("emitc_fpu_erf(v)", "emitc_fpu_erf.h"),
}
"""Formulas of float32 that have a twin for float units with fused steps, by name: its C, and the header which that needs."""


def float_unit_layer(layer: Layer) -> Layer | str:
    """The layer for cores with a float unit: coefficients loaded together; or why there is none."""
    if layer.formula is None or layer.formula.name not in _FUSED:
        return f"{layer.kernel_name} has a portable version only"
    c, header = _FUSED[layer.formula.name]
    formula = replace(layer.formula, name=f"{layer.formula.name}_fpu", c=c)
    return replace(layer, variant="fpu", headers=(*layer.headers, header), formula=formula)


def require_one_meaning(bound: BoundNode, *tensors: Tensor) -> None:
    """Refuses tensors of different scales where the operator compares or chooses the stored integers themselves."""
    if bound.node.op.numerics is not Numerics.QDQ:
        return
    for tensor in tensors:
        require_quantization(bound, tensor)
        if tensor.quantization != tensors[-1].quantization:
            what = "of tensors of different scales is not supported"
            why = "the numbers themselves are compared or chosen"
            raise unsupported(bound, what, why, "leave the operator in float32", tensor)

"""Activations that both formats have, of one value: LOGISTIC, TANH, RELU, RELU6, RELU_N1_TO_1, LEAKY_RELU, HARD_SWISH.

Shapes  any, y the same.   Types  int8. An int8 value has 256 results: each operator is a table, computed here.
        LOGISTIC, TANH, RELU, RELU6 and LEAKY_RELU also int16 (quantized_functions.py). All of them float32, by the
        function itself. In legacy uint8 models, whose numbers are 128 higher than here (HARD_SWISH as in int8).
LOGISTIC, TANH    gemmlowp's fixed-point exp and reciprocal on Q4.27; y has scale 1/256 and zero point -128, or 1/128 and 0.
RELU, LEAKY_RELU  requantized by x_scale / y_scale (times alpha below zero).
RELU_N1_TO_1      the same, the ratio rounded to float32.
RELU6             a clamp of the quantized value between the steps of 0 and 6 in x, whatever scale and zero point y has.
HARD_SWISH        16-bit arithmetic: x * (relu6(x + 3) / 6) with 7 more bits than x, both factors rounded.
uint8             LOGISTIC and TANH dequantized, the function, times 1 / y_scale, rounded half away from zero, in
                  float32; LOGISTIC is 1 / (1 + exp(-x)) with each of its steps rounded to float32. RELU, RELU6,
                  RELU_N1_TO_1 and LEAKY_RELU requantized by ratios of float32, within the steps of y between the
                  activation's bounds.
Source  TFLite Micro's int8 kernels, ratios of scales in double (measured); RELU_N1_TO_1, which it does not have, as
LiteRT's reference kernel; so do those of uint8 (measured). RELU6 between two scales is TFLite Micro's alone: LiteRT
goes over to the other one.
ONNX    Sigmoid, Tanh, Relu, LeakyRelu and HardSwish in float32, and on int8 with scales, as shared/pointwise.py says. Relu
        of integers without a DequantizeLinear compares the numbers themselves, whatever scale their tensor has. Relu of int16
        between a DequantizeLinear and a QuantizeLinear of one scale is max(q, zero_point): n = q - zero_point is less than
        2**16. The float32 product n * scale and the quotient by the scale are each off by 2**-24 of themselves at most. So they
        give n within 2**-7, which rounds to n. (A scale over 2**110 could overflow.)
Errors  scales beyond the fixed-point arithmetic; output scales other than those that LOGISTIC and TANH fix.
"""

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from emitc.errors import EmitcError, Note, NoteCode
from emitc.ir import Array, BoundNode, DType, Numerics, Op
from emitc.kernels.activation import quantized_functions
from emitc.kernels.activation.quantized_functions import through_float
from emitc.kernels.contract import (
    KernelDef,
    Parsed,
    Variant,
    illegal,
    out_of_proportion,
    require_dtypes,
    require_quantization,
)
from emitc.kernels.costs import UNKNOWN_PAIRS, UNKNOWN_VECTORS
from emitc.kernels.shared import int16x8, pointwise
from emitc.kernels.shared.pointwise import byte_table, require_activation, require_factor
from emitc.kernels.shared.sigmoid_table import Interpolation
from emitc.layer import Layer
from emitc.numerics import gemmlowp
from emitc.numerics.float_functions import FUNCTIONS, RealFunction
from emitc.numerics.requantize import (
    BYTES,
    INT32_MAX,
    Clamp,
    Float32,
    Int64,
    activation_clamp,
    multiplier_of,
    reduced_multiplier,
    requantize,
    rounding_shift_right,
)
from emitc.records import dataclass
from emitc.source import SourceNode

_INTEGER_BITS = 4
"""LOGISTIC and TANH see their input as Q4.27."""
_REACHES = {DType.INT8: 255, DType.INT16: 1 << 15}
"""Largest distance of a value to its zero point."""
_HARD_SWISH_BITS = 7
_LIFT = 128
"""What uint8 values of a legacy model are higher by."""


class Logistic(Op):
    """1 / (1 + exp(-x))."""


class Tanh(Op):
    """tanh(x)."""


class Relu(Op):
    """max(x, 0)."""


class Relu6(Op):
    """min(max(x, 0), 6)."""


class ReluN1To1(Op):
    """min(max(x, -1), 1)."""


@dataclass(frozen=True, slots=True)
class LeakyRelu(Op):
    """x, below zero alpha * x."""

    alpha: float


class HardSwish(Op):
    """x * min(max(x + 3, 0), 6) / 6."""


_FIXED_OUTPUTS: dict[type[Op], tuple[float, int]] = {Logistic: (1 / 256, -128), Tanh: (1 / 128, 0)}
_ACTIVATIONS: dict[type[Op], str] = {Relu: "RELU", Relu6: "RELU6", ReluN1To1: "RELU_N1_TO_1"}
"""Names of rectifiers as activations that other operators fuse."""


def _leaky_relu(node: SourceNode) -> Parsed:
    """ONNX alone has a default for the slope."""
    node.counts((1, 1))
    alpha = node.real("alpha", 0.01 if node.format == "onnx" else None)
    return pointwise.parser_of(partial(LeakyRelu, alpha))(node)


_REAL: dict[type[Op], RealFunction] = {
    Logistic: FUNCTIONS["Sigmoid"],
    Tanh: FUNCTIONS["Tanh"],
    Relu: FUNCTIONS["Relu"],
    LeakyRelu: FUNCTIONS["LeakyRelu"],
    HardSwish: FUNCTIONS["HardSwish"],
}
"""What ONNX computes."""


_PLAIN: dict[type[Op], RealFunction] = {
    **_REAL,
    Logistic: FUNCTIONS["SigmoidOfLibrary"],
    Tanh: FUNCTIONS["TanhOfLibrary"],
    Relu6: FUNCTIONS["Clip"],
    ReluN1To1: FUNCTIONS["Clip"],
    LeakyRelu: FUNCTIONS["LeakyReluAbove"],
    HardSwish: FUNCTIONS["HardSwishSixth"],
}
"""What TFLite computes of float32."""
_CLIPS: dict[type[Op], tuple[float, ...]] = {Relu6: (0.0, 6.0), ReluN1To1: (-1.0, 1.0)}


def _parameters(op: Op) -> tuple[float, ...]:
    return (float(np.float32(op.alpha)),) if isinstance(op, LeakyRelu) else _CLIPS.get(type(op), ())


def _function(op: Op) -> RealFunction:
    return (_PLAIN if op.numerics is Numerics.PLAIN else _REAL)[type(op)]


_LARGEST_SCALE = 2.0**110
"""Times the largest distance of an int16 value to its zero point it is within float32."""


def _keeps_steps(bound: BoundNode) -> bool:
    """Whether the operator is a Relu of dequantized int16 values that are quantized by the same scale and zero point again."""
    x, y = bound.input(0), bound.output
    if not isinstance(bound.node.op, Relu) or bound.node.op.numerics is not Numerics.QDQ:
        return False
    if not x.dtype is y.dtype is DType.INT16 or x.quantization is None or x.quantization != y.quantization:
        return False
    return x.quantization.per_tensor and x.quantization.scale <= _LARGEST_SCALE


def _compares_numbers(bound: BoundNode) -> bool:
    """Whether the operator is a Relu of integers that stand for themselves."""
    op, dtype = bound.node.op, bound.input(0).dtype
    return isinstance(op, Relu) and op.numerics is Numerics.QOPERATOR and dtype is not DType.FLOAT32


def _factors(bound: BoundNode) -> tuple[float, float]:
    """What inputs from zero on, and those below it, are multiplied with: as the golden engine computes it."""
    op, x, y = bound.node.op, bound.input(0).scale, bound.output.scale
    alpha = op.alpha if isinstance(op, LeakyRelu) else 1.0
    if not isinstance(op, ReluN1To1) and op.numerics is not Numerics.UNSIGNED:
        return x / y, x * alpha / y
    with np.errstate(all="ignore"):
        return float(np.float32(x) / np.float32(y)), float(np.float32(x) * np.float32(alpha) / np.float32(y))


def _out_of_proportion(bound: BoundNode) -> EmitcError:
    x, y = bound.input(0).scale, bound.output.scale
    return out_of_proportion(bound, f"input {x!r}, output {y!r}: the fixed-point arithmetic cannot hold the ratio")


def check(bound: BoundNode) -> None:
    """Refuses types without code and scales that the operator's arithmetic does not take."""
    op = bound.node.op
    if _compares_numbers(bound):
        pointwise.require_types(bound, [(t, t) for t in pointwise.SIGNED], "float32 and signed integers")
        return
    if op.numerics is Numerics.PLAIN:
        pointwise.require_types(bound, [(DType.FLOAT32,) * 2], "float32 and quantized integers")
        return
    if op.numerics.float_scale:
        if not _keeps_steps(bound):
            pointwise.check_real(bound)
        return
    others = (DType.UINT8, DType.FLOAT32)
    integers = (DType.INT8,) if op.numerics is Numerics.UNSIGNED else _integers(type(op))
    require_dtypes(bound, [(t, t) for t in integers], [(dtype,) * 2 for dtype in (*others, DType.INT16)])
    require_quantization(bound, bound.input(0), bound.output)
    int16x8.require_symmetric(bound)
    if isinstance(op, Logistic | Tanh):
        (_check_sigmoidal_int16 if int16x8.applies(bound) else _check_sigmoidal)(bound)
    elif isinstance(op, Relu6) and op.numerics is Numerics.TFLITE:
        require_activation(bound, "RELU6", bound.input(0))
    elif isinstance(op, HardSwish):
        # Beyond, shifts leave 16 bits; the output is never shifted left.
        output, reluish = (math.frexp(factor)[1] if factor < 1 << 30 else 31 for factor in _hard_swish_factors(bound))
        if not -15 <= output <= 0 or not -15 <= reluish <= 30:
            raise _out_of_proportion(bound)
    else:
        for factor in _factors(bound)[: 2 if isinstance(op, LeakyRelu) else 1]:
            require_factor(bound, abs(factor), _REACHES[bound.input(0).dtype])
        require_activation(bound, _ACTIVATIONS.get(type(op), "NONE"), bound.output)


def _integers(op: type[Op]) -> tuple[DType, ...]:
    return (DType.INT8,) if op in (HardSwish, ReluN1To1) else (DType.INT8, DType.INT16)


def _check_sigmoidal(bound: BoundNode) -> None:
    y, unsigned = bound.output, bound.node.op.numerics is Numerics.UNSIGNED
    scale, zero_point = fixed = _FIXED_OUTPUTS[type(bound.node.op)]
    if (y.scale, y.zero_point) != fixed:
        kind, lift = ("uint8", _LIFT) if unsigned else ("int8", 0)
        why = f"({y.scale!r}, {y.zero_point + lift}) found, TFLite fixes ({scale!r}, {zero_point + lift})"
        raise illegal(bound, f"has another output scale or zero point than its {kind} kernel writes", why, tensor=y)
    if not unsigned and not 0 <= math.frexp(bound.input(0).scale * 2.0 ** (31 - _INTEGER_BITS))[1] <= 62:
        raise _out_of_proportion(bound)


def _check_sigmoidal_int16(bound: BoundNode) -> None:
    y = bound.output
    if not quantized_functions.unit_scale(y.scale):
        what = "has another output scale than its int16 kernel writes"
        raise illegal(bound, what, f"{y.scale!r} found, TFLite fixes 2**-15", tensor=y)
    _sigmoidal_int16(bound)


def _hard_swish_factors(bound: BoundNode) -> tuple[float, float]:
    """From x with 7 more bits to the output, and to the scale at which 3.0 is 2**15."""
    hires = bound.input(0).scale / (1 << _HARD_SWISH_BITS)
    return hires / bound.output.scale, hires / (3 / (1 << 15))


def _two_over_one_plus(x: Int64) -> Int64:
    """2 / (1 + x) in Q2.29 for x in [0, 1] as Q0.31: three Newton steps from 48/17 - 32/17 d, d = (1 + x) / 2."""
    half = (x + INT32_MAX + 1) >> 1
    estimate = 1515870810 + gemmlowp.high_mul(half, -1010580540)
    for _ in range(3):
        error = (1 << 29) - gemmlowp.high_mul(half, estimate)
        estimate = estimate + gemmlowp.saturating_shift_left(gemmlowp.high_mul(estimate, error), 2)
    return np.asarray(estimate, np.int64)


def _sigmoidal(bound: BoundNode, q: Int64) -> Int64:
    """LOGISTIC and TANH: fixed point between two bounds beyond which the result is at its end; of uint8 in float32."""
    x, y = bound.input(0), bound.output
    if bound.node.op.numerics is Numerics.UNSIGNED:
        is_logistic = isinstance(bound.node.op, Logistic)
        function = _logistic if is_logistic else partial(FUNCTIONS["TanhOfLibrary"].apply, parameters=())
        return np.asarray(np.clip(through_float(bound, function, q - x.zero_point), -128, 127), np.int64)
    factor = x.scale * 2.0 ** (31 - _INTEGER_BITS)
    multiplier = multiplier_of(factor) if factor < 1 << 30 else None
    exponent = math.frexp(factor)[1]
    radius = math.floor(((1 << _INTEGER_BITS) - 1) * 2.0 ** (31 - _INTEGER_BITS) / 2.0**exponent)
    centred = q - x.zero_point
    inside = np.abs(centred) < radius
    # With a radius of 1 only the zero is inside, whatever its multiplier.
    scaled = (
        requantize(np.where(inside, centred, 0), multiplier.q31, multiplier.shift) if multiplier else np.zeros_like(q)
    )
    if isinstance(bound.node.op, Logistic):
        positive = gemmlowp.saturating_shift_left(
            _two_over_one_plus(gemmlowp.exp_on_negative_values(-np.abs(scaled), _INTEGER_BITS)), 1
        )
        value = np.where(scaled > 0, positive, np.where(scaled < 0, INT32_MAX - positive, 1 << 30))
        result = rounding_shift_right(value, 31 - 8)
    else:
        # exp(-2|x|): the same bits read with one integer bit more.
        decay = gemmlowp.exp_on_negative_values(-np.abs(scaled), _INTEGER_BITS + 1)
        positive = gemmlowp.saturating_shift_left(_two_over_one_plus(decay) - (1 << 29), 2)
        value = np.where(scaled == 0, 0, np.sign(scaled) * positive)
        result = rounding_shift_right(value, 31 - 7)
    result = np.clip(result + y.zero_point, -128, 127)
    return np.where(centred <= -radius, -128, np.where(centred >= radius, 127, result))


def _logistic(x: Float32) -> Float32:
    """The rounding of each step can move a value across the middle of two steps of the output."""
    return np.float32(1) / (np.float32(1) + FUNCTIONS["Exp"].apply(-x, ()))


def _rescaled(bound: BoundNode, q: Int64) -> Int64:
    """RELU, RELU_N1_TO_1 and LEAKY_RELU, and of uint8 RELU6."""
    op, y, (above, below) = bound.node.op, bound.output, _factors(bound)
    centred = q - bound.input(0).zero_point
    identity = multiplier_of(above)
    result = requantize(centred, identity.q31, identity.shift)
    if isinstance(op, LeakyRelu):
        slope, sign = multiplier_of(abs(below)), -1 if below < 0 else 1
        result = np.where(centred >= 0, result, sign * requantize(centred, slope.q31, slope.shift))
    clamp = activation_clamp(_ACTIVATIONS.get(type(op), "NONE"), y)
    return np.clip(result + y.zero_point, clamp.low, clamp.high)


def _high_mul16(a: Int64, b: int) -> Int64:
    """High 16 bits of 2ab, rounded half up; b in [0, 2**15)."""
    return (a * b + (1 << 14)) >> 15


def _multiplier16(factor: float) -> tuple[int, int]:
    """The factor as Q15 in [2**14, 2**15) or 0, and its exponent."""
    multiplier = multiplier_of(factor)
    return reduced_multiplier(multiplier.q31), multiplier.shift


def _hard_swish(bound: BoundNode, q: Int64) -> Int64:
    """HARD_SWISH, every value 16 bits wide."""
    (to_output, output_exponent), (to_reluish, exponent) = (_multiplier16(f) for f in _hard_swish_factors(bound))
    hires = (q - bound.input(0).zero_point) << _HARD_SWISH_BITS
    at_output = _high_mul16(hires, to_output)
    if exponent > 0:
        # The last bit of a left shift comes after the multiplication, so that only it can saturate visibly.
        halved = _high_mul16(np.clip(hires << (exponent - 1), *DType.INT16.range), to_reluish)
        gate = np.clip(halved << 1, *DType.INT16.range)
    else:
        gate = rounding_shift_right(_high_mul16(hires, to_reluish), -exponent)
    gate = (gate + (1 << 15)) >> 1
    product = gate * at_output
    # Towards zero, which cancels the bias of the roundings before.
    truncated = np.sign(product) * (np.abs(product) >> 15)
    moved = rounding_shift_right(truncated, -output_exponent) + bound.output.zero_point
    return np.clip(moved.astype(np.int16).astype(np.int64), -128, 127)


def results(bound: BoundNode, q: Int64) -> Int64:
    """The operator on quantized values of any shape."""
    op = bound.node.op
    if isinstance(op, Logistic | Tanh):
        return _sigmoidal_int16(bound).apply(q) if int16x8.applies(bound) else _sigmoidal(bound, q)
    if isinstance(op, HardSwish):
        return _hard_swish(bound, q)
    if isinstance(op, Relu6) and op.numerics is Numerics.TFLITE:
        clamp = activation_clamp("RELU6", bound.input(0))
        return np.clip(q, clamp.low, clamp.high)
    return _rescaled(bound, q)


def _sigmoidal_int16(bound: BoundNode) -> Interpolation:
    """Refuses an input scale that no multiplier holds."""
    interpolation = quantized_functions.interpolation(bound.input(0).scale, tanh=isinstance(bound.node.op, Tanh))
    if interpolation is None:
        raise _out_of_proportion(bound)
    return interpolation


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """The arithmetic on each value itself, not on a table of it."""
    op, x = bound.node.op, pointwise.operand(bound, inputs, 0)
    if _compares_numbers(bound):
        return (np.maximum(x, np.zeros((), x.dtype)),)
    if op.numerics.float_scale:
        return (pointwise.real_reference(bound, _function(op), _parameters(op), x),)
    return (results(bound, x.astype(np.int64)).astype(bound.output.dtype.value),)


def lower(bound: BoundNode) -> Layer:
    """The table of all results; the function itself where the tensor is not of bytes."""
    op = bound.node.op
    if _compares_numbers(bound):
        return pointwise.pointwise_layer(bound, pointwise.formula_of(FUNCTIONS["Relu"]))
    if _keeps_steps(bound):
        return quantized_functions.clamp_layer(bound, Clamp(bound.output.zero_point, DType.INT16.range[1]))
    if op.numerics.float_scale:
        return pointwise.real_layer(bound, _function(op), _parameters(op))
    if int16x8.applies(bound):
        return _lower_int16(bound)
    return byte_table(bound, 0, results(bound, BYTES))


def _lower_int16(bound: BoundNode) -> Layer:
    """The function itself on every value."""
    op = bound.node.op
    if isinstance(op, Logistic | Tanh):
        return _sigmoidal_int16(bound).layer(bound)
    if isinstance(op, Relu6):
        return quantized_functions.clamp_layer(bound, activation_clamp("RELU6", bound.input(0)))
    above, below = _factors(bound)
    identity = multiplier_of(above)
    if isinstance(op, LeakyRelu):
        return quantized_functions.leaky_layer(bound, identity, multiplier_of(abs(below)), -1 if below < 0 else 1)
    return quantized_functions.rectifier_layer(bound, identity, activation_clamp("RELU", bound.output))


def lower_mve(bound: BoundNode) -> Layer | str:
    """Four floats at a time, or a table of bytes by vectors."""
    return pointwise.vector_layer(lower(bound))


_FPU = Variant("fpu", "fpu", lambda bound: pointwise.float_unit_layer(lower(bound)), UNKNOWN_PAIRS, ())
_VECTORS = Variant("mve", "mve", lower_mve, UNKNOWN_VECTORS)
_VARIANTS: dict[type[Op], tuple[Variant, ...]] = {
    Logistic: (_VECTORS, _FPU),
    Tanh: (_VECTORS, _FPU),
    Relu: (Variant("mve", "mve", lower_mve, UNKNOWN_VECTORS, (DType.INT8, DType.FLOAT32)),),
    LeakyRelu: (_VECTORS,),
}
"""With the types that they have in both formats: except for Relu's, those of float32 are for ONNX models alone."""


def _note(bound: BoundNode) -> Note | None:
    """That RELU6 leaves the output's scale out of account."""
    op = bound.node.op
    same_encoding = op.numerics is Numerics.UNSIGNED or bound.input(0).quantization == bound.output.quantization
    if same_encoding or not isinstance(op, Relu6):
        return None
    what = (
        "the output keeps the input's steps, whatever its scale says, as in TFLite Micro; LiteRT goes over to its scale"
    )
    return Note(NoteCode.OTHER_SCALE, what)


def _kernel(op: type[Op], name: str, summary: str, onnx: str = "") -> KernelDef:
    parser = _leaky_relu if op is LeakyRelu else pointwise.parser_of(op)
    return KernelDef(
        op, summary, (DType.INT8, DType.FLOAT32), (name,), parser, check, reference, lower,
        tflite_dtypes=(*_integers(op), DType.UINT8, DType.FLOAT32), onnx=(onnx,) if onnx else (),
        from_onnx=parser if onnx else None, elementwise=True, variants=_VARIANTS.get(op, ()), note=_note,
    )  # fmt: skip


KERNELS = (
    _kernel(Logistic, "LOGISTIC", "logistic function; of bytes by table", "Sigmoid"),
    _kernel(Tanh, "TANH", "hyperbolic tangent; of bytes by table", "Tanh"),
    _kernel(Relu, "RELU", "rectifier between any scales; of bytes by table", "Relu"),
    _kernel(Relu6, "RELU6", "clamp to [0, 6], by table"),
    _kernel(ReluN1To1, "RELU_N1_TO_1", "clamp to [-1, 1] between any scales, by table"),
    _kernel(LeakyRelu, "LEAKY_RELU", "rectifier with a slope below zero; of bytes by table", "LeakyRelu"),
    _kernel(HardSwish, "HARD_SWISH", "x * relu6(x + 3) / 6; of bytes by table", "HardSwish"),
)

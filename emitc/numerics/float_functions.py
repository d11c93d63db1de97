"""Functions of one float32 value, as numpy computes them: the oracle of every operator that applies one to each element.

Transcendental functions are computed in float64 and rounded once, so that they are within half a unit in the last place of
the truth; what ONNX Runtime composes of float32 additions and multiplications is composed alike, and then has its bits, as
its Sigmoid, Tanh and Erf are. TFLite's call the math library.
"""

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from emitc.numerics import engine_functions
from emitc.numerics.requantize import Float32
from emitc.records import dataclass

_Float64 = NDArray[np.float64]
_ZERO, _HALF, _ONE = np.float32(0), np.float32(0.5), np.float32(1)


@dataclass(frozen=True, slots=True)
class RealFunction:
    """A function of one element: its oracle and its C, side by side.

    name: of the kernel in C. value: of x and the parameters as float32, of any shape. c: the same as a C expression of the
    element `v` and the parameters `p`; "" where the template `activation/NAME` prints it, as it is more than one expression.
    comment: the function in words, for the kernel's comment. parameters: names of the float32 parameters, in order. headers: of
    the runtime, that the kernel needs. math: whether the expression needs <math.h>.
    """

    name: str
    value: Callable[..., Float32]
    c: str = ""
    comment: str = ""
    parameters: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()
    math: bool = False

    def apply(self, x: Float32, parameters: tuple[float, ...]) -> Float32:
        """The function of every element; infinities and NaN come out as they do, without a warning."""
        with np.errstate(all="ignore"):
            return np.asarray(self.value(x, *(np.float32(p) for p in parameters)), np.float32)


def _rounded(function: Callable[[_Float64], _Float64]) -> Callable[[Float32], Float32]:
    """A function that is computed in float64 and rounded once."""
    return lambda x: np.asarray(function(x.astype(np.float64)).astype(np.float32))


_exp = _rounded(np.exp)
_tanh = _rounded(np.tanh)
_sigmoid = _rounded(lambda x: 1 / (1 + np.exp(-x)))
_erf = _rounded(np.vectorize(math.erf, otypes=[np.float64]))
_softplus = _rounded(lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))))


def _unit(x: Float32) -> Float32:
    """x limited to [0, 1]."""
    return np.maximum(np.minimum(x, _ONE), _ZERO)


def _clip(x: Float32, low: np.float32, high: np.float32) -> Float32:
    # In this order: high wins where the bounds are the wrong way round. A NaN stays one.
    raised = np.where(x < low, low, x)
    return np.where(raised > high, high, raised)


def _leaky_relu_above(x: Float32, alpha: np.float32) -> Float32:
    """TFLite's: a zero, too, is multiplied, which only its sign may show."""
    return np.where(x > 0, x, alpha * x)


def _hard_swish_sixth(x: Float32) -> Float32:
    """TFLite's: the product is divided."""
    gate = x + np.float32(3)
    return x * np.where(gate > 0, np.minimum(gate, np.float32(6)), _ZERO) / np.float32(6)


def _round_positive_zero(x: Float32) -> Float32:
    """TFLite's: what becomes 0 is positive, unless it is -0 itself."""
    return np.where(x == 0, x, np.rint(x) + _ZERO)


def _elu(x: Float32, amplitude: np.float32, slope: np.float32) -> Float32:
    """slope * x; below zero amplitude * (exp(x) - 1)."""
    return np.where(x < 0, amplitude * (_exp(x) - _ONE), slope * x)


def _gelu_tanh(x: Float32) -> Float32:
    cubic, linear = np.float32(math.sqrt(2 / math.pi) * 0.044715), np.float32(math.sqrt(2 / math.pi))
    return _HALF * x * (_ONE + _tanh(x * (cubic * x * x + linear)))


def _mish(x: Float32) -> Float32:
    wide = x.astype(np.float64)
    return np.asarray((wide * np.tanh(np.maximum(wide, 0) + np.log1p(np.exp(-np.abs(wide))))).astype(np.float32))


def _shrink(x: Float32, threshold: np.float32, bias: np.float32) -> Float32:
    return np.where(x < -threshold, x + bias, np.where(x > threshold, x - bias, _ZERO))


def _square_root(x: Float32) -> Float32:
    """x ** 0.5, which differs from sqrt(x) at -0 and minus infinity."""
    return np.where(np.isneginf(x), np.float32(np.inf), np.sqrt(x + _ZERO))


def _of_math(
    name: str, value: Callable[..., Float32], c: str, comment: str, parameters: tuple[str, ...] = ()
) -> RealFunction:
    """A function whose C calls functions of <math.h>."""
    return RealFunction(name, value, c, comment, parameters, math=True)


FUNCTIONS: Mapping[str, RealFunction] = MappingProxyType({
    "Relu": RealFunction("relu", lambda x: np.where(x < 0, _ZERO, x), "v < 0 ? ({y})0 : v", "x, or 0 where it is negative"),
    "Clip": RealFunction("clip", _clip,
        "v < p->low ? (p->low > p->high ? p->high : p->low) : v > p->high ? p->high : v",
        "x limited to low..high; high where they are the wrong way round", ("low", "high")),
    "LeakyRelu": RealFunction("leaky_relu", lambda x, alpha: np.where(x < 0, alpha * x, x),
        "v < 0.0f ? p->alpha * v : v", "x, alpha * x where it is negative", ("alpha",)),
    "ThresholdedRelu": RealFunction("thresholded_relu", lambda x, alpha: np.where(x > alpha, x, _ZERO),
        "v > p->alpha ? v : 0.0f", "x, or 0 where it is not over alpha", ("alpha",)),
    "Elu": _of_math("elu", _elu,
        "v < 0.0f ? p->amplitude * (expf(v) - 1.0f) : p->slope * v",
        "slope * x, amplitude * (exp(x) - 1) where x is negative", ("amplitude", "slope")),
    "Celu": _of_math("celu", lambda x, alpha: np.where(x < 0, alpha * (_exp(x / alpha) - _ONE), x),
        "v < 0.0f ? p->alpha * (expf(v / p->alpha) - 1.0f) : v",
        "x, alpha * (exp(x / alpha) - 1) where it is negative", ("alpha",)),
    "HardSigmoid": RealFunction("hard_sigmoid", lambda x, alpha, beta: _unit(alpha * x + beta),
        parameters=("alpha", "beta")),
    "HardSwish": RealFunction("hard_swish", lambda x: x * _unit(np.float32(1 / 6) * x + _HALF)),
    "Sigmoid": RealFunction("logistic_rational", engine_functions.logistic,
        "emitc_logistic(v)", "1 / (1 + exp(-x))", headers=engine_functions.HEADERS),
    "SigmoidOfLibrary": _of_math("sigmoid", _sigmoid, "1.0f / (1.0f + expf(-v))", "1 / (1 + exp(-x))"),
    "Swish": _of_math("swish", lambda x, alpha: x * _sigmoid(alpha * x),
        "v / (1.0f + expf(-p->alpha * v))", "x / (1 + exp(-alpha * x))", ("alpha",)),
    "Mish": RealFunction("mish", _mish),
    "Gelu": _of_math("gelu", lambda x: _HALF * x * (_ONE + _erf(x * np.float32(math.sqrt(0.5)))),
        "0.5f * v * (1.0f + erff(v * 0.70710678f))",
        "x / 2 * (1 + erf(x / sqrt(2)))"),
    "GeluTanh": _of_math("gelu_tanh", _gelu_tanh,
        "0.5f * v * (1.0f + tanhf(v * (0.035677408f * v * v + 0.7978846f)))",
        "x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 * x^3)))"),
    "Softplus": _of_math("softplus", _softplus,
        "(v > 0.0f ? v : 0.0f) + log1pf(expf(-fabsf(v)))", "log(1 + exp(x))"),
    "Softsign": _of_math("softsign", lambda x: x / (_ONE + np.abs(x)), "v / (1.0f + fabsf(v))", "x / (1 + |x|)"),
    "Shrink": RealFunction("shrink", _shrink,
        "v < -p->threshold ? v + p->bias : v > p->threshold ? v - p->bias : 0.0f",
        "x nearer to 0 by bias; 0 where |x| is at most threshold", ("threshold", "bias")),
    "Abs": _of_math("absolute", np.abs, "fabsf(v)", "|x|"),
    "Neg": RealFunction("negative", np.negative, "-v", "-x"),
    "LeakyReluAbove": RealFunction("leaky_relu_above", _leaky_relu_above,
        "v > 0.0f ? v : p->alpha * v", "x where it is positive, otherwise alpha * x", ("alpha",)),
    "HardSwishSixth": RealFunction("hard_swish_sixth", _hard_swish_sixth),
    "RoundPositiveZero": _of_math("round_positive_zero", _round_positive_zero,
        "v == 0.0f ? v : rintf(v) + 0.0f", "x rounded half to even; what becomes 0 loses its sign"),
    "Rsqrt": _of_math("reciprocal_root", lambda x: _ONE / np.sqrt(x),
        "1.0f / sqrtf(v)", "1 / the square root of x"),
    "Sign": RealFunction("sign", np.sign,
        "v > 0.0f ? 1.0f : v < 0.0f ? -1.0f : v + 0.0f", "1, 0 or -1, and a NaN stays one"),
    "Reciprocal": RealFunction("reciprocal", lambda x: _ONE / x, "1.0f / v", "1 / x"),
    "Square": RealFunction("square", lambda x: x * x, "v * v", "x * x"),
    "Cube": RealFunction("cube", lambda x: x * x * x, "v * v * v", "x * x * x"),
    "SquareRoot": _of_math("square_root", _square_root,
        "v == -INFINITY ? INFINITY : sqrtf(v + 0.0f)",
        "x to the power of 1/2, which is the root except for -0 and minus infinity"),
    "Sqrt": _of_math("sqrt", np.sqrt, "sqrtf(v)", "the square root of x"),
    "Floor": _of_math("floor", np.floor, "floorf(v)", "the whole number at or under x"),
    "Ceil": _of_math("ceil", np.ceil, "ceilf(v)", "the whole number at or over x"),
    "Round": _of_math("round", np.rint, "rintf(v)", "x rounded half to even"),
    "Erf": RealFunction("erf", engine_functions.erf,
        "emitc_erf(v)", "erf(x)", headers=engine_functions.ERF_HEADERS),
    "Exp": _of_math("exp", _exp, "expf(v)", "exp(x)"),
    "Log": _of_math("log", _rounded(np.log), "logf(v)", "the natural logarithm of x"),
    "Sin": _of_math("sin", _rounded(np.sin), "sinf(v)", "sin(x)"),
    "Cos": _of_math("cos", _rounded(np.cos), "cosf(v)", "cos(x)"),
    "Tan": _of_math("tan", _rounded(np.tan), "tanf(v)", "tan(x)"),
    "Asin": _of_math("asin", _rounded(np.arcsin), "asinf(v)", "asin(x)"),
    "Acos": _of_math("acos", _rounded(np.arccos), "acosf(v)", "acos(x)"),
    "Atan": _of_math("atan", _rounded(np.arctan), "atanf(v)", "atan(x)"),
    "Sinh": _of_math("sinh", _rounded(np.sinh), "sinhf(v)", "sinh(x)"),
    "Cosh": _of_math("cosh", _rounded(np.cosh), "coshf(v)", "cosh(x)"),
    "Tanh": RealFunction("tanh_rational", engine_functions.tanh,
        "emitc_tanh(v)", "tanh(x)", headers=engine_functions.HEADERS),
    "TanhOfLibrary": _of_math("tanh", _tanh, "tanhf(v)", "tanh(x)"),
    "Asinh": _of_math("asinh", _rounded(np.arcsinh), "asinhf(v)", "asinh(x)"),
    "Acosh": _of_math("acosh", _rounded(np.arccosh), "acoshf(v)", "acosh(x)"),
    "Atanh": _of_math("atanh", _rounded(np.arctanh), "atanhf(v)", "atanh(x)"),
})  # fmt: skip
"""By ONNX's names, and by names of our own where a parameter of ONNX chooses among several."""

COSTLY = frozenset((
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Celu", "Cos", "Cosh", "Elu", "Erf", "Exp",
    "Gelu", "GeluTanh", "Log", "Mish", "Sigmoid", "Sin", "Sinh", "Softplus", "Swish", "Tan", "Tanh",
))  # fmt: skip
"""Those that take long for each value."""

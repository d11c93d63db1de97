"""Functions of one float32 value, as numpy computes them: the oracle of every operator that applies one to each element.

Transcendental functions are computed in float64 and rounded once, so that they are within half a unit in the last place of
the truth; what ONNX Runtime composes of float32 additions and multiplications is composed alike, and then has its bits, as
its Sigmoid, Tanh and Erf are. TFLite's call the math library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from emitc.numerics import erf, tanh_logistic
from emitc.numerics.requantize import Float32

_Float64 = NDArray[np.float64]
_ZERO, _HALF, _ONE = np.float32(0), np.float32(0.5), np.float32(1)


@dataclass(frozen=True, slots=True)
class RealFunction:
    """A function: the template that prints it, the names of its float32 parameters there, and its value.

    value: of x and the parameters as float32, of any shape. headers: of the runtime, that the template's kernel needs.
    """

    template: str
    value: Callable[..., Float32]
    parameters: tuple[str, ...] = ()
    headers: tuple[str, ...] = ()

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


def _relu(x: Float32) -> Float32:
    return np.where(x < 0, _ZERO, x)


def _clip(x: Float32, low: np.float32, high: np.float32) -> Float32:
    # In this order: high wins where the bounds are the wrong way round. A NaN stays one.
    raised = np.where(x < low, low, x)
    return np.where(raised > high, high, raised)


def _leaky_relu(x: Float32, alpha: np.float32) -> Float32:
    return np.where(x < 0, alpha * x, x)


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


def _celu(x: Float32, alpha: np.float32) -> Float32:
    return np.where(x < 0, alpha * (_exp(x / alpha) - _ONE), x)


def _gelu(x: Float32) -> Float32:
    return _HALF * x * (_ONE + _erf(x * np.float32(math.sqrt(0.5))))


def _gelu_tanh(x: Float32) -> Float32:
    cubic, linear = np.float32(math.sqrt(2 / math.pi) * 0.044715), np.float32(math.sqrt(2 / math.pi))
    return _HALF * x * (_ONE + _tanh(x * (cubic * x * x + linear)))


def _mish(x: Float32) -> Float32:
    wide = x.astype(np.float64)
    return np.asarray((wide * np.tanh(np.maximum(wide, 0) + np.log1p(np.exp(-np.abs(wide))))).astype(np.float32))


def _swish(x: Float32, alpha: np.float32) -> Float32:
    return x * _sigmoid(alpha * x)


def _shrink(x: Float32, threshold: np.float32, bias: np.float32) -> Float32:
    return np.where(x < -threshold, x + bias, np.where(x > threshold, x - bias, _ZERO))


def _square_root(x: Float32) -> Float32:
    """x ** 0.5, which differs from sqrt(x) at -0 and minus infinity."""
    return np.where(np.isneginf(x), np.float32(np.inf), np.sqrt(x + _ZERO))


FUNCTIONS: Mapping[str, RealFunction] = MappingProxyType({
    "Relu": RealFunction("activation/relu", _relu),
    "Clip": RealFunction("activation/clip", _clip, ("low", "high")),
    "LeakyRelu": RealFunction("activation/leaky_relu", _leaky_relu, ("alpha",)),
    "ThresholdedRelu": RealFunction("activation/thresholded_relu", lambda x, alpha: np.where(x > alpha, x, _ZERO), ("alpha",)),
    "Elu": RealFunction("activation/elu", _elu, ("amplitude", "slope")),
    "Celu": RealFunction("activation/celu", _celu, ("alpha",)),
    "HardSigmoid": RealFunction("activation/hard_sigmoid", lambda x, alpha, beta: _unit(alpha * x + beta), ("alpha", "beta")),
    "HardSwish": RealFunction("activation/hard_swish", lambda x: x * _unit(np.float32(1 / 6) * x + _HALF)),
    "Sigmoid": RealFunction("activation/logistic_rational", tanh_logistic.logistic, headers=("emitc_bits.h", "emitc_rational.h")),
    "SigmoidOfLibrary": RealFunction("activation/sigmoid", _sigmoid),
    "Swish": RealFunction("activation/swish", _swish, ("alpha",)),
    "Mish": RealFunction("activation/mish", _mish),
    "Gelu": RealFunction("activation/gelu", _gelu),
    "GeluTanh": RealFunction("activation/gelu_tanh", _gelu_tanh),
    "Softplus": RealFunction("activation/softplus", _softplus),
    "Softsign": RealFunction("activation/softsign", lambda x: x / (_ONE + np.abs(x))),
    "Shrink": RealFunction("activation/shrink", _shrink, ("threshold", "bias")),
    "Abs": RealFunction("activation/absolute", np.abs),
    "Neg": RealFunction("activation/negative", np.negative),
    "LeakyReluAbove": RealFunction("activation/leaky_relu_above", _leaky_relu_above, ("alpha",)),
    "HardSwishSixth": RealFunction("activation/hard_swish_sixth", _hard_swish_sixth),
    "RoundPositiveZero": RealFunction("activation/round_positive_zero", _round_positive_zero),
    "Rsqrt": RealFunction("activation/reciprocal_root", lambda x: _ONE / np.sqrt(x)),
    "Sign": RealFunction("activation/sign", np.sign),
    "Reciprocal": RealFunction("activation/reciprocal", lambda x: _ONE / x),
    "Square": RealFunction("activation/square", lambda x: x * x),
    "Cube": RealFunction("activation/cube", lambda x: x * x * x),
    "SquareRoot": RealFunction("activation/square_root", _square_root),
    "Sqrt": RealFunction("activation/sqrt", np.sqrt),
    "Floor": RealFunction("activation/floor", np.floor),
    "Ceil": RealFunction("activation/ceil", np.ceil),
    "Round": RealFunction("activation/round", np.rint),
    "Erf": RealFunction("activation/erf", erf.erf, headers=("emitc_bits.h", "emitc_rational.h", "emitc_erf.h")),
    "Exp": RealFunction("activation/exp", _exp),
    "Log": RealFunction("activation/log", _rounded(np.log)),
    "Sin": RealFunction("activation/sin", _rounded(np.sin)),
    "Cos": RealFunction("activation/cos", _rounded(np.cos)),
    "Tan": RealFunction("activation/tan", _rounded(np.tan)),
    "Asin": RealFunction("activation/asin", _rounded(np.arcsin)),
    "Acos": RealFunction("activation/acos", _rounded(np.arccos)),
    "Atan": RealFunction("activation/atan", _rounded(np.arctan)),
    "Sinh": RealFunction("activation/sinh", _rounded(np.sinh)),
    "Cosh": RealFunction("activation/cosh", _rounded(np.cosh)),
    "Tanh": RealFunction("activation/tanh_rational", tanh_logistic.tanh, headers=("emitc_bits.h", "emitc_rational.h")),
    "TanhOfLibrary": RealFunction("activation/tanh", _tanh),
    "Asinh": RealFunction("activation/asinh", _rounded(np.arcsinh)),
    "Acosh": RealFunction("activation/acosh", _rounded(np.arccosh)),
    "Atanh": RealFunction("activation/atanh", _rounded(np.arctanh)),
})  # fmt: skip
"""By ONNX's names, and by names of our own where a parameter of ONNX chooses among several."""

COSTLY = frozenset((
    "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Celu", "Cos", "Cosh", "Elu", "Erf", "Exp",
    "Gelu", "GeluTanh", "Log", "Mish", "Sigmoid", "Sin", "Sinh", "Softplus", "Swish", "Tan", "Tanh",
))  # fmt: skip
"""Those that take long for each value."""

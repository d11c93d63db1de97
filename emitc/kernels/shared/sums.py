"""Sums and means: loops of a reduction, requantized sums of int8 values, and where a mean rounds as in float32.

Loops, over any set of dimensions: neighbouring dimensions that are all kept or all reduced are one group, so that almost every
model needs one of each; four of each serve every set of axes of eight dimensions.

Sums at one scale, as TFLite Micro's ADD_N and CUMSUM requantize them: y = clamp(y_zero + rq(acc * 2**19)), the factor 2 * x_scale
/ (2**20 * y_scale). Each value is shifted left by 20 bits and halved, which is exact, so that whole steps can be summed and
shifted once. acc * 2**19 wraps to 32 bits.

Means of ONNX Runtime: it dequantizes, sums and divides in float32, and every operation rounds. Its result differs from the exact
mean by little. So it rounds the same way unless the mean lies near a half between two integers; there the float32 operations
have to be repeated one by one. How near is decided here, at compile time.
"""

import math
from collections.abc import Iterable

import numpy as np

from emitc.ir import Array, BoundNode, DType, Quantization, Shape
from emitc.kernels.contract import out_of_proportion, require_quantization
from emitc.kernels.shared.integer_attributes import integer_list
from emitc.kernels.shared.pointwise import printed
from emitc.layer import KernelSpec, Layer, Param, ReductionFormula, integers
from emitc.numerics.requantize import Int64, Multiplier, multiplier_of, requantize
from emitc.records import dataclass
from emitc.source import SourceNode

_LOOPS = 4
Formulas = tuple[ReductionFormula, ReductionFormula]
"""Of elements that are float32, and of integers."""


@dataclass(frozen=True, slots=True)
class Group:
    """Neighbouring dimensions that are all kept or all reduced: `count` steps of `stride` elements."""

    count: int
    stride: int
    reduced: bool


def groups_of(shape: Shape, axes: Iterable[int]) -> tuple[Group, ...]:
    """The dimensions of a tensor, outermost first; those of size 1 belong to no group.

    >>> groups_of((2, 3, 4), (1,))
    (Group(count=2, stride=12, reduced=False), Group(count=3, stride=4, reduced=True), Group(count=4, stride=1, reduced=False))
    """
    reduced_axes = frozenset(axes)
    groups: list[Group] = []
    for axis, size in enumerate(shape):
        stride = math.prod(shape[axis + 1 :])
        reduced = axis in reduced_axes
        if size == 1:
            continue
        if groups and groups[-1].reduced == reduced:
            groups[-1] = Group(groups[-1].count * size, stride, reduced)
        else:
            groups.append(Group(size, stride, reduced))
    return tuple(groups)


def loop_params(groups: tuple[Group, ...], loops: int) -> tuple[Param, ...]:
    """The members kept0, kept0_stride, ... and reduced0, ... of a parameter struct, `loops` of each, innermost last."""
    params: list[Param] = []
    for name, reduced in (("kept", False), ("reduced", True)):
        own = [group for group in groups if group.reduced == reduced]
        for i, group in enumerate([Group(1, 0, reduced)] * (loops - len(own)) + own):
            params.append(Param(f"{name}{i}", "int32_t", group.count))
            params.append(Param(f"{name}{i}_stride", "int32_t", group.stride))
    return tuple(params)


def onnx_axes(node: SourceNode) -> tuple[int, ...]:
    """The dimensions that a Reduce operator of ONNX names by input or attribute, ascending and not negative.

    None named: all, or with noop_with_empty_axes none.
    """
    rank = len(node.input(0).shape)
    listed = integer_list(node, "axes", 1)
    if not listed:
        return () if node.integer("noop_with_empty_axes", 0, 0, 1) else tuple(range(rank))
    if not all(-rank <= axis < rank for axis in listed):
        raise node.refusal(f"has axes {list(listed)}", f"the input has {rank} dimensions", tensor=node.input(0))
    return tuple(sorted({axis % rank for axis in listed}))


def wrapping(name: str, comment: str, real: str, integer: str, start: str = "0") -> Formulas:
    """The formulas of a reduction whose accumulator has the elements' type. Integers wrap, without sign.

    real, integer: the accumulator's next value; start: its first one.
    """
    return (
        ReductionFormula(name, "acc", comment, accumulator="float", start=f"{start}.0f", step=real),
        ReductionFormula(name, "({y})acc", comment, accumulator="u{x}", start=start, step=integer),
    )


_SMALLEST = ReductionFormula("reduce_min", "acc", "Smallest", start="*x", step="v < acc ? v : acc")
SMALLEST = (_SMALLEST, _SMALLEST)
"""Of any elements, and of truth values whether all are true."""


def typed_layer(
    bound: BoundNode, kernel: Formulas | str, axes: tuple[int, ...], extra: tuple[Param, ...] = ()
) -> Layer:
    """A layer for every set of axes and several element types: of the formula for reals or integers, or of a template."""
    x, y = bound.input(0), bound.output
    types = x.dtype.value if x.dtype is y.dtype else f"{x.dtype.value}_{y.dtype.value}"
    spec = KernelSpec(f"_{types}", fixed_point=False, x=x.dtype.c_type, y=y.dtype.c_type)
    params = (*loop_params(groups_of(x.shape, axes), _LOOPS), *extra)
    own = kernel if isinstance(kernel, str) else kernel[x.dtype is not DType.FLOAT32]
    template, formula = printed(own, "reduction/reduce")
    return Layer(template, "portable", (0,), params=params, spec=spec, formula=formula)


_UNIT = 2.0**-24
"""Relative error of one float32 rounding."""
_FRACTION_BITS = 16
"""Of the integer mean on the device."""
_ALWAYS = 1 << (_FRACTION_BITS - 1)
_LARGEST = 1 << 20
"""Means beyond it leave the integers that hold them on the device."""


@dataclass(frozen=True, slots=True)
class RoundingTie:
    """mean = (sum * (multiplier / count)) >> right has 16 bits of fraction; within `doubt` of a half float32 decides."""

    multiplier: int
    right: int
    doubt: int

    @property
    def params(self) -> tuple[Param, ...]:
        return integers(
            multiplier=(self.multiplier, "x_scale / y_scale"),
            right=(self.right, "its bits of fraction beyond 16"),
            doubt=(self.doubt, "distance to a half, in 2^-16, at which float32 decides"),
        )


def decision(x: Quantization, y: Quantization, dtype: DType, count: int) -> RoundingTie:
    """For means of at most `count` values of `dtype`, quantized as x, that are quantized as y.

    For every value and every addition, the float32 mean is off by half a unit in the last place of the largest sum. For each of
    three steps after it (division, division by the scale, zero point) it is off by one; the integer mean by what its
    multiplier, the division and the bits of fraction leave out.
    """
    ratio = x.scale / y.scale
    _, exponent = math.frexp(ratio)
    fraction = 30 - exponent
    reach = max(x.zero_point - dtype.range[0], dtype.range[1] - x.zero_point)
    in_float = _UNIT * (reach * ratio * (count + 4) + abs(y.zero_point) + 1024)
    in_integers = 2.0 * reach * count / 2.0**fraction
    if fraction < _FRACTION_BITS or reach * ratio >= _LARGEST or in_float + in_integers >= 0.5:
        return RoundingTie(0, 0, _ALWAYS)
    doubt = min(math.ceil((in_float + in_integers) * (1 << _FRACTION_BITS)) + 2, _ALWAYS)
    return RoundingTie(math.floor(ratio * 2.0**fraction), fraction - _FRACTION_BITS, doubt)


GAINED_BITS = 19


def _factor(bound: BoundNode) -> float:
    x, y = bound.input(0), bound.output
    return 2 * x.scale / ((1 << (GAINED_BITS + 1)) * y.scale)


def _multiplier(bound: BoundNode) -> Multiplier:
    return multiplier_of(_factor(bound))


def check_sum(bound: BoundNode) -> None:
    """Refuses tensors without a scale, and scales whose ratio the fixed-point arithmetic cannot hold."""
    x, y = bound.input(0), bound.output
    require_quantization(bound, x, y)
    if not _factor(bound) < 1.0 - 2.0**-32:
        why = f"input {x.scale!r}, output {y.scale!r}: the ratio does not fit the fixed-point arithmetic"
        raise out_of_proportion(bound, why)


def rescaled(bound: BoundNode, acc: Int64) -> Array:
    """The sums of steps, requantized to the output."""
    y, last = bound.output, _multiplier(bound)
    wide = (acc << GAINED_BITS).astype(np.int32).astype(np.int64)
    result = requantize(wide, last.q31, last.shift) + y.zero_point
    return np.clip(result, *y.dtype.range).astype(y.dtype.value)


def sum_params(bound: BoundNode) -> tuple[Param, ...]:
    """The requantization as members of a parameter struct; the templates shift by 19 bits first."""
    last = _multiplier(bound)
    return integers(
        multiplier=(last.q31, "Q31, of sums with 19 more bits"),
        shift=(last.shift, "positive left"),
        output_offset=bound.output.zero_point,
    )

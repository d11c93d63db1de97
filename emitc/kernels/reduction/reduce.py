"""ReduceMax, ReduceMin, ReduceProd, ReduceL1, ReduceL2, ReduceSumSquare, ReduceLogSum and ReduceLogSumExp of ONNX; REDUCE_MAX
and REDUCE_MIN of TFLite, for int8 and float32, and for int16, int32 and int64, which LiteRT alone runs; REDUCE_PROD of TFLite
without scales, which LiteRT alone runs; REDUCE_ALL of TFLite, whether all values are true: the smallest of 0 and 1.

Shapes  x any, y without the reduced dimensions, or with size 1 in their place (keepdims).
Types   float32; int32 and int64, which wrap, where the result is an integer; for maxima and minima also int8, int16,
        uint8 and bool, whatever their scale.
LogSumExp: the largest value is taken out first, so that no exponential overflows. Source: ONNX operator specification.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emitc.ir import Array, BoundNode, DType
from emitc.kernels.contract import KernelDef, require_dtypes, require_same_quantization
from emitc.kernels.reduction import mean
from emitc.kernels.shared.pointwise import operand
from emitc.kernels.shared.sums import SMALLEST, Formulas, typed_layer, wrapping
from emitc.layer import Layer, ReductionFormula
from emitc.records import dataclass


class ReduceMax(mean.Reduction):
    """Largest value."""


class ReduceMin(mean.Reduction):
    """Smallest value."""


class ReduceAll(mean.Reduction):
    """Logical and."""


class ReduceProd(mean.Reduction):
    """Product."""


class ReduceL1(mean.Reduction):
    """Sum of magnitudes."""


class ReduceL2(mean.Reduction):
    """Square root of the sum of squares."""


class ReduceSumSquare(mean.Reduction):
    """Sum of squares."""


class ReduceLogSum(mean.Reduction):
    """Logarithm of the sum."""


class ReduceLogSumExp(mean.Reduction):
    """Logarithm of the sum of exponentials."""


_Values = NDArray[Any]
_Rule = Callable[[_Values, tuple[int, ...]], _Values]
_FLOAT, _TRUTH = (DType.FLOAT32,), (DType.BOOL,)
_WRAPPING = (*_FLOAT, DType.INT32, DType.INT64)
_TFLITE = (*_FLOAT, DType.INT8, DType.INT16, DType.INT32, DType.INT64)
_ANY = (*_WRAPPING, DType.INT8, DType.INT16, DType.UINT8, DType.BOOL)


def _first(find: Callable[..., _Values]) -> _Rule:
    """The value at the place that `find` gives, the first one in row-major order: 0 and -0 are equal, but not the same."""

    def rule(x: _Values, axes: tuple[int, ...]) -> _Values:
        ordered = sorted(axes)
        last = np.moveaxis(x, ordered, range(-len(ordered), 0))
        rows = last.reshape(*last.shape[: last.ndim - len(ordered)], -1)
        return np.asarray(np.take_along_axis(rows, find(rows, axis=-1, keepdims=True), -1)[..., 0])

    return rule


def _log_sum_exp(x: _Values, axes: tuple[int, ...]) -> _Values:
    largest = np.max(x, axis=axes, keepdims=True)
    return np.asarray(np.log(np.sum(np.exp(x - largest), axis=axes)) + largest.reshape(np.sum(x, axis=axes).shape))


@dataclass(frozen=True, slots=True)
class _Kind:
    """kernel: formulas of the C, or its template. dtypes: element types. rule: on float64 or int64 values.

    tflite: name in TFLite, "" for none. in_tflite: its types there. onnx: whether ONNX has the operator.
    """

    kernel: Formulas | str
    dtypes: tuple[DType, ...]
    rule: _Rule
    summary: str
    tflite: str = ""
    in_tflite: tuple[DType, ...] = _TFLITE
    onnx: bool = True


_MAX = ReductionFormula("reduce_max", "acc", "Largest", start="*x", step="v > acc ? v : acc")
_L2 = ReductionFormula(
    "reduce_l2", "sqrtf(acc)", "Square root of the sum of the squares", math=True, start="0.0f", step="acc + v * v"
)
_LOG_SUM = ReductionFormula(
    "reduce_log_sum", "logf(acc)", "Logarithm of the sum", math=True, start="0.0f", step="acc + v"
)
_KINDS: dict[type[mean.Reduction], _Kind] = {
    ReduceMax: _Kind((_MAX, _MAX), _ANY, _first(np.argmax), "largest value over any dimensions", "REDUCE_MAX"),
    ReduceMin: _Kind(SMALLEST, _ANY, _first(np.argmin), "smallest value over any dimensions", "REDUCE_MIN"),
    ReduceAll: _Kind(
        SMALLEST,
        _TRUTH,
        lambda x, axes: np.min(x, axis=axes),
        "whether all values are true, over any dimensions",
        "REDUCE_ALL",
        _TRUTH,
        onnx=False,
    ),
    ReduceProd: _Kind(
        wrapping("reduce_product", "Product", "acc * v", "acc * (u{x})v", "1"),
        _WRAPPING,
        lambda x, axes: np.prod(x, axis=axes),
        "product over any dimensions",
        "REDUCE_PROD",
        _WRAPPING,
    ),
    ReduceL1: _Kind(
        wrapping(
            "reduce_l1", "Sum of the magnitudes", "acc + (v < 0.0f ? -v : v)", "v < 0 ? acc - (u{x})v : acc + (u{x})v"
        ),
        _WRAPPING,
        lambda x, axes: np.sum(np.abs(x), axis=axes),
        "sum of magnitudes",
    ),
    ReduceL2: _Kind((_L2, _L2), _FLOAT, lambda x, axes: np.sqrt(np.sum(x * x, axis=axes)), "Euclidean norm"),
    ReduceSumSquare: _Kind(
        wrapping("reduce_squares", "Sum of the squares", "acc + v * v", "acc + (u{x})v * (u{x})v"),
        _WRAPPING,
        lambda x, axes: np.sum(x * x, axis=axes),
        "sum of squares",
    ),
    ReduceLogSum: _Kind(
        (_LOG_SUM, _LOG_SUM), _FLOAT, lambda x, axes: np.log(np.sum(x, axis=axes)), "logarithm of the sum"
    ),
    ReduceLogSumExp: _Kind(
        "reduction/reduce_log_sum_exp", _FLOAT, _log_sum_exp, "logarithm of the sum of exponentials"
    ),
}


def check(bound: BoundNode) -> None:
    """Refuses types that the operator does not have, and tensors without elements."""
    kind = _KINDS[type(bound.op(mean.Reduction))]
    dtypes = kind.in_tflite if bound.op(mean.Reduction).numerics.of_tflite else kind.dtypes
    require_dtypes(bound, [(t, t) for t in dtypes], [(t, t) for t in _ANY])
    mean.require_elements(bound)
    if bound.input(0).quantization and bound.output.quantization:
        require_same_quantization(bound, bound.input(0), bound.output)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """numpy's reduction, in double for reals; integers wrap to their type."""
    op, y = bound.op(mean.Reduction), bound.output
    wide = operand(bound, inputs, 0).astype(np.float64 if y.dtype is DType.FLOAT32 else np.int64)
    with np.errstate(all="ignore"):
        result = np.asarray(_KINDS[type(op)].rule(wide, op.axes))
        return (np.asarray(result.astype(y.dtype.value).reshape(y.shape)),)


def lower(bound: BoundNode) -> Layer:
    """Nested loops over kept and reduced groups of dimensions."""
    op = bound.op(mean.Reduction)
    return typed_layer(bound, _KINDS[type(op)].kernel, op.axes)


KERNELS = tuple(
    KernelDef(
        op,
        kind.summary,
        kind.dtypes,
        (kind.tflite,) if kind.tflite else (),
        partial(mean.reduction_from_tflite, op) if kind.tflite else None,
        check,
        reference,
        lower,
        output_shapes=mean.output_shapes,
        work=mean.work,
        onnx=(op.__name__,) if kind.onnx else (),
        from_onnx=partial(mean.reduction_from_onnx, op) if kind.onnx else None,
        transposed=mean.transposed,
        tflite_dtypes=kind.in_tflite if kind.tflite else (),
    )
    for op, kind in _KINDS.items()
)

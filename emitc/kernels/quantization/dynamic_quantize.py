"""DynamicQuantizeLinear: float32 to uint8, with a scale and a zero point that are computed from the values themselves.

Shapes  x any, y the same; scale and zero_point of rank 0.   Types  float32 to uint8, float32, uint8.
low = min(x, 0), high = max(x, 0); scale = (high - low) / 255, or 1 where both are 0; zero_point = rint(-low / scale) within
0..255; y = rint(x / scale) + zero_point within 0..255. All in float32, rint to nearest, ties to even.
What is not a number counts for neither low nor high, and becomes 0.
Source  ONNX's specification, opset 11; scale 1, and what is not a number, as ONNX Runtime has it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op, Shape
from emitc.kernels.contract import KernelDef, Parsed, Variant, unsupported
from emitc.kernels.costs import UNKNOWN_PAIRS
from emitc.layer import Layer, Param, in_step
from emitc.numerics.requantize import Float32
from emitc.source import SourceNode

_TYPES = (DType.UINT8, DType.FLOAT32, DType.UINT8)


@dataclass(frozen=True, slots=True)
class DynamicQuantize(Op):
    """To uint8 by the range of the values."""


def from_onnx(node: SourceNode) -> Parsed:
    node.counts((1, 1), (3, 3))
    return Parsed(DynamicQuantize())


def check(bound: BoundNode) -> None:
    """Refuses other types, which the format does not have."""
    dtypes = tuple(t.dtype for t in bound.outputs)
    if bound.input(0).dtype is not DType.FLOAT32 or dtypes != _TYPES:
        what = f"from {bound.input(0).dtype.value} to {', '.join(t.value for t in dtypes)} is not supported"
        why = "there is code for float32 to uint8, float32 and uint8"
        raise unsupported(bound, what, why, "export the model again")


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """The input's shape, and two single values."""
    return bound.input(0).shape, (), ()


def quantized_by_range(x: Float32) -> tuple[Array, np.float32, int]:
    """y, scale and zero point by the specification in float32; rint of a quotient is exact in float64 as well."""
    with np.errstate(all="ignore"):
        low = np.fmin.reduce(x, axis=None, initial=np.float32(0))
        high = np.fmax.reduce(x, axis=None, initial=np.float32(0))
        scale = np.float32(1) if low == high else np.float32((high - low) / np.float32(255))
        zero = np.float64(-low / scale)
        zero_point = 255.0 if np.isnan(zero) else np.rint(np.clip(zero, 0.0, 255.0))
        y = np.rint((x / scale).astype(np.float64)) + zero_point
    y = np.clip(np.nan_to_num(y, nan=0.0), 0, 255).astype(np.uint8)
    return y, np.float32(scale), int(zero_point)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """The specification in float32."""
    y, scale, zero_point = quantized_by_range(np.asarray(inputs[0], np.float32))
    return y, np.asarray(scale, np.float32), np.asarray(zero_point, np.uint8)


def lower(bound: BoundNode) -> Layer:
    """Two passes; y may lie over x, whose elements are four times as wide."""
    params = (Param("count", "int32_t", bound.input(0).elements),)
    return Layer("quantization/dynamic_quantize", "portable", (0,), params=params, overlaps=(in_step(bound),))


KERNELS = (
    KernelDef(
        DynamicQuantize, "float32 to uint8 by the range of the values", (DType.FLOAT32,), (), None, check, reference,
        lower, output_shapes=output_shapes, onnx=("DynamicQuantizeLinear",), from_onnx=from_onnx,
        variants=(
            Variant(
                "fpu", "fpu", lower, UNKNOWN_PAIRS, (DType.FLOAT32,), template="quantization/dynamic_quantize_fpu",
                headers=("emitc_fpu.h",),
            ),
        ),
    ),
)  # fmt: skip

"""Operators that work element by element: fused activations, and tables over one byte."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from emitc.ir import Array, BoundNode, DType, Tensor
from emitc.kernels.contract import Variant, illegal, out_of_proportion
from emitc.kernels.costs import UNKNOWN_VECTORS
from emitc.layer import ByRows, Layer, Param, Table, in_step
from emitc.numerics.requantize import Float32, Int64, multiplier_of

TABLE_ENTRIES = 256
_INT32 = 2**31
_SIGNED_ORDER = "0 to 127, then -128 to -1"


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


def byte_table(bound: BoundNode, source: int, results: Int64) -> Layer:
    """A layer that looks every byte up. results: of the values -128..127, or 0..255 for a uint8 input."""
    unsigned = bound.input(source).dtype is DType.UINT8
    by_byte = results if unsigned else np.roll(results, TABLE_ENTRIES // 2)
    order = "0 to 255" if unsigned else _SIGNED_ORDER
    values = tuple(int(v) for v in by_byte.astype(np.uint8).view(np.int8))
    return _lookup(
        bound, "activation/lookup", source, Table("table", "int8_t", values, f"{bound.node.op_type} of {order}")
    )


def real_table(bound: BoundNode, results: Float32) -> Layer:
    """A layer that looks up float32 values. results: of the values -128..127 of the only input."""
    values = tuple(float(v) for v in np.roll(results, TABLE_ENTRIES // 2))
    return _lookup(
        bound, "activation/lookup_real", 0, Table("table", "float", values, f"{bound.node.op_type} of {_SIGNED_ORDER}")
    )


def _lookup(bound: BoundNode, template: str, source: int, table: Table) -> Layer:
    return Layer(
        template,
        operands=(source,),
        tables=(table,),
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

"""What calls of CMSIS-NN with int16 activations have of their own: the bias, and the limits of sums.

Sums are of 64 bits, but kernels add up to 512 products in 32; the requantization drops all but 31 bits of a result before it
rounds. Both are exact but at extremes, which are refused.
"""

import numpy as np

from emitc.backends.cmsis_nn.calls import Library
from emitc.backends.kernel_library import number
from emitc.ir import BoundNode, DType
from emitc.kernels.mac.accumulation import bias_of, requantization, weights_of
from emitc.kernels.shared.int16x8 import worst_sum
from emitc.layer import Expression, Structure
from emitc.numerics.requantize import INT32_MAX

_RESULT_LIMIT = 1 << 30
_BIAS_STRUCTURE = "cmsis_nn_bias_data"
"""What convolutions take since a bias may have 32 bits."""


def is_wide(bound: BoundNode) -> bool:
    return bound.input(0).dtype is DType.INT16


def has_short_sums(bound: BoundNode) -> bool:
    """Whether sums are of 32 bits: those of int8 activations, or with an int32 bias."""
    return not requantization(bound).reduced


def _takes_structure(library: Library, function: str) -> bool:
    parameters = library.tree.functions.get(function, ())
    return any(_BIAS_STRUCTURE in parameter.c_type for parameter in parameters)


def sums_refusal(library: Library, function: str, bound: BoundNode, channel_axis: int) -> str:
    """Why the function's sums are not the interpreter's. channel_axis: dimension of the weights with output channels."""
    if has_short_sums(bound):
        taken = _takes_structure(library, function)
        return "" if taken else f"{function} of CMSIS-NN {library.tree.version} takes no bias of 32 bits"
    weights = weights_of(bound)
    filters = np.moveaxis(weights, channel_axis, 0).astype(np.int64).reshape(weights.shape[channel_axis], -1)
    none = np.zeros(len(filters), np.int64)
    if int(filters.min()) == -128 and worst_sum(filters, none) > INT32_MAX:
        return "with weights of -128 its sums of 512 products can leave 32 bits"
    scale = requantization(bound)
    shift = np.array(scale.shift, np.float64)
    largest = worst_sum(filters, bias_of(bound, len(filters))) * float(np.exp2(shift).max())
    return "" if largest < _RESULT_LIMIT else "its requantization loses results beyond 30 bits"


def bias_of_call(library: Library, function: str, bound: BoundNode) -> tuple[str, Structure | None]:
    """The type of the constant that holds the bias, and the structure around it where the function takes one."""
    c_type = "int32_t" if has_short_sums(bound) else "int64_t"
    if not is_wide(bound) or not _takes_structure(library, function):
        return c_type, None
    members = {"data": Expression(table="bias"), "is_int32_bias": number(int(has_short_sums(bound)))}
    return c_type, library.structure("typed_bias", _BIAS_STRUCTURE, members, constant=False)

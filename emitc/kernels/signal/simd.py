"""Variants of the signal operators: kernels for values in words or in vectors.

Such a kernel does what the portable one does, step for step, and has the same tables and parameters. Its template has the
portable template's name and the feature at the end.
"""

from collections.abc import Callable

from emitc.ir import BoundNode, DType
from emitc.kernels.contract import Variant
from emitc.kernels.costs import UNKNOWN_PAIRS, UNKNOWN_VECTORS, Costs
from emitc.kernels.mac.dsp_int8 import BYTES_HEADER, HEADER
from emitc.kernels.mac.int16_dsp_mve import DSP_HEADER
from emitc.layer import Layer

Lower = Callable[[BoundNode], Layer | str]


def _variant(feature: str, lower: Lower, dtype: DType, cost: Costs, headers: tuple[str, ...]) -> Variant:
    return Variant(feature, feature, lower, cost, (dtype,), template=f"_{feature}", headers=headers)


def pairs(lower: Lower, dtype: DType = DType.INT16) -> Variant:
    """Two values at a time by the DSP extension. lower: gives the portable layer, or why there is no such kernel."""
    headers = (HEADER, BYTES_HEADER, DSP_HEADER, "emitc_dsp_signal.h")
    return _variant("dsp", lower, dtype, UNKNOWN_PAIRS, headers)


def int16_vectors(lower: Lower) -> Variant:
    """Eight int16 values at a time by MVE."""
    return _variant("mve", lower, DType.INT16, UNKNOWN_VECTORS, ("emitc_mve.h", "emitc_mve_signal.h"))


def uint32_vectors(lower: Lower, dtype: DType = DType.UINT32) -> Variant:
    """Four numbers of 32 bits without a sign at a time by MVE."""
    return _variant("mve", lower, dtype, UNKNOWN_VECTORS, ("emitc_bits.h", "emitc_mve.h", "emitc_mve_uint32.h"))

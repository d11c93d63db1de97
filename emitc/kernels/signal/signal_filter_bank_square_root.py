"""SignalFilterBankSquareRoot: y = root(x) >> bits, the root rounded to the nearest integer.

Shapes  x any, bits one element, y as x.   Types  x uint64, bits int32, y uint32.
        The root of what fits 32 bits is 65535 at most, that of any other value 2**32 - 1.
        Bits beyond 31, which no scale of int16 values gives, leave 0; negative ones count as 0.
Source  TFLite Micro's signal library.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op
from emitc.kernels.contract import KernelDef, Parsed, Variant, illegal, require_dtypes
from emitc.kernels.costs import UNKNOWN_PAIRS, UNKNOWN_VECTORS
from emitc.kernels.signal.simd import in_naturals
from emitc.layer import PLAIN, KernelSpec, Layer, Param, Table
from emitc.source import SourceNode


@dataclass(frozen=True, slots=True)
class SignalFilterBankSquareRoot(Op):
    """No attributes."""


def from_tflite(node: SourceNode) -> Parsed:
    """Values and the bits that their scale has."""
    node.counts((2, 2))
    return Parsed(SignalFilterBankSquareRoot(), (0, 1))


def check(bound: BoundNode) -> None:
    """Refuses other types, and more than one number of bits."""
    require_dtypes(bound, [(DType.UINT64, DType.INT32, DType.UINT32)])
    bits = bound.input(1)
    if bits.elements != 1 or bound.input(0).is_constant:
        raise illegal(
            bound,
            "SignalFilterBankSquareRoot has inputs that do not fit",
            "computed values and one number of bits are expected",
            tensor=bits,
        )


def _root(value: int) -> int:
    root = math.isqrt(value)
    root += value - root * root > root
    return min(root, (1 << 16) - 1 if value < 1 << 32 else (1 << 32) - 1)


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """In Python's integers."""
    given = bound.input(1).array() if bound.input(1).is_constant else inputs[1]
    assert inputs[0] is not None and given is not None
    bits = min(max(int(given.reshape(())), 0), 32)
    roots = [_root(int(v)) >> bits for v in inputs[0].reshape(-1).tolist()]
    return (np.array(roots, np.uint32).reshape(bound.output.shape),)


def lower(bound: BoundNode) -> Layer:
    """Value by value."""
    layer = Layer(
        "signal/signal_filter_bank_square_root",
        "portable",
        (0, 1),
        params=(Param("count", "int32_t", bound.output.elements),),
        headers=("emitc_bits.h", "emitc_isqrt.h"),
        spec=PLAIN,
    )
    if not bound.input(1).is_constant:
        return layer
    bits = Table("bits", "int32_t", (int(bound.input(1).array().reshape(())),), "bits that the scale has")
    return replace(layer, operands=(0,), tables=(bits,))


def lower_fpu(bound: BoundNode) -> Layer:
    """Roots by the float unit, put right by integers."""
    layer = lower(bound)
    headers = (*layer.headers, "emitc_fpu.h", "emitc_fpu_isqrt.h")
    return replace(layer, variant="fpu", headers=headers, spec=KernelSpec("_fpu", fixed_point=False))


def lower_mve(bound: BoundNode) -> Layer:
    """Four values at a time."""
    return in_naturals(lower(bound))


KERNELS = (
    KernelDef(
        SignalFilterBankSquareRoot,
        "square roots of channels",
        (DType.UINT64,),
        ("CUSTOM:SignalFilterBankSquareRoot",),
        from_tflite,
        check,
        reference,
        lower,
        variants=(
            Variant("mve", "mve", lower_mve, UNKNOWN_VECTORS, (DType.UINT64,)),
            Variant("fpu", "fpu", lower_fpu, UNKNOWN_PAIRS, (DType.UINT64,)),
        ),
    ),
)

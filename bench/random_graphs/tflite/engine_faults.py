"""Faults of the engines that random graphs meet, each with its proof: numbers that are converted to a type that cannot hold them.

C++ does not define such a conversion; x86 gives the type's smallest number. LiteRT converts the POW of integers from double to
their type; the C wraps, as the products of both engines do. QUANTIZE of both engines converts the rounded quotient to int32
before it is limited to the type of the output; the C limits the quotient.
"""

from __future__ import annotations

from collections.abc import Sequence
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from emitc.compiled import Compiled
from emitc.ir import Array, BoundNode
from emitc.kernels.elementwise import binary_functions
from emitc.kernels.quantization import quantize
from emitc.verify.reference import run_reference
from emitc.verify.tolerances import compared, tolerances_of


def undefined_power(
    compiled: Compiled, inputs: Sequence[tuple[Array, ...]], expected: Sequence[Sequence[Array]]
) -> str:
    """What is wrong with the engine's powers; "" where that is not shown.

    inputs, expected: of each case, what the graph was given, and the engine's outputs. It is shown where some powers are outside
    of their type, and the numpy references give every bit of the engine when each of these becomes the type's smallest number.
    """
    outside = 0

    def converted(a: Array, b: Array) -> Array:
        nonlocal outside
        info = np.iinfo(a.dtype.name)
        low, high = int(info.min), int(info.max)
        bases, exponents = np.broadcast_arrays(a, b)
        if exponents.min(initial=0) < 0 or exponents.max(initial=0) > 64:
            return usual(a, b)
        exact = [int(x) ** int(n) for x, n in zip(bases.flat, exponents.flat, strict=True)]
        outside += sum(not low <= value <= high for value in exact)
        powers = [value if low <= value <= high else low for value in exact]
        return np.array(powers, a.dtype).reshape(bases.shape)

    usual, state = binary_functions._whole_power, dict[str, Array]()
    with patch.object(binary_functions, "_whole_power", converted):
        for case, wanted in zip(inputs, expected, strict=True):
            values = run_reference(compiled.graph, case, state if compiled.program.states else None)
            if any(
                values[name].tobytes() != np.asarray(want).tobytes()
                for name, want in zip(compiled.graph.outputs, wanted, strict=True)
            ):
                return ""
    return f"LiteRT converts {outside} powers of integers that are outside of their type" if outside else ""


_LEAST, _BEYOND = -(2.0**31), 2.0**31
"""The smallest int32, and the first number that is too large for one."""


def undefined_rounding(
    compiled: Compiled, inputs: Sequence[tuple[Array, ...]], expected: Sequence[Sequence[Array]]
) -> str:
    """What is wrong with the engine's QUANTIZE; "" where that is not shown. Arguments are as in `undefined_power`.

    It is shown where some quotients are outside of int32, and the numpy references give what the engine gives, by the rules of
    the outputs, when each of these quotients becomes the smallest int32.
    """
    outside = 0

    def converted(bound: BoundNode, x: NDArray[np.float32]) -> Array:
        nonlocal outside
        codes = usual(bound, x)
        y = bound.output
        if bound.node.op.numerics.float_scale or y.quantization is None:
            return codes
        with np.errstate(all="ignore"):
            ratio = x.astype(np.float32) / np.float32(y.quantization.scale)
        beyond = np.isfinite(ratio) & ((ratio >= _BEYOND) | (ratio < _LEAST))
        outside += int(beyond.sum())
        return np.where(beyond, np.array(y.dtype.range[0], codes.dtype), codes)

    usual, state, rule_of = quantize._from_real, dict[str, Array](), tolerances_of(compiled)
    with patch.object(quantize, "_from_real", converted):
        for case, wanted in zip(inputs, expected, strict=True):
            values = run_reference(compiled.graph, case, state if compiled.program.states else None)
            for name, want in zip(compiled.graph.outputs, wanted, strict=True):
                if compared(values[name], np.asarray(want).reshape(values[name].shape), rule_of[name]).differing:
                    return ""
    return f"the engine converts {outside} quotients that are outside of int32" if outside else ""

"""A fault of LiteRT that random graphs meet, with its proof by exact integers: POW of integers beyond their type.

LiteRT converts a power from double to the type, which C++ does not define for a number outside of it; x86 gives the type's
smallest number. The C wraps, as the products of both engines do.
"""

from __future__ import annotations

from collections.abc import Sequence
from unittest.mock import patch

import numpy as np

from emitc.compiled import Compiled
from emitc.ir import Array
from emitc.kernels.elementwise import power
from emitc.verify.reference import run_reference


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
        found = [value if low <= value <= high else low for value in exact]
        return np.array(found, a.dtype).reshape(bases.shape)

    usual, state = power._whole_power, dict[str, Array]()
    with patch.object(power, "_whole_power", converted):
        for case, wanted in zip(inputs, expected, strict=True):
            values = run_reference(compiled.graph, case, state if compiled.program.states else None)
            if any(
                values[name].tobytes() != np.asarray(want).tobytes()
                for name, want in zip(compiled.graph.outputs, wanted, strict=True)
            ):
                return ""
    return f"LiteRT converts {outside} powers of integers that are outside of their type" if outside else ""

"""LeakyIntegrator, an operator of one's own: m += (x * 128 - m) >> shift, y = m / 128 rounded, for each element by itself.

It smooths features from run to run, so that the classifier after it does not follow every frame.

Inputs   x int8 of any shape; m int16 of that shape, a variable tensor: the smoothed value with 7 fractional bits.
Output   y int8 of that shape, with the scale and zero point of x.
Options  shift, 1 to 15: how slowly it follows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emitc.ir import Array, BoundNode, DType, Op, Shape
from emitc.kernels.contract import KernelDef, Parsed, illegal, require_dtypes, require_same_quantization
from emitc.layer import Layer, Param, in_step  # fmt: skip
from emitc.source import SourceNode

X, MEMORY = 0, 1


@dataclass(frozen=True, slots=True)
class LeakyIntegrator(Op):
    """shift: of what the memory lacks, 1 / 2^shift is added in each run."""

    shift: int


def from_tflite(node: SourceNode) -> Parsed:
    """Options come from the operator's FlexBuffers map. Input 1 is read, and written for the next run."""
    node.counts((2, 2))
    return Parsed(LeakyIntegrator(node.integer("shift", low=1, high=15)), operands=(X, MEMORY), states=(MEMORY,))


def check(bound: BoundNode) -> None:
    """Refuses other types and another shape of the memory. The memory is an output too, after y."""
    require_dtypes(bound, [(DType.INT8, DType.INT16, DType.INT8, DType.INT16)])
    require_same_quantization(bound, bound.input(X), bound.output)
    if bound.input(MEMORY).shape != bound.input(X).shape:
        raise illegal(
            bound, "has a memory of another shape", "each element has its own", "export the model again",
            bound.input(MEMORY),
        )  # fmt: skip


def output_shapes(bound: BoundNode) -> tuple[Shape, ...]:
    """Those of y and of the memory."""
    return bound.input(X).shape, bound.input(X).shape


def reference(bound: BoundNode, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
    """In int32, where shifts round down."""
    x, memory = (np.asarray(inputs[i], np.int32) for i in (X, MEMORY))
    assert isinstance(bound.node.op, LeakyIntegrator)
    memory = memory + ((x * 128 - memory) >> bound.node.op.shift)
    return ((memory + 64) >> 7).astype(np.int8), memory.astype(np.int16)


def lower(bound: BoundNode) -> Layer:
    """Element by element, so that y may lie over x. The memory is passed after y, to be updated in place."""
    assert isinstance(bound.node.op, LeakyIntegrator)
    params = (
        Param("count", "int32_t", bound.output.elements),
        Param("shift", "int32_t", bound.node.op.shift, "how slowly the memory follows"),
    )
    return Layer("leaky_integrator", "portable", (X,), params=params, overlaps=(in_step(bound),))


KERNEL = KernelDef(
    op=LeakyIntegrator,
    summary="smooths each element from run to run",
    dtypes=(DType.INT8,),
    tflite=("CUSTOM:LeakyIntegrator",),
    from_tflite=from_tflite,
    check=check,
    output_shapes=output_shapes,
    reference=reference,
    lower=lower,
)

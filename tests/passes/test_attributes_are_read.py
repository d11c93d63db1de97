"""Every attribute that a pass or a `transposed` hook sets is read by the reference and by all kernels, or refused.

Operators and hooks come from the registry, attributes from the hooks' results, from what the passes do to the graphs of this
folder's tests, and from the passes' source text: what is new there is in here by itself, and fails without evidence.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from functools import cache
from itertools import permutations
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest

from emitc.errors import EmitcError
from emitc.ir import Array, BoundNode, DType, Graph, Node, Numerics, Op, Quantization, Tensor
from emitc.kernels import definition_of, registry
from emitc.kernels.contract import KernelDef
from emitc.kernels.movement.gather import Gather
from emitc.kernels.movement.joins import Concatenation, Split
from emitc.kernels.movement.pad import BorderPad, CroppingPad, Pad
from emitc.kernels.movement.slice import Slice
from emitc.kernels.movement.tile import Expand, Tile
from emitc.kernels.normalization import softmax
from emitc.kernels.normalization.normalizations import BatchNormalization
from emitc.kernels.normalization.softmax import Softmax
from emitc.kernels.reduction.along_axis import ArgExtremum
from emitc.kernels.reduction.mean import Reduction
from emitc.kernels.resize.resize_onnx import Axis, CroppedResample, NearestResample, WeightedResample
from emitc.passes import PASSES
from tests.support.passes.attribute_evidence import Context, Ledger, fields_set_by_passes, record_pass, values_of
from tests.support.passes.onnx_graphs import onnx_graph
from tests.support.passes.pass_graphs import graph_of

SHAPE = (2, 3, 4)
SCALES = [(0.05, 3), (0.05, 0), (2.0**-8, -128), (2.0**-16, -32768), (2.0**-15, 0), (2.0**-4, 127)]
"""Of outputs, the first one of inputs: what TFLite fixes for some operators is among them."""
_TRIPLED = (Axis(2, 2), Axis(3, 6, 2.0), Axis(4, 4))


@dataclass(frozen=True, slots=True)
class Base:
    """An operator on an input of SHAPE and further ones. constants: their values."""

    op: Op
    shapes: tuple[tuple[int, ...], ...] = (SHAPE,)
    constants: tuple[tuple[float, ...], ...] = ()


BASES: dict[type[Op], Callable[[type[Op]], Iterator[Base]]] = {
    Reduction: lambda op: (Base(op(axes, True)) for axes in ((1,), (0, 2))),  # type: ignore[call-arg]
    ArgExtremum: lambda op: (Base(op(1, last, True)) for last in (False, True)),  # type: ignore[call-arg]
    Softmax: lambda op: (Base(op(1.0, axis)) for axis in (-1, 1)),  # type: ignore[call-arg]
    Concatenation: lambda op: iter([Base(Concatenation(1), (SHAPE, (2, 2, 4)))]),
    Split: lambda op: iter([Base(op(1, (1, 2)))]),  # type: ignore[call-arg]
    Slice: lambda op: iter([Base(Slice((0, 1, 1), (1, 1, 2), (2, 2, 2)))]),
    Pad: lambda op: iter([Base(Pad(((0, 1), (2, 0), (0, 0)), 1))]),
    BorderPad: lambda op: iter([Base(BorderPad(((0, 1), (2, 0), (0, 0)), "reflect"))]),
    CroppingPad: lambda op: iter([Base(CroppingPad(((0, 1), (-1, 0), (0, 0)), "constant", 1))]),
    Gather: lambda op: iter([Base(Gather(1, (2,), (2, 0)))]),
    Tile: lambda op: iter([Base(Tile(SHAPE, (2, 1, 3)))]),
    Expand: lambda op: iter([Base(Expand((2, 1, 4), (1, 3, 1)), ((2, 1, 4),))]),
    BatchNormalization: lambda op: iter([
        Base(BatchNormalization(0.001), (SHAPE, *[(3,)] * 4), ((1.0, 2.0, 3.0),) * 4)
    ]),
    NearestResample: lambda op: iter([Base(NearestResample(_TRIPLED, "asymmetric", "floor"))]),
    CroppedResample: lambda op: iter([Base(CroppedResample(_TRIPLED, "asymmetric", "floor", 1.0))]),
    WeightedResample: lambda op: iter([
        Base(WeightedResample(_TRIPLED, "asymmetric", 1, "linear", -0.75, False, None))
    ]),
}  # fmt: skip
"""By class, also of those derived from it: operators whose attributes depend on the order of dimensions."""

NEUTRAL = {
    "graphs": "the graphs inside of an operator are rewritten by the same passes, which are looked at there",
}
"""Attributes that are set and need no evidence, with the reason."""
OF_ROUNDINGS = {
    "bias_last": "references sum floats in double, where the place of the bias does not show; the kernels must read it",
}
"""Attributes that decide roundings which the references do not make."""
ALIKE = {
    "Conv2D", "DepthwiseConv2D", "FullyConnected", "Relu",
}  # fmt: skip
"""Operators that compute the same in two arithmetics: `numerics` decides there what their checks take."""


def hooked() -> dict[type[Op], KernelDef]:
    """The operators with a `transposed` hook."""
    return {op: kernel for op, kernel in registry().items() if kernel.transposed is not None}


def bases(op: type[Op]) -> list[Base]:
    """Nodes of an operator."""
    rule = next((BASES[each] for each in op.__mro__ if each in BASES), None)
    assert rule is not None, f"{op.__name__} has a hook and no node in BASES"
    return list(rule(op))


def bound_nodes(op: type[Op]) -> Iterator[BoundNode]:
    """Nodes of an operator in every type and arithmetic that its check takes."""
    kernel = registry()[op]
    for base in bases(op):
        for dtype in (d for d in DType if not d.packed):
            for numerics in Numerics:
                yield from _first_taken(kernel, base, dtype, numerics)


def _first_taken(kernel: KernelDef, base: Base, dtype: DType, numerics: Numerics) -> Iterator[BoundNode]:
    quantized = dtype in (DType.INT8, DType.INT16, DType.UINT8)
    scales = [Quantization((scale,), (zero,)) for scale, zero in SCALES] if quantized else [None]
    if dtype is DType.INT16 and quantized:
        scales = [q and replace(q, zero_points=(0,)) for q in scales]
    inputs = tuple(Tensor(f"x{i}", dtype, shape, scales[0]) for i, shape in enumerate(base.shapes))
    first = len(base.shapes) - len(base.constants)
    for place, values in enumerate(base.constants, first):
        data = np.array(values, np.float32).tobytes()
        inputs = (
            *inputs[:place],
            replace(inputs[place], dtype=DType.FLOAT32, quantization=None, data=data),
            *inputs[place + 1 :],
        )
    node = Node(replace(base.op, numerics=numerics), "op", tuple(t.name for t in inputs), (), 0)
    shapes = kernel.output_shapes(BoundNode(node, inputs, ()))
    for out in dict.fromkeys((dtype, DType.INT32, DType.INT64, DType.INT16, DType.BOOL)):
        for scale in scales if out in (DType.INT8, DType.INT16, DType.UINT8) else [None]:
            outputs = tuple(Tensor(f"y{i}", out, shape, scale) for i, shape in enumerate(shapes))
            found = BoundNode(replace(node, outputs=tuple(t.name for t in outputs)), inputs, outputs)
            try:
                kernel.check(found)
            except EmitcError:
                continue
            yield found
            return


def moved(bound: BoundNode, order: tuple[int, ...]) -> BoundNode | None:
    """The node that the hook makes for inputs in the order before the permutation; None where it makes none or none compiles."""
    kernel = definition_of(bound.node.op)
    assert kernel.transposed is not None
    op = kernel.transposed(bound, order)
    if op is None:
        return None

    def before(tensor: Tensor) -> Tensor:
        if tensor.is_constant:
            return tensor
        return replace(tensor, shape=tuple(tensor.shape[i] for i in np.argsort(order)))

    inputs = tuple(None if t is None else before(t) for t in bound.inputs)
    made = BoundNode(replace(bound.node, op=op), inputs, tuple(map(before, bound.outputs)))
    try:
        kernel.check(made)
    except EmitcError:
        return None
    return made


@pytest.mark.parametrize("op", hooked(), ids=lambda op: op.__name__)
def test_a_hook_gives_the_same_values_in_another_order(op: type[Op]) -> None:
    rng, tried = np.random.default_rng(3), 0
    for bound in bound_nodes(op):
        kernel = definition_of(bound.node.op)
        for order in permutations(range(len(SHAPE))):
            made = moved(bound, order)
            if made is None:
                continue
            assert kernel.output_shapes(made) == tuple(t.shape for t in made.outputs), (bound, order)
            given: list[Array] = [
                t.array() if t.is_constant else values_of(t.dtype, t.shape, rng) for t in made.inputs if t
            ]
            turned = [v if t and t.is_constant else v.transpose(order) for v, t in zip(given, made.inputs, strict=True)]
            expected, found = kernel.reference(bound, list(turned)), kernel.reference(made, list(given))
            for a, b in zip(expected, found, strict=True):
                assert np.allclose(a, b.transpose(order), rtol=1e-5, atol=1e-5, equal_nan=True), (bound, order)
            tried += 1
    assert tried, f"no node of {op.__name__} is moved"


def hooks_ledger(*operators: type[Op]) -> Ledger:
    """What the hooks of these operators set on their nodes."""
    ledger = Ledger()
    for op in operators:
        for bound in bound_nodes(op):
            for order in permutations(range(len(SHAPE))):
                made = moved(bound, order)
                if made is not None:
                    ledger.record(made, bound.node.op)
    return ledger


@cache
def graphs() -> tuple[Graph, ...]:
    """The graphs of the other tests of this folder: whatever has a `build` in a table of theirs."""
    found = []
    for path in sorted(Path(__file__).parent.glob("test_*.py")):
        if path.stem == Path(__file__).stem:
            continue
        for table in vars(importlib.import_module(f"tests.passes.{path.stem}")).values():
            for case in table if isinstance(table, tuple | list) else ():
                build = getattr(case, "build", None)
                if callable(build):
                    found.append(_graph(build, getattr(case, "opset", 17)))
    return tuple(found)


def _graph(build: Callable[..., None], opset: int) -> Graph:
    """The graph of a net of TFLite, or else of ONNX."""
    try:
        return graph_of(build)
    except (AttributeError, TypeError):
        return onnx_graph(build, opset)


@cache
def passes_ledger() -> Ledger:
    """What all passes set, each alone and one after the other."""
    ledger = Ledger()
    for graph in graphs():
        current = graph
        for _, function in PASSES:
            record_pass(ledger, graph, function(graph))
            after = function(current)
            record_pass(ledger, current, after)
            current = after
    return ledger


def _missing(ledger: Ledger) -> list[Context]:
    return [
        context
        for context in ledger.unread()
        if context.field not in NEUTRAL
        and not (context.field == "numerics" and context.op in ALIKE)
        and not (context.field in OF_ROUNDINGS and context in ledger.kernels)
    ]


def test_what_hooks_set_is_read() -> None:
    ledger = hooks_ledger(*hooked())
    assert _missing(ledger) == [] and {c: f for c, f in ledger.faults.items() if f} == {}
    assert {context.op for context in ledger.changed} == {op.__name__ for op in hooked()}


def test_what_passes_set_is_read() -> None:
    assert len(graphs()) > 50
    ledger = passes_ledger()
    assert _missing(ledger) == [] and {c: f for c, f in ledger.faults.items() if f} == {}


def test_every_attribute_that_the_passes_name_was_looked_at() -> None:
    named = fields_set_by_passes()
    assert {"activation", "window", "zero_point_folded", "numerics"} <= named
    assert named - NEUTRAL.keys() <= {context.field for context in passes_ledger().changed}


def test_attributes_are_those_of_operators() -> None:
    known = {each.name for op in registry() for each in fields(op)}
    assert fields_set_by_passes() | NEUTRAL.keys() | OF_ROUNDINGS.keys() <= known


# ---- the checks fail where they must ----


def _along_any_dimension(bound: BoundNode, permutation: tuple[int, ...]) -> Op:
    op = bound.node.op
    assert isinstance(op, Softmax)
    return replace(op, axis=permutation[op.axis % len(permutation)], flat=False)


def test_a_softmax_that_reads_no_axis_is_found() -> None:
    """The miscompile that these tests stand for: TFLite's SOFTMAX got an axis, and ran over its last dimension."""
    kernels = dict(registry())
    for op in (softmax.Softmax, softmax.LogSoftmax):

        def check(bound: BoundNode, real: Callable[[BoundNode], None] = kernels[op].check) -> None:
            integer = not bound.node.op.numerics.float_scale and bound.input(0).dtype is not DType.FLOAT32
            last = replace(bound.node.op, axis=-1) if integer else bound.node.op  # type: ignore[call-arg]
            real(replace(bound, node=replace(bound.node, op=last)))

        kernels[op] = replace(kernels[op], transposed=_along_any_dimension, check=check)
    with patch("emitc.kernels.registry", lambda: kernels), patch(f"{__name__}.registry", lambda: kernels):
        missing = _missing(hooks_ledger(softmax.Softmax, softmax.LogSoftmax))
        assert Context("Softmax", "axis", "int8", "tflite") in missing
        assert Context("LogSoftmax", "axis", "int8", "tflite") in missing
        with pytest.raises(AssertionError):
            test_a_hook_gives_the_same_values_in_another_order(softmax.Softmax)


def test_a_kernel_that_reads_less_than_the_reference_is_found() -> None:
    """A variant that sums over the same dimension whatever the axes say."""
    (mean,) = (op for op in hooked() if op.__name__ == "Mean")
    kernels = dict(registry())
    (variant,) = kernels[mean].variants
    fixed = replace(variant, make=lambda bound: kernels[mean].lower(next(bound_nodes(mean))))
    kernels[mean] = replace(kernels[mean], variants=(fixed,))
    with patch("emitc.kernels.registry", lambda: kernels):
        ledger = hooks_ledger(mean)
    assert any(context.op == "Mean" and found for context, found in ledger.faults.items())

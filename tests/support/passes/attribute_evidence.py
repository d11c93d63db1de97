"""Whether an attribute that a pass or a `transposed` hook sets is read, by the operator's reference and by every kernel of it.

Evidence is found by trying: the attribute is put back to its old value, on the tensors of the new graph. Then the operator's
check refuses the node, or the reference gives other values and every kernel's layer is another one. An attribute of which
nobody takes notice would be a silent miscompile: the pass counts on it, and the C does something else.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

import numpy as np

import emitc.passes
from emitc.errors import EmitcError
from emitc.ir import Array, BoundNode, DType, Graph, Op
from emitc.kernels import definition_of
from emitc.layer import Layer

SAMPLES = 3


@dataclass(frozen=True, slots=True, order=True)
class Context:
    """Where an attribute was set: names of the operator's class and of the field, type of the first input, arithmetic."""

    op: str
    field: str
    dtype: str
    numerics: str


@dataclass(slots=True)
class Ledger:
    """What was found so far. changed: contexts in which a value was changed at all; the others are subsets of it."""

    changed: set[Context] = field(default_factory=set)
    refused: set[Context] = field(default_factory=set)
    reference: set[Context] = field(default_factory=set)
    kernels: set[Context] = field(default_factory=set)
    faults: dict[Context, set[str]] = field(default_factory=lambda: defaultdict(set))

    def unread(self) -> list[Context]:
        """Contexts in which nothing shows that the attribute is read by the reference and the kernels, or refused."""
        return sorted(self.changed - self.refused - (self.reference & self.kernels))

    def record(self, bound: BoundNode, old: Op) -> None:
        """The node as it is now, and what its operator was before."""
        op = bound.node.op
        assert type(op) is type(old)
        for attribute in fields(op):
            before = getattr(old, attribute.name)
            if before != getattr(op, attribute.name):
                self._record(bound, attribute.name, before)

    def _record(self, bound: BoundNode, name: str, before: object) -> None:
        op, kernel = bound.node.op, definition_of(bound.node.op)
        dtype = bound.inputs[0].dtype.value if bound.inputs and bound.inputs[0] else ""
        context = Context(type(op).__name__, name, dtype, op.numerics.value)
        self.changed.add(context)
        back = replace(bound, node=replace(bound.node, op=replace(op, **{name: before})))  # type: ignore[arg-type]
        try:
            kernel.check(back)
            shapes = kernel.output_shapes(back)
        except (EmitcError, IndexError):
            self.refused.add(context)
            return
        # Where the attribute decides the output's shape, the kernels must read it all the same.
        outputs = tuple(replace(tensor, shape=shape) for tensor, shape in zip(bound.outputs, shapes, strict=True))
        back = replace(back, outputs=outputs)
        differs = any(not _equal(kernel.reference(bound, values), _results(back, values)) for values in _drawn(bound))
        layers, others = _layers(bound), _layers(back)
        same = sorted(name for name in layers.keys() & others.keys() if layers[name] == others[name])
        if shapes != tuple(tensor.shape for tensor in bound.outputs):
            self.reference.add(context)
        if differs:
            self.reference.add(context)
            self.faults[context] |= {f"the kernel {name} does not read it" for name in same}
        if "portable" not in same:
            self.kernels.add(context)


def _results(bound: BoundNode, values: list[Array | None]) -> Sequence[Array]:
    """What the reference gives; nothing where the attribute does not go with the others, which it shows to have seen."""
    try:
        return definition_of(bound.node.op).reference(bound, values)
    except (ValueError, IndexError, AssertionError):
        return ()


def _equal(first: Sequence[Array], second: Sequence[Array]) -> bool:
    return len(first) == len(second) and all(a.tobytes() == b.tobytes() for a, b in zip(first, second, strict=True))


def values_of(dtype: DType, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Random values of a type, small where they are numbers of many bits."""
    if dtype in (DType.INT8, DType.UINT8, DType.INT16):
        return rng.integers(*dtype.range, shape, endpoint=True).astype(dtype.value)
    if dtype is DType.BOOL:
        return rng.random(shape) < 0.5
    if dtype in (DType.FLOAT32, DType.FLOAT64):
        return rng.normal(0.0, 3.0, shape).astype(dtype.value)
    return rng.integers(0 if "u" in dtype.value else -9, 10, shape).astype(dtype.value)


def _drawn(bound: BoundNode) -> Iterable[list[Array | None]]:
    rng = np.random.default_rng(5)
    for _ in range(SAMPLES):
        yield [
            None if t is None else t.array() if t.is_constant else values_of(t.dtype, t.shape, rng)
            for t in bound.inputs
        ]


def _layers(bound: BoundNode) -> dict[str, Layer]:
    """The layers of the portable kernel and of the variants that take the node."""
    kernel = definition_of(bound.node.op)
    try:
        layers: dict[str, Layer] = {"portable": kernel.lower(bound)}
    except (ValueError, IndexError, AssertionError):  # it does not go with the others, so that it is read
        return {}
    for variant in kernel.variants:
        layer = variant.lower(bound)
        if isinstance(layer, Layer):
            layers[variant.name] = layer
    return layers


def record_pass(ledger: Ledger, before: Graph, after: Graph) -> None:
    """Every operator that a pass has given another attribute."""
    old = {node.index: node.op for node in before.nodes}
    for bound in after.bound():
        op = bound.node.op
        if type(old.get(bound.node.index)) is type(op) and old[bound.node.index] != op:
            ledger.record(bound, old[bound.node.index])


def fields_set_by_passes() -> set[str]:
    """Names of the attributes in `replace(<an operator>, name=...)`, by the source text of the passes."""
    names: set[str] = set()
    for path in sorted(Path(emitc.passes.__file__).parent.glob("*.py")):
        for call in ast.walk(ast.parse(path.read_text("utf-8"))):
            if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func.id != "replace":
                continue
            target = ast.unparse(call.args[0])
            if target == "op" or target.endswith(".op"):
                names |= {keyword.arg for keyword in call.keywords if keyword.arg}
    return names

"""Single ONNX nodes without a file: as the frontend hands them on, and with their dimensions turned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from emitc.ir import BoundNode, DType, Node, Tensor
from emitc.kernels import kernel_of, onnx_registry, registry
from emitc.source import SourceNode, SourceTensor
from tests.support.onnx_op import OnnxCase, graph_of


def source(kind: str, *inputs: Any, count: int = 1, opset: int = 21, **attributes: Any) -> SourceNode:
    """An operator as the frontend hands it on: inputs are shapes of computed int16 tensors, constants, or None."""
    tensors: list[SourceTensor | None] = []
    for i, value in enumerate(inputs):
        if isinstance(value, np.ndarray | np.generic):
            array = np.asarray(value)
            tensors.append(SourceTensor(i, f"x{i}", array.dtype.name, array.shape, None, array.tobytes()))
        else:
            tensors.append(None if value is None else SourceTensor(i, f"x{i}", "int16", value, None, None))
    outputs = tuple(SourceTensor(90 + i, f"y{i}", "int16", (), None, None) for i in range(count))
    stated = {name: tuple(value) if isinstance(value, list) else value for name, value in attributes.items()}
    return SourceNode(0, kind, "case", tuple(tensors), outputs, {"opset": opset, **stated}, "onnx", kind)


def settled(node: SourceNode) -> tuple[tuple[int, ...], ...]:
    """The output shapes of a node, after every check and its lowering. Raises what refuses it."""
    kernel = onnx_registry()[node.kind]
    parsed = kernel.parse(node)

    def tensor(source: SourceTensor, shape: tuple[int, ...]) -> Tensor:
        return Tensor(source.name, DType(source.dtype), shape, None, source.data)

    inputs = tuple(
        None
        if (operand := node.inputs[i] if i < len(node.inputs) else None) is None
        else tensor(operand, operand.shape)
        for i in parsed.operands
    )
    written = Node(
        parsed.op, node.op_type, tuple(t.name if t else "" for t in inputs), tuple(t.name for t in node.outputs), 0
    )
    bound = BoundNode(written, inputs, tuple(tensor(t, ()) for t in node.outputs))
    kernel.check(bound)
    shapes = kernel.output_shapes(bound)
    if len(shapes) == len(node.outputs) and all(0 not in shape for shape in shapes):
        outputs = tuple(tensor(t, s) for t, s in zip(node.outputs, shapes, strict=True))
        registry()[type(parsed.op)].lower(replace(bound, outputs=outputs))
    return shapes


def turned(tensor: Tensor, order: Sequence[int]) -> Tensor:
    """The tensor with its dimensions in another order."""
    data = np.ascontiguousarray(tensor.array().transpose(order)).tobytes() if tensor.is_constant else None
    return replace(tensor, shape=tuple(tensor.shape[i] for i in order), data=data)


def turned_alike(made: OnnxCase, permutation: tuple[int, ...]) -> bool:
    """Whether the operator has a turned form; an AssertionError where that does not compute the same."""
    (bound,) = graph_of(made).bound()
    transposed = kernel_of(bound).transposed
    assert transposed is not None
    op = transposed(bound, permutation)
    if op is None:
        return False
    assert all(len(tensor.shape) == len(permutation) for tensor in bound.outputs)
    rng = np.random.default_rng(1)
    inverse = [int(i) for i in np.argsort(permutation)]
    tensors, values, inputs, moved = [t for t in bound.inputs if t is not None], [], [], []
    for tensor in tensors:
        values.append(
            tensor.array() if tensor.is_constant else rng.integers(0, 100, tensor.shape).astype(tensor.dtype.value)
        )
        data = len(tensor.shape) == len(permutation)
        inputs.append(turned(tensor, inverse) if data else tensor)
        moved.append(values[-1].transpose(inverse) if data else values[-1])
    after = BoundNode(replace(bound.node, op=op), tuple(inputs), bound.outputs)
    kernel = registry()[type(op)]
    shapes = kernel.output_shapes(after)
    after = replace(after, outputs=tuple(replace(t, shape=s) for t, s in zip(bound.outputs, shapes, strict=True)))
    kernel.check(after)
    kernel.lower(after)
    expected = kernel_of(bound).reference(bound, values)
    actual = kernel.reference(after, moved)
    for one, other in zip(expected, actual, strict=True):
        np.testing.assert_array_equal(one, other.transpose(permutation))
    return True

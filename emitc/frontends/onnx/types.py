"""Types of outputs where the inference of the package onnx says nothing, or something else than ONNX Runtime computes."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from emitc.errors import Where
from emitc.frontends.onnx.faulty import faulty
from emitc.ir import Array

SHAPE_OF_INPUT = frozenset(("GroupNormalization",))
"""Operators that onnx defines by a function and infers nothing about; their output has the type of their first input."""
INFERRED_AS: Mapping[str, int] = {
    "Concat": 11, "GreaterOrEqual": 16, "LayerNormalization": 17, "LessOrEqual": 16, "Unsqueeze": 11,
}  # fmt: skip
"""Operators that ONNX Runtime takes at any opset as they are defined at this one.

Before it, onnx infers no shapes of them, or none for an axis that counts from the end, or does not have them: the optimizer of
ONNX Runtime writes LayerNormalization into files of any opset.
"""
_LIMIT = 1 << 31
_POOLS = frozenset(("AveragePool", "MaxPool"))


def _integers(node: onnx.NodeProto, name: str, default: Sequence[int]) -> list[int]:
    values = [list(attribute.ints) for attribute in node.attribute if attribute.name == name]
    return values[0] if values and len(values[0]) == len(default) else list(default)


def correct_pool(node: onnx.NodeProto, kind: str, image: onnx.TypeProto, types: Mapping[str, onnx.TypeProto]) -> None:
    """Leaves out the windows of a rounded up pool that would start after the image and its leading padding.

    kind: the standard operator. image: type of the input. types: inferred ones by name, of which the first output's is changed.
    """
    named = {attribute.name: attribute for attribute in node.attribute}
    mode = named["auto_pad"].s if "auto_pad" in named else b"NOTSET"
    if (
        kind not in _POOLS
        or "ceil_mode" not in named
        or not named["ceil_mode"].i
        or mode not in (b"NOTSET", b"VALID", b"")
    ):
        return
    sizes = [dim.dim_value for dim in image.tensor_type.shape.dim][2:]
    rank = len(sizes)
    kernel = _integers(node, "kernel_shape", [0] * rank)
    strides, dilations = (_integers(node, name, [1] * rank) for name in ("strides", "dilations"))
    pads = _integers(node, "pads", [0] * (2 * rank)) if mode != b"VALID" else [0] * (2 * rank)
    result = types.get(node.output[0])
    dims = [] if result is None else result.tensor_type.shape.dim
    numbers = (*sizes, *kernel, *strides)
    if len(dims) != rank + 2 or min(numbers, default=0) < 1 or max(*numbers, *map(abs, (*pads, *dilations))) >= _LIMIT:
        return  # the operator's own checks refuse it
    for i, size in enumerate(sizes):
        over = size + pads[i] + pads[rank + i] - (kernel[i] - 1) * dilations[i] - 1
        count = math.ceil(over / strides[i]) + 1
        if over >= 0:
            dims[2 + i].dim_value = count - ((count - 1) * strides[i] >= size + pads[i])


def shape_value(node: onnx.NodeProto, kind: onnx.TypeProto | None, where: Where) -> Array:
    """What Shape or Size gives for a tensor of a type whose shape is known; None where the node has none."""
    if kind is None:
        raise faulty(f"{node.op_type} has no input", where, "it has one")
    shape = [dim.dim_value for dim in kind.tensor_type.shape.dim]
    if node.op_type == "Size":
        return np.array(math.prod(shape), np.int64)
    bounds = {a.name: a.i for a in node.attribute}
    return np.array(shape[slice(bounds.get("start", 0), bounds.get("end", len(shape)))], np.int64)

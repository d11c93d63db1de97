"""Which activations get 16 bits: overrides for ONNX Runtime's quantizer, and an order in which operators are worth it."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from emitc.calibrate.packages import package
from emitc.calibrate.settings import QuantizeSettings
from emitc.errors import unknown_choice

Overrides = dict[str, list[dict[str, Any]]]
_CONVERSIONS = "execution_providers.qnn.mixed_precision_overrides_utils"


_CUTTING = ("Relu", "Clip")
"""Operators that the quantizer takes into the one before: that one's values have no scale of their own."""
_MOVING = frozenset((
    "AveragePool", "Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GlobalAveragePool", "Identity", "MaxPool", "Pad",
    "Reshape", "Resize", "Slice", "SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze", *_CUTTING,
))  # fmt: skip
"""Operators whose noise is that of the values they take."""


def _cut_values(model: Any) -> dict[str, str]:
    """By the name of a tensor that a ReLU or Clip reads: what that one computes."""
    return {name: node.output[0] for node in model.graph.node if node.op_type in _CUTTING for name in node.input[:1]}


def require_operators(settings: QuantizeSettings, model: Any) -> None:
    """Raises EmitcError for a name that no operator of the model has. model: an ONNX message."""
    names = [node.name for node in model.graph.node]
    for option, wanted in (("--exclude", settings.excluded), ("--int16", settings.int16)):
        for name in wanted:
            if name not in names:
                why = "no operator of the model that the quantizer sees has this name"
                raise unknown_choice(option, name, names, why)


def overrides_of(settings: QuantizeSettings, model: Any, ranges: Mapping[str, tuple[float, float]]) -> Overrides:
    """What the quantizer is told of single tensors.

    model: an ONNX message in float32. ranges: of tensors, where they are not left to the quantizer's calibrator.
    """
    types = package("onnxruntime.quantization").QuantType
    overrides: Overrides = {}
    if settings.int16:
        helpers = package("onnxruntime.quantization.tensor_quant_overrides")
        wide = {"quant_type": types.QInt16}
        raised = set(settings.int16)
        tensors = [name for node in model.graph.node if node.name in raised for name in node.output]
        cut = _cut_values(model)
        tensors += [cut[name] for name in tensors if name in cut]
        helper = helpers.TensorQuantOverridesHelper({name: [dict(wide)] for name in tensors})
        conversions = package(f"onnxruntime.quantization.{_CONVERSIONS}").MixedPrecisionTensorQuantOverridesFixer
        conversions.create_from_model(helper, model, types.QInt8).apply(types.QInt8, False)
        overrides = helper.get_dict()
    for name, (low, high) in ranges.items():
        entry = overrides.setdefault(name, [{}])[0]
        if entry.get("quant_type", types.QInt8) == types.QInt8:
            entry |= {"rmin": np.float32(low), "rmax": np.float32(high)}
    return overrides


def operations_of(model: Any) -> dict[str, int]:
    """Multiply-accumulates of each operator by its name, or its output elements where it has no weights.

    model: an ONNX message. Open dimensions count as 1.
    """
    inferred = package("onnx").shape_inference.infer_shapes(model)
    infos = [*inferred.graph.value_info, *inferred.graph.output, *inferred.graph.input]
    shapes = {info.name: [max(1, d.dim_value) for d in info.type.tensor_type.shape.dim] for info in infos}
    weights = {tensor.name: list(tensor.dims) for tensor in model.graph.initializer}
    operations = {}
    for node in model.graph.node:
        count = max((math.prod(shapes.get(name, [1])) for name in node.output), default=1)
        operand = weights.get(node.input[1]) if len(node.input) > 1 else None
        if node.op_type == "Conv" and operand:
            count *= math.prod(operand[1:])
        elif node.op_type in ("Gemm", "MatMul"):
            transposed = any(a.name == "transB" and a.i for a in node.attribute)
            inner = operand or shapes.get(node.input[1], [1, 1])
            count *= inner[-1] if transposed else inner[-2] if len(inner) > 1 else inner[0]
        operations[node.name] = count
    return operations


def order_of_raising(model: Any, ratios: Mapping[str, float]) -> tuple[str, ...]:
    """Operators whose activations are worth 16 bits, those first that have much noise for few operations.

    model: an ONNX message. ratios: signal to quantization noise of tensors in int8, in decibels.
    """
    operations, cut, worth = operations_of(model), _cut_values(model), {}
    for node in model.graph.node:
        tensors = [name if name in ratios else cut.get(name, name) for name in node.output]
        noise = [10 ** (-ratios[name] / 10) for name in tensors if math.isfinite(ratios.get(name, math.inf))]
        if noise and node.op_type not in _MOVING:
            worth[node.name] = max(noise) / operations[node.name]
    return tuple(sorted(worth, key=lambda name: (-worth[name], name)))

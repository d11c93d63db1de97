"""Small ONNX models for tests, written operator by operator: every method adds something and returns the name of its value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from emitc.ir import Array

MICROSOFT = "com.microsoft"


@dataclass
class OnnxNet:
    """A model under construction, of one opset. rng: makes the weights."""

    opset: int = 17
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    inputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    outputs: list[onnx.ValueInfoProto] = field(default_factory=list)
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(3))

    def input(self, shape: Sequence[int | str], dtype: str = "float32", name: str = "") -> str:
        """An input; a dimension that is text stays open under that name."""
        name = name or f"x{len(self.inputs)}"
        self.inputs.append(helper.make_tensor_value_info(name, _elem_type(dtype), list(shape)))
        return name

    def constant(self, value: Array | Sequence[int] | float, dtype: str = "", name: str = "") -> str:
        """An initializer."""
        array = np.asarray(value, dtype or None)
        name = name or f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(array, name))
        return name

    def ints(self, *values: int) -> str:
        """A vector of int64."""
        return self.constant(np.array(values, np.int64))

    def op(self, op_type: str, *inputs: str, domain: str = "", name: str = "", **attributes: Any) -> str:
        """An operator of one output."""
        return self.ops(op_type, *inputs, outputs=1, domain=domain, name=name, **attributes)[0]

    def ops(
        self, op_type: str, *inputs: str, outputs: int, domain: str = "", name: str = "", **attributes: Any
    ) -> list[str]:
        """An operator of several outputs."""
        names = [f"v{len(self.nodes)}_{i}" if i else f"v{len(self.nodes)}" for i in range(outputs)]
        self.nodes.append(
            helper.make_node(op_type, inputs, names, name or f"n{len(self.nodes)}", domain=domain, **attributes)
        )
        return names

    def output(self, name: str, dtype: str = "float32", shape: Sequence[int] | None = None) -> None:
        """Makes a value an output; a shape that is not given is inferred, or stays open where that is not possible."""
        self.outputs.append(helper.make_tensor_value_info(name, _elem_type(dtype), shape))

    # ---- quantization ----

    def scales(self, scale: float | Sequence[float], zero_point: int, dtype: str) -> tuple[str, str]:
        """Scale and zero point as constants; one zero point per scale."""
        array = np.asarray(scale, np.float32)
        zeros = np.full(array.shape, zero_point, dtype)
        return self.constant(array, name=f"scale{len(self.constants)}"), self.constant(
            zeros, name=f"zero{len(self.constants)}"
        )

    def quantize(self, x: str, scale: float = 0.05, zero_point: int = 3, dtype: str = "int8") -> str:
        """A QuantizeLinear."""
        return self.op("QuantizeLinear", x, *self.scales(scale, zero_point, dtype))

    def dequantize(
        self,
        x: str,
        scale: float | Sequence[float] = 0.05,
        zero_point: int = 3,
        dtype: str = "int8",
        axis: int | None = None,
    ) -> str:
        """A DequantizeLinear."""
        attributes = {} if axis is None else {"axis": axis}
        return self.op("DequantizeLinear", x, *self.scales(scale, zero_point, dtype), **attributes)

    def qdq(self, x: str, scale: float = 0.05, zero_point: int = 3, dtype: str = "int8") -> str:
        """A QuantizeLinear and a DequantizeLinear."""
        return self.dequantize(self.quantize(x, scale, zero_point, dtype), scale, zero_point, dtype)

    def integers(self, shape: Sequence[int], dtype: str = "int8") -> str:
        """Random weights over most of the type's range."""
        low, high = {"int8": (-127, 128), "uint8": (0, 256), "int16": (-999, 1000), "int32": (-999, 1000)}[dtype]
        return self.constant(self.rng.integers(low, high, tuple(shape)).astype(dtype))

    def weights(self, shape: Sequence[int], axis: int | None = None, dtype: str = "int8", zero_point: int = 0) -> str:
        """Dequantized random weights, with one scale per slice of an axis where it is given."""
        scale = 0.01 if axis is None else (0.005 + 0.002 * np.arange(shape[axis])).tolist()
        return self.dequantize(self.integers(shape, dtype), scale, zero_point, dtype, axis)

    def bias(self, count: int, scale: float | Sequence[float] = 0.0005) -> str:
        """A dequantized int32 bias at a scale."""
        vector = None if isinstance(scale, float) else 0
        return self.dequantize(self.integers((count,), "int32"), scale, 0, "int32", vector)

    def conv(self, x: str, shape: Sequence[int], axis: int | None = 0, bias: bool = True, **attributes: Any) -> str:
        """A Conv of dequantized weights."""
        steps = [0.05 * 0.01] * shape[0] if axis is None else (0.05 * (0.005 + 0.002 * np.arange(shape[0]))).tolist()
        inputs = [x, self.weights(shape, axis)] + ([self.bias(shape[0], steps)] if bias else [])
        return self.op("Conv", *inputs, **attributes)

    def model(self, ir_version: int = 10) -> onnx.ModelProto:
        """The model."""
        graph = helper.make_graph(self.nodes, "net", self.inputs, self.outputs, self.constants)
        domains = sorted({MICROSOFT, *(node.domain for node in self.nodes if node.domain)})
        opsets = [helper.make_opsetid("", self.opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=ir_version, producer_name="tests")
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
        known = {value.name: value.type for value in (*inferred.value_info, *inferred.output)}
        for value in model.graph.output:
            if not value.type.tensor_type.HasField("shape"):
                if value.name in known and known[value.name].tensor_type.HasField("shape"):
                    value.type.tensor_type.shape.CopyFrom(known[value.name].tensor_type.shape)
                else:
                    value.type.tensor_type.shape.dim.add()
        return model

    def serialized(self) -> bytes:
        """The model as a file."""
        return self.model().SerializeToString()


def _elem_type(dtype: str) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

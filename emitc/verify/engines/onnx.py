"""The golden engine of ONNX models: ONNX Runtime's CPU kernels, every operator as the file states it.

Graph optimizations are off: fused kernels round differently (a DequantizeLinear-Softmax-QuantizeLinear becomes an integer
softmax with another scale). One thread, so that the order of every sum is fixed. The packages are optional and imported on
first use.

On x86 processors without VNNI, the integer kernels for uint8 activations and int8 weights may saturate sums of two
products: golden values belong to a processor that has it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from emitc.verify.engines.contract import Array, InputType, TensorKey, check_inputs, imported, refusals

_HINT = "export the model for an older opset, or compare with --reference numpy"
# The engine's names of element types that emitc's inputs may have.
_DTYPES = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(float16)": "float16",
    "tensor(bool)": "bool",
    **{f"tensor({name})": name for name in ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")},
}


class OnnxRuntimeEngine:
    """ONNX Runtime without graph optimizations, one thread; see Engine.

    preserve: keep the value of every node's every output for `tensors()`, by its name, as numpy has it in the file's
    type and layout. The model must be one file: constants in other files are not found. Raises EngineRefused for a
    model that it cannot load (also one of a newer opset or IR version than it knows). Raises EmitcError when the package is
    missing.
    """

    name = "onnxruntime"

    def __init__(self, model_bytes: bytes, *, preserve: bool = False) -> None:
        runtime = imported("onnxruntime", "onnxruntime")
        runtime.disable_telemetry_events()
        options = runtime.SessionOptions()
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.execution_mode = runtime.ExecutionMode.ORT_SEQUENTIAL
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 4
        self._preserve = preserve
        self._values: dict[TensorKey, Array] = {}
        with refusals(self.name, "load the model", _HINT):
            data = _with_every_value_as_output(model_bytes) if preserve else model_bytes
            self._session: Any = runtime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
            self._outputs = [output.name for output in self._session.get_outputs()]
            # Exposed values follow the model's own outputs.
            self._output_count = len(_parsed(model_bytes).graph.output) if preserve else len(self._outputs)

    def reset(self) -> None:
        """See Engine. A session holds no state but the last values."""
        self._values = {}

    def input_types(self) -> list[InputType]:
        with refusals(self.name, "describe its inputs", _HINT):
            described = [(np.dtype(_DTYPES[i.type]), i.shape) for i in self._session.get_inputs()]
            return [(dtype, tuple(s if isinstance(s, int) else -1 for s in shape)) for dtype, shape in described]

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        # An input without a stated rank looks like a scalar here: the engine itself judges what it is given.
        types = self.input_types()
        expected = [(t, shape or array.shape) for (t, shape), array in zip(types, inputs, strict=False)]
        check_inputs(inputs, expected + types[len(expected) :])
        with refusals(self.name, "run the model", _HINT):
            names = [i.name for i in self._session.get_inputs()]
            feeds = {name: np.array(array, order="C") for name, array in zip(names, inputs, strict=True)}
            outputs = self._session.run(self._outputs, feeds)
        if self._preserve:
            values = zip((*names, *self._outputs), (*feeds.values(), *outputs), strict=True)
            self._values = {name: np.array(value) for name, value in values if isinstance(value, np.ndarray)}
        return [np.array(value) for value in outputs[: self._output_count]]

    def tensors(self) -> Mapping[TensorKey, Array]:
        return {name: value.copy() for name, value in self._values.items()}


def _parsed(model_bytes: bytes) -> Any:
    return imported("onnx", "onnx").ModelProto.FromString(model_bytes)


def with_functions_in_place(model: Any) -> Any:
    """The model with its functions in the places of their calls, as the engine has them, under the frontend's names."""
    return imported("onnx.inliner", "onnx").inline_local_functions(model) if model.functions else model


def _with_every_value_as_output(model_bytes: bytes) -> bytes:
    """The model with the outputs of all its nodes after its own outputs; the engine infers their types."""
    model = with_functions_in_place(_parsed(model_bytes))
    graph = model.graph
    present = {output.name for output in graph.output}
    for node in graph.node:
        for name in node.output:
            if name and name not in present:
                present.add(name)
                graph.output.add().name = name
    data: bytes = model.SerializeToString()
    return data

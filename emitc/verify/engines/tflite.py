"""The golden engines of TFLite models: tflite_micro and LiteRT's reference kernels.

Both packages are optional and imported on first use.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from emitc.verify.engines.contract import Array, InputType, TensorKey, check_inputs, imported, refusals

# The interpreter carves all tensors out of one arena, and with `preserve` no two share bytes. The pages that are not
# touched are never committed, so a generous arena costs address space only.
_TFLM_ARENA_MIN_BYTES = 64 << 20
_TFLM_ARENA_PER_MODEL_BYTE = 16
# TensorType of the schema: strings, resource handles and variants have no numpy value (asking for one is fatal).
_TYPES_WITHOUT_VALUE = frozenset({5, 13, 14})


class TflmEngine:
    """TFLite Micro's reference kernels; see Engine.

    preserve: keep every intermediate value for `tensors()`, at the price of an arena without sharing.
    Raises EngineRefused for a model that it cannot load, EmitcError when the package is missing.
    """

    name = "tflm"

    def __init__(self, model_bytes: bytes, *, preserve: bool = False) -> None:
        self._runtime = imported("tflite_micro", "tflite-micro").runtime
        self._model_bytes = model_bytes
        self._preserve = preserve
        with refusals(self.name, "load the model"):
            model = self._runtime.convert_bytearray_to_object(bytearray(model_bytes))
            subgraph = model.subgraphs[0]
            _require_room(model)
            self._input_count, self._output_count = len(subgraph.inputs), len(subgraph.outputs)
            # An index that the interpreter does not know is fatal, so the file says which exist.
            self._readable = [i for i, tensor in enumerate(subgraph.tensors) if tensor.type not in _TYPES_WITHOUT_VALUE]
        self.reset()

    def reset(self) -> None:
        """See Engine. A new interpreter, since only that is a fresh state for every kernel."""
        config = self._runtime.InterpreterConfig
        self._has_run = False
        with refusals(self.name, "load the model"):
            self._interpreter = self._runtime.Interpreter.from_bytes(
                self._model_bytes,
                arena_size=max(_TFLM_ARENA_MIN_BYTES, _TFLM_ARENA_PER_MODEL_BYTE * len(self._model_bytes)),
                intrepreter_config=config.kPreserveAllTensors if self._preserve else config.kAllocationRecording,
            )

    def input_types(self) -> list[InputType]:
        with refusals(self.name, "describe its inputs"):
            return _input_types(self._interpreter.get_input_details(i) for i in range(self._input_count))

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        check_inputs(inputs, self.input_types())
        with refusals(self.name, "run the model"):
            for i, array in enumerate(inputs):
                self._interpreter.set_input(np.array(array, order="C"), i)
            self._interpreter.invoke()
            self._has_run = True
            return [np.array(self._interpreter.get_output(j)) for j in range(self._output_count)]

    def tensors(self) -> Mapping[TensorKey, Array]:
        if not (self._preserve and self._has_run):
            return {}
        with refusals(self.name, "show its tensors"):
            return {i: np.array(self._interpreter.GetTensor(i, 0)["tensor_data"]) for i in self._readable}


def _require_room(model: Any) -> None:
    """Raises ValueError for an output that the interpreter would write beyond: it takes shapes from the file."""
    custom = {i for i, code in enumerate(model.operatorCodes) if code.customCode == b"TFLite_Detection_PostProcess"}
    subgraph = model.subgraphs[0]
    for operator in subgraph.operators:
        shapes = [subgraph.tensors[i].shape for i in operator.outputs[:3]] if operator.opcodeIndex in custom else []
        if any(shape is None or not len(shape) for shape in shapes):
            raise ValueError("the file does not say how large the outputs of TFLite_Detection_PostProcess are")


class LiteRtEngine:
    """LiteRT with its reference kernels (BUILTIN_REF), one thread, no delegate; see Engine.

    `tensors()` leaves out the interpreter's own temporaries, which have indices beyond the model's.
    Raises EngineRefused for a model that it cannot load, EmitcError when the package is missing.
    """

    name = "litert"

    def __init__(self, model_bytes: bytes, preserve: bool = False) -> None:
        self._litert = imported("ai_edge_litert.interpreter", "ai-edge-litert")
        self._model_bytes = model_bytes
        self._preserve = preserve
        self.reset()

    def reset(self) -> None:
        """See Engine. A new interpreter, since only that is a fresh state for every kernel."""
        self._has_run = False
        with refusals(self.name, "load the model"):
            self._interpreter = self._litert.Interpreter(
                model_content=self._model_bytes,
                # The default resolver runs XNNPACK, whose results differ in the last bit.
                experimental_op_resolver_type=self._litert.OpResolverType.BUILTIN_REF,
                experimental_preserve_all_tensors=self._preserve,
                num_threads=1,
            )
            self._count = len(self._interpreter.get_tensor_details())  # before kernels add temporaries
            self._interpreter.allocate_tensors()

    def input_types(self) -> list[InputType]:
        with refusals(self.name, "describe its inputs"):
            return _input_types(self._interpreter.get_input_details())

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        details = self._interpreter.get_input_details()
        check_inputs(inputs, self.input_types())
        with refusals(self.name, "run the model"):
            for detail, array in zip(details, inputs, strict=True):
                self._interpreter.set_tensor(detail["index"], np.array(array, order="C"))
            self._interpreter.invoke()
            self._has_run = True
            outputs = self._interpreter.get_output_details()
            return [np.array(self._interpreter.get_tensor(detail["index"])) for detail in outputs]

    def tensors(self) -> Mapping[TensorKey, Array]:
        if not (self._preserve and self._has_run):
            return {}
        with refusals(self.name, "show its tensors"):
            details = self._interpreter.get_tensor_details()
            # Kinds bool, int, unsigned, float, complex: asking for the value of a resource ends the process.
            own = [detail for detail in details if detail["index"] < self._count]
            readable = [detail["index"] for detail in own if np.dtype(detail["dtype"]).kind in "biufc"]
            return {i: np.array(self._interpreter.get_tensor(i)) for i in readable}


def _input_types(details: Iterable[Mapping[str, Any]]) -> list[InputType]:
    return [(np.dtype(detail["dtype"]), tuple(int(extent) for extent in detail["shape"])) for detail in details]

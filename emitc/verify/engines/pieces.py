"""A TFLite model operator by operator: each on TFLite Micro, or on LiteRT where TFLite Micro has no code for it.

This is for graphs that no engine runs as a whole. It is also for those that only LiteRT runs, where it computes some operators
otherwise than TFLite Micro, whose rule the C follows. Every operator is cut out of the file as a model of its own, which keeps
its state from run to run. It gets the values that the operators before it gave.
"""

import contextlib
import copy
from collections.abc import Mapping, Sequence
from typing import Any

import flatbuffers
import numpy as np

from emitc.errors import Where
from emitc.verify.engines.contract import Array, EngineRefused, InputType, TensorKey, check_inputs, imported, refusals
from emitc.verify.engines.tflite import LiteRtEngine, TflmEngine

_TOLERANCE = 1e-5
_ALIGNMENT = 16
_CALLS = tuple(f"{name}SubgraphIndex" for name in ("then", "else", "cond", "body", "init"))
"""Options of operators that run graphs."""

READS_INT8_MEMORY = "it reads the int8 memory of SVDF as int16"


class _Piece:
    """One operator as a model. given, made: indices of the tensors that it reads and writes.

    unfit: why TFLite Micro cannot be the reference; "" where it can. other: the same of LiteRT.
    """

    def __init__(
        self, label: str, inputs: Sequence[int], outputs: Sequence[int], data: bytes, unfit: str, other: str
    ) -> None:
        self.label, self.inputs, self.outputs, self._data, self._unfit = label, inputs, outputs, data, unfit
        self._unfit_other = other
        self.reset()

    def reset(self) -> None:
        """Drops the engines, so that the next run starts from the initial state."""
        self._engine: TflmEngine | LiteRtEngine | None = None
        self._other: LiteRtEngine | None = None

    def run(self, inputs: Sequence[Array], compare: bool) -> tuple[list[Array], int]:
        """The outputs, and how many elements LiteRT gives otherwise where it is asked too. Raises EngineRefused."""
        if self._engine is None:
            return self._first(inputs, compare)
        outputs = self._engine.run(inputs)
        return outputs, self._compared(inputs, outputs)

    def _first(self, inputs: Sequence[Array], compare: bool) -> tuple[list[Array], int]:
        why = self._unfit
        if not why:
            try:
                engine = TflmEngine(self._data)
                outputs = engine.run(inputs)
            except EngineRefused as error:
                why = error.why
            else:
                self._engine = engine
                if compare and not self._unfit_other:
                    with contextlib.suppress(EngineRefused):
                        self._other = LiteRtEngine(self._data)
                return outputs, self._compared(inputs, outputs)
        if self._unfit_other:
            raise _refused(f"{self.label}: tflm: {why}; litert: {self._unfit_other}")
        try:
            self._engine = LiteRtEngine(self._data)
            return self._engine.run(inputs), 0
        except EngineRefused as error:
            both = f"{self.label}: tflm: {why}; litert: {error.why}"
            raise EngineRefused(error.what, error.where, both, error.hint) from error

    def _compared(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> int:
        if self._other is None:
            return 0
        try:
            others = self._other.run(inputs)
        except EngineRefused:
            self._other = None
            return 0
        return sum(_differing(a, b) for a, b in zip(outputs, others, strict=True))


def _differing(actual: Array, expected: Array) -> int:
    """Elements that differ; of floats, by more than the tolerance."""
    if actual.shape != expected.shape:
        return actual.size
    if actual.dtype.kind != "f":
        return int((actual != expected).sum())
    limit = _TOLERANCE * (1 + np.abs(expected[np.isfinite(expected)]).max(initial=0))
    return int((~np.isclose(actual, expected, rtol=0, atol=limit, equal_nan=True)).sum())


class _Buffer:
    """A buffer whose bytes lie at a multiple of 16, as engines want constants; the schema's own class packs them anywhere."""

    def __init__(self, schema: Any, data: Any) -> None:
        self._schema, self._data = schema, None if data is None else bytes(bytearray(data))

    def Pack(self, builder: Any) -> int:
        place = None
        if self._data is not None:
            builder.StartVector(1, len(self._data), _ALIGNMENT)
            builder.head -= len(self._data)
            builder.Bytes[builder.head : builder.head + len(self._data)] = self._data
            place = builder.EndVector()
        self._schema.BufferStart(builder)
        if place is not None:
            self._schema.BufferAddData(builder, place)
        return int(self._schema.BufferEnd(builder))


class PiecesEngine:
    """See the module; it is an Engine. compare: run LiteRT too where TFLite Micro has the operator, for `disputes`.

    preserve: as other engines have it; the values between the operators are kept in any case.
    Raises EngineRefused for a model that cannot be cut, or has an operator that neither engine runs by itself.
    """

    name = "mixed"

    def __init__(self, model_bytes: bytes, *, preserve: bool = False, compare: bool = False) -> None:
        self._runtime = imported("tflite_micro", "tflite-micro").runtime
        self._compare = compare
        self._counts: dict[str, tuple[int, int]] = {}
        with refusals(self.name, "cut the model into operators"):
            self._model = self._runtime.convert_bytearray_to_object(bytearray(model_bytes))
            self._graph = self._model.subgraphs[0]
            self._codes = [self._code_of(operator) for operator in self._graph.operators]
            self._pieces = [self._piece(position) for position in range(len(self._codes))]
        self.reset()

    @property
    def disputes(self) -> tuple[str, ...]:
        """Operators of which LiteRT gives others values than TFLite Micro on the same inputs, and in how many elements."""
        totals = ((label, *counts) for label, counts in self._counts.items())
        return tuple(f"{label}: {differing} of {total} elements" for label, differing, total in totals if differing)

    def input_types(self) -> list[InputType]:
        return [self._type_of(index) for index in self._graph.inputs]

    def reset(self) -> None:
        self._state: dict[tuple[bytes, bytes], Array] = {}
        self._values: dict[TensorKey, Array] = {}
        for piece in self._pieces:
            if piece is not None:
                piece.reset()

    def run(self, inputs: Sequence[Array]) -> list[Array]:
        check_inputs(inputs, self.input_types())
        self._values = dict(
            zip((int(i) for i in self._graph.inputs), (np.array(x, order="C") for x in inputs), strict=True)
        )
        for operator, code, piece in zip(self._graph.operators, self._codes, self._pieces, strict=True):
            if code == "ASSIGN_VARIABLE":
                self._state[self._handle(operator)] = self._value(int(operator.inputs[1]))
            elif code == "READ_VARIABLE" and (piece is None or self._handle(operator) in self._state):
                index = int(operator.outputs[0])
                self._values[index] = self._state.get(self._handle(operator), self._first_value(index))
            elif piece is not None:
                outputs, count = piece.run([self._value(index) for index in piece.inputs], self._compare)
                before = self._counts.get(piece.label, (0, 0))
                self._counts[piece.label] = before[0] + count, before[1] + sum(value.size for value in outputs)
                for index, output in zip(piece.outputs, outputs, strict=True):
                    stated = self._type_of(index)[1]
                    if output.shape != stated:
                        raise _refused(f"{piece.label} gives {list(output.shape)}, the file says {stated}")
                    self._values[index] = output
        return [self._value(int(index)) for index in self._graph.outputs]

    def tensors(self) -> Mapping[TensorKey, Array]:
        return self._values

    def _value(self, index: int) -> Array:
        if index not in self._values:
            data = self._data_of(self._graph.tensors[index])
            dtype, shape = self._type_of(index)
            if data is None:
                raise _refused(f"nothing has computed tensor {index}")
            self._values[index] = np.frombuffer(bytes(data), dtype).reshape(shape)
        return self._values[index]

    def _first_value(self, index: int) -> Array:
        """A variable's first value: its zero point in types of one byte, and zeros in others."""
        dtype, shape = self._type_of(index)
        quantization = self._graph.tensors[index].quantization
        points = None if quantization is None or dtype.itemsize > 1 else quantization.zeroPoint
        return np.full(shape, 0 if points is None or not len(points) else points[0], dtype)

    def _code_of(self, operator: Any) -> str:
        code = self._model.operatorCodes[operator.opcodeIndex]
        number = max(code.builtinCode, code.deprecatedBuiltinCode)
        names = vars(self._runtime.schema_fb.BuiltinOperator).items()
        return next((name for name, value in names if value == number and not name.startswith("_")), "")

    def _type_of(self, index: int) -> InputType:
        tensor = self._graph.tensors[index]
        names = vars(self._runtime.schema_fb.TensorType).items()
        name = next(name for name, value in names if value == tensor.type and not name.startswith("_"))
        return np.dtype(name.lower()), tuple(int(extent) for extent in (() if tensor.shape is None else tensor.shape))

    def _data_of(self, tensor: Any) -> Any:
        data = self._model.buffers[tensor.buffer].data
        return data if data is not None and len(data) else None

    def _handle(self, operator: Any) -> tuple[bytes, bytes]:
        """What a variable is called: the names of the VAR_HANDLE that the operator reads."""
        for other, code in zip(self._graph.operators, self._codes, strict=True):
            if code == "VAR_HANDLE" and other.outputs[0] == operator.inputs[0]:
                return _named(other)
        raise _refused("a variable has no handle")

    def _piece(self, position: int) -> _Piece | None:
        """The operator at a position cut out; None for those that need no engine."""
        operator, code = self._graph.operators[position], self._codes[position]
        if code in ("VAR_HANDLE", "ASSIGN_VARIABLE", "CALL_ONCE"):
            return None
        inside = [inner for graph in self._model.subgraphs[1:] for inner in graph.operators or ()]
        variables = {_named(inner) for inner in inside if self._code_of(inner) == "VAR_HANDLE"}
        set_once = variables if "CALL_ONCE" in self._codes else set()
        if code == "READ_VARIABLE" and self._handle(operator) not in set_once:
            return None  # TFLite Micro sets no first value where nothing assigns the variable
        if code in ("IF", "WHILE") and variables - set_once:
            raise _refused(f"{code} sets variables")
        kept = [operator]
        if code == "READ_VARIABLE":  # of a variable that nothing has assigned: its first value
            others = zip(self._graph.operators, self._codes, strict=True)
            handle = operator.inputs[0]
            before = [o for o, c in others if c == "CALL_ONCE" or (c == "VAR_HANDLE" and o.outputs[0] == handle)]
            kept = before + kept
        made = [int(index) for index in operator.outputs]
        within = {int(index) for inner in kept for index in inner.outputs}
        read = dict.fromkeys(int(index) for inner in kept for index in inner.inputs if index >= 0)
        tensors = self._graph.tensors
        entering = [
            i for i in read if i not in within and self._data_of(tensors[i]) is None and not tensors[i].isVariable
        ]
        first = self._graph.tensors[made[0]]
        label = f'op {position} {code} "{(first.name or b"").decode(errors="replace")}"'
        data = self._cut(kept, entering, made)
        return _Piece(label, entering, made, data, self._unfit(operator, code), self._unfit_other(operator, code))

    def _unfit(self, operator: Any, code: str) -> str:
        """Why TFLite Micro cannot be the reference of an operator that it has."""
        quantization = self._graph.tensors[operator.outputs[0]].quantization
        points = None if quantization is None else quantization.zeroPoint
        if code == "SPACE_TO_BATCH_ND" and points is not None and any(points):
            return "it pads with whatever lies in its memory"
        if code == "SVDF" and len(operator.inputs) > 3 and operator.inputs[3] < 0:
            return "it reads the bias that is left out, and its process ends"
        return ""

    def _unfit_other(self, operator: Any, code: str) -> str:
        """Why LiteRT cannot be the reference of an operator that it has."""
        if code == "SVDF" and self._type_of(int(operator.inputs[4]))[0] == np.int8:
            return READS_INT8_MEMORY
        return ""

    def _cut(self, operators: Sequence[Any], inputs: Sequence[int], outputs: Sequence[int]) -> bytes:
        model, graph = copy.copy(self._model), copy.copy(self._graph)
        lists = [item.inputs for item in operators] + [item.outputs for item in operators]
        lists += [operator.intermediates for operator in operators if operator.intermediates is not None]
        used = sorted({int(index) for values in lists for index in values if index >= 0})
        place = {old: new for new, old in enumerate(used)}
        graph.tensors = [self._graph.tensors[index] for index in used]
        graph.inputs, graph.outputs = [place[i] for i in inputs], [place[i] for i in outputs]
        called = self._called_by(operators)
        graph.operators = [_calling(item, called, place) for item in operators]
        # Other graphs are left out: TFLite Micro prepares every graph, and ends its process at an empty one.
        model.subgraphs = [graph, *(copy.copy(self._model.subgraphs[index]) for index in called)]
        for inner in model.subgraphs[1:]:
            inner.operators = [_calling(item, called) for item in inner.operators or ()]
        model.metadata = model.metadataBuffer = model.signatureDefs = None
        needed = {tensor.buffer for subgraph in model.subgraphs for tensor in subgraph.tensors or ()}
        schema, buffers = self._runtime.schema_fb, enumerate(self._model.buffers)
        model.buffers = [_Buffer(schema, item.data) if i in needed else schema.BufferT() for i, item in buffers]
        builder = flatbuffers.Builder(1024)
        builder.Finish(model.Pack(builder), b"TFL3")
        return bytes(builder.Output())

    def _called_by(self, operators: Sequence[Any]) -> dict[int, int]:
        """The graphs that the operators run, by their index in the file: the index that each has in the cut model."""
        indices: set[int] = set()
        left = list(operators)
        while left:
            options = left.pop().builtinOptions
            more = {getattr(options, name) for name in _CALLS if hasattr(options, name)} - indices
            indices |= more
            left += [operator for index in more for operator in self._model.subgraphs[index].operators or ()]
        return {index: place + 1 for place, index in enumerate(sorted(indices))}


def _calling(operator: Any, graphs: Mapping[int, int], tensors: Mapping[int, int] | None = None) -> Any:
    """A copy of an operator, with the new indices of the graphs that it runs and, where they change, of its tensors."""
    renamed, options = copy.copy(operator), copy.copy(operator.builtinOptions)
    for name in _CALLS:
        if hasattr(options, name):
            setattr(options, name, graphs[getattr(options, name)])
    renamed.builtinOptions = options
    for name in ("inputs", "outputs", "intermediates"):
        indices = getattr(operator, name)
        if indices is not None and tensors is not None:
            setattr(renamed, name, [tensors[int(i)] if i >= 0 else -1 for i in indices])
    return renamed


def _named(handle: Any) -> tuple[bytes, bytes]:
    return handle.builtinOptions.container or b"", handle.builtinOptions.sharedName or b""


def _refused(why: str) -> EngineRefused:
    return EngineRefused(
        "the model cannot be run operator by operator", Where(option="--reference mixed"), why,
        "compare with emitc's own numpy references: --reference numpy",
    )  # fmt: skip

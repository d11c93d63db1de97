"""A .tflite file to a SourceModel: every index, length, type and quantization vector is checked before use.

The file is untrusted. The FlatBuffers reader has no verifier in Python, so its failures on damaged offsets are caught
here as a whole and every number that it returns is treated as data: bounded first, used afterwards.
Source: the TFLite FlatBuffers schema, version 3.
"""

from __future__ import annotations

import hashlib
import math
import re
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tflite

from emitc.errors import CannotCompile, EmitcError, Where
from emitc.frontends.source import Attribute, SourceModel, SourceNode, SourceTensor, check_shape
from emitc.ir import DType, Quantization, Shape

MAX_TENSORS = 65536
MAX_OPERATORS = 65536


def _enumeration(cls: type) -> dict[int, str]:
    return {value: name for name, value in vars(cls).items() if isinstance(value, int)}


_OPCODES = _enumeration(tflite.BuiltinOperator)
_TYPES = _enumeration(tflite.TensorType)
_PADDING = _enumeration(tflite.Padding)
_ACTIVATION = _enumeration(tflite.ActivationFunctionType)
_WEIGHTS_FORMAT = _enumeration(tflite.FullyConnectedOptionsWeightsFormat)
_OPTIONS = _enumeration(tflite.BuiltinOptions)
_ENUMERATIONS = {
    "padding": _PADDING,
    "fused_activation_function": _ACTIVATION,
    "weights_format": _WEIGHTS_FORMAT,
    "in_data_type": _TYPES,
    "out_data_type": _TYPES,
    "quantized_bias_type": _TYPES,
    "output_type": _TYPES,
}
_OPTIONS_BY_WORD = {name.removesuffix("Options").lower(): name for name in _OPTIONS.values() if name != "NONE"}
_OTHER_OPTIONS = {
    "AVERAGE_POOL_2D": "Pool2DOptions",
    "MAX_POOL_2D": "Pool2DOptions",
    "L2_POOL_2D": "Pool2DOptions",
    "MAXIMUM": "MaximumMinimumOptions",
    "MINIMUM": "MaximumMinimumOptions",
    "MEAN": "ReducerOptions",
    "SUM": "ReducerOptions",
    "REDUCE_MAX": "ReducerOptions",
    "REDUCE_MIN": "ReducerOptions",
    "REDUCE_PROD": "ReducerOptions",
    "REDUCE_ANY": "ReducerOptions",
    "REDUCE_ALL": "ReducerOptions",
    "CONCATENATION": "ConcatenationOptions",
}
_NO_OPTIONS = (
    "LOGISTIC",
    "TANH",
    "RELU",
    "RELU6",
    "RELU_N1_TO_1",
    "RELU_0_TO_1",
    "ELU",
    "PRELU",
    "FLOOR",
    "CEIL",
    "ROUND",
    "SIN",
    "SQRT",
    "RSQRT",
    "LOG",
)
_IDENTIFIER = b"TFL3"


def _expected_options(op_type: str) -> str:
    """The options table that the schema pairs with an operator, "" where it names none."""
    if op_type in _NO_OPTIONS:
        return "NONE"
    return _OTHER_OPTIONS.get(op_type) or _OPTIONS_BY_WORD.get(op_type.replace("_", "").lower(), "")


@contextmanager
def _damaged(where: Where) -> Iterator[None]:
    """Turns what the FlatBuffers reader raises on bad offsets into a refusal."""
    try:
        yield
    except (struct.error, IndexError, ValueError, TypeError, OverflowError, AttributeError, KeyError) as error:
        raise EmitcError(
            "the .tflite file is damaged",
            where,
            f"an offset or a length points outside the file ({type(error).__name__})",
            "copy or export the model again; the file may be truncated",
        ) from error


def _count(found: int, limit: int, what: str) -> int:
    """A vector's length, refused above the limit: it is read from the file and says how long loops run."""
    if not 0 <= found <= limit:
        raise EmitcError(
            f"the file claims {found} {what}",
            Where(tensor=what),
            f"the limit for a file of this size is {limit}",
            "the file is damaged: copy or export the model again",
        )
    return found


def _integers(length: int, as_numpy: Callable[[], Any], limit: int, what: str) -> tuple[int, ...]:
    """A vector of integers; empty when it is absent."""
    if _count(length, limit, what) == 0:
        return ()
    return tuple(int(value) for value in as_numpy())


def _text(raw: bytes | None) -> str:
    """A name of the file; bytes that are not UTF-8 are kept visible."""
    return (raw or b"").decode("utf-8", errors="backslashreplace")


def _snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def _attributes(options: Any, class_name: str) -> dict[str, Attribute]:
    """Every scalar and vector of an options table under its schema name; enumerations by name."""
    cls = getattr(tflite, class_name)
    table = cls()
    table.Init(options.Bytes, options.Pos)
    names = [n for n in vars(cls) if not n.startswith(("_", "GetRoot", "Init")) and not n.endswith("HasIdentifier")]
    vectors = {n.removesuffix("AsNumpy") for n in names if n.endswith("AsNumpy")}
    found: dict[str, Attribute] = {}
    for name in names:
        if any(name.startswith(v) and name != v for v in vectors) or name.endswith(("IsNone", "Length")):
            continue
        key = _snake(name)
        if name in vectors:
            length = getattr(table, name + "Length")()
            found[key] = _integers(length, getattr(table, name + "AsNumpy"), 64, f"values of {key}")
            continue
        value = getattr(table, name)()
        if key in _ENUMERATIONS:
            found[key] = _ENUMERATIONS[key].get(value, f"code {value}")
        elif isinstance(value, bool | int | float):
            found[key] = value
        elif value is None or isinstance(value, bytes):
            found[key] = _text(value)
    return found


def _quantization(tensor: Any, shape: Shape, dtype: str, where: Where) -> Quantization | None:
    """Scales and zero points of a tensor, None where it has none.

    Converters write one zero point for many scales, or none; and person_detect-like files give one scale with a
    quantized dimension that means nothing then. Raises EmitcError on other shapes and on scales that are not finite
    and positive.
    """
    params = tensor.Quantization()
    if params is None or params.ScaleLength() == 0:
        return None

    def refuse(what: str, why: str) -> EmitcError:
        return EmitcError(what, where, why, "the file is damaged or was written by a faulty converter: export it again")

    count = _count(params.ScaleLength(), max(1, *(abs(d) for d in shape), 1), "scales")
    scales = tuple(float(s) for s in params.ScaleAsNumpy())
    zero_points = _integers(params.ZeroPointLength(), params.ZeroPointAsNumpy, count, "zero points") or (0,)
    axis = params.QuantizedDimension() if len(shape) > 1 else 0  # a vector has one axis, whatever the file says
    if not all(math.isfinite(s) and s > 0.0 for s in scales):
        raise refuse("a quantization scale is not a positive number", f"found {min(scales)!r}")
    if params.DetailsType() != tflite.QuantizationDetails.NONE:
        raise CannotCompile(
            "a tensor has a custom quantization",
            where,
            "only affine quantization is supported",
            "export with TFLite's own quantizer",
        )
    if count > 1 and (not 0 <= axis < len(shape) or shape[axis] != count):
        raise refuse(
            f"{count} scales do not fit the shape", f"dimension {axis} of {list(shape)} should have {count} elements"
        )
    if len(zero_points) not in (1, count):
        raise refuse(f"{len(zero_points)} zero points for {count} scales", "one for each scale is expected")
    if len(zero_points) < count:
        zero_points *= count
    if dtype in ("int8", "uint8", "int16", "int32"):
        low, high = DType(dtype).range
        if not all(low <= z <= high for z in zero_points):
            raise refuse("a zero point is outside the tensor's type", f"{dtype} holds {low} to {high}")
    return Quantization(scales, zero_points, axis if count > 1 else 0)


class _Reader:
    """One pass over the file; each method returns checked values."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.limit = len(data) // 4
        self.model = tflite.Model.GetRootAs(data, 0)
        count = _count(self.model.SubgraphsLength(), self.limit, "subgraphs")
        if count == 0:
            raise EmitcError(
                "the model has no subgraph", Where(), "there is nothing to compile", "export the model again"
            )
        self.subgraph = self.model.Subgraphs(0)
        self.subgraphs = count
        self.buffers = _count(self.model.BuffersLength(), self.limit, "buffers")
        self.codes = tuple(
            self._code(i) for i in range(_count(self.model.OperatorCodesLength(), self.limit, "operator codes"))
        )

    def _code(self, index: int) -> str:
        code = self.model.OperatorCodes(index)
        builtin, old = code.BuiltinCode(), code.DeprecatedBuiltinCode()
        if builtin != old and not (builtin == 0 or old == 127 <= builtin):
            raise EmitcError(
                f"operator code {index} contradicts itself",
                Where(op=f"operator code {index}"),
                f"builtin_code {builtin} and deprecated_builtin_code {old} differ",
                "the file is damaged: export the model again",
            )
        value = max(builtin, old)
        name = _OPCODES.get(value, f"BUILTIN_{value}")
        return f"CUSTOM:{_text(code.CustomCode())}" if name == "CUSTOM" else name

    def tensor(self, index: int, shapes: dict[str, Shape]) -> SourceTensor:
        """Tensor `index`, with its open dimensions as -1 unless `shapes` gives them."""
        raw = self.subgraph.Tensors(index)
        name = _text(raw.Name())
        dtype = _TYPES.get(raw.Type(), f"type {raw.Type()}").lower()
        shape = _integers(raw.ShapeLength(), raw.ShapeAsNumpy, 64, "dimensions")
        signature = _integers(raw.ShapeSignatureLength(), raw.ShapeSignatureAsNumpy, 64, "dimensions")
        where = Where(tensor=f'tensor {index} "{name}" {dtype}[{",".join(map(str, shape))}]')
        if len(signature) == len(shape):
            if any(s != d and s != -1 for s, d in zip(signature, shape, strict=True)):
                raise EmitcError(
                    "a tensor's shape contradicts its signature",
                    where,
                    f"signature {list(signature)}",
                    "export the model again",
                )
            shape = signature
        shape = shapes.get(name, shape)
        check_shape(shape, dtype, where)
        if raw.Sparsity() is not None:
            raise CannotCompile(
                "a sparse tensor is not supported", where, "only dense tensors have code", "export without sparsity"
            )
        data = self._data(raw.Buffer(), shape, dtype, where)
        quantization = _quantization(raw, shape, dtype, where)
        return SourceTensor(index, name, dtype, shape, quantization, data, bool(raw.IsVariable()))

    def _data(self, buffer: int, shape: Shape, dtype: str, where: Where) -> bytes | None:
        """The constant's bytes, None for an activation; their number must be what shape and type ask for."""
        if not 0 <= buffer < max(self.buffers, 1):
            raise EmitcError(
                f"a tensor names buffer {buffer}", where, f"the file has {self.buffers}", "export the model again"
            )
        if buffer == 0 or buffer >= self.buffers:
            return None
        raw = self.model.Buffers(buffer)
        offset, size = raw.Offset(), raw.Size()
        if offset > 1:
            if offset + size > len(self.data):
                raise EmitcError(
                    "a constant lies outside the file",
                    where,
                    f"bytes {offset} to {offset + size} of {len(self.data)}",
                    "the file is truncated",
                )
            data = self.data[offset : offset + size]
        elif raw.DataLength() == 0:
            return None
        else:
            _count(raw.DataLength(), len(self.data), "bytes of a constant")
            data = raw.DataAsNumpy().tobytes()
        if dtype not in {t.value for t in DType}:
            return data
        expected = math.prod(shape) * DType(dtype).bytes
        if any(d < 0 for d in shape) or len(data) != expected:
            raise EmitcError(
                "a constant's size does not fit its shape",
                where,
                f"{len(data)} bytes found, {expected} expected",
                "export the model again",
            )
        return data

    def node(self, index: int, tensors: tuple[SourceTensor, ...]) -> SourceNode:
        """Operator `index` with its tensors and attributes."""
        raw = self.subgraph.Operators(index)
        where = Where(op=f"op {index}")
        if not 0 <= raw.OpcodeIndex() < len(self.codes):
            raise EmitcError(
                f"operator {index} names code {raw.OpcodeIndex()}",
                where,
                f"the file has {len(self.codes)}",
                "export the model again",
            )
        op_type = self.codes[raw.OpcodeIndex()]
        inputs = _integers(raw.InputsLength(), raw.InputsAsNumpy, MAX_TENSORS, "inputs")
        outputs = _integers(raw.OutputsLength(), raw.OutputsAsNumpy, MAX_TENSORS, "outputs")
        for position in (*(i for i in inputs if i != -1), *outputs):
            if not 0 <= position < len(tensors):
                raise EmitcError(
                    f"{op_type} names tensor {position}",
                    where,
                    f"the subgraph has {len(tensors)} tensors",
                    "export the model again",
                )
        name = tensors[outputs[0]].name if outputs else ""
        kind = _OPTIONS.get(raw.BuiltinOptionsType(), f"options {raw.BuiltinOptionsType()}")
        expected = _expected_options(op_type)
        attributes: dict[str, Attribute] = {}
        if kind != "NONE" and expected and kind != expected:
            raise EmitcError(
                f"{op_type} carries {kind}",
                where,
                f"the schema pairs it with {expected}",
                "the file is damaged: export the model again",
            )
        options = raw.BuiltinOptions()
        if options is not None and kind == expected:
            attributes = _attributes(options, kind)
        return SourceNode(
            index,
            op_type,
            name,
            tuple(tensors[i] if i != -1 else None for i in inputs),
            tuple(tensors[i] for i in outputs),
            attributes,
        )


def read_tflite(data: bytes, shapes: dict[str, Shape] | None = None) -> SourceModel:
    """The model in `data`, the bytes of a .tflite file; `shapes` gives open dimensions by tensor name.

    Raises EmitcError when the file is not TFLite, is damaged, or contradicts itself.
    """
    if len(data) < 16 or data[4:8] != _IDENTIFIER:
        raise EmitcError(
            "this is not a .tflite file",
            Where(),
            "the identifier TFL3 is missing at byte 4",
            "pass a TFLite FlatBuffers file",
        )
    with _damaged(Where()):
        reader = _Reader(data)
        if reader.model.Version() != 3:
            raise EmitcError(
                f"schema version {reader.model.Version()} is not supported",
                Where(),
                "version 3 is the only one in use",
                "export again",
            )
        subgraph = reader.subgraph
        limit = min(reader.limit, MAX_TENSORS)
        tensors = tuple(
            reader.tensor(i, shapes or {}) for i in range(_count(subgraph.TensorsLength(), limit, "tensors"))
        )
    nodes = []
    with _damaged(Where()):
        operators = _count(subgraph.OperatorsLength(), min(reader.limit, MAX_OPERATORS), "operators")
    for index in range(operators):
        with _damaged(Where(op=f"op {index}")):
            nodes.append(reader.node(index, tensors))
    with _damaged(Where()):
        inputs = _integers(subgraph.InputsLength(), subgraph.InputsAsNumpy, limit, "graph inputs")
        outputs = _integers(subgraph.OutputsLength(), subgraph.OutputsAsNumpy, limit, "graph outputs")
        producer = _text(reader.model.Description())
    for index in (*inputs, *outputs):
        if not 0 <= index < len(tensors):
            raise EmitcError(
                f"the interface names tensor {index}",
                Where(),
                f"the subgraph has {len(tensors)} tensors",
                "export the model again",
            )
    blockers: list[EmitcError] = []
    if reader.subgraphs > 1:
        blockers.append(
            CannotCompile(
                f"the model has {reader.subgraphs} subgraphs",
                Where(),
                "only the first one would be compiled: control flow and init subgraphs have no code",
                "export a model of one subgraph",
            )
        )
    digest = hashlib.sha256(data).hexdigest()
    return SourceModel("tflite", producer, digest, tensors, tuple(nodes), inputs, outputs, blockers=tuple(blockers))


def known_shapes(shapes: dict[str, Shape], model: SourceModel) -> None:
    """Refuses a --shape for a name that the model does not have."""
    names = {tensor.name for tensor in model.tensors}
    for name in shapes:
        if name not in names:
            close = ", ".join(sorted(model.tensors[i].name for i in model.inputs))
            raise EmitcError(
                f"no tensor is called {name}",
                Where(option="--shape"),
                f"the model's inputs: {close}",
                "name one of these",
            )

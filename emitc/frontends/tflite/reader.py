"""A .tflite file to a SourceModel: every index, length, type and quantization vector is checked before use.

The file is untrusted. `flatbuffer.py` keeps every read inside it; here each number that comes out is treated as data:
bounded first, used afterwards. What contradicts the schema or itself is refused as damaged (exit code 2); what is
consistent and merely has no code becomes a blocker or is left to the operators.
Source: the TFLite FlatBuffers schema, version 3.
"""

import hashlib
import math
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import tflite
from flatbuffers import number_types

from emitc.errors import DAMAGED, EXPORT_AGAIN, CannotCompile, EmitcError, Where
from emitc.frontends.constant_folding import widened, with_constants, with_whole_bytes
from emitc.frontends.file_kinds import require_tflite
from emitc.frontends.limits import MAX_OPERATORS, MAX_TENSORS
from emitc.frontends.tflite import schema_rules
from emitc.frontends.tflite.broadcasts import with_few_loops
from emitc.frontends.tflite.constants import MAX_DENSE_BYTES, Damage, Level, decoded, dense, densified
from emitc.frontends.tflite.flatbuffer import Budget, Damaged, any_options, numbers, opened, root_position
from emitc.frontends.tflite.scales import with_moved_numbers
from emitc.frontends.tflite.signal import with_circular_buffers, with_signal_state
from emitc.frontends.tflite.state import with_state
from emitc.frontends.tflite.uint8 import with_signed_bytes
from emitc.ir import DType, Quantization, Shape
from emitc.source import Attribute, SourceModel, SourceNode, SourceSubgraph, SourceTensor, check_shape, given_shape


def _enumeration(cls: type) -> dict[int, str]:
    return {value: name for name, value in vars(cls).items() if isinstance(value, int)}


_OPCODES = _enumeration(tflite.BuiltinOperator)
_TYPES = _enumeration(tflite.TensorType)
_OPTIONS = _enumeration(tflite.BuiltinOptions)
_ENUMERATIONS = {
    "padding": _enumeration(tflite.Padding),
    "fused_activation_function": _enumeration(tflite.ActivationFunctionType),
    "weights_format": _enumeration(tflite.FullyConnectedOptionsWeightsFormat),
    "in_data_type": _TYPES,
    "out_data_type": _TYPES,
    "quantized_bias_type": _TYPES,
    "output_type": _TYPES,
}
_INDICES = {
    tflite.SparseIndexVector.Int32Vector: tflite.Int32Vector,
    tflite.SparseIndexVector.Uint16Vector: tflite.Uint16Vector,
    tflite.SparseIndexVector.Uint8Vector: tflite.Uint8Vector,
}
_OLD_CODE_SLOT, _BUILTIN_CODE_SLOT = 4, 10
"""Places of OperatorCode.deprecated_builtin_code and builtin_code in the table's field list, in bytes."""
_PLACEHOLDER: int = tflite.BuiltinOperator.PLACEHOLDER_FOR_GREATER_OP_CODES
_DTYPES = frozenset(dtype.value for dtype in DType if not dtype.packed)


@contextmanager
def _damaged(where: Where) -> Iterator[None]:
    """Turns a FlatBuffer that leads outside the file into a refusal."""
    try:
        yield
    except Damaged as error:
        hint = "copy or export the model again; the file may be truncated"
        raise EmitcError("the .tflite file is damaged", where, str(error), hint) from error


def _damage(what: str, where: Where, why: str, hint: str = DAMAGED) -> EmitcError:
    return EmitcError(what, where, why, hint)


def _count(count: int, limit: int, what: str) -> int:
    """A vector's length, refused above the limit: it is read from the file and says how long loops run."""
    if not 0 <= count <= limit:
        why = f"the limit for a file of this size is {limit}"
        hint = "the file is damaged: copy or export the model again"
        raise EmitcError(f"the file claims {count} {what}", Where(tensor=what), why, hint)
    return count


def _integers(length: int, as_numpy: Callable[[], Any], limit: int, what: str) -> tuple[int, ...]:
    """A vector of integers; empty when it is absent."""
    return tuple(as_numpy().tolist()) if _count(length, limit, what) else ()


def _text(raw: bytes | None) -> str:
    """A name of the file; bytes that are not UTF-8 are kept visible."""
    return (raw or b"").decode("utf-8", errors="backslashreplace")


@cache
def _fields(class_name: str) -> tuple[tuple[str, str, bool], ...]:
    """(schema name, accessor, whether it is a vector) of every field of an options table."""
    cls = getattr(tflite, class_name)
    own_methods = [n for n in vars(cls) if n != "Init" and not n.startswith(("_", "GetRoot"))]
    names = [n for n in own_methods if not n.endswith("HasIdentifier")]
    vectors = {n.removesuffix("AsNumpy") for n in names if n.endswith("AsNumpy")}
    own = [
        n
        for n in names
        if not any(n.startswith(v) and n != v for v in vectors) and not n.endswith(("IsNone", "Length"))
    ]
    return tuple((re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", n).lower(), n, n in vectors) for n in own)


def _attributes(table: Any, class_name: str, where: Where) -> dict[str, Attribute]:
    """Every scalar and vector of an options table under its schema name; enumerations by name."""
    attributes: dict[str, Attribute] = {}
    for key, accessor, is_vector in _fields(class_name):
        if is_vector:
            length = getattr(table, f"{accessor}Length")()
            attributes[key] = _integers(length, getattr(table, f"{accessor}AsNumpy"), 64, f"values of {key}")
            continue
        value = getattr(table, accessor)()
        if key in _ENUMERATIONS:
            if value not in _ENUMERATIONS[key]:
                raise _damage(f"{key} has the value {value}", where, "the schema has no such setting")
            attributes[key] = _ENUMERATIONS[key][value]
        elif isinstance(value, bool | int | float):
            attributes[key] = value
        elif value is None or isinstance(value, bytes):
            attributes[key] = _text(value)
    return attributes


def _quantization(params: Any, shape: Shape, dtype: str, where: Where) -> Quantization | None:
    """Scales and zero points of a tensor, None where it has none.

    Converters write one zero point for many scales, or none; and person_detect-like files give one scale with a
    quantized dimension that means nothing then. Raises EmitcError on other shapes and on scales that are not finite
    and positive.
    """

    def refuse(what: str, why: str) -> EmitcError:
        return EmitcError(what, where, why, "the file is damaged or was written by a faulty converter: export it again")

    if params.ScaleLength() == 0:
        return None
    if dtype in schema_rules.NEVER_QUANTIZED:
        raise refuse(f"a tensor of type {dtype} has a scale", "values of this type are not quantized")
    count = _count(params.ScaleLength(), max(1, *(abs(d) for d in shape), 1), "scales")
    scales = tuple(params.ScaleAsNumpy().tolist())
    zero_points = _integers(params.ZeroPointLength(), params.ZeroPointAsNumpy, count, "zero points") or (0,)
    axis = params.QuantizedDimension() if len(shape) > 1 else 0  # a vector has one axis, whatever the file says
    if not all(math.isfinite(s) and s > 0.0 for s in scales):
        wrong = next(s for s in scales if not (math.isfinite(s) and s > 0.0))
        raise refuse("a quantization scale is not a positive number", f"found {wrong!r}")
    if count > 1 and (not 0 <= axis < len(shape) or shape[axis] != count):
        why = f"dimension {axis} of {list(shape)} should have {count} elements"
        raise refuse(f"{count} scales do not fit the shape", why)
    if len(zero_points) not in (1, count):
        raise refuse(f"{len(zero_points)} zero points for {count} scales", "one for each scale is expected")
    if len(zero_points) < count:
        zero_points *= count
    if dtype in ("int8", "uint8", "int16", "int32"):
        low, high = DType(dtype).range
        if not all(low <= z <= high for z in zero_points):
            raise refuse("a zero point is outside the tensor's type", f"{dtype} holds {low} to {high}")
    return Quantization(scales, zero_points, axis if count > 1 else 0)


def _require_tensors(positions: Iterable[int], count: int, who: str, where: Where) -> None:
    for position in positions:
        if not 0 <= position < count:
            raise _damage(f"{who} names tensor {position}", where, f"the subgraph has {count} tensors", EXPORT_AGAIN)


class _Reader:
    """One pass over the file; each method returns checked values."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.limit = len(data) // 4
        self.budget = Budget(len(data))
        self.model = opened(tflite.Model(), data, root_position(data), self.budget)
        self.blockers: list[EmitcError] = []
        self._constants: dict[int, bytes | None] = {}
        self.dense_bytes = 0
        if self.model.Version() != 3:
            what = f"schema version {self.model.Version()} is not supported"
            raise EmitcError(what, Where(), "version 3 is the only one in use", "export again")
        self.subgraphs = _count(self.model.SubgraphsLength(), self.limit, "subgraphs")
        if self.subgraphs == 0:
            raise EmitcError("the model has no subgraph", Where(), "there is nothing to compile", EXPORT_AGAIN)
        self.signatures = _count(self.model.SignatureDefsLength(), self.limit, "signatures")
        self.buffers = _count(self.model.BuffersLength(), self.limit, "buffers")
        self.codes = tuple(
            self._code(i) for i in range(_count(self.model.OperatorCodesLength(), MAX_OPERATORS, "operator codes"))
        )

    def _open(self, accessor: Any) -> Any:
        """A generated object that an accessor returned, with checks under it."""
        return opened(accessor, self.data, accessor._tab.Pos, self.budget)

    def _code(self, index: int) -> str:
        code = self._open(self.model.OperatorCodes(index))
        where = Where(op=f"operator code {index}")
        old, custom = code.DeprecatedBuiltinCode(), _text(code.CustomCode())
        # Read directly: the package's own accessor hides a builtin_code that contradicts the older field.
        builtin = code._tab.GetSlot(_BUILTIN_CODE_SLOT, 0, number_types.Int32Flags)
        absent = code._tab.Offset(_OLD_CODE_SLOT) == 0
        if builtin != old and not (builtin == 0 or absent or old == _PLACEHOLDER <= builtin):
            why = f"builtin_code {builtin} and deprecated_builtin_code {old} differ"
            raise _damage(f"operator code {index} contradicts itself", where, why)
        value = max(builtin, old)
        name = _OPCODES.get(value)
        if min(builtin, old) < 0 or name is None or value == _PLACEHOLDER:
            raise _damage(f"operator code {index} is {value}", where, "the schema has no operator of this number")
        if not 1 <= code.Version() <= schema_rules.MAX_VERSION:
            what = f"operator code {index} is {name} of version {code.Version()}"
            raise _damage(what, where, "there is no such version")
        if (name == "CUSTOM") != bool(custom):
            what = f"operator code {index} is {name} with the custom name {custom!r}"
            raise _damage(what, where, "custom operators have a name, built-in ones have none")
        return f"CUSTOM:{custom}" if name == "CUSTOM" else name

    def subgraph(
        self, index: int, shapes: dict[str, Shape]
    ) -> tuple[tuple[SourceTensor, ...], tuple[SourceNode, ...], tuple[int, ...], tuple[int, ...]]:
        """(tensors, operators, graph inputs, graph outputs) of a subgraph."""
        with _damaged(Where()):
            raw = self._open(self.model.Subgraphs(index))
            limit = min(self.limit, MAX_TENSORS)
            tensors = tuple(self.tensor(raw, i, shapes) for i in range(_count(raw.TensorsLength(), limit, "tensors")))
            operators = _count(raw.OperatorsLength(), min(self.limit, MAX_OPERATORS), "operators")
        nodes = []
        for i in range(operators):
            with _damaged(Where(op=f"op {i}")):
                nodes.append(self.node(raw, i, tensors))
        with _damaged(Where()):
            inputs = _integers(raw.InputsLength(), raw.InputsAsNumpy, limit, "graph inputs")
            outputs = _integers(raw.OutputsLength(), raw.OutputsAsNumpy, limit, "graph outputs")
        _require_tensors((*inputs, *outputs), len(tensors), "the interface", Where())
        return tensors, tuple(nodes), inputs, outputs

    def tensor(self, subgraph: Any, index: int, shapes: dict[str, Shape]) -> SourceTensor:
        """Tensor `index`, with its open dimensions as -1 unless `shapes` gives them."""
        where = Where(tensor=f"tensor {index}")
        with _damaged(where):
            raw = self._open(subgraph.Tensors(index))
            name = _text(raw.Name())
            dtype = _TYPES.get(raw.Type(), f"type {raw.Type()}").lower()
            shape = _integers(raw.ShapeLength(), raw.ShapeAsNumpy, 64, "dimensions")
            signature = _integers(raw.ShapeSignatureLength(), raw.ShapeSignatureAsNumpy, 64, "dimensions")
            where = Where(tensor=f'tensor {index} "{name}" {dtype}[{",".join(map(str, shape))}]')
            if raw.Type() not in _TYPES:
                raise _damage("a tensor has an unknown element type", where, "the schema has no such type")
            if len(signature) == len(shape):
                if any(s != d and s != -1 for s, d in zip(signature, shape, strict=True)):
                    what = "a tensor's shape contradicts its signature"
                    raise _damage(what, where, f"signature {list(signature)}", EXPORT_AGAIN)
                shape = signature
            if name in shapes:  # no shape at all is also that of a tensor whose shape the runtime works out
                shape = given_shape(name, shape, shapes[name]) if shape else shapes[name]
            check_shape(shape, dtype, where)
            if raw.Sparsity() is None:
                data = self._data(raw.Buffer(), shape, dtype, where)
            else:
                data = self._sparse(self._open(raw.Sparsity()), raw.Buffer(), shape, dtype, where)
            quantization = None
            if raw.Quantization() is not None:
                params = self._open(raw.Quantization())
                self._details(params, where)
                quantization = _quantization(params, shape, dtype, where)
            return SourceTensor(index, name, dtype, shape, quantization, data, bool(raw.IsVariable()))

    def _sparse(self, sparsity: Any, buffer: int, shape: Shape, dtype: str, where: Where) -> bytes | None:
        """The elements of a sparse constant with their zeros; None where its type stands against compiling."""
        rank, blocks = len(shape), _integers(sparsity.BlockMapLength(), sparsity.BlockMapAsNumpy, 64, "blocks")
        what = "a sparse tensor is described wrongly"
        if not rank + len(blocks) == sparsity.TraversalOrderLength() == sparsity.DimMetadataLength():
            raise _damage(what, where, f"it has {rank} dimensions")
        order = _integers(rank + len(blocks), sparsity.TraversalOrderAsNumpy, 64, "dimensions")
        if sorted(order) != list(range(rank + len(blocks))):
            raise _damage(what, where, f"its order is {list(order)}")
        levels = [self._level(self._open(sparsity.DimMetadata(i)), where) for i in range(rank + len(blocks))]
        bits = schema_rules.ELEMENT_BITS.get(dtype, 0)
        if not bits or bits % 8 or -1 in shape:
            why = "there is code for elements of whole bytes, and for known shapes"
            self.block("a sparse tensor of this type is not supported", where, why, "export without sparsity")
            return None
        if not 0 < buffer < self.buffers:
            raise _damage(f"a tensor names buffer {buffer}", where, f"the file has {self.buffers}", EXPORT_AGAIN)
        self.dense_bytes += math.prod(shape) * bits // 8
        if self.dense_bytes > MAX_DENSE_BYTES:
            why = f"the limit of all sparse constants is {MAX_DENSE_BYTES} bytes"
            raise _damage("sparse constants are too large", where, why, "export without sparsity")
        try:
            return dense(shape, bits // 8, order, blocks, levels, self._bytes(buffer, where) or b"")
        except (Damage, ValueError) as error:
            raise _damage(what, where, str(error)) from error

    def _level(self, metadata: Any, where: Where) -> Level:
        """How one dimension of a sparse tensor lists its coordinates."""
        if metadata.Format() == tflite.DimensionType.DENSE:
            return Level(max(0, metadata.DenseSize()), np.zeros(0, np.int64), np.zeros(0, np.int64))
        listed = []
        for kind, table in (
            (metadata.ArraySegmentsType(), metadata.ArraySegments()),
            (metadata.ArrayIndicesType(), metadata.ArrayIndices()),
        ):
            if kind not in _INDICES or table is None:
                raise _damage("a sparse tensor is described wrongly", where, "a dimension lists no coordinates")
            numbers = opened(_INDICES[kind](), self.data, table.Pos, self.budget)
            values = _integers(numbers.ValuesLength(), numbers.ValuesAsNumpy, len(self.data), "coordinates")
            listed.append(np.array(values, np.int64))
        return Level(-1, *listed)

    def block(self, what: str, where: Where, why: str, hint: str) -> None:
        """Notes what stands against compiling the model as a whole."""
        self.blockers.append(CannotCompile(what, where, why, hint))

    def _details(self, params: Any, where: Where) -> None:
        """A quantization of another kind stands against compiling; one that is not there is damage."""
        kind, table = params.DetailsType(), params.Details()
        if kind == tflite.QuantizationDetails.NONE and table is None:
            return
        if kind not in schema_rules.DETAILS or table is None:
            raise _damage("a tensor has a quantization of an unknown kind", where, f"kind {kind}")
        what, hint = f"a tensor has a {schema_rules.DETAILS[kind]} quantization", "export with TFLite's own quantizer"
        self.block(what, where, "only affine quantization is supported", hint)

    def _data(self, buffer: int, shape: Shape, dtype: str, where: Where) -> bytes | None:
        """The constant's bytes, None for an activation; their number must be what shape and type ask for."""
        if not 0 <= buffer < max(self.buffers, 1):
            raise _damage(f"a tensor names buffer {buffer}", where, f"the file has {self.buffers}", EXPORT_AGAIN)
        if buffer == 0:
            return None
        if buffer not in self._constants:
            self._constants[buffer] = self._bytes(buffer, where)
        data = self._constants[buffer]
        if data is None and 0 in shape:
            return b""  # an empty list, of axes for example
        bits = schema_rules.ELEMENT_BITS.get(dtype)
        if data is None or bits is None:
            return data
        expected = (math.prod(shape) * bits + 7) // 8
        if any(d < 0 for d in shape) or len(data) != expected:
            why = f"{len(data)} bytes found, {expected} expected"
            raise _damage("a constant's size does not fit its shape", where, why, EXPORT_AGAIN)
        return data

    def _bytes(self, buffer: int, where: Where) -> bytes | None:
        """A buffer's bytes, None for an empty one. Tensors that name one buffer share them."""
        raw = self._open(self.model.Buffers(buffer))
        offset, size = raw.Offset(), raw.Size()
        if offset <= 1:
            return raw.DataAsNumpy().tobytes() if raw.DataLength() else None
        if raw.DataLength() or offset + size > len(self.data):
            why = f"bytes {offset} to {offset + size} of {len(self.data)}"
            raise _damage("a constant lies outside the file", where, why, "the file is truncated")
        self.budget.spend(size)
        return self.data[offset : offset + size]

    def node(self, subgraph: Any, index: int, tensors: tuple[SourceTensor, ...]) -> SourceNode:
        raw = self._open(subgraph.Operators(index))
        where = Where(op=f"op {index}")
        if not 0 <= raw.OpcodeIndex() < len(self.codes):
            what = f"operator {index} names code {raw.OpcodeIndex()}"
            raise _damage(what, where, f"the file has {len(self.codes)}", EXPORT_AGAIN)
        op_type = self.codes[raw.OpcodeIndex()]
        inputs = _integers(raw.InputsLength(), raw.InputsAsNumpy, MAX_TENSORS, "inputs")
        outputs = _integers(raw.OutputsLength(), raw.OutputsAsNumpy, MAX_TENSORS, "outputs")
        _require_tensors((*(i for i in inputs if i != -1), *outputs), len(tensors), op_type, where)
        name = tensors[outputs[0]].name if outputs else ""
        where = Where(op=f'op {index} {op_type} "{name}"')
        operands = tuple((tensors[i].dtype, tensors[i].data is not None) for i in inputs if i != -1)
        impossible = schema_rules.impossible_operands(op_type, operands, tuple(tensors[i].dtype for i in outputs))
        if impossible:
            raise _damage(f"{op_type} has operands that it cannot have", where, impossible)
        settings = self._settings(raw, op_type, where)
        weights = next((tensors[i].quantization for i in inputs[1:2] if i != -1), None)
        kind = schema_rules.kind_of(op_type, operands, len(weights.scales) if weights else 0, settings)
        read, written = (tuple(tensors[i] if i != -1 else None for i in inputs), tuple(tensors[i] for i in outputs))
        return SourceNode(index, op_type, name, read, written, settings, kind=kind)

    def _settings(self, operator: Any, op_type: str, where: Where) -> dict[str, Attribute]:
        """The operator's options, which must be those that the schema pairs with it; {} where the file has none."""
        options, code = operator.BuiltinOptions(), operator.BuiltinOptionsType()
        length = _count(operator.CustomOptionsLength(), self.limit * 4, "bytes of options")
        if op_type.startswith(schema_rules.WITH_NUMBERS):
            return numbers(operator.CustomOptionsAsNumpy().tobytes() if length else b"", where)
        kind = _OPTIONS.get(code, f"options {code}")
        expected = schema_rules.expected_options(op_type.partition(":")[0], _OPTIONS.values())
        if (options is None) != (kind == "NONE"):
            raise _damage(f"{op_type} carries {kind}", where, "the options and their kind do not go together")
        if options is None:
            self.budget.spend(length)
            return any_options(operator.CustomOptionsAsNumpy().tobytes()) if length else {}
        if code not in _OPTIONS or (expected and kind != expected):
            raise _damage(f"{op_type} carries {kind}", where, f"the schema pairs it with {expected or 'others'}")
        if not expected:
            return {}
        return _attributes(opened(getattr(tflite, kind)(), self.data, options.Pos, self.budget), kind, where)


def read_tflite(data: bytes, shapes: dict[str, Shape] | None = None) -> SourceModel:
    """The model in `data`, the bytes of a .tflite file; `shapes` gives open dimensions by tensor name.

    Raises EmitcError when the file is not TFLite, is damaged, or contradicts itself.
    """
    require_tflite(data)
    with _damaged(Where()):
        reader = _Reader(data)
        producer = _text(reader.model.Description())
        places = {reader.model.Subgraphs(i)._tab.Pos for i in range(reader.subgraphs)}
    tensors, nodes, inputs, outputs = reader.subgraph(0, shapes or {})
    if len(places) < reader.subgraphs:
        raise _damage("two subgraphs lie at one place", Where(), "each has its own")
    subgraphs = tuple(SourceSubgraph(*reader.subgraph(index, {})) for index in range(1, reader.subgraphs))
    for index in inputs:
        where = Where(tensor=tensors[index].describe())
        if tensors[index].is_variable:
            what = "a graph input that keeps state is not supported"
            why = "the tensor is a variable, which holds its value between runs; "
            why += "vela lists such a tensor among the inputs"
            reader.block(what, where, why, "give the model that vela has read")
        if tensors[index].dtype not in _DTYPES:
            what, why = f"a graph input of type {tensors[index].dtype} is not supported", ", ".join(sorted(_DTYPES))
            reader.block(what, where, f"there is code for {why}", "quantize the model to int8")
    digest, blockers = hashlib.sha256(data).hexdigest(), tuple(reader.blockers)
    model = SourceModel("tflite", producer, digest, tensors, nodes, inputs, outputs, (), blockers, len(data), subgraphs)
    for evaluate in (decoded, densified, widened):
        model = with_constants(model, evaluate)
    model = with_circular_buffers(with_whole_bytes(model))
    model = with_state(with_signal_state(model), reader.signatures)
    return with_few_loops(with_signed_bytes(with_moved_numbers(model)))


def known_shapes(shapes: dict[str, Shape], model: SourceModel) -> None:
    names = {tensor.name for tensor in model.tensors}
    for name in shapes:
        if name not in names:
            close = ", ".join(sorted(model.tensors[i].name for i in model.inputs))
            what, why = f"no tensor is called {name}", f"the model's inputs: {close}"
            raise EmitcError(what, Where(option="--shape"), why, "name one of these")

"""TFLite files from a typed description of tensors and operators.

`write_tflite(ModelSpec(...))` returns the bytes of a flatbuffer with identifier TFL3. Equal descriptions give equal
bytes. The description is taken at its word: a model that no engine accepts (out-of-range indices, hostile names, odd
quantization) can be written on purpose; only what the file format cannot express is a ValueError.

Source  the schema of TFLite, version 3 (`schema.fbs` of TensorFlow), through the classes of the `tflite` package.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import flatbuffers
import numpy as np
import tflite
from numpy.typing import NDArray

from emitc.records import dataclass, field

LevelSpec: TypeAlias = int | tuple[tuple[int, ...], tuple[int, ...]]
"""Coordinates of a dense level, or segments and indices of a sparse one."""


@dataclass(frozen=True, slots=True)
class SparsitySpec:
    """What the schema calls SparsityParameters.

    order: the dimension of each level, those within blocks counted on from the rank; blocks: the dimension that each of these
    divides; index_bits: of an index in the file, 8, 16 or 32.
    """

    order: tuple[int, ...]
    blocks: tuple[int, ...]
    levels: tuple[LevelSpec, ...]
    index_bits: int = 32


def sparse(
    array: NDArray[Any],
    order: Sequence[int],
    sparse_levels: Sequence[int],
    blocks: Sequence[tuple[int, int]] = (),
    index_bits: int = 32,
) -> tuple[SparsitySpec, bytes]:
    """The description of an array, and its values. sparse_levels: which levels list their coordinates.

    blocks: pairs of a dimension and the elements of a block along it. Levels of blocks are dense. Zeros that no sparse level
    leaves out are among the values.

    >>> sparse(np.array([[0, 7], [0, 0]], np.int8), (0, 1), (1,))
    (SparsitySpec(order=(0, 1), blocks=(), levels=(2, ((0, 1, 1), (1,))), index_bits=32), b'\\x07')
    """
    divided = array
    for place, (dimension, within) in enumerate(blocks):
        rank = array.ndim + place
        shape = list(divided.shape)
        shape[dimension : dimension + 1] = [shape[dimension] // within, within]
        divided = np.moveaxis(divided.reshape(shape), dimension + 1, rank)
    tree = np.transpose(divided, order)
    nodes: list[tuple[int, ...]] = [()]
    levels: list[LevelSpec] = []
    for level, size in enumerate(tree.shape):
        if level not in sparse_levels:
            levels.append(size)
            nodes = [(*node, i) for node in nodes for i in range(size)]
            continue
        listed = [np.flatnonzero((tree[node] != 0).reshape(size, -1).any(axis=1)).tolist() for node in nodes]
        ends = np.cumsum([0, *map(len, listed)]).tolist()
        levels.append((tuple(ends), tuple(i for row in listed for i in row)))
        nodes = [(*node, i) for node, row in zip(nodes, listed, strict=True) for i in row]
    values = np.array([tree[node] for node in nodes], array.dtype)
    spec = SparsitySpec(tuple(order), tuple(dimension for dimension, _ in blocks), tuple(levels), index_bits)
    return spec, values.tobytes()


OptionValue: TypeAlias = int | float | bool | str | tuple[int, ...]

_SCHEMA_VERSION = 3
# The schema asks for 16-byte alignment of constant data; engines read weights in place, so it has to hold in the file.
_DATA_ALIGNMENT = 16
# OperatorCode.deprecated_builtin_code is an int8; codes from 127 on are stored there as this placeholder.
_PLACEHOLDER_CODE: int = tflite.BuiltinOperator.PLACEHOLDER_FOR_GREATER_OP_CODES


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor of a subgraph.

    name: text (encoded as UTF-8, lone surrogates kept as the bytes they stand for) or raw bytes.
    dtype: numpy's name ("int8", "float32", "int4", ...), or "string", "resource", "variant" for the format's own types.
    shape: dimensions, NHWC for images; () is a scalar. shape_signature: the same with -1 for a free dimension, or None.
    data: row-major little-endian bytes of a constant, None for a value that is computed.
    scales, zero_points: () and () is a tensor without quantization; one pair is per-tensor, several are per-channel
    along quantized_dimension. Zero points left out are zeros, one for each scale.
    is_variable: state that the engine keeps between runs (SVDF, LSTM).
    sparsity: which elements `data` has; all others are zero. None for a dense tensor.
    """

    name: str | bytes
    dtype: str
    shape: tuple[int, ...]
    data: bytes | None = None
    scales: tuple[float, ...] = ()
    zero_points: tuple[int, ...] = ()
    quantized_dimension: int = 0
    shape_signature: tuple[int, ...] | None = None
    is_variable: bool = False
    sparsity: SparsitySpec | None = None


@dataclass(frozen=True, slots=True)
class OperatorSpec:
    """One operator; tensors are indices into the subgraph's tensors, -1 is an optional input left out.

    opcode: name in the schema ("CONV_2D"), or "CUSTOM" with `custom_code` and, if needed, `custom_options`.
    options: fields of the operator's option table by their names in the schema ("stride_w"); fields left out keep the
    schema's default (strides and `depth_multiplier` default to 0 there, so state them). An enumeration is its number or
    its name: padding "SAME", fused_activation_function "RELU6", in_data_type "INT8".
    """

    opcode: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: Mapping[str, OptionValue] = field(default_factory=dict)
    version: int = 1
    custom_code: str = ""
    custom_options: bytes = b""


@dataclass(frozen=True, slots=True)
class SubgraphSpec:
    """One subgraph in addition to the main one: a branch of IF or WHILE, or the initialisation that CALL_ONCE names."""

    tensors: tuple[TensorSpec, ...]
    operators: tuple[OperatorSpec, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    name: str | bytes = ""


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A model: the main subgraph (index 0), and `subgraphs` that get the indices 1, 2, ...

    metadata: bytes that the model carries, by name.
    """

    tensors: tuple[TensorSpec, ...]
    operators: tuple[OperatorSpec, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    description: str | bytes = ""
    subgraphs: tuple[SubgraphSpec, ...] = ()
    metadata: Mapping[str, bytes] = field(default_factory=dict)


# Option tables that are not named after their operator.
_OPTION_TABLES: Mapping[str, str] = {
    **dict.fromkeys(("AVERAGE_POOL_2D", "L2_POOL_2D", "MAX_POOL_2D"), "Pool2DOptions"),
    **dict.fromkeys(("MAXIMUM", "MINIMUM"), "MaximumMinimumOptions"),
    **dict.fromkeys(
        ("MEAN", "SUM", "REDUCE_ALL", "REDUCE_ANY", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"), "ReducerOptions"
    ),
    "BATCH_MATMUL": "BatchMatMulOptions",
    "BATCH_TO_SPACE_ND": "BatchToSpaceNDOptions",
    "BIDIRECTIONAL_SEQUENCE_LSTM": "BidirectionalSequenceLSTMOptions",
    "BIDIRECTIONAL_SEQUENCE_RNN": "BidirectionalSequenceRNNOptions",
    "L2_NORMALIZATION": "L2NormOptions",
    "LSTM": "LSTMOptions",
    "PADV2": "PadV2Options",
    "RNN": "RNNOptions",
    "SPACE_TO_BATCH_ND": "SpaceToBatchNDOptions",
    "SVDF": "SVDFOptions",
    "TOPK_V2": "TopKV2Options",
    "UNIDIRECTIONAL_SEQUENCE_LSTM": "UnidirectionalSequenceLSTMOptions",
    "UNIDIRECTIONAL_SEQUENCE_RNN": "SequenceRNNOptions",
}
# Operators that are written without the table which the schema has for them.
_WITHOUT_OPTIONS = (
    "BITCAST BITWISE_XOR BUCKETIZE CONCAT_EMBEDDINGS DENSIFY DYNAMIC_UPDATE_SLICE EMBEDDING_LOOKUP_SPARSE HASHTABLE "
    "HASHTABLE_FIND HASHTABLE_IMPORT HASHTABLE_SIZE MATRIX_DIAG MATRIX_SET_DIAG NON_MAX_SUPPRESSION_V4 "
    "NON_MAX_SUPPRESSION_V5 RFFT2D RIGHT_SHIFT SEGMENT_SUM SIGN SKIP_GRAM SPARSE_TO_DENSE UNIQUE UNSORTED_SEGMENT_MAX "
    "UNSORTED_SEGMENT_MIN UNSORTED_SEGMENT_PROD UNSORTED_SEGMENT_SUM"
)

# The enumeration of each option field that has one.
_OPTION_ENUMS: Mapping[str, str] = {
    "padding": "Padding",
    "fused_activation_function": "ActivationFunctionType",
    "in_data_type": "TensorType",
    "out_data_type": "TensorType",
    "output_type": "TensorType",
    "out_type": "TensorType",
    "quantized_bias_type": "TensorType",
    "mode": "MirrorPadMode",
    "kernel_type": "LSTMKernelType",
    "weights_format": "FullyConnectedOptionsWeightsFormat",
}

_TEXT_FIELDS = frozenset({"container", "shared_name"})


def write_tflite(spec: ModelSpec) -> bytes:
    """The bytes of the .tflite file that `spec` describes.

    Buffer 0 is empty, as the format demands; each constant has a buffer of its own, aligned to 16 bytes, in the order
    of the tensors. Equal operator codes (name, version, custom code) are stored once, in order of first use.
    Raises ValueError for an opcode, dtype, option or enumeration name that the schema does not have, and for a number
    outside the field's type.
    """
    subgraphs = (SubgraphSpec(spec.tensors, spec.operators, spec.inputs, spec.outputs, "main"), *spec.subgraphs)
    builder = flatbuffers.Builder(1024)
    buffers: _Buffers = [b""]
    codes: _Codes = {}
    subgraph_offsets = [_subgraph(builder, subgraph, buffers, codes) for subgraph in subgraphs]
    subgraphs_vector = _offset_vector(builder, subgraph_offsets)
    codes_vector = _offset_vector(builder, [_operator_code(builder, *code) for code in codes])
    entries = []
    for name, data in spec.metadata.items():
        text = builder.CreateString(_text(name))
        entries.append(_table(builder, "Metadata", Name=text, Buffer=_buffer_index(buffers, data)))
    metadata_vector = _offset_vector(builder, entries) if entries else None
    buffers_vector = _offset_vector(builder, [_buffer(builder, data) for data in buffers])
    description = builder.CreateString(_text(spec.description))
    model = _table(
        builder,
        "Model",
        Version=_SCHEMA_VERSION,
        OperatorCodes=codes_vector,
        Subgraphs=subgraphs_vector,
        Description=description,
        Buffers=buffers_vector,
        Metadata=metadata_vector,
    )
    builder.Finish(model, file_identifier=b"TFL3")
    return bytes(builder.Output())


def _table(builder: flatbuffers.Builder, table: str, **fields: int | float | None) -> int:
    """The offset of a table with these fields, in their order; fields that are None are left out.

    The generated functions are found by the schema's names (`StrideW` -> `Conv2DOptionsAddStrideW`).
    """
    getattr(tflite, f"{table}Start")(builder)
    for name, value in fields.items():
        try:
            if value is not None:
                getattr(tflite, f"{table}Add{name}")(builder, value)
        except (TypeError, struct.error) as error:
            raise ValueError(f"{table}: {name} cannot hold {value!r}") from error
    offset: int = getattr(tflite, f"{table}End")(builder)
    return offset


_Buffers = list[bytes]
"""Constants in file order; entry 0 is the empty buffer that every computed tensor names."""
_Codes = dict[tuple[int, int, str], int]
"""The index of each operator code (builtin code, version, custom code), in order of first use."""


def _buffer_index(buffers: _Buffers, data: bytes | None) -> int:
    if data is None:
        return 0
    buffers.append(data)
    return len(buffers) - 1


def _subgraph(builder: flatbuffers.Builder, subgraph: SubgraphSpec, buffers: _Buffers, codes: _Codes) -> int:
    tensors = _offset_vector(builder, [_tensor(builder, tensor, buffers) for tensor in subgraph.tensors])
    operators = _offset_vector(builder, [_operator(builder, operator, codes) for operator in subgraph.operators])
    inputs = _int32_vector(builder, subgraph.inputs)
    outputs = _int32_vector(builder, subgraph.outputs)
    name = builder.CreateString(_text(subgraph.name))
    return _table(builder, "SubGraph", Tensors=tensors, Inputs=inputs, Outputs=outputs, Operators=operators, Name=name)


def _tensor(builder: flatbuffers.Builder, tensor: TensorSpec, buffers: _Buffers) -> int:
    name = builder.CreateString(_text(tensor.name))
    shape = _int32_vector(builder, tensor.shape)
    signature = None if tensor.shape_signature is None else _int32_vector(builder, tensor.shape_signature)
    quantization = _quantization(builder, tensor)
    sparsity = None if tensor.sparsity is None else _sparsity(builder, tensor.sparsity)
    return _table(
        builder,
        "Tensor",
        Shape=shape,
        Type=_enum_value("TensorType", tensor.dtype.upper()),
        Buffer=_buffer_index(buffers, tensor.data),
        Name=name,
        Quantization=quantization,
        IsVariable=tensor.is_variable,
        Sparsity=sparsity,
        ShapeSignature=signature,
        HasRank=True,  # Without it a reader takes shape () for "rank unknown" instead of a scalar.
    )


def _quantization(builder: flatbuffers.Builder, tensor: TensorSpec) -> int | None:
    if not tensor.scales and not tensor.zero_points:
        return None
    zero_points = tensor.zero_points or (0,) * len(tensor.scales)
    return _table(
        builder,
        "QuantizationParameters",
        Scale=builder.CreateNumpyVector(np.array(tensor.scales, dtype="<f4")),
        ZeroPoint=builder.CreateNumpyVector(_integers(zero_points, "<i8")),
        QuantizedDimension=tensor.quantized_dimension,
    )


def _sparsity(builder: flatbuffers.Builder, sparsity: SparsitySpec) -> int:
    levels = [_level(builder, level, sparsity.index_bits) for level in sparsity.levels]
    return _table(
        builder,
        "SparsityParameters",
        TraversalOrder=_int32_vector(builder, sparsity.order),
        BlockMap=_int32_vector(builder, sparsity.blocks) if sparsity.blocks else None,
        DimMetadata=_offset_vector(builder, levels),
    )


def _level(builder: flatbuffers.Builder, level: LevelSpec, index_bits: int) -> int:
    if isinstance(level, int):
        return _table(builder, "DimensionMetadata", Format=tflite.DimensionType.DENSE, DenseSize=level)
    name, dtype = {8: ("Uint8Vector", "u1"), 16: ("Uint16Vector", "<u2"), 32: ("Int32Vector", "<i4")}[index_bits]
    kind = _enum_value("SparseIndexVector", name)
    segments, indices = (
        _table(builder, name, Values=builder.CreateNumpyVector(_integers(values, dtype))) for values in level
    )
    return _table(
        builder,
        "DimensionMetadata",
        Format=tflite.DimensionType.SPARSE_CSR,
        ArraySegmentsType=kind,
        ArraySegments=segments,
        ArrayIndicesType=kind,
        ArrayIndices=indices,
    )


def _operator(builder: flatbuffers.Builder, operator: OperatorSpec, codes: _Codes) -> int:
    code = (_enum_value("BuiltinOperator", operator.opcode), operator.version, operator.custom_code)
    code_index = codes.setdefault(code, len(codes))
    inputs = _int32_vector(builder, operator.inputs)
    outputs = _int32_vector(builder, operator.outputs)
    table = _option_table(operator.opcode)
    if table is None and operator.options:
        raise ValueError(f"{operator.opcode} has no builtin options, got {sorted(operator.options)}")
    options = None if table is None else _options(builder, table, operator.options)
    custom_options = builder.CreateByteVector(operator.custom_options) if operator.custom_options else None
    return _table(
        builder,
        "Operator",
        OpcodeIndex=code_index,
        Inputs=inputs,
        Outputs=outputs,
        BuiltinOptionsType=None if table is None else _enum_value("BuiltinOptions", table),
        BuiltinOptions=options,
        CustomOptions=custom_options,
    )


def _option_table(opcode: str) -> str | None:
    """The option table of a builtin operator, None where the operator has no table."""
    words = (word if word[:1].isdigit() else word.capitalize() for word in opcode.split("_"))
    table = _OPTION_TABLES.get(opcode, f"{''.join(words)}Options")
    return table if hasattr(tflite.BuiltinOptions, table) and opcode not in _WITHOUT_OPTIONS.split() else None


def _options(builder: flatbuffers.Builder, table: str, options: Mapping[str, OptionValue]) -> int:
    # Sorted, so that the order in which a caller's mapping was filled does not reach the file.
    return _table(
        builder, table, **{_camel(name): _option(builder, table, name, options[name]) for name in sorted(options)}
    )


def _option(builder: flatbuffers.Builder, table: str, name: str, value: OptionValue) -> int | float:
    """What the field's slot holds: the number itself, or the offset of a vector or string written here."""
    if not hasattr(tflite, f"{table}Add{_camel(name)}"):
        raise ValueError(f"{table} has no field {name}")
    if hasattr(tflite, f"{table}Start{_camel(name)}Vector"):
        if not isinstance(value, tuple):
            raise ValueError(f"{table}.{name} is a vector, got {value!r}")
        return _int32_vector(builder, value)
    if name in _TEXT_FIELDS and isinstance(value, str):
        offset: int = builder.CreateString(_text(value))
        return offset
    if name in _OPTION_ENUMS and isinstance(value, str):
        return _enum_value(_OPTION_ENUMS[name], value)
    if name in _TEXT_FIELDS or isinstance(value, str | tuple):
        raise ValueError(f"{table}.{name} cannot hold {value!r}")
    return value


def _camel(name: str) -> str:
    """`stride_w` -> `StrideW`, as the generated functions spell the schema's field names."""
    return "".join(part.capitalize() for part in name.split("_"))


def _operator_code(builder: flatbuffers.Builder, code: int, version: int, custom_code: str) -> int:
    return _table(
        builder,
        "OperatorCode",
        DeprecatedBuiltinCode=min(code, _PLACEHOLDER_CODE),
        CustomCode=builder.CreateString(_text(custom_code)) if custom_code else None,
        Version=version,
        BuiltinCode=code,
    )


def _buffer(builder: flatbuffers.Builder, data: bytes) -> int:
    vector = None
    if data:
        # StartVector aligns the first element; the bytes are then placed in one piece, last to first.
        builder.StartVector(1, len(data), _DATA_ALIGNMENT)
        builder.head -= len(data)
        builder.Bytes[builder.head : builder.head + len(data)] = data
        vector = builder.EndVector()
    return _table(builder, "Buffer", Data=vector)


def _offset_vector(builder: flatbuffers.Builder, offsets: Sequence[int]) -> int:
    builder.StartVector(4, len(offsets), 4)
    for offset in reversed(offsets):
        builder.PrependUOffsetTRelative(offset)
    vector: int = builder.EndVector()
    return vector


def _int32_vector(builder: flatbuffers.Builder, values: Sequence[int]) -> int:
    vector: int = builder.CreateNumpyVector(_integers(values, "<i4"))
    return vector


def _integers(values: Sequence[int], dtype: str) -> np.ndarray:
    """`values` as a 1-D array; ValueError when one is outside `dtype`."""
    try:
        return np.array(values, dtype=dtype)
    except OverflowError as error:
        raise ValueError(f"{tuple(values)} does not fit {dtype}") from error


def _enum_value(enumeration: str, name: str) -> int:
    value = getattr(getattr(tflite, enumeration), name, None)
    if not isinstance(value, int):
        raise ValueError(f"{enumeration} has no member {name!r}")
    return value


def _text(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")

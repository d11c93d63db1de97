"""What the TFLite schema and the operators' specifications exclude, before any operator is looked at by itself.

A file that breaks one of these rules was not written so by a converter: it is damaged, and is refused as such instead of
being called a valid model without code. Unknown operators are given the benefit of the doubt.
Source: the TFLite FlatBuffers schema, version 3, and the element types that TFLite's built-in kernels register.
"""

from collections.abc import Iterable, Mapping

from emitc.ir import DType
from emitc.source import Attribute

ELEMENT_BITS = {
    "int4": 4,
    **dict.fromkeys(("int8", "uint8", "bool"), 8),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16"), 16),
    **dict.fromkeys(("int32", "uint32", "float32"), 32),
    **dict.fromkeys(("int64", "uint64", "float64", "complex64"), 64),
    "complex128": 128,
}
"""Bits of an element in a constant's buffer; strings, resources and variants have no fixed size."""

NEVER_QUANTIZED = frozenset({"bool", "string", "resource", "variant", "complex64", "complex128"})
"""Types whose values are no multiples of a scale."""

MAX_VERSION = 32
"""Operators count their versions from 1; none has come near this one."""

WITH_NUMBERS = ("CUSTOM:TFLite_Detection_PostProcess", "CUSTOM:Signal", "CUSTOM:CIRCULAR_BUFFER")
"""What the names of custom operators begin with whose options are numbers."""

_OTHER_OPTIONS = {
    **dict.fromkeys(("AVERAGE_POOL_2D", "MAX_POOL_2D", "L2_POOL_2D"), "Pool2DOptions"),
    "L2_NORMALIZATION": "L2NormOptions",
    **dict.fromkeys(("MAXIMUM", "MINIMUM"), "MaximumMinimumOptions"),
    **dict.fromkeys(
        ("MEAN", "SUM", *(f"REDUCE_{name}" for name in ("MAX", "MIN", "PROD", "ANY", "ALL"))), "ReducerOptions"
    ),
    "UNIDIRECTIONAL_SEQUENCE_RNN": "SequenceRNNOptions",
    **dict.fromkeys(("RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL", "MULTINOMIAL"), "RandomOptions"),
    "CONV_3D_TRANSPOSE": "Conv3DOptions",
}
"""Options tables whose names do not follow from the operator's."""
_OPTIONLESS = {
    **dict.fromkeys(("DELEGATE", "CUSTOM"), (0, "")),
    **dict.fromkeys(
        ("LOGISTIC", "TANH", "RELU", "RELU6", "RELU_N1_TO_1", "RELU_0_TO_1", "ELU", "LOG", "RSQRT"), (1, "")
    ),
    **dict.fromkeys(("COMPLEX_ABS", "REAL", "IMAG"), (1, "")),
    **dict.fromkeys(("FLOOR", "CEIL", "ROUND", "SIN", "SQRT"), (1, "float32")),
    **dict.fromkeys(("PRELU", "BROADCAST_ARGS", "EMBEDDING_LOOKUP"), (2, "")),
    **dict.fromkeys(("HASHTABLE_LOOKUP", "DILATE"), (3, "")),
    "REDUCE_WINDOW": (5, ""),
}
"""Operators without an option table: inputs that they need, and their only element type where there is only one."""

DETAILS = {1: "custom", 2: "blockwise"}
"""Quantizations without code, by the schema's number; the package tflite does not know the second one."""
_MOVES = frozenset({
    "RESHAPE", "SQUEEZE", "EXPAND_DIMS", "SLICE", "STRIDED_SLICE", "PACK", "UNPACK", "SPLIT", "SPLIT_V",
    "CONCATENATION", "TRANSPOSE", "PAD", "PADV2", "MIRROR_PAD", "TILE", "GATHER", "REVERSE_V2", "SPACE_TO_DEPTH",
    "DEPTH_TO_SPACE", "BATCH_TO_SPACE_ND", "SPACE_TO_BATCH_ND", "RESIZE_NEAREST_NEIGHBOR",
})  # fmt: skip
"""Operators that take any element type and give the same one."""
_NUMERIC = frozenset({
    "CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "TRANSPOSE_CONV", "AVERAGE_POOL_2D", "MAX_POOL_2D",
    "L2_POOL_2D", "ADD", "SUB", "MUL", "DIV", "MINIMUM", "MAXIMUM", "SOFTMAX", "LOG_SOFTMAX", "LOGISTIC", "TANH",
    "RELU", "RELU6", "RELU_N1_TO_1", "LEAKY_RELU", "HARD_SWISH", "PRELU", "ELU", "MEAN", "SUM", "ARG_MAX", "ARG_MIN",
    "QUANTIZE", "RESIZE_BILINEAR", "SVDF", "LSTM", "UNIDIRECTIONAL_SEQUENCE_LSTM", "BATCH_MATMUL",
})  # fmt: skip
"""Operators that compute in float32 or quantized integers only."""
_PACKED_WEIGHTS = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "BATCH_MATMUL"})
"""Operators that take constants of int4."""
_KNOWN = frozenset(dtype.value for dtype in DType if not dtype.packed)


def expected_options(op_type: str, tables: Iterable[str]) -> str:
    """The options table that the schema pairs with an operator, NONE for none, "" where the pairing is not known.

    tables: names of the schema's options tables. (StableHLO operators have theirs in a second union.)
    """
    if op_type in _OPTIONLESS or op_type.startswith("STABLEHLO_"):
        return "NONE"
    word = op_type.replace("_", "").lower() + "options"
    return _OTHER_OPTIONS.get(op_type) or next((name for name in tables if name.lower() == word), "")


def kind_of(
    op_type: str, inputs: tuple[tuple[str, bool], ...], weight_scales: int, options: Mapping[str, Attribute]
) -> str:
    """What an operator with these inputs is called among the kernels, "" for its own name.

    inputs: (element type, whether it is a constant) of each input that is there. weight_scales: of the second one; where a
    convolution has several, the interpreter quantizes the values with a zero point, in FULLY_CONNECTED where it is asked to.
    """
    hybrid = op_type in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED")
    if not hybrid or [dtype for dtype, _ in inputs[:2]] != ["float32", "int8"]:
        return ""
    if op_type == "FULLY_CONNECTED":
        offset = bool(options.get("asymmetric_quantize_inputs", False))
    else:
        offset = op_type == "DEPTHWISE_CONV_2D" or weight_scales > 1
    return "HybridOffsetConv2D" if offset else "HybridConv2D"


def impossible_operands(op_type: str, inputs: tuple[tuple[str, bool], ...], outputs: tuple[str, ...]) -> str:
    """Why no version of the operator takes these operands, "" where some version may.

    inputs: (element type, whether it is a constant) of each input that is there; outputs: element types.
    """
    types = (*(dtype for dtype, _ in inputs), *outputs)
    needed, only = _OPTIONLESS.get(op_type, (0, ""))
    if len(inputs) < needed or (needed and not outputs):
        return f"it has {len(inputs)} inputs and {len(outputs)} outputs"
    if only and any(dtype != only for dtype in types):
        return f"{op_type} computes in {only} only"
    unusual = [dtype for dtype in types if dtype not in _KNOWN]
    if not unusual:
        return ""
    if op_type in _MOVES:
        moved = set(types) - {"int32", "int64"}
        return "" if len(moved) == 1 else f"{op_type} does not change the element type"
    if op_type == "DEQUANTIZE":
        widens = types[0] in ("float16", "int4") and types[1:] == ("float32",)
        return "" if widens else f"DEQUANTIZE takes no {unusual[0]}"
    if op_type in _NUMERIC:
        packed = [dtype for dtype, constant in inputs if constant and dtype == "int4"]
        if op_type in _PACKED_WEIGHTS and unusual == packed:
            return ""
        return f"no version of {op_type} takes {unusual[0]}"
    return ""

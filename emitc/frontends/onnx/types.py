"""Types and values where the package onnx says nothing of them, or something else than ONNX Runtime computes; and what a model
says of them in two places, and says differently.

The checker of the package looks at each field by itself, and its inference takes what it needs. ONNX Runtime refuses models that
contradict themselves when it loads or when it runs them.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np
import onnx
import onnx.defs
import onnx.helper

from emitc.errors import EmitcError, Where
from emitc.frontends.onnx.file import dims_of, dtype_name
from emitc.frontends.onnx.numbers import faulty
from emitc.ir import Array
from emitc.records import dataclass

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
    rounded_up = "ceil_mode" in named and named["ceil_mode"].i
    if kind not in _POOLS or not rounded_up or mode not in (b"NOTSET", b"VALID", b""):
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


# ---- operators of ONNX Runtime ----


@dataclass(frozen=True, slots=True)
class Contrib:
    """standard: operator of the same shapes. operands: its inputs among this one's, given how many there are.

    type_of: input whose element type the output has; an absent one makes it float32, or uint8 where unsigned says so.
    attributes: those that both share. outputs: how many there may be.
    """

    standard: str
    operands: Callable[[int], tuple[int, ...]]
    type_of: int
    attributes: tuple[str, ...] = ()
    outputs: int = 1
    unsigned: bool = False


def _at(*positions: int) -> Callable[[int], tuple[int, ...]]:
    return lambda count: positions


_POOL = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides", "dilations")

CONTRIB: dict[str, Contrib] = {
    **{f"QLinear{kind}": Contrib(kind, _at(0, 3), 0) for kind in ("Add", "Mul")},
    **{f"QLinear{kind}": Contrib("Identity", _at(0), 0) for kind in ("Sigmoid", "LeakyRelu", "Softmax")},
    "QLinearAveragePool": Contrib("AveragePool", _at(0), 0, _POOL),
    "QLinearGlobalAveragePool": Contrib("GlobalAveragePool", _at(0), 0),
    "QLinearConcat": Contrib("Concat", lambda count: tuple(range(2, count, 3)), 2, ("axis",)),
    "QGemm": Contrib("Gemm", _at(0, 3), 8, ("transA", "transB")),
    "QuantizeLinear": Contrib("Identity", _at(0), 2, unsigned=True),
    "DequantizeLinear": Contrib("Identity", _at(0), 3),
    "Gelu": Contrib("Identity", _at(0), 0),
    "DynamicQuantizeLSTM": Contrib("LSTM", _at(0, 1, 2), 0, ("direction", "hidden_size"), outputs=3),
}


# ---- constants ----


def evaluated(node: onnx.NodeProto, constants: Sequence[onnx.TensorProto], opset: int) -> list[Array]:
    """The outputs of a node. constants: its inputs in order, those without that are left out; opset: of the model."""
    import onnx.reference  # makes a class of every operator's schema, which few models need

    outputs = [onnx.helper.make_value_info(name, onnx.TypeProto()) for name in node.output]
    graph = onnx.helper.make_graph([node], "constants", [], outputs, list(constants))
    for name, initializer in zip((i for i in node.input if i), graph.initializer, strict=True):
        initializer.name = name
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    return [np.asarray(value) for value in onnx.reference.ReferenceEvaluator(model).run(None, {})]


# ---- contradictions ----


_OPSET = "export the model again, with the operator set that its operators need"
_SPECIAL = {"float": "float32", "double": "float64"}
_GROUPED: Mapping[str, int] = {"Conv": 1, "ConvInteger": 1, "QLinearConv": 3}
"""Operators with a group, and the position of their weights."""


@lru_cache(maxsize=4096)
def _operands(op_type: str, opset: int) -> tuple[tuple[str, frozenset[str]], ...]:
    """Name and element types of each input in a version of the operator; the last one may stand for several."""
    schema = onnx.defs.get_schema(op_type, opset, "")
    return tuple((formal.name, frozenset(map(str, formal.types))) for formal in schema.inputs)


def require_types(op_type: str, opset: int, types: Sequence[onnx.TypeProto | None], where: Where) -> None:
    """Refuses an input of a type that the operator does not take in the version that the model states."""
    formals = _operands(op_type, opset)
    for position, kind in enumerate(types):
        if kind is None or not formals or not kind.HasField("tensor_type") or not kind.tensor_type.elem_type:
            continue
        name, taken = formals[min(position, len(formals) - 1)]
        number = kind.tensor_type.elem_type
        if f"tensor({onnx.TensorProto.DataType.Name(number).lower()})" not in taken:
            known = sorted(_SPECIAL.get(t[7:-1], t[7:-1]) for t in taken if t.startswith("tensor("))
            what = f"{op_type} of operator set {opset} has an input of type {dtype_name(number)}"
            raise EmitcError(what, where, f"{name} is one of {', '.join(known)}", _OPSET)


def require_group(node: onnx.NodeProto, types: Sequence[onnx.TypeProto | None], where: Where) -> None:
    """Refuses a convolution whose attribute group is not what the channels of its input and weights say."""
    at = _GROUPED.get(node.op_type)
    named = {attribute.name: attribute.i for attribute in node.attribute}
    if at is None or at >= len(types) or named.get("channels_last"):
        return
    x, w = (dims_of(types[position]) for position in (0, at))
    group = named.get("group", 1)
    if min(len(x), len(w)) < 2 or min(x[1], *w[:2]) < 0:
        return
    if group < 1 or x[1] != w[1] * group or w[0] % group:
        why = f"the input has {x[1]} channels, the weights take {w[1]} of them in each group and make {w[0]}"
        raise faulty(f"{node.op_type} has group {group}", where, why)


def require_stated(graph: onnx.GraphProto, known: Mapping[str, onnx.TypeProto]) -> None:
    """Refuses a declaration in a graph of another element type than the value has.

    known: types of the values that have one, by name.
    """
    declared = ((graph.input, "an input"), (graph.value_info, "a value"), (graph.output, "an output"))
    for value, what in ((value, what) for values, what in declared for value in values):
        kind = value.type.tensor_type.elem_type if value.type.HasField("tensor_type") else 0
        computed = known.get(value.name)
        actual = computed.tensor_type.elem_type if computed is not None and computed.HasField("tensor_type") else 0
        if kind and actual not in (0, kind):
            why = f"it is declared as {dtype_name(kind)} and is {dtype_name(actual)}"
            raise faulty(f"{what} has another type than the file declares", Where(tensor=f'"{value.name}"'), why)

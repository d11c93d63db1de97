"""What an ONNX model says about itself in two places, and says differently.

The checker of the package `onnx` looks at each field by itself, and its inference takes what it needs. ONNX Runtime refuses these
models when it loads or when it runs them.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import onnx
import onnx.defs

from emitc.errors import EmitcError, Where
from emitc.frontends.onnx.faulty import faulty
from emitc.frontends.onnx.file import dims_of, dtype_name

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
        raise faulty(
            f"{node.op_type} has group {group}",
            where,
            f"the input has {x[1]} channels, the weights take {w[1]} of them in each group and make {w[0]}",
        )


def require_stated(graph: onnx.GraphProto, known: Mapping[str, onnx.TypeProto]) -> None:
    """Refuses a declaration in a graph of another element type than the value has.

    known: types of the values that have one, by name.
    """
    declared = ((graph.input, "an input"), (graph.value_info, "a value"), (graph.output, "an output"))
    for value, what in ((value, what) for values, what in declared for value in values):
        kind = value.type.tensor_type.elem_type if value.type.HasField("tensor_type") else 0
        computed = known.get(value.name)
        if (
            not kind
            or computed is None
            or not computed.HasField("tensor_type")
            or computed.tensor_type.elem_type in (0, kind)
        ):
            continue
        raise faulty(
            f"{what} has another type than the file declares",
            Where(tensor=f'"{value.name}"'),
            f"it is declared as {dtype_name(kind)} and is {dtype_name(computed.tensor_type.elem_type)}",
        )
